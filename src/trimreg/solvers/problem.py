"""The problem that every solver takes: a design, a loss with its data, a penalty and its alpha."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..designs.base import Design
from ..losses.base import Loss
from ..penalties.base import PenaltyProtocol


@dataclass(frozen=True)
class Problem:
    r"""Minimize :math:`F(\theta) = L(Z\theta) + P_\alpha(\theta)`, over ``theta >= 0`` if ``positive``."""

    design: Design
    loss: Loss
    y: np.ndarray
    d: np.ndarray  # sample weights, summing to one
    penalty: PenaltyProtocol  # bound to the design's number of features
    alpha: float
    positive: bool = False

    def at(self, alpha: float) -> Problem:
        """The same problem for another alpha."""
        return replace(self, alpha=alpha)

    @property
    def n_features(self) -> int:
        return self.design.shape[1]

    def predictor(self, theta):
        return self.design.matvec(theta)

    def loss_value(self, eta):
        return self.loss.value(eta, self.y, self.d)

    def gradient(self, eta):
        """Gradient of the loss in theta at the linear predictor ``eta``: one pass over X."""
        return self.design.rmatvec(self.loss.gradient(eta, self.y, self.d))

    def weights(self, theta, gradient):
        """The penalty's weights at theta. Ties, zeros above all, go to the larger gradient.

        Under ``theta >= 0`` only its negative part counts: a coordinate at 0 that its constraint holds
        back has nothing to gain from being free.
        """
        pull = np.minimum(gradient, 0.0) if self.positive else gradient
        return self.penalty.weights(theta, self.alpha, pull)

    def free_set(self, theta, gradient):
        """The coordinates that a trimmed penalty frees at theta; those it never penalizes are not counted."""
        levels = self.penalty.thresholds(np.ones_like(theta), 1.0)
        return np.flatnonzero((self.weights(theta, gradient) == 0) & (levels > 0))

    def objective(self, theta, eta=None):
        eta = self.predictor(theta) if eta is None else eta
        return self.loss_value(eta) + self.penalty.value(theta, self.alpha)

    def lipschitz(self) -> float:
        r"""The constant :math:`L_f` of the gradient: ``curvature bound * ||Z' diag(d) Z||_2``.

        The largest eigenvalue is taken by Lanczos to machine precision, so that ``1/L_f`` is a step
        for which the paper's theorem holds.
        """
        from scipy.sparse.linalg import LinearOperator, eigsh

        if not np.isfinite(self.loss.curvature_bound):
            raise ValueError(
                f"the loss {self.loss.name!r} has no bounded curvature, so there is no default step; "
                "give eta= or use solver='mm'"
            )
        p = self.n_features
        if p <= 2:
            hessian = self.design.gram(np.arange(p), self.d, np.arange(p))
            largest = float(np.linalg.eigvalsh(hessian)[-1])
        else:
            norms = self.design.column_norms(self.d)
            unit = float(norms.max())
            if unit == 0.0:  # a gradient that never changes: any constant will do
                return self.loss.curvature_bound
            normal = LinearOperator(  # of columns divided by the longest, so that nothing overflows
                (p, p),
                matvec=lambda v: self.design.rmatvec(self.d * self.design.matvec(v.ravel() / unit)) / unit,
                dtype=float,
            )
            # Unequal entries, lest the start be orthogonal to the eigenvector of mirrored columns.
            start = (norms / unit + 1e-3) * (1.0 + 0.5 * np.cos(np.arange(p)))
            largest = float(eigsh(normal, k=1, v0=start / np.linalg.norm(start))[0][0]) * unit**2
        return (largest if largest > 0 else 1.0) * self.loss.curvature_bound

    def exact_threshold(self) -> float:
        r"""The alpha above which every local minimum of trimmed least squares has at most h nonzeros.

        A penalized nonzero j has ``alpha f_j = |z_j' D r| <= ||z_j||_D ||y||_D``, since a local minimum has a
        residual no longer than y's: beyond ``max_j ||z_j||_D ||y||_D / f_j`` there is none. Features
        with factor 0 are not counted.
        """
        factor = self.penalty.thresholds(np.ones(self.n_features), 1.0)
        regular = (factor > 0) & np.isfinite(factor)
        norms = self.design.column_norms(self.d)[regular]
        length = np.sqrt(2.0 * self.loss_value(np.zeros_like(self.y)))
        return float(length * np.max(norms / factor[regular], initial=0.0))

    def normalized(self) -> tuple[Problem, np.ndarray]:
        """The same problem for columns of norm one, and the norms.

        Coefficients of the new problem are the old ones times the norms; the magnitudes ``r_j`` and
        the penalty do not change. Gram matrices then have a unit diagonal, whatever the
        units of X. A column of zeros keeps norm 1 here and a zero diagonal.
        """
        norms = self.design.column_norms(self.d)
        norms = np.where(norms > 0, norms, 1.0)
        design = self.design.rescaled(1.0 / norms)
        return replace(self, design=design, penalty=self.penalty.rescaled(norms)), norms
