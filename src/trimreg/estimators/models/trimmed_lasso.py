"""The trimmed lasso."""

from __future__ import annotations

from .base import Regressor, TrimmedEstimator


class TrimmedLasso(Regressor, TrimmedEstimator):
    r"""Least squares in which all but the h largest coefficients are penalized.

    .. math:: \min_{\theta, b}\; \frac{1}{2n} \|y - Z\theta - b\|^2 + \alpha \sum_{j > h} |\theta|_{(j)}

    where Z is X, its columns centred and (with ``standardize``) divided by their deviations, and
    :math:`|\theta|_{(1)} \ge |\theta|_{(2)} \ge \dots` are the sizes of the coefficients in falling order.

    Parameters
    ----------
    h : int, float in (0, 1) or None, default=None
        How many coefficients (or which fraction of the features) carry no penalty. None is a tenth of the
        features, at least one.
    alpha : float or "exact", default="exact"
        ``"exact"`` is just over the exact-penalty threshold, so that **at most h coefficients are nonzero**:
        best-subset selection of size h with nothing else to tune. A number gives the soft version: h
        coefficients free of shrinkage, and some more that are shrunk.
    solver : {"mm", "bcd", "dc", "prox"}, default="mm"
        See :func:`trimreg.solve`. All but the default are there for comparison: at ``alpha="exact"`` ``"dc"``
        does not leave its start, 0, and ``"bcd"`` not always.
    effort : {"low", "medium", "high"}, default="medium"
        How hard ``"mm"`` looks for a good local minimum; other solvers ignore it.
    fit_intercept, standardize : bool, default=True
    positive : bool, default=False
        Whether to require coefficients that are not negative.
    penalty_factor : array-like of shape (n_features,), optional
        Factors of the penalty; a feature with 0 is never penalized and not counted in h, one with
        ``inf`` is excluded.
    groups : array-like of labels of shape (n_features,) or list of lists of int, optional
        Features that are trimmed together: a label for every feature, or lists of their indices. Then h
        counts groups, and ``penalty_factor`` has an entry a group (by default the root of its size).
    n_outliers : int, or float in (0, 1), default=0
        How many samples (or which fraction of them) to leave out: those of largest loss at the solution.
    warm_start : bool, default=False
        Whether to start from the coefficients of the last fit.
    tol : float, default=1e-6
        Largest violation of an optimality condition, relative to the largest gradient at 0.
    max_iter : int or None, default=None
        Steps of the solver; None is the solver's own default.
    random_state : int, Generator or RandomState, optional
        Seed of the random kicks; None is the seed 0, so that fits repeat.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    trim_weights_ : ndarray of shape (n_features,) or (n_groups,)
        The weights w: 0 for a free coefficient, 1 for a penalized one.
    support_ : ndarray of int
        Indices of the nonzero coefficients.
    objective_ : float
    stationarity_ : float
        The paper's T at the solution (:func:`trimreg.diagnostics.stationarity`); 0 is stationary.
    alpha_ : float
        The alpha used.
    n_iter_ : int
    outliers_ : ndarray of int
        The samples that were left out; none unless ``n_outliers`` says so.
    entry_order_ : ndarray of int of shape (n_features,)
        The step at which forward selection takes the feature (or its group), from 1; 0 for a feature that is
        never penalized, -1 for one that is not in the model. See :mod:`trimreg.estimators.order`.
    feature_deviation_ : ndarray of shape (n_features,)
        Deviations of the columns (root mean squares where there is no intercept).
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only if X had string column names.
    result_ : SolverResult
        All of the above with the history of the solver and, in ``swap_optimal``, whether no exchange of one
        free coefficient for another lowers the objective.

    Notes
    -----
    ``"mm"`` stops when every optimality condition of the weighted l1 problem whose weights are those of its
    own solution holds within ``tol``. With ``alpha="exact"`` it also scores every single swap exactly, and
    goes on until none lowers the objective.

    References
    ----------
    Yun, Zheng, Yang, Lozano and Aravkin, M-estimation with the trimmed l1 penalty, equation (4); the
    paper's loss is ``1/n ||.||^2``, so its lambda is twice this alpha.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import TrimmedLasso
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 30))
    >>> y = 2 * X[:, 3] - X[:, 17] + 0.5 * X[:, 5] + 0.1 * rng.standard_normal(100)
    >>> model = TrimmedLasso(h=3).fit(X, y)
    >>> model.support_
    array([ 3,  5, 17])
    >>> model.coef_[model.support_].round(1)
    array([ 2. ,  0.5, -1. ])
    >>> model.result_.swap_optimal, model.stationarity_ < 1e-10
    (True, True)
    """

    _loss = "quadratic"
