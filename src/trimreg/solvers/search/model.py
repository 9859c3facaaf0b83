r"""Best subsets of a quadratic model: exchanges of single coefficients or groups in one swept matrix.

Above the exact-penalty threshold only the free parts are nonzero. A quadratic with Hessian G and gradient
``G x - b`` is then minimized where ``G x = b`` holds on the set A of free coordinates. Everything that a
search asks for is in one symmetric matrix: what remains of
:math:`\begin{pmatrix} G & b \\ b' & 0 \end{pmatrix}` once A is swept out of it (Goodnight 1979, "A tutorial
on the SWEEP operator", The American Statistician 33):

.. math:: T = \begin{pmatrix} -P & P G_{AO} & x \\ \cdot & S & r \\ \cdot & \cdot & -b'x \end{pmatrix},
          \quad P = G_{AA}^{-1},\; S = G_{OO} - G_{OA} P G_{AO},\; r = b_O - G_{OA} x.

A free part i that leaves costs :math:`\tfrac12 x_i' P_{ii}^{-1} x_i`, a part j that enters gains
:math:`\tfrac12 r_j' S_{jj}^{-1} r_j`, and both together gain, exactly,

.. math:: \tfrac12\, \tilde r'\, (S_{jj} + K P_{ii}^{-1} K')^{-1} \tilde r - \tfrac12 x_i' P_{ii}^{-1} x_i,
          \qquad K = T_{ji},\; \tilde r = r_j + K P_{ii}^{-1} x_i.

An exchange is a pivot on the coordinates of both: one update of low rank.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from ..gram import inverse_factor, regularized_cholesky
from .exchange import Exchanges, Search

_RIDGE = 1e-9  # in units of the largest curvature: dependent columns gain nothing by it
_REFRESHED = 50  # pivots after which the matrix is computed anew


@njit(cache=True, error_model="numpy")
def inverse_form(matrix, vector, size):
    """``v' M^-1 v`` by Cholesky, in place; 0 for the coordinates that the others determine."""
    total = 0.0
    for i in range(size):
        for k in range(i):
            vector[i] -= matrix[i, k] * vector[k]
        for j in range(i, size):
            for k in range(i):
                matrix[j, i] -= matrix[j, k] * matrix[i, k]
        if matrix[i, i] > 0.0:
            root = np.sqrt(matrix[i, i])
            for j in range(i + 1, size):
                matrix[j, i] /= root
            vector[i] /= root
            total += vector[i] * vector[i]
        else:
            for j in range(i + 1, size):
                matrix[j, i] = 0.0
            vector[i] = 0.0
    return total


@njit(cache=True, error_model="numpy")
def own_scores(table, first, size, sign, work, score):
    """Half of ``v' M^-1 v`` of every part, M being ``sign`` times its diagonal block of the swept matrix."""
    last = table.shape[0] - 1
    for part in range(first.size):
        a, k = first[part], size[part]
        for i in range(k):
            work[k, i] = table[last, a + i]
            for j in range(i + 1):
                work[i, j] = sign * table[a + i, a + j]
        score[part] = 0.5 * inverse_form(work, work[k], k)


@njit(cache=True, error_model="numpy", fastmath={"contract", "reassoc"})
def swap_scores(table, first, size, curve, cost, entry, order, work, gain, partner):
    """The best gain and its partner among the free parts for every part that may enter, in that order.

    ``entry`` bounds the gain of any swap, so a part whose bound is not above the best gain so far is not
    scored and gets -inf. ``first`` and ``size`` are of the free parts, then of the entering ones.
    """
    last, count, record = table.shape[0] - 1, cost.size, 0.0
    for j in order:
        gain[j], partner[j] = -np.inf, 0
        if entry[j] <= record:
            continue
        b, m = first[count + j], size[count + j]
        for i in range(count):
            a, k = first[i], size[i]
            for r in range(m):
                pull = table[last, b + r]
                for c in range(k):
                    lost = 0.0
                    for e in range(k):
                        lost += table[b + r, a + e] * curve[i, e, c]
                    work[m + 1, c] = lost
                    pull += lost * table[last, a + c]
                work[m, r] = pull
                for s in range(r + 1):
                    spare = table[b + r, b + s]
                    for c in range(k):
                        spare += work[m + 1, c] * table[b + s, a + c]
                    work[r, s] = spare
            fall = 0.5 * inverse_form(work, work[m], m) - cost[i]
            if fall > gain[j]:
                gain[j], partner[j] = fall, i
        record = max(record, gain[j])


