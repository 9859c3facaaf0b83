"""Runs the cells of experiments in many processes, here or on a cluster; only this process writes results.

Several runs may share a store: each cell is run by one of them, and the cells of a run that died by another.
Cells with results are skipped, so the same command resumes a run that ended in any way. Cells that failed, or
that lacked a peer which was not installed, are tried again. A row depends on its cell alone, and not on the
order of cells or on the machine.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import NamedTuple

from trimreg.selection.progress import progress

from .claims import Claims
from .cluster import outcomes_of_cluster
from .registry import expand_names, get_experiment
from .spec import SIZES, BadInput, Cell, Experiment, Together
from .store import Store
from .worker import Outcome, encode_parameters, lost, perform_together

BACKENDS = ("joblib", "dask")
_USELESS_EXECUTORS = 2
_pause = time.sleep
_SECONDS_BETWEEN_LOOKS = 1.0  # at cells that another run works on


@dataclass(frozen=True)
class Summary:
    """Cells done and failed in a run, cells skipped because they had results, and seconds."""

    done: int
    failed: int
    skipped: int
    seconds: float


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in a run. Finished cells are in the store; ``summary`` counts them."""

    def __init__(self, summary: Summary):
        super().__init__(f"{summary.done + summary.skipped} cells are done and stored")
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
    verbose: int = 0,
) -> Summary:
    """Run the cells of experiments that have no results yet, and store their rows.

    Parameters
    ----------
    experiments : list of Experiment or of names
        The name "all" stands for all of them.
    size : {"quick", "full"}
    store : Store
    backend : {"joblib", "dask"}
    n_jobs : int
        Processes on this machine, as joblib counts them: -1 is one per core.
    scheduler : str, optional
        The address of a Dask scheduler, such as ``tcp://10.0.0.1:8786``. By default Dask's workers are
        processes of this machine. Use workers with one thread: ``dask worker ADDRESS --nthreads 1``.
    device : str, optional
        A device of PyTorch, such as "cuda", on which some experiments can run their cells in batches; with
        the backend joblib only.
    on_progress : function of two counts, optional
        Called at the start and after each cell, with the number of cells that ended and that of all cells.
    verbose : int
        1 shows a bar with the remaining time on a terminal, and lines elsewhere.

    Returns
    -------
    Summary

    Raises
    ------
    Interrupted
        A KeyboardInterrupt that counts the finished cells.
    BadInput
        If an argument cannot be used.
    WorkersLost
        A BadInput: the scheduler or all workers of a cluster have ended.

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
    resolved = _resolve(experiments)
    claims = Claims(store, [experiment.name for experiment in resolved])
    for experiment in resolved:
        if device is not None and experiment.together is not None:
            together[experiment.name] = replace(
                experiment.together, run=partial(experiment.together.run, device=device)
            )
        pending, ready = plan(experiment, size, store)
        tasks += pending
        skipped += ready
    done = failed = 0
    report = on_progress or (lambda ended, total: None)
    report(0, len(tasks))
    try:
        with claims, progress(len(tasks), "cells", verbose) as advance:
            left = tasks
            while left:
                outcomes = _outcomes(claims.taken(left), backend, n_jobs, scheduler, together)
                with closing(outcomes):
                    for outcome in outcomes:
                        store.record(outcome)
                        done += outcome.error is None
                        failed += outcome.error is not None
                        advance()
                        report(done + failed, len(tasks))
                left = claims.open(left)
                if left:  # another run works on them, or dies
                    _pause(_SECONDS_BETWEEN_LOOKS)
            skipped += len(tasks) - done - failed
    except KeyboardInterrupt:
        raise Interrupted(Summary(done, failed, skipped, time.perf_counter() - start)) from None
    return Summary(done, failed, skipped, time.perf_counter() - start)


def plan(experiment: Experiment, size: str, store: Store) -> tuple[list[Task], int]:
    """The remaining tasks of an experiment, and the number of cells to skip; the store records the plan.

    Tasks are in the order of their seeds, which is as good as random: slow cells are spread over the run, so
    the remaining time can be estimated, and an interrupted run leaves a fair sample.
    """
    cells = list(experiment.cells(size))
    names = [cell.name for cell in cells]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{experiment.name} has two cells with the name {twice}")
    for cell in cells:
        encode_parameters(cell)  # fails here rather than in a worker
    store.plan(experiment.name, size, names)
    ready = store.done(experiment.name) - store.without_peer(experiment.name)  # it may be installed by now
    pending = sorted((cell for cell in cells if cell.name not in ready), key=Cell.seed)
    tasks = [Task(experiment.name, experiment.run, cell) for cell in pending]
    return tasks, len(cells) - len(pending)


def _check(size, backend, scheduler, device):
    if size not in SIZES:
        raise BadInput(f"size must be one of {SIZES}; got {size!r}")
    if backend not in BACKENDS:
        raise BadInput(f"backend must be one of {BACKENDS}; got {backend!r}")
    if scheduler is not None and backend != "dask":
        raise BadInput("scheduler needs backend='dask'; use that backend or leave the scheduler out")
    if device is not None and backend != "joblib":
        raise BadInput("device needs backend='joblib', whose processes are on this machine; use that backend")


def _resolve(experiments):
    """The experiments; some may be given by name."""
    found: dict[str, Experiment] = {}
    for one in [experiments] if isinstance(experiments, (str, Experiment)) else experiments:
        if isinstance(one, Experiment):
            found[one.name] = one
        else:
            found.update((name, get_experiment(name)) for name in expand_names([one]))
    return list(found.values())


def in_groups(tasks: Iterable[Task], together: dict[str, Together]) -> Iterator[tuple]:
    """Pairs ``(tasks, function)``: batches with the function of their cells, or one task and None.

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
        if rule is None or key is None:
            yield [task], None
            continue
        group = waiting.setdefault((task.experiment, key), [])
        group.append(task)
        if len(group) == rule.size:
            yield waiting.pop((task.experiment, key)), rule.run
    for (name, _), group in waiting.items():
        yield group, together[name].run


