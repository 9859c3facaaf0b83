"""Bounds of coefficients: equal to other libraries without a penalty, and to their own special cases."""

import json

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.optimize import lsq_linear, minimize
from sklearn.base import clone

import trimreg
from trimreg import (
    MCP,
    SCAD,
    SLOPE,
    MEstimatorCV,
    OnDisk,
    StabilitySelection,
    TrimmedL1,
    TrimmedLasso,
    TrimmedLassoCV,
    TrimmedLogisticRegression,
    diagnostics,
    solve,
    steps,
    trimmed_path,
)
from trimreg._files import BadInput


def boxed(seed, n=60, p=9):
    """A matrix with columns of different units, a target, and bounds of which about half are reached."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) * rng.uniform(0.2, 5.0, p)
    y = X @ rng.standard_normal(p) + rng.standard_normal(n)
    lower, upper = -rng.uniform(0.0, 0.6, p), rng.uniform(0.0, 0.6, p)
    lower[0], upper[1], lower[2], upper[3] = -np.inf, np.inf, 0.0, 0.0
    return X, y, lower, upper


# -- without a penalty: what others compute ----------------------------------------------------------------


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_without_a_penalty_it_is_bounded_least_squares(seed, standardize):
    X, y, lower, upper = boxed(seed)
    how = {"lower": lower, "upper": upper, "tol": 1e-12, "standardize": standardize}
    result = solve(X, y, penalty=TrimmedL1(h=9), alpha=0.0, **how)
    expected = lsq_linear(X, y, (lower, upper), method="bvls", tol=1e-14).x
    np.testing.assert_allclose(result.coef, expected, atol=1e-8)
    assert np.all((lower <= result.coef) & (result.coef <= upper))
    assert result.converged
    reached = (expected == lower) | (expected == upper)
    np.testing.assert_array_equal(result.coef[reached], expected[reached])


@pytest.mark.parametrize("loss", ["logistic", "poisson"])
def test_other_losses_without_a_penalty(loss):
    X, y, lower, upper = boxed(0)
    X = X / 4
    y = (y > 0).astype(float) if loss == "logistic" else np.abs(np.round(y / 3))

    def value(theta):
        eta = X @ theta[:-1] + theta[-1]
        mean = 1 / (1 + np.exp(-eta)) if loss == "logistic" else np.exp(eta)
        total = np.logaddexp(0, eta) - y * eta if loss == "logistic" else mean - y * eta
        slope = (mean - y) / len(y)
        return total.mean(), np.append(X.T @ slope, slope.sum())

    box = [*zip(lower, upper, strict=True), (None, None)]
    options = {"ftol": 1e-16, "gtol": 1e-11, "maxiter": 10_000, "maxcor": 30}
    expected = minimize(value, np.zeros(10), jac=True, method="L-BFGS-B", bounds=box, options=options).x
    how = {"lower": lower, "upper": upper, "fit_intercept": True, "tol": 1e-10}
    result = solve(X, y, loss=loss, penalty=TrimmedL1(h=9), alpha=0.0, **how)
    np.testing.assert_allclose(np.append(result.coef, result.intercept), expected, atol=1e-6)


@pytest.mark.parametrize("solver", ["bcd", "dc", "prox"])
def test_every_solver_keeps_the_bounds(solver):
    X, y, lower, upper = boxed(1)
    how = {"penalty": TrimmedL1(h=9), "alpha": 0.0, "lower": lower, "upper": upper, "standardize": True}
    expected = solve(X, y, tol=1e-10, **how).coef
    np.testing.assert_allclose(solve(X, y, solver=solver, tol=1e-9, **how).coef, expected, atol=1e-6)


# -- special cases -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["quadratic", "huber", "poisson"])
@pytest.mark.parametrize("alpha", [0.1, "exact"])
def test_a_lower_bound_of_zero_is_positive_and_endless_bounds_are_none(loss, alpha):
    X, y, *_ = boxed(2)
    how = {"loss": loss, "penalty": TrimmedL1(3), "alpha": alpha, "fit_intercept": True}
    y = np.abs(np.round(y)) if loss == "poisson" else y
    for one, other in (
        ({"lower": 0.0}, {"positive": True}),
        ({"lower": -np.inf, "upper": np.full(9, np.inf)}, {}),
    ):
        a, b = solve(X, y, **one, **how), solve(X, y, **other, **how)
        np.testing.assert_array_equal(a.coef, b.coef)
        assert (a.objective, a.message) == (b.objective, b.message)
    mirrored = solve(-X, y, upper=0.0, **how)
    np.testing.assert_allclose(mirrored.coef, -solve(X, y, lower=0.0, **how).coef, atol=1e-9)


@pytest.mark.parametrize("penalty", [MCP(1.5), SCAD(2.5), SLOPE()])
def test_other_penalties_keep_signs(penalty):
    X, y, *_ = boxed(3)
    result = solve(
        X, y, penalty=penalty, alpha=0.2, lower=-np.inf, upper=np.where(np.arange(9) < 5, 0.0, np.inf)
    )
    assert (result.coef[:5] <= 0).all()
    assert result.coef.any()
    assert result.stationarity < 1e-9


@pytest.mark.parametrize("kind", [np.asfortranarray, sp.csr_array, np.float32])
def test_kinds_of_matrices(kind):
    X, y, lower, upper = boxed(4)
    how = {"h": 4, "lower": lower, "upper": upper}
    expected, given = TrimmedLasso(**how).fit(X, y), kind(X)
    model = TrimmedLasso(**how).fit(given, y.astype(given.dtype))
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-4 if kind is np.float32 else 1e-8)


# -- coefficients that are never penalized ------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["quadratic", "logistic", "huber", "quantile"])
def test_what_is_never_penalized_may_have_any_bounds(loss):
    X, y, lower, upper = boxed(5)
    y = (y > 0).astype(float) if loss == "logistic" else y
    factor = np.ones(9)
    factor[:2], lower[:2], upper[:2] = 0.0, (0.1, -0.4), (0.2, -0.3)
    how = {"penalty": TrimmedL1(7, factor), "alpha": 0.0, "lower": lower, "upper": upper, "tol": 1e-10}
    a = solve(X, y, loss=loss, fit_intercept=True, **how)
    b = solve(X, y, loss=loss, fit_intercept=True, standardize=True, **how)
    np.testing.assert_allclose(a.coef, b.coef, atol=1e-6)
    assert np.all((lower <= a.coef) & (a.coef <= upper))
    assert 0.1 <= a.coef[0] <= 0.2
    assert max(a.stationarity, b.stationarity) < 1e-12
    at = how | {"coef": a.coef, "intercept": a.intercept, "loss": loss, "fit_intercept": True}
    at.pop("tol")
    assert diagnostics.stationarity(X, y, **at) < 1e-12
    if loss == "quadratic":
        Z = np.column_stack([X, np.ones(60)])
        box = np.append(lower, -np.inf), np.append(upper, np.inf)
        np.testing.assert_allclose(a.coef, lsq_linear(Z, y, box, method="bvls").x[:-1], atol=1e-8)
    few = solve(
        X, y, loss=loss, fit_intercept=True, **how | {"penalty": TrimmedL1(2, factor), "alpha": "exact"}
    )
    assert np.count_nonzero(few.coef[2:]) <= 2
    assert 0.1 <= few.coef[0] <= 0.2


# -- estimators ----------------------------------------------------------------------------------------------


def test_paths_folds_steps_and_resampling_keep_the_bounds():
    X, y, lower, upper = boxed(6)
    how = {"lower": lower, "upper": upper}
    path = trimmed_path(X, y, hs=[0, 2, 4, 9], alphas=["exact", 0.1], **how)
    assert np.all((lower <= path.coefs) & (path.coefs <= upper))
    single = TrimmedLasso(h=4, **how).fit(X, y)
    assert path.objectives[2, 0] <= single.objective_ * (1 + 1e-9)
    chosen = TrimmedLassoCV(hs=[1, 4, 9], cv=3, **how).fit(X, y)
    assert np.all((lower <= chosen.coef_path_) & (chosen.coef_path_ <= upper))
    *_, last = steps(X, y, penalty=TrimmedL1(4), alpha="exact", **how)
    assert np.all((lower <= last.coef) & (last.coef <= upper))
    robust = TrimmedLasso(h=4, n_outliers=3, **how).fit(X, y)
    assert np.all((lower <= robust.coef_) & (robust.coef_ <= upper))
    stable = StabilitySelection(TrimmedLasso(h=2, upper=0.0), hs=[2], n_pairs=3).fit(X, y)
    assert not stable.scores_[(X * y[:, None]).sum(axis=0) > 100].any()


@pytest.mark.parametrize("standardize", [False, True])
def test_folds_of_data_on_disk_keep_the_bounds_in_their_units(tmp_path, standardize):
    X, y, lower, upper = boxed(6, n=90)
    np.save(tmp_path / "x.npy", X)
    how = {"hs": [1, 4], "alphas": ["exact", 0.1], "cv": 3, "standardize": standardize}
    for factor in (np.ones(9), np.r_[0.0, np.ones(8)]):
        low = lower if factor[0] else np.r_[0.2, lower[1:]]
        high = upper if factor[0] else np.r_[0.9, upper[1:]]
        model = TrimmedLassoCV(lower=low, upper=high, penalty_factor=factor, **how)
        near, far = clone(model).fit(X, y), model.fit(OnDisk(tmp_path / "x.npy"), y)
        np.testing.assert_allclose(far.score_path_, near.score_path_, rtol=1e-9)
        np.testing.assert_allclose(far.coef_, near.coef_, atol=1e-9)


@pytest.mark.parametrize("loss", ["poisson", "gamma"])
@pytest.mark.parametrize("criterion", ["cv", "bic"])
def test_a_choice_where_the_bounds_exclude_zero(loss, criterion):
    X, y, *_ = boxed(7)
    y = np.exp(np.clip(X[:, 0], -2, 2)) + 0.1
    y = np.round(y) if loss == "poisson" else y
    factor = np.r_[0.0, np.ones(8)]
    lower = np.r_[0.3, np.full(8, -np.inf)]
    how = {"penalty_factor": factor, "lower": lower, "criterion": criterion}
    model = MEstimatorCV(loss, hs=[0, 2], l2s=0.0, cv=3, **how).fit(X, y)
    assert np.all(model.coef_path_[..., 0] >= 0.3)
    plain = solve(X, y, loss=loss, penalty=TrimmedL1(model.h_, factor), alpha="exact", lower=lower, **FIT)
    np.testing.assert_allclose(model.coef_, plain.coef, atol=1e-4)


FIT = {"fit_intercept": True, "standardize": True}


def test_diagnostics_and_summaries_know_the_bounds(tmp_path):
    X, y, lower, upper = boxed(8)
    frame = pd.DataFrame(X, columns=list("abcdefghi"))
    model = TrimmedLasso(h=5, lower=lower, upper=upper).fit(frame, y)
    problem = model.problem(frame, y)
    assert diagnostics.stationarity(**problem) < 1e-12
    assert diagnostics.is_local_minimum(**problem)
    swap = diagnostics.best_swap(**problem)
    assert (bool(swap), swap.exact) == (False, True)
    free = problem | {"lower": None, "upper": None}
    assert diagnostics.stationarity(**free) > 1e-3
    assert "free" in diagnostics.is_local_minimum(**free).reason
    beyond = problem | {"lower": None, "upper": model.coef_ - 1e-3}
    assert diagnostics.stationarity(**beyond) == np.inf
    assert diagnostics.is_local_minimum(**beyond).reason == "its coefficient is beyond a bound"

    table = model.summary().to_frame()
    reached = {name: table.loc[name, "at bound"] for name in table.index}
    for name, side in reached.items():
        j = frame.columns.get_loc(name)
        at = {"lower": lower[j], "upper": upper[j], None: np.nan}[side]
        assert (model.coef_[j] == at) == (side is not None)
    assert {"lower", "upper"} & set(reached.values())
    with pytest.raises(ValueError, match="positive, lower and upper must be left off"):
        model.certify(frame, y)

    again = trimreg.load(trimreg.save(model, tmp_path / "model.json"))
    assert again.content["bounds"]["a"] == [None, upper[0]]
    assert again.content["bounds"]["e"] == [lower[4], upper[4]]
    plain = TrimmedLasso(h=2).fit(X, y)
    assert plain.bounds_ is None
    assert trimreg.load(trimreg.save(plain, tmp_path / "plain.json")).content["bounds"] is None
    content = again.content | {"bounds": {"a": [2.0, 1.0]}}
    (tmp_path / "bad.json").write_text(json.dumps(content))
    with pytest.raises(BadInput, match="bounds"):
        trimreg.load(tmp_path / "bad.json")


def test_bounds_by_the_names_of_columns():
    X, y, *_ = boxed(9)
    frame = pd.DataFrame(X, columns=list("abcdefghi"))
    model = TrimmedLasso(h=9, lower={"c": 0.0}, upper={"a": 0.1, "c": 0.2}).fit(frame, y)
    upper = np.array([0.1, np.inf, 0.2, *[np.inf] * 6])
    expected = TrimmedLasso(h=9, lower=np.where(np.arange(9) == 2, 0.0, -np.inf), upper=upper).fit(X, y)
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-9)
    with pytest.raises(ValueError, match="lower names no column of X: 'z'; the columns are 'a', 'b'"):
        TrimmedLasso(lower={"z": 0.0}).fit(frame, y)
    with pytest.raises(ValueError, match="upper names no column of X: 'a'; the columns are none"):
        TrimmedLasso(upper={"a": 0.0}).fit(X, y)


# -- bad input -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"lower": [0.0] * 8}, r"lower must be a number, or hold one for each of the 9 features; got shape"),
        ({"upper": np.zeros((9, 1))}, "upper must be a number, or hold one"),
        ({"lower": np.nan}, "lower must not be NaN, nor inf"),
        ({"upper": -np.inf}, "upper must not be NaN, nor -inf"),
        ({"lower": "no"}, "lower"),
        ({"lower": -1.0, "upper": np.r_[np.zeros(8), -2.0]}, "lower must not be above upper; got -1 and"),
        ({"lower": np.r_[np.zeros(8), 0.5]}, "lower excludes 0 for feature 8: got 0.5. What is penalized"),
        ({"upper": -0.5}, "upper excludes 0 for feature 0: got -0.5"),
        ({"upper": 1.0, "groups": np.arange(9) // 3}, "upper is for single coefficients"),
        ({"upper": 1.0, "positive": 1}, "positive must be True or False"),
    ],
)  # fmt: skip
def test_bad_bounds_are_named(bad, message):
    X, y, *_ = boxed(0)
    with pytest.raises(ValueError, match=message):
        TrimmedLasso(h=2, **bad).fit(X, y)


def test_bounds_that_do_not_fit_the_model():
    X, y, *_ = boxed(0)
    with pytest.raises(ValueError, match="lower is for single coefficients"):
        TrimmedLogisticRegression(lower=0.0).fit(X, np.arange(60) % 3)
    with pytest.raises(
        ValueError, match="upper must be 0 or infinite with penalty SLOPE, which takes signs only"
    ):
        solve(X, y, penalty=SLOPE(), alpha=0.1, upper=1.0)
    X[:, 0] = 2.0
    with pytest.raises(ValueError, match="lower excludes 0 for feature 0, which is constant"):
        solve(
            X,
            y,
            penalty=TrimmedL1(1, np.r_[0.0, np.ones(8)]),
            alpha=0.1,
            lower=np.r_[1.0, np.full(8, -9)],
            **FIT,
        )
    for name, call in (("lower", diagnostics.stationarity), ("upper", diagnostics.best_swap)):
        with pytest.raises(ValueError, match=name):
            call(X, y, np.zeros(9), penalty=TrimmedL1(1), alpha=0.1, **{name: [1.0, 2.0]})
