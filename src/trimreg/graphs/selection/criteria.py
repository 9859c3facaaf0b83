"""How good a graph is: likelihood, information criteria, stability."""

from __future__ import annotations

import math

import numpy as np

from ...estimators import validation as check

INFORMATION = ("aic", "bic", "ebic")
GRAPH_CRITERIA = (*INFORMATION, "stars")


def mean_log_likelihood(S, precisions) -> np.ndarray:
    r"""The mean Gaussian log-likelihood of samples with second moments S, as in scikit-learn:

    .. math:: \frac12 \bigl(\log\det\Theta - \mathrm{tr}(S\Theta) - p \log 2\pi\bigr)

    Parameters
    ----------
    S : array-like of shape (p, p)
        :math:`\frac1n \sum_i (x_i - \mu)(x_i - \mu)'` of the samples, around the mean of the model.
    precisions : array-like of shape (..., p, p)
        Positive definite.

    Returns
    -------
    float or ndarray of shape (...)

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.graphs.selection.criteria import mean_log_likelihood
    >>> round(mean_log_likelihood(np.eye(2), np.eye(2)), 4)  # - 1 - log 2 pi
    -2.8379
    """
    S, precisions = _square("S", S), _square("precisions", precisions)
    p = S.shape[-1]
    if S.ndim != 2 or precisions.shape[-1] != p:
        raise ValueError(f"precisions must be of the {p} variables of S; got shape {precisions.shape}")
    sign, log_det = np.linalg.slogdet(precisions)
    if not np.all(sign > 0):
        raise ValueError("precisions must be positive definite")
    trace = np.einsum("ij,...ij->...", S, precisions)
    value = (log_det - trace - p * math.log(2.0 * math.pi)) / 2.0
    return value if np.ndim(value) else float(value)


def graph_criterion(name, S, precisions, n, *, gamma=0.5):
    r"""An information criterion of Gaussian graphical models; smaller is better.

    With :math:`\ell` the log-likelihood of all n samples and E the number of edges,

    .. math::
        \mathrm{AIC} = -2 \ell + 2 E, \quad
        \mathrm{BIC} = -2 \ell + E \log n, \quad
        \mathrm{EBIC} = -2 \ell + E \log n + 4 \gamma E \log p.

    Means and variances are in every model, so they are not counted.

    Parameters
    ----------
    name : {"aic", "bic", "ebic"}
    S : array-like of shape (p, p)
        The covariance of the samples, with n below.
    precisions : array-like of shape (..., p, p)
    n : float
        Number of samples.
    gamma : float, default=0.5
        Of EBIC; 0 is BIC. It is consistent for :math:`p = O(n^\kappa)` if
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
    check.check_choice("criterion", name, INFORMATION)
    n = check.check_number("n", n, 0, strict=True)
    gamma = check.check_number("gamma", gamma, 0.0)
    precisions = _square("precisions", precisions)
    p = precisions.shape[-1]
    deviance = -2.0 * n * np.asarray(mean_log_likelihood(S, precisions))
    edges = np.count_nonzero(np.triu(precisions, 1), axis=(-2, -1))
    price = 2.0 if name == "aic" else math.log(n)
    if name == "ebic":
        price += 4.0 * gamma * math.log(p)
    value = deviance + price * edges
    return value if value.ndim else float(value)


def ebic(S, precision, n, gamma=0.5):
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
    r"""Liu, Roeder and Wasserman's :math:`b(n) = \lfloor \min(10 \sqrt n, 0.8 n) \rfloor`, and 2 at least.

    Examples
    --------
    >>> from trimreg.graphs.selection.criteria import subsample_size
    >>> subsample_size(100), subsample_size(400)
    (80, 200)
    """
    return max(2, int(min(10.0 * math.sqrt(n), 0.8 * n)))


def instability(chosen) -> np.ndarray:
    r"""How much the graphs of subsamples differ, monotonized.

    With :math:`\xi_{st}` the share of the subsamples in whose graph s - t is an edge,

    .. math:: D(h, \alpha) = \binom{p}{2}^{-1} \sum_{s < t} 2 \xi_{st} (1 - \xi_{st}), \qquad
              \bar D(h, \alpha) = \max_{h' \le h,\, \alpha' \ge \alpha} D(h', \alpha'),

    D being twice the variance of the indicator of an edge, averaged over the pairs. It falls again when
    graphs become dense, hence :math:`\bar D`, the largest over all sparser cells.

    Parameters
    ----------
    chosen : array-like of bool of shape (n_subsamples, n_hs, n_alphas, n_pairs)
        Whether a pair is an edge, for rising h and falling alpha.

    Returns
    -------
    ndarray of shape (n_hs, n_alphas)

    References
    ----------
    Liu, Roeder and Wasserman (2010). Stability approach to regularization selection (StARS) for high
    dimensional graphical models. Advances in Neural Information Processing Systems 23.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.graphs.selection.criteria import instability
    >>> first = [[[True, False]], [[True, True]], [[True, True]]]  # two pairs, three h, one alpha
    >>> second = [[[True, False]], [[True, False]], [[True, True]]]
    >>> instability([first, second]).ravel()
    array([0.  , 0.25, 0.25])
    """
    xi = np.mean(np.asarray(chosen, dtype=bool), axis=0)
    D = np.mean(2.0 * xi * (1.0 - xi), axis=-1)
    return np.maximum.accumulate(np.maximum.accumulate(D, axis=0), axis=1)


def least_sparse(unstable, n_edges, threshold):
    """The cell with the most edges whose instability is at most the threshold; None if there is none.

    Of as many edges the larger alpha, then the smaller h is taken.

    Parameters
    ----------
    unstable : array-like of shape (n_hs, n_alphas)
        As :func:`instability` gives it.
    n_edges : array-like of the same shape
    threshold : float

    Returns
    -------
    (int, int) or None

    Examples
    --------
    >>> from trimreg.graphs.selection.criteria import least_sparse
    >>> least_sparse([[0.0, 0.02], [0.03, 0.2]], [[0, 4], [5, 9]], threshold=0.05)
    (1, 0)
    """
    allowed = np.asarray(unstable) <= threshold + 1e-12  # a mean that is the threshold but for rounding
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
