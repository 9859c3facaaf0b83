r"""A quadratic plus a weighted l1 norm, minimized in Gram coordinates.

.. math:: \min_x\; g'(x - \theta) + \tfrac12 (x - \theta)'G(x - \theta) + \sum_j t_j |x_j|.

Coordinate descent finds the support and the signs. A Newton step on the support, unpenalized block included,
then finishes where coordinate descent would crawl. Groups have their own minimizer
(:mod:`trimreg.solvers.mm.groups`).
"""

from __future__ import annotations

import numpy as np

from ...penalties.base import largest_violation, subgradient_residual
from ..gram import cholesky_solve, regularized_cholesky
from .kernels import coordinate_descent

_EPOCHS = 200
_SWEPT = 10  # rounds of coordinate descent before coordinates enter one by one


def newton_on_support(gram, gradient, theta, threshold, positive, max_drops=10):
    """Minimize over the current support and signs, in place; a coordinate that comes to 0 is dropped.

    All coordinates that would change sign are dropped at once if the objective falls enough by that, else
    only the first that comes to 0 on the way. Unpenalized coordinates belong to the support whatever their
    value, and may change sign.
    """
    free = (threshold == 0) & (np.diagonal(gram) > 0) & ~np.asarray(positive)
    for _ in range(max_drops):
        active = np.flatnonzero((theta != 0) | free)
        if active.size == 0:
            return
        slope = gradient[active] + threshold[active] * np.sign(theta[active])
        factor = regularized_cholesky(gram[np.ix_(active, active)])
        direction = -cholesky_solve(factor, slope)
        with np.errstate(over="ignore", invalid="ignore"):  # a nearly flat direction has no end
            decrease = slope @ direction
        if not -np.inf < decrease < 0:
            return
        old = theta[active]
        bound = ~free[active] & (direction * old < 0)
        crossing = bound & (old * (old + direction) < 0)
        move = np.where(crossing, -old, direction)
        with np.errstate(over="ignore", invalid="ignore"):
            change = _product(gram, active, move)
            kept = np.abs(old + move) - np.abs(old)
            fall = move @ gradient[active] + 0.5 * (move @ change[active]) + threshold[active] @ kept
        if crossing.any() and not fall <= 0.1 * decrease:
            ratios = np.where(bound, -old / np.where(bound, direction, 1.0), np.inf)
            step = min(1.0, ratios.min())
            crossing = ratios <= step
            move = np.where(crossing, -old, step * direction)
            change = _product(gram, active, move)
        theta[active] = np.where(crossing, 0.0, old + move)
        gradient += change
        if not crossing.any():
            return


def _product(gram, active, move):
    """``G' x`` for x that is ``move`` on the active coordinates; without a copy of most of G."""
    if 3 * active.size < gram.shape[0]:
        return move @ gram[active]
    x = np.zeros(gram.shape[0])
    x[active] = move
    return gram @ x


def minimize_block(gram, gradient, theta, threshold, positive, tol, max_rounds=100):
    """Minimize ``g'(x - theta) + (x - theta)' G (x - theta) / 2 + sum t |x|``; all arrays in place.

    Returns whether the conditions hold within ``tol``; rounding in a singular G can prevent it. If columns
    are nearly dependent, sweeps may forever bring in many coordinates that the Newton step takes out again:
    after some rounds only the coordinate of largest violation enters (feature-sign search, Lee et al. 2007).
    """
    nonnegative = np.full(theta.size, positive)
    for round_ in range(max_rounds):
        epochs = _EPOCHS
        if round_ < _SWEPT:
            epochs = coordinate_descent(gram, gradient, theta, threshold, nonnegative, _EPOCHS, tol)
        elif not enter_worst(gram, gradient, theta, threshold, nonnegative):
            return False
        if epochs == _EPOCHS or largest_violation(theta, gradient, threshold, positive) > tol:
            newton_on_support(gram, gradient, theta, threshold, positive)
            if not largest_violation(theta, gradient, threshold, positive) <= tol:
                continue
        return True
    return False


def enter_worst(gram, gradient, theta, threshold, nonnegative) -> bool:
    """Minimize over the coordinate of largest violation, in place; returns whether it moved."""
    worst = int(np.argmax(np.abs(subgradient_residual(theta, gradient, threshold, nonnegative))))
    curvature, old = gram[worst, worst], theta[worst]
    if not curvature > 0:
        return False
    aim = old - gradient[worst] / curvature
    size = max(abs(aim) - threshold[worst] / curvature, 0.0)
    theta[worst] = 0.0 if nonnegative[worst] and aim < 0 else np.copysign(size, aim)
    gradient += (theta[worst] - old) * gram[worst]
    return theta[worst] != old


def minimize_parts(problem, parts, gram, gradient, theta, threshold, tol):
    """:func:`minimize_block` for these parts of the problem's norm, single coefficients or groups."""
    norm = problem.penalty.norm
    if norm.q is None:
        positive = problem.positive[parts] if np.ndim(problem.positive) else problem.positive
        return minimize_block(gram, gradient, theta, threshold, positive, tol)
    from .groups import minimize_group_block

    starts = np.concatenate([[0], np.cumsum(norm.sizes[parts])])
    return minimize_group_block(gram, gradient, theta, starts, threshold, norm.q, tol)
