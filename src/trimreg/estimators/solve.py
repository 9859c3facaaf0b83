"""The functional entry point: data in, :class:`~trimreg.solvers.SolverResult` out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ..designs import WithConstant, as_design
from ..losses import get_loss
from ..penalties import get_penalty
from ..solvers import Problem, SolverResult, SolverSpec, get_solver, run
from . import validation as check


@dataclass
class _Task:
    """A checked problem, how to solve it, and the way back to the user's units."""

    problem: Problem
    solver: SolverSpec
    start: np.ndarray | None
    options: dict
    max_iter: int
    dtype: np.dtype
    centre: float  # mean of y, where centring stands for the intercept
    constant: bool  # whether the design ends in a column of ones
    exact: bool  # whether at most h coefficients may be nonzero

    def steps(self):
        start = self.start
        if start is None and self.solver.name != "mm":
            start = np.zeros(self.problem.n_features)
        return self.solver.iterate(self.problem, start, **self.options)

    def at_most_h(self, step):
        """The step, or where MM alone leads from it if it has more nonzeros than ``alpha="exact"`` allows.

        A run that was cut short may stand at such a point, and Algorithm 1 may end at one: with
        fractional weights it can be stationary, though it is no local minimum.
        """
        problem = self.problem
        counted = problem.penalty.thresholds(np.ones_like(step.theta), 1.0) > 0
        if not self.exact or np.count_nonzero(step.theta[counted]) <= problem.penalty.n_free:
            return step
        *_, end = get_solver("mm").iterate(problem, step.theta, tol=self.options["tol"], effort="low")
        theta = np.where(end.weights > 0, 0.0, end.theta)
        message = f"{step.message}; finished by MM, for there were more than h nonzeros"
        return replace(
            step, theta=theta, weights=end.weights, objective=problem.objective(theta), message=message
        )

    def result(self, step, n_iter, history, stationarity) -> SolverResult:
        coef, intercept = self.problem.design.original_units(step.theta)
        kept = slice(None, -1) if self.constant else slice(None)
        return SolverResult(
            coef=coef.astype(self.dtype) + self.dtype.type(0),  # no -0.0
            intercept=float(intercept + self.centre),
            weights=step.weights[kept],
            objective=float(step.objective),
            stationarity=stationarity,
            n_iter=n_iter,
            converged=bool(step.converged),
            history=history,
            message=step.message,
            swap_optimal=step.swap_optimal,
            theta=step.theta[kept],
            alpha=self.problem.alpha,
        )

    def stationarity(self, step) -> float:
        """T at the step, from the data and not from what the solver believes."""
        problem = self.problem
        gradient = problem.gradient(problem.predictor(step.theta))
        return problem.penalty.stationarity(
            step.theta, step.weights, gradient, problem.alpha, problem.positive
        )


def _prepare(
    X, y, *, loss, penalty, alpha, solver, fit_intercept, standardize, sample_weight, theta0, tol, max_iter,
    random_state, positive, options,
) -> _Task:  # fmt: skip
    spec = get_solver(solver)
    loss, penalty = get_loss(loss), get_penalty(penalty)
    alpha = check.check_alpha(alpha)
    fit_intercept = check.check_flag("fit_intercept", fit_intercept)
    standardize = check.check_flag("standardize", standardize)
    positive = check.check_flag("positive", positive)
    tol = check.check_number("tol", tol, 0.0, strict=True)
    max_iter = (
        spec.max_iter if max_iter is None else check.check_number("max_iter", max_iter, 1, integral=True)
    )
    rng = check.check_random_state(random_state)
    X = check.check_matrix(X)
    n, p = X.shape
    y = check.check_target(y, n)
    loss.check_target(y)
    d = check.check_sample_weight(sample_weight, n)
    penalty = penalty.bind(p)
    check.check_options(spec, options, penalty, positive)
    if alpha == "exact":
        check.check_exact(loss, penalty)
    theta0 = check.check_start(theta0, p)

    centring = fit_intercept and loss.constant_curvature
    constant = fit_intercept and not centring
    if positive and constant:
        raise ValueError(
            f"positive=True with fit_intercept=True is for the quadratic loss; with loss {loss.name!r} "
            "leave one of them off"
        )
    design = as_design(X, d, center=fit_intercept, scale=standardize)
    start = None
    if theta0 is not None:
        start = np.zeros(p)
        np.divide(theta0, design.inverse_scale, out=start, where=design.inverse_scale > 0)
    target, centre = _centred(y, d) if centring else (y, 0.0)
    if constant:
        design, penalty = WithConstant(design), penalty.extended()
        start = None if start is None else np.append(start, 0.0)
    problem = Problem(design, loss, target, d, penalty, 0.0, positive)
    return _Task(
        problem=problem.at(_alpha(problem, alpha)),
        solver=spec,
        start=start,
        options={"tol": tol, "rng": rng, **options},
        max_iter=max_iter,
        dtype=X.dtype,
        centre=centre,
        constant=constant,
        exact=alpha == "exact",
    )


def _centred(y, d):
    """``y`` less its mean, and the mean; exact zeros where y is constant but for rounding of its mean."""
    mean = float(d @ y)
    mean += float(d @ (y - mean))
    target = y - mean
    constant = np.max(np.abs(target[d > 0])) <= 10 * np.finfo(float).eps * abs(mean)
    return np.zeros_like(y) if constant else target, mean


