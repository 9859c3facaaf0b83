"""Summaries and verdicts of the network tables; :mod:`.pictures` draws them.

Two means are compared by Welch's interval: the difference plus and minus 1.96 standard errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..spec import Verdict, skipped

#: The measures of a row, all None if a peer is not installed.
MEASURES = (
    "reached", "exact", "error", "lowest", "validation_error", "parameters", "macs", "export_difference",
    "alpha", "epochs", "device", "seconds", "step_ms", "curve",
)  # fmt: skip
EXPORT_TOLERANCE = 1e-5
#: The names of the methods in charts and figures, in the order of the tables.
NAMES = {
    "dense": "dense", "trimmed": "trimmed", "group l1": "group l1", "torchao PAT": "torchao PAT, hard top-k",
    "magnitude": "magnitude pruning, fine-tuned", "gradual magnitude": "gradual magnitude pruning",
    "once, taylor": "cut once, by weight times gradient", "soft": "soft penalty", "bcd": "Algorithm 1",
    "l0": "L0 gates", "l0 separate": "L0 gates, separate lambda", "l0 to size": "L0 gates, priced to size",
}  # fmt: skip
ORDER = list(NAMES)
#: Methods that guarantee a size, and the peers that trimming is compared with.
_SIZED = ("trimmed", "magnitude", "gradual magnitude", "soft", "bcd")
_PEERS = ("torchao PAT", "magnitude", "gradual magnitude")


def summary(frame: Any) -> list[dict]:
    """One line per method, size and recipe (and per part, network and setting, if there are several).

    Means and deviations are over the seeds; ``reached`` lists the final sizes, and ``exact`` is whether all
    of them are the size asked for.
    """
    table = []
    keys = ["part", "network", "recipe", "method", "asked", "setting"]
    for values, group in filled(frame).groupby(keys, sort=False):
        line = dict(zip(keys, values, strict=True))
        there = group[group["error"].notna()]
        line = {key: value for key, value in line.items() if value != ""}
        line |= {
            "reached": ", ".join(dict.fromkeys(there["reached"])),
            "seeds": len(there),
            "error": _mean(there["error"]),
            "error sd": _deviation(there["error"]),
            "validation": _mean(there["validation_error"].dropna()),
            "alpha": next(iter(there["alpha"].dropna().astype(float)), None) if line.get("setting") else None,
            "lowest": _mean(there["lowest"]),
            "lowest sd": _deviation(there["lowest"]),
            "paper": next(iter(group["paper"].dropna().astype(float)), None),  # the same in all rows
            "parameters": _mean(there["parameters"].dropna()),
            "macs": _mean(there["macs"].dropna()),
            "exact": bool(len(there)) and bool(there["exact"].astype(bool).all()),
            "export difference": _largest(there["export_difference"].dropna()),
        }
        table.append(line)
    return sorted(table, key=lambda line: (line["recipe"] != "ours", ORDER.index(line["method"])))


def filled(frame: Any) -> Any:
    """The frame with "" as part, network and setting of rows that have none."""
    frame = frame.copy()
    for column in ("part", "network", "setting"):
        frame[column] = frame[column].fillna("") if column in frame else ""
    return frame


def tuned(table: list[dict]) -> list[dict]:
    """The table with one line per method and size: that of the setting with the least validation error.

    Lines without a validation error stay.
    """
    best: dict[tuple, dict] = {}
    for line in table:
        names = ("part", "network", "recipe", "method", "asked")
        key = tuple(line.get(name) for name in names if line["validation"] is not None) or (len(best),)
        if key not in best or line["validation"] < best[key]["validation"]:
            best[key] = line
    return list(best.values())


def _mean(values):
    return float(values.astype(float).mean()) if len(values) else None


def _deviation(values):
    return float(values.astype(float).std(ddof=1)) if len(values) > 1 else None


def _largest(values):
    return float(values.astype(float).max()) if len(values) else None


def difference(one: dict, other: dict) -> tuple[float, float]:
    """The difference of the mean errors of two lines, and 1.96 standard errors of it."""
    variance = sum((line["error sd"] or 0.0) ** 2 / line["seeds"] for line in (one, other))
    return one["error"] - other["error"], 1.96 * math.sqrt(variance)


def compare(one: dict, other: dict) -> str:
    """Whether the error of the first line is clearly "less" or "more", or "alike"."""
    gap, margin = difference(one, other)
    return "less" if gap < -margin else "more" if gap > margin else "alike"


# -- verdicts ---------------------------------------------------------------------------------------------


def judge_tab1(frame: Any) -> Verdict:
    """Met if the trimmed error is at most the paper's, and not clearly above that of the dense network."""
    whole = summary(frame)
    table = [line for line in whole if "part" not in line]
    trimmed, dense = _line(table, "trimmed"), _line(table, "dense")
    if trimmed is None or dense is None:
        return Verdict("not", "There are no rows of the trimmed or of the dense network.", whole)
    met = [trimmed["error"] <= trimmed["paper"], compare(trimmed, dense) != "more"]
    text = (
        f"{trimmed['asked']}: {with_deviation(trimmed)} % at the last epoch (paper {trimmed['paper']}), "
        f"trimmed minus dense {gap_text(trimmed, dense)}; dense {with_deviation(dense)} %."
    )
    group = _line(table, "group l1")
    if group is not None:
        text += f" The group l1 norm reaches {group['reached']} with {with_deviation(group)} %."
    text += _authors(table) + _against_peers(table)
    for part in dict.fromkeys(line["part"] for line in whole if "part" in line):
        mine = [line for line in whole if line.get("part") == part]
        trimmed, dense = _line(mine, "trimmed"), _line(mine, "dense")
        if trimmed and dense:
            met.append(compare(trimmed, dense) != "more")
            text += f" On {part}: trimmed {with_deviation(trimmed)} %, dense {with_deviation(dense)} %, "
            text += f"trimmed minus dense {gap_text(trimmed, dense)}.{_against_peers(mine)}"
    text += _exactness_text(whole) + _skipped(frame)
    return Verdict(kind_of(met, _exactness(whole)), text, whole)


