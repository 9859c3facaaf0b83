"""Fits of linear models for every h and alpha of a grid."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..designs.convert import to_host
from ..estimators import validation as check
from ..estimators.task import Settings, Task, check_data, set_up, shifted
from ..penalties import TrimmedL1
from ..solvers import EFFORTS, SolverResult, Step
from ..solvers.gram import GramCache, RescaledGram
from ..solvers.mm.solver import settle
from ..solvers.mm.workingset import WorkingSetSolver
from ..solvers.problem import feasible
from ..solvers.surface import surface
from .criteria import effective_df
from .grid import alpha_grid, check_alphas, check_hs, check_l2s, l2_grid
from .progress import progress


@dataclass
class TrimmedPath:
    """The fits of :func:`trimmed_path`. The first two axes of every array are h and alpha.

    Attributes
    ----------
    hs : ndarray of int
        Increasing.
    alphas : list of float or "exact"
        Decreasing; ``"exact"`` counts as larger than any number and comes first.
    coefs : ndarray of shape (n_hs, n_alphas, n_features) or (n_hs, n_alphas, n_outputs, n_features)
    intercepts : ndarray of shape (n_hs, n_alphas) or (n_hs, n_alphas, n_outputs)
    objectives, n_nonzero, alpha_values : ndarray of shape (n_hs, n_alphas)
        ``n_nonzero`` counts features; ``alpha_values`` holds the number that ``"exact"`` stands for.
    results : list of lists of SolverResult
        One per cell.
    """

    hs: np.ndarray
    alphas: list
    coefs: np.ndarray
    intercepts: np.ndarray
    objectives: np.ndarray
    n_nonzero: np.ndarray
    alpha_values: np.ndarray
    results: list[list[SolverResult]]

    @classmethod
    def of(cls, hs, alphas, results) -> TrimmedPath:
        """The arrays of a grid of results."""

        def collect(pick):
            return np.array([[pick(result) for result in row] for row in results])

        coefs = collect(lambda result: result.coef)
        return cls(
            np.asarray(hs), list(alphas), coefs, collect(lambda result: result.intercept),
            objectives=collect(lambda result: result.objective),
            n_nonzero=np.count_nonzero(features_in(coefs, n_before=2), axis=-1),
            alpha_values=collect(lambda result: result.alpha), results=results,
        )  # fmt: skip

    def mapped(self, function) -> TrimmedPath:
        """The path of ``function(result)`` for every result."""
        results = [[function(result) for result in row] for row in self.results]
        return TrimmedPath.of(self.hs, self.alphas, results)


def features_in(coefs: np.ndarray, n_before: int) -> np.ndarray:
    """Which features have a nonzero coefficient; ``n_before`` axes come before those of a fit."""
    return np.any(coefs != 0, axis=n_before) if coefs.ndim == n_before + 2 else coefs != 0


def trimmed_path(
    X: Any, y: Any, hs: Any = "auto", alphas: Any = "auto", *, loss: Any = "quadratic",
    l2: float = 0.0, penalty_factor: Any = None, groups: Any = None, q: float = 2, fit_intercept: bool = True,
    standardize: bool = True, positive: bool = False, lower: Any = None, upper: Any = None,
    sample_weight: Any = None, offset: Any = None, exposure: Any = None, effort: str = "medium",
    tol: float = 1e-6, random_state: Any = None, verbose: int = 0,
) -> TrimmedPath:  # fmt: skip
    r"""Trimmed fits for every h and alpha, each started from neighboring solutions.

    .. math:: \min_{\theta, b}\; \sum_i d_i\, \ell(y_i, z_i'\theta + b + o_i)
              + \frac{l_2}{2} \sum_j f_j \theta_j^2 + \alpha \sum_{j > h} r_{(j)}(\theta)

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
        Or a matrix that stays on disk, on a cluster or on a GPU; see :func:`trimreg.solve`.
    y : array-like
    hs : "auto" or sequence of int or fractions, default="auto"
        How many coefficients (or groups) carry no penalty. ``"auto"`` is
        :func:`~trimreg.selection.auto_hs`, with the sum of the sample weights as n.
    alphas : "auto", "exact" or sequence, default="auto"
        ``"auto"`` is :func:`~trimreg.selection.alpha_grid`: 21 numbers, from the smallest alpha at which the
        model with h = 0 is empty downward. ``"exact"`` gives best subsets, and may be part of a sequence.
    loss, l2, fit_intercept, standardize, positive, lower, upper, sample_weight, offset, tol, random_state
        As in :func:`trimreg.solve`.
    exposure : array-like of shape (n_samples,), optional
        As in :meth:`TrimmedLasso.fit`.
    penalty_factor, groups, q
        As in :class:`~trimreg.TrimmedL1`.
    effort : {"low", "medium", "high"}, default="medium"
        How many cells also try the homotopy as a start: none, some or all. Unless it is ``"low"``, the
        ``"exact"`` cells are no worse than single fits with the same effort and ``random_state``.
    verbose : int, default=0
        1 shows a progress bar.

    Returns
    -------
    TrimmedPath
        Its objectives do not rise with h, and do not fall as alpha rises.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import trimmed_path
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 30))
    >>> y = 2 * X[:, 3] - X[:, 17] + 0.1 * rng.standard_normal(100)
    >>> path = trimmed_path(X, y, hs=[0, 1, 2, 3], alphas=["exact", 0.5, 0.1])
    >>> path.coefs.shape, path.n_nonzero[:, 0]
    ((4, 3, 30), array([0, 1, 2, 3]))
    >>> np.flatnonzero(path.coefs[2, 0])
    array([ 3, 17])
    """
    check.check_choice("effort", effort, EFFORTS)
    penalty = TrimmedL1(0, penalty_factor, groups=groups, q=q)
    settings, y = shifted(Settings.of(locals(), alpha=0.0), to_host(y), offset, exposure)
    task = set_up(check_data(X, y, sample_weight, settings), settings)
    hs, alphas = grid_for(task, hs, alphas, count_samples(sample_weight, task.problem.d))
    with progress(hs.size * len(alphas), "fits", verbose) as advance:
        return solve_path(task, hs, alphas, effort=effort, advance=advance)


def ridged(task: Task, l2: float) -> Task:
    """The same task with another ridge term."""
    return replace(task, l2=l2, problem=with_ridge(task.problem, l2))


def with_ridge(problem, l2):
    return replace(problem, ridge=problem.penalty.ridge(l2))


def on_few_rows(task: Task, fits: int) -> Task:
    """The task with the few rows that so many fits to data on disk may share."""
    problem = task.problem
    if problem.few is None and problem.worth_compressing(fits):
        few = problem.compressed()
        return replace(task, problem=replace(problem, few=(few.design, few.y)))
    return task


def ridge_unit(task: Task) -> float:
    """The curvature of the loss in a coefficient at the null model: 1 for standardized least squares."""
    problem = task.problem
    constant = problem.loss.null_predictor(problem.y, problem.d) if task.constant else 0.0
    curvature = problem.loss.curvature(problem.origin() + constant, problem.y, problem.d)
    with np.errstate(over="ignore"):  # a unit of inf gives way to 1
        squares = task.features.column_norms(problem.d) ** 2
        square = np.median(squares[squares > 0]) if squares.any() else 1.0
        unit = float(np.sum(curvature) / problem.loss.n_outputs * square)
    return unit if 0 < unit < np.inf else 1.0


def grid_for(task: Task, hs, alphas, n, shrunk: bool = False):
    """The user's hs and alphas as a checked grid, for n training samples; ``shrunk`` by a ridge or not."""
    hs = check_hs(hs, int(n), n_parts(task), shrunk=shrunk)
    alphas = check_alphas(alphas)
    if isinstance(alphas, str):  # "auto"
        eps = 0.05 if n < n_parts(task) else 1e-3  # the lasso with less has as many nonzeros as samples
        largest = largest_alpha(task) * (1 + 1e-12)  # so that rounding lets no feature in
        alphas = alpha_grid(largest, eps=eps).tolist()
    elif "exact" in alphas:
        check.check_exact(task.problem.loss, task.problem.penalty, task.problem.y, task.problem.d)
    return hs, alphas


