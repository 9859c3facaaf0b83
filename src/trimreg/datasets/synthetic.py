r"""Sparse linear models :math:`y = X\beta + \varepsilon` with Gaussian rows of X and Gaussian noise.

The designs differ in the covariance of a row. Each is drawn in O(np) from its structure, without a covariance
matrix. All draws come from one NumPy generator in a fixed order, so a seed fixes the data.
"""

from __future__ import annotations

import numbers
from typing import Any, NamedTuple

import numpy as np


class SparseRegression(NamedTuple):
    """A draw of a sparse linear model.

    Attributes
    ----------
    X : ndarray of shape (n_samples, n_features)
        In Fortran order, the order in which solvers read columns.
    y : ndarray of shape (n_samples,)
    coef : ndarray of shape (n_features,)
        The true coefficients.
    noise : float
        Standard deviation of the noise.
    """

    X: np.ndarray
    y: np.ndarray
    coef: np.ndarray
    noise: float


def make_ar1(
    n_samples: int, n_features: int, n_nonzero: int, *, rho: float, snr: float, coefficient: float = 1.0,
    random_state: Any = None,
) -> SparseRegression:  # fmt: skip
    r"""Columns that form a stationary AR(1) sequence, :math:`\mathrm{cov}(x_i, x_j) = \rho^{|i - j|}`.

    The true coefficients are ``+coefficient`` or ``-coefficient`` with random signs and positions. The noise
    variance is ``var(X coef) / snr``, with the variance over the samples drawn.

    Parameters
    ----------
    n_samples, n_features, n_nonzero : int
    rho : float in [-1, 1]
        Correlation of neighboring columns.
    snr : float
        Signal-to-noise ratio; inf means no noise.
    coefficient : float
        Absolute value of the nonzero coefficients.
    random_state : int, numpy.random.Generator or None
        Anything that ``numpy.random.default_rng`` takes.

    Returns
    -------
    SparseRegression

    Examples
    --------
    >>> from trimreg.datasets import make_ar1
    >>> X, y, coef, noise = make_ar1(50, 20, 3, rho=0.5, snr=5.0, random_state=0)
    >>> X.shape, int((coef != 0).sum())
    ((50, 20), 3)
    """
    n, p, k = check_sizes(n_samples, n_features, n_nonzero)
    rho = check_number("rho", rho, -1.0, 1.0)
    coefficient = check_number("coefficient", coefficient)
    if not isinstance(snr, numbers.Real) or not snr > 0:
        raise ValueError(f"snr must be a number above 0; got {snr!r}")
    rng = np.random.default_rng(random_state)
    X = _normal(rng, n, p)
    innovation = np.sqrt(1.0 - rho**2)
    for j in range(1, p):
        X[:, j] = rho * X[:, j - 1] + innovation * X[:, j]
    coef = np.zeros(p)
    coef[rng.choice(p, size=k, replace=False)] = coefficient * rng.choice([-1.0, 1.0], size=k)
    signal = X @ coef
    noise = float(np.sqrt(np.var(signal) / snr))
    return SparseRegression(X, signal + noise * rng.standard_normal(n), coef, noise)


def make_gaussian(
    n_samples: int, n_features: int, n_nonzero: int, *, coefficient_scale: float = 5.0, noise: float = 1.0,
    random_state: Any = None,
) -> SparseRegression:  # fmt: skip
    """A design of independent standard normal entries, with normal coefficients at random positions.

    Parameters
    ----------
    n_samples, n_features, n_nonzero : int
    coefficient_scale : float
        Standard deviation of the nonzero coefficients, whose mean is 0.
    noise : float
        Standard deviation of the noise.
    random_state : int, numpy.random.Generator or None
        Anything that ``numpy.random.default_rng`` takes.

    Returns
    -------
    SparseRegression

    Examples
    --------
    >>> from trimreg.datasets import make_gaussian
    >>> data = make_gaussian(50, 20, 3, noise=0.0, random_state=0)
    >>> bool((data.y == data.X @ data.coef).all())
    True
    """
    n, p, k = check_sizes(n_samples, n_features, n_nonzero)
    rng = np.random.default_rng(random_state)
    X = _normal(rng, n, p)
    return _respond(rng, X, rng.choice(p, size=k, replace=False), coefficient_scale, noise)


