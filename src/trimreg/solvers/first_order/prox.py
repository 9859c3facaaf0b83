r"""Proximal gradient with the exact prox of the penalty, plain or accelerated.

.. math:: \theta^+ = \mathrm{prox}_{\eta P_\alpha}\bigl(\theta - \eta \nabla L(\theta)\bigr)
          = \arg\min_x\; L(\theta) + \langle \nabla L(\theta), x - \theta\rangle
          + \frac{1}{2\eta}\|x - \theta\|^2 + P_\alpha(x).

For ``eta <= 1/L_f`` the right side lies above F and touches it at theta, and the prox is its *global*
minimizer even if P is not convex, so F never increases. A fixed point is stationary in the strongest sense
that first-order steps can certify (prox-stationary); for the trimmed penalty it is a local minimum.

The accelerated form extrapolates as FISTA does, to
:math:`y = \theta^k + \frac{t_k - 1}{t_{k+1}} (\theta^k - \theta^{k-1})` with
:math:`t_{k+1} = (1 + \sqrt{1 + 4 t_k^2})/2`, and steps from y. If that does not decrease F enough, the
plain step from :math:`\theta^k` is taken instead, and the extrapolation restarts from ``t = 1``. It also
restarts if a step points against the last one (O'Donoghue and Candès, 2015).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ..driver import Step
from ..problem import Problem, feasible_start
from .common import StepSize, positive_number, stationarity_goal


class Iterate(NamedTuple):
    """A theta with the predictor, the loss and the objective there."""

    theta: np.ndarray
    predictor: np.ndarray
    loss: float
    objective: float


def iterate(
    problem: Problem, theta0: np.ndarray | None, *, tol: float = 1e-6, rng: Any = None,
    eta: float | None = None, accelerate: bool = False,
) -> Iterator[Step]:  # fmt: skip
    r"""Proximal gradient for any penalty of the library; F never increases for ``eta <= 1/L_f``.

    Stops when the distance of 0 from the subdifferential of F at theta, with the weights that the
    penalty has there, is at most :math:`tol \cdot \max_j |\nabla_j L(0)|`.

    Parameters
    ----------
    problem, theta0, tol, rng
        As in :func:`trimreg.solvers.first_order.bcd.iterate`, for any penalty.
    eta : float, optional
        Step; ``1/L_f`` by default.
    accelerate : bool
        Whether to extrapolate; see the head of this module.

    Yields
    ------
    Step
        With the series ``T``, the squared distance.

    References
    ----------
    Beck, A. and Teboulle, M. (2009). Fast gradient-based algorithms for constrained total variation
    image denoising and deblurring problems. IEEE Transactions on Image Processing 18(11) (monotone FISTA).

    Li, H. and Lin, Z. (2015). Accelerated proximal gradient methods for nonconvex programming. NeurIPS.

    O'Donoghue, B. and Candès, E. (2015). Adaptive restart for accelerated gradient schemes.
    Foundations of Computational Mathematics 15, 715-732.
    """
    theta = feasible_start(problem, theta0)
    eta = None if eta is None else positive_number("eta", eta)
    return _proximal_gradient(problem, theta, tol, eta, accelerate)


def _proximal_gradient(problem, theta, tol, eta, accelerate):
    penalty, alpha, bounds = problem.penalty, problem.alpha, problem.bounds
    goal = stationarity_goal(problem, tol)

    def step_from(theta, loss, gradient):
        def proximal_step(eta):
            return penalty.prox(theta - eta * gradient, alpha, eta, bounds)

        x, predictor, loss = step.take(theta, loss, gradient, proximal_step)
        return Iterate(x, predictor, loss, loss + penalty.value(x, alpha))

    predictor = problem.predictor(theta)
    loss = problem.smooth_value(theta, predictor)
    point = before = Iterate(theta, predictor, loss, loss + penalty.value(theta, alpha))
    step = StepSize(problem, eta, predictor)
    gradient = gradient_before = problem.gradient(theta, predictor)
    t = 1.0
    while True:
        momentum = 0.0
        if accelerate:
            t, t_last = (1.0 + np.sqrt(1.0 + 4.0 * t * t)) / 2.0, t
            momentum = (t_last - 1.0) / t
        if momentum > 0.0:
            y = point.theta + momentum * (point.theta - before.theta)
            predictor_y = point.predictor + momentum * (point.predictor - before.predictor)
            if problem.loss.constant_curvature:  # the gradient is affine in theta: no pass over X
                gradient_y = gradient + momentum * (gradient - gradient_before)
            else:
                gradient_y = problem.gradient(y, predictor_y)
            following = step_from(y, problem.smooth_value(y, predictor_y), gradient_y)
            moved = following.theta - point.theta
            # A decrease proportional to the squared move makes the moves summable and the limit stationary; a
            # plain comparison would not. Rounding of the objective is allowed for.
            enough = 1e-4 / (2 * step.eta) * float(moved @ moved) - 4e-16 * abs(point.objective)
            if not following.objective <= point.objective - enough:
                following = step_from(point.theta, point.loss, gradient)
                t = 1.0
            elif float((y - following.theta) @ moved) > 0.0:
                t = 1.0
        else:
            following = step_from(point.theta, point.loss, gradient)
        before, point = point, following
        gradient_before, gradient = gradient, problem.gradient(point.theta, point.predictor)

        w = problem.weights(point.theta, gradient)
        T = penalty.stationarity(point.theta, w, gradient, alpha, bounds)
        message, done = f"sqrt(T) {np.sqrt(T):.3g}, goal {goal:.3g}", bool(np.sqrt(T) <= goal)
        yield Step(point.theta, w, point.objective, converged=done, message=message, series={"T": T})
