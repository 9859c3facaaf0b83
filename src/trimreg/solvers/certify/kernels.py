r"""Compiled work of a node: a relaxation is solved by blocks of coordinates, and a dual point is valued.

A node minimizes, over theta and over the sets of h free parts that its decisions allow,

.. math:: \tfrac12 \theta'M\theta - c'\theta + \sum_g \bigl[\tfrac{\delta_g}2 \|\theta_g\|^2
          + [g \text{ not free}]\, t_g \|\theta_g\|\bigr],

with ``t = inf`` where at most h parts may be nonzero. Any point u gives a lower bound, since M is positive
semidefinite and :math:`\frac12 \theta'M\theta \ge u'M\theta - \frac12 u'Mu`: with ``q = c - M u``,

.. math:: D(u) = -\tfrac12 u'Mu - \sum_g B_g - \text{(sum of the h largest) } (A_g - B_g), \qquad
          A_g = \frac{\|q_g\|^2}{2\delta_g},\quad B_g = \frac{(\|q_g\| - t_g)_+^2}{2\delta_g}.

Parts decided free count with A, parts decided not free with B. The best u solves the relaxation in which
every part has a share z of freedom, and the shares sum to h. With the price :math:`\lambda` of freedom that
relaxation is a sum over parts (:func:`curve`), so that coordinate descent solves it.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ..lapack import factored

UNDECIDED, FREE, NOT_FREE = 0, 1, -1
_LARGEST_SYSTEM = 700


@njit(cache=True, nogil=True)
def subtract(q, factor, row):
    """``q -= factor * row``. Loops compile several times faster than expressions of arrays."""
    for j in range(q.size):
        q[j] -= factor * row[j]


@njit(cache=True, nogil=True)
def take(target, source):
    """``target[:] = source``."""
    for j in range(target.size):
        target[j] = source[j]


@njit(cache=True, nogil=True)
def curve(v, m, delta, t, price, state):
    r"""The length r that minimizes :math:`\frac m2 r^2 - v r + \Omega(r)`, and the share of freedom there.

    :math:`\Omega` is :math:`\frac\delta2 r^2` for a free part, :math:`\frac\delta2 r^2 + t r` for one that is
    not, and otherwise the convex envelope of the smaller of the two when freedom costs ``price``. The
    envelope is linear on one interval, along which the share rises from 0 to 1.
    """
    if state == FREE:
        return v / (m + delta), 1.0
    if state == NOT_FREE:
        return max(v - t, 0.0) / (m + delta), 0.0
    slope = np.sqrt(2.0 * price * delta)
    low = 0.0  # where the linear interval begins, times delta
    if slope > t:
        slope = price * delta / t + 0.5 * t
        low = slope - t
    if v <= slope + m * low / delta:
        return max(v - t, 0.0) / (m + delta), 0.0
    if v < slope + m * slope / delta:
        r = (v - slope) / m
        return r, (r * delta - low) / (slope - low)
    return v / (m + delta), 1.0


@njit(cache=True, nogil=True)
def sweep(M, start, m, delta, t, state, price, theta, q, all_parts):
    """One round of coordinate descent over the nonzero parts or all; the sum of shares, the largest move.

    ``q = c - M theta`` is kept up to date.
    """
    shares, largest = 0.0, 0.0
    move = np.empty(theta.size)
    for g in range(start.size - 1):
        first, size = start[g], start[g + 1] - start[g]
        if state[g] == NOT_FREE and t[g] == np.inf:
            continue
        square, nonzero = 0.0, all_parts
        for k in range(size):
            move[k] = q[first + k] + m[g] * theta[first + k]
            square += move[k] * move[k]
            nonzero |= theta[first + k] != 0.0
        if not nonzero:
            continue
        length = np.sqrt(square)
        r, share = curve(length, m[g], delta[g], t[g], price, state[g])
        shares += share if state[g] == UNDECIDED else 0.0
        ratio = r / length if r > 0.0 else 0.0
        for k in range(size):
            move[k] = ratio * move[k] - theta[first + k]
        for k in range(size):
            if move[k] != 0.0:
                theta[first + k] += move[k]
                subtract(q, move[k], M[first + k])
                largest = max(largest, abs(move[k]) * np.sqrt(m[g] + delta[g]))
    return shares, largest


@njit(cache=True, nogil=True)
def gains(q, start, delta, t, state, gain):
    """Sum of what decided parts and penalties take, and in ``gain`` what freedom adds for each undecided."""
    taken = 0.0
    for g in range(start.size - 1):
        square = 0.0
        for j in range(start[g], start[g + 1]):
            square += q[j] * q[j]
        free = 0.5 * square / delta[g]
        rest = max(np.sqrt(square) - t[g], 0.0)
        paid = 0.5 * rest * rest / delta[g]
        gain[g] = -1.0
        if state[g] == FREE:
            taken += free
        else:
            taken += paid
            if state[g] == UNDECIDED:
                gain[g] = free - paid
    return taken


@njit(cache=True, nogil=True)
def largest_gains(gain, count):
    """The count-th largest gain, the one after it, and the sum of the count largest, without negative ones.

    Hoare's selection: after it the count largest come first.
    """
    work, size, total = np.empty(gain.size), 0, 0.0
    for g in range(gain.size):
        if gain[g] >= 0.0:
            work[size] = gain[g]
            size += 1
    low, high = 0, size - 1 if count < size else 0
    while low < high and count > 0:
        pivot, i, j = work[(low + high) // 2], low, high
        while i <= j:
            while work[i] > pivot:
                i += 1
            while work[j] < pivot:
                j -= 1
            if i <= j:
                work[i], work[j] = work[j], work[i]
                i, j = i + 1, j - 1
        if count - 1 <= j:
            high = j
        elif count - 1 >= i:
            low = i
        else:
            break
    last, following = np.inf, -np.inf
    for k in range(size):
        if k < count:
            total += work[k]
            last = min(last, work[k])
        else:
            following = max(following, work[k])
    return last if count < size else 0.0, following, total


@njit(cache=True, nogil=True)
def value(constant, c, start, delta, t, state, count, theta, q, gain):
    """The bound D(theta) plus the constant."""
    taken = gains(q, start, delta, t, state, gain)
    quadratic = 0.0
    for j in range(c.size):
        if theta[j] != 0.0:
            quadratic += theta[j] * (c[j] - q[j])
    return constant - 0.5 * quadratic - taken - largest_gains(gain, count)[2]


@njit(cache=True, nogil=True)
def polish(M, c, delta, state, count, theta, q, price, rounds):
    r"""Newton's method for the relaxation of single coefficients with ``t = inf``; moves theta and q.

    On the linear interval :math:`(M\theta - c)_j = -s \sqrt{\delta_j}\,\mathrm{sign}\,\theta_j` with
    :math:`s^2` twice the price, beyond it :math:`(M\theta - c)_j = -\delta_j \theta_j`. So theta is linear in
    s, and the shares :math:`|\theta_j| \sqrt{\delta_j} / s` sum to the count for one s. Returns the price and
    whether no part changed its piece.
    """
    p = c.size
    root, sign = np.empty(p), np.empty(p)
    piece, active = np.zeros(p, dtype=np.int8), np.empty(p, dtype=np.intp)  # 0 zero, 1 linear, 2 quadratic
    s = np.sqrt(2.0 * price)
    for j in range(p):
        root[j], sign[j] = np.sqrt(delta[j]), np.sign(theta[j])
        if state[j] == FREE:
            piece[j] = 2
        elif state[j] == UNDECIDED and theta[j] != 0.0:
            piece[j] = 2 if abs(theta[j]) * root[j] >= s * (1.0 - 1e-9) else 1
    for _ in range(rounds):
        size = 0
        for j in range(p):
            if piece[j] != 0:
                active[size] = j
                size += 1
        if size == 0 or size > _LARGEST_SYSTEM:
            return price, False
        H = np.empty((size, size))
        fixed, slope = np.empty(size), np.zeros(size)
        whole = 0
        for a in range(size):
            i = active[a]
            for b in range(size):
                H[a, b] = M[i, active[b]]
            fixed[a] = c[i]
            if piece[i] == 2:
                H[a, a] += delta[i]
                if state[i] == UNDECIDED:
                    whole += 1
            else:
                H[a, a] *= 1.0 + 1e-12
                slope[a] = root[i] * sign[i]
        factor, good = factored(H)
        if not good:
            return price, False
        for a in range(size):
            for b in range(a):
                fixed[a] -= factor[a, b] * fixed[b]
                slope[a] -= factor[a, b] * slope[b]
            fixed[a] /= factor[a, a]
            slope[a] /= factor[a, a]
        for a in range(size - 1, -1, -1):
            fixed[a] /= factor[a, a]
            slope[a] /= factor[a, a]
            for b in range(a):
                fixed[b] -= factor[a, b] * fixed[a]
                slope[b] -= factor[a, b] * slope[a]
        above, below = 0.0, float(count - whole)
        for a in range(size):
            i = active[a]
            if piece[i] == 1:
                above += root[i] * sign[i] * fixed[a]
                below += root[i] * sign[i] * slope[a]
        previous = s
        if below > 1e-12 * max(count, 1) and above > 0.0:
            s = above / below
        s = min(max(s, 0.2 * previous), 5.0 * previous)
        take(q, c)
        for j in range(p):
            theta[j] = 0.0
        for a in range(size):
            i = active[a]
            theta[i] = fixed[a] - s * slope[a]
            if theta[i] != 0.0:
                subtract(q, theta[i], M[i])
        changed = 0
        for j in range(p):
            if state[j] != UNDECIDED:
                continue
            if piece[j] == 0:
                if abs(q[j]) > s * root[j] * (1.0 + 1e-9):
                    piece[j], sign[j] = 1, np.sign(q[j])
                    changed += 1
            elif piece[j] == 1:
                if theta[j] * sign[j] < 0.0:
                    piece[j] = 0
                    changed += 1
                elif abs(theta[j]) * root[j] > s * (1.0 + 1e-9):
                    piece[j] = 2
                    changed += 1
            elif abs(theta[j]) * root[j] < s * (1.0 - 1e-9):
                piece[j], sign[j] = 1, np.sign(theta[j])
                changed += 1
        if changed == 0 and abs(s - previous) <= 1e-9 * s:
            return 0.5 * s * s, True
    return 0.5 * s * s, False


@njit(cache=True, nogil=True)
def relax(constant, M, c, start, m, delta, t, state, count, theta, price, cutoff, rounds, tol):
    """Raise the bound of a node from theta and a price; stop above the cutoff.

    Returns the best bound found, the price, whether the relaxation is solved, and the point of that bound.
    """
    p, parts = c.size, start.size - 1
    theta = theta.copy()
    q = c.copy()
    for j in range(p):
        if theta[j] != 0.0:
            subtract(q, theta[j], M[j])
    gain = np.empty(parts)
    best = value(constant, c, start, delta, t, state, count, theta, q, gain)
    best_theta = theta.copy()
    if price <= 0.0:
        price = 0.1 * constant / max(count, 1)
    newton = parts == p
    undecided = 0
    for g in range(parts):
        newton &= t[g] == np.inf
        undecided += state[g] == UNDECIDED
    low, high, solved = 0.0, np.inf, False
    for _ in range(rounds):
        shares = 0.0
        scale = np.sqrt(2.0 * constant)
        for k in range(20 if newton else 200):
            shares, largest = sweep(M, start, m, delta, t, state, price, theta, q, k % 5 == 0)
            if largest <= tol * scale and k % 5 == 0:
                break
        new = value(constant, c, start, delta, t, state, count, theta, q, gain)
        if new > best:
            best = new
            take(best_theta, theta)
        if best >= cutoff or (not newton and undecided == 0):
            solved = best < cutoff
            break
        if newton:
            kept, kept_q = theta.copy(), q.copy()
            reached, solved = polish(M, c, delta, state, count, theta, q, price, 10)
            new = value(constant, c, start, delta, t, state, count, theta, q, gain)
            if new > best:
                best = new
                take(best_theta, theta)
                price = reached
            else:
                take(theta, kept)
                take(q, kept_q)
            if solved or best >= cutoff:
                break
            if new == best:
                continue
        if abs(shares - count) <= 1e-6 * count:
            solved = True
            break
        if shares > count:
            low = max(low, price)
        else:
            high = min(high, price)
        if low > 0.0 and high < np.inf:
            if high <= low * (1.0 + 1e-9):
                solved = True
                break
            price = np.sqrt(low * high)
        else:
            price *= 4.0 if shares > count else 0.25
    return best, price, solved, best_theta


@njit(cache=True, nogil=True)
def safe_value(constant, M, c, start, delta, t, state, count, theta):
    r"""The bound of a dual point from products computed anew, rounded down, with the gains.

    A sum of n products is off by at most :math:`n \epsilon \sum |a_i b_i|`. So each entry of q is off by at
    most ``error``, which enlarges it, and ``u'Mu`` by ``error`` times the l1 norm of u.
    """
    p = c.size
    q = c.copy()
    size, terms, largest = 0.0, 0, 0.0
    for j in range(p):
        if theta[j] != 0.0:
            subtract(q, theta[j], M[j])
            size += abs(theta[j])
            terms += 1
            for i in range(p):
                largest = max(largest, abs(M[j, i]))
    farthest = 0.0
    for j in range(p):
        farthest = max(farthest, abs(c[j]))
    error = 2.3e-16 * (terms + 4) * (size * largest + farthest)
    quadratic = 0.0
    for j in range(p):
        if theta[j] != 0.0:
            quadratic += theta[j] * (c[j] - q[j])
    quadratic += size * error * 2.0
    for j in range(p):
        q[j] = q[j] + error if q[j] >= 0.0 else q[j] - error
    gain = np.empty(start.size - 1)
    taken = gains(q, start, delta, t, state, gain)
    last, following, top = largest_gains(gain, count)
    return constant - (0.5 * quadratic + taken + top) * (1.0 + 1e-13), gain, last, following
