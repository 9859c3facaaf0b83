"""The terms of the partial likelihood, with the samples sorted by stratum and time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .ranges import RANGE, Ranges


class Sorted(NamedTuple):
    """The samples by stratum and time; a group is a set of tied times."""

    order: np.ndarray  # of the samples
    event: np.ndarray
    group: np.ndarray  # of every sample
    starts: np.ndarray  # of the groups
    time: np.ndarray  # of every sample
    stratum: np.ndarray | None
    #: With late starts or strata: the events that each sample is at risk at, before that of its own group,
    #: and the groups with an event, which these count.
    ranges: Ranges | None = None
    with_event: np.ndarray | None = None


def columns_of(y: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, Any]:
    """The start, the time, the event and the stratum of every sample; None for columns that y does not have.

    y has the columns time and event, or start, time and event, or these and the stratum.
    """
    if y.shape[1] == 2:
        return None, y[:, 0], y[:, 1], None
    return y[:, 0], y[:, 1], y[:, 2], y[:, 3] if y.shape[1] == 4 else None


def sort_by_time(y: np.ndarray) -> Sorted:
    """The order of the times, their ties, and the events at which samples are at risk."""
    start, time, event, stratum = columns_of(y)
    order = np.argsort(time, kind="stable") if stratum is None else np.lexsort((time, stratum))
    time, event = time[order], event[order] > 0
    new = np.append(True, time[1:] != time[:-1])
    if stratum is not None:
        stratum = stratum[order]
        new[1:] |= stratum[1:] != stratum[:-1]
    group, starts = np.cumsum(new) - 1, np.flatnonzero(new)
    if start is None:
        return Sorted(order, event, group, starts, time, stratum)
    with_event = np.unique(group[event])
    high = np.searchsorted(with_event, group, side="right") - event
    strata = np.zeros(time.size) if stratum is None else stratum
    first = starts[with_event]
    low = np.minimum(count_up_to(strata, start[order], strata[first], time[first]), high)
    if not low.any():  # nobody enters after an event, and only one stratum has events
        return Sorted(order, event, group, starts, time, stratum)
    return Sorted(order, event, group, starts, time, stratum, Ranges(low, high, with_event.size), with_event)


def count_up_to(strata: np.ndarray, values: np.ndarray, *keys: np.ndarray) -> np.ndarray:
    """For every pair of a stratum and a value, how many pairs of two keys are in order up to it."""
    late = np.arange(len(strata) + len(keys[0])) >= len(keys[0])
    pairs = np.concatenate([keys[1], values]), np.concatenate([keys[0], strata])
    order = np.lexsort((late, *pairs))
    counts = np.empty(late.size, dtype=np.intp)
    counts[order] = np.cumsum(~late[order])
    return counts[late]


class Terms(NamedTuple):
    """The terms of the partial likelihood, with samples sorted by time and large numbers as logarithms."""

    known: Sorted
    eta: np.ndarray
    weight: np.ndarray  # d
    log_weight: np.ndarray  # log d + eta
    log_unit: float  # log of w / d
    #: log sum of d e^eta from this sample on; with ranges over the samples at risk, but for the events there,
    #: at each of ``known.with_event``
    log_risk_from: np.ndarray
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
        group, ranges = self.known.group, self.known.ranges
        if not self.dead.size:
            return np.full(group.size, -np.inf)
        first = self.first_dead()
        log_terms = np.log(self.mean_weight) - self.log_rest
        at_once = np.logaddexp.reduceat(log_terms, first)
        reduced = np.logaddexp.reduceat(log_terms + np.log1p(-self.fraction), first)
        counts = np.diff(first, append=self.dead.size)
        if ranges is None:
            so_far = np.append(-np.inf, np.logaddexp.accumulate(at_once))
            has_event = np.bincount(self.dead_group[first], minlength=self.log_risk.size)
            log_hazard = so_far[np.cumsum(has_event)[group]]
            log_hazard[self.dead] = np.repeat(np.logaddexp(so_far[:-1], reduced), counts)
            return log_hazard
        own = np.full(self.log_risk.size, -np.inf)
        own[self.dead_group[first]] = at_once
        log_hazard = ranges.over_ranges(own[self.known.with_event])
        own = np.where(self.known.event, own[group], -np.inf)
        own[self.dead] = np.repeat(reduced, counts)
        return np.logaddexp(log_hazard, own)

    def first_dead(self):
        """The positions in ``dead`` at which the event times begin."""
        return np.flatnonzero(np.diff(self.dead_group, prepend=-1))

    def unsorted(self, values):
        out = np.empty_like(values)
        out[self.known.order] = values
        return out

    def means_at_risk(self, Z, tied):
        """Means of the sorted rows of Z over the sets at risk of the terms.

        ``tied`` has for every term the sum over the events of its time, with their shares in the risk set.
        """
        known = self.known
        if known.ranges is None:
            means = risk_set_means(Z, self.log_weight, self.log_risk_from)[known.starts[self.dead_group]]
            tied *= self.fraction[:, None]
            means -= tied
        else:
            place = np.searchsorted(known.with_event, self.dead_group)
            others = np.exp(self.log_risk_from[place] - self.log_risk[self.dead_group])
            means = known.ranges.means(Z, self.log_weight)[place] * others[:, None]
            tied *= (1.0 - self.fraction)[:, None]
            means += tied
        means *= np.exp(self.log_risk[self.dead_group] - self.log_rest)[:, None]
        return means


def partial_likelihood_terms(known: Sorted, eta: np.ndarray, d: np.ndarray, ties: str) -> Terms:
    """The terms, in logarithms throughout, so that predictors of any size are summed without overflow."""
    eta, weight, group = eta[known.order], d[known.order], known.group
    with np.errstate(divide="ignore"):
        log_weight = np.log(weight) + eta
    dead = np.flatnonzero(known.event & (weight > 0))
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
    if known.ranges is None:
        log_risk_from = np.logaddexp.accumulate(log_weight[::-1])[::-1]
        log_risk = log_risk_from[known.starts]
    else:
        log_risk_from, log_risk = known.ranges.at_events(log_weight), np.full(known.starts.size, -np.inf)
        log_risk[known.with_event] = log_risk_from
        log_risk[dead_group[first]] = np.logaddexp(log_risk[dead_group[first]], tied)
    share = np.exp(np.repeat(tied, counts) - log_risk[dead_group])
    log_rest = log_risk[dead_group] + np.log1p(-fraction * np.minimum(share, 1.0))
    unit = np.sum(weight) / np.sum(weight**2)
    return Terms(
        known, eta, weight, log_weight, float(np.log(unit)), log_risk_from, log_risk, dead, dead_group,
        fraction, mean_weight, log_rest,
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
        start = int(np.searchsorted(-log_risk_from[:end], -(log_risk_from[end - 1] + RANGE)))
        scale = log_risk_from[start]
        sums = np.exp(log_weight[start:end] - scale)[:, None] * Z[start:end]
        sums[-1] += following * np.exp(log_following - scale)
        np.cumsum(sums[::-1], axis=0, out=means[start:end][::-1])
        means[start:end] *= np.exp(scale - log_risk_from[start:end])[:, None]
        following, log_following, end = means[start], scale, start
    return means
