"""Fits on a file that is larger than the memory they may take: passes, seconds, peak memory, and their growth.

    python -m benchmarks.disk [--quick] [--scratch FOLDER]

writes 4 GB into the scratch folder (the system's by default) and deletes them at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

from .common import Section

H = 20
SLOWEST = 2.5  # times the passes times the seconds to read the file once
PASSES = 15
PATH_PASSES = 2
PEAK_MB = 1000
EXPONENT = 1.1
FULL = {"n": 2_000_000, "p": 500, "rows": (125_000, 250_000, 500_000, 1_000_000), "height": 100_000, "columns": (250, 500, 1000, 2000)}  # fmt: skip
QUICK = {"n": 20_000, "p": 100, "rows": (5000, 20_000), "height": 5000, "columns": (50, 200)}
LOSSES = {"least squares": "TrimmedLasso", "logistic": "TrimmedLogisticRegression"}
PATH = "path and EBIC"  # of least squares; its passes are compared with those of one fit


# -- the file ------------------------------------------------------------------------------------------------


def write_file(path: Path, n: int, p: int) -> None:
    """A float32 matrix of correlated columns about 0.5, block by block, and two targets beside it."""
    rng, other = np.random.default_rng(0), np.random.default_rng(1)
    support = np.sort(other.choice(p, H, replace=False))
    coef = other.choice([-1.0, 1.0], H) * other.uniform(0.1, 1.0, H)
    eta = np.empty(n)
    with open(path, "wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (n, p)}
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, n, 20_000):
            block = rng.standard_normal((min(20_000, n - start), p), dtype=np.float32)
            block[:, 1:] = 0.6 * block[:, :-1] + 0.8 * block[:, 1:]
            block += np.float32(0.5)
            block.tofile(file)
            eta[start : start + len(block)] = block[:, support] @ coef
        os.fsync(file.fileno())  # pages that are not written yet cannot be dropped
    eta -= eta.mean()
    np.savez(
        path.with_suffix(".npz"),
        regression=eta + 2 * other.standard_normal(n),
        classes=(other.random(n) < 1 / (1 + np.exp(-eta))).astype(np.int8),
        support=support,
    )


def drop_pages(path) -> None:
    """Ask the system to forget the file, so that the next read comes from the device."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_once(path, size: int, cold: bool) -> float:
    """Seconds to read the first ``size`` bytes, by blocks, and do nothing with them."""
    if cold:
        drop_pages(path)
    buffer, start = memoryview(bytearray(16 << 20)), time.perf_counter()
    with open(path, "rb", buffering=0) as file:
        while size > 0 and (count := file.readinto(buffer[:size])):
            size -= count
    return time.perf_counter() - start


# -- one fit, in a process of its own ------------------------------------------------------------------------


def peak_bytes() -> int:
    """Peak resident size of this process. ``ru_maxrss`` would be that of the parent, where that is larger."""
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def fit(path: str, rows: int, loss: str, cold: bool, repeats: int) -> dict:
    """Fit the first ``rows`` rows of the file; seconds and reads are medians, taken in turn."""
    import trimreg

    class Cold(trimreg.OnDisk):
        """Every pass comes from the device, as it does for a file that is larger than the machine's memory."""

        def _blocks(self, columns):
            drop_pages(path)
            yield from super()._blocks(columns)

    if loss == PATH:
        kind = partial(trimreg.TrimmedLassoCV, criterion="ebic")
    else:
        kind = partial(getattr(trimreg, LOSSES[loss]), h=H)
    warm_up(kind)
    with np.load(Path(path).with_suffix(".npz")) as beside:
        y = beside["classes" if loss == "logistic" else "regression"][:rows].astype(float)
        support = beside["support"]
    mapped = np.load(path, mmap_mode="r")
    before, seconds, reads = peak_bytes(), [], []
    for _ in range(repeats):
        X = (Cold if cold else trimreg.OnDisk)(mapped[:rows])
        reads.append(read_once(path, X.nbytes, cold))
        start = time.perf_counter()
        model = kind().fit(X, y)
        seconds.append(time.perf_counter() - start)
        reads.append(read_once(path, X.nbytes, cold))
    return {
        "seconds": float(np.median(seconds)),
        "read": float(np.median(reads)),
        "passes": X.passes,
        "peak": peak_bytes(),
        "before": before,
        "right": len(set(np.flatnonzero(np.ravel(model.coef_))) & set(support.tolist())),
        "stationarity": float(model.stationarity_),
        "fits": len(getattr(model, "hs_", "1")),
    }


