"""Columns of far rows that are kept near: raw, as they are stored, and no more of them than memory allows."""

from __future__ import annotations

import numpy as np

from .rows import FarRows

_ELEMENTS = 1 << 19  # of a block that is put together from columns


class HeldRows(FarRows):
    """Columns in memory, each an array of its own, as rows: blocks are put together on the way.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.designs.far.store import HeldRows
    >>> rows = HeldRows([np.array([1.0, 2.0]), np.array([10.0, 20.0])], 2, np.dtype(float))
    >>> rows.product(np.array([1.0, 1.0]))
    array([11., 22.])
    """

    kind = "columns in memory"

    def __init__(self, columns, n_rows: int, dtype):
        self.columns = columns
        self.shape = (n_rows, len(columns))
        self.dtype = np.dtype(dtype)

    def sweep(self, kernel, vectors=(), arguments=()):
        self.passes += 1
        n, p = self.shape
        step = max(1, _ELEMENTS // max(p, 1))
        buffer = np.empty((p, min(step, n)), dtype=self.dtype)
        for start in range(0, n, step):
            part = slice(start, min(start + step, n))
            block = buffer[:, : part.stop - start]
            for place, column in zip(block, self.columns, strict=True):
                place[:] = column[part]
            yield kernel(block.T, *(vector[part] for vector in vectors), *arguments)

    def narrowed(self, W):
        """These columns, without a copy."""
        return HeldRows([self.columns[j] for j in W], self.shape[0], self.dtype)


class ColumnStore:
    """The columns of far rows that were asked for last, as many as ``rows.memory`` holds.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.designs.far.store import ColumnStore
    >>> from trimreg.designs.far.rows import ArrayRows
    >>> rows = ArrayRows(np.arange(12.0).reshape(3, 4), block_rows=2)
    >>> store = ColumnStore(rows)
    >>> store.get(np.array([1, 3])).shape, store.get(np.array([3])).shape, rows.passes
    ((3, 2), (3, 1), 1)
    """

    def __init__(self, rows):
        self.rows = rows
        self.room = int(rows.memory // max(1, rows.shape[0] * np.dtype(rows.dtype).itemsize))
        self._held: dict[int, np.ndarray] = {}  # the one asked for last is the last
        self._likely = np.empty(0, dtype=np.intp)

    def expect(self, W) -> None:
        """These may be asked for next, the likeliest first: they come along with the next that is fetched."""
        self._likely = np.asarray(W, dtype=np.intp)

    def get(self, W) -> HeldRows | None:
        """The columns W, after a pass for those that are not here; None if there is no room for so many."""
        if len(W) > self.room:
            return None
        wanted = [int(j) for j in W]
        missing = [j for j in dict.fromkeys(wanted) if j not in self._held]
        if missing:
            missing += self._guests({*wanted}, self.room - len(wanted))
            self._make_room(len(missing), {*wanted})
            n, dtype = self.rows.shape[0], self.rows.dtype
            fresh = [np.empty(n, dtype=dtype) for _ in missing]  # apart, so that each can be let go of
            self.rows.read_columns(np.array(missing, dtype=np.intp), fresh)
            self._held.update(zip(missing, fresh, strict=True))
        for j in wanted:
            self._held[j] = self._held.pop(j)
        return HeldRows([self._held[j] for j in wanted], self.rows.shape[0], self.rows.dtype)

    def part(self, W) -> PartOfStore:
        """This store as that of the columns W alone."""
        return PartOfStore(self, W)

    def _guests(self, wanted, vacant):
        """The likeliest columns that are not here, as many as there is room for beside those wanted."""
        likely = [int(j) for j in self._likely[: max(vacant, 0)]]
        for j in reversed(likely):  # those that are here are not to be the first to go
            if j in self._held:
                self._held[j] = self._held.pop(j)
        return [j for j in likely if j not in self._held and j not in wanted]

    def _make_room(self, count, wanted):
        surplus = len(self._held) + count - self.room
        for j in [j for j in self._held if j not in wanted][: max(surplus, 0)]:
            del self._held[j]


class PartOfStore:
    """The store of some columns of a matrix: they share the memory of the whole."""

    def __init__(self, store, W):
        self.store, self.W, self.room = store, W, store.room

    def expect(self, W):
        self.store.expect(self.W[W])

    def get(self, W):
        return self.store.get(self.W[W])

    def part(self, W):
        return PartOfStore(self.store, self.W[W])
