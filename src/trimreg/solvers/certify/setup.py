"""A problem of the library as nodes to bound and free sets to fit."""

from __future__ import annotations

import numpy as np
from scipy.linalg import qr

from ...losses.base import Loss
from ..mm.solver import iterate
from ..mm.workingset import WorkingSetSolver
from ..problem import Problem
from .general import GeneralRelaxation
from .relaxation import Quadratic, Relaxation, best_relaxation

_DEPENDENT = 1e-13  # a column of norm one with less than this left unexplained counts as dependent
_ROUNDING = 1e-13  # relative error of a Gram matrix of unit diagonal and of products with it
_WIDEST = 20_000
_NOTHING = 1e-11  # of the loss at 0: differences that may be rounding


class Unbounded(ValueError):
    """The problem has no lower bound of the kinds known here; the message says why."""


def check_supported(problem: Problem) -> None:
    """Raise a ``ValueError`` that says why a problem cannot be certified."""
    loss, penalty = problem.loss, problem.penalty
    if penalty.n_free is None:
        raise ValueError("penalty must be trimmed (with h) to be certified")
    if loss.multi_output:
        raise ValueError(f"loss {loss.name!r} cannot be certified: it has several outputs")
    if problem.bounds is not None:
        raise ValueError("positive, lower and upper must be left off to certify: boxes are not implemented")
    if not problem.near:
        raise ValueError("X must be in memory to be certified")
    if problem.n_features > _WIDEST:
        raise ValueError(f"X must have at most {_WIDEST} columns to be certified; got {problem.n_features}")
    if not loss.least_squares and (type(loss).conjugate is Loss.conjugate or not loss.separable):
        raise ValueError(f"loss {loss.name!r} cannot be certified: it gives no conjugate")
    if not is_hard(problem) and penalty.norm.q == np.inf:
        raise ValueError("groups with q = inf can be certified with alpha='exact' only")


def is_hard(problem: Problem) -> bool:
    """Whether at most h parts are nonzero at every minimum."""
    return problem.alpha >= problem.exact_threshold()


class Model:
    """The root relaxation of a problem, and the best point known.

    ``start`` is a point of the problem, already a local minimum; its objective is the first upper bound.
    """

    def __init__(self, problem: Problem, start: np.ndarray):
        check_supported(problem)
        self.problem = problem
        self.hard = is_hard(problem)
        self.normal, self.norms = problem.normalized()
        penalty, norm = self.normal.penalty, self.normal.penalty.norm
        levels = penalty.levels(1.0)
        columns = self.normal.design.column_norms(problem.d)
        live = norm.largest_in_part(np.hypot(columns, np.sqrt(self.normal.ridge))) > 0
        regular = np.flatnonzero((levels > 0) & np.isfinite(levels) & live)
        self.parts = regular
        self.count = min(penalty.n_free, regular.size)
        self._always = np.flatnonzero((levels == 0) & live)
        self._levels = levels
        self._inner = WorkingSetSolver(self.normal, 1e-10)
        self._seen: dict[bytes, float] = {}
        self.best, self.upper = start, problem.objective(start)
        self.least = 0.0 if problem.loss.least_squares else -np.inf  # of any objective
        self.rounding = _NOTHING * abs(problem.loss_value(problem.origin()))
        self.root = self._root()

    def _root(self) -> Relaxation:
        problem, normal, norm = self.problem, self.normal, self.normal.penalty.norm
        U, A = norm.coordinates(self.parts), norm.coordinates(self._always)
        start = np.concatenate([[0], np.cumsum(norm.sizes[self.parts])]).astype(np.intp)
        threshold = np.full(self.parts.size, np.inf)
        if not self.hard:
            threshold = problem.alpha * self._levels[self.parts]
        Z, always = normal.design.columns(U), normal.design.columns(A)
        if problem.loss.least_squares:
            root = np.sqrt(problem.d)[:, None]
            K, c, constant = _gram(root * Z, root * always, root[:, 0] * problem.y)
            K.flat[:: len(K) + 1] += normal.ridge[U]
            self.quadratic = Quadratic(K, c, constant, start, threshold, self.parts, self.count, _ROUNDING)
            if self.parts.size == 0 or constant == 0.0:
                return Relaxation(
                    self.quadratic, np.empty(0, dtype=np.intp), 0.0, K, np.ones(self.parts.size)
                )
            found = best_relaxation(self.quadratic, np.empty(0, dtype=np.intp))
            if found is None:
                raise Unbounded(
                    "l2 must be > 0: without a ridge term these columns are too close to dependent"
                )
            return found
        if self.parts.size and normal.ridge[U].min() <= 0.0:
            raise Unbounded(f"l2 must be > 0 to certify the loss {problem.loss.name!r}")
        return GeneralRelaxation(
            problem.loss, problem.y, problem.d, np.ascontiguousarray(Z), always, normal.ridge[U], start,
            threshold, self.parts, self.count,
        )  # fmt: skip

    # -- upper bounds ---------------------------------------------------------------------------------

    def improve(self, parts: np.ndarray) -> float:
        """Fit these free parts if that is new; returns the objective of the best point known."""
        key = np.sort(parts).tobytes()
        if key not in self._seen:
            self._seen[key] = self.value(parts)
            if self._seen[key] < self.upper - 1e-12 * abs(self.upper):
                self._take(parts)
        return self.upper

    def value(self, parts: np.ndarray) -> float:
        """The smallest objective with these parts free."""
        if self.hard and self.problem.loss.least_squares:
            chosen = np.isin(self.parts, parts)
            reduced = self.quadratic.reduced(chosen, np.zeros(chosen.size, dtype=bool))
            if reduced is not None:
                return reduced.constant
        return self._fitted(parts)[1]

    def _fitted(self, parts):
        penalty = self.normal.penalty
        weights = np.ones(penalty.norm.count)
        weights[parts] = 0.0
        weights[self._levels == 0] = 0.0
        threshold = penalty.thresholds(weights, self.problem.alpha)
        if self.hard:
            threshold = np.where(weights > 0, np.inf, 0.0)
        theta = self._inner.solve(np.zeros(self.normal.n_features), threshold)[0] / self.norms
        return theta, self.problem.objective(theta)

    def _take(self, parts):
        """Keep the fit of these parts, and the point that the solver reaches from it, if they are better."""
        theta, objective = self._fitted(parts)
        if objective < self.upper:
            self.best, self.upper = theta, objective
            *_, step = iterate(self.problem, theta, effort="low")
            if step.objective < self.upper and (not self.hard or self._fits(step.theta)):
                self.best, self.upper = step.theta, step.objective

    def _fits(self, theta):
        lengths = self.problem.penalty.norm.lengths(theta)
        return np.count_nonzero(lengths[self._levels > 0]) <= self.count


def _gram(Z, always, y):
    """``Z'Z``, ``Z'y`` and ``y'y / 2`` of what the columns ``always`` leave of Z and y."""
    if always.shape[1]:
        Q, R, _ = qr(always, mode="economic", pivoting=True)
        Q = Q[:, np.abs(np.diagonal(R)) > _DEPENDENT]
        for _ in range(2):
            Z, y = Z - Q @ (Q.T @ Z), y - Q @ (Q.T @ y)
    return np.ascontiguousarray(Z.T @ Z), Z.T @ y, 0.5 * float(y @ y)
