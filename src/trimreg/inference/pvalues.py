"""Many tests at once: aggregation over splits, and which hypotheses to reject."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import false_discovery_control

from ..estimators import validation as check
from .base import check_share


def adaptive_quantile(pvalues: ArrayLike, gamma_min: float = 0.05) -> np.ndarray:
    r"""One p-value per hypothesis from those of several random splits, by the best of their quantiles,

    .. math:: P_j = \min\Bigl\{1,\ (1 - \log \gamma_{\min})
              \inf_{\gamma \in [\gamma_{\min}, 1]} q_\gamma(P_j^{(1)}, \dots, P_j^{(B)}) / \gamma\Bigr\},

    with :math:`q_\gamma` the empirical quantile, the smallest value that a share :math:`\gamma` does not
    exceed. It is a valid p-value however the splits depend on each other.

    Parameters
    ----------
    pvalues : array-like of shape (n_splits, n_hypotheses)
    gamma_min : float in (0, 1), default=0.05

    Returns
    -------
    ndarray of shape (n_hypotheses,)

    References
    ----------
    Meinshausen, Meier and Bühlmann, p-values for high-dimensional regression, JASA 104 (2009), (2.3).

    Examples
    --------
    >>> from trimreg.inference import adaptive_quantile
    >>> adaptive_quantile([[0.001, 0.9], [0.002, 0.1], [0.003, 1.0], [0.5, 0.3]]).round(4)
    array([0.016, 1.   ])
    """
    values = np.asarray(check.check_real("pvalues", pvalues), dtype=float)
    if values.ndim != 2 or not values.shape[0] or not np.all((values >= 0) & (values <= 1)):
        raise ValueError("pvalues must be a matrix of numbers from 0 to 1, one row per split")
    counts, price = quantile_counts(len(values), check_share("gamma_min", gamma_min))
    ranked = np.sort(values, axis=0)[counts - 1]
    return np.minimum(1.0, price * np.min(ranked / (counts / len(values))[:, None], axis=0))


def quantile_counts(n_splits: int, gamma_min: float) -> tuple[np.ndarray, float]:
    """The numbers of splits whose shares are quantiles to try, and the factor for trying several.

    A single split has nothing to try.
    """
    if n_splits == 1:
        return np.array([1]), 1.0
    first = int(np.ceil(gamma_min * n_splits - 1e-9))
    return np.arange(max(first, 1), n_splits + 1), 1.0 - float(np.log(gamma_min))


def aggregated_intervals(
    low: np.ndarray, high: np.ndarray, counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The intervals of values that no quantile of the splits' tests rejects.

    ``low[k, b]`` and ``high[k, b]`` (with more axes for features) are the interval of split b at the level at
    which quantile ``counts[k]`` is compared. A value is rejected if the intervals of at least ``counts[k]``
    splits exclude it, for some k. The smallest interval that holds all other values of each k is taken; it is
    empty, NaN, if every value is rejected.
    """
    lows, highs = np.full(low.shape[2:], -np.inf), np.full(low.shape[2:], np.inf)
    n_splits = low.shape[1]
    for l, u, count in zip(low, high, counts, strict=True):
        inside = (l[None] <= l[:, None]) & (l[:, None] <= u[None])  # of the intervals, at every lower end
        enough = inside.sum(axis=1) > n_splits - count
        lows = np.maximum(lows, np.where(enough, l, np.inf).min(axis=0))
        inside = (l[None] <= u[:, None]) & (u[:, None] <= u[None])
        enough = inside.sum(axis=1) > n_splits - count
        highs = np.minimum(highs, np.where(enough, u, -np.inf).max(axis=0))
    empty = lows > highs
    return np.where(empty, np.nan, lows), np.where(empty, np.nan, highs)


def dependent_bh(pvalues: np.ndarray) -> np.ndarray:
    """Adjusted p-values of Benjamini and Yekutieli (2001), which hold under any dependence.

    ``pvalues`` are already multiplied by the number of tests, as those of :func:`adaptive_quantile` over
    corrected tests are; one of 1 may stand for any larger number, and is never rejected (Meinshausen, Meier
    and Bühlmann 2009, section 3.3).
    """
    return false_discovery_control(np.where(pvalues < 1, pvalues / pvalues.size, 1.0), method="by")


def e_bh(evalues: ArrayLike, q: float) -> np.ndarray:
    r"""The hypotheses that e-values reject with a false discovery rate of at most q: a mask.

    The k largest are rejected, for the largest k such that the k-th largest of the p e-values is at least
    :math:`p / (q k)`. E-values may depend on each other.

    Parameters
    ----------
    evalues : array-like of shape (n_hypotheses,)
        Nonnegative, with a mean of at most 1 under the null hypothesis (or in sum at most their number).
    q : float in (0, 1)

    Returns
    -------
    ndarray of bool

    References
    ----------
    Wang and Ramdas, False discovery rate control with e-values, Journal of the Royal Statistical Society B 84
    (2022).

    Examples
    --------
    >>> from trimreg.inference import e_bh
    >>> e_bh([30.0, 1.0, 25.0, 0.0], q=0.1)
    array([ True, False,  True, False])
    """
    values = np.asarray(check.check_real("evalues", evalues), dtype=float)
    if values.ndim != 1 or not np.all(values >= 0):
        raise ValueError("evalues must be a vector of numbers >= 0")
    p, order = values.size, np.argsort(-values, kind="stable")
    rank = np.arange(1, p + 1)
    reached = np.flatnonzero(values[order] * rank * check_share("q", q) >= p * (1 - 1e-12))
    rejected = np.zeros(p, dtype=bool)
    rejected[order[: reached[-1] + 1 if reached.size else 0]] = True
    return rejected
