"""What the rows of the network tables say: summaries, charts, pictures and verdicts.

Two means are told apart by Welch's interval: the difference plus and minus 1.96 standard errors.
"""

from __future__ import annotations

import math

from ..spec import Chart, Verdict

#: What a row has beside its names; all None where a peer was not there.
MEASURES = (
    "reached", "exact", "error", "lowest", "validation_error", "parameters", "macs", "export_difference",
    "alpha", "epochs", "device", "seconds", "step_ms", "curve",
)  # fmt: skip
EXPORT_TOLERANCE = 1e-5
_NAMES = {
    "dense": "dense", "trimmed": "trimmed", "group l1": "group l1", "torchao PAT": "torchao PAT, hard top-k",
    "magnitude": "magnitude pruning, fine-tuned", "l0": "L0 gates",
    "l0 separate": "L0 gates, separate lambda", "l0 to size": "L0 gates, priced to size",
}  # fmt: skip
_ORDER = list(_NAMES)
_SIZED = ("trimmed", "magnitude")  # methods that promise a size


def summary(frame) -> list[dict]:
    """A line for each method, size and recipe (and part and network, where there are several).

    Means and deviations over the seeds; ``reached`` has the sizes that occur, ``exact`` is whether all are
    the one asked for.
    """
    frame = frame.copy()
    for column in ("part", "network"):
        if column not in frame:
            frame[column] = ""
    table = []
    for keys, group in frame.groupby(["part", "network", "recipe", "method", "asked"], sort=False):
        part, network, recipe, method, asked = keys
        there = group[group["error"].notna()]
        line = {"part": part, "network": network, "method": method, "recipe": recipe, "asked": asked}
        line = {key: value for key, value in line.items() if value != ""}
        line |= {
            "reached": ", ".join(dict.fromkeys(there["reached"])),
            "seeds": len(there),
            "error": _mean(there["error"]),
            "error sd": _deviation(there["error"]),
            "lowest": _mean(there["lowest"]),
            "lowest sd": _deviation(there["lowest"]),
            "paper": next(iter(group["paper"].dropna().astype(float)), None),  # the same in all rows
            "parameters": _mean(there["parameters"].dropna()),
            "macs": _mean(there["macs"].dropna()),
            "exact": bool(len(there)) and bool(there["exact"].astype(bool).all()),
            "export difference": _largest(there["export_difference"].dropna()),
        }
        table.append(line)
    return sorted(table, key=lambda line: (line["recipe"] != "ours", _ORDER.index(line["method"])))


def _mean(values):
    return float(values.astype(float).mean()) if len(values) else None


def _deviation(values):
    return float(values.astype(float).std(ddof=1)) if len(values) > 1 else None


def _largest(values):
    return float(values.astype(float).max()) if len(values) else None


def difference(one: dict, other: dict) -> tuple[float, float]:
    """The difference of two lines' mean errors, and 1.96 standard errors of it (0 where a line has one seed).

    Examples
    --------
    >>> from trimreg.experiments.networks.verdicts import difference
    >>> gap, margin = difference({"error": 1.5, "error sd": 0.3, "seeds": 9},
    ...                          {"error": 1.7, "error sd": 0.4, "seeds": 16})
    >>> round(gap, 3), round(margin, 3)
    (-0.2, 0.277)
    """
    variance = sum((line["error sd"] or 0.0) ** 2 / line["seeds"] for line in (one, other))
    return one["error"] - other["error"], 1.96 * math.sqrt(variance)


def compare(one: dict, other: dict) -> str:
    """Whether the first line errs less, more, or about as much.

    Examples
    --------
    >>> from trimreg.experiments.networks.verdicts import compare
    >>> line = {"error": 1.5, "error sd": 0.1, "seeds": 4}
    >>> compare(line, line | {"error": 1.9}), compare(line, line | {"error": 1.55})
    ('less', 'alike')
    """
    gap, margin = difference(one, other)
    return "less" if gap < -margin else "more" if gap > margin else "alike"


# -- verdicts ---------------------------------------------------------------------------------------------


def judge_tab1(frame) -> Verdict:
    """Met if the trimmed network errs at most as the paper says and not clearly more than the dense one."""
    table = summary(frame)
    trimmed, dense = _line(table, "trimmed"), _line(table, "dense")
    if trimmed is None or dense is None:
        return Verdict("not", "The rows of the trimmed or of the dense network are not there.", table)
    met = [trimmed["error"] <= trimmed["paper"], compare(trimmed, dense) != "more"]
    text = (
        f"{trimmed['asked']}: {_with_deviation(trimmed)} % at the last epoch (paper {trimmed['paper']}), "
        f"trimmed less dense {_gap(trimmed, dense)}; dense {_with_deviation(dense)} %."
    )
    group = _line(table, "group l1")
    if group is not None:
        text += f" The group l1 norm reaches {group['reached']} with {_with_deviation(group)} %."
    text += _authors(table) + _against_peers(table) + _kept_promises(table)
    return Verdict(_kind(met, _promises(table)), text, table)