def l2s_for(task: Task, l2s, by_folds: bool) -> np.ndarray:
    """The user's l2s, checked. None is ``"auto"`` for a choice by folds, else the least of these values.

    That is 0 for least squares. Other losses may have no minimum without a ridge, for classes that can be
    separated, say.
    """
    if l2s is not None and not isinstance(l2s, str):
        return np.array(check_l2s(l2s))
    grid = l2_grid(ridge_unit(task), least=0.0 if task.problem.loss.constant_curvature else 1e-3)
    return grid if by_folds or l2s is not None else grid[:1]


def count_samples(sample_weight, d, times=1) -> float:
    """The number of samples, where a weight of k counts as k repetitions.

    It is the sum of the weights, but at least the number of positive ones: weights that are all small, such
    as those that sum to one, are no repetitions. ``times`` says how often each sample occurs; samples with
    ``d = 0`` do not count.
    """
    there = np.where(d > 0, times, 0)
    weights = 1.0 if sample_weight is None else np.asarray(to_host(sample_weight), float)
    weights = np.broadcast_to(weights, d.shape)
    with np.errstate(over="ignore"):
        total = np.sum(weights * there)
    return float(min(max(total, np.sum(there * (weights > 0))), 2.0**53))


def n_parts(task: Task) -> int:
    """The number of features or groups that h counts."""
    return task.problem.penalty.norm.count - int(task.constant)


