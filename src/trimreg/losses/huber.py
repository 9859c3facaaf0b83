"""Huber's robust regression with a given or an estimated scale."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from .base import SMALLEST, Loss, require_finite
from .quadratic import check_size

_SMALLEST_SCALE = 1e-8  # in units of the spread of y
_SMALL_SCALE = 1e5  # in units of the smallest


class Huber(Loss):
    r"""Least squares for residuals up to epsilon times a scale s, absolute error beyond.

    With :math:`H(z) = z^2` for :math:`|z| \le \epsilon` and :math:`2 \epsilon |z| - \epsilon^2` beyond, and
    residuals :math:`r = y - \eta`,

    .. math:: L(\eta) = \tfrac12 \sum_i d_i\, s H(r_i / s) \quad\text{for a given scale s, else}\quad
              L(\eta) = \min_{s \ge s_0} \tfrac12 \sum_i d_i \bigl[s + s H(r_i / s)\bigr].

    The second is the criterion of scikit-learn's ``HuberRegressor`` (times 1/2), minimized over its scale
    (Huber and Ronchetti, Robust Statistics, 2009, section 7.7: the concomitant scale). It is jointly convex,
    so L is convex in eta. The floor :math:`s_0`, 1e-8 times the spread of y, allows for residuals 0.

    Parameters
    ----------
    epsilon : float
        Where the absolute error begins, in units of the scale; above 1 if the scale is estimated.
    scale : float, optional
        The scale of the errors; estimated by default.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.losses import Huber
    >>> y, d = np.array([0.1, -0.1, 0.2, -0.2, 50.0]), np.full(5, 0.2)
    >>> Huber(scale=0.1).gradient(np.zeros(5), y, d).round(2).tolist()
    [-0.2, 0.2, -0.27, 0.27, -0.27]
    >>> bool(0.1 < Huber().scale_at(np.zeros(5), y, d) < 0.3)
    True
    """

    name = "huber"
    working_vectors = 16
    equivariant = True

    def __init__(self, epsilon: float = 1.35, scale: float | None = None):
        if scale is None and not 1 < epsilon < np.inf:
            raise ValueError(f"epsilon must be > 1 and finite if the scale is estimated; got {epsilon!r}")
        if not 0 < epsilon < np.inf:
            raise ValueError(f"epsilon must be > 0 and finite; got {epsilon!r}")
        if scale is not None and not 0 < scale < np.inf:
            raise ValueError(f"scale must be None or a finite number > 0; got {scale!r}")
        self.epsilon, self.scale = epsilon, scale
        self.separable = scale is not None
        self.curvature_bound = np.inf if scale is None else 1.0 / scale
        self._floor: float | None = None

    def check_target(self, y: np.ndarray) -> None:
        require_finite(y)
        check_size(y)

    def bound(self, y: np.ndarray, d: np.ndarray) -> Loss:
        other = copy.copy(self)
        other._floor = smallest_scale(y, d)
        return other

    def scale_at(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> float:
        """The given scale, or the minimizing one at these predictors."""
        if self.scale is not None:
            return self.scale
        return concomitant_scale(np.abs(y - eta), d, self.epsilon, self._smallest_scale(y, d))

    def estimates(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> dict[str, Any]:
        return {"scale": float(self.scale_at(eta, y, d))}

    def _smallest_scale(self, y, d):
        return smallest_scale(y, d) if self._floor is None else self._floor

    def pointwise(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray | None = None) -> np.ndarray:
        d = np.full(len(y), 1.0 / len(y)) if d is None else d
        scale = self.scale_at(eta, y, d)
        size = np.abs(y - eta)
        within = np.minimum(size, self.epsilon * scale)
        losses = 0.5 * within * (within / scale) + self.epsilon * (size - within)
        return losses + 0.5 * scale if self.scale is None else losses

    def value(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> float:
        return float(d @ self.pointwise(eta, y, d))

    def gradient(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        """The derivative at the minimizing scale as if it were fixed, by the envelope theorem."""
        scale = self.scale_at(eta, y, d)
        limit = self.epsilon * scale
        return d * (np.clip(eta - y, -limit, limit) / scale)

    def curvature(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        """``d_i / s`` for residuals within epsilon s, else 0; for an estimated scale an upper bound."""
        return self._hessian(eta, y, d)[0]

    def gram(self, design: Any, W: np.ndarray, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        r"""With an estimated scale, and a the curvature of :meth:`curvature`, the Hessian is

        .. math:: \mathrm{diag}(a) - \frac{(a r)(a r)'}{\sum_i a_i r_i^2},

        since s changes with eta such that :math:`\sum_i d_i \min(r_i^2 / s^2, \epsilon^2)` is constant.
        """
        a, pull = self._hessian(eta, y, d)
        if pull is None:
            return design.gram(W, a, W)
        # As a square, since the difference may be nothing but rounding if few residuals are within epsilon s.
        unit = np.divide(pull, a, out=np.zeros_like(a), where=a > 0)
        if design.streamed:
            return deflated_gram(design, W, a, unit, design.weighted_sums(W, pull))
        Z = design.columns(W)
        Z = Z - np.outer(unit, pull @ Z)
        return Z.T @ (a[:, None] * Z)

    def _hessian(self, eta, y, d):
        """Vectors a and u with Hessian ``diag(a) - u u'``; u is None if the scale is fixed."""
        scale, residual = self.scale_at(eta, y, d), y - eta
        inside = np.abs(residual) <= self.epsilon * scale
        a = np.where(inside, d, 0.0) / scale
        if self.scale is not None or scale <= self._smallest_scale(y, d):
            return a, None
        residual = np.where(inside, residual, 0.0)
        length = np.sqrt(a @ residual**2)
        return a, a * residual / length if length > 0 else None

    def slope_bound(self, y: np.ndarray, d: np.ndarray) -> float:
        r""":math:`\min(\epsilon, \sqrt{2 L(0) / s})` for a given scale, 1 for an estimated one.

        The sum is :math:`\sum_i d_i \min(z_i^2, \epsilon^2)` with :math:`z = r / s`. The first bound is
        immediate, the second follows from :math:`l'' \le 1/s` and :math:`l \ge 0`. At an estimated scale the
        sum is 1 (less at the floor): that is the condition of the minimizing s.
        """
        if self.scale is None:
            return float(np.sqrt(d.sum()))
        return float(min(self.epsilon, np.sqrt(2.0 * self.value(np.zeros_like(y), y, d) / self.scale)))

    def conjugate(self, g: np.ndarray, y: np.ndarray, d: np.ndarray) -> float:
        r""":math:`\sum_i g_i y_i + s g_i^2 / (2 d_i)` if :math:`|g_i| \le \epsilon d_i`, for a given scale s.

        Slopes beyond epsilon by no more than rounding are allowed.
        """
        if self.scale is None:
            raise NotImplementedError
        g, y, d = g[d > 0], y[d > 0], d[d > 0]
        if np.any(np.abs(g) > self.epsilon * d * (1.0 + 1e-12)):
            return float("inf")
        return float(g @ y + 0.5 * self.scale * np.sum(g * (g / d)))

    def null_predictor(self, y: np.ndarray, d: np.ndarray) -> float:
        """Newton's method between the smallest and the largest y, from the median."""
        counted = y[d > 0]
        low, high = float(counted.min()), float(counted.max())
        width, center = high - low, float(np.median(counted))
        for _ in range(100):
            eta = np.full_like(y, center)
            slope = float(self.gradient(eta, y, d).sum())
            low, high = (low, center) if slope > 0 else (center, high)
            a, pull = self._hessian(eta, y, d)
            curvature = float(a.sum()) - (0.0 if pull is None else float(pull.sum()) ** 2)
            following = center - slope / curvature if curvature > 0 else np.nan
            if not low <= following <= high:
                following = 0.5 * (low + high)
            moved, center = abs(following - center), following
            if moved <= 1e-12 * width:
                break
        return center

    def trouble(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> str:
        """An estimated scale below 1e-3 of the spread of y, where the loss has all but kinks."""
        if self.scale is not None or self.scale_at(eta, y, d) > _SMALL_SCALE * self._smallest_scale(y, d):
            return ""
        return (
            "the fit interpolates most samples, so that the estimated scale of the errors falls to 0; give a "
            "larger alpha, a smaller h, or the scale"
        )

    def deviance(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray, n: float) -> float:
        """``2 n L / s`` for a given scale s, ``2 n log L`` for an estimated one.

        The first belongs to the density proportional to ``exp(-H(r/s)/2)``. In the second, L takes the place
        of the scale: it is the Gaussian ``n log(mean r^2)`` if no residual is beyond epsilon, and tends to
        the Laplace ``2 n log(mean |r|)`` as epsilon tends to 1, each with its maximum likelihood scale.
        """
        value = self.value(eta, y, d)
        if self.scale is not None:
            return 2.0 * n * value / self.scale
        return 2.0 * n * float(np.log(max(value, SMALLEST)))


def deflated_gram(
    design: Any, W: np.ndarray, a: np.ndarray, unit: np.ndarray, sums: np.ndarray
) -> np.ndarray:
    """``C' diag(a) C`` for ``C = Z_W - unit sums'``, by blocks of rows."""
    total, start = np.zeros((len(W), len(W))), 0
    for Z in design.row_blocks(W):
        rows = slice(start, start + len(Z))
        Z -= np.outer(unit[rows], sums)  # blocks are copies
        total += Z.T @ (a[rows, None] * Z)
        start += len(Z)
    return total


def smallest_scale(y: np.ndarray, d: np.ndarray) -> float:
    """1e-8 times the spread of y, the median distance from the median of the values that differ from it."""
    counted = y[d > 0]
    center = float(np.median(counted))
    distance = np.abs(counted - center)
    distance = distance[distance > 0]
    return _SMALLEST_SCALE * (float(np.median(distance)) if distance.size else abs(center) or 1.0)


def concomitant_scale(size: np.ndarray, d: np.ndarray, epsilon: float, floor: float) -> float:
    r"""The s with :math:`\sum_i d_i \min(r_i^2 / s^2, \epsilon^2) = \sum_i d_i` for residuals of that size.

    In :math:`t = 1 / s^2` the left hand side is concave, increasing and piecewise linear. So Newton's method
    from the root of its first piece increases and reaches the root after finitely many steps. The result is
    ``floor`` if the root is smaller or does not exist, as when most residuals are 0.
    """
    if not (d > 0).all():
        size, d = size[d > 0], d[d > 0]
    unit = float(size.max(initial=0.0))
    if unit <= floor:
        return floor
    square, total = size / unit, float(d.sum())  # in units of the largest, so that squares do not overflow
    square *= square
    t = total / float(d @ square)
    while unit / np.sqrt(t) > floor:
        outside = square * t > epsilon**2
        slope = float(d[~outside] @ square[~outside])
        if slope <= 0:  # the remaining residuals are 0
            return floor
        following = (total - epsilon**2 * float(d[outside].sum())) / slope
        if following <= t * (1 + 1e-15):
            break
        t = following
    return max(unit / float(np.sqrt(t)), floor)
