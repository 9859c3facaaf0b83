"""The search over a grid: with two functions written out, for any kind of fit."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.model_selection import GroupKFold, KFold

from trimreg.selection import choose
from trimreg.selection.grid import RULES
from trimreg.selection.search import Search, parallel, times_tested

HS, ALPHAS = np.array([0, 1, 2]), ["exact", 0.1]


def fit(training):
    return np.outer(HS + 1.0, [1.0, 2.0]) * np.sum(training)


def score(surface, test):
    return -np.abs(surface - np.sum(test))


PARTS = [([1.0, 2.0], [7.0]), ([2.0], [9.0, 1.0]), ([4.0], [12.0])]


# -- scores and choices ------------------------------------------------------------------------------------


def test_scores_and_the_choice_by_folds():
    expected = np.stack([score(fit(training), test) for training, test in PARTS], axis=2)
    for rule in RULES:
        scores, best = Search(rule=rule).by_folds(fit, score, PARTS, HS, ALPHAS)
        np.testing.assert_array_equal(scores, expected)
        assert best == choose(expected, HS, ALPHAS, rule)
    assert Search().by_folds(fit, score, PARTS[:1], HS, ALPHAS)[0].shape == (3, 2, 1)  # no standard error


def test_the_choice_by_a_criterion_is_the_smallest():
    values = np.array([[3.0, 2.0], [1.0, np.inf], [np.nan, 1.0]])
    found, best = Search(criterion="bic").by_criterion(values, HS, ALPHAS)
    assert found is values
    assert best == (1, 0)


def test_scores_of_any_shape(capsys):
    found = Search(verbose=2).over_parts(fit, lambda surface, test: surface > 3, PARTS, label="halves")
    assert [one.shape for one in found] == [(3, 2)] * 3
    assert capsys.readouterr().err.splitlines()[-1] == "halves: 3/3"


def test_how_often_folds_test_a_sample():
    rounds = [Search(cv=KFold(3, shuffle=True, random_state=seed)) for seed in range(4)]
    folds = [fold for one in rounds for fold in one.folds(np.zeros((7, 1)), None)]
    assert times_tested(folds) == 4.0
    assert times_tested(folds[:3]) == 1.0
    assert times_tested([([0], [1, 2]), ([0], [2])]) == 1.5
    again = [fold for fold in PARTS for _ in range(2)]
    scores = Search().by_folds(fit, score, again, HS, ALPHAS, repeats=2.0)[0]
    np.testing.assert_allclose(
        scores.mean(axis=2), Search().by_folds(fit, score, PARTS, HS, ALPHAS)[0].mean(axis=2)
    )


# -- folds -------------------------------------------------------------------------------------------------


def test_folds_leave_out_test_samples_without_weight():
    X, weights = np.zeros((6, 1)), np.array([0.0, 0.0, 1.0, 0.0, 1.0, 1.0])
    folds = Search(cv=KFold(3)).folds(X, None, weights=weights)
    assert [test.tolist() for _, test in folds] == [[2], [4, 5]]  # the first has nothing left
    assert [train.tolist() for train, _ in folds] == [[0, 1, 4, 5], [0, 1, 2, 3]]
    assert len(Search().folds(np.zeros((10, 1)), None)) == 5


def test_folds_of_groups_masks_and_classes():
    X, groups = np.zeros((6, 1)), np.array([0, 0, 1, 1, 2, 2])
    for _, test in Search(cv=GroupKFold(3)).folds(X, None, groups=groups):
        assert np.unique(groups[test]).size == 1
    mask = np.arange(6) < 2
    ((train, test),) = Search(cv=[(~mask, mask)]).folds(X, None)
    assert (train.tolist(), test.tolist()) == ([2, 3, 4, 5], [0, 1])
    y = np.array(["a"] * 3 + ["b"] * 3)
    for _, test in Search(cv=3).folds(X, y, classifier=True):
        assert sorted(y[test]) == ["a", "b"]


@pytest.mark.parametrize(
    ("settings", "given", "match"),
    [
        ({"cv": 1}, {}, "cv must be a number of folds"),
        ({"cv": [([0], [6])]}, {}, "cv .*indices of the 6 samples"),
        ({"cv": [([0], np.arange(0))]}, {}, "cv must give at least 1 folds"),
        ({"cv": [([0], [1])], "rule": "1se"}, {}, "cv must give at least 2 folds"),
        (
            {"cv": [([0, 1], [2])]},
            {"weights": np.array([0, 0, 1, 1, 1, 1.0])},
            "training samples of positive",
        ),
        ({}, {"groups": [1, 2]}, r"cv_groups must have one group per sample, 6 in all; got shape \(2,\)"),
    ],
)
def test_bad_folds_are_named(settings, given, match):
    with pytest.raises(ValueError, match=match):
        Search(**settings).folds(np.zeros((6, 1)), None, **given)


# -- settings ----------------------------------------------------------------------------------------------


def test_settings_of_an_estimator():
    estimator = SimpleNamespace(cv=3, rule="min", criterion="stars", n_jobs=-1, verbose=True)
    assert Search.of(estimator, ["bic", "stars"]).criterion == "stars"
    with pytest.raises(ValueError, match="criterion must be one of"):
        Search.of(estimator)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"rule": "best"}, "rule"),
        ({"criterion": "cp"}, "criterion"),
        ({"criterion": "bic", "rule": "1se"}, "rule='1se' needs folds"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"n_jobs": True}, "n_jobs"),
        ({"verbose": -1}, "verbose"),
        ({"verbose": None}, "verbose"),
    ],
)
def test_bad_settings_are_named(settings, match):
    with pytest.raises(ValueError, match=match):
        Search(**settings)


# -- jobs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_jobs", [None, 1, 2])
def test_results_are_in_order(n_jobs, capsys):
    tasks = [(k, 2) for k in range(9)]
    assert parallel(pow, tasks, n_jobs=n_jobs, label="squares", verbose=2) == [k * k for k in range(9)]
    assert capsys.readouterr().err.splitlines()[-1] == "squares: 9/9"


def fail(at, k):
    if k == at:
        raise RuntimeError(f"task {k} failed")
    return k


def test_an_error_of_a_task_is_raised():
    with pytest.raises(RuntimeError, match="task 1 failed"):
        parallel(partial(fail, 1), [(0,), (1,), (2,)])


def test_nothing_to_do():
    assert parallel(pow, []) == []
