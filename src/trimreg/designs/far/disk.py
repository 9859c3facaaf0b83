"""Matrices on disk: read by blocks of rows, one block ahead of the arithmetic, never copied whole."""

from __future__ import annotations

import copy
import os
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from numbers import Integral

import numpy as np

from .npy import mapped_file, npy_file
from .parquet import parquet_file, parts_of
from .rows import FarRows
from .zarr import is_zarr, zarr_array

BLOCK_BYTES = 16 << 20
VECTORS = 10  # of length n, in float64, that a fit holds at once at the least
#: By loss, as measured: so many, and so many more for every output.
_BY_LOSS = {
    "quadratic": (10, 0), "poisson": (10, 0), "gamma": (10, 0), "logistic": (12, 0), "huber": (16, 0),
    "cox": (34, 0), "multitask": (6, 4), "multinomial": (8, 8),
}  # fmt: skip
_OTHER_LOSS = (8, 8)


class OnDisk(FarRows):
    """A matrix on disk, to be given to an estimator as ``X``.

    Every pass reads the file from beginning to end in blocks of rows, a thread one block ahead. Nothing is
    open between passes, so the object can be copied, pickled and sent to other processes of the machine.

    Parameters
    ----------
    source : path, numpy.memmap or zarr.Array
        A ``.npy`` file (either order), a Zarr array or a group that holds one matrix, a Parquet file or a
        folder of them, or a memory map or a view of one. float32 stays float32, other real numbers are
        converted to float64 block by block.
    memory : int, default=512_000_000
        Bytes that a fit may hold: the vectors of length n, the blocks that are being read, and the columns
        that are kept near so as not to be read again. How many vectors there are depends on the loss
        (:func:`vectors_of`); where they do not fit, the fit is refused at its beginning, and told what would
        do. More memory saves passes. On top come ``y`` and weights as the user has them, what Python and its
        libraries take (about 300 MB) and some 30 MB to work in; in a search up to 4 vectors, one for each
        fold, and the columns of two designs; and all of it once more for every further process of ``n_jobs``.
    columns : sequence of str or int, optional
        Which columns of a Parquet source are X; by default all but the index of a pandas frame.

    Attributes
    ----------
    shape, dtype, nbytes
    passes : int or float
        How often the file was gone through. Some columns count as that part of a pass if no others are read.
    memory : int
        What is left of ``memory`` for columns.
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
    ndim = 2
    #: A file is read at gigabytes a second, and a core multiplies at tens of billions a second: the Gram
    #: matrix of p columns takes as long as p / 36 passes, and saves about six.
    widest_gram = 200

    def __init__(self, source, memory: int = 512_000_000, columns=None):
        if isinstance(memory, bool) or not isinstance(memory, Integral) or memory <= 0:
            raise ValueError(f"memory={memory!r} must be a positive whole number of bytes")
        store = _store_of(source, columns, _block_bytes(memory))
        self._store = store
        self._columns = None
        self._tally = {"passes": 0}
        self._budget = int(memory)
        self.memory = _left_for_columns(store, self._budget, VECTORS)
        self.shape, self.dtype = store.shape, store.dtype
        self.feature_names = None if store.names is None else list(store.names)

    @property
    def passes(self):
        return self._tally["passes"]

    def __len__(self):
        return self.shape[0]

    def __array__(self, dtype=None, copy=None):
        raise TypeError(
            f"{self.describe()} is not pulled into memory; give it to an estimator of trimreg as X, and to "
            "TrimmedLassoCV and the like, not to GridSearchCV, to choose among several"
        )

    def describe(self) -> str:
        return f"{super().describe()} ({os.path.basename(self._store.path)})"

    def with_room_for(self, loss) -> OnDisk:
        """The same matrix, with less memory for columns: that of what a fit of this loss holds is set apart.

        Parameters
        ----------
        loss : Loss
            Bound to its target, so that the number of its outputs is known.

        Raises
        ------
        ValueError
            If the vectors exceed the memory.
        """
        whose = f" of a fit with loss {loss.name!r}"
        left = _left_for_columns(self._store, self._budget, vectors_of(loss), whose)
        other = copy.copy(self)  # and the tally of passes with it
        # The Hessian of Cox works on sorted copies of its columns, which take as much as the columns may.
        other.memory = min(self.memory, left // 2 if loss.name == "cox" else left)
        return other

    def sweep(self, kernel, vectors=(), arguments=()):
        """Yield ``kernel(block, *parts, *arguments)`` for each block of rows, in order: one pass."""
        start = 0
        for block in self._blocks(self._columns):
            rows = slice(start, start + len(block))
            yield kernel(block, *(vector[rows] for vector in vectors), *arguments)
            start = rows.stop

    def read_columns(self, W, out):
        """Write the columns W into the arrays of ``out``; no others are read where that can be avoided."""
        W, start = self._positions(W), 0
        for block in self._blocks(W) if W.size else ():
            for column, values in zip(out, block.T, strict=True):
                column[start : start + len(block)] = values
            start += len(block)

    def narrowed(self, W):
        """The columns W, as an array in Fortran order; as rows again where they exceed ``memory``."""
        if self.shape[0] * len(W) * self.dtype.itemsize <= self.memory:
            near = np.empty((self.shape[0], len(W)), dtype=self.dtype, order="F")
            self.read_columns(W, near.T)
            return near
        W = self._positions(W)
        far = copy.copy(self)  # and the tally of passes with it
        far._columns = W
        far.shape = (self.shape[0], W.size)
        far.feature_names = None if self.feature_names is None else [self._store.names[j] for j in W]
        return far

    def _positions(self, W):
        """Where the columns W are in the file."""
        every = np.arange(self.shape[1]) if self._columns is None else self._columns
        return every[np.asarray(W, dtype=np.intp)]

    def _blocks(self, columns):
        """The blocks of a pass; while one is worked on, a thread reads the next."""
        blocks = self._store.blocks(columns)
        with ThreadPoolExecutor(1, thread_name_prefix="trimreg-read") as ahead:
            following = ahead.submit(next, blocks, None)
            try:
                following.result()  # a file that cannot be read makes no pass
                self._tally["passes"] += 1 if columns is None else self._store.share(columns)
                while (block := following.result()) is not None:
                    following = ahead.submit(next, blocks, None)
                    yield block
            finally:
                wait([following])  # a read may be under way
                blocks.close()  # and the file with it


def vectors_of(loss) -> int:
    """How many vectors of length n a fit with this loss holds at once, beside blocks and columns of X.

    They were measured, as the peak of all arrays of a fit less its blocks.

    Examples
    --------
    >>> from trimreg.designs.far.disk import vectors_of
    >>> from trimreg.losses import Multinomial, Quadratic
    >>> vectors_of(Quadratic()), vectors_of(Multinomial(5))
    (10, 48)
    """
    alone, each = _BY_LOSS.get(loss.name, _OTHER_LOSS)
    return max(VECTORS, alone + each * loss.n_outputs)


def _left_for_columns(store, memory, count, whose=""):
    """Bytes that ``count`` vectors and the blocks leave; an error that says how many would do if none."""
    vectors = 8 * count * store.shape[0]
    needed = vectors + store.live_bytes
    if needed > memory:
        enough = needed
        while (more := vectors + replace(store, block_bytes=_block_bytes(enough)).live_bytes) > enough:
            enough = more
        raise ValueError(
            f"memory={memory} bytes are too few for {store.path}: {count} vectors of length "
            f"{store.shape[0]}{whose} take {vectors}, reading takes {store.live_bytes}; "
            f"give memory={enough} or more{store.advice}"
        )
    return memory - needed


def _block_bytes(memory):
    return min(BLOCK_BYTES, max(1, memory // 16))


def _store_of(source, columns, block_bytes):
    """The reader of a source, by what lies there and not by its name."""
    if isinstance(source, np.ndarray):
        _no_names(columns, "a memory map")
        return mapped_file(source, block_bytes)
    if type(source).__module__.partition(".")[0] == "zarr":
        _no_names(columns, "a Zarr array")
        return zarr_array(source, block_bytes)
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(f"source must be a path, a numpy.memmap or a zarr.Array, not {type(source).__name__}")
    path = os.path.abspath(os.fspath(source))
    if os.path.isdir(path):
        if is_zarr(path):
            _no_names(columns, path)
            return zarr_array(path, block_bytes)
        if parts_of(path):
            return parquet_file(path, columns, block_bytes)
        raise ValueError(f"{path} is a folder with neither a Zarr store nor files *.parquet in it")
    try:
        with open(path, "rb") as file:
            mark = file.read(6)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: there is no such file") from None
    if mark.startswith(b"PAR1"):
        return parquet_file(path, columns, block_bytes)
    if mark == b"\x93NUMPY":
        _no_names(columns, path)
        return npy_file(path, block_bytes)
    what = "is empty" if not mark else "begins neither as .npy nor as Parquet"
    raise ValueError(f"{path} {what}; OnDisk reads .npy, Zarr and Parquet")


def _no_names(columns, what):
    if columns is not None:
        raise ValueError(f"columns chooses columns of Parquet; {what} has no names of columns")
