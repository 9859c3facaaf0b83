r"""Exchanges of whole groups: the search of :mod:`trimreg.solvers.polish`, with scores for groups.

At a local minimum with active set A (free groups, penalized nonzero ones, what is never penalized), let ``M``
be the Hessian on A, with the curvature of the penalized lengths. A free group i that leaves costs at most

.. math:: \min\bigl(\tfrac12\, \theta_i' [(M^{-1})_{ii}]^{-1} \theta_i,\; t_i \|\theta_i\|\bigr)

(set to 0 and the rest refitted, or kept and paid for), and a group j at 0 that enters gains :math:`\tfrac12\,
g_j' s_j^{-1} g_j` with the Schur complement :math:`s_j = M_{jj} - M_{jA} M^{-1} M_{Aj}`. They rank the
exchanges; the ones that are tried are refitted, and kept only if the objective falls.
"""

from __future__ import annotations

import numpy as np

from . import linalg
from .exchange import Exchanges
from .polish import SoftSearch
from .workingset import minimize_parts

_OUTSIDE = 32  # groups outside the active set that are scored, by the length of their gradient


class GroupSearch(SoftSearch):
    """A set of free groups, the local minimum that it leads to, and the exchanges that improve it.

    Takes a :class:`~trimreg.solvers.workingset.GramSolver`, so it is complete only over that solver's groups.
    """

    def narrowed(self, count=None):
        return self

    def exchanges(self) -> Exchanges:
        S, P, always, O = self._parts()
        norm, levels, length = self.norm, self.levels, self.norm.lengths(self.theta)
        self._active = np.concatenate([S, P, always])
        A = norm.coordinates(self._active)
        unit = float(self.inner.pool.diagonal(A).max(initial=0.0)) or 1.0
        inverse = linalg.inverse(linalg.regularized_cholesky(self._hessian(P, A) / unit)) / unit
        end = np.cumsum(norm.sizes[self._active])
        cost = np.empty(S.size)
        for k, i in enumerate(S):
            at = slice(end[k] - norm.sizes[i], end[k])
            theta = self.theta[A[at]]
            left = linalg.solve(linalg.regularized_cholesky(inverse[at, at] * unit), theta) * unit
            cost[k] = max(min(0.5 * float(theta @ left), levels[i] * length[i]), 0.0)
        entry = np.concatenate([self._entries(O, A, inverse), levels[P] * length[P]])
        cheapest = int(np.argmin(cost)) if S.size else 0
        gain = entry - cost[cheapest] if S.size else np.full(entry.size, -np.inf)
        partner = np.full(entry.size, cheapest, dtype=np.int64)
        return Exchanges(S, cost, np.concatenate([O, P]), entry, gain, partner)

    def _parts(self):
        levels, alive = self.levels, self.inner.alive
        kind = np.where(levels == 0, 2, (self.norm.lengths(self.theta) > 0).astype(int))
        kind[self.free] = 3
        kind[~alive | np.isinf(levels)] = -1
        O = np.flatnonzero(kind == 0)
        if O.size > _OUTSIDE:
            pull = self.norm.dual_lengths(self.gradient)[O] / levels[O]
            O = np.sort(O[np.argpartition(-pull, _OUTSIDE)[:_OUTSIDE]])
        return self.free, np.flatnonzero(kind == 1), np.flatnonzero(kind == 2), O

    def _hessian(self, P, A):
        """The Hessian on A, with that of ``t ||theta||`` for penalized nonzero groups and q = 2."""
        hessian = self.inner.pool.block(A).copy()
        if self.norm.q == 2 and P.size:
            place = np.zeros(self.theta.size, dtype=np.intp)
            place[A] = np.arange(A.size)
            for i in P:
                j = self.norm.coordinates([i])
                direction = self.theta[j]
                length = np.linalg.norm(direction)
                curve = (np.eye(j.size) - np.outer(direction, direction) / length**2) / length
                hessian[np.ix_(place[j], place[j])] += self.levels[i] * curve
        return hessian

    def _entries(self, O, A, inverse):
        entry = np.zeros(O.size)
        for k, j in enumerate(O):
            J = self.norm.coordinates([j])
            own, cross = self.inner.pool.block(J), self.inner.pool.block(J, A)
            spare = own - cross @ inverse @ cross.T
            unit = float(np.diagonal(own).max(initial=0.0))
            if unit > 0:
                pull = self.gradient[J]
                step = linalg.solve(linalg.regularized_cholesky(spare / unit), pull) / unit
                entry[k] = 0.5 * float(pull @ step)
        return np.maximum(entry, 0.0)

    def attempt(self, leave, enter) -> bool:
        """Refit with these exchanged, on the active groups alone; if F falls, settle there."""
        parts = np.concatenate([self._active, np.setdiff1d(enter, self._active)])
        W = self.norm.coordinates(parts)
        threshold = self.levels.copy()
        threshold[self.free] = 0.0
        threshold[leave] = self.levels[leave]
        threshold[enter] = 0.0
        local, gradient = self.theta[W], self.gradient[W]
        block, goal = self.inner.pool.block(W), 1e-4 * self.inner.scale
        minimize_parts(self.problem, parts, block, gradient, local, threshold[parts], goal)
        theta = self.theta.copy()
        theta[W] = local
        moved = local - self.theta[W]
        loss = self.loss + 0.5 * float(moved @ (gradient + self.gradient[W]))
        value = loss + float(threshold[parts] @ self.norm.lengths(theta)[parts])
        if not value < self.objective - max(1e-9 * abs(self.objective), self.negligible):
            return False
        self._settle(theta, np.flatnonzero(threshold == 0))
        return True
