"""Tensors as the X of an estimator: which ones are accepted, and predictions with them.

CuPy and JAX arrays are converted by DLPack. PyTorch is already imported if X is a tensor, so it is looked up
in ``sys.modules``.
"""

from __future__ import annotations

import functools
import re
import sys
import warnings
from typing import Any

import numpy as np

from ..base import ScaledMatrix, VirtualMatrix
from ..dense import DenseDesign
from . import kernels

_FEW = 16  # a product with fewer than 1 in 16 columns gathers them instead of reading all of X

_STORAGE = ("float64", "float32", "bfloat16", "float16")
_COUNTED = ("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64")


def explain_shortage(method):
    """The method, with a ``MemoryError`` that describes X if its device runs out of memory."""

    @functools.wraps(method)
    def wrapper(self, *args, **kwargs):
        try:
            return method(self, *args, **kwargs)
        except loaded().OutOfMemoryError as error:
            shortage = _shortage(getattr(self, "X", self), error)
        # Outside of the handler: the caught error keeps frames alive, and these keep tensors.
        if loaded().cuda.is_available():
            loaded().cuda.empty_cache()
        raise MemoryError(shortage)

    return wrapper


class TorchMatrix(VirtualMatrix):
    """A dense tensor, or an array with DLPack (CuPy, JAX), on any device, as the X of an estimator.

    float64, float32, bfloat16 and float16 are used in place. Integers and booleans are copied to float64 (to
    float32 on a device without float64). A view with gaps in both directions is copied too. Gradients are
    ignored.
    """

    portable = False  # a device holds it

    def __init__(self, X: Any):
        tensor = _dense_tensor(X)
        self.shape = tuple(tensor.shape)
        self._note = ""
        self.device = str(tensor.device)
        self.storage = _name(tensor.dtype)
        self.passes = 0  # over all of X
        self.tensor = self._settled(tensor)
        self.dtype = np.dtype(float if self.storage == "float64" else np.float32)

    @explain_shortage
    def _settled(self, tensor):
        """The tensor, copied if necessary."""
        if self.storage not in _STORAGE:
            tensor = tensor.to(kernels.arithmetic(tensor))
            self._note, self.storage = f" (a copy of {self.storage})", _name(tensor.dtype)
        if 1 not in tensor.stride():
            tensor, self._note = tensor.contiguous(), self._note or " (a copy without gaps)"
        return tensor

    def describe(self) -> str:
        n, p = self.shape
        return f"tensor {n} x {p} {self.storage} on {self.device}{self._note}"

    @property
    def nbytes(self) -> int:
        return self.shape[0] * self.shape[1] * self.tensor.element_size()

    @explain_shortage
    def product(self, coef: np.ndarray, intercept: Any = 0.0) -> np.ndarray:
        """``X coef + intercept`` in float64; NaN and inf are refused, also in columns without coefficient."""
        coef = np.asarray(coef, dtype=float)
        if self._few(_used(coef)):  # otherwise they show in the product
            self.passes += 1
            if not bool(self.tensor.sum(dtype=self.arithmetic).isfinite()):  # or the sum overflowed
                refuse_nonfinite(self.tensor, self.index(np.arange(self.shape[1])))
        return self.times(coef) + intercept

    def times(self, u: np.ndarray) -> np.ndarray:
        """``X u``, from all of X or only from the columns with a coefficient if these are few."""
        used = _used(u)
        if not self._few(used):
            self.passes += 1
            return kernels.product(self.tensor, self.vector(u)).cpu().numpy()
        product = np.zeros((self.shape[0], *u.shape[1:]))
        index, factor = self.index(used), self.vector(u[used]).to(self.tensor.device, self.arithmetic)
        for rows in kernels.row_blocks(self.tensor, used.size) if used.size else ():
            product[rows] = (self.taken(index, rows) @ factor).cpu().numpy()
        return product

    def _few(self, columns) -> bool:
        """Whether gathering these columns is less work than reading all."""
        return columns.size * _FEW < self.shape[1]

    def design(self, weights: np.ndarray, *, center: bool = False, scale: Any = False) -> ScaledMatrix:
        """The design over X, on its device; a NumPy one without a copy if the tensor is on the CPU."""
        if self.tensor.device.type != "cpu" or self.storage not in ("float64", "float32"):
            from .design import TorchDesign

            return TorchDesign(self, weights, center=center, scale=scale)
        X = self.tensor.numpy()
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(np.sum(X, dtype=float))
        if not finite:
            refuse_nonfinite(self.tensor, self.index(np.arange(self.shape[1])))
        return DenseDesign(X, weights, center=center, scale=scale)

    @property
    def arithmetic(self) -> Any:
        """The dtype of products on the device."""
        return kernels.arithmetic(self.tensor)

    def vector(self, values: Any) -> Any:
        """A NumPy array as a float64 tensor on the device where sums are taken."""
        values = np.ascontiguousarray(values, dtype=float)
        if not values.flags.writeable:
            values = values.copy()  # a tensor that shares its memory could write to it
        return loaded().from_numpy(values).to(kernels.home(self.tensor))

    def index(self, W: Any) -> Any:
        return loaded().from_numpy(np.array(W, dtype=np.int64)).to(self.tensor.device)

    def taken(self, index: Any, rows: slice = slice(None)) -> Any:
        """A copy of some columns and rows in the dtype of the arithmetic."""
        return gathered(self.tensor, index, rows).to(self.arithmetic)


