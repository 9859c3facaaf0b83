"""Steps, and the loop that drives them.

A solver is a generator function ``iterate(problem, theta0, *, tol, rng, **options)`` that yields a
:class:`Step` after each of its iterations. So every solver can be stepped by hand (``next``), watched, and
stopped at any point with the best it has; :func:`run` is the loop that most callers want.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np


@dataclass
class Step:
    """Where a solver stands after an iteration, in the coordinates of its problem.

    ``series`` are further numbers to keep in the history; ``converged`` is set on the last step of a
    solver that has reached its tolerance, and ``message`` says what was reached.
    """

    theta: np.ndarray
    weights: np.ndarray
    objective: float
    converged: bool = False
    message: str = ""
    swap_optimal: bool | None = None
    series: dict[str, float] = field(default_factory=dict)


@dataclass
class Outcome:
    """The last step of a run, or the best of an interrupted one, with what the run recorded."""

    step: Step
    n_iter: int
    history: dict[str, list[float]]
    interrupted: bool = False


def run(steps: Iterator[Step], max_iter: int, callback=None) -> Outcome:
    """Take steps until the solver converges, ends by itself, or has taken ``max_iter``.

    Warns with scikit-learn's ``ConvergenceWarning`` unless the last step says ``converged``.
    ``callback(step)`` is called after every step; if it returns True the run ends there.

    A ``KeyboardInterrupt`` (Ctrl-C) ends the run at its step of lowest objective, with a warning; within the
    first step, at the point that the solver leaves (:func:`keeping`), which is then the only step. It goes on
    to the caller where there is no point yet, and where the run is :func:`part_of_more`.
    """
    history: dict[str, list[float]] = {"objective": []}
    step, best, count, stopped = None, None, 0, False
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
    except KeyboardInterrupt as stop:
        if part_of_more():
            raise
        if best is None:
            best = _left_by(stop)
            if best is None:
                raise
            history["objective"].append(float(best.objective))
        return Outcome(kept_of_interrupted(best, count), max(count, 1), history, interrupted=True)
    if step is None:
        raise RuntimeError("a solver must yield at least one step")
    if not step.converged and not stopped:
        reached = step.message or f"objective {step.objective:.6g}"
        _warn(f"not converged after {count} steps ({reached}); raise max_iter or tol, or rescale the data")
    return Outcome(step, count, history)


def keeping(steps: Iterator[Step], kept: Callable[[], Step | None]) -> Iterator[Step]:
    """The steps; an interrupt within the first of them takes ``kept`` along to :func:`run`.

    ``kept()`` is what stays of the run then, or None. It is called by who wants it and not here: it may take
    passes over X, and who steps by hand, or interrupts many fits, waits for none.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.solvers.driver import Step, keeping, run
    >>> def interrupted():
    ...     raise KeyboardInterrupt
    ...     yield
    >>> start = Step(np.zeros(1), np.ones(1), objective=2.0)
    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):
    ...     run(keeping(interrupted(), lambda: start), max_iter=10).step.message
    'interrupted within the first step'
    """
    begun = False
    try:
        for step in steps:
            begun = True
            yield step
    except KeyboardInterrupt as stop:
        if not begun and not part_of_more():  # there it may be sent to another process, and X with it
            stop.kept = kept
        raise


def _left_by(stop: KeyboardInterrupt) -> Step | None:
    kept = getattr(stop, "kept", None)
    return None if kept is None else kept()


def kept_of_interrupted(best, count: int, what: str = "step"):
    """A step or result as what stays of an interrupted run after ``count`` steps, told to the user once."""
    if best.message.startswith("interrupted"):
        return best
    message = f"interrupted after {count} {what}{'s' if count > 1 else ''}"
    if count == 0:
        message = f"interrupted within the first {what}"
    _warn(
        f"{message}: the best point so far is kept, with objective {best.objective:.6g}; fit again for more"
    )
    if best.message:
        message += f"; {best.message}"
    return replace(best, converged=False, swap_optimal=None, message=message)


def _warn(message):
    from sklearn.exceptions import ConvergenceWarning

    warnings.warn(message, ConvergenceWarning, stacklevel=4)


_HERE = __package__.partition(".")[0]
#: Who runs many fits for one answer. An interrupt is meant for all of them, and only they can stop.
_MANY_FITS = (
    "joblib", "dask", "distributed", "concurrent", "multiprocessing",
    f"{_HERE}.selection", f"{_HERE}.experiments", f"{_HERE}.estimators.robust",
)  # fmt: skip


def part_of_more(depth: int = 1) -> bool:
    """Whether the caller runs inside a search, a resampling, an experiment or another process's task.

    There the best point of one fit answers nothing: if it were returned, a search over a thousand fits would
    go on to the next, and Ctrl-C would have to be pressed a thousand times. It is read off the call stack,
    which only an interrupt pays for, so that it also holds for scikit-learn's searches and the user's joblib.

    Parameters
    ----------
    depth : int
        From which caller on to look: 1 is who calls this function.

    Examples
    --------
    >>> from joblib import Parallel, delayed
    >>> from trimreg.solvers.driver import part_of_more
    >>> part_of_more(), Parallel(n_jobs=1)([delayed(part_of_more)()])
    (False, [True])
    """
    frame = sys._getframe(depth)
    while frame is not None:
        name = frame.f_globals.get("__name__") or ""
        if any(name == many or name.startswith(f"{many}.") for many in _MANY_FITS):
            return True
        frame = frame.f_back
    return False
