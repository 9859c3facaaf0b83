"""The l1 norm."""

from __future__ import annotations

import numpy as np

from .base import Penalty


class L1(Penalty):
    r"""The l1 norm :math:`\alpha \sum_j f_j |\theta_j|`: every weight is one.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.penalties import L1
    >>> L1().bind(3).value(np.array([1.0, -2.0, 0.0]), alpha=0.5)
    1.5
    """

    name = "l1"
    constant_weights = True

    def _value(self, size, alpha, factor):
        return alpha * np.dot(factor, size)

    def _weights(self, size, alpha, factor, tie):
        return np.ones_like(size)

    def _prox(self, size, alpha, step, factor):
        return np.maximum(size - step * alpha * factor, 0.0)

    def _whole_prox(self, z, alpha, step, limit=None):
        if self.norm.q != np.inf:
            return super()._whole_prox(z, alpha, step, limit)
        return self.norm.shrink(z, self.levels(step * alpha))
