"""Checked arguments, step size and stopping goal of the first-order solvers (``bcd``, ``dc``, ``prox``)."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from ..problem import Problem

_GROWTH = 1.2


def positive_number(name: str, value: Any) -> float:
    """``value`` as a float; a ValueError that names the argument unless it is finite and positive."""
    number = isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))
    if not number or not 0 < value < np.inf:
        raise ValueError(f"{name} must be a positive finite number; got {value!r}")
    return float(value)


def require_trimmed(problem: Problem, solver: str) -> None:
    """Raise a ValueError unless the penalty trims: the solver is defined for no other."""
    if problem.penalty.n_free is None:
        raise ValueError(f"solver {solver!r} needs a penalty that trims; got penalty {problem.penalty!r}")


class StepSize:
    r"""The step ``eta`` of a first-order method: given, or :math:`1/L_f`, or found by halving.

    :math:`1/L_f` is the longest step for which every method here is known to descend. A loss without a bound
    on its curvature has no such constant. Then the step starts from the curvature at the first point, grows a
    little with every step, and is halved until the quadratic bound that the proofs need holds,

    .. math:: L(\theta^+) \le L(\theta) + \langle\nabla L(\theta), \theta^+ - \theta\rangle
              + \tfrac{1}{2\eta}\|\theta^+ - \theta\|^2.
    """

    def __init__(self, problem: Problem, eta: float | None, predictor: np.ndarray):
        self.problem = problem
        self.halving = False
        if eta is None:
            constant = problem.lipschitz()
            self.halving = not np.isfinite(constant)
            eta = 1.0 / (problem.local_lipschitz(predictor) if self.halving else constant)
            if not 0 < eta < np.inf:
                raise ValueError("X and y have units so far apart that a step underflows; rescale X or y")
        self.eta = self._following = eta

    def take(self, theta, loss, gradient, move):
        """``(theta+, predictor, loss)``, ``theta+ = move(eta)`` from a point with that loss and gradient."""
        self.eta = self._following
        while True:
            following = move(self.eta)
            predictor = self.problem.predictor(following)
            with np.errstate(over="ignore", invalid="ignore"):  # too long a step: inf is above any bound
                value = self.problem.smooth_value(following, predictor)
            if not self.halving or self.eta < 1e-300:
                return following, predictor, value
            step = following - theta
            bound = loss + float(gradient @ step) + float(step @ step) / (2 * self.eta)
            if value <= bound + 1e-14 * abs(loss):
                self._following = _GROWTH * self.eta  # where the loss is flatter, a longer step may hold
                return following, predictor, value
            self.eta /= 2


def stationarity_goal(problem: Problem, tol: float) -> float:
    r""":math:`tol \cdot \max_j |\nabla_j L(0)|`, the distance to stationarity at which a solver stops.

    Less if no gradient at the best constant predictor can be as large. ``tol`` is at least 50 times the
    precision of a product: below that a gradient is rounding.
    """
    return max(tol, 50 * problem.precision) * (problem.gradient_scale() or 1.0)
