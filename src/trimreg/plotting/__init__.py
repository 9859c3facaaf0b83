"""Pictures of fits. Every function takes an ``ax`` and returns it; matplotlib is imported on first use."""

from __future__ import annotations

from .._lazy import lazy

_WHERE = {
    "PALETTE": ".style",
    "certificate": ".bounds",
    "coefficient_path": ".paths",
    "coefficient_path_over_h": ".paths",
    "coefficients": ".comparison",
    "convergence": ".comparison",
    "intervals": ".effects",
    "network": "..graphs.plots.network",
    "path": "..graphs.plots.edge_curves",
    "precision_recall": "..graphs.plots.edge_curves",
    "score_surface": ".surface",
    "spread": ".style",
    "stability_path": ".paths",
}

__all__ = sorted(_WHERE)
__getattr__, __dir__ = lazy(__name__, _WHERE)
