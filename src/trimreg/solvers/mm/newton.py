"""Proximal Newton: a quadratic model where the curvature changes, and a line search toward its minimum."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

_EPS = float(np.finfo(float).eps)
LEAST_RIDGE, _LARGEST_RIDGE = 1e-10, 1e2  # added to a Newton model, in units of its largest curvature
_ROUNDED = 1e-12  # smaller relative changes of an objective cannot be told from rounding


class Moved(NamedTuple):
    """The point after a step; the objective is nan where it is not needed."""

    theta: np.ndarray
    predictor: np.ndarray
    objective: float


def newton_step(inner: Any, theta, eta, gradient, threshold, parts, tol) -> Moved | None:
    """The step that one Newton model on these parts allows, or None; ``inner`` is a working-set solver."""
    problem, W = inner.problem, inner.norm.coordinates(parts)
    hessian, slope = problem.hessian(eta, W, of_step=True), gradient[W]
    # In this unit the diagonal is of the order of 1. A loss that is flat here up to rounding has no such
    # unit: then the search begins at a step of many times the length of theta.
    steepest = float(np.max(np.abs(slope))) / max(1.0, float(np.max(np.abs(theta))))
    unit = max(float(np.diagonal(hessian).max(initial=0.0)), 1e-8 * steepest) or 1.0
    hessian /= unit
    diagonal = np.diagonal(hessian).copy()
    while True:
        # A loss need not be curved along every direction of descent (Huber's beyond its bend): without
        # the ridge its model has no minimum. The ridge grows, as in Levenberg-Marquardt, until a step
        # descends.
        hessian.flat[:: len(W) + 1] = diagonal + inner.ridge_of_steps * inner.share[W]
        local, following = theta[W], theta.copy()
        size = float(np.sqrt(inner.share[W]) @ np.abs(local))
        rounding = _EPS * (1.0 + inner.ridge_of_steps) * size
        aim = max(tol / unit, 4 * rounding)
        inner.minimize_model(parts, hessian, slope / unit, local, threshold[parts] / unit, aim)
        following[W] = local
        predictor = problem.predictor(following)
        moved, step = line_search(inner, theta, eta, gradient, threshold, following, predictor)
        if moved is not None:
            change = 0.1 if step == 1.0 else 1.0 if step > 1e-3 else 10.0
            inner.ridge_of_steps = float(np.clip(change * inner.ridge_of_steps, LEAST_RIDGE, _LARGEST_RIDGE))
            return moved
        if inner.ridge_of_steps >= _LARGEST_RIDGE:
            inner.ridge_of_steps = LEAST_RIDGE
            return None
        inner.ridge_of_steps *= 1e3


@np.errstate(over="ignore", invalid="ignore")  # too long a step gives inf, which is never below the start
def line_search(inner, theta, eta, gradient, threshold, following, eta_new):
    """Backtracking on the weighted objective (Armijo, with the l1 part as in Lee et al. 2014).

    Near the minimum the objective changes by less than its rounding, though slopes still show descent.
    There the change of the loss is computed as the mean slope of both ends times the step, with an error
    of third order in the step (as in the approximate Wolfe conditions of Hager and Zhang 2005). It is
    summed from the changes of the slopes, so that nothing large cancels, and X is not touched.
    """
    problem, penalized = inner.problem, np.isfinite(threshold) & (threshold > 0)
    lengths = inner.norm.lengths(theta)[penalized]
    descent = float(gradient @ (following - theta))
    curved = 0.5 * float(problem.ridge @ (following - theta) ** 2) if problem.ridge.any() else 0.0

    def added(point):
        return float(threshold[penalized] @ (inner.norm.lengths(point)[penalized] - lengths))

    slope = descent + added(following)
    start, linear = problem.loss_value(eta), float((problem.ridge * theta) @ (following - theta))
    smooth = start + 0.5 * float(problem.ridge @ theta**2)
    level, step = smooth + float(threshold[penalized] @ lengths), 1.0
    for _ in range(50 if slope < 0 else 0):
        point = theta + step * (following - theta) if step < 1 else following
        predictor = eta + step * (eta_new - eta)
        grown, bent = added(point), step**2 * curved
        change = told = problem.loss_value(predictor) - start + grown + step * linear + bent
        if abs(change) <= _ROUNDED * abs(level):
            way = predictor - eta
            if not way.any():
                break
            ends = [problem.loss.gradient(end, problem.y, problem.d) for end in (eta, predictor)]
            told = step * descent + grown + bent + 0.5 * float(np.sum((ends[1] - ends[0]) * way))
        if told <= 1e-4 * step * slope:
            return Moved(point, predictor, level + change), step
        step *= 0.5
    return None, 0.0
