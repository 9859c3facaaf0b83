"""Fits without a penalty to a few features, with the errors of their coefficients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t as student

from ..designs import as_design
from ..estimators import validation as check
from ..estimators.models.base import LinearEstimator
from ..estimators.summary import Summary
from ..losses import Loss
from .base import (
    COVARIANCES,
    LIKELIHOODS,
    check_clusters,
    check_columns,
    check_samples,
    check_share,
    dense,
    names_in,
    tail_headers,
)

GIVEN_SELECTION = "given the selection; too small if the selection used the same data"
_STEPS, _HALVINGS, _ACCURACY, _ROUNDING = 100, 40, 1e-20, 1e-13
_SINGULAR = 1e-10  # of the Hessian for columns of deviation one
_MOST_LEVERAGE = 1.0 - 1e-8
_MOVE = 1e-5  # of the predictor, for central differences


@dataclass(frozen=True)
class Refit:
    """Coefficients of a fit without a penalty, and their errors.

    Attributes
    ----------
    features : ndarray of int of shape (k,)
    coef : ndarray of shape (k,)
    intercept : float
    covariance : ndarray of shape (k, k)
        Of ``coef``. Its diagonal is infinite where the samples determine no coefficients: fewer samples than
        coefficients, dependent columns, classes that are separated.
    dof : float
        Degrees of freedom of Student's t distribution; ``inf`` for the normal one.
    names : tuple of str
        Of the features.
    label : str
        What the errors mean.
    """

    features: np.ndarray
    coef: np.ndarray
    intercept: float
    covariance: np.ndarray
    dof: float
    names: tuple
    label: str = "of features fixed in advance"

    @property
    def standard_errors(self) -> np.ndarray:
        return np.sqrt(np.diag(self.covariance))

    @property
    def pvalues(self) -> np.ndarray:
        """Of Wald's tests that a coefficient is 0, two-sided; 1 where nothing is determined."""
        return wald_pvalues(self.coef, self.standard_errors, self.dof)

    def interval(self, confidence: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Wald's intervals of the coefficients: ``low, high``."""
        half = student.ppf(0.5 + check_share("confidence", confidence) / 2, self.dof) * self.standard_errors
        return self.coef - half, self.coef + half

    def summary(self, confidence: float = 0.95, max_rows: int | None = 50) -> Summary:
        """A table with one row per feature, which says what the errors mean."""
        low, high = self.interval(confidence)
        columns = {"coef": self.coef, "std error": self.standard_errors, "p": self.pvalues}
        columns |= dict(zip(tail_headers(confidence), (low, high), strict=True))
        facts = {"errors": self.label, "intercept": self.intercept}
        return Summary("Refit", facts, self.names, columns, max_rows=max_rows)


def refit(
    X: ArrayLike, y: ArrayLike, loss: Loss | str = "quadratic", features: ArrayLike | None = None, *,
    covariance: str = "robust", clusters: ArrayLike | None = None,
) -> Refit:  # fmt: skip
    r"""Fit some features without a penalty, with standard errors.

    With :math:`H` the Hessian of the mean loss, :math:`u_i` the gradient of the part of sample i (its score)
    and :math:`h_i` the leverage of sample i, the covariance of the coefficients and the intercept is

    .. math:: \tfrac1n \hat\phi H^{-1} \ \text{(model)}, \qquad
              H^{-1} \Bigl[\sum_i \frac{u_i u_i'}{(1 - h_i)^2}\Bigr] H^{-1} \ \text{(robust, HC3)}, \qquad
              \tfrac{G (n-1)}{(G-1) (n-k)}\, H^{-1} \Bigl[\sum_g u_g u_g'\Bigr] H^{-1} \ \text{(clusters)},

    with :math:`u_g` the sum over cluster g of G. The dispersion :math:`\hat\phi` is
    Pearson's statistic divided by n - k for least squares and Gamma, else 1.
    In Cox's model, the scores are those of Lin and Wei, and the leverages have the share of a sample in all
    risk sets in place of its weight.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
    y : array-like
        As the estimator with that loss takes it: numbers, two classes, or times and events.
    loss : {"quadratic", "logistic", "poisson", "gamma", "cox"} or such a loss object
    features : array-like of int, optional
        The columns of X to fit; all by default.
    covariance : {"robust", "model"}, default="robust"
    clusters : array-like of shape (n_samples,), optional
        Labels of groups of dependent samples. Then the covariance is the clustered one.

    Returns
    -------
    Refit

    References
    ----------
    MacKinnon and White, Some heteroskedasticity-consistent covariance matrix estimators with improved finite
    sample properties, Journal of Econometrics 29 (1985). Liang and Zeger, Longitudinal data analysis using
    generalized linear models, Biometrika 73 (1986). Lin and Wei, The robust inference for the Cox
    proportional hazards model, JASA 84 (1989).

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.inference import refit
    >>> X = np.random.default_rng(0).standard_normal((100, 5))
    >>> fit = refit(X, X[:, 1] + np.random.default_rng(1).standard_normal(100), features=[1, 3])
    >>> fit.coef.round(1), fit.standard_errors.round(1), fit.pvalues.round(3)
    (array([1.1, 0.2]), array([0.1, 0.1]), array([0.   , 0.003]))
    """
    check.check_choice("covariance", covariance, COVARIANCES)
    matrix, target, loss = check_samples(X, y, loss)
    groups = None if clusters is None else check_clusters(clusters, target.shape[0])
    columns = (
        np.arange(matrix.shape[1])
        if features is None
        else check_columns("features", features, X, matrix.shape[1])
    )
    names = tuple(names_in(X, matrix.shape[1])[columns])
    return fit_columns(matrix, target, loss, columns, covariance, groups, names)


def fit_columns(X, y, loss, columns, covariance="model", clusters=None, names=None) -> Refit:
    """:func:`refit` of checked arguments; clusters are numbered from 0."""
    names = tuple(f"x{j}" for j in columns) if names is None else names
    n, Z = y.shape[0], dense(X, columns)
    mean, scale = Z.mean(axis=0), Z.std(axis=0)
    scale[scale == 0] = 1.0
    Z = (Z - mean) / scale
    if loss.sees_constants:
        Z = np.column_stack([Z, np.ones(n)])
    d = np.full(n, 1.0 / n)
    k, size = Z.shape[1], len(columns)
    fit = _minimum(Z, y, loss.bound(y, d), d) if k < n else None
    if fit is None:
        nothing = np.full(size, np.inf)
        return Refit(columns, np.zeros(size), 0.0, np.diag(nothing), np.inf, names)
    theta, eta, H, bound = fit
    inverse = np.linalg.inv(H)
    estimated = LIKELIHOODS[loss.name]
    dof = float(n - k) if estimated else np.inf
    if clusters is None and covariance == "model":
        mean_of_y = loss.inverse_link(eta) if estimated else 0.0
        pearson = (y - mean_of_y) / (mean_of_y if loss.name == "gamma" else 1.0) if estimated else 1.0
        full = inverse / n * (np.sum(pearson**2) / dof if estimated else 1.0)
    else:
        scores = _scores(Z, y, bound, d, eta)
        if clusters is not None:
            sums = np.zeros((clusters.max() + 1, k))
            np.add.at(sums, clusters, scores)
            G = len(sums)
            scores = sums * np.sqrt(G * (n - 1) / ((G - 1) * (n - k)))
            dof = float(G - 1) if estimated else np.inf
        else:
            leverage = bound.curvature(eta, y, d) * np.einsum("ij,jk,ik->i", Z, inverse, Z)
            scores = scores / (1.0 - np.minimum(leverage, _MOST_LEVERAGE))[:, None]
        full = inverse @ (scores.T @ scores) @ inverse
    coef = theta[:size] / scale
    intercept = float(theta[-1] - coef @ mean) if loss.sees_constants else 0.0
    return Refit(columns, coef, intercept, full[:size, :size] / np.outer(scale, scale), dof, names)


def _minimum(Z, y, loss, d):
    """Newton's method with halved steps: ``(theta, eta, H, loss)``, or None if there is no minimum."""
    design, W = as_design(Z, d), np.arange(Z.shape[1])
    theta = np.zeros(W.size)
    if loss.sees_constants:
        theta[-1] = loss.null_predictor(y, d)
    eta = Z @ theta
    value = loss.value(eta, y, d)
    for _ in range(_STEPS):
        H, gradient = loss.gram(design, W, eta, y, d), Z.T @ loss.gradient(eta, y, d)
        if W.size and np.linalg.eigvalsh(H)[0] <= _SINGULAR * max(np.trace(H) / W.size, 1e-300):
            return None
        step = np.linalg.solve(H, gradient)
        decrement = gradient @ step
        if decrement <= _ACCURACY * max(abs(value), 1.0):
            return None if loss.trouble(eta, y, d) else (theta, eta, H, loss)
        for _ in range(_HALVINGS):
            following = loss.value(Z @ (theta - step), y, d)
            if following <= value + _ROUNDING * max(abs(value), 1.0):
                break
            step /= 2
        theta, value = theta - step, following
        eta = Z @ theta
    return None


def _scores(Z, y, loss, d, eta):
    """The gradient of every sample's part of the loss, which sum to the whole gradient."""
    if loss.separable:
        return loss.gradient(eta, y, d)[:, None] * Z
    moved = [loss.pointwise(eta + s * _MOVE * z, y, d) for z in Z.T for s in (1, -1)]
    return d[:, None] * (np.array(moved[::2]) - np.array(moved[1::2])).T / (2 * _MOVE)


def wald_pvalues(coef: np.ndarray, errors: np.ndarray, dof: float) -> np.ndarray:
    """Two-sided p-values of ``coef / errors``; 1 for infinite errors."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(errors > 0, np.abs(coef) / errors, np.where(coef == 0, 0.0, np.inf))
    return 2.0 * student.sf(ratio, dof)


def errors_of(
    model: Any, X: ArrayLike, y: ArrayLike, *, covariance: str = "robust", clusters: ArrayLike | None = None
) -> Refit:  # fmt: skip
    """Standard errors of the features that a fitted model of this library selected.

    They are those of a fit of the same features without a penalty, **given the selection**: they do not
    account for the search. With the data of the selection they are too small, and p-values of selected
    features mean little. With other data they are right.

    Parameters
    ----------
    model : fitted estimator of this library
        With one of the losses of :func:`refit`.
    X, y
        The data; to be valid, other data than the model was fitted to.
    covariance, clusters
        As in :func:`refit`.

    Returns
    -------
    Refit
        Its ``label``, which ``summary`` shows, repeats the warning.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import TrimmedLasso
    >>> from trimreg.inference import errors_of
    >>> X = np.random.default_rng(0).standard_normal((100, 20))
    >>> y = 2 * X[:, 3] + np.random.default_rng(1).standard_normal(100)
    >>> errors_of(TrimmedLasso(h=1).fit(X, y), X, y).label
    'given the selection; too small if the selection used the same data'
    """
    if not isinstance(model, LinearEstimator) or not hasattr(model, "support_"):
        raise ValueError(f"model must be a fitted estimator of trimreg; got {model!r}")
    fit = refit(X, y, model.loss_name_, model.support_, covariance=covariance, clusters=clusters)
    return replace(fit, label=GIVEN_SELECTION)
