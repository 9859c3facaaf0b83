"""The trimmed l1 penalty."""

from __future__ import annotations

import copy
import numbers
from typing import Any, cast

import numpy as np

from .base import Penalty


def count_from(h: Any, n_features: int, name: str = "h", of: str = "the number of features") -> int:
    """``h`` as a number of features: itself, or a fraction of them.

    Examples
    --------
    >>> from trimreg.penalties import count_from
    >>> count_from(3, 10), count_from(0.25, 10), count_from(None, 45)
    (3, 2, 4)
    """
    allowed = f"an integer from 0 to {of} {n_features}, or a fraction in (0, 1)"
    if h is None:  # a tenth of the features, as scikit-learn's orthogonal matching pursuit
        return min(n_features, max(1, n_features // 10))
    if isinstance(h, numbers.Real) and not isinstance(h, (bool, np.bool_)):
        if isinstance(h, numbers.Integral) and 0 <= int(h) <= n_features:
            return int(h)
        if not isinstance(h, numbers.Integral) and 0.0 < float(h) < 1.0:
            return round(float(h) * n_features)
    raise ValueError(f"{name} must be {allowed}; got {h!r}")


def largest(magnitude: np.ndarray, count: int, tie_break: np.ndarray | None = None) -> np.ndarray:
    """Indices of the ``count`` largest entries; ties go to the larger ``tie_break``, then to the lower index.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.penalties import largest
    >>> largest(np.array([1.0, 3.0, 1.0, 0.0]), 2)
    array([0, 1])
    >>> largest(np.array([1.0, 3.0, 1.0, 0.0]), 2, tie_break=np.array([0.0, 0.0, 5.0, 9.0]))
    array([1, 2])
    """
    if count <= 0:
        return np.empty(0, dtype=np.intp)
    if count >= magnitude.size:
        return np.arange(magnitude.size)
    nonzero = magnitude[magnitude > 0]  # sparse vectors: selection is slow among many equal zeros
    place = nonzero.size - count
    threshold = np.partition(nonzero, place)[place] if place >= 0 else 0.0
    above = np.flatnonzero(magnitude > threshold)
    tied = np.flatnonzero(magnitude == threshold)
    missing = count - above.size
    if missing < tied.size:
        order = slice(None) if tie_break is None else np.argsort(-tie_break[tied], kind="stable")
        tied = tied[order][:missing]
    return np.sort(np.concatenate([above, tied]))


class TrimmedL1(Penalty):
    r"""The trimmed l1 penalty: the h largest coefficients go free,

    .. math:: \alpha \min_{w \in S} \sum_j w_j f_j |\theta_j| = \alpha \sum_{j > h} r_{(j)}, \qquad
              S = \{0 \le w \le 1,\ 1'w = p - h\}.

    Parameters
    ----------
    h : int, float in (0, 1) or None
        Number (or fraction) of coefficients, or of groups, without a penalty. None is a tenth.
    penalty_factor, groups, q
        As in :class:`~trimreg.penalties.base.Penalty`: ``r_j`` may be the norm of a group.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.penalties import TrimmedL1
    >>> penalty = TrimmedL1(h=1).bind(3)
    >>> theta = np.array([5.0, -2.0, 1.0])
    >>> penalty.value(theta, alpha=1.0), penalty.weights(theta, alpha=1.0)
    (3.0, array([0., 1., 1.]))
    >>> penalty.prox(theta, alpha=1.0, step=1.5)
    array([ 5. , -0.5,  0. ])
    >>> TrimmedL1(h=1, groups=["a", "b", "b"], q=float("inf")).bind(3).value(theta, alpha=1.0).__round__(3)
    2.828

    References
    ----------
    Yun, Zheng, Yang, Lozano and Aravkin, M-estimation with the trimmed l1 penalty, equation (2).
    """

    name = "trimmed_l1"
    _h: int

    def __init__(
        self, h: float | None = None, penalty_factor: Any = None, *, groups: Any = None, q: float = 2
    ):
        self.h = h
        super().__init__(penalty_factor, groups=groups, q=q)

    def bind(self, n_features: int, n_outputs: int = 1) -> TrimmedL1:
        bound = cast(TrimmedL1, super().bind(n_features, n_outputs))
        of = f"the number of {'features' if self.groups is None else 'groups'}"
        bound._h = count_from(self.h, bound.norm.count, of=of)
        return bound

    @property
    def n_free(self) -> int:  # type: ignore[override]
        """h as a count, at most the number of parts that can be penalized."""
        return min(self._h, self._regular.size)

    @property
    def constant_weights(self) -> bool:  # type: ignore[override]
        """Whether all parts are free or none is."""
        return self.n_free in (0, self._regular.size)

    def freeing(self, h: int) -> TrimmedL1:
        """The same bound penalty with another h."""
        other = copy.copy(self)
        other._h = h
        return other

    def _value(self, size, alpha, factor):
        nonzero = np.flatnonzero(size)
        if nonzero.size <= self.n_free:
            return 0.0
        r = factor[nonzero] * size[nonzero]
        penalized = r.size - self.n_free
        return alpha * (np.partition(r, penalized)[:penalized].sum() if self.n_free else r.sum())

    def _weights(self, size, alpha, factor, tie):
        weights = np.ones_like(size)
        weights[largest(factor * size, self.n_free, tie)] = 0.0
        return weights

    def _prox(self, size, alpha, step, factor):
        # Freeing j saves the cost of the soft-thresholded entry, a Huber function of z_j. So the entries with
        # the h largest savings are free; with equal factors these are the h largest |z_j|.
        threshold = step * alpha * factor
        clipped = np.minimum(size, threshold)
        saving = clipped * (size - clipped / 2)
        x = np.maximum(size - threshold, 0.0)
        free = largest(saving, self.n_free, tie_break=size)
        x[free] = size[free]
        return x

    def _bounded_prox(self, size, alpha, step, factor, limit):
        # Both the free and the shrunken entry are clipped, and the saving is the difference of their costs.
        threshold = step * alpha * factor
        x, whole = np.minimum(np.maximum(size - threshold, 0.0), limit), np.minimum(size, limit)
        saving = (whole - x) * (size - 0.5 * (whole + x)) + threshold * x
        free = largest(saving, self.n_free, tie_break=size)
        x[free] = whole[free]
        return x

    def _whole_prox(self, z, alpha, step, limit=None):
        if self.norm.q != np.inf:
            return super()._whole_prox(z, alpha, step, limit)
        # The saving is the cost of the shrunken part: ||z - x||^2 / 2 + t ||x||.
        norm, j = self.norm, self._regular
        threshold = self.thresholds(np.where(self._excluded, 1.0, self._factor > 0), step * alpha)
        x = norm.shrink(z, threshold)
        gap = np.bincount(norm.label, (z - x) ** 2 / 2, minlength=norm.count)
        saving = gap[j] + threshold[j] * norm.lengths(x)[j]
        free = np.zeros(norm.count, dtype=bool)
        free[j[largest(saving, self.n_free, tie_break=norm.lengths(z)[j])]] = True
        return np.where(norm.spread(free), z, x)

    # -- weights as variables --------------------------------------------------------------------

    def uniform_weights(self) -> np.ndarray:
        """``w0 = (p - h)/p``, the center of S and the start of the paper's Algorithm 1."""
        count = self._regular.size
        weights = self._excluded.astype(float)
        weights[self._regular] = (count - self.n_free) / count if count else 0.0
        return weights

    def project_weights(self, weights: np.ndarray) -> np.ndarray:
        """The projection of ``weights`` onto S."""
        from .simplex import project_vector  # compiled, so imported when needed

        j = self._regular
        projected = self._excluded.astype(float)
        projected[j] = project_vector(weights[j], float(j.size - self.n_free))
        return projected

    def checked_weights(self, weights: Any, name: str = "weights") -> np.ndarray:
        """``weights`` as an array in S; a ValueError about ``name`` if they are not in S up to rounding.

        Entries of parts that are never penalized or excluded are replaced by 0 or 1.
        """
        weights = super().checked_weights(weights, name)
        penalized, total = weights[self._regular], self._regular.size - self.n_free
        if abs(penalized.sum() - total) > 1e-9 * max(penalized.size, 1):
            raise ValueError(
                f"{name} must sum to the number of penalized coordinates, {total}; got {penalized.sum():.10g}"
            )
        return self.project_weights(weights)

    def stationarity(
        self, theta: np.ndarray, weights: np.ndarray, gradient: np.ndarray, alpha: float,
        bounds: Any = None,
    ) -> float:  # fmt: skip
        """The paper's T with both parts: 0 at a pair that is stationary in theta and in w."""
        from .simplex import distance_to_optimal_weights

        j = self._regular
        magnitude = alpha * self._factor[j] * self.norm.lengths(theta)[j]
        part = super().stationarity(theta, weights, gradient, alpha, bounds)
        free, paid = magnitude[weights[j] == 0], magnitude[weights[j] == 1]
        if free.size + paid.size == j.size and np.max(paid, initial=0.0) <= np.min(free, initial=np.inf):
            return part  # the weights are those of the h largest
        return part + distance_to_optimal_weights(magnitude, weights[j])
