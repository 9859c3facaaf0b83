r"""Bounds for losses other than least squares, from the conjugate of the loss.

For any g with :math:`Z_A'g = 0` on the columns A that are never penalized (the intercept among them),

.. math:: \min F \ge -L^*(g) - \sum_j B_j - \text{(sum of the h largest) } (A_j - B_j), \qquad
          A_j = \frac{\|z_j'g\|^2}{2\rho_j},\quad B_j = \frac{(\|z_j'g\| - t_j)_+^2}{2\rho_j},

with the ridge :math:`\rho > 0`, since :math:`L(\eta) \ge g'\eta - L^*(g)`. A gradient of L is such a g up to
a small projection. It is taken at points that minimize quadratic models of the loss plus the relaxed penalty;
how well these converge decides how tight the bound is, never whether it holds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from . import kernels
from .kernels import FREE
from .relaxation import Quadratic, Relaxation, Solution

_EPS = float(np.finfo(float).eps)
_STEPS = 12  # models per node
_STEPS_AT_END = 60  # models where every part is decided, or at the root
_SHARES = (1.0, 1.0 - 1e-12, 1.0 - 1e-9, 1.0 - 1e-6, 0.999, 0.99, 0.9, 0.7, 0.4)
_CAUTION = 1.1  # the curvature of a model, in units of that of the loss at the root


class GeneralRelaxation(Relaxation):
    """The nodes of a problem with columns Z of its parts and columns ``always`` that are not penalized."""

    rebuilds = False

    def __init__(
        self, loss: Any, y: np.ndarray, d: np.ndarray, Z: np.ndarray, always: np.ndarray, ridge: np.ndarray,
        start: np.ndarray, threshold: np.ndarray, parts: np.ndarray, count: int,
    ):  # fmt: skip
        self.loss, self.y, self.d, self.Z, self.always = loss, y, d, Z, always
        self._shift = np.zeros(always.shape[1])
        at_null = self._settled(np.zeros(len(y)))
        constant = float(loss.value(at_null, y, d))
        self._scale = max(abs(constant), float(np.abs(loss.gradient(at_null, y, d)).sum()))
        quadratic = Quadratic(
            np.empty((0, 0)), np.zeros(Z.shape[1]), self._scale, start, threshold, parts, count
        )
        delta, none = np.minimum.reduceat(ridge, start[:-1]), np.empty(0, dtype=np.intp)
        bounded = np.isfinite(loss.curvature_bound)
        super().__init__(quadratic, none, 0.0, self._hessian(loss.curvature(at_null, y, d)), delta)
        self._safe = Relaxation(
            quadratic, none, 0.0, self._hessian(loss.curvature_bound * d) if bounded else 4.0 * self.M, delta
        )
        state = np.zeros(parts.size, dtype=np.int8)
        found = self.solve(state, np.zeros(Z.shape[1]), 0.0, np.inf, _STEPS_AT_END)
        curvature = loss.curvature(self._settled(Z @ found.theta), y, d)
        super().__init__(quadratic, none, 0.0, self._hessian(_CAUTION * curvature), delta)
        if not bounded:
            self._safe = Relaxation(quadratic, none, 0.0, 4.0 * self.M, delta)

    def _hessian(self, curvature):
        """The Hessian for these curvatures, minimized over the columns that are never penalized."""
        curvature = np.maximum(curvature, 1e-2 * np.max(curvature / np.maximum(self.d, 1e-300)) * self.d)
        weighted = curvature[:, None] * self.Z
        H = self.Z.T @ weighted
        if self.always.shape[1]:
            cross, block = self.always.T @ weighted, self.always.T @ (curvature[:, None] * self.always)
            H -= cross.T @ np.linalg.lstsq(block, cross, rcond=None)[0]
        return np.ascontiguousarray(0.5 * (H + H.T))

    def _settled(self, eta):
        """The predictor with the best shift by the columns that are never penalized: Newton's method."""
        if not self._shift.size:
            return eta
        for _ in range(25):
            here = eta + self.always @ self._shift
            slope = self.always.T @ self.loss.gradient(here, self.y, self.d)
            curvature = self.loss.curvature(here, self.y, self.d)
            hessian = self.always.T @ (curvature[:, None] * self.always)
            hessian.flat[:: len(hessian) + 1] *= 1.0 + 1e-10
            try:
                step = cho_solve(cho_factor(hessian), slope)
            except (np.linalg.LinAlgError, ValueError):
                break
            value, share = self.loss.value(here, self.y, self.d), 1.0
            while share > 1e-6:
                moved = self._shift - share * step
                if self.loss.value(eta + self.always @ moved, self.y, self.d) <= value + 1e-14 * abs(value):
                    break
                share *= 0.5
            self._shift = moved
            if float(slope @ step) <= 1e-22 * (abs(value) + 1e-12):
                break
        return eta + self.always @ self._shift

    def _dual(self, eta):
        """The gradient at a predictor, projected so that it is orthogonal to the columns ``always``."""
        g = self.loss.gradient(eta, self.y, self.d)
        if self._shift.size:
            # In the metric of the curvature a change by a small share moves no sample out of the domain of
            # the conjugate. Where too many curvatures are 0, as for Huber's loss, all samples are moved.
            for metric in (self.loss.curvature(eta, self.y, self.d), self.d):
                weighted = metric[:, None] * self.always
                for _ in range(2):
                    shift = np.linalg.lstsq(self.always.T @ weighted, self.always.T @ g, rcond=None)[0]
                    g = g - weighted @ shift
                if self._orthogonal(g):
                    break
        for share in _SHARES:  # 0 is in every domain, and the domain is convex
            if np.isfinite(self.loss.conjugate(share * g, self.y, self.d)):
                return share * g
        return np.zeros_like(g)

    def _orthogonal(self, g):
        """Whether g is orthogonal to the columns that are never penalized, up to rounding."""
        left = np.abs(self.always.T @ g)
        return bool(np.all(left <= 1e-13 * (np.abs(self.always).T @ np.abs(g))))

    def solve(self, state, theta, price, cutoff, rounds=_STEPS, tol=1e-7) -> Solution:
        """Raise the bound of the node with these decisions, from a point and a price."""
        k = self.quadratic
        count = k.count - int(np.count_nonzero(state == FREE))
        steps = _STEPS_AT_END if rounds >= _STEPS_AT_END or (state != 0).all() else min(rounds, _STEPS)
        best: Any = None
        stalled, model = 0, self
        for _ in range(steps):
            eta = self._settled(self.Z @ theta)
            found = self.valued(state, theta, price, point=self._dual(eta))
            rise = np.inf if best is None else found.bound - best.bound
            best = found if best is None or rise > 0 else best
            stalled = stalled + 1 if rise <= 1e-7 * self._scale else 0
            if best.bound >= cutoff or stalled >= (2 if model is self else 6):
                break
            if rise < 0 and model is self:  # its curvature is too small here
                model, theta, price = self._safe, best.theta, best.price
                eta = self._settled(self.Z @ theta)
            c = model.M @ theta - self.Z.T @ self.loss.gradient(eta, self.y, self.d)
            _, price, _, theta = kernels.relax(
                self._scale, model.M, c, k.start, model.largest, self.delta, k.threshold, state, count, theta,
                price, np.inf, 8, tol,
            )  # fmt: skip
        return best

    def valued(self, state, theta, price=0.0, solved=False, point=None) -> Solution:
        """The bound of the dual point g, rounded down."""
        k = self.quadratic
        count = k.count - int(np.count_nonzero(state == FREE))
        conjugate = float(self.loss.conjugate(point, self.y, self.d))
        q = self.Z.T @ point
        error = 4.0 * _EPS * len(point) * float(np.abs(point).sum()) * float(np.abs(self.Z).max(initial=0.0))
        q = q + np.where(q >= 0, error, -error)
        gain = np.empty(k.parts.size)
        taken = kernels.gains(q, k.start, self.delta, k.threshold, state, gain)
        last, following, top = kernels.largest_gains(gain, count)
        bound = -conjugate - (taken + top) * (1.0 + 1e-13) - 1e-12 * self._scale
        if not np.isfinite(bound) or not self._orthogonal(point):
            bound = -np.inf
        return Solution(bound, price, solved, theta, gain, last, following, point)

    def decided(self, state, near):
        return self, self.solve(state, near.theta, near.price, np.inf, _STEPS_AT_END, 1e-12)

    def child(self, state):
        return None
