r"""The DC baseline: Algorithm 2 of Khamaru and Wainwright (2018).

The trimmed penalty is a difference of convex functions, the l1 norm less the sum of the h largest,

.. math:: F(\theta) = L(\theta) + \alpha \sum_j r_j(\theta) - \alpha \sum_{j \le h} r_{(j)}(\theta), \qquad
          r_j(\theta) = f_j |\theta_j|.

A step replaces the last part by a tangent at the current point and L by its quadratic bound, and minimizes
the result, so F never increases for ``eta <= 1/L_f``:

.. math:: v \in \alpha\, \partial \Bigl(\sum_{j \le h} r_{(j)}\Bigr)(\theta), \qquad
          \theta^+ = \mathrm{soft}\bigl(\theta - \eta (\nabla L(\theta) - v),\; \eta \alpha f\bigr).

Where fewer than h coefficients are nonzero the subdifferential is large, and the choice in it matters:

- ``ties="plain"``: :math:`v_j = \alpha f_j\, \mathrm{sign}(\theta_j)` on the h largest, with sign(0) = 0. A
  zero among the h largest then stays penalized, and the method can stop at a point that is *DC-critical* but
  not a local minimum: zero itself is such a point if
  :math:`|\nabla_j L(0)| \le \alpha f_j` for all j.
- ``ties="aware"``: S is filled by magnitude, then by :math:`|\nabla_j L|/f_j`, and
  :math:`v_j = -\alpha f_j\, \mathrm{sign}(\nabla_j L)` on zeros in S. A free zero takes a plain gradient
  step, so the method stops only where the gradient on S vanishes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..driver import Step
from ..problem import Problem, feasible, feasible_start
from .common import StepSize, positive_number, require_trimmed, stationarity_goal

TIES = ("plain", "aware")


def iterate(
    problem: Problem, theta0: np.ndarray | None, *, tol: float = 1e-6, rng: Any = None,
    eta: float | None = None, ties: str = "plain",
) -> Iterator[Step]:  # fmt: skip
    r"""Algorithm 2 of Khamaru and Wainwright for the trimmed penalty.

    Stops at a stationary point, :math:`\sqrt{T} \le tol \cdot \max_j |\nabla_j L(0)|` with the weights of
    the current S. The plain form also stops at a DC-critical point, where :math:`\|\theta^+ - \theta\|/\eta`
    is below the same goal but T need not be small. For groups with ``q = inf`` both forms do: if the largest
    entries of a free group tie, the tangent is not unique and may keep them tied. ``message`` says at which
    kind of point the method stopped.

    Parameters
    ----------
    problem, theta0, tol, rng
        As in :func:`trimreg.solvers.first_order.bcd.iterate`.
    eta : float, optional
        Step; ``1/L_f`` by default, found by halving for a loss of unbounded curvature.
    ties : {"plain", "aware"}
        The subgradient on zeros among the h largest; see the head of this module.

    Yields
    ------
    Step
        With the series ``T`` and ``residual``, the :math:`\|\theta^+ - \theta\|/\eta` of the step just taken.

    References
    ----------
    Khamaru, K. and Wainwright, M. J. (2018). Convergence guarantees for a class of non-convex and
    non-smooth optimization problems. ICML. Algorithm 2.
    """
    require_trimmed(problem, "dc")
    if not isinstance(ties, str) or ties not in TIES:
        raise ValueError(f"ties must be one of {list(TIES)}; got {ties!r}")
    theta = feasible_start(problem, theta0)
    eta = None if eta is None else positive_number("eta", eta)
    return _algorithm_2(problem, theta, tol, eta, ties)


def _algorithm_2(problem, theta, tol, eta, ties):
    penalty, alpha = problem.penalty, problem.alpha
    norm = penalty.norm
    goal = stationarity_goal(problem, tol)
    level = penalty.levels(alpha)  # alpha f

    predictor = problem.predictor(theta)
    gradient, loss = problem.gradient(theta, predictor), problem.smooth_value(theta, predictor)
    w = problem.weights(theta, gradient)  # 0 on S
    step = StepSize(problem, eta, predictor)

    def shrunken_step(eta):
        return feasible(problem, norm.shrink(theta - eta * (gradient - v), eta * level))

    while True:
        # v in alpha d(sum of the h largest r)
        sign = norm.polar(theta)
        if ties == "aware":
            sign = np.where(norm.spread(norm.lengths(theta) == 0), -norm.polar(gradient), sign)
        v = np.multiply(norm.spread(level), sign, out=np.zeros_like(theta), where=norm.spread(w == 0))
        # theta+ <- soft(theta - eta (grad L - v), eta alpha f)
        theta_before = theta
        theta, predictor, loss = step.take(theta, loss, gradient, shrunken_step)
        eta = step.eta
        gradient = problem.gradient(theta, predictor)
        w = problem.weights(theta, gradient)
        T = penalty.stationarity(theta, w, gradient, alpha, problem.bounds)
        residual = float(np.linalg.norm(theta - theta_before)) / eta
        stationary = np.sqrt(T) <= goal
        critical = (ties == "plain" or norm.q == np.inf) and residual <= goal
        message = f"sqrt(T) {np.sqrt(T):.3g}, fixed-point residual {residual:.3g}, goal {goal:.3g}"
        if stationary:
            message = f"a stationary point: {message}"
        elif critical:
            message = f"a DC-critical point, which need not be a local minimum: {message}"
        F, done = loss + penalty.value(theta, alpha), bool(stationary or critical)
        yield Step(theta, w, F, converged=done, message=message, series={"T": T, "residual": residual})