def judge_sizes(frame: Any) -> Verdict:
    """Met if the error of our recipe is at most the paper's at every size, and it is better than gates.

    It is better if for every row of gates some size needs no more multiplications and has no larger error.
    """
    table = summary(frame)
    lines = [line for line in table if line["method"] == "trimmed" and line["recipe"] == "ours"]
    lines = [line for line in lines if line["error"] is not None]
    met = [line["error"] <= line["paper"] for line in lines]
    parts = [f"{line['asked']}: {with_deviation(line)} % (paper {line['paper']})" for line in lines]
    text = "Last epoch, our recipe: " + "; ".join(parts) + "." if parts else "No row of the trimmed penalty."
    for line in table:
        if line["method"].startswith("l0") and line["error"] is not None:
            text += f" {NAMES[line['method']]} reach {line['reached']} with {with_deviation(line)} %"
            below = [mine["asked"] for mine in lines if _dominates(mine, line)]
            met.append(bool(below))
            which = ", ".join(below) or "no size of the trimmed penalty"
            text += f"; {which} needs no more multiplications and has no larger error."
    text += _authors(table) + _against_peers(table) + _exactness_text(table) + _skipped(frame)
    return Verdict(kind_of(met, _exactness(table)), text, table)


def judge_parts(frame: Any) -> Verdict:
    """Met if the trimmed penalty is nowhere clearly worse than a peer, nor than a published error."""
    whole = summary(frame)
    table = tuned(whole)
    met, text = [], []
    for part in dict.fromkeys(line["part"] for line in table):
        for network in dict.fromkeys(line["network"] for line in table):
            mine = [line for line in table if (line["part"], line["network"]) == (part, network)]
            lines = [line for line in mine if line["method"] == "trimmed" and line["error"] is not None]
            for line in lines:
                said = f"{part}, {network} {line['asked']}: {with_deviation(line)} %"
                if line["paper"] is not None:
                    said += f" (published {line['paper']})"
                    met.append(line["error"] <= line["paper"])
                peers = _peers_of(mine, line)
                met += [compare(line, peer) != "more" for peer in peers]
                said += "".join(f", {peer['method']} {with_deviation(peer)}" for peer in peers)
                said += f" ({line['setting']})" if "setting" in line else ""
                text.append(said + ".")
    if not text:
        return Verdict("not", "No row of the trimmed penalty.", whole)
    measured = " ".join(text) + _exactness_text(whole) + _skipped(frame)
    return Verdict(kind_of(met, _exactness(whole)), measured, whole)


def _dominates(one, other):
    return one["error"] <= other["error"] and one["macs"] <= other["macs"]


def kind_of(met: list[bool], exactness: Sequence[bool] = ()) -> str:
    """The verdict: size and export must be exact for "reproduced", but are no evidence by themselves."""
    if not any(met):
        return "not"
    return "reproduced" if all(met) and all(exactness) else "partly"


def _line(table, method, recipe="ours"):
    found = [line for line in table if (line["method"], line["recipe"]) == (method, recipe)]
    return next((line for line in found if line["error"] is not None), None)


def with_deviation(line: dict) -> str:
    """The mean error and its deviation."""
    spread = "" if line["error sd"] is None else f" +- {line['error sd']:.2f}"
    return f"{line['error']:.2f}{spread}"


def gap_text(one: dict, other: dict) -> str:
    """The :func:`difference` as text."""
    gap, margin = difference(one, other)
    known = None not in (one["error sd"], other["error sd"])
    return f"{gap:+.2f} +- {margin:.2f}" if known else f"{gap:+.2f}"


def _exactness(table):
    """Whether all sizes are as asked for, and all exported networks compute the same function."""
    sized = [line["exact"] for line in table if line["method"] in _SIZED and line["error"] is not None]
    exported = [line["export difference"] for line in table if line["export difference"] is not None]
    return [all(sized), all(value <= EXPORT_TOLERANCE for value in exported)]


def _exactness_text(table):
    exact, equal = _exactness(table)
    worst = max((line["export difference"] or 0.0 for line in table), default=0.0)
    return (
        f" Sizes of the trimmed rows {'are' if exact else 'are not all'} as asked; exported networks differ "
        f"by at most {worst:.1e}{'' if equal else ', which is too much'}."
    )


def _skipped(frame):
    return "".join(f" {text}" for text in skipped(frame))


def _authors(table):
    lines = [line for line in table if (line["method"], line["recipe"]) == ("trimmed", "paper")]
    said = [
        f"{line['asked']} {with_deviation(line)} % (lowest over epochs {line['lowest']:.2f})"
        for line in lines
        if line["error"] is not None
    ]
    return f" The authors' recipe: {'; '.join(said)}." if said else ""


def _peers_of(table, line):
    return [
        other
        for other in table
        if other["method"] in _PEERS
        and (other["asked"], other["recipe"]) == (line["asked"], line["recipe"])
        and other["error"] is not None
    ]


def _against_peers(table):
    said = []
    for line in table:
        if (line["method"], line["recipe"]) != ("trimmed", "ours") or line["error"] is None:
            continue
        for peer in _peers_of(table, line):
            said.append(f"{gap_text(line, peer)} against {peer['method']} at {line['asked']}")
    return f" Trimmed minus peer: {'; '.join(said)}." if said else ""
