"""Bounds of coefficients: equal to other libraries without a penalty, and to their own special cases."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import lsq_linear, minimize

from trimreg import (
    MCP,
    SCAD,
    SLOPE,
    TrimmedL1,
    TrimmedLasso,
    solve,
)


def boxed(seed, n=60, p=9):
    """A matrix with columns of different units, a target, and bounds of which about half are reached."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) * rng.uniform(0.2, 5.0, p)
    y = X @ rng.standard_normal(p) + rng.standard_normal(n)
    lower, upper = -rng.uniform(0.0, 0.6, p), rng.uniform(0.0, 0.6, p)
    lower[0], upper[1], lower[2], upper[3] = -np.inf, np.inf, 0.0, 0.0
    return X, y, lower, upper


# -- without a penalty: what others compute ----------------------------------------------------------------


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_without_a_penalty_it_is_bounded_least_squares(seed, standardize):
    X, y, lower, upper = boxed(seed)
    how = {"lower": lower, "upper": upper, "tol": 1e-12, "standardize": standardize}
    result = solve(X, y, penalty=TrimmedL1(h=9), alpha=0.0, **how)
    expected = lsq_linear(X, y, (lower, upper), method="bvls", tol=1e-14).x
    np.testing.assert_allclose(result.coef, expected, atol=1e-8)
    assert np.all((lower <= result.coef) & (result.coef <= upper))
    assert result.converged
    reached = (expected == lower) | (expected == upper)
    np.testing.assert_array_equal(result.coef[reached], expected[reached])


@pytest.mark.parametrize("loss", ["logistic", "poisson"])
def test_other_losses_without_a_penalty(loss):
    X, y, lower, upper = boxed(0)
    X = X / 4
    y = (y > 0).astype(float) if loss == "logistic" else np.abs(np.round(y / 3))

    def value(theta):
        eta = X @ theta[:-1] + theta[-1]
        mean = 1 / (1 + np.exp(-eta)) if loss == "logistic" else np.exp(eta)
        total = np.logaddexp(0, eta) - y * eta if loss == "logistic" else mean - y * eta
        slope = (mean - y) / len(y)
        return total.mean(), np.append(X.T @ slope, slope.sum())

    box = [*zip(lower, upper, strict=True), (None, None)]
    options = {"ftol": 1e-16, "gtol": 1e-11, "maxiter": 10_000, "maxcor": 30}
    expected = minimize(value, np.zeros(10), jac=True, method="L-BFGS-B", bounds=box, options=options).x
    how = {"lower": lower, "upper": upper, "fit_intercept": True, "tol": 1e-10}
    result = solve(X, y, loss=loss, penalty=TrimmedL1(h=9), alpha=0.0, **how)
    np.testing.assert_allclose(np.append(result.coef, result.intercept), expected, atol=1e-6)


@pytest.mark.parametrize("solver", ["bcd", "dc", "prox"])
def test_every_solver_keeps_the_bounds(solver):
    X, y, lower, upper = boxed(1)
    how = {"penalty": TrimmedL1(h=9), "alpha": 0.0, "lower": lower, "upper": upper, "standardize": True}
    expected = solve(X, y, tol=1e-10, **how).coef
    np.testing.assert_allclose(solve(X, y, solver=solver, tol=1e-9, **how).coef, expected, atol=1e-6)


# -- special cases -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["quadratic", "huber", "poisson"])
@pytest.mark.parametrize("alpha", [0.1, "exact"])
def test_a_lower_bound_of_zero_is_positive_and_endless_bounds_are_none(loss, alpha):
    X, y, *_ = boxed(2)
    how = {"loss": loss, "penalty": TrimmedL1(3), "alpha": alpha, "fit_intercept": True}
    y = np.abs(np.round(y)) if loss == "poisson" else y
    for one, other in (
        ({"lower": 0.0}, {"positive": True}),
        ({"lower": -np.inf, "upper": np.full(9, np.inf)}, {}),
    ):
        a, b = solve(X, y, **one, **how), solve(X, y, **other, **how)
        np.testing.assert_array_equal(a.coef, b.coef)
        assert (a.objective, a.message) == (b.objective, b.message)
    mirrored = solve(-X, y, upper=0.0, **how)
    np.testing.assert_allclose(mirrored.coef, -solve(X, y, lower=0.0, **how).coef, atol=1e-9)


@pytest.mark.parametrize("penalty", [MCP(1.5), SCAD(2.5), SLOPE()])
def test_other_penalties_keep_signs(penalty):
    X, y, *_ = boxed(3)
    result = solve(
        X, y, penalty=penalty, alpha=0.2, lower=-np.inf, upper=np.where(np.arange(9) < 5, 0.0, np.inf)
    )
    assert (result.coef[:5] <= 0).all()
    assert result.coef.any()
    assert result.stationarity < 1e-9


@pytest.mark.parametrize("kind", [np.asfortranarray, sp.csr_array, np.float32])
def test_kinds_of_matrices(kind):
    X, y, lower, upper = boxed(4)
    how = {"h": 4, "lower": lower, "upper": upper}
    expected, given = TrimmedLasso(**how).fit(X, y), kind(X)
    model = TrimmedLasso(**how).fit(given, y.astype(given.dtype))
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-4 if kind is np.float32 else 1e-8)


# -- coefficients that are never penalized ------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["quadratic", "logistic", "huber"])
def test_what_is_never_penalized_may_have_any_bounds(loss):
    X, y, lower, upper = boxed(5)
    y = (y > 0).astype(float) if loss == "logistic" else y
    factor = np.ones(9)
    factor[:2], lower[:2], upper[:2] = 0.0, (0.1, -0.4), (0.2, -0.3)
    how = {"penalty": TrimmedL1(7, factor), "alpha": 0.0, "lower": lower, "upper": upper, "tol": 1e-10}
    a = solve(X, y, loss=loss, fit_intercept=True, **how)
    b = solve(X, y, loss=loss, fit_intercept=True, standardize=True, **how)
    np.testing.assert_allclose(a.coef, b.coef, atol=1e-6)
    assert np.all((lower <= a.coef) & (a.coef <= upper))
    assert 0.1 <= a.coef[0] <= 0.2
    assert max(a.stationarity, b.stationarity) < 1e-12
    if loss == "quadratic":
        Z = np.column_stack([X, np.ones(60)])
        box = np.append(lower, -np.inf), np.append(upper, np.inf)
        np.testing.assert_allclose(a.coef, lsq_linear(Z, y, box, method="bvls").x[:-1], atol=1e-8)
    few = solve(
        X, y, loss=loss, fit_intercept=True, **how | {"penalty": TrimmedL1(2, factor), "alpha": "exact"}
    )
    assert np.count_nonzero(few.coef[2:]) <= 2
    assert 0.1 <= few.coef[0] <= 0.2
