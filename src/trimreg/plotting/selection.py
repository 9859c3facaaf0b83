"""Choosing h and alpha: scores over the grid, coefficients over h, selection probabilities."""

from __future__ import annotations

import numpy as np

from .paths import coefficient_path
from .style import GREY, PALETTE, SMALL, label_right_ends, look, new_axes, tidy

_H_LABEL = "h, coefficients left free"
_NO_SCORE = "no score"
_NAMED = 8  # lines with a name, where nothing else says how many


def score_surface(
    hs,
    alphas,
    scores,
    *,
    chosen=None,
    one_se=None,
    std=None,
    greater_is_better=True,
    label="score",
    ax=None,
):
    """Draw a score over h and alpha as a map of colours; over h alone, as a line, if there is one alpha.

    Bright is good, whichever way the score runs. A point without a score (NaN or infinite) is hatched, and
    on a line left out.

    Parameters
    ----------
    hs : array-like of shape (k,)
        The trimming parameters, distinct, in any order and at any distances.
    alphas : sequence of float or "exact", of length m
        Distinct and positive, in any order; the word "exact" may be one of them and has a row of its own
        above the others. A bare number or word is a single one.
    scores : array-like of shape (k, m)
        A row an h. Shape (k,) will do for a single alpha.
    chosen : tuple of (h, alpha), optional
        The point to mark with a star; h alone will do for a single alpha.
    one_se : tuple of (h, alpha), optional
        The point of the one-standard-error rule, marked with a ring.
    std : array-like of the shape of scores, optional
        Standard errors: a band around the line; on a map they stand beside the marked points.
    greater_is_better : bool
    label : str
        What the score is called.
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
    hs, by_h = _sorted("hs", hs)
    alphas, rank = _sorted_alphas(alphas)
    scores = _grid_of("scores", scores, len(hs), len(alphas))[by_h][:, rank]
    if std is not None:
        std = _grid_of("std", std, len(hs), len(alphas))[by_h][:, rank]
        if np.any(std < 0):
            raise ValueError("std must not be negative")
    marks = {}
    for name, point in {"chosen": chosen, "one_se": one_se}.items():
        if point is not None:
            marks[name] = _place(name, point, hs, alphas)
    ax = new_axes(ax)
    if len(alphas) == 1:
        _line(ax, hs, alphas[0], scores[:, 0], None if std is None else std[:, 0])
        ax.set_ylabel(_with_direction(label, greater_is_better))
        heights = scores
    else:
        heights = np.tile(_map(ax, hs, alphas, scores, greater_is_better, label), (len(hs), 1))
    _fit_axis(ax.xaxis, hs)
    ax.set_xlabel(_H_LABEL)
    for name, (i, j) in marks.items():
        _mark(ax, name, (hs[i], heights[i, j]), _described(name, hs, alphas, scores, std, i, j))
    if marks or ax.get_legend_handles_labels()[0]:
        _legend_above(ax)
    return ax


def coefficient_path_over_h(hs, coefs, *, names=None, chosen=None, ax=None, linear_below=None):
    """Draw every coefficient as a line over h, with a vertical line at the h chosen.

    The coefficients that are largest at the chosen h (at the last one by default) are in colour and named
    at the right end, up to eight.

    Parameters
    ----------
    hs : array-like of shape (k,)
        The trimming parameters, distinct, in any order and at any distances.
    coefs : array-like of shape (k, p)
        A row of coefficients for each of them.
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
    hs, by_h = _sorted("hs", hs)
    coefs = _rows_of("coefs", coefs, len(hs))[by_h]
    if not np.isfinite(coefs).all():
        raise ValueError("coefs must be finite")
    names = _names(names, coefs.shape[1])
    highlight = None
    if chosen is not None:
        at = coefs[_index("chosen", chosen, hs)]
        largest = np.argsort(-np.abs(at), kind="stable")
        highlight = [int(j) for j in largest[:_NAMED] if at[j] != 0] or None
    ax = coefficient_path(
        hs, coefs, feature_names=names, highlight=highlight, ax=ax, linear_below=linear_below, xlabel=_H_LABEL
    )
    _keep_labels_inside(ax, ax.texts)
    _fit_axis(ax.xaxis, hs)
    if chosen is not None:
        ax.axvline(chosen, color="0.3", linewidth=1.0, linestyle=":", zorder=2.5)
        ax.annotate(
            f"h = {chosen:g}", (chosen, 1.0), xycoords=ax.get_xaxis_transform(), xytext=(0, 2),
            textcoords="offset points", ha="center", va="bottom", color="0.3", fontsize=SMALL,
        )  # fmt: skip
    return ax


