"""``solve_graphical``: a covariance matrix in, a sparse precision matrix out.

:func:`check_settings` checks every argument but S, once. :func:`prepare_graph` turns S and these settings
into a :class:`GraphTask`: the problem in the coordinates of the solver, and the way back to the user's units.
The estimators and the searches over h and alpha start from the same two functions.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..estimators import validation as check
from ..penalties import PENALTIES, Penalty, TrimmedL1, get_penalty
from ..solvers import EFFORTS, SOLVERS, SolverSpec, Step, get_solver, run
from ..solvers.gram import cholesky
from .covariances import check_covariance, shown
from .mm import solver as mm
from .mm.inner import certified, largest_safe_h
from .problem import GraphicalProblem

#: The solvers of graphical models: a default solver of their own, and the first-order solvers of regression.
GRAPHICAL_SOLVERS = SOLVERS | {
    "mm": SolverSpec("mm", mm.__name__, 5000, False, False, ("effort", "start"), {"effort": EFFORTS}),
    # Without acceleration: the extrapolated point need not be positive definite.
    "prox": SolverSpec("prox", SOLVERS["prox"].module, 20_000, False, False, ("eta",)),
}
_INDEFINITE = -1e-8  # smallest eigenvalue of a correlation matrix, divided by p, that counts as rounding


@dataclass
class GraphicalResult:
    """The solution of a graphical model.

    Attributes
    ----------
    precision, covariance : ndarray of shape (p, p)
        Theta and its inverse, in the units of S. Zeros of Theta are exact.
    weights : ndarray of shape (p, p)
        The trimming weights w: 0 for free pairs, 1 for penalized ones, 0 on the diagonal.
    objective : float
        ``F`` at the solution, in the units of S (of its correlations with ``standardize``).
    dual_gap : float
        Duality gap of the weighted problem with these weights, relative to ``max(1, |F|)``.
    stationarity : float
        Largest violation of an optimality condition of that problem, in units of correlations.
    n_iter : int
    converged : bool
    history : dict of lists
        One value per step; always contains ``objective``.
    message : str
        Why the solver stopped.
    alpha : float
        The number used.
    """

    precision: np.ndarray
    covariance: np.ndarray
    weights: np.ndarray
    objective: float
    dual_gap: float
    stationarity: float
    n_iter: int
    converged: bool
    history: dict[str, list[float]] = field(default_factory=dict, repr=False)
    message: str = ""
    alpha: float = 0.0


def solve_graphical(
    S: ArrayLike, *, penalty: str | Penalty, alpha: float | str, solver: str = "mm",
    standardize: bool = False, shrinkage: float = 0.0, precision0: ArrayLike | None = None, tol: float = 1e-8,
    max_iter: int | None = None, random_state: Any = None,
    callback: Callable[[Step], bool | None] | None = None, **solver_options: Any,
) -> GraphicalResult:  # fmt: skip
    r"""Minimize the penalized Gaussian likelihood of a precision matrix.

    .. math:: \min_{\Theta \succ 0}\; \mathrm{tr}(S\Theta) - \log\det\Theta
              + 2 \sum_{i < j} P_\alpha(\Theta_{ij})

    The penalty counts both triangles, as in the paper and in scikit-learn; the diagonal is not penalized.

    Parameters
    ----------
    S : array-like of shape (p, p)
        Covariance or correlation matrix. For float32 input the result is float32, unless rounding to it
        would make the precision matrix indefinite; the computation is in float64, because a duality gap of
        1e-8 is below the rounding error of float32.
    penalty : str or penalty object
        ``TrimmedL1(h)``, ``L1()``, ``MCP(gamma)`` or ``SCAD(gamma)`` over the p(p-1)/2 edges: h counts
        unordered pairs. ``penalty_factor`` may be a symmetric (p, p) matrix: an edge with factor 0 is never
        penalized and not counted in h, inf excludes an edge.
    alpha : float or "exact"
        ``"exact"`` (trimmed penalty only) is just above the exact-penalty threshold: at most h edges are
        nonzero.
    solver : {"mm", "bcd", "dc", "prox"}
        The default solver; the paper's Algorithm 1; the DC baseline; proximal gradient.
    standardize : bool
        Whether the penalty acts on the precision matrix of standardized variables.
    shrinkage : float in [0, 1)
        S is replaced by ``(1 - shrinkage) S + shrinkage diag(S)``.
    precision0 : array-like of shape (p, p), optional
        A positive definite matrix to start from.
    tol : float
        ``"mm"`` stops when the weights of the weighted problem are those of its own solution, and the duality
        gap of that problem, relative to ``max(1, |F|)``, is at most ``tol``. The other solvers stop when
        ``sqrt(T)`` is below ``tol`` times the largest correlation.
    max_iter : int, optional
        Maximum number of steps; by default 5,000 for ``"mm"`` and 20,000 for the others.
    random_state : int, Generator or RandomState, optional
        Seed of the random kicks of ``effort="high"``; None means seed 0.
    callback : callable, optional
        Called with every :class:`~trimreg.solvers.Step`; return True to stop.
    **solver_options
        ``effort`` ("low", "medium", "high") and ``start`` ("auto", "mle", "shrunk", "diagonal", "glasso",
        "homotopy", or a list of these) for ``"mm"``; the options of :func:`trimreg.solve` for the others.

    Returns
    -------
    GraphicalResult

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import TrimmedL1, solve_graphical
    >>> S = np.array([[1.0, 0.5, 0.25], [0.5, 1.0, 0.5], [0.25, 0.5, 1.0]])  # a chain: 0 - 1 - 2
    >>> result = solve_graphical(S, penalty=TrimmedL1(h=2), alpha="exact")
    >>> result.precision.round(3)
    array([[ 1.333, -0.667,  0.   ],
           [-0.667,  1.667, -0.667],
           [ 0.   , -0.667,  1.333]])
    >>> result.dual_gap < 1e-8
    True
    """
    S, dtype = check_covariance(S)
    settings = check_settings(
        S.shape[0], penalty=penalty, alpha=alpha, solver=solver, standardize=standardize, shrinkage=shrinkage,
        tol=tol, max_iter=max_iter, random_state=random_state, options=solver_options,
    )  # fmt: skip
    start = None if precision0 is None else _check_precision(precision0, S.shape[0])
    return prepare_graph(S, settings, dtype=dtype, precision0=start).solve(callback)


# -- the arguments ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GraphSettings:
    """The checked arguments of a graphical model, apart from S."""

    penalty: Any  # bound to the edges, in the user's units
    alpha: float | str
    solver: SolverSpec
    standardize: bool
    shrinkage: float
    max_iter: int
    options: dict[str, Any]  # of the solver; tol and rng included
    default_h: bool = False  # whether the penalty leaves h to the default


def check_settings(
    p: int, *, penalty: Any, alpha: Any, solver: Any = "mm", standardize: Any = False, shrinkage: Any = 0.0,
    tol: Any = 1e-8, max_iter: Any = None, random_state: Any = None, options: dict[str, Any] | None = None,
    default_h: bool = False,
) -> GraphSettings:  # fmt: skip
    """Check every argument of :func:`solve_graphical` but S, for p variables."""
    options = {} if options is None else dict(options)
    spec = get_solver(solver, GRAPHICAL_SOLVERS)
    penalty, alpha = get_penalty(penalty), check.check_alpha(alpha)
    standardize = check.check_flag("standardize", standardize)
    if check.check_number("shrinkage", shrinkage, 0.0) >= 1.0:
        raise ValueError(f"shrinkage must be below 1; got {shrinkage!r}")
    tol = check.check_number("tol", tol, 0.0, strict=True)
    if max_iter is not None:
        check.check_number("max_iter", max_iter, 1, integral=True)
    rng = check.check_random_state(random_state)
    bound = bind_edges(penalty, p)
    check.check_options(spec, options, bound, bounds=None)
    if "start" in options:
        _check_start_names(options["start"], bound)
    if alpha == "exact":
        check.check_trimmed(bound)
    steps = spec.max_iter if max_iter is None else max_iter
    options = {"tol": tol, "rng": rng, **options}
    return GraphSettings(bound, alpha, spec, standardize, float(shrinkage), steps, options, default_h)


def edge_penalty(penalty: Any, h: Any, penalty_factor: Any) -> tuple[Penalty, bool]:
    """The penalty described by an estimator's parameters, and whether h is left to the default (0 here)."""
    named = isinstance(penalty, str) and penalty in PENALTIES
    if not (named or isinstance(penalty, Penalty)) or not get_penalty(penalty).majorizes:
        allowed = sorted(name for name, kind in PENALTIES.items() if kind.majorizes)
        raise ValueError(f"penalty must be one of {allowed}, or an object of such a class; got {penalty!r}")
    own = copy.copy(get_penalty(penalty))
    if penalty_factor is not None:
        if own.penalty_factor is not None:
            raise ValueError("penalty_factor must be None if the penalty object has its own")
        own.penalty_factor = penalty_factor
    if not isinstance(own, TrimmedL1):
        if h is not None:
            raise ValueError(
                f"h must be None with penalty {type(own).__name__}, which does not trim; got {h!r}"
            )
        return own, False
    if own.h is not None and h is not None and own.h != h:
        raise ValueError(f"h must be None or equal to that of the penalty object, {own.h!r}; got {h!r}")
    default_h = own.h is None and h is None
    own.h = 0 if default_h else h if own.h is None else own.h
    return own, default_h


