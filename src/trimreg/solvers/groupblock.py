r"""A quadratic plus group norms, minimized in Gram coordinates: what :mod:`.workingset` does for l1.

.. math:: \min_x\; g'(x - \theta) + \tfrac12 (x - \theta)'G(x - \theta) + \sum_g t_g \|x_g\|_q, \qquad q = 2, \infty.

Block coordinate descent finds the groups at work, and for :math:`q = \infty` the face: which entries of a group
are at its top. Newton steps on them end what block descent would crawl over. For q = 2 the norm is smooth
away from 0, with curvature :math:`t (I/\|x\| - xx'/\|x\|^3)`; for :math:`q = \infty` the objective on a face is a
quadratic in the tops and in the entries below them.
"""

from __future__ import annotations

import numpy as np

from . import linalg
from .groupkernels import TOP, block_descent, residuals, shift


def group_residual(theta, gradient, starts, threshold, q):
    r"""The element of :math:`g + \sum_g t_g\, \partial \|\theta_g\|_q` nearest to 0, group by group.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.solvers.groupblock import group_residual
    >>> starts, threshold = np.array([0, 2, 4]), np.array([5.0, 1.0])
    >>> group_residual(np.array([0.0, 0.0, 2.0, 0.0]), np.array([6.0, 8.0, -1.0, 0.5]), starts, threshold, 2)
    array([3. , 4. , 0. , 0.5])
    """
    out = np.empty(theta.size)
    residuals(theta, gradient, starts, threshold, q != 2, out)
    return out


def newton_direction(hessian, slope, size):
    """``-H^-1 slope``, or nearly so for a singular H, whose diagonal is about ``size`` (0: a column of zeros)."""
    scale = 1.0 / np.sqrt(np.where(size > 0, size, 1.0))
    factor = linalg.regularized_cholesky(hessian * np.multiply.outer(scale, scale))
    return -scale * linalg.solve(factor, scale * slope)


def _part(direction_of_zero, distance):
    """The step at which each distance is used up: inf where it is not."""
    closing = direction_of_zero > 0
    return np.where(closing, distance / np.where(closing, direction_of_zero, 1.0), np.inf)


def newton_on_groups(gram, gradient, theta, starts, threshold, tol, max_steps=20):
    """Newton steps for q = 2 on the free groups and those not 0, in place; groups that reach 0 are dropped.

    Steps are halved until the objective falls enough. The line of a group of one coordinate, or of one that is
    only made shorter, passes through 0, where its norm has no curvature: there the step ends.
    """
    group = np.repeat(np.arange(threshold.size), np.diff(starts))
    t = threshold[group]
    free = (t == 0) & (np.diagonal(gram) > 0)
    for _ in range(max_steps):
        length = np.sqrt(np.add.reduceat(theta * theta, starts[:-1]))
        active = np.flatnonzero(free | ((length[group] > 0) & (t > 0)))
        if active.size == 0:
            return
        x, of = theta[active], group[active]
        penalized = t[active] > 0
        r = np.where(penalized, length[of], 1.0)
        level = np.where(penalized, t[active] / r, 0.0)  # t / ||x||
        slope = gradient[active] + level * x
        if np.max(np.abs(slope)) <= tol:
            return
        block = gram[np.ix_(active, active)]
        unit = x * np.sqrt(level) / r
        hessian = block - np.multiply.outer(unit, unit) * np.equal.outer(of, of)
        hessian[np.diag_indices_from(hessian)] += level
        d = newton_direction(hessian, slope, np.diagonal(block) + level)
        decrease = slope @ d
        if not decrease < 0:
            return
        step, dropped = _step_for_groups(block, gradient[active], x, d, of, threshold, decrease)
        if step == 0.0:
            return
        target = theta.copy()
        target[active] = np.where(dropped[of], 0.0, x + step * d)
        shift(gram, gradient, theta, target, 0, theta.size)


def _step_for_groups(block, gradient, x, d, of, threshold, decrease):
    """How far to go along d (0: not at all), and which groups are 0 then."""
    count = threshold.size
    xx, xd, dd = (np.bincount(of, v, minlength=count) for v in (x * x, x * d, d * d))
    t = np.where(np.bincount(of, minlength=count) > 0, threshold, 0.0)
    linear, quadratic = gradient @ d, d @ block @ d
    r = np.sqrt(xx)
    # Radial up to rounding: the nearest point of the line to 0 is 0 itself.
    radial = (t > 0) & (xd < 0) & (xx * dd - xd * xd <= 1e-14 * xx * dd)
    ends = np.where(radial, xx / np.where(radial, -xd, 1.0), np.inf)
    step = min(1.0, ends.min())
    for _ in range(100):
        dropped = ends <= step
        after = np.where(dropped, 0.0, np.sqrt(np.maximum(xx + step * (2 * xd + step * dd), 0.0)))
        total = after + r
        # ||x + s d|| - ||x||, without the loss of digits
        growth = np.where(total > 0, step * (2 * xd + step * dd) / np.where(total > 0, total, 1.0), 0.0)
        growth = np.where(dropped, -r, growth)
        if step * linear + 0.5 * step * step * quadratic + t @ growth <= 1e-4 * step * decrease:
            return step, dropped
        step *= 0.5
    return 0.0, np.zeros(count, dtype=bool)


