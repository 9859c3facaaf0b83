r"""The inner problem of a graphical model: one weighted graphical lasso, screened into blocks.

If the variables fall into groups such that :math:`|S_{ij}| \le \lambda_{ij}` for every pair across groups,
the solution is block diagonal, and its blocks are the solutions of the problems within the groups: with
:math:`\Theta_{ij} = 0` and :math:`W_{ij} = 0` across groups the conditions :math:`|S_{ij} - W_{ij}| \le
\lambda_{ij}` hold, and those within a group do not see the others. This is the rule of Witten, Friedman and
Simon (2011) and of Mazumder and Hastie (2012), for a matrix of weights: a free pair, :math:`\lambda_{ij} =
0`, joins its ends unless :math:`S_{ij}` is exactly 0, and an excluded one, :math:`\lambda_{ij} = \infty`,
never does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .boundedness import smallest_dependent_set
from .problem import GraphicalProblem

_MAX_NEWTON = 200
_MAX_SWEEPS = 50
_LARGE = 1e6  # a diagonal entry of Theta; what S leaves of that variable unexplained is its inverse


class GraphFit(NamedTuple):
    """The solution of a weighted problem, and what certifies it."""

    Theta: np.ndarray
    W: np.ndarray  # the inverse of Theta
    objective: float  # of the weighted problem
    gap: float  # absolute duality gap; inf where no dual point was found
    violation: float  # of the worst optimality condition
    n_iter: int  # Newton steps, of the block that took the most
    n_blocks: int
    unbounded: bool


def components(S: np.ndarray, threshold: np.ndarray) -> list[np.ndarray]:
    """The groups of variables that a weighted problem falls into, as arrays of indices.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.graphs.solver.inner import components
    >>> S = np.array([[1.0, 0.1, 0.5], [0.1, 1.0, 0.2], [0.5, 0.2, 1.0]])
    >>> components(S, np.full((3, 3), 0.3))
    [array([0, 2]), array([1])]
    """
    joined = np.abs(S) > threshold
    reached = joined[0]
    for _ in range(3):  # most often all of them are joined, and this sees it at once
        reached = joined[reached].any(axis=0) | reached
        if reached.all():
            return [np.arange(S.shape[0])]
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    count, label = connected_components(csr_array(joined), directed=False)
    if count == 1:
        return [np.arange(S.shape[0])]
    order = np.argsort(label, kind="stable")
    return np.split(order, np.cumsum(np.bincount(label))[:-1])


def solve_weighted(S, threshold, Theta=None, *, shift=0.0, tol=1e-8, screen=True) -> GraphFit:
    """The weighted graphical lasso for a correlation matrix S, to a relative duality gap of ``tol``.

    Parameters
    ----------
    S, threshold : ndarray of shape (p, p)
        The thresholds are :math:`\\lambda_{ij}`, 0 and inf allowed; their diagonal is not looked at.
    Theta : ndarray of shape (p, p), optional
        Where to start; the identity by default, and where this is not positive definite on a block.
    shift : float
        Added to the objective that the gap is relative to.
    tol : float
    screen : bool
        Whether to divide the problem into blocks.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.graphs.solver.inner import solve_weighted
    >>> S = np.array([[1.0, 0.5], [0.5, 1.0]])
    >>> solve_weighted(S, np.full((2, 2), 0.2)).W.round(6)  # correlations are shrunk by the threshold
    array([[1. , 0.3],
           [0.3, 1. ]])
    """
    from ...solvers import lapack
    from . import kernels

    p = S.shape[0]
    Theta = np.eye(p) if Theta is None else np.ascontiguousarray(Theta)
    blocks = components(S, threshold) if screen and p > lapack.SMALL else None
    if blocks is None or len(blocks) == 1:
        T, W, objective, gap, violation, n_iter, status = kernels.minimize_weighted(
            S, threshold, Theta, shift, tol, _MAX_NEWTON, _MAX_SWEEPS
        )
        unbounded = status == kernels.UNBOUNDED or _runs_away(S, threshold, T, gap)
        return GraphFit(T, W, objective, gap, violation, n_iter, 1, unbounded)
    full, inverse = np.zeros((p, p)), np.zeros((p, p))
    gap, violation, n_iter, unbounded = 0.0, 0.0, 0, False
    single = np.concatenate([block for block in blocks if block.size == 1] or [np.zeros(0, dtype=np.intp)])
    full[single, single] = inverse[single, single] = 1.0
    objective = float(single.size)
    for block in blocks:
        if block.size == 1:
            continue
        square = np.ix_(block, block)
        # The gaps of the blocks add up, and each is measured against an objective of about its own size.
        T, W, one, one_gap, one_violation, steps, status = kernels.minimize_weighted(
            S[square], threshold[square], Theta[square], 0.0, tol / 2, _MAX_NEWTON, _MAX_SWEEPS
        )
        full[square], inverse[square] = T, W
        objective += one
        gap += one_gap
        violation = max(violation, one_violation)
        n_iter = max(n_iter, steps)
        unbounded |= status == kernels.UNBOUNDED or _runs_away(S[square], threshold[square], T, one_gap)
    return GraphFit(full, inverse, objective, gap, violation, n_iter, len(blocks), unbounded)


def _runs_away(S, threshold, Theta, gap) -> bool:
    """Whether Theta is on its way to infinity: the gap stays open, and S is singular where edges are free.

    Rounding brings the steps to a stop long before Theta is infinite, and may make up a dual point.
    """
    if gap < 1.0 or np.diagonal(Theta).max() < _LARGE:
        return False
    free = threshold[np.triu_indices_from(threshold, 1)] == 0
    return bool(free.any()) and smallest_dependent_set(S) is not None


def certified(S, threshold, Theta, shift=0.0) -> tuple[np.ndarray, float, float]:
    """The inverse of Theta, the relative duality gap of the weighted problem there, and the worst violation.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.graphs.solver.inner import certified
    >>> certified(np.eye(2), np.full((2, 2), 0.1), np.eye(2))[1:]
    (0.0, 0.0)
    """
    from ...solvers import lapack
    from . import kernels

    p = S.shape[0]
    factor, positive = lapack.factored(Theta)
    if not positive:
        raise ArithmeticError("Theta is not positive definite")
    W = lapack.inverted(factor)
    objective = kernels.value(S, threshold, Theta, factor)
    gap = max(objective - kernels.dual_value(S, threshold, W), 0.0)
    rows, starts = np.empty(p * (p + 1) // 2, dtype=np.int32), np.empty(p + 1, dtype=np.int64)
    violation = kernels.conditions(S, threshold, Theta, W, rows, starts)
    return W, gap / max(1.0, abs(objective + shift)), violation


class WeightedGraphSolver:
    """:func:`solve_weighted` in the coordinates of a problem; what the outer loops call."""

    scale = 1.0  # of gradients: those of a correlation matrix

    def __init__(self, problem: GraphicalProblem, shift: float = 0.0):
        self.problem = problem
        self.shift = shift
        self.n_steps = 0  # Newton steps taken so far, of all solves
        self.null = problem.vector(np.eye(problem.p))
        self.gradient_at_null = problem.gradient(problem.origin())

    def solve(self, theta, threshold, tol=1e-8, gradient=None):
        """``(theta, gradient, loss, fit)`` at the minimum for these thresholds, one a coordinate.

        Raises
        ------
        ArithmeticError
            If the problem is unbounded below.
        """
        problem = self.problem
        levels = threshold.copy()
        levels[problem.n_edges :] = 0.0
        start = theta
        if np.isinf(levels).any():
            start = np.where(np.isinf(levels), 0.0, theta)
        fit = solve_weighted(
            problem.S, problem.matrix(levels), problem.matrix(start), shift=self.shift, tol=tol
        )
        self.n_steps += fit.n_iter
        if fit.unbounded:
            raise ArithmeticError("the objective is unbounded below")
        theta = problem.vector(fit.Theta)
        gradient = problem.vector(problem.S - fit.W)
        gradient[problem.n_edges :] /= 2
        used = theta != 0
        loss = fit.objective / 2 - float(np.dot(levels[used], np.abs(theta[used])))
        return theta, gradient, loss, fit
