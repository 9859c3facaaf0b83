"""A store keeps whole cells, and says clearly what it cannot read."""

import json
import os
import sqlite3
import tempfile
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from trimreg_reproduction.spec import BadInput, Cell
from trimreg_reproduction.store import SCHEMA_VERSION, Counts, Store, StoreError
from trimreg_reproduction.worker import Outcome, encode_parameters, encode_rows

VALUES = [0.1, -0.0, 5e-324, 1.7976931348623157e308, 1 / 3, float("inf"), -float("inf"), float("nan")]


def outcome(n, rows=None, error=None, experiment="toy", **parameters):
    cell = Cell.of(experiment, n=n, **parameters)
    if rows is None and error is None:
        rows = [{"value": n / 7, "method": "a"}]
    text = None if rows is None else encode_rows(rows, cell.parameters)
    return Outcome(experiment, cell.name, encode_parameters(cell), text, error, 0.25, "0.1.0")


# -- rows as text ---------------------------------------------------------------------------------------


def test_floats_survive_exactly(store):
    store.record(outcome(1, [{"value": value, "path": [value, value]} for value in VALUES]))
    frame = store.frame("toy")
    for value, found, path in zip(VALUES, frame["value"], frame["path"], strict=True):
        assert np.array(found).tobytes() == np.array(value).tobytes()
        assert np.array(path).tobytes() == np.array([value, value]).tobytes()


def test_numbers_of_numpy_become_plain():
    row = {"a": np.float32(0.5), "b": np.int8(3), "c": np.bool_(False), "d": np.arange(4).reshape(2, 2)}
    assert json.loads(encode_rows([row])) == [{"a": 0.5, "b": 3, "c": False, "d": [[0, 1], [2, 3]]}]
    assert encode_rows([{"c": np.bool_(True)}]) == '[{"c": true}]'  # not 1


@pytest.mark.parametrize(
    "rows",
    [None, {"a": 1}, [1], [{"a": {"b": 1}}], [{"a": object()}], [{"a": 1 + 2j}], [{3: 1}], [{"a": {1, 2}}]],
)
def test_other_rows_are_refused(rows):
    with pytest.raises(TypeError):
        encode_rows(rows)


def test_a_row_may_repeat_a_parameter_but_not_contradict_it():
    cell = Cell.of("toy", n=3, grid=(1, 2))
    assert json.loads(encode_rows([{"n": np.int64(3), "grid": [1, 2]}], cell.parameters))
    with pytest.raises(ValueError, match="n = 4"):
        encode_rows([{"n": 4}], cell.parameters)


# -- what is kept ---------------------------------------------------------------------------------------


def test_results_outlive_the_store(tmp_path):
    path = tmp_path / "deep" / "results.sqlite"
    Store(tmp_path / "deep" / "other.sqlite").close()  # makes the folder
    path.touch()  # as a run that is killed at once may leave it
    with Store(path) as store:
        store.plan("toy", "quick", ["toy/n=1"])
        store.record(outcome(1))
    with Store(path) as store:
        assert store.experiments() == ["toy"]
        assert store.frame("toy").to_dict("records") == [{"n": 1, "value": 1 / 7, "method": "a"}]


def test_failures_are_never_results(store):
    store.plan("toy", "quick", ["toy/n=1", "toy/n=2", "toy/n=3"])
    store.record(outcome(1))
    store.record(outcome(2, error="Traceback"))
    assert store.done("toy") == {"toy/n=1"}
    assert store.failed("toy") == {"toy/n=2": "Traceback"}
    assert store.counts("toy") == Counts(planned=3, done=1, failed=1)
    assert store.counts("toy").missing == 1
    assert store.frame("toy")["n"].tolist() == [1]


def test_a_result_replaces_a_failure_but_not_the_reverse(store):
    store.record(outcome(2, error="first"))
    store.record(outcome(2, error="second"))
    assert store.failed("toy") == {"toy/n=2": "second"}
    store.record(outcome(2))
    assert store.failed("toy") == {}
    store.record(outcome(2, error="third"))
    assert store.failed("toy") == {}
    assert store.frame("toy")["value"].tolist() == [2 / 7]


def test_neither_rows_nor_error_is_refused(store):
    with pytest.raises(sqlite3.IntegrityError):
        store.record(Outcome("toy", "toy/n=1", "{}", None, None, 0.0, "0.1.0"))
    assert store.done("toy") == set()


def test_a_quick_cell_serves_the_full_size(store):
    store.plan("toy", "full", ["toy/n=2", "toy/n=1"])
    store.plan("toy", "quick", ["toy/n=1"])
    for n in (1, 77, 2):
        store.record(outcome(n))
    assert store.size("toy") == "quick"
    assert store.frame("toy")["n"].tolist() == [1]
    assert store.frame("toy", "full")["n"].tolist() == [2, 1]  # in the order of the plan
    assert store.counts("toy", "full") == Counts(2, 2, 0)
    store.plan("toy", "full", ["toy/n=2"])
    assert store.size("toy") == "full"
    assert store.frame("toy")["n"].tolist() == [2]


def test_without_a_plan_all_cells_count(store):
    store.record(outcome(1))
    assert store.size("toy") is None
    assert store.counts("toy") == Counts(1, 1, 0)
    store.record(outcome(0))
    assert store.frame("toy")["n"].tolist() == [0, 1]  # by name
    assert store.frame("other").empty
    with pytest.raises(BadInput, match="no full run of toy"):
        store.frame("toy", "full")


