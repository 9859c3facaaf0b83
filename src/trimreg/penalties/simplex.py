"""Projections onto the capped simplex, the set of the weights of the trimmed penalty.

The weights live in ``S = {0 <= w <= 1, sum w = s}``. Its vertices free exactly ``p - s`` coordinates;
the paper's algorithm moves inside S by projected gradient steps. The projection of y is
``clip(y - g, 0, 1)`` for the scalar ``g`` at which it sums to ``s``: the root of a decreasing
piecewise-linear function.

There is one compiled projection, for a vector, and one for the rows of an array of NumPy or PyTorch, on any
device. This module never imports PyTorch.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numba import njit

_NEWTON_STEPS = 12  # before project_rows sorts
_EPS = float(np.finfo(float).eps)


def project_capped_simplex(y: np.ndarray, total: float) -> np.ndarray:
    r"""The projection :math:`\arg\min_w \frac12\|w - y\|^2` over ``0 <= w <= 1, sum w = total``.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.penalties import project_capped_simplex
    >>> project_capped_simplex(np.array([3.0, 0.5, 0.25]), 1.0)
    array([1., 0., 0.])
    >>> project_capped_simplex(np.array([0.5, 0.5, 0.5]), 1.0).round(3)
    array([0.333, 0.333, 0.333])
    """
    y = np.ascontiguousarray(y, dtype=float)
    if not 0 <= total <= y.size:
        raise ValueError(f"total must lie between 0 and the number of weights {y.size}; got {total!r}")
    return project_vector(y, float(total))


@njit(cache=True)
def project_vector(y, total):
    """:func:`project_capped_simplex` without checks, for other compiled code as well.

    Newton steps for g inside a shrinking bracket: O(p) per step, about ten steps at any size.
    """
    p = y.size
    if total <= 0.0:
        return np.zeros(p)
    if total >= p:
        return np.ones(p)
    low, high = y.min() - 1.0, y.max()  # sums to p and to 0
    shift = low + (p - total) * (high - low) / p
    for _ in range(200):
        ones, inner, count = 0, 0.0, 0
        for j in range(p):
            moved = y[j] - shift
            if moved >= 1.0:
                ones += 1
            elif moved > 0.0:
                inner += moved
                count += 1
        # The ones are counted, not added up: their rounding, p eps, would hide the last inner weight.
        excess = (ones - total) + inner
        if abs(excess) <= 4 * _EPS * max(count, 1):
            break
        if excess > 0.0:
            low = shift
        else:
            high = shift
        following = shift + excess / count if count > 0 else np.inf
        if not low < following < high:
            following = 0.5 * (low + high)
        if following == shift:
            break
        shift = following
    w = np.minimum(np.maximum(y - shift, 0.0), 1.0)
    # A weight of 1 - eps would count as an inner one, and its optimality condition is another.
    rounding = min(8 * _EPS * max(1.0, abs(shift)), 1e-3)
    for j in range(p):
        if w[j] <= rounding:
            w[j] = 0.0
        elif w[j] >= 1.0 - rounding:
            w[j] = 1.0
    return w


# -- rows of arrays ------------------------------------------------------------------------------------------


def project_rows(y: Any, total: Any, valid: Any = None) -> Any:
    r""":func:`project_capped_simplex` along the last axis of an array of NumPy or PyTorch.

    .. math:: w_i = \mathrm{clip}(y_i - g, 0, 1), \qquad \sum_i \mathrm{clip}(y_i - g, 0, 1) = s

    On the host g comes from Newton's method (:func:`newton_shift`), which needs one or two passes if y is a
    feasible point less a small step. On another device, where each look at a value would wait for it, and
    where Newton's method has not converged soon, g comes from a sort (:func:`sorted_shift`). So on a device
    the projection can be queued ahead or captured in a CUDA graph. The sums are taken in double precision,
    where the device has it.

    ``total``, a number or an array of shape (..., 1), is the s of each row. Only the entries of ``valid``, an
    array of bool, take part; the weights of the others are 0. The result has the type of y.
    """
    xp = _namespace(y)
    wide = _in_double(y)
    shift = newton_shift(wide, total, valid) if _may_look(y) else None
    if shift is None:
        shift = sorted_shift(wide, total, valid)
    w = wide - shift
    xp.clip(w, 0.0, 1.0, out=w)
    if valid is not None:
        w = xp.where(valid, w, 0.0)
    # As in project_vector. The limit is for narrow types, in which a large shift has no digits left.
    eps = float(xp.finfo(y.dtype).eps)
    rounding = xp.clip(8 * eps * xp.abs(shift), 8 * eps, 1e-3)
    w *= w > rounding
    w = xp.maximum(w, w >= 1.0 - rounding)
    return w.astype(y.dtype, copy=False) if xp is np else w.to(y.dtype)


def newton_shift(y: Any, total: Any, valid: Any = None) -> Any:
    r"""The g of :func:`project_rows` by Newton's method, or None if a row is not there after a few steps.

    .. math:: g \leftarrow g + \frac{\sum_i \mathrm{clip}(y_i - g, 0, 1) - s}{|\{i : 0 < y_i - g < 1\}|}

    from the g at which :math:`\sum_i (y_i - g) = s`. As g moves, all weights move the same way. So the
    excess of the sum over s is the distance of the weights from the projection in the l1 norm.
    """
    xp = _namespace(y)
    if valid is None:
        shift = (y.sum(-1, keepdims=True) - total) / y.shape[-1]
    else:
        count = xp.clip(valid.sum(-1, keepdims=True), 1, None)
        shift = (xp.where(valid, y, 0.0).sum(-1, keepdims=True) - total) / count
        y = xp.where(valid, y, -np.inf)  # a weight of 0, whatever g
    for _ in range(_NEWTON_STEPS):
        excess, count = _excess(y - shift, total, xp)
        if bool((xp.abs(excess) <= 4 * _EPS * count).all()):
            return shift
        shift = shift + excess / count
    return None


def _excess(moved, total, xp):
    """What the weights ``clip(moved, 0, 1)`` sum to beyond the total, and how many are between; in place."""
    xp.clip(moved, 0.0, 1.0, out=moved)
    ones = xp.floor(moved)  # counted apart, as in project_vector
    moved -= ones
    excess = (ones.sum(-1, keepdims=True) - total) + moved.sum(-1, keepdims=True)
    return excess, xp.clip(xp.sign(moved, out=moved).sum(-1, keepdims=True), 1.0, None)


def sorted_shift(y: Any, total: Any, valid: Any = None) -> Any:
    r"""The g of :func:`project_rows` by a sort, without a look at any value.

    The sum of the weights falls in g, with kinks at :math:`y_i - 1` and :math:`y_i`. One sort of the kinks
    and two running sums give its value at each, hence the piece that holds the root. A Newton step from
    there removes the rounding of the sums.
    """
    xp = _namespace(y)
    if valid is not None:
        # At the smallest entry less one a weight is 0 whatever the total, so it does not move the others.
        y = xp.where(valid, y, xp.amin(xp.where(valid, y, np.inf), -1, keepdims=True) - 1.0)
    size = y.shape[-1]
    kinks, order = _sorted(xp.concatenate([y - 1.0, y], -1))
    turn = xp.where(order < size, xp.ones_like(kinks), -1.0)  # a weight begins to fall, or has fallen to 0
    inner = xp.cumsum(turn, -1)  # how many weights lie between 0 and 1 after each kink
    fall = (inner - turn)[..., 1:] * (kinks[..., 1:] - kinks[..., :-1])
    height = size - xp.concatenate([xp.zeros_like(kinks[..., :1]), xp.cumsum(fall, -1)], -1)
    piece = xp.clip((height >= total).sum(-1, keepdims=True) - 1, 0, None)  # a NaN finds none
    rest = (_taken_along(height, piece) - total) / xp.clip(_taken_along(inner, piece), 1.0, None)
    shift = _taken_along(kinks, piece) + rest
    excess, count = _excess(y - shift, total, xp)
    return shift + excess / count


def distance_to_optimal_weights(magnitude: Any, weights: Any) -> Any:
    r"""Squared distance of 0 from the w-subdifferential of ``<magnitude, w> + delta(w | S)``.

    :math:`\min_{\mu, s} \|r + \mu 1 + s\|^2` where ``s`` lies in the normal cone of the box at w:
    ``s_i <= 0`` where ``w_i = 0``, ``s_i >= 0`` where ``w_i = 1``, and 0 between. With ``t = -mu`` the
    best s leaves ``(r_i - t)_-`` at zeros, ``(r_i - t)_+`` at ones and ``r_i - t`` between, so the
    distance is a convex piecewise quadratic in t. It is minimized exactly, by a sort of the ``r_i``.

    Both arguments are arrays of NumPy or PyTorch of shape (..., p). The result is a float for vectors, and
    otherwise has an entry for each row.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.penalties import distance_to_optimal_weights
    >>> distance_to_optimal_weights(np.array([3.0, 1.0]), np.array([0.0, 1.0]))  # the larger is free
    0.0
    >>> distance_to_optimal_weights(np.array([[3.0, 1.0], [3.0, 1.0]]), np.array([[0.0, 1.0], [1.0, 0.0]]))
    array([0., 2.])
    """
    xp = _namespace(magnitude)

    def residual(t):
        gap = magnitude - t
        inside = xp.where(weights >= 1, xp.clip(gap, 0.0, None), gap)
        return xp.where(weights <= 0, xp.clip(gap, None, 0.0), inside)

    if magnitude.shape[-1] == 0:
        squared = (magnitude * magnitude).sum(-1)
    else:
        r, order = _sorted(magnitude)
        w = _taken_along(weights, order)
        # Half of the slope in t at r_k. Entries that may not lie below t pull from the left, those that may
        # not lie above it from the right.
        left, right = xp.where(w < 1, xp.ones_like(r), 0.0), xp.where(w > 0, xp.ones_like(r), 0.0)
        count = xp.cumsum(left, -1) + (right.sum(-1, keepdims=True) - xp.cumsum(right, -1))
        pull = xp.cumsum(left * r, -1) + ((right * r).sum(-1, keepdims=True) - xp.cumsum(right * r, -1))
        slope = count * r - pull
        piece = xp.clip((slope <= 0).sum(-1, keepdims=True) - 1, 0, None)
        steepness = xp.clip(_taken_along(count, piece), 1.0, None)
        following = _taken_along(r, xp.clip(piece + 1, None, r.shape[-1] - 1))
        t = xp.minimum(_taken_along(r, piece) - _taken_along(slope, piece) / steepness, following)
        left_over = residual(t)
        # One Newton step removes the rounding of the running sums.
        moving = xp.clip((left_over != 0).sum(-1, keepdims=True), 1, None)
        left_over = residual(t + left_over.sum(-1, keepdims=True) / moving)
        squared = (left_over * left_over).sum(-1)
    return float(squared) if magnitude.ndim == 1 else squared


def _namespace(array):
    """The module that an array is of: ``numpy`` or ``torch``."""
    return sys.modules[type(array).__module__.partition(".")[0]]


def _in_double(y):
    """A copy of y in double precision, or y itself if its device has none."""
    if isinstance(y, np.ndarray):
        return y.astype(float, copy=False)
    return y if y.device.type == "mps" else y.double()


def _may_look(y):
    """Whether the host may look at values of ``y`` without waiting for a device."""
    return isinstance(y, np.ndarray) or y.device.type == "cpu"


def _sorted(values):
    """The values sorted along the last axis, and where they were."""
    if not isinstance(values, np.ndarray):
        return values.sort(-1)
    order = np.argsort(values, -1)
    return np.take_along_axis(values, order, -1), order


def _taken_along(values, index):
    """The values at these places of the last axis."""
    is_numpy = isinstance(values, np.ndarray)
    return np.take_along_axis(values, index, -1) if is_numpy else values.gather(-1, index)
