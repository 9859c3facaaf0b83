r"""Bounds for losses other than least squares, from the conjugate of the loss.

For any g with :math:`Z_A'g = 0` on the columns A that are never penalized (the intercept among them),

.. math:: \min F \ge -L^*(g) - \sum_j B_j - \text{(sum of the h largest) } (A_j - B_j), \qquad
          A_j = \frac{\|z_j'g\|^2}{2\rho_j},\quad B_j = \frac{(\|z_j'g\| - t_j)_+^2}{2\rho_j},

with the ridge :math:`\rho > 0`, since :math:`L(\eta) \ge g'\eta - L^*(g)`. A gradient of L is such a g up to
a small projection. It is taken at points that minimize quadratic models of the loss plus the relaxed penalty;
how well these converge decides how tight the bound is, never whether it holds. The children of a node are
compared by one such model, which needs no sample.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from . import kernels
from .kernels import FREE
from .relaxation import Quadratic, Relaxation, Solution

_EPS = float(np.finfo(float).eps)
_STEPS = 12  # models per node
_STEPS_AT_END = 60  # models where every part is decided, or at the root
_SHARES = (1.0, 1.0 - 1e-12, 1.0 - 1e-9, 1.0 - 1e-6, 0.999, 0.99, 0.9, 0.7, 0.4)
_SETTLED = 1e-7  # half of what the best shift still gains, in units of the loss at 0
_ENOUGH = 0.1  # share of what is missing to the cutoff, below which a rise ends the work on a node
_CAUTION = 1.1  # the curvature of a model, in units of that of the loss at the root


class GeneralRelaxation(Relaxation):
    """The nodes of a problem with columns Z of its parts and columns ``always`` that are not penalized."""

    rebuilds = False

    def __init__(
        self, loss: Any, y: np.ndarray, d: np.ndarray, Z: np.ndarray, always: np.ndarray, ridge: np.ndarray,
        start: np.ndarray, threshold: np.ndarray, parts: np.ndarray, count: int,
    ):  # fmt: skip
        self.loss, self.y, self.d, self.Z, self.always = loss, y, d, np.asfortranarray(Z), always
        self._shift, self._size = np.zeros(always.shape[1]), float(np.abs(Z).max(initial=0.0))
        self._scale = abs(float(loss.value(np.zeros(len(y)), y, d)))
        at_null, g, curvature = self._settled(np.zeros(len(y)))
        self._scale = max(abs(float(loss.value(at_null, y, d))), float(np.abs(g).sum()))
        quadratic = Quadratic(
            np.empty((0, 0)), np.zeros(Z.shape[1]), self._scale, start, threshold, parts, count
        )
        delta, none = np.minimum.reduceat(ridge, start[:-1]), np.empty(0, dtype=np.intp)
        bounded = np.isfinite(loss.curvature_bound)
        super().__init__(quadratic, none, 0.0, self._hessian(curvature), delta)
        self._safe = Relaxation(
            quadratic, none, 0.0, self._hessian(loss.curvature_bound * d) if bounded else 4.0 * self.M, delta
        )
        state = np.zeros(parts.size, dtype=np.int8)
        found = self.solve(state, np.zeros(Z.shape[1]), 0.0, np.inf, _STEPS_AT_END)
        curvature = self._settled(self._predictor(found.theta))[2]
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

    def _predictor(self, theta):
        used = np.flatnonzero(theta)
        return self.Z[:, used] @ theta[used]

    def _settled(self, eta):
        """The predictor with nearly the best shift by the columns ``always``, its gradient and curvature.

        The projection of :meth:`_dual` is one more step of Newton's method. So the shift need not be exact.
        """
        loss, y, d, always = self.loss, self.y, self.d, self.always
        shift, share = self._shift, 1.0  # that of another node is a good start
        for _ in range(50):
            here = eta + always @ shift if shift.size else eta
            g, curvature = loss.gradient(here, y, d), loss.curvature(here, y, d)
            if not shift.size:
                break
            slope, hessian = always.T @ g, always.T @ (curvature[:, None] * always)
            hessian.flat[:: len(hessian) + 1] *= 1.0 + 1e-10
            try:
                step = np.linalg.solve(hessian, slope)
            except np.linalg.LinAlgError:
                break
            decrement = float(slope @ step)
            if not decrement > _SETTLED * self._scale:
                break
            if decrement > 1e-2 * self._scale:  # far away Newton's method wants a line search
                value, share = loss.value(here, y, d), 1.0
                while share > 1e-6 and not loss.value(here - share * (always @ step), y, d) <= value:
                    share *= 0.5
            shift = shift - share * step
        self._shift = shift
        return here, g, curvature

    def _projected(self, g, weighted):
        """g less the combination of these columns that makes it orthogonal to ``always``."""
        block = self.always.T @ weighted
        block.flat[:: len(block) + 1] *= 1.0 + 1e-10
        try:
            inverse = np.linalg.inv(block)
        except np.linalg.LinAlgError:
            return g
        for _ in range(2):
            g = g - weighted @ (inverse @ (self.always.T @ g))
        return g

    def _dual(self, g, curvature):
        """A point near the gradient g, in the domain of the conjugate, and its conjugate.

        It is orthogonal to the columns ``always``. The last result bounds what rounding leaves of that.
        """
        left = 0.0
        if self._shift.size:
            # In the metric of the curvature a change by a small share moves no sample out of the domain of
            # the conjugate. Where too many curvatures are 0, as for Huber's loss, all samples are moved.
            for metric in (curvature, self.d):
                weighted = metric[:, None] * self.always
                g = self._projected(g, weighted)
                rest = np.abs(self.always.T @ g)
                if (rest <= 1e-13 * (np.abs(self.always).T @ np.abs(g))).all():
                    break
            else:
                g = np.zeros_like(g)
            left = float(rest @ (1.0 + 10.0 * np.abs(self._shift)))
        for share in _SHARES:  # 0 is in every domain, and the domain is convex
            conjugate = float(self.loss.conjugate(share * g, self.y, self.d))
            if np.isfinite(conjugate):
                return share * g, conjugate, left
        zero = np.zeros_like(g)
        return zero, float(self.loss.conjugate(zero, self.y, self.d)), left

    def solve(self, state, theta, price, cutoff, rounds=_STEPS, tol=1e-7) -> Solution:
        """Raise the bound of the node with these decisions, from a point and a price.

        It ends where a model raises the bound by a small share of what is missing to the cutoff.
        """
        thorough = rounds >= _STEPS_AT_END or (state != 0).all()
        best: Any = None
        stalled, model = 0, self
        for _ in range(_STEPS_AT_END if thorough else min(rounds, _STEPS)):
            eta, g, curvature = self._settled(self._predictor(theta))
            found = self._at(state, theta, price, eta, g, curvature)
            rise = np.inf if best is None else found.bound - best.bound
            best = found if best is None or rise > 0 else best
            stalled = stalled + 1 if rise <= 1e-7 * self._scale else 0
            if best.bound >= cutoff or stalled >= (2 if model is self else 6):
                break
            if not thorough and 0.0 <= rise <= _ENOUGH * (cutoff - best.bound):
                break
            if rise < 0 and model is self:  # its curvature is too small here
                model, theta, price = self._safe, best.theta, best.price
                g = self._settled(self._predictor(theta))[1]
            _, price, _, theta = self._modeled(
                model, model.M @ theta - self.Z.T @ g, state, theta, price, tol
            )
        return best

    def _modeled(self, model, c, state, theta, price, tol, rounds=8):
        """:func:`kernels.relax` for a quadratic model of the loss with the linear term c."""
        k = self.quadratic
        count = k.count - int(np.count_nonzero(state == FREE))
        return kernels.relax(
            self._scale, model.M, c, k.start, model.largest, self.delta, k.threshold, state, count, theta,
            price, np.inf, rounds, tol,
        )  # fmt: skip

    def trials(self, state, near):
        """A function that guesses the solutions of children of a node, by the quadratic model at its own."""
        c = self.M @ near.theta - self.Z.T @ near.dual
        here = self._modeled(self, c, state, near.theta, near.price, 1e-7)[0]

        def trial(child, theta, cutoff):
            bound, price, _, theta = self._modeled(self, c, child, theta, near.price, 1e-7, 4)
            return replace(near, bound=near.bound + (bound - here), price=price, theta=theta)

        return trial

    def confirmed(self, child, guess, cutoff):
        return self.solve(child, guess.theta, guess.price, cutoff)

    def _at(self, state, theta, price, eta, g, curvature) -> Solution:
        r"""The bound of the dual point for the gradient g at eta, rounded down.

        A sum of n terms is off by at most :math:`n \epsilon` times the sum of their sizes. Those of the
        conjugate are at most a few times :math:`(|g_i| + d_i |y_i|) (|\eta_i| + 1)`.
        """
        k = self.quadratic
        count = k.count - int(np.count_nonzero(state == FREE))
        point, conjugate, left = self._dual(g, curvature)
        size, terms = np.abs(point), 4.0 * _EPS * (len(point) + 8)
        error = terms * float(size.sum()) * self._size
        q = self.Z.T @ point
        q = q + np.where(q >= 0, error, -error)
        gain = np.empty(k.parts.size)
        taken = kernels.gains(q, k.start, self.delta, k.threshold, state, gain)
        last, following, top = kernels.largest_gains(gain, count)
        off = left + terms * float((size + self.d * np.abs(self.y)) @ (np.abs(eta) + 1.0))
        bound = -conjugate - (taken + top) * (1.0 + 1e-13) - off - 1e-13 * self._scale
        bound = bound if np.isfinite(bound) else -np.inf
        return Solution(bound, price, False, theta, gain, last, following, point)

    def decided(self, state, near):
        return self, self.solve(state, near.theta, near.price, np.inf, _STEPS_AT_END, 1e-12)

    def child(self, state):
        return None
