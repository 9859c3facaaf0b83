"""Cox's proportional hazards model for survival times."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import numpy as np

from .base import Loss, require, require_finite, slopes_vanish
from .poisson import exp

_TIES = ("efron", "breslow")
_ELEMENTS = 1 << 22  # elements of streamed columns in memory at a time: 32 MiB
_WORKED_ON = 7  # float64 vectors in memory per column
_RANGE = 600.0  # exponents in a range of this length do not overflow on a common scale


class Cox(Loss):
    r"""Minus the log partial likelihood, divided by the total weight; y has the columns time and event.

    An event is 1, a censored time 0. With Efron's ties and weights :math:`w_i = d_i / \sum_j d_j^2` (1 for
    equal weights),

    .. math:: L(\eta) = -\sum_{i\,\text{event}} d_i \eta_i + \sum_{t} \bar d_t \sum_{l=0}^{m_t - 1}
              \log\Bigl(\sum_{j:\,t_j \ge t} w_j e^{\eta_j} - \tfrac{l}{m_t}
              \sum_{j \in D_t} w_j e^{\eta_j}\Bigr),

    where :math:`D_t` are the :math:`m_t` events of positive weight at t and :math:`\bar d_t` is the mean of
    their weights d. With Breslow's ties the fraction :math:`l/m_t` is 0. This is the weighting of R's
    ``coxph`` and of lifelines (Therneau and Grambsch, Modeling Survival Data, 2000, section 3.3); for equal
    weights ``n L`` is minus their log-likelihood. A bound loss keeps its target sorted, so that every method
    costs O(n).

    Parameters
    ----------
    ties : {"efron", "breslow"}

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.losses import Cox
    >>> y, d = np.array([[1.0, 1.0], [2.0, 0.0], [3.0, 1.0]]), np.full(3, 1 / 3)
    >>> loss = Cox().bound(y, d)
    >>> round(3 * loss.value(np.zeros(3), y, d), 6)  # log 3 for the first event, log 1 for the last
    1.098612
    """

    name = "cox"
    working_vectors = 34
    copies_columns = True
    matrix_target = True
    separable = False
    sees_constants = False
    may_diverge = True

    def __init__(self, ties: str = "efron"):
        if ties not in _TIES:
            raise ValueError(f"ties must be one of {list(_TIES)}; got {ties!r}")
        self.ties = ties
        self._sorted: tuple[np.ndarray, _Sorted] | None = None

    def check_target(self, y: np.ndarray) -> None:
        if y.ndim != 2 or y.shape[1] != 2:
            raise ValueError(f"y must have the two columns time and event; got shape {y.shape}")
        require_finite(y, n_dimensions=2)
        time, event = np.array([True, False]), np.array([False, True])
        require(y, (y >= 0) | event, "have times >= 0")
        require(y, (y == 0) | (y == 1) | time, "have events 0 or 1")
        _require_event(y[:, 1])

    def bound(self, y: np.ndarray, d: np.ndarray) -> Loss:
        _require_event(y[d > 0, 1])
        other = copy.copy(self)
        other._sorted = (y, sort_by_time(y))
        return other

    def _terms(self, eta, y, d) -> _Terms:
        """The terms of the formulas. A target other than the bound one is sorted first."""
        known = None if self._sorted is None or self._sorted[0] is not y else self._sorted[1]
        return partial_likelihood_terms(sort_by_time(y) if known is None else known, eta, d, self.ties)

    def inverse_link(self, eta: np.ndarray) -> np.ndarray:
        """The hazard relative to that of predictor 0."""
        return exp(eta)

    def value(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> float:
        t = self._terms(eta, y, d)
        return float(t.mean_weight @ (t.log_rest + t.log_unit) - t.weight[t.dead] @ t.eta[t.dead])

    def pointwise(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray | None = None) -> np.ndarray:
        r"""Derivative of the unnormalized loss with respect to the weight :math:`w_i` of the sample.

        To first order the loss falls by this much without the sample: its own term if it has an event, and
        its share in the risk sets. A sample of weight 0 counts as at risk with weight 1 in its own term.
        """
        d = np.full(len(y), 1.0 / len(y)) if d is None else d
        t = self._terms(eta, y, d)
        own = np.logaddexp(t.log_risk[t.group] + t.log_unit, t.eta)
        if t.dead.size:
            counts = np.bincount(t.dead_group, minlength=len(t.log_risk))
            sums = np.bincount(t.dead_group, t.log_rest + t.log_unit, minlength=len(t.log_risk))
            alive = t.weight > 0
            own[alive] = (sums / np.maximum(counts, 1))[t.group[alive]]
        losses = exp(t.eta + t.log_hazard()) + np.where(t.event, own - t.eta, 0.0)
        return t.unsorted(losses)

    def gradient(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        t = self._terms(eta, y, d)
        slope = np.exp(t.log_weight + t.log_hazard())
        weight = t.weight[t.dead]
        rest = slope[t.dead] - weight
        # An event without others at risk has slope 0; rounding must not turn it into a direction.
        slope[t.dead] = np.where(np.abs(rest) <= 1e-14 * weight, 0.0, rest)
        return t.unsorted(slope)

    def curvature(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        """The shares of the samples in the risk sets: a diagonal upper bound of the Hessian."""
        t = self._terms(eta, y, d)
        return t.unsorted(np.exp(t.log_weight + t.log_hazard()))

    def gram(self, design: Any, W: np.ndarray, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> np.ndarray:
        r"""Exact, with ties. The Hessian is

        .. math:: \mathrm{diag}(a) - \sum_{t,l} \bar d_t\, \pi_{tl} \pi_{tl}',

        with a the :meth:`curvature` and :math:`\pi_{tl}` the probabilities that the samples at risk are the
        next event; their products with the columns are means over risk sets, computed by cumulative sums.
        Risk sets do not follow the rows, so streamed columns are read into memory, a few at a time. If there
        is no room for them, the Hessian is replaced by an upper bound with a single
        :math:`\pi = a / \sum a`, which takes one pass.
        """
        t = self._terms(eta, y, d)
        if not t.dead.size:
            return np.zeros((len(W), len(W)))
        a = np.exp(t.log_weight + t.log_hazard())
        if not design.streamed:
            Z, means = _with_means(t, a, design.columns(W))
            return Z.T @ (a[:, None] * Z) - means.T @ (t.mean_weight[:, None] * means)
        if len(W) > design.room:
            gram, sums = design.gram_and_sums(W, t.unsorted(a))
            return gram - np.outer(sums, sums) / a.sum()
        # The copies take as much memory again as the columns that are kept.
        room = min(design.room, _ELEMENTS) * np.dtype(design.dtype).itemsize
        step = max(1, int(min(room // (8 * _WORKED_ON), _ELEMENTS // len(a))))
        return _gram_by_columns(t, a, design.restricted(W), step)

    def slope_bound_from(self, start: np.ndarray, y: np.ndarray, d: np.ndarray) -> float:
        r""":math:`\sqrt{m + m^2 / \min d}`, m the weight of all events, min d the smallest weight at risk.

        It holds at every eta, so the start does not count. The gradient is :math:`a_i - d_i` for an event and
        :math:`a_i` else, with :math:`a \ge 0` and :math:`\sum a_i = m`. So :math:`g_i^2 \le a_i^2 + d_i^2`,
        and :math:`\sum a_i^2 / d_i \le m^2 / \min d`. A sample that is censored before
        the first event has a = 0.
        """
        dead = (d > 0) & (y[:, 1] > 0)
        mass = float(d[dead].sum())
        if mass == 0:
            return 0.0
        at_risk = (d > 0) & (y[:, 0] >= y[dead, 0].min())
        return float(np.sqrt(mass + mass**2 / d[at_risk].min()))

    def trouble(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> str:
        if not slopes_vanish(self, eta, y, d):
            return ""
        return (
            "the features order the events without error (monotone likelihood), so that coefficients without "
            "a penalty grow without end; give l2 > 0 or a smaller h"
        )

    def baseline(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        r"""The event times and the cumulative hazard of predictor 0 at them, by Breslow's estimator.

        .. math:: \Lambda(t) = \sum_{s \le t} \frac{\sum_{i \in D_s} d_i}{\sum_{j:\,t_j \ge s} d_j e^{\eta_j}}

        The survival function of a sample is :math:`\exp(-\Lambda(t) e^\eta)` (N. Breslow in the discussion of
        Cox 1972, Journal of the Royal Statistical Society B 34).
        """
        t = self._terms(eta, y, d)
        mass = np.bincount(t.dead_group, t.weight[t.dead], minlength=len(t.log_risk))
        groups = np.flatnonzero(mass)
        times = y[t.order[t.starts[groups]], 0]
        with np.errstate(over="ignore"):
            return times, np.cumsum(exp(np.log(mass[groups]) - t.log_risk[groups]))


def _with_means(t: _Terms, a, Z):
    """The columns Z, sorted by time and centered, and their means over the risk sets of the terms."""
    Z = Z[t.order]
    Z -= a @ Z / a.sum()  # the Hessian does not see constants, and small means lose few digits
    means = risk_set_means(Z, t.log_weight, t.log_risk_from)[t.starts[t.dead_group]]
    of_dead = Z[t.dead] * np.exp(t.log_weight[t.dead] - t.log_risk[t.dead_group])[:, None]
    first = t.first_dead()
    tied = np.repeat(np.add.reduceat(of_dead, first, axis=0), np.diff(first, append=t.dead.size), axis=0)
    del of_dead  # as long as the columns
    tied *= t.fraction[:, None]
    means -= tied
    means *= np.exp(t.log_risk[t.dead_group] - t.log_rest)[:, None]
    return Z, means


def _gram_by_columns(t: _Terms, a, design, step):
    """The Hessian for all columns of the design, with two groups of ``step`` columns in memory."""
    p = design.shape[1]
    groups = [np.arange(start, min(start + step, p)) for start in range(0, p, step)]
    gram = np.empty((p, p))
    for i, left in enumerate(groups):
        weighted, means = _with_means(t, a, design.columns(left))
        weighted *= a[:, None]
        means *= t.mean_weight[:, None]
        for right in groups[i:]:
            Z, others = _with_means(t, a, design.columns(right))
            gram[np.ix_(left, right)] = weighted.T @ Z - means.T @ others
            del Z, others  # before there are the next
            gram[np.ix_(right, left)] = gram[np.ix_(left, right)].T
    return gram


def _require_event(event):
    if not np.any(event > 0):
        raise ValueError(
            "y must have at least one event of positive weight (a positive time, or 1 in the second column); "
            "got none"
        )


class _Sorted(NamedTuple):
    """The samples by time; a group is a set of tied times."""

    order: np.ndarray  # of the samples, by time
    event: np.ndarray
    group: np.ndarray  # of every sample
    starts: np.ndarray  # of the groups


def sort_by_time(y: np.ndarray) -> _Sorted:
    """The order of the times and their ties."""
    order = np.argsort(y[:, 0], kind="stable")
    time = y[order, 0]
    new = np.append(True, time[1:] != time[:-1])
    return _Sorted(order, y[order, 1] > 0, np.cumsum(new) - 1, np.flatnonzero(new))


class _Terms(NamedTuple):
    """The terms of the partial likelihood, with samples sorted by time and large numbers as logarithms."""

    order: np.ndarray
    group: np.ndarray  # of a sample
    starts: np.ndarray  # of a group
    event: np.ndarray  # of a sample, whatever its weight
    eta: np.ndarray
    weight: np.ndarray  # d
    log_weight: np.ndarray  # log d + eta
    log_unit: float  # log of w / d
    log_risk_from: np.ndarray  # log sum of d e^eta from this sample on
    log_risk: np.ndarray  # the same for the risk set of a group
    dead: np.ndarray  # the events of positive weight; the following have one entry for each
    dead_group: np.ndarray
    fraction: np.ndarray  # l / m
    mean_weight: np.ndarray
    log_rest: np.ndarray  # log of the risk set less that fraction of the dead

    def log_hazard(self):
        """For each sample, the log of the sum of the hazards of all terms of events up to its time.

        A term of its own tie counts ``1 - fraction`` if the sample has an event.
        """
        if not self.dead.size:
            return np.full(self.group.size, -np.inf)
        first = self.first_dead()
        log_terms = np.log(self.mean_weight) - self.log_rest
        so_far = np.append(-np.inf, np.logaddexp.accumulate(np.logaddexp.reduceat(log_terms, first)))
        has_event = np.bincount(self.dead_group[first], minlength=self.log_risk.size)
        log_hazard = so_far[np.cumsum(has_event)[self.group]]
        reduced = np.logaddexp.reduceat(log_terms + np.log1p(-self.fraction), first)
        own = np.logaddexp(so_far[:-1], reduced)
        log_hazard[self.dead] = np.repeat(own, np.diff(first, append=self.dead.size))
        return log_hazard

    def first_dead(self):
        """The positions in ``dead`` at which the event times begin."""
        return np.flatnonzero(np.diff(self.dead_group, prepend=-1))

    def unsorted(self, values):
        out = np.empty_like(values)
        out[self.order] = values
        return out


def partial_likelihood_terms(known: _Sorted, eta: np.ndarray, d: np.ndarray, ties: str) -> _Terms:
    """The terms, in logarithms throughout, so that predictors of any size are summed without overflow."""
    order, event, group, starts = known
    eta, weight = eta[order], d[order]
    with np.errstate(divide="ignore"):
        log_weight = np.log(weight) + eta
    log_risk_from = np.logaddexp.accumulate(log_weight[::-1])[::-1]
    log_risk = log_risk_from[starts]
    dead = np.flatnonzero(event & (weight > 0))
    dead_group = group[dead]
    first = np.flatnonzero(np.diff(dead_group, prepend=-1))  # of the events of a time
    counts = np.diff(first, append=dead.size)
    fraction = np.zeros(dead.size)
    mean_weight = weight[dead]
    tied = np.full(first.size, -np.inf)
    if dead.size:
        if ties == "efron":
            fraction = (np.arange(dead.size) - np.repeat(first, counts)) / np.repeat(counts, counts)
        mean_weight = np.repeat(np.add.reduceat(mean_weight, first) / counts, counts)
        tied = np.logaddexp.reduceat(log_weight[dead], first)
    share = np.exp(np.repeat(tied, counts) - log_risk[dead_group])
    log_rest = log_risk[dead_group] + np.log1p(-fraction * np.minimum(share, 1.0))
    unit = np.sum(weight) / np.sum(weight**2)
    return _Terms(
        order, group, starts, event, eta, weight, log_weight, float(np.log(unit)), log_risk_from, log_risk,
        dead, dead_group, fraction, mean_weight, log_rest,
    )  # fmt: skip


def risk_set_means(Z: np.ndarray, log_weight: np.ndarray, log_risk_from: np.ndarray) -> np.ndarray:
    """Means of the rows of Z from each sample on, with weights given by their logarithms.

    Cumulative sums from the end. If the weights exceed the range of floating-point numbers, the sums are
    taken in stretches, each on its own scale.
    """
    means = np.zeros_like(Z)
    following, log_following = np.zeros(Z.shape[1]), -np.inf
    end = int(np.count_nonzero(log_risk_from > -np.inf))
    while end > 0:
        start = int(np.searchsorted(-log_risk_from[:end], -(log_risk_from[end - 1] + _RANGE)))
        scale = log_risk_from[start]
        sums = np.exp(log_weight[start:end] - scale)[:, None] * Z[start:end]
        sums[-1] += following * np.exp(log_following - scale)
        np.cumsum(sums[::-1], axis=0, out=means[start:end][::-1])
        means[start:end] *= np.exp(scale - log_risk_from[start:end])[:, None]
        following, log_following, end = means[start], scale, start
    return means
