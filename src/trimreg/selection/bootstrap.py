"""The bootstrap: how much of a fit would be there again in another sample."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.utils.validation import check_is_fitted

from ..designs.convert import stays_in_process, to_host
from ..estimators import validation as check
from ..estimators.summary import Summary
from ..solvers import many_fits
from .resampling import OverAnEstimator, checked_data, coefficients, seeded, weight_name
from .search import parallel

_TRIES = 1000  # draws of samples until every class is among them


class Bootstrap(OverAnEstimator, MetaEstimatorMixin, BaseEstimator):
    r"""Fit an estimator to many resamples: how often a feature is chosen, and how far coefficients spread.

    A replicate draws n of the n samples, with replacement. Sample i is drawn :math:`m_i` times,

    .. math:: (m_1, \dots, m_n) \sim \mathrm{Multinomial}(n;\, 1/n, \dots, 1/n),

    which to a mean over samples is the same as a weight of :math:`m_i`. So no rows are copied, and X may lie
    on disk, on a cluster or on a GPU.

    Parameters
    ----------
    estimator : estimator with ``coef_`` whose ``fit`` takes ``sample_weight``, optional
        Of this library or of scikit-learn, or a pipeline that ends in one and keeps the columns. None is
        :class:`TrimmedLasso`.
    n_replicates : int, default=200
    n_jobs : int, optional
        Number of replicates to fit at once, by joblib: any of its backends will do. The result does not
        depend on it.
    verbose : int, default=0
        1 shows progress on standard error.
    random_state : int, Generator or RandomState, default=0
        Seed of the draws, and of the estimator's own ``random_state`` where that is None.

    Attributes
    ----------
    estimator_ : estimator
        Fitted to all samples.
    coefs_ : ndarray of shape (n_replicates, n_features) or (n_replicates, n_outputs, n_features)
        Coefficients of the replicates; 0 where a feature was not chosen.
    intercepts_ : ndarray of shape (n_replicates,) or (n_replicates, n_outputs)
    frequencies_ : ndarray of shape (n_features,)
        The share of replicates in which a feature has a coefficient that is not 0.
    standard_errors_ : ndarray of shape (n_features,) or (n_outputs, n_features)
        Standard deviations of the coefficients over the replicates.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only if X had string column names.

    Notes
    -----
    A replicate of a classifier in which a class is missing is drawn again. Samples of weight 0 are never
    drawn; each other one is as likely as any, and keeps its weight.

    The intervals hold what the whole procedure does, choice of features included. Where a true coefficient is
    0, or so small that it is chosen only now and then, the bootstrap of a sparse estimator is not consistent
    (Chatterjee and Lahiri, 2010): read ``frequencies_`` there, not the interval.

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

    def __init__(self, estimator=None, n_replicates=200, n_jobs=None, verbose=0, random_state=0):
        self.estimator = estimator
        self.n_replicates = n_replicates
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X, y, sample_weight=None):
        """Fit the estimator to all samples and to every replicate.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Or a matrix that stays on disk, on a cluster or on a GPU; see :meth:`TrimmedLasso.fit`.
        y : array-like of shape (n_samples,) or (n_samples, n_targets)
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        self
        """
        check.check_number("n_replicates", self.n_replicates, 2, integral=True)
        rng = check.check_random_state(self.random_state)
        name = weight_name(self._base())
        with check.all_or_nothing(self), many_fits():
            X, y = checked_data(self, self._base(), X, y)
            weight = None if sample_weight is None else np.asarray(to_host(sample_weight), dtype=float)
            members = np.flatnonzero(check.check_sample_weight(weight, X.shape[0]))
            seeds = rng.integers(2**31, size=self.n_replicates + 1)
            model = seeded(clone(self._base()), seeds[-1])
            given = {} if weight is None else {name: np.broadcast_to(weight, X.shape[:1])}
            model.fit(X, y, **given)
            classes = y if is_classifier(self._base()) else None
            draw = (members, X.shape[0], weight, classes)
            fits = parallel(
                _fit_replicate,
                [(self._base(), X, y, name, draw, seed) for seed in seeds[:-1]],
                n_jobs=self.n_jobs,
                label="bootstrap",
                verbose=self.verbose,
                shared=stays_in_process(X),
            )
            self.estimator_ = model
            self._set(fits, X.shape[1])
        return self

    def _set(self, fits, p):
        """What follows from the coefficients of the replicates."""
        self.coefs_, self.intercepts_ = (np.array(values) for values in zip(*fits, strict=True))
        chosen = (self.coefs_ != 0).reshape(self.n_replicates, -1, p).any(axis=1)
        self.frequencies_ = chosen.mean(axis=0)
        self.standard_errors_ = self.coefs_.std(axis=0, ddof=1)

    def interval(self, confidence=0.95):
        """Percentile intervals of the coefficients.

        Parameters
        ----------
        confidence : float in (0, 1), default=0.95

        Returns
        -------
        low, high : ndarray of shape (n_features,) or (n_outputs, n_features)
            Quantiles over the replicates, a feature that was not chosen counting as 0.
        """
        check_is_fitted(self)
        if not isinstance(confidence, float) or not 0.0 < confidence < 1.0:
            raise ValueError(f"confidence must be a number in (0, 1), such as 0.95; got {confidence!r}")
        tail = (1.0 - confidence) / 2.0
        low, high = np.quantile(self.coefs_, [tail, 1.0 - tail], axis=0)
        return low, high

    def summary(self, confidence=0.95, max_rows=50) -> Summary:
        """A table with a row for every feature that any fit has chosen, the most frequent first.

        Parameters
        ----------
        confidence : float in (0, 1), default=0.95
        max_rows : int or None, default=50
            How many rows are drawn; None draws all.

        Returns
        -------
        Summary
            Prints as text; ``to_html``, ``to_latex``, ``to_frame`` and ``to_dict`` give the rest. The
            coefficient in the fit to all samples, its standard error, the interval, and how often the feature
            is chosen; of several outputs, those of the one with the largest coefficient.
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
            "estimator": type(self.estimator_).__name__,
            "replicates": self.n_replicates,
            "features": self.n_features_in_,
            "chosen on average": float(self.frequencies_.sum()),
        }
        headers = ("coef", "std error", f"{50 * (1 - confidence):.3g} %", f"{50 * (1 + confidence):.3g} %")
        columns = dict(zip(headers, (row[order] for row in rows), strict=True))
        columns["frequency"] = self.frequencies_[order]
        return Summary("Bootstrap", facts, [names[j] for j in order], columns, max_rows=max_rows)


def draw_counts(members, n_samples, rng, classes=None) -> np.ndarray:
    """How often each of the samples is drawn, as many draws as ``members``, with replacement.

    Parameters
    ----------
    members : ndarray of int
        The samples that may be drawn.
    n_samples : int
    rng : numpy.random.Generator
    classes : ndarray of shape (n_samples,), optional
        If given, it is drawn again until every class of the members is there.

    Returns
    -------
    ndarray of int of shape (n_samples,)

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.selection.bootstrap import draw_counts
    >>> draw_counts(np.array([0, 1, 3]), 4, np.random.default_rng(0))
    array([0, 2, 0, 1])
    """
    codes = None if classes is None else np.unique(classes[members], return_inverse=True)[1]
    for _ in range(_TRIES):
        drawn = rng.integers(members.size, size=members.size)
        if codes is None or np.bincount(codes[drawn], minlength=codes.max() + 1).all():
            return np.bincount(members[drawn], minlength=n_samples)
    raise ValueError(
        f"y must have more samples of its rarest class: it was missing from {_TRIES} draws of {members.size}"
    )


def _fit_replicate(estimator, X, y, name, draw, seed):
    """Coefficients and intercept of the fit to one draw of the samples."""
    members, n, weight, classes = draw
    counts = draw_counts(members, n, np.random.default_rng(int(seed)), classes).astype(float)
    model = seeded(clone(estimator), seed)
    model.fit(X, y, **{name: counts if weight is None else counts * weight})
    return coefficients(model, X.shape[1])
