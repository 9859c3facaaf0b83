"""Quantile regression with a smoothed check loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from .base import Loss, require_finite
from .classes.logistic import Logistic
from .quadratic import check_size

_SHARE = 0.05  # of the spread of y: the default smoothing


class Quantile(Loss):
    r"""The check loss of a quantile q, smoothed by a logistic kernel of scale s; with :math:`r = y - \eta`,

    .. math:: L(\eta) = \sum_i d_i \bigl[q\, r_i + s \log(1 + e^{-r_i / s})\bigr].

    It is the check loss :math:`q\, r_+ + (1 - q)\, r_-` (Koenker and Bassett 1978, Regression quantiles,
    Econometrica 46) averaged over logistic errors (Fernandes, Guerre and Horta 2021, Smoothing quantile
    regressions, Journal of Business and Economic Statistics 39), and exceeds it by at most ``s log 2``.

    Parameters
    ----------
    quantile : float
        q, between 0 and 1.
    smoothing : float, optional
        s, in the units of y. By default 0.05 times the spread of y: the distance of its quartiles over that
        of the normal distribution, 1.35.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.losses import Quantile
    >>> y, d = np.array([0.0, 1.0, 2.0, 3.0, 50.0]), np.full(5, 0.2)
    >>> Quantile(0.5, smoothing=1e-3).gradient(np.full(5, 1.5), y, d).round(3).tolist()
    [0.1, 0.1, -0.1, -0.1, -0.1]
    """

    name = "quantile"
    working_vectors = 14
    equivariant = True

    def __init__(self, quantile: float = 0.5, smoothing: float | None = None):
        if not 0 < quantile < 1:
            raise ValueError(f"quantile must be between 0 and 1, without these; got {quantile!r}")
        if smoothing is not None and not 0 < smoothing < np.inf:
            raise ValueError(f"smoothing must be None or a finite number > 0; got {smoothing!r}")
        self.quantile, self.smoothing = quantile, smoothing
        self._label = np.asarray(float(quantile))
        self.separable = smoothing is not None
        self.curvature_bound = np.inf if smoothing is None else 0.25 / smoothing
        self._known: tuple[np.ndarray, np.ndarray, float] | None = None

    def check_target(self, y: np.ndarray) -> None:
        require_finite(y)
        check_size(y)

    def smoothing_at(self, y: np.ndarray, d: np.ndarray) -> float:
        """The given smoothing, or the default one for this target."""
        if self.smoothing is not None:
            return self.smoothing
        known = self._known
        if known is None or known[0] is not y or known[1] is not d:
            known = self._known = (y, d, _SHARE * spread(y, d))
        return known[2]

    def settled(self, y: np.ndarray, d: np.ndarray) -> Loss:
        return Quantile(self.quantile, self.smoothing_at(y, d))

    def estimates(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> dict[str, Any]:
        return {"smoothing": self.smoothing_at(y, d)}

    # With z = (eta - y) / s the loss of a sample is s times the logistic loss of z for a label q.

    def pointwise(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray | None = None) -> np.ndarray:
        s = self.smoothing_at(y, np.full(len(y), 1.0 / len(y)) if d is None else d)
        return s * Logistic().pointwise((eta - y) / s, self._label)

    def value(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> float:
        return float(d @ self.pointwise(eta, y, d))

    def gradient(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        return Logistic().gradient((eta - y) / self.smoothing_at(y, d), self._label, d)

    def curvature(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        s = self.smoothing_at(y, d)
        return Logistic().curvature((eta - y) / s, self._label, d) / s

    def slope_bound(self, y: np.ndarray, d: np.ndarray) -> float:
        r""":math:`\max(q, 1 - q)`, or :math:`\sqrt{(L(0) - \inf L) / 2s}` if less, as ``l'' <= 1/(4s)``."""
        s, q = self.smoothing_at(y, d), self.quantile
        least = -s * (q * np.log(q) + (1.0 - q) * np.log1p(-q)) * float(d.sum())
        excess = max(self.value(np.zeros_like(y), y, d) - least, 0.0)
        return float(min(max(q, 1.0 - q), np.sqrt(excess / (2.0 * s))))

    def conjugate(self, g: np.ndarray, y: np.ndarray, d: np.ndarray) -> float:
        """That of the logistic loss for labels q, times s, plus ``g'y``; for a given smoothing."""
        if self.smoothing is None:
            raise NotImplementedError
        label = np.full_like(y, self.quantile)
        return float(g[d > 0] @ y[d > 0]) + self.smoothing * Logistic().conjugate(g, label, d)

    def null_predictor(self, y: np.ndarray, d: np.ndarray) -> float:
        """Between the extremes of y, both moved by ``s log(q / (1 - q))``."""
        from scipy.optimize import brentq

        moved = self.smoothing_at(y, d) * (np.log(self.quantile) - np.log1p(-self.quantile))
        low, high = float(y[d > 0].min()) + moved, float(y[d > 0].max()) + moved

        def slope(constant):
            return float(self.gradient(np.full_like(y, constant), y, d).sum())

        if slope(low) >= 0 or slope(high) <= 0:
            return low if slope(low) >= 0 else high
        return float(brentq(slope, low, high, xtol=1e-14 * (high - low) + 1e-300, rtol=1e-15))

    def deviance(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray, n: float) -> float:
        """``2 n log L``: asymmetric Laplace errors with their maximum likelihood scale."""
        return 2.0 * n * float(np.log(self.value(eta, y, d)))


def spread(y: np.ndarray, d: np.ndarray) -> float:
    """The distance between the quartiles of y over 1.35, the deviation if y is normal; never 0.

    A sample of weight two counts as two samples.
    """
    order = np.argsort(y)
    y, below = y[order], np.cumsum(d[order])
    low, high, least, most = y[np.searchsorted(below, np.array([0.25, 0.75, 1e-12, 1 - 1e-12]) * below[-1])]
    return float((high - low) / 1.35 or (most - least) / 1.35 or abs(high) or 1.0)
