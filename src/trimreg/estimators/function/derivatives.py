"""Value, gradient and rows of the Hessian of a user's function, be it of NumPy, PyTorch or JAX.

Neither PyTorch nor JAX is imported here: a function that needs one of them has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

_PATIENCE = 300  # gradients that JAX computes in the time in which it compiles the rows, about
_BATCH = 32  # rows of a Hessian at a time: JAX compiles for one number of rows
_EPS = float(np.finfo(float).eps)


class Derivatives(NamedTuple):
    """A function with its derivatives, on float64 vectors of NumPy."""

    value_and_gradient: Callable[[np.ndarray], tuple[float, np.ndarray]]
    rows: Callable[[np.ndarray, np.ndarray], np.ndarray] | None  # of the Hessian at a point; None if unknown
    patience: int = 0  # gradients that cost about as much as to compile the rows


def derivatives(fun: Callable, start: np.ndarray, hessp: Any) -> Derivatives:
    """The derivatives of ``fun``, by what it takes and returns at ``start``.

    A pair is a value and a gradient; a scalar of PyTorch or JAX is differentiated. If JAX is loaded, it tries
    to trace the function first; a function that cannot take an array of NumPy is called with a tensor.
    """
    if not callable(fun):
        raise TypeError(f"fun must be a function of theta; got {fun!r}")
    if hessp not in (None, False) and not callable(hessp):
        raise TypeError(f"hessp must be a function of (theta, v), None, or False; got {hessp!r}")
    made = _traced(fun, start)
    if made is None and _kind(fun, start) == "torch":
        made = _of_torch(fun)
    made = made or Derivatives(_checked(fun, start.size), None)
    if hessp is False:
        return made._replace(rows=None)
    return made if hessp is None else made._replace(rows=_rows_of_products(hessp), patience=0)


def _traced(fun, start):
    """The derivatives by JAX, if it is loaded and can differentiate the function at the start."""
    if "jax" not in sys.modules:
        return None
    made = _of_jax(fun)
    try:
        made.value_and_gradient(start)
    except Exception:
        return None
    return made


def _kind(fun, start):
    """``"numpy"`` or ``"torch"``, by what the function takes and returns."""
    first: Exception | None = None
    for name in ("numpy", "torch") if "torch" in sys.modules else ("numpy",):
        try:
            answer = fun(_tensor(start) if name == "torch" else start.copy())
        except Exception as error:
            first = first or error
            continue
        if type(answer).__module__.partition(".")[0] == "torch":
            return "torch"
        if name == "numpy" and isinstance(answer, (tuple, list)) and len(answer) == 2:
            return "numpy"
        first = first or TypeError(
            "fun must return a pair (value, gradient), or a scalar of PyTorch or JAX; got "
            f"{type(answer).__name__}. Return the gradient too, or write fun with torch or jax.numpy"
        )
    raise first  # type: ignore[misc]


def _tensor(theta, **options):
    torch = sys.modules["torch"]
    return torch.tensor(theta, dtype=torch.float64, **options)


def _double():
    """A context in which JAX computes in float64."""
    jax = sys.modules["jax"]
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from importlib import import_module

    return import_module("jax.experimental").enable_x64()


def _checked(fun, size):
    """A function of NumPy that returns a float and a vector of the right shape, or a ValueError."""

    def value_and_gradient(theta):
        answer = fun(theta.copy())
        if not (isinstance(answer, (tuple, list)) and len(answer) == 2):
            raise TypeError(f"fun must return a pair (value, gradient); got {type(answer).__name__}")
        value, gradient = answer
        if np.ndim(value) and np.size(value) != 1:
            raise ValueError(f"the value of fun must be a number; got shape {np.shape(value)}")
        gradient = np.asarray(gradient, dtype=float)
        if gradient.shape != (size,):
            raise ValueError(f"the gradient of fun must have shape ({size},); got shape {gradient.shape}")
        return float(np.reshape(value, ())), gradient.copy()

    return value_and_gradient


def _rows_of_products(hessp):
    """Rows of the Hessian from products ``hessp(theta, v)``."""

    def rows(theta, coordinates):
        found = np.empty((coordinates.size, theta.size))
        for i, j in enumerate(coordinates):
            unit = np.zeros(theta.size)
            unit[j] = 1.0
            row = np.asarray(hessp(theta.copy(), unit), dtype=float)
            if row.shape != theta.shape:
                raise ValueError(f"hessp must return shape {theta.shape}; got shape {row.shape}")
            found[i] = row
        return found

    return rows


def _of_torch(fun):
    torch = sys.modules["torch"]

    def at(theta):
        point = _tensor(theta, requires_grad=True)
        value = fun(point)
        if value.numel() != 1:
            raise ValueError(f"fun must return a scalar; got shape {tuple(value.shape)}")
        if not value.requires_grad:
            raise ValueError("fun must depend on theta by operations of PyTorch; its value has no gradient")
        return point, value.reshape(())

    def value_and_gradient(theta):
        point, value = at(theta)
        (gradient,) = torch.autograd.grad(value, point)
        return float(value.detach()), gradient.double().numpy()

    def rows(theta, coordinates):
        point, value = at(theta)
        (gradient,) = torch.autograd.grad(value, point, create_graph=True)
        if not gradient.requires_grad:  # fun is linear
            return np.zeros((coordinates.size, theta.size))
        one_hot = torch.zeros((coordinates.size, theta.size), dtype=gradient.dtype)
        one_hot[np.arange(coordinates.size), coordinates] = 1.0
        (found,) = torch.autograd.grad(gradient, point, one_hot, is_grads_batched=True)
        return found.double().numpy()

    return Derivatives(value_and_gradient, rows)


def _of_jax(fun):
    jax = sys.modules["jax"]

    def scalar(theta):
        return jax.numpy.reshape(fun(theta), ())

    both = jax.jit(jax.value_and_grad(scalar))

    @jax.jit
    def some_rows(theta, directions):
        return jax.vmap(lambda v: jax.jvp(jax.grad(scalar), (theta,), (v,))[1])(directions)

    def value_and_gradient(theta):
        with _double():
            value, gradient = both(jax.numpy.asarray(theta))
            return float(value), np.array(gradient, dtype=float)

    def rows(theta, coordinates):
        found = np.empty((coordinates.size, theta.size))
        with _double():
            point = jax.numpy.asarray(theta)
            for start in range(0, coordinates.size, _BATCH):
                part = coordinates[start : start + _BATCH]
                one_hot = np.zeros((_BATCH, theta.size))
                one_hot[np.arange(part.size), part] = 1.0
                found[start : start + part.size] = np.asarray(some_rows(point, one_hot))[: part.size]
        return found

    return Derivatives(value_and_gradient, rows, _PATIENCE)


def differences(
    value_and_gradient: Callable, theta: np.ndarray, gradient: np.ndarray, coordinates: np.ndarray
) -> np.ndarray:
    """Rows of the Hessian from differences of gradients: one more gradient for each row."""
    found = np.empty((coordinates.size, theta.size))
    for i, j in enumerate(coordinates):
        near = theta.copy()
        near[j] += np.sqrt(_EPS) * max(1.0, abs(theta[j]))
        found[i] = (value_and_gradient(near)[1] - gradient) / (near[j] - theta[j])
    return found


def check_gradient(value_and_gradient: Callable, theta: np.ndarray, lower: Any, upper: Any) -> None:
    """Compare the gradient with central differences at theta; a ValueError names the worst coordinate.

    More than 100 coordinates are sampled. Steps stay inside the bounds.
    """
    gradient = value_and_gradient(theta)[1]
    rng = np.random.default_rng(0)
    which = np.sort(rng.permutation(theta.size)[:100])
    size = _EPS ** (1 / 3) * np.maximum(1.0, np.abs(theta))
    error, found = np.zeros(which.size), np.zeros(which.size)
    for i, j in enumerate(which):
        ends = np.repeat(theta[None], 2, axis=0)
        ends[0, j] = min(theta[j] + size[j], upper[j])
        ends[1, j] = max(theta[j] - size[j], lower[j])
        if ends[0, j] == ends[1, j]:
            continue
        high, low = value_and_gradient(ends[0])[0], value_and_gradient(ends[1])[0]
        found[i] = (high - low) / (ends[0, j] - ends[1, j])
        noise = _EPS * max(abs(high), abs(low)) / size[j]
        error[i] = max(abs(found[i] - gradient[j]) - 100 * noise, 0.0)
    worst = int(np.argmax(error))
    scale = max(float(np.max(np.abs(found), initial=0.0)), float(np.max(np.abs(gradient), initial=0.0)))
    if not error[worst] <= 1e-3 * scale:
        raise ValueError(
            f"the gradient of fun is wrong at the start: entry {which[worst]} is "
            f"{gradient[which[worst]]:.6g}, differences of fun give {found[worst]:.6g}"
        )
