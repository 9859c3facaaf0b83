"""Penalties: a magnitude and a weight rule each. See :mod:`trimreg.penalties.base`."""

from __future__ import annotations

from .._lazy import lazy
from .base import PENALTIES, Penalty, get_penalty, soft_threshold, subgradient_residual
from .l1 import L1
from .mcp import MCP
from .scad import SCAD
from .slope import SLOPE
from .trimmed_l1 import TrimmedL1, count_from, largest

_KINDS = (TrimmedL1, L1, MCP, SCAD, SLOPE)
PENALTIES.update({kind.name: kind for kind in _KINDS})

_COMPILED = {"distance_to_optimal_weights": ".simplex", "project_capped_simplex": ".simplex"}

__all__ = [
    "PENALTIES", "Penalty", "count_from", "get_penalty", "largest", "soft_threshold", "subgradient_residual",
    *_COMPILED, *(kind.__name__ for kind in _KINDS),
]  # fmt: skip
__getattr__, _ = lazy(__name__, _COMPILED)
