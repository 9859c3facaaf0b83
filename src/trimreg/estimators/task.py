"""One fit: its settings and data, checked; its problem in the solver's coordinates; and the way back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from ..designs import MultiOutput, WithConstant, as_design
from ..designs.convert import is_virtual
from ..losses import get_loss
from ..losses.offset import Shifted, with_offset
from ..penalties import get_penalty
from ..solvers import Problem, SolverResult, SolverSpec, Step, get_solver, run
from ..solvers.problem import clipped
from . import validation as check


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The arguments of :func:`trimreg.solve` other than the data, checked.

    The loss and the penalty are objects here, whatever the user passed. ``dataclasses.replace`` makes
    variants.
    """

    loss: Any = "quadratic"
    penalty: Any
    alpha: Any  # a number, or "exact"
    l2: float = 0.0
    solver: str = "auto"
    fit_intercept: bool = False
    standardize: bool = False
    positive: bool = False
    lower: Any = None  # bounds of the coefficients, in the units of X
    upper: Any = None
    n_outliers: int | float = 0
    tol: float = 1e-6
    max_iter: int | None = None
    random_state: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)  # of the solver

    def __post_init__(self) -> None:
        penalty, solver = get_penalty(self.penalty), self.solver
        if isinstance(solver, str) and solver == "auto":
            solver = "mm" if penalty.majorizes else "prox"
        checked = {
            "solver": get_solver(solver).name,
            "loss": get_loss(self.loss),
            "penalty": penalty,
            "alpha": check.check_alpha(self.alpha),
            "l2": float(check.check_number("l2", self.l2, 0.0)),
            "tol": check.check_number("tol", self.tol, 0.0, strict=True),
        }
        for name in ("fit_intercept", "standardize", "positive"):
            checked[name] = check.check_flag(name, getattr(self, name))
        if self.max_iter is not None:
            check.check_number("max_iter", self.max_iter, 1, integral=True)
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, arguments: Mapping[str, Any], **more: Any) -> Settings:
        """Settings from the entries of ``arguments`` that are settings; the others are ignored."""
        known = {one.name for one in fields(cls)}
        return cls(**{name: value for name, value in arguments.items() if name in known} | more)


@dataclass(frozen=True)
class Data:
    """Samples that have been checked: X as a float matrix, y, and sample weights ``d`` that sum to one.

    ``scale`` holds the deviations that ``standardize`` divides the columns by; None takes those of the
    samples.
    """

    X: Any
    y: np.ndarray
    d: np.ndarray
    scale: np.ndarray | None = None

    def weighted(self, sample_weight: np.ndarray | None) -> Data:
        """The same samples with other weights."""
        return replace(self, d=check.check_sample_weight(sample_weight, self.y.shape[0]))

    def rows(self, index: np.ndarray) -> Data:
        """A copy of these samples."""
        return replace(self, X=self.X[index], y=self.y[index]).weighted(self.d[index])


def shifted(settings: Settings, y: Any, offset: Any, exposure: Any = None) -> tuple[Settings, Any]:
    """The settings and the target of a fit with offsets, or with exposures: see :mod:`trimreg.losses.offset`.

    Without either they are returned as they are.
    """
    if offset is None and exposure is None:
        return settings, y
    n_samples = len(y) if np.ndim(y) else 0
    y = check.check_target(y, n_samples, matrix=settings.loss.matrix_target)
    total = check.check_offset(settings.loss, n_samples, offset, exposure)
    loss, y = with_offset(settings.loss, y, np.asarray(total))
    return replace(settings, loss=loss), y


def check_data(X: Any, y: Any, sample_weight: Any, settings: Settings) -> Data:
    """Check the samples for a fit with these settings. X is read here once, and not again."""
    if not check.is_zero(settings.n_outliers):
        X = check.check_near(X, "n_outliers", "leave n_outliers at 0")
    X, loss = check.check_matrix(X), settings.loss
    y = check.check_target(y, X.shape[0], matrix=loss.matrix_target)
    loss.check_target(y)
    return Data(X, y, check.check_sample_weight(sample_weight, X.shape[0]))


