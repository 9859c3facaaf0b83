"""Pictures of graphs: layout of the nodes, placement of their names, drawing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...plotting.style import GREY, PALETTE, SMALL, names_of, new_axes
from ..diagnostics.point import symmetric_matrix

POSITIVE, NEGATIVE = PALETTE[0], PALETTE[1]
NAMED_UP_TO = 60  # nodes; the names of more nodes would cover the picture
HUBS = 20  # nodes with the most edges, the only ones that are named in a larger graph
MOST_EDGES = 250  # of a larger graph; more lines run into each other
LONGEST_NAME = 24  # characters


def network(
    partial: Any, names: Sequence[str] | None = None, *, ax: Any = None, layout: str | ArrayLike = "spring",
    max_edges: int | None = None, truth: Iterable | None = None, labels: bool | None = None,
    title: str | None = None,
) -> Any:  # fmt: skip
    """Draw the graph of a matrix of partial correlations: sign as color, strength as line width.

    Parameters
    ----------
    partial : array-like of shape (p, p), or a fitted estimator
        Partial correlations, zero for pairs without an edge; the diagonal is one or zero. For an estimator,
        ``partial_correlation_`` is drawn, with the names in ``feature_names_in_`` if it has them. A precision
        matrix has opposite signs and another scale, and is refused if it is recognized.
    names : sequence of str of length p, optional
        Names of the nodes; ``x0``, ``x1``, ... by default.
    ax : matplotlib axes, optional
        Where to draw; a new figure by default.
    layout : "spring", "circular" or array-like of shape (p, 2)
        Positions of the nodes: neighbors close together (:func:`force_layout`), on a circle in the order of
        the variables, or the given points.
    max_edges : int, optional
        Draw only this many edges, the strongest; the legend says how many are not shown. A graph of more than
        60 nodes is drawn in part by default: of its largest component the 250 strongest edges, and the nodes
        that they join.
    truth : sequence of pairs, optional
        The true edges, as names or indices of their two nodes, in either order. True edges are drawn solid,
        other edges dashed, and missed edges dotted in gray. An edge hidden by ``max_edges`` is not missed.
    labels : bool, optional
        Whether to write the names; by default of all nodes if there are at most 60, else of the 20 nodes with
        the most edges, but of none around a circle.
    title : str, optional

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from trimreg.plotting import network
    >>> partial = [[1.0, 0.5, 0.0], [0.5, 1.0, -0.2], [0.0, -0.2, 1.0]]
    >>> ax = network(partial, ["raf", "mek", "erk"], ax=Figure().subplots())
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['positive', 'negative', '|ρ| = 0.2', '|ρ| = 0.5']
    """
    partial, names = _given(partial, names)
    p = len(partial)
    if max_edges is not None and (not isinstance(max_edges, Integral) or max_edges < 0):
        raise ValueError(f"max_edges must be an integer >= 0; got {max_edges!r}")
    left_out: list[str] = []
    whole = max_edges is not None or truth is not None or labels or not _is_named(layout, "spring")
    if p > NAMED_UP_TO and not whole:
        partial, names, left_out = _largest_part(partial, names)
        p = len(partial)
    pairs = np.argwhere(np.triu(partial, 1))
    pairs = pairs[np.argsort(-np.abs(partial[tuple(pairs.T)]), kind="stable")]
    known = _known_pairs(truth, names)
    missed = np.array(sorted(known - set(map(tuple, pairs.tolist()))), dtype=int).reshape(-1, 2)
    hidden = 0 if max_edges is None else max(0, len(pairs) - max_edges)
    if hidden:
        left_out.append(f"{hidden} weaker edges not shown")
    pairs = pairs[: len(pairs) - hidden]
    true = np.array([truth is None or (i, j) in known for i, j in pairs.tolist()], dtype=bool)
    joined = np.concatenate([pairs, missed])
    positions = _positions(layout, p, joined)

    ax = new_axes(ax, size=(6.0, 6.2))
    ax.set_axis_off()
    ax.set_aspect("equal")
    radius = float(np.clip(22.0 / np.sqrt(p), 2.0, 6.0))
    rho = partial[tuple(pairs.T)]
    widths = _widths(np.abs(rho), widest=radius)
    _draw_edges(ax, positions, pairs, rho, widths, true, missed)
    degree = np.bincount(joined.ravel(), minlength=p)
    _draw_nodes(ax, positions, degree > 0, radius)
    extent = np.array([ax.get_window_extent().width, ax.get_window_extent().height]) * 72.0 / ax.figure.dpi
    named = np.arange(p)
    if labels is None and p > NAMED_UP_TO:
        most = 0 if _is_named(layout, "circular") else min(HUBS, np.count_nonzero(degree))
        named = np.sort(np.argsort(-degree, kind="stable")[:most])
        if named.size:
            left_out.append(f"Named: the {named.size} nodes with the most edges")
    texts = [] if labels is not None and not labels else _write_names(ax, [names[k] for k in named], p)
    if texts and _is_named(layout, "circular") and p > 16:
        _place_as_rays(ax, positions[named], texts, radius, extent)
    else:
        _place(ax, positions, named, joined, texts, radius, extent)
    _explain(ax, rho, widths, None if truth is None else (true, missed), left_out, extent)
    if title is not None:
        ax.set_title(title)
    return ax


def _is_named(layout, name):
    return isinstance(layout, str) and layout == name


def _largest_part(partial, names):
    """The largest component with its strongest edges, and what is left out of it."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    joined = np.triu(partial, 1)
    label = connected_components(csr_array(joined != 0), directed=False)[1]
    inside = label == np.argmax(np.bincount(label))
    strength = np.where(inside[:, None] & inside, np.abs(joined), 0.0)
    cut = np.sort(strength, axis=None)[-MOST_EDGES - 1] if strength.size > MOST_EDGES else 0.0
    kept = np.where(strength > cut, joined, 0.0)
    kept += kept.T
    nodes = np.flatnonzero(kept.any(axis=0))
    if nodes.size == 0:  # no edges, or all equally strong
        return partial, names, []
    edges, shown = np.count_nonzero(joined), np.count_nonzero(kept) // 2
    left_out = []
    if nodes.size < len(partial) or shown < edges:
        shown_of = f"{nodes.size} of {len(partial)} nodes, {shown} of {edges} edges"
        left_out.append(f"Shown: {shown_of}, the strongest of the largest component")
    return kept[np.ix_(nodes, nodes)], [names[k] for k in nodes], left_out


