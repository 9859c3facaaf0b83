"""From a covariance matrix and a penalty to a graphical problem in the solver's coordinates, and back."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import numpy as np

from ..estimators import validation as check
from ..penalties import Penalty, get_penalty
from ..solvers import SolverSpec, get_solver, run
from ..solvers.gram import cholesky
from .covariances import duplicate_columns
from .result import GraphicalResult
from .solver import GRAPHICAL_SOLVERS
from .solver.boundedness import largest_safe_h
from .solver.problem import GraphicalProblem

_INDEFINITE = -1e-8  # smallest eigenvalue of a correlation matrix, a size, that is taken for rounding


@dataclass
class GraphTask:
    """A checked graphical problem, how to solve it, and the way back to the user's units."""

    problem: GraphicalProblem
    solver: SolverSpec
    options: dict
    max_iter: int
    dtype: np.dtype
    deviation: np.ndarray  # of the variables
    shift: float  # the objective in the user's units less that of the correlation matrix
    exact: bool  # whether at most h edges may be nonzero
    safe_h: int
    units: np.ndarray | None = None  # of the edges and the diagonal, in which a numeric alpha is meant
    start: np.ndarray | None = None

    def at(self, *, h=None, alpha=None, start=None) -> GraphTask:
        """The same task for another h or alpha, from the ``theta`` of another solution."""
        problem = self.problem
        if h is not None:
            check_safe_h(h, self.safe_h)
            problem = problem.freeing(h)
        exact = self.exact if alpha is None else alpha == "exact"
        if self.units is not None and exact != self.exact:
            penalty = problem.penalty.rescaled(1.0 / self.units if exact else self.units)
            problem = replace(problem, penalty=penalty)
        if alpha is not None:
            problem = problem.at(_alpha(problem, alpha))
        return replace(self, problem=problem, exact=exact, start=start)

    @property
    def alpha(self) -> float:
        """The alpha in the user's units. The exact one is above the threshold in these, too."""
        problem = self.problem
        if self.units is None or not self.exact:
            return problem.alpha
        return _alpha(replace(problem, penalty=problem.penalty.rescaled(self.units)), "exact")

    def steps(self):
        problem, start = self.problem, self.start
        if self.solver.name == "mm":
            return self.solver.iterate(problem, start, shift=self.shift, **self.options)
        start = problem.vector(np.eye(problem.p)) if start is None else start
        return self.solver.iterate(problem, start, **self.options)

    def solve(self, callback=None) -> GraphicalResult:
        """Run the solver to its end."""
        try:
            outcome = run(self.steps(), self.max_iter, callback)
            step = self._at_most_h(outcome.step, at_once=outcome.interrupted)
        except ArithmeticError:
            h = self.problem.penalty.n_free
            lower = "R" if h is None else f"Lower h (now {h}), r"
            raise ValueError(
                "the objective is unbounded below: the covariance matrix is singular on a set of variables "
                f"whose edges go free. {lower}aise alpha, or add a ridge with shrinkage"
            ) from None
        return self.result(step, outcome.n_iter, outcome.history)

    def _at_most_h(self, step, at_once=False):
        """The step, or where MM leads from it if it has more edges than ``alpha="exact"`` allows.

        ``at_once`` takes the first step of MM with few enough edges; to cut edges off by hand could leave a
        matrix that is not positive definite.
        """
        problem = self.problem
        penalized = problem.penalty.levels(1.0) > 0

        def allowed(theta):
            return np.count_nonzero(theta[penalized]) <= problem.penalty.n_free

        if not self.exact or allowed(step.theta):
            return step
        mm = GRAPHICAL_SOLVERS["mm"]
        for end in mm.iterate(problem, step.theta, tol=self.options["tol"], effort="low", shift=self.shift):
            if at_once and allowed(end.theta):
                break
        message = f"{step.message}; finished by MM, for there were more than h edges"
        return replace(step, theta=end.theta, weights=end.weights, objective=end.objective, message=message)

    def result(self, step, n_iter, history) -> GraphicalResult:
        """The step in the user's units."""
        from .solver.inner import certified

        problem = self.problem
        Theta = problem.matrix(step.theta)
        weights = step.weights.copy()
        weights[problem.n_edges :] = 0.0
        threshold = problem.penalty.thresholds(weights, problem.alpha)
        W, gap, violation = certified(problem.S, problem.matrix(threshold), Theta, self.shift)
        scale = np.multiply.outer(self.deviation, self.deviation)
        history = history | {"objective": [2 * value + self.shift for value in history["objective"]]}
        return GraphicalResult(
            precision=(Theta / scale).astype(self.dtype),
            covariance=(W * scale).astype(self.dtype),
            weights=problem.matrix(weights),
            objective=float(2 * problem.objective(step.theta) + self.shift),
            dual_gap=gap,
            stationarity=violation,
            n_iter=n_iter,
            converged=bool(step.converged),
            history=history,
            message=step.message,
            alpha=self.alpha,
        )

    def theta(self, precision) -> np.ndarray:
        """A precision matrix in the user's units as the vector that :meth:`at` starts from."""
        return self.problem.vector(precision * np.multiply.outer(self.deviation, self.deviation))


