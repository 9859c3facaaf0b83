r"""Relaxations of least squares with at most h free parts: the curvature that a bound may use.

With K the Gram matrix plus the ridge, a bound needs a positive semidefinite M and curvatures
:math:`\delta \ge 0` with

.. math:: \theta'K\theta \ge \theta'M\theta + \sum_j \delta_j \theta_j^2

for every theta that the problem allows. The larger :math:`\delta`, the tighter is the bound. If all theta are
allowed, :math:`\delta` is at most about the smallest eigenvalue of K (Xie and Deng, 2020; Liu, Rosen, Zhong
and Rudin, OKRidge, 2023). If at most k coordinates are nonzero, M may differ from K off the diagonal, since
:math:`2 |\theta_i \theta_j| \le \theta_i^2 + \theta_j^2`:

.. math:: \delta_i = K_{ii} - M_{ii} - \text{(sum of the } k - 1 \text{ largest) } |K_{ij} - M_{ij}|,
          \quad j \ne i.

M is K with its eigenvalues lowered by :math:`\tau`, those below it to (nearly) 0: for small :math:`\tau` this
is the first bound, for large :math:`\tau` Gershgorin's. In between it is positive for more samples than a few
multiples of k, also if K is singular, and often several times larger than the smallest eigenvalue.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh
from scipy.sparse.linalg import eigsh

from . import kernels
from .kernels import FREE, NOT_FREE, UNDECIDED

_EPS = float(np.finfo(float).eps)
_FLOOR = 0.01  # the smallest eigenvalue of M in units of tau, so that systems with M can be solved
_WIDE = 1500  # above this number of coordinates only the smallest eigenvalue is computed
_SAFE_PIVOT = 1e-3  # squared pivot (of a unit diagonal) below which parts are not eliminated
_POWERS = (0.0, 1.0)  # of the scale of coordinates
_FEW = 500  # coordinates up to which more than one scale is tried
_FIRST_LEVELS = (0.0, 0.01, 0.02, 0.04, 0.08, 0.12, 0.16, 0.2, 0.25, 0.35, 0.5)


@dataclass(frozen=True)
class Quadratic:
    """``constant - c'theta + theta'K theta / 2`` over parts, of which at most ``count`` may be free.

    ``threshold`` is inf where a part that is not free must be 0. ``parts`` are their numbers in the problem,
    ``start`` their first coordinates, ``error`` bounds the rounding of the three coefficients.
    """

    K: np.ndarray
    c: np.ndarray
    constant: float
    start: np.ndarray
    threshold: np.ndarray
    parts: np.ndarray
    count: int
    error: float = 0.0
    scale: np.ndarray | None = None  # of the coordinates, in units of those of the problem; None is 1

    def rescaled(self, power: float) -> Quadratic:
        r"""The same function of :math:`s \theta`, with :math:`s_j^2 = (K^{-1})_{jj}^{-1}` to that power.

        That is the part of a column that all others leave unexplained. A uniform curvature in these
        coordinates is larger for columns that are not close to dependent.
        """
        if power == 0.0:
            return self
        size = self.c.size
        K = self.K.copy()
        K.flat[:: size + 1] += 1e-7 * np.trace(K) / size
        inverse = cho_solve(cho_factor(K, lower=True, check_finite=False), np.eye(size))
        s = np.diagonal(inverse) ** (-0.5 * power)
        K = np.ascontiguousarray(self.K / np.outer(s, s))
        scale = s if self.scale is None else s * self.scale
        return replace(self, K=K, c=self.c / s, scale=scale)

    @property
    def hard(self) -> bool:
        return bool(np.isinf(self.threshold).all())

    @property
    def sizes(self) -> np.ndarray:
        return np.diff(self.start)

    def coordinates(self, which: np.ndarray) -> np.ndarray:
        """The coordinates of these parts, by a mask over the parts."""
        return np.flatnonzero(np.repeat(which, self.sizes))

    def reduced(self, free: np.ndarray, kept: np.ndarray) -> Quadratic | None:
        r"""The function of the parts ``kept`` alone, minimized over the parts ``free``, others being 0.

        .. math:: K_{UU} - K_{UF} K_{FF}^{-1} K_{FU}, \qquad c_U - K_{UF} K_{FF}^{-1} c_F

        None if the columns F are too close to dependent for this to be accurate.
        """
        F, U = self.coordinates(free), self.coordinates(kept)
        K, c, constant, error = self.K[np.ix_(U, U)], self.c[U], self.constant, self.error
        if F.size:
            try:
                factor = cho_factor(self.K[np.ix_(F, F)], lower=True)
            except LinAlgError:
                return None
            pivot = float(np.min(np.diagonal(factor[0]) ** 2 / np.diagonal(self.K)[F]))
            if pivot < _SAFE_PIVOT:
                return None
            cross = self.K[np.ix_(F, U)]
            K = K - cross.T @ cho_solve(factor, cross)
            K = 0.5 * (K + K.T)
            c = c - cross.T @ cho_solve(factor, self.c[F])
            constant = constant - 0.5 * float(self.c[F] @ cho_solve(factor, self.c[F]))
            error = error + 8.0 * _EPS * F.size / pivot
        start = np.concatenate([[0], np.cumsum(self.sizes[kept])])
        return Quadratic(
            np.ascontiguousarray(K), c, constant, start, self.threshold[kept], self.parts[kept],
            self.count - int(np.count_nonzero(free)), error, None if self.scale is None else self.scale[U],
        )  # fmt: skip


def separated(quadratic: Quadratic, tau: float, spectrum=None) -> tuple[np.ndarray, np.ndarray]:
    """M and the curvatures of the parts, as in the head of this module; some may be negative.

    Without a spectrum of K, M is ``K - tau I``, which is right if K has no eigenvalue below tau.
    """
    K, size = quadratic.K, quadratic.c.size
    slack = rounding(quadratic)
    if spectrum is None:
        M = K.copy()
        M.flat[:: size + 1] -= tau
        away = np.zeros(size)
    else:
        values, vectors = spectrum
        low = values < (1.0 + _FLOOR) * tau
        lift = (vectors[:, low] * ((1.0 + _FLOOR) * tau - values[low])) @ vectors[:, low].T
        M = K + 0.5 * (lift + lift.T)
        M.flat[:: size + 1] -= tau
        away = row_sums(M - K, most_nonzero(quadratic) - 1)
    delta = np.diagonal(K) - np.diagonal(M) - away - slack
    return np.ascontiguousarray(M), np.minimum.reduceat(delta, quadratic.start[:-1])


def rounding(quadratic: Quadratic) -> float:
    """How far computed eigenvalues of K may be off."""
    return 16.0 * _EPS * quadratic.c.size * float(np.trace(quadratic.K)) + quadratic.error


def most_nonzero(quadratic: Quadratic) -> int:
    """The largest number of coordinates that may be nonzero together."""
    if not quadratic.hard:
        return quadratic.c.size
    return int(np.sort(quadratic.sizes)[::-1][: quadratic.count].sum())


def row_sums(matrix: np.ndarray, count: int) -> np.ndarray:
    """The sums of the ``count`` largest absolute values off the diagonal of each row."""
    size = np.abs(matrix)
    np.fill_diagonal(size, 0.0)
    count, width = max(count, 0), len(matrix)
    if count == 0:
        return np.zeros(width)
    if count < width:
        size = np.partition(size, width - count, axis=1)[:, width - count :]
    return size.sum(axis=1) * (1.0 + 4.0 * _EPS * width)


@dataclass(frozen=True)
class Solution:
    """A dual point of a node, its bound, and what it says about each part."""

    bound: float
    price: float
    solved: bool
    theta: np.ndarray
    gain: np.ndarray  # of freedom, for undecided parts; -1 for others
    last: float  # the smallest gain that counts
    following: float  # the largest gain that does not
    dual: np.ndarray | None = None  # the dual vector, if it is not theta

    def verdicts(self, cutoff: float) -> np.ndarray:
        """For each part FREE or NOT_FREE if the other choice has a bound of at least the cutoff, else 0."""
        undecided = (self.gain >= 0.0) & (self.bound > -np.inf)
        top = undecided & (self.gain >= self.last)
        with np.errstate(invalid="ignore"):  # -inf + inf, of parts that are not undecided
            free = top & (self.bound + (self.gain - self.following) >= cutoff)
            not_free = undecided & ~top & (self.bound + (self.last - self.gain) >= cutoff)
        return np.where(free, FREE, np.where(not_free, NOT_FREE, UNDECIDED)).astype(np.int8)

    def opposite(self, verdicts: np.ndarray) -> float:
        """The least bound of the choices that the verdicts rule out."""
        free, not_free = verdicts == FREE, verdicts == NOT_FREE
        return min(
            np.min(self.bound + (self.gain[free] - self.following), initial=np.inf),
            np.min(self.bound + (self.last - self.gain[not_free]), initial=np.inf),
        )


class Relaxation:
    """A quadratic with M and curvatures; bounds nodes that decide some of its parts.

    ``free`` are the parts that it has minimized over, as numbers of the problem; parts that are neither there
    nor in the quadratic are not free.
    """

    def __init__(self, quadratic: Quadratic, free: np.ndarray, tau: float, M: np.ndarray, delta: np.ndarray):
        self.quadratic, self.free, self.tau, self.M, self.delta = quadratic, free, tau, M, delta
        start = quadratic.start
        self.largest = np.diagonal(M).copy()
        if quadratic.sizes.max(initial=1) > 1:
            blocks = [M[a:b, a:b] for a, b in pairwise(start)]
            self.largest = np.array([np.linalg.eigvalsh(block)[-1] for block in blocks])
        self.largest = np.maximum(self.largest, 1e-12) * (1.0 + 1e-9)
        self.first = np.zeros(quadratic.c.size), 0.0  # a point and a price to start from
        self.level = self.power = 0.0
        self.id = -1  # in the proof

    rebuilds = True  # whether fewer parts make a tighter relaxation

    def point(self, found: Solution) -> np.ndarray:
        """The dual vector of a solution."""
        return found.theta if found.dual is None else found.dual

    def solve(self, state, theta, price, cutoff, rounds=20, tol=1e-7) -> Solution:
        """Raise the bound of the node with these decisions, from a point and a price."""
        k = self.quadratic
        count = k.count - int(np.count_nonzero(state == FREE))
        found = kernels.relax(
            k.constant, self.M, k.c, k.start, self.largest, self.delta, k.threshold, state, count, theta,
            price, cutoff, rounds, tol,
        )  # fmt: skip
        _, price, solved, theta = found
        return self.valued(state, theta, price, solved)

    def trials(self, state, near: Solution):
        """A function that gives first bounds of the children of a node, to compare them by."""
        return lambda child, theta, cutoff: self.solve(child, theta, near.price, cutoff, 4)

    def confirmed(self, child, guess: Solution, cutoff) -> Solution:
        """The solution of a child that was tried: a bound that holds."""
        return guess

    def valued(self, state, theta, price=0.0, solved=False) -> Solution:
        """The bound of a dual point, rounded down."""
        k = self.quadratic
        count = k.count - int(np.count_nonzero(state == FREE))
        bound, gain, last, following = kernels.safe_value(
            k.constant, self.M, k.c, k.start, self.delta, k.threshold, state, count, theta
        )
        bound -= (k.error + 8.0 * _EPS) * k.constant
        return Solution(bound, price, solved, theta, gain, last, following)

    def decided(self, state: np.ndarray, near: Solution) -> tuple[Relaxation, Solution]:
        """A relaxation and its bound, where all parts are decided: if hard, the value of the fit itself."""
        k, none = self.quadratic, np.empty(0)
        reduced = k.reduced(state == FREE, np.zeros(state.size, dtype=bool)) if k.hard else None
        if reduced is None:
            theta = near.theta if near.theta.size == k.c.size else np.zeros(k.c.size)
            return self, self.solve(state, theta, near.price, np.inf, 60, 1e-12)
        free = np.concatenate([self.free, k.parts[state == FREE]])
        bound = reduced.constant - (reduced.error + 8.0 * _EPS) * k.constant
        return Relaxation(reduced, free, 0.0, reduced.K, none), Solution(
            bound, 0.0, True, none, none, 0.0, 0.0
        )

    def child(self, state: np.ndarray) -> Relaxation | None:
        """The relaxation without the parts that are decided; None if it cannot be accurate, or is not hard.

        A part that is not free may still be nonzero if it is not hard.
        """
        if not self.quadratic.hard:
            return None
        reduced = self.quadratic.reduced(state == FREE, state == UNDECIDED)
        if reduced is None or reduced.parts.size == 0:
            return None
        free = np.concatenate([self.free, self.quadratic.parts[state == FREE]])
        levels = (self.level, 1.4 * self.level) if self.level > 0.0 else (0.0, 0.02)
        return best_relaxation(reduced, free, levels, (self.power,))


def best_relaxation(
    quadratic: Quadratic, free: np.ndarray, levels: Iterable[float] = _FIRST_LEVELS,
    powers: Iterable[float] = _POWERS,
) -> Relaxation | None:  # fmt: skip
    """The relaxation with the largest bound at its root, over quantiles of the spectrum for tau, and scales.

    None if no curvature is positive.
    """
    best, highest = None, -np.inf
    state = np.zeros(quadratic.parts.size, dtype=np.int8)
    for power in powers if quadratic.c.size <= _FEW and quadratic.hard else (0.0,):
        theta, price, peak = np.zeros(quadratic.c.size), 0.0, -np.inf
        for relaxation in _relaxations(quadratic.rescaled(power), free, levels):
            found = relaxation.solve(state, theta, price, np.inf)
            theta, price = found.theta, found.price
            relaxation.first, relaxation.power = (theta, price), power
            if found.bound > highest:
                best, highest = relaxation, found.bound
            if found.bound < peak - 0.02 * quadratic.constant:
                break  # tau is already too large
            peak = max(peak, found.bound)
    return best


def _relaxations(quadratic, free, levels):
    """Relaxations for these quantiles of the spectrum; 0 is its smallest eigenvalue."""
    size = quadratic.c.size
    least = rounding(quadratic) / _FLOOR  # so that M is positive definite beyond rounding
    if size > _WIDE or not quadratic.hard:
        tau = smallest_eigenvalue(quadratic.K)
        M, delta = separated(quadratic, tau)
        if tau > least and delta.min() > 0.0:
            yield Relaxation(quadratic, free, tau, M, delta)
        return
    values, vectors = np.linalg.eigh(quadratic.K)  # other threads go on meanwhile
    for level in sorted(set(levels)):
        tau = values[min(int(level * size), size - 1)]
        tau = (1.0 - 2 * _FLOOR) * tau if level == 0.0 else tau
        if tau <= least:
            continue
        M, delta = separated(quadratic, tau, (values, vectors))
        if delta.min() > 0.0:
            relaxation = Relaxation(quadratic, free, tau, M, delta)
            relaxation.level = level
            yield relaxation
        elif level > 0.1:
            return


def smallest_eigenvalue(K: np.ndarray) -> float:
    """A number just below the smallest eigenvalue of K, confirmed by a Cholesky factor; 0 if none is."""
    size = len(K)
    if size <= _WIDE:
        guess = float(eigh(K, eigvals_only=True, subset_by_index=(0, 0), check_finite=False)[0])
    else:
        guess = float(eigsh(K, k=1, which="SA", tol=1e-3, ncv=min(60, size))[0][0])
    for share in (0.98, 0.9, 0.7):
        shifted = K.copy()
        shifted.flat[:: size + 1] -= share * guess
        try:
            cho_factor(shifted, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            continue
        return share * guess if guess > 0.0 else 0.0
    return 0.0
