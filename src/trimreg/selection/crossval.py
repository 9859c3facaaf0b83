"""Estimators that choose h and alpha by themselves."""

from __future__ import annotations

import copy

import numpy as np
from sklearn.base import RegressorMixin, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.utils.validation import validate_data

from ..estimators import validation as check
from ..estimators.linear import LinearEstimator
from ..estimators.logistic import TrimmedLogisticRegression
from ..estimators.solve import solve_with_task
from ..estimators.task import prepare
from ..losses import get_loss
from ..penalties import TrimmedL1
from ..solvers import EFFORTS
from .criteria import CRITERIA, criterion_value
from .folds import ALL_COLUMNS, TotalGram, fold_scores, predictors
from .path import grid_for, n_parts, solve_path
from .progress import parallel
from .rules import RULES, choose

_PARAMETERS = """
    hs : "auto", or sequence of int or fractions, default="auto"
        How many coefficients (or groups) may go free. ``"auto"`` is :func:`~trimreg.selection.auto_hs`: 0 to a
        sensible maximum, not every integer.
    alphas : "exact", "auto" or sequence, default="exact"
        ``"exact"`` chooses among best subsets: there is nothing but h to choose. ``"auto"`` is a grid of 21
        numbers; a sequence may hold numbers and ``"exact"``.
    cv : int, splitter or iterable, default=None
        Folds; None is 5. As in scikit-learn, stratified for classifiers.
    rule : {"min", "1se"}, default="min"
        The best mean score, or the smallest h (then the largest alpha) within one standard error of it.
    criterion : {None, "aic", "bic", "ebic", "gic"}, default=None
        Choose by an information criterion on all samples, without folds.
    scoring : str or callable, default=None
        A scikit-learn scorer, greater is better. None is minus the mean loss of the test samples (minus the
        mean squared error for least squares).
    effort : {{"low", "medium", "high"}}, default="medium"
    fit_intercept, standardize : bool, default=True
    positive : bool, default=False
    penalty_factor, groups
        As in :class:`~trimreg.TrimmedLasso`.
    tol : float, default=1e-6
    n_jobs : int or None, default=None
        Folds in parallel, by joblib: any of its backends will do.
    verbose : int, default=0
        1 shows a progress bar.
    random_state : int, Generator or RandomState, optional
"""
_ATTRIBUTES = """
    h_, alpha_ : int, float
        What was chosen; ``chosen_alpha_`` is the entry of ``alphas_``, which may be ``"exact"``.
    hs_, alphas_ : ndarray of int, list
        The grid.
    score_path_ : ndarray of shape (n_hs, n_alphas, n_folds)
        Test scores, greater is better.
    criterion_path_ : ndarray of shape (n_hs, n_alphas)
        The criterion, smaller is better; only with ``criterion``.
    coef_path_ : ndarray of shape (n_hs, n_alphas, n_features) or (n_hs, n_alphas, n_outputs, n_features)
        Coefficients of fits to all samples.
    path_ : TrimmedPath
        Those fits.
    best_index_ : tuple of int
        The place of the choice in ``hs_`` and ``alphas_``.
    coef_, intercept_, support_, result_, ...
        The model of that h and alpha, fitted to all samples, as in the estimator without CV.
"""


