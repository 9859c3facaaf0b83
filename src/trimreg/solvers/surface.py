r"""The whole surface of (h, alpha) from warm starts.

Alpha rises, and within it h. A cell then has two solved neighbors, each a start: the smaller h, with the best
candidates added to its free set, and the smaller alpha. The start that leads lower is kept and improved by
exchanges. A sweep back, from larger alpha and larger h, offers every cell its other two neighbors. Best
subsets are rivals at the largest alpha, and the homotopy at one cell of every third row. Their findings
spread from there. Finally a cell whose F is above that of a smaller h or of a larger alpha restarts from that
solution: F must not rise with h nor fall as alpha rises.

For least squares and single coefficients all of it happens in Gram coordinates. The Gram matrix of the
columns that matter is computed once. A cell then costs no pass over X, or one pass that verifies it if X has
more columns than the matrix. Above the exact-penalty threshold a row is a path of best subsets, each grown
from the last. Other losses, and groups, are solved by MM from the same neighbors. In a path that is verified
the single fit of each h is a rival, and the better of the two is offered to the neighboring sizes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ..penalties.base import largest_violation
from .driver import Step
from .gram import GramCache
from .mm.effort import EFFORTS
from .mm.solver import improve_on_model, normalized_steps, settle
from .mm.starts import homotopy
from .mm.workingset import GramSolver, WorkingSetSolver
from .problem import Problem, feasible
from .search.exchange import exchange_while_better, kick
from .search.soft import SoftSearch
from .search.subset import Subset, grown, share

_ALL_COLUMNS = 3000  # up to this many columns the whole Gram matrix is formed
_KICKS = 1  # out of the basin of a best subset that is a rival at the largest alpha
_BETTER = 1e-7  # relative fall of F for which a rival is taken
_RISE = 1e-10  # relative rise of F with h, or fall with alpha, that is rounding
_ROUGH = 1e-2  # tolerance at which rivals are compared; the further fall of F is of second order
_HOMOTOPY_ROWS = 3  # the homotopy is a rival at one cell of every third row


def surface(
    problem: Problem, hs: Sequence[int], alphas: Sequence[float], *, tol: float = 1e-6,
    rng: np.random.Generator | None = None, effort: str = "medium",
    gram: Callable[[np.ndarray], GramCache] | None = None, verify: bool = True,
    known: list[list[Step]] | None = None, advance: Callable[[], None] = lambda: None,
) -> list[list[Step]]:  # fmt: skip
    """One :class:`Step` per cell: ``steps[i][j]`` for ``hs[i]``, which rise, and ``alphas[j]``, in any order.

    The penalty of ``problem`` is trimmed and bound to any h. Alphas at or above the exact-penalty threshold
    give best subsets. ``tol``, ``rng`` and ``effort`` are those of the default solver; ``"high"`` tries the
    homotopy in every cell. ``gram`` gives a Gram matrix for the norms of the columns, if it does not come
    from the design. With ``verify`` every cell is checked by the true gradient, and finished by MM if it
    falls short. Above the threshold it is then also no worse than a single fit with the same ``rng`` and
    ``effort``, for the time of these fits (but not with ``"low"``). ``known`` is this surface for another
    ridge. For losses other than least squares, and for groups, its solutions are starts, and there are no
    random kicks if one of its free sets is found again. ``advance`` is called after every cell.
    """
    normal, norms = problem.normalized()
    inner = WorkingSetSolver(normal, tol)
    rng = np.random.default_rng(0) if rng is None else rng
    single = normal.loss.constant_curvature and normal.penalty.norm.q is None
    if single and normal.bounds is None:
        if gram is not None:
            inner.gram = gram(norms)
        rows = _LeastSquares(inner, effort, verify)
    else:
        rows = _General(inner, effort, rng)
        for h, row in zip(hs, known or (), strict=known is not None):
            for alpha, step in zip(alphas, row, strict=True):
                rows.known[int(h), float(alpha)] = replace(step, theta=step.theta * norms)
    if verify and effort != "low" and normal.near:
        rows.alone = partial(_alone, normal, norms, tol, copy.deepcopy(rng), effort)
    hs, order = [int(h) for h in hs], np.argsort(alphas)
    threshold = normal.exact_threshold()
    exact = [j for j in order if alphas[j] >= threshold]
    soft = [j for j in order if alphas[j] < threshold]
    columns = {j: list(rows.subsets(hs, float(alphas[j]), advance)) for j in exact}
    if soft:
        columns |= zip(soft, rows.soft(hs, [float(alphas[j]) for j in soft], advance), strict=True)
    steps = [[columns[j][i] for j in range(len(alphas))] for i in range(len(hs))]
    _make_monotone(inner, steps, hs, alphas, order)
    return [[replace(step, theta=feasible(problem, step.theta / norms)) for step in row] for row in steps]


def _alone(normal, norms, tol, rng, effort, h, alpha) -> Step:
    """The single fit of a cell: nothing is shared, so that it is the same to the last digit."""
    inner = WorkingSetSolver(normal.at(alpha).freeing(h), tol)
    *_, step = normalized_steps(inner, norms, None, copy.deepcopy(rng), EFFORTS[effort])
    return step


def _make_monotone(inner, steps, hs, alphas, order):
    """Restart cells from a neighbor that shows that they are not minimal; the steps are replaced in place.

    For fixed theta, F does not rise with h and does not fall as alpha rises. So the solution of a smaller h,
    or of a larger alpha, bounds the minimum here. Each cell comes after the two that bound it.
    """
    order = order[::-1]
    for i, h in enumerate(hs):
        for k, j in enumerate(order):
            bounds = [steps[i - 1][j]] if i else []
            bounds += [steps[i][order[k - 1]]] if k else []
            lowest = min(bounds, key=lambda step: step.objective, default=steps[i][j])
            if steps[i][j].objective > lowest.objective + _RISE * abs(lowest.objective):
                local = inner.at(alphas[j], h)
                gradient = local.problem.gradient(lowest.theta)
                step = settle(local, lowest.theta, local.problem.weights(lowest.theta, gradient))
                steps[i][j] = min(steps[i][j], step, key=lambda step: step.objective)


@dataclass
class Cell:
    """A local minimum of the surface, with all that a neighbor needs to start from it."""

    theta: np.ndarray
    free: np.ndarray
    gradient: np.ndarray
    model: GramSolver  # the model that the gradient belongs to
    objective: float
    candidates: np.ndarray  # coordinates by falling gain on entering the free set

    def start(self):
        return self.theta, self.free, self

    def grown(self, h):
        """A start for a larger h: the free set and the best candidates."""
        more = self.candidates[: max(h - self.free.size, 0)]
        return self.theta, np.concatenate([self.free, more]), self

    def shrunk(self, h):
        """A start for a smaller h: the largest of the free coordinates."""
        order = np.argsort(-np.abs(self.theta[self.free]), kind="stable")
        return self.theta, self.free[order[:h]], self


class _LeastSquares:
    """Rows of the surface of trimmed least squares, single coefficients, in normalized coordinates."""

    alone: Callable[[int, float], Step] | None = None  # the single fit of (h, alpha), if it is a rival

    def __init__(self, inner: WorkingSetSolver, effort: str, verify: bool):
        self.inner, self.effort, self.verify = inner, effort, verify
        problem = inner.problem
        self.levels = problem.penalty.levels(1.0)
        self.usable = np.flatnonzero(inner.alive & np.isfinite(self.levels))
        self.complete = self.usable.size <= _ALL_COLUMNS
        self.origin_loss = problem.loss_value(problem.origin())
        self.model: GramSolver  # set by _columns

    def _require(self, columns):
        """Extend the Gram matrix to these columns if they are not in it."""
        if not self.complete and np.any(~np.isin(columns, self.model.columns)):
            self._columns(np.union1d(self.model.columns, columns))

    def _columns(self, columns):
        """Take the model on these columns."""
        zero = np.zeros(self.inner.problem.n_features)
        self.model = GramSolver(self.inner, columns, zero, self.inner.gradient_at_zero, self.origin_loss)

    # -- soft rows -----------------------------------------------------------------------------------

    def soft(self, hs, alphas, tell):
        """``steps[j][i]`` for rising alphas."""
        self._columns(self.usable if self.complete else self._screened(max(hs), alphas[0]))
        nothing = np.zeros(self.inner.problem.n_features), np.empty(0, dtype=np.intp), None
        subsets = self._best_subsets(hs) if self.effort != "low" else {}
        cells = {}
        for j, alpha in enumerate(alphas):
            for i, h in enumerate(hs):
                starts = [nothing] if i == 0 and j == 0 else []
                starts += [cells[i - 1, j].grown(h)] if i else []
                starts += [cells[i, j - 1].start()] if j else []
                if h and self._homotopy_at(i, j, len(hs)):
                    starts.append(self._from_homotopy(h, alpha))
                if j == len(alphas) - 1 and h in subsets:
                    starts.append(subsets[h])
                # A free set that no exchange improved at the last alpha is skipped in every second row.
                known = cells[i, j - 1] if j % 2 else None
                cells[i, j] = self._solve(h, alpha, starts, known)
                tell()
        for j in reversed(range(len(alphas))):
            for i in reversed(range(len(hs))):
                starts = [cells[i + 1, j].shrunk(hs[i])] if i + 1 < len(hs) else []
                starts += [cells[i, j + 1].start()] if j + 1 < len(alphas) else []
                cells[i, j] = self._rival(cells[i, j], hs[i], alphas[j], starts)

        def step(i, j):
            cell = cells[i, j]
            return self._step(cell.theta, cell.free, cell.objective, hs[i], alphas[j])

        return [[step(i, j) for i in range(len(hs))] for j in range(len(alphas))]

    def _homotopy_at(self, i, j, count):
        if self.effort == "medium":
            return j % _HOMOTOPY_ROWS == 0 and i == (j + count // 2) % count
        return self.effort == "high"

    def _solve(self, h, alpha, starts, known) -> Cell:
        """The lowest of the starts, tuples ``(theta, free, its cell)``, improved by exchanges."""
        for theta, *_ in starts:  # a best subset may use a column that is not in the matrix
            self._require(np.flatnonzero(theta))
        solver = self.model.at(alpha, h)
        start = min((_rough(solver, start) for start in _distinct(starts)), key=lambda rough: rough[0])[1]
        while True:
            cell = self._improved(SoftSearch(solver, *start), (4, 2), known)
            outside = self._violators(cell, solver)
            if outside.size == 0:
                return cell
            self._require(outside)
            solver, start = self.model.at(alpha, h), (cell.theta, cell.free)

    def _rival(self, cell, h, alpha, starts) -> Cell:
        """The cell, or the end of a start that is lower."""
        solver = self.model.at(alpha, h)
        for start in _distinct(starts, known=cell.free):
            rough, start = _rough(solver, start)
            if rough < cell.objective * (1 + 1e-4):
                search = SoftSearch(solver, *start)
                if search.objective < cell.objective * (1 - _BETTER):
                    cell = self._improved(search, ())
        return cell

    def _improved(self, search, splices, known=None) -> Cell:
        """The cell that exchanges lead to; none are tried if the free set is that of ``known``."""
        if known is not None and np.array_equal(np.sort(search.free), np.sort(known.free)):
            candidates = known.candidates
        else:
            for _ in exchange_while_better(search, splices=splices, trials=4):
                pass
            scores = search.scores  # of the last round of exchanges, which found none
            candidates = scores.candidates[np.argsort(-scores.entry_gain, kind="stable")]
        return Cell(search.theta, search.free, search.gradient, self.model, search.objective, candidates)

    def _best_subsets(self, hs):
        """Best subsets, as starts: if alpha is large they are the solution."""
        alpha = self.inner.problem.exact_threshold() * (1 + 1e-6) or 1.0
        rng, starts = np.random.default_rng(0), {}
        for h, search in grown(self.inner.at(alpha), hs):
            for _ in range(_KICKS if h > 1 else 0):
                kick(search, rng, 3)
            starts[h] = (*search.solution(), None)
        return starts

    def _from_homotopy(self, h, alpha):
        solver = self.model.at(alpha, h)
        for theta, gradient, *_ in homotopy(solver):  # noqa: B007 - the last is used
            pass
        return theta, solver.problem.free_set(theta, gradient), None

    def _step(self, theta, free, objective, h, alpha, swap_optimal=None):
        """The step of a cell, or the end of MM from it if the true gradient shows a violation."""
        inner = self.inner.at(alpha, h)
        problem = inner.problem
        step = Step(theta, problem.weights_of(free), objective, converged=True, swap_optimal=swap_optimal)
        if not self.verify:
            return step
        predictor = problem.predictor(theta)
        gradient = problem.gradient(theta, predictor)
        worst = largest_violation(theta, gradient, problem.penalty.thresholds(step.weights, alpha))
        if worst > 3 * inner.goal:
            return settle(inner, theta, step.weights)
        message = f"largest violation {worst:.3g}, goal {inner.goal:.3g}"
        return replace(step, objective=problem.objective(theta, predictor), message=message)

    # -- columns outside the Gram matrix ---------------------------------------------------------------

    def _screened(self, h, alpha):
        """The first columns: those of the lasso at the smallest alpha, and of largest gradient there."""
        threshold = self.inner.problem.penalty.levels(alpha)
        theta, gradient, *_ = self.inner.solve(self.inner.null, threshold, tol=1e-2)
        rank = np.where(theta[self.usable] != 0, np.inf, np.abs(gradient[self.usable]))
        room = min(max(500, 4 * h, 2 * np.count_nonzero(theta)), self.usable.size)
        return np.sort(self.usable[np.argpartition(-rank, room - 1)[:room]])

    def _violators(self, cell, solver):
        """Columns outside the matrix that violate their condition at 0: one pass over X."""
        if self.complete:
            return np.empty(0, dtype=np.intp)
        problem = solver.problem
        gradient = problem.gradient(cell.theta)
        levels = problem.penalty.levels(problem.alpha)
        outside = np.setdiff1d(self.usable, self.model.columns, assume_unique=True)
        return outside[np.abs(gradient[outside]) > levels[outside] + self.inner.goal]

    # -- rows of best subsets ----------------------------------------------------------------------------

    def subsets(self, hs, alpha, tell):
        """Steps of best subsets of rising size."""
        if self.alone is not None:
            yield from self._shared(hs, alpha, tell)
            return
        for h, search in grown(self.inner.at(alpha), hs):
            tell()
            yield self._step(*search.solution(), search.objective, h, alpha)

    def _shared(self, hs, alpha, tell):
        """The same from the better of the grown subset and the single fit, shared among the sizes."""
        problem, found, single = self.inner.problem, {}, {}
        for h, search in grown(self.inner.at(alpha), hs):
            found[h] = Subset(search.objective, search.free.copy())
            if problem.ridge.any() or h < np.count_nonzero(problem.d):  # otherwise the fit is perfect anyway
                single[h] = self.alone(h, alpha)
                rival = Subset(single[h].objective, np.flatnonzero(single[h].theta))
                found[h] = min(found[h], rival, key=lambda subset: subset.objective)
            tell()
        share(search, found)
        for h, subset in found.items():
            search.size = h
            search.move_to(subset.free)
            search.grow(h)  # there may be a swap that rounding has hidden
            optimal = True if self._near and search.decided() else None
            step = self._step(*search.solution(), search.objective, h, alpha, optimal)
            # Columns that are close to dependent may count as dependent here and not there.
            yield min(step, single.get(h, step), key=lambda step: step.objective)

    @property
    def _near(self):
        """Whether the columns themselves are in memory, and not few rows that stand for them."""
        problem = self.inner.problem
        return problem.near and problem.design.uncompressed(problem.d)[0] is problem.design


def _rough(solver, start):
    """F for the free set of a start at a rough tolerance, and the start moved there."""
    theta, free, cell = start
    # If the Gram matrix has more columns by now, their gradient is not known and is computed anew.
    gradient = cell.gradient if cell is not None and cell.model.columns is solver.columns else None
    penalty, alpha = solver.problem.penalty, solver.problem.alpha
    threshold = penalty.levels(alpha)
    threshold[free] = 0.0
    theta, gradient, loss, _ = solver.solve(theta, threshold, tol=_ROUGH, gradient=gradient)
    return loss + penalty.value(theta, alpha), (theta, free, gradient)


def _distinct(starts, known=None):
    """The starts of different free sets: for a given free set the problem is convex."""
    seen = set() if known is None else {tuple(np.sort(known))}
    for start in starts:
        key = tuple(np.sort(start[1]))
        if key not in seen:
            seen.add(key)
            yield start


class _General:
    """Rows of the surface for any loss, single coefficients or groups: MM from the neighbors."""

    alone: Callable[[int, float], Step] | None = None

    def __init__(self, inner: WorkingSetSolver, effort: str, rng):
        self.inner, self.rng = inner, rng
        self.effort = EFFORTS[effort]
        self.known: dict[tuple[int, float], Step] = {}  # solutions for another ridge, by h and alpha

    def soft(self, hs, alphas, tell):
        steps = []
        for alpha in alphas:
            column = []
            for i, h in enumerate(hs):
                starts = [column[-1]] if column else []
                starts += [steps[-1][i]] if steps else []
                column.append(self._solve(h, alpha, starts))
                tell()
            steps.append(column)
        for j in reversed(range(len(alphas) - 1)):
            for i, h in enumerate(hs):  # offer the solution of a larger alpha to the smaller one
                steps[j][i] = self._solve(h, alphas[j], [steps[j + 1][i]], steps[j][i])
        return steps

    def subsets(self, hs, alpha, tell):
        steps = []
        for h in hs:
            steps.append(self._solve(h, alpha, steps[-1:]))
            if self.alone is not None:
                steps[-1] = min(steps[-1], self.alone(h, alpha), key=lambda step: step.objective)
            tell()
        if self.alone is not None:
            for i in reversed(range(len(hs) - 1)):  # offer each solution to the smaller sizes, and back
                steps[i] = self._solve(hs[i], alpha, [steps[i + 1]], steps[i])
            for i in range(1, len(hs)):
                steps[i] = self._solve(hs[i], alpha, [steps[i - 1]], steps[i])
        return steps

    def _solve(self, h, alpha, starts, incumbent=None) -> Step:
        """The lowest end of MM from the starts (by default the null model), improved on its model."""
        inner = self.inner.at(alpha, h)
        best, tried = incumbent, set()
        known = self.known.get((h, alpha))
        if known is not None and incumbent is None:
            starts = [*starts, known]
        for start in starts or [None]:
            theta = inner.null if start is None else start.theta
            weights = inner.problem.weights(theta, inner.problem.gradient(theta))
            key = weights.tobytes()
            if key in tried or (incumbent is not None and np.array_equal(weights, incumbent.weights)):
                continue
            tried.add(key)
            step = settle(inner, theta, weights)
            if best is None or step.objective < best.objective - _BETTER * abs(best.objective):
                best = step
        if best is incumbent or not self.effort.search:
            return best
        again = known is not None and np.array_equal(best.weights, known.weights)
        effort = replace(self.effort, kicks=0) if again else self.effort
        *_, best = improve_on_model(inner, best, self.rng, effort)
        return best
