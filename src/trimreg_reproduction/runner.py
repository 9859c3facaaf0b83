"""Cells are run in many processes, on this machine or on a cluster; this process alone writes the store.

Cells that have results are skipped, so the same command goes on where another one ended, however it ended;
cells that failed or had to do without a peer that was not installed are tried again.
Neither the order of cells nor where they run changes a row: a row depends on its cell alone.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from trimreg.reports.demo import BadInput
from trimreg.selection.progress import progress

from .cluster import outcomes_of_cluster
from .outcome import Outcome, encode_parameters, lost, perform_together
from .registry import expand_names, get_experiment
from .spec import SIZES, Cell, Experiment, Together
from .store import Store

BACKENDS = ("joblib", "dask")
_SECONDS_BETWEEN_LINES = 10.0
_POOLS_IN_VAIN = 2


@dataclass(frozen=True)
class Summary:
    """How a run went: cells done and failed in it, cells skipped because they were done, seconds."""

    done: int
    failed: int
    skipped: int
    seconds: float


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in a run. What was done is in the store; ``summary`` says how much that was in this run."""

    def __init__(self, summary: Summary):
        super().__init__(f"{summary.done + summary.skipped} cells are done and kept")
        self.summary = summary


class Task(NamedTuple):
    """A cell to run, the function that runs it, and the name of the experiment."""

    experiment: str
    function: Callable[[Cell], list[dict]]
    cell: Cell


def run(
    experiments: Iterable[Experiment | str],
    size: str,
    store: Store,
    *,
    backend: str = "joblib",
    n_jobs: int | None = -1,
    scheduler: str | None = None,
    device: str | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    retry_failed: bool = True,
    verbose: int = 0,
) -> Summary:
    """Run the cells of experiments that are not done yet, and store what they give.

    Parameters
    ----------
    experiments : list of Experiment or of names
        "all" is the name of all.
    size : {"quick", "full"}
    store : Store
    backend : {"joblib", "dask"}
    n_jobs : int
        Processes on this machine; as joblib counts them, so -1 is one for every core.
    scheduler : str, optional
        Address of a Dask scheduler, such as ``tcp://10.0.0.1:8786``. By default Dask's workers are processes
        of this machine. Workers with one thread each are best: ``dask worker ADDRESS --nthreads 1``.
    device : str, optional
        A device of PyTorch, such as "cuda": experiments that can do so run their cells there in batches. Only
        with the backend joblib.
    on_progress : function of two counts, optional
        Called with the cells ended so far in this run and the cells that it has, at the start and after
        each.
    retry_failed : bool
        Whether cells that failed in an earlier run are run again.
    verbose : int
        1 shows a bar with the time left on a terminal, and lines elsewhere.

    Returns
    -------
    Summary

    Raises
    ------
    Interrupted
        A KeyboardInterrupt that knows what was done.
    BadInput
        If an argument is of no use.
    WorkersLost
        A BadInput: if the scheduler or all workers of a cluster are gone.

    Examples
    --------
    >>> import tempfile
    >>> from trimreg_reproduction.runner import run
    >>> from trimreg_reproduction.spec import Cell, Experiment
    >>> from trimreg_reproduction.store import Store
    >>> toy = Experiment(
    ...     "toy", "A toy", "Halves are less.", cells=lambda size: [Cell.of("toy", n=n) for n in range(3)],
    ...     run=lambda cell: [{"half": cell["n"] / 2}], charts=None, figure=None, judge=None)
    >>> with tempfile.TemporaryDirectory() as folder, Store(f"{folder}/results.sqlite") as store:
    ...     first, second = run([toy], "quick", store, n_jobs=1), run([toy], "quick", store, n_jobs=1)
    ...     store.frame("toy")["half"].tolist()
    [0.0, 0.5, 1.0]
    >>> first.done, first.skipped, second.done, second.skipped
    (3, 0, 0, 3)
    """
    _check(size, backend, scheduler, device)
    start = time.perf_counter()
    tasks, skipped, together = [], 0, {}
    for experiment in _resolve(experiments):
        if device is not None and experiment.together is not None:
            together[experiment.name] = replace(
                experiment.together, run=partial(experiment.together.run, device=device)
            )
        pending, ready = plan(experiment, size, store, retry_failed)
        tasks += pending
        skipped += ready
    done = failed = 0
    report = on_progress or (lambda ended, total: None)
    report(0, len(tasks))
    try:
        with (
            progress(len(tasks), "cells", verbose, every_seconds=_SECONDS_BETWEEN_LINES) as advance,
            closing(_outcomes(tasks, backend, n_jobs, scheduler, together)) as outcomes,
        ):
            for outcome in outcomes:
                store.record(outcome)
                done += outcome.error is None
                failed += outcome.error is not None
                advance()
                report(done + failed, len(tasks))
    except KeyboardInterrupt:
        raise Interrupted(Summary(done, failed, skipped, time.perf_counter() - start)) from None
    return Summary(done, failed, skipped, time.perf_counter() - start)


