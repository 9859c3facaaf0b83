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

The loss of the problem is a mean over samples; the theorem holds for any scaling of it.
"""

from __future__ import annotations

import numpy as np

from ..penalties.base import soft_threshold
from .driver import Step


def iterate(problem, theta0, *, tol=1e-6, rng=None, w0=None, eta=None, tau=1.0, record_stationarity=True):
    r"""Algorithm 1, line for line.

    Stops when :math:`\sqrt{T} \le tol \cdot \max_j |\nabla_j L(0)|`. With ``record_stationarity=False`` the T of the
    test is replaced by its bound :math:`(4 + 2 \lambda L_r / L_f)\,\mathcal G_k` of Theorem 3, which costs nothing.

    Parameters
    ----------
    theta0 : ndarray
    w0 : ndarray, optional
        Weights to start from, in S; ``(p - h)/p`` each by default.
    eta, tau : float, optional
        Steps. ``eta`` is ``1/L_f`` by default, the step of the theorem.
    """
    penalty, alpha = problem.penalty, problem.alpha
    L_f = problem.lipschitz() if eta is None else 1.0 / eta
    eta = 1.0 / L_f
    L_r = float(np.max(penalty.thresholds(np.ones_like(theta0), 1.0), initial=0.0, where=~penalty._excluded))
    bound = 4.0 + 2.0 * alpha * L_r / L_f
    scale = float(np.max(np.abs(problem.gradient(np.zeros(problem.design.shape[0]))), initial=0.0)) or 1.0

    # Initialize: theta^0, w^0, k = 0
    theta = theta0
    w = penalty.uniform_weights() if w0 is None else penalty.project_weights(w0)
    gradient = problem.gradient(problem.predictor(theta))
    while True:
        # w^{k+1} <- proj_S[w^k - tau r(theta^k)]
        w_next = penalty.project_weights(w - tau * penalty.magnitudes(theta))
        # theta^{k+1} <- prox_{eta lambda R(., w^{k+1})}[theta^k - eta grad L(theta^k)]
        z = theta - eta * gradient
        if problem.positive:
            z = np.maximum(z, 0.0)
        theta_next = soft_threshold(z, eta * penalty.thresholds(w_next, alpha))
        # k <- k + 1
        moved, turned = theta_next - theta, w_next - w
        theta, w = theta_next, w_next
        predictor = problem.predictor(theta)
        gradient = problem.gradient(predictor)

        loss = problem.loss_value(predictor)
        G = L_f / 2 * float(moved @ moved) + alpha / tau * float(turned @ turned)
        series = {"F": loss + alpha * float(w @ penalty.magnitudes(theta)), "G": G}
        if record_stationarity:
            T = series["T"] = penalty.stationarity(theta, w, gradient, alpha, problem.positive)
        else:
            T = bound * G
        yield Step(
            theta,
            w,
            loss + penalty.value(theta, alpha),
            converged=bool(np.sqrt(T) <= tol * scale),
            message=f"sqrt(T) {np.sqrt(T):.3g}, goal {tol * scale:.3g}",
            series=series,
        )