class SurfaceCV(LinearEstimator):
    """What the estimators that choose share: the grid, the folds, the choice, the last fit."""

    warm_start = False  # the last fit starts from the path

    def _store(self, parameters):
        for name in self._get_param_names():
            setattr(self, name, parameters[name])

    def fit(self, X, y, sample_weight=None, cv_groups=None):
        """Choose h and alpha, and fit them to all samples.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), optional
            Used in the fits and in the default scores.
        cv_groups : array-like of shape (n_samples,), optional
            Groups of samples for splitters such as ``GroupKFold``.

        Returns
        -------
        self
        """
        self._check()
        X = X if hasattr(X, "shape") else check.check_real("X", X)
        validate_data(self, X, skip_check_array=True)
        target, weights = self._target(y, sample_weight)
        arguments = self._fit_arguments()
        X = check.check_matrix(X)
        task = prepare(X, target, sample_weight=weights, **arguments)
        target = _original_target(task)
        folds = [] if self.criterion is not None else self._folds(X, y, cv_groups)
        n = min([np.count_nonzero(task.problem.d)] + [len(train) for train, _ in folds])
        self.hs_, self.alphas_ = grid_for(task, self.hs, self.alphas, n)
        path = solve_path(task, self.hs_, self.alphas_, effort=self.effort)
        if self.criterion is not None:
            self.criterion_path_ = self._criteria(X, task, target, path)
            mean, error = -self.criterion_path_, None
        else:
            self.score_path_ = self._scores(X, y, target, task, arguments, folds)
            mean = self.score_path_.mean(axis=2)
            error = self.score_path_.std(axis=2, ddof=1) / np.sqrt(len(folds)) if len(folds) > 1 else None
        self.best_index_ = choose(mean, error, self.hs_, self.alphas_, self.rule)
        i, j = self.best_index_
        self.h_, self.chosen_alpha_ = int(self.hs_[i]), self.alphas_[j]
        self.path_, self.coef_path_ = path, path.coefs
        penalty = TrimmedL1(self.h_, self.penalty_factor, groups=self.groups, q=getattr(self, "q", 2))
        final = arguments | {"penalty": penalty, "alpha": self.chosen_alpha_, "effort": self.effort}
        start = path.coefs[i, j]
        self._take(*solve_with_task(X, target, sample_weight=weights, theta0=start, **final))
        return self

    def _check(self):
        check.check_choice("rule", self.rule, RULES)
        check.check_choice("effort", self.effort, EFFORTS)
        if self.criterion is not None:
            check.check_choice("criterion", self.criterion, CRITERIA)

    def _fit_arguments(self):
        names = ("fit_intercept", "standardize", "positive", "tol", "random_state")
        penalty = TrimmedL1(0, self.penalty_factor, groups=self.groups, q=getattr(self, "q", 2))
        return {"loss": self._loss(), "penalty": penalty, "alpha": 0.0} | {n: getattr(self, n) for n in names}

    def _folds(self, X, y, cv_groups):
        try:
            cv = check_cv(5 if self.cv is None else self.cv, y, classifier=is_classifier(self))
            return [(train, test) for train, test in cv.split(X, y, cv_groups)]
        except (TypeError, ValueError) as error:
            raise ValueError(f"cv must be a number of folds, a splitter or an iterable: {error}") from None

    # -- scores ------------------------------------------------------------------------------------

    def _scores(self, X, y, target, task, arguments, folds):
        total = self._total_gram(X, task)
        scorer = None if self.scoring is None else check_scoring(self, scoring=self.scoring)
        tasks = [
            (self, X, y, target, task.problem.d, arguments, total, train, test, scorer)
            for train, test in folds
        ]
        scores = parallel(_score_fold, tasks, n_jobs=self.n_jobs, label="folds", verbose=self.verbose)
        return np.stack(scores, axis=2)

    def _total_gram(self, X, task):
        """The Gram matrix that folds are taken out of, where a surface of least squares is in question."""
        problem = task.problem
        soft = any(alpha != "exact" for alpha in self.alphas_)
        single = problem.loss.constant_curvature and problem.penalty.norm.q is None
        if not (soft and single) or self.positive or X.shape[1] > ALL_COLUMNS:
            return None
        return TotalGram.of(X, problem.d, center=self.fit_intercept)

    def _fitted(self, coef, intercept):
        """A copy with these coefficients, for a scorer to predict with."""
        model = copy.copy(self)
        model.coef_, model.intercept_ = coef, intercept
        return model

    def _criteria(self, X, task, target, path):
        problem = task.problem
        coefs = path.coefs.reshape(-1, *path.coefs.shape[2:])
        intercepts = path.intercepts.reshape(-1, *path.intercepts.shape[2:])
        eta = predictors(X, coefs, intercepts)
        n = np.count_nonzero(problem.d)
        deviance = [problem.loss.deviance(one, target, problem.d, n) for one in eta]
        norm, outputs = problem.penalty.norm, problem.loss.n_outputs
        each = outputs - 1 if problem.loss.name == "multinomial" else outputs
        features = (coefs != 0) if coefs.ndim == 2 else coefs.any(axis=1)
        df = each * (features.sum(axis=1) + int(task.constant or self.fit_intercept))
        parts = features.sum(axis=1)
        if self.groups is not None:
            label = norm.label[: X.shape[1] * outputs : outputs]
            parts = np.array([np.unique(label[one]).size for one in features])
        value = criterion_value(self.criterion, deviance, df, n, n_parts(task), n_selected=parts)
        return np.reshape(value, (len(self.hs_), len(self.alphas_)))


def _score_fold(model, X, y, target, d, arguments, total, train, test, scorer):
    """Scores of every cell on the test samples of a fold; a function, so that joblib can send it."""
    weights = np.zeros_like(d)
    weights[train] = d[train]
    task = prepare(X, target, sample_weight=weights, **arguments)
    pool = None
    if total is not None and 2 * test.size <= train.size and train.size + test.size == d.size:
        design = task.problem.design
        pool = total.pool(X, d, test, design)
    rows, held = X[test], d[test] / d[test].sum() if d[test].sum() > 0 else np.full(test.size, 1 / test.size)

    def score(coefs, intercepts):
        if scorer is not None:
            fitted = (model._fitted(c, b) for c, b in zip(coefs, intercepts, strict=True))
            return [scorer(one, rows, np.asarray(y)[test]) for one in fitted]
        loss = get_loss(arguments["loss"]).bound(target[test], held)
        factor = 2.0 if loss.name in ("quadratic", "multitask") else 1.0
        eta = predictors(rows, coefs, intercepts)
        return [-factor * loss.value(one, target[test], held) for one in eta]

    return fold_scores(task, model.hs_, model.alphas_, score, effort=model.effort, pool=pool)


