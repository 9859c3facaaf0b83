"""The worst of many sets: by trying all of them, by drawing some at random, or by a greedy search."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

import numpy as np

METHODS = ("auto", "exact", "sampling", "greedy")
_GAIN = 1.0 + 1e-12  # what counts as larger: rounding does not


@dataclass(frozen=True)
class WorstCase:
    """The largest value found over the sets U that the penalty may leave free.

    Attributes
    ----------
    value : float
        The largest value found: the maximum itself if ``how`` is "exact", else a lower bound of it. It is inf
        where the columns of a set are linearly dependent.
    free : tuple of int
        The set U that has it.
    feature : int
        The feature outside of U and of the support that has it; -1 if there is none.
    how : {"exact", "sampling", "greedy"}
        Whether all sets were tried, or what found the value: draws at random, or the greedy search.
    n_sets : int
        How many sets were tried.
    found : dict of str to float
        The largest value by each way that was taken.

    Examples
    --------
    >>> from trimreg.diagnostics import WorstCase
    >>> WorstCase(0.8, (1,), 2, "exact", 10).holds, WorstCase(0.8, (1,), 2, "greedy", 10).holds
    (True, None)
    """

    value: float
    free: tuple[int, ...]
    feature: int
    how: str
    n_sets: int
    found: dict[str, float] = field(default_factory=dict)

    @property
    def exact(self) -> bool:
        """Whether ``value`` is the maximum and not a lower bound."""
        return self.how == "exact"

    @property
    def holds(self) -> bool | None:
        """Whether the value is below 1 for every set: None if all that were found are, but not all tried."""
        if self.value >= 1.0:
            return False
        return True if self.exact else None


def search(evaluate, candidates, sizes, draw, *, method="auto", n_draws=500, max_sets=5000, rng) -> WorstCase:
    """The set of candidates, of one of these sizes, at which ``evaluate`` is largest.

    Parameters
    ----------
    evaluate : function of a tuple of candidates to (value, set to report, feature)
    candidates : sequence of int
    sizes : sequence of int
    draw : function of a generator to a tuple of candidates
    method : {"auto", "exact", "sampling", "greedy"}
        "auto" is "exact" up to ``max_sets`` sets, and beyond that the larger of the other two. "greedy" adds
        the candidate that raises the value most until the largest size is there, then exchanges one for
        another as long as that helps, with ``max_sets`` exchanges tried at most.
    n_draws, max_sets : int
    rng : numpy.random.Generator

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.diagnostics._worst import search
    >>> def total(which): return sum(which), which, -1
    >>> worst = search(total, range(5), [2], lambda rng: (0, 1), rng=np.random.default_rng(0))
    >>> worst.value, worst.free, worst.how, worst.n_sets
    (7.0, (3, 4), 'exact', 10)
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {METHODS}; got {method!r}")
    candidates, sizes = tuple(candidates), tuple(sizes)
    if method == "auto":
        few = sum(math.comb(len(candidates), size) for size in sizes) <= max_sets
        ways = ("exact",) if few else ("sampling", "greedy")
    else:
        ways = (method,)
    sets = {
        "exact": lambda: itertools.chain.from_iterable(itertools.combinations(candidates, m) for m in sizes),
        "sampling": lambda: (draw(rng) for _ in range(n_draws)),
    }
    best, best_how, found, count = None, "", {}, 0
    for way in ways:
        if way == "greedy":
            top, tried = _greedy(evaluate, candidates, sizes, max_sets)
        else:
            top, tried = _largest(evaluate, sets[way]())
        found[way], count = float(top[0]), count + tried
        if best is None or top[0] > best[0]:
            best, best_how = top, way
    value, free, feature, _ = best
    free = tuple(int(j) for j in sorted(free))
    return WorstCase(float(value), free, int(feature), best_how, count, found)


def _largest(evaluate, sets):
    """The largest of the sets, as (value, set to report, feature, set), and how many there were."""
    best, count = (-np.inf, (), -1, ()), 0
    for which in sets:
        count += 1
        tried = (*evaluate(which), which)
        if tried[0] > best[0]:
            best = tried
    return best, count


def _greedy(evaluate, candidates, sizes, max_exchanges):
    best, count = _largest(evaluate, [()] if 0 in sizes else [])
    current = ()
    for size in range(1, max(sizes) + 1):
        grown, tried = _largest(evaluate, ((*current, c) for c in candidates if c not in current))
        current, count = grown[3], count + tried
        if size in sizes and grown[0] > best[0]:
            best = grown
    left, improved = max_exchanges, True
    while improved and left > 0:
        improved = False
        for place in range(len(best[3])):
            kept, others = _without(best[3], place), [c for c in candidates if c not in best[3]][:left]
            swapped, tried = _largest(evaluate, ((*kept, c) for c in others))
            count, left = count + tried, left - tried
            if swapped[0] > best[0] * _GAIN:
                best, improved = swapped, True
    return best, count


def _without(which, place):
    return which[:place] + which[place + 1 :]