def bind_edges(penalty: Penalty, p: int) -> Penalty:
    """The penalty bound to the edges of p variables; its factors may be a symmetric matrix."""
    if not penalty.majorizes:
        raise ValueError(
            f"penalty must be TrimmedL1, L1, MCP or SCAD for a graph; got {type(penalty).__name__}"
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
        return penalty.bind(p * (p - 1) // 2)
    except ValueError as error:
        message = str(error).replace("the number of features", "the number of pairs p(p-1)/2 =")
        raise ValueError(message.replace("feature", "pair")) from None


def _check_start_names(start, penalty) -> None:
    names = [start] if isinstance(start, str) else start
    allowed = ["auto", *mm.STARTS] if isinstance(start, str) else list(mm.STARTS)
    try:
        known = len(names) > 0 and all(isinstance(name, str) and name in allowed for name in names)
    except TypeError:
        known = False
    if not known:
        raise ValueError(f"start must be 'auto', one of {list(mm.STARTS)}, or a list of these; got {start!r}")
    if "homotopy" in names and penalty.n_free is None:
        raise ValueError(f"start 'homotopy' is for trimmed penalties; got {type(penalty).__name__}")


def _check_semidefinite(R) -> None:
    """Check that R is positive semidefinite; Cholesky does this at a tenth of the cost of eigenvalues."""
    p = R.shape[0]
    if cholesky(R - 0.5 * _INDEFINITE * p * np.eye(p)) is not None:
        return
    smallest = float(np.linalg.eigvalsh(R)[0])
    if smallest < _INDEFINITE * p:
        raise ValueError(
            "S must be positive semidefinite; the smallest eigenvalue of its correlation matrix is "
            f"{smallest:.3g}. Use shrinkage, or repair S"
        )


def _check_precision(precision, p: int) -> np.ndarray:
    precision = np.asarray(check.check_real("precision0", precision), dtype=float)
    if precision.shape != (p, p):
        raise ValueError(f"precision0 must have shape ({p}, {p}); got {precision.shape}")
    check.check_finite(precision, "precision0")
    precision = (precision + precision.T) / 2
    if np.linalg.eigvalsh(precision)[0] <= 0:
        raise ValueError("precision0 must be positive definite")
    return precision


def check_safe_h(
    h: int, safe: int, always: int = 0, dependent: np.ndarray | None = None,
    names: Sequence[str] | None = None,
) -> None:  # fmt: skip
    """Check that the objective has a minimum with h free edges, besides those that are always free."""
    if h + always <= safe:
        return
    why = ""
    if dependent is not None:
        listed = ", ".join(shown(k, names) for k in dependent[:6]) + (", ..." if dependent.size > 6 else "")
        relation = "copies of each other" if dependent.size == 2 else "linearly dependent"
        why = f" The {dependent.size} variables {listed} are {relation}."
    never = f" and {always} edges that are never penalized" if always else ""
    raise ValueError(
        f"h = {h}{never} may leave the objective without a minimum: the covariance matrix is singular on a "
        f"set of variables that {safe + 1} free edge{'s' * (safe > 0)} can join.{why} The largest safe h is "
        f"{max(safe - always, 0)}; or add a ridge, such as shrinkage=0.05"
    )


# -- the problem -----------------------------------------------------------------------------------------


@dataclass
class GraphTask:
    """A graphical problem, how to solve it, and the way back to the user's units."""

    problem: GraphicalProblem
    penalty: Any  # in the user's units
    solver: SolverSpec
    options: dict[str, Any]
    max_iter: int
    dtype: np.dtype
    deviation: np.ndarray  # standard deviations of the variables
    shift: float  # objective in the user's units minus that of the correlation matrix
    exact: bool  # whether at most h edges may be nonzero
    safe_h: int
    units: np.ndarray | None = None  # of the edges and the diagonal, for a numeric alpha
    start: np.ndarray | None = None

    def at(
        self, *, h: int | None = None, alpha: float | str | None = None, start: np.ndarray | None = None
    ) -> GraphTask:
        """The same task for another h or alpha, started from the ``theta`` of another solution."""
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
        """Alpha in the user's units. The exact one is above the threshold in these units, too."""
        problem = self.problem
        if self.units is None or not self.exact:
            return problem.alpha
        return _alpha(replace(problem, penalty=problem.penalty.rescaled(self.units)), "exact")

    def steps(self) -> Iterator[Step]:
        problem, start = self.problem, self.start
        if self.solver.name == "mm":
            return mm.iterate(problem, start, shift=self.shift, **self.options)
        start = problem.vector(np.eye(problem.p)) if start is None else start
        return self.solver.iterate(problem, start, **self.options)

    def solve(self, callback: Callable[[Step], bool | None] | None = None) -> GraphicalResult:
        """Run the solver."""
        try:
            outcome = run(self.steps(), self.max_iter, callback)
            step = self._at_most_h(outcome.step, at_once=outcome.interrupted)
        except ArithmeticError:
            h = self.problem.penalty.n_free
            lower = "R" if h is None else f"Lower h (now {h}), r"
            raise ValueError(
                "the objective is unbounded below: the covariance matrix is singular on a set of variables "
                f"with free edges. {lower}aise alpha, or add a ridge with shrinkage"
            ) from None
        return self._result(step, outcome.n_iter, outcome.history)

    def _at_most_h(self, step, at_once=False):
        """The step; if it has more edges than ``alpha="exact"`` allows, the end of MM from there.

        With ``at_once`` it is the first step of MM with few enough edges. Simply deleting edges could leave a
        matrix that is not positive definite.
        """
        problem = self.problem
        penalized = problem.penalty.levels(1.0) > 0

        def allowed(theta):
            return np.count_nonzero(theta[penalized]) <= problem.penalty.n_free

        if not self.exact or allowed(step.theta):
            return step
        for end in mm.iterate(problem, step.theta, tol=self.options["tol"], effort="low", shift=self.shift):
            if at_once and allowed(end.theta):
                break
        message = f"{step.message}; finished by MM because there were more than h edges"
        return replace(step, theta=end.theta, weights=end.weights, objective=end.objective, message=message)

    def _result(self, step, n_iter, history) -> GraphicalResult:
        """The step in the user's units."""
        problem = self.problem
        Theta = problem.matrix(step.theta)
        weights = step.weights.copy()
        weights[problem.n_edges :] = 0.0
        threshold = problem.penalty.thresholds(weights, problem.alpha)
        W, gap, violation = certified(problem.S, problem.matrix(threshold), Theta, self.shift)
        scale = np.multiply.outer(self.deviation, self.deviation)
        history = history | {"objective": [2 * value + self.shift for value in history["objective"]]}
        objective = float(2 * problem.objective(step.theta) + self.shift)
        precision, covariance = Theta / scale, W * scale
        rounded = precision.astype(self.dtype)
        # In float32 a nearly singular matrix may lose its definiteness; then both stay in float64.
        if self.dtype == np.float64 or np.linalg.eigvalsh(rounded.astype(float))[0] > 0:
            precision, covariance = rounded, covariance.astype(self.dtype)
        return GraphicalResult(
            precision=precision, covariance=covariance,
            weights=problem.matrix(weights), objective=objective, dual_gap=gap, stationarity=violation,
            n_iter=n_iter, converged=bool(step.converged), history=history, message=step.message,
            alpha=self.alpha,
        )  # fmt: skip

    def theta(self, precision: np.ndarray) -> np.ndarray:
        """A precision matrix in the user's units as the starting vector that :meth:`at` takes."""
        return self.problem.vector(precision * np.multiply.outer(self.deviation, self.deviation))


def prepare_graph(
    S: np.ndarray, settings: GraphSettings, *, dtype: Any = np.float64, precision0: np.ndarray | None = None,
    names: Sequence[str] | None = None,
) -> GraphTask:  # fmt: skip
    """The problem of a checked covariance matrix and checked settings; names are for messages."""
    p, alpha, bound = S.shape[0], settings.alpha, settings.penalty
    deviation = np.sqrt(np.diagonal(S))
    R = S / np.multiply.outer(deviation, deviation)
    R = (1.0 - settings.shrinkage) * (R + R.T) / 2
    np.fill_diagonal(R, 1.0)
    _check_semidefinite(R)
    safe_h, dependent = largest_safe_h(R)
    levels = bound.levels(1.0)
    # Without a penalty all edges but the excluded ones are free, for any h.
    always = int(np.count_nonzero(levels == 0 if alpha != 0 else np.isfinite(levels)))
    check_safe_h((bound.n_free or 0) if alpha != 0 else 0, safe_h, always, dependent, names)

    units = None
    if not settings.standardize:
        rows, columns = np.triu_indices(p, 1)
        units = np.append(deviation[rows] * deviation[columns], np.ones(p))
    # The best graph of h edges is the same in all units, so its search is done on the correlation scale.
    edges = bound.extended(p)
    if units is not None and alpha != "exact":
        edges = edges.rescaled(units)
    problem = GraphicalProblem(R, edges, 0.0)
    task = GraphTask(
        problem=problem.at(_alpha(problem, alpha)), penalty=bound, solver=settings.solver,
        options=settings.options, max_iter=settings.max_iter, dtype=np.dtype(dtype), deviation=deviation,
        shift=0.0 if settings.standardize else 2.0 * float(np.log(deviation).sum()),
        exact=alpha == "exact", safe_h=safe_h - always if alpha != 0 else safe_h, units=units,
    )  # fmt: skip
    if settings.default_h:  # p edges; fewer if there are fewer pairs, or if S is singular
        task = task.at(h=max(min(p, p * (p - 1) // 2, task.safe_h), 0))
    return task if precision0 is None else replace(task, start=task.theta(precision0))


def _alpha(problem, alpha) -> float:
    if alpha != "exact":
        return float(alpha)
    return problem.exact_threshold() * (1 + 1e-6) or 1.0
