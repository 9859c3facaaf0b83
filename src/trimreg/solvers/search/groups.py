r"""Exchanges of whole groups: the search of :mod:`trimreg.solvers.search.soft`, with scores for groups.

At a local minimum with active set A (free groups, penalized nonzero groups, coefficients that are never
penalized), let ``M`` be the Hessian on A, with the curvature of the penalized lengths. A free group i that
leaves costs at most

.. math:: \min\bigl(\tfrac12\, \theta_i' [(M^{-1})_{ii}]^{-1} \theta_i,\; t_i \|\theta_i\|\bigr)

(set to 0 and the rest refitted, or kept and penalized), and a group j at 0 that enters gains
:math:`\tfrac12\, g_j' s_j^{-1} g_j` with the Schur complement :math:`s_j = M_{jj} - M_{jA} M^{-1} M_{Aj}`.
These scores rank the exchanges; the exchanges that are tried are refitted, and kept only if the objective
falls.
"""

from __future__ import annotations

import numpy as np

from ..gram import inverse_factor, regularized_cholesky
from ..mm.workingset import GramSolver
from .exchange import Exchanges
from .soft import SoftSearch

_PAIRED = 8  # how many groups outside the active set are scored with every free group


class Blocks:
    """Blocks of consecutive rows, stacked for NumPy; smaller blocks are padded to the largest size."""

    def __init__(self, sizes):
        self.width = int(sizes.max(initial=1))
        start = np.cumsum(sizes) - sizes
        column = np.arange(self.width)
        self.real = column < sizes[:, None]
        self.place = np.where(self.real, start[:, None] + column, 0)

    def vectors(self, values):
        return np.where(self.real, values[self.place], 0.0)

    def of(self, matrix, pad, ridge=0.0):
        """The diagonal blocks with a relative ridge, padded by ``pad`` on their own diagonal."""
        real = self.real[:, :, None] & self.real[:, None, :]
        stacked = np.where(real, matrix[self.place[:, :, None], self.place[:, None, :]], 0.0)
        diagonal = np.arange(self.width)
        own = stacked[:, diagonal, diagonal]
        largest = own.max(axis=1, initial=0.0, keepdims=True)
        filled = np.where(self.real, own + ridge * np.where(largest > 0, largest, 1.0), pad)
        stacked[:, diagonal, diagonal] = np.where(filled > 0, filled, pad)
        return stacked

    def between(self, matrix, other, which):
        """The blocks between some of these rows and all columns of another partition."""
        rows, cols = self.place[which], other.place
        values = matrix[rows[:, None, :, None], cols[None, :, None, :]]
        return np.where(self.real[which][:, None, :, None] & other.real[None, :, None, :], values, 0.0)


def _quadratic(matrices, vectors):
    """``v' M^-1 v`` for stacks of both; M may be singular if a column is explained by others."""
    try:
        solved = np.linalg.solve(matrices, vectors[..., None])
    except np.linalg.LinAlgError:
        solved = np.linalg.pinv(matrices, hermitian=True) @ vectors[..., None]
    return np.einsum("...k,...k->...", vectors, solved[..., 0])


