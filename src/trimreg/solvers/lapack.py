r"""Positive definite matrices inside compiled code: factor, inverse, product, solution.

Small matrices take plain loops, larger ones LAPACK and BLAS. Numba has both for its own linear algebra, as
symbols that compiled code may call and cache on disk. Its own Cholesky raises an error if a matrix is not
positive definite, which is a question here and not an error. Calls into the interpreter (``objmode``) are no
alternative: compiled functions with such calls, cached by several processes at once, have failed to load.

LAPACK reads matrices by columns. It sees a lower triangle by rows as an upper one, and ``A B`` by rows as
``B' A'`` by columns, so nothing is transposed.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

SMALL = 24  # up to this size plain loops are faster than a call of LAPACK
_BLOCK = 32

_NUMBERS, _COUNT, _LETTER = types.CPointer(types.float64), types.intp, types.char
_potrf = types.ExternalFunction(
    "numba_xxpotrf", types.intc(_LETTER, _LETTER, _COUNT, _NUMBERS, _COUNT)
)  # fmt: skip
_gemm = types.ExternalFunction(
    "numba_xxgemm",
    types.intc(
        _LETTER, _LETTER, _LETTER, _COUNT, _COUNT, _COUNT, _NUMBERS, _NUMBERS, _COUNT, _NUMBERS, _COUNT,
        _NUMBERS, _NUMBERS, _COUNT,
    ),
)  # fmt: skip
_DOUBLE, _UPPER, _PLAIN, _TURNED = ord("d"), ord("U"), ord("N"), ord("T")


@njit(cache=True)
def factored(matrix):
    """The lower Cholesky factor, and whether there is one."""
    p = matrix.shape[0]
    factor = np.zeros((p, p))
    if p > SMALL:
        for i in range(p):
            for j in range(i + 1):
                factor[i, j] = matrix[i, j]
        found = _potrf(_DOUBLE, _UPPER, p, factor.ctypes, p) == 0
        return factor, found and 0.0 < factor[p - 1, p - 1] < np.inf  # LAPACK may let NaN pass
    for j in range(p):
        rest = matrix[j, j]
        for k in range(j):
            rest -= factor[j, k] * factor[j, k]
        if not 0.0 < rest < np.inf:
            return factor, False
        pivot = np.sqrt(rest)
        factor[j, j] = pivot
        for i in range(j + 1, p):
            rest = matrix[i, j]
            for k in range(j):
                rest -= factor[i, k] * factor[j, k]
            factor[i, j] = rest / pivot
    return factor, True


@njit(cache=True)
def _invert_triangle(factor, half, start, end):
    """The inverse of a diagonal block of a lower factor."""
    for j in range(start, end):
        half[j, j] = 1.0 / factor[j, j]
        for i in range(j + 1, end):
            total = 0.0
            for k in range(j, i):
                total -= factor[i, k] * half[k, j]
            half[i, j] = total / factor[i, i]


@njit(cache=True)
def inverted(factor):
    """The inverse of the matrix that has this lower Cholesky factor.

    It is the sum :math:`M'M` over blocks of rows of M, the inverse of the factor.
    """
    p = factor.shape[0]
    half, inverse = np.zeros((p, p)), np.zeros((p, p))
    if p <= SMALL:
        _invert_triangle(factor, half, 0, p)
        for i in range(p):
            for j in range(i + 1):
                total = 0.0
                for k in range(i, p):
                    total += half[k, i] * half[k, j]
                inverse[i, j] = inverse[j, i] = total
        return inverse
    one, zero, minus, panel = np.ones(1), np.zeros(1), -np.ones(1), np.empty((_BLOCK, p))
    for start in range(0, p, _BLOCK):
        end = min(start + _BLOCK, p)
        size = end - start
        _invert_triangle(factor, half, start, end)
        row = half[start:]
        if start > 0:  # below the diagonal: -M_dd (L_d. M)
            _gemm(
                _DOUBLE, _PLAIN, _PLAIN, start, size, start, one.ctypes, half.ctypes, p,
                factor[start:].ctypes, p, zero.ctypes, panel.ctypes, p,
            )  # fmt: skip
            _gemm(
                _DOUBLE, _PLAIN, _PLAIN, start, size, size, minus.ctypes, panel.ctypes, p,
                half[start:, start:].ctypes, p, zero.ctypes, row.ctypes, p,
            )  # fmt: skip
        _gemm(
            _DOUBLE, _PLAIN, _TURNED, end, end, size, one.ctypes, row.ctypes, p, row.ctypes, p, one.ctypes,
            inverse.ctypes, p,
        )  # fmt: skip
    for i in range(p):
        for j in range(i):
            inverse[j, i] = inverse[i, j]
    return inverse


@njit(cache=True)
def product(left, right):
    """``left @ right`` of square matrices."""
    p = left.shape[0]
    both, one, zero = np.empty((p, p)), np.ones(1), np.zeros(1)
    _gemm(
        _DOUBLE, _PLAIN, _PLAIN, p, p, p, one.ctypes, right.ctypes, p, left.ctypes, p, zero.ctypes,
        both.ctypes, p,
    )  # fmt: skip
    return both


@njit(cache=True)
def solved(matrix, rhs):
    """The solution of a positive semidefinite system, with as little of its diagonal added as it needs."""
    n = rhs.size
    root = np.empty(n)
    for i in range(n):
        root[i] = np.sqrt(matrix[i, i])
    scaled = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            scaled[i, j] = matrix[i, j] / (root[i] * root[j])
    x = np.empty(n)
    for ridge in (0.0, 1e-14, 1e-12, 1e-10, 1e-8, 1e-6):
        for i in range(n):
            scaled[i, i] = 1.0 + ridge
        factor, positive = factored(scaled)
        if positive:
            for i in range(n):  # L z = rhs / root
                total = rhs[i] / root[i]
                for k in range(i):
                    total -= factor[i, k] * x[k]
                x[i] = total / factor[i, i]
            for i in range(n - 1, -1, -1):  # L' x = z
                total = x[i] / factor[i, i]
                x[i] = total
                for k in range(i):
                    x[k] -= factor[i, k] * total
            for i in range(n):
                x[i] /= root[i]
            return x
    for i in range(n):
        x[i] = rhs[i] / matrix[i, i]
    return x
