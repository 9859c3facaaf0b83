"""Stability selection: keep the features that are chosen on most halves of the data."""

from __future__ import annotations

import math
import warnings

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted

from ..designs.convert import is_virtual, stays_in_process, to_host
from ..estimators import validation as check
from .errorbounds import ASSUMPTIONS, error_bound, least_count, least_threshold
from .grid import auto_hs, check_hs
from .resampling import OverAnEstimator, checked_data, coefficients, seeded, weight_name
from .search import parallel

#: Parameters that count coefficients; any other is a strength, whose values only the user can know.
COUNTS = ("h", "n_nonzero_coefs")


def complementary_pairs(n_samples, n_pairs, rng, classes=None):
    """Pairs of disjoint random halves of the samples, of ``n_samples // 2`` each.

    With ``classes`` every class is divided as evenly as its size allows.

    Parameters
    ----------
    n_samples, n_pairs : int
    rng : numpy.random.Generator
    classes : ndarray of shape (n_samples,), optional

    Returns
    -------
    ndarray of int of shape (2 * n_pairs, n_samples // 2)
        Sorted indices; rows 2j and 2j + 1 are a pair.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.selection.stability import complementary_pairs
    >>> complementary_pairs(5, 1, np.random.default_rng(0))
    array([[2, 3],
           [0, 4]])
    """
    half = n_samples // 2
    halves = np.empty((n_pairs, 2, half), dtype=int)
    for pair in halves:
        order = rng.permutation(n_samples)[: 2 * half]
        if classes is not None:
            order = order[np.argsort(classes[order], kind="stable")]
        first = rng.integers(2)  # every second sample of the order; a coin says which half begins
        pair[first], pair[1 - first] = order[::2], order[1::2]
    return np.sort(halves, axis=2).reshape(2 * n_pairs, half)


def chosen_features(fitted, n_features):
    """Which features have a coefficient that is not zero, in any row of ``coef_``.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> from trimreg.selection.stability import chosen_features
    >>> chosen_features(SimpleNamespace(coef_=np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])), 3)
    array([False,  True, False])
    """
    return (coefficients(fitted, n_features)[0] != 0).reshape(-1, n_features).any(axis=0)


def _fit_half(estimator, name, values, X, y, fit_params, rows, seed):
    """What is chosen on these rows: an array of bool of shape (len(values), n_features).

    Rows of a far X cannot be had alone: the others have weight 0.
    """
    if is_virtual(X):
        given = fit_params.get("sample_weight")
        weight = np.zeros(X.shape[0])
        weight[rows] = 1.0 if given is None else given[rows]
        fit_params = fit_params | {"sample_weight": weight}
    else:
        X, y = X[rows], y[rows]
        fit_params = {key: value[rows] for key, value in fit_params.items()}
    chosen = np.empty((len(values), X.shape[1]), dtype=bool)
    for k, value in enumerate(values):
        model = seeded(clone(estimator).set_params(**{name: value}), seed)
        chosen[k] = chosen_features(model.fit(X, y, **fit_params), X.shape[1])
    return chosen


