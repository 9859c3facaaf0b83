"""Trimmed regression with losses other than least squares: counts, positive targets, outliers in y."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import xlogy

from ...losses import Gamma, Huber, Loss, Poisson
from ...losses.offset import with_offset
from .. import validation as check
from .base import Regressor, TrimmedEstimator


class _LogLinkRegressor(Regressor, TrimmedEstimator):
    """A model of the mean as ``exp(eta)``, scored by the share of the deviance explained."""

    _loss: Loss

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    def _mean(self, eta):
        return self._loss.inverse_link(eta)

    def score(
        self, X: Any, y: Any, sample_weight: ArrayLike | None = None, offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
    ) -> float:  # fmt: skip
        r"""The share of the deviance explained,

        .. math:: D^2 = 1 - \frac{\sum_i d_i\, [l(\eta_i, y_i) - \min l(\cdot, y_i)]}
                                 {\sum_i d_i\, [l(\eta_0, y_i) - \min l(\cdot, y_i)]},

        with :math:`\eta_0` the best constant, plus the offset. 1 is best; the score may be negative. If y is
        what the constant predicts, it is 1 for a perfect fit and 0 otherwise.

        Parameters
        ----------
        X, y, sample_weight, offset, exposure
            As in :meth:`fit`.
        """
        eta = np.asarray(self._predictor(X, offset, exposure), dtype=float)
        loss = self._loss
        y = check.check_target(y, eta.size)
        loss.check_target(y)
        d = check.check_sample_weight(sample_weight, eta.size)
        known = check.check_offset(loss, eta.size, offset, exposure)
        known = np.zeros_like(y) if known is None else known
        shifted, target = with_offset(loss, y, known)
        least = self._smallest_loss(y)
        left = loss.value(eta, y, d) - d @ least
        constant = shifted.null_predictor(target, d)
        total = loss.value(known + constant, y, d) - d @ least if d @ y > 0 else 0.0
        rounding = 100 * np.finfo(float).eps * (d @ np.abs(least))
        if total <= rounding:
            return float(left <= rounding)
        return float(1.0 - left / total)


class TrimmedPoissonRegressor(_LogLinkRegressor):
    r"""Poisson regression with a log link and a penalty on all but the h largest coefficients.

    .. math:: \min_{\theta, b}\; \sum_i d_i \bigl[e^{\eta_i} - y_i \eta_i\bigr]
              + \alpha \sum_{j > h} |\theta|_{(j)}, \qquad \eta_i = z_i'\theta + b.

    All parameters and attributes are those of :class:`TrimmedLasso`.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import TrimmedPoissonRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 20))
    >>> y = rng.poisson(np.exp(1 + 0.5 * X[:, 3] - 0.5 * X[:, 7]))
    >>> model = TrimmedPoissonRegressor(h=2).fit(X, y)
    >>> model.support_, model.coef_[model.support_].round(1)
    (array([3, 7]), array([ 0.5, -0.5]))
    """

    _loss = Poisson()

    @staticmethod
    def _smallest_loss(y):
        return y - xlogy(y, y)


class TrimmedGammaRegressor(_LogLinkRegressor):
    r"""Gamma regression with a log link and a penalty on all but the h largest coefficients.

    .. math:: \min_{\theta, b}\; \sum_i d_i \bigl[y_i e^{-\eta_i} + \eta_i\bigr]
              + \alpha \sum_{j > h} |\theta|_{(j)}, \qquad \eta_i = z_i'\theta + b.

    All parameters and attributes are those of :class:`TrimmedLasso`.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import TrimmedGammaRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 20))
    >>> y = rng.gamma(4.0, np.exp(X[:, 3] - X[:, 7]) / 4.0)
    >>> model = TrimmedGammaRegressor(h=2).fit(X, y)
    >>> model.support_, model.coef_[model.support_].round(1)
    (array([3, 7]), array([ 1., -1.]))
    """

    _loss = Gamma()

    @staticmethod
    def _smallest_loss(y):
        return 1.0 + np.log(y)


class TrimmedHuberRegressor(Regressor, TrimmedEstimator):
    r"""Huber's robust regression with a penalty on all but the h largest coefficients.

    .. math:: \min_{\theta, b, s}\; \tfrac12 \sum_i d_i \Bigl[s + s\, H\bigl((y_i - \eta_i) / s\bigr)\Bigr]
              + \alpha \sum_{j > h} |\theta|_{(j)}, \qquad \eta_i = z_i'\theta + b,

    with :math:`H(z) = z^2` for :math:`|z| \le \epsilon` and :math:`2 \epsilon |z| - \epsilon^2` beyond. A
    given scale s is not optimized, and the term s is left out.

    Parameters
    ----------
    h, alpha, l2
        As in :class:`TrimmedLasso`.
    epsilon : float, default=1.35
        Where the absolute error begins, in units of the scale; must exceed 1 if the scale is estimated.
    scale : float or None, default=None
        The scale of the errors; None estimates it with the coefficients.
    solver, effort, fit_intercept, standardize, positive, lower, upper, penalty_factor, groups, n_outliers
        As in :class:`TrimmedLasso`.
    warm_start, tol, max_iter, random_state
        As in :class:`TrimmedLasso`.

    Attributes
    ----------
    scale_ : float
        The scale at the solution.
    coef_, intercept_, trim_weights_, support_, objective_, stationarity_, alpha_, n_iter_, outliers_
        As in :class:`TrimmedLasso`, and so are ``entry_order_`` and ``result_``.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import TrimmedHuberRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 20))
    >>> y = 2 * X[:, 3] - X[:, 7] + 0.1 * rng.standard_normal(200)
    >>> y[:10] += 100.0
    >>> model = TrimmedHuberRegressor(h=2).fit(X, y)
    >>> model.support_, model.coef_[model.support_].round(1)
    (array([3, 7]), array([ 2., -1.]))
    """

    def __init__(
        self,
        h: int | float | None = None,
        alpha: float | str = "exact",
        l2: float = 0.0,
        epsilon: float = 1.35,
        scale: float | None = None,
        solver: str = "mm",
        effort: str = "medium",
        fit_intercept: bool = True,
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

    @property
    def _loss(self) -> Huber:
        check.check_number("epsilon", self.epsilon, 0.0, strict=True)
        if self.scale is not None:
            check.check_number("scale", self.scale, 0.0, strict=True)
        return Huber(self.epsilon, self.scale)

    def _keep(self, task, details) -> None:
        problem = task.problem
        self.scale_ = float(problem.loss.scale_at(details.eta, problem.y, problem.d))
