"""Interactions under heredity: 300 features, all 44,850 products, and the memory that they do not take."""

from __future__ import annotations

import tracemalloc
from itertools import combinations

import numpy as np

from .common import Section, one_thread, timed


def instance(seed: int, n: int, p: int):
    """Autoregressive columns (rho = 0.5), 4 features and their 6 products, coefficients of +-1, unit noise."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    for j in range(1, p):
        X[:, j] = 0.5 * X[:, j - 1] + np.sqrt(0.75) * X[:, j]
    features = np.sort(rng.choice(p, 4, replace=False)).tolist()
    terms = [(j,) for j in features] + list(combinations(features, 2))
    signal = sum(rng.choice([-1.0, 1.0]) * np.prod(X[:, term], axis=1) for term in terms)
    return X, signal + rng.standard_normal(n), {"*".join(f"x{j}" for j in term) for term in terms}


def pursuit(X, y):
    """The loss of ten steps of orthogonal matching pursuit on the matrix with all products."""
    from sklearn.linear_model import orthogonal_mp

    first, second = np.triu_indices(X.shape[1], 1)
    Z = X - X.mean(axis=0)
    Z = np.hstack([Z, Z[:, first] * Z[:, second]])
    Z -= Z.mean(axis=0)
    Z /= Z.std(axis=0)
    target = y - y.mean()
    return 0.5 * np.mean((target - Z @ orthogonal_mp(Z, target, n_nonzero_coefs=10)) ** 2)


def traced(function):
    """The most bytes that Python and NumPy allocated during a call."""
    tracemalloc.start()
    function()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def run(quick: bool = False) -> Section:
    from trimreg import TrimmedInteractions

    one_thread()
    n, p, seeds = (200, 40, 2) if quick else (1000, 300, 10)
    count = p * (p - 1) // 2
    whole = 8 * n * (p + count)
    data = [instance(seed, n, p) for seed in range(seeds)]
    theirs = [timed(lambda d=d: pursuit(d[0], d[1])) for d in data]
    section = Section(
        "Interactions",
        f"`TrimmedInteractions(h=10)`, n = {n}, {p} features, {count:,} products, {seeds} seeds; 4 features and "
        "their 6 products matter. Medians of processor seconds, and the most bytes allocated by a fit. *Pursuit* "
        f"is scikit-learn's `orthogonal_mp` on the matrix with all products, {whole / 1e6:.0f} MB.",
        ["heredity", "true terms found", "seconds", "peak, MB", "pursuit, s", "loss not above pursuit"],
    )
    for heredity in ("strong", "weak", "none"):
        model = TrimmedInteractions(10, heredity)
        fits = [timed(lambda X=X, y=y, m=model: (m.fit(X, y).term_names_, m.objective_)) for X, y, _ in data]
        found = sum(len(truth & set(fit[1][0])) for (*_, truth), fit in zip(data, fits, strict=True))
        lower = sum(fit[1][1] <= other * (1 + 1e-9) for fit, (_, other) in zip(fits, theirs, strict=True))
        peak = traced(lambda m=model: m.fit(*data[0][:2]))
        seconds, other = (np.median([one[0] for one in some]) for some in (fits, theirs))
        section.rows.append([
            heredity, f"{found} of {10 * seeds}", f"{seconds:.2f}", f"{peak / 1e6:.0f}", f"{other:.2f}",
            f"{lower} of {seeds}",
        ])  # fmt: skip
        section.bar(
            f"{heredity}: memory below half of the matrix with all products",
            f"{peak / 1e6:.0f} MB of {whole / 1e6:.0f} MB", peak < whole / 2,
        )  # fmt: skip
        if heredity == "none":
            section.bar("without a rule never above the pursuit", f"{seeds - lower} above", lower == seeds)
    return section
