"""What ``X`` may be. One small class each; see :mod:`trimreg.designs.base` for the interface."""

from __future__ import annotations

import scipy.sparse as sp

from .base import Design, ScaledMatrix
from .convert import adopt
from .dense import DenseDesign
from .sparse import SparseDesign
from .wrappers.constant import WithConstant
from .wrappers.outputs import MultiOutput

__all__ = [
    "DenseDesign",
    "Design",
    "MultiOutput",
    "ScaledMatrix",
    "SparseDesign",
    "WithConstant",
    "as_design",
]


def as_design(X, weights, *, center=False, scale=False) -> ScaledMatrix:
    """The design for ``X``: sparse matrices by columns, arrays as they are, others where they lie.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.designs import as_design
    >>> X = np.array([[1.0, 2.0], [3.0, 2.0]])
    >>> design = as_design(X, np.array([0.5, 0.5]), center=True, scale=True)
    >>> design.matvec(np.array([1.0, 1.0]))  # the constant column takes no part
    array([-1.,  1.])
    """
    foreign = adopt(X)
    if foreign is not None:
        return foreign.design(weights, center=center, scale=scale)
    kind = SparseDesign if sp.issparse(X) else DenseDesign
    return kind(X, weights, center=center, scale=scale)
