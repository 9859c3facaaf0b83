"""Least squares for several targets at once."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from .base import SMALLEST, Loss, require_finite, shared_gram
from .quadratic import check_size


class MultiTaskQuadratic(Loss):
    r"""Least squares for K targets, :math:`L(\eta) = \frac12 \sum_i d_i \|\eta_i - y_i\|^2`.

    The target has shape (n, K).

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.losses import MultiTaskQuadratic
    >>> y, d = np.array([[1.0, 0.0], [3.0, 2.0]]), np.array([0.5, 0.5])
    >>> loss = MultiTaskQuadratic().bound(y, d)
    >>> loss.n_outputs, loss.value(np.zeros((2, 2)), y, d), loss.null_predictor(y, d).tolist()
    (2, 3.5, [2.0, 1.0])
    """

    name = "multitask"
    constant_curvature = True
    least_squares = True
    curvature_bound = 1.0
    report_factor = 2.0
    matrix_target = True
    multi_output = True

    @property
    def working_vectors(self) -> int:
        return 6 + 4 * self.n_outputs

    def check_target(self, y: np.ndarray) -> None:
        require_finite(y, n_dimensions=2)
        check_size(y)

    def bound(self, y: np.ndarray, d: np.ndarray) -> Loss:
        other = copy.copy(self)
        other.n_outputs = y.shape[1]
        return other

    def pointwise(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray | None = None) -> np.ndarray:
        return 0.5 * np.sum((eta - y) ** 2, axis=1)

    def gradient(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        return d[:, None] * (eta - y)

    def curvature(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        return np.repeat(d[:, None], y.shape[1], axis=1)

    def gram(self, design: Any, W: np.ndarray, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        return shared_gram(design, W, d, y.shape[1])

    def slope_bound(self, y: np.ndarray, d: np.ndarray) -> float:
        r""":math:`\sqrt{2 L(0)}`, as for one target."""
        return float(np.sqrt(2.0 * self.value(np.zeros_like(y), y, d)))

    def null_predictor(self, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        return d @ y

    def deviance(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray, n: float) -> float:
        """``n K log(2 L / K)``: Gaussian errors with one maximum likelihood variance for all targets."""
        n_outputs = y.shape[1]
        return n * n_outputs * float(np.log(max(2.0 * self.value(eta, y, d) / n_outputs, SMALLEST)))
