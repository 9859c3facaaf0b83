"""What the models of every loss must refuse: a ``ValueError`` before any work, with the argument's name."""

from importlib import import_module
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp

from trimreg import (
    MEstimator,
    MultiTaskTrimmedLasso,
    TrimmedCoxRegressor,
    TrimmedGammaRegressor,
    TrimmedGroupLasso,
    TrimmedHuberRegressor,
    TrimmedL1,
    TrimmedLogisticRegression,
    TrimmedPoissonRegressor,
    solve,
)

task_module = import_module("trimreg.estimators.task")
robust_module = import_module("trimreg.estimators.robust")

N, P = 24, 6
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((N, P)), RNG.standard_normal(N)
CLASSES = np.arange(N) % 2
TIMES = np.column_stack([np.arange(1.0, N + 1), CLASSES])


def no_work():
    return mock.patch.object(task_module, "as_design", side_effect=AssertionError("work was begun"))


@pytest.fixture
def refused():
    """``refused(match, model, y, ...)``: the model refuses y, without making a design."""

    def check(match, model, y, X=X, sample_weight=None):
        with no_work(), pytest.raises(ValueError, match=match):
            model.fit(X, y, sample_weight)

    return check


def refused_by_all(case, match, **parameters):
    with (
        no_work(),
        mock.patch.object(robust_module, "as_design", side_effect=AssertionError("work was begun")),
        pytest.raises(ValueError, match=match),
    ):
        case.kind(**parameters).fit(case.X, case.y)


# -- parameters of all --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"h": 10}, "h must be an integer from 0 to the number of features 9"),
        ({"h": "3"}, "h must be an integer"),
        ({"alpha": -1.0}, "alpha must be 'exact' or a finite number >= 0"),
        ({"alpha": "auto"}, "alpha must be 'exact' or a finite number >= 0"),
        ({"solver": "lars"}, "solver must be one of"),
        ({"effort": "extreme"}, "effort must be one of"),
        ({"standardize": 1}, "standardize must be True or False"),
        ({"warm_start": 1}, "warm_start must be True or False"),
        ({"tol": 0.0}, "tol must be a finite number > 0"),
        ({"max_iter": 0}, "max_iter must be an integer >= 1"),
        ({"random_state": "seed"}, "random_state must be None"),
        ({"penalty_factor": np.ones(4)}, "penalty_factor must hold one number for each of the 9 features"),
        ({"penalty_factor": -np.ones(9)}, "penalty_factor must be >= 0"),
    ],
)
def test_parameters(case, parameters, match):
    refused_by_all(case, match, **parameters)


@pytest.mark.parametrize(
    ("groups", "match"),
    [
        (3, "groups must hold a label for each of the 9 features"),
        ("abcdefghi", "groups must hold a label for each of the 9 features"),
        ([0, 1, 2], "groups must hold a label for each of the 9 features.* got 3 labels"),
        ([None] * 9, "groups must hold .* missing label"),
        ([0, 0, 0, 1, 1, 1, 2, 2, np.nan], "groups must hold .* missing label"),
        ([[0, 1, 2], [3, 4, 5], [6, 7]], "groups must hold every feature; feature 8 is in none"),
        (
            [[0, 1, 2, 2], [3, 4, 5, 6, 7, 8]],
            "groups must hold a feature once; feature 2 is in group 0 twice",
        ),
        ([[0, 1, 2, 3, 4, 5, 6, 7, 8], []], "groups must not be empty; group 1 is"),
        ([[0, 1, 2, 3], [4, 5, 6, 7, 9]], "groups must hold feature indices from 0 to 8; got 9"),
        ([[0, 1, 2, 3], [4, 5, 6, 7, 8.0]], "groups must hold feature indices from 0 to 8; got 8.0"),
        ([[0, 1], 2, 3, 4, 5, 6, 7, 8, 9], "groups must hold .* both labels and lists"),
    ],
)
def test_groups(case, groups, match):
    refused_by_all(case, match, groups=groups)


def test_h_and_factors_count_groups(case):
    groups = np.arange(9) // 3
    refused_by_all(case, "h must be an integer from 0 to the number of groups 3", groups=groups, h=4)
    refused_by_all(case, "penalty_factor .* 3 groups", groups=groups, h=1, penalty_factor=np.ones(9))


@pytest.mark.parametrize("n_outliers", [-1, 120, 1.0, 1.5, -0.1, np.nan, "3", None, True, [2]])
def test_n_outliers(case, n_outliers):
    refused_by_all(case, "n_outliers must be an integer from 0 to 119", n_outliers=n_outliers)


@pytest.mark.parametrize("n_outliers", [-1, N, 2.5, "3", None])
def test_n_outliers_of_the_generic_ones(n_outliers):
    with no_work(), pytest.raises(ValueError, match="n_outliers must be an integer from 0 to 23"):
        MEstimator(alpha=0.1, n_outliers=n_outliers).fit(X, Y)
    with no_work(), pytest.raises(ValueError, match="n_outliers must be an integer from 0 to 23"):
        solve(X, Y, penalty="l1", alpha=0.1, n_outliers=n_outliers)


