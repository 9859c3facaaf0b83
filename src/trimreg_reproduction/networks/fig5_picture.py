"""The picture of figure 5: weight maps as the paper draws them, and F1 against the number of samples."""

from __future__ import annotations

import numpy as np

from . import fig5


def draw(frame, table):
    """A row of maps for each start (truth, then each method), and below them F1 for each start and rule."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(13.0, 7.4), layout="constrained")
    above, below = picture.subfigures(2, 1, height_ratios=(1.15, 1.6))
    _maps(above, frame)
    _curves(below, table)
    return picture


def map_samples(frame) -> int | None:
    """The number of samples whose weights are drawn: the one nearest to the usual one."""
    ns = sorted({int(n) for n in frame["n"]})
    return min(ns, key=lambda n: abs(n - fig5.MAP_SAMPLES)) if ns else None


def matrix(values, places, shape) -> np.ndarray:
    """The matrix with those values at those places, counted row by row, and zeros elsewhere."""
    full = np.zeros(shape[0] * shape[1])
    full[np.asarray(places, dtype=int)] = values
    return full.reshape(shape)


def _weights(frame, start, method, n, name):
    """A matrix of the first replicate, or None where it is not there."""
    rows = frame[(frame["start"] == start) & (frame["method"] == method) & (frame["n"] == n)]
    rows = rows[rows["replicate"] == 0]
    if rows.empty or rows.iloc[0][name] is None:
        return None
    return matrix(rows.iloc[0][name], rows.iloc[0][f"{name}_at"], (fig5.Z, fig5.P))


def _maps(part, frame):
    n = map_samples(frame)
    shades = f"black is above {fig5.VISIBLE}, orange a nonzero below it"
    part.suptitle(f"Weights at n = {n}, rows matched with the truth: {shades}", fontsize=10)
    axes = part.subplots(len(fig5.STARTS), 1 + len(fig5.NAMES))
    for row, (start, start_name) in enumerate(fig5.STARTS.items()):
        drawn = {method: _weights(frame, start, method, n, "weights") for method in fig5.NAMES}
        truths = [_weights(frame, start, method, n, "true_weights") for method in fig5.NAMES]
        truth = next((true for true in truths if true is not None), None)
        for ax, (method, W) in zip(axes[row], [("true", truth), *drawn.items()], strict=True):
            _map(ax, W)
            if row == 0:
                ax.set_title("truth" if method == "true" else fig5.NAMES[method], fontsize=9.5)
        axes[row][0].set_ylabel(f"{start_name}\nhidden unit", fontsize=8.5)
    for ax in axes[-1]:
        ax.set_xlabel("input", fontsize=8.5)


def _map(ax, W):
    from trimreg.plotting.style import PALETTE

    if W is not None:
        for mask, color, size in (
            ((W != 0) & (np.abs(W) <= fig5.VISIBLE), PALETTE[4], 1.2),
            (np.abs(W) > fig5.VISIBLE, "black", 2.4),
        ):
            units, inputs = np.nonzero(mask)
            ax.plot(inputs + 1, units + 1, "s", color=color, markersize=size, markeredgewidth=0)
    ax.set_xlim(0, fig5.P + 1)
    ax.set_ylim(fig5.Z + 1, 0)
    ax.set_xticks([1, *range(20, fig5.P + 1, 20)])
    ax.set_yticks([1, *range(10, fig5.Z + 1, 10)])
    ax.tick_params(labelsize=7)


def _curves(part, table):
    from trimreg.plotting.style import DASHES, MARKERS, PALETTE, tidy

    rules = ("exact", "top")
    axes = part.subplots(1, len(fig5.STARTS) * len(rules), sharey=True)
    panels = [(start, rule) for start in fig5.STARTS for rule in rules]
    for ax, (start, rule) in zip(axes, panels, strict=True):
        for rank, method in enumerate(fig5.NAMES):
            line = fig5._line(table, start, method, rule)
            look = {"color": PALETTE[rank], "linestyle": DASHES[rank], "marker": MARKERS[rank]}
            ax.plot(line["x"], line["y"], markersize=4, label=line["name"], **look)
            ax.fill_between(
                line["x"], line["low"], line["high"], color=PALETTE[rank], alpha=0.15, linewidth=0
            )
        ax.set_title(f"{fig5.STARTS[start]}, rule: {fig5.RULES[rule]}", fontsize=9.5)
        ax.set_xlabel("samples n")
        ax.set_ylim(-0.03, 1.03)
        tidy(ax, grid="y")
    axes[0].set_ylabel("F1 of the support, mean and 95 % interval")
    axes[0].legend(frameon=False, fontsize=8.5, loc="lower right")
