"""Gram matrices ``Z' diag(d) Z`` plus a ridge, each column computed once, and small problems with them.

Systems go to LAPACK directly: SciPy's checks cost more than the work here.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from ..designs.base import Design
from ..penalties.base import subgradient_residual
from .mm.kernels import coordinate_descent, principal, submatrix, violators

_FEW = 512  # up to this many rows and columns the whole matrix costs less than many small products
_ROOM = 64  # full rows that there is room for from the first; memory is taken only as it is used
_CACHED = 1 << 20  # elements of X that stay in the processor's cache
_EPOCHS = 200
_SWEPT = 10  # rounds of coordinate descent before coordinates enter one by one


class GramCache:
    """The Gram matrix ``Z_W' D Z_W`` over a growing set W of columns, and full rows of ``Z' D Z``.

    The ``ridge`` of each column is added to the diagonal of both.

    A column costs one product with the columns already there, once. A working set that shrinks and grows
    again finds it ready, and so does the next set of weights. ``d`` is fixed: a loss with changing curvature
    takes a new cache (:class:`FixedGram`) for each quadratic model.
    """

    def __init__(self, design: Design, d: np.ndarray, ridge: np.ndarray):
        self.design = design
        self.d = d
        self.ridge = ridge
        self.members = np.empty(0, dtype=np.intp)
        self.place = np.full(design.shape[1], -1, dtype=np.intp)
        self._store = np.empty((0, 0))
        self._rows = np.empty((0, design.shape[1]))
        self._n_rows = 0
        self._row_place = np.full(design.shape[1], -1, dtype=np.intp)

    def require(self, W: np.ndarray) -> None:
        """Make sure that the block of every column of W is here."""
        new = W[self.place[W] < 0]
        if new.size == 0:
            return
        old = self.members.size
        if self.design.shape[1] <= _FEW and self.design.shape[0] <= _FEW:
            new = np.flatnonzero(self.place < 0)
        members = np.concatenate([self.members, new])
        if members.size > self._store.shape[0]:
            room = min(max(64, 2 * members.size), self.design.shape[1])
            store = np.empty((room, room))
            store[:old, :old] = self._store[:old, :old]
            self._store = store
        cross, fresh = self._products(new)
        fresh[np.diag_indices_from(fresh)] += self.ridge[new]
        self._store[old : members.size, old : members.size] = (fresh + fresh.T) / 2
        if cross is not None:
            self._store[:old, old : members.size] = cross
            self._store[old : members.size, :old] = cross.T
        self.place[new] = np.arange(old, members.size)
        self.members = members

    def _products(self, new):
        """Products of the new columns with those already here, and with one another."""
        old = self.members.size
        if old and not self.design.near:  # a pass over X saved is worth more than symmetry
            both = self.design.gram(np.concatenate([self.members, new]), self.d, new)
            return both[:old], both[old:]
        fresh = self.design.gram(new, self.d, new)
        return (self.design.gram(self.members, self.d, new) if old else None), fresh

    def diagonal(self, W: np.ndarray) -> np.ndarray:
        place = self._places(W)
        return self._store[place, place]

    def block(self, rows: np.ndarray, cols: np.ndarray | None = None) -> np.ndarray:
        """The contiguous block of the Gram matrix for these columns of the design."""
        place = self._places(rows)
        if cols is None:
            return principal(self._store, place)
        return submatrix(self._store, place, self._places(cols))

    def _places(self, W):
        place = self.place[W]
        if place.size and place.min() < 0:
            self.require(W)
            place = self.place[W]
        return place

    def rows(self, W: np.ndarray) -> np.ndarray:
        """``Z_W' D Z``, of shape (len(W), p)."""
        self.fetch(W)
        return self._rows[self._row_place[W]]

    def table(self) -> tuple[np.ndarray, np.ndarray]:
        """The full rows that are here, and for every column the place of its row, or -1."""
        return self._rows, self._row_place

    @property
    def worth_batching(self) -> bool:
        """Whether a product with several columns costs little more than with one, as for data on disk."""
        return not self.design.near or self.design.shape[0] * self.design.shape[1] > _CACHED

    def fetch(self, W: np.ndarray) -> None:
        """Compute the full rows of these columns, as far as they are not here, by one product."""
        new = W[self._row_place[W] < 0]
        if new.size == 0:
            return
        old, end = self._n_rows, self._n_rows + new.size
        if end > len(self._rows):
            grown = np.empty((max(_ROOM, end + old // 2), self.design.shape[1]))
            grown[:old] = self._rows[:old]
            self._rows = grown
        self._rows[old:end] = self._full_rows(new)
        self._rows[np.arange(old, end), new] += self.ridge[new]
        self._row_place[new] = np.arange(old, end)
        self._n_rows = end

    def _full_rows(self, new):
        return self.design.gram(None, self.d, new).T

    def block_from_rows(self, W: np.ndarray) -> np.ndarray:
        """``Z_W' D Z_W`` from full rows if they are all here, which takes no product; else a block."""
        place = self._row_place[W]
        return self.block(W) if place.min(initial=0) < 0 else self._rows[place[:, None], W]


class RescaledGram(GramCache):
    """The Gram matrix of the columns of another one times ``scale``, plus a ridge.

    Its entries come from the other one, ``base``, which has no ridge and may serve many of them.
    """

    def __init__(self, base: GramCache, scale: np.ndarray, ridge: np.ndarray):
        super().__init__(base.design, base.d, ridge)
        self.base, self.scale = base, scale

    def _products(self, new):
        fresh = self.base.block(new) * self.scale[new] * self.scale[new, None]
        if not self.members.size:
            return None, fresh
        return self.base.block(self.members, new) * self.scale[new] * self.scale[self.members, None], fresh

    def _full_rows(self, new):
        return self.base.rows(new) * self.scale * self.scale[new, None]


class FixedGram(GramCache):
    """A Gram matrix that is known already, of the columns U: that of a quadratic model, say."""

    def __init__(self, U: np.ndarray, gram: np.ndarray, n_features: int):
        self.members = U
        self.place = np.full(n_features, -1, dtype=np.intp)
        self.place[U] = np.arange(U.size)
        self._store = np.ascontiguousarray(gram)

    def block(self, rows: np.ndarray, cols: np.ndarray | None = None) -> np.ndarray:
        """The same; not a copy if it is the whole matrix."""
        whole = cols is None and np.array_equal(rows, self.members)
        return self._store if whole else super().block(rows, cols)

    def require(self, W: np.ndarray) -> None:
        if self.place[W].min(initial=0) < 0:
            raise ValueError("a column was requested that the quadratic model does not have")

    def rows(self, W: np.ndarray) -> np.ndarray:
        return self._store[self._places(W)]

    def table(self) -> tuple[np.ndarray, np.ndarray]:
        return self._store, self.place

    def block_from_rows(self, W: np.ndarray) -> np.ndarray:
        return self.block(W)


# -- small positive definite systems ----------------------------------------------------------------------


def cholesky(matrix: np.ndarray) -> np.ndarray | None:
    """The lower Cholesky factor, or None if the matrix is not positive definite."""
    factor, info = lapack.dpotrf(matrix, lower=1)
    return factor if info == 0 else None


def regularized_cholesky(matrix: np.ndarray) -> np.ndarray:
    """The factor of a Gram matrix of columns of norm one, plus as little of the identity as it needs.

    For a singular matrix a solution with it is still a descent direction, long along the null space: a
    ratio test then drops a coordinate, as it should where a support exceeds the rank.
    """
    factor = cholesky(matrix)
    if factor is not None and np.diagonal(factor).min(initial=1.0) > 1e-6:  # condition below about 1e12
        return factor
    identity = np.eye(matrix.shape[0])
    for ridge in (1e-10, 1e-6, 1e-3):
        factor = cholesky(matrix + ridge * identity)
        if factor is not None:
            return factor
    return identity


def cholesky_solve(factor: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """``(L L')^-1 rhs``."""
    if factor.shape[0] == 0:
        return rhs  # LAPACK refuses it
    return lapack.dpotrs(factor, rhs, lower=1)[0]


def cholesky_inverse(factor: np.ndarray) -> np.ndarray:
    """``(L L')^-1``. Not by LAPACK's own routine, which starts threads for matrices of any size."""
    full = cholesky_solve(factor, np.eye(factor.shape[0]))
    return (full + full.T) / 2


def inverse_factor(factor: np.ndarray) -> np.ndarray:
    """``L^-1``, whose ``(L^-1)' L^-1`` is the inverse of the matrix, for a third of the work."""
    if factor.size == 0:
        return np.zeros(factor.shape)
    return lapack.dtrtri(factor, lower=1)[0]


def independent_columns(gram: np.ndarray, tol: float) -> np.ndarray:
    """Positions of columns of norm one, each with more than ``tol`` unexplained by those before it.

    By Cholesky with pivoting: the longest remainder comes first.
    """
    _, pivot, rank, _ = lapack.dpstrf(gram, lower=1, tol=tol)
    return np.sort(pivot[:rank] - 1).astype(np.intp)


# -- a quadratic plus a weighted l1 norm ------------------------------------------------------------------


def newton_on_support(gram, gradient, theta, threshold, max_drops=10):
    """Minimize over the current support and signs, in place; a coordinate that comes to 0 is dropped.

    All coordinates that would change sign are dropped at once if the objective falls enough by that, else
    only the first that comes to 0 on the way. Unpenalized coordinates belong to the support whatever their
    value, and may change sign.
    """
    free = (threshold == 0) & (np.diagonal(gram) > 0)
    for _ in range(max_drops):
        active = np.flatnonzero((theta != 0) | free)
        if active.size == 0:
            return
        slope = gradient[active] + threshold[active] * np.sign(theta[active])
        factor = regularized_cholesky(principal(gram, active))
        direction = -cholesky_solve(factor, slope)
        with np.errstate(over="ignore", invalid="ignore"):  # a nearly flat direction has no end
            decrease = slope @ direction
        if not -np.inf < decrease < 0:
            return
        old = theta[active]
        bound = ~free[active] & (direction * old < 0)
        crossing = bound & (old * (old + direction) < 0)
        move = np.where(crossing, -old, direction)
        with np.errstate(over="ignore", invalid="ignore"):
            change = _product(gram, active, move)
            kept = np.abs(old + move) - np.abs(old)
            fall = move @ gradient[active] + 0.5 * (move @ change[active]) + threshold[active] @ kept
        if crossing.any() and not fall <= 0.1 * decrease:
            ratios = np.where(bound, -old / np.where(bound, direction, 1.0), np.inf)
            step = min(1.0, ratios.min())
            crossing = ratios <= step
            move = np.where(crossing, -old, step * direction)
            change = _product(gram, active, move)
        theta[active] = np.where(crossing, 0.0, old + move)
        gradient += change
        if not crossing.any():
            return


def _product(gram, active, move):
    """``G' x`` for x that is ``move`` on the active coordinates; without a copy of most of G."""
    if 3 * active.size < gram.shape[0]:
        return move @ gram[active]
    x = np.zeros(gram.shape[0])
    x[active] = move
    return gram @ x


def minimize_block(gram, gradient, theta, threshold, tol, max_rounds=100):
    """Minimize ``g'(x - theta) + (x - theta)' G (x - theta) / 2 + sum t |x|``; all arrays in place.

    Returns whether the conditions hold within ``tol``; rounding in a singular G can prevent it. If columns
    are nearly dependent, sweeps may forever bring in many coordinates that the Newton step takes out again:
    after some rounds only the coordinate of largest violation enters (feature-sign search, Lee et al. 2007).
    """
    for round_ in range(max_rounds):
        epochs = _EPOCHS
        if round_ < _SWEPT:
            epochs = coordinate_descent(gram, gradient, theta, threshold, _EPOCHS, tol)
        elif not enter_worst(gram, gradient, theta, threshold):
            return False
        if epochs == _EPOCHS or violators(theta, gradient, threshold, tol)[0] > tol:
            newton_on_support(gram, gradient, theta, threshold)
            if not violators(theta, gradient, threshold, tol)[0] <= tol:
                continue
        return True
    return False


def enter_worst(gram, gradient, theta, threshold) -> bool:
    """Minimize over the coordinate of largest violation, in place; returns whether it moved."""
    worst = int(np.argmax(np.abs(subgradient_residual(theta, gradient, threshold))))
    curvature, old = gram[worst, worst], theta[worst]
    if not curvature > 0:
        return False
    aim = old - gradient[worst] / curvature
    size = max(abs(aim) - threshold[worst] / curvature, 0.0)
    theta[worst] = np.copysign(size, aim)
    gradient += (theta[worst] - old) * gram[worst]
    return theta[worst] != old
