r"""A quadratic plus group norms, minimized in Gram coordinates: the counterpart of ``minimize_block`` for l1.

.. math:: \min_x\; g'(x - \theta) + \tfrac12 (x - \theta)'G(x - \theta) + \sum_g t_g \|x_g\|_q,
          \quad q \in \{2, \infty\}.

Block coordinate descent finds the active groups, and for :math:`q = \infty` the face: the entries of a group
that attain its maximum. Newton steps on them finish where block descent would crawl. For q = 2 the norm is
smooth away from 0, with curvature :math:`t (I/\|x\| - xx'/\|x\|^3)`. For :math:`q = \infty` the objective on
a face is a quadratic in the maxima and in the entries below them.
"""

from __future__ import annotations

import numpy as np

from ..gram import cholesky_solve, regularized_cholesky
from .group_kernels import TOP, block_descent, residual, shift
from .kernels import principal

_FIRST_EPOCHS = 5  # after them the number of active groups is known
_ENOUGH = 1e-4  # share of the decrease that the slope promises (Armijo)


def group_residual(theta, gradient, starts, threshold, q):
    r"""The element of :math:`g + \sum_g t_g\, \partial \|\theta_g\|_q` nearest to 0, group by group."""
    out = np.empty(theta.size)
    for a, b, t in zip(starts[:-1], starts[1:], threshold, strict=True):
        residual(theta[a:b], gradient[a:b], t, q != 2, out[a:b])
    return out


def newton_direction(hessian, slope, size):
    """``-H^-1 slope``, approximately if H is singular. The diagonal of H is about ``size``, or 0 in both."""
    scale = 1.0 / np.sqrt(np.where(size > 0, size, 1.0))
    factor = regularized_cholesky(hessian * scale * scale[:, None])
    return -scale * cholesky_solve(factor, scale * slope)


# -- q = 2 ------------------------------------------------------------------------------------------------


@np.errstate(over="ignore", invalid="ignore")  # where classes are separated steps overflow, and are halved
def newton_on_groups(gram, gradient, theta, starts, threshold, tol, patience=10):
    """Newton steps for q = 2 on free and nonzero groups, in place; groups that come to 0 are dropped.

    At most ``patience`` steps may be cut short, as they often are before block descent has found the active
    groups.
    """
    group = np.repeat(np.arange(threshold.size), np.diff(starts))
    t = threshold[group]
    free = (t == 0) & (np.diagonal(gram) > 0)
    for _ in range(patience + 5):
        length = np.sqrt(np.add.reduceat(theta * theta, starts[:-1]))
        active = np.flatnonzero(free | ((length[group] > 0) & (t > 0)))
        if active.size == 0:
            return
        x, of = theta[active], group[active]
        r = np.where(t[active] > 0, length[of], 1.0)
        bend = t[active] / r
        slope = gradient[active] + bend * x
        if np.max(np.abs(slope)) <= tol:
            return
        block = principal(gram, active)
        unit = x * np.sqrt(bend) / r
        hessian = block.copy()
        for lag in range(int(np.bincount(of).max())):  # entries within groups only, which are mostly small
            i = np.flatnonzero(of[lag:] == of[: of.size - lag])
            within = unit[i] * unit[i + lag]
            hessian[i, i + lag] -= within
            if lag:
                hessian[i + lag, i] -= within
        hessian[np.diag_indices_from(hessian)] += bend
        d = newton_direction(hessian, slope, np.diagonal(block) + bend)
        decrease = slope @ d
        if not decrease < 0:
            return
        step, change = _search_groups(block, gradient[active], x, d, of, threshold, decrease)
        target = theta.copy()
        target[active] += change
        shift(gram, gradient, theta, target, 0, theta.size)
        patience -= step < 1.0
        if patience < 0 or step == 0.0:
            return


def _search_groups(block, gradient, x, d, of, threshold, decrease):
    """The step length along d, and the change of x.

    First groups that pass 0 are set to 0; if that does not descend, steps are halved. The objective is
    measured as a change, from differences that lose no digits.
    """
    xx, xd, dd = (np.bincount(of, v, minlength=threshold.size) for v in (x * x, x * d, d * d))
    r = np.sqrt(xx)
    t = np.where(xx > 0, threshold, 0.0)
    passing = (t > 0) & (xx + xd <= 0)
    if passing.any():
        change = np.where(passing[of], -x, d)
        growth = np.where(passing, -r, _growth(r, xd, dd, 1.0))
        if gradient @ change + 0.5 * change @ block @ change + t @ growth <= _ENOUGH * decrease:
            return 1.0, change
    linear, quadratic = gradient @ d, d @ block @ d
    # The path of a group of one coordinate passes through 0: stop there. Other groups miss 0.
    radial = passing & (xx * dd - xd * xd <= 1e-14 * xx * dd)
    ends = np.where(radial, xx / np.where(radial, -xd, 1.0), np.inf)
    step = min(1.0, ends.min())
    for _ in range(100):
        value = step * linear + 0.5 * step * step * quadratic + t @ _growth(r, xd, dd, step)
        if value <= _ENOUGH * step * decrease:
            return step, np.where((ends <= step)[of], -x, step * d)
        step *= 0.5
    return 0.0, np.zeros_like(x)


def _growth(r, xd, dd, step):
    """``||x + s d|| - ||x||`` of every group from ``||x||``, ``x'd`` and ``d'd``."""
    rise = step * (2 * xd + step * dd)
    total = np.sqrt(np.maximum(r * r + rise, 0.0)) + r
    return np.where(total > 0, rise / np.where(total > 0, total, 1.0), 0.0)


# -- q = inf ----------------------------------------------------------------------------------------------


