"""Sparse matrices, held by columns (CSC); CSR and the rest are converted once."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from .base import Moments, ScaledMatrix


class SparseDesign(ScaledMatrix):
    """A sparse design. Centring never makes it dense; only working-set blocks are."""

    def __init__(self, X, weights, *, center=False, scale=False):
        X = sp.csc_array(X)
        X.sum_duplicates()
        super().__init__(X, weights, center=center, scale=scale)

    def _product(self, u):
        used = np.flatnonzero(u)
        X = self.X[:, used] if used.size * 8 < u.size else self.X
        return X @ (u[used] if X is not self.X else u)

    def _transposed_product(self, r):
        return self.X.T @ r

    def columns(self, W):
        Z = self.X[:, W].toarray(order="F").astype(float, copy=False)
        if self.offset is not None:
            Z -= self.offset[W]
        return Z * self.inverse_scale[W]

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
        return row_scale[:, None] * product * self.inverse_scale[cols]

    def _moments(self, weights, center):
        p = self.shape[1]
        mean = self.X.T @ weights if center else np.zeros(p)
        return Moments(mean, self._deviations(weights, mean))

    def _deviations(self, weights, mean):
        # Stored entries by their own deviation, the implicit zeros by the mean's.
        X = self.X
        spread = X.data - np.repeat(mean, np.diff(X.indptr))
        largest = np.abs(mean)
        np.maximum.at(largest, np.repeat(np.arange(self.shape[1]), np.diff(X.indptr)), np.abs(spread))
        safe = np.where(largest > 0, largest, 1.0)
        scaled = (spread / np.repeat(safe, np.diff(X.indptr))) ** 2 * weights[X.indices]
        column = np.repeat(np.arange(self.shape[1]), np.diff(X.indptr))
        stored = np.bincount(column, scaled, minlength=self.shape[1])
        stored_weight = np.bincount(column, weights[X.indices], minlength=self.shape[1])
        implicit = np.maximum(weights.sum() - stored_weight, 0.0) * (mean / safe) ** 2
        return largest * np.sqrt(stored + implicit)

    def _weighted_norms(self, d):
        offset = np.zeros(self.shape[1]) if self.offset is None else self.offset
        return self._deviations(d, offset) * self.inverse_scale
