"""Estimators that choose h and alpha by themselves."""

from __future__ import annotations

import numpy as np

from ..estimators.models.base import Regressor
from ..estimators.models.logistic import TrimmedLogisticRegression, centred
from ..losses import LOSSES, get_loss
from .search import SurfaceCV

_PARAMETERS = """
    hs : "auto", or sequence of int or fractions, default="auto"
        How many coefficients (or groups) may go free. ``"auto"`` is :func:`~trimreg.selection.auto_hs`: 0
        to a sensible maximum, not every integer.
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
    effort : {"low", "medium", "high"}, default="medium"
        How hard every fit looks for the best free set.
    fit_intercept, standardize : bool, default=True
    positive : bool, default=False
    penalty_factor, groups
        As in :class:`~trimreg.TrimmedLasso`.
    tol : float, default=1e-6
    n_jobs : int or None, default=None
        Folds in parallel, by joblib: any of its backends will do.
    verbose : int, default=0
        1 shows a progress bar.
    random_state : int, Generator or RandomState, optional"""
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
    entry_order_ : ndarray of int of shape (n_features,)
        The step at which a feature enters as h grows, for the alpha chosen; forward selection orders those
        that enter together. 0 is never penalized, -1 not in the model."""


class TrimmedLassoCV(Regressor, SurfaceCV):
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

    _loss = "quadratic"

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

    h = "auto"  # what the estimator without CV has for a parameter; see h_

    def _keep(self, task, details):
        super()._keep(task, details)
        if self.path_.coefs.ndim == 4:
            self.path_ = self.path_.mapped(self._centred)
            self.coef_path_ = self.path_.coefs

    def _centred(self, result):
        weights = result.weights if self._groups is None else result.weights[self._groups]
        return centred(result, weights == 0)

    def _fitted(self, coef, intercept):
        return super()._fitted(np.atleast_2d(coef), np.atleast_1d(intercept))


class MEstimatorCV(Regressor, SurfaceCV):
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
