"""The data given to :func:`trimreg.solve_batch`, checked and converted to arrays of one kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...designs.convert import to_host
from ...losses.base import namespace
from ...solvers.first_order.arrays import to_numpy
from ..validation import check_finite, check_real

_SMALLEST = 1e-300  # smaller deviations count as 0: the coefficient of such a column could overflow


@dataclass(frozen=True)
class BatchData:
    """Data of ``count`` problems. Arrays that all problems share have no problem axis, or one of length 1."""

    X: Any  # of shape (count, n, p) or (n, p), of any floating type
    y: Any  # of shape (count, n) or (1, n), in float64, as is d
    d: Any
    theta0: Any  # of shape (count, p) or (1, p), or None
    count: int

    @property
    def n(self) -> int:
        return self.X.shape[-2]

    @property
    def p(self) -> int:
        return self.X.shape[-1]

    @property
    def same_matrix(self) -> bool:
        """Whether the problems have the same X and the same sample weights."""
        return self.X.ndim == 2 and self.d.shape[0] == 1

    def like(self, values: Any) -> Any:
        """The values as an array of the same kind and on the same device as X."""
        return _as_array(values, self.X)

    def arrays(self, part: slice) -> tuple[Any, Any, Any]:
        """X, y and d of some problems, in float64."""
        X = self.X if self.X.ndim == 2 else self.X[part]
        X = X.astype(float, copy=False) if isinstance(X, np.ndarray) else X.double()
        return X, self._rows(self.y, part), self._rows(self.d, part)

    def start(self, part: slice) -> Any:
        return None if self.theta0 is None else self._rows(self.theta0, part)

    def _rows(self, array, part):
        if array.shape[0] > 1:
            return array[part]
        size = len(range(*part.indices(self.count)))
        return namespace(array).broadcast_to(array, (size, array.shape[1]))


def as_batch(X: Any, y: Any, sample_weight: Any = None, *, theta0: Any = None, **numbers: Any) -> BatchData:
    """The data, checked; every error names its argument.

    ``numbers`` are the arguments that may have one entry per problem; here they only tell how many problems
    there are.
    """
    if isinstance(X, (list, tuple)):
        X = [_near(f"X[{i}]", one) for i, one in enumerate(X)]
        if len(X) and np.ndim(X[0]) == 2:
            X, y, sample_weight = _padded(X, y, sample_weight)
    X = _matrices(X)
    n, p = X.shape[-2:]
    y = _rows("y", y, n, "sample", X)
    d = np.ones((1, n))
    if sample_weight is not None:
        d = to_numpy(_rows("sample_weight", sample_weight, n, "sample", X))
    theta0 = None if theta0 is None else _rows("theta0", theta0, p, "feature", X)
    counts = {"X": X.shape[0] if X.ndim == 3 else 1, "y": y.shape[0], "sample_weight": d.shape[0]}
    counts["theta0"] = 1 if theta0 is None else theta0.shape[0]
    for name, value in numbers.items():
        if value is not None and np.ndim(value) > 1:
            raise ValueError(f"{name} must be a number, or one number per problem; got {np.ndim(value)} axes")
        counts[name] = len(value) if value is not None and np.ndim(value) == 1 else 1
    several = {name: count for name, count in counts.items() if count != 1}
    count = next(iter(several.values()), 1)
    for name, other in several.items():
        if other != count:
            first = next(iter(several))
            raise ValueError(
                f"{name} is for {other} problems, but {first} is for {count}; give one, or one per problem"
            )
    if count == 0:
        raise ValueError("X must hold at least one problem")
    return BatchData(X, y, _as_array(_normalized(d), X), theta0, count)


def _normalized(d):
    """Weights that sum to one in every row."""
    if (d < 0).any():
        problem, sample = np.argwhere(d < 0)[0]
        raise ValueError(
            f"sample_weight must be >= 0; got {d[problem, sample]} for sample {sample} of problem {problem}"
        )
    largest = d.max(axis=1, keepdims=True)
    if (largest == 0).any():
        raise ValueError(f"sample_weight must not be all zero; it is for problem {int(np.argmin(largest))}")
    d = d / largest  # so that the sum of tiny or huge weights stays a number
    return d / d.sum(axis=1, keepdims=True)


def _near(name, value):
    """The value as an array on the host; tensors stay on their device."""
    if not _is_tensor(value):
        return to_host(value)
    if value.is_meta:
        raise ValueError(f"{name} is on the meta device and has no values; move it to a real device first")
    if value.layout is not namespace(value).strided:
        raise TypeError(f"{name} must be dense, but is a sparse tensor; pass {name}.to_dense()")
    return value


def _is_tensor(value):
    return type(value).__module__.partition(".")[0] == "torch"


def _as_array(value, like):
    """The value in float64, of the kind and on the device of ``like``."""
    if _is_tensor(like):
        if _is_tensor(value):
            return value.detach().to(like.device).double()
        return namespace(like).as_tensor(np.asarray(value, dtype=float), device=like.device)
    return np.asarray(to_numpy(value) if _is_tensor(value) else value, dtype=float)


def _matrices(X):
    X = _near("X", X)
    if _is_tensor(X):
        if X.device.type == "mps":
            raise ValueError("X is on the device mps, which has no float64; pass X.cpu()")
        if X.is_complex():
            raise ValueError("Complex data not supported: X must be real")
        X = X.detach() if X.is_floating_point() else X.detach().double()
        if _numpy_is_faster(X):
            X = (X if X.element_size() >= 4 else X.double()).numpy()
    else:
        X = check_real("X", X)
        if sp.issparse(X):
            raise TypeError("X must be dense, but is a sparse matrix; pass X.toarray()")
        X = X if X.dtype in (np.float32, np.float64) else X.astype(float)
    if X.ndim not in (2, 3) or 0 in X.shape[-2:]:
        raise ValueError(
            "X must have shape (n_problems, n_samples, n_features) or (n_samples, n_features), or be a list "
            f"of matrices; got shape {tuple(X.shape)}"
        )
    _require_finite(X, "X")
    return X


def _numpy_is_faster(X):
    """Whether to use NumPy: on a CPU it multiplies many small matrices faster, on the same memory."""
    return X.device.type == "cpu"


def _rows(name, value, size, each, like):
    """An array of shape (problems, size); a vector becomes a single row for all problems."""
    value = _near(name, value)
    if not _is_tensor(value):
        value = check_real(name, value)
    array = _as_array(value, like)
    array = array[None] if array.ndim == 1 else array
    if array.ndim != 2 or array.shape[1] != size:
        raise ValueError(
            f"{name} must have shape (n_problems, {size}) or ({size},), one number per {each}; "
            f"got shape {tuple(value.shape)}"
        )
    _require_finite(array, name)
    return array


def _require_finite(array, name):
    """Raise a ValueError with the problem and the position of the first NaN or infinity, if there is one."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = array.sum(dtype=float) if isinstance(array, np.ndarray) else array.double().sum()
    if np.isfinite(float(total)):
        return
    values = to_numpy(array if isinstance(array, np.ndarray) else array.double())
    values = values[None] if name == "X" and values.ndim == 2 else values
    for problem, one in enumerate(values):
        check_finite(one, name if len(values) == 1 else f"{name} of problem {problem}")


