"""Survival times: the forms of y, strata, and how well an order of risks agrees with the times."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..designs.convert import to_host
from ..losses import Cox
from ..losses.cox.terms import columns_of, count_up_to
from .validation import (
    check_container,
    check_real,
    check_sample_weight,
    check_target,
    check_vector,
    one_column,
)

_FORMS = (
    "y must have the columns time and event, or start, stop and event, or these and the stratum; be a "
    "structured array with such fields; or be a vector of times (negative where censored)"
)


def times_and_events(y: Any) -> Any:
    """The columns time and event, or start, stop and event, or these and the stratum, from any form of y.

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
        if y.ndim != 2 or y.shape[1] not in (2, 3, 4):
            raise ValueError(f"{_FORMS}; got shape {y.shape}")
        return y
    events = [name for name in fields if y.dtype[name].kind == "b"]
    times = [name for name in fields if y.dtype[name].kind in "iuf"]
    if len(fields) not in (2, 3) or len(events) != 1 or len(times) != len(fields) - 1:
        raise ValueError(
            "y must have one field of booleans (the event) and one or two of numbers (the time, or start and "
            f"stop); got {y.dtype}"
        )
    return np.column_stack([y[name].astype(float) for name in (*times, *events)])


def stratified(y: Any, strata: Any, fitting: bool = True) -> tuple[Any, np.ndarray | None]:
    """The target with a column for the strata, numbered from 0, and their labels.

    Without strata the target of :func:`times_and_events` and None. The target is checked; that of a fit needs
    an event in every stratum.
    """
    y = times_and_events(y)
    if strata is None and y.shape[1] < 4:
        return y, None
    if strata is not None and y.shape[1] == 4:
        raise ValueError("strata must be None if the fourth column of y has them")
    y = check_target(y, len(y), matrix=True)
    labels, codes = _numbered(y[:, 3] if strata is None else strata, len(y))
    Cox.check_columns(y)
    if fitting:
        without = np.setdiff1d(np.arange(labels.size), codes[columns_of(y)[2] > 0])
        if without.size and without.size < labels.size:
            raise ValueError(
                f"strata must have an event in each; got none in {labels.tolist()[without[0]]!r}"
            )
    start = np.full(len(y), -1.0) if y.shape[1] == 2 else y[:, 0]  # before all times, which are >= 0
    return np.column_stack([start, y[:, -2:] if y.shape[1] == 2 else y[:, 1:3], codes]), labels


def _numbered(strata, n):
    """The labels of the strata, sorted, and the number of each sample's."""
    strata = to_host(strata)
    check_container("strata", strata)
    array = np.asarray(strata)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.shape != (n,):
        raise ValueError(f"strata must have one label per sample, {n} in all; got shape {array.shape}")
    values = array.tolist()
    missing = [k for k, label in enumerate(values) if label is None or label != label]
    if missing:
        raise ValueError(f"strata must not be missing; got {values[missing[0]]!r} for sample {missing[0]}")
    try:
        return np.unique(array, return_inverse=True)
    except TypeError:
        raise ValueError("strata must be labels of one kind, numbers or strings; got several") from None


def strata_and_events(y: Any, strata: Any = None) -> np.ndarray:
    """Labels of samples of the same stratum and event, which halves of the samples have equal shares of."""
    y, labels = stratified(y, strata, fitting=False)
    y = check_target(y, len(y), matrix=True)
    *_, event, stratum = columns_of(y)
    if labels is None:
        return event.astype(int)
    few = np.bincount(stratum[event > 0].astype(int), minlength=labels.size) < 3
    if few.any():
        raise ValueError(
            "strata must have three events each, so that every half has one; "
            f"{labels[few].tolist()[0]!r} has fewer"
        )
    return (2 * stratum + event).astype(int)


def stratum_codes(strata: Any, labels: np.ndarray, n: int) -> np.ndarray:
    """The numbers of the strata of samples to predict, among the ``labels`` of the fit."""
    if strata is None:
        raise ValueError(f"strata must be given: the fit had {labels.size}, such as {labels.tolist()[0]!r}")
    found, codes = _numbered(strata, n)
    known = {label: k for k, label in enumerate(labels.tolist())}
    unknown = [label for label in found.tolist() if label not in known]
    if unknown:
        raise ValueError(f"strata must be among those of the fit; {unknown[0]!r} is none")
    return np.array([known[label] for label in found.tolist()])[codes]


