"""Charts and figures of the network tables."""

from __future__ import annotations

import math
from typing import Any

from ..pictures import MARKERS, PALETTE, draw, new_figure, tidy
from ..spec import Chart
from .verdicts import NAMES, ORDER, filled, summary

_BAYESIAN = ", Bayesian"


# -- charts -----------------------------------------------------------------------------------------------


def charts(frame: Any) -> list[Chart]:
    """Errors against multiplications, and over epochs for every size."""
    table = [line for line in summary(frame) if line["error"] is not None]
    found = []
    places = dict.fromkeys((line.get("part", ""), line.get("network", "")) for line in table)
    for part, network in places:
        mine = [line for line in table if (line.get("part", ""), line.get("network", "")) == (part, network)]
        title = ", ".join(text for text in (network, part, "error against multiplications") if text)
        lines = [_cost_line(name, group) for name, group in _by_name(mine).items()]
        lines = [line for line in lines if line["x"]]
        found.append(
            Chart(title[0].upper() + title[1:], "multiplications per image", "test error in %", lines,
                  log_x=True, log_y=_wide([error for line in lines for error in line["y"]]))
        )  # fmt: skip
    whole = filled(frame[frame["error"].notna()])
    for place, group in whole.groupby(["part", "network", "asked"], sort=False):
        lines = [
            _epoch_line(_label(method, recipe), rows)
            for (recipe, method), rows in group.groupby(["recipe", "method"], sort=False)
        ]
        title = f"Test error over epochs, {', '.join(filter(None, place))}"
        found.append(Chart(title, "epoch", "test error in %", lines, log_y=True))
    return found


def _label(method, recipe):
    return NAMES[method] + (", authors' recipe" if recipe == "paper" else "")


def _by_name(lines):
    groups = {}
    for line in lines:
        groups.setdefault(_label(line["method"], line["recipe"]), []).append(line)
    return groups


def _cost_line(name, lines):
    lines = sorted((line for line in lines if line["macs"] is not None), key=lambda line: line["macs"])
    margins = [1.96 * (line["error sd"] or 0.0) / math.sqrt(line["seeds"]) for line in lines]
    errors = [line["error"] for line in lines]
    return {
        "name": name,
        "x": [line["macs"] for line in lines],
        "y": errors,
        "low": [error - margin for error, margin in zip(errors, margins, strict=True)],
        "high": [error + margin for error, margin in zip(errors, margins, strict=True)],
    }


def _wide(errors):
    """Whether a logarithmic axis is better: some networks learn, and some only guess."""
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


# -- figures ----------------------------------------------------------------------------------------------


def figure(frame: Any) -> Any:
    """One line per row of the table: a point per seed, a bar at the mean, and the paper's error."""
    table = [line for line in summary(frame) if line["error"] is not None]
    rows = filled(frame[frame["error"].notna()])
    picture, axes = new_figure(8.6, 1.3 + 0.32 * len(table))
    ax = axes[0, 0]
    diamond = {"markersize": 6, "markerfacecolor": "none", "zorder": 4}
    for place, line in enumerate(table):
        mine = rows
        for key in ("part", "method", "recipe", "asked"):
            mine = mine[mine[key] == line.get(key, "")]
        color = PALETTE[0] if line["method"] == "trimmed" else "0.45"
        marker = "o" if line["recipe"] == "ours" else "s"
        ax.plot(mine["error"], [place] * len(mine), marker, color=color, alpha=0.45, markersize=4, zorder=2)
        ax.plot([line["error"]] * 2, [place - 0.3, place + 0.3], color=color, linewidth=2, zorder=3)
        if line["paper"] is not None:
            ax.plot([line["paper"]], [place], "D", color=PALETTE[1], **diamond)
    ax.plot([], [], "D", color=PALETTE[1], label="the paper's figure", **diamond)
    ax.plot([], [], "o", color=PALETTE[0], markersize=4, label="trimmed, one seed")
    ax.plot([], [], "o", color="0.45", markersize=4, label="others, one seed")
    if any(line["recipe"] == "paper" for line in table):
        ax.plot([], [], "s", color=PALETTE[0], markersize=4, label="trimmed, authors' recipe")
    ax.set_yticks(range(len(table)), [_row_label(line) for line in table], fontsize=8)
    ax.invert_yaxis()
    if _wide(rows["error"].tolist()):
        ax.set_xscale("log")
        _ticks(ax.xaxis, ax.get_xlim(), "{x:g}")
    ax.set_xlabel("test error in %, last epoch")
    tidy(ax, grid="x")
    above = (0.5, 1.0 + 0.9 / (1 + len(table)))
    ax.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=above, ncols=4)
    return picture


def _row_label(line):
    size = line["reached"].split(", ")
    shown = size[0] if len(size) == 1 else f"{size[0]} ..."
    return f"{_label(line['method'], line['recipe'])}: {shown}"


def figure_of_parts(frame: Any) -> Any:
    """Error against multiplications: one panel per network, on MNIST and on Fashion-MNIST.

    The anchors are open marks beside the curve: their networks are Bayesian, those of the curve are plain.
    """
    table = [line for line in summary(frame) if line["error"] is not None and line["macs"] is not None]
    networks = list(dict.fromkeys(line["network"] for line in table))
    methods = sorted({line["method"] for line in table}, key=ORDER.index)
    panels = [("MNIST", ("anchors", "curve")), ("Fashion-MNIST", ("fashion",))]
    panels = [panel for panel in panels if any(line["part"] in panel[1] for line in table)]
    picture, axes = new_figure(5.0 * len(networks), 3.6 * len(panels), len(panels), len(networks))
    marks: dict[str, Any] = {}  # for each label a mark
    for row, (data, parts) in enumerate(panels):
        for ax, network in zip(axes[row], networks, strict=True):
            mine = [line for line in table if line["network"] == network and line["part"] in parts]
            _draw_costs(ax, f"{network}, {data}", mine, methods)
            handles, labels = ax.get_legend_handles_labels()
            marks |= dict(zip(labels, handles, strict=True))
    names = sorted(marks, key=lambda name: name.endswith(_BAYESIAN))
    picture.legend(
        [marks[name] for name in names], names, frameon=False, fontsize=8, loc="outside lower center", ncols=4
    )
    return picture


def _draw_costs(ax, title, table, methods):
    from matplotlib.ticker import EngFormatter

    lines = []
    for part in dict.fromkeys(line["part"] for line in table):
        for name, group in _by_name(line for line in table if line["part"] == part).items():
            rank = methods.index(group[0]["method"])
            marker, color = (*MARKERS, "*")[rank], (*PALETTE, "#8C564B")[rank]
            look = {"marker": marker, "color": color, "linewidth": 1.2, "capsize": 2}
            if part == "anchors":
                name += _BAYESIAN
                look |= {"linestyle": "none", "markerfacecolor": "white", "markersize": 6}
            lines.append(_cost_line(name, group) | {"look": look, "intervals": "bars"})
    wide = _wide([line["error"] for line in table])
    draw(ax, Chart(title, "multiplications per image", "test error in %, last epoch", lines, True, wide))
    _ticks(ax.xaxis, ax.get_xlim(), EngFormatter(sep=""))
    if wide:
        _ticks(ax.yaxis, ax.get_ylim(), "{x:g}")


def _ticks(axis, limits, form):
    """Ticks at 1, 2, 5 on a logarithmic axis of up to three decades, and otherwise at 1 only."""
    from matplotlib.ticker import LogLocator, NullLocator

    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if limits[1] < 1e3 * limits[0] else (1,)))
    axis.set_major_formatter(form)
    axis.set_minor_locator(NullLocator())
