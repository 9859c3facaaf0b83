r"""Scores of all exchanges of one free coefficient for another (least squares).

Let S be the free features of a local minimum (the h largest), P the penalized ones that are nonzero, N
those that are never penalized, and A their union, with Gram matrix ``M = Z_A' D Z_A``. A ridge term adds
``l2 f`` to its diagonal, and to ``s_j`` below. Exchanging i in S for j keeps A (and j) and the signs of P,
and refits:

- **j enters.** For j outside A, with ``c_j = z_j'Dr``, ``K_j = M^-1 Z_A'Dz_j`` and ``s_j`` the squared
  norm of the part of ``z_j`` that A does not explain, F falls by ``c_j^2 / (2 s_j)``, ``theta_A`` moves by
  ``-K_j c_j / s_j`` and ``[M^-1]_ii`` grows by ``K_ji^2 / s_j``. For j in P, with ``t_j = alpha f_j``, F
  falls by ``t_j |theta_j| + t_j^2 [M^-1]_jj / 2`` and ``theta_A`` moves by
  ``t_j sign(theta_j) M^-1 e_j``.
- **i leaves**: ``t_i |theta_i|`` is added. With ``theta_i`` and ``m = [M^-1]_ii`` after j has entered, the
  cost is the Huber function ``theta_i^2 / (2m)`` if
  ``|theta_i| <= t_i m`` (then i ends at 0), else ``t_i |theta_i| - t_i^2 m / 2``.

If alpha is above the exact-penalty threshold the first branch always holds, and the difference is

.. math:: \frac12 \Bigl[\frac{(c_j + k_{ij} v_i)^2}{s_j + k_{ij}^2} - v_i^2\Bigr]
          = \frac{c_j^2 + 2 c_j k_{ij} v_i - s_j v_i^2}{2 (s_j + k_{ij}^2)}, \qquad
          k_{ij} = \frac{K_{ji}}{\sqrt{[M^{-1}]_{ii}}},\ v_i = \frac{\theta_i}{\sqrt{[M^{-1}]_{ii}}},

of which the second form is computed, because the first cancels for nearly collinear columns.

A refit with fixed signs may reverse the sign of a penalized coefficient. Then it pays ``t_k |theta_k|`` and
not the ``t_k sign_k theta_k < 0`` of the score, so ``2 t_k |theta_k|`` is subtracted. The refit attains the
remaining decrease of F.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

from ..losses import Loss, Quadratic, get_loss
from ..penalties import TrimmedL1
from .bounded_swap import BoundedSwaps
from .candidate import read_candidate

_RELATIVE_GAIN = 1e-9
# A column counts as explained by others if at most this part of its squared norm remains: 1e-9 of its norm,
# of which float64 still has seven digits. Columns between that and rounding are not scored.
_EXPLAINED = 1e-18
_ROUNDING = 1e-28
_EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Swap:
    """The answer of :func:`best_swap`; true in a boolean context if an improving swap was found.

    Attributes
    ----------
    leaves : int or None
        The free feature to give up. None if a place is empty, or if no swap improves.
    enters : int or None
        The feature that replaces it. None if no swap improves.
    gain : float
        The decrease of F; if no swap improves, the largest score (usually 0 or less).
    exact : bool
        Whether every score is the exact difference of F after refitting, so that there are no other improving
        swaps. If not, F falls by at least ``gain``, and other swaps may exist.
    """

    leaves: int | None
    enters: int | None
    gain: float
    exact: bool

    def __bool__(self) -> bool:
        return self.enters is not None


def best_swap(
    X: Any, y: ArrayLike, coef: ArrayLike, *, penalty: TrimmedL1, alpha: float, intercept: float = 0.0,
    loss: Loss | str = "quadratic", sample_weight: ArrayLike | None = None, fit_intercept: bool = False,
    standardize: bool = False, positive: bool = False, lower: ArrayLike | None = None,
    upper: ArrayLike | None = None, l2: float = 0.0,
) -> Swap:  # fmt: skip
    r"""The best exchange of a free feature i for another j, for least squares.

    If no penalized coefficient is nonzero and alpha is at or over the exact-penalty threshold, the gain
    is half the difference of the mean squared residuals of two least squares fits, on S and on S with j
    for i, and all pairs are scored: if none improves, ``coef`` is 1-swap optimal. Otherwise (the soft
    case) i becomes penalized and j free, and the gain is that of a refit with the active set and the
    signs of the penalized coefficients fixed; the module's docstring has the formulas. If there are fewer
    than h nonzeros, j enters and nothing leaves, which is exact for every alpha.

    Parameters
    ----------
    X, y, alpha, sample_weight, fit_intercept, standardize, l2
        As in :func:`stationarity`.
    coef : array-like of shape (p,)
        Coefficients in the units of X, at a local minimum. (Elsewhere gains are counted from the refit of
        ``coef`` on its active set, not from ``coef`` itself.)
    penalty : TrimmedL1
        Without groups.
    intercept : float
        Used if ``fit_intercept`` is false; otherwise the intercept is refitted with the rest.
    loss : str or loss object
        Least squares; any other is a ``ValueError``.
    positive, lower, upper
        As in :func:`stationarity`. Swaps are refitted within the bounds, which is exact in the first case. In
        the soft case only swaps whose refit without bounds satisfies them are reported, and ``exact`` is
        false.

    Returns
    -------
    Swap
        Improving means a gain above ``1e-9 F`` (and above the rounding of the sum of squares of y).

    Notes
    -----
    The cost is one product of X with the orthonormal basis of the active set, and
    ``O(|S| p)`` for the scores.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.diagnostics import best_swap
    >>> from trimreg.penalties import TrimmedL1
    >>> X = 2.0 * np.eye(4)
    >>> y = np.array([4.0, 1.0, 0.0, 0.0])
    >>> best_swap(X, y, [0.0, 0.5, 0.0, 0.0], penalty=TrimmedL1(h=1), alpha=10.0)
    Swap(leaves=1, enters=0, gain=1.875, exact=True)
    >>> bool(best_swap(X, y, [2.0, 0.0, 0.0, 0.0], penalty=TrimmedL1(h=1), alpha=10.0))
    False

    References
    ----------
    For subsets the swap is that of the exchange algorithms of optimal design and of Miller, Subset selection
    in regression (2002), section 3.3; the soft scores are this library's.
    """
    if not isinstance(penalty, TrimmedL1):
        raise ValueError(f"penalty must be a TrimmedL1; got {penalty!r}")
    loss = get_loss(loss)
    if not isinstance(loss, Quadratic):
        raise ValueError(f"loss must be 'quadratic', the only one with swap scores; got {loss!r}")
    if penalty.groups is not None:
        raise ValueError("penalty must not have groups: swaps are scored for single coefficients")
    point = read_candidate(
        X, y, coef, penalty=penalty, alpha=alpha, l2=l2, intercept=intercept, positive=positive, lower=lower,
        upper=upper, loss=loss, sample_weight=sample_weight, fit_intercept=fit_intercept,
        standardize=standardize,
    )  # fmt: skip
    excluded = np.isinf(point.factor) & (point.theta != 0)
    if excluded.any() or point.outside.any():
        raise ValueError("coef must be 0 for excluded features, and within the bounds")
    data = point.data
    target = data.target if data.fit_intercept else data.y - point.intercept
    floor = _RELATIVE_GAIN * point.objective() + _EPS * 0.5 * data.rms(target) ** 2
    if point.bounds is not None and _is_hard(point, target):
        gain, leaves, enters, exact = BoundedSwaps(point, target).best(floor)
        return Swap(leaves, enters, gain, exact)
    model = _Model(point, target)
    best, found = _candidates(model, floor)
    gain, i, j = _attained(model, found, floor)
    if j is not None:
        return Swap(None if i < 0 else i, j, gain, model.exact and point.bounds is None)
    return Swap(None, None, best, model.exact and found[0].size == 0)


def _is_hard(point, target):
    """Whether nothing penalized is nonzero, and alpha is at or over the exact-penalty threshold."""
    factor, columns = point.factor, point.data.columns
    regular = (factor > 0) & np.isfinite(factor)
    if np.count_nonzero(regular & (point.clean_theta != 0)) > point.penalty.n_free:
        return False
    counted = regular & (columns.norms > 0)
    longest = np.max(columns.norms[counted] / factor[counted], initial=0.0)
    if point.bounds is not None:  # the loss at the least coefficients is at most that at 0, if 0 is allowed
        least = np.clip(0.0, *point.bounds)
        away = np.flatnonzero(least)
        target = target - columns.dense(away) @ least[away]
    # For the target minus a fixed intercept, which the loss of the data does not know. A relative 1e-12
    # allows for an alpha equal to the threshold, computed in another order.
    return point.alpha >= (1 - 1e-12) * float(longest) * point.data.rms(target)


def _candidates(model, floor):
    """The best score, and ``(score, leaves, enters)`` of the swaps above the floor, best first."""
    best, found = -np.inf, []
    for score, leaves, enters in model.scores():
        best = max(best, float(score.max(initial=-np.inf)))
        # If every refit attains its score, one swap per block is enough.
        above = floor if model.must_verify else max(floor, best)
        rows, columns = np.nonzero((score > floor) & (score >= above))
        found.append((score[rows, columns], leaves[columns], enters[rows]))
    if not np.isfinite(best):
        return 0.0, (np.empty(0), np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp))
    score, leaves, enters = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.lexsort((leaves, enters, -score))  # ties by index, so that blocks do not matter
    return best, (score[order], leaves[order], enters[order])


def _attained(model, found, floor):
    """``(gain, i, j)`` of the swap with the largest gain that a refit attains; j is None if there is none."""
    best = (floor, None, None)
    for top, i, j in zip(*(part.tolist() for part in found), strict=True):
        if top <= best[0]:  # a score is an upper bound of the gain
            break
        gain = top - model.shortfall(i, j) if model.must_verify else top
        # A small difference of large numbers is rounding: fixed signs do not describe that refit at all.
        if gain > max(best[0], 1e-6 * top):
            best = (gain, i, j)
    return best


class _Model:
    """The refit on the active set A, and the scores of entering and leaving it.

    ``slot`` is None if a feature must leave for another to enter; otherwise it is the feature that can leave
    at no cost, or -1 if a place is empty. Scores are exact differences of F if ``exact``. If ``must_verify``,
    a refit may violate the signs that its score assumes.
    """

    def __init__(self, point, target):
        self.bounds, self.columns = point.bounds, point.data.columns
        theta, factor = point.clean_theta, point.factor
        weights = point.penalty.weights(theta, point.alpha, point.gradient)
        alive = self.columns.norms > 0
        regular = (factor > 0) & np.isfinite(factor)
        magnitude = np.where(regular, factor, 0.0) * np.abs(theta)
        free = regular & (theta != 0) & (weights == 0)
        paying = regular & (theta != 0) & (weights != 0)
        never = (factor == 0) & alive
        at_bound = never & (
            False if self.bounds is None else (theta == self.bounds[0]) | (theta == self.bounds[1])
        )
        self.outside = regular & (theta == 0) & alive
        self.n_free = point.penalty.n_free

        hard = _is_hard(point, target)
        self.threshold = np.full(theta.size, np.inf) if hard else point.alpha * np.where(regular, factor, 0.0)

        # Least penalized first: a free column that earlier ones explain can be set to 0 and its share given
        # to them at no cost, so its place is free. A penalized column stays as it is.
        by_size = np.argsort(-magnitude, kind="stable")
        unpenalized = np.flatnonzero(never & ~at_bound)
        order = np.concatenate([unpenalized, by_size[free[by_size]], by_size[paying[by_size]]])
        self.root = np.sqrt(point.data.d)
        # A ridge is a row of its own below each column.
        self.ridge, self.n_samples = point.ridge, self.root.size
        Z = np.vstack([self.columns.dense(order) * self.root[:, None], np.diag(np.sqrt(self.ridge[order]))])
        kept, self.basis, R = _independent(Z)
        dropped = np.setdiff1d(np.arange(order.size), kept)
        idle = order[dropped[free[order[dropped]]]]
        fixed = dropped[paying[order[dropped]]]

        self.active = order[kept]
        self.is_free, self.is_paying = free[self.active], paying[self.active]
        self.sign = np.where(self.is_paying, np.sign(theta[self.active]), 0.0)
        pull = np.zeros(kept.size)
        pull[self.is_paying] = self.threshold[self.active[self.is_paying]] * self.sign[self.is_paying]
        self.inverse_root = solve_triangular(R, np.eye(kept.size)) if kept.size else R
        self.inverse = self.inverse_root @ self.inverse_root.T
        rest = np.append(self.root * target, np.zeros(order.size)) - Z[:, fixed] @ theta[order[fixed]]
        self.theta = self.inverse_root @ (self.basis.T @ rest - self.inverse_root.T @ pull)
        self.residual = rest - Z[:, kept] @ self.theta

        self.slot = int(idle.min()) if idle.size else None
        if np.count_nonzero(free) < self.n_free:
            self.slot = -1
        self.leaving = np.flatnonzero(self.is_free)
        can_enter = self.outside.any() or paying.any()
        # With an empty place nothing is penalized, whatever alpha is. A feature at the bound of ``positive``
        # might move in a refit, which the scores ignore.
        self.exact = (hard or self.slot == -1 or self.n_free == 0 or not can_enter) and not at_bound.any()
        self.must_verify = bool(point.bounds is not None or paying.any())

    def scores(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """``(score, leaves, enters)`` by blocks: scores with one row per j and one column per i."""
        if self.n_free == 0:
            return
        leaves = self.active[self.leaving] if self.slot is None else np.array([self.slot])
        for score, j in (self._penalized(), *map(self._outside, self.columns.blocks(self.active.size + 1))):
            if score.size:
                yield score, leaves, j

    def _outside(self, block):
        """Scores for j outside A."""
        j = np.arange(block.start, block.stop)
        probe = self.root[:, None] * np.column_stack([self.basis, self.residual])[: self.n_samples]
        product = self.columns.transposed(probe, block)
        shadow, c = product[:, :-1], product[:, -1]
        s = self._spare(j, shadow)
        # A column that A explains is not a candidate. If nothing is penalized, a fit on j and part of A stays
        # in the span of A, where the fit is already the best: the gain is 0 for a duplicate of i, else
        # negative. If P is not empty, fixed signs do not describe the refit, and j is as good as the columns
        # that explain it.
        square = self.columns.norms[j] ** 2 + self.ridge[j]
        part = s / np.where(square > 0, square, 1.0)
        ok = self.outside[j] & (part > _EXPLAINED)
        if np.any(self.outside[j] & ~ok & (part > _ROUNDING)):
            self.exact = False
        j, shadow, c, s = j[ok], shadow[ok], c[ok, None], s[ok, None]
        entry = c**2 / (2 * s)
        if self.slot is not None:
            return entry, j
        i = self.leaving
        K = shadow @ self.inverse_root[i].T
        inverse, theta, t = self.inverse[i, i], self.theta[i], self.threshold[self.active[i]]
        k, v = K / np.sqrt(inverse), theta / np.sqrt(inverse)
        score = (c**2 + 2 * c * k * v - s * v**2) / (2 * (s + k**2))
        if np.isfinite(t).all():
            moved, raised = np.abs(theta - K * c / s), inverse + K**2 / s
            score = np.where(moved <= t * raised, score, entry - t * moved + t**2 * raised / 2)
        return score, j

    def _spare(self, j, shadow):
        """``s_j``, computed from the remainder itself if the difference of squares would cancel."""
        square = self.columns.norms[j] ** 2 + self.ridge[j]
        s = square - np.einsum("ij,ij->i", shadow, shadow)
        close = np.flatnonzero(self.outside[j] & (s <= 1e-5 * square))
        for which in self.columns.pieces(close):
            left = self._below(self.columns.dense(j[which]) * self.root[:, None])
            for _ in range(2):
                left -= self.basis @ (self.basis.T @ left)
            s[which] = np.einsum("ij,ij->j", left, left) + self.ridge[j[which]]
        return s

    def _below(self, columns):
        """Columns outside A, with zeros in the rows of A's ridge."""
        return np.vstack([columns, np.zeros((self.residual.size - self.n_samples, columns.shape[1]))])

    def _penalized(self):
        """Scores for j in P: it is already in A and loses its penalty."""
        at = np.flatnonzero(self.is_paying)
        j = self.active[at]
        t = self.threshold[j]
        entry = (t * self.sign[at] * self.theta[at] + t**2 * self.inverse[at, at] / 2)[:, None]
        if self.slot is not None or at.size == 0:
            return entry, j
        i = self.leaving
        moved = self.theta[i] + (t * self.sign[at])[:, None] * self.inverse[np.ix_(at, i)]
        return entry - _huber(np.abs(moved), self.inverse[i, i], self.threshold[self.active[i]]), j

    def shortfall(self, i: int, j: int) -> float:
        """Score minus the gain of the refit after a swap; inf if the refit violates a bound."""
        at = np.flatnonzero(self.active == j)
        sign = self.sign
        if at.size:
            sign = np.where(self.active == j, 0.0, sign)
            theta = self.theta + self.threshold[j] * self.sign[at] * self.inverse[:, at[0]]
            inverse = self.inverse
        else:
            z = self._below(self.columns.dense(np.array([j])) * self.root[:, None])[:, 0]
            along = self.basis.T @ z
            left = z - self.basis @ along
            left -= self.basis @ (self.basis.T @ left)
            s, c, K = left @ left + self.ridge[j], z @ self.residual, self.inverse_root @ along
            column = np.append(-K, 1.0)
            theta = np.append(self.theta, 0.0) + column * (c / s)
            inverse = np.pad(self.inverse, (0, 1)) + np.outer(column, column) / s
            sign = np.append(sign, 0.0)
        if self.slot is None:
            k = int(np.flatnonzero(self.active == i)[0])
            limit = self.threshold[i] * inverse[k, k]
            push = theta[k] if abs(theta[k]) <= limit else np.copysign(limit, theta[k])
            end = theta[k] - push
            theta = theta - inverse[:, k] * (push / inverse[k, k])
            theta[k] = end  # exactly 0 if it ends there
        if self.bounds is not None:
            low, high = (end[np.append(self.active, j)[: theta.size]] for end in self.bounds)
            if ((theta < low) | (theta > high)).any():
                return np.inf
        t = np.where(sign != 0, self.threshold[np.append(self.active, j)[: sign.size]], 0.0)
        return float(2 * t @ np.maximum(-sign * theta, 0.0))


def _huber(size, inverse, t):
    """``min_x (x - size)^2 / (2 inverse) + t |x|``."""
    return np.where(size <= t * inverse, size**2 / (2 * inverse), t * size - t**2 * inverse / 2)


def _independent(Z):
    """The first columns of Z that are independent, ``Q`` and ``R`` with ``Z[:, kept] = Q R``.

    Gram-Schmidt, each column projected twice: one pass loses orthogonality where columns are close.
    """
    n, count = Z.shape
    Q, R, kept = np.zeros((n, min(n, count))), np.zeros((count, count)), []
    for k in range(count):
        m = len(kept)
        v, along = Z[:, k].copy(), np.zeros(m)
        for _ in range(2):
            part = Q[:, :m].T @ v
            v -= Q[:, :m] @ part
            along += part
        size = float(v @ v)
        if m == n or size <= _EXPLAINED * float(Z[:, k] @ Z[:, k]):
            continue
        Q[:, m] = v / np.sqrt(size)
        R[:m, m], R[m, m] = along, np.sqrt(size)
        kept.append(k)
    m = len(kept)
    return np.array(kept, dtype=np.intp), Q[:, :m], R[:m, :m]
