r"""The default solver: majorize-minimize over the weights, from a good start, then exchanges.

Given theta the weights w follow from the penalty's rule. Given w the problem is convex and is solved to its
end by working sets (:mod:`trimreg.solvers.mm.workingset`). F falls strictly until the weights repeat
themselves, at a local minimum. The start decides which one, so a trimmed penalty is solved in three parts:

1. **start**: the soft-min homotopy (:func:`homotopy`), or the given point;
2. **MM** to a local minimum;
3. **exchanges** (:mod:`trimreg.solvers.search.exchange`): splices, single swaps and a few kicks.

``effort="low"`` is MM from the weighted lasso alone. ``"medium"`` is the three parts. ``"high"`` adds two
more starts, a path of rising alpha and a best subset, and takes larger splices, more swaps and more kicks.

Above the exact-penalty threshold the weighted lasso is zero, so the start is computed at a smaller alpha. For
single coefficients and least squares part 3 is then the search over subsets
(:mod:`trimreg.solvers.search.subset`), which scores every single swap exactly: the result is 1-swap optimal
and is marked so. For other losses, and for groups, part 3 searches the quadratic model of the loss at the
local minimum, and keeps the exchanges that the loss itself confirms.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...penalties.base import largest_violation
from ..driver import Step
from ..gram import GramCache
from ..problem import Problem, feasible_start
from ..search.exchange import exchange_while_better, kick
from ..search.groups import GroupSearch, eliminated
from ..search.model import ModelSubset
from ..search.soft import SoftSearch
from ..search.subset import SubsetSearch
from .workingset import GramSolver, WorkingSetSolver


@dataclass(frozen=True)
class Effort:
    """How hard to look for a good basin."""

    search: bool  # whether there are a homotopy and exchanges at all
    splices: tuple[int, ...] = (8, 4, 2)
    trials: int = 6
    kicks: int = 4
    subset_kicks: int = 6
    rounds: int = 1
    subset_rounds: int = 1
    rivals: bool = False  # whether further starts are tried under a soft alpha


EFFORTS = {
    "low": Effort(search=False),
    "medium": Effort(search=True),
    "high": Effort(
        True, (32, 16, 8, 4, 2), trials=24, kicks=20, subset_kicks=30, rounds=3, subset_rounds=4, rivals=True
    ),
}

_EPS = float(np.finfo(float).eps)
_KICK_SHARE = 3  # a kick replaces one free coordinate in so many
_PATIENCE = 3  # kicking ends after so many kicks that lead back to the same free set


def iterate(
    problem: Problem, theta0: np.ndarray | None, *, tol: float = 1e-6,
    rng: np.random.Generator | None = None, effort: str = "medium",
) -> Iterator[Step]:  # fmt: skip
    """Steps of the default solver; see the module. With ``theta0=None`` the solver chooses its start."""
    if effort not in EFFORTS:
        raise ValueError(f"effort must be one of {sorted(EFFORTS)}; got {effort!r}")
    rng = np.random.default_rng(0) if rng is None else rng
    normal, norms = problem.normalized()
    start = None if theta0 is None else feasible_start(problem, theta0) * norms
    inner = WorkingSetSolver(normal, tol)
    for step in normalized_steps(inner, norms, start, rng, EFFORTS[effort]):
        yield replace(step, theta=step.theta / norms)


def normalized_steps(
    inner: WorkingSetSolver, norms: np.ndarray, start: np.ndarray | None, rng: np.random.Generator,
    effort: Effort,
) -> Iterator[Step]:  # fmt: skip
    """The steps for columns of norm one; ``norms`` are those of the design."""
    problem = inner.problem
    if problem.penalty.n_free is None:
        return _majorize_minimize(inner, start)
    if problem.loss.constant_curvature and problem.penalty.norm.q is None:
        return _trimmed_quadratic(inner, norms, start, rng, effort)
    return _trimmed_general(inner, start, rng, effort)


def confirm(
    problem: Problem, few: Problem, step: Step, *, tol: float = 1e-6, **ignored: Any
) -> Iterator[Step]:
    """MM on the data from a step of the problem on few rows (:meth:`Problem.compressed`).

    Gram matrices are still those of the few rows; the gradients of the data correct their rounding.
    """
    normal, norms = problem.normalized()
    few = replace(few, design=few.design.rescaled(1.0 / norms))
    inner = WorkingSetSolver(normal, tol, gradient_at_zero=few.loss_gradient(few.origin()))
    inner.gram = GramCache(few.design, few.d, normal.ridge)
    for end in _majorize_minimize(inner, step.theta * norms, step.weights):
        confirmed = end.converged and np.array_equal(end.weights == 0, step.weights == 0)
        optimal = step.swap_optimal if confirmed else None
        yield replace(end, theta=end.theta / norms, swap_optimal=optimal)


# -- MM alone: any penalty, any loss ------------------------------------------------------------------


def _majorize_minimize(inner, theta, weights=None):
    """Weights, inner problem, weights, ... until the weights of the solution leave it optimal."""
    problem, penalty, gradient = inner.problem, inner.problem.penalty, None
    if theta is None:
        theta = inner.null
        if weights is None and penalty.n_free is None:
            # theta = 0 gives a folded concave penalty its full weights: the first problem is the lasso
            weights, gradient = penalty.weights(theta, problem.alpha), inner.gradient_at_null
    if weights is None:
        gradient = problem.gradient(theta)
        weights = problem.weights(theta, gradient)
    objective = np.inf
    while True:
        threshold = penalty.thresholds(weights, problem.alpha)
        theta, gradient, loss, solved = inner.solve(theta, threshold, gradient=gradient)
        # A free coefficient within rounding of 0 is 0: its place is open to the largest gradient.
        theta = np.where(np.abs(theta) <= 10 * _EPS * np.max(np.abs(theta), initial=0.0), 0.0, theta)
        previous, objective = objective, loss + penalty.value(theta, problem.alpha)
        weights = problem.weights(theta, gradient)
        threshold = penalty.thresholds(weights, problem.alpha)
        worst = largest_violation(theta, gradient, threshold, problem.positive, penalty.norm)
        # The second test is for rounding: F cannot fall any further although the tolerance asks for it.
        done = solved and (worst <= inner.goal or objective > previous - 1e-14 * abs(previous))
        message = f"largest violation {worst:.3g}, goal {inner.goal:.3g}"
        yield Step(theta, weights, objective, converged=done, message=message)
        if done or not solved:
            return


# -- starts -------------------------------------------------------------------------------------------


def _default_start(inner, effort):
    """The start of MM, ``(theta, gradient, weights)``; a generator of the steps that lead to it."""
    problem, penalty = inner.problem, inner.problem.penalty
    alpha = min(problem.alpha, _start_alpha(inner)) if penalty.n_free else problem.alpha
    softened = inner.at(alpha)
    if effort.search and alpha == problem.alpha and softened.gram is None:
        return (yield from _homotopy_apart(softened))
    if effort.search and alpha == problem.alpha:
        for theta, gradient, loss, weights in homotopy(softened):  # noqa: B007 - the last is used
            yield Step(theta, weights, loss + penalty.value(theta, alpha), message="homotopy")
        if effort.rivals:
            theta, gradient = rising_alpha(softened, theta, gradient)
        return theta, gradient, softened.problem.weights(theta, gradient)
    rounds = 1 if alpha == problem.alpha else 5
    # Without a Gram matrix every digit costs passes over X, and MM continues from here anyway.
    exactly = alpha == problem.alpha and inner.gram is not None
    tol = inner.tol if exactly else max(1e-3, inner.tol)
    theta, gradient, loss, weights = _lasso_start(softened, tol, rounds)
    yield Step(theta, weights, loss + penalty.value(theta, problem.alpha), message="start")
    return theta, gradient, weights


def _homotopy_apart(inner):
    """The homotopy of a loss without a Gram matrix, on the columns alone that are likely to matter.

    They are the columns of the weighted lasso, where the homotopy begins, and those of the largest gradients
    there. The MM and the exchanges that follow see all columns.
    """
    problem, norm = inner.problem, inner.norm
    theta, gradient, loss, weights = _lasso_start(inner, 1e-2, rounds=1)
    yield Step(theta, weights, loss + problem.penalty.value(theta, problem.alpha), message="start")
    levels = problem.penalty.levels(problem.alpha)
    inside = (norm.lengths(theta) > 0) | (levels == 0)
    needed = max(problem.penalty.n_free, np.count_nonzero(inside))
    room = int(min(4 * max(64, needed), max(needed + 8, inner.room())))
    pull = np.where(inside, np.inf, norm.dual_lengths(gradient))
    pull[np.isinf(levels) | ~inner.alive] = -1.0
    parts = np.sort(np.argpartition(-pull, min(room, pull.size) - 1)[:room])
    apart, W = inner.restricted(parts), norm.coordinates(parts)
    for local, *_ in homotopy(apart):
        theta = np.zeros_like(theta)
        theta[W] = local
        yield Step(theta, weights, problem.objective(theta), message="homotopy")
    gradient = problem.gradient(theta)
    return theta, gradient, problem.weights(theta, gradient)


def _start_alpha(inner):
    """The alpha of a start if alpha itself is too large for one: a fraction of the alpha that zeroes all."""
    factor = inner.problem.penalty.levels(1.0)
    regular = (factor > 0) & np.isfinite(factor)
    pull = inner.norm.dual_lengths(inner.gradient_at_null)
    return 0.3 * np.max(pull[regular] / factor[regular], initial=0.0)


def _lasso_start(inner, tol, rounds=5):
    """``(theta, gradient, loss, weights)`` of the weighted lasso followed by some steps of MM."""
    problem, penalty = inner.problem, inner.problem.penalty
    theta, gradient = inner.null, inner.gradient_at_null
    weights = np.ones(inner.norm.count)
    for _ in range(rounds):
        threshold = penalty.thresholds(weights, problem.alpha)
        theta, gradient, loss, _ = inner.solve(theta, threshold, tol=tol, gradient=gradient)
        previous, weights = weights, problem.weights(theta, gradient)
        if np.array_equal(weights, previous):
            break
    return theta, gradient, loss, weights


def _eliminated_start(inner):
    """``(theta, weights)`` with the h free parts that backward elimination leaves of a weighted lasso.

    The alpha of the lasso falls until more than enough parts are in. A generator of steps.
    """
    problem, norm, h = inner.problem, inner.norm, inner.problem.penalty.n_free
    levels = problem.penalty.levels(1.0)
    regular = (levels > 0) & np.isfinite(levels) & inner.alive
    alpha, theta, gradient = _start_alpha(inner), inner.null, inner.gradient_at_null
    most = min(2 * h, int(np.count_nonzero(regular)))
    for _ in range(6):
        threshold = problem.penalty.levels(alpha)  # not levels * alpha: both inf and 0 may occur
        theta, gradient, loss, _ = inner.solve(theta, threshold, tol=1e-2, gradient=gradient)
        chosen = np.flatnonzero((norm.lengths(theta) > 0) & regular)
        if chosen.size >= most:
            break
        alpha *= 0.6
    weights = problem.weights(theta, gradient)
    yield Step(theta, weights, loss + problem.penalty.value(theta, problem.alpha), message="start")
    if chosen.size <= h:
        return np.where(norm.spread(weights > 0), 0.0, theta), weights
    parts = np.flatnonzero((norm.lengths(theta) > 0) | ((levels == 0) & inner.alive))
    model = GramSolver(inner, parts, theta, gradient, loss, inner.point(theta)[0])
    free = eliminated(model, theta, gradient, chosen, h)
    kept = levels == 0
    kept[free] = True
    theta = np.where(norm.spread(kept), theta, 0.0)
    return theta, problem.weights_freeing(theta, free)


def homotopy(
    inner: Any, *, growth: float = 1.5, first: float = 0.1, max_stages: int = 48
) -> Iterator[tuple[np.ndarray, np.ndarray, float, np.ndarray]]:
    r"""The quadratic soft-min homotopy: from the weighted lasso to the trimmed penalty by degrees.

    For ``gamma >= 0`` let

    .. math:: \phi_\gamma(r) = \min_{w \in S}\; \langle w, r\rangle + \frac{1}{2\gamma}\|w - w_0\|^2, \qquad
              w_\gamma(r) = \mathrm{proj}_S(w_0 - \gamma r),\qquad w_0 = (p-h)/p.

    At ``gamma = 0`` every coordinate is penalized alike. As gamma grows, the weights of the large magnitudes
    fall to 0 and the others rise to 1, until w is a vertex of S and ``phi`` the trimmed sum. ``phi_gamma`` is
    concave in r, so solving the weighted problem and taking new weights is a majorize-minimize step for each
    gamma. Following the minimizer as gamma rises leads to far better basins than starting at the vertex, for
    O(p) work per step.

    Yields ``(theta, gradient, loss, weights)`` for rising gamma, ending at weights of zeros and ones. Gamma
    starts where the largest magnitude loses ``first`` of its weight, and grows by the factor ``growth``.
    """
    problem = inner.problem
    penalty = problem.penalty
    start = penalty.uniform_weights()
    weights, gamma = start, 0.0
    levels = penalty.thresholds(start, problem.alpha)
    positive = levels[(levels > 0) & np.isfinite(levels)]
    tol = min(1e-3, 0.05 * positive.min(initial=np.inf) / inner.scale)
    theta, gradient = inner.null, inner.gradient_at_null
    for _ in range(max_stages):
        threshold = penalty.thresholds(weights, problem.alpha)
        theta, gradient, loss, _ = inner.solve(theta, threshold, tol=tol, gradient=gradient)
        yield theta, gradient, loss, weights
        magnitude = penalty.magnitudes(theta)
        top = magnitude.max(initial=0.0)
        if top == 0.0:
            return
        gamma = gamma * growth if gamma else first / top
        weights = penalty.project_weights(start - gamma * magnitude)
        fractional = (weights > 0) & (weights < 1)
        if not fractional[magnitude > 0].any():
            return


def rising_alpha(inner: Any, theta: np.ndarray, gradient: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A start for ``inner``'s alpha: follow local minima from a smaller alpha up to it.

    At a small alpha the problem is nearly unpenalized and its free set hardly matters. Each larger alpha
    starts from the free set of the one before. Returns the given point or the one found, whichever has the
    lower F.
    """
    problem = inner.problem
    rival, rival_gradient = theta, gradient
    for alpha in problem.alpha * np.geomspace(0.05, 1.0, 6):
        search = SoftSearch(inner.at(alpha), rival, problem.free_set(rival, rival_gradient))
        rival, rival_gradient = search.theta, search.gradient
    incumbent = SoftSearch(inner, theta, problem.free_set(theta, gradient))
    better = search if search.objective < incumbent.objective else incumbent
    return better.theta, better.gradient


