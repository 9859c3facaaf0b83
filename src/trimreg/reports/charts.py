"""Charts as plotly's JSON: plain data in, plain dicts out. The page draws them; plotly is not imported here.

Names of lines and axes may come from a user's file. Plotly interprets a few HTML tags in every text, so all
text is escaped here for plotly; the page escapes the JSON once more for HTML.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real

from ..plotting.style import PALETTE

_DASHES = ("solid", "dash", "dot", "dashdot")
_MARKED = 60  # points up to which a line shows each of them
_TOGETHER = 8  # lines up to which one box shows all values at an x
_LOW, _HIGH = 0.1, 0.9  # percentiles at which the colors of a heat map end
_FONT = {"family": "system-ui, sans-serif", "size": 13, "color": "#1f2933"}
_AXIS = {
    "gridcolor": "#e6e9ee", "linecolor": "#9aa5b1", "zeroline": False, "automargin": True,
    "exponentformat": "power",
}  # fmt: skip


@dataclass(frozen=True)
class Chart:
    """Lines with intervals, as plain data: :func:`chart_json` draws them on a page.

    Attributes
    ----------
    title, x, y : str
        The title, and the labels of the axes.
    lines : list of dict
        ``name``, ``x``, ``y`` and optionally ``low`` and ``high``, the ends of intervals: lists of equal
        length. Other keys, such as the look of a line in a printed figure, are ignored on the page.
    log_x, log_y : bool
        Whether an axis is logarithmic at first; the reader of the page can switch it.

    Examples
    --------
    >>> from trimreg.reports import Chart
    >>> Chart("Recovery", "n", "probability", [{"name": "lasso", "x": [50, 100], "y": [0.1, 0.4]}]).log_x
    False
    """

    title: str
    x: str
    y: str
    lines: list[dict]
    log_x: bool = False
    log_y: bool = False


def chart_json(chart: Chart) -> dict:
    """The data and layout that the page needs to draw a chart and to switch its axes.

    Parameters
    ----------
    chart : Chart

    Returns
    -------
    dict
        ``title``; ``data`` and ``layout`` for plotly; ``log``, which axes can be logarithmic (those with a
        positive number on them); ``bands``, the traces that are intervals, with their y on a linear and on a
        logarithmic axis. On the latter an end at or below 0 moves up to the least positive number of the
        chart, because plotly cannot fill a polygon with a missing corner.

    Examples
    --------
    >>> from trimreg.reports import Chart, chart_json
    >>> line = {"name": "lasso", "x": [50, 100], "y": [0.1, 0.4], "low": [0.0, 0.3], "high": [0.2, 0.5]}
    >>> drawn = chart_json(Chart("Recovery", "n", "probability", [line]))
    >>> [trace["name"] for trace in drawn["data"]], drawn["log"]
    (['lasso', 'lasso'], {'x': True, 'y': True})
    >>> drawn["bands"]
    [{'trace': 0, 'linear': [0.2, 0.5, 0.3, 0.0], 'log': [0.2, 0.5, 0.3, 0.1]}]
    """
    lines = [_plain_line(line) for line in chart.lines]
    floor = _least_positive(lines, "y", "low", "high")
    log = {"x": _least_positive(lines, "x") is not None, "y": floor is not None}
    log_x, log_y = chart.log_x and log["x"], chart.log_y and log["y"]
    data: list[dict] = []
    bands: list[dict] = []
    for place, line in enumerate(lines):  # intervals first, so that they lie under every line
        turn = band(line, place, floor)
        if turn is not None:
            trace, logarithmic = turn
            bands.append({"trace": len(data), "linear": trace["y"], "log": logarithmic})
            data.append(trace | {"y": logarithmic if log_y else trace["y"]})
    data += [_line_trace(line, place) for place, line in enumerate(lines)]
    same_x = all(line["x"] == lines[0]["x"] for line in lines)
    layout = _layout(chart.x, chart.y, log_x, log_y)
    if any(isinstance(x, str) for line in lines for x in line["x"]):
        layout["xaxis"]["type"], log["x"] = "category", False
    layout["hovermode"] = "x unified" if same_x and len(lines) <= _TOGETHER else "closest"
    layout["showlegend"] = len(lines) > 1
    return {"title": chart.title, "data": data, "layout": layout, "log": log, "bands": bands}


def band(line: dict, place: int, floor: float | None) -> tuple[dict, list] | None:
    """The polygon between ``low`` and ``high``, and its y on a logarithmic axis; None without intervals.

    Points without both ends are left out.
    """
    if not line.get("low") or not line.get("high"):
        return None
    points = [p for p in zip(line["x"], line["low"], line["high"], strict=True) if None not in p]
    if not points:
        return None
    x, low, high = (list(column) for column in zip(*points, strict=True))
    y = high + low[::-1]
    color = PALETTE[place % len(PALETTE)]
    trace = {
        "type": "scatter", "mode": "lines", "name": _shown(_short(line["name"])), "x": x + x[::-1], "y": y,
        "fill": "toself", "fillcolor": _faint(color), "line": {"width": 0, "color": color},
        "legendgroup": str(place), "showlegend": False, "hoverinfo": "skip",
    }  # fmt: skip
    return trace, [value if floor is None or value > 0 else floor for value in y]


def heat_json(
    title: str, x: Iterable, y: Iterable, values: Iterable, *, x_label: str, y_label: str, value_label: str,
    chosen: tuple | None = None,
) -> dict:  # fmt: skip
    """A heat map of ``values``, one row per entry of ``y``; ``chosen`` is the pair (x, y) to mark.

    Colors end at the 10th and the 90th percentile; otherwise one null model would use up the whole scale.
    """
    x, y = ([_category(value) for value in axis] for axis in (x, y))
    rows = [_numbers(row) for row in values]
    there = sorted(value for row in rows for value in row if value is not None)
    low, high = (there[round(part * (len(there) - 1))] if there else None for part in (_LOW, _HIGH))
    layout = _layout(x_label, y_label, False, False) | {"hovermode": "closest", "showlegend": False}
    for axis in ("xaxis", "yaxis"):
        layout[axis] = layout[axis] | {"type": "category", "showgrid": False}
    template = f"{_in_template(x_label)} %{{x}}, {_in_template(y_label)} %{{y}}: %{{z:.4g}}<extra></extra>"
    data = [{
        "type": "heatmap", "x": x, "y": y, "z": rows, "zmin": low, "zmax": high, "colorscale": "Viridis",
        "colorbar": {"title": {"text": _shown(value_label)}, "thickness": 14}, "hovertemplate": template,
    }]  # fmt: skip
    if chosen is not None:
        data.append({
            "type": "scatter", "mode": "markers", "x": [_category(chosen[0])], "y": [_category(chosen[1])],
            "marker": {"symbol": "circle-open", "size": 14, "color": "#ffffff", "line": {"width": 3}},
            "hovertemplate": "chosen<extra></extra>",
        })  # fmt: skip
    return _without_log(title, data, layout)


def bar_json(title: str, names: Sequence[str], values: Iterable, *, x_label: str) -> dict:
    """Horizontal bars, the first at the top, each with its name beside it.

    Two bars may have the same name, so the axis counts them and the names are its labels.
    """
    places, labels = list(range(len(names))), [_shown(_short(name, 24)) for name in names]
    values = _numbers(values)
    colors = [PALETTE[0] if (value or 0) >= 0 else PALETTE[1] for value in values]
    layout = _layout(x_label, "", False, False) | {"hovermode": "closest", "showlegend": False}
    layout["yaxis"] |= {
        "autorange": "reversed", "tickmode": "array", "tickvals": places, "ticktext": labels,
        "showgrid": False,
    }  # fmt: skip
    layout["xaxis"] |= {"zeroline": True, "zerolinecolor": "#9aa5b1"}
    layout["height"] = 110 + 22 * max(len(labels), 3)
    data = [{
        "type": "bar", "orientation": "h", "x": values, "y": places, "marker": {"color": colors},
        "text": [_shown(name) for name in names], "textposition": "none",
        "hovertemplate": "%{text}: %{x:.5g}<extra></extra>",
    }]  # fmt: skip
    return _without_log(title, data, layout)


# -- parts ------------------------------------------------------------------------------------------------


def _without_log(title, data, layout):
    return {"title": title, "data": data, "layout": layout, "log": {"x": False, "y": False}, "bands": []}


def _plain_line(line):
    """The line with every number finite or None, and categories as text."""
    plain = {"name": str(line.get("name", ""))}
    for key in ("x", "y", "low", "high"):
        if line.get(key) is not None:
            plain[key] = _numbers(line[key])
    lengths = {key: len(values) for key, values in plain.items() if key != "name"}
    if not {"x", "y"} <= set(lengths) or len(set(lengths.values())) != 1:
        raise ValueError(f"the line {plain['name']!r} must have x and y of equal length; got {lengths}")
    return plain


def _numbers(values):
    return [_number(value) for value in values]


def _number(value):
    """A number that JSON can hold, None if it is not finite, escaped text for a category."""
    if value is None or isinstance(value, str):
        return value if value is None else _shown(value)
    value = value.item() if hasattr(value, "item") else value  # NumPy's scalars
    return value if isinstance(value, Real) and math.isfinite(value) else None


def _category(value):
    if isinstance(value, str):
        return _shown(value)
    value = _number(value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _least_positive(lines, *keys):
    values = (v for line in lines for key in keys for v in line.get(key) or () if isinstance(v, Real))
    return min((value for value in values if value > 0), default=None)


def _line_trace(line, place):
    count = len(line["x"])
    mode = "markers" if count == 1 else "lines+markers" if count <= _MARKED else "lines"
    trace = {
        "type": "scatter", "mode": mode, "name": _shown(_short(line["name"])), "x": line["x"], "y": line["y"],
        "legendgroup": str(place), "marker": {"size": 11 if count == 1 else 6},
        "line": {
            "color": PALETTE[place % len(PALETTE)], "width": 2,
            "dash": _DASHES[place // len(PALETTE) % len(_DASHES)],
        },
        "hovertemplate": "%{y:.4g}",
    }  # fmt: skip
    if line.get("low") and line.get("high"):
        ends = zip(line["low"], line["high"], strict=True)
        # As text: plotly shows a missing number as its template.
        trace["customdata"] = ["" if None in pair else f" ({pair[0]:.3g} to {pair[1]:.3g})" for pair in ends]
        trace["hovertemplate"] = "%{y:.4g}%{customdata}"
    return trace


def _layout(x_label, y_label, log_x, log_y):
    """The layout that all charts share. The page writes the title, so a chart has none."""

    def axis(label, log):
        kind = "log" if log else "linear"  # given, because plotly would read dates into names
        return _AXIS | {"title": {"text": _shown(label), "standoff": 10}, "type": kind}

    return {
        "xaxis": axis(x_label, log_x), "yaxis": axis(y_label, log_y), "font": _FONT, "height": 400,
        "margin": {"l": 56, "r": 16, "t": 34, "b": 48}, "paper_bgcolor": "#ffffff", "plot_bgcolor": "#ffffff",
        "legend": {
            "orientation": "h", "x": 0, "xanchor": "left", "y": 0, "yanchor": "bottom", "yref": "container",
        },
        "hoverlabel": {"namelength": -1},
    }  # fmt: skip


def _shown(text) -> str:
    """Text that plotly shows letter by letter; it would interpret a few HTML tags."""
    return html.escape(str(text), quote=False)


def _in_template(text) -> str:
    """The same inside a template, in which ``%{...}`` is a field."""
    return _shown(text).replace("%", "&#37;")


def _short(name, length=48):
    """The name, cut in the middle if it is too long."""
    name = str(name)
    return name if len(name) <= length else name[: length // 2] + "…" + name[-(length // 2 - 1) :]


def _faint(color):
    red, green, blue = (int(color[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.14)"
