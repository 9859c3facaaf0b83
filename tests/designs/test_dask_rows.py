"""Dask arrays and DataFrames as X: the answers of arrays in memory, whoever computes them."""

import os
import pickle
import signal
import time

import numpy as np
import pytest

pytest.importorskip("distributed", reason="needs the extra cluster")

import dask
import dask.array as da
import dask.dataframe as dd
import pandas as pd

from trimreg import (
    MultiTaskTrimmedLasso,
    TrimmedCoxRegressor,
    TrimmedGammaRegressor,
    TrimmedHuberRegressor,
    TrimmedLasso,
    TrimmedLogisticRegression,
    TrimmedPoissonRegressor,
)
from trimreg.designs.far import dask as daskrows
from trimreg.designs.far import dask_tasks as dasktasks
from trimreg.designs.far import kernels
from trimreg.designs.far.dask import DaskRows, added, grouped
from trimreg.designs.far.rows import block_product

N, P, H = 300, 12, 3


QUIET = {"threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}


@pytest.fixture(scope="module")
def cluster():
    from distributed import LocalCluster

    # A worker that asks a dead one for data gives up after this, and has it from elsewhere. On a busy machine
    # a living one may take seconds to answer, and a nanny that gets no answer starts no new worker.
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "10s"}),
        LocalCluster(n_workers=2, **QUIET) as running,
    ):
        yield running


@pytest.fixture
def client(cluster):
    from distributed import Client

    with Client(cluster) as connected:
        connected.wait_for_workers(2, timeout=300)  # one may have been killed just now
        yield connected


@pytest.fixture
def many_chunks(monkeypatch):
    """Small chunks stay as they are, also in X that estimators take."""
    monkeypatch.setattr(daskrows, "CHUNK_BYTES", 1)


def data(n=N, p=P, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) + rng.standard_normal(n)[:, None] / 2
    return X * np.logspace(-1, 1, p) + 3, rng


def in_chunks(X, rows=70, columns=5):
    return da.from_array(X, chunks=(rows, columns))


# -- the same answers -----------------------------------------------------------------------------------


def targets():
    """An estimator and a target of each loss."""
    X, rng = data()
    signal_ = (X - X.mean(0))[:, 1:4] @ [2.0, -1.5, 1.0] / 2
    event = rng.random(N) < 0.8
    until = np.round(rng.exponential(np.exp(-signal_)), 2) + 0.01
    return {
        "quadratic": (TrimmedLasso, signal_ + rng.standard_normal(N)),
        "logistic": (TrimmedLogisticRegression, rng.random(N) < 1 / (1 + np.exp(-signal_))),
        "multinomial": (TrimmedLogisticRegression, np.digitize(signal_ + rng.standard_normal(N), [-1, 1])),
        "poisson": (TrimmedPoissonRegressor, rng.poisson(np.exp(signal_ / 2)).astype(float)),
        "gamma": (TrimmedGammaRegressor, rng.gamma(2.0, np.exp(signal_ / 2)) + 1e-3),
        "huber": (TrimmedHuberRegressor, signal_ + rng.standard_t(2, N)),
        "cox": (TrimmedCoxRegressor, np.column_stack([until, event])),
        "multitask": (MultiTaskTrimmedLasso, rng.standard_normal((N, 2)) + signal_[:, None]),
    }  # fmt: skip


TARGETS = targets()


def fitted(kind, X, y, alpha, **options):
    return kind(h=H, alpha=alpha, **options).fit(X, y)


def assert_same_fit(got, expected, atol=1e-9):
    scale = np.max(np.abs(expected.coef_))
    assert np.allclose(got.coef_, expected.coef_, rtol=0, atol=atol * scale)
    assert np.allclose(getattr(got, "intercept_", 0), getattr(expected, "intercept_", 0), rtol=0, atol=1e-7)
    assert got.result_.objective == pytest.approx(expected.result_.objective, rel=1e-9)
    assert got.result_.converged == expected.result_.converged
    assert got.result_.swap_optimal == expected.result_.swap_optimal
    assert np.sqrt(got.stationarity_) <= max(2 * np.sqrt(expected.stationarity_), 1e-8)


