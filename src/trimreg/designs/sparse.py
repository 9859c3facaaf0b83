"""Sparse matrices, stored by columns (CSC); other formats are converted once."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from .base import ScaledMatrix


class SparseDesign(ScaledMatrix):
    """A sparse matrix as a design. Centering keeps it sparse; only columns of a working set become dense."""

    def __init__(self, X: Any, weights: np.ndarray, *, center: bool = False, scale: Any = False):
        X = sp.csc_array(X)
        if not X.has_canonical_format:
            X = X.copy()  # a CSC input shares its arrays with the caller's matrix
            X.sum_duplicates()
        super().__init__(X, weights, center=center, scale=scale)
        # Columns whose mean dwarfs their deviation (nearly all their entries are stored): subtracting the
        # mean after a product of such columns would leave only rounding.
        self._cancels = None if self.offset is None else np.abs(self.offset) > 1e3 * self._deviation

    def _product(self, u):
        used = np.flatnonzero(u if u.ndim == 1 else u.any(axis=1))
        X = self.X[:, used] if used.size * 8 < self.shape[1] else self.X
        return X @ (u[used] if X is not self.X else u)

    def _transposed_product(self, r):
        return self.X.T @ r

    def restricted(self, W: np.ndarray) -> Any:
        other = self._part(self.X[:, W], W)
        other._cancels = None if self._cancels is None else self._cancels[W]
        return other

    def _take(self, W):
        return self.X[:, W].toarray(order="F").astype(float, copy=False)

    def _sums(self, W, d):
        return (self.X[:, W].T @ d) * self.inverse_scale[W]

    def gram(self, rows: np.ndarray | None, d: np.ndarray, cols: np.ndarray) -> np.ndarray:
        # Z'DZ = u (X'DX - m (d'X) - (X'd) m' + (sum d) m m') u, every product a sparse one. The right factor
        # has the scale u from the start: squares of X might overflow.
        left = self.X if rows is None else self.X[:, rows]
        right = self.X[:, cols].astype(float)
        scale = self.inverse_scale[cols]
        right.data *= np.repeat(scale, np.diff(right.indptr))
        weighted = sp.csc_array((right.data * d[right.indices], right.indices, right.indptr), right.shape)
        product = (left.T @ weighted).toarray()
        row_scale = self.inverse_scale if rows is None else self.inverse_scale[rows]
        if self.offset is not None:
            m_rows = self.offset if rows is None else self.offset[rows]
            m_cols = self.offset[cols] * scale
            sum_rows = left.T @ d
            sum_cols = weighted.sum(axis=0)
            product -= np.outer(m_rows, sum_cols) + np.outer(sum_rows - d.sum() * m_rows, m_cols)
            self._repair(product, left, right, d, rows, cols)
        return row_scale[:, None] * product

    def _repair(self, product, left, right, d, rows, cols):
        """Recompute, from centered columns, the rows and columns of a Gram matrix that cancelled."""
        rows = np.arange(self.shape[1]) if rows is None else np.asarray(rows)
        cols = np.asarray(cols)
        bad_rows, bad_cols = np.flatnonzero(self._cancels[rows]), np.flatnonzero(self._cancels[cols])
        bad = rows[bad_rows], cols[bad_cols]
        centered_rows, centered_cols = (self.X[:, W].toarray() - self.offset[W] for W in bad)
        scale = self.inverse_scale[cols]
        centered_cols = centered_cols * scale[bad_cols]
        if bad_cols.size:
            weighted = centered_cols * d[:, None]
            product[:, bad_cols] = left.T @ weighted - np.outer(self.offset[rows], weighted.sum(axis=0))
        if bad_rows.size:
            weighted = centered_rows * d[:, None]
            sums = np.outer(self.offset[cols] * scale, weighted.sum(axis=0))
            product[bad_rows] = (right.T @ weighted - sums).T
            product[np.ix_(bad_rows, bad_cols)] = weighted.T @ centered_cols

    def _moments(self, weights, center):
        p = self.shape[1]
        mean = self.X.T @ weights if center else np.zeros(p)
        if center:
            # The rounding of a mean would look like the deviation of a constant column: correct the mean
            # by the mean of the residuals.
            stored = np.bincount(
                self._column_of_entry(), self._spread(mean) * weights[self.X.indices], minlength=p
            )
            mean = mean + (stored - self._implicit_weight(weights) * mean) / weights.sum()
        return mean, self._deviations(weights, mean)

    def _column_of_entry(self):
        return np.repeat(np.arange(self.shape[1]), np.diff(self.X.indptr))

    def _spread(self, mean):
        """Deviation of each stored entry from the mean of its column."""
        return self.X.data - np.repeat(mean, np.diff(self.X.indptr))

    def _implicit_weight(self, weights):
        """Total weight of the entries of each column that are not stored; exactly 0 if all are stored."""
        p, column, rows = self.shape[1], self._column_of_entry(), self.X.indices
        missing = weights.sum() - np.bincount(column, weights[rows], minlength=p)
        every = np.bincount(column, weights[rows] > 0, minlength=p) == np.count_nonzero(weights)
        return np.where(every, 0.0, np.maximum(missing, 0.0))

    def _deviations(self, weights, mean, which=None, refine=False):
        # Stored entries deviate by their own value, the implicit zeros by the mean.
        column = self._column_of_entry()
        spread = self._spread(mean)
        largest = np.abs(mean)
        np.maximum.at(largest, column, np.abs(spread))
        safe = np.where(largest > 0, largest, 1.0)
        scaled = (spread / safe[column]) ** 2 * weights[self.X.indices]
        stored = np.bincount(column, scaled, minlength=self.shape[1])
        return largest * np.sqrt(stored + self._implicit_weight(weights) * (mean / safe) ** 2)
