"""Best subsets of several sizes: each one is a start for the next smaller and the next larger one.

A subset grows by the column of largest gain and shrinks by the column of least cost. Single swaps follow
until none lowers the objective. A column that was right for a small subset may stay in one that has grown
from it. Shrinking from a larger size finds other subsets, and growing again carries them back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..mm.workingset import WorkingSetSolver
from .subset import SubsetSearch

_BETTER = 1e-9  # relative fall of the objective for which a subset is replaced


class Subset(NamedTuple):
    """The columns of a subset and the objective of the least-squares fit on them."""

    objective: float
    free: np.ndarray


def grown(inner: WorkingSetSolver, sizes: Sequence[int]) -> Iterator[tuple[int, SubsetSearch]]:
    """``(h, search)`` for rising sizes: each best subset grows from the last by columns and swaps."""
    search = SubsetSearch(inner.at(inner.problem.alpha, sizes[0]), np.empty(0, dtype=np.intp))
    for h in sizes:
        search.grow(h)
        yield h, search


def resize(search: SubsetSearch, h: int) -> None:
    """Grow or shrink the free set to h columns, and make all swaps that lower the objective."""
    while search.free.size > h:
        cheapest = np.argmin(search.exchanges().cost)
        search.size = search.free.size - 1
        search.move_to(np.delete(search.free, cheapest))
    search.grow(h)


def share(search: SubsetSearch, found: dict[int, Subset]) -> None:
    """Offer every subset to the next size, down and up in turn, until none is replaced; ``found`` is updated.

    The keys of ``found`` are sizes in increasing order. The search serves as a workspace.
    """
    tried, negligible = set(), 1e-12 * search.energy
    changed = True
    while changed:
        changed = False
        for sizes in (list(found)[::-1], list(found)):
            for size, target in pairwise(sizes):
                start = found[size].free
                key = size, target, tuple(np.sort(start))
                if key in tried:
                    continue
                tried.add(key)
                search.size = size
                search.move_to(start)
                resize(search, target)
                least_fall = max(negligible, _BETTER * found[target].objective)
                if search.objective < found[target].objective - least_fall:
                    found[target] = Subset(search.objective, search.free.copy())
                    changed = True
