"""Logistic regression."""

from __future__ import annotations

import numpy as np

from ..base import (
    SEPARABLE,
    Loss,
    entropy_terms,
    namespace,
    require,
    require_finite,
    slopes_vanish,
    weighted_sum,
)

_SMALLEST_SHARE = 1e-12  # the share of a class without samples, so that its log-odds are finite


class Logistic(Loss):
    r"""Minus the Bernoulli log-likelihood for labels 0 and 1, or fractions between,

    .. math:: L(\eta) = \sum_i d_i \bigl[\log(1 + e^{\eta_i}) - y_i \eta_i\bigr], \qquad
              P(y = 1) = \frac1{1 + e^{-\eta}}.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.losses import Logistic
    >>> loss, d = Logistic(), np.array([0.5, 0.5])
    >>> round(loss.value(np.zeros(2), np.array([0.0, 1.0]), d), 6)  # log 2
    0.693147
    >>> loss.value(np.array([-1e4, 1e4]), np.array([0.0, 1.0]), d)
    0.0
    """

    name = "logistic"
    working_vectors = 12
    curvature_bound = 0.25
    may_diverge = True
    array_agnostic = True

    def check_target(self, y: np.ndarray) -> None:
        require_finite(y)
        require(y, (y >= 0) & (y <= 1), "be 0 or 1, or a fraction between")

    def inverse_link(self, eta: np.ndarray) -> np.ndarray:
        return _probability(eta)

    def pointwise(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray | None = None) -> np.ndarray:
        # log(1 + e^eta) - y eta for eta > 0 is (1 - y) eta + log(1 + e^-eta): nothing large is subtracted
        xp = namespace(eta)
        return xp.log1p(xp.exp(-xp.abs(eta))) + xp.where(eta > 0, (1.0 - y) * eta, -y * eta)

    def gradient(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        return d * (_probability(eta) - y)

    def curvature(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        xp = namespace(eta)
        small = xp.exp(-xp.abs(eta))
        return d * (small / (1.0 + small) ** 2)

    def slope_bound_from(self, start: np.ndarray, y: np.ndarray, d: np.ndarray) -> float:
        r""":math:`\sqrt{B / 2}` with :math:`B = L(\eta_0) - \sum_i d_i \inf l_i` at the start :math:`\eta_0`.

        Since :math:`l'' \le 1/4`, :math:`l'^2 \le \frac12 (l - \inf l)`, and the mean of
        :math:`l_i - \inf l_i` is at most B where ``L(eta) <= L(start)``. The infimum of ``l`` is the
        entropy of y, 0 for a label. So from 0 the bound is at most :math:`\sqrt{\log 2 / 2} = 0.589`.
        """
        excess = self.pointwise(start, y) + entropy_terms(y) + entropy_terms(1.0 - y)
        return float(np.sqrt(0.5 * max(weighted_sum(d, excess), 0.0)))

    def conjugate(self, g: np.ndarray, y: np.ndarray, d: np.ndarray) -> float:
        r""":math:`\sum_i d_i [\pi_i \log \pi_i + (1 - \pi_i) \log(1 - \pi_i)]` at :math:`\pi = y + g/d`."""
        mean = y[d > 0] + g[d > 0] / d[d > 0]
        return float(d[d > 0] @ (entropy_terms(mean) + entropy_terms(1.0 - mean)))

    def trouble(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> str:
        labels = np.all((y == 0) | (y == 1))
        return SEPARABLE if labels and slopes_vanish(self, eta, y, d) else ""

    def null_predictor(self, y: np.ndarray, d: np.ndarray) -> float:
        share = min(max(float(d @ y), _SMALLEST_SHARE), 1.0 - _SMALLEST_SHARE)
        return float(np.log(share) - np.log1p(-share))


def _probability(eta):
    """``1 / (1 + exp(-eta))`` without overflow or cancellation."""
    xp = namespace(eta)
    small = xp.exp(-xp.abs(eta))
    return xp.where(eta > 0, 1.0, small) / (1.0 + small)
