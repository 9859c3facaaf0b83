"""Certificates: what a fit claims, computed again from the data without the solver.

All of them take the data, the coefficients in the units of X (or the covariance and the precision) and the
setting of the problem, and share nothing with the solvers but the losses and the penalties.
"""

from __future__ import annotations

from ._worst import WorstCase
from .conditions import dual_feasibility, incoherence
from .exact_penalty import exact_penalty_alpha
from .graphical import GraphCertificate, certify_graph
from .graphical_swap import EdgeSwap, best_edge_swap
from .local_minimum import LocalMinimumCheck, is_local_minimum
from .stationary import stationarity
from .swap import Swap, best_swap

__all__ = [
    "EdgeSwap",
    "GraphCertificate",
    "LocalMinimumCheck",
    "Swap",
    "WorstCase",
    "best_edge_swap",
    "best_swap",
    "certify_graph",
    "dual_feasibility",
    "exact_penalty_alpha",
    "incoherence",
    "is_local_minimum",
    "stationarity",
]
