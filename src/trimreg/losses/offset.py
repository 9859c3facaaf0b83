r"""Losses with an offset: a known part of the linear predictor, such as the logarithm of an exposure."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from .base import Loss, require_finite

_SHARED = (
    "name", "curvature_bound", "separable", "sees_constants", "copies_columns", "may_diverge",
    "report_factor", "n_outputs", "convex", "has_nuisance",
)  # fmt: skip


class Shifted(Loss):
    r"""A loss whose samples have offsets o, :math:`L(\eta) = L_0(\eta + o)`.

    The last column of y holds the offsets, and the others are the target of :math:`L_0`. So offsets stay
    with their samples wherever rows are taken.

    Parameters
    ----------
    base : Loss
        :math:`L_0`, with one output.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.losses import Poisson
    >>> from trimreg.losses.offset import Shifted
    >>> y, d = np.array([[3.0, np.log(2.0)]]), np.ones(1)
    >>> Shifted(Poisson()).gradient(np.zeros(1), y, d) == Poisson().gradient(np.log([2.0]), y[:, 0], d)
    array([ True])
    """

    matrix_target = True

    working_vectors: int = 0  # set below

    def __init__(self, base: Loss):
        self.base = base
        self.working_vectors = base.working_vectors + 2
        self._split: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
        for name in _SHARED:
            setattr(self, name, getattr(base, name))

    def check_target(self, y: np.ndarray) -> None:
        if y.ndim != 2:
            raise ValueError(f"y must have a last column of offsets; got shape {y.shape}")
        require_finite(y, n_dimensions=2)
        self.base.check_target(self._parts(y)[0])

    def classes(self, y: np.ndarray) -> Any:
        return self.base.classes(self._parts(y)[0])

    def bound(self, y: np.ndarray, d: np.ndarray) -> Loss:
        target, offset = self._parts(y)
        other = copy.copy(self)
        other.base, other._split = self.base.bound(target, d), (y, target, offset)
        return other

    def _parts(self, y):
        """The target of the base loss and the offsets; the same arrays each time for the bound target."""
        if self._split is not None and self._split[0] is y:
            return self._split[1:]
        return y[:, :-1] if self.base.matrix_target else y[:, 0], y[:, -1]

    def inverse_link(self, eta: np.ndarray) -> np.ndarray:
        return self.base.inverse_link(eta)

    def pointwise(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray | None = None) -> np.ndarray:
        target, offset = self._parts(y)
        return self.base.pointwise(eta + offset, target, d)

    def value(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> float:
        target, offset = self._parts(y)
        return self.base.value(eta + offset, target, d)

    def gradient(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        target, offset = self._parts(y)
        return self.base.gradient(eta + offset, target, d)

    def curvature(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        target, offset = self._parts(y)
        return self.base.curvature(eta + offset, target, d)

    def gram(self, design: Any, W: np.ndarray, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        target, offset = self._parts(y)
        return self.base.gram(design, W, eta + offset, target, d)

    def estimates(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> dict[str, Any]:
        target, offset = self._parts(y)
        return self.base.estimates(eta + offset, target, d)

    def held(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> Loss:
        target, offset = self._parts(y)
        other = copy.copy(self)
        other.base = self.base.held(eta + offset, target, d)
        return other

    def slope_bound_from(self, start: np.ndarray, y: np.ndarray, d: np.ndarray) -> float:
        target, offset = self._parts(y)
        return self.base.slope_bound_from(start + offset, target, d)

    def null_predictor(self, y: np.ndarray, d: np.ndarray) -> float:
        r"""The constant c with :math:`\sum_i g_i(c + o_i) = 0`, where g is the gradient of the base loss.

        The gradient rises with eta. So c lies between :math:`c_0 - \max o` and :math:`c_0 - \min o`, where
        :math:`c_0` is the best constant without offsets.
        """
        from scipy.optimize import brentq

        target, offset = self._parts(y)
        live = offset[d > 0]
        plain = self.base.null_predictor(target, d)
        low, high = plain - live.max(), plain - live.min()

        def slope(constant):
            return float(self.base.gradient(constant + offset, target, d).sum())

        if slope(low) >= 0 or slope(high) <= 0:  # equal offsets, or the best constant is infinite
            return float(low if slope(low) >= 0 else high)
        return float(brentq(slope, low, high, xtol=1e-14))

    def trouble(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> str:
        target, offset = self._parts(y)
        return self.base.trouble(eta + offset, target, d)

    def deviance(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray, n: float) -> float:
        target, offset = self._parts(y)
        return self.base.deviance(eta + offset, target, d, n)

    def baseline(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> Any:
        """:meth:`Cox.baseline` of predictor 0 and offset 0."""
        target, offset = self._parts(y)
        return self.base.baseline(eta + offset, target, d)  # type: ignore[attr-defined]


def with_offset(loss: Loss, y: np.ndarray, offset: np.ndarray) -> tuple[Loss, np.ndarray]:
    """The loss and the target that stand for ``loss`` of y with these offsets.

    If only the difference of y and eta counts, as for least squares, the offset is subtracted from y.
    """
    if loss.least_squares or loss.equivariant:
        return loss, (y.T - offset).T
    if loss.multi_output:
        raise ValueError(f"offset must be None for a loss with several outputs; the loss is {loss.name!r}")
    return Shifted(loss), np.column_stack([y, offset])
