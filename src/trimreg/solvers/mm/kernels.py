"""The compiled loops: plain functions over contiguous float64 arrays, cached on disk.

They know nothing of designs, losses or penalties. The arrays are Gram matrices of working sets, for columns
of norm one.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, fastmath={"contract", "reassoc"})
def coordinate_descent(gram, gradient, theta, threshold, max_epochs, tol):
    r"""Cyclic coordinate descent on ``q(theta) + sum_j t_j |theta_j|`` with Hessian ``gram``.

    ``theta`` and ``gradient`` (of the quadratic part) are updated in place. Stops when no coordinate moves
    its subgradient by more than ``tol`` in an epoch. Returns the number of epochs.
    """
    m = theta.size
    for epoch in range(max_epochs):
        largest = 0.0
        for j in range(m):
            curvature = gram[j, j]
            if curvature <= 0.0:
                continue
            old = theta[j]
            z = curvature * old - gradient[j]
            t = threshold[j]
            if z > t:
                new = (z - t) / curvature
            elif z < -t:
                new = (z + t) / curvature
            else:
                new = 0.0
            if new != old:
                change = new - old
                theta[j] = new
                for i in range(m):
                    gradient[i] += change * gram[j, i]
                largest = max(largest, abs(change) * curvature)
        if largest <= tol:
            return epoch + 1
    return max_epochs


@njit(cache=True)
def submatrix(matrix, rows, columns):
    """``matrix[rows[:, None], columns]``, in half of NumPy's time."""
    part = np.empty((rows.size, columns.size))
    for i in range(rows.size):
        row = matrix[rows[i]]
        for j in range(columns.size):
            part[i, j] = row[columns[j]]
    return part


@njit(cache=True)
def principal(matrix, places):
    """``matrix[places[:, None], places]`` of a symmetric matrix, of which half is read."""
    part = np.empty((places.size, places.size))
    for i in range(places.size):
        row = matrix[places[i]]
        for j in range(i + 1):
            part[i, j] = part[j, i] = row[places[j]]
    return part


@njit(cache=True)
def violators(theta, gradient, threshold, goal):
    """The largest violation of an optimality condition, and the coordinates above ``goal`` or not at 0.

    A violation is the size of the residual of :func:`trimreg.penalties.subgradient_residual`; the largest is
    NaN if one is.
    """
    worst, count = 0.0, 0
    found = np.empty(theta.size, dtype=np.intp)
    for j in range(theta.size):
        if theta[j] == 0.0:
            violation = max(abs(gradient[j]) - threshold[j], 0.0)
        else:
            violation = abs(gradient[j] + np.sign(theta[j]) * threshold[j])
        worst = max(worst, violation) if violation == violation else violation
        if theta[j] != 0.0 or violation > goal:
            found[count] = j
            count += 1
    return worst, found[:count]


@njit(cache=True, fastmath={"contract", "reassoc"})
def add_rows(matrix, rows, coefficient, total):
    """``total += coefficient @ matrix[rows]`` without a copy of the rows, four rows per pass."""
    whole = rows.size - rows.size % 4
    for k in range(0, whole, 4):
        a, b, c, d = matrix[rows[k]], matrix[rows[k + 1]], matrix[rows[k + 2]], matrix[rows[k + 3]]
        p, q, r, s = coefficient[k], coefficient[k + 1], coefficient[k + 2], coefficient[k + 3]
        for i in range(total.size):
            total[i] += p * a[i] + q * b[i] + r * c[i] + s * d[i]
    for k in range(whole, rows.size):
        last, t = matrix[rows[k]], coefficient[k]
        for i in range(total.size):
            total[i] += t * last[i]


@njit(cache=True, fastmath={"contract", "reassoc"})
def best_swaps(link, correlation, spare, theta, inverse_diagonal, threshold, gain, partner):
    r"""For every outside coordinate j, the best free coordinate i to exchange it for.

    The model is a quadratic at its minimum over an active set A with Hessian M; i is in the free part of A, j
    outside A and at zero. Letting j enter lowers the model by ``c_j^2 / (2 s_j)``, where ``s_j`` is the
    squared norm of the part of column j that A does not explain. It moves ``theta_i`` by ``-K_ji c_j / s_j``
    and raises ``[M^-1]_ii`` by ``K_ji^2 / s_j``. Penalizing i by ``t_i |theta_i|`` then costs a Huber
    function of its new value. The scores are exact as long as the signs of the penalized part of A do not
    change, and always for ``t = inf`` (best subset).

    ``link`` is K, its first columns those of ``theta``; ``correlation`` c is minus the gradient. The function
    writes the best gain of every j to ``gain`` and the position of its i to ``partner``. Since the cost is
    never negative, ``c_j^2 / (2 s_j)`` bounds the gain: a j whose bound is far below the best gain so far is
    not scored and gets -inf. The best gain of all is always exact.
    """
    record = 0.0
    for j in range(link.shape[0]):
        gain[j] = -np.inf
        partner[j] = -1
        s = spare[j]
        if s <= 0.0:
            continue
        c = correlation[j]
        entry = c * c / (2.0 * s)
        if entry < 0.25 * record:
            continue
        for i in range(theta.size):
            k = link[j, i]
            moved = abs(theta[i] - k * c / s)
            inverse = inverse_diagonal[i] + k * k / s
            t = threshold[i]
            if moved <= t * inverse:
                cost = moved * moved / (2.0 * inverse)
            else:
                cost = t * moved - 0.5 * t * t * inverse
            if entry - cost > gain[j]:
                gain[j] = entry - cost
                partner[j] = i
        record = max(record, gain[j])
