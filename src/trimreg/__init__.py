"""trimreg: sparse M-estimation by trimmed regularization.

The public names are imported when they are first asked for, so ``import trimreg`` costs nothing.
"""

from __future__ import annotations

from importlib.util import find_spec

from . import estimators
from ._lazy import lazy

__version__ = "0.1.0"

_WHERE = {
    **dict.fromkeys(estimators.__all__, ".estimators"),
    "TrimmedGraphicalLasso": ".graphs",
    "TrimmedLassoCV": ".selection",
    "TrimmedLogisticRegressionCV": ".selection",
    "MEstimatorCV": ".selection",
    "TrimmedCoxRegressorCV": ".selection",
    "TrimmedGraphicalLassoCV": ".graphs",
    "StabilitySelection": ".selection",
    "Bootstrap": ".selection",
    "trimmed_path": ".selection",
    "OnDisk": ".designs.far.disk",
    "solve_graphical": ".graphs",
    "TrimmedL1": ".penalties",
    "L1": ".penalties",
    "MCP": ".penalties",
    "SCAD": ".penalties",
    "SLOPE": ".penalties",
    "SolverResult": ".solvers",
    "GraphicalResult": ".graphs",
}
_ROOMS = (
    "datasets", "designs", "diagnostics", "estimators", "graphs", "inference", "losses", "nn", "penalties",
    "plotting", "selection", "solvers",
)  # fmt: skip

__all__ = ["__version__", *_WHERE, *_ROOMS]
if find_spec("torch") is None:  # trimreg.nn then says what to install; to list names must not raise
    __all__.remove("nn")
__getattr__, _ = lazy(__name__, _WHERE | {room: f".{room}" for room in _ROOMS})


def __dir__() -> list[str]:
    return sorted(__all__)