def _used(u):
    """The rows of coefficients that are not all 0."""
    return np.flatnonzero(u if u.ndim == 1 else u.any(axis=1))


def gathered(X, index, rows=slice(None)):
    """A copy of some columns and rows of X, in its storage order."""
    part = X[rows]
    return part.t().index_select(0, index).t() if kernels.by_columns(X) else part.index_select(1, index)


def refuse_nonfinite(X, index) -> None:
    """Raise a ``ValueError`` with the place of the first NaN or inf among these columns, if there is one."""
    count, first = 0, None
    for rows in kernels.row_blocks(X, len(index)):
        part = gathered(X, index, rows)
        bad = ~part.isfinite()
        here = int(bad.sum())
        if here and first is None:
            row, column = bad.nonzero()[0].tolist()
            kind = "NaN" if bool(part[row, column].isnan()) else "inf"
            first = f"{kind} at row {rows.start + row}, column {int(index[column])}"
        count += here
    if count:
        raise ValueError(
            f"X contains {first} (and {count - 1} more NaN or inf); drop or impute missing values"
        )


# -- which tensors are accepted ------------------------------------------------------------------------------


def _dense_tensor(X):
    """The user's data as a tensor without gradients, or an error that says what to pass instead."""
    torch = loaded(X)
    if not isinstance(X, torch.Tensor):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about read-only memory: nothing writes to it
            X = torch.from_dlpack(X)
    if X.layout != torch.strided:
        raise TypeError(
            f"X is a sparse tensor ({_name(X.layout)}); pass X.to_dense() or a SciPy sparse matrix"
        )
    if X.is_complex():
        raise ValueError("Complex data not supported: X must be real")
    if _name(X.dtype) not in (*_STORAGE, *_COUNTED):
        raise TypeError(f"X is a tensor of {_name(X.dtype)}; convert it to one of {', '.join(_STORAGE)}")
    if X.device.type == "meta":
        raise TypeError("X is a tensor on the meta device, which holds no numbers")
    if X.ndim != 2 or 0 in X.shape:
        raise ValueError(
            f"X must be a matrix with at least one row and one column; got a tensor of shape {tuple(X.shape)}"
        )
    return X.detach().resolve_neg()


def loaded(X=None):
    """The module torch, which is already imported if X is a tensor."""
    if "torch" not in sys.modules:
        raise ImportError(
            f"X is a {type(X).__module__}.{type(X).__name__}, which needs PyTorch: install it "
            "(pip install 'trimreg[torch]') and import torch before the fit, or pass a NumPy array"
        )
    return sys.modules["torch"]


def _name(thing) -> str:
    """``float32`` for ``torch.float32``."""
    return str(thing).removeprefix("torch.")


def _shortage(matrix, error) -> str:
    """The message for a device that is out of memory."""
    asked = re.search(r"Tried to allocate ([\d.]+ ?\w+)", str(error))
    wanted = f"{asked.group(1)} more were needed" if asked else "more was needed"
    n, p = matrix.shape
    free = ""
    if matrix.device.startswith("cuda"):
        left, total = loaded().cuda.mem_get_info(matrix.device)
        free = f", {left / 2**30:.2f} of {total / 2**30:.2f} GiB are free"
    return (
        f"{matrix.device} has no memory left to work with X ({n} x {p} {matrix.storage}): {wanted}{free}. "
        "Free other tensors there, store X in bfloat16, or pass it as a NumPy array or from disk"
    )
