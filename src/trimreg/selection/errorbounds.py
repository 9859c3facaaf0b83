"""Bounds on the expected number of features that stability selection keeps by mistake."""

from __future__ import annotations

import math
from bisect import bisect_left

import numpy as np

from ..estimators import validation as check

ASSUMPTIONS = ("none", "unimodal", "r-concave")


def error_bound(q: float, p: int, threshold: float, n_pairs: int, assumption: str = "r-concave") -> float:
    r"""A bound on the expected number of kept features that are rarely selected.

    Complementary pairs stability selection fits B pairs of disjoint halves of the data and keeps the features
    that are selected in at least a fraction :math:`\tau` of the 2B fits. A feature is rarely selected if its
    probability of being selected on a random half is at most :math:`\theta = q/p`, the average over all
    features if q of p are selected. For the number V of such features that are kept, with
    :math:`t = 2\tau - 1`,

    .. math::
        \mathrm{E} V \le \frac{\theta q}{t} = \frac{q^2}{(2\tau - 1)p}, \qquad
        \mathrm{E} V \le C \theta q, \quad
        C = \begin{cases} \frac{1}{2t - 1/B} & \tau \le 3/4 \\ \frac{2(1 - t) + 2/B}{1 + 1/B} & \tau > 3/4,
        \end{cases} \qquad
        \mathrm{E} V \le p \min\{D(\theta^2, t, B, -\tfrac12),\ D(\theta, \tau, 2B, -\tfrac14)\},

    without assumptions, for a unimodal distribution, and for r-concave ones. The assumptions concern the
    fraction of pairs in which both halves select a feature and, for the second D, the fraction of the 2B
    fits. D is :func:`r_concave_tail`.

    Parameters
    ----------
    q : float
        Average number of features selected on a half, for any h if there are several.
    p : int
        Number of features.
    threshold : float in (1/2, 1]
        :math:`\tau`, rounded up to the next multiple of 1/(2B).
    n_pairs : int
        B.
    assumption : {"r-concave", "unimodal", "none"}, default="r-concave"
        Where the second bound is not proved (:math:`\theta > 1/\sqrt 3`, or :math:`\tau` close to 1/2), the
        first is used.

    Returns
    -------
    float

    References
    ----------
    Meinshausen and Bühlmann, Stability selection, Journal of the Royal Statistical Society B 72 (2010),
    theorem 1. Shah and Samworth, Variable selection with error control: another look at stability selection,
    Journal of the Royal Statistical Society B 75 (2013), theorems 1 and 2 and the bound that follows them.

    Examples
    --------
    >>> from trimreg.selection import error_bound
    >>> [round(error_bound(10, 100, 0.6, 50, name), 2) for name in ("none", "unimodal", "r-concave")]
    [5.0, 2.63, 1.14]
    """
    check.check_number("q", q, 0.0)
    check.check_number("p", p, 1, integral=True)
    if q > p:
        raise ValueError(f"q must be at most p = {p}; got {q!r}")
    check.check_choice("assumption", assumption, ASSUMPTIONS)
    count = least_count(threshold, n_pairs)
    theta, tau, t = q / p, count / (2 * n_pairs), (count - n_pairs) / n_pairs
    if assumption == "r-concave":
        pairs = r_concave_tail(theta**2, t, n_pairs, -0.5)
        return float(p * min(pairs, r_concave_tail(theta, tau, 2 * n_pairs, -0.25)))
    worst = theta * q / t
    if assumption == "unimodal":
        return float(min(worst, theta * q * _unimodal_factor(theta, tau, n_pairs)))
    return float(worst)


def least_count(threshold: float, n_pairs: int) -> int:
    """In how many of the ``2 * n_pairs`` fits a feature has to be selected to be kept."""
    check.check_number("n_pairs", n_pairs, 1, integral=True)
    check.check_number("threshold", threshold, 0.5, strict=True)
    if threshold > 1:
        raise ValueError(f"threshold must be in (1/2, 1]; got {threshold!r}")
    return max(math.ceil(2 * n_pairs * threshold - 1e-9), n_pairs + 1)


