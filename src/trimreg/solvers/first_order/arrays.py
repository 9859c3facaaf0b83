r"""The problems of a batch, as arrays of NumPy or PyTorch.

Every array has one row per problem; all problems may share ``X`` or the Gram matrix. The functions use only
names that both packages have; ``xp`` is the module (``numpy`` or ``torch``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...losses.base import Loss, namespace

_SQUARINGS = 32


def on_host(array: Any) -> bool:
    """Whether the values of an array can be read without waiting for a device."""
    return isinstance(array, np.ndarray) or array.device.type == "cpu"


def to_numpy(array: Any) -> np.ndarray:
    """A copy of an array in NumPy; bfloat16, which NumPy does not have, becomes float32."""
    if isinstance(array, np.ndarray):
        return np.array(array)
    array = array.detach().cpu()
    return (array.float() if str(array.dtype) == "torch.bfloat16" else array).numpy().copy()


@dataclass(frozen=True)
class SampleBatch:
    r"""Problems given by their samples, :math:`L_b(\theta) = \sum_i d_{bi}\, \ell(y_{bi}, z_{bi}'\theta)`.

    The columns of z are those of X minus ``offset``, times ``inverse_scale``; X itself is not changed. With
    ``constant``, z has a column of ones behind them.
    """

    X: Any  # of shape (B, n, p), or (n, p) if all problems share it
    y: Any  # of shape (B, n)
    d: Any  # of shape (B, n): sample weights that sum to one in every problem
    loss: Loss  # array_agnostic
    offset: Any = None  # of shape (B, p)
    inverse_scale: Any = None  # of shape (B, p)
    constant: bool = False
    ridge: float = 0.0  # of the ridge term on all coefficients but the constant

    @property
    def width(self) -> int:
        """Number of coefficients per problem."""
        return self.X.shape[-1] + self.constant

    def take(self, keep: Any) -> SampleBatch:
        """The problems with these indices, or in this slice."""
        own = ("y", "d", "offset", "inverse_scale") + (("X",) if self.X.ndim == 3 else ())
        parts = {name: getattr(self, name) for name in own}
        return replace(self, **{name: part[keep] for name, part in parts.items() if part is not None})

    def predictor(self, theta: Any) -> Any:
        """``z theta`` for every sample."""
        slopes = theta[:, : self.X.shape[-1]]
        u = slopes if self.inverse_scale is None else slopes * self.inverse_scale
        eta = u @ self.X.T if self.X.ndim == 2 else (self.X @ u[:, :, None])[:, :, 0]
        if self.offset is not None:
            eta = eta - (u * self.offset).sum(-1)[:, None]
        return eta + theta[:, -1:] if self.constant else eta

    def transposed(self, r: Any) -> Any:
        """``z' r`` for one number per sample."""
        product = r @ self.X if self.X.ndim == 2 else (r[:, None, :] @ self.X)[:, 0]
        total = r.sum(-1)[:, None]
        if self.offset is not None:
            product = product - total * self.offset
        if self.inverse_scale is not None:
            product = product * self.inverse_scale
        return namespace(product).concatenate([product, total], -1) if self.constant else product

    def gradient(self, theta: Any) -> Any:
        """The gradient of the loss and the ridge term."""
        gradient = self.transposed(self.loss.gradient(self.predictor(theta), self.y, self.d))
        if self.ridge:
            gradient[:, : self.X.shape[-1]] += self.ridge * theta[:, : self.X.shape[-1]]
        return gradient

    def values(self, theta: Any) -> Any:
        """The loss and the ridge term of every problem."""
        loss = (self.d * self.loss.pointwise(self.predictor(theta), self.y)).sum(-1)
        return loss + 0.5 * self.ridge * (theta[:, : self.X.shape[-1]] ** 2).sum(-1)

    def matrices(self) -> Any:
        """z of every problem, of shape (B, n, width)."""
        xp = namespace(self.y)
        Z = self.X if self.X.ndim == 3 else xp.broadcast_to(self.X, (self.y.shape[0], *self.X.shape))
        if self.offset is not None:
            Z = Z - self.offset[:, None, :]
        if self.inverse_scale is not None:
            Z = Z * self.inverse_scale[:, None, :]
        return xp.concatenate([Z, xp.ones_like(Z[:, :, :1])], -1) if self.constant else Z

    def parts(self, elements: int = 1 << 25) -> Iterator[SampleBatch]:
        """The batch in parts whose matrices have about so many elements, to bound the memory for copies."""
        count, n = self.y.shape
        step = max(1, elements // max(n * self.width, 1))
        return (self.take(slice(start, start + step)) for start in range(0, count, step))

    def gram(self) -> GramBatch:
        """The same problems given by their moments (least squares only)."""
        xp = namespace(self.y)
        grams = []
        for part in self.parts():
            Z = part.matrices()
            gram = xp.swapaxes(Z * part.d[:, :, None], 1, 2) @ Z
            every = np.arange(self.X.shape[-1])
            gram[:, every, every] += self.ridge
            grams.append(gram)
        return GramBatch(xp.concatenate(grams), self.transposed(self.d * self.y))

    def lipschitz(self) -> Any:
        """The Lipschitz constant of the gradient for each problem; 1 where it is 0."""
        xp = namespace(self.y)
        found = []
        for part in self.parts():
            Z = part.matrices() * xp.sqrt(part.d)[:, :, None]
            turned = xp.swapaxes(Z, 1, 2)
            # ZZ' and Z'Z have the same largest eigenvalue
            found.append(largest_eigenvalues(Z @ turned if Z.shape[1] < Z.shape[2] else turned @ Z))
        largest = self.loss.curvature_bound * xp.concatenate(found) + self.ridge
        return xp.where(largest > 0, largest, 1.0)


@dataclass(frozen=True)
class GramBatch:
    r"""Least-squares problems given by their moments, :math:`\nabla L_b(\theta) = G_b \theta - c_b`."""

    gram: Any  # of shape (B, p, p), or (p, p) if all problems share it
    c: Any  # of shape (B, p)

    def take(self, keep: Any) -> GramBatch:
        return GramBatch(self.gram[keep] if self.gram.ndim == 3 else self.gram, self.c[keep])

    def gradient(self, theta: Any) -> Any:
        if self.gram.ndim == 2:
            return theta @ self.gram - self.c
        return (self.gram @ theta[:, :, None])[:, :, 0] - self.c

    def lipschitz(self) -> Any:
        largest = largest_eigenvalues(self.gram if self.gram.ndim == 3 else self.gram[None])
        return namespace(largest).where(largest > 0, largest, 1.0)


def largest_eigenvalues(matrices: Any) -> Any:
    """The largest eigenvalue of each matrix; they are symmetric and positive semidefinite.

    On a device, whose eigenvalue solvers take one matrix after another, by :func:`eigenvalues_by_powers`.
    """
    if on_host(matrices):
        return namespace(matrices).linalg.eigvalsh(matrices)[:, -1]
    return eigenvalues_by_powers(matrices)


def eigenvalues_by_powers(matrices: Any) -> Any:
    r"""The largest eigenvalues by products of matrices only.

    The columns of :math:`A^{2^k}` turn toward the first eigenvector. The Rayleigh quotient of the longest is
    too small by at most a factor :math:`1 - 1 / (2^{k+1} e)`, whatever the gap to the next eigenvalue.
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
