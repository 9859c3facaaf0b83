"""Groups that overlap: unions of at most h groups, by brute force and in other forms of the same problem."""

from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.model_selection import GridSearchCV

import trimreg
from trimreg import (
    L1,
    MultiTaskTrimmedLasso,
    OnDisk,
    TrimmedCoxRegressor,
    TrimmedGroupLasso,
    TrimmedL1,
    TrimmedLasso,
    TrimmedLassoCV,
    TrimmedLogisticRegression,
    TrimmedPoissonRegressor,
    solve,
    steps,
    trimmed_path,
)
from trimreg.designs import as_design
from trimreg.designs.repeated import Repeated
from trimreg.diagnostics import is_local_minimum, stationarity

GROUPS = [[0, 1, 2], [2, 3], [3, 4, 5], [5, 6], [6, 7, 8, 9], [0, 9]]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((60, 10)) * np.geomspace(0.1, 10, 10) + 3.0
    X[:, 0] += X[:, 3]
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    return X, Z[:, 2] - Z[:, 3] + 0.5 * Z[:, 1] + 0.3 * rng.standard_normal(60)


def copied(X, groups=GROUPS):
    """The matrix with a copy of a column for each of its groups, the groups' labels, and the sums."""
    index = np.concatenate(groups)
    label = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    return X[:, index], label, np.arange(X.shape[1])[:, None] == index


def least_squares(X, y):
    A = np.column_stack([X, np.ones(len(y))])
    coef = np.linalg.lstsq(A, y, rcond=None)[0]
    return np.mean((y - A @ coef) ** 2) / 2, coef


@pytest.mark.parametrize("seed", range(8))
def test_best_unions_of_groups(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((30, 9)) + 0.5 * rng.standard_normal((30, 1))
    groups = [rng.choice(9, rng.integers(1, 5), replace=False).tolist() for _ in range(6)]
    groups.append(sorted(set(range(9)).difference(*groups)) or [0])
    y = X @ (rng.standard_normal(9) * (rng.random(9) < 0.5)) + rng.standard_normal(30)
    model = TrimmedGroupLasso(groups, h=2).fit(X, y)
    unions = [sorted({*one, *other}) for one, other in combinations(groups, 2)]
    best = min(least_squares(X[:, union], y)[0] for union in unions)
    assert model.objective_ == pytest.approx(best, rel=1e-9)
    assert np.mean((y - model.predict(X)) ** 2) / 2 == pytest.approx(best, rel=1e-9)
    assert len(model.group_support_) <= 2
    assert set(model.support_) <= set().union(*(groups[g] for g in model.group_support_))


def test_all_groups_are_least_squares(data):
    X, y = data
    model = TrimmedLasso(h=6, groups=GROUPS, tol=1e-11).fit(X, y)
    np.testing.assert_allclose(np.append(model.coef_, model.intercept_), least_squares(X, y)[1], rtol=1e-7)


def test_groups_apart_are_fitted_as_before_and_a_group_given_twice_counts_for_nothing(data):
    X, y = data
    apart = [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]
    one, other = (
        TrimmedGroupLasso(groups, h=2).fit(X, y) for groups in (apart, [0, 0, 0, 1, 1, 1, 2, 2, 3, 3])
    )
    np.testing.assert_array_equal(one.coef_, other.coef_)
    np.testing.assert_array_equal(one.groups_, other.groups_)
    twice = TrimmedGroupLasso([*apart, apart[0]], h=2).fit(X, y)
    assert twice.objective_ == pytest.approx(one.objective_, rel=1e-9)
    np.testing.assert_allclose(twice.coef_, one.coef_, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("q", [2, np.inf])
@pytest.mark.parametrize("settings", [{"h": 0, "alpha": 0.1}, {"h": 2, "alpha": "exact", "l2": 0.1}])
def test_the_same_as_copied_columns(data, settings, q):
    X, y = data
    Z, label, total = copied(X)
    model = TrimmedGroupLasso(GROUPS, q=q, tol=1e-9, **settings).fit(X, y)
    expected = TrimmedGroupLasso(label, q=q, tol=1e-9, **settings).fit(Z, y)
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-7)
    np.testing.assert_allclose(model.coef_, total @ expected.coef_, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(model.group_support_, expected.group_support_)
    np.testing.assert_allclose(model.trim_weights_, expected.trim_weights_)
    assert model.stationarity_ < 1e-12


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        (TrimmedLogisticRegression, lambda eta, rng: eta + rng.logistic(size=60) > 0),
        (TrimmedLogisticRegression, lambda eta, rng: np.digitize(eta + rng.logistic(size=60), [-1, 1])),
        (TrimmedPoissonRegressor, lambda eta, rng: rng.poisson(np.exp(eta))),
        (TrimmedCoxRegressor, lambda eta, rng: rng.exponential(np.exp(-eta))),
        (MultiTaskTrimmedLasso, lambda eta, rng: eta[:, None] * [1.0, 0.5] + rng.standard_normal((60, 2))),
    ],
    ids=["binary", "classes", "counts", "survival", "targets"],
)
def test_other_models_are_those_of_copied_columns(data, kind, target, tmp_path):
    X, eta = data
    y = target(eta, np.random.default_rng(0))
    Z, label, total = copied(X)
    model = kind(h=2, groups=GROUPS, l2=0.01, tol=1e-9).fit(X, y)
    expected = kind(h=2, groups=label, l2=0.01, tol=1e-9).fit(Z, y)
    assert model.objective_ == pytest.approx(expected.objective_, rel=1e-7)
    np.testing.assert_allclose(model.coef_, expected.coef_ @ total.T, rtol=1e-4, atol=1e-6)
    predict = "predict_proba" if hasattr(model, "predict_proba") else "predict"
    np.testing.assert_allclose(getattr(model, predict)(X), getattr(expected, predict)(Z), rtol=1e-4)
    again = trimreg.load(trimreg.save(model, tmp_path / "model.json"))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_summary_and_order(data):
    X, y = data
    model = TrimmedGroupLasso(GROUPS, h=2, l2=0.1).fit(X, y)
    assert model.group_support_.tolist() == [0, 1]
    table = model.summary()
    assert dict(zip(table.names, table.columns["group"], strict=True)) == {
        "x0": "0", "x1": "0", "x2": "0, 1", "x3": "1"
    }  # fmt: skip
    assert set(table.columns["status"]) == {"free"}
    assert model.entry_order_[[2, 0, 4]].tolist() == [1, model.entry_order_[1], -1]
    np.testing.assert_array_equal(np.argwhere(model.groups_[2]).ravel(), [0, 1])
    assert model.groups_.shape == (10, 6)


