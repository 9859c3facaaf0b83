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
        One label per feature, or lists of the indices of features, with each feature in at least one list.
        Lists may overlap (see Notes). None makes every feature a group.
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
        The number of each feature's group. For groups that overlap, a boolean array of shape (n_features,
        n_groups): whether the feature is in the group.
    group_support_ : ndarray of int
        The groups with a nonzero coefficient; of groups that overlap, those with a nonzero term.
    trim_weights_ : ndarray of shape (n_groups,)
    coef_, intercept_, support_, objective_, stationarity_, alpha_, n_iter_, outliers_, entry_order_
        As in :class:`TrimmedLasso`, and so is ``result_``.

    Notes
    -----
    With groups that overlap, the coefficients are a sum of one term per group, and the terms are penalized:

    .. math:: \theta = \sum_g v^{(g)}, \qquad v^{(g)}_j = 0 \text{ for } j \notin g, \qquad
              r_g = \sqrt{|g|}\, \|v^{(g)}\|_q.

    The selected features are a union of groups, with ``alpha="exact"`` of at most h of them. A ridge term is
    on the terms too. Terms of free groups that share a feature are not unique without a ridge; their sum,
    ``coef_``, is what the loss determines. ``result_.theta`` has the terms, one group after another, and
    no column of X is copied. Certificates, diagnostics, paths, the estimators that choose h (use
    ``GridSearchCV``) and ``n_outliers`` are for groups that do not overlap.

    References
    ----------
    Jacob, Obozinski and Vert, Group lasso with overlap and graph lasso, ICML 2009, equation (4).

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

    Overlapping groups: windows of four features, two of them shared with the next.

    >>> windows = [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7], [6, 7, 8, 9], [8, 9, 10, 11]]
    >>> model = TrimmedGroupLasso(windows, h=2).fit(X, y)
    >>> model.group_support_, model.support_
    (array([0, 2]), array([0, 1, 2, 3, 4, 5, 6, 7]))
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
        if self._groups is None or self._copies is None:
            self.groups_ = np.arange(self.n_features_in_) if self._groups is None else self._groups
            self.group_support_ = np.unique(self.groups_[self.support_])
            return
        self.group_support_ = np.unique(self._groups[np.flatnonzero(np.asarray(self.result_.theta))])
        self.groups_ = np.zeros((self.n_features_in_, task.problem.penalty.norm.count), dtype=bool)
        self.groups_[self._copies, self._groups] = True
