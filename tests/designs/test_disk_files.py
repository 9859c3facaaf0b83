"""Files that change, go missing or come in another order: Parquet folders and Zarr stores."""

import os
import pickle
import shutil
import warnings

import numpy as np
import pytest

from trimreg import TrimmedLasso
from trimreg.designs.far import zarr as zarrfile
from trimreg.designs.far.disk import OnDisk
from trimreg.designs.far.rows import block_columns

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
zarr = pytest.importorskip("zarr")


@pytest.fixture
def X():
    return np.random.default_rng(0).standard_normal((60, 4))


def passed(rows):
    return np.concatenate(list(rows.sweep(block_columns, arguments=([0],))))


# -- the order of Parquet files -------------------------------------------------------------------------


def test_files_come_in_the_order_of_their_numbers(X, tmp_path):
    for i in range(12):
        pq.write_table(pa.table({"a": X[5 * i : 5 * i + 5, 0]}), tmp_path / f"part.{i}.parquet")
    np.testing.assert_array_equal(passed(OnDisk(tmp_path))[:, 0], X[:, 0])


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # of pandas, in what Dask calls
def test_dask_and_the_disk_have_the_same_order(X, tmp_path):
    dd = pytest.importorskip("dask.dataframe")
    import pandas as pd

    frame = pd.DataFrame(X, columns=list("abcd"))
    dd.from_pandas(frame, npartitions=12).to_parquet(tmp_path / "T")
    expected = dd.read_parquet(tmp_path / "T").compute(scheduler="sync").to_numpy()
    np.testing.assert_array_equal(expected, X)
    np.testing.assert_array_equal(OnDisk(tmp_path / "T").narrowed(range(4)), X)
    model = TrimmedLasso(h=1).fit(OnDisk(tmp_path / "T"), X[:, 2])
    assert list(model.support_) == [2]
    assert model.coef_[2] == pytest.approx(1.0)


def test_other_names_are_ordered_too(tmp_path):
    names = ["2-10.pq", "2-9.pq", "10.pq", "a.pq", "a01.pq", "a1.pq", "B3.pq", "٣.pq", "a1b.pq"]
    for at, name in enumerate(names):
        pq.write_table(pa.table({"a": [float(at)]}), tmp_path / name)
    found = [names[int(at)] for at in passed(OnDisk(tmp_path))[:, 0]]
    assert found == ["2-9.pq", "2-10.pq", "٣.pq", "10.pq", "B3.pq", "a01.pq", "a1.pq", "a1b.pq", "a.pq"]


# -- the columns of Parquet files -----------------------------------------------------------------------


@pytest.fixture
def table(X, tmp_path):
    pq.write_table(pa.table({f"c{j}": X[:, j] for j in range(4)}), tmp_path / "T.parquet")
    return tmp_path / "T.parquet"


@pytest.mark.parametrize(
    ("columns", "error", "words"),
    [
        (
            [1, 30],
            ValueError,
            r"columns contains the position 30, but .*T.parquet has 4 columns; pass 0 to 3",
        ),
        ([-5], ValueError, r"columns contains the position -5"),
        (np.array([4]), ValueError, r"columns contains the position 4"),
        ([True, False, True, False], TypeError, r"columns=.* are booleans; pass names or positions"),
        (np.arange(4) > 1, TypeError, r"columns=.* are booleans; pass names or positions"),
        (3, TypeError, r"columns=3 must be a list of column names or positions"),
        ("c9", ValueError, r"columns=\['c9'\] are not in .*T.parquet"),
    ],
    ids=repr,
)
def test_columns_that_are_not_there(columns, error, words, table):
    with pytest.raises(error, match=words):
        OnDisk(table, columns=columns)


def test_one_name_is_one_column(X, table):
    rows = OnDisk(table, columns="c1")
    assert rows.feature_names == ["c1"]
    np.testing.assert_array_equal(passed(rows), X[:, [1]])


def test_columns_may_be_anything_that_has_an_order(table):
    shutil.copy(table, table.with_name("U.parquet"))
    for columns in (np.array([3, -4]), iter(["c3", "c0"]), ("c3", np.int64(0))):
        assert OnDisk(table.parent, columns=columns).feature_names == ["c3", "c0"]


# -- Zarr stores that change ----------------------------------------------------------------------------


LAYOUTS = {
    "format 3": {},
    "format 3, dots": {"chunk_key_encoding": {"name": "default", "separator": "."}},
    "format 2": {"zarr_format": 2},
    "format 2, folders": {"zarr_format": 2, "chunk_key_encoding": {"name": "v2", "separator": "/"}},
    "shards": {"shards": (20, 4)},
}


@pytest.fixture(params=LAYOUTS)
def store(request, X, tmp_path):
    path = str(tmp_path / "X.zarr")
    zarr.create_array(store=path, shape=X.shape, chunks=(10, 2), dtype="f8", **LAYOUTS[request.param])[:] = X
    return path


def chunk_files(path):
    every = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    return sorted(file for file in every if file[-1].isdigit())


def as_path(path):
    return path


def as_array(path):
    return zarr.open(path, mode="r")


