"""Pictures of fits. Every function takes an ``ax`` and returns it; matplotlib is imported on first use."""

from __future__ import annotations

from .comparison import coefficients
from .curves import convergence
from .graphpath import path, precision_recall
from .networks import network
from .paths import coefficient_path
from .selection import coefficient_path_over_h, score_surface, stability_path
from .style import PALETTE, spread

__all__ = [
    "PALETTE",
    "coefficient_path",
    "coefficient_path_over_h",
    "coefficients",
    "convergence",
    "network",
    "path",
    "precision_recall",
    "score_surface",
    "spread",
    "stability_path",
]
