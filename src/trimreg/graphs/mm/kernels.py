r"""The weighted graphical lasso, compiled: proximal Newton with coordinate descent inside.

.. math:: \min_{\Theta \succ 0}\; \mathrm{tr}(S\Theta) - \log\det\Theta
          + \sum_{i \ne j} \lambda_{ij} |\Theta_{ij}|

With :math:`W = \Theta^{-1}` a step minimizes the quadratic model

.. math:: \mathrm{tr}\bigl((S - W) D\bigr) + \tfrac12 \mathrm{tr}(W D W D)
          + \sum_{i \ne j} \lambda_{ij} |\Theta_{ij} + D_{ij}|

over the entries that are nonzero or violate their condition at zero. A line search along D keeps the
objective decreasing and the matrix positive definite. Everything is one compiled function, because small
blocks (most blocks are small after screening) would otherwise spend their time in the interpreter.

References
----------
Hsieh, Sustik, Dhillon and Ravikumar (2014). QUIC: quadratic approximation for sparse inverse covariance
estimation. Journal of Machine Learning Research 15, 2911-2947.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ...solvers.lapack import factored, inverted, product, solved

_SUMS = {"reassoc", "contract", "nsz"}  # sums may be reordered; NaN and inf keep their meaning
FACE_AT_MOST = 2000  # entries that are solved for jointly when coordinate descent is slow
_FEW = 500  # entries up to which a factorization is cheap, and more accurate than conjugate gradients
_GRADIENTS, _GRADIENT_SWEEPS = 40, 15.0  # conjugate gradients per step; the sweeps that half of them cost
_INEXACT_STEPS = 25  # after this many steps, directions are computed to full accuracy at any cost

CONVERGED, OUT_OF_STEPS, STUCK, UNBOUNDED = 0, 1, 2, 3
_LARGEST = 1e14  # diagonal entry (in units of 1/S_ii) beyond which the problem counts as unbounded
_FAR, _FAR_STEPS = 1e7, 40  # beyond _FAR rounding slows the divergence of Theta; allow this many steps there


@njit(cache=True)
def rounding_of(objective, Theta):
    """The rounding error of the objective, whose terms are about as large as the diagonal of Theta."""
    return max(1e-14 * max(1.0, abs(objective)), 2e-16 * np.trace(Theta))


@njit(cache=True)
def value(S, threshold, Theta, factor):
    """The objective of the weighted problem at Theta, given its Cholesky factor."""
    p = S.shape[0]
    total = -2.0 * np.log(np.diag(factor)).sum()
    for i in range(p):
        total += S[i, i] * Theta[i, i]
        for j in range(i):
            if Theta[i, j] != 0.0:  # at a zero the threshold may be inf
                total += 2.0 * (S[i, j] * Theta[i, j] + threshold[i, j] * abs(Theta[i, j]))
    return total


@njit(cache=True)
def dual_value(S, threshold, W):
    """The dual objective at the dual feasible point nearest to W; -inf if that is not positive definite."""
    p = S.shape[0]
    feasible = np.empty((p, p))
    for i in range(p):
        feasible[i, i] = S[i, i]
        for j in range(i):
            low, high = S[i, j] - threshold[i, j], S[i, j] + threshold[i, j]
            feasible[i, j] = feasible[j, i] = min(max(W[i, j], low), high)
    factor, positive = factored(feasible)
    return 2.0 * np.log(np.diag(factor)).sum() + p if positive else -np.inf


@njit(cache=True)
def conditions(S, threshold, Theta, W, rows, starts):
    """The largest violation of an optimality condition; also fills in the entries that a step may change.

    These are the entries (i, j), ``i <= j``, that are nonzero or violate their condition at zero:
    ``rows[starts[j]:starts[j + 1]]`` are the i of column j.
    """
    p = S.shape[0]
    largest, count = 0.0, 0
    for j in range(p):
        starts[j] = count
        for i in range(j + 1):
            slope = S[i, j] - W[i, j]
            if i == j:
                violation = abs(slope)
            elif Theta[i, j] > 0.0:
                violation = abs(slope + threshold[i, j])
            elif Theta[i, j] < 0.0:
                violation = abs(slope - threshold[i, j])
            else:
                violation = abs(slope) - threshold[i, j]
                if violation <= 0.0:
                    continue
            rows[count] = i
            count += 1
            largest = max(largest, violation)
    starts[p] = count
    return largest


@njit(cache=True, fastmath=_SUMS)
def sweep(S, threshold, Theta, W, rows, starts, D, U):
    """One sweep of coordinate descent on the quadratic model; returns the largest change of a slope.

    ``U = D W`` is stored by rows. Its column j is copied before the entries of the column are visited, so
    that every product runs along memory: a visit costs one dot product and two updates of length p.
    """
    p = S.shape[0]
    u = np.empty(p)
    largest = 0.0
    for j in range(p):
        for k in range(p):
            u[k] = U[k, j]
        for place in range(starts[j], starts[j + 1]):
            i = rows[place]
            slope = S[i, j] - W[i, j]
            for k in range(p):
                slope += W[i, k] * u[k]
            if i == j:
                curvature = W[i, i] * W[i, i]
                move = -slope / curvature
            else:
                curvature = W[i, i] * W[j, j] + W[i, j] * W[i, j]
                before = Theta[i, j] + D[i, j]
                target = before - slope / curvature
                shrink = threshold[i, j] / curvature
                move = max(target - shrink, 0.0) + min(target + shrink, 0.0) - before
            if move == 0.0:
                continue
            largest = max(largest, abs(move) * curvature)
            D[i, j] += move
            u[i] += move * W[j, j]
            for k in range(p):
                U[i, k] += move * W[j, k]
            if i != j:
                D[j, i] = D[i, j]
                u[j] += move * W[i, j]
                for k in range(p):
                    U[j, k] += move * W[i, k]
    return largest


@njit(cache=True)
def nonzero_entries(threshold, Theta, rows, starts, D):
    """The rows and columns of the entries of ``Theta + D`` that are not zero or not penalized."""
    p, count = Theta.shape[0], 0
    first, second = np.empty(starts[p], dtype=np.int64), np.empty(starts[p], dtype=np.int64)
    for j in range(p):
        for place in range(starts[j], starts[j + 1]):
            i = rows[place]
            if i == j or threshold[i, j] == 0.0 or Theta[i, j] + D[i, j] != 0.0:
                first[count], second[count] = i, j
                count += 1
    return first[:count], second[:count]


@njit(cache=True, fastmath=_SUMS)
def face_step(S, threshold, Theta, W, rows, starts, D):
    """Move to the minimum of the quadratic model over the nonzero entries, with fixed signs.

    Stops where the first penalized entry would change sign and sets it to zero; returns whether this
    happened.
    """
    p = S.shape[0]
    first, second = nonzero_entries(threshold, Theta, rows, starts, D)
    count = first.size
    hessian, rhs = np.empty((count, count)), np.empty(count)
    U = product(D, W)
    for e in range(count):
        i, j = first[e], second[e]
        slope = S[i, j] - W[i, j]
        for k in range(p):
            slope += W[i, k] * U[k, j]
        if i != j and threshold[i, j] > 0.0:
            slope += threshold[i, j] * np.sign(Theta[i, j] + D[i, j])
        weight = 1.0 if i == j else 2.0
        rhs[e] = -weight * slope
        for f in range(e + 1):
            k, l = first[f], second[f]
            entry = W[i, k] * W[j, l] + W[i, l] * W[j, k]
            if k == l:
                entry *= 0.5
            hessian[e, f] = hessian[f, e] = weight * entry
    x = solved(hessian, rhs)
    step, blocking = 1.0, -1
    for e in range(count):
        i, j = first[e], second[e]
        if i != j and threshold[i, j] > 0.0:
            before = Theta[i, j] + D[i, j]
            if before * (before + x[e]) < 0.0 and -before / x[e] < step:
                step, blocking = -before / x[e], e
    for e in range(count):
        i, j = first[e], second[e]
        D[i, j] += step * x[e]
        if e == blocking:
            D[i, j] = -Theta[i, j]
        D[j, i] = D[i, j]
    return blocking >= 0


@njit(cache=True, fastmath=_SUMS)
def sandwiched(M, first, second, x, out):
    """The entries ``(first, second)`` of ``M X M``, with X the symmetric matrix that has x there."""
    p = M.shape[0]
    if 8 * x.size > p * p:  # most entries: two products of whole matrices are faster
        X = np.zeros((p, p))
        for e in range(x.size):
            X[first[e], second[e]] = X[second[e], first[e]] = x[e]
        X = product(M, product(X, M))
        for e in range(x.size):
            out[e] = X[first[e], second[e]]
        return
    half, turned = np.zeros((p, p)), np.empty((p, p))
    for e in range(x.size):
        i, j, one = first[e], second[e], x[e]
        for k in range(p):
            half[i, k] += one * M[j, k]
        if i != j:
            for k in range(p):
                half[j, k] += one * M[i, k]
    for i in range(p):
        for k in range(p):
            turned[k, i] = half[i, k]
    for e in range(x.size):
        i, j, total = first[e], second[e], 0.0
        for k in range(p):
            total += turned[i, k] * M[j, k]
        out[e] = total


@njit(cache=True)
def model_value(S, threshold, Theta, W, rows, starts, D):
    """The quadratic model at D."""
    p = S.shape[0]
    U, total = product(D, W), 0.0
    for j in range(p):
        for k in range(p):
            total += 0.5 * U[j, k] * U[k, j]
        for place in range(starts[j], starts[j + 1]):
            i = rows[place]
            if i == j:
                total += (S[j, j] - W[j, j]) * D[j, j]
            elif Theta[i, j] + D[i, j] != 0.0 or D[i, j] != 0.0:
                total += 2.0 * (S[i, j] - W[i, j]) * D[i, j]
                total += 2.0 * threshold[i, j] * abs(Theta[i, j] + D[i, j])
    return total


@njit(cache=True)
def gradient_step(S, threshold, Theta, W, rows, starts, D, goal):
    r"""Move towards the minimum of the quadratic model over the nonzero entries by conjugate gradients.

    The system is :math:`P (W X W) = r` on these entries. :math:`P (\Theta R \Theta)`, the inverse of the
    whole system restricted to them, is the preconditioner. Entries that would change sign become zero; the
    step is divided by four until the model falls. Changes D in place; returns whether it fell.
    """
    first, second = nonzero_entries(threshold, Theta, rows, starts, D)
    count = first.size
    x, r, z, q, image, now = (
        np.zeros(count), np.empty(count), np.empty(count), np.empty(count), np.empty(count), np.empty(count),
    )  # fmt: skip
    for e in range(count):
        now[e] = D[first[e], second[e]]
    sandwiched(W, first, second, now, image)
    for e in range(count):
        i, j = first[e], second[e]
        r[e] = W[i, j] - S[i, j] - image[e]
        if i != j and threshold[i, j] > 0.0:
            r[e] -= threshold[i, j] * np.sign(Theta[i, j] + D[i, j])
    before = 0.0
    for turn in range(_GRADIENTS):
        largest = np.max(np.abs(r))
        if largest <= goal:
            break
        sandwiched(Theta, first, second, r, z)
        product_rz = _inner(first, second, r, z)
        if turn == 0:
            q[:] = z
        else:
            q[:] = z + product_rz / before * q
        before = product_rz
        sandwiched(W, first, second, q, image)
        bend = _inner(first, second, q, image)
        if not bend > 0.0:
            break
        length = product_rz / bend
        x += length * q
        r -= length * image
    start, step = model_value(S, threshold, Theta, W, rows, starts, D), 1.0
    for _ in range(5):
        for e in range(count):
            i, j = first[e], second[e]
            entry = Theta[i, j] + now[e] + step * x[e]
            crosses = i != j and threshold[i, j] > 0.0 and entry * (Theta[i, j] + now[e]) <= 0.0
            D[i, j] = D[j, i] = -Theta[i, j] if crosses else now[e] + step * x[e]
        if model_value(S, threshold, Theta, W, rows, starts, D) < start:
            return True
        step /= 4.0
    for e in range(count):
        D[first[e], second[e]] = D[second[e], first[e]] = now[e]
    return False


@njit(cache=True, fastmath=_SUMS)
def _inner(first, second, x, y):
    """The inner product of two symmetric matrices that have x and y at these entries."""
    total = 0.0
    for e in range(x.size):
        total += x[e] * y[e] * (1.0 if first[e] == second[e] else 2.0)
    return total


@njit(cache=True)
def newton_direction(S, threshold, Theta, W, rows, starts, goal, max_sweeps, patience=np.inf):
    """Minimize the quadratic model until a sweep changes no slope by more than ``goal``.

    Coordinate descent is fast if W is well conditioned and slow if not. If the remaining sweeps, at the rate
    of the last one, would cost more, the nonzero entries are solved for jointly: by a factorization of the
    Hessian if they are few, else by conjugate gradients. At most ``patience`` sweeps are assumed to remain:
    while Theta is far from the solution an inexact direction is enough.
    """
    p = S.shape[0]
    D, U = np.zeros((p, p)), np.zeros((p, p))
    size = float(starts[p])
    one_sweep = 3.0 * size * p
    one_face = size**3 / 24.0 + 4.0 * size**2 + 4e4  # measured, in units of a step of a sweep
    many = size > _FEW and size**3 / 12.0 > _GRADIENT_SWEEPS * one_sweep
    before, at_last_face, fruitless, blocked, fell = np.inf, np.inf, 0.0, False, True
    for count in range(max_sweeps):
        largest = sweep(S, threshold, Theta, W, rows, starts, D, U)
        rate = largest / before if before > 0.0 else 0.0
        if largest <= goal * max(1.0 - rate, 0.1) or largest == 0.0:
            break
        before = largest
        if count >= 3 and rate > 0.0:  # two sweeps after a joint step give the rate
            if rate >= 1.0:  # an early sweep may do worse than the one before
                rate = 0.95 if count < 8 else 1.0 - 1e-12
            left = min(np.log(largest / (0.1 * goal)) / -np.log(rate), patience) * one_sweep
            useful = largest <= 0.5 * at_last_face
            if many and fell and left > _GRADIENT_SWEEPS * one_sweep:
                fell = gradient_step(S, threshold, Theta, W, rows, starts, D, goal)
            elif size <= FACE_AT_MOST and left > one_face:
                # If W is nearly singular the Hessian is too ill-conditioned to solve with: the remaining
                # changes are rounding and will not get smaller.
                fruitless = 0.0 if useful else fruitless + (0.25 if blocked else 1.0)
                if fruitless > 1.0:
                    break
                for _ in range(1 if many else 20):
                    blocked = face_step(S, threshold, Theta, W, rows, starts, D)
                    if not blocked:
                        break
            else:
                continue
            at_last_face = largest
            U = product(D, W)
            before = np.inf
    return D


@njit(cache=True)
def descent(S, threshold, Theta, W, D):
    """The slope of the objective along D, with the difference over the whole step for the l1 part."""
    p = S.shape[0]
    total = 0.0
    for i in range(p):
        total += (S[i, i] - W[i, i]) * D[i, i]
        for j in range(i):
            if D[i, j] != 0.0:
                change = abs(Theta[i, j] + D[i, j]) - abs(Theta[i, j])
                total += 2.0 * ((S[i, j] - W[i, j]) * D[i, j] + threshold[i, j] * change)
    return total


@njit(cache=True)
def minimize_weighted(S, threshold, Theta, shift, tol, max_iter, max_sweeps):
    """The weighted graphical lasso from a positive definite Theta; S has a unit diagonal.

    Stops when the duality gap is at most ``tol * max(1, |objective + shift|)``. Returns ``(Theta, W,
    objective, gap, violation, n_iter, status)``: a matrix with exact zeros, its inverse, the objective
    without the shift, and the absolute gap, inf if no dual point was found.
    """
    p = S.shape[0]
    rows, starts = np.empty(p * (p + 1) // 2, dtype=np.int32), np.empty(p + 1, dtype=np.int64)
    if not np.triu(threshold, 1).any():  # the solution is the inverse of S; Newton steps would be slow
        factor, positive = factored(S)
        inverse = inverted(factor) if positive else Theta
        if not positive or np.diag(inverse).max() > _LARGEST:
            return np.eye(p), np.eye(p), -np.inf, np.inf, np.inf, 0, UNBOUNDED
        Theta = inverse
    factor, positive = factored(Theta)
    if not positive:
        Theta = np.eye(p)
        factor = np.eye(p)
    W = inverted(factor)
    objective = value(S, threshold, Theta, factor)
    fall, gap, silent, far, n_iter = np.inf, np.inf, 0, 0, 0
    while True:
        violation = conditions(S, threshold, Theta, W, rows, starts)
        room = tol * max(1.0, abs(objective + shift))
        # Computing the gap takes a factorization, and it cannot be small after a large decrease.
        if fall <= max(1e3 * room, 1e-5 * abs(objective)) or violation <= tol or n_iter == max_iter:
            gap = max(objective - dual_value(S, threshold, W), 0.0)
            if gap <= room:
                return Theta, W, objective, gap, violation, n_iter, CONVERGED
        if n_iter == max_iter:
            return Theta, W, objective, gap, violation, n_iter, OUT_OF_STEPS
        n_iter += 1
        # For many entries an accurate direction costs more than the steps that it saves. Slopes below 1e-15
        # are rounding.
        share = min(0.1, violation) if starts[p] <= _FEW else min(0.3, np.sqrt(violation))
        goal = max(share * violation, 1e-15)
        patience = 10.0 * max_sweeps if n_iter <= _INEXACT_STEPS else np.inf
        D = newton_direction(S, threshold, Theta, W, rows, starts, goal, max_sweeps, patience)
        slope = descent(S, threshold, Theta, W, D)
        # The gap is of the order of the violation, the error of the objective of its square. Near the end
        # the gap still falls while the objective changes by rounding only: a few such steps are accepted.
        rounding = rounding_of(objective, Theta)
        silent = silent + 1 if -slope <= rounding else 0
        step, accepted = 1.0, False
        while silent <= 3 and step > 1e-12 and slope < 0.0:
            trial = Theta + step * D
            trial_factor, positive = factored(trial)
            if positive:
                trial_objective = value(S, threshold, trial, trial_factor)
                if trial_objective <= objective + 1e-3 * step * slope + rounding:
                    accepted = True
                    break
            step /= 2.0
        if not accepted:
            gap = max(objective - dual_value(S, threshold, W), 0.0)
            return Theta, W, objective, gap, violation, n_iter, CONVERGED if gap <= room else STUCK
        fall = objective - trial_objective
        Theta, factor, objective = trial, trial_factor, trial_objective
        W = inverted(factor)
        largest = np.diag(Theta).max()
        if largest > _LARGEST:
            return Theta, W, objective, np.inf, violation, n_iter, UNBOUNDED
        far = far + 1 if largest > _FAR else 0
        if far == _FAR_STEPS and dual_value(S, threshold, W) == -np.inf:
            return Theta, W, objective, np.inf, violation, n_iter, STUCK
