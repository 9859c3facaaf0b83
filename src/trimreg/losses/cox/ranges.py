"""Sums over the samples at risk at each event, where samples enter late or belong to strata."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

RANGE = 600.0  # exponents in a range of this length do not overflow on a common scale


class Ranges:
    """Samples that are at risk at the events ``low, ..., high - 1``, for each sample.

    The sums over a range, or over the samples whose ranges hold an event, are those of the nodes of a binary
    tree over the events: at most 2 log m nodes make up a range. So all sums take O(n log m), and only add
    positive numbers: a difference of running sums would lose the small sets at risk beside large ones.

    Parameters
    ----------
    low, high : ndarray of int of shape (n,)
    count : int
        m, the number of events.
    """

    def __init__(self, low: np.ndarray, high: np.ndarray, count: int):
        self.count, self.n = count, low.size
        self.size = 1 << max(count - 1, 0).bit_length()  # of the leaves; node k has the children 2k, 2k + 1
        left, right = low + self.size, high + self.size
        live = np.flatnonzero(left < right)
        nodes, samples = [], []
        while live.size:
            begins, ends = live[left[live] % 2 == 1], live[right[live] % 2 == 1]
            nodes += [left[begins], right[ends] - 1]
            samples += [begins, ends]
            left, right = (left + 1) // 2, right // 2
            live = live[left[live] < right[live]]
        node = np.concatenate([*nodes, np.empty(0, dtype=np.intp)])
        sample = np.concatenate([*samples, np.empty(0, dtype=np.intp)])
        order = np.argsort(node, kind="stable")
        self._samples = sample[order]
        self._nodes, self._first = np.unique(node[order], return_index=True)
        order = np.argsort(sample, kind="stable")
        self._nodes_of = node[order]
        self._inside, self._first_of = np.unique(sample[order], return_index=True)

    @property
    def pairs(self) -> int:
        """Number of pairs of a sample and a node."""
        return self._samples.size

    def at_events(self, logs: np.ndarray) -> np.ndarray:
        """For every event, the log of the sum of ``exp(logs)`` over the samples at risk."""
        return self._in_range(self._own_sums, self._down, logs)

    def over_ranges(self, logs: np.ndarray) -> np.ndarray:
        """For every sample, the log of the sum of ``exp(logs)`` over the events of its range."""
        return self._in_range(self._up, self._gathered, logs)

    def means(self, Z: np.ndarray, logs: np.ndarray) -> np.ndarray:
        """For every event, the mean of the rows of Z over the samples at risk, with weights ``exp(logs)``."""
        own = np.full(2 * self.size, -np.inf)
        if self.pairs:
            own[self._nodes] = np.logaddexp.reduceat(logs[self._samples], self._first)
        counts = np.zeros(2 * self.size + 1, dtype=np.intp)
        counts[self._nodes + 1] = np.diff(self._first, append=self.pairs)
        total = np.repeat(own[self._nodes], counts[self._nodes + 1])
        share = np.exp(logs[self._samples] - np.where(np.isfinite(total), total, 0.0))
        shape = (2 * self.size, self.n)
        means = sp.csr_array((share, self._samples, np.cumsum(counts)), shape=shape) @ Z
        width = 1
        while width < self.size:
            above = np.repeat(np.arange(width, 2 * width), 2)
            here = slice(2 * width, 4 * width)
            both = np.logaddexp(own[here], own[above])
            scale = np.where(np.isfinite(both), both, 0.0)
            means[here] *= np.exp(own[here] - scale)[:, None]
            means[here] += np.exp(own[above] - scale)[:, None] * means[above]
            own[here] = both
            width *= 2
        return means[self.size : self.size + self.count]

    # -- both directions -----------------------------------------------------------------------------------

    @staticmethod
    def _in_range(first, second, logs):
        """``second(first(...))`` of the numbers on one scale if they fit on it, else of their logarithms."""
        live = logs[logs > -np.inf]
        top = live.max(initial=-np.inf)
        if live.size and top - live.min() > RANGE:
            return second(first(logs, np.logaddexp, -np.inf), np.logaddexp, -np.inf)
        if not live.size:
            top = 0.0
        with np.errstate(divide="ignore"):
            return np.log(second(first(np.exp(logs - top), np.add, 0.0), np.add, 0.0)) + top

    def _own_sums(self, values, add, zero):
        """Sums over the samples of each node."""
        tree = np.full(2 * self.size, zero)
        if self.pairs:
            tree[self._nodes] = add.reduceat(values[self._samples], self._first)
        return tree

    def _down(self, tree, add, zero):
        """The sums of an event and of all nodes above it."""
        width = 1
        while width < self.size:
            below = tree[2 * width : 4 * width].reshape(-1, 2)
            add(below, tree[width : 2 * width, None], out=below)
            width *= 2
        return tree[self.size : self.size + self.count]

    def _up(self, values, add, zero):
        """The sums of the events below each node."""
        tree = np.full(2 * self.size, zero)
        tree[self.size : self.size + self.count] = values
        width = self.size // 2
        while width:
            add(
                tree[2 * width : 4 * width : 2],
                tree[2 * width + 1 : 4 * width : 2],
                out=tree[width : 2 * width],
            )
            width //= 2
        return tree

    def _gathered(self, tree, add, zero):
        """The sums over the nodes of each range."""
        sums = np.full(self.n, zero)
        if self.pairs:
            sums[self._inside] = add.reduceat(tree[self._nodes_of], self._first_of)
        return sums
