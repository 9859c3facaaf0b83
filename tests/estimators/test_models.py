"""The trimmed models of every loss: what they share, and scikit-learn's answers where there is no penalty."""

import json
import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn import linear_model as peers
from sklearn.base import clone
from sklearn.exceptions import DataConversionWarning

from trimreg import (
    SLOPE,
    MEstimator,
    MultiTaskTrimmedLasso,
    TrimmedGammaRegressor,
    TrimmedGroupLasso,
    TrimmedHuberRegressor,
    TrimmedL1,
    TrimmedLasso,
    TrimmedLogisticRegression,
    TrimmedPoissonRegressor,
    solve,
)

# -- shared ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["mm", "bcd", "dc", "prox"])
@pytest.mark.parametrize("alpha", ["exact", 0.1])
def test_every_model_with_every_solver(case, solver, alpha):
    model = case.kind(h=3, alpha=alpha, solver=solver, tol=1e-5).fit(case.X, case.y)
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.predict(case.X)).all() if case.name != "classes" else True
    if alpha == "exact":
        assert model.support_.size <= 3
    else:  # all four come to the same objective, on data this easy
        best = case.kind(h=3, alpha=alpha).fit(case.X, case.y).objective_
        assert model.objective_ <= best + 0.02 * abs(best)


def test_the_right_features_are_found(case):
    model = case.kind(h=3).fit(case.X, case.y)
    np.testing.assert_array_equal(model.support_, [0, 1, 2])
    assert model.stationarity_ < 1e-8
    assert model.result_.converged
    np.testing.assert_array_equal(np.flatnonzero(model.trim_weights_ == 0), model.support_)
    np.testing.assert_array_equal(np.flatnonzero(model.entry_order_ > 0), model.support_)
    assert model.score(case.X, case.y) > (0.5 if case.name not in ("huber", "multitask") else 0.2)


def test_attributes_are_those_of_the_result(case):
    model = case.kind(h=3).fit(case.X, case.y)
    result = model.result_
    np.testing.assert_array_equal(
        model.coef_, np.atleast_2d(result.coef) if case.name == "binary" else result.coef
    )
    np.testing.assert_array_equal(np.ravel(model.intercept_), np.ravel(result.intercept))
    for name in ("objective", "stationarity", "alpha", "n_iter"):
        assert getattr(model, name + "_") == getattr(result, name)
    assert model.outliers_.size == 0
    shapes = {"binary": (1, 9), "classes": (3, 9), "multitask": (2, 9)}
    assert model.coef_.shape == shapes.get(case.name, (9,))
    assert np.shape(model.intercept_) == shapes.get(case.name, ())[:1]


@pytest.mark.parametrize("store", [sp.csr_array, sp.csc_matrix, np.asfortranarray], ids=lambda f: f.__name__)
def test_storage_does_not_matter(case, store):
    expected = case.kind(h=3).fit(case.X, case.y)
    model = case.kind(h=3).fit(store(case.X), case.y)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-8)
    if case.name != "classes":
        np.testing.assert_allclose(
            model.predict(store(case.X)), expected.predict(case.X), rtol=1e-6, atol=1e-8
        )


def test_float32_stays(case):
    expected = case.kind(h=3).fit(case.X, case.y)
    X = case.X.astype(np.float32)
    model = case.kind(h=3).fit(X, case.y)
    assert model.coef_.dtype == np.float32
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-4)
    name = next(one for one in ("decision_function", "predict_proba", "predict") if hasattr(model, one))
    assert getattr(model, name)(X).dtype == np.float32


def test_weights_are_repetitions(case):
    times = np.arange(case.X.shape[0]) % 3
    settings = {"ties": "breslow"} if case.name == "cox" else {}
    weighted = case.kind(h=3, tol=1e-8, **settings).fit(case.X, case.y, times)
    repeated = case.kind(h=3, tol=1e-8, **settings).fit(
        np.repeat(case.X, times, axis=0), np.repeat(case.y, times, axis=0)
    )
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-5)
    np.testing.assert_allclose(weighted.intercept_, repeated.intercept_, atol=1e-5)
    assert weighted.score(case.X, case.y, times) == pytest.approx(
        repeated.score(np.repeat(case.X, times, axis=0), np.repeat(case.y, times, axis=0)), abs=1e-5
    )


