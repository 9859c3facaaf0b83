"""Small positive definite systems, by LAPACK directly: SciPy's checks cost more than the work here."""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack


def cholesky(matrix: np.ndarray) -> np.ndarray | None:
    """The lower factor (what is above it is not zeroed), or None if the matrix is not positive definite.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.solvers.linalg import cholesky, solve
    >>> solve(cholesky(np.array([[4.0, 0.0], [0.0, 1.0]])), np.array([2.0, 3.0]))
    array([0.5, 3. ])
    >>> cholesky(np.array([[1.0, 2.0], [2.0, 1.0]])) is None
    True
    """
    factor, info = lapack.dpotrf(matrix, lower=1, clean=0)
    return factor if info == 0 else None


def regularized_cholesky(matrix: np.ndarray) -> np.ndarray:
    """The factor of a Gram matrix of columns of norm one, plus as little of the identity as it needs.

    For a singular matrix a solution with it is still a descent direction, long along the null space: a
    ratio test then drops a coordinate, as it should where a support exceeds the rank.
    """
    factor = cholesky(matrix)
    if factor is not None and np.diagonal(factor).min(initial=1.0) > 1e-6:  # condition below about 1e12
        return factor
    identity = np.eye(matrix.shape[0])
    for ridge in (1e-10, 1e-6, 1e-3):
        factor = cholesky(matrix + ridge * identity)
        if factor is not None:
            return factor
    return identity


def solve(factor: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """``(L L')^-1 rhs``."""
    if factor.shape[0] == 0:
        return rhs  # LAPACK refuses it
    return lapack.dpotrs(factor, rhs, lower=1)[0]


def inverse(factor: np.ndarray) -> np.ndarray:
    """``(L L')^-1``. Not LAPACK's own: that starts threads for matrices of any size, at a cost."""
    full = solve(factor, np.eye(factor.shape[0]))
    return (full + full.T) / 2


def inverse_factor(factor: np.ndarray) -> np.ndarray:
    """``L^-1``, whose ``(L^-1)' L^-1`` is the inverse of the matrix; a third of the work of that.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.solvers.linalg import cholesky, inverse_factor
    >>> inverse_factor(cholesky(np.array([[4.0, 0.0], [2.0, 2.0]])))
    array([[ 0.5,  0. ],
           [-0.5,  1. ]])
    """
    if factor.size == 0:
        return np.zeros(factor.shape)
    return np.tril(lapack.dtrtri(factor, lower=1)[0])


def independent(gram: np.ndarray, tol: float) -> np.ndarray:
    """Positions of columns of norm one, each with more than ``tol`` unexplained by those before it.

    Cholesky with pivoting: the longest remainder comes first.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.solvers.linalg import independent
    >>> independent(np.ones((3, 3)), 1e-9)
    array([0])
    """
    _, pivot, rank, _ = lapack.dpstrf(gram, lower=1, tol=tol)
    return np.sort(pivot[:rank] - 1).astype(np.intp)
