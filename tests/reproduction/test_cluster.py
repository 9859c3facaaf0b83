"""The same rows from a Dask cluster, also where workers die."""

import os
import signal
import sys
from functools import partial

import pytest
import runner_toys as toys
from runner_toys import contents, expected

from trimreg_reproduction import cluster
from trimreg_reproduction.runner import Interrupted, run
from trimreg_reproduction.spec import BadInput

pytest.importorskip("distributed", reason="needs the extra cluster")


@pytest.fixture(scope="module")
def address():
    """A scheduler of its own with two workers, as somebody else may have started it."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as running:
        yield running.scheduler_address


def test_the_rows_of_one_process(store, tmp_path):
    summary = run([toys.toy()], "full", store, backend="dask", n_jobs=1)
    assert (summary.done, summary.failed, summary.skipped) == (12, 0, 0)
    assert contents(store) == expected(tmp_path)


def test_the_rows_of_one_process_from_a_scheduler(store, tmp_path, address):
    arguments = {"backend": "dask", "scheduler": address}
    summary = run([toys.toy(count=100)], "full", store, **arguments)  # more than may be out at once
    assert summary.done == 100
    assert contents(store) == expected(tmp_path, 100)
    assert run([toys.toy(count=100)], "full", store, **arguments).skipped == 100


def test_failures_are_those_of_the_cell(store, tmp_path, address):
    mark = tmp_path / "mark"
    mark.touch()
    toy = toys.toy(partial(toys.fails_while_asked, str(mark)))
    assert run([toy], "full", store, backend="dask", scheduler=address).failed == 6
    assert "RuntimeError: no luck with 3" in store.failed("toy")["toy/kind=a,n=3"]
    mark.unlink()
    assert run([toy], "full", store, backend="dask", scheduler=address).done == 6
    assert contents(store) == expected(tmp_path)


def test_a_worker_killed_from_outside(store, tmp_path, address):
    """One worker dies in the middle, with cells that it has and results that nobody fetched yet."""
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        victims = list(client.run(os.getpid).values())
        killed = []

        def kill(ended, total):
            if ended == 5 and not killed:
                os.kill(victims[0], signal.SIGKILL)
                killed.append(victims[0])

        toy = toys.toy(toys.slow_numbers, 40)
        summary = run([toy], "full", store, backend="dask", scheduler=address, on_progress=kill)
    assert killed
    assert (summary.done, summary.failed) == (40, 0)
    assert contents(store) == expected(tmp_path, 40)


def test_interrupt_keeps_what_is_done(store, tmp_path, address):
    def stop(ended, total):
        if ended == 5:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        run([toys.toy()], "full", store, backend="dask", scheduler=address, on_progress=stop)
    assert caught.value.summary.done == len(store.done("toy")) == 5
    run([toys.toy()], "full", store, backend="dask", scheduler=address)
    assert contents(store) == expected(tmp_path)


# -- without a cluster ----------------------------------------------------------------------------------


class Cluster:
    """A stand-in for Dask's client: its futures end at once, the first ones by the loss of their worker."""

    def __init__(self, losses, threads=1, lost=None):
        self.losses, self.threads, self.lost = losses, threads, lost
        self.status, self.sent, self.cancelled = "running", 0, []

    def submit(self, function, *arguments, pure):
        assert not pure
        self.sent += 1
        return Future(self, None if self.sent <= self.losses else function(*arguments))

    def nthreads(self):
        return {"one": self.threads} if self.threads else {}

    def cancel(self, futures):
        self.cancelled += futures


class Future:
    def __init__(self, client, outcome):
        self.client, self.outcome = client, outcome

    def done(self):
        return self.client.threads > 0

    def result(self):
        if self.outcome is None:
            raise self.client.lost
        return self.outcome


def tasks(count=1):
    return [("toy", toys.numbers, cell) for cell in toys.toy(count=count).cells("full")]


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(cluster, "_ended", lambda futures: [future for future in futures if future.done()])


def errors_of_loss():
    from concurrent.futures import CancelledError

    from distributed import KilledWorker
    from distributed.comm import CommClosedError

    return [
        KilledWorker("cell", None, 3),
        CancelledError("cell"),
        CommClosedError("gone"),
        TimeoutError("late"),
    ]


@pytest.mark.parametrize("losses", range(cluster.ATTEMPTS + 2))
def test_lost_cells_are_sent_again(impatient, losses):
    error = errors_of_loss()[losses % 4]
    client = Cluster(losses, lost=error)
    (outcome,) = cluster._exchange(client, tasks(), lambda: None)
    assert client.sent == min(losses + 1, cluster.ATTEMPTS)
    assert (outcome.error is None) == (losses < cluster.ATTEMPTS)
    if outcome.error is not None:
        assert type(error).__name__ in outcome.error
    assert all(cluster._worker_was_lost(one) for one in errors_of_loss())


def test_other_errors_are_not_tried_again(impatient):
    client = Cluster(1, lost=ModuleNotFoundError("No module named 'trimreg'"))
    (outcome,) = cluster._exchange(client, tasks(), lambda: None)
    assert client.sent == 1
    assert "No module named 'trimreg'" in outcome.error


def test_few_cells_are_out_at_once(impatient):
    client = Cluster(0, threads=2)
    outcomes = cluster._exchange(client, tasks(50), lambda: None)
    next(outcomes)
    assert client.sent == 2 * cluster._AHEAD
    outcomes.close()
    assert len(client.cancelled) == 2 * cluster._AHEAD - 1


def test_a_scheduler_that_is_gone(impatient):
    client = Cluster(1, lost=TimeoutError("late"))
    outcomes = cluster._exchange(client, tasks(), lambda: setattr(client, "status", "closed"))
    with pytest.raises(cluster.WorkersLost, match="scheduler is gone"):
        next(outcomes)


def test_workers_that_do_not_come_back(impatient, monkeypatch):
    monkeypatch.setattr(cluster, "_SECONDS_WITHOUT_WORKERS", 0.05)
    monkeypatch.setattr(cluster, "_SECONDS_BETWEEN_LOOKS", 0.0)
    revived = []
    outcomes = cluster._exchange(Cluster(0, threads=0), tasks(), lambda: revived.append(1))
    with pytest.raises(cluster.WorkersLost, match="no workers"):
        next(outcomes)
    assert revived


def test_no_scheduler_there(store, monkeypatch):
    monkeypatch.setattr(cluster, "_SECONDS_TO_CONNECT", 0.5)
    for nobody in ("tcp://127.0.0.1:1", "nonsense://here"):
        with pytest.raises(BadInput, match=f"no Dask scheduler answers at {nobody}"):
            run([toys.toy()], "full", store, backend="dask", scheduler=nobody)


def test_without_dask_the_extra_is_named(store, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(BadInput, match=r"pip install 'trimreg\[cluster\]'"):
        run([toys.toy()], "full", store, backend="dask")
