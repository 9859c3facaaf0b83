r"""Best subsets of a quadratic model over a box: exchanges of coefficients that have bounds.

A free coefficient that leaves is set to 0 and the others are refitted within their bounds, one small problem
for each. At that refit the best step of coordinate j alone,

.. math:: \max_{l_j \le x \le u_j}\; -g_j x - \tfrac12 G_{jj} x^2,

is what j gains at least by entering in its place. So the scores are lower bounds, and the exchanges that are
tried are refitted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..box import minimize_box
from .exchange import Exchanges, Search

_DIGITS = 1e-9  # of the gradient, to which a refit is solved


class BoundedSubset(Search):
    """A set of free coefficients and the minimum of a quadratic model over them, within their bounds.

    ``model`` is a :class:`~trimreg.solvers.mm.workingset.GramSolver`; the search is among its coordinates.
    """

    state = ("free", "objective", "theta", "gradient")

    def __init__(self, model: Any, free: np.ndarray, theta: np.ndarray, gradient: np.ndarray, value: float):
        self.inner, problem = model, model.problem
        self.columns = U = model.columns
        self.gram = model.gram.block(U)
        self.lower, self.upper = problem.bounds[0][U], problem.bounds[1][U]
        self.always = problem.penalty.levels(1.0)[U] == 0
        self.tol = _DIGITS * model.scale
        self.theta, self.gradient, self.objective = theta[U], gradient[U], value
        self.move_to(free)

    def narrowed(self) -> BoundedSubset:
        return self

    def _with(self, kept):
        """``(theta, gradient, rise)`` at the minimum over these coordinates."""
        theta = np.where(kept, self.theta, 0.0)
        gradient = self.gradient + (theta - self.theta) @ self.gram
        A = np.flatnonzero(kept)
        local, slope = theta[A], gradient[A]
        lower, upper, none = self.lower[A], self.upper[A], np.zeros(A.size)
        minimize_box(self.gram[A[:, None], A], slope, local, none, lower, upper, self.tol)
        gradient += (local - theta[A]) @ self.gram[A]
        theta[A] = local
        return theta, gradient, 0.5 * float((theta - self.theta) @ (gradient + self.gradient))

    def _kept(self, free):
        kept = self.always.copy()
        kept[np.searchsorted(self.columns, free)] = True
        return kept

    def move_to(self, free: np.ndarray) -> None:
        """Take this free set."""
        self.theta, self.gradient, rise = self._with(self._kept(free))
        self.free, self.objective = free, self.objective + rise

    def _entry_gains(self, gradient, others):
        curvature = np.diagonal(self.gram)[others]
        best = np.divide(-gradient[others], curvature, out=np.zeros(others.size), where=curvature > 0)
        best = np.clip(best, self.lower[others], self.upper[others])
        return -best * (gradient[others] + 0.5 * curvature * best)

    def exchanges(self) -> Exchanges:
        kept = self._kept(self.free)
        others = np.flatnonzero(~kept)
        cost, gain = np.zeros(self.free.size), np.full(others.size, -np.inf)
        partner = np.zeros(others.size, dtype=np.int64)
        for i, place in enumerate(np.searchsorted(self.columns, self.free)):
            fewer = kept.copy()
            fewer[place] = False
            _, gradient, cost[i] = self._with(fewer)
            swap = self._entry_gains(gradient, others) - cost[i]
            partner[swap > gain] = i
            gain = np.maximum(gain, swap)
        entry = self._entry_gains(self.gradient, others)
        return Exchanges(self.free, cost, self.columns[others], entry, gain, partner)

    def attempt(self, leave: np.ndarray, enter: np.ndarray) -> bool:
        """Exchange these coordinates if the model falls by it."""
        free = np.append(np.setdiff1d(self.free, leave), enter)
        theta, gradient, rise = self._with(self._kept(free))
        if not rise < -1e-10 * abs(self.objective):
            return False
        self.free, self.theta, self.gradient = free, theta, gradient
        self.objective += rise
        return True

    def solution(self) -> tuple[np.ndarray, np.ndarray]:
        theta = np.zeros(self.inner.problem.n_features)
        theta[self.columns] = self.theta
        return theta, self.free
