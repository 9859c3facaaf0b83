r"""The base class of losses: functions of the linear predictor in plain NumPy.

``L(eta) = sum_i d_i l(eta_i, y_i)`` with sample weights ``d`` that sum to one, so a loss is a weighted mean
over samples. A solver needs its value, its gradient and its curvature in ``eta``. A new loss states these
three formulas (see CONTRIBUTING.md); everything else has a default.

``eta`` has shape (n,). A loss with K outputs takes ``eta`` of shape (n, K) and has ``n_outputs = K`` once it
is bound to a target. Its coefficients are flat, with output k of feature j at ``j K + k``.

A weight may be 0. Such a sample has no influence, even if its loss is infinite.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

SEPARABLE = (
    "the features separate the classes, so that coefficients without a penalty grow without end; give l2 > 0 "
    "or a smaller h"
)
SMALLEST = float(np.finfo(float).tiny)  # of a sum of squares, so that the deviance of a perfect fit is finite


class Loss:
    """A loss of the linear predictor ``eta``; every method is a pure function of its arguments."""

    name: str = "custom"
    #: Whether the curvature is the same at every eta. Then one Gram matrix serves a whole fit, and centering
    #: replaces the intercept.
    constant_curvature: bool = False
    least_squares: bool = (
        False  # whether L is sum_i d_i ||eta_i - y_i||^2 / 2, so that rows can be compressed
    )
    #: A bound of the second derivative of ``l`` in eta (of its norm, for several outputs), or inf.
    curvature_bound: float = np.inf
    n_outputs: int = 1  # number of predictors per sample; known once the loss is bound
    multi_output: bool = False  # whether eta has shape (n, n_outputs), even for one output, instead of (n,)
    matrix_target: bool = False  # whether y is a matrix of shape (n, columns)
    #: Whether L is a sum over samples, so that the Hessian in eta is diagonal (or K x K blocks).
    separable: bool = True
    given_start: bool = False  # whether to start at 0 and not where what is never penalized fits best
    has_samples: bool = True  # whether eta has an entry per sample, so that too many coefficients interpolate
    sees_constants: bool = True  # whether a constant added to eta changes L; if not, there is no intercept
    equivariant: bool = False  # whether a constant added to both eta and y changes nothing
    positive_target: bool = False  # whether y must not be negative
    log_link: bool = False  # whether the mean of y is exp(eta), so that an exposure multiplies it
    redundant_outputs: int = 0  # number of outputs that the others determine, so that they are not parameters
    #: Whether ``gradient`` and ``pointwise`` also take PyTorch tensors, and rows of several problems.
    array_agnostic: bool = False
    report_factor: float = 1.0  # of L in reports: twice least squares is the mean squared error
    copies_columns: bool = False  # whether gram works on copies of its columns, as large as these
    may_diverge: bool = False  # whether the infimum may lie at infinity; then :meth:`trouble` can tell
    convex: bool = True  # whether L is convex; if not, gram bounds the Hessian and fits are stationary
    has_nuisance: bool = False  # whether L is a minimum over parameters that :meth:`held` can fix

    @property
    def working_vectors(self) -> int:
        """Number of vectors of length n in memory during a fit, as measured; a subclass may know better."""
        return 8 + 8 * self.n_outputs

    def check_target(self, y: np.ndarray) -> None:
        """Raise a ``ValueError`` that names y if it has values that the loss cannot take."""

    def classes(self, y: np.ndarray) -> Any:
        """Labels that folds of the samples should have equal shares of; None if there are none."""
        return None

    def bound(self, y: np.ndarray, d: np.ndarray) -> Loss:
        """A copy with the quantities that depend on the target; the loss itself if there are none.

        They depend on y only, so ``d`` may change later.
        """
        return self

    def inverse_link(self, eta: np.ndarray) -> np.ndarray:
        """The mean of y for this predictor."""
        return eta

    def pointwise(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray | None = None) -> np.ndarray:
        """The loss ``l(eta_i, y_i)`` of each sample.

        Only a loss that is not ``separable`` uses ``d`` (equal weights if it is None). For such a loss the
        result is the derivative of L in ``d_i``, the first-order contribution of that sample.
        """
        raise NotImplementedError

    def value(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> float:
        """``sum_i d_i l(eta_i, y_i)``."""
        return weighted_sum(d, self.pointwise(eta, y))

    def gradient(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        """Derivative of L in eta, ``d_i l'(eta_i, y_i)`` for each sample; it has the shape of eta."""
        raise NotImplementedError

    def curvature(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        """Diagonal of the Hessian of L in eta, or an upper bound of it; it has the shape of eta."""
        raise NotImplementedError

    def gram(self, design: Any, W: np.ndarray, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        """``Z_W' H Z_W`` with H the true Hessian of L in eta: the Hessian in the coefficients W.

        For several outputs ``design.inner`` is the design of the features, and W holds whole features,
        ``j K, ..., j K + K - 1`` for each.
        """
        return design.gram(W, self.curvature(eta, y, d), W)

    def step_gram(self, design: Any, W: np.ndarray, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> Any:
        """The same for the model of one Newton step, where an approximation will do."""
        return self.gram(design, W, eta, y, d)

    def slope_bound(self, y: np.ndarray, d: np.ndarray) -> float:
        r"""A bound of :math:`\sqrt{\sum_i \|g_i\|^2 / d_i}` over all eta with ``L(eta) <= L(0)``.

        Here g is the gradient in eta, without samples of weight 0. By Cauchy-Schwarz no derivative in a
        coefficient is larger than this times the norm :math:`\|z_j\|_d` of its column, wherever L is not
        above its value at 0. It is infinite if no bound is known.
        """
        return self.slope_bound_from(np.zeros(y.shape[0]), y, d)

    def slope_bound_from(self, start: np.ndarray, y: np.ndarray, d: np.ndarray) -> float:
        """:meth:`slope_bound` over all eta with ``L(eta) <= L(start)``; a loss with offsets needs it."""
        return np.inf

    def infimum(self, y: np.ndarray) -> np.ndarray:
        """The infimum of ``l(., y_i)`` for each sample; a loss with a log link needs it for its score."""
        raise NotImplementedError

    def settled(self, y: np.ndarray, d: np.ndarray) -> Loss:
        """The loss with all that it takes from y alone as numbers, so that an offset does not change them."""
        return self

    def estimates(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> dict[str, Any]:
        """Parameters beside eta, such as a scale, at their best values for these samples, by name."""
        return {}

    def held(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> Loss:
        """The loss with such parameters fixed at these values, to be computed for other samples."""
        return self

    def conjugate(self, g: np.ndarray, y: np.ndarray, d: np.ndarray) -> float:
        r""":math:`\sup_\eta g'\eta - L(\eta)`, or inf; a loss that gives it can be certified.

        The bounds of :func:`trimreg.certify` take it at gradients of L.
        """
        raise NotImplementedError

    def null_predictor(self, y: np.ndarray, d: np.ndarray) -> float | np.ndarray:
        """The best constant eta, or a large finite number if the best is infinite."""
        return 0.0

    def trouble(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> str:
        """Why a fit that came to this predictor has no minimum, and what to do; empty if nothing shows."""
        return ""

    def deviance(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray, n: float) -> float:
        """Minus twice the log-likelihood of n samples, up to a constant that does not depend on eta.

        Nuisance parameters, such as a variance, take their maximum likelihood values.
        """
        return 2.0 * n * self.value(eta, y, d)


class Nuisance:
    """A loss with parameters beside eta that takes their best values; it remembers them for the last eta."""

    has_nuisance = True
    _last: tuple[np.ndarray, np.ndarray, np.ndarray, Any] | None = None

    def _minimizer(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> Any:
        raise NotImplementedError

    def _best(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> Any:
        last = self._last
        if (
            last is None
            or last[1] is not y
            or not (np.array_equal(last[0], eta) and np.array_equal(last[2], d))
        ):
            last = self._last = (eta.copy(), y, d.copy(), self._minimizer(eta, y, d))
        return last[3]

    def value(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> float:
        return weighted_sum(d, self.pointwise(eta, y, d))  # type: ignore[attr-defined]


def slopes_vanish(loss: Loss, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> bool:
    """Whether the samples are at the infima of their own losses, up to 1e-4 on average.

    None may be farther from it than half of its weight: then a class is predicted wrong.
    """
    slope = np.abs(loss.gradient(eta, y, d).T)
    return bool(slope.sum() <= 1e-4 * d.sum() and np.all(slope <= 0.5 * d))


def namespace(array: Any) -> Any:
    """The module that an array is of: ``numpy`` or ``torch``."""
    return sys.modules[type(array).__module__.partition(".")[0]]


def weighted_sum(d: np.ndarray, losses: np.ndarray) -> float:
    """``sum_i d_i l_i``, where an infinite loss with weight 0 counts as 0."""
    if np.isfinite(losses).all():
        return float(d @ losses)
    counted = d > 0
    return float(d[counted] @ losses[counted])


def entropy_terms(x: np.ndarray) -> np.ndarray:
    """``x log x``, which is 0 at 0 and inf below it."""
    return np.where(x < 0, np.inf, x * np.log(np.where(x > 0, x, 1.0)))


def require(y: np.ndarray, good: np.ndarray, rule: str) -> None:
    """Raise a ``ValueError`` "y must {rule}" with the first value of y that is not good and its position."""
    if good.all():
        return
    bad = np.unravel_index(int(np.argmin(good)), good.shape)
    position = ", ".join(str(int(index)) for index in bad)
    raise ValueError(f"y must {rule}; got {float(y[bad])!r} at position {position}")


def require_finite(y: np.ndarray, n_dimensions: int = 1) -> None:
    """Raise a ``ValueError`` that names y unless it is finite and has that many dimensions."""
    if y.ndim != n_dimensions:
        shape = "a vector" if n_dimensions == 1 else "a matrix"
        raise ValueError(f"y must be {shape}; got shape {y.shape}")
    require(y, np.isfinite(y), "be finite")


def shared_gram(design: Any, W: np.ndarray, d: np.ndarray, n_outputs: int) -> np.ndarray:
    """:meth:`Loss.gram` for H with the same diagonal ``d`` in each output: a Kronecker product."""
    features = W[::n_outputs] // n_outputs
    return np.kron(design.inner.gram(features, d, features), np.eye(n_outputs))


def block_gram(design: Any, W: np.ndarray, n_outputs: int, hessian: Any) -> np.ndarray:
    """:meth:`Loss.gram` for H with a symmetric K x K block per sample; ``hessian(k, m)`` are its entries."""
    features = W[::n_outputs] // n_outputs
    product = np.empty((len(W), len(W)))
    for k in range(n_outputs):
        for m in range(k + 1):
            part = design.inner.gram(features, hessian(k, m), features)
            product[k::n_outputs, m::n_outputs] = part
            product[m::n_outputs, k::n_outputs] = part
    return product


def deflated(
    gram: np.ndarray, design: Any, W: np.ndarray, mixed: np.ndarray, inverse: np.ndarray
) -> np.ndarray:
    """``gram - (Z'M) S (Z'M)'``: M are mixed derivatives in eta and other parameters, S inverts theirs."""
    if design.streamed:
        sums = np.column_stack([design.weighted_sums(W, column) for column in mixed.T])
    else:
        sums = design.columns(W).T @ mixed
    return gram - sums @ np.asarray(inverse) @ sums.T


LOSSES: dict[str, type[Loss]] = {}  # those of the library by name; trimreg.losses fills it


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
