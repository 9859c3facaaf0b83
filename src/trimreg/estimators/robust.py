r"""Trimming of samples: a fit that leaves out the ``n_outliers`` samples with the largest loss.

.. math:: \min_{\theta, b}\; \min_{v}\; \sum_i v_i d_i\, \ell(y_i, z_i'\theta + b) \Big/ \sum_i v_i d_i
          + P_\alpha(\theta), \qquad 0 \le v \le 1,\ \sum_i v_i = n - o.

This is the weight rule of the trimmed penalty, applied to samples: for a given theta the best v is 0 for the
o samples with the largest loss. The two are minimized in turn (the concentration steps of Rousseeuw and Van
Driessen, 2006; with a sparse penalty, Alfons, Croux and Gelper, 2013) from several starts, and the lowest
objective is kept. With equal sample weights no step raises it. Without a penalty this is the least-trimmed
estimator; with a trimmed penalty it is robust and sparse. Columns are standardized by their deviations over
all samples, so that the objective is the same function throughout.

References
----------
Rousseeuw, P. J. and Van Driessen, K. (2006). Computing LTS regression for large data sets. Data Mining and
Knowledge Discovery 12, 29-45.

Alfons, A., Croux, C. and Gelper, S. (2013). Sparse least trimmed squares regression for analyzing
high-dimensional large data sets. Annals of Applied Statistics 7(1), 226-248.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from ..designs import as_design
from ..penalties import largest
from ..solvers import SolverResult, many_fits
from ..solvers.driver import best_so_far
from . import validation as check
from .task import Data, Settings, Task, minimize, set_up

_RANDOM_STARTS = {"low": 2, "medium": 8, "high": 30}
_FINALISTS = 2
_MAX_STEPS = 50


@dataclass
class _Fit:
    """A fit to the samples ``kept``, and the loss of every sample at it."""

    result: SolverResult
    kept: np.ndarray
    loss: np.ndarray  # d_i l_i


def minimize_without_outliers(
    data: Data, settings: Settings, theta0, callback=None
) -> tuple[SolverResult, Task]:
    """:func:`~trimreg.estimators.task.minimize` for ``n_outliers`` > 0; ``result.outliers`` lists them."""
    count = check.check_outliers(settings.n_outliers, data.y.shape[0])
    if count == 0:  # of a small fraction
        return minimize(data, replace(settings, n_outliers=0), theta0, callback)
    fits = _Fits(data, settings, count, theta0, callback)
    try:
        with many_fits():
            best = _best(fits)
    except KeyboardInterrupt:
        if fits.lowest is None:
            raise
        best = replace(fits.lowest, result=best_so_far(fits.lowest.result, fits.count_done, "fit"))
    result = replace(best.result, outliers=np.flatnonzero(fits.everyone & ~best.kept))
    return result, set_up(data.weighted(np.where(best.kept, data.d, 0.0)), settings, theta0)


def _best(fits: _Fits) -> _Fit:
    """The fit of lowest objective: rough fits from every start, then full ones from the best of these."""
    rough = [fits.concentrate(fits.fit(kept, rough=True), steps=2, rough=True) for kept in fits.starts()]
    rough.sort(key=lambda fit: fit.result.objective)
    distinct = [rough[0]]
    for fit in rough[1:]:
        if len(distinct) < _FINALISTS and not any(np.array_equal(fit.kept, other.kept) for other in distinct):
            distinct.append(fit)
    full = (fits.fit(fit.kept, rough=False) for fit in distinct)
    ends = [fits.concentrate(fit, _MAX_STEPS, rough=False) for fit in full]
    return min(ends, key=lambda fit: fit.result.objective)


class _Fits:
    """The fits of one robust problem to subsets of its samples, all with the same scale of the columns."""

    def __init__(self, data: Data, settings: Settings, count: int, theta0, callback):
        self.settings, self.count, self.theta0, self.callback = settings, count, theta0, callback
        self.everyone = data.d > 0
        positive = np.count_nonzero(self.everyone)
        if positive <= self.count:
            raise ValueError(
                f"n_outliers must leave a sample of positive weight; got {self.count} of {positive}"
            )
        self.rng = check.check_random_state(settings.random_state)
        if settings.standardize:
            center = settings.fit_intercept or not settings.loss.sees_constants
            data = replace(data, scale=as_design(data.X, data.d, center=center).column_norms(data.d))
        self.data = data
        self.lowest: _Fit | None = None  # of those that leave out as many samples as asked for
        self.count_done = 0

    def fit(self, kept, rough, theta0=None) -> _Fit:
        """The fit to the samples ``kept``; a rough one is done with low effort and without warnings."""
        data, settings = self.data.weighted(np.where(kept, self.data.d, 0.0)), self.settings
        if rough and settings.solver == "mm":
            settings = replace(settings, options={**settings.options, "effort": "low"})
        task = set_up(data, settings, self.theta0 if theta0 is None else theta0)
        with warnings.catch_warnings():
            if rough:
                warnings.simplefilter("ignore")  # convergence does not matter yet
            result = task.solve(None if rough else self.callback)
        loss = settings.loss.bound(data.y, self.data.d)
        eta = data.X @ result.coef.T.astype(float) + result.intercept
        share = loss.pointwise(eta, data.y, data.d)
        fit = _Fit(result, kept, np.where(self.everyone, self.data.d * share, -np.inf))
        self.count_done += 1
        complete = np.count_nonzero(kept) == np.count_nonzero(self.everyone) - self.count
        if complete and (self.lowest is None or result.objective < self.lowest.result.objective):
            self.lowest = fit
        return fit

    def concentrate(self, fit: _Fit, steps: int, rough: bool) -> _Fit:
        """Leave out the samples of largest loss and fit the rest, as long as the objective falls."""
        for _ in range(steps):
            kept = self._without(fit.loss - fit.loss[self.everyone].min() + 1.0)
            if np.array_equal(kept, fit.kept):
                break
            following = self.fit(kept, rough, theta0=fit.result.coef)
            if fit.kept.sum() == kept.sum() and not following.result.objective < fit.result.objective:
                break
            fit = following
        return fit

    def starts(self) -> Iterator[np.ndarray]:
        """Samples to fit first: all; all but extreme targets; all but extreme rows; random halves."""
        yield self.everyone
        y = self.data.y
        if y.ndim == 1:
            yield self._without(np.abs(y - np.median(y[self.everyone])))
        yield self._without(self._row_lengths())
        members = np.flatnonzero(self.everyone)
        for _ in range(_RANDOM_STARTS.get(self.settings.options.get("effort", "medium"), 8)):
            kept = np.zeros_like(self.everyone)
            kept[self.rng.permutation(members)[: max(2, (members.size + 1) // 2)]] = True
            if self._usable(kept):
                yield kept

    def _usable(self, kept) -> bool:
        """Whether the loss can be fitted to these samples: some losses need two classes, or an event."""
        try:
            self.settings.loss.check_target(self.data.y[kept])
        except ValueError:
            return False
        return True

    def _without(self, distance):
        """All samples except those with the largest distance; a sample that the loss needs is kept."""
        distance = np.where(self.everyone, distance, 0.0)
        kept = self.everyone.copy()
        kept[largest(distance, self.count)] = False
        if self._usable(kept):
            return kept
        kept, left = self.everyone.copy(), self.count
        for i in np.argsort(-distance, kind="stable"):
            if left and kept[i]:
                kept[i] = False
                kept[i] = not self._usable(kept)
                left -= not kept[i]
        return kept

    def _row_lengths(self):
        """Squared lengths of the rows of X, with columns on a scale that outliers do not affect."""
        X = self.data.X
        if sp.issparse(X):
            squares = X.multiply(X)
            mean = np.asarray(squares.mean(axis=0)).ravel()
            return np.asarray(squares @ np.divide(1.0, mean, out=np.zeros_like(mean), where=mean > 0)).ravel()
        total = np.zeros(X.shape[0])
        for start in range(0, X.shape[1], 256):
            block = X[:, start : start + 256].astype(float)
            size = np.abs(block - np.median(block, axis=0))
            spread = np.median(size, axis=0)
            spread = np.where(spread > 0, spread, np.maximum(size.max(axis=0), 1e-300))
            total += np.minimum((size / spread) ** 2, 1e6).sum(axis=1)
        return total
