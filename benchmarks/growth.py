"""Time and memory against n and p."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np

from .common import Section

H = 20
FIT = """
import json, resource, sys, time
import numpy as np
from trimreg import TrimmedLasso
from trimreg.datasets import make_ar1
n, p, h, repeats = map(int, sys.argv[1:])
small = make_ar1(50, 60, 5, rho=0.5, snr=5, random_state=0)
TrimmedLasso(h=h).fit(small.X, small.y)
rng = np.random.default_rng(0)
X = np.empty((n, p), order="F")
for j in range(p):  # column by column: making the data must not take more memory than holding them
    X[:, j] = rng.standard_normal(n)
y = X[:, :h] @ np.ones(h) + np.sqrt(h / 5) * rng.standard_normal(n)
start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
times = []
for _ in range(repeats):
    begin = time.process_time()
    model = TrimmedLasso(h=h).fit(X, y)
    times.append(time.process_time() - begin)
end = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"seconds": min(times), "bytes": X.nbytes, "extra": (end - start) * 1024}))
"""


def measure(n: int, p: int, repeats: int) -> dict:
    """One size in its own process, so that its peak memory is its own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", FIT, str(n), str(p), str(H), str(repeats)]
    output = subprocess.run(command, check=True, env=environment, capture_output=True, text=True).stdout
    return json.loads(output)


def run(quick: bool = False) -> Section:
    steps = (1000, 3000) if quick else (1000, 3000, 10_000, 30_000, 100_000)
    section = Section(
        "Growth",
        f"`TrimmedLasso(h={H})`, Gaussian design, k={H}, SNR 5, float64, Fortran order, one BLAS thread, processor time, least of 3 "
        "(1 for the largest); each size in its own process. *Working memory* is the rise of the peak resident size during "
        "the fit; the working set that it is held against is its Gram columns, p x 2h, and its columns, n x 4h.",
        ["n", "p", "seconds", "X, MB", "working memory, MB", "(X + working memory) / (X + working set)"],
    )
    exponents = {}
    for name, sizes in (
        ("p", [(500, p) for p in steps]),
        ("n", [(n, 500) for n in steps]),
    ):
        seconds, worst = [], 0.0
        for n, p in sizes:
            got = measure(n, p, 1 if quick or n * p > 2e7 else 3)
            seconds.append(got["seconds"])
            working_set = 8 * (2 * H * p + 4 * H * n)
            share = (got["bytes"] + got["extra"]) / (got["bytes"] + working_set)
            if got["bytes"] >= 5e7:  # below that the peak is that of the libraries' own buffers
                worst = max(worst, share)
            section.rows.append([
                n, p, f"{got['seconds']:.4f}", f"{got['bytes'] / 1e6:.0f}", f"{got['extra'] / 1e6:.1f}", f"{share:.2f}",
            ])  # fmt: skip
        exponent = exponents[name] = float(np.polyfit(np.log(steps), np.log(seconds), 1)[0])
        section.bar(f"fitted exponent of time in {name}, printed", f"{exponent:.2f}", True)
        section.bar(
            f"peak memory over {name}: at most 1.2 times X plus the working set", f"{worst:.2f}", worst <= 1.2
        )
    section.remarks.append(
        "The bars on memory are for X of 50 MB and more: below that the buffers of the libraries, a few megabytes, are the "
        "larger part of the peak."
    )
    section.headline.append([
        "growth of time, p or n from 1e3 to 1e5 with the other at 500",
        f"exponents {exponents['p']:.2f} in p, {exponents['n']:.2f} in n",
    ])  # fmt: skip
    return section
