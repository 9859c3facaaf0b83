"""The graphical lasso that chooses: bad input, parameters, and scikit-learn's own checks."""

import inspect
import re

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator

from trimreg import SLOPE, TrimmedGraphicalLasso, TrimmedGraphicalLassoCV, TrimmedL1
from trimreg.graphs.selection import crossval as module

X = np.random.default_rng(0).standard_normal((30, 4))

BAD = {
    "hs": ["all", [], [-1], [7], [0.5, "x"], None, [True]],
    "alphas": ["some", [], [-0.1], [np.inf], ["exact", None]],
    "penalty": ["l3", SLOPE(), TrimmedL1(3), None],
    "cv": [1, 0, -3, 31, "five", 2.5, [], [(np.arange(3), np.array([99]))], [(np.arange(3), [])], [1, 2]],
    "rule": ["best", None, 1],
    "criterion": ["cp", 1, True],
    "gamma": [-0.1, "x", np.nan, None],
    "stars_threshold": [-0.1, "x", None],
    "n_subsamples": [1, 0, 2.5, "x"],
    "covariance": ["precomputed", "data"],
    "kind": ["tau", None],
    "scores": ["log", True],
    "assume_centered": ["no", 1],
    "standardize": ["no"],
    "shrinkage": [-0.1, 1.0],
    "penalty_factor": [[1.0], -np.ones((4, 4)), np.triu(np.ones((4, 4)))],
    "effort": ["huge", None],
    "tol": [0.0, -1.0],
    "max_iter": [0, 1.5],
    "n_jobs": [0, 1.5, "two", True],
    "verbose": [-1, "yes", None],
    "random_state": ["x", -1],
}


@pytest.mark.parametrize(("name", "value"), [(k, v) for k, values in BAD.items() for v in values], ids=str)
def test_bad_arguments_are_named_before_any_fit(monkeypatch, name, value):
    monkeypatch.setattr(module, "solve_graph_path", lambda *_, **__: pytest.fail("a fit was made"))
    with pytest.raises(ValueError, match=name):
        TrimmedGraphicalLassoCV(**{name: value}).fit(X)


def test_arguments_that_do_not_go_together():
    with pytest.raises(ValueError, match="rule"):
        TrimmedGraphicalLassoCV(rule="1se", criterion="bic").fit(X)
    with pytest.raises(ValueError, match="cv"):
        TrimmedGraphicalLassoCV(rule="1se", cv=[(np.arange(20), np.arange(20, 30))]).fit(X)
    with pytest.raises(ValueError, match=r"alphas .* L1"):
        TrimmedGraphicalLassoCV(penalty="l1").fit(X)
    with pytest.raises(ValueError, match=r"hs .* MCP"):
        TrimmedGraphicalLassoCV([1], "auto", penalty="mcp").fit(X)
    with pytest.raises(ValueError, match="penalty_factor"):
        TrimmedGraphicalLassoCV(penalty=TrimmedL1(penalty_factor=np.ones(6)), penalty_factor=np.ones(6)).fit(
            X
        )


def test_samples_that_a_fold_cannot_be_fitted_to():
    step = X.copy()
    step[:, 2] = np.arange(30) >= 24  # constant in the training part of the last fold
    with pytest.raises(ValueError, match=r"fold 4: .* constant columns.* 2"):
        TrimmedGraphicalLassoCV().fit(step)
    with pytest.raises(ValueError, match=r"fold 0: .* two samples"):
        TrimmedGraphicalLassoCV(cv=[([0], np.arange(1, 30))]).fit(X)
    TrimmedGraphicalLassoCV(criterion="bic").fit(step)


@pytest.mark.parametrize("bad", [X[:1], X[:, :1], np.where(X > 2, np.nan, X), X * 1j])
def test_bad_data(bad):
    with pytest.raises(ValueError, match=r"X|NaN|n_samples|n_features|omplex"):
        TrimmedGraphicalLassoCV().fit(bad)


def test_duplicated_columns_are_told_once():
    twice = np.column_stack([X, X[:, 0]])
    with pytest.warns(UserWarning, match="0 and 4 are copies") as told:
        model = TrimmedGraphicalLassoCV(cv=3).fit(twice)
    assert len(told) == 1
    assert model.hs_.tolist() == [0]


def test_masks_and_repeated_folds():
    mask = np.arange(30) % 2 == 0
    both = [(mask, ~mask), (np.flatnonzero(~mask), np.flatnonzero(mask))]
    folds = TrimmedGraphicalLassoCV([0, 2], cv=both).fit(X)
    assert folds.score_path_.shape == (2, 1, 2)


def test_parameters_are_documented_and_those_of_the_estimator():
    parameters = list(inspect.signature(TrimmedGraphicalLassoCV).parameters)
    text = inspect.getdoc(TrimmedGraphicalLassoCV).split("Attributes")[0]
    named = {
        name
        for line in re.findall(r"^([\w, ]+) ?:?.*$", text, re.M)
        for name in line.replace(" ", "").split(",")
    }
    assert set(parameters) <= named
    single = set(inspect.signature(TrimmedGraphicalLasso).parameters)
    assert single - set(parameters) == {"h", "alpha", "solver", "start", "warm_start"}


@pytest.mark.parametrize(
    "model",
    [
        TrimmedGraphicalLassoCV(cv=2, effort="low"),
        TrimmedGraphicalLassoCV(criterion="ebic", scores="npn"),
        TrimmedGraphicalLassoCV([0, 1], criterion="stars", n_subsamples=2, random_state=0),
        TrimmedGraphicalLassoCV(penalty="mcp", alphas=[0.5, 0.2], cv=2, kind="spearman"),
    ],
    ids=repr,
)
def test_check_estimator(model):
    results = check_estimator(model, on_skip=None, on_fail=None)
    assert len(results) >= 40
    assert {r["check_name"] for r in results if r["status"] == "skipped"} <= {"check_array_api_input"}
    bad = {r["check_name"]: r["exception"] for r in results if r["status"] not in ("passed", "skipped")}
    assert bad == {}