# -- trimmed: any loss, single coefficients or groups ---------------------------------------------------


def _trimmed_general(inner, theta0, rng, effort):
    """Start, MM, and exchanges on the quadratic model at the local minimum that MM finds."""
    problem, penalty = inner.problem, inner.problem.penalty
    theta, weights = theta0, None
    if theta0 is None and problem.alpha >= problem.exact_threshold() and penalty.n_free > 0:
        theta, weights = yield from _eliminated_start(inner)
    elif theta0 is None:
        theta, _, weights = yield from _default_start(inner, effort)
    best = yield from _settled(inner, theta, weights)
    yield from improve_on_model(inner, best, rng, effort)


def settle(inner: WorkingSetSolver, theta: np.ndarray, weights: np.ndarray) -> Step:
    """The local minimum that MM leads to from there."""
    *_, step = _majorize_minimize(inner, theta, weights)
    return step


def improve_on_model(
    inner: WorkingSetSolver, best: Step, rng: np.random.Generator, effort: Effort
) -> Iterator[Step]:
    """Steps of exchanges on the quadratic model at a local minimum, as long as the loss confirms them."""
    problem = inner.problem
    searchable = effort.search and problem.penalty.n_free > 0 and not np.any(problem.positive)
    kicks = effort.kicks
    while searchable and best.converged:
        proposal = _search_model(inner, best, rng, effort, kicks)
        if proposal is not None:
            theta, weights = proposal
            rival = yield from _settled(inner, theta, weights, best)
            if rival.objective < best.objective - 1e-9 * abs(best.objective):
                best = rival
                continue
        if kicks == 0 or proposal is None:
            break
        kicks = 0  # the model is only trusted near the point: once more without leaps
    yield best


