"""The smoothly clipped absolute deviation."""

from __future__ import annotations

from typing import Any

import numpy as np

from .folded import FoldedConcave


class SCAD(FoldedConcave):
    r"""The SCAD penalty of Fan and Li (2001), with ``gamma > 2``:

    .. math:: p'(t; \lambda) = \lambda \;\text{ for } t \le \lambda, \quad
              (\gamma\lambda - t)/(\gamma - 1) \;\text{ for } \lambda < t \le \gamma\lambda, \quad
              0 \;\text{ beyond.}

    ``gamma=inf`` is the l1 norm. The weights are :math:`p'(t)/\lambda`.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.penalties import SCAD
    >>> SCAD(gamma=3.0).bind(3).weights(np.array([0.5, 2.0, 4.0]), alpha=1.0)
    array([1. , 0.5, 0. ])

    References
    ----------
    Fan, J. and Li, R. (2001). Variable selection via nonconcave penalized likelihood and its
    oracle properties. Journal of the American Statistical Association 96, 1348-1360.
    """

    name = "scad"
    _gamma_minimum = 2.0

    def __init__(self, gamma: float = 3.0, penalty_factor: Any = None, *, groups: Any = None, q: float = 2):
        super().__init__(gamma, penalty_factor, groups=groups, q=q)

    def _pointwise(self, size, level):
        if np.isinf(self.gamma):
            return level * size
        linear = level * np.minimum(size, level)
        t = np.clip(size, level, self.gamma * level) - level
        return linear + level * t - t**2 / (2 * (self.gamma - 1))

    def _slope(self, size, level):
        if np.isinf(self.gamma):
            return np.where(level > 0, 1.0, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            tail = np.clip((self.gamma - size / level) / (self.gamma - 1), 0.0, 1.0)
        return np.where(level > 0, tail, 0.0)

    def _candidates(self, size, level, step):
        soft = np.clip(size - step * level, 0.0, level)
        if np.isinf(self.gamma):
            return (np.maximum(size - step * level, 0.0),)
        curvature = 1.0 - step / (self.gamma - 1)
        numerator = size - step * self.gamma * level / (self.gamma - 1)
        middle = np.divide(numerator, curvature, out=level.copy(), where=curvature != 0)
        return (soft, np.clip(middle, level, self.gamma * level), level, self.gamma * level)
