r"""The inner problem of a graphical model, one weighted graphical lasso, and the MM loop around it.

If the variables fall into groups such that :math:`|S_{ij}| \le \lambda_{ij}` for every pair across groups,
the solution is block diagonal, and its blocks solve the problems within the groups: with
:math:`\Theta_{ij} = 0` and :math:`W_{ij} = 0` across groups the conditions :math:`|S_{ij} - W_{ij}| \le
\lambda_{ij}` hold, and the conditions within a group do not involve the others. This is the rule of Witten,
Friedman and Simon (2011) and of Mazumder and Hastie (2012) for a matrix of thresholds. A free pair,
:math:`\lambda_{ij} = 0`, joins its variables unless :math:`S_{ij}` is exactly 0; an excluded pair,
:math:`\lambda_{ij} = \infty`, never does.

**How many edges may be free.** Suppose that c variables are linearly dependent, so that S is singular on
them. If all their :math:`c(c-1)/2` pairs are free, :math:`\Theta` can grow without bound along the null
vector: the trace and the penalty do not change, and :math:`-\log\det\Theta` decreases forever. With fewer
free edges than the smallest dependent set has pairs, and variables otherwise in general position, there is a
minimum. A graph whose vertices can be removed one by one, each with fewer than r neighbors left, has a
maximum likelihood estimate for generic data of rank r. Every graph with fewer than :math:`r(r+1)/2` edges is
of this kind: the vertices that could not be removed would be more than r, with at least r neighbors each.

References
----------
Gross, E. and Sullivant, S. (2018). The maximum likelihood threshold of a graph. Bernoulli 24(1), 386-407.
Uhler, C. (2012). Geometry of maximum likelihood estimation in Gaussian graphical models. Annals of Statistics
40(1), 238-261.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...penalties.base import largest_violation
from ...solvers.gram import cholesky, cholesky_solve, independent_columns
from ..problem import GraphicalProblem

_FEW_NEWTON, _MAX_NEWTON = 25, 50  # steps before other starts are tried, and after
_MAX_SWEEPS = 50
_FAR, _CHEAP = 1e5, 12  # diagonal of Theta in hard problems, and variables up to which their steps are cheap
_FEW_VARIABLES = 24
_FIRST_LEVEL, _LAST_LEVEL, _ROUGHLY = 0.25, 1e-12, 1e-3  # of falling thresholds, and their tolerance
_LARGE = 1e6  # diagonal entry of Theta: the inverse of the unexplained part of the variable
_SINGULAR = 1e-10  # unexplained part of a variable, in a correlation matrix
_TAKES_PART = 1e-6  # smallest coefficient, relative to the largest, of a member of a dependent set


class GraphFit(NamedTuple):
    """The solution of a weighted problem, with its certificate."""

    Theta: np.ndarray
    W: np.ndarray  # the inverse of Theta
    objective: float  # of the weighted problem
    gap: float  # absolute duality gap; inf if no dual point was found
    violation: float  # of the worst optimality condition
    n_iter: int  # Newton steps of the slowest block
    n_blocks: int
    unbounded: bool


def components(S: np.ndarray, threshold: np.ndarray) -> list[np.ndarray]:
    """The groups of variables that a weighted problem splits into, as arrays of indices."""
    joined = np.abs(S) > threshold
    reached = joined[0]
    for _ in range(3):  # usually all variables are joined, and this is the cheapest way to see it
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


def solve_weighted(
    S: np.ndarray, threshold: np.ndarray, Theta: np.ndarray | None = None, *, shift: float = 0.0,
    tol: float = 1e-8, screen: bool = True,
) -> GraphFit:  # fmt: skip
    r"""The weighted graphical lasso of a correlation matrix S, to a relative duality gap of ``tol``.

    The thresholds :math:`\lambda_{ij}` may be 0 or inf; their diagonal is ignored. The start ``Theta`` is the
    identity by default, and in blocks where it is not positive definite. ``shift`` is added to the objective
    that the gap is relative to; ``screen`` splits the problem into blocks.
    """
    from ...solvers import lapack

    p = S.shape[0]
    Theta = np.eye(p) if Theta is None else np.ascontiguousarray(Theta)
    blocks = components(S, threshold) if screen and p > lapack.SMALL else [np.arange(p)]
    if len(blocks) == 1:
        return _solve_block(S, threshold, Theta, shift, tol)
    full, inverse = np.eye(p), np.eye(p)
    joined = [block for block in blocks if block.size > 1]
    objective, gap, violation, n_iter, unbounded = p - sum(map(len, joined)), 0.0, 0.0, 0, False
    for block in joined:
        square = np.ix_(block, block)
        # The gaps of the blocks add up; each is measured against an objective of about its own size.
        fit = _solve_block(S[square], threshold[square], Theta[square], 0.0, tol / 2)
        full[square], inverse[square] = fit.Theta, fit.W
        objective, gap, violation = objective + fit.objective, gap + fit.gap, max(violation, fit.violation)
        n_iter, unbounded = max(n_iter, fit.n_iter), unbounded | fit.unbounded
    return GraphFit(full, inverse, objective, gap, violation, n_iter, len(blocks), unbounded)


def _solve_block(S, threshold, Theta, shift, tol) -> GraphFit:
    """The problem of one block: at once or, if that takes too many steps, by falling thresholds.

    If S is singular and the thresholds are tiny, Theta is so large that coordinate descent hardly moves it
    from a distant start. The solution for thresholds four times as large is a near one.
    """
    fit, too_few = _newton(S, threshold, Theta, shift, tol, _FEW_NEWTON)
    if not too_few:
        return fit
    n_iter, level = fit.n_iter, _FIRST_LEVEL
    smallest = threshold[(threshold > 0) & ~np.eye(len(S), dtype=bool)].min(initial=np.inf)
    too_few, nearby = False, fit.gap <= _ROUGHLY or smallest >= level
    Theta = fit.Theta if nearby else np.eye(len(S))
    while not (nearby or too_few) and level > max(smallest, _LAST_LEVEL):
        raised = np.where(threshold > 0, np.maximum(threshold, level), 0.0)
        one, too_few = _newton(S, raised, Theta, shift, _ROUGHLY, _FEW_NEWTON)
        level, Theta, n_iter = level / 4.0, one.Theta, n_iter + one.n_iter
        if one.unbounded:
            return one._replace(n_iter=n_iter)
    dear = too_few and len(S) > _FEW_VARIABLES  # more steps rarely help there, and take seconds
    last, _ = _newton(S, threshold, Theta, shift, tol, _FEW_NEWTON if dear else _MAX_NEWTON)
    return min(fit, last, key=lambda end: (end.gap, end.objective))._replace(n_iter=n_iter + last.n_iter)


def _newton(S, threshold, Theta, shift, tol, max_iter) -> tuple[GraphFit, bool]:
    """Newton steps from Theta, and whether they were too few."""
    from . import kernels

    T, W, objective, gap, violation, n_iter, status = kernels.minimize_weighted(
        S, threshold, Theta, shift, tol, max_iter, _MAX_SWEEPS
    )
    unbounded = status == kernels.UNBOUNDED or _diverges(S, threshold, T, gap)
    fit = GraphFit(T, W, objective, gap, violation, n_iter, 1, unbounded)
    return fit, status == kernels.OUT_OF_STEPS


def _diverges(S, threshold, Theta, gap) -> bool:
    """Whether Theta is on its way to infinity: the gap stays open, and S is singular where edges are free.

    Rounding stops the iteration long before Theta overflows, and can produce a spurious dual point.
    """
    if gap < 1.0 or np.diagonal(Theta).max() < _LARGE:
        return False
    free = threshold[np.triu_indices_from(threshold, 1)] == 0
    return bool(free.any()) and smallest_dependent_set(S) is not None


def certified(
    S: np.ndarray, threshold: np.ndarray, Theta: np.ndarray, shift: float = 0.0
) -> tuple[np.ndarray, float, float]:
    """The inverse of Theta, the relative duality gap of the weighted problem, and the worst violation."""
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
    """:func:`solve_weighted` in the coordinates of a problem, as the outer loops need it."""

    scale = 1.0  # of gradients: those of a correlation matrix

    def __init__(self, problem: GraphicalProblem, shift: float = 0.0):
        self.problem = problem
        self.shift = shift
        self.n_steps = 0.0  # Newton steps of all solves so far; those of hard problems count for several
        self.null = problem.vector(np.eye(problem.p))
        self.gradient_at_null = problem.loss_gradient(problem.origin())

    def solve(
        self, theta: np.ndarray, threshold: np.ndarray, tol: float = 1e-8, gradient: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, float, GraphFit]:
        """``(theta, gradient, loss, fit)`` at the minimum for these thresholds, one per coordinate.

        Raises
        ------
        ArithmeticError
            If the problem is unbounded below.
        """
        problem = self.problem
        levels = threshold.copy()
        levels[problem.n_edges :] = 0.0
        start = np.where(np.isinf(levels), 0.0, theta)
        fit = solve_weighted(
            problem.S, problem.matrix(levels), problem.matrix(start), shift=self.shift, tol=tol
        )
        # A step of a nearly singular problem may take hundreds of joint steps over all entries.
        hard = fit.gap > 10 * tol * max(1.0, abs(fit.objective + self.shift))
        hard |= np.diagonal(fit.Theta).max() > _FAR
        self.n_steps += fit.n_iter * (max(1.0, problem.p / _CHEAP) ** 4 if hard else 1.0)
        if fit.unbounded:
            raise ArithmeticError("the objective is unbounded below")
        theta = problem.vector(fit.Theta)
        gradient = problem.vector(problem.S - fit.W)
        gradient[problem.n_edges :] /= 2
        used = theta != 0
        loss = fit.objective / 2 - float(np.dot(levels[used], np.abs(theta[used])))
        return theta, gradient, loss, fit


# -- majorize and minimize -----------------------------------------------------------------------------


@dataclass
class MMStep:
    """A step of MM: a point, and the weights of the weighted problem that it solves."""

    theta: np.ndarray
    weights: np.ndarray
    gradient: np.ndarray
    objective: float  # F / 2
    gap: float  # duality gap of the weighted problem, relative to F
    violation: float  # of the optimality conditions with the weights of the point itself
    settled: bool  # whether the weights are those of the point itself, or no step lowers F any more


def majorize_minimize(
    inner: WeightedGraphSolver, weights: np.ndarray, theta: np.ndarray, tol: float, max_steps: int = 1000
) -> Iterator[MMStep]:
    """Yield the steps of MM from these weights until the weights are those of the solution."""
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
        yield MMStep(theta, weights, gradient, objective, gap, violation, settled or stalled)
        if settled or stalled:
            return
        weights, before = following, objective


# -- how many edges may be free -------------------------------------------------------------------------


def smallest_dependent_set(R: np.ndarray) -> np.ndarray | None:
    """The smallest dependent set of variables that elimination finds; None if R is not singular.

    R is a correlation matrix. Every variable outside a maximal independent set depends on some of its
    members; the smallest such set is returned. For variables in general position, and for copies of a
    variable, no smaller dependent set exists.
    """
    base = independent_columns(R, _SINGULAR)
    others = np.setdiff1d(np.arange(R.shape[0]), base)
    if others.size == 0:
        return None
    factor: Any = cholesky(R[np.ix_(base, base)])
    coefficients = np.abs(cholesky_solve(factor, R[np.ix_(base, others)]))
    members = coefficients > _TAKES_PART * np.maximum(coefficients.max(axis=0), 1e-300)
    smallest = int(np.argmin(members.sum(axis=0)))
    return np.sort(np.append(base[members[:, smallest]], others[smallest]))


def largest_safe_h(R: np.ndarray) -> tuple[int, np.ndarray | None]:
    """The largest number of free edges with a guaranteed minimum, and the dependent set that limits it."""
    p = R.shape[0]
    dependent = smallest_dependent_set(R)
    if dependent is None:
        return p * (p - 1) // 2, None
    return dependent.size * (dependent.size - 1) // 2 - 1, dependent