def test_outliers_and_weights_of_zero():
    weight = np.where(np.arange(N) < 3, 1.0, 0.0)
    with pytest.raises(ValueError, match="n_outliers must leave a sample of positive weight"):
        MEstimator(alpha=0.1, n_outliers=3).fit(X, Y, weight)


@pytest.mark.parametrize("q", [1, 3, 0, "2", "inf", None, True, np.nan, [2]])
def test_q(q):
    with no_work(), pytest.raises(ValueError, match="q must be 2 or inf; got"):
        TrimmedGroupLasso(groups=[0, 0, 1, 1, 2, 2], h=1, q=q).fit(X, Y)
    with no_work(), pytest.raises(ValueError, match="q must be 2 or inf; got"):
        solve(X, Y, penalty=TrimmedL1(1, groups=[0, 0, 1, 1, 2, 2], q=q), alpha=0.1)


# -- data of all ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda X: np.where(np.arange(9) == 3, np.nan, X), "X contains NaN at row 0, column 3"),
        (lambda X: X[:5], "y must|sample_weight must|y has"),
        (lambda X: X[:, :0], "X must be a matrix with at least one row and one column"),
        (lambda X: X + 1j, "Complex data not supported: X must be real"),
        (lambda X: X.astype(str), "X must be numeric"),
        (lambda X: X[0], "X must be a matrix|Expected 2D array"),
    ],
)
def test_X(case, change, match):
    with no_work(), pytest.raises(ValueError, match=match):
        case.kind(h=0).fit(change(case.X), case.y)


def test_sparse_X(case):
    bad = sp.csr_array(np.where(np.arange(9) == 3, np.inf, case.X))
    with no_work(), pytest.raises(ValueError, match="X contains inf at row 0, column 3"):
        case.kind(h=0).fit(bad, case.y)


@pytest.mark.parametrize(
    ("weight", "match"),
    [
        (np.zeros(120), "sample_weight must not be all zero"),
        (-np.ones(120), "sample_weight must be >= 0"),
        (np.ones(119), "sample_weight must have shape"),
        (np.full(120, np.nan), "sample_weight contains NaN"),
    ],
)
def test_sample_weight(case, weight, match):
    with no_work(), pytest.raises(ValueError, match=match):
        case.kind(h=1).fit(case.X, case.y, weight)


def test_no_target(case):
    with no_work(), pytest.raises(ValueError, match="the target y is None"):
        case.kind(h=1).fit(case.X, None)


def test_other_features_at_predict(case):
    model = case.kind(h=2).fit(case.X, case.y)
    methods = [model.predict]
    methods += [
        getattr(model, name) for name in ("predict_proba", "decision_function") if hasattr(model, name)
    ]
    if case.name == "cox":
        methods.append(model.predict_survival_function)
    for method in methods:
        with pytest.raises(ValueError, match=r"X has 4 features, but .* is expecting 9 features"):
            method(case.X[:, :4])
        with pytest.raises(ValueError, match="X contains NaN"):
            method(np.full((2, 9), np.nan))


