"""Lines over a tuning parameter: coefficients and selection probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from . import style

H_LABEL = "h, coefficients left free"


def draw_lines(
    ax: Any, x: np.ndarray, lines: np.ndarray, names: Sequence[str], strongest: Iterable[int]
) -> None:
    """Draw the columns of ``lines`` over x, the ``strongest`` in color and the others in gray behind them."""
    strongest = list(strongest)
    drawn = np.flatnonzero(~np.isnan(lines).all(axis=0))
    for j in np.setdiff1d(drawn, strongest):
        ax.plot(x, lines[:, j], color=style.GREY, linewidth=0.9, zorder=1, label=f"_{style.plain(names[j])}")
    for rank, j in enumerate(strongest):
        ax.plot(x, lines[:, j], linewidth=1.7, zorder=3, label=style.plain(names[j]), **style.look(rank))
    if x.size > 1:
        ax.set_xlim(x[0], x[-1])
    style.tidy(ax)


def label_lines(ax: Any, ends: np.ndarray, names: Sequence[str], ranks: Sequence[tuple[int, int]]) -> None:
    """Name lines at the right end; ``ranks`` are pairs of the rank among the colored lines and the column."""
    labels = [style.plain(names[j]) for _, j in ranks]
    colors = [style.look(rank)["color"] for rank, _ in ranks]
    style.label_right_ends(ax, ends[[j for _, j in ranks]], labels, colors)


def coefficient_path(
    h_values: ArrayLike, coefs: ArrayLike, *, feature_names: Iterable | None = None, ax: Any = None,
    highlight: Any = None, linear_below: float | None = None, xlabel: str = H_LABEL,
) -> Any:  # fmt: skip
    """Draw every coefficient as a line over h, with the strongest in color and named at the right end.

    Parameters
    ----------
    h_values : array-like of shape (k,)
        The trimming parameters, increasing.
    coefs : array-like of shape (k, p)
        One row of coefficients for each of them.
    feature_names : sequence of str, optional
        Names of the p features; ``x0``, ``x1``, ... by default.
    ax : matplotlib axes, optional
        Where to draw; a new figure by default.
    highlight : int or sequence of str or int, optional
        How many features to color and name (those with the largest last coefficients, then the largest
        anywhere), or which ones, by name or index. By default up to eight that are nonzero at the end.
    linear_below : float, optional
        The vertical scale is linear up to this value and logarithmic beyond it. This is for coefficients of
        very different sizes, such as those of collinear columns at a large h. By default it is linear.
    xlabel : str

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from trimreg.plotting import coefficient_path
    >>> coefs = np.array([[2.0, 0.0, 0.0], [2.1, -1.0, 0.0], [2.0, -1.1, 0.3]])
    >>> ax = coefficient_path([1, 2, 3], coefs, feature_names=["bmi", "sex", "age"], ax=Figure().subplots())
    >>> [text.get_text() for text in ax.texts]
    ['bmi', 'sex', 'age']
    """
    h_values, order = style.sorted_values("h_values", h_values)
    if np.any(np.diff(order) < 0):
        raise ValueError("h_values must be increasing")
    coefs = style.one_row_per_point("coefs", coefs, h_values.size)
    names = style.names_of(feature_names, coefs.shape[1], "feature_names")
    strongest = _strongest(coefs, names, highlight)
    ax = style.new_axes(ax)
    draw_coefficients(ax, h_values, coefs, names, strongest, linear_below)
    if np.all(h_values == np.round(h_values)):
        ax.xaxis.get_major_locator().set_params(integer=True)
    ax.set_xlabel(xlabel)
    label_lines(ax, coefs[-1], names, list(enumerate(strongest)))
    return ax


def coefficient_path_over_h(
    hs: ArrayLike, coefs: ArrayLike, *, names: Iterable | None = None, chosen: float | None = None,
    ax: Any = None, linear_below: float | None = None,
) -> Any:  # fmt: skip
    """Draw every coefficient as a line over h, with a vertical line at the chosen h.

    Up to eight coefficients, those that are largest at the chosen h (by default at the last one), are drawn
    in color and named at the right end.

    Parameters
    ----------
    hs : array-like of shape (k,)
        The trimming parameters, distinct, in any order and at any distances.
    coefs : array-like of shape (k, p)
        One row of coefficients for each of them.
    names : sequence of str, optional
        Names of the p features; ``x0``, ``x1``, ... by default.
    chosen : number, optional
        One of ``hs``.
    ax : matplotlib axes, optional
        Where to draw; a new figure by default.
    linear_below : float, optional
        As in :func:`trimreg.plotting.coefficient_path`.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from trimreg.plotting import coefficient_path_over_h
    >>> coefs = [[2.0, 0.0, 0.0], [2.1, -1.0, 0.0], [2.0, -1.1, 0.3]]
    >>> names = ["bmi", "sex", "age"]
    >>> ax = coefficient_path_over_h([1, 2, 3], coefs, names=names, chosen=2, ax=Figure().subplots())
    >>> [text.get_text() for text in ax.texts]
    ['bmi', 'sex', 'h = 2']
    """
    hs, order = style.sorted_values("hs", hs)
    coefs = style.one_row_per_point("coefs", coefs, len(hs))[order]
    names = style.names_of(names, coefs.shape[1])
    highlight = None
    if chosen is not None:
        at = coefs[index_of("chosen", chosen, hs)]
        highlight = [j for j in np.argsort(-np.abs(at), kind="stable")[: style.NAMED] if at[j] != 0] or None
    ax = coefficient_path(
        hs, coefs, feature_names=names, highlight=highlight, ax=ax, linear_below=linear_below
    )
    style.fit_axis(ax.xaxis, hs)
    if chosen is not None:
        ax.axvline(chosen, color="0.3", linewidth=1.0, linestyle=":", zorder=2.5)
        ax.annotate(
            f"h = {chosen:g}", (chosen, 1.0), xycoords=ax.get_xaxis_transform(), xytext=(0, 2),
            textcoords="offset points", ha="center", va="bottom", color="0.3", fontsize=style.SMALL,
        )  # fmt: skip
    return ax


def stability_path(
    grid: ArrayLike, probabilities: ArrayLike, *, threshold: float | None = None,
    names: Iterable | None = None, ax: Any = None, xlabel: str = "h",
) -> Any:  # fmt: skip
    r"""Draw how often each variable is selected in subsamples, over the grid of the tuning parameter.

    A variable is selected, and so drawn in color, if :math:`\max_\lambda \hat\Pi_j(\lambda) \ge \pi`, the
    threshold (Meinshausen and Bühlmann, Stability selection, 2010, definition 2). Without a threshold the
    eight largest are. Names are written for as many as fit, the largest first.

    Parameters
    ----------
    grid : array-like of shape (k,)
        Values of the tuning parameter, distinct, in any order.
    probabilities : array-like of shape (k, p)
        One row of selection probabilities for each of them.
    threshold : float in [0, 1], optional
    names : sequence of str, optional
        Names of the p variables; ``x0``, ``x1``, ... by default.
    ax : matplotlib axes, optional
        Where to draw; a new figure by default.
    xlabel : str

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from trimreg.plotting import stability_path
    >>> probabilities = [[0.9, 0.1, 0.0], [1.0, 0.7, 0.2]]
    >>> ax = stability_path([1, 2], probabilities, threshold=0.6, ax=Figure().subplots())
    >>> [text.get_text() for text in ax.texts]
    ['threshold 0.6', 'x1', 'x0']
    """
    grid, order = style.sorted_values("grid", grid)
    probabilities = style.one_row_per_point("probabilities", probabilities, len(grid))[order]
    if not np.all((probabilities >= 0) & (probabilities <= 1)):
        raise ValueError("probabilities must lie in [0, 1]")
    if threshold is not None and not 0 <= threshold <= 1:
        raise ValueError(f"threshold must lie in [0, 1]; got {threshold}")
    names = style.names_of(names, probabilities.shape[1])
    peak = probabilities.max(axis=0)
    # Probabilities of one are common. Among ties, the variable selected over more of the grid goes first.
    strongest = np.lexsort((-probabilities.sum(axis=0), -peak))
    if threshold is None:
        selected = strongest[peak[strongest] > 0][: style.NAMED]
    else:
        selected = strongest[peak[strongest] >= threshold]

    ax = style.new_axes(ax)
    draw_lines(ax, grid, probabilities, names, selected)
    style.fit_axis(ax.xaxis, grid)
    ax.set_ylim(-0.02, 1.03)
    ax.set_xlabel(xlabel)
    ax.set_ylabel("selection probability")
    if threshold is not None:
        ax.axhline(threshold, color="0.3", linewidth=1.0, linestyle=":", zorder=2)
        ax.annotate(
            f"threshold {threshold:g}", (0.0, threshold), xycoords=ax.get_yaxis_transform(), xytext=(4, 2),
            textcoords="offset points", va="bottom", color="0.3", fontsize=style.SMALL, zorder=4,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5},
        )  # fmt: skip
    # Reversed, because among labels at one place the last is written at the top.
    ranked = list(enumerate(selected))[: int(1.0 / style.label_gap(ax)) + 1]
    label_lines(ax, probabilities[-1], names, ranked[::-1])
    return ax


def index_of(name: str, value: Any, values: Iterable) -> int:
    """The index of a value among the values; numbers may differ by rounding."""
    for i, other in enumerate(values):
        words = isinstance(value, str) or isinstance(other, str)
        if value == other if words else np.isclose(value, other, rtol=1e-9, atol=0):
            return i
    raise ValueError(f"{name} must be a point of the grid; got {value!r}")


def draw_coefficients(
    ax: Any, x: np.ndarray, coefs: np.ndarray, names: Sequence[str], strongest: Iterable[int],
    linear_below: float | None = None,
) -> None:  # fmt: skip
    """Draw coefficients over x around a line at 0, and fix the vertical limits."""
    if linear_below is not None and not linear_below > 0:
        raise ValueError(f"linear_below must be positive; got {linear_below}")
    # No line where a coefficient is zero between zeros: absent features would pile up on the axis.
    zero = np.pad(coefs == 0, ((1, 1), (0, 0)), constant_values=True)
    lines = np.where(zero[:-2] & zero[1:-1] & zero[2:], np.nan, coefs)
    draw_lines(ax, x, lines, names, strongest)
    ax.axhline(0.0, color="0.4", linewidth=0.8, zorder=2)
    ax.set_ylabel("coefficient")
    if linear_below is not None and np.abs(coefs).max() > linear_below:
        _set_scale(ax, float(linear_below), coefs)
    ax.set_ylim(ax.get_ylim())  # final from here on, because labels lie at fractions of it


def _set_scale(ax, threshold, coefs):
    from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

    ax.set_yscale("symlog", linthresh=threshold, linscale=1.5)
    # A few round numbers, the same on both sides. Those of a logarithmic axis would crowd around 0.
    largest = float(np.abs(coefs).max())
    ticks = threshold * np.array([0.5, 1, 2, 4, 10, 20, 40, 100, 200, 400, 1000])
    ticks = ticks[ticks <= largest]
    ax.yaxis.set_major_locator(FixedLocator(np.concatenate([-ticks[::-1], [0.0], ticks])))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(ScalarFormatter())
    ax.set_ylim(-1.1 * max(-coefs.min(), threshold / 2), 1.1 * max(coefs.max(), threshold / 2))
    ax.set_ylabel(f"coefficient (logarithmic beyond {threshold:g})")


def _strongest(coefs, names, highlight):
    """Indices of the features to name, the strongest first."""
    last, peak = np.abs(coefs[-1]), np.abs(coefs).max(axis=0)
    order = np.lexsort((-peak, -last))
    if highlight is None:
        return order[last[order] > 0][: style.NAMED]
    if isinstance(highlight, (int, np.integer)):
        if highlight < 0:
            raise ValueError(f"highlight must be >= 0; got {highlight}")
        return order[peak[order] > 0][:highlight]
    indices = []
    for item in highlight:
        known = item in names if isinstance(item, str) else 0 <= item < len(names)
        if not known:
            raise ValueError(f"highlight must hold names or indices of features; got {item!r}")
        indices.append(names.index(item) if isinstance(item, str) else int(item))
    return np.array(indices, dtype=int)
