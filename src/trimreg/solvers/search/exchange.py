"""Improving a free set by exchanges: splices, single swaps, and kicks out of the basin.

A *search* holds a free set with its solution and knows how to score and to try exchanges (see
:class:`trimreg.solvers.search.subset.SubsetSearch` for best subsets,
:class:`trimreg.solvers.search.soft.SoftSearch` for a finite penalty). Here is the strategy that both follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass
class Exchanges:
    """Scores of all exchanges at a point."""

    free: np.ndarray  # the coordinates that may leave
    cost: np.ndarray  # what each costs on leaving
    candidates: np.ndarray  # the coordinates that may enter
    entry: np.ndarray  # what each gains on entering
    gain: np.ndarray  # what each gains in its best single swap
    partner: np.ndarray  # the position in `free` of whom it is swapped for


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
    """The ``count`` best in order, positive scores only; stable, so equal scores keep their order."""
    count = min(count, score.size)
    best = np.argpartition(-score, count - 1)[:count] if count < score.size else np.arange(score.size)
    best = best[score[best] > 0]
    return best[np.lexsort((best, -score[best]))]


def exchange_while_better(search: Search, splices=(8, 4, 2), trials=6):
    """Exchange as long as the objective falls; yields after every improvement.

    A splice of size m exchanges the m cheapest to leave for the m best to enter. Where none helps
    any more, single swaps are tried in the order of their scores.
    """
    splices = [m for m in splices if 2 * m <= search.free.size]
    while True:
        scores = search.exchanges()
        if _splice(search, scores, splices) or _swap(search, scores, trials):
            yield search.objective
            continue
        return


def _splice(search, scores, sizes):
    for m in list(sizes):
        leave = scores.free[np.argsort(scores.cost, kind="stable")[:m]]
        enter = scores.candidates[_top(scores.entry, m)]
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
    """Replace a random part of the free set, the weak rather than the strong, and descend again.

    One coordinate in ``share`` is replaced, two at least. Goes back to where it was if that ends no
    lower. Returns False if the descent led straight back to the same free set: such a basin is not left
    by another kick of this size.
    """
    state, objective, start = search.save(), search.objective, np.sort(search.free)
    scores = search.exchanges()
    m = min(max(2, scores.free.size // share), scores.free.size)
    leave = np.argsort(scores.cost * rng.exponential(size=scores.cost.size), kind="stable")[:m]
    enter = _top(scores.entry * rng.exponential(size=scores.entry.size), m)
    search.move_to(np.concatenate([np.delete(scores.free, leave), scores.candidates[enter]]))
    for _ in exchange_while_better(search, splices=(), trials=3):
        pass
    same = np.array_equal(np.sort(search.free), start)
    if same or search.objective >= objective - 1e-12 * abs(objective):
        search.restore(state)
    return not same
