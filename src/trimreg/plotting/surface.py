"""Scores over h and alpha."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from . import style
from .paths import H_LABEL, index_of

_NO_SCORE = "no score"


def score_surface(
    hs: ArrayLike, alphas: Sequence | float | str, scores: ArrayLike, *, chosen: Any = None,
    one_se: Any = None, std: ArrayLike | None = None, greater_is_better: bool = True, label: str = "score",
    ax: Any = None,
) -> Any:  # fmt: skip
    """Draw a score over h and alpha as a color map, or over h alone as a line if there is one alpha.

    Bright colors are better, in either direction of the score. A point without a score (NaN or infinite) is
    hatched on the map and left out of the line.

    Parameters
    ----------
    hs : array-like of shape (k,)
        The trimming parameters, distinct, in any order and at any distances.
    alphas : sequence of float or "exact", of length m
        Distinct and positive, in any order. ``"exact"`` may be one of them and gets a row of its own above
        the others. A single number or word is allowed.
    scores : array-like of shape (k, m)
        One row per h. For a single alpha, shape (k,) is allowed.
    chosen : tuple of (h, alpha), optional
        The point to mark with a star; for a single alpha, h is enough.
    one_se : tuple of (h, alpha), optional
        The point of the one-standard-error rule, marked with a ring.
    std : array-like of the shape of scores, optional
        Standard errors: a band around the line; on a map they are written beside the marked points.
    greater_is_better : bool
    label : str
        The name of the score.
    ax : matplotlib axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from trimreg.plotting import score_surface
    >>> scores = [[0.1, 0.3], [0.5, 0.8], [0.4, 0.7]]
    >>> ax = score_surface([1, 2, 5], [0.1, "exact"], scores, chosen=(2, "exact"), ax=Figure().subplots())
    >>> ax.get_yscale(), [text.get_text() for text in ax.get_legend().get_texts()]
    ('log', ['chosen: h = 2, alpha exact, 0.8'])
    """
    hs, by_h = style.sorted_values("hs", hs)
    alphas, rank = _sorted_alphas(alphas)
    scores = _grid_of("scores", scores, len(hs), len(alphas))[by_h][:, rank]
    if std is not None:
        std = _grid_of("std", std, len(hs), len(alphas))[by_h][:, rank]
        if np.any(std < 0):
            raise ValueError("std must not be negative")
    given = {name: point for name, point in (("chosen", chosen), ("one_se", one_se)) if point is not None}
    marks = {name: _place(name, point, hs, alphas) for name, point in given.items()}
    ax = style.new_axes(ax)
    named = f"{label} ({'higher' if greater_is_better else 'lower'} is better)"
    if len(alphas) == 1:
        _line(ax, hs, alphas[0], scores[:, 0], None if std is None else std[:, 0])
        ax.set_ylabel(named)
        heights = scores
    else:
        cmap = "viridis" if greater_is_better else "viridis_r"
        heights = np.tile(_map(ax, hs, alphas, scores, cmap, named), (len(hs), 1))
    style.fit_axis(ax.xaxis, hs)
    ax.set_xlabel(H_LABEL)
    for name, (i, j) in marks.items():
        _mark(ax, name, (hs[i], heights[i, j]), _described(name, hs, alphas, scores, std, i, j))
    handles, labels = ax.get_legend_handles_labels()
    if handles:
        order = sorted(range(len(labels)), key=lambda i: labels[i] == _NO_SCORE)  # the marks first
        style.legend_above(ax, [handles[i] for i in order], [labels[i] for i in order], handletextpad=0.3)
    return ax


def _line(ax, hs, alpha, scores, std):
    color = style.PALETTE[0]
    if std is not None:
        ax.fill_between(hs, scores - std, scores + std, color=color, alpha=0.18, linewidth=0)
    shown = np.where(np.isfinite(scores), scores, np.nan)
    text = alpha if isinstance(alpha, str) else f"{alpha:.3g}"
    ax.plot(hs, shown, color=color, linewidth=1.7, marker="o", markersize=4, label=f"_alpha {text}")
    ax.margins(x=0.03)
    style.tidy(ax, grid="y")


def _map(ax, hs, alphas, scores, cmap, label):
    """Draw the cells, and return the height of each row on the axis of alpha."""
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import FixedLocator, NullLocator

    numbers = np.array([alpha for alpha in alphas if alpha != "exact"], dtype=float)
    ax.set_yscale("log")
    across, down = _edges(hs, *style.SCALES[style.scale_of(hs)]), _edges(numbers, np.log, np.exp)
    lows, highs, heights = down[:-1], down[1:], numbers
    if len(alphas) > numbers.size:  # the row of "exact": above a gap, and wide enough for its name
        step = max(down[-1] / down[-2], (down[-1] / down[0]) ** 0.08)
        low = down[-1] * step**0.35
        lows, highs = np.append(lows, low), np.append(highs, low * step)
        heights = np.append(heights, low * step**0.5)

    finite = np.where(np.isfinite(scores), scores, np.nan)
    known = finite[np.isfinite(finite)]
    limits = {"vmin": known.min(), "vmax": known.max()} if known.size else {"vmin": 0.0, "vmax": 1.0}
    blocks = [slice(0, numbers.size), slice(numbers.size, len(alphas))]
    for block in blocks if len(alphas) > numbers.size else blocks[:1]:
        rows = np.append(lows[block], highs[block][-1])
        mesh = ax.pcolormesh(across, rows, np.ma.masked_invalid(finite[:, block].T), cmap=cmap, **limits)
    for count, (i, j) in enumerate(np.argwhere(np.isnan(finite))):
        ax.add_patch(
            Rectangle(
                (across[i], lows[j]), across[i + 1] - across[i], highs[j] - lows[j], facecolor="0.96",
                edgecolor="0.6", linewidth=0.0, hatch="////", label=_NO_SCORE if count == 0 else None,
            )
        )  # fmt: skip
    ax.figure.colorbar(mesh, ax=ax, label=label)
    ax.set_xlim(across[0], across[-1])
    ax.set_ylim(lows[0], highs[-1])
    ax.set_ylabel("alpha")
    ax.yaxis.set_minor_locator(NullLocator())
    ticks = _alpha_ticks(ax, numbers)
    names = [f"{tick:.3g}" for tick in ticks] + ["exact"] * (len(alphas) - numbers.size)
    ax.yaxis.set_major_locator(FixedLocator(np.append(ticks, heights[numbers.size :])))
    ax.yaxis.set_ticklabels(names)
    ax.spines[:].set_visible(False)
    return heights


def _alpha_ticks(ax, alphas):
    """Powers of ten if there are at least three, else those of the values whose labels fit."""
    exponents = np.arange(np.ceil(np.log10(alphas[0]) - 1e-9), np.floor(np.log10(alphas[-1]) + 1e-9) + 1)
    wanted = 10.0**exponents if exponents.size >= 3 else alphas
    heights = np.full(wanted.size, 1.6 * style.SMALL)
    return wanted[style.thinned(np.log(wanted), heights, style.length_in_points(ax, "y"))]


def _edges(values, forward, back):
    """Borders of cells around the values: midway between them on that scale."""
    places = forward(np.asarray(values, dtype=float))
    if places.size == 1:
        return back(places[0] + np.array([-0.5, 0.5]))
    middle = (places[:-1] + places[1:]) / 2
    return back(np.concatenate([[2 * places[0] - middle[0]], middle, [2 * places[-1] - middle[-1]]]))


def _mark(ax, name, at, label):
    star, color = name == "chosen", style.PALETTE[1]
    ax.plot(
        *at, linestyle="none", marker="*" if star else "o", markersize=15 if star else 13,
        markerfacecolor=color if star else "none", markeredgecolor="white" if star else color,
        markeredgewidth=1.0 if star else 2.0, label=label, zorder=6 if star else 5, clip_on=False,
    )  # fmt: skip


def _described(name, hs, alphas, scores, std, i, j):
    text = {"chosen": "chosen", "one_se": "one standard error"}[name] + f": h = {hs[i]:g}, "
    text += "alpha exact" if alphas[j] == "exact" else f"alpha = {alphas[j]:.3g}"
    if np.isfinite(scores[i, j]):
        text += f", {scores[i, j]:.4g}" + (f" ± {std[i, j]:.3g}" if std is not None else "")
    return text


def _sorted_alphas(alphas):
    """Numbers in increasing order, then "exact" if given; and the order that sorts them."""
    alphas = [alphas] if isinstance(alphas, str) or np.ndim(alphas) == 0 else list(alphas)
    keys = []
    for alpha in alphas:
        try:
            keys.append(np.inf if isinstance(alpha, str) and alpha == "exact" else float(alpha))
        except (TypeError, ValueError):
            keys.append(np.nan)
        if not keys[-1] > 0 or (keys[-1] == np.inf and not isinstance(alpha, str)):
            raise ValueError(f"alphas must be positive numbers or 'exact'; got {alpha!r}")
    if not keys or len(set(keys)) != len(keys):
        raise ValueError(f"alphas must be distinct and at least one; got {alphas}")
    order = np.argsort(keys)
    return ["exact" if keys[i] == np.inf else keys[i] for i in order], order


def _grid_of(name, values, k, m):
    values = np.asarray(values, dtype=float)
    if m == 1 and values.shape == (k,):
        values = values[:, None]
    if values.shape != (k, m):
        expected = f"one row per h and one column per alpha, {k, m}"
        raise ValueError(f"{name} must have {expected}; got {values.shape}")
    return values


def _place(name, point, hs, alphas):
    """Indices of a point of the grid."""
    if len(alphas) == 1 and np.ndim(point) == 0:
        return index_of(name, point, hs), 0
    if np.ndim(point) == 0 or len(point) != 2:
        raise ValueError(f"{name} must be a pair of h and alpha; got {point!r}")
    h, alpha = point
    return index_of(name, h, hs), index_of(name, alpha, alphas)
