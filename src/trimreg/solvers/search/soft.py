r"""Exchanges under a finite penalty: which coordinates are free decides the basin.

At a local minimum with free set S and penalized nonzeros P, all derivatives vanish on the active set
``A = S + P`` for fixed signs, so the objective is a quadratic there. The effect of an exchange (i of S
becomes penalized, j becomes free) then has a closed form: see :func:`trimreg.solvers.mm.kernels.best_swaps`
for j outside A. For j in P, freeing it gains ``t_j |theta_j| + t_j^2 [M^-1]_jj / 2`` and moves ``theta_i`` by
``t_j sign(theta_j) [M^-1]_ij``. These forms are exact while the signs stay. They rank the exchanges; the
exchanges that are tried are refitted, and kept only if the objective falls.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...penalties.base import subgradient_residual
from ..gram import inverse_factor, regularized_cholesky
from ..mm.kernels import best_swaps
from ..mm.workingset import GramSolver
from .exchange import Exchanges, Search


def huber_cost(theta, inverse, threshold):
    """Least rise of a quadratic of curvature ``1/inverse``, at its minimum theta, on adding ``t |theta|``."""
    size = np.abs(theta)
    clipped = np.minimum(size, threshold * inverse)
    return clipped * size / inverse - clipped**2 / (2.0 * inverse)


class SoftSearch(Search):
    """A free set, the local minimum that it leads to, and the exchanges that improve it.

    ``inner`` solves a least-squares problem in normalized coordinates. MM starts from ``theta`` and the free
    set ``free``; the ``gradient`` is that of the loss at theta, if it is known.
    """

    state = ("theta", "gradient", "loss", "objective", "free")
    n_outside = 64  # candidates outside the active set that are scored: those of largest gradient

    def __init__(self, inner: Any, theta: np.ndarray, free: np.ndarray, gradient: Any = None):
        self.inner = inner
        self.problem = inner.problem
        self.norm = self.problem.penalty.norm
        self.levels = self.problem.penalty.levels(self.problem.alpha)
        # A smaller difference is rounding: if F is nearly 0, "improving" it would never end.
        self.negligible = 1e-12 * abs(self.problem.loss_value(self.problem.origin()))
        self.theta, self.gradient = theta, gradient
        self.move_to(free)

    def narrowed(self) -> SoftSearch:
        """The search over the active columns and the 2h others (at least 100) of largest gradient."""
        inner, count = self.inner, max(100, 2 * self.free.size)
        columns = inner.alive & np.isfinite(self.levels) & ((inner.gram.place >= 0) | (self.theta != 0))
        columns[self.free] = True
        outside = np.flatnonzero(~columns & inner.alive & np.isfinite(self.levels))
        complete = outside.size <= count
        if not complete:
            outside = outside[np.argpartition(-self._pull(outside), count)[:count]]
        columns[outside] = True
        local = GramSolver(inner, np.flatnonzero(columns), self.theta, self.gradient, self.loss)
        narrow = SoftSearch(local, self.theta, self.free, self.gradient)
        narrow.complete = complete
        return narrow

    def adopt(self, other: SoftSearch) -> None:
        """Move to the point of another search of the same problem if it is lower."""
        if other.objective < self.objective:
            self._settle(other.theta, other.free)

    def move_to(self, free: np.ndarray) -> None:
        """Run MM from this free set to a local minimum, and take the free set found there."""
        self._settle(self.theta, free, self.gradient)

    def _settle(self, theta, free, gradient=None):
        inner, problem, penalty = self.inner, self.problem, self.problem.penalty
        threshold = self.levels.copy()
        threshold[free] = 0.0
        objective = np.inf
        while True:
            theta, gradient, self.loss, _ = inner.solve(theta, threshold, gradient=gradient)
            previous, objective = objective, self.loss + penalty.value(theta, problem.alpha)
            threshold = penalty.thresholds(problem.weights(theta, gradient), problem.alpha)
            residual = problem.residual(theta, gradient, threshold)
            worst = np.max(np.abs(residual), initial=0.0, where=self.norm.spread(inner.alive))
            # The second test is for rounding: no descent is left.
            if worst <= inner.goal or not objective < previous * (1 - 1e-13):
                break
        self.theta, self.gradient, self.objective = theta, gradient, objective
        self.free = np.flatnonzero((threshold == 0) & (self.levels > 0) & inner.alive)

    def exchanges(self) -> Exchanges:
        S, P, always, O = self._parts()
        self._active = np.concatenate([S, P, always])
        self._block = self.inner.gram.block(self._active)
        half = inverse_factor(regularized_cholesky(self._block))
        diagonal = np.einsum("ij,ij->j", half, half)  # of the inverse, half' half
        outside, penalized = self._score_outside(O, half, diagonal), self._score_penalized(P, half, diagonal)
        entry, gain, partner = (np.concatenate(pair) for pair in zip(outside, penalized, strict=True))
        cost = huber_cost(self.theta[S], diagonal[: S.size], self.levels[S])
        self.scores = Exchanges(S, cost, np.concatenate([O, P]), entry, gain, partner)
        return self.scores

    def _parts(self):
        """The free set, the penalized nonzeros, the never penalized, and the other candidates."""
        levels, alive = self.levels, self.inner.alive
        kind = np.where(levels == 0, 2, (self.norm.lengths(self.theta) > 0).astype(int))
        kind[self.free] = 3
        kind[~alive | np.isinf(levels)] = -1
        O = np.flatnonzero(kind == 0)
        if O.size > self.n_outside:
            pull = self._pull(O)
            O = np.sort(O[np.argpartition(-pull, self.n_outside)[: self.n_outside]])
        return self.free, np.flatnonzero(kind == 1), np.flatnonzero(kind == 2), O

    def _pull(self, O):
        return np.abs(self._slope(O))

    def _slope(self, O):
        """The gradient of coordinates at 0, as far as their bounds let them follow it."""
        bounds = self.problem.bounds
        inside = None if bounds is None else (bounds[0][O], bounds[1][O])
        return subgradient_residual(self.theta[O], self.gradient[O], 0.0, inside)

    def _score_outside(self, O, half, diagonal):
        """``(entry, gain, partner)`` for coordinates at zero."""
        S = self.free
        entry, gain, partner = np.zeros(O.size), np.full(O.size, -np.inf), np.zeros(O.size, dtype=np.int64)
        if O.size:
            explained = self.inner.gram.block(O, self._active) @ half.T
            link = explained @ half[:, : S.size]
            own = self.inner.gram.diagonal(O)
            spare = own - np.einsum("ij,ij->i", explained, explained)
            spare[spare < 1e-9 * own] = 0.0
            pull = -self._slope(O)
            np.divide(pull**2, 2.0 * spare, out=entry, where=spare > 0)
            best_swaps(link, pull, spare, self.theta[S], diagonal[: S.size], self.levels[S], gain, partner)
        return entry, gain, partner

    def _score_penalized(self, P, half, diagonal):
        """``(entry, gain, partner)`` for penalized nonzeros."""
        S, theta, level = self.free, self.theta, self.levels[P]
        at = np.arange(S.size, S.size + P.size)
        between = half[:, at].T @ half[:, : S.size]
        entry = level * np.abs(theta[P]) + 0.5 * level**2 * diagonal[at]
        if P.size == 0 or S.size == 0:
            return entry, np.full(P.size, -np.inf), np.zeros(P.size, dtype=np.int64)
        moved = theta[S] + (level * np.sign(theta[P]))[:, None] * between
        gain = entry[:, None] - huber_cost(moved, diagonal[: S.size], self.levels[S])
        return entry, gain.max(axis=1), gain.argmax(axis=1)

    def attempt(self, leave: np.ndarray, enter: np.ndarray) -> bool:
        """Refit with these exchanged, on the active set alone; if F falls, move there."""
        known = (enter[:, None] == self._active).any(axis=1)
        parts = np.concatenate([self._active, enter[~known]])
        W = self.norm.coordinates(parts)
        threshold = self.levels.copy()
        threshold[self.free] = 0.0
        threshold[leave] = self.levels[leave]
        threshold[enter] = 0.0
        local, gradient = self.theta[W], self.gradient[W]
        block, goal, a = self._block, 1e-4 * self.inner.scale, len(self._block)
        if W.size > a:
            block, cross = np.empty((W.size, W.size)), self.inner.gram.block(W[a:], W)
            block[:a, :a], block[a:], block[:a, a:] = self._block, cross, cross[:, :a].T
        self.inner.minimize_model(parts, block, gradient, local, threshold[parts], goal)
        theta = self.theta.copy()
        theta[W] = local
        moved = local - self.theta[W]
        # The change of the quadratic is the mean of its gradients at both ends times the move. Its penalty
        # with S fixed bounds the trimmed one from above.
        loss = self.loss + 0.5 * moved @ (gradient + self.gradient[W])
        value = loss + threshold[parts] @ self.norm.lengths(theta)[parts]
        if not value < self.objective - max(1e-9 * abs(self.objective), self.negligible):
            return False
        self._settle(theta, np.flatnonzero(threshold == 0))
        return True

    def solution(self) -> tuple[np.ndarray, np.ndarray]:
        return self.theta, self.free