def newton_on_face(gram, gradient, theta, starts, threshold, max_drops=20):
    """Minimize for q = inf over the current face, in place; it shrinks where an entry reaches the top of its group or a top 0.

    The entries at the top of a group move together, as one variable; those below it and free groups are not penalized.
    """
    group = np.repeat(np.arange(threshold.size), np.diff(starts))
    t = threshold[group]
    alive = np.diagonal(gram) > 0
    for _ in range(max_drops):
        size = np.abs(theta)
        top = np.where(threshold > 0, np.maximum.reduceat(size, starts[:-1]), 0.0)
        working = top[group] > 0
        merged = working & (size >= (1.0 - TOP) * top[group])
        single = ~merged & alive & (working | (t == 0))
        at_top, alone = np.flatnonzero(merged), np.flatnonzero(single)
        coordinates = np.concatenate([at_top, alone])  # at_top is sorted, so each group of it is contiguous
        if coordinates.size == 0:
            return
        of_top = group[at_top]
        firsts = np.flatnonzero(np.diff(of_top, prepend=-1))
        tops = of_top[firsts]  # the group of every top
        bounds = np.concatenate([firsts, at_top.size + np.arange(alone.size)])
        sign = np.concatenate([np.sign(theta[at_top]), np.ones(alone.size)])
        slope = np.add.reduceat(sign * gradient[coordinates], bounds)
        slope[: tops.size] += threshold[tops]
        signed = gram[np.ix_(coordinates, coordinates)] * np.multiply.outer(sign, sign)
        lengths = np.add.reduceat(np.diagonal(signed), bounds)
        if bounds.size < coordinates.size:
            signed = np.add.reduceat(np.add.reduceat(signed, bounds, axis=0), bounds, axis=1)
        d = newton_direction(signed, slope, lengths)
        if not slope @ d < 0:
            return
        rise = np.zeros(threshold.size)  # of the top of every group
        rise[tops] = d[: tops.size]
        here, along = theta[alone], d[tops.size :]
        bound, climb = np.where(working[alone], top[group[alone]], np.inf), rise[group[alone]]
        above = _part(along - climb, bound - here)
        below = _part(-along - climb, bound + here)
        ends = _part(-rise, top)
        step = min(1.0, ends.min(initial=np.inf), above.min(initial=np.inf), below.min(initial=np.inf))
        height = np.where(ends <= step, 0.0, np.maximum(top + step * rise, 0.0))
        target = theta.copy()
        moved = here + step * along
        moved = np.where(
            above <= step, height[group[alone]], np.where(below <= step, -height[group[alone]], moved)
        )
        target[alone] = moved
        target[at_top] = np.sign(theta[at_top]) * height[of_top]
        target[(ends <= step)[group]] = 0.0
        shift(gram, gradient, theta, target, 0, theta.size)
        if step == 1.0:
            return


def minimize_group_block(gram, gradient, theta, starts, threshold, q, tol, max_rounds=100):
    r"""Minimize ``g'(x - theta) + (x - theta)' G (x - theta) / 2 + sum_g t_g ||x_g||_q``; theta and gradient in place.

    Parameters
    ----------
    gram : ndarray of shape (m, m)
        G, positive semidefinite; a column of zeros has gradient 0.
    gradient, theta : ndarray of shape (m,)
        The gradient of the quadratic part at ``theta``. Both are updated.
    starts : ndarray of int64 of shape (n_groups + 1,)
        Group g is ``theta[starts[g]:starts[g + 1]]``, and not empty.
    threshold : ndarray of shape (n_groups,)
        t; 0 leaves a group free, with inf it must be 0 and stays so.
    q : 2 or inf
    tol : float
        Largest violation of an optimality condition (:func:`group_residual`).

    Returns
    -------
    bool
        Whether the conditions hold within ``tol``; rounding in a singular G can keep them from it.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.solvers.groupblock import minimize_group_block
    >>> theta, gradient, starts = np.zeros(3), np.array([-3.0, -4.0, -1.0]), np.array([0, 2, 3])
    >>> minimize_group_block(np.eye(3), gradient, theta, starts, np.array([2.5, 2.0]), 2, 1e-12)
    True
    >>> theta
    array([1.5, 2. , 0. ])
    """
    flat = q != 2
    for _ in range(max_rounds):
        epochs = 5 + np.count_nonzero(theta) // 20
        if block_descent(gram, gradient, theta, starts, threshold, flat, epochs, tol):
            return True
        if flat:
            newton_on_face(gram, gradient, theta, starts, threshold)
        else:
            newton_on_groups(gram, gradient, theta, starts, threshold, 0.3 * tol)
    return bool(residuals(theta, gradient, starts, threshold, flat, np.empty(theta.size)) <= tol)
