r"""The input of the diagnostics of graphical models: S, Theta, and the edges in the penalty's coordinates.

Everything is recomputed from S and Theta in float64. Theta is decomposed through the eigenvalues of

.. math:: M = D \Theta D, \qquad D = \mathrm{diag}(\Theta_{ii}^{-1/2}),

which has a unit diagonal, so variables in very different units do not make it ill-conditioned.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...diagnostics.arguments import flag, matrix, number
from ...penalties import Penalty, get_penalty

_EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class GraphPoint:
    """S and Theta on the scale of the penalty (the correlation scale if standardized), and the penalty."""

    S: np.ndarray
    theta: np.ndarray
    penalty: Any  # bound to the edges, the pairs i < j in the order of np.triu_indices(p, 1)
    alpha: float
    scale: np.ndarray  # the penalty acts on scale_i scale_j Theta_ij, with Theta in the units of the data
    symmetric: bool  # whether the given precision is symmetric to the last digit
    eps: float  # relative rounding error of the given precision

    @property
    def p(self) -> int:
        return self.S.shape[0]

    @cached_property
    def pairs(self) -> tuple:
        """The rows and the columns of the edges."""
        return np.triu_indices(self.p, 1)

    def edges(self, A: np.ndarray) -> np.ndarray:
        """The entries of A at the edges."""
        return A[self.pairs]

    def spread(self, values: np.ndarray, diagonal: float = 0.0) -> np.ndarray:
        """The symmetric matrix with these values at the edges."""
        A = np.full((self.p, self.p), diagonal)
        A[self.pairs] = values
        A[self.pairs[::-1]] = values
        return A

    def pair(self, edge: Any) -> tuple[int, int]:
        """The two variables of an edge."""
        return int(self.pairs[0][edge]), int(self.pairs[1][edge])

    @cached_property
    def factor(self) -> np.ndarray:
        """The penalty factor of every edge."""
        return self.penalty.levels(1.0)

    @cached_property
    def deviation(self) -> np.ndarray:
        """The square root of the diagonal of S."""
        return np.sqrt(np.diag(self.S))

    @cached_property
    def unit(self) -> np.ndarray:
        """``sqrt(S_ii S_jj)`` of every edge."""
        return self.edges(np.outer(self.deviation, self.deviation))

    def correlation(self, moved: Any = 0.0) -> np.ndarray:
        """S less ``moved`` at the edges, in units in which S has a unit diagonal."""
        A = (self.S - self.spread(moved)) / self.deviation[:, None] / self.deviation
        np.fill_diagonal(A, 1.0)
        return A

    @cached_property
    def spectrum(self) -> Any:
        """``D``, the eigenvalues and the eigenvectors of M; None if a diagonal entry is not positive."""
        diagonal = np.diag(self.theta)
        if not (diagonal > 0).all():
            return None
        D = 1.0 / np.sqrt(diagonal)
        return D, *np.linalg.eigh(D[:, None] * self.theta * D)

    @cached_property
    def positive_definite(self) -> bool:
        """Whether all eigenvalues of M exceed their rounding error."""
        if self.spectrum is None:
            return False
        values = self.spectrum[1]
        return bool(values[0] > self.p * _EPS * values[-1])

    @cached_property
    def inverse(self) -> np.ndarray:
        """``W``, the inverse of Theta."""
        D, values, vectors = self.spectrum
        W = D[:, None] * ((vectors / values) @ vectors.T) * D
        return (W + W.T) / 2

    @cached_property
    def root(self) -> np.ndarray:
        """``G`` with ``Theta = G G'``."""
        D, values, vectors = self.spectrum
        return (vectors * np.sqrt(values)) @ vectors.T / D[:, None]

    @cached_property
    def log_det(self) -> float:
        """The log-determinant of Theta."""
        D, values, _ = self.spectrum
        return float(np.sum(np.log(values)) - 2 * np.sum(np.log(D)))

    @cached_property
    def noise(self) -> np.ndarray:
        """First-order bound on the change of W caused by the rounding of Theta."""
        D, values, _ = self.spectrum
        return self.eps * values[-1] / values[0] ** 2 * np.outer(D, D)

    @cached_property
    def loss(self) -> float:
        """``tr(S Theta) - log det Theta``."""
        return float(np.sum(self.S * self.theta)) - self.log_det

    @cached_property
    def gradient(self) -> np.ndarray:
        """``(S - W)_ij`` at the edges: half the derivative in Theta_ij, which is in both triangles."""
        return self.edges(self.S - self.inverse)


