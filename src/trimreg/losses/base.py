"""What a loss is: a function of the linear predictor, in plain NumPy.

``L(eta) = sum_i d_i l(eta_i, y_i)`` with sample weights ``d`` that sum to one, so a loss is a
weighted mean over samples. A solver needs its value, its gradient and its curvature with respect to
``eta`` and nothing else; to add one is to write these three formulas (see CONTRIBUTING.md).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np


class Loss(Protocol):
    """A loss on the linear predictor ``eta``; every method is a pure function of its arguments."""

    name: str
    #: Whether the curvature is the same at every eta. Then one Gram matrix serves a whole fit, and
    #: the intercept is had by centring instead of by a column of ones.
    constant_curvature: bool
    #: A bound on the second derivative of ``l`` in eta, for step sizes; inf if there is none.
    curvature_bound: float

    def check_target(self, y: np.ndarray) -> None:
        """Raise a ``ValueError`` if ``y`` has values that the loss cannot take."""
        ...

    def value(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> float: ...

    def gradient(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray: ...

    def curvature(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray: ...
