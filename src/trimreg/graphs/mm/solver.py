r"""The default solver of graphical models: weights outside, one weighted graphical lasso inside.

MM takes the weights of the penalty at a point, solves the weighted problem (:mod:`trimreg.graphs.mm.inner`)
to convergence, and repeats. The objective decreases with every step. For a trimmed penalty MM ends after
finitely many steps, at a local minimum except for ties. The starting weights decide which local minimum is
found, so several starts are tried and the lowest objective is kept:

============  ====================================================================================
``mle``       the weights at the inverse of S, the maximum likelihood estimate
``shrunk``    at the inverse of S shrunk towards its diagonal, for S singular or nearly so
``diagonal``  at the model without edges: the largest correlations go free
``glasso``    at the graphical lasso
``homotopy``  at the end of the quadratic soft-min homotopy (:mod:`trimreg.solvers.mm.starts`)
============  ====================================================================================

The weighted problem is convex, so the starting point of its solver does not affect its solution; the last
solution is used. With a trimmed penalty, exchanges of edges (:mod:`trimreg.graphs.mm.exchange`) follow.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from operator import attrgetter

import numpy as np

from ...solvers.driver import Step
from ...solvers.gram import cholesky
from ...solvers.mm.starts import homotopy
from ..problem import GraphicalProblem
from .exchange import exchange_edges, kicked
from .inner import MMStep, WeightedGraphSolver, majorize_minimize

STARTS = ("mle", "shrunk", "diagonal", "glasso", "homotopy")
_ROUGH = 1e-5  # relative duality gap of the solves during a search
_SHRINKAGE = 0.2
_NEWTON_STEPS = {"low": 2_500, "medium": 2_500, "high": 25_000}  # after these a search begins nothing new
_objective = attrgetter("objective")
_SINGULAR = 1e-4  # unexplained part of a variable that a warning names
_SMALL = 50  # variables; for larger problems, medium effort tries two starts


def iterate(
    problem: GraphicalProblem, theta0: np.ndarray | None = None, *, tol: float = 1e-8,
    rng: np.random.Generator | None = None, effort: str = "medium", start: str | Sequence[str] = "auto",
    shift: float = 0.0,
) -> Iterator[Step]:  # fmt: skip
    """MM from several starts, then exchanges of edges, then MM to the tolerance.

    Stops when the weights of the weighted problem are those of its own solution, and that problem is solved
    to a relative duality gap of ``tol``. For penalties whose weights never settle (MCP, SCAD) it stops when
    the optimality conditions hold within ``100 tol`` with the weights of the solution.

    The weights at ``theta0`` are the first start. ``start`` names the others; ``"auto"`` depends on the
    effort, which also decides how long edges are exchanged. ``rng`` draws the random kicks of high effort.
    ``shift`` is the objective in the user's units minus that of the correlation matrix; gaps are relative to
    the former. The steps have the series ``gap`` and ``violation``; their objective is the best so far.
    """
    rng = np.random.default_rng(0) if rng is None else rng
    inner = WeightedGraphSolver(problem, shift)
    if problem.penalty.constant_weights:
        theta = inner.null if theta0 is None else theta0
        for point in majorize_minimize(inner, _weights_at(problem, inner.null), theta, tol):
            yield _last_step(problem, point, tol, point.gap <= tol)
        return
    rough = max(_ROUGH, tol)
    ends: list[MMStep] = []
    max_steps = _NEWTON_STEPS[effort]
    for weights, theta in _starting_weights(inner, theta0, start, effort):
        if theta is inner.null and ends:  # the way from an earlier end is shorter
            theta = ends[-1].theta
        try:
            for point in majorize_minimize(inner, weights, theta, rough):
                yield _step(min([point, *ends], key=_objective))
                if inner.n_steps >= max_steps:
                    break
        except ArithmeticError:  # no minimum from this start; another start may have one
            continue
        ends.append(point)
        if inner.n_steps >= max_steps:
            break
    if not ends:
        raise ArithmeticError("the objective is unbounded below from every start")
    best = min(ends, key=_objective)
    if problem.penalty.n_free is not None and effort != "low":
        for best in _improve(inner, ends, effort, rng, rough):
            yield _step(best)
    inner.n_steps = 0.0
    for point in majorize_minimize(inner, best.weights, best.theta, tol):
        point.settled |= inner.n_steps >= max_steps and point.gap > tol
        yield _last_step(problem, point, tol, point.settled and point.gap <= tol)
        if point.settled:
            return


def _improve(inner, ends, effort, rng, tol):
    """Exchange edges from the best starts and, with high effort, after random kicks; yield each new best.

    Solves of small graphs cost almost nothing, and small graphs of strongly correlated variables have many
    local minima: the smaller the graph, the more is tried.
    """
    ends = sorted(ends, key=_objective)
    best, p = ends[0], inner.problem.p
    max_steps = _NEWTON_STEPS[effort]
    patience = max(3, min(50, 45_000 // p**2))
    kicks = 0 if effort == "medium" else max(5, 300 // p)
    if effort == "medium":
        ends = ends[: max(1, 100 // p)]
    for turn in range(len(ends) + kicks):
        end = ends[turn] if turn < len(ends) else kicked(inner, best, rng, tol)
        if end is None:
            continue
        for point in itertools.chain([end], exchange_edges(inner, end, patience, max_steps, tol)):
            if point.objective < best.objective:
                best = point
                yield best
        if inner.n_steps >= max_steps:
            return


def _step(point: MMStep, converged=False) -> Step:
    message = f"relative duality gap {point.gap:.3g}, largest violation {point.violation:.3g}"
    series = {"gap": point.gap, "violation": point.violation}
    return Step(point.theta, point.weights, point.objective, converged, message, series=series)


def _last_step(problem, point, tol, converged):
    """The step; if MM has ended short of its tolerance, with the cause and what can be done."""
    step = _step(point, converged)
    if point.settled and not converged:
        unexplained = 1.0 / float(point.theta[problem.n_edges :].max())
        singular = unexplained < _SINGULAR or point.gap == np.inf
        cause = (
            f": the others explain all but {unexplained:.1g} of the variance of a variable; the covariance "
            "matrix is nearly singular, and alpha is too small for it"
        )
        step.trouble = (
            f"{step.message}; further steps hardly lower the objective, by rounding"
            f"{cause if singular else ''}. Raise tol, alpha or shrinkage"
        )
    return step


# -- starts --------------------------------------------------------------------------------------------


def start_names(problem: GraphicalProblem, start: str | Sequence[str], effort: str) -> tuple[str, ...]:
    """The names of the starts to try."""
    if start != "auto":
        return (start,) if isinstance(start, str) else tuple(start)
    p = problem.p
    inverse = "mle" if cholesky(problem.S - 1e-3 * np.eye(p)) is not None else "shrunk"
    if problem.penalty.n_free is None:
        names: tuple[str, ...] = ("glasso",) if effort == "low" else ("glasso", inverse)
    elif effort == "low":
        names = ("homotopy",)
    elif effort == "medium" and p > _SMALL:
        names = ("homotopy", "shrunk")
    else:
        names = ("homotopy", inverse, "shrunk", "glasso", "diagonal")
    return tuple(dict.fromkeys(names))


def _starting_weights(inner, theta0, start, effort):
    """Yield pairs of weights and a starting point for their weighted problem."""
    problem, null = inner.problem, inner.null
    if theta0 is not None:
        yield _weights_at(problem, theta0), theta0
        if start == "auto":
            return
    for name in start_names(problem, start, effort):
        if name in ("mle", "shrunk"):
            share = _SHRINKAGE if name == "shrunk" else 0.0
            inverse = _inverse((1 - share) * problem.S + share * np.eye(problem.p))
            yield problem.weights(problem.vector(inverse), None), null
        elif name == "diagonal":
            yield _weights_at(problem, null), null
        elif name == "glasso":
            yield _from_glasso(inner)
        else:
            yield _from_homotopy(inner)


def _weights_at(problem, theta):
    return problem.weights(theta, problem.gradient(theta))


def _inverse(S):
    """The inverse of S, with eigenvalues below the rounding level raised to it."""
    values, vectors = np.linalg.eigh(S)
    return (vectors / np.maximum(values, 1e-10)) @ vectors.T


def working_alpha(problem: GraphicalProblem) -> float:
    """Alpha, or a smaller value at which the graph is not empty.

    Above the largest correlation the graph is empty, and a search that begins there learns nothing. The
    smaller value is the level that about 2h + p correlations exceed.
    """
    worth = problem.alphas_per_correlation()
    count = min(2 * (problem.penalty.n_free or 0) + problem.p, worth.size)
    if count == 0:
        return problem.alpha
    return float(min(problem.alpha, np.partition(worth, worth.size - count)[worth.size - count]))


def _from_glasso(inner):
    problem = inner.problem
    alpha = working_alpha(problem) if problem.penalty.n_free is not None else problem.alpha
    theta, gradient, *_ = inner.solve(inner.null, problem.penalty.levels(alpha), tol=_ROUGH)
    return problem.weights(theta, gradient), theta


def _from_homotopy(inner):
    problem = inner.problem
    milder = WeightedGraphSolver(problem.at(working_alpha(problem)), inner.shift)
    stages = homotopy(milder, growth=3.0)
    theta, gradient, _, _ = next(stages)
    while milder.n_steps < _NEWTON_STEPS["medium"] / 2 and (stage := next(stages, None)):
        theta, gradient, _, _ = stage
    return problem.weights(theta, gradient), theta
