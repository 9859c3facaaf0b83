"""What the selectors and tests of this room share: input, the model that selects features, what is kept."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted

from ..designs.convert import to_host
from ..estimators import validation as check
from ..estimators.models.logistic import encoded_classes
from ..estimators.survival import stratified
from ..losses import Loss, get_loss
from ..selection import MEstimatorCV, auto_hs
from ..selection.criteria import CRITERIA
from ..selection.resampling import coefficients, seeded
from ..selection.search import parallel

#: Losses that are minus a log-likelihood with one predictor, and whether it has a dispersion to estimate.
LIKELIHOODS = {"quadratic": True, "logistic": False, "poisson": False, "gamma": True, "cox": False}
COVARIANCES = ("model", "robust")
_SAMPLES_PER_FEATURE = 10  # of the largest model that is selected by default


class Inference(BaseEstimator):
    """Base of the estimators of this room."""

    loss: Any
    n_jobs: int | None
    verbose: int

    def _store(self, parameters):
        for name in self._get_param_names():
            setattr(self, name, parameters[name])

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = True
        return tags

    def _samples(self, X, y):
        """X and y checked, and the loss; sets the names of the features."""
        if y is None:
            raise ValueError("fit requires y to be passed, but the target y is None")
        X_, target, loss = check_samples(X, y, self.loss)
        check.check_features(self, X)
        self._names = names_in(X, X_.shape[1])
        return X_, target, loss

    def _in_parallel(self, function, tasks, label):
        return parallel(function, tasks, n_jobs=self.n_jobs, label=label, verbose=self.verbose)


class Selector(SelectorMixin, Inference):
    """An estimator that keeps the features ``support_``."""

    support_: np.ndarray

    def _get_support_mask(self):
        check_is_fitted(self)
        return self.support_


def selected(
    model: Any, X: Any, y: np.ndarray, target: np.ndarray, loss: Loss, seed: int, *,
    criterion: str = "ebic", factor: Any = None,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """The features that a model selects, and its coefficients. A default model is fitted to ``target``.

    It has best subsets of a size chosen by a criterion, at most one feature for ten samples; for classes and
    survival times, for ten of the rarer class or events. ``factor`` is its ``penalty_factor``.
    """
    if model is None:
        n, p = X.shape
        if loss.name == "logistic":
            n = min(target.sum(), n - target.sum())
        elif loss.name == "cox":
            n = loss.classes(target).sum()
        most = max(1, min(p if factor is None else np.count_nonzero(factor), int(n) // _SAMPLES_PER_FEATURE))
        sizes = auto_hs(X.shape[0], p, max_h=int(most))
        model = MEstimatorCV(loss=loss, criterion=criterion, hs=sizes, effort="low")
        y = target
    else:
        model = clone(model)
    if factor is not None:
        model.set_params(penalty_factor=factor)
    coef, _ = coefficients(seeded(model, seed).fit(X, y), X.shape[1])
    if coef.ndim != 1:
        raise ValueError(f"estimator must have one coefficient per feature; coef_ has shape {coef.shape}")
    return np.flatnonzero(coef), coef


# -- checks ------------------------------------------------------------------------------------------------


def check_samples(X: Any, y: Any, loss: Any) -> tuple[Any, np.ndarray, Loss]:
    """X and y as matrices of numbers, and the loss, which must be a likelihood."""
    if isinstance(loss, str) and loss in LIKELIHOODS:
        loss = get_loss(loss)
    if not isinstance(loss, Loss) or loss.name not in LIKELIHOODS:
        allowed = ", ".join(map(repr, LIKELIHOODS))
        raise ValueError(f"loss must be one with a likelihood and one predictor, {allowed}; got {loss!r}")
    X = check.check_matrix(check.check_near(X, "inference", "select features first, and refit these"))
    y = to_host(y)
    if loss.name == "logistic":
        classes, y = encoded_classes(y)
        if classes.size != 2:
            raise ValueError(f"y must have two classes; got {classes.size}. Take one class against the rest")
    elif loss.name == "cox":
        y = stratified(y, None)[0]
    y = check.check_target(y, X.shape[0], matrix=loss.matrix_target)
    loss.check_target(y)
    if y.shape[0] < 8:
        raise ValueError(f"at least 8 samples are needed; got n_samples={y.shape[0]}")
    return X, y, loss


def check_share(name: str, value: Any) -> float:
    """A number strictly between 0 and 1."""
    check.check_number(name, value, 0.0, strict=True)
    if value >= 1:
        raise ValueError(f"{name} must be in (0, 1); got {value!r}")
    return float(value)


def check_criterion(criterion: Any) -> None:
    check.check_choice("criterion", criterion, ("cv", *CRITERIA))


def check_clusters(clusters: Any, n: int) -> np.ndarray:
    """Labels of clusters, numbered from 0."""
    labels = np.asarray(to_host(clusters))
    if labels.shape != (n,):
        raise ValueError(f"clusters must have one label per sample, {n} in all; got shape {labels.shape}")
    found, numbers = np.unique(labels, return_inverse=True)
    if found.size < 2:
        raise ValueError(f"clusters must have at least two labels; got {found.tolist()}")
    return numbers


def check_columns(name: str, columns: Any, X: Any, p: int) -> np.ndarray:
    """Columns of X, which has p of them, given by index, name or mask, as distinct indices."""
    given = np.atleast_1d(np.asarray(columns))
    if given.dtype.kind in "OUS" and given.size:
        known = names_in(X, p).tolist()
        missing = [one for one in given.tolist() if one not in known]
        if missing:
            raise ValueError(f"{name} must be columns of X; {missing[0]!r} is none")
        given = np.array([known.index(one) for one in given.tolist()])
    if given.dtype == bool and given.shape == (p,):
        given = np.flatnonzero(given)
    good = given.ndim == 1 and (given.dtype.kind in "iu" or not given.size)
    if not good or np.any((given < 0) | (given >= p)) or np.unique(given).size != given.size:
        raise ValueError(f"{name} must be distinct columns from 0 to {p - 1}; got {columns!r}")
    return given.astype(int)


def names_in(X: Any, p: int) -> np.ndarray:
    """The names of the columns of X; ``x0``, ``x1``, ... for an array."""
    names = getattr(X, "columns", None)
    return np.array([f"x{j}" for j in range(p)] if names is None else list(names), dtype=object)


def dense(X: Any, columns: Any) -> np.ndarray:
    """Some columns of X as a float64 array."""
    Z = X[:, columns]
    return np.asarray(Z.toarray() if hasattr(Z, "toarray") else Z, dtype=float)


def tail_headers(confidence: float) -> tuple[str, str]:
    """The headers of the two ends of an interval."""
    return f"{50 * (1 - confidence):.3g} %", f"{50 * (1 + confidence):.3g} %"
