"""Estimators that choose a ridge term: its axis, its limits, and its degrees of freedom."""

import numpy as np
import pytest
from sklearn.linear_model import ElasticNet, Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold, RepeatedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from trimreg import MEstimatorCV, TrimmedLasso, TrimmedLassoCV, TrimmedLogisticRegressionCV
from trimreg.diagnostics import is_local_minimum, stationarity
from trimreg.estimators.task import Settings, check_data, set_up
from trimreg.penalties import TrimmedL1
from trimreg.selection import auto_hs, choose, criterion_value
from trimreg.selection import path as path_module
from trimreg.selection.grid import check_l2s, l2_grid
from trimreg.selection.path import ridge_unit, ridges_for
from trimreg.solvers.surface import surface

L2S = [0.0, 0.1, 1.0]


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        ("quadratic", {"alphas": [0.2, 0.05]}),
        ("quadratic", {"alphas": [0.2], "groups": [0, 0, 1, 1, 2, 3]}),
        ("logistic", {"alphas": [0.05]}),
        ("cox", {"alphas": [0.05]}),
    ],
)
def test_the_axis_of_l2_is_that_of_separate_fits(make, loss, options):
    X, y = make(loss, n=90, p=6)
    options = {"loss": loss, "hs": [0, 1, 3], "cv": 3, "rule": "min", **options}
    model = MEstimatorCV(l2s=L2S[::-1], **options).fit(X, y)
    n_alphas = len(model.alphas_)
    assert model.l2_score_path_.shape == (3, n_alphas, 3, 3)
    np.testing.assert_array_equal(model.l2s_, L2S)
    for k, l2 in enumerate(L2S):
        one = MEstimatorCV(l2s=l2, **options).fit(X, y)
        assert one.l2_ == one.selection_l2_ == l2
        np.testing.assert_allclose(one.score_path_, model.l2_score_path_[:, :, k], rtol=1e-5)
        if l2 == model.l2_:
            assert one.best_index_ == model.best_index_
            np.testing.assert_allclose(one.coef_, model.coef_, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(one.coef_path_, model.coef_path_, rtol=1e-4, atol=1e-6)
    i, j = model.best_index_
    k = model.l2s_.tolist().index(model.l2_)
    np.testing.assert_array_equal(model.score_path_, model.l2_score_path_[:, :, k])
    assert (i, j, k) == choose(model.l2_score_path_, model.hs_, model.alphas_)


def of_features(options, S):
    """The options for the features S alone."""
    per_feature = ("groups", "penalty_factor")
    return {name: np.asarray(value)[S] if name in per_feature else value for name, value in options.items()}


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        ("quadratic", {}),
        ("quadratic", {"groups": [0, 0, 1, 1, 2, 3]}),
        ("quadratic", {"positive": True, "penalty_factor": [0.0, 2.0, 1.0, 1.0, 1.0, 1.0]}),
        ("quadratic", {"fit_intercept": False, "standardize": False, "penalty_factor": [0.5, 2.0] * 3}),
        ("multitask", {}),
        ("logistic", {}),
        ("multinomial", {}),
        ("poisson", {}),
        ("cox", {}),
    ],
)
def test_every_l2_is_fitted_to_the_features_of_a_selection(make, loss, options):
    X, y = make(loss, n=60, p=6)
    folds = list(KFold(3).split(X))
    options = {"loss": loss, "tol": 1e-9, **options}
    for h in (1, 3):
        model = MEstimatorCV(hs=[h], l2s=L2S, cv=folds, **options).fit(X, y)
        for f, (train, test) in enumerate(folds):
            one = {"cv": [(np.arange(train.size), np.arange(train.size))]}  # a single l2 selects with it
            select = MEstimatorCV(hs=[h], l2s=model.selection_l2_, **one, **options).fit(X[train], y[train])
            S = select.support_
            for k, l2 in enumerate(L2S):
                part = of_features(options, S)
                n_parts = np.unique(part["groups"]).size if "groups" in part else S.size
                refit = MEstimatorCV(hs=[n_parts], l2s=l2, cv=[(train, test)], **part).fit(X[:, S], y)
                np.testing.assert_allclose(
                    model.l2_score_path_[0, 0, k, f], refit.score_path_[0, 0, 0], rtol=1e-6
                )


