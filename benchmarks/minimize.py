"""Any loss: ``trimreg.minimize`` against skscope, both on the same JAX function, on eight kinds of problems.

    pip install skscope==0.1.8 jax
    python -m benchmarks minimize

Generators follow the settings of Wang et al. (2024, "skscope: Fast Sparsity-Constrained Optimization in Python", JMLR
25) where these are public: n, p and the number of nonzeros. Every function is new, so that compiling counts on both sides.
"""

from __future__ import annotations

import os
import sys
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .common import Section, one_thread, timed

SEEDS = 5


@dataclass
class Case:
    """One function, what is known of the truth, and how each side is called."""

    fun: Any
    p: int
    h: int
    truth: np.ndarray | None = None  # the support; None where only the objective counts
    ours: dict = field(default_factory=dict)
    theirs: Any = None  # their function, if it has to be written in another way
    always: list | None = None  # what is never penalized
    start: np.ndarray | None = None
    judge: Any = None  # the objective of both, if that is not fun


def autoregressive(n, p, rng, rho=0.2):
    return rng.multivariate_normal(
        np.zeros(p), rho ** np.abs(np.subtract.outer(np.arange(p), np.arange(p))), n
    )


def signs(p, s, rng):
    coef = np.zeros(p)
    coef[rng.permutation(p)[:s]] = rng.choice([-1.0, 1.0], s)
    return coef


def linear(rng, n=600, p=500, s=50):
    import jax.numpy as jnp

    X, coef = autoregressive(n, p, rng), signs(p, s, rng)
    y = X @ coef + rng.standard_normal(n)
    return Case(lambda t: jnp.mean((y - X @ t) ** 2), p, s, np.flatnonzero(coef))


def logistic(rng, n=600, p=500, s=50):
    import jax.numpy as jnp

    X, coef = autoregressive(n, p, rng), signs(p, s, rng)
    y = (rng.random(n) < 1 / (1 + np.exp(-X @ coef))).astype(float)
    return Case(lambda t: jnp.mean(jnp.logaddexp(0.0, X @ t) - y * (X @ t)), p, s, np.flatnonzero(coef))


