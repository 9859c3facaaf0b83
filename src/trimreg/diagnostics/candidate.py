r"""A candidate solution, and the gradient and objective there: the start of every diagnostic.

A model of K outputs has K coefficients for every column; theta holds them one after another. See
:mod:`trimreg.diagnostics.columns` for the coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import brentq

from ..losses import Loss, get_loss
from ..penalties import Penalty, get_penalty
from .arguments import design_matrix, flag, matrix, number, read_bounds, vector
from .columns import Columns

_EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Data:
    """Checked data: Z, the target, sample weights that sum to one, and the loss bound to them."""

    columns: Columns
    y: np.ndarray
    d: np.ndarray
    fit_intercept: bool
    loss: Loss

    @property
    def norms(self) -> np.ndarray:
        """The norms of the columns, one per coefficient."""
        return np.repeat(self.columns.norms, self.loss.n_outputs)

    @cached_property
    def target(self) -> np.ndarray:
        """y, centered if least squares has an intercept."""
        return self.y - self.d @ self.y if self.fit_intercept and self.loss.constant_curvature else self.y

    def rms(self, values: np.ndarray) -> float:
        """``sqrt(sum_i d_i v_i^2)``, over all columns of v."""
        return float(np.sqrt(np.sum(self.d @ values**2)))


@dataclass(frozen=True)
class Candidate:
    """A point of the problem ``min L + P`` with the derivatives that the diagnostics need."""

    data: Data
    penalty: Penalty  # bound to the number of features
    alpha: float
    l2: float
    bounds: tuple[np.ndarray, np.ndarray] | None  # of theta
    intercept: float | np.ndarray
    theta: np.ndarray  # output k of feature j at j K + k
    eta: np.ndarray  # linear predictor, of shape (n,) or (n, K)

    @property
    def outside(self) -> np.ndarray:
        """Which coefficients are beyond their bounds."""
        if self.bounds is None:
            return np.zeros(self.theta.size, dtype=bool)
        return (self.theta < self.bounds[0]) | (self.theta > self.bounds[1])

    @property
    def loss(self) -> Loss:
        return self.data.loss

    @cached_property
    def slope(self) -> np.ndarray:
        """Gradient of the loss in the linear predictor."""
        return np.asarray(self.loss.gradient(self.eta, self.data.y, self.data.d), dtype=float)

    @cached_property
    def gradient(self) -> np.ndarray:
        """Gradient of the loss and the ridge term in theta."""
        return self.data.columns.gradient(self.slope).ravel() + self.ridge * self.theta

    @cached_property
    def ridge(self) -> np.ndarray:
        """``l2 f``, one per coefficient; 0 for excluded features."""
        return self.penalty.ridge(self.l2)

    @property
    def intercept_derivative(self) -> np.ndarray:
        """Derivatives of the loss in the intercepts; 0 if none is fitted."""
        return np.atleast_1d(self.slope.sum(axis=0) if self.data.fit_intercept else 0.0)

    @property
    def factor(self) -> np.ndarray:
        """The penalty factors of the features (or groups); inf excludes one."""
        return self.penalty.levels(1.0)

    @cached_property
    def clean_theta(self) -> np.ndarray:
        """theta with 0 for coefficients within rounding of it.

        That is ``|theta_j| norm_j <= 10 eps max_k |theta_k| norm_k``: the contribution of column j to the
        linear predictor is lost in rounding. A solver that ends with a dense linear solve leaves such
        remainders instead of 0.
        """
        share = np.abs(self.theta) * self.data.norms
        tiny = share <= 10 * _EPS * np.max(share, initial=0.0)
        if self.bounds is not None:  # bounds may be as close to 0 as that
            tiny &= (self.theta != self.bounds[0]) & (self.theta != self.bounds[1])
        return np.where(tiny, 0.0, self.theta)

    def objective(self) -> float:
        """F: the loss, the ridge term and the penalty."""
        loss = float(self.loss.value(self.eta, self.data.y, self.data.d))
        return loss + 0.5 * float(self.ridge @ self.theta**2) + self.penalty.value(self.theta, self.alpha)


def read_data(X: Any, y: Any, *, loss: Any, sample_weight: Any, fit_intercept: Any, standardize: Any) -> Data:
    """Check X, y and the sample weights, and set up the columns of Z."""
    loss = get_loss(loss)
    fit_intercept, standardize = flag("fit_intercept", fit_intercept), flag("standardize", standardize)
    X = design_matrix(X)
    n = X.shape[0]
    if n == 0:
        raise ValueError("X must have at least one row; got none")
    y = matrix("y", y, (n, None)) if loss.matrix_target else vector("y", y, n)
    loss.check_target(y)
    d = np.ones(n) if sample_weight is None else vector("sample_weight", sample_weight, n)
    if (d < 0).any() or not d.sum() > 0:
        raise ValueError("sample_weight must be >= 0 and not all 0")
    d = d / d.sum()
    fit_intercept = fit_intercept and loss.sees_constants
    # A loss that does not see constants (Cox) has centered columns and never an intercept.
    columns = Columns(X, d, center=fit_intercept or not loss.sees_constants, standardize=standardize)
    return Data(columns, y, d, fit_intercept, loss.bound(y, d))


def read_candidate(
    X: Any, y: Any, coef: Any, *, penalty: Any, alpha: float, l2: float, intercept: Any, positive: bool,
    lower: Any = None, upper: Any = None, **setting: Any,
) -> Candidate:  # fmt: skip
    """Check every argument that the diagnostics share, and place ``coef`` in the penalty's coordinates.

    ``setting`` are the keywords of :func:`read_data`.
    """
    penalty = get_penalty(penalty)
    alpha, l2 = number("alpha", alpha, minimum=0.0), number("l2", l2, minimum=0.0)
    data = read_data(X, y, **setting)
    p, outputs = data.columns.shape[1], data.loss.n_outputs
    if data.loss.multi_output:
        coef = matrix("coef", coef, (outputs, p)).T
        intercept = np.full(outputs, intercept) if np.ndim(intercept) == 0 else intercept
        intercept = vector("intercept", intercept, outputs)
    else:
        coef, intercept = vector("coef", coef, p), number("intercept", intercept)
    penalty = penalty.bind(p, outputs)
    bounds = read_bounds(lower, upper, positive, p)
    if bounds is not None and penalty.norm.q is not None:
        raise ValueError("positive, lower and upper must be left off with groups or several outputs")
    theta = (coef.T * data.columns.scale).T.ravel()
    theta = _with_ties(theta, penalty.norm, 200 * data.columns.eps)
    if bounds is not None:
        bounds = tuple(
            np.multiply(end, data.columns.scale, out=end.copy(), where=np.isfinite(end)) for end in bounds
        )
        for end in bounds:  # what is within rounding of a bound is on it
            near = np.isfinite(end) & (np.abs(theta - end) <= 4 * data.columns.eps * np.abs(end))
            theta = np.where(near, end, theta)
    eta = data.columns.predictor(coef) + intercept
    return Candidate(data, penalty, alpha, l2, bounds, intercept, theta, eta)


def _with_ties(theta, norm, tol):
    """theta, with the entries of a group (``q = inf``) made equal that are the largest to a relative ``tol``.

    The subdifferential depends on which entries are the largest, and equal ones do not stay equal in the
    units of X.
    """
    if norm.q != np.inf:
        return theta
    top = norm.spread(norm.lengths(theta))
    return np.where((top > 0) & (np.abs(theta) >= (1.0 - tol) * top), np.copysign(top, theta), theta)


def best_constant(loss: Loss, y: np.ndarray, d: np.ndarray) -> float | np.ndarray:
    """The best intercept without coefficients; a large number of the right sign if the best is infinite."""
    if loss.multi_output or loss.least_squares:
        return loss.null_predictor(y, d)

    def derivative(b):
        return float(np.sum(loss.gradient(np.full(y.shape[0], b), y, d)))

    here = derivative(0.0)
    if here == 0.0:
        return 0.0
    # The derivative rises with b: walk against its sign until it changes. For a separable target it never
    # changes, but the loss is flat to rounding long before the walk ends.
    end, farthest = -np.sign(here), 64.0 + 4.0 * float(np.max(np.abs(y)))
    while abs(end) <= farthest:
        if derivative(end) * here <= 0:
            return float(brentq(derivative, *sorted((0.0, end)), xtol=1e-14))
        end *= 2.0
    return float(end)
