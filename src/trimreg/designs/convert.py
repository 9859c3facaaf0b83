"""From the user's ``X`` to a design: arrays, sparse matrices, tensors, files, Dask collections, designs.

Objects of other libraries are recognized by the name of their package, so nothing is imported that the user
has not imported already.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from .base import ScaledMatrix, VirtualMatrix
from .dense import DenseDesign
from .sparse import SparseDesign

_DLPACK_CPU = 1  # kDLCPU of the DLPack standard


def as_design(X: Any, weights: np.ndarray, *, center: bool = False, scale: Any = False) -> ScaledMatrix:
    """The design over ``X``, with columns centered and scaled as asked.

    Parameters
    ----------
    X : array, sparse matrix, tensor, Dask collection, :class:`~trimreg.OnDisk` or Design
    weights : ndarray of shape (n,)
        Sample weights that sum to one.
    center, scale : bool
        Whether to center the columns, and to divide them by their deviations. ``scale`` may also be an array
        of p numbers to divide by.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.designs import as_design
    >>> X = np.array([[1.0, 2.0], [3.0, 2.0]])
    >>> design = as_design(X, np.array([0.5, 0.5]), center=True, scale=True)
    >>> design.matvec(np.array([1.0, 1.0]))  # the constant column has no effect
    array([-1.,  1.])
    """
    virtual = as_virtual(X)
    if virtual is not None:
        return virtual.design(weights, center=center, scale=scale)
    kind = SparseDesign if sp.issparse(X) else DenseDesign
    return kind(X, weights, center=center, scale=scale)


def as_virtual(X: Any) -> VirtualMatrix | None:
    """``X`` as a :class:`VirtualMatrix`; None if it is an array in memory, or can be read as one.

    Virtual are Dask arrays and DataFrames, torch tensors, CuPy and JAX arrays outside of the CPU's memory,
    :class:`~trimreg.OnDisk` and designs.
    """
    if is_virtual(X):
        return X
    kind = _kind(X)
    if kind == "dask":
        from .far.dask import DaskRows

        return DaskRows(X)
    if kind == "torch" or (kind == "dlpack" and not _on_cpu(X)):
        from .torch.matrix import TorchMatrix

        return TorchMatrix(X)
    return None


def is_virtual(X: Any) -> bool:
    """Whether ``X`` is a :class:`VirtualMatrix` already."""
    return isinstance(X, VirtualMatrix)


def is_far(X: Any) -> bool:
    """Whether :func:`as_virtual` would accept ``X``, without a conversion."""
    kind = _kind(X)
    return is_virtual(X) or (kind is not None and not (kind == "dlpack" and _on_cpu(X)))


def is_cpu_tensor(X: Any) -> bool:
    """Whether ``X`` is a dense torch tensor on the CPU, which NumPy can read without a copy."""
    return _kind(X) == "torch" and X.device.type == "cpu" and str(X.layout) == "torch.strided"


def stays_in_process(X: Any) -> bool:
    """Whether ``X`` should not be sent to other processes: a GPU or the client of a cluster holds it."""
    return is_virtual(X) and not X.portable


def to_host(value: Any) -> Any:
    """A vector or small matrix as a NumPy array, or as an object that NumPy can read."""
    if isinstance(value, np.matrix):
        return np.asarray(value)  # scikit-learn refuses the subclass
    kind = _kind(value)
    if kind == "dask":
        if not hasattr(value, "compute"):
            raise TypeError(f"got a {type(value).__name__} of distributed, not an array; pass its .result()")
        return value.compute()
    if kind == "torch":
        if value.device.type == "meta":
            shape = tuple(value.shape)
            raise ValueError(f"got a tensor of shape {shape} on the meta device, which holds no numbers")
        value = value.detach()
        value = value if str(value.layout) == "torch.strided" else value.to_dense()
        value = value.resolve_conj().resolve_neg().cpu()
        return (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
    if kind == "dlpack":
        if hasattr(value, "get"):  # CuPy, which refuses implicit conversion
            value = value.get()
        else:
            value = np.asarray(value) if hasattr(value, "__array__") else np.from_dlpack(value)
    # NumPy has no bfloat16 of its own (JAX uses that of ml_dtypes); float32 holds all its numbers
    return value.astype(np.float32) if str(getattr(value, "dtype", None)) == "bfloat16" else value


def feature_names(X: Any) -> list | None:
    """The column names of a virtual matrix or a Dask DataFrame; None for all others."""
    if is_virtual(X):
        return X.feature_names
    return list(X.columns) if _kind(X) == "dask" and hasattr(X, "columns") else None


def _on_cpu(X) -> bool:
    """Whether NumPy can view the memory of an array of another library."""
    device = getattr(X, "__dlpack_device__", None)
    return device is not None and int(device()[0]) == _DLPACK_CPU


def _kind(value) -> str | None:
    """``"dask"``, ``"torch"``, ``"dlpack"`` (CuPy, JAX, and arrays with no other way to NumPy), or None."""
    if isinstance(value, np.ndarray):
        return None
    roots = {base.__module__.partition(".")[0] for base in type(value).__mro__}
    if roots & {"dask", "dask_expr"}:
        return "dask"
    if "torch" in roots:
        return "torch"
    if roots & {"cupy", "jax", "jaxlib"}:
        return "dlpack"
    alone = hasattr(type(value), "__dlpack__") and not hasattr(type(value), "__array__")
    return "dlpack" if alone else None
