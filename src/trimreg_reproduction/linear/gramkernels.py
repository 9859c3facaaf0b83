r"""Compiled loops for thousands of small penalized least-squares problems, given by their Gram matrix.

The problem is :math:`\tfrac12 \theta' G \theta - c'\theta + P_\alpha(\theta)` with :math:`G = X'X/n` and
:math:`c = X'y/n`. A call of the library's solvers takes milliseconds, much of it to check its input; the
simulations of the paper need about ten million fits of one to three hundred columns, so the same
majorize-minimize loop is written out here, with the library's own kernels inside. The tests compare it with
:func:`trimreg.solve`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from trimreg.penalties.simplex import project_vector
from trimreg.solvers.lapack import solved
from trimreg.solvers.mm.kernels import add_rows, coordinate_descent, submatrix, violators

L1, MCP, SCAD, TRIMMED = 0, 1, 2, 3
_MOST_STEPS = 200


@njit(cache=True)
def penalized(theta, gradient, alpha, kind, parameter, out):
    """The penalty at theta; ``out`` becomes its thresholds ``alpha w_j`` there.

    ``parameter`` is gamma of MCP and SCAD, h of the trimmed penalty, whose ties go to the larger gradient.
    """
    total = 0.0
    for j in range(theta.size):
        size = abs(theta[j])
        if kind == MCP:
            out[j] = max(alpha - size / parameter, 0.0)
            size = min(size, parameter * alpha)
            total += size * (alpha - size / (2.0 * parameter))
        elif kind == SCAD:
            out[j] = min(max((parameter * alpha - size) / (parameter - 1.0), 0.0), alpha)
            beyond = min(max(size, alpha), parameter * alpha) - alpha
            total += alpha * (min(size, alpha) + beyond) - beyond**2 / (2.0 * (parameter - 1.0))
        else:
            out[j] = alpha
            total += alpha * size
    for _ in range(min(int(parameter), theta.size) if kind == TRIMMED else 0):
        best, top = 0, -2.0
        for j in range(theta.size):
            key = abs(theta[j]) if theta[j] != 0.0 else -1.0 / (1.0 + abs(gradient[j]))
            if out[j] > 0.0 and key > top:
                best, top = j, key
        out[best] = 0.0
        total -= alpha * abs(theta[best])
    return max(total, 0.0)


@njit(cache=True)
def slope(gram, c, theta):
    """``G theta - c``."""
    gradient = -c
    support = np.flatnonzero(theta)
    add_rows(gram, support, theta[support], gradient)
    return gradient


@njit(cache=True, fastmath={"contract", "reassoc"})
def _newton(gram, gradient, theta, threshold):
    """The exact step for the present signs, as far as the first penalized coefficient that reaches 0."""
    B = np.flatnonzero((theta != 0.0) | (threshold == 0.0))
    step = solved(submatrix(gram, B, B), -gradient[B] - threshold[B] * np.sign(theta[B]))
    length, first = 1.0, -1
    for i in range(B.size):
        old = theta[B[i]]
        if threshold[B[i]] > 0.0 and old * (old + length * step[i]) < 0.0:
            length, first = -old / step[i], i
    for i in range(B.size):
        theta[B[i]] += length * step[i]
    if first >= 0:
        theta[B[first]] = 0.0
    add_rows(gram, B, length * step, gradient)


@njit(cache=True)
def weighted_lasso(gram, c, theta, threshold, goal):
    r"""Minimize :math:`\tfrac12\theta'G\theta - c'\theta + \sum_j t_j|\theta_j|` from ``theta``, in place.

    Active sets; on each, coordinate descent and exact steps in turn. Ends when no condition is violated by
    more than ``goal``. Returns the gradient of the quadratic.
    """
    gradient = slope(gram, c, theta)
    for _ in range(_MOST_STEPS):
        worst, A = violators(theta, gradient, threshold, goal)
        if worst <= goal:
            break
        small, g, x, t = submatrix(gram, A, A), gradient[A], theta[A], threshold[A]
        epochs = 10 + A.size // 4
        for _ in range(_MOST_STEPS):
            if coordinate_descent(small, g, x, t, epochs, 0.2 * goal) < epochs:
                break
            _newton(small, g, x, t)
        theta[A] = x
        gradient = slope(gram, c, theta)
    return gradient


@njit(cache=True)
def majorize_minimize(gram, c, theta, alpha, kind, parameter, goal):
    """MM from ``theta``, in place, until the objective falls no more. Returns ``(objective, gradient)``.

    The objective is without the constant ``y'y / 2n``.
    """
    gradient, t, last = slope(gram, c, theta), np.empty(theta.size), np.full(theta.size, -1.0)
    before = np.inf
    while True:
        value = penalized(theta, gradient, alpha, kind, parameter, t)
        objective = 0.5 * ((gradient - c) * theta).sum() + value
        if objective > before - 1e-10 * abs(before) or np.abs(t - last).max() <= 1e-9 * alpha:
            return objective, gradient
        gradient = weighted_lasso(gram, c, theta, t, goal)
        before = objective
        last[:] = t


@njit(cache=True)
def soften(gram, c, theta, alpha, h, goal):
    """The homotopy of the trimmed penalty from ``theta``, in place: weights from equal to zeros and ones."""
    top, total = np.abs(theta).max(), theta.size - h
    gamma = 0.1 / top if top > 0.0 else 0.0
    for _ in range(40):
        w = project_vector(total / theta.size - gamma * np.abs(theta), total)
        if top == 0.0 or not ((theta != 0.0) & (w > 0.0) & (w < 1.0)).any():
            break
        weighted_lasso(gram, c, theta, alpha * w, goal)
        top = np.abs(theta).max()
        gamma *= 1.7


@njit(cache=True)
def proximal_point(size, alpha, eta, kind, parameter):
    """The prox of ``eta p(.; alpha)`` at ``size >= 0``, for ``eta`` below gamma (SCAD: below gamma - 1)."""
    if kind == MCP and size < parameter * alpha:
        return max(size - eta * alpha, 0.0) / (1.0 - eta / parameter)
    if kind == SCAD and alpha * (1.0 + eta) < size < parameter * alpha:
        return ((parameter - 1.0) * size - eta * parameter * alpha) / (parameter - 1.0 - eta)
    if kind != L1 and size >= parameter * alpha:
        return size
    return max(size - eta * alpha, 0.0)


@njit(cache=True, fastmath={"contract", "reassoc"})
def first_order(gram, c, theta, alpha, kind, parameter, eta, goal, max_iter, truth, marks, distances):
    r"""Proximal gradient in place; with ``kind = TRIMMED`` the paper's Algorithm 1 with tau = 1.

    The steps are those of ``trimreg.solvers.first_order.bcd`` and of ``run_batch``, on a Gram matrix and
    without the zeros of theta: several times as fast as ``run_batch`` on a CPU.

    Ends after ``max_iter`` steps or when :math:`\|\theta^+ - \theta\|_\infty / \eta` is below ``goal``.
    ``distances[i]`` becomes :math:`\|\theta - truth\|_2` after ``marks[i]`` steps. Returns the steps taken.
    """
    p = theta.size
    total = p - parameter
    w = np.full(p, total / p)
    gradient = slope(gram, c, theta)
    change = np.empty(p)
    mark, count = 0, 0
    while True:
        while mark < marks.size and marks[mark] <= count:
            distances[mark] = np.sqrt(((theta - truth) ** 2).sum())
            mark += 1
        if count == max_iter:
            break
        moved_weights = 0.0
        if kind == TRIMMED:
            following = project_vector(w - np.abs(theta), total)
            moved_weights = np.abs(following - w).max() * alpha
            w = following
        largest = 0.0
        for j in range(p):
            z = theta[j] - eta * gradient[j]
            level = alpha * w[j] if kind == TRIMMED else alpha
            size = proximal_point(abs(z), level, eta, L1 if kind == TRIMMED else kind, parameter)
            new = size if z > 0.0 else 0.0 - size  # no negative zeros
            change[j] = new - theta[j]
            theta[j] = new
            largest = max(largest, abs(change[j]))
        moved = np.flatnonzero(change)
        add_rows(gram, moved, change[moved], gradient)
        count += 1
        if largest / eta <= goal and moved_weights <= goal:
            break
    while mark < marks.size:
        distances[mark] = np.sqrt(((theta - truth) ** 2).sum())
        mark += 1
    return count
