"""Estimators that choose h, alpha and the ridge term l2."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.metrics import check_scoring

from ..designs.convert import is_virtual, stays_in_process, to_host
from ..estimators import validation as check
from ..estimators.models.base import LinearEstimator, Regressor
from ..estimators.models.logistic import TrimmedLogisticRegression, centered
from ..estimators.task import Settings, check_data, set_up, shifted
from ..losses import LOSSES, get_loss
from ..penalties import TrimmedL1
from ..solvers import EFFORTS
from .folds import ALL_COLUMNS, LinearFolds, TotalGram, criteria_of_path
from .grid import check_l2s, choose
from .moments import MomentFolds
from .path import (
    count_samples,
    entry_over_path,
    features_in,
    grid_for,
    l2s_for,
    on_few_rows,
    ridged,
    ridges_for,
    solve_paths,
)
from .search import Search, is_cv, times_tested

_EXTENSIONS = 2  # of an automatic grid of alphas
_FACTOR, _MORE = 0.05, 8  # each goes to this part of the last alpha, in this many steps


class SurfaceCV(LinearEstimator):
    """Base of the linear models that choose h, alpha and l2: fits over the grid, choice, final fit."""

    warm_start = False  # the final fit starts from the path
    q = 2  # the norm of a group, unless it is a parameter

    def fit(  # type: ignore[override]
        self, X: Any, y: Any, sample_weight: Any = None, cv_groups: Any = None, offset: Any = None,
        exposure: Any = None,
    ) -> SurfaceCV:  # fmt: skip
        """Choose h, alpha and l2, and fit the model with them to all samples.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Or a matrix that stays on disk, on a cluster or on a GPU; see :meth:`TrimmedLasso.fit`. Then
            the folds of least squares share a pass, and ``scoring`` must be None.
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), optional
            A weight of k counts as k repetitions of the sample: in the fits, in the scores, and in the number
            of samples that a criterion and ``hs="auto"`` use. That number is the sum of the weights, but at
            least the number of positive ones. A ``scoring`` only leaves out samples of weight 0.
        cv_groups : array-like of shape (n_samples,), optional
            Groups of samples that go to the same fold, or that splitters such as ``LeaveOneGroupOut`` take.
        offset, exposure : array-like of shape (n_samples,), optional
            As in :meth:`TrimmedLasso.fit`; ``scoring`` must be None then.

        Returns
        -------
        self
        """
        search, scorer = Search.of(self), self._scorer()
        if self.l2s is not None:
            check_l2s(self.l2s)
        check.check_choice("effort", self.effort, EFFORTS)
        if scorer is not None:
            if offset is not None or exposure is not None:
                raise ValueError("scoring must be None with offset or exposure: scorers know of neither")
            X = check.check_near(X, "scoring", "leave scoring=None")
        with check.all_or_nothing(self):
            arrays = (to_host(one) for one in (y, sample_weight, cv_groups, offset, exposure))
            self._search_and_fit(search, scorer, X, *arrays)
        return self

    def _search_and_fit(self, search, scorer, X, y, sample_weight, cv_groups, offset, exposure):
        """Set every fitted attribute."""
        X = X if hasattr(X, "shape") else check.check_real("X", X)
        check.check_features(self, X)
        target, weights = self._target(y, sample_weight)
        settings, target = shifted(self._settings(), target, offset, exposure)
        data = check_data(X, target, weights, settings)
        task, X, d = set_up(data, settings), data.X, data.d
        n, folds = count_samples(sample_weight, d), []
        if search.criterion is None:
            rows = np.zeros((d.size, 1)) if is_virtual(X) else X  # splitters only use the number of rows
            strata = {"classifier": is_classifier(self), "classes": settings.loss.classes(target)}
            folds = search.folds(rows, y, groups=cv_groups, weights=d, **strata)
            times = (np.bincount(train, minlength=d.size) for train, _ in folds)
            n = min(count_samples(sample_weight, d, each) for each in times)
        self.l2s_ = l2s_for(task, self.l2s, by_folds=search.criterion is None)
        self.hs_, self.alphas_ = grid_for(task, self.hs, self.alphas, n, shrunk=self.l2s_[-1] > 0)
        ridges = ridges_for(task, self.l2s_, self.alphas_, by_folds=search.criterion is None)
        for name in ("score_path_", "l2_score_path_", "criterion_path_", "l2_criterion_path_"):
            self.__dict__.pop(name, None)  # of an earlier fit
        if search.criterion is None:
            scores = None if scorer is None else partial(self._scores, scorer, X, np.asarray(y))
            plain = LinearFolds(data, settings, self.hs_, self.alphas_, self.effort, None, scores, ridges)
            shared = plain.worth_products(task, len(folds))
            moments = MomentFolds.of(plain, task, folds) if shared else None
            if moments is None:
                plain.total, parts = self._total_gram(X, task), folds
            else:
                task, parts = moments.task, [(k, k) for k in range(len(folds))]

            def tested(alphas):
                one = replace(moments or plain, alphas=alphas)
                return np.stack(
                    search.over_parts(one.fit, one.score, parts, shared=stays_in_process(X)), axis=-1
                )

            values, best = self._extended(tested, search.rule, times_tested(folds))
            self.l2_score_path_, k = self._of_selection(values, best[2])
            self.score_path_ = self.l2_score_path_[:, :, k]
            path = self._paths(search, task, [ridges[best[2]]])[0]
        else:
            task, paths = on_few_rows(task, self.hs_.size * len(self.alphas_)), []

            def fitted(alphas):
                paths[:] = self._paths(search, task, ridges, alphas)
                more = n, self.fit_intercept
                values = [
                    criteria_of_path(self.criterion, data, ridged(task, ridge.l2), path, *more)
                    for ridge, path in zip(ridges, paths, strict=True)
                ]
                return -np.stack(values, axis=2)[..., None]

            values, best = self._extended(fitted)
            values = -values[..., 0]
            self.l2_criterion_path_, k = self._of_selection(values, best[2])
            self.criterion_path_ = self.l2_criterion_path_[:, :, k]
            path = paths[best[2]]
            if len(path.alphas) < len(self.alphas_):  # the grid was extended
                path = self._paths(search, task, [ridges[best[2]]])[0]
        self.path_, self.coef_path_, self.best_index_ = path, path.coefs, best[:2]
        self.h_, self.chosen_alpha_ = int(self.hs_[best[0]]), self.alphas_[best[1]]
        ridge = ridges[best[2]]
        self.selection_l2_ = float(ridge.selection if self.chosen_alpha_ == "exact" else ridge.l2)
        self._fit_choice(ridged(task, ridge.l2))

    def _of_selection(self, values, k):
        """The values of every l2 with the selection of the k-th ridge, and the place of its l2."""
        place, selection = divmod(k, values.shape[2] // self.l2s_.size)
        return values[:, :, selection :: values.shape[2] // self.l2s_.size], place

    def _extended(self, scored, rule="min", repeats=1.0):
        """Scores of all cells, and the choice; an automatic grid goes on while its last alpha is chosen.

        ``scored`` returns the scores for the alphas that it is given. Sets ``alphas_``.
        """
        values = scored(self.alphas_)
        best = choose(values, self.hs_, self.alphas_, rule, repeats)
        automatic = isinstance(self.alphas, str) and self.alphas == "auto"
        for _ in range(_EXTENSIONS):
            if not automatic or best[1] < len(self.alphas_) - 1:
                return values, best
            longer = (self.alphas_[-1] * np.geomspace(1.0, _FACTOR, _MORE + 1)).tolist()
            values = np.concatenate([values, scored(longer)[:, 1:]], axis=1)  # from the last alpha on
            self.alphas_ = self.alphas_ + longer[1:]
            best = choose(values, self.hs_, self.alphas_, rule, repeats)
        if best[1] == len(self.alphas_) - 1:
            warnings.warn(
                f"the choice is at the end of the grid: alpha = {self.alphas_[-1]:.3g}, the smallest of "
                f"alphas='auto' ({self.alphas_[0]:.3g} to {self.alphas_[-1]:.3g}): pass smaller alphas",
                UserWarning,
                stacklevel=4,
            )
        return values, best

    def _paths(self, search, task, ridges, alphas=None):
        """The fits to all samples for every ridge."""
        alphas = self.alphas_ if alphas is None else alphas
        with search.progress(len(ridges) * self.hs_.size * len(alphas), "fits") as advance:
            options = {"effort": self.effort, "verify": False, "advance": advance}
            return solve_paths(task, self.hs_, alphas, ridges, **options)

    def _scorer(self):
        """The scorer for ``scoring``, or None."""
        if self.scoring is None:
            return None
        if not isinstance(self.scoring, str) and not callable(self.scoring):
            raise ValueError(f"scoring must be the name of a scorer or a callable; got {self.scoring!r}")
        return check_scoring(self, scoring=self.scoring)

    def _settings(self):
        """The settings that are the same in every cell and fold."""
        given, seed = self._given(), self.random_state
        if not isinstance(seed, (Integral, type(None))):
            # A number, because folds in other processes would each get a copy of the generator.
            seed = int(check.check_random_state(seed).integers(2**31))
        return Settings.of(given, loss=self._loss, penalty=self._penalty(0), alpha=0.0, random_state=seed)

    def _penalty(self, h):
        return TrimmedL1(h, self.penalty_factor, groups=self.groups, q=self.q)

    def _total_gram(self, X, task):
        """The Gram matrix from which folds are subtracted, if there are soft cells of least squares."""
        problem = task.problem
        soft = any(alpha != "exact" for alpha in self.alphas_)
        single = problem.loss.constant_curvature and problem.penalty.norm.q is None
        if (
            not (soft and single)
            or task.problem.bounds is not None
            or X.shape[1] > ALL_COLUMNS
            or is_virtual(X)
        ):
            return None
        return TotalGram.of(X, problem.d, center=self.fit_intercept)

    def _scores(self, scorer, X, y, coefs, intercepts, test):
        """The scorer's value for each fit on the test samples."""
        fitted = (self._fitted(coef, intercept) for coef, intercept in zip(coefs, intercepts, strict=True))
        return [scorer(model, X[test], y[test]) for model in fitted]

    def _fitted(self, coef, intercept):
        """A copy with these coefficients, for a scorer to predict with from an array."""
        model = copy.copy(self)
        vars(model).pop("feature_names_in_", None)
        model.coef_, model.intercept_ = coef, intercept
        return model

    def _fit_choice(self, task):
        """Fit the chosen h and alpha to all samples, starting from the cell of the path."""
        i, j = self.best_index_
        chosen = self.path_.results[i][j]
        problem = task.problem.at(chosen.alpha).freeing(self.h_)
        task = replace(task, problem=problem, exact=self.chosen_alpha_ == "exact")
        if self.selection_l2_ == task.l2:  # otherwise a search with this ridge would change the features
            options = task.options | {"effort": self.effort}
            final = replace(task, start=task.coordinates(chosen.coef), options=options)
            chosen = _settled(chosen, final.solve(), self.tol * self.path_.objectives.max())
        if np.isnan(chosen.stationarity):  # cells of a path carry no certificate
            chosen = replace(chosen, stationarity=task.stationarity_of(chosen))
        self._take(chosen, task)
        self.entry_order_ = entry_over_path(features_in(self.path_.coefs[: i + 1, j], 1), self.entry_order_)


