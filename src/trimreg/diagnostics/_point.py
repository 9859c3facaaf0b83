r"""What every diagnostic starts from: the data, the coordinates of the penalty, and a point in them.

The penalty acts on ``theta``, the coefficients of the columns

.. math:: z_j = (x_j - m_j) / s_j,

where ``m`` are the weighted means if an intercept is fitted, or if the loss does not see constants (else 0),
and ``s`` the weighted root mean square deviations about ``m`` if columns are standardized (else 1). A model
of K outputs has K coefficients for every column; theta holds them one after another. All of it is computed
here again from X and y in float64, by other code than the solvers use: a diagnostic that shared their
arithmetic would share their mistakes.
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from scipy.optimize import brentq

from ..losses import Loss, Quadratic, get_loss
from ..penalties import Penalty, get_penalty

_BLOCK_ELEMENTS = 1 << 20  # a block of columns in float64 takes 8 MiB, whatever the size of X
_EPS = float(np.finfo(float).eps)


class Columns:
    """The matrix Z of the penalty's coordinates, seen by blocks of columns and never formed whole.

    A column takes no part if it is constant and an intercept is fitted (its deviation is at most
    ``10 eps |mean|``, the rounding of its mean), or if it is zero (or below 1e-300): then ``z_j = 0``.

    Attributes
    ----------
    scale : ndarray of shape (p,)
        ``theta = coef * scale``; 0 for columns that take no part.
    norms : ndarray of shape (p,)
        ``sqrt(sum_i d_i z_ij^2)``.
    """

    def __init__(self, X, d: np.ndarray, *, center: bool, standardize: bool):
        self._X = X
        self.shape = X.shape
        self.eps = float(np.finfo(X.dtype).eps)
        mean, deviation = self._moments(d, center)
        if not (np.isfinite(mean).all() and np.isfinite(deviation).all()):
            raise ValueError("X must hold finite numbers only")
        alive = deviation > np.maximum(10 * self.eps * np.abs(mean) if center else 0.0, 1e-300)
        self._mean = mean if center else None
        self._inverse = np.where(alive, 1.0, 0.0)
        if standardize:
            np.divide(1.0, deviation, out=self._inverse, where=alive)
        self.scale = np.where(alive, deviation if standardize else 1.0, 0.0)
        self.norms = np.where(alive, deviation, 0.0) * self._inverse
        # Sparse columns far from 0: taking the mean out after a product would leave only rounding.
        self._cancels = np.abs(mean) > 1e3 * deviation

    def blocks(self, width: int = 1):
        """Slices of columns such that a block of Z, and ``width`` numbers a column, stay small."""
        n, p = self.shape
        step = max(1, _BLOCK_ELEMENTS // max(n, width, 1))
        return (slice(start, min(start + step, p)) for start in range(0, p, step))

    def pieces(self, which: np.ndarray):
        """The indices ``which`` in pieces of which a dense copy stays small."""
        step = max(1, _BLOCK_ELEMENTS // self.shape[0])
        return (which[start : start + step] for start in range(0, which.size, step))

    def _raw(self, cols) -> np.ndarray:
        part = self._X[:, cols]
        return (part.toarray() if sp.issparse(part) else part).astype(float, copy=False)

    def dense(self, cols) -> np.ndarray:
        """``Z[:, cols]`` as a float64 array."""
        part = self._raw(cols)
        if self._mean is not None:
            part = part - self._mean[cols]
        return part * self._inverse[cols]

    def transposed(self, R: np.ndarray, cols: slice) -> np.ndarray:
        """``Z[:, cols]' R`` for a vector or a matrix of several."""
        if not sp.issparse(self._X):
            return self.dense(cols).T @ R
        product = self._X[:, cols].T @ R
        if self._mean is not None:
            product = product - np.multiply.outer(self._mean[cols], R.sum(axis=0))
        product = (product.T * self._inverse[cols]).T
        if self._mean is not None:
            bad = np.arange(self.shape[1])[cols][self._cancels[cols]]
            for which in self.pieces(bad):
                product[which - cols.start] = self.dense(which).T @ R
        return product

    def gradient(self, slope: np.ndarray) -> np.ndarray:
        """``Z' slope``: the gradient in theta of a loss with that gradient in the linear predictor."""
        return self._over_blocks(lambda block: self.transposed(slope, block))

    def predictor(self, coef: np.ndarray) -> np.ndarray:
        """``X coef``, coefficients in the units of X, of shape (p,) or (p, K)."""
        used = np.flatnonzero(coef.any(axis=1) if coef.ndim == 2 else coef)
        if sp.issparse(self._X):
            return self._X[:, used] @ coef[used]
        total = np.zeros((self.shape[0], *coef.shape[1:]))
        for part in self.pieces(used):
            total += self._raw(part) @ coef[part]
        return total

    def _over_blocks(self, function):
        parts = [function(block) for block in self.blocks()]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _moments(self, d, center):
        with np.errstate(over="ignore", invalid="ignore"):
            if sp.issparse(self._X):
                return self._sparse_moments(d, center)
            both = [self._dense_moments(self._raw(block), d, center) for block in self.blocks()]
        if not both:
            return np.zeros(0), np.zeros(0)
        mean, deviation = zip(*both, strict=True)
        return np.concatenate(mean), np.concatenate(deviation)

    @staticmethod
    def _dense_moments(part, d, center):
        mean = np.zeros(part.shape[1])
        if center:
            mean = d @ part
            # The mean of n numbers is off by up to n eps; the mean of what is left corrects it, or a
            # long constant column would seem to vary.
            mean = mean + d @ (part - mean)
            part = part - mean
        size = np.max(np.abs(part), axis=0, initial=0.0)
        unit = np.where(size > 0, size, 1.0)  # squares of extreme units would under- or overflow
        return mean, size * np.sqrt(d @ (part / unit) ** 2)

    def _sparse_moments(self, d, center):
        X, p = self._X, self.shape[1]
        column = np.repeat(np.arange(p), np.diff(X.indptr))
        value, weight = X.data.astype(float), d[X.indices]
        absent = 1.0 - np.bincount(column, weight, minlength=p)
        # Where every row is stored the difference is rounding, and must not stand for a row of zeros.
        full = np.bincount(column, weight > 0, minlength=p) == np.count_nonzero(d)
        absent = np.where(full, 0.0, np.maximum(absent, 0.0))
        mean = np.zeros(p)
        if center:
            mean = np.bincount(column, weight * value, minlength=p)
            left = np.bincount(column, weight * (value - mean[column]), minlength=p)
            mean = mean + left - absent * mean
        size = np.abs(mean)
        np.maximum.at(size, column, np.abs(value - mean[column]))
        unit = np.where(size > 0, size, 1.0)
        square = np.bincount(column, weight * ((value - mean[column]) / unit[column]) ** 2, minlength=p)
        return mean, size * np.sqrt(square + absent * (mean / unit) ** 2)


