"""Negative binomial regression: counts that vary more than Poisson counts of the same mean."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from ..base import Loss, Nuisance, require, require_finite
from ..quadratic import check_size
from .poisson import Poisson, bounded_exp, exp, log_link_slope_bound

_SUMMED = 1024  # counts up to this are sums of logarithms; beyond, of integrals
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(10)
_LARGEST = np.log(1e12)  # of the dispersion, if all counts are 0
_SMALL = 1e-3  # below this, series of differences that cancel


class NegativeBinomial(Nuisance, Loss):
    r"""Minus the negative binomial log-likelihood with a log link and variance :math:`\mu + a \mu^2`,

    .. math:: L(\eta) = \sum_i d_i \Bigl[(y_i + \tfrac1a) \log(1 + a \mu_i) - y_i \eta_i
              - \sum_{k < y_i} \log(1 + a k)\Bigr], \qquad \mu = E\,y = e^\eta,

    for counts y. The dispersion a is given, or at its maximum likelihood for these predictors (the model NB2
    of Cameron and Trivedi, Regression Analysis of Count Data, 2013, section 3.3). For a = 0 this is the
    Poisson loss, and it is the best a if the counts vary no more than Poisson counts:
    :math:`\sum d_i (y_i - \mu_i)^2 \le \sum d_i y_i`.

    With a given dispersion L is convex. With an estimated one it need not be far from a minimum; a fit is
    stationary in the coefficients and the dispersion together.

    Parameters
    ----------
    dispersion : float, optional
        a; estimated by default.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.losses import NegativeBinomial
    >>> y, d = np.array([0.0, 1.0, 9.0, 2.0]), np.full(4, 0.25)
    >>> NegativeBinomial(dispersion=0.5).gradient(np.log([3.0, 3.0, 3.0, 3.0]), y, d).round(2).tolist()
    [0.3, 0.2, -0.6, 0.1]
    >>> round(NegativeBinomial().dispersion_at(np.log([3.0, 3.0, 3.0, 3.0]), y, d), 3)
    1.233
    """

    name = "negative_binomial"
    working_vectors = 24
    positive_target = True
    log_link = True

    def __init__(self, dispersion: float | None = None):
        if dispersion is not None and not 0 <= dispersion < np.inf:
            raise ValueError(f"dispersion must be None or a finite number >= 0; got {dispersion!r}")
        self.dispersion = dispersion
        self.separable = self.convex = dispersion is not None
        self.has_nuisance = dispersion is None
        self._rising: tuple[np.ndarray, _Rising] | None = None

    def check_target(self, y: np.ndarray) -> None:
        require_finite(y)
        require(y, (y >= 0) & (y == np.floor(y)), "hold counts 0, 1, 2, ...")
        check_size(y)

    def inverse_link(self, eta: np.ndarray) -> np.ndarray:
        return exp(eta)

    def bound(self, y: np.ndarray, d: np.ndarray) -> Loss:
        other = copy.copy(self)
        other._rising = (y, _Rising(y))
        return other

    def _rising_of(self, y):
        known = self._rising
        return _Rising(y) if known is None or known[0] is not y else known[1]

    def held(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> Loss:
        return type(self)(self.dispersion_at(eta, y, d)).bound(y, d)

    def estimates(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> dict[str, Any]:
        return {"dispersion": self.dispersion_at(eta, y, d)}

    def dispersion_at(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> float:
        """The given dispersion, or that of the largest likelihood at these predictors."""
        return self.dispersion if self.dispersion is not None else self._best(eta, y, d)

    def _minimizer(self, eta, y, d):
        """The first root of the slope above 0, by bisection and interpolation in log a, or 0."""
        from scipy.optimize import brentq

        rising = self._rising_of(y)
        mean = bounded_exp(eta)
        live = d > 0
        live_y, live_mean, live_d = y[live], mean[live], d[live]

        def slope(log_a):
            a = np.exp(log_a)
            with np.errstate(over="ignore", invalid="ignore"):
                terms = live_y * live_mean / (1.0 + a * live_mean) - _curved(a, live_mean)
            return float(live_d @ (terms - rising.slope(a)[live]))

        if not slope(-np.inf) < 0:
            return 0.0
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            moment = live_d @ ((live_y - live_mean) ** 2 - live_mean) / (live_d @ live_mean**2)
        start = float(np.log(np.clip(moment, 1e-6, 1e6))) if moment == moment else 0.0
        low = high = start
        step = 0.5
        if slope(start) < 0:
            while slope(high) < 0:
                low, high, step = high, high + step, 2.0 * step
                if low > _LARGEST:
                    return float(np.exp(_LARGEST))
        else:
            while not slope(low) < 0:
                low, high, step = low - step, low, 2.0 * step
                if high < -60.0:
                    return 0.0
        return float(np.exp(brentq(slope, low, high, xtol=1e-13, rtol=1e-15)))

    def pointwise(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray | None = None) -> np.ndarray:
        d = np.full(len(y), 1.0 / len(y)) if d is None else d
        a = self.dispersion_at(eta, y, d)
        if a == 0:
            return Poisson().pointwise(eta, y)
        log_a = np.log(a)
        return (
            np.logaddexp(0.0, eta + log_a) / a + y * np.logaddexp(-eta, log_a) - self._rising_of(y).value(a)
        )

    def gradient(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        """The derivative at the best dispersion as if it were fixed, by the envelope theorem."""
        mean, a = bounded_exp(eta), self.dispersion_at(eta, y, d)
        return d * ((mean - y) / (1.0 + a * mean))

    def curvature(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        """``d_i (1 + a y) mu / (1 + a mu)^2``; for an estimated dispersion an upper bound.

        It is the curvature for a fixed dispersion, which is close: the mean and the dispersion are orthogonal
        parameters. The Hessian of L itself need not be positive definite, so that :meth:`gram` is the bound.
        """
        mean, a = bounded_exp(eta), self.dispersion_at(eta, y, d)
        whole = 1.0 + a * mean
        return d * ((1.0 + a * y) * (mean / whole) / whole)

    def infimum(self, y: np.ndarray) -> np.ndarray:
        """At ``mu = y``; for an estimated dispersion that of a = 0, the smallest."""
        if not self.dispersion:
            return Poisson().infimum(y)
        counts = np.where(y > 0, y, 1.0)
        return np.where(y > 0, self.pointwise(np.log(counts), counts), 0.0)

    def slope_bound_from(self, start: np.ndarray, y: np.ndarray, d: np.ndarray) -> float:
        r"""That of :meth:`Poisson.slope_bound_from`, with this loss.

        As a function of :math:`g = l'`, :math:`l'' = (g + y)(1 - a g) / (1 + a y)` is at most g + y, which it
        is for Poisson counts. So :math:`l - \inf l = \int g / l''\,dg` is at least as large for the same g.
        For a given dispersion :math:`|g| \le \max(y, 1/a)` too.
        """
        excess = self.value(start, y, d) - float(d @ self.infimum(y))
        bound = log_link_slope_bound(excess, y, d)
        if not self.dispersion:
            return bound
        return min(bound, float(np.sqrt(d @ np.maximum(y, 1.0 / self.dispersion) ** 2)))

    def null_predictor(self, y: np.ndarray, d: np.ndarray) -> float:
        return Poisson().null_predictor(y, d)


def _curved(a, mean):
    r""":math:`[\log(1 + a\mu) - a\mu / (1 + a\mu)] / a^2`."""
    x = a * mean
    small = x < _SMALL
    near, far = np.where(small, x, 0.0), np.where(small, 1.0, x)
    h = (np.log1p(far) - far / (1.0 + far)) / far**2
    h = np.where(small, 0.5 - near * (2 / 3 - near * (3 / 4 - near * (4 / 5 - near * 5 / 6))), h)
    return mean * (mean * h)


class _Rising:
    r""":math:`\sum_{k < y} \log(1 + a k)` and its derivative in a, for each count y.

    Up to 1024 terms are added. The others are an integral up to y - 1/2 by Gauss's rule between neighboring
    counts and powers of two, with the first term of the Euler-Maclaurin formula; the error is below 1e-11.
    """

    def __init__(self, y: np.ndarray):
        levels, self.code = np.unique(y, return_inverse=True)
        first = np.arange(int(min(levels[-1], _SUMMED)), dtype=float)
        cuts = levels[levels > _SUMMED]
        if cuts.size:
            cuts = np.union1d(cuts, 2.0 ** np.arange(np.log2(_SUMMED), np.log2(cuts[-1])))
        ends = cuts - 0.5
        half = np.diff(ends) / 2.0
        points = (ends[:-1] + half)[:, None] + half[:, None] * _POINTS
        self.nodes = np.concatenate([first, points.ravel()])
        self.weights = np.concatenate([np.ones(first.size), (half[:, None] * _WEIGHTS).ravel()])
        self.large = levels > _SUMMED
        self.ends = levels[self.large]
        nodes_below = first.size + _POINTS.size * np.searchsorted(cuts, levels)
        self.count = np.where(self.large, nodes_below, levels).astype(int)

    def value(self, a: float) -> np.ndarray:
        return self._sums(lambda t: np.log1p(a * t))

    def slope(self, a: float) -> np.ndarray:
        return self._sums(lambda t: t / (1.0 + a * t))

    def _sums(self, term):
        total = np.append(0.0, np.cumsum(self.weights * term(self.nodes)))[self.count]
        first = term(_SUMMED) - term(_SUMMED - 1.0)
        total[self.large] -= (term(self.ends) - term(self.ends - 1.0) - first) / 24.0
        return total[self.code]