def force_layout(p: int, edges: ArrayLike, *, iterations: int | None = None, seed: int = 0) -> np.ndarray:
    r"""Positions of p nodes, with neighbors close together and no two nodes too close.

    Two nodes at distance :math:`d` repel each other by :math:`1/d`, neighbors attract by :math:`d^2`, and all
    are drawn to the center so that separate components stay in the frame. The length of the steps is limited
    by a bound that decreases to zero (Fruchterman and Reingold, Graph drawing by force-directed placement,
    1991). The default is 400 iterations, fewer for more than 200 nodes; ``seed`` determines the start.

    Returns an array of shape (p, 2), centered, with the largest extent along the first axis.
    """
    edges = np.asarray(edges, dtype=int).reshape(-1, 2)
    joined = np.zeros((p, p), dtype=bool)
    joined[edges[:, 0], edges[:, 1]] = joined[edges[:, 1], edges[:, 0]] = True
    if iterations is None:
        iterations = int(np.clip(400 * 200 / p, 40, 400))
    # Start on a circle, in the order of a walk along the edges: this avoids most crossings.
    angle = np.empty(p)
    angle[_walk(joined)] = 2 * np.pi * np.arange(p) / p
    places = np.sqrt(p) * np.column_stack([np.cos(angle), np.sin(angle)])
    places += np.random.default_rng(seed).normal(scale=0.1, size=(p, 2))
    gravity = np.where(joined.any(axis=1, keepdims=True), 1.0, 1.4)  # isolated nodes are held by it alone
    for longest in np.sqrt(p) * np.linspace(0.3, 0.0, iterations, endpoint=False):
        apart = places[:, None] - places
        distance = np.maximum(np.sqrt(np.einsum("ijk,ijk->ij", apart, apart)), 1e-9)
        push = 1.0 / distance**2 - np.where(joined, distance, 0.0)
        force = np.einsum("ij,ijk->ik", push, apart) - gravity * places
        length = np.maximum(np.linalg.norm(force, axis=1, keepdims=True), 1e-12)
        places += force * np.minimum(1.0, longest / length)
    places -= places.mean(axis=0)
    axes = np.linalg.svd(places, full_matrices=False)[2] if p > 1 else np.eye(2)
    return places @ (axes * np.where(axes.sum(axis=1, keepdims=True) < 0, -1.0, 1.0)).T


