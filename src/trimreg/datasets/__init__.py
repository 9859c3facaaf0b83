"""Data to try the methods on: synthetic designs, those of the paper among them, and real data."""

from __future__ import annotations

from .diabetes import NamedData, diabetes_interactions
from .synthetic import (
    SparseRegression,
    covariance_m1,
    covariance_m2,
    make_ar1,
    make_gaussian,
    make_paper_design,
)

__all__ = [
    "NamedData",
    "SparseRegression",
    "covariance_m1",
    "covariance_m2",
    "diabetes_interactions",
    "make_ar1",
    "make_gaussian",
    "make_paper_design",
]
