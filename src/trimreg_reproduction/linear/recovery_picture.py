"""The picture of figures 2 and 3."""

from __future__ import annotations

import numpy as np

from .methods import AUTHORS, METHODS

_SHOWN = {"trimmed": "trimmed l1", "SCAD": "SCAD", "MCP": "MCP", "lasso": "lasso"}


def draw(name, frame, any_lambda, cross_validated):
    """A matplotlib figure: (a) to (c) recovery, (d) random starts, (e) errors, (f) what the paper has not."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 6.6), layout="constrained")
    axes = figure.subplots(2, 3)
    sizes = sorted({(row["p"], row["k"]) for row in any_lambda if row["panel"] == "recovery"})
    for ax, letter, (p, k) in zip(axes[0], "abc", sizes, strict=False):
        _curves(ax, [r for r in any_lambda if (r["panel"], r["p"]) == ("recovery", p)], METHODS)
        _curves(
            ax, [r for r in cross_validated if (r["panel"], r["p"]) == ("recovery", p)], METHODS, "--", False
        )
        ax.set_title(f"({letter}) p = {p}, k = {k}; dashed: cross-validated", fontsize=9.5)
    for ax in axes[0][len(sizes) :]:
        ax.set_axis_off()
    axes[0][0].legend(frameon=False, fontsize=8.5)
    _starts(axes[1][0], frame)
    _errors(axes[1][1], frame)
    if name == "fig2":
        rows = [r for r in any_lambda if r["panel"] == "recovery" and r["p"] == 128]
        _curves(axes[1][2], rows, [m for m in METHODS if m != "lasso"])
        _curves(axes[1][2], rows, [m + AUTHORS for m in METHODS], ":", False)
        axes[1][2].set_title("(f) p = 128; dotted: solved as the authors", fontsize=9.5)
    else:
        _curves(axes[1][2], [r for r in any_lambda if r["panel"] == "first"], METHODS)
        axes[1][2].set_title("(f) p = 128, support at the first k features", fontsize=9.5)
    return figure


def _look(method):
    from trimreg.plotting.style import MARKERS, PALETTE

    place = METHODS.index(method.removesuffix(AUTHORS))
    return {"color": PALETTE[place], "marker": MARKERS[place]}


def _curves(ax, rows, methods, dashes="-", intervals=True):
    from trimreg.plotting.style import tidy

    for method in methods:
        mine = [row for row in rows if row["method"] == method]
        if not mine:
            continue
        n, share = [row["n"] for row in mine], [row["share"] for row in mine]
        label = _SHOWN.get(method) if intervals else None
        ax.plot(
            n, share, dashes, label=label, markersize=4, linewidth=1.6 if intervals else 1.0, **_look(method)
        )
        if intervals:
            low, high = [row["low"] for row in mine], [row["high"] for row in mine]
            ax.fill_between(n, low, high, color=_look(method)["color"], alpha=0.13, linewidth=0)
    ax.set_ylim(-0.03, 1.03)
    ax.set_xlabel("samples n")
    ax.set_ylabel("probability of recovery")
    tidy(ax, grid="y")


def _starts(ax, frame):
    from trimreg.plotting.style import PALETTE, tidy

    starts = frame[(frame["panel"] == "starts") & (frame["method"] == "Algorithm 1")]
    for row in starts.itertuples():
        ax.plot(np.asarray(row.iterations) + 1, row.distances, color=PALETTE[0], linewidth=0.7, alpha=0.5)
    if len(starts):
        oracle = float(starts["oracle_error"].iloc[0])
        ax.axhline(
            oracle, color="0.3", linestyle="--", linewidth=1.0, label="least squares on the true support"
        )
        ax.set(xscale="log", yscale="log")
        ax.legend(frameon=False, fontsize=8)
    ax.set_xlabel("iterations + 1")
    ax.set_ylabel("l2 distance to the truth")
    ax.set_title(f"(d) Algorithm 1, {len(starts)} random starts", fontsize=9.5)
    tidy(ax, grid="y")


def _errors(ax, frame):
    from trimreg.plotting.style import tidy

    here = frame[(frame["panel"] == "recovery") & (frame["p"] == 256) & (frame["n"] == 160)]
    groups = [(m, here[here["method"] == m]["cv_error"].dropna()) for m in METHODS]
    groups = [(method, np.log10(errors.astype(float))) for method, errors in groups if len(errors)]
    if groups:
        boxes = ax.boxplot([errors for _, errors in groups], widths=0.55, patch_artist=True, showfliers=False)
        for box, (method, _) in zip(boxes["boxes"], groups, strict=True):
            box.set(facecolor=_look(method)["color"], alpha=0.6)
        for line in boxes["medians"]:
            line.set_color("black")
        ax.set_xticks(range(1, len(groups) + 1), [_SHOWN[method] for method, _ in groups])
    ax.set_ylabel("log10 of the l2 error")
    ax.set_title("(e) cross-validated errors, n = 160, p = 256", fontsize=9.5)
    tidy(ax, grid="y")
