"""Data to try the methods on: synthetic designs and graphs, those of the paper among them, and real data."""

from __future__ import annotations

from .diabetes import NamedData, diabetes_interactions
from .graphs import SparseGraph, diamond_covariance, make_diamond, make_graph
from .images import ImageData, load_fashion_mnist, load_mnist
from .real import ProteinNetwork, load_colon, load_riboflavin, load_sachs
from .synthetic import (
    SparseRegression,
    covariance_m1,
    covariance_m2,
    make_ar1,
    make_gaussian,
    make_paper_design,
)

__all__ = [
    "ImageData", "NamedData", "ProteinNetwork", "SparseGraph", "SparseRegression", "covariance_m1",
    "covariance_m2", "diabetes_interactions", "diamond_covariance", "load_colon", "load_fashion_mnist",
    "load_mnist", "load_riboflavin", "load_sachs", "make_ar1", "make_diamond", "make_gaussian", "make_graph",
    "make_paper_design",
]  # fmt: skip
