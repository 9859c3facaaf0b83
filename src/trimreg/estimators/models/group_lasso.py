"""The trimmed group lasso."""

from __future__ import annotations

import numpy as np

from .base import Regressor, TrimmedEstimator


class TrimmedGroupLasso(Regressor, TrimmedEstimator):
    r"""Least squares in which all but the h largest groups of coefficients are penalized.

    .. math:: \min_{\theta, b}\; \frac{1}{2n} \|y - Z\theta - b\|^2 + \alpha \sum_{g > h} r_{(g)}, \qquad
              r_g = \sqrt{|g|}\, \|\theta_g\|_q.

    Parameters
    ----------
    groups : array-like of labels of shape (n_features,) or list of lists of int, optional
        A label for every feature, or lists of the indices of features, each in one list. None is a group for
        every feature.
    h : int, float in (0, 1) or None, default=None
        How many groups (or which fraction of them) carry no penalty. None is a tenth, at least one.
    alpha : float or "exact", default="exact"
        With ``"exact"`` at most h groups are in the model.
    q : 2 or inf, default=2
        The norm of a group.
    penalty_factor : array-like of shape (n_groups,), optional
        Factors of the groups in place of the roots of their sizes; 0 is never penalized, inf is excluded.
        Labels are numbered in sorted order, lists as they come.
    solver, effort, fit_intercept, standardize, n_outliers, warm_start, tol, max_iter, random_state
        As in :class:`TrimmedLasso`.

    Attributes
    ----------
    groups_ : ndarray of int of shape (n_features,)
        The number of the group of every feature.
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
        groups=None,
        h=None,
        alpha="exact",
        q=2,
        penalty_factor=None,
        solver="mm",
        effort="medium",
        fit_intercept=True,
        standardize=True,
        n_outliers=0,
        warm_start=False,
        tol=1e-6,
        max_iter=None,
        random_state=None,
    ):
        self._store(locals())

    _loss = "quadratic"

    def _keep(self, task, details):
        self.groups_ = np.arange(self.n_features_in_) if self._groups is None else self._groups
        self.group_support_ = np.unique(self.groups_[self.support_])