def _walk(joined):
    """All nodes in the order of a depth-first walk that starts at nodes of low degree."""
    degree = joined.sum(axis=1)
    left, order = set(range(len(joined))), []
    while left:
        stack = [min(left, key=lambda node: (degree[node] == 0, degree[node], node))]
        while stack:
            node = stack.pop()
            if node in left:
                left.remove(node)
                order.append(node)
                stack += sorted(left & set(np.flatnonzero(joined[node]).tolist()), reverse=True)
    return np.array(order, dtype=int)


# -- drawing ----------------------------------------------------------------------------------------------


def _widths(strength, widest):
    """Line widths in points: proportional to the strength, but never invisibly thin."""
    return np.maximum(0.9 * widest * strength / strength.max(initial=1e-300), 0.5)


def _dashes(width):
    """Dash and gap in line widths, at least five and three points; otherwise thin lines would look dotted."""
    return 0, (max(2.2, 5.0 / width), max(1.4, 3.0 / width))


def _draw_edges(ax, positions, pairs, rho, widths, true, missed):
    from matplotlib.collections import LineCollection

    dotted = {"colors": GREY, "linewidths": 1.2, "linestyles": ":", "zorder": 1, "label": "_missed"}
    ax.add_collection(LineCollection(positions[missed], **dotted))
    order = np.arange(len(pairs))[::-1]  # the strongest on top
    for which, label in ((true, "_solid"), (~true, "_dashed")):
        shown = order[which[order]]
        dashes = ["-"] if which is true else [_dashes(width) for width in widths[shown]] or ["--"]
        lines = LineCollection(
            positions[pairs[shown]], colors=[POSITIVE if r > 0 else NEGATIVE for r in rho[shown]],
            linewidths=widths[shown], linestyles=dashes, zorder=2, alpha=0.85, label=label,
        )  # fmt: skip
        ax.add_collection(lines)


def _draw_nodes(ax, positions, joined, radius):
    ax.scatter(
        *positions.T, s=(2 * radius) ** 2, zorder=3, linewidths=min(1.0, radius / 4), edgecolors="0.25",
        facecolors=np.where(joined[:, None], [[0.82, 0.82, 0.82]], 1.0), label="_nodes",
    )  # fmt: skip


