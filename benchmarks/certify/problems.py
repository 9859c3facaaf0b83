"""Data of known structure, and a certificate of trimreg in a plain form."""

from __future__ import annotations

import time

import numpy as np


def columns(n: int, p: int, rho: float, rng) -> np.ndarray:
    """AR(1) columns of variance 1."""
    X = rng.standard_normal((n, p))
    for j in range(1, p):
        X[:, j] = rho * X[:, j - 1] + np.sqrt(1 - rho**2) * X[:, j]
    return X


def signal(X: np.ndarray, k: int) -> np.ndarray:
    """The sum of k columns at equal distances."""
    p = X.shape[1]
    return X[:, np.arange(k) * (p // k) + p // (2 * k)].sum(axis=1)


def equal_coefficients(n: int, p: int, k: int, rho: float, snr: float, seed: int = 0):
    """AR(1) columns, k equal coefficients at equal distances, normal noise."""
    rng = np.random.default_rng(seed)
    X = columns(n, p, rho, rng)
    mean = signal(X, k)
    return X, mean + rng.standard_normal(n) * np.sqrt(mean.var() / snr)


def two_classes(n: int, p: int, k: int, rho: float):
    """AR(1) columns, and classes 0 and 1 by a logistic model with k coefficients of 1."""
    X = columns(n, p, rho, np.random.default_rng(0))
    return X, (np.random.default_rng(1).random(n) < 1 / (1 + np.exp(-signal(X, k)))) * 1.0


def ours(X, y, k: int, l2: float, time_limit: float, gap: float, loss: str = "quadratic") -> dict:
    """Seconds (the fit included) and bounds of trimreg, without intercept and for columns as they are.

    The objective is ``mean loss + l2/2 ||b||^2`` with at most k nonzeros.
    """
    from trimreg import certify

    start = time.perf_counter()
    found = certify(
        X, y, h=k, l2=l2, loss=loss, fit_intercept=False, standardize=False, time_limit=time_limit, gap=gap
    )  # fmt: skip
    return {
        "seconds": time.perf_counter() - start, "upper": found.upper, "lower": found.lower, "proved": found.proved,
        "nodes": found.nodes, "screened": found.screened,
    }  # fmt: skip


def warm_up() -> None:
    """Compile what the timed runs use."""
    X, y = equal_coefficients(60, 20, 2, 0.5, 5)
    ours(X, y, 2, 0.01, 5.0, 1e-3)
    ours(X, (y > 0) * 1.0, 2, 0.01, 5.0, 1e-3, "logistic")