def test_selections_are_without_a_ridge_and_near_the_curvature(make):
    X, y = make(n=60, p=6)
    settings = Settings(loss="quadratic", penalty=TrimmedL1(1), alpha=1.0, standardize=True)
    task = set_up(check_data(X, y, None, settings), settings)
    for l2s, expected in (
        (l2_grid(), [0.0, 1.0]),
        ([0.0], [0.0]),
        ([0.5, 3.0], [0.5]),
        ([0.0, 0.01, 2.0, 9.0], [0.0, 2.0]),
    ):
        ridges = ridges_for(task, np.array(l2s), ["exact", 0.1], by_folds=True)
        assert ridges == [(l2, selection) for l2 in l2s for selection in expected]
        for alphas, by_folds in (([0.1], True), (["exact"], False)):
            assert ridges_for(task, np.array(l2s), alphas, by_folds) == [(l2, l2) for l2 in l2s]


def test_soft_cells_beside_best_subsets_have_one_l2(make):
    X, y = make(n=60, p=6)
    options = {"hs": [0, 2], "cv": 3}
    both = TrimmedLassoCV(alphas=["exact", 0.1], l2s=L2S, **options).fit(X, y)
    soft = TrimmedLassoCV(alphas=[0.1], l2s=L2S, **options).fit(X, y)
    hard = TrimmedLassoCV(alphas=["exact"], l2s=L2S, **options).fit(X, y)
    np.testing.assert_allclose(both.l2_score_path_[:, 1], soft.l2_score_path_[:, 0], rtol=1e-8)
    if both.selection_l2_ == hard.selection_l2_:
        np.testing.assert_allclose(both.l2_score_path_[:, 0], hard.l2_score_path_[:, 0], rtol=1e-8)
    assert both.path_.coefs.shape == (2, 2, 6)


def test_many_ridges_take_two_searches_for_subsets(make, monkeypatch):
    calls = []
    monkeypatch.setattr(
        path_module, "surface", lambda problem, *a, **k: calls.append(problem) or surface(problem, *a, **k)
    )
    X, y = make(n=40, p=6)
    TrimmedLassoCV(
        hs=[1, 3], l2s=[0.0, *np.geomspace(0.01, 3, 7)], cv=RepeatedKFold(n_splits=3, n_repeats=2)
    ).fit(X, y)
    assert len(calls) == 2 * 3 * 2 + 1  # selections, folds, repetitions; and all samples


def test_larger_models_are_tried_with_a_ridge(make):
    X, y = make(n=40, p=50)
    for l2s, shrunk in ((0, False), (None, True), ([0.1], True)):
        model = TrimmedLassoCV(l2s=l2s, cv=2).fit(X, y)
        np.testing.assert_array_equal(model.hs_, auto_hs(20, 50, shrunk=shrunk))
    assert TrimmedLassoCV(criterion="ebic").fit(X, y).hs_[-1] == auto_hs(40, 50)[-1]


def test_the_last_fit_has_the_chosen_ridge(make):
    X, y = make(n=40, p=30)
    model = TrimmedLassoCV(hs=[8], l2s="auto").fit(X, y)
    assert model.l2_ > 0
    np.testing.assert_allclose(model.l2s_, l2_grid())
    shown = model.summary().facts
    assert shown.get("l2 of the selection", shown["l2"]) == model.selection_l2_
    assert ("l2 of the selection" in shown) == (model.selection_l2_ != model.l2_)
    selected = TrimmedLasso(h=8, l2=model.selection_l2_).fit(X, y).support_
    np.testing.assert_array_equal(model.support_, selected)
    ridge = make_pipeline(StandardScaler(), Ridge(alpha=40 * model.l2_)).fit(X[:, selected], y)
    np.testing.assert_allclose(model.predict(X), ridge.predict(X[:, selected]), rtol=1e-6)
    assert model.mse_path_.mean() < TrimmedLassoCV(hs=[8], l2s=0).fit(X, y).mse_path_.mean()
    assert "l2" in str(model.summary())


@pytest.mark.parametrize("loss", ["quadratic", "logistic", "cox"])
def test_features_of_another_ridge_are_a_certified_local_minimum(make, loss):
    X, y = make(loss, n=40, p=30)
    for l2 in (0.01, 0.3):
        model = MEstimatorCV(loss=loss, hs=[5], l2s=[l2, 1.0], cv=3, tol=1e-9).fit(X, y)
        assert model.support_.size == 5
        assert model.stationarity_ < 1e-12
        problem = model.problem(X, y)
        assert problem["l2"] == model.l2_
        assert stationarity(**problem) < 1e-12
        assert is_local_minimum(**problem)
        if model.selection_l2_ != model.l2_:
            assert model.result_.swap_optimal is None