def least_threshold(max_false: float, q: float, p: int, n_pairs: int, assumption: str = "r-concave") -> float:
    """The smallest threshold whose :func:`error_bound` is at most ``max_false``; ``inf`` if there is none."""
    check.check_number("max_false", max_false, 0.0, strict=True)
    check.check_number("n_pairs", n_pairs, 1, integral=True)
    thresholds = [count / (2 * n_pairs) for count in range(n_pairs + 1, 2 * n_pairs + 1)]
    found = bisect_left(
        thresholds, True, key=lambda tau: error_bound(q, p, tau, n_pairs, assumption) <= max_false
    )
    return thresholds[found] if found < len(thresholds) else math.inf


def _unimodal_factor(theta, tau, n_pairs):
    """C of :func:`error_bound`; ``inf`` where the theorem does not apply."""
    step = 1.0 / n_pairs
    if 3 * theta**2 > 1 or tau < 0.5 + step - 1e-9:
        return math.inf
    if tau > 0.75:
        return 4 * (1 - tau + step / 2) / (1 + step)
    if tau <= min(0.5 + theta**2, 0.5 + step / 2 + 0.75 * theta**2):
        return math.inf
    return 1 / (2 * (2 * tau - 1 - step / 2))


def r_concave_tail(mean: float, t: float, size: int, r: float) -> float:
    r"""The largest tail probability of an r-concave variable with a given mean,

    .. math:: D(\eta, t, B, r) = \max\{P(X \ge t) : X \in \{0, 1/B, \dots, 1\}\ \text{r-concave},\
              \mathrm{E} X \le \eta\}.

    ``mean`` is :math:`\eta` and ``size`` is B. Probabilities f are r-concave, for r < 0, if f is positive on
    an interval and :math:`f^r` is convex there. The smaller r, the weaker the assumption: :math:`-\infty` is
    unimodal, 0 is log-concave.

    The maximum is attained by a variable on :math:`\{0, \dots, b/B\}`, :math:`b \ge tB`, for which
    :math:`f^r` is a straight line (Shah and Samworth, as in :func:`error_bound`). The mean rises with its
    slope, so for each b one slope gives the mean :math:`\eta`. It is found by bisection, for all b at once.
    Tests confirm by sampling and with a general optimizer that no r-concave variable exceeds the maximum.
    Results agree with those of the R package stabs to a few millionths of D or of 1, and are never below.
    """
    check.check_number("mean", mean, 0.0)
    check.check_number("size", size, 1, integral=True)
    check.check_number("t", t, 0.0, strict=True)
    if t > 1 or not r < 0:
        raise ValueError(f"t must be in (0, 1] and r below 0; got t={t!r} and r={r!r}")
    first = math.ceil(size * t - 1e-9)  # where the tail begins
    target = size * mean
    if target >= first or target == 0:
        return float(target > 0)
    i = np.arange(size + 1)
    last = np.arange(first, size + 1)[:, None]
    inside = i <= last
    with np.errstate(divide="ignore"):
        log_part = np.where(inside, np.log(np.where(inside, i / last, 1.0)), -np.inf)
        log_rest = np.where(inside, np.log(np.where(inside, 1.0 - i / last, 1.0)), -np.inf)

    def probabilities(slope):
        # f^r runs from exp(slope) at 0 to 1 at b: a low slope puts all mass on 0, a high one on b
        line = np.where(inside, np.logaddexp(slope + log_rest, log_part), np.inf)
        weights = np.exp((line - line.min(axis=1, keepdims=True)) / r)
        return weights / weights.sum(axis=1, keepdims=True)

    low, high = np.full(last.shape, -200.0), np.full(last.shape, 200.0)
    for _ in range(64):
        middle = (low + high) / 2
        fits = (probabilities(middle) @ i <= target)[:, None]
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return float(probabilities(low)[:, first:].sum(axis=1).max())
