"""Shared by all pictures: colors, axes, labels that do not overlap, and checks of the input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

#: The colors of Okabe and Ito, distinguishable with any color vision. Their yellow is too pale for a line.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GREY = "#B8B8B8"
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
SMALL = 8.5  # points, for labels inside a picture
NAMED = 8  # lines that are named by default


def new_axes(ax: Any = None, size: tuple[float, float] = (6.4, 4.2)) -> Any:
    """``ax`` itself, or the axes of a new figure. The current figure is never drawn on."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            f"plots need matplotlib, which cannot be imported ({error}); pip install 'trimreg[plot]'"
        ) from error
    return plt.subplots(figsize=size, layout="constrained")[1]


def tidy(ax: Any, grid: str | None = None) -> None:
    """Remove the upper and right frame, and draw a faint grid along ``grid`` ("x" or "y") if given."""
    ax.spines[["top", "right"]].set_visible(False)
    if grid is not None:
        ax.grid(axis=grid, color="0.92", linewidth=0.8)
        ax.set_axisbelow(True)


def look(index: int) -> dict[str, str]:
    """Color and dashes of the line with that number: all colors with solid lines first, then with dashes."""
    turn, place = divmod(index, len(PALETTE))
    return {"color": PALETTE[place], "linestyle": DASHES[turn % len(DASHES)]}


def legend_above(ax: Any, *handles: Any, **options: Any) -> None:
    """A legend above the axes, where it covers nothing."""
    above = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.2, "fontsize": SMALL}
    ax.legend(*handles, frameon=False, **above | options)


# -- labels at the right end -------------------------------------------------------------------------------


def spread(positions: ArrayLike, gap: float) -> np.ndarray:
    r"""Move positions as little as possible so that no two are closer than ``gap``.

    .. math:: \arg\min_x \sum_i (x_i - p_i)^2 \quad\text{with}\quad x_{(i+1)} \ge x_{(i)} + gap,

    in the order of the given positions. With :math:`u_i = x_{(i)} - i \cdot gap` that is isotonic regression.

    Parameters
    ----------
    positions : array-like of shape (n,)
    gap : float

    Returns
    -------
    ndarray of shape (n,)
        In the order of ``positions``.

    Examples
    --------
    >>> from trimreg.plotting import spread
    >>> spread([5.0, 0.0, 0.2], gap=1.0)
    array([ 5. , -0.4,  0.6])
    """
    from scipy.optimize import isotonic_regression

    placed = np.array(positions, dtype=float)
    order, steps = np.argsort(placed, kind="stable"), gap * np.arange(placed.size)
    if placed.size > 1:
        placed[order] = isotonic_regression(placed[order] - steps).x + steps
    return placed


def label_right_ends(ax: Any, values: ArrayLike, labels: Sequence[str], colors: Sequence[str]) -> None:
    """Write each label beside its value at the right end of ``ax``, moved apart where they would overlap.

    A thin line joins a label to its value. The limits of ``ax`` have to be final. No label lies above or
    below the axes: the i-th of n labels from below is in ``[i gap, 1 - (n - 1 - i) gap]``. That is one
    interval for ``u_i = x_i - i gap``, and clipping the u of :func:`spread` solves the isotonic problem with
    bounds.
    """
    if not len(labels):
        return
    gap, right = label_gap(ax), ax.get_xlim()[1]
    on_screen = ax.transData.transform([(right, value) for value in np.asarray(values)])  # for any scale
    fractions = ax.transAxes.inverted().transform(on_screen)[:, 1]
    places = spread(fractions, gap)
    steps = gap * np.argsort(np.argsort(places, kind="stable"))
    places = np.clip(np.minimum(places - steps, 1.0 - (len(places) - 1) * gap), 0.0, None) + steps
    line = {"arrowstyle": "-", "linewidth": 0.6, "shrinkA": 1, "shrinkB": 0, "relpos": (0, 0.5)}
    for fraction, place, label, color in zip(fractions, places, labels, colors, strict=True):
        ax.annotate(
            label, xy=(1.0, fraction), xytext=(1.045, place), xycoords="axes fraction",
            textcoords="axes fraction", color=color, fontsize=SMALL, va="center", annotation_clip=False,
            arrowprops=line | {"color": color},
        )  # fmt: skip


