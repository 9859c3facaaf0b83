r"""Best subset of size h for least squares, by exchanges that are all scored exactly.

Above the exact-penalty threshold a local minimum of the trimmed problem is a least-squares fit on its
free set S, with zeros elsewhere. Take columns of norm one, the active set A (S and the features that are
never penalized), ``M = Z_A' D Z_A`` and the dual basis ``V = Z_A M^-1``. Three arrays decide every exchange:

====================  =========================================================================
``K = V' D Z``        ``K_ij``: the coefficient of column i of A in the regression of column j on A
``c = Z' D r``        correlations with the residual
``s_j``               the squared norm of the part of column j that A does not explain
====================  =========================================================================

All ``h (p - h)`` single swaps are scored from them at once, so "no swap lowers the objective" is checked and
not sampled. A descent by single swaps is compiled (:mod:`trimreg.solvers.search.kernels`). It updates the
three by rank-one corrections, and takes one new row of the Gram matrix per swap. After a larger exchange, and
before the last check, they are rebuilt from rows of the Gram matrix.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..gram import (
    FixedGram,
    GramCache,
    cholesky,
    cholesky_inverse,
    cholesky_solve,
    independent_columns,
    regularized_cholesky,
)
from ..mm.workingset import WorkingSetSolver
from ..problem import Problem
from . import kernels
from .exchange import Exchanges, Search, best_first, exchange_while_better

BETTER = 1e-9  # relative fall of the objective for which a subset is replaced
_DEPENDENT = 1e-9  # a column of norm one with less than this left unexplained counts as dependent
_TRUSTED = 1e6  # scores are trusted up to this largest entry of M^-1: their error is about 1e-16 times it
_LIKELY = 8  # columns that may be needed next
_SAFE = 1e-4  # an update divides by what A leaves of the new column; if it is less, the arrays are rebuilt
_MOVES = 100  # of a descent before it is checked that they helped
_DRIFT = 1e-9  # relative error of updated coefficients above which the arrays are rebuilt


def _unexplained(design, d, A, others):
    """The norms of the residuals of the other columns, regressed on the columns A."""
    root = np.sqrt(d)[:, None]
    basis = np.linalg.qr(root * design.columns(A))[0]
    rest = root * design.columns(others)
    for _ in range(2):  # the second time removes rounding
        rest -= basis @ (basis.T @ rest)
    return np.linalg.norm(rest, axis=0)


def _unexplained_far(design, d, A, others):
    """The same by passes over X, without an array of the length of a column."""
    columns = np.concatenate([A, others])
    gram = design.gram(columns, d, columns)
    factor = cholesky(gram[: A.size, : A.size])
    if factor is None:
        return np.full(others.size, np.inf)
    share = cholesky_solve(factor, gram[: A.size, A.size :])
    for _ in range(2):  # the residual itself shows the rounding left in it
        combination = np.concatenate([-share, np.eye(others.size)])
        square, left = design.combination_moments(columns, combination, np.arange(A.size), d)
        share = share + cholesky_solve(factor, left)
    return np.sqrt(square)


def only_dependent_left(problem: Problem, A: np.ndarray, others: np.ndarray) -> bool:
    """Whether the columns A explain these others up to rounding; if few rows stand for many, by those."""
    design, d = problem.design.uncompressed(problem.d)
    rounding = 100 * np.finfo(design.dtype).eps
    unexplained = _unexplained if design.near else _unexplained_far
    for start in range(0, others.size, 64):
        if np.max(unexplained(design, d, A, others[start : start + 64])) > rounding:
            return False
    return True


class SubsetSearch(Search):
    """A free set, the least-squares fit on it, and the moves that improve it.

    ``inner`` solves a least-squares problem in normalized coordinates; its Gram cache is used. The search
    starts from the set ``free``, of which dependent columns are dropped, and fills vacant places; with None
    it grows from nothing. It may use the columns of ``universe``, by default all. Indices inside the search
    are positions in the universe, except for ``free`` here and in :meth:`solution`, which index the design.
    """

    explained: float  # the energy of y that the active columns explain

    def __init__(self, inner: WorkingSetSolver, free: np.ndarray | None, universe: np.ndarray | None = None):
        self.inner = inner
        problem = inner.problem
        limits = problem.penalty.levels(1.0)
        # that no swap is left is a certificate over all columns only
        self.complete = self.certifies = universe is None
        self.energy = 2.0 * problem.loss_value(problem.origin())
        self.size = problem.penalty.n_free
        self.n_features = problem.n_features
        self.universe = np.arange(problem.n_features) if universe is None else universe
        self.gram: GramCache = inner.gram
        if universe is not None:  # indices are positions in it from here on
            self.gram = FixedGram(np.arange(universe.size), inner.gram.block(universe), universe.size)
        self.target = -inner.gradient_at_zero[self.universe]
        alive, limits = inner.alive[self.universe], limits[self.universe]
        self.eligible = alive & np.isfinite(limits) & (limits > 0)
        self.always = np.flatnonzero((limits == 0) & alive)
        if self.always.size:
            self.always = self.always[independent_columns(self.gram.block_from_rows(self.always), _DEPENDENT)]
        self._count, self._A, self._theta = 0, np.empty(0, dtype=np.intp), np.empty(0)
        self._inverse, self._link = np.empty((0, 0)), np.empty((0, self.target.size))
        if free is None:
            self.regrow()
        else:
            self.move_to(self.positions(free))

    def positions(self, columns: np.ndarray) -> np.ndarray:
        """Where these columns of the design are in the universe."""
        return columns if self.complete else np.searchsorted(self.universe, columns)

    # Active are the columns that are never penalized, and then the free ones. The arrays have room for more.

    A = property(lambda self: self._A[: self._count])
    free = property(lambda self: self._A[self.always.size : self._count])  # type: ignore[assignment]
    theta = property(lambda self: self._theta[: self._count])
    inverse = property(lambda self: self._inverse[: self._count, : self._count])
    link = property(lambda self: self._link[: self._count])

    def _hold(self, A):
        """Take these active columns."""
        self._make_room(max(A.size, self.always.size + self.size))
        self._A[: A.size], self._count = A, A.size

    def _make_room(self, room):
        """Let the arrays hold so many active columns."""
        if room <= self._A.size:
            return
        room, kept, p = max(room, 2 * self._A.size), self._count, self.target.size
        inverse, link = np.empty((room, room)), np.empty((room, p))
        inverse[:kept, :kept], link[:kept] = self.inverse, self.link
        self._A, self._theta = np.resize(self._A, room), np.resize(self._theta, room)
        self._inverse, self._link = inverse, link

    def narrowed(self, count: int | None = None) -> SubsetSearch:
        """The search over the active columns and the 6h others (at least 150) of largest gain in a swap."""
        count = max(150, 6 * self.size) if count is None else count
        gain = self._swap_gains()[0]
        best = np.argpartition(-gain, count)[:count] if count < gain.size else np.arange(gain.size)
        best = best[np.isfinite(gain[best])]
        return SubsetSearch(self.inner, self.free.copy(), np.union1d(best, self.A))

    def grow(self, size: int) -> None:
        """Fill a larger free set with the columns of largest gain, one by one, and swap while that helps."""
        self.size = min(size, np.count_nonzero(self.eligible))
        self._make_room(self.always.size + self.size)
        for _ in exchange_while_better(self, splices=()):
            pass

    def regrow(self) -> None:
        """Grow from nothing, one column at a time, with swaps at every size."""
        self._hold(self.always)
        self._rebuild()
        self.descend(gradually=True)

    def start_from(self, free: np.ndarray) -> None:
        """Grow to the full size from these columns, with swaps at every size."""
        size, self.size = self.size, free.size
        self.move_to(free)
        self.size = size
        self.descend(gradually=True)

    def descend(self, gradually: bool = False) -> bool:
        """Fill vacant places and make single swaps, always the best one, until none lowers the objective.

        With ``gradually`` a place is filled only when no swap is left.

        Returns whether that was reached. Otherwise swaps have to be tried one by one, because the columns are
        so close to dependent that updated scores are not to be trusted.
        """
        before, explained, moved = self.A.copy(), self.explained, False
        while True:
            end, self._count, moves, slot, column, reached, drift = kernels.descend(
                *self.gram.table(), self.target, self.eligible, self._A, self.always.size, self._count,
                self.size, self._link, self._inverse, self._theta, self.correlation, self.spare,
                self._negligible(), _SAFE, _DEPENDENT, _MOVES, gradually,
            )  # fmt: skip
            moved |= moves > 0
            self._updated |= moved
            if end == kernels.MISSING:
                self._fetch(column)
                continue
            self.explained = reached
            accurate = drift < _DRIFT and (not moved or reached > explained + self._negligible())
            if not accurate:
                if not self._refitted(before, explained):
                    return False
            elif end == kernels.SETTLED:
                return True
            elif end == kernels.DELICATE and not self._move_by_rebuilding(slot, column):
                return False
            before, explained, moved = self.A.copy(), self.explained, False

    def _refitted(self, before, explained):
        """Rebuild all arrays; return to the columns ``before`` unless the fit explains more than theirs."""
        fit = self._explained(self.A)
        better = fit is not None and fit[2] > explained + self._negligible()
        if not better:
            self._hold(before)
        self._rebuild(fit if better else None)
        return better

    def _fetch(self, column):
        """A row of the Gram matrix; if X is large or far, also those that are likely to be needed soon."""
        wanted = np.array([column])
        if self.gram.worth_batching:
            likely = self._likely()
            wanted = np.concatenate([wanted, likely[likely != column]])
        self.gram.fetch(wanted)

    def _likely(self):
        """Columns of large gain: on entering if a place is vacant, else in a swap."""
        gain = self._entries() if self.free.size < self.size else self._swap_gains()[0]
        return best_first(gain, _LIKELY)

    def _swap_gains(self):
        arrays = self._link, self.correlation, self.spare, self._theta, self._inverse
        return kernels.swap_gains(*arrays, self.always.size, self._count)

    def _move_by_rebuilding(self, slot, column):
        """Make the next move of a descent without updates; returns whether it was made."""
        if slot < self._count:
            return self.attempt(self.A[slot : slot + 1].copy(), np.array([column]))
        count = self._count
        self._fill()
        return self._count > count

    def adopt(self, other: SubsetSearch) -> None:
        """Move to the free set of another search of the same problem, if it is not this one."""
        free = other.solution()[1]
        if not np.array_equal(free, self.solution()[1]):
            self.move_to(free)

    # -- the fit -----------------------------------------------------------------------------------

    def _explained(self, A, anyway=False):
        """Cholesky factor, coefficients and explained energy of the fit on A; None if A is dependent.

        With ``anyway`` the matrix is regularized if need be.
        """
        block = self.gram.block_from_rows(A)
        factor = cholesky(block)
        if factor is None or np.diagonal(factor).min(initial=1.0) ** 2 < _DEPENDENT:
            if not anyway:
                return None
            factor = regularized_cholesky(block)
        theta = cholesky_solve(factor, self.target[A])
        return factor, theta, float(self.target[A] @ theta)

    @property
    def objective(self) -> float:  # type: ignore[override]
        return 0.5 * (self.energy - self.explained)

    def move_to(self, free: np.ndarray) -> None:
        """Fit on this free set and rebuild K, c and s; fill vacant places with the best columns."""
        free = free[self.eligible[free]]
        A = np.concatenate([self.always, free])
        fit = self._explained(A) if A.size else None
        if A.size and fit is None:
            # Features that are never penalized come first: pivoting must not drop them.
            kept = A[independent_columns(self.gram.block_from_rows(A), _DEPENDENT)]
            free = kept[~np.isin(kept, self.always)]
            while free.size and self._explained(np.concatenate([self.always, free])) is None:
                free = free[:-1]
            A = np.concatenate([self.always, free])
        self._hold(A)
        self._rebuild(fit)
        self._fill()

    def _rebuild(self, fit=None):
        self._updated = False
        outside = self.eligible.astype(float)
        if self._count == 0:
            self.explained, self.correlation, self.spare = 0.0, self.target.copy(), outside
            return
        factor, self.theta[:], self.explained = fit or self._explained(self.A, anyway=True)
        self.inverse[:] = cholesky_inverse(factor)
        gram = self.gram.rows(self.A)
        np.matmul(self.inverse, gram, out=self.link)
        self.correlation = self.target - self.theta @ gram
        self.spare = outside - np.einsum("ij,ij->j", gram, self.link)
        self._close()

    def _close(self):
        """Rule out the columns of A, and those that A explains, as candidates."""
        self.spare[(self.spare < _DEPENDENT) | ~self.eligible] = 0.0
        self.spare[self.A] = 0.0

    def _entries(self):
        entry = np.zeros_like(self.spare)
        np.divide(self.correlation**2, 2.0 * self.spare, out=entry, where=self.spare > 0)
        return entry

    def _fill(self):
        """Take the best columns while places are vacant and the objective falls."""
        while self.free.size < self.size:
            entry = self._entries()
            vacant = self.size - self.free.size
            order = np.argsort(-entry, kind="stable")[: max(1, vacant // 2)]
            best = order[entry[order] > self._negligible()]
            while best.size and self._explained(np.concatenate([self.A, best])) is None:
                best = best[: best.size // 2]
            if best.size == 0:
                return
            self._hold(np.concatenate([self.A, best]))
            self._rebuild()

    def _negligible(self):
        return 1e-12 * self.energy

    # -- moves ---------------------------------------------------------------------------------------

    def exchanges(self) -> Exchanges:
        """The gain of every candidate on entering, alone and in its best single swap."""
        first, (gain, slot) = self.always.size, self._swap_gains()
        theta, variance = self.theta[first:], np.diagonal(self.inverse)[first:]
        cost = theta**2 / (2.0 * variance)
        candidates = np.arange(self.target.size)
        return Exchanges(self.free.copy(), cost, candidates, self._entries(), gain, slot - first)

    def attempt(self, leave: np.ndarray, enter: np.ndarray) -> bool:
        """Exchange these columns if the refitted objective falls; returns whether it did."""
        staying = (self.A[:, None] != leave).all(axis=1)  # np.isin is slow for so few
        A = np.concatenate([self.A[staying], enter])
        fit = self._explained(A)
        if fit is None or not fit[2] > self.explained + self._negligible():
            return False
        self._hold(A)
        self._rebuild(fit)
        return True

    def save(self) -> dict:
        names = ("A", "theta", "inverse", "link", "correlation", "spare")
        return {"explained": self.explained} | {name: getattr(self, name).copy() for name in names}

    def restore(self, state: dict) -> None:
        self._hold(state["A"])
        self.theta[:], self.inverse[:], self.link[:] = state["theta"], state["inverse"], state["link"]
        self.correlation, self.spare = state["correlation"].copy(), state["spare"].copy()
        self.explained, self._updated = state["explained"], True

    def refresh(self) -> bool:
        """Rebuild K, c and s if they have been updated; returns whether they had."""
        stale = self._updated
        if stale:
            self._rebuild()
        return stale

    def decided(self) -> bool:
        """Whether the scores are accurate enough to certify that no swap is left.

        They are not if A is ill-conditioned, or if a column was left out as dependent but is not quite: its
        swaps are not known to be worse. The Gram matrix cannot distinguish dependent from nearly dependent
        columns, so the columns themselves are checked.
        """
        if np.diagonal(self.inverse).max(initial=1.0) > _TRUSTED:
            return False
        left_out = np.flatnonzero(self.eligible & (self.spare == 0.0))
        return only_dependent_left(self.inner.problem, self.A, left_out[~np.isin(left_out, self.A)])

    def solution(self) -> tuple[np.ndarray, np.ndarray]:
        """The coefficients and the free set, for the whole design."""
        theta = np.zeros(self.n_features)
        theta[self.universe[self.A]] = self.theta
        return theta, np.sort(self.universe[self.free])


# -- several sizes: each subset is a start for the next smaller and the next larger one -------------------
#
# A subset grows by the column of largest gain and shrinks by the column of least cost. Single swaps follow
# until none lowers the objective. A column that was right for a small subset may stay in one that has grown
# from it. Shrinking from a larger size finds other subsets, and growing again carries them back.


class Subset(NamedTuple):
    """The columns of a subset and the objective of the least-squares fit on them."""

    objective: float
    free: np.ndarray


def grown(inner: WorkingSetSolver, sizes: Sequence[int]) -> Iterator[tuple[int, SubsetSearch]]:
    """``(h, search)`` for rising sizes: each best subset grows from the last by columns and swaps."""
    search = SubsetSearch(inner.at(inner.problem.alpha, sizes[0]), np.empty(0, dtype=np.intp))
    for h in sizes:
        search.grow(h)
        yield h, search


def resize(search: SubsetSearch, h: int) -> None:
    """Grow or shrink the free set to h columns, and make all swaps that lower the objective."""
    while search.free.size > h:
        cheapest = np.argmin(search.exchanges().cost)
        search.size = search.free.size - 1
        search.move_to(np.delete(search.free, cheapest))
    search.grow(h)


def share(search: SubsetSearch, found: dict[int, Subset]) -> None:
    """Offer every subset to the next size, down and up in turn, until none is replaced; ``found`` is updated.

    The keys of ``found`` are sizes in increasing order. The search serves as a workspace.
    """
    tried, negligible = set(), 1e-12 * search.energy
    changed = True
    while changed:
        changed = False
        for sizes in (list(found)[::-1], list(found)):
            for size, target in pairwise(sizes):
                start = found[size].free
                key = size, target, tuple(np.sort(start))
                if key in tried:
                    continue
                tried.add(key)
                search.size = size
                search.move_to(start)
                resize(search, target)
                least_fall = max(negligible, BETTER * found[target].objective)
                if search.objective < found[target].objective - least_fall:
                    found[target] = Subset(search.objective, search.free.copy())
                    changed = True