def make_paper_design(
    n_samples: int, n_features: int, n_nonzero: int, *, design: str = "M2", theta: float | None = None,
    support: str = "random", coefficient_scale: float = 5.0, noise: float = 1.0, random_state: Any = None,
) -> SparseRegression:  # fmt: skip
    r"""The simulations of the paper: rows from :math:`N(0, M_1(\theta))` or :math:`N(0, M_2(\theta))`.

    :func:`covariance_m2`, with equal correlations, satisfies the incoherence condition of the lasso for every
    support. :func:`covariance_m1` violates it if the support is the first k features: feature k + 1, which is
    not in the model, has correlation theta with each of them, and the condition requires ``k theta < 1``.

    Parameters
    ----------
    n_samples, n_features, n_nonzero : int
        The paper uses (p, k) = (128, 8), (256, 16), (512, 32).
    design : {"M1", "M2"}
    theta : float, optional
        By default ``2 / k`` for M1, which violates the condition by a factor of 2, and 0.7 for M2, as in the
        paper's experiments.
    support : {"random", "first"}
        The positions of the nonzeros. The paper states k random positions in both experiments. But at its
        sizes M1 violates incoherence for almost none of these, since feature k + 1 is then correlated with at
        most one or two features of the model. "first" is the case that the condition is about.
    coefficient_scale, noise, random_state
        As in :func:`make_gaussian`.

    Returns
    -------
    SparseRegression

    References
    ----------
    Yun, Zheng, Yang, Lozano and Aravkin, M-estimation with the trimmed l1 penalty, section 4; the matrices
    are those of Loh and Wainwright, Support recovery without incoherence (2017).

    Examples
    --------
    >>> from trimreg.datasets import make_paper_design
    >>> X, y, coef, noise = make_paper_design(160, 256, 16, design="M1", support="first", random_state=0)
    >>> bool((coef[:16] != 0).all()), X.shape
    (True, (160, 256))
    """
    n, p, k = check_sizes(n_samples, n_features, n_nonzero)
    if support not in ("random", "first"):
        raise ValueError(f"support must be 'random' or 'first'; got {support!r}")
    if design not in ("M1", "M2"):
        raise ValueError(f"design must be 'M1' or 'M2'; got {design!r}")
    rng = np.random.default_rng(random_state)
    X = _normal(rng, n, p)
    if design == "M1":
        theta = _theta_m1(p, k, 2.0 / max(k, 1) if theta is None else theta)
        # x_{k+1} is its prediction from the first k plus a remainder with variance 1 - k theta^2.
        X[:, k] = theta * X[:, :k].sum(axis=1) + np.sqrt(max(1.0 - k * theta**2, 0.0)) * X[:, k]
    else:
        theta = check_number("theta", 0.7 if theta is None else theta, 0.0, 1.0)
        # One factor shared by all features: correlation theta between any two.
        X *= np.sqrt(1.0 - theta)
        X += np.sqrt(theta) * rng.standard_normal(n)[:, None]
    where = np.arange(k) if support == "first" else rng.choice(p, size=k, replace=False)
    return _respond(rng, X, where, coefficient_scale, noise)


def covariance_m1(n_features: int, n_nonzero: int, theta: float) -> np.ndarray:
    r""":math:`M_1(\theta)`: 1 on the diagonal, theta in the first k places of row and column k + 1, else 0.

    Positive semidefinite for :math:`\theta^2 k \le 1`.

    Examples
    --------
    >>> from trimreg.datasets import covariance_m1
    >>> covariance_m1(4, 2, 0.5)
    array([[1. , 0. , 0.5, 0. ],
           [0. , 1. , 0.5, 0. ],
           [0.5, 0.5, 1. , 0. ],
           [0. , 0. , 0. , 1. ]])
    """
    _, p, k = check_sizes(1, n_features, n_nonzero)
    theta = _theta_m1(p, k, theta)
    matrix = np.eye(p)
    matrix[:k, k] = matrix[k, :k] = theta
    return matrix


def covariance_m2(n_features: int, theta: float) -> np.ndarray:
    r""":math:`M_2(\theta) = \theta 1 1' + (1 - \theta) I`: any two features have correlation theta.

    Examples
    --------
    >>> from trimreg.datasets import covariance_m2
    >>> covariance_m2(3, 0.7)
    array([[1. , 0.7, 0.7],
           [0.7, 1. , 0.7],
           [0.7, 0.7, 1. ]])
    """
    _, p, _ = check_sizes(1, n_features, 0)
    theta = check_number("theta", theta, 0.0, 1.0)
    matrix = np.full((p, p), theta)
    np.fill_diagonal(matrix, 1.0)
    return matrix


def _theta_m1(p, k, theta):
    if not 1 <= k < p:
        raise ValueError(f"n_nonzero must be from 1 to n_features - 1 = {p - 1} for M1; got {k}")
    bound = 1.0 / np.sqrt(k)
    theta = check_number("theta", theta)
    # 2/k at k = 4 is the bound itself, up to rounding.
    if abs(theta) > bound * (1 + 1e-12):
        raise ValueError(
            f"theta must be at most 1/sqrt(n_nonzero) = {bound:.3g} in absolute value for M1; got {theta:g}"
        )
    return theta


def _normal(rng, n, p):
    """Standard normal entries in Fortran order, drawn column by column."""
    return rng.standard_normal((p, n)).T


def _respond(rng, X, where, coefficient_scale, noise):
    """The model with normal coefficients at ``where`` and a noisy response."""
    coefficient_scale = check_number("coefficient_scale", coefficient_scale, 0.0)
    noise = check_number("noise", noise, 0.0)
    coef = np.zeros(X.shape[1])
    coef[where] = coefficient_scale * rng.standard_normal(len(where))
    return SparseRegression(X, X @ coef + noise * rng.standard_normal(X.shape[0]), coef, noise)


def check_sizes(n_samples: int, n_features: int, n_nonzero: int) -> tuple[int, int, int]:
    """The sizes as integers, or a ``ValueError``."""
    named = {"n_samples": (n_samples, 1), "n_features": (n_features, 1), "n_nonzero": (n_nonzero, 0)}
    for name, (value, least) in named.items():
        whole = isinstance(value, numbers.Integral) and not isinstance(value, (bool, np.bool_))
        if not whole or value < least:
            raise ValueError(f"{name} must be an integer of at least {least}; got {value!r}")
    if n_nonzero > n_features:
        raise ValueError(f"n_nonzero must be at most n_features = {n_features}; got {n_nonzero}")
    return int(n_samples), int(n_features), int(n_nonzero)


def check_number(name: str, value: Any, low: float = -np.inf, high: float = np.inf) -> float:
    """The value as a finite float between ``low`` and ``high``, or a ``ValueError``."""
    real = isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))
    if not real or not np.isfinite(value) or not low <= value <= high:
        raise ValueError(f"{name} must be a finite number between {low:g} and {high:g}; got {value!r}")
    return float(value)
