"""Charts and figures of the network tables."""

from __future__ import annotations

import math
from typing import Any

from ..pictures import MARKERS, PALETTE, draw, new_figure
from ..spec import Chart
from .verdicts import NAMES, ORDER, filled, summary, tuned

#: What is said of a part beside the name of the method. The networks of the part "curve" are plain.
_PARTS = {
    "anchors": ", Bayesian", "longer": ", Bayesian, twice the epochs", "distilled": ", Bayesian, distilled",
}  # fmt: skip
_LOOKS = list(zip((*MARKERS, "*"), (*PALETTE, "#8C564B"), strict=True))
_COSTS = ("multiplications of the exported network", "test error in %, last epoch")


def charts(frame: Any) -> list[Chart]:
    """Errors against multiplications, and over epochs for every size."""
    found = []
    places: dict[tuple, list] = {}
    for line in _measured(frame):
        places.setdefault((line.get("network", ""), line.get("part", "")), []).append(line)
    for place, mine in places.items():
        title = ", ".join(filter(None, (*place, "error against multiplications")))
        lines = [error_line(name, group) for name, group in _by_name(mine).items()]
        found.append(Chart(title[0].upper() + title[1:], *_COSTS, lines, log_x=True, log_y=wide(lines)))
    whole = filled(frame[frame["error"].notna()])
    for place, group in whole.groupby(["part", "network", "asked"], sort=False):
        lines = [
            _epoch_line(_label({"method": method, "recipe": recipe}), rows)
            for (recipe, method), rows in group.groupby(["recipe", "method"], sort=False)
        ]
        title = f"Test error over epochs, {', '.join(filter(None, place))}"
        found.append(Chart(title, "epoch", "test error in %", lines, log_y=True))
    return found


def _measured(frame):
    """The lines of the summary that have an error and a cost, after a choice by validation."""
    return tuned([line for line in summary(frame) if None not in (line["error"], line["macs"])])


def _label(line):
    of_authors = ", authors' recipe" if line["recipe"] == "paper" else ""
    return NAMES[line["method"]] + of_authors + _PARTS.get(line.get("part"), "")


def _by_name(lines):
    groups: dict[str, list] = {}
    for line in lines:
        groups.setdefault(_label(line), []).append(line)
    return groups


def error_line(name: str, lines: list[dict], x: str = "macs") -> dict:
    """Mean errors with their intervals against a column of the summary, as a line of a chart."""
    lines = sorted(lines, key=lambda line: line[x])
    margins = [1.96 * (line["error sd"] or 0.0) / math.sqrt(line["seeds"]) for line in lines]
    errors = [line["error"] for line in lines]
    return {
        "name": name,
        "x": [line[x] for line in lines],
        "y": errors,
        "low": [error - margin for error, margin in zip(errors, margins, strict=True)],
        "high": [error + margin for error, margin in zip(errors, margins, strict=True)],
    }


def wide(lines: list[dict]) -> bool:
    """Whether a logarithmic axis is better: some networks learn, and some only guess."""
    errors = [error for line in lines for error in line["y"]]
    return min(errors, default=0.0) > 0.0 and max(errors) > 10.0 * min(errors)


def _epoch_line(name, rows):
    curves = [list(curve) for curve in rows["curve"]]
    length = min(map(len, curves))
    means = [sum(curve[i] for curve in curves) / len(curves) for i in range(length)]
    return {
        "name": name,
        "x": list(range(1, length + 1)),
        "y": means,
        "low": [min(curve[i] for curve in curves) for i in range(length)],
        "high": [max(curve[i] for curve in curves) for i in range(length)],
    }


def figure(frame: Any) -> Any:
    """Error against multiplications: one panel per network and data set.

    Marks of equal cost stand a little apart. Networks that err 20 times as often as the best are left out.
    """
    table = _measured(frame)
    methods = sorted({line["method"] for line in table}, key=ORDER.index)
    panels: dict[tuple, list] = {}
    for line in table:
        data = "Fashion-MNIST" if "fashion" in line.get("part", "").lower() else "MNIST"
        panels.setdefault((data, line.get("network", "")), []).append(line)
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    picture, axes = new_figure(max(8.0, 5.0 * columns), 3.6 * rows + 0.8, rows, columns)
    marks: dict[str, Any] = {}  # for each label a mark
    order = sorted(panels, key=lambda place: (place[0] != "MNIST", place[1]))
    for ax, (data, network) in zip(axes.flat, order, strict=False):
        mine = panels[data, network]
        _draw_costs(ax, ", ".join(filter(None, (network, data))), mine, methods)
        handles, labels = ax.get_legend_handles_labels()
        marks |= dict(zip(labels, handles, strict=True))
    names = sorted(marks, key=lambda name: "Bayesian" in name)
    picture.legend(
        [marks[name] for name in names], names, frameon=False, fontsize=8, loc="outside lower center", ncols=3
    )
    return picture


def _draw_costs(ax, title, table, methods):
    from matplotlib.ticker import EngFormatter

    lines = []
    least = min(line["error"] for line in table)
    for name, group in _by_name(line for line in table if line["error"] <= 20 * least).items():
        place = methods.index(group[0]["method"])
        marker, color = _LOOKS[place]
        look = {"marker": marker, "color": color, "linewidth": 1.2, "capsize": 2}
        if group[0]["recipe"] == "paper":
            look |= {"linestyle": ":", "alpha": 0.6}
        if group[0].get("part") in _PARTS:
            shown = {"anchors": "none", "longer": "left", "distilled": "bottom"}[group[0]["part"]]
            look |= {"linestyle": "none", "markersize": 7, "fillstyle": shown}
        line = error_line(name, group)
        apart = [x * 1.02 ** (place - len(methods) // 2) for x in line["x"]]
        lines.append(line | {"x": apart, "look": look, "intervals": "bars"})
    scale = wide(lines)
    draw(ax, Chart(title, *_COSTS, lines, True, scale))
    paper = [
        line
        for line in table
        if line["paper"] and line["recipe"] == "ours" and line["method"] in ("dense", "trimmed")
    ]
    if paper:
        at = [line["macs"] for line in paper], [line["paper"] for line in paper]
        ax.plot(*at, "D", color="black", markersize=6, markerfacecolor="none", label="published error")
    _ticks(ax.xaxis, ax.get_xlim(), EngFormatter(sep=""))
    if scale:
        _ticks(ax.yaxis, ax.get_ylim(), "{x:g}")


def _ticks(axis, limits, form):
    """Ticks at 1, 2, 5 on a logarithmic axis of up to three decades, and otherwise at 1 only."""
    from matplotlib.ticker import LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if limits[1] < 1e3 * limits[0] else (1,)))
    axis.set_major_formatter(form)
    axis.set_minor_locator(NullLocator())
