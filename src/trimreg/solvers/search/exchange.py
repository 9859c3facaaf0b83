"""Improving a free set by exchanges: splices, single swaps, and kicks out of the basin.

A *search* has a free set with its solution, and can score and try exchanges (see
:class:`trimreg.solvers.search.subset.SubsetSearch` for best subsets,
:class:`trimreg.solvers.search.soft.SoftSearch` for a finite penalty). This module is the strategy of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass
class Exchanges:
    """Scores of all exchanges at a point."""

    free: np.ndarray  # the coordinates that may leave
    cost: np.ndarray  # rise of the objective if one leaves
    candidates: np.ndarray  # the coordinates that may enter
    entry_gain: np.ndarray  # fall of the objective if one enters
    gain: np.ndarray  # fall of the objective in the best single swap of a candidate
    partner: np.ndarray  # the position in `free` of its partner in that swap


class Search:
    """A free set with ``free`` and ``objective``, and its moves.

    A subclass has ``exchanges() -> Exchanges``; ``attempt(leave, enter) -> bool``, which makes an exchange if
    the objective falls; ``move_to(free)``; ``narrowed()``, a search over fewer columns, and ``adopt(other)``,
    which takes its result; ``solution() -> (theta, free)``.
    """

    complete = True  # whether no column is left out
    certifies = False  # whether scores of single swaps are exact, so that having none left is a certificate
    state: tuple[str, ...]  # the names of the attributes that moves replace
    free: np.ndarray
    objective: float

    def save(self) -> dict:
        return {name: getattr(self, name) for name in self.state}

    def restore(self, state: dict) -> None:
        self.__dict__.update(state)

    def descend(self) -> bool:
        """Make all single swaps that help, if that can be done at once; returns whether none is left."""
        return False


def best_first(score: np.ndarray, count: int) -> np.ndarray:
    """The ``count`` best of the positive scores, in order; equal scores keep their order."""
    count = min(count, score.size)
    best = np.argpartition(-score, count - 1)[:count] if count < score.size else np.arange(score.size)
    best = best[score[best] > 0]
    return best[np.lexsort((best, -score[best]))]


def exchange_while_better(search: Any, splices: Iterable = (8, 4, 2), trials: int = 6) -> Iterator[float]:
    """Exchange as long as the objective falls; yields the objective after every improvement.

    A splice of size m exchanges the m cheapest to leave for the m best to enter. When no splice helps, single
    swaps are tried in the order of their scores.
    """
    sizes = [m for m in splices if 2 * m <= search.free.size]
    scores = None
    while sizes:
        scores = search.exchanges()
        if _splice(search, scores, sizes):
            yield search.objective
    before, settled = search.objective, search.descend()
    if search.objective < before:
        scores = None
        yield search.objective
    while not settled and _swap(search, scores or search.exchanges(), trials):
        scores = None
        yield search.objective


def _splice(search, scores, sizes):
    for m in list(sizes):
        leave = scores.free[np.argsort(scores.cost, kind="stable")[:m]]
        enter = scores.candidates[best_first(scores.entry_gain, m)]
        if enter.size == m and search.attempt(leave, enter):
            return True
        sizes.remove(m)  # a size that fails once seldom succeeds later, and smaller ones follow
    return False


def _swap(search, scores, trials):
    for position in best_first(scores.gain, trials):
        i = scores.partner[position]
        if search.attempt(scores.free[i : i + 1], scores.candidates[position : position + 1]):
            return True
    return False


def kick(search: Any, rng: np.random.Generator, share: int) -> bool:
    """Replace a random part of the free set, the weak rather than the strong, and improve it by swaps.

    One coordinate in ``share`` is replaced, at least two. The search returns to its old state unless it ends
    lower. Returns False if the swaps lead straight back to the same free set: another kick of this size would
    not leave the basin either.
    """
    state, objective, start = search.save(), search.objective, np.sort(search.free)
    scores = search.exchanges()
    m = min(max(2, scores.free.size // share), scores.free.size)
    leave = np.argsort(scores.cost * rng.exponential(size=scores.cost.size), kind="stable")[:m]
    enter = best_first(scores.entry_gain * rng.exponential(size=scores.entry_gain.size), m)
    search.move_to(np.concatenate([np.delete(scores.free, leave), scores.candidates[enter]]))
    for _ in exchange_while_better(search, splices=(), trials=3):
        pass
    same = np.array_equal(np.sort(search.free), start)
    if same or search.objective >= objective - 1e-12 * abs(objective):
        search.restore(state)
    return not same
