r"""The surface on the training part of a fold, scored on its test part.

Training samples are told from test samples by weights of 0, so X is never copied. For least squares the Gram
matrix of a fold is that of all samples less that of its test samples: with ``z`` the columns less their means over
all samples, ``delta`` the means of z over the training samples (total weight W),

.. math:: G_{train} = \frac{1}{W} \Bigl(\sum_{i} w_i z_i z_i' - \sum_{i \in test} w_i z_i z_i'\Bigr)
          - \delta\delta',

so all folds together cost about two Gram matrices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..designs import as_design
from ..estimators.task import Task
from ..solvers.pool import FixedPool
from .path import cells

ALL_COLUMNS = 3000  # above this a surface does not form the whole Gram matrix either


@dataclass
class TotalGram:
    """The Gram matrix of all samples, of columns less their means; a fold takes its own out of it."""

    gram: np.ndarray
    mean: np.ndarray | None

    @classmethod
    def of(cls, X, weights, center: bool) -> TotalGram:
        design = as_design(X, weights, center=center)
        every = np.arange(X.shape[1])
        design.inverse_scale = np.ones(X.shape[1])  # also of columns that do not vary: their entries are 0
        return cls(design.gram(every, weights, every), design.offset)

    def pool(self, X, weights, test, design):
        """A function from column norms to the pool of the training samples' normalized columns."""
        every = np.arange(X.shape[1])
        part = as_design(X[test], np.full(test.size, 1.0 / test.size), center=False)
        part.inverse_scale, part.offset = np.ones(X.shape[1]), self.mean
        if hasattr(part, "_cancels"):
            part._cancels = np.abs(self.mean) > 1e3 * part._deviation if self.mean is not None else None
        train = weights.copy()
        train[test] = 0.0
        mass = train.sum()
        gram = (self.gram - part.gram(every, weights[test], every)) / mass
        if self.mean is not None:
            delta = design.offset - self.mean
            gram -= np.outer(delta, delta)

        def pool(norms):
            unit = design.inverse_scale / norms
            return FixedPool(every, gram * unit * unit[:, None], every.size)

        return pool


def fold_scores(task: Task, hs, alphas, score, *, effort, pool=None) -> np.ndarray:
    """``score(coefs, intercepts)`` for every cell of the surface of a fold's training task."""
    _, steps = cells(task, hs, alphas, effort=effort, pool=pool, verify=False)
    design = task.problem.design
    flat = [design.original_units(step.theta) for row in steps for step in row]
    coefs = np.array([coef for coef, _ in flat])
    intercepts = np.array([intercept + task.centre for _, intercept in flat])
    return np.asarray(score(coefs, intercepts), dtype=float).reshape(len(hs), len(alphas))


def predictors(X, coefs, intercepts):
    """Linear predictors of shape (number of fits, n_samples[, n_outputs]), one product with X in all."""
    fits, p = coefs.shape[0], coefs.shape[-1]
    product = np.asarray(X @ coefs.reshape(-1, p).T).T
    if coefs.ndim == 2:
        return product + intercepts[:, None]
    return product.reshape(fits, -1, X.shape[0]).swapaxes(1, 2) + intercepts[:, None, :]
