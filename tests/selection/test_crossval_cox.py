"""The choice of h for survival times: folds with events, rows of a subject together, strata."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn import config_context
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, cross_val_score

from trimreg import MEstimatorCV, StabilitySelection, TrimmedCoxRegressor, TrimmedCoxRegressorCV
from trimreg.losses import Cox
from trimreg.selection.search import Search


@pytest.fixture(scope="module")
def visits():
    """Two rows of each of 60 subjects, in two strata whose hazards differ."""
    rng = np.random.default_rng(0)
    X, subject = rng.standard_normal((120, 6)), np.repeat(np.arange(60), 2)
    strata = np.where(subject % 2 == 0, "even", "odd")
    start = np.tile([0.0, 1.0], 60)
    length = rng.exponential(np.exp(-1.5 * X[:, 2] + 2.0 * (strata == "odd")))
    event = (np.arange(120) % 2 == 1) & (rng.random(120) < 0.8)
    stop = np.where(start == 0, 1.0, 1.0 + length)
    return X, np.column_stack([start, stop, event]), subject, strata


SMALL = {"hs": [0, 1, 2], "l2s": 0.0, "effort": "low"}


def test_rows_of_a_subject_stay_together(visits):
    X, y, subject, _ = visits
    search = Search()
    for classes in (None, y[:, 2].astype(int)):
        for train, test in search.folds(X, y, groups=subject, classes=classes):
            assert not set(subject[train]) & set(subject[test])
    assert len(search.folds(X, y, groups=subject, classes=y[:, 2].astype(int))) == 5


def test_folds_have_events():
    """Of 40 sorted times with 5 events at the end, plain folds have events in one test set only."""
    event = np.arange(40) >= 35
    y = np.column_stack([np.arange(1.0, 41.0), event])
    folds = Search().folds(y, y, classes=event.astype(int))
    assert [int(event[test].sum()) for _, test in folds] == [1] * 5
    few = Search().folds(y, y, classes=(np.arange(40) >= 37).astype(int))  # not enough for five folds
    assert [test.size for _, test in few] == [8] * 5
    with pytest.raises(ValueError, match="cv must be a number of folds"):
        Search(cv=1).folds(y, y, classes=event.astype(int))
    assert len(Search(cv=StratifiedKFold(3)).folds(y, y, classes=event.astype(int))) == 3


def test_the_choice_is_that_of_the_loss_with_strata(visits):
    X, y, subject, strata = visits
    model = TrimmedCoxRegressorCV(**SMALL, cv=3).fit(X, y, cv_groups=subject, strata=strata)
    assert model.support_.tolist() == [2]
    codes = (strata == "odd").astype(float)
    plain = MEstimatorCV("cox", **SMALL, cv=3, standardize=True)
    plain.fit(X, np.column_stack([y, codes]), cv_groups=subject)
    assert_allclose(model.score_path_, plain.score_path_)
    assert_allclose(model.coef_, plain.coef_)
    alone = TrimmedCoxRegressor(h=1).fit(X, y, strata=strata)
    assert_allclose(model.coef_, alone.coef_, atol=1e-6)
    assert_allclose(
        model.predict_survival_function(X, [1.5], strata), alone.predict_survival_function(X, [1.5], strata),
        atol=1e-6,
    )  # fmt: skip
    assert model.score(X, y, strata=strata) == alone.score(X, y, strata=strata)
    assert model.strata_.tolist() == ["even", "odd"]


def test_scores_are_losses_of_the_test_samples(visits):
    X, y, _, strata = visits
    target = np.column_stack([y, strata == "odd"]).astype(float)
    model = TrimmedCoxRegressorCV(hs=[1], l2s=0.0, cv=KFold(3)).fit(X, y, strata=strata)
    for k, (train, test) in enumerate(KFold(3).split(X)):
        fit = TrimmedCoxRegressor(h=1).fit(X[train], target[train])
        loss = Cox().value(X[test] @ fit.coef_, target[test], np.full(test.size, 1 / test.size))
        assert model.score_path_[0, 0, k] == pytest.approx(-loss, rel=1e-5)


@pytest.mark.parametrize(
    "options", [{"criterion": "ebic"}, {"cv": 3, "scoring": lambda m, X, y: m.score(X, y)}]
)
def test_other_choices_with_strata(visits, options):
    X, y, _, strata = visits
    assert 2 in TrimmedCoxRegressorCV(**SMALL, **options).fit(X, y, strata=strata).support_


def test_strata_go_with_the_samples_into_scikit_learns_tools(visits):
    """As the fourth column of y, or as metadata."""
    X, y, _, strata = visits
    target = np.column_stack([y, strata == "odd"]).astype(float)
    assert cross_val_score(TrimmedCoxRegressor(h=1), X, target, cv=3).min() > 0.6
    search = GridSearchCV(TrimmedCoxRegressor(), {"h": [0, 1]}, cv=3).fit(X, target)
    assert search.best_params_ == {"h": 1}
    with config_context(enable_metadata_routing=True):
        model = TrimmedCoxRegressor().set_fit_request(strata=True).set_score_request(strata=True)
        routed = GridSearchCV(model, {"h": [0, 1]}, cv=3).fit(X, y, strata=strata)
    assert_allclose(routed.cv_results_["mean_test_score"], search.cv_results_["mean_test_score"])


def test_stability_with_strata(visits):
    X, y, _, strata = visits
    names = pd.DataFrame(X, columns=list("abcdef"))
    selector = StabilitySelection(TrimmedCoxRegressor(effort="low"), hs=1, n_pairs=5)
    selector.fit(names, y, strata=strata)
    assert selector.get_feature_names_out().tolist() == ["c"]
    same = StabilitySelection(TrimmedCoxRegressor(effort="low"), hs=1, n_pairs=5)
    same.fit(X, np.column_stack([y, strata == "odd"]).astype(float))
    assert_allclose(same.scores_, selector.scores_)
    lonely = np.where(np.arange(120) == np.flatnonzero(y[:, 2])[0], "one", strata)
    with pytest.raises(
        ValueError, match="strata must have three events each, so that every half has one; 'one'"
    ):
        selector.fit(X, y, strata=lonely)
