r"""What a penalty is: magnitudes, and a rule that turns them into weights.

Every penalty here is, or is majorized by, a weighted l1 norm

.. math:: \alpha \sum_j w_j r_j(\theta), \qquad r_j(\theta) = f_j |\theta_j|,

where ``f`` is the penalty factor of the features. A coordinate with ``f = 0`` is never penalized and is
not counted in h; one with ``f = inf`` is excluded from the model. A subclass states its value, its
weights and its prox for the features with ``0 < f < inf``; the two special kinds are handled here.
"""

from __future__ import annotations

import copy
from typing import Protocol

import numpy as np


class PenaltyProtocol(Protocol):
    """All that a solver knows of a penalty (bound to a number of features)."""

    #: Number of coordinates that the penalty leaves free, or None if it does not trim.
    n_free: int | None

    def value(self, theta: np.ndarray, alpha: float) -> float: ...

    def weights(self, theta, alpha, gradient=None) -> np.ndarray: ...

    def prox(self, z: np.ndarray, alpha: float, step: float, positive: bool = False) -> np.ndarray: ...

    def thresholds(self, weights: np.ndarray, alpha: float) -> np.ndarray: ...

    def stationarity(self, theta, weights, gradient, alpha, positive=False) -> float: ...


def soft_threshold(z, threshold):
    r""":math:`\arg\min_x \frac12 (x - z)^2 + t |x|`, elementwise; ``t`` may be inf.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.penalties import soft_threshold
    >>> soft_threshold(np.array([3.0, -0.5]), 1.0)
    array([2., 0.])
    """
    return np.sign(z) * np.maximum(np.abs(z) - threshold, 0.0) + 0.0  # + 0.0 turns -0.0 into 0.0


def subgradient_residual(theta, gradient, threshold, positive=False):
    r"""The element of :math:`g_j + t_j \partial|\theta_j|` nearest to 0, for every j.

    At ``theta_j != 0`` the set is the point ``g_j + t_j sign(theta_j)``; at 0 it is the interval
    ``[g_j - t_j, g_j + t_j]``. Where ``theta >= 0`` is required, the normal cone of the constraint adds every
    negative number to the interval at 0, so that only ``g_j + t_j < 0`` is a violation there.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.penalties import subgradient_residual
    >>> subgradient_residual(np.array([1.0, 0.0, 0.0]), np.array([-0.5, 3.0, -3.0]), 1.0)
    array([ 0.5,  2. , -2. ])
    >>> subgradient_residual(np.array([1.0, 0.0, 0.0]), np.array([-0.5, 3.0, -3.0]), 1.0, positive=True)
    array([ 0.5,  0. , -2. ])
    """
    with np.errstate(invalid="ignore"):
        at_zero = np.sign(gradient) * np.maximum(np.abs(gradient) - threshold, 0.0)
        if positive:
            at_zero = np.minimum(gradient + threshold, 0.0)
        away = gradient + np.sign(theta) * threshold
    return np.where(theta == 0, at_zero, away)


def largest_violation(theta, gradient, threshold, positive=False) -> float:
    """The size of the largest :func:`subgradient_residual`: 0 where every optimality condition holds.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.penalties.base import largest_violation
    >>> largest_violation(np.array([1.0, 0.0]), np.array([-0.5, 0.75]), np.array([0.5, 0.5]))
    0.25
    """
    residual = subgradient_residual(theta, gradient, threshold, positive)
    return float(np.max(np.abs(residual), initial=0.0))


