"""Weights of the trimmed penalty: the capped simplex, its vertices and the projection on it.

The weights live in ``S = {0 <= w <= 1, sum w = s}``. Its vertices free exactly ``p - s`` coordinates;
the paper's algorithm moves inside it by projected gradient steps.
"""

from __future__ import annotations

import numpy as np


def project_capped_simplex(y: np.ndarray, total: float) -> np.ndarray:
    r"""The projection :math:`\arg\min_w \frac12\|w - y\|^2` over ``0 <= w <= 1, sum w = total``.

    The solution is ``clip(y - g, 0, 1)`` for the scalar ``g`` at which it sums to ``total``: a root of
    a decreasing piecewise-linear function, found by Newton steps inside a shrinking bracket. O(p) a
    step, about ten steps at any size.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.penalties import project_capped_simplex
    >>> project_capped_simplex(np.array([3.0, 0.5, 0.25]), 1.0)
    array([1., 0., 0.])
    >>> project_capped_simplex(np.array([0.5, 0.5, 0.5]), 1.0).round(3)
    array([0.333, 0.333, 0.333])
    """
    y = np.asarray(y, dtype=float)
    if not 0 <= total <= y.size:
        raise ValueError(f"total must lie between 0 and the number of weights {y.size}; got {total!r}")
    if total == 0:
        return np.zeros_like(y)
    if total == y.size:
        return np.ones_like(y)
    eps = np.finfo(float).eps
    low, high = float(y.min()) - 1.0, float(y.max())  # sums to p and to 0
    shift = low + (y.size - total) * (high - low) / y.size
    for _ in range(200):
        moved = y - shift
        inside = moved[(moved > 0) & (moved < 1)]
        # The ones are counted, not added up: their rounding, p eps, would hide the last inner weight.
        excess = (np.count_nonzero(moved >= 1) - total) + float(inside.sum())
        if abs(excess) <= 4 * eps * max(inside.size, 1):
            break
        if excess > 0:
            low = shift
        else:
            high = shift
        newton = shift + excess / inside.size if inside.size else np.inf
        following = newton if low < newton < high else 0.5 * (low + high)
        if following == shift:
            break
        shift = following
    w = np.clip(y - shift, 0.0, 1.0)
    # A weight of 1 - eps would count as an inner one, and its optimality condition is another.
    rounding = 8 * eps * max(1.0, abs(shift))
    w[w <= rounding] = 0.0
    w[w >= 1.0 - rounding] = 1.0
    return w


def largest(magnitude: np.ndarray, count: int, tie_break: np.ndarray | None = None) -> np.ndarray:
    """Indices of the ``count`` largest entries; ties go to the larger ``tie_break``, then the lower index.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.penalties import largest
    >>> largest(np.array([1.0, 3.0, 1.0, 0.0]), 2)
    array([0, 1])
    >>> largest(np.array([1.0, 3.0, 1.0, 0.0]), 2, tie_break=np.array([0.0, 0.0, 5.0, 9.0]))
    array([1, 2])
    """
    if count <= 0:
        return np.empty(0, dtype=np.intp)
    if count >= magnitude.size:
        return np.arange(magnitude.size)
    nonzero = magnitude[magnitude > 0]  # sparse vectors: selection is slow among many equal zeros
    place = nonzero.size - count
    threshold = np.partition(nonzero, place)[place] if place >= 0 else 0.0
    above = np.flatnonzero(magnitude > threshold)
    tied = np.flatnonzero(magnitude == threshold)
    missing = count - above.size
    if missing < tied.size:
        order = slice(None) if tie_break is None else np.argsort(-tie_break[tied], kind="stable")
        tied = tied[order][:missing]
    return np.sort(np.concatenate([above, tied]))


