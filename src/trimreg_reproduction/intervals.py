"""Intervals of probabilities."""

from __future__ import annotations

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
    # The ends are 0 and 1 themselves where none or all succeed, but for rounding.
    low = 0.0 if successes == 0 else float((middle - half) / (1.0 + spread))
    high = 1.0 if successes == trials else float((middle + half) / (1.0 + spread))
    return low, high
