"""Rows of the real experiments depend on their cells alone: not on processes, on a cluster, or on a kill."""

import dataclasses
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

from trimreg_reproduction.registry import get_experiment
from trimreg_reproduction.runner import run
from trimreg_reproduction.store import Store
from trimreg_reproduction.worker import encode_rows

NAMES = ("fig2", "fig4", "beyond")  # the others go the same way, figS slowly, and fig1 measures times


def rows(path):
    with Store(path, read_only=True) as store:
        found = store._all("SELECT cell, parameters, rows FROM cells WHERE status = 'done' ORDER BY cell")
    return {cell: (json.loads(parameters), json.loads(values)) for cell, parameters, values in found}


def few(name, count=2):
    """The experiment with the first and the last of its quick cells."""
    experiment = get_experiment(name)
    cells = experiment.cells("quick")
    chosen = [cells[i] for i in sorted({0, *range(len(cells) - count + 1, len(cells))})]
    return dataclasses.replace(experiment, cells=lambda size: chosen)


def test_processes_and_a_cluster_give_the_same_rows(tmp_path):
    """One test, so that one process compiles the loops and the others find them on disk."""

    def found(name, names, **how):
        path = tmp_path / f"{name}.sqlite"
        with Store(path) as store:
            summary = run([few(one) for one in names], "quick", store, **how)
        assert (summary.done, summary.failed) == (2 * len(names), 0)
        return rows(path)

    expected = found("in turn", NAMES, n_jobs=1)
    for backend, names in (("joblib", NAMES[::2]), ("dask", NAMES[1::2])):
        of_these = {cell: row for cell, row in expected.items() if cell.split("/")[0] in names}
        assert found(backend, names, backend=backend, n_jobs=2) == of_these


def test_a_store_from_before_the_package_was_divided_goes_on(tmp_path):
    """The store holds three quick cells of figure 4, from when the experiments were part of the library."""
    path = tmp_path / "results.sqlite"
    shutil.copy(Path(__file__).parent / "data" / "before_the_move.sqlite", path)
    old = rows(path)
    cells = get_experiment("fig4").cells("quick")
    chosen = [cell for cell in cells if cell.name in old] + cells[-1:]
    assert len(chosen) == 4
    with Store(path) as store:
        experiment = dataclasses.replace(get_experiment("fig4"), cells=lambda size: chosen)
        summary = run([experiment], "quick", store, n_jobs=1)
    assert (summary.done, summary.skipped, summary.failed) == (1, 3, 0)
    assert {cell: row for cell, row in rows(path).items() if cell in old} == old


def test_a_command_that_is_killed_goes_on_to_the_same_rows(tmp_path):
    """kill -9 of ``trimreg reproduce`` in the middle, then the same command."""
    command = f"{sys.executable} -m trimreg reproduce fig4 --quick --jobs 1 --out {tmp_path}".split()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    store = tmp_path / "results.sqlite"
    while process.poll() is None:
        if store.exists() and _count(store) >= 3:
            os.kill(process.pid, signal.SIGKILL)
            break
        time.sleep(0.01)
    assert process.wait(timeout=600) == -signal.SIGKILL
    kept = rows(store)
    fig4 = get_experiment("fig4")
    cells = {cell.name: cell for cell in fig4.cells("quick")}
    assert 3 <= len(kept) < len(cells)
    subprocess.run(command, check=True, capture_output=True)
    found = rows(store)
    assert found.keys() == cells.keys()
    assert all(found[name] == value for name, value in kept.items())
    for name in [*list(kept)[:2], *sorted(found.keys() - kept.keys())[:2]]:
        assert found[name][1] == json.loads(encode_rows(fig4.run(cells[name])))


def _count(path):
    """Cells done so far; 0 while the file is being made."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)) as connection:
            return connection.execute("SELECT COUNT(*) FROM cells").fetchone()[0]
    except sqlite3.OperationalError:
        return 0