def _write_names(ax, names, p):
    """One text per node, not yet placed. Names are never parsed as formulas."""
    from matplotlib.patheffects import withStroke

    texts = []
    for name in names:
        name = " ".join(name.split())
        if len(name) > LONGEST_NAME:  # keep the end, because related names often differ only there
            name = name[: LONGEST_NAME // 2] + "…" + name[-(LONGEST_NAME // 2 - 1) :]
        text = ax.annotate(
            name, (0.0, 0.0), xytext=(0.0, 0.0), textcoords="offset points", ha="center", va="center",
            fontsize=SMALL if p <= 30 else SMALL - 1.5, zorder=4, parse_math=False, annotation_clip=False,
            path_effects=[withStroke(linewidth=2.0, foreground="white")],
        )  # fmt: skip
        texts.append(text)
    return texts


def _place(ax, positions, named, joined, texts, radius, extent):
    """Set the limits of the axes, and put the names of these nodes where they hide least."""
    pads = np.full((2, 2), radius + 3.0)  # margins in points at the two ends of each axis
    if not texts:
        low, high, _ = _frame(positions, extent, pads)
    else:
        sizes = _sizes(ax, texts)
        for strict in (0.05, 1.0):  # names that stick out first widen the frame, and then fit inside
            low, high, scale = _frame(positions, extent, pads)
            points = (positions - low) * scale
            segments, points = points[joined], points[named]
            offsets = label_offsets(points, sizes, segments, radius, extent, strict=strict)
            out_low = np.max(sizes / 2 - (points + offsets), axis=0)
            out_high = np.max(points + offsets + sizes / 2 - extent, axis=0)
            pads = np.maximum(pads + np.maximum(np.column_stack([out_low, out_high]) + 2.0, 0.0), pads)
        low, high, _ = _frame(positions, extent, pads)
        for text, place, offset in zip(texts, positions[named], offsets, strict=True):
            text.xy, text.xyann = tuple(place), tuple(offset)
    ax.set_xlim(low[0], high[0])
    ax.set_ylim(low[1], high[1])


def _place_as_rays(ax, positions, texts, radius, extent):
    """Names around a circle, rotated to point away from its center: horizontal ones would overlap."""
    longest = _sizes(ax, texts)[:, 0].max()
    low, high, _ = _frame(positions, extent, np.full((2, 2), radius + 5.0 + longest))
    for text, place in zip(texts, positions, strict=True):
        angle = np.degrees(np.arctan2(place[1], place[0]))
        right = abs(angle) <= 90.0
        text.set(rotation=angle if right else angle + 180.0, rotation_mode="anchor")
        text.set(ha="left" if right else "right", va="center_baseline")
        text.xy, text.xyann = tuple(place), tuple((radius + 3.0) * place)
    ax.set_xlim(low[0], high[0])
    ax.set_ylim(low[1], high[1])


def _sizes(ax, texts):
    """Widths and heights of texts in points."""
    boxes = [text.get_window_extent() for text in texts]
    return np.array([[box.width, box.height] for box in boxes]) * 72.0 / ax.figure.dpi


def _frame(positions, extent, pads):
    """Limits of the axes with equal aspect and these margins around the positions; and points per unit."""
    low, high = positions.min(axis=0), positions.max(axis=0)
    room = np.maximum(extent - pads.sum(axis=1), 0.3 * extent)
    span = high - low
    scale = float(np.min(room[span > 0] / span[span > 0])) if np.any(span > 0) else 1.0
    spare = extent - pads.sum(axis=1) - span * scale
    return low - (pads[:, 0] + spare / 2) / scale, high + (pads[:, 1] + spare / 2) / scale, scale


def label_offsets(
    points: np.ndarray, sizes: np.ndarray, segments: np.ndarray, radius: float, extent: np.ndarray, *,
    strict: float = 1.0,
) -> np.ndarray:  # fmt: skip
    """Offsets of the centers of the labels from their nodes, such that labels hide little.

    ``points`` are the nodes and ``radius`` their size, ``sizes`` the widths and heights of the labels,
    ``segments`` the two ends of each edge, ``extent`` the width and height of the frame; all in points.
    Sixteen directions are tried for each label, in three rounds. The cost counts overlaps with other labels,
    nodes, the frame (weighted by ``strict``) and edges, and the angle to the direction away from the
    neighbors.
    """
    p = len(points)
    outward = _away(points, segments)
    turns = np.linspace(0, 2 * np.pi, 16, endpoint=False)
    offsets = np.zeros((p, 2))
    placed = np.zeros(p, dtype=bool)
    crowd = np.sum(np.linalg.norm(points[:, None] - points, axis=-1) < 40.0, axis=1)
    for _ in range(3):
        for i in np.argsort(-crowd, kind="stable"):
            angles = np.arctan2(*outward[i][::-1]) + turns
            ways = np.round(np.column_stack([np.cos(angles), np.sin(angles)]), 12) + 0.0
            tries = ways * (radius + 2.0) + np.clip(1.5 * ways, -1, 1) * sizes[i] / 2
            low, high = points[i] + tries - sizes[i] / 2, points[i] + tries + sizes[i] / 2
            others = placed & (np.arange(p) != i)
            middle = points[others] + offsets[others]
            cost = 0.5 * (1.0 - np.cos(turns))
            cost += 40.0 * overlap(low, high, middle, sizes[others] / 2 + 0.5) / np.prod(sizes[i])
            cost += 20.0 * overlap(low, high, points, np.full((p, 2), radius)) / (4 * radius**2)
            cost += 0.4 * strict * np.sum(np.maximum(0, -low) + np.maximum(0, high - extent), axis=1)
            cost += 0.5 * crossings(low, high, segments)
            offsets[i], placed[i] = tries[np.argmin(cost)], True
    return offsets


def _away(points, segments):
    """One unit vector per node, pointing away from its neighbors, or from the center if it has none."""
    away = np.zeros_like(points)
    step = segments[:, 1] - segments[:, 0]
    step /= np.maximum(np.linalg.norm(step, axis=1, keepdims=True), 1e-12)
    for end, sign in ((0, -1.0), (1, 1.0)):
        for point, direction in zip(segments[:, end], sign * step, strict=True):
            away[np.all(points == point, axis=1)] += direction
    outward = points - points.mean(axis=0)
    outward /= np.maximum(np.linalg.norm(outward, axis=1, keepdims=True), 1e-12)
    away += 0.7 * outward
    length = np.linalg.norm(away, axis=1, keepdims=True)
    return np.where(length > 1e-9, away / np.maximum(length, 1e-9), [0.0, 1.0])


def overlap(low: np.ndarray, high: np.ndarray, middle: np.ndarray, half: np.ndarray) -> np.ndarray:
    """Area that each box ``[low, high]`` shares with the boxes around ``middle``, summed over these."""
    sides = np.minimum(high[:, None], middle + half) - np.maximum(low[:, None], middle - half)
    return np.prod(np.maximum(sides, 0.0), axis=2).sum(axis=1)


def crossings(low: np.ndarray, high: np.ndarray, segments: np.ndarray) -> np.ndarray:
    """How many segments cross each box: the part of a segment inside a box is an interval in [0, 1]."""
    start, step = segments[:, 0], segments[:, 1] - segments[:, 0]
    step = np.where(np.abs(step) < 1e-12, 1e-12, step)
    one, two = (low[:, None] - start) / step, (high[:, None] - start) / step
    first = np.minimum(one, two).max(axis=2, initial=0.0)
    last = np.maximum(one, two).min(axis=2, initial=1.0)
    return np.sum(first < last, axis=1)


def _explain(ax, rho, widths, found, left_out, extent):
    """Draw the legend below the graph."""
    from matplotlib.lines import Line2D

    handles = []
    for label, color, there in (("positive", POSITIVE, rho > 0), ("negative", NEGATIVE, rho < 0)):
        if np.any(there):
            handles.append(Line2D([], [], color=color, linewidth=2.0, label=label))
    strength = np.abs(rho)
    labels = {f"|ρ| = {strength[k]:.2g}": widths[k] for k in (-1, 0) if len(rho)}  # noqa: RUF001
    for label, width in labels.items():  # the weakest and the strongest; once if their labels agree
        handles.append(Line2D([], [], color="0.35", linewidth=width, label=label))
    if found is not None:
        true, missed = found
        for label, count, dashes, color in (
            ("true", int(true.sum()), "-", "0.35"),
            ("false", int((~true).sum()), _dashes(1.6), "0.35"),
            ("missed", len(missed), ":", GREY),
        ):
            handles.append(
                Line2D([], [], color=color, linestyle=dashes, linewidth=1.6, label=f"{label} ({count})")
            )
    note = "\n".join(left_out) or None
    if not handles:
        handles = [Line2D([], [], linestyle="none", label="no edges" if not left_out else "no edges shown")]
    for columns in (4, 2, 1):  # as many as fit; a legend wider than the axes would squeeze them
        legend = ax.legend(
            handles=handles, frameon=False, loc="upper center", bbox_to_anchor=(0.5, 0.0), borderaxespad=0.2,
            ncols=min(columns, len(handles)), columnspacing=1.6, handlelength=2.4, fontsize=SMALL, title=note,
            title_fontsize=SMALL,
        )  # fmt: skip
        if legend.get_window_extent().width * 72.0 / ax.figure.dpi <= 1.15 * extent[0]:
            break


# -- arguments --------------------------------------------------------------------------------------------


def _given(partial, names):
    if hasattr(partial, "partial_correlation_"):
        if names is None:
            names = getattr(partial, "feature_names_in_", None)
        partial = partial.partial_correlation_
    partial = symmetric_matrix("partial", partial)[0]
    diagonal = np.diag(partial)
    if np.abs(partial).max() > 1 + 1e-8 or not (np.allclose(diagonal, 1) or np.all(diagonal == 0)):
        raise ValueError(
            "partial must contain correlations, with a diagonal of ones or zeros; "
            "for a precision matrix call trimreg.graphs.partial_correlations first"
        )
    return partial, names_of(names, len(partial))


def _known_pairs(truth, names):
    """The true edges as pairs of indices, the smaller first."""
    known = set()
    for pair in () if truth is None else truth:
        if isinstance(pair, str) or len(pair) != 2:
            raise ValueError(f"truth must contain pairs of nodes; got {pair!r}")
        i, j = sorted(_node(node, names) for node in pair)
        if i == j:
            raise ValueError(f"truth must join different nodes; got {tuple(pair)!r}")
        known.add((i, j))
    return known


def _node(node, names):
    if isinstance(node, Integral):
        if not 0 <= node < len(names):
            raise ValueError(f"truth must contain indices below {len(names)}; got {node}")
        return int(node)
    if names.count(str(node)) != 1:
        raise ValueError(f"truth must contain names that occur once; got {node!r}")
    return names.index(str(node))


def _positions(layout, p, joined):
    if isinstance(layout, str):
        if layout == "spring":
            return force_layout(p, joined)
        if layout == "circular":
            angle = np.pi / 2 - 2 * np.pi * np.arange(p) / p  # from the top, clockwise
            return np.column_stack([np.cos(angle), np.sin(angle)])
        raise ValueError(f"layout must be 'spring', 'circular' or an array of positions; got {layout!r}")
    layout = np.array(layout, dtype=float)
    if layout.shape != (p, 2) or not np.isfinite(layout).all():
        raise ValueError(f"layout must be finite and of shape ({p}, 2); got shape {layout.shape}")
    return layout
