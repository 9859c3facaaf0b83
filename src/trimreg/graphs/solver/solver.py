r"""The default solver of graphical models: weights outside, one weighted graphical lasso inside.

MM takes the weights of the penalty at a point, solves the weighted problem
(:mod:`trimreg.graphs.solver.inner`) to its end, and repeats. The objective falls with every step, and for a
trimmed penalty it ends after finitely many, at a local minimum but for ties. Which one is decided by the
weights that it starts from, so several starts are tried and the lowest objective is kept:

============  ====================================================================================
``mle``       the weights of the inverse of S, the maximum likelihood estimate
``shrunk``    of the inverse of S shrunk towards its diagonal: where S is singular, or nearly
``diagonal``  of the model without edges: the largest correlations go free
``glasso``    of the graphical lasso
``homotopy``  the end of the quadratic soft-min homotopy (:mod:`trimreg.solvers.mm.starts`)
============  ====================================================================================

The weighted problem is convex, so where its solver starts does not matter to what it finds; that start is the
last solution. A trimmed penalty is then polished by exchanging edges (:mod:`trimreg.graphs.solver.search`).
"""

from __future__ import annotations

import itertools

import numpy as np

from ...solvers.driver import Step
from ...solvers.gram import cholesky
from ...solvers.mm.starts import homotopy
from .inner import WeightedGraphSolver
from .mm import Descent, descend
from .problem import GraphicalProblem
from .search import exchange_edges, kicked

STARTS = ("mle", "shrunk", "diagonal", "glasso", "homotopy")
_ROUGH = 1e-5  # relative duality gap of the solves of a search
_SHRINKAGE = 0.2
_NEWTON_STEPS = {"medium": 2_500, "high": 25_000}  # after so many a search begins nothing new
_SMALL = 50  # variables; with more, medium effort tries two starts


def iterate(
    problem: GraphicalProblem, theta0=None, *, tol=1e-8, rng=None, effort="medium", start="auto", shift=0.0
):
    """MM from several starts, then exchanges of edges, then MM to the tolerance asked for.

    Stops when the weighted problem whose weights are those of its own solution is solved to a relative
    duality gap of ``tol``; for penalties whose weights change without end (MCP, SCAD) when its conditions
    hold within ``100 tol`` with the weights of the solution.

    Parameters
    ----------
    problem : GraphicalProblem
    theta0 : ndarray, optional
        A point whose weights to start from, before all other starts.
    tol : float
    rng : numpy.random.Generator, optional
        For the kicks of high effort.
    effort : {"low", "medium", "high"}
        How many starts, and how long edges are exchanged.
    start : "auto", str or sequence of str
        Names of starts. ``"auto"`` goes by the effort.
    shift : float
        What the objective is above that of the correlation matrix; gaps are relative to the sum.

    Yields
    ------
    Step
        With the series ``gap`` and ``violation``. The objective is that of the best point so far.
    """
    rng = np.random.default_rng(0) if rng is None else rng
    inner = WeightedGraphSolver(problem, shift)
    if problem.penalty.constant_weights:
        theta = inner.null if theta0 is None else theta0
        for point in descend(inner, _weights_at(problem, inner.null), theta, tol):
            yield _step(point, point.gap <= tol)
        return
    rough = max(_ROUGH, tol)
    ends = []
    for weights, theta in _starting_weights(inner, theta0, start, effort):
        point = None
        try:
            for point in descend(inner, weights, theta, rough):
                yield _step(min([point, *ends], key=_objective))
        except ArithmeticError:  # from here there is no minimum to go down to; another start may have one
            continue
        ends.append(point)
    if not ends:
        raise ArithmeticError("the objective is unbounded below from every start")
    best = min(ends, key=_objective)
    if problem.penalty.n_free is not None and effort != "low":
        for best in _polish(inner, ends, effort, rng, rough):
            yield _step(best)
    for point in descend(inner, best.weights, best.theta, tol):
        best = point
        converged = point.settled and point.gap <= tol
        yield _step(best, converged)


def _polish(inner, ends, effort, rng, tol):
    """Exchange edges from the lowest ends of the starts, then, with high effort, after kicks; yield the best.

    A solve of a small graph takes next to nothing, and small graphs of strongly correlated variables have
    many local minima: the smaller the graph, the more is tried.
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


def _objective(point: Descent) -> float:
    return point.objective


def _step(point: Descent, converged=False) -> Step:
    message = f"relative duality gap {point.gap:.3g}, largest violation {point.violation:.3g}"
    series = {"gap": point.gap, "violation": point.violation}
    return Step(point.theta, point.weights, point.objective, converged, message, series=series)


# -- starts --------------------------------------------------------------------------------------------


def start_names(problem: GraphicalProblem, start, effort: str) -> tuple[str, ...]:
    """The names of the starts to try."""
    if start != "auto":
        return (start,) if isinstance(start, str) else tuple(start)
    inverse = "mle" if _invertible(problem.S) else "shrunk"
    if problem.penalty.n_free is None:
        names = ("glasso",) if effort == "low" else ("glasso", inverse)
    elif effort == "low":
        names = ("homotopy",)
    elif effort == "medium" and problem.p > _SMALL:
        names = ("homotopy", "shrunk")
    else:
        names = ("homotopy", inverse, "shrunk", "glasso", "diagonal")
    return tuple(dict.fromkeys(names))


def _invertible(S):
    """Whether the smallest eigenvalue is above 1e-3."""
    return cholesky(S - 1e-3 * np.eye(S.shape[0])) is not None


def _starting_weights(inner, theta0, start, effort):
    """Yield weights, and a point to begin the solution of their problem from."""
    problem, theta = inner.problem, inner.null
    if theta0 is not None:
        yield _weights_at(problem, theta0), theta0
        if start == "auto":
            return
    for name in start_names(problem, start, effort):
        if name == "mle":
            yield _weights_of_matrix(problem, _inverse(problem.S)), theta
        elif name == "shrunk":
            p = problem.p
            yield (
                _weights_of_matrix(problem, _inverse((1 - _SHRINKAGE) * problem.S + _SHRINKAGE * np.eye(p))),
                theta,
            )
        elif name == "diagonal":
            yield _weights_at(problem, inner.null), theta
        elif name == "glasso":
            yield _from_glasso(inner)
        else:
            yield _from_homotopy(inner)


def _weights_at(problem, theta):
    return problem.weights(theta, problem.gradient(problem.predictor(theta)))


def _weights_of_matrix(problem, Theta):
    return problem.weights(problem.vector(Theta), None)


def _inverse(S):
    """The inverse of S; its eigenvalues below rounding are taken for that."""
    values, vectors = np.linalg.eigh(S)
    return (vectors / np.maximum(values, 1e-10)) @ vectors.T


def working_alpha(problem: GraphicalProblem) -> float:
    """The alpha, or a smaller one at which a search has something to see.

    Above the largest correlation no edge is worth its penalty, and a path that begins there sees an empty
    graph: it begins where about twice the number of free edges have a correlation above alpha.
    """
    factor = problem.penalty.levels(1.0)[: problem.n_edges]
    regular = (factor > 0) & np.isfinite(factor)
    worth = np.abs(problem.S[np.triu_indices(problem.p, 1)][regular]) / factor[regular]
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
    theta, gradient = inner.null, inner.gradient_at_null
    for theta, gradient, _, _ in homotopy(milder, growth=3.0):  # noqa: B007
        pass
    return problem.weights(theta, gradient), theta
