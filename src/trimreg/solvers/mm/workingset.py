r"""The inner problem: a weighted sum of lengths, solved by working sets to a certificate.

.. math:: \min_\theta\; L(Z\theta) + \tfrac12 \sum_j \rho_j \theta_j^2 + \sum_j t_j \|\theta_j\|,
          \qquad 0 \le t_j \le \infty,

over parts ``theta_j`` that are single coefficients or groups. A round costs one pass over X: the gradient at
the current point shows which coordinates violate their optimality condition. They join the support and the
unpenalized coordinates in a working set W, and the quadratic model of L on W is minimized in Gram
coordinates, without touching X. The loop ends when the true gradient shows no violation above the tolerance.
Rounding in the Gram matrix therefore cannot pass for convergence: the next round corrects it, as in iterative
refinement.

On W, coordinate descent finds the support and the signs. A Newton step on the support, unpenalized block
included, then finishes where coordinate descent would crawl. Groups have their own block minimizer
(:mod:`trimreg.solvers.mm.groups`). If the curvature changes with theta the model is a Newton model, and a
line search ensures descent: proximal Newton.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple, Self

import numpy as np

from ...penalties.base import largest_violation, subgradient_residual
from ..gram import FixedGram, GramCache, cholesky_solve, regularized_cholesky
from ..problem import Problem
from .kernels import add_rows, coordinate_descent, submatrix, violators

_EPOCHS = 200
_SWEPT = 10  # rounds of coordinate descent before coordinates enter one by one
_FINEST = 50 * float(np.finfo(float).eps)  # below this a gradient is rounding
_LEAST_RIDGE, _LARGEST_RIDGE = 1e-10, 1e2  # added to a Newton model, in units of its largest curvature
_LIKELY = 128  # far columns that may be fetched along with others
_ROUNDED = 1e-12  # smaller relative changes of an objective cannot be told from rounding
_PATIENCE = 10  # rounds without descent before the solver blames rounding and stops


def newton_on_support(gram, gradient, theta, threshold, positive, max_drops=10):
    """Minimize over the current support and signs, in place; a coordinate that comes to 0 is dropped.

    All coordinates that would change sign are dropped at once if the objective falls enough by that, else
    only the first that comes to 0 on the way. Unpenalized coordinates belong to the support whatever their
    value, and may change sign.
    """
    free = (threshold == 0) & (np.diagonal(gram) > 0) & ~np.asarray(positive)
    for _ in range(max_drops):
        active = np.flatnonzero((theta != 0) | free)
        if active.size == 0:
            return
        slope = gradient[active] + threshold[active] * np.sign(theta[active])
        factor = regularized_cholesky(gram[np.ix_(active, active)])
        direction = -cholesky_solve(factor, slope)
        with np.errstate(over="ignore", invalid="ignore"):  # a nearly flat direction has no end
            decrease = slope @ direction
        if not -np.inf < decrease < 0:
            return
        old = theta[active]
        bound = ~free[active] & (direction * old < 0)
        crossing = bound & (old * (old + direction) < 0)
        move = np.where(crossing, -old, direction)
        with np.errstate(over="ignore", invalid="ignore"):
            change = move @ gram[active]
            kept = np.abs(old + move) - np.abs(old)
            fall = move @ gradient[active] + 0.5 * (move @ change[active]) + threshold[active] @ kept
        if crossing.any() and not fall <= 0.1 * decrease:
            ratios = np.where(bound, -old / np.where(bound, direction, 1.0), np.inf)
            step = min(1.0, ratios.min())
            crossing = ratios <= step
            move = np.where(crossing, -old, step * direction)
            change = move @ gram[active]
        theta[active] = np.where(crossing, 0.0, old + move)
        gradient += change
        if not crossing.any():
            return


def minimize_block(gram, gradient, theta, threshold, positive, tol, max_rounds=100):
    """Minimize ``g'(x - theta) + (x - theta)' G (x - theta) / 2 + sum t |x|``; all arrays in place.

    Returns whether the conditions hold within ``tol``; rounding in a singular G can prevent it. If columns
    are nearly dependent, sweeps may forever bring in many coordinates that the Newton step takes out again:
    after some rounds only the coordinate of largest violation enters (feature-sign search, Lee et al. 2007).
    """
    nonnegative = np.full(theta.size, positive)
    for round_ in range(max_rounds):
        epochs = _EPOCHS
        if round_ < _SWEPT:
            epochs = coordinate_descent(gram, gradient, theta, threshold, nonnegative, _EPOCHS, tol)
        elif not enter_worst(gram, gradient, theta, threshold, nonnegative):
            return False
        if epochs == _EPOCHS or largest_violation(theta, gradient, threshold, positive) > tol:
            newton_on_support(gram, gradient, theta, threshold, positive)
            if not largest_violation(theta, gradient, threshold, positive) <= tol:
                continue
        return True
    return False


def enter_worst(gram, gradient, theta, threshold, nonnegative) -> bool:
    """Minimize over the coordinate of largest violation, in place; returns whether it moved."""
    worst = int(np.argmax(np.abs(subgradient_residual(theta, gradient, threshold, nonnegative))))
    curvature, old = gram[worst, worst], theta[worst]
    if not curvature > 0:
        return False
    aim = old - gradient[worst] / curvature
    size = max(abs(aim) - threshold[worst] / curvature, 0.0)
    theta[worst] = 0.0 if nonnegative[worst] and aim < 0 else np.copysign(size, aim)
    gradient += (theta[worst] - old) * gram[worst]
    return theta[worst] != old


def minimize_parts(problem, parts, gram, gradient, theta, threshold, tol):
    """:func:`minimize_block` for these parts of the problem's norm, single coefficients or groups."""
    norm = problem.penalty.norm
    if norm.q is None:
        positive = problem.positive[parts] if np.ndim(problem.positive) else problem.positive
        return minimize_block(gram, gradient, theta, threshold, positive, tol)
    from .groups import minimize_group_block

    starts = np.concatenate([[0], np.cumsum(norm.sizes[parts])])
    return minimize_group_block(gram, gradient, theta, starts, threshold, norm.q, tol)


