"""Multinomial logistic regression."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from ..base import SEPARABLE, Loss, block_gram, require, require_finite, slopes_vanish

_SMALLEST_SHARE = 1e-12  # the share of a class without samples, so that its predictor is finite


class Multinomial(Loss):
    r"""Minus the log-likelihood of classes 0, ..., K - 1 with one predictor each,

    .. math:: L(\eta) = \sum_i d_i \Bigl[\log \sum_k e^{\eta_{ik}} - \eta_{i y_i}\Bigr], \qquad
              P(y = k) = \frac{e^{\eta_k}}{\sum_m e^{\eta_m}}.

    There is no reference class, as in scikit-learn: a constant added to all predictors of a sample changes
    nothing, and the Hessian ``diag(p) - p p'`` of a sample is singular.

    Parameters
    ----------
    n_classes : int, optional
        K. By default the largest class of the target plus one, and at least 2.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.losses import Multinomial
    >>> y, d = np.array([0.0, 2.0]), np.array([0.5, 0.5])
    >>> loss = Multinomial().bound(y, d)
    >>> loss.n_outputs, round(loss.value(np.zeros((2, 3)), y, d), 6)  # log 3
    (3, 1.098612)
    """

    name = "multinomial"
    curvature_bound = 0.5  # the norm of diag(p) - p p' is at most this
    multi_output = True
    redundant_outputs = 1
    may_diverge = True

    def __init__(self, n_classes: int | None = None):
        if n_classes is not None and not (n_classes == int(n_classes) and n_classes >= 2):
            raise ValueError(f"n_classes must be None or an integer >= 2; got {n_classes!r}")
        self.n_classes = n_classes
        if n_classes is not None:
            self.n_outputs = int(n_classes)

    def check_target(self, y: np.ndarray) -> None:
        require_finite(y)
        require(y, (y >= 0) & (y == np.floor(y)), "hold classes 0, 1, 2, ...")
        if self.n_classes is not None:
            require(y, y < self.n_classes, f"hold classes below n_classes = {self.n_classes}")

    def bound(self, y: np.ndarray, d: np.ndarray) -> Loss:
        other = copy.copy(self)
        other.n_outputs = self._count(y)
        return other

    def _count(self, y):
        return self.n_outputs if self.n_outputs > 1 else max(2, int(np.max(y, initial=0.0)) + 1)

    def inverse_link(self, eta: np.ndarray) -> np.ndarray:
        """Probabilities of the classes."""
        shares = np.exp(eta - eta.max(axis=1, keepdims=True))
        return shares / shares.sum(axis=1, keepdims=True)

    def pointwise(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray | None = None) -> np.ndarray:
        rows, top = np.arange(len(eta)), eta.argmax(axis=1)
        below = eta - eta[rows, top, None]
        others = np.exp(below)
        others[rows, top] = 0.0  # log1p of the rest is exact even if the top class is almost certain
        return np.log1p(others.sum(axis=1)) - below[rows, y.astype(int)]

    def gradient(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        difference, own = self.inverse_link(eta), (np.arange(len(eta)), y.astype(int))
        difference[own] = 0.0
        difference[own] = -difference.sum(axis=1)  # p - 1 without its rounding
        return d[:, None] * difference

    def curvature(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        """Diagonal of the Hessian, ``d_i p_ik (1 - p_ik)``."""
        p = self.inverse_link(eta)
        return d[:, None] * (p * _others(p))

    def gram(self, design: Any, W: np.ndarray, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        p = self.inverse_link(eta)
        others = _others(p)

        def hessian(k, m):
            return d * p[:, k] * (others[:, k] if k == m else -p[:, m])

        return block_gram(design, W, eta.shape[1], hessian)

    def slope_bound(self, y: np.ndarray, d: np.ndarray) -> float:
        r""":math:`\min(\sqrt2, \sqrt{\log K})`.

        The gradient of a sample is ``p - e_y``, whose norm is at most :math:`\sqrt2`. And since the Hessian
        is at most 1/2 and :math:`l \ge 0`, :math:`\|\nabla l\|^2 \le l`, of which the mean is at most
        :math:`L(0) = \log K`.
        """
        return float(np.sqrt(min(2.0, np.log(self._count(y)))))

    def trouble(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> str:
        return SEPARABLE if slopes_vanish(self, eta, y, d) else ""

    def null_predictor(self, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        share = np.bincount(y.astype(int), weights=d, minlength=self._count(y))
        predictor = np.log(np.maximum(share, _SMALLEST_SHARE))
        return predictor - predictor.mean()


def _others(p):
    """``1 - p`` as the sum of the other probabilities: its rounding would make the Hessian indefinite."""
    return p @ (1.0 - np.eye(p.shape[1]))
