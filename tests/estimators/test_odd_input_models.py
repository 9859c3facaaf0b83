"""Odd but sound input for the models of every loss: finite answers, and no warning but those promised."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from trimreg import (
    MultiTaskTrimmedLasso,
    TrimmedCoxRegressor,
    TrimmedGammaRegressor,
    TrimmedGroupLasso,
    TrimmedHuberRegressor,
    TrimmedL1,
    TrimmedLasso,
    TrimmedLogisticRegression,
    TrimmedPoissonRegressor,
    solve,
)
from trimreg.losses import get_loss

ALPHAS = pytest.mark.parametrize("alpha", ["exact", 0.1])
#: Too few samples: coefficients grow without end, and a warning says so.
NO_MINIMUM = pytest.mark.filterwarnings("ignore:.*grow without end:sklearn.exceptions.ConvergenceWarning")


def finite(model, X):
    """All that the fit gives is a number, and so is what it predicts; the summary can be drawn."""
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.intercept_).all()
    assert np.isfinite([model.objective_, model.stationarity_, model.alpha_]).all()
    predicted = model.decision_function(X) if hasattr(model, "decision_function") else model.predict(X)
    assert np.isfinite(predicted).all()
    assert "nan" not in str(model.summary())
    return model


@ALPHAS
def test_constant_zero_and_repeated_columns(case, alpha):
    X = case.X.copy()
    X[:, 3], X[:, 4], X[:, 5], X[:, 6] = 5.0, 0.0, X[:, 0], -2 * X[:, 1]
    model = finite(case.kind(h=3, alpha=alpha).fit(X, case.y), X)
    np.testing.assert_array_equal(np.atleast_2d(model.coef_)[:, [3, 4]], 0)
    assert (model.entry_order_[[3, 4]] == -1).all()
    if alpha == "exact":
        assert model.support_.size <= 3
        without = case.kind(h=3).fit(case.X[:, [0, 1, 2, 7, 8]], case.y)
        assert model.objective_ <= without.objective_ + 1e-3 * abs(without.objective_)


@ALPHAS
def test_only_constant_columns(case, alpha):
    X = np.full((119, 3), 7.0)
    model = finite(case.kind(h=1, alpha=alpha).fit(X, case.y[:-1]), X)
    np.testing.assert_array_equal(model.coef_, 0)
    assert len(model.summary()) == 0


@pytest.mark.parametrize("scale", [1e-100, 1e100])
@pytest.mark.parametrize("standardize", [False, True])
def test_columns_of_extreme_units(case, scale, standardize):
    plain = case.kind(h=3, standardize=standardize).fit(case.X, case.y)
    for unit in (np.full(9, scale), np.where(np.arange(9) % 2, scale, 1.0)):
        model = case.kind(h=3, standardize=standardize).fit(case.X * unit, case.y)
        finite(model, case.X * unit)
        np.testing.assert_allclose(model.coef_ * unit, plain.coef_, atol=1e-4)


@pytest.mark.parametrize("n", [2, 3, 5])
@ALPHAS
@pytest.mark.filterwarnings("ignore:h = :UserWarning")
@NO_MINIMUM
def test_few_samples(case, n, alpha):
    rows = np.unique(case.y, return_index=True)[1] if case.name in ("binary", "classes") else np.arange(n)
    rows = np.concatenate([rows, np.setdiff1d(np.arange(120), rows)])[: max(n, rows.size)]
    y = case.y[rows]
    if case.name == "cox":
        y = np.column_stack([np.arange(1.0, y.shape[0] + 1), np.ones(y.shape[0])])
    finite(case.kind(h=2, alpha=alpha).fit(case.X[rows], y), case.X[rows])


@pytest.mark.parametrize("name", ["lasso", "group", "poisson", "gamma", "huber", "cox", "multitask"])
@ALPHAS
@pytest.mark.filterwarnings("ignore:h = :UserWarning")
def test_one_sample(name, alpha, make):
    case = make(name)
    y = np.array([[2.0, 1.0]]) if name == "cox" else np.abs(case.y[:1]) + 1
    model = finite(case.kind(h=2, alpha=alpha).fit(case.X[:1], y), case.X[:1])
    np.testing.assert_array_equal(model.coef_, 0)


@pytest.mark.filterwarnings("ignore:h = :UserWarning")
@pytest.mark.parametrize("h", [12, 20])
@NO_MINIMUM
def test_more_free_features_than_samples(case, h, make):
    wide = make(case.name, n=12, p=20)
    model = finite(wide.kind(h=h).fit(wide.X, wide.y), wide.X)
    assert model.support_.size <= h


def test_one_feature(case):
    X = case.X[:, :1]
    for h in (0, 1):
        finite(case.kind(h=h).fit(X, case.y), X)


def test_columns_with_a_huge_mean(case):
    plain = case.kind(h=3).fit(case.X, case.y)
    model = finite(case.kind(h=3).fit(case.X + 1e6, case.y), case.X + 1e6)
    np.testing.assert_array_equal(model.support_, plain.support_)
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-4)


def test_integers_and_booleans(case):
    for X in ((3 * case.X).astype(int), case.X > 0):
        model = finite(case.kind(h=3).fit(X, case.y), X)
        np.testing.assert_array_equal(model.coef_, case.kind(h=3).fit(X.astype(float), case.y).coef_)


@pytest.mark.parametrize("solver", ["bcd", "dc", "prox"])
def test_first_order_solvers_that_are_cut_short(case, solver):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = case.kind(h=3, solver=solver, max_iter=3).fit(1e3 * case.X, case.y)
    finite(model, 1e3 * case.X)
    assert model.support_.size <= 3


# -- targets of each ---------------------------------------------------------------------------------------


@ALPHAS
@pytest.mark.parametrize("n_classes", [2, 4])
@NO_MINIMUM
def test_separable_classes(alpha, n_classes):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 8))
    y = np.digitize(X[:, 2], np.linspace(-0.6, 0.6, n_classes - 1))
    model = finite(TrimmedLogisticRegression(h=2, alpha=alpha).fit(X, y), X)
    assert model.score(X, y) > 0.9
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


def test_a_class_of_one_sample():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 5)), np.arange(60) % 2
    y[7] = 2
    for h in (0, 2):
        assert finite(TrimmedLogisticRegression(h=h).fit(X, y), X).coef_.shape == (3, 5)
    y = (np.arange(60) == 7).astype(int)
    finite(TrimmedLogisticRegression(h=2, class_weight="balanced").fit(X, y), X)


def test_a_class_of_no_weight():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 5)), np.arange(60) % 3
    model = finite(TrimmedLogisticRegression(h=2).fit(X, y, y < 2), X)
    assert model.predict_proba(X)[:, 2].max() < 1e-3


@ALPHAS
@pytest.mark.parametrize("value", [0.0, 1.0, 1e-10, 1e10])
def test_counts_that_do_not_vary(alpha, value):
    X = np.random.default_rng(0).standard_normal((50, 4))
    model = finite(TrimmedPoissonRegressor(h=1, alpha=alpha).fit(X, np.full(50, value)), X)
    np.testing.assert_allclose(model.predict(X), value, rtol=1e-3, atol=1e-8)
    assert np.isfinite(model.score(X, np.full(50, value)))


@ALPHAS
def test_a_single_count(alpha):
    X = np.random.default_rng(0).standard_normal((50, 4))
    y = np.where(np.arange(50) == 3, 5.0, 0.0)
    model = finite(TrimmedPoissonRegressor(h=2, alpha=alpha).fit(X, y), X)
    assert model.score(X, y) >= -1e-9


@pytest.mark.parametrize("scale", [1e-100, 1e-8, 1e8])
def test_positive_targets_of_extreme_units(scale, make):
    case = make("gamma")
    plain = TrimmedGammaRegressor(h=3).fit(case.X, case.y)
    model = finite(TrimmedGammaRegressor(h=3).fit(case.X, scale * case.y), case.X)
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-4)
    assert model.intercept_ == pytest.approx(plain.intercept_ + np.log(scale), abs=1e-3)
    finite(TrimmedGammaRegressor(h=3).fit(case.X, 1e100 * case.y), case.X)


@pytest.mark.parametrize("scale", [1e-100, 1e100])
def test_targets_of_extreme_units(scale, make):
    case = make("huber")
    plain = TrimmedHuberRegressor(h=3).fit(case.X, case.y)
    model = finite(TrimmedHuberRegressor(h=3).fit(case.X, scale * case.y), case.X)
    np.testing.assert_allclose(model.coef_ / scale, plain.coef_, atol=1e-4)
    assert model.scale_ / scale == pytest.approx(plain.scale_, rel=1e-4)
    for kind, name in ((TrimmedGroupLasso, "group"), (MultiTaskTrimmedLasso, "multitask")):
        case = make(name)
        plain = kind(h=3).fit(case.X, case.y)
        model = finite(kind(h=3).fit(case.X, scale * case.y), case.X)
        np.testing.assert_allclose(model.coef_ / scale, plain.coef_, atol=1e-5)


def test_targets_without_noise():
    X = np.random.default_rng(0).standard_normal((50, 6))
    y = 2 * X[:, 1] - X[:, 4]
    model = finite(TrimmedHuberRegressor(h=2).fit(X, y), X)
    np.testing.assert_allclose(model.coef_[[1, 4]], [2.0, -1.0], atol=1e-4)
    assert 0 < model.scale_ < 1e-3
    constant = finite(TrimmedHuberRegressor(h=2).fit(X, np.full(50, 3.0)), X)
    assert constant.intercept_ == pytest.approx(3.0)


@ALPHAS
@NO_MINIMUM
def test_one_event(alpha):
    X = np.random.default_rng(0).standard_normal((40, 5))
    y = np.column_stack([np.arange(1.0, 41.0), np.arange(40) == 20])
    model = finite(TrimmedCoxRegressor(h=2, alpha=alpha).fit(X, y), X)
    assert model.event_times_.tolist() == [21.0]
    survival = model.predict_survival_function(X)
    assert ((survival >= 0) & (survival <= 1)).all()


def test_all_events_at_one_time():
    X = np.random.default_rng(0).standard_normal((30, 4))
    y = np.column_stack([np.ones(30), np.arange(30) % 3 > 0])
    for ties in ("efron", "breslow"):
        model = finite(TrimmedCoxRegressor(h=2, ties=ties).fit(X, y), X)
        assert np.isfinite(model.predict_survival_function(X)).all()


@ALPHAS
def test_times_in_the_order_of_a_feature(alpha):
    """The likelihood has no maximum: the coefficient grows, and stays a number."""
    X = np.random.default_rng(0).standard_normal((40, 5))
    y = np.column_stack([np.argsort(np.argsort(-X[:, 2])) + 1.0, np.ones(40)])
    model = finite(TrimmedCoxRegressor(h=1, alpha=alpha).fit(X, y), X)
    assert model.score(X, y) > 0.99
    assert not np.isnan(model.baseline_hazard_).any()
    assert np.isfinite(model.predict_survival_function(X)).all()


@pytest.mark.parametrize("solver", ["mm", "prox", "bcd", "dc"])
@pytest.mark.parametrize("scale", [1e5, 1e15])
def test_gamma_in_other_units_is_the_same_fit(solver, scale):
    """The gradient at 0 is the mean of y, which says nothing about gradients at the solution."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 10))
    y = np.exp(X[:, 0]) * rng.gamma(2.0, size=60)
    plain, scaled = (TrimmedGammaRegressor(h=3, alpha=0.1, solver=solver).fit(X, u * y) for u in (1.0, scale))
    np.testing.assert_allclose(scaled.coef_, plain.coef_, atol=1e-5)
    np.testing.assert_allclose(scaled.intercept_, plain.intercept_ + np.log(scale), atol=1e-5)