def prepare_graph(
    S, *, penalty, alpha, solver="mm", standardize=False, shrinkage=0.0, precision0=None, tol=1e-8,
    max_iter=None, random_state=None, options=None, names=None,
) -> GraphTask:  # fmt: skip
    """Check every argument of :func:`trimreg.solve_graphical`, then set up its problem."""
    options = {} if options is None else dict(options)
    spec = get_solver(solver, GRAPHICAL_SOLVERS)
    penalty, alpha = get_penalty(penalty), check.check_alpha(alpha)
    standardize = check.check_flag("standardize", standardize)
    shrinkage = check_shrinkage(shrinkage)
    tol = check.check_number("tol", tol, 0.0, strict=True)
    max_iter = (
        spec.max_iter if max_iter is None else check.check_number("max_iter", max_iter, 1, integral=True)
    )
    rng = check.check_random_state(random_state)
    S, dtype = check_covariance(S, names=names)
    p = S.shape[0]
    bound = bind_edges(penalty, p)
    check.check_options(spec, options, bound, positive=False)
    if "start" in options:
        check_start_names(options["start"], bound)
    if alpha == "exact" and bound.n_free is None:
        check.check_exact(None, bound, None, None)

    deviation = np.sqrt(np.diagonal(S))
    R = S / np.multiply.outer(deviation, deviation)
    R = (1.0 - shrinkage) * (R + R.T) / 2
    np.fill_diagonal(R, 1.0)
    check_semidefinite(R)
    safe_h, dependent = largest_safe_h(R)
    levels = bound.levels(1.0)
    # Without a penalty all edges but the excluded ones are free, whatever h is.
    always = int(np.count_nonzero(levels == 0 if alpha != 0 else np.isfinite(levels)))
    check_safe_h((bound.n_free or 0) if alpha != 0 else 0, safe_h, always, dependent, names)
    if precision0 is not None:
        precision0 = check_precision(precision0, p)

    units = None
    if not standardize:
        rows, columns = np.triu_indices(p, 1)
        units = np.append(deviation[rows] * deviation[columns], np.ones(p))
    # The best graph of h edges is the same in all units, so that the search for it is done without them.
    in_units = units is not None and alpha != "exact"
    edges = bound.extended(p)
    problem = GraphicalProblem(R, edges.rescaled(units) if in_units else edges, 0.0)
    task = GraphTask(
        problem=problem.at(_alpha(problem, alpha)),
        solver=spec,
        options={"tol": tol, "rng": rng, **options},
        max_iter=max_iter,
        dtype=dtype,
        deviation=deviation,
        shift=0.0 if standardize else 2.0 * float(np.log(deviation).sum()),
        exact=alpha == "exact",
        safe_h=safe_h - always if alpha != 0 else safe_h,
        units=units,
    )
    return task if precision0 is None else replace(task, start=task.theta(precision0))


def _alpha(problem, alpha) -> float:
    if alpha != "exact":
        return float(alpha)
    return problem.exact_threshold() * (1 + 1e-6) or 1.0


def bind_edges(penalty: Penalty, p: int) -> Penalty:
    """The penalty bound to the edges of p variables; its factors may be a symmetric matrix.

    Examples
    --------
    >>> from trimreg import TrimmedL1
    >>> from trimreg.graphs.task import bind_edges
    >>> bind_edges(TrimmedL1(h=2), 4).norm.count
    6
    """
    count = p * (p - 1) // 2
    if not penalty.majorizes:
        raise ValueError(
            f"penalty must have weights (TrimmedL1, L1, MCP, SCAD), for a graph; got {type(penalty).__name__}"
        )
    if penalty.groups is not None:
        raise ValueError("penalty must not have groups: the edges of a graph are penalized one by one")
    if np.ndim(penalty.penalty_factor) == 2:
        factor = np.asarray(check.check_real("penalty_factor", penalty.penalty_factor), dtype=float)
        if factor.shape != (p, p):
            raise ValueError(f"penalty_factor must have shape ({p}, {p}); got {factor.shape}")
        if not np.array_equal(factor, factor.T):
            raise ValueError("penalty_factor must be symmetric")
        penalty = copy.copy(penalty)
        penalty.penalty_factor = factor[np.triu_indices(p, 1)]
    try:
        return penalty.bind(count)
    except ValueError as error:
        message = str(error).replace("the number of features", "the number of pairs p(p-1)/2 =")
        raise ValueError(message.replace("feature", "pair")) from None


