"""The alpha from which trimming is best-subset selection."""

from __future__ import annotations

import numpy as np

from ..penalties import TrimmedL1
from ._point import Data, read_data

_MARGIN = 1e-6


def exact_penalty_alpha(
    X, y, *, sample_weight=None, fit_intercept=False, standardize=False, penalty_factor=None
) -> float:
    r"""An alpha just over the exact-penalty threshold of least squares,

    .. math:: \bar\alpha = \max_j \frac{\|z_j\|_d\, \|y_c\|_d}{f_j}, \qquad \|v\|_d^2 = \sum_i d_i v_i^2,

    with ``z_j`` the columns in the penalty's coordinates, ``y_c`` the target (centred if an intercept is
    fitted) and ``d`` the sample weights, summing to one. For every alpha above it and every h, each local
    minimum of :math:`\frac12\|y_c - Z\theta\|_d^2 + \alpha \sum_{j>h} f|\theta|_{(j)}` has at most h
    nonzeros, not counting features of factor 0: best-subset selection of size h.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, p)
    y : array-like of shape (n,)
    sample_weight : array-like of shape (n,), optional
    fit_intercept, standardize : bool
        Whether the intercept is free, and whether the penalty acts on standardized coefficients.
    penalty_factor : array-like of shape (p,), optional
        ``f``. Features of factor 0 or inf do not count in the maximum.

    Returns
    -------
    float
        :math:`(1 + 10^{-6})\,\bar\alpha`: the condition is a strict inequality, and the margin is far
        above rounding. If the threshold is 0 any positive alpha will do, and 1.0 is returned.

    Notes
    -----
    *Proof.* Let theta be a local minimum with more than h nonzeros, r its residual. Its h-th
    and next magnitude differ (see :func:`is_local_minimum`), so some penalized ``theta_j`` is nonzero,
    and :math:`\alpha f_j = |z_j' D r| \le \|z_j\|_d \|r\|_d`. For every k, ``theta_k z_k'Dr`` is 0 (free,
    or ``theta_k = 0``) or :math:`\alpha f_k|\theta_k|`; summed,
    :math:`\langle Z\theta, r\rangle_d \ge 0`, so that
    :math:`\|r\|_d^2 = \langle y_c - Z\theta, r\rangle_d \le \langle y_c, r\rangle_d \le \|y_c\|_d \|r\|_d`.
    Together :math:`\alpha f_j \le \|z_j\|_d \|y_c\|_d`, against the choice of alpha. The same holds over
    ``theta >= 0``, where a nonzero coefficient has the same conditions.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.diagnostics import exact_penalty_alpha
    >>> X = np.array([[1.0, 0.0], [-1.0, 2.0]])
    >>> y = np.array([3.0, 1.0])
    >>> round(exact_penalty_alpha(X, y), 4)  # sqrt(4/2) * sqrt(10/2)
    3.1623
    """
    data = read_data(X, y, sample_weight=sample_weight, fit_intercept=fit_intercept, standardize=standardize)
    p = data.columns.shape[1]
    factor = TrimmedL1(0, penalty_factor).bind(p).thresholds(np.ones(p), 1.0)
    mean = float(data.d @ data.y) if data.fit_intercept else 0.0
    threshold = exact_penalty_threshold(data, data.y - mean, factor)
    return (1.0 + _MARGIN) * threshold if threshold > 0 else 1.0


def exact_penalty_threshold(data: Data, target: np.ndarray, factor: np.ndarray) -> float:
    """The threshold itself, for a target that is centred where it has to be."""
    counts = (factor > 0) & np.isfinite(factor)
    norms = data.columns.norms[counts] / factor[counts]
    return float(np.max(norms, initial=0.0)) * data.rms(target)
