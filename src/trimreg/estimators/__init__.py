"""scikit-learn estimators of a linear predictor, and the functions that they are thin over."""

from __future__ import annotations

from .._lazy import lazy
from .solve import solve, steps

_WHERE = {
    "MEstimator": ".models.mestimator",
    "MultiTaskTrimmedLasso": ".models.multitask",
    "TrimmedCoxRegressor": ".models.cox",
    "TrimmedGammaRegressor": ".models.glm",
    "TrimmedGroupLasso": ".models.group_lasso",
    "TrimmedHuberRegressor": ".models.glm",
    "TrimmedLasso": ".models.trimmed_lasso",
    "TrimmedLogisticRegression": ".models.logistic",
    "TrimmedPoissonRegressor": ".models.glm",
    "load": ".io",
    "save": ".io",
    "solve_batch": ".batch",
}

__all__ = ["solve", "steps", *_WHERE]
__getattr__, __dir__ = lazy(__name__, _WHERE)
