r"""A design over far rows: every operation is one pass over blocks, or none.

What is asked of few columns (a linear predictor of few coefficients, a Gram matrix, a restriction) is
answered from columns that are held near, if there is room for them; the first time they are fetched by one
pass. What is asked of all columns, or of too many to hold, is a sum over the blocks of rows: one pass, and no
array of n rows is made but the answer.
"""

from __future__ import annotations

import numpy as np

from ..base import Moments, ScaledMatrix
from ..wrappers.compression import few_rows
from . import kernels
from .rows import block_product, stacked
from .store import ColumnStore, HeldRows

_DOUBTFUL = (1e-280, np.inf)  # sums of squares outside of this are done again with scaled numbers


class BlockedDesign(ScaledMatrix):
    """A design over :class:`~trimreg.designs.far.rows.Rows`, with the meaning of a dense one.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.designs.far.rows import ArrayRows
    >>> rows = ArrayRows(np.array([[1.0, 2.0], [3.0, 2.0]]), block_rows=1)
    >>> design = rows.design(np.array([0.5, 0.5]), center=True, scale=True)
    >>> design.matvec(np.array([1.0, 1.0]))  # the constant column takes no part
    array([-1.,  1.])
    >>> rows.passes
    2
    """

    near = False
    streamed = True

    def __init__(self, rows, weights, *, center=False, scale=False):
        self._store = ColumnStore(rows)
        super().__init__(rows, weights, center=center, scale=scale)

    @property
    def widest_gram(self):
        return self.X.widest_gram

    @property
    def room(self):
        return np.inf if self._store is None else self._store.room

    def expect(self, W):
        """A hint: these columns, the likeliest first, are fetched along with others while there is room."""
        if self._store is not None:
            self._store.expect(W)

    # -- the first pass ----------------------------------------------------------------------------------

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
            raise ValueError(f"X must have the {self.shape[0]} rows that its shape says; {start} were read")
        if bad:
            _refuse(first, bad - 1)
        _, mean, square = so_far
        if not center:
            mean = np.zeros(p)
        deviation = np.sqrt(square)
        again = np.flatnonzero(doubtful & ~((square > _DOUBTFUL[0]) & (square < _DOUBTFUL[1])))
        if again.size:
            deviation[again] = self._root_mean_square(weights, again, mean[again])
        return Moments(mean, deviation)

    def _root_mean_square(self, d, W, offset):
        so_far = (np.zeros(len(W)), np.zeros(len(W)))
        for part in self.X.sweep(kernels.scaled_squares, (d,), (np.asarray(W), offset)):
            so_far = kernels.merged_squares(so_far, part)
        return so_far[0] * np.sqrt(so_far[1])

    def _weighted_norms(self, d):
        every = np.arange(self.shape[1])
        offset = np.zeros(self.shape[1]) if self.offset is None else self.offset
        return self._root_mean_square(d, every, offset) * self.inverse_scale

    # -- products ----------------------------------------------------------------------------------------

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

    def columns(self, W):
        return stacked(self.row_blocks(W), np.empty((self.shape[0], len(W))))

    def row_blocks(self, W):
        """``Z_W`` by blocks of its rows, one after another: where all of it would be too large."""
        W = np.asarray(W, dtype=np.intp)
        source, where = self._columns_of(W)
        return source.sweep(kernels.scaled_columns, (), (where, *self._units(W)))

    # -- Gram matrices -----------------------------------------------------------------------------------

    def gram(self, rows, d, cols):
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

    def gram_and_sums(self, W, d):
        """``Z_W' diag(d) Z_W`` and ``Z_W' d`` by one pass."""
        W = np.asarray(W, dtype=np.intp)
        source, where = self._columns_of(W)
        gram, sums = np.zeros((W.size, W.size)), np.zeros(W.size)
        for more, further in source.sweep(kernels.gram_and_sums, (d,), (where, *self._units(W))):
            gram += more
            sums += further
        return gram, sums

    def _every_gram(self, d, cols):
        total, sums = np.zeros((cols.size, self.shape[1])), np.zeros(cols.size)
        for more, further in self.X.sweep(kernels.every_gram, (d,), (cols, *self._units(cols))):
            total += more
            sums += further
        if self.offset is not None:
            total -= np.outer(sums, self.offset)
        return (total * self.inverse_scale).T

    def _sums(self, W, d):
        source, where = self._columns_of(np.asarray(W, dtype=np.intp))
        return sum(source.sweep(kernels.raw_sums, (d,), (where,)), np.zeros(len(W))) * self.inverse_scale[W]

    def combination_moments(self, W, V, near, d):
        """For ``C = Z_W V``: the sums of ``d c^2``, and ``Z_W' diag(d) C`` at the positions ``near`` of W."""
        W = np.asarray(W, dtype=np.intp)
        source, where = self._columns_of(W)
        square, product = np.zeros(V.shape[1]), np.zeros((len(near), V.shape[1]))
        parts = source.sweep(kernels.combination_moments, (d,), (where, V, near, *self._units(W)))
        for more, further in parts:
            square += more
            product += further
        return square, product

    def compressed(self, y, d):
        """A few rows with the same least squares; see :mod:`trimreg.designs.wrappers.compression`. One
        pass."""
        p = self.shape[1]
        gram, target = np.zeros((p, p)), np.zeros((p, *y.shape[1:]))
        units = (self.offset, self.inverse_scale)
        for more, further in self.X.sweep(kernels.normal_equations, (d, y), units):
            gram += more
            target += further
        return few_rows(gram, target, y, d, source=self)

    # -- parts of it -------------------------------------------------------------------------------------

    def restricted(self, W):
        """These columns near, if there is room for them, else still far."""
        W = np.asarray(W, dtype=np.intp)
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        held = self._source(W)
        narrowed = self.X.narrowed(W) if held is None else held
        if isinstance(narrowed, np.ndarray):
            narrowed = HeldRows(list(narrowed.T), self.shape[0], self.dtype)
        other.X, other.shape = narrowed, (self.shape[0], W.size)
        other.near = isinstance(narrowed, HeldRows)
        other._store = None if other.near else self._store.part(W)
        other.offset, other.inverse_scale = self._units(W)
        other._deviation = self._deviation[W]
        return other

    def _units(self, W):
        return None if self.offset is None else self.offset[W], self.inverse_scale[W]

    def _source(self, W):
        """The columns W as rows in memory, or None where they do not fit."""
        return self.X.narrowed(W) if self._store is None else self._store.get(W)

    def _columns_of(self, W):
        """Rows that contain the columns W, and where they are in them; None if they are just these."""
        source = self._source(W)
        return (self.X, W) if source is None else (source, None)


def _refuse(first, more):
    row, column, value = first
    what = "NaN" if np.isnan(value) else "inf"
    others = f" (and {more} more NaN or inf)" if more else ""
    raise ValueError(
        f"X contains {what} at row {row}, column {column}{others}; drop or impute missing values"
    )