@dataclass
class Task:
    """A problem in the solver's coordinates, how to solve it, and the way back to the units of X."""

    problem: Problem
    solver: SolverSpec
    start: np.ndarray | None
    options: dict
    max_iter: int
    dtype: np.dtype
    y_mean: float | np.ndarray  # what is subtracted from y and is part of the intercept
    constant: bool  # whether the design ends in a column of ones
    exact: bool  # whether at most h parts may be nonzero
    l2: float  # of the ridge term
    limits: Any = None  # the bounds of the coefficients, in the units of X
    copies: Any = None  # the design with a copy of a feature for each of its groups, where these overlap
    origin: Any = 0.0  # what the solver's coordinates are relative to: see :func:`_from_origin`

    @property
    def loss_of_y(self) -> Any:
        """The loss of the target that the user gave."""
        loss = self.problem.loss
        return loss.base if isinstance(loss, Shifted) and np.any(self.origin) else loss

    # -- solving -------------------------------------------------------------------------------------

    def steps(self) -> Iterator[Step]:
        """The solver's iterations."""
        return self.solver.iterate(self.problem, self.start, **self.options)

    def solve(self, callback=None) -> SolverResult:
        """Run the solver to its end."""
        with np.errstate(over="ignore", invalid="ignore"):  # of steps that are too long and not taken
            outcome = run(self.steps(), self.max_iter, callback)
            step = self.at_most_h(outcome.step, at_once=outcome.interrupted)
            step = step if step.converged or self.start is not None else self._not_above_null(step)
        return self.result(step, outcome.n_iter, outcome.history)

    def at_most_h(self, step: Step, at_once: bool = False) -> Step:
        """The step; if it has more nonzeros than ``alpha="exact"`` allows, the point that MM reaches from it.

        A run that was cut short may end at a point with more nonzeros. So may Algorithm 1: with fractional
        weights a point can be stationary without being a local minimum. With ``at_once``, after an interrupt,
        the h largest parts are kept and nothing is solved.
        """
        problem, norm = self.problem, self.problem.penalty.norm
        if not self.exact or self._n_penalizable(step.theta) <= problem.penalty.n_free:
            return step
        theta, message = step.theta, step.message
        if at_once:
            weights = problem.weights(theta, np.zeros_like(theta))
        else:
            *_, end = get_solver("mm").iterate(problem, theta, tol=self.options["tol"], effort="low")
            theta, weights = end.theta, end.weights
            message += "; finished by MM because there were more than h nonzeros"
        theta = np.where(norm.spread(weights > 0), 0.0, theta)
        return replace(
            step, theta=theta, weights=weights, objective=problem.objective(theta), message=message
        )

    def _not_above_null(self, step):
        """The step, or the null model if a solver that did not converge ended above it."""
        problem = self.problem
        theta = np.zeros(problem.n_features)
        if self.constant:
            theta[-problem.loss.n_outputs :] = problem.loss.null_predictor(problem.y, problem.d)
        eta = problem.predictor(theta)
        objective = problem.objective(theta, eta)
        if step.objective <= objective:
            return step
        weights = problem.weights(theta, problem.gradient(theta, eta))
        message = f"{step.message}; that was above the null model, which is returned"
        return replace(step, theta=theta, weights=weights, objective=objective, message=message)

    def _n_penalizable(self, theta):
        """The number of nonzero parts, not counting those that are never penalized."""
        penalty = self.problem.penalty
        return np.count_nonzero(penalty.norm.lengths(theta)[penalty.levels(1.0) > 0])

    # -- units ---------------------------------------------------------------------------------------

    def in_units(self, theta: np.ndarray) -> tuple[np.ndarray, Any]:
        """The coefficients and the intercept in the units of X."""
        coef, intercept = self.problem.design.original_units(theta + self.origin)
        coef = clipped(coef, self.limits)
        return coef, intercept + self.y_mean if self.problem.loss.sees_constants else 0.0

    def coordinates(self, coef: np.ndarray, intercept: Any = None) -> np.ndarray:
        """The inverse of :meth:`in_units`. Without an intercept, that of the null model is used."""
        scale, problem = self.features.inverse_scale, self.problem
        coef = np.asarray(coef, dtype=float)
        theta = np.divide(coef, scale, out=np.zeros_like(coef), where=scale > 0).T
        theta = (theta if self.copies is None else self.copies.divided(theta)).ravel()
        if not self.constant:
            return theta - self.origin
        outputs = problem.loss.n_outputs
        if intercept is None:
            constant = np.broadcast_to(problem.loss.null_predictor(problem.y, problem.d), outputs)
        else:  # less what centering moved into it
            moved = problem.design.original_units(np.append(theta, np.zeros(outputs)))[1]
            constant = intercept - self.y_mean - moved
        return np.append(theta, constant) - self.origin

    def coordinates_of(self, result: SolverResult) -> np.ndarray:
        """The point that a result of this very task stands for."""
        theta = self.coordinates(result.coef, result.intercept)
        if self.copies is not None:  # a sum does not determine its terms
            terms = np.asarray(result.theta)
            theta[: terms.size] = terms
        return theta

    @property
    def features(self):
        """The design of the features alone, without the constant column and the outputs around it."""
        return self.problem.design.features

    # -- results -------------------------------------------------------------------------------------

    def result(self, step: Step, n_iter: int, history: dict, certify: bool = True) -> SolverResult:
        """The step in the units of X. Its stationarity, a pass over X, is NaN unless ``certify``."""
        with np.errstate(over="ignore", invalid="ignore"):
            coef, intercept = self.in_units(step.theta)
        if not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
            raise ValueError("X and y have units so far apart that coefficients overflow; rescale X or y")
        outputs = self.problem.loss.n_outputs
        parts, kept = (slice(None, -1), slice(None, -outputs)) if self.constant else (slice(None),) * 2
        return SolverResult(
            coef=self._rounded(coef) + self.dtype.type(0),  # no -0.0
            intercept=float(intercept) if np.ndim(intercept) == 0 else intercept,
            weights=step.weights[parts],
            objective=float(step.objective),
            stationarity=self.stationarity(step) if certify else np.nan,
            n_iter=n_iter,
            converged=bool(step.converged),
            history=history,
            message=f"{step.message}; {step.trouble}" if step.trouble else step.message,
            swap_optimal=step.swap_optimal,
            theta=(step.theta + self.origin)[kept],
            alpha=self.problem.alpha,
        )

    def _rounded(self, coef):
        """The coefficients with the dtype of X; as they are where it cannot hold them."""
        with np.errstate(over="ignore", under="ignore"):
            rounded = coef.astype(self.dtype)
        return rounded if np.array_equal(np.isfinite(rounded) & (rounded != 0), coef != 0) else coef

    def stationarity(self, step: Step) -> float:
        """The paper's T at a step, recomputed from the data."""
        return self.problem.stationarity(step.theta, step.weights)

    def stationarity_of(self, result: SolverResult) -> float:
        """T of a result in the units of X, perhaps from another run of the same problem."""
        theta = self.coordinates(result.coef, result.intercept)
        return self.problem.stationarity(
            theta, np.append(result.weights, 0.0) if self.constant else result.weights
        )


