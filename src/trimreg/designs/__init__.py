"""What ``X`` may be. One small class each; :mod:`trimreg.designs.base` has the contract."""

from .base import ColumnBlock, Design, ScaledMatrix, VirtualMatrix
from .convert import as_design
from .dense import DenseDesign
from .sparse import SparseDesign
from .wrappers import MultiOutput, WithConstant

__all__ = [
    "ColumnBlock",
    "DenseDesign",
    "Design",
    "MultiOutput",
    "ScaledMatrix",
    "SparseDesign",
    "VirtualMatrix",
    "WithConstant",
    "as_design",
]