def _padded(X, y, sample_weight):
    """Matrices with different numbers of samples as one array, filled up with samples of weight 0."""
    tensor = next((one for one in X if _is_tensor(one)), None)
    X = [to_numpy(one) if _is_tensor(one) else check_real(f"X[{i}]", one) for i, one in enumerate(X)]
    bad = next((i for i, one in enumerate(X) if one.ndim != 2 or one.shape[1] != X[0].shape[1]), None)
    if bad is not None:
        raise ValueError(
            f"X[{bad}] has shape {X[bad].shape}; all matrices must have {X[0].shape[1]} features"
        )
    longest = max(one.shape[0] for one in X)
    targets = _padded_rows("y", y, X, longest)
    weights = [np.ones(len(one)) for one in X] if sample_weight is None else sample_weight
    weights = _padded_rows("sample_weight", weights, X, longest)
    stacked = np.zeros((len(X), longest, X[0].shape[1]))
    for row, one in zip(stacked, X, strict=True):
        row[: one.shape[0]] = one
    return (stacked if tensor is None else _as_array(stacked, tensor)), targets, weights


def _padded_rows(name, values, X, longest):
    rows = np.zeros((len(X), longest))
    if len(values) != len(X):
        raise ValueError(
            f"{name} must hold one vector for each of the {len(X)} matrices of X; got {len(values)}"
        )
    for i, (value, one) in enumerate(zip(values, X, strict=True)):
        value = _near(f"{name}[{i}]", value)
        vector = to_numpy(value) if _is_tensor(value) else check_real(f"{name}[{i}]", value)
        if vector.shape != one.shape[:1]:
            raise ValueError(
                f"{name}[{i}] must have shape ({one.shape[0]},), as X[{i}] has; got {vector.shape}"
            )
        rows[i, : vector.size] = vector
    return rows


def moments(X: Any, d: Any, center: bool, scale: bool, same: bool) -> tuple[Any, Any, Any]:
    """``(offset, inverse_scale, norms)`` of each problem, by the rules of :mod:`trimreg.designs.base`.

    The offset is None unless ``center``. ``norms`` are those of the columns that the solver sees. ``same``
    says that all problems have the moments of the first.
    """
    xp = namespace(X)
    count, (n, p) = d.shape[0], X.shape[-2:]
    step = 1 if same else max(1, (1 << 24) // (n * p))
    means, deviations = [], []
    for first in range(0, 1 if same else count, step):
        part = slice(first, first + step)
        values = X if X.ndim == 2 else X[part]
        weights = d[part][:, :, None]
        mean = xp.zeros_like(d[part][:, :1]) * xp.ones_like(X[..., 0, :] if X.ndim == 2 else values[:, 0])
        if center:
            mean = (weights * values).sum(1)
            mean = mean + (weights * (values - mean[:, None])).sum(1)  # removes the rounding of the mean
        spread = values - mean[:, None]
        largest = xp.amax(xp.abs(spread), 1)
        safe = xp.where(largest > 0, largest, 1.0)
        means.append(mean)
        deviations.append(largest * xp.sqrt((weights * (spread / safe[:, None]) ** 2).sum(1)))
    mean, deviation = (xp.broadcast_to(xp.concatenate(one), (count, p)) for one in (means, deviations))
    floor = 10 * np.finfo(float).eps * xp.abs(mean) if center else 0.0 * mean
    alive = deviation > xp.clip(floor, _SMALLEST, None)
    inverse_scale = xp.where(alive, xp.ones_like(deviation), 0.0)
    if scale:
        inverse_scale = inverse_scale / xp.where(alive, deviation, 1.0)
    return (mean if center else None), inverse_scale, xp.where(alive, deviation, 0.0) * inverse_scale
