r"""Sparse Gaussian graphical models: rows :math:`x \sim N(0, \Theta^{-1})` with a sparse precision Theta.

A graph is drawn, its edges get values, and one number on the diagonal sets the condition number. Connected
components are treated one by one, so a graph of many small blocks is cheap. All draws come from one NumPy
generator in a fixed order, so a seed fixes the data.
"""

from __future__ import annotations

import numbers
from typing import Any, NamedTuple

import numpy as np

from .synthetic import check_number, check_sizes


class SparseGraph(NamedTuple):
    """A draw of a sparse Gaussian graphical model.

    Attributes
    ----------
    X : ndarray of shape (n_samples, n_features)
        In C order.
    precision : ndarray of shape (n_features, n_features)
        The true precision: exactly zero where there is no edge.
    covariance : ndarray of shape (n_features, n_features)
        Its inverse, with a unit diagonal.
    edges : ndarray of int, of shape (n_edges, 2)
        Pairs i < j, sorted.
    """

    X: np.ndarray
    precision: np.ndarray
    covariance: np.ndarray
    edges: np.ndarray


def make_graph(
    kind: str, n_samples: int, n_features: int, *, density: float = 0.05, condition: float = 10.0,
    n_blocks: int = 5, random_state: Any = None,
) -> SparseGraph:  # fmt: skip
    r"""Draw a graph, a precision matrix on it, and Gaussian samples.

    The edges get values :math:`A_{ij} = \pm U(0.5, 1)`, signs at random. With the smallest and largest
    eigenvalue of A the diagonal is one number c,

    .. math:: \Theta = A + c I, \qquad c = \frac{\lambda_{\max} - \kappa \lambda_{\min}}{\kappa - 1},

    so that the condition number of Theta is :math:`\kappa` = ``condition``. Then the variables are rescaled
    to unit variance, which changes the condition number a little. A graph without edges has Theta = I.

    Parameters
    ----------
    kind : {"random", "scale_free", "band", "blocks"}
        - ``"random"``: ``round(density * m)`` edges out of all m = p (p - 1) / 2, uniformly at random.
        - ``"scale_free"``: preferential attachment (Barabasi and Albert 1999). The first k + 1 nodes are all
          connected; each further node is connected to k older ones, drawn in proportion to their degrees.
        - ``"band"``: i and j are connected if ``|i - j| <= k``.
        - ``"blocks"``: ``n_blocks`` random graphs on consecutive variables without edges between them;
          ``density`` is that within a block.

        In ``"scale_free"`` and ``"band"`` there are k p - k (k + 1) / 2 edges, where k >= 1 makes this number
        as close to ``density * m`` as possible.
    n_samples, n_features : int
    density : float in [0, 1]
        Proportion of the pairs that are edges.
    condition : float above 1
        Condition number of the precision before rescaling, at most 1e12.
    n_blocks : int
        Number of blocks, for ``kind="blocks"`` only.
    random_state : int, numpy.random.Generator or None
        Anything that ``numpy.random.default_rng`` takes.

    Returns
    -------
    SparseGraph

    References
    ----------
    Barabasi and Albert (1999). Emergence of scaling in random networks. Science 286, 509-512.

    Examples
    --------
    >>> from trimreg.datasets import make_graph
    >>> X, precision, covariance, edges = make_graph("random", 50, 20, density=0.1, random_state=0)
    >>> X.shape, len(edges), int((precision != 0).sum())
    ((50, 20), 19, 58)
    """
    n, p, _ = check_sizes(n_samples, n_features, 0)
    density = check_number("density", density, 0.0, 1.0)
    condition = check_number("condition", condition, 1.0, 1e12)
    if condition == 1.0:
        raise ValueError("condition must be above 1: with condition 1 there are no edges; got 1")
    rng = np.random.default_rng(random_state)
    if kind == "random":
        edges = _random_edges(rng, p, density)
    elif kind == "scale_free":
        edges = _scale_free_edges(rng, p, _edges_per_node(p, density))
    elif kind == "band":
        edges = _band_edges(p, _edges_per_node(p, density))
    elif kind == "blocks":
        whole = isinstance(n_blocks, numbers.Integral) and not isinstance(n_blocks, (bool, np.bool_))
        if not whole or not 1 <= n_blocks <= p:
            raise ValueError(f"n_blocks must be an integer from 1 to n_features = {p}; got {n_blocks!r}")
        edges = _block_edges(rng, p, density, int(n_blocks))
    else:
        raise ValueError(f"kind must be 'random', 'scale_free', 'band' or 'blocks'; got {kind!r}")
    values = rng.choice([-1.0, 1.0], size=len(edges)) * rng.uniform(0.5, 1.0, size=len(edges))
    pieces = _components(p, edges)
    precision, covariance = _conditioned(p, edges, values, pieces, condition)
    return SparseGraph(_draw(rng, n, covariance, pieces), precision, covariance, edges)


