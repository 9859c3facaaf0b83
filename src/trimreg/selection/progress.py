"""Work that takes a while: done in parallel, and seen to be done."""

from __future__ import annotations

import sys
import time
from contextlib import closing, contextmanager

from sklearn.utils.parallel import Parallel, delayed

from ..estimators import validation as check
from ..solvers import many_fits


@contextmanager
def progress(total, label, verbose=1, every_seconds=None):
    """A function ``advance(count=1)`` to call as work gets done, of ``total`` pieces.

    Parameters
    ----------
    total : int
    label : str
        What is being done.
    verbose : int or bool
        0 shows nothing. 1 shows, on standard error, a bar on a terminal, and elsewhere a line for every
        tenth of the work. 2 and more shows a line for every piece where there is no terminal.
    every_seconds : float, optional
        For long work: where there is no terminal and ``verbose`` is 1, the lines are so many seconds apart
        and say how long the rest may take.

    Examples
    --------
    >>> from trimreg.selection.progress import progress
    >>> with progress(3, "folds", verbose=0) as advance:
    ...     for _ in range(3):
    ...         advance()
    """
    verbose = int(verbose) if isinstance(verbose, bool) else check.check_number("verbose", verbose, 0)
    if not verbose or not total:
        yield _nothing
        return

    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        if every_seconds is not None and verbose == 1:
            yield _timed_lines(total, label, every_seconds)
        else:
            yield _lines(total, label, every=1 if verbose > 1 else max(1, -(-total // 10)))
        return

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(24),
        MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda count=1: bar.advance(task, count)


def _nothing(count=1):
    pass


def _lines(total, label, every):
    """An ``advance`` that prints a line whenever another ``every`` pieces are done, and at the end."""
    done = 0

    def advance(count=1):
        nonlocal done
        before, done = done, done + count
        if done // every > before // every or before < total <= done:
            print(f"{label}: {done}/{total}", file=sys.stderr, flush=True)

    return advance


def _timed_lines(total, label, every_seconds, clock=time.monotonic):
    """An ``advance`` that prints a line when so many seconds have passed since the last, and at the end."""
    start = last = clock()
    done = 0

    def advance(count=1):
        nonlocal done, last
        before, done = done, done + count
        now = clock()
        if before < total <= done:
            print(f"{label}: {done}/{total}, took {duration(now - start)}", file=sys.stderr, flush=True)
        elif done < total and now - last >= every_seconds:
            last = now
            left = duration((now - start) * (total - done) / done)
            print(f"{label}: {done}/{total}, about {left} left", file=sys.stderr, flush=True)

    return advance


def duration(seconds: float) -> str:
    """A time to read.

    Examples
    --------
    >>> from trimreg.selection.progress import duration
    >>> duration(7.4), duration(200), duration(8000)
    ('7 s', '3 min 20 s', '2 h 13 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    if minutes == 0:
        return f"{rest} s"
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def parallel(function, tasks, *, n_jobs=None, label="", verbose=0, shared=False):
    """``[function(*task) for task in tasks]``, by joblib, with a progress bar.

    The results are in the order of the tasks whatever ``n_jobs`` is, so what is computed from them does not
    depend on it. Any backend of joblib's will do: ``with joblib.parallel_config("dask"): ...``. With
    ``shared`` it is threads, for tasks that cannot leave this process.

    An interrupt ends all of them: tasks that have not begun do not, and the ``KeyboardInterrupt`` goes on.

    Examples
    --------
    >>> from trimreg.selection.progress import parallel
    >>> parallel(pow, [(2, 3), (3, 2)])
    [8, 9]
    """
    tasks = list(tasks)
    with progress(len(tasks), label, verbose) as advance:
        results = []
        jobs = Parallel(n_jobs=n_jobs, return_as="generator", require="sharedmem" if shared else None)
        with closing(jobs(delayed(_one_of_many)(function, *task) for task in tasks)) as outcomes:
            for result in outcomes:
                results.append(result)
                advance()
    return results


def _one_of_many(function, *task):
    """``function(*task)``, in the worker: an interrupt is meant for all tasks."""
    with many_fits():
        return function(*task)
