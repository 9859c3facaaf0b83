"""The surface of fits over h and alpha."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..designs.convert import to_host
from ..estimators import validation as check
from ..estimators.task import Task, prepare
from ..penalties import TrimmedL1
from ..solvers import EFFORTS, SolverResult
from ..solvers.few_rows import compress, pays
from ..solvers.mm.workingset import WorkingSetSolver
from ..solvers.surface import surface
from .grid import alpha_grid, check_alphas, check_hs
from .search import reported


@dataclass
class TrimmedPath:
    """The fits of :func:`trimmed_path`; the first two axes of every array are h and alpha.

    Attributes
    ----------
    hs : ndarray of int
        Rising.
    alphas : list of float or "exact"
        Falling; ``"exact"``, which is above any number, first.
    coefs : ndarray of shape (n_hs, n_alphas, n_features) or (n_hs, n_alphas, n_outputs, n_features)
    intercepts : ndarray of shape (n_hs, n_alphas) or (n_hs, n_alphas, n_outputs)
    objectives, n_nonzero, alpha_values : ndarray of shape (n_hs, n_alphas)
        ``n_nonzero`` counts features; ``alpha_values`` has the number that ``"exact"`` stands for.
    results : list of lists of SolverResult
        One a cell.
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
            hs=np.asarray(hs),
            alphas=list(alphas),
            coefs=coefs,
            intercepts=collect(lambda result: result.intercept),
            objectives=collect(lambda result: result.objective),
            n_nonzero=np.count_nonzero(features_in(coefs, n_before=2), axis=-1),
            alpha_values=collect(lambda result: result.alpha),
            results=results,
        )

    def mapped(self, function) -> TrimmedPath:
        """The path of ``function(result)`` for every result."""
        results = [[function(result) for result in row] for row in self.results]
        return TrimmedPath.of(self.hs, self.alphas, results)


def features_in(coefs, n_before):
    """Which features have a coefficient, of arrays with ``n_before`` axes before those of a fit.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.selection.path import features_in
    >>> features_in(np.array([[[0.0, 1.0], [0.0, 0.0]]]), n_before=1)  # one fit, two outputs, two features
    array([[False,  True]])
    """
    return np.any(coefs != 0, axis=n_before) if coefs.ndim == n_before + 2 else coefs != 0


def trimmed_path(
    X,
    y,
    hs="auto",
    alphas="auto",
    *,
    loss="quadratic",
    penalty_factor=None,
    groups=None,
    q=2,
    fit_intercept=True,
    standardize=True,
    positive=False,
    sample_weight=None,
    effort="medium",
    tol=1e-6,
    random_state=None,
    verbose=0,
) -> TrimmedPath:
    r"""Trimmed fits for every h and alpha, each from the solutions next to it.

    .. math:: \min_{\theta, b}\; \sum_i d_i\, \ell(y_i, z_i'\theta + b) + \alpha \sum_{j > h} r_{(j)}(\theta)

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
        Or a matrix that stays on disk, on a cluster or on a GPU; see :func:`trimreg.solve`.
    y : array-like
    hs : "auto" or sequence of int or fractions, default="auto"
        ``"auto"`` is :func:`~trimreg.selection.auto_hs`, of the sum of the sample weights if there are some.
    alphas : "auto", "exact" or sequence, default="auto"
        ``"auto"`` is 21 numbers, by :func:`~trimreg.selection.alpha_grid`, down from the least alpha at which
        no coefficient is in the model with h = 0; ``"exact"`` gives best subsets, and may also be one of a
        sequence.
    loss, fit_intercept, standardize, positive, sample_weight, tol, random_state
        As in :func:`trimreg.solve`.
    penalty_factor, groups, q
        As in :class:`~trimreg.TrimmedL1`.
    effort : {"low", "medium", "high"}, default="medium"
        How many cells take the homotopy as a rival start: none, some, all.
    verbose : int, default=0
        1 shows a progress bar.

    Returns
    -------
    TrimmedPath

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
    penalty = TrimmedL1(0, penalty_factor, groups=groups, q=q)
    check.check_choice("effort", effort, EFFORTS)
    task = prepare(
        X, y, loss=loss, penalty=penalty, alpha=0.0, fit_intercept=fit_intercept, standardize=standardize,
        positive=positive, sample_weight=sample_weight, tol=tol, random_state=random_state,
    )  # fmt: skip
    hs, alphas = grid_for(task, hs, alphas, count_samples(sample_weight, task.problem.d))
    with reported(hs.size * len(alphas), "fits", verbose) as advance:
        return solve_path(task, hs, alphas, effort=effort, advance=advance)


def grid_for(task: Task, hs, alphas, n):
    """The hs and alphas that the user's stand for, with n samples to learn from."""
    hs = check_hs(hs, int(n), n_parts(task))
    alphas = check_alphas(alphas)
    if isinstance(alphas, str):  # "auto"
        eps = 0.05 if n < n_parts(task) else 1e-3  # below it the l1 part has as many nonzeros as samples
        alphas = alpha_grid(largest_alpha(task) * (1 + 1e-12), eps=eps).tolist()  # no entry by rounding
    elif "exact" in alphas:
        check.check_exact(task.problem.loss, task.problem.penalty, task.problem.y, task.problem.d)
    return hs, alphas


