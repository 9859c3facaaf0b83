"""The registry of solvers, the steps they take, and the loop that drives them.

A solver is a module with a generator function ``iterate(problem, theta0, *, tol, rng, **options)`` that
yields a :class:`Step` after each iteration. Every solver can therefore be stepped by hand (``next``),
watched, and stopped at any point. :func:`run` is the loop that most callers want. A new solver needs its
module and one line in :data:`SOLVERS`.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np


@dataclass
class Step:
    """The state of a solver after an iteration, in the coordinates of its problem.

    ``series`` holds further numbers for the history. ``converged`` is set on the last step of a solver that
    meets its tolerance, and ``message`` says which accuracy it attained. ``trouble`` says why the problem has
    no solution or the solver gave it up, and what to do.
    """

    theta: np.ndarray
    weights: np.ndarray
    objective: float
    converged: bool = False
    message: str = ""
    swap_optimal: bool | None = None
    series: dict[str, float] = field(default_factory=dict)
    trouble: str = ""


@dataclass
class Outcome:
    """The last step of a run, or the best step of an interrupted one, with the recorded history."""

    step: Step
    n_iter: int
    history: dict[str, list[float]]
    interrupted: bool = False


@dataclass
class SolverResult:
    """The outcome of a solve.

    Attributes
    ----------
    coef : ndarray of shape (n_features,) or (n_outputs, n_features)
        Coefficients, in the units of X.
    intercept : float or ndarray of shape (n_outputs,)
    weights : ndarray of shape (n_features,) or (n_groups,)
        The trimming weights w: 0 free, 1 penalized.
    objective : float
        ``F`` at the solution, in the scaling that was solved (standardized if so asked).
    stationarity : float
        The paper's T at ``(theta, w)``, recomputed from the data after the solver has stopped.
    n_iter : int
        Number of steps, as the solver defines them.
    converged : bool
    history : dict of lists
        One value per step and series. ``objective`` is always there; the others depend on the solver.
    message : str
        Why the solver stopped.
    swap_optimal : bool or None
        Whether no exchange of one free coordinate for another lowers F: True if all were scored and
        none does, None if that was not decided.
    theta : ndarray
        The solution in the scaling that was solved; ``coef`` is this in the units of X.
    alpha : float
        The value of alpha that was used.
    outliers : ndarray of int
        The samples that were left out; empty unless ``n_outliers`` was given.
    """

    coef: np.ndarray
    intercept: float | np.ndarray
    weights: np.ndarray
    objective: float
    stationarity: float
    n_iter: int
    converged: bool
    history: dict[str, list[float]] = field(default_factory=dict, repr=False)
    message: str = ""
    swap_optimal: bool | None = None
    theta: np.ndarray | None = field(default=None, repr=False)
    alpha: float = 0.0
    outliers: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.intp), repr=False)

    @property
    def support(self) -> np.ndarray:
        """The features with a nonzero coefficient."""
        return np.flatnonzero(self.coef if self.coef.ndim == 1 else self.coef.any(axis=0))


# -- the loop ---------------------------------------------------------------------------------------------


def run(
    steps: Iterator[Step], max_iter: int, callback: Callable[[Step], bool | None] | None = None
) -> Outcome:
    """Take steps until the solver converges, ends by itself, or has taken ``max_iter`` steps.

    Warns with scikit-learn's ``ConvergenceWarning`` unless the last step says ``converged`` and no trouble.
    ``callback(step)`` is called after every step; if it returns True the run ends there.

    A ``KeyboardInterrupt`` (Ctrl-C) ends the run at its step of lowest objective, with a warning. It
    propagates before the first step, inside :func:`many_fits`, and if it is the second one within two
    seconds. In a coroutine it ends the run after the current step; see :func:`check_cancelled`.
    """
    history: dict[str, list[float]] = {"objective": []}
    step: Step | None = None
    best: Step | None = None
    count, stopped = 0, False
    try:
        for step in steps:
            count += 1
            history["objective"].append(float(step.objective))
            for name, value in step.series.items():
                history.setdefault(name, []).append(float(value))
            best = step if best is None or step.objective < best.objective else best
            stopped = callback is not None and callback(step) is True
            if step.converged or stopped or count >= max_iter:
                break
            check_cancelled()
    except KeyboardInterrupt:
        return Outcome(best_so_far(best, count), count, history, interrupted=True)
    if step is None:
        raise RuntimeError("a solver must yield at least one step")
    if step.trouble and not stopped:
        _warn(f"stopped after {count} steps: {step.trouble}")
    elif not step.converged and not stopped:
        attained = step.message or f"objective {step.objective:.6g}"
        _warn(f"not converged after {count} steps ({attained}); raise max_iter or tol, or rescale the data")
    return Outcome(step, count, history)


_MANY_FITS: ContextVar[bool] = ContextVar("many_fits", default=False)
_TWICE = 2.0  # seconds: a second Ctrl-C this soon is meant for the program, not for one fit
_last_interrupt = -np.inf


@contextmanager
def many_fits() -> Iterator[None]:
    """Inside this context Ctrl-C ends the program's loop over fits, not only the current fit.

    Searches and resampling enter it: the best point so far of one of a thousand fits answers nothing, and
    without it Ctrl-C would have to be pressed a thousand times. Threads and processes do not inherit the
    context; enter it in the function that they run.

    Examples
    --------
    >>> from trimreg.solvers import many_fits, run
    >>> def interrupted():
    ...     yield Step(np.zeros(1), np.ones(1), objective=2.0)
    ...     raise KeyboardInterrupt
    >>> try:
    ...     with many_fits():
    ...         run(interrupted(), max_iter=10)
    ... except KeyboardInterrupt:
    ...     print("stopped")
    stopped
    """
    token = _MANY_FITS.set(True)
    try:
        yield
    finally:
        _MANY_FITS.reset(token)


def check_cancelled() -> None:
    """Raise ``KeyboardInterrupt`` if the coroutine that called us was cancelled since it last awaited.

    ``asyncio.run`` answers Ctrl-C by cancelling its task, which takes effect when the task next awaits. A fit
    never awaits, so it has to look.
    """
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or asyncio._get_running_loop() is None:
        return
    # Not task.cancelling(): it counts for ever, also while a coroutine cleans up after it was cancelled.
    if getattr(asyncio.current_task(), "_must_cancel", False):
        raise KeyboardInterrupt


def best_so_far(best: Any, count: int, unit: str = "step") -> Any:
    """The best step or result of a run that was interrupted after ``count`` steps, with a warning.

    Call it while a ``KeyboardInterrupt`` is handled; raises it again where it must propagate.
    """
    global _last_interrupt
    now = time.monotonic()
    if best is None or _MANY_FITS.get() or now - _last_interrupt < _TWICE:
        raise  # the KeyboardInterrupt that the caller handles
    _last_interrupt = now
    message = f"interrupted after {count} {unit}{'s' if count > 1 else ''}"
    _warn(
        f"{message}: the best point so far is kept, with objective {best.objective:.6g}; fit again for more, "
        "or press Ctrl-C twice to stop the program"
    )
    if best.message:
        message += f"; {best.message}"
    return replace(best, converged=False, swap_optimal=None, message=message)


def _warn(message):
    from sklearn.exceptions import ConvergenceWarning

    warnings.warn(message, ConvergenceWarning, stacklevel=4)


# -- the registry -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SolverSpec:
    """A solver and its capabilities."""

    name: str
    module: str
    max_iter: int  # default number of steps
    trimmed_only: bool  # whether it is defined for trimmed penalties alone
    bounds: bool  # whether it can keep coefficients within bounds
    options: tuple[str, ...]
    choices: Mapping[str, tuple] = field(default_factory=dict)  # the allowed values of an option
    needs_weights: bool = True  # whether the penalty must have weights
    finds_start: bool = False  # whether it chooses its start; otherwise that is the null model

    def iterate(self, problem: Any, theta0: np.ndarray | None, **options: Any) -> Iterator[Step]:
        """The solver's generator of steps; least squares on far data is solved on few rows first."""
        solver = import_module(self.module)
        if getattr(problem, "worth_compressing", bool)():
            return self._on_few_rows(solver, problem, theta0, options)
        return solver.iterate(problem, theta0, **options)

    def _on_few_rows(self, solver, problem, theta0, options):
        """Steps on few rows with the same least squares, in memory, and then on the data from there.

        The gradient of the data shows errors of rounding, so the returned solution is confirmed by the data.
        That takes a pass or two, because hardly anything is left to do. It is done by the solver's function
        ``confirm`` if it has one. Otherwise the solver itself continues, with the weights if it takes them.
        """
        few = problem.compressed()
        for step in solver.iterate(few, theta0, **options):
            yield replace(step, converged=False, swap_optimal=None)
            if step.converged:
                break
        if hasattr(solver, "confirm"):
            yield from solver.confirm(problem, few, step, **options)
            return
        further = dict(options)
        if further.get("eta") is None:
            further["eta"] = 1.0 / few.lipschitz()  # on the data it would take many passes
        if "w0" in self.options:
            further["w0"] = step.weights
        yield from solver.iterate(problem, step.theta, **further)


