"""Choosing how many coefficients to keep, and how strongly to penalize the rest.

The names are imported when they are first asked for: add a line to ``_WHERE`` to add one. A name must not be
that of a module of this room, which would hide it.
"""

from __future__ import annotations

from importlib import import_module

_WHERE = {
    "Bootstrap": "bootstrap",
    "CRITERIA": "criteria",
    "criterion_value": "criteria",
    "gaussian_deviance": "criteria",
    "alpha_grid": "grid",
    "auto_hs": "grid",
    "check_alphas": "grid",
    "check_hs": "grid",
    "choose": "rules",
    "ebic": "graphcriteria",
    "error_bound": "errorbounds",
    "graph_criterion": "graphcriteria",
    "GraphicalPath": "graphpath",
    "graphical_path": "graphpath",
    "MEstimatorCV": "crossval",
    "StabilitySelection": "stability",
    "TrimmedGraphicalLassoCV": "graphical",
    "TrimmedLassoCV": "crossval",
    "TrimmedLogisticRegressionCV": "crossval",
    "TrimmedPath": "path",
    "trimmed_path": "path",
}

__all__ = sorted(_WHERE)


def __getattr__(name):
    if name in _WHERE:
        return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return __all__
