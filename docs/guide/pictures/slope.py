"""The picture of the page on SLOPE, and its means over twenty draws.

``python docs/guide/pictures/slope.py`` runs the code of the page, draws ``slope.png`` beside this file and
prints the table. Another path may be given for the picture, and a number of draws.
"""

import contextlib
import io
import re
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from trimreg.penalties import L1, TrimmedL1
from trimreg.penalties.slope import SLOPE
from trimreg.plotting import PALETTE

HERE = Path(__file__).resolve().parent
LOOKS = {"lasso": (PALETTE[0], "o"), "SLOPE": (PALETTE[1], "s"), "trimmed": (PALETTE[2], "^")}


def page_names() -> dict:
    """What the code of the page defines."""
    text = (HERE.parent / "slope.md").read_text(encoding="utf-8")
    names = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for code in re.findall(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE):
            exec(code, names)
    return names


def draw_prox(ax):
    """What each prox takes away from an estimate, by its rank."""
    z = np.linspace(8.0, 0.0, 33)
    penalties = {"lasso": L1(), "SLOPE": SLOPE("oscar", q=1.0), "trimmed": TrimmedL1(h=8)}
    for name, penalty in penalties.items():
        color, marker = LOOKS[name]
        taken = z - penalty.bind(z.size).prox(z, alpha=1.5)
        width = 4.0 if name == "lasso" else 1.2  # to be seen behind the trimmed penalty, where they are equal
        ax.plot(z, taken, color=color, marker=marker, markersize=3.5, linewidth=width, label=name)
    ax.set_xlabel("size before the penalty")
    ax.set_ylabel("taken away by the prox")
    ax.set_title("Pessimist and optimist: which coefficients pay", fontsize=10, loc="left")
    ax.legend(frameon=False, fontsize=9)


def draw_fits(ax, data, models):
    """The coefficients of the fits, turned so that the true ones are +1, in the order of the columns."""
    turn = np.where(data.coef < 0, -1.0, 1.0)
    true = np.flatnonzero(data.coef)
    ax.hlines(np.ones(true.size), true - 0.9, true + 0.9, color="0.3", linewidth=1.5, label="truth")
    for name, model in models.items():
        color, marker = LOOKS[name]
        found = np.flatnonzero(model.coef_)
        ax.plot(found, (turn * model.coef_)[found], marker, color=color, markersize=4, alpha=0.85, label=name)
    ax.axhline(0.0, color="0.7", linewidth=0.8, zorder=0)
    ax.set_ylim(top=1.75)  # room for the legend
    ax.set_xlabel("column")
    ax.set_ylabel("coefficient (zeros have no mark)")
    ax.set_title("One data set: what was found, and what is left of it", fontsize=10, loc="left")
    ax.legend(frameon=False, fontsize=9, ncols=4, loc="upper right")


def means(compare, draws: int) -> str:
    """The rows of the page's table, averaged over seeds 0, 1, ..., as Markdown."""
    results = [compare(seed)[2] for seed in range(draws)]
    lowest = [min(rows, key=lambda name, rows=rows: rows[name][-1]) for rows in results]
    lines = [
        "| method | true | false | size kept | test error | lowest test error |",
        "|---|---|---|---|---|---|",
    ]
    for name in LOOKS:
        found, false, kept, error = np.mean([rows[name] for rows in results], axis=0)
        best = f"{lowest.count(name)} of {draws}"
        lines.append(f"| {name} | {found:.2f} | {false:.2f} | {kept:.2f} | {error:.2f} | {best} |")
    return "\n".join(lines)


def main(picture=HERE / "slope.png", draws=20):
    names = page_names()
    figure = Figure(figsize=(10.0, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(2, 3))
    draw_prox(left)
    draw_fits(right, names["data"], names["models"])
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture, dpi=110)
    print(means(names["compare"], int(draws)))


if __name__ == "__main__":
    main(*sys.argv[1:])
