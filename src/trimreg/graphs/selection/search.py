"""The trimmed graphical lasso that chooses h and alpha by itself."""

from __future__ import annotations

import warnings
from dataclasses import replace
from numbers import Integral

import numpy as np
from sklearn.model_selection import check_cv

from ...designs.convert import as_virtual, is_far, to_host
from ...estimators import validation as check
from ...selection.grid import RULES, choose
from ...selection.progress import progress
from ...selection.search import _rows, mean_and_error, parallel
from ..model import GraphData, GraphicalModel, read_covariance
from ..task import GraphTask, prepare_graph
from .criteria import (
    GRAPH_CRITERIA,
    graph_criterion,
    instability,
    least_sparse,
    mean_log_likelihood,
    subsample_size,
)
from .path import graph_grid, searched_penalty, solve_graph_path

_PATHS = ("score_path_", "criterion_path_", "instability_path_")


def score_fold(task: GraphTask, data: GraphData, rows, hs, alphas) -> np.ndarray:
    """Mean log-likelihoods of the rows under every model of the task: shape (n_hs, n_alphas)."""
    rows = np.asarray(data.rows(rows), dtype=float)
    S_test = rows.T @ rows / len(rows)
    return solve_graph_path(task, hs, alphas).mapped(lambda one: mean_log_likelihood(S_test, one))


def edges_of_subsample(task: GraphTask, hs, alphas) -> np.ndarray:
    """Which pairs are edges in every model of the task: shape (n_hs, n_alphas, n_pairs)."""
    return solve_graph_path(task, hs, alphas).edges()


def draw_subsamples(n: int, count: int, rng) -> np.ndarray:
    """Sorted indices of ``count`` subsamples without replacement, of :func:`subsample_size`.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.graphs.selection.search import draw_subsamples
    >>> draw_subsamples(5, 2, np.random.default_rng(0))
    array([[1, 2, 3, 4],
           [0, 2, 3, 4]])
    """
    size = subsample_size(n)
    return np.array([np.sort(rng.choice(n, size, replace=False)) for _ in range(count)])


