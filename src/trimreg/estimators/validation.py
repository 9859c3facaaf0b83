"""Checks of the arguments that users pass: one function per argument, all before any work."""

from __future__ import annotations

import numbers
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import check_array, validate_data

from ..designs.convert import as_virtual, feature_names, is_cpu_tensor, is_far, to_host
from ..solvers import SolverSpec


def check_finite(X: Any, name: str, labels: list | None = None) -> None:
    """Refuse NaN and infinity with a ``ValueError`` that says where the first one is.

    ``labels`` are the names of the columns, if they have any.
    """
    values = X.data if sp.issparse(X) else X
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(np.sum(values, dtype=float)):
            return  # one pass and no temporary: the usual case
    bad = ~np.isfinite(values)
    if not bad.any():
        return
    count = int(bad.sum())
    if sp.issparse(X):
        entries = X.tocoo()
        first = int(np.flatnonzero(~np.isfinite(entries.data))[0])
        value, place = entries.data[first], (int(entries.row[first]), int(entries.col[first]))
    else:
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        value = values[place]
    where = f"row {place[0]}"
    if len(place) == 2:
        where += f", column {repr(labels[place[1]]) if labels else place[1]}"
    kind = "NaN" if np.isnan(value) else "inf"
    advice = "drop or impute missing values" + " (sklearn.impute.SimpleImputer)" * (name == "X")
    raise ValueError(f"{name} contains {kind} at {where} (and {count - 1} more NaN or inf); {advice}")


def check_container(name: str, value: Any) -> None:
    """Refuse objects that hold no array, or that say more than an array can: paths, masks, equal names."""
    if isinstance(value, (str, os.PathLike)):
        hint = "; for a matrix in a file use trimreg.OnDisk(path)" if name == "X" else ""
        raise ValueError(f"{name} must be an array of numbers; got {str(value)!r}{hint}")
    if type(value).__name__ == "LazyFrame":
        raise ValueError(f"{name} must be in memory; got a LazyFrame: pass its .collect()")
    if isinstance(value, (Mapping, Set, Iterator)) and not sp.issparse(value):  # one format is a dict
        raise ValueError(f"{name} must be an array of numbers; got a {type(value).__name__}")
    if np.ma.is_masked(value):
        count = int(np.ma.count_masked(value))
        raise ValueError(f"{name} has {count} masked entries; drop or impute them, and pass a plain array")
    if getattr(getattr(value, "dtype", None), "kind", "") in ("M", "m"):
        raise ValueError(f"{name} must be numeric; got {value.dtype}")
    dated = [name for name, kind in zip(_labels(value), _dtypes(value), strict=False) if _is_temporal(kind)]
    if dated:
        raise ValueError(f"{name} must be numeric; got dates in column {dated[0]!r}; encode or drop them")
    twice = [one for one, count in Counter(_labels(value)).items() if count > 1]
    if twice:
        raise ValueError(f"{name} has several columns named {twice[0]!r}; rename them")


def _labels(value):
    """The names of the columns of a data frame; none for an array or a design."""
    found = getattr(
        value, "column_names", getattr(value, "columns", ())
    )  # pyarrow's name, that of all others
    return [] if callable(found) else list(found)


def _dtypes(value):
    """The types of the columns of a polars frame or of a polars column; none for others."""
    found = getattr(value, "dtypes", None)
    return found if isinstance(found, list) else []


def _is_temporal(kind):
    """Whether a polars column holds dates or times, which become numbers in NumPy."""
    told = getattr(kind, "is_temporal", None)
    return told is not None and bool(told())


