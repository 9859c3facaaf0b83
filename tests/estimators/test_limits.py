"""Limits in which the answer is known from elsewhere, and what must not change it."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Lasso

from trimreg import L1, MCP, SCAD, MEstimator, TrimmedL1, TrimmedLasso, solve

SOLVERS = ["mm", "bcd", "dc", "prox"]


def lasso(X, y, alpha, *, sample_weight=None, **settings):
    return Lasso(alpha=alpha, tol=1e-13, max_iter=100_000, **settings).fit(X, y, sample_weight)


# -- known answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("solver", SOLVERS)
def test_h_of_zero_is_the_lasso(solver, fit_intercept, weighted, positive, layout, make_data):
    data = make_data(zeros=0.4)
    weight = data.weight if weighted else None
    settings = {"alpha": 0.1, "fit_intercept": fit_intercept, "positive": positive}
    ours = TrimmedLasso(h=0, standardize=False, solver=solver, tol=1e-8, **settings)
    ours.fit(layout(data.X), data.y, weight)
    theirs = lasso(data.X, data.y, sample_weight=weight, **settings)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=1e-6)
    np.testing.assert_array_equal(ours.trim_weights_, 1.0)


@pytest.mark.parametrize("penalty", [L1(), MCP(gamma=np.inf), SCAD(gamma=np.inf)], ids=repr)
@pytest.mark.parametrize("solver", ["mm", "prox"])
@pytest.mark.parametrize("positive", [False, True])
def test_infinite_gamma_is_the_lasso(penalty, solver, positive, make_data):
    data = make_data(n=30, p=50)
    ours = MEstimator(penalty=penalty, alpha=0.1, solver=solver, positive=positive, tol=1e-8)
    ours.fit(data.X, data.y)
    theirs = lasso(data.X, data.y, 0.1, positive=positive)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    assert 0 < ours.support_.size < 50


@pytest.mark.parametrize("alpha", ["exact", 0.3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize(
    ("solver", "options"),
    [("mm", {}), ("bcd", {}), ("dc", {"ties": "aware"}), ("prox", {"accelerate": True})],
)
def test_h_of_p_is_least_squares(
    solver, options, fit_intercept, standardize, weighted, alpha, make_data, by_hand
):
    data = make_data(n=40, p=6)
    weight = data.weight if weighted else None
    result = solve(
        data.X,
        data.y,
        penalty=TrimmedL1(6),
        alpha=alpha,
        solver=solver,
        fit_intercept=fit_intercept,
        standardize=standardize,
        sample_weight=weight,
        tol=1e-9,
        **options,
    )
    coef, intercept = by_hand.least_squares(data.X, data.y, fit_intercept=fit_intercept, sample_weight=weight)
    np.testing.assert_allclose(result.coef, coef, atol=1e-6)
    assert result.intercept == pytest.approx(intercept, abs=1e-6)


@pytest.mark.parametrize("penalty", [TrimmedL1(2), L1(), MCP(), SCAD()], ids=repr)
@pytest.mark.parametrize("solver", ["mm", "prox"])
def test_alpha_of_zero_is_least_squares(penalty, solver, make_data, by_hand):
    data = make_data()
    result = solve(data.X, data.y, penalty=penalty, alpha=0, solver=solver, tol=1e-9, fit_intercept=True)
    coef, intercept = by_hand.least_squares(data.X, data.y, fit_intercept=True)
    np.testing.assert_allclose(result.coef, coef, atol=1e-6)
    assert result.intercept == pytest.approx(intercept, abs=1e-6)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("alpha", ["exact", 1e6, 1e200])
def test_h_of_zero_and_alpha_large_is_the_mean(solver, alpha, make_data):
    data = make_data()
    result = solve(data.X, data.y, penalty=TrimmedL1(0), alpha=alpha, solver=solver, fit_intercept=True)
    np.testing.assert_array_equal(result.coef, 0)
    assert result.intercept == pytest.approx(data.y.mean())


def test_a_large_number_is_as_good_as_exact(make_data):
    data = make_data()
    exact = TrimmedLasso(h=3).fit(data.X, data.y)
    large = TrimmedLasso(h=3, alpha=1e6).fit(data.X, data.y)
    np.testing.assert_array_equal(exact.coef_, large.coef_)
    assert large.result_.swap_optimal is True


# -- what must not matter ---------------------------------------------------------------------------------

# Every penalty at a setting in which each solver lands in one basin, so that answers can be compared.
MODELS = [
    TrimmedLasso(h=3),
    TrimmedLasso(h=3, standardize=False),
    TrimmedLasso(h=3, alpha=0.2),
    TrimmedLasso(h=2, alpha=0.1, positive=True),
    TrimmedLasso(h=3, alpha=0.2, solver="bcd", tol=1e-9),
    TrimmedLasso(h=3, alpha=0.2, solver="prox", tol=1e-9),
    MEstimator(alpha=0.1),
    MEstimator(penalty=MCP(), alpha=0.2, standardize=True),
    MEstimator(penalty=SCAD(), alpha=0.2),
]
each_model = pytest.mark.parametrize("model", MODELS, ids=repr)


def assert_same(a, b, atol=1e-6):
    np.testing.assert_allclose(a.coef_, b.coef_, atol=atol)
    assert a.intercept_ == pytest.approx(b.intercept_, abs=10 * atol)
    assert a.objective_ == pytest.approx(b.objective_, rel=10 * atol)
    np.testing.assert_array_equal(a.support_, b.support_)


@pytest.fixture
def fit():
    """Fit a fresh copy of the model."""
    from sklearn.base import clone

    return lambda model, X, y, weight=None, **changes: clone(model).set_params(**changes).fit(X, y, weight)


@each_model
@pytest.mark.parametrize("weighted", [False, True])
def test_storage_does_not_matter(model, weighted, layout, make_data, fit):
    data = make_data(zeros=0.5)
    weight = data.weight if weighted else None
    assert_same(fit(model, layout(data.X), data.y, weight), fit(model, data.X, data.y, weight), atol=1e-7)


@each_model
@pytest.mark.parametrize("kind", [np.asarray, np.asfortranarray, sp.csc_array, sp.csr_array])
def test_single_precision_stays_and_is_close(model, kind, make_data, fit):
    data = make_data(zeros=0.5)
    double = fit(model, data.X, data.y)
    single = fit(model, kind(data.X.astype(np.float32)), data.y.astype(np.float32))
    assert single.coef_.dtype == np.float32
    assert single.predict(kind(data.X.astype(np.float32))).dtype == np.float32
    assert double.coef_.dtype == np.float64
    np.testing.assert_allclose(single.coef_, double.coef_, atol=1e-4)
    np.testing.assert_array_equal(single.support_, double.support_)


@each_model
def test_integer_weights_are_repeated_rows(model, make_data, fit):
    data = make_data()
    weight = np.floor(data.weight).astype(int)
    assert (weight == 0).any()
    repeated = np.repeat(np.arange(40), weight)
    assert_same(fit(model, data.X, data.y, weight), fit(model, data.X[repeated], data.y[repeated]))


@each_model
def test_weights_of_zero_are_dropped_rows(model, make_data, fit):
    data = make_data()
    weight = np.where(np.arange(40) % 3 == 0, 0.0, data.weight + 0.1)
    X, y = data.X.copy(), data.y.copy()
    X[weight == 0], y[weight == 0] = 1e6, -1e6  # whatever stands there
    kept = weight > 0
    assert_same(fit(model, X, y, weight), fit(model, data.X[kept], data.y[kept], weight[kept]))


@each_model
@pytest.mark.parametrize("c", [1e-200, 1e-3, 7.0, 1e200])
def test_only_proportions_of_weights_matter(model, c, make_data, fit):
    data = make_data()
    assert_same(fit(model, data.X, data.y, data.weight), fit(model, data.X, data.y, c * data.weight))


def test_a_number_as_weight_is_the_same_for_all(make_data, fit):
    data = make_data()
    assert_same(fit(MODELS[0], data.X, data.y, 3.0), fit(MODELS[0], data.X, data.y))


# Not Algorithm 1: its step tau = 1 in w is counted in units of theta.
@pytest.mark.parametrize("model", [model for model in MODELS if model.solver != "bcd"], ids=repr)
@pytest.mark.parametrize("c", [1e-6, 3.0, 1e5])
def test_scaling_y_scales_the_answer(model, c, make_data, fit):
    data = make_data()
    alpha = model.alpha if model.alpha == "exact" else c * model.alpha
    plain, scaled = fit(model, data.X, data.y), fit(model, data.X, c * data.y, alpha=alpha)
    np.testing.assert_allclose(scaled.coef_ / c, plain.coef_, atol=1e-6)
    assert scaled.intercept_ / c == pytest.approx(plain.intercept_, abs=1e-6)
    assert scaled.objective_ / c**2 == pytest.approx(plain.objective_)
    assert scaled.alpha_ / c == pytest.approx(plain.alpha_)


@each_model
def test_the_order_of_columns_does_not_matter(model, make_data, fit):
    data = make_data()
    order = np.random.default_rng(1).permutation(12)
    plain, mixed = fit(model, data.X, data.y), fit(model, data.X[:, order], data.y)
    np.testing.assert_allclose(mixed.coef_, plain.coef_[order], atol=1e-6)
    np.testing.assert_array_equal(mixed.trim_weights_, plain.trim_weights_[order])


@each_model
@pytest.mark.parametrize("exponent", [3, 150])
def test_standardized_answers_have_no_units(model, exponent, make_data, fit):
    data = make_data()
    factor = 10.0 ** (exponent * np.random.default_rng(2).choice([-1, 0, 1], size=12))
    plain = fit(model, data.X, data.y, standardize=True)
    scaled = fit(model, data.X * factor, data.y, standardize=True)
    np.testing.assert_allclose(scaled.coef_ * factor, plain.coef_, atol=1e-6)
    assert scaled.intercept_ == pytest.approx(plain.intercept_, abs=1e-6)
    assert scaled.stationarity_ == pytest.approx(plain.stationarity_, abs=1e-10)


@each_model
def test_with_an_intercept_origins_do_not_matter(model, make_data, fit):
    data = make_data()
    plain, moved = fit(model, data.X, data.y), fit(model, data.X + 10.0, data.y - 5.0)
    np.testing.assert_allclose(moved.coef_, plain.coef_, atol=1e-6)
    np.testing.assert_allclose(moved.predict(data.X + 10.0) + 5.0, plain.predict(data.X), atol=1e-5)