def largest_alpha(task: Task) -> float:
    """The smallest alpha at which the lasso solution is the null model."""
    penalty, null = task.problem.penalty, WorkingSetSolver(task.problem, 1e-4)
    levels, pull = penalty.levels(1.0), penalty.norm.dual_lengths(null.gradient_at_null)
    regular = (levels > 0) & np.isfinite(levels)
    return float(np.max(pull[regular] / levels[regular], initial=0.0))


class Ridge(NamedTuple):
    """The ridge term of a fit, and the one at which the features of a best subset were selected."""

    l2: float
    selection: float


def ridges_for(task: Task, l2s: np.ndarray, alphas, by_folds: bool) -> list[Ridge]:
    """The ridge terms to try: for best subsets chosen by folds every l2 with one or two selections.

    Features are selected with the l2 nearest to the curvature of the loss, and without a ridge if 0 is among
    the l2s. Without a ridge a few strong features are found, with a strong one those that predict well
    together. The l2 that is best for the coefficients is often smaller. Other fits have one l2 for both.
    """
    if "exact" not in alphas or not by_folds:
        return [Ridge(l2, l2) for l2 in l2s]
    with np.errstate(divide="ignore"):
        nearest = l2s[np.argmin(np.abs(np.log(l2s / ridge_unit(task))))]
    return [Ridge(l2, selection) for l2 in l2s for selection in sorted({nearest} | {0.0} & set(l2s))]


