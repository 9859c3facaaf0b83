r"""Matrices that are known by blocks of their rows: on disk, on a cluster, behind a generator.

Every operation of a design is a sum over rows, or a vector with one entry per row:

.. math:: X'r = \sum_{b} X_b' r_b, \qquad (X v)_b = X_b v .

So far data need a single ability: to run a function on each block of rows. That is :meth:`FarRows.sweep`; the
rest follows. A sweep over all rows is a *pass*. Passes are the cost of far data, so they are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ..base import BLOCK_ELEMENTS, WIDEST_GRAM, VirtualMatrix

#: Default number of bytes for columns in memory.
NEAR_MEMORY = 256 << 20
_GATHERED_ELEMENTS = 1 << 19  # of a block that is put together from columns in memory


def cached_parts(block: np.ndarray, width: int | None = None) -> list[slice]:
    """Slices of the rows of ``block`` that fit in cache, with ``width`` numbers per row (default: all)."""
    n, p = block.shape
    step = max(1, BLOCK_ELEMENTS // max(p if width is None else width, 1))
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]


def block_product(block: np.ndarray, coef: np.ndarray) -> np.ndarray:
    """``block @ coef`` in float64, one part in cache at a time."""
    product = np.empty((block.shape[0], *coef.shape[1:]))
    for part in cached_parts(block):
        product[part] = block[part].astype(float, copy=False) @ coef
    return product


def block_columns(block: np.ndarray, W: np.ndarray) -> np.ndarray:
    """A copy of the columns W of a block."""
    return np.take(block, W, axis=1)


def _kernel_on_columns(block, *parts_and_arguments):
    *rest, kernel, W = parts_and_arguments
    return kernel(np.take(block, W, axis=1), *rest)


def stacked(pieces: Iterable[np.ndarray], out: np.ndarray) -> np.ndarray:
    """Write the pieces below each other into ``out``; return ``out``."""
    start = 0
    for piece in pieces:
        out[start : start + len(piece)] = piece
        start += len(piece)
    return out


class FarRows(VirtualMatrix):
    """Base class of matrices that are read by blocks of rows; a subclass writes :meth:`sweep`.

    ``dtype`` is the storage type, float32 or float64. Arithmetic is float64 in either case.
    """

    #: Number of passes so far; :meth:`sweep` must count itself.
    passes: float = 0
    #: Bytes that columns may take in memory.
    memory: float = NEAR_MEMORY
    #: Number of columns up to which least squares builds the Gram matrix of all columns: the slower a pass
    #: compared with the arithmetic, the more.
    widest_gram = WIDEST_GRAM
    #: Name of this kind of matrix, for messages.
    kind = "rows"

    def sweep(self, kernel: Callable, vectors: Sequence = (), arguments: Sequence = ()) -> Iterator[Any]:
        """Yield ``kernel(block, *parts, *arguments)`` for each block of rows, in order: one pass.

        ``block`` is an array (rows, p) of the storage dtype, valid only during the call. ``parts`` are the
        rows of the block of each array in ``vectors``, whose first dimension is n. ``kernel`` must be a
        function of a module, because it may be sent to another process. It returns an array or a tuple.
        """
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        return self.shape[0] * self.shape[1] * np.dtype(self.dtype).itemsize

    def describe(self) -> str:
        n, p = self.shape
        return f"{self.kind} {n} x {p} {np.dtype(self.dtype)}"

    def read_columns(self, W: np.ndarray, out: Any) -> None:
        """Write the columns W into the arrays of ``out``, one each, by one pass."""
        start = 0
        for piece in self.sweep(block_columns, arguments=(np.asarray(W, dtype=np.intp),)):
            for column, values in zip(out, piece.T, strict=True):
                column[start : start + len(piece)] = values
            start += len(piece)

    def narrowed(self, W: np.ndarray) -> Any:
        """The columns W as an array in Fortran order; as rows again if they exceed ``memory``."""
        W = np.asarray(W, dtype=np.intp)
        if self.shape[0] * W.size * np.dtype(self.dtype).itemsize > self.memory:
            return self._far_columns(W)
        near = np.empty((self.shape[0], W.size), dtype=self.dtype, order="F")
        self.read_columns(W, near.T)
        return near

    def _far_columns(self, W):
        return ColumnRows(self, W)

    def product(self, coef: np.ndarray, intercept: Any = 0.0) -> np.ndarray:
        coef = np.asarray(coef, dtype=float)
        out = np.empty((self.shape[0], *coef.shape[1:]))
        return stacked(self.sweep(block_product, arguments=(coef,)), out) + intercept

    def design(self, weights: np.ndarray, *, center: bool = False, scale: Any = False) -> Any:
        from .design import BlockedDesign

        return BlockedDesign(self, weights, center=center, scale=scale)


class ArrayRows(FarRows):
    """An array, cut into blocks of rows: the simplest example of far rows, and the one in the tests."""

    kind = "array by blocks"

    def __init__(self, X: np.ndarray, block_rows: int, memory: int = NEAR_MEMORY):
        self.X = X
        self.block_rows = block_rows
        self.memory = memory
        self.shape = X.shape
        self.dtype = X.dtype

    def sweep(self, kernel: Callable, vectors: Sequence = (), arguments: Sequence = ()) -> Iterator[Any]:
        self.passes += 1
        for start in range(0, self.shape[0], self.block_rows):
            part = slice(start, start + self.block_rows)
            yield kernel(self.X[part], *(vector[part] for vector in vectors), *arguments)


class ColumnRows(FarRows):
    """Some columns of far rows, still far: each sweep is a pass over all columns."""

    def __init__(self, rows: FarRows, W: np.ndarray):
        self.rows = rows
        self.W = W
        self.shape = (rows.shape[0], W.size)
        self.dtype = rows.dtype
        self.memory = rows.memory

    def describe(self) -> str:
        return f"{self.W.size} columns of {self.rows.describe()}"

    def sweep(self, kernel: Callable, vectors: Sequence = (), arguments: Sequence = ()) -> Iterator[Any]:
        self.passes += 1
        yield from self.rows.sweep(_kernel_on_columns, vectors, (*arguments, kernel, self.W))

    def read_columns(self, W: np.ndarray, out: Any) -> None:
        self.rows.read_columns(self.W[np.asarray(W, dtype=np.intp)], out)


class MemoryColumns(FarRows):
    """Columns in memory, each an array of its own; a sweep puts blocks of rows together."""

    kind = "columns in memory"

    def __init__(self, columns: Sequence[np.ndarray], n_rows: int, dtype: Any):
        self.columns = columns
        self.shape = (n_rows, len(columns))
        self.dtype = np.dtype(dtype)

    def sweep(self, kernel: Callable, vectors: Sequence = (), arguments: Sequence = ()) -> Iterator[Any]:
        self.passes += 1
        n, p = self.shape
        step = max(1, _GATHERED_ELEMENTS // max(p, 1))
        buffer = np.empty((p, min(step, n)), dtype=self.dtype)
        for start in range(0, n, step):
            part = slice(start, min(start + step, n))
            block = buffer[:, : part.stop - start]
            for place, column in zip(block, self.columns, strict=True):
                place[:] = column[part]
            yield kernel(block.T, *(vector[part] for vector in vectors), *arguments)

    def narrowed(self, W: np.ndarray) -> Any:
        """These columns, without a copy."""
        return MemoryColumns([self.columns[j] for j in W], self.shape[0], self.dtype)


class ColumnStore:
    """The most recently used columns of far rows, as many as ``rows.memory`` allows."""

    def __init__(self, rows: FarRows):
        self.rows = rows
        self.room = int(rows.memory // max(1, rows.shape[0] * np.dtype(rows.dtype).itemsize))
        self._kept: dict[int, np.ndarray] = {}  # the most recently used is the last
        self._likely = np.empty(0, dtype=np.intp)

    def expect(self, W: np.ndarray) -> None:
        """These columns, the likeliest first, may be asked for next: the next pass reads them too."""
        self._likely = np.asarray(W, dtype=np.intp)

    def get(self, W: np.ndarray) -> MemoryColumns | None:
        """The columns W, after a pass for those that are missing; None if there is no room for so many."""
        if len(W) > self.room:
            return None
        wanted = [int(j) for j in W]
        missing = [j for j in dict.fromkeys(wanted) if j not in self._kept]
        if missing:
            missing += self._guests({*wanted}, self.room - len(wanted))
            self._make_room(len(missing), {*wanted})
            n, dtype = self.rows.shape[0], self.rows.dtype
            fresh = [np.empty(n, dtype=dtype) for _ in missing]  # apart, so that each can be freed
            self.rows.read_columns(np.array(missing, dtype=np.intp), fresh)
            self._kept.update(zip(missing, fresh, strict=True))
        for j in wanted:
            self._kept[j] = self._kept.pop(j)
        return MemoryColumns([self._kept[j] for j in wanted], self.rows.shape[0], self.rows.dtype)

    def _guests(self, wanted, vacant):
        """The likeliest missing columns, as many as there is room for beside those wanted."""
        likely = [int(j) for j in self._likely[: max(vacant, 0)]]
        for j in reversed(likely):  # likely columns that are here should not be dropped first
            if j in self._kept:
                self._kept[j] = self._kept.pop(j)
        return [j for j in likely if j not in self._kept and j not in wanted]

    def _make_room(self, count, wanted):
        surplus = len(self._kept) + count - self.room
        for j in [j for j in self._kept if j not in wanted][: max(surplus, 0)]:
            del self._kept[j]
