"""Majorize and minimize on a graphical problem: the loop that every search goes down by."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...penalties.base import largest_violation
from .inner import WeightedGraphSolver


@dataclass
class Descent:
    """Where MM stands: a point and the weights whose problem it solves."""

    theta: np.ndarray
    weights: np.ndarray
    gradient: np.ndarray
    objective: float  # F / 2
    gap: float  # of the weighted problem, relative to F
    violation: float  # of the optimality conditions with the weights of the point itself
    settled: bool  # whether these are the weights of the point itself, or as good


def descend(inner: WeightedGraphSolver, weights, theta, tol, max_steps=1000):
    """Yield the steps of MM from these weights until they are the weights of the solution."""
    problem = inner.problem
    penalty, alpha = problem.penalty, problem.alpha
    before = np.inf
    for _ in range(max_steps):
        theta, gradient, loss, fit = inner.solve(theta, penalty.thresholds(weights, alpha), tol=tol)
        objective = loss + penalty.value(theta, alpha)
        following = problem.weights(theta, gradient)
        violation = largest_violation(theta, gradient, penalty.thresholds(following, alpha))
        rounding = 1e-13 * max(1.0, abs(objective))
        settled = bool(np.array_equal(following, weights) or violation <= 100 * tol)
        stalled = objective >= before - rounding
        gap = fit.gap / max(1.0, abs(2 * objective + inner.shift))
        yield Descent(theta, weights, gradient, objective, gap, violation, settled or stalled)
        if settled or stalled:
            return
        weights, before = following, objective
