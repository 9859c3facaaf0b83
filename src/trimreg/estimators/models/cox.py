"""Trimmed regression for survival times."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...losses import Cox
from .. import validation as check
from ..survival import concordance_index, times_and_events
from .base import TrimmedEstimator


class TrimmedCoxRegressor(TrimmedEstimator):
    r"""Cox's proportional hazards model with a penalty on all but the h largest coefficients.

    .. math:: \min_\theta\; -\frac1n \log PL(Z\theta) + \alpha \sum_{j > h} |\theta|_{(j)}, \qquad
              \text{hazard}_i(t) = \lambda_0(t)\, e^{x_i'\theta},

    where PL is the partial likelihood (:class:`trimreg.losses.Cox`). There is no intercept: it is part of
    the baseline hazard :math:`\lambda_0`.

    Parameters
    ----------
    h, alpha, l2
        As in :class:`TrimmedLasso`.
    ties : {"efron", "breslow"}, default="efron"
        How the likelihood treats events at the same time.
    solver, effort, standardize, positive, penalty_factor, groups, n_outliers, warm_start, tol, max_iter
        As in :class:`TrimmedLasso`, and so is ``random_state``.

    Attributes
    ----------
    event_times_ : ndarray of shape (n_times,)
        The times of events.
    baseline_hazard_, baseline_cumulative_hazard_ : ndarray of shape (n_times,)
        The hazard of :math:`x'\theta = 0` at these times, by Breslow's estimator, and its cumulative sum.
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
        h: int | float | None = None,
        alpha: float | str = "exact",
        l2: float = 0.0,
        ties: str = "efron",
        solver: str = "mm",
        effort: str = "medium",
        standardize: bool = True,
        positive: bool = False,
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
        tags.target_tags.required = True
        return tags

    def fit(  # type: ignore[override]
        self, X: Any, y: Any, sample_weight: ArrayLike | None = None, offset: ArrayLike | None = None
    ):
        """Fit the model.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples, 2) or (n_samples,), or a structured array
            The columns time and event (1, or 0 for a censored time). A structured array has a field of
            booleans with the event and a field of numbers with the time, as in scikit-survival. A vector
            holds times of events, and minus the time of a sample that is censored, as in XGBoost.
        sample_weight : array-like of shape (n_samples,), optional
        offset : array-like of shape (n_samples,), optional
            A known part of the linear predictor.

        Returns
        -------
        self
        """
        return super().fit(X, y, sample_weight, offset)

    def _target(self, y, sample_weight):
        return times_and_events(y), sample_weight

    @property
    def _loss(self) -> Cox:
        check.check_choice("ties", self.ties, ("efron", "breslow"))
        return Cox(self.ties)

    def _keep(self, task, details) -> None:
        problem = task.problem
        self.intercept_ = 0.0
        eta = details.eta
        self.event_times_, hazard = problem.loss.baseline(eta - eta.max(), problem.y, problem.d)
        # eta is for centered columns; the baseline is for the columns of X
        moved = float(problem.design.offset @ np.asarray(self.coef_, dtype=float))
        with np.errstate(over="ignore", invalid="ignore"):
            self._log_cumulative_hazard = np.log(hazard) - (float(eta.max()) + moved)
            self.baseline_cumulative_hazard_ = np.exp(self._log_cumulative_hazard)
            steps = np.diff(self.baseline_cumulative_hazard_, prepend=0.0)
        self.baseline_hazard_ = np.where(np.isnan(steps), np.inf, steps)  # where it overflows

    def predict(  # type: ignore[override]
        self, X: Any, offset: ArrayLike | None = None
    ) -> np.ndarray:
        """The linear predictors: the logarithm of the hazard relative to that of ``x'theta = 0``.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        offset : array-like of shape (n_samples,), optional
            As in :meth:`fit`.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self._predictor(X, offset)

    def predict_survival_function(
        self, X: Any, times: ArrayLike | None = None, offset: ArrayLike | None = None
    ) -> np.ndarray:
        r"""The probability of surviving beyond time t, :math:`\exp(-\Lambda_0(t)\, e^{x'\theta})`.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        times : array-like of shape (n_times,), optional
            By default ``event_times_``. The hazard after the last event is unknown and taken to be 0.
        offset : array-like of shape (n_samples,), optional
            As in :meth:`fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_times)
        """
        eta = np.asarray(self._predictor(X, offset), dtype=float)
        if times is None:
            times = self.event_times_
        else:
            times = np.atleast_1d(check.check_real("times", times))
            times = check.check_vector("times", times, times.size, "time")
        log_hazard = np.append(-np.inf, self._log_cumulative_hazard)
        at = log_hazard[np.searchsorted(self.event_times_, times, side="right")]
        with np.errstate(over="ignore"):
            return np.exp(-np.exp(eta[:, None] + at))

    def score(
        self, X: Any, y: Any, sample_weight: ArrayLike | None = None, offset: ArrayLike | None = None
    ) -> float:
        """Harrell's concordance index of the predictions.

        Parameters
        ----------
        X, y, sample_weight, offset
            As in :meth:`fit`.

        Returns
        -------
        float
            From 0 to 1; random risks have 0.5.
        """
        eta = self.predict(X, offset)
        y = check.check_target(times_and_events(y), eta.size, matrix=True)
        Cox().check_target(y)
        d = check.check_sample_weight(sample_weight, eta.size)
        return concordance_index(eta, y[:, 0], y[:, 1] > 0, d)