def _settled(inner, theta, weights, incumbent=None):
    """The last step of MM from there; a generator whose steps show the incumbent if there is one."""
    for step in _majorize_minimize(inner, theta, weights):
        shown = step if incumbent is None else incumbent
        yield replace(shown, converged=False, message="exchanging" if incumbent else step.message)
    return step


def _search_model(inner, best, rng, effort, kicks):
    """``(theta, weights)`` of a lower local minimum of the quadratic model at ``best``, or None."""
    problem, penalty, norm = inner.problem, inner.problem.penalty, inner.norm
    predictor, gradient, loss = inner.point(best.theta)
    levels = penalty.levels(problem.alpha)
    usable = inner.alive & np.isfinite(levels)
    free = np.flatnonzero((best.weights == 0) & (levels > 0) & usable)
    inside = usable & ((norm.lengths(best.theta) > 0) | (levels == 0))
    inside[free] = True
    outside = np.flatnonzero(usable & ~inside)
    room = max(100, 2 * free.size) if norm.q is None else max(50, 2 * free.size)
    if outside.size > room:
        pull = norm.dual_lengths(gradient)[outside] / levels[outside]
        outside = outside[np.argpartition(-pull, room)[:room]]
    inside[outside] = True
    model = GramSolver(inner, np.flatnonzero(inside), best.theta, gradient, loss, predictor)
    search: Any
    if problem.alpha >= problem.exact_threshold():
        search = ModelSubset(model, free, best.theta, gradient, loss)
    else:
        search = (SoftSearch if norm.q is None else GroupSearch)(model, best.theta, free, gradient)
    before = search.objective
    for _ in _exchange(search, rng, effort, kicks):
        pass
    if not search.objective < before - 1e-9 * abs(before):
        return None
    theta, free = search.solution()
    return theta, problem.weights_freeing(theta, free)


