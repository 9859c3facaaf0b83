r"""The matrix as the solvers see it: :class:`Design`, and the parts that most designs share.

A design is a matrix ``Z`` of shape (n, p) that is known by five operations:

==========================  =====================================================================
``matvec(v)``               ``Z v``; ``v`` may have several columns
``rmatvec(r)``              ``Z' r``; ``r`` may have several columns
``columns(W)``              ``Z_W`` as a dense array
``gram(rows, d, cols)``     ``Z_rows' diag(d) Z_cols``; ``rows=None`` means all columns
``column_norms(d)``         ``sqrt(sum_i d_i z_ij^2)`` for every column j
==========================  =====================================================================

``d`` is a vector of sample weights, or of curvatures of the loss. All vectors are float64, whatever the dtype
of the data. Every other method of :class:`Design` has a default made of these five.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np

#: Deviations below this count as 0: dividing by them would overflow.
SMALLEST = 1e-300
#: Number of columns up to which the Gram matrix of all columns is worth one pass over far data.
WIDEST_GRAM = 3000
BLOCK_ELEMENTS = 1 << 17  # 1 MiB in float64: temporaries of this size stay in cache


class VirtualMatrix:
    """A matrix that is not an array: on disk, on a cluster, on a GPU, or known by its products alone.

    Estimators accept one as ``X``. They ask it for a design to fit with, and for products to predict with.
    """

    shape: tuple[int, int]
    #: Type of the returned coefficients: float64, or float32 if the data are float32 or bfloat16.
    dtype: Any = np.dtype(float)
    ndim = 2
    #: Whether the data are in memory. If not, an operation costs a pass over them.
    near = False
    #: Whether the object can be sent to another process.
    portable = True
    #: Bytes that predictions may take at a time.
    memory: float = np.inf
    feature_names: list[str] | None = None

    def design(self, weights: np.ndarray, *, center: bool = False, scale: Any = False) -> ScaledMatrix:
        """The design over this matrix with centered and scaled columns; NaN and inf are refused."""
        raise NotImplementedError

    def product(self, coef: np.ndarray, intercept: Any = 0.0) -> np.ndarray:
        """``X coef + intercept`` in float64; ``coef`` has shape (p,) or (p, k)."""
        raise NotImplementedError

    def with_room_for(self, loss: Any) -> VirtualMatrix:
        """This matrix with the memory set aside that a fit with ``loss`` needs for its vectors."""
        return self

    def describe(self) -> str:
        """One line for messages: kind, shape and dtype."""
        n, p = self.shape
        return f"{type(self).__name__} {n} x {p} {np.dtype(self.dtype)}"

    def __repr__(self) -> str:
        return f"<{self.describe()}>"


class Design(VirtualMatrix, ABC):
    """Base class of all designs. A subclass sets ``shape`` and ``dtype`` and writes the five operations.

    Everything else has a default, which a subclass overrides if it knows a faster way.
    """

    near = True
    #: Number of columns that can be kept in memory.
    room: float = np.inf
    #: Whether columns are so long that they should be read by blocks of rows.
    streamed = False
    widest_gram = WIDEST_GRAM

    @abstractmethod
    def matvec(self, v: np.ndarray) -> np.ndarray:
        """``Z v``, for ``v`` of shape (p,) or (p, k)."""

    @abstractmethod
    def rmatvec(self, r: np.ndarray) -> np.ndarray:
        """``Z' r``, for ``r`` of shape (n,) or (n, k)."""

    @abstractmethod
    def columns(self, W: np.ndarray) -> np.ndarray:
        """``Z_W`` as a new float64 array."""

    @abstractmethod
    def gram(self, rows: np.ndarray | None, d: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """``Z_rows' diag(d) Z_cols``; ``rows=None`` means all columns."""

    @abstractmethod
    def column_norms(self, d: np.ndarray) -> np.ndarray:
        """``sqrt(sum_i d_i z_ij^2)`` for every column j."""

    def weighted_sums(self, W: np.ndarray, d: np.ndarray) -> np.ndarray:
        """``Z_W' d``."""
        return d @ self.columns(W)

    def gram_and_sums(self, W: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``Z_W' diag(d) Z_W`` and ``Z_W' d``; one pass over far data."""
        return self.gram(W, d, W), self.weighted_sums(W, d)

    def combination_moments(self, W: np.ndarray, V: np.ndarray, positions: np.ndarray, d: np.ndarray) -> Any:
        """For ``C = Z_W V``: the sums of ``d c^2``, and ``Z_W' diag(d) C`` at these ``positions`` of W."""
        Z = self.columns(W)
        C = Z @ V
        return d @ C**2, Z[:, positions].T @ (d[:, None] * C)

    def row_blocks(self, W: np.ndarray) -> Iterator[np.ndarray]:
        """``Z_W`` in blocks of consecutive rows."""
        yield self.columns(W)

    def expect(self, W: np.ndarray) -> None:
        """A hint: these columns, the likeliest first, may be asked for next."""

    # -- other designs over the same data -----------------------------------------------------------------

    def rescaled(self, factor: np.ndarray) -> Design:
        """The design ``Z diag(factor)`` over the same data."""
        from .wrappers import Standardized

        return Standardized.of_factor(self, factor)

    def restricted(self, W: np.ndarray) -> Design:
        """The design ``Z_W``, in memory."""
        return ColumnBlock(self.columns(W))

    def compressed(self, y: np.ndarray, d: np.ndarray) -> tuple[Design, np.ndarray]:
        """A design and a target of few rows with the same least squares: :func:`compressed_rows`."""
        every = np.arange(self.shape[1])
        return compressed_rows(self.gram(every, d, every), self.rmatvec((d * y.T).T), y, d, source=self)

    def uncompressed(self, d: np.ndarray) -> tuple[Design, np.ndarray]:
        """The design with all its rows and their sample weights, if this is a compressed one."""
        return self, d

    @property
    def features(self) -> Any:
        """The design of the features alone, without an added constant column or several outputs."""
        return self

    # -- as the X of an estimator -------------------------------------------------------------------------

    def design(self, weights: np.ndarray, *, center: bool = False, scale: Any = False) -> ScaledMatrix:
        from .wrappers import Standardized

        return Standardized(self, weights, center=center, scale=scale)

    def product(self, coef: np.ndarray, intercept: Any = 0.0) -> np.ndarray:
        return self.matvec(np.asarray(coef, dtype=float)) + intercept

    def original_units(self, theta: np.ndarray) -> tuple[np.ndarray, Any]:
        """Coefficients for the user's columns, and the intercept that stands for their centering."""
        return theta, 0.0 if theta.ndim == 1 else np.zeros(theta.shape[1])

    def __getitem__(self, key) -> np.ndarray:
        """``X[:, cols]`` as an array, as the diagnostics read X."""
        return self.columns(np.arange(self.shape[1])[key[1]])


def deviations_by_squares(square, shift):
    """``sqrt(square - shift^2)``, and the columns for which this formula is not accurate.

    It cancels if the mean dwarfs the deviation, and under- or overflows for extreme columns.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        variance = square - shift**2
        unsafe = ~(variance > 1e-4 * square) | (square < 1e-290) | ~np.isfinite(square)
    return np.sqrt(np.where(unsafe, 0.0, variance)), np.flatnonzero(unsafe)


class ScaledMatrix(Design):
    """``Z = (X - 1 m') diag(u)``: a matrix ``X`` whose columns are centered and scaled implicitly.

    Neither ``m`` nor ``u`` is ever applied to ``X`` itself, so a standardized sparse or memory-mapped matrix
    needs no more memory than ``X``. Means and deviations are weighted. Subclasses provide products with
    ``X``. The arguments are those of :func:`trimreg.designs.as_design`.
    """

    def __init__(self, X: Any, weights: np.ndarray, *, center: bool = False, scale: Any = False):
        self.X = X
        self.shape = X.shape
        self.dtype = X.dtype
        mean, deviation = self._moments(weights, center)
        # A column is constant if its deviation is only rounding of its mean, or too small to divide by. Its
        # inverse scale is 0: the solvers see a column of exact zeros, and never select it.
        floor = 10 * np.finfo(X.dtype).eps * np.abs(mean) if center else 0.0
        alive = deviation > np.maximum(floor, SMALLEST)
        self.offset: np.ndarray | None = mean if center else None
        self.inverse_scale = alive.astype(float)
        if np.any(scale):
            unit = deviation if scale is True else scale
            np.divide(1.0, unit, out=self.inverse_scale, where=alive & (unit > SMALLEST))
        self._norm_weights: np.ndarray | None = weights
        self._deviation = np.where(alive, deviation, 0.0)

    def rescaled(self, factor: np.ndarray) -> Any:
        other = copy.copy(self)
        other.inverse_scale = self.inverse_scale * factor
        return other

    def _part(self, X, W):
        """This design with ``X``, the columns W of its matrix, in place of the whole matrix."""
        other = copy.copy(self)
        other.X, other.shape = X, (self.shape[0], len(W))
        other.offset = None if self.offset is None else self.offset[W]
        other.inverse_scale, other._deviation = self.inverse_scale[W], self._deviation[W]
        return other

    def matvec(self, v: np.ndarray) -> np.ndarray:
        u = (v.T * self.inverse_scale).T
        product = self._product(u)
        return product if self.offset is None else product - self.offset @ u

    def rmatvec(self, r: np.ndarray) -> np.ndarray:
        product = self._transposed_product(r)
        # One vector at a time and in place: a product with several is the largest array of a fit.
        for one, total in zip(np.atleast_2d(product.T), np.atleast_1d(r.sum(axis=0)), strict=True):
            if self.offset is not None:
                one -= total * self.offset
            one *= self.inverse_scale
        return product

    def columns(self, W: np.ndarray) -> np.ndarray:
        return self._scaled(self._take(W), W)

    def column_norms(self, d: np.ndarray) -> np.ndarray:
        if d is self._norm_weights:
            return self._deviation * self.inverse_scale
        return self._weighted_norms(d)

    def weighted_sums(self, W: np.ndarray, d: np.ndarray) -> np.ndarray:
        sums = self._sums(W, d)
        return sums if self.offset is None else sums - d.sum() * self.offset[W] * self.inverse_scale[W]

    def original_units(self, theta: np.ndarray) -> tuple[np.ndarray, Any]:
        coef = (theta.T * self.inverse_scale).T
        if self.offset is None:
            return coef, 0.0 if theta.ndim == 1 else np.zeros(theta.shape[1])
        return coef, -(self.offset @ coef)

    def _product(self, u):
        raise NotImplementedError  # X u

    def _transposed_product(self, r):
        raise NotImplementedError  # X' r, a new array

    def _take(self, W):
        raise NotImplementedError  # the columns W of X, a new float64 array

    def _sums(self, W, d):
        raise NotImplementedError  # X_W' d times the inverse scale

    def _moments(self, weights, center):
        raise NotImplementedError  # weighted means, and root mean square deviations about them (or about 0)

    def _scaled(self, Z, W):
        """``Z_W`` from the raw columns, in place."""
        if self.offset is not None:
            Z -= self.offset[W]
        Z *= self.inverse_scale[W]
        return Z

    def _weighted_norms(self, d):
        offset = np.zeros(self.shape[1]) if self.offset is None else self.offset
        return self._deviations(d, offset, np.arange(self.shape[1])) * self.inverse_scale

    def _deviations(self, weights, mean, which, refine=False):
        """Root mean square deviations of the columns ``which`` about ``mean``.

        With ``refine``, ``mean`` is first corrected in place by the mean of the residuals. Otherwise its
        rounding, of order n eps, would look like the deviation of a constant column.
        """
        deviation = np.empty(which.size)
        step = max(1, BLOCK_ELEMENTS // max(self.shape[0], 1))
        for start in range(0, which.size, step):
            part = slice(start, start + step)
            spread = self._take(which[part]) - mean[part]
            if refine:
                better = mean[part] + weights @ spread / weights.sum()
                spread -= better - mean[part]
                mean[part] = better
            largest = np.max(np.abs(spread), axis=0, initial=0.0)
            safe = np.where(largest > 0, largest, 1.0)
            deviation[part] = largest * np.sqrt(weights @ (spread / safe) ** 2)
        return deviation

    def _refined_moments(self, weights, mean, square, center):
        """Moments from means and mean squares; from the columns themselves if those are not accurate."""
        deviation, redo = deviations_by_squares(square, mean)
        again = mean[redo]
        deviation[redo] = self._deviations(weights, again, redo, refine=center)
        mean[redo] = again
        return mean, deviation


def weighted_gram(Z: np.ndarray, d: np.ndarray) -> np.ndarray:
    """``Z' diag(d) Z``; without negative weights at half the cost, since NumPy sees the symmetry."""
    if d.min(initial=0.0) < 0:
        return Z.T @ (Z * d[:, None])
    Z = Z * np.sqrt(d)[:, None]
    return Z.T @ Z


class ColumnBlock(Design):
    """A dense float64 array as a design, for example the columns of a working set."""

    def __init__(self, Z: np.ndarray):
        self.Z = Z
        self.shape = Z.shape
        self.dtype = Z.dtype

    def matvec(self, v: np.ndarray) -> np.ndarray:
        return self.Z @ v

    def rmatvec(self, r: np.ndarray) -> np.ndarray:
        return self.Z.T @ r

    def columns(self, W: np.ndarray) -> np.ndarray:
        return self.Z[:, W]

    def gram(self, rows: np.ndarray | None, d: np.ndarray, cols: np.ndarray) -> np.ndarray:
        if rows is not cols:
            return self.Z[:, slice(None) if rows is None else rows].T @ (self.Z[:, cols] * d[:, None])
        return weighted_gram(self.Z if len(cols) == self.shape[1] else self.Z[:, cols], d)

    def column_norms(self, d: np.ndarray) -> np.ndarray:
        return np.sqrt(np.einsum("ij,ij,i->j", self.Z, self.Z, d))

    def rescaled(self, factor: np.ndarray) -> Any:
        return ColumnBlock(self.Z * factor)


class CompressedDesign(ColumnBlock):
    """Few rows with the least squares of many; ``source`` is the original design and its sample weights."""

    def __init__(self, Z: np.ndarray, source: tuple):
        super().__init__(Z)
        self.source = source

    def rescaled(self, factor: np.ndarray) -> Any:
        design, d = self.source
        return CompressedDesign(self.Z * factor, (design.rescaled(factor), d))

    def uncompressed(self, d: np.ndarray) -> Any:
        return self.source

    def original_units(self, theta: np.ndarray) -> tuple[np.ndarray, Any]:
        return self.source[0].original_units(theta)


def compressed_rows(gram, target, y, d, source=None) -> tuple[CompressedDesign, np.ndarray]:
    r"""A design and a target of p + K rows, of equal weights, with the least squares of ``Z`` and ``y``.

    Least squares sees the data only through :math:`Z'DZ`, :math:`Z'Dy` and :math:`y'Dy`. So with R and r in

    .. math:: [R\; r]'[R\; r] = [Z\; y]' D\, [Z\; y],

    the p + K rows of ``[R r]`` give the same objective as all rows of ``[Z y]``, and fit in memory whatever n
    is. Rounding enters once, with the square of the condition number, so the solvers check the solution on
    the data again.

    ``gram`` is ``Z' D Z``, positive semidefinite up to rounding, and ``target`` is ``Z' D y``. ``source`` is
    the design that they came from.
    """
    from scipy.linalg import solve_triangular
    from scipy.linalg.lapack import dpstrf

    p, outputs = gram.shape[0], 1 if target.ndim == 1 else target.shape[1]
    unit = np.sqrt(np.maximum(np.diagonal(gram), 0.0))
    inverse = np.divide(1.0, unit, out=np.zeros(p), where=unit > 0)
    # With pivoting, columns that are combinations of others up to rounding come out as exactly that.
    factor, pivots, rank, _ = dpstrf(gram * inverse * inverse[:, None], tol=p * np.finfo(float).eps)
    pivots, factor = pivots - 1, np.triu(factor)[:rank]
    count = p + outputs  # also if the rank is lower: the number of rows must not depend on rounding
    Z, few = np.zeros((count, p)), np.zeros((count, *target.shape[1:]))
    Z[:rank, pivots] = factor
    right = (target.T * inverse).T[pivots[:rank]]
    few[:rank] = solve_triangular(factor[:, :rank], right, trans="T")
    left = _square_root(np.atleast_2d((d * y.T) @ y) - np.atleast_2d(few.T @ few))
    few[p:] = left if target.ndim == 2 else left[0]
    root = np.sqrt(count)  # each row has weight 1 / count
    return CompressedDesign(Z * (root * unit), (source, d)), few * root


def _square_root(matrix):
    """The symmetric root of a matrix that is positive semidefinite up to rounding."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
