"""Dense arrays: float32 or float64, C or Fortran order, read-only or memory-mapped.

float32 is a way to store X, not to compute with it: products are accumulated in float64, a block in cache at
a time. That runs at the speed of float64 from half the memory, and certificates mean what they say.
"""

from __future__ import annotations

import numpy as np

from .base import Moments, ScaledMatrix
from .wrappers.block import weighted_gram

_BLOCK_ELEMENTS = 1 << 17  # blocks of a pass that makes temporaries: 1 MiB in float64, so they stay in cache


class DenseDesign(ScaledMatrix):
    """A dense design. ``X`` is read where it lies; only the columns of a working set are copied."""

    def __init__(self, X, weights, *, center=False, scale=False):
        if not (X.flags.f_contiguous or X.flags.c_contiguous):
            X = np.ascontiguousarray(X)  # BLAS would copy it again at every product
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
            return (r.T @ self.X).T
        product = np.zeros((*r.shape[1:], self.shape[1]))
        for rows, cols in self._blocks():
            product[..., cols] += r[rows].T @ self.X[rows, cols].astype(float)
        return product.T

    def _take(self, W, rows=slice(None)):
        """A float64 copy of the columns W of X, of some of its rows."""
        part = self.X.T[W, rows].T if self._by_columns else np.take(self.X[rows], W, axis=1)
        return part.astype(float, copy=False)

    def columns(self, W, rows=slice(None)):
        Z = self._take(W, rows)
        if self.offset is not None:
            Z -= self.offset[W]
        Z *= self.inverse_scale[W]
        return Z

    def _sums(self, W, d):
        total = np.zeros(len(W))
        for part in self._row_blocks(len(W)):
            total += d[part] @ self._take(W, part)
        return total * self.inverse_scale[W]

    def gram(self, rows, d, cols):
        if rows is None:
            Z = self.columns(cols)
            Z *= d[:, None]
            return self.rmatvec(Z)
        product = np.zeros((len(rows), len(cols)))
        for part in self._row_blocks(len(rows) + len(cols)):
            right = self.columns(cols, part)
            if rows is cols:
                product += weighted_gram(right, d[part])
            else:
                product += self.columns(rows, part).T @ (right * d[part, None])
        return product

    def _row_blocks(self, width):
        """Slices of rows such that so many columns of them are a few megabytes."""
        step = max(1, 4 * _BLOCK_ELEMENTS // max(width, 1))
        return (slice(start, start + step) for start in range(0, self.shape[0], step))

    def _blocks(self):
        """Pairs of slices that cut X, along the order it is stored in, into parts that fit in cache."""
        n, p = self.shape
        long, short = (p, n) if self._by_columns else (n, p)
        step = max(1, _BLOCK_ELEMENTS // max(short, 1))
        whole = slice(None)
        for start in range(0, long, step):
            part = slice(start, min(start + step, long))
            yield (whole, part) if self._by_columns else (part, whole)

    def _moments(self, weights, center):
        n, p = self.shape
        mean = np.zeros(p)
        if center:
            mean = self._transposed_product(weights)
        uniform = n > 0 and np.all(weights == weights[0])
        if not uniform:
            deviation = self._deviations(weights, mean, np.arange(p), refine=center)
            return Moments(mean, deviation)
        with np.errstate(over="ignore", invalid="ignore"):
            square = np.zeros(p)
            for rows, cols in self._blocks():
                part = self.X[rows, cols].astype(float, copy=False)
                square[cols] += np.einsum("ij,ij->j", part, part) * weights[0]
            variance = square - mean**2
            # The short formula cancels where the mean dwarfs the deviation, and under- or overflows
            # for extreme columns: those are done again, from their deviations.
            unsafe = ~(variance > 1e-4 * square) | (square < 1e-290) | ~np.isfinite(square)
        deviation = np.sqrt(np.where(unsafe, 0.0, variance))
        redo = np.flatnonzero(unsafe)
        again = mean[redo]
        deviation[redo] = self._deviations(weights, again, redo, refine=center)
        mean[redo] = again
        return Moments(mean, deviation)

    def _deviations(self, weights, mean, which, refine=False):
        """Root mean square deviations of the columns ``which`` about ``mean``.

        With ``refine``, ``mean`` is first corrected in place by the mean of what is left: its own rounding,
        of the order of n eps, would else pass for the deviation of a constant column.
        """
        deviation = np.empty(which.size)
        step = max(1, _BLOCK_ELEMENTS // max(self.shape[0], 1))
        for start in range(0, which.size, step):
            part = slice(start, start + step)
            spread = self._take(which[part]) - mean[part]
            if refine:
                better = mean[part] + weights @ spread / weights.sum()
                spread -= better - mean[part]
                mean[part] = better
            largest = np.max(np.abs(spread), axis=0, initial=0.0)
            safe = np.where(largest > 0, largest, 1.0)
            deviation[part] = largest * np.sqrt(weights @ (spread / safe) ** 2)
        return deviation

    def _weighted_norms(self, d):
        offset = np.zeros(self.shape[1]) if self.offset is None else self.offset
        every = np.arange(self.shape[1])
        return self._deviations(d, offset, every) * self.inverse_scale
