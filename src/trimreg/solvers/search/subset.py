r"""Best subset of size h for least squares, by exchanges that are all scored exactly.

Above the exact-penalty threshold a local minimum of the trimmed problem is a least-squares fit on its
free set S, with zeros elsewhere. Take columns of norm one, the active set A (S and the features that are
never penalized), ``M = Z_A' D Z_A`` and the dual basis ``V = Z_A M^-1``. Three arrays decide every exchange:

====================  =========================================================================
``K = Z' D V``        ``K_ji``: the coefficient of column i of A in the regression of column j on A
``c = Z' D r``        correlations with the residual
``s_j``               the squared norm of the part of column j that A does not explain
====================  =========================================================================

All ``h (p - h)`` single swaps are scored from them at once, so "no swap lowers the objective" is checked and
not sampled. After a swap the three are updated by rank-one corrections, for one pass over X. After a larger
exchange, and before the last check, they are rebuilt from rows of the Gram matrix.
"""

from __future__ import annotations

import numpy as np

from ..gram import FixedGram, GramCache, cholesky, cholesky_inverse, cholesky_solve, independent_columns
from ..mm.kernels import best_swaps
from ..mm.workingset import WorkingSetSolver
from .exchange import Exchanges, Search

_DEPENDENT = 1e-9  # a column of norm one with less than this left unexplained counts as dependent
_TRUSTED = 1e6  # scores are trusted up to this largest entry of M^-1: their error is about 1e-16 times it
_LIKELY = 6  # columns that may be needed next


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


def _first(score):
    """The few positions of largest score, in no order."""
    return np.argpartition(-score, min(_LIKELY, score.size) - 1)[:_LIKELY]


