"""A campaign of adversarial calls: ``python -m tests.fuzz --cases 20000 --seed 0``, or ``--soak``.

Every result is checked by :mod:`tests.fuzz.reference`. A refusal must be a ValueError or TypeError whose
message names an argument. Prints the counts, and every finding with its seed; the exit code is 1 if there is
one.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .generator import case
from .reference import wrong

LIMIT = 20.0  # seconds of processor time for a call
NAMES = (
    "X y S h hs alpha alphas l2 l2s sample_weight penalty_factor penalty groups solver loss cv classes "
    "n_pairs n_outliers tol positive lower upper standardize fit_intercept theta0 max_iter scale "
    "epsilon support"
)
NAMED = re.compile(r"\b(" + "|".join(NAMES.split()) + r")\b|number of samples|n_samples")


class TooLong(BaseException):
    """The limit of time is over."""


def _alarm(signum, frame):
    raise TooLong


def verdict(seed: int, folder: Path) -> tuple[str, str, str]:
    """``(outcome, what was found, the call)`` for the case of this seed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy.matrix
        made = case(seed, folder)
    previous = signal.signal(signal.SIGVTALRM, _alarm)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT)
            try:
                result = made.call()
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except TooLong:
        return "slow", f"over {LIMIT:.0f} s", made.text
    except (ValueError, TypeError) as error:
        if NAMED.search(str(error)):
            return "refused", str(error)[:100], made.text
        return "unnamed refusal", f"{type(error).__name__}: {str(error)[:150]} {_where(error)}", made.text
    except Exception as error:
        return "crash", f"{type(error).__name__}: {str(error)[:150]} {_where(error)}", made.text
    finally:
        signal.signal(signal.SIGVTALRM, previous)
    if made.bad:
        return "bad input accepted", made.bad, made.text
    leaked = [str(w.message) for w in caught if issubclass(w.category, RuntimeWarning)]
    if leaked:
        return "leaked warning", f"{leaked[0]} ({len(leaked)})", made.text
    warned = any(issubclass(w.category, ConvergenceWarning) for w in caught)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            found = wrong(made, result, warned)
        except Exception as error:  # a result that the reference cannot read
            found = f"{type(error).__name__}: {error} {_where(error)}"
    return ("wrong", found, made.text) if found else ("right", "", made.text)


def _where(error):
    frames = [
        f
        for f in traceback.extract_tb(error.__traceback__)
        if "trimreg" in f.filename or "fuzz" in f.filename
    ]
    return f"[{Path(frames[-1].filename).name}:{frames[-1].lineno}]" if frames else ""


def campaign(first: int, count: int, say=print) -> Counter:
    """Run these cases; findings are said as they come."""
    counts: Counter = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            start = time.process_time()
            outcome, found, text = verdict(seed, Path(folder))
            if outcome == "slow":  # the first call compiles
                outcome, found, text = verdict(seed, Path(folder))
            counts[outcome] += 1
            spent = time.process_time() - start
            if outcome not in ("right", "refused"):
                say(f"seed {seed}: {outcome}: {found} | {text} ({spent:.1f} s)")
    return counts


def soak(fits: int = 10_000) -> dict[str, float]:
    """Many small fits in one process: growth of memory in MiB and of open files; threads; fork after fit."""
    from concurrent.futures import ThreadPoolExecutor

    import trimreg

    def one(seed):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((30, 8))
        y = X[:, 0] + rng.standard_normal(30)
        model = trimreg.TrimmedLasso if seed % 2 else trimreg.TrimmedLogisticRegression
        return model(h=2, l2=0.1).fit(X, y if seed % 2 else y > 0).coef_.tobytes()

    def size():
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20, len(os.listdir("/proc/self/fd"))

    for seed in range(fits // 10):
        one(seed)
    before = size()
    for seed in range(fits):
        one(seed)
    after = size()
    alone = [one(seed) for seed in range(64)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(one, range(64)))
    child = os.fork()
    if child == 0:
        os._exit(0 if one(1) == alone[1] else 1)
    status = os.waitpid(child, 0)[1]
    return {
        "memory grew by MiB": after[0] - before[0],
        "files grew by": after[1] - before[1],
        "threads differ in": sum(a != b for a, b in zip(alone, together, strict=True)),
        "fork failed": status,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="the first case")
    parser.add_argument("--show", type=int, help="run the case of this seed alone, with its traceback")
    parser.add_argument("--soak", action="store_true", help="10,000 fits in one process instead")
    arguments = parser.parse_args()
    if arguments.soak:
        print(soak())
        return
    if arguments.show is not None:
        warnings.simplefilter("error", RuntimeWarning)
        with tempfile.TemporaryDirectory() as folder:
            made = case(arguments.show, Path(folder))
            print(made.text, made.facts, made.call(), sep="\n")
        return
    counts = campaign(arguments.seed, arguments.cases, lambda line: print(line, flush=True))
    others = sum(counts.values()) - counts["right"] - counts["refused"]
    print(f"{counts['right']} right, {counts['refused']} refused, {others} else: {dict(counts)}")
    sys.exit(bool(others))


if __name__ == "__main__":
    main()
