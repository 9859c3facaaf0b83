"""Certificates: the claims of a fit, computed again from the data without the solver.

Each takes the data, the coefficients in the units of X (or the covariance and the precision) and the setting
of the problem. They share nothing with the solvers but the losses and the penalties.
"""

from __future__ import annotations

from .._lazy import lazy

_WHERE = {
    "CertificateCheck": ".bounds",
    "EdgeSwap": "..graphs.diagnostics.swap",
    "GraphCertificate": "..graphs.diagnostics.certificate",
    "LocalMinimumCheck": ".local_minimum",
    "Swap": ".swap",
    "WorstCase": ".worst_case",
    "best_edge_swap": "..graphs.diagnostics.swap",
    "best_swap": ".swap",
    "certify_graph": "..graphs.diagnostics.certificate",
    "dual_feasibility": ".conditions",
    "exact_penalty_alpha": ".exact_penalty",
    "incoherence": ".conditions",
    "is_local_minimum": ".local_minimum",
    "stationarity": ".stationary",
    "verify_certificate": ".bounds",
}

__all__ = sorted(_WHERE)
__getattr__, __dir__ = lazy(__name__, _WHERE)
