"""Running tasks over the chunks of a Dask collection: on a cluster, or by threads of this process.

Both return the results in the order of the chunks, whichever worker was done first. So sums have the same
bits for any number of workers.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import CancelledError, wait
from contextlib import suppress
from typing import Any

import dask

#: Number of times that a batch of tasks is sent before the loss of its workers is an error.
ATTEMPTS = 4
_BATCH_BYTES = 256 << 20  # of the results of a batch
_SECONDS_BETWEEN_LOOKS = 2.0
_SECONDS_WITHOUT_WORKERS = 300
_SECONDS_TO_CONNECT = 10
_CGROUP = "/sys/fs/cgroup"


class WorkersDied(RuntimeError):
    """Workers died repeatedly on the same rows of X."""


def runner_for(client=None):
    """The runner for a client or address; else for Dask's default client, or threads of this process."""
    if client is None:
        client = _default_client()
        return Threads() if client is None else Cluster(client)
    if isinstance(client, str):
        client = _connected(client)
    elif isinstance(client, type) or not all(hasattr(client, name) for name in ("scheduler", "gather")):
        raise TypeError(
            f"client must be a distributed.Client or the address of a scheduler, not {type(client).__name__}"
        )
    return Cluster(client)


def _default_client():
    if "distributed" in sys.modules:  # otherwise there is no client; dask alone does not import it
        with suppress(ValueError):
            return sys.modules["distributed"].get_client()
    return None


def _connected(address):
    from distributed import Client
    from distributed.comm import parse_address
    from distributed.comm.registry import get_backend

    try:
        get_backend(parse_address(address)[0])  # otherwise a half-made Client would stay behind
    except ValueError as error:
        raise ValueError(
            f"client={address!r} is not an address: {error}; pass one such as 'tcp://host:8786'"
        ) from None
    try:
        return Client(address, timeout=_SECONDS_TO_CONNECT, set_as_default=False)
    except (OSError, ValueError, AssertionError) as error:
        raise ConnectionError(
            f"no Dask scheduler answers at {address} ({str(error) or type(error).__name__});"
            " start one with 'dask scheduler', or omit the address"
        ) from None


def size_of(result) -> int:
    """Bytes of the arrays in a result."""
    if isinstance(result, (tuple, list)):
        return sum(map(size_of, result))
    return int(getattr(result, "nbytes", 64))


def _container_memory() -> float:
    """The memory limit of the container (cgroup version 2 or 1); inf if there is none."""
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError), open(os.path.join(_CGROUP, name), encoding="ascii") as file:
            return int(file.read())  # no limit is "max" in version 2, a huge number in version 1
    return math.inf


