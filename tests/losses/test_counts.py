"""Negative binomial and Tweedie losses: their formulas, the dispersion, and fits of other libraries."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize, minimize_scalar
from scipy.stats import nbinom
from sklearn.linear_model import TweedieRegressor

from trimreg import (
    MEstimator,
    MEstimatorCV,
    TrimmedL1,
    TrimmedNegativeBinomialRegressor,
    TrimmedPoissonRegressor,
)
from trimreg.losses import NegativeBinomial, Poisson, Tweedie
from trimreg.losses.log_link.negative_binomial import _Rising

N, P = 150, 3


@pytest.fixture(scope="module")
def data():
    """Features, exposures, counts and amounts with zeros."""
    rng = np.random.default_rng(0)
    X, exposure = rng.standard_normal((N, P)) + 0.2, rng.uniform(0.5, 3.0, N)
    mean = exposure * np.exp(0.8 + X @ [0.6, -0.4, 0.2])
    counts = rng.negative_binomial(1.5, 1.5 / (1.5 + mean)).astype(float)
    return X, exposure, counts, np.where(rng.random(N) < 0.3, 0.0, rng.gamma(2.0, mean))


def log_likelihood(y, eta, a):
    return nbinom.logpmf(y, 1 / a, 1 / (1 + a * np.exp(eta)))


def test_a_given_dispersion_is_the_likelihood_of_scipy(data):
    eta, y = data[0] @ [0.5, 0.2, -0.1], data[2]
    for a in (0.01, 0.7, 12.0):
        found = NegativeBinomial(a).pointwise(eta, y)
        expected = -log_likelihood(y, eta, a) - [math.lgamma(k + 1) for k in y]
        assert_allclose(found, expected, atol=1e-11)
    assert_allclose(NegativeBinomial(1e-13).pointwise(eta, y), Poisson().pointwise(eta, y), atol=1e-10)


@pytest.mark.parametrize("a", [1e-9, 1e-4, 0.3, 50.0])
def test_sums_of_logarithms_of_large_counts(a):
    y = np.array([0, 7, 1024, 1025, 1030, 5000, 5001, 70_000, 7])
    rising = _Rising(y.astype(float))
    terms = [(np.log1p(a * np.arange(k)), np.arange(k) / (1 + a * np.arange(k))) for k in y]
    assert_allclose(rising.value(a), [math.fsum(one) for one, _ in terms], rtol=1e-12)
    assert_allclose(rising.slope(a), [math.fsum(one) for _, one in terms], rtol=1e-12)


def test_the_dispersion_maximizes_the_likelihood(data):
    X, _, y, _ = data
    rng = np.random.default_rng(1)
    d = rng.uniform(0.0, 1.0, N)
    d /= d.sum()
    for eta in (np.full(N, 1.0), X[:, 0], 3.0 + 0 * y):
        best = minimize_scalar(
            lambda t, eta=eta: -d @ log_likelihood(y, eta, np.exp(t)), (-3, 0), options={"xtol": 1e-9}
        )
        assert NegativeBinomial().dispersion_at(eta, y, d) == pytest.approx(np.exp(best.x), rel=1e-6)
    big = rng.negative_binomial(0.5, 1e-6, N).astype(float)  # counts of half a million
    eta = np.full(N, np.log(big.mean()))
    best = minimize_scalar(lambda t: -d @ log_likelihood(big, eta, np.exp(t)), (-3, 2))
    assert NegativeBinomial().dispersion_at(eta, big, d) == pytest.approx(np.exp(best.x), rel=1e-5)


def test_counts_that_vary_less_than_poisson_have_dispersion_0(data):
    X = data[0]
    y = np.round(np.exp(1.0 + 0.3 * X[:, 0]))
    model = TrimmedNegativeBinomialRegressor(h=2, tol=1e-10).fit(X, y)
    poisson = TrimmedPoissonRegressor(h=2, tol=1e-10).fit(X, y)
    assert model.dispersion_ == 0.0
    assert_allclose(model.coef_, poisson.coef_, atol=1e-10)
    assert model.score(X, y) == pytest.approx(poisson.score(X, y))
    assert NegativeBinomial().dispersion_at(np.zeros(3), np.zeros(3), np.full(3, 1 / 3)) > 1e11  # no counts


def test_all_features_reach_the_largest_likelihood(data):
    X, exposure, y, _ = data
    Z = np.column_stack([X, np.ones(N)])

    def minus_mean(v):
        return -log_likelihood(y, Z @ v[:-1] + np.log(exposure), np.exp(v[-1])).mean()

    best = minimize(minus_mean, np.zeros(5), method="BFGS", options={"gtol": 1e-7})
    model = TrimmedNegativeBinomialRegressor(h=P, tol=1e-12).fit(X, y, exposure=exposure)
    ours = np.array([*model.coef_, model.intercept_, np.log(model.dispersion_)])
    assert_allclose(ours, best.x, atol=1e-5)
    assert minus_mean(ours) <= best.fun + 1e-13
    assert_allclose(model.predict(X, exposure=exposure), exposure * np.exp(Z @ ours[:-1]))
    by_name = MEstimator("negative_binomial", TrimmedL1(P), tol=1e-12).fit(X, y, exposure=exposure)
    assert by_name.dispersion_ == pytest.approx(model.dispersion_, rel=1e-9)


def test_all_features_as_statsmodels(data):
    sm = pytest.importorskip("statsmodels.api")
    X, exposure, y, amounts = data
    Z, offset = sm.add_constant(X), np.log(exposure)
    model = TrimmedNegativeBinomialRegressor(h=P, tol=1e-13).fit(X, y, offset=offset)
    ours = np.array([model.intercept_, *model.coef_, model.dispersion_])
    start = ours + np.array([0.1, -0.05, 0.05, 0.05, 0.1])  # from afar its Newton steps leave the domain
    theirs = sm.NegativeBinomial(y, Z, offset=offset)
    theirs = theirs.fit(start, disp=0, method="newton", tol=1e-14, maxiter=200)
    assert_allclose(ours, theirs.params, atol=1e-8)
    family = sm.families.Tweedie(sm.families.links.Log(), var_power=1.6)
    theirs = sm.GLM(amounts, Z, family, offset=offset).fit(tol=1e-14, maxiter=200)
    model = MEstimator(Tweedie(1.6), TrimmedL1(P), tol=1e-13).fit(X, amounts, offset=offset)
    assert_allclose([model.intercept_, *model.coef_], theirs.params, atol=1e-8)


@pytest.mark.parametrize("power", [1.1, 1.5, 1.9])
def test_tweedie_as_scikit_learn(data, power):
    X, exposure, _, y = data
    theirs = TweedieRegressor(power=power, alpha=0.0, link="log", tol=1e-10, solver="newton-cholesky")
    theirs.fit(X, y, sample_weight=exposure)
    model = MEstimator(Tweedie(power), TrimmedL1(P), tol=1e-12).fit(X, y, sample_weight=exposure)
    assert_allclose([model.intercept_, *model.coef_], [theirs.intercept_, *theirs.coef_], atol=1e-8)
    assert_allclose(model.predict(X), theirs.predict(X))


def test_units_of_the_amounts_move_the_intercept_alone(data):
    X, _, _, y = data
    one, other = (
        MEstimator("tweedie", TrimmedL1(2), alpha="exact", tol=1e-10).fit(X, k * y) for k in (1.0, 1e6)
    )
    assert_allclose(other.coef_, one.coef_, atol=1e-8)
    assert other.intercept_ == pytest.approx(one.intercept_ + np.log(1e6))


def test_samples_left_out_are_scored_with_the_dispersion_of_the_fit(data):
    X, exposure, y, _ = data
    train = np.arange(N) % 3 > 0
    found = MEstimatorCV("negative_binomial", hs=[2], cv=[(train.nonzero()[0], (~train).nonzero()[0])])
    found.fit(X, y, exposure=exposure)
    model = TrimmedNegativeBinomialRegressor(h=2).fit(X[train], y[train], exposure=exposure[train])
    eta = X[~train] @ model.coef_ + model.intercept_ + np.log(exposure[~train])
    expected = NegativeBinomial(model.dispersion_).pointwise(eta, y[~train]).mean()
    assert -found.score_path_[0, 0, 0] == pytest.approx(expected, rel=1e-6)


def test_bad_parameters_are_refused_by_name(data):
    X, _, y, amounts = data
    for bad in (1.0, 2.0, 0.5, np.nan):
        with pytest.raises(ValueError, match="power must be between 1 and 2"):
            Tweedie(bad)
    for bad in (-0.1, np.inf, np.nan):
        with pytest.raises(ValueError, match="dispersion must be"):
            NegativeBinomial(bad)
        with pytest.raises(ValueError, match="dispersion must be"):
            TrimmedNegativeBinomialRegressor(dispersion=bad).fit(X, y)
    with pytest.raises(ValueError, match=r"y must hold counts 0, 1, 2, \.\.\.; got"):
        TrimmedNegativeBinomialRegressor().fit(X, amounts)
