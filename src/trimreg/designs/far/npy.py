"""Matrices in files of plain numbers: ``.npy`` files, and the files behind a :class:`numpy.memmap`.

A memory map would be simpler, but the pages that it has read count as memory of the process until the system
needs them elsewhere. So the numbers are read into two small buffers, in turn.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np


def imported(package: str, what: str) -> Any:
    """A package of the extra ``disk``, or an error that says how to install it."""
    try:
        return import_module(package)
    except ImportError as missing:
        raise ImportError(f"{what} need {package}: pip install 'trimreg[disk]'") from missing


def storage_dtype(dtype, name: str) -> np.dtype:
    """float32 for float32 numbers, float64 for other real numbers."""
    dtype = np.dtype(dtype)
    if dtype.kind not in "fiub":
        raise TypeError(f"{name} has dtype {dtype}; X must hold real numbers")
    return np.dtype(np.float32) if dtype.kind == "f" and dtype.itemsize == 4 else np.dtype(float)


def check_shape(shape, name: str) -> None:
    """Refuse arrays that are not matrices, and empty ones."""
    if len(shape) != 2:
        raise ValueError(f"{name} has {len(shape)} dimensions; X must have 2, samples by features")
    if 0 in shape:
        raise ValueError(f"{name} has shape {tuple(shape)}; X must have at least one row and one column")


def stamp(path) -> tuple:
    """Size, time of the last write and inode of a file: they show whether it was changed or replaced."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file (any more)") from None
    return found.st_size, found.st_mtime_ns, found.st_ino


def check_unchanged(path, before: tuple, now: tuple | None = None) -> None:
    """Refuse a file that has changed since the matrix was opened. Stamps begin with the size."""
    now = stamp(path) if now is None else now
    if now != before:
        how = f"it had {before[0]} bytes, now {now[0]}" if now[0] != before[0] else "it was written to"
        raise ValueError(f"{path} has changed since it was opened ({how}); create a new OnDisk")


def npy_file(path: str, block_bytes: int) -> NumberFile:
    """The reader of a ``.npy`` file; truncated files are refused."""
    before = stamp(path)
    try:
        X = np.load(path, mmap_mode="r")
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as .npy: {error}") from error
    return replace(mapped_file(X, block_bytes), before=before)


def mapped_file(X: np.ndarray, block_bytes: int) -> NumberFile:
    """The reader of the part of a file that a :class:`numpy.memmap`, or a view of one, shows.

    The ``offset`` of a view is that of the whole map, so the position is computed from addresses.
    """
    root: Any = X
    while getattr(root, "_mmap", None) is None:
        root = getattr(root, "base", None)
        if root is None:
            raise TypeError("X is an array in memory, not a view of a numpy.memmap; pass it to fit directly")
    if root.filename is None:
        raise ValueError("X is a numpy.memmap without a file name; OnDisk reads files by their path")
    path = os.path.abspath(root.filename)
    if root.mode == "c":
        raise ValueError(f"X maps {path} in mode 'c', so changes to X are not in the file; save X first")
    storage_dtype(X.dtype, path)
    check_shape(X.shape, path)
    if root.mode != "r":
        root.flush()
    start = np.frombuffer(root._mmap, dtype=np.uint8).__array_interface__["data"][0]
    mapped_from = root.offset - root.offset % mmap.ALLOCATIONGRANULARITY
    offset = mapped_from + X.__array_interface__["data"][0] - start
    (n, p), item = X.shape, X.dtype.itemsize
    strides = X.strides[0], X.strides[1]
    # The stride of a single row or column is arbitrary.
    if p == 1 or strides[1] == item:
        strides = (strides[0] if n > 1 else p * item, item)
    elif n == 1 or strides[0] == item:
        strides = (item, strides[1])
    if strides[0] < item or strides[1] < item or item not in strides:
        raise ValueError(
            f"X is a view of {path} that skips both rows and columns, or runs backwards; it cannot be read "
            "by rows. Pass the whole map, or save this part as .npy"
        )
    return NumberFile(path, offset, (n, p), strides, X.dtype, block_bytes, None)


