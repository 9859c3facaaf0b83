"""The paper's measure of stationarity, recomputed from the data."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..losses import Loss
from ..penalties import Penalty
from .candidate import read_candidate


def stationarity(
    X: Any, y: ArrayLike, coef: ArrayLike, *, penalty: Penalty | str, alpha: float,
    weights: ArrayLike | None = None, intercept: ArrayLike = 0.0, loss: Loss | str = "quadratic",
    sample_weight: ArrayLike | None = None, fit_intercept: bool = False, standardize: bool = False,
    positive: bool = False, lower: ArrayLike | None = None, upper: ArrayLike | None = None,
    l2: float = 0.0,
) -> float:  # fmt: skip
    r"""The paper's :math:`T(\theta, w)`: the squared distance of 0 from the subdifferential of F.

    With ``g`` the gradient in theta of the loss and the ridge term, and ``r_j = f_j |theta_j|``,

    .. math:: T(\theta, w) = \sum_j \mathrm{dist}^2\bigl(-g_j,\ \alpha f_j w_j\, \partial|\theta_j|\bigr)
              + \min_{\mu,\, s \in N(w)} \|\alpha r + \mu 1 + s\|^2
              + \Bigl(\frac{\partial L}{\partial b}\Bigr)^2,

    where ``N(w)`` is the normal cone of the box ``0 <= w <= 1``. The last term is present if an intercept b
    is fitted. A penalty whose weights are not variables (l1, MCP, SCAD) has no second term. The derivatives
    are taken in the coordinates of the penalty, for the columns ``(x_j - m_j) / s_j``: centered if an
    intercept is fitted, and divided by their deviation if ``standardize``. With groups or several outputs,
    ``theta_j`` and ``g_j`` are vectors and :math:`|\theta_j|` is a norm.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, p)
    y : array-like of shape (n,), or (n, columns) for losses with a matrix target
    coef : array-like of shape (p,), or (K, p) for losses with K outputs
        Coefficients in the units of X. The coefficient of a column that is zero, or constant if an intercept
        is fitted, counts as 0.
    penalty : Penalty or str
        For example ``TrimmedL1(h)``.
    alpha : float
        Strength of the penalty, for a loss that is a mean over samples.
    weights : array-like of shape (p,), optional
        ``w``, one per feature (or group). By default the optimal weights at theta.
    intercept : float, or array-like of shape (K,)
    loss : str or loss object
    sample_weight : array-like of shape (n,), optional
    fit_intercept, standardize : bool
        Whether the intercept is free, and whether the penalty acts on standardized coefficients.
    positive : bool
        Whether ``theta >= 0`` is required: ``lower=0``.
    lower, upper : float or array-like of shape (p,), optional
        Bounds of the coefficients in the units of X. At a bound that is reached, the gradient may point
        outward: its normal cone is part of the subdifferential.
    l2 : float
        Of the ridge term :math:`\frac{l_2}{2} \sum_j f_j \theta_j^2` in F.

    Returns
    -------
    float
        Zero at a stationary pair. It is inf outside the domain of F (a coefficient beyond a bound, or a
        nonzero one of an excluded feature), where the subdifferential is empty.

    References
    ----------
    Yun, Zheng, Yang, Lozano and Aravkin, M-estimation with the trimmed l1 penalty: the definition of
    stationarity that the convergence theorem of Algorithm 1 bounds. Closed form: see
    :func:`trimreg.penalties.distance_to_optimal_weights`.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.diagnostics import stationarity
    >>> from trimreg.penalties import TrimmedL1
    >>> X = 2.0 * np.eye(4)
    >>> y = np.array([4.0, 1.0, 0.0, 0.0])
    >>> stationarity(X, y, [2.0, 0.0, 0.0, 0.0], penalty=TrimmedL1(h=1), alpha=0.75)
    0.0
    >>> stationarity(X, y, [0.0, 0.5, 0.0, 0.0], penalty=TrimmedL1(h=1), alpha=0.75)  # |g| = 2 there
    1.5625
    """
    point = read_candidate(
        X, y, coef, penalty=penalty, alpha=alpha, l2=l2, intercept=intercept, positive=positive, lower=lower,
        upper=upper, loss=loss, sample_weight=sample_weight, fit_intercept=fit_intercept,
        standardize=standardize,
    )  # fmt: skip
    if point.outside.any():
        return np.inf
    if weights is None:
        weights = point.penalty.weights(point.theta, point.alpha, point.gradient)
    else:
        weights = point.penalty.checked_weights(weights)
    distance = point.penalty.stationarity(point.theta, weights, point.gradient, point.alpha, point.bounds)
    return float(distance + np.sum(point.intercept_derivative**2))
