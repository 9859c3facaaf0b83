"""The trimmed group lasso."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .base import Regressor, TrimmedEstimator


class TrimmedGroupLasso(Regressor, TrimmedEstimator):
    r"""Least squares with a penalty on all but the h largest groups of coefficients.

    .. math:: \min_{\theta, b}\; \frac{1}{2n} \|y - Z\theta - b\|^2 + \alpha \sum_{g > h} r_{(g)}, \qquad
              r_g = \sqrt{|g|}\, \|\theta_g\|_q.

    Parameters
    ----------
    groups : array-like of labels of shape (n_features,) or list of lists of int, optional
        One label per feature, or lists of the indices of features, with each feature in one list. None
        makes every feature a group.
    h : int, float in (0, 1) or None, default=None
        The number (or fraction) of groups without a penalty. None is a tenth, at least one.
    alpha : float or "exact", default="exact"
        With ``"exact"``, at most h groups are in the model.
    l2 : float, default=0.0
        A ridge term, as in :class:`TrimmedLasso`.
    q : 2 or inf, default=2
        The norm of a group.
    penalty_factor : array-like of shape (n_groups,), optional
        Factors of the groups in place of the square roots of their sizes; a group with 0 is never
        penalized, one with inf is excluded. Labels are numbered in sorted order, lists in their own
        order.
    solver, effort, fit_intercept, standardize, n_outliers, warm_start, tol, max_iter, random_state
        As in :class:`TrimmedLasso`.

    Attributes
    ----------
    groups_ : ndarray of int of shape (n_features,)
        The number of each feature's group.
    group_support_ : ndarray of int
        The groups with a nonzero coefficient.
    trim_weights_ : ndarray of shape (n_groups,)
    coef_, intercept_, support_, objective_, stationarity_, alpha_, n_iter_, outliers_, entry_order_
        As in :class:`TrimmedLasso`, and so is ``result_``.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import TrimmedGroupLasso
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 12))
    >>> y = X[:, :3] @ [1.0, -1.0, 2.0] + X[:, 6] + 0.1 * rng.standard_normal(100)
    >>> model = TrimmedGroupLasso(groups=np.repeat(["a", "b", "c", "d"], 3), h=2).fit(X, y)
    >>> model.group_support_, model.support_
    (array([0, 2]), array([0, 1, 2, 6, 7, 8]))
    """

    def __init__(
        self,
        groups: Any = None,
        h: int | float | None = None,
        alpha: float | str = "exact",
        l2: float = 0.0,
        q: float = 2,
        penalty_factor: ArrayLike | None = None,
        solver: str = "mm",
        effort: str = "medium",
        fit_intercept: bool = True,
        standardize: bool = True,
        n_outliers: int | float = 0,
        warm_start: bool = False,
        tol: float = 1e-6,
        max_iter: int | None = None,
        random_state: Any = None,
    ):
        self._store(locals())

    _loss = "quadratic"

    def _keep(self, task, details) -> None:
        self.groups_ = np.arange(self.n_features_in_) if self._groups is None else self._groups
        self.group_support_ = np.unique(self.groups_[self.support_])
