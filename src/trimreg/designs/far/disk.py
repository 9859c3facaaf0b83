"""Matrices on disk: read by blocks of rows, one block ahead of the arithmetic, never copied whole."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np

from .npy import mapped_file, npy_file
from .parquet import parquet_file, parts_of
from .rows import FarRows
from .zarr import is_zarr, zarr_array

BLOCK_BYTES = 16 << 20
VECTORS = 10  # float64 vectors of length n that every fit needs


class OnDisk(FarRows):
    """A matrix on disk, for use as the ``X`` of an estimator.

    Every pass reads the file from beginning to end in blocks of rows; a thread reads one block ahead. No file
    is open between passes, so the object can be copied, pickled and sent to other processes of the machine.

    Parameters
    ----------
    source : path, numpy.memmap or zarr.Array
        A ``.npy`` file (either order), a Zarr array or a group with one matrix, a Parquet file or a folder of
        Parquet files, a memory map or a view of one. float32 stays float32; other real numbers are converted
        to float64 block by block.
    memory : int, default=512_000_000
        Bytes that a fit may use for its vectors of length n, for the blocks being read, and for columns that
        are kept so as not to be read again. The number of vectors depends on the loss (its attribute
        ``working_vectors``). If they do not fit, the fit stops before it reads the file, and the error says
        how much memory is enough. More memory saves passes. Not counted are ``y`` and the sample weights,
        Python and its libraries (about 300 MB), and about 30 MB of workspace. A search also needs up to 4
        vectors, one per fold, and the columns of a second design. Each process of ``n_jobs`` needs all of
        this again.
    columns : sequence of str or int, optional
        The columns of a Parquet source that make up X; by default all except the index of a pandas frame.

    Attributes
    ----------
    shape, dtype, nbytes
    passes : int or float
        Number of passes over the file so far. If only some columns were read, they count as a fraction.
    memory : int
        The part of ``memory`` that is left for columns.
    feature_names : list of str or None
        The names of Parquet columns.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from trimreg.designs.far.disk import OnDisk
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "X.npy")
    >>> np.save(path, np.arange(6.0).reshape(3, 2))
    >>> X = OnDisk(path)
    >>> X
    <array on disk 3 x 2 float64 (X.npy)>
    >>> X.product(np.array([1.0, -1.0]), 1.0), X.passes
    (array([0., 0., 0.]), 1)
    >>> folder.cleanup()
    """

    kind = "array on disk"
    #: A file is read at gigabytes per second, and a core does tens of billions of multiplications per second:
    #: the Gram matrix of p columns takes as long as p / 36 passes, and saves about six.
    widest_gram = 200

    def __init__(self, source: Any, memory: int = 512_000_000, columns: Any = None):
        if isinstance(memory, bool) or not isinstance(memory, Integral) or memory <= 0:
            raise ValueError(f"memory={memory!r} must be a positive integer, a number of bytes")
        store = _store_of(source, columns, _block_bytes(memory))
        self._store: Any = store
        self._columns: np.ndarray | None = None
        self._tally: dict[str, float] = {"passes": 0}
        self._budget: int = int(memory)
        self.memory = _left_for_columns(store, self._budget, VECTORS)
        self.shape, self.dtype = store.shape, store.dtype
        self.feature_names = None if store.names is None else list(store.names)

    @property
    def passes(self) -> float:  # type: ignore[override]
        return self._tally["passes"]

    def __len__(self):
        return self.shape[0]

    def __array__(self, dtype=None, copy=None):
        raise TypeError(
            f"{self.describe()} is not loaded into memory; pass it to an estimator of trimreg as X, and use "
            "TrimmedLassoCV and its relatives, not GridSearchCV, for model selection"
        )

    def describe(self) -> str:
        return f"{super().describe()} ({os.path.basename(self._store.path)})"

    def with_room_for(self, loss: Any) -> OnDisk:
        """The same matrix, with memory set aside for the vectors of a fit; an error if they do not fit.

        ``loss`` is bound to its target, so that its number of outputs is known.
        """
        count, whose = max(VECTORS, loss.working_vectors), f" of a fit with loss {loss.name!r}"
        left = _left_for_columns(self._store, self._budget, count, whose)
        other = copy.copy(self)  # it shares the count of passes
        other.memory = min(self.memory, left // 2 if loss.copies_columns else left)
        return other

    def sweep(self, kernel: Callable, vectors: Sequence = (), arguments: Sequence = ()) -> Iterator[Any]:
        start = 0
        for block in self._blocks(self._columns):
            rows = slice(start, start + len(block))
            yield kernel(block, *(vector[rows] for vector in vectors), *arguments)
            start = rows.stop

    def read_columns(self, W: np.ndarray, out: Any) -> None:
        W, start = self._positions(W), 0
        for block in self._blocks(W) if W.size else ():
            for column, values in zip(out, block.T, strict=True):
                column[start : start + len(block)] = values
            start += len(block)

    def _far_columns(self, W):
        W = self._positions(W)
        far = copy.copy(self)  # it shares the count of passes
        far._columns = W
        far.shape = (self.shape[0], W.size)
        far.feature_names = None if self.feature_names is None else [self._store.names[j] for j in W]
        return far

    def _positions(self, W):
        """The positions of the columns W in the file."""
        every = np.arange(self.shape[1]) if self._columns is None else self._columns
        return every[np.asarray(W, dtype=np.intp)]

    def _blocks(self, columns):
        """The blocks of a pass; a thread reads the next block while the caller works on this one."""
        blocks = self._store.blocks(columns)
        with ThreadPoolExecutor(1, thread_name_prefix="trimreg-read") as ahead:
            following = ahead.submit(next, blocks, None)
            try:
                following.result()  # an unreadable file does not count as a pass
                self._tally["passes"] += 1 if columns is None else self._store.share(columns)
                while (block := following.result()) is not None:
                    following = ahead.submit(next, blocks, None)
                    yield block
            finally:
                wait([following])  # a read may be in progress
                blocks.close()  # closes the file


def _left_for_columns(store, memory, count, whose=""):
    """Bytes that ``count`` vectors and the blocks leave for columns; an error if they do not fit."""
    vectors = 8 * count * store.shape[0]
    needed = vectors + store.live_bytes
    if needed > memory:
        enough = needed
        while (more := vectors + replace(store, block_bytes=_block_bytes(enough)).live_bytes) > enough:
            enough = more
        raise ValueError(
            f"memory={memory} bytes is too little for {store.path}: {count} vectors of length "
            f"{store.shape[0]}{whose} take {vectors}, reading takes {store.live_bytes}; "
            f"pass memory={enough} or more{store.advice}"
        )
    return memory - needed


def _block_bytes(memory):
    return min(BLOCK_BYTES, max(1, memory // 16))


def _store_of(source, columns, block_bytes):
    """The reader for a source, chosen by its content and not by its name."""
    read, source = _reader_of(source)
    if read is parquet_file:
        return parquet_file(source, columns, block_bytes)
    if columns is not None:
        what = source if isinstance(source, str) else f"a {type(source).__name__}"
        raise ValueError(f"columns is for Parquet only; {what} has no column names")
    return read(source, block_bytes)


def _reader_of(source):
    """The function that opens a source, and its argument."""
    if isinstance(source, np.ndarray):
        return mapped_file, source
    if type(source).__module__.partition(".")[0] == "zarr":
        return zarr_array, source
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(f"source must be a path, a numpy.memmap or a zarr.Array, not {type(source).__name__}")
    path = os.path.abspath(os.fspath(source))
    if os.path.isdir(path):
        if is_zarr(path):
            return zarr_array, path
        if parts_of(path):
            return parquet_file, path
        raise ValueError(f"{path} is a folder that contains neither a Zarr store nor *.parquet files")
    try:
        with open(path, "rb") as file:
            mark = file.read(6)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file") from None
    if mark.startswith(b"PAR1"):
        return parquet_file, path
    if mark == b"\x93NUMPY":
        return npy_file, path
    what = "is empty" if not mark else "is neither a .npy nor a Parquet file"
    raise ValueError(f"{path} {what}; OnDisk reads .npy, Zarr and Parquet")
