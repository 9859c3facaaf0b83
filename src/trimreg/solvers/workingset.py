r"""The inner problem: a weighted l1 problem, solved by working sets to a certificate.

.. math:: \min_\theta\; L(Z\theta) + \sum_j t_j |\theta_j|, \qquad 0 \le t_j \le \infty.

A round costs one pass over X: the gradient at the current point says which coordinates violate
their optimality condition. They join the support and the unpenalized coordinates in a working set W, and the
quadratic model of L on W is minimized in Gram coordinates, where X is not touched at all. The loop ends
when the true gradient shows no violation above the tolerance, so rounding in the Gram matrix cannot
pass for convergence: it is corrected by the next round, as in iterative refinement.

On W, coordinate descent finds the support and signs; a Newton step on the support, unpenalized block
included, then ends what coordinate descent would crawl over.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np

from ..penalties.base import largest_violation, subgradient_residual
from . import linalg
from .kernels import coordinate_descent
from .pool import GramPool
from .problem import Problem

_EPOCHS = 50


def newton_on_support(gram, gradient, theta, threshold, positive, max_drops=10):
    """Minimize over the current support and signs, in place; a coordinate that reaches 0 is dropped.

    Unpenalized coordinates belong to the support whatever their value and may change sign.
    """
    free = (threshold == 0) & (np.diagonal(gram) > 0) & (not positive)
    for _ in range(max_drops):
        active = np.flatnonzero((theta != 0) | free)
        if active.size == 0:
            return
        slope = gradient[active] + threshold[active] * np.sign(theta[active])
        factor = linalg.regularized_cholesky(gram[np.ix_(active, active)])
        direction = -linalg.solve(factor, slope)
        decrease = slope @ direction
        if not decrease < 0:
            return
        bound = ~free[active] & (direction * theta[active] < 0)
        ratios = np.where(bound, -theta[active] / np.where(bound, direction, 1.0), np.inf)
        step = min(1.0, ratios.min())
        theta[active] += step * direction
        gradient += step * (direction @ gram[active])
        if step == 1.0:
            return
        theta[active[ratios <= step]] = 0.0


def minimize_block(gram, gradient, theta, threshold, positive, tol, max_rounds=100):
    """Minimize ``g'(x - theta) + (x - theta)' G (x - theta) / 2 + sum t |x|``; all arrays in place.

    Returns whether the conditions hold within ``tol``; rounding in a singular G can keep them from it.
    """
    for _ in range(max_rounds):
        epochs = coordinate_descent(gram, gradient, theta, threshold, positive, _EPOCHS, tol)
        if epochs == _EPOCHS or largest_violation(theta, gradient, threshold, positive) > tol:
            newton_on_support(gram, gradient, theta, threshold, positive)
            if not largest_violation(theta, gradient, threshold, positive) <= tol:
                continue
        return True
    return False


class Solution(NamedTuple):
    """The solution of a weighted l1 problem, with what was computed on the way."""

    theta: np.ndarray
    gradient: np.ndarray
    loss: float
    converged: bool


class WorkingSetSolver:
    """Solves a sequence of weighted l1 problems that differ in their thresholds only.

    Parameters
    ----------
    problem : Problem
        In normalized coordinates (:meth:`Problem.normalized`).
    tol : float
        Largest violation of an optimality condition, relative to the largest gradient at 0.
    """

    def __init__(self, problem: Problem, tol: float, max_rounds: int = 1000):
        self.problem = problem
        self.max_rounds = max_rounds
        zero = np.zeros(problem.n_features)
        self.gradient_at_zero = problem.gradient(problem.predictor(zero))
        self.scale = float(np.max(np.abs(self.gradient_at_zero), initial=0.0)) or 1.0
        self.tol = max(tol, 50 * np.finfo(float).eps)
        self.goal = self.scale * self.tol
        self.alive = problem.design.column_norms(problem.d) > 0
        constant = problem.loss.constant_curvature
        self.pool = GramPool(problem.design, problem.d) if constant else None

    def at_alpha(self, alpha: float) -> WorkingSetSolver:
        """This solver for another alpha; the Gram pool and all else that does not depend on it is shared."""
        other = copy.copy(self)
        other.problem = self.problem.at(alpha)
        return other

    def solve(self, theta, threshold, *, tol=None, gradient=None) -> Solution:
        """The minimizer from a warm start, whose gradient need not be computed again if it is given."""
        problem = self.problem
        goal = self.goal if tol is None else self.scale * max(tol, self.tol)
        if np.any(theta[np.isinf(threshold)]):
            theta, gradient = np.where(np.isinf(threshold), 0.0, theta), None
        eta = problem.predictor(theta)
        free = (threshold == 0) & self.alive
        for _ in range(self.max_rounds):
            if gradient is None:
                gradient = problem.gradient(eta)
            violation = np.abs(subgradient_residual(theta, gradient, threshold, problem.positive))
            worst = float(np.max(violation, initial=0.0))
            if worst <= goal:
                return Solution(theta, gradient, problem.loss_value(eta), True)
            W = self._working_set(theta, free, violation, goal)
            theta, eta = self._improve(theta, eta, gradient, threshold, W, max(0.3 * goal, 0.03 * worst))
            gradient = None
        return Solution(theta, problem.gradient(eta), problem.loss_value(eta), False)

    def _working_set(self, theta, free, violation, goal):
        """The support, the free coordinates, and as many again of the worst violators (at least 32)."""
        kept = (theta != 0) | free
        rank = np.where(kept, 0.0, violation)
        room = max(32, int(np.count_nonzero(kept)))
        candidates = np.flatnonzero(rank > goal)
        if candidates.size > room:
            candidates = candidates[np.argpartition(-rank[candidates], room)[:room]]
        kept[candidates] = True
        return np.flatnonzero(kept)

    def _improve(self, theta, eta, gradient, threshold, W, tol):
        """One Newton model on W, and the step it allows."""
        problem = self.problem
        pool = self.pool or GramPool(problem.design, problem.loss.curvature(eta, problem.y, problem.d))
        local = theta[W]
        minimize_block(pool.block(W), gradient[W], local, threshold[W], problem.positive, tol)
        following = theta.copy()
        following[W] = local
        eta_new = problem.predictor(following)
        if problem.loss.constant_curvature:
            return following, eta_new
        return self._line_search(theta, eta, gradient, threshold, following, eta_new)

    def _line_search(self, theta, eta, gradient, threshold, following, eta_new):
        """Backtracking on the weighted objective (Armijo, with the l1 part as in Lee et al. 2014)."""
        penalized = np.isfinite(threshold) & (threshold > 0)

        def value(point, predictor):
            with np.errstate(over="ignore"):  # too long a step: inf is never below the start
                loss = self.problem.loss_value(predictor)
            return loss + float(threshold[penalized] @ np.abs(point[penalized]))

        start = value(theta, eta)
        slope = float(gradient @ (following - theta)) + float(
            threshold[penalized] @ (np.abs(following[penalized]) - np.abs(theta[penalized]))
        )
        step = 1.0
        for _ in range(40):
            point = theta + step * (following - theta)
            predictor = eta + step * (eta_new - eta)
            if value(point, predictor) <= start + 1e-4 * step * min(slope, 0.0):
                return point, predictor
            step *= 0.5
        return theta, eta


class GramSolver:
    """The same for least squares on some columns only, in Gram coordinates: X is not touched.

    It starts from a point of the whole problem and treats the gradient outside its columns as if it stood
    still. What it finds is a point of the whole problem, with its true objective, though
    columns outside may violate their conditions there.

    Parameters
    ----------
    inner : WorkingSetSolver
    columns : ndarray of int
        Must contain the support of ``theta``.
    theta, gradient, loss
        A point, the gradient and the value of the loss there.
    """

    def __init__(self, inner: WorkingSetSolver, columns, theta, gradient, loss):
        self.problem, self.scale, self.tol, self.goal = inner.problem, inner.scale, inner.tol, inner.goal
        self.pool = inner.pool
        self.columns = columns
        self.alive = np.zeros_like(inner.alive)
        self.alive[columns] = inner.alive[columns]
        self._gram = inner.pool.block(columns)
        self._theta, self._gradient, self._loss = theta, gradient, loss

    def solve(self, theta, threshold, *, gradient=None) -> Solution:
        U = self.columns
        local = theta[U]
        moved = local - self._theta[U]
        changed = np.flatnonzero(moved)
        slope = self._gradient[U] + moved[changed] @ self._gram[changed]
        done = minimize_block(self._gram, slope, local, threshold[U], self.problem.positive, 0.3 * self.goal)
        moved = local - self._theta[U]
        loss = self._loss + 0.5 * float(moved @ (slope + self._gradient[U]))
        theta, gradient = self._theta.copy(), self._gradient.copy()
        theta[U], gradient[U] = local, slope
        return Solution(theta, gradient, loss, done)