@pytest.mark.parametrize("loss", TARGETS)
def test_fits_of_every_loss_by_threads(many_chunks, loss):
    kind, y = TARGETS[loss]
    alpha = 0.05 if loss in ("quadratic", "multinomial", "huber") else "exact"
    X, _ = data()
    assert_same_fit(fitted(kind, in_chunks(X), y, alpha), fitted(kind, X, y, alpha))


@pytest.mark.parametrize(
    "loss", ["quadratic", "multinomial", "cox"]
)  # all kernels, and all are pickled alike
def test_fits_on_a_cluster(client, many_chunks, loss):
    kind, y = TARGETS[loss]
    X, _ = data()
    assert_same_fit(fitted(kind, in_chunks(X, 110), y, "exact"), fitted(kind, X, y, "exact"))


@pytest.mark.parametrize("loss", ["quadratic", "logistic", "cox"])
def test_fits_whose_columns_stay_on_the_workers(loss):
    kind, y = TARGETS[loss]
    X, _ = data()
    rows = DaskRows(in_chunks(X), chunk_bytes=1, memory=0)
    # Some inner problems are then solved another way, to the tolerance.
    assert_same_fit(fitted(kind, rows, y, "exact"), fitted(kind, X, y, "exact"), atol=1e-6)


def test_predictions_are_arrays(client, many_chunks):
    X, _ = data()
    kind, y = TARGETS["logistic"]
    model = fitted(kind, X, y, "exact")
    assert np.allclose(model.predict_proba(in_chunks(X)), model.predict_proba(X), rtol=1e-12)
    found = model.predict(in_chunks(X))
    assert isinstance(found, np.ndarray)
    assert np.array_equal(found, model.predict(X))


def test_targets_and_weights_from_dask(many_chunks):
    X, rng = data()
    kind, y = TARGETS["quadratic"]
    weights = rng.random(N)
    got = kind(h=H).fit(
        in_chunks(X), da.from_array(y, chunks=50), sample_weight=da.from_array(weights, chunks=80)
    )
    assert_same_fit(got, kind(h=H).fit(X, y, sample_weight=weights))


def test_the_same_bits_on_any_number_of_workers(many_chunks):
    from distributed import Client, LocalCluster

    X, _ = data(1000, 30, seed=1)
    X = X.astype(np.float32)
    answers = []
    with LocalCluster(n_workers=1, processes=False, **QUIET) as cluster, Client(cluster) as client:
        for count in (1, 3):
            cluster.scale(count)
            client.wait_for_workers(count, timeout=300)
            assert len(client.nthreads()) == count
            for loss, y in (("quadratic", X[:, 3] + X[:, 5] ** 2), ("logistic", X[:, 3] + X[:, 7] > 6)):
                model = fitted(TARGETS[loss][0], in_chunks(X, 125, 30), y, "exact")
                answers.append((model.coef_.tobytes(), model.result_.objective, model.stationarity_))
    assert answers[0:2] == answers[2:4]
    assert answers[0] != answers[1]


def test_threads_and_workers_give_the_same_bits(client):
    X, rng = data(700)
    r = rng.standard_normal((700, 2))
    found = []
    for where in (dasktasks.Cluster(client), dasktasks.Threads()):
        rows = DaskRows(in_chunks(X, 10), chunk_bytes=1)
        rows._runner = where
        found.append(sum(rows.sweep(kernels.transposed_product, (r,))))
    assert found[0].tobytes() == found[1].tobytes()
    assert np.allclose(found[0].T, X.T @ r, rtol=1e-12)


# -- workers that die -----------------------------------------------------------------------------------


class Deadly(DaskRows):
    """Kills workers in the middle of a pass."""

    def kill(self, client, when, how_many):
        self.victims, self.when, self.how_many, self.killed = client, when, how_many, 0
        return self

    def sweep(self, kernel, vectors=(), arguments=()):
        results = super().sweep(kernel, vectors, arguments)
        yield next(results)
        if self.passes == self.when and not self.killed:
            for pid in list(self.victims.run(os.getpid).values())[: self.how_many]:
                os.kill(pid, signal.SIGKILL)
                self.killed += 1
        yield from results


