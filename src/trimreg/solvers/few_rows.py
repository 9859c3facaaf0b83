r"""Least squares on data that are far away: solved on few rows, then held against the data.

One pass over X gives p + K rows with the same least squares (``Design.compressed``).
The solver
runs on them as on any other problem, in memory. Then the data have the last word: the solver goes on from its
solution on the true design, where the gradient shows what rounding has hidden, and what is returned has been
confirmed there. That takes a pass or two, for there is next to nothing left to do.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .problem import Problem

#: Beyond so many columns the Gram matrix is too dear, unless the design says otherwise: its cost is the
#: square of their number.
WIDEST = 3000


def pays(problem) -> bool:
    """Whether to solve on few rows: least squares of moderate width, where X is far and longer than wide.

    The number of free coefficients is below that of samples then, as it is for the few rows.
    """
    if problem.near or not problem.loss.least_squares:
        return False
    outputs = problem.loss.n_outputs
    p = problem.n_features // outputs
    widest = problem.design.widest_gram
    return bool(p <= widest and p + outputs < np.count_nonzero(problem.d))


def compress(problem: Problem) -> Problem:
    r"""The problem on few rows, all of the same weight: one pass over X, and the same objective.

    .. math:: \tfrac12 \sum_i d_i (y_i - z_i'\theta)^2 = \tfrac1{2m} \sum_{i=1}^m (r_i - R_i'\theta)^2

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.designs import as_design
    >>> from trimreg.designs.far.rows import ArrayRows
    >>> from trimreg.losses import Quadratic
    >>> from trimreg.penalties import L1
    >>> from trimreg.solvers import Problem
    >>> from trimreg.solvers.few_rows import compress
    >>> X, y, d = np.arange(12.0).reshape(6, 2) ** 2, np.arange(6.0), np.full(6, 1 / 6)
    >>> design = as_design(ArrayRows(X, block_rows=4), d)
    >>> problem = Problem(design, Quadratic(), y, d, L1().bind(2), 0.1)
    >>> few, theta = compress(problem), np.array([0.1, -0.2])
    >>> few.design.shape, round(problem.objective(theta), 9) == round(few.objective(theta), 9)
    ((3, 2), True)
    """
    design, y = problem.design.compressed(problem.y, problem.d)
    return replace(problem, design=design, y=y, d=np.full(len(y), 1.0 / len(y)))


def iterate(solver, problem: Problem, theta0, options, takes_weights=False):
    """Steps of the solver (a module) on few rows, and then on the data from where these have led.

    A solver has a function ``confirm`` for the second part, or simply goes on, with the weights if it takes
    them.
    """
    few = compress(problem)
    return _with_last_word(
        solver, problem, few, solver.iterate(few, theta0, **options), options, takes_weights
    )


def _with_last_word(solver, problem, few, steps, options, takes_weights):
    for step in steps:
        yield replace(step, converged=False, swap_optimal=None)
        if step.converged:
            break
    if hasattr(solver, "confirm"):
        yield from solver.confirm(problem, few, step, **options)
        return
    further = dict(options)
    if further.get("eta") is None:
        further["eta"] = 1.0 / few.lipschitz()  # many passes, if the data were asked
    if takes_weights:
        further["w0"] = step.weights
    yield from solver.iterate(problem, step.theta, **further)
