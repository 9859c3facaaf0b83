"""Estimators that choose h and alpha: the choice by hand and every kind of fold."""

from dataclasses import replace

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.metrics import make_scorer, mean_absolute_error, roc_auc_score
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    RepeatedKFold,
    ShuffleSplit,
    StratifiedKFold,
)

from trimreg import (
    MEstimatorCV,
    TrimmedLasso,
    TrimmedLassoCV,
    TrimmedLogisticRegression,
    TrimmedLogisticRegressionCV,
    TrimmedPoissonRegressor,
    trimmed_path,
)
from trimreg.losses import Poisson
from trimreg.selection import CRITERIA, auto_hs, choose, criterion_value
from trimreg.selection.crossval import _settled, entry_over_path

HS, ALPHAS = [0, 1, 2, 3, 5], ["exact", 0.3, 0.05]
MODELS = [TrimmedLassoCV, TrimmedLogisticRegressionCV, MEstimatorCV]


def refit(kind, h, alpha, X, y, **options):
    return kind(h=h, alpha=alpha, **options).fit(X, y)


# -- the choice, by hand -----------------------------------------------------------------------------------


def test_the_scores_the_choice_and_the_last_fit_by_hand(make):
    X, y = make(n=60, p=8)
    folds = KFold(4)
    model = TrimmedLassoCV(hs=HS, alphas=ALPHAS, l2s=0, cv=folds, rule="min").fit(X, y)
    expected = np.empty((5, 3, 4))
    for i, h in enumerate(HS):
        for j, alpha in enumerate(ALPHAS):
            for k, (train, test) in enumerate(folds.split(X)):
                fit = refit(TrimmedLasso, h, alpha, X[train], y[train])
                expected[i, j, k] = np.mean((y[test] - fit.predict(X[test])) ** 2)
    np.testing.assert_allclose(model.mse_path_, expected, rtol=1e-4)
    np.testing.assert_array_equal(model.score_path_, -model.mse_path_)
    i, j = np.unravel_index(expected.mean(axis=2).argmin(), (5, 3))
    assert model.best_index_ == (i, j)
    assert model.h_ == HS[i]
    assert model.chosen_alpha_ == ALPHAS[j]
    best = refit(TrimmedLasso, HS[i], ALPHAS[j], X, y)
    np.testing.assert_allclose(model.coef_, best.coef_, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(model.intercept_, best.intercept_, rtol=1e-5)
    assert model.alpha_ == best.alpha_
    assert model.result_.swap_optimal == best.result_.swap_optimal
    np.testing.assert_allclose(model.coef_path_[i, j], best.coef_, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(model.predict(X), best.predict(X), atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "loss", "plain", "alphas"),
    [
        (TrimmedLogisticRegressionCV, "logistic", TrimmedLogisticRegression, ["exact"]),
        (TrimmedLogisticRegressionCV, "multinomial", TrimmedLogisticRegression, ["exact", 0.05]),
        (MEstimatorCV, "poisson", TrimmedPoissonRegressor, ["exact", 0.2, 0.05]),
    ],
)
def test_the_last_fit_is_that_of_the_estimator_without_cv(make, kind, loss, plain, alphas):
    X, y = make(loss, n=90, p=6)
    options = {"loss": loss} if kind is MEstimatorCV else {}
    model = kind(l2s=0, hs=[0, 2, 3], alphas=alphas, cv=3, **options).fit(X, y)
    best = refit(plain, model.h_, model.chosen_alpha_, X, y)
    np.testing.assert_allclose(model.objective_, best.objective_, rtol=1e-6)
    np.testing.assert_allclose(model.coef_, best.coef_, atol=1e-4)
    np.testing.assert_allclose(model.predict(X), best.predict(X), rtol=1e-3)
    if kind is TrimmedLogisticRegressionCV:
        np.testing.assert_allclose(model.predict_proba(X), best.predict_proba(X), atol=1e-4)
    if loss == "multinomial":  # probabilities leave the mean over the classes open: it is 0
        np.testing.assert_allclose(model.coef_path_.sum(axis=2), 0.0, atol=1e-9)
        i, j = model.best_index_
        np.testing.assert_allclose(model.coef_path_[i, j], model.coef_, atol=1e-4)


def test_one_standard_error(make):
    X, y = make(n=60, p=8, seed=3)
    model = TrimmedLassoCV(l2s=0, hs=range(7), cv=5, rule="1se").fit(X, y)
    scores = model.score_path_
    mean, error = scores.mean(axis=2), scores.std(axis=2, ddof=1) / np.sqrt(5)
    best = mean.argmax()
    assert model.h_ == model.hs_[np.flatnonzero(mean[:, 0] >= mean[best, 0] - error[best, 0])[0]]
    assert model.h_ < TrimmedLassoCV(l2s=0, hs=range(7), cv=5).fit(X, y).h_
    assert model.best_index_ == choose(scores, model.hs_, model.alphas_, "1se")


def test_criteria_of_least_squares_by_hand(make):
    X, y = make(n=60, p=8)
    fits = [[refit(TrimmedLasso, h, alpha, X, y) for alpha in ALPHAS] for h in HS]
    deviance = [[60 * np.log(np.mean((y - fit.predict(X)) ** 2)) for fit in row] for row in fits]
    df = [[fit.support_.size + 1 for fit in row] for row in fits]
    for name in CRITERIA:
        model = TrimmedLassoCV(hs=HS, alphas=ALPHAS, criterion=name).fit(X, y)
        expected = criterion_value(name, deviance, df, 60, 8)
        np.testing.assert_allclose(model.criterion_path_, expected, rtol=1e-5)
        assert model.best_index_ == np.unravel_index(expected.argmin(), (5, 3))
    assert not hasattr(model, "score_path_")
    with pytest.raises(AttributeError, match="mse_path_"):
        _ = model.mse_path_


def test_criteria_count_outputs_groups_and_intercepts(make):
    X, y = make("multinomial", n=80, p=6)
    model = TrimmedLogisticRegressionCV(hs=[0, 2], alphas=[0.05], l2s=0, criterion="ebic").fit(X, y)
    for i in range(2):
        result = model.path_.results[i][0]
        eta = X @ result.coef.T + result.intercept
        losses = np.logaddexp.reduce(eta, axis=1) - eta[np.arange(80), y.astype(int)]
        used = int(result.coef.any(axis=0).sum())
        expected = criterion_value("ebic", 2 * losses.sum(), 2 * (used + 1), 80, 6, n_selected=used)
        np.testing.assert_allclose(model.criterion_path_[i, 0], expected)
    X, y = make("cox", n=80, p=6)
    model = MEstimatorCV(loss="cox", groups=[0, 0, 0, 1, 1, 2], hs=[0, 1, 2], l2s=0, criterion="ebic").fit(
        X, y
    )
    deviances = [160 * result[0].objective for result in model.path_.results]  # nothing is penalized
    used = [result[0].coef != 0 for result in model.path_.results]
    parts = [int(u[0]) + int(u[3]) + int(u[5]) for u in used]
    expected = criterion_value("ebic", deviances, [u.sum() for u in used], 80, 3, n_selected=parts)
    np.testing.assert_allclose(model.criterion_path_[:, 0], expected, rtol=1e-9)


@pytest.mark.parametrize("kind", [TrimmedLassoCV, MEstimatorCV])
def test_weights_are_repetitions_in_a_criterion(make, kind):
    X, y = make(n=40, p=8)
    times = np.random.default_rng(0).integers(0, 4, 40)
    weighted = kind(criterion="bic", alphas=["exact", 0.1]).fit(X, y, sample_weight=times)
    repeated = kind(criterion="bic", alphas=["exact", 0.1]).fit(X.repeat(times, axis=0), y.repeat(times))
    np.testing.assert_allclose(weighted.criterion_path_, repeated.criterion_path_, rtol=1e-6)
    small = kind(criterion="bic", hs=[0, 2]).fit(X, y, sample_weight=np.full(40, 1e-3))
    np.testing.assert_allclose(
        small.criterion_path_, kind(criterion="bic", hs=[0, 2]).fit(X, y).criterion_path_
    )


def test_the_grid_of_h_goes_by_the_smallest_training_part(make):
    X, y = make(n=50, p=40)
    folds = [(np.arange(30), np.arange(30, 50)), (np.arange(10, 50), np.arange(10))]
    model = TrimmedLassoCV(l2s=0, cv=folds).fit(X, y)
    np.testing.assert_array_equal(model.hs_, auto_hs(30, 40))
    weights = np.where(np.arange(50) < 30, 2.0, 1.0)
    np.testing.assert_array_equal(
        TrimmedLassoCV(l2s=0, cv=folds[:1]).fit(X, y, sample_weight=weights).hs_, auto_hs(60, 40)
    )


# -- folds ---------------------------------------------------------------------------------------------------


def test_every_way_to_say_the_same_folds(make):
    X, y = make(n=60, p=6)
    folds = list(KFold(3).split(X))
    masks = [(np.isin(np.arange(60), train), np.isin(np.arange(60), test)) for train, test in folds]
    plain = TrimmedLassoCV(l2s=0, hs=[0, 1, 3], cv=3).fit(X, y)
    for cv in (KFold(3), folds, iter(folds), masks, [(list(train), test - 60) for train, test in folds]):
        model = TrimmedLassoCV(l2s=0, hs=[0, 1, 3], cv=cv).fit(X, y)
        np.testing.assert_array_equal(model.score_path_, plain.score_path_)
    assert TrimmedLassoCV(l2s=0, hs=[0]).fit(X, y).score_path_.shape == (1, 1, 5)
    drawn = TrimmedLassoCV(l2s=0, hs=[0, 3], cv=ShuffleSplit(2, random_state=0)).fit(X, y)
    assert drawn.score_path_.shape == (2, 1, 2)


def test_repeated_folds_are_those_of_every_round(make):
    X, y = make(n=60, p=6)
    folds = RepeatedKFold(n_splits=3, n_repeats=2, random_state=0)
    both = TrimmedLassoCV(l2s=0, hs=[0, 1, 3, 5], cv=folds).fit(X, y)
    splits = list(folds.split(X))
    rounds = [
        TrimmedLassoCV(l2s=0, hs=[0, 1, 3, 5], cv=splits[3 * k : 3 * k + 3]).fit(X, y) for k in range(2)
    ]
    scores = [one.score_path_ for one in rounds]
    np.testing.assert_array_equal(both.score_path_, np.concatenate(scores, axis=2))
    means = np.mean([one.mean(axis=2) for one in scores], axis=0)
    np.testing.assert_allclose(both.score_path_.mean(axis=2), means)
    assert both.best_index_ == np.unravel_index(means.argmax(), means.shape)
    mean, error = means[:, 0], both.score_path_.std(axis=2, ddof=1)[:, 0] / np.sqrt(3)
    within = TrimmedLassoCV(l2s=0, hs=[0, 1, 3, 5], cv=folds, rule="1se").fit(X, y)
    assert within.best_index_[0] == np.flatnonzero(mean >= mean.max() - error[mean.argmax()])[0]


def test_groups_of_samples_stay_together(make):
    X, y = make(n=60, p=6)
    groups = np.arange(60) % 4
    model = TrimmedLassoCV(l2s=0, hs=[0, 1, 3], cv=LeaveOneGroupOut()).fit(X, y, cv_groups=groups)
    folds = [(np.flatnonzero(groups != g), np.flatnonzero(groups == g)) for g in range(4)]
    np.testing.assert_array_equal(
        model.score_path_, TrimmedLassoCV(l2s=0, hs=[0, 1, 3], cv=folds).fit(X, y).score_path_
    )
    two = TrimmedLassoCV(l2s=0, hs=[0, 1], cv=GroupKFold(2)).fit(X, y, cv_groups=groups)
    assert two.score_path_.shape[2] == 2


def test_classes_are_stratified(make):
    X, y = make("logistic", n=60, p=4)
    order = np.argsort(y, kind="stable")
    labels = np.where(y[order] > 0, "b", "a")
    model = TrimmedLogisticRegressionCV(l2s=0, hs=[0, 2], cv=3).fit(X[order], labels)
    by_hand = list(StratifiedKFold(3).split(X[order], labels))
    np.testing.assert_array_equal(
        model.score_path_,
        TrimmedLogisticRegressionCV(l2s=0, hs=[0, 2], cv=by_hand).fit(X[order], labels).score_path_,
    )
    assert np.all(model.score_path_[0] > -0.75)  # with whole classes left out it would be far below


def test_samples_of_weight_zero_are_not_there(make):
    X, y = make(n=60, p=6)
    weights = np.ones(60)
    weights[[3, 7, 20, 45]] = 0.0
    y[3], X[7, 2] = 1e3, 50.0
    folds = list(KFold(4).split(X))
    kept = np.flatnonzero(weights)
    place = np.cumsum(weights > 0) - 1
    rest = [(place[np.intersect1d(a, kept)], place[np.intersect1d(b, kept)]) for a, b in folds]
    for scoring in (None, "neg_mean_absolute_error"):
        options = {"hs": [0, 1, 3], "alphas": ["exact", 0.2, 0.05], "scoring": scoring}
        weighted = TrimmedLassoCV(l2s=0, cv=folds, **options).fit(X, y, sample_weight=weights)
        without = TrimmedLassoCV(l2s=0, cv=rest, **options).fit(X[kept], y[kept])
        np.testing.assert_allclose(weighted.score_path_, without.score_path_, rtol=1e-6)
        np.testing.assert_allclose(weighted.coef_, without.coef_, atol=1e-6)
    empty = np.ones(60)
    empty[:15] = 0.0  # the first fold has nothing to test on
    model = TrimmedLassoCV(l2s=0, hs=[0, 1], cv=folds).fit(X, y, sample_weight=empty)
    assert model.score_path_.shape == (2, 1, 3)


@pytest.mark.parametrize("kind", MODELS)
def test_jobs_do_not_matter(make, kind):
    X, y = make("logistic", n=60, p=5)
    options = {"hs": [0, 1, 2], "alphas": ["exact", 0.1], "cv": 3}
    plain = kind(l2s=0, **options, random_state=np.random.default_rng(3)).fit(X, y)
    with joblib.parallel_config("threading"):
        threads = kind(l2s=0, **options, n_jobs=2, random_state=np.random.default_rng(3)).fit(X, y)
    np.testing.assert_array_equal(threads.score_path_, plain.score_path_)
    np.testing.assert_array_equal(threads.coef_, plain.coef_)


def test_jobs_in_other_processes(make):
    X, y = make("logistic", n=60, p=5)
    options = {"hs": [0, 2], "alphas": ["exact", 0.1], "cv": 3, "scoring": "accuracy"}
    plain = TrimmedLogisticRegressionCV(l2s=0, **options).fit(X, y)
    jobs = TrimmedLogisticRegressionCV(l2s=0, **options, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(jobs.score_path_, plain.score_path_)
    np.testing.assert_array_equal(jobs.coef_, plain.coef_)


# -- scoring -------------------------------------------------------------------------------------------------


def absolute(model, X, y):
    return -mean_absolute_error(y, model.predict(X))


def test_scorers_by_name_and_by_function(make):
    X, y = make(n=60, p=6)
    options = {"hs": [0, 1, 3], "alphas": ["exact", 0.1], "cv": 3}
    named = TrimmedLassoCV(l2s=0, **options, scoring="neg_mean_absolute_error").fit(X, y)
    for scoring in (absolute, make_scorer(mean_absolute_error, greater_is_better=False)):
        np.testing.assert_allclose(
            TrimmedLassoCV(l2s=0, **options, scoring=scoring).fit(X, y).score_path_, named.score_path_
        )
    train, test = next(KFold(3).split(X))
    fit = refit(TrimmedLasso, 3, 0.1, X[train], y[train])
    np.testing.assert_allclose(named.score_path_[2, 1, 0], absolute(fit, X[test], y[test]), rtol=1e-4)
    default = TrimmedLassoCV(l2s=0, **options).fit(X, y)
    np.testing.assert_allclose(
        TrimmedLassoCV(l2s=0, **options, scoring="neg_mean_squared_error").fit(X, y).score_path_,
        default.score_path_,
        rtol=1e-9,
    )
    with pytest.raises(AttributeError, match="scoring"):
        _ = named.mse_path_


@pytest.mark.parametrize("loss", ["logistic", "multinomial"])
def test_scorers_of_classes(make, loss):
    X, y = make(loss, n=60, p=6)
    labels = np.array(["a", "b", "c"])[y.astype(int)]
    options = {"hs": [0, 1, 3], "cv": 3}
    default = TrimmedLogisticRegressionCV(l2s=0, **options).fit(X, labels)
    named = TrimmedLogisticRegressionCV(l2s=0, **options, scoring="neg_log_loss").fit(X, labels)
    np.testing.assert_allclose(named.score_path_, default.score_path_, rtol=1e-6)
    accuracy = TrimmedLogisticRegressionCV(l2s=0, **options, scoring="accuracy").fit(X, labels).score_path_
    np.testing.assert_allclose(accuracy * 20, np.round(accuracy * 20))
    if loss == "logistic":
        area = TrimmedLogisticRegressionCV(l2s=0, **options, scoring="roc_auc").fit(X, labels)
        train, test = next(StratifiedKFold(3).split(X, labels))
        fit = refit(TrimmedLogisticRegression, 3, "exact", X[train], labels[train])
        np.testing.assert_allclose(
            area.score_path_[2, 0, 0], roc_auc_score(labels[test], fit.decision_function(X[test]))
        )


# -- attributes, summary, containers ---------------------------------------------------------------------


def test_order_of_entry_is_that_of_the_path(make):
    X, y = make(n=80, p=8)
    model = TrimmedLassoCV(l2s=0, hs=range(6), cv=3).fit(X, y)
    inside = model.coef_path_[:, 0] != 0
    first = np.where(inside.any(axis=0), inside.argmax(axis=0), 99)
    order = model.entry_order_
    assert model.h_ >= 3
    np.testing.assert_array_equal(np.sort(order[model.support_]), np.arange(1, model.h_ + 1))
    assert np.all(np.delete(order, model.support_) == -1)
    ranked = model.support_[np.argsort(order[model.support_])]
    assert np.all(np.diff(first[ranked]) >= 0)
    # All enter at once: forward selection says how.
    coarse = TrimmedLassoCV(l2s=0, hs=[0, model.h_], cv=3).fit(X, y)
    plain = refit(TrimmedLasso, model.h_, "exact", X, y)
    np.testing.assert_array_equal(coarse.entry_order_, plain.entry_order_)


@pytest.mark.parametrize(
    ("inside", "forward", "order"),
    [
        ([[0, 1, 0], [1, 0, 0], [1, 1, 1]], [1, 2, 3], [2, 1, 3]),
        ([[0, 0, 1], [0, 0, 1]], [0, -1, 1], [0, -1, 1]),
        ([[0, 0, 0]], [2, 1, -1], [2, 1, -1]),  # the last fit has what the path has not
        ([[0, 0, 1, 1], [1, 1, 1, 1]], [1, 1, 2, 2], [2, 2, 1, 1]),  # groups
        ([[0, 0]], [-1, -1], [-1, -1]),
    ],
)
def test_order_of_entry(inside, forward, order):
    np.testing.assert_array_equal(entry_over_path(np.array(inside, dtype=bool), np.array(forward)), order)


@pytest.mark.parametrize(("kind", "criterion"), list(zip(MODELS, [None, "bic", None], strict=True)))
def test_summary_and_names(make, kind, criterion):
    X, y = make("logistic", n=80, p=4)
    X = pd.DataFrame(X, columns=["bmi", "bp", "age", "sex"])
    model = kind(hs=[0, 1, 2], cv=3, criterion=criterion).fit(X, y)
    table = model.summary()
    assert str(table).splitlines()[0].startswith(kind.__name__)
    assert [row for row in X.columns if row in str(table)] == list(X.columns[model.support_])
    assert "<table" in table.to_html()
    assert model.feature_names_in_.tolist() == X.columns.tolist()


def test_a_second_fit_forgets_the_first(make):
    X, y = make(n=60, p=6)
    model = TrimmedLassoCV(hs=[0, 1, 3], cv=3).fit(X, y)
    model.set_params(criterion="bic").fit(X, y)
    assert not hasattr(model, "score_path_")
    model.set_params(criterion=None).fit(X, y)
    assert not hasattr(model, "criterion_path_")


@pytest.mark.parametrize("form", [sp.csr_array, np.float32, pd.DataFrame, np.ndarray.tolist])
def test_containers(make, form):
    X, y = make(n=60, p=6, zeros=0.3)
    options = {"hs": [0, 1, 3], "alphas": ["exact", 0.3, 0.03], "cv": 3}
    plain = TrimmedLassoCV(l2s=0, **options).fit(X, y)
    model = TrimmedLassoCV(l2s=0, **options).fit(form(X), y)
    np.testing.assert_allclose(model.score_path_, plain.score_path_, rtol=1e-3)
    assert model.h_ == plain.h_
    assert model.coef_.dtype == (np.float32 if form is np.float32 else float)


@pytest.mark.parametrize("loss", ["multitask", "multinomial", "cox", "huber", "gamma", Poisson()])
def test_every_loss(make, loss):
    X, y = make(getattr(loss, "name", loss), n=80, p=5)
    model = MEstimatorCV(l2s=0, loss=loss, hs=[0, 1, 3], alphas=["exact", 0.1], cv=3).fit(X, y)
    assert np.isfinite(model.score_path_).all()
    assert 0 in model.support_
    assert np.isfinite(model.predict(X)).all()


def test_groups_of_features_and_factors(make):
    X, y = make(n=80, p=8)
    options = {"groups": np.repeat(np.arange(4), 2), "q": np.inf, "alphas": ["exact", 0.1], "l2s": 0}
    model = MEstimatorCV(**options, cv=3).fit(X, y)
    assert model.hs_.max() <= 4
    inside = model.coef_path_ != 0
    np.testing.assert_array_equal(inside[..., ::2], inside[..., 1::2])
    model = TrimmedLassoCV(l2s=0, penalty_factor=[0.0, np.inf, *[1.0] * 6], positive=True, cv=3).fit(X, y)
    assert model.coef_path_.min() == 0.0
    assert 1 not in model.support_
    assert model.coef_[0] > 0


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_units_do_not_matter(make, scale):
    X, y = make(n=60, p=6)
    plain = TrimmedLassoCV(hs=[0, 1, 3], cv=3).fit(X, y)
    model = TrimmedLassoCV(hs=[0, 1, 3], cv=3).fit(X / scale, scale * y)
    np.testing.assert_allclose(model.coef_, scale**2 * plain.coef_, rtol=1e-6)
    np.testing.assert_allclose(model.mse_path_, scale**2 * plain.mse_path_, rtol=1e-6)


def test_degenerate_data(make):
    X, y = make(n=40, p=5)
    X[:, 2] = 1.0
    X[10:, 3] = 0.0  # constant in a training part
    for alphas in ("exact", "auto"):
        flat = TrimmedLassoCV(alphas=alphas, cv=4).fit(X, np.full(40, 2.0))
        assert flat.h_ == 0
        assert flat.intercept_ == 2.0
        assert np.isfinite(TrimmedLassoCV(alphas=alphas, cv=KFold(4)).fit(X, y).score_path_).all()
    perfect = TrimmedLassoCV(cv=4).fit(X, X[:, 0] - X[:, 1])
    assert perfect.support_.tolist() == [0, 1]


def test_classes_that_can_be_separated(make):
    X, _ = make(n=40, p=5)
    y = X[:, 1] > 0.3
    model = TrimmedLogisticRegressionCV(cv=4).fit(X, y)
    assert model.h_ >= 1
    assert 1 in model.support_
    assert model.score(X, y) == 1.0
    i, j = model.best_index_
    np.testing.assert_array_equal(model.coef_[0], model.coef_path_[i, j])


def test_a_later_fit_counts_if_it_is_other_and_lower(make):
    X, y = make(n=60, p=6)
    path = trimmed_path(X, y, [1, 2], ["exact"])
    one, two = path.results[0][0], path.results[1][0]  # different features, the second fits better
    assert _settled(one, two, 1e-9) is two
    assert _settled(one, two, 10.0) is one
    assert _settled(two, one, 1e-9) is two
    again = replace(one, coef=1.5 * one.coef, objective=0.0, swap_optimal=True)  # the same ones
    np.testing.assert_array_equal(_settled(one, again, 1e-9).coef, one.coef)
    assert _settled(one, again, 1e-9).swap_optimal


def test_an_automatic_grid_goes_on_while_its_last_alpha_is_chosen():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 20))
    y = X @ rng.uniform(1, 2, 20)  # without noise: no alpha is too small
    auto = TrimmedLassoCV(hs=[0], alphas="auto", l2s=0, cv=3, rule="min")
    with pytest.warns(
        UserWarning, match="the choice is at the end of the grid: alpha = .*pass smaller alphas"
    ):
        auto.fit(X, y)
    assert len(auto.alphas_) == 21 + 2 * 8
    assert auto.score_path_.shape == (1, len(auto.alphas_), 3)
    assert auto.coef_path_.shape == (1, len(auto.alphas_), 20)
    assert auto.alphas_ == sorted(auto.alphas_, reverse=True)
    fixed = TrimmedLassoCV(hs=[0], alphas=auto.alphas_[:21], l2s=0, cv=3, rule="min").fit(X, y)
    assert fixed.alphas_ == auto.alphas_[:21]  # a grid of the user's stays as it is
    assert auto.score_path_.mean(axis=2).max() > fixed.score_path_.mean(axis=2).max()


