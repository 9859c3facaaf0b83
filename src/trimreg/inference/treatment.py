"""Effects of a few variables, with controls selected from many."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from ..designs.convert import to_host
from ..estimators import validation as check
from ..estimators.summary import Summary
from ..losses import get_loss
from .base import (
    COVARIANCES,
    Inference,
    check_clusters,
    check_columns,
    check_criterion,
    dense,
    selected,
    tail_headers,
)
from .refits import GIVEN_SELECTION, fit_columns


class DoubleSelection(Inference):
    r"""Coefficients of a few treatments, which are never penalized, with valid standard errors.

    Controls are selected twice: those that predict y beside the treatments (which have ``penalty_factor=0``),
    and those that predict a treatment. A fit without a penalty to the treatments and all of these controls
    gives the effects. A control that one of the two selections misses, because its effect there is small, is
    not missed by the other unless both effects are small, so that its omission hardly biases the result.
    The errors are valid for the treatments though the same data selected the controls.

    Treatments are predicted by least squares, whatever the loss is. (Belloni, Chernozhukov and Wei weight the
    samples by the curvature of the loss there; in our simulations that selected too many controls.)

    Parameters
    ----------
    treatments : array-like of int, str or bool
        The columns of X whose effects are asked for, by index or name, or as a mask.
    loss : {"quadratic", "logistic", "poisson", "gamma", "cox"} or such a loss object, default="quadratic"
    outcome_model, treatment_model : estimator, optional
        Select controls for y and for a treatment, with ``coef_``. None is the best subset of a size
        chosen by ``criterion``. An ``outcome_model`` of this library gets ``penalty_factor=0`` for the
        treatments; any other is fitted to the controls alone.
    criterion : {"cv", "aic", "bic", "ebic", "gic"}, default="ebic"
        Of the default models.
    covariance : {"robust", "model"}, default="robust"
        See :func:`trimreg.inference.refit`; with ``clusters`` in ``fit`` the covariance is the clustered one.
    n_jobs : int, optional
        Number of selections at the same time, by joblib.
    verbose : int, default=0
        1 shows progress on standard error.
    random_state : int, Generator or RandomState, default=0

    Attributes
    ----------
    coef_, standard_errors_, pvalues_ : ndarray of shape (n_treatments,)
    covariance_ : ndarray of shape (n_treatments, n_treatments)
    treatments_ : ndarray of int
    controls_ : ndarray of int
        The columns of the controls that are selected at least once.
    outcome_controls_, treatment_controls_ : ndarray of int
        Those that predict y, and those that predict a treatment.
    refit_ : Refit
        The fit to treatments and controls.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only if X had string column names.

    References
    ----------
    Belloni, Chernozhukov and Hansen, Inference on treatment effects after selection among high-dimensional
    controls, Review of Economic Studies 81 (2014). Belloni, Chernozhukov and Wei, Post-selection inference
    for generalized linear models with many controls, Journal of Business and Economic Statistics 34 (2016).

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.inference import DoubleSelection
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 300))
    >>> X[:, 0] += X[:, 1]
    >>> y = 0.5 * X[:, 0] + X[:, 1] + rng.standard_normal(200)
    >>> effect = DoubleSelection([0]).fit(X, y)
    >>> effect.controls_, effect.coef_.round(1), effect.standard_errors_.round(2)
    (array([1]), array([0.5]), array([0.08]))
    >>> low, high = effect.interval(0.95)
    >>> bool(low[0] < 0.5 < high[0])
    True
    """

    def __init__(
        self, treatments: Any = (0,), loss: Any = "quadratic", outcome_model: Any = None,
        treatment_model: Any = None, criterion: str = "ebic", covariance: str = "robust",
        n_jobs: int | None = None, verbose: int = 0, random_state: Any = 0,
    ) -> None:  # fmt: skip
        self._store(locals())

    def fit(self, X: Any, y: Any, clusters: ArrayLike | None = None) -> DoubleSelection:
        """Select the controls and estimate the effects.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Treatments and controls.
        y : array-like of shape (n_samples,)
            Numbers, two classes, or times and events, as the estimator with that loss takes it.
        clusters : array-like of shape (n_samples,), optional
            Labels of groups of dependent samples.

        Returns
        -------
        self
        """
        check.check_choice("covariance", self.covariance, COVARIANCES)
        check_criterion(self.criterion)
        rng = check.check_random_state(self.random_state)
        with check.all_or_nothing(self):
            given = X
            X, target, loss = self._samples(X, y)
            y = np.asarray(to_host(y))
            groups = None if clusters is None else check_clusters(clusters, target.shape[0])
            treatments = check_columns("treatments", self.treatments, given, X.shape[1])
            if not 0 < treatments.size < X.shape[1]:
                raise ValueError(
                    f"treatments must be some of the n_features={X.shape[1]} columns, and not all"
                )
            others = np.setdiff1d(np.arange(X.shape[1]), treatments)
            seeds: Any = rng.integers(2**31, size=treatments.size + 1)
            outcome = self._for_outcome(X, y, target, loss, treatments, others, seeds[-1])
            tasks = [
                (self.treatment_model, X[:, others], dense(X, [j])[:, 0], self.criterion, seed)
                for j, seed in zip(treatments, seeds, strict=False)
            ]
            found = [others[columns] for columns in self._in_parallel(_for_treatment, tasks, "treatments")]
            self.treatments_, self.outcome_controls_ = treatments, outcome
            self.treatment_controls_ = np.unique(np.concatenate(found))
            self.controls_ = np.union1d(outcome, self.treatment_controls_)
            columns = np.concatenate([treatments, self.controls_])
            names = tuple(self._names[columns])
            self.refit_ = fit_columns(X, target, loss, columns, self.covariance, groups, names)
            k = treatments.size
            self.coef_, self.covariance_ = self.refit_.coef[:k], self.refit_.covariance[:k, :k]
            self.standard_errors_, self.pvalues_ = self.refit_.standard_errors[:k], self.refit_.pvalues[:k]
            if not np.isfinite(self.standard_errors_).all():
                raise ValueError(
                    f"X must determine the effects beside {columns.size - k} controls; these have collinear "
                    "columns, separate the classes or are too many"
                )
        return self

    def _for_outcome(self, X, y, target, loss, treatments, others, seed):
        """The controls that predict y."""
        model, options = self.outcome_model, {"criterion": self.criterion}
        if model is None or "penalty_factor" in model.get_params():
            factor = np.ones(X.shape[1])
            factor[treatments] = 0.0
            chosen, _ = selected(model, X, y, target, loss, seed, factor=factor, **options)
        else:
            chosen = others[selected(model, X[:, others], y, target, loss, seed, **options)[0]]
        return np.setdiff1d(chosen, treatments)

    def interval(self, confidence: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Intervals of the effects of the treatments.

        Parameters
        ----------
        confidence : float in (0, 1), default=0.95

        Returns
        -------
        low, high : ndarray of shape (n_treatments,)
        """
        check_is_fitted(self)
        low, high = self.refit_.interval(confidence)
        return low[: self.coef_.size], high[: self.coef_.size]

    def summary(self, confidence: float = 0.95, max_rows: int | None = 50) -> Summary:
        """A table with one row per treatment, and below these the controls, with a warning.

        The errors of the controls are given the selection, and too small.
        """
        check_is_fitted(self)
        fit, k = self.refit_, self.coef_.size
        low, high = fit.interval(confidence)
        columns: dict[str, Any] = {"coef": fit.coef, "std error": fit.standard_errors, "p": fit.pvalues}
        columns |= dict(zip(tail_headers(confidence), (low, high), strict=True))
        columns["errors"] = ["valid"] * k + ["given the selection"] * (fit.coef.size - k)
        facts = {
            "treatments": k, "controls": f"{self.controls_.size} of {self.n_features_in_ - k}",
            "their errors": GIVEN_SELECTION,  # 80 characters: more would be cut
        }  # fmt: skip
        return Summary("DoubleSelection", facts, fit.names, columns, max_rows=max_rows)


def _for_treatment(model, X, treatment, criterion, seed):
    """The controls that predict a treatment."""
    loss = get_loss("quadratic")
    return selected(model, X, treatment, treatment, loss, seed, criterion=criterion)[0]
