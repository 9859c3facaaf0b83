r"""Two conditions of the paper's theorems, at the worst set that the penalty may leave free.

For a support S of k features and a set U of h, let :math:`V = S \cup U`. The theorems require a condition at
*every* U of size h. There are :math:`\binom ph` of them, so except in small cases the worst one is searched
for and the result is a lower bound. The result says which.
"""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .arguments import require_memory
from .worst_case import WorstCase, search

_DEPENDENT = 1e-10  # a column is dependent if less than this part of its squared norm remains


def incoherence(
    X: Any = None, *, support: ArrayLike, h: int, gram: ArrayLike | None = None, columns: str = "all",
    method: str = "auto", n_draws: int = 500, max_sets: int = 5000, random_state: Any = 0,
) -> WorstCase:  # fmt: skip
    r"""The incoherence of a design: how well the features in V explain those outside of V,

    .. math:: \max_{|U| = h} \bigl\| G_{V^c V}\, G_{VV}^{-1} \bigr\|_\infty, \qquad V = S \cup U, \quad
              G = X'X / n,

    where the norm is the largest sum of absolute values in a row. Corollary 1 of the paper requires a bound
    that holds for all U. With h = 0 this is the condition of the lasso, which needs a value below 1.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, p), optional
        Used as given, without centering or scaling.
    support : sequence of int, or of bool of length p
        S.
    h : int
        Number of features that the penalty leaves free.
    gram : array of shape (p, p), optional
        G, instead of X; for example a population covariance.
    columns : {"all", "penalized"}
        The columns of V in the sums. "all" is the paper's. Only columns of S - U have a nonzero dual
        variable, and dual feasibility needs no more than the sum over these, "penalized"; with
        :math:`U = S` it is 0.
    method : {"auto", "exact", "sampling", "greedy"}
        "exact" tries all sets; "sampling" draws ``n_draws`` sets U at random; "greedy" adds the feature that
        raises the value most and then exchanges. "auto" is exact for up to ``max_sets`` sets, and otherwise
        the larger of the other two.
    n_draws, max_sets : int
    random_state : int or numpy.random.Generator
        Seed of the draws.

    Returns
    -------
    WorstCase

    References
    ----------
    Yun, Zheng, Yang, Lozano and Aravkin, M-estimation with the trimmed l1 penalty, Corollary 1.
    Wainwright (2009). Sharp thresholds for high-dimensional and noisy sparsity recovery using l1-constrained
    quadratic programming. IEEE Transactions on Information Theory 55, 2183-2202.

    Examples
    --------
    >>> from trimreg.datasets import covariance_m1
    >>> from trimreg.diagnostics import incoherence
    >>> gram = covariance_m1(8, 4, 0.4)
    >>> lasso = incoherence(gram=gram, support=range(4), h=0)
    >>> round(lasso.value, 6), lasso.feature, lasso.holds  # 4 * 0.4: feature 4 is a sum of the first four
    (1.6, 4, False)
    >>> round(incoherence(gram=gram, support=range(4), h=2, columns="penalized").value, 6)
    1.6
    """
    G = _gram(X, gram)
    S, h = _support(support, G.shape[0]), _count(h, G.shape[0])
    if columns not in ("all", "penalized"):
        raise ValueError(f"columns must be 'all' or 'penalized'; got {columns!r}")
    p, k = G.shape[0], S.size
    outside = np.setdiff1d(np.arange(p), S)

    # The matrix depends on U only through A = U - S, so the search is over A.
    def evaluate(A):
        V = np.concatenate([S, np.array(A, dtype=int)])
        rest = np.setdiff1d(outside, A)
        spare = np.clip(h - len(A), 0, k)  # number of members of U within S
        inverse = _inverse(G[np.ix_(V, V)])
        if rest.size == 0 or V.size == 0 or inverse is None:
            return 0.0 if rest.size == 0 or V.size == 0 else np.inf, (*A, *S[:spare]), -1
        sizes = np.abs(G[np.ix_(rest, V)] @ inverse)
        paid = np.sort(sizes[:, :k], axis=1)[:, spare:] if columns == "penalized" else sizes
        sums = paid.sum(axis=1)
        row = int(np.argmax(sums))
        return float(sums[row]), (*A, *S[np.argsort(sizes[row, :k], kind="stable")[:spare]]), rest[row]

    return search(
        evaluate, outside, range(max(0, h - k), min(h, p - k) + 1),
        lambda rng: tuple(np.setdiff1d(rng.choice(p, size=h, replace=False), S)), method=method,
        n_draws=n_draws, max_sets=max_sets, rng=np.random.default_rng(random_state),
    )  # fmt: skip


