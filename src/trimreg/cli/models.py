"""Which estimator the commands fit, and how good it is."""

from __future__ import annotations

from typing import Any

import numpy as np

_PLAIN = {
    "quadratic": "TrimmedLasso",
    "logistic": "TrimmedLogisticRegression",
    "poisson": "TrimmedPoissonRegressor",
    "gamma": "TrimmedGammaRegressor",
    "huber": "TrimmedHuberRegressor",
    "negative_binomial": "TrimmedNegativeBinomialRegressor",
    "quantile": "TrimmedQuantileRegressor",
    "ordinal": "TrimmedOrdinalRegression",
    "cox": "TrimmedCoxRegressor",
}
_CHOOSING = {
    "quadratic": "TrimmedLassoCV",
    "logistic": "TrimmedLogisticRegressionCV",
    "cox": "TrimmedCoxRegressorCV",
}


def build(
    loss: str,
    h: Any,
    alpha: Any,
    l2: Any = None,
    *,
    folds: int = 5,
    rule: str = "min",
    criterion: str = "cv",
    seed: int = 0,
    jobs: int | None = None,
    subjects: bool = False,
    **options: Any,
) -> Any:
    """The estimator for a loss; if h, alpha or l2 is ``"auto"``, the one that chooses it.

    With ``l2=None`` the estimator's default is taken.

    Folds are shuffled, because the rows of a file are often sorted. With ``subjects`` they keep groups
    together.
    """
    from .. import estimators, selection
    from ..penalties import TrimmedL1

    if "auto" not in (h, alpha, l2):
        options |= {"alpha": alpha, "l2": l2 or 0.0, "random_state": seed}
        if loss in _PLAIN:
            return getattr(estimators, _PLAIN[loss])(h=h, **options)
        penalty = TrimmedL1(h, groups=options.pop("groups", None))
        if "effort" in options:
            options["solver_options"] = {"effort": options.pop("effort")}
        return estimators.MEstimator(loss=loss, penalty=penalty, **options)
    from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold

    shuffled = {"shuffle": True, "random_state": seed}
    balanced = loss in ("logistic", "cox")
    if subjects:
        cv = StratifiedGroupKFold(folds, **shuffled) if balanced else GroupKFold(folds)
    else:
        cv = (StratifiedKFold if balanced else KFold)(folds, **shuffled)
    kind = getattr(selection, _CHOOSING.get(loss, "MEstimatorCV"))
    if loss not in _CHOOSING:
        options["loss"] = loss
    if l2 is not None:
        options["l2s"] = l2 if isinstance(l2, str) else [l2]
    return kind(
        hs="auto" if h == "auto" else [h],
        alphas=alpha if isinstance(alpha, str) else [alpha],
        cv=cv,
        rule=rule,
        criterion=criterion,
        n_jobs=jobs,
        verbose=1,
        random_state=seed,
        **options,
    )


def scores(saved: Any, eta: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None) -> dict[str, float]:
    """How well linear predictors of a :class:`SavedModel` fit these targets, by the name of the measure.

    R^2 and root mean squared error; also mean absolute error for Huber's loss and quantiles; the share of
    deviance explained for counts and positive targets; accuracy, log loss and (for two classes) area under
    the ROC curve for classes; Harrell's concordance for survival times.
    """
    loss, classes = saved.loss, saved.classes
    if loss == "cox":
        from ..estimators import concordance

        return {"concordance": concordance(y, eta, weights)}
    from sklearn import metrics

    weighted = {"sample_weight": weights}
    if classes is not None:
        codes = np.searchsorted(classes, y)
        probability = saved.probabilities(eta)
        found = {
            "accuracy": float(np.average(probability.argmax(axis=1) == codes, weights=weights)),
            "log_loss": metrics.log_loss(codes, probability, labels=np.arange(len(classes)), **weighted),
        }
        if len(classes) == 2 and np.unique(codes).size == 2:
            found["auc"] = metrics.roc_auc_score(codes, eta, **weighted)
        return found
    fitted = saved.fitted_loss()
    with np.errstate(over="ignore", invalid="ignore"):  # a log link, far from the rows that were fitted
        mean = fitted.inverse_link(eta)
        error = y - mean
        found = {"rmse": np.sqrt(np.average(error**2, weights=weights))}
    if loss in ("huber", "quantile"):
        found["mae"] = np.average(np.abs(error), weights=weights)
    if not np.isfinite(found["rmse"]) or np.ptp(y) == 0:
        return found  # there is no variance to explain
    if fitted.log_link:
        from ..estimators.models.glm import deviance_explained
        from ..estimators.validation import check_sample_weight

        found["d2"] = deviance_explained(fitted, eta, y, check_sample_weight(weights, y.size))
    else:
        found["r2"] = metrics.r2_score(y, mean, **weighted)
    return found


#: What the names of :func:`scores` stand for, in printed text.
NAMES = {
    "rmse": "RMSE", "r2": "R^2", "d2": "deviance explained", "mae": "mean absolute error", "auc": "AUC",
    "log_loss": "log loss",
}  # fmt: skip


def in_words(values: dict[str, float]) -> str:
    """Scores in one line."""
    return ", ".join(f"{NAMES.get(name, name)} {value:.4g}" for name, value in values.items())


def checks(model: Any, X: Any, data: Any) -> dict[str, Any]:
    """The checks of the solution that are recomputed from the data, for the certificate of a model."""
    from ..reports.model import diagnostics

    found = {row["check"]: row["value"] for row in diagnostics(model, X, data.y, data.weights, data.offset)}
    found.pop("solver")
    return {"stationarity": found.pop("stationarity"), "checks": found}
