"""The figure of the supplement: support recovery on the diamond graph; :mod:`.diamond` computes the fits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..pictures import PALETTE, draw, legend_below, new_figure
from ..spec import Cell, Chart, Experiment, Verdict
from .diamond import ALPHAS, FRACTIONS, Recovery, default_methods, recovery

NAME = "figS"
TITLES = {0.1: "rho = 0.1: incoherence holds", 0.3: "rho = 0.3: incoherence fails"}
OTHERS = {"MCP": (PALETTE[1], "--"), "SCAD": (PALETTE[2], "-."), "glasso": (PALETTE[6], ":")}
N_SAMPLES = 100
GIVEN_ALPHA = float(np.sqrt(np.log(4) / N_SAMPLES))  # fixed in advance: the rate of the theory
#: Replicates per cell, and cells per rho.
BLOCK = 50
BLOCKS = {"quick": 1, "full": 20}


def cells(size: str) -> list[Cell]:
    """Blocks of replicates for each rho."""
    return [
        Cell.of(NAME, rho=rho, n=N_SAMPLES, replicates=BLOCK, block=block)
        for rho in TITLES
        for block in range(BLOCKS[size])
    ]


def run(cell: Cell) -> list[dict]:
    """One row per method: the replicates that some alpha recovers, and how many each alpha recovers."""
    table = recovery(
        cell["rho"], cell["n"], cell["replicates"], methods=default_methods(), given_alpha=GIVEN_ALPHA,
        random_state=cell.seed(),
    )  # fmt: skip
    fixed = table.alphas == table.given_alpha
    return [
        {"method": name, "any_alpha": table.recovered[name].tolist(), "by_alpha": table.counts[name].tolist(),
         "fixed_alpha": int(table.counts[name][fixed][0])}
        for name in table.methods
    ]  # fmt: skip


# -- what the rows say -------------------------------------------------------------------------------------


def shares(frame: Any) -> dict[float, Recovery]:
    """The recovery for each rho, with the blocks of replicates joined in order."""
    found = {}
    for rho, group in frame.groupby("rho"):
        blocks = {name: rows.sort_values("block") for name, rows in group.groupby("method", sort=False)}
        found[float(rho)] = Recovery(
            float(rho),
            np.unique([*ALPHAS, GIVEN_ALPHA])[::-1],
            GIVEN_ALPHA,
            {name: np.concatenate([*rows["any_alpha"]]) for name, rows in blocks.items()},
            {name: np.sum([*rows["by_alpha"]], axis=0) for name, rows in blocks.items()},
        )
    return found


def _trimmed(fraction):
    return f"trimmed {fraction:g}"


def judge(frame: Any) -> Verdict:
    """Judges two claims at each rho: against SCAD and MCP over a range of h, and against the graphical lasso.

    A method is better if the difference is above 1.96 standard errors.
    """
    tables, rows, text = shares(frame), [], []
    beaten, superior = [], []
    for rho, table in tables.items():
        gaps = {
            other: {fraction: table.difference(_trimmed(fraction), other) for fraction in FRACTIONS}
            for other in OTHERS
        }
        above = {
            other: [f for f, (gap, error) in gaps[other].items() if gap > 1.96 * error] for other in OTHERS
        }
        below = [f for f, (gap, error) in gaps["glasso"].items() if gap < -1.96 * error]
        both = sorted(set(above["SCAD"]) & set(above["MCP"]))
        beaten.append(len(both))
        superior.append(not below)
        best = max(FRACTIONS, key=lambda f: table.any_alpha(_trimmed(f)))
        low, high = table.interval(_trimmed(best))
        text.append(
            f"rho = {rho:g}: at best {table.any_alpha(_trimmed(best)):.2f} [{low:.2f}, {high:.2f}] at "
            f"fraction {best:g}, MCP {table.any_alpha('MCP'):.2f}, SCAD {table.any_alpha('SCAD'):.2f}, "
            f"graphical lasso {table.any_alpha('glasso'):.2f}. Better than both SCAD and MCP at "
            f"{_listed(both)}, better than the graphical lasso at {_listed(above['glasso'])}, "
            f"worse at {_listed(below)}."
        )
        for name in table.methods:
            low, high = table.interval(name)
            rows.append({
                "rho": rho, "method": name, "any alpha": round(table.any_alpha(name), 3),
                "low": round(low, 3), "high": round(high, 3),
                "best single alpha": round(table.best_alpha(name)[1], 3),
                "alpha fixed in advance": round(table.fixed_alpha(name), 3),
            })  # fmt: skip
    wide = [count >= 3 for count in beaten]  # of seven fractions: a range, and not chance
    good = [*wide, *superior]
    kind = "reproduced" if all(good) else "partly" if any(good) or any(beaten) else "not"
    return Verdict(kind, " ".join(text), rows)


def _listed(fractions):
    return ", ".join(f"{fraction:g}" for fraction in fractions) if fractions else "none of the fractions"


# -- pictures ----------------------------------------------------------------------------------------------


def chart(table: Recovery) -> Chart:
    """The probability of recovery over the fraction; the other methods are horizontal lines."""
    x, names = list(FRACTIONS), [_trimmed(fraction) for fraction in FRACTIONS]
    low, high = zip(*(table.interval(name) for name in names), strict=True)
    blue = {"color": PALETTE[0], "marker": "o", "markersize": 5}
    lines: list[dict[str, Any]] = [
        {"name": "trimmed, any alpha", "x": x, "y": [table.any_alpha(name) for name in names],
         "low": list(low), "high": list(high), "intervals": "bars",
         "look": blue | {"capsize": 3, "linewidth": 1.6, "zorder": 3}},
        {"name": "trimmed, best single alpha", "x": x, "y": [table.best_alpha(name)[1] for name in names],
         "look": blue | {"markerfacecolor": "white", "linewidth": 0.9}},
    ]  # fmt: skip
    for other, (color, dashes) in OTHERS.items():
        low, high = table.interval(other)
        line: dict[str, Any] = {"name": f"{other}, any alpha", "x": x, "level": True}
        line |= {key: [value] * len(x) for key, value in (("low", low), ("high", high))}
        line["y"] = [table.any_alpha(other)] * len(x)
        lines.append(line | {"look": {"color": color, "linestyle": dashes, "linewidth": 1.4}})
    title = TITLES.get(table.rho, f"rho = {table.rho:g}")
    return Chart(
        title, "fraction (p² - h) / p² of entries that are penalized", "probability of the support", lines
    )


def charts(frame: Any) -> list[Chart]:
    """One chart per rho."""
    drawn = [chart(table) for table in shares(frame).values()]
    return [replace(one, title=f"Diamond graph, {one.title}") for one in drawn]


def figure(frame: Any) -> Any:
    """One panel per rho, as in the supplement."""
    return draw_tables(list(shares(frame).values()))


def draw_tables(tables: list[Recovery]) -> Any:
    """A figure with one panel per table, and one legend."""
    drawing, axes = new_figure(9.6, 4.2, 1, len(tables), sharey=True)
    for ax, table in zip(axes[0], tables, strict=True):
        draw(ax, replace(chart(table), y=""), loc="left")
        ax.title.set_fontsize(10)
        ax.grid(False)
        ax.set_ylim(0.0, 1.0)
    axes[0, 0].set_ylabel("probability of the exact support")
    legend_below(drawing, axes[0, 0], fontsize=9, ncols=5)
    return drawing


EXPERIMENT = Experiment(
    name=NAME,
    title="Support recovery on the diamond graph (supplement)",
    claim=(
        "For a wide range of h the trimmed graphical lasso recovers the support more often than SCAD and "
        "MCP, whether incoherence holds or not, and always more often than the graphical lasso, "
        "which fails where incoherence does not hold. A replicate counts if some lambda of the path "
        "recovers it."
    ),
    cells=cells,
    run=run,
    charts=charts,
    figure=figure,
    judge=judge,
)