def judge_sizes(frame) -> Verdict:
    """Met if our recipe errs at most as the paper says at every size, with sizes and exports exact."""
    table = summary(frame)
    lines = [line for line in table if line["method"] == "trimmed" and line["recipe"] == "ours"]
    lines = [line for line in lines if line["error"] is not None]
    met = [line["error"] <= line["paper"] for line in lines]
    parts = [f"{line['asked']}: {_with_deviation(line)} % (paper {line['paper']})" for line in lines]
    text = "Last epoch, our recipe: " + "; ".join(parts) + "." if parts else "No row of the trimmed penalty."
    for line in table:
        if line["method"].startswith("l0") and line["error"] is not None:
            text += f" {_NAMES[line['method']]} reach {line['reached']} with {_with_deviation(line)} %."
    text += _authors(table) + _against_peers(table) + _kept_promises(table)
    return Verdict(_kind(met, _promises(table)), text, table)


def judge_parts(frame) -> Verdict:
    """Met if the trimmed penalty is nowhere clearly worse than a peer, nor than the holder of a size."""
    table = summary(frame)
    met, text = [], []
    for part in dict.fromkeys(line["part"] for line in table):
        for network in dict.fromkeys(line["network"] for line in table):
            mine = [line for line in table if (line["part"], line["network"]) == (part, network)]
            lines = [line for line in mine if line["method"] == "trimmed" and line["error"] is not None]
            for line in lines:
                said = f"{part}, {network} {line['asked']}: {_with_deviation(line)} %"
                if line["paper"] is not None:
                    said += f" (its holder {line['paper']})"
                    met.append(line["error"] <= line["paper"])
                peers = _peers_of(mine, line)
                met += [compare(line, peer) != "more" for peer in peers]
                said += "".join(f", {peer['method']} {_with_deviation(peer)}" for peer in peers)
                text.append(said + ".")
    measured = " ".join(text) + _kept_promises(table) if text else "No row of the trimmed penalty."
    return Verdict(_kind(met, _promises(table)), measured, table)


def _kind(met, promises):
    """Promises of size and of export must hold for all to be met; alone they are worth nothing."""
    if not any(met):
        return "not"
    return "reproduced" if all(met) and all(promises) else "partly"


def _line(table, method, recipe="ours"):
    found = [line for line in table if (line["method"], line["recipe"]) == (method, recipe)]
    return next((line for line in found if line["error"] is not None), None)


def _with_deviation(line):
    spread = "" if line["error sd"] is None else f" +- {line['error sd']:.2f}"
    return f"{line['error']:.2f}{spread}"


def _gap(one, other):
    gap, margin = difference(one, other)
    known = None not in (one["error sd"], other["error sd"])
    return f"{gap:+.2f} +- {margin:.2f}" if known else f"{gap:+.2f}"


def _promises(table):
    """Whether sizes are those asked for, and exported networks the same function."""
    sized = [line["exact"] for line in table if line["method"] in _SIZED and line["error"] is not None]
    exported = [line["export difference"] for line in table if line["export difference"] is not None]
    return [all(sized), all(value <= EXPORT_TOLERANCE for value in exported)]


def _kept_promises(table):
    exact, equal = _promises(table)
    worst = max((line["export difference"] or 0.0 for line in table), default=0.0)
    return (
        f" Sizes of the trimmed rows {'are' if exact else 'are not all'} as asked; exported networks differ "
        f"by at most {worst:.1e}{'' if equal else ', which is too much'}."
    )


def _authors(table):
    lines = [line for line in table if (line["method"], line["recipe"]) == ("trimmed", "paper")]
    said = [
        f"{line['asked']} {_with_deviation(line)} % (lowest over epochs {line['lowest']:.2f})"
        for line in lines
        if line["error"] is not None
    ]
    return f" The authors' recipe: {'; '.join(said)}." if said else ""


def _peers_of(table, line):
    return [
        other
        for other in table
        if other["method"] in ("torchao PAT", "magnitude")
        and (other["asked"], other["recipe"]) == (line["asked"], line["recipe"])
        and other["error"] is not None
    ]


def _against_peers(table):
    said = []
    for line in table:
        if (line["method"], line["recipe"]) != ("trimmed", "ours") or line["error"] is None:
            continue
        for peer in _peers_of(table, line):
            said.append(f"{_gap(line, peer)} against {peer['method']} at {line['asked']}")
    return f" Trimmed less peer: {'; '.join(said)}." if said else ""


# -- charts -----------------------------------------------------------------------------------------------