def test_cv_is_a_criterion_as_on_the_command_line(make):
    X, y = make()
    named, default = (TrimmedLassoCV(hs=[0, 1], cv=3, criterion=one).fit(X, y) for one in ("cv", None))
    np.testing.assert_array_equal(named.mse_path_, default.mse_path_)
    assert named.h_ == default.h_


def test_progress_is_told_where_there_is_no_terminal(make, capsys):
    X, y = make()
    TrimmedLassoCV(hs=[0, 1], cv=3, verbose=2).fit(X, y)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["folds: 1/3", "folds: 2/3", "folds: 3/3", "fits: 1/2", "fits: 2/2"]
    TrimmedLassoCV(hs=[0, 1], criterion="bic", verbose=2).fit(X, y)
    assert "fits: 2/2" in capsys.readouterr().err
    TrimmedLassoCV(hs=[0, 1], cv=3).fit(X, y)
    assert capsys.readouterr().err == ""


def test_the_choice_is_certified_and_scored_with_names():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = pandas.DataFrame(rng.standard_normal((60, 5)), columns=list("abcde"))
    y = 2.0 * X["a"] + rng.standard_normal(60)
    plain = TrimmedLassoCV(l2s=0, hs=range(4), cv=3).fit(X, y, sample_weight=rng.uniform(0.5, 1.0, 60))
    assert plain.stationarity_ < 1e-20
    by_name = TrimmedLassoCV(l2s=0, hs=range(4), cv=3, scoring="neg_mean_squared_error").fit(X, y)
    assert by_name.stationarity_ < 1e-20
    assert np.allclose(by_name.score_path_, TrimmedLassoCV(l2s=0, hs=range(4), cv=3).fit(X, y).score_path_)
