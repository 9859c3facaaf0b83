"""Improving a free set by exchanges: splices, single swaps, and kicks out of the basin.

A *search* has a free set with its solution, and can score and try exchanges (see
:class:`trimreg.solvers.search.subset.SubsetSearch` for best subsets,
:class:`trimreg.solvers.search.soft.SoftSearch` for a finite penalty). This module is the strategy of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

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


class Search(Protocol):
    """A free set, its solution, and its moves."""

    free: np.ndarray
    objective: float
    complete: bool  # whether the search leaves no column out
    certifies: bool  # whether scores of single swaps are exact, so that none left is a certificate

    def exchanges(self) -> Exchanges: ...

    def attempt(self, leave: np.ndarray, enter: np.ndarray) -> bool: ...

    def move_to(self, free: np.ndarray) -> None: ...

    def refresh(self) -> None: ...

    def narrowed(self, count: int | None = None) -> Search: ...

    def adopt(self, other: Search) -> None: ...

    def solution(self) -> tuple[np.ndarray, np.ndarray]: ...

    def save(self) -> dict: ...

    def restore(self, state: dict) -> None: ...


def _top(score, count):
    """The ``count`` best of the positive scores, in order; equal scores keep their order."""
    count = min(count, score.size)
    best = np.argpartition(-score, count - 1)[:count] if count < score.size else np.arange(score.size)
    best = best[score[best] > 0]
    return best[np.lexsort((best, -score[best]))]


def exchange_while_better(
    search: Search, splices: Iterable[int] = (8, 4, 2), trials: int = 6
) -> Iterator[float]:
    """Exchange as long as the objective falls; yields the objective after every improvement.

    A splice of size m exchanges the m cheapest to leave for the m best to enter. When no splice helps, single
    swaps are tried in the order of their scores.
    """
    sizes = [m for m in splices if 2 * m <= search.free.size]
    while True:
        scores = search.exchanges()
        if _splice(search, scores, sizes) or _swap(search, scores, trials):
            yield search.objective
            continue
        return


def _splice(search, scores, sizes):
    for m in list(sizes):
        leave = scores.free[np.argsort(scores.cost, kind="stable")[:m]]
        enter = scores.candidates[_top(scores.entry_gain, m)]
        if enter.size == m and search.attempt(leave, enter):
            return True
        sizes.remove(m)  # a size that fails once seldom succeeds later, and smaller ones follow
    return False


def _swap(search, scores, trials):
    for position in _top(scores.gain, trials):
        i = scores.partner[position]
        if search.attempt(scores.free[i : i + 1], scores.candidates[position : position + 1]):
            return True
    return False


def kick(search: Search, rng: np.random.Generator, share: int) -> bool:
    """Replace a random part of the free set, the weak rather than the strong, and improve it by swaps.

    One coordinate in ``share`` is replaced, at least two. The search returns to its old state unless it ends
    lower. Returns False if the swaps lead straight back to the same free set: another kick of this size would
    not leave the basin either.
    """
    state, objective, start = search.save(), search.objective, np.sort(search.free)
    scores = search.exchanges()
    m = min(max(2, scores.free.size // share), scores.free.size)
    leave = np.argsort(scores.cost * rng.exponential(size=scores.cost.size), kind="stable")[:m]
    enter = _top(scores.entry_gain * rng.exponential(size=scores.entry_gain.size), m)
    search.move_to(np.concatenate([np.delete(scores.free, leave), scores.candidates[enter]]))
    for _ in exchange_while_better(search, splices=(), trials=3):
        pass
    same = np.array_equal(np.sort(search.free), start)
    if same or search.objective >= objective - 1e-12 * abs(objective):
        search.restore(state)
    return not same
