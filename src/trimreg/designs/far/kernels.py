r"""Computations on one block of rows: the terms of the sums that make up a far design.

Each function takes a block of raw rows, the part of each vector for these rows, and small arguments. It may
run in another process. Arithmetic is float64, one part in cache at a time, whatever the storage type.
``offset`` and ``scale`` belong to the columns W of the function; ``offset`` is None without centering, and W
is None for all columns of the block.
"""

from __future__ import annotations

import numpy as np

from ..base import BLOCK_ELEMENTS, weighted_gram
from .rows import cached_parts

_CONSTANT = 1e-14  # a variance below this, relative to the squared mean, may be rounding of the mean
_TINY = 1e-290  # sums of squares below this may have lost digits to underflow
_GRAM_ROWS, _GRAM_ELEMENTS = 4096, 1 << 21  # a part for a Gram matrix is long, but at most 16 MiB


def taken(block, W):
    """A float64 copy of the columns W."""
    return block.astype(float) if W is None else np.take(block, W, axis=1).astype(float, copy=False)


def scaled_columns(block, W, offset, scale):
    """``Z_W`` of these rows, a float64 copy."""
    Z = taken(block, W)
    if offset is not None:
        Z -= offset
    Z *= scale
    return Z


def columns_product(block, W, u):
    """``X_W u``."""
    product = np.empty((block.shape[0], *u.shape[1:]))
    for part in cached_parts(block, W.size):
        product[part] = np.take(block[part], W, axis=1).astype(float, copy=False) @ u
    return product


def transposed_product(block, r):
    """``X' r``, transposed."""
    total = np.zeros((*r.shape[1:], block.shape[1]))
    for part in cached_parts(block):
        total += r[part].T @ block[part].astype(float, copy=False)
    return total


def raw_sums(block, d, W):
    """``X_W' d``."""
    width = block.shape[1] if W is None else W.size
    return sum((d[part] @ taken(block[part], W) for part in cached_parts(block, width)), np.zeros(width))


# -- Gram matrices -----------------------------------------------------------------------------------------


