r"""A function of theta as a loss: the design is the identity, and the linear predictor is theta itself.

With this every part of the default solver (homotopy, working sets, exchanges on the quadratic model) serves
any differentiable function. The curvature comes from rows of the Hessian. If only gradients are known, Newton
steps take the limited-memory BFGS matrix of the last steps (Byrd, Nocedal and Schnabel 1994, "Representations
of quasi-Newton matrices and their use in limited memory methods"), and the model of the exchanges takes
differences of gradients. An indefinite block gets the absolute values of its eigenvalues, so that a Newton
step descends also where the function is not convex.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from ...designs.base import Design
from ...losses.base import Loss
from .derivatives import Derivatives, differences

_PAIRS = 30  # steps that the limited memory holds
_STEPS = 6  # for so many a Hessian is updated before it is computed anew
_CURVED = 1e-10  # s'y below this times |s| |y| tells nothing of the curvature
_FLAT = 1e-10  # least eigenvalue of a model in units of the largest
_NEGATIVE = 1e-5  # below this negative share of the largest, an eigenvalue is no rounding


class Coordinates(Design):
    """The columns ``which`` of the identity of order n, times ``scale``."""

    def __init__(self, n: int, which: np.ndarray, scale: np.ndarray):
        self.shape, self.dtype = (n, which.size), np.dtype(float)
        self.which, self.scale = which, scale

    def matvec(self, v: np.ndarray) -> np.ndarray:
        eta = np.zeros(self.shape[0])
        eta[self.which] = self.scale * v
        return eta

    def rmatvec(self, r: np.ndarray) -> np.ndarray:
        return self.scale * r[self.which]

    def columns(self, W: np.ndarray) -> np.ndarray:
        columns = np.zeros((self.shape[0], len(W)))
        columns[self.which[W], np.arange(len(W))] = self.scale[W]
        return columns

    def gram(self, rows: np.ndarray | None, d: np.ndarray, cols: np.ndarray) -> np.ndarray:
        every = np.arange(self.shape[1]) if rows is None else rows
        return self.columns(every).T @ (d[:, None] * self.columns(cols))

    def column_norms(self, d: np.ndarray) -> np.ndarray:
        return self.scale

    def rescaled(self, factor: np.ndarray) -> Coordinates:
        return Coordinates(self.shape[0], self.which, self.scale * factor)

    def restricted(self, W: np.ndarray) -> Coordinates:
        return Coordinates(self.shape[0], self.which[W], self.scale[W])

    def original_units(self, theta: np.ndarray) -> tuple[np.ndarray, float]:
        return self.scale * theta, 0.0


class FunctionLoss(Loss):
    """A function of ``origin + eta`` as a loss of eta, with what is known of its curvature.

    A point where the value or the gradient is not finite counts as infinitely high. With ``total`` the
    augmented Lagrangian of ``sum(theta) = total`` is added, see :meth:`tightened`.
    """

    name = "function"
    has_samples = False
    sees_constants = False

    def __init__(self, known: Derivatives, origin: np.ndarray, exact: bool, total: float | None):
        self.known, self.origin, self.exact, self.total = known, origin, exact, total
        self.multiplier = self.stiffness = 0.0
        self.given_start = bool(origin.any())
        self.nonconvex = False  # whether negative curvature was met
        self.n_evaluations = 0
        self._points: deque = deque(maxlen=3)  # (eta, value, gradient) of fun itself
        self._pairs: deque = deque(maxlen=_PAIRS)  # steps and changes of the gradient
        self._rows: tuple[Any, dict] = (None, {})  # rows of the Hessian at one eta
        self._since: list = []  # the pairs that came later

    # -- value and gradient -------------------------------------------------------------------------------

    def _at(self, eta):
        for point in self._points:
            if np.array_equal(point[0], eta):
                return point
        value, gradient = self.known.value_and_gradient(self.origin + eta)
        self.n_evaluations += 1
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            value = np.inf
        if self._points and np.isfinite(value):
            self._remember(eta, gradient, self._points[0])
        point = (eta.copy(), value, gradient)
        self._points.appendleft(point)
        return point

    def _remember(self, eta, gradient, before):
        if not np.isfinite(before[1]):
            return
        s, y = eta - before[0], gradient - before[2]
        product = float(s @ y)
        if product > _CURVED * float(np.linalg.norm(s) * np.linalg.norm(y)) > 0:
            self._pairs.append((s, y))
            self._since.append((s, y))
        elif product < -_NEGATIVE * float(np.linalg.norm(s) * np.linalg.norm(y)):
            self.nonconvex = True

    def gap(self, eta: np.ndarray) -> float:
        """How far the sum of theta is from ``total``; 0 without one."""
        return 0.0 if self.total is None else float(np.sum(self.origin + eta)) - self.total

    def value(self, eta: np.ndarray, y: Any = None, d: Any = None) -> float:
        gap = self.gap(eta)
        return self._at(eta)[1] + (self.multiplier + 0.5 * self.stiffness * gap) * gap

    def gradient(self, eta: np.ndarray, y: Any = None, d: Any = None) -> np.ndarray:
        return self._at(eta)[2] + (self.multiplier + self.stiffness * self.gap(eta))

    def tightened(self, eta: np.ndarray, stiffness: float) -> None:
        r"""A step of the method of multipliers for ``c = sum(theta) - total = 0``.

        The augmented Lagrangian is :math:`f + \nu c + \frac\rho2 c^2`; the step sets
        :math:`\nu \leftarrow \nu + \rho c` and a new stiffness :math:`\rho`.
        """
        self.multiplier += self.stiffness * self.gap(eta)
        self.stiffness = stiffness

    # -- curvature ----------------------------------------------------------------------------------------

    def curvature(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        """Unknown for a function: 0 bounds no gradient."""
        return np.zeros_like(eta)

    def slope_bound(self, y: np.ndarray, d: np.ndarray) -> float:
        """No bound is known; 0 makes every alpha an exact one."""
        return 0.0 if self.exact else np.inf

    def gram(self, design: Any, W: np.ndarray, eta: np.ndarray, y: Any, d: Any) -> np.ndarray:
        which = design.which[W]
        block = self._hessian_rows(eta, which)[:, which]
        if not np.isfinite(block).all():
            block = self._limited_memory(eta, which)
        return self._scaled(self._definite((block + block.T) / 2), design, W)

    def step_gram(self, design: Any, W: np.ndarray, eta: np.ndarray, y: Any, d: Any) -> np.ndarray:
        which, kept = design.which[W], self._rows[1]
        if len(self._since) <= _STEPS and all(j in kept for j in which.tolist()):
            rows = np.array([kept[j] for j in which.tolist()])[:, which]
            block = self._updated(self._definite((rows + rows.T) / 2), which, self._since)
        elif self._knows_rows():
            return self.gram(design, W, eta, y, d)
        else:
            block = self._limited_memory(eta, which)
        return self._scaled(block, design, W)

    def _knows_rows(self, more=0):
        """Whether rows of the Hessian are known, and so many more gradients would cost as much."""
        return self.known.rows is not None and self.n_evaluations + more >= self.known.patience

    def _scaled(self, block, design, W):
        scale = design.scale[W]
        return (block + self.stiffness) * scale * scale[:, None]

    def _hessian_rows(self, eta, which):
        if self._rows[0] is None or not np.array_equal(self._rows[0], eta):
            self._rows, self._since = (eta.copy(), {}), []
        kept = self._rows[1]
        new = np.array([j for j in which.tolist() if j not in kept], dtype=np.intp)
        if new.size:
            point = self.origin + eta
            if self._knows_rows(new.size):
                rows = self.known.rows(point, new)
            else:
                rows = differences(self.known.value_and_gradient, point, self._at(eta)[2], new)
                self.n_evaluations += new.size
            kept.update(zip(new.tolist(), rows, strict=True))
        return np.array([kept[j] for j in which.tolist()])

    def _definite(self, block):
        """The block itself, or with the absolute values of its eigenvalues if it is not positive definite."""
        largest = float(np.max(np.abs(np.diagonal(block)), initial=0.0))
        try:
            np.linalg.cholesky(block + 1e-9 * largest * np.eye(block.shape[0]))
            return block
        except np.linalg.LinAlgError:
            values, vectors = np.linalg.eigh(block)
            top = float(np.max(np.abs(values), initial=0.0))
            self.nonconvex |= bool(values[0] < -_NEGATIVE * top)
            return (vectors * np.maximum(np.abs(values), _FLAT * top)) @ vectors.T

    def _limited_memory(self, eta, which):
        """The block of the BFGS matrix of the last steps, from a multiple of the identity."""
        if not self._pairs:
            self._probe(eta, which)
        if not self._pairs:
            return np.eye(which.size)
        s, y = self._pairs[-1]
        y = np.where(s != 0, y, 0.0)
        return self._updated(float(y @ y) / float(s @ y) * np.eye(which.size), which, list(self._pairs))

    def _updated(self, block, which, pairs):
        r"""A positive definite block after the BFGS updates of some steps within it,

        .. math:: B - U M^{-1} U', \quad U = [B S\; Y], \quad
                  M = \begin{pmatrix} S'BS & L \\ L' & -D \end{pmatrix},

        with L the strictly lower triangle and D the diagonal of ``S'Y``.
        """
        inside = np.zeros(self.origin.size, dtype=bool)
        inside[which] = True
        pairs = [(s[which], y[which]) for s, y in pairs if not s[~inside].any()]
        if not pairs:
            return block
        S, Y = (np.array(part) for part in zip(*pairs, strict=True))
        inner, BS = S @ Y.T, S @ block
        L, D = np.tril(inner, -1), np.diag(np.diagonal(inner))
        M = np.block([[BS @ S.T, L], [L.T, -D]])
        U = np.vstack([BS, Y])
        unit = np.sqrt(np.abs(np.diagonal(M)))
        U /= unit[:, None]
        updated = block - U.T @ np.linalg.lstsq(M / unit / unit[:, None], U, rcond=1e-14)[0]
        return self._definite((updated + updated.T) / 2)

    def _probe(self, eta, which):
        """A first pair, from a short step against the gradient."""
        gradient = self._at(eta)[2][which]
        length = float(np.linalg.norm(gradient))
        if length > 0 and np.isfinite(length):
            near = eta.copy()
            near[which] -= 1e-4 * max(1.0, float(np.linalg.norm(eta))) / length * gradient
            self._at(near)
            self._at(eta)  # still among the last points
