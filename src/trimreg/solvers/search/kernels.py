"""The compiled descent of :class:`trimreg.solvers.search.subset.SubsetSearch`."""

from __future__ import annotations

import numpy as np
from numba import njit

from ..mm.kernels import add_rows

SETTLED, MISSING, DELICATE, LIMIT = range(4)  # why a descent ends


@njit(cache=True, fastmath={"contract", "reassoc"})
def best_swap(link, correlation, spare, theta, inverse, first, count, least):
    r"""The single swap of largest gain above ``least``: ``(gain, slot, column)``, or a column of -1.

    If column j replaces the one in slot i, the objective falls by

    .. math:: \frac{c_j^2}{2 s_j} - \frac{(\theta_i - K_{ij} c_j / s_j)^2}{2 (V_{ii} + K_{ij}^2 / s_j)}.

    The test that a gain exceeds the best one so far needs no division, and few gains pass it.
    """
    p = correlation.size
    scaled, weight, excess = np.zeros(p), np.zeros(p), np.full(p, -1.0)
    for j in range(p):
        if spare[j] > 0.0:
            weight[j] = 1.0 / spare[j]
            scaled[j] = correlation[j] * weight[j]
            excess[j] = correlation[j] * scaled[j] - 2.0 * least
    gain, slot, column = least, -1, -1
    for i in range(first, count):
        row, value, variance = link[i], theta[i], inverse[i, i]
        passed = 0
        for j in range(p):
            moved = value - row[j] * scaled[j]
            passed += excess[j] * (variance + row[j] * row[j] * weight[j]) > moved * moved
        for j in range(p if passed else 0):
            moved = value - row[j] * scaled[j]
            more = excess[j] - moved * moved / (variance + row[j] * row[j] * weight[j])
            if more > 0.0:
                gain, slot, column = gain + 0.5 * more, i, j
                for k in range(p):
                    excess[k] -= more
    return gain, slot, column


@njit(cache=True, fastmath={"contract", "reassoc"})
def swap_gains(link, correlation, spare, theta, inverse, first, count):
    """The largest gain of every column in a swap (see :func:`best_swap`) and its slot; -inf without one."""
    p = correlation.size
    scaled, weight, slot = np.zeros(p), np.zeros(p), np.zeros(p, dtype=np.intp)
    gain, least = np.full(p, -np.inf), np.full(p, np.inf)
    for j in range(p):
        if spare[j] > 0.0:
            weight[j] = 1.0 / spare[j]
            scaled[j] = correlation[j] * weight[j]
    for i in range(first, count):
        row, value, variance = link[i], theta[i], inverse[i, i]
        for j in range(p):
            moved = value - row[j] * scaled[j]
            cost = moved * moved / (variance + row[j] * row[j] * weight[j])
            slot[j] = i if cost < least[j] else slot[j]
            least[j] = min(least[j], cost)
    for j in range(p):
        if spare[j] > 0.0 and count > first:
            gain[j] = 0.5 * (correlation[j] * scaled[j] - least[j])
    return gain, slot


@njit(cache=True, fastmath={"contract", "reassoc"})
def best_entry(correlation, spare, least):
    """The column of largest gain ``c_j^2 / (2 s_j)`` above ``least``, or -1."""
    column = -1
    for j in range(correlation.size):
        if spare[j] > 0.0 and correlation[j] * correlation[j] > 2.0 * least * spare[j]:
            least, column = correlation[j] * correlation[j] / (2.0 * spare[j]), j
    return column


@njit(cache=True, fastmath={"contract", "reassoc"})
def refined(gram, place, target, active, inverse, theta):
    """Remove the error of updates from theta, as far as its equations show it, in place.

    Returns the explained energy, and the size of the error relative to theta.
    """
    count = active.size
    rest = np.empty(count)
    for i in range(count):
        row, rest[i] = gram[place[active[i]]], target[active[i]]
        for k in range(count):
            rest[i] -= row[active[k]] * theta[k]
    explained, error, largest = 0.0, 0.0, 0.0
    for i in range(count):
        change = 0.0
        for k in range(count):
            change += inverse[i, k] * rest[k]
        theta[i] += change
        explained += target[active[i]] * theta[i]
        error, largest = max(error, abs(change)), max(largest, abs(theta[i]))
    return explained, error / largest if largest > 0.0 else error