def test_outliers_are_left_out_and_named(case):
    model = case.kind(h=3, n_outliers=5, tol=1e-8).fit(case.X, case.y)
    assert model.outliers_.size == 5
    assert model.support_.size <= 3
    kept = np.setdiff1d(np.arange(case.X.shape[0]), model.outliers_)
    alone = case.kind(h=3, tol=1e-8).fit(case.X[kept], case.y[kept])
    np.testing.assert_allclose(model.coef_, alone.coef_, atol=1e-5)
    assert "outliers: 5" in str(model.summary())
    assert case.kind(h=3, n_outliers=0.1, effort="low").fit(case.X, case.y).outliers_.size == 12


def test_groups_are_trimmed_together(case):
    groups = np.array(["x", "x", "x", "y", "y", "y", "z", "z", "z"])
    model = case.kind(h=1, groups=groups).fit(case.X, case.y)
    np.testing.assert_array_equal(model.support_, [0, 1, 2])
    np.testing.assert_array_equal(model.trim_weights_, [0, 1, 1])
    as_lists = case.kind(h=1, groups=[[0, 1, 2], [3, 4, 5], [6, 7, 8]]).fit(case.X, case.y)
    np.testing.assert_array_equal(model.coef_, as_lists.coef_)
    assert model.summary().columns["group"] == ["x", "x", "x"]
    assert model.summary().columns["order"] == [1, 1, 1]
    assert as_lists.summary().columns["group"] == [0, 0, 0]


def test_warm_start_and_changes_of_shape(case):
    model = case.kind(h=3, alpha=0.05, solver="prox", warm_start=True).fit(case.X, case.y)
    first = model.n_iter_
    coef = model.coef_
    model.fit(case.X, case.y)
    np.testing.assert_allclose(model.coef_, coef, atol=1e-3)
    if case.name in ("lasso", "group", "multitask", "cox"):  # elsewhere the intercept starts anew
        assert model.n_iter_ == 1 < first
    model.fit(case.X[:, :5], case.y)
    assert model.coef_.shape[-1] == 5


def test_warm_start_with_other_outputs(make):
    case = make("classes")
    model = TrimmedLogisticRegression(h=3, warm_start=True).fit(case.X, case.y)
    assert model.fit(case.X, case.y == "a").coef_.shape == (1, 9)
    assert model.fit(case.X, case.y).coef_.shape == (3, 9)
    case = make("multitask")
    tasks = MultiTaskTrimmedLasso(h=3, warm_start=True).fit(case.X, case.y)
    assert tasks.fit(case.X, case.y[:, [0, 1, 1]]).coef_.shape == (3, 9)


def test_names_clone_and_pickle(case):
    X = pd.DataFrame(case.X, columns=[f"feature {j}" for j in range(9)])
    model = case.kind(h=3).fit(X, case.y)
    assert list(model.feature_names_in_) == list(X.columns)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert str(again.summary()) == str(model.summary())
    np.testing.assert_array_equal(clone(model).fit(X, case.y).coef_, model.coef_)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(X.rename(columns={"feature 0": "other"}))


@pytest.mark.parametrize("name", ["lasso", "binary", "poisson", "gamma", "huber", "cox"])
@pytest.mark.parametrize("alpha", ["exact", 0.05])
def test_positive_coefficients(name, alpha, make):
    case = make(name)
    model = case.kind(h=3, alpha=alpha, positive=True).fit(case.X, case.y)
    assert (model.coef_ >= 0).all()
    assert {0, 2} <= set(model.support_)
    assert 1 not in model.support_  # its effect is negative
    free = case.kind(h=3, alpha=alpha).fit(case.X, case.y)
    assert (free.coef_ < 0).any()


@pytest.mark.parametrize("name", ["classes", "binary", "group"])
def test_positive_is_for_single_coefficients(name, make):
    case = make(name)
    groups = None if name == "classes" else [0, 0, 0, 1, 1, 1, 2, 2, 2]
    kind = TrimmedLasso if name == "group" else case.kind
    with pytest.raises(ValueError, match="positive is for single coefficients"):
        kind(h=1, groups=groups, positive=True).fit(case.X, case.y)


# -- summary -----------------------------------------------------------------------------------------------