def cells(task: Task, hs, alphas, ridges, *, gram=None, **options):
    """The numbers the alphas stand for, a grid of steps for every ridge, and the problem without a ridge.

    Least squares on data on disk solves a problem of few rows, which takes a single pass for all ridges.
    ``gram(ridge, norms)`` is the Gram matrix of the columns divided by ``norms``, if it is known.
    """
    problem = task.problem
    threshold = problem.exact_threshold() * (1 + 1e-6) or 1.0
    values = [threshold if alpha == "exact" else alpha for alpha in alphas]
    tol, rng = task.options["tol"], task.options["rng"]
    problem = problem.compressed() if problem.worth_compressing(len(hs) * len(alphas)) else problem
    plain = with_ridge(problem, 0.0)
    several = len(ridges) > 1 or ridges[0].selection != ridges[0].l2
    if gram is None and problem.loss.constant_curvature and several:
        gram = _shared_gram(plain)
    exact = [alpha == "exact" for alpha in alphas]
    needed: dict[float, set[int]] = {}  # the columns to solve for every l2
    for ridge in ridges:
        for j, subset in enumerate(exact):
            needed.setdefault(ridge.selection if subset else ridge.l2, set()).add(j)
    solved: dict[tuple[float, int], list[Step]] = {}
    last, before = None, None
    for k, l2 in enumerate(sorted(needed, reverse=True)):  # from the largest, which is the easiest
        problem, columns = with_ridge(problem, l2), sorted(needed[l2])
        options["gram"] = None if gram is None else partial(gram, problem.ridge)
        # Two of three start from the l2 before and trust its search. All have the same random numbers.
        options["known"] = before if k % 3 and last == columns else None
        at = [values[j] for j in columns]
        before, last = surface(problem, hs, at, tol=tol, rng=deepcopy(rng), **options), columns
        solved |= {(l2, j): [row[at] for row in before] for at, j in enumerate(columns)}
    grids: dict[Ridge, list[list[Step]]] = {ridge: [[] for _ in hs] for ridge in ridges}
    for j, subset in enumerate(exact):
        columns = {ridge: solved[ridge.selection if subset else ridge.l2, j] for ridge in ridges}
        if subset:
            for selection in {ridge.selection for ridge in ridges}:
                l2s = [l2 for l2, at in ridges if at == selection != l2]
                refits = _refits(plain, gram, solved[selection, j], hs, values[j], selection, l2s, tol)
                columns |= {Ridge(l2, selection): column for l2, column in zip(l2s, refits, strict=True)}
        for ridge, column in columns.items():
            for row, step in zip(grids[ridge], column, strict=True):
                row.append(step)
    return values, list(grids.values()), problem


def _refits(problem, gram, column, hs, alpha, selection, l2s, tol) -> list[list[Step]]:
    """For every l2 the local minima with the features of best subsets, which were found at another l2.

    If alpha is above the exact-penalty threshold, the fit to any h features is a local minimum.
    """
    if problem.loss.least_squares and problem.penalty.norm.q is None and problem.bounds is None:
        return _least_squares_refits(problem, gram, column, selection, l2s) if l2s else []
    refits = []
    for l2 in l2s:
        normal, norms = with_ridge(problem, l2).normalized()
        inner = WorkingSetSolver(normal, tol)
        steps = [
            settle(inner.at(alpha, int(h)), step.theta * norms, step.weights)
            for h, step in zip(hs, column, strict=True)
        ]
        refits.append([replace(step, theta=feasible(problem, step.theta / norms)) for step in steps])
    return refits


def _least_squares_refits(problem, gram, column, selection, l2s):
    """:func:`_refits` from the Gram matrix: at a minimum :math:`Z'Dy = (Z'DZ + R) \\theta`."""
    norms = problem.normalized()[1]
    blocks, factors = gram(problem.ridge, norms), problem.penalty.ridge(1.0) / norms**2
    null = problem.loss_value(problem.origin())
    blocks.require(np.flatnonzero(np.any([step.theta for step in column], axis=0)))
    refits: list[list[Step]] = [[] for _ in l2s]
    for step in column:
        W = np.flatnonzero(step.theta)
        G, theta, factor = blocks.block(W), step.theta[W] * norms[W], factors[W]
        target = G @ theta + selection * factor * theta
        R = np.outer(l2s, factor)
        systems, regular = G + R[:, None, :] * np.eye(W.size), R.all(axis=1)
        thetas = np.empty_like(R)
        thetas[regular] = np.linalg.solve(systems[regular], target[None, :, None])[..., 0]
        for k in np.flatnonzero(~regular):  # columns may be dependent
            thetas[k] = np.linalg.lstsq(systems[k], target, rcond=None)[0]
        for theta, steps in zip(thetas, refits, strict=True):
            full = np.zeros_like(step.theta)
            full[W] = theta / norms[W]
            objective = null - 0.5 * float(target @ theta)
            steps.append(replace(step, theta=full, objective=objective, swap_optimal=None))
    return refits


