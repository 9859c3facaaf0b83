"""Poisson regression, and functions for losses with a logarithmic link."""

from __future__ import annotations

import numpy as np

from ..base import Loss, entropy_terms, require, require_finite, weighted_sum
from ..quadratic import check_size

#: Largest exponent in gradients, so that their products with X are finite. The value overflows to infinity
#: instead, which makes a line search step back.
_LARGEST_EXPONENT = 500.0
_NO_COUNTS = float(np.log(1e-10))  # stands for log 0


class Poisson(Loss):
    r"""Minus the Poisson log-likelihood with a log link, for counts or any nonnegative target,

    .. math:: L(\eta) = \sum_i d_i \bigl[e^{\eta_i} - y_i \eta_i\bigr], \qquad E\,y = e^\eta.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.losses import Poisson
    >>> Poisson().gradient(np.zeros(2), np.array([3.0, 0.0]), np.array([0.5, 0.5])).tolist()
    [-1.0, 0.5]
    """

    name = "poisson"
    working_vectors = 10
    positive_target = True
    log_link = True

    def check_target(self, y: np.ndarray) -> None:
        require_finite(y)
        require(y, y >= 0, "be >= 0")
        check_size(y)

    def inverse_link(self, eta: np.ndarray) -> np.ndarray:
        return exp(eta)

    def pointwise(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray | None = None) -> np.ndarray:
        return exp(eta) - y * eta

    def gradient(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        return d * (bounded_exp(eta) - y)

    def curvature(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        return d * bounded_exp(eta)

    def slope_bound_from(self, start: np.ndarray, y: np.ndarray, d: np.ndarray) -> float:
        r"""With :math:`B = L(\eta_0) - \sum_i d_i \inf l_i`, the excess at the start over the infimum,

        .. math:: \max_i \; \bigl(B + \sqrt{B^2 + 2 B d_i y_i}\bigr) / \sqrt{d_i}.

        Write :math:`D = l - \inf l = y (u - 1 - \log u)` with :math:`u = e^\eta / y`, and
        :math:`g = |l'| = y |u - 1|`. Now :math:`u - 1 - \log u \ge (u - 1)^2 / (2 \max(u, 1))`: both sides
        vanish at 1, and the derivative of their difference has the sign of u - 1. So
        :math:`g^2 \le 2 D (g + y)`, that is :math:`g \le D + \sqrt{D^2 + 2 D y}`; for y = 0, g = D. The
        square of the right hand side is convex in D and 0 at 0. So its weighted sum, subject to
        :math:`\sum_i d_i D_i \le B`, is largest where one sample has all of B, :math:`D_i = B / d_i`.
        """
        return log_link_slope_bound(weighted_sum(d, self.pointwise(start, y) - self.infimum(y)), y, d)

    def infimum(self, y: np.ndarray) -> np.ndarray:
        return y - entropy_terms(y)

    def conjugate(self, g: np.ndarray, y: np.ndarray, d: np.ndarray) -> float:
        r""":math:`\sum_i d_i [\mu_i \log \mu_i - \mu_i]` with the mean :math:`\mu = y + g / d`."""
        mean = y[d > 0] + g[d > 0] / d[d > 0]
        return float(d[d > 0] @ (entropy_terms(mean) - mean))

    def null_predictor(self, y: np.ndarray, d: np.ndarray) -> float:
        mean = float(d @ y)
        return float(np.log(mean)) if mean > 0 else _NO_COUNTS


def exp(eta: np.ndarray) -> np.ndarray:
    """``e^eta``, infinite where it overflows."""
    with np.errstate(over="ignore"):
        return np.exp(eta)


def bounded_exp(eta: np.ndarray) -> np.ndarray:
    """``e^eta`` with a bounded exponent."""
    return np.exp(np.minimum(eta, _LARGEST_EXPONENT))


def log_link_slope_bound(excess: float, y: np.ndarray, d: np.ndarray) -> float:
    """The maximum of :meth:`Poisson.slope_bound_from`, B being the excess."""
    y, d = y[d > 0], d[d > 0]
    excess = max(excess, 0.0)
    with np.errstate(over="ignore"):
        return float(np.max((excess + np.sqrt(excess * (excess + 2.0 * d * y))) / np.sqrt(d)))
