r"""Few rows with the same least squares as many.

Least squares sees the data through :math:`Z'DZ`, :math:`Z'Dy` and :math:`y'Dy` alone. So with R and r in

.. math:: [R\; r]'[R\; r] = [Z\; y]' D\, [Z\; y],

the p + K rows of ``[R r]`` are as good as all rows of ``[Z y]``: the objective is the same function of theta.
Everything that follows runs in memory, whatever n is. Rounding enters once, with the square of the condition
number: who needs certainty asks the data again, from the point that the few rows lead to.
"""

from __future__ import annotations

import numpy as np

from .block import ColumnBlock


class CompressedDesign(ColumnBlock):
    """Few rows that stand for many; ``source`` are the design and the sample weights that they came from."""

    def __init__(self, Z, source):
        super().__init__(Z)
        self.source = source

    def rescaled(self, factor):
        design, d = self.source
        return CompressedDesign(self.Z * factor, (design.rescaled(factor), d))


def few_rows(gram, target, y, d, source=None):
    """A design and a target of p + K rows, of equal weights, with the least squares of ``Z`` and ``y``.

    Parameters
    ----------
    gram : ndarray of shape (p, p)
        ``Z' D Z``, positive semidefinite but for rounding; a column of zeros stays one.
    target : ndarray of shape (p,) or (p, K)
        ``Z' D y``.
    y, d : ndarray
        The target and the sample weights of all rows.
    source : design, optional
        Where the numbers came from.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.designs.wrappers.compression import few_rows
    >>> Z, y, d = np.array([[1.0, 0.0], [2.0, 1.0], [0.0, 3.0]]), np.array([1.0, 2.0, 4.0]), np.full(3, 1 / 3)
    >>> design, target = few_rows(Z.T @ Z / 3, Z.T @ y / 3, y, d)
    >>> theta = np.array([0.5, 2.0])
    >>> [round(float(np.mean(r**2)), 12) for r in (y - Z @ theta, target - design.matvec(theta))]
    [1.75, 1.75]
    """
    from scipy.linalg import solve_triangular
    from scipy.linalg.lapack import dpstrf

    p, outputs = gram.shape[0], 1 if target.ndim == 1 else target.shape[1]
    unit = np.sqrt(np.maximum(np.diagonal(gram), 0.0))
    inverse = np.divide(1.0, unit, out=np.zeros(p), where=unit > 0)
    # By falling pivots: columns that are combinations of others, but for rounding, come out as just that.
    factor, pivots, rank, _ = dpstrf(gram * inverse * inverse[:, None], tol=p * np.finfo(float).eps)
    pivots, factor = pivots - 1, np.triu(factor)[:rank]
    count = p + outputs  # no fewer, though the rank may be: the number of rows must not depend on rounding
    Z, few = np.zeros((count, p)), np.zeros((count, *target.shape[1:]))
    Z[:rank, pivots] = factor
    right = (target.T * inverse).T[pivots[:rank]]
    few[:rank] = solve_triangular(factor[:, :rank], right, trans="T")
    left = _square_root(np.atleast_2d((d * y.T) @ y) - np.atleast_2d(few.T @ few))
    few[p:] = left if target.ndim == 2 else left[0]
    root = np.sqrt(count)  # the rows have weights 1 / count
    return CompressedDesign(Z * (root * unit), (source, d)), few * root


def _square_root(matrix):
    """The symmetric root of a matrix that is positive semidefinite but for rounding."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
