"""What a search keeps for its proof: the tree, and a dual point for each bound that it uses."""

from __future__ import annotations

from typing import Any

import numpy as np

_MOST = 200_000  # entries beyond which a proof is given up


class Proof:
    """Entries of the tree, each with its parent; see :mod:`trimreg.diagnostics.bounds` for their meaning."""

    def __init__(self, keep: bool = True):
        self.keep = keep
        self.entries: list[dict[str, Any]] = []
        self.relaxations: list[Any] = []

    def add(self, parent: int, side: int, relaxation: Any, found: Any, verdicts: Any = None) -> int:
        """Add an entry below ``parent``, on that side if the parent branches; returns its number."""
        if len(self.entries) >= _MOST:
            self.keep, self.entries, self.relaxations = False, [], []
        if not self.keep:
            return -1
        if relaxation.id < 0:
            relaxation.id = len(self.relaxations)
            quadratic = relaxation.quadratic
            scale = np.ones(quadratic.c.size) if quadratic.scale is None else quadratic.scale
            self.relaxations.append(
                {"free": relaxation.free, "parts": quadratic.parts, "tau": relaxation.tau, "scale": scale}
            )
        point = relaxation.point(found)
        index = np.flatnonzero(point)
        entry = {
            "parent": parent, "side": side, "relaxation": relaxation.id, "branch": -1,
            "index": index, "value": point[index],
        }  # fmt: skip
        if verdicts is not None:
            parts = relaxation.quadratic.parts
            entry["made_free"], entry["made_not_free"] = parts[verdicts > 0], parts[verdicts < 0]
        self.entries.append(entry)
        return len(self.entries) - 1

    def branch(self, entry: int, part: int) -> None:
        """Let an entry branch on a part; its two children follow."""
        if self.keep and entry >= 0:
            self.entries[entry]["branch"] = part
