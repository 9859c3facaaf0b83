"""Trimmed regression for survival times."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from ...designs.convert import to_host
from ...losses import Cox
from .. import validation as check
from ..survival import concordance, curves, stratified, stratum_codes, times_and_events
from .base import TrimmedEstimator


class TrimmedCoxRegressor(TrimmedEstimator):
    r"""Cox's proportional hazards model with a penalty on all but the h largest coefficients.

    .. math:: \min_\theta\; -\frac1n \log PL(Z\theta) + \alpha \sum_{j > h} |\theta|_{(j)}, \qquad
              \text{hazard}_i(t) = \lambda_0(t)\, e^{x_i'\theta},

    where PL is the partial likelihood (:class:`trimreg.losses.Cox`). There is no intercept: it is part of
    the baseline hazard :math:`\lambda_0`. Samples may enter late, a subject may have several rows, one for
    each stretch of time with the same features, and every stratum may have a baseline hazard of its own.

    Parameters
    ----------
    h, alpha, l2
        As in :class:`TrimmedLasso`.
    ties : {"efron", "breslow"}, default="efron"
        How the likelihood treats events at the same time.
    solver, effort, standardize, positive, lower, upper, penalty_factor, groups, n_outliers, warm_start
        As in :class:`TrimmedLasso`.
    tol, max_iter, random_state
        As in :class:`TrimmedLasso`.

    Attributes
    ----------
    event_times_ : ndarray of shape (n_times,), or dict of such
        The times of events; with strata, those of each stratum by its label.
    baseline_hazard_, baseline_cumulative_hazard_ : ndarray of shape (n_times,), or dict of such
        The hazard of :math:`x'\theta = 0` at these times, and its cumulative sum. It is Breslow's estimator
        with both kinds of ties, as in lifelines.
    strata_ : ndarray of shape (n_strata,) or None
        The labels of the strata, sorted.
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
        tags.target_tags.required = True
        return tags

    def fit(  # type: ignore[override]
        self, X: Any, y: Any, sample_weight: ArrayLike | None = None, offset: ArrayLike | None = None,
        strata: ArrayLike | None = None,
    ):  # fmt: skip
        """Fit the model.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples, 2), (n_samples, 3) or (n_samples,), or a structured array
            The columns time and event (1, or 0 for a censored time). Or start, stop and event, if a sample is
            at risk from a later start on (left truncation), in ``(start, stop]``. Then a subject whose
            features change has several rows that follow one another, and all but the last are censored. A
            structured array has a field of booleans with the event and one or two fields of numbers with the
            times, as in scikit-survival. A vector holds times of events, and minus the time of a sample that
            is censored, as in XGBoost. A fourth column, after start, stop and event, is the number of the
            stratum; this form is for classes whose ``fit`` does not take ``strata``.
        sample_weight : array-like of shape (n_samples,), optional
        offset : array-like of shape (n_samples,), optional
            A known part of the linear predictor.
        strata : array-like of shape (n_samples,), optional
            Labels, numbers or strings. Each stratum has its own baseline hazard and its own sets at risk; the
            coefficients are the same. Each needs an event.

        Returns
        -------
        self
        """
        y, labels = stratified(to_host(y), strata)
        super().fit(X, y, sample_weight, offset)
        self.strata_ = labels
        return self

    def problem(  # type: ignore[override]
        self, X: Any, y: Any, sample_weight: Any = None, offset: Any = None, strata: Any = None
    ) -> dict[str, Any]:
        """The problem that this fit solved, with its solution, as arguments of :mod:`trimreg.diagnostics`.

        Parameters
        ----------
        X, y, sample_weight, offset, strata
            The data that the model was fitted to.
        """
        return super().problem(X, stratified(to_host(y), strata)[0], sample_weight, offset)

    def _target(self, y, sample_weight):
        return times_and_events(y), sample_weight

    @property
    def _loss(self) -> Cox:
        check.check_choice("ties", self.ties, ("efron", "breslow"))
        return Cox(self.ties)

    def _keep(self, task, details) -> None:
        problem = task.problem
        self.intercept_ = 0.0
        strata, times, log_hazard = problem.loss.baseline(details.eta, problem.y, problem.d)
        # eta is for centered columns; the baseline is for the columns of X
        log_hazard -= float(task.features.offset @ np.asarray(self.coef_, dtype=float))
        ends: Any = [] if strata is None else np.flatnonzero(np.diff(strata)) + 1
        codes = [None] if strata is None else [int(code) for code in strata[[0, *ends]]]
        parts = zip(np.split(times, ends), np.split(log_hazard, ends), strict=True)
        parts = [(at, np.logaddexp.accumulate(logs)) for at, logs in parts]
        self._baseline = dict(zip(codes, parts, strict=True))

    def _by_stratum(self, value):
        """The value of each stratum's event times and log cumulative hazard, by label; one without strata."""
        check_is_fitted(self, "_baseline")
        if self.strata_ is None:
            return value(*self._baseline[None])
        nothing = np.empty(0), np.empty(0)  # all events of the stratum have weight 0
        labels = enumerate(self.strata_.tolist())
        return {label: value(*self._baseline.get(code, nothing)) for code, label in labels}

    @property
    def event_times_(self):
        return self._by_stratum(lambda at, logs: at)

    @property
    def baseline_cumulative_hazard_(self):
        with np.errstate(over="ignore"):
            return self._by_stratum(lambda at, logs: np.exp(logs))

    @property
    def baseline_hazard_(self):
        def steps(at, logs):
            with np.errstate(invalid="ignore"):
                jumps = np.diff(np.exp(logs), prepend=0.0)
            return np.where(np.isnan(jumps), np.inf, jumps)  # where it overflows

        with np.errstate(over="ignore"):
            return self._by_stratum(steps)

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

    def predict_cumulative_hazard_function(
        self, X: Any, times: ArrayLike | None = None, strata: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> np.ndarray:  # fmt: skip
        r"""The cumulative hazard until time t, :math:`\Lambda_0(t)\, e^{x'\theta}`.

        Parameters
        ----------
        X, times, strata, offset
            As in :meth:`predict_survival_function`.

        Returns
        -------
        ndarray of shape (n_samples, n_times)
        """
        eta = np.asarray(self._predictor(X, offset), dtype=float)
        codes = None
        if self.strata_ is not None:
            codes = stratum_codes(strata, self.strata_, eta.size)
        elif strata is not None:
            raise ValueError("strata must be None: the fit had none")
        return curves(self._baseline, codes, eta, times)

    def predict_survival_function(
        self, X: Any, times: ArrayLike | None = None, strata: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> np.ndarray:  # fmt: skip
        r"""The probability of surviving beyond time t, :math:`\exp(-\Lambda_0(t)\, e^{x'\theta})`.

        The features are taken to stay the same. With late starts it is the probability from the first time
        on at which somebody is at risk.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        times : array-like of shape (n_times,), optional
            By default all times of events, sorted: ``event_times_`` without strata. Curves are steps between
            them. The hazard after the last event of a stratum is unknown and taken to be 0.
        strata : array-like of shape (n_samples,), optional
            If the fit had strata: the stratum of every sample, one of ``strata_``.
        offset : array-like of shape (n_samples,), optional
            As in :meth:`fit`.

        Returns
        -------
        ndarray of shape (n_samples, n_times)
            One row per sample, as scikit-survival returns with ``return_array=True``; lifelines has the
            transpose.
        """
        return np.exp(-self.predict_cumulative_hazard_function(X, times, strata, offset))

    def score(  # type: ignore[override]
        self, X: Any, y: Any, sample_weight: ArrayLike | None = None, offset: ArrayLike | None = None,
        strata: ArrayLike | None = None,
    ) -> float:  # fmt: skip
        """Harrell's concordance index of the predictions, :func:`trimreg.concordance`.

        Parameters
        ----------
        X, y, sample_weight, offset, strata
            As in :meth:`fit`.

        Returns
        -------
        float
            From 0 to 1; random risks have 0.5.
        """
        eta = self.predict(X, offset)
        y = check.check_target(times_and_events(to_host(y)), eta.size, matrix=True)
        return concordance(y, eta, to_host(sample_weight), strata)