class TrimmedGraphicalLassoCV(GraphicalModel):
    r"""The trimmed graphical lasso that chooses its number of free edges h, and alpha.

    .. math:: \min_{\Theta \succ 0}\; \mathrm{tr}(S\Theta) - \log\det\Theta
              + 2 \alpha \sum_{k > h} |\theta|_{(k)}

    for every h and alpha of a grid. What is chosen is the cell with the largest mean log-likelihood of the
    test samples,

    .. math:: \frac12 \bigl(\log\det\Theta - \mathrm{tr}(S_{test}\Theta) - p \log 2\pi\bigr),

    over folds; or by ``criterion`` the one with the smallest AIC, BIC or EBIC
    (:func:`~trimreg.selection.graph_criterion`) of fits to all samples, or the least sparse one whose graph
    hardly changes between subsamples (StARS).

    Parameters
    ----------
    hs : "auto" or sequence of int or fractions, default="auto"
        How many edges go free. ``"auto"`` is about 16 values from 0 to 3p, denser at the small end, but to no
        more than is safe: where S is singular on the samples of a fold, too many free edges leave the
        objective without a minimum. Values of the user's beyond that are refused.
    alphas : "exact", "auto" or sequence, default="exact"
        With ``"exact"`` a graph has at most h edges, and there is nothing but h to choose. ``"auto"`` is
        ``"exact"`` and a grid of 8 numbers below the largest correlation; a sequence may hold both.
    penalty : {"trimmed_l1", "l1", "mcp", "scad"} or penalty object, default="trimmed_l1"
        All but the first have no h, and need ``alphas`` that are ``"auto"`` or numbers.
    cv : int, splitter or iterable, default=None
        Folds; None is 5, without shuffling, as in scikit-learn.
    rule : {"min", "1se"}, default="min"
        The best mean score, or the smallest h (then the largest alpha) within one standard error of it.
    criterion : {None, "aic", "bic", "ebic", "stars"}, default=None
        None is cross-validation, which aims at prediction and keeps too many edges; ``"ebic"`` aims at the
        graph.
    gamma : float, default=0.5
        Of EBIC.
    stars_threshold : float, default=0.05
        StARS takes the graph with the most edges whose instability is at most this.
    n_subsamples : int, default=20
        Of StARS.
    covariance : None
        There for the sake of one interface: a covariance matrix has no samples to choose by.
    kind, transform, assume_centered, standardize, shrinkage, penalty_factor
        As in :class:`~trimreg.TrimmedGraphicalLasso`. Ranks, normal scores and means are taken from the
        training samples of a fold, and applied to its test samples.
    effort : {"low", "medium", "high"}, default="medium"
        How hard every fit looks for the best free edges; see :func:`~trimreg.selection.graphical_path`.
    tol : float, default=1e-8
        Relative duality gap of every fit.
    n_jobs : int or None, default=None
        Folds or subsamples in parallel, by joblib. The result does not depend on it.
    verbose : int, default=0
        1 shows progress on standard error.
    random_state : int, Generator or RandomState, optional
        Seed of the subsamples.

    Attributes
    ----------
    h_, alpha_ : int, float
        What was chosen; ``chosen_alpha_`` is the entry of ``alphas_``, which may be ``"exact"``.
    hs_, alphas_ : ndarray of int, list
        The grid.
    best_index_ : tuple of int
        The place of the choice in ``hs_`` and ``alphas_``.
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
        The model of that h and alpha, fitted to all samples, with all attributes and methods of
        :class:`~trimreg.TrimmedGraphicalLasso`.

    Notes
    -----
    StARS takes the largest instability over all sparser graphs. Where edges are equally strong, which of them
    are the first h changes between subsamples, so that small h are unstable and all larger ones with them:
    give ``hs`` that begin where the graph is thought to, or choose by alpha alone with ``hs=[0]``.

    References
    ----------
    Foygel and Drton (2010). Extended Bayesian information criteria for Gaussian graphical models. Advances in
    Neural Information Processing Systems 23.

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

    # What the estimator without CV has for parameters; h_ and alpha_ are what was chosen.
    h, alpha = None, 1.0
    solver, start, max_iter, warm_start = "mm", "auto", None, False

    def __init__(
        self,
        hs="auto",
        alphas="exact",
        *,
        penalty="trimmed_l1",
        cv=None,
        rule="min",
        criterion=None,
        gamma=0.5,
        stars_threshold=0.05,
        n_subsamples=20,
        covariance=None,
        kind="pearson",
        transform=None,
        assume_centered=False,
        standardize=False,
        shrinkage=0.0,
        penalty_factor=None,
        effort="medium",
        tol=1e-8,
        n_jobs=None,
        verbose=0,
        random_state=None,
    ):
        self.hs = hs
        self.alphas = alphas
        self.penalty = penalty
        self.cv = cv
        self.rule = rule
        self.criterion = criterion
        self.gamma = gamma
        self.stars_threshold = stars_threshold
        self.n_subsamples = n_subsamples
        self.covariance = covariance
        self.kind = kind
        self.transform = transform
        self.assume_centered = assume_centered
        self.standardize = standardize
        self.shrinkage = shrinkage
        self.penalty_factor = penalty_factor
        self.effort = effort
        self.tol = tol
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X, y=None):
        """Choose h and alpha, and fit them to all samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : ignored
            But for a splitter that looks at it.

        Returns
        -------
        self
        """
        self._check_search()
        if self.criterion is None or self.criterion == "stars":
            X = check.check_near(X, "a choice by folds or subsamples", "choose by criterion='ebic'")
        with check.all_or_nothing(self):
            self._search(X, to_host(y))
        return self

    def _search(self, X, y):
        """Set every fitted attribute."""
        X = as_virtual(X) if is_far(X) else X
        data = self._read(X)
        X = check.check_matrix(X)
        task = self._task(data)
        parts = self._parts(X, y)
        problems = [self._problem_of(X[train], f"{name} {k}") for k, (name, train, _) in enumerate(parts)]
        safe = [task.safe_h, *(problem.safe_h for problem, _ in problems)]
        self.hs_, self.alphas_ = graph_grid(task, self.hs, self.alphas, safe)
        with progress(self.hs_.size * len(self.alphas_), "fits", self.verbose) as advance:
            self.path_ = solve_graph_path(task, self.hs_, self.alphas_, advance=advance)
        for name in _PATHS:
            self.__dict__.pop(name, None)  # of an earlier fit
        self.best_index_ = i, j = self._choice(data, X, parts, problems)
        self.chosen_alpha_ = self.alphas_[j]
        self._fit_choice(task, data, int(self.hs_[i]))

    @property
    def precision_path_(self):
        return self.path_.precisions

    @property
    def partial_correlation_path_(self):
        return self.path_.partial_correlations()

    # -- before any work -----------------------------------------------------------------------------

    def _check_search(self):
        """Check what the grid and the estimator without CV do not."""
        if self.covariance is not None:
            raise ValueError(
                f"covariance must be None: a covariance matrix has no samples to choose h by; got "
                f"{self.covariance!r}. See trimreg.selection.graphical_path and graph_criterion"
            )
        check.check_choice("rule", self.rule, RULES)
        check.check_choice("criterion", self.criterion, (None, *GRAPH_CRITERIA))
        if self.criterion is not None and self.rule == "1se":
            raise ValueError("rule='1se' is about folds; with a criterion use rule='min'")
        check.check_number("gamma", self.gamma, 0.0)
        check.check_number("stars_threshold", self.stars_threshold, 0.0)
        check.check_number("n_subsamples", self.n_subsamples, 2, integral=True)
        check.check_number("verbose", int(self.verbose) if self.verbose in (True, False) else self.verbose, 0)
        if self.n_jobs is not None and (
            isinstance(self.n_jobs, bool) or not isinstance(self.n_jobs, Integral) or self.n_jobs == 0
        ):
            raise ValueError(f"n_jobs must be None or an integer other than 0; got {self.n_jobs!r}")
        searched_penalty(self.penalty, self.penalty_factor)

    def _parts(self, X, y):
        """``(name, train, test)`` of the folds, or of the subsamples, which have no test part."""
        n = X.shape[0]
        if self.criterion is None:
            return [("fold", train, test) for train, test in self._folds(X, y)]
        if self.criterion != "stars":
            return []
        rng = check.check_random_state(self.random_state)
        return [("subsample", rows, None) for rows in draw_subsamples(n, self.n_subsamples, rng)]

    def _folds(self, X, y):
        n = X.shape[0]
        try:
            cv = check_cv(5 if self.cv is None else self.cv, y)
            folds = [(_rows(train, n), _rows(test, n)) for train, test in cv.split(X, y)]
        except (TypeError, ValueError) as error:
            raise ValueError(f"cv must be a number of folds, a splitter or an iterable: {error}") from None
        folds = [(train, test) for train, test in folds if test.size]
        if len(folds) < (2 if self.rule == "1se" else 1):
            raise ValueError(f"cv must give folds with test samples; got {len(folds)}")
        return folds

    def _problem_of(self, X, name):
        """The problem of some of the samples, and how others come into its coordinates."""
        try:
            data = read_covariance(
                X, kind=self.kind, transform=self._transform, assume_centered=self.assume_centered,
                names=getattr(self, "feature_names_in_", None),
            )  # fmt: skip
            task = prepare_graph(
                data.covariance, penalty=searched_penalty(self.penalty, self.penalty_factor),
                alpha=self.alpha, standardize=self.standardize, shrinkage=self.shrinkage, tol=self.tol,
                options={"effort": self.effort},
            )  # fmt: skip
        except ValueError as error:
            raise ValueError(f"the samples that {name} is fitted to do not do: {error}") from None
        return task, data

    # -- the choice ----------------------------------------------------------------------------------

    def _choice(self, data, X, parts, problems):
        """The place in the grid; sets the path that it was chosen by."""
        grid = self.hs_, self.alphas_
        jobs = {"n_jobs": self.n_jobs, "verbose": self.verbose}
        if self.criterion is None:
            tasks = [
                (*problem, X[test], *grid) for problem, (_, _, test) in zip(problems, parts, strict=True)
            ]
            self.score_path_ = np.stack(parallel(score_fold, tasks, label="folds", **jobs), axis=2)
            return choose(*mean_and_error(self.score_path_), *grid, self.rule)
        if self.criterion != "stars":
            S, n = data.covariance, data.n_samples
            self.criterion_path_ = self.path_.mapped(
                lambda one: graph_criterion(self.criterion, S, one, n, gamma=self.gamma)
            )
            return choose(-self.criterion_path_, None, *grid)
        tasks = [(task, *grid) for task, _ in problems]
        chosen = parallel(edges_of_subsample, tasks, label="subsamples", **jobs)
        self.instability_path_ = instability(chosen)
        best = least_sparse(self.instability_path_, self.path_.n_edges, self.stars_threshold)
        if best is None:
            warnings.warn(
                f"no graph has an instability of at most stars_threshold = {self.stars_threshold}; the "
                f"sparsest has {self.instability_path_[0, 0]:.3g} and is taken. Give smaller hs or larger "
                "alphas",
                UserWarning,
                stacklevel=3,
            )
        return best or (0, 0)

    def _fit_choice(self, task, data, h):
        """The model of the choice: the cell of the path, with what a path does not keep."""
        i, j = self.best_index_
        free = None if task.problem.penalty.n_free is None else h
        start = task.theta(self.path_.precision(i, j).astype(float))
        final = task.at(h=free, alpha=self.chosen_alpha_, start=start)
        final = replace(final, options=final.options | {"effort": "low", "start": "auto"})  # stay where it is
        self._take(final.solve(), final, data)
