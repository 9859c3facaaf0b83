r"""Trimming of samples: the ``n_outliers`` samples of largest loss are left out of a fit.

.. math:: \min_{\theta, b}\; \min_{v}\; \sum_i v_i d_i\, \ell(y_i, z_i'\theta + b) \Big/ \sum_i v_i d_i
          + P_\alpha(\theta), \qquad 0 \le v \le 1,\ \sum_i v_i = n - o.

It is the weight rule of the trimmed penalty over samples: for a given theta the best v is 0 for the o samples
of largest loss. So the two are minimized in turn (the concentration steps of Rousseeuw and Van Driessen,
2006; with a sparse penalty, Alfons, Croux and Gelper, 2013), from several starts, and the lowest objective is
kept. With equal sample weights no step raises it. Alone this is the least-trimmed estimator; with a trimmed
penalty it is robust and sparse. Columns are standardized by the deviations over all samples, so that the
objective stays one function throughout.

References
----------
Rousseeuw, P. J. and Van Driessen, K. (2006). Computing LTS regression for large data sets. Data Mining and
Knowledge Discovery 12, 29-45.

Alfons, A., Croux, C. and Gelper, S. (2013). Sparse least trimmed squares regression for analyzing
high-dimensional large data sets. Annals of Applied Statistics 7(1), 226-248.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from ..designs import as_design
from ..losses import get_loss
from ..penalties import largest
from ..solvers import SolverResult, get_solver, many_fits
from ..solvers.driver import best_so_far
from . import validation as check
from .task import Task, prepare, solve_task

_RANDOM_STARTS = {"low": 2, "medium": 8, "high": 30}
_FINALISTS = 2
_MAX_STEPS = 50


@dataclass
class _Fit:
    """A fit to the samples ``kept``, and the loss of every sample at it."""

    result: SolverResult
    kept: np.ndarray
    loss: np.ndarray  # d_i l_i


def solve_without_outliers(X, y, n_outliers, callback=None, **arguments) -> SolverResult:
    """:func:`trimreg.solve` with ``n_outliers`` of at least one; the result names them in ``outliers``."""
    X = check.check_matrix(X)
    count = check.check_outliers(n_outliers, X.shape[0])
    fits = _Fits(X, y, count, callback, arguments)
    if count == 0:
        return fits.fit(fits.everyone, rough=False).result
    try:
        with many_fits():
            best = _best(fits)
    except KeyboardInterrupt:
        best = fits.lowest
        kept = best_so_far(None if best is None else best.result, fits.count_done, "fit")
        best = replace(best, result=kept)
    return replace(best.result, outliers=np.flatnonzero(~best.kept & fits.counted))


def _best(fits: _Fits) -> _Fit:
    """The end of lowest objective, over rough fits from every start and whole ones from the best of these."""
    rough = [fits.concentrate(fits.fit(kept, rough=True), steps=2, rough=True) for kept in fits.starts()]
    rough.sort(key=lambda fit: fit.result.objective)
    distinct = [rough[0]]
    for fit in rough[1:]:
        if len(distinct) < _FINALISTS and not any(np.array_equal(fit.kept, other.kept) for other in distinct):
            distinct.append(fit)
    ends = [fits.concentrate(fits.refit(fit), _MAX_STEPS, rough=False) for fit in distinct]
    return min(ends, key=lambda fit: fit.result.objective)


class _Fits:
    """The fits of one robust problem: to any subset of its samples, on one scale of the columns."""

    def __init__(self, X, y, count, callback, arguments):
        self.X, self.y, self.count, self.callback, self.arguments = X, y, count, callback, arguments
        n = X.shape[0]
        self.d = check.check_sample_weight(arguments.get("sample_weight"), n)
        self.counted = self.d > 0
        if self.counted.sum() <= count:
            raise ValueError(
                f"n_outliers must leave a sample of positive weight; got {count} of {self.counted.sum()}"
            )
        if arguments["standardize"] is True:
            center = arguments["fit_intercept"] or not get_loss(arguments["loss"]).sees_constants
            arguments["standardize"] = as_design(X, self.d, center=center)._deviation
        self.everyone = self.counted.copy()
        self.rng = check.check_random_state(arguments["random_state"])
        self.effort = arguments["options"].get("effort", "medium")
        self.lowest: _Fit | None = None  # that leaves out as many samples as asked for
        self.count_done = 0

    def fit(self, kept, rough, theta0=None) -> _Fit:
        arguments = dict(self.arguments)
        if theta0 is not None:
            arguments["theta0"] = theta0
        if rough and arguments["solver"] == "mm" and "effort" in get_solver("mm").options:
            arguments["options"] = arguments["options"] | {"effort": "low"}
        arguments["sample_weight"] = np.where(kept, self.d, 0.0)
        task = prepare(self.X, self.y, **arguments)
        with warnings.catch_warnings():
            if rough:
                warnings.simplefilter("ignore")  # what a rough fit could not reach is no news
            result = solve_task(task, None if rough else self.callback)
        loss = get_loss(arguments["loss"]).bound(task_target(task), self.d)
        eta = self.X @ result.coef.T.astype(float) + result.intercept
        share = loss.pointwise(eta, task_target(task), task.problem.d)
        fit = _Fit(result, kept, np.where(self.counted, self.d * share, -np.inf))
        self.count_done += 1
        if np.count_nonzero(kept) == np.count_nonzero(self.counted) - self.count and (
            self.lowest is None or result.objective < self.lowest.result.objective
        ):
            self.lowest = fit
        return fit

    def refit(self, fit: _Fit) -> _Fit:
        """With the effort asked for."""
        return self.fit(fit.kept, rough=False)

    def concentrate(self, fit: _Fit, steps: int, rough: bool) -> _Fit:
        """Leave out the samples of largest loss, fit the rest, and again, as long as the objective falls."""
        for _ in range(steps):
            kept = self._without(fit.loss - fit.loss[self.counted].min() + 1.0)
            if np.array_equal(kept, fit.kept):
                break
            following = self.fit(kept, rough, theta0=fit.result.coef)
            if fit.kept.sum() == kept.sum() and not following.result.objective < fit.result.objective:
                break
            fit = following
        return fit

    def starts(self):
        """Samples to fit first: all; all but extreme targets; all but extreme rows; random halves."""
        yield self.everyone
        y = np.asarray(self.y)
        if y.ndim == 1 and y.dtype.kind == "f":
            yield self._without(np.abs(y - np.median(y[self.counted])))
        yield self._without(self._row_lengths())
        members = np.flatnonzero(self.counted)
        for _ in range(_RANDOM_STARTS.get(self.effort, 8)):
            kept = np.zeros_like(self.counted)
            kept[self.rng.permutation(members)[: max(2, (members.size + 1) // 2)]] = True
            if self._usable(kept):
                yield kept

    def _usable(self, kept):
        """Whether the loss can be fitted to these samples at all: some need two classes, or an event."""
        try:
            loss = get_loss(self.arguments["loss"])
            loss.check_target(np.asarray(self.y, dtype=float)[kept])
        except (TypeError, ValueError):
            return False
        return True

    def _without(self, distance):
        """All samples but those of largest distance; one that the loss cannot do without stays."""
        distance = np.where(self.counted, distance, 0.0)
        kept = self.counted.copy()
        kept[largest(distance, self.count)] = False
        if self._usable(kept):
            return kept
        kept, left = self.counted.copy(), self.count
        for i in np.argsort(-distance, kind="stable"):
            if left and kept[i]:
                kept[i] = False
                kept[i] = not self._usable(kept)
                left -= not kept[i]
        return kept

    def _row_lengths(self):
        """Squared lengths of the rows of X, columns on a scale that outliers do not set."""
        X = self.X
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


def task_target(task: Task) -> np.ndarray:
    """The target as the user gave it, centring taken back."""
    return task.problem.y + task.centre if np.any(task.centre) else task.problem.y
