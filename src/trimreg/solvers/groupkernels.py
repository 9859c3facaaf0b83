r"""The compiled loops for groups: prox and nearest subgradient of a group norm, block coordinate descent.

Plain functions over contiguous float64 arrays, cached on disk, compiled on first use. A group is
``theta[starts[g]:starts[g + 1]]``. Its norm is the Euclidean one or, where ``flat`` is true, the largest size of
an entry: a step of the prox then flattens the top of the group.

Both norms use the decomposition of Moreau: with the dual norm :math:`\|\cdot\|_*`,

.. math:: \operatorname{prox}_{t\|\cdot\|}(z) = z - \Pi_{\{\|u\|_* \le t\}}(z),

so that the prox of the gradient at 0 is the subgradient nearest to 0 there.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_FAST = {"contract", "reassoc"}
#: Entries of a group this near to its largest one, relative to it, count as being at the top.
TOP = 1e-9
#: Groups up to this size are minimized exactly (Euclidean norm), at a cost cubic in their size.
_EXACT_UP_TO = 64
_PROX_STEPS = 10


@njit(cache=True, fastmath=_FAST)
def norm2(x):
    """The Euclidean norm, also where squares leave the range of floats."""
    total = 0.0
    for i in range(x.size):
        total += x[i] * x[i]
    if 1e-280 < total < 1e280:
        return np.sqrt(total)
    largest = 0.0
    for i in range(x.size):
        largest = max(largest, abs(x[i]))
    if largest == 0.0 or largest == np.inf:
        return largest
    total = 0.0
    for i in range(x.size):
        total += (x[i] / largest) ** 2
    return largest * np.sqrt(total)


@njit(cache=True)
def water_level(u, t):
    r"""The level :math:`\tau` with :math:`\sum_i (u_i - \tau)_+ = t > 0`, so that ``(u - tau)_+`` projects u on the simplex.

    By elimination (Michelot 1986): the level for all entries is too low; those below it are left out, until
    none is. Exact after finitely many rounds, without a sort. Measured from the largest entry, so that a small t beside
    large entries keeps its digits.
    """
    top = u[0]
    for i in range(1, u.size):
        top = max(top, u[i])
    tau, count = -np.inf, u.size + 1
    while True:
        total, above = 0.0, 0
        for i in range(u.size):
            if u[i] - top > tau:
                total += u[i] - top
                above += 1
        if above >= count or above == 0:  # none above: t is lost beside the entries
            return top + tau
        count = above
        tau = (total - t) / count


@njit(cache=True, fastmath=_FAST)
def prox_l2(z, t, out):
    """``argmin ||x - z||^2 / 2 + t ||x||_2`` into ``out``; returns its largest size of an entry."""
    length = norm2(z)
    factor = 1.0 - t / length if length > t else 0.0
    largest = 0.0
    for i in range(z.size):
        out[i] = factor * z[i]
        largest = max(largest, abs(out[i]))
    return largest


@njit(cache=True, fastmath=_FAST)
def prox_linf(z, t, out):
    """``argmin ||x - z||^2 / 2 + t ||x||_inf`` into ``out`` (not ``z``); returns its largest size of an entry.

    It cuts z at a level: entries at the top are equal to the bit.
    """
    total = 0.0
    for i in range(z.size):
        out[i] = abs(z[i])
        total += out[i]
    level = 0.0
    if total > t:
        level = max(water_level(out, t), 0.0) if t > 0.0 else np.inf
    largest = 0.0
    for i in range(z.size):
        out[i] = min(max(z[i], -level), level)
        largest = max(largest, abs(out[i]))
    return largest


@njit(cache=True, fastmath=_FAST)
def residual(x, g, t, flat, out):
    r"""The element of :math:`g + t\,\partial\|x\|` nearest to 0 into ``out``; returns its largest size of an entry.

    Away from 0 the subdifferential of the Euclidean norm is ``x / ||x||``; that of the largest size is the convex hull
    of the signed unit vectors of the entries at the top. A group with ``t = inf`` has no condition.
    """
    top = 0.0
    for i in range(x.size):
        top = max(top, abs(x[i]))
    largest = 0.0
    if t == np.inf:
        for i in range(x.size):
            out[i] = 0.0
    elif t == 0.0:
        for i in range(x.size):
            out[i] = g[i]
            largest = max(largest, abs(out[i]))
    elif top == 0.0:
        return prox_linf(g, t, out) if flat else prox_l2(g, t, out)
    elif not flat:
        factor = t / norm2(x)
        for i in range(x.size):
            out[i] = g[i] + factor * x[i]
            largest = max(largest, abs(out[i]))
    else:
        count = 0
        for i in range(x.size):
            if abs(x[i]) >= (1.0 - TOP) * top:
                out[count] = -g[i] if x[i] > 0.0 else g[i]
                count += 1
        level = water_level(out[:count], t)
        for i in range(x.size):
            if abs(x[i]) < (1.0 - TOP) * top:
                out[i] = g[i]
            elif x[i] > 0.0:
                out[i] = max(g[i], -level)
            else:
                out[i] = min(g[i], level)
            largest = max(largest, abs(out[i]))
    return largest


@njit(cache=True)
def residuals(theta, gradient, starts, threshold, flat, out):
    """:func:`residual` of every group; returns the largest size of an entry of all."""
    largest = 0.0
    for g in range(threshold.size):
        a, b = starts[g], starts[g + 1]
        largest = max(largest, residual(theta[a:b], gradient[a:b], threshold[g], flat, out[a:b]))
    return largest


@njit(cache=True, fastmath=_FAST)
def shift(gram, gradient, theta, target, first, last):
    """Move ``theta[first:last]`` to ``target``, and the gradient with it; returns whether anything moved."""
    moved = False
    for i in range(first, last):
        change = target[i - first] - theta[i]
        if change != 0.0:
            moved = True
            theta[i] = target[i - first]
            for j in range(gradient.size):
                gradient[j] += change * gram[i, j]
    return moved


@njit(cache=True, fastmath=_FAST)
def _factorize(gram, first, k, shifted, factor):
    """Cholesky of the block at ``first`` plus ``shifted`` times the identity; whether it is positive definite."""
    for i in range(k):
        for j in range(i + 1):
            total = gram[first + i, first + j]
            for l in range(j):
                total -= factor[i, l] * factor[j, l]
            if i > j:
                factor[i, j] = total / factor[j, j]
            else:
                total += shifted
                if not total > 0.0:
                    return False
                factor[i, i] = np.sqrt(total)
    return True


@njit(cache=True, fastmath=_FAST)
def _exact_l2(gram, first, b, start, t, tol, x, work, factor):
    r"""Minimize :math:`b'x + x'Ax/2 + t\|x\|_2` over one block, where ``||b|| > t`` and x is not 0; whether it worked.

    The solution is :math:`x(\mu) = -(A + \mu I)^{-1} b` with :math:`\mu = t / \|x(\mu)\|`. As in trust regions (Moré and
    Sorensen 1983) the equation is solved in the form :math:`1/\|x(\mu)\| = \mu/t`: its left side is concave and
    nearly linear in mu, and Newton's method from above falls to the root without passing it. ``start`` is the first mu.
    """
    k = b.size
    length_b = norm2(b)
    bound = 0.0  # mu is at most t ||A|| / (||b|| - t)
    for i in range(k):
        bound += gram[first + i, first + i]
    highest = t * bound / (length_b - t)
    mu = min(start, highest)
    for _ in range(60):
        if not _factorize(gram, first, k, mu, factor):
            return False
        for i in range(k):
            total = -b[i]
            for l in range(i):
                total -= factor[i, l] * work[l]
            work[i] = total / factor[i, i]
        for i in range(k - 1, -1, -1):
            total = work[i]
            for l in range(i + 1, k):
                total -= factor[l, i] * x[l]
            x[i] = total / factor[i, i]
        length = norm2(x)
        if abs(t - mu * length) <= max(tol, 1e-15 * t):
            return True
        bend = 0.0
        for i in range(k):
            total = x[i] / length
            for l in range(i):
                total -= factor[i, l] * work[l]
            work[i] = total / factor[i, i]
            bend += work[i] * work[i]
        slope = bend / length - 1.0 / t
        if slope < 0.0:
            mu = min(mu - (1.0 / length - mu / t) / slope, highest)
        else:
            mu = highest
    return True


@njit(cache=True, fastmath=_FAST)
def _prox_steps(gram, first, x, g, t, flat, tol, z, following):
    """Proximal gradient steps on one block, ``x`` and its gradient ``g`` in place."""
    k = x.size
    squares, rows = 0.0, 0.0
    for i in range(k):
        row = 0.0
        for j in range(k):
            entry = abs(gram[first + i, first + j])
            squares += entry * entry
            row += entry
        rows = max(rows, row)
    curvature = min(np.sqrt(squares), rows)  # both bound the largest eigenvalue
    if curvature <= 0.0:
        return
    for _ in range(_PROX_STEPS):
        for i in range(k):
            z[i] = x[i] - g[i] / curvature
        if flat:
            prox_linf(z, t / curvature, following)
        else:
            prox_l2(z, t / curvature, following)
        largest = 0.0
        for j in range(k):
            change = following[j] - x[j]
            x[j] = following[j]
            largest = max(largest, abs(change))
            for i in range(k):
                g[i] += change * gram[first + j, first + i]
        if curvature * largest <= tol:
            return


@njit(cache=True, fastmath=_FAST)
def _improve_block(gram, theta, gradient, first, last, t, flat, tol, x, g, z, work, factor):
    """The minimizer over one group, or steps towards it, into ``x``; ``gradient`` and ``theta`` stay."""
    k = last - first
    for i in range(k):
        x[i], g[i] = theta[first + i], gradient[first + i]
    if t == 0.0 or k == 1:
        for i in range(k):
            curvature = gram[first + i, first + i]
            if curvature > 0.0:
                aim = curvature * x[i] - g[i]
                aim = aim - t if aim > t else (aim + t if aim < -t else 0.0)
                change = aim / curvature - x[i]
                x[i] += change
                if aim == 0.0:
                    x[i] = 0.0
                for j in range(k):
                    g[j] += change * gram[first + i, first + j]
        return
    if not flat and k <= _EXACT_UP_TO:
        for i in range(k):
            z[i] = g[i]
            for j in range(k):
                z[i] -= gram[first + i, first + j] * x[j]
        if norm2(z) <= t:
            for i in range(k):
                x[i] = 0.0
            return
        length = norm2(x)
        start = t / length if length > 0.0 else np.inf
        if _exact_l2(gram, first, z, start, t, 0.1 * tol, x, work, factor):
            return
        for i in range(k):
            x[i] = theta[first + i]
    _prox_steps(gram, first, x, g, t, flat, 0.1 * tol, z, work)


@njit(cache=True)
def block_descent(gram, gradient, theta, starts, threshold, flat, max_epochs, tol):
    r"""Cyclic block coordinate descent on ``q(theta) + sum_g t_g ||theta_g||`` with Hessian ``gram``.

    ``theta`` and ``gradient`` (of the quadratic part) are updated in place. A group whose condition holds within ``tol``
    is left alone, which costs as much as its size: so an epoch in which no group had to move is a
    certificate. Returns whether it came to that.
    """
    widest = 0
    for g in range(threshold.size):
        widest = max(widest, starts[g + 1] - starts[g])
    space = np.empty((5, widest))
    square = min(widest, _EXACT_UP_TO)
    factor = np.empty((square, square))
    for _ in range(max_epochs):
        violated, moved = False, False
        for g in range(threshold.size):
            a, b = starts[g], starts[g + 1]
            k, t = b - a, threshold[g]
            if residual(theta[a:b], gradient[a:b], t, flat, space[0, :k]) <= tol:
                continue
            violated = True
            x = space[0, :k]
            _improve_block(
                gram, theta, gradient, a, b, t, flat, tol, x, space[1, :k], space[2, :k], space[3, :k], factor
            )
            if shift(gram, gradient, theta, x, a, b):
                moved = True
        if not violated:
            return True
        if not moved:
            return False
    return False
