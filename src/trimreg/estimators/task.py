"""From what a user passes to a problem in the solver's coordinates, and back."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..designs import MultiOutput, WithConstant, as_design
from ..losses import get_loss
from ..penalties import get_penalty
from ..solvers import Problem, SolverResult, SolverSpec, get_solver, run
from . import validation as check


@dataclass
class Task:
    """A checked problem, how to solve it, and the way back to the user's units."""

    problem: Problem
    solver: SolverSpec
    start: np.ndarray | None
    options: dict
    max_iter: int
    dtype: np.dtype
    centre: float | np.ndarray  # means of y, where centring stands for the intercept
    constant: bool  # whether the design ends in a column of ones
    exact: bool  # whether at most h parts may be nonzero

    def steps(self):
        return self.solver.iterate(self.problem, self.start, **self.options)

    def at_most_h(self, step, at_once=False):
        """The step, or where MM alone leads from it if it has more nonzeros than ``alpha="exact"`` allows.

        A run that was cut short may stand at such a point, and Algorithm 1 may end at one: with
        fractional weights it can be stationary, though it is no local minimum. ``at_once``, after an
        interrupt, keeps the h largest parts of the step instead.
        """
        problem, norm = self.problem, self.problem.penalty.norm
        if not self.exact or self.n_penalizable(step.theta) <= problem.penalty.n_free:
            return step
        if at_once:
            weights = problem.weights(step.theta, np.zeros_like(step.theta))
            theta = np.where(norm.spread(weights > 0), 0.0, step.theta)
            return replace(step, theta=theta, weights=weights, objective=problem.objective(theta))
        *_, end = get_solver("mm").iterate(problem, step.theta, tol=self.options["tol"], effort="low")
        theta = np.where(norm.spread(end.weights > 0), 0.0, end.theta)
        message = f"{step.message}; finished by MM, for there were more than h nonzeros"
        return replace(
            step, theta=theta, weights=end.weights, objective=problem.objective(theta), message=message
        )

    def n_penalizable(self, theta) -> int:
        """The number of nonzero parts, those that are never penalized not counted."""
        penalty = self.problem.penalty
        return np.count_nonzero(penalty.norm.lengths(theta)[penalty.levels(1.0) > 0])

    def result(self, step, n_iter, history, certify=True) -> SolverResult:
        """The step in the user's units; its stationarity, a pass over X, is NaN unless certified."""
        outputs = self.problem.loss.n_outputs
        coef, intercept = self.problem.design.original_units(step.theta)
        intercept = intercept + self.centre if self.problem.loss.sees_constants else 0.0
        parts, kept = (slice(None, -1), slice(None, -outputs)) if self.constant else (slice(None),) * 2
        return SolverResult(
            coef=coef.astype(self.dtype) + self.dtype.type(0),  # no -0.0
            intercept=float(intercept) if np.ndim(intercept) == 0 else intercept,
            weights=step.weights[parts],
            objective=float(step.objective),
            stationarity=self.stationarity(step) if certify else np.nan,
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
        return self._stationarity(step.theta, step.weights)

    def stationarity_of(self, result: SolverResult) -> float:
        """T of a result in the user's units, of another run of the same problem perhaps."""
        design, outputs = self.problem.design, self.problem.loss.n_outputs
        while hasattr(design, "inner"):
            design = design.inner
        theta, weights = _in_scale(np.asarray(result.coef, dtype=float), design.inverse_scale), result.weights
        if self.constant:
            moved = self.problem.design.original_units(np.append(theta, np.zeros(outputs)))[1]  # by centring
            theta, weights = np.append(theta, result.intercept - moved), np.append(weights, 0.0)
        return self._stationarity(theta, weights)

    def _stationarity(self, theta, weights):
        problem = self.problem
        gradient = problem.gradient(problem.predictor(theta))
        return problem.penalty.stationarity(theta, weights, gradient, problem.alpha, problem.positive)


def solve_task(task: Task, callback=None) -> SolverResult:
    """Run the task's solver to its end."""
    outcome = run(task.steps(), task.max_iter, callback)
    step = task.at_most_h(outcome.step, at_once=outcome.interrupted)
    return task.result(step, outcome.n_iter, outcome.history)


def prepare(
    X, y, *, loss, penalty, alpha, solver="mm", fit_intercept=False, standardize=False, sample_weight=None,
    theta0=None, tol=1e-6, max_iter=None, random_state=None, positive=False, options=None,
) -> Task:  # fmt: skip
    """Check every argument of :func:`trimreg.solve`, then set up its problem.

    ``standardize`` may also be the deviations to divide the columns by.
    """
    options = {} if options is None else options
    spec = get_solver(solver)
    loss, penalty = get_loss(loss), get_penalty(penalty)
    alpha = check.check_alpha(alpha)
    fit_intercept = check.check_flag("fit_intercept", fit_intercept)
    if not isinstance(standardize, np.ndarray):
        standardize = check.check_flag("standardize", standardize)
    positive = check.check_flag("positive", positive)
    tol = check.check_number("tol", tol, 0.0, strict=True)
    max_iter = (
        spec.max_iter if max_iter is None else check.check_number("max_iter", max_iter, 1, integral=True)
    )
    rng = check.check_random_state(random_state)
    X = check.check_matrix(X)
    n, p = X.shape
    y = check.check_target(y, n, matrix=loss.matrix_target)
    loss.check_target(y)
    d = check.check_sample_weight(sample_weight, n)
    loss = loss.bound(y, d)
    if hasattr(X, "with_room_for"):  # a far matrix with a budget, of which the vectors of the fit are a part
        X = X.with_room_for(loss)
    fit_intercept = fit_intercept and loss.sees_constants
    penalty = penalty.bind(p, loss.n_outputs)
    check.check_options(spec, options, penalty, positive)
    if alpha == "exact":
        check.check_exact(loss, penalty, y, d)
    theta0 = check.check_start(theta0, p, loss.n_outputs if loss.multi_output else None)

    centring = fit_intercept and loss.constant_curvature
    constant = fit_intercept and not centring
    # A loss that does not see constants loses nothing by centring, and deviations are what scales are for.
    design = as_design(X, d, center=fit_intercept or not loss.sees_constants, scale=standardize)
    start = None if theta0 is None else _in_scale(theta0, design.inverse_scale)
    target, centre = _centred(y, d) if centring else (y, 0.0)
    if constant:
        design, penalty = WithConstant(design), penalty.extended(loss.n_outputs)
        positive = np.append(np.full(p, True), False) if positive else False
        if start is not None:
            intercept = np.broadcast_to(loss.null_predictor(y, d), loss.n_outputs)
            start = np.append(start, intercept)
    if loss.multi_output:
        design = MultiOutput(design, loss.n_outputs)
    problem = Problem(design, loss, target, d, penalty, 0.0, positive)
    return Task(
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


def _in_scale(coef, inverse_scale):
    """Coefficients in the units of X as theta, one after another: outputs within features."""
    start = np.zeros(coef.shape)
    np.divide(coef, inverse_scale, out=start, where=inverse_scale > 0)
    return start.T.ravel()


def _centred(y, d):
    """``y`` less its mean, and the mean; exact zeros where y is constant but for rounding of its mean."""
    mean = d @ y
    mean = mean + d @ (y - mean)
    target = y - mean
    spread = np.max(np.abs(target[d > 0]), axis=0)
    return np.where(spread <= 10 * np.finfo(float).eps * np.abs(mean), 0.0, target), mean


def _alpha(problem: Problem, alpha) -> float:
    """The number that ``alpha`` stands for."""
    if alpha != "exact":
        return alpha
    # Just over the threshold. Where it is 0 (y or X without variation) any positive number will do.
    return problem.exact_threshold() * (1 + 1e-6) or 1.0
