r"""The sorted l1 norm (SLOPE, OWL): the largest coefficient pays the largest weight.

.. math:: J_w(\theta) = \sum_j w_j |\theta|_{(j)} = \max_\pi \sum_j w_{\pi(j)} |\theta_j|, \qquad
          |\theta|_{(1)} \ge |\theta|_{(2)} \ge \dots, \quad w_1 \ge w_2 \ge \dots \ge 0.

It is the mirror image of the trimmed penalty: of all assignments of the weights, SLOPE takes the most
expensive and the trimmed penalty the cheapest. With p - h ones followed by zeros the two are the maximum and
the minimum over the same set S. A maximum of norms is convex, and it ties coefficients: J has kinks where
magnitudes are equal, so solutions have clusters of equal magnitudes.

References
----------
Bogdan, van den Berg, Sabatti, Su and Candès (2015). SLOPE: adaptive variable selection via convex
optimization. Annals of Applied Statistics 9(3), 1103-1140.

Zeng and Figueiredo (2014). The ordered weighted l1 norm: atomic formulation, projections, and algorithms.
arXiv:1409.4271.
"""

from __future__ import annotations

import numbers
from typing import Any, cast

import numpy as np

from .base import Penalty

KINDS = ("bh", "oscar")
SAME = 1e-10  # magnitudes whose relative difference is at most this count as equal in a residual


# -- the norm ----------------------------------------------------------------------------------------------


def sorted_l1_value(theta: np.ndarray, weights: np.ndarray) -> float:
    r""":math:`J_w(\theta) = \sum_j w_j |\theta|_{(j)}` for decreasing weights ``w >= 0``."""
    return float(np.sort(np.abs(theta))[::-1] @ weights)


def sorted_l1_prox(z: np.ndarray, weights: np.ndarray) -> np.ndarray:
    r""":math:`\arg\min_x \frac12 \|x - z\|^2 + J_w(x)` for decreasing weights ``w >= 0``, in O(p log p).

    The minimizer has the signs and the order of z. In sorted magnitudes u it is therefore

    .. math:: \arg\min_{x_1 \ge \dots \ge x_p \ge 0} \tfrac12 \|x - (u - w)\|^2,

    the positive part of the decreasing isotonic regression of ``u - w``, found by pooling adjacent violators
    (Bogdan et al. 2015). Pooled entries are equal to the last bit.
    """
    size = np.abs(z)
    order = np.argsort(-size, kind="stable")
    x = np.zeros(size.shape)
    x[order] = np.maximum(_falling_fit(size[order] - weights), 0.0)
    return np.sign(z) * x + 0.0  # + 0.0 turns -0.0 into 0.0


def sorted_l1_residual(
    theta: np.ndarray, gradient: np.ndarray, weights: np.ndarray, bounds: Any = None, same: float = SAME
) -> np.ndarray:
    r"""The element of :math:`g + \partial J_w(\theta)` nearest to 0: its length is the distance of 0.

    The subdifferential is a product over the clusters of equal magnitudes. Let v be the weights at the ranks
    of a cluster. Without the signs of theta, the factor of the cluster is

    - where ``theta != 0``: the permutahedron of v, the convex hull of all orders of v. The distance of a
      point from it is the length of the decreasing isotonic regression of the sorted point minus v (Lim and
      Wright 2016; Blondel et al. 2020);
    - where ``theta = 0``: the unit ball of the norm dual to :math:`J_v`. The remainder of the projection onto
      it is the prox of :math:`J_v` (Moreau).

    ``bounds`` are a lower and an upper bound per coordinate, each 0 or infinite. The normal cone of a bound 0
    that is reached adds all numbers of one sign, and only the part of the gradient with the other sign is a
    violation there. Consecutive magnitudes with a relative difference of at most ``same`` form one cluster:
    rounding, as from a change of units, would otherwise split clusters.

    References
    ----------
    Lim and Wright (2016). Efficient Bregman projections onto the permutahedron and related polytopes.
    AISTATS.

    Blondel, Teboul, Berthet and Djolonga (2020). Fast differentiable sorting and ranking. ICML.
    """
    size, sign = np.abs(theta), np.sign(theta)
    order = np.argsort(-size, kind="stable")
    count = int(np.count_nonzero(size))
    nonzero, zero = order[:count], order[count:]

    # The ranks at which clusters begin, and then the largest pull first within each cluster.
    ranked = size[nonzero]
    begins = np.ones(count, dtype=bool)
    begins[1:] = ranked[:-1] - ranked[1:] > same * ranked[:-1]
    pull = -sign[nonzero] * gradient[nonzero]
    steepest = np.lexsort((-pull, np.cumsum(begins)))
    nonzero, excess = nonzero[steepest], pull[steepest] - weights[:count]
    edges = np.append(np.flatnonzero(begins), count)
    for cluster in np.flatnonzero(np.diff(edges) > 1):
        ranks = slice(edges[cluster], edges[cluster + 1])
        excess[ranks] = _falling_fit(excess[ranks])

    residual = np.empty(size.shape)
    residual[nonzero] = -sign[nonzero] * excess
    violating = gradient[zero]
    if bounds is not None:
        violating = np.where(bounds[0][zero] == 0, np.minimum(violating, 0.0), violating)
        violating = np.where(bounds[1][zero] == 0, np.maximum(violating, 0.0), violating)
    residual[zero] = sorted_l1_prox(violating, weights[count:])
    return residual + 0.0


