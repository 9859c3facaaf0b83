"""A design with a column of ones behind its last column: the intercept of a non-quadratic loss."""

from __future__ import annotations

import numpy as np


class WithConstant:
    """``[Z, 1]`` over any design. Least squares has no need of it: centring does the same there."""

    def __init__(self, design, scale: float = 1.0):
        self.inner = design
        self.scale = scale
        n, p = design.shape
        self.shape = (n, p + 1)
        self.dtype = design.dtype
        self.near, self.streamed = getattr(design, "near", True), getattr(design, "streamed", False)
        self.room = getattr(design, "room", np.inf) + 1

    def rescaled(self, factor):
        return WithConstant(self.inner.rescaled(factor[:-1]), self.scale * factor[-1])

    def restricted(self, W):
        """The constant, if it is among the columns, is the last of them."""
        if len(W) and W[-1] == self.shape[1] - 1:
            return WithConstant(self.inner.restricted(W[:-1]), self.scale)
        return self.inner.restricted(W)

    def expect(self, W):
        last = self.shape[1] - 1
        self.inner.expect(W[last != W])

    def matvec(self, v):
        return self.inner.matvec(v[:-1]) + self.scale * v[-1]

    def rmatvec(self, r):
        return np.concatenate([self.inner.rmatvec(r), self.scale * r.sum(axis=0, keepdims=True)])

    def columns(self, W):
        out = np.full((self.shape[0], len(W)), self.scale)
        real = np.asarray(W) < self.shape[1] - 1
        out[:, real] = self.inner.columns(np.asarray(W)[real])
        return out

    def row_blocks(self, W):
        """``Z_W`` by blocks of its rows, one after another."""
        cols = np.asarray(W)
        real = cols < self.shape[1] - 1
        for block in self.inner.row_blocks(cols[real]):
            out = np.full((len(block), cols.size), self.scale)
            out[:, real] = block
            yield out

    def gram(self, rows, d, cols):
        cols = np.asarray(cols)
        if rows is None:
            return self.rmatvec(self.columns(cols) * d[:, None])
        rows = cols if rows is cols else np.asarray(rows)
        product = np.empty((len(rows), len(cols)))
        left, right = rows < self.shape[1] - 1, cols < self.shape[1] - 1
        if rows is cols:  # one pass over X
            gram, sums = self.inner.gram_and_sums(cols[right], d)
            of_rows = sums
        else:
            gram, sums = self.inner.gram(rows[left], d, cols[right]), self.inner.weighted_sums(cols[right], d)
            of_rows = self.inner.weighted_sums(rows[left], d)
        product[np.ix_(left, right)] = gram
        product[np.ix_(left, ~right)] = self.scale * of_rows[:, None]
        product[np.ix_(~left, right)] = self.scale * sums
        product[np.ix_(~left, ~right)] = self.scale**2 * d.sum()
        return product

    def gram_and_sums(self, W, d):
        """``Z_W' diag(d) Z_W`` and ``Z_W' d``."""
        return self.gram(W, d, W), self.weighted_sums(W, d)

    def weighted_sums(self, W, d):
        """``Z_W' d``."""
        cols = np.asarray(W)
        out = np.full(cols.size, self.scale * d.sum())
        real = cols < self.shape[1] - 1
        out[real] = self.inner.weighted_sums(cols[real], d)
        return out

    def column_norms(self, d):
        return np.append(self.inner.column_norms(d), self.scale * np.sqrt(d.sum()))

    def original_units(self, theta):
        coef, intercept = self.inner.original_units(theta[:-1])
        return coef, intercept + self.scale * theta[-1]
