"""Best subsets of a path against single fits of the same sizes: the lower objective of the two, and the time of both."""

from __future__ import annotations

import time

import numpy as np

from .common import Section, one_thread
from .prediction import data_of

SIZES = range(1, 21)
REAL = ("diabetes", "eye", "wheat", "colon", "riboflavin")


def run(quick: bool = False) -> Section:
    one_thread()
    sizes = SIZES[:6] if quick else SIZES
    section = Section(
        "Paths and single fits",
        f'Best subsets of {sizes[0]} to {sizes[-1]} columns, effort "medium": `trimmed_path(X, y, hs, "exact")` against '
        "`TrimmedLasso(h).fit(X, y)` for each h. *Spectra*: 60 smooth curves at 401 points, 25 bumps. *Blocks*: 72 samples of 7,129 columns in blocks of "
        "20, a class as target. Classes are fitted by least squares. Times are processor time on one thread.",
        ["data", "n x p", "path / single, largest", "single / path, largest", "single / path, geometric mean", "seconds, path / singles"],
    )  # fmt: skip
    worst = {"path": 1.0, "single": 1.0}
    for name in ("spectra",) if quick else (*REAL, "spectra", "blocks"):
        try:
            X, y = {"spectra": spectra, "blocks": blocks}.get(name, lambda name=name: data_of(name))()
        except FileNotFoundError as missing:
            section.remarks.append(f"Skipped: {missing}")
            continue
        ratio, seconds = compared(np.asfortranarray(X), y, sizes)
        mean = np.exp(-np.log(ratio).mean())
        values = [f"{value:.3f}" for value in (ratio.max(), (1 / ratio).max(), mean, seconds)]
        section.rows.append([name, f"{X.shape[0]} x {X.shape[1]}", *values])
        worst = {"path": max(worst["path"], ratio.max()), "single": max(worst["single"], (1 / ratio).max())}
    path, single = worst["path"], worst["single"]
    section.bar("a path is never above a single fit", f"{path:.6f} at most", path <= 1 + 1e-6)
    section.bar("a single fit is at most 1.05 of the path", f"{single:.3f} at most", single <= 1.05)
    return section


def compared(X, y, sizes):
    """Objectives path / single for every size, and seconds path / singles."""
    from trimreg import TrimmedLasso, trimmed_path

    trimmed_path(X[:20, :8], y[:20], [1, 2], "exact")  # compile
    TrimmedLasso(2).fit(X[:20, :8], y[:20])
    start = time.process_time()
    path = trimmed_path(X, y, sizes, "exact").objectives[:, 0]
    middle = time.process_time()
    singles = np.array([TrimmedLasso(h).fit(X, y).objective_ for h in sizes])
    return path / singles, (middle - start) / (time.process_time() - middle)


def spectra(n=60, p=401, bumps=25):
    rng = np.random.default_rng(0)
    at, center, width = np.linspace(0, 1, p), rng.uniform(0, 1, bumps), rng.uniform(0.03, 0.12, bumps)
    shapes = np.exp(-0.5 * ((at - center[:, None]) / width[:, None]) ** 2)
    heights = 0.3 * np.cumsum(rng.standard_normal((n, bumps)) * rng.exponential(1, bumps), axis=1)
    heights += 0.5 * rng.standard_normal((n, bumps))
    X = heights @ shapes + 1e-3 * rng.standard_normal((n, p))
    return X, heights[:, :5] @ rng.standard_normal(5) + 0.1 * rng.standard_normal(n)


def blocks(n=72, p=7129, size=20):
    rng = np.random.default_rng(1)
    shared = np.repeat(rng.standard_normal((n, p // size + 1)), size, axis=1)[:, :p]
    X = 0.8 * shared + 0.6 * rng.standard_normal((n, p))
    signal = X[:, : 20 * size : size] @ rng.standard_normal(20)
    return X, (signal + rng.standard_normal(n) > 0).astype(float)
