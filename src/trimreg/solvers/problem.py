"""The problem that every solver takes: a design, a loss with its data, a penalty and its alpha."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..designs.base import Design
from ..losses.base import Loss
from ..penalties.base import subgradient_residual

_EPS = float(np.finfo(float).eps)
_WIDEST = 1000  # columns of far data whose Gram matrix is worth a pass, however many fits share it


@dataclass(frozen=True)
class Problem:
    r"""Minimize :math:`F(\theta) = L(Z\theta) + \frac12 \sum_j \rho_j \theta_j^2 + P_\alpha(\theta)`.

    The first two terms are its smooth part. ``bounds`` holds a lower and an upper bound per coordinate, with
    0 between them; only single coefficients may have them. Arrays of weights and thresholds have one
    value per part of the penalty's norm; a part is a coefficient or a group of them.
    """

    design: Design
    loss: Loss
    y: np.ndarray
    d: np.ndarray  # sample weights, summing to one
    penalty: Any  # a Penalty, bound to the design's number of features
    alpha: float
    ridge: Any = 0.0  # rho, one per coordinate; a number is taken for all of them
    few: Any = None  # the design and the target of :meth:`compressed`, if they are known
    bounds: tuple[np.ndarray, np.ndarray] | None = None

    def __post_init__(self) -> None:
        if np.ndim(self.ridge) == 0:
            object.__setattr__(self, "ridge", np.full(self.n_features, float(self.ridge)))

    def at(self, alpha: float) -> Problem:
        """The same problem for another alpha."""
        return replace(self, alpha=alpha)

    def freeing(self, h: int) -> Problem:
        """The same problem for another number of free parts."""
        return replace(self, penalty=self.penalty.freeing(h))

    def restricted(self, parts: np.ndarray) -> Problem:
        """The problem on these parts alone; all others are fixed at 0."""
        W = self.penalty.norm.coordinates(parts)
        design, penalty = self.design.restricted(W), self.penalty.restricted(parts)
        ridge = self.ridge[W]
        bounds = None if self.bounds is None else (self.bounds[0][W], self.bounds[1][W])
        part = replace(self, design=design, penalty=penalty, ridge=ridge, few=None)
        return replace(part, bounds=bounds)

    @property
    def n_features(self) -> int:
        return self.design.shape[1]

    @property
    def near(self) -> bool:
        """Whether X is in memory; otherwise every product is a pass over far data."""
        return self.design.near

    @property
    def n_samples(self) -> float:
        """The number of samples of positive weight, also if few rows stand for them; inf for a function."""
        return (
            np.inf
            if not self.loss.has_samples
            else int(np.count_nonzero(self.design.uncompressed(self.d)[1]))
        )

    def worth_compressing(self, fits: int = 1) -> bool:
        """Whether to solve on few rows: for least squares of moderate width, if X is far and long.

        The more ``fits`` there are, the more passes over X are saved by the Gram matrix of all columns.
        """
        if self.near or not self.loss.least_squares or self.few is not None:
            return self.few is not None
        p, widest = self.n_features // self.loss.n_outputs, self.design.widest_gram
        fewer = p + self.loss.n_outputs < np.count_nonzero(self.d)
        return bool(fewer and p <= max(widest, min(fits * widest, _WIDEST)))

    def compressed(self) -> Problem:
        r"""The problem on few rows of equal weight, with the same objective; takes one pass over X.

        .. math:: \tfrac12 \sum_i d_i (y_i - z_i'\theta)^2 = \tfrac1{2m} \sum_{i=1}^m (r_i - R_i'\theta)^2
        """
        design, y = self.few or self.design.compressed(self.y, self.d)
        return replace(self, design=design, y=y, d=np.full(len(y), 1.0 / len(y)), few=None)

    @property
    def precision(self) -> float:
        """The rounding of a product with the design: that of float64, however its numbers are stored."""
        return _EPS

    def predictor(self, theta: np.ndarray) -> np.ndarray:
        return self.design.matvec(theta)

    def origin(self) -> np.ndarray:
        """The linear predictor of theta = 0."""
        n = self.y.shape[0]
        return np.zeros((n, self.loss.n_outputs) if self.loss.multi_output else n)

    def loss_value(self, eta: np.ndarray) -> float:
        return self.loss.value(eta, self.y, self.d)

    def smooth_value(self, theta: np.ndarray, eta: np.ndarray) -> float:
        """The loss and the ridge term at theta, whose linear predictor is ``eta``."""
        return self.loss_value(eta) + 0.5 * float(self.ridge @ theta**2)

    def loss_gradient(self, eta: np.ndarray) -> np.ndarray:
        """Gradient of the loss in theta at the linear predictor ``eta``: one pass over X."""
        return self.design.rmatvec(self.loss.gradient(eta, self.y, self.d))

    def gradient(self, theta: np.ndarray, eta: np.ndarray | None = None) -> np.ndarray:
        """Gradient of the smooth part at theta; its linear predictor ``eta`` is computed unless given."""
        return self.loss_gradient(self.predictor(theta) if eta is None else eta) + self.ridge * theta

    def slope(self, eta: np.ndarray) -> float:
        """The length of the losses' slopes: a bound of the gradient of a column of norm one."""
        live = self.d > 0
        slope = self.loss.gradient(eta, self.y, self.d)[live]
        with np.errstate(over="ignore"):
            return float(np.sqrt(np.sum(slope.T**2 / self.d[live])))

    def null_slope(self) -> float:
        """The slope at the best constant predictor; inf where the gradient at 0 says as much.

        A loss without a bound on its curvature may have a huge gradient at 0: Gamma's is the mean of y. It
        says nothing about gradients near the solution. Slopes that are rounding give way to the curvature.
        """
        if np.isfinite(self.loss.curvature_bound):
            return np.inf
        eta = self.origin() + np.asarray(self.loss.null_predictor(self.y, self.d))
        live = self.d > 0
        curvature = self.loss.curvature(eta, self.y, self.d)[live]
        slope = max(self.slope(eta), float(np.sqrt(np.sum(curvature.T**2 / self.d[live]))))
        return slope if slope > 1e-20 else np.inf  # all counts are 0

    def gradient_scale(self) -> float:
        """The largest gradient at theta = 0, or the bound of those at the best constant predictor if less."""
        scale, slope = (
            float(np.max(np.abs(self.loss_gradient(self.origin())), initial=0.0)),
            self.null_slope(),
        )
        if np.isfinite(slope):
            scale = min(scale, slope * float(np.max(self.design.column_norms(self.d), initial=0.0)))
        return scale

    def hessian(self, eta: np.ndarray, W: np.ndarray, *, of_step: bool = False) -> np.ndarray:
        """The Hessian of the smooth part in theta, on the coordinates W; ``of_step`` for a Newton step."""
        gram = self.loss.step_gram if of_step else self.loss.gram
        hessian = gram(self.design, W, eta, self.y, self.d)
        hessian.flat[:: len(W) + 1] += self.ridge[W]
        return hessian

    def weights(self, theta: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """The penalty's weights at theta. Ties, zeros above all, go to the larger gradient.

        Only the part of the gradient counts that the bounds allow to follow: a coordinate that its bound
        keeps at 0 gains nothing from being free.
        """
        pull = gradient
        if self.bounds is not None:
            pull = subgradient_residual(theta, gradient, 0.0, self.bounds)
        return self.penalty.weights(theta, self.alpha, pull)

    def residual(self, theta: np.ndarray, gradient: np.ndarray, threshold: np.ndarray) -> np.ndarray:
        """The subgradient nearest to 0 of the weighted problem with these thresholds and the constraints."""
        return self.penalty.norm.residual(theta, gradient, threshold, self.bounds)

    def stationarity(self, theta: np.ndarray, weights: np.ndarray) -> float:
        """The paper's T, from a gradient computed anew."""
        return self.penalty.stationarity(theta, weights, self.gradient(theta), self.alpha, self.bounds)

    def weights_freeing(self, theta: np.ndarray, free: np.ndarray) -> np.ndarray:
        """The penalty's weights at theta. Ties go to the parts of ``free``."""
        pull = np.zeros_like(theta)
        pull[self.penalty.norm.coordinates(free)] = -1.0
        return self.weights(theta, pull)

    def weights_of(self, free: np.ndarray) -> np.ndarray:
        """The weights of a trimmed penalty that frees these parts; vacant places go to the first others."""
        levels = self.penalty.levels(1.0)
        weights = (levels > 0).astype(float)
        weights[free] = 0.0
        if free.size < self.penalty.n_free:
            penalized = np.flatnonzero((weights > 0) & np.isfinite(levels))
            weights[penalized[: self.penalty.n_free - free.size]] = 0.0
        return weights

    def free_set(self, theta: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        """The parts that a trimmed penalty frees at theta, without those that it never penalizes."""
        return np.flatnonzero((self.weights(theta, gradient) == 0) & (self.penalty.levels(1.0) > 0))

    def objective(self, theta: np.ndarray, eta: np.ndarray | None = None) -> float:
        eta = self.predictor(theta) if eta is None else eta
        return self.smooth_value(theta, eta) + self.penalty.value(theta, self.alpha)

    def lipschitz(self) -> float:
        r"""The constant :math:`L_f` of the gradient, or inf.

        It is ``curvature bound * ||Z' diag(d) Z||_2`` plus the largest ridge. The largest eigenvalue is
        computed by Lanczos to machine precision, so that the paper's theorem holds for the step ``1/L_f``.
        """
        bound = self.loss.curvature_bound
        return bound * self.spectral_norm() + self._largest_ridge() if np.isfinite(bound) else np.inf

    def local_lipschitz(self, eta: np.ndarray) -> float:
        """The same with the curvature at the linear predictor ``eta``, for losses without a bound."""
        live = self.d > 0
        curvature = self.loss.curvature(eta, self.y, self.d)[live].T / self.d[live]
        largest = float(np.max(curvature, initial=0.0))
        largest = largest if 0 < largest < np.inf else 1.0
        return largest * self.spectral_norm() + self._largest_ridge()

    def _largest_ridge(self):
        return float(np.max(self.ridge, initial=0.0))

    def spectral_norm(self) -> float:
        """The largest eigenvalue of ``Z' diag(d) Z`` (1 if it is 0: a gradient that never changes)."""
        from scipy.sparse.linalg import LinearOperator, eigsh

        p = self.n_features
        norms = self.design.column_norms(self.d)
        unit = float(norms.max(initial=0.0))
        if unit == 0.0:
            return 1.0
        if not 1e-152 < unit < 1e152:
            raise ValueError(
                "X must have a longest column of norm between 1e-152 and 1e152 for a first-order solver; got "
                f"{unit:.3g}; rescale X or pass standardize=True"
            )
        if p <= 2:
            hessian = self.design.gram(np.arange(p), self.d, np.arange(p))
            largest = float(np.linalg.eigvalsh(hessian)[-1])
        else:

            def normal_product(v):  # of columns divided by the longest, so that nothing overflows
                eta = self.design.matvec(v.ravel() / unit)
                return self.design.rmatvec((self.d * eta.T).T) / unit

            normal = LinearOperator((p, p), matvec=normal_product, dtype=float)
            # Unequal entries: otherwise the start can be orthogonal to the eigenvector of mirrored columns.
            start = (norms / unit + 1e-3) * (1.0 + 0.5 * np.cos(np.arange(p)))
            largest = float(eigsh(normal, k=1, v0=start / np.linalg.norm(start))[0][0]) * unit**2
        return largest if largest > 0 else 1.0

    def exact_threshold(self) -> float:
        r"""The alpha above which every local minimum of a trimmed problem has at most h nonzeros.

        A penalized nonzero j has ``alpha f_j <= |z_j' g|`` with g the gradient of the loss in the predictor
        (equal without a ridge, whose slope has the sign of the penalty's). A local minimum minimizes a convex
        problem in which 0 is feasible, so its loss is at most that of 0, and ``||g/d||_D`` is at most the
        loss's ``slope_bound``. Hence there is no penalized nonzero if alpha exceeds ``max_j ||z_j||_D
        slope_bound / f_j``. For least squares the bound is ``||y||_D``. For a group ``|z_j' g|`` is the dual
        norm of its products, at most that of its column norms. Parts with factor 0 do not count.
        """
        factor = self.penalty.levels(1.0)
        regular = (factor > 0) & np.isfinite(factor)
        # The entries of a row share a column: together, in l2, they obey the bound of a single one.
        outputs = np.sqrt(self.loss.n_outputs)
        norms = self.penalty.norm.dual_lengths(self.design.column_norms(self.d)) / outputs
        slope = self.loss.slope_bound(self.y, self.d)
        return float(slope * np.max(norms[regular] / factor[regular], initial=0.0))

    def normalized(self) -> tuple[Problem, np.ndarray]:
        """The same problem for columns of norm one (of mean square one in a group), and the norms.

        The squared norm of a column includes its ridge. Coefficients of the new problem are the old ones
        times the norms; the magnitudes ``r_j`` and the penalty do not change. Gram matrices plus the ridge
        then have a unit diagonal, whatever the units of X. A column of zeros is given the norm 1 here and has
        a zero diagonal.
        """
        columns = self.design.column_norms(self.d)
        norms = self.penalty.norm.common(np.hypot(columns, np.sqrt(self.ridge)))
        norms = np.where(norms > 0, norms, 1.0)
        design = self.design.rescaled(1.0 / norms)
        penalty, ridge = self.penalty.rescaled(norms), self.ridge / norms / norms
        bounds = None if self.bounds is None else (self.bounds[0] * norms, self.bounds[1] * norms)
        normal = replace(self, design=design, penalty=penalty, ridge=ridge, few=None, bounds=bounds)
        return normal, norms


def feasible_start(problem: Problem, theta0: np.ndarray | None) -> np.ndarray:
    r"""The point nearest to ``theta0`` (0 if it is None) at which the objective is finite.

    .. math:: \arg\min_\theta \|\theta - \theta^0\| \quad\text{with}\quad \theta_j = 0
              \text{ where } f_j = \infty, \quad l \le \theta \le u \text{ for the bounds of the problem.}
    """
    theta = np.zeros(problem.n_features) if theta0 is None else np.array(theta0, dtype=float)
    if theta.shape != (problem.n_features,):
        raise ValueError(f"theta0 must hold {problem.n_features} coefficients; got shape {theta.shape}")
    if not np.isfinite(theta).all():
        raise ValueError(f"theta0 must be finite; got {theta[~np.isfinite(theta)][0]}")
    penalty = problem.penalty
    theta[penalty.norm.spread(np.isinf(penalty.levels(1.0)))] = 0.0
    return feasible(problem, theta)


def feasible(problem: Problem, theta: np.ndarray) -> np.ndarray:
    """The point nearest to theta within the bounds of the problem."""
    return clipped(theta, problem.bounds)


def clipped(theta: np.ndarray, bounds: Any, eps: float = _EPS) -> np.ndarray:
    """The point nearest to theta within the bounds, if any; what is within rounding of a bound is on it."""
    if bounds is None:
        return theta
    for end in bounds:
        theta = np.where(np.isfinite(end) & (np.abs(theta - end) <= 4 * eps * np.abs(end)), end, theta)
    return np.clip(theta, *bounds)
