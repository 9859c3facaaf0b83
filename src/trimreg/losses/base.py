"""What a loss is: a function of the linear predictor, in plain NumPy.

``L(eta) = sum_i d_i l(eta_i, y_i)`` with sample weights ``d`` that sum to one, so a loss is a
weighted mean over samples. A solver needs its value, its gradient and its curvature with respect to
``eta`` and nothing else; to add one is to write these three formulas (see CONTRIBUTING.md).
"""

from __future__ import annotations

import numpy as np


class Loss:
    """A loss on the linear predictor ``eta``; every method is a pure function of its arguments."""

    name: str = "custom"
    #: Whether the curvature is the same at every eta. Then one Gram matrix serves a whole fit, and
    #: the intercept is had by centring instead of by a column of ones.
    constant_curvature: bool = False
    #: A bound on the second derivative of ``l`` in eta, for step sizes; inf if there is none.
    curvature_bound: float = np.inf

    def check_target(self, y: np.ndarray) -> None:
        """Raise a ``ValueError`` that names y if it has values that the loss cannot take."""

    def inverse_link(self, eta: np.ndarray) -> np.ndarray:
        """The mean of y that the predictor stands for."""
        return eta

    def value(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> float:
        """``sum_i d_i l(eta_i, y_i)``."""
        raise NotImplementedError

    def gradient(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        """``d_i l'(eta_i, y_i)`` for every sample."""
        raise NotImplementedError

    def curvature(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        """``d_i l''(eta_i, y_i)`` for every sample."""
        raise NotImplementedError
