"""Which cell of a grid of scores to take."""

from __future__ import annotations

import numpy as np

from ..estimators import validation as check
from .grid import strength

RULES = ("min", "1se")


def choose(mean, std_error, hs, alphas, rule="min"):
    r"""The row and the column of the cell that a rule takes.

    ``"min"`` takes the best mean score. ``"1se"`` takes the sparsest cell whose mean score :math:`m` is not
    worse than the best, :math:`m^*`, by more than the standard error :math:`s^*` of the best:

    .. math:: \min\{h : m_{h,\alpha} \ge m^* - s^*\ \text{for some}\ \alpha\},

    and for that h the largest such alpha. Ties go to the smaller h, then to the larger alpha.

    Parameters
    ----------
    mean : array-like of shape (len(hs), len(alphas))
        Mean scores, greater is better. NaN stands for a fit that failed and is never chosen.
    std_error : array-like of the same shape, or None
        Standard errors of the means, used by ``"1se"`` alone; NaN counts as 0.
    hs : array-like of int
        The h of each row, in any order.
    alphas : list of float or "exact"
        The alpha of each column, in any order; ``"exact"`` counts as larger than any number.
    rule : {"min", "1se"}, default="min"

    Returns
    -------
    (int, int)
        The index in ``hs`` and the index in ``alphas``.

    Notes
    -----
    Scores that differ by less than 1e-12 of the best are ties: that is rounding.

    References
    ----------
    Breiman, Friedman, Olshen and Stone, Classification and regression trees (1984), for one standard error.

    Examples
    --------
    >>> from trimreg.selection import choose
    >>> mean = [[0.1, 0.3], [0.7, 0.8], [0.9, 0.85]]
    >>> error = [[0.1, 0.1], [0.1, 0.1], [0.1, 0.1]]
    >>> choose(mean, error, hs=[0, 1, 2], alphas=[1.0, 0.1])
    (2, 0)
    >>> choose(mean, error, hs=[0, 1, 2], alphas=[1.0, 0.1], rule="1se")
    (1, 1)
    """
    check.check_choice("rule", rule, RULES)
    hs = np.asarray(hs, dtype=float)
    alphas = np.array([strength(alpha) for alpha in alphas])
    mean = np.asarray(mean, dtype=float)
    if mean.shape != (hs.size, alphas.size):
        raise ValueError(
            f"mean must have shape (len(hs), len(alphas)) = {hs.size, alphas.size}; got {mean.shape}"
        )
    if np.isnan(mean).all():
        raise ValueError("mean has no score that is a number: every fit failed")
    best = np.nanmax(mean)
    slack = 1e-12 * abs(best) if np.isfinite(best) else 0.0
    row, column = _sparsest(mean >= best - slack, hs, alphas)
    if rule == "1se":
        if std_error is None or np.shape(std_error) != mean.shape:
            raise ValueError(
                f"std_error must have the shape of mean, {mean.shape}; got {np.shape(std_error)}"
            )
        error = float(np.asarray(std_error, dtype=float)[row, column])
        if error < 0:
            raise ValueError(f"std_error must be >= 0; got {error:g}")
        if error > slack and np.isfinite(best):
            row, column = _sparsest(mean >= mean[row, column] - error, hs, alphas)
    return row, column


def _sparsest(allowed, hs, alphas):
    """Of the cells that are allowed, that of the smallest h, and for that h of the largest alpha."""
    rows, columns = np.nonzero(allowed)
    first = np.lexsort((-alphas[columns], hs[rows]))[0]
    return int(rows[first]), int(columns[first])