@dataclass(frozen=True)
class Data:
    """Checked data: Z, the target, sample weights that sum to one, and the loss that knows them."""

    columns: Columns
    y: np.ndarray
    d: np.ndarray
    fit_intercept: bool
    loss: Loss

    @property
    def norms(self) -> np.ndarray:
        """The norms of the columns, one for every coefficient."""
        return np.repeat(self.columns.norms, self.loss.n_outputs)

    @cached_property
    def target(self) -> np.ndarray:
        """y, less its mean where least squares takes the intercept out by that."""
        return self.y - self.d @ self.y if self.fit_intercept and self.loss.constant_curvature else self.y

    def rms(self, values: np.ndarray) -> float:
        """``sqrt(sum_i d_i v_i^2)``, over all columns of v."""
        return float(np.sqrt(np.sum(self.d @ values**2)))


@dataclass(frozen=True)
class Point:
    """A point of the problem ``min L + P``, with all that the diagnostics ask about it."""

    data: Data
    penalty: Penalty  # bound to the number of features
    alpha: float
    positive: bool
    intercept: float | np.ndarray
    theta: np.ndarray  # output k of feature j at j K + k
    eta: np.ndarray  # linear predictor, of shape (n,) or (n, K)

    @property
    def loss(self) -> Loss:
        return self.data.loss

    @cached_property
    def slope(self) -> np.ndarray:
        """Gradient of the loss in the linear predictor."""
        return np.asarray(self.loss.gradient(self.eta, self.data.y, self.data.d), dtype=float)

    @cached_property
    def gradient(self) -> np.ndarray:
        """Gradient of the loss in theta."""
        return self.data.columns.gradient(self.slope).ravel()

    @property
    def intercept_derivative(self) -> np.ndarray:
        """Derivatives of the loss in the intercepts, 0 if none is fitted."""
        return np.atleast_1d(self.slope.sum(axis=0) if self.data.fit_intercept else 0.0)

    @property
    def factor(self) -> np.ndarray:
        """The penalty factors of the features (or groups), inf for excluded ones."""
        return self.penalty.levels(1.0)

    @cached_property
    def clean_theta(self) -> np.ndarray:
        """theta with 0 for coefficients within rounding of it.

        That is ``|theta_j| norm_j <= 10 eps max_k |theta_k| norm_k``: what column j adds to the linear
        predictor is lost in the rounding of the rest. A solver that ends in a dense linear solve leaves
        such remainders where it means 0.
        """
        share = np.abs(self.theta) * self.data.norms
        return np.where(share <= 10 * _EPS * np.max(share, initial=0.0), 0.0, self.theta)

    def objective(self) -> float:
        """``F = L + P``."""
        return float(self.loss.value(self.eta, self.data.y, self.data.d)) + self.penalty.value(
            self.theta, self.alpha
        )


