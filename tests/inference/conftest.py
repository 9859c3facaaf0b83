"""Data of every likelihood."""

import numpy as np
import pytest

TARGETS = {
    "quadratic": lambda eta, rng: eta + rng.standard_normal(eta.size),
    "logistic": lambda eta, rng: (eta + rng.logistic(size=eta.size) > 0).astype(float),
    "poisson": lambda eta, rng: rng.poisson(np.exp(eta)).astype(float),
    "gamma": lambda eta, rng: rng.gamma(2.0, np.exp(eta)),
    "cox": lambda eta, rng: np.column_stack([rng.exponential(np.exp(-eta)), rng.random(eta.size) < 0.8]),
}


@pytest.fixture
def make():
    """``X, y = make(loss, n, p, seed)``: features 0 and 1 have effects 0.8 and -0.6."""

    def draw(loss="quadratic", n=120, p=4, seed=0):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((n, p)) + 0.5 * rng.standard_normal((n, 1)) + 1.0
        return X, TARGETS[loss]((X[:, :2] - 1.0) @ [0.8, -0.6], rng)

    return draw
