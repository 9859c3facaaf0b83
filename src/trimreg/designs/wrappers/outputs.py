"""Several linear predictors over one design: multi-task and multinomial models."""

from __future__ import annotations

import numpy as np


class MultiOutput:
    """``theta -> Z Theta`` for K outputs; the row of Theta of a feature is K consecutive entries of theta.

    Coefficient k of feature j is entry ``j K + k``, so the coefficients of a feature are a group of
    consecutive coordinates. Predictors are matrices of shape (n, K). X is read once a product, whatever K is.
    """

    def __init__(self, design, n_outputs: int):
        self.inner = design
        self.n_outputs = n_outputs
        n, p = design.shape
        self.shape = (n, p * n_outputs)
        self.dtype = design.dtype
        self.near, self.streamed = getattr(design, "near", True), getattr(design, "streamed", False)
        self.room = getattr(design, "room", np.inf) * n_outputs
        if hasattr(design, "widest_gram"):
            self.widest_gram = design.widest_gram

    def rescaled(self, factor):
        """``factor`` is the same for the coefficients of a feature."""
        return MultiOutput(self.inner.rescaled(factor[:: self.n_outputs]), self.n_outputs)

    def restricted(self, W):
        """``W`` holds whole features."""
        K = self.n_outputs
        return MultiOutput(self.inner.restricted(W[::K] // K), K)

    def expect(self, W):
        features = W // self.n_outputs
        self.inner.expect(features[np.sort(np.unique(features, return_index=True)[1])])

    def matvec(self, v):
        return self.inner.matvec(v.reshape(-1, self.n_outputs))

    def rmatvec(self, r):
        return np.ascontiguousarray(self.inner.rmatvec(r)).ravel()

    def gram(self, rows, d, cols):
        """``rows`` and ``cols`` are whole features; outputs do not mix where the curvature is shared."""
        K = self.n_outputs
        if K == 1:
            return self.inner.gram(rows, d, cols)
        features = cols[::K] // K
        of_rows = features if rows is cols else rows[::K] // K
        return np.kron(self.inner.gram(of_rows, d, features), np.eye(K))

    def columns(self, W):
        """Of a single output: only there does a coordinate stand for a column."""
        if self.n_outputs != 1:
            raise ValueError(f"columns are those of one output; this design has {self.n_outputs}")
        return self.inner.columns(W)

    def compressed(self, y, d):
        """A design and a target of few rows with the same least squares."""
        few, target = self.inner.compressed(y, d)
        return MultiOutput(few, self.n_outputs), target

    def column_norms(self, d):
        return np.repeat(self.inner.column_norms(d), self.n_outputs)

    def original_units(self, theta):
        """Coefficients of shape (K, p) and K intercepts."""
        coef, intercept = self.inner.original_units(theta.reshape(-1, self.n_outputs))
        return coef.T, intercept
