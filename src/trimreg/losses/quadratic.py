"""Least squares."""

from __future__ import annotations

import numpy as np

from .base import SMALLEST, Loss, require_finite


class Quadratic(Loss):
    r"""Least squares, :math:`L(\eta) = \frac12 \sum_i d_i (\eta_i - y_i)^2` with :math:`\sum d_i = 1`.

    With equal weights this is ``1/(2n) ||y - eta||^2``, scikit-learn's scaling. The paper writes
    ``1/n ||.||^2``, so its lambda is twice our alpha; the scaling ``1/2 ||.||^2`` of its authors'
    code has a lambda that is n times our alpha.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.losses import Quadratic
    >>> float(Quadratic().value(np.array([1.0, 3.0]), np.array([1.0, 1.0]), np.array([0.5, 0.5])))
    1.0
    """

    name = "quadratic"
    working_vectors = 10
    constant_curvature = True
    least_squares = True
    curvature_bound = 1.0
    report_factor = 2.0
    array_agnostic = True

    def check_target(self, y: np.ndarray) -> None:
        require_finite(y)
        check_size(y)

    def pointwise(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray | None = None) -> np.ndarray:
        return 0.5 * (eta - y) ** 2

    def value(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> float:
        residual = eta - y
        return 0.5 * float(np.dot(d * residual, residual))

    def gradient(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        return d * (eta - y)

    def curvature(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        return d

    def slope_bound(self, y: np.ndarray, d: np.ndarray) -> float:
        r""":math:`\sqrt{2 L(0)}`: the sum is :math:`\sum_i d_i r_i^2 = 2 L`, so it is attained."""
        return float(np.sqrt(2.0 * self.value(np.zeros_like(y), y, d)))

    def conjugate(self, g: np.ndarray, y: np.ndarray, d: np.ndarray) -> float:
        r""":math:`\sum_i g_i y_i + g_i^2 / (2 d_i)`, without samples of weight 0."""
        g, y, d = g[d > 0], y[d > 0], d[d > 0]
        return float(g @ y + 0.5 * np.sum(g * (g / d)))

    def null_predictor(self, y: np.ndarray, d: np.ndarray) -> float:
        return float(d @ y)

    def deviance(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray, n: float) -> float:
        """``n log(2 L)``: Gaussian errors with the maximum likelihood variance ``2 L``."""
        return n * float(np.log(max(2.0 * self.value(eta, y, d), SMALLEST)))


def check_size(y: np.ndarray) -> None:
    """Raise a ``ValueError`` if squares of y would overflow."""
    largest = np.max(np.abs(y), initial=0.0)
    if largest > 1e152:
        raise ValueError(f"y must be at most 1e152 in absolute value; got {largest:.3g}. Rescale it")