def _alpha(problem: Problem, alpha) -> float:
    """The number that ``alpha`` stands for."""
    if alpha != "exact":
        return alpha
    # Just over the threshold. Where it is 0 (y or X without variation) any positive number will do.
    return problem.exact_threshold() * (1 + 1e-6) or 1.0


def solve(
    X,
    y,
    *,
    loss="quadratic",
    penalty,
    alpha,
    solver="mm",
    fit_intercept=False,
    standardize=False,
    sample_weight=None,
    theta0=None,
    tol=1e-6,
    max_iter=None,
    random_state=None,
    positive=False,
    callback=None,
    **solver_options,
) -> SolverResult:
    r"""Minimize a loss with a penalty.

    .. math:: \min_{\theta, b}\; \sum_i d_i\, \ell(y_i, z_i'\theta + b) + P_\alpha(\theta),
              \qquad d_i = \text{sample weight} / \text{their sum},

    where z are the rows of X, each column divided by its deviation if ``standardize``.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
        float32 stays float32; C or Fortran order, read-only arrays and memory maps are used in place.
    y : array-like of shape (n_samples,)
    loss : str or loss object
        See :mod:`trimreg.losses`.
    penalty : str or penalty object
        ``TrimmedL1(h)``, ``L1()``, ``MCP(gamma)``, ``SCAD(gamma)``, or a name in
        ``trimreg.penalties.PENALTIES``.
    alpha : float or "exact"
        ``"exact"`` (trimmed penalty, quadratic loss) is just over the exact-penalty threshold: then at
        most h coefficients are nonzero, whatever the solver and also if it is cut short.
    solver : {"mm", "bcd", "dc", "prox"}
        The default solver; the paper's Algorithm 1; the DC baseline; proximal gradient.
    fit_intercept, standardize : bool
    sample_weight : array-like of shape (n_samples,), optional
    theta0 : array-like of shape (n_features,), optional
        Coefficients to start from, in the units of X.
    tol : float
        ``"mm"`` stops when no optimality condition is violated by more than ``tol`` times the largest
        gradient at 0 (columns scaled to norm one); the others when ``sqrt(T)`` is below it.
    max_iter : int, optional
        Steps; by default 1,000 for ``"mm"`` and 20,000 for the others.
    random_state : int, Generator or RandomState, optional
        Seed of the kicks of ``"mm"``; None is the seed 0.
    positive : bool
        Whether to require coefficients that are not negative.
    callback : callable, optional
        Called with every :class:`~trimreg.solvers.Step`; return True to stop.
    **solver_options
        ``effort`` ("low", "medium", "high") for ``"mm"``; ``w0``, ``eta``, ``tau``,
        ``record_stationarity`` for ``"bcd"``; ``eta``, ``ties`` for ``"dc"``; ``eta``, ``accelerate`` for
        ``"prox"``.

    Returns
    -------
    SolverResult

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import TrimmedL1, solve
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 20))
    >>> y = 3 * X[:, 4] - 2 * X[:, 7] + 0.1 * rng.standard_normal(100)
    >>> result = solve(X, y, penalty=TrimmedL1(h=2), alpha="exact")
    >>> np.flatnonzero(result.coef), result.coef[[4, 7]].round(1), result.swap_optimal
    (array([4, 7]), array([ 3., -2.]), True)
    """
    task = _prepare(
        X, y, loss=loss, penalty=penalty, alpha=alpha, solver=solver, fit_intercept=fit_intercept,
        standardize=standardize, sample_weight=sample_weight, theta0=theta0, tol=tol, max_iter=max_iter,
        random_state=random_state, positive=positive, options=solver_options,
    )  # fmt: skip
    outcome = run(task.steps(), task.max_iter, callback)
    step = task.at_most_h(outcome.step)
    return task.result(step, outcome.n_iter, outcome.history, task.stationarity(step))


def steps(
    X,
    y,
    *,
    loss="quadratic",
    penalty,
    alpha,
    solver="mm",
    fit_intercept=False,
    standardize=False,
    sample_weight=None,
    theta0=None,
    tol=1e-6,
    random_state=None,
    positive=False,
    **solver_options,
) -> Iterator[SolverResult]:
    """The steps of :func:`solve`, one at a time: a generator of results as they stand.

    Takes the arguments of :func:`solve` but ``max_iter`` and ``callback``: the caller decides when to stop.
    The stationarity of a result is computed for every step. A step may have more than h nonzeros, also with
    ``alpha="exact"``.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import TrimmedL1, steps
    >>> X, y = np.eye(3), np.array([5.0, 2.0, -1.0])
    >>> stepper = steps(X, y, penalty=TrimmedL1(h=1), alpha=0.5, solver="bcd")
    >>> first, second = next(stepper), next(stepper)
    >>> second.objective < first.objective
    True
    """
    task = _prepare(
        X, y, loss=loss, penalty=penalty, alpha=alpha, solver=solver, fit_intercept=fit_intercept,
        standardize=standardize, sample_weight=sample_weight, theta0=theta0, tol=tol, max_iter=None,
        random_state=random_state, positive=positive, options=solver_options,
    )  # fmt: skip
    return (
        task.result(step, count, {"objective": [float(step.objective)]}, task.stationarity(step))
        for count, step in enumerate(task.steps(), 1)
    )