def charts(frame) -> list[Chart]:
    """Errors against multiplications, and over epochs for every size."""
    table = [line for line in summary(frame) if line["error"] is not None]
    found = []
    places = dict.fromkeys((line.get("part", ""), line.get("network", "")) for line in table)
    for part, network in places:
        mine = [line for line in table if (line.get("part", ""), line.get("network", "")) == (part, network)]
        title = ", ".join(text for text in (network, part, "error against multiplications") if text)
        lines = [_cost_line(name, group) for name, group in _by_name(mine).items()]
        found.append(
            Chart(title[0].upper() + title[1:], "multiplications an image", "test error in %",
                  [line for line in lines if line["x"]], log_x=True)
        )  # fmt: skip
    whole = frame[frame["error"].notna()]
    keys = [column for column in ("part", "network", "asked") if column in frame]
    for place, group in whole.groupby(keys, sort=False):
        place = place if isinstance(place, tuple) else (place,)
        lines = [
            _epoch_line(_label(method, recipe), rows)
            for (recipe, method), rows in group.groupby(["recipe", "method"], sort=False)
        ]
        title = f"Test error over epochs, {', '.join(place)}"
        found.append(Chart(title, "epoch", "test error in %", lines, log_y=True))
    return found


def _label(method, recipe):
    return _NAMES[method] + (", authors' recipe" if recipe == "paper" else "")


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


# -- pictures ---------------------------------------------------------------------------------------------


def figure(frame):
    """A line for each row of the table: a point for each seed, a bar at the mean, the paper's error."""
    from matplotlib.figure import Figure

    from ...plotting.style import PALETTE, tidy

    table = [line for line in summary(frame) if line["error"] is not None]
    rows = frame[frame["error"].notna()]
    picture = Figure(figsize=(8.6, 1.3 + 0.32 * len(table)), layout="constrained")
    ax = picture.subplots()
    for place, line in enumerate(table):
        mine = rows[
            (rows["method"] == line["method"])
            & (rows["recipe"] == line["recipe"])
            & (rows["asked"] == line["asked"])
        ]
        colour = PALETTE[0] if line["method"] == "trimmed" else "0.45"
        marker = "o" if line["recipe"] == "ours" else "s"
        ax.plot(mine["error"], [place] * len(mine), marker, color=colour, alpha=0.45, markersize=4, zorder=2)
        ax.plot([line["error"]] * 2, [place - 0.3, place + 0.3], color=colour, linewidth=2, zorder=3)
        if line["paper"] is not None:
            ax.plot([line["paper"]], [place], "D", color=PALETTE[1], markersize=6, markerfacecolor="none")
    ax.plot([], [], "D", color=PALETTE[1], markersize=6, markerfacecolor="none", label="the paper's figure")
    ax.plot([], [], "o", color=PALETTE[0], markersize=4, label="trimmed, one seed")
    ax.plot([], [], "o", color="0.45", markersize=4, label="others, one seed")
    if any(line["recipe"] == "paper" for line in table):
        ax.plot([], [], "s", color="0.45", markersize=4, label="authors' recipe")
    ax.set_yticks(range(len(table)), [_row_label(line) for line in table], fontsize=8)
    ax.invert_yaxis()
    ax.set_xlabel("test error in %, last epoch")
    tidy(ax, grid="x")
    ax.legend(
        frameon=False,
        fontsize=8,
        loc="upper center",
        bbox_to_anchor=(0.5, 1.0 + 0.9 / (1 + len(table))),
        ncols=4,
    )
    return picture


def _row_label(line):
    size = line["reached"].split(", ")
    shown = size[0] if len(size) == 1 else f"{size[0]} ..."
    return f"{_label(line['method'], line['recipe'])}: {shown}"


def figure_of_parts(frame):
    """Error against multiplications: a panel for each network, on MNIST and on Fashion-MNIST."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, LogLocator, NullLocator

    from ...plotting.style import MARKERS, PALETTE, tidy

    table = [line for line in summary(frame) if line["error"] is not None and line["macs"] is not None]
    networks = list(dict.fromkeys(line["network"] for line in table))
    panels = [("MNIST", ("anchors", "curve")), ("Fashion-MNIST", ("fashion",))]
    panels = [panel for panel in panels if any(line["part"] in panel[1] for line in table)]
    picture = Figure(figsize=(5.0 * len(networks), 3.6 * len(panels)), layout="constrained")
    axes = picture.subplots(len(panels), len(networks), squeeze=False)
    for row, (data, parts) in enumerate(panels):
        for column, network in enumerate(networks):
            ax = axes[row][column]
            mine = [line for line in table if line["network"] == network and line["part"] in parts]
            for name, lines in _by_name(mine).items():
                rank = _ORDER.index(lines[0]["method"])
                line = _cost_line(name, lines)
                errors = [
                    [y - low for y, low in zip(line["y"], line["low"], strict=True)],
                    [high - y for y, high in zip(line["y"], line["high"], strict=True)],
                ]
                look = {"marker": MARKERS[rank], "color": PALETTE[rank], "markersize": 4, "linewidth": 1.2}
                ax.errorbar(line["x"], line["y"], yerr=errors, capsize=2, label=name, **look)
            ax.set_xscale("log")
            ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.xaxis.set_major_formatter(EngFormatter(sep=""))
            ax.xaxis.set_minor_locator(NullLocator())
            ax.set_xlabel("multiplications an image")
            ax.set_ylabel("test error in %, last epoch")
            ax.set_title(f"{network}, {data}", fontsize=9.5)
            tidy(ax, grid="y")
    axes[0][0].legend(frameon=False, fontsize=8)
    return picture
