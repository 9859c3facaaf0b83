"""Stability selection: keep the features that are selected on most random halves of the data."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted

from ..designs.convert import is_virtual, to_host
from ..estimators import validation as check
from ..estimators.survival import strata_and_events
from .errorbounds import ASSUMPTIONS, error_bound, least_count, least_threshold
from .grid import auto_hs, check_hs
from .resampling import OverAnEstimator, coefficients, is_survival, per_sample, seeded, weight_name

#: Parameters that count coefficients. Any other is a penalty strength, whose values the user has to give.
COUNTS = ("h", "n_nonzero_coefs")


def complementary_pairs(
    n_samples: int, n_pairs: int, rng: np.random.Generator, classes: np.ndarray | None = None
) -> np.ndarray:
    """Sorted indices of random halves of the samples; rows 2j and 2j + 1 are a disjoint pair.

    Each half has ``n_samples // 2`` samples. With ``classes``, every class is divided as evenly as possible.
    """
    half = n_samples // 2
    halves = np.empty((n_pairs, 2, half), dtype=int)
    for pair in halves:
        order = rng.permutation(n_samples)[: 2 * half]
        if classes is not None:
            order = order[np.argsort(classes[order], kind="stable")]
        first = rng.integers(2)  # every second sample of the order, beginning with a random half
        pair[first], pair[1 - first] = order[::2], order[1::2]
    return np.sort(halves, axis=2).reshape(2 * n_pairs, half)


def _fit_half(estimator, name, values, X, y, fit_params, rows, seed):
    """The features selected on these rows: bool, of shape (len(values), n_features).

    X on disk, a cluster or a GPU is not cut into rows; the other samples get weight 0.
    """
    if is_virtual(X):
        given = fit_params.get("sample_weight")
        weight = np.zeros(X.shape[0])
        weight[rows] = 1.0 if given is None else given[rows]
        fit_params = fit_params | {"sample_weight": weight}
    else:
        X, y = X[rows], y[rows]
        fit_params = {key: value[rows] for key, value in fit_params.items()}
    selected = []
    for value in values:
        model = seeded(clone(estimator).set_params(**{name: value}), seed)
        coef, _ = coefficients(model.fit(X, y, **fit_params), X.shape[1])
        selected.append(coef.any(axis=0) if coef.ndim == 2 else coef != 0)
    return np.array(selected)


class StabilitySelection(OverAnEstimator, SelectorMixin, MetaEstimatorMixin, BaseEstimator):
    r"""Keep the features that an estimator selects on most random halves of the data.

    An estimator is fitted to B random pairs of disjoint halves of the data, for every h of a grid. With
    :math:`\hat\Pi_j(h)` the fraction of the 2B fits in which feature j has a nonzero coefficient, it keeps

    .. math:: \{j : \max_h \hat\Pi_j(h) \ge \tau\}.

    The expected number of features kept by mistake is bounded, see :func:`trimreg.selection.error_bound`.

    Parameters
    ----------
    estimator : estimator with ``coef_``, optional
        From this library or scikit-learn, or a pipeline that ends in one and keeps the columns. A feature
        with several coefficients is selected if one of them is nonzero. None is :class:`TrimmedLasso`; with
        ``effort="low"`` it takes half the time but misses more among correlated features.
    hs : None, "auto", number or sequence of numbers, default=None
        The values of ``param_name`` to fit with. None is the single size at which the bound without
        assumptions equals ``max_false`` (or 1) at ``threshold``, but at most the largest size of
        :func:`trimreg.selection.auto_hs` for half the samples. ``"auto"`` is that whole grid without 0. The
        more features are selected for any h, the larger q and the bound are.
    param_name : str, default="h"
        The parameter of the estimator that controls how many features it selects, such as
        ``"trimmedlasso__h"`` in a pipeline, ``"n_nonzero_coefs"`` of orthogonal matching pursuit or
        ``"alpha"`` of the lasso. If it is not a count, ``hs`` must be given.
    threshold : float in (1/2, 1], default=0.75
        :math:`\tau`.
    max_false : float, optional
        If given, the smallest threshold with ``error_bound_`` at most this is used instead of ``threshold``.
        If there is none, a warning is issued and nothing is kept.
    n_pairs : int, default=50
        B.
    assumption : {"r-concave", "unimodal", "none"}, default="r-concave"
        The assumption behind ``error_bound_``. ``"none"`` always holds; the others give smaller bounds.
    n_jobs : int, optional
        Number of halves to fit at the same time, by joblib. The result does not depend on it.
    verbose : int, default=0
        1 shows progress on standard error.
    random_state : int, Generator or RandomState, default=0
        Seed of the halves, and of the estimator's own ``random_state`` if that is None.

    Attributes
    ----------
    support_ : ndarray of bool of shape (n_features,)
        The features that are kept.
    scores_ : ndarray of shape (n_features,)
        The largest fraction of fits that selected the feature, over hs.
    stability_path_ : ndarray of shape (n_sizes, n_features)
        That fraction for every h.
    hs_ : list
        The values of the parameter.
    q_ : float
        Average number of features that a half selected for any h.
    threshold_ : float
        The threshold used; ``inf`` if none satisfies ``max_false``.
    error_bound_ : float
        Bound on the expected number of features kept by mistake.
    estimator_ : estimator
        The estimator that was cloned.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only if X had string column names.

    Notes
    -----
    Halves are stratified for classifiers, for a y with two values, and for survival times by stratum and
    event. Rows are taken as independent, so a subject should have one. Samples of weight 0 are left out
    before the halves are drawn. All others are drawn with the same probability, whatever their weight.

    References
    ----------
    Meinshausen and Bühlmann, Stability selection, Journal of the Royal Statistical Society B 72 (2010).
    Shah and Samworth, Variable selection with error control: another look at stability selection, Journal of
    the Royal Statistical Society B 75 (2013).

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.selection import StabilitySelection
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 30))
    >>> y = 2 * X[:, 3] - X[:, 17] + 0.5 * X[:, 5] + rng.standard_normal(100)
    >>> selector = StabilitySelection(hs=4, n_pairs=20).fit(X, y)
    >>> selector.get_support(indices=True)
    array([ 3,  5, 17])
    >>> selector.scores_[[3, 5, 17]]
    array([1.   , 0.875, 1.   ])
    >>> round(selector.error_bound_, 2), selector.transform(X).shape
    (0.21, (100, 3))
    """

    def __init__(
        self, estimator: Any = None, hs: Any = None, param_name: str = "h", threshold: float = 0.75,
        max_false: float | None = None, n_pairs: int = 50, assumption: str = "r-concave",
        n_jobs: int | None = None, verbose: int = 0, random_state: Any = 0,
    ) -> None:  # fmt: skip
        self._store(locals())

    def fit(self, X: Any, y: Any, **fit_params: Any) -> StabilitySelection:
        """Compute how often each feature is selected, and which ones to keep.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Or, with an estimator of this library, a matrix that stays on disk, on a cluster or on a GPU.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
        **fit_params
            Arrays with one entry per sample for the ``fit`` of the estimator, such as ``offset``,
            ``strata``, or ``sample_weight``, which a pipeline passes to its last step.

        Returns
        -------
        self
        """
        self._check_parameters(self._base())
        with check.all_or_nothing(self):
            self._fit(X, y, fit_params)
        return self

    def _fit(self, X, y, fit_params):
        """Set every fitted attribute."""
        estimator = self._base()
        rng = check.check_random_state(self.random_state)
        X, y = self._checked(estimator, X, y)
        fit_params, members = self._arrays(estimator, X.shape[0], fit_params)
        n, p = members.size, X.shape[1]
        if n < 4:
            raise ValueError(f"StabilitySelection needs at least 4 samples to halve; got n_samples={n}")
        values = self._values(n // 2, p)
        classes = None
        if is_survival(estimator):
            strata = [value for name, value in fit_params.items() if name.split("__")[-1] == "strata"]
            classes = strata_and_events(y[members], *(value[members] for value in strata))
        elif y.ndim == 1 and (is_classifier(estimator) or np.unique(y[members]).size == 2):
            classes = y[members]
        halves = complementary_pairs(n, self.n_pairs, rng, classes)
        seeds = rng.integers(2**31, size=len(halves))
        tasks = [
            (estimator, self.param_name, values, X, y, fit_params, members[rows], seed)
            for rows, seed in zip(halves, seeds, strict=True)
        ]
        selected = np.array(self._in_parallel(_fit_half, tasks, "stability selection", X))
        self.estimator_ = estimator
        self.hs_ = values
        self.stability_path_ = selected.mean(axis=0)
        self.scores_ = self.stability_path_.max(axis=0)
        self.q_ = float(selected.any(axis=1).sum(axis=1).mean())
        self._decide(selected.sum(axis=0).max(axis=0))

    def _check_parameters(self, estimator):
        check.check_choice("assumption", self.assumption, ASSUMPTIONS)
        least_count(self.threshold, self.n_pairs)
        if self.max_false is not None:
            check.check_number("max_false", self.max_false, 0.0, strict=True)
        if self.param_name not in estimator.get_params():
            raise ValueError(
                f"param_name must be a parameter of {type(estimator).__name__}, which has "
                f"{', '.join(sorted(estimator.get_params()))}; got {self.param_name!r}"
            )

    def _arrays(self, estimator, n, fit_params):
        """The arguments of ``fit`` under the estimator's names for them, and the samples of positive weight.

        Unlike in a single fit, weights do not count as repetitions: two copies of a sample could fall into
        both halves, which would then not be independent.
        """
        weight = to_host(fit_params.pop("sample_weight", None))
        arrays = per_sample(fit_params, n)
        if weight is None:
            return arrays, np.arange(n)
        members = np.flatnonzero(check.check_sample_weight(weight, n))
        arrays[weight_name(estimator)] = np.broadcast_to(weight, n)  # not normalized: the scale may matter
        return arrays, members

    def _values(self, half, p):
        """The values of the parameter, for halves of that size and p features."""
        leaf = self.param_name.split("__")[-1]
        automatic = self.hs is None or (isinstance(self.hs, str) and self.hs == "auto")
        if automatic and leaf not in COUNTS:
            name = f"param_name={self.param_name!r}"
            raise ValueError(f"hs must be given as numbers for {name}; got {self.hs!r}")
        if automatic:
            sizes = auto_hs(half, p)[1:].tolist()
            if self.hs == "auto":
                return sizes
            allowed = 1.0 if self.max_false is None else self.max_false
            t = least_count(self.threshold, self.n_pairs) / self.n_pairs - 1
            return [min(max(int(math.sqrt(allowed * t * p)), 1), sizes[-1])]
        if leaf in COUNTS:
            return check_hs(self.hs, half, p).tolist()
        values = list(self.hs) if np.ndim(self.hs) else [self.hs]
        if not values or isinstance(self.hs, str):
            raise ValueError(f"hs must be a list of values of {self.param_name!r}; got {self.hs!r}")
        return values

    def _decide(self, counts):
        """Set the threshold and the features to keep, from how often each was selected."""
        n_pairs, p = self.n_pairs, counts.size
        self.threshold_ = float(self.threshold)
        if self.max_false is not None:
            self.threshold_ = least_threshold(self.max_false, self.q_, p, n_pairs, self.assumption)
        if math.isinf(self.threshold_):
            at_best = error_bound(self.q_, p, 1.0, n_pairs, self.assumption)
            warnings.warn(
                f"no threshold bounds the false selections by max_false={self.max_false}: at threshold 1 the "
                f"bound is {at_best:.3g}, because {self.q_:.1f} of {p} features are selected on average. "
                "Nothing is kept; use smaller hs",
                stacklevel=3,
            )
            self.error_bound_, self.support_ = 0.0, np.zeros(p, dtype=bool)
            return
        self.error_bound_ = error_bound(self.q_, p, self.threshold_, n_pairs, self.assumption)
        self.support_ = counts >= least_count(self.threshold_, n_pairs)

    def transform(self, X: Any) -> Any:
        """X with only the kept columns.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        array or sparse matrix of shape (n_samples, n_kept)
        """
        X = check.check_near(X, "transform", "take the columns get_support(indices=True) from it")
        return super().transform(X)

    def _get_support_mask(self):
        check_is_fitted(self)
        return self.support_
