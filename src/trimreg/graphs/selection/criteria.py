"""Criteria for the choice of a graph: likelihood, information criteria, stability."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...estimators import validation as check
from ...selection.criteria import CRITERIA, FORMULAS

GRAPH_CRITERIA = (*CRITERIA, "stars")


def mean_log_likelihood(S: ArrayLike, precisions: ArrayLike) -> Any:
    r"""The mean Gaussian log-likelihood of samples with second moments S, as in scikit-learn:

    .. math:: \frac12 \bigl(\log\det\Theta - \mathrm{tr}(S\Theta) - p \log 2\pi\bigr)

    S is :math:`\frac1n \sum_i (x_i - \mu)(x_i - \mu)'`, around the mean of the model. ``precisions`` may be
    a stack of positive definite matrices, of shape (..., p, p).
    """
    S, precisions = _square("S", S), _square("precisions", precisions)
    p = S.shape[-1]
    if S.ndim != 2 or precisions.shape[-1] != p:
        raise ValueError(f"precisions must have the {p} variables of S; got shape {precisions.shape}")
    sign, log_det = np.linalg.slogdet(precisions)
    if not np.all(sign > 0):
        raise ValueError("precisions must be positive definite")
    trace = np.einsum("ij,...ij->...", S, precisions)
    value = (log_det - trace - p * math.log(2.0 * math.pi)) / 2.0
    return value if np.ndim(value) else float(value)


def graph_criterion(name: str, S: ArrayLike, precisions: ArrayLike, n: float, *, gamma: float = 0.5) -> Any:
    r"""An information criterion of Gaussian graphical models; smaller is better.

    With :math:`\ell` the log-likelihood of all n samples and E the number of edges,

    .. math::
        \mathrm{AIC} = -2 \ell + 2 E, \quad
        \mathrm{BIC} = -2 \ell + E \log n, \quad
        \mathrm{EBIC} = -2 \ell + E \log n + 4 \gamma E \log p, \quad
        \mathrm{GIC} = -2 \ell + E \log(\log n) \log p.

    Means and variances are in every model, so they are not counted. The formulas are those of
    :func:`~trimreg.selection.criterion_value` with :math:`p^{2E}` in place of the number of models.

    Parameters
    ----------
    name : {"aic", "bic", "ebic", "gic"}
    S : array-like of shape (p, p)
        The covariance of the samples, divided by n.
    precisions : array-like of shape (..., p, p)
    n : float
        Number of samples.
    gamma : float, default=0.5
        Parameter of EBIC; 0 gives BIC. EBIC is consistent for :math:`p = O(n^\kappa)` if
        :math:`\gamma > 1 - 1 / (4 \kappa)`.

    Returns
    -------
    float or ndarray of shape (...)

    References
    ----------
    Foygel and Drton (2010). Extended Bayesian information criteria for Gaussian graphical models. Advances in
    Neural Information Processing Systems 23.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.selection import graph_criterion
    >>> S = np.array([[1.0, 0.3], [0.3, 1.0]])
    >>> models = [np.eye(2), np.linalg.inv(S)]
    >>> [int(graph_criterion(name, S, models, n=40).argmin()) for name in ("aic", "ebic")]
    [1, 0]
    """
    check.check_choice("criterion", name, CRITERIA)
    n = check.check_number("n", n, 0, strict=True)
    gamma = check.check_number("gamma", gamma, 0.0)
    precisions = _square("precisions", precisions)
    p = precisions.shape[-1]
    deviance = -2.0 * n * np.asarray(mean_log_likelihood(S, precisions))
    edges = np.count_nonzero(np.triu(precisions, 1), axis=(-2, -1))
    log_models = 2.0 * edges * math.log(p)
    value = np.asarray(FORMULAS[name](deviance, edges, n=n, p=p, log_models=log_models, gamma=gamma))
    return value if value.ndim else float(value)


def ebic(S: ArrayLike, precision: ArrayLike, n: float, gamma: float = 0.5) -> Any:
    """The extended Bayesian information criterion: :func:`graph_criterion` of that name.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.selection import ebic
    >>> round(ebic(np.eye(3), np.eye(3), n=10), 3)  # no edges: n p (1 + log 2 pi)
    85.136
    """
    return graph_criterion("ebic", S, precision, n, gamma=gamma)


# -- stability -----------------------------------------------------------------------------------------


def subsample_size(n: int) -> int:
    r"""Liu, Roeder and Wasserman's :math:`b(n) = \lfloor \min(10 \sqrt n, 0.8 n) \rfloor`, but at least 2."""
    return max(2, int(min(10.0 * math.sqrt(n), 0.8 * n)))


def draw_subsamples(n: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Sorted indices of ``count`` subsamples without replacement, each of :func:`subsample_size`."""
    size = subsample_size(n)
    return np.array([np.sort(rng.choice(n, size, replace=False)) for _ in range(count)])


def instability(chosen: ArrayLike) -> np.ndarray:
    r"""How much the graphs of subsamples differ, made monotone.

    With :math:`\xi_{st}` the share of the subsamples whose graph has the edge s - t,

    .. math:: D(h, \alpha) = \binom{p}{2}^{-1} \sum_{s < t} 2 \xi_{st} (1 - \xi_{st}), \qquad
              \bar D(h, \alpha) = \max_{h' \le h,\, \alpha' \ge \alpha} D(h', \alpha').

    D is twice the variance of the indicator of an edge, averaged over the pairs. It falls again when graphs
    become dense; therefore :math:`\bar D`, the largest value over all sparser cells, is used. ``chosen`` says
    whether a pair is an edge: its shape is (n_subsamples, n_hs, n_alphas, n_pairs), for increasing h and
    decreasing alpha. See Liu, Roeder and Wasserman (2010) in :class:`~trimreg.TrimmedGraphicalLassoCV`.
    """
    xi = np.mean(np.asarray(chosen, dtype=bool), axis=0)
    D = np.mean(2.0 * xi * (1.0 - xi), axis=-1)
    return np.maximum.accumulate(np.maximum.accumulate(D, axis=0), axis=1)


def least_sparse(unstable: ArrayLike, n_edges: ArrayLike, threshold: float) -> tuple[int, int] | None:
    """The cell with the most edges among those with instability at most the threshold; None if there is none.

    Ties in the number of edges go to the larger alpha, then to the smaller h. ``unstable`` is the result of
    :func:`instability`, and ``n_edges`` has the same shape.
    """
    allowed = np.asarray(unstable) <= threshold + 1e-12  # a mean may exceed the threshold by rounding
    if not allowed.any():
        return None
    rows, columns = np.nonzero(allowed)
    first = np.lexsort((rows, columns, -np.asarray(n_edges)[rows, columns]))[0]
    return int(rows[first]), int(columns[first])


def _square(name, value):
    value = np.asarray(check.check_real(name, value), dtype=float)
    if value.ndim < 2 or value.shape[-1] != value.shape[-2]:
        raise ValueError(f"{name} must be square matrices; got shape {value.shape}")
    return value
