r"""The inner problem: a weighted sum of lengths, solved by working sets to a certificate.

.. math:: \min_\theta\; L(Z\theta) + \tfrac12 \sum_j \rho_j \theta_j^2 + \sum_j t_j \|\theta_j\|,
          \qquad 0 \le t_j \le \infty,

over parts ``theta_j`` that are single coefficients or groups. A round costs one pass over X: the gradient at
the current point shows which coordinates violate their optimality condition. They join the support and the
unpenalized coordinates in a working set W, and the quadratic model of L on W is minimized in Gram
coordinates, without touching X. The loop ends when the true gradient shows no violation above the tolerance.
Rounding in the Gram matrix therefore cannot pass for convergence: the next round corrects it, as in iterative
refinement.

The models are minimized by :func:`trimreg.solvers.gram.minimize_block`, for groups by
:mod:`trimreg.solvers.mm.groups`. If the curvature changes with theta, the step is one of
:mod:`trimreg.solvers.mm.newton`: the model is a Newton model, and a line search ensures descent.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple, Self

import numpy as np

from ...penalties.base import subgradient_residual
from ..box import minimize_box
from ..gram import FixedGram, GramCache, minimize_block
from ..problem import Problem, feasible
from .kernels import add_rows, principal, violators
from .newton import LEAST_RIDGE, Moved, newton_step

_FINEST = 50 * float(np.finfo(float).eps)  # below this a gradient is rounding
_LIKELY = 128  # columns that may be fetched along with others
_SMALL = 1 << 19  # elements of X: a pass over so few takes no longer than a copy of some columns
_FELT = 1e-8  # relative to the slopes of a loss: smaller gradients do not change its value
_PATIENCE = 10  # rounds without descent before the solver blames rounding and stops
_FAR, _NEAR = 30.0, 3.0  # times the thresholds: gradients far above them, and not far above them
_CHEAP = 3000  # divided by the size of a model: rounds that cost little, and may be without progress


class Solution(NamedTuple):
    """The solution of a weighted problem, with the gradient and value of its smooth part: loss and ridge."""

    theta: np.ndarray
    gradient: np.ndarray
    loss: float
    converged: bool


class _Watch:
    """Counts stretches of a descent in which hardly anything changed.

    Over ``patience`` rounds the objective fell by less than 1 % of its fall so far (or of itself) and the
    largest violation was not halved.
    """

    def __init__(self):
        self.first, self.count, self.level, self.mark, self.total = None, 0, np.inf, np.inf, 0

    def strikes(self, objective: float, worst: float, patience: int) -> int:
        self.first = objective if self.first is None else self.first
        self.count += 1
        if worst > 0.5 * self.mark and self.count <= patience:
            return 0
        hardly = self.level - objective < 0.01 * min(self.first - objective, abs(objective))
        self.total = self.total + 1 if hardly and worst > 0.5 * self.mark else 0
        self.count, self.level, self.mark = 0, objective, worst
        return self.total


class InnerSolver:
    """A solver of weighted problems that can be taken to another alpha and h."""

    problem: Problem
    gram: Any  # a GramCache; None for a loss without constant curvature

    def at(self, alpha: float, h: int | None = None) -> Self:
        """This solver for another alpha (and h); all that does not depend on them is shared."""
        other = copy.copy(self)
        problem = self.problem.at(alpha)
        other.problem = problem if h is None else problem.freeing(h)
        return other

    def minimize_model(self, parts, gram, gradient, theta, threshold, tol):
        """:func:`minimize_block` for these parts of the problem's norm, single coefficients or groups."""
        problem, norm = self.problem, self.problem.penalty.norm
        if problem.bounds is not None:
            ends = (end[parts] for end in problem.bounds)
            return minimize_box(gram, gradient, theta, threshold, *ends, tol)
        if norm.q is None:
            return minimize_block(gram, gradient, theta, threshold, tol)
        from .groups import minimize_group_block

        starts = np.concatenate([[0], np.cumsum(norm.sizes[parts])])
        return minimize_group_block(gram, gradient, theta, starts, threshold, norm.q, tol)