EFFORTS = ("low", "medium", "high")
_FLAG = (True, False)

#: The solvers by name, in the order: module, default steps, trimmed penalties only, bounds, options.
SOLVERS = {
    spec.name: spec
    for spec in (
        # the default: majorize-minimize with a search for the best free set
        SolverSpec(
            "mm", f"{__package__}.mm.solver", 1000, False, True, ("effort",), {"effort": EFFORTS},
            finds_start=True,
        ),
        # the paper's Algorithm 1
        SolverSpec(
            "bcd", f"{__package__}.first_order.bcd", 20_000, True, True,
            ("w0", "eta", "tau", "record_stationarity"), {"record_stationarity": _FLAG},
        ),
        # Algorithm 2 of Khamaru and Wainwright (2018)
        SolverSpec(
            "dc", f"{__package__}.first_order.dc", 20_000, True, True, ("eta", "ties"),
            {"ties": ("plain", "aware")},
        ),
        # proximal gradient with the exact prox of the penalty
        SolverSpec(
            "prox", f"{__package__}.first_order.prox", 20_000, False, True, ("eta", "accelerate"),
            {"accelerate": _FLAG}, needs_weights=False,
        ),
    )
}  # fmt: skip


def get_solver(name: str, registry: Mapping[str, SolverSpec] = SOLVERS) -> SolverSpec:
    """The solver of that name.

    Examples
    --------
    >>> from trimreg.solvers import get_solver
    >>> get_solver("bcd").options
    ('w0', 'eta', 'tau', 'record_stationarity')
    """
    if not isinstance(name, str) or name not in registry:
        raise ValueError(f"solver must be one of {sorted(registry)}; got {name!r}")
    return registry[name]
