"""What the estimators share: checked input, a call of the solver, fitted attributes, a summary."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from ...designs.convert import is_virtual, to_host
from ...penalties import TrimmedL1
from ...penalties.norms import partition
from ...solvers import EFFORTS
from .. import validation as check
from ..order import fit_details
from ..summary import Summary, fit_facts, summarize
from ..task import Data, Settings, check_data, minimize


class Regressor(RegressorMixin):
    """Scores by the share of the variance explained, wherever X and y lie."""

    def score(self, X, y, sample_weight=None):
        """The coefficient of determination of the predictions, :func:`sklearn.metrics.r2_score`.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        float
        """
        return super().score(X, to_host(y), to_host(sample_weight))


class Classifier(ClassifierMixin):
    """Scores by the share of right classes, wherever X and y lie."""

    def score(self, X, y, sample_weight=None):
        """The share of samples whose class is predicted, :func:`sklearn.metrics.accuracy_score`.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        float
        """
        return super().score(X, to_host(y), to_host(sample_weight))


class LinearEstimator(BaseEstimator):
    """A linear predictor fitted by :func:`trimreg.solve`. A subclass says with what."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # -- what a subclass says ---------------------------------------------------------------------

    def _settings(self) -> Settings:
        """The settings of :func:`solve` that the constructor's parameters stand for."""
        raise NotImplementedError

    def _target(self, y, sample_weight):
        """The target and weights that the loss takes, from what the user passes."""
        return y, sample_weight

    def _keep(self, task, details) -> None:
        """Further fitted attributes."""

    def _mean(self, eta):
        """The mean of y that the linear predictor stands for."""
        return eta

    def _output_names(self):
        """Labels of several outputs, or None."""
        return None

    # -- fit ---------------------------------------------------------------------------------------

    def fit(self, X, y, sample_weight=None):
        """Fit the model.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            In memory; or on disk (:class:`~trimreg.OnDisk`), on a cluster (a Dask array or DataFrame) or on a
            GPU (a torch tensor, a CuPy or JAX array), where it stays. Coefficients are NumPy arrays.
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        self
        """
        check.check_flag("warm_start", self.warm_start)
        with check.all_or_nothing(self):
            X = X if hasattr(X, "shape") else check.check_real("X", X)
            check.check_features(self, X)  # names and number; solve checks the rest
            y, sample_weight = self._target(to_host(y), to_host(sample_weight))
            settings = self._settings()
            data = check_data(X, y, sample_weight, settings)
            self._take(*minimize(data, settings, self._start(data, settings)))
        return self

    def _take(self, result, task) -> None:
        """The fitted attributes, from a result and its problem."""
        details = fit_details(task, result)
        self.result_ = result
        self.coef_ = result.coef
        self.intercept_ = result.intercept
        self.trim_weights_ = result.weights
        self.support_ = np.flatnonzero(np.atleast_2d(result.coef).any(axis=0))
        self.objective_ = result.objective
        self.stationarity_ = result.stationarity
        self.alpha_ = result.alpha
        self.n_iter_ = result.n_iter
        self.outliers_ = result.outliers
        self.entry_order_ = details.order
        self.feature_deviation_ = details.deviation
        self._groups, self._group_names = groups_of(task.problem.penalty, self.n_features_in_)
        self.loss_name_, self.h_ = task.problem.loss.name, task.problem.penalty.n_free
        self._n_samples = task.problem.y.shape[0]
        self._keep(task, details)

    def _start(self, data: Data, settings: Settings) -> np.ndarray | None:
        """The coefficients of the last fit, if a warm start is asked for and they fit the data."""
        if not self.warm_start or not hasattr(self, "result_"):
            return None
        start, loss = self.result_.coef, settings.loss
        outputs = (loss.bound(data.y, data.d).n_outputs,) if loss.multi_output else ()
        return start if start.shape == (*outputs, self.n_features_in_) else None

    def problem(self, X: Any, y: Any, sample_weight: Any = None) -> dict[str, Any]:
        """The problem that this fit solved, with its solution, as arguments of :mod:`trimreg.diagnostics`.

        Parameters
        ----------
        X, y, sample_weight
            The data that the model was fitted to.

        Examples
        --------
        >>> import numpy as np
        >>> from trimreg import TrimmedLasso
        >>> from trimreg.diagnostics import stationarity
        >>> X = np.arange(12.0).reshape(6, 2) ** 2 % 7
        >>> model = TrimmedLasso(h=1).fit(X, X[:, 0])
        >>> stationarity(**model.problem(X, X[:, 0])) < 1e-12
        True
        """
        target, weight = self._target(y, sample_weight)
        settings = self._settings()
        penalty = copy.copy(settings.penalty)
        if self.h_ is not None:
            penalty.h = self.h_
        return {
            "X": X,
            "y": np.asarray(target),
            "coef": self.result_.coef,
            "intercept": self.result_.intercept,
            "penalty": penalty,
            "alpha": self.alpha_,
            "loss": settings.loss,
            "sample_weight": weight,
            **{name: getattr(settings, name) for name in ("fit_intercept", "standardize", "positive")},
        }

    # -- predictions ---------------------------------------------------------------------------------

    def _predictor(self, X):
        """The linear predictor, of shape (n_samples,) or (n_samples, n_outputs)."""
        check_is_fitted(self)
        matrix = check.check_matrix(X)
        check.check_features(self, X, reset=False)
        intercept = np.asarray(self.intercept_, dtype=self.coef_.dtype)
        if is_virtual(matrix):
            return check.virtual_product(matrix, self.coef_, intercept)
        return matrix @ self.coef_.T + intercept

    def predict(self, X):
        """Predicted means of the target.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_outputs)
        """
        return self._mean(self._predictor(X))

    # -- summary -------------------------------------------------------------------------------------

    def summary(self, max_rows=50) -> Summary:
        """One table of the fitted model: a row a variable that is in it.

        Parameters
        ----------
        max_rows : int or None, default=50
            How many rows are drawn; None draws all.

        Returns
        -------
        Summary
            Prints as text; ``to_html``, ``to_latex``, ``to_frame`` and ``to_dict`` give the rest. Names,
            coefficients, coefficients of columns of deviation one, the step at which forward selection takes
            the variable (:mod:`trimreg.estimators.order`), and whether it is free, penalized or always in.
        """
        check_is_fitted(self)
        weights = self.trim_weights_ if self._groups is None else self.trim_weights_[self._groups]
        coef = np.asarray(self.coef_, dtype=float)
        coef = coef.ravel() if coef.shape[0] == 1 and coef.ndim == 2 else coef
        intercept = np.asarray(self.intercept_, dtype=float)
        outputs = self._output_names() if coef.ndim == 2 else None
        result = self.result_
        facts = fit_facts(
            loss=self.loss_name_,
            n_samples=self._n_samples,
            h=self.h_,
            n_features=self.n_features_in_,
            alpha=self.alpha_,
            objective=self.objective_,
            stationarity=self.stationarity_,
            intercept=intercept.item() if intercept.size == 1 else intercept,
            converged=result.converged,
            outputs=outputs,
            swap_optimal=result.swap_optimal,
            outliers=len(self.outliers_) or None,
        )
        with np.errstate(over="ignore"):
            standardized = coef * self.feature_deviation_
        return summarize(
            getattr(self, "feature_names_in_", None),
            coef.T,
            standardized.T,
            self.entry_order_,
            weights,
            always=self.entry_order_ == 0,
            groups=self._group_names,
            outputs=outputs,
            title=type(self).__name__,
            facts=facts,
            max_rows=max_rows,
        )