class WorkingSetSolver(InnerSolver):
    """Solves a sequence of weighted problems that differ in their thresholds only.

    The problem is in normalized coordinates (:meth:`Problem.normalized`). ``tol`` is the largest violation of
    an optimality condition, relative to the largest gradient at the null model. The null model is 0, or for a
    loss that is not quadratic the fit of the parts that are never penalized.
    """

    max_rounds = 1000

    def __init__(self, problem: Problem, tol: float, gradient_at_zero: np.ndarray | None = None):
        self.problem = problem
        self.norm = problem.penalty.norm
        if gradient_at_zero is None:
            gradient_at_zero = problem.loss_gradient(problem.origin())
        self.gradient_at_zero = gradient_at_zero
        self.scale = float(np.max(np.abs(self.gradient_at_zero), initial=0.0))
        slope = problem.slope(problem.origin())
        if self.scale <= 2 * _FINEST * slope:  # mere rounding cannot set the goal
            self.scale = slope or 1.0
        self.scale = min(self.scale, problem.null_slope())
        self.tol = max(tol, _FINEST)
        self.goal = self.scale * self.tol
        norms = problem.design.column_norms(problem.d)
        self.alive = self.norm.largest_in_part(norms) > 0
        self.share = norms**2  # the curvature of a coordinate by its column alone: 1 (on average in a group)
        self.null, self.gradient_at_null = np.zeros(problem.n_features), self.gradient_at_zero
        self.loss_at_null = problem.loss_value(problem.origin())
        self.gram, self.ridge_of_steps = None, LEAST_RIDGE
        self._last: list = [None]  # the last solution, shared by the solvers for other alphas
        self.given_up: list[str] = []  # why; shared by the solvers of restricted problems
        if problem.loss.constant_curvature:
            self.gram = GramCache(problem.design, problem.d, problem.ridge)
        else:
            self._fit_null(tol)
            self.given_up.clear()

    def at(self, alpha: float, h: int | None = None) -> Self:
        other = super().at(alpha, h)
        if h is not None or alpha != self.problem.alpha:
            other.given_up = []
        return other

    def _fit_null(self, tol):
        """Fit the parts that are never penalized, such as the intercept: gradients at 0 say little."""
        levels = self.problem.penalty.levels(1.0)
        if not ((levels == 0) & self.alive).any() or self.problem.loss.given_start:
            return
        alone = np.where(levels == 0, 0.0, np.inf)
        self.null, gradient, *_ = self.solve(self.null, alone, tol=1e-2 * tol, gradient=self.gradient_at_zero)
        # The gradient at 0 may be larger by orders of magnitude: the slope at the null model sets the scale.
        slope = self.problem.slope(self.problem.predictor(self.null))
        finer = 1e-2 * self.tol * slope / self.scale
        fitted = self.solve(self.null, alone, tol=finer, gradient=gradient)
        self.null, self.gradient_at_null, self.loss_at_null, _ = fitted
        penalized = self.norm.spread((levels > 0) & np.isfinite(levels))
        largest = float(np.max(np.abs(self.gradient_at_null[penalized]), initial=0.0))
        # A null model that fits perfectly leaves a gradient of its own tolerance, which sets no goal.
        if largest > self.tol * min(slope, self.scale):
            self.scale = largest
            self.goal = self.scale * self.tol

    def solve(
        self, theta: np.ndarray, threshold: np.ndarray, *, tol: float | None = None, gradient: Any = None
    ) -> Solution:
        """The minimizer from a warm start; its gradient is computed unless given.

        Thresholds far below the gradient are approached from above, by half at a time: otherwise far too many
        coordinates would enter first. For a loss that is not quadratic the solver gives up if there is hardly
        any progress for many rounds, as where the loss has no minimum or a kink. It then returns every start
        as it is, not converged, and :meth:`trouble` says why.
        """
        if gradient is not None and self.problem.near and not self.given_up:
            for factor, goal in self._approach(gradient, threshold):
                higher = np.where(np.isfinite(threshold), factor * threshold, np.inf)
                theta, gradient, *_ = self._solve(theta, higher, goal, gradient)
        goal = self.goal if tol is None else self.scale * max(tol, _FINEST)
        return self._solve(theta, threshold, goal, gradient)

    def _approach(self, gradient, threshold):
        """Factors of the thresholds, and goals, on the way from the gradient down to the goal."""
        penalized = (threshold > 0) & np.isfinite(threshold) & self.alive
        if penalized.any():
            level = float(np.median(threshold[penalized]))
            above = float(np.max(self.norm.dual_lengths(gradient)[penalized])) / level
            first = int(np.log2(above / _NEAR)) if above >= _FAR else 0
            for power in range(first, int(np.log2(max(self.goal / level, 1.0))), -1):  # the goal sees no less
                yield 2.0**power, max(0.5 * 2.0**power * level, self.goal)

    def _solve(self, theta, threshold, goal, gradient):
        problem = self.problem
        excluded = self.norm.spread(np.isinf(threshold))
        inside = np.where(excluded, 0.0, theta if problem.bounds is None else feasible(problem, theta))
        if not np.array_equal(inside, theta):
            theta, gradient = inside, None
        if gradient is None:
            eta, gradient, _ = self.point(theta)
        else:
            eta = problem.predictor(theta)
        free = (threshold == 0) & self.alive
        least, stalled, objective = np.inf, 0, np.inf
        watch = _Watch()
        for _ in range(0 if self.given_up else self.max_rounds):
            if gradient is None:
                gradient = problem.gradient(theta, eta)
            residual = problem.residual(theta, gradient, threshold)
            violation = self.norm.largest_in_part(np.abs(residual))
            worst = float(np.max(violation, initial=0.0))
            if worst <= goal:
                return self._end(theta, eta, gradient, True)
            parts = self._working_set(theta, free, violation, goal)
            if not problem.near:
                problem.design.expect(self._likely(gradient, excluded))
            apart = self.gram is None and self.worth_apart(parts)
            wide = apart and problem.near
            if wide:
                parts = self.with_likely(parts, gradient, threshold)
            improve = self._improve_apart if apart else self._improve
            # A quadratic comes back on larger sets; a Newton model is solved as far as it can be trusted.
            share = 3e-3 if self.gram is None else 0.03
            aim = 0.3 * goal if wide else max(0.3 * goal, share * worst)
            # If X is far and only these parts may move, one gradient at the end is enough. Otherwise take the
            # same steps as for data in memory, so that solutions agree.
            if apart and not problem.near and parts.size == np.count_nonzero(np.isfinite(threshold)):
                aim = share * goal
            moved = improve(theta, eta, gradient, threshold, parts, aim)
            if moved is not None and self.gram is None:
                fell = moved.objective < objective - 1e-15 * abs(moved.objective)
                stalled = 0 if fell or worst < 0.5 * least else stalled + 1
                objective, least = moved.objective, min(least, worst)
                strikes = watch.strikes(objective, worst, _PATIENCE + _CHEAP // parts.size)
                # So many coordinates can interpolate, where Huber's loss has kinks: do not wait to be slow.
                kinks = 2 * parts.size > len(eta) and not problem.loss.may_diverge
                why = self._why_slow(moved.predictor, worst, strikes > 2) if strikes or kinks else ""
                if why:
                    self.given_up.append(why)
                    break
            if moved is None or stalled > _PATIENCE:  # any descent left is hidden by rounding
                return self._end(theta, eta, gradient, worst <= max(goal, _FELT * problem.slope(eta)))
            theta, eta, _ = moved
            gradient = None
        return self._end(theta, eta, problem.gradient(theta, eta) if gradient is None else gradient, False)

    def _why_slow(self, eta, worst, long):
        """The reason to give up: that of the loss if it knows one; after a long time there is always one."""
        problem = self.problem
        said = problem.loss.trouble(eta, problem.y, problem.d)
        if said or not long:
            return said
        return f"hardly any progress at violation {worst:.3g}, goal {self.goal:.3g}; raise tol"

    def trouble(self, theta: np.ndarray) -> str:
        """Why the solution at theta is not one, for a warning; empty if nothing is wrong."""
        problem = self.problem
        if self.given_up:
            return self.given_up[0]
        penalized = problem.penalty.value(theta, problem.alpha) > 0 or problem.ridge[theta != 0].any()
        if penalized or not problem.loss.may_diverge or not theta.any():
            return ""
        return problem.loss.trouble(self.point(theta)[0], problem.y, problem.d)

    def _end(self, theta, eta, gradient, converged):
        loss = self.problem.smooth_value(theta, eta)
        if self.given_up:
            self.null, self.gradient_at_null = theta, gradient  # whatever starts anew starts from here
        self._last[0] = (theta, eta, gradient, loss)
        return Solution(theta, gradient, loss, converged)

    def point(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Predictor, gradient and smooth value at theta; no pass over X if theta is the last solution."""
        last = self._last[0]
        if last is not None and np.array_equal(theta, last[0]):
            return last[1:]
        eta = self.problem.predictor(theta)
        return eta, self.problem.gradient(theta, eta), self.problem.smooth_value(theta, eta)

    def _working_set(self, theta, free, violation, goal):
        """The support, the free parts, and as many again of the worst violators (at least 32)."""
        kept = (self.norm.lengths(theta) > 0) | free
        rank = np.where(kept, 0.0, violation)
        room = max(32, int(np.count_nonzero(kept)))
        room = int(min(room, max(4, self.room() - np.count_nonzero(kept))))
        candidates = np.flatnonzero(rank > goal)
        if candidates.size > room:
            candidates = candidates[np.argpartition(-rank[candidates], room)[:room]]
        kept[candidates] = True
        return np.flatnonzero(kept)

    def room(self) -> float:
        """How many parts fit in memory: work on more of them costs passes over X."""
        if self.problem.near:
            return np.inf
        return self.problem.design.room * self.norm.count / self.problem.n_features

    def _likely(self, gradient, excluded):
        """Coordinates by falling gradient: the next to violate a condition is likely among the first."""
        pull = np.where(excluded, 0.0, np.abs(gradient))
        count = min(_LIKELY, int(np.count_nonzero(pull)))
        first = np.argpartition(-pull, count - 1)[:count] if count else np.empty(0, dtype=np.intp)
        return first[np.argsort(-pull[first], kind="stable")]

    def worth_apart(self, parts):
        """Whether Newton steps on these parts alone save passes over X."""
        if not self.problem.near:
            return parts.size <= min(self.room(), (self.norm.count - 1) // 4)
        large = self.problem.y.shape[0] * self.problem.n_features >= _SMALL
        return large and 2 * (parts.size + _LIKELY) <= self.norm.count

    def with_likely(self, parts, gradient, threshold):
        """These parts and others that are likely to violate their conditions next: the nearest to it."""
        near = np.where(self.alive, self.norm.dual_lengths(gradient) - threshold, -np.inf)
        near[parts] = -np.inf
        count = min(_LIKELY, near.size)
        likely = np.argpartition(-near, count - 1)[:count]
        return np.sort(np.append(parts, likely[np.isfinite(near[likely])]))

    def restricted(self, parts: np.ndarray) -> WorkingSetSolver:
        """This solver for the problem on these parts alone, its columns copied out."""
        other = copy.copy(self)
        W = self.norm.coordinates(parts)
        other.problem = self.problem.restricted(parts)
        other.norm = other.problem.penalty.norm
        other.alive, other.share = self.alive[parts], self.share[W]
        other.null, other.gradient_at_null = self.null[W], self.gradient_at_null[W]
        other.gradient_at_zero = self.gradient_at_zero[W]
        if self.gram is not None:
            other.gram = GramCache(other.problem.design, other.problem.d, other.problem.ridge)
        other._last = [None]
        return other

    def _improve_apart(self, theta, eta, gradient, threshold, parts, tol):
        """As many Newton steps as these parts need, without a pass over X."""
        apart, W = self.restricted(parts), self.norm.coordinates(parts)
        apart.max_rounds = 30
        local, _, loss, _ = apart._solve(theta[W], threshold[parts], tol, gradient[W])
        if np.array_equal(local, theta[W]):
            return None
        following = theta.copy()
        following[W] = local
        penalized = np.isfinite(threshold[parts])
        lengths = apart.norm.lengths(local)[penalized]
        objective = loss + float(threshold[parts][penalized] @ lengths)
        return Moved(following, apart.problem.predictor(local), objective)

    def _improve(self, theta, eta, gradient, threshold, parts, tol):
        """The step that one model on these parts allows, or None."""
        if self.gram is None:
            return newton_step(self, theta, eta, gradient, threshold, parts, tol)
        W = self.norm.coordinates(parts)
        local, following = theta[W], theta.copy()
        self.minimize_model(parts, self.gram.block(W), gradient[W], local, threshold[parts], tol)
        following[W] = local
        return Moved(following, self.problem.predictor(following), np.nan)


class GramSolver(InnerSolver):
    """The same on some parts only, for the quadratic model at a point, in Gram coordinates: X is not touched.

    For least squares the model is the loss itself. It starts from a point of the whole problem and treats the
    gradient outside its parts as constant. Its solution is a point of the whole problem with its true
    objective, though parts outside may violate their conditions there.

    ``gradient`` and ``loss`` are those at ``theta``, whose support lies in ``parts``. The ``predictor`` at
    theta is needed if the curvature has to be computed.
    """

    def __init__(
        self, inner: WorkingSetSolver, parts: np.ndarray, theta: np.ndarray, gradient: np.ndarray,
        loss: float, predictor: Any = None,
    ):  # fmt: skip
        self.problem, self.scale, self.tol, self.goal = inner.problem, inner.scale, inner.tol, inner.goal
        self.norm = inner.norm
        self.null, self.gradient_at_null = inner.null, inner.gradient_at_null
        self.parts = parts
        self.columns = U = self.norm.coordinates(parts)
        self.alive = np.zeros_like(inner.alive)
        self.alive[parts] = inner.alive[parts]
        self.gram = inner.gram
        if inner.gram is None:
            hessian = self.problem.hessian(predictor, U)
            unit = float(np.diagonal(hessian).max(initial=0.0)) or 1.0
            # a flat loss has no model with a minimum
            hessian[np.diag_indices_from(hessian)] += 1e-6 * unit * inner.share[U]
            self.gram = FixedGram(U, hessian, self.problem.n_features)
        self._block = self.gram.block(U)
        self._theta, self._gradient, self._loss = theta, gradient, loss

    def solve(
        self, theta: np.ndarray, threshold: np.ndarray, *, tol: float | None = None, gradient: Any = None
    ) -> Solution:
        """The minimizer of the model; ``gradient`` is that of the model at theta, if known."""
        U = self.columns
        local = theta[U]
        if gradient is None:
            slope = self._gradient[U]
            changed = np.flatnonzero(local != self._theta[U])
            add_rows(self._block, changed, (local - self._theta[U])[changed], slope)
        else:
            slope = gradient[U]
        goal = self.goal if tol is None else self.scale * max(tol, _FINEST)
        if self.norm.q is None:
            done = self._working_sets(local, slope, threshold[U], goal)
        else:
            done = self.minimize_model(
                self.parts, self._block, slope, local, threshold[self.parts], 0.3 * goal
            )
        moved = local - self._theta[U]
        loss = self._loss + 0.5 * float(moved @ (slope + self._gradient[U]))
        theta, gradient = self._theta.copy(), self._gradient.copy()
        theta[U], gradient[U] = local, slope
        return Solution(theta, gradient, loss, done)

    def _working_sets(self, theta, gradient, threshold, goal, max_rounds=100):
        """Working sets within the model, in place: most of its columns stay at 0 and need no descent."""
        for _ in range(max_rounds):
            worst, W = self._violators(theta, gradient, threshold, goal)
            if worst <= goal:
                return True
            local, slope, block = theta[W], gradient[W], principal(self._block, W)
            self.minimize_model(
                self.parts[W], block, slope, local, threshold[W], max(0.3 * goal, 1e-3 * worst)
            )
            moved = local - theta[W]
            changed = np.flatnonzero(moved)
            if changed.size == 0:
                return False
            add_rows(self._block, W[changed], moved[changed], gradient)
            theta[W] = local
        return False

    def _violators(self, theta, gradient, threshold, goal):
        bounds = self.problem.bounds
        if bounds is None:
            return violators(theta, gradient, threshold, goal)
        inside = bounds[0][self.columns], bounds[1][self.columns]
        violation = np.abs(subgradient_residual(theta, gradient, threshold, inside))
        return violation.max(initial=0.0), np.flatnonzero((theta != 0) | (violation > goal))
