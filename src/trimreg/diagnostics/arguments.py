"""Checks of the arguments of the diagnostics: each returns the value or raises a ``ValueError``."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
import scipy.sparse as sp


def number(name: str, value: Any, minimum: float = -np.inf) -> float:
    """``value`` as a finite float of at least ``minimum``."""
    real = isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))
    if not real or not np.isfinite(value) or value < minimum:
        at_least = "" if minimum == -np.inf else f" >= {minimum:g}"
        raise ValueError(f"{name} must be a finite number{at_least}; got {value!r}")
    return float(value)


def flag(name: str, value: Any) -> bool:
    """``value`` if it is a bool."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False; got {value!r}")
    return bool(value)


def vector(name: str, value: Any, size: int) -> np.ndarray:
    """``value`` as a float64 vector of that size."""
    return _finite_array(name, value, (size,), f"{name} must be a vector of {size} numbers")


def matrix(name: str, value: Any, shape: tuple[int, int | None]) -> np.ndarray:
    """``value`` as a float64 matrix of that shape, where None allows any number of columns."""
    expected = f"{name} must be a matrix of shape ({shape[0]}, {'any' if shape[1] is None else shape[1]})"
    return _finite_array(name, value, shape, expected)


def read_bounds(lower: Any, upper: Any, positive: Any, size: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Bounds of the coefficients; None without any. ``positive`` is ``lower=0`` if no ``lower`` is given."""
    lower = 0.0 if flag("positive", positive) and lower is None else lower
    if lower is None and upper is None:
        return None
    ends = []
    for name, value, endless in (("lower", lower, -np.inf), ("upper", upper, np.inf)):
        expected = f"{name} must be a number, or {size} of them"
        try:
            end = np.asarray(endless if value is None else value, dtype=float)
        except (TypeError, ValueError):
            raise ValueError(f"{expected}; got {value!r}") from None
        if end.shape not in ((), (size,)) or np.isnan(end).any():
            raise ValueError(f"{expected}; got {'NaN' if np.isnan(end).any() else f'shape {end.shape}'}")
        ends.append(np.broadcast_to(end, (size,)))
    if (ends[0] > ends[1]).any():
        raise ValueError("lower must not be above upper")
    return ends[0], ends[1]


def _finite_array(name, value, shape, expected):
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"{expected}; got {value!r}") from None
    if array.ndim != len(shape) or any(n not in (None, m) for n, m in zip(shape, array.shape, strict=True)):
        raise ValueError(f"{expected}; got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must hold finite numbers only")
    return array


def require_memory(X: Any) -> None:
    """Refuse an X on disk, on a cluster or on a GPU: a diagnostic would copy all of it to memory."""
    kind = type(X)
    by_blocks = callable(getattr(kind, "describe", None)) and not getattr(X, "near", True)
    on_device = kind.__module__.startswith("torch") and str(getattr(X, "device", "cpu")) != "cpu"
    if by_blocks or on_device or hasattr(kind, "__dask_graph__"):
        raise ValueError(
            f"X must be in memory for a diagnostic; got {kind.__name__}. Pass a NumPy array, or use the "
            "certificates of the fit itself: stationarity and swap_optimal"
        )


def design_matrix(X: Any) -> Any:
    """X as a CSC array, an ndarray or a design in memory; float32 and float64 are kept."""
    require_memory(X)
    if callable(getattr(X, "rmatvec", None)):  # a design, read by its columns
        return X
    if sp.issparse(X):
        X = sp.csc_array(X)
        if not X.has_canonical_format:
            X = X.copy()  # the arrays of a CSC input belong to the caller
            X.sum_duplicates()
    else:
        X = np.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"X must be a matrix; got {X.ndim} dimension{'' if X.ndim == 1 else 's'}")
    if X.dtype in (np.float32, np.float64):
        return X
    try:
        return X.astype(float)
    except (TypeError, ValueError):
        raise ValueError(f"X must be a matrix of numbers; got dtype {X.dtype}") from None
