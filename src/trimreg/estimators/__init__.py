"""scikit-learn estimators, and the function that they are thin over.

Estimators are imported when they are first asked for, so that a fit pays for its own modules alone.
"""

from __future__ import annotations

from importlib import import_module

from .solve import solve, steps

_WHERE = {
    "MEstimator": "mestimator",
    "MultiTaskTrimmedLasso": "multitask",
    "TrimmedCoxRegressor": "cox",
    "TrimmedGammaRegressor": "glm",
    "TrimmedGroupLasso": "group_lasso",
    "TrimmedHuberRegressor": "glm",
    "TrimmedLasso": "trimmed_lasso",
    "TrimmedLogisticRegression": "logistic",
    "TrimmedPoissonRegressor": "glm",
}

__all__ = [
    "MEstimator",
    "MultiTaskTrimmedLasso",
    "TrimmedCoxRegressor",
    "TrimmedGammaRegressor",
    "TrimmedGroupLasso",
    "TrimmedHuberRegressor",
    "TrimmedLasso",
    "TrimmedLogisticRegression",
    "TrimmedPoissonRegressor",
    "solve",
    "steps",
]


def __getattr__(name):
    if name in _WHERE:
        return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return __all__