def newton_on_face(gram, gradient, theta, starts, threshold, patience=10):
    """Newton steps for q = inf on the current face, in place; the face shrinks where a bound is met.

    The entries at the maximum of a group move together, as one variable. The entries below it and the free
    groups are not penalized. A step past bounds is clipped at them if that lowers the objective, else it ends
    at the first bound. At most ``patience`` steps may be cut short.
    """
    group = np.repeat(np.arange(threshold.size), np.diff(starts))
    alive = np.diagonal(gram) > 0
    free = (threshold == 0)[group]
    for _ in range(patience + 1):
        size = np.abs(theta)
        top = np.where(threshold > 0, np.maximum.reduceat(size, starts[:-1]), 0.0)
        working = top[group] > 0
        merged = working & (size >= (1.0 - TOP) * top[group])
        at_top, below = np.flatnonzero(merged), np.flatnonzero(~merged & alive & (working | free))
        coordinates = np.concatenate([at_top, below])
        if coordinates.size == 0:
            return
        sign = np.concatenate([np.sign(theta[at_top]), np.ones(below.size)])
        firsts = np.flatnonzero(np.diff(group[at_top], prepend=-1))  # at_top is sorted, group by group
        tops = group[at_top[firsts]]
        variables = np.concatenate([firsts, at_top.size + np.arange(below.size)])
        slope = np.add.reduceat(sign * gradient[coordinates], variables)
        slope[: tops.size] += threshold[tops]
        block = gram[np.ix_(coordinates, coordinates)]
        hessian = block * np.multiply.outer(sign, sign)
        if variables.size < coordinates.size:
            hessian = np.add.reduceat(np.add.reduceat(hessian, variables, axis=0), variables, axis=1)
        d = newton_direction(hessian, slope, np.add.reduceat(np.diagonal(block), variables))
        decrease = slope @ d
        if not decrease < 0:
            return

        climb = np.zeros(threshold.size)
        climb[tops] = d[: tops.size]
        along = np.zeros(theta.size)
        along[at_top] = np.sign(theta[at_top]) * climb[group[at_top]]
        along[below] = d[tops.size :]
        bounded = below[~free[below]]
        first = _first_bound(theta, along, top, climb, bounded, group[bounded])
        target, height = _follow(theta, along, top, climb, 1.0, group, free)
        if first < 1.0:
            change = (target - theta)[coordinates]
            value = gradient[coordinates] @ change + 0.5 * change @ block @ change
            if value + threshold[tops] @ (height - top)[tops] > _ENOUGH * decrease:
                target, _ = _follow(theta, along, top, climb, first, group, free)
        shift(gram, gradient, theta, target, 0, theta.size)
        if first == 1.0:
            return


def _first_bound(theta, along, top, climb, bounded, of):
    """The step, at most 1, at which a maximum comes to 0 or an entry below to the maximum of its group."""
    gap = np.concatenate([top, top[of] - theta[bounded], top[of] + theta[bounded]])
    speed = np.concatenate([-climb, along[bounded] - climb[of], -along[bounded] - climb[of]])
    closing = speed > 0
    return float(np.min(gap[closing] / speed[closing], initial=1.0))


def _follow(theta, along, top, climb, step, group, free):
    """Theta after a step, clipped at its bounds, and the maxima of its groups."""
    height = top + step * climb
    height[height <= 4 * np.finfo(float).eps * top] = 0.0  # 0 up to rounding
    moved = theta + step * along
    bound = height[group]
    at_top = (np.abs(theta) >= (1.0 - TOP) * top[group]) & (top[group] > 0)
    moved = np.where(at_top, np.copysign(bound, theta), np.where(free, moved, np.clip(moved, -bound, bound)))
    return moved, height


# -- both -------------------------------------------------------------------------------------------------


def _epochs(theta, starts, threshold):
    """The epochs of block descent that cost about one Newton step: at most twice the better of both."""
    free = np.diff(starts)[threshold == 0].sum()
    active = max(np.count_nonzero(theta), int(free), 10)
    newton = 1e5 + 30.0 * active**2 + active**3 / 30.0
    return int(np.clip(newton / (active * theta.size), 10, 100))


def minimize_group_block(gram, gradient, theta, starts, threshold, q, tol, max_rounds=100) -> bool:
    r"""Minimize ``g'(x - theta) + (x - theta)' G (x - theta) / 2 + sum_g t_g ||x_g||_q``, in place.

    ``gradient`` is that of the quadratic part at ``theta``; both are updated. ``gram`` is G, positive
    semidefinite and contiguous, and the gradient is 0 where G has a column of zeros. Group g is
    ``theta[starts[g]:starts[g + 1]]``, and not empty. A threshold of 0 leaves a group free; with inf it must
    be 0 and stays so. Returns whether no entry of :func:`group_residual` exceeds ``tol``; rounding in a
    singular G can prevent it.
    """
    flat, work = q != 2, np.empty((4, theta.size))
    if block_descent(gram, gradient, theta, starts, threshold, flat, _FIRST_EPOCHS, tol, work):
        return True
    for repeat in range(max_rounds):
        before = theta.copy()
        epochs = _epochs(theta, starts, threshold)
        if block_descent(gram, gradient, theta, starts, threshold, flat, epochs, tol, work):
            return True
        patience = 2 ** min(repeat, 10) - 1
        if flat:
            newton_on_face(gram, gradient, theta, starts, threshold, patience)
        else:
            newton_on_groups(gram, gradient, theta, starts, threshold, 0.3 * tol, patience)
        if np.array_equal(theta, before):  # the limit of rounding
            break
    return bool(np.max(np.abs(group_residual(theta, gradient, starts, threshold, q)), initial=0.0) <= tol)
