r"""A matrix known by blocks of its rows, wherever they lie: on disk, on a cluster, behind a generator.

Every operation of a design is a sum over rows, or a vector with one entry per row. So a matrix that cannot be
held needs a single ability: to run a function on each block of its rows and to hand back what it returned.
That is :class:`Rows`. Whoever can ``sweep`` gets everything else from :class:`FarRows`:

.. math:: X'r = \sum_{b} X_b' r_b, \qquad (X v)_b = X_b v .

A sweep over all rows is a *pass*. Passes are what far data cost, so the rows count them.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

#: Bytes of raw columns that are kept near, where the rows set no bound themselves.
NEAR_MEMORY = 256 << 20
#: Columns up to which the Gram matrix of all of them is worth a pass, where the rows do not say.
WIDEST_GRAM = 3000
_CACHED_ELEMENTS = 1 << 17  # parts of a block that are computed with at a time: 1 MiB in float64


class Rows(Protocol):
    """What a matrix of far rows must offer.

    Attributes
    ----------
    shape : tuple of two int
    dtype : numpy.dtype
        float32 or float64: how the numbers are stored. Arithmetic is float64 in either case.
    nbytes : int
    passes : int
        How often all rows have been gone through so far.
    memory : int
        Bytes of raw columns that may be kept near.
    widest_gram : int
        Columns up to which least squares builds the Gram matrix of all of them: more, the slower a pass is
        beside the arithmetic.
    """

    shape: tuple[int, int]
    dtype: np.dtype
    nbytes: int
    passes: int
    memory: int
    widest_gram: int

    def sweep(self, kernel, vectors=(), arguments=()):
        """Yield ``kernel(block, *parts, *arguments)`` for each block of rows, in order: one pass.

        ``block`` is an array (rows, p) of the storage dtype and valid only during the call. ``parts`` are the
        block's rows of each array in ``vectors``, whose first dimension is n. ``kernel`` is a function of a
        module, because it may be sent to another process; it returns a small array or a tuple of arrays.
        """
        ...

    def read_columns(self, W: np.ndarray, out) -> None:
        """Write the columns W into the arrays of ``out``, one each."""
        ...

    def narrowed(self, W: np.ndarray):
        """The columns W: an array (n, len(W)) of the storage dtype, or rows again where that is too large."""
        ...


def cached_parts(block, width=None):
    """Slices of the rows of ``block`` that are small enough to be computed with in cache.

    ``width`` is how many numbers of a row are computed with; all of them by default.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.designs.far.rows import cached_parts
    >>> [(part.start, part.stop) for part in cached_parts(np.ones((3, 100_000)))]
    [(0, 1), (1, 2), (2, 3)]
    """
    n, p = block.shape
    step = max(1, _CACHED_ELEMENTS // max(p if width is None else width, 1))
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]


def block_product(block, coef):
    """``block @ coef`` in float64, a part that fits in cache at a time."""
    product = np.empty((block.shape[0], *coef.shape[1:]))
    for part in cached_parts(block):
        product[part] = block[part].astype(float, copy=False) @ coef
    return product


def block_columns(block, W):
    """A copy of the columns W of a block."""
    return np.take(block, W, axis=1)


def _kernel_on_columns(block, *parts_and_arguments):
    *rest, kernel, W = parts_and_arguments
    return kernel(np.take(block, W, axis=1), *rest)


def stacked(pieces, out):
    """Write pieces, each with its rows first, one behind the other into ``out``; return ``out``."""
    start = 0
    for piece in pieces:
        out[start : start + len(piece)] = piece
        start += len(piece)
    return out


class FarRows:
    """What follows from ``shape``, ``dtype`` and ``sweep``: narrowing, prediction, a design, a description.

    A class that takes this in must itself add one to ``passes`` in each sweep. See :class:`ArrayRows`.
    """

    passes = 0
    memory = NEAR_MEMORY
    widest_gram = WIDEST_GRAM
    kind = "rows"

    @property
    def nbytes(self):
        return self.shape[0] * self.shape[1] * np.dtype(self.dtype).itemsize

    def __repr__(self):
        return f"<{self.describe()}>"

    def describe(self) -> str:
        """One line for messages: what this is, its shape and its dtype."""
        n, p = self.shape
        return f"{self.kind} {n} x {p} {np.dtype(self.dtype)}"

    def read_columns(self, W, out) -> None:
        """Write the columns W into the arrays of ``out``, one each, by one pass.

        The place to override where columns lie by themselves: there it need not be a whole pass.
        """
        start = 0
        for piece in self.sweep(block_columns, arguments=(np.asarray(W, dtype=np.intp),)):
            for column, values in zip(out, piece.T, strict=True):
                column[start : start + len(piece)] = values
            start += len(piece)

    def narrowed(self, W):
        """The columns W as an array in Fortran order, by one pass; as rows where they exceed ``memory``."""
        W = np.asarray(W, dtype=np.intp)
        if self.shape[0] * W.size * np.dtype(self.dtype).itemsize > self.memory:
            return ColumnRows(self, W)
        near = np.empty((self.shape[0], W.size), dtype=self.dtype, order="F")
        self.read_columns(W, near.T)
        return near

    def product(self, coef, intercept=0.0):
        """``X coef + intercept`` in float64, by one pass; ``coef`` of shape (p,) or (p, k)."""
        coef = np.asarray(coef, dtype=float)
        out = np.empty((self.shape[0], *coef.shape[1:]))
        return stacked(self.sweep(block_product, arguments=(coef,)), out) + intercept

    def design(self, weights, *, center=False, scale=False):
        """The design over these rows; see :class:`trimreg.designs.far.design.BlockedDesign`."""
        from .design import BlockedDesign

        return BlockedDesign(self, weights, center=center, scale=scale)


class ArrayRows(FarRows):
    """An ordinary array, cut into blocks: the simplest example of rows, and the one that tests use.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.designs.far.rows import ArrayRows
    >>> rows = ArrayRows(np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), block_rows=2)
    >>> rows
    <array by blocks 3 x 2 float64>
    >>> rows.product(np.array([1.0, -1.0]), 1.0)
    array([0., 0., 0.])
    >>> rows.passes
    1
    """

    kind = "array by blocks"

    def __init__(self, X, block_rows: int, memory: int = NEAR_MEMORY):
        self.X = X
        self.block_rows = block_rows
        self.memory = memory
        self.shape = X.shape
        self.dtype = X.dtype

    def sweep(self, kernel, vectors=(), arguments=()):
        self.passes += 1
        for start in range(0, self.shape[0], self.block_rows):
            part = slice(start, start + self.block_rows)
            yield kernel(self.X[part], *(vector[part] for vector in vectors), *arguments)


class ColumnRows(FarRows):
    """Some columns of far rows, still far: each sweep of theirs is a pass over the whole rows."""

    kind = "columns of"

    def __init__(self, rows, W):
        self.rows = rows
        self.W = W
        self.shape = (rows.shape[0], W.size)
        self.dtype = rows.dtype
        self.memory = rows.memory

    def describe(self):
        return f"{self.W.size} columns of {self.rows.describe()}"

    def sweep(self, kernel, vectors=(), arguments=()):
        self.passes += 1
        yield from self.rows.sweep(_kernel_on_columns, vectors, (*arguments, kernel, self.W))

    def read_columns(self, W, out):
        self.rows.read_columns(self.W[np.asarray(W, dtype=np.intp)], out)