def _shared_gram(problem):
    """The function ``gram(ridge, norms)`` of :func:`cells`; each column is computed once for all ridges."""
    normal, plain_norms = problem.normalized()
    base = GramCache(normal.design, normal.d, normal.ridge)
    return lambda ridge, norms: RescaledGram(base, plain_norms / norms, ridge / norms**2)


def solve_path(task: Task, hs, alphas, **options) -> TrimmedPath:
    """The path of a task."""
    return solve_paths(task, hs, alphas, [Ridge(task.l2, task.l2)], **options)[0]


def solve_paths(task: Task, hs, alphas, ridges, *, verify: bool = True, **options) -> list[TrimmedPath]:
    """The path of every ridge. Its cells carry certificates only if they are verified.

    Certificates of least squares on data on disk are computed on the few rows that were solved: two passes
    per cell would cost more than the path. The final fit of the chosen cell uses the data.
    """
    values, grids, solved = cells(task, hs, alphas, ridges, verify=verify, **options)
    compressed = solved.design is not task.problem.design
    paths = []
    for ridge, steps in zip(ridges, grids, strict=True):
        one, few = ridged(task, ridge.l2), with_ridge(solved, ridge.l2)
        results = []
        for h, row in zip(hs, steps, strict=True):
            fits = []
            for alpha, value, step in zip(alphas, values, row, strict=True):
                cell = replace(one, problem=one.problem.at(value).freeing(int(h)), exact=alpha == "exact")
                step, history = cell.at_most_h(step), {"objective": [step.objective]}
                result = cell.result(step, 1, history, certify=verify and not compressed)
                if verify and compressed:
                    T = replace(cell, problem=few.at(value).freeing(int(h))).stationarity(step)
                    result = replace(result, stationarity=T)
                fits.append(result)
            results.append(fits)
        paths.append(TrimmedPath.of(hs, alphas, results))
    return paths


def entry_over_path(inside: np.ndarray, forward: np.ndarray) -> np.ndarray:
    """The steps at which features enter the model as h grows; ``forward`` orders those that enter together.

    ``inside`` says which features are in the model, for increasing h up to the chosen one. In ``forward``,
    steps count from 1 and are equal within a group; 0 and -1 stay as they are.
    """
    inside = np.vstack([inside, np.ones_like(forward, dtype=bool)])  # the final fit may have other features
    first = inside.argmax(axis=0)
    steps = np.unique(forward[forward > 0])
    earliest = np.array([first[forward == step].min() for step in steps], dtype=int)
    order = forward.copy()
    for place, k in enumerate(np.lexsort((steps, earliest)), 1):
        order[forward == steps[k]] = place
    return order


def degrees_of_freedom(task, coefs, intercepts, fit_intercept) -> np.ndarray:
    """The degrees of freedom of every fit: the nonzero coefficients and the intercept.

    In a multinomial model one class follows from the others. With a ridge term they are effective ones, see
    :func:`~trimreg.selection.criteria.effective_df`.
    """
    problem, loss = task.problem, task.problem.loss
    n_outputs, has_intercept = loss.n_outputs, int(fit_intercept and loss.sees_constants)
    if not problem.ridge.any():
        return (n_outputs - loss.redundant_outputs) * (features_in(coefs, 1).sum(axis=1) + has_intercept)
    problem = problem.compressed() if problem.worth_compressing() else problem
    centered = 0 if task.constant else n_outputs * has_intercept  # an intercept that is no coordinate
    df = []
    for coef, intercept in zip(coefs, intercepts, strict=True):
        theta = task.coordinates(coef, intercept)
        used = theta.reshape(-1, n_outputs).any(axis=1)  # features, and the constant if there is one
        used[coef.shape[-1] :] = True
        W = np.flatnonzero(np.repeat(used, n_outputs))
        curvature = problem.hessian(problem.predictor(theta), W) - np.diag(problem.ridge[W])
        df.append(centered + effective_df(curvature, problem.ridge[W]))
    return np.array(df)
