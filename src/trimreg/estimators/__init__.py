"""scikit-learn estimators, and the function that they are thin over."""

from __future__ import annotations

from .cox import TrimmedCoxRegressor
from .glm import TrimmedGammaRegressor, TrimmedHuberRegressor, TrimmedPoissonRegressor
from .group_lasso import TrimmedGroupLasso
from .logistic import TrimmedLogisticRegression
from .mestimator import MEstimator
from .multitask import MultiTaskTrimmedLasso
from .solve import solve, steps
from .trimmed_lasso import TrimmedLasso

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
