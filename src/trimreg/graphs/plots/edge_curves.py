"""Edges over the tuning parameter, and the precision and recall of their selection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isqrt
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...plotting.paths import draw_coefficients, label_lines
from ...plotting.style import (
    MARKERS,
    SMALL,
    fit_axis,
    label_gap,
    look,
    names_of,
    new_axes,
    one_row_per_point,
    sorted_values,
    tidy,
)
from .network import crossings, overlap

_DASH = " – "  # noqa: RUF001
_LIMIT = 1.04  # of the axes of precision and recall


def path(
    x: ArrayLike, values: ArrayLike, labels: Sequence | None = None, *, ax: Any = None, top: int = 10,
    xlabel: str = "h, edges left free", ylabel: str = "partial correlation",
) -> Any:  # fmt: skip
    """Draw every edge as a line over h or alpha, with the largest in color and named at the right end.

    The end of the path with more edges is on the right: h increases and alpha decreases from left to right.

    Parameters
    ----------
    x : array-like of shape (k,)
        Distinct values of h or alpha, in any order.
    values : array-like of shape (k, m) or (k, p, p)
        One row of edges for each of them, or one matrix, of which the part above the diagonal is drawn.
    labels : sequence, optional
        One label per edge, as text or as a pair of names; for matrices, the names of the p variables. By
        default edges are named by the indices of their variables, as in ``numpy.triu_indices(p, 1)``.
    ax : matplotlib axes, optional
        Where to draw; a new figure by default.
    top : int
        How many edges to color and name, as far as the names fit: the largest at the right end, then the
        largest anywhere.
    xlabel, ylabel : str

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from trimreg.plotting import path
    >>> values = [[0.5, 0.0, 0.0], [0.5, 0.0, -0.2], [0.4, 0.1, -0.3]]
    >>> labels = [("raf", "mek"), ("raf", "erk"), ("mek", "erk")]
    >>> ax = path([1, 2, 3], values, labels, top=2, ax=Figure().subplots())
    >>> [text.get_text() for text in ax.texts]
    ['raf – mek', 'mek – erk']
    """
    if not isinstance(top, Integral) or top < 0:
        raise ValueError(f"top must be an integer >= 0; got {top!r}")
    x, order = sorted_values("x", x)
    values, labels = _edges_of(values, labels, len(x))
    values = values[order]
    counts = np.count_nonzero(values, axis=1)
    falling = counts[0] > counts[-1]
    last = values[0] if falling else values[-1]
    ax = new_axes(ax)
    strongest = np.lexsort((-np.abs(values).max(axis=0), -np.abs(last)))
    fitting = min(top, int(1.0 / label_gap(ax)) + 1)
    chosen = [int(e) for e in strongest[:fitting] if np.any(values[:, e])]
    draw_coefficients(ax, x, values, labels, chosen)
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    fit_axis(ax.xaxis, x)
    if ax.get_xscale() == "log" and np.any(x != np.round(x)):
        _set_round_ticks(ax.xaxis)  # the values of a grid of alpha are not round
    if falling and len(x) > 1:
        ax.set_xlim(x[-1], x[0])
    label_lines(ax, last, labels, list(enumerate(chosen)))
    return ax


def precision_recall(
    sizes: Any, precision: Mapping[str, ArrayLike], recall: Mapping[str, ArrayLike], *, ax: Any = None,
    mark: int | None = None, title: str | None = None,
) -> Any:  # fmt: skip
    r"""Draw the precision of the edges over their recall, one line per method and one mark per graph.

    With E the selected edges and T the true ones, precision is :math:`|E \cap T| / |E|` and recall
    :math:`|E \cap T| / |T|`. The number of edges :math:`|E|` is written beside a mark if there is room. Thin
    lines join points of equal :math:`F_1`, the harmonic mean of the two.

    Parameters
    ----------
    sizes : array-like of shape (k,), or mapping of str to such
        The number of edges of each graph; by method if they differ.
    precision, recall : mapping of str to array-like of shape (k,)
        By method. Graphs with NaN (such as the precision of an empty graph) are left out.
    ax : matplotlib axes, optional
        Where to draw; a new figure by default.
    mark : int, optional
        The size whose marks are filled, such as the number of true edges.
    title : str, optional

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from trimreg.plotting import precision_recall
    >>> precision = {"trimmed": [1.0, 0.8], "glasso": [0.9, 0.6]}
    >>> recall = {"trimmed": [0.3, 0.6], "glasso": [0.2, 0.5]}
    >>> ax = precision_recall([5, 10], precision, recall, ax=Figure().subplots())
    >>> ax.get_xlabel(), [text.get_text() for text in ax.get_legend().get_texts()]
    ('recall', ['trimmed', 'glasso'])
    """
    curves = _curves(sizes, precision, recall)
    ax = new_axes(ax, size=(6.0, 5.2))
    _draw_levels(ax)
    for rank, (method, (count, up, along)) in enumerate(curves.items()):
        style = look(rank) | {"marker": MARKERS[rank % len(MARKERS)], "zorder": 3, "clip_on": False}
        ax.plot(
            along, up, markersize=5, markerfacecolor="white", linewidth=1.5, label=method.replace("$", r"\$"),
            **style,
        )  # fmt: skip
        if mark is not None:
            at = count == mark
            ax.plot(
                along[at], up[at], **style | {"linestyle": "none"}, markersize=8, label=f"_{mark:g} edges"
            )
    # Slightly beyond one, so that numbers fit beside marks at the border.
    ax.set_xlim(0.0, _LIMIT)
    ax.set_ylim(0.0, _LIMIT)
    ax.set_xlabel("recall")
    ax.set_ylabel("precision")
    tidy(ax)
    _write_sizes(ax, curves, mark)
    columns = len(curves) if len(curves) <= 4 else -(-len(curves) // 2)
    ax.legend(
        frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.3, columnspacing=1.2,
        ncols=columns, handletextpad=0.4, fontsize=SMALL + 0.5,
    )  # fmt: skip
    if title is not None:
        ax.set_title(title, pad=8.0 + 2.0 * SMALL * -(-len(curves) // columns))  # above the legend
    return ax


def _draw_levels(ax):
    """Draw the lines of precision P and recall R with 2 P R / (P + R) = F."""
    for level in (0.2, 0.4, 0.6, 0.8):
        along = np.linspace(level / (2 - level), 1.0, 100)
        ax.plot(
            along, level * along / (2 * along - level), color="0.88", linewidth=0.8, zorder=0, label="_F1"
        )
        ax.annotate(
            f"$F_1$ {level}", (_LIMIT, level / (2 - level)), xytext=(2, 0), textcoords="offset points",
            ha="left", va="center", color="0.55", fontsize=SMALL - 1.5, annotation_clip=False,
        )  # fmt: skip


def _write_sizes(ax, curves, mark):
    """Write numbers beside the marks: first for ``mark`` and the ends, then all that overlap nothing."""
    extent = ax.get_window_extent()
    points = np.array([extent.width, extent.height]) * 72.0 / ax.figure.dpi / _LIMIT  # of one
    places = [np.column_stack([along, up]) * points for _, up, along in curves.values()]
    lines = np.concatenate([np.stack([place[:-1], place[1:]], axis=1) for place in places])
    middles, halves = np.concatenate(places), np.full((sum(map(len, places)), 2), 3.0)  # the marks
    wanted, written = [], set()
    for rank, (count, _, _) in enumerate(curves.values()):
        for k in range(len(count)):
            importance = 0 if count[k] == mark else 1 if k in (0, len(count) - 1) else 2
            wanted.append((importance, k, rank, f"{count[k]:g}"))
    ways = np.array([(1, 1), (-1, -1), (1, -1), (-1, 1), (0, 1), (0, -1), (1, 0), (-1, 0)])
    for importance, k, rank, text in sorted(wanted):
        half = np.array([0.32 * len(text) * (SMALL - 1), 0.45 * (SMALL - 1)])
        offsets = ways * (half + np.where(np.all(ways != 0, axis=1), 3.0, 4.5)[:, None])
        low, high = places[rank][k] + offsets - half, places[rank][k] + offsets + half
        touched = overlap(low, high, middles, halves)
        crossed = crossings(low, high, lines)
        best = np.lexsort((crossed, touched))[0]
        told = (text, *np.round(places[rank][k], 3))  # methods often agree on the first edges
        if told in written or touched[best] > 0 or (crossed[best] > 0 and importance == 2):
            continue
        written.add(told)
        middles = np.vstack([middles, (low + high)[best] / 2])
        halves = np.vstack([halves, half])
        ax.annotate(
            text, places[rank][k] / points, xytext=offsets[best], textcoords="offset points", ha="center",
            va="center", color=look(rank)["color"], fontsize=SMALL - 1, zorder=5, annotation_clip=False,
        )  # fmt: skip


def _set_round_ticks(axis):
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = sorted(axis.get_view_interval())
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 1000 * low else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def _edges_of(values, labels, k):
    """Values with one row per x and one column per edge, and one label per edge."""
    values = np.asarray(values, dtype=float)
    if values.ndim == 3:
        if values.shape[0] != k or values.shape[1] != values.shape[2]:
            raise ValueError(
                f"values must have one square matrix for each of the {k} x; got shape {values.shape}"
            )
        p = values.shape[1]
        rows, columns = np.triu_indices(p, 1)
        names = None if labels is None else names_of(labels, p, "labels")
        values, labels = values[:, rows, columns], _pair_labels(names, rows, columns)
    values = one_row_per_point("values", values, k)
    m = values.shape[1]
    if labels is None:
        p = (1 + isqrt(1 + 8 * m)) // 2
        if p * (p - 1) // 2 == m:
            return values, _pair_labels(None, *np.triu_indices(p, 1))
        return values, names_of(None, m)
    texts = [_DASH.join(map(str, label)) if isinstance(label, tuple | list) else label for label in labels]
    return values, names_of(texts, m, "labels")


def _pair_labels(names, rows, columns):
    names = [str(j) for j in range(max(columns, default=0) + 1)] if names is None else names
    return [names[i] + _DASH + names[j] for i, j in zip(rows, columns, strict=True)]


def _curves(sizes, precision, recall):
    """By method: numbers of edges, precision and recall, sorted by the numbers."""
    if not precision or set(precision) != set(recall):
        raise ValueError(
            f"precision and recall must have the same methods; got {list(precision)} and {list(recall)}"
        )
    curves = {}
    for method in precision:
        if isinstance(sizes, dict) and method not in sizes:
            raise ValueError(f"sizes must have every method; {method!r} is missing")
        count = np.asarray(sizes[method] if isinstance(sizes, dict) else sizes, dtype=float)
        up, along = np.asarray(precision[method], dtype=float), np.asarray(recall[method], dtype=float)
        if count.ndim != 1 or not count.shape == up.shape == along.shape:
            raise ValueError(
                f"sizes, precision and recall of {method!r} must have the same length; "
                f"got shapes {count.shape}, {up.shape} and {along.shape}"
            )
        there = ~(np.isnan(up) | np.isnan(along) | np.isnan(count))
        if np.any((np.minimum(up, along) < 0)[there]) or np.any((np.maximum(up, along) > 1)[there]):
            raise ValueError(f"precision and recall of {method!r} must lie in [0, 1]")
        order = np.flatnonzero(there)[np.argsort(count[there], kind="stable")]
        curves[str(method)] = count[order], up[order], along[order]
    return curves
