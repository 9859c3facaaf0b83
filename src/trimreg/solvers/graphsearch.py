r"""Exchanges of edges: free edges that are worth little for penalized ones that would gain much.

In units of ``F / 2`` an edge with slope g, value t, threshold :math:`\lambda` and curvature q is worth

.. math:: \text{cost} = \begin{cases} q t^2/2 & |t| \le \lambda/q\\ \lambda|t| - \lambda^2/(2q) & \text{else}
          \end{cases} \qquad\qquad
          \text{gain} = \begin{cases} g^2/(2q) & t = 0\\ \lambda|t| + \lambda^2/(2q) & \text{else} \end{cases}

when a free one is penalized, or a penalized one freed, with all else fixed; :math:`q = W_{ii} W_{jj} +
W_{ij}^2`. The least costly free edges are exchanged for as many of the most gainful penalized ones, MM goes
on from there, and what lowers the objective is kept. A failed exchange is tried again with half as many
edges, in the end with single ones, the most promising pairs first.
"""

from __future__ import annotations

import numpy as np

from .graphinner import WeightedGraphSolver
from .graphmm import Descent, descend

_TRIALS = {"medium": 30, "high": 100}
_SINGLE = 10  # edges on either side among which single exchanges are tried


def exchange_scores(inner: WeightedGraphSolver, point: Descent):
    """``(free, costs, penalized, gains)``: indices of edges, and what changing their weight is worth."""
    problem = inner.problem
    m = problem.n_edges
    rows, columns = np.triu_indices(problem.p, 1)
    theta, slope = point.theta[:m], point.gradient[:m]
    W = problem.S[rows, columns] - slope
    q = 1.0 + W**2  # W_ii = S_ii = 1
    level = problem.penalty.levels(problem.alpha)[:m]
    regular = (level > 0) & np.isfinite(level)
    free = np.flatnonzero(regular & (point.weights[:m] == 0))
    penalized = np.flatnonzero(regular & (point.weights[:m] > 0))
    size, lam, curvature = np.abs(theta[free]), level[free], q[free]
    costs = np.where(size <= lam / curvature, curvature * size**2 / 2, lam * size - lam**2 / (2 * curvature))
    size, lam, curvature = np.abs(theta[penalized]), level[penalized], q[penalized]
    zero = slope[penalized] ** 2 / (2 * curvature)
    gains = np.where(size == 0, zero, lam * size + lam**2 / (2 * curvature))
    return free, costs, penalized, gains


def exchange_edges(inner: WeightedGraphSolver, best: Descent, effort: str, tol: float):
    """Yield better and better points, the first from ``best``, until no exchange that is tried helps."""
    size = max(1, min(64, inner.problem.penalty.n_free // 4))
    exchanges = _exchanges(inner, best, size)
    for _ in range(_TRIALS[effort]):
        out, into = next(exchanges, (None, None))
        if out is None:
            return
        weights = best.weights.copy()
        weights[out], weights[into] = 1.0, 0.0
        *_, point = descend(inner, weights, best.theta, tol)
        if point.objective < best.objective - 1e-10 * max(1.0, abs(best.objective)):
            best = point
            exchanges = _exchanges(inner, best, max(1, np.size(out)))
            yield best


def _exchanges(inner, point, size):
    """Yield ``(out, into)``, edges to penalize and to free: ``size`` of them, half as many, ..., one."""
    free, costs, penalized, gains = exchange_scores(inner, point)
    order, counter = np.argsort(costs, kind="stable"), np.argsort(-gains, kind="stable")
    count = min(size, free.size, penalized.size)
    count = int(np.count_nonzero(costs[order[:count]] < gains[counter[:count]]))
    while count > 1:
        yield free[order[:count]], penalized[counter[:count]]
        count //= 2
    order, counter = order[:_SINGLE], counter[:_SINGLE]
    worth = gains[counter] - costs[order][:, None]
    for place in np.argsort(-worth, axis=None, kind="stable"):
        i, j = np.unravel_index(place, worth.shape)
        if worth[i, j] <= 0.0:
            return
        yield free[order[i]], penalized[counter[j]]
