"""Small problems and an independent solver for them: every support and sign pattern, tried in turn."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest


def trimmed_objective(Z, target, theta, *, h, alpha, factor, d):
    """F written out: half the weighted mean square plus alpha times all but the h largest magnitudes."""
    residual = target - Z @ theta
    counted = factor > 0
    r = np.sort(factor[counted] * np.abs(theta[counted]))[::-1]
    return 0.5 * np.sum(d * residual**2) + alpha * r[h:].sum()


def weighted_lasso(Z, target, t, d):
    """The minimizer of half the weighted mean square plus sum t_j |theta_j|, over all sign patterns."""
    p = Z.shape[1]
    gram, moment = Z.T @ (d[:, None] * Z), Z.T @ (d * target)
    best, lowest = None, np.inf
    for signs in product(
        *[(0,) if not np.isfinite(t[j]) else (-1, 0, 1) if t[j] else (2,) for j in range(p)]
    ):
        signs = np.array(signs)
        A = np.flatnonzero(signs)
        theta = np.zeros(p)
        pull = np.where(signs[A] == 2, 0.0, t[A] * signs[A])
        theta[A] = np.linalg.lstsq(gram[np.ix_(A, A)], moment[A] - pull, rcond=None)[0]
        penalized = np.where(np.isfinite(t), t, 0.0)
        value = 0.5 * np.sum(d * (target - Z @ theta) ** 2) + penalized @ np.abs(theta)
        if value < lowest:
            best, lowest = theta, value
    return best


def every_stationary_set(Z, target, *, h, alpha, factor, d):
    """``(S, minimizer of F_S)`` for every S of size h of the penalized features."""
    counted = np.flatnonzero(factor > 0)
    for S in combinations(counted, h):
        t = alpha * factor
        t[list(S)] = 0.0
        yield S, weighted_lasso(Z, target, t, d)


@pytest.fixture(scope="session")
def oracle():
    """The functions above, by name."""
    from types import SimpleNamespace

    return SimpleNamespace(
        objective=trimmed_objective, weighted_lasso=weighted_lasso, every_stationary_set=every_stationary_set
    )


@pytest.fixture(scope="session")
def problem():
    """A maker of random regression problems with correlated columns."""

    def make(seed, n=12, p=5):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((n, p)) @ (np.eye(p) + 0.4 * rng.standard_normal((p, p)))
        y = X @ rng.choice([0.0, 1.0, -2.0, 0.3], size=p) + 0.5 * rng.standard_normal(n)
        return X, y

    return make
