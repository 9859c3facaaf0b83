"""Fits on files: the answers, the certificates and the predictions of the same fit in memory."""

import pickle
import tracemalloc
import warnings

import numpy as np
import pytest
import zarr
from sklearn.base import clone

from trimreg import (
    OnDisk,
    TrimmedCoxRegressor,
    TrimmedHuberRegressor,
    TrimmedLasso,
    TrimmedLassoCV,
    TrimmedLogisticRegression,
    TrimmedPoissonRegressor,
)
from trimreg.designs.far import disk

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

N, P, H = 300, 12, 4


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(disk, "BLOCK_BYTES", 64 * P * 8)


@pytest.fixture
def data():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((N, P)) + 0.5
    X[:, 1:] = 0.5 * X[:, :-1] + X[:, 1:]
    X *= 10.0 ** rng.integers(-2, 3, P)
    X[:, 5] = 7.0  # a constant column
    eta = (X - X.mean(axis=0))[:, :H] / X.std(axis=0)[:H] @ [1.0, -1.0, 0.8, 0.6]
    return X, eta, rng


def npy(X, folder):
    np.save(folder / "X.npy", X)
    return folder / "X.npy"


def in_parquet(X, folder):
    table = pa.table({f"x{j}": X[:, j] for j in range(P)})
    pq.write_table(table, folder / "X.parquet", row_group_size=100)
    return folder / "X.parquet"


def in_zarr(X, folder):
    path = str(folder / "X.zarr")
    zarr.create_array(store=path, shape=X.shape, chunks=(50, 5), dtype=X.dtype)[:] = X
    return path


SOURCES = {
    "npy": npy,
    "npy-F": lambda X, folder: npy(np.asfortranarray(X), folder),
    "memmap": lambda X, folder: np.load(npy(X, folder), mmap_mode="r"),
    "parquet": in_parquet,
    "zarr": in_zarr,
}


