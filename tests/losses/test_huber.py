"""Huber's loss: its scale, its limits, and scikit-learn's estimator."""

import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar
from sklearn.linear_model import HuberRegressor

from trimreg.losses import Huber, Quadratic
from trimreg.losses.huber import concomitant_scale, smallest_scale


def criterion(s, residual, d, epsilon):
    z = np.abs(residual) / s
    return 0.5 * d @ (s + s * np.where(z <= epsilon, z**2, 2 * epsilon * z - epsilon**2))


def heavy_tailed(seed, n=40):
    rng = np.random.default_rng(seed)
    d = rng.random(n)
    d[5] = 0.0
    return rng, rng.standard_t(1.5, n), d / d.sum()


@pytest.mark.parametrize(
    ("epsilon", "unit"), [(1.01, 1.0), (1.35, 1e-3), (1.35, 1e140), (3.0, 1e6), (50.0, 1.0), (50.0, 1e140)]
)
def test_scale_minimizes_the_criterion(epsilon, unit):
    for seed in range(5):
        _, residual, d = heavy_tailed(seed)
        s = concomitant_scale(unit * np.abs(residual), d, epsilon, 1e-12 * unit)
        z = unit * residual / s
        assert d @ np.minimum(z**2, epsilon**2) == pytest.approx(1.0, rel=1e-12)
        best = minimize_scalar(
            lambda log_s, r=residual, d=d: criterion(np.exp(log_s), r, d, epsilon), bounds=(-10, 10)
        )
        assert s / unit == pytest.approx(np.exp(best.x), rel=1e-3)
        assert criterion(s / unit, residual, d, epsilon) <= best.fun + 1e-14


def test_scale_with_ties_and_zeros():
    d = np.full(4, 0.25)
    assert concomitant_scale(np.ones(4), d, 1.35, 1e-8) == pytest.approx(1.0)
    # two zeros of four: the others are beyond epsilon s for no s, and within for s^2 = 1/2
    assert concomitant_scale(np.array([0.0, 0.0, 1.0, 1.0]), d, 1.5, 1e-8) == pytest.approx(np.sqrt(0.5))
    # with epsilon^2 / 2 < 1 there is no root: most residuals are 0
    assert concomitant_scale(np.array([0.0, 0.0, 1.0, 1.0]), d, 1.2, 1e-8) == 1e-8
    assert concomitant_scale(np.zeros(4), d, 1.35, 1e-8) == 1e-8
    assert concomitant_scale(np.array([0.0, 0.0, 0.0, 1e9]), d, 1.35, 1e-8) == 1e-8


def test_smallest_scale():
    d = np.full(5, 0.2)
    y = np.array([1.0, 2.0, 3.0, 4.0, 1e9])
    assert smallest_scale(y, d) == pytest.approx(1.5e-8)  # distances 1, 1, 2, 1e9
    assert smallest_scale(100 * y, d) == pytest.approx(150e-8)
    assert smallest_scale(np.array([0.0, 0.0, 0.0, 0.0, 3.0]), d) == pytest.approx(3e-8)
    assert smallest_scale(np.full(5, -7.0), d) == pytest.approx(7e-8)
    assert smallest_scale(np.zeros(5), d) == pytest.approx(1e-8)


def test_a_perfect_fit_is_a_number():
    rng = np.random.default_rng(0)
    y, d = rng.standard_normal(10), np.full(10, 0.1)
    loss = Huber().bound(y, d)
    assert loss.value(y, y, d) == pytest.approx(0.5 * smallest_scale(y, d))
    np.testing.assert_array_equal(loss.gradient(y, y, d), 0)
    assert np.all(np.isfinite(loss.curvature(y, y, d)))
    assert np.isfinite(loss.deviance(y, y, d, 10))


def test_at_its_floor_the_scale_does_not_move(case_of):
    case = case_of("huber", seed=0)
    floor = smallest_scale(case.y, case.d)
    eta = case.y + floor * case.rng.uniform(-0.5, 0.5, case.y.size)
    assert case.loss.scale_at(eta, case.y, case.d) == floor
    design, W = case.design(2), np.arange(2)
    np.testing.assert_allclose(
        case.loss.gram(design, W, eta, case.y, case.d), design.gram(W, case.d / floor, W), rtol=1e-12
    )