def check_shrinkage(shrinkage) -> float:
    shrinkage = check.check_number("shrinkage", shrinkage, 0.0)
    if shrinkage >= 1.0:
        raise ValueError(f"shrinkage must be below 1; got {shrinkage!r}")
    return float(shrinkage)


def check_covariance(S, names=None) -> tuple[np.ndarray, np.dtype]:
    """``S`` as a float64 covariance matrix of at least two variables, and the dtype that results keep."""
    S = check.check_real("S", S)
    if S.ndim != 2 or S.shape[0] != S.shape[1]:
        raise ValueError(f"S must be a square matrix; got shape {S.shape}")
    if S.shape[0] < 2:
        raise ValueError(
            f"S must be of at least 2 variables, for one has no edges; got n_features = {S.shape[0]}"
        )
    dtype = np.dtype(np.float32) if S.dtype == np.float32 else np.dtype(np.float64)
    S = np.asarray(S.toarray() if hasattr(S, "toarray") else S, dtype=float)
    check.check_finite(S, "S")
    diagonal = np.diagonal(S)
    if not (diagonal > 0).all():
        bad = int(np.flatnonzero(~(diagonal > 0))[0])
        raise ValueError(
            f"S must have a positive diagonal; variable {_name(bad, names)} has variance "
            f"{diagonal[bad]:.6g}. A constant variable has no edges: drop it"
        )
    scale = np.multiply.outer(np.sqrt(diagonal), np.sqrt(diagonal))
    if not (np.abs(S - S.T) <= 1e-6 * scale).all():
        i, j = (int(k) for k in np.unravel_index(np.argmax(np.abs(S - S.T) / scale), S.shape))
        raise ValueError(f"S must be symmetric; S[{i}, {j}] = {S[i, j]:.6g} and S[{j}, {i}] = {S[j, i]:.6g}")
    return S, dtype


def check_semidefinite(R) -> None:
    """That a correlation matrix is one: a Cholesky factor says so at a tenth of the cost of eigenvalues."""
    p = R.shape[0]
    if cholesky(R - 0.5 * _INDEFINITE * p * np.eye(p)) is not None:
        return
    smallest = float(np.linalg.eigvalsh(R)[0])
    if smallest < _INDEFINITE * R.shape[0]:
        raise ValueError(
            f"S must be positive semidefinite; its correlation matrix has the eigenvalue {smallest:.3g}. "
            "Use shrinkage, or a covariance matrix that is one"
        )


def check_precision(precision, p: int) -> np.ndarray:
    precision = np.asarray(check.check_real("precision0", precision), dtype=float)
    if precision.shape != (p, p):
        raise ValueError(f"precision0 must have shape ({p}, {p}); got {precision.shape}")
    check.check_finite(precision, "precision0")
    precision = (precision + precision.T) / 2
    if np.linalg.eigvalsh(precision)[0] <= 0:
        raise ValueError("precision0 must be positive definite")
    return precision


def check_start_names(start, penalty) -> None:
    from .solver.solver import STARTS

    names = [start] if isinstance(start, str) else start
    allowed = ["auto", *STARTS] if isinstance(start, str) else list(STARTS)
    try:
        known = len(names) > 0 and all(isinstance(name, str) and name in allowed for name in names)
    except TypeError:
        known = False
    if not known:
        raise ValueError(f"start must be 'auto', one of {list(STARTS)} or several of them; got {start!r}")
    if "homotopy" in names and penalty.n_free is None:
        raise ValueError(f"start 'homotopy' is for trimmed penalties; got {type(penalty).__name__}")


def check_safe_h(h: int, safe: int, always: int = 0, dependent=None, names=None) -> None:
    """That h free edges, and those that are always free, leave the objective a minimum."""
    if h + always <= safe:
        return
    why = ""
    if dependent is not None:
        listed = ", ".join(_name(k, names) for k in dependent[:6]) + (", ..." if dependent.size > 6 else "")
        what = "copies of each other" if dependent.size == 2 else "linearly dependent"
        why = f" The {dependent.size} variables {listed} are {what}."
    never = f" and {always} edges that are never penalized" if always else ""
    raise ValueError(
        f"h = {h}{never} may leave the objective without a minimum: the covariance matrix is singular on a "
        f"set of variables that {safe + 1} free edge{'s' * (safe > 0)} can join.{why} The largest safe h is "
        f"{max(safe - always, 0)}; or add a ridge, such as shrinkage=0.05"
    )


def _name(index, names) -> str:
    return str(int(index)) if names is None else repr(str(names[index]))


def duplicates_message(R, names=None) -> str:
    """A sentence on variables that are copies of others, or nothing."""
    pairs = duplicate_columns(R, precomputed=True)
    if len(pairs) == 0:
        return ""
    i, j = pairs[0]
    more = f" (and {len(pairs) - 1} more pairs)" if len(pairs) > 1 else ""
    return f"variables {_name(i, names)} and {_name(j, names)} are copies of each other{more}"