def test_factors_of_groups(data):
    X, y = data
    factors = [0, 1, 1, 1, np.inf, 1]
    model = TrimmedGroupLasso(GROUPS, h=1, penalty_factor=factors).fit(X, y)
    unions = [sorted({*GROUPS[0], *GROUPS[g]}) for g in (1, 2, 3, 5)]
    assert model.objective_ == pytest.approx(min(least_squares(X[:, u], y)[0] for u in unions), rel=1e-9)
    assert (model.entry_order_[:3] == 0).all()
    assert not model.coef_[[7, 8]].any()  # in the excluded group alone


def test_forms_of_x_starts_and_steps(data, tmp_path):
    X, y = data
    model = TrimmedLasso(h=2, groups=GROUPS).fit(X, y)
    np.save(tmp_path / "x.npy", X)
    for form in (sp.csr_array(X), OnDisk(tmp_path / "x.npy")):
        np.testing.assert_allclose(
            TrimmedLasso(h=2, groups=GROUPS).fit(form, y).coef_, model.coef_, atol=1e-6
        )
    model.set_params(warm_start=True)
    assert model.fit(X, y).objective_ == pytest.approx(least_squares(X[:, model.support_], y)[0])
    problem = {"penalty": TrimmedL1(2, groups=GROUPS), "alpha": "exact", "fit_intercept": True}
    *_, last = steps(X, y, **problem)
    assert last.objective == pytest.approx(solve(X, y, theta0=np.ones(10), **problem).objective, rel=0.05)
    convex = {"penalty": L1(groups=GROUPS), "alpha": 0.1, "standardize": True, "fit_intercept": True}
    one, other = (solve(X, y, solver=solver, **convex).objective for solver in ("mm", "prox"))
    assert one == pytest.approx(other, rel=1e-5)


def test_grid_search(data):
    X, y = data
    search = GridSearchCV(TrimmedLasso(groups=GROUPS), {"h": [0, 2]}, cv=3).fit(X, y)
    assert search.best_params_ == {"h": 2}


@pytest.mark.parametrize(
    "attempt",
    [
        lambda X, y: TrimmedLasso(h=2, groups=GROUPS, n_outliers=1).fit(X, y),
        lambda X, y: TrimmedLassoCV(groups=GROUPS).fit(X, y),
        lambda X, y: trimmed_path(X, y, groups=GROUPS),
        lambda X, y: trimreg.certify(X, y, h=2, groups=GROUPS),
        lambda X, y: trimreg.near_best(X, y, h=2, groups=GROUPS),
        lambda X, y: TrimmedLasso(h=2, groups=GROUPS).fit(X, y).certify(X, y),
        lambda X, y: stationarity(**TrimmedLasso(h=2, groups=GROUPS).fit(X, y).problem(X, y)),
        lambda X, y: is_local_minimum(**TrimmedLasso(h=2, groups=GROUPS).fit(X, y).problem(X, y)),
    ],
)
def test_what_cannot_take_them_says_so(data, attempt):
    with pytest.raises(ValueError, match="groups must not overlap; feature 2 is in groups 0 and 1"):
        attempt(*data)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"groups": [[0, 1, 1], *GROUPS]}, "groups must hold a feature once; feature 1 is in group 0 twice"),
        ({"groups": GROUPS[:-2]}, "groups must hold every feature; feature 7 is in none"),
        ({"groups": [*GROUPS, [3, 10]]}, "groups must hold feature indices from 0 to 9; got 10 in group 6"),
        ({"groups": [*GROUPS, []]}, "groups must not be empty; group 6 is"),
        ({"h": 7}, "h must be an integer from 0 to the number of groups 6"),
        ({"penalty_factor": np.ones(10)}, "penalty_factor must hold one number for each of the 6 groups"),
        ({"positive": True}, "positive is for single coefficients; leave it off with groups"),
    ],
)
def test_bad_input(data, settings, match):
    with pytest.raises(ValueError, match=match):
        TrimmedLasso(**{"h": 1, "groups": GROUPS, **settings}).fit(*data)


def test_a_start_is_divided_among_the_copies_of_a_column():
    design = Repeated(as_design(np.eye(4), np.full(4, 0.25)), np.array([0, 1, 1, 2, 2, 2, 3]))
    start = np.array([1.0, -4.0, 6.0, 0.0])
    np.testing.assert_array_equal(design.divided(start), [1.0, -2.0, -2.0, 2.0, 2.0, 2.0, 0.0])
    np.testing.assert_array_equal(design.folded(design.divided(start)), start)
