r"""A design over far rows: each operation takes one pass over the data, or none.

Operations on few columns (a predictor of few coefficients, a Gram matrix, a restriction) use columns in
memory if there is room for them; the first use reads them by one pass. Operations on all columns, or on more
than fit, are sums over blocks of rows: one pass, without temporary arrays of n rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..base import ScaledMatrix, compressed_rows
from . import kernels
from .rows import ColumnStore, FarRows, MemoryColumns, block_product, stacked

_DOUBTFUL = (1e-280, np.inf)  # sums of squares outside of this range are recomputed with scaled numbers


class BlockedDesign(ScaledMatrix):
    """A design over :class:`~trimreg.designs.far.rows.FarRows`, with the same results as a dense one."""

    near = False
    streamed = True

    def __init__(self, rows: FarRows, weights: np.ndarray, *, center: bool = False, scale: Any = False):
        self._store: ColumnStore | None = ColumnStore(rows)  # None if X is in memory
        self._in_store = np.arange(rows.shape[1])  # the columns of this design, as the store numbers them
        super().__init__(rows, weights, center=center, scale=scale)

        self.room, self.widest_gram = self._store.room, rows.widest_gram

    def expect(self, W: np.ndarray) -> None:
        """A hint: the next pass also reads these columns, the likeliest first, if there is room."""
        if self._store is not None:
            self._store.expect(self._in_store[W])

    def _moments(self, weights, center):
        p = self.shape[1]
        so_far, doubtful = (0.0, np.zeros(p), np.zeros(p)), np.zeros(p, dtype=bool)
        start, bad, first = 0, 0, None
        for count, found, *moments, odd in self.X.sweep(kernels.column_moments, (weights,), (center,)):
            if found[0] and first is None:
                first = (start + found[1], *found[2:])
            start, bad = start + count, bad + found[0]
            so_far, doubtful = kernels.merged_moments(so_far, moments, center), doubtful | odd
        if start != self.shape[0]:
            raise ValueError(f"X has shape {self.shape}, but {start} rows were read")
        if bad:
            row, column, value = first
            others = f" (and {bad - 1} more NaN or inf)" if bad > 1 else ""
            column = column if self.X.feature_names is None else repr(self.X.feature_names[column])
            raise ValueError(
                f"X contains {'NaN' if np.isnan(value) else 'inf'} at row {row}, column {column}{others}; "
                "drop or impute missing values"
            )
        _, mean, square = so_far
        if not center:
            mean = np.zeros(p)
        deviation = np.sqrt(square)
        again = np.flatnonzero(doubtful & ~((square > _DOUBTFUL[0]) & (square < _DOUBTFUL[1])))
        if again.size:
            deviation[again] = self._root_mean_square(weights, again, mean[again])
        return mean, deviation

    def _root_mean_square(self, d, W, offset):
        so_far = (np.zeros(len(W)), np.zeros(len(W)))
        for part in self.X.sweep(kernels.scaled_squares, (d,), (np.asarray(W), offset)):
            so_far = kernels.merged_squares(so_far, part)
        return so_far[0] * np.sqrt(so_far[1])

    def _weighted_norms(self, d):
        every = np.arange(self.shape[1])
        offset = np.zeros(self.shape[1]) if self.offset is None else self.offset
        return self._root_mean_square(d, every, offset) * self.inverse_scale

    def _product(self, u):
        used = np.flatnonzero(u if u.ndim == 1 else u.any(axis=1))
        product = np.zeros((self.shape[0], *u.shape[1:]))
        if used.size == 0:
            return product
        few = 2 * used.size <= self.shape[1]
        source = self._source(used) if few else None
        if source is not None:
            return stacked(source.sweep(block_product, arguments=(u[used],)), product)
        if few:
            return stacked(self.X.sweep(kernels.columns_product, arguments=(used, u[used])), product)
        return stacked(self.X.sweep(block_product, arguments=(u,)), product)

    def _transposed_product(self, r):
        return sum(self.X.sweep(kernels.transposed_product, (r,)), np.zeros((*r.shape[1:], self.shape[1]))).T

    def columns(self, W: np.ndarray) -> np.ndarray:
        return stacked(self.row_blocks(W), np.empty((self.shape[0], len(W))))

    def row_blocks(self, W: np.ndarray) -> Iterator[np.ndarray]:
        W = np.asarray(W, dtype=np.intp)
        source, where = self._columns_of(W)
        return source.sweep(kernels.scaled_columns, (), (where, *self._units(W)))

    def gram(self, rows: np.ndarray | None, d: np.ndarray, cols: np.ndarray) -> np.ndarray:
        cols = np.asarray(cols, dtype=np.intp)
        if rows is None:
            return self._every_gram(d, cols)
        rows = cols if rows is cols else np.asarray(rows, dtype=np.intp)
        if rows is cols or np.array_equal(rows, cols):
            return self.gram_and_sums(cols, d)[0]
        both, place = np.unique(np.concatenate([rows, cols]), return_inverse=True)
        source, where = self._columns_of(both)
        where = np.arange(both.size) if where is None else where
        left, right = where[place[: rows.size]], where[place[rows.size :]]
        offsets, scales = zip(self._units(rows), self._units(cols), strict=True)
        parts = source.sweep(kernels.cross_gram, (d,), (left, right, offsets, scales))
        return sum(parts, np.zeros((rows.size, cols.size)))

    def gram_and_sums(self, W: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        W = np.asarray(W, dtype=np.intp)
        source, where = self._columns_of(W)
        parts = source.sweep(kernels.gram_and_sums, (d,), (where, *self._units(W)))
        return _totals(parts, (W.size, W.size), W.size)

    def _every_gram(self, d, cols):
        parts = self.X.sweep(kernels.every_gram, (d,), (cols, *self._units(cols)))
        total, sums = _totals(parts, (cols.size, self.shape[1]), cols.size)
        if self.offset is not None:
            total -= np.outer(sums, self.offset)
        return (total * self.inverse_scale).T

    def _sums(self, W, d):
        source, where = self._columns_of(np.asarray(W, dtype=np.intp))
        return sum(source.sweep(kernels.raw_sums, (d,), (where,)), np.zeros(len(W))) * self.inverse_scale[W]

    def combination_moments(self, W: np.ndarray, V: np.ndarray, positions: np.ndarray, d: np.ndarray) -> Any:
        W = np.asarray(W, dtype=np.intp)
        source, where = self._columns_of(W)
        parts = source.sweep(kernels.combination_moments, (d,), (where, V, positions, *self._units(W)))
        return _totals(parts, V.shape[1], (len(positions), V.shape[1]))

    def compressed(self, y: np.ndarray, d: np.ndarray) -> Any:
        p = self.shape[1]
        parts = self.X.sweep(kernels.normal_equations, (d, y), (self.offset, self.inverse_scale))
        gram, target = _totals(parts, (p, p), (p, *y.shape[1:]))
        return compressed_rows(gram, target, y, d, source=self)

    def restricted(self, W: np.ndarray) -> Any:
        """``Z_W``: in memory if there is room, else still far."""
        W = np.asarray(W, dtype=np.intp)
        narrowed = self._source(W)
        narrowed = self.X.narrowed(W) if narrowed is None else narrowed
        if isinstance(narrowed, np.ndarray):
            narrowed = MemoryColumns(list(narrowed.T), self.shape[0], self.dtype)
        other = self._part(narrowed, W)
        other.near, other.widest_gram = isinstance(narrowed, MemoryColumns), narrowed.widest_gram
        other._store, other.room = (None, np.inf) if other.near else (self._store, self.room)
        other._in_store = self._in_store[W]
        return other

    def _units(self, W):
        return None if self.offset is None else self.offset[W], self.inverse_scale[W]

    def _source(self, W):
        """The columns W in memory, or None if they do not fit."""
        return self.X.narrowed(W) if self._store is None else self._store.get(self._in_store[W])

    def _columns_of(self, W):
        """Rows that contain the columns W, and their positions there (None: just these columns)."""
        source = self._source(W)
        return (self.X, W) if source is None else (source, None)


def _totals(parts, *shapes):
    """The sums of pairs of arrays of these shapes, added up in place."""
    totals = tuple(np.zeros(shape) for shape in shapes)
    for pair in parts:
        for total, part in zip(totals, pair, strict=True):
            total += part
    return totals
