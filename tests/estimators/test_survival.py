"""Survival times: the forms of y, and the concordance index against its definition and against lifelines."""

import time as clock
import warnings

import numpy as np
import pandas as pd
import pytest

from trimreg import TrimmedCoxRegressor, concordance
from trimreg.estimators.survival import times_and_events


def by_pairs(risk, time, event, weight):
    right, total = 0.0, 0.0
    for i in range(len(time)):
        for j in range(len(time)):
            if event[i] and (time[i] < time[j] or (time[i] == time[j] and not event[j])):
                total += weight[i] * weight[j]
                right += weight[i] * weight[j] * ((risk[i] > risk[j]) + 0.5 * (risk[i] == risk[j]))
    return right / total


@pytest.mark.parametrize("n", [2, 3, 5, 8, 31, 64, 100])
@pytest.mark.parametrize("levels", [2, 5, 1000])
@pytest.mark.parametrize("weighted", [False, True])
def test_concordance_is_a_count_of_pairs(n, levels, weighted):
    rng = np.random.default_rng(n + levels)
    for _ in range(2):
        risk = rng.integers(0, levels, n) * 0.1 - 1.0
        time, event = rng.integers(0, levels, n) / 4.0, rng.random(n) < 0.6
        time[0], event[0], time[-1] = 0.0, True, levels + 1.0  # so that there is a pair
        weight = rng.integers(0, 3, n) + 0.5 if weighted else None
        expected = by_pairs(risk, time, event, np.ones(n) if weight is None else weight)
        assert concordance(np.column_stack([time, event]), risk, weight) == pytest.approx(expected, abs=1e-12)


def test_concordance_of_lifelines_is_the_same():
    utils = pytest.importorskip("lifelines.utils")
    rng = np.random.default_rng(0)
    risk, time = rng.standard_normal(200).round(1), rng.exponential(size=200).round(1)
    event = rng.random(200) < 0.7
    expected = utils.concordance_index(time, -risk, event)
    assert concordance(np.column_stack([time, event]), risk) == pytest.approx(expected, abs=1e-12)


def test_concordance_of_many_samples_is_fast():
    rng = np.random.default_rng(0)
    risk, time, event = rng.standard_normal(50_000), rng.exponential(size=50_000), rng.random(50_000) < 0.5
    start = clock.process_time()
    assert abs(concordance(np.column_stack([time, event]), risk) - 0.5) < 0.01
    assert clock.process_time() - start < 5.0


@pytest.mark.parametrize(
    ("time", "event"),
    [([1.0, 2.0], [False, False]), ([1.0, 1.0], [True, True]), ([1.0], [True]), ([2.0, 1.0], [True, False])],
)
def test_without_pairs_there_is_no_concordance(time, event):
    with pytest.raises(ValueError, match="y must have two samples with a known order"):
        concordance(np.column_stack([time, event]), np.zeros(len(time)))


def test_forms_of_the_target(make):
    case = make("cox")
    time, event = case.y.T
    forms = {
        "event first": np.array(
            list(zip(event > 0, time, strict=True)), dtype=[("status", bool), ("days", float)]
        ),
        "time first": np.array(
            list(zip(time, event > 0, strict=True)), dtype=[("t", np.float32), ("e", bool)]
        ),
        "integers": np.column_stack([(100 * time).round(), event]).astype(int),
        "frame": pd.DataFrame({"time": time, "event": event > 0}),
        "list": case.y.tolist(),
        "negative if censored": np.where(event > 0, time, -time),
    }
    expected = TrimmedCoxRegressor(h=3).fit(case.X, case.y)
    for y in forms.values():
        model = TrimmedCoxRegressor(h=3).fit(case.X, y)
        np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-10)
        assert model.score(case.X, y) == pytest.approx(expected.score(case.X, case.y))


@pytest.mark.parametrize(
    "fields",
    [
        [("a", bool)],
        [("a", bool), ("b", bool)],
        [("a", float), ("b", float)],
        [("a", bool), ("b", "U3")],
        [("a", bool), ("b", float), ("c", float), ("d", float)],
        [("a", bool), ("b", bool), ("c", float)],
    ],
)
def test_other_structured_arrays_are_refused(fields):
    with pytest.raises(ValueError, match="y must have one field of booleans"):
        times_and_events(np.zeros(4, dtype=fields))


def test_hazard_by_hand():
    """No coefficients: the Nelson-Aalen estimator."""
    y = np.array([[1.0, 1], [2.0, 1], [2.0, 0], [4.0, 1], [5.0, 0]])
    model = TrimmedCoxRegressor(h=0).fit(np.arange(5.0)[:, None], y)
    np.testing.assert_array_equal(model.coef_, 0)
    np.testing.assert_array_equal(model.event_times_, [1.0, 2.0, 4.0])
    np.testing.assert_allclose(model.baseline_hazard_, [1 / 5, 1 / 4, 1 / 2])
    np.testing.assert_allclose(model.baseline_cumulative_hazard_, np.cumsum([1 / 5, 1 / 4, 1 / 2]))
    survival = model.predict_survival_function([[0.0]], times=[0.5, 1.0, 1.5, 3.0, 4.0, 100.0])
    hazard = np.array([0.0, 0.2, 0.2, 0.45, 0.95, 0.95])
    np.testing.assert_allclose(survival, np.exp(-hazard)[None])
    np.testing.assert_allclose(
        model.predict_survival_function([[0.0], [1.0]]),
        np.exp(-np.cumsum([[1 / 5, 1 / 4, 1 / 2]] * 2, axis=1)),
    )


def test_survival_does_not_depend_on_where_X_is_centred(make):
    case = make("cox")
    plain = TrimmedCoxRegressor(h=3).fit(case.X, case.y)
    for shift in (5.0, 2000.0):  # beyond what exp can take, without and with the mean taken out
        moved = TrimmedCoxRegressor(h=3).fit(case.X + shift, case.y)
        np.testing.assert_allclose(moved.coef_, plain.coef_, rtol=1e-6)
        np.testing.assert_allclose(
            moved.predict_survival_function(case.X + shift),
            plain.predict_survival_function(case.X),
            rtol=1e-5,
        )
    falling = np.diff(plain.predict_survival_function(case.X), axis=1)
    assert (falling <= 0).all()


def test_lifelines_has_the_same_coefficients(make):
    lifelines = pytest.importorskip("lifelines")
    case = make("cox", n=150, p=5)
    frame = pd.DataFrame(case.X, columns=list("abcde")).assign(time=case.y[:, 0], event=case.y[:, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own, about pandas
        peer = lifelines.CoxPHFitter().fit(frame, "time", "event", fit_options={"precision": 1e-10})
    model = TrimmedCoxRegressor(h=5, tol=1e-10).fit(case.X, case.y)
    np.testing.assert_allclose(model.coef_, peer.params_, atol=1e-6)
    assert 150 * model.objective_ == pytest.approx(-peer.log_likelihood_, rel=1e-9)
    assert model.score(case.X, case.y) == pytest.approx(peer.concordance_index_, abs=1e-12)


def test_statsmodels_has_the_same_coefficients(make):
    duration = pytest.importorskip("statsmodels.duration.api")
    case = make("cox", n=150, p=5)
    for ties in ("efron", "breslow"):
        peer = duration.PHReg(case.y[:, 0], case.X, status=case.y[:, 1], ties=ties).fit(disp=0)
        model = TrimmedCoxRegressor(h=5, ties=ties, tol=1e-10).fit(case.X, case.y)
        np.testing.assert_allclose(model.coef_, peer.params, atol=1e-6)
