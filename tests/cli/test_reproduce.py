"""``trimreg reproduce`` and ``trimreg report``, on a small made-up experiment."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from trimreg_reproduction import registry
from trimreg_reproduction.spec import Cell, Chart, Experiment, Together, Verdict
from trimreg_reproduction.store import Store

BROKEN = set()  # names of cells that fail
RUN = []


def toy_cells(size):
    return [Cell.of("toy", n=n) for n in range(3 if size == "quick" else 5)]


def toy_run(cell):
    RUN.append(cell.name)
    if cell.name in BROKEN:
        raise RuntimeError("no luck")
    if "interrupt" in BROKEN and len(RUN) == 2:
        raise KeyboardInterrupt
    return [{"half": cell["n"] / 2}]


def toy_figure(frame):
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().plot(frame["n"], frame["half"])
    return figure


def toy_judge(frame):
    if frame["half"].max() < 1:
        raise LookupError("too few rows")
    return Verdict("reproduced", f"the largest half is {frame['half'].max():g}", [{"largest": 1.0}])


TOY = Experiment(
    "toy",
    "Halves [of] numbers",
    "Halves are less.",
    toy_cells,
    toy_run,
    charts=lambda frame: [
        Chart("halves", "n", "half", [{"name": "a", "x": frame["n"].tolist(), "y": frame["half"].tolist()}])
    ],
    figure=toy_figure,
    judge=toy_judge,
)


@pytest.fixture(autouse=True)
def one_experiment(monkeypatch):
    monkeypatch.setattr(registry, "EXPERIMENTS", {"toy": "toy:TOY"})
    monkeypatch.setattr(registry, "get_experiment", lambda name: TOY)
    monkeypatch.setattr("trimreg_reproduction.runner.get_experiment", lambda name: TOY)
    BROKEN.clear()
    RUN.clear()


def test_a_run_from_end_to_end(call, tmp_path):
    out = tmp_path / "out"
    answer = call("reproduce", "toy", "--quick", "--out", out, "--jobs", 1)
    assert answer.exit_code == 0, answer.output
    assert sorted(path.name for path in out.iterdir() if not path.name.startswith("results")) == [
        "toy.parquet",
        "toy.svg",
    ]
    assert pd.read_parquet(out / "toy.parquet")["half"].tolist() == [0.0, 0.5, 1.0]
    assert "<svg" in (out / "toy.svg").read_text()
    assert "3 cells run" in answer.stdout
    assert "reproduced" in answer.stdout
    assert "Halves [of] numbers" in answer.stdout
    assert "toy: the largest half is 1" in answer.stdout
    assert "no evidence" in answer.stdout  # it was a quick run
    page = call("report", "--out", out)
    assert page.exit_code == 0, page.output
    assert "the largest half is 1" in (out / "report.html").read_text()
    page = call("report", "--out", out, "--page", tmp_path / "index.html")
    assert (tmp_path / "index.html").exists()
    assert f"wrote {tmp_path / 'index.html'}" in page.stdout


def test_the_same_command_goes_on(call, tmp_path):
    call("reproduce", "toy", "--quick", "--out", tmp_path, "--jobs", 1)
    RUN.clear()
    answer = call("reproduce", "all", "--full", "--out", tmp_path, "--jobs", 1)
    assert "2 cells run" in answer.stdout
    assert "3 had results" in answer.stdout
    assert sorted(RUN) == ["toy/n=3", "toy/n=4"]
    assert "the largest half is 2" in answer.stdout
    assert "no evidence" not in answer.stdout


def test_failed_cells_are_status_1_and_run_again(call, tmp_path):
    BROKEN.add("toy/n=1")
    answer = call("reproduce", "toy", "--quick", "--out", tmp_path, "--jobs", 1)
    assert answer.exit_code == 1
    assert "failed: toy/n=1: RuntimeError: no luck" in answer.stderr
    assert "1 cells failed; the same command runs them again" in answer.stderr
    assert pd.read_parquet(tmp_path / "toy.parquet")["n"].tolist() == [0, 2]
    BROKEN.clear()
    assert call("reproduce", "toy", "--quick", "--out", tmp_path, "--jobs", 1).exit_code == 0


def test_results_that_cannot_be_judged_are_kept_all_the_same(call, tmp_path):
    BROKEN.add("toy/n=2")
    answer = call("reproduce", "toy", "--quick", "--out", tmp_path, "--jobs", 1)
    assert "toy: cannot be judged from these results (LookupError: too few rows)" in answer.stdout
    BROKEN.update({"toy/n=0", "toy/n=1"})
    answer = call("reproduce", "toy", "--quick", "--out", tmp_path / "none", "--jobs", 1)
    assert answer.exit_code == 1
    assert "toy: no results" in answer.stdout


def test_an_interrupt_is_130_and_says_what_was_kept(call, tmp_path):
    BROKEN.add("interrupt")
    answer = call("reproduce", "toy", "--quick", "--out", tmp_path, "--jobs", 1)
    assert answer.exit_code == 130
    assert answer.stderr.splitlines()[-1] == (
        f"interrupted; 1 cells are done and stored in {tmp_path / 'results.sqlite'}; "
        "the same command continues"
    )
    with Store(tmp_path / "results.sqlite") as store:
        assert store.counts("toy").done == 1
    BROKEN.clear()
    answer = call("reproduce", "toy", "--quick", "--out", tmp_path, "--jobs", 1)
    assert "2 cells run" in answer.stdout
    assert "1 had results" in answer.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["toy"], "say either --quick"),
        (["toy", "--quick", "--full"], "say either --quick"),
        (["fig9", "--quick"], "no experiment 'fig9'; choose from toy"),
        (["toy", "--quick", "--backend", "slurm"], "--backend must be one of joblib, dask"),
        (["toy", "--quick", "--scheduler", "tcp://1.2.3.4:1"], "--scheduler is for --backend dask"),
        (["toy", "--quick", "--jobs", 0], "--jobs must be"),
    ],
)
def test_bad_input(refused, tmp_path, arguments, message):
    assert message in refused("reproduce", *arguments, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_places_that_cannot_be_used(refused, tmp_path):
    file = tmp_path / "file"
    file.write_text("no store")
    assert "choose another with --out" in refused("reproduce", "toy", "--quick", "--out", file)
    (tmp_path / "results.sqlite").write_text("no store, but long enough to look at" * 10)
    refused("reproduce", "toy", "--quick", "--out", tmp_path)
    refused("report", "--out", tmp_path)


def test_a_report_of_nothing(refused, tmp_path):
    line = refused("report", "--out", tmp_path)
    assert "run trimreg reproduce all --quick" in line
    assert list(Path(tmp_path).iterdir()) == []


def test_a_report_of_exported_tables(call, tmp_path, monkeypatch):
    monkeypatch.setattr("trimreg_reproduction.exported.EXPERIMENTS", {"toy": "toy:TOY"})
    monkeypatch.setattr("trimreg_reproduction.exported.get_experiment", lambda name: TOY)
    out = tmp_path / "out"
    assert call("reproduce", "toy", "--quick", "--out", out, "--jobs", 1).exit_code == 0
    (out / "results.sqlite").unlink()
    answer = call("report", "--out", out)
    assert answer.exit_code == 0, answer.output
    assert "the largest half is 1" in (out / "report.html").read_text()


def test_a_device_is_for_networks_and_must_be_there(refused, tmp_path, monkeypatch):
    line = refused("reproduce", "toy", "--quick", "--out", tmp_path / "out", "--device", "cpu")
    assert line.startswith("error: --device is for networks (fig5, tab1,")
    pytest.importorskip("torch")
    monkeypatch.setattr(registry, "needs_torch", lambda name: True)
    line = refused("reproduce", "toy", "--quick", "--out", tmp_path / "out", "--device", "tpu")
    assert line == "error: --device must be auto, cpu, cuda or another device of PyTorch; got 'tpu'"
    line = refused("reproduce", "toy", "--quick", "--out", tmp_path / "out", "--device", "meta")
    assert line.startswith("error: --device=meta, but that device cannot be used here")
    assert not (tmp_path / "out").exists()


def toy_together(cells, device):
    RUN.append(f"{len(cells)} on {device}")
    return [[{"half": cell["n"] / 2}] for cell in cells]


@pytest.fixture
def batches(monkeypatch):
    """The toy can run its cells together, and there is a GPU, or so it seems."""
    pytest.importorskip("torch")
    from trimreg_reproduction.networks import device

    rule = Together(key=lambda cell: "all", run=toy_together, size=2)
    monkeypatch.setattr(registry, "get_experiment", lambda name: replace(TOY, together=rule))
    monkeypatch.setattr(device, "_check_cuda", lambda found, said: None)


@pytest.mark.usefixtures("batches")
def test_a_gpu_that_is_named_runs_batches(call, tmp_path, monkeypatch):
    monkeypatch.setenv("TRIMREG_DEVICE", "")
    answer = call("reproduce", "toy", "--quick", "--out", tmp_path, "--device", "cuda:0", "--jobs", 1)
    assert answer.exit_code == 0, answer.output
    assert RUN
    assert all(" on cuda:0" in name for name in RUN)
    assert os.environ["TRIMREG_DEVICE"] == ""  # that is for networks


@pytest.mark.usefixtures("batches")
@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_a_cpu_runs_cells_one_by_one(call, tmp_path, device):
    answer = call("reproduce", "toy", "--quick", "--out", tmp_path, "--device", device, "--jobs", 1)
    assert answer.exit_code == 0, answer.output
    assert RUN
    assert all(name.startswith("toy/") for name in RUN)


@pytest.mark.usefixtures("batches")
def test_batches_are_for_processes_of_this_machine(refused, tmp_path):
    line = refused(
        "reproduce", "toy", "--quick", "--out", tmp_path / "out", "--device", "cuda", "--backend", "dask"
    )
    assert "use --backend joblib or drop it" in line


def test_the_device_reaches_the_processes(call, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(registry, "needs_torch", lambda name: True)
    monkeypatch.setenv("TRIMREG_DEVICE", "")
    answer = call("reproduce", "toy", "--quick", "--out", tmp_path, "--device", "cpu", "--jobs", 1)
    assert answer.exit_code == 0, answer.output
    assert os.environ["TRIMREG_DEVICE"] == "cpu"


def test_a_package_that_cannot_be_imported_is_one_line():
    """Only its own commands are lost, and they say why."""
    command = (
        "import sys; sys.modules['trimreg_reproduction'] = None; sys.argv = ['trimreg', *sys.argv[1:]]; "
    )
    command += "from trimreg.cli import main; main()"
    found = subprocess.run(
        [sys.executable, "-c", command, "report"], capture_output=True, text=True, check=False
    )
    assert found.returncode == 2
    assert found.stderr.startswith("error: trimreg report cannot be loaded")
    assert len(found.stderr.splitlines()) == 1
    again = [sys.executable, "-c", "import trimreg_reproduction.commands; import trimreg.cli"]
    subprocess.run(again, check=True)
