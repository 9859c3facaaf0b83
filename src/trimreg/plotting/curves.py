"""How fast solvers get there."""

from __future__ import annotations

import numpy as np

from .style import DASHES, MARKERS, PALETTE, new_axes, tidy


def convergence(histories, *, ax=None, reference=None, x="iterations", floor=None):
    """Draw the objective minus the best one on a logarithmic scale, one line a solver.

    A solver that ends in a worse local minimum shows as a line that turns flat above the others. A line that
    reaches the lower edge of the picture has come to the reference.

    Parameters
    ----------
    histories : mapping of str to sequence of float
        The objective after every step, by solver; ``result.history["objective"]`` is such a sequence.
    ax : matplotlib axes, optional
        Where to draw; a new figure by default.
    reference : float, optional
        The objective that counts as best; the least of all histories by default.
    x : "iterations" or mapping of str to sequence of float
        What runs along the horizontal axis: the number of the step, from 1, or the seconds at which
        each step was done, by solver.
    floor : float, optional
        The smallest difference shown; by default 1e-12 of the reference, below which is mostly rounding.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from trimreg.plotting import convergence
    >>> ax = convergence({"mm": [3.0, 1.0], "prox": [3.0, 2.0, 1.5]}, ax=Figure().subplots())
    >>> ax.get_yscale(), [text.get_text() for text in ax.get_legend().get_texts()]
    ('log', ['mm', 'prox'])
    """
    histories = {str(name): np.asarray(values, dtype=float) for name, values in histories.items()}
    if not histories:
        raise ValueError("histories must hold at least one solver")
    for name, values in histories.items():
        if values.ndim != 1 or values.size == 0 or not np.isfinite(values).all():
            raise ValueError(f"the history of {name!r} must be a sequence of finite numbers")
    times = _times(histories, x)
    best = min(values.min() for values in histories.values()) if reference is None else float(reference)
    top = max(float(values.max()) - best for values in histories.values())
    if floor is None:
        floor = 1e-12 * (abs(best) or abs(top) or 1.0)
    if not floor > 0:
        raise ValueError(f"floor must be positive; got {floor}")

    ax = new_axes(ax)
    for rank, (name, values) in enumerate(histories.items()):
        gap = np.maximum(values - best, floor)
        above = np.flatnonzero(gap > floor)
        gap = gap[: above[-1] + 2] if above.size else gap[:1]  # it ends where it arrives
        marks = np.unique(np.geomspace(1, gap.size, min(gap.size, 8)).round().astype(int)) - 1
        ax.plot(
            times[name][: gap.size],
            gap,
            label=name,
            linewidth=1.7,
            marker=MARKERS[rank % len(MARKERS)],
            markersize=4.5,
            markevery=[int(mark) for mark in marks],
            color=PALETTE[rank % len(PALETTE)],
            # Dashes from the second on: solvers often run along the same curve, and would hide it
            linestyle=DASHES[rank % len(DASHES)],
        )
    ax.set_yscale("log")
    ax.set_ylim(floor, max(3.0 * top, 10 * floor))
    spans = [values.size for values in histories.values()]
    if isinstance(x, str):
        if max(spans) > 50 or max(spans) > 10 * min(spans):
            ax.set_xscale("log")  # a Newton-like method beside a first-order one: tens beside thousands
        ax.set_xlabel("step")
    else:
        ax.set_xscale("log")
        ax.set_xlabel("seconds")
    ax.set_ylabel("objective minus best")
    tidy(ax, grid="y")
    ax.legend(frameon=False, handlelength=2.6)
    return ax


def _times(histories, x):
    if isinstance(x, str):
        if x != "iterations":
            raise ValueError(f"x must be 'iterations' or a mapping of times; got {x!r}")
        return {name: np.arange(1, values.size + 1) for name, values in histories.items()}
    times = {}
    for name, values in histories.items():
        if name not in x:
            raise ValueError(f"x has no times for {name!r}")
        times[name] = np.asarray(x[name], dtype=float)
        if times[name].shape != values.shape:
            raise ValueError(f"x must have a time for each of the {values.size} steps of {name!r}")
        if not (times[name] > 0).all():
            raise ValueError(f"the times of {name!r} must be positive: the axis is logarithmic")
    return times
