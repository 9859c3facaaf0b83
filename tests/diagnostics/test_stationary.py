"""stationarity against its definition as a minimum over subgradients, and against known solutions."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import lsq_linear

from trimreg.diagnostics import stationarity
from trimreg.losses import Loss
from trimreg.penalties import L1, MCP, TrimmedL1


class Logistic(Loss):
    """The logistic loss for y in {0, 1}; stands for any loss that is not quadratic."""

    name = "test-logistic"
    constant_curvature = False
    curvature_bound = 0.25

    def check_target(self, y):
        if not np.isin(y, (0.0, 1.0)).all():
            raise ValueError("y must be 0 or 1")

    def value(self, eta, y, d):
        return float(d @ (np.logaddexp(0.0, eta) - y * eta))

    def gradient(self, eta, y, d):
        return d * (1.0 / (1.0 + np.exp(-eta)) - y)

    def curvature(self, eta, y, d):
        s = 1.0 / (1.0 + np.exp(-eta))
        return d * s * (1 - s)


def squared_distance(point, lower, upper):
    """min ||point + v||^2 over lower <= v <= upper, by bounded least squares."""
    free = lower < upper
    fixed = point + np.where(free, 0.0, lower)
    if not free.any():
        return float(fixed @ fixed)
    matrix = np.eye(point.size)[:, free]
    return 2 * lsq_linear(matrix, -fixed, (lower[free], upper[free]), tol=1e-14).cost


def squared_distance_of_weights(r, w):
    """min ||r + mu 1 + s||^2 over mu and s in the normal cone of the box at w, by bounded least squares."""
    edge = (w == 0) | (w == 1)
    matrix = np.column_stack([np.ones(r.size), np.eye(r.size)[:, edge]])
    lower = np.concatenate([[-np.inf], np.where(w[edge] == 0, -np.inf, 0.0)])
    upper = np.concatenate([[np.inf], np.where(w[edge] == 0, 0.0, np.inf)])
    return 2 * lsq_linear(matrix, -r, (lower, upper), tol=1e-14, max_iter=500).cost


def brute_force(Z, grad_eta, theta, w, *, alpha, factor, positive, fit_intercept):
    g = Z.T @ grad_eta
    t = alpha * factor * w
    lower = np.where(theta == 0, -t, t * np.sign(theta))
    upper = np.where(theta == 0, t, t * np.sign(theta))
    if positive:
        lower = np.where(theta == 0, -np.inf, lower)
    value = squared_distance(g, lower, upper)
    counted = factor > 0
    value += squared_distance_of_weights(alpha * factor[counted] * np.abs(theta[counted]), w[counted])
    return value + (grad_eta.sum() ** 2 if fit_intercept else 0.0)


def columns(X, d, fit_intercept, standardize):
    mean = d @ X if fit_intercept else np.zeros(X.shape[1])
    scale = np.sqrt(d @ (X - mean) ** 2) if standardize else np.ones(X.shape[1])
    return (X - mean) / scale, scale


@pytest.mark.parametrize("loss", ["quadratic", "logistic"])
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_equals_its_definition(problem, fit_intercept, standardize, positive, loss):
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X, y = problem(seed, n=9, p=6)
        X = X + 2.0
        if loss == "logistic":
            y = (y > np.median(y)).astype(float)
        weight = rng.integers(0, 4, size=9) + (seed == 0)
        d = weight / weight.sum()
        factor = np.array([1.0, 0.5, 2.0, 0.0, 1.0, 1.0])
        coef = rng.standard_normal(6) * rng.integers(0, 2, size=6)
        coef = np.abs(coef) if positive else coef
        Z, scale = columns(X, d, fit_intercept, standardize)
        penalty = TrimmedL1(2, penalty_factor=factor)
        w = penalty.bind(6).project_weights(rng.uniform(-0.5, 1.5, size=6))
        eta = X @ coef + 0.3
        grad = Logistic().gradient(eta, y, d) if loss == "logistic" else d * (eta - y)
        expected = brute_force(
            Z, grad, coef * scale, w, alpha=0.4, factor=factor, positive=positive, fit_intercept=fit_intercept
        )
        found = stationarity(
            X,
            y,
            coef,
            penalty=penalty,
            alpha=0.4,
            weights=w,
            intercept=0.3,
            loss=Logistic() if loss == "logistic" else loss,
            sample_weight=weight,
            fit_intercept=fit_intercept,
            standardize=standardize,
            positive=positive,
        )
        assert found == pytest.approx(expected, rel=1e-6)


def test_weights_by_default_are_the_best(problem):
    X, y = problem(3)
    coef = np.array([1.0, 0.0, -2.0, 0.5, 0.0])
    given = np.array([0.0, 1.0, 0.0, 1.0, 1.0])
    options = {"penalty": TrimmedL1(2), "alpha": 0.2}
    assert stationarity(X, y, coef, **options) == stationarity(X, y, coef, weights=given, **options)


@pytest.mark.parametrize("standardize", [False, True])
def test_zero_at_least_squares_when_nothing_is_penalized(problem, standardize):
    X, y = problem(0)
    design = np.column_stack([X, np.ones(len(y))])
    solution = np.linalg.lstsq(design, y, rcond=None)[0]
    options = {"penalty": TrimmedL1(5), "alpha": 3.0, "fit_intercept": True, "standardize": standardize}
    assert stationarity(X, y, solution[:-1], intercept=solution[-1], **options) < 1e-25
    # the centred columns do not feel the intercept, so its derivative is all there is
    off = stationarity(X, y, solution[:-1], intercept=solution[-1] + 0.5, **options)
    assert off == pytest.approx(0.25)


def test_zero_at_every_minimum_over_a_support(problem, oracle):
    X, y = problem(1)
    d, factor = np.full(12, 1 / 12), np.array([1.0, 2.0, 0.5, 0.0, 1.0])
    penalty = TrimmedL1(2, penalty_factor=factor)
    zeros = 0
    for S, theta in oracle.every_stationary_set(X, y, h=2, alpha=0.3, factor=factor, d=d):
        w = np.where(factor > 0, 1.0, 0.0)
        w[list(S)] = 0.0
        # stationary in theta by construction, and in w as well if S holds the largest
        r = factor * np.abs(theta)
        others = np.setdiff1d(np.flatnonzero(factor > 0), S)
        found = stationarity(X, y, theta, penalty=penalty, alpha=0.3, weights=w)
        if r[list(S)].min() >= r[others].max():
            zeros += 1
            assert found < 1e-24
        else:
            assert found > 1e-6
    assert zeros


def test_other_penalties_have_no_weight_part(problem):
    X, y = problem(2)
    coef = np.array([0.0, 0.1, 0.0, -1.0, 5.0])
    g = X.T @ (X @ coef - y) / 12
    t = 0.3 * np.ones(5)
    expected = np.sum(np.where(coef == 0, np.maximum(np.abs(g) - t, 0), g + t * np.sign(coef)) ** 2)
    assert stationarity(X, y, coef, penalty=L1(), alpha=0.3) == pytest.approx(expected)
    t = 0.3 * np.maximum(1 - np.abs(coef) / (2.5 * 0.3), 0)
    expected = np.sum(np.where(coef == 0, np.maximum(np.abs(g) - t, 0), g + t * np.sign(coef)) ** 2)
    assert stationarity(X, y, coef, penalty=MCP(2.5), alpha=0.3) == pytest.approx(expected)
    assert stationarity(X, y, coef, penalty="mcp", alpha=0.3) == pytest.approx(expected)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("convert", [sp.csr_array, sp.coo_matrix, np.asfortranarray, np.float32])
def test_kinds_of_X(convert, fit_intercept):
    rng = np.random.default_rng(0)
    X = rng.integers(-2, 3, size=(30, 7)) * rng.integers(0, 2, size=(30, 7)).astype(float)
    X[:, 6] += 1e4  # a stored column far from 0
    y = rng.standard_normal(30)
    coef = np.array([1.0, 0.0, 0.5, 0.0, 0.0, -1.0, 1e-3])
    options = {"penalty": TrimmedL1(2), "alpha": 0.1, "fit_intercept": fit_intercept, "standardize": True}
    expected = stationarity(X, y, coef, **options)
    assert stationarity(convert(X), y, coef, **options) == pytest.approx(expected, rel=1e-10)


def test_agrees_with_the_coordinates_of_the_solvers(problem):
    # The library is checked against the diagnostics elsewhere; here the conventions are, on awkward columns.
    from trimreg.designs import as_design

    X, y = problem(5)
    X = np.column_stack([X * [1e-3, 1.0, 1e4, 1.0, 1.0], np.full(12, 0.1), np.zeros(12), X[:, 0] + 1e6])
    weight = np.linspace(0.0, 2.0, 12)
    d = weight / weight.sum()
    for center in (False, True):
        for scale in (False, True):
            design = as_design(X, d, center=center, scale=scale)
            penalty = TrimmedL1(2)
            theta = np.array([1.0, 0.0, -0.5, 0.2, 0.0, 0.0, 0.0, 0.0])
            coef, intercept = design.original_units(theta)
            eta = design.matvec(theta)
            g = design.rmatvec(d * (eta - y))
            bound = penalty.bind(8)
            expected = bound.stationarity(theta, bound.weights(theta, 0.1, g), g, 0.1)
            expected += np.sum(d * (eta - y)) ** 2 if center else 0.0
            found = stationarity(
                X,
                y,
                coef,
                penalty=penalty,
                alpha=0.1,
                intercept=intercept,
                sample_weight=weight,
                fit_intercept=center,
                standardize=scale,
            )
            assert found == pytest.approx(expected, rel=1e-6)


def test_constant_columns_take_no_part(problem):
    X, y = problem(4)
    coef = np.array([1.0, 0.0, 0.5, 0.0, 0.0])
    wide, more = np.column_stack([X, np.full(12, 0.1)]), np.append(coef, 0.0)
    for standardize in (False, True):
        options = {"penalty": TrimmedL1(2), "alpha": 0.3, "fit_intercept": True, "standardize": standardize}
        expected = stationarity(X, y, coef, **options)
        assert stationarity(wide, y, more, **options) == pytest.approx(expected, rel=1e-12)
        # a coefficient there is an intercept by another name
        shifted = stationarity(wide, y, np.append(coef, 5.0), intercept=-0.5, **options)
        assert shifted == pytest.approx(expected, rel=1e-9)


def test_sample_weights_are_repetitions(problem):
    X, y = problem(6)
    times = np.array([1, 2, 0, 3, 1, 1, 2, 1, 1, 0, 1, 2])
    coef = np.array([1.0, 0.0, 0.5, 0.0, -0.1])
    options = {"penalty": TrimmedL1(2), "alpha": 0.3, "fit_intercept": True, "standardize": True}
    repeated = stationarity(np.repeat(X, times, axis=0), np.repeat(y, times), coef, **options)
    assert stationarity(X, y, coef, sample_weight=times, **options) == pytest.approx(repeated)


def test_outside_the_domain(problem):
    X, y = problem(0)
    coef = np.array([-1.0, 0.0, 0.0, 0.0, 0.0])
    assert stationarity(X, y, coef, penalty=TrimmedL1(1), alpha=1.0, positive=True) == np.inf
    excluded = TrimmedL1(1, penalty_factor=[np.inf, 1, 1, 1, 1])
    assert stationarity(X, y, coef, penalty=excluded, alpha=1.0) == np.inf
    assert np.isfinite(stationarity(X, y, np.zeros(5), penalty=excluded, alpha=1.0))


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"X": np.ones(3)}, "X"),
        ({"X": np.full((12, 5), np.nan)}, "X"),
        ({"X": np.full((12, 5), np.inf), "fit_intercept": True}, "X"),
        ({"X": np.full((12, 5), "a")}, "X"),
        ({"X": np.ones((0, 5))}, "X"),
        ({"y": np.ones(11)}, "y"),
        ({"y": np.full(12, np.nan)}, "y"),
        ({"coef": np.ones(4)}, "coef"),
        ({"coef": "no"}, "coef"),
        ({"alpha": -1.0}, "alpha"),
        ({"alpha": "exact"}, "alpha"),
        ({"alpha": np.inf}, "alpha"),
        ({"intercept": None}, "intercept"),
        ({"penalty": "l7"}, "penalty"),
        ({"penalty": TrimmedL1(9)}, "h must"),
        ({"loss": "squared"}, "loss"),
        ({"loss": Logistic()}, "y must"),
        ({"sample_weight": -np.ones(12)}, "sample_weight"),
        ({"sample_weight": np.zeros(12)}, "sample_weight"),
        ({"sample_weight": np.ones(3)}, "sample_weight"),
        ({"weights": np.ones(3)}, "weights"),
        ({"weights": np.ones(5)}, "weights"),
        ({"weights": np.array([-1.0, 2.0, 1.0, 1.0, 0.0])}, "weights"),
        ({"fit_intercept": "yes"}, "fit_intercept"),
        ({"standardize": 1}, "standardize"),
        ({"positive": None}, "positive"),
    ],
)
def test_bad_arguments_are_named(problem, change, name):
    X, y = problem(0)
    given = {"X": X, "y": y, "coef": np.zeros(5), "penalty": TrimmedL1(2), "alpha": 1.0} | change
    with pytest.raises(ValueError, match=name):
        stationarity(given.pop("X"), given.pop("y"), given.pop("coef"), **given)
