"""Sparse matrices, held by columns (CSC); CSR and the rest are converted once."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from .base import Moments, ScaledMatrix


class SparseDesign(ScaledMatrix):
    """A sparse design. Centring never makes it dense; only working-set blocks are."""

    def __init__(self, X, weights, *, center=False, scale=False):
        X = sp.csc_array(X)
        if not X.has_canonical_format:
            X = X.copy()  # a CSC input shares its arrays with the caller, who keeps them as they were
            X.sum_duplicates()
        super().__init__(X, weights, center=center, scale=scale)
        # Columns whose mean dwarfs their deviation (so nearly all their entries are stored): products
        # of such columns with the mean taken out afterwards would be nothing but rounding.
        self._cancels = np.abs(self.offset) > 1e3 * self._deviation if center else None

    def _product(self, u):
        used = np.flatnonzero(u if u.ndim == 1 else u.any(axis=1))
        X = self.X[:, used] if used.size * 8 < self.shape[1] else self.X
        return X @ (u[used] if X is not self.X else u)

    def _transposed_product(self, r):
        return self.X.T @ r

    def restricted(self, W):
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.X = self.X[:, W]
        other.shape = other.X.shape
        for name in ("offset", "inverse_scale", "_deviation", "_cancels"):
            values = getattr(self, name)
            setattr(other, name, None if values is None else values[W])
        return other

    def columns(self, W):
        Z = self.X[:, W].toarray(order="F").astype(float, copy=False)
        if self.offset is not None:
            Z -= self.offset[W]
        return Z * self.inverse_scale[W]

    def _sums(self, W, d):
        return (self.X[:, W].T @ d) * self.inverse_scale[W]

    def gram(self, rows, d, cols):
        # Z'DZ = u (X'DX - m (d'X) - (X'd) m' + (sum d) m m') u, every product a sparse one.
        left = self.X if rows is None else self.X[:, rows]
        right = self.X[:, cols].astype(float)
        weighted = sp.csc_array((right.data * d[right.indices], right.indices, right.indptr), right.shape)
        product = (left.T @ weighted).toarray()
        row_scale = self.inverse_scale if rows is None else self.inverse_scale[rows]
        if self.offset is not None:
            m_rows = self.offset if rows is None else self.offset[rows]
            m_cols = self.offset[cols]
            sum_rows = left.T @ d
            sum_cols = weighted.sum(axis=0)
            product -= np.outer(m_rows, sum_cols) + np.outer(sum_rows - d.sum() * m_rows, m_cols)
            self._repair(product, left, right, d, rows, cols)
        return row_scale[:, None] * product * self.inverse_scale[cols]

    def _repair(self, product, left, right, d, rows, cols):
        """Compute the rows and columns of a Gram matrix that cancelled again, from centred columns."""
        rows = np.arange(self.shape[1]) if rows is None else np.asarray(rows)
        cols = np.asarray(cols)
        bad_rows, bad_cols = np.flatnonzero(self._cancels[rows]), np.flatnonzero(self._cancels[cols])
        centred = {}
        for side, W, bad in (("rows", rows, bad_rows), ("cols", cols, bad_cols)):
            centred[side] = self.X[:, W[bad]].toarray() - self.offset[W[bad]]
        if bad_cols.size:
            weighted = centred["cols"] * d[:, None]
            product[:, bad_cols] = left.T @ weighted - np.outer(self.offset[rows], weighted.sum(axis=0))
        if bad_rows.size:
            weighted = centred["rows"] * d[:, None]
            product[bad_rows] = (right.T @ weighted - np.outer(self.offset[cols], weighted.sum(axis=0))).T
            product[np.ix_(bad_rows, bad_cols)] = weighted.T @ centred["cols"]

    def _moments(self, weights, center):
        p = self.shape[1]
        mean = self.X.T @ weights if center else np.zeros(p)
        if center:
            # The rounding of a mean would pass for the deviation of a constant column: correct it by
            # the mean of what is left.
            stored = np.bincount(
                self._column_of_entry(), self._spread(mean) * weights[self.X.indices], minlength=p
            )
            mean = mean + (stored - self._implicit_weight(weights) * mean) / weights.sum()
        return Moments(mean, self._deviations(weights, mean))

    def _column_of_entry(self):
        return np.repeat(np.arange(self.shape[1]), np.diff(self.X.indptr))

    def _spread(self, mean):
        """Deviation of every stored entry from the mean of its column."""
        return self.X.data - np.repeat(mean, np.diff(self.X.indptr))

    def _implicit_weight(self, weights):
        """Total weight of the entries of each column that are not stored; exactly 0 where all are."""
        p, column, rows = self.shape[1], self._column_of_entry(), self.X.indices
        missing = weights.sum() - np.bincount(column, weights[rows], minlength=p)
        every = np.bincount(column, weights[rows] > 0, minlength=p) == np.count_nonzero(weights)
        return np.where(every, 0.0, np.maximum(missing, 0.0))

    def _deviations(self, weights, mean):
        # Stored entries by their own deviation, the implicit zeros by the mean's.
        column = self._column_of_entry()
        spread = self._spread(mean)
        largest = np.abs(mean)
        np.maximum.at(largest, column, np.abs(spread))
        safe = np.where(largest > 0, largest, 1.0)
        scaled = (spread / safe[column]) ** 2 * weights[self.X.indices]
        stored = np.bincount(column, scaled, minlength=self.shape[1])
        return largest * np.sqrt(stored + self._implicit_weight(weights) * (mean / safe) ** 2)

    def _weighted_norms(self, d):
        offset = np.zeros(self.shape[1]) if self.offset is None else self.offset
        return self._deviations(d, offset) * self.inverse_scale