def test_where_a_row_comes_from(store):
    store.record(outcome(1))
    frame = store.frame("toy", provenance=True)
    assert frame.loc[0, "cell"] == "toy/n=1"
    assert frame.loc[0, "cell_seconds"] == 0.25
    assert frame.loc[0, "cell_version"] == "0.1.0"
    assert pd.Timestamp(frame.loc[0, "cell_finished"]).tzinfo is not None


# -- export ---------------------------------------------------------------------------------------------


def test_export_round_trips(store, tmp_path):
    store.record(outcome(1, [{"value": value, "path": [0.1, 2.0], "found": True} for value in VALUES]))
    store.record(outcome(2, [{"value": 1 / 3, "path": [], "found": False, "comment": 'a,"b"\n<c>'}]))
    store.record(outcome(1, experiment="other"))
    store.plan("empty", "quick", [])
    files = store.export(tmp_path / "out")
    assert sorted(file.name for file in files) == ["other.parquet", "toy.parquet"]
    assert {file.name for file in (tmp_path / "out").iterdir()} == {file.name for file in files}
    expected = store.frame("toy", provenance=True)
    parquet = pd.read_parquet(tmp_path / "out" / "toy.parquet")
    parquet["path"] = [list(path) for path in parquet["path"]]
    pd.testing.assert_frame_equal(parquet, expected, check_dtype=False)


def test_export_of_mixed_columns(store, tmp_path):
    store.record(outcome(1, [{"h": 3}, {"h": "auto"}, {"h": None}, {"h": [1, 2]}]))
    (file,) = store.export(tmp_path)
    found = pd.read_parquet(file)["h"]
    assert [None if pd.isna(text) else json.loads(text) for text in found] == [3, "auto", None, [1, 2]]


# -- files that cannot be used --------------------------------------------------------------------------


@pytest.mark.parametrize("read_only", [False, True])
def test_another_schema_version(tmp_path, read_only):
    path = tmp_path / "results.sqlite"
    Store(path).close()
    for version, age in ((SCHEMA_VERSION + 1, "newer"), (SCHEMA_VERSION - 1, "older")):
        connection = sqlite3.connect(path)
        connection.execute(f"PRAGMA user_version = {version}")
        connection.close()
        with pytest.raises(StoreError, match=f"{age} trimreg .schema {version}"):
            Store(path, read_only)


@pytest.mark.parametrize("read_only", [False, True])
def test_files_that_are_no_store(tmp_path, read_only):
    text = tmp_path / "text.sqlite"
    text.write_text("n,value\n" * 200)
    other = tmp_path / "other.sqlite"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE songs (title TEXT)")
    connection.close()
    for path in (text, other):
        before = path.read_bytes()
        with pytest.raises(StoreError, match="is not a store"):
            Store(path, read_only)
        assert path.read_bytes() == before
    with pytest.raises(StoreError, match="is a folder"):
        Store(tmp_path, read_only)


def test_connections_to_what_is_no_store_are_closed(tmp_path, monkeypatch):
    opened = []
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: opened.append(connect(*a, **k)) or opened[-1])
    (tmp_path / "text.sqlite").write_text("n,value\n" * 200)
    for read_only in (False, True):
        with pytest.raises(StoreError, match="is not a store"):
            Store(tmp_path / "text.sqlite", read_only)
    assert len(opened) == 2
    for connection in opened:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")


def test_a_damaged_store_is_not_an_empty_one(tmp_path):
    path = tmp_path / "results.sqlite"
    with Store(path) as store:
        for n in range(300):
            store.record(outcome(n))
    content = bytearray(path.read_bytes())
    content[8192 : len(content) - 4096] = bytes(len(content) - 12288)
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"results\.sqlite is damaged"):
        Store(path, read_only=True)


def test_reading_what_is_not_there(tmp_path):
    with pytest.raises(StoreError, match="no store at"):
        Store(tmp_path / "none.sqlite", read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="choose another folder"):
        Store(tmp_path / "file" / "results.sqlite")


@pytest.fixture
def common_folder():
    """A folder of a user who may not do everything."""
    if os.name == "nt":
        pytest.skip("no permission bits")
    with tempfile.TemporaryDirectory() as name:
        folder, user = Path(name), os.geteuid()
        if user == 0:
            os.chown(folder, 65534, -1)
            os.seteuid(65534)
        yield folder
        os.seteuid(user)
        folder.chmod(0o700)


def test_a_read_only_folder(common_folder):
    path = common_folder / "results.sqlite"
    with Store(path) as store:
        store.record(outcome(1))
    path.chmod(0o400)
    common_folder.chmod(0o500)
    for place in (path, common_folder / "new.sqlite", common_folder / "new" / "results.sqlite"):
        with pytest.raises(StoreError, match=r"cannot write .*; choose another folder"):
            Store(place)
    with Store(path, read_only=True) as store:
        assert store.frame("toy")["n"].tolist() == [1]
        with pytest.raises(StoreError, match="cannot write"):
            store.record(outcome(2))


# -- several at once ------------------------------------------------------------------------------------


def test_reading_while_another_writes(store):
    with Store(store.path, read_only=True) as reader, Store(store.path) as second:
        for n in range(5):
            store.record(outcome(n))
            assert len(reader.done("toy")) == n + 1
        with store._connection:
            store._connection.execute("DELETE FROM cells")  # begun, not committed
            assert len(reader.done("toy")) == 5
        assert len(second.done("toy")) == 0


def test_many_may_begin_at_once(tmp_path):
    errors = []
    gate = threading.Barrier(8)

    def begin(n):
        gate.wait()
        try:
            with Store(tmp_path / "results.sqlite") as store:
                store.record(outcome(n))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=begin, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with Store(tmp_path / "results.sqlite") as store:
        assert len(store.done("toy")) == 8