def test_all_workers_killed_in_mid_fit(client, monkeypatch):
    """Their chunks are lost with them; tasks that are sent again without chunks: tests of dask_tasks."""
    monkeypatch.setattr(daskrows, "_TREE", 2)  # several results a pass, so that there is a middle
    X, _ = data()
    kind, y = TARGETS["quadratic"]
    calm = DaskRows(in_chunks(X, 30), chunk_bytes=1, persist=True)
    expected = fitted(kind, calm, y, "exact")
    rows = Deadly(in_chunks(X, 30), chunk_bytes=1, persist=True).kill(client, 3, 2)
    got = fitted(kind, rows, y, "exact")
    assert rows.killed == 2
    assert got.coef_.tobytes() == expected.coef_.tobytes()
    assert got.stationarity_ == expected.stationarity_
    assert rows.passes == calm.passes


def test_nothing_is_left_on_the_workers(client, many_chunks):
    kind, y = TARGETS["quadratic"]
    fitted(kind, in_chunks(data()[0]), y, "exact")
    X, _ = data()
    X[250, 4] = np.nan
    with pytest.raises(ValueError, match="NaN at row 250, column 4"):
        fitted(kind, in_chunks(X), y, "exact")
    rows = DaskRows(in_chunks(data()[0]), persist=True)
    sweep = rows.sweep(block_product, (), (np.ones(P),))
    next(sweep)
    sweep.close()
    del rows, sweep
    for _ in range(200):
        left = client.run_on_scheduler(lambda dask_scheduler: [str(key) for key in dask_scheduler.tasks])
        if not left:
            break
        time.sleep(0.02)
    assert left == []


@pytest.mark.parametrize("kind", ["array", "frame"])
@pytest.mark.parametrize("chunk_bytes", [1, 1 << 20])
def test_chunks_that_are_on_the_workers_already(client, kind, chunk_bytes):
    X, _ = data()
    lazy = (
        da.from_array(X, chunks=(70, P))
        if kind == "array"
        else dd.from_pandas(pd.DataFrame(X), npartitions=4)
    )
    kept = lazy.persist()
    rows = DaskRows(kept, chunk_bytes=chunk_bytes)
    for _ in range(2):
        assert np.allclose(rows.product(np.ones(P)), X.sum(axis=1))
    if kind == "array":
        both = DaskRows(da.concatenate([kept, lazy]), chunk_bytes=chunk_bytes)
        assert np.allclose(both.product(np.ones(P)), np.tile(X.sum(axis=1), 2))


def test_an_interrupt_takes_back_what_is_out(client):
    rows = DaskRows(in_chunks(data()[0], 5), chunk_bytes=1)
    sweep = rows.sweep(block_product, (), (np.ones(P),))
    next(sweep)
    cancelled = []
    cancel = client.cancel
    client.cancel = lambda futures, **options: (cancelled.extend(futures), cancel(futures, **options))
    with pytest.raises(KeyboardInterrupt):
        sweep.throw(KeyboardInterrupt)
    assert cancelled
    assert np.allclose(rows.product(np.ones(P)), data()[0].sum(axis=1))


def test_rows_go_with_a_task_to_a_worker(client):
    """A fit may itself be a task: it then asks the cluster that it is on, and gives way to its own tasks."""
    X, _ = data()
    rows = pickle.loads(pickle.dumps(DaskRows(in_chunks(X), chunk_bytes=1)))
    assert np.allclose(rows.product(np.ones(P)), X.sum(axis=1))
    found = client.map(
        lambda rows, k: rows.product(np.full(P, k)), [rows] * 4, [1.0, 2.0, 3.0, 4.0], pure=False
    )
    assert np.allclose(sum(client.gather(found)), 10 * X.sum(axis=1))


