"""Penalties: a magnitude and a weight rule each. See :mod:`trimreg.penalties.base`."""

from __future__ import annotations

from .._lazy import lazy
from .base import Penalty, PenaltyProtocol, soft_threshold, subgradient_residual
from .l1 import L1
from .mcp import MCP
from .scad import SCAD
from .slope import SLOPE
from .trimmed_l1 import TrimmedL1, count_from, largest

__all__ = [
    "L1",
    "MCP",
    "PENALTIES",
    "SCAD",
    "SLOPE",
    "Penalty",
    "PenaltyProtocol",
    "TrimmedL1",
    "count_from",
    "distance_to_optimal_weights",
    "get_penalty",
    "largest",
    "project_capped_simplex",
    "soft_threshold",
    "subgradient_residual",
]

__getattr__, _ = lazy(
    __name__, {"distance_to_optimal_weights": ".simplex", "project_capped_simplex": ".simplex"}
)

PENALTIES = {"trimmed_l1": TrimmedL1, "l1": L1, "mcp": MCP, "scad": SCAD, "slope": SLOPE}


def get_penalty(penalty) -> Penalty:
    """The penalty of that name with its default parameters, or the object itself.

    Examples
    --------
    >>> from trimreg.penalties import get_penalty
    >>> get_penalty("mcp").gamma
    2.5
    """
    if isinstance(penalty, str) and penalty in PENALTIES:
        return PENALTIES[penalty]()
    if isinstance(penalty, Penalty):
        return penalty
    raise ValueError(f"penalty must be one of {sorted(PENALTIES)} or a penalty object; got {penalty!r}")
