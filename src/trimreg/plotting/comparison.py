"""Methods side by side: their coefficients, and the progress of their objectives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .style import DASHES, MARKERS, PALETTE, SMALL, legend_above, names_of, new_axes, plain, tidy


def coefficients(
    table: Mapping[str, ArrayLike], *, feature_names: Iterable | None = None, ax: Any = None,
    max_features: int = 20,
) -> Any:  # fmt: skip
    """Draw the coefficients of several methods, one row per feature and one mark per method.

    A feature is shown if any method keeps it, the largest coefficients first. A coefficient of zero has no
    mark, so a missing mark reads as "left out".

    Parameters
    ----------
    table : mapping of str to array-like of shape (p,)
        Coefficients by method, in comparable units.
    feature_names : sequence of str, optional
        Names of the p features; ``x0``, ``x1``, ... by default.
    ax : matplotlib axes, optional
        Where to draw; a new figure by default.
    max_features : int
        The maximum number of rows. The label of the axis says how many features are not shown.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from trimreg.plotting import coefficients
    >>> table = {"trimmed lasso": [2.0, 0.0, -1.0], "lasso": [1.6, 0.1, -0.7]}
    >>> ax = coefficients(table, feature_names=["bmi", "age", "sex"], ax=Figure().subplots())
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['bmi', 'sex', 'age']
    """
    methods = {str(method): np.asarray(values, dtype=float) for method, values in table.items()}
    if not methods:
        raise ValueError("table must hold at least one method")
    shapes = {values.shape for values in methods.values()}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1:
        raise ValueError(f"table must hold vectors of one length; got shapes {sorted(shapes)}")
    values = np.stack(list(methods.values()))
    names = names_of(feature_names, values.shape[1], "feature_names")

    peak = np.abs(values).max(axis=0)
    kept = [j for j in np.argsort(-peak, kind="stable") if peak[j] > 0]
    shown = kept[:max_features]
    ax = new_axes(ax, size=(6.0, 1.4 + 0.3 * max(len(shown), 3)))
    rows = np.arange(len(shown))
    ax.axvline(0.0, color="0.4", linewidth=0.8, zorder=1)
    across = ax.get_yaxis_transform()
    ax.hlines(rows[:-1] + 0.5, 0, 1, color="0.93", linewidth=0.8, zorder=0, transform=across)
    # The marks of one feature lie above each other, so that equal coefficients do not hide one another.
    shift = np.linspace(-0.24, 0.24, len(methods)) if len(methods) > 1 else [0.0]
    for rank, (method, coef) in enumerate(methods.items()):
        present = coef[shown] != 0
        at, coef = rows[present] + shift[rank], coef[shown][present]
        color, marker = PALETTE[rank % len(PALETTE)], MARKERS[rank % len(MARKERS)]
        ax.hlines(at, 0.0, coef, color=color, linewidth=1.3, zorder=2)
        look = {"marker": marker, "markersize": 5, "linestyle": "none"}
        ax.plot(coef, at, **look, color=color, label=method, zorder=3)
    ax.set_yticks(rows, [plain(names[j]) for j in shown])
    ax.set_ylim(max(len(shown), 1) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    hidden = len(kept) - len(shown)
    ax.set_xlabel("coefficient" + (f" ({hidden} smaller features not shown)" if hidden else ""))
    tidy(ax)
    ax.spines["left"].set_visible(False)
    columns = min(len(methods), 4)
    legend_above(ax, ncols=columns, handletextpad=0.2, columnspacing=1.2, fontsize=SMALL + 0.5)
    return ax


def convergence(
    histories: Mapping[str, ArrayLike], *, ax: Any = None, reference: float | None = None,
    x: Any = "iterations", floor: float | None = None,
) -> Any:  # fmt: skip
    """Draw the objective minus the best one on a logarithmic scale, one line per solver.

    The line of a solver that ends in a worse local minimum becomes flat above the others. A line that touches
    the lower edge of the picture has attained the reference.

    Parameters
    ----------
    histories : mapping of str to sequence of float
        The objective after every step, by solver; ``result.history["objective"]`` is such a sequence.
    ax : matplotlib axes, optional
        Where to draw; a new figure by default.
    reference : float, optional
        The objective that counts as best; by default the smallest of all histories.
    x : "iterations" or mapping of str to sequence of float
        The horizontal axis: the number of the step, from 1, or the seconds after each step, by solver.
    floor : float, optional
        The smallest difference shown; by default 1e-12 of the reference. Smaller ones are mostly rounding.

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
    curves = {str(name): np.asarray(values, dtype=float) for name, values in histories.items()}
    if not curves:
        raise ValueError("histories must hold at least one solver")
    for name, values in curves.items():
        if values.ndim != 1 or values.size == 0 or not np.isfinite(values).all():
            raise ValueError(f"the history of {name!r} must be a sequence of finite numbers")
    times = _times(curves, x)
    best = min(values.min() for values in curves.values()) if reference is None else float(reference)
    top = max(float(values.max()) - best for values in curves.values())
    if floor is None:
        floor = 1e-12 * (abs(best) or abs(top) or 1.0)
    if not floor > 0:
        raise ValueError(f"floor must be positive; got {floor}")

    ax = new_axes(ax)
    for rank, (name, values) in enumerate(curves.items()):
        gap = np.maximum(values - best, floor)
        above = np.flatnonzero(gap > floor)
        gap = gap[: above[-1] + 2] if above.size else gap[:1]  # the line ends where it touches the floor
        marks = np.unique(np.geomspace(1, gap.size, min(gap.size, 8)).round().astype(int)) - 1
        # Dashes from the second line on: solvers often follow the same curve and would hide each other.
        ax.plot(
            times[name][: gap.size], gap, label=name, linewidth=1.7, marker=MARKERS[rank % len(MARKERS)],
            markersize=4.5, markevery=[int(mark) for mark in marks], color=PALETTE[rank % len(PALETTE)],
            linestyle=DASHES[rank % len(DASHES)],
        )  # fmt: skip
    ax.set_yscale("log")
    ax.set_ylim(floor, max(3.0 * top, 10 * floor))
    spans = [values.size for values in curves.values()]
    # Logarithmic for a Newton-like method beside a first-order one: tens of steps beside thousands.
    if not isinstance(x, str) or max(spans) > 50 or max(spans) > 10 * min(spans):
        ax.set_xscale("log")
    ax.set_xlabel("step" if isinstance(x, str) else "seconds")
    ax.set_ylabel("objective minus best")
    tidy(ax, grid="y")
    ax.legend(frameon=False, handlelength=2.6)
    return ax


def _times(curves, x):
    if isinstance(x, str):
        if x != "iterations":
            raise ValueError(f"x must be 'iterations' or a mapping of times; got {x!r}")
        return {name: np.arange(1, values.size + 1) for name, values in curves.items()}
    times = {}
    for name, values in curves.items():
        if name not in x:
            raise ValueError(f"x must hold the times of every solver; {name!r} is missing")
        times[name] = np.asarray(x[name], dtype=float)
        if times[name].shape != values.shape:
            raise ValueError(f"x must have one time per step of {name!r}, {values.size} in all")
        if not (times[name] > 0).all():
            raise ValueError(f"the times of {name!r} must be positive, because the axis is logarithmic")
    return times