@pytest.mark.parametrize("given", [as_path, as_array])
@pytest.mark.parametrize("change", ["values", "time", "a chunk is gone", "one more"])
def test_changed_chunks_are_noticed_between_passes(change, given, store, X):
    rows = OnDisk(given(store))
    passed(rows)
    other = pickle.loads(pickle.dumps(rows)) if given is as_path else rows
    np.testing.assert_array_equal(passed(other), X[:, [0]])  # looking changes nothing
    before = rows.passes
    file = chunk_files(store)[0]
    if change == "values":
        zarr.open(store, mode="r+")[7, 1] = 1e3
    elif change == "time":
        os.utime(file, ns=(1, 1))  # an older file, as of a backup
    elif change == "a chunk is gone":
        os.unlink(file)
    else:
        shutil.copy(file, file + "9")
    for one in (rows, other):
        with pytest.raises(
            ValueError, match=r"X.zarr has changed since it was opened \(.*\); create a new OnDisk"
        ):
            passed(one)
    assert rows.passes == before


def test_changed_chunks_are_noticed_during_a_fit(X, tmp_path):
    path = str(tmp_path / "X.zarr")
    zarr.create_array(store=path, shape=X.shape, chunks=(10, 2), dtype="f8")[:] = X

    class Written(OnDisk):
        def sweep(self, *parts, **named):
            if self.passes >= 1:
                zarr.open(path, mode="r+")[7, 1] = 1e3
            return super().sweep(*parts, **named)

    model = TrimmedLasso(h=1)
    with pytest.raises(ValueError, match=r"X.zarr has changed since it was opened"):
        model.fit(Written(path), X[:, 0])
    assert not hasattr(model, "coef_")


def test_an_array_whose_folder_is_gone(store):
    rows = OnDisk(as_array(store))  # zarr itself would read it as zeros
    shutil.rmtree(store)
    with pytest.raises(FileNotFoundError, match=r"X.zarr: no Zarr store"):
        passed(rows)


def test_many_files_are_not_watched(X, tmp_path, monkeypatch):
    path = str(tmp_path / "X.zarr")
    zarr.create_array(store=path, shape=X.shape, chunks=(10, 2), dtype="f8")[:] = X
    seldom = OnDisk(path)
    monkeypatch.setattr(zarrfile, "_WATCHED", 12)  # there are 12 chunks, and zarr.json
    with pytest.raises(ValueError, match="has changed since it was opened"):
        passed(seldom)
    rows = OnDisk(path)
    zarr.open(path, mode="r+")[7, 0] = 1e3
    assert passed(rows)[7] == 1e3


def test_stores_that_are_no_folder_are_not_watched(X, tmp_path):
    for kind in ("memory", "archive"):
        where = {} if kind == "memory" else zarr.storage.ZipStore(str(tmp_path / "X.zip"), mode="w")
        array = zarr.create_array(store=where, shape=X.shape, chunks=(10, 2), dtype="f8")
        array[:] = X
        np.testing.assert_array_equal(passed(OnDisk(array)), X[:, [0]])
        array.store_path.store.close()


# -- Zarr stores with chunks missing --------------------------------------------------------------------


@pytest.mark.parametrize("given", [as_path, as_array])
def test_chunks_without_a_file_are_warned_of(given, store, X):
    files = chunk_files(store)
    what = "shards" if len(files) == 3 else "chunks"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OnDisk(given(store))
    for file in files[:2]:
        os.unlink(file)
    words = rf"X.zarr: 2 of {len(files)} {what} have no file and are read as the fill value, 0"
    with pytest.warns(UserWarning, match=words) as caught:
        rows = OnDisk(given(store))
    assert [warning.filename for warning in caught] == [__file__]
    passed(rows)  # and no warning more
    TrimmedLasso(h=1).fit(rows, X[:, 3])


def test_chunks_of_zeros_are_warned_of_unless_they_are_written(X, tmp_path):
    X[:20] = 0
    for full in (False, True):
        path = str(tmp_path / f"{full}.zarr")
        config = {"write_empty_chunks": full}
        zarr.create_array(store=path, shape=X.shape, chunks=(10, 4), dtype="f8", config=config)[:] = X
    with pytest.warns(UserWarning, match="2 of 6 chunks have no file"):
        rows = OnDisk(tmp_path / "False.zarr")
    np.testing.assert_array_equal(rows.narrowed(range(4)), X)
    np.testing.assert_array_equal(OnDisk(tmp_path / "True.zarr").narrowed(range(4)), X)


def test_an_array_in_a_group(X, tmp_path):
    group = zarr.open_group(tmp_path / "G.zarr", mode="w")
    group.create_array("X", shape=X.shape, chunks=(10, 4), dtype="f8")[:] = X
    group.create_array("y", shape=(60,), chunks=(60,), dtype="f8")[:] = 1.0
    rows = OnDisk(tmp_path / "G.zarr")
    group["y"][:] = 2.0  # not X
    np.testing.assert_array_equal(passed(rows), X[:, [0]])
    group["X"][0] = 2.0
    with pytest.raises(ValueError, match=r"G.zarr/X has changed"):
        passed(rows)
