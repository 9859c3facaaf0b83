"""Ordered classes, quantiles and the squared hinge: fits of other libraries and of plain minimizers."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import QuantileRegressor
from sklearn.svm import LinearSVC

from trimreg import (
    MEstimator,
    MEstimatorCV,
    TrimmedL1,
    TrimmedLogisticRegression,
    TrimmedOrdinalRegression,
    TrimmedQuantileRegressor,
    load,
    save,
)
from trimreg.losses import Ordinal, Quantile

N, P = 150, 3


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, P)) + 0.2
    latent = X @ [1.0, -0.7, 0.3] + rng.logistic(size=N)
    return X, np.digitize(latent, [-1.0, 0.3, 1.5]), latent


# -- ordered classes -----------------------------------------------------------------------------------------


def minus_log_likelihood(v, X, y):
    """Of coefficients and thresholds, from the cumulative probabilities."""
    ends = np.concatenate([[-np.inf], v[P:], [np.inf]])
    eta = X @ v[:P]
    below, above = (1 / (1 + np.exp(eta - ends[y + k])) for k in (0, 1))
    return -np.mean(np.log(np.maximum(above - below, 1e-300)))


def test_all_features_reach_the_largest_likelihood(data):
    X, y, _ = data
    start = np.array([0, 0, 0, -1.0, 0.0, 1.0])
    best = minimize(minus_log_likelihood, start, (X, y), method="BFGS", options={"gtol": 1e-7})
    model = TrimmedOrdinalRegression(h=P, tol=1e-12).fit(X, y)
    ours = np.append(model.coef_, model.thresholds_)
    assert_allclose(ours, best.x, atol=1e-5)
    assert model.objective_ <= best.fun + 1e-13
    probability = model.predict_proba(X)
    assert_allclose(probability.sum(axis=1), 1.0)
    assert -np.mean(np.log(probability[np.arange(N), y])) == pytest.approx(model.objective_)
    assert model.score(X, y) == np.mean(model.classes_[probability.argmax(axis=1)] == y)


def test_all_features_as_statsmodels(data):
    ordinal = pytest.importorskip("statsmodels.miscmodels.ordinal_model")
    X, y, _ = data
    offset = np.linspace(-1.0, 1.0, N)
    theirs = ordinal.OrderedModel(y, X, offset=offset, distr="logit")
    found = theirs.fit(method="bfgs", disp=0, gtol=1e-8, maxiter=500).params
    model = TrimmedOrdinalRegression(h=P, tol=1e-12).fit(X, y, offset=offset)
    assert_allclose(model.coef_, found[:P], atol=1e-6)
    assert_allclose(model.thresholds_, theirs.transform_threshold_params(found)[1:-1], atol=1e-6)


def test_two_classes_are_logistic(data):
    X, y, _ = data
    model = TrimmedOrdinalRegression(h=2, tol=1e-12).fit(X, y > 1)
    logistic = TrimmedLogisticRegression(h=2, tol=1e-12).fit(X, y > 1)
    assert_allclose(model.coef_, logistic.coef_[0], atol=1e-9)
    assert_allclose(-model.thresholds_, logistic.intercept_, atol=1e-9)
    assert_allclose(model.predict_proba(X), logistic.predict_proba(X), atol=1e-9)


def test_thresholds_of_predictors_far_apart():
    """Their best values are found where most of the loss is flat, or the classes are unordered."""
    rng = np.random.default_rng(0)
    y, d = rng.integers(0, 4, 60).astype(float), np.full(60, 1 / 60)
    for size in (1.0, 50.0, 1e4):
        eta = size * rng.standard_normal(60)
        loss = Ordinal().bound(y, d)
        value, c = loss.value(eta, y, d), loss.thresholds_at(eta, y, d)
        assert np.all(np.diff(c) > 0)
        for move in (*np.eye(3), -np.ones(3)):
            for step in (1e-3, 0.1, 10.0):
                other = np.sort(c + step * size * move)
                assert Ordinal(thresholds=other).value(eta, y, d) >= value - 1e-12 * abs(value)


def test_the_order_of_the_classes(data):
    X, y, _ = data
    words = np.array(["never", "hardly", "often", "always"])
    numbers = TrimmedOrdinalRegression(h=2).fit(X, y)
    given = TrimmedOrdinalRegression(h=2, classes=words.tolist()).fit(X, words[y])
    column = pd.Series(pd.Categorical(words[y], words, ordered=True))
    for model in (given, TrimmedOrdinalRegression(h=2).fit(X, column)):
        assert_allclose(model.coef_, numbers.coef_)
        assert model.classes_.tolist() == words.tolist()
        assert model.predict(X).tolist() == words[numbers.predict(X)].tolist()
    for classes, why in ((words[:3], "'always' of y is not among them"), ([*words, "never"], "occur twice")):
        with pytest.raises(ValueError, match=f"classes must be all classes of y in their order; .*{why}"):
            TrimmedOrdinalRegression(classes=classes).fit(X, words[y])


def test_a_class_without_weight_has_probability_0(data, tmp_path):
    X, y, _ = data
    without = TrimmedOrdinalRegression(h=2).fit(X[y != 1], y[y != 1])
    for gone in (0, 1, 3):
        weight = (y != gone).astype(float)
        model = TrimmedOrdinalRegression(h=2).fit(X, y, sample_weight=weight)
        assert not model.predict_proba(X)[:, gone].any()
        again = load(save(model, tmp_path / "model.json"))
        assert again.predict(X).tolist() == model.predict(X).tolist()
        if gone == 1:
            assert_allclose(model.coef_, without.coef_, atol=1e-6)
    by_name = MEstimator("ordinal", TrimmedL1(2), alpha="exact", standardize=True).fit(X, 2 * y + 1)
    assert_allclose(by_name.thresholds_[[1, 3, 5]], TrimmedOrdinalRegression(h=2).fit(X, y).thresholds_)


def test_classes_that_the_features_separate(data):
    X = data[0]
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    with pytest.warns(ConvergenceWarning, match="the features separate the classes"):
        TrimmedOrdinalRegression(h=1).fit(X, y)
    assert TrimmedOrdinalRegression(h=1, l2=0.01).fit(X, y).support_.tolist() == [0]


def test_folds_score_ordered_classes_with_the_thresholds_of_the_fit(data):
    X, y, _ = data
    train = np.arange(N) % 3 > 0
    cv = [(train.nonzero()[0], (~train).nonzero()[0])]
    found = MEstimatorCV("ordinal", hs=[2], l2s=[0.0], cv=cv).fit(X, y)
    model = TrimmedOrdinalRegression(h=2).fit(X[train], y[train])
    probability = model.predict_proba(X[~train])[np.arange((~train).sum()), y[~train]]
    assert found.score_path_[0, 0, 0] == pytest.approx(np.log(probability).mean(), rel=1e-5)


def test_bad_classes_and_thresholds_are_refused_by_name(data):
    X, y, _ = data
    for bad in (0 * y, np.full(N, "a")):
        with pytest.raises(ValueError, match="y must have at least two classes; got 1 class"):
            TrimmedOrdinalRegression().fit(X, bad)
    with pytest.raises(ValueError, match="at least two ordered classes of positive weight; got 1"):
        TrimmedOrdinalRegression().fit(X, y, sample_weight=y == 1)
    with pytest.raises(ValueError, match="y must have at least two ordered classes; got only 2"):
        MEstimator("ordinal").fit(X, 0 * y + 2)
    with pytest.raises(ValueError, match="y must hold ordered classes"):
        MEstimator("ordinal").fit(X, y + 1e7)
    with pytest.raises(ValueError, match="thresholds must be None or increasing"):
        Ordinal(thresholds=[1.0, 0.0])
    with pytest.raises(ValueError, match="n_classes must be"):
        Ordinal(n_classes=1)
    with pytest.raises(ValueError, match="n_classes must be the number of thresholds plus one"):
        Ordinal(n_classes=2, thresholds=[1.0, 2.0])
    with pytest.raises(ValueError, match="thresholds must be given"):
        Ordinal().probabilities(np.zeros(2))


# -- quantiles -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [0.1, 0.5, 0.8])
def test_a_small_smoothing_gives_the_check_loss(data, q):
    X, _, y = data
    theirs = QuantileRegressor(quantile=q, alpha=0.0, solver="highs").fit(X, y)  # a linear program

    def check_loss(model):
        residual = y - model.predict(X)
        return np.mean(np.maximum(q * residual, (q - 1) * residual))

    excess = []
    for smoothing in (0.1, 0.01, 1e-4):
        model = TrimmedQuantileRegressor(h=P, quantile=q, smoothing=smoothing).fit(X, y)
        assert model.result_.converged
        excess.append(check_loss(model) - check_loss(theirs))
        assert -1e-12 <= excess[-1] <= smoothing * np.log(2)
    assert excess[2] < 1e-6 < excess[0]
    assert_allclose(model.coef_, theirs.coef_, atol=2e-3)
    assert abs(np.mean(y <= model.predict(X)) - q) <= 4 / N
    assert model.score(X, y) > 0.05


def test_the_unit_of_y_does_not_matter(data):
    X, _, y = data
    one = TrimmedQuantileRegressor(h=2, quantile=0.3, tol=1e-10).fit(X, y)
    other = TrimmedQuantileRegressor(h=2, quantile=0.3, tol=1e-10).fit(X, 1e6 * y + 1e8)
    assert_allclose(other.coef_, 1e6 * one.coef_, rtol=1e-6)
    assert other.smoothing_ == pytest.approx(1e6 * one.smoothing_)
    moved = TrimmedQuantileRegressor(h=2, quantile=0.3, smoothing=one.smoothing_, tol=1e-10)
    assert_allclose(moved.fit(X, y + X[:, 2], offset=X[:, 2]).coef_, one.coef_, atol=1e-8)
    assert TrimmedQuantileRegressor(h=1).fit(X, np.repeat([0.0, 1.0], [N - 9, 9])).smoothing_ > 0


def test_bad_quantiles_are_refused_by_name(data):
    X, _, y = data
    for bad in (0.0, 1.0, -1.0, 1.5, np.nan):
        with pytest.raises(ValueError, match="quantile must be"):
            Quantile(bad)
        with pytest.raises(ValueError, match="quantile must be"):
            TrimmedQuantileRegressor(quantile=bad).fit(X, y)
    for bad in (0.0, -1.0, np.inf):
        with pytest.raises(ValueError, match="smoothing must be"):
            TrimmedQuantileRegressor(smoothing=bad).fit(X, y)


# -- squared hinge -------------------------------------------------------------------------------------------


def test_squared_hinge_as_scikit_learn(data):
    X, y, _ = data
    labels, C = (y > 1).astype(float), 0.3
    theirs = LinearSVC(loss="squared_hinge", dual=False, C=C, fit_intercept=False, tol=1e-12, max_iter=10_000)
    theirs.fit(X, labels)
    how = {"l2": 1 / (2 * C * N), "fit_intercept": False, "tol": 1e-12}
    model = MEstimator("squared_hinge", TrimmedL1(P), **how).fit(X, labels)
    assert_allclose(model.coef_, theirs.coef_[0], atol=1e-6)
    assert np.all((model.predict(X) >= 0.5) == theirs.predict(X))
    with pytest.raises(ValueError, match=r"y must be 0 or 1; got -1\.0"):
        MEstimator("squared_hinge").fit(X, 2 * labels - 1)
