"""The trimmed lasso for several targets."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from .base import Regressor, TrimmedEstimator


class MultiTaskTrimmedLasso(Regressor, TrimmedEstimator):
    r"""Least squares for several targets with a penalty on all but h features, shared by all targets.

    .. math:: \min_{\Theta, b}\; \frac{1}{2n} \|Y - Z\Theta - 1 b'\|_F^2 + \alpha \sum_{j > h} r_{(j)}, \qquad
              r_j = \|\Theta_{j\cdot}\|_2.

    Parameters
    ----------
    h : int, float in (0, 1) or None, default=None
        The number (or fraction) of features without a penalty. None is a tenth, at least one.
    alpha : float or "exact", default="exact"
        With ``"exact"``, at most h features are in the model.
    l2 : float, default=0.0
        A ridge term, as in :class:`TrimmedLasso`.
    solver, effort, fit_intercept, standardize, penalty_factor, groups, n_outliers, warm_start, tol
        As in :class:`TrimmedLasso`.
    max_iter, random_state
        As in :class:`TrimmedLasso`.

    Attributes
    ----------
    coef_ : ndarray of shape (n_tasks, n_features)
    intercept_ : ndarray of shape (n_tasks,)
    trim_weights_, support_, objective_, stationarity_, alpha_, n_iter_, outliers_, entry_order_, result_
        As in :class:`TrimmedLasso`.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import MultiTaskTrimmedLasso
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 20))
    >>> Y = X[:, [3, 7]] @ [[1.0, -2.0, 0.5], [2.0, 1.0, 0.0]] + 0.1 * rng.standard_normal((100, 3))
    >>> model = MultiTaskTrimmedLasso(h=2).fit(X, Y)
    >>> model.support_, model.coef_.shape
    (array([3, 7]), (3, 20))
    """

    def __init__(
        self,
        h: int | float | None = None,
        alpha: float | str = "exact",
        l2: float = 0.0,
        solver: str = "mm",
        effort: str = "medium",
        fit_intercept: bool = True,
        standardize: bool = True,
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
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        return tags

    _loss = "multitask"
