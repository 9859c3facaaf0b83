r"""Best subsets of a quadratic over a box: exchanges of coefficients that have bounds.

Let theta minimize the quadratic over the free set (and what is never penalized) within the bounds, and let i
leave: the others, A, are refitted within their bounds, and g is the gradient there. If j enters, the
quadratic falls by at most

.. math:: \max_{l_j \le x \le u_j}\; -g_j x - \tfrac12 s_j x^2, \qquad
          s_j = G_{jj} - G_{jA} G_{AA}^{-1} G_{Aj},

for any move of A: at the refit the multipliers of the bounds that are reached are the gradient on A, and the
quadratic minus their linear terms is a lower bound of it over the box, minimized here without bounds on A.
The gain of a swap is at most this minus what i costs, and equal to it if A stays within its bounds. So a
search that refits the swaps in the order of these scores, down to 0, misses none.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from ..box import minimize_box
from ..gram import cholesky, cholesky_inverse, cholesky_solve, regularized_cholesky
from .exchange import Exchanges, Search, best_first
from .subset import only_dependent_left

_DIGITS = 1e-10  # of the gradient, to which a refit is solved
_NEGLIGIBLE = 1e-12  # of the value without coefficients: such a gain is rounding
_SPARE = 1e-9  # of a column of norm one: less left unexplained may be nothing
_TRUSTED = 1e6  # scores are trusted up to this largest entry of the inverse of a Gram matrix
_LIKELY = 8  # columns whose rows of the Gram matrix are computed at once
_REFITS = 200  # swaps that are refitted in vain before a descent ends without a certificate


class BoundedSubset(Search):
    """A set of free coefficients and the minimum of a quadratic over them, within their bounds.

    ``model`` is a solver of least squares, or a :class:`~trimreg.solvers.mm.workingset.GramSolver`, among
    whose columns the search is then. Its value and gradient are those at ``theta``.
    """

    state = ("free", "objective", "theta", "gradient", "settled")

    def __init__(self, model: Any, free: np.ndarray, theta: np.ndarray, gradient: np.ndarray, value: float):
        self.inner, problem = model, model.problem
        self.certifies = not hasattr(model, "columns")  # all columns, and the loss itself
        self.columns = U = np.arange(problem.n_features) if self.certifies else model.columns
        self.lower, self.upper = problem.bounds[0][U], problem.bounds[1][U]
        levels, alive = problem.penalty.levels(1.0)[U], model.alive[U]
        self.always, self.eligible = (levels == 0) & alive, (levels > 0) & np.isfinite(levels) & alive
        self.size, self.tol = problem.penalty.n_free, _DIGITS * model.scale
        self.diagonal = model.share + problem.ridge if self.certifies else model.gram.diagonal(U)
        # The value and the gradient at 0: nothing is updated from one free set to the next.
        used = np.flatnonzero(theta[U])
        x, slope = theta[U[used]], gradient[U]
        self._slope = slope - x @ self._rows(used) if used.size else slope
        self._value = value - 0.5 * float(x @ (slope + self._slope)[used])
        self.negligible = _NEGLIGIBLE * abs(self._value)
        self.theta = theta[U]
        self.move_to(free)

    @classmethod
    def of(cls, inner: Any, free: np.ndarray | None) -> Self:
        """The search for least squares from these free columns; with None it grows from nothing."""
        nothing = np.zeros(inner.problem.n_features)
        none = np.empty(0, dtype=np.intp)
        search = cls(inner, none, nothing, inner.gradient_at_zero, inner.loss_at_null)
        if free is None:
            search.regrow()
        else:
            search.move_to(free)
        return search

    def narrowed(self) -> BoundedSubset:
        return self

    def adopt(self, other: BoundedSubset) -> None:
        """Nothing: the search is never narrowed."""

    def refresh(self) -> bool:
        return False

    def regrow(self) -> None:
        """Grow from nothing, one coefficient at a time, with swaps at every size."""
        size, self.theta = self.size, np.zeros_like(self.theta)
        self.move_to(np.empty(0, dtype=np.intp))
        for self.size in range(1, size + 1):
            count = self.free.size
            self.descend()
            if self.free.size == count:
                break
        self.size = size

    # -- the fit -----------------------------------------------------------------------------------

    def _rows(self, at):
        """Rows of the Gram matrix, for all columns of the search."""
        return self.inner.gram.rows(at) if self.certifies else self.inner.gram.block(self.columns)[at]

    def _block(self, at):
        gram = self.inner.gram
        return gram.block_from_rows(at) if self.certifies else gram.block(self.columns)[at[:, None], at]

    def _active(self, free):
        """The positions of these columns, and of what is never penalized."""
        return np.concatenate([np.searchsorted(self.columns, free), np.flatnonzero(self.always)])

    def _fit(self, A, block, start):
        """``(theta, gradient, value)`` on the positions A at the minimum over them."""
        lower, upper, slope = self.lower[A], self.upper[A], self._slope[A]
        factor = cholesky(block)
        x = None if factor is None else cholesky_solve(factor, -slope)
        if x is None or np.diagonal(factor).min(initial=1.0) < 1e-4 or ((x < lower) | (x > upper)).any():
            x = np.clip(start, lower, upper)
            slope = slope + block @ x
            minimize_box(block, slope, x, np.zeros(A.size), lower, upper, self.tol)
        else:
            slope = slope + block @ x
        return x, slope, self._value + 0.5 * float(x @ (slope + self._slope[A]))

    def move_to(self, free: np.ndarray) -> None:
        """Take this free set."""
        A = self._active(free)
        self._take(free, A, *self._fit(A, self._block(A), self.theta[A])[::2])

    def _take(self, free, A, x, value):
        self.free, self.objective, self.settled = free, value, False
        self.theta = np.zeros(self.columns.size)
        self.theta[A] = x
        self.gradient = self._slope + x @ self._rows(A)

    def attempt(self, leave: np.ndarray, enter: np.ndarray) -> bool:
        """Exchange these coefficients if the quadratic falls by it."""
        free = np.append(self.free[(self.free[:, None] != leave).all(axis=1)], enter)
        A = self._active(free)
        x, _, value = self._fit(A, self._block(A), self.theta[A])
        if not value < self.objective - self.negligible:
            return False
        self._take(free, A, x, value)
        return True

    # -- scores --------------------------------------------------------------------------------------

    def _gains(self, gradient, spare):
        spare = np.maximum(spare, _SPARE * self.diagonal)
        x = np.divide(-gradient, spare, out=np.zeros_like(gradient), where=spare > 0)
        x = np.clip(x, self.lower, self.upper)
        return np.where(self._outside, -x * (gradient + 0.5 * spare * x), -np.inf)

    def _scores(self):
        """``(cost, entry, gain)``: of the free ones, of all columns, and of all swaps, a row per free one."""
        A, count = self._active(self.free), self.free.size
        self._outside = self.eligible.copy()
        self._outside[A] = False
        rows, x = self._rows(A), self.theta[A]
        block = rows[:, A]
        unit = float(np.diagonal(block).max(initial=0.0)) or 1.0
        inverse = cholesky_inverse(regularized_cholesky(block / unit)) / unit
        link = inverse @ rows
        spare = self.diagonal - np.einsum("ij,ij->j", rows, link)
        self._spare, self._variance = spare, float(np.diagonal(inverse).max(initial=0.0)) * unit
        cost, gain = np.zeros(count), np.empty((count, spare.size))
        for i in range(count):
            gradient = self.gradient
            if x[i] != 0:
                rest = np.delete(np.arange(A.size), i)
                local, _, value = self._fit(A[rest], block[rest[:, None], rest], x[rest])
                moved = np.insert(local, i, 0.0) - x
                cost[i], gradient = value - self.objective, self.gradient + moved @ rows
            gain[i] = self._gains(gradient, spare + link[i] ** 2 / inverse[i, i]) - cost[i]
        return cost, self._gains(self.gradient, spare), gain

    def exchanges(self) -> Exchanges:
        """What every coefficient gains at most on entering, alone and in its best single swap."""
        cost, entry, gain = self._scores()
        partner = gain.argmax(axis=0) if cost.size else np.zeros(entry.size, dtype=np.int64)
        best = gain.max(axis=0, initial=-np.inf)
        others = np.flatnonzero(self._outside)
        return Exchanges(self.free, cost, self.columns[others], entry[others], best[others], partner[others])

    def descend(self) -> bool:
        """Fill vacant places and make single swaps until none helps; returns whether that is certain."""
        while True:
            _, entry, gain = self._scores()
            if self.free.size < self.size:
                gain = np.vstack([gain, entry])  # the last row leaves nothing
            most = _REFITS if self.inner.problem.near else _LIKELY
            order = best_first(gain.ravel() - self.negligible, most + 1)
            leave, enter = np.unravel_index(order, gain.shape)
            if self.certifies and self.inner.gram.worth_batching:
                self.inner.gram.fetch(np.unique(enter[:_LIKELY]))
            swaps = zip(leave, enter, strict=True)
            if not any(self.attempt(self.free[i : i + 1], self.columns[[j]]) for i, j in swaps):
                self.settled = order.size <= most
                return self.settled

    def decided(self) -> bool:
        """Whether no swap is left, by scores that are accurate enough to say so."""
        if not self.settled or self._variance > _TRUSTED:
            return False
        left_out = np.flatnonzero(self._outside & (self._spare < _SPARE * self.diagonal))
        return only_dependent_left(self.inner.problem, self._active(self.free), left_out)

    def solution(self) -> tuple[np.ndarray, np.ndarray]:
        theta = np.zeros(self.inner.problem.n_features)
        theta[self.columns] = self.theta
        return theta, np.sort(self.free)