def set_up(data: Data, settings: Settings, theta0: Any = None, *, overlap: bool = False) -> Task:
    """The task of fitting checked data with these settings, from the coefficients ``theta0`` if given.

    Groups may overlap with ``overlap``: for a caller that takes coefficients only from the task.
    """
    spec, alpha = get_solver(settings.solver), settings.alpha
    rng = check.check_random_state(settings.random_state)
    X, y, d = data.X, data.y, data.d
    p = X.shape[1]
    loss = settings.loss.bound(y, d)
    if is_virtual(X):  # its budget of memory is also for the vectors of the fit
        X = X.with_room_for(loss)
    fit_intercept = settings.fit_intercept and loss.sees_constants
    penalty, index = settings.penalty.for_copies(p) if overlap else (settings.penalty, None)
    penalty = penalty.bind(p if index is None else index.size, loss.n_outputs)
    bounds = check.check_bounds(settings.lower, settings.upper, settings.positive, penalty)
    check.check_options(spec, settings.options, penalty, bounds)
    if alpha == "exact":
        check.check_exact(loss, penalty, y, d)
    theta0 = check.check_start(theta0, p, loss.n_outputs if loss.multi_output else None)

    centering = fit_intercept and loss.constant_curvature
    constant = fit_intercept and not centering
    scale = settings.standardize if data.scale is None else data.scale
    # A loss that does not see constants loses nothing by centering, and columns are scaled by deviations.
    design: Any = as_design(X, d, center=fit_intercept or not loss.sees_constants, scale=scale)
    copies = None
    if index is not None:
        from ..designs.repeated import Repeated

        design = copies = Repeated(design, index)
    origin, limits = np.zeros(p), bounds
    if bounds is not None:
        bounds, origin = _from_origin(bounds, design.inverse_scale)
        if origin.any():
            loss, y = _moved(loss, y, design.matvec(origin), d)
    target, y_mean = _centered(y, d) if centering else (y, 0.0)
    if constant and loss.equivariant:  # a large constant in y would cost the residuals their digits
        y_mean = _median(y, d)
        target = y - y_mean
    if constant:
        design, penalty = WithConstant(design), penalty.extended(loss.n_outputs)
        if bounds is not None:
            bounds = np.append(bounds[0], -np.inf), np.append(bounds[1], np.inf)
            origin = np.append(origin, 0.0)
    if loss.multi_output:
        design = MultiOutput(design, loss.n_outputs)
    problem = Problem(design, loss, target, d, penalty, 0.0, penalty.ridge(settings.l2), bounds=bounds)
    if alpha == "exact":
        # Just over the threshold. If that is 0 (y or X without variation), any positive number will do.
        alpha = problem.exact_threshold() * (1 + 1e-6) or 1.0
    task = Task(
        problem=problem.at(alpha),
        solver=spec,
        start=None,
        options={"tol": settings.tol, "rng": rng, **settings.options},
        max_iter=spec.max_iter if settings.max_iter is None else settings.max_iter,
        dtype=X.dtype,
        y_mean=y_mean,
        constant=constant,
        exact=settings.alpha == "exact",
        l2=settings.l2,
        limits=limits,
        copies=copies,
        origin=origin if origin.any() else 0.0,
    )
    if theta0 is None and (spec.finds_start or not constant):
        return task
    if theta0 is None:
        theta0 = np.zeros((loss.n_outputs, p) if loss.multi_output else p)
    return replace(task, start=task.coordinates(theta0))


