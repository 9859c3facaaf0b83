"""A few columns of a design, copied out: what a working set is solved on."""

from __future__ import annotations

import numpy as np


def weighted_gram(Z, d):
    """``Z' diag(d) Z``; at half the cost where no weight is negative, for NumPy sees that it is symmetric.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.designs.wrappers.block import weighted_gram
    >>> weighted_gram(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, -1.0]))
    array([[ -8., -10.],
           [-10., -12.]])
    """
    if d.min(initial=0.0) < 0:
        return Z.T @ (Z * d[:, None])
    Z = Z * np.sqrt(d)[:, None]
    return Z.T @ Z


class ColumnBlock:
    """A dense float64 matrix as a design, neither centred nor scaled: all that has been done already."""

    near = True
    room = np.inf
    streamed = False

    def expect(self, W):
        """Nothing to do: they are here."""

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

    def gram_and_sums(self, W, d):
        return self.gram(W, d, W), self.weighted_sums(W, d)

    def gram(self, rows, d, cols):
        if rows is not cols:
            return self.Z[:, slice(None) if rows is None else rows].T @ (self.Z[:, cols] * d[:, None])
        return weighted_gram(self.Z if len(cols) == self.shape[1] else self.Z[:, cols], d)

    def column_norms(self, d):
        return np.sqrt(np.einsum("ij,ij,i->j", self.Z, self.Z, d))

    def rescaled(self, factor):
        return ColumnBlock(self.Z * factor)

    def restricted(self, W):
        return ColumnBlock(self.Z[:, W])
