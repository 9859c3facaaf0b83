r"""Starts for the default solver. Which local minimum MM finds is decided by where it starts.

The main one is the quadratic soft-min homotopy, from the weighted lasso to the trimmed penalty by degrees.
For ``gamma >= 0`` let

.. math:: \phi_\gamma(r) = \min_{w \in S}\; \langle w, r\rangle + \frac{1}{2\gamma}\|w - w_0\|^2, \qquad
          w_\gamma(r) = \mathrm{proj}_S(w_0 - \gamma r),\qquad w_0 = (p-h)/p.

At ``gamma = 0`` every coordinate is penalized alike. As gamma grows, the weights of the large magnitudes
fall to 0 and the others rise to 1, until w is a vertex of S and ``phi`` the trimmed sum. ``phi_gamma`` is
concave in r, so solving the weighted problem and taking new weights is a majorize-minimize step for each
gamma. Following the minimizer as gamma rises leads to far better basins than starting at the vertex, for
O(p) work per step.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import numpy as np

from ..driver import Step
from ..search.groups import eliminated
from ..search.soft import SoftSearch
from .workingset import GramSolver, WorkingSetSolver

Stage = tuple[np.ndarray, np.ndarray, float, np.ndarray]  # theta, gradient, loss, weights


def default_start(
    inner: WorkingSetSolver, effort: Any
) -> Generator[Step, None, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """The start of MM, ``(theta, gradient, weights)``; a generator of the steps that lead to it."""
    problem, penalty = inner.problem, inner.problem.penalty
    alpha = min(problem.alpha, start_alpha(inner)) if penalty.n_free else problem.alpha
    softened = inner.at(alpha)
    if effort.search and alpha == problem.alpha and softened.gram is None:
        return (yield from _homotopy_apart(softened))
    if effort.search and alpha == problem.alpha:
        for theta, gradient, loss, weights in homotopy(softened):  # noqa: B007 - the last is used
            yield Step(theta, weights, loss + penalty.value(theta, alpha), message="homotopy")
        if effort.rivals:
            theta, gradient = rising_alpha(softened, theta, gradient)
        return theta, gradient, softened.problem.weights(theta, gradient)
    rounds = 1 if alpha == problem.alpha else 5
    # Without a Gram matrix every digit costs passes over X, and MM continues from here anyway.
    exactly = alpha == problem.alpha and inner.gram is not None
    tol = inner.tol if exactly else max(1e-3, inner.tol)
    theta, gradient, loss, weights = lasso_start(softened, tol, rounds)
    yield Step(theta, weights, loss + penalty.value(theta, problem.alpha), message="start")
    return theta, gradient, weights


def _homotopy_apart(inner):
    """The homotopy of a loss without a Gram matrix, on the columns alone that are likely to matter.

    They are the columns of the weighted lasso, where the homotopy begins, and those of the largest gradients
    there. The MM and the exchanges that follow see all columns.
    """
    problem, norm = inner.problem, inner.norm
    theta, gradient, loss, weights = lasso_start(inner, 1e-2, rounds=1)
    yield Step(theta, weights, loss + problem.penalty.value(theta, problem.alpha), message="start")
    levels = problem.penalty.levels(problem.alpha)
    inside = (norm.lengths(theta) > 0) | (levels == 0)
    needed = max(problem.penalty.n_free, np.count_nonzero(inside))
    room = int(min(4 * max(64, needed), max(needed + 8, inner.room())))
    pull = np.where(inside, np.inf, norm.dual_lengths(gradient))
    pull[np.isinf(levels) | ~inner.alive] = -1.0
    parts = np.sort(np.argpartition(-pull, min(room, pull.size) - 1)[:room])
    apart, W = inner.restricted(parts), norm.coordinates(parts)
    for local, *_ in homotopy(apart):
        theta = np.zeros_like(theta)
        theta[W] = local
        yield Step(theta, weights, problem.objective(theta), message="homotopy")
    gradient = problem.gradient(problem.predictor(theta))
    return theta, gradient, problem.weights(theta, gradient)


def start_alpha(inner: WorkingSetSolver) -> float:
    """The alpha of a start if alpha itself is too large for one: a fraction of the alpha that zeroes all."""
    factor = inner.problem.penalty.levels(1.0)
    regular = (factor > 0) & np.isfinite(factor)
    pull = inner.norm.dual_lengths(inner.gradient_at_null)
    return 0.3 * np.max(pull[regular] / factor[regular], initial=0.0)


def lasso_start(inner: WorkingSetSolver, tol: float, rounds: int = 5) -> Stage:
    """``(theta, gradient, loss, weights)`` of the weighted lasso followed by some steps of MM."""
    problem, penalty = inner.problem, inner.problem.penalty
    theta, gradient = inner.null, inner.gradient_at_null
    weights = np.ones(inner.norm.count)
    for _ in range(rounds):
        threshold = penalty.thresholds(weights, problem.alpha)
        theta, gradient, loss, _ = inner.solve(theta, threshold, tol=tol, gradient=gradient)
        previous, weights = weights, problem.weights(theta, gradient)
        if np.array_equal(weights, previous):
            break
    return theta, gradient, loss, weights


def eliminated_start(inner: WorkingSetSolver) -> Generator[Step, None, tuple[np.ndarray, np.ndarray]]:
    """``(theta, weights)`` with the h free parts that backward elimination leaves of a weighted lasso.

    The alpha of the lasso falls until more than enough parts are in. A generator of steps.
    """
    problem, norm, h = inner.problem, inner.norm, inner.problem.penalty.n_free
    levels = problem.penalty.levels(1.0)
    regular = (levels > 0) & np.isfinite(levels) & inner.alive
    alpha, theta, gradient = start_alpha(inner), inner.null, inner.gradient_at_null
    most = min(2 * h, int(np.count_nonzero(regular)))
    for _ in range(6):
        threshold = problem.penalty.levels(alpha)  # not levels * alpha: both inf and 0 may occur
        theta, gradient, loss, _ = inner.solve(theta, threshold, tol=1e-2, gradient=gradient)
        chosen = np.flatnonzero((norm.lengths(theta) > 0) & regular)
        if chosen.size >= most:
            break
        alpha *= 0.6
    weights = problem.weights(theta, gradient)
    yield Step(theta, weights, loss + problem.penalty.value(theta, problem.alpha), message="start")
    if chosen.size <= h:
        return np.where(norm.spread(weights > 0), 0.0, theta), weights
    parts = np.flatnonzero((norm.lengths(theta) > 0) | ((levels == 0) & inner.alive))
    model = GramSolver(inner, parts, theta, gradient, loss, inner.point(theta)[0])
    free = eliminated(model, theta, gradient, chosen, h)
    kept = levels == 0
    kept[free] = True
    theta = np.where(norm.spread(kept), theta, 0.0)
    return theta, problem.weights_freeing(theta, free)


def homotopy(inner: Any, *, growth: float = 1.5, first: float = 0.1, max_stages: int = 48) -> Iterator[Stage]:
    """Yield ``(theta, gradient, loss, weights)`` for rising gamma, ending at weights of zeros and ones.

    Gamma starts where the largest magnitude loses ``first`` of its weight, then grows by the factor
    ``growth``.
    """
    problem = inner.problem
    penalty = problem.penalty
    start = penalty.uniform_weights()
    weights, gamma = start, 0.0
    levels = penalty.thresholds(start, problem.alpha)
    positive = levels[(levels > 0) & np.isfinite(levels)]
    tol = min(1e-3, 0.05 * positive.min(initial=np.inf) / inner.scale)
    theta, gradient = inner.null, inner.gradient_at_null
    for _ in range(max_stages):
        threshold = penalty.thresholds(weights, problem.alpha)
        theta, gradient, loss, _ = inner.solve(theta, threshold, tol=tol, gradient=gradient)
        yield theta, gradient, loss, weights
        magnitude = penalty.magnitudes(theta)
        top = magnitude.max(initial=0.0)
        if top == 0.0:
            return
        gamma = gamma * growth if gamma else first / top
        weights = penalty.project_weights(start - gamma * magnitude)
        fractional = (weights > 0) & (weights < 1)
        if not fractional[magnitude > 0].any():
            return


def rising_alpha(
    inner: WorkingSetSolver, theta: np.ndarray, gradient: np.ndarray, *, first: float = 0.05, count: int = 6
) -> tuple[np.ndarray, np.ndarray]:
    """A start for ``inner``'s alpha: follow local minima from a smaller alpha up to it.

    At a small alpha the problem is nearly unpenalized and its free set hardly matters. Each larger alpha
    starts from the free set of the one before. Returns the given point or the one found, whichever has the
    lower F.
    """
    problem = inner.problem
    rival, rival_gradient = theta, gradient
    for alpha in problem.alpha * np.geomspace(first, 1.0, count):
        search = SoftSearch(inner.at(alpha), rival, problem.free_set(rival, rival_gradient))
        rival, rival_gradient = search.theta, search.gradient
    incumbent = SoftSearch(inner, theta, problem.free_set(theta, gradient))
    if search.objective < incumbent.objective:
        return rival, rival_gradient
    return incumbent.theta, incumbent.gradient