def _from_origin(bounds, inverse_scale):
    """The bounds in the coordinates of a design, relative to an origin within them, and that origin.

    It is the point nearest to 0, which differs from 0 only for a coefficient that is never penalized. With
    it as an offset, 0 is within all bounds. Coefficients of constant columns are 0.
    """
    origin = np.clip(0.0, *bounds)
    alive = inverse_scale > 0
    if origin[~alive].any():
        j = int(np.flatnonzero(~alive & (origin != 0))[0])
        name = "lower" if origin[j] > 0 else "upper"
        raise ValueError(f"{name} excludes 0 for feature {j}, which is constant: its coefficient is 0")
    ends = [np.divide(end, inverse_scale, out=np.zeros_like(end), where=alive) for end in (*bounds, origin)]
    return (ends[0] - ends[2], ends[1] - ends[2]), ends[2]


def _moved(loss, y, offset, d):
    """The loss with an offset, and its target."""
    loss, y = with_offset(loss.settled(y, d), y, offset)
    return loss.bound(y, d) if isinstance(loss, Shifted) else loss, y


def _median(y, d):
    """The lower weighted median: the same entry of y for a sample of weight two and for two samples."""
    order = np.argsort(y)
    below = np.cumsum(d[order])
    return float(y[order][np.searchsorted(below, (0.5 - 1e-12) * below[-1])])


def _centered(y, d):
    """``y`` less its mean, and the mean. A y that is constant up to rounding becomes exact zeros."""
    mean = d @ y
    mean = mean + d @ (y - mean)
    target = y - mean
    spread = np.max(np.abs(target[d > 0]), axis=0)
    return np.where(spread <= 10 * np.finfo(float).eps * np.abs(mean), 0.0, target), mean


def minimize(
    data: Data, settings: Settings, theta0: Any = None, callback: Any = None
) -> tuple[SolverResult, Task]:
    """Fit checked data, and return the result with the task that it solves.

    In that task the samples left out as outliers have weight 0, and columns may have another scale.
    """
    if not check.is_zero(settings.n_outliers):
        from .robust import minimize_without_outliers

        return minimize_without_outliers(data, settings, theta0, callback)
    task = set_up(data, settings, theta0, overlap=True)
    return task.solve(callback), task
