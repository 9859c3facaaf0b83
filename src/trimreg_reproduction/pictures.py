"""Charts drawn by matplotlib: the figure of an experiment shows the same lines as the charts of its page.

A line of a :class:`~trimreg.reports.Chart` may have these keys besides its data; the page ignores them:

- ``look``: keyword arguments of ``Axes.plot``, such as the color. By default each line has its own color.
- ``intervals="bars"``: the intervals are error bars and not a band.
- ``level=True``: the line is horizontal, and crosses the whole width of the axes.

A name that starts with an underscore is left out of the legend, as matplotlib does it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trimreg.plotting.style import DASHES, MARKERS, PALETTE, look, tidy

from .spec import Chart

__all__ = ["DASHES", "MARKERS", "PALETTE", "draw", "legend_below", "new_figure", "tidy"]

TITLE = 9.5  # points


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple:
    """A matplotlib figure and its axes, as an array of that many rows and columns."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def legend_below(figure: Any, ax: Any, **options: Any) -> None:
    """One legend below all panels of a figure, with the lines of ``ax``."""
    where = {"frameon": False, "fontsize": 8.5, "ncols": 4, "loc": "outside lower center"}
    figure.legend(*ax.get_legend_handles_labels(), **where | options)


def draw(ax: Any, chart: Chart, *, loc: str = "center", band: float = 0.15, shares: bool = False) -> Any:
    """Draw a chart on matplotlib's axes.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    chart : Chart
    loc : {"left", "center"}
        The place of the title.
    band : float
        The opacity of bands.
    shares : bool
        Whether y goes from 0 to 1.

    Returns
    -------
    matplotlib.axes.Axes

    Examples
    --------
    >>> from trimreg_reproduction.pictures import draw, new_figure
    >>> from trimreg_reproduction.spec import Chart
    >>> figure, axes = new_figure(4, 3)
    >>> ax = draw(axes[0, 0], Chart("Recovery", "n", "share", [{"name": "lasso", "x": [1, 2], "y": [0, 1]}]))
    >>> ax.get_xlabel(), len(ax.lines)
    ('n', 1)
    """
    for index, line in enumerate(chart.lines):
        _draw_line(ax, line, look(index) | {"marker": "o", "markersize": 4} | line.get("look", {}), band)
    ax.set(xlabel=chart.x, ylabel=chart.y)
    for axis, log in (("x", chart.log_x), ("y", chart.log_y)):
        if log:
            ax.set(**{f"{axis}scale": "log"})
    places = sorted({x for line in chart.lines for x in line["x"]})
    if chart.log_x and len(places) <= 8:
        ax.set_xticks(places, [f"{x:g}" for x in places])
        ax.set_xticks([], minor=True)
    if shares:
        ax.set_ylim(-0.03, 1.03)
    ax.set_title(chart.title, fontsize=TITLE, loc=loc)
    tidy(ax, grid="y")
    return ax


def _draw_line(ax, line, style, band):
    x, y, name = line["x"], line["y"], line["name"]
    if line.get("level"):
        return ax.axhline(y[0], label=name, **{k: v for k, v in style.items() if "marker" not in k})
    if line.get("intervals") == "bars":
        around = np.maximum([np.subtract(y, line["low"]), np.subtract(line["high"], y)], 0.0)
        return ax.errorbar(x, y, yerr=around, label=name, **style)
    if "low" in line:
        ax.fill_between(x, line["low"], line["high"], color=style["color"], alpha=band, linewidth=0)
    return ax.plot(x, y, label=name, **style)