def _settled(cell, result, least_gain):
    """The cell of the path, or the later fit that starts from it if its objective is lower by ``least_gain``.

    A later fit with the same features is not used. So the choice is a cell of the path even where the loss
    has no minimum, as for separable classes, where each further fit ends at another point.
    """
    same_free = np.array_equal(cell.weights > 0, result.weights > 0)
    if same_free and np.array_equal(cell.coef != 0, result.coef != 0):
        return replace(cell, swap_optimal=result.swap_optimal)
    return result if result.objective < cell.objective - least_gain else cell


class TrimmedLassoCV(Regressor, SurfaceCV):
    r"""The trimmed lasso with h, alpha and l2 chosen by cross-validation or an information criterion.

    Parameters
    ----------
    hs : "auto", or sequence of int or fractions, default="auto"
        How many coefficients (or groups) carry no penalty. ``"auto"`` is
        :func:`~trimreg.selection.auto_hs`: from 0 to a sensible maximum, not every integer. The maximum is
        larger if there is a ridge term.
    alphas : "exact", "auto" or sequence, default="exact"
        ``"exact"`` chooses among best subsets, so only h is left to choose. ``"auto"`` is a grid of 21
        numbers, which goes on to smaller ones if the last is chosen. A sequence may hold numbers and
        ``"exact"``.
    l2s : None, "auto", number or sequence of numbers, default=None
        Ridge terms. ``"auto"`` is 0 and six numbers from 0.01 to 3, for columns of deviation one. For losses
        other than least squares these are multiplied by the curvature of the loss, and 0.001 takes the place
        of 0, because classes that can be separated have no fit without a ridge. The more coefficients are
        kept and the weaker the signal, the more a ridge helps: ``TrimmedLassoCV(hs=[10])`` predicts as well
        as ten features can. 0 leaves the coefficients unshrunk. None is ``"auto"`` for a choice by folds, and
        the least of its values with a ``criterion``. See Notes for how best subsets use several.
    cv : int, splitter or iterable, default=None
        The folds; None is 5. They are stratified for classifiers, and by events for survival times; they keep
        ``cv_groups`` together. ``RepeatedKFold`` averages the scores over several divisions of the samples;
        standard errors do not shrink with the repetitions.
    rule : {"paired", "min", "1se"}, default="paired"
        ``"min"`` is the best mean score. ``"1se"`` is the smallest h (then the largest alpha) within one
        standard error of it. ``"paired"`` is the best mean score among the lasso (h = 0) and best subsets
        (``"exact"``, or the largest alpha), unless another cell is better by more than the standard error of
        the paired differences over the folds; with ``alphas="exact"`` it is the same as ``"min"``. See
        :func:`~trimreg.selection.choose`.
    criterion : {None, "cv", "aic", "bic", "ebic", "gic"}, default=None
        None and ``"cv"`` choose by folds, the others by an information criterion on all samples.
    scoring : str or callable, default=None
        A scikit-learn scorer, greater is better. None is minus the mean loss of the test samples (minus the
        mean squared error for least squares).
    effort : {"low", "medium", "high"}, default="medium"
        How hard every fit searches for the best free set.
    fit_intercept, standardize : bool, default=True
    positive : bool, default=False
    lower, upper, penalty_factor, groups
        As in :class:`~trimreg.TrimmedLasso`.
    tol : float, default=1e-6
    n_jobs : int or None, default=None
        Number of folds to fit at the same time, with any joblib backend.
    verbose : int, default=0
        1 shows a progress bar.
    random_state : int, Generator or RandomState, optional

    Attributes
    ----------
    h_, alpha_ : int, float
        The choice; ``chosen_alpha_`` is the element of ``alphas_``, which may be ``"exact"``.
    l2_ : float
        The chosen ridge term. The following paths are those of this l2.
    selection_l2_ : float
        The ridge term with which the features were selected.
    hs_, alphas_, l2s_ : ndarray of int, list, ndarray
        The grid.
    score_path_ : ndarray of shape (n_hs, n_alphas, n_folds)
        Test scores, greater is better; only without ``criterion``.
    l2_score_path_ : ndarray of shape (n_hs, n_alphas, n_l2s, n_folds)
        Test scores for every l2, with features selected at ``selection_l2_``.
    mse_path_ : ndarray of shape (n_hs, n_alphas, n_folds)
        Mean squared errors of the test samples; only without ``scoring`` and ``criterion``.
    criterion_path_ : ndarray of shape (n_hs, n_alphas)
        The criterion, smaller is better; only with ``criterion``. ``l2_criterion_path_``, of shape
        (n_hs, n_alphas, n_l2s), has it for every l2.
    coef_path_ : ndarray of shape (n_hs, n_alphas, n_features) or (n_hs, n_alphas, n_outputs, n_features)
        Coefficients of the fits to all samples.
    path_ : TrimmedPath
        Those fits.
    best_index_ : tuple of int
        The indices of the choice in ``hs_`` and ``alphas_``.
    coef_, intercept_, support_, result_, ...
        The model with that h and alpha, fitted to all samples, as in :class:`~trimreg.TrimmedLasso`.
    entry_order_ : ndarray of int of shape (n_features,)
        The step at which a feature enters as h grows, for the chosen alpha. Forward selection orders features
        that enter together. 0 is never penalized, -1 is not in the model.

    Notes
    -----
    A ridge that is strong enough to select features that predict well together shrinks the coefficients too
    much. So folds choose the two apart if alpha is ``"exact"`` and there are several ``l2s``. Best subsets
    are searched with the l2 nearest to the curvature of the loss (1 for least squares and columns of
    deviation one), and without a ridge if 0 is among the l2s. Every l2 is then fitted to these features. The
    fit to any h features is a local minimum for ``alpha="exact"``, so certificates hold for ``l2_``. But with
    ``l2_`` alone other features may have a lower objective. With a criterion, or with a number for alpha, one
    l2 does both.

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
        self, hs="auto", alphas="exact", l2s=None, cv=None, rule="paired", criterion=None, scoring=None,
        effort="medium", fit_intercept=True, standardize=True, positive=False, lower=None, upper=None,
        penalty_factor=None, groups=None, tol=1e-6, n_jobs=None, verbose=0, random_state=None,
    ):  # fmt: skip
        self._store(locals())

    _loss = "quadratic"

    @property
    def mse_path_(self) -> np.ndarray:
        if not is_cv(self.criterion) or self.scoring is not None:
            raise AttributeError("mse_path_ exists only without criterion and without scoring")
        return -self.score_path_


class TrimmedLogisticRegressionCV(SurfaceCV, TrimmedLogisticRegression):
    r"""Trimmed logistic regression, binary or multinomial, with h, alpha and l2 chosen from the data.

    Parameters
    ----------
    hs, alphas, l2s, cv, rule, criterion, scoring
        As in :class:`TrimmedLassoCV`.
    class_weight : None, "balanced" or dict, default=None
        As in :class:`~trimreg.TrimmedLogisticRegression`.
    effort, fit_intercept, standardize, positive, lower, upper, penalty_factor, groups, tol, n_jobs
        As in :class:`TrimmedLassoCV`.
    verbose, random_state
        As in :class:`TrimmedLassoCV`.

    Attributes
    ----------
    h_, alpha_, chosen_alpha_, l2_, selection_l2_, hs_, alphas_, l2s_, score_path_, l2_score_path_
        As in :class:`TrimmedLassoCV`.
    criterion_path_, l2_criterion_path_, coef_path_, path_, best_index_
        As in :class:`TrimmedLassoCV`.
    classes_ : ndarray
    coef_, intercept_, support_, entry_order_, result_, ...
        The model with that h and alpha, as in :class:`~trimreg.TrimmedLogisticRegression`.

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
        self, hs="auto", alphas="exact", l2s=None, cv=None, rule="paired", criterion=None, scoring=None,
        class_weight=None, effort="medium", fit_intercept=True, standardize=True, positive=False, lower=None,
        upper=None, penalty_factor=None, groups=None, tol=1e-6, n_jobs=None, verbose=0, random_state=None,
    ):  # fmt: skip
        self._store(locals())

    h = "auto"  # a parameter of the estimator without CV; the choice is h_

    def _keep(self, task, details):
        super()._keep(task, details)
        if self.path_.coefs.ndim == 4:
            self.path_ = self.path_.mapped(self._centered)
            self.coef_path_ = self.path_.coefs

    def _centered(self, result):
        return centered(result, *self._free(result.weights))

    def _fitted(self, coef, intercept):
        return super()._fitted(np.atleast_2d(coef), np.atleast_1d(intercept))


