"""Exchanges within bounds, against enumeration and against refits by SciPy."""

from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import lsq_linear

from trimreg import TrimmedL1, solve


def drawn(seed, n=25, p=8):
    """Correlated columns, and bounds of three kinds: nonnegative, signs of some, boxes."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) + 0.8 * rng.standard_normal((n, 1))
    y = X @ rng.standard_normal(p) + rng.standard_normal(n)
    sign = rng.integers(0, 3, p)
    lower, upper = -rng.uniform(0.0, 1.2, p), rng.uniform(0.0, 1.2, p)
    return (
        X,
        y,
        *(
            (np.zeros(p), np.full(p, np.inf)),
            (np.where(sign == 0, 0.0, -np.inf), np.where(sign == 1, 0.0, np.inf)),
            (lower, upper),
        )[seed % 3],
    )


def refitted(X, y, lower, upper, S):
    S = list(S)
    if not S:
        return 0.5 * np.mean(y**2)
    theta = lsq_linear(X[:, S], y, (lower[S], upper[S]), method="bvls", tol=1e-13).x
    return 0.5 * np.mean((y - X[:, S] @ theta) ** 2)


@pytest.mark.parametrize("seed", range(30))
def test_best_subsets_within_bounds_are_those_of_enumeration(seed):
    X, y, lower, upper = drawn(seed)
    result = solve(X, y, penalty=TrimmedL1(3), alpha="exact", lower=lower, upper=upper)
    best = min(refitted(X, y, lower, upper, S) for S in combinations(range(8), 3))
    assert result.objective == pytest.approx(best, rel=1e-9)
    assert result.swap_optimal
    assert result.stationarity < 1e-12


@pytest.mark.parametrize("seed", range(6))
def test_no_swap_is_left_where_it_is_certified(seed):
    X, y, lower, upper = drawn(seed, n=40, p=30)
    start = solve(X, y, penalty=TrimmedL1(5), alpha="exact", lower=lower, upper=upper, effort="low")
    result = solve(X, y, penalty=TrimmedL1(5), alpha="exact", lower=lower, upper=upper, theta0=start.coef)
    assert result.swap_optimal
    assert result.objective <= start.objective * (1 + 1e-12)
    S = np.flatnonzero(result.coef)
    kept = [S] if S.size < 5 else [np.delete(S, i) for i in range(5)]
    swapped = [np.append(some, j) for some in kept for j in np.setdiff1d(range(30), S)]
    assert min(refitted(X, y, lower, upper, T) for T in swapped) >= result.objective * (1 - 1e-10)


@pytest.mark.parametrize("loss", ["logistic", "poisson"])
def test_exchanges_help_other_losses_too(loss):
    better = 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((60, 60))
        X[:, 1:] += X[:, :-1]
        eta = X[:, 5:50:10] @ rng.uniform(0.3, 0.8, 5)
        y = (
            (eta + rng.logistic(size=60) > 0).astype(float)
            if loss == "logistic"
            else rng.poisson(np.exp(eta / 4))
        )
        how = {"loss": loss, "penalty": TrimmedL1(5), "alpha": "exact", "positive": True, "l2": 0.01}
        plain, found = solve(X, y, effort="low", **how), solve(X, y, **how)
        assert found.objective <= plain.objective + 1e-9
        better += found.objective < plain.objective - 1e-6
    assert better >= 2


def test_columns_of_which_one_is_a_copy_with_a_bound_of_its_own():
    # Both copies are needed: each reaches its bound.
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 6))
    X[:, 3] = X[:, 1]
    result = solve(X, 3 * X[:, 1], penalty=TrimmedL1(3), alpha="exact", lower=-1.0, upper=1.0)
    np.testing.assert_array_equal(result.coef[[1, 3]], 1.0)
    # With opposite signs, the bound of one says nothing about the other.
    X[:, 3] = -X[:, 1]
    result = solve(X, -2 * X[:, 1], penalty=TrimmedL1(1), alpha="exact", positive=True)
    np.testing.assert_allclose(result.coef[3], 2.0)