def distance_to_optimal_weights(magnitude: np.ndarray, weights: np.ndarray) -> float:
    r"""Squared distance of 0 from the w-subdifferential of ``<magnitude, w> + delta(w | S)``.

    :math:`\min_{\mu, s} \|r + \mu 1 + s\|^2` where ``s`` lies in the normal cone of the box at w:
    ``s_i <= 0`` where ``w_i = 0``, ``s_i >= 0`` where ``w_i = 1``, and 0 between. With ``t = -mu`` the
    best s leaves ``(r_i - t)_-`` at zeros, ``(r_i - t)_+`` at ones and ``r_i - t`` between, so the
    distance is a convex piecewise quadratic in t. It is minimized exactly, by sorting its breakpoints.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.penalties import distance_to_optimal_weights
    >>> distance_to_optimal_weights(np.array([3.0, 1.0]), np.array([0.0, 1.0]))  # the larger is free
    0.0
    >>> distance_to_optimal_weights(np.array([3.0, 1.0]), np.array([1.0, 0.0]))
    2.0
    """
    zero, one = weights <= 0, weights >= 1
    between = ~(zero | one)

    def half_slope(t):
        return (
            np.maximum(t - magnitude[zero], 0).sum()
            - np.maximum(magnitude[one] - t, 0).sum()
            + (t - magnitude[between]).sum()
        )

    if magnitude.size == 0:
        return 0.0
    # The slope rises from <= 0 to >= 0 over the range of r: bisect the sorted breakpoints, then
    # solve the linear piece that holds the root.
    points = np.unique(magnitude)
    low, high = 0, points.size - 1
    while high - low > 1:
        middle = (low + high) // 2
        if half_slope(points[middle]) > 0:
            high = middle
        else:
            low = middle
    left, right = half_slope(points[low]), half_slope(points[high])
    if left >= 0:
        t = points[low]
    elif right <= 0:
        t = points[high]
    else:
        t = points[low] - left * (points[high] - points[low]) / (right - left)
    residual = np.where(
        zero,
        np.minimum(magnitude - t, 0),
        np.where(one, np.maximum(magnitude - t, 0), magnitude - t),
    )
    return float(residual @ residual)


# -- rows at once --------------------------------------------------------------------------------------------

#: Steps of Newton's method before :func:`project_rows` sorts.
_NEWTON_STEPS = 12


def project_rows(y, total, xp=np):
    r""":func:`project_capped_simplex` for every row of ``y``, in NumPy or PyTorch.

    .. math:: w_i = \mathrm{clip}(y_i - g, 0, 1), \qquad \sum_i \mathrm{clip}(y_i - g, 0, 1) = s

    On the host g comes from Newton's method (:func:`newton_shifts`), from the g of a sum that is not clipped:
    where y is a feasible point less a small step that is one pass or two. On another device, where each look
    at a value would wait for it, and where Newton's method has not ended soon, g comes from a sort
    (:func:`sorted_shifts`).

    Parameters
    ----------
    y : array of shape (n_rows, p), float64
        Of NumPy or PyTorch.
    total : number, or array of shape (n_rows, 1)
        The s of each row.
    xp : module
        ``numpy`` or ``torch``, whichever y is of.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.penalties.simplex import project_rows
    >>> project_rows(np.array([[3.0, 0.5, 0.25], [0.5, 0.5, 0.5]]), np.array([[1.0], [2.0]])).round(3)
    array([[1.   , 0.   , 0.   ],
           [0.667, 0.667, 0.667]])
    """
    shift = newton_shifts(y, total, xp) if _may_look(y) else None
    if shift is None:
        shift = sorted_shifts(y, total, xp)
    w = xp.clip(y - shift, 0.0, 1.0)
    # A weight of 1 - eps would count as an inner one, and its optimality condition is another.
    rounding = 8 * np.finfo(float).eps * xp.clip(xp.abs(shift), 1.0, None)
    w = xp.where(w <= rounding, 0.0, w)
    return xp.where(w >= 1.0 - rounding, 1.0, w)


def newton_shifts(y, total, xp=np):
    r"""The g of :func:`project_rows` by Newton's method, or None if a row is not there after a few steps.

    .. math:: g \leftarrow g + \frac{\sum_i \mathrm{clip}(y_i - g, 0, 1) - s}{|\{i : 0 < y_i - g < 1\}|}

    As g moves all weights move the same way, so the excess of the sum over s is how far, in the sum of
    absolute values, the weights are from the projection.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.penalties.simplex import newton_shifts
    >>> newton_shifts(np.array([[0.75, 0.5, 0.5, 0.0]]), 1)
    array([[0.25]])
    """
    eps = np.finfo(float).eps
    shift = (y.sum(-1)[:, None] - total) / y.shape[1]
    for _ in range(_NEWTON_STEPS):
        moved = y - shift
        inner = (moved > 0) & (moved < 1)
        count = xp.clip(inner.sum(-1)[:, None], 1, None)
        # The ones are counted, not added up: their rounding, p eps, would hide the last inner weight.
        ones = (moved >= 1).sum(-1)[:, None]
        excess = (ones - total) + xp.where(inner, moved, 0.0).sum(-1)[:, None]
        if bool((xp.abs(excess) <= 4 * eps * count).all()):
            return shift
        shift = shift + excess / count
    return None


