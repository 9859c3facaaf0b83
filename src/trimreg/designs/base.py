r"""What a design is: the matrix that the solvers see, and how they may touch it.

A design stands for ``Z = (X - 1 m') diag(u)``: the user's matrix ``X`` with columns centred by
``m`` and multiplied by ``u`` (the inverse scale). Neither is ever applied to ``X`` itself, so a
centred and standardized sparse or memory-mapped matrix costs nothing but its own bytes.

Solvers know ``Z`` by five operations:

==========================  =====================================================================
``matvec(v)``               ``Z v``; ``v`` may hold several columns
``rmatvec(r)``              ``Z' r``; ``r`` may hold several columns
``columns(W)``              ``Z_W`` as a dense array
``gram(rows, d, cols)``     ``Z_rows' diag(d) Z_cols``; ``rows=None`` means every column
``column_norms(d)``         ``sqrt(sum_i d_i z_ij^2)`` for every column j
==========================  =====================================================================

``d`` is a vector of sample weights (or of curvatures of the loss), so sample weights are implicit
too. All vectors that cross this interface are float64, whatever the dtype of ``X``.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from .wrappers.block import ColumnBlock


class Design(Protocol):
    """The five operations, the same matrix under another column scaling, and a part of it."""

    shape: tuple[int, int]
    dtype: np.dtype
    near: bool  # whether X is in memory; where it is not, an operation costs a pass over it

    def matvec(self, v: np.ndarray) -> np.ndarray: ...

    def rmatvec(self, r: np.ndarray) -> np.ndarray: ...

    def columns(self, W: np.ndarray) -> np.ndarray: ...

    def gram(self, rows: np.ndarray | None, d: np.ndarray, cols: np.ndarray) -> np.ndarray: ...

    def column_norms(self, d: np.ndarray) -> np.ndarray: ...

    def gram_and_sums(self, W: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``Z_W' diag(d) Z_W`` and ``Z_W' d``."""
        ...

    def rescaled(self, factor: np.ndarray) -> Design:
        """The design ``Z diag(factor)`` over the same ``X``."""
        ...

    def restricted(self, W: np.ndarray) -> Design:
        """The design ``Z_W`` of a few columns, in memory."""
        ...


#: Deviations below this count as 0: the coefficient of such a column could be no number.
SMALLEST = 1e-300


class Moments(NamedTuple):
    """Weighted mean and root mean square deviation (about ``mean`` or about 0) of every column."""

    mean: np.ndarray
    deviation: np.ndarray


class ScaledMatrix:
    """The part that every design over a matrix shares: the implicit centring and scaling.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, p), or rows that lie elsewhere
    weights : ndarray of shape (n,)
        Sample weights that sum to one; means and deviations are taken under them.
    center : bool
        Whether to centre the columns.
    scale : bool or ndarray of shape (p,)
        Whether to divide the columns by their deviation, or what to divide them by.
    """

    near = True
    room = np.inf  # columns that can be held in memory
    streamed = False  # whether columns are so long that they should be asked for by blocks of rows

    def expect(self, W):
        """A hint: these columns, the likeliest first, may be asked for next."""

    def __init__(self, X, weights: np.ndarray, *, center: bool = False, scale=False):
        self.X = X
        self.shape = X.shape
        self.dtype = X.dtype
        moments = self._moments(weights, center)
        # A column is constant when its deviation is nothing but rounding of its mean, or too small to
        # divide by. Its inverse scale is 0: it takes part as an exact zero, which no solver ever selects.
        floor = 10 * np.finfo(X.dtype).eps * np.abs(moments.mean) if center else 0.0
        alive = moments.deviation > np.maximum(floor, SMALLEST)
        self.offset = moments.mean if center else None
        self.inverse_scale = alive.astype(float)
        if np.any(scale):
            unit = moments.deviation if scale is True else scale
            np.divide(1.0, unit, out=self.inverse_scale, where=alive & (unit > SMALLEST))
        self._norm_weights = weights
        self._deviation = np.where(alive, moments.deviation, 0.0)

    def rescaled(self, factor):
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.inverse_scale = self.inverse_scale * factor
        return other

    def restricted(self, W):
        return ColumnBlock(self.columns(W))

    def matvec(self, v):
        u = (v.T * self.inverse_scale).T
        product = self._product(u)
        return product if self.offset is None else product - self.offset @ u

    def rmatvec(self, r):
        product = self._transposed_product(r)
        # A vector at a time and in place: the product with several is the largest array of a fit.
        for one, total in zip(np.atleast_2d(product.T), np.atleast_1d(r.sum(axis=0)), strict=True):
            if self.offset is not None:
                one -= total * self.offset
            one *= self.inverse_scale
        return product

    def column_norms(self, d):
        if d is self._norm_weights:
            return self._deviation * self.inverse_scale
        return self._weighted_norms(d)

    def weighted_sums(self, W, d):
        """``Z_W' d``."""
        sums = self._sums(W, d)
        return sums if self.offset is None else sums - d.sum() * self.offset[W] * self.inverse_scale[W]

    def gram_and_sums(self, W, d):
        """``Z_W' diag(d) Z_W`` and ``Z_W' d``: by one pass, where passes are dear."""
        return self.gram(W, d, W), self.weighted_sums(W, d)

    def compressed(self, y, d):
        """A design and a target of few rows with the same least squares:
        :mod:`trimreg.designs.wrappers.compression`."""
        from .wrappers.compression import few_rows

        every = np.arange(self.shape[1])
        return few_rows(self.gram(every, d, every), self.rmatvec((d * y.T).T), y, d, source=self)

    def row_blocks(self, W):
        """``Z_W`` by blocks of its rows, one after another."""
        yield self.columns(W)

    def original_units(self, theta: np.ndarray):
        """Coefficients for ``X`` itself, and the intercept that the centring took away."""
        coef = (theta.T * self.inverse_scale).T
        if self.offset is None:
            return coef, 0.0 if theta.ndim == 1 else np.zeros(theta.shape[1])
        return coef, -(self.offset @ coef)
