"""Trimmed logistic regression: two classes, or several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.multiclass import check_classification_targets

from ...losses import Logistic, Loss, Multinomial
from ...solvers import SolverResult
from .. import validation as check
from .base import Classifier, TrimmedEstimator


class TrimmedLogisticRegression(Classifier, TrimmedEstimator):
    r"""Logistic regression with a penalty on all but the h largest coefficients.

    .. math:: \min_{\theta, b}\; \sum_i d_i \log\bigl(1 + e^{-s_i (z_i'\theta + b)}\bigr)
              + \alpha \sum_{j > h} |\theta|_{(j)}, \qquad s_i = \pm 1,

    and for more than two classes the multinomial loss with one predictor per class. There all coefficients of
    a feature are trimmed together: :math:`r_j = \|\theta_{j\cdot}\|_2`.

    Parameters
    ----------
    h : int, float in (0, 1) or None, default=None
        The number (or fraction) of features without a penalty. None is a tenth, at least one.
    alpha : float or "exact", default="exact"
        With ``"exact"``, at most h features are in the model.
    l2 : float, default=0.0
        A ridge term, as in :class:`TrimmedLasso`. With any ``l2 > 0`` the fit exists also if the features
        separate the classes.
    class_weight : "balanced", dict or None, default=None
        Factors of the sample weights by class; ``"balanced"`` gives all classes the same total weight.
    solver, effort, fit_intercept, standardize, positive, lower, upper, penalty_factor, groups, n_outliers
        As in :class:`TrimmedLasso`; ``positive``, ``lower`` and ``upper`` are for two classes.
    warm_start, tol, max_iter, random_state
        As in :class:`TrimmedLasso`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
    intercept_ : ndarray of shape (1,) or (n_classes,)
    trim_weights_, support_, objective_, stationarity_, alpha_, n_iter_, outliers_, entry_order_, result_
        As in :class:`TrimmedLasso`.

    Notes
    -----
    If the free features separate the classes and ``l2`` is 0, the loss has no minimum. The fit then
    ends at finite coefficients once the gradient is within ``tol``; a ``ConvergenceWarning`` and
    ``result_.message`` say so.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import TrimmedLogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 20))
    >>> y = np.where(2 * X[:, 3] - 2 * X[:, 7] + rng.logistic(size=300) > 0, "yes", "no")
    >>> model = TrimmedLogisticRegression(h=2).fit(X, y)
    >>> model.support_, model.classes_
    (array([3, 7]), array(['no', 'yes'], dtype='<U3'))
    >>> model.predict_proba(X[:2]).shape
    (2, 2)
    """

    def __init__(
        self,
        h: int | float | None = None,
        alpha: float | str = "exact",
        l2: float = 0.0,
        class_weight: Any = None,
        solver: str = "mm",
        effort: str = "medium",
        fit_intercept: bool = True,
        standardize: bool = True,
        positive: bool = False,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        penalty_factor: ArrayLike | None = None,
        groups: Any = None,
        n_outliers: int | float = 0,
        warm_start: bool = False,
        tol: float = 1e-6,
        max_iter: int | None = None,
        random_state: Any = None,
    ):
        self._store(locals())

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        # By default one feature in ten is kept: too few for a good score on small data.
        tags.classifier_tags.poor_score = self.h is None
        return tags

    def _target(self, y, sample_weight):
        self.classes_, codes = encoded_classes(y)
        weights = check.check_sample_weight(sample_weight, codes.size)
        weights = weights * class_factors(self.class_weight, self.classes_, codes, weights)[codes]
        present = np.unique(codes[weights > 0]).size
        if present < 2:
            raise ValueError(f"y must have at least two classes of positive weight; got {present} class")
        plain = sample_weight is None and self.class_weight is None
        return codes.astype(float), None if plain else weights

    @property
    def _loss(self) -> Loss:
        return Multinomial(self.classes_.size) if self.classes_.size > 2 else Logistic()

    def _keep(self, task, details) -> None:
        if self.coef_.ndim == 2:
            self.result_ = centered(self.result_, *self._free(self.trim_weights_))
            self.coef_, self.intercept_ = self.result_.coef, self.result_.intercept
        self.coef_ = np.atleast_2d(self.coef_)
        self.intercept_ = np.atleast_1d(self.intercept_).astype(self.coef_.dtype)

    def _output_names(self) -> list:
        return self.classes_.tolist()

    def decision_function(self, X: Any, offset: ArrayLike | None = None) -> np.ndarray:
        """The linear predictors: log-odds of the second class, or one column per class.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        offset : array-like of shape (n_samples,), optional
            As in :meth:`fit`, for two classes.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
        """
        eta = self._predictor(X, offset)
        return eta if eta.shape[1] > 1 else eta[:, 0]

    def predict_log_proba(self, X: Any, offset: ArrayLike | None = None) -> np.ndarray:
        """Logarithms of the probabilities of the classes, exact even if these underflow.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        offset : array-like of shape (n_samples,), optional
            As in :meth:`fit`, for two classes.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        eta = self._predictor(X, offset)
        if eta.shape[1] == 1:
            return -np.logaddexp(0.0, np.hstack([eta, -eta]))
        return eta - np.logaddexp.reduce(eta, axis=1, keepdims=True)

    def predict_proba(self, X: Any, offset: ArrayLike | None = None) -> np.ndarray:
        """Probabilities of the classes, one column per class in the order of ``classes_``.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        offset : array-like of shape (n_samples,), optional
            As in :meth:`fit`, for two classes.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        return np.exp(self.predict_log_proba(X, offset))

    def predict(  # type: ignore[override]
        self, X: Any, offset: ArrayLike | None = None
    ) -> np.ndarray:
        """The most probable class of each sample.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        offset : array-like of shape (n_samples,), optional
            As in :meth:`fit`, for two classes.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        eta = self._predictor(X, offset)
        return self.classes_[eta.argmax(axis=1) if eta.shape[1] > 1 else (eta[:, 0] > 0).astype(int)]


def encoded_classes(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """The classes in sorted order, and the number of each sample's class."""
    if y is None:
        raise ValueError("fit requires y to be passed, but the target y is None")
    check.check_container("y", y)
    labels = check.one_column(np.asarray(y))
    if labels.ndim != 1:
        raise ValueError(f"y must be a vector of classes; got shape {labels.shape}")
    if labels.dtype.kind in "fc":
        check.check_finite(check.check_real("y", labels), "y")
    try:
        check_classification_targets(labels)
    except (TypeError, ValueError) as error:
        raise ValueError(f"y must hold classes: {error}") from None
    classes, codes = np.unique(labels, return_inverse=True)
    if classes.size < 2:
        raise ValueError(f"y must have at least two classes; got {classes.size} class, {classes.tolist()}")
    return classes, codes


def class_factors(
    class_weight: Any, classes: np.ndarray, codes: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """The factor of each class's weight; ``codes`` are the numbers of the samples' classes.

    ``"balanced"`` divides the total weight by the number of classes and by the weight of the class.
    """
    allowed = "class_weight must be None, 'balanced' or a dict with one number >= 0 per class"
    if class_weight is None:
        return np.ones(classes.size)
    if isinstance(class_weight, str) and class_weight == "balanced":
        share = classes.size * np.bincount(codes, weights, minlength=classes.size)
        return np.divide(weights.sum(), share, out=np.ones(classes.size), where=share > 0)
    if not isinstance(class_weight, Mapping):
        raise ValueError(f"{allowed}; got {class_weight!r}")
    factors, known = np.ones(classes.size), classes.tolist()
    for label, factor in class_weight.items():
        if label not in known:
            raise ValueError(f"{allowed}; got {label!r}, which is not among the classes {known}")
        try:
            check.check_number("class_weight", factor, 0.0)
        except ValueError:
            raise ValueError(f"{allowed}; got {factor!r} for {label!r}") from None
        factors[known.index(label)] = factor
    return factors


def centered(result: SolverResult, free: np.ndarray, copies: np.ndarray) -> SolverResult:
    """The multinomial result with means of 0 over the classes, for ``free`` features and intercepts.

    Adding the same number to all classes changes no probability, so the loss alone does not determine it. For
    penalized features the penalty has already made the mean 0. ``copies`` are the free entries of theta.
    """

    def without_mean(values):
        return values - values.mean(axis=0)

    coef = np.where(free, without_mean(result.coef), result.coef)
    theta = np.asarray(result.theta).reshape(-1, coef.shape[0]).T
    theta = np.where(copies, without_mean(theta), theta).T.ravel()
    return replace(result, coef=coef, intercept=without_mean(result.intercept), theta=theta)
