"""How tasks are sent, lost and sent again: with stand-ins for Dask's client, and one scheduler that dies."""

import asyncio
import os
import subprocess
import sys
import threading
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("distributed", reason="needs the extra cluster")

import dask
import dask.array as da

from trimreg.designs.far import dask_tasks as dasktasks
from trimreg.designs.far.dask import DaskRows
from trimreg.designs.far.dask_tasks import ATTEMPTS, Cluster, Threads, WorkersDied, runner_for, size_of


class Client:
    """A stand-in: its futures end at once, the first ones by the loss of their worker."""

    def __init__(self, losses=0, threads=1, lost=None):
        self.losses, self.threads, self.lost = losses, threads, lost
        self.status, self.out, self.cancelled = "running", Counter(), []
        self.scheduler = type("Scheduler", (), {"address": "tcp://somewhere:1"})

    def compute(self, tasks, optimize_graph):
        self.out[len(tasks)] += 1
        return [task.compute(scheduler="sync") for task in tasks]

    async def gather(self, futures, asynchronous):
        if self.losses:
            self.losses -= 1
            raise self.lost
        return futures

    def nthreads(self):
        return {"one": self.threads} if self.threads else {}

    def cancel(self, futures, force):
        assert force
        self.cancelled += futures


@pytest.fixture(autouse=True, scope="module")
def running_loop():
    """The event loop of the stand-ins, in a thread as that of a client."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    Client.loop = SimpleNamespace(asyncio_loop=loop)
    yield
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


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
        with pytest.raises(WorkersDied, match=r"workers of tcp://somewhere:1 died 4 times .* more memory"):
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
    with pytest.raises(ConnectionError, match="scheduler at tcp://somewhere:1 has stopped; start one"):
        list(cluster.each(5, numbered))
    assert not client.out


def test_a_scheduler_that_goes_away_on_the_way():
    client = Client(1, lost=TimeoutError("late"))
    gather = client.gather

    async def close_and_gather(futures, asynchronous):
        client.status = "connecting"
        return await gather(futures, asynchronous)

    client.gather = close_and_gather
    with pytest.raises(ConnectionError, match="has stopped"):
        list(Cluster(client).each(5, numbered))
    assert client.cancelled == []  # there is nobody to tell


def test_workers_that_do_not_come(monkeypatch):
    async def never(futures, asynchronous):
        await asyncio.Event().wait()

    client = Client(threads=0)
    client.gather = never
    monkeypatch.setattr(dasktasks, "_SECONDS_WITHOUT_WORKERS", 0.02)
    monkeypatch.setattr(dasktasks, "_SECONDS_BETWEEN_LOOKS", 0.0)
    with pytest.raises(
        ConnectionError, match=r"no workers for .* start some with 'dask worker tcp://somewhere:1'"
    ):
        list(Cluster(client).each(5, numbered))


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
    nobody = "tcp://127.0.0.1:1"
    with pytest.raises(ConnectionError, match=f"no Dask scheduler answers at {nobody} .*; start one with"):
        DaskRows(da.zeros((4, 2)), client=nobody)


def test_without_a_client_threads_do_it():
    assert isinstance(runner_for(), Threads)
    client = Client()
    assert runner_for(client).client is client


DYING = """
import os, sys, threading, dask.array as da, numpy as np
from distributed import Client
from trimreg import TrimmedLasso
from trimreg.designs.far.dask import DaskRows

class Rows(DaskRows):
    def sweep(self, *parts, **named):
        if self.passes == 2:
            os.kill(int(sys.argv[2]), 9)
        return super().sweep(*parts, **named)

if __name__ == "__main__":
    client = Client(sys.argv[1], timeout=300)
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
import sys
from distributed import LocalCluster

if __name__ == "__main__":
    with LocalCluster(n_workers=1, processes=False, dashboard_address=":0", silence_logs=50,
                      host="127.0.0.1", protocol="tcp://") as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()  # until it is killed, or the test has ended
