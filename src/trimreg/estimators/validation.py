"""Checks of what a user passes, all done before any work, each naming its argument."""

from __future__ import annotations

import numbers

import numpy as np
import scipy.sparse as sp

from ..solvers import SolverSpec


def check_finite(X, name: str) -> None:
    """A ``ValueError`` with the place of the first NaN or infinity, if there is one.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.estimators.validation import check_finite
    >>> check_finite(np.array([[1.0, np.nan]]), "X")
    Traceback (most recent call last):
        ...
    ValueError: X contains NaN at row 0, column 1 (and 0 more NaN or inf); drop or impute missing values
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
    where = f"row {place[0]}" + (f", column {place[1]}" if len(place) == 2 else "")
    kind = "NaN" if np.isnan(value) else "inf"
    raise ValueError(
        f"{name} contains {kind} at {where} (and {count - 1} more NaN or inf); drop or impute missing values"
    )


def check_real(name: str, value) -> None:
    """Complex numbers have no order to trim by."""
    dtype = getattr(value, "dtype", None)
    if dtype is None and not sp.issparse(value):
        dtype = np.asarray(value).dtype
    if getattr(dtype, "kind", "") == "c":
        raise ValueError(f"Complex data not supported: {name} must be real")


def check_matrix(X):
    """``X`` as a float matrix that shares memory with the user's where it can."""
    from sklearn.utils.validation import check_array

    check_real("X", X)
    X = check_array(
        X,
        accept_sparse=["csc", "csr"],
        dtype=[np.float64, np.float32],
        ensure_all_finite=False,
        input_name="X",
    )
    check_finite(X, "X")
    return X


def check_target(y, n_samples: int) -> np.ndarray:
    """``y`` as a float64 vector of that length."""
    check_real("y", y)
    try:
        y = np.asarray(y, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"y must be numeric; got {type(y).__name__} that is not ({error})") from None
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise ValueError(f"y must be one-dimensional; got shape {y.shape}")
    if y.size != n_samples:
        raise ValueError(f"y must have one value a sample: X has {n_samples} rows, y has {y.size}")
    check_finite(y, "y")
    return y


def check_sample_weight(sample_weight, n_samples: int) -> np.ndarray:
    """Weights that sum to one; equal ones for None."""
    if sample_weight is None:
        return np.full(n_samples, 1.0 / n_samples)
    check_real("sample_weight", sample_weight)
    weights = np.asarray(sample_weight, dtype=float)
    if weights.ndim == 0:
        weights = np.full(n_samples, float(weights))
    if weights.shape != (n_samples,):
        raise ValueError(
            f"sample_weight must have shape ({n_samples},), one weight a sample; got {weights.shape}"
        )
    check_finite(weights, "sample_weight")
    if (weights < 0).any():
        bad = int(np.flatnonzero(weights < 0)[0])
        raise ValueError(f"sample_weight must be >= 0; got {weights[bad]} for sample {bad}")
    largest = weights.max()
    if largest == 0:
        raise ValueError("sample_weight must not be all zero")
    weights = weights / largest  # so that the sum of tiny or huge weights stays a number
    return weights / weights.sum()


def check_alpha(alpha):
    """``"exact"`` or a finite number that is not negative."""
    if isinstance(alpha, str) and alpha == "exact":
        return alpha
    number = isinstance(alpha, numbers.Real) and not isinstance(alpha, (bool, np.bool_))
    if not number or not 0 <= alpha < np.inf:
        raise ValueError(f"alpha must be 'exact' or a finite number >= 0; got {alpha!r}")
    return float(alpha)


def check_number(name: str, value, low: float, *, integral=False, strict=False):
    """A finite number of at least ``low`` (above it if ``strict``)."""
    kind = numbers.Integral if integral else numbers.Real
    ok = isinstance(value, kind) and not isinstance(value, (bool, np.bool_))
    if not ok or not (value > low if strict else value >= low) or not value < np.inf:
        what = "an integer" if integral else "a finite number"
        raise ValueError(f"{name} must be {what} {'>' if strict else '>='} {low}; got {value!r}")
    return value


def check_flag(name: str, value) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False; got {value!r}")
    return bool(value)


def check_start(theta0, n_features: int) -> np.ndarray | None:
    """Coefficients to start from, in the units of X."""
    if theta0 is None:
        return None
    check_real("theta0", theta0)
    theta0 = np.asarray(theta0, dtype=float)
    if theta0.shape != (n_features,):
        raise ValueError(f"theta0 must have shape ({n_features},), one number a feature; got {theta0.shape}")
    check_finite(theta0, "theta0")
    return theta0


def check_options(spec: SolverSpec, options: dict, penalty, positive: bool) -> None:
    """That the solver knows these options and can solve this kind of problem."""
    unknown = sorted(set(options) - set(spec.options))
    if unknown:
        raise ValueError(
            f"solver {spec.name!r} has no option {unknown[0]!r}; it takes {', '.join(spec.options)}"
        )
    if spec.trimmed_only and penalty.n_free is None:
        raise ValueError(
            f"solver {spec.name!r} is defined for trimmed penalties alone; with penalty "
            f"{type(penalty).__name__} use solver='mm' or 'prox'"
        )
    if positive and not spec.positive:
        raise ValueError(f"solver {spec.name!r} cannot keep coefficients positive; use solver='mm'")


def check_random_state(random_state) -> np.random.Generator:
    """A generator from a seed; None is the seed 0, so that a fit is the same every time."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31))
    if random_state is None:
        return np.random.default_rng(0)
    if isinstance(random_state, numbers.Integral) and random_state >= 0:
        return np.random.default_rng(int(random_state))
    raise ValueError(
        f"random_state must be None, an integer >= 0, a Generator or a RandomState; got {random_state!r}"
    )