def sorted_shifts(y, total, xp=np):
    r"""The g of :func:`project_rows` by a sort, without a look at any value.

    The sum of the weights falls in g, with kinks at :math:`y_i - 1` and :math:`y_i`. One sort of the kinks
    and two running sums give its value at each, hence the piece that holds the root. A Newton step from
    there takes off the rounding of the sums.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.penalties.simplex import sorted_shifts
    >>> sorted_shifts(np.array([[0.75, 0.5, 0.5, 0.0]]), 1)
    array([[0.25]])
    """
    along = _taken_along(xp)
    size = y.shape[1]
    kinks = xp.concatenate([y - 1.0, y], -1)
    order = xp.argsort(kinks, -1)
    kinks = along(kinks, order, -1)
    turn = xp.where(order < size, xp.ones_like(kinks), -1.0)  # a weight begins to fall, or has fallen to 0
    inner = xp.cumsum(turn, -1)  # how many weights lie between 0 and 1 after each kink
    fall = (inner - turn)[:, 1:] * (kinks[:, 1:] - kinks[:, :-1])
    height = size - xp.concatenate([xp.zeros_like(kinks[:, :1]), xp.cumsum(fall, -1)], -1)
    piece = xp.clip((height >= total).sum(-1)[:, None] - 1, 0, None)
    rest = (along(height, piece, -1) - total) / xp.clip(along(inner, piece, -1), 1.0, None)
    shift = along(kinks, piece, -1) + rest
    moved = y - shift
    within = (moved > 0) & (moved < 1)
    ones = (moved >= 1).sum(-1)[:, None]
    excess = (ones - total) + xp.where(within, moved, 0.0).sum(-1)[:, None]
    return shift + excess / xp.clip(within.sum(-1)[:, None], 1, None)


def distances_to_optimal_weights(magnitude, weights, xp=np):
    """:func:`distance_to_optimal_weights` for every row, in NumPy or PyTorch, by one sort of each.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.penalties.simplex import distances_to_optimal_weights
    >>> distances_to_optimal_weights(np.array([[3.0, 1.0], [3.0, 1.0]]), np.array([[0.0, 1.0], [1.0, 0.0]]))
    array([0., 2.])
    """
    along = _taken_along(xp)
    order = xp.argsort(magnitude, -1)
    r, w = along(magnitude, order, -1), along(weights, order, -1)
    # Half of the slope in t at r_k: entries that may not lie below t pull from the left, and so on.
    left = xp.where(w < 1, xp.ones_like(r), 0.0)
    right = xp.where(w > 0, xp.ones_like(r), 0.0)
    n_left, n_right = xp.cumsum(left, -1), right.sum(-1)[:, None] - xp.cumsum(right, -1)
    s_left, s_right = xp.cumsum(left * r, -1), (right * r).sum(-1)[:, None] - xp.cumsum(right * r, -1)
    slope = (n_left + n_right) * r - s_left - s_right
    piece = xp.clip((slope <= 0).sum(-1)[:, None] - 1, 0, None)
    steepness = xp.clip(along(n_left + n_right, piece, -1), 1.0, None)
    following = along(r, xp.clip(piece + 1, None, r.shape[1] - 1), -1)
    t = xp.minimum(along(r, piece, -1) - along(slope, piece, -1) / steepness, following)
    gap = magnitude - t
    residual = xp.where(
        weights <= 0, xp.clip(gap, None, 0.0), xp.where(weights >= 1, xp.clip(gap, 0.0, None), gap)
    )
    return (residual * residual).sum(-1)


def _may_look(y):
    """Whether the host may look at values of ``y`` without waiting for a device."""
    return isinstance(y, np.ndarray) or y.device.type == "cpu"


def _taken_along(xp):
    """What NumPy and PyTorch have under two names."""
    return xp.take_along_axis if xp is np else xp.take_along_dim
