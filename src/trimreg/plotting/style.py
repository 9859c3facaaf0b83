"""What the pictures share: the palette, new axes, and labels that do not overlap."""

from __future__ import annotations

import numpy as np

#: Okabe and Ito's colours, told apart with any kind of colour vision; their yellow is too pale for a line.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
GREY = "#B8B8B8"
DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
SMALL = 8.5  # points, for labels inside a picture


def new_axes(ax=None, size=(6.4, 4.2)):
    """``ax`` itself, or the axes of a new figure. The figure that is current is never drawn on.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from trimreg.plotting.style import new_axes
    >>> ax = Figure().subplots()
    >>> new_axes(ax) is ax
    True
    """
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            f"plots need matplotlib, which cannot be imported ({error}); pip install 'trimreg[plot]'"
        ) from error
    return plt.subplots(figsize=size, layout="constrained")[1]


def tidy(ax, grid: str | None = None) -> None:
    """Take away the frame above and to the right; a faint grid along ``grid`` ("x" or "y") if any.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from trimreg.plotting.style import tidy
    >>> ax = Figure().subplots()
    >>> tidy(ax)
    >>> ax.spines["top"].get_visible()
    False
    """
    ax.spines[["top", "right"]].set_visible(False)
    if grid is not None:
        ax.grid(axis=grid, color="0.92", linewidth=0.8)
        ax.set_axisbelow(True)


def look(index: int) -> dict:
    """Colour and dashes of the line of that number: colours first, then the next kind of dashes.
    Examples
    --------
    >>> from trimreg.plotting.style import look
    >>> look(0), look(7)
    ({'color': '#0072B2', 'linestyle': '-'}, {'color': '#0072B2', 'linestyle': '--'})
    """
    turn, place = divmod(index, len(PALETTE))
    return {"color": PALETTE[place], "linestyle": DASHES[turn % len(DASHES)]}


def spread(positions, gap: float) -> np.ndarray:
    r"""Move positions as little as possible so that no two are closer than ``gap``.

    .. math:: \arg\min_x \sum_i (x_i - p_i)^2 \quad\text{with}\quad x_{(i+1)} \ge x_{(i)} + gap,

    in the order of the positions given. With :math:`u_i = x_{(i)} - i \cdot gap` that is isotonic regression,
    solved by pooling neighbours.

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
    positions = np.asarray(positions, dtype=float)
    order = np.argsort(positions, kind="stable")
    pools: list[tuple[float, int]] = []  # mean and size of each pool of neighbours that touch
    for rank, position in enumerate(positions[order]):
        mean, size = position - rank * gap, 1
        while pools and pools[-1][0] > mean:
            other, count = pools.pop()
            mean, size = (mean * size + other * count) / (size + count), size + count
        pools.append((mean, size))
    placed = np.empty(positions.size)
    placed[order] = np.repeat([m for m, _ in pools], [s for _, s in pools]) + gap * np.arange(positions.size)
    return placed


def label_right_ends(ax, values, labels, colors) -> None:
    """Write each label beside its value at the right end of ``ax``, moved apart where they would overlap.

    A thin line joins a label to its value. The limits of ``ax`` have to be final.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from trimreg.plotting.style import label_right_ends
    >>> ax = Figure().subplots()
    >>> label_right_ends(ax, [0.5, 0.51], ["a", "b"], ["k", "k"])
    >>> low, high = (text.xyann[1] for text in ax.texts)
    >>> bool(high - low > 0.04)
    True
    """
    if not len(labels):
        return
    points = ax.get_window_extent().height * 72.0 / ax.figure.dpi
    gap = 1.35 * SMALL / max(points, 1.0)
    right = ax.get_xlim()[1]
    on_screen = ax.transData.transform([(right, value) for value in values])  # whatever the scale
    fractions = ax.transAxes.inverted().transform(on_screen)[:, 1]
    for fraction, place, label, color in zip(fractions, spread(fractions, gap), labels, colors, strict=True):
        ax.annotate(
            label,
            xy=(1.0, fraction),
            xytext=(1.045, place),
            xycoords="axes fraction",
            textcoords="axes fraction",
            color=color,
            fontsize=SMALL,
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": color,
                "linewidth": 0.6,
                "shrinkA": 1,
                "shrinkB": 0,
                "relpos": (0, 0.5),
            },
        )