def gram_parts(block, width):
    """Slices of rows for a Gram matrix of ``width`` columns: longer than those for a product."""
    rows = min(_GRAM_ROWS, _GRAM_ELEMENTS // max(width, 1))
    return cached_parts(block, min(max(width, 1), BLOCK_ELEMENTS // max(rows, 1)))


def gram_and_sums(block, d, W, offset, scale):
    """``Z_W' diag(d) Z_W`` and ``Z_W' d``."""
    gram, sums = np.zeros((scale.size, scale.size)), np.zeros(scale.size)
    for part in gram_parts(block, scale.size):
        Z = scaled_columns(block[part], W, offset, scale)
        sums += d[part] @ Z
        gram += weighted_gram(Z, d[part])
    return gram, sums


def cross_gram(block, d, rows, cols, offsets, scales):
    """``Z_rows' diag(d) Z_cols``."""
    total = np.zeros((rows.size, cols.size))
    for part in gram_parts(block, rows.size + cols.size):
        right = scaled_columns(block[part], cols, offsets[1], scales[1])
        right *= d[part, None]
        total += scaled_columns(block[part], rows, offsets[0], scales[0]).T @ right
    return total


def every_gram(block, d, cols, offset, scale):
    """``X' diag(d) Z_cols`` for every column of X, and the sums of ``diag(d) Z_cols``."""
    total, sums = np.zeros((cols.size, block.shape[1])), np.zeros(cols.size)
    for part in gram_parts(block, block.shape[1]):
        right = scaled_columns(block[part], cols, offset, scale)
        right *= d[part, None]
        total += right.T @ block[part].astype(float, copy=False)
        sums += right.sum(axis=0)
    return total, sums


def normal_equations(block, d, y, offset, scale):
    """``Z' diag(d) Z`` and ``Z' diag(d) y`` over all columns."""
    p, root = block.shape[1], np.sqrt(d)
    gram, target = np.zeros((p, p)), np.zeros((p, *y.shape[1:]))
    for part in gram_parts(block, p):
        Z = scaled_columns(block[part], None, offset, scale)
        Z *= root[part, None]
        target += Z.T @ (root[part] * y[part].T).T
        gram += Z.T @ Z
    return gram, target


def products_of_parts(block, d, y, labels, offset, scale, count):
    """``[Z y 1]' diag(d) [Z y 1]`` for each of ``count`` parts of the rows.

    A column of ``labels`` holds the part of every row in one division of the samples.
    """
    p, total = block.shape[1], np.zeros((count, block.shape[1] + 2, block.shape[1] + 2))
    for part in gram_parts(block, p + 2):
        Z = np.ones((part.stop - part.start, p + 2))
        Z[:, :p], Z[:, p] = scaled_columns(block[part], None, offset, scale), y[part]
        Z *= np.sqrt(d[part])[:, None]
        for label in labels[part].T:
            for k in np.flatnonzero(np.bincount(label)):
                rows = label == k
                some = Z if rows.all() else Z[rows]
                total[k] += some.T @ some
    return total


def combination_moments(block, d, W, V, positions, offset, scale):
    """For ``C = Z_W V``: the sums of ``d c^2``, and ``Z_W' diag(d) C`` at these ``positions`` of W."""
    square, product = np.zeros(V.shape[1]), np.zeros((positions.size, V.shape[1]))
    for part in cached_parts(block, sum(V.shape)):
        Z = scaled_columns(block[part], W, offset, scale)
        C = Z @ V
        weighted = C * d[part, None]
        square += np.einsum("ij,ij->j", weighted, C)
        product += Z[:, positions].T @ weighted
    return square, product


# -- moments -----------------------------------------------------------------------------------------------


def column_moments(block, weights, center):
    r"""Weight, mean and :math:`\sum d (x - m)^2` of every column of a block, and its NaN and inf.

    Without ``center`` the squares are about 0. The result is the number of rows; the number of entries that
    are NaN or inf with row, column and value of the first; weight, mean and squares; and a mask of the
    columns whose squares under- or overflow.
    """
    p = block.shape[1]
    so_far = (0.0, np.zeros(p), np.zeros(p))
    doubtful, bad = np.zeros(p, dtype=bool), (0, -1, -1, 0.0)
    for part in cached_parts(block):
        d, X = weights[part], block[part].astype(float)
        weight = float(d.sum())
        share = d / weight if weight > 0 else d
        with np.errstate(all="ignore"):
            mean = share @ X
            # A product may skip factors of 0, so entries with weight 0 are checked one by one.
            if not np.isfinite(mean).all() or (d == 0).any():
                finite = np.isfinite(X)
                if not finite.all():
                    row, column = np.argwhere(~finite)[0]
                    count = bad[0] + X.size - np.count_nonzero(finite)
                    first = (part.start + int(row), int(column), float(X[row, column]))
                    bad = (count, *(bad[1:] if bad[0] else first))
                    continue
            if center:
                X -= mean
            np.square(X, out=X)
            square = d @ X
            least = _CONSTANT * weight * mean**2 if center else 0.0
            odd = np.flatnonzero(~((square > np.maximum(least, _TINY)) & (square < np.inf)))
            if odd.size:
                X = taken(block[part], odd)
                mean[odd], square[odd], doubtful[odd] = _odd_moments(X, mean[odd], d, share, center)
        so_far = merged_moments(so_far, (weight, mean, square), center)
    return block.shape[0], bad, *so_far, doubtful


def _odd_moments(X, mean, d, share, center):
    """Mean and squares of nearly constant, very small or very large columns, and which are in doubt.

    The mean is corrected by the mean of the residuals. Otherwise its rounding would look like the deviation
    of a constant column.
    """
    if center:
        left = share @ (X - mean)
        X = X - mean - left
        mean = mean + left
    square = d @ X**2
    constant = np.abs(X).max(axis=0) <= (1e-13 * np.abs(mean) if center else 0.0)
    return mean, square, ~constant & ~((square > _TINY) & (square < np.inf))


def merged_moments(one, other, center):
    r"""Weight, mean and squares about the mean of two sets of rows together.

    .. math:: m = m_1 + \delta \frac{s_2}{s_1 + s_2}, \qquad
              q = q_1 + q_2 + \delta^2 \frac{s_1 s_2}{s_1 + s_2}, \qquad \delta = m_2 - m_1

    (T. F. Chan, G. H. Golub and R. J. LeVeque, The American Statistician 37, 1983.) Nothing cancels, however
    large the means are. Without ``center`` the squares are added.
    """
    (s1, m1, q1), (s2, m2, q2) = one, other
    total = s1 + s2
    if total == 0 or not center:
        return total, m1, q1 + q2
    with np.errstate(over="ignore", under="ignore"):
        apart = m2 - m1
        return total, m1 + apart * (s2 / total), q1 + q2 + apart * (apart * (s1 * s2 / total))


def scaled_squares(block, d, W, offset):
    r"""For the columns W minus ``offset``: the largest size u, and :math:`\sum d (x / u)^2`.

    Squares of numbers up to 1 do not overflow, and those that underflow are negligible.
    """
    so_far = (np.zeros(W.size), np.zeros(W.size))
    for part in cached_parts(block, W.size):
        X = np.abs(np.take(block[part], W, axis=1).astype(float, copy=False) - offset)
        largest = X.max(axis=0, initial=0.0)
        X /= np.where(largest > 0, largest, 1.0)
        so_far = merged_squares(so_far, (largest, d[part] @ (X * X)))
    return so_far


def merged_squares(one, other):
    """:func:`scaled_squares` of two sets of rows together."""
    largest = np.maximum(one[0], other[0])
    unit = np.where(largest > 0, largest, 1.0)
    return largest, one[1] * (one[0] / unit) ** 2 + other[1] * (other[0] / unit) ** 2