@pytest.mark.parametrize("epsilon", [1.1, 1.35, 2.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_minimizer_is_that_of_scikit_learn(epsilon, weighted):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = 2.0 + X @ [1.0, -2.0, 0.5] + 0.3 * rng.standard_t(2, 60)
    weight = rng.uniform(0.5, 2.0, 60) if weighted else np.ones(60)
    d = weight / weight.sum()
    Z, loss = np.column_stack([X, np.ones(60)]), Huber(epsilon).bound(y, d)
    found = minimize(
        lambda v: loss.value(Z @ v, y, d),
        np.zeros(4),
        jac=lambda v: Z.T @ loss.gradient(Z @ v, y, d),
        method="BFGS",
        options={"gtol": 1e-9},
    )
    rival = HuberRegressor(epsilon=epsilon, alpha=0.0, tol=1e-9, max_iter=1000).fit(
        X, y, sample_weight=weight
    )
    np.testing.assert_allclose(found.x, np.append(rival.coef_, rival.intercept_), atol=1e-5)
    assert loss.scale_at(Z @ found.x, y, d) == pytest.approx(rival.scale_, rel=1e-4)
    fixed = Huber(epsilon, scale=loss.scale_at(Z @ found.x, y, d))
    np.testing.assert_allclose(Z.T @ fixed.gradient(Z @ found.x, y, d), 0, atol=1e-8)


def test_a_given_scale_is_least_squares_until_epsilon():
    eta, y, d = np.zeros(3), np.array([0.5, -1.0, 100.0]), np.full(3, 1 / 3)
    wide = Huber(epsilon=1e6, scale=2.0)
    assert wide.value(eta, y, d) == pytest.approx(Quadratic().value(eta, y, d) / 2.0)
    loss = Huber(epsilon=1.5, scale=2.0)
    # z = 0.25, 0.5, 50: the last is linear, 2 * 1.5 * 50 - 1.5^2
    np.testing.assert_allclose(loss.pointwise(eta, y), [0.0625, 0.25, 147.75])
    np.testing.assert_allclose(loss.gradient(eta, y, d), np.array([-0.25, 0.5, -1.5]) / 3)
    np.testing.assert_allclose(loss.curvature(eta, y, d), np.array([0.5, 0.5, 0.0]) / 3)
    assert loss.curvature_bound == 0.5
    assert loss.scale_at(eta, y, d) == 2.0
    assert loss.deviance(eta, y, d, 3) == pytest.approx(2 * 3 * loss.value(eta, y, d) / 2.0)


def test_deviance_is_gaussian_within_epsilon_and_laplace_near_one():
    _, y, d = heavy_tailed(0)
    eta = np.zeros_like(y)
    gauss = Huber(epsilon=1e3).deviance(eta, y, d, 40)
    assert gauss == pytest.approx(Quadratic().deviance(eta, y, d, 40))
    laplace = Huber(epsilon=1 + 1e-9).deviance(eta, y, d, 40)
    assert laplace == pytest.approx(80 * np.log(d @ np.abs(y)), rel=1e-4)


def test_the_slope_of_an_estimated_scale_is_one():
    _, y, d = heavy_tailed(1)
    loss, counted = Huber(), d > 0
    gradient = loss.gradient(np.zeros_like(y), y, d)
    assert np.sum(gradient[counted] ** 2 / d[counted]) == pytest.approx(1.0)
    assert loss.slope_bound(y, d) == pytest.approx(1.0)
    given = Huber(epsilon=1.35, scale=1e6)
    assert given.slope_bound(y, d) == pytest.approx(np.sqrt(d @ y**2) / 1e6)
    assert Huber(epsilon=1.35, scale=1e-9).slope_bound(y, d) == 1.35


def test_outliers_do_not_move_the_best_constant():
    rng = np.random.default_rng(0)
    y = rng.standard_normal(101)
    y[:5] = 1e8
    d = np.full(101, 1 / 101)
    assert abs(Huber().null_predictor(y, d)) < 0.5
    assert Huber().null_predictor(np.full(101, 3.0), d) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"epsilon": 1.0}, "epsilon must be > 1"),
        ({"epsilon": np.inf}, "epsilon must be > 1"),
        ({"epsilon": 0.0, "scale": 1.0}, "epsilon must be > 0"),
        ({"scale": 0.0}, "scale must be None or"),
        ({"scale": np.nan}, "scale must be None or"),
    ],
)
def test_parameters(how, message):
    with pytest.raises(ValueError, match=message):
        Huber(**how)


def test_a_given_scale_takes_a_small_epsilon():
    assert Huber(epsilon=0.1, scale=1.0).separable
    assert not Huber().separable
