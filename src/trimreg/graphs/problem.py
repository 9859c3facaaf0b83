r"""The graphical problem in the coordinates of the solvers.

.. math:: \min_{\Theta \succ 0}\; F(\Theta) = \mathrm{tr}(S\Theta) - \log\det\Theta
          + 2 \sum_{i < j} P_\alpha(\Theta_{ij})

The vector ``theta`` holds the edges (the entries above the diagonal, row by row) followed by the diagonal,
which is never penalized. The solvers minimize ``F / 2`` over it, so that the derivative with respect to an
edge is :math:`S_{ij} - W_{ij}` with :math:`W = \Theta^{-1}`. S is a correlation matrix: the standard
deviations of the variables are moved into the penalty factors.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ..solvers.gram import cholesky, cholesky_inverse


class Factored(NamedTuple):
    """A matrix and its Cholesky factor, which is None if the matrix is not positive definite."""

    Theta: np.ndarray
    factor: Any


@dataclass(frozen=True)
class GraphicalProblem:
    """A correlation matrix, a penalty on its edges, and alpha."""

    S: np.ndarray
    penalty: Any  # bound to the edges, extended by the diagonal
    alpha: float
    bounds = None  # entries have none
    precision: float = field(default=float(np.finfo(float).eps), init=False)

    def at(self, alpha: float) -> GraphicalProblem:
        """The same problem with another alpha."""
        return replace(self, alpha=alpha)

    def freeing(self, h: int) -> GraphicalProblem:
        """The same problem with another number of free edges."""
        return replace(self, penalty=self.penalty.freeing(h))

    @property
    def p(self) -> int:
        return self.S.shape[0]

    @property
    def n_edges(self) -> int:
        """The number of pairs."""
        return self.p * (self.p - 1) // 2

    @property
    def n_features(self) -> int:
        return self.n_edges + self.p

    @cached_property
    def regular(self) -> np.ndarray:
        """Mask of the edges that are penalized and not excluded."""
        factor = self.penalty.levels(1.0)[: self.n_edges]
        return (factor > 0) & np.isfinite(factor)

    def alphas_per_correlation(self, correlations: np.ndarray | None = None) -> np.ndarray:
        r""":math:`|c_{ij}| / f_{ij}` for the regular edges; c is S by default, f the penalty factors."""
        factor = self.penalty.levels(1.0)[: self.n_edges][self.regular]
        c = self.S[self.pairs] if correlations is None else correlations
        return np.abs(c[self.regular]) / factor

    # -- between vectors and matrices --------------------------------------------------------------

    @cached_property
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of the edges."""
        return np.triu_indices(self.p, 1)

    @cached_property
    def _flat(self):
        """Positions of the edges above and below the diagonal in the flattened matrix."""
        rows, columns = self.pairs
        return rows * self.p + columns, columns * self.p + rows

    def vector(self, matrix: np.ndarray) -> np.ndarray:
        """Edges and diagonal of a symmetric matrix."""
        return np.concatenate([np.take(matrix, self._flat[0]), np.diagonal(matrix)])

    def matrix(self, theta: np.ndarray) -> np.ndarray:
        """The symmetric matrix with these edges and this diagonal."""
        matrix = np.empty(self.p**2)
        for places in self._flat:
            matrix[places] = theta[: self.n_edges]
        matrix[:: self.p + 1] = theta[self.n_edges :]
        return matrix.reshape(self.p, self.p)

    # -- the interface of the first-order solvers ---------------------------------------------------

    def predictor(self, theta: np.ndarray) -> Factored:
        Theta = self.matrix(theta)
        return Factored(Theta, cholesky(Theta) if np.isfinite(theta).all() else None)

    def origin(self) -> Factored:
        """The model without edges."""
        return Factored(np.eye(self.p), np.eye(self.p))

    def gradient_scale(self) -> float:
        """The largest gradient of the model without edges."""
        return float(np.max(np.abs(self.loss_gradient(self.origin())), initial=0.0))

    def loss_value(self, point: Factored) -> float:
        """Half of ``tr(S Theta) - log det Theta``; inf if Theta is not positive definite."""
        if point.factor is None:
            return np.inf
        return float(np.vdot(self.S, point.Theta) / 2 - np.log(np.diagonal(point.factor)).sum())

    def smooth_value(self, theta: np.ndarray, point: Factored) -> float:
        """The loss: there is no ridge term."""
        return self.loss_value(point)

    def gradient(self, theta: np.ndarray, point: Factored | None = None) -> np.ndarray:
        """:meth:`loss_gradient` at theta, whose factorization is ``point``."""
        return self.loss_gradient(self.predictor(theta) if point is None else point)

    def loss_gradient(self, point: Factored) -> np.ndarray:
        """The gradient of the loss in theta: ``S_ij - W_ij`` for an edge, half of that on the diagonal."""
        slope = self.vector(self.S - cholesky_inverse(point.factor))
        slope[self.n_edges :] /= 2
        return slope

    def weights(self, theta: np.ndarray, gradient: np.ndarray | None) -> np.ndarray:
        """The weights of the penalty at theta; ties go to the larger gradient."""
        return self.penalty.weights(theta, self.alpha, gradient)

    def objective(self, theta: np.ndarray, point: Factored | None = None) -> float:
        """``F / 2``."""
        point = self.predictor(theta) if point is None else point
        return self.loss_value(point) + self.penalty.value(theta, self.alpha)

    def lipschitz(self) -> float:
        """Infinity: the curvature of log det is unbounded."""
        return np.inf

    def local_lipschitz(self, point: Factored) -> float:
        r""":math:`\|W\|_2^2`, a bound on the eigenvalues of the Hessian in theta at that point."""
        return float(np.linalg.eigvalsh(point.Theta)[0] ** -2)

    def exact_threshold(self) -> float:
        r"""The alpha above which every local minimum has at most h edges.

        A nonzero penalized edge has :math:`\alpha f_{ij} = |S_{ij} - W_{ij}|`. The diagonal is not
        penalized, so :math:`W_{ii} = S_{ii} = 1`. Hence :math:`|W_{ij}| < 1`, and the right side is below
        :math:`1 + |S_{ij}|`. Above the largest :math:`(1 + |S_{ij}|) / f_{ij}` there is no such edge.
        """
        return float(np.max(self.alphas_per_correlation(1.0 + np.abs(self.S[self.pairs])), initial=0.0))
