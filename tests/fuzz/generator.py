"""Seeded adversarial problems for every public estimator and function.

``case(seed)`` is a problem: what to call, and what an independent check needs to know about the result. Kinds
of X: ties, copies, constants, Hilbert-like and autocorrelated columns, scales from 1e-300 to 1e300, one
sample, one column; odd dtypes and containers; sparse, on disk. One case in eight has an argument that must be
refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

import trimreg as tr

LOSSES = ("quadratic", "logistic", "poisson", "gamma", "huber", "cox", "multinomial", "multitask")
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
KINDS = {
    "fit": 10,
    "solve": 8,
    "steps": 1,
    "path": 1,
    "batch": 2,
    "certify": 1,
    "near_best": 0.5,
    "resample": 0.5,
    "cv": 0.5,
    "graph": 3,
}
CONTAINERS = ["array", "fortran", "float32", "list", "frame", "csr", "csc", "coo", "disk", "integers", "bool"]
CONTAINERS += ["matrix", "readonly", "object", "strided"]


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
    values = X
    with np.errstate(all="ignore"):
        if how == "float32":
            values = X.astype(np.float32)
            values = values if np.isfinite(values).all() else X
        elif how == "integers":
            values = np.clip(np.round(X), -1000, 1000).astype(int)
        elif how == "bool":
            values = X > 0
    given: Any = values
    if how == "fortran":
        given = np.asfortranarray(X)
    elif how == "list":
        given = X.tolist()
    elif how == "frame":
        given = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    elif how in ("csr", "csc", "coo"):
        given = getattr(sp, f"{how}_{one_of(rng, ('matrix', 'array'))}")(X)
    elif how == "matrix":
        given = np.matrix(X)
    elif how == "readonly":
        given = X.copy()
        given.setflags(write=False)
    elif how == "object":
        given = X.astype(object)
    elif how == "strided":
        given = np.repeat(X, 2, axis=1)[:, ::2]
    elif how == "disk":
        path = folder / f"{seed % 8}.npy"
        np.save(path, X)
        given = tr.OnDisk(path)
    return how, given, np.asarray(values, dtype=float)


def _factors(rng, count):
    factor = rng.choice([0.0, 0.5, 1.0, 1.0, 2.0, np.inf], size=count)
    factor[0] = 1.0
    return factor


def _spoiled(rng, kind, X, y, w, arguments):
    """One argument made unacceptable; returns its name and all of them."""
    n, p = X.shape
    more = ("alpha", "l2", "penalty_factor") if kind in ("fit", "solve", "steps") else ()
    what = one_of(rng, ("X", "X", "y", "y", "h", *more, *(("sample_weight",) if kind != "resample" else ())))
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
        arguments[what] = one_of(rng, (-1, np.nan, "none", [1, 2], p + 1 if what == "h" else -0.5))
    return what, X, y, w


def case(seed: int, folder: Path) -> Case:
    """The problem of this seed."""
    rng = np.random.default_rng(seed)
    names = list(KINDS)
    kind = str(rng.choice(names, p=np.array(list(KINDS.values())) / sum(KINDS.values())))
    small = kind in ("certify", "near_best", "resample", "cv", "path")
    n = int(rng.integers(1 if not small else 8, 61)) if rng.random() < 0.9 else 1 + 7 * small
    p = int(rng.integers(1, 13 if small else 81 if rng.random() < 0.3 else 25))
    if kind == "graph":
        return _graph(rng, seed, n, min(p, 14))
    if kind == "batch":
        return _batch(rng, seed, n, p)
    loss = one_of(rng, LOSSES if not small else ("quadratic", "quadratic", "logistic", "poisson"))
    X = matrix(rng, n, p)
    how, given, values = contained(rng, X, folder, seed)
    y, w = target(rng, values, loss), weights(rng, n)
    h = int(rng.integers(0, p + 1)) if rng.random() < 0.3 else int(rng.integers(0, min(p, 6) + 1))
    alpha: Any = "exact" if rng.random() < 0.5 else float(10.0 ** rng.uniform(-6, 1))
    facts = {
        "h": h,
        "alpha": alpha,
        "l2": float(one_of(rng, (0.0, 0.0, 0.01, 1.0))),
        "loss": loss,
        "X": values,
        "y": y,
        "sample_weight": w,
        "fit_intercept": bool(rng.random() < 0.7),
        "standardize": bool(rng.random() < 0.6),
        "penalty_factor": None,
        "positive": bool(rng.random() < 0.1),
    }
    if rng.random() < 0.25:
        facts["penalty_factor"] = _factors(rng, p)
    solver = one_of(rng, ("mm", "mm", "mm", "bcd", "dc", "prox"))
    text = f"{kind} {loss} {n}x{p} {how} h={h} alpha={alpha} {solver} l2={facts['l2']}"
    arguments = {
        name: facts[name] for name in ("h", "alpha", "l2", "penalty_factor", "standardize", "positive")
    }
    arguments |= {"solver": solver, "max_iter": None if solver == "mm" else 300}
    if loss != "cox":
        arguments["fit_intercept"] = facts["fit_intercept"]
    facts["solver"] = solver
    bad = ""
    if rng.random() < 0.12:
        bad, given, y, w = _spoiled(rng, kind, X, np.asarray(y), w, arguments)
        text += f" bad {bad}"
    facts["bad"] = bad
    build = {
        "fit": _fit,
        "solve": _solve,
        "steps": _solve,
        "path": _path,
        "certify": _certify,
        "near_best": _certify,
        "resample": _resample,
        "cv": _resample,
    }[kind]
    call = build(rng, kind, given, y, w, arguments, facts)
    return Case(seed, kind, call, text, facts, bad)


def _fit(rng, kind, X, y, w, arguments, facts):
    if facts["loss"] == "multinomial" and len(facts["y"]) < 3:
        facts["loss"] = "logistic"
    model, p = one_of(rng, MODELS[facts["loss"]]), facts["X"].shape[1]
    if facts["bad"]:
        model = MODELS[facts["loss"]][0]
    if model is tr.TrimmedGroupLasso:
        facts["groups"] = arguments["groups"] = np.sort(rng.integers(0, max(1, p // 2), size=p))
        count = len(np.unique(arguments["groups"]))
        arguments["h"] = facts["h"] = (
            min(arguments["h"], count) if isinstance(arguments["h"], int) else arguments["h"]
        )
        arguments["penalty_factor"] = facts["penalty_factor"] = None
    if model is tr.MEstimator:
        penalty = one_of(rng, ("l1", "mcp", "scad", "slope"))
        facts["penalty"] = penalty
        arguments = {
            "penalty": penalty,
            "alpha": facts["alpha"],
            "l2": arguments["l2"],
            "fit_intercept": facts["fit_intercept"],
            "standardize": facts["standardize"],
        }
        if arguments["alpha"] == "exact":
            arguments["alpha"] = facts["alpha"] = 0.1
        facts |= {"h": 0, "penalty_factor": None, "positive": False, "solver": "mm", "model": "MEstimator"}
    if facts["loss"] == "huber" and rng.random() < 0.4:
        facts["scale"] = arguments["scale"] = float(10.0 ** rng.integers(-3, 4))
    return lambda: model(**arguments).fit(X, y, sample_weight=w)


def _solve(rng, kind, X, y, w, arguments, facts):
    arguments = dict(arguments)
    name = facts["loss"]
    loss: Any = tr.losses.Huber() if name == "huber" else name
    if np.ndim(y) == 1 and name == "cox" and not facts["bad"]:
        y = facts["y"] = np.column_stack([np.abs(y), np.asarray(y) >= 0]).astype(float)
    h, factor = arguments.pop("h"), arguments.pop("penalty_factor")
    if kind == "steps":
        arguments.pop("max_iter")

    def call():
        penalty = tr.TrimmedL1(h, factor)
        if kind == "solve":
            return tr.solve(X, y, loss=loss, penalty=penalty, sample_weight=w, **arguments)
        stepper = tr.steps(X, y, loss=loss, penalty=penalty, sample_weight=w, **arguments)
        return [step for step, _ in zip(stepper, range(3), strict=False)]

    return call


def _path(rng, kind, X, y, w, arguments, facts):
    factor = arguments["penalty_factor"]
    return lambda: tr.trimmed_path(
        X,
        y,
        loss=facts["loss"],
        hs=[arguments["h"]],
        alphas=["exact", 0.1],
        penalty_factor=factor,
        sample_weight=w,
    )


def _certify(rng, kind, X, y, w, arguments, facts):
    arguments = {
        name: arguments[name] for name in ("h", "l2", "penalty_factor", "fit_intercept", "standardize")
    }
    if kind == "near_best":
        return lambda: tr.near_best(X, y, loss=facts["loss"], sample_weight=w, time_limit=0.5, **arguments)
    return lambda: tr.certify(
        X, y, loss=facts["loss"], sample_weight=w, time_limit=0.5, alpha=facts["alpha"], **arguments
    )


def _resample(rng, kind, X, y, w, arguments, facts):
    h = arguments["h"]
    if kind == "cv":
        return lambda: tr.TrimmedLassoCV(hs=[h], alphas="exact", cv=3).fit(X, y, sample_weight=w)
    if rng.random() < 0.5:
        return lambda: tr.Bootstrap(tr.TrimmedLasso(h=h), n_replicates=3).fit(X, y, sample_weight=w)
    return lambda: tr.StabilitySelection(tr.TrimmedLasso(), hs=[h], n_pairs=2).fit(X, y)


def _batch(rng, seed, n, p):
    count = int(rng.integers(1, 4))
    X = matrix(rng, n, p) if rng.random() < 0.5 else np.stack([matrix(rng, n, p) for _ in range(count)])
    first = X if X.ndim == 2 else X[0]
    loss = one_of(rng, ("quadratic", "logistic"))
    y = np.stack([target(rng, first, loss) for _ in range(count)])
    facts = {
        "loss": loss,
        "X": X,
        "y": y,
        "h": int(rng.integers(0, p + 1)),
        "l2": 0.0,
        "alpha": "exact" if rng.random() < 0.3 else float(10.0 ** rng.uniform(-4, 1)),
        "fit_intercept": bool(rng.random() < 0.5),
        "standardize": bool(rng.random() < 0.5),
    }
    arguments = {name: facts[name] for name in ("h", "alpha", "loss", "fit_intercept", "standardize")}
    text = f"batch {count} of {n}x{p} {arguments}"
    return Case(seed, "batch", lambda: tr.solve_batch(X, y, max_iter=200, **arguments), text, facts)


def _graph(rng, seed, n, p):
    n, p = max(n, 2), max(p, 2)
    X = matrix(rng, n, p)
    h = int(rng.integers(0, min(p * (p - 1) // 2, 8) + 1))
    alpha: Any = "exact" if rng.random() < 0.5 else float(10.0 ** rng.uniform(-3, 0))
    facts = {"X": X, "h": h, "alpha": alpha}
    text = f"graph {n}x{p} h={h} alpha={alpha}"
    return Case(seed, "graph", lambda: tr.TrimmedGraphicalLasso(h=h, alpha=alpha).fit(X), text, facts)
