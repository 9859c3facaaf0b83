r"""The quadratic soft-min homotopy: from the weighted lasso to the trimmed penalty by degrees.

For ``gamma >= 0`` let

.. math:: \phi_\gamma(r) = \min_{w \in S}\; \langle w, r\rangle + \frac{1}{2\gamma}\|w - w_0\|^2, \qquad
          w_\gamma(r) = \mathrm{proj}_S(w_0 - \gamma r),\qquad w_0 = (p-h)/p.

At ``gamma = 0`` every coordinate is penalized alike; as it grows the weights of the large magnitudes
fall to 0 and those of the rest rise to 1, until w is a vertex of S and ``phi`` the trimmed sum.
``phi_gamma`` is concave in r, so solving the weighted problem and taking new weights is a
majorize-minimize step for each gamma. Following the minimizer as gamma rises leads to far better basins
than starting at the vertex, for O(p) a step.
"""

from __future__ import annotations

import numpy as np


def homotopy(inner, *, growth=1.5, first=0.1, max_stages=48):
    """Yield ``(theta, gradient, loss, weights)`` for rising gamma, ending at weights of zeros and ones.

    Parameters
    ----------
    inner : WorkingSetSolver
    growth, first : float
        gamma starts where the largest magnitude loses ``first`` of its weight, then grows by ``growth``.
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
