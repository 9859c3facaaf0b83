"""Files that cannot be a design: what is wrong with them is said, with their path, and early."""

import os

import numpy as np
import pandas as pd
import pytest
import zarr

from trimreg.designs.far.disk import OnDisk
from trimreg.designs.far.rows import block_columns

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def X():
    return np.random.default_rng(0).standard_normal((60, 4))


def passed(rows):
    return list(rows.sweep(block_columns, arguments=([0],)))


# -- not there, not readable ----------------------------------------------------------------------------


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere.npy: no such file"):
        OnDisk(tmp_path / "nowhere.npy")


def test_an_empty_file(tmp_path):
    (tmp_path / "X.npy").touch()
    with pytest.raises(ValueError, match=r"X.npy is empty"):
        OnDisk(tmp_path / "X.npy")


def test_a_file_of_another_kind(X, tmp_path):
    np.savetxt(tmp_path / "X.csv", X)
    with pytest.raises(ValueError, match=r"X.csv is neither a .npy nor a Parquet file"):
        OnDisk(tmp_path / "X.csv")


def test_a_folder_of_something_else(tmp_path):
    with pytest.raises(ValueError, match="neither a Zarr store nor"):
        OnDisk(tmp_path)


@pytest.mark.parametrize("source", [3, None, [1.0], {"X": 1}])
def test_a_source_that_is_none(source):
    with pytest.raises(TypeError, match="source must be a path"):
        OnDisk(source)


def test_an_array_in_memory(X):
    with pytest.raises(TypeError, match="in memory"):
        OnDisk(X)


def test_a_copy_out_of_a_map_is_in_memory(X, tmp_path):
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    with pytest.raises(TypeError, match="in memory"):
        OnDisk(mapped[[1, 2, 3]])


def test_a_map_that_hides_its_changes(X, tmp_path):
    np.save(tmp_path / "X.npy", X)
    with pytest.raises(ValueError, match="mode 'c'"):
        OnDisk(np.load(tmp_path / "X.npy", mmap_mode="c"))


# -- damaged --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_truncated_npy_file(order, X, tmp_path):
    path = tmp_path / "X.npy"
    np.save(path, np.asarray(X, order=order))
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(ValueError, match=r"X.npy cannot be read as .npy: .*than file size"):
        OnDisk(path)


@pytest.mark.parametrize("size", [7, 20, 100])
def test_a_truncated_header(size, X, tmp_path):
    np.save(tmp_path / "X.npy", X)
    os.truncate(tmp_path / "X.npy", size)
    with pytest.raises(ValueError, match=r"X.npy cannot be read as .npy"):
        OnDisk(tmp_path / "X.npy")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("change", ["shorter", "longer", "rewritten", "gone"])
def test_a_file_that_changes_between_passes(change, order, X, tmp_path):
    path = tmp_path / "X.npy"
    np.save(path, np.asarray(X, order=order))
    rows = OnDisk(path)
    passed(rows)
    if change == "shorter":
        os.truncate(path, 1000)
    elif change == "longer":
        with open(path, "ab") as file:
            file.write(b"more")
    elif change == "rewritten":
        os.utime(path, ns=(1, 1))
    else:
        path.unlink()
    error = FileNotFoundError if change == "gone" else ValueError
    words = "no such file" if change == "gone" else r"X.npy has changed since it was opened"
    with pytest.raises(error, match=words):
        passed(rows)
    assert rows.passes == 1


def test_a_map_whose_file_becomes_shorter(X, tmp_path):
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    rows, part = OnDisk(mapped), OnDisk(mapped[:10])
    os.truncate(tmp_path / "X.npy", 1000)
    with pytest.raises(ValueError, match="too short: 2048 bytes were mapped, but the file has 1000"):
        passed(rows)
    assert sum(map(len, passed(part))) == 10