class MEstimatorCV(Regressor, SurfaceCV):
    r"""A trimmed model with any loss, with h, alpha and l2 chosen from the data.

    Parameters
    ----------
    loss : str or loss object, default="quadratic"
        See :mod:`trimreg.losses`.
    hs, alphas, l2s, cv, rule, criterion, scoring, effort, fit_intercept, standardize, positive, lower, upper
        As in :class:`TrimmedLassoCV`.
    q : 2 or inf, default=2
        The norm of a group.
    penalty_factor, groups, tol, n_jobs, verbose, random_state
        As in :class:`TrimmedLassoCV`.

    Attributes
    ----------
    h_, alpha_, chosen_alpha_, l2_, selection_l2_, hs_, alphas_, l2s_, score_path_, l2_score_path_
        As in :class:`TrimmedLassoCV`.
    criterion_path_, l2_criterion_path_, coef_path_, path_, best_index_
        As in :class:`TrimmedLassoCV`.
    coef_, intercept_, support_, entry_order_, result_, ...
        The model with that h and alpha, as in :class:`~trimreg.MEstimator`.

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
        self, loss="quadratic", hs="auto", alphas="exact", l2s=None, cv=None, rule="paired", criterion=None,
        scoring=None, effort="medium", fit_intercept=True, standardize=True, positive=False, lower=None,
        upper=None, penalty_factor=None, groups=None, q=2, tol=1e-6, n_jobs=None, verbose=0,
        random_state=None,
    ):  # fmt: skip
        self._store(locals())

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        loss = LOSSES.get(self.loss) if isinstance(self.loss, str) else self.loss
        tags.target_tags.positive_only = getattr(loss, "positive_target", False)
        return tags

    @property
    def _loss(self):
        return self.loss

    def _mean(self, eta):
        return get_loss(self.loss).inverse_link(eta)