# -- trimmed least squares ------------------------------------------------------------------------------


def _trimmed_quadratic(inner, norms, theta0, rng, effort):
    problem, penalty = inner.problem, inner.problem.penalty
    exact = problem.alpha >= problem.exact_threshold()
    if theta0 is None:
        theta, gradient, _ = yield from _default_start(inner, effort)
    else:
        theta, gradient = theta0, problem.gradient(theta0)
    weights = problem.weights(theta, gradient)
    free = problem.free_set(theta, gradient)
    undetermined = penalty.n_free >= np.count_nonzero(problem.d) and not problem.ridge.any()
    if undetermined and not np.any(problem.positive):
        nothing = 1e-12 * problem.loss_value(problem.origin())
        for step in _interpolate(inner, norms, free):  # no fit is better than a perfect one
            yield replace(step, swap_optimal=True if step.objective <= nothing else None)
        return
    searchable = not np.any(problem.positive) and effort.search and penalty.n_free > 0
    if not searchable:
        if exact:
            theta = np.where(weights > 0, 0.0, theta)
        for step in _majorize_minimize(inner, theta, weights):  # h = 0 has nothing to swap
            yield replace(step, swap_optimal=True if step.converged and penalty.n_free == 0 else None)
        return
    search = SubsetSearch(inner, free) if exact else SoftSearch(inner, theta, free, gradient)
    yield _step_at(search)
    yield from _search(search, rng, effort)
    if effort.rivals and not exact:
        search = yield from _subset_rival(search, rng, effort)
    theta, free = search.solution()
    certified = search.certifies and search.decided()
    for step in _majorize_minimize(inner, theta, problem.weights_freeing(theta, free)):
        yield replace(step, swap_optimal=True if certified and step.converged else None)