def curves(baseline: dict, codes: np.ndarray | None, eta: np.ndarray, times: Any) -> np.ndarray:
    r"""Cumulative hazards :math:`\Lambda_0(t) e^\eta` of shape (n_samples, n_times).

    ``baseline`` has the event times of each stratum and the logarithms of its cumulative hazard there. By
    default the times are all event times.
    """
    if times is None:
        times = np.unique(np.concatenate([at for at, _ in baseline.values()]))
    times = np.atleast_1d(check_real("times", times))
    times = check_vector("times", times, times.size, "time")
    logs = np.full((eta.size, times.size), -np.inf)
    order = np.arange(eta.size) if codes is None else np.argsort(codes, kind="stable")
    ends: Any = [] if codes is None else np.flatnonzero(np.diff(codes[order])) + 1
    for rows in np.split(order, ends):
        known = baseline.get(None if codes is None or not rows.size else int(codes[rows[0]]))
        if known is not None:  # not a stratum all of whose events have weight 0
            at = np.searchsorted(known[0], times, side="right")
            logs[rows] = np.append(-np.inf, known[1])[at]
    with np.errstate(over="ignore"):
        return np.exp(eta[:, None] + logs)


def concordance(
    y: Any, risk: ArrayLike, sample_weight: ArrayLike | None = None, strata: ArrayLike | None = None
) -> float:
    """Harrell's concordance index: how often, of two samples, the one of higher risk has its event earlier.

    A pair counts if its order is known: at the event of one, the other is at risk and has its own time later.
    So it is of the same stratum, and has started before. At equal times, a censored sample has the later
    time, and two events do not count. Equal risks count one half. This is the convention of scikit-survival
    and lifelines. The weight of a pair is the product of its weights. It takes O(n log n).

    Parameters
    ----------
    y : array-like
        Times and events, in any form that :meth:`TrimmedCoxRegressor.fit` takes.
    risk : array-like of shape (n_samples,)
        Such as the predictions of :class:`TrimmedCoxRegressor`; only their order counts.
    sample_weight, strata : array-like of shape (n_samples,), optional

    Returns
    -------
    float
        From 0 to 1; random risks have 0.5.

    References
    ----------
    Harrell, Califf, Pryor, Lee and Rosati (1982). Evaluating the yield of medical tests. JAMA 247, 2543-2546.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg import concordance
    >>> y = np.array([[2.0, 1], [3.0, 0], [5.0, 1], [7.0, 1]])  # the second is censored
    >>> concordance(y, [4.0, 1.0, 2.0, 3.0])  # three of four pairs: 5 before 7 has the lower risk
    0.75
    """
    y = stratified(y, strata, fitting=False)[0]
    y = check_target(y, len(y), matrix=True)
    Cox.check_columns(y)
    risk = check_vector("risk", check_real("risk", risk), len(y), "sample")
    weight = np.ones(len(y))
    if sample_weight is not None:
        weight = check_sample_weight(sample_weight, len(y))
        y, risk, weight = y[weight > 0], risk[weight > 0], weight[weight > 0]
    start, time, event, stratum = columns_of(y)
    stratum = np.zeros(len(y)) if stratum is None else stratum
    rank = np.unique(risk, return_inverse=True)[1]
    order = np.lexsort((event, -time, stratum))  # the latest first; of equal times the censored first
    of, at, dead = stratum[order], time[order], event[order] > 0
    # Later than sample i are those before the first event of its time.
    new = np.append(True, (at[1:] != at[:-1]) | (of[1:] != of[:-1]))
    group = np.cumsum(new) - 1
    later = np.flatnonzero(new)[group] + np.bincount(group, ~dead)[group].astype(np.intp)
    i, first = np.flatnonzero(dead), np.searchsorted(of, of[dead])
    counts = _pairs(rank[order], weight[order], first, later[i], rank[order[i]])
    number = later[i] - first
    if start is not None:  # less those that have not started
        entry = np.lexsort((-start, stratum))
        absent = count_up_to(of[i], -at[i], stratum[entry], -start[entry])
        counts -= _pairs(rank[entry], weight[entry], first, absent, rank[order[i]])
        number = number - (absent - first)
    own = np.where(number > 0, weight[order[i]], 0.0)
    pairs, right = own @ counts[0], own @ counts[1]
    if not pairs > 0:
        raise ValueError("y must have two samples with a known order of their events; got none")
    return float(right / pairs)


def _pairs(rank, weight, first, last, limit):
    """For every query, the weight of the entries ``first, ..., last - 1``, and that of ranks below a limit.

    Equal ranks count one half. Entries are divided by the bits of their ranks, the highest first, and keep
    their order otherwise, so that a query stays an interval (a wavelet matrix).
    """
    total = np.append(0.0, np.cumsum(weight))
    below, every = np.zeros(len(first)), total[last] - total[first]
    for bit in reversed(range(int(rank.max(initial=0)).bit_length())):
        high = (rank >> bit) & 1 == 1
        low_before, mass = (
            np.append(0, np.cumsum(~high)),
            np.append(0.0, np.cumsum(np.where(high, 0.0, weight))),
        )
        up = (limit >> bit) & 1 == 1
        below += np.where(up, mass[last] - mass[first], 0.0)
        first, last = (np.where(up, low_before[-1] + k - low_before[k], low_before[k]) for k in (first, last))
        order = np.concatenate([np.flatnonzero(~high), np.flatnonzero(high)])
        rank, weight = rank[order], weight[order]
    total = np.append(0.0, np.cumsum(weight))
    return np.array([every, below + (total[last] - total[first]) / 2])
