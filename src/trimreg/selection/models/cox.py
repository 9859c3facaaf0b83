"""Cox's model with h, alpha and l2 chosen from the data."""

from __future__ import annotations

from typing import Any

from ...designs.convert import to_host
from ...estimators.models.cox import TrimmedCoxRegressor
from ...estimators.survival import stratified
from ..crossval import SurfaceCV


class TrimmedCoxRegressorCV(SurfaceCV, TrimmedCoxRegressor):
    r"""Cox's proportional hazards model with h, alpha and l2 chosen from the data.

    Folds have equal shares of the events. The score of a fold is minus the mean loss of its test samples:
    their own partial likelihood, the sum over their strata.

    Parameters
    ----------
    hs, alphas, l2s, cv, rule, criterion, scoring
        As in :class:`TrimmedLassoCV`.
    ties : {"efron", "breslow"}, default="efron"
        As in :class:`~trimreg.TrimmedCoxRegressor`.
    effort, standardize, positive, lower, upper, penalty_factor, groups, tol, n_jobs, verbose, random_state
        As in :class:`TrimmedLassoCV`.

    Attributes
    ----------
    h_, alpha_, chosen_alpha_, l2_, selection_l2_, hs_, alphas_, l2s_, score_path_, l2_score_path_
        As in :class:`TrimmedLassoCV`.
    criterion_path_, l2_criterion_path_, coef_path_, path_, best_index_
        As in :class:`TrimmedLassoCV`.
    coef_, support_, entry_order_, event_times_, baseline_hazard_, strata_, result_, ...
        The model with that h and alpha, as in :class:`~trimreg.TrimmedCoxRegressor`.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import TrimmedCoxRegressorCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 15))
    >>> y = rng.exponential(np.exp(X[:, 7] - X[:, 3]))
    >>> TrimmedCoxRegressorCV().fit(X, y, strata=np.repeat(["a", "b"], 100)).support_
    array([3, 7])
    """

    def __init__(
        self, hs="auto", alphas="exact", l2s=None, cv=None, rule="paired", criterion=None, scoring=None,
        ties="efron", effort="medium", standardize=True, positive=False, lower=None, upper=None,
        penalty_factor=None, groups=None, tol=1e-6, n_jobs=None, verbose=0, random_state=None,
    ):  # fmt: skip
        self._store(locals())

    h = "auto"  # a parameter of the estimator without CV; the choice is h_
    fit_intercept = False  # it is part of the baseline hazard

    def fit(  # type: ignore[override]
        self, X: Any, y: Any, sample_weight: Any = None, cv_groups: Any = None, offset: Any = None,
        strata: Any = None,
    ) -> TrimmedCoxRegressorCV:  # fmt: skip
        """Choose h, alpha and l2, and fit the model with them to all samples.

        Parameters
        ----------
        X, y, sample_weight, offset, strata
            As in :meth:`TrimmedCoxRegressor.fit`; a weight of k counts as k repetitions of the sample.
        cv_groups : array-like of shape (n_samples,), optional
            The subject of every row, if a subject has several: its rows go to the same fold.

        Returns
        -------
        self
        """
        y, labels = stratified(to_host(y), strata)
        super().fit(X, y, sample_weight, cv_groups, offset)
        self.strata_ = labels
        return self
