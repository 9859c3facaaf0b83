"""trimreg: sparse M-estimation by trimmed regularization.

The public names are imported when they are first asked for, so ``import trimreg`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module

__version__ = "0.1.0"

_WHERE = {
    "TrimmedLasso": "estimators",
    "TrimmedGroupLasso": "estimators",
    "MultiTaskTrimmedLasso": "estimators",
    "TrimmedLogisticRegression": "estimators",
    "TrimmedPoissonRegressor": "estimators",
    "TrimmedGammaRegressor": "estimators",
    "TrimmedHuberRegressor": "estimators",
    "TrimmedCoxRegressor": "estimators",
    "MEstimator": "estimators",
    "TrimmedGraphicalLasso": "estimators",
    "TrimmedLassoCV": "selection",
    "TrimmedLogisticRegressionCV": "selection",
    "MEstimatorCV": "selection",
    "TrimmedGraphicalLassoCV": "selection",
    "StabilitySelection": "selection",
    "Bootstrap": "selection",
    "trimmed_path": "selection",
    "OnDisk": "designs.disk",
    "solve": "estimators",
    "solve_batch": "estimators.batch",
    "steps": "estimators",
    "solve_graphical": "estimators",
    "TrimmedL1": "penalties",
    "L1": "penalties",
    "MCP": "penalties",
    "SCAD": "penalties",
    "SLOPE": "penalties",
    "SolverResult": "solvers",
    "GraphicalResult": "solvers",
}
_ROOMS = (
    "datasets",
    "designs",
    "diagnostics",
    "estimators",
    "losses",
    "nn",
    "penalties",
    "plotting",
    "selection",
    "solvers",
)

__all__ = ["__version__", *_WHERE, *_ROOMS]


def __getattr__(name):
    if name in _WHERE:
        return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    if name in _ROOMS:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted(__all__)