def test_without_free_coefficients_it_is_the_elastic_net(make):
    X, y = make(n=60, p=8)
    alphas, folds = [0.3, 0.05], KFold(3)
    model = TrimmedLassoCV(hs=[0], alphas=alphas, l2s=L2S, cv=folds, tol=1e-10).fit(X, y)
    for j, alpha in enumerate(alphas):
        for k, l2 in enumerate(L2S):
            net = ElasticNet(alpha=alpha + l2, l1_ratio=alpha / (alpha + l2), tol=1e-12, max_iter=10**5)
            net = make_pipeline(StandardScaler(), net)
            errors = [
                np.mean((y[test] - net.fit(X[train], y[train]).predict(X[test])) ** 2)
                for train, test in folds.split(X)
            ]
            np.testing.assert_allclose(-model.l2_score_path_[0, j, k], errors, rtol=1e-7)


def test_with_all_coefficients_free_it_is_ridge_regression(make):
    X, y = make(n=60, p=8)
    model = TrimmedLassoCV(hs=[8], l2s=[0.5], cv=KFold(3), tol=1e-10).fit(X, y)
    for k, (train, test) in enumerate(KFold(3).split(X)):
        ridge = make_pipeline(StandardScaler(), Ridge(alpha=0.5 * train.size)).fit(X[train], y[train])
        error = np.mean((y[test] - ridge.predict(X[test])) ** 2)
        np.testing.assert_allclose(model.mse_path_[0, 0, k], error, rtol=1e-8)


def test_every_cell_takes_its_best_ridge_before_the_rule():
    scores = np.full((2, 2, 3, 2), -9.0)
    scores[0, 0, :, 0] = scores[0, 0, :, 1] = [1.0, 3.0, 3.0]  # ties go to the smaller l2
    scores[1, 1, 2] = 4.0, 2.5  # better, but not by an error of the differences
    grid = {"hs": [0, 1], "alphas": ["exact", 0.1]}
    assert choose(scores, **grid) == (1, 1, 2)
    assert choose(scores, **grid, rule="paired") == (0, 0, 1)
    scores[0, 0, 1] = np.nan
    assert choose(scores, **grid, rule="1se") == (0, 0, 2)
    scores[0] = np.nan
    assert choose(scores, **grid, rule="paired") == (1, 1, 2)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_criteria_count_effective_degrees_of_freedom(make, fit_intercept):
    X, y = make(n=50, p=6)
    options = {"hs": [0, 2, 4], "fit_intercept": fit_intercept, "standardize": False}
    model = TrimmedLassoCV(criterion="ebic", l2s=L2S, **options).fit(X, y)
    assert model.l2_criterion_path_.shape == (3, 1, 3)
    Z = X - X.mean(axis=0) * fit_intercept
    for k, l2 in enumerate(L2S):
        for i, h in enumerate(model.hs_):
            fit = TrimmedLasso(h=int(h), l2=l2, fit_intercept=fit_intercept, standardize=False).fit(X, y)
            A = Z[:, fit.support_]
            hat = A @ np.linalg.solve(A.T @ A + 50 * l2 * np.eye(h), A.T)
            deviance = 50 * np.log(np.mean((y - fit.predict(X)) ** 2))
            expected = criterion_value("ebic", deviance, np.trace(hat) + fit_intercept, 50, 6, n_selected=h)
            np.testing.assert_allclose(model.l2_criterion_path_[i, 0, k], expected, rtol=1e-6)
    i, j = model.best_index_
    assert model.criterion_path_[i, j] == model.l2_criterion_path_.min()


@pytest.mark.parametrize("loss", ["logistic", "multinomial", "cox", "multitask"])
def test_the_degrees_of_freedom_fall_from_their_number_to_that_of_the_null_model(make, loss):
    X, y = make(loss, n=80, p=6)
    model = MEstimatorCV(loss=loss, hs=[3], criterion="aic", l2s=[0.0, 1e-9, 0.1, 1e9]).fit(X, y)
    null = MEstimatorCV(loss=loss, hs=[0], l2s=0, criterion="aic").fit(X, y)
    plain, tiny, some, huge = model.l2_criterion_path_[0, 0]
    assert tiny == pytest.approx(plain, abs=1e-3)
    assert huge == pytest.approx(null.criterion_path_[0, 0], abs=1e-3)
    assert np.isfinite(some)


