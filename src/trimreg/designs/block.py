"""A few columns of a design, copied out: what a working set is solved on."""

from __future__ import annotations

import numpy as np


class ColumnBlock:
    """A dense float64 matrix as a design, neither centred nor scaled: all that has been done already."""

    def __init__(self, Z: np.ndarray):
        self.Z = Z
        self.shape = Z.shape
        self.dtype = Z.dtype

    def matvec(self, v):
        return self.Z @ v

    def rmatvec(self, r):
        return self.Z.T @ r

    def columns(self, W):
        return self.Z[:, W]

    def weighted_sums(self, W, d):
        return d @ self.Z[:, W]

    def gram(self, rows, d, cols):
        if rows is not cols:
            return self.Z[:, slice(None) if rows is None else rows].T @ (self.Z[:, cols] * d[:, None])
        Z = self.Z if len(cols) == self.shape[1] else self.Z[:, cols]
        return Z.T @ (Z * d[:, None])

    def column_norms(self, d):
        return np.sqrt(np.einsum("ij,ij,i->j", self.Z, self.Z, d))

    def rescaled(self, factor):
        return ColumnBlock(self.Z * factor)

    def restricted(self, W):
        return ColumnBlock(self.Z[:, W])
