"""Matrices that stay where they are: on disk, on a cluster, on a GPU.

They are known by their type, so nothing is imported that the user has not imported: who has a torch tensor
has torch. What they can do is little: make a design, and multiply for predictions. Everything else in the
library goes through the design, or says that it needs X in memory.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np


class Foreign(Protocol):
    """A matrix that is not in this process's memory as a NumPy array.

    Attributes
    ----------
    shape : tuple of two int
    dtype : numpy.dtype
        Of the coefficients that are returned: float64, or float32 for float32 and bfloat16 storage.
    feature_names : sequence of str or None, optional
    """

    shape: tuple[int, int]
    dtype: np.dtype

    def design(self, weights, *, center=False, scale=False):
        """The design over this matrix; its first pass refuses NaN and inf."""
        ...

    def product(self, coef, intercept=0.0) -> np.ndarray:
        """``X coef + intercept`` in float64, of shape (n,) or (n, k)."""
        ...

    def describe(self) -> str:
        """One line for messages."""
        ...


_ABILITIES = ("design", "product", "describe")
_DLPACK_CPU = 1  # kDLCPU of the DLPack standard


def adopt(X) -> Foreign | None:
    """``X`` as a :class:`Foreign` matrix; None for everything that is an array in memory, or can become one.

    Dask arrays and DataFrames, torch tensors, CuPy and JAX arrays and whatever else speaks DLPack alone, if
    they are not in the memory of the CPU, and the library's own :class:`~trimreg.designs.far.rows.FarRows`.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.designs.convert import adopt
    >>> from trimreg.designs.far.rows import ArrayRows
    >>> X = np.eye(3)
    >>> adopt(X) is None
    True
    >>> adopt(ArrayRows(X, block_rows=2))
    <array by blocks 3 x 3 float64>
    """
    if is_foreign(X):
        return X
    kind = _kind(X)
    if kind == "dask":
        from .far.dask import DaskRows

        return DaskRows(X)
    if kind == "torch" or (kind == "dlpack" and not _on_cpu(X)):
        from .torch.design import TorchMatrix

        return TorchMatrix(X)
    return None


def is_foreign(X) -> bool:
    """Whether ``X`` is itself a :class:`Foreign` matrix."""
    return all(callable(getattr(type(X), name, None)) for name in _ABILITIES)


def is_far(X) -> bool:
    """Whether :func:`adopt` would take ``X``, without doing so."""
    kind = _kind(X)
    return is_foreign(X) or (kind is not None and not (kind == "dlpack" and _on_cpu(X)))


def is_readable(X) -> bool:
    """Whether ``X`` is a dense tensor on the CPU: NumPy can have its numbers without a way to go."""
    return _kind(X) == "torch" and X.device.type == "cpu" and str(X.layout) == "torch.strided"


def tied(X) -> bool:
    """Whether ``X`` cannot well be sent to another process: it is held by a GPU, or by a cluster's client."""
    return is_foreign(X) and type(X).__module__.endswith((".torchmatrix", ".daskrows"))


def to_host(value):
    """A vector or small matrix as a NumPy array (or what NumPy can read), from wherever it lies.

    What is in memory already is returned as it is.

    Examples
    --------
    >>> from trimreg.designs.convert import to_host
    >>> to_host([1.0, 2.0])
    [1.0, 2.0]
    """
    kind = _kind(value)
    if kind == "dask":
        if not hasattr(value, "compute"):
            raise TypeError(f"got a {type(value).__name__} of distributed, no array; give its .result()")
        return value.compute()
    if kind == "torch":
        if value.device.type == "meta":
            shape = tuple(value.shape)
            raise ValueError(f"got a tensor of shape {shape} on the meta device: it has no numbers")
        value = value.detach()
        value = value if str(value.layout) == "torch.strided" else value.to_dense()
        value = value.resolve_conj().resolve_neg().cpu()
        return (value.float() if str(value.dtype) == "torch.bfloat16" else value).numpy()
    if kind == "dlpack":
        if hasattr(value, "get"):  # CuPy, which does not convert by itself
            value = value.get()
        else:
            value = np.asarray(value) if hasattr(value, "__array__") else np.from_dlpack(value)
    # NumPy knows bfloat16 as raw bytes at best (ml_dtypes, as JAX has it), and every one is a float32
    return value.astype(np.float32) if str(getattr(value, "dtype", None)) == "bfloat16" else value


def feature_names(X):
    """The names of the columns, where a matrix that is not in memory has some; else None.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.designs.convert import feature_names
    >>> feature_names(np.eye(2)) is None
    True
    """
    if is_foreign(X):
        return getattr(X, "feature_names", None)
    return list(X.columns) if _kind(X) == "dask" and hasattr(X, "columns") else None


def _on_cpu(X) -> bool:
    """Whether an array of another library lies where NumPy can read it, so that a view will do."""
    device = getattr(X, "__dlpack_device__", None)
    return device is not None and int(device()[0]) == _DLPACK_CPU


def _kind(value) -> str | None:
    """``"dask"``, ``"torch"``, ``"dlpack"`` (CuPy, JAX, and what has no other way to NumPy), or None."""
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