def test_the_automatic_ridges_follow_the_curvature(make):
    def unit(loss, y, X, **options):
        settings = Settings(loss=loss, penalty=TrimmedL1(1), alpha=1.0, fit_intercept=True, **options)
        return ridge_unit(set_up(check_data(X, y, None, settings), settings))

    X, y = make(n=50, p=6)
    assert unit("quadratic", y, X, standardize=True) == pytest.approx(1.0)
    assert unit("quadratic", y, 10 * X) == pytest.approx(100 * np.median(X.var(axis=0)))
    assert unit("logistic", np.arange(50) % 2.0, X, standardize=True) == pytest.approx(0.25)
    counts = np.arange(50) % 7.0
    assert unit("poisson", counts, X, standardize=True) == pytest.approx(counts.mean())
    assert unit("quadratic", y, np.zeros((50, 2))) == 1.0


def test_losses_that_may_have_no_minimum_always_have_a_ridge(make):
    X, y = make("logistic", n=50, p=4)
    unit = y.mean() * (1 - y.mean())
    model = MEstimatorCV(loss="logistic", hs=[1], cv=2).fit(X, y)
    np.testing.assert_allclose(model.l2s_, l2_grid(unit, least=1e-3))
    np.testing.assert_allclose(
        MEstimatorCV(loss="logistic", hs=[1], criterion="bic").fit(X, y).l2_, 1e-3 * unit
    )
    assert MEstimatorCV(hs=[1], criterion="bic").fit(X, y).l2_ == 0.0
    labels = X[:, 0] > 0  # no warning that the classes are separated
    assert TrimmedLogisticRegressionCV(hs=range(3), cv=3).fit(X, labels).h_ >= 1


@pytest.mark.parametrize(
    ("l2s", "expected"),
    [("auto", "auto"), (2, [2.0]), ([1, 0.1, 1.0], [0.1, 1.0]), (np.array([0.5]), [0.5])],
)
def test_check_l2s_sorts(l2s, expected):
    assert check_l2s(l2s) == expected


def test_a_second_fit_forgets_the_ridges_of_the_first(make):
    X, y = make(n=40, p=5)
    model = TrimmedLassoCV(hs=[0, 2], l2s=[0.0, 1.0], cv=3).fit(X, y)
    model.set_params(criterion="bic", l2s=None).fit(X, y)
    assert not hasattr(model, "l2_score_path_")
    assert model.l2_ == 0.0
    labels = y > 0
    classes = TrimmedLogisticRegressionCV(hs=[0, 2], l2s=[0.1, 1.0], criterion="bic").fit(X, labels)
    assert classes.l2_ in (0.1, 1.0)


def few_samples(seed, n=40, p=60):
    """Training and test features with their predictor, of which three features matter."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n + 400, p))
    return X, 2 * X[:, 0] - 2 * X[:, 1] + X[:, 2], rng


@pytest.mark.parametrize("noise", [True, False], ids=["some folds", "all"])
def test_classes_that_can_be_separated_do_not_lead_to_an_empty_model(noise):
    empty = 0
    for seed in (2, 4):
        X, eta, rng = few_samples(seed)
        y = (eta + noise * rng.logistic(size=eta.size) > 0).astype(int)
        plain = TrimmedLogisticRegressionCV(hs=range(5), l2s=1e-7).fit(X[:40], y[:40])
        assert plain.score_path_.min() < -1.5  # a fold is separated, and its coefficients are large
        empty += plain.h_ == 0
        model = TrimmedLogisticRegressionCV(hs=range(5)).fit(X[:40], y[:40])
        assert model.h_ > 0
        assert model.l2_ > 0
        assert model.score_path_[model.best_index_].min() > -1.0
        assert log_loss(y[40:], model.predict_proba(X[40:])) < 0.62
    assert empty or not noise


def test_survival_times_in_a_perfect_order_do_not_lead_to_an_empty_model():
    X, eta, _ = few_samples(0, n=30, p=8)
    y = np.column_stack([np.exp(-eta), np.ones(eta.size)])  # the likelihood of the truth has no maximum
    model = MEstimatorCV(loss="cox", hs=[0, 1, 3], cv=3).fit(X[:30], y[:30])
    assert np.isfinite(model.l2_score_path_).all()
    assert model.h_ == 3
    assert model.score_path_[model.best_index_].mean() > model.score_path_[0, 0].mean() + 0.5