@dataclass(frozen=True)
class NumberFile:
    """A matrix in a file: entry (i, j) is at byte ``offset + i strides[0] + j strides[1]``.

    One of the strides is the size of a number. A file is opened for a pass and closed at its end, so the
    object can be pickled.
    """

    path: str
    offset: int
    shape: tuple[int, int]
    strides: tuple[int, int]
    stored: np.dtype
    block_bytes: int
    before: tuple | None = None  # the stamp; None for maps, whose pages are written back at any time
    names: tuple[str, ...] | None = None
    advice = ""

    @property
    def dtype(self) -> np.dtype:
        return storage_dtype(self.stored, self.path)

    @property
    def by_columns(self) -> bool:
        return self.strides[1] != self.stored.itemsize

    def step(self, p: int) -> int:
        """Number of rows in a block of p columns."""
        row = p * self.stored.itemsize if self.by_columns else self.strides[0]
        return min(self.shape[0], max(1, self.block_bytes // max(row, p * self.dtype.itemsize)))

    @property
    def live_bytes(self) -> int:
        row = self.shape[1] * self.stored.itemsize if self.by_columns else self.strides[0]
        converted = 0 if self.stored == self.dtype else self.shape[1] * self.dtype.itemsize
        return 2 * self.step(self.shape[1]) * (row + converted)

    def share(self, columns: Any) -> float:
        """The fraction of the file that is read for these columns: all of a file in row order."""
        return len(columns) / self.shape[1] if self.by_columns else 1

    def check(self) -> None:
        """Refuse a file that is missing, changed or too short."""
        if self.before is not None:
            check_unchanged(self.path, self.before)
        n, p = self.shape
        needed = self.offset + (n - 1) * self.strides[0] + (p - 1) * self.strides[1] + self.stored.itemsize
        size = stamp(self.path)[0]
        if size < needed:
            raise ValueError(
                f"{self.path} has become too short: {needed} bytes were mapped, but the file has {size}"
            )

    def blocks(self, columns: Any = None) -> Iterator[np.ndarray]:
        """Yield the blocks of rows in order, of all or some columns, in two alternating buffers."""
        self.check()
        read = self._read_columns if self.by_columns else self._read_rows
        every = np.arange(self.shape[1]) if columns is None else columns
        step = self.step(len(every))
        with open(self.path, "rb", buffering=0) as file:
            if not self.by_columns and hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
            size = step * len(every) * self.stored.itemsize
            if not self.by_columns:
                size = (step - 1) * self.strides[0] + self.shape[1] * self.stored.itemsize
            buffers = [np.empty(size, dtype=np.uint8) for _ in range(2)]
            for turn, start in enumerate(range(0, self.shape[0], step)):
                rows = min(step, self.shape[0] - start)
                block = read(file, buffers[turn % 2], start, rows, every)
                if columns is not None and not self.by_columns:
                    block = np.take(block, columns, axis=1)
                yield block.astype(self.dtype, copy=False)

    def _read_rows(self, file, buffer, start, rows, _):
        p, item = self.shape[1], self.stored.itemsize
        self._fill(file, buffer[: (rows - 1) * self.strides[0] + p * item], start * self.strides[0])
        return np.ndarray((rows, p), self.stored, buffer=buffer, strides=self.strides)

    def _read_columns(self, file, buffer, start, rows, columns):
        item = self.stored.itemsize
        block = buffer[: len(columns) * rows * item].view(self.stored).reshape(len(columns), rows)
        for part, column in zip(block, columns, strict=True):
            self._fill(file, part.view(np.uint8), start * item + int(column) * self.strides[1])
        return block.T

    def _fill(self, file, buffer, position):
        """Read until the buffer is full: a single read may return less."""
        file.seek(self.offset + position)
        view, done = memoryview(buffer), 0
        while done < len(view):
            count = file.readinto(view[done:])
            if not count:
                size = os.fstat(file.fileno()).st_size
                raise ValueError(f"{self.path} became shorter while it was read; it now has {size} bytes")
            done += count