def dual_feasibility(
    X: Any = None, y: ArrayLike | None = None, *, support: ArrayLike, h: int, alpha: float,
    gram: ArrayLike | None = None, moment: ArrayLike | None = None, method: str = "auto", n_draws: int = 500,
    max_sets: int = 5000, random_state: Any = 0,
) -> WorstCase:  # fmt: skip
    r"""Strict dual feasibility of least squares, condition (a) of Theorem 1:

    .. math:: \max_{|U| = h} \|\tilde z_{V^c}\|_\infty < 1, \qquad \alpha \tilde z = -\nabla L(\tilde\theta),
              \quad \tilde\theta = \arg\min_{\theta:\, \theta_{V^c} = 0} \frac1{2n}\|y - X\theta\|^2
              + \alpha \sum_{j \in S - U} |\theta_j|

    with :math:`V = S \cup U`. If it holds, then for every U the solution with U free and all other features
    penalized is 0 outside of V, although V is not known to it.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, p), optional
    y : array-like of shape (n,), optional
        Both are used as given: center them if the model has an intercept.
    support : sequence of int, or of bool of length p
        The true S.
    h : int
    alpha : float
        For the mean loss with its factor one half; the paper's lambda is twice this.
    gram, moment : arrays of shape (p, p) and (p,), optional
        ``X'X / n`` and ``X'y / n``, instead of X and y.
    method, n_draws, max_sets, random_state
        As in :func:`incoherence`, with a greedy search over U.

    Returns
    -------
    WorstCase

    References
    ----------
    Yun, Zheng, Yang, Lozano and Aravkin, M-estimation with the trimmed l1 penalty, Theorem 1.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.datasets import covariance_m1
    >>> from trimreg.diagnostics import dual_feasibility
    >>> gram = covariance_m1(10, 4, 0.4)
    >>> moment = gram @ np.repeat([1.0, 0.0], [4, 6])  # no noise
    >>> for h in (0, 4):
    ...     worst = dual_feasibility(gram=gram, moment=moment, support=range(4), h=h, alpha=0.1)
    ...     print(h, round(worst.value, 6), worst.free, worst.how)
    0 1.6 () exact
    4 1.6 (5, 6, 7, 8) exact
    """
    if (X is None) != (y is None):
        raise ValueError("X and y go together; give both, or gram and moment")
    G = _gram(X, gram)
    p = G.shape[0]
    c = np.asarray(moment if X is None else X.T @ np.asarray(y, dtype=float) / X.shape[0], dtype=float)
    if c.shape != (p,) or not np.isfinite(c).all():
        raise ValueError(f"moment must be {p} finite numbers, or y as many as X has rows")
    S, h = _support(support, p), _count(h, p)
    if not isinstance(alpha, numbers.Real) or not 0 < alpha < np.inf:
        raise ValueError(f"alpha must be a finite number above 0; got {alpha!r}")

    def evaluate(U):
        V = np.union1d(S, np.array(U, dtype=int))
        rest = np.setdiff1d(np.arange(p), V)
        if rest.size == 0:
            return 0.0, U, -1
        theta = weighted_lasso(G[np.ix_(V, V)], c[V], alpha * ~np.isin(V, U))
        if theta is None:
            return np.inf, U, -1
        z = np.abs(c[rest] - G[np.ix_(rest, V)] @ theta) / alpha
        row = int(np.argmax(z))
        return float(z[row]), U, rest[row]

    return search(
        evaluate, range(p), [h], lambda rng: tuple(rng.choice(p, size=h, replace=False)), method=method,
        n_draws=n_draws, max_sets=max_sets, rng=np.random.default_rng(random_state),
    )  # fmt: skip


