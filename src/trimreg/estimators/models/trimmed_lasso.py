"""The trimmed lasso."""

from __future__ import annotations

from .base import Regressor, TrimmedEstimator


class TrimmedLasso(Regressor, TrimmedEstimator):
    r"""Least squares with a penalty on all but the h largest coefficients.

    .. math:: \min_{\theta, b}\; \frac{1}{2n} \|y - Z\theta - b\|^2 + \frac{l_2}{2} \|\theta\|^2
              + \alpha \sum_{j > h} |\theta|_{(j)}

    where Z is X with columns centered and (with ``standardize``) divided by their deviations, and
    :math:`|\theta|_{(1)} \ge |\theta|_{(2)} \ge \dots` are the absolute coefficients in decreasing order.

    Parameters
    ----------
    h : int, float in (0, 1) or None, default=None
        The number of coefficients (or the fraction of the features) without a penalty. None is a tenth of the
        features, at least one.
    alpha : float or "exact", default="exact"
        ``"exact"`` is just over the exact-penalty threshold, so that **at most h coefficients are nonzero**:
        best-subset selection of size h with nothing else to tune. A number gives the soft version: h
        coefficients without shrinkage, and some others that are shrunk.
    l2 : float, default=0.0
        A ridge term on all coefficients, in the same scale as alpha (with ``penalty_factor`` f,
        :math:`\frac{l_2}{2} \sum_j f_j \theta_j^2`). The kept coefficients are then shrunk a little, which
        predicts better where the signal is weak or h is not small.
    solver : str, default="mm"
        See :func:`trimreg.solve`. The other solvers are for comparison: with ``alpha="exact"``, ``"dc"``
        never leaves its start at 0, and ``"bcd"`` not always.
    effort : {"low", "medium", "high"}, default="medium"
        How hard ``"mm"`` searches for a good local minimum; other solvers ignore it.
    fit_intercept, standardize : bool, default=True
    positive : bool, default=False
        Whether to allow nonnegative coefficients only: ``lower=0``.
    lower, upper : float, array-like of shape (n_features,) or dict, optional
        Bounds of the coefficients, in the units of X: one number for all, one per feature, or a dict by the
        names of some columns of a data frame; ``-inf`` and ``inf`` are none. A coefficient that is penalized
        may be trimmed to 0, so 0 must be within its bounds; one with factor 0 may have any. Not for groups.
        The intercept is never bounded.
    penalty_factor : array-like of shape (n_features,), optional
        Factors of the penalty. A feature with factor 0 is never penalized and not counted in h; one with
        ``inf`` is excluded.
    groups : array-like of labels of shape (n_features,) or list of lists of int, optional
        Features that are trimmed together: one label per feature, or lists of their indices. Then h counts
        groups, and ``penalty_factor`` has one entry per group (by default the square root of its size). Lists
        may overlap, as in :class:`TrimmedGroupLasso`.
    n_outliers : int, or float in (0, 1), default=0
        The number (or fraction) of samples to leave out: those with the largest loss at the solution.
    warm_start : bool, default=False
        Whether to start from the coefficients of the last fit.
    tol : float, default=1e-6
        Largest violation of an optimality condition, relative to the largest gradient at 0.
    max_iter : int or None, default=None
        Largest number of steps; None is the solver's own default.
    random_state : int, Generator or RandomState, optional
        Seed of the random kicks; None is the seed 0, so that fits can be repeated.

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
        The number that was used for alpha.
    h_ : int
        The number of coefficients (or groups) without a penalty.
    n_iter_ : int
    outliers_ : ndarray of int
        The samples that were left out; empty unless ``n_outliers`` was given.
    bounds_ : tuple of two ndarrays of shape (n_features,), or None
        The lower and the upper bounds, in the units of X.
    entry_order_ : ndarray of int of shape (n_features,)
        The step, from 1, at which forward selection takes the feature (or its group); 0 for a feature that is
        never penalized, -1 for one that is not in the model. See :mod:`trimreg.estimators.order`.
    feature_deviation_ : ndarray of shape (n_features,)
        Deviations of the columns (root mean squares without an intercept).
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only if X had string column names.
    result_ : SolverResult
        All of the above, the history of the solver, and in ``swap_optimal`` whether no exchange of one free
        coefficient for another lowers the objective.

    Notes
    -----
    ``"mm"`` stops when its solution satisfies, within ``tol``, all optimality conditions of the weighted l1
    problem with the solution's own weights. With ``alpha="exact"`` it also scores every single swap exactly,
    and continues until none lowers the objective.

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
