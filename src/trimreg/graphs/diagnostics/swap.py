r"""Every exchange of one edge for another, refitted one by one: a slow, independent check.

A graph with edge set E has the refit

.. math:: \min_\Theta\ \mathrm{tr}(S\Theta) - \log\det\Theta \quad\text{over}\quad
          \Theta_{ij} = 0 \text{ for } (i, j) \notin E,

solved here by Newton's method on the diagonal and the edges. The objective is self-concordant. If it is
bounded below, the Newton decrement falls below 1 and the method converges. If it is not, the decrement never
does, and every step lowers the objective by at least ``1 - log 2``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

from ...diagnostics.arguments import number
from ...penalties import TrimmedL1, subgradient_residual
from .point import read_graph

_NEWTON_STEPS = 200
_SINGULAR = 1e-14  # condition below which the decrement is mere rounding: Theta has diverged
_CLOSE = 1e-5  # decrement that one more full step squares


@dataclass(frozen=True)
class EdgeSwap:
    """The result of :func:`best_edge_swap`; true in a boolean context if a swap improves.

    Attributes
    ----------
    leaves, enters : tuple of int, or None
        The edge ``(i, j)``, i < j, to remove, and the one to add. ``leaves`` is None if there are fewer than
        h edges; both are None if no swap improves.
    gain : float
        The objective of the refit of the current edges minus that of the refit after the best swap; rounding
        or negative if no swap improves; inf if the latter is unbounded below.
    objective : float
        The lower objective of the two refits.
    precision : ndarray of shape (p, p), or None
        The refit with that objective, in the units of S; None if it is unbounded below.
    exact : bool
        Whether ``|S_ij - W_ij| <= alpha f_ij`` at the zeros of every refit. Then each refit is the minimum of
        the penalized problem with its edges free, and no better swap exists. Otherwise penalized edges could
        lower F further.
    n_refits : int
    """

    leaves: tuple[int, int] | None
    enters: tuple[int, int] | None
    gain: float
    objective: float
    precision: np.ndarray | None
    exact: bool
    n_refits: int

    def __bool__(self) -> bool:
        return self.enters is not None


def best_edge_swap(
    S: ArrayLike, precision: ArrayLike, *, penalty: TrimmedL1, alpha: float, standardize: bool = False,
    shrinkage: float = 0.0, tol: float = 1e-9,
) -> EdgeSwap:  # fmt: skip
    """The best exchange of one edge for another, in a trimmed graphical model with at most h edges.

    Every exchange of a nonzero edge for a zero one is refitted or, with fewer than h edges, every addition.
    This takes about ``h p^2 / 2`` refits with ``p + h`` unknowns, and is meant for p up to about 15.

    Parameters
    ----------
    S, precision : array-like of shape (p, p)
        As in :func:`certify_graph`. Gains are relative to the refit of the edges of ``precision``.
    penalty : TrimmedL1
        Edges with factor 0 are always in the model, excluded ones never; neither is exchanged.
    alpha : float
        Strength of the penalty; only ``exact`` depends on it.
    standardize, shrinkage
        As in :func:`certify_graph`. Objectives are on the scale of those of the certificate.
    tol : float
        A swap improves if its gain is above ``tol`` times the number of variables.

    Returns
    -------
    EdgeSwap

    References
    ----------
    Boyd and Vandenberghe, Convex Optimization (2004), section 9.6: Newton's method for self-concordant
    functions.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.diagnostics import best_edge_swap
    >>> from trimreg.penalties import TrimmedL1
    >>> S = np.array([[1.0, 0.2, 0.6], [0.2, 1.0, 0.0], [0.6, 0.0, 1.0]])
    >>> theta = np.array([[1.0, -0.2, 0.0], [-0.2, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> swap = best_edge_swap(S, theta, penalty=TrimmedL1(h=1), alpha=1.0)
    >>> swap.leaves, swap.enters, round(swap.gain, 4), swap.exact
    ((0, 1), (0, 2), 0.4055, True)
    """
    if not isinstance(penalty, TrimmedL1):
        raise ValueError(f"penalty must be a TrimmedL1; got {penalty!r}")
    tol = number("tol", tol, minimum=0.0)
    point = read_graph(
        S, precision, penalty=penalty, alpha=alpha, standardize=standardize, shrinkage=shrinkage
    )
    if not point.positive_definite:
        raise ValueError("precision must be positive definite")
    theta, factor, n_free = point.edges(point.theta), point.factor, point.penalty.n_free
    if np.any(theta[np.isinf(factor)]):
        raise ValueError("precision must be 0 at the edges that an infinite penalty factor excludes")
    always, regular = factor == 0, (factor > 0) & np.isfinite(factor)
    inside = np.flatnonzero(regular & (theta != 0))
    outside = np.flatnonzero(regular & (theta == 0))
    if inside.size > n_free:
        raise ValueError(f"precision must have at most h = {n_free} penalized edges; got {inside.size}")

    refits = _Refits(point, always)
    now, start = refits.objective(inside, point.deviation[:, None] * point.theta * point.deviation)
    if start is None:
        return EdgeSwap(None, None, 0.0, -np.inf, None, False, refits.count)
    best: tuple[float, Any, Any, Any] = (np.inf, None, None, None)
    leaving: list[Any] = [None] if inside.size < n_free else list(inside)
    for i in leaving:
        kept = inside[inside != i] if i is not None else inside
        for j in outside if n_free else ():
            value, fitted = refits.objective(np.append(kept, j), start)
            if value < best[0]:
                best = (value, i, int(j), fitted)
    value, i, j, fitted = best
    gain = 0.0 if j is None else now - value
    improves = gain > tol * point.p
    if not improves:
        value, fitted = now, start
    offset = 2 * float(np.sum(np.log(point.deviation)))
    unit = point.deviation * point.scale
    return EdgeSwap(
        leaves=point.pair(i) if improves and i is not None else None,
        enters=point.pair(j) if improves else None,
        gain=float(gain),
        objective=float(value + offset),
        precision=None if fitted is None else fitted / unit[:, None] / unit,
        exact=refits.exact,
        n_refits=refits.count,
    )


class _Refits:
    """Refits on the correlation scale, and whether all of them satisfy the conditions at their zeros."""

    def __init__(self, point, always):
        self.point, self.always = point, np.flatnonzero(always)
        self.R = point.correlation()
        self.threshold = point.penalty.levels(point.alpha) / point.unit
        self.exact, self.count = True, 0

    def objective(self, edges, start):
        """The objective and the matrix of the refit on these edges; -inf and None if unbounded below."""
        edges = np.concatenate([edges, self.always]).astype(np.intp)
        self.count += 1
        theta = refit_graph(self.R, edges, self.point.pairs, start)
        if theta is None:
            self.exact = False
            return -np.inf, None
        W = np.linalg.inv(theta)
        zeros = np.ones(self.threshold.size, dtype=bool)
        zeros[edges] = False
        gradient = (self.R - W)[self.point.pairs][zeros]
        over = subgradient_residual(np.zeros(gradient.size), gradient, self.threshold[zeros])
        self.exact &= not np.any(np.abs(over) > 1e-7)
        return _value(self.R, theta), theta


def _value(S, theta):
    sign, log_det = np.linalg.slogdet(theta)
    return float(np.sum(S * theta) - log_det) if sign > 0 else np.inf


def refit_graph(
    S: np.ndarray, edges: np.ndarray, pairs: tuple[np.ndarray, np.ndarray], start: np.ndarray
) -> np.ndarray | None:
    """The minimum of ``tr(S Theta) - log det Theta`` with only these edges; None if there is no minimum.

    ``edges`` are positions in ``pairs``, the rows and columns of all edges. ``start`` is positive definite;
    its entries at other edges are dropped.
    """
    p = S.shape[0]
    rows, cols = (np.concatenate([np.arange(p), index[edges]]) for index in pairs)
    theta = _restricted(start, rows, cols)
    value = _value(S, theta)
    for _ in range(_NEWTON_STEPS):
        D = 1 / np.sqrt(np.diag(theta))
        values = np.linalg.eigvalsh(D[:, None] * theta * D)
        if values[0] < _SINGULAR * values[-1]:
            return None
        direction, decrement = _newton(S, theta, rows, cols)
        if decrement < _CLOSE:
            return _stepped(theta, rows, cols, direction)
        # A step of 1 / (1 + decrement) stays positive definite and lowers the objective; a full step is far
        # better if it does so, too.
        for step in (1.0, 1.0 / (1.0 + decrement)):
            moved = _stepped(theta, rows, cols, step * direction)
            lower = _value(S, moved)
            if np.linalg.eigvalsh(moved)[0] > 0 and lower <= value - 0.25 * step * decrement**2:
                break
        else:  # rounding hides the decrease that theory guarantees: no better point is attainable
            return theta if decrement < 1 else None
        theta, value = moved, lower
    return None


def _newton(S, theta, rows, cols):
    """Newton's direction and its decrement.

    With ``Theta = G G'`` and ``B_a = G^-1 E_a G^-T`` for the unit of each entry, the second derivatives are
    ``<B_a, B_b>`` and the first ``<B_a, G'SG - I>``. So the direction is a least squares fit, which loses
    half as many digits as solving with the second derivatives.
    """
    G = np.linalg.cholesky(theta)
    inverse = solve_triangular(G, np.eye(G.shape[0]), lower=True)
    B = inverse[:, None, rows] * inverse[None, :, cols]
    B = (B + B.transpose(1, 0, 2)).reshape(-1, rows.size) * np.where(rows == cols, 0.5, 1.0)
    size = np.linalg.norm(B, axis=0)
    Q, R = np.linalg.qr(B / size)
    fit = Q.T @ (np.eye(G.shape[0]) - G.T @ S @ G).ravel()
    return solve_triangular(R, fit) / size, float(np.linalg.norm(fit))


def _stepped(theta, rows, cols, change):
    """``theta`` with these entries changed in both triangles."""
    moved = theta.copy()
    moved[rows, cols] += change
    moved[cols, rows] = moved[rows, cols]
    return moved


def _restricted(start, rows, cols):
    """``start`` restricted to these entries, its edges shrunk until it is positive definite."""
    theta = np.zeros_like(start)
    theta[rows, cols] = theta[cols, rows] = start[rows, cols]
    diagonal = np.diag(np.diag(start))
    while np.linalg.eigvalsh(theta)[0] <= 0:
        theta = (theta + diagonal) / 2
    return theta
