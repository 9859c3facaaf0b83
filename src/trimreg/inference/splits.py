"""Tests and intervals by repeated splits of the samples."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import t as student
from sklearn.utils.validation import check_is_fitted

from ..designs.convert import to_host
from ..estimators import validation as check
from ..estimators.summary import Summary
from ..estimators.survival import strata_and_events
from ..selection.stability import complementary_pairs
from .base import COVARIANCES, Selector, check_share, selected, tail_headers
from .pvalues import adaptive_quantile, aggregated_intervals, dependent_bh, quantile_counts
from .refits import fit_columns

CONTROLS = ("fwer", "fdr")


class MultiSplit(Selector):
    r"""Test features on half of the samples after a selection on the other half, for many random halves.

    For split b, features :math:`S_b` are selected on one half. The other half gives Wald's p-values of a fit
    without a penalty (:func:`trimreg.inference.refit`), times :math:`|S_b|`, and 1 for features that are not
    in :math:`S_b`. :func:`trimreg.inference.adaptive_quantile` makes one p-value per feature of these. The
    probability that any feature is kept by mistake is at most q if all features with an effect are in every
    :math:`S_b`. With ``control="fdr"``, q bounds the expected share of mistakes among the features kept.

    Parameters
    ----------
    loss : {"quadratic", "logistic", "poisson", "gamma", "cox"} or such a loss object, default="quadratic"
    estimator : estimator with ``coef_``, optional
        Selects features. None is best subsets whose size BIC chooses, at most one feature for ten samples
        (for classes and survival times: for ten of the rarer class, or events).
    n_splits : int, default=50
        B. With 1, the intervals and p-values are those of a single split.
    control : {"fwer", "fdr"}, default="fwer"
        What q bounds: the family-wise error rate, or the false discovery rate by Benjamini and Yekutieli.
        With few features the first is often the more powerful, and it implies the second.
    q : float in (0, 1), default=0.05
    gamma_min : float in (0, 1), default=0.05
        The smallest quantile of the p-values.
    covariance : {"model", "robust"}, default="model"
        Of the coefficients, see :func:`trimreg.inference.refit`. ``"robust"`` is also valid if the features
        that are not selected have effects, for the coefficients of the best model with the selected ones.
    n_jobs : int, optional
        Number of splits at the same time, by joblib. The result does not depend on it.
    verbose : int, default=0
        1 shows progress on standard error.
    random_state : int, Generator or RandomState, default=0

    Attributes
    ----------
    support_ : ndarray of bool of shape (n_features,)
        The features kept.
    pvalues_ : ndarray of shape (n_features,)
        Adjusted for all features: those at most q are kept.
    coef_ : ndarray of shape (n_features,)
        The median over the splits that selected the feature; 0 if none did.
    frequencies_ : ndarray of shape (n_features,)
        The share of splits that selected the feature.
    split_pvalues_, split_coefs_, split_errors_ : ndarray of shape (n_splits, n_features)
        Of every split: p-values times the number of features selected, coefficients (NaN if not selected),
        standard errors (infinite if not selected).
    split_dofs_ : ndarray of shape (n_splits,)
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only if X had string column names.

    References
    ----------
    Meinshausen, Meier and Bühlmann, p-values for high-dimensional regression, JASA 104 (2009). Dezeure,
    Bühlmann, Meier and Meinshausen, High-dimensional inference: confidence intervals, p-values and
    R-software hdi, Statistical Science 30 (2015).

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.inference import MultiSplit
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 40))
    >>> y = X[:, 3] - X[:, 17] + rng.standard_normal(200)
    >>> tests = MultiSplit(n_splits=20).fit(X, y)
    >>> tests.get_support(indices=True), float(tests.pvalues_[5])
    (array([ 3, 17]), 1.0)
    >>> low, high = tests.interval(0.95)
    >>> bool(low[3] < 1 < high[3])
    True
    """

    def __init__(
        self, loss: Any = "quadratic", estimator: Any = None, n_splits: int = 50, control: str = "fwer",
        q: float = 0.05, gamma_min: float = 0.05, covariance: str = "model", n_jobs: int | None = None,
        verbose: int = 0, random_state: Any = 0,
    ) -> None:  # fmt: skip
        self._store(locals())

    def fit(self, X: Any, y: Any) -> MultiSplit:
        """Split, select and test.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Numbers, two classes, or times and events, as the estimator with that loss takes it; samples of a
            Cox model may start late and have strata in a fourth column. Rows are taken as independent.

        Returns
        -------
        self
        """
        check.check_number("n_splits", self.n_splits, 1, integral=True)
        check.check_choice("control", self.control, CONTROLS)
        check.check_choice("covariance", self.covariance, COVARIANCES)
        check_share("q", self.q)
        check_share("gamma_min", self.gamma_min)
        rng = check.check_random_state(self.random_state)
        with check.all_or_nothing(self):
            X, target, loss = self._samples(X, y)
            classes = target if loss.name == "logistic" else None
            classes = strata_and_events(target) if loss.name == "cox" else classes
            halves = complementary_pairs(target.shape[0], self.n_splits, rng, classes)
            seeds: Any = rng.integers(2**31, size=self.n_splits)
            y = np.asarray(to_host(y))
            tasks = [
                (self.estimator, loss, X, y, target, one, other, seed, self.covariance)
                for one, other, seed in zip(halves[::2], halves[1::2], seeds, strict=True)
            ]
            fits = self._in_parallel(_test_split, tasks, "splits")
            shape = self.n_splits, X.shape[1]
            self.split_coefs_, self.split_errors_ = np.full(shape, np.nan), np.full(shape, np.inf)
            self.split_pvalues_, self.split_dofs_ = np.ones(shape), np.empty(self.n_splits)
            for b, fit in enumerate(fits):
                self.split_coefs_[b, fit.features] = fit.coef
                self.split_errors_[b, fit.features] = fit.standard_errors
                self.split_pvalues_[b, fit.features] = np.minimum(fit.pvalues * fit.features.size, 1.0)
                self.split_dofs_[b] = fit.dof
            found = np.isfinite(self.split_errors_)
            self.frequencies_ = found.mean(axis=0)
            self.coef_ = np.zeros(X.shape[1])
            some = found.any(axis=0)
            values = np.where(found, self.split_coefs_, np.nan)[:, some]
            self.coef_[some] = np.nanmedian(values, axis=0)
            self.pvalues_ = adaptive_quantile(self.split_pvalues_, self.gamma_min)
            if self.control == "fdr":
                self.pvalues_ = dependent_bh(self.pvalues_)
            self.support_ = self.pvalues_ <= self.q
        return self

    def interval(self, confidence: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Intervals of the coefficients: the values that the aggregated tests do not reject.

        They are for one coefficient at a time, not adjusted for the number of features. Like the p-values
        they are conservative: they cover more often than ``confidence``. A feature that is rarely selected
        has an infinite interval.

        Parameters
        ----------
        confidence : float in (0, 1), default=0.95

        Returns
        -------
        low, high : ndarray of shape (n_features,)
        """
        check_is_fitted(self)
        counts, price = quantile_counts(self.n_splits, self.gamma_min)
        level = (1.0 - check_share("confidence", confidence)) * counts / self.n_splits / price
        half = student.isf(level[:, None] / 2, self.split_dofs_)[:, :, None]
        low, high = np.full(self.coef_.size, -np.inf), np.full(self.coef_.size, np.inf)
        seen = np.flatnonzero(self.frequencies_ > 0)
        found = np.isfinite(self.split_errors_[:, seen])
        width = half * np.where(found, self.split_errors_[:, seen], np.inf)
        center = np.where(found, self.split_coefs_[:, seen], 0.0)
        low[seen], high[seen] = aggregated_intervals(center - width, center + width, counts)
        return low, high

    def summary(self, confidence: float = 0.95, max_rows: int | None = 50) -> Summary:
        """A table with one row per feature that any split selected, the smallest p-values first."""
        low, high = self.interval(confidence)
        order = np.lexsort((-np.abs(self.coef_), -self.frequencies_, self.pvalues_))
        order = order[self.frequencies_[order] > 0]
        facts = {
            "splits": self.n_splits, "features": self.n_features_in_, "control": f"{self.control} {self.q:g}",
            "kept": int(self.support_.sum()), "intervals": "of one coefficient at a time",
        }  # fmt: skip
        columns = {"coef": self.coef_, "p": self.pvalues_}
        columns |= dict(zip(tail_headers(confidence), (low, high), strict=True))
        columns |= {"selected": self.frequencies_, "kept": self.support_}
        shown = {name: values[order] for name, values in columns.items()}
        return Summary("MultiSplit", facts, self._names[order], shown, max_rows=max_rows)


def _test_split(estimator, loss, X, y, target, one, other, seed, covariance):
    """Features selected on the samples ``one``, and their refit to the samples ``other``."""
    columns, _ = selected(estimator, X[one], y[one], target[one], loss, seed, criterion="bic")
    return fit_columns(X[other], target[other], loss, columns, covariance)
