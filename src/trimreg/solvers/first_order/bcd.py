r"""The paper's Algorithm 1: block coordinate descent over the weights and the coefficients.

======================  ===========================================================
paper                   here
======================  ===========================================================
:math:`\theta^k, w^k`   ``theta``, ``w``
:math:`\lambda`         ``problem.alpha``
:math:`\eta`            ``eta``, the step in theta; default ``1 / L_f``
:math:`\tau`            ``tau``, the step in w; default 1
:math:`r(\theta)`       ``penalty.magnitudes(theta)``
:math:`\mathcal S`      the capped simplex; ``penalty.project_weights``
:math:`F(\theta, w)`    ``F`` in the history; ``objective`` is its minimum over w
:math:`\mathcal G_k`    ``G`` in the history
:math:`T(\theta, w)`    ``T`` in the history
======================  ===========================================================

The loss of the problem is a mean over samples; what follows holds for any scaling of it.

Theorem 3 of the paper
----------------------
With :math:`\eta = 1/L_f`, :math:`d = \theta^{k+1} - \theta^k`, :math:`e = w^{k+1} - w^k` and
:math:`\mathcal G_k = \frac{L_f}{2}\|d\|^2 + \frac{\lambda}{\tau}\|e\|^2`, the descent that the theorem
states holds:

.. math:: \mathcal G_k \le F(\theta^k, w^k) - F(\theta^{k+1}, w^{k+1}), \qquad
          \frac1K \sum_{k=1}^K \mathcal G_k \le \frac1K \bigl(F(\theta^1, w^1) - F^*\bigr).

Its bound :math:`T(\theta^{k+1}, w^{k+1}) \le (4 + 2\lambda L_r/L_f)\,\mathcal G_k` does not hold in
general, and no constant of that form can: multiply L and lambda by c, and the iterates stay as they are,
T grows by :math:`c^2` and :math:`\mathcal G_k` by c, while the constant does not change. What the proof
does give starts from the optimality conditions of the two steps,

.. math:: u = -d/\eta + \nabla L(\theta^{k+1}) - \nabla L(\theta^k) \in \partial_\theta F, \qquad
          v = \lambda\bigl(-e/\tau + r(\theta^{k+1}) - r(\theta^k)\bigr) \in \partial_w F
          \quad\text{at } (\theta^{k+1}, w^{k+1}),

so :math:`T \le \|u\|^2 + \|v\|^2`. The difference :math:`\Delta` of the gradients of a convex L has
:math:`\langle d, \Delta\rangle \ge \|\Delta\|^2 / L_f`, hence :math:`\|u\|^2 \le L_f^2 \|d\|^2`; and
:math:`\|v\|^2 \le 2\lambda^2 \|e\|^2/\tau^2 + 2 \lambda^2 L_r^2 \|d\|^2` with :math:`L_r = \max_j f_j`.
Together,

.. math:: T(\theta^{k+1}, w^{k+1}) \le C\, \mathcal G_k, \qquad
          C = \max\Bigl(2 L_f + \frac{4 \lambda^2 L_r^2}{L_f},\; \frac{2\lambda}{\tau}\Bigr), \qquad
          \min_{2 \le k \le K+1} T(\theta^k, w^k) \le \frac{C}{K} \bigl(F(\theta^1, w^1) - F^*\bigr).

:func:`stationarity_constant` is C. The rate of the theorem, 1/K, stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..driver import Step
from ..problem import Problem, feasible, feasible_start
from .common import StepSize, positive_number, require_trimmed, stationarity_goal


def stationarity_constant(alpha: float, L_f: float, L_r: float = 1.0, tau: float = 1.0) -> float:
    r"""The C of :math:`T(\theta^{k+1}, w^{k+1}) \le C\,\mathcal G_k`; see the head of this module.

    .. math:: C = \max\Bigl(2 L_f + \frac{4 \lambda^2 L_r^2}{L_f},\; \frac{2\lambda}{\tau}\Bigr)
    """
    return max(2.0 * L_f + 4.0 * (alpha * L_r) ** 2 / L_f, 2.0 * alpha / tau)


def iterate(
    problem: Problem, theta0: np.ndarray | None, *, tol: float = 1e-6, rng: Any = None,
    w0: ArrayLike | None = None, eta: float | None = None, tau: float = 1.0, record_stationarity: bool = True,
) -> Iterator[Step]:  # fmt: skip
    r"""Algorithm 1, line for line.

    .. math:: w^{k+1} = \mathrm{proj}_{\mathcal S}\bigl[w^k - \tau\, r(\theta^k)\bigr], \qquad
              \theta^{k+1} = \mathrm{prox}_{\eta\lambda \langle w^{k+1}, r(\cdot)\rangle}
              \bigl[\theta^k - \eta \nabla L(\theta^k)\bigr]

    Stops when :math:`\sqrt{T} \le tol \cdot \max_j |\nabla_j L(0)|`. With ``record_stationarity=False`` the
    T of the test is replaced by :math:`\|u\|^2 + \|v\|^2 \ge T` from the proof of Theorem 3 (see the head
    of this module), which needs no sorting. The limit may have fractional weights: a stationary pair need
    not be a local minimum.

    Parameters
    ----------
    problem : Problem
        With a penalty that trims.
    theta0 : ndarray of shape (n_features,)
        Coefficients to start from.
    tol : float
    rng : ignored
        The method draws nothing at random.
    w0 : array-like of shape (n_features,), optional
        Weights to start from, in S; ``(p - h)/p`` each by default.
    eta, tau : float, optional
        Steps. ``eta`` is ``1/L_f`` by default, the step of the theorem; found by halving for a loss of
        unbounded curvature.
    record_stationarity : bool
        Whether to compute T at every step.

    Yields
    ------
    Step
        With the series ``F``, ``G`` and, if recorded, ``T``.

    References
    ----------
    Yun, Zheng, Yang, Lozano and Aravkin, M-estimation with the trimmed l1 penalty, Algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.designs import as_design
    >>> from trimreg.losses import Quadratic
    >>> from trimreg.penalties import TrimmedL1
    >>> from trimreg.solvers import Problem, run
    >>> from trimreg.solvers.first_order import bcd
    >>> X, y, d = np.eye(3), np.array([5.0, 2.0, -1.0]), np.full(3, 1 / 3)
    >>> problem = Problem(as_design(X, d), Quadratic(), y, d, TrimmedL1(h=1).bind(3), alpha=0.5)
    >>> run(bcd.iterate(problem, np.zeros(3)), max_iter=100).step.theta
    array([5. , 0.5, 0. ])
    """
    require_trimmed(problem, "bcd")
    theta = feasible_start(problem, theta0)
    w = problem.penalty.uniform_weights() if w0 is None else problem.penalty.checked_weights(w0, "w0")
    eta = None if eta is None else positive_number("eta", eta)
    return _algorithm_1(problem, theta, w, tol, eta, positive_number("tau", tau), record_stationarity)


def _algorithm_1(problem, theta, w, tol, eta, tau, record_stationarity):
    penalty, alpha = problem.penalty, problem.alpha
    goal = stationarity_goal(problem, tol)

    # Initialize: theta^0, w^0, k = 0
    r = penalty.magnitudes(theta)
    predictor = problem.predictor(theta)
    gradient, loss = problem.gradient(theta, predictor), problem.smooth_value(theta, predictor)
    step = StepSize(problem, eta, predictor)

    def proximal_step(eta):
        z = theta - eta * gradient
        return feasible(problem, penalty.norm.shrink(z, eta * penalty.thresholds(w_next, alpha)))

    while True:
        # w^{k+1} <- proj_S[w^k - tau r(theta^k)]
        w_next = penalty.project_weights(w - tau * r)
        # theta^{k+1} <- prox_{eta lambda R(., w^{k+1})}[theta^k - eta grad L(theta^k)]
        theta_next, predictor, loss = step.take(theta, loss, gradient, proximal_step)
        eta = step.eta
        # k <- k + 1
        d, e = theta_next - theta, w_next - w
        theta, w = theta_next, w_next
        gradient_before, gradient = gradient, problem.gradient(theta, predictor)
        r_before, r = r, penalty.magnitudes(theta)

        G = float(d @ d) / (2 * eta) + alpha / tau * float(e @ e)
        series = {"F": loss + alpha * float(w @ r), "G": G}
        if record_stationarity:
            T = series["T"] = penalty.stationarity(theta, w, gradient, alpha, problem.bounds)
            attained = f"sqrt(T) {np.sqrt(T):.3g}"
        else:
            u = gradient - gradient_before - d / eta
            v = alpha * (r - r_before - e / tau)
            T = float(u @ u + v @ v)
            attained = f"sqrt(T) at most {np.sqrt(T):.3g}"
        F, done = loss + penalty.value(theta, alpha), bool(np.sqrt(T) <= goal)
        yield Step(theta, w, F, converged=done, message=f"{attained}, goal {goal:.3g}", series=series)
