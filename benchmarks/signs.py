"""Best subsets of nonnegative coefficients: what exchanges gain, and how far enumeration is below them."""

from __future__ import annotations

import time
from itertools import combinations

import numpy as np

from .common import Section, one_thread


def instance(seed: int, n: int, p: int, k: int):
    """Autoregressive columns (rho = 0.7), k positive coefficients between 0.5 and 1.5, unit noise."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    for j in range(1, p):
        X[:, j] = 0.7 * X[:, j - 1] + np.sqrt(1 - 0.7**2) * X[:, j]
    coef = np.zeros(p)
    coef[rng.choice(p, k, replace=False)] = rng.uniform(0.5, 1.5, k)
    return X, X @ coef + rng.standard_normal(n)


def least(X, y, k: int) -> float:
    """The smallest objective of all subsets, by nonnegative least squares on each."""
    from scipy.optimize import nnls

    fits = (nnls(X[:, list(S)], y)[1] for S in combinations(range(X.shape[1]), k))
    return 0.5 * min(fits) ** 2 / len(y)


def run(quick: bool = False) -> Section:
    from trimreg import TrimmedL1, solve

    one_thread()
    seeds = 10 if quick else 200
    section = Section(
        "Nonnegative coefficients",
        "Least squares with positive=True, autoregressive columns (rho = 0.7) and k positive coefficients: the default "
        'beside majorize-minimize without exchanges (effort="low"). How often its objective is lower, by how much where '
        "it is, how often it is higher, and processor seconds per fit, one thread.",
        ["n, p, k", "alpha", "seeds", "lower", "by, on average", "higher", "low, s", "default, s"],
    )
    for alpha in ("exact", 0.15):
        found, spent = [], []
        for seed in [0, *range(seeds)]:  # the first one also compiles
            X, y = instance(seed, 60, 200, 8)
            row, times = [], []
            for effort in ("low", "medium"):
                start = time.process_time()
                row.append(
                    solve(X, y, penalty=TrimmedL1(8), alpha=alpha, positive=True, effort=effort).objective
                )
                times.append(time.process_time() - start)
            found.append(row)
            spent.append(times)
        change = np.array(found[1:])[:, 1] / np.array(found[1:])[:, 0] - 1
        lower, higher = change < -1e-9, change > 1e-9
        by = -change[lower].mean() if lower.any() else 0.0
        before, after = np.mean(spent[1:], axis=0)
        section.rows.append([
            "60, 200, 8", str(alpha), seeds, f"{lower.mean():.1%}", f"{by:.1%}", f"{higher.mean():.1%}",
            f"{before:.4f}", f"{after:.4f}",
        ])  # fmt: skip
        section.bar(f"alpha = {alpha}: never higher", f"{higher.sum()} of {seeds}", not higher.any())
    tiny = [instance(seed, 30, 12, 3) for seed in range(seeds)]
    best = sum(
        solve(X, y, penalty=TrimmedL1(3), alpha="exact", positive=True).objective
        <= least(X, y, 3) * (1 + 1e-9)
        for X, y in tiny
    )
    section.bar("the best of all subsets, n = 30, p = 12, k = 3", f"{best} of {seeds}", best == seeds)
    return section
