"""Offsets and exposures: equal to fits without them of other targets, and to statsmodels."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from trimreg import (
    L1,
    Bootstrap,
    MEstimatorCV,
    MultiTaskTrimmedLasso,
    OnDisk,
    StabilitySelection,
    TrimmedCoxRegressor,
    TrimmedGammaRegressor,
    TrimmedHuberRegressor,
    TrimmedLasso,
    TrimmedLassoCV,
    TrimmedLogisticRegression,
    TrimmedPoissonRegressor,
    solve,
    trimmed_path,
)
from trimreg.diagnostics import stationarity

N, P = 120, 8


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, P))
    exposure = rng.uniform(0.2, 30.0, N)
    rate = np.exp(0.5 * X[:, 1] - 0.7 * X[:, 3] + 0.2)
    return X, exposure, rng.poisson(rate * exposure).astype(float), rng.gamma(3.0, rate * exposure / 3.0)


@pytest.mark.parametrize("alpha", ["exact", 0.05])
def test_counts_with_exposure_are_rates_with_weights(data, alpha):
    X, exposure, counts, _ = data
    model = TrimmedPoissonRegressor(h=2, alpha=alpha, tol=1e-10).fit(X, counts, exposure=exposure)
    alpha = alpha if alpha == "exact" else alpha / exposure.mean()  # weights are normalized
    # Columns are standardized by the deviations that the weights give.
    plain = TrimmedPoissonRegressor(h=2, alpha=alpha, standardize=False, tol=1e-10)
    model.set_params(standardize=False).fit(X, counts, exposure=exposure)
    plain.fit(X, counts / exposure, sample_weight=exposure)
    assert_allclose(model.coef_, plain.coef_, atol=1e-8)
    assert_allclose(model.intercept_, plain.intercept_, atol=1e-8)
    assert_allclose(model.predict(X, exposure=exposure), exposure * plain.predict(X))
    assert_allclose(model.predict(X, offset=np.log(exposure)), exposure * plain.predict(X))
    assert stationarity(**model.problem(X, counts, exposure=exposure)) < 1e-12


def far(X, tmp_path):
    np.save(tmp_path / "X.npy", X)
    return OnDisk(tmp_path / "X.npy")


@pytest.mark.parametrize("place", [lambda X, _: X, far], ids=["memory", "disk"])
def test_amounts_with_exposure_are_amounts_per_unit(data, tmp_path, place):
    X, exposure, _, y = data
    X, per_unit = place(X, tmp_path), y / exposure
    model = TrimmedGammaRegressor(h=2).fit(X, y, exposure=exposure)
    plain = TrimmedGammaRegressor(h=2).fit(X, per_unit)
    assert_allclose(model.coef_, plain.coef_, atol=1e-7)
    assert model.score(X, y, exposure=exposure) == pytest.approx(plain.score(X, per_unit), rel=1e-6)
    for criterion in ("cv", "ebic"):
        chosen = MEstimatorCV(loss="gamma", criterion=criterion, hs=[0, 1, 2, 4], cv=3)
        coef = chosen.fit(X, y, exposure=exposure).coef_
        assert_allclose(coef, chosen.fit(X, per_unit).coef_, atol=1e-6)


def test_paths_and_resampling_take_offsets(data):
    X, exposure, _, y = data
    offset, settings = np.log(exposure), {"hs": [1, 2], "alphas": ["exact", 0.1], "loss": "gamma"}
    path = trimmed_path(X, y, offset=offset, **settings)
    assert_allclose(path.coefs, trimmed_path(X, y / exposure, **settings).coefs, atol=1e-6)
    model = TrimmedGammaRegressor(h=2)
    stable = StabilitySelection(model, hs=2, n_pairs=5).fit(X, y, offset=offset)
    assert_allclose(stable.scores_, StabilitySelection(model, hs=2, n_pairs=5).fit(X, y / exposure).scores_)
    boot = Bootstrap(model, n_replicates=5).fit(X, y, exposure=exposure)
    assert_allclose(boot.coefs_, Bootstrap(model, n_replicates=5).fit(X, y / exposure).coefs_, atol=1e-6)
    with pytest.raises(ValueError, match=r"offset must have one entry per sample, 120 in all; got \(3,\)"):
        Bootstrap(model, n_replicates=5).fit(X, y, offset=offset[:3])


@pytest.mark.parametrize("model", [TrimmedLasso(h=3), TrimmedHuberRegressor(h=3), TrimmedLassoCV(hs=[3])])
def test_offsets_of_differences_are_subtracted(data, model):
    X, exposure, _, y = data
    coef = model.fit(X, y, offset=exposure).coef_
    assert_allclose(model.predict(X, offset=exposure), exposure + model.predict(X))
    assert_allclose(coef, model.fit(X, y - exposure).coef_)
    assert model.score(X, y, offset=exposure) == pytest.approx(
        1 - np.sum((y - exposure - model.predict(X)) ** 2) / N / y.var()
    )
    outputs = np.column_stack([y, 2 * y])
    tasks = MultiTaskTrimmedLasso(h=3).fit(X, outputs, offset=exposure)
    assert_allclose(tasks.coef_, MultiTaskTrimmedLasso(h=3).fit(X, outputs - exposure[:, None]).coef_)


def test_equal_offsets_move_the_intercept_alone(data):
    X, _, counts, _ = data
    labels = (counts > np.median(counts)).astype(int)
    plain = TrimmedLogisticRegression(h=3, tol=1e-10).fit(X, labels)
    moved = TrimmedLogisticRegression(h=3, tol=1e-10).fit(X, labels, offset=np.full(N, 3.0))
    assert_allclose(moved.coef_, plain.coef_, atol=1e-8)
    assert_allclose(moved.intercept_, plain.intercept_ - 3.0, atol=1e-8)
    assert_allclose(moved.predict_proba(X, np.full(N, 3.0)), plain.predict_proba(X), atol=1e-8)
    times = np.column_stack([counts + 1.0, labels])
    cox, other = (TrimmedCoxRegressor(h=3).fit(X, times, offset=o) for o in (None, np.full(N, 2.0)))
    assert_allclose(cox.coef_, other.coef_, atol=1e-8)
    assert_allclose(
        cox.predict_survival_function(X), other.predict_survival_function(X, offset=np.full(N, 2.0))
    )


def test_all_features_as_statsmodels(data):
    sm = pytest.importorskip("statsmodels.api")
    X, exposure, counts, y = data
    offset, rng = np.log(exposure), np.random.default_rng(1)
    labels = (rng.random(N) < 1 / (1 + np.exp(-X[:, 1] - offset))).astype(float)
    log = sm.families.links.Log()
    families = [
        (TrimmedPoissonRegressor, counts, sm.families.Poisson()),
        (TrimmedGammaRegressor, y, sm.families.Gamma(log)),
        (TrimmedLogisticRegression, labels, sm.families.Binomial()),
    ]
    for model, target, family in families:
        fitted = model(h=P, tol=1e-12).fit(X, target, offset=offset)
        theirs = sm.GLM(target, sm.add_constant(X), family=family, offset=offset).fit(tol=1e-14, maxiter=200)
        ours = np.append(fitted.intercept_, fitted.coef_)
        assert_allclose(ours, theirs.params, atol=1e-8)
        if model is not TrimmedLogisticRegression:
            explained = 1 - theirs.deviance / theirs.null_deviance
            assert fitted.score(X, target, offset=offset) == pytest.approx(explained)
    times = np.round(rng.exponential(1 / exposure), 3) + 1e-3
    theirs = sm.PHReg(times, X, status=labels, ties="efron", offset=offset).fit()
    ours = TrimmedCoxRegressor(h=P, tol=1e-12).fit(X, np.column_stack([times, labels]), offset=offset)
    assert_allclose(ours.coef_, theirs.params, atol=1e-6)


def test_routing_brings_exposures_to_the_model(data):
    from sklearn import config_context
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, exposure, counts, _ = data
    with config_context(enable_metadata_routing=True):
        model = TrimmedPoissonRegressor().set_fit_request(exposure=True).set_score_request(exposure=True)
        pipe = make_pipeline(StandardScaler(), model)
        search = GridSearchCV(pipe, {"trimmedpoissonregressor__h": [0, 2]}, cv=3)
        assert search.fit(X, counts, exposure=exposure).best_params_ == {"trimmedpoissonregressor__h": 2}
        assert search.best_score_ > 0.8


def test_bad_offsets_are_refused_by_name(data):
    X, exposure, counts, y = data
    classes, model = np.arange(N) % 3, TrimmedPoissonRegressor(h=2)
    for rule, call in [
        (r"offset must have shape \(120,\)", lambda: model.fit(X, counts, offset=exposure[:5])),
        ("offset contains NaN", lambda: model.fit(X, counts, offset=np.full(N, np.nan))),
        ("needs a loss with a slope_bound", lambda: model.fit(X, counts, offset=np.full(N, 700.0))),
        ("exposure must be > 0; got 0.0 for sample 0", lambda: model.fit(X, counts, exposure=np.zeros(N))),
        ("exposure must be None", lambda: TrimmedLasso(h=2).fit(X, y, exposure=exposure)),
        ("offset must be None", lambda: TrimmedLogisticRegression(h=2).fit(X, classes, offset=exposure)),
        (r"offset must have shape \(120,\)", lambda: model.fit(X, counts).predict(X, offset=exposure[:5])),
        ("offset must be", lambda: solve(X, y, penalty=L1(), alpha=0.1, offset="exposure")),
        ("scoring must be None", lambda: TrimmedLassoCV(scoring="r2").fit(X, y, offset=exposure)),
    ]:
        with pytest.raises(ValueError, match=rule):
            call()
