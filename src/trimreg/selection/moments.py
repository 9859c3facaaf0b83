r"""Folds of least squares on many samples, solved and scored from sums of products: X is read once.

For columns and y that are centered and scaled by the moments of all samples let

.. math:: M_k = [Z\; y\; 1]'\, D\, [Z\; y\; 1]

over the test samples of fold k, of weight :math:`W_k`. The sum of the others is the same matrix for the
training samples, so a fold is solved on few rows (:meth:`~trimreg.solvers.Problem.compressed`). The mean
squared error of coefficients :math:`\theta` and intercept b on its test samples is

.. math:: \frac{1}{W_k} v' M_k v, \qquad v = (\theta, -1, b).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ..designs.base import ColumnBlock, compressed_rows
from ..designs.convert import is_virtual
from ..designs.far import kernels
from ..designs.far.rows import ArrayRows
from ..estimators.task import Task
from .folds import Fits, LinearFolds
from .path import cells

_BLOCK = 1 << 22  # elements of a block of X in memory
_CANCELLED = 1e-5  # a variance below this part of that of all samples has lost digits
_CERTAIN = 1e9  # errors are this many times their rounding, or are computed anew


@dataclass
class MomentFolds(LinearFolds):
    """:class:`LinearFolds` where ``fit`` and ``score`` take the number of a fold.

    A fold in which a column or y has lost its variation is fitted on its rows, and the errors of nearly
    perfect fits are summed over the test samples: the sums above would cancel.
    """

    task: Any = None  # that of all samples; its few rows are known
    folds: Sequence[tuple[np.ndarray, np.ndarray]] = ()
    division: Sequence[np.ndarray] = ()  # all test parts of the division of the samples that fold k is in
    products: Any = None  # M_k for every k

    @classmethod
    def of(cls, plain: LinearFolds, task: Task, folds: Sequence) -> MomentFolds | None:
        """The folds from one sweep; None if they do not divide the samples."""
        X, problem, p = plain.data.X, task.problem, plain.data.X.shape[1]
        found = _divisions(plain.data.d, folds)
        if found is None:
            return None
        labels, division = found
        rows = X if is_virtual(X) else ArrayRows(X, max(1, _BLOCK // p))
        units = task.features.offset, _inverse(_deviations(problem))
        sums = rows.sweep(kernels.products_of_parts, (problem.d, problem.y, labels), (*units, len(folds)))
        products = np.zeros((len(folds), p + 2, p + 2))
        for part in sums:
            products += part
        given = {one.name: getattr(plain, one.name) for one in fields(plain)}
        self = cls(**given, task=task, folds=folds, division=division, products=products)
        few = self._few_rows(products[division[0]].sum(axis=0), whole=True)
        if few is not None:
            few[0].source = problem.design, problem.d
            self.task = replace(task, problem=replace(problem, few=few[:2]))
        return self

    def fit(self, k: Any) -> Any:
        """The vectors v of every cell, ridge by ridge and row by row; :class:`Fits` if moments cancel."""
        few = self._few_rows(self.products[self.division[k]].sum(axis=0) - self.products[k])
        if few is None:
            return super().fit(self.folds[k][0])
        design, y, unit, mean = few
        few = {"design": ColumnBlock(design.Z), "y": y, "d": np.full(y.size, 1 / y.size), "few": None}
        problem = replace(self.task.problem, **few, bounds=self._bounds(unit))
        options = {"effort": self.effort, "verify": False}
        grids = cells(replace(self.task, problem=problem), self.hs, self.alphas, self.ridges, **options)[1]
        thetas = np.array([step.theta for steps in grids for row in steps for step in row]) * unit
        return np.column_stack([thetas, np.full(len(thetas), -1.0), mean[-1] - thetas @ mean[:-1]])

    def _bounds(self, unit):
        """The bounds in these units; 0 for columns that are constant."""
        if self.task.limits is None:
            return None
        scale = _deviations(self.task.problem) * _inverse(unit)
        ends = ((end, np.zeros_like(end)) for end in self.task.limits)
        return tuple(np.multiply(end, scale, out=out, where=scale > 0) for end, out in ends)

    def score(self, fits: Any, k: Any) -> np.ndarray:
        """Scores of every cell on test part k."""
        test = self.folds[k][1]
        if isinstance(fits, Fits) or self.scorer is not None:
            return super().score(fits if isinstance(fits, Fits) else self._in_units(fits), test)
        M, weight = self.products[k], self.products[k][-1, -1]
        errors = np.einsum("ij,ij->i", fits @ M, fits) / weight
        rounding = np.finfo(float).eps * (np.abs(fits) @ np.sqrt(np.diagonal(M))) ** 2 / weight
        doubtful = np.flatnonzero(~(errors > _CERTAIN * rounding))
        if doubtful.size:
            errors[doubtful] = -np.array(self.scores_of(self._in_units(fits[doubtful]), test))
        return self.arranged(-errors)

    def _few_rows(self, M, whole=False):
        """Few rows and their target, the units of the columns, and the means of columns and y.

        The units are relative to those of M: for ``whole`` they make the columns those of the task. None if
        a variance has cancelled.
        """
        problem = self.task.problem
        deviation = _deviations(problem)
        alive, total = np.append(deviation > 0, True), np.append(deviation > 0, problem.d @ problem.y**2)
        mean = M[:-1, -1] / M[-1, -1] if problem.design.offset is not None else np.zeros(alive.size)
        S = M[:-1, :-1] / M[-1, -1] - np.outer(mean, mean)
        variance = np.diagonal(S)
        if not np.all(variance[alive] > np.maximum(_CANCELLED * total[alive], 1e-280)):
            return None
        if self.settings.standardize and not whole:
            unit = _inverse(np.sqrt(variance[:-1] * alive[:-1]))
        else:
            unit = problem.design.column_norms(problem.d)
        gram, target = S[:-1, :-1] * unit * unit[:, None], S[:-1, -1] * unit
        return *compressed_rows(gram, target, np.sqrt(variance[-1:]), np.ones(1)), unit, mean

    def _in_units(self, vectors):
        """Coefficients and intercepts in the units of X."""
        design = self.task.problem.design
        coefs = vectors[:, :-2] * _inverse(_deviations(self.task.problem))
        moved = 0.0 if design.offset is None else coefs @ design.offset
        return Fits(coefs, vectors[:, -1] + self.task.y_mean - moved, self.task.problem.loss)


def _deviations(problem):
    """Of the columns of X; 0 for constant ones."""
    norms, scale = problem.design.column_norms(problem.d), problem.design.inverse_scale
    return norms * _inverse(scale)


def _inverse(values):
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)


def _divisions(d, folds):
    """The test part of every sample, a column for each division of the samples, and the parts of a division.

    None unless the test parts divide the samples of positive weight, perhaps repeatedly, and all samples that
    are not tested are for training.
    """
    labels, division, parts = [], [], []
    for k, (train, test) in enumerate(folds):
        if not parts:
            label, tested = np.zeros(d.size, dtype=np.intp), d == 0
        times = np.bincount(train, minlength=d.size) + np.bincount(test, minlength=d.size)
        if tested[test].any() or np.any((times != 1) & (d > 0)):
            return None
        label[test], tested[test] = k, True
        parts.append(k)
        if tested.all():
            labels.append(label)
            division += [np.array(parts)] * len(parts)
            parts = []
    return None if parts else (np.stack(labels, axis=1), division)