def check_real(name: str, value: Any) -> Any:
    """``value`` as an array or sparse matrix of real numbers, of any dtype and shape.

    Complex numbers have no order to trim by, and strings are not parsed. Arrays on a GPU or a cluster are
    fetched, so this is for vectors; :func:`check_matrix` is for X.
    """
    value = to_host(value)
    check_container(name, value)
    try:
        array = value if sp.issparse(value) else np.asarray(value)
    except ValueError as error:  # rows of unequal length
        raise ValueError(f"{name} must be an array of numbers: {error}") from None
    kind = array.dtype.kind
    if kind == "c":
        raise ValueError(f"Complex data not supported: {name} must be real")
    if kind not in "biufO":
        raise ValueError(f"{name} must be numeric; got {'strings' if kind in 'SU' else array.dtype}")
    _refuse_text(name, array, _labels(value) or range(array.shape[-1] if array.ndim else 0))
    return array


def _refuse_text(name, array, labels):
    """Refuse strings and dates among objects, with the names or the numbers of all columns that hold them."""
    if array.dtype.kind != "O":
        return
    matrix = array if array.ndim == 2 else array.reshape(-1, 1)
    bad = [j for j, column in enumerate(matrix.T) if any(map(_is_text, column))]
    if not bad:
        return
    where = ""
    if array.ndim == 2:
        shown = ", ".join(repr(labels[j]) for j in bad[:_SHOWN])
        more = f" and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
        where = f" in column{'s' * (len(bad) > 1)} {shown}{more}; encode or drop them"
    raise ValueError(f"{name} must be numeric; got strings or dates{where}")


_SHOWN = 5  # columns that a message names


def _is_text(entry):
    return isinstance(entry, (str, bytes)) or hasattr(entry, "isoformat")


def check_matrix(X: Any) -> Any:
    """``X`` as a float matrix that shares memory with the user's array if possible.

    A matrix that is not in memory stays where it is, as a :class:`~trimreg.designs.base.VirtualMatrix`; the
    first pass of its design looks for NaN and inf.
    """
    virtual = as_virtual(X)
    if virtual is not None:
        if len(virtual.shape) != 2 or 0 in virtual.shape:
            shape = tuple(virtual.shape)
            raise ValueError(f"X must be a matrix with at least one row and one column; got shape {shape}")
        return virtual
    X = to_host(X)  # a view, if another library has it in memory
    labels, array = _labels(X), check_real("X", X)
    if array.dtype.kind in "biuf" and not hasattr(X, "sparse"):
        X = array  # scikit-learn would visit every column of a data frame
    try:
        X = check_array(
            X,
            accept_sparse=["csc", "csr"],
            dtype=[np.float64, np.float32],
            ensure_all_finite=False,
            input_name="X",
        )
    except ValueError as error:
        raise ValueError(f"X must be a matrix with at least one row and one column: {error}") from None
    except TypeError as error:
        raise TypeError(f"X must be numeric: {error}") from None
    check_finite(X, "X", labels)
    return X