def plan(experiment: Experiment, size: str, store: Store, retry_failed=True) -> tuple[list[Task], int]:
    """The tasks that are left of an experiment, and how many cells need not be run; the store notes the plan.

    Tasks are in the order of their seeds, which is as good as random: cells that take long are spread over
    the run, so the time left can be told, and what an interrupted run leaves is a fair sample.
    """
    cells = list(experiment.cells(size))
    names = [cell.name for cell in cells]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{experiment.name} has two cells of one name: {twice}")
    for cell in cells:
        encode_parameters(cell)  # fails here rather than in a worker
    store.plan(experiment.name, size, names)
    ready = store.done(experiment.name) - store.without_peer(experiment.name)  # it may be installed by now
    if not retry_failed:
        ready |= store.failed(experiment.name).keys()
    pending = sorted((cell for cell in cells if cell.name not in ready), key=Cell.seed)
    tasks = [Task(experiment.name, experiment.run, cell) for cell in pending]
    return tasks, len(cells) - len(pending)


def _check(size, backend, scheduler, device):
    if size not in SIZES:
        raise BadInput(f"size must be one of {SIZES}; got {size!r}")
    if backend not in BACKENDS:
        raise BadInput(f"backend must be one of {BACKENDS}; got {backend!r}")
    if scheduler is not None and backend != "dask":
        raise BadInput("a scheduler is Dask's; ask for the backend dask, or leave the scheduler out")
    if device is not None and backend != "joblib":
        raise BadInput("a device is used by processes of this machine; ask for the backend joblib")


def _resolve(experiments):
    """Experiments, of which some may be given by name."""
    found: dict[str, Experiment] = {}
    for entry in [experiments] if isinstance(experiments, (str, Experiment)) else experiments:
        if isinstance(entry, Experiment):
            found[entry.name] = entry
        else:
            found.update((name, get_experiment(name)) for name in expand_names([entry]))
    return list(found.values())


def in_groups(tasks: list[Task], together: dict[str, Together]) -> Iterator[tuple]:
    """``(tasks, function)`` to be run as one: those that can be by a function of their cells, else alone.

    Examples
    --------
    >>> from trimreg_reproduction.runner import Task, in_groups
    >>> from trimreg_reproduction.spec import Cell, Together
    >>> tasks = [Task("toy", None, Cell.of("toy", n=n)) for n in range(5)]
    >>> pairs = Together(key=lambda cell: "even" if cell["n"] % 2 == 0 else None, run=len, size=2)
    >>> [[task.cell["n"] for task in group] for group, _ in in_groups(tasks, {"toy": pairs})]
    [[1], [0, 2], [3], [4]]
    """
    waiting: dict[tuple, list[Task]] = {}
    for task in tasks:
        rule = together.get(task.experiment)
        key = None if rule is None else rule.key(task.cell)
        if key is None:
            yield [task], None
            continue
        group = waiting.setdefault((task.experiment, key), [])
        group.append(task)
        if len(group) == rule.size:
            yield waiting.pop((task.experiment, key)), rule.run
    for (name, _), group in waiting.items():
        yield group, together[name].run


def _outcomes(tasks, backend, n_jobs, scheduler, together) -> Iterator[Outcome]:
    """What becomes of the tasks, as they end, in any order."""
    if not tasks:
        return
    if backend == "dask":
        yield from outcomes_of_cluster(tasks, n_jobs, scheduler)
    else:
        yield from _by_joblib(tasks, n_jobs, together)


def _by_joblib(tasks, n_jobs, together):
    """By processes of this machine. A process that dies takes its pool with it, so there is a new pool for
    the cells that are left, in another order: which of them ended the process is not known. When several
    pools got nothing done, each cell that is left has a pool to itself, and those that end it have failed.

    joblib itself sends short cells in batches, of a fraction of a second to two.
    """
    from joblib import effective_n_jobs

    n_jobs = effective_n_jobs(n_jobs)
    if n_jobs == 1:
        yield from _in_turn(in_groups(tasks, together))
        return
    left = {(task.experiment, task.cell.name): task for task in tasks}
    order = random.Random(0)
    pools_in_vain = 0
    while left and pools_in_vain < _POOLS_IN_VAIN:
        before = len(left)
        try:
            for outcome in _by_one_pool(in_groups(list(left.values()), together), n_jobs):
                del left[outcome.experiment, outcome.cell]
                yield outcome
        except BrokenProcessPool:
            pools_in_vain = pools_in_vain + 1 if len(left) == before else 0
            left = dict(order.sample(list(left.items()), len(left)))
    for task in left.values():
        try:
            yield from _by_one_pool([([task], None)], n_jobs)
        except BrokenProcessPool as error:
            yield lost(task, f"the process that ran the cell died, perhaps for want of memory: {error}")


def _in_turn(groups):
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):  # restores the number of threads at the end
        for group in groups:
            yield from perform_together(*group)


def _by_one_pool(groups, n_jobs):
    from joblib import Parallel, delayed, parallel_config

    with parallel_config("loky", inner_max_num_threads=1, initializer=_die_with, initargs=(os.getpid(),)):
        pool = Parallel(n_jobs=n_jobs, return_as="generator_unordered", pre_dispatch="3*n_jobs")
        outcomes = pool(delayed(perform_together)(*group) for group in groups)
    with closing(outcomes):
        for together in outcomes:
            yield from together


def _die_with(parent):
    """End this worker when its parent is gone, killed perhaps; else it would be about for minutes."""

    def watch():
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
