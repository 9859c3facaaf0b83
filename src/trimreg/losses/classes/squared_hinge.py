"""The squared hinge loss of support vector machines."""

from __future__ import annotations

import numpy as np

from ..base import Loss, require, require_finite


class SquaredHinge(Loss):
    r"""Half the squared hinge loss for labels y = 0 and 1, that is signs :math:`s = 2y - 1`,

    .. math:: L(\eta) = \tfrac12 \sum_i d_i \max(0, 1 - s_i \eta_i)^2.

    It is that of scikit-learn's ``LinearSVC`` with C = 1 / (2 n l2), apart from the scaling. Samples beyond
    the margin have no influence. If the features separate the classes with a margin, the minimum is 0 and is
    attained at many points; ``l2 > 0`` makes it unique.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.losses import SquaredHinge
    >>> SquaredHinge().gradient(np.array([0.0, 2.0]), np.array([1.0, 0.0]), np.array([0.5, 0.5])).tolist()
    [-0.5, 1.5]
    """

    name = "squared_hinge"
    curvature_bound = 1.0

    def check_target(self, y: np.ndarray) -> None:
        require_finite(y)
        require(y, (y == 0) | (y == 1), "be 0 or 1")

    def inverse_link(self, eta: np.ndarray) -> np.ndarray:
        """The probability of which eta is the best predictor, :math:`(1 + \\eta) / 2` from 0 to 1."""
        return np.clip(0.5 * (1.0 + eta), 0.0, 1.0)

    def pointwise(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray | None = None) -> np.ndarray:
        return 0.5 * _short(eta, y) ** 2

    def gradient(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        return d * (1.0 - 2.0 * y) * _short(eta, y)

    def curvature(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        return np.where(_short(eta, y) > 0, d, 0.0)

    def slope_bound_from(self, start: np.ndarray, y: np.ndarray, d: np.ndarray) -> float:
        r""":math:`\sqrt{2 L(\eta_0)}`, since :math:`l'^2 = 2 l`."""
        return float(np.sqrt(2.0 * self.value(start, y, d)))

    def conjugate(self, g: np.ndarray, y: np.ndarray, d: np.ndarray) -> float:
        r""":math:`\sum_i d_i (m_i^2 / 2 - m_i)` with :math:`m = -s g / d`, if no m is negative."""
        g, y, d = g[d > 0], y[d > 0], d[d > 0]
        m = (1.0 - 2.0 * y) * g / d
        return float(d @ (0.5 * m**2 - m)) if np.all(m >= -1e-12) else np.inf

    def null_predictor(self, y: np.ndarray, d: np.ndarray) -> float:
        return float(2.0 * (d @ y) / d.sum() - 1.0)


def _short(eta, y):
    """What a sample lacks to the margin."""
    return np.maximum(1.0 - (2.0 * y - 1.0) * eta, 0.0)