def diamond_covariance(rho: float) -> np.ndarray:
    r"""Covariance of the diamond graph: four variables, where every pair except (1, 4) is an edge.

    Counting from 1, :math:`\Sigma_{ii} = 1`, :math:`\Sigma_{12} = \Sigma_{13} = \Sigma_{24} = \Sigma_{34} =
    \rho`, :math:`\Sigma_{23} = 0` and :math:`\Sigma_{14} = 2\rho^2`. Given variables 2 and 3, variables 1
    and 4 are independent with variance :math:`1 - 2\rho^2`; so :math:`\Theta_{14} = 0`, and the matrix is
    positive definite for :math:`2\rho^2 < 1`. Although variables 2 and 3 are uncorrelated,

    .. math:: \Theta_{23} = \frac{2\rho^2}{1 - 2\rho^2}

    is not zero: (2, 3) is an edge of the conditional independence graph, and for small rho a weak one.

    References
    ----------
    Ravikumar, Wainwright, Raskutti and Yu (2011). High-dimensional covariance estimation by minimizing
    l1-penalized log-determinant divergence. Electronic Journal of Statistics 5, 935-980, section 3.1.1.

    Examples
    --------
    >>> from trimreg.datasets import diamond_covariance
    >>> diamond_covariance(0.5)
    array([[1. , 0.5, 0.5, 0.5],
           [0.5, 1. , 0. , 0.5],
           [0.5, 0. , 1. , 0.5],
           [0.5, 0.5, 0.5, 1. ]])
    """
    rho = check_number("rho", rho)
    if 2.0 * rho**2 >= 1.0:
        raise ValueError(f"rho must be below 1/sqrt(2) in absolute value; got {rho:g}")
    covariance = np.eye(4)
    for i, j, value in ((0, 1, rho), (0, 2, rho), (1, 3, rho), (2, 3, rho), (0, 3, 2.0 * rho**2)):
        covariance[i, j] = covariance[j, i] = value
    return covariance


def make_diamond(n_samples: int, rho: float, random_state: Any = None) -> SparseGraph:
    r"""Samples of the diamond graph, see :func:`diamond_covariance`.

    The precision is written in closed form: with :math:`v = 1 - 2\rho^2` it is :math:`1/v` on the
    diagonal, :math:`-\rho/v` at the edges except (2, 3), :math:`2\rho^2/v` at (2, 3), and exactly 0 at (1, 4)
    (counted from 1). With rho = 0 there are no edges.

    Parameters
    ----------
    n_samples : int
    rho : float
        With ``2 * rho**2 < 1``.
    random_state : int, numpy.random.Generator or None

    Returns
    -------
    SparseGraph

    Examples
    --------
    >>> from trimreg.datasets import make_diamond
    >>> make_diamond(100, 0.3, random_state=0).edges.tolist()
    [[0, 1], [0, 2], [1, 2], [1, 3], [2, 3]]
    """
    n, _, _ = check_sizes(n_samples, 4, 0)
    covariance = diamond_covariance(rho)
    rest = 1.0 - 2.0 * rho**2
    precision = np.eye(4) / rest
    for i, j, value in ((0, 1, -rho), (0, 2, -rho), (1, 3, -rho), (2, 3, -rho), (1, 2, 2.0 * rho**2)):
        precision[i, j] = precision[j, i] = value / rest
    edges = np.argwhere(np.triu(precision, 1) != 0.0)
    X = _draw(np.random.default_rng(random_state), n, covariance, [np.arange(4)])
    return SparseGraph(X, precision, covariance, edges)