def _search(search, rng, effort):
    """Rounds of exchanges, first among few columns without touching X, then among all."""
    subset = search.certifies
    for _ in range(effort.subset_rounds if subset else effort.rounds):
        narrow = search.narrowed()
        kicks = effort.subset_kicks if subset else effort.kicks
        settled = yield from _shown(narrow, _exchange(narrow, rng, effort, kicks))
        search.adopt(narrow)
        if not narrow.complete:
            yield from _shown(search, exchange_while_better(search, (), effort.trials))
        if settled:
            break
    if subset:
        search.refresh()  # the last check is free of the rounding of updates
        yield from _shown(search, exchange_while_better(search, (), effort.trials))


def _subset_rival(search, rng, effort):
    """The better of a soft search and one from a best subset, where F is the loss alone."""
    inner = search.inner
    theta, gradient, *_ = _lasso_start(inner.at(_start_alpha(inner)), 1e-3)
    subset = SubsetSearch(inner, inner.problem.free_set(theta, gradient))
    for _ in _search(subset, rng, effort):
        yield _step_at(search)  # a run that is stopped here returns the incumbent
    rival = SoftSearch(inner, *subset.solution())
    for _ in _search(rival, rng, effort):
        yield _step_at(search)
    return rival if rival.objective < search.objective else search


