r"""The graphical problem in the coordinates that every solver takes.

.. math:: \min_{\Theta \succ 0}\; F(\Theta) = \mathrm{tr}(S\Theta) - \log\det\Theta
          + 2 \sum_{i < j} P_\alpha(\Theta_{ij})

The vector ``theta`` holds the edges, that is the entries above the diagonal row by row, and then the
diagonal, which is never penalized. The first-order solvers see ``F / 2`` as a function of it, in which the
slope of an edge is simply :math:`S_{ij} - W_{ij}` with :math:`W = \Theta^{-1}`. S is a correlation matrix:
the scales of the variables are taken out before, and put into the factors of the penalty.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ...penalties.base import PenaltyProtocol
from ...solvers.gram import cholesky, cholesky_inverse


class Point(NamedTuple):
    """A matrix and its Cholesky factor, None where it is not positive definite."""

    Theta: np.ndarray
    factor: np.ndarray | None


@dataclass(frozen=True)
class GraphicalProblem:
    """A correlation matrix, a penalty of its edges and diagonal, and its alpha.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.penalties import TrimmedL1
    >>> from trimreg.graphs.solver.problem import GraphicalProblem
    >>> S, penalty = np.array([[1.0, 0.6], [0.6, 1.0]]), TrimmedL1(h=1).bind(1).extended(2)
    >>> problem = GraphicalProblem(S, penalty, alpha=0.5)
    >>> problem.vector(np.linalg.inv(problem.S)).round(4)
    array([-0.9375,  1.5625,  1.5625])
    >>> round(problem.objective(problem.vector(np.linalg.inv(problem.S))), 4)
    0.7769
    """

    S: np.ndarray
    penalty: PenaltyProtocol  # bound to the edges, extended by the diagonal
    alpha: float
    positive: bool = field(default=False, init=False)
    precision: float = field(default=float(np.finfo(float).eps), init=False)

    def at(self, alpha: float) -> GraphicalProblem:
        """The same problem for another alpha."""
        return replace(self, alpha=alpha)

    def freeing(self, h: int) -> GraphicalProblem:
        """The same problem for another number of free edges."""
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

    # -- between vectors and matrices --------------------------------------------------------------

    @cached_property
    def pairs(self):
        """Rows and columns of the edges."""
        return np.triu_indices(self.p, 1)

    @cached_property
    def _flat(self):
        """Places of the edges above and below the diagonal in a matrix that is written out row by row."""
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

    # -- what the first-order solvers ask for ------------------------------------------------------

    def predictor(self, theta) -> Point:
        Theta = self.matrix(theta)
        return Point(Theta, cholesky(Theta) if np.isfinite(theta).all() else None)

    def origin(self) -> Point:
        """The model without edges."""
        return Point(np.eye(self.p), np.eye(self.p))

    def loss_value(self, point: Point) -> float:
        """Half of ``tr(S Theta) - log det Theta``; inf where Theta is not positive definite."""
        if point.factor is None:
            return np.inf
        return float(np.vdot(self.S, point.Theta) / 2 - np.log(np.diagonal(point.factor)).sum())

    def gradient(self, point: Point) -> np.ndarray:
        """Of the loss in theta: ``S_ij - W_ij`` for an edge, half of it on the diagonal."""
        slope = self.vector(self.S - cholesky_inverse(point.factor))
        slope[self.n_edges :] /= 2
        return slope

    def weights(self, theta, gradient):
        """The penalty's weights at theta; ties go to the larger gradient."""
        return self.penalty.weights(theta, self.alpha, gradient)

    def objective(self, theta, point=None):
        """``F / 2``."""
        point = self.predictor(theta) if point is None else point
        return self.loss_value(point) + self.penalty.value(theta, self.alpha)

    def lipschitz(self) -> float:
        """The curvature of log det has no bound."""
        return np.inf

    def local_lipschitz(self, point: Point) -> float:
        r""":math:`\|W\|_2^2`: the Hessian in theta at that point has no larger eigenvalue."""
        return float(np.linalg.eigvalsh(point.Theta)[0] ** -2)

    def exact_threshold(self) -> float:
        r"""The alpha above which a local minimum has at most h edges.

        A penalized edge that is not zero has :math:`\alpha f_{ij} = |S_{ij} - W_{ij}|`. The diagonal is not
        penalized, so :math:`W_{ii} = S_{ii} = 1`, hence :math:`|W_{ij}| < 1` and the right side is below
        :math:`1 + |S_{ij}|`: beyond the largest :math:`(1 + |S_{ij}|) / f_{ij}` there is no such edge.
        """
        factor = self.penalty.levels(1.0)[: self.n_edges]
        regular = (factor > 0) & np.isfinite(factor)
        return float(np.max((1.0 + np.abs(self.S[self.pairs][regular])) / factor[regular], initial=0.0))
