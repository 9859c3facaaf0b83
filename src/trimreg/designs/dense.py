"""Dense arrays: float32 or float64, C or Fortran order, read-only or memory-mapped.

float32 is only a storage type: products are accumulated in float64, one block in cache at a time. This is as
fast as float64 with half the memory, and certificates keep their accuracy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import BLOCK_ELEMENTS, ScaledMatrix, weighted_gram

_SHORT = 1500  # rows of a column that stays in the first cache
_LARGE = 1 << 21  # elements of X that do not stay in any


class DenseDesign(ScaledMatrix):
    """A dense array as a design. ``X`` is read in place; only the columns of a working set are copied."""

    def __init__(self, X: np.ndarray, weights: np.ndarray, *, center: bool = False, scale: Any = False):
        if not (X.flags.f_contiguous or X.flags.c_contiguous):
            X = np.ascontiguousarray(X)  # or BLAS would copy it at every product
        self._by_columns = X.flags.f_contiguous
        # a plain view: products with a memory map would be memory maps themselves
        super().__init__(np.asarray(X), weights, center=center, scale=scale)

    def _product(self, u):
        used = np.flatnonzero(u if u.ndim == 1 else u.any(axis=1))
        if used.size * 8 < self.shape[1]:  # a sparse vector: touch only its columns
            product = np.empty((self.shape[0], *u.shape[1:]))
            for rows in self._row_blocks(used.size):
                product[rows] = self._take(used, rows) @ u[used]
            return product
        if self.dtype == float:
            return self.X @ u
        product = np.zeros((self.shape[0], *u.shape[1:]))
        for rows, cols in self._blocks():
            product[rows] += self.X[rows, cols].astype(float) @ u[cols]
        return product

    def _transposed_product(self, r):
        # r' X, not X' r: BLAS then packs the thin factor instead of X, up to twice as fast
        if self.dtype == float:
            if r.ndim == 1 and self._streams:
                return np.vecdot(self.X.T, r)
            return (r.T @ self.X).T
        product = np.zeros((*r.shape[1:], self.shape[1]))
        for rows, cols in self._blocks():
            product[..., cols] += r[rows].T @ self.X[rows, cols].astype(float)
        return product.T

    @property
    def _streams(self):
        """Whether products column by column are faster than BLAS: short columns of an X larger than caches.

        Then memory is read in one stream instead of several, at up to twice the speed.
        """
        n, p = self.shape
        return self._by_columns and n <= _SHORT and n * p >= _LARGE and hasattr(np, "vecdot")  # NumPy 2

    def _take(self, W, rows=slice(None)):
        """A float64 copy of the columns W of X, of some of its rows."""
        part = self.X.T[W, rows].T if self._by_columns else np.take(self.X[rows], W, axis=1)
        return part.astype(float, copy=False)

    def _sums(self, W, d):
        total = np.zeros(len(W))
        for part in self._row_blocks(len(W)):
            total += d[part] @ self._take(W, part)
        return total * self.inverse_scale[W]

    def gram(self, rows: np.ndarray | None, d: np.ndarray, cols: np.ndarray) -> np.ndarray:
        if rows is None:
            Z = self.columns(cols)
            Z *= d[:, None]
            return self.rmatvec(Z)
        product = np.zeros((len(rows), len(cols)))
        for part in self._row_blocks(len(rows) + len(cols)):
            right = self._scaled(self._take(cols, part), cols)
            if rows is cols:
                product += weighted_gram(right, d[part])
            else:
                left = self._scaled(self._take(rows, part), rows)
                product += left.T @ (right * d[part, None])
        return product

    def _row_blocks(self, width):
        """Slices of rows; each, with ``width`` columns, takes a few megabytes."""
        step = max(1, 4 * BLOCK_ELEMENTS // max(width, 1))
        return (slice(start, start + step) for start in range(0, self.shape[0], step))

    def _blocks(self):
        """Pairs of slices of rows and columns, along the storage order of X, that fit in cache."""
        n, p = self.shape
        long, short = (p, n) if self._by_columns else (n, p)
        step = max(1, BLOCK_ELEMENTS // max(short, 1))
        whole = slice(None)
        for start in range(0, long, step):
            part = slice(start, min(start + step, long))
            yield (whole, part) if self._by_columns else (part, whole)

    def _moments(self, weights, center):
        n, p = self.shape
        if n == 0 or np.any(weights != weights[0]):
            mean = self._transposed_product(weights) if center else np.zeros(p)
            deviation = self._deviations(weights, mean, np.arange(p), refine=center)
            return mean, deviation
        mean, square = np.zeros(p), np.zeros(p)
        with np.errstate(over="ignore", invalid="ignore"):
            for rows, cols in self._blocks():
                part = self.X[rows, cols].astype(float, copy=False)
                square[cols] += np.einsum("ij,ij->j", part, part) * weights[0]
                if center:  # the block is still in the processor's cache
                    mean[cols] += weights[rows] @ part
        return self._refined_moments(weights, mean, square, center)
