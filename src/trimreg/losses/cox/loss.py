"""Cox's proportional hazards model for survival times."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from ..base import Loss, require, require_finite, slopes_vanish
from ..log_link.poisson import exp
from .terms import Sorted, Terms, columns_of, partial_likelihood_terms, sort_by_time

_TIES = ("efron", "breslow")
_ELEMENTS = 1 << 22  # elements of streamed columns in memory at a time: 32 MiB
_WORKED_ON = 7  # float64 vectors in memory per column


class Cox(Loss):
    r"""Minus the log partial likelihood, divided by the total weight.

    y has the columns time and event; or start, time and event, for samples at risk in ``(start, time]``; or
    these and a number for the stratum. An event is 1, a censored time 0. Times may be negative if there are
    starts. With Efron's ties and weights :math:`w_i = d_i / \sum_j d_j^2` (1 for equal weights),

    .. math:: L(\eta) = -\sum_{i\,\text{event}} d_i \eta_i + \sum_{t} \bar d_t \sum_{l=0}^{m_t - 1}
              \log\Bigl(\sum_{j \in R_t} w_j e^{\eta_j} - \tfrac{l}{m_t}
              \sum_{j \in D_t} w_j e^{\eta_j}\Bigr), \qquad R_t = \{j : s_j < t \le t_j\},

    where :math:`D_t` are the :math:`m_t` events of positive weight at t and :math:`\bar d_t` is the mean of
    their weights d. The set :math:`R_t` of samples at risk has all :math:`t_j \ge t` if there are no starts
    :math:`s_j`. With strata, t runs over the event times of each, and :math:`R_t` and :math:`D_t` are of the
    same stratum: L is the sum over the strata. With Breslow's ties the fraction :math:`l/m_t` is 0. This is
    the weighting of R's ``coxph`` and of lifelines (Therneau and Grambsch, Modeling Survival Data, 2000,
    sections 3.3 and 3.7); for equal weights ``n L`` is minus their log-likelihood. A bound loss keeps its
    target sorted, so that every method costs O(n), and O(n log n) with late starts or strata.

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
        self._sorted: tuple[np.ndarray, Sorted] | None = None

    @staticmethod
    def check_columns(y: np.ndarray) -> None:
        """:meth:`check_target` of samples to score, which may have no event."""
        if y.ndim != 2 or y.shape[1] not in (2, 3, 4):
            raise ValueError(
                "y must have the columns time and event, or start, time and event, or these and the stratum; "
                f"got shape {y.shape}"
            )
        require_finite(y, n_dimensions=2)
        start, time, *_ = columns_of(y)
        place = np.arange(y.shape[1]) == (1 if start is None else 2)
        require(y, (y == 0) | (y == 1) | ~place, "have events 0 or 1")
        if start is None:
            require(y, (y >= 0) | place, "have times >= 0")
        elif not (start < time).all():
            bad = int(np.argmin(start < time))
            raise ValueError(
                f"y must have start < time; got start {start[bad]:g} and time {time[bad]:g} of sample {bad}"
            )

    def check_target(self, y: np.ndarray) -> None:
        self.check_columns(y)
        *_, event, stratum = columns_of(y)
        _require_event(event)
        if stratum is not None:
            without = np.setdiff1d(stratum, stratum[event > 0])
            if without.size:
                raise ValueError(f"y must have an event in every stratum; got none in {without[0]:g}")

    def classes(self, y: np.ndarray) -> np.ndarray:
        return columns_of(y)[2].astype(int)

    def bound(self, y: np.ndarray, d: np.ndarray) -> Loss:
        _require_event(columns_of(y)[2][d > 0])
        other = copy.copy(self)
        known = sort_by_time(y)
        other._sorted = (y, known)
        if known.ranges is not None:
            other.working_vectors += 4 * (1 + known.ranges.pairs // len(y))
        return other

    def _terms(self, eta, y, d) -> Terms:
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
        own = np.logaddexp(t.log_risk[t.known.group] + t.log_unit, t.eta)
        if t.dead.size:
            counts = np.bincount(t.dead_group, minlength=len(t.log_risk))
            sums = np.bincount(t.dead_group, t.log_rest + t.log_unit, minlength=len(t.log_risk))
            alive = t.weight > 0
            own[alive] = (sums / np.maximum(counts, 1))[t.known.group[alive]]
        losses = exp(t.eta + t.log_hazard()) + np.where(t.known.event, own - t.eta, 0.0)
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
        vectors = _WORKED_ON if t.known.ranges is None else 2 * _WORKED_ON
        step = max(1, int(min(room // (8 * vectors), _ELEMENTS // len(a))))
        return _gram_by_columns(t, a, design.restricted(W), step)

    def slope_bound_from(self, start: np.ndarray, y: np.ndarray, d: np.ndarray) -> float:
        r""":math:`\sqrt{m + m^2 / \min d}`, m the weight of all events, min d the smallest weight at risk.

        It holds at every eta, so the start does not count. The gradient is :math:`a_i - d_i` for an event and
        :math:`a_i` else, with :math:`a \ge 0` and :math:`\sum a_i = m`. So :math:`g_i^2 \le a_i^2 + d_i^2`,
        and :math:`\sum a_i^2 / d_i \le m^2 / \min d`. A sample that is censored before
        the first event has a = 0.
        """
        _, time, event, _ = columns_of(y)
        dead = (d > 0) & (event > 0)
        mass = float(d[dead].sum())
        if mass == 0:
            return 0.0
        at_risk = (d > 0) & (time >= time[dead].min())
        return float(np.sqrt(mass + mass**2 / d[at_risk].min()))

    def trouble(self, eta: np.ndarray, y: np.ndarray, d: np.ndarray) -> str:
        if not slopes_vanish(self, eta, y, d):
            return ""
        return (
            "the features order the events without error (monotone likelihood), so that coefficients without "
            "a penalty grow without end; give l2 > 0 or a smaller h"
        )

    def baseline(
        self, eta: np.ndarray, y: np.ndarray, d: np.ndarray
    ) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
        r"""The hazard of predictor 0 at the event times, by Breslow's estimator with either kind of ties,

        .. math:: \lambda(t) = \frac{\sum_{i \in D_t} d_i}{\sum_{j \in R_t} d_j e^{\eta_j}}.

        The survival function of a sample is :math:`\exp(-e^\eta \sum_{s \le t} \lambda(s))` (N. Breslow in
        the discussion of Cox 1972, Journal of the Royal Statistical Society B 34).

        Returns
        -------
        strata, times, log_hazard : ndarray of shape (n_times,)
            One entry per event time of each stratum, sorted; ``strata`` is None if y has none.
        """
        t = self._terms(eta, y, d)
        mass = np.bincount(t.dead_group, t.weight[t.dead], minlength=len(t.log_risk))
        groups = np.flatnonzero(mass)
        first = t.known.starts[groups]
        strata = None if t.known.stratum is None else t.known.stratum[first]
        return strata, t.known.time[first], np.log(mass[groups]) - t.log_risk[groups]


def _with_means(t: Terms, a, Z):
    """The columns Z, sorted by time and centered, and their means over the risk sets of the terms."""
    Z = Z[t.known.order]
    Z -= a @ Z / a.sum()  # the Hessian does not see constants, and small means lose few digits
    of_dead = Z[t.dead] * np.exp(t.log_weight[t.dead] - t.log_risk[t.dead_group])[:, None]
    first = t.first_dead()
    tied = np.repeat(np.add.reduceat(of_dead, first, axis=0), np.diff(first, append=t.dead.size), axis=0)
    del of_dead  # as long as the columns
    return Z, t.means_at_risk(Z, tied)


def _gram_by_columns(t: Terms, a, design, step):
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
