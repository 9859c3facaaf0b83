"""Cross-validation of many samples: TrimmedLassoCV against scikit-learn's LassoCV, seconds and peak memory."""

from __future__ import annotations

import numpy as np

from .common import Section, one_thread, timed
from .disk import peak_bytes

N, P, K = 1_000_000, 50, 10
REPEATS = 3


def run(quick: bool = False) -> Section:
    one_thread()
    from sklearn.linear_model import LassoCV

    from trimreg import TrimmedLassoCV

    n = N // 50 if quick else N
    X, y, support = data(n)
    fits = {"`TrimmedLassoCV()`": TrimmedLassoCV, "`sklearn.linear_model.LassoCV()`": LassoCV}
    seconds, peaks, models = {name: [] for name in fits}, {}, {}
    for kind in fits.values():
        kind().fit(X[:500], y[:500])
    for _ in range(REPEATS):
        for name, kind in fits.items():
            before = reset_peak()
            took, models[name] = timed(lambda kind=kind: kind().fit(X, y))
            seconds[name].append(took)
            peaks[name] = max(peaks.get(name, 0.0), (peak_bytes() - before) / 1e6)
    section = Section(
        "Cross-validation of many samples",
        f"{n:,} x {P} float64 in memory ({8e-6 * n * P:.0f} MB), columns correlated by 0.6, {K} of them matter, both with their defaults and 5 folds, "
        f"one thread, least of {REPEATS} fits taken in turn. *Peak* is resident memory above that before the fit.",
        ["fit", "seconds", "peak, MB", "variables kept", "true ones among them"],
    )
    for name, model in models.items():
        kept = np.flatnonzero(model.coef_)
        cells = [
            f"{min(seconds[name]):.2f}",
            f"{peaks[name]:.0f}",
            f"{kept.size}",
            f"{np.isin(support, kept).sum()} of {K}",
        ]
        section.rows.append([name, *cells])
    ratio = np.divide(*(min(taken) for taken in seconds.values()))
    section.bar("time at most that of LassoCV", f"{ratio:.2f}", ratio <= 1)
    ours, theirs = peaks.values()
    section.headline.append([
        f"choosing h by 5-fold cross-validation, n={n:,}, p={P}, against scikit-learn's LassoCV",
        f"{ratio:.2f} of its time, {ours:.0f} MB above X against {theirs:.0f} MB",
    ])  # fmt: skip
    return section


def data(n: int):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, P))
    X[:, 1:] = 0.6 * X[:, :-1] + 0.8 * X[:, 1:]
    support = np.sort(rng.choice(P, K, replace=False))
    coef = rng.choice([-1.0, 1.0], K) * rng.uniform(0.1, 1.0, K)
    return X, X[:, support] @ coef + 2 * rng.standard_normal(n), support


def reset_peak() -> int:
    """Forget the peak resident size of this process (on Linux), and return the present one."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return peak_bytes()
