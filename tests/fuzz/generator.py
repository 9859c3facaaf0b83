"""Seeded adversarial problems for every public estimator and function.

``case(seed)`` is a problem: what to call, and what an independent check needs to know about the result. Kinds
of X: ties, copies, constants, Hilbert-like and autocorrelated columns, scales from 1e-300 to 1e300, one
sample, one column; odd dtypes and containers; sparse, on disk, Dask, tensors. Every argument is drawn for
every case; a call takes those that its signature names. One case in eight has one that must be refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

import trimreg as tr
from trimreg import diagnostics

LOSSES = ("quadratic", "logistic", "poisson", "gamma", "huber", "cox", "multinomial", "multitask")
CONVEX = ("quadratic", "quadratic", "logistic", "poisson")
MODELS = {
    "quadratic": (tr.TrimmedLasso, tr.TrimmedLasso, tr.TrimmedGroupLasso, tr.MEstimator),
    "logistic": (tr.TrimmedLogisticRegression,),
    "poisson": (tr.TrimmedPoissonRegressor,),
    "gamma": (tr.TrimmedGammaRegressor,),
    "huber": (tr.TrimmedHuberRegressor,),
    "cox": (tr.TrimmedCoxRegressor,),
    "multinomial": (tr.TrimmedLogisticRegression,),
    "multitask": (tr.MultiTaskTrimmedLasso,),
}
CHOOSERS = {
    "quadratic": tr.TrimmedLassoCV,
    "logistic": tr.TrimmedLogisticRegressionCV,
    "poisson": tr.MEstimatorCV,
}
#: kind: (how many of the cases, its losses)
KINDS = {
    "fit": (10, LOSSES),
    "solve": (6, LOSSES),
    "steps": (1, LOSSES),
    "path": (1.5, ("quadratic", *LOSSES[:-1])),
    "batch": (2, ("quadratic", "logistic")),
    "certify": (1.5, CONVEX),
    "near_best": (0.5, CONVEX),
    "bootstrap": (0.5, CONVEX),
    "stability": (0.5, CONVEX),
    "cv": (1, CONVEX),
    "diagnose": (1, LOSSES),
    "graph": (2, ("quadratic",)),
    "solve_graphical": (1, ("quadratic",)),
    "graph_path": (0.5, ("quadratic",)),
    "graph_cv": (0.3, ("quadratic",)),
}
SMALL = ("certify", "near_best", "bootstrap", "stability", "cv", "path", "graph_path", "graph_cv")
CONTAINERS = ["array", "fortran", "float32", "list", "frame", "csr", "csc", "coo", "disk", "integers", "bool"]
CONTAINERS += ["matrix", "readonly", "object", "strided", "float16", "memmap", "big-endian", "longdouble"]
RARE = ["dask", "dask frame", "tensor", "zarr", "parquet"]
#: What a call without such an argument does.
NEUTRAL = {
    "l2": 0.0, "penalty_factor": None, "groups": None, "q": 2, "positive": False, "n_outliers": 0,
    "lower": None, "upper": None,
    "scale": None, "solver": "mm", "theta0": None, "alpha": "exact", "fit_intercept": True,
    "standardize": True, "tol": 1e-6,
}  # fmt: skip


@dataclass
class Case:
    """A call and the facts that its result is checked against. ``bad`` names an argument to be refused."""

    seed: int
    kind: str
    call: Callable[[], Any]
    text: str
    facts: dict[str, Any] = field(default_factory=dict)
    bad: str = ""


def one_of(rng, options):
    return options[int(rng.integers(len(options)))]


def matrix(rng, n, p):
    """X in float64."""
    X = rng.standard_normal((n, p))
    kind = rng.random()
    if kind < 0.1:
        X = np.round(X)
    elif kind < 0.15:
        X = 1.0 / (np.arange(n)[:, None] + np.arange(p) + 1.0)
    elif kind < 0.22:
        for j in range(1, p):
            X[:, j] = 0.99 * X[:, j - 1] + 0.14 * X[:, j]
    elif kind < 0.3:
        X = (rng.random((n, p)) < 0.3).astype(float)
    for chance, change in (
        (0.2, lambda j: X[:, rng.integers(p)]),
        (0.15, lambda j: np.full(n, rng.choice([0.0, 1.0, -3.5, 1e10]))),
        (0.1, lambda j: X[:, rng.integers(p)] * (1 + 1e-9 * rng.standard_normal(n))),
        (0.05, lambda j: X[:, j] + 1e8),
    ):
        if rng.random() < chance:
            for j in rng.integers(0, p, size=max(1, p // 4)):
                X[:, j] = change(j)
    if rng.random() < 0.12:
        X = X * 10.0 ** rng.integers(-300, 301)
    elif rng.random() < 0.1:
        X = X * 10.0 ** rng.integers(-8, 9, size=p)
    elif rng.random() < 0.05:
        X = X * 10.0 ** rng.integers(-150, 151, size=p)
    return X


def target(rng, X, loss):
    n, p = X.shape
    with np.errstate(all="ignore"):
        column = X[:, rng.integers(p)]
        signal = column / (np.abs(column).max() or 1.0) * 2 + rng.standard_normal(n) * one_of(
            rng, (0.0, 0.5, 1.0)
        )
    flat = rng.random() < 0.06
    if loss in ("logistic", "multinomial"):
        count = 2 if loss == "logistic" else int(rng.integers(3, 5))
        y = np.clip(np.floor(signal + rng.random(n) * count), 0, count - 1).astype(int)
        y[: min(n, count)] = np.arange(min(n, count))
        return y
    if loss == "cox":
        time = np.round(np.exp(np.clip(signal, -3, 3)) * 5, int(rng.integers(0, 3)))
        y = np.column_stack([time, rng.random(n) < 0.7]).astype(float)
        y[0, 1] = 1.0
        return y if rng.random() < 0.7 else np.where(y[:, 1] > 0, y[:, 0], -y[:, 0] - 1e-3)
    if loss == "multitask":
        y = signal[:, None] * rng.standard_normal(int(rng.integers(1, 4))) + 0.1 * rng.standard_normal((n, 1))
    elif loss == "poisson":
        y = rng.poisson(np.exp(np.clip(signal, -5, 3))).astype(float)
    elif loss == "gamma":
        y = np.exp(np.clip(signal, -5, 5)) * rng.gamma(2.0, size=n) + 1e-3
    else:
        y = signal
    y = (
        np.full_like(y, one_of(rng, (0.0, 1.0, -2.0) if loss not in ("poisson", "gamma") else (1.0, 3.0)))
        if flat
        else y
    )
    if rng.random() < 0.1:
        with np.errstate(all="ignore"):
            y = (
                y * 10.0 ** rng.integers(-140, 141)
                if rng.random() < 0.5
                else y * 10.0 ** rng.integers(-12, 13)
            )
    if loss in ("quadratic", "huber") and rng.random() < 0.1:
        y = y + one_of(rng, (1e6, 1e10))
    if loss in ("quadratic", "huber") and rng.random() < 0.1:
        y[rng.integers(n)] = 1e6
    return np.maximum(y, 1e-290) if loss == "gamma" else y


def weights(rng, n):
    kind = rng.random()
    if kind < 0.65:
        return None
    w = rng.random(n) + 0.01
    if kind < 0.85:
        w = w * (rng.random(n) < 0.7)
    elif kind < 0.9:
        w = rng.integers(0, 4, size=n)
    elif kind < 0.95:
        w = w * 10.0 ** rng.integers(-8, 9, size=n)
    w[0] = w[0] or 1
    return w


def contained(rng, X, folder: Path, seed: int):
    """X as the user has it, and its values as they are read from there."""
    how = one_of(rng, CONTAINERS) if rng.random() < 0.5 else "array"
    how = one_of(rng, RARE) if rng.random() < 0.03 else how
    values = X
    with np.errstate(all="ignore"):
        if how in ("float16", "float32"):
            values = X.astype(how)
            values = values if np.isfinite(values).all() else X
        elif how == "integers":
            values = np.clip(np.round(X), -1000, 1000).astype(one_of(rng, (int, np.int16)))
        elif how == "bool":
            values = X > 0
    return how, _container(rng, how, X, values, folder / f"{seed % 8}"), np.asarray(values, dtype=float)


def _container(rng, how, X, values, path):
    if how == "fortran":
        return np.asfortranarray(X)
    if how == "list":
        return X.tolist()
    if how == "frame":
        return pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    if how in ("csr", "csc", "coo"):
        return getattr(sp, f"{how}_{one_of(rng, ('matrix', 'array'))}")(X)
    if how == "matrix":
        return np.matrix(X)
    if how == "readonly":
        values = X.copy()
        values.setflags(write=False)
    if how in ("object", "longdouble"):
        return X.astype(how)
    if how == "big-endian":
        return X.astype(">f8")
    if how == "strided":
        return np.repeat(X, 2, axis=1)[:, ::2]
    if how in ("disk", "memmap"):
        path = path.with_suffix(".npy")
        np.save(path, X)
        return tr.OnDisk(path) if how == "disk" else np.load(path, mmap_mode="r")
    return _far(how, X, path) if how in RARE else values


def _far(how, X, path):
    n, p = X.shape
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(p)])
    if how == "tensor":
        import torch

        return torch.from_numpy(X.copy())
    if how == "parquet":
        frame.to_parquet(path.with_suffix(".parquet"))
        return tr.OnDisk(path.with_suffix(".parquet"))
    if how == "zarr":
        import zarr

        return tr.OnDisk(zarr.array(X, store=zarr.storage.MemoryStore()))
    import dask
    import dask.array
    import dask.dataframe

    dask.config.set(scheduler="synchronous")
    if how == "dask":
        return dask.array.from_array(X, chunks=(max(1, n // 2), p))
    return dask.dataframe.from_pandas(frame, npartitions=2)


def _worn(rng, y):
    """y or sample weights as lists, series or of another type, with the same values."""
    how = rng.random()
    if how > 0.2 or y is None:
        return y
    if how < 0.05:
        return y.tolist()
    if how < 0.1 and y.ndim == 1:
        return pd.Series(y)
    with np.errstate(all="ignore"):
        other = y.astype(one_of(rng, (np.float32, np.int32, ">f8", object)))
        return other if np.array_equal(other.astype(float), y) else y


def _factors(rng, count):
    factor = rng.choice([0.0, 0.5, 1.0, 1.0, 2.0, np.inf], size=count)
    factor[0] = 1.0
    return factor


def _spoiled(rng, names, X, y, w, arguments):
    """One argument of these made unacceptable; returns its name and all of them."""
    n, p = X.shape
    more = [name for name in ("h", "alpha", "l2", "penalty_factor", "tol", "sample_weight") if name in names]
    what = one_of(rng, [*more, *(name for name in ("X", "X", "y", "y") if name in names)])
    if what == "X":
        X = one_of(
            rng,
            (
                X[:, :0],
                X[0],
                np.where(np.arange(p) == 0, np.nan, X),
                X.astype(str),
                X * 1j,
                None,
                {"a": X},
                np.ma.masked_array(X, np.ones((n, 1)) * (np.arange(p) == 0)),
            ),
        )
    elif what == "y":
        y = one_of(
            rng, (None, y[:-1] if n > 1 else y[:0], np.full(n, np.nan), np.full(n, 1j), y[:, None, None])
        )
    elif what == "sample_weight":
        w = one_of(
            rng, (np.ones(n + 1), -np.ones(n), np.full(n, np.nan), np.zeros(n), "heavy", np.ones((n, 2)))
        )
    elif what == "penalty_factor":
        arguments["penalty_factor"] = one_of(rng, (-np.ones(p), np.ones(p + 1), "a", np.full(p, np.nan)))
    else:
        arguments[what] = one_of(rng, (-1, np.nan, "none", [1, 2], p * p + 1 if what == "h" else -0.5))
    return what, X, y, w


def _arguments(rng, loss, n, p, h):
    """Every argument that any of the calls takes."""
    often = one_of(rng, (0.0, 0.0, 0.3))  # most cases have few rare arguments
    alpha: Any = "exact" if rng.random() < 0.5 else float(10.0 ** rng.uniform(-6, 1))
    solver = one_of(rng, ("mm", "mm", "mm", "bcd", "dc", "prox"))
    groups = np.sort(rng.integers(0, max(1, p // 2), size=p)) if rng.random() < often else None
    factor = _factors(rng, p) if rng.random() < 0.25 and groups is None else None
    h = h if groups is None else min(h, len(np.unique(groups)))
    (apart,) = rng.spawn(1)  # other draws stay as they are
    signs = [np.where(apart.random(p) < 0.5, 0.0, end) for end in (-np.inf, np.inf)]
    lower, upper = (
        one_of(apart, (*[None] * 12, end, 0.3 * sign)) for end, sign in zip(signs, (-1, 1), strict=True)
    )
    return {
        "h": h, "alpha": alpha, "l2": float(one_of(rng, (0.0, 0.0, 0.01, 1.0))), "loss": loss,
        "fit_intercept": bool(rng.random() < 0.7), "standardize": bool(rng.random() < 0.6),
        "penalty_factor": factor, "groups": groups, "positive": bool(rng.random() < 0.1),
        "q": 2 if rng.random() > often else np.inf, "solver": solver,
        "max_iter": None if solver == "mm" else 300,
        "tol": 1e-6 if rng.random() > often else one_of(rng, (1e-4, 1e-9, 1e-14)),
        "n_outliers": 0 if rng.random() > 0.3 * often else int(rng.integers(0, n // 4 + 1)),
        "theta0": None if rng.random() > often else rng.standard_normal(p) * rng.integers(0, 2, size=p),
        "hs": [h] if rng.random() < 0.5 else sorted({0, h}), "alphas": ["exact", 0.1],
        "lower": lower, "upper": upper, "time_limit": 0.2, "n_replicates": 3, "n_pairs": 2, "cv": 3,
    }  # fmt: skip


def _accepted(function, arguments):
    """The arguments that the signature names."""
    names = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in names}


def case(seed: int, folder: Path) -> Case:
    """The problem of this seed."""
    rng = np.random.default_rng(seed)
    share = np.array([often for often, _ in KINDS.values()])
    kind = str(rng.choice(list(KINDS), p=share / share.sum()))
    small, graph = kind in SMALL, "graph" in kind
    n = int(rng.integers(1 if not small else 8, 61)) if rng.random() < 0.9 else 1 + 7 * small
    p = int(rng.integers(1, 13 if small else 81 if rng.random() < 0.3 else 25))
    n, p = (max(n, 2), min(max(p, 2), 14)) if graph else (n, p)
    loss = one_of(rng, KINDS[kind][1])
    loss = "logistic" if loss == "multinomial" and n < 3 else loss
    X = matrix(rng, n, p)
    how, given, values = contained(rng, X, folder, seed)
    y, w = target(rng, values, loss), weights(rng, n)
    h = int(rng.integers(0, p + 1)) if rng.random() < 0.3 else int(rng.integers(0, min(p, 6) + 1))
    if kind == "cv":
        h = min(h, int(rng.integers(0, 2)))  # the reference knows the best subsets of one feature
    arguments = _arguments(rng, loss, n, p, h)
    if kind == "cv":
        arguments["hs"], arguments["alphas"], arguments["l2s"] = [h], "exact", [arguments["l2"]]
    if graph:
        h = min(h, 8, p * (p - 1) // 2)
        arguments |= {"h": h, "hs": sorted({0, h}), "tol": 1e-8}
    functions = {
        "fit": one_of(rng, MODELS[loss]), "cv": CHOOSERS.get(loss, tr.MEstimatorCV),
        "graph": tr.TrimmedGraphicalLasso, "graph_cv": tr.TrimmedGraphicalLassoCV,
        "graph_path": tr.graphs.graphical_path,
        "bootstrap": tr.Bootstrap, "stability": tr.StabilitySelection, "batch": tr.solve_batch,
        "path": tr.trimmed_path, "diagnose": one_of(rng, DIAGNOSTICS),
    }  # fmt: skip
    function = functions.get(kind) or getattr(tr, kind)
    facts: dict[str, Any] = {"X": values, "y": y, "sample_weight": w, **NEUTRAL, "seed": seed}
    build = globals().get(f"_{kind}", _estimator if isinstance(function, type) else _function)
    text = f"{kind} {function.__name__} {loss} {n}x{p} {how}"
    bad, names = "", [*inspect.signature(getattr(function, "fit", function)).parameters]
    names += [
        *inspect.signature(function).parameters,
        *(["h", "penalty_factor"] if kind in ("solve", "steps") else []),
    ]
    if rng.random() < 0.12 and kind not in ("diagnose", "batch"):
        function = MODELS[loss][0] if kind == "fit" else function
        names = [name for name in names if not graph or name not in ("y", "sample_weight", "penalty_factor")]
        bad, given, y, w = _spoiled(rng, names, X, y, w, arguments)
    else:
        y, w = _worn(rng, y), _worn(rng, w)
    call, used = build(rng, function, given, y, w, arguments, facts)
    facts |= {name: value for name, value in used.items() if name not in ("X", "y", "sample_weight")}
    plain = {name: value for name, value in used.items() if isinstance(value, (str, int, float))}
    return Case(seed, kind, call, f"{text} {plain}{' bad ' + bad if bad else ''}", facts, bad)


# -- one function a way to call: ``(rng, function, X, y, w, arguments, facts) -> (call, its arguments)`` -----


def _estimator(rng, function, X, y, w, arguments, facts):
    used = _accepted(function, arguments)
    loss, p = arguments["loss"], facts["X"].shape[1]
    facts["loss"] = loss
    if function is tr.TrimmedGroupLasso:
        groups = np.sort(rng.integers(0, max(1, p // 2), size=p))
        used |= {"groups": groups, "h": min(used["h"], len(np.unique(groups))), "penalty_factor": None}
    if function is tr.MEstimator:
        used["penalty"], used["solver"] = one_of(rng, ("l1", "mcp", "scad", "slope")), "auto"
        used["alpha"] = 0.1 if used["alpha"] == "exact" else used["alpha"]
        facts["h"] = 0
    if loss == "huber" and rng.random() < 0.4:
        used["scale"] = float(10.0 ** rng.integers(-3, 4))
    if (
        loss in ("logistic", "multinomial")
        and rng.random() < 0.2
        and getattr(y, "dtype", "") == facts["y"].dtype
    ):
        y = np.array(["a", "b", "c", "d"])[y] if np.array_equal(y, facts["y"]) else y
    return (lambda: function(**used).fit(X, y, sample_weight=w)), used


def _bootstrap(rng, function, X, y, w, arguments, facts):
    used, facts["h"] = _accepted(function, arguments), arguments["h"]
    used["estimator"] = tr.TrimmedLasso(h=arguments["h"])
    return (lambda: function(**used).fit(X, y, sample_weight=w)), used


def _stability(rng, function, X, y, w, arguments, facts):
    used = _accepted(function, arguments)
    return (lambda: function(tr.TrimmedLasso(), **used).fit(X, y)), used


def _function(rng, function, X, y, w, arguments, facts):
    used = _accepted(function, arguments | {"X": X, "y": y, "sample_weight": w})
    return (lambda: function(**used)), used


def _solve(rng, function, X, y, w, arguments, facts):
    used = _accepted(function, arguments | {"sample_weight": w})
    if np.ndim(y) == 1 and used["loss"] == "cox" and y is facts["y"]:
        y = facts["y"] = np.column_stack([np.abs(y), y >= 0]).astype(float)
    if used["loss"] in ("multinomial", "multitask"):
        used.pop("theta0")
    shape = {name: arguments[name] for name in ("h", "penalty_factor", "groups", "q")}
    steps = function is tr.steps

    def call():
        found = function(X, y, penalty=tr.TrimmedL1(**shape), **used)
        return [step for step, _ in zip(found, range(3), strict=False)] if steps else found

    return call, used | shape


_steps = _solve


def _batch(rng, function, X, y, w, arguments, facts):
    n, p = facts["X"].shape
    count, loss = int(rng.integers(1, 4)), arguments["loss"]
    X = facts["X"]
    if rng.random() < 0.5:
        X = facts["X"] = np.stack([matrix(rng, n, p) for _ in range(count)])
    y = facts["y"] = np.stack([target(rng, X if X.ndim == 2 else X[0], loss) for _ in range(count)])
    names = ("h", "alpha", "l2", "loss", "fit_intercept", "standardize")
    used = {name: arguments[name] for name in names} | {"X": X, "y": y, "max_iter": 200}
    facts["sample_weight"] = None
    return (lambda: function(**used)), used


def _diagnose(rng, function, X, y, w, arguments, facts):
    p, loss = facts["X"].shape[1], arguments["loss"]
    outputs = {"multinomial": (int(np.max(facts["y"])) + 1,), "multitask": facts["y"].shape[1:]}.get(loss, ())
    if loss == "cox" and facts["y"].ndim == 1:
        y = np.column_stack([np.abs(facts["y"]), facts["y"] >= 0]).astype(float)
    coef = rng.standard_normal((*outputs, p)) * (rng.random(p) < 0.3)
    more = {
        "X": X, "y": y, "sample_weight": w, "coef": coef, "alpha": float(10.0 ** rng.uniform(-4, 1)),
        "support": np.arange(max(1, min(arguments["h"], p - 1))), "n_draws": 20, "max_sets": 50,
        "penalty": tr.TrimmedL1(arguments["h"], arguments["penalty_factor"]),
    }  # fmt: skip
    used = _accepted(function, arguments | more)
    return (lambda: function(**used)), used


DIAGNOSTICS = (
    diagnostics.stationarity, diagnostics.is_local_minimum, diagnostics.best_swap,
    diagnostics.exact_penalty_alpha, diagnostics.dual_feasibility, diagnostics.incoherence,
)  # fmt: skip


def _graph(rng, function, X, y, w, arguments, facts):
    p = facts["X"].shape[1]
    own = {"max_iter": None, "shrinkage": float(one_of(rng, (0.0, 0.0, 0.2))), "penalty_factor": None}
    used = _accepted(function, arguments | own)
    used["standardize"] = used["standardize"] and rng.random() < 0.5
    if isinstance(function, type):
        return (lambda: function(**used).fit(X)), used
    with np.errstate(all="ignore"):
        Z = facts["X"] / (np.abs(facts["X"]).max() or 1.0)
        S = facts["S"] = np.cov(Z.T, bias=True).reshape(p, p) * 10.0 ** rng.integers(-6, 7)
    if function is tr.solve_graphical:
        facts["h"] = arguments["h"]
        return (lambda: function(S, penalty=tr.TrimmedL1(arguments["h"]), **used)), used
    return (lambda: function(S, **used)), used


_graph_cv = _graph_path = _solve_graphical = _graph
