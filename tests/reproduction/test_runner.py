"""Rows depend on their cell alone: not on order, processes, a kill or an interruption in between."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import joblib
import pytest
import runner_toys as toys
from runner_toys import contents, expected

from trimreg_reproduction import runner, worker
from trimreg_reproduction.runner import Interrupted, run
from trimreg_reproduction.spec import BadInput
from trimreg_reproduction.store import Store

# -- the same rows whatever happens ---------------------------------------------------------------------


def test_processes_do_not_matter(store, tmp_path):
    summary = run([toys.toy(), toys.toy(toys.threads, 4, "threads")], "full", store, n_jobs=2)
    assert joblib.Parallel(n_jobs=2)([joblib.delayed(abs)(-1)] * 2) == [1, 1]  # joblib's processes are others
    assert (summary.done, summary.failed, summary.skipped) == (16, 0, 0)
    assert [line for line in contents(store) if line[0].startswith("toy/")] == expected(tmp_path, 12)
    frame = store.frame("threads")
    assert set(frame["threads"]) == {1}
    assert os.getpid() not in set(frame["pid"])


def test_other_cells_do_not_matter(store, tmp_path):
    first = run([toys.toy()], "quick", store, n_jobs=1)
    second = run([toys.toy()], "full", store, n_jobs=1)
    assert (first.done, second.done, second.skipped) == (6, 6, 6)
    assert contents(store) == expected(tmp_path, 12)
    assert store.size("toy") == "full"
    assert store.frame("toy")["n"].tolist() == [n for n in range(12) for _ in range(2)]


def start(path, count, n_jobs, backend="joblib"):
    command = [sys.executable, str(Path(toys.__file__)), path, str(count), backend, str(n_jobs)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    for line in process.stdout:
        if int(line) >= 5:
            return process
    raise AssertionError("the run ended before it could be stopped")


def test_kill_and_resume(tmp_path):
    path = tmp_path / "results.sqlite"
    process = start(path, 30, 2)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=600)  # the pipe ends with the last worker: none outlives the run for long
    assert process.returncode == -signal.SIGKILL
    with Store(path) as store:
        kept = contents(store)
        assert 5 <= len(kept) < 30
        summary = run([toys.toy(toys.numbers, 30)], "full", store, n_jobs=1)
        assert summary.skipped == len(kept)
        assert summary.done == 30 - len(kept)
        assert contents(store) == expected(tmp_path, 30)


def test_interrupt_and_resume(tmp_path):
    """Ctrl-C in a terminal goes to the workers too."""
    path = tmp_path / "results.sqlite"
    process = start(path, 30, 2)
    os.killpg(process.pid, signal.SIGINT)
    words = process.communicate(timeout=600)[0].split()
    assert process.returncode == 130
    with Store(path) as store:
        kept = contents(store)
        assert words[-2:] == ["interrupted", str(len(kept))]
        assert 5 <= len(kept) < 30
        assert {line[1] for line in kept} == {"done"}
        run([toys.toy(toys.numbers, 30)], "full", store, n_jobs=1)
        assert contents(store) == expected(tmp_path, 30)


def test_interrupt_of_a_single_process(store):
    with pytest.raises(Interrupted, match="cells are done and stored") as caught:
        run([toys.toy(toys.interrupts)], "full", store, n_jobs=1)
    assert caught.value.summary.done == len(store.done("toy")) < 12
    assert store.failed("toy") == {}


# -- two runs and one store ------------------------------------------------------------------------------


def runs_of(folder):
    """The processes that ran each cell."""
    return {int(file.name): file.read_text().split() for file in folder.iterdir()}


def test_two_runs_share_the_cells(store, tmp_path):
    """Here one run begins in the middle of another; it does the rest, which the first then finds done."""
    (tmp_path / "log").mkdir()
    toy = toys.toy(partial(toys.logs, str(tmp_path / "log")))
    inner = []

    def begin(ended, total):
        if ended == 2:
            with Store(store.path) as other:
                inner.append(run([toy], "full", other, n_jobs=1))

    outer = run([toy], "full", store, n_jobs=1, on_progress=begin)
    assert (outer.done, outer.failed, outer.skipped) == (2, 0, 10)
    assert (inner[0].done, inner[0].failed, inner[0].skipped) == (10, 0, 2)
    assert {len(pids) for pids in runs_of(tmp_path / "log").values()} == {1}
    assert contents(store) == expected(tmp_path)
    assert store.runs() == []
    assert not list(tmp_path.glob("*-run-*"))


def test_a_run_takes_over_the_cell_of_one_that_was_killed(store, tmp_path, monkeypatch):
    (log := tmp_path / "log").mkdir()
    (log / "hang").touch()
    command = [sys.executable, toys.__file__, store.path, "12", "joblib", "1", log]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    waits = []

    def kill(seconds):
        """Called when only the cell of the other run is left."""
        assert waits or process.poll() is None
        waits.append(sorted(store.done("toy")))
        process.kill()
        process.wait()

    try:
        while (log / "hang").exists():
            assert process.poll() is None
            time.sleep(0.02)
        monkeypatch.setattr(runner, "_pause", kill)
        summary = run([toys.toy(partial(toys.logs, str(log)))], "full", store, n_jobs=1)
    finally:
        process.kill()
        process.communicate()
    assert len(waits) == 1
    assert len(waits[0]) == 11
    assert (summary.failed, summary.done + summary.skipped) == (0, 12)
    runs = runs_of(log)
    assert runs.pop(3) == [str(process.pid), str(os.getpid())]
    assert {len(pids) for pids in runs.values()} == {1}
    assert contents(store) == expected(tmp_path)
    assert store.runs() == []
    assert not list(tmp_path.glob("*-run-*"))


# -- failures -------------------------------------------------------------------------------------------


def test_failed_cells_are_kept_apart_and_run_again(store, tmp_path):
    mark = tmp_path / "mark"
    mark.touch()
    toy = toys.toy(partial(toys.fails_while_asked, str(mark)))
    summary = run([toy], "full", store, n_jobs=1)
    assert (summary.done, summary.failed) == (6, 6)
    assert len(store.failed("toy")) == 6
    assert "RuntimeError: no luck with 3" in store.failed("toy")["toy/kind=a,n=3"]
    assert set(store.frame("toy")["n"] % 2) == {0}

    mark.unlink()
    summary = run([toy], "full", store, n_jobs=1)
    assert (summary.done, summary.failed, summary.skipped) == (6, 0, 6)
    assert contents(store) == expected(tmp_path, 12)


def test_cells_without_their_peer_are_run_again(store, tmp_path):
    mark = tmp_path / "mark"
    mark.touch()
    toy = toys.toy(partial(toys.does_without_a_peer, str(mark)))
    assert run([toy], "full", store, n_jobs=1).done == 12
    assert len(store.without_peer("toy")) == 6
    summary = run([toy], "full", store, n_jobs=1)
    assert (summary.done, summary.skipped) == (6, 6)
    mark.unlink()  # installed
    summary = run([toy], "full", store, n_jobs=1)
    assert (summary.done, summary.skipped) == (6, 6)
    assert store.without_peer("toy") == set()
    assert run([toy], "full", store, n_jobs=1).skipped == 12


def exits(cell):
    sys.exit(3)


def returns_nonsense(cell):
    return {"value": 1}


def test_odd_ends_are_failures(store):
    for function, words in ((exits, "SystemExit: 3"), (returns_nonsense, "list of dicts")):
        assert run([toys.toy(function, 2)], "full", store, n_jobs=1).failed == 2
        assert all(words in error for error in store.failed("toy").values())


def test_a_dead_process_loses_nothing(store, tmp_path):
    mark = tmp_path / "mark"
    summary = run([toys.toy(partial(toys.kills_its_worker_once, str(mark)))], "full", store, n_jobs=2)
    assert mark.exists()
    assert (summary.done, summary.failed) == (12, 0)
    assert contents(store) == expected(tmp_path, 12)


def test_a_cell_that_kills_every_process_is_the_only_one_lost(store, monkeypatch):
    monkeypatch.setattr(runner, "_USELESS_EXECUTORS", 1)
    summary = run([toys.toy(toys.kills_every_worker, 4)], "full", store, n_jobs=2)
    assert (summary.done, summary.failed) == (3, 1)
    ((name, error),) = store.failed("toy").items()
    assert name == "toy/kind=a,n=3"
    assert "died" in error


# -- the rest -------------------------------------------------------------------------------------------


def test_linear_algebra_has_one_thread(store):
    from threadpoolctl import threadpool_info, threadpool_limits

    with threadpool_limits(2):
        before = [one["num_threads"] for one in threadpool_info()]
        run([toys.toy(toys.threads)], "full", store, n_jobs=1)
        assert [one["num_threads"] for one in threadpool_info()] == before
    assert set(store.frame("toy")["threads"]) == {1}


def test_a_worker_limits_its_own_threads(monkeypatch):
    """Workers of a cluster are started by others, with as many threads as they like."""
    from threadpoolctl import threadpool_limits

    monkeypatch.setattr(worker, "_modules_seen", 0)
    with threadpool_limits(2):
        assert '"threads": 1' in worker.perform("toy", toys.threads, toys.toy().cells("quick")[0]).rows


def test_progress_is_told(store, capsys):
    seen = []
    run([toys.toy()], "quick", store, n_jobs=1, on_progress=lambda *counts: seen.append(counts))
    assert seen == [(ended, 6) for ended in range(7)]
    assert capsys.readouterr().err == ""
    seen.clear()
    run([toys.toy()], "full", store, n_jobs=1, on_progress=lambda *counts: seen.append(counts), verbose=1)
    assert seen == [(ended, 6) for ended in range(7)]
    assert capsys.readouterr().err == ""  # short work, and no terminal


def test_several_experiments_share_a_store(store):
    summary = run(
        [toys.toy(name="one"), toys.toy(name="two"), toys.toy(name="one")], "quick", store, n_jobs=1
    )
    assert summary.done == 12
    assert store.experiments() == ["one", "two"]
    assert store.frame("one")["value"].tolist()[0] != store.frame("two")["value"].tolist()[0]


def test_experiments_by_name(store, monkeypatch):
    monkeypatch.setattr(runner, "expand_names", lambda names: ["one", "two"] if names == ["all"] else names)
    monkeypatch.setattr(runner, "get_experiment", lambda name: toys.toy(name=name))
    assert run("all", "quick", store, n_jobs=1).done == 12
    assert run(["two", "all"], "quick", store, n_jobs=1).skipped == 12


def test_cells_of_one_name_are_refused(store):
    twice = toys.toy(count=2)
    object.__setattr__(twice, "cells", lambda size: toys.toy(count=2).cells("full") * 2)
    with pytest.raises(ValueError, match="two cells with the name toy/kind=a,n=0"):
        run([twice], "full", store)


def test_tasks_are_in_an_order_as_good_as_random(store):
    tasks, ready = runner.plan(toys.toy(count=100), "full", store)
    numbers = [task.cell["n"] for task in tasks]
    assert ready == 0
    assert sorted(numbers) == list(range(100))
    assert 10 < min(sum(numbers[:50]), sum(numbers[50:])) / 50 < 50
    assert numbers != sorted(numbers)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"size": "huge"}, "size must be"),
        ({"backend": "threads"}, "backend must be"),
        ({"scheduler": "tcp://127.0.0.1:1"}, "scheduler needs backend='dask'"),
        ({"backend": "dask", "device": "cuda"}, "device needs backend='joblib'"),
        ({"experiments": ["fig99"]}, "no experiment 'fig99'"),
    ],
)
def test_arguments_of_no_use(store, arguments, words):
    with pytest.raises(BadInput, match=words):
        run(**{"experiments": [toys.toy()], "size": "quick", "store": store, **arguments})
    assert store.experiments() == []


# -- batches on a device ----------------------------------------------------------------------------------


def test_cells_are_run_together_where_a_device_is_asked_for(store, tmp_path):
    assert run([toys.sociable(range(9))], "quick", store, n_jobs=2, device="cpu").done == 9
    frame = store.frame("toy").set_index("n")
    assert frame["twice"].to_dict() == {n: 2 * n for n in range(9)}
    together = frame["beside"].dropna()
    assert sorted(together) == [2] * 2 + [4] * 4
    assert all(n % 3 for n in together.index)
    with Store(tmp_path / "without.sqlite") as other:
        run([toys.sociable(range(3))], "quick", other, n_jobs=1)
        assert "beside" not in other.frame("toy")


def test_a_group_that_fails_has_failed(store):
    summary = run([toys.sociable([100, 101, 102])], "quick", store, n_jobs=1, device="cuda:7")
    assert (summary.done, summary.failed) == (1, 2)  # 102 is run alone
    assert all("no luck on cuda:7" in error for error in store.failed("toy").values())
