"""Designs made of another design: standardized columns, a constant column, several outputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .base import Design, ScaledMatrix


class Standardized(ScaledMatrix):
    """``(X - 1 m') diag(u)`` over any design ``X``, made of its five operations."""

    def __init__(self, X: Design, weights: np.ndarray, *, center: bool = False, scale: Any = False):
        super().__init__(X, weights, center=center, scale=scale)
        self._describe_like(X)

    @classmethod
    def of_factor(cls, X: Design, factor: np.ndarray) -> Standardized:
        """``X diag(factor)``, without centering."""
        self = object.__new__(cls)
        self.X, self.shape, self.dtype = X, X.shape, X.dtype
        self.offset, self.inverse_scale = None, np.asarray(factor, dtype=float)
        self._norm_weights = None
        self._describe_like(X)
        return self

    def _describe_like(self, X):
        self.near, self.room, self.streamed, self.widest_gram = X.near, X.room, X.streamed, X.widest_gram

    def _product(self, u):
        return self.X.matvec(u)

    def _transposed_product(self, r):
        return np.array(self.X.rmatvec(r), dtype=float)

    def _take(self, W):
        return np.array(self.X.columns(W), dtype=float)

    def _sums(self, W, d):
        return self.X.weighted_sums(W, d) * self.inverse_scale[W]

    def gram(self, rows: np.ndarray | None, d: np.ndarray, cols: np.ndarray) -> np.ndarray:
        if self.offset is None:
            left = self.inverse_scale if rows is None else self.inverse_scale[rows]
            return left[:, None] * self.X.gram(rows, d, cols) * self.inverse_scale[cols]
        weighted = self.columns(cols) * d[:, None]  # not by X.gram less the means: that may cancel
        return self.rmatvec(weighted) if rows is None else self.columns(rows).T @ weighted

    def expect(self, W: np.ndarray) -> None:
        self.X.expect(W)

    def _moments(self, weights, center):
        with np.errstate(over="ignore", invalid="ignore"):
            mean = self._transposed_product(weights) if center else np.zeros(self.shape[1])
            square = np.asarray(self.X.column_norms(weights), dtype=float) ** 2
            mean, deviation = self._refined_moments(weights, mean, square, center)
        bad = np.flatnonzero(~(np.isfinite(mean) & np.isfinite(deviation)))
        if bad.size:
            raise ValueError(f"X contains NaN or inf in column {bad[0]}; drop or impute missing values")
        return mean, deviation

    def _weighted_norms(self, d):
        if self.offset is None:
            return self.X.column_norms(d) * self.inverse_scale
        return super()._weighted_norms(d)

    def original_units(self, theta: np.ndarray) -> tuple[np.ndarray, Any]:
        coef, intercept = super().original_units(theta)
        coef, more = self.X.original_units(coef)
        return coef, intercept + more


class WithConstant(Design):
    """``[Z, 1]`` over any design: the intercept of a loss that is not quadratic.

    Least squares does not need it, because centering has the same effect.
    """

    def __init__(self, design: Design, scale: float = 1.0):
        self.inner = design
        self.scale = scale
        n, p = design.shape
        self.shape = (n, p + 1)
        self.dtype = design.dtype
        self.near, self.streamed, self.room = design.near, design.streamed, design.room + 1

    @property
    def features(self) -> Any:
        return self.inner.features

    def rescaled(self, factor: np.ndarray) -> Any:
        return WithConstant(self.inner.rescaled(factor[:-1]), self.scale * factor[-1])

    def restricted(self, W: np.ndarray) -> Any:
        """``Z_W``; the constant, if it is among the columns, is the last of them."""
        if len(W) and W[-1] == self.shape[1] - 1:
            return WithConstant(self.inner.restricted(W[:-1]), self.scale)
        return self.inner.restricted(W)

    def expect(self, W: np.ndarray) -> None:
        self.inner.expect(W[self._real(W)])

    def _real(self, W):
        """Which of the columns W are not the constant."""
        return np.asarray(W) < self.shape[1] - 1

    def matvec(self, v: np.ndarray) -> np.ndarray:
        return self.inner.matvec(v[:-1]) + self.scale * v[-1]

    def rmatvec(self, r: np.ndarray) -> np.ndarray:
        return np.concatenate([self.inner.rmatvec(r), self.scale * r.sum(axis=0, keepdims=True)])

    def columns(self, W: np.ndarray) -> np.ndarray:
        return self._with_constant(W, self.inner.columns(np.asarray(W)[self._real(W)]))

    def row_blocks(self, W: np.ndarray) -> Iterator[np.ndarray]:
        for block in self.inner.row_blocks(np.asarray(W)[self._real(W)]):
            yield self._with_constant(W, block)

    def _with_constant(self, W, block):
        out = np.full((len(block), len(W)), self.scale)
        out[:, self._real(W)] = block
        return out

    def gram(self, rows: np.ndarray | None, d: np.ndarray, cols: np.ndarray) -> np.ndarray:
        cols = np.asarray(cols)
        if rows is None:
            return self.rmatvec(self.columns(cols) * d[:, None])
        rows = cols if rows is cols else np.asarray(rows)
        product = np.empty((len(rows), len(cols)))
        left, right = self._real(rows), self._real(cols)
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

    def weighted_sums(self, W: np.ndarray, d: np.ndarray) -> np.ndarray:
        real = self._real(W)
        out = np.full(real.size, self.scale * d.sum())
        out[real] = self.inner.weighted_sums(np.asarray(W)[real], d)
        return out

    def column_norms(self, d: np.ndarray) -> np.ndarray:
        return np.append(self.inner.column_norms(d), self.scale * np.sqrt(d.sum()))

    def original_units(self, theta: np.ndarray) -> tuple[np.ndarray, Any]:
        coef, intercept = self.inner.original_units(theta[:-1])
        return coef, intercept + self.scale * theta[-1]


class MultiOutput(Design):
    """``theta -> Z Theta`` for K outputs: multi-task and multinomial models.

    Coefficient k of feature j is entry ``j K + k`` of theta, so the coefficients of a feature form a group of
    consecutive coordinates. Predictors have shape (n, K). A product reads X once, whatever K is.
    """

    def __init__(self, design: Design, n_outputs: int):
        self.inner = design
        self.n_outputs = n_outputs
        n, p = design.shape
        self.shape = (n, p * n_outputs)
        self.dtype = design.dtype
        self.near, self.streamed, self.room = design.near, design.streamed, design.room * n_outputs
        self.widest_gram = design.widest_gram

    @property
    def features(self) -> Any:
        return self.inner.features

    def rescaled(self, factor: np.ndarray) -> Any:
        """``Z diag(factor)``; the factor must be the same for all coefficients of a feature."""
        return MultiOutput(self.inner.rescaled(factor[:: self.n_outputs]), self.n_outputs)

    def restricted(self, W: np.ndarray) -> Any:
        """The part of the features that ``W`` holds; it must hold whole features."""
        K = self.n_outputs
        return MultiOutput(self.inner.restricted(W[::K] // K), K)

    def expect(self, W: np.ndarray) -> None:
        features = W // self.n_outputs
        self.inner.expect(features[np.sort(np.unique(features, return_index=True)[1])])

    def matvec(self, v: np.ndarray) -> np.ndarray:
        return self.inner.matvec(v.reshape(-1, self.n_outputs))

    def rmatvec(self, r: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(self.inner.rmatvec(r)).ravel()

    def gram(self, rows: np.ndarray | None, d: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """``rows`` and ``cols`` are whole features; with a shared curvature the outputs do not mix."""
        K = self.n_outputs
        if K == 1:
            return self.inner.gram(rows, d, cols)
        features = cols[::K] // K
        of_rows = None if rows is None else features if rows is cols else rows[::K] // K
        return np.kron(self.inner.gram(of_rows, d, features), np.eye(K))

    def columns(self, W: np.ndarray) -> np.ndarray:
        """``Z_W`` of a single output; with several, a coordinate is not a column."""
        if self.n_outputs != 1:
            raise ValueError(f"columns need a design with one output; this design has {self.n_outputs}")
        return self.inner.columns(W)

    def compressed(self, y: np.ndarray, d: np.ndarray) -> Any:
        few, target = self.inner.compressed(y, d)
        return MultiOutput(few, self.n_outputs), target

    def uncompressed(self, d: np.ndarray) -> Any:
        return self.inner.uncompressed(d)

    def column_norms(self, d: np.ndarray) -> np.ndarray:
        return np.repeat(self.inner.column_norms(d), self.n_outputs)

    def original_units(self, theta: np.ndarray) -> tuple[np.ndarray, Any]:
        """Coefficients of shape (K, p) and K intercepts."""
        coef, intercept = self.inner.original_units(theta.reshape(-1, self.n_outputs))
        return coef.T, intercept
