"""New best subsets from pairs of local minima, where supports are hard to find."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from .exchange import exchange_while_better
from .subset import BETTER, Subset, SubsetSearch

_POOL = 12  # local minima that are crossed
_SEEDS = 3  # random columns from which a new one grows
_SURE = 4  # of the seeds lead to the lowest subset again: then it is hardly ever a bad one


def crossings(
    search: SubsetSearch, found: Sequence[Subset], rng: np.random.Generator, patience: int, most: int
) -> Iterator[SubsetSearch]:
    """Subsets from crossings of others, each improved by swaps; the search is at the one that is yielded.

    Good subsets share columns, so a crossing keeps the columns that two local minima have in common, and a
    random part of the others. In place of every second one, a third of the columns of one subset gives way
    to random columns. Every second time only half of the new columns are taken, and the others grow one by
    one, with swaps at every size. The lowest ``_POOL`` subsets are used: at first those ``found``, and some
    that grow from random columns. Ends after ``patience`` crossings without a lower subset, after ``most``,
    or if the subsets that grow are the lowest one again.
    """
    h, columns = search.size, np.flatnonzero(search.eligible)
    if columns.size <= h:
        return
    pull = np.abs(search.target[columns]) + search._negligible()
    pool = _lowest({tuple(np.sort(one.free)): one.objective for one in found})
    lowest, waited, again = min(pool.values()), 0, 0
    enough = max(BETTER * lowest, search._negligible())
    for count in range(most):
        if count < _POOL:
            first = rng.choice(columns, min(h, _SEEDS), replace=False, p=pull / pull.sum())
            search.start_from(first)
        else:
            if rng.random() < 0.5:
                parent = min(rng.choice(len(pool), 2))
                free, m = rng.permutation(list(pool)[parent]), max(2, h // 3)
                kept, others = free[m:], rng.choice(columns, m)
            else:
                one, other = (list(pool)[k] for k in rng.choice(len(pool), 2, replace=False))
                kept = np.intersect1d(one, other)
                others = rng.permutation(np.setxor1d(one, other))[: h - kept.size]
            if rng.random() < 0.5:
                search.start_from(np.union1d(kept, others[::2]))
            else:
                search.move_to(np.union1d(kept, others))
        for _ in exchange_while_better(search, splices=(), trials=3):
            pass
        yield search
        waited += 1
        if search.objective < lowest - enough:
            lowest, waited, again = search.objective, 0, 0
        elif count < _POOL and search.objective < lowest + enough:
            again += 1
        pool = _lowest(pool | {tuple(np.sort(search.free)): search.objective})
        if again == _SURE or len(pool) < 2 or (count >= _POOL and waited >= patience):
            return


def _lowest(pool):
    return dict(sorted(pool.items(), key=lambda one: one[1])[:_POOL])
