"""Certificates: what a fit claims, computed again from the data without the solver.

All of them take the data, the coefficients in the units of X and the setting of the problem, and share
nothing with the solvers but the losses and the penalties.
"""

from __future__ import annotations

from .stationary import stationarity

__all__ = ["stationarity"]
