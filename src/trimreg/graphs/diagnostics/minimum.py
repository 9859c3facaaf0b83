r"""Whether Theta is a local minimum of a penalized log-determinant objective.

With the loss :math:`L = \mathrm{tr}(S\Theta) - \log\det\Theta`, convex and smooth on the positive definite
matrices, and the edges as coordinates:

- **trimmed l1**: the complete conditions of :func:`trimreg.diagnostics.is_local_minimum`, with
  :math:`g_{ij} = (S - W)_{ij}`, and :math:`W_{ii} = S_{ii}`. Their proof requires only a convex loss.
- **l1**: the same with h = 0. The problem is convex, so a local minimum is the global one.
- **MCP, SCAD**: the weighted conditions with ``w = p'/alpha`` are necessary. They are sufficient if the
  second derivative of F is positive definite,

  .. math:: \mathrm{tr}(W E W E) - 2 \sum_{i<j} \kappa_{ij} E_{ij}^2 > 0, \qquad \kappa = -p'',

  for all E on the diagonal, the nonzero edges, and the zero edges whose condition is an equality: along
  the other zero edges F increases at a positive rate. If it is negative for some E on the diagonal and the
  nonzero edges, where F is smooth, F decreases along E. At a kink of p' the first conclusion uses the
  larger kappa and the second the smaller.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...diagnostics.local_minimum import Roles
from ...penalties import L1, MCP, SCAD, TrimmedL1, subgradient_residual
from .point import GraphPoint

_LARGEST_HESSIAN = 1500  # entries of Theta up to which the second derivative is formed as a matrix
_CURVATURE_ROUNDING = 1e-10
_CONVEX = "the problem is convex and its conditions hold: the global minimum"
_DIAGONAL = "the diagonal of the inverse is not that of S"


class Verdict(NamedTuple):
    """``holds`` is None if undecided; ``violation`` is the largest, in units of ``sqrt(S_ii S_jj)``."""

    holds: bool | None
    reason: str
    violation: float


class _EdgePoint(NamedTuple):
    """A point in the form that the check for regression models takes: the edges are its features."""

    penalty: TrimmedL1
    clean_theta: np.ndarray
    factor: np.ndarray
    alpha: float
    gradient: np.ndarray
    bounds: None = None  # edges have none

    @property
    def outside(self) -> np.ndarray:
        return np.zeros(self.clean_theta.size, dtype=bool)


def local_minimum(point: GraphPoint, tol: float) -> Verdict:
    """The verdict on a positive definite point, by the conditions of its penalty."""
    penalty = point.penalty
    flat = isinstance(penalty, (MCP, SCAD)) and np.isinf(penalty.gamma)
    if isinstance(penalty, L1) or flat:
        penalty = TrimmedL1(0, penalty_factor=point.factor).bind(point.factor.size)
    if not isinstance(penalty, TrimmedL1):
        return _folded(point, tol)
    edge = _EdgePoint(penalty, point.edges(point.theta), point.factor, point.alpha, point.gradient)
    roles = Roles(edge, tol)
    verdict = _conditions(point, roles.residual(), roles.reason, tol)
    regular = np.count_nonzero((point.factor > 0) & np.isfinite(point.factor))
    if verdict.holds and (penalty.n_free in (0, regular) or point.alpha == 0):
        return verdict._replace(reason=_CONVEX)
    return verdict


def _conditions(point, residual, reason, tol):
    """The verdict on the first-order conditions, from the violation at each edge."""
    at_edges = np.abs(residual) / point.unit
    variance = np.diag(point.S)
    on_diagonal = np.abs(variance - np.diag(point.inverse)) / variance
    worst = max(float(np.max(at_edges)), float(np.max(on_diagonal)))
    if worst <= tol:
        return Verdict(True, "every condition of a local minimum holds", worst)
    failing = np.any(at_edges > np.maximum(tol, point.edges(point.noise) / point.unit))
    failing |= np.any(on_diagonal > np.maximum(tol, np.diag(point.noise) / variance))
    if not failing:
        return Verdict(None, "the precision is too ill-conditioned: rounding hides its gradient", worst)
    if on_diagonal.max() > at_edges.max():
        i = int(np.argmax(on_diagonal))
        return Verdict(False, f"variable {i}: {_DIAGONAL}", worst)
    e = int(np.argmax(at_edges))
    return Verdict(False, f"edge {point.pair(e)}: {reason(e)}", worst)


# -- folded concave penalties ---------------------------------------------------------------------------


def _folded(point, tol):
    theta, g = point.edges(point.theta), point.gradient
    threshold = point.penalty.thresholds(point.penalty.weights(theta, point.alpha, g), point.alpha)

    def reason(e):
        if np.isinf(threshold[e]):
            return "it is excluded by an infinite penalty factor, but is not 0"
        return "the slope of its penalty does not balance its gradient"

    verdict = _conditions(point, subgradient_residual(theta, g, threshold), reason, tol)
    if not verdict.holds:
        return verdict
    concavity = _concavity(point, np.abs(theta), tol)
    if concavity is None:
        return verdict._replace(holds=None, reason="stationary; the curvature of this penalty is unknown")
    least, most = concavity
    # tr(WEWE) >= ||E||^2 / lambda_max(Theta)^2 for all E: cheap, and often enough.
    largest = float(np.linalg.eigvalsh(point.theta)[-1])
    if np.max(most) * largest**2 < 1 - _CURVATURE_ROUNDING:
        return verdict._replace(reason="stationary, and the loss outweighs the concavity of the penalty")
    balanced = (theta == 0) & (threshold - np.abs(g) <= 2 * tol * point.unit)
    support, wide = np.flatnonzero(theta), np.flatnonzero((theta != 0) | balanced)
    if point.p + wide.size > _LARGEST_HESSIAN:
        return verdict._replace(holds=None, reason="stationary; too many edges to form its curvature")
    if _definite(point, wide, most) > 0:
        return verdict._replace(reason="stationary, and the curvature of F is positive definite")
    if _definite(point, support, least) < 0:
        return verdict._replace(holds=False, reason="stationary, but F curves downward: a saddle point")
    return verdict._replace(holds=None, reason="stationary; the curvature of F does not decide")


def _concavity(point, size, tol):
    """The smallest and largest ``-p''`` within a relative ``tol`` of each edge; None if unknown."""
    penalty = point.penalty
    if isinstance(penalty, MCP):
        start, kappa = 0.0, 1.0 / penalty.gamma
    elif isinstance(penalty, SCAD):
        start, kappa = 1.0, 1.0 / (penalty.gamma - 1)
    else:
        return None
    level = np.where(np.isfinite(point.factor), point.alpha * point.factor, 0.0)
    low, high = start * level, penalty.gamma * level
    inside = (size > low * (1 + tol)) & (size < high * (1 - tol))
    near = (level > 0) & (size >= low * (1 - tol)) & (size <= high * (1 + tol))
    return kappa * inside, kappa * near


def _definite(point, edges, concavity):
    """The sign of the smallest eigenvalue of F'' on the diagonal and these edges; 0 if rounding hides it."""
    D = point.spectrum[0]
    W = point.inverse / np.outer(D, D)  # in units in which Theta has a unit diagonal
    rows, cols = (np.concatenate([np.arange(point.p), index[edges]]) for index in point.pairs)
    H = log_det_hessian(W, rows, cols)
    step = (point.edges(np.outer(D, D)) ** -2)[edges]
    at = np.arange(point.p, rows.size)
    H[at, at] -= 2 * concavity[edges] * step
    values = np.linalg.eigvalsh(H)
    rounding = _CURVATURE_ROUNDING * max(values[-1], -values[0])
    return int(values[0] > rounding) - int(values[0] < -rounding)


def log_det_hessian(W: np.ndarray, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    r""":math:`\mathrm{tr}(W E_a W E_b)` for the symmetric units ``E_a`` at ``(rows[a], cols[a])``.

    An off-diagonal unit has a 1 in both triangles.
    """
    straight = W[np.ix_(rows, rows)] * W[np.ix_(cols, cols)]
    crossed = W[np.ix_(rows, cols)] * W[np.ix_(cols, rows)]
    # A diagonal unit would be counted in both triangles, so it is halved.
    share = np.where(rows == cols, 0.5, 1.0)
    return 2 * np.outer(share, share) * (straight + crossed)