def test_a_file_that_is_cut_while_it_is_read(X, tmp_path, monkeypatch):
    monkeypatch.setattr("trimreg.designs.far.disk.BLOCK_BYTES", 4 * 8)  # a row at a time
    np.save(tmp_path / "X.npy", X)
    sweep = OnDisk(tmp_path / "X.npy").sweep(block_columns, arguments=([0],))
    next(sweep)
    os.truncate(tmp_path / "X.npy", 1000)
    with pytest.raises(ValueError, match=r"X.npy became shorter while it was read; it now has 1000 bytes"):
        list(sweep)


@pytest.mark.parametrize("cut", [5, 900])
def test_a_truncated_parquet_file(cut, X, tmp_path):
    path = tmp_path / "X.parquet"
    pq.write_table(pa.table({f"x{j}": X[:, j] for j in range(4)}), path)
    os.truncate(path, path.stat().st_size - cut)
    with pytest.raises(ValueError, match=r"X.parquet cannot be read as Parquet \(truncated\?\)"):
        OnDisk(path)


def test_parquet_whose_pages_are_damaged(X, tmp_path):
    path = tmp_path / "X.parquet"
    pq.write_table(pa.table({f"x{j}": X[:, j] for j in range(4)}), path)
    content = bytearray(path.read_bytes())
    content[4:400] = bytes(396)
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"X.parquet cannot be read \(damaged\?\)"):
        passed(OnDisk(path))


def test_parquet_that_changes(X, tmp_path):
    path = tmp_path / "X.parquet"
    pq.write_table(pa.table({f"x{j}": X[:, j] for j in range(4)}), path)
    rows = OnDisk(path)
    pq.write_table(pa.table({f"x{j}": X[:30, j] for j in range(4)}), path)
    with pytest.raises(ValueError, match="has changed since it was opened"):
        passed(rows)


def test_a_damaged_chunk_of_zarr(X, tmp_path):
    path = str(tmp_path / "X.zarr")
    zarr.create_array(store=path, shape=X.shape, chunks=(20, 4), dtype="f8")[:] = X
    os.truncate(f"{path}/c/1/0", 10)
    rows = OnDisk(path)
    with pytest.raises(ValueError, match=r"X.zarr: rows 0 to 59 cannot be read"):
        passed(rows)


@pytest.mark.parametrize("change", ["shape", "gone"])
def test_zarr_that_changes(change, X, tmp_path):
    path = str(tmp_path / "X.zarr")
    zarr.create_array(store=path, shape=X.shape, chunks=(20, 4), dtype="f8")[:] = X
    rows = OnDisk(path)
    if change == "shape":
        zarr.open(path, mode="r+").resize((40, 4))
        with pytest.raises(ValueError, match=r"X.zarr has changed since it was opened"):
            passed(rows)
    else:
        os.rename(path, path + "-moved")
        with pytest.raises(FileNotFoundError, match=r"X.zarr: no Zarr store"):
            passed(rows)


# -- no matrix of numbers -------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(5,), (2, 3, 4), ()])
@pytest.mark.parametrize("kind", ["npy", "memmap", "zarr"])
def test_arrays_that_are_no_matrix(shape, kind, tmp_path):
    path = tmp_path / "X"
    if kind == "zarr":
        zarr.create_array(store=str(path), shape=shape, dtype="f8")
    else:
        path = tmp_path / "X.npy"
        np.save(path, np.ones(shape))
    source = np.load(path, mmap_mode="r") if kind == "memmap" else path
    with pytest.raises(ValueError, match=f"{len(shape)} dimensions; X must have 2"):
        OnDisk(source)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_matrices_without_an_entry(shape, tmp_path):
    np.save(tmp_path / "X.npy", np.ones(shape))
    with pytest.raises(ValueError, match="at least one row and one column"):
        OnDisk(tmp_path / "X.npy")


