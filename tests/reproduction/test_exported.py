"""Exported tables read as the store that they came from."""

import pandas as pd
import pytest

from trimreg_reproduction import registry
from trimreg_reproduction.exported import Exported
from trimreg_reproduction.runner import run
from trimreg_reproduction.spec import BadInput, Cell, Experiment, Verdict
from trimreg_reproduction.store import Store

TOY = Experiment(
    "toy", "A toy", "Halves are less.",
    cells=lambda size: [Cell.of("toy", n=n, size=size) for n in range(3 if size == "quick" else 5)],
    run=lambda cell: [{"half": cell["n"] / 2, "parts": [1.0, float(cell["n"])]}],
    charts=lambda frame: [], figure=None, judge=lambda frame: Verdict("partly", f"{len(frame)} rows"),
)  # fmt: skip


@pytest.fixture(autouse=True)
def only_a_toy(monkeypatch):
    monkeypatch.setattr(registry, "EXPERIMENTS", {"toy": "toy:TOY"})
    monkeypatch.setattr("trimreg_reproduction.exported.EXPERIMENTS", {"toy": "toy:TOY", "other": "toy:TOY"})
    monkeypatch.setattr("trimreg_reproduction.exported.get_experiment", lambda name: TOY)


@pytest.mark.parametrize("size", ["quick", "full"])
def test_a_table_is_what_the_store_has(tmp_path, size):
    with Store(tmp_path / "results.sqlite") as store:
        run([TOY], size, store, n_jobs=1)
        store.export(tmp_path)
        whole = store.frame("toy", size)
        counts = store.counts("toy", size)
    found = Exported(tmp_path)
    assert found.experiments() == ["toy"]
    assert found.size("toy") == size
    assert found.size("other") is None
    assert found.counts("toy") == counts
    read = found.frame("toy")
    assert read["half"].tolist() == whole["half"].tolist()
    assert [list(part) for part in read["parts"]] == whole["parts"].tolist()
    assert "cell" not in read
    assert set(found.frame("toy", provenance=True)["cell"]) == {cell.name for cell in TOY.cells(size)}
    with pytest.raises(BadInput, match="has no"):
        found.counts("toy", "full" if size == "quick" else "quick")


def test_cells_that_are_not_there_are_counted(tmp_path):
    with Store(tmp_path / "results.sqlite") as store:
        run([TOY], "full", store, n_jobs=1)
        store.export(tmp_path)
    table = pd.read_parquet(tmp_path / "toy.parquet")
    table[:3].to_parquet(tmp_path / "toy.parquet")
    counts = Exported(tmp_path).counts("toy")
    assert (counts.planned, counts.done, counts.missing) == (5, 3, 2)


def test_cells_of_another_size_are_left_out(tmp_path):
    with Store(tmp_path / "results.sqlite") as store:
        run([TOY], "full", store, n_jobs=1)
        full = store.frame("toy", provenance=True)
        run([TOY], "quick", store, n_jobs=1)
        quick = store.frame("toy", provenance=True)
    pd.concat([quick, full]).to_parquet(tmp_path / "toy.parquet")
    found = Exported(tmp_path)
    assert found.size("toy") == "full"
    assert (len(found.frame("toy")), len(found.frame("toy", "quick"))) == (5, 3)
    assert found.counts("toy", "quick").done == 3


@pytest.mark.parametrize("kind", ["cut short", "of another"])
def test_a_file_that_is_no_table_is_named(tmp_path, kind):
    file = tmp_path / "toy.parquet"
    if kind == "cut short":
        file.write_bytes(b"PAR1 and no more")
    else:
        pd.DataFrame({"a": [1]}).to_parquet(file)
    with pytest.raises(BadInput, match=r"toy\.parquet"):
        Exported(tmp_path).frame("toy", "full")
