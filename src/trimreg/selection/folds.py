r"""Fits of the whole surface to the training part of a fold, and their scores on the test part.

A large X is never copied: the other samples have weight 0 in the fit. For least squares the Gram matrix of a
fold is that of all samples less that of the samples left out. With :math:`S` and :math:`S_{out}` the second
moments about the means :math:`m` and :math:`m_{out}` of their own samples, with total weights 1 and
:math:`W_{out}`, and :math:`m_{in}` the mean of the training samples, of weight :math:`W = 1 - W_{out}`,

.. math:: G_{train} = \frac{1}{W} \bigl(S - S_{out} - W_{out} (m_{out} - m)(m_{out} - m)'\bigr)
          - (m_{in} - m)(m_{in} - m)',

so all folds together cost about two Gram matrices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..designs import as_design
from ..designs.convert import is_virtual
from ..estimators.models.base import groups_of
from ..estimators.task import Data, Settings, set_up
from ..solvers.gram import FixedGram
from .criteria import criterion_value
from .path import Ridge, cells, degrees_of_freedom, features_in, n_parts

_COPIED = 1 << 26  # bytes of X up to which a fold has its own copy of the training rows
_PREDICTED = 1 << 24  # linear predictors (of all samples) that one pass over data on disk computes
_PER_SCORE = 4  # arrays of the size of a linear predictor that scoring one fit takes
ALL_COLUMNS = 3000  # with more columns the whole Gram matrix is not formed
_BLOCK = 32  # rows of a Gram matrix that are worked on together
_LARGE = 1 << 19  # elements of X from which a sweep costs less than fits to the rows of every fold
_PRODUCTS = 1 << 23  # elements of the products of all folds together
_CANCELLED_LOSS = 1e-6  # part of the null model's loss below which that of few rows has lost digits
_CANCELLED = 1e-5  # a column is computed anew if its variance in the fold is below this part of that before


@dataclass
class TotalGram:
    """The Gram matrix of all samples about their means, from which a fold subtracts the samples left out."""

    gram: np.ndarray
    mean: np.ndarray | None

    @classmethod
    def of(cls, X: Any, weights: np.ndarray, center: bool) -> TotalGram:
        return cls(*_second_moments(X, weights, center))

    def without(
        self, X: Any, weights: np.ndarray, left_out: np.ndarray, design: Any, d: np.ndarray
    ) -> np.ndarray:
        """The Gram matrix of the other samples: the columns of ``design`` with weights ``d``."""
        mass = np.delete(weights, left_out).sum()
        gram, mean = _second_moments(X[left_out], weights[left_out], self.mean is not None)
        scale = design.inverse_scale
        if self.mean is not None:
            moved, shift = mean - self.mean, design.offset - self.mean
            taken = weights[left_out].sum() * moved
        for start in range(0, len(gram), _BLOCK):  # each block of rows stays in the processor's cache
            rows = slice(start, start + _BLOCK)
            block = np.subtract(self.gram[rows], gram[rows], out=gram[rows])
            if self.mean is not None:
                block -= np.outer(taken[rows], moved)
            block /= mass
            if self.mean is not None:
                block -= np.outer(shift[rows], shift)
            block *= scale[rows, None] * scale
        # If one sample left out outweighs the others, the subtraction loses all digits.
        before = np.diag(self.gram) / mass * scale**2
        lost = np.flatnonzero(design.column_norms(d) ** 2 < _CANCELLED * before)
        if lost.size:
            gram[:, lost] = design.gram(None, d, lost)
            gram[lost] = gram[:, lost].T
        return gram


def _second_moments(X, weights, center):
    r""":math:`\sum_i w_i (x_i - m)(x_i - m)'` and the mean m; without ``center``, None for 0."""
    design = as_design(X, weights / weights.sum(), center=center)
    every = np.arange(X.shape[1])
    return design.gram(every, weights, every), design.offset


class Fits(NamedTuple):
    """Coefficients and intercepts of every cell, ridge by ridge and row by row, and their loss.

    A loss with parameters beside the predictor is a list: the loss of each cell, with these as fitted.
    """

    coefs: np.ndarray
    intercepts: np.ndarray
    loss: Any


@dataclass
class LinearFolds:
    """``fit`` and ``score`` of a linear model for :class:`~trimreg.selection.search.Search`."""

    data: Data
    settings: Settings
    hs: np.ndarray
    alphas: list
    effort: str
    total: TotalGram | None = None
    scorer: Callable | None = None  # scores of (coefs, intercepts, test); None is minus the loss
    ridges: Sequence[Ridge] = (Ridge(0.0, 0.0),)

    def fit(self, train: np.ndarray) -> Fits:
        """The surface on the training samples. A sample that occurs twice counts twice."""
        times = np.bincount(train, minlength=self.data.d.size)
        task = set_up(self._weighted(self.data.d * times), self.settings)
        gram = None if self.total is None else self._gram(task, times)
        options = {"effort": self.effort, "gram": gram, "verify": False}
        _, grids, _ = cells(task, self.hs, self.alphas, self.ridges, **options)
        fits = [task.in_units(step.theta) for steps in grids for row in steps for step in row]
        coefs, intercepts = (np.array(values) for values in zip(*fits, strict=True))
        loss = task.loss_of_y
        if loss.has_nuisance:
            etas = predictors(self.data.X, coefs, intercepts)
            loss = [loss.held(eta, self.data.y, task.problem.d) for eta in etas]
        return Fits(coefs, intercepts, loss)

    def score(self, fits: Fits, test: np.ndarray) -> np.ndarray:
        """Scores of every cell on the test samples, of shape (n_hs, n_alphas, n_ridges)."""
        return self.arranged(self.scores_of(fits, test))

    def scores_of(self, fits: Fits, test: np.ndarray) -> Any:
        """A score of each fit."""
        if self.scorer is None:
            return minus_loss(self.data, fits, test)
        return self.scorer(fits.coefs, fits.intercepts, test)

    def arranged(self, scores: Any) -> np.ndarray:
        """The scores of all fits as an array of shape (n_hs, n_alphas, n_ridges)."""
        shape = len(self.ridges), len(self.hs), len(self.alphas)
        scores = np.reshape(np.asarray(scores, dtype=float), shape)
        return np.moveaxis(scores, 0, 2)

    def worth_products(self, task: Any, n_folds: int) -> bool:
        """Whether least squares on all folds of ``task`` is best done by :mod:`trimreg.selection.moments`."""
        X, problem, (n, p) = self.data.X, task.problem, self.data.X.shape
        if not problem.loss.least_squares or problem.loss.n_outputs > 1 or sp.issparse(X):
            return False
        if np.any(task.origin):  # y is not the target that scores are of
            return False
        if n_folds * (p + 2) ** 2 > min(_PRODUCTS, n * p):
            return False
        if is_virtual(X):
            return hasattr(X, "sweep") and problem.worth_compressing(len(self.hs) * len(self.alphas))
        return n * p >= _LARGE and problem.penalty.norm.q is None and problem.bounds is None

    def _weighted(self, weights) -> Data:
        """The data with these weights: a copy of the rows of positive weight if that is small."""
        X = self.data.X
        quadratic = self.settings.loss.constant_curvature  # other losses may depend on all of y
        if quadratic and not sp.issparse(X) and not is_virtual(X) and X.nbytes <= _COPIED:
            return replace(self.data, d=weights).rows(np.flatnonzero(weights))
        return self.data.weighted(weights)

    def _gram(self, task, times):
        """The Gram matrix for any ridge and column norms, by subtraction; None if that is not cheaper."""
        d, left_out = self.data.d, np.flatnonzero(times == 0)
        if np.any(times > 1) or 2 * left_out.size > np.count_nonzero(times) or not d[left_out].any():
            return None
        gram = self.total.without(self.data.X, d, left_out, task.problem.design, task.problem.d)

        def ridged(ridge, norms):
            scaled = gram / norms
            scaled /= norms[:, None]
            scaled[np.diag_indices_from(scaled)] += ridge / norms**2
            return FixedGram(np.arange(norms.size), scaled, norms.size)

        return ridged


def minus_loss(data: Data, fits: Fits, test: np.ndarray) -> list[float]:
    """Minus the mean loss of the test samples (least squares: the mean squared error) for every fit."""
    X, d = data.X, data.d
    weights = np.bincount(test, d[test], minlength=d.size)
    weights = weights / weights.sum()
    eta = np.zeros((d.size, *fits.intercepts.shape[1:]))  # the other samples have no weight
    scores = []
    far = is_virtual(X)
    for k, one in enumerate(predictors(X if far else X[test], fits.coefs, fits.intercepts)):
        loss = fits.loss[k] if isinstance(fits.loss, list) else fits.loss
        eta[test] = one[test] if far else one
        scores.append(-loss.report_factor * loss.value(eta, data.y, weights))
    return scores


def predictors(X: Any, coefs: np.ndarray, intercepts: np.ndarray) -> Iterable[np.ndarray]:
    """Linear predictors of shape (number of fits, n_samples[, n_outputs]), by one product with X.

    For data on disk or a cluster it is a generator over the fits. One pass computes as many as fit in memory.
    """
    if is_virtual(X):
        return _far_predictors(X, coefs, intercepts)
    fits, p = coefs.shape[0], coefs.shape[-1]
    product = np.asarray(X @ coefs.reshape(-1, p).T).T
    if coefs.ndim == 2:
        return product + intercepts[:, None]
    return product.reshape(fits, -1, X.shape[0]).swapaxes(1, 2) + intercepts[:, None, :]


def _far_predictors(X, coefs, intercepts):
    outputs = 1 if coefs.ndim == 2 else coefs.shape[1]
    size = X.shape[0] * outputs
    # Predictors share the memory of the columns. Adding the intercepts takes a second copy.
    fitting = (X.memory / 8 - _PER_SCORE * size) / 2
    step = int(max(1, min(_PREDICTED, fitting) // size))
    for start in range(0, coefs.shape[0], step):
        part = coefs[start : start + step]
        product = X.product(part.reshape(-1, coefs.shape[-1]).T.astype(float)).T
        product = product if coefs.ndim == 2 else product.reshape(-1, outputs, X.shape[0]).swapaxes(1, 2)
        for eta, intercept in zip(product, intercepts[start : start + step], strict=True):
            yield eta + intercept


# -- information criteria -----------------------------------------------------------------------------------


def criteria_of_path(name, data, task, path, n, fit_intercept) -> np.ndarray:
    """The information criterion of every cell of the path of a task, for n samples."""
    problem = task.problem
    coefs = path.coefs.reshape(-1, *path.coefs.shape[2:]).astype(float)
    intercepts = path.intercepts.reshape(-1, *path.intercepts.shape[2:])
    deviance = _deviances(task, data, coefs, intercepts, n)
    features = features_in(coefs, 1)
    groups, _ = groups_of(problem.penalty, data.X.shape[1])
    parts = features.sum(axis=1) if groups is None else [np.unique(groups[one]).size for one in features]
    df = degrees_of_freedom(task, coefs, intercepts, fit_intercept)
    value = criterion_value(name, deviance, df, n, n_parts(task), n_selected=parts)
    return np.reshape(value, path.objectives.shape)


def _deviances(task, data, coefs, intercepts, n):
    """The deviance of every fit: from few rows if they are known, except for nearly perfect fits."""
    loss, found, rest = task.loss_of_y, np.empty(len(coefs)), np.arange(len(coefs))
    if task.problem.few is not None:
        few = task.problem.compressed()
        fits = zip(coefs, intercepts, strict=True)
        etas = [few.predictor(task.coordinates(*fit)) for fit in fits]
        found[:] = [loss.deviance(eta, few.y, few.d, n) for eta in etas]
        least = _CANCELLED_LOSS * few.loss_value(few.origin())
        rest = np.flatnonzero([not few.loss_value(eta) > least for eta in etas])
    for k, eta in zip(rest, predictors(data.X, coefs[rest], intercepts[rest]), strict=True):
        found[k] = loss.deviance(eta, data.y, data.d, n)
    return found
