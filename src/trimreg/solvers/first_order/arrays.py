r"""The problems of a batch, and what a first-order method asks of them, on arrays of NumPy or PyTorch.

Every array has a row for each problem; ``X`` and the Gram matrix may also be one for all of them. The
functions call what both packages have under one name; ``xp`` is the module (``numpy`` or ``torch``).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

import numpy as np

_SQUARINGS = 32


def namespace(array):
    """The module that an array is of: ``numpy`` or ``torch``.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.solvers.first_order.arrays import namespace
    >>> namespace(np.zeros(2)).__name__
    'numpy'
    """
    return sys.modules[type(array).__module__.partition(".")[0]]


def on_host(array) -> bool:
    """Whether the values of an array can be looked at without waiting for a device."""
    return isinstance(array, np.ndarray) or array.device.type == "cpu"


def to_numpy(array) -> np.ndarray:
    """A copy of an array in NumPy, which does not know bfloat16: of that one as float32."""
    if isinstance(array, np.ndarray):
        return np.array(array)
    array = array.detach().cpu()
    return (array.float() if str(array.dtype) == "torch.bfloat16" else array).numpy().copy()


# -- losses ----------------------------------------------------------------------------------------------


def quadratic_slope(eta, y, xp):
    """The derivative of ``(y - eta)^2 / 2`` in eta."""
    return eta - y


def quadratic_value(eta, y, xp):
    return 0.5 * (y - eta) ** 2


def logistic_slope(eta, y, xp):
    """The derivative of ``log(1 + e^eta) - y eta`` in eta; nothing large is exponentiated."""
    tail = xp.exp(-xp.abs(eta))
    return xp.where(eta >= 0, 1.0 / (1.0 + tail), tail / (1.0 + tail)) - y


def logistic_value(eta, y, xp):
    return xp.log1p(xp.exp(-xp.abs(eta))) + xp.where(eta > 0, (1.0 - y) * eta, -y * eta)


#: For each loss: derivative and value in the predictor, and the bound of its curvature.
LOSSES = {
    "quadratic": (quadratic_slope, quadratic_value, 1.0),
    "logistic": (logistic_slope, logistic_value, 0.25),
}


# -- the problems of a batch -------------------------------------------------------------------------------


@dataclass(frozen=True)
class SampleBatch:
    r"""Problems known by their samples, :math:`L_b(\theta) = \sum_i d_{bi}\, \ell(y_{bi}, z_{bi}'\theta)`.

    The columns of z are those of X less ``offset``, times ``inverse_scale``; neither is applied to X. With
    ``constant`` a column of ones stands behind them.

    Attributes
    ----------
    X : array of shape (B, n, p), or (n, p) if all problems share it
    y, d : arrays of shape (B, n)
        Targets, and sample weights that sum to one in every problem.
    offset, inverse_scale : arrays of shape (B, p), or None
    constant : bool
    loss : str
        "quadratic" or "logistic".

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.solvers.first_order.arrays import SampleBatch
    >>> batch = SampleBatch(np.eye(2), np.array([[1.0, 0.0], [0.0, 4.0]]), np.full((2, 2), 0.5))
    >>> batch.gradient(np.zeros((2, 2))) + 0.0
    array([[-0.5,  0. ],
           [ 0. , -2. ]])
    """

    X: object
    y: object
    d: object
    offset: object = None
    inverse_scale: object = None
    constant: bool = False
    loss: str = "quadratic"

    @property
    def width(self) -> int:
        """Coefficients of a problem."""
        return self.X.shape[-1] + self.constant

    def take(self, keep) -> SampleBatch:
        """The problems at these places, or in this slice."""
        own = ("y", "d", "offset", "inverse_scale") + (("X",) if self.X.ndim == 3 else ())
        parts = {name: getattr(self, name) for name in own}
        return replace(self, **{name: part[keep] for name, part in parts.items() if part is not None})

    def predictor(self, theta):
        """``z theta`` for every sample."""
        slopes = theta[:, : self.X.shape[-1]]
        u = slopes if self.inverse_scale is None else slopes * self.inverse_scale
        eta = u @ self.X.T if self.X.ndim == 2 else (self.X @ u[:, :, None])[:, :, 0]
        if self.offset is not None:
            eta = eta - (u * self.offset).sum(-1)[:, None]
        return eta + theta[:, -1:] if self.constant else eta

    def transposed(self, r):
        """``z' r``, r with a number for every sample."""
        product = r @ self.X if self.X.ndim == 2 else (r[:, None, :] @ self.X)[:, 0]
        total = r.sum(-1)[:, None]
        if self.offset is not None:
            product = product - total * self.offset
        if self.inverse_scale is not None:
            product = product * self.inverse_scale
        return namespace(product).concatenate([product, total], -1) if self.constant else product

    def gradient(self, theta):
        slope = LOSSES[self.loss][0](self.predictor(theta), self.y, namespace(theta))
        return self.transposed(self.d * slope)

    def loss_values(self, theta):
        value = LOSSES[self.loss][1](self.predictor(theta), self.y, namespace(theta))
        return (self.d * value).sum(-1)

    def matrices(self):
        """z of every problem, of shape (B, n, width)."""
        xp = namespace(self.y)
        Z = self.X if self.X.ndim == 3 else xp.broadcast_to(self.X, (self.y.shape[0], *self.X.shape))
        if self.offset is not None:
            Z = Z - self.offset[:, None, :]
        if self.inverse_scale is not None:
            Z = Z * self.inverse_scale[:, None, :]
        return xp.concatenate([Z, xp.ones_like(Z[:, :, :1])], -1) if self.constant else Z

    def parts(self, elements: int = 1 << 25):
        """The batch in parts whose matrices, copied for a moment, have about so many elements."""
        count, n = self.y.shape
        step = max(1, elements // max(n * self.width, 1))
        return (self.take(slice(start, start + step)) for start in range(0, count, step))

    def gram(self) -> GramBatch:
        """The same problems by their moments (least squares alone)."""
        xp = namespace(self.y)
        grams = []
        for part in self.parts():
            Z = part.matrices()
            grams.append(xp.swapaxes(Z * part.d[:, :, None], 1, 2) @ Z)
        return GramBatch(xp.concatenate(grams), self.transposed(self.d * self.y))

    def lipschitz(self):
        """The Lipschitz constant of every problem's gradient; 1 where it is 0."""
        xp = namespace(self.y)
        found = []
        for part in self.parts():
            Z = part.matrices() * xp.sqrt(part.d)[:, :, None]
            turned = xp.swapaxes(Z, 1, 2)
            # ZZ' and Z'Z have the same largest eigenvalue
            found.append(largest_eigenvalues(Z @ turned if Z.shape[1] < Z.shape[2] else turned @ Z))
        largest = LOSSES[self.loss][2] * xp.concatenate(found)
        return xp.where(largest > 0, largest, 1.0)


@dataclass(frozen=True)
class GramBatch:
    r"""Problems of least squares by their moments, :math:`\nabla L_b(\theta) = G_b \theta - c_b`.

    Attributes
    ----------
    gram : array of shape (B, p, p), or (p, p) if all problems share it
    c : array of shape (B, p)

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.solvers.first_order.arrays import GramBatch
    >>> GramBatch(2.0 * np.eye(2), np.array([[1.0, 0.0]])).gradient(np.array([[1.0, 1.0]]))
    array([[1., 2.]])
    """

    gram: object
    c: object

    def take(self, keep) -> GramBatch:
        return GramBatch(self.gram[keep] if self.gram.ndim == 3 else self.gram, self.c[keep])

    def gradient(self, theta):
        if self.gram.ndim == 2:
            return theta @ self.gram - self.c
        return (self.gram @ theta[:, :, None])[:, :, 0] - self.c

    def lipschitz(self):
        largest = largest_eigenvalues(self.gram if self.gram.ndim == 3 else self.gram[None])
        return namespace(largest).where(largest > 0, largest, 1.0)


def largest_eigenvalues(matrices):
    """The largest eigenvalue of every matrix; they are symmetric and without negative eigenvalues.

    On a device, whose solvers for eigenvalues take one matrix after another, by
    :func:`eigenvalues_by_powers`.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.solvers.first_order.arrays import largest_eigenvalues
    >>> largest_eigenvalues(np.array([[[2.0, 1.0], [1.0, 2.0]]])).round(12)
    array([3.])
    """
    if on_host(matrices):
        return namespace(matrices).linalg.eigvalsh(matrices)[:, -1]
    return eigenvalues_by_powers(matrices)


def eigenvalues_by_powers(matrices):
    r"""The same by products of matrices alone.

    The columns of :math:`A^{2^k}` turn towards the first eigenvector. The Rayleigh quotient of the longest is
    too small by at most :math:`1 / (2^{k+1} e)` of itself, whatever the gap to the next eigenvalue is.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.solvers.first_order.arrays import eigenvalues_by_powers
    >>> eigenvalues_by_powers(np.array([[[2.0, 1.0], [1.0, 2.0]], np.zeros((2, 2))])).round(12)
    array([3., 0.])
    """
    xp = namespace(matrices)
    power = matrices
    for _ in range(_SQUARINGS):
        size = xp.amax(xp.abs(power), (1, 2))[:, None, None]
        power = power / xp.where(size > 0, size, 1.0)
        power = power @ power
    longest = xp.argmax((power * power).sum(1), -1)[:, None, None]
    along = xp.take_along_axis if xp is np else xp.take_along_dim
    v = along(power, xp.broadcast_to(longest, (*power.shape[:2], 1)), 2)
    square = (v * v).sum((1, 2))
    return (v * (matrices @ v)).sum((1, 2)) / xp.where(square > 0, square, 1.0)
