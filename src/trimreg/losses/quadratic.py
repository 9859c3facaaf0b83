"""Least squares."""

from __future__ import annotations

import numpy as np

from .base import Loss


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
    constant_curvature = True
    curvature_bound = 1.0

    def check_target(self, y):
        largest = np.max(np.abs(y), initial=0.0)
        if largest > 1e152:  # its square would be no number
            raise ValueError(f"y must be at most 1e152 in size; got {largest:.3g}. Rescale it")

    def value(self, eta, y, d):
        residual = eta - y
        return 0.5 * float(np.dot(d * residual, residual))

    def gradient(self, eta, y, d):
        return d * (eta - y)

    def curvature(self, eta, y, d):
        return d