def _outcomes(tasks, backend, n_jobs, scheduler, together) -> Generator[Outcome, None, None]:
    """The outcomes of the tasks, as they end, in any order."""
    if backend == "dask":
        yield from outcomes_of_cluster(tasks, n_jobs, scheduler)
    else:
        yield from _by_joblib(tasks, n_jobs, together)


def _by_joblib(tasks, n_jobs, together):
    """The outcomes by processes of this machine.

    A process that dies takes the others with it, and which cell killed it is not known. So new processes run
    the remaining cells in another order. After several attempts without progress, each remaining cell gets
    processes of its own, and has failed if these die.
    """
    from joblib import effective_n_jobs

    n_jobs = effective_n_jobs(n_jobs)
    if n_jobs == 1:
        yield from _in_turn(in_groups(tasks, together))
        return
    left: dict[tuple[str, str], Task] = {}

    def sent():
        for task in tasks:
            left[task.experiment, task.cell.name] = task
            yield task

    new, again = sent(), []
    order = random.Random(0)
    useless = 0
    while useless < _USELESS_EXECUTORS:
        useless += 1
        try:
            for outcome in _by_processes(in_groups(chain(again, new), together), n_jobs):
                del left[outcome.experiment, outcome.cell]
                useless = 0
                yield outcome
            return
        except BrokenProcessPool:
            again = order.sample(list(left.values()), len(left))
    for task in chain(again, new):
        try:
            yield from _by_processes([([task], None)], n_jobs)
        except BrokenProcessPool as error:
            yield lost(task, f"the process that ran the cell died, perhaps for lack of memory: {error}")


def _in_turn(groups):
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1):  # restores the number of threads at the end
        for group in groups:
            yield from perform_together(*group)


def _by_processes(groups, n_jobs):
    """The outcomes of groups of tasks, each as soon as it is there; few groups are out at a time."""
    from joblib.externals.loky import ProcessPoolExecutor

    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    # Not the reusable one: joblib would find it later, and it is of another class than its own.
    executor = ProcessPoolExecutor(n_jobs, initializer=_die_with, initargs=(os.getpid(),), env=threads)
    groups, out = iter(groups), set()
    try:
        while True:
            out |= {executor.submit(perform_together, *one) for one in islice(groups, 2 * n_jobs - len(out))}
            if not out:
                return
            ended, out = wait(out, return_when=FIRST_COMPLETED)
            for future in sorted(ended, key=lambda one: one.exception() is not None):
                yield from future.result()
    finally:
        executor.shutdown(kill_workers=bool(out))


def _die_with(parent):
    """End this worker soon after its parent was killed; otherwise it would stay for minutes."""

    def watch():
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
