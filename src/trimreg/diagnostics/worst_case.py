"""The worst of many sets: by trying all, by random draws, or by a greedy search."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

METHODS = ("auto", "exact", "sampling", "greedy")
_GAIN = 1.0 + 1e-12  # a relative increase below this is rounding


@dataclass(frozen=True)
class WorstCase:
    """The largest value found over the sets U that the penalty may leave free.

    Attributes
    ----------
    value : float
        The largest value found: the maximum if ``how`` is "exact", else a lower bound of it. It is inf if the
        columns of a set are linearly dependent.
    free : tuple of int
        The set U at which it is attained.
    feature : int
        The feature outside of U and of the support at which it is attained; -1 if there is none.
    how : {"exact", "sampling", "greedy"}
        The method that found the value: all sets, random draws, or the greedy search.
    n_sets : int
        Number of sets tried.
    found : dict of str to float
        The largest value found by each method.

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
        """Whether ``value`` is the maximum and not only a lower bound."""
        return self.how == "exact"

    @property
    def holds(self) -> bool | None:
        """Whether the value is below 1 for every set; None if it is below 1 but not all sets were tried."""
        return False if self.value >= 1.0 else self.exact or None


def search(
    evaluate: Callable[[tuple], tuple], candidates: Iterable[int], sizes: Iterable[int],
    draw: Callable[[np.random.Generator], tuple], *, method: str = "auto", n_draws: int = 500,
    max_sets: int = 5000, rng: np.random.Generator,
) -> WorstCase:  # fmt: skip
    """The set of candidates, of one of these sizes, at which ``evaluate`` is largest.

    ``evaluate`` maps a tuple of candidates to (value, set to report, feature), and ``draw`` draws a tuple.
    "auto" is "exact" for up to ``max_sets`` sets, and otherwise the larger of the other two methods. "greedy"
    adds the candidate that raises the value most until the largest size is reached. Then it exchanges single
    candidates as long as that helps, with at most ``max_sets`` exchanges tried.
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
    best: tuple = (-np.inf, (), -1, ())
    best_how, found, count = "", {}, 0
    for way in ways:
        if way == "greedy":
            top, tried = _greedy(evaluate, candidates, sizes, max_sets)
        else:
            top, tried = _largest(evaluate, sets[way]())
        found[way], count = float(top[0]), count + tried
        if not best_how or top[0] > best[0]:
            best, best_how = top, way
    value, free, feature, _ = best
    free = tuple(int(j) for j in sorted(free))
    return WorstCase(float(value), free, int(feature), best_how, count, found)


def _largest(evaluate, sets):
    """The largest, as (value, set to report, feature, set), and the number of sets."""
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
            kept = best[3][:place] + best[3][place + 1 :]
            others = [c for c in candidates if c not in best[3]][:left]
            swapped, tried = _largest(evaluate, ((*kept, c) for c in others))
            count, left = count + tried, left - tried
            if swapped[0] > best[0] * _GAIN:
                best, improved = swapped, True
    return best, count
