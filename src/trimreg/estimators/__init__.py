"""scikit-learn estimators, and the function that they are thin over.

Estimators are imported when they are first asked for, so that a fit pays for its own modules alone.
"""

from __future__ import annotations

from importlib import import_module

from .solve import solve, steps

_WHERE = {
    "EdgeTable": "edges",
    "MEstimator": "mestimator",
    "MultiTaskTrimmedLasso": "multitask",
    "TrimmedCoxRegressor": "cox",
    "TrimmedGammaRegressor": "glm",
    "TrimmedGraphicalLasso": "graphical",
    "TrimmedGroupLasso": "group_lasso",
    "TrimmedHuberRegressor": "glm",
    "TrimmedLasso": "trimmed_lasso",
    "TrimmedLogisticRegression": "logistic",
    "TrimmedPoissonRegressor": "glm",
    "partial_correlations": "edges",
    "solve_batch": "batch",
    "solve_graphical": "graphsolve",
    "to_networkx": "edges",
}

__all__ = [
    "EdgeTable",
    "MEstimator",
    "MultiTaskTrimmedLasso",
    "TrimmedCoxRegressor",
    "TrimmedGammaRegressor",
    "TrimmedGraphicalLasso",
    "TrimmedGroupLasso",
    "TrimmedHuberRegressor",
    "TrimmedLasso",
    "TrimmedLogisticRegression",
    "TrimmedPoissonRegressor",
    "partial_correlations",
    "solve",
    "solve_batch",
    "solve_graphical",
    "steps",
    "to_networkx",
]


def __getattr__(name):
    if name in _WHERE:
        return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return __all__
