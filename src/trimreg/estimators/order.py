r"""The order in which forward selection takes the variables of a fitted model.

Near its minimum the loss is approximated by :math:`\frac12 \theta' H \theta - c'\theta` on the coefficients
of the model, with H the Hessian, g the gradient and :math:`c = H \theta - g` at the solution. For least
squares this is exact. Parts that are never penalized are taken first. Then each step takes the part (a
coefficient, a group, the coefficients of a feature) that lowers the approximation most. All steps work on H
and c; nothing is refitted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..solvers import SolverResult
from .task import Task

#: Models with more coefficients are ordered by size, since the steps cost the cube of that number.
LARGEST_MODEL = 200

#: A column with less than this left of its squared norm is a combination of those already taken.
_DEPENDENT = 1e-10


def forward_order(
    H: np.ndarray, c: np.ndarray, parts: np.ndarray, first: np.ndarray | None = None
) -> np.ndarray:
    r"""The parts in the order in which forward selection on a quadratic model takes them.

    With S the coordinates taken so far, part G lowers :math:`\frac12 \theta' H \theta - c'\theta` by

    .. math:: \tfrac12\, \tilde c_G' \tilde H_{GG}^+ \tilde c_G, \qquad
              \tilde H = H - H_{\cdot S} H_{SS}^+ H_{S \cdot}, \quad \tilde c = c - H_{\cdot S} H_{SS}^+ c_S,

    where the Schur complement :math:`\tilde H` is updated from step to step. Of equal gains the lower part
    comes first. Parts that are combinations of others gain nothing and come last.

    ``parts`` holds the part of every coordinate. The coordinates ``first`` are in the model before the first
    step, and their parts are not listed.
    """
    unit = np.sqrt(np.maximum(np.diag(H), 0.0))
    unit = np.divide(1.0, unit, out=np.zeros_like(unit), where=unit > 0)
    H, c = H * unit * unit[:, None], c * unit  # gains do not depend on units, but rounding would
    c = c / (np.max(np.abs(c), initial=0.0) or 1.0)  # so that squares neither under- nor overflow
    if first is not None and np.any(first):
        _sweep(H, c, np.flatnonzero(first))
        H, c, parts = H[np.ix_(~first, ~first)], c[~first], parts[~first]
    labels, part = np.unique(parts, return_inverse=True)
    if labels.size == c.size:
        by_label = np.argsort(part)
        return labels[_order_of_singles(H[np.ix_(by_label, by_label)], c[by_label])]
    return labels[_order_of_parts(H, c, part)]


def _order_of_singles(H, c):
    """The order if every coordinate is a part: a Cholesky factorization that pivots on the largest gain."""
    c, diagonal = c.copy(), np.diag(H).copy()
    rows, gain, order = np.zeros_like(H), np.empty_like(c), []
    for step in range(c.size):
        gain.fill(0.0)
        np.divide(c**2, diagonal, out=gain, where=diagonal > _DEPENDENT)
        gain[order] = -1.0
        j = int(np.argmax(gain))
        order.append(j)
        if diagonal[j] > _DEPENDENT:
            rows[step] = (H[j] - rows[:step, j] @ rows[:step]) / np.sqrt(diagonal[j])
            c -= rows[step] * (c[j] / np.sqrt(diagonal[j]))
            diagonal -= rows[step] ** 2
    return order


def _order_of_parts(H, c, part):
    """The order for parts of any sizes."""
    H, c, sizes = H.copy(), c.copy(), np.bincount(part)
    members = np.split(np.argsort(part, kind="stable"), np.cumsum(sizes)[:-1])
    alike = [np.flatnonzero(sizes == size) for size in np.unique(sizes)]
    tables = [(which, np.array([members[k] for k in which])) for which in alike]
    order, gain, taken = [], np.empty(sizes.size), np.zeros(sizes.size, dtype=bool)
    for _ in range(sizes.size):
        for which, table in tables:
            left = ~taken[which]
            gain[which[left]] = _gains(H, c, table[left])
        order.append(int(np.argmax(gain)))
        taken[order[-1]], gain[order[-1]] = True, -1.0
        _sweep(H, c, members[order[-1]])
    return order


def _gains(H, c, table):
    """Twice the gains of parts of one size; each row of ``table`` has the coordinates of one part."""
    blocks = H[table[:, :, None], table[:, None, :]]
    try:
        factor = np.linalg.cholesky(blocks)
        if np.diagonal(factor, axis1=1, axis2=2).min(initial=1.0) ** 2 > 1e3 * _DEPENDENT:
            return np.sum(np.linalg.solve(factor, c[table][:, :, None]) ** 2, axis=(1, 2))
    except np.linalg.LinAlgError:
        pass
    values, vectors = np.linalg.eigh(blocks)
    along = np.einsum("gij,gi->gj", vectors, c[table])
    return np.divide(along**2, values, out=np.zeros_like(values), where=values > _DEPENDENT).sum(axis=1)


def _sweep(H, c, j):
    """Take the coordinates j into the model: replace H and c, in place, by their Schur complements."""
    values, vectors = np.linalg.eigh(H[np.ix_(j, j)])
    real = values > _DEPENDENT
    root = vectors[:, real] / np.sqrt(values[real])
    columns = H[:, j] @ root
    c -= columns @ (root.T @ c[j])
    H -= columns @ columns.T


def order_by_size(lengths: Any) -> np.ndarray:
    """Indices by decreasing size; of equal sizes the lower index first."""
    return np.argsort(-np.asarray(lengths), kind="stable")


# -- of a fit ----------------------------------------------------------------------------------------------


@dataclass
class FitDetails:
    """What the estimators report of a fit beside its result."""

    order: np.ndarray  # step of entry of each feature, from 1; 0 if never penalized, -1 if not in the model
    deviation: np.ndarray  # of each column of X; its root mean square if there is no intercept
    eta: np.ndarray  # linear predictors of the samples


def fit_details(task: Task, result: SolverResult) -> FitDetails:
    """The order of entry, the deviations of the columns and the linear predictors of a fit of ``task``."""
    problem, design = task.problem, task.features
    outputs, norm = problem.loss.n_outputs, problem.penalty.norm
    norms, scale = design.column_norms(problem.d), design.inverse_scale
    deviation = np.divide(norms, scale, out=np.zeros_like(norms), where=scale > 0)

    theta = task.coordinates_of(result)
    eta = problem.predictor(theta)
    lengths, never = norm.lengths(theta), problem.penalty.levels(1.0) == 0
    step = np.full(norm.count, -1)
    step[never] = 0
    taken = _entered(problem, theta, eta, np.flatnonzero((lengths > 0) & ~never), never, lengths)
    step[taken] = np.arange(1, taken.size + 1)
    order = norm.spread(step)[::outputs][: (task.copies or design).shape[1]]
    if task.copies is not None:  # the first step of a group with the feature
        last = np.full(design.shape[1], norm.count)
        np.minimum.at(last, task.copies.index, np.where(order < 0, norm.count, order))
        order = np.where(last == norm.count, -1, last)
    return FitDetails(order, deviation, eta)


def _entered(problem, theta, eta, taken, never, lengths):
    """The parts in the model, in the order of entry."""
    norm = problem.penalty.norm
    parts = np.concatenate([np.flatnonzero(never), taken])
    W = norm.coordinates(parts)
    if taken.size > 1 and W.size <= LARGEST_MODEL:
        with np.errstate(all="ignore"):
            H = problem.hessian(eta, W)
            c = H @ theta[W] - _gradient(problem, theta, eta, W)
        if np.isfinite(H).all() and np.isfinite(c).all():
            label = norm.spread(np.arange(norm.count))[W]
            return forward_order(H, c, label, first=never[label])
    return taken[order_by_size(lengths[taken])]


def _gradient(problem, theta, eta, W):
    """The gradient of the smooth part on the coordinates W, which hold whole features."""
    outputs = problem.loss.n_outputs
    design = problem.design.inner if problem.loss.multi_output else problem.design
    slope = problem.loss.gradient(eta, problem.y, problem.d)
    features = W[::outputs] // outputs
    order = np.argsort(features)  # a constant comes last
    products = np.empty((features.size, *slope.shape[1:]))
    products[order] = design.restricted(features[order]).rmatvec(slope)
    return products.ravel() + problem.ridge[W] * theta[W]