class SubsetSearch(Search):
    """A free set, the least-squares fit on it, and the moves that improve it.

    ``inner`` solves a least-squares problem in normalized coordinates; its Gram cache is used. The search
    starts from the set ``free``, of which dependent columns are dropped, and fills vacant places. It may use
    the columns of ``universe``, by default all. Indices inside the search are positions in the universe,
    except for ``free`` here and in :meth:`solution`, which index the design.
    """

    state = ("free", "A", "theta", "explained", "inverse")

    def __init__(self, inner: WorkingSetSolver, free: np.ndarray, universe: np.ndarray | None = None):
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
        place = np.full(problem.n_features, -1)
        place[self.universe] = np.arange(self.universe.size)
        self.move_to(place[free])

    def narrowed(self, count: int | None = None) -> SubsetSearch:
        """The search over the active columns and the 4h others (at least 100) of largest gain on entering."""
        count = max(100, 4 * self.size) if count is None else count
        entry = self._entries()
        best = np.argpartition(-entry, count)[:count] if count < entry.size else np.arange(entry.size)
        best = best[entry[best] > 0]
        return SubsetSearch(self.inner, self.free, np.union1d(best, self.A))

    def grow(self, size: int) -> None:
        """Fill a larger free set with the columns of largest gain."""
        self.size = min(size, np.count_nonzero(self.eligible))
        if self.size == self.free.size + 1:
            entry = self._entries()
            best = int(np.argmax(entry))
            # A nearly dependent column would leave its rounding behind: then the arrays are rebuilt.
            if entry[best] > self._negligible() and self.spare[best] > 1e-3:
                self._enter(best, entry)
        self._fill()

    def swap_best(self) -> bool:
        """Make the best single swap if it lowers the objective; scores are exact, so no other would."""
        if self.free.size == 0:
            return False
        gain, partner = self._scores()
        best = int(np.argmax(gain))
        if not gain[best] > self._negligible():
            return False
        self._likely = _first(gain)
        return self.attempt(self.free[partner[best] : partner[best] + 1], np.array([best]))

    def adopt(self, other: SubsetSearch) -> None:
        """Move to the free set of another search of the same problem."""
        self.move_to(other.solution()[1])

    # -- the fit -----------------------------------------------------------------------------------

    def _explained(self, A):
        """Cholesky factor, coefficients and explained energy of the fit on A; None if A is dependent."""
        factor = cholesky(self.gram.block_from_rows(A))
        if factor is None or np.diagonal(factor).min(initial=1.0) ** 2 < _DEPENDENT:
            return None
        theta = cholesky_solve(factor, self.target[A])
        return factor, theta, float(self.target[A] @ theta)

    @property
    def objective(self) -> float:  # type: ignore[override]
        return 0.5 * (self.energy - self.explained)

    def move_to(self, free: np.ndarray) -> None:
        """Fit on this free set and rebuild K, c and s; fill vacant places with the best columns."""
        free = free[self.eligible[free]]
        A = np.concatenate([free, self.always])
        fit = self._explained(A) if A.size else None
        if A.size and fit is None:
            # Features that are never penalized come first: pivoting must not drop them.
            order = np.concatenate([self.always, free])
            kept = order[independent_columns(self.gram.block_from_rows(order), _DEPENDENT)]
            free = kept[~np.isin(kept, self.always)]
            while (fit := self._explained(A := np.concatenate([free, self.always]))) is None:
                free = free[:-1]  # pragma: no cover - pivoting has already dropped dependent columns
        self.free, self.A = free, A
        self._rebuild(fit)
        self._fill()

    def _rebuild(self, fit=None):
        p = self.target.size
        outside = self.eligible.astype(float)
        if self.A.size == 0:
            self.theta, self.explained, self.inverse = np.empty(0), 0.0, np.empty((0, 0))
            self.link, self.correlation, self.spare = np.empty((p, 0)), self.target.copy(), outside
            return
        factor, self.theta, self.explained = fit or self._explained(self.A)
        self.inverse = cholesky_inverse(factor)
        self.link = None  # frees its memory for the new one
        gram = self.gram.rows(self.A)
        self.link = np.ascontiguousarray(gram.T @ self.inverse)
        self.correlation = self.target - self.theta @ gram
        self.spare = outside - np.einsum("ij,ji->j", gram, self.link)
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
            self.free = np.concatenate([self.free, best])
            self.A = np.concatenate([self.free, self.always])
            self._rebuild()

    def _negligible(self):
        return 1e-12 * self.energy

    # -- moves ---------------------------------------------------------------------------------------

    def exchanges(self) -> Exchanges:
        """The gain of every candidate on entering, alone and in its best single swap."""
        h = self.free.size
        gain, partner = self._scores()
        loss_on_leaving = self.theta[:h] ** 2 / (2.0 * np.diagonal(self.inverse)[:h])
        every = np.arange(self.target.size)
        self._likely = _first(gain)
        return Exchanges(self.free, loss_on_leaving, every, self._entries(), gain, partner)

    def _scores(self):
        """The gain of every column in its best single swap, and the position of its partner."""
        h = self.free.size
        gain = np.empty(self.target.size)
        partner = np.empty(self.target.size, dtype=np.int64)
        if h == 0:
            gain.fill(-np.inf)
            return gain, partner
        diagonal = np.ascontiguousarray(np.diagonal(self.inverse)[:h])
        no_penalty_is_enough = np.full(h, np.inf)
        best_swaps(
            self.link, self.correlation, self.spare, self.theta[:h], diagonal, no_penalty_is_enough, gain,
            partner,
        )  # fmt: skip
        return gain, partner

    def attempt(self, leave: np.ndarray, enter: np.ndarray) -> bool:
        """Exchange these columns if the refitted objective falls; returns whether it did."""
        if leave.size == 1 and enter.size == 1:
            self.gram.rows(enter, self._likely)  # a swap that is tried is made, except for rounding
        staying = (self.free[:, None] != leave).all(axis=1)  # np.isin is slow for so few
        free = np.concatenate([self.free[staying], enter])
        fit = self._explained(np.concatenate([free, self.always]))
        if fit is None or not fit[2] > self.explained + self._negligible():
            return False
        if leave.size == 1 and enter.size == 1:
            self._swap(int(np.flatnonzero(self.free == leave[0])[0]), int(enter[0]), fit)
        else:
            self.free, self.A = free, np.concatenate([free, self.always])
            self._rebuild(fit)
        return True

    def _swap(self, slot, enter, fit):
        """Swap one column for another by rank-one updates: one new row of the Gram matrix, O(p h) work.

        With ``v_k`` the dual basis (``K_jk = z_j' D v_k``), the column in ``slot`` leaves by ``v_k -=
        leaving_k v_slot``, and the new one enters by ``v_k -= entering_k v_new``, ``v_new = z / size``
        for the part z of the new column that the others do not explain.
        """
        link, inverse, theta = self.link, self.inverse, self.theta
        gone = self.free[slot]
        old = link[:, slot].copy()
        pivot = inverse[slot, slot]  # the squared norm of v_slot
        leaving = inverse[:, slot] / pivot
        c_old = theta[slot] / pivot
        entering = link[enter] - old[enter] * leaving
        entering[slot] = 0.0
        size = self.spare[enter] + old[enter] ** 2 / pivot  # the squared norm of z
        c_new = self.correlation[enter] + old[enter] * c_old
        column = self.gram.rows(np.array([enter]), self._likely)[0]
        new = (column - entering @ self.gram.rows(self.A)) / size

        self.inverse = inverse - np.outer(leaving, inverse[slot]) + np.outer(entering, entering) / size
        self.inverse[slot] = self.inverse[:, slot] = -entering / size
        self.inverse[slot, slot] = 1.0 / size
        self.theta = theta - theta[slot] * leaving - entering * (c_new / size)
        self.theta[slot] = c_new / size
        link -= np.stack([old, new], axis=1) @ np.stack([leaving, entering])
        link[:, slot] = new
        self.correlation += old * c_old - new * c_new
        self.spare += old**2 / pivot - new**2 * size
        self.free = self.free.copy()
        self.free[slot] = enter
        self.A = np.concatenate([self.free, self.always])
        self.spare[gone] = 1.0 - link[gone] @ self.gram.rows(self.A)[:, gone]
        self._close()
        self.explained = fit[2]

    def _enter(self, enter, entry):
        """Add one column, by the second half of the update of a swap; ``entry`` ranks the next ones."""
        at, count = self.free.size, self.A.size
        entering, size, c_new = self.link[enter].copy(), self.spare[enter], self.correlation[enter]
        column = self.gram.rows(np.array([enter]), _first(entry))[0]
        new = (column - entering @ self.gram.rows(self.A)) / size if count else column / size
        column = np.append(-entering, 1.0) / size
        grown = np.zeros((count + 1, count + 1))
        grown[:count, :count] = self.inverse
        grown += np.outer(column, column * size)
        theta = np.append(self.theta, 0.0) + column * c_new
        link = np.empty((new.size, count + 1))
        np.subtract(self.link, np.multiply.outer(new, entering), out=link[:, :count])
        link[:, count] = new
        if self.always.size:  # they come after the free ones
            order = np.r_[:at, count, at:count]
            grown, theta, link = grown[order[:, None], order], theta[order], link[:, order].copy()
        self.inverse, self.theta, self.link = grown, theta, link
        self.correlation = self.correlation - new * c_new
        self.spare = self.spare - new**2 * size
        self.explained += c_new**2 / size
        self.free = np.append(self.free, enter)
        self.A = np.concatenate([self.free, self.always])
        self._close()

    def save(self) -> dict:
        # Swaps update K, c and s in place; everything else is replaced, never written into.
        return super().save() | {
            name: getattr(self, name).copy() for name in ("link", "correlation", "spare")
        }

    def refresh(self) -> None:
        """Rebuild K, c and s, free of accumulated rounding."""
        self._rebuild()

    def decided(self) -> bool:
        """Whether the scores are accurate enough to certify that no swap is left.

        They are not if A is ill-conditioned, or if a column was left out as dependent but is not quite: its
        swaps are not known to be worse. The Gram matrix cannot distinguish dependent from nearly dependent
        columns, so the columns themselves are checked.
        """
        if np.diagonal(self.inverse).max(initial=1.0) > _TRUSTED:
            return False
        left_out = np.flatnonzero(self.eligible & (self.spare == 0.0))
        left_out = left_out[~np.isin(left_out, self.A)]
        if left_out.size == 0:
            return True
        design, d = self._data()
        rounding = 100 * np.finfo(design.dtype).eps
        unexplained = _unexplained if design.near else _unexplained_far
        for start in range(0, left_out.size, 64):
            if np.max(unexplained(design, d, self.A, left_out[start : start + 64])) > rounding:
                return False
        return True

    def _data(self):
        """The design and the sample weights; the original ones if few rows stand for many."""
        problem = self.inner.problem
        return problem.design.uncompressed(problem.d)

    def solution(self) -> tuple[np.ndarray, np.ndarray]:
        """The coefficients and the free set, for the whole design."""
        theta = np.zeros(self.n_features)
        theta[self.universe[self.A]] = self.theta
        return theta, np.sort(self.universe[self.free])
