r"""Gaussian model-X knockoffs of second order.

With :math:`\Sigma` the covariance of the rows of X and S a diagonal matrix with :math:`0 \preceq S \preceq
2\Sigma`, the knockoffs are

.. math:: \tilde X = X - (X - \mu) \Sigma^{-1} S + U L', \qquad L L' = 2S - S \Sigma^{-1} S,

with U standard normal. Then :math:`(X, \tilde X)` has the same mean and covariance if a column is exchanged
with its knockoff (Candès, Fan, Janson and Lv, Panning for gold, JRSS B 80, 2018, section 3.1). S minimizes
the variance of a feature given all other features and knockoffs, on average:

.. math:: f(s) = \sum_j \frac1{s_j} + \mathrm{tr}\,(2\Sigma - S)^{-1},

the trace of the inverse of the joint covariance up to a factor (Spector and Janson, Powerful knockoffs via
minimizing reconstructability, Annals of Statistics 50, 2022). At the minimum
:math:`s_j = 1 / \|(2\Sigma - S)^{-1} e_j\|`. We take half steps toward this in :math:`\log s`, which descend
if they are short enough.

It is written here because the sampler of hidimstat 0.4 multiplies by L in place of L': the covariance of its
knockoffs is not that of X unless the columns are uncorrelated (``tests/inference/test_sampler.py``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.covariance import ledoit_wolf

from ..estimators import validation as check

_STEPS, _HALVINGS, _SMALL = 100, 30, 1e-4


class GaussianKnockoffs:
    """Draws Gaussian knockoffs of a matrix; the module's docstring has the formulas.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
    covariance : array-like of shape (n_features, n_features), optional
        Of the rows of X, if it is known. By default it is estimated and shrunk as Ledoit and Wolf (2004) do,
        for columns of deviation one.

    Attributes
    ----------
    s : ndarray of shape (n_features,)
        The variances that a feature does not share with its knockoff: 0 makes them equal.
    covariance : ndarray of shape (n_features, n_features)

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.inference import GaussianKnockoffs
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((1000, 3))
    >>> X[:, 1] += X[:, 0]
    >>> knockoffs = GaussianKnockoffs(X)(X, rng)
    >>> bool(abs(np.cov(X.T) - np.cov(knockoffs.T)).max() < 0.2)
    True
    """

    def __init__(self, X: ArrayLike, covariance: ArrayLike | None = None):
        X = np.asarray(check.check_matrix(X), dtype=float)
        self._mean, scale = X.mean(axis=0), X.std(axis=0)
        scale[scale == 0] = 1.0
        if covariance is None:
            correlation = ledoit_wolf((X - self._mean) / scale)[0]
        else:
            given = np.asarray(check.check_real("covariance", covariance), dtype=float)
            if given.shape != (X.shape[1],) * 2 or np.linalg.eigvalsh(given)[0] <= 0:
                raise ValueError("covariance must be positive definite with one row per column of X")
            scale = np.sqrt(np.diag(given))
            correlation = given / np.outer(scale, scale)
        s = least_reconstructable(correlation)
        self._toward = np.linalg.solve(correlation, np.diag(s)) / scale[:, None] * scale
        noise = 2.0 * np.diag(s) - s[:, None] * np.linalg.solve(correlation, np.diag(s))
        values, vectors = np.linalg.eigh((noise + noise.T) / 2)  # its least eigenvalue may round to below 0
        self._root = vectors * np.sqrt(np.maximum(values, 0.0)) @ vectors.T * scale
        self.s, self.covariance = s * scale**2, correlation * np.outer(scale, scale)

    def __call__(self, X: Any, rng: np.random.Generator) -> np.ndarray:
        """Knockoffs of the rows of X."""
        return X - (X - self._mean) @ self._toward + rng.standard_normal(X.shape) @ self._root


def least_reconstructable(correlation: np.ndarray) -> np.ndarray:
    """The diagonal of S that minimizes f of the module's docstring."""
    least = np.linalg.eigvalsh(correlation)[0]
    if least <= 1e-10:
        raise ValueError("X must not have collinear columns for Gaussian knockoffs; drop some of them")
    logs = np.full(len(correlation), np.log(min(1.9 * least, 0.99)))
    value, inverse = _objective(correlation, logs)
    for _ in range(_STEPS):
        step = 0.5 * (-0.5 * np.log(np.sum(inverse**2, axis=0)) - logs)
        for _ in range(_HALVINGS):
            following, there = _objective(correlation, logs + step)
            if following < value:
                break
            step /= 2
        else:
            break
        gain, logs, value, inverse = value - following, logs + step, following, there
        if gain <= _SMALL * value:
            break
    return np.exp(logs)


def _objective(correlation, logs):
    """f, and the inverse of 2 Sigma - S; inf where that is not positive definite."""
    inner = 2.0 * correlation - np.diag(np.exp(logs))
    try:
        root = np.linalg.inv(np.linalg.cholesky(inner))
    except np.linalg.LinAlgError:
        return np.inf, inner
    return float(np.exp(-logs).sum() + np.sum(root**2)), root.T @ root