def stability_path(grid, probabilities, *, threshold=None, names=None, ax=None, xlabel="h"):
    r"""Draw how often each variable is selected in subsamples, over the grid of the tuning parameter.

    A variable is selected, and so in colour, if :math:`\max_\lambda \hat\Pi_j(\lambda) \ge \pi`, the
    threshold (Meinshausen and Bühlmann, Stability selection, 2010, definition 2). Without a threshold the
    eight largest are. Those in colour are named, the largest first, as far as the names fit.

    Parameters
    ----------
    grid : array-like of shape (k,)
        Values of the tuning parameter, distinct, in any order.
    probabilities : array-like of shape (k, p)
        A row of selection probabilities for each of them.
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
    grid, by_value = _sorted("grid", grid)
    probabilities = _rows_of("probabilities", probabilities, len(grid))[by_value]
    if not np.all((probabilities >= 0) & (probabilities <= 1)):
        raise ValueError("probabilities must lie in [0, 1]")
    if threshold is not None and not 0 <= threshold <= 1:
        raise ValueError(f"threshold must lie in [0, 1]; got {threshold}")
    p = probabilities.shape[1]
    names = _names(names, p)
    peak = probabilities.max(axis=0)
    # Ties at a probability of one are common; the one that is there over more of the grid goes first.
    strongest = np.lexsort((-probabilities.sum(axis=0), -peak))
    if threshold is None:
        selected = strongest[peak[strongest] > 0][:_NAMED]
    else:
        selected = strongest[peak[strongest] >= threshold]

    ax = new_axes(ax)
    for j in np.setdiff1d(np.arange(p), selected):
        ax.plot(grid, probabilities[:, j], color=GREY, linewidth=0.9, zorder=1, label=f"_{names[j]}")
    for rank, j in enumerate(selected):
        ax.plot(grid, probabilities[:, j], linewidth=1.7, zorder=3, label=names[j], **look(rank))
    if len(grid) > 1:
        ax.set_xlim(grid[0], grid[-1])
    _fit_axis(ax.xaxis, grid)
    ax.set_ylim(-0.02, 1.03)
    ax.set_xlabel(xlabel)
    ax.set_ylabel("selection probability")
    tidy(ax)
    if threshold is not None:
        ax.axhline(threshold, color="0.3", linewidth=1.0, linestyle=":", zorder=2)
        ax.annotate(
            f"threshold {threshold:g}", (0.0, threshold), xycoords=ax.get_yaxis_transform(), xytext=(4, 2),
            textcoords="offset points", va="bottom", color="0.3", fontsize=SMALL, zorder=4,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5},
        )  # fmt: skip
    before = len(ax.texts)
    # From the last to the first, for of labels at one place the last is written at the top.
    ranks = range(min(len(selected), int(1.0 / _label_gap(ax)) + 1))[::-1]
    named = [selected[rank] for rank in ranks]
    colors = [look(rank)["color"] for rank in ranks]
    label_right_ends(ax, probabilities[-1, named], [names[j] for j in named], colors)
    _keep_labels_inside(ax, list(ax.texts)[before:])
    return ax


# -- pieces of the surface ------------------------------------------------------------------------------


def _line(ax, hs, alpha, scores, std):
    color = PALETTE[0]
    if std is not None:
        ax.fill_between(hs, scores - std, scores + std, color=color, alpha=0.18, linewidth=0)
    shown = np.where(np.isfinite(scores), scores, np.nan)
    ax.plot(hs, shown, color=color, linewidth=1.7, marker="o", markersize=4, label=f"_alpha {_text(alpha)}")
    ax.margins(x=0.03)
    tidy(ax, grid="y")


def _map(ax, hs, alphas, scores, greater_is_better, label):
    """Draw the cells; returns the heights of the rows on the axis of alpha."""
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import FixedLocator, NullLocator

    numbers = np.array([alpha for alpha in alphas if alpha != "exact"], dtype=float)
    ax.set_yscale("log")
    across, down = _edges(hs, *_SCALES[_scale_of(hs)]), _edges(numbers, np.log, np.exp)
    bands = [down[:-1], down[1:], numbers]
    if len(alphas) > numbers.size:  # the row of "exact", a gap above the highest and wide enough for its name
        step = max(down[-1] / down[-2], (down[-1] / down[0]) ** 0.08)
        low = down[-1] * step**0.35
        bands = [
            np.append(band, new) for band, new in zip(bands, (low, low * step, low * step**0.5), strict=True)
        ]
    lows, highs, heights = bands

    finite = np.where(np.isfinite(scores), scores, np.nan)
    known = finite[np.isfinite(finite)]
    limits = {"vmin": known.min(), "vmax": known.max()} if known.size else {"vmin": 0.0, "vmax": 1.0}
    cmap = "viridis" if greater_is_better else "viridis_r"
    blocks = [slice(0, numbers.size), slice(numbers.size, len(alphas))]
    for block in blocks if len(alphas) > numbers.size else blocks[:1]:
        rows = np.append(lows[block], highs[block][-1])
        mesh = ax.pcolormesh(across, rows, np.ma.masked_invalid(finite[:, block].T), cmap=cmap, **limits)
    empty = np.argwhere(np.isnan(finite))
    for count, (i, j) in enumerate(empty):
        ax.add_patch(
            Rectangle(
                (across[i], lows[j]), across[i + 1] - across[i], highs[j] - lows[j], facecolor="0.96",
                edgecolor="0.6", linewidth=0.0, hatch="////", label=_NO_SCORE if count == 0 else None,
            )
        )  # fmt: skip
    ax.figure.colorbar(mesh, ax=ax, label=_with_direction(label, greater_is_better))
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
    """Powers of ten if there are three or more, else the values themselves as far as they fit."""
    exponents = np.arange(np.ceil(np.log10(alphas[0]) - 1e-9), np.floor(np.log10(alphas[-1]) + 1e-9) + 1)
    wanted = 10.0**exponents if exponents.size >= 3 else alphas
    span = _points(ax, "y")
    return wanted[_thinned(np.log(wanted), np.full(wanted.size, 1.6 * SMALL), span)]


def _mark(ax, name, at, label):
    star = name == "chosen"
    ax.plot(
        *at, linestyle="none", marker="*" if star else "o", markersize=15 if star else 13,
        markerfacecolor=PALETTE[1] if star else "none", markeredgecolor="white" if star else PALETTE[1],
        markeredgewidth=1.0 if star else 2.0, label=label, zorder=6 if star else 5, clip_on=False,
    )  # fmt: skip


def _described(name, hs, alphas, scores, std, i, j):
    text = {"chosen": "chosen", "one_se": "one standard error"}[name] + f": h = {hs[i]:g}, "
    text += "alpha exact" if alphas[j] == "exact" else f"alpha = {alphas[j]:.3g}"
    if np.isfinite(scores[i, j]):
        text += f", {scores[i, j]:.4g}" + (f" ± {std[i, j]:.3g}" if std is not None else "")
    return text


def _with_direction(label, greater_is_better):
    return f"{label} ({'higher' if greater_is_better else 'lower'} is better)"


def _legend_above(ax):
    handles, labels = ax.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda i: labels[i] == _NO_SCORE)  # the marks first
    ax.legend(
        [handles[i] for i in order], [labels[i] for i in order], frameon=False, loc="lower left",
        bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2, handletextpad=0.3, fontsize=SMALL,
    )  # fmt: skip


# -- axes -----------------------------------------------------------------------------------------------

#: Where a value lies on an axis, and back. The second is for grids with a zero.
_SCALES = {
    "linear": (np.asarray, np.asarray),
    "log1p": (lambda v: np.log1p(np.maximum(v, -0.999)), np.expm1),
    "log": (np.log, np.exp),
}


def _scale_of(values):
    """The scale on which the closest two values are farthest apart; linear unless that is twice as good."""
    if len(values) < 3 or values[0] < 0:
        return "linear"
    closest = {}
    for name, (forward, _) in _SCALES.items():
        if name != "log" or values[0] > 0:
            places = forward(values)
            closest[name] = np.diff(places).min() / (places[-1] - places[0])
    best = max(closest, key=closest.get)
    return best if closest[best] > 2 * closest["linear"] else "linear"


def _edges(values, forward, back):
    """Borders of cells around the values: midway between them on that scale."""
    places = forward(np.asarray(values, dtype=float))
    if places.size == 1:
        return back(places[0] + np.array([-0.5, 0.5]))
    middle = (places[:-1] + places[1:]) / 2
    return back(np.concatenate([[2 * places[0] - middle[0]], middle, [2 * places[-1] - middle[-1]]]))


def _fit_axis(axis, values):
    """Give the horizontal axis the scale that suits the values, and ticks at those whose labels fit."""
    from matplotlib.ticker import FixedLocator, NullLocator

    ax, scale = axis.axes, _scale_of(values)
    if scale == "log1p":
        ax.set_xscale("function", functions=_SCALES[scale])
    elif scale == "log":
        ax.set_xscale("log")
    labels = [f"{value:.4g}" for value in values]
    widths = np.array([(0.62 * len(text) + 0.8) * 10.0 for text in labels])  # ten points is a tick label
    if scale == "linear":
        widths[:] = widths.max()  # so that labels at equal distances are left out evenly
    kept = _thinned(_SCALES[scale][0](values), widths, _points(ax, "x"))
    axis.set_major_locator(FixedLocator(values[kept]))
    axis.set_minor_locator(NullLocator())
    axis.set_ticklabels([labels[i] for i in kept])


def _thinned(places, widths, points):
    """Indices of the places whose labels do not touch, taken from the left."""
    at = (places - places[0]) / ((places[-1] - places[0]) or 1.0) * points
    kept = [0]
    for i in range(1, len(at)):
        if at[i] - at[kept[-1]] >= (widths[i] + widths[kept[-1]]) / 2:
            kept.append(i)
    return np.array(kept)


def _points(ax, along):
    extent = ax.get_window_extent()
    return (extent.width if along == "x" else extent.height) * 72.0 / ax.figure.dpi


def _label_gap(ax):
    """The distance at which ``label_right_ends`` writes, as a part of the height."""
    return 1.35 * SMALL / max(_points(ax, "y"), 1.0)


def _keep_labels_inside(ax, texts):
    """Move labels at the right end that lie above or below the axes back inside, as little as possible.

    With n labels apart by ``gap`` the i-th from below lies in ``[i gap, 1 - (n - 1 - i) gap]``. That is one
    interval for ``u_i = x_i - i gap``, to which the u of :func:`trimreg.plotting.spread` are clipped: the
    solution of the isotonic problem with bounds.
    """
    gap = _label_gap(ax)
    order = sorted(texts, key=lambda text: text.xyann[1])
    for i, text in enumerate(order):
        u = min(text.xyann[1] - i * gap, 1.0 - (len(order) - 1) * gap)
        text.xyann = (text.xyann[0], max(u, 0.0) + i * gap)


# -- what is given --------------------------------------------------------------------------------------


def _sorted(name, values):
    """The values rising, and where each stood."""
    values = np.asarray(values, dtype=float)
    if values.ndim != 1 or values.size == 0 or not np.isfinite(values).all():
        raise ValueError(f"{name} must be a sequence of finite numbers; got shape {values.shape}")
    order = np.argsort(values)
    if np.any(np.diff(values[order]) == 0):
        raise ValueError(f"{name} must be distinct")
    return values[order], order


def _sorted_alphas(alphas):
    """Numbers rising, then "exact" if it is there; and where each stood."""
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
        raise ValueError(
            f"{name} must have a row for each of the {k} hs and a column for each of the {m} alphas; "
            f"got shape {values.shape}"
        )
    return values


def _rows_of(name, values, k):
    values = np.asarray(values, dtype=float)
    if values.ndim != 2 or values.shape[0] != k:
        raise ValueError(f"{name} must have a row for each of the {k} points; got shape {values.shape}")
    return values


def _names(names, p):
    """Names for labels; matplotlib would read what stands between two "$" as a formula."""
    names = [f"x{j}" for j in range(p)] if names is None else [str(n).replace("$", r"\$") for n in names]
    if len(names) != p:
        raise ValueError(f"names must hold a name for each of the {p} columns; got {len(names)}")
    return names


def _place(name, point, hs, alphas):
    """Indices of a point of the grid."""
    if len(alphas) == 1 and np.ndim(point) == 0:
        return _index(name, point, hs), 0
    if np.ndim(point) == 0 or len(point) != 2:
        raise ValueError(f"{name} must be a pair of h and alpha; got {point!r}")
    h, alpha = point
    return _index(name, h, hs), _index(name, alpha, alphas)


def _index(name, value, values):
    """Where the value stands among the values; numbers may differ by rounding."""
    for i, other in enumerate(values):
        words = isinstance(value, str) or isinstance(other, str)
        if value == other if words else np.isclose(value, other, rtol=1e-9, atol=0):
            return i
    raise ValueError(f"{name} must be a point of the grid; got {value!r}")


def _text(alpha):
    return alpha if isinstance(alpha, str) else f"{alpha:.3g}"
