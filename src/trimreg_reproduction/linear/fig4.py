r"""Figure 4: small regularization parameters, and the effect of h.

The paper does not print the sizes; we take (p, k) = (128, 8) throughout.

(a) Coefficients N(0, 0.8^2), log10 lambda from -3 to -1, :math:`h = \lceil 0.05 p \rceil = 7`, the incoherent
design: trimmed against lasso over n, lambda chosen by cross-validation or by the truth. (b), (c):
n = 100, coefficients N(0, 5^2), the design M_1 and the incoherent one; h from 0, where the trimmed penalty is
the l1 norm, over k = 8 to 3 k. The scaling of lambda is that of :mod:`trimreg_reproduction.linear.methods`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trimreg.datasets import make_paper_design

from ..intervals import wilson
from ..pictures import PALETTE, draw, new_figure
from ..spec import Cell, Chart, Experiment, Verdict
from .methods import LAMBDAS, simulate

P, K = 128, 8
SMALL_H = 7  # ceil(0.05 p)
SMALL_LAMBDAS = LAMBDAS[:11]
SAMPLES = (50, 75, 100, 150, 200, 300)
H_SAMPLES = 100
HS = (0, 2, 4, 6, 7, 8, 9, 10, 12, 16, 24)
PANELS = {"b": ("M1", "design M_1"), "c": ("M2", "incoherent design")}
REPLICATES = {"quick": {"a": 6, "h": 5}, "full": {"a": 200, "h": 100}}
QUICK_SAMPLES = (50, 100, 200)
QUICK_HS = (0, 4, 8, 16)


def cells(size: str) -> list[Cell]:
    """The cells of the three panels."""
    quick = size == "quick"
    found = [
        Cell.of("fig4", panel="a", n=n, replicate=replicate)
        for n in (QUICK_SAMPLES if quick else SAMPLES)
        for replicate in range(REPLICATES[size]["a"])
    ]
    for panel in PANELS:
        for replicate in range(REPLICATES[size]["h"]):
            found.append(Cell.of("fig4", panel=panel, n=H_SAMPLES, hs=size, replicate=replicate))
    return found


def run(cell: Cell) -> list[dict]:
    """One row per method (panel a), or per h and one for the lasso (panels b and c)."""
    n, panel = cell["n"], cell["panel"]
    folds = np.random.default_rng([cell.seed("hs"), 1]).integers(2**32)
    if panel == "a":
        data = make_paper_design(n, P, K, coefficient_scale=0.8, random_state=cell.rng())
        rows = simulate(
            data, ("trimmed", "lasso"), np.random.default_rng(folds), h=SMALL_H, alphas=SMALL_LAMBDAS
        )
        return [row | {"h": SMALL_H if row["method"] == "trimmed" else 0} for row in rows]
    data = make_paper_design(n, P, K, design=PANELS[panel][0], random_state=cell.rng("hs"))
    rows = []
    for h in QUICK_HS if cell["hs"] == "quick" else HS:
        methods = ("trimmed", "lasso") if h == 0 else ("trimmed",)
        # All h share the folds, so that differences between h are not due to the folds.
        rows += [row | {"h": h} for row in simulate(data, methods, np.random.default_rng(folds), h=h)]
    return rows


# -- what the rows say ------------------------------------------------------------------------------------


def summary(frame: Any) -> list[dict]:
    """For each panel, n, h and method: recovery with Wilson's intervals, and errors with standard errors."""
    rows = []
    for (panel, n, h, method), group in frame.groupby(["panel", "n", "h", "method"], sort=True):
        count = len(group)
        row = {"panel": panel, "n": int(n), "h": int(h), "method": method, "replicates": count}
        for column in ("recovered_any", "recovered_cv"):
            hits = int(group[column].astype(bool).sum())
            low, high = wilson(hits, count)
            row |= {column: hits / count, f"{column} low": low, f"{column} high": high}
        for column in ("cv_error", "best_error"):
            row |= {column: float(group[column].mean()), f"{column} se": float(group[column].sem())}
        rows.append(row)
    return rows


def charts(frame: Any) -> list[Chart]:
    """Errors and recovery over n in the small regime, and over h in both designs."""
    table = summary(frame)
    found = []
    rows = [row for row in table if row["panel"] == "a"]
    for column, label in (("cv_error", "l2 error"), ("recovered_any", "probability of recovery")):
        lines = [
            _line(method, [r for r in rows if r["method"] == method], "n", column)
            for method in ("trimmed", "lasso")
        ]
        found.append(Chart(f"Small coefficients and small lambda: {label}", "samples n", label, lines))
    for panel, (_, name) in PANELS.items():
        rows = [row for row in table if row["panel"] == panel and row["method"] == "trimmed"]
        lines = [_line(rule, rows, "h", column) for column, rule in _RULES.items()]
        found.append(Chart(f"Recovery against h, {name}, k = {K}", "h", "probability of recovery", lines))
        lines = [_line("cross-validated lambda", rows, "h", "cv_error")]
        found.append(Chart(f"Error against h, {name}, k = {K}", "h", "l2 error", lines))
    return found