"""


def test_a_scheduler_that_is_killed_in_mid_fit():
    command = [sys.executable, "-c"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, SERVING], **pipes) as server:
        address = server.stdout.readline().strip()
        fit = subprocess.run(
            [*command, DYING, address, str(server.pid)], capture_output=True, text=True, timeout=600
        )
        server.kill()
    assert f"said: the Dask scheduler at {address} has stopped; start one" in fit.stdout
    assert fit.stdout.strip().endswith("False")


# -- memory of a container ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "limit"),
    [
        ("memory.max", "50000000\n", 50_000_000),
        ("memory.max", "max\n", None),
        ("memory/memory.limit_in_bytes", "70000000\n", 70_000_000),
        ("memory/memory.limit_in_bytes", "9223372036854771712\n", None),
        ("memory.max", "", None),
        ("else", "1", None),
    ],
)
def test_the_limit_of_a_container_counts(name, text, limit, tmp_path, monkeypatch):
    monkeypatch.setattr(dasktasks, "_CGROUP", str(tmp_path))
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert Threads().memory() == (machine if limit is None else limit)


def test_what_a_container_cannot_hold_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(dasktasks, "_CGROUP", str(tmp_path))
    X = np.random.default_rng(0).standard_normal((100, 4))
    for limit, kept in ((4 * X.nbytes - 1, False), (4 * X.nbytes, True)):
        (tmp_path / "memory.max").write_text(str(limit))
        rows = DaskRows(da.from_array(X, chunks=(50, 4)))
        rows.design(np.ones(100))
        assert rows._is_kept() == kept


# -- arguments ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"memory": "1GB"}, TypeError, "memory='1GB' must be a number of bytes, as in memory="),
        ({"memory": None}, TypeError, "memory=None must be a number of bytes"),
        ({"memory": True}, TypeError, "memory=True must be a number of bytes"),
        ({"memory": -1}, ValueError, "memory=-1 must be a number of bytes, 0 or more"),
        ({"memory": np.nan}, ValueError, "memory=nan must be a number of bytes, 0 or more"),
        ({"chunk_bytes": "64MiB"}, TypeError, "chunk_bytes='64MiB' must be a number of bytes"),
        ({"chunk_bytes": -5}, ValueError, "chunk_bytes=-5 must be a number of bytes, 0 or more"),
        ({"persist": "yes"}, TypeError, "persist='yes' must be True, False or None"),
        ({"client": 3}, TypeError, "client must be a distributed.Client or the address .*, not int"),
        ({"client": Client}, TypeError, "client must be a distributed.Client or the address .*, not type"),
        ({"client": "foo://x:1"}, ValueError, "client='foo://x:1' is not an address: unknown address scheme"),
    ],
    ids=repr,
)
def test_arguments_that_cannot_be(options, error, words):
    with pytest.raises(error, match=words):
        DaskRows(da.zeros((4, 2)), **options)


def test_arguments_that_can_be():
    for options in ({"memory": 256e9, "chunk_bytes": np.int64(5)}, {"memory": 0, "persist": np.True_}):
        assert DaskRows(da.zeros((4, 2)), **options).shape == (4, 2)


def test_an_assertion_of_the_client_is_put_into_words(monkeypatch):
    import distributed

    def failing(*parts, **named):
        raise AssertionError

    monkeypatch.setattr(distributed, "Client", failing)
    with pytest.raises(ConnectionError, match=r"no Dask scheduler answers at x:1 \(AssertionError\)"):
        runner_for("x:1")


class Future:
    """A stand-in for a distributed.Future."""

    __module__ = "distributed.client"


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (np.eye(3), "X must be a Dask array or DataFrame, not ndarray; .* to the estimator directly"),
        ([[1.0]], "X must be a Dask array or DataFrame, not list"),
        (dask.delayed(np.eye)(3), "X must be a Dask array or DataFrame, not Delayed; .*from_delayed"),
        (Future(), r"X is a Future of distributed, .*; pass X.result\(\)"),
    ],
    ids=["array", "list", "delayed", "future"],
)
def test_what_is_no_collection(X, words):
    with pytest.raises(TypeError, match=words):
        DaskRows(X)
