"""Trimmed regression for survival times."""

from __future__ import annotations

import numpy as np

from ...losses import Cox
from .. import validation as check
from ..survival import concordance_index, times_and_events
from .base import TrimmedEstimator


class TrimmedCoxRegressor(TrimmedEstimator):
    r"""Cox's proportional hazards model in which all but the h largest coefficients are penalized.

    .. math:: \min_\theta\; -\frac1n \log PL(Z\theta) + \alpha \sum_{j > h} |\theta|_{(j)}, \qquad
              \text{hazard}_i(t) = \lambda_0(t)\, e^{x_i'\theta},

    where PL is the partial likelihood (:class:`trimreg.losses.Cox`). There is no intercept: the hazard
    :math:`\lambda_0` stands for it.

    Parameters
    ----------
    h, alpha
        As in :class:`TrimmedLasso`.
    ties : {"efron", "breslow"}, default="efron"
        What the likelihood is where several events have the same time.
    solver, effort, standardize, positive, penalty_factor, groups, n_outliers, warm_start, tol, max_iter
        As in :class:`TrimmedLasso`, and so is ``random_state``.

    Attributes
    ----------
    event_times_ : ndarray of shape (n_times,)
        The times of events.
    baseline_hazard_, baseline_cumulative_hazard_ : ndarray of shape (n_times,)
        The hazard of :math:`x'\theta = 0` there, by Breslow's estimator, and its sum up to there.
    intercept_ : float
        0.
    coef_, trim_weights_, support_, objective_, stationarity_, alpha_, n_iter_, outliers_, entry_order_
        As in :class:`TrimmedLasso`, and so is ``result_``.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import TrimmedCoxRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 20))
    >>> time, censored = rng.exponential(np.exp(X[:, 7] - X[:, 3])), rng.exponential(3.0, 200)
    >>> y = np.column_stack([np.minimum(time, censored), time <= censored])
    >>> model = TrimmedCoxRegressor(h=2).fit(X, y)
    >>> model.support_, model.coef_[model.support_].round(1)
    (array([3, 7]), array([ 1.2, -1.1]))
    >>> model.predict_survival_function(X[:2], times=[0.5, 1.0]).shape
    (2, 2)
    """

    def __init__(
        self,
        h=None,
        alpha="exact",
        ties="efron",
        solver="mm",
        effort="medium",
        standardize=True,
        positive=False,
        penalty_factor=None,
        groups=None,
        n_outliers=0,
        warm_start=False,
        tol=1e-6,
        max_iter=None,
        random_state=None,
    ):
        self._store(locals())

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def fit(self, X, y, sample_weight=None):
        """Fit the model.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : structured array of shape (n_samples,), or array-like of shape (n_samples, 2)
            With a field of booleans, the event, and a field of numbers, the time (the convention of
            scikit-survival); or with the columns time and event (1, or 0 for a censored time).
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        self
        """
        return super().fit(X, y, sample_weight)

    def _target(self, y, sample_weight):
        return times_and_events(y), sample_weight

    @property
    def _loss(self):
        check.check_choice("ties", self.ties, ("efron", "breslow"))
        return Cox(self.ties)

    def _keep(self, task, details):
        problem = task.problem
        self.intercept_ = 0.0
        eta = details.eta
        self.event_times_, hazard = problem.loss.baseline(eta - eta.max(), problem.y, problem.d)
        # eta is of centred columns: what centring took is given back
        moved = float(problem.design.offset @ np.asarray(self.coef_, dtype=float))
        with np.errstate(over="ignore", invalid="ignore"):
            self._log_cumulative_hazard = np.log(hazard) - (float(eta.max()) + moved)
            self.baseline_cumulative_hazard_ = np.exp(self._log_cumulative_hazard)
            steps = np.diff(self.baseline_cumulative_hazard_, prepend=0.0)
        self.baseline_hazard_ = np.where(np.isnan(steps), np.inf, steps)  # beyond what is a number

    def predict(self, X):
        """The linear predictor, the logarithm of the hazard relative to that of ``x'theta = 0``.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self._predictor(X)

    def predict_survival_function(self, X, times=None):
        r"""The probability to survive time t, :math:`\exp(-\Lambda_0(t)\, e^{x'\theta})`.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        times : array-like of shape (n_times,), optional
            By default ``event_times_``. The hazard beyond the last event is not known and taken for 0.

        Returns
        -------
        ndarray of shape (n_samples, n_times)
        """
        eta = np.asarray(self._predictor(X), dtype=float)
        if times is None:
            times = self.event_times_
        else:
            times = np.atleast_1d(check.check_real("times", times))
            times = check.check_vector("times", times, times.size, "time")
        log_hazard = np.append(-np.inf, self._log_cumulative_hazard)
        at = log_hazard[np.searchsorted(self.event_times_, times, side="right")]
        with np.errstate(over="ignore"):
            return np.exp(-np.exp(eta[:, None] + at))

    def score(self, X, y, sample_weight=None):
        """Harrell's concordance index of the predictions; see :func:`concordance_index`.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : structured array of shape (n_samples,), or array-like of shape (n_samples, 2)
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        float
        """
        eta = self.predict(X)
        y = check.check_target(times_and_events(y), eta.size, matrix=True)
        Cox().check_target(y)
        d = check.check_sample_weight(sample_weight, eta.size)
        return concordance_index(eta, y[:, 0], y[:, 1] > 0, d)
