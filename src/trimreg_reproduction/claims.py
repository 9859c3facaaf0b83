"""Which run works on which cell, when several share a store."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from .store import Store

try:
    import fcntl
except ImportError:  # not on Windows, where runs do not see each other
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from .runner import Task


class Claims:
    """The cells that one run has claimed. Other runs leave them alone as long as this one is alive.

    A run is alive while it holds the lock of a file beside the store. The system releases the lock when the
    process ends, also by ``kill -9``.

    Parameters
    ----------
    store : Store
    experiments : list of str
        Cells of these experiments whose results are written from now on are not run again.
    """

    def __init__(self, store: Store, experiments: Iterable[str]):
        self.store = store
        self._before = {name: store.finished(name) for name in experiments}
        self._run = secrets.token_hex(8)

    def __enter__(self) -> Claims:
        path = self._file(self._run)
        while True:
            self._handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
            _lock(self._handle, wait=True)
            if path.exists():
                return self
            os.close(self._handle)  # another run took it for one of a dead run, and removed it

    def __exit__(self, *_: object) -> None:
        for run in self.store.runs():
            if not self._alive(run):  # this one, and those that were killed
                self.store.release(run)
        self._file(self._run).unlink(missing_ok=True)
        os.close(self._handle)

    def taken(self, tasks: Iterable[Task]) -> Iterator[Task]:
        """Claim the tasks one by one, when asked for the next; those that another run has are left out."""
        for task in tasks:
            name, cell = task.experiment, task.cell.name
            if self.store.claim(name, cell, self._before[name].get(cell), self._run, self._alive):
                yield task

    def open(self, tasks: Iterable[Task]) -> list[Task]:
        """Those of the tasks that no run has ended since this one began."""
        now = {name: self.store.finished(name) for name in self._before}
        return [
            task
            for task in tasks
            if now[task.experiment].get(task.cell.name) == self._before[task.experiment].get(task.cell.name)
        ]

    def _alive(self, run: str) -> bool:
        if run == self._run:
            return False  # it may take a cell again that one of its processes lost
        try:
            handle = os.open(self._file(run), os.O_RDWR)
        except OSError:
            return False
        try:
            if not _lock(handle, wait=False):
                return True
            self._file(run).unlink(missing_ok=True)
            return False
        finally:
            os.close(handle)

    def _file(self, run: str) -> Path:
        return self.store.path.with_name(f"{self.store.path.name}-run-{run}")


def _lock(handle: int, wait: bool) -> bool:
    """Lock an open file for this process; False if another one has it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True
