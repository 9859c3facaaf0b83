"""The alpha above which trimming is best-subset selection."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..losses import Loss
from ..penalties import Penalty, TrimmedL1
from .candidate import Data, read_data

_MARGIN = 1e-6


def exact_penalty_alpha(
    X: Any, y: ArrayLike, *, loss: Loss | str = "quadratic", sample_weight: ArrayLike | None = None,
    fit_intercept: bool = False, standardize: bool = False, penalty_factor: ArrayLike | None = None,
    groups: Any = None, q: float = 2,
) -> float:  # fmt: skip
    r"""An alpha just above the exact-penalty threshold,

    .. math:: \bar\alpha = \max_j \frac{\|z_j\|_d\, B}{f_j}, \qquad \|v\|_d^2 = \sum_i d_i v_i^2,

    with ``z_j`` the columns in the penalty's coordinates and ``d`` the sample weights, which sum to one. B
    (``slope_bound`` of the loss) is a bound of :math:`\|g / d\|_d` for the gradient g of the loss in the
    linear predictor, valid wherever the loss is not above its value at 0. For least squares B is
    :math:`\|y_c\|_d`, with the target centered if an intercept is fitted. For every alpha above the threshold
    and every h, each local minimum of :math:`L(\theta) + \alpha \sum_{j>h} f|\theta|_{(j)}` has at most h
    nonzeros, not counting features with factor 0: best-subset selection of size h.

    For groups, :math:`\|z_j\|_d` is replaced by the norm :math:`\|(\|z_k\|_d)_{k \in j}\|_{q^*}` of the
    column norms of the group, with :math:`q^*` dual to q. With K outputs and ``q = inf`` there is another
    factor :math:`\sqrt K`.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, p)
    y : array-like of shape (n,), or (n, columns) for losses with a matrix target
    loss : str or loss object
        Convex, with a ``slope_bound``.
    sample_weight : array-like of shape (n,), optional
    fit_intercept, standardize : bool
        Whether the intercept is free, and whether the penalty acts on standardized coefficients.
    penalty_factor : array-like of shape (p,) or (number of groups,), optional
        ``f``. Features with factor 0 or inf do not count in the maximum.
    groups, q
        As in :class:`~trimreg.penalties.TrimmedL1`.

    Returns
    -------
    float
        :math:`(1 + 10^{-6})\,\bar\alpha`, since the inequality is strict. If the threshold is 0, any positive
        alpha will do and 1.0 is returned.

    Notes
    -----
    *Proof.* Let theta be a local minimum with more than h nonzeros, S its free set. Its h-th
    and next magnitude differ (see :func:`is_local_minimum`), so some penalized ``theta_j`` is nonzero, and
    :math:`\alpha f_j = |z_j' g| \le \|z_j\|_d\, \|g / d\|_d`. And theta is the minimum of the convex
    :math:`L + \alpha \sum_{k \notin S} f_k |\theta_k|`, whose domain contains 0, so that
    :math:`L(\theta) \le L(0)` and :math:`\|g / d\|_d \le B`. Together
    :math:`\alpha f_j \le \|z_j\|_d B`, contrary to the choice of alpha. The same holds over ``theta >= 0``,
    where a nonzero coefficient satisfies the same conditions. For a group j the gradient
    :math:`(z_k' g)_{k \in j}`, of length :math:`\alpha f_j` in the dual norm, is bounded entry by entry; with
    several outputs, row by row. A ridge term does not change the threshold: its slope has the sign of the
    penalty's, so that :math:`\alpha f_j \le |z_j' g|` still holds.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.diagnostics import exact_penalty_alpha
    >>> X = np.array([[1.0, 0.0], [-1.0, 2.0]])
    >>> y = np.array([3.0, 1.0])
    >>> round(exact_penalty_alpha(X, y), 4)  # sqrt(4/2) * sqrt(10/2)
    3.1623
    >>> round(exact_penalty_alpha(X, y, groups=[0, 0]), 4)  # sqrt(2/2 + 4/2) * sqrt(10/2) / sqrt(2)
    2.7386
    """
    setting = {"fit_intercept": fit_intercept, "standardize": standardize}
    data = read_data(X, y, loss=loss, sample_weight=sample_weight, **setting)
    penalty = TrimmedL1(0, penalty_factor, groups=groups, q=q)
    threshold = exact_penalty_threshold(data, penalty.bind(data.columns.shape[1], data.loss.n_outputs))
    if not np.isfinite(threshold):
        raise ValueError(f"loss must have a slope_bound; got {data.loss!r}, which has none")
    return (1.0 + _MARGIN) * threshold if threshold > 0 else 1.0


def exact_penalty_threshold(data: Data, penalty: Penalty) -> float:
    """The threshold itself, for a penalty bound to the data's features."""
    factor, norm = penalty.levels(1.0), penalty.norm
    counts = (factor > 0) & np.isfinite(factor)
    # The entries of a row share one column: together they are at most its norm times B, in l1 sqrt(K) of it.
    length = norm.dual_lengths(data.norms) / np.sqrt(data.loss.n_outputs)
    largest = float(np.max(length[counts] / factor[counts], initial=0.0))
    return largest * data.loss.slope_bound(data.target, data.d) if largest > 0 else 0.0
