r"""Scores of all exchanges of one free coefficient for another, within bounds (least squares).

Without i, the other free coefficients A are refitted within their bounds, with residual r. Let j enter. The
residual sum of squares less the linear terms of the multipliers of A is a lower bound of it over the bounds,
and least where A moves freely. So, with ``s_j`` the squared norm of what A does not explain of ``z_j``, j
gains at most

.. math:: \max_{l_j \le x \le u_j}\; x\, z_j' D r - \tfrac12 s_j x^2,

and exactly this if A stays within its bounds. Swaps are refitted by SciPy's ``lsq_linear`` in the order of
these scores, until none is left that could gain more than the best of those.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import lsq_linear

_SPARE = 1e-12  # of a column's square: less left unexplained may be nothing
_REFITS = 300  # more are not made, and the answer is not exact


class BoundedSwaps:
    """The swaps from a point with at most h nonzeros, for an alpha above the exact-penalty threshold."""

    def __init__(self, point: Any, target: np.ndarray):
        self.point, self.columns, self.bounds = point, point.data.columns, point.bounds
        self.theta, factor = point.clean_theta, point.factor
        alive = self.columns.norms > 0
        self.regular = (factor > 0) & np.isfinite(factor) & alive
        self.free, self.never = (
            np.flatnonzero(self.regular & (self.theta != 0)),
            np.flatnonzero((factor == 0) & alive),
        )
        self.root, self.target = np.sqrt(point.data.d), target
        self.value = self._refit(np.append(self.free, self.never))[1]

    def _refit(self, A):
        """``(weighted residual, value, weighted columns)`` of the fit on A within the bounds."""
        # A ridge is a row of its own below each column.
        Z = np.vstack([self.columns.dense(A) * self.root[:, None], np.diag(np.sqrt(self.point.ridge[A]))])
        rest = np.append(self.root * self.target, np.zeros(A.size))
        low, high = (end[A] for end in self.bounds)
        fixed = low == high
        rest = rest - Z[:, fixed] @ low[fixed]
        if not fixed.all():
            box = low[~fixed], high[~fixed]
            rest = rest - Z[:, ~fixed] @ lsq_linear(Z[:, ~fixed], rest, box, method="bvls", tol=1e-14).x
        return rest[: self.root.size], 0.5 * float(rest @ rest), Z

    def best(self, floor: float) -> tuple[float, int | None, int | None, bool]:
        """``(gain, leaves, enters, exact)`` of the best swap, as :class:`Swap` has them."""
        leaving = [None] if self.free.size < self.point.penalty.n_free else self.free.tolist()
        best, found = -np.inf, list[tuple]()
        for i in leaving:
            score, j = self._scores(np.append(self.free[self.free != i], self.never))
            best = max(best, float(score.max(initial=-np.inf)))
            above = score > floor
            found += zip(score[above].tolist(), [i] * int(above.sum()), j[above].tolist(), strict=True)
        found.sort(key=lambda swap: -swap[0])
        gain, swap, count = floor, (None, None), 0
        for score, i, j in found:
            if score <= gain or count == _REFITS:
                break
            kept, count = self.free[self.free != i], count + 1
            fall = self.value - self._refit(np.concatenate([kept, [j], self.never]))[1]
            if fall > gain:
                gain, swap = fall, (i, j)
        exact = count < _REFITS
        if swap[1] is None:  # every score above the floor is refuted by its refit
            return min(best, 0.0 if found else best) if np.isfinite(best) else 0.0, None, None, exact
        return gain, *swap, exact

    def _scores(self, A):
        """The scores of all columns that may enter beside A, and these columns."""
        residual, value, Z = self._refit(A)
        left, values, _ = np.linalg.svd(Z, full_matrices=False)
        basis = left[: self.root.size, values > 1e-9 * values.max(initial=0.0)]
        probe = self.root[:, None] * np.column_stack([basis, residual])
        product = np.concatenate([self.columns.transposed(probe, block) for block in self.columns.blocks()])
        own = self.columns.norms**2 + self.point.ridge
        spare = np.maximum(own - np.sum(product[:, :-1] ** 2, axis=1), _SPARE * own)
        outside = self.regular.copy()
        outside[A] = outside[self.free] = False
        j = np.flatnonzero(outside)
        c, s = product[j, -1], spare[j]
        x = np.clip(c / s, self.bounds[0][j], self.bounds[1][j])
        return x * (c - 0.5 * s * x) - (value - self.value), j