class StabilitySelection(OverAnEstimator, SelectorMixin, MetaEstimatorMixin, BaseEstimator):
    r"""Keep the features that an estimator chooses on most halves of the data.

    An estimator is fitted to B random pairs of disjoint halves of the data, for every h of a grid. With
    :math:`\hat\Pi_j(h)` the part of the 2B fits in which feature j has a nonzero coefficient, kept are

    .. math:: \{j : \max_h \hat\Pi_j(h) \ge \tau\},

    and how many of them are there by mistake is bounded: see :func:`trimreg.selection.error_bound`.

    Parameters
    ----------
    estimator : estimator with ``coef_``, optional
        Of this library or of scikit-learn, or a pipeline that ends in one and keeps the columns. A feature
        with several coefficients is chosen if one of them is not 0. None is :class:`TrimmedLasso`; with
        ``effort="low"`` it takes half the time and misses more where features are correlated.
    hs : None, "auto", number or sequence of numbers, default=None
        The values of ``param_name`` to fit with. None is the one size for which the bound without
        assumptions is ``max_false`` (or 1) at ``threshold``, or the largest size of
        :func:`trimreg.selection.auto_hs` for half the samples if that is smaller. ``"auto"`` is all of that
        grid but 0. The more are chosen for any h, the larger is q, and with it the bound.
    param_name : str, default="h"
        The parameter of the estimator that sets how many features it chooses, such as
        ``"trimmedlasso__h"`` in a pipeline, ``"n_nonzero_coefs"`` of orthogonal matching pursuit or
        ``"alpha"`` of the lasso. For one that is no count ``hs`` must be given.
    threshold : float in (1/2, 1], default=0.75
        :math:`\tau`.
    max_false : float, optional
        If given, the smallest threshold is taken for which ``error_bound_`` is at most this. If there is
        none, nothing is kept, with a warning.
    n_pairs : int, default=50
        B.
    assumption : {"r-concave", "unimodal", "none"}, default="r-concave"
        What ``error_bound_`` takes for granted. ``"none"`` holds always; the others are smaller.
    n_jobs : int, optional
        Number of halves to fit at once, by joblib. The result does not depend on it.
    verbose : int, default=0
        1 shows progress on standard error.
    random_state : int, Generator or RandomState, default=0
        Seed of the halves, and of the estimator's own ``random_state`` where that is None.

    Attributes
    ----------
    support_ : ndarray of bool of shape (n_features,)
        Which features are kept.
    scores_ : ndarray of shape (n_features,)
        The largest share of fits that chose the feature, over hs.
    stability_path_ : ndarray of shape (len(hs_), n_features)
        The share for every h.
    hs_ : list
        The values that were fitted with.
    q_ : float
        Average number of features that a half chose for any h.
    threshold_ : float
        The threshold used; ``inf`` if none meets ``max_false``.
    error_bound_ : float
        Bound on the expected number of features kept by mistake.
    estimator_ : estimator
        The estimator that was cloned.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only if X had string column names.

    Notes
    -----
    Halves are stratified for a classifier, and where y has only two values. Samples of weight 0 are left out
    before the halves are drawn. Each other sample is one to draw, whatever its weight.

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
        self,
        estimator=None,
        hs=None,
        param_name="h",
        threshold=0.75,
        max_false=None,
        n_pairs=50,
        assumption="r-concave",
        n_jobs=None,
        verbose=0,
        random_state=0,
    ):
        self.estimator = estimator
        self.hs = hs
        self.param_name = param_name
        self.threshold = threshold
        self.max_false = max_false
        self.n_pairs = n_pairs
        self.assumption = assumption
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X, y, **fit_params):
        """Find out how often each feature is chosen, and which to keep.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Or, with an estimator of this library, a matrix that stays on disk, on a cluster or on a GPU.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
        **fit_params
            Arrays with an entry a sample, passed on to the ``fit`` of the estimator: above all
            ``sample_weight``, which a pipeline hands to its last step.

        Returns
        -------
        self
        """
        self._check_parameters(self._base())
        with check.all_or_nothing(self):
            self._fit(X, y, {name: to_host(value) for name, value in fit_params.items()})
        return self

    def _fit(self, X, y, fit_params):
        """Set every fitted attribute."""
        estimator = self._base()
        rng = check.check_random_state(self.random_state)
        X, y = checked_data(self, estimator, X, y)
        X, y, fit_params, members = self._with_params(estimator, X, y, fit_params)
        n, p = members.size, X.shape[1]
        if n < 4:
            raise ValueError(f"StabilitySelection needs 4 samples or more, to halve them; got n_samples={n}")
        values = self._values(n // 2, p)
        stratify = y.ndim == 1 and (is_classifier(estimator) or np.unique(y[members]).size == 2)
        halves = complementary_pairs(n, self.n_pairs, rng, y[members] if stratify else None)
        seeds = rng.integers(2**31, size=len(halves))
        chosen = np.array(
            parallel(
                _fit_half,
                [
                    (estimator, self.param_name, values, X, y, fit_params, members[rows], seed)
                    for rows, seed in zip(halves, seeds, strict=True)
                ],
                n_jobs=self.n_jobs,
                label="stability selection",
                verbose=self.verbose,
                shared=stays_in_process(X),
            )
        )
        self.estimator_ = estimator
        self.hs_ = values
        self.stability_path_ = chosen.mean(axis=0)
        self.scores_ = self.stability_path_.max(axis=0)
        self.q_ = float(chosen.any(axis=1).sum(axis=1).mean())
        self._decide(chosen.sum(axis=0).max(axis=0))

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

    def _with_params(self, estimator, X, y, fit_params):
        """X, y, the parameters as arrays by the names that the estimator has for them, and who takes part.

        Samples of weight 0 do not. Unlike in a single fit, weights are no repetitions: two copies of a sample
        could end in both halves, which would then not be independent.
        """
        n = X.shape[0]
        arrays = {name: np.asarray(value) for name, value in fit_params.items() if value is not None}
        weight = arrays.pop("sample_weight", None)
        for name, value in arrays.items():
            if value.shape[:1] != (n,):
                raise ValueError(f"{name} must have an entry for each of the {n} samples; got {value.shape}")
        if weight is None:
            return X, y, arrays, np.arange(n)
        kept = np.flatnonzero(check.check_sample_weight(weight, n))
        arrays[weight_name(estimator)] = np.broadcast_to(weight, n)  # as given, for the scale may matter
        return X, y, arrays, kept

    def _values(self, half, p):
        """The values of the parameter to fit with, for that many samples and features."""
        leaf = self.param_name.split("__")[-1]
        automatic = self.hs is None or (isinstance(self.hs, str) and self.hs == "auto")
        if automatic and leaf not in COUNTS:
            raise ValueError(
                f"hs must be given as numbers for param_name={self.param_name!r}; got {self.hs!r}"
            )
        if automatic:
            sizes = auto_hs(half, p)[1:].tolist()
            if self.hs is not None:
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
        """What to keep of features that were chosen that often."""
        n_pairs, p = self.n_pairs, counts.size
        self.threshold_ = float(self.threshold)
        if self.max_false is not None:
            self.threshold_ = least_threshold(self.max_false, self.q_, p, n_pairs, self.assumption)
        if math.isinf(self.threshold_):
            at_best = error_bound(self.q_, p, 1.0, n_pairs, self.assumption)
            warnings.warn(
                f"no threshold bounds the false selections by max_false={self.max_false}: at 1 the bound is "
                f"{at_best:.3g}, for {self.q_:.1f} of {p} features are chosen on average. Nothing is kept; "
                "give smaller hs",
                stacklevel=3,
            )
            self.error_bound_ = 0.0
            self.support_ = np.zeros(p, dtype=bool)
            return
        self.error_bound_ = error_bound(self.q_, p, self.threshold_, n_pairs, self.assumption)
        self.support_ = counts >= least_count(self.threshold_, n_pairs)

    def transform(self, X):
        """X with the columns that are kept.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        array or sparse matrix of shape (n_samples, n_kept)
        """
        return super().transform(
            check.check_near(X, "transform", "take the columns get_support(indices=True) from it")
        )

    def _get_support_mask(self):
        check_is_fitted(self)
        return self.support_