def _falling_fit(values):
    """The decreasing sequence nearest to ``values``, by pooling adjacent violators."""
    from scipy.optimize import isotonic_regression

    return values if values.size < 2 else isotonic_regression(values, increasing=False).x


# -- weights -----------------------------------------------------------------------------------------------


def slope_weights(p: int, kind: str = "bh", q: float = 0.1) -> np.ndarray:
    r"""Decreasing weights for p coefficients, the first of them 1.

    Before division by the first,

    - ``"bh"``: :math:`w_j = \Phi^{-1}(1 - q j / (2p))`, the critical values of Benjamini and Hochberg at the
      false discovery rate ``q`` in (0, 1) (Bogdan et al. 2015). For an orthogonal design with columns of norm
      one, noise with standard deviation sigma and sums instead of means, ``sigma w`` controls that rate.
    - ``"oscar"``: :math:`w_j = 1 + q\,(p - j)`, a straight line with slope ``q >= 0``; 0 is the l1 norm
      (Bondell and Reich 2008).

    Examples
    --------
    >>> from trimreg.penalties.slope import slope_weights
    >>> slope_weights(4).round(3)
    array([1.   , 0.874, 0.794, 0.734])
    >>> slope_weights(3, "oscar", q=0.5)
    array([1.  , 0.75, 0.5 ])

    References
    ----------
    Bondell and Reich (2008). Simultaneous regression shrinkage, variable selection, and supervised clustering
    of predictors with OSCAR. Biometrics 64, 115-123.
    """
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"weights must be one of {list(KINDS)} or an array; got {kind!r}")
    number = isinstance(q, numbers.Real) and not isinstance(q, (bool, np.bool_))
    rank = np.arange(1, p + 1)
    if kind == "bh":
        if not number or not 0 < q < 1:
            raise ValueError(f"q must be a false discovery rate in (0, 1) for weights 'bh'; got {q!r}")
        from scipy.special import ndtri

        weights = -ndtri(q * rank / (2 * p))  # the lower tail keeps the digits of small q
    else:
        if not number or not 0 <= q < np.inf:
            raise ValueError(f"q must be a slope >= 0 for weights 'oscar'; got {q!r}")
        weights = 1.0 + q * (p - rank)
    return weights / weights[:1]


def checked_weights(weights: Any, p: int) -> np.ndarray:
    """``weights`` as an array; a ValueError unless they are p decreasing finite numbers >= 0."""
    expected = f"weights must be one of {list(KINDS)}, or {p} decreasing numbers >= 0, one per feature"
    try:
        array = np.array(weights, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"{expected}; got {weights!r}") from None
    if array.shape != (p,):
        raise ValueError(f"{expected}; got shape {array.shape}")
    if not np.isfinite(array).all() or (array < 0).any():
        bad = int(np.flatnonzero(~(np.isfinite(array) & (array >= 0)))[0])
        raise ValueError(f"{expected}; got {array[bad]} at position {bad}")
    if (np.diff(array) > 0).any():
        bad = int(np.flatnonzero(np.diff(array) > 0)[0])
        raise ValueError(f"{expected}; got {array[bad + 1]} after {array[bad]}")
    return array


