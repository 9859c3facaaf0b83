"""Gamma regression."""

from __future__ import annotations

import numpy as np

from ..base import Loss, require, require_finite, weighted_sum
from ..quadratic import check_size
from .poisson import bounded_exp, exp, log_link_slope_bound


class Gamma(Loss):
    r"""Minus the log-likelihood of Gamma variables with a log link, for a positive target,

    .. math:: L(\eta) = \sum_i d_i \bigl[y_i e^{-\eta_i} + \eta_i\bigr], \qquad E\,y = e^\eta.

    The shape parameter scales the log-likelihood and does not change the minimizer.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.losses import Gamma
    >>> Gamma().gradient(np.zeros(2), np.array([3.0, 1.0]), np.array([0.5, 0.5])).round(6).tolist()
    [-1.0, 0.0]
    """

    name = "gamma"
    working_vectors = 10
    positive_target = True
    log_link = True

    def check_target(self, y: np.ndarray) -> None:
        require_finite(y)
        require(y, y > 0, "be > 0")
        check_size(y)

    def inverse_link(self, eta: np.ndarray) -> np.ndarray:
        return exp(eta)

    def pointwise(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray | None = None) -> np.ndarray:
        return exp(np.log(y) - eta) + eta

    def gradient(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        return d * (1.0 - bounded_exp(np.log(y) - eta))

    def curvature(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        return d * bounded_exp(np.log(y) - eta)

    def slope_bound_from(self, start: np.ndarray, y: np.ndarray, d: np.ndarray) -> float:
        r"""With :math:`B = L(\eta_0) - \sum_i d_i (1 + \log y_i)`, the excess at the start over the infimum,

        .. math:: \max_i \; \bigl(B + \sqrt{B^2 + 2 B d_i}\bigr) / \sqrt{d_i}.

        With :math:`v = y e^{-\eta}`, :math:`l - \inf l = v - 1 - \log v` and :math:`|l'| = |v - 1|`: this is
        :meth:`Poisson.slope_bound_from` for a count of 1.
        """
        excess = self.pointwise(start, y) - self.infimum(y)
        return log_link_slope_bound(weighted_sum(d, excess), np.ones_like(y), d)

    def infimum(self, y: np.ndarray) -> np.ndarray:
        return 1.0 + np.log(y)

    def null_predictor(self, y: np.ndarray, d: np.ndarray) -> float:
        return float(np.log(d @ y))

    def deviance(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray, n: float) -> float:
        r"""With the shape :math:`\kappa` at its maximum likelihood.

        The mean log-likelihood is :math:`\kappa \log \kappa - \log\Gamma(\kappa) - \kappa a`, up to
        :math:`\sum d_i \log y_i`, where :math:`a = L(\eta) - \sum_i d_i \log y_i \ge 1`.
        """
        excess = self.value(eta, y, d) - float(d @ np.log(y)) - 1.0
        return -2.0 * n * _largest_log_likelihood(max(excess, 1e-15))


def _largest_log_likelihood(excess):
    r"""Maximum over the shape of :math:`\kappa \log \kappa - \log\Gamma(\kappa) - \kappa a`, a = 1 + excess.

    At the maximum :math:`\log\kappa - \psi(\kappa)`, nearly linear in :math:`1/\kappa`, equals the excess.
    So Newton's method in :math:`1/\kappa`, from the approximation of Minka (2002, "Estimating a Gamma
    distribution").
    """
    from scipy.special import gammaln, polygamma, psi

    if excess > 1e8:  # the limit, with shape 1 / excess
        return -1.0 - float(np.log(excess))
    shape = (3.0 - excess + np.sqrt((excess - 3.0) ** 2 + 24.0 * excess)) / (12.0 * excess)
    if shape < 1e6:  # above, the approximation is exact and the digamma function cancels
        for _ in range(6):
            error = np.log(shape) - psi(shape) - excess
            slope = shape * (shape * polygamma(1, shape) - 1.0)  # in 1/shape
            shape = 1.0 / (1.0 / shape - error / slope)
        return float(shape * (np.log(shape) - 1.0 - excess) - gammaln(shape))
    # Stirling: log Gamma(k) = k log k - k + log(2 pi / k) / 2 + 1/(12 k)
    return float(0.5 * np.log(shape / (2 * np.pi)) - shape * excess - 1.0 / (12.0 * shape))