# -- what X may be --------------------------------------------------------------------------------------


def frame(n=40):
    rng = np.random.default_rng(3)
    columns = {"a": rng.standard_normal(n), "b": rng.integers(0, 9, n), "c": rng.random(n) < 0.5}
    return pd.DataFrame(columns | {"d": rng.standard_normal(n).astype(np.float32)})


@pytest.mark.parametrize("npartitions", [1, 3])
def test_data_frames(npartitions):
    X = frame()
    rows = DaskRows(dd.from_pandas(X, npartitions=npartitions), chunk_bytes=1)
    assert rows.feature_names == list("abcd")
    assert rows.shape == (40, 4)
    assert rows.dtype == float
    assert rows.passes == 1  # to count the rows
    assert np.array_equal(rows.narrowed(range(4)), X.to_numpy(dtype=float))
    assert f"DataFrame 40 x 4 float64 in {npartitions} chunks" in repr(rows)


def test_data_frames_of_single_precision_stay_so():
    X = frame().astype(np.float32)
    rows = DaskRows(dd.from_pandas(X, npartitions=2))
    assert rows.dtype == np.float32
    assert np.array_equal(rows.narrowed([3, 0]), X.to_numpy()[:, [3, 0]])


def test_fits_of_data_frames_know_the_names():
    X = frame(200)
    X["e"] = pd.array(np.arange(200) % 7, dtype="Int64")
    y = X["a"] - X["d"]
    model = TrimmedLasso(h=2).fit(dd.from_pandas(X, npartitions=3), dd.from_pandas(y, npartitions=3))
    assert list(model.feature_names_in_) == list("abcde")
    assert list(model.support_) == [0, 3]
    assert np.allclose(model.predict(dd.from_pandas(X, npartitions=2)), y)


def test_missing_values_in_a_data_frame():
    X = frame(30)
    X["e"] = pd.array([*range(29), None], dtype="Int64")
    with pytest.raises(ValueError, match="NaN at row 29, column 'e'"):
        TrimmedLasso(h=1).fit(dd.from_pandas(X, npartitions=3), np.arange(30.0))


def test_columns_that_are_no_numbers():
    X = dd.from_pandas(frame().assign(name="x"), npartitions=2)
    with pytest.raises(TypeError, match=r"column 'name' of X has dtype .*; drop it"):
        DaskRows(X)


def test_chunks_of_unknown_length():
    X, _ = data()
    rows = DaskRows(da.from_array(X, chunks=(70, P))[da.from_array(X[:, 0] > 3, chunks=70)], chunk_bytes=1)
    assert rows.shape == (np.count_nonzero(X[:, 0] > 3), P)
    assert np.array_equal(rows.narrowed([2]), X[X[:, 0] > 3][:, [2]])


@pytest.mark.parametrize(
    ("dtype", "storage"),
    [("f4", "float32"), ("float16", "float32"), (">f8", "float64"), ("int16", "float64"), ("?", "float64")],
)  # fmt: skip
def test_dtypes(dtype, storage):
    X = (data()[0] > 3).astype(dtype)
    rows = DaskRows(in_chunks(X), chunk_bytes=1)
    assert rows.dtype == storage
    found = rows.narrowed(range(P))
    assert found.dtype == storage
    assert np.array_equal(found, X)


@pytest.mark.parametrize("dtype", [complex, object, np.longdouble, "datetime64[s]"])
def test_dtypes_that_are_refused(dtype):
    with pytest.raises(TypeError, match="must hold real numbers"):
        DaskRows(da.zeros((5, 2), chunks=(5, 2), dtype=dtype))


def test_other_shapes_are_refused():
    with pytest.raises(ValueError, match="2-dimensional"):
        DaskRows(da.zeros(5))
    columns = da.zeros((4, 6), chunks=(2, 3))
    with pytest.raises(ValueError, match="number of columns"):
        DaskRows(columns[:, da.from_array(np.arange(6) > 2, chunks=3)])


