"""The minimax concave penalty."""

from __future__ import annotations

from typing import Any

import numpy as np

from .folded import FoldedConcave


class MCP(FoldedConcave):
    r"""The minimax concave penalty of Zhang (2010), with ``gamma > 1``:

    .. math:: p(t; \lambda) = \lambda t - t^2 / (2\gamma) \;\text{ for } t \le \gamma\lambda, \qquad
              \gamma\lambda^2/2 \;\text{ beyond.}

    ``gamma=inf`` is the l1 norm. The weights are :math:`p'(t)/\lambda = (1 - t/(\gamma\lambda))_+`.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.penalties import MCP
    >>> MCP(gamma=2.0).bind(2).weights(np.array([1.0, 5.0]), alpha=1.0)
    array([0.5, 0. ])

    References
    ----------
    Zhang, C.-H. (2010). Nearly unbiased variable selection under minimax concave penalty.
    Annals of Statistics 38(2), 894-942.
    """

    name = "mcp"
    _gamma_minimum = 1.0

    def __init__(self, gamma: float = 2.5, penalty_factor: Any = None, *, groups: Any = None, q: float = 2):
        super().__init__(gamma, penalty_factor, groups=groups, q=q)

    def _end(self, level):
        """Where the penalty turns flat."""
        return np.full_like(level, np.inf) if np.isinf(self.gamma) else self.gamma * level

    def _pointwise(self, size, level):
        size = np.minimum(size, self._end(level))
        return level * size - size**2 / (2 * self.gamma)

    def _slope(self, size, level):
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(level > 0, np.maximum(1.0 - size / self._end(level), 0.0), 0.0)

    def _candidates(self, size, level, step):
        end = self._end(level)
        curvature = 1.0 - step / self.gamma
        inside = np.divide(size - step * level, curvature, out=np.zeros_like(size), where=curvature != 0)
        return (np.clip(inside, 0.0, end),)