class GroupSearch(SoftSearch):
    """A set of free groups, its local minimum, and the exchanges that improve it.

    Takes a :class:`~trimreg.solvers.mm.workingset.GramSolver` and searches among the groups of that solver.
    """

    n_outside = 32

    def narrowed(self) -> GroupSearch:
        return self

    def exchanges(self) -> Exchanges:
        S, P, always, O = self._parts()
        norm, levels, length = self.norm, self.levels, self.norm.lengths(self.theta)
        self._active = np.concatenate([S, P, always])
        A, J = norm.coordinates(self._active), norm.coordinates(O)
        self._block = self.inner.gram.block(A)
        unit = float(np.diagonal(self._block).max(initial=0.0)) or 1.0
        half = inverse_factor(regularized_cholesky(self._hessian(P, A) / unit))
        free, outside = Blocks(norm.sizes[S]), Blocks(norm.sizes[O])

        inverse = half.T @ half / unit
        curve = np.linalg.inv(free.of(inverse, pad=1.0))
        theta = free.vectors(self.theta[A])
        to_zero = 0.5 * np.einsum("ik,ikl,il->i", theta, curve, theta)
        paid = levels[S] * length[S]
        cost = np.maximum(np.minimum(to_zero, paid), 0.0)

        cross = self.inner.gram.block(J, A)
        explained = cross @ half.T / np.sqrt(unit)
        own = self.inner.gram.block(J)
        spare = outside.of(own - explained @ explained.T, pad=1.0, ridge=1e-9)
        pull = -outside.vectors(self.gradient[J])
        entry = np.maximum(0.5 * _quadratic(spare, pull), 0.0)

        gain, partner = np.full(O.size, -np.inf), np.zeros(O.size, dtype=np.int64)
        if S.size:
            cheapest = int(np.argmin(cost))
            gain, partner = entry - cost[cheapest], np.full(O.size, cheapest, dtype=np.int64)
            best = np.argsort(-entry, kind="stable")[:_PAIRED]
            link = outside.between(cross @ inverse, free, best)
            lost = link @ curve  # the change of the pull of j with theta_i, and of its unexplained part
            pulls = pull[best, None] + np.einsum("jikl,il->jik", lost, theta)
            swap = 0.5 * _quadratic(spare[best, None] + lost @ link.swapaxes(2, 3), pulls) - to_zero
            keep = np.where(paid < to_zero, entry[best, None] - paid, -np.inf)  # i stays, penalized
            swap = np.maximum(swap, keep)
            partner[best] = np.argmax(swap, axis=1)
            gain[best] = swap.max(axis=1)
        saved = levels[P] * length[P]  # least gain of freeing a penalized group
        entry = np.append(entry, saved)
        gain = np.append(gain, saved - cost[cheapest] if S.size else np.full(P.size, -np.inf))
        partner = np.append(partner, np.full(P.size, cheapest if S.size else 0))
        self.scores = Exchanges(S, cost, np.concatenate([O, P]), entry, gain, partner)
        return self.scores

    def _pull(self, O):
        return self.norm.dual_lengths(self.gradient)[O] / self.levels[O]

    def _hessian(self, P, A):
        """The Hessian on A, with that of ``t ||theta||`` for penalized nonzero groups if q = 2."""
        hessian = self._block.copy()
        if self.norm.q == 2 and P.size:
            place = np.zeros(self.theta.size, dtype=np.intp)
            place[A] = np.arange(A.size)
            for i in P:
                j = self.norm.coordinates([i])
                direction = self.theta[j]
                length = np.linalg.norm(direction)
                curve = (np.eye(j.size) - np.outer(direction, direction) / length**2) / length
                hessian[np.ix_(place[j], place[j])] += self.levels[i] * curve
        return hessian


def eliminated(
    model: GramSolver, theta: np.ndarray, gradient: np.ndarray, parts: np.ndarray, count: int
) -> np.ndarray:
    """The ``count`` of these parts that backward elimination on the quadratic model at theta leaves.

    ``theta`` is 0 outside of the parts. The model is minimized without a penalty over the parts and the
    coefficients that are never penalized. Then the parts of least cost leave, half of the surplus at a time,
    and the rest is refitted.
    """
    norm, levels = model.norm, model.problem.penalty.levels(1.0)
    always = np.flatnonzero((levels == 0) & model.alive)
    A = norm.coordinates(np.concatenate([parts, always]))
    hessian = model.gram.block(A)
    unit = float(np.diagonal(hessian).max(initial=0.0)) or 1.0
    half = inverse_factor(regularized_cholesky(hessian / unit))
    inverse = half.T @ half / unit
    theta = inverse @ (hessian @ theta[A] - gradient[A])
    while parts.size > count:
        blocks = Blocks(norm.sizes[parts])
        own = blocks.vectors(theta)
        curve = np.linalg.inv(blocks.of(inverse, pad=1.0, ridge=1e-12))
        cost = np.einsum("ik,ikl,il->i", own, curve, own)
        leave = np.argsort(cost, kind="stable")[: (parts.size - count + 1) // 2]
        gone = np.zeros(theta.size, dtype=bool)
        gone[blocks.place[leave][blocks.real[leave]]] = True
        link = np.linalg.solve(inverse[gone][:, gone], inverse[gone][:, ~gone]).T
        theta = theta[~gone] - link @ theta[gone]
        inverse = inverse[~gone][:, ~gone] - link @ inverse[gone][:, ~gone]
        parts = np.delete(parts, leave)
    return parts
