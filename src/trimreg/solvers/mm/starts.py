r"""Starts of the default solver: the start decides which local minimum is found.

A trimmed penalty has many local minima, and two papers on the trimmed lasso show how much the start matters.
Bertsimas, Copenhaver and Mazumder, "The trimmed lasso: sparsity and robustness" (arXiv 1708.04527) alternate
between weights and coefficients from one start. Amir, Basri and Nadler, "The trimmed lasso: sparse recovery
guarantees and practical optimization by the generalized soft-min penalty" (arXiv 2005.09021) follow a
homotopy of smooth penalties, from an alpha so small that the fit nearly interpolates. The starts here are:

:func:`homotopy`
    a soft-min homotopy in the sense of the second paper, with quadratic in place of entropic smoothing;
:func:`lasso_start`, :func:`eliminated_start`
    the weighted lasso, with some steps of MM or with backward elimination;
:func:`grown_start`
    a best subset that grows column by column, with swaps at every size;
:func:`rising_alpha`
    local minima followed from a small alpha to a large one;
:func:`reweighted_ridge`
    a homotopy of nearly interpolating ridge regressions, from random scales. A run costs a few milliseconds
    where the others cost a hundred, so that many can be tried where supports are hard to find.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.linalg import blas, solve_triangular

from ..driver import Step
from ..gram import cholesky, cholesky_solve, regularized_cholesky
from ..search.groups import eliminated
from ..search.soft import SoftSearch
from ..search.subset import SubsetSearch
from .workingset import GramSolver

_SCREENED = 400  # columns among which a best subset grows first


def default_start(inner, effort):
    """The start of MM, ``(theta, gradient, weights)``; a generator of the steps that lead to it."""
    problem, penalty = inner.problem, inner.problem.penalty
    alpha = min(problem.alpha, start_alpha(inner)) if penalty.n_free else problem.alpha
    softened = inner.at(alpha)
    follow = effort.search and effort.homotopy and alpha == problem.alpha
    if follow and softened.gram is None:
        return (yield from _homotopy_apart(softened))
    if follow:
        for theta, gradient, loss, weights in homotopy(softened, samples=_samples(problem)):  # noqa: B007 - the last is used
            yield Step(theta, weights, loss + penalty.value(theta, alpha), message="homotopy")
        if effort.rivals:
            theta, gradient = rising_alpha(softened, theta, gradient)
        return theta, gradient, softened.problem.weights(theta, gradient)
    rounds = 1 if alpha == problem.alpha else 5
    # Without a Gram matrix every digit costs passes over X, and MM continues from here anyway.
    exactly = alpha == problem.alpha and inner.gram is not None
    tol = inner.tol if exactly else max(1e-3, inner.tol)
    theta, gradient, loss, weights = lasso_start(softened, tol, rounds)
    yield Step(theta, weights, loss + penalty.value(theta, problem.alpha), message="start")
    if rounds == 1 and inner.gram is None and problem.near:
        theta, weights = settled_apart(inner, theta, gradient, weights)
    return theta, gradient, weights


def _homotopy_apart(inner):
    """The homotopy of a loss without a Gram matrix, on the columns alone that are likely to matter.

    They are the columns of the weighted lasso, where the homotopy begins, and those of the largest gradients
    there. The MM and the exchanges that follow see all columns.
    """
    problem, norm = inner.problem, inner.norm
    theta, gradient, loss, weights = lasso_start(inner, 1e-2, rounds=1)
    yield Step(theta, weights, loss + problem.penalty.value(theta, problem.alpha), message="start")
    levels = problem.penalty.levels(problem.alpha)
    inside = (norm.lengths(theta) > 0) | (levels == 0)
    needed = max(problem.penalty.n_free, np.count_nonzero(inside))
    room = int(min(4 * max(64, needed), max(needed + 8, inner.room())))
    pull = np.where(inside, np.inf, norm.dual_lengths(gradient))
    pull[np.isinf(levels) | ~inner.alive] = -1.0
    parts = np.sort(np.argpartition(-pull, min(room, pull.size) - 1)[:room])
    apart, W = inner.restricted(parts), norm.coordinates(parts)
    for local, *_ in homotopy(apart, samples=_samples(problem)):
        theta = np.zeros_like(theta)
        theta[W] = local
        yield Step(theta, weights, problem.objective(theta), message="homotopy")
    gradient = problem.gradient(theta)
    return theta, gradient, problem.weights(theta, gradient)


def _samples(problem):
    """The number of responses that coefficients can interpolate; inf if a ridge term forbids it."""
    return np.inf if problem.ridge.any() else problem.y.size


def start_alpha(inner):
    """The alpha of a start if alpha itself is too large for one: a fraction of the alpha that zeroes all."""
    factor = inner.problem.penalty.levels(1.0)
    regular = (factor > 0) & np.isfinite(factor)
    pull = inner.norm.dual_lengths(inner.gradient_at_null)
    return 0.3 * np.max(pull[regular] / factor[regular], initial=0.0)


def lasso_start(inner, tol, rounds=5):
    """``(theta, gradient, loss, weights)`` of the weighted lasso followed by some steps of MM.

    For least squares the steps of MM stay among the columns that the lasso took up, and do not touch X.
    """
    problem, penalty = inner.problem, inner.problem.penalty
    theta, gradient = inner.null, inner.gradient_at_null
    weights = np.ones(inner.norm.count)
    stays = isinstance(inner, GramSolver) or inner.gram is None or inner.norm.q is not None
    for count in range(rounds):
        threshold = penalty.thresholds(weights, problem.alpha)
        theta, gradient, loss, _ = inner.solve(theta, threshold, tol=tol, gradient=gradient)
        previous, weights = weights, problem.weights(theta, gradient)
        if np.array_equal(weights, previous):
            break
        if count == 0 and not stays:
            inner = GramSolver(inner, np.sort(inner.gram.members), theta, gradient, loss)
    return theta, gradient, loss, weights


def settled_apart(inner, theta, gradient, weights, tol=1e-2, rounds=5):
    """``(theta, weights)`` after some steps of MM on the columns alone that are likely to matter.

    Each saves a pass over X. The points on the way need few digits, the last one is solved to its end.
    """
    alpha, norm = inner.problem.alpha, inner.norm
    threshold = inner.problem.penalty.thresholds(weights, alpha)
    parts = np.flatnonzero((norm.lengths(theta) > 0) | (threshold == 0))
    if not inner.worth_apart(parts):
        return theta, weights
    parts = inner.with_likely(parts, gradient, threshold)
    apart, W = inner.restricted(parts), norm.coordinates(parts)
    local, slope, some = theta[W], gradient[W], weights[parts]
    for _ in range(rounds):
        threshold = apart.problem.penalty.thresholds(some, alpha)
        local, slope, *_ = apart.solve(local, threshold, tol=max(tol, inner.tol), gradient=slope)
        previous, some = some, apart.problem.weights(local, slope)
        if np.array_equal(some, previous):
            local, *_ = apart.solve(local, threshold, tol=0.3 * inner.tol, gradient=slope)
            break
    theta, weights = np.zeros_like(theta), np.ones_like(weights)
    theta[W], weights[parts] = local, some
    return theta, weights


def grown_start(inner):
    """The search of a best subset that has grown among the columns of largest gradient at 0."""
    levels, h = inner.problem.penalty.levels(1.0), inner.problem.penalty.n_free
    columns = np.flatnonzero(inner.alive & np.isfinite(levels))
    room = max(_SCREENED, 12 * h)
    if columns.size > room:
        pull = np.full(columns.size, np.inf)
        np.divide(
            np.abs(inner.gradient_at_zero[columns]), levels[columns], out=pull, where=levels[columns] > 0
        )
        columns = np.sort(columns[np.argpartition(-pull, room)[:room]])
    grown = SubsetSearch(inner.restricted(columns), None)
    return SubsetSearch(inner, columns[grown.solution()[1]])


def lasso_among(narrow):
    """Move a search of best subsets among few columns to the largest coefficients of a weighted lasso."""
    inner, U = narrow.inner, narrow.universe
    model = GramSolver(inner, U, inner.null, inner.gradient_at_zero, inner.loss_at_null)
    size = np.abs(lasso_start(model.at(start_alpha(inner)), 1e-3)[0][U])
    largest = np.argsort(-size, kind="stable")[: narrow.size]
    narrow.move_to(largest[size[largest] > 0])
    narrow.descend()


def eliminated_start(inner):
    """``(theta, weights)`` with the h free parts that backward elimination leaves of a weighted lasso.

    The alpha of the lasso falls until more than enough parts are in. A generator of steps.
    """
    problem, norm, h = inner.problem, inner.norm, inner.problem.penalty.n_free
    levels = problem.penalty.levels(1.0)
    regular = (levels > 0) & np.isfinite(levels) & inner.alive
    alpha, theta, gradient = start_alpha(inner), inner.null, inner.gradient_at_null
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
    inner: Any, *, growth: float = 1.5, first: float = 0.1, max_stages: int = 48, samples: float = np.inf
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
    starts where the largest magnitude loses ``first`` of its weight, and grows by the factor ``growth``, or
    by its cube if theta has a quarter more nonzeros at first than there are ``samples``.
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
        if gamma == 0.0 and np.count_nonzero(theta) >= 1.25 * samples:
            growth **= 3  # the fit interpolates, and the free set hardly matters
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


# -- many starts for hard problems ------------------------------------------------------------------------

_WORK = 5e7  # products of a ridge regression: more columns than this allows are screened
_REPEATED = 10  # samples are not compared if there are so many times more than enough
_JITTER = 0.8  # deviation of the logarithms of random scales


def supports_are_hard(inner: Any, factor: float = 2.0) -> bool:
    r"""Whether ``n < factor h log(p / h)`` for n different samples: with 2 a convex start is likely to fail.

    This is where the lasso begins to recover supports of size h of p Gaussian columns without noise (Donoho
    and Tanner 2009, "Counting faces of randomly projected polytopes when the projection radically lowers
    dimension").
    """
    problem = inner.problem
    h, p = problem.penalty.n_free, problem.n_features
    if not 0 < h < p:
        return False
    enough, n = factor * h * np.log(p / h), problem.n_samples
    if n < enough or n > _REPEATED * enough or not problem.near:
        return n < enough
    different = np.unique(problem.y[problem.d > 0]).size  # a lower bound, without a pass over X
    return different < enough and n_different(inner) < enough


def n_different(inner: Any) -> int:
    """The number of different samples: a sample of weight 2 and one that occurs twice count once each.

    Samples are compared by one linear function of them.
    """
    problem = inner.problem
    live = problem.d > 0
    parts = problem.predictor(inner.gradient_at_zero), problem.y
    table = np.hstack([part.reshape(live.size, -1)[live] for part in parts])
    value = table @ np.pi ** np.arange(table.shape[1])
    return np.unique(np.round(value / (np.max(np.abs(value), initial=0.0) or 1.0), 9)).size


def random_starts(inner: Any, rng: np.random.Generator, count: int, work: float) -> Iterator[np.ndarray]:
    """Free sets for trimmed least squares: the largest coefficients of :func:`reweighted_ridge`.

    The first one has equal scales, the others have random ones. At most ``count``, and after the first no
    more than ``work`` allows, counted in operations of one ridge regression each.
    """
    problem, h, levels = inner.problem, inner.problem.penalty.n_free, inner.problem.penalty.levels(1.0)
    usable, n = np.flatnonzero(inner.alive & np.isfinite(levels)), problem.d.size
    if usable.size == 0:
        return
    room = int(min(max(_WORK / n**2, 100 + 4 * h), inner.room()))
    if usable.size > room:
        pull = np.where(levels[usable] > 0, np.abs(inner.gradient_at_zero[usable]), np.inf)
        usable = np.sort(usable[np.argpartition(-pull, room)[:room]])
    regular, ridge = levels[usable] > 0, problem.ridge[usable]
    if n <= usable.size:
        root = np.sqrt(problem.d)
        X, y = root[:, None] * problem.design.columns(usable), root * problem.y.ravel()
    else:  # fewer rows with the same products; the Gram matrix has the ridge in it
        X = regularized_cholesky(inner.gram.block(usable)).T
        y, ridge = solve_triangular(X, -inner.gradient_at_zero[usable], trans=1), np.zeros(usable.size)
    scales, rank = np.zeros(usable.size), min(n_different(inner), usable.size)
    for _ in range(int(np.clip(work / (2 * rank**2 * usable.size + 1), 1, count))):
        theta = reweighted_ridge(X, y, ridge, regular, scales, rank)
        size = np.where(regular, np.abs(theta), 0.0)
        order = np.argsort(-size, kind="stable")[:h]
        yield usable[order[size[order] > 0]]
        scales = _JITTER * rng.standard_normal(usable.size)


def reweighted_ridge(
    X: np.ndarray, y: np.ndarray, ridge: np.ndarray, regular: np.ndarray, scales: np.ndarray, rank: int, *,
    still: float = 0.015, falls: float = 0.5, last: float = 0.03, penalty: float = 1e-4,
) -> np.ndarray:  # fmt: skip
    r"""A sparse fit that nearly interpolates, by ridge regressions with falling variances.

    With variances :math:`v_j = (\theta_j^2 + \epsilon^2) e^{s_j \epsilon / \epsilon_0}` of the coefficients
    it repeats

    .. math:: \theta \leftarrow \arg\min_\theta\; \tfrac12 \|y - X\theta\|^2
              + \tfrac12 \sum_j \Bigl(\frac{\lambda}{v_j} + \rho_j\Bigr) \theta_j^2

    and lowers :math:`\epsilon` by the factor ``falls`` when theta moves by less than ``still`` of its length
    (Chartrand and Yin 2008, "Iteratively reweighted algorithms for compressive sensing"). Small coefficients
    get small variances and vanish. The scales s matter while epsilon is large, and so lead to different fits.
    ``X`` has columns of norm one and about that ``rank``; those that are not ``regular`` are never penalized.
    Columns of the smallest variance leave as epsilon falls, if there are many.
    """
    n, p = X.shape
    theta, total = np.zeros(p), np.zeros(p)
    inside, epsilon = np.arange(p), 0.0
    variance = np.exp(scales)
    first = 0.0
    for _ in range(500):
        variance[~regular] = 1e3 * variance.max(initial=0.0)
        weight = penalty * variance.sum() / rank
        spread = variance / (weight + ridge * variance)
        half = X * np.sqrt(spread)
        kernel = blas.dsyrk(1.0, half.T, trans=1, lower=1)
        kernel[np.diag_indices(n)] += 1.0
        factor = cholesky(kernel)
        if factor is None:
            break
        following = spread * (cholesky_solve(factor, y) @ X)
        moved, length = np.linalg.norm(following - theta), np.linalg.norm(following)
        theta = following
        if not first:
            first = epsilon = np.max(np.abs(theta), where=regular, initial=0.0)
            if not first:
                break
        elif moved <= still * length:
            epsilon *= falls
            keep = max(5 * n, inside.size // 2)
            if inside.size > keep:
                best = np.sort(np.argpartition(-variance, keep)[:keep])
                inside, X, theta, ridge = inside[best], X[:, best], theta[best], ridge[best]
                regular, scales = regular[best], scales[best]
        if epsilon <= last * first:
            break
        variance = (theta**2 + epsilon**2) * np.exp(scales * (epsilon / first))
    total[inside] = theta
    return total
