"""Estimators that choose h and alpha: bad input, docstrings, and scikit-learn's own checks."""

import inspect

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GroupKFold
from sklearn.utils.estimator_checks import check_estimator

from trimreg import MEstimatorCV, TrimmedLassoCV, TrimmedLogisticRegressionCV
from trimreg.selection import crossval as module

MODELS = [TrimmedLassoCV, TrimmedLogisticRegressionCV, MEstimatorCV]

BAD = {
    "hs": ["all", [], [-1], [7], [0.5, "x"], None],
    "alphas": ["some", [], [-0.1], [np.inf], ["exact", None]],
    "l2s": ["some", [], [-0.1], -1.0, np.nan, [0.1, np.inf], [None], True, [[0.1]], {0.1: 1}],
    "cv": [1, 0, -3, 61, "five", 2.5, [], [(np.arange(3), np.array([99]))], [(np.arange(3), [])], [1, 2]],
    "rule": ["best", None, 1],
    "criterion": ["cp", 1, True],
    "scoring": ["nothing", 3, ["accuracy"], {"a": "accuracy"}],
    "effort": ["huge", None],
    "groups": [[0, 1], [[0], [0, 1, 2, 3, 4, 5]], 5],
    "penalty_factor": [[1.0], [-1.0] * 6],
    "n_jobs": [0, 1.5, "two", True],
    "verbose": [-1, "yes", None],
    "random_state": ["x", -1],
    "tol": [0.0, -1.0],
    "fit_intercept": ["yes"],
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_named_before_any_fit(make, monkeypatch, name):
    monkeypatch.setattr(module, "solve_paths", lambda *_, **__: pytest.fail("a fit was made"))
    monkeypatch.setattr(module, "LinearFolds", lambda *_, **__: pytest.fail("a fit was made"))
    X, y = make("logistic", n=60, p=6)
    for k, value in enumerate(BAD[name]):
        for kind in MODELS if k == 0 else [TrimmedLassoCV]:
            with pytest.raises(ValueError, match=name):
                kind(**{name: value}).fit(X, y)


def test_other_bad_arguments(make):
    X, y = make("logistic", n=60, p=6)
    with pytest.raises(ValueError, match="rule"):
        TrimmedLassoCV(rule="1se", criterion="bic").fit(X, y)
    with pytest.raises(ValueError, match="cv"):
        TrimmedLassoCV(rule="1se", cv=[(np.arange(30), np.arange(30, 60))]).fit(X, y)
    with pytest.raises(ValueError, match="cv_groups"):
        TrimmedLassoCV(cv=GroupKFold(2)).fit(X, y, cv_groups=[1, 2])
    with pytest.raises(ValueError, match=r"cv.*groups"):
        TrimmedLassoCV(cv=GroupKFold(2)).fit(X, y)
    weights = np.r_[np.zeros(30), np.ones(30)]
    with pytest.raises(ValueError, match=r"cv.*training"):
        TrimmedLassoCV(cv=[(np.arange(30), np.arange(30, 60))]).fit(X, y, sample_weight=weights)
    with pytest.raises(ValueError, match="positive"):
        TrimmedLassoCV(positive=True, groups=np.arange(6) // 2).fit(X, y)
    with pytest.raises(ValueError, match="class_weight"):
        TrimmedLogisticRegressionCV(class_weight="heavy").fit(X, y)
    with pytest.raises(ValueError, match="loss"):
        MEstimatorCV(loss="nothing").fit(X, y)
    with pytest.raises(ValueError, match="q"):
        MEstimatorCV(q=3, groups=np.arange(6) // 2).fit(X, y)


@pytest.mark.parametrize("kind", MODELS)
def test_docstrings_name_every_parameter(kind):
    text = inspect.getdoc(kind)
    assert "{" not in text.replace('{"', "").replace("{None", "")
    assert "\n\nParameters\n----------\n" in text
    assert "\n\nAttributes\n----------\n" in text
    assert "\n\nExamples\n--------\n" in text
    for name in inspect.signature(kind).parameters:
        assert any(name in line.split(" : ")[0].split(", ") for line in text.splitlines()), name
    assert not any(line.startswith("    ") and " : " in line for line in text.splitlines())


@pytest.mark.parametrize(
    "model",
    [
        TrimmedLassoCV(criterion="bic"),
        TrimmedLassoCV(alphas=["exact", 0.1], hs=[0, 1], cv=2, effort="low"),
        TrimmedLogisticRegressionCV(criterion="bic", effort="low"),
        MEstimatorCV(loss="poisson", effort="low", hs=[0, 1], cv=2),
    ],
    ids=repr,
)
def test_check_estimator(model):
    results = check_estimator(clone(model), on_skip=None, on_fail=None)
    assert len(results) >= 50
    assert {r["check_name"] for r in results if r["status"] == "skipped"} <= {"check_array_api_input"}
    bad = {r["check_name"]: r["exception"] for r in results if r["status"] not in ("passed", "skipped")}
    assert bad == {}
