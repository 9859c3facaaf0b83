r"""Small problems with bounds: a quadratic plus a weighted l1 norm over a box that contains 0."""

from __future__ import annotations

import numpy as np
from numba import njit

from ..penalties.base import subgradient_residual
from .gram import cholesky_solve, regularized_cholesky

_EPOCHS = 50
_FACES = 20  # Newton steps between two rounds of coordinate descent


def minimize_box(
    gram: np.ndarray, gradient: np.ndarray, theta: np.ndarray, threshold: np.ndarray, lower: np.ndarray,
    upper: np.ndarray, tol: float, max_rounds: int = 100,
) -> bool:  # fmt: skip
    """Minimize ``g'(x - theta) + (x - theta)' G (x - theta) / 2 + sum t |x|`` over the box; arrays in place.

    Coordinate descent finds the face, Newton steps on it the digits. Returns whether the conditions hold
    within ``tol``.
    """
    for _ in range(max_rounds):
        box_descent(gram, gradient, theta, threshold, lower, upper, _EPOCHS, tol)
        for _ in range(_FACES):
            residual = subgradient_residual(theta, gradient, threshold, (lower, upper))
            if np.max(np.abs(residual), initial=0.0) <= tol:
                return True
            if not _newton_on_face(gram, gradient, theta, threshold, lower, upper):
                break
    return False


@njit(cache=True, fastmath={"contract", "reassoc"})
def box_descent(gram, gradient, theta, threshold, lower, upper, max_epochs, tol):
    """Cyclic coordinate descent in place: the minimizer of one coordinate, cut off at its bounds."""
    for _ in range(max_epochs):
        largest = 0.0
        for j in range(theta.size):
            curvature, old, t = gram[j, j], theta[j], threshold[j]
            if curvature <= 0.0:
                continue
            z = curvature * old - gradient[j]
            new = (z - t) / curvature if z > t else (z + t) / curvature if z < -t else 0.0
            new = min(max(new, lower[j]), upper[j])
            if new != old:
                theta[j] = new
                for i in range(theta.size):
                    gradient[i] += (new - old) * gram[j, i]
                largest = max(largest, abs(new - old) * curvature)
        if largest <= tol:
            return


def _newton_on_face(gram, gradient, theta, threshold, lower, upper):
    """One Newton step among the coordinates inside their bounds, up to the first bound or change of sign.

    Returns whether it was cut short, so that another step on a smaller face may follow.
    """
    inside = ((theta != 0) | (threshold == 0)) & (theta > lower) & (theta < upper)
    active = np.flatnonzero(inside & (np.diagonal(gram) > 0))
    if active.size == 0:
        return False
    x, t = theta[active], threshold[active]
    slope = gradient[active] + np.sign(x) * t
    move = -cholesky_solve(regularized_cholesky(gram[active[:, None], active]), slope)
    if not (np.isfinite(move).all() and slope @ move < 0):
        return False
    ends = np.where(move > 0, upper[active], lower[active])
    ends = np.where((t > 0) & (x * move < 0), 0.0, ends)  # where the penalty has its kink
    ratio = np.divide(ends - x, move, out=np.full(x.size, np.inf), where=move != 0)
    step = min(1.0, float(ratio.min()))
    following = np.where(ratio <= step, ends, x + step * move)
    gradient += (following - x) @ gram[active]
    theta[active] = following
    return step < 1.0
