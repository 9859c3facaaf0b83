"""Trimmed regression with losses other than least squares: counts, amounts, outliers in y, quantiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...designs.convert import to_host
from ...losses import Gamma, Huber, Loss, NegativeBinomial, Poisson, Quantile
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
        loss = fitted_loss(self._loss, self._estimates)
        y = check.check_target(y, eta.size)
        loss.check_target(y)
        d = check.check_sample_weight(sample_weight, eta.size)
        return deviance_explained(loss, eta, y, d, check.check_offset(loss, eta.size, offset, exposure))


def fitted_loss(loss: Loss, estimates: Mapping[str, Any]) -> Loss:
    """The loss with its other parameters as they were fitted, to be computed for other samples."""
    return type(loss)(**estimates) if loss.has_nuisance else loss


def deviance_explained(
    loss: Loss, eta: np.ndarray, y: np.ndarray, d: np.ndarray, known: np.ndarray | None = None
) -> float:
    """The score of :class:`_LogLinkRegressor`; ``known`` are the offsets, which eta contains."""
    known = np.zeros_like(y) if known is None else known
    shifted, target = with_offset(loss, y, known)
    least = loss.infimum(y)
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


class TrimmedNegativeBinomialRegressor(_LogLinkRegressor):
    r"""Negative binomial regression with a penalty on all but the h largest coefficients.

    .. math:: \min_{\theta, b, a}\; \sum_i d_i \Bigl[(y_i + \tfrac1a) \log(1 + a e^{\eta_i}) - y_i \eta_i
              - \sum_{k < y_i} \log(1 + a k)\Bigr] + \alpha \sum_{j > h} |\theta|_{(j)},
              \qquad \eta_i = z_i'\theta + b,

    for counts of mean :math:`\mu = e^\eta` and variance :math:`\mu + a \mu^2`
    (:class:`trimreg.losses.NegativeBinomial`).

    Parameters
    ----------
    h, alpha, l2
        As in :class:`TrimmedLasso`.
    dispersion : float or None, default=None
        a; None estimates it with the coefficients, by maximum likelihood. 0 is Poisson regression, and the
        estimate is 0 if the counts vary no more than Poisson counts.
    solver, effort, fit_intercept, standardize, positive, lower, upper, penalty_factor, groups, n_outliers
        As in :class:`TrimmedLasso`.
    warm_start, tol, max_iter, random_state
        As in :class:`TrimmedLasso`.

    Attributes
    ----------
    dispersion_ : float
        The dispersion at the solution. ``score`` uses it for other samples.
    coef_, intercept_, trim_weights_, support_, objective_, stationarity_, alpha_, n_iter_, outliers_
        As in :class:`TrimmedLasso`, and so are ``entry_order_`` and ``result_``.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import TrimmedNegativeBinomialRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 20))
    >>> y = rng.negative_binomial(2.0, 2.0 / (2.0 + np.exp(1 + X[:, 3] - X[:, 7])))
    >>> model = TrimmedNegativeBinomialRegressor(h=2).fit(X, y)
    >>> model.support_, model.coef_[model.support_].round(1), round(model.dispersion_, 1)
    (array([3, 7]), array([ 1. , -0.9]), 0.4)
    """

    def __init__(
        self,
        h: int | float | None = None,
        alpha: float | str = "exact",
        l2: float = 0.0,
        dispersion: float | None = None,
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
    def _loss(self) -> NegativeBinomial:  # type: ignore[override]
        if self.dispersion is not None:
            check.check_number("dispersion", self.dispersion, 0.0)
        return NegativeBinomial(self.dispersion)


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


class TrimmedQuantileRegressor(Regressor, TrimmedEstimator):
    r"""Quantile regression with a penalty on all but the h largest coefficients.

    .. math:: \min_{\theta, b}\; \sum_i d_i \bigl[q\, r_i + s \log(1 + e^{-r_i / s})\bigr]
              + \alpha \sum_{j > h} |\theta|_{(j)}, \qquad r_i = y_i - z_i'\theta - b,

    the check loss of the quantile q, smoothed at the scale s (:class:`trimreg.losses.Quantile`).

    Parameters
    ----------
    h, alpha, l2
        As in :class:`TrimmedLasso`.
    quantile : float, default=0.5
        q, between 0 and 1.
    smoothing : float or None, default=None
        s, in the units of y. None is 0.05 times the spread of y. The smaller, the closer to the check loss,
        and the harder the problem.
    solver, effort, fit_intercept, standardize, positive, lower, upper, penalty_factor, groups, n_outliers
        As in :class:`TrimmedLasso`.
    warm_start, tol, max_iter, random_state
        As in :class:`TrimmedLasso`.

    Attributes
    ----------
    smoothing_ : float
        s.
    coef_, intercept_, trim_weights_, support_, objective_, stationarity_, alpha_, n_iter_, outliers_
        As in :class:`TrimmedLasso`, and so are ``entry_order_`` and ``result_``.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import TrimmedQuantileRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 20))
    >>> y = 2 * X[:, 3] - X[:, 7] + rng.exponential(1.0, 300)
    >>> model = TrimmedQuantileRegressor(h=2, quantile=0.9).fit(X, y)
    >>> model.support_, round(float(np.mean(y <= model.predict(X))), 2)
    (array([3, 7]), 0.9)
    """

    def __init__(
        self,
        h: int | float | None = None,
        alpha: float | str = "exact",
        l2: float = 0.0,
        quantile: float = 0.5,
        smoothing: float | None = None,
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
    def _loss(self) -> Quantile:
        check.check_number("quantile", self.quantile, 0.0, strict=True)
        if self.smoothing is not None:
            check.check_number("smoothing", self.smoothing, 0.0, strict=True)
        return Quantile(self.quantile, self.smoothing)

    def score(  # type: ignore[override]
        self, X: Any, y: Any, sample_weight: ArrayLike | None = None, offset: ArrayLike | None = None
    ) -> float:
        """The share of the check loss of the best constant that the model saves.

        It is :func:`sklearn.metrics.d2_pinball_score`.

        Parameters
        ----------
        X, y, sample_weight, offset
            As in :meth:`fit`.

        Returns
        -------
        float
        """
        from sklearn.metrics import d2_pinball_score

        y, weights, predicted = to_host(y), to_host(sample_weight), self.predict(X, offset=offset)
        return float(d2_pinball_score(y, predicted, sample_weight=weights, alpha=self.quantile))