# -- edges: sorted pairs i < j ------------------------------------------------------------------------------


def _random_edges(rng, p, density):
    rows, columns = np.triu_indices(p, 1)
    chosen = np.sort(rng.choice(rows.size, size=round(density * rows.size), replace=False))
    return np.column_stack([rows[chosen], columns[chosen]])


def _block_edges(rng, p, density, n_blocks):
    blocks = np.array_split(np.arange(p), n_blocks)
    return np.concatenate([block[0] + _random_edges(rng, block.size, density) for block in blocks])


def _edges_per_node(p, density):
    """The k from 1 to p - 1 for which k p - k (k + 1) / 2 edges come closest to the density; 0 if p is 1."""
    k = np.arange(1, p)
    if k.size == 0:
        return 0
    return int(k[np.argmin(np.abs(k * p - k * (k + 1) / 2 - density * p * (p - 1) / 2))])


def _band_edges(p, k):
    rows, columns = np.triu_indices(p, 1)
    near = columns - rows <= k
    return np.column_stack([rows[near], columns[near]])


def _scale_free_edges(rng, p, k):
    rows, columns = np.triu_indices(min(k + 1, p), 1)
    edges = [np.column_stack([rows, columns])]
    degree = np.zeros(p)
    degree[: k + 1] = k
    for new in range(k + 1, p):
        old = rng.choice(new, size=k, replace=False, p=degree[:new] / degree[:new].sum())
        edges.append(np.column_stack([old, np.full(k, new)]))
        degree[old] += 1
        degree[new] = k
    edges = np.concatenate(edges)
    return edges[np.lexsort((edges[:, 1], edges[:, 0]))]


# -- matrices and samples -----------------------------------------------------------------------------------


def _components(p, edges):
    """The variables of each connected component, in ascending order."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(p, p))
    _, label = connected_components(graph, directed=False)
    order = np.argsort(label, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(label[order])) + 1)


def _conditioned(p, edges, values, pieces, condition):
    """The precision with that condition number and its inverse, rescaled to unit variances."""
    precision = np.zeros((p, p))
    precision[edges[:, 0], edges[:, 1]] = precision[edges[:, 1], edges[:, 0]] = values
    extremes = [np.linalg.eigvalsh(precision[np.ix_(piece, piece)])[[0, -1]] for piece in pieces]
    low, high = np.min(extremes), np.max(extremes)
    np.fill_diagonal(precision, (high - condition * low) / (condition - 1.0) if len(edges) else 1.0)
    covariance = np.zeros((p, p))
    for piece in pieces:
        where = np.ix_(piece, piece)
        inverse = np.linalg.inv(precision[where])
        inverse = (inverse + inverse.T) / 2.0
        deviation = np.sqrt(np.diag(inverse))
        covariance[where] = inverse / np.outer(deviation, deviation)
        precision[where] *= np.outer(deviation, deviation)
    np.fill_diagonal(covariance, 1.0)  # removes rounding
    return precision, covariance


def _draw(rng, n, covariance, pieces):
    """Rows of N(0, covariance), whose entries between the pieces are 0."""
    X = rng.standard_normal((n, len(covariance)))
    for piece in pieces:
        if piece.size > 1:
            X[:, piece] = X[:, piece] @ np.linalg.cholesky(covariance[np.ix_(piece, piece)]).T
    return X