class Penalty:
    """Factors and binding; the base of every penalty of the library."""

    n_free: int | None = None

    def __init__(self, penalty_factor=None):
        self.penalty_factor = penalty_factor

    def __repr__(self):
        shown = {k: v for k, v in vars(self).items() if not k.startswith("_") and v is not None}
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in shown.items())})"

    # -- binding -------------------------------------------------------------------------------

    def bind(self, n_features: int) -> Penalty:
        """A copy for that many features, its arguments checked and its factors spread out."""
        bound = copy.copy(self)
        factor = np.ones(n_features) if self.penalty_factor is None else self.penalty_factor
        try:
            factor = np.asarray(factor, dtype=float)
        except (TypeError, ValueError):
            raise ValueError(f"penalty_factor must be an array of numbers; got {factor!r}") from None
        if factor.shape != (n_features,):
            raise ValueError(
                f"penalty_factor must hold one number for each of the {n_features} features; "
                f"got shape {factor.shape}"
            )
        if np.isnan(factor).any() or (factor < 0).any():
            bad = int(np.flatnonzero(~(factor >= 0))[0])
            raise ValueError(
                f"penalty_factor must be >= 0 (inf excludes a feature); got {factor[bad]} for feature {bad}"
            )
        return bound._with_factor(factor)

    def _with_factor(self, factor):
        self._factor = factor
        self._regular = np.flatnonzero((factor > 0) & np.isfinite(factor))
        self._excluded = np.isinf(factor)
        return self

    def rescaled(self, scale: np.ndarray) -> Penalty:
        """The same penalty for coefficients multiplied by ``scale``: its value and the ``r_j`` stay."""
        with np.errstate(invalid="ignore"):
            factor = np.where(self._excluded, np.inf, self._factor / scale)
        return copy.copy(self)._with_factor(factor)

    def extended(self) -> Penalty:
        """The same penalty with one more feature, never penalized: the column of ones."""
        return copy.copy(self)._with_factor(np.append(self._factor, 0.0))

    # -- what solvers ask for --------------------------------------------------------------------

    def magnitudes(self, theta: np.ndarray) -> np.ndarray:
        """``r_j = f_j |theta_j|``, with 0 for excluded features."""
        return np.where(self._excluded, 0.0, np.where(self._excluded, 0.0, self._factor) * np.abs(theta))

    def thresholds(self, weights: np.ndarray, alpha: float) -> np.ndarray:
        """``alpha f_j w_j``: what the weighted l1 problem with these weights penalizes |theta_j| by."""
        with np.errstate(invalid="ignore"):
            return np.where(self._excluded, np.inf, alpha * self._factor * weights)

    def value(self, theta: np.ndarray, alpha: float) -> float:
        """The penalty at theta; inf if an excluded feature has a coefficient."""
        if np.any(theta[self._excluded]):
            return np.inf
        j = self._regular
        return float(self._value(np.abs(theta[j]), alpha, self._factor[j]))

    def weights(self, theta, alpha, gradient=None) -> np.ndarray:
        """The weights at theta: of the exact minimizer over S (trimmed), or of the tangent majorizer.

        A feature that is never penalized has weight 0, an excluded one 1. ``gradient`` of the loss
        breaks ties among equal magnitudes.
        """
        weights = self._excluded.astype(float)
        j = self._regular
        tie = None if gradient is None else np.abs(gradient[j]) / self._factor[j]
        weights[j] = self._weights(np.abs(theta[j]), alpha, self._factor[j], tie)
        return weights

    def prox(self, z, alpha, step=1.0, positive=False) -> np.ndarray:
        r""":math:`\arg\min_x \frac{1}{2 \eta}\|x - z\|^2 + P_\alpha(x)` with step ``eta``, exactly.

        With ``positive``, over ``x >= 0``: every penalty here rises in \|x\|, so that is the prox of
        the positive part of z.
        """
        z = np.asarray(z, dtype=float)
        if positive:
            z = np.maximum(z, 0.0)
        x = np.where(self._excluded, 0.0, z)
        j = self._regular
        size = self._prox(np.abs(z[j]), alpha, step, self._factor[j])
        x[j] = np.where(size == 0, 0.0, np.copysign(size, z[j]))
        return x

    def stationarity(self, theta, weights, gradient, alpha, positive=False) -> float:
        r"""The paper's :math:`T(\theta, w)`: squared distance of 0 from the subdifferential of F.

        The theta part is :math:`\sum_j \mathrm{dist}^2(-g_j, \alpha f_j w_j\, \partial|\theta_j|)`.
        Penalties whose weights are variables add the w part.
        """
        residual = subgradient_residual(theta, gradient, self.thresholds(weights, alpha), positive)
        return float(residual @ residual)

    # -- what a subclass states, for |theta| of the regular features --------------------------------

    def _value(self, size, alpha, factor):
        raise NotImplementedError

    def _weights(self, size, alpha, factor, tie):
        raise NotImplementedError

    def _prox(self, size, alpha, step, factor):
        raise NotImplementedError
