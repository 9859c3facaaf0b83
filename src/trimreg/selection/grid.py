"""The values of h, alpha and l2 that a search tries, and the rule that chooses one cell of the grid."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..estimators import validation as check
from ..penalties import count_from

RULES = ("min", "1se", "paired")


def auto_hs(
    n: int, p: int, *, max_h: int | None = None, dense_up_to: int = 10, growth: float = 1.25,
    shrunk: bool = False,
) -> np.ndarray:  # fmt: skip
    r"""Model sizes to try: 0, 1, 2, ..., at first every integer, then by a constant factor, up to

    .. math:: \min\Bigl(p,\ n - 2,\
              \max\Bigl(\frac{n}{\log(\log n) \log p},\ \min(30, n / 3)\Bigr)\Bigr),

    but at least 1. Beyond about the first of the two sizes, the features of the best subset can no longer be
    distinguished from those that fit by chance. With few samples it is so small that it would make the choice
    instead of the data, hence the second. Each logarithm counts as at least 1. n - 2 leaves one degree of
    freedom for the noise, besides the intercept. With a ridge term larger models predict well, and the second
    size is :math:`\min(200, \max(60, n / 2))`.

    Parameters
    ----------
    n, p : int
        Number of samples and of features.
    max_h : int, optional
        The largest size, instead of the formula; at most p.
    dense_up_to : int, default=10
        Every size up to this is tried.
    growth : float, default=1.25
        Factor from one size to the next after that; the last step may be smaller.
    shrunk : bool, default=False
        Whether the models have a ridge term.

    Returns
    -------
    ndarray of int
        Increasing, from 0 to the largest size.

    References
    ----------
    Zhu, Wen, Zhu, Zhang and Wang, A polynomial algorithm for best-subset selection problem, PNAS 117 (2020),
    for the first size; abess uses it.

    Examples
    --------
    >>> from trimreg.selection import auto_hs
    >>> auto_hs(n=200, p=1000)
    array([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 12, 15, 18, 22, 27, 30])
    """
    check.check_number("n", n, 1, integral=True)
    check.check_number("p", p, 1, integral=True)
    check.check_number("dense_up_to", dense_up_to, 0, integral=True)
    check.check_number("growth", growth, 1.0, strict=True)
    if max_h is None:
        logs = max(math.log(max(math.log(n), 1.0)), 1.0) * max(math.log(p), 1.0)
        few = min(200, max(60, int(n) // 2)) if shrunk else min(30, int(n) // 3)
        last = min(int(p), max(1, min(int(n) - 2, max(int(n / logs), few))))
    else:
        last = int(check.check_number("max_h", max_h, 0, integral=True))
        if last > p:
            raise ValueError(f"max_h must be at most the number of features {p}; got {max_h!r}")
    sizes = list(range(min(int(dense_up_to), last) + 1))
    while sizes[-1] < last:
        sizes.append(min(last, max(sizes[-1] + 1, int(sizes[-1] * growth))))
    return np.array(sizes)


def alpha_grid(alpha_max: float, n_alphas: int = 21, eps: float = 1e-3) -> np.ndarray:
    """Geometric grid of ``n_alphas`` values from ``alpha_max`` down to ``eps * alpha_max``.

    An ``alpha_max`` of 0, as for a constant target, is replaced by 1e-15.

    Parameters
    ----------
    alpha_max : float
    n_alphas : int, default=21
    eps : float in (0, 1), default=1e-3

    Returns
    -------
    ndarray of shape (n_alphas,)

    Examples
    --------
    >>> from trimreg.selection import alpha_grid
    >>> alpha_grid(2.0, n_alphas=4)
    array([2.   , 0.2  , 0.02 , 0.002])
    """
    check.check_number("alpha_max", alpha_max, 0.0)
    check.check_number("n_alphas", n_alphas, 1, integral=True)
    check.check_number("eps", eps, 0.0, strict=True)
    if eps >= 1:
        raise ValueError(f"eps must be below 1; got {eps!r}")
    largest = float(alpha_max) if alpha_max > 0 else float(np.finfo(float).resolution)
    return largest * np.geomspace(1.0, eps, n_alphas)


def check_hs(hs: Any, n: int, p: int, of: str = "the number of features", shrunk: bool = False) -> np.ndarray:
    """``hs`` as distinct integers in increasing order.

    Parameters
    ----------
    hs : "auto", number or sequence of numbers
        ``"auto"`` is :func:`auto_hs`. Numbers are integers from 0 to p, or fractions of p in (0, 1).
    n, p : int
        Number of samples and of features.
    of : str
        The name of p in error messages.
    shrunk : bool, default=False
        As in :func:`auto_hs`.

    Returns
    -------
    ndarray of int

    Examples
    --------
    >>> from trimreg.selection import check_hs
    >>> check_hs([5, 0.25, 2, 5], n=100, p=12)
    array([2, 3, 5])
    """
    if isinstance(hs, str) and hs == "auto":
        return auto_hs(n, p, shrunk=shrunk)
    if isinstance(hs, str):
        raise ValueError(f"hs must be 'auto' or numbers; got {hs!r}")
    return np.unique([count_from(h, p, f"hs[{i}]", of) for i, h in enumerate(_listed("hs", hs))])


def check_alphas(alphas: Any) -> Any:
    """``alphas`` in decreasing order without repetitions; ``"exact"`` counts as largest and comes first.

    Parameters
    ----------
    alphas : "auto", "exact", number or sequence of numbers and "exact"
        Numbers have to be finite and nonnegative.

    Returns
    -------
    "auto" or list of float and "exact"
        ``"auto"`` is returned as it is, because its values depend on the data: see :func:`alpha_grid`.

    Examples
    --------
    >>> from trimreg.selection import check_alphas
    >>> check_alphas([0.1, "exact", 1, 0.1])
    ['exact', 1.0, 0.1]
    """
    if isinstance(alphas, str):
        if alphas not in ("auto", "exact"):
            raise ValueError(f"alphas must be 'auto', 'exact' or numbers; got {alphas!r}")
        return alphas if alphas == "auto" else [alphas]
    found = set()
    for i, alpha in enumerate(_listed("alphas", alphas)):
        try:
            found.add(check.check_alpha(alpha))
        except ValueError:
            raise ValueError(f"alphas[{i}] must be 'exact' or a finite number >= 0; got {alpha!r}") from None
    return sorted(found, key=strength, reverse=True)


def check_l2s(l2s: Any) -> Any:
    """``l2s`` in increasing order without repetitions.

    Parameters
    ----------
    l2s : "auto", number or sequence of numbers
        Numbers have to be finite and nonnegative.

    Returns
    -------
    "auto" or list of float
        ``"auto"`` is returned as it is, because its values depend on the data: see :func:`l2_grid`.

    Examples
    --------
    >>> from trimreg.selection.grid import check_l2s
    >>> check_l2s([1, 0.1, 0, 1.0])
    [0.0, 0.1, 1.0]
    """
    if isinstance(l2s, str):
        if l2s != "auto":
            raise ValueError(f"l2s must be 'auto' or numbers; got {l2s!r}")
        return l2s
    if isinstance(l2s, numbers.Real):
        return [float(check.check_number("l2s", l2s, 0.0))]
    return sorted(
        {float(check.check_number(f"l2s[{i}]", l2, 0.0)) for i, l2 in enumerate(_listed("l2s", l2s))}
    )


def l2_grid(unit: float = 1.0, least: float = 0.0) -> np.ndarray:
    """``least`` and ridge terms from 0.01 to 3, times ``unit``, the curvature of the loss in a coefficient.

    On real data with columns of deviation one, the best ridge for least squares grew with h from about 0.03
    to 1.

    Parameters
    ----------
    unit : float, default=1.0
    least : float, default=0.0

    Returns
    -------
    ndarray of shape (7,)

    Examples
    --------
    >>> from trimreg.selection.grid import l2_grid
    >>> l2_grid().tolist()
    [0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0]
    """
    check.check_number("unit", unit, 0.0, strict=True)
    check.check_number("least", least, 0.0)
    return float(unit) * np.array([float(least), 0.01, 0.03, 0.1, 0.3, 1.0, 3.0])


def strength(alpha: Any) -> float:
    """The number to compare alphas by: ``"exact"`` is larger than any number."""
    return math.inf if isinstance(alpha, str) and alpha == "exact" else float(alpha)


def _listed(name, values):
    """``values`` as a nonempty list; a number becomes a list of one."""
    if isinstance(values, numbers.Real):
        return [values]
    if not hasattr(values, "__iter__") or hasattr(values, "keys") or getattr(values, "ndim", 1) != 1:
        raise ValueError(f"{name} must be a list of numbers; got {values!r}")
    listed = list(values)
    if not listed:
        raise ValueError(f"{name} must not be empty")
    return listed


def choose(
    scores: ArrayLike, hs: ArrayLike, alphas: Sequence, rule: str = "min", repeats: float = 1.0
) -> tuple[int, ...]:
    r"""The row and column of the cell of a grid that a rule chooses from the scores of the folds.

    Let :math:`m` be the mean scores and :math:`m^*` the best of them.

    ``"min"`` chooses the best mean score.

    ``"1se"`` chooses the sparsest cell whose mean score is within one standard error :math:`s^*` of the best:

    .. math:: \min\{h : m_{h,\alpha} \ge m^* - s^*\ \text{for some}\ \alpha\},

    and the largest such alpha for that h.

    ``"paired"`` prefers the two edges of the grid on which only one parameter is chosen: the smallest h (the
    lasso, if that is 0) and the largest alpha (best subsets, if that is ``"exact"``). It takes the best cell
    of the edges, unless the best of all cells is better by more than the standard error of the paired
    differences of their scores over the folds. On few samples the best of hundreds of cells is mostly the
    luckiest. On a grid with one h or one alpha, and for a single fold, it is the same as ``"min"``.

    Ties go to the smaller h, then to the larger alpha. If there are several ridge terms, every h and alpha
    takes the one with the best mean score, and the rule chooses among these cells.

    Parameters
    ----------
    scores : array-like of shape (len(hs), len(alphas), n_folds) or (len(hs), len(alphas), n_l2s, n_folds)
        Greater is better, such as ``score_path_`` of a fitted model. NaN means that a fit failed; such a cell
        is never chosen.
    hs : array-like of int
        The h of each row, in any order.
    alphas : list of float or "exact"
        The alpha of each column, in any order; ``"exact"`` counts as larger than any number.
    rule : {"min", "1se", "paired"}, default="min"
    repeats : float, default=1.0
        How often the folds test a sample. Folds that test all samples ``repeats`` times have the same samples
        behind them as one round of folds. So a standard error is the deviation over the folds, divided by the
        root of the number of folds in one round.

    Returns
    -------
    (int, int) or (int, int, int)
        The index in ``hs`` and the index in ``alphas``, and that of the ridge term if scores has this axis.

    Notes
    -----
    Scores that differ by less than 1e-12 of the best are ties, because that is rounding. So are the squared
    errors of perfect fits, and scores that differ by less than 1e-24 of the score of the sparsest cell.

    References
    ----------
    Breiman, Friedman, Olshen and Stone, Classification and regression trees (1984), for one standard error.

    Examples
    --------
    >>> from trimreg.selection import choose
    >>> scores = [[[0.0, 0.25], [0.25, 0.5]], [[0.5, 0.75], [0.5, 1.0]], [[0.75, 1.0], [1.25, 0.75]]]
    >>> [choose(scores, hs=[0, 1, 2], alphas=[1.0, 0.1], rule=rule) for rule in ("min", "1se", "paired")]
    [(2, 1), (1, 1), (2, 0)]
    """
    check.check_choice("rule", rule, RULES)
    hs = np.asarray(hs, dtype=float)
    alphas = np.array([strength(alpha) for alpha in alphas])
    scores = np.asarray(scores, dtype=float)
    if scores.ndim not in (3, 4) or scores.shape[:2] != (hs.size, alphas.size) or not scores.size:
        shape = f"({hs.size}, {alphas.size}, n_folds) or ({hs.size}, {alphas.size}, n_l2s, n_folds)"
        raise ValueError(f"scores must have shape {shape} for these hs and alphas; got {scores.shape}")
    if scores.ndim == 3:
        return _choose(scores, hs, alphas, rule, repeats)
    ridge = _best_ridge(scores)
    profile = np.take_along_axis(scores, ridge[:, :, None, None], axis=2)[:, :, 0]
    i, j = _choose(profile, hs, alphas, rule, repeats)
    return i, j, int(ridge[i, j])


def _best_ridge(scores):
    """The first of the best ridge terms of every cell."""
    with np.errstate(invalid="ignore"):
        mean = scores.mean(axis=3)
    mean = np.where(np.isnan(mean), -np.inf, mean)
    top = mean.max(axis=2, keepdims=True)
    with np.errstate(invalid="ignore"):
        return np.argmax(mean >= top - np.where(np.isfinite(top), 1e-12 * np.abs(top), 0.0), axis=2)


def _choose(scores, hs, alphas, rule, repeats):
    """:func:`choose` for scores of shape (len(hs), len(alphas), n_folds)."""
    with np.errstate(invalid="ignore"):
        mean = scores.mean(axis=2)
    if np.isnan(mean).all():
        raise ValueError("scores must not all be NaN: every fit failed")
    rounding = 1e-24 * _size(mean[_sparsest(~np.isnan(mean), hs, alphas)])
    best = _best(mean, hs, alphas, rounding)
    if rule == "min" or scores.shape[2] == 1 or not np.isfinite(mean[best]):
        return best
    if rule == "1se":
        error = _standard_error(scores[best], repeats)
        within = mean >= mean[best] - error
        return _sparsest(within, hs, alphas) if error > max(1e-12 * _size(mean[best]), rounding) else best
    on_edge = (hs[:, None] == hs.min()) | (alphas == alphas.max())
    if np.isnan(mean[on_edge]).all():
        return best
    simple = _best(np.where(on_edge, mean, np.nan), hs, alphas, rounding)
    difference = scores[best] - scores[simple]
    lucky = difference.mean() <= _standard_error(difference, repeats)  # false if an edge is infinitely bad
    return simple if lucky else best


def _best(mean, hs, alphas, rounding):
    """The best mean score; of ties the sparsest."""
    top = np.nanmax(mean)
    return _sparsest(mean >= top - max(1e-12 * _size(top), rounding), hs, alphas)


def _size(score):
    return abs(score) if np.isfinite(score) else 0.0


def _standard_error(values, repeats):
    """Of the mean of values over the folds."""
    with np.errstate(invalid="ignore"):
        return float(values.std(ddof=1) * np.sqrt(repeats / values.size))


def _sparsest(allowed, hs, alphas):
    """The allowed cell with the smallest h, and with the largest alpha for that h."""
    rows, columns = np.nonzero(allowed)
    first = np.lexsort((-alphas[columns], hs[rows]))[0]
    return int(rows[first]), int(columns[first])
