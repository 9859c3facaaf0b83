"""The choice of h and alpha: the grid, the folds or a criterion, and the last fit."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from numbers import Integral

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv

from ..designs.convert import is_foreign, tied, to_host
from ..diagnostics import stationarity
from ..estimators import validation as check
from ..estimators.models.base import LinearEstimator, groups_of
from ..estimators.task import Settings, check_data, minimize, prepare
from ..losses import get_loss
from ..penalties import TrimmedL1
from ..solvers import EFFORTS
from .criteria import CRITERIA, criterion_value
from .folds import ALL_COLUMNS, Search, TotalGram, predictors, score_fold
from .path import count_samples, features_in, grid_for, n_parts, solve_path
from .progress import parallel, progress
from .rules import RULES, choose


class SurfaceCV(LinearEstimator):
    """What the estimators that choose share: the grid, the folds, the choice, the last fit."""

    warm_start = False  # the last fit starts from the path
    q = 2  # the norm of a group, where the constructor does not ask for it

    def _store(self, parameters):
        for name in self._get_param_names():
            setattr(self, name, parameters[name])

    def fit(self, X, y, sample_weight=None, cv_groups=None):
        """Choose h and alpha, and fit them to all samples.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Or a matrix that stays on disk, on a cluster or on a GPU; see :meth:`TrimmedLasso.fit`. There a
            fold of least squares costs about three passes, and ``scoring`` must be None.
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), optional
            A weight stands for so many repetitions of its sample: in the fits, in the scores (but for those
            of a ``scoring``, which only leave samples of weight 0 out), in the number of samples that a
            criterion and ``hs="auto"`` go by. That number is the sum of the weights, but no less than the
            number of those above 0.
        cv_groups : array-like of shape (n_samples,), optional
            Groups of samples for splitters such as ``GroupKFold``.

        Returns
        -------
        self
        """
        scorer = self._check()
        if scorer is not None:
            X = check.check_near(X, "scoring", "leave scoring=None")
        with check.all_or_nothing(self):
            self._search_and_fit(X, to_host(y), to_host(sample_weight), to_host(cv_groups), scorer)
        return self

    def _search_and_fit(self, X, y, sample_weight, cv_groups, scorer):
        """Set every fitted attribute."""
        X = X if hasattr(X, "shape") else check.check_real("X", X)
        check.check_features(self, X)
        target, weights = self._target(y, sample_weight)
        X, arguments = check.check_matrix(X), self._problem_arguments()
        target = check.check_target(target, X.shape[0], matrix=get_loss(arguments["loss"]).matrix_target)
        task = prepare(X, target, sample_weight=weights, **arguments)
        d, n = task.problem.d, count_samples(sample_weight, task.problem.d)
        folds = []
        if self.criterion is None:
            folds = self._folds(X, y, cv_groups, d)
            times = (np.bincount(train, minlength=d.size) for train, _ in folds)
            n = min(count_samples(sample_weight, d, each) for each in times)
        self.hs_, self.alphas_ = grid_for(task, self.hs, self.alphas, n)
        with progress(self.hs_.size * len(self.alphas_), "fits", self.verbose) as advance:
            path = solve_path(task, self.hs_, self.alphas_, effort=self.effort, verify=False, advance=advance)
        for name in ("criterion_path_", "score_path_"):
            self.__dict__.pop(name, None)  # of an earlier fit
        if self.criterion is not None:
            self.criterion_path_ = criteria_of_path(
                self.criterion, X, target, task, path, n, self.fit_intercept
            )
            self._choose(path, -self.criterion_path_, None)
        else:
            search = self._search(X, y, target, task, arguments, scorer)
            self.score_path_ = self._scores(search, folds)
            self._choose(path, *mean_and_error(self.score_path_))
        self._fit_choice(X, target, weights, arguments)

    # -- before any work -----------------------------------------------------------------------------

    def _check(self):
        """Check what :func:`prepare` and the grid do not; returns the scorer, if one is asked for."""
        check.check_choice("rule", self.rule, RULES)
        check.check_choice("effort", self.effort, EFFORTS)
        check.check_number("verbose", int(self.verbose) if self.verbose in (True, False) else self.verbose, 0)
        if self.n_jobs is not None and (
            isinstance(self.n_jobs, bool) or not isinstance(self.n_jobs, Integral) or self.n_jobs == 0
        ):
            raise ValueError(f"n_jobs must be None or an integer other than 0; got {self.n_jobs!r}")
        if self.criterion is not None:
            check.check_choice("criterion", self.criterion, CRITERIA)
            if self.rule == "1se":
                raise ValueError("rule='1se' is about folds; with a criterion use rule='min'")
        if self.scoring is None:
            return None
        if not isinstance(self.scoring, str) and not callable(self.scoring):
            raise ValueError(f"scoring must be the name of a scorer or a callable; got {self.scoring!r}")
        return check_scoring(self, scoring=self.scoring)

    def _problem_arguments(self):
        """The arguments of :func:`prepare` that are the same in every cell and fold."""
        names = ("fit_intercept", "standardize", "positive", "tol")
        seed = self.random_state
        if not isinstance(seed, (Integral, type(None))):
            # a number, for folds in other processes would each have a copy of the generator
            seed = int(check.check_random_state(seed).integers(2**31))
        given = {name: getattr(self, name) for name in names}
        return {
            "loss": self._loss,
            "penalty": self._penalty(0),
            "alpha": 0.0,
            "random_state": seed,
            **given,
        }

    def _settings(self):
        return Settings(**self._problem_arguments())

    def _penalty(self, h):
        return TrimmedL1(h, self.penalty_factor, groups=self.groups, q=self.q)

    def _folds(self, X, y, cv_groups, d):
        """Indices of the training and test samples of every fold; test samples of weight 0 are left out."""
        n = d.size
        if cv_groups is not None and np.shape(cv_groups) != (n,):
            raise ValueError(
                f"cv_groups must have a group for each of the {n} samples; got shape {np.shape(cv_groups)}"
            )
        try:
            cv = check_cv(5 if self.cv is None else self.cv, y, classifier=is_classifier(self))
            X = np.zeros((n, 1)) if is_foreign(X) else X  # a splitter asks for no more than the length
            folds = [(_rows(train, n), _rows(test, n)) for train, test in cv.split(X, y, cv_groups)]
        except (TypeError, ValueError) as error:
            raise ValueError(f"cv must be a number of folds, a splitter or an iterable: {error}") from None
        if any(d[train].sum() == 0 for train, _ in folds):
            raise ValueError("cv must give training samples of positive weight in every fold")
        folds = [(train, test[d[test] > 0]) for train, test in folds]
        folds = [(train, test) for train, test in folds if test.size]
        if len(folds) < (2 if self.rule == "1se" else 1):
            raise ValueError(f"cv must give folds with test samples of positive weight; got {len(folds)}")
        return folds

    # -- scores ------------------------------------------------------------------------------------

    def _search(self, X, y, target, task, arguments, scorer):
        return Search(
            X=X,
            target=target,
            d=task.problem.d,
            arguments=arguments,
            hs=self.hs_,
            alphas=self.alphas_,
            effort=self.effort,
            total=self._total_gram(X, task),
            scores=None if scorer is None else partial(_by_scorer, self, scorer, X, np.asarray(y)),
        )

    def _scores(self, search, folds):
        tasks = [(search, train, test) for train, test in folds]
        scores = parallel(
            score_fold, tasks, n_jobs=self.n_jobs, label="folds", verbose=self.verbose, shared=tied(search.X)
        )
        return np.stack(scores, axis=2)

    def _total_gram(self, X, task):
        """The Gram matrix that folds are taken out of, where a surface of least squares is in question."""
        problem = task.problem
        soft = any(alpha != "exact" for alpha in self.alphas_)
        single = problem.loss.constant_curvature and problem.penalty.norm.q is None
        if not (soft and single) or self.positive or X.shape[1] > ALL_COLUMNS or is_foreign(X):
            return None
        return TotalGram.of(X, problem.d, center=self.fit_intercept)

    def _fitted(self, coef, intercept):
        """A copy with these coefficients, for a scorer to predict with from an array."""
        model = copy.copy(self)
        vars(model).pop("feature_names_in_", None)
        model.coef_, model.intercept_ = coef, intercept
        return model

    # -- the choice ----------------------------------------------------------------------------------

    def _choose(self, path, mean, error):
        self.path_, self.coef_path_ = path, path.coefs
        self.best_index_ = i, j = choose(mean, error, self.hs_, self.alphas_, self.rule)
        self.h_, self.chosen_alpha_ = int(self.hs_[i]), self.alphas_[j]

    def _fit_choice(self, X, target, weights, arguments):
        """The model of the h and alpha that were chosen, from where the path has it."""
        i, j = self.best_index_
        cell = self.path_.results[i][j]
        final = arguments | {"penalty": self._penalty(self.h_), "alpha": self.chosen_alpha_}
        settings = Settings(**final, options={"effort": self.effort})
        result, task = minimize(check_data(X, target, weights, settings), settings, cell.coef)
        chosen = _settled(cell, result, self.tol * self.path_.objectives.max())
        if np.isnan(chosen.stationarity):  # cells of a path are not certified one by one
            chosen = replace(chosen, stationarity=self._stationarity(X, target, weights, final, chosen, task))
        self._take(chosen, task)
        self.entry_order_ = entry_over_path(features_in(self.path_.coefs[: i + 1, j], 1), self.entry_order_)

    @staticmethod
    def _stationarity(X, target, weights, final, chosen, task):
        """T of the choice: by those who share no code with the solvers, where X is in memory."""
        if is_foreign(X):
            return task.stationarity_of(chosen)
        names = ("loss", "penalty", "fit_intercept", "standardize", "positive")
        point = {"alpha": chosen.alpha, "weights": chosen.weights, "intercept": chosen.intercept}
        setting = {name: final[name] for name in names}
        return stationarity(X, target, chosen.coef, sample_weight=weights, **setting, **point)


def _settled(cell, result, least_gain):
    """The fit of the path, or a later one that starts from it if that is lower by so much.

    So the choice is a cell of the path, and it is the same after rounding where the loss has no minimum: as
    in classes that can be separated, where who goes on ends elsewhere.
    """
    same = np.array_equal(cell.weights > 0, result.weights > 0) and np.array_equal(
        cell.coef != 0, result.coef != 0
    )
    if same:
        return replace(cell, swap_optimal=result.swap_optimal)
    return result if result.objective < cell.objective - least_gain else cell


def _rows(index, n):
    """Indices of samples, from these or from a mask."""
    index = np.asarray(index)
    if index.dtype == bool and index.shape == (n,):
        return np.flatnonzero(index)
    if index.ndim != 1 or index.dtype.kind not in "iu" or np.any((index < -n) | (index >= n)):
        raise ValueError(f"the folds must hold indices of the {n} samples")
    return index % n


def _by_scorer(model, scorer, X, y, coefs, intercepts, test):
    fitted = (model._fitted(coef, intercept) for coef, intercept in zip(coefs, intercepts, strict=True))
    return [scorer(one, X[test], y[test]) for one in fitted]


def mean_and_error(scores):
    """Means over the last axis, the folds, and their standard errors; None in their place for one fold.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.selection.search import mean_and_error
    >>> mean_and_error(np.array([[[1.0, 3.0]]]))
    (array([[2.]]), array([[1.]]))
    """
    n_folds = scores.shape[-1]
    error = scores.std(axis=-1, ddof=1) / np.sqrt(n_folds) if n_folds > 1 else None
    return scores.mean(axis=-1), error


def criteria_of_path(name, X, target, task, path, n, fit_intercept):
    """The information criterion of every cell, of n samples.

    The coefficients that it counts are those that are not 0, and the intercept. Of a multinomial model, one
    class is what the others leave.
    """
    problem, shape = task.problem, path.objectives.shape
    loss = problem.loss
    coefs = path.coefs.reshape(-1, *path.coefs.shape[2:]).astype(float)
    intercepts = path.intercepts.reshape(-1, *path.intercepts.shape[2:])
    deviance = [loss.deviance(eta, target, problem.d, n) for eta in predictors(X, coefs, intercepts)]
    features = features_in(coefs, 1)
    has_intercept = int(fit_intercept and loss.sees_constants)
    df = (loss.n_outputs - loss.redundant_outputs) * (features.sum(axis=1) + has_intercept)
    groups, _ = groups_of(problem.penalty, X.shape[1])
    parts = features.sum(axis=1) if groups is None else [np.unique(groups[one]).size for one in features]
    value = criterion_value(name, deviance, df, n, n_parts(task), n_selected=parts)
    return np.reshape(value, shape)


def entry_over_path(inside, forward):
    """The steps at which features enter a model as h grows; of those that enter together, by ``forward``.

    Parameters
    ----------
    inside : ndarray of bool of shape (n_hs, n_features)
        Whether a feature is in the model, for rising h up to the one that was chosen.
    forward : ndarray of int of shape (n_features,)
        Steps of forward selection: from 1, the same for features of a group; 0 and -1 stay as they are.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.selection.search import entry_over_path
    >>> inside = np.array([[False, False, True], [True, True, True]])
    >>> entry_over_path(inside, np.array([3, 1, 2]))
    array([3, 2, 1])
    """
    inside = np.vstack([inside, np.ones_like(forward, dtype=bool)])  # the last fit may have found others
    first = inside.argmax(axis=0)
    steps = np.unique(forward[forward > 0])
    earliest = np.array([first[forward == step].min() for step in steps], dtype=int)
    order = forward.copy()
    for place, k in enumerate(np.lexsort((steps, earliest)), 1):
        order[forward == steps[k]] = place
    return order