def _exchange(search, rng, effort, kicks):
    """Splices, swaps and kicks, one at a time; returns whether kicks kept leading back to the same set."""
    yield from exchange_while_better(search, effort.splices, effort.trials)
    returns = 0
    for _ in range(kicks if search.free.size > 1 else 0):
        returns += not kick(search, rng, _KICK_SHARE)
        yield
        if returns == _PATIENCE:
            return True
    return False


def _shown(search, moves):
    """A step after every move of a search; returns what the moves return."""
    while True:
        try:
            next(moves)
        except StopIteration as end:
            return end.value
        yield _step_at(search)


def _step_at(search):
    theta, free = search.solution()
    weights = search.inner.problem.weights_freeing(theta, free)
    return Step(theta, weights, search.objective, message="exchanging free coordinates")


def _interpolate(inner, norms, free):
    """The perfect fit of least norm: with h >= n free coordinates it is not unique."""
    problem, penalty = inner.problem, inner.problem.penalty
    message = (
        f"h = {penalty.n_free} is not below the number of samples {np.count_nonzero(problem.d)}: the free "
        "coefficients are not determined; the solution of least norm is returned"
    )
    warnings.warn(message, UserWarning, stacklevel=2)
    # Dependent columns in the free set give way to columns that the fit needs, as far as there are any.
    needed = SubsetSearch(inner, free).solution()[1]
    free = np.concatenate([needed, np.setdiff1d(free, needed)[: penalty.n_free - needed.size]])
    weights = problem.weights_freeing(np.zeros(problem.n_features), free)
    used = np.flatnonzero((weights == 0) & inner.alive)
    root, unit = np.sqrt(problem.d), norms[used]
    block = problem.design.columns(used).astype(float) * unit * root[:, None]
    theta = np.zeros(problem.n_features)
    theta[used] = np.linalg.lstsq(block, root * problem.y.ravel(), rcond=None)[0] * unit
    yield from _majorize_minimize(inner, theta, weights)
