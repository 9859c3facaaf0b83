"""What the benchmarks share: clocks, one BLAS thread, a design that counts passes, the report."""

from __future__ import annotations

import os
import platform
import sys
import time
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from trimreg.designs import Design

from .section import Section  # noqa: F401 - the others take it from here

PACKAGES = ("trimreg", "numpy", "scipy", "scikit-learn", "numba", "skglm", "abess", "celer", "gglasso")


def one_thread() -> None:
    """Every library on one thread: the peers have no other way, so ratios are of like with like."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)


def timed(function, repeats: int = 1):
    """``(least seconds, result)`` of so many calls: processor time, so that other work does not count."""
    best, result = np.inf, None
    for _ in range(repeats):
        start = time.process_time()
        result = function()
        best = min(best, time.process_time() - start)
    return best, result


def timed_in_turn(fits: dict, repeats: int) -> tuple[dict, dict]:
    """Least seconds and last results of several functions, called in turn.

    Interleaved, so that a burst of other load on the machine falls on all of them alike.
    """
    best, results = dict.fromkeys(fits, np.inf), {}
    for function in fits.values():
        function()  # compile
    for _ in range(repeats):
        for name, function in fits.items():
            seconds, results[name] = timed(function)
            best[name] = min(best[name], seconds)
    return best, results


def pass_seconds(X) -> float:
    """Seconds of one pass over X: the product X'r."""
    r = np.ones(X.shape[0], dtype=X.dtype)
    return timed(lambda: r @ X, 10)[0]


class CountingDesign(Design):
    """A design that adds up how much of X its operations read; ``passes`` is in units of X."""

    def __init__(self, inner, tally=None):
        self.inner = inner
        self.tally = {"passes": 0.0} if tally is None else tally
        self.shape, self.dtype = inner.shape, inner.dtype

    @property
    def passes(self) -> float:
        return self.tally["passes"]

    def _read(self, columns: float) -> None:
        self.tally["passes"] += columns / self.shape[1]

    def matvec(self, v):
        self._read(np.count_nonzero(v))
        return self.inner.matvec(v)

    def rmatvec(self, r):
        self._read(self.shape[1])
        return self.inner.rmatvec(r)

    def columns(self, W):
        self._read(len(W))
        return self.inner.columns(W)

    def gram(self, rows, d, cols):
        self._read(self.shape[1] if rows is None else len(set(rows) | set(cols)))
        return self.inner.gram(rows, d, cols)

    def column_norms(self, d):
        return self.inner.column_norms(d)

    def rescaled(self, factor):
        return CountingDesign(self.inner.rescaled(factor), self.tally)

    def original_units(self, theta):
        return self.inner.original_units(theta)


def machine() -> str:
    """Processor, cores, Python and the versions of what is compared."""
    name = platform.processor() or platform.machine()
    if sys.platform == "linux":
        with open("/proc/cpuinfo") as info:
            names = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
        name = names[0] if names else name
    versions = []
    for package in PACKAGES:
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            versions.append(f"{package} absent")
    return f"{name}, {os.cpu_count()} cores, Python {platform.python_version()}; " + ", ".join(versions)