# -- targets of each -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y", "match"),
    [
        (Y, "y must hold classes: Unknown label type: continuous"),
        (np.zeros(N), r"y must have at least two classes; got 1 class, \[0.0\]"),
        (["a"] * N, r"y must have at least two classes; got 1 class"),
        (np.where(np.arange(N) == 3, np.nan, CLASSES), "y contains NaN at row 3"),
        (np.where(np.arange(N) == 3, np.inf, CLASSES), "y contains inf at row 3"),
        (np.column_stack([CLASSES, CLASSES]), "y must be a vector of classes; got shape"),
        (CLASSES[:-1], "y must have shape"),
        (CLASSES + 0j, "Complex data not supported: y must be real"),
        (np.array([None, "a"] * (N // 2), dtype=object), "y must hold classes"),
    ],
)
def test_classes(y, match, refused):
    refused(match, TrimmedLogisticRegression(h=1), y)


def test_classes_of_no_weight(refused):
    refused(
        "y must have at least two classes of positive weight; got 1 class",
        TrimmedLogisticRegression(h=1),
        CLASSES,
        sample_weight=CLASSES,
    )


@pytest.mark.parametrize(
    "class_weight",
    [
        "Balanced",
        "auto",
        2.0,
        [1.0, 2.0],
        {2: 1.0},
        {0: -1.0},
        {0: np.nan},
        {0: "1"},
        {0: np.inf},
        {"0": 1.0},
    ],
    ids=repr,
)
def test_class_weight(class_weight, refused):
    refused(
        "class_weight must be None, 'balanced' or a dict with one number >= 0 per class; got",
        TrimmedLogisticRegression(h=1, class_weight=class_weight),
        CLASSES,
    )


@pytest.mark.parametrize(
    ("y", "match"),
    [
        (Y, r"y must be >= 0; got -\d"),
        (np.where(np.arange(N) == 3, np.nan, 1.0), "y contains NaN at row 3"),
        (np.full(N, 1e200), "y must be at most 1e152"),
        (np.ones((N, 2)), "y must have shape"),
        (["1"] * N, "y must be numeric"),
    ],
)
def test_counts(y, match, refused):
    refused(match, TrimmedPoissonRegressor(h=1), y)
    model = TrimmedPoissonRegressor(h=1).fit(X, np.abs(Y))
    with pytest.raises(ValueError, match=match):
        model.score(X, y)


@pytest.mark.parametrize("y", [np.abs(Y) * (np.arange(N) != 5), Y], ids=["zero", "negative"])
def test_positive_targets(y, refused):
    refused("y must be > 0; got", TrimmedGammaRegressor(h=1), y)
    model = TrimmedGammaRegressor(h=1).fit(X, np.abs(Y))
    with pytest.raises(ValueError, match="y must be > 0; got"):
        model.score(X, y)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"epsilon": 1.0}, "epsilon must be > 1 and finite if the scale is estimated"),
        ({"epsilon": 0.0, "scale": 1.0}, "epsilon must be a finite number > 0"),
        ({"epsilon": -2.0}, "epsilon must"),
        ({"epsilon": np.inf}, "epsilon must"),
        ({"epsilon": np.nan}, "epsilon must"),
        ({"epsilon": "1.35"}, "epsilon must"),
        ({"epsilon": None}, "epsilon must"),
        ({"epsilon": True}, "epsilon must"),
        ({"scale": 0.0}, "scale must be a finite number > 0"),
        ({"scale": -1.0}, "scale must"),
        ({"scale": np.nan}, "scale must"),
        ({"scale": "auto"}, "scale must"),
        ({"scale": [1.0]}, "scale must"),
    ],
)
def test_epsilon_and_scale(parameters, match, refused):
    refused(match, TrimmedHuberRegressor(h=1, **parameters), Y)


@pytest.mark.parametrize("ties", ["Efron", "exact", None, 1, ["efron"]])
def test_ties(ties, refused):
    refused(r"ties must be one of \['efron', 'breslow'\]; got", TrimmedCoxRegressor(h=1, ties=ties), TIMES)


@pytest.mark.parametrize(
    ("y", "match"),
    [
        (np.ones((N, 5)), "y must have the columns time and event, .* got shape"),
        (np.ones((N, 3)), "y must have start < time; got start 1 and time 1 of sample 0"),
        (-np.abs(Y) - 1, "y must have (at least one event|two samples)"),
        (np.append(np.nan, Y[1:]), "y contains NaN at row 0"),
        (TIMES * [1, 0], "y must have (at least one event|two samples)"),
        (TIMES * [-1, 1], "y must have times >= 0; got -1"),
        (TIMES * [1, 2], "y must have events 0 or 1; got 2"),
        (TIMES[:, ::-1], "y must have events 0 or 1; got"),
        (TIMES * [np.nan, 1], "y contains NaN at row 0"),
        (TIMES[:-1], "y must have shape"),
        (TIMES.astype(str), "y must be numeric"),
        ([[1.0, 1], [2.0]], "y must be an array of numbers"),
    ],
)
def test_survival_times(y, match, refused):
    refused(match, TrimmedCoxRegressor(h=1), y)
    model = TrimmedCoxRegressor(h=1).fit(X, TIMES)
    with pytest.raises(ValueError, match=match):
        model.score(X, y)


def test_events_of_no_weight(refused):
    refused("y must have at least one event", TrimmedCoxRegressor(h=1), TIMES, sample_weight=1 - CLASSES)


@pytest.mark.parametrize("times", [["a"], [np.nan], [[1.0, 2.0]], [1j], "now"])
def test_times_of_survival(times):
    model = TrimmedCoxRegressor(h=1).fit(X, TIMES)
    with pytest.raises(ValueError, match=r"times must|times contains|Complex data"):
        model.predict_survival_function(X, times=times)


@pytest.mark.parametrize(
    ("y", "match"),
    [
        (Y, r"y must have shape \(24, number of columns\); got shape \(24,\)"),
        (np.ones((N - 1, 2)), r"y must have shape \(24, number of columns\)"),
        (np.ones((N, 0)), r"y must have shape \(24, number of columns\)"),
        (np.ones((N, 2, 2)), r"y must have shape \(24, number of columns\)"),
        (np.where(np.arange(2) == 1, np.nan, np.ones((N, 2))), "y contains NaN at row 0, column 1"),
        (np.full((N, 2), "a"), "y must be numeric"),
    ],
)
def test_tasks(y, match, refused):
    refused(match, MultiTaskTrimmedLasso(h=1), y)
