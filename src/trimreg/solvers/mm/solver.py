r"""The default solver: majorize-minimize over the weights, from a good start, then exchanges.

Given theta the weights w follow from the penalty's rule. Given w the problem is convex and is solved to its
end by working sets (:mod:`trimreg.solvers.mm.workingset`). F falls strictly until the weights repeat
themselves, at a local minimum. The start decides which one, so a trimmed penalty is solved in three parts:

1. **start**: the soft-min homotopy (:func:`~trimreg.solvers.mm.starts.homotopy`), or the given point;
2. **MM** to a local minimum;
3. **exchanges** (:mod:`trimreg.solvers.search.exchange`): splices, single swaps and a few kicks.

If supports are hard to find (:func:`~trimreg.solvers.mm.starts.supports_are_hard`), a few random starts
follow (:func:`~trimreg.solvers.mm.starts.random_starts`), and the lowest of all is taken. The module
:mod:`trimreg.solvers.mm.starts` has all starts.

``effort="low"`` is MM from the weighted lasso alone. ``"medium"`` is what is described above. ``"high"`` adds
two starts, a path of rising alpha and a best subset, takes larger splices, more swaps and more kicks, and
tries many random starts for every problem of least squares.

Above the exact-penalty threshold the weighted lasso is zero, so the start is computed at a smaller alpha. For
single coefficients and least squares part 3 is then the search over subsets
(:mod:`trimreg.solvers.search.subset`), which scores every single swap exactly: the result is 1-swap optimal
and is marked so. The start is a subset that grows column by column; the weighted lasso and growing again are
tried among few columns. For other losses, and for groups, part 3 searches the quadratic model of the loss at
the local minimum, and keeps the exchanges that the loss itself confirms.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..driver import Step
from ..gram import GramCache
from ..problem import Problem, feasible, feasible_start
from ..search.bounded import BoundedSubset
from ..search.crossings import crossings
from ..search.exchange import best_first, exchange_while_better, kick
from ..search.groups import GroupSearch
from ..search.model import ModelSubset
from ..search.soft import SoftSearch
from ..search.subset import Subset, SubsetSearch, grown, share
from .effort import EFFORTS, Effort
from .starts import (
    default_start,
    eliminated_start,
    grown_start,
    lasso_among,
    lasso_start,
    n_different,
    random_starts,
    start_alpha,
    supports_are_hard,
)
from .workingset import GramSolver, WorkingSetSolver

_EPS = float(np.finfo(float).eps)
_DOUBT = 0.25  # of what a leaving part costs: so much may the model of a loss be off
_KICK_SHARE = 3  # a kick replaces one free coordinate in so many
_TINY = 3e-4  # in units of the alpha of starts: a smaller alpha makes a fit interpolate if it can
_FEW = 2  # searches on the model of a loss, and swaps tried, if the fit nearly interpolates
_DOUBTFUL = 3.0  # subsets are crossed if n < 3 h log(p / h)
_CROSSING = 3.0  # work of a crossing, in units of h p
_REPEATED = 10  # samples are not compared if there are so many times more than enough
_NEARBY = 10  # sizes below h whose best subsets are shared
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
        yield replace(step, theta=feasible(problem, step.theta / norms))


def normalized_steps(
    inner: WorkingSetSolver, norms: np.ndarray, start: np.ndarray | None, rng: np.random.Generator,
    effort: Effort,
) -> Iterator[Step]:  # fmt: skip
    """The steps for columns of norm one; ``norms`` are those of the design."""
    problem = inner.problem
    if problem.penalty.n_free is None:
        return _majorize_minimize(inner, start)
    effort = _reduced(inner, effort)
    if problem.loss.constant_curvature and problem.penalty.norm.q is None:
        return _trimmed_quadratic(inner, norms, start, rng, effort)
    return _trimmed_general(inner, start, rng, effort)


def _reduced(inner, effort):
    """Less effort where a fit interpolates or nearly does, so that the free set hardly matters."""
    problem, n = inner.problem, inner.problem.n_samples
    if problem.ridge.any():
        return effort
    width = problem.penalty.n_free * problem.n_features / inner.norm.count / problem.loss.n_outputs
    if width >= n or problem.alpha < _TINY * start_alpha(inner):
        return replace(effort, search=False)
    return replace(effort, homotopy=False, kicks=0, subset_kicks=0) if 2 * width >= n else effort


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
        yield replace(end, theta=feasible(problem, end.theta / norms), swap_optimal=optimal)


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
        if not np.isfinite(gradient).all():  # the quadratic model led to where the loss overflows
            theta, gradient = inner.null, inner.gradient_at_null
        weights = problem.weights(theta, gradient)
    objective = np.inf
    while True:
        threshold = penalty.thresholds(weights, problem.alpha)
        theta, gradient, loss, solved = inner.solve(theta, threshold, gradient=gradient)
        # A free coefficient within rounding of 0, times its column, is 0: its place is open to others.
        size = np.abs(theta) * np.sqrt(inner.share + problem.ridge)
        tiny = size <= 10 * _EPS * np.max(size, initial=0.0)
        if problem.bounds is not None:  # bounds may be as close to 0 as that
            tiny &= (theta != problem.bounds[0]) & (theta != problem.bounds[1])
        theta = np.where(tiny, 0.0, theta)
        previous, objective = objective, loss + penalty.value(theta, problem.alpha)
        weights = problem.weights(theta, gradient)
        threshold = penalty.thresholds(weights, problem.alpha)
        worst = float(np.max(np.abs(problem.residual(theta, gradient, threshold)), initial=0.0))
        # The second test is for rounding: F cannot fall any further although the tolerance asks for it.
        done = solved and (worst <= inner.goal or objective > previous - 1e-14 * abs(previous))
        message = f"largest violation {worst:.3g}, goal {inner.goal:.3g}"
        trouble = inner.trouble(theta) if done or not solved else ""
        yield Step(theta, weights, objective, converged=done, message=message, trouble=trouble)
        if done or not solved:
            return


# -- trimmed: any loss, single coefficients or groups ---------------------------------------------------


def _trimmed_general(inner, theta0, rng, effort):
    """Start, MM, and exchanges on the quadratic model at the local minimum that MM finds."""
    problem, penalty = inner.problem, inner.problem.penalty
    theta, weights = theta0, None
    if theta0 is None and problem.alpha >= problem.exact_threshold() and penalty.n_free > 0:
        theta, weights = yield from eliminated_start(inner)
    elif theta0 is None:
        theta, _, weights = yield from default_start(inner, effort)
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
    searchable = effort.search and problem.penalty.n_free > 0
    exact = problem.alpha >= problem.exact_threshold()
    # Under a soft alpha every search with kicks may find a lower basin; best subsets settle sooner.
    kicks, most = (effort.kicks // 2, 2 * effort.rounds) if exact else (effort.kicks, np.inf)
    # So many coefficients nearly interpolate: the free set hardly matters, but searches are large.
    samples, doubled = problem.n_samples, 2 * np.count_nonzero(best.theta) / problem.loss.n_outputs
    if problem.near and doubled < samples <= _REPEATED * doubled:  # copies are interpolated with the first
        samples = n_different(inner)
    wide = doubled >= samples and not problem.ridge.any() and not effort.rivals
    enough = np.inf
    if wide or not effort.homotopy:
        kicks, enough, effort = 0, _FEW, replace(effort, trials=_FEW)
    improved, searches = True, 0
    while searchable and improved and searches < enough and best.converged and not best.trouble:
        searches += 1
        kicks = kicks if searches <= most else 0
        improved, known = False, {_key(best.weights)}
        for leap, theta, weights in _proposals(inner, best, rng, effort, kicks):
            if _key(weights) in known:
                continue
            known.add(_key(weights))
            rival = yield from _settled(inner, theta, weights, best)
            if rival.objective < best.objective - 1e-9 * abs(best.objective - inner.loss_at_null):
                best, improved = rival, True
                break
            if leap:
                kicks = 0  # the model is only trusted near the point
    yield best


def _key(weights):
    return (weights == 0).tobytes()


def _settled(inner, theta, weights, incumbent=None):
    """The last step of MM from there; a generator whose steps show the incumbent if there is one."""
    for step in _majorize_minimize(inner, theta, weights):
        shown = step if incumbent is None else incumbent
        yield replace(shown, converged=False, message="exchanging" if incumbent else step.message)
    return step


def _proposals(inner, best, rng, effort, kicks):
    """Where F may be lower by the quadratic model at ``best``: tuples ``(after kicks, theta, weights)``.

    First the model is minimized by exchanges and kicks, then by exchanges alone. Last come single swaps in
    the order of their gain. The model is off by a part of what the leaving part costs, so that a swap is
    worth a fit if it loses less than that.
    """
    search, problem = _model_search(inner, best), inner.problem
    start, value = search.save(), search.objective
    for leaps in (kicks, 0) if kicks else (0,):
        for _ in _exchange(search, rng, effort, leaps):
            pass
        if not search.objective < value - 1e-9 * abs(value - inner.loss_at_null):
            break
        theta, free = search.solution()
        yield leaps > 0, theta, problem.weights_freeing(theta, free)
        search.restore(start)
    if inner.gram is not None:  # least squares is its own model, and leaves no doubt
        return
    scores = search.exchanges()
    gain = scores.gain + _DOUBT * scores.cost[scores.partner] if scores.free.size else scores.gain
    for position in best_first(gain, effort.trials):
        weights = best.weights.copy()
        weights[scores.free[scores.partner[position]]], weights[scores.candidates[position]] = 1.0, 0.0
        yield False, best.theta, weights


def _model_search(inner, best):
    """The search of the quadratic model at ``best``, among the parts of largest gradient."""
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
    if problem.alpha >= problem.exact_threshold():
        search = ModelSubset if problem.bounds is None else BoundedSubset
        return search(model, free, best.theta, gradient, loss)
    return (SoftSearch if norm.q is None else GroupSearch)(model, best.theta, free, gradient)


# -- trimmed least squares ------------------------------------------------------------------------------


def _trimmed_quadratic(inner, norms, theta0, rng, effort):
    problem, penalty = inner.problem, inner.problem.penalty
    exact = problem.alpha >= problem.exact_threshold()
    undetermined = penalty.n_free >= np.count_nonzero(problem.d) and not problem.ridge.any()
    searchable = effort.search and penalty.n_free > 0 and not undetermined
    bounded = problem.bounds is not None
    rivals = (_BOUNDED_RIVALS if bounded else _RIVALS) if exact and theta0 is None else ()
    if exact and searchable and theta0 is None and problem.near:
        search = BoundedSubset.of(inner, None) if bounded else grown_start(inner)
    else:
        if theta0 is None:
            theta, gradient, _ = yield from default_start(inner, effort)
        else:
            theta, gradient = theta0, problem.gradient(theta0)
        weights = problem.weights(theta, gradient)
        free = problem.free_set(theta, gradient)
        if undetermined and not bounded:
            nothing = 1e-12 * problem.loss_value(problem.origin())
            for step in _interpolate(inner, norms, free):  # no fit is better than a perfect one
                yield replace(step, swap_optimal=True if step.objective <= nothing else None)
            return
        if not searchable:
            if exact:
                theta = np.where(weights > 0, 0.0, theta)
            for step in _majorize_minimize(inner, theta, weights):  # h = 0 has nothing to swap
                yield replace(step, swap_optimal=True if step.converged and penalty.n_free == 0 else None)
            return
        search = _subset_search(inner, free) if exact else SoftSearch(inner, theta, free, gradient)
    yield _step_at(search)
    yield from _search(search, rng, effort, rivals)
    near = problem.near and not bounded
    doubtful = exact and effort.subset_kicks and near and supports_are_hard(inner, _DOUBTFUL)
    if effort.rivals or doubtful or supports_are_hard(inner):
        search, found = yield from _challenged(search, rng, effort)
        if exact and theta0 is None and not bounded:
            yield from _compare_with_grown(search, rng, effort)
        if doubtful and found:
            yield from _crossed(search, found, rng, effort)
    theta, free = search.solution()
    certified = search.certifies and search.decided()
    for step in _majorize_minimize(inner, theta, problem.weights_freeing(theta, free)):
        yield replace(step, swap_optimal=True if certified and step.converged else None)


_RIVALS = (lasso_among, SubsetSearch.regrow)  # starts of a best subset among few columns


def _from_lasso(search):
    """Move a search within bounds to the free set of a weighted lasso."""
    inner = search.inner
    theta, gradient, *_ = lasso_start(inner.at(start_alpha(inner)), 1e-3)
    search.move_to(inner.problem.free_set(theta, gradient))
    search.descend()


_BOUNDED_RIVALS = (_from_lasso,)


def _subset_search(inner, free):
    return (SubsetSearch if inner.problem.bounds is None else BoundedSubset.of)(inner, free)


def _search(search, rng, effort, rivals=()):
    """Rounds of exchanges, first among few columns without touching X, then among all."""
    subset = search.certifies
    for _ in range(effort.subset_rounds if subset else effort.rounds):
        narrow = search.narrowed()
        kicks = effort.subset_kicks if subset else effort.kicks
        settled = yield from _shown(narrow, _exchange(narrow, rng, effort, kicks, rivals))
        search.adopt(narrow)
        if not narrow.complete:
            yield from _shown(search, exchange_while_better(search, (), effort.trials))
        if settled:
            break
        rivals = ()
    if subset and search.refresh():  # the last check is free of the rounding of updates
        yield from _shown(search, exchange_while_better(search, (), effort.trials))


def _compare_with_grown(search, rng, effort):
    """Move a search to the best subset that has grown column by column, as in a path, if that is lower.

    With rivals the subsets of neighboring sizes are starts too.
    """
    problem, h = search.inner.problem, search.size
    if not problem.near or h * problem.y.shape[0] * problem.n_features > effort.work:
        return
    found = {}
    hard = effort.rivals or supports_are_hard(search.inner)
    for size, one in grown(search.inner, range(1, h + (4 if hard else 1))):
        if size >= h - _NEARBY:
            found[size] = _subset(one)
    if hard:
        found[h] = min(found[h], _subset(search), key=lambda one: one.objective)
        share(one, found)
    if found[h].objective < search.objective * (1 - 1e-9):
        search.move_to(found[h].free)
        yield from _search(search, rng, effort)


def _challenged(search, rng, effort):
    """The lowest of a search and of those from other starts; a generator of its steps."""
    inner, exact = search.inner, search.certifies
    nothing = 1e-12 * inner.loss_at_null  # no fit is better than a perfect one
    if search.objective <= nothing:
        return search, []
    if effort.rivals and not exact:
        theta, gradient, *_ = lasso_start(inner.at(start_alpha(inner)), 1e-3)
        rival = _subset_search(inner, inner.problem.free_set(theta, gradient))
        for _ in _search(rival, rng, effort):
            yield _step_at(search)  # a run that is stopped here returns the incumbent
        rival = SoftSearch(inner, *rival.solution())
        for _ in _search(rival, rng, effort):
            yield _step_at(search)
        search = min(rival, search, key=lambda found: found.objective)
    best, agreed, found = search, 0, [_subset(search)]
    hard = supports_are_hard(inner)
    count = effort.starts if hard else Effort.starts if effort.rivals else 0
    count *= 3 if exact else 1  # there was no homotopy, and a start costs less
    for free in random_starts(inner, rng, count, effort.work * (0.75 if exact else 1.0)):
        rival = _subset_search(inner, free)
        for _ in exchange_while_better(rival, splices=()):
            pass
        if not exact:
            rival = SoftSearch(inner, *rival.solution())
        yield _step_at(best)
        found.append(_subset(rival))
        if rival.objective < best.objective * (1 - 1e-9):
            best, agreed = rival, 0
        else:
            agreed += np.array_equal(np.sort(rival.free), np.sort(best.free))
        if agreed == effort.agreed or best.objective <= nothing:
            found = []  # no doubt is left
            break
    if best is not search:
        yield from _search(best, rng, effort)
    return best, found


def _crossed(search, found, rng, effort):
    """Move a search to the lowest crossing of the subsets found, if that is lower."""
    best = _subset(search)
    most = int(effort.work / (_CROSSING * search.size * search.n_features))
    rival = SubsetSearch(search.inner, best.free)
    for at in crossings(rival, [best, *found], rng, effort.patience, most):
        best = min(best, _subset(at), key=lambda one: one.objective)
        yield _step_at(search)
    if best.objective < search.objective * (1 - 1e-9):
        search.move_to(best.free)
        yield from _search(search, rng, effort)


def _subset(search):
    return Subset(search.objective, search.free.copy())


def _exchange(search, rng, effort, kicks, rivals=()):
    """Splices, swaps, rivals and kicks, one at a time; returns whether kicks led back to the same set.

    A rival moves the search to another start, which is kept if it is lower.
    """
    yield from exchange_while_better(search, effort.splices, effort.trials)
    for rival in rivals:
        state, objective = search.save(), search.objective
        rival(search)
        if not search.objective < objective * (1 - 1e-9):
            search.restore(state)
        yield
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
    weights = search.inner.problem.weights_of(free)
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