def test_masked_and_other_chunks_are_refused():
    masked = da.ma.masked_greater(da.zeros((5, 2)), 1)
    with pytest.raises(TypeError, match="chunks of type MaskedArray"):
        DaskRows(masked).product(np.ones(2))


@pytest.mark.parametrize("row", [0, 69, 70, 299])
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_a_chunk_with_nan_names_the_row_of_x(many_chunks, row, value):
    X, _ = data()
    X[row, 7] = value
    what = "NaN" if np.isnan(value) else "inf"
    model = TrimmedLasso(h=H)
    with pytest.raises(ValueError, match=f"X contains {what} at row {row}, column 7; drop or impute"):
        model.fit(in_chunks(X), TARGETS["quadratic"][1])
    assert not hasattr(model, "coef_")


def lying(X, where, declared, dtype):
    """Chunks of 100 rows, of another dtype than declared where the flags say so."""
    flags = np.asarray(where)

    def convert(block, block_info=None):
        return block.astype(dtype if flags[block_info[0]["chunk-location"][0]] else declared)

    return da.from_array(X, chunks=(100, P)).map_blocks(convert, dtype=declared)


@pytest.mark.parametrize("chunk_bytes", [1, 1 << 26], ids=["apart", "joined"])
@pytest.mark.parametrize("declared", ["float32", "float64"])
def test_mixed_dtypes_are_named_by_rows(declared, chunk_bytes):
    other = {"float32": "float64", "float64": "float32"}[declared]
    X = lying(data(400)[0], [False, True, True, False], declared, other)
    expected = f"X is declared {declared}, but rows 100 to 299 are {other}; declare .* or convert X"
    for persist in (True, False):
        rows = DaskRows(X, chunk_bytes=chunk_bytes, persist=persist)
        with pytest.raises(TypeError, match=expected):
            TrimmedLasso(h=1).fit(rows, np.arange(400.0))


def test_mixed_dtypes_on_a_cluster(client):
    with pytest.raises(TypeError, match="X is declared float64, but rows 100 to 299 are float32"):
        TrimmedLasso(h=1).fit(lying(data()[0], [0, 1, 1], "float64", "float32"), np.arange(300.0))


def test_a_wrong_declaration_of_all_chunks():
    with pytest.raises(TypeError, match="declared float32, but rows 0 to 299 are float64; declare"):
        DaskRows(lying(data()[0], [1, 1, 1], "float32", "float64")).product(np.ones(P))


def test_a_wrong_declaration_of_lengths():
    X = da.from_array(data()[0], chunks=(100, P)).map_blocks(lambda block: block[1:], dtype=float)
    with pytest.raises(ValueError, match=r"shape \(297, 12\), but is declared \(300, 12\)"):
        DaskRows(X).product(np.ones(P))


def test_empty_chunks_have_nothing_to_add():
    X, _ = data(50)
    rows = DaskRows(da.concatenate([in_chunks(X)[:0], in_chunks(X), in_chunks(X)[:0]]), chunk_bytes=1)
    assert rows.shape == (50, P)
    assert "in 1 chunks" in rows.describe()
    assert np.allclose(rows.product(np.ones(P)), X.sum(axis=1))


# -- chunks and passes ----------------------------------------------------------------------------------


def test_joined_chunks():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        lengths, at_least = rng.integers(0, 9, rng.integers(1, 30)), int(rng.integers(1, 40))
        groups = grouped(lengths.tolist(), 2, at_least)
        assert [i for group in groups for i in group] == np.flatnonzero(lengths).tolist()
        assert all(2 * lengths[group].sum() >= at_least for group in groups[:-1])
        assert all(2 * lengths[group[:-1]].sum() < at_least for group in groups)  # no larger than necessary


def test_small_chunks_are_joined_and_large_ones_are_not():
    X = da.zeros((40, 1 << 20), chunks=(1, 1 << 20), dtype=np.float32)  # 4 MiB a row, never computed
    assert np.array_equal(np.diff(DaskRows(X)._edges), [16, 16, 8])
    assert np.array_equal(np.diff(DaskRows(X.rechunk({0: 20}))._edges), [20, 20])
    huge = da.zeros((1 << 40, 1 << 20), chunks=(1 << 33, 1 << 20))
    assert np.all(np.diff(DaskRows(huge)._edges) * (1 << 23) >= huge.nbytes >> 15)