@pytest.mark.parametrize(
    "X",
    [
        np.array([["a", "b"]]),
        np.array([[1 + 2j]]),
        np.array([[None, 1]], dtype=object),
        np.array([["2020-01-01"]], dtype="datetime64[D]"),
        np.zeros((2, 2), dtype=[("é", float)]),
        np.zeros((2, 2), dtype=[("a", float)]),
    ],
    ids=["text", "complex", "object", "dates", "fields-3", "fields-1"],
)
def test_npy_files_of_other_things(X, tmp_path):
    with open(tmp_path / "X.npy", "wb") as file:
        np.lib.format.write_array(file, X, version=(3, 0) if X.dtype.names == ("é",) else None)
    with pytest.raises((TypeError, ValueError), match=r"X.npy.*(X must hold real numbers|Python objects)"):
        OnDisk(tmp_path / "X.npy")


def test_a_zarr_group_with_several_matrices(X, tmp_path):
    group = zarr.open_group(tmp_path / "G.zarr", mode="w")
    for name in ("A", "B"):
        group.create_array(name, shape=(3, 3), chunks=(3, 3), dtype="f8")[:] = 1.0
    with pytest.raises(ValueError, match=r"G.zarr is a Zarr group with the arrays .*'A': \(3, 3\)"):
        OnDisk(tmp_path / "G.zarr")
    assert OnDisk(tmp_path / "G.zarr" / "B").shape == (3, 3)


# -- tables ---------------------------------------------------------------------------------------------


def test_columns_of_a_table_are_chosen_by_name_or_number(X, tmp_path):
    path = tmp_path / "T.parquet"
    pq.write_table(
        pa.table({"id": list("abcd") * 15, "a.x": X[:, 0], "a": X[:, 1], "f": X[:, 2].astype("f4")}), path
    )
    rows = OnDisk(path, columns=["f", "a"])
    assert (rows.feature_names, rows.shape, rows.dtype) == (["f", "a"], (60, 2), np.float64)
    np.testing.assert_array_equal(rows.narrowed([0, 1]), np.column_stack([X[:, 2].astype("f4"), X[:, 1]]))
    np.testing.assert_array_equal(OnDisk(path, columns=[2, 1]).narrowed([0, 1]), X[:, [1, 0]])
    assert OnDisk(path, columns=["f"]).dtype == np.float32
    rows.memory = 0
    assert rows.narrowed([1]).feature_names == ["a"]


def test_the_index_of_a_frame_is_no_column_unless_it_is_named(X, tmp_path):
    frame = pd.DataFrame(X[:, :2], columns=["a", "b"], index=np.arange(60) * 2 + 7)
    frame.to_parquet(tmp_path / "T.parquet")
    assert OnDisk(tmp_path / "T.parquet").feature_names == ["a", "b"]
    assert OnDisk(tmp_path / "T.parquet", columns=["__index_level_0__"]).narrowed([0])[1, 0] == 9.0
    frame.reset_index(drop=True).to_parquet(tmp_path / "U.parquet")
    assert OnDisk(tmp_path / "U.parquet").feature_names == ["a", "b"]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (None, r"T.parquet has columns that are not numeric: {'id': .*string.*}; select others by columns="),
        (["a", "z"], r"columns=\['z'\] are not in .*T.parquet, which has \['id', 'a'\]"),
        (["a", "a"], r"the columns \['a'\] of .*T.parquet occur or were selected twice"),
    ],
)
def test_columns_that_cannot_be(columns, words, X, tmp_path):
    path = tmp_path / "T.parquet"
    pq.write_table(pa.table({"id": list("abcd") * 15, "a": X[:, 0]}), path)
    with pytest.raises((TypeError, ValueError), match=words):
        OnDisk(path, columns=columns)


@pytest.mark.parametrize("kind", ["npy", "memmap", "zarr", "zarr-array"])
def test_only_tables_have_columns_to_choose(kind, X, tmp_path):
    if kind.startswith("zarr"):
        source = str(tmp_path / "X.zarr")
        array = zarr.create_array(store=source, shape=X.shape, dtype="f8")
        source = array if kind == "zarr-array" else source
    else:
        source = tmp_path / "X.npy"
        np.save(source, X)
        source = np.load(source, mmap_mode="r") if kind == "memmap" else source
    with pytest.raises(ValueError, match="columns is for Parquet only"):
        OnDisk(source, columns=[0])


