"""The trimmed graphical lasso with h and alpha chosen from the data."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...designs.convert import as_virtual, is_far, is_virtual, to_host
from ...estimators import validation as check
from ...penalties import Penalty
from ...selection.search import Search, times_tested
from ..covariances import GraphData
from ..estimator import GraphicalModel
from ..solve import GraphSettings, GraphTask, prepare_graph
from .criteria import (
    GRAPH_CRITERIA,
    draw_subsamples,
    graph_criterion,
    instability,
    least_sparse,
    mean_log_likelihood,
)
from .graphical_path import GraphicalPath, graph_grid, searched_penalty, solve_graph_path

_HEAVY = 10.0  # standard deviations; of a million Gaussian values the largest is at about 5
_PATHS = ("score_path_", "criterion_path_", "instability_path_")


def _fit_part(hs, alphas, training: tuple[GraphTask, GraphData]) -> tuple[GraphicalPath, GraphData]:
    """The path of the training samples of a fold or subsample, and the coordinates for test samples."""
    task, data = training
    return solve_graph_path(task, hs, alphas), data


def _likelihoods(fitted, rows) -> np.ndarray:
    """Mean log-likelihoods of the test samples under every model of the grid: shape (n_hs, n_alphas)."""
    path, data = fitted
    rows = np.asarray(data.rows(rows), dtype=float)
    S_test = rows.T @ rows / len(rows)
    return path.mapped(lambda one: mean_log_likelihood(S_test, one))


def _edges(fitted, _) -> np.ndarray:
    """Which pairs are edges in every model of the grid: shape (n_hs, n_alphas, n_pairs)."""
    return fitted[0].edges()


class TrimmedGraphicalLassoCV(GraphicalModel):
    r"""The trimmed graphical lasso with the number of free edges h, and alpha, chosen from the data.

    .. math:: \min_{\Theta \succ 0}\; \mathrm{tr}(S\Theta) - \log\det\Theta
              + 2 \alpha \sum_{k > h} |\theta|_{(k)}

    for every h and alpha of a grid. The choice is the cell with the largest mean log-likelihood of the test
    samples,

    .. math:: \frac12 \bigl(\log\det\Theta - \mathrm{tr}(S_{test}\Theta) - p \log 2\pi\bigr),

    over the folds of a cross-validation. With ``criterion`` it is the cell with the smallest value of
    :func:`~trimreg.selection.graph_criterion` among the fits to all samples, or the densest graph that hardly
    changes between subsamples (StARS).

    Parameters
    ----------
    hs : "auto" or sequence of int or fractions, default="auto"
        Numbers of free edges. ``"auto"`` is about 16 values from 0 to 3p, denser at the small end, but no
        more than is safe: if S is singular on the training samples of a fold, too many free edges can leave
        the objective without a minimum. Larger values are refused.
    alphas : "exact", "auto" or sequence, default="exact"
        With ``"exact"`` a graph has at most h edges, and only h is to be chosen. ``"auto"`` is ``"exact"``
        and a grid of 8 numbers below the largest correlation; a sequence may contain both.
    penalty : {"trimmed_l1", "l1", "mcp", "scad"} or penalty object, default="trimmed_l1"
        All but the first have no h; their ``alphas`` must be ``"auto"`` or numbers.
    cv : int, splitter or iterable, default=None
        Folds; None means 5 folds without shuffling, as in scikit-learn.
    rule : {"min", "1se", "paired"}, default="min"
        The best mean score; or the smallest h (then the largest alpha) within one standard error of it; or
        the best cell with the smallest h or the largest alpha, unless another one is better by more than the
        standard error of the paired differences over the folds. See :func:`~trimreg.selection.choose`.
    criterion : {None, "cv", "aic", "bic", "ebic", "gic", "stars"}, default=None
        None and ``"cv"`` are cross-validation, which aims at prediction and keeps too many edges;
        ``"ebic"`` aims at the graph.
    gamma : float, default=0.5
        Parameter of EBIC.
    stars_threshold : float, default=0.05
        StARS chooses the graph with the most edges whose instability is at most this.
    n_subsamples : int, default=20
        Number of subsamples of StARS.
    covariance : None
        Must be None; it exists for a uniform interface. A covariance matrix has no samples to choose by.
    kind, scores, assume_centered, standardize, shrinkage, penalty_factor
        As in :class:`~trimreg.TrimmedGraphicalLasso`. Ranks, normal scores and means are computed from the
        training samples of a fold, and applied to its test samples.
    effort : {"low", "medium", "high"}, default="medium"
        How hard every fit searches for the best free edges; see :func:`~trimreg.selection.graphical_path`.
    tol : float, default=1e-8
        Relative duality gap of every fit.
    max_iter : int or None, default=None
        Maximum number of steps of every fit; None is the default of the solver.
    n_jobs : int or None, default=None
        Folds or subsamples in parallel, by joblib. The result does not depend on it.
    verbose : int, default=0
        1 shows progress on standard error.
    random_state : int, Generator or RandomState, optional
        Seed of the subsamples.

    Attributes
    ----------
    h_, alpha_ : int, float
        The choice; ``chosen_alpha_`` is the element of ``alphas_``, which may be ``"exact"``.
    hs_, alphas_ : ndarray of int, list
        The grid.
    best_index_ : tuple of int
        The position of the choice in ``hs_`` and ``alphas_``.
    score_path_ : ndarray of shape (n_hs, n_alphas, n_folds)
        Test scores, greater is better; only without ``criterion``.
    criterion_path_ : ndarray of shape (n_hs, n_alphas)
        The criterion, smaller is better; only with an information criterion.
    instability_path_ : ndarray of shape (n_hs, n_alphas)
        Only with ``"stars"``.
    path_ : GraphicalPath
        Fits to all samples.
    precision_path_, partial_correlation_path_ : ndarray of shape (n_hs, n_alphas, p, p)
        Of those fits.
    precision_, covariance_, edges_, ...
        The model with the chosen h and alpha, fitted to all samples, with all attributes and methods of
        :class:`~trimreg.TrimmedGraphicalLasso`.

    Notes
    -----
    ``trimreg graph`` has other defaults: ``criterion="ebic"`` and ``standardize=True``.

    StARS uses the largest instability over all sparser graphs. If edges are equally strong, the first h of
    them change between subsamples, so small h are unstable, and with them all larger ones. In that case start
    ``hs`` near the expected number of edges, or choose by alpha alone with ``hs=[0]``.

    References
    ----------
    Liu, Roeder and Wasserman (2010). Stability approach to regularization selection (StARS) for high
    dimensional graphical models. Advances in Neural Information Processing Systems 23.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import TrimmedGraphicalLassoCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 5))
    >>> X[:, 1] += X[:, 0]
    >>> X[:, 2] += X[:, 1]
    >>> model = TrimmedGraphicalLassoCV(criterion="ebic").fit(X)
    >>> model.h_, [(edge.source, edge.target) for edge in model.edges_]
    (2, [('x1', 'x2'), ('x0', 'x1')])
    >>> TrimmedGraphicalLassoCV(rule="1se").fit(X).score_path_.shape
    (11, 1, 5)
    """

    def __init__(
        self,
        hs: str | Sequence[float] = "auto",
        alphas: str | Sequence[float | str] = "exact",
        *,
        penalty: str | Penalty = "trimmed_l1",
        cv: Any = None,
        rule: str = "min",
        criterion: str | None = None,
        gamma: float = 0.5,
        stars_threshold: float = 0.05,
        n_subsamples: int = 20,
        covariance: None = None,
        kind: str = "pearson",
        scores: str | None = None,
        assume_centered: bool = False,
        standardize: bool = False,
        shrinkage: float = 0.0,
        penalty_factor: ArrayLike | None = None,
        effort: str = "medium",
        tol: float = 1e-8,
        max_iter: int | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self._store(locals())

    def fit(self, X: Any, y: Any = None) -> TrimmedGraphicalLassoCV:
        """Choose h and alpha, and fit the model to all samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : ignored
            Except by a splitter that uses it.

        Returns
        -------
        self
        """
        search = self._search()
        if search.criterion is None or search.criterion == "stars":
            X = check.check_near(X, "a choice by folds or subsamples", "choose by criterion='ebic'")
        with check.all_or_nothing(self):
            self._search_and_fit(search, X, to_host(y))
        return self

    def _search(self) -> Search:
        """The search; checks the parameters that the grid and :meth:`_read` do not check."""
        if self.covariance is not None:
            raise ValueError(
                f"covariance must be None, because a covariance matrix has no samples to choose h by; got "
                f"{self.covariance!r}. See trimreg.selection.graphical_path and graph_criterion"
            )
        search = Search.of(self, GRAPH_CRITERIA)
        check.check_number("gamma", self.gamma, 0.0)
        check.check_number("stars_threshold", self.stars_threshold, 0.0)
        check.check_number("n_subsamples", self.n_subsamples, 2, integral=True)
        searched_penalty(self.penalty, self.penalty_factor)
        return search

    def _search_and_fit(self, search, X, y):
        """Set every fitted attribute."""
        X = as_virtual(X) if is_far(X) else X
        options = {"effort": self.effort}
        settings, data, X = self._read(X, h=None, alpha=1.0, max_iter=self.max_iter, options=options)
        settings = replace(settings, default_h=False)
        task = self._task(settings, data)
        rows: list[tuple[Any, Any]] = []  # training and test samples of folds or subsamples
        if search.criterion is None:
            rows = search.folds(X, y)
        elif self.criterion == "stars":
            rng = check.check_random_state(self.random_state)
            rows = [(drawn, []) for drawn in draw_subsamples(X.shape[0], self.n_subsamples, rng)]
        name = "subsample" if self.criterion == "stars" else "fold"
        parts = [
            (self._training(settings, X[train], f"{name} {k}"), X[test])
            for k, (train, test) in enumerate(rows)
        ]
        safe = [task.safe_h, *(part.safe_h for (part, _), _ in parts)]
        self.hs_, self.alphas_ = grid = graph_grid(task, self.hs, self.alphas, safe)
        with search.progress(self.hs_.size * len(self.alphas_), "fits") as advance:
            self.path_ = solve_graph_path(task, *grid, advance=advance)
        for name in _PATHS:
            self.__dict__.pop(name, None)  # of an earlier fit
        fit = partial(_fit_part, *grid)
        if search.criterion is None:
            repeats = times_tested(rows)
            self.score_path_, best = search.by_folds(fit, _likelihoods, parts, *grid, repeats=repeats)
        elif self.criterion == "stars":
            self.instability_path_ = instability(search.over_parts(fit, _edges, parts, label="subsamples"))
            best = self._stable()
        else:
            S, n = data.covariance, data.n_samples
            values = self.path_.mapped(
                lambda one: graph_criterion(self.criterion, S, one, n, gamma=self.gamma)
            )
            self.criterion_path_, best = search.by_criterion(values, *grid)
        self.best_index_, self.chosen_alpha_ = best, self.alphas_[best[1]]
        self._fit_choice(task, data)
        self._warn_about_the_grid(min(safe), task)
        self._warn_about_tails(X)

    def _warn_about_the_grid(self, safe, task):
        """Warn if the choice is at the end of a grid that was not the user's and could go on."""
        i, j = self.best_index_
        most = min(safe, int(np.count_nonzero(task.problem.regular)))
        ends = []
        if isinstance(self.hs, str) and 0 < i == self.hs_.size - 1 and self.hs_[i] < most:
            ends.append(f"h = {self.hs_[i]}, the largest of hs='auto' (0 to {self.hs_[i]}): pass larger hs")
        if isinstance(self.alphas, str) and 0 < j == len(self.alphas_) - 1:
            largest = next(alpha for alpha in self.alphas_ if alpha != "exact")
            ends.append(
                f"alpha = {self.chosen_alpha_:.3g}, the smallest of alphas='auto' ({largest:.3g} to "
                f"{self.chosen_alpha_:.3g}): pass smaller alphas"
            )
        for end in ends:
            warnings.warn(f"the choice is at the end of the grid: {end}", UserWarning, stacklevel=5)

    def _warn_about_tails(self, X):
        """Warn if outliers may be the reason why no edge is chosen."""
        if self.n_edges_ or self.kind != "pearson" or self.scores is not None or is_virtual(X):
            return
        X = np.asarray(X, dtype=float)
        farthest = np.max(np.abs(X - self.location_) / np.sqrt(np.diagonal(self.empirical_covariance_)))
        if farthest > _HEAVY:
            warnings.warn(
                f"no edge is chosen, and the data have heavy tails: a value is {farthest:.0f} standard "
                "deviations from the mean. Try scores='npn', which depends on ranks only",
                UserWarning,
                stacklevel=5,
            )

    def _training(self, settings: GraphSettings, X, name) -> tuple[GraphTask, GraphData]:
        """The problem of the training samples of a fold or subsample, and the coordinates for others."""
        # A generator of its own, so that the result does not depend on n_jobs.
        own = replace(settings, options=settings.options | {"rng": np.random.default_rng(0)})
        try:
            data = self._covariance(X)
            return prepare_graph(data.covariance, own), data
        except ValueError as error:
            raise ValueError(f"{name}: the training samples cannot be fitted: {error}") from None

    def _stable(self) -> tuple[int, int]:
        """The densest cell that is stable over the subsamples."""
        best = least_sparse(self.instability_path_, self.path_.n_edges, self.stars_threshold)
        if best is None:
            warnings.warn(
                f"no graph has an instability of at most stars_threshold = {self.stars_threshold}; the "
                f"sparsest, with {self.instability_path_[0, 0]:.3g}, is chosen. Use smaller hs or larger "
                "alphas",
                UserWarning,
                stacklevel=4,
            )
        return best or (0, 0)

    def _fit_choice(self, task, data):
        """Fit the chosen cell again, from its solution, for the results that a path does not keep."""
        i, j = self.best_index_
        free = None if task.problem.penalty.n_free is None else int(self.hs_[i])
        start = task.theta(self.path_.precision(i, j).astype(float))
        final = task.at(h=free, alpha=self.chosen_alpha_, start=start)
        final = replace(final, options=final.options | {"effort": "low"})  # stay at this solution
        self._take(final.solve(), final, data)

    @property
    def precision_path_(self) -> np.ndarray:
        return self.path_.precisions

    @property
    def partial_correlation_path_(self) -> np.ndarray:
        return self.path_.partial_correlations()
