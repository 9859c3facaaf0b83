"""scikit-learn estimators, and the function that they are thin over."""

from __future__ import annotations

from .mestimator import MEstimator
from .solve import solve, steps
from .trimmed_lasso import TrimmedLasso

__all__ = ["MEstimator", "TrimmedLasso", "solve", "steps"]
