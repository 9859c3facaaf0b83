"""The edges of a Gaussian graphical model: partial correlations, a table, a networkx graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..estimators.summary import Summary
from ..plotting.style import names_of
from .diagnostics.point import symmetric_matrix

_ROUNDING = 1e-8  # of a partial correlation; the error of the solvers is far below


class Edge(NamedTuple):
    """One edge; ``free`` is None if the weights are not known."""

    source: str
    target: str
    partial_correlation: float
    precision: float
    free: bool | None = None


def partial_correlations(precision: ArrayLike) -> np.ndarray:
    r"""Partial correlations of the variables, each pair given all others.

    .. math:: \rho_{ij} = -\frac{\Theta_{ij}}{\sqrt{\Theta_{ii} \Theta_{jj}}}, \qquad \rho_{ii} = 1

    (Lauritzen, Graphical Models, 1996, section 5.1.3). They do not depend on the units of the variables, and
    are zero exactly where the precision is zero.

    Parameters
    ----------
    precision : array-like of shape (p, p)
        Symmetric, with a positive diagonal.

    Returns
    -------
    ndarray of shape (p, p)

    Examples
    --------
    >>> from trimreg.graphs.edges import partial_correlations
    >>> partial_correlations([[4.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 2.0]])
    array([[1. , 0.5, 0. ],
           [0.5, 1. , 0. ],
           [0. , 0. , 1. ]])
    """
    precision = _checked(precision)
    scale = np.sqrt(np.diag(precision))
    partial = 0.0 - precision / np.outer(scale, scale)  # 0 - 0 is 0; negation would print as -0
    np.fill_diagonal(partial, 1.0)
    if np.abs(partial).max() > 1.0 + _ROUNDING:
        raise ValueError("precision must be positive definite; got a partial correlation beyond one")
    return np.clip(partial, -1.0, 1.0)


class EdgeTable(Summary, Sequence):
    """A sequence of :class:`Edge`, the strongest first, displayed as a table.

    It prints as text, displays as HTML in a notebook, and converts to a data frame or LaTeX.

    Parameters
    ----------
    edges : sequence of Edge
        In the order of the rows.
    title, facts, max_rows
        The text above the table, and how many rows to show, as in a model summary.

    Examples
    --------
    >>> from trimreg.graphs.edges import Edge, EdgeTable
    >>> table = EdgeTable([Edge("raf", "mek", 0.5, -1.0, True), Edge("pka", "erk", -0.25, 2.0, False)])
    >>> len(table), table[0].target, [edge.precision for edge in table if not edge.free]
    (2, 'mek', [2.0])
    >>> print(table)
    name       partial correlation  precision  status
    ----------------------------------------------------
    raf – mek               0.5000     -1.000  free
    pka – erk              -0.2500      2.000  penalized
    """

    def __init__(
        self, edges: Sequence[Edge] = (), title: str = "", facts: dict[str, Any] | None = None,
        max_rows: int | None = 50,
    ):  # fmt: skip
        self.edges = tuple(edges)
        columns: dict[str, list] = {
            "partial correlation": [edge.partial_correlation for edge in self.edges],
            "precision": [edge.precision for edge in self.edges],
        }
        if any(edge.free is not None for edge in self.edges):
            words = {True: "free", False: "penalized", None: None}
            columns["status"] = [words[edge.free] for edge in self.edges]
        names = [f"{edge.source} – {edge.target}" for edge in self.edges]  # noqa: RUF001
        super().__init__(title, facts or {}, names, columns, max_rows=max_rows)

    def __getitem__(self, item: Any) -> Any:
        """An edge, or the table of a slice."""
        if isinstance(item, slice):
            return EdgeTable(self.edges[item], self.title, self.facts, self.max_rows)
        return self.edges[item]

    def _drawn(self):
        table = super()._drawn()
        return table if self.edges else table._replace(rest="no edges in the graph")

    def to_frame(self) -> Any:
        """All edges as a data frame, one column per field of :class:`Edge`.

        Returns
        -------
        pandas.DataFrame
        """
        frame = super().to_frame()  # says what to install if pandas is missing
        values = zip(*self.edges, strict=True) if self.edges else [[]] * len(Edge._fields)
        columns = {field: list(column) for field, column in zip(Edge._fields, values, strict=True)}
        edges = type(frame)(columns)
        edges.attrs.update(frame.attrs)
        return edges


def edge_table(
    precision: ArrayLike, names: Sequence[str] | None = None, weights: ArrayLike | None = None, *,
    title: str = "", facts: dict[str, Any] | None = None, max_rows: int | None = 50,
) -> EdgeTable:  # fmt: skip
    r"""The edges of a precision matrix, the pairs with :math:`\Theta_{ij} \ne 0`, as a table.

    They are sorted by the absolute value of the partial correlation; ties stay in the order of the variables.
    An edge with trimming weight 0 is free of the penalty. By default ``facts``, shown above the table, are
    the numbers of variables, edges and free edges.
    """
    precision = _checked(precision)
    p = len(precision)
    names = names_of(names, p)
    if weights is not None:
        weights = np.asarray(weights, dtype=float)
        if weights.shape != precision.shape:
            raise ValueError(f"weights must have the shape of precision, ({p}, {p}); got {weights.shape}")
    partial = partial_correlations(precision)
    rows, columns = np.nonzero(np.triu(precision, 1))
    order = np.argsort(-np.abs(partial[rows, columns]), kind="stable")
    edges = []
    for i, j in zip(rows[order], columns[order], strict=True):
        free = None if weights is None else bool(weights[i, j] <= 0)
        edges.append(Edge(names[i], names[j], float(partial[i, j]), float(precision[i, j]), free))
    if facts is None:
        facts = {"variables": p, "edges": len(edges)}
        if weights is not None:
            facts["free edges"] = sum(edge.free for edge in edges)
    return EdgeTable(edges, title, facts, max_rows)


def to_networkx(
    partial: ArrayLike, names: Sequence[str] | None = None, *, precision: ArrayLike | None = None
) -> Any:
    """The graph of a matrix of partial correlations as a ``networkx.Graph``.

    All variables are nodes, including those without an edge. An edge has the attributes ``weight`` (the
    partial correlation), ``sign`` (1 or -1) and, if the precision is given, ``precision``.

    Parameters
    ----------
    partial : array-like of shape (p, p)
        Partial correlations; zero means no edge.
    names : sequence of str of length p, optional
        Distinct names of the nodes; ``x0``, ``x1``, ... by default.
    precision : array-like of shape (p, p), optional

    Returns
    -------
    networkx.Graph

    Examples
    --------
    >>> from trimreg.graphs.edges import partial_correlations, to_networkx
    >>> precision = [[4.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 2.0]]
    >>> graph = to_networkx(partial_correlations(precision), ["raf", "mek", "erk"], precision=precision)
    >>> list(graph.nodes), graph.edges["mek", "raf"]
    (['raf', 'mek', 'erk'], {'weight': 0.5, 'sign': 1, 'precision': -1.0})
    """
    try:
        import networkx
    except ImportError as error:
        raise ImportError(
            f"to_networkx needs networkx, which cannot be imported ({error}); pip install 'trimreg[graph]'"
        ) from error
    partial = symmetric_matrix("partial", partial)[0]
    names = names_of(names, len(partial))
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"names must be distinct, because they are the nodes; got {twice!r} twice")
    if precision is not None:
        precision = symmetric_matrix("precision", precision)[0]
        if precision.shape != partial.shape:
            raise ValueError(
                f"precision must have the shape of partial, {partial.shape}; got {precision.shape}"
            )
    graph = networkx.Graph()
    graph.add_nodes_from(names)
    for i, j in np.argwhere(np.triu(partial, 1)):
        facts = {"weight": float(partial[i, j]), "sign": int(np.sign(partial[i, j]))}
        if precision is not None:
            facts["precision"] = float(precision[i, j])
        graph.add_edge(names[i], names[j], **facts)
    return graph


def _checked(precision):
    precision = symmetric_matrix("precision", precision)[0]
    if np.any(np.diag(precision) <= 0):
        raise ValueError("precision must have a positive diagonal")
    return precision