class TrimmedEstimator(LinearEstimator):
    """A model whose h largest coefficients (or groups) carry no penalty. A subclass says with which loss."""

    def __init__(
        self,
        h=None,
        alpha="exact",
        solver="mm",
        effort="medium",
        fit_intercept=True,
        standardize=True,
        positive=False,
        penalty_factor=None,
        groups=None,
        n_outliers=0,
        warm_start=False,
        tol=1e-6,
        max_iter=None,
        random_state=None,
    ):
        self._store(locals())

    def _store(self, parameters):
        """Keep the arguments of a constructor under their names, as scikit-learn wants them: untouched."""
        for name in self._get_param_names():
            setattr(self, name, parameters[name])

    def _settings(self):
        check.check_choice("effort", self.effort, EFFORTS)
        given = self.get_params(deep=False)
        penalty = TrimmedL1(self.h, self.penalty_factor, groups=self.groups, q=given.get("q", 2))
        options = {"effort": self.effort} if self.solver == "mm" else {}
        return Settings.of(given, loss=self._loss, penalty=penalty, options=options)


def groups_of(penalty, n_features: int):
    """The number of the group of every feature, and the user's name for it; None twice without groups.

    Groups given as lists of features have no names but their numbers.

    Examples
    --------
    >>> from trimreg import TrimmedL1
    >>> from trimreg.estimators.models.base import groups_of
    >>> groups_of(TrimmedL1(1, groups=["b", "a", "b"]), 3)
    (array([1, 0, 1]), ['b', 'a', 'b'])
    """
    groups = getattr(penalty, "groups", None)
    if groups is None:
        return None, None
    label, names = partition(groups, n_features), list(groups)
    are_lists = np.iterable(names[0]) and not isinstance(names[0], (str, bytes))
    return label, label.tolist() if are_lists else names