def same(far, near, X, rows, tolerance=1e-9):
    scale = np.abs(near.coef_).max()
    np.testing.assert_allclose(far.coef_, near.coef_, rtol=tolerance, atol=tolerance * scale)
    np.testing.assert_allclose(far.intercept_, near.intercept_, rtol=tolerance, atol=tolerance * scale)
    np.testing.assert_array_equal(far.coef_ != 0, near.coef_ != 0)
    assert far.result_.converged
    assert far.result_.swap_optimal == near.result_.swap_optimal
    assert far.result_.objective == pytest.approx(near.result_.objective, rel=tolerance)
    np.testing.assert_allclose(far.predict(rows), near.predict(X), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("alpha", ["exact", 0.05])
def test_least_squares(kind, dtype, alpha, data, tmp_path):
    X, eta, rng = data
    X, y = X.astype(dtype), eta + rng.standard_normal(N)
    rows = OnDisk(SOURCES[kind](X, tmp_path))
    far, near = (TrimmedLasso(h=H, alpha=alpha).fit(A, y) for A in (rows, X))
    same(far, near, X, rows, 1e-9 if dtype is np.float64 else 1e-5)
    assert far.coef_.dtype == near.coef_.dtype


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("alpha", ["exact", 0.02])
def test_logistic(kind, alpha, data, tmp_path):
    X, eta, rng = data
    y = np.where(rng.random(N) < 1 / (1 + np.exp(-eta)), "yes", "no")
    rows = OnDisk(SOURCES[kind](X, tmp_path))
    far, near = (TrimmedLogisticRegression(h=H, alpha=alpha).fit(A, y) for A in (rows, X))
    assert list(far.classes_) == ["no", "yes"]
    np.testing.assert_allclose(far.coef_, near.coef_, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(far.predict_proba(rows), near.predict_proba(X), atol=1e-8)
    np.testing.assert_array_equal(far.predict(rows), near.predict(X))
    assert far.score(rows, y) == near.score(X, y)


@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_other_losses(kind, data, tmp_path):
    X, eta, rng = data
    rows = OnDisk(SOURCES[kind](X, tmp_path))
    waiting = rng.exponential(np.exp(-eta))
    targets = {
        TrimmedPoissonRegressor: rng.poisson(np.exp(eta / 2)),
        TrimmedHuberRegressor: eta + rng.standard_t(2, N),
        TrimmedCoxRegressor: np.array(
            list(zip(rng.random(N) < 0.7, waiting, strict=True)), dtype=[("event", bool), ("time", float)]
        ),
    }
    for kind_of_fit, y in targets.items():
        far, near = (kind_of_fit(h=H).fit(A, y) for A in (rows, X))
        np.testing.assert_allclose(far.coef_, near.coef_, rtol=1e-6, atol=1e-8, err_msg=kind_of_fit.__name__)


def test_sample_weights_and_scales(data, tmp_path):
    X, eta, rng = data
    y, weights = eta + rng.standard_normal(N), rng.integers(0, 3, N).astype(float)
    rows = OnDisk(npy(X, tmp_path))
    for options in ({"standardize": False}, {"fit_intercept": False}):
        far, near = (TrimmedLasso(h=H, **options).fit(A, y, weights) for A in (rows, X))
        same(far, near, X, rows)


def test_little_memory_costs_passes_and_nothing_else(data, tmp_path):
    X, eta, rng = data
    y = (rng.random(N) < 1 / (1 + np.exp(-eta))).astype(int)
    path = npy(X, tmp_path)
    much = OnDisk(path)
    little = OnDisk(path, memory=80 * N + 80 * N // 4 + 2 * N * 8)
    assert little.memory < 3 * N * 8 < much.memory
    fits = [TrimmedLogisticRegression(h=H).fit(rows, y) for rows in (much, little)]
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, rtol=1e-7, atol=1e-9)
    assert little.passes > much.passes


@pytest.mark.parametrize(
    ("kind_of_fit", "kind"),
    [(TrimmedLasso, "npy"), (TrimmedLasso, "zarr"), (TrimmedLogisticRegression, "npy-F")],
)
def test_memory_is_what_was_allowed_and_less_than_the_file(kind_of_fit, kind, tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "BLOCK_BYTES", 16 << 20)  # as it is outside of these tests
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50_000, 60))
    y = X[:, :2].sum(axis=1) + rng.standard_normal(50_000)
    y = y if kind_of_fit is TrimmedLasso else (y > 0).astype(float)
    memory = X.nbytes // 2
    if kind == "zarr":
        path = str(tmp_path / "X.zarr")
        source = zarr.create_array(store=path, shape=X.shape, chunks=(1000, 20), dtype=X.dtype)
        source[:] = X
    else:
        source = SOURCES[kind](X, tmp_path)
    kind_of_fit(h=2).fit(X[:100], y[:100])
    del X
    rows = OnDisk(source, memory=memory)
    tracemalloc.start()
    try:
        model = kind_of_fit(h=2).fit(rows, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(np.flatnonzero(model.coef_), [0, 1])
    assert peak < memory, peak


def test_names_of_columns(data, tmp_path):
    X, eta, _ = data
    model = TrimmedLasso(h=H).fit(OnDisk(in_parquet(X, tmp_path), columns=["x3", "x0", "x1", "x2"]), eta)
    assert list(model.feature_names_in_) == ["x3", "x0", "x1", "x2"]
    in_memory = TrimmedLasso(h=H).fit(X[:, [3, 0, 1, 2]], eta)
    np.testing.assert_allclose(model.coef_, in_memory.coef_, rtol=1e-9)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", SOURCES)
def test_the_place_of_a_bad_number_is_named_and_the_estimator_stays_as_it_was(kind, bad, data, tmp_path):
    X, eta, _ = data
    model = TrimmedLasso(h=H).fit(X, eta)
    before = pickle.dumps(model.coef_)
    X[[217, 260], 7] = bad
    rows = OnDisk(SOURCES[kind](X, tmp_path))
    with pytest.raises(
        ValueError, match=r"X contains (NaN|inf) at row 217, column .*7.* \(and 1 more NaN or inf\)"
    ):
        model.fit(rows, eta)
    assert pickle.dumps(model.coef_) == before
    fresh = TrimmedLasso(h=H)
    with pytest.raises(ValueError, match="row 217"):
        fresh.fit(rows, eta)
    assert [name for name in vars(fresh) if name.endswith("_")] == []


def test_a_wrong_length_is_refused_before_a_pass(data, tmp_path):
    X, eta, _ = data
    rows = OnDisk(npy(X, tmp_path))
    with pytest.raises(ValueError, match=r"300.*299|299.*300"):
        TrimmedLasso(h=H).fit(rows, eta[:-1])
    assert rows.passes == 0


def test_a_file_cut_in_the_middle_of_a_fit(data, tmp_path):
    X, eta, _ = data
    rows = OnDisk(npy(X, tmp_path))
    model = TrimmedLasso(h=H)
    original = rows.sweep

    def cut_after_the_first_pass(*arguments, **options):
        yield from original(*arguments, **options)
        (tmp_path / "X.npy").write_bytes((tmp_path / "X.npy").read_bytes()[:5000])

    rows.sweep = cut_after_the_first_pass
    with pytest.raises(
        ValueError, match=r"X.npy has changed since it was opened \(it had 28928 bytes, now 5000\)"
    ):
        model.fit(rows, eta)
    assert not hasattr(model, "coef_")


def test_models_keep_no_hold_of_the_file(data, tmp_path):
    X, eta, _ = data
    rows = OnDisk(npy(X, tmp_path))
    model = TrimmedLasso(h=H).fit(rows, eta)
    (tmp_path / "X.npy").unlink()
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert clone(model).get_params() == model.get_params()


def test_cross_validation(data, tmp_path):
    X, eta, rng = data
    y = eta + rng.standard_normal(N)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        far, near = (TrimmedLassoCV(hs=[2, 4, 6], cv=3).fit(A, y) for A in (OnDisk(npy(X, tmp_path)), X))
    assert far.h_ == near.h_
    np.testing.assert_allclose(far.coef_, near.coef_, rtol=1e-8, atol=1e-9)
