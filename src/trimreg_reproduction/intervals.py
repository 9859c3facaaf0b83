"""Intervals of probabilities and of means, and the lines of a chart that show them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np


def wilson(successes: int, trials: int, z: float = 1.959963984540054) -> tuple[float, float]:
    r"""Wilson's interval of a probability, with :math:`\hat p = k / n`:

    .. math:: \frac{\hat p + z^2 / 2n \pm z \sqrt{\hat p (1 - \hat p) / n + z^2 / 4n^2}}{1 + z^2 / n}

    References
    ----------
    Wilson (1927). Probable inference, the law of succession, and statistical inference. Journal of the
    American Statistical Association 22, 209-212.

    Examples
    --------
    >>> from trimreg_reproduction.intervals import wilson
    >>> [round(end, 4) for end in wilson(226, 1000)]
    [0.2012, 0.2529]
    """
    share, spread = successes / trials, z**2 / trials
    middle = share + spread / 2
    half = z * np.sqrt(share * (1.0 - share) / trials + spread / (4 * trials))
    # The ends are exactly 0 and 1 if none or all succeed; rounding would miss them.
    low = 0.0 if successes == 0 else float((middle - half) / (1.0 + spread))
    high = 1.0 if successes == trials else float((middle + half) / (1.0 + spread))
    return low, high


def share_line(name: str, x: Iterable, flags: Sequence) -> dict:
    """The line of a chart with the share of true flags at each x, and Wilson's intervals."""
    ends = [wilson(int(np.sum(one)), len(one)) for one in flags]
    shares = [float(np.mean(one)) for one in flags]
    return _line(name, x, shares, [low for low, _ in ends], [high for _, high in ends])


def mean_line(name: str, x: Iterable, values: Iterable) -> dict:
    """The line of a chart with the mean of the values at each x, and 95 % intervals."""
    values = [np.asarray(one, dtype=float) for one in values]
    mean = [float(one.mean()) for one in values]
    half = [1.96 * float(one.std(ddof=1)) / np.sqrt(one.size) if one.size > 1 else 0.0 for one in values]
    low, high = ([float(m + sign * w) for m, w in zip(mean, half, strict=True)] for sign in (-1, 1))
    return _line(name, x, mean, low, high)


def _line(name, x, y, low, high):
    return {"name": name, "x": [float(value) for value in x], "y": y, "low": low, "high": high}
