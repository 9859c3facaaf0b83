r"""Least squares on far data: solved on few rows, then confirmed on the data.

One pass over X gives p + K rows with the same least squares objective (``Design.compressed``). The solver
runs on them as on any other problem, in memory. Then it continues from its solution on the true design, where
the gradient shows errors of rounding, so the returned solution is confirmed by the data. That takes a pass or
two, because hardly anything is left to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from .driver import Step
from .problem import Problem


def pays(problem: Problem) -> bool:
    """Whether to solve on few rows: for least squares of moderate width, if X is far and longer than wide."""
    if problem.near or not problem.loss.least_squares:
        return False
    outputs = problem.loss.n_outputs
    p = problem.n_features // outputs
    return bool(p <= problem.design.widest_gram and p + outputs < np.count_nonzero(problem.d))


def compress(problem: Problem) -> Problem:
    r"""The problem on few rows of equal weight, with the same objective; takes one pass over X.

    .. math:: \tfrac12 \sum_i d_i (y_i - z_i'\theta)^2 = \tfrac1{2m} \sum_{i=1}^m (r_i - R_i'\theta)^2
    """
    design, y = problem.design.compressed(problem.y, problem.d)
    return replace(problem, design=design, y=y, d=np.full(len(y), 1.0 / len(y)))


def iterate(
    solver: Any, problem: Problem, theta0: np.ndarray | None, options: dict, takes_weights: bool = False
) -> Iterator[Step]:
    """Steps of the solver (a module) on few rows, and then on the data from there.

    The second part is the solver's function ``confirm`` if it has one. Otherwise the solver itself continues,
    with the weights if it takes them.
    """
    few = compress(problem)
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
    if takes_weights:
        further["w0"] = step.weights
    yield from solver.iterate(problem, step.theta, **further)