def ising(rng, n=600, nodes=20, s=40):
    """Pseudo-likelihood of a graph of +-1; samples by Gibbs sweeps of many chains."""
    import jax.numpy as jnp

    rows, cols = np.triu_indices(nodes, 1)
    p = rows.size
    s = min(s, p // 3)
    coef = 0.5 * signs(p, s, rng)
    strength = np.zeros((nodes, nodes))
    strength[rows, cols] = strength[cols, rows] = coef
    x = rng.choice([-1.0, 1.0], (n, nodes))
    for _ in range(200):
        for k in range(nodes):
            x[:, k] = np.where(rng.random(n) < 1 / (1 + np.exp(-2 * x @ strength[:, k])), 1.0, -1.0)

    def fun(t):
        M = jnp.zeros((nodes, nodes)).at[rows, cols].set(t)
        return jnp.mean(jnp.sum(jnp.logaddexp(0.0, -2 * x * (x @ (M + M.T))), axis=1))

    return Case(fun, p, s, np.flatnonzero(coef))


def trend(rng, n=600, s=50):
    import jax.numpy as jnp

    jumps = np.zeros(n)
    jumps[rng.permutation(n)[:s]] = rng.choice([-1.0, 1.0], s) * rng.uniform(1.0, 3.0, s)
    y = np.cumsum(jumps) + 0.5 * rng.standard_normal(n)
    return Case(lambda t: jnp.mean((y - jnp.cumsum(t)) ** 2), n, s, np.flatnonzero(jumps))


def dependence(rng, n=200, p=50, s=10):
    """Features on which y depends in any way, by a kernel measure of dependence (HSIC lasso)."""
    import jax.numpy as jnp
    from sklearn.metrics.pairwise import rbf_kernel

    X = rng.standard_normal((n, p))
    which = rng.permutation(p)[:s]
    Z = X[:, which]
    y = sum(Z[:, i] * np.exp(Z[:, i + 1] / 2) for i in range(0, s - 1, 2)) + 0.1 * rng.standard_normal(n)

    def centered(values):
        K = rbf_kernel(values.reshape(-1, 1), gamma=0.5)
        K = K - K.mean(axis=0)
        return (K - K.mean(axis=1, keepdims=True)).ravel()

    features, target = np.stack([centered(x) for x in X.T], axis=1), centered(y / y.std())
    features *= np.sqrt(n)
    target *= np.sqrt(n)

    def fun(t):
        return jnp.mean((target - features @ t) ** 2)

    return Case(
        fun,
        p,
        s,
        np.sort(which),
        {"positive": True},
        theirs=lambda t: fun(jnp.abs(t)),
        judge=lambda t: fun(jnp.abs(t)),
    )


def growth(rng, n=600, p=500, s=20):
    """Nonlinear least squares: a response that saturates."""
    import jax
    import jax.numpy as jnp

    X, coef = autoregressive(n, p, rng), signs(p, s, rng)
    y = 1 / (1 + np.exp(-X @ coef)) + 0.1 * rng.standard_normal(n)
    return Case(lambda t: jnp.mean((y - jax.nn.sigmoid(X @ t)) ** 2), p, s, np.flatnonzero(coef))


def mixture(rng, n=600, p=50, s=5):
    """Two linear models, mixed; their intercepts, deviations and shares are never penalized."""
    import jax
    import jax.numpy as jnp

    X, coef = rng.standard_normal((n, p)), np.zeros((2, p))
    for row in coef:
        row[rng.permutation(p)[:s]] = rng.choice([-1.0, 1.0], s) * rng.uniform(1.0, 2.0, s)
    intercept, which = np.array([2.0, -2.0]), (rng.random(n) < 0.4).astype(int)
    y = intercept[which] + np.sum(X * coef[which], axis=1) + 0.5 * rng.standard_normal(n)

    def fun(t):
        mean = X @ t[: 2 * p].reshape(2, p).T + t[2 * p : 2 * p + 2]
        scale = jnp.log(
            0.1 + jnp.exp(t[2 * p + 2 : 2 * p + 4])
        )  # without a floor the likelihood has no maximum
        share = jax.nn.log_softmax(jnp.array([t[-1], 0.0]))
        return -jnp.mean(
            jax.nn.logsumexp(share - scale - 0.5 * ((y[:, None] - mean) / jnp.exp(scale)) ** 2, axis=1)
        )

    size = 2 * p + 5
    start = np.zeros(size)
    start[2 * p : 2 * p + 4] = y.mean() + y.std(), y.mean() - y.std(), np.log(y.std()), np.log(y.std())
    factor = np.r_[np.ones(2 * p), np.zeros(5)]
    always = list(range(2 * p, size))
    ours = {"penalty_factor": factor, "start": start}
    return Case(fun, size, 2 * s, np.flatnonzero(coef.ravel()), ours, always=always, start=start)


def portfolio(rng, n=360, p=200, h=20):
    """The portfolio of least variance with h of p assets."""
    import jax.numpy as jnp

    market, sector = rng.standard_normal(n), rng.standard_normal((n, 10))
    R = (
        rng.uniform(0.5, 1.5, p) * market[:, None]
        + sector[:, np.arange(p) % 10]
        + rng.uniform(0.5, 2.0, p) * rng.standard_normal((n, p))
    )
    S = np.cov(R.T)

    def variance(w):
        return w @ S @ w

    def normalized(t):
        return variance(t / jnp.sum(t))

    return Case(
        variance,
        p,
        h,
        None,
        {"total": 1.0},
        theirs=normalized,
        start=rng.standard_normal(p),
        judge=lambda t: variance(t / t.sum()),
    )


CASES = {
    "linear regression, 600 x 500, 50": linear,
    "logistic regression, 600 x 500, 50": logistic,
    "Ising model, 20 nodes, n=600, 40 of 190 edges": ising,
    "trend filtering, n=600, 50 jumps": trend,
    "nonlinear dependence, 200 x 50, 10": dependence,
    "nonlinear least squares, 600 x 500, 20": growth,
    "mixture of two regressions, 600 x 50, 10 of 100": mixture,
    "portfolio of 20 of 200 assets": portfolio,
}
QUICK = {
    linear: {"n": 100, "p": 30, "s": 3}, logistic: {"n": 200, "p": 30, "s": 3}, ising: {"n": 200, "nodes": 8, "s": 6},
    trend: {"n": 60, "s": 4}, dependence: {"n": 40, "p": 10, "s": 3}, growth: {"n": 200, "p": 30, "s": 3},
    mixture: {"n": 200, "p": 5, "s": 1}, portfolio: {"p": 20, "h": 4},
}  # fmt: skip


def fits(case):
    """Functions that fit, by name: each returns theta."""
    from skscope import FobaSolver, ScopeSolver

    from trimreg import minimize

    def ours(effort):
        return lambda: minimize(case.fun, case.p, h=case.h, effort=effort, **case.ours).theta

    def peer(solver):
        extra = {} if case.always is None else {"preselect": case.always}
        size = case.h + len(case.always or ())

        def fit():
            start = {} if case.start is None else {"init_params": np.asarray(case.start, dtype=float)}
            return np.asarray(solver(case.p, size, **extra).solve(case.theirs or case.fun, jit=True, **start))

        return fit

    return {
        "medium": ours("medium"), "low": ours("low"), "Scope": peer(ScopeSolver), "FoBa": peer(FobaSolver)
    }  # fmt: skip


def run(quick: bool = False) -> Section:
    one_thread()
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    names = ("medium", "low", "Scope", "FoBa")
    section = Section(
        "Any loss",
        f'`trimreg.minimize` with effort="medium" and "low" against skscope 0.1.8 (Scope, FoBa) on the same JAX functions, {SEEDS} seeds, medians. *Found* is the share of the true support that was selected. Seconds are processor time with compiling: every function is new. *Lower* counts the seeds in which the objective of "medium" is at most theirs (up to 1e-6).',
        ["problem", *(f"found, {name}" for name in names), *(f"s, {name}" for name in names), "lower than Scope", "than FoBa"],
    )  # fmt: skip
    try:
        import jax  # noqa: F401
        import skscope  # noqa: F401
    except ImportError:
        section.remarks.append("Not run: `pip install skscope==0.1.8 jax` first.")
        return section
    ratios, ahead = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for title, make in CASES.items():
            compare(section, title, make, quick, ratios, ahead)
    section.headline.append([
        "functions of JAX with h nonzero parameters, 8 problems, against skscope (Scope)",
        f"takes {min(m for m, _ in ratios):.2f} to {max(m for m, _ in ratios):.2f} of its time; an objective no higher in {sum(ahead)} of {len(ahead)} fits",
    ])  # fmt: skip
    return section


def compare(section, title, make, quick, ratios, ahead):
    """A row of the table and its bars: not behind Scope in what is found, nor in time."""
    found, seconds, value = {}, {}, {}
    for seed in range(2 if quick else SEEDS):
        case = make(np.random.default_rng(seed), **(QUICK[make] if quick else {}))
        if seed == 0:
            fits(case)["medium"]()  # compiled code of ours is read from disk
        for name, fit in fits(case).items():
            if name == "FoBa" and case.truth is None:  # it begins at 0, whose sum it divides by, and aborts
                spent, theta = np.nan, np.full(case.p, np.nan)
            else:
                spent, theta = timed(fit)
            penalized = np.setdiff1d(np.flatnonzero(theta), case.always or [])
            share = np.nan if case.truth is None else np.mean(np.isin(case.truth, penalized))
            for table, entry in (
                (found, share),
                (seconds, spent),
                (value, float((case.judge or case.fun)(theta))),
            ):
                table.setdefault(name, []).append(entry)
    share = {name: float(np.mean(found[name])) for name in found}
    time = {name: float(np.median(seconds[name])) for name in found}
    best, count = np.array(value["medium"]), len(value["medium"])
    lower = {name: ~(best > np.array(value[name]) + 1e-6 * np.abs(best)) for name in ("Scope", "FoBa")}
    ahead += lower["Scope"].tolist()
    ratios.append((time["medium"] / time["Scope"], time["low"] / time["Scope"]))
    section.rows.append([
        title, *("-" if np.isnan(share[name]) else f"{share[name]:.3f}" for name in found),
        *("-" if np.isnan(time[name]) else f"{time[name]:.2f}" for name in found),
        *(f"{int(lower[name].sum())} of {count}" for name in lower),
    ])  # fmt: skip
    label = title.split(",")[0]
    if not np.isnan(share["Scope"]):
        peer = max(share["Scope"], share["FoBa"])
        section.bar(
            f"{label}: finds at least what the best peer does",
            f"{share['medium']:.3f}, {peer:.3f}",
            share["medium"] >= peer,
        )
    section.bar(
        f"{label}: objective at most Scope's", f"{int(lower['Scope'].sum())} of {count}", lower["Scope"].all()
    )
    for name, ratio in zip(("medium", "low"), ratios[-1], strict=True):
        section.bar(
            f'{label}: effort="{name}" takes no longer than Scope', f"{ratio:.2f} of its time", ratio <= 1
        )
    print(section.rows[-1], file=sys.stderr, flush=True)
