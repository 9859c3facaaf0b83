"""How tasks are sent, lost and sent again: with stand-ins for Dask's client, and one scheduler that dies."""

import os
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

pytest.importorskip("distributed", reason="needs the extra cluster")

import dask
import dask.array as da

from trimreg.designs import dasktasks
from trimreg.designs.daskrows import DaskRows
from trimreg.designs.dasktasks import ATTEMPTS, Cluster, Threads, WorkersDied, runner_for, size_of


class Client:
    """A stand-in: its futures end at once, the first ones by the loss of their worker."""

    def __init__(self, losses=0, threads=1, lost=None):
        self.losses, self.threads, self.lost = losses, threads, lost
        self.status, self.out, self.cancelled = "running", Counter(), []
        self.scheduler = type("Scheduler", (), {"address": "tcp://somewhere:1"})

    def compute(self, tasks, optimize_graph):
        self.out[len(tasks)] += 1
        return [task.compute(scheduler="sync") for task in tasks]

    def gather(self, futures):
        if self.losses:
            self.losses -= 1
            raise self.lost
        return futures

    def nthreads(self):
        return {"one": self.threads} if self.threads else {}

    def cancel(self, futures, force):
        assert force
        self.cancelled += futures


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    import distributed

    monkeypatch.setattr(distributed, "wait", lambda futures, timeout: None)


def numbered(index):
    return dask.delayed(index)


def errors_of_loss():
    from asyncio import CancelledError as AsyncCancelled
    from concurrent.futures import CancelledError

    from distributed import KilledWorker
    from distributed.comm import CommClosedError

    kinds = [CancelledError("x"), AsyncCancelled("x"), CommClosedError("gone"), TimeoutError("late")]
    return [KilledWorker("x", None, 3), *kinds]


@pytest.mark.parametrize(
    "error", errors_of_loss(), ids=lambda error: f"{type(error).__module__}.{error!r}"[:30]
)
@pytest.mark.parametrize("losses", range(ATTEMPTS + 1))
def test_lost_tasks_are_sent_again(error, losses):
    client, restored = Client(losses, lost=error), []
    results = Cluster(client).each(5, numbered, lambda: restored.append(1))
    if losses < ATTEMPTS:
        assert list(results) == list(range(5))
        assert len(restored) == losses
        assert client.cancelled == []
    else:
        with pytest.raises(WorkersDied, match=r"workers of tcp://somewhere:1 ended 4 times .* more memory"):
            list(results)
        assert client.cancelled


def test_a_loss_after_a_success_counts_anew():
    client = Client(lost=TimeoutError())
    found = []
    for result in Cluster(client).each(20, numbered):
        found.append(result)
        client.losses = ATTEMPTS - 1 if len(found) % 2 else 0
    assert found == list(range(20))


def test_errors_of_a_task_are_not_tried_again():
    client = Client(1, lost=ValueError("of the kernel"))
    with pytest.raises(ValueError, match="of the kernel"):
        list(Cluster(client).each(5, numbered))
    assert sum(client.out.values()) == 2


def test_few_tasks_are_out_at_once():
    client = Client(threads=3)
    results = Cluster(client).each(50, numbered)
    assert next(results) == 0
    assert client.out == {6: 2}
    results.close()
    assert client.cancelled == list(range(6, 12))
    assert list(Cluster(client).each(50, numbered)) == list(range(50))


