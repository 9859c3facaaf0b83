r"""Exchanges of edges: free edges that are worth little for penalized ones that would gain much.

In units of ``F / 2``, with :math:`\lambda` the threshold of an edge where it is penalized and t its entry in
Theta:

- *Freeing* a penalized edge lets :math:`W_{ij} = w` go to :math:`S_{ij} = s`. If the entries of Theta at i
  and j alone adapt (a step of iterative proportional fitting), that gains

  .. math:: \lambda |t| + \frac{1 - s w}{1 - w^2} - 1 + \frac12 \log \frac{1 - w^2}{1 - s^2} .

- *Penalizing* a free edge takes it to zero if it is small, which costs :math:`-\frac12 \log(1 - \rho^2)`
  with its partial correlation :math:`\rho` if all else adapts freely. If :math:`|t| > \lambda / q` it only
  shrinks, at a cost of :math:`\lambda |t| - \lambda^2 / (2 q)`; :math:`1/q = \Theta_{ii} \Theta_{jj} + t^2`.

Both are estimates from below of what MM finds. The least costly free edges are exchanged for as many of the
most gainful penalized ones, MM goes on from there, and what lowers the objective is kept. A failed exchange
is tried again with half as many edges, in the end with single ones, the most promising pairs first.
"""

from __future__ import annotations

import numpy as np

from .inner import WeightedGraphSolver
from .mm import Descent, descend

_SINGLE = 10  # edges on either side among which single exchanges are tried
_BELOW_ONE = 1.0 - 1e-12
_FORBIDDING = 4.0  # no slope of a correlation matrix reaches 2: larger thresholds are all alike


def exchange_scores(inner: WeightedGraphSolver, point: Descent):
    """``(free, costs, penalized, gains)``: indices of edges, and what changing their weight is worth."""
    problem = inner.problem
    m = problem.n_edges
    rows, columns = problem.pairs
    size, slope, diagonal = np.abs(point.theta[:m]), point.gradient[:m], point.theta[m:]
    level = problem.penalty.levels(problem.alpha)[:m]
    regular = (level > 0) & np.isfinite(level)
    level = np.minimum(level, _FORBIDDING)
    free = np.flatnonzero(regular & (point.weights[:m] == 0))
    penalized = np.flatnonzero(regular & (point.weights[:m] > 0))

    scale = diagonal[rows[free]] * diagonal[columns[free]]
    t, lam, inverse_q = size[free], level[free], scale + size[free] ** 2
    to_zero = -0.5 * np.log1p(-np.minimum(t**2 / scale, _BELOW_ONE))
    costs = np.where(t <= lam * inverse_q, to_zero, lam * t - lam**2 * inverse_q / 2)

    s = problem.S[rows[penalized], columns[penalized]]
    w = s - slope[penalized]
    s2, w2 = np.minimum(s**2, _BELOW_ONE), np.minimum(w**2, _BELOW_ONE)
    fitted = (1.0 - s * w) / (1.0 - w2) - 1.0 + 0.5 * np.log((1.0 - w2) / (1.0 - s2))
    return free, costs, penalized, level[penalized] * size[penalized] + fitted


def exchange_edges(inner: WeightedGraphSolver, best: Descent, patience: int, max_steps: int, tol: float):
    """Yield better and better points, the first from ``best``, until ``patience`` exchanges in a row fail.

    Nothing new is begun once the solver has taken ``max_steps`` Newton steps in all.
    """
    exchanges = _exchanges(inner, best, max(1, min(64, inner.problem.penalty.n_free // 4)))
    failures = 0
    while failures < patience and inner.n_steps < max_steps:
        out, into = next(exchanges, (None, None))
        if out is None:
            return
        point = _exchanged(inner, best, out, into, tol)
        failures += 1
        if point is not None and point.objective < best.objective - 1e-10 * max(1.0, abs(best.objective)):
            best, failures = point, 0
            exchanges = _exchanges(inner, best, max(1, np.size(out)))
            yield best


def kicked(inner: WeightedGraphSolver, best: Descent, rng, tol: float) -> Descent | None:
    """Where MM leads if a fifth of the free edges are exchanged for others that look promising, at random.

    None if there is nothing to exchange, or no minimum to be led to.
    """
    free, _, penalized, gains = exchange_scores(inner, best)
    count = min(max(2, free.size // 5), free.size, penalized.size)
    if count == 0:
        return None
    promising = penalized[_smallest(-gains, 4 * count)]
    out, into = (rng.choice(edges, count, replace=False) for edges in (free, promising))
    return _exchanged(inner, best, out, into, tol)


def _exchanged(inner, point, out, into, tol):
    """Where MM leads after an exchange; None if it has no minimum."""
    weights = point.weights.copy()
    weights[out], weights[into] = 1.0, 0.0
    try:
        *_, end = descend(inner, weights, point.theta, tol)
    except ArithmeticError:
        return None
    return end


def _smallest(values, count):
    """Places of the ``count`` smallest values, in rising order."""
    if count >= values.size:
        return np.argsort(values, kind="stable")
    places = np.sort(np.argpartition(values, count)[:count])
    return places[np.argsort(values[places], kind="stable")]


def _exchanges(inner, point, size):
    """Yield ``(out, into)``, edges to penalize and to free: ``size`` of them, half as many, ..., one."""
    free, costs, penalized, gains = exchange_scores(inner, point)
    largest = max(size, _SINGLE)
    order, counter = _smallest(costs, largest), _smallest(-gains, largest)
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
