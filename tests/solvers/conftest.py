"""Small problems, and certificates computed from the data alone."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from trimreg.designs import as_design
from trimreg.losses import Quadratic
from trimreg.solvers import Problem


@pytest.fixture
def make_problem():
    """``make_problem(penalty, alpha, ...)``: least squares with a few strong columns out of p."""

    def make(penalty, alpha, *, n=40, p=15, seed=0, positive=False, stretch=1.0, uniform=True, dtype=float):
        rng = np.random.default_rng(seed)
        X = stretch * (rng.standard_normal((n, p)) + 0.5 * rng.standard_normal((n, 1))).astype(dtype)
        coef = np.zeros(p)
        coef[[0, 2, 3]] = 2.0, -1.5, 0.7
        y = X @ coef / stretch + 0.3 * rng.standard_normal(n)
        d = np.full(n, 1 / n) if uniform else rng.random(n)
        d = d / d.sum()
        bounds = (np.zeros(p), np.full(p, np.inf)) if positive else None
        return Problem(as_design(X, d), Quadratic(), y, d, penalty.bind(p), alpha, bounds=bounds)

    return make


@pytest.fixture
def raw():
    """Loss, gradient and the distance to stationarity in plain NumPy, from the arrays of the problem."""

    def loss(problem, theta):
        return 0.5 * problem.d @ (problem.design.X @ theta - problem.y) ** 2

    def gradient(problem, theta):
        X = np.asarray(problem.design.X, dtype=float)
        return X.T @ (problem.d * (X @ theta - problem.y))

    def theta_part(problem, theta, level):
        """Distance of -g to level * d|theta|, where level_j is what |theta_j| is penalized by."""
        g, total = gradient(problem, theta), 0.0
        for j in range(theta.size):
            if theta[j] != 0:
                total += (g[j] + level[j] * np.sign(theta[j])) ** 2
            elif problem.bounds is not None:
                total += max(-g[j] - level[j], 0.0) ** 2
            else:
                total += max(abs(g[j]) - level[j], 0.0) ** 2
        return total

    def w_part(magnitude, w):
        """Squared distance of 0 from magnitude + the normal cone of the capped simplex at w."""

        def at(t):
            left = magnitude - t
            left = np.where(w == 0, np.minimum(left, 0), np.where(w == 1, np.maximum(left, 0), left))
            return left @ left

        bounds = (magnitude.min() - 1e-9, magnitude.max() + 1e-9)
        return minimize_scalar(at, bounds=bounds, method="bounded", options={"xatol": 1e-12}).fun

    return SimpleNamespace(loss=loss, gradient=gradient, theta_part=theta_part, w_part=w_part)