def read_data(X, y, *, loss, sample_weight, fit_intercept, standardize) -> Data:
    """Check X, y and the sample weights, and set up the columns of Z."""
    loss = get_loss(loss)
    fit_intercept, standardize = flag("fit_intercept", fit_intercept), flag("standardize", standardize)
    X = _matrix(X)
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
    # A loss that does not see constants (Cox) has centred columns, and no intercept, whatever is asked for.
    columns = Columns(X, d, center=fit_intercept or not loss.sees_constants, standardize=standardize)
    return Data(columns, y, d, fit_intercept, loss.bound(y, d))


def read_point(
    X, y, coef, *, penalty, alpha, intercept, loss, sample_weight, fit_intercept, standardize, positive
) -> Point:
    """Check every argument that the diagnostics share, and place ``coef`` in the penalty's coordinates."""
    penalty = get_penalty(penalty)
    alpha = number("alpha", alpha, minimum=0.0)
    positive = flag("positive", positive)
    data = read_data(
        X, y, loss=loss, sample_weight=sample_weight, fit_intercept=fit_intercept, standardize=standardize
    )
    p, outputs = data.columns.shape[1], data.loss.n_outputs
    if data.loss.multi_output:
        coef = matrix("coef", coef, (outputs, p)).T
        intercept = np.full(outputs, intercept) if np.ndim(intercept) == 0 else intercept
        intercept = vector("intercept", intercept, outputs)
    else:
        coef, intercept = vector("coef", coef, p), number("intercept", intercept)
    penalty = penalty.bind(p, outputs)
    if positive and penalty.norm.q is not None:
        raise ValueError("positive must be False with groups or several outputs; got True")
    theta = (coef.T * data.columns.scale).T.ravel()
    return Point(
        data=data,
        penalty=penalty,
        alpha=alpha,
        positive=positive,
        intercept=intercept,
        theta=_with_ties(theta, penalty.norm, 200 * data.columns.eps),
        eta=data.columns.predictor(coef) + intercept,
    )


def _with_ties(theta, norm, tol):
    """theta, with entries at the top of a group (``q = inf``) made equal if they are to a relative ``tol``.

    The subdifferential of the largest entry turns on which are the largest, and equal ones do not stay so in
    the units of X.
    """
    if norm.q != np.inf:
        return theta
    top = norm.spread(norm.lengths(theta))
    return np.where((top > 0) & (np.abs(theta) >= (1.0 - tol) * top), np.copysign(top, theta), theta)


