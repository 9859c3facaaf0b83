"""Logistic, multinomial, Poisson and Gamma regression: minimizers of scikit-learn, limits, deviances."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import gammaln
from scipy.stats import gamma as gamma_distribution
from sklearn.linear_model import GammaRegressor, LogisticRegression, PoissonRegressor

from trimreg.losses import Gamma, Logistic, Multinomial, Poisson
from trimreg.losses.log_link.gamma import _largest_log_likelihood

N = 120


def data(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, 3))
    weight = rng.uniform(0.5, 2.0, N)
    return rng, X, 0.3 + X @ [0.7, -0.5, 0.2], weight


def minimizer(loss, X, y, weight, n_outputs=1):
    """Coefficients of the features and the intercept, (p + 1,) or (p + 1, K)."""
    d = weight / weight.sum()
    loss.check_target(y)
    loss = loss.bound(y, d)
    Z = np.column_stack([X, np.ones(len(y))])
    shape = (Z.shape[1],) if n_outputs == 1 else (Z.shape[1], n_outputs)
    found = minimize(
        lambda v: loss.value(Z @ v.reshape(shape), y, d),
        np.zeros(np.prod(shape)),
        jac=lambda v: (Z.T @ loss.gradient(Z @ v.reshape(shape), y, d)).ravel(),
        method="BFGS",
        options={"gtol": 1e-9},
    )
    return found.x.reshape(shape)


def test_logistic_regression():
    rng, X, eta, weight = data()
    y = (rng.random(N) < 1 / (1 + np.exp(-eta))).astype(float)
    rival = LogisticRegression(C=1e9, tol=1e-10, max_iter=1000).fit(X, y, sample_weight=weight)
    expected = np.append(rival.coef_, rival.intercept_)
    np.testing.assert_allclose(minimizer(Logistic(), X, y, weight), expected, atol=1e-5)


def test_multinomial_regression():
    rng, X, eta, weight = data()
    y = np.digitize(eta + rng.logistic(size=N), [-0.5, 1.0]).astype(float)
    found = minimizer(Multinomial(), X, y, weight, n_outputs=3)
    rival = LogisticRegression(C=1e9, tol=1e-10, max_iter=1000).fit(X, y, sample_weight=weight)
    expected = np.vstack([rival.coef_.T, rival.intercept_])
    np.testing.assert_allclose(found, expected - expected.mean(axis=1, keepdims=True), atol=1e-4)


def test_two_classes_are_logistic():
    rng, _, eta, weight = data()
    y, d = (rng.random(N) < 0.4).astype(float), weight / weight.sum()
    both = np.column_stack([np.zeros(N), eta])
    loss = Multinomial().bound(y, d)
    assert loss.value(both, y, d) == pytest.approx(Logistic().value(eta, y, d), rel=1e-14)
    np.testing.assert_allclose(loss.gradient(both, y, d)[:, 1], Logistic().gradient(eta, y, d), atol=1e-16)
    np.testing.assert_allclose(loss.inverse_link(both)[:, 1], Logistic().inverse_link(eta), rtol=1e-12)
    difference = np.diff(loss.null_predictor(y, d))[0]
    assert difference == pytest.approx(Logistic().null_predictor(y, d))


@pytest.mark.parametrize(("loss", "rival"), [(Poisson(), PoissonRegressor), (Gamma(), GammaRegressor)])
def test_log_link_regression(loss, rival):
    rng, X, eta, weight = data()
    y = rng.poisson(np.exp(eta)).astype(float) if loss.name == "poisson" else rng.gamma(2.0, np.exp(eta) / 2)
    assert loss.name == "gamma" or np.any(y == 0)
    model = rival(alpha=0.0, tol=1e-9, max_iter=1000).fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(
        minimizer(loss, X, y, weight), np.append(model.coef_, model.intercept_), atol=1e-5
    )
    np.testing.assert_allclose(
        loss.inverse_link(X @ model.coef_ + model.intercept_), model.predict(X), rtol=1e-12
    )


def test_logistic_keeps_small_numbers():
    """Neither probabilities nor losses that are all but 0 are rounded to 0."""
    loss, one = Logistic(), np.ones(1)
    eta = np.array([50.0])
    small = pytest.approx(np.exp(-50.0), rel=1e-9, abs=0)
    assert loss.value(eta, one, one) == small
    assert loss.inverse_link(-eta)[0] == small
    assert loss.curvature(eta, one, one)[0] == small
    assert loss.value(np.array([1e4]), 0 * one, one) == 1e4
    loss = Multinomial(3).pointwise(np.array([[0.0, -50.0, -60.0]]), np.zeros(1))
    assert loss[0] == pytest.approx(np.exp(-50.0) + np.exp(-60.0), rel=1e-9, abs=0)


def test_multinomial_does_not_see_a_constant():
    rng = np.random.default_rng(0)
    y, d, eta = np.array([0.0, 2.0, 1.0]), np.full(3, 1 / 3), rng.standard_normal((3, 3))
    loss = Multinomial().bound(y, d)
    assert loss.value(eta + np.array([[5.0], [-1e3], [1e4]]), y, d) == pytest.approx(loss.value(eta, y, d))
    np.testing.assert_allclose(loss.gradient(eta, y, d).sum(axis=1), 0, atol=1e-16)
    np.testing.assert_allclose(loss.null_predictor(y, d), 0, atol=1e-15)


def test_number_of_classes():
    y, d = np.array([0.0, 1.0, 1.0]), np.full(3, 1 / 3)
    assert Multinomial().bound(y, d).n_outputs == 2
    assert Multinomial().bound(0 * y, d).n_outputs == 2
    assert Multinomial(5).n_outputs == Multinomial(5).bound(y, d).n_outputs == 5
    assert Multinomial().n_outputs == 1  # not known yet
    with pytest.raises(ValueError, match=r"y must hold classes below n_classes = 2; got 4.0 at position 0"):
        Multinomial(2).check_target(np.array([4.0, 1.0]))
    for bad in (1, 2.5, -3):
        with pytest.raises(ValueError, match="n_classes must be None or an integer >= 2"):
            Multinomial(bad)


def test_null_predictor_without_an_optimum_is_finite():
    d = np.full(4, 0.25)
    assert Logistic().null_predictor(np.zeros(4), d) == pytest.approx(-27.6, abs=0.1)
    assert Logistic().null_predictor(np.ones(4), d) == pytest.approx(27.6, abs=0.1)
    assert Poisson().null_predictor(np.zeros(4), d) == pytest.approx(-23.0, abs=0.1)
    lone = Multinomial(3).null_predictor(np.ones(4), d)
    assert np.all(np.isfinite(lone))
    assert np.argmax(lone) == 1
    for loss, y in ((Logistic(), np.zeros(4)), (Poisson(), np.zeros(4))):
        eta = np.full(4, loss.null_predictor(y, d))
        assert loss.value(eta, y, d) < 1e-9


def test_slope_bounds_by_hand():
    d = np.array([0.2, 0.8])
    assert Logistic().slope_bound(np.array([0.0, 1.0]), d) == pytest.approx(np.sqrt(np.log(2) / 2))
    assert Logistic().slope_bound(np.array([0.5, 0.5]), d) == pytest.approx(0.0, abs=1e-8)  # 0 is the optimum
    assert Multinomial(3).slope_bound(np.array([0.0, 1.0]), d) == pytest.approx(np.sqrt(np.log(3)))
    assert Multinomial(50).slope_bound(np.array([0.0, 1.0]), d) == pytest.approx(np.sqrt(2))
    # B = 0.2 * (1 - 0) + 0.8 * (1 - 2 + 2 log 2); y = 0 for the first sample, so it attains 2 B / sqrt(d)
    B = 0.2 + 0.8 * (2 * np.log(2) - 1)
    rest = (B + np.sqrt(B**2 + 2 * B * 0.8 * 2)) / np.sqrt(0.8)
    assert Poisson().slope_bound(np.array([0.0, 2.0]), d) == pytest.approx(max(2 * B / np.sqrt(0.2), rest))
    # near the optimum B is small and the square root decides
    y, B = np.array([1.0, 1.2]), 0.8 * (1 - 1.2 + 1.2 * np.log(1.2))
    parts = (B + np.sqrt(B**2 + 2 * B * d * y)) / np.sqrt(d)
    assert Poisson().slope_bound(y, d) == pytest.approx(parts.max())
    assert Gamma().slope_bound(np.ones(2), d) == 0.0


@pytest.mark.parametrize("excess", [1e-5, 1e-3, 0.02, 0.5, 2.9, 40.0, 1e4, 1e7])
def test_largest_log_likelihood_of_the_shape(excess):
    best = minimize(
        lambda v: -float(np.exp(v[0]) * (v[0] - 1 - excess) - gammaln(np.exp(v[0]))),
        [-np.log(2 * excess)],
        method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-13},
    )
    assert _largest_log_likelihood(excess) == pytest.approx(-float(best.fun), rel=1e-7)


def test_largest_log_likelihood_is_smooth_where_its_formula_changes():
    for excess in (0.5e-6, 1e8):
        below, above = (_largest_log_likelihood(excess * factor) for factor in (0.9999, 1.0001))
        assert 0 < below - above < 5e-4
    assert _largest_log_likelihood(np.inf) == -np.inf


def test_gamma_deviance_is_the_profile_likelihood():
    rng, _, eta, _ = data()
    y = rng.gamma(3.0, np.exp(eta) / 3)
    d = np.full(N, 1 / N)

    def minus_twice(log_shape):
        shape = np.exp(log_shape[0])
        return -2 * np.sum(gamma_distribution.logpdf(y, shape, scale=np.exp(eta) / shape))

    best = minimize(minus_twice, [0.0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-11}).fun
    dropped = 2 * np.sum(np.log(y))  # does not depend on eta
    assert Gamma().deviance(eta, y, d, N) + dropped == pytest.approx(best, rel=1e-9)
    assert np.isfinite(Gamma().deviance(np.log(y), y, d, N))  # a perfect fit


def test_deviance_of_counts_and_labels_is_twice_the_sum():
    rng, _, eta, _ = data()
    d = np.full(N, 1 / N)
    y = rng.poisson(2.0, N).astype(float)
    assert Poisson().deviance(eta, y, d, N) == pytest.approx(2 * np.sum(np.exp(eta) - y * eta))
    y = (y > 1).astype(float)
    p = 1 / (1 + np.exp(-eta))
    expected = -2 * np.sum(np.log(np.where(y > 0, p, 1 - p)))
    assert Logistic().deviance(eta, y, d, N) == pytest.approx(expected)
