r"""The surface on the training part of a fold, scored on its test part.

Training samples are told from test samples by weights of 0, so a large X is never copied. For least squares
the Gram matrix of a fold is that of all samples less that of its test samples: with ``z`` the columns less
their means over all samples, ``delta`` the means of z over the training samples (total weight W),

.. math:: G_{train} = \frac{1}{W} \Bigl(\sum_{i} w_i z_i z_i' - \sum_{i \in test} w_i z_i z_i'\Bigr)
          - \delta\delta',

so all folds together cost about two Gram matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from ..designs import as_design
from ..designs.convert import is_foreign
from ..estimators.task import Task, prepare
from ..losses import get_loss
from ..solvers.gram import FixedGram
from .path import cells

_COPIED = 1 << 26  # bytes of X up to which a fold has its own copy of the training rows
_PREDICTED = 1 << 24  # numbers of linear predictors, of all samples, that a pass over a far X makes at a time
_PER_SCORE = 4  # arrays of the size of a linear predictor that it takes to score one
ALL_COLUMNS = 3000  # above this a surface does not form the whole Gram matrix either

#: A column is taken anew if its variance in the fold is less than this part of what was subtracted from.
_CANCELLED = 1e-5


@dataclass
class TotalGram:
    """The Gram matrix of all samples, of columns less their means; a fold takes its own out of it."""

    gram: np.ndarray
    mean: np.ndarray | None

    @classmethod
    def of(cls, X, weights, center: bool) -> TotalGram:
        mean = as_design(X, weights, center=True).offset if center else None
        return cls(_second_moments(X, weights, mean), mean)

    def of_fold(self, X, weights, test, design, d) -> np.ndarray:
        """The Gram matrix of the training samples: the columns of ``design``, under its weights ``d``."""
        mass = np.delete(weights, test).sum()
        gram = self.gram - _second_moments(X[test], weights[test], self.mean)
        gram /= mass
        if self.mean is not None:
            delta = design.offset - self.mean
            gram -= np.outer(delta, delta)
        scale = design.inverse_scale
        gram *= scale * scale[:, None]
        # What one sample of the test part outweighs is lost by the subtraction.
        before = np.diag(self.gram) / mass * scale**2
        lost = np.flatnonzero(design.column_norms(d) ** 2 < _CANCELLED * before)
        if lost.size:
            gram[:, lost] = design.gram(None, d, lost)
            gram[lost] = gram[:, lost].T
        return gram


def _second_moments(X, weights, mean):
    r""":math:`\sum_i w_i (x_i - m)(x_i - m)'`, without the mean if that is None."""
    design = as_design(X, weights / weights.sum(), center=mean is not None)
    if mean is not None:
        # The products of a design, but about a mean that is not its own.
        design.offset = mean
        if hasattr(design, "_cancels"):
            design._cancels = np.abs(mean) > 1e3 * design._deviation
    design.inverse_scale = np.ones(X.shape[1])  # also of columns that do not vary here
    every = np.arange(X.shape[1])
    return design.gram(every, weights, every)


@dataclass
class Search:
    """What the folds of a search share."""

    X: object
    target: np.ndarray
    d: np.ndarray
    arguments: dict  # of :func:`prepare`
    hs: np.ndarray
    alphas: list
    effort: str
    total: TotalGram | None = None
    scores: Callable | None = None  # of (coefs, intercepts, test); None is minus the loss


def score_fold(search: Search, train, test) -> np.ndarray:
    """Scores of every cell, fitted to the training samples, on the test samples: shape (n_hs, n_alphas)."""
    times = np.bincount(train, minlength=search.d.size)
    task = _training_task(search, search.d * times)
    gram = _fold_gram(search, task, times, test) if search.total is not None else None
    _, steps = cells(task, search.hs, search.alphas, effort=search.effort, gram=gram, verify=False)
    fits = [in_units(task, step) for row in steps for step in row]
    coefs, intercepts = (np.array(values) for values in zip(*fits, strict=True))
    if search.scores is None:
        scores = minus_loss(search.X, task.problem.loss, search.target, search.d, coefs, intercepts, test)
    else:
        scores = search.scores(coefs, intercepts, test)
    return np.asarray(scores, dtype=float).reshape(len(search.hs), len(search.alphas))


def _training_task(search, weights) -> Task:
    """The task of the samples of positive weight: a copy of their rows if that is small, else by weights."""
    X, target = search.X, search.target
    quadratic = get_loss(search.arguments["loss"]).constant_curvature  # others may look at all of y
    if quadratic and not sp.issparse(X) and not is_foreign(X) and X.nbytes <= _COPIED:
        rows = np.flatnonzero(weights)
        X, target, weights = X[rows], target[rows], weights[rows]
    return prepare(X, target, sample_weight=weights, **search.arguments)


def in_units(task: Task, step):
    """The coefficients and the intercept of a step in the units of X."""
    return task.in_units(step.theta)


def _fold_gram(search, task, times, test):
    """A function from column norms to the Gram matrix of the fold; None if computing it anew costs less."""
    others = times == 0
    complement = np.all(times <= 1) and np.array_equal(np.flatnonzero(others), np.sort(test))
    if not complement or 2 * test.size > np.count_nonzero(times):
        return None
    design, d = task.problem.design, task.problem.d
    gram = search.total.of_fold(search.X, search.d, test, design, d)

    def scaled(norms):
        every = np.arange(norms.size)
        return FixedGram(every, gram / norms / norms[:, None], norms.size)

    return scaled


def minus_loss(X, loss, target, d, coefs, intercepts, test):
    """Minus the mean loss of the test samples (least squares: the mean squared error), for every fit."""
    weights = np.bincount(test, d[test], minlength=d.size)
    weights /= weights.sum()
    eta = np.zeros((d.size, *intercepts.shape[1:]))  # the other samples have no weight
    scores = []
    far = is_foreign(X)
    for one in predictors(X if far else X[test], coefs, intercepts):
        eta[test] = one[test] if far else one
        scores.append(-loss.report_factor * loss.value(eta, target, weights))
    return scores


def predictors(X, coefs, intercepts):
    """Linear predictors of shape (number of fits, n_samples[, n_outputs]), one product with X in all.

    For a far X it is a generator over the fits, and a pass makes as many of them as fit in memory.
    """
    if is_foreign(X):
        return _far_predictors(X, coefs, intercepts)
    fits, p = coefs.shape[0], coefs.shape[-1]
    product = np.asarray(X @ coefs.reshape(-1, p).T).T
    if coefs.ndim == 2:
        return product + intercepts[:, None]
    return product.reshape(fits, -1, X.shape[0]).swapaxes(1, 2) + intercepts[:, None, :]


def _far_predictors(X, coefs, intercepts):
    outputs = 1 if coefs.ndim == 2 else coefs.shape[1]
    size = X.shape[0] * outputs
    # Predictors have the memory of the columns, and are there twice while the intercepts are added.
    fitting = (getattr(X, "memory", np.inf) / 8 - _PER_SCORE * size) / 2
    step = int(max(1, min(_PREDICTED, fitting) // size))
    for start in range(0, coefs.shape[0], step):
        part = coefs[start : start + step]
        product = X.product(part.reshape(-1, coefs.shape[-1]).T.astype(float)).T
        product = product if coefs.ndim == 2 else product.reshape(-1, outputs, X.shape[0]).swapaxes(1, 2)
        for eta, intercept in zip(product, intercepts[start : start + step], strict=True):
            yield eta + intercept