def virtual_product(X: Any, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
    """Linear predictors for a matrix that is not in memory, with the dtype of the product in memory."""
    eta = X.product(np.asarray(coef, dtype=float).T, np.asarray(intercept, dtype=float))
    bad = np.flatnonzero(~np.isfinite(eta if eta.ndim == 1 else eta.sum(axis=1)))
    if bad.size:
        raise ValueError(
            f"X contains NaN or inf at row {bad[0]} (and in {bad.size - 1} more rows), or overflows there; "
            "drop or impute missing values"
        )
    return eta.astype(np.result_type(X.dtype, coef.dtype), copy=False)


def check_near(X: Any, what: str, instead: str) -> Any:
    """``X`` in memory, for a feature that needs it there; the message names it and the alternative."""
    if not is_far(X):
        return X
    if is_cpu_tensor(X):
        return to_host(X)
    kind = type(X).__name__
    article = "an" if kind[0] in "AEIOUaeiou" else "a"
    raise ValueError(f"{what} needs X in memory, and X is {article} {kind}; {instead}, or pass a NumPy array")


def check_features(estimator: Any, X: Any, reset: bool = True) -> None:
    """Set an estimator's number and names of features, or compare X with them; the values are not read."""
    check_container("X", X)
    names = feature_names(X)
    if is_far(X):
        X = SimpleNamespace(shape=X.shape) if names is None else _named_frame(names)
    validate_data(estimator, X, skip_check_array=True, reset=reset)


def _named_frame(names):
    """An empty table with these columns, from which scikit-learn reads the names."""
    try:
        import pandas as pd
    except ImportError:  # scikit-learn has no names then either
        return SimpleNamespace(shape=(0, len(names)))
    return pd.DataFrame(columns=list(names))


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """Restore the estimator if the block fails or is interrupted, so that it is never half fitted."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def check_vector(name: str, value: Any, size: int, each: str) -> np.ndarray:
    """``value`` as a float64 vector of finite numbers, one per ``each``, such as a sample."""
    try:
        vector = np.asarray(check_real(name, value), dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numeric: {error}") from None
    if vector.shape != (size,):
        raise ValueError(f"{name} must have shape ({size},), one number per {each}; got shape {vector.shape}")
    check_finite(vector, name)
    return vector


def check_target(y: Any, n_samples: int, matrix: bool = False) -> np.ndarray:
    """``y`` as a float64 vector or matrix; a single column is used as a vector, with a warning."""
    if y is None:
        raise ValueError("fit requires y to be passed, but the target y is None")
    y = check_real("y", y)
    if matrix:
        return _check_target_matrix(y, n_samples)
    return check_vector("y", one_column(y), n_samples, "sample")


def one_column(y: Any) -> Any:
    """``y`` as a vector if it is a single column, with a warning; otherwise unchanged."""
    if y.ndim != 2 or y.shape[1] != 1:
        return y
    warnings.warn(
        "A column-vector y was passed when a 1d array was expected; pass y.ravel()",
        DataConversionWarning,
        stacklevel=5,
    )
    return y[:, 0]


def _check_target_matrix(y, n_samples):
    try:
        y = np.asarray(y.toarray() if sp.issparse(y) else y, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"y must be numeric: {error}") from None
    if y.ndim != 2 or y.shape[0] != n_samples or y.shape[1] == 0:
        raise ValueError(f"y must have shape ({n_samples}, number of columns); got shape {y.shape}")
    check_finite(y, "y")
    return y


def is_zero(value: Any) -> bool:
    """Whether the value is the integer 0, the default number of outliers."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and value == 0


def check_outliers(n_outliers: Any, n_samples: int) -> int:
    """The number of samples to leave out, from a count or a fraction; at least one sample stays."""
    allowed = f"an integer from 0 to {n_samples - 1}, below n_samples = {n_samples}, or a fraction in (0, 1)"
    if _is_number(n_outliers) and 0.0 < n_outliers < 1.0:
        n_outliers = min(round(n_outliers * n_samples), n_samples - 1)
    if not _is_number(n_outliers, numbers.Integral) or not 0 <= n_outliers < n_samples:
        raise ValueError(f"n_outliers must be {allowed}; got {n_outliers!r}")
    return int(n_outliers)


def check_sample_weight(sample_weight: Any, n_samples: int) -> np.ndarray:
    """Weights that sum to one; None gives equal weights."""
    if sample_weight is None:
        return np.full(n_samples, 1.0 / n_samples)
    sample_weight = check_real("sample_weight", sample_weight)
    if sample_weight.ndim == 0:
        sample_weight = np.full(n_samples, sample_weight)
    weights = check_vector("sample_weight", sample_weight, n_samples, "sample")
    if (weights < 0).any():
        bad = int(np.flatnonzero(weights < 0)[0])
        raise ValueError(f"sample_weight must be >= 0; got {weights[bad]} for sample {bad}")
    largest = weights.max()
    if largest == 0:
        raise ValueError("sample_weight must not be all zero")
    weights = weights / largest  # so that the sum of tiny or huge weights is finite
    return weights / weights.sum()


def check_offset(loss: Any, n_samples: int, offset: Any, exposure: Any = None) -> np.ndarray | None:
    """The offsets of the linear predictor, with the logarithms of the exposures; None without either."""
    if exposure is not None:
        if not loss.log_link:
            raise ValueError(
                f"exposure must be None unless the mean is exp(eta), as for counts; the loss is {loss.name!r}"
            )
        exposure = check_vector("exposure", check_real("exposure", exposure), n_samples, "sample")
        if not (exposure > 0).all():
            bad = int(np.argmin(exposure > 0))
            raise ValueError(f"exposure must be > 0; got {exposure[bad]} for sample {bad}")
        exposure = np.log(exposure)
    if offset is None:
        return exposure
    offset = check_vector("offset", check_real("offset", offset), n_samples, "sample")
    return offset if exposure is None else offset + exposure


def _is_number(value, kind=numbers.Real):
    return isinstance(value, kind) and not isinstance(value, (bool, np.bool_))


def check_alpha(alpha: Any) -> float | str:
    """``"exact"``, or a finite number that is not negative."""
    if isinstance(alpha, str) and alpha == "exact":
        return alpha
    if not _is_number(alpha) or not 0 <= alpha < np.inf:
        raise ValueError(f"alpha must be 'exact' or a finite number >= 0; got {alpha!r}")
    return float(alpha)


def check_number(name: str, value: Any, low: float, *, integral: bool = False, strict: bool = False) -> Any:
    """A finite number of at least ``low``, or above it if ``strict``."""
    ok = _is_number(value, numbers.Integral if integral else numbers.Real)
    if not ok or not (value > low if strict else value >= low) or not value < np.inf:
        what = "an integer" if integral else "a finite number"
        raise ValueError(f"{name} must be {what} {'>' if strict else '>='} {low}; got {value!r}")
    return value


def check_flag(name: str, value: Any) -> bool:
    """True or False, and not a number or a string that stands for it."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False; got {value!r}")
    return bool(value)


def check_start(theta0: Any, n_features: int, n_outputs: int | None = None) -> np.ndarray | None:
    """Coefficients to start from, in the units of X: a vector, or one row per output."""
    if theta0 is None or n_outputs is None:
        return None if theta0 is None else check_vector("theta0", theta0, n_features, "feature")
    start = np.asarray(check_real("theta0", theta0), dtype=float)
    if start.shape != (n_outputs, n_features):
        raise ValueError(f"theta0 must have shape ({n_outputs}, {n_features}); got shape {start.shape}")
    check_finite(start, "theta0")
    return start


def check_choice(name: str, value: Any, allowed: Iterable) -> None:
    """Refuse a value that is not one of a few words or flags."""
    if not any(type(value) is type(choice) and value == choice for choice in allowed):
        raise ValueError(f"{name} must be one of {list(allowed)}; got {value!r}")


def check_exact(loss: Any, penalty: Any, y: np.ndarray, d: np.ndarray) -> None:
    """Refuse ``alpha="exact"`` for a penalty without h or a loss without a bound of its slope."""
    check_trimmed(penalty)
    if not np.isfinite(loss.slope_bound(y, d)):
        raise ValueError(
            f"alpha='exact' needs a loss with a slope_bound; with loss {loss.name!r} give alpha as a number"
        )


def check_trimmed(penalty: Any) -> None:
    """Refuse ``alpha="exact"`` for a penalty without h."""
    if penalty.n_free is None:
        raise ValueError(
            "alpha='exact' is for trimmed penalties; give alpha as a number, "
            f"or a trimmed penalty in place of {type(penalty).__name__}"
        )


def check_bounds(
    lower: Any, upper: Any, positive: bool, penalty: Any, what: str = "feature"
) -> tuple[np.ndarray, np.ndarray] | None:
    """``(lower, upper)`` with one number per coefficient of a bound penalty; None if all are infinite.

    ``positive`` is ``lower=0`` where no ``lower`` is given.
    """
    lower = 0.0 if positive and lower is None else lower
    if lower is None and upper is None:
        return None
    p = penalty.norm.count
    if penalty.norm.q is not None:
        name = "positive" if positive else "upper" if lower is None else "lower"
        raise ValueError(f"{name} is for single coefficients; leave it off with groups or several outputs")
    low, high = _check_bound("lower", lower, p, what), _check_bound("upper", upper, p, what)
    if (low > high).any():
        j = int(np.flatnonzero(low > high)[0])
        raise ValueError(f"lower must not be above upper; got {low[j]:g} and {high[j]:g} for {what} {j}")
    apart = (penalty.levels(1.0) > 0) & ((low > 0) | (high < 0))
    if apart.any():
        j = int(np.flatnonzero(apart)[0])
        name, value = ("lower", low[j]) if low[j] > 0 else ("upper", high[j])
        raise ValueError(
            f"{name} excludes 0 for {what} {j}: got {value:g}. What is penalized may be trimmed to 0; with "
            f"penalty_factor 0 the {what} is always in the model, and may have any bounds"
        )
    return (low, high) if np.isfinite(low).any() or np.isfinite(high).any() else None


def bound_by_name(name: str, value: Any, estimator: Any) -> Any:
    """``value``, or the bounds of all features if it is a dict by the names that the estimator has seen."""
    if not isinstance(value, Mapping):
        return value
    names = list(getattr(estimator, "feature_names_in_", ()))
    unknown = [key for key in value if key not in names]
    if unknown:
        known = ", ".join(map(repr, names[:8])) if names else "none; X must be a data frame"
        raise ValueError(f"{name} names no column of X: {unknown[0]!r}; the columns are {known}")
    return [value.get(one, -np.inf if name == "lower" else np.inf) for one in names]


def _check_bound(name, value, p, what):
    endless = -np.inf if name == "lower" else np.inf
    if value is None:
        return np.full(p, endless)
    bound = np.asarray(check_real(name, value), dtype=float)
    if bound.shape not in ((), (p,)):
        allowed = f"{name} must be a number, or hold one for each of the {p} {what}s"
        raise ValueError(f"{allowed}; got shape {bound.shape}")
    if np.isnan(bound).any() or np.any(bound == -endless):
        raise ValueError(f"{name} must not be NaN, nor {-endless:g}")
    return np.array(np.broadcast_to(bound, (p,)))


def check_options(spec: SolverSpec, options: Mapping[str, Any], penalty: Any, bounds: Any) -> None:
    """Refuse options that the solver does not have, and problems that it cannot solve."""
    unknown = sorted(set(options) - set(spec.options))
    if unknown:
        raise ValueError(
            f"solver {spec.name!r} has no option {unknown[0]!r}; it takes {', '.join(spec.options)}"
        )
    for name in set(options) & set(spec.choices):
        check_choice(name, options[name], spec.choices[name])
    if spec.trimmed_only and penalty.n_free is None:
        raise ValueError(
            f"solver {spec.name!r} is defined for trimmed penalties only; with penalty "
            f"{type(penalty).__name__} use solver='auto'"
        )
    if not penalty.majorizes and spec.needs_weights:
        raise ValueError(
            f"solver {spec.name!r} works with weights, which penalty {type(penalty).__name__} does not have; "
            "use solver='prox'"
        )
    if bounds is not None and not spec.bounds:
        raise ValueError(f"solver {spec.name!r} cannot keep lower and upper; use solver='mm'")
    if bounds is not None and not penalty.majorizes:
        for name, end in zip(("lower", "upper"), bounds, strict=True):
            if np.any(np.isfinite(end) & (end != 0)):
                kind = type(penalty).__name__
                raise ValueError(f"{name} must be 0 or infinite with penalty {kind}, which takes signs only")


def check_random_state(random_state: Any) -> np.random.Generator:
    """A generator from a seed; None is the seed 0, so that every fit can be repeated."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31))
    if random_state is None:
        return np.random.default_rng(0)
    if _is_number(random_state, (int, np.integer)) and random_state >= 0:
        return np.random.default_rng(int(random_state))
    raise ValueError(
        f"random_state must be None, an integer >= 0, a Generator or a RandomState; got {random_state!r}"
    )
