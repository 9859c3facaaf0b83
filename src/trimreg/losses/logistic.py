"""Logistic regression."""

from __future__ import annotations

import numpy as np

from .base import Loss, require, require_finite, weighted_sum

_SMALLEST_SHARE = 1e-12  # a class of no sample has the log-odds of this share, not minus infinity


class Logistic(Loss):
    r"""Minus the Bernoulli log-likelihood, with labels 0 and 1 or fractions between,

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
    curvature_bound = 0.25

    def check_target(self, y):
        require_finite(y)
        require(y, (y >= 0) & (y <= 1), "be 0 or 1, or a fraction between")

    def inverse_link(self, eta):
        return _probability(eta)

    def pointwise(self, eta, y, d=None):
        # log(1 + e^eta) - y eta for eta > 0 is (1 - y) eta + log(1 + e^-eta): nothing large is subtracted
        return np.log1p(np.exp(-np.abs(eta))) + np.where(eta > 0, (1.0 - y) * eta, -y * eta)

    def gradient(self, eta, y, d):
        return d * (_probability(eta) - y)

    def curvature(self, eta, y, d):
        return d * (_probability(eta) * _probability(-eta))

    def slope_bound(self, y, d):
        r""":math:`\sqrt{B / 2}`, where :math:`B = \log 2 - \sum_i d_i \inf l_i` is what L(0) has to lose.

        Since :math:`l'' \le 1/4`, :math:`l'^2 \le \frac12 (l - \inf l)`, and the mean of
        :math:`l_i - \inf l_i` is at most B where ``L(eta) <= L(0)``. The infimum of ``l`` is the entropy
        of y, 0 for a label. So it is never above :math:`\sqrt{\log 2 / 2} = 0.589`.
        """
        excess = np.log(2.0) + _xlogx(y) + _xlogx(1.0 - y)
        return float(np.sqrt(0.5 * max(weighted_sum(d, excess), 0.0)))

    def null_predictor(self, y, d):
        share = min(max(float(d @ y), _SMALLEST_SHARE), 1.0 - _SMALLEST_SHARE)
        return float(np.log(share) - np.log1p(-share))


def _probability(eta):
    """``1 / (1 + exp(-eta))`` without overflow, and without cancellation where it is small."""
    small = np.exp(-np.abs(eta))
    return np.where(eta > 0, 1.0, small) / (1.0 + small)


def _xlogx(x):
    return x * np.log(np.where(x > 0, x, 1.0))
