"""The block minimizer for groups: optimality conditions, and slow methods that find the same."""

import numpy as np
import pytest

from trimreg.solvers.groupblock import group_residual, minimize_group_block

BOTH = pytest.mark.parametrize("q", [2, np.inf])


def random_problem(seed, n=None, levels=(0.0, 0.01, 0.1, 0.3, 1.0, np.inf)):
    """Gram matrix, target ``X'y/n``, starts and thresholds: copies, columns of zeros, correlations, n < m."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 9, rng.integers(1, 20))
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    m = starts[-1]
    n = n or rng.integers(3, 200)
    rho = rng.choice([0.0, 0.5, 0.99])
    X = np.sqrt(1 - rho) * rng.standard_normal((n, m)) + np.sqrt(rho) * rng.standard_normal((n, 1))
    if seed % 3 == 0:
        X = np.hstack([X[:, : m // 2], X[:, : m - m // 2]])
    if seed % 5 == 0:
        X[:, rng.integers(m)] = 0.0
    scale = np.sqrt(np.mean(X**2, axis=0))
    X /= np.where(scale > 0, scale, 1.0)
    y = X @ (rng.standard_normal(m) * (rng.random(m) < 0.3)) + 0.3 * rng.standard_normal(n)
    target = X.T @ y / n
    threshold = rng.choice(levels, sizes.size) * np.sqrt(sizes)
    finite = np.isfinite(threshold)
    threshold[finite] *= np.max(np.abs(target))
    return X.T @ X / n, target, starts, threshold


@BOTH
@pytest.mark.parametrize("part", range(4))
def test_every_condition_holds(part, q):
    for seed in range(50 * part, 50 * part + 50):
        gram, target, starts, threshold = random_problem(seed)
        theta, gradient = np.zeros(target.size), -target
        assert minimize_group_block(gram, gradient, theta, starts, threshold, q, 1e-10)
        np.testing.assert_allclose(gradient, gram @ theta - target, atol=1e-12)
        assert np.max(np.abs(group_residual(theta, gradient, starts, threshold, q))) <= 1e-10
        assert not np.any(theta[np.repeat(np.isinf(threshold), np.diff(starts))])
