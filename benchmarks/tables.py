"""The command line on wide tables, against the same steps in a script."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from .common import Section

ROWS, H = 102, 5
SCRIPT = """
import sys, warnings
import pandas as pd
from trimreg import TrimmedLogisticRegression
warnings.simplefilter("ignore")
frame = getattr(pd, sys.argv[1])(sys.argv[2])
model = TrimmedLogisticRegression(h=5).fit(frame.drop(columns="kind").to_numpy(), frame["kind"].to_numpy())
"""


def write_tables(folder: Path, p: int) -> dict[str, Path]:
    """A table of p columns of numbers and a target of text, in both formats."""
    import pandas as pd

    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, p))
    frame = pd.DataFrame(X, columns=[f"gene{j}" for j in range(p)])
    frame["kind"] = np.where(X[:, 0] - X[:, 1] + rng.standard_normal(ROWS) > 0, "tumor", "normal")
    files = {"read_csv": folder / f"{p}.csv", "read_parquet": folder / f"{p}.parquet"}
    frame.to_csv(files["read_csv"], index=False)
    frame.to_parquet(files["read_parquet"])
    return files


def seconds(*arguments: str) -> float:
    """Processor time of a whole process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run(quick: bool = False) -> Section:
    sizes = (3150, 6300) if quick else (3150, 6300, 12_600, 25_200)
    repeats = 1 if quick else 5
    section = Section(
        "Tables of many columns",
        f"Processor seconds of whole processes, least of {repeats} taken in turn, one thread: `trimreg fit --h {H} --json` on a table "
        f"of {ROWS} rows with a target of text, and a *script* that only imports, reads by pandas and fits. *Read and fit* is "
        "the script without its imports.",
        [
            "file",
            "columns",
            "command",
            "script",
            "imports",
            "command / script",
            "(command - imports) / read and fit",
        ],
    )
    best: dict[tuple, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = {p: write_tables(folder, p) for p in sizes}
        imports = SCRIPT.partition("frame =")[0] + "import trimreg.solvers.mm.solver, sklearn.base"
        for _ in range(repeats + 1):  # the first one fills caches and counts too: the least is taken
            calls = {("imports",): ("-c", imports)}
            for p in sizes:
                for reader, file in files[p].items():
                    calls["script", reader, p] = ("-c", SCRIPT, reader, str(file))
                    command = ("-m", "trimreg", "fit", str(file), "--target", "kind", "--h", str(H))
                    calls["command", reader, p] = (*command, "--json", os.devnull)
            for key, arguments in calls.items():
                best[key] = min(best.get(key, np.inf), seconds(*arguments))
    floor = best["imports",]
    for reader in ("read_csv", "read_parquet"):
        for p in sizes:
            ours, script = best["command", reader, p], best["script", reader, p]
            ratios = ours / script, (ours - floor) / (script - floor)
            cells = [f"{value:.2f}" for value in (ours, script, floor, *ratios)]
            section.rows.append([reader.removeprefix("read_"), f"{p:,}", *cells])
        ours = [best["command", reader, p] for p in sizes]
        growth = float(np.polyfit(np.log(sizes), np.log(ours), 1)[0])
        steps = float(np.log((ours[-1] - floor) / (ours[0] - floor)) / np.log(sizes[-1] / sizes[0]))
        what = reader.removeprefix("read_")
        section.bar(
            f"{what}: exponent of the time in columns, without imports, at most 1", f"{steps:.2f}", steps <= 1
        )
        middle = sizes[min(2, len(sizes) - 1)]
        ratio = best["command", reader, middle] / best["script", reader, middle]
        section.bar(f"{what}, {middle:,} columns: at most 1.5 times the script", f"{ratio:.2f}", ratio <= 1.5)
        section.headline.append([
            f"`trimreg fit` on {what} of {ROWS} x {middle:,}, against a script that reads and fits",
            f"{ratio:.2f} of its time ({best['command', reader, middle]:.1f} s, of which imports {floor:.1f} s); exponent of growth "
            f"from {sizes[0]:,} to {sizes[-1]:,} columns {growth:.2f}",
        ])  # fmt: skip
    return section