_RULES = {"recovered_any": "any lambda", "recovered_cv": "cross-validated lambda"}


def _line(name, rows, along, column):
    line = {"name": name, "x": [row[along] for row in rows], "y": [row[column] for row in rows]}
    if column.startswith("recovered"):
        return line | {"low": [r[f"{column} low"] for r in rows], "high": [r[f"{column} high"] for r in rows]}
    low, high = (([r[column] + sign * 1.96 * r[f"{column} se"] for r in rows]) for sign in (-1, 1))
    return line | {"low": low, "high": high}


def judge(frame: Any) -> Verdict:
    """Judges three claims: trimmed beats lasso in the small regime, h = k is best, h = 0 is the lasso."""
    table = summary(frame)
    small = _small_regime(frame)
    met = [all(row["difference"] < 0 for row in small) and bool(small)]
    text = ["(a) cross-validated l2 error, trimmed minus lasso: "]
    text[0] += (
        ", ".join(f"{r['difference']:+.2f} +- {1.96 * r['se']:.2f} at n = {r['n']}" for r in small) + "."
    )
    for panel, (_, name) in PANELS.items():
        rows = [row for row in table if row["panel"] == panel]
        trimmed = [row for row in rows if row["method"] == "trimmed"]
        at = {row["h"]: row for row in trimmed}
        if not {0, K} <= at.keys() or len(rows) == len(trimmed):
            continue
        lasso, at_k, at_0 = next(row for row in rows if row["method"] == "lasso"), at[K], at[0]
        top = max(trimmed, key=lambda row: row["recovered_any"])
        near_best = at_k["recovered_any"] >= top["recovered_any low"]
        met.append(near_best and at_k["recovered_any"] > at_0["recovered_any"])
        met.append(at_0["cv_error"] == lasso["cv_error"])
        text.append(
            f"({panel}) {name}: recovery by any lambda {at_k['recovered_any']:.2f} "
            f"({at_k['recovered_any low']:.2f} to {at_k['recovered_any high']:.2f}) at h = k, "
            f"{at_0['recovered_any']:.2f} at h = 0 (lasso {lasso['recovered_any']:.2f}), "
            f"highest at h = {top['h']}; error {at_k['cv_error']:.2f} at h = k against "
            f"{lasso['cv_error']:.2f} for the lasso."
        )
    kind = "reproduced" if all(met) else "partly" if any(met) else "not"
    return Verdict(kind, " ".join(text), table)


def _small_regime(frame):
    rows = []
    for n, group in frame[frame["panel"] == "a"].groupby("n", sort=True):
        errors = group.pivot(index="replicate", columns="method", values="cv_error").dropna()
        gap = errors["trimmed"] - errors["lasso"]
        rows.append({"n": int(n), "difference": float(gap.mean()), "se": float(gap.sem())})
    return rows


def figure(frame: Any) -> Any:
    """Panels (a), (b), (c): recovery above, errors below."""
    table = summary(frame)
    picture, axes = new_figure(11.0, 6.2, 2, 3)
    panels = [("a", "n", "samples n", "small regime, h = 7"), *((p, "h", "h", PANELS[p][1]) for p in PANELS)]
    for column, (panel, along, label, title) in enumerate(panels):
        rows = [row for row in table if row["panel"] == panel]
        for ax, what, y in (
            (axes[0, column], "recovered_any", "probability of recovery"),
            (axes[1, column], "cv_error", "cross-validated l2 error"),
        ):
            lines = []
            for method, color in (("trimmed", PALETTE[0]), ("lasso", PALETTE[3])):
                mine = [row for row in rows if row["method"] == method]
                if mine:
                    lines.append(_line(method, mine, along, what) | {"look": {"color": color}})
            if panel != "a":
                for line in lines[1:]:  # the lasso does not depend on h
                    line |= {"level": True, "look": line["look"] | {"linestyle": "--", "linewidth": 1.2}}
            above = what == "recovered_any"
            draw(ax, Chart(f"({panel}) {title}" if above else "", label, y, lines), shares=above)
            if panel != "a":
                ax.axvline(K, color="0.75", linewidth=0.9, zorder=0)
    axes[0, 0].legend(frameon=False, fontsize=8.5)
    return picture


EXPERIMENT = Experiment(
    "fig4",
    "Small lambda, and the effect of h",
    "With small coefficients and small lambda the trimmed lasso is still better than the lasso, h suitably "
    "chosen; h = k works best, and as h goes to 0 the performance becomes that of the lasso.",
    cells,
    run,
    charts,
    figure,
    judge,
)