# -- the penalty -------------------------------------------------------------------------------------------


class SLOPE(Penalty):
    r"""The sorted l1 norm :math:`\alpha \sum_j w_j |\theta|_{(j)}`: the largest coefficient pays the most.

    Convex. It is a maximum of weighted l1 norms, so the norm that attains it at a point lies *below* it
    elsewhere: it has no majorizer of the kind that MM needs. Its solver is ``"prox"``.

    Parameters
    ----------
    weights : {"bh", "oscar"} or array-like of shape (n_features,)
        ``w``: a kind of :func:`slope_weights` (None is "bh"), whose first weight is 1, so that alpha is the
        weight of the largest coefficient; or decreasing numbers >= 0, used as given.
    q : float
        The parameter of :func:`slope_weights`: false discovery rate for "bh", slope for "oscar".
    penalty_factor, groups : None
        Not supported.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.penalties.slope import SLOPE
    >>> penalty = SLOPE(weights=[1.0, 0.5, 0.0]).bind(3)
    >>> theta = np.array([4.0, -2.0, 1.0])
    >>> penalty.value(theta, alpha=2.0), penalty.weights(theta, alpha=2.0)
    (10.0, array([1. , 0.5, 0. ]))
    >>> penalty.prox(theta, alpha=2.0, step=1.5)  # 4 - 3, and 2 - 1.5 pooled with 1
    array([ 1.  , -0.75,  0.75])
    """

    name = "slope"
    _sequence: np.ndarray
    majorizes = False
    # Other names, since in the base class ``weights`` is a method and ``q`` the norm of a group.
    _stored = {"weights": "_given", "q": "_parameter"}  # noqa: RUF012

    def __init__(
        self, weights: Any = "bh", q: float = 0.1, penalty_factor: Any = None, *, groups: Any = None
    ):
        self._given, self._parameter = weights, q
        super().__init__(penalty_factor, groups=groups)

    def __repr__(self):
        return f"{type(self).__name__}(weights={self._given!r}, q={self._parameter!r})"

    def bind(self, n_features: int, n_outputs: int = 1) -> SLOPE:
        for name in ("penalty_factor", "groups"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name} must be None for SLOPE, whose weights depend on ranks only")
        if n_outputs != 1:
            raise ValueError(f"penalty SLOPE needs a model with one output; got {n_outputs}")
        bound = cast(SLOPE, super().bind(n_features))
        given = "bh" if self._given is None else self._given
        if isinstance(given, str):
            bound._sequence = slope_weights(n_features, given, self._parameter)
        else:
            bound._sequence = checked_weights(given, n_features)
        return bound

    def rescaled(self, scale: np.ndarray) -> Penalty:
        """Refused: weights by rank cannot be rescaled. Only solvers that need a majorizer call it."""
        raise ValueError(
            "SLOPE has no weighted l1 norm as a majorizer, which this solver needs; use solver='prox'"
        )

    def stationarity(
        self, theta: np.ndarray, weights: np.ndarray, gradient: np.ndarray, alpha: float,
        bounds: Any = None,
    ) -> float:  # fmt: skip
        """The squared distance of 0 from the subdifferential of F, which depends on theta only."""
        residual = self.norm.residual(theta, gradient, np.zeros(self.norm.count), bounds)
        j = self._regular  # all but an intercept
        inside = None if bounds is None else (bounds[0][j], bounds[1][j])
        residual[j] = sorted_l1_residual(theta[j], gradient[j], alpha * self._sequence, inside)
        return float(residual @ residual)

    def _value(self, size, alpha, factor):
        return alpha * sorted_l1_value(size, self._sequence)

    def _weights(self, size, alpha, factor, tie):
        """The weights by rank: the maximizer over all orders, hence a subgradient."""
        keys = (-size,) if tie is None else (-tie, -size)
        weights = np.empty_like(size)
        weights[np.lexsort(keys)] = self._sequence
        return weights

    def _prox(self, size, alpha, step, factor):
        return sorted_l1_prox(size, step * alpha * self._sequence)

    def _bounded_prox(self, size, alpha, step, factor, limit):
        return self._prox(size, alpha, step, factor)  # entries whose limit is 0 are 0, the others have none