def best_constant(loss: Loss, y: np.ndarray, d: np.ndarray) -> float | np.ndarray:
    """The intercept that fits best alone; a large number of the right sign if the best is infinite."""
    if loss.multi_output:
        return loss.null_predictor(y, d)

    def derivative(b):
        return float(np.sum(loss.gradient(np.full(y.shape, b), y, d)))

    if isinstance(loss, Quadratic):
        return float(d @ y)
    here = derivative(0.0)
    if here == 0.0:
        return 0.0
    # The derivative rises with b: walk against its sign until it changes. A separable target never
    # changes it; the loss is flat, to rounding, long before the walk ends.
    end, farthest = -np.sign(here), 64.0 + 4.0 * float(np.max(np.abs(y)))
    while abs(end) <= farthest:
        if derivative(end) * here <= 0:
            return float(brentq(derivative, *sorted((0.0, end)), xtol=1e-14))
        end *= 2.0
    return float(end)


def number(name: str, value, minimum: float = -np.inf) -> float:
    """``value`` as a finite float of at least ``minimum``, or a ``ValueError`` that names it."""
    real = isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))
    if not real or not np.isfinite(value) or value < minimum:
        at_least = "" if minimum == -np.inf else f" >= {minimum:g}"
        raise ValueError(f"{name} must be a finite number{at_least}; got {value!r}")
    return float(value)


def flag(name: str, value) -> bool:
    """``value`` if it is a bool, or a ``ValueError`` that names it."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False; got {value!r}")
    return bool(value)


def vector(name: str, value, size: int) -> np.ndarray:
    """``value`` as a float64 vector of that size, or a ``ValueError`` that names it."""
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a vector of {size} numbers; got {value!r}") from None
    if array.shape != (size,):
        raise ValueError(f"{name} must be a vector of {size} numbers; got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must hold finite numbers only")
    return array


def matrix(name: str, value, shape: tuple) -> np.ndarray:
    """``value`` as a float64 matrix of that shape (None is any number), or a ``ValueError`` that names it."""
    expected = f"{name} must be a matrix of shape ({shape[0]}, {'any' if shape[1] is None else shape[1]})"
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"{expected}; got {value!r}") from None
    if array.ndim != 2 or array.shape[0] != shape[0] or shape[1] not in (None, array.shape[1]):
        raise ValueError(f"{expected}; got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must hold finite numbers only")
    return array


def require_memory(X) -> None:
    """A ``ValueError`` if X is on disk, a cluster or a GPU: it would be fetched whole, and twice its size."""
    kind = type(X)
    by_blocks = callable(getattr(kind, "describe", None)) and not getattr(X, "near", True)
    on_device = kind.__module__.startswith("torch") and str(getattr(X, "device", "cpu")) != "cpu"
    if by_blocks or on_device or hasattr(kind, "__dask_graph__"):
        raise ValueError(
            f"a diagnostic needs X in memory, and X is of type {kind.__name__}; pass a NumPy array. "
            "A fit has certificates of its own: stationarity and swap_optimal"
        )


def _matrix(X):
    """X as CSC or as an ndarray, float32 and float64 kept as they are."""
    require_memory(X)
    if callable(getattr(X, "rmatvec", None)):  # a design in memory, read by its columns
        return X
    if sp.issparse(X):
        X = sp.csc_array(X)
        if not X.has_canonical_format:
            X = X.copy()  # the arrays of a CSC input are the caller's
            X.sum_duplicates()
    else:
        X = np.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"X must be a matrix; got {X.ndim} dimension{'' if X.ndim == 1 else 's'}")
    if X.dtype in (np.float32, np.float64):
        return X
    try:
        return X.astype(float)
    except (TypeError, ValueError):
        raise ValueError(f"X must be a matrix of numbers; got dtype {X.dtype}") from None
