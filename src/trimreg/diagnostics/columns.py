r"""The columns of X in the coordinates of the penalty.

The penalty acts on ``theta``, the coefficients of the columns

.. math:: z_j = (x_j - m_j) / s_j,

where ``m`` are the weighted means if an intercept is fitted, or if the loss does not see constants (else 0),
and ``s`` are the weighted root mean square deviations about ``m`` if columns are standardized (else 1). All
is computed from X in float64, by other code than the solvers use: a diagnostic that shared their arithmetic
would share their mistakes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

_BLOCK_ELEMENTS = 1 << 20  # a block of columns in float64 takes 8 MiB, whatever the size of X


class Columns:
    """The matrix Z of the columns ``z_j``, read in blocks of columns and never formed as a whole.

    A column takes no part if it is constant and an intercept is fitted (its deviation is at most
    ``10 eps |mean|``, the rounding of its mean), or if it is zero (or below 1e-300). Then ``z_j = 0``.

    ``theta = coef * scale``, with 0 for columns that take no part; ``norms`` are ``sqrt(sum_i d_i z_ij^2)``.
    """

    def __init__(self, X: Any, d: np.ndarray, *, center: bool, standardize: bool):
        self._X = X
        self.shape = X.shape
        self.eps = float(np.finfo(X.dtype).eps)
        mean, deviation = self._moments(d, center)
        if not (np.isfinite(mean).all() and np.isfinite(deviation).all()):
            raise ValueError("X must hold finite numbers only")
        alive = deviation > np.maximum(10 * self.eps * np.abs(mean) if center else 0.0, 1e-300)
        self._mean = mean if center else None
        self._inverse = np.where(alive, 1.0, 0.0)
        if standardize:
            np.divide(1.0, deviation, out=self._inverse, where=alive)
        self.scale = np.where(alive, deviation if standardize else 1.0, 0.0)
        self.norms = np.where(alive, deviation, 0.0) * self._inverse
        # Sparse columns far from 0: subtracting the mean after a product would leave only rounding.
        self._cancels = np.abs(mean) > 1e3 * deviation

    def blocks(self, width: int = 1) -> Iterator[slice]:
        """Slices of columns for which a block of Z, and ``width`` numbers per column, stay small."""
        n, p = self.shape
        step = max(1, _BLOCK_ELEMENTS // max(n, width, 1))
        return (slice(start, min(start + step, p)) for start in range(0, p, step))

    def pieces(self, which: np.ndarray) -> Iterator[np.ndarray]:
        """The indices ``which`` in pieces whose dense copies stay small."""
        step = max(1, _BLOCK_ELEMENTS // self.shape[0])
        return (which[start : start + step] for start in range(0, which.size, step))

    def _raw(self, cols) -> np.ndarray:
        part = self._X[:, cols]
        return (part.toarray() if sp.issparse(part) else part).astype(float, copy=False)

    def dense(self, cols: Any) -> np.ndarray:
        """``Z[:, cols]`` as a float64 array."""
        part = self._raw(cols)
        if self._mean is not None:
            part = part - self._mean[cols]
        return part * self._inverse[cols]

    def transposed(self, R: np.ndarray, cols: slice) -> np.ndarray:
        """``Z[:, cols]' R`` for a vector or a matrix R."""
        if not sp.issparse(self._X):
            return self.dense(cols).T @ R
        product = self._X[:, cols].T @ R
        if self._mean is not None:
            product = product - np.multiply.outer(self._mean[cols], R.sum(axis=0))
        product = (product.T * self._inverse[cols]).T
        if self._mean is not None:
            bad = np.arange(self.shape[1])[cols][self._cancels[cols]]
            for which in self.pieces(bad):
                product[which - cols.start] = self.dense(which).T @ R
        return product

    def gradient(self, slope: np.ndarray) -> np.ndarray:
        """``Z' slope``: the gradient in theta of a loss with that gradient in the linear predictor."""
        parts = [self.transposed(slope, block) for block in self.blocks()]
        return np.concatenate(parts) if parts else np.zeros(0)

    def predictor(self, coef: np.ndarray) -> np.ndarray:
        """``X coef`` for coefficients in the units of X, of shape (p,) or (p, K)."""
        used = np.flatnonzero(coef.any(axis=1) if coef.ndim == 2 else coef)
        if sp.issparse(self._X):
            return self._X[:, used] @ coef[used]
        total = np.zeros((self.shape[0], *coef.shape[1:]))
        for part in self.pieces(used):
            total += self._raw(part) @ coef[part]
        return total

    def _moments(self, d, center):
        with np.errstate(over="ignore", invalid="ignore"):
            if sp.issparse(self._X):
                return self._sparse_moments(d, center)
            both = [self._dense_moments(self._raw(block), d, center) for block in self.blocks()]
        if not both:
            return np.zeros(0), np.zeros(0)
        mean, deviation = zip(*both, strict=True)
        return np.concatenate(mean), np.concatenate(deviation)

    @staticmethod
    def _dense_moments(part, d, center):
        mean = np.zeros(part.shape[1])
        if center:
            mean = d @ part
            # The mean of n numbers is off by up to n eps. The mean of the remainder corrects it; without
            # that a long constant column would seem to vary.
            mean = mean + d @ (part - mean)
            part = part - mean
        size = np.max(np.abs(part), axis=0, initial=0.0)
        unit = np.where(size > 0, size, 1.0)  # so that squares neither underflow nor overflow
        return mean, size * np.sqrt(d @ (part / unit) ** 2)

    def _sparse_moments(self, d, center):
        X, p = self._X, self.shape[1]
        column = np.repeat(np.arange(p), np.diff(X.indptr))
        value, weight = X.data.astype(float), d[X.indices]
        absent = 1.0 - np.bincount(column, weight, minlength=p)
        # If every row is stored the difference is rounding and must not count as a row of zeros.
        full = np.bincount(column, weight > 0, minlength=p) == np.count_nonzero(d)
        absent = np.where(full, 0.0, np.maximum(absent, 0.0))
        mean = np.zeros(p)
        if center:
            mean = np.bincount(column, weight * value, minlength=p)
            left = np.bincount(column, weight * (value - mean[column]), minlength=p)
            mean = mean + left - absent * mean
        size = np.abs(mean)
        np.maximum.at(size, column, np.abs(value - mean[column]))
        unit = np.where(size > 0, size, 1.0)
        square = np.bincount(column, weight * ((value - mean[column]) / unit[column]) ** 2, minlength=p)
        return mean, size * np.sqrt(square + absent * (mean / unit) ** 2)