@pytest.mark.parametrize("runner", [lambda: Cluster(Client(threads=4)), Threads], ids=["cluster", "threads"])
def test_large_results_come_one_by_one(runner, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(dasktasks, "_BATCH_BYTES", 100)
    asked = []

    def task(index):
        asked.append(index)
        return dask.delayed(np.full)(5, float(index))

    results = runner().each(40, task)
    lead = []
    for count, result in enumerate(results):
        assert result[0] == count
        lead.append(len(asked) - count)
    assert count == 39
    assert max(lead[17:]) <= 4  # two results of 40 bytes are a batch, and two batches are out


def test_sizes_of_results():
    assert size_of(np.zeros(3)) == 24
    assert size_of((np.zeros(3), [np.zeros(2), 1])) == 24 + 16 + 64


def test_nothing_to_do():
    assert list(Cluster(Client()).each(0, numbered)) == []
    assert list(Threads().each(0, numbered)) == []


def test_a_scheduler_that_is_gone():
    client = Client(1, lost=TimeoutError("late"))
    cluster = Cluster(client)
    client.status = "closed"
    with pytest.raises(ConnectionError, match="scheduler at tcp://somewhere:1 is gone; start a scheduler"):
        list(cluster.each(5, numbered))
    assert not client.out


def test_a_scheduler_that_goes_away_on_the_way():
    client = Client(1, lost=TimeoutError("late"))
    gather = client.gather

    def close_and_gather(futures):
        client.status = "connecting"
        return gather(futures)

    client.gather = close_and_gather
    with pytest.raises(ConnectionError, match="is gone"):
        list(Cluster(client).each(5, numbered))
    assert client.cancelled == []  # there is nobody to tell


def test_workers_that_do_not_come(monkeypatch):
    import distributed

    def late(futures, timeout):
        raise TimeoutError

    monkeypatch.setattr(distributed, "wait", late)
    monkeypatch.setattr(dasktasks, "_SECONDS_WITHOUT_WORKERS", 0.02)
    monkeypatch.setattr(dasktasks, "_SECONDS_BETWEEN_LOOKS", 0.0)
    with pytest.raises(
        ConnectionError, match=r"no workers for .* start some with 'dask worker tcp://somewhere:1'"
    ):
        list(Cluster(Client(threads=0)).each(5, numbered))


def test_memory_of_the_workers():
    client = Client()
    workers = {"a": {"memory_limit": 5}, "b": {"memory_limit": 7}}
    client.scheduler_info = lambda: {"workers": workers}
    assert Cluster(client).memory() == 12
    workers["c"] = {"memory_limit": 0}  # no limit
    assert Cluster(client).memory() == np.inf
    assert Threads().memory() > 1e8


def test_no_scheduler_there(monkeypatch):
    monkeypatch.setattr(dasktasks, "_SECONDS_TO_CONNECT", 0.5)
    for nobody in ("tcp://127.0.0.1:1", "nonsense://here"):
        with pytest.raises(
            ConnectionError, match=f"no Dask scheduler answers at {nobody} .*; start one with"
        ):
            DaskRows(da.zeros((4, 2)), client=nobody)


def test_without_a_client_threads_do_it():
    assert isinstance(runner_for(), Threads)
    client = Client()
    assert runner_for(client).client is client


DYING = """
import os, sys, threading, dask.array as da, numpy as np
from distributed import Client
from trimreg import TrimmedLasso
from trimreg.designs.daskrows import DaskRows

class Rows(DaskRows):
    def sweep(self, *parts, **named):
        if self.passes == 2:
            os.kill(int(sys.argv[2]), 9)
        return super().sweep(*parts, **named)

if __name__ == "__main__":
    client = Client(sys.argv[1], timeout=20)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 5))
    model = TrimmedLasso(h=1)
    try:
        model.fit(Rows(da.from_array(X, chunks=(20, 5)), chunk_bytes=1), X[:, 2])
    except ConnectionError as error:
        print("said:", error, hasattr(model, "coef_"), flush=True)
    os._exit(0)
"""

SERVING = """
import time
from distributed import LocalCluster

if __name__ == "__main__":
    with LocalCluster(n_workers=1, processes=False, dashboard_address=":0", silence_logs=50,
                      host="127.0.0.1", protocol="tcp://") as cluster:
        print(cluster.scheduler_address, flush=True)
        time.sleep(60)
"""


def test_a_scheduler_that_is_killed_in_mid_fit():
    command = [sys.executable, "-c"]
    with subprocess.Popen([*command, SERVING], stdout=subprocess.PIPE, text=True) as server:
        address = server.stdout.readline().strip()
        fit = subprocess.run(
            [*command, DYING, address, str(server.pid)], capture_output=True, text=True, timeout=60
        )
        server.kill()
    assert f"said: the Dask scheduler at {address} is gone; start a scheduler" in fit.stdout
    assert fit.stdout.strip().endswith("False")