def read_graph(
    S: ArrayLike, precision: ArrayLike, *, penalty: str | Penalty, alpha: float, standardize: bool = False,
    shrinkage: float = 0.0,
) -> GraphPoint:  # fmt: skip
    """The point that these arguments describe; a ``ValueError`` names the argument that is wrong."""
    S, _, _ = symmetric_matrix("S", S)
    p = S.shape[0]
    if p < 2:
        raise ValueError("S must have at least 2 rows: a single variable has no edges")
    diagonal = np.diag(S)
    if not (diagonal > 0).all():
        bad = int(np.argmin(diagonal))
        raise ValueError(f"S must have a positive diagonal; got {diagonal[bad]:g} for variable {bad}")
    theta, symmetric, eps = symmetric_matrix("precision", precision, p)
    alpha = number("alpha", alpha, minimum=0.0)
    shrinkage = number("shrinkage", shrinkage, minimum=0.0)
    if shrinkage > 1:
        raise ValueError(f"shrinkage must lie between 0 and 1; got {shrinkage:g}")
    S = np.where(np.eye(p, dtype=bool), S, (1 - shrinkage) * S)
    scale = np.ones(p)
    if flag("standardize", standardize):
        scale = np.sqrt(diagonal)
        S = S / scale[:, None] / scale
        np.fill_diagonal(S, 1.0)
        theta = scale[:, None] * theta * scale
    bound: Any = get_penalty(penalty).bind(p * (p - 1) // 2)
    if bound.norm.q is not None or not bound.majorizes:
        raise ValueError(f"penalty must weigh single edges (TrimmedL1, L1, MCP, SCAD); got {penalty!r}")
    point = GraphPoint(S, theta, bound, alpha, scale, symmetric, eps)
    # Edges within rounding of 0 count as 0, except for excluded ones.
    size = np.sqrt(np.abs(np.diag(theta)))
    tiny = np.abs(theta) <= 4 * _EPS * np.outer(size, size)
    tiny &= ~point.spread(np.isinf(point.factor), False) & ~np.eye(p, dtype=bool)
    theta[tiny] = 0.0
    return point


def symmetric_matrix(name: str, value: Any, p: int | None = None) -> tuple[np.ndarray, bool, float]:
    """``value`` as a symmetric matrix, whether it was exactly symmetric, and the eps of its dtype.

    Relative differences between the triangles up to 1e-8 count as rounding, and are averaged.
    """
    if p is None:
        try:
            shape = np.shape(value)
        except ValueError:
            raise ValueError(f"{name} must be a square matrix; got rows of different lengths") from None
        if len(shape) != 2 or shape[0] != shape[1] or shape[0] == 0:
            raise ValueError(f"{name} must be a square matrix; got shape {shape}")
        p = shape[0]
    kind = getattr(value, "dtype", np.dtype(float))
    eps = float(np.finfo(kind).eps) if np.issubdtype(kind, np.floating) else _EPS
    A = matrix(name, value, (p, p))
    exact = bool((A == A.T).all())
    size = np.sqrt(np.abs(np.diag(A)))
    allowed = max(1e-8, 8 * eps) * np.maximum(np.outer(size, size), np.abs(A))
    difference = np.abs(A - A.T)
    if (difference > np.maximum(allowed, allowed.T)).any():
        i, j = np.unravel_index(np.argmax(difference), difference.shape)
        raise ValueError(
            f"{name} must be symmetric; got {A[i, j]:g} and {A[j, i]:g} for variables {i} and {j}"
        )
    return A / 2 + A.T / 2, exact, max(eps, _EPS)