def test_types_that_differ_between_files(X, tmp_path):
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1].astype("f4")}), tmp_path / "2.parquet")
    with pytest.raises(TypeError, match=r"column 'b' is double in .*1.parquet but float in .*2.parquet"):
        OnDisk(tmp_path)
    assert OnDisk(tmp_path, columns=["a"]).shape == (120, 1)


@pytest.mark.parametrize("names", [["a"], ["a", "c"], ["b", "a"]])
def test_columns_that_differ_between_files(names, X, tmp_path):
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table(dict.fromkeys(names, X[:, 0])), tmp_path / "2.parquet")
    with pytest.raises(ValueError, match=r"2.parquet has the columns .*1.parquet has \['a', 'b'\]"):
        OnDisk(tmp_path)


@pytest.mark.parametrize("kind", [pa.float64(), pa.int32(), pa.bool_()])
@pytest.mark.parametrize("row", [0, 33, 59])
def test_a_missing_value_is_named(kind, row, tmp_path, monkeypatch):
    monkeypatch.setattr("trimreg.designs.far.disk.BLOCK_BYTES", 7 * 2 * 8)
    values = [None if i == row else i % 2 for i in range(60)]
    columns = {"age": pa.array([1.0] * 60), "height": pa.array(values).cast(kind)}
    pq.write_table(pa.table(columns), tmp_path / "T.parquet", row_group_size=25)
    rows = OnDisk(tmp_path / "T.parquet")
    with pytest.raises(ValueError, match=rf"missing value at row {row}, column 'height' \(.*T.parquet\)"):
        passed(rows)
    assert len(rows.narrowed([0])) == 60


# -- memory ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [0, -1, 1.5, "1 GB", None, True])
def test_memory_that_is_no_size(memory, X, tmp_path):
    np.save(tmp_path / "X.npy", X)
    with pytest.raises(ValueError, match=r"memory=.* must be a positive integer, a number of bytes"):
        OnDisk(tmp_path / "X.npy", memory=memory)


def test_memory_that_does_not_hold_the_vectors(X, tmp_path):
    np.save(tmp_path / "X.npy", X)
    with pytest.raises(
        ValueError, match=r"too little for .*X.npy: 10 vectors of length 60 take 4800, reading takes"
    ):
        OnDisk(tmp_path / "X.npy", memory=4800)
    with pytest.raises(ValueError) as caught:
        OnDisk(tmp_path / "X.npy", memory=100)
    enough = int(str(caught.value).rsplit("memory=", 1)[1].split()[0])
    assert len(passed(OnDisk(tmp_path / "X.npy", memory=enough))) > 1


def test_what_is_left_is_for_columns(X, tmp_path):
    np.save(tmp_path / "X.npy", X)
    rows = OnDisk(tmp_path / "X.npy", memory=100_000)
    assert rows.memory == 100_000 - 80 * 60 - 2 * X.nbytes


def test_parquet_that_takes_too_much_to_decode(tmp_path):
    n = 20_000
    rng = np.random.default_rng(0)
    table = pa.table({f"x{j}": rng.standard_normal(n) for j in range(20)})
    pq.write_table(table, tmp_path / "wide.parquet")
    pq.write_table(table, tmp_path / "flat.parquet", row_group_size=1000, use_dictionary=False)
    with pytest.raises(ValueError, match="smaller row groups and without dictionaries"):
        OnDisk(tmp_path / "wide.parquet", memory=6_000_000)
    assert OnDisk(tmp_path / "flat.parquet", memory=6_000_000).memory > 0


@pytest.mark.filterwarnings("ignore:.*chunks have no file")  # nothing is written to it
def test_zarr_in_chunks_too_tall_for_the_memory(tmp_path):
    zarr.create_array(store=str(tmp_path / "X.zarr"), shape=(20_000, 50), chunks=(20_000, 1), dtype="f8")
    with pytest.raises(ValueError, match=r"too little .*X.zarr.* than 20000 x 1"):
        OnDisk(tmp_path / "X.zarr", memory=6_000_000)
