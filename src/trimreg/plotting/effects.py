"""Pictures of coefficients with intervals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .style import PALETTE, names_of, new_axes, plain, tidy


def intervals(
    coef: ArrayLike, low: ArrayLike, high: ArrayLike, *, names: Iterable | None = None,
    kept: ArrayLike | None = None, ax: Any = None, max_features: int = 20,
) -> Any:  # fmt: skip
    """Draw coefficients with their intervals, one row per feature; infinite intervals are not drawn.

    Parameters
    ----------
    coef, low, high : array-like of shape (p,)
        Such as ``coef_`` and ``interval()`` of :class:`trimreg.inference.MultiSplit` or
        :class:`trimreg.inference.DoubleSelection`.
    names : sequence of str, optional
        Names of the p features; ``x0``, ``x1``, ... by default.
    kept : array-like of bool of shape (p,), optional
        Features to draw in color, the others in gray; all by default.
    ax : matplotlib axes, optional
        Where to draw; a new figure by default.
    max_features : int, default=20
        The largest number of rows; those with the largest coefficients are drawn.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from trimreg.plotting import intervals
    >>> ax = intervals([1.0, -0.5], [0.6, -1.1], [1.4, 0.1], names=["bmi", "age"], ax=Figure().subplots())
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['bmi', 'age']
    """
    coef, low, high = (np.asarray(value, dtype=float) for value in (coef, low, high))
    if coef.ndim != 1 or coef.shape != low.shape or coef.shape != high.shape:
        shapes = f"{coef.shape}, {low.shape} and {high.shape}"
        raise ValueError(f"coef, low and high must be vectors of one length; got shapes {shapes}")
    names = names_of(names, coef.size)
    kept = np.ones(coef.size, dtype=bool) if kept is None else np.asarray(kept, dtype=bool)
    finite = np.flatnonzero(np.isfinite(low) & np.isfinite(high))
    shown = finite[np.argsort(-np.abs(coef[finite]), kind="stable")][:max_features]
    ax = new_axes(ax, size=(6.0, 1.4 + 0.3 * max(len(shown), 3)))
    ax.axvline(0.0, color="0.4", linewidth=0.8, zorder=1)
    for row, j in enumerate(shown):
        color = PALETTE[0] if kept[j] else "0.6"
        ax.plot([low[j], high[j]], [row, row], color=color, linewidth=1.5, zorder=2)
        ax.plot([coef[j]], [row], color=color, marker="o", markersize=5, zorder=3)
    ax.set_yticks(range(len(shown)), [plain(names[j]) for j in shown])
    ax.set_ylim(max(len(shown), 1) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("coefficient and interval")
    tidy(ax)
    return ax
