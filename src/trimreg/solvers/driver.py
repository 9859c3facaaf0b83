"""Steps, and the loop that drives them.

A solver is a generator function ``iterate(problem, theta0, *, tol, rng, **options)`` that yields a
:class:`Step` after each of its iterations. So every solver can be stepped by hand (``next``), watched, and
stopped at any point with the best it has; :func:`run` is the loop that most callers want.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

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
    """The last step of a run, with what the run recorded."""

    step: Step
    n_iter: int
    history: dict[str, list[float]]


def run(steps: Iterator[Step], max_iter: int, callback=None) -> Outcome:
    """Take steps until the solver converges, ends by itself, or has taken ``max_iter``.

    Warns with scikit-learn's ``ConvergenceWarning`` unless the last step says ``converged``.
    ``callback(step)`` is called after every step; if it returns True the run ends there.
    """
    history: dict[str, list[float]] = {"objective": []}
    step, count, stopped = None, 0, False
    for step in steps:
        count += 1
        history["objective"].append(float(step.objective))
        for name, value in step.series.items():
            history.setdefault(name, []).append(float(value))
        stopped = callback is not None and callback(step) is True
        if step.converged or stopped or count >= max_iter:
            break
    if step is None:
        raise RuntimeError("a solver must yield at least one step")
    if not step.converged and not stopped:
        from sklearn.exceptions import ConvergenceWarning

        reached = step.message or f"objective {step.objective:.6g}"
        warnings.warn(
            f"not converged after {count} steps ({reached}); raise max_iter or tol, or rescale the data",
            ConvergenceWarning,
            stacklevel=3,
        )
    return Outcome(step, count, history)
