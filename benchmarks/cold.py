"""The first fit of a fresh process, with and without compiled code on disk."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile

from .common import Section

DATA = "import numpy as np; r = np.random.default_rng(0); X = r.standard_normal((200, 300)); y = X[:, 0] + r.standard_normal(200)\n"
FITS = {
    "trimreg TrimmedLasso(h=5)": "from trimreg import TrimmedLasso; TrimmedLasso(h=5).fit(X, y)",
    "trimreg TrimmedLasso(h=5, alpha=0.1)": "from trimreg import TrimmedLasso; TrimmedLasso(h=5, alpha=0.1).fit(X, y)",
    "skglm MCPRegression": "from skglm import MCPRegression; MCPRegression(alpha=0.1).fit(X, y)",
    "scikit-learn Lasso": "from sklearn.linear_model import Lasso; Lasso(alpha=0.1).fit(X, y)",
    "the same, and one compiled function of numba": (
        "from sklearn.linear_model import Lasso; Lasso(alpha=0.1).fit(X, y); from trimreg.solvers.mm.kernels import submatrix; "
        "submatrix(X, np.arange(2), np.arange(2))"
    ),
}


def _seconds(code: str, cache: str) -> float:
    environment = os.environ | {"NUMBA_CACHE_DIR": cache, "OMP_NUM_THREADS": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-W", "ignore", "-c", DATA + code], check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run(quick: bool = False) -> Section:
    repeats = 1 if quick else 5
    section = Section(
        "Cold start",
        "Processor seconds of a whole process: interpreter, imports, one fit (n=200, p=300). *First*: empty numba "
        f"cache, once; *second*: the cache filled, least of {repeats} taken in turn. One thread.",
        ["fit", "first process", "second process"],
    )
    first, second = {}, dict.fromkeys(FITS, float("inf"))
    with tempfile.TemporaryDirectory() as cache:
        for name, code in FITS.items():
            first[name] = _seconds(code, f"{cache}/{len(first)}")
        for _ in range(repeats):  # in turn, so that a burst of other load falls on all alike
            for place, (name, code) in enumerate(FITS.items()):
                second[name] = min(second[name], _seconds(code, f"{cache}/{place}"))
    section.rows = [[name, f"{first[name]:.2f}", f"{second[name]:.2f}"] for name in FITS]
    ours, soft, skglm, lasso, floor = FITS
    section.headline.append([
        "first fit of a fresh process, nothing compiled",
        f"{first[ours]:.1f} s; skglm {first[skglm]:.1f} s; compiled code on disk: {second[ours]:.1f} s, "
        f"scikit-learn's Lasso {second[lasso]:.1f} s",
    ])  # fmt: skip
    ratio = first[ours] / first[skglm]
    section.bar("first process at most a quarter of skglm's", f"{ratio:.2f}", ratio <= 0.25)
    ratio = second[ours] / second[lasso]
    section.bar("second process at most 1.2 times scikit-learn Lasso's", f"{ratio:.2f}", ratio <= 1.2)
    ratio = second[soft] / second[lasso]
    section.bar("the same for a soft alpha", f"{ratio:.2f}", ratio <= 1.2)
    section.remarks.append(
        f"The import of numba and the first call of any function that it compiled take {second[floor] - second[lasso]:.2f} s: "
        f"{second[floor] / second[lasso]:.2f} times scikit-learn's Lasso, before anything is fitted."
    )
    return section