def _original_target(task):
    """The target as the loss takes it, centring taken back."""
    return task.problem.y + task.centre if np.any(task.centre) else task.problem.y


class TrimmedLassoCV(RegressorMixin, SurfaceCV):
    __doc__ = rf"""The trimmed lasso that chooses h and alpha by cross-validation or a criterion.

    Parameters
    ----------{_PARAMETERS}
    Attributes
    ----------{_ATTRIBUTES}
    mse_path_ : ndarray of shape (n_hs, n_alphas, n_folds)
        Mean squared errors of the test samples; not with ``scoring`` or ``criterion``.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import TrimmedLassoCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 30))
    >>> y = 2 * X[:, 3] - X[:, 17] + 0.5 * rng.standard_normal(100)
    >>> model = TrimmedLassoCV().fit(X, y)
    >>> model.h_, model.support_
    (2, array([ 3, 17]))
    >>> TrimmedLassoCV(criterion="ebic").fit(X, y).h_
    2
    """

    def __init__(
        self,
        hs="auto",
        alphas="exact",
        cv=None,
        rule="min",
        criterion=None,
        scoring=None,
        effort="medium",
        fit_intercept=True,
        standardize=True,
        positive=False,
        penalty_factor=None,
        groups=None,
        tol=1e-6,
        n_jobs=None,
        verbose=0,
        random_state=None,
    ):
        self._store(locals())

    def _loss(self):
        return "quadratic"

    @property
    def mse_path_(self):
        if self.criterion is not None or self.scoring is not None:
            raise AttributeError("mse_path_ is there without criterion and without scoring")
        return -self.score_path_


class TrimmedLogisticRegressionCV(SurfaceCV, TrimmedLogisticRegression):
    __doc__ = rf"""Trimmed logistic regression, binary or multinomial, that chooses h and alpha.

    Parameters
    ----------{_PARAMETERS}
    class_weight : None, "balanced" or dict, default=None

    Attributes
    ----------{_ATTRIBUTES}
    classes_ : ndarray

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import TrimmedLogisticRegressionCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 15))
    >>> y = np.where(2 * X[:, 3] - 2 * X[:, 7] + rng.logistic(size=200) > 0, "yes", "no")
    >>> TrimmedLogisticRegressionCV(rule="1se").fit(X, y).support_
    array([3, 7])
    """

    def __init__(
        self,
        hs="auto",
        alphas="exact",
        cv=None,
        rule="min",
        criterion=None,
        scoring=None,
        class_weight=None,
        effort="medium",
        fit_intercept=True,
        standardize=True,
        positive=False,
        penalty_factor=None,
        groups=None,
        tol=1e-6,
        n_jobs=None,
        verbose=0,
        random_state=None,
    ):
        self._store(locals())

    def __sklearn_tags__(self):
        self.h = self.hs  # what the base asks for its tags
        try:
            return super().__sklearn_tags__()
        finally:
            del self.h

    def _fitted(self, coef, intercept):
        return super()._fitted(np.atleast_2d(coef), np.atleast_1d(intercept))


class MEstimatorCV(RegressorMixin, SurfaceCV):
    __doc__ = rf"""A trimmed model of any loss that chooses h and alpha.

    Parameters
    ----------
    loss : str or loss object, default="quadratic"
        See :mod:`trimreg.losses`.{_PARAMETERS}
    q : 2 or inf, default=2
        The norm of a group.

    Attributes
    ----------{_ATTRIBUTES}

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import MEstimatorCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 15))
    >>> y = rng.poisson(np.exp(0.5 * X[:, 2] - 0.7 * X[:, 9] + 1.0))
    >>> MEstimatorCV(loss="poisson").fit(X, y).support_
    array([2, 9])
    """

    def __init__(
        self,
        loss="quadratic",
        hs="auto",
        alphas="exact",
        cv=None,
        rule="min",
        criterion=None,
        scoring=None,
        effort="medium",
        fit_intercept=True,
        standardize=True,
        positive=False,
        penalty_factor=None,
        groups=None,
        q=2,
        tol=1e-6,
        n_jobs=None,
        verbose=0,
        random_state=None,
    ):
        self._store(locals())

    def _loss(self):
        return self.loss

    def _mean(self, eta):
        return get_loss(self.loss).inverse_link(eta)
