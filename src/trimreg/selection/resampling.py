"""Shared by stability selection and the bootstrap: fits of any estimator to resampled data."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.validation import check_array, column_or_1d, has_fit_parameter, validate_data

from ..designs.convert import is_far, stays_in_process, to_host
from ..estimators import TrimmedLasso
from ..estimators import validation as check
from ..estimators.models.base import LinearEstimator
from .search import parallel


class OverAnEstimator:
    """Mixin of classes that fit ``estimator`` many times; None is a :class:`TrimmedLasso`."""

    estimator: Any
    n_jobs: int | None
    verbose: int

    def _store(self, parameters):
        for name in self._get_param_names():  # type: ignore[attr-defined]
            setattr(self, name, parameters[name])

    def _in_parallel(self, function, tasks, label, X):
        """``[function(*task) for task in tasks]``; in threads if X cannot leave this process."""
        jobs = {"n_jobs": self.n_jobs, "verbose": self.verbose, "shared": stays_in_process(X)}
        return parallel(function, tasks, label=label, **jobs)

    def _base(self):
        if self.estimator is None:
            return TrimmedLasso()
        if isinstance(self.estimator, type) or not hasattr(self.estimator, "fit"):
            raise TypeError(f"estimator must be an object with a method fit; got {self.estimator!r}")
        return self.estimator

    def get_metadata_routing(self) -> MetadataRouter:
        """Which arrays the estimator requests for ``fit``; see scikit-learn's guide to metadata routing.

        Returns
        -------
        MetadataRouter
        """
        router = MetadataRouter(owner=self).add_self_request(self)
        fit = MethodMapping().add(caller="fit", callee="fit")
        return router.add(estimator=self._base(), method_mapping=fit)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.target_tags.required = True
        tags.input_tags.sparse = get_tags(self._base()).input_tags.sparse
        return tags

    def _checked(self, estimator, X, y):
        """X and y, checked. X outside memory stays where it is, and needs an estimator of this library."""
        y = to_host(y)
        if not isinstance(estimator, LinearEstimator):
            X = check.check_near(X, type(estimator).__name__, "take an estimator of this library")
        for name, value in (("X", X), ("y", y)):
            check.check_container(name, value)
        if not is_far(X):
            check.check_matrix(X)
            try:
                X, y = validate_data(
                    self,
                    to_host(X),
                    y,
                    accept_sparse="csr",
                    dtype=[np.float64, np.float32],
                    multi_output=True,
                )
            except ValueError as error:  # it does not say which of the two
                raise ValueError(
                    f"X and y must be arrays of numbers with one row per sample: {error}"
                ) from None
        else:
            check.check_features(self, X)
            X = check.check_matrix(X)
            y = check_array(y, ensure_2d=False, dtype=None, input_name="y")
            if y.shape[0] != X.shape[0]:
                raise ValueError(f"y must have one entry per sample, {X.shape[0]} in all; got {y.shape[0]}")
        return X, column_or_1d(y, warn=True) if y.ndim == 2 and y.shape[1] == 1 else y


def per_sample(fit_params: dict[str, Any], n_samples: int) -> dict[str, np.ndarray]:
    """The further arguments of ``fit`` as arrays with one entry per sample, without those that are None."""
    arrays = {name: np.asarray(to_host(value)) for name, value in fit_params.items() if value is not None}
    for name, value in arrays.items():
        if value.shape[:1] != (n_samples,):
            raise ValueError(f"{name} must have one entry per sample, {n_samples} in all; got {value.shape}")
    return arrays


def weight_name(estimator: Any) -> str:
    """The name under which ``fit`` takes sample weights; in a pipeline it is that of the last step."""
    model, prefix = estimator, ""
    if isinstance(estimator, Pipeline):
        prefix, model = estimator.steps[-1]
        prefix += "__"
    if not has_fit_parameter(model, "sample_weight"):
        raise ValueError(f"estimator must take sample_weight in fit; {type(model).__name__} does not")
    return f"{prefix}sample_weight"


def is_survival(estimator: Any) -> bool:
    """Whether the estimator, or the last step of the pipeline, is a Cox model of this library."""
    model = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator
    loss = getattr(model, "_loss", getattr(model, "loss", None))
    return isinstance(model, LinearEstimator) and getattr(loss, "name", loss) == "cox"


def seeded(model: Any, seed: int) -> Any:
    """The model, with every ``random_state`` that is None set to the seed."""
    seeds = {key: value for key, value in model.get_params().items() if key.split("__")[-1] == "random_state"}
    return model.set_params(**{key: int(seed) for key, value in seeds.items() if value is None})


def coefficients(fitted: Any, n_features: int) -> tuple[np.ndarray, Any]:
    """The coefficients and the intercept of a fitted estimator; a vector and a number for a single output."""
    model = fitted[-1] if isinstance(fitted, Pipeline) else fitted
    coef = getattr(model, "coef_", None)
    if coef is None:
        raise ValueError(f"estimator must have coef_ after fit; {type(model).__name__} has none")
    coef = coef.toarray() if sp.issparse(coef) else np.asarray(coef)
    if coef.ndim == 0 or coef.shape[-1] != n_features:
        raise ValueError(
            f"estimator must have one coefficient per feature, {n_features} in all; "
            f"coef_ of {type(model).__name__} has shape {coef.shape}"
        )
    intercept = np.asarray(getattr(model, "intercept_", 0.0), dtype=float)
    if coef.ndim == 2 and coef.shape[0] == 1:
        coef = coef[0]
    return coef, float(intercept.ravel()[0]) if coef.ndim == 1 else np.broadcast_to(intercept, coef.shape[:1])
