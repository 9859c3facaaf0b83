"""The h best parameters of any differentiable function."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning

from ...penalties import TrimmedL1
from ...solvers import EFFORTS, Problem, SolverResult, Step, get_solver
from .. import validation as check
from ..task import Task
from .derivatives import check_gradient as compare_gradient
from .derivatives import derivatives
from .problem import Coordinates, FunctionLoss

_EXACT = 1e6  # alpha="exact", in units of the largest gradient at the start
_ROUNDS = 30  # of the method of multipliers
_GAP = 1e-10  # relative error of a sum that is given
_STIFFER = 10.0


def minimize(
    fun: Callable,
    n_params: int,
    *,
    h: float | None = None,
    alpha: float | str = "exact",
    l2: float = 0.0,
    groups: Any = None,
    penalty_factor: ArrayLike | None = None,
    q: float = 2,
    positive: bool = False,
    lower: ArrayLike | None = None,
    upper: ArrayLike | None = None,
    total: float | None = None,
    start: ArrayLike | None = None,
    hessp: Any = None,
    check_gradient: bool = False,
    effort: str = "medium",
    tol: float = 1e-6,
    max_iter: int | None = None,
    random_state: Any = None,
    callback: Callable[[Step], Any] | None = None,
) -> SolverResult:
    r"""Minimize any differentiable function over vectors with at most h free or nonzero entries.

    .. math:: \min_\theta\; f(\theta) + \frac{l_2}{2} \sum_j f_j \theta_j^2
              + \alpha \sum_{j > h} r_{(j)}(\theta), \qquad l \le \theta \le u,\quad \mathbf 1'\theta = c,

    with magnitudes :math:`r_j = f_j |\theta_j|` (or the norm of a group) and penalty factors :math:`f_j`. The
    constraints are there if asked for.

    Parameters
    ----------
    fun : callable
        ``fun(theta)`` takes a float64 vector and returns its value and its gradient. Or it is a function of
        PyTorch or JAX that returns a scalar, and is differentiated here (in float64, also by JAX).
    n_params : int
        The length of theta.
    h : int, float in (0, 1) or None
        How many parameters (or groups) are free of the penalty; None is a tenth of them.
    alpha : float or "exact"
        ``"exact"`` keeps at most h nonzero parameters. A number is the soft version.
    l2 : float
        The ridge term.
    groups, penalty_factor, q
        As in :class:`~trimreg.TrimmedL1`. Parameters with factor 0 are never penalized and not counted in h;
        inf fixes one at 0.
    positive : bool
        Whether to allow nonnegative values only, where ``lower`` says nothing else.
    lower, upper : float or array-like of shape (n_params,), optional
        Bounds. Those of a penalized parameter must have 0 between them, since it may be trimmed to 0.
    total : float, optional
        The sum of all parameters, such as 1 for the weights of a portfolio.
    start : array-like of shape (n_params,), optional
        Where to start. If only parameters with factor 0 are nonzero there, the solver looks for a start of
        the others from there, as it does from 0 by default. Otherwise it begins with the h largest.
    hessp : callable, None or False
        ``hessp(theta, v)``, the product of the Hessian with a vector. None differentiates twice if fun is one
        of PyTorch or JAX, else takes the limited-memory curvature of the last steps, and differences of
        gradients to rank exchanges. So does False.
    check_gradient : bool
        Whether to compare the gradient with differences of fun at the start.
    effort : str
        "low", "medium" or "high", as in :func:`trimreg.solve`.
    tol : float
        The solver stops when no optimality condition is violated by more than ``tol`` times the largest
        gradient at the start.
    max_iter : int, optional
        The largest number of steps, 1,000 by default.
    random_state : int, Generator or RandomState, optional
        Seed of the random kicks; None is the seed 0.
    callback : callable, optional
        Called with every :class:`~trimreg.solvers.Step`; return True to stop.

    Returns
    -------
    SolverResult
        With ``theta`` (also as ``coef``), ``support``, ``objective``, ``weights``, ``stationarity`` (the
        paper's T), ``converged``, ``n_iter`` and ``message``. If fun is not convex, theta is stationary and
        no exchange that was tried is better; the message says that negative curvature was met.

    Notes
    -----
    A point where fun or its gradient is not finite counts as infinitely high, except for the start. A sum
    that is given is kept by the method of multipliers; T is then that of the Lagrangian. Ctrl-C returns the
    best point so far, as in :func:`trimreg.solve`.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import minimize
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 20))
    >>> y = np.exp(0.5 * X[:, 4] - 0.3 * X[:, 7]) + 0.01 * rng.standard_normal(100)
    >>> def fun(theta):  # nonlinear least squares
    ...     mean = np.exp(X @ theta)
    ...     return np.mean((y - mean) ** 2) / 2, X.T @ (mean * (mean - y)) / 100
    >>> result = minimize(fun, 20, h=2)
    >>> result.support, result.theta[[4, 7]].round(2), result.converged
    (array([4, 7]), array([ 0.5, -0.3]), True)
    """
    p = int(check.check_number("n_params", n_params, 1, integral=True))
    penalty = TrimmedL1(h, penalty_factor, groups=groups, q=q).bind(p)
    alpha = check.check_alpha(alpha)
    l2 = float(check.check_number("l2", l2, 0.0))
    tol = float(check.check_number("tol", tol, 0.0, strict=True))
    check.check_choice("effort", effort, EFFORTS)
    rng = check.check_random_state(random_state)
    if max_iter is not None:
        check.check_number("max_iter", max_iter, 1, integral=True)
    bounds = check.check_bounds(lower, upper, check.check_flag("positive", positive), penalty, "parameter")
    theta = _start(start, penalty, bounds)
    if total is not None:
        total = _total(total, bounds, penalty)
    known = derivatives(fun, theta, hessp)
    value, gradient = known.value_and_gradient(theta)
    if not (np.isfinite(value) and np.isfinite(gradient).all()):
        what = "value" if not np.isfinite(value) else "gradient"
        raise ValueError(f"the {what} of fun must be finite at the start; give another start")
    if callable(hessp) and known.rows is not None:
        known.rows(theta, np.zeros(1, dtype=np.intp))  # a wrong shape is said before any work
    if check.check_flag("check_gradient", check_gradient):
        low, high = bounds if bounds is not None else (np.full(p, -np.inf), np.full(p, np.inf))
        compare_gradient(known.value_and_gradient, theta, low, high)

    never = penalty.norm.spread(penalty.levels(1.0) == 0)
    origin = np.where(never, theta, 0.0)
    loss = FunctionLoss(known, origin, alpha == "exact", total)
    scale = float(np.max(np.abs(gradient), initial=0.0)) or 1.0
    problem = Problem(
        design=Coordinates(p, np.arange(p), np.ones(p)), loss=loss, y=np.zeros(p), d=np.ones(p),
        penalty=penalty, alpha=_exact_alpha(penalty, scale) if alpha == "exact" else float(alpha),
        ridge=penalty.ridge(l2),
        bounds=None if bounds is None else (bounds[0] - origin, bounds[1] - origin),
    )  # fmt: skip
    spec = get_solver("mm")
    task = FunctionTask(
        problem=problem, solver=spec, start=None if np.all(never | (theta == 0)) else theta - origin,
        options={"tol": tol, "rng": rng, "effort": effort},
        max_iter=spec.max_iter if max_iter is None else max_iter, dtype=np.dtype(float), y_mean=0.0,
        constant=False, exact=alpha == "exact", l2=l2, loss=loss,
    )  # fmt: skip
    return task.minimize(callback)


def _exact_alpha(penalty, scale):
    """An alpha that no gradient is likely to reach."""
    levels = penalty.levels(1.0)
    regular = levels[(levels > 0) & np.isfinite(levels)]
    return _EXACT * scale / float(np.min(regular, initial=np.inf)) if regular.size else scale


# -- arguments -------------------------------------------------------------------------------------------


def _start(start, penalty, bounds):
    p = penalty.norm.spread(np.zeros(penalty.norm.count)).size
    if start is None:
        return np.zeros(p) if bounds is None else np.clip(np.zeros(p), *bounds)
    theta = check.check_vector("start", start, p, "parameter")
    if bounds is not None and ((theta < bounds[0]) | (theta > bounds[1])).any():
        j = int(np.flatnonzero((theta < bounds[0]) | (theta > bounds[1]))[0])
        low, high = bounds[0][j], bounds[1][j]
        raise ValueError(
            f"start must be within the bounds; got {theta[j]} for parameter {j} of [{low}, {high}]"
        )
    if theta[penalty.norm.spread(np.isinf(penalty.levels(1.0)))].any():
        raise ValueError("start must be 0 where penalty_factor is inf")
    return theta


def _total(total, bounds, penalty):
    """The sum as a float, if at most h parameters can have it within their bounds."""
    if not isinstance(total, (int, float, np.number)) or isinstance(total, bool) or not np.isfinite(total):
        raise ValueError(f"total must be a finite number; got {total!r}")
    levels = penalty.levels(1.0)
    if penalty.norm.q is None and bounds is not None:
        for sign, end in ((1.0, bounds[1]), (-1.0, -bounds[0])):
            reach = np.where(np.isinf(levels), 0.0, end)
            largest = np.sort(reach[levels > 0])[::-1][: penalty.n_free].sum() + reach[levels == 0].sum()
            if sign * total > largest + 1e-12 * abs(total):
                raise ValueError(f"total must be within reach of h = {penalty.n_free} bounds; got {total}")
    if penalty.n_free == 0 and not (levels == 0).any() and total != 0:
        raise ValueError(f"total must be 0 if h = 0; got {total}")
    return float(total)


# -- solving ---------------------------------------------------------------------------------------------


@dataclass
class FunctionTask(Task):
    """A function to minimize; coordinates are relative to the start of what is never penalized."""

    loss: FunctionLoss = field(kw_only=True)  # of the problem

    def in_units(self, theta: np.ndarray) -> tuple[np.ndarray, float]:
        return self.loss.origin + self.problem.design.matvec(theta), 0.0

    def minimize(self, callback: Callable | None) -> SolverResult:
        """Solve, by the method of multipliers if a sum is given, and say what kind of point it is."""
        stopped = []

        def shown(step):
            if callback is not None and callback(replace(step, theta=self.in_units(step.theta)[0])) is True:
                stopped.append(True)
            return bool(stopped)

        result = self.solve(shown) if self.loss.total is None else self._with_total(shown, stopped)
        message = result.message
        if self.loss.nonconvex:
            message += "; fun is not convex (it has negative curvature): the point is stationary, no more"
        return replace(result, theta=result.coef, message=message)

    def _with_total(self, callback, stopped):
        """Solve again and again with a better multiplier until the sum is right."""
        problem, loss, task = self.problem, self.loss, self
        p, null = problem.n_features, np.zeros(problem.n_features)
        scale = np.max(np.abs(problem.gradient(null))) or 1.0
        which = np.unique(np.linspace(0, p - 1, 100).astype(int))
        curvature = float(np.max(np.diagonal(problem.hessian(problem.origin(), which)))) or 1.0
        stiffness, before, count, history = _STIFFER * curvature, np.inf, 0, {"objective": []}
        loss.tightened(problem.origin(), stiffness)
        for _ in range(_ROUNDS):
            # The goal is relative to the gradient at 0, in which the constraint does not count.
            tol = self.options["tol"] * scale / (np.max(np.abs(problem.gradient(null))) or 1.0)
            result = replace(task, options=self.options | {"tol": tol}).solve(callback)
            count += result.n_iter
            history["objective"] += result.history["objective"]
            eta = problem.predictor(result.theta)
            gap = abs(loss.gap(eta))
            right = gap <= _GAP * max(1.0, abs(loss.total))
            ended = stopped or result.message.startswith("interrupted") or count >= self.max_iter
            if right or ended or not result.converged:
                break
            stiffness *= _STIFFER if gap > 0.1 * before else 1.0
            before = gap
            loss.tightened(eta, stiffness)
            task = replace(self, start=result.theta)
        message = result.message if right else f"{result.message}; the sum is off by {gap:.3g}"
        if result.converged and not right and not stopped:
            warnings.warn(f"not converged: {message}", ConvergenceWarning, stacklevel=4)
        converged = result.converged and right
        return replace(result, n_iter=count, history=history, converged=converged, message=message)
