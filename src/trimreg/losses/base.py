r"""What a loss is: a function of the linear predictor, in plain NumPy.

``L(eta) = sum_i d_i l(eta_i, y_i)`` with sample weights ``d`` that sum to one, so a loss is a
weighted mean over samples. A solver needs its value, its gradient and its curvature with respect to
``eta``; to add a loss is to write these three formulas (see CONTRIBUTING.md). All else has a default.

``eta`` has shape (n,). A loss of K outputs takes ``eta`` of shape (n, K) and knows ``n_outputs = K``
once it is bound to a target. Its coefficients are flat, output k of feature j at ``j K + k``.

A weight may be 0. Such a sample has no influence, whatever its loss is, infinity included.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

#: Below this a sum of squares counts as this much, so that the deviance of a perfect fit is a number.
SMALLEST = float(np.finfo(float).tiny)


class Loss:
    """A loss on the linear predictor ``eta``; every method is a pure function of its arguments."""

    name: str = "custom"
    #: Whether the curvature is the same at every eta. Then one Gram matrix serves a whole fit, and
    #: the intercept is had by centring instead of by a column of ones.
    constant_curvature: bool = False
    #: Whether L is ``sum_i d_i ||eta_i - y_i||^2 / 2``, which few rows can stand for.
    least_squares: bool = False
    #: A bound on the second derivative of ``l`` in eta (its norm, for several outputs), for step sizes;
    #: inf if there is none.
    curvature_bound: float = np.inf
    #: How many predictors a sample has; known once the loss is bound.
    n_outputs: int = 1
    #: Whether ``eta`` is (n, n_outputs), also for one output, instead of (n,).
    multi_output: bool = False
    #: Whether y is a matrix of shape (n, columns).
    matrix_target: bool = False
    #: Whether L is a sum over samples, so that the Hessian in eta is diagonal (or K x K blocks).
    separable: bool = True
    #: Whether a constant added to eta changes L. If not, there is no intercept to fit.
    sees_constants: bool = True
    #: Whether y must not be negative.
    positive_target: bool = False
    #: How many of the outputs the others determine, so that they are no parameters of their own.
    redundant_outputs: int = 0
    #: Whether ``gradient`` and ``pointwise`` also take PyTorch tensors, and rows of several problems.
    array_agnostic: bool = False
    #: What L is multiplied by to be reported: twice least squares is the mean squared error.
    report_factor: float = 1.0
    #: Whether :meth:`gram` works on copies of its columns, as large as the columns themselves.
    copies_columns: bool = False

    @property
    def working_vectors(self) -> int:
        """Number of vectors of length n in memory during a fit, as measured; a subclass may know better."""
        return 8 + 8 * self.n_outputs

    def check_target(self, y: np.ndarray) -> None:
        """Raise a ``ValueError`` that names y if it has values that the loss cannot take."""

    def bound(self, y: np.ndarray, d: np.ndarray) -> Loss:
        """A copy that knows what it needs of the target; the loss itself if it needs nothing.

        What it keeps depends on y, so ``d`` may change afterwards.
        """
        return self

    def inverse_link(self, eta: np.ndarray) -> np.ndarray:
        """The mean of y that the predictor stands for."""
        return eta

    def pointwise(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray | None = None) -> np.ndarray:
        """The loss ``l(eta_i, y_i)`` of every sample.

        Only a loss that is not ``separable`` looks at ``d`` (equal weights if it is None). For such a loss it
        is the derivative of L with respect to ``d_i``: what L loses, to first order, with that sample.
        """
        raise NotImplementedError

    def value(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> float:
        """``sum_i d_i l(eta_i, y_i)``."""
        return weighted_sum(d, self.pointwise(eta, y))

    def gradient(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        """Derivative of L in eta, ``d_i l'(eta_i, y_i)`` for every sample; it has the shape of eta."""
        raise NotImplementedError

    def curvature(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        """Diagonal of the Hessian of L in eta, or an upper bound of it; it has the shape of eta."""
        raise NotImplementedError

    def gram(self, design: Any, W: np.ndarray, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        """``Z_W' H Z_W``, where H is the true Hessian of L in eta: the Hessian in the coefficients W.

        For several outputs the design has the design of the features as ``inner``, and W holds whole
        features, ``j K, ..., j K + K - 1`` for each.
        """
        return design.gram(W, self.curvature(eta, y, d), W)

    def slope_bound(self, y: np.ndarray, d: np.ndarray) -> float:
        r"""A bound of :math:`\sqrt{\sum_i \|g_i\|^2 / d_i}` over all eta with ``L(eta) <= L(0)``.

        Here g is the gradient in eta, and samples of weight 0 are left out. By Cauchy-Schwarz no derivative
        in a coefficient is larger than this times the norm :math:`\|z_j\|_d` of its column, wherever L is not
        above its value at 0. Infinity where none is known.
        """
        return np.inf

    def null_predictor(self, y: np.ndarray, d: np.ndarray) -> float | np.ndarray:
        """The best constant eta, or a finite number near it where the best is infinite."""
        return 0.0

    def deviance(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray, n: float) -> float:
        """Minus twice the log-likelihood of n samples, up to a constant that does not depend on eta.

        Nuisance parameters, such as a variance, are at their maximum.
        """
        return 2.0 * n * self.value(eta, y, d)


def namespace(array: Any) -> Any:
    """The module that an array is of: ``numpy`` or ``torch``."""
    return sys.modules[type(array).__module__.partition(".")[0]]


def weighted_sum(d: np.ndarray, losses: np.ndarray) -> float:
    """``sum_i d_i l_i``, where an infinite loss of weight 0 counts 0.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.losses.base import weighted_sum
    >>> weighted_sum(np.array([0.5, 0.0]), np.array([3.0, np.inf]))
    1.5
    """
    if np.isfinite(losses).all():
        return float(d @ losses)
    counted = d > 0
    return float(d[counted] @ losses[counted])


def require(y: np.ndarray, good: np.ndarray, rule: str) -> None:
    """Raise a ``ValueError`` with the rule and the first value of y, with its position, that breaks it.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.losses.base import require
    >>> y = np.array([1.0, -2.0])
    >>> require(y, y >= 0, "be >= 0")
    Traceback (most recent call last):
    ...
    ValueError: y must be >= 0; got -2.0 at position 1
    """
    if good.all():
        return
    bad = np.unravel_index(int(np.argmin(good)), good.shape)
    position = ", ".join(str(int(index)) for index in bad)
    raise ValueError(f"y must {rule}; got {float(y[bad])!r} at position {position}")


def require_finite(y: np.ndarray, n_dimensions: int = 1) -> None:
    """Raise a ``ValueError`` that names y unless it is a finite array of so many dimensions."""
    if y.ndim != n_dimensions:
        shape = "a vector" if n_dimensions == 1 else "a matrix"
        raise ValueError(f"y must be {shape}; got shape {y.shape}")
    require(y, np.isfinite(y), "be finite")


def shared_gram(design: Any, W: np.ndarray, d: np.ndarray, n_outputs: int) -> np.ndarray:
    """``Z_W' H Z_W`` for H with the same diagonal ``d`` for every output: a Kronecker product.

    ``W`` holds whole features, as :meth:`Loss.gram` says.
    """
    features = W[::n_outputs] // n_outputs
    return np.kron(design.inner.gram(features, d, features), np.eye(n_outputs))


def block_gram(design: Any, W: np.ndarray, n_outputs: int, hessian: Any) -> np.ndarray:
    """``Z_W' H Z_W`` for H with a symmetric K x K block a sample; ``hessian(k, m)`` is its entry, shape (n,).

    ``W`` holds whole features, as :meth:`Loss.gram` says.
    """
    features = W[::n_outputs] // n_outputs
    product = np.empty((len(W), len(W)))
    for k in range(n_outputs):
        for m in range(k + 1):
            part = design.inner.gram(features, hessian(k, m), features)
            product[k::n_outputs, m::n_outputs] = part
            product[m::n_outputs, k::n_outputs] = part
    return product


#: The losses of the library by name; :mod:`trimreg.losses` fills it.
LOSSES: dict[str, type[Loss]] = {}


def get_loss(loss: str | Loss) -> Loss:
    """The loss of that name, or the object itself if it is a loss.

    Examples
    --------
    >>> from trimreg.losses import get_loss
    >>> get_loss("quadratic").name
    'quadratic'
    """
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str) and loss in LOSSES:
        return LOSSES[loss]()
    raise ValueError(f"loss must be one of {sorted(LOSSES)} or a loss object; got {loss!r}")
