"""Strata, late starts and rows of changing features: against lifelines, and against sums over all pairs."""

import warnings
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from trimreg import TrimmedCoxRegressor, concordance
from trimreg.diagnostics import is_local_minimum, stationarity

N, P = 150, 4
NAMES = list("wxyz")


@pytest.fixture(scope="module")
def trial():
    """Samples of three strata that enter late, with ties among starts and stops."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, P)) + 0.5
    strata = np.array(["north", "south", "west"])[rng.integers(0, 3, N)]
    start = rng.exponential(0.3, N).round(1)
    stop = start + 0.1 + rng.exponential(np.exp(-X @ [0.8, -0.5, 0.0, 0.3])).round(1)
    event = rng.random(N) < 0.7
    y, ends = np.column_stack([start, stop, event]), np.column_stack([stop, event])
    return SimpleNamespace(X=X, strata=strata, start=start, stop=stop, event=event, y=y, ends=ends)


def fitted(trial, y, ties="efron", **more):
    return TrimmedCoxRegressor(h=P, tol=1e-12, ties=ties).fit(trial.X, y, **more)


def by_loops(trial, coef, late, strata, ties, weight=None):
    """Minus the log partial likelihood: for each event, the sum over all samples."""
    w, eta, total = np.ones(N) if weight is None else weight, trial.X @ coef, 0.0
    s, size = trial.strata if strata else np.full(N, ""), w * np.exp(eta)
    for label, t in {(a, b) for a, b, e in zip(s, trial.stop, trial.event, strict=True) if e}:
        tied = (s == label) & (trial.stop == t) & trial.event
        at_risk = (s == label) & (trial.stop >= t) & ((trial.start < t) | (not late))
        total -= w[tied] @ eta[tied]
        for l in range(tied.sum()):
            part = l / tied.sum() if ties == "efron" else 0.0
            total += w[tied].mean() * np.log(size[at_risk].sum() - part * size[tied].sum())
    return total


@pytest.mark.parametrize(("late", "strata"), [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_coefficients_minimize_the_partial_likelihood(trial, late, strata, ties):
    more = {"strata": trial.strata} if strata else {}
    model = fitted(trial, trial.y if late else trial.ends, ties, **more)
    value = assert_minimum(model, lambda coef: by_loops(trial, coef, late, strata, ties))
    assert N * model.objective_ == pytest.approx(value, rel=1e-12)


def assert_minimum(model, loss):
    """The coefficients are at a minimum to 1e-6, by parabolas through three points; its value."""
    value = loss(model.coef_)
    for step in 1e-3 * np.eye(P):
        around = [loss(model.coef_ + s * step) for s in (-1, 1)]
        assert abs(around[1] - around[0]) / (2e3 * (sum(around) - 2 * value)) < 1e-6
    return value


def quiet(function, *args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own, about pandas
        return function(*args, **options, fit_options={"precision": 1e-12})


def frame(trial, *columns):
    more = {name: getattr(trial, name) for name in columns}
    return pd.DataFrame(trial.X, columns=NAMES).assign(**more)


def test_lifelines_in_strata(trial):
    lifelines = pytest.importorskip("lifelines")
    table = frame(trial, "stop", "event", "strata")
    peer = quiet(lifelines.CoxPHFitter().fit, table, "stop", "event", strata=["strata"])
    model = fitted(trial, trial.ends, strata=trial.strata)
    np.testing.assert_allclose(model.coef_, peer.params_, atol=1e-6)
    score = model.score(trial.X, trial.ends, strata=trial.strata)
    assert score == pytest.approx(peer.concordance_index_, abs=1e-12)
    times = np.unique(trial.stop)
    survival = peer.predict_survival_function(table, times=times)[range(N)].T
    np.testing.assert_allclose(
        model.predict_survival_function(trial.X, times, trial.strata), survival, atol=1e-6
    )
    mean = np.exp(trial.X.mean(axis=0) @ model.coef_)  # its baseline is that of the mean
    for label, hazard in model.baseline_cumulative_hazard_.items():
        theirs = peer.baseline_cumulative_hazard_.loc[model.event_times_[label], label]
        np.testing.assert_allclose(mean * hazard, theirs, atol=1e-6)


def test_lifelines_with_late_starts(trial):
    lifelines = pytest.importorskip("lifelines")
    for strata in (None, "strata"):
        table = frame(trial, "start", "stop", "event", *([strata] if strata else []))
        more = {"strata": [strata]} if strata else {}
        model = fitted(trial, trial.y, **({"strata": trial.strata} if strata else {}))
        peer = quiet(lifelines.CoxPHFitter().fit, table, "stop", "event", entry_col="start", **more)
        np.testing.assert_allclose(model.coef_, peer.params_, atol=1e-6)
        table = table.assign(subject=range(N))
        rows = quiet(lifelines.CoxTimeVaryingFitter().fit, table, "event", id_col="subject", **more)
        np.testing.assert_allclose(model.coef_, rows.params_, atol=1e-6)
        if strata is None:  # with strata it has no baseline for each
            mean = np.exp(trial.X.mean(axis=0) @ model.coef_)
            np.testing.assert_allclose(
                mean * model.baseline_cumulative_hazard_, rows.baseline_cumulative_hazard_["baseline hazard"],
                atol=1e-6,
            )  # fmt: skip


def test_rows_of_a_subject_are_one_sample(trial):
    """Cut at any time, with the same features on both sides, a sample stays what it is."""
    whole = fitted(trial, trial.y, strata=trial.strata)
    cut = (trial.start + trial.stop) / 2
    y = np.vstack(
        [np.column_stack([trial.start, cut, np.zeros(N)]), np.column_stack([cut, trial.stop, trial.event])]
    )
    X, strata = np.vstack([trial.X, trial.X]), np.tile(trial.strata, 2)
    model = TrimmedCoxRegressor(h=P, tol=1e-12).fit(X, y, strata=strata)
    np.testing.assert_allclose(model.coef_, whole.coef_, atol=1e-9)
    for label, hazard in whole.baseline_hazard_.items():
        np.testing.assert_allclose(model.baseline_hazard_[label], hazard, rtol=1e-8)
    assert model.score(X, y, strata=strata) == pytest.approx(
        whole.score(trial.X, trial.y, strata=trial.strata)
    )


def test_a_feature_that_changes_is_found():
    """A treatment that begins during the study: as one row it looks protective: one has to live to get it."""
    rng = np.random.default_rng(0)
    begin, noise = rng.exponential(1.0, 400), rng.standard_normal((400, 5))
    death = rng.exponential(1.0, 400)
    treated = death > begin
    death[treated] = begin[treated] + rng.exponential(0.5, treated.sum())  # it doubles the hazard
    first = np.column_stack([np.zeros(400), np.minimum(death, begin), ~treated])
    second = np.column_stack([begin, death, np.ones(400)])[treated]
    X = np.column_stack([np.repeat([0.0, 1.0], [400, treated.sum()]), np.vstack([noise, noise[treated]])])
    model = TrimmedCoxRegressor(h=1).fit(X, np.vstack([first, second]))
    assert model.support_.tolist() == [0]
    assert abs(model.coef_[0] - np.log(2.0)) < 0.2
    naive = TrimmedCoxRegressor(h=1).fit(np.column_stack([treated, noise]), death)
    assert naive.coef_[0] < 0


def test_forms_of_the_target_with_starts(trial):
    expected = TrimmedCoxRegressor(h=2).fit(trial.X, trial.y)
    fields = [("on", float), ("dead", bool), ("off", float)]
    records = list(zip(trial.start, trial.event, trial.stop, strict=True))
    forms = [np.array(records, dtype=fields), pd.DataFrame(trial.y), trial.y.tolist()]
    for y in forms:
        np.testing.assert_allclose(TrimmedCoxRegressor(h=2).fit(trial.X, y).coef_, expected.coef_, rtol=1e-9)
    by_name = TrimmedCoxRegressor(h=2).fit(trial.X, trial.y, strata=pd.Series(trial.strata))
    codes = np.unique(trial.strata, return_inverse=True)[1]
    by_code = TrimmedCoxRegressor(h=2).fit(trial.X, np.column_stack([trial.y, 10 + codes]))
    np.testing.assert_array_equal(by_code.coef_, by_name.coef_)
    assert by_name.strata_.tolist() == ["north", "south", "west"]
    assert by_code.strata_.tolist() == [10.0, 11.0, 12.0]
    assert sorted(by_name.event_times_) == ["north", "south", "west"]


def test_hazards_by_hand():
    """No coefficients: the Nelson-Aalen estimator of every stratum, with the sets at risk of late starts."""
    y = np.array([[0.0, 2, 1], [1.0, 3, 1], [2.0, 4, 1], [0.0, 5, 0], [0.0, 2, 1], [0.0, 6, 1]])
    strata = ["b", "b", "b", "b", "a", "a"]
    model = TrimmedCoxRegressor(h=0).fit(np.arange(6.0)[:, None], y, strata=strata)
    np.testing.assert_array_equal(model.event_times_["b"], [2.0, 3.0, 4.0])
    np.testing.assert_allclose(model.baseline_hazard_["b"], [1 / 3, 1 / 3, 1 / 2])  # the third enters at 2
    np.testing.assert_allclose(model.baseline_cumulative_hazard_["a"], [1 / 2, 3 / 2])
    hazard = model.predict_cumulative_hazard_function([[0.0], [0.0]], strata=["a", "b"])
    np.testing.assert_allclose(hazard, [[1 / 2] * 3 + [3 / 2], [1 / 3, 2 / 3, 7 / 6, 7 / 6]])
    survival = model.predict_survival_function([[0.0]], times=[0.0, 2.5], strata=["b"])
    np.testing.assert_allclose(survival, np.exp([[0.0, -1 / 3]]))


def test_a_stratum_without_weight_has_no_known_hazard(trial):
    weight = (trial.strata != "west").astype(float)
    model = TrimmedCoxRegressor(h=1).fit(trial.X, trial.y, weight, strata=trial.strata)
    assert model.event_times_["west"].size == model.baseline_hazard_["west"].size == 0
    survival = model.predict_survival_function(trial.X[:2], [9.0], strata=["west", "north"])
    assert survival[0, 0] == 1.0 > survival[1, 0]


def test_certificates_hold(trial):
    model = TrimmedCoxRegressor(h=2, alpha=0.05).fit(trial.X, trial.y, strata=trial.strata)
    problem = model.problem(trial.X, trial.y, strata=trial.strata)
    assert stationarity(**problem) < 1e-10
    exact = TrimmedCoxRegressor(h=2).fit(trial.X, trial.y, strata=trial.strata)
    problem = exact.problem(trial.X, trial.y, strata=trial.strata)
    assert is_local_minimum(**problem)
    assert "samples: 150" in str(exact.summary())


def test_offsets_and_weights_in_strata(trial):
    """An offset that is constant in each stratum is part of its baseline."""
    offset = (trial.strata == "west") * 2.0
    plain, moved = (fitted(trial, trial.y, strata=trial.strata, **more) for more in ({}, {"offset": offset}))
    np.testing.assert_allclose(moved.coef_, plain.coef_, atol=1e-8)
    np.testing.assert_allclose(
        moved.predict_survival_function(trial.X, strata=trial.strata, offset=offset),
        plain.predict_survival_function(trial.X, strata=trial.strata), rtol=1e-7,
    )  # fmt: skip
    weight = np.random.default_rng(0).uniform(0.5, 2.0, N)
    model = fitted(trial, trial.y, strata=trial.strata, sample_weight=weight)
    assert_minimum(model, lambda coef: by_loops(trial, coef, True, True, "efron", weight))


# -- concordance ----------------------------------------------------------------------------------------


def by_pairs(risk, y, weight, strata):
    start, time, event = y.T
    right, total = 0.0, 0.0
    for i in np.flatnonzero(event):
        for j in range(len(y)):
            later = time[j] > time[i] or (time[j] == time[i] and not event[j])
            if strata[i] == strata[j] and start[j] < time[i] and later:
                total += weight[i] * weight[j]
                right += weight[i] * weight[j] * ((risk[i] > risk[j]) + 0.5 * (risk[i] == risk[j]))
    return right / total


@pytest.mark.parametrize("levels", [2, 6, 1000])
def test_concordance_counts_pairs_at_risk_in_a_stratum(levels):
    rng = np.random.default_rng(levels)
    for n in (12, 33, 64):
        start = rng.integers(0, levels, n) / 2.0
        y = np.column_stack([start, start + rng.integers(1, levels + 1, n), rng.random(n) < 0.7])
        y[:2] = [[0.0, 1.0, 1.0], [0.0, 2.0 * levels, 0.0]]  # so that there is a pair
        strata = rng.integers(0, 3, n)
        strata[1] = strata[0]
        risk, weight = rng.integers(0, levels, n) - 1.0, rng.integers(0, 3, n) + 0.5
        for more, w in (({}, np.ones(n)), ({"sample_weight": weight}, weight)):
            expected = by_pairs(risk, y, w, strata)
            assert concordance(y, risk, strata=strata, **more) == pytest.approx(expected, abs=1e-12)
        expected = by_pairs(risk, y, np.ones(n), np.zeros(n))
        assert concordance(y, risk) == pytest.approx(expected, abs=1e-12)


def test_no_pair_in_any_stratum():
    y = np.array([[1.0, 1], [2.0, 1], [3.0, 1]])
    with pytest.raises(ValueError, match="y must have two samples with a known order"):
        concordance(y, [1.0, 2.0, 3.0], strata=[0, 1, 2])
    with pytest.raises(ValueError, match="y must have two samples with a known order"):
        concordance(np.array([[0.0, 1, 1], [1.0, 2, 1]]), [1.0, 2.0])  # one starts as the other ends


# -- bad input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strata", "match"),
    [
        (["a", "b"], r"strata must have one label per sample, 150 in all; got shape \(2,\)"),
        (np.where(np.arange(N) == 3, None, "a"), "strata must not be missing; got None for sample 3"),
        (np.where(np.arange(N) == 3, np.nan, 1.0), "strata must not be missing; got nan for sample 3"),
        (np.array([1, "a"] * 75, dtype=object), "strata must be labels of one kind"),
        ("sites", "strata must be an array"),
    ],
)
def test_strata_that_are_refused(trial, strata, match):
    with pytest.raises(ValueError, match=match):
        TrimmedCoxRegressor(h=1).fit(trial.X, trial.y, strata=strata)


def test_strata_without_events_and_unknown_ones(trial):
    strata = np.where(np.arange(N) < 2, "tiny", trial.strata)
    y = trial.y.copy()
    y[:2, 2] = 0
    with pytest.raises(ValueError, match=r"strata must have an event in each; got none in .*tiny"):
        TrimmedCoxRegressor(h=1).fit(trial.X, y, strata=strata)
    with pytest.raises(ValueError, match="strata must be None if the fourth column"):
        TrimmedCoxRegressor(h=1).fit(trial.X, np.column_stack([y, np.zeros(N)]), strata=strata)
    plain, model = (TrimmedCoxRegressor(h=1).fit(trial.X, trial.y, strata=s) for s in (None, trial.strata))
    with pytest.raises(ValueError, match="strata must be None: the fit had none"):
        plain.predict_survival_function(trial.X, strata=trial.strata)
    with pytest.raises(ValueError, match="strata must be given: the fit had 3, such as"):
        model.predict_survival_function(trial.X)
    with pytest.raises(ValueError, match="strata must be among those of the fit; 'tiny' is none"):
        model.predict_survival_function(trial.X, strata=strata)
    assert 0 < model.score(trial.X, y, strata=strata) < 1  # a score takes any