def test_sums_are_added_on_the_way(monkeypatch):
    monkeypatch.setattr(daskrows, "_TREE", 10)
    monkeypatch.setattr(daskrows, "_FAN", 3)
    X, rng = data()
    rows = DaskRows(in_chunks(X, 7), chunk_bytes=1)
    r = rng.standard_normal(N)
    parts = list(rows.sweep(kernels.transposed_product, (r,)))
    assert len(parts) == 5  # of 43 chunks
    assert np.allclose(sum(parts), r @ X, rtol=1e-12)
    assert len(list(rows.sweep(block_product, (), (np.ones(P),)))) == 43
    gram, target = added(list(rows.sweep(kernels.normal_equations, (r**2, r), (None, np.ones(P)))))
    assert np.allclose(gram, X.T @ (X * r[:, None] ** 2), rtol=1e-10)
    assert np.allclose(target, X.T @ r**3, rtol=1e-10)
    assert rows.passes == 3


def test_passes_of_narrowed_rows():
    X, _ = data()
    rows = DaskRows(in_chunks(X), chunk_bytes=1, memory=0)
    W = np.array([4, 2])
    part = rows.narrowed(W)
    assert isinstance(part, DaskRows)
    assert (rows.passes, part.passes, part.shape) == (0, 0, (N, 2))
    for count in (1, 2):
        assert np.allclose(part.product(np.array([1.0, 2.0])), X[:, W] @ [1.0, 2.0])
        assert (rows.passes, part.passes) == (1, count)  # the columns are taken once and kept
    again = part.narrowed([1])
    assert np.allclose(again.product(np.ones(1)), X[:, 2])
    part._persist, part._persisted = False, None
    part.product(np.ones(2))
    assert rows.passes == 2
    rows.memory = N * 2 * 8
    assert np.array_equal(rows.narrowed(W), X[:, W])
    assert rows.narrowed(W).flags.f_contiguous


def test_traffic_is_counted():
    X, rng = data()
    rows = DaskRows(in_chunks(X), chunk_bytes=1, memory=0)
    rows.product(np.ones(P))
    assert (rows.traffic.sweeps, rows.traffic.tasks) == (1, 5)
    assert (rows.traffic.sent, rows.traffic.received) == (5 * 8 * P, 8 * N)
    part = rows.narrowed(np.array([1, 2, 3]))
    assert part.traffic is rows.traffic
    sum(part.sweep(kernels.transposed_product, (rng.standard_normal(N),)))
    assert (rows.traffic.sweeps, rows.traffic.tasks) == (2, 10)
    assert (rows.traffic.sent, rows.traffic.received) == (5 * 8 * P + 8 * N, 8 * N + 8 * 3)  # one sum


def test_data_are_made_once_in_a_fit_and_not_kept_for_a_prediction(tmp_path):
    X, _ = data()
    counter = tmp_path / "count"

    def counted(block):
        with counter.open("a") as file:
            file.write("x")
        return block

    lazy = da.from_array(X, chunks=(100, P)).map_blocks(counted, dtype=float, meta=np.empty((0, 0)))
    y = TARGETS["quadratic"][1]
    for persist, calls in ((None, 3), (True, 3), (False, None)):
        counter.write_text("")
        rows = DaskRows(lazy, chunk_bytes=1, persist=persist)
        TrimmedLasso(h=H).fit(rows, y)
        passes = rows.passes if calls is None else 1
        assert len(counter.read_text()) == 3 * passes
    rows = DaskRows(lazy)
    rows.product(np.ones(P))
    assert rows._persisted is None


