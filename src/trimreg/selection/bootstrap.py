"""The bootstrap: how stable the selected features and their coefficients are."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.utils.validation import check_is_fitted

from ..estimators import validation as check
from ..estimators.summary import Summary
from ..solvers import many_fits
from .resampling import OverAnEstimator, coefficients, per_sample, seeded, weight_name

_TRIES = 1000  # draws of a replicate until it has every class


class Bootstrap(OverAnEstimator, MetaEstimatorMixin, BaseEstimator):
    r"""Fit an estimator to many resamples, to see how often features are selected and how coefficients vary.

    A replicate draws n of the n samples with replacement. Sample i is drawn :math:`m_i` times,

    .. math:: (m_1, \dots, m_n) \sim \mathrm{Multinomial}(n;\, 1/n, \dots, 1/n),

    which a mean over samples treats like a weight of :math:`m_i`. So no rows are copied, and X may be on
    disk, on a cluster or on a GPU.

    Parameters
    ----------
    estimator : estimator with ``coef_`` whose ``fit`` takes ``sample_weight``, optional
        From this library or scikit-learn, or a pipeline that ends in one and keeps the columns. None is
        :class:`TrimmedLasso`.
    n_replicates : int, default=200
    n_jobs : int, optional
        Number of replicates to fit at the same time, with any joblib backend. The result does not depend on
        it.
    verbose : int, default=0
        1 shows progress on standard error.
    random_state : int, Generator or RandomState, default=0
        Seed of the draws, and of the estimator's own ``random_state`` if that is None.

    Attributes
    ----------
    estimator_ : estimator
        Fitted to all samples.
    coefs_ : ndarray of shape (n_replicates, n_features) or (n_replicates, n_outputs, n_features)
        Coefficients of the replicates; 0 if a feature was not selected.
    intercepts_ : ndarray of shape (n_replicates,) or (n_replicates, n_outputs)
    frequencies_ : ndarray of shape (n_features,)
        The fraction of replicates in which a feature has a nonzero coefficient.
    standard_errors_ : ndarray of shape (n_features,) or (n_outputs, n_features)
        Standard deviations of the coefficients over the replicates.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only if X had string column names.

    Notes
    -----
    A replicate of a classifier that lacks a class is drawn again. Samples of weight 0 are never drawn; all
    others are equally likely and keep their weights.

    The intervals account for the whole procedure, including the selection of features. If a true coefficient
    is 0, or so small that it is selected only sometimes, the bootstrap of a sparse estimator is not
    consistent (Chatterjee and Lahiri, 2010). Use ``frequencies_`` for such features, not the interval.

    References
    ----------
    Efron, B. (1979). Bootstrap methods: another look at the jackknife. Annals of Statistics 7(1), 1-26.

    Chatterjee, A. and Lahiri, S. N. (2010). Asymptotic properties of the residual bootstrap for lasso
    estimators. Proceedings of the American Mathematical Society 138(12), 4497-4509.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import Bootstrap, TrimmedLasso
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 30))
    >>> y = 2 * X[:, 3] - X[:, 17] + rng.standard_normal(100)
    >>> boot = Bootstrap(TrimmedLasso(h=3), n_replicates=50).fit(X, y)
    >>> boot.frequencies_[[3, 17]], boot.coefs_.shape
    (array([1., 1.]), (50, 30))
    >>> low, high = boot.interval(0.9)
    >>> bool(low[3] < 2 < high[3]), bool(low[17] < -1 < high[17])
    (True, True)
    """

    def __init__(
        self, estimator: Any = None, n_replicates: int = 200, n_jobs: int | None = None, verbose: int = 0,
        random_state: Any = 0,
    ) -> None:  # fmt: skip
        self._store(locals())

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **fit_params: Any) -> Bootstrap:
        """Fit the estimator to all samples and to every replicate.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Or a matrix that stays on disk, on a cluster or on a GPU; see :meth:`TrimmedLasso.fit`.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
        sample_weight : array-like of shape (n_samples,), optional
        **fit_params
            Further arrays with one entry per sample for the ``fit`` of the estimator, such as ``offset``.

        Returns
        -------
        self
        """
        check.check_number("n_replicates", self.n_replicates, 2, integral=True)
        rng = check.check_random_state(self.random_state)
        name = weight_name(self._base())
        with check.all_or_nothing(self), many_fits():
            X, y = self._checked(self._base(), X, y)
            weight = sample_weight
            if weight is not None:
                weight = np.asarray(check.check_real("sample_weight", weight), dtype=float)
            members = np.flatnonzero(check.check_sample_weight(weight, X.shape[0]))
            seeds = rng.integers(2**31, size=self.n_replicates + 1)
            model = seeded(clone(self._base()), seeds[-1])
            more = per_sample(fit_params, X.shape[0])
            given = {} if weight is None else {name: np.broadcast_to(weight, X.shape[:1])}
            model.fit(X, y, **given, **more)
            classes = y if is_classifier(self._base()) else None
            draw = (members, X.shape[0], weight, classes)
            tasks = [(self._base(), X, y, name, more, draw, seed) for seed in seeds[:-1]]
            fits = self._in_parallel(_fit_replicate, tasks, "bootstrap", X)
            self.estimator_ = model
            self.coefs_, self.intercepts_ = (np.array(values) for values in zip(*fits, strict=True))
            selected = (self.coefs_ != 0).reshape(self.n_replicates, -1, X.shape[1]).any(axis=1)
            self.frequencies_ = selected.mean(axis=0)
            unit = np.abs(self.coefs_).max(axis=0)  # so that squares do not overflow
            unit = np.where(unit > 0, unit, 1.0)
            self.standard_errors_ = unit * (self.coefs_ / unit).std(axis=0, ddof=1)
        return self

    def interval(self, confidence: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Percentile intervals of the coefficients.

        Parameters
        ----------
        confidence : float in (0, 1), default=0.95

        Returns
        -------
        low, high : ndarray of shape (n_features,) or (n_outputs, n_features)
            Quantiles over the replicates; a feature that was not selected counts as 0.
        """
        check_is_fitted(self)
        if not isinstance(confidence, float) or not 0.0 < confidence < 1.0:
            raise ValueError(f"confidence must be a number in (0, 1), such as 0.95; got {confidence!r}")
        tail = (1.0 - confidence) / 2.0
        low, high = np.quantile(self.coefs_, [tail, 1.0 - tail], axis=0)
        return low, high

    def summary(self, confidence: float = 0.95, max_rows: int | None = 50) -> Summary:
        """A table with one row per feature that any fit selected, the most frequent first.

        Parameters
        ----------
        confidence : float in (0, 1), default=0.95
        max_rows : int or None, default=50
            The number of rows shown; None shows all.

        Returns
        -------
        Summary
            Prints as text; ``to_html``, ``to_latex``, ``to_frame`` and ``to_dict`` give other formats. The
            columns are the coefficient in the fit to all samples, its standard error, the interval, and how
            often the feature is selected. With several outputs, the output with the largest coefficient is
            shown.
        """
        low, high = self.interval(confidence)
        coef = coefficients(self.estimator_, self.n_features_in_)[0]
        rows = [coef, self.standard_errors_, low, high]
        if coef.ndim == 2:
            place = np.argmax(np.abs(coef) + np.finfo(float).tiny * self.standard_errors_, axis=0)
            rows = [row[place, np.arange(place.size)] for row in rows]
        chosen = (self.frequencies_ > 0) | (rows[0] != 0)
        order = np.lexsort((np.arange(chosen.size), -np.abs(rows[0]), -self.frequencies_))
        order = order[chosen[order]]
        names = getattr(self, "feature_names_in_", [f"x{j}" for j in range(self.n_features_in_)])
        facts = {
            "estimator": type(self.estimator_).__name__, "replicates": self.n_replicates,
            "features": self.n_features_in_, "chosen on average": float(self.frequencies_.sum()),
        }  # fmt: skip
        headers = ("coef", "std error", f"{50 * (1 - confidence):.3g} %", f"{50 * (1 + confidence):.3g} %")
        columns = dict(zip(headers, (row[order] for row in rows), strict=True))
        columns["frequency"] = self.frequencies_[order]
        return Summary("Bootstrap", facts, [names[j] for j in order], columns, max_rows=max_rows)


def draw_counts(
    members: np.ndarray, n_samples: int, rng: np.random.Generator, classes: np.ndarray | None = None
) -> np.ndarray:
    """How often each sample occurs in ``len(members)`` draws from ``members`` with replacement.

    With ``classes``, the draw is repeated until every class of the members is in it.
    """
    codes = None if classes is None else np.unique(classes[members], return_inverse=True)[1]
    for _ in range(_TRIES):
        drawn = rng.integers(members.size, size=members.size)
        if codes is None or np.bincount(codes[drawn], minlength=codes.max() + 1).all():
            return np.bincount(members[drawn], minlength=n_samples)
    raise ValueError(
        f"y must have more samples of its rarest class; it was missing from {_TRIES} draws of {members.size}"
    )


def _fit_replicate(estimator, X, y, name, more, draw, seed):
    """Coefficients and intercept of the fit to one draw of the samples."""
    members, n, weight, classes = draw
    counts = draw_counts(members, n, np.random.default_rng(int(seed)), classes).astype(float)
    model = seeded(clone(estimator), seed)
    model.fit(X, y, **{name: counts if weight is None else counts * weight}, **more)
    return coefficients(model, X.shape[1])
