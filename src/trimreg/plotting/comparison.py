"""Coefficients of several methods side by side."""

from __future__ import annotations

import numpy as np

from .style import MARKERS, PALETTE, SMALL, new_axes, tidy


def coefficients(table, *, feature_names=None, ax=None, max_features=20):
    """Draw the coefficients of several methods, a row a feature and a mark a method.

    A feature is shown if any method keeps it, the largest coefficients first; a coefficient of zero has
    no mark, so a missing mark reads as "left out".

    Parameters
    ----------
    table : mapping of str to array-like of shape (p,)
        Coefficients by method, in comparable units.
    feature_names : sequence of str, optional
        Names of the p features; ``x0``, ``x1``, ... by default.
    ax : matplotlib axes, optional
        Where to draw; a new figure by default.
    max_features : int
        Rows at most; the rest is left out, and the axis says how many.

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
    table = {str(method): np.asarray(values, dtype=float) for method, values in table.items()}
    if not table:
        raise ValueError("table must hold at least one method")
    shapes = {values.shape for values in table.values()}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1:
        raise ValueError(f"table must hold vectors of one length; got shapes {sorted(shapes)}")
    values = np.stack(list(table.values()))
    p = values.shape[1]
    names = [f"x{j}" for j in range(p)] if feature_names is None else [str(name) for name in feature_names]
    if len(names) != p:
        raise ValueError(f"feature_names must hold a name for each of the {p} features; got {len(names)}")

    peak = np.abs(values).max(axis=0)
    kept = [j for j in np.argsort(-peak, kind="stable") if peak[j] > 0]
    shown = kept[:max_features]
    ax = new_axes(ax, size=(6.0, 1.4 + 0.3 * max(len(shown), 3)))
    rows = np.arange(len(shown))
    ax.axvline(0.0, color="0.4", linewidth=0.8, zorder=1)
    ax.hlines(
        rows[:-1] + 0.5, 0, 1, color="0.93", linewidth=0.8, zorder=0, transform=ax.get_yaxis_transform()
    )
    # Marks of one feature lie above each other, so that equal coefficients do not hide one another.
    shift = np.linspace(-0.24, 0.24, len(table)) if len(table) > 1 else [0.0]
    for rank, (method, coef) in enumerate(table.items()):
        coef = coef[shown]
        color = PALETTE[rank % len(PALETTE)]
        present = coef != 0
        at = rows[present] + shift[rank]
        ax.hlines(at, 0.0, coef[present], color=color, linewidth=1.3, zorder=2)
        ax.plot(
            coef[present],
            at,
            marker=MARKERS[rank % len(MARKERS)],
            markersize=5,
            color=color,
            linestyle="none",
            label=method,
            zorder=3,
        )
    ax.set_yticks(rows, [names[j] for j in shown])
    ax.set_ylim(max(len(shown), 1) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    hidden = len(kept) - len(shown)
    ax.set_xlabel("coefficient" + (f" ({hidden} smaller features not shown)" if hidden else ""))
    tidy(ax)
    ax.spines["left"].set_visible(False)
    # Above the axes, where no coefficient can lie.
    ax.legend(
        frameon=False,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        borderaxespad=0.2,
        ncols=min(len(table), 4),
        handletextpad=0.2,
        columnspacing=1.2,
        fontsize=SMALL + 0.5,
    )
    return ax