@njit(cache=True, fastmath={"contract", "reassoc"})
def descend(
    gram, place, target, eligible, active, first, count, size, link, inverse, theta, correlation, spare,
    least, safe, dependent, limit, gradually,
):  # fmt: skip
    r"""Fill vacant places by the best column, then make the best single swap, until none gains ``least``.

    With ``gradually`` swaps come first, and a place is filled when no swap is left. The active columns are
    ``active[:count]``; those before ``first`` never leave. At most ``size`` others are wanted.
    ``gram[place[j]]`` is row j of the Gram matrix if ``place[j] >= 0``. All arrays of the state are updated
    in place by corrections of rank one. With the dual basis :math:`v` (:math:`K_{kj} = v_k' D z_j`) the
    column in ``slot`` leaves by ``v_k -= leaving_k v_slot``. The new one enters by ``v_k -= entering_k
    v_new`` with ``v_new = z / left`` for the part z that the others do not explain, of squared norm ``left``.

    Returns why the descent ended, the number of active columns and of moves, the slot and column of the next
    move, the explained energy, and the drift of theta (:func:`refined`). The end is SETTLED if there is no
    next move, MISSING if its row of the Gram matrix is (then the last two are 0), DELICATE if ``left`` is
    below ``safe``, and LIMIT after ``limit`` moves.
    """
    # Loops in place of assignments to slices and indexing by arrays: these take seconds to compile.
    p = correlation.size
    old, new = np.zeros(p), np.empty(p)
    leaving, entering, amount = np.zeros(theta.size), np.zeros(theta.size), np.empty(theta.size)
    rows = np.empty(theta.size, dtype=np.intp)
    end, moves, slot, column = LIMIT, 0, -1, -1
    while moves < limit:
        slot, column, vacant = count, -1, count - first < size
        if vacant and not gradually:
            column = best_entry(correlation, spare, least)
        if column < 0:
            _, slot, column = best_swap(link, correlation, spare, theta, inverse, first, count, least)
        if column < 0 and vacant and gradually:
            slot, column = count, best_entry(correlation, spare, least)
        if column < 0:
            end = SETTLED
            break
        if place[column] < 0:
            end = MISSING
            break
        swapped = slot < count
        pivot, lost, gone = 1.0, 0.0, -1
        left, c_new = spare[column], correlation[column]
        for i in range(count):
            entering[i] = link[i, column]
        if swapped:
            pivot, gone = inverse[slot, slot], active[slot]
            lost = theta[slot] / pivot
            left += link[slot, column] ** 2 / pivot
            c_new += link[slot, column] * lost
            for i in range(count):
                leaving[i] = inverse[i, slot] / pivot
                entering[i] -= link[slot, column] * leaving[i]
            entering[slot] = 0.0
        if left < safe:
            end = DELICATE
            break
        for j in range(p if swapped else 0):
            old[j] = link[slot, j]
        for j in range(p):
            new[j] = gram[place[column], j]
        for i in range(count):
            rows[i], amount[i] = place[active[i]], -entering[i]
        add_rows(gram, rows[:count], amount[:count], new)
        for j in range(p):
            new[j] /= left
        for i in range(count):
            row, a, b = link[i], leaving[i], entering[i]
            for j in range(p):
                row[j] -= a * old[j] + b * new[j]
            theta[i] -= lost * pivot * a + b * c_new / left
            for k in range(count):
                inverse[i, k] += b * entering[k] / left - a * leaving[k] * pivot
        for j in range(p):
            link[slot, j] = new[j]
        for i in range(count):
            inverse[i, slot] = inverse[slot, i] = -entering[i] / left
        inverse[slot, slot] = 1.0 / left
        theta[slot] = c_new / left
        active[slot] = column
        count = max(count, slot + 1)
        for j in range(p):
            correlation[j] += old[j] * lost - new[j] * c_new
            spare[j] += old[j] * old[j] / pivot - new[j] * new[j] * left
            if spare[j] < dependent or not eligible[j]:
                spare[j] = 0.0
        if swapped:
            explained = 0.0
            for i in range(count):
                explained += link[i, gone] * gram[place[active[i]], gone]
            spare[gone] = max(1.0 - explained, 0.0)
            if spare[gone] < dependent:
                spare[gone] = 0.0
            for j in range(p):
                old[j] = 0.0
            for i in range(count):
                leaving[i] = 0.0
        for i in range(count):
            spare[active[i]] = 0.0
        moves += 1
    explained, drift = 0.0, 0.0
    if end != MISSING:
        explained, drift = refined(gram, place, target, active[:count], inverse, theta)
    return end, count, moves, slot, column, explained, drift