def count_samples(sample_weight, d, times=1) -> float:
    """How many samples there are, where a weight stands for so many repetitions of its sample.

    The sum of the weights; but no less than the number of positive ones, for weights that are small all
    together (those that sum to one, say) are no repetitions.

    Parameters
    ----------
    sample_weight : array-like of shape (n_samples,), number or None
        As the user gives it.
    d : ndarray of shape (n_samples,)
        The weights of the loss; a sample without one does not count.
    times : ndarray of int of shape (n_samples,), default=1
        How often each sample is there.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.selection.path import count_samples
    >>> d = np.full(4, 0.25)
    >>> count_samples(None, d), count_samples([3, 1, 0, 2], d), count_samples(d, d)
    (4.0, 6.0, 4.0)
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
    """The least alpha at which the l1 solution is the null model."""
    problem = task.problem
    null = WorkingSetSolver(problem, 1e-4)
    levels = problem.penalty.levels(1.0)
    regular = (levels > 0) & np.isfinite(levels)
    pull = problem.penalty.norm.dual_lengths(null.gradient_at_null)
    return float(np.max(pull[regular] / levels[regular], initial=0.0))


def cells(task: Task, hs, alphas, **options):
    """``(values, steps)``: the numbers of the alphas, and a step for every cell."""
    values, steps, _ = _cells(task, hs, alphas, **options)
    return values, steps


def _cells(task, hs, alphas, **options):
    """The cells, and the problem that they were solved on: least squares of far data take a single pass."""
    problem = task.problem
    threshold = problem.exact_threshold() * (1 + 1e-6) or 1.0
    values = [threshold if alpha == "exact" else alpha for alpha in alphas]
    tol, rng = task.options["tol"], task.options["rng"]
    problem = compress(problem) if not problem.near and pays(problem) else problem
    return values, surface(problem, hs, values, tol=tol, rng=rng, **options), problem


def solve_path(task: Task, hs, alphas, *, verify=True, **options) -> TrimmedPath:
    """The path of a checked task; its cells have their certificates only if they are verified.

    Certificates of far least squares are taken on the few rows that were solved on: two passes a cell are
    more than a path is worth. A fit of the cell that is chosen asks the data.
    """
    values, steps, solved = _cells(task, hs, alphas, verify=verify, **options)
    compressed = solved is not task.problem
    results = []
    for h, row in zip(hs, steps, strict=True):
        results.append([])
        for alpha, value, step in zip(alphas, values, row, strict=True):
            problem = task.problem.at(value).freeing(int(h))
            cell = replace(task, problem=problem, exact=alpha == "exact")
            step = cell.at_most_h(step)
            certify = verify and not compressed
            result = cell.result(step, 1, {"objective": [step.objective]}, certify=certify)
            if verify and compressed:
                T = replace(cell, problem=solved.at(value).freeing(int(h))).stationarity(step)
                result = replace(result, stationarity=T)
            results[-1].append(result)
    return TrimmedPath.of(hs, alphas, results)
