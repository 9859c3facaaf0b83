"""A part of the report of the benchmarks; it needs nothing but Python."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field


@dataclass
class Section:
    """A part of the report: a table, the bars it is held to, and remarks."""

    title: str
    problem: str
    header: list[str]
    rows: list[list[str]] = field(default_factory=list)
    bars: list[tuple[str, str, bool]] = field(default_factory=list)  # what was asked, what came out, met
    remarks: list[str] = field(default_factory=list)
    headline: list[list[str]] = field(
        default_factory=list
    )  # rows for the README: against what, what came out

    def bar(self, asked: str, got: str, met: bool) -> None:
        self.bars.append((asked, got, bool(met)))

    def markdown(self) -> str:
        lines = [f"## {self.title}", "", self.problem, ""]
        lines += ["| " + " | ".join(self.header) + " |", "|" + "---|" * len(self.header)]
        lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in self.rows]
        if self.bars:
            lines += ["", "| asked | got | met |", "|---|---|---|"]
            lines += [f"| {asked} | {got} | {'yes' if met else '**no**'} |" for asked, got, met in self.bars]
        lines += [line for remark in self.remarks for line in ("", remark)]
        return "\n".join(lines) + "\n"

    def dump(self) -> str:
        return json.dumps(asdict(self))