def test_summary_of_every_model(case):
    X = pd.DataFrame(case.X * np.geomspace(0.1, 10, 9), columns=list("abcdefghi"))
    factor = np.ones(9)
    factor[4] = 0.0
    model = case.kind(h=3, alpha=0.05, penalty_factor=factor, standardize=False).fit(X, case.y)
    table = model.summary()
    assert table.title == case.kind.__name__
    assert table.names[0] == "e"  # never penalized
    assert set(table.names) == {"abcdefghi"[j] for j in model.support_}
    status = dict(zip(table.names, table.columns["status"], strict=True))
    assert status["e"] == "always"
    assert sum(value == "free" for value in status.values()) == 3
    assert table.columns["order"] == [None, *range(1, model.support_.size)]
    coef = np.atleast_2d(model.coef_)
    j = "abcdefghi".index(table.names[1])
    size = np.linalg.norm(coef[:, j]) * X.iloc[:, j].std(ddof=0)
    shown = table.columns["norm" if coef.shape[0] > 1 else "standardized"][1]
    assert abs(shown) == pytest.approx(size)
    assert table.facts["samples"] == 120
    assert table.facts["h"] == 3
    assert json.loads(json.dumps(table.to_dict())) == table.to_dict()
    for text in (table.to_text(), table.to_html(), table.to_latex()):
        assert "nan" not in text


def test_summary_names_the_outputs(make):
    case = make("classes")
    table = TrimmedLogisticRegression(h=2).fit(case.X, case.y).summary()
    assert {"coef[a]", "coef[b]", "coef[c]", "norm"} <= set(table.columns)
    assert list(table.facts["intercepts"]) == ["a", "b", "c"]
    assert "… 2 more" in str(TrimmedLogisticRegression(h=4).fit(case.X, case.y).summary(max_rows=2))
    tasks = make("multitask")
    assert "coef[1]" in MultiTaskTrimmedLasso(h=2).fit(tasks.X, tasks.y).summary().columns


def test_summary_of_an_empty_model_and_of_other_penalties(make):
    case = make("lasso")
    assert "no variables in the model" in str(TrimmedLasso(h=0).fit(case.X, case.y).summary())
    model = MEstimator(penalty=SLOPE(), alpha=0.1, solver="prox").fit(case.X, case.y)
    assert set(model.summary().names) == {f"x{j}" for j in model.support_}


# -- agreement where there is no penalty -------------------------------------------------------------------

TIGHT = {"tol": 1e-10, "h": 9}