def warm_up(kind) -> None:
    """A small fit on disk, so that nothing is compiled within the clock."""
    import trimreg

    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 40)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "small.npy")
        np.save(path, X)
        kind().fit(trimreg.OnDisk(path), (X[:, 0] + rng.standard_normal(200) > 0).astype(float))


def in_own_process(path, rows, loss, cold=False, repeats=1) -> dict:
    command = [
        sys.executable,
        "-m",
        "benchmarks.disk",
        "--fit",
        str(path),
        str(rows),
        loss,
        str(int(cold)),
        str(repeats),
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


# -- the report ----------------------------------------------------------------------------------------------


def run(quick: bool = False, scratch: str | None = None) -> Section:
    sizes = QUICK if quick else FULL
    needed = 4 * max(sizes["n"] * sizes["p"], sizes["height"] * max(sizes["columns"])) + 10**8
    folder = Path(tempfile.mkdtemp(prefix="trimreg-disk-", dir=scratch))
    try:
        if shutil.disk_usage(folder).free < 1.1 * needed:
            raise SystemExit(f"{folder} has too little space: the benchmark writes {needed / 1e9:.1f} GB")
        return measured(folder, sizes, quick)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def measured(folder: Path, sizes: dict, quick: bool) -> Section:
    n, p = sizes["n"], sizes["p"]
    section = Section(
        "On disk",
        f'`X = OnDisk("X.npy")`, {n:,} x {p} float32 ({4 * n * p / 1e9:.1f} GB), C order, `h={H}`, `alpha="exact"`, `memory` at '
        "its default of 512 MB, one BLAS thread and one thread that reads ahead; every fit in a process of its own. *From "
        "the device*: the system was asked to drop the file from its page cache before every pass and every reading, as if the "
        "file were larger than the machine's memory. *From the page cache*: it was not. *Reading once* is the median time to read the "
        "file by blocks of 16 MB, before and after each fit, in the same state. *Peak* is that of the whole process, libraries and all.",
        ["loss", "file read", "passes", "seconds", "reading once, s", "seconds / (passes x reading once)", "peak, MB", "before the fit, MB", "of the true columns"],
    )  # fmt: skip
    path = folder / "X.npy"
    write_file(path, n, p)
    for loss in LOSSES:
        for state in ("from the device", "from the page cache"):
            cold = state == "from the device"
            got = in_own_process(path, n, loss, cold, 1 if quick else 3)
            ratio = got["seconds"] / (got["passes"] * got["read"])
            section.rows.append([
                loss, state, f"{got['passes']:g}", f"{got['seconds']:.2f}", f"{got['read']:.3f}", f"{ratio:.2f}",
                f"{got['peak'] / 1e6:.0f}", f"{got['before'] / 1e6:.0f}", f"{got['right']} of {H}",
            ])  # fmt: skip
            if not cold:
                continue
            if loss == "least squares":
                one = got
                section.bar(f"{loss}: at most {PASSES} passes", f"{got['passes']:g}", got["passes"] <= PASSES)
            section.bar(
                f"{loss}: peak memory under 1 GB", f"{got['peak'] / 1e6:.0f} MB", got["peak"] < PEAK_MB * 1e6
            )
            asked = f"{loss}: at most {SLOWEST} times (passes x reading once), from the device"
            section.bar(asked, f"{ratio:.2f}", ratio <= SLOWEST)
            section.headline.append([
                f"{loss} on a file of {4 * n * p / 1e9:.1f} GB ({n:,} x {p} float32), h={H}",
                f"{got['passes']:g} passes, {got['seconds']:.0f} s, peak {got['peak'] / 1e6:.0f} MB",
            ])  # fmt: skip
    add_path(section, path, n, p, one)
    add_growth(section, folder, sizes, quick)
    return section


def add_path(section: Section, path: Path, n: int, p: int, one: dict) -> None:
    """A path of model sizes with its choice, against ``one`` fit of the same file."""
    many = in_own_process(path, n, PATH, cold=True)
    section.rows.append([
        f'path of {many["fits"]} sizes, `criterion="ebic"`', "from the device", f"{many['passes']:g}",
        f"{many['seconds']:.2f}", f"{many['read']:.3f}", f"{many['seconds'] / (many['passes'] * many['read']):.2f}",
        f"{many['peak'] / 1e6:.0f}", f"{many['before'] / 1e6:.0f}", f"{many['right']} of {H}",
    ])  # fmt: skip
    most = PATH_PASSES * one["passes"]
    section.bar(
        f"passes of a path of {many['fits']} sizes at most {PATH_PASSES} times those of one fit",
        f"{many['passes']:g} against {one['passes']:g}", many["passes"] <= most,
    )  # fmt: skip
    asked = f"path: peak memory under {PEAK_MB} MB"
    section.bar(asked, f"{many['peak'] / 1e6:.0f} MB", many["peak"] < PEAK_MB * 1e6)
    section.headline.append([
        f"a path of {many['fits']} sizes and its choice by EBIC on a file of {4 * n * p / 1e9:.1f} GB",
        f"{many['passes']:g} passes, {many['seconds']:.0f} s; one fit {one['passes']:g} passes, {one['seconds']:.0f} s",
    ])  # fmt: skip


def add_growth(section: Section, folder: Path, sizes: dict, quick: bool) -> None:
    """Seconds against n (rows of the large file) and against p (a file for each)."""
    repeats = 1 if quick else 3
    path, lines = folder / "X.npy", []
    for loss in LOSSES:
        seconds = [in_own_process(path, rows, loss, repeats=repeats)["seconds"] for rows in sizes["rows"]]
        lines.append((loss, "n", sizes["rows"], f"p={sizes['p']}", seconds))
    path.unlink()
    by_columns = {loss: [] for loss in LOSSES}
    for p in sizes["columns"]:
        path = folder / f"X{p}.npy"
        write_file(path, sizes["height"], p)
        for loss, seconds in by_columns.items():
            seconds.append(in_own_process(path, sizes["height"], loss, repeats=repeats)["seconds"])
        path.unlink()
    lines += [(loss, "p", sizes["columns"], f"n={sizes['height']}", by_columns[loss]) for loss in LOSSES]
    for loss, name, at, other, seconds in lines:
        exponent = float(np.polyfit(np.log(at), np.log(seconds), 1)[0])
        asked = f"{loss}: exponent of time in {name} at most {EXPONENT}"
        section.bar(asked, f"{exponent:.2f}", exponent <= EXPONENT)
        pairs = ", ".join(f"{size:,}: {taken:.2f}" for size, taken in zip(at, seconds, strict=True))
        section.remarks.append(f"Seconds of {loss} against {name} at {other}, from the page cache: {pairs}.")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.disk")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--scratch", help="the folder to write the file in")
    parser.add_argument("--fit", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fit:
        path, rows, loss, cold, repeats = arguments.fit
        print(json.dumps(fit(path, int(rows), loss, bool(int(cold)), int(repeats))))
        return
    print(run(arguments.quick, arguments.scratch).markdown())


if __name__ == "__main__":
    main()