def weighted_lasso(
    G: np.ndarray, c: np.ndarray, levels: np.ndarray, max_sweeps: int = 100_000
) -> np.ndarray | None:
    r"""Minimizer of :math:`\frac12\theta'G\theta - c'\theta + \sum_j a_j |\theta_j|`; None if G is singular.

    Coefficients with level 0 are eliminated. The signs are guessed from the solution without a penalty; if
    they are wrong, coordinate descent finds them. The solution for these signs is exact.
    """
    inverse = _inverse(G)
    if inverse is None:
        return None
    theta = inverse @ c
    sign = np.sign(theta)
    guess = theta - inverse @ (levels * sign)
    if np.all((np.sign(guess) == sign) | (levels == 0)):
        return guess
    paid = np.flatnonzero(levels > 0)
    # The Schur complement of the free block is the inverse of a block of the inverse.
    Q = np.linalg.inv(inverse[np.ix_(paid, paid)])
    x = _coordinate_descent((Q + Q.T) / 2, Q @ theta[paid], levels[paid], max_sweeps)
    out = np.empty_like(theta)
    out[paid] = x
    free = levels == 0
    if free.any():
        out[free] = np.linalg.solve(G[np.ix_(free, free)], c[free] - G[np.ix_(free, paid)] @ x)
    return out


def _coordinate_descent(Q, q, levels, max_sweeps):
    """The lasso for a positive definite Q: sweeps until the signs are those of the solution."""
    x, pattern = np.zeros_like(q), None
    for _ in range(max_sweeps):
        for j in range(q.size):
            rest = q[j] - Q[j] @ x + Q[j, j] * x[j]
            x[j] = np.sign(rest) * max(abs(rest) - levels[j], 0.0) / Q[j, j]
        signs = np.sign(x)
        if pattern is None or np.any(signs != pattern):
            pattern, on, exact = signs, signs != 0, np.zeros_like(x)
            if on.any():
                exact[on] = np.linalg.solve(Q[np.ix_(on, on)], q[on] - levels[on] * signs[on])
            slope = np.abs(q - Q @ exact)[~on]
            if np.all(np.sign(exact) == signs) and np.all(slope <= levels[~on] * (1 + 1e-9)):
                return exact
    return x


def _inverse(G):
    """The inverse of a positive definite matrix, or None if its columns are dependent."""
    size = np.sqrt(np.maximum(np.diagonal(G), 0.0))
    if G.shape[0] == 0:
        return G
    if np.any(size == 0):
        return None
    unit = G / np.multiply.outer(size, size)
    try:
        factor = np.linalg.cholesky(unit)
    except np.linalg.LinAlgError:
        return None
    if np.diagonal(factor).min() ** 2 < _DEPENDENT:
        return None
    return np.linalg.inv(unit) / np.multiply.outer(size, size)


def _gram(X, gram):
    if (X is None) == (gram is None):
        raise ValueError("give either X or gram")
    if gram is None:
        require_memory(X)
        product = X.T @ X
        gram = (product.toarray() if hasattr(product, "toarray") else np.asarray(product)) / X.shape[0]
    gram = np.asarray(gram, dtype=float)
    if gram.ndim != 2 or gram.shape[0] != gram.shape[1] or not np.isfinite(gram).all():
        raise ValueError(f"gram must be a square matrix of finite numbers, as X'X/n; got shape {gram.shape}")
    return gram


def _support(support, p):
    indices = np.asarray(list(support) if isinstance(support, range) else support)
    if indices.dtype == bool:
        if indices.shape != (p,):
            raise ValueError(f"support must have {p} entries if it is a mask; got shape {indices.shape}")
        return np.flatnonzero(indices)
    if indices.size == 0:
        return np.empty(0, dtype=int)
    whole = np.issubdtype(indices.dtype, np.integer) and indices.ndim == 1
    if not whole or indices.min() < 0 or indices.max() >= p or np.unique(indices).size != indices.size:
        raise ValueError(f"support must be distinct features from 0 to {p - 1}; got {support!r}")
    return np.sort(indices)


def _count(h, p):
    if isinstance(h, (bool, np.bool_)) or not isinstance(h, numbers.Integral) or not 0 <= h <= p:
        raise ValueError(f"h must be an integer from 0 to {p}; got {h!r}")
    return int(h)
