"""Progress of long work: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..estimators import validation as check

_SECONDS_BETWEEN_LINES = 10.0


@contextmanager
def progress(total: int, label: str, verbose: int = 1) -> Iterator[Callable[..., None]]:
    """Give a function ``advance(count=1)`` to call after each of ``total`` pieces of work.

    ``verbose=0`` shows nothing. 1 shows, on standard error, a bar on a terminal, and elsewhere a line with
    the estimated time left every ten seconds, so that short work leaves nothing in a log. 2 or more shows one
    line per piece where there is no terminal.
    """
    verbose = int(verbose) if isinstance(verbose, bool) else check.check_number("verbose", verbose, 0)
    if not verbose or not total:
        yield lambda count=1: None
        return

    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _timed_lines(total, label) if verbose == 1 else _lines(total, label)
        return

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(24), MofNCompleteColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda count=1: bar.advance(task, count)


def _lines(total, label):
    """An ``advance`` that prints a line after every piece."""
    done = 0

    def advance(count=1):
        nonlocal done
        done += count
        _print(f"{label}: {done}/{total}")

    return advance


def _timed_lines(total, label, every_seconds=_SECONDS_BETWEEN_LINES, clock=time.monotonic):
    """An ``advance`` that prints a line at most every ``every_seconds``, and at the end of longer work."""
    start = last = clock()
    done = 0

    def advance(count=1):
        nonlocal done, last
        before, done = done, done + count
        now = clock()
        if before < total <= done:
            if last > start or now - start >= every_seconds:
                _print(f"{label}: {done}/{total}, took {duration(now - start)}")
        elif done < total and now - last >= every_seconds:
            last, left = now, (now - start) * (total - done) / done
            _print(f"{label}: {done}/{total}, about {duration(left)} left")

    return advance


def _print(line):
    print(line, file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """A time in words, such as "3 min 20 s"."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