class ModelSubset(Search):
    """A set of free parts and the minimum of a quadratic model over them, with exact scores of exchanges.

    ``model`` is a :class:`~trimreg.solvers.mm.workingset.GramSolver`; the search is among its parts. Parts
    that are never penalized are always in.
    """

    state = ("free", "objective", "_table", "_pivots")

    def __init__(self, model: Any, free: np.ndarray, theta: np.ndarray, gradient: np.ndarray, value: float):
        self.inner, self.norm = model, model.norm
        usable = model.parts[model.alive[model.parts]]
        always = model.problem.penalty.levels(1.0)[usable] == 0
        self.always, self.parts = usable[always], usable[~always]
        ordered = np.concatenate([self.parts, self.always])
        self._size = self.norm.sizes
        self._sizes = np.unique(self._size[self.parts])
        self._width = int(self._sizes.max(initial=1))
        self._first = np.zeros(self.norm.count, dtype=np.intp)
        self._first[ordered] = np.cumsum(self._size[ordered]) - self._size[ordered]
        self._columns = self.norm.coordinates(ordered)
        theta, gradient = theta[self._columns], gradient[self._columns]
        self._hessian = model.gram.block(self._columns)
        product = self._hessian @ theta
        self._target = product - gradient
        self._constant = value + float(theta @ (0.5 * product - gradient))
        self.unit = float(np.diagonal(self._hessian).max(initial=0.0)) or 1.0
        self._hessian[np.diag_indices_from(self._hessian)] += _RIDGE * self.unit
        self._sweep(free)

    def narrowed(self) -> ModelSubset:
        return self

    def _without(self, parts, others):
        gone = np.zeros(self._size.size, dtype=bool)
        gone[others] = True
        return parts[~gone[parts]]

    def _coordinates(self, parts):
        """Positions in the swept matrix."""
        size = self._size[parts]
        start = np.repeat(self._first[parts] - (np.cumsum(size) - size), size)
        return start + np.arange(size.sum())

    def move_to(self, free: np.ndarray) -> None:
        """Take this free set."""
        leave, enter = self._without(self.free, free), self._without(free, self.free)
        following = self._pivoted(leave, enter)
        if following is None or self._pivots >= _REFRESHED:
            self._sweep(np.asarray(free, dtype=np.intp))
        else:
            self._adopt(leave, enter, following)

    def _sweep(self, free):
        """Sweep a free set out of the Hessian."""
        self.free, self._pivots = free, 0
        hessian, m = self._hessian, self._target.size
        A = self._coordinates(np.concatenate([free, self.always]))
        table = np.empty((m + 1, m + 1))
        table[:m, :m], table[m, :m], table[:m, m], table[m, m] = hessian, self._target, self._target, 0.0
        if A.size:
            half = inverse_factor(regularized_cholesky(hessian[A[:, None], A] / self.unit))
            inverse = half.T @ half / self.unit
            solved = inverse @ table[A]
            table -= table[:, A] @ solved
            table[A], table[:, A] = solved, solved.T
            table[A[:, None], A] = -inverse
        self._table = table
        self.objective = self._constant + 0.5 * float(table[m, m])

    def _pivoted(self, leave, enter):
        """``(coordinates, inverse of their block, its product with their rows)``; None if singular."""
        K = self._coordinates(np.concatenate([leave, enter]))
        try:
            block = np.linalg.inv(self._table[K[:, None], K])
        except np.linalg.LinAlgError:
            return None
        return K, block, block @ self._table[K]

    def _adopt(self, leave, enter, pivoted):
        """Make the exchange of these parts."""
        (K, block, solved), table = pivoted, self._table
        following = table[:, K] @ solved
        np.subtract(table, following, out=following)
        sign = np.where(np.arange(K.size) < self._size[leave].sum(), -1.0, 1.0)  # out of the set, into it
        following[K] = sign[:, None] * solved
        following[:, K] = following[K].T
        following[K[:, None], K] = -block * np.multiply.outer(sign, sign)
        self.free = np.concatenate([self._without(self.free, leave), enter])
        self._table, self._pivots = following, self._pivots + 1
        self.objective = self._constant + 0.5 * float(following[-1, -1])

    def exchanges(self) -> Exchanges:
        free, entering = self.free, self._without(self.parts, self.free)
        both = np.concatenate([free, entering])
        first, size, table = self._first[both], self._size[both], self._table
        work = np.empty((self._width + 2, self._width))
        cost, entry = np.empty(free.size), np.empty(entering.size)
        own_scores(table, first[: free.size], size[: free.size], -1.0, work, cost)
        own_scores(table, first[free.size :], size[free.size :], 1.0, work, entry)
        gain, partner = np.full(entering.size, -np.inf), np.zeros(entering.size, dtype=np.int64)
        if free.size:
            order = np.argsort(-entry, kind="stable")
            swap_scores(table, first, size, self._curves(), cost, entry, order, work, gain, partner)
        return Exchanges(free, cost, entering, entry, gain, partner)

    def _curves(self):
        """The inverses of the blocks of P, padded to a common size."""
        curve, size = np.zeros((self.free.size, self._width, self._width)), self._size[self.free]
        for k in self._sizes:
            which = np.flatnonzero(size == k)
            place = self._first[self.free[which]][:, None] + np.arange(k)
            curve[which, :k, :k] = -np.linalg.inv(self._table[place[:, :, None], place[:, None, :]])
        return curve

    def attempt(self, leave: np.ndarray, enter: np.ndarray) -> bool:
        """Exchange these parts if the model falls by it."""
        pivoted = self._pivoted(leave, enter)
        if pivoted is None or not 0.5 * self._table[-1, pivoted[0]] @ pivoted[2][:, -1] > self._negligible():
            return False
        if self._pivots < _REFRESHED:
            self._adopt(leave, enter, pivoted)
        else:
            self._sweep(np.concatenate([self._without(self.free, leave), enter]))
        return True

    def _negligible(self):
        """A difference that is rounding, in units of the fall from a model without any part."""
        return 1e-10 * abs(self.objective - self._constant)

    def solution(self) -> tuple[np.ndarray, np.ndarray]:
        theta = np.zeros(self.inner.problem.n_features)
        A = self._coordinates(np.concatenate([self.free, self.always]))
        theta[self._columns[A]] = self._table[-1, A]
        return theta, self.free
