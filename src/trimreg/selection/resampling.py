"""What stability selection and the bootstrap share: any estimator, on X wherever it lies."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import check_array, column_or_1d, has_fit_parameter, validate_data

from ..designs.convert import is_far, to_host
from ..estimators import TrimmedLasso
from ..estimators import validation as check
from ..estimators.models.base import LinearEstimator


def checked_data(holder, estimator, X, y):
    """X and y, checked, for fits of ``estimator``; the names and number of features go to ``holder``.

    A far X stays where it is, and is for estimators of this library alone.
    """
    y = to_host(y)
    if not isinstance(estimator, LinearEstimator):
        X = check.check_near(X, type(estimator).__name__, "take an estimator of this library")
    if not is_far(X):
        X, y = validate_data(
            holder, to_host(X), y, accept_sparse="csr", dtype=[np.float64, np.float32], multi_output=True
        )
    else:
        check.check_features(holder, X)
        X = check.check_matrix(X)
        y = check_array(y, ensure_2d=False, dtype=None, input_name="y")
        if y.shape[0] != X.shape[0]:
            raise ValueError(f"y must have an entry for each of the {X.shape[0]} samples; got {y.shape[0]}")
    return X, column_or_1d(y, warn=True) if y.ndim == 2 and y.shape[1] == 1 else y


class OverAnEstimator:
    """What is fitted again and again: ``estimator``, by default a :class:`TrimmedLasso`. To be mixed in."""

    def _base(self):
        if self.estimator is None:
            return TrimmedLasso()
        if isinstance(self.estimator, type) or not hasattr(self.estimator, "fit"):
            raise TypeError(f"estimator must be an estimator, which has a method fit; got {self.estimator!r}")
        return self.estimator

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = get_tags(self._base()).input_tags.sparse
        return tags


def weight_name(estimator) -> str:
    """The name under which ``fit`` takes sample weights: a pipeline hands them to its last step.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from trimreg import TrimmedLasso
    >>> from trimreg.selection.resampling import weight_name
    >>> weight_name(make_pipeline(TrimmedLasso()))
    'trimmedlasso__sample_weight'
    """
    model, prefix = estimator, ""
    if isinstance(estimator, Pipeline):
        prefix, model = estimator.steps[-1]
        prefix += "__"
    if not has_fit_parameter(model, "sample_weight"):
        raise ValueError(f"estimator must take sample weights in fit, and {type(model).__name__} takes none")
    return f"{prefix}sample_weight"


def seeded(model, seed):
    """The model, with a seed for every ``random_state`` of its that is None."""
    unset = [
        key
        for key, value in model.get_params().items()
        if key.split("__")[-1] == "random_state" and value is None
    ]
    return model.set_params(**dict.fromkeys(unset, int(seed)))


def coefficients(fitted, n_features):
    """The coefficients and the intercept of a fitted estimator: of a single output a vector and a number.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> from trimreg.selection.resampling import coefficients
    >>> coefficients(SimpleNamespace(coef_=np.array([[0.0, 1.0]]), intercept_=np.array([2.0])), 2)
    (array([0., 1.]), 2.0)
    """
    model = fitted[-1] if isinstance(fitted, Pipeline) else fitted
    coef = getattr(model, "coef_", None)
    if coef is None:
        raise ValueError(f"estimator must have coef_ once it is fitted; {type(model).__name__} has none")
    coef = coef.toarray() if sp.issparse(coef) else np.asarray(coef)
    if coef.ndim == 0 or coef.shape[-1] != n_features:
        raise ValueError(
            f"estimator must have a coefficient for each of the {n_features} features; "
            f"coef_ of {type(model).__name__} has shape {coef.shape}"
        )
    intercept = np.asarray(getattr(model, "intercept_", 0.0), dtype=float)
    if coef.ndim == 2 and coef.shape[0] == 1:
        coef = coef[0]
    return coef, float(intercept.ravel()[0]) if coef.ndim == 1 else np.broadcast_to(intercept, coef.shape[:1])
