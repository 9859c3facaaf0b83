"""The base class of the folded concave penalties (MCP, SCAD): the prox by comparing stationary points."""

from __future__ import annotations

import numbers
from typing import Any, cast

import numpy as np

from .base import Penalty


class FoldedConcave(Penalty):
    """A penalty ``sum_j p(|theta_j|; alpha f_j)`` with p concave, flat beyond ``gamma alpha f_j``."""

    _gamma_minimum: float
    _unit: np.ndarray

    def __init__(self, gamma: float, penalty_factor: Any = None, *, groups: Any = None, q: float = 2):
        self.gamma = gamma
        super().__init__(penalty_factor, groups=groups, q=q)

    def bind(self, n_features: int, n_outputs: int = 1) -> Penalty:
        gamma = self.gamma
        if not isinstance(gamma, numbers.Real) or not gamma > self._gamma_minimum:
            raise ValueError(f"gamma must be a number above {self._gamma_minimum}; got {gamma!r}")
        return super().bind(n_features, n_outputs)

    # A folded penalty depends on more than r_j = f_j |theta_j|. So in coordinates theta * scale it keeps the
    # scale as `_unit` and is evaluated at |theta| itself.

    def _with_factor(self, factor):
        self._unit = np.ones_like(factor)
        return super()._with_factor(factor)

    def rescaled(self, scale: np.ndarray) -> Penalty:
        other = cast(FoldedConcave, super().rescaled(scale))
        other._unit = self._unit * self.norm.largest_in_part(scale)
        return other

    def restricted(self, parts: np.ndarray) -> Penalty:
        other = cast(FoldedConcave, super().restricted(parts))
        other._unit = self._unit[parts]
        return other

    def extended(self, count: int = 1) -> Penalty:
        other = cast(FoldedConcave, super().extended(count))
        other._unit = np.append(self._unit, np.ones(other.norm.count - self.norm.count))
        return other

    def _original(self, size, alpha, factor):
        """|theta_j| and the level ``alpha f_j`` in the original coordinates."""
        unit = self._unit[self._regular]
        return size / unit, alpha * (factor * unit)

    def _pointwise(self, size, level):
        """p(size; level), elementwise."""
        raise NotImplementedError

    def _slope(self, size, level):
        """p'(size; level) / level, elementwise; 0 where the level is."""
        raise NotImplementedError

    def _candidates(self, size, level, step):
        """The stationary point of the prox objective on each piece of p, clipped to the piece."""
        raise NotImplementedError

    def _value(self, size, alpha, factor):
        return self._pointwise(*self._original(size, alpha, factor)).sum()

    def _weights(self, size, alpha, factor, tie):
        return self._slope(*self._original(size, alpha, factor))

    def _prox(self, size, alpha, step, factor):
        return self._bounded_prox(size, alpha, step, factor, np.inf)

    def _bounded_prox(self, size, alpha, step, factor, limit):
        # On each piece the objective is quadratic, so its minimum over the piece is at the clipped stationary
        # point (convex) or at an end (concave); the ends belong to neighboring pieces or are 0. The lowest of
        # all candidates is the global minimum for every step, and clipping all gives that within the limit.
        unit = self._unit[self._regular]
        size, level = self._original(size, alpha, factor)
        step = step / unit**2
        points = np.vstack([np.zeros_like(size), *self._candidates(size, level, step), size])
        points = np.minimum(points, limit / unit)
        cost = (points - size) ** 2 / (2 * step) + self._pointwise(points, level)
        return unit * np.take_along_axis(points, np.argmin(cost, axis=0)[None], axis=0)[0]