@pytest.mark.parametrize("name", ["binary", "classes"])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_logistic_regression_of_scikit_learn(name, fit_intercept, weighted, make):
    case = make(name)
    weight = np.arange(120) % 4 + 0.5 if weighted else None
    class_weight = "balanced" if weighted else None
    settings = {"fit_intercept": fit_intercept, "class_weight": class_weight}
    model = TrimmedLogisticRegression(**TIGHT, **settings).fit(case.X, case.y, weight)
    peer = peers.LogisticRegression(C=1e9, tol=1e-10, solver="newton-cholesky", **settings)
    peer.fit(case.X, case.y, weight)
    np.testing.assert_allclose(model.predict_proba(case.X), peer.predict_proba(case.X), atol=1e-6)
    np.testing.assert_array_equal(model.predict(case.X), peer.predict(case.X))
    np.testing.assert_array_equal(model.classes_, peer.classes_)
    assert model.score(case.X, case.y) == peer.score(case.X, case.y)
    np.testing.assert_allclose(
        model.predict_log_proba(case.X), np.log(model.predict_proba(case.X)), rtol=1e-9
    )
    if name == "binary":
        np.testing.assert_allclose(model.coef_, peer.coef_, atol=1e-6)
        np.testing.assert_allclose(model.intercept_, peer.intercept_, atol=1e-6)
        np.testing.assert_allclose(model.decision_function(case.X), peer.decision_function(case.X), atol=1e-5)
    else:  # no class is the reference
        np.testing.assert_allclose(model.coef_.sum(axis=0), 0.0, atol=1e-12)
        np.testing.assert_allclose(model.intercept_.sum(), 0.0, atol=1e-12)
        centred = peer.coef_ - peer.coef_.mean(axis=0)
        np.testing.assert_allclose(model.coef_, centred, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "kind", "peer"),
    [
        ("poisson", TrimmedPoissonRegressor, peers.PoissonRegressor),
        ("gamma", TrimmedGammaRegressor, peers.GammaRegressor),
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_generalized_linear_models_of_scikit_learn(name, kind, peer, weighted, make):
    case = make(name)
    weight = np.arange(120) % 4 + 0.5 if weighted else None
    model = kind(**TIGHT).fit(case.X, case.y, weight)
    peer = peer(alpha=0.0, tol=1e-12, solver="newton-cholesky").fit(case.X, case.y, weight)
    np.testing.assert_allclose(model.coef_, peer.coef_, atol=1e-6)
    assert model.intercept_ == pytest.approx(peer.intercept_, abs=1e-6)
    np.testing.assert_allclose(model.predict(case.X), peer.predict(case.X), rtol=1e-6)
    for y in (case.y, case.y[::-1]):
        expected = peer.score(case.X, y, weight)
        assert model.score(case.X, y, weight) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("epsilon", [1.1, 1.35, 3.0])
def test_huber_regression_of_scikit_learn(epsilon, make):
    case = make("huber")
    model = TrimmedHuberRegressor(epsilon=epsilon, **TIGHT).fit(case.X, case.y)
    peer = peers.HuberRegressor(epsilon=epsilon, alpha=0.0, tol=1e-9, max_iter=10_000).fit(case.X, case.y)

    def objective(fitted):
        z = np.abs(case.y - fitted.predict(case.X)) / fitted.scale_
        return fitted.scale_ * (1 + np.mean(np.where(z < epsilon, z**2, epsilon * (2 * z - epsilon))))

    assert 2 * model.objective_ == pytest.approx(objective(model), rel=1e-12)
    assert objective(model) <= objective(peer) <= objective(model) * (1 + 1e-8)
    np.testing.assert_allclose(model.coef_, peer.coef_, atol=1e-4)  # as near as its solver comes
    assert model.scale_ == pytest.approx(peer.scale_, rel=1e-4)
    given = TrimmedHuberRegressor(epsilon=epsilon, scale=model.scale_, **TIGHT).fit(case.X, case.y)
    np.testing.assert_allclose(given.coef_, model.coef_, atol=1e-6)
    assert given.scale_ == model.scale_


def test_least_squares_of_scikit_learn(make):
    case = make("multitask")
    expected = peers.LinearRegression().fit(case.X, case.y)
    model = MultiTaskTrimmedLasso(**TIGHT).fit(case.X, case.y)
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-8)
    np.testing.assert_allclose(model.intercept_, expected.intercept_, atol=1e-8)
    np.testing.assert_allclose(model.predict(case.X), expected.predict(case.X), atol=1e-8)
    one = MultiTaskTrimmedLasso(**TIGHT).fit(case.X, case.y[:, :1])
    np.testing.assert_allclose(one.coef_, expected.coef_[:1], atol=1e-8)
    group = TrimmedGroupLasso(groups=np.arange(9) // 2, h=5, tol=1e-10).fit(case.X, case.y[:, 0])
    np.testing.assert_allclose(group.coef_, expected.coef_[0], atol=1e-6)


@pytest.mark.parametrize("alpha", [0.02, 0.2])
def test_without_trimming_it_is_the_penalized_model_of_scikit_learn(alpha, make):
    tasks = make("multitask")
    peer = peers.MultiTaskLasso(alpha=alpha, tol=1e-10).fit(tasks.X, tasks.y)
    model = MultiTaskTrimmedLasso(h=0, alpha=alpha, standardize=False, tol=1e-9).fit(tasks.X, tasks.y)
    np.testing.assert_allclose(model.coef_, peer.coef_, atol=1e-6)
    case = make("binary")
    peer = peers.LogisticRegression(
        l1_ratio=1.0, C=1 / (120 * alpha), solver="saga", tol=1e-9, max_iter=100_000
    )
    peer.fit(case.X, case.y)
    model = TrimmedLogisticRegression(h=0, alpha=alpha, standardize=False, tol=1e-9).fit(case.X, case.y)
    np.testing.assert_allclose(model.coef_, peer.coef_, atol=1e-5)


# -- each ---------------------------------------------------------------------------------------------------


def test_group_lasso(make):
    case = make("group")
    groups = ["u", "u", "v", "w", "w", "v", "v", "u", "w"]
    model = TrimmedGroupLasso(groups, h=1).fit(case.X, case.y)
    np.testing.assert_array_equal(model.groups_, [0, 0, 1, 2, 2, 1, 1, 0, 2])
    np.testing.assert_array_equal(model.group_support_, [0])
    np.testing.assert_array_equal(model.support_, [0, 1, 7])
    for q in (2, np.inf):
        penalty = TrimmedL1(1, groups=groups, q=q)
        soft = TrimmedGroupLasso(groups, h=1, alpha=0.1, q=q).fit(case.X, case.y)
        result = solve(case.X, case.y, penalty=penalty, alpha=0.1, fit_intercept=True, standardize=True)
        np.testing.assert_allclose(soft.coef_, result.coef, atol=1e-8)
    plain = TrimmedGroupLasso(h=3).fit(case.X, case.y)
    np.testing.assert_array_equal(plain.groups_, np.arange(9))
    np.testing.assert_array_equal(plain.group_support_, plain.support_)


def test_classes_of_any_kind(make):
    case = make("binary")
    expected = TrimmedLogisticRegression(h=3).fit(case.X, case.y)
    for labels in (np.array([5, -3]), np.array([1.0, 2.0]), np.array(["no", "yes"], dtype=object)):
        y = labels[case.y.astype(int)]
        model = TrimmedLogisticRegression(h=3).fit(case.X, y.tolist())
        sign = 1 if labels[0] < labels[1] else -1
        np.testing.assert_allclose(model.coef_, sign * expected.coef_, atol=1e-5)
        assert set(model.predict(case.X)) <= set(labels)
        np.testing.assert_array_equal(model.predict(case.X) == labels[1], expected.predict(case.X))


@pytest.mark.parametrize("name", ["binary", "classes"])
def test_class_weights_are_sample_weights(name, make):
    case = make(name)
    classes, codes = np.unique(case.y, return_inverse=True)
    factor = {classes[0]: 3.0, classes[1]: 0.5}
    model = TrimmedLogisticRegression(h=3, class_weight=factor).fit(case.X, case.y)
    by_hand = np.array([3.0, 0.5, 1.0])[codes]
    weighted = TrimmedLogisticRegression(h=3).fit(case.X, case.y, by_hand)
    np.testing.assert_allclose(model.coef_, weighted.coef_, atol=1e-8)
    balanced = TrimmedLogisticRegression(h=3, class_weight="balanced").fit(case.X, case.y)
    by_hand = TrimmedLogisticRegression(h=3).fit(case.X, case.y, 1 / np.bincount(codes)[codes])
    np.testing.assert_allclose(balanced.coef_, by_hand.coef_, atol=1e-8)
    assert not np.allclose(balanced.coef_, model.coef_, atol=1e-3)


def test_extreme_predictors_have_probabilities(make):
    case = make("classes")
    model = TrimmedLogisticRegression(h=3).fit(case.X, case.y)
    far = 1e5 * case.X
    np.testing.assert_allclose(model.predict_proba(far).sum(axis=1), 1.0)
    assert np.isfinite(model.predict_log_proba(far)).all()
    assert (model.predict_log_proba(far) <= 0).all()
    two = TrimmedLogisticRegression(h=3).fit(case.X, case.y == "a")
    assert np.isfinite(two.predict_log_proba(far)).all()
    np.testing.assert_allclose(two.predict_proba(far).sum(axis=1), 1.0)


def test_separable_classes_are_told(make):
    case = make("lasso")
    y = case.X[:, 0] > 0
    model = TrimmedLogisticRegression(h=2).fit(case.X, y)
    assert model.score(case.X, y) == 1.0
    assert np.isfinite(model.coef_).all()
    assert "separate the classes" in model.result_.message
    several = TrimmedLogisticRegression(h=1).fit(case.X, np.digitize(case.X[:, 0], [-0.5, 0.5]))
    assert np.isfinite(several.coef_).all()
    overlapping = make("binary")
    message = TrimmedLogisticRegression(h=2).fit(overlapping.X, overlapping.y).result_.message
    assert "separate the classes" not in message


def test_scores_of_targets_that_do_not_vary(make):
    X = make("poisson").X
    zeros = TrimmedPoissonRegressor(h=1).fit(X, np.zeros(120))
    assert zeros.predict(X).max() < 1e-6
    assert 0.0 <= zeros.score(X, np.zeros(120)) <= 1.0
    same = TrimmedGammaRegressor(h=1).fit(X, np.full(120, 3.0))
    assert same.score(X, np.full(120, 3.0)) == 1.0
    assert same.score(X, np.full(120, 9.0)) == 0.0


def test_outliers_of_targets_in_other_forms(make):
    case = make("lasso")
    y = case.y.copy()
    y[:4] += 300.0
    expected = TrimmedLasso(h=3, n_outliers=4).fit(case.X, y)
    np.testing.assert_array_equal(expected.outliers_, np.arange(4))
    with pytest.warns(DataConversionWarning, match="column-vector"):
        column = TrimmedLasso(h=3, n_outliers=4).fit(case.X, y[:, None])
    np.testing.assert_array_equal(column.coef_, expected.coef_)
    np.testing.assert_array_equal(TrimmedLasso(h=3, n_outliers=4).fit(case.X, list(y)).coef_, expected.coef_)
