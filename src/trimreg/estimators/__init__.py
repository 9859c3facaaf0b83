"""scikit-learn estimators of a linear predictor, and the functions beneath them.

A new estimator needs its class in ``models``, its name here, and an entry in the registry of the tests.
"""

from __future__ import annotations

from .._lazy import lazy

_WHERE = {
    "TrimmedLasso": ".models.trimmed_lasso",
    "TrimmedGroupLasso": ".models.group_lasso",
    "MultiTaskTrimmedLasso": ".models.multitask",
    "TrimmedLogisticRegression": ".models.logistic",
    "TrimmedPoissonRegressor": ".models.glm",
    "TrimmedGammaRegressor": ".models.glm",
    "TrimmedHuberRegressor": ".models.glm",
    "TrimmedNegativeBinomialRegressor": ".models.glm",
    "TrimmedQuantileRegressor": ".models.glm",
    "TrimmedOrdinalRegression": ".models.ordinal",
    "TrimmedCoxRegressor": ".models.cox",
    "TrimmedInteractions": ".models.interactions",
    "MEstimator": ".models.mestimator",
    "solve": ".functional",
    "concordance": ".survival",
    "minimize": ".function.minimize",
    "steps": ".functional",
    "solve_batch": ".batch.solve_batch",
    "certify": ".certificate",
    "near_best": ".certificate",
    "Certificate": ".certificate",
    "load": ".io",
    "save": ".io",
}

__all__ = list(_WHERE)
__getattr__, __dir__ = lazy(__name__, _WHERE)
