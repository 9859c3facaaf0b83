"""Tweedie regression: amounts that are exactly 0 for some samples and positive for others."""

from __future__ import annotations

import numpy as np

from ..base import SMALLEST, Loss, require, require_finite
from ..quadratic import check_size
from .poisson import bounded_exp, exp, log_link_slope_bound


class Tweedie(Loss):
    r"""Minus the Tweedie log-likelihood with a log link, for amounts that may be 0 and 1 < p < 2,

    .. math:: L(\eta) = \sum_i d_i \Bigl[\frac{\mu_i^{2-p}}{2-p} + \frac{y_i\, \mu_i^{1-p}}{p-1}\Bigr],
              \qquad \mu = E\,y = e^\eta, \quad \mathrm{Var}\,y = \phi \mu^p.

    Such a variable is the sum of a Poisson number of Gamma variables (Jorgensen, The Theory of Dispersion
    Models, 1997). The dispersion phi scales the log-likelihood and does not change the minimizer.

    Parameters
    ----------
    power : float
        p, between 1 (Poisson) and 2 (Gamma).

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.losses import Tweedie
    >>> loss, d = Tweedie(power=1.5), np.full(2, 0.5)
    >>> loss.gradient(np.log([4.0, 4.0]), np.array([0.0, 6.0]), d).round(6).tolist()
    [1.0, -0.5]
    """

    name = "tweedie"
    working_vectors = 12
    positive_target = True
    log_link = True

    def __init__(self, power: float = 1.5):
        if not 1 < power < 2:
            raise ValueError(f"power must be between 1 and 2, without these; got {power!r}")
        self.power = power

    def check_target(self, y: np.ndarray) -> None:
        require_finite(y)
        require(y, y >= 0, "be >= 0")
        check_size(y)

    def inverse_link(self, eta: np.ndarray) -> np.ndarray:
        return exp(eta)

    def pointwise(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray | None = None) -> np.ndarray:
        up, down = 2.0 - self.power, self.power - 1.0
        with np.errstate(divide="ignore"):
            return exp(up * eta) / up + exp(np.log(y) - down * eta) / down

    def _slopes(self, eta, y):
        """``mu^(2-p)`` and ``y mu^(1-p)``, whose difference is the slope."""
        with np.errstate(divide="ignore"):
            return bounded_exp((2.0 - self.power) * eta), bounded_exp(np.log(y) - (self.power - 1.0) * eta)

    def gradient(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        up, down = self._slopes(eta, y)
        return d * (up - down)

    def curvature(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        up, down = self._slopes(eta, y)
        return d * ((2.0 - self.power) * up + (self.power - 1.0) * down)

    def infimum(self, y: np.ndarray) -> np.ndarray:
        return y ** (2.0 - self.power) / ((2.0 - self.power) * (self.power - 1.0))

    def slope_bound_from(self, start: np.ndarray, y: np.ndarray, d: np.ndarray) -> float:
        r"""With :math:`c = \max(2 - p, p - 1)`, the excess B as for Poisson, and :math:`s = y^{2-p}`,

        .. math:: \max_i \; \bigl(c B + \sqrt{c^2 B^2 + 2 B d_i s_i}\bigr) / \sqrt{d_i}.

        Here :math:`l'' = (2 - p) l' + y \mu^{1-p} = (1 - p) l' + \mu^{2-p}`. The last term is at most s, the
        first time for :math:`\mu > y` and the second for :math:`\mu < y`, so :math:`l'' \le c |l'| + s`. Then
        :math:`D = l - \inf l = \int g / l''\,dg \ge g^2 / (2 (c g + s))` for :math:`g = |l'|`, and the rest
        is :meth:`Poisson.slope_bound_from`.
        """
        share = max(2.0 - self.power, self.power - 1.0)
        excess = self.value(start, y, d) - float(d @ self.infimum(y))
        return log_link_slope_bound(share * excess, y ** (2.0 - self.power) / share, d)

    def null_predictor(self, y: np.ndarray, d: np.ndarray) -> float:
        mean = float(d @ y)
        return float(np.log(mean)) if mean > 0 else -23.0

    def deviance(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray, n: float) -> float:
        r""":math:`n \log(2 (L - \inf L))`: the extended quasi-likelihood with its best dispersion.

        The density has no closed form (Nelder and Pregibon 1987, An extended quasi-likelihood function,
        Biometrika 74).
        """
        excess = self.value(eta, y, d) - float(d @ self.infimum(y))
        return n * float(np.log(max(2.0 * excess, SMALLEST)))
