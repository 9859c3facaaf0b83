"""Data of every loss: five features at work, in columns that are correlated and not centred."""

import numpy as np
import pytest


def survival(eta, rng):
    time, censored = rng.exponential(np.exp(-eta)), rng.exponential(3.0, eta.size)
    return np.column_stack([np.minimum(time, censored).round(2), time <= censored])  # rounded: with ties


TARGETS = {
    "quadratic": lambda eta, rng: eta + rng.standard_normal(eta.size),
    "logistic": lambda eta, rng: (eta + rng.logistic(size=eta.size) > 0).astype(float),
    "multinomial": lambda eta, rng: np.digitize(eta + rng.logistic(size=eta.size), [-1, 1]).astype(float),
    "poisson": lambda eta, rng: rng.poisson(np.exp(eta)).astype(float),
    "gamma": lambda eta, rng: rng.gamma(2.0, np.exp(eta)),
    "huber": lambda eta, rng: eta + 0.7 * rng.standard_t(3, eta.size),
    "cox": survival,
    "multitask": lambda eta, rng: np.column_stack([eta, 1 - eta / 2]) + rng.standard_normal((eta.size, 2)),
}


@pytest.fixture
def make():
    """``X, y = make(loss, n, p, seed)``; a part ``zeros`` of the entries of X is 0."""

    def draw(loss="quadratic", n=60, p=12, seed=0, shared=0.4, zeros=0.0):
        rng = np.random.default_rng(seed)
        X = np.sqrt(1 - shared) * rng.standard_normal((n, p)) + np.sqrt(shared) * rng.standard_normal((n, 1))
        X = (X + 0.3) * (rng.random((n, p)) >= zeros)
        k = min(p, 5)
        return X, TARGETS[loss](X[:, :k] @ np.array([1.0, -0.8, 0.6, -0.5, 0.4])[:k], rng)

    return draw
