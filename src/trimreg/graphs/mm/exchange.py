r"""Exchanges of edges: free edges of little value against penalized edges that would gain much.

In units of ``F / 2``, with :math:`\lambda` the threshold of a penalized edge and t its entry in Theta:

- *Freeing* a penalized edge lets :math:`W_{ij} = w` move to :math:`S_{ij} = s`. If only the entries of Theta
  at i and j adapt (a step of iterative proportional fitting), the gain is

  .. math:: \lambda |t| + \frac{1 - s w}{1 - w^2} - 1 + \frac12 \log \frac{1 - w^2}{1 - s^2} .

- *Penalizing* a free edge sets it to zero if it is small. This costs :math:`-\frac12 \log(1 - \rho^2)`, with
  its partial correlation :math:`\rho`, if all other entries adapt freely. If :math:`|t| > \lambda / q` the
  edge only shrinks, at a cost of :math:`\lambda |t| - \lambda^2 / (2 q)`;
  :math:`1/q = \Theta_{ii} \Theta_{jj} + t^2`.

Both are lower bounds on the change that MM finds. The cheapest free edges are exchanged for as many of the
most gainful penalized ones, MM continues from there, and the result is kept if the objective falls. A failed
exchange is repeated with half as many edges, and finally with single ones, the most promising pairs first.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .inner import MMStep, WeightedGraphSolver, majorize_minimize

_SINGLE = 10  # edges on either side among which single exchanges are tried
_BELOW_ONE = 1.0 - 1e-12
_FORBIDDING = 4.0  # slopes of a correlation matrix stay below 2, so larger thresholds all act alike


def exchange_scores(inner: WeightedGraphSolver, point: MMStep) -> tuple[np.ndarray, ...]:
    """``(free, costs, penalized, gains)``: edges, and the cost or gain of changing their weight."""
    problem = inner.problem
    m = problem.n_edges
    rows, columns = problem.pairs
    size, slope, diagonal = np.abs(point.theta[:m]), point.gradient[:m], point.theta[m:]
    level = np.minimum(problem.penalty.levels(problem.alpha)[:m], _FORBIDDING)
    regular = problem.regular & (level > 0)
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


def exchange_edges(
    inner: WeightedGraphSolver, best: MMStep, patience: int, max_steps: int, tol: float
) -> Iterator[MMStep]:
    """Yield points of decreasing objective, starting from ``best``.

    Ends when ``patience`` exchanges in a row have failed. No exchange begins after ``max_steps`` Newton steps
    of the inner solver in total.
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


def kicked(inner: WeightedGraphSolver, best: MMStep, rng: np.random.Generator, tol: float) -> MMStep | None:
    """The end of MM after a fifth of the free edges are exchanged at random for promising penalized ones.

    None if there is nothing to exchange, or the weighted problem has no minimum.
    """
    free, _, penalized, gains = exchange_scores(inner, best)
    count = min(max(2, free.size // 5), free.size, penalized.size)
    if count == 0:
        return None
    promising = penalized[_smallest(-gains, 4 * count)]
    out, into = (rng.choice(edges, count, replace=False) for edges in (free, promising))
    return _exchanged(inner, best, out, into, tol)


def _exchanged(inner, point, out, into, tol):
    """The end of MM after an exchange; None if the weighted problem has no minimum."""
    weights = point.weights.copy()
    weights[out], weights[into] = 1.0, 0.0
    try:
        *_, end = majorize_minimize(inner, weights, point.theta, tol)
    except ArithmeticError:
        return None
    return end


def _smallest(values, count):
    """Positions of the ``count`` smallest values, in increasing order."""
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
