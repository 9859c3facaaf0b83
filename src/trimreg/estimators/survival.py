"""Survival times: the forms of y, and how well an order of risks agrees with them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .validation import check_real, check_vector, one_column


def times_and_events(y: Any) -> Any:
    """The columns time and event, from a structured array, these two columns, or plain times.

    Plain times are events if they are not negative; -t is a time censored at t, as in XGBoost.
    """
    if y is None:
        raise ValueError("fit requires y to be passed, but the target y is None")
    fields = getattr(getattr(y, "dtype", None), "names", None)
    if fields is None:
        y = check_real("y", y)
        y = one_column(y)
        if y.ndim == 1:
            time = check_vector("y", y, y.size, "sample")
            return np.column_stack([np.abs(time), time >= 0])
        if y.ndim != 2 or y.shape[1] != 2:
            raise ValueError(
                "y must have the two columns time and event, be a structured array with a field for each, or "
                f"be a vector of times (negative where censored); got shape {y.shape}"
            )
        return y
    events = [name for name in fields if y.dtype[name].kind == "b"]
    times = [name for name in fields if y.dtype[name].kind in "iuf"]
    if len(fields) != 2 or len(events) != 1 or len(times) != 1:
        raise ValueError(
            f"y must have one field of booleans (the event) and one of numbers (the time); got {y.dtype}"
        )
    return np.column_stack([y[times[0]].astype(float), y[events[0]].astype(float)])


def concordance_index(
    risk: np.ndarray, time: np.ndarray, event: np.ndarray, weight: np.ndarray | None = None
) -> float:
    """Harrell's concordance index: how often, of two samples, the one of higher risk has its event earlier.

    A pair counts if its order is known: the earlier time is that of an event, or the times are equal and one
    of the two is censored and therefore the later one. Equal risks count one half. This is the convention of
    scikit-survival and lifelines. The weight of a pair is the product of its weights.

    References
    ----------
    Harrell, Califf, Pryor, Lee and Rosati (1982). Evaluating the yield of medical tests. JAMA 247, 2543-2546.
    """
    weight = np.ones(len(time)) if weight is None else weight
    order = np.lexsort((event, -time))  # the latest first; of equal times the censored first
    risk, time, event, weight = risk[order], time[order], event[order], weight[order]
    # Later than sample i are those before the first event of its time.
    group = np.cumsum(np.append(True, time[1:] != time[:-1])) - 1
    tied_and_censored = np.bincount(group, ~event)[group].astype(np.intp)
    later = np.searchsorted(-time, -time, side="left") + tied_and_censored
    i = np.flatnonzero(event)
    rank = np.unique(risk, return_inverse=True)[1]
    below = _prefix_sums(rank, weight, later[i], rank[i])
    not_above = _prefix_sums(rank, weight, later[i], rank[i] + 1)
    pairs = weight[i] @ np.append(0.0, np.cumsum(weight))[later[i]]
    if not pairs > 0:
        raise ValueError("y must have two samples with a known order of their events; got none")
    return float(weight[i] @ (below + not_above) / (2.0 * pairs))


def _prefix_sums(rank, weight, length, limit):
    """For every query, the total weight of ranks below ``limit`` among the first ``length`` entries.

    A prefix is a union of blocks, one per bit of its length, and all blocks of one size are sorted together:
    O(n log^2 n) in all.
    """
    total, n, count = np.zeros(len(length)), len(rank), len(rank) + 1
    for bit in range(int(n).bit_length()):
        asked = np.flatnonzero((length >> bit) & 1)
        if not asked.size:
            continue
        key = (np.arange(n) >> bit) * count + rank
        order = np.argsort(key, kind="stable")
        sums = np.append(0.0, np.cumsum(weight[order]))
        block = (length[asked] >> bit) - 1
        end = np.searchsorted(key[order], block * count + limit[asked])
        total[asked] += sums[end] - sums[block << bit]
    return total
