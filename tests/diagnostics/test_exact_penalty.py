"""exact_penalty_alpha: over it every local minimum is sparse, and the formula is as stated."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from trimreg.diagnostics import exact_penalty_alpha, is_local_minimum
from trimreg.penalties import TrimmedL1


def count_nonzeros(oracle, X, y, *, h, alpha, factor):
    """Nonzeros, of features that have a penalty, at every local minimum that an enumeration finds."""
    d = np.full(len(y), 1 / len(y))
    for _, theta in oracle.every_stationary_set(X, y, h=h, alpha=alpha, factor=factor, d=d):
        if is_local_minimum(X, y, theta, penalty=TrimmedL1(h, penalty_factor=factor), alpha=alpha):
            yield int(np.count_nonzero(theta[factor > 0]))


@pytest.mark.parametrize("factor", [np.ones(5), np.array([1.0, 0.5, 0.0, 2.0, 1.0])])
@pytest.mark.parametrize("h", [0, 1, 2, 3])
def test_every_local_minimum_has_at_most_h_nonzeros(problem, oracle, h, factor):
    denser = 0
    for seed in range(4):
        X, y = problem(seed)
        alpha = exact_penalty_alpha(X, y, penalty_factor=factor)
        counts = list(count_nonzeros(oracle, X, y, h=h, alpha=alpha, factor=factor))
        assert counts
        assert max(counts) <= h
        denser += max(count_nonzeros(oracle, X, y, h=h, alpha=0.01 * alpha, factor=factor), default=0) > h
    assert denser  # so the bound is not idle


def test_the_bound_is_sharp():
    # One column, collinear with y: below the threshold the coefficient lives, over it it dies.
    x = np.array([1.0, -2.0, 0.5])
    X, y = x[:, None], 3.0 * x
    threshold = exact_penalty_alpha(X, y) / (1 + 1e-6)
    assert threshold == pytest.approx(3.0 * np.mean(x**2))
    theta = 3.0 - 0.999 * threshold / np.mean(x**2)
    assert theta > 0
    assert is_local_minimum(X, y, [theta], penalty=TrimmedL1(0), alpha=0.999 * threshold)
    assert is_local_minimum(X, y, [0.0], penalty=TrimmedL1(0), alpha=threshold * (1 + 1e-6))


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array, np.float32])
@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_formula(problem, fit_intercept, standardize, convert):
    X, y = problem(0)
    X, y = np.float32(X + 1.0).astype(float), y + 3.0
    weight = np.arange(1.0, 13.0)
    d = weight / weight.sum()
    factor = np.array([1.0, 2.0, 0.5, 0.0, np.inf])
    centre = d @ X if fit_intercept else 0.0
    deviation = np.sqrt(d @ (X - centre) ** 2)
    norms = np.ones(5) if standardize else deviation
    spread = np.sqrt(d @ (y - (d @ y if fit_intercept else 0.0)) ** 2)
    expected = max(norms[:3] / factor[:3]) * spread
    found = exact_penalty_alpha(
        convert(X),
        y,
        sample_weight=weight,
        fit_intercept=fit_intercept,
        standardize=standardize,
        penalty_factor=factor,
    )
    assert found > expected
    assert found == pytest.approx(expected, rel=2e-6)


def test_nothing_to_explain():
    X = np.array([[1.0, 2.0], [0.0, 1.0]])
    assert exact_penalty_alpha(X, np.zeros(2)) == 1.0
    assert exact_penalty_alpha(np.ones((2, 2)), [1.0, 2.0], fit_intercept=True) == 1.0
    assert exact_penalty_alpha(X, [1.0, 2.0], penalty_factor=[0.0, np.inf]) == 1.0


@pytest.mark.parametrize(
    ("change", "name"),
    [({"penalty_factor": [1.0]}, "penalty_factor"), ({"penalty_factor": [-1.0, 1.0]}, "penalty_factor")],
)
def test_bad_arguments_are_named(change, name):
    with pytest.raises(ValueError, match=name):
        exact_penalty_alpha(np.eye(2), np.ones(2), **change)
