"""Random starts for supports that are hard to find, on the instances of Amir, Basri and Nadler (2020)."""

from dataclasses import replace

import numpy as np
import pytest

from trimreg import TrimmedL1, solve
from trimreg.designs import as_design
from trimreg.solvers.mm.starts import random_starts, reweighted_ridge, supports_are_hard
from trimreg.solvers.mm.workingset import WorkingSetSolver


def planted(seed, k, n=60, p=300):
    """Gaussian columns of norm one, k Gaussian coefficients and noise of 1 % in norm; and half its square."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    X /= np.linalg.norm(X, axis=0)
    coef = np.zeros(p)
    coef[rng.choice(p, k, replace=False)] = rng.standard_normal(k)
    noise, signal = rng.standard_normal(n), X @ coef
    noise *= 0.01 * np.linalg.norm(signal) / np.linalg.norm(noise)
    return X, signal + noise, 0.5 * noise @ noise


def finds_the_truth(seed, k, alpha, effort):
    X, y, goal = planted(seed, k)
    alpha = 0.2 * np.linalg.norm(y) / len(y) if alpha == "soft" else alpha
    return solve(X, y, penalty=TrimmedL1(k), alpha=alpha, effort=effort).objective * len(y) <= goal


@pytest.mark.parametrize("alpha", ["soft", "exact"])
@pytest.mark.parametrize("seed", [1, 23, 25])  # a convex start and exchanges alone miss them
def test_hard_supports_are_found(alpha, seed):
    assert finds_the_truth(seed, 20, alpha, "medium")


@pytest.mark.parametrize("alpha", ["soft", "exact"])
def test_more_effort_finds_more(alpha):
    assert not finds_the_truth(32, 25, alpha, "medium")
    assert finds_the_truth(32, 25, alpha, "high")


def test_the_first_ridge_regression():
    """With equal variances it is the ridge regression of that penalty; what is free is hardly shrunk."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((8, 12))
    X /= np.linalg.norm(X, axis=0)
    y, ridge, scales = rng.standard_normal(8), rng.uniform(size=12), rng.standard_normal(12)
    regular = np.arange(12) > 1
    variance = np.exp(scales)
    variance[~regular] = 1e3 * variance.max()
    weight = 0.1 * variance.sum() / 8
    expected = np.linalg.solve(X.T @ X + np.diag(weight / variance + ridge), X.T @ y)
    found = reweighted_ridge(X, y, ridge, regular, scales, len(y), last=1.0, penalty=0.1)
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_the_last_fit_is_sparse_and_interpolates():
    X, y, _ = planted(0, 15)
    ones = np.ones(300, dtype=bool)
    theta = reweighted_ridge(X, y, np.zeros(300), ones, np.zeros(300), len(y), last=1e-3)
    assert np.linalg.norm(y - X @ theta) < 0.05 * np.linalg.norm(y)
    size = np.sort(np.abs(theta))[::-1]
    assert size[30] < 1e-2 * size[0]


@pytest.mark.parametrize(("n", "p"), [(40, 90), (90, 40)])
def test_random_starts_are_free_sets(n, p, make_problem):
    """h usable columns, never those with factor 0 or inf; more rows than columns are replaced by few."""
    factors = np.ones(p)
    factors[3], factors[5] = 0.0, np.inf
    problem = make_problem(TrimmedL1(6, penalty_factor=factors), 1e6, n=n, p=p).normalized()[0]
    problem = replace(problem, y=np.random.default_rng(1).standard_normal(n))  # nothing to find
    inner = WorkingSetSolver(problem, 1e-6)
    starts = list(random_starts(inner, np.random.default_rng(0), 5, np.inf))
    assert len(starts) == 5
    for free in starts:
        assert np.unique(free).size == 6
        assert not {3, 5} & set(free)
    assert n > p or len({tuple(np.sort(free)) for free in starts}) > 1
    assert len(list(random_starts(inner, np.random.default_rng(0), 5, 0.0))) == 1


def test_where_supports_are_hard(make_problem):
    def hard(h, n, p, repeats=1):
        problem = make_problem(TrimmedL1(h), 1.0, n=n, p=p)
        again = np.repeat(np.arange(n), repeats)
        d = np.full(again.size, 1 / again.size)
        design = as_design(problem.design.columns(np.arange(p))[again], d)
        return supports_are_hard(
            WorkingSetSolver(replace(problem, design=design, y=problem.y[again], d=d), 1e-6)
        )

    assert hard(20, 60, 300)
    assert hard(20, 60, 300, repeats=3)  # samples that occur again are no others
    assert not hard(20, 300, 1000)
    assert not hard(0, 60, 300)
    assert not hard(300, 60, 300)
