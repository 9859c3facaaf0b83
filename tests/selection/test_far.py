"""Searches and resamplings on X that is not in memory, and on a cluster's workers."""

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.linear_model import Lasso
from sklearn.model_selection import GroupKFold, ShuffleSplit

from trimreg import (
    Bootstrap,
    MEstimatorCV,
    StabilitySelection,
    TrimmedLasso,
    TrimmedLassoCV,
    TrimmedLogisticRegression,
    TrimmedLogisticRegressionCV,
    trimmed_path,
)
from trimreg.designs.far.rows import ArrayRows
from trimreg.selection import folds as folds_module
from trimreg.selection.folds import predictors
from trimreg.selection.search import parallel

N, P = 150, 12


class Untouchable(ArrayRows):
    """Rows that must not be read."""

    def sweep(self, *arguments, **more):
        raise AssertionError("X was read")


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, P)) * np.geomspace(0.3, 3.0, P) + 1.0
    y = 2.0 * X[:, 3] - X[:, 7] + 0.5 * X[:, 9] + rng.standard_normal(N)
    return X, y


@pytest.mark.parametrize(
    ("model", "weighted"),
    [
        (TrimmedLassoCV(hs=[0, 1, 2, 3, 5]), False),
        (TrimmedLassoCV(hs=[1, 3], alphas=["exact", 0.5, 0.1], rule="1se"), True),
        (TrimmedLassoCV(hs=[1, 3], alphas="auto", cv=ShuffleSplit(2, random_state=0)), False),
        (TrimmedLassoCV(criterion="bic", hs=[0, 2, 3, 4]), True),
        (TrimmedLassoCV(hs=[1, 2], positive=True, standardize=False), False),
        (MEstimatorCV(loss="huber", hs=[2, 3], cv=2), True),
        (MEstimatorCV(loss="quadratic", groups=np.arange(P) // 2, hs=[1, 2], alphas=[0.1], cv=2), True),
    ],
    ids=lambda value: repr(value)[:50],
)
def test_choices_are_the_same(data, model, weighted):
    X, y = data
    weight = np.random.default_rng(1).integers(0, 3, N).astype(float) if weighted else None
    near = model.fit(X, y, sample_weight=weight)
    expected = {
        name: getattr(near, name) for name in ("h_", "alpha_", "best_index_", "coef_", "intercept_")
    } | {"scores": getattr(near, "score_path_", None), "T": near.stationarity_}
    rows = ArrayRows(X, block_rows=41)
    far = model.fit(rows, y, sample_weight=weight)
    assert far.h_ == expected["h_"]
    assert far.best_index_ == expected["best_index_"]
    assert far.alpha_ == pytest.approx(expected["alpha_"], rel=1e-6)
    assert far.coef_ == pytest.approx(expected["coef_"], rel=1e-6, abs=1e-7)
    assert far.intercept_ == pytest.approx(expected["intercept_"], rel=1e-6, abs=1e-6)
    if expected["scores"] is not None:
        assert far.score_path_ == pytest.approx(expected["scores"], rel=1e-6)
    assert np.sqrt(far.stationarity_) <= 1e-5 + 10 * np.sqrt(expected["T"])


def test_folds_and_criteria_share_a_pass(data):
    """Moments, the products of all folds, the grid; and a few that confirm the choice on the data."""
    X, y = data
    rows = ArrayRows(X, block_rows=41)
    TrimmedLassoCV(cv=5, alphas="auto", hs=range(0, 8, 2), l2s=[0.0, 0.1]).fit(rows, y)
    assert rows.passes <= 8
    rows = ArrayRows(X, block_rows=41)
    rows.widest_gram = P // 5  # a path is worth the products of more columns than a fit
    near = TrimmedLassoCV(criterion="ebic", hs=range(5), alphas=["exact", 0.1]).fit(X, y)
    far = TrimmedLassoCV(criterion="ebic", hs=range(5), alphas=["exact", 0.1]).fit(rows, y)
    assert rows.passes <= 8
    assert far.criterion_path_ == pytest.approx(near.criterion_path_, rel=1e-10)


def test_the_criterion_of_a_perfect_fit_is_not_that_of_few_rows(data):
    X, _ = data
    y = X[:, 3] - 2.0 * X[:, 5]
    near, far = (TrimmedLassoCV(criterion="ebic", hs=range(5)).fit(A, y) for A in (X, ArrayRows(X, 41)))
    assert near.h_ == far.h_ == 2
    assert far.criterion_path_[2, 0] < N * np.log(1e-25)


def test_classes(data):
    X, y = data
    labels = np.array(["a", "b", "c"])[np.digitize(y, np.quantile(y, [0.3, 0.7]))]
    for target in (labels, labels == "a"):
        near = TrimmedLogisticRegressionCV(hs=[1, 2], cv=2, effort="low").fit(X, target)
        far = TrimmedLogisticRegressionCV(hs=[1, 2], cv=2, effort="low").fit(ArrayRows(X, 41), target)
        assert far.h_ == near.h_
        assert far.score_path_ == pytest.approx(near.score_path_, rel=1e-5)
        assert far.coef_ == pytest.approx(near.coef_, abs=1e-5)


def test_groups_of_samples(data):
    X, y = data
    groups = np.arange(N) % 5
    settings = {"hs": [2, 3], "cv": GroupKFold(5)}
    near = TrimmedLassoCV(**settings).fit(X, y, cv_groups=groups)
    far = TrimmedLassoCV(**settings).fit(ArrayRows(X, 41), y, cv_groups=groups)
    assert far.score_path_ == pytest.approx(near.score_path_, rel=1e-8)


def test_predictors_by_parts(data, monkeypatch):
    X, _ = data
    rng = np.random.default_rng(3)
    for shape in ((7, P), (7, 3, P)):
        coefs, intercepts = rng.standard_normal(shape), rng.standard_normal(shape[:-1])
        whole = predictors(X, coefs, intercepts)
        for room in (1, 3 * N, 10**9):
            monkeypatch.setattr(folds_module, "_PREDICTED", room)
            rows = ArrayRows(X, block_rows=41)
            parts = np.array(list(predictors(rows, coefs, intercepts)))
            assert parts == pytest.approx(whole, rel=1e-12, abs=1e-12)
            step = max(1, room // (N * (shape[1] if len(shape) == 3 else 1)))
            assert rows.passes == -(-7 // step)


def test_paths(data):
    X, y = data
    grid = {"hs": [0, 2, 4], "alphas": ["exact", 0.5, 0.05]}
    near, rows = trimmed_path(X, y, **grid), ArrayRows(X, block_rows=41)
    far = trimmed_path(rows, y, **grid)
    assert far.coefs == pytest.approx(near.coefs, abs=1e-7)
    assert far.objectives == pytest.approx(near.objectives, rel=1e-9)
    assert rows.passes <= 4
    for row in far.results:
        for one in row:
            assert np.sqrt(one.stationarity) < 1e-4  # not nan either


def test_scoring_needs_memory(data):
    X, y = data
    model = TrimmedLassoCV(scoring="r2")
    with pytest.raises(
        ValueError, match="scoring needs X in memory, and X is an Untouchable; leave scoring=None"
    ):
        model.fit(Untouchable(X, 41), y)
    assert not hasattr(model, "n_features_in_")


def test_a_failed_search_leaves_nothing(data):
    X, y = data
    bad = X.copy()
    bad[77, 5] = np.nan
    model = TrimmedLassoCV(hs=[1, 2]).fit(X, y)
    before = dict(vars(model))
    with pytest.raises(ValueError, match="X contains NaN at row 77, column 5"):
        model.fit(ArrayRows(bad, 41), y)
    assert vars(model) == before


# -- stability selection ------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_stability(data, weighted):
    X, y = data
    params = {"sample_weight": np.random.default_rng(1).integers(0, 3, N)} if weighted else {}
    settings = {"hs": [2, 4], "n_pairs": 4}
    near = StabilitySelection(**settings).fit(X, y, **params)
    far = StabilitySelection(**settings).fit(ArrayRows(X, 41), y, **params)
    assert np.array_equal(far.stability_path_, near.stability_path_)
    assert np.array_equal(far.support_, near.support_)
    with pytest.raises(ValueError, match="transform needs X in memory"):
        far.transform(ArrayRows(X, 41))


def test_stability_of_classes(data):
    X, y = data
    labels = np.where(y > np.median(y), "high", "low")
    model = TrimmedLogisticRegression(alpha=0.1, effort="low")
    near = StabilitySelection(model, hs=2, n_pairs=2).fit(X, labels)
    far = StabilitySelection(model, hs=2, n_pairs=2).fit(ArrayRows(X, 41), labels)
    assert np.array_equal(far.scores_, near.scores_)


def test_other_estimators_need_memory(data):
    X, y = data
    selector = StabilitySelection(Lasso(), hs=[0.1], param_name="alpha", n_pairs=2)
    with pytest.raises(ValueError, match=r"Lasso needs X in memory.* take an estimator of this library"):
        selector.fit(Untouchable(X, 41), y)
    assert not hasattr(selector, "n_features_in_")


# -- who does the work --------------------------------------------------------------------------------------


def _where(_):
    import os

    return os.getpid()


def test_shared_tasks_stay_in_this_process():
    import os

    with parallel_config("loky"):
        assert set(parallel(_where, [(0,), (1,)], n_jobs=2, shared=True)) == {os.getpid()}


def test_tensors_are_shared_between_threads(data):
    torch = pytest.importorskip("torch")
    X, y = data
    settings = {"estimator": TrimmedLasso(h=3), "n_replicates": 3}
    near = Bootstrap(**settings).fit(X, y)
    far = Bootstrap(n_jobs=2, **settings).fit(torch.tensor(X), torch.tensor(y))
    assert far.coefs_ == pytest.approx(near.coefs_, abs=1e-9)


@pytest.fixture(scope="module")
def cluster():
    distributed = pytest.importorskip("distributed")
    quiet = {"dashboard_address": ":0"}  # None would still take port 8787
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, **quiet) as running:
        yield running


@pytest.fixture
def client(cluster):
    from distributed import Client

    with Client(cluster) as connected:
        yield connected


@pytest.mark.parametrize(
    ("model", "answer"),
    [
        (TrimmedLassoCV(hs=[1, 2, 3], cv=3), "score_path_"),
        (StabilitySelection(TrimmedLasso(), hs=3, n_pairs=3), "stability_path_"),
        (Bootstrap(TrimmedLasso(h=3), n_replicates=6), "coefs_"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_the_workers_of_a_cluster_give_the_same(data, client, model, answer):
    X, y = data
    here = np.array(getattr(model.fit(X, y), answer))
    with parallel_config("dask", n_jobs=2):
        there = getattr(model.fit(X, y), answer)
    assert np.array_equal(here, there)
