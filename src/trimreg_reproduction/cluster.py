"""Runs cells on a Dask cluster whose workers may come and go."""

from __future__ import annotations

import itertools
import logging
import math
import signal
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress

from .spec import BadInput
from .worker import Outcome, lost, perform

#: How often a cell is sent out before it counts as failed. A scheduler gives up a cell after a few workers
#: died with it, so a cell that kills its workers has killed many by then.
ATTEMPTS = 3
_AHEAD = 4  # cells sent out per thread of the cluster
_SECONDS_TO_CONNECT = 10
_SECONDS_FOR_WORKERS = 60
_SECONDS_BETWEEN_LOOKS = 2.0
_SECONDS_WITHOUT_WORKERS = 300


class WorkersLost(BadInput):
    """The scheduler or all workers of a cluster have ended. Finished cells are in the store."""


def outcomes_of_cluster(
    tasks: list, n_jobs: int | None = -1, scheduler: str | None = None
) -> Iterator[Outcome]:
    """The outcomes of the tasks of :func:`trimreg_reproduction.runner.run`, as they end, in any order.

    A bounded number of cells is out at any time. The cells of a dead worker are run again by another one.

    Parameters
    ----------
    tasks : list of Task
    n_jobs : int
        The number of worker processes, as joblib counts them, if there is no scheduler.
    scheduler : str, optional
        The address of a scheduler. By default the workers are processes of this machine.
    """
    with _connected(n_jobs, scheduler) as (client, revive):
        yield from _exchange(client, tasks, revive)


def _exchange(client, tasks, revive):
    waiting = iter(tasks)
    out = {}  # future: the task, and how often it was sent
    workers = _Workers(client, revive)

    def send(task, attempt):
        # Not pure: a result that an earlier run left on the scheduler under this key must not be used.
        out[client.submit(perform, *task, pure=False)] = task, attempt

    try:
        while True:
            for task in itertools.islice(waiting, max(0, workers.slots() - len(out))):
                send(task, 1)
            if not out:
                return
            for future in _ended(list(out)):
                task, attempt = out.pop(future)
                outcome, error = _result(future)
                if outcome is not None:
                    yield outcome
                    continue
                _check_alive(client)
                if _worker_was_lost(error) and attempt < ATTEMPTS:
                    send(task, attempt + 1)
                else:
                    yield lost(task, f"the cell did not come back from the cluster: {error!r}")
    finally:
        if client.status == "running":
            client.cancel(list(out))


class _Workers:
    """How many cells may be out, given the workers that are there."""

    def __init__(self, client, revive):
        self.client, self.revive = client, revive
        self.threads, self.looked, self.seen = 0, -math.inf, time.monotonic()

    def slots(self):
        now = time.monotonic()
        if now - self.looked >= _SECONDS_BETWEEN_LOOKS:
            _check_alive(self.client)
            self.looked, self.threads = now, sum(self.client.nthreads().values())
            self.revive()
        if self.threads:
            self.seen = now
        elif now - self.seen > _SECONDS_WITHOUT_WORKERS:
            raise WorkersLost(
                f"the cluster has had no workers for {_SECONDS_WITHOUT_WORKERS} seconds. Finished cells are"
                " stored: start workers, and repeat the command to continue"
            )
        return max(1, _AHEAD * self.threads)


def _ended(futures):
    """The futures that have ended, after a short wait for the first."""
    from distributed import wait

    with suppress(TimeoutError, CancelledError):
        wait(futures, timeout=_SECONDS_BETWEEN_LOOKS, return_when="FIRST_COMPLETED")
    return [future for future in futures if future.done()]


def _result(future):
    """The outcome, or the exception of the cluster. Exceptions of the cell are in the outcome."""
    try:
        return future.result(), None
    except (Exception, CancelledError) as error:
        return None, error


def _worker_was_lost(error):
    from distributed import KilledWorker
    from distributed.comm import CommClosedError

    return isinstance(error, (KilledWorker, CancelledError, CommClosedError, TimeoutError))


def _check_alive(client):
    if client.status != "running":
        raise WorkersLost(
            "the Dask scheduler is gone. Finished cells are stored:"
            " start a scheduler, and repeat the command to continue"
        )


def _ignore_interrupts():
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _connected(n_jobs, scheduler):
    try:
        from distributed import Client, LocalCluster
    except ImportError:
        raise BadInput("the backend dask needs Dask: pip install 'trimreg[cluster]'") from None
    if scheduler is None:
        from joblib import effective_n_jobs

        count = effective_n_jobs(n_jobs)
        # No logs about lost workers: they are handled here. Any free port: None would still take 8787.
        quiet = {"threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": logging.CRITICAL}
        with LocalCluster(n_workers=count, **quiet) as cluster, Client(cluster) as client:
            client.run(_ignore_interrupts)  # Ctrl-C goes to this process, which then ends the workers
            # Dask does not replace a worker that dies while it starts; scale does.
            yield client, lambda: cluster.scale(count)
        return
    try:
        # Not the default: a client that fails to connect would stay the default of this process.
        client = Client(scheduler, timeout=_SECONDS_TO_CONNECT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise BadInput(
            f"no Dask scheduler answers at {scheduler} ({error});"
            " start one with 'dask scheduler', or leave the address out"
        ) from None
    with client, client.as_current():
        try:
            client.wait_for_workers(1, timeout=_SECONDS_FOR_WORKERS)
        except TimeoutError:
            raise BadInput(
                f"the scheduler at {scheduler} has no workers; start some with 'dask worker {scheduler}'"
            ) from None
        yield client, lambda: None
