"""Choosing how many coefficients to keep, and how strongly to penalize the rest."""

from __future__ import annotations

from .._lazy import lazy

_WHERE = {  # no name may be that of a module of this room, which would hide it
    "Bootstrap": ".bootstrap",
    "CRITERIA": ".criteria",
    "criterion_value": ".criteria",
    "gaussian_deviance": ".criteria",
    "alpha_grid": ".grid",
    "auto_hs": ".grid",
    "check_alphas": ".grid",
    "check_hs": ".grid",
    "choose": ".grid",
    "ebic": "..graphs.selection.criteria",
    "error_bound": ".errorbounds",
    "graph_criterion": "..graphs.selection.criteria",
    "GraphicalPath": "..graphs.selection.graphical_path",
    "graphical_path": "..graphs.selection.graphical_path",
    "MEstimatorCV": ".crossval",
    "StabilitySelection": ".stability",
    "TrimmedCoxRegressorCV": ".models.cox",
    "TrimmedGraphicalLassoCV": "..graphs.selection.crossval",
    "TrimmedLassoCV": ".crossval",
    "TrimmedLogisticRegressionCV": ".crossval",
    "TrimmedPath": ".path",
    "trimmed_path": ".path",
}

__all__ = sorted(_WHERE)
__getattr__, __dir__ = lazy(__name__, _WHERE)
