"""Ordinal regression: ordered classes with proportional odds."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from ..base import SEPARABLE, Loss, Nuisance, deflated, require, require_finite, slopes_vanish, weighted_sum

_MOST_STEPS = 200


class Ordinal(Nuisance, Loss):
    r"""Minus the log-likelihood of ordered classes 0, ..., K - 1 with proportional odds,

    .. math:: P(y \le k) = F(c_k - \eta), \qquad F(u) = \frac{1}{1 + e^{-u}}, \qquad
              L(\eta) = \min_{c_0 < \dots < c_{K-2}} -\sum_i d_i \log\bigl[F(c_{y_i} - \eta_i)
              - F(c_{y_i - 1} - \eta_i)\bigr],

    where :math:`c_{-1} = -\infty` and :math:`c_{K-1} = \infty` (McCullagh 1980, Regression models for ordinal
    data, Journal of the Royal Statistical Society B 42). The loss of a sample is a sum of two logistic losses
    and a function of the distance of its thresholds,

    .. math:: \log(1 + e^{\eta - c_y}) + \log(1 + e^{c_{y-1} - \eta}) - \log(1 - e^{c_{y-1} - c_y}),

    so it is jointly convex. L, its minimum over the thresholds, is convex, and a minimum of L is one in the
    coefficients and the thresholds together. There is no intercept: it is part of the thresholds. Classes
    without samples have probability 0.

    Parameters
    ----------
    n_classes : int, optional
        K. By default the largest class of the target plus one, and at least 2.
    thresholds : sequence of K - 1 increasing numbers, optional
        Given thresholds; by default they are estimated.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.losses import Ordinal
    >>> y, d = np.array([0.0, 1.0, 2.0, 2.0]), np.full(4, 0.25)
    >>> Ordinal().thresholds_at(np.zeros(4), y, d).round(3).tolist()  # the log-odds of the shares 1/4, 1/2
    [-1.099, 0.0]
    """

    name = "ordinal"
    working_vectors = 24
    curvature_bound = 0.5
    may_diverge = True

    def __init__(self, n_classes: int | None = None, thresholds: Any = None):
        if n_classes is not None and not (n_classes == int(n_classes) and n_classes >= 2):
            raise ValueError(f"n_classes must be None or an integer >= 2; got {n_classes!r}")
        if thresholds is not None:
            thresholds = np.asarray(thresholds, dtype=float)
            if thresholds.ndim != 1 or not thresholds.size or not np.all(np.diff(thresholds) >= 0):
                raise ValueError(
                    f"thresholds must be None or increasing numbers; got {thresholds.tolist()!r}"
                )
            if n_classes not in (None, thresholds.size + 1):
                raise ValueError(f"n_classes must be the number of thresholds plus one; got {n_classes!r}")
            n_classes = thresholds.size + 1
        self.n_classes, self.thresholds = n_classes, thresholds
        self.separable = self.sees_constants = thresholds is not None
        self.has_nuisance = thresholds is None

    def check_target(self, y: np.ndarray) -> None:
        require_finite(y)
        require(y, (y >= 0) & (y == np.floor(y)), "hold ordered classes 0, 1, 2, ...")
        if self.n_classes is not None:
            require(y, y < self.n_classes, f"hold classes below n_classes = {self.n_classes}")
        elif np.max(y, initial=0.0) >= max(100, 2 * len(y)):
            raise ValueError(f"y must hold ordered classes 0, 1, 2, ...; got {y.max():g}, more than samples")
        if self.thresholds is None and (y == y[0]).all():
            raise ValueError(f"y must have at least two ordered classes; got only {y[0]:g}")

    def bound(self, y: np.ndarray, d: np.ndarray) -> Loss:
        other = copy.copy(self)
        other.n_classes = self._count(y)
        return other

    def _count(self, y):
        return int(self.n_classes or max(2, int(np.max(y, initial=0.0)) + 1))

    def held(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> Loss:
        return type(self)(thresholds=self.thresholds_at(eta, y, d))

    def estimates(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> dict[str, Any]:
        return {"thresholds": self.thresholds_at(eta, y, d)}

    def thresholds_at(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        """The given thresholds, or the best ones for these predictors; infinite beyond the last classes."""
        return self.thresholds if self.thresholds is not None else self._best(eta, y, d)

    def _minimizer(self, eta, y, d):
        live = d > 0
        codes, eta, d = y[live].astype(int), eta[live], d[live]
        count = self._count(y)
        present = np.bincount(codes, minlength=count) > 0
        rank = np.cumsum(present) - 1  # of the classes that have samples
        best = _best_thresholds(eta, rank[codes], d, int(present.sum()))
        return np.concatenate([[-np.inf], best, [np.inf]])[rank[:-1] + 1]

    def probabilities(self, eta: np.ndarray) -> np.ndarray:
        """Of the classes, for given thresholds: shape (n, K)."""
        if self.thresholds is None:
            raise ValueError("thresholds must be given for probabilities")
        K = self.thresholds.size + 1
        codes = np.tile(np.arange(K), (len(eta), 1))
        return np.exp(-_losses(self.thresholds, codes, eta[:, None]))

    def pointwise(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray | None = None) -> np.ndarray:
        d = np.full(len(y), 1.0 / len(y)) if d is None else d
        return _losses(self.thresholds_at(eta, y, d), y.astype(int), eta)

    def _above_and_below(self, eta, y, d):
        """The probabilities of a class above that of y, and of one below."""
        up, down = _neighbors(self.thresholds_at(eta, y, d), y.astype(int))
        return _share(eta - up), _share(down - eta)

    def gradient(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        """``d (P(above y) - P(below y))``, at the best thresholds as if they were fixed."""
        above, below = self._above_and_below(eta, y, d)
        return d * (above - below)

    def curvature(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        """For fixed thresholds, which for estimated ones is an upper bound."""
        above, below = self._above_and_below(eta, y, d)
        return d * (above * (1.0 - above) + below * (1.0 - below))

    def gram(self, design: Any, W: np.ndarray, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        r"""With estimated thresholds the Schur complement of their Hessian in the joint one."""
        gram = design.gram(W, self.curvature(eta, y, d), W)
        c = self.thresholds_at(eta, y, d)
        inner = np.flatnonzero(np.isfinite(c) & np.append(True, c[1:] > c[:-1]))
        if self.thresholds is not None or not inner.size:
            return gram
        above, below = self._above_and_below(eta, y, d)
        live = d > 0
        codes = np.searchsorted(c[inner], c[np.minimum(y[live].astype(int), c.size - 1)])
        codes = np.where(y[live] >= c.size, inner.size, codes)
        parts = _Thresholds(eta[live], codes, d[live], inner.size + 1)
        mixed = np.zeros((len(eta), inner.size + 2))
        rows = np.flatnonzero(live)
        mixed[rows, codes + 1] = (d * above * (1.0 - above))[live]
        mixed[rows, codes] += (d * below * (1.0 - below))[live]
        return deflated(gram, design, W, mixed[:, 1:-1], np.linalg.pinv(parts.dense_hessian(c[inner])))

    def slope_bound_from(self, start: np.ndarray, y: np.ndarray, d: np.ndarray) -> float:
        r""":math:`\sqrt{\min(1, L(\eta_0))}`: slopes are at most 1, and :math:`l'^2 \le l`.

        The second holds since :math:`l'' \le 1/2` and :math:`l \ge 0` for any thresholds.
        """
        return float(np.sqrt(min(float(d.sum()), self.value(start, y, d))))

    def trouble(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> str:
        return SEPARABLE if slopes_vanish(self, eta, y, d) else ""

    def null_predictor(self, y: np.ndarray, d: np.ndarray) -> float:
        """For given thresholds, within 30 of these; 0 for estimated ones, which move along."""
        from scipy.optimize import brentq

        if self.thresholds is None:
            return 0.0
        inner = self.thresholds[np.isfinite(self.thresholds)]

        def slope(constant):
            return float(self.gradient(np.full_like(y, constant), y, d).sum())

        low, high = float(inner.min(initial=0.0)) - 30.0, float(inner.max(initial=0.0)) + 30.0
        if slope(low) >= 0 or slope(high) <= 0:  # all samples in the first or the last class
            return low if slope(low) >= 0 else high
        return float(brentq(slope, low, high, xtol=1e-14))


def _share(u):
    """``1 / (1 + exp(-u))``."""
    from scipy.special import expit

    return expit(u)


def _neighbors(thresholds, codes):
    """The thresholds above and below each class."""
    ends = np.concatenate([[-np.inf], thresholds, [np.inf]])
    return ends[codes + 1], ends[codes]


def _losses(thresholds, codes, eta):
    """Minus the log-probabilities of the classes; inf for a class between equal thresholds."""
    up, down = _neighbors(thresholds, codes)
    with np.errstate(divide="ignore", invalid="ignore"):
        apart = np.where(np.isfinite(up) & np.isfinite(down), np.log(-np.expm1(down - up)), 0.0)
        none = (up == down) | (up == -np.inf) | (down == np.inf)
        losses = np.logaddexp(0.0, eta - up) + np.logaddexp(0.0, down - eta) - apart
    return np.where(none, np.inf, losses)


class _Thresholds:
    """The loss as a function of the thresholds for fixed predictors, its gradient and banded Hessian."""

    def __init__(self, eta, codes, d, n_classes):
        self.eta, self.codes, self.d, self.n = eta, codes, d, n_classes
        self.mass = np.bincount(codes, d, minlength=n_classes)

    def value(self, c):
        return weighted_sum(self.d, _losses(c, self.codes, self.eta))

    def derivatives(self, c):
        """The gradient, and the Hessian as its diagonal above the line beside it."""
        up, down = _neighbors(c, self.codes)
        above, below = _share(self.eta - up), _share(down - self.eta)
        of, n = self.codes, self.n

        def sums(at_upper, at_lower):  # thresholds k and k - 1 belong to class k
            return (np.bincount(of, at_upper, minlength=n)[:-1], np.bincount(of, at_lower, minlength=n)[1:])

        first, second = sums(-self.d * above, self.d * below)
        gradient = first + second
        first, second = sums(self.d * above * (1.0 - above), self.d * below * (1.0 - below))
        diagonal, beside = first + second, np.zeros(max(n - 2, 0))
        if n > 2:
            with np.errstate(over="ignore"):
                apart = np.expm1(np.diff(c))
                push, bend = self.mass[1:-1] / apart, self.mass[1:-1] / apart / -np.expm1(-np.diff(c))
            gradient[1:] -= push
            gradient[:-1] += push
            diagonal[1:] += bend
            diagonal[:-1] += bend
            beside = -bend
        return gradient, diagonal, beside

    def dense_hessian(self, c):
        _, diagonal, beside = self.derivatives(c)
        return np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)


def _best_thresholds(eta, codes, d, n_classes):
    """Newton's method with a ridge that grows until a step descends (Levenberg-Marquardt).

    From the quantiles of the predictors at the cumulative shares of the classes, plus their log-odds.
    """
    from scipy.linalg import solveh_banded

    if n_classes < 2:
        return np.empty(0)
    problem = _Thresholds(eta, codes, d, n_classes)
    share = np.cumsum(problem.mass)[:-1] / problem.mass.sum()
    order = np.argsort(eta, kind="stable")
    below = np.cumsum(d[order])
    place = np.minimum(np.searchsorted(below, share * below[-1]), len(order) - 1)
    c = eta[order][place] + np.log(share) - np.log1p(-share)
    value, ridge, weight = problem.value(c), 0.0, float(d.sum())
    for _ in range(_MOST_STEPS):
        gradient, diagonal, beside = problem.derivatives(c)
        if np.max(np.abs(gradient)) <= 1e-16 * weight:
            break
        while True:
            curved = diagonal + max(ridge, 1e-300)
            try:
                banded = np.stack([np.append(0.0, beside), curved])
                moved = c - (solveh_banded(banded, gradient) if c.size > 1 else gradient / curved)
            except np.linalg.LinAlgError:
                moved = np.full_like(c, np.nan)
            lower = (
                problem.value(moved) if np.all(np.diff(moved) > 0) and np.isfinite(moved).all() else np.inf
            )
            if lower <= value + 1e-15 * abs(value) or ridge > 1e6:
                break
            ridge = max(10.0 * ridge, 1e-14 * weight)
        if not lower <= value + 1e-15 * abs(value):
            break
        small = np.max(np.abs(moved - c)) <= 1e-15 * (1.0 + np.max(np.abs(c)))
        c, value, ridge = moved, lower, 0.1 * ridge if ridge > 1e-14 * weight else 0.0
        if small:
            break
    return c
