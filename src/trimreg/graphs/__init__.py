"""Gaussian graphical models with at most h edges: problem, solver, estimators, selection, plots."""

from __future__ import annotations

from .._lazy import lazy

_WHERE = {
    "EdgeTable": ".edges",
    "GraphicalPath": ".selection.graphical_path",
    "GraphicalResult": ".solve",
    "TrimmedGraphicalLasso": ".estimator",
    "TrimmedGraphicalLassoCV": ".selection.crossval",
    "graph_criterion": ".selection.criteria",
    "graphical_path": ".selection.graphical_path",
    "partial_correlations": ".edges",
    "solve_graphical": ".solve",
    "to_networkx": ".edges",
}

__all__ = list(_WHERE)
__getattr__, __dir__ = lazy(__name__, _WHERE)
