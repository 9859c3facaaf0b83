r"""The compiled loops for groups: prox and nearest subgradient of a group norm, block coordinate descent.

Plain functions over contiguous float64 arrays, compiled on first use and cached on disk. They are few and
short, since a first call waits for the compiler. A group is ``theta[starts[g]:starts[g + 1]]``. Its norm is
Euclidean or, if ``flat`` is true, the maximum of absolute values, whose prox flattens the top of a group.

Both norms use the decomposition of Moreau: with the dual norm :math:`\|\cdot\|_*`,

.. math:: \operatorname{prox}_{t\|\cdot\|}(z) = z - \Pi_{\{\|u\|_* \le t\}}(z),

so that the prox of the gradient at 0 is the subgradient nearest to 0 there.
"""

from __future__ import annotations

import numpy as np
from numba import njit

#: Entries of a group count as its maximum if they are this near to it, relative to it.
TOP = 1e-9
_PROX_STEPS = 10


@njit(cache=True, error_model="numpy")
def water_level(u, t):
    r"""The level :math:`\tau` with :math:`\sum_i (u_i - \tau)_+ = t > 0`: ``(u - tau)_+`` is a projection.

    By elimination (Michelot 1986): the level for all entries is too low; those below it are left out,
    until none is. Exact after finitely many rounds, without a sort. Measured from the largest entry, so that
    a small t beside large entries keeps its digits.
    """
    top = u[0]
    for i in range(1, u.size):
        if u[i] > top:
            top = u[i]
    tau, count = -np.inf, u.size + 1
    while True:
        total, above = -t, 0
        for i in range(u.size):
            if u[i] - top > tau:
                total += u[i] - top
                above += 1
        if above >= count or above == 0:  # rounding can leave none above, or one come back
            return top + tau
        count = above
        tau = total / count


@njit(cache=True, error_model="numpy")
def prox(z, t, flat, out):
    """``argmin ||x - z||^2 / 2 + t ||x||`` into ``out`` (not ``z``); returns its maximum absolute value.

    For the maximum norm it cuts z at a level: the entries at the maximum are equal to the bit.
    """
    dual = 0.0
    for i in range(z.size):
        out[i] = abs(z[i])
        dual += out[i] if flat else out[i] * out[i]
    factor, level = 1.0, np.inf
    if not flat:
        factor = 1.0 - t / np.sqrt(dual) if dual > t * t else 0.0
    elif dual <= t:
        level = 0.0
    elif t > 0.0:
        level = max(water_level(out, t), 0.0)
    largest = 0.0
    for i in range(z.size):
        size = min(factor * out[i], level)
        out[i] = size if z[i] > 0.0 else -size
        largest = max(largest, size)
    return largest


@njit(cache=True, error_model="numpy")
def residual(x, g, t, flat, out):
    r"""The element of :math:`g + t\,\partial\|x\|` nearest to 0 into ``out``; returns its maximum norm.

    Away from 0 the subdifferential of the Euclidean norm is ``x / ||x||``. That of the maximum norm is the
    convex hull of the signed unit vectors of the entries at the maximum, and the nearest element cuts the
    gradient there at a level. A group with ``t = inf`` has no condition.
    """
    top, square = 0.0, 0.0
    for i in range(x.size):
        top = max(top, abs(x[i]))
        square += x[i] * x[i]
    if top == 0.0 and t > 0.0:
        return prox(g, t, flat, out)
    factor = 0.0 if flat or t == 0.0 else t / np.sqrt(square)
    edge = (1.0 - TOP) * top if flat and t > 0.0 else np.inf
    count = 0
    for i in range(x.size):
        if abs(x[i]) >= edge:
            out[count] = -g[i] if x[i] > 0.0 else g[i]
            count += 1
    level = water_level(out[:count], t) if count > 0 else 0.0
    largest = 0.0
    for i in range(x.size):
        out[i] = g[i] + factor * x[i]
        if abs(x[i]) >= edge:
            out[i] = max(g[i], -level) if x[i] > 0.0 else min(g[i], level)
        largest = max(largest, abs(out[i]))
    return largest


@njit(cache=True, error_model="numpy")
def shift(gram, gradient, theta, target, first, last):
    """Move ``theta[first:last]`` to ``target``, and the gradient with it; returns the longest move."""
    longest = 0.0
    for i in range(first, last):
        change = target[i - first] - theta[i]
        theta[i] = target[i - first]
        if change != 0.0:
            longest = max(longest, abs(change))
            for j in range(gradient.size):
                gradient[j] += change * gram[i, j]
    return longest


@njit(cache=True, error_model="numpy")
def improve_group(gram, first, x, g, t, flat, tol, z, following):
    """Steps towards the minimizer over one group; ``x`` and its gradient ``g`` in place.

    Exact coordinate descent for a free group or a single coordinate, else proximal gradient steps.
    """
    k = x.size
    if t == 0.0 or k == 1:
        for i in range(k):
            curvature = gram[first + i, first + i]
            aim = curvature * x[i] - g[i]
            aim = aim - t if aim > t else (aim + t if aim < -t else 0.0)
            if curvature > 0.0:
                change = aim / curvature - x[i]
                x[i] = aim / curvature
                for j in range(k):
                    g[j] += change * gram[first + i, first + j]
        return
    squares, rows = 0.0, 0.0
    for i in range(k):
        row = 0.0
        for j in range(k):
            entry = abs(gram[first + i, first + j])
            squares += entry * entry
            row += entry
        rows = max(rows, row)
    curvature = min(np.sqrt(squares), rows)  # both bound the largest eigenvalue
    largest = np.inf if curvature > 0.0 else 0.0  # columns of zeros are left to the Newton step
    for _ in range(_PROX_STEPS):
        if not curvature * largest > tol:
            return
        for i in range(k):
            z[i] = x[i] - g[i] / curvature
        prox(z, t / curvature, flat, following)
        largest = 0.0
        for j in range(k):
            change = following[j] - x[j]
            x[j] = following[j]
            largest = max(largest, abs(change))
            for i in range(k):
                g[i] += change * gram[first + j, first + i]


@njit(cache=True, error_model="numpy")
def block_descent(gram, gradient, theta, starts, threshold, flat, max_epochs, tol, work):
    r"""Cyclic block coordinate descent on ``q(theta) + sum_g t_g ||theta_g||`` with Hessian ``gram``.

    ``theta`` and ``gradient`` (of the quadratic part) are updated in place; ``work`` is of shape (4, m). A
    group whose condition holds within ``tol`` is left alone, so an epoch in which no group moves is a
    certificate. Returns whether there was one.
    """
    for _ in range(max_epochs):
        violated, longest = False, 0.0
        for group in range(threshold.size):
            a, b = starts[group], starts[group + 1]
            x, g, t = work[0, : b - a], work[1, : b - a], threshold[group]
            if residual(theta[a:b], gradient[a:b], t, flat, x) <= tol:
                continue
            violated = True
            for i in range(b - a):
                x[i] = theta[a + i]
                g[i] = gradient[a + i]
            improve_group(gram, a, x, g, t, flat, 0.1 * tol, work[2, : b - a], work[3, : b - a])
            longest = max(longest, shift(gram, gradient, theta, x, a, b))
        if longest == 0.0:
            return not violated
    return False