class _Batches:
    """The size of batches of tasks: neither all results nor all vectors should be here at once."""

    def __init__(self, threads):
        self.threads = max(1, threads)
        self.largest = 1

    def size(self):
        return max(1, min(2 * self.threads, _BATCH_BYTES // self.largest))

    def saw(self, results):
        self.largest = max(self.largest, *map(size_of, results))


class Threads:
    """Dask's threads in this process, for data on disk or from a generator, without a cluster."""

    share = 0.25  # of the memory, for persisted chunks

    def memory(self) -> float:
        with suppress(AttributeError, ValueError, OSError):
            return min(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), _container_memory())
        return 0

    def persist(self, blocks: Any) -> list:
        return list(dask.persist(*blocks, scheduler="threads"))

    def each(self, count: int, task: Any, restore: Any = None) -> Iterator[Any]:
        """Yield the results of ``task(0), ..., task(count - 1)``, each of which is a Delayed."""
        batches = _Batches(os.cpu_count() or 1)
        start = 0
        while start < count:
            stop = min(count, start + batches.size())
            results = dask.compute(*map(task, range(start, stop)), scheduler="threads", optimize_graph=False)
            batches.saw(results)
            yield from results
            start = stop


class Cluster:
    """A Dask cluster: workers may die, the scheduler may stop, and Ctrl-C cancels the tasks sent."""

    share = 0.5  # of the memory, for persisted chunks; the rest is for copies, results and other work

    def __init__(self, client):
        self.client = client
        # A client that has lost its scheduler forgets its address.
        cluster = getattr(client, "cluster", None)
        known = getattr(client.scheduler, "address", None) or getattr(cluster, "scheduler_address", None)
        self.name = known or "an unknown address"
        self.looked, self.seen, self.threads = -math.inf, time.monotonic(), 1
        self._step_aside()

    def _step_aside(self):
        """In a task of a worker: free its thread for the tasks that this one waits for."""
        from distributed import get_worker, secede

        with suppress(ValueError, AttributeError, KeyError):
            get_worker()
            secede()

    def memory(self) -> float:
        workers = self.client.scheduler_info()["workers"].values()
        limits = [worker.get("memory_limit") or math.inf for worker in workers]
        return sum(limits) if limits else math.inf

    def persist(self, blocks: Any) -> list:
        return self._sent(self.client.persist, blocks)

    def each(self, count: int, task: Any, restore: Any = None) -> Iterator[Any]:
        """Yield the results of ``task(0), ..., task(count - 1)``; ``restore()`` follows a loss of workers."""
        self.look()
        batches = _Batches(self.threads)
        out: deque = deque()  # (start, stop, futures) in order
        sent = 0
        try:
            while sent < count or out:
                while sent < count and len(out) < 2:
                    stop = min(count, sent + batches.size())
                    out.append((sent, stop, self._submit(task, sent, stop)))
                    sent = stop
                results = self._results(out, task, restore)
                batches.saw(results)
                yield from results
        finally:
            if out and self.client.status == "running":
                self.client.cancel([future for _, _, futures in out for future in futures], force=True)

    def _results(self, out, task, restore):
        """The results of the first batch in ``out``, which is removed from it."""
        for attempt in range(1, ATTEMPTS + 1):
            start, stop, futures = out[0]
            try:
                results = self._gathered(futures)
            except BaseException as error:
                if not _is_loss(error):
                    raise
                self.look(soon=True)
                if attempt == ATTEMPTS:
                    raise WorkersDied(
                        f"workers of {self.name} died {ATTEMPTS} times on the same rows of X ({error!r});"
                        " give them more memory, or cut X into smaller chunks"
                    ) from error
                if restore is not None:
                    restore()
                for place, (start, stop, _) in enumerate(list(out)):  # others may depend on lost chunks
                    out[place] = start, stop, self._submit(task, start, stop)
            else:
                out.popleft()
                return results
        raise AssertionError("not reached")

    def _submit(self, task, start, stop):
        return self._sent(self.client.compute, [task(index) for index in range(start, stop)])

    def _sent(self, send, collections):
        # Vectors travel with the tasks, so batches are large on purpose.
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
            return send(collections, optimize_graph=False)

    def _gathered(self, futures):
        """The results of these futures; while they are not there, look after the cluster."""
        # Dask's own waiting has no end if the last worker dies and none comes back.
        asked = asyncio.run_coroutine_threadsafe(
            self.client.gather(futures, asynchronous=True), self.client.loop.asyncio_loop
        )
        try:
            while not wait([asked], timeout=_SECONDS_BETWEEN_LOOKS).done:
                self.look()
            return asked.result()
        finally:
            asked.cancel()

    def look(self, soon: bool = False) -> None:
        """Check, every now and then, that the scheduler answers and has workers."""
        self._check_scheduler()
        now = time.monotonic()
        if now - self.looked < _SECONDS_BETWEEN_LOOKS and not soon:
            return
        try:
            threads = sum(self.client.nthreads().values())
        except (OSError, RuntimeError, TimeoutError):
            self._check_scheduler()
            threads = 0
        if threads:
            self.seen, self.threads = now, threads
        elif now - self.seen > _SECONDS_WITHOUT_WORKERS:
            raise ConnectionError(
                f"the Dask scheduler at {self.name} has had no workers for {_SECONDS_WITHOUT_WORKERS}"
                f" seconds; start some with 'dask worker {self.name}', and fit again"
            )
        self.looked = now

    def _check_scheduler(self):
        if self.client.status != "running":
            raise ConnectionError(
                f"the Dask scheduler at {self.name} has stopped; start one, connect a new Client, create X"
                " again, and fit again"
            )


def _is_loss(error):
    """Whether an error comes from the cluster, not from the task."""
    from distributed import KilledWorker
    from distributed.comm import CommClosedError

    return isinstance(
        error, (KilledWorker, CancelledError, asyncio.CancelledError, CommClosedError, TimeoutError)
    )
