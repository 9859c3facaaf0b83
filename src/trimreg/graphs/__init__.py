"""Gaussian graphical models with at most h edges: problem, solver, estimators, choice of h, pictures."""

from __future__ import annotations

from .._lazy import lazy

_WHERE = {
    "EdgeTable": ".edges",
    "GraphicalPath": ".selection.path",
    "GraphicalResult": ".result",
    "TrimmedGraphicalLasso": ".estimator",
    "TrimmedGraphicalLassoCV": ".selection.search",
    "graph_criterion": ".selection.criteria",
    "graphical_path": ".selection.path",
    "partial_correlations": ".edges",
    "solve_graphical": ".solve",
    "to_networkx": ".edges",
}

__all__ = list(_WHERE)
__getattr__, __dir__ = lazy(__name__, _WHERE)