@pytest.mark.parametrize("loss", ["poisson", "gamma"])
def test_a_first_order_fit_is_not_worse_than_the_null_model(loss):
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((30, 5)), 1e12 * rng.gamma(0.3, size=30)
    kind = TrimmedPoissonRegressor if loss == "poisson" else TrimmedGammaRegressor
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = kind(h=2, alpha=0.1, solver="prox", max_iter=3).fit(X, y)
    null = get_loss(loss).value(np.full(30, np.log(y.mean())), y, np.full(30, 1 / 30))
    assert model.objective_ <= null


def test_huber_with_a_large_constant_in_y():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 10))
    y = np.round(X[:, 0] + rng.standard_normal(60), 3)
    plain, moved = (TrimmedHuberRegressor(h=3, alpha=0.1).fit(X, y + shift) for shift in (0.0, 2.0**33))
    np.testing.assert_allclose(moved.coef_, plain.coef_, atol=1e-5)
    np.testing.assert_allclose(moved.intercept_ - 2.0**33, plain.intercept_, atol=1e-5)
    violation = float(moved.result_.message.split()[2].rstrip(","))
    assert violation <= float(moved.result_.message.split()[-1])


@pytest.mark.parametrize(("size", "unit"), [(1e-20, 1e20), (1e20, 1e-30)])
def test_coefficients_that_float32_cannot_hold_stay_float64(size, unit):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 4)), rng.standard_normal(60)
    plain, model = TrimmedLasso(h=1).fit(X, y), TrimmedLasso(h=1).fit((size * X).astype(np.float32), unit * y)
    np.testing.assert_allclose(model.coef_ / unit * size, plain.coef_, rtol=1e-5)
    np.testing.assert_allclose(
        model.predict((size * X).astype(np.float32)) / unit, plain.predict(X), rtol=1e-4
    )


def test_a_fit_that_gives_up_is_not_above_the_null_model():
    rng = np.random.default_rng(1061)
    X, y = rng.standard_normal((19, 24)), 1e-120 * rng.standard_normal(19)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = solve(X, y, loss="huber", penalty=TrimmedL1(5), alpha="exact", l2=1.0)
    assert result.objective <= get_loss("huber").value(np.zeros(19), y, np.full(19, 1 / 19)) * (1 + 1e-9)