class Solution(NamedTuple):
    """The solution of a weighted problem, with the gradient and value of its smooth part: loss and ridge."""

    theta: np.ndarray
    gradient: np.ndarray
    loss: float
    converged: bool


class Moved(NamedTuple):
    """The point after a step; the objective is nan where it is not needed."""

    theta: np.ndarray
    predictor: np.ndarray
    objective: float


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
        slope = self._slope(problem.origin())
        if self.scale <= 2 * _FINEST * slope:  # mere rounding cannot set the goal
            self.scale = slope or 1.0
        self.tol = max(tol, _FINEST)
        self.goal = self.scale * self.tol
        norms = problem.design.column_norms(problem.d)
        self.alive = self.norm.largest_in_part(norms) > 0
        self.share = norms**2  # the curvature of a coordinate by its column alone: 1 (on average in a group)
        self.null, self.gradient_at_null = np.zeros(problem.n_features), self.gradient_at_zero
        self.gram, self._ridge, self._last = None, _LEAST_RIDGE, None
        if problem.loss.constant_curvature:
            self.gram = GramCache(problem.design, problem.d, problem.ridge)
        else:
            self._fit_null(tol)

    def _slope(self, eta):
        """The length of the slopes of the losses: an upper bound of the gradient of a column of norm one."""
        problem, live = self.problem, self.problem.d > 0
        slope = problem.loss.gradient(eta, problem.y, problem.d)[live]
        return float(np.sqrt(np.sum(slope.T**2 / problem.d[live])))

    def _fit_null(self, tol):
        """Fit the parts that are never penalized, such as the intercept: gradients at 0 say little."""
        levels = self.problem.penalty.levels(1.0)
        if not ((levels == 0) & self.alive).any():
            return
        alone = np.where(levels == 0, 0.0, np.inf)
        self.null, gradient, *_ = self.solve(self.null, alone, tol=1e-2 * tol, gradient=self.gradient_at_zero)
        # The gradient at 0 may be larger by orders of magnitude: the slope at the null model sets the scale.
        slope = self._slope(self.problem.predictor(self.null))
        finer = 1e-2 * self.tol * slope / self.scale
        self.null, self.gradient_at_null, *_ = self.solve(self.null, alone, tol=finer, gradient=gradient)
        penalized = self.norm.spread((levels > 0) & np.isfinite(levels))
        largest = float(np.max(np.abs(self.gradient_at_null[penalized]), initial=0.0))
        # A null model that fits perfectly leaves a gradient of its own tolerance, which sets no goal.
        if largest > self.tol * min(slope, self.scale):
            self.scale = largest
            self.goal = self.scale * self.tol

    def solve(
        self, theta: np.ndarray, threshold: np.ndarray, *, tol: float | None = None, gradient: Any = None
    ) -> Solution:
        """The minimizer from a warm start; its gradient is computed unless given."""
        problem = self.problem
        goal = self.goal if tol is None else self.scale * max(tol, _FINEST)
        excluded = self.norm.spread(np.isinf(threshold))
        if np.any(theta[excluded]):
            theta, gradient = np.where(excluded, 0.0, theta), None
        eta = problem.predictor(theta)
        free = (threshold == 0) & self.alive
        least, stalled, objective = np.inf, 0, np.inf
        for _ in range(self.max_rounds):
            if gradient is None:
                gradient = problem.gradient(theta, eta)
            residual = self.norm.residual(theta, gradient, threshold, problem.positive)
            violation = self.norm.largest_in_part(np.abs(residual))
            worst = float(np.max(violation, initial=0.0))
            if worst <= goal:
                return self._end(theta, eta, gradient, True)
            parts = self._working_set(theta, free, violation, goal)
            if not problem.near:
                problem.design.expect(self._likely(gradient, excluded))
            apart = self._worth_apart(parts)
            improve = self._improve_apart if apart else self._improve
            # A quadratic comes back on larger sets; a Newton model is solved as far as it can be trusted.
            share = 3e-3 if self.gram is None else 0.03
            aim = max(0.3 * goal, share * worst)
            # If X is far and only these parts may move, one gradient at the end is enough. Otherwise take the
            # same steps as for data in memory, so that solutions agree.
            if apart and not problem.near and parts.size == np.count_nonzero(np.isfinite(threshold)):
                aim = share * goal
            moved = improve(theta, eta, gradient, threshold, parts, aim)
            if moved is not None and self.gram is None:
                fell = moved.objective < objective - 1e-15 * abs(moved.objective)
                stalled = 0 if fell or worst < 0.5 * least else stalled + 1
                objective, least = moved.objective, min(least, worst)
            if moved is None or stalled > _PATIENCE:  # any descent left is hidden by rounding
                return self._end(theta, eta, gradient, worst <= 1e3 * goal)
            theta, eta, _ = moved
            gradient = None
        return self._end(theta, eta, problem.gradient(theta, eta), False)

    def _end(self, theta, eta, gradient, converged):
        loss = self.problem.smooth_value(theta, eta)
        if not self.problem.near:
            self._last = (theta, eta, gradient, loss)
        return Solution(theta, gradient, loss, converged)

    def point(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Predictor, gradient and smooth value at theta; no pass over far X if theta is the last solution."""
        if self._last is not None and np.array_equal(theta, self._last[0]):
            return self._last[1:]
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

    def _worth_apart(self, parts):
        """Whether Newton steps on these parts alone save passes over X."""
        few = parts.size <= min(self.room(), (self.norm.count - 1) // 4)
        return self.gram is None and few

    def restricted(self, parts: np.ndarray) -> WorkingSetSolver:
        """This solver for the problem on these parts alone, its columns copied out."""
        other = copy.copy(self)
        W = self.norm.coordinates(parts)
        other.problem = self.problem.restricted(parts)
        other.norm = other.problem.penalty.norm
        other.alive, other.share = self.alive[parts], self.share[W]
        other.null, other.gradient_at_null = self.null[W], self.gradient_at_null[W]
        other._last = None
        return other

    def _improve_apart(self, theta, eta, gradient, threshold, parts, tol):
        """As many Newton steps as these parts need, without a pass over X."""
        apart, W = self.restricted(parts), self.norm.coordinates(parts)
        apart.max_rounds = 30
        tol = tol / self.scale
        local, _, loss, _ = apart.solve(theta[W], threshold[parts], tol=tol, gradient=gradient[W])
        if np.array_equal(local, theta[W]):
            return None
        following = theta.copy()
        following[W] = local
        penalized = np.isfinite(threshold[parts])
        lengths = apart.norm.lengths(local)[penalized]
        objective = loss + float(threshold[parts][penalized] @ lengths)
        return Moved(following, apart.problem.predictor(local), objective)

    def _improve(self, theta, eta, gradient, threshold, parts, tol):
        """The step that one Newton model on these parts allows, or None."""
        problem = self.problem
        W = self.norm.coordinates(parts)
        if self.gram is not None:
            local, following = theta[W], theta.copy()
            minimize_parts(problem, parts, self.gram.block(W), gradient[W], local, threshold[parts], tol)
            following[W] = local
            return Moved(following, problem.predictor(following), np.nan)
        hessian, slope = problem.hessian(eta, W), gradient[W]
        # In this unit the diagonal is of the order of 1. A loss that is flat here up to rounding has no such
        # unit: then the search begins at a step of many times the length of theta.
        steepest = float(np.max(np.abs(slope))) / max(1.0, float(np.max(np.abs(theta))))
        unit = max(float(np.diagonal(hessian).max(initial=0.0)), 1e-8 * steepest) or 1.0
        hessian /= unit
        place = np.diag_indices_from(hessian)
        diagonal = hessian[place]
        while True:
            # A loss need not be curved along every direction of descent (Huber's beyond its bend): without
            # the ridge its model has no minimum. The ridge grows, as in Levenberg-Marquardt, until a step
            # descends.
            hessian[place] = diagonal + self._ridge * self.share[W]
            local, following = theta[W], theta.copy()
            size = float(np.sqrt(self.share[W]) @ np.abs(local))
            rounding = _FINEST / 50 * (1.0 + self._ridge) * size
            aim = max(tol / unit, 4 * rounding)
            minimize_parts(problem, parts, hessian, slope / unit, local, threshold[parts] / unit, aim)
            following[W] = local
            predictor = problem.predictor(following)
            moved, step = self._line_search(theta, eta, gradient, threshold, following, predictor)
            if moved is not None:
                change = 0.1 if step == 1.0 else 1.0 if step > 1e-3 else 10.0
                self._ridge = float(np.clip(change * self._ridge, _LEAST_RIDGE, _LARGEST_RIDGE))
                return moved
            if self._ridge >= _LARGEST_RIDGE:
                self._ridge = _LEAST_RIDGE
                return None
            self._ridge *= 1e3

    def _line_search(self, theta, eta, gradient, threshold, following, eta_new):
        """Backtracking on the weighted objective (Armijo, with the l1 part as in Lee et al. 2014).

        Near the minimum the objective changes by less than its rounding, though slopes still show descent.
        There the change of the loss is computed as the mean slope of both ends times the step, with an error
        of third order in the step (as in the approximate Wolfe conditions of Hager and Zhang 2005). It is
        summed from the changes of the slopes, so that nothing large cancels, and X is not touched.
        """
        problem, penalized = self.problem, np.isfinite(threshold) & (threshold > 0)
        lengths = self.norm.lengths(theta)[penalized]
        descent = float(gradient @ (following - theta))
        curved = 0.5 * float(problem.ridge @ (following - theta) ** 2)

        def added(point):
            return float(threshold[penalized] @ (self.norm.lengths(point)[penalized] - lengths))

        slope = descent + added(following)
        start, linear = problem.loss_value(eta), float((problem.ridge * theta) @ (following - theta))
        smooth = start + 0.5 * float(problem.ridge @ theta**2)
        level, step = smooth + float(threshold[penalized] @ lengths), 1.0
        for _ in range(50 if slope < 0 else 0):
            point = theta + step * (following - theta) if step < 1 else following
            predictor = eta + step * (eta_new - eta)
            grown, bent = added(point), step**2 * curved
            with np.errstate(over="ignore"):  # too long a step gives inf, which is never below the start
                change = told = problem.loss_value(predictor) - start + grown + step * linear + bent
            if abs(change) <= _ROUNDED * abs(level):
                way = predictor - eta
                if not way.any():
                    break
                ends = [problem.loss.gradient(end, problem.y, problem.d) for end in (eta, predictor)]
                told = step * descent + grown + bent + 0.5 * float(np.sum((ends[1] - ends[0]) * way))
            if told <= 1e-4 * step * slope:
                return Moved(point, predictor, level + change), step
            step *= 0.5
        return None, 0.0


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
            done = minimize_parts(
                self.problem, self.parts, self._block, slope, local, threshold[self.parts], 0.3 * goal
            )
        moved = local - self._theta[U]
        loss = self._loss + 0.5 * float(moved @ (slope + self._gradient[U]))
        theta, gradient = self._theta.copy(), self._gradient.copy()
        theta[U], gradient[U] = local, slope
        return Solution(theta, gradient, loss, done)

    def _working_sets(self, theta, gradient, threshold, goal, max_rounds=100):
        """Working sets within the model, in place: most of its columns stay at 0 and need no descent."""
        positive = self.problem.positive
        nonnegative = positive[self.columns] if np.ndim(positive) else np.full(theta.size, positive)
        for _ in range(max_rounds):
            worst, W = violators(theta, gradient, threshold, nonnegative, goal)
            if worst <= goal:
                return True
            local, slope, block = theta[W], gradient[W], submatrix(self._block, W, W)
            aim = max(0.3 * goal, 1e-3 * worst)
            minimize_block(block, slope, local, threshold[W], nonnegative[W], aim)
            moved = local - theta[W]
            changed = np.flatnonzero(moved)
            if changed.size == 0:
                return False
            add_rows(self._block, W[changed], moved[changed], gradient)
            theta[W] = local
        return False
