"""Weights, offsets, exposures and groups by metadata routing, in pipelines, searches and folds."""

import numpy as np
import pytest
from sklearn import config_context
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from trimreg import (
    Bootstrap,
    MEstimatorCV,
    StabilitySelection,
    TrimmedLasso,
    TrimmedLassoCV,
    TrimmedNegativeBinomialRegressor,
    TrimmedOrdinalRegression,
    TrimmedPoissonRegressor,
    TrimmedQuantileRegressor,
)

N = 90
rng = np.random.default_rng(0)
X = rng.standard_normal((N, 4))
y = X[:, 1] + 0.3 * rng.standard_normal(N)
weight, offset, groups = rng.uniform(0.5, 2.0, N), rng.uniform(0.0, 1.0, N), np.arange(N) % 6
counts = rng.poisson(np.exp(X[:, 1] + offset))
KNOWN = {"sample_weight": weight, "offset": offset}


@pytest.fixture(autouse=True)
def routing():
    with config_context(enable_metadata_routing=True):
        yield


def asking(model, **how):
    """The model, asking for weights and offsets in fits and scores."""
    how = how or {"sample_weight": True, "offset": True}
    return model.set_fit_request(**how).set_score_request(**how)


def piped(model):
    return make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model)


@pytest.mark.parametrize(
    ("model", "target"),
    [
        (TrimmedLasso(h=1), y),
        (TrimmedNegativeBinomialRegressor(h=1), counts),
        (TrimmedQuantileRegressor(h=1), y),
        (TrimmedOrdinalRegression(h=1), np.digitize(y, [-0.5, 0.5])),
    ],
    ids=lambda value: type(value).__name__,
)
def test_folds_of_a_pipeline_give_each_fit_and_score_its_rows(model, target):
    found = cross_validate(
        piped(asking(model)), X, target, params=KNOWN | {"groups": groups}, cv=GroupKFold(3)
    )
    for (train, test), score in zip(GroupKFold(3).split(X, y, groups), found["test_score"], strict=True):
        scaler = StandardScaler().fit(X[train])
        here, there = ({name: value[rows] for name, value in KNOWN.items()} for rows in (train, test))
        model.fit(scaler.transform(X[train]), target[train], **here)
        assert score == pytest.approx(model.score(scaler.transform(X[test]), target[test], **there))


def test_a_search_with_groups_of_samples():
    grid = {"trimmedlasso__h": [0, 1]}
    search = GridSearchCV(piped(asking(TrimmedLasso())), grid, cv=GroupKFold(3))
    search.fit(X, y, groups=groups, **KNOWN)
    assert search.best_params_ == {"trimmedlasso__h": 1}
    ours = TrimmedLassoCV(hs=[0, 1], cv=GroupKFold(3)).set_fit_request(sample_weight=True, cv_groups=True)
    assert piped(ours).fit(X, y, cv_groups=groups, sample_weight=weight)[-1].h_ == 1


def test_exposures_reach_predictions_and_scores():
    exposure = np.exp(offset)
    model = TrimmedPoissonRegressor(h=1).set_fit_request(exposure=True).set_predict_request(exposure=True)
    pipe = make_pipeline(StandardScaler(), model).fit(X, counts, exposure=exposure)
    twice = pipe.predict(X, exposure=2 * exposure)
    np.testing.assert_allclose(twice, 2 * pipe.predict(X, exposure=exposure))
    chosen = asking(MEstimatorCV("negative_binomial", hs=[0, 1], criterion="bic"), exposure=True)
    assert cross_val_score(chosen, X, counts, params={"exposure": exposure}, cv=3).mean() > 0.3


def test_resampling_passes_on_what_its_estimator_asks_for():
    model = TrimmedLasso(h=1).set_fit_request(**dict.fromkeys(KNOWN, True))
    stable = piped(StabilitySelection(model, n_pairs=3)).fit(X, y, **KNOWN)[-1]
    alone = StabilitySelection(model, n_pairs=3).fit(StandardScaler().fit_transform(X), y, **KNOWN)
    np.testing.assert_array_equal(stable.stability_path_, alone.stability_path_)
    poisson = TrimmedPoissonRegressor(h=1).set_fit_request(exposure=True)
    draws = make_pipeline(StandardScaler(), Bootstrap(poisson, n_replicates=3))
    assert draws.fit(X, counts, exposure=np.exp(offset))[-1].coefs_.shape == (3, 4)


def test_what_nobody_asked_for_is_an_error():
    with pytest.raises(UnsetMetadataPassedError, match="offset"):
        make_pipeline(StandardScaler(), TrimmedLasso(h=1)).fit(X, y, offset=offset)