def test_more_than_the_memory_is_not_kept(monkeypatch):
    monkeypatch.setattr(dasktasks.Threads, "memory", lambda self: 4 * N * P * 8 - 1)
    rows = DaskRows(in_chunks(data()[0]), chunk_bytes=1)
    TrimmedLasso(h=H).fit(rows, TARGETS["quadratic"][1])
    assert rows._persisted is None
    monkeypatch.setattr(dasktasks.Threads, "memory", lambda self: 4 * N * P * 8)
    rows = DaskRows(in_chunks(data()[0]), chunk_bytes=1)
    TrimmedLasso(h=H).fit(rows, TARGETS["quadratic"][1])
    assert rows._persisted is not None


# -- collections that cannot be X -----------------------------------------------------------------------


def test_a_series_is_no_matrix():
    column = dd.from_pandas(frame(), npartitions=2)["a"]
    for fit in (DaskRows, lambda X: TrimmedLasso(h=1).fit(X, np.arange(40.0))):
        with pytest.raises(ValueError, match=r"X is a Dask Series, .* 2 dimensions; .* X.to_frame\(\)"):
            fit(column)
    assert DaskRows(column.to_frame()).shape == (40, 1)


def test_a_future_is_no_matrix(client):
    with pytest.raises(TypeError, match=r"X is a Future of distributed, .* pass X.result\(\)"):
        DaskRows(client.submit(np.eye, 3))


@pytest.mark.parametrize("kind", ["array", "frame"])
@pytest.mark.parametrize("again", [False, True], ids=["threads", "another client"])
def test_what_a_closed_client_has_kept_is_gone(cluster, kind, again):
    from distributed import Client

    X = data()[0]
    with Client(cluster):
        kept = in_chunks(X).persist() if kind == "array" else dd.from_pandas(pd.DataFrame(X), 2).persist()
    words = "X was persisted on a cluster whose client is closed, so its chunks are lost; create X again"
    other = Client(cluster) if again else None
    try:
        with pytest.raises(ValueError, match=words):
            TrimmedLasso(h=1).fit(kept, np.arange(float(N)))
    finally:
        if again:
            other.close()


def test_what_is_kept_by_a_client_that_is_no_default(cluster):
    from distributed import Client

    X = data()[0]
    with Client(cluster, set_as_default=False) as aside:
        kept = aside.persist(in_chunks(X))
        with pytest.raises(ValueError, match=r"not Dask's default; pass DaskRows\(X, client=...\)"):
            DaskRows(kept)
        assert np.allclose(DaskRows(kept, client=aside).product(np.ones(P)), X.sum(axis=1))


def test_a_fit_by_the_address_of_a_scheduler(cluster):
    X = data()[0]
    rows = DaskRows(in_chunks(X), client=cluster.scheduler_address)
    kind, y = TARGETS["quadratic"]
    assert_same_fit(fitted(kind, rows, y, "exact"), fitted(kind, X, y, "exact"))
    rows.runner.client.close()


def test_rows_hold_on_to_what_is_kept(client):
    X = data()[0]
    rows = DaskRows(in_chunks(X).persist())  # whom nobody else knows
    time.sleep(0.2)
    assert np.allclose(rows.product(np.ones(P)), X.sum(axis=1))


@pytest.mark.parametrize("columns", [[0, 1, 2, 3], [(0, "a"), (0, "b"), (1, "a"), (1, "b")]])
def test_columns_that_are_not_strings_are_no_names(columns):
    X = frame()
    X.columns = columns if isinstance(columns[0], int) else pd.MultiIndex.from_tuples(columns)
    X = dd.from_pandas(X, npartitions=2)
    assert DaskRows(X).feature_names is None
    if isinstance(columns[0], int):
        for rows in (X, DaskRows(X)):
            assert not hasattr(TrimmedLasso(h=1).fit(rows, np.arange(40.0)), "feature_names_in_")


def test_strings_and_numbers_are_refused_as_in_memory():
    X = frame()
    X.columns = ["a", 1, 2, 3]
    for rows in (X, DaskRows(dd.from_pandas(X, npartitions=2))):
        with pytest.raises(TypeError, match="all input features have string names"):
            TrimmedLasso(h=1).fit(rows, np.arange(40.0))
