"""What the estimators share: checked input, a call of :func:`solve`, fitted attributes."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from . import validation as check
from .solve import solve


class LinearEstimator(RegressorMixin, BaseEstimator):
    """A linear predictor fitted by :func:`trimreg.solve`. A subclass says with what."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _arguments(self) -> dict:
        """The arguments of :func:`solve` that the constructor's parameters stand for."""
        raise NotImplementedError

    def fit(self, X, y, sample_weight=None):
        """Fit the model.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        self
        """
        arguments = self._arguments()
        check.check_flag("warm_start", self.warm_start)
        X = X if hasattr(X, "shape") else check.check_real("X", X)
        validate_data(self, X, skip_check_array=True)  # names and number of features; solve checks the rest
        theta0 = getattr(self, "coef_", None) if self.warm_start else None
        if theta0 is not None and theta0.size != self.n_features_in_:
            theta0 = None
        result = solve(X, y, sample_weight=sample_weight, theta0=theta0, **arguments)
        self.result_ = result
        self.coef_ = result.coef
        self.intercept_ = result.intercept
        self.trim_weights_ = result.weights
        self.support_ = np.flatnonzero(result.coef)
        self.objective_ = result.objective
        self.stationarity_ = result.stationarity
        self.alpha_ = result.alpha
        self.n_iter_ = result.n_iter
        return self

    def _mean(self, eta):
        """The mean of y that the linear predictor stands for."""
        return eta

    def predict(self, X):
        """Predicted means of the target.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        matrix = check.check_matrix(X)
        validate_data(self, X, skip_check_array=True, reset=False)
        return self._mean(matrix @ self.coef_ + self.coef_.dtype.type(self.intercept_))