def label_gap(ax: Any) -> float:
    """The distance between labels at the right end, as a fraction of the height of the axes."""
    return 1.35 * SMALL / max(length_in_points(ax, "y"), 1.0)


def length_in_points(ax: Any, along: str) -> float:
    """The length of the axis "x" or "y" in points."""
    extent = ax.get_window_extent()
    return (extent.width if along == "x" else extent.height) * 72.0 / ax.figure.dpi


# -- axes of a grid ----------------------------------------------------------------------------------------

#: From a value to its place on an axis, and back. The second scale is for grids that contain 0.
SCALES: dict[str, tuple[Callable, Callable]] = {
    "linear": (np.asarray, np.asarray),
    "log1p": (lambda v: np.log1p(np.maximum(v, -0.999)), np.expm1),
    "log": (np.log, np.exp),
}


def scale_of(values: np.ndarray) -> str:
    """The scale that separates the two closest values best; linear unless another is twice as good."""
    if len(values) < 3 or values[0] < 0:
        return "linear"
    closest = {}
    for name, (forward, _) in SCALES.items():
        if name != "log" or values[0] > 0:
            places = forward(values)
            closest[name] = np.diff(places).min() / (places[-1] - places[0])
    best = max(closest, key=lambda name: closest[name])
    return best if closest[best] > 2 * closest["linear"] else "linear"


def fit_axis(axis: Any, values: np.ndarray) -> None:
    """Give the horizontal axis a scale that suits the values, and ticks at those whose labels fit."""
    from matplotlib.ticker import FixedLocator, NullLocator

    ax, scale = axis.axes, scale_of(values)
    if scale == "log1p":
        ax.set_xscale("function", functions=SCALES[scale])
    elif scale == "log":
        ax.set_xscale("log")
    labels = [f"{value:.4g}" for value in values]
    widths = np.array([(0.62 * len(text) + 0.8) * 10.0 for text in labels])  # tick labels have ten points
    if scale == "linear":
        widths[:] = widths.max()  # so that labels at equal distances are left out evenly
    kept = thinned(SCALES[scale][0](values), widths, length_in_points(ax, "x"))
    axis.set_major_locator(FixedLocator(values[kept]))
    axis.set_minor_locator(NullLocator())
    axis.set_ticklabels([labels[i] for i in kept])


def thinned(places: np.ndarray, widths: np.ndarray, points: float) -> np.ndarray:
    """Indices of the places whose labels do not touch, taken from the left."""
    at = (places - places[0]) / ((places[-1] - places[0]) or 1.0) * points
    kept = [0]
    for i in range(1, len(at)):
        if at[i] - at[kept[-1]] >= (widths[i] + widths[kept[-1]]) / 2:
            kept.append(i)
    return np.array(kept)


# -- checks ------------------------------------------------------------------------------------------------


def sorted_values(name: str, values: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """The values in increasing order, and the order that sorts them."""
    values = np.asarray(values, dtype=float)
    if values.ndim != 1 or values.size == 0 or not np.isfinite(values).all():
        raise ValueError(f"{name} must be a sequence of finite numbers; got shape {values.shape}")
    order = np.argsort(values)
    if np.any(np.diff(values[order]) == 0):
        raise ValueError(f"{name} must be distinct")
    return values[order], order


def one_row_per_point(name: str, values: ArrayLike, k: int) -> np.ndarray:
    """``values`` as a finite matrix with k rows."""
    values = np.asarray(values, dtype=float)
    if values.ndim != 2 or values.shape[0] != k:
        raise ValueError(f"{name} must have one row per point, {k} in all; got shape {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite")
    return values


def names_of(names: Iterable | None, p: int, argument: str = "names") -> list[str]:
    """Names of p columns, ``x0``, ``x1``, ... by default."""
    names = [f"x{j}" for j in range(p)] if names is None else [str(name) for name in names]
    if len(names) != p:
        raise ValueError(f"{argument} must have one name per column, {p} in all; got {len(names)}")
    return names


def plain(text: str) -> str:
    """The text without mathematics: matplotlib would read everything between two "$" as a formula."""
    return text.replace("$", r"\$")
