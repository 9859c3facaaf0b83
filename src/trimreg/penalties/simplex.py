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
