"""Trimmed regression for ordered classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...losses import Ordinal
from .. import validation as check
from .base import Classifier, TrimmedEstimator
from .logistic import encoded_classes


class TrimmedOrdinalRegression(Classifier, TrimmedEstimator):
    r"""Ordered classes with proportional odds and a penalty on all but the h largest coefficients.

    .. math:: \min_{\theta, c}\; -\sum_i d_i \log P(y_i) + \alpha \sum_{j > h} |\theta|_{(j)}, \qquad
              P(y \le k) = \frac{1}{1 + e^{z'\theta - c_k}},

    with thresholds :math:`c_0 < \dots < c_{K-2}` between the classes (:class:`trimreg.losses.Ordinal`). A
    positive coefficient makes higher classes more probable. There is no intercept: it is part of the
    thresholds.

    Parameters
    ----------
    h, alpha, l2
        As in :class:`TrimmedLasso`.
    classes : sequence or None, default=None
        The classes in their order. None takes the order of an ordered categorical column, and otherwise the
        order of numbers, or the alphabet.
    solver, effort, standardize, positive, lower, upper, penalty_factor, groups, n_outliers, warm_start
        As in :class:`TrimmedLasso`.
    tol, max_iter, random_state
        As in :class:`TrimmedLasso`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes that y has, in their order.
    thresholds_ : ndarray of shape (n_classes - 1,)
        The predictor :math:`x'\theta` at which a class and all below it have probability 1/2.
    intercept_ : float
        0.
    coef_, trim_weights_, support_, objective_, stationarity_, alpha_, n_iter_, outliers_, entry_order_
        As in :class:`TrimmedLasso`, and so is ``result_``.

    Notes
    -----
    If the free features separate the classes and ``l2`` is 0, the loss has no minimum. The fit then ends at
    finite coefficients, and a ``ConvergenceWarning`` and ``result_.message`` say so.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import TrimmedOrdinalRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((400, 20))
    >>> y = np.digitize(2 * X[:, 3] - X[:, 7] + rng.logistic(size=400), [-1.0, 1.0])
    >>> model = TrimmedOrdinalRegression(h=2).fit(X, y)
    >>> model.support_, model.thresholds_.round(1)
    (array([3, 7]), array([-1.1,  0.9]))
    >>> model.predict_proba(X[:2]).shape
    (2, 3)
    """

    def __init__(
        self,
        h: int | float | None = None,
        alpha: float | str = "exact",
        l2: float = 0.0,
        classes: Any = None,
        solver: str = "mm",
        effort: str = "medium",
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
        tags.classifier_tags.poor_score = True  # the classes of the checks have no order
        return tags

    def _target(self, y, sample_weight):
        self.classes_, codes = encoded_classes(y)
        order = _order_of(y) if self.classes is None else np.asarray(self.classes).ravel().tolist()
        if order is not None:
            rank = {label: k for k, label in enumerate(order)}
            unknown = [label for label in self.classes_.tolist() if label not in rank]
            if len(rank) < len(order) or unknown:
                what = f"{unknown[0]!r} of y is not among them" if unknown else "some occur twice"
                raise ValueError(f"classes must be all classes of y in their order; {what}")
            place = np.argsort([rank[label] for label in self.classes_.tolist()])
            self.classes_, codes = self.classes_[place], np.argsort(place)[codes]
        weights = check.check_sample_weight(sample_weight, codes.size)
        present = np.unique(codes[weights > 0]).size
        if present < 2:
            raise ValueError(f"y must have at least two ordered classes of positive weight; got {present}")
        return codes.astype(float), sample_weight

    @property
    def _loss(self) -> Ordinal:
        return Ordinal(self.classes_.size)

    def predict_proba(self, X: Any, offset: ArrayLike | None = None) -> np.ndarray:
        """Probabilities of the classes, one column per class in the order of ``classes_``.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        offset : array-like of shape (n_samples,), optional
            As in :meth:`fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
        """
        eta = self._predictor(X, offset)
        return Ordinal(thresholds=self.thresholds_).probabilities(eta).astype(eta.dtype, copy=False)

    def predict(  # type: ignore[override]
        self, X: Any, offset: ArrayLike | None = None
    ) -> np.ndarray:
        """The most probable class of each sample.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        offset : array-like of shape (n_samples,), optional
            As in :meth:`fit`.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        most_probable = self.predict_proba(X, offset).argmax(axis=1)
        return self.classes_[most_probable]


def _order_of(y):
    """The categories of an ordered categorical column, in pandas or polars; None for all others."""
    dtype = getattr(y, "dtype", None)
    categories = getattr(dtype, "categories", None)
    if categories is None or not (getattr(dtype, "ordered", False) or type(dtype).__name__ == "Enum"):
        return None
    return np.asarray(categories).tolist()
