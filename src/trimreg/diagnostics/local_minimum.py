"""Whether a point is a local minimum of the trimmed objective: necessary and sufficient conditions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..losses import Loss
from ..penalties import TrimmedL1
from .arguments import number
from .candidate import best_constant, read_candidate

_EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class LocalMinimumCheck:
    """The answer of :func:`is_local_minimum`; true in a boolean context if and only if it holds.

    Attributes
    ----------
    holds : bool
    coordinate : int or None
        The first feature that violates its condition (with groups, the first of its group whose coefficient
        does); None if all conditions hold, or if only the intercept fails.
    reason : str
        The violated condition in words.
    violation : float
        Its size in the units of ``tol``; above ``tol`` it counts. If all conditions hold, the largest.
    """

    holds: bool
    coordinate: int | None
    reason: str
    violation: float

    def __bool__(self) -> bool:
        return self.holds


def is_local_minimum(
    X: Any, y: ArrayLike, coef: ArrayLike, *, penalty: TrimmedL1, alpha: float, intercept: ArrayLike = 0.0,
    loss: Loss | str = "quadratic", sample_weight: ArrayLike | None = None, fit_intercept: bool = False,
    standardize: bool = False, positive: bool = False, lower: ArrayLike | None = None,
    upper: ArrayLike | None = None, l2: float = 0.0, tol: float = 1e-6,
) -> LocalMinimumCheck:  # fmt: skip
    r"""Whether ``coef`` is a local minimum of :math:`F = L + \alpha \sum_{j > h} r_{(j)}` for convex L.

    With :math:`r_j = f_j |\theta_j|`, F is the least of finitely many convex functions,

    .. math:: F = \min_{|S| = h} F_S, \qquad
              F_S(\theta) = L(\theta) + \alpha \sum_{j \notin S} f_j |\theta_j|,

    and near theta only the sets S of h largest magnitudes count. So theta is a local minimum of F if and
    only if it minimizes ``F_S`` for *every* such S, that is, with ``g`` the gradient of the loss (and of the
    ridge term, if there is one),

    - ``g_j = 0`` for every feature that is in some such S (and for those with factor 0), and
    - ``-g_j`` in :math:`\alpha f_j\, \partial|\theta_j|` for every feature that is outside some such S.

    The consequences depend on the h-th and the next magnitude:

    =========================  ==================================================================
    ``r_(h) > r_(h+1)``        one S: ``g = 0`` on it, ``g_j = -alpha f_j sign(theta_j)`` on penalized
                               nonzeros, ``|g_j| <= alpha f_j`` on zeros
    ``r_(h) = r_(h+1) > 0``    never, if alpha > 0: a tied feature is in one S and outside another, so
                               its ``g_j`` would have to be 0 and ``-alpha f_j sign(theta_j)``
    ``r_(h) = 0``              fewer than h nonzeros: any zero may be free, so ``g = 0`` everywhere
    =========================  ==================================================================

    With groups, or with several outputs, a "feature" is a group or the row of a feature, ``g_j`` the gradient
    in its coefficients, ``|theta_j|`` its norm, and ``|g_j|`` the dual norm.

    At a lower bound (0 with ``positive``) ``g_j`` may be above these values, at an upper bound below them;
    excluded features must be 0. If an intercept is fitted, its derivative must be 0.

    Parameters
    ----------
    X, y, coef, alpha, intercept, sample_weight, fit_intercept, standardize, positive, lower, upper, l2
        As in :func:`stationarity`. A coefficient within rounding of 0 counts as 0.
    penalty : TrimmedL1
    loss : str or loss object
        Convex in the linear predictor; otherwise the conditions are only necessary.
    tol : float
        Allowed violation of a condition on ``g_j``, relative to
        :math:`\|z_j\| \max_k |g_k(0)| / \|z_k\|`, where ``g(0)`` is the gradient at ``theta = 0`` with the
        intercept fitted; the norms make the test independent of the units of X. For a group the norms are
        root mean squares over its columns. ``tol`` is also the relative difference at which two magnitudes
        count as tied. It is at least 200 eps of the dtype of X.

    Returns
    -------
    LocalMinimumCheck

    Notes
    -----
    Magnitudes that agree to a relative ``tol`` count as tied: gradients known to ``tol`` do not show which is
    larger, and the answer depends on it. Such a point may be a local minimum with a narrow basin; it is
    reported as tied and never certified. Zeros are taken literally (up to rounding): solvers of l1 problems
    set them exactly, and a small free coefficient beside exact zeros is a valid local minimum.

    The derivative in the intercept, a sum over samples, is compared with the sum of absolute values at
    ``theta = 0``.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.diagnostics import is_local_minimum
    >>> from trimreg.penalties import TrimmedL1
    >>> X = 2.0 * np.eye(4)
    >>> y = np.array([4.0, 1.0, 0.0, 0.0])
    >>> bool(is_local_minimum(X, y, [2.0, 0.0, 0.0, 0.0], penalty=TrimmedL1(h=1), alpha=0.75))
    True
    >>> check = is_local_minimum(X, y, [2.0, 0.0, 0.0, 0.0], penalty=TrimmedL1(h=1), alpha=0.25)
    >>> check.coordinate, check.reason
    (1, 'it is zero and penalized, but |gradient| exceeds alpha times its factor')
    """
    if not isinstance(penalty, TrimmedL1):
        raise ValueError(f"penalty must be a TrimmedL1; got {penalty!r}")
    point = read_candidate(
        X, y, coef, penalty=penalty, alpha=alpha, l2=l2, intercept=intercept, positive=positive, lower=lower,
        upper=upper, loss=loss, sample_weight=sample_weight, fit_intercept=fit_intercept,
        standardize=standardize,
    )  # fmt: skip
    tol = max(number("tol", tol, minimum=0.0), 200 * point.data.columns.eps)
    roles = Roles(point, tol)
    scale, intercept_scale = _scales(point, tol)
    violation = _ratio(roles.residual(), scale)
    bad = np.flatnonzero(violation > tol)
    if bad.size:
        j = int(bad[0])
        feature = j // point.loss.n_outputs
        return LocalMinimumCheck(False, feature, roles.reason(j), float(violation[j]))
    slope = float(np.max(_ratio(np.abs(point.intercept_derivative), intercept_scale)))
    if slope > tol:
        return LocalMinimumCheck(False, None, "the derivative in the intercept is not 0", slope)
    largest = max(slope, float(np.max(violation, initial=0.0)))
    return LocalMinimumCheck(True, None, "every condition holds", largest)


class Roles:
    """Which features (or groups) are free in some optimal S, and which are penalized in some."""

    def __init__(self, point, tol):
        self.point, self.norm = point, point.penalty.norm
        self.theta, self.factor = point.clean_theta, point.factor
        self.length = self.norm.lengths(self.theta)
        self.unpenalized, self.excluded = self.factor == 0, np.isinf(self.factor)
        regular = ~(self.unpenalized | self.excluded)
        r = np.where(regular, np.where(regular, self.factor, 0.0) * self.length, -np.inf)
        h, count = point.penalty.n_free, int(np.count_nonzero(regular))
        ordered = np.sort(r[regular])[::-1]
        self.spare = h > np.count_nonzero(r > 0)  # fewer than h nonzeros
        free_from = ordered[h - 1] if h > 0 else np.inf
        penalized_to = ordered[h] if h < count else -np.inf
        if 0 < h < count and free_from - penalized_to <= tol * free_from:
            # The two levels are tied: every magnitude near them can be on either side.
            width = tol * free_from
            free_from, penalized_to = free_from - width, penalized_to + width
        self.free = self.unpenalized | (regular & (r >= free_from))
        self.penalized = regular & (r <= penalized_to)

    def residual(self):
        """The largest violation of each coefficient over its possible roles, in units of g."""
        point, spread = self.point, self.norm.spread
        level = point.alpha * np.where(self.penalized, self.factor, 0.0)
        as_free, as_penalized = (
            np.abs(self.norm.residual(self.theta, point.gradient, threshold, point.bounds))
            for threshold in (np.zeros_like(level), level)
        )
        residual = np.maximum(
            np.where(spread(self.free), as_free, 0.0), np.where(spread(self.penalized), as_penalized, 0.0)
        )
        forbidden = spread(self.excluded) & (self.theta != 0)
        return np.where(forbidden | point.outside, np.inf, residual)

    def reason(self, coordinate):
        """The condition that the feature of this coefficient, or its group, violates."""
        j = int(self.norm.spread(np.arange(self.norm.count))[coordinate])
        grouped, single = self.point.penalty.groups is not None, self.norm.q is None
        it, its = ("its group", "its group's") if grouped else ("it", "its")
        counted = "groups" if grouped else "coefficients" if single else "features"
        pull = "|gradient|" if single else "the dual norm of the gradient"
        zero = self.length[j] == 0
        if self.excluded[j]:
            return f"{it} is excluded by an infinite penalty factor, but its coefficient is not 0"
        if self.point.outside[coordinate]:
            return "its coefficient is beyond a bound"
        if self.unpenalized[j]:
            return f"{it} is never penalized, but its gradient is not 0"
        if self.free[j] and self.penalized[j] and not zero:
            return f"{its} magnitude ties with others for the h-th place, so that F falls on one side"
        if self.free[j] and zero and self.spare:
            one = "this one is free too, but its gradient is not 0"
            return f"fewer than h {counted} are nonzero, so {one}"
        if self.free[j]:
            return f"{it} is free, but its gradient is not 0"
        if zero:
            return f"{it} is zero and penalized, but {pull} exceeds alpha times its factor"
        if single:
            return "it is nonzero and penalized, but its gradient is not -alpha times its factor and sign"
        right = "-alpha times its factor and a subgradient of its norm"
        return f"{it} is nonzero and penalized, but its gradient is not {right}"


def _scales(point, tol):
    """The scales of the violations: one per coefficient, and one for the intercept.

    They are at least the rounding error over ``tol``, in case X does not explain the target at all and the
    gradient at theta = 0 is nothing but rounding.
    """
    data, norm = point.data, point.penalty.norm
    b = best_constant(point.loss, data.y, data.d) if data.fit_intercept else point.intercept
    slope = point.loss.gradient(np.zeros_like(point.eta) + b, data.y, data.d)
    excluded = norm.spread(np.isinf(point.factor))
    at_zero = np.where(excluded, 0.0, np.abs(data.columns.gradient(slope).ravel()))
    # One scale per group, whatever the norms of its columns.
    norms = norm.common(data.norms)
    # The size of the numbers whose difference is the gradient in the predictor sets its rounding.
    size = float(np.sum(np.abs(slope)) + np.sum(np.abs(point.slope)))
    if point.loss.constant_curvature:
        size = data.rms(data.y) + data.rms(point.eta)
    floor = 64 * _EPS * size / tol
    per_norm = max(float(np.max(_ratio(at_zero, norms), initial=0.0)), floor)
    return norms * per_norm, max(float(np.sum(np.abs(slope))), floor)


def _ratio(size, scale):
    """``size / scale``, with 0/0 = 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.asarray(size) == 0, 0.0, np.asarray(size) / scale)
