"""Run the benchmarks, each in its own process, and write ``benchmarks/RESULTS.md`` and the README's table.

    python -m benchmarks [--quick] [--write] [NAME ...]

With names only these are run and printed. The files are left alone unless ``--write`` is given, which replaces
the parts that belong to these names.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from .common import Section, machine

NAMES = (
    "objective", "subset", "hard", "soft", "lasso", "surface", "agreement", "crossval", "tall", "glm", "groups", "stress",
    "prediction", "realdata", "certify", "glasso", "graphs", "correlated", "sachs", "cold", "tables", "growth", "networks", "channels", "network_latency", "default_schedule", "disk", "dask_rows",
    "batched", "gpu", "inference", "minimize", "signs", "interactions",
)  # fmt: skip
FRONT = ("objective", "subset", "glasso", "disk", "gpu")  # their first headlines stand in the README
RESULTS = Path(__file__).parent / "RESULTS.md"
README = Path(__file__).parent.parent / "README.md"
MARKS = ("<!-- written by make bench -->", "<!-- end -->")
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
}


def in_own_process(name: str, quick: bool) -> Section:
    command = [sys.executable, "-m", "benchmarks", "--child", name] + (["--quick"] if quick else [])
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=os.environ | ONE_THREAD)
    if done.returncode:
        raise SystemExit(f"benchmark {name} failed with exit code {done.returncode}")
    return Section(**json.loads(done.stdout.splitlines()[-1]))


def write(path: Path, text: str) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text)
    temporary.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--write", action="store_true", help="replace the parts of these names in the files")
    parser.add_argument("--child", choices=NAMES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(import_module(f"benchmarks.{arguments.child}").run(arguments.quick).dump())
        return
    names = arguments.names or NAMES
    sections = {}
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        sections[name] = in_own_process(name, arguments.quick)
        print(sections[name].markdown(), flush=True)
    bars = [bar for section in sections.values() for bar in section.bars]
    print(f"{sum(bar[2] for bar in bars)} of {len(bars)} bars met")
    if arguments.quick or (arguments.names and not arguments.write):
        return
    page = [section.markdown() for section in sections.values()]
    rows = [f"| {against} | {got} |" for section in sections.values() for against, got in section.headline]
    front = [
        "| " + " | ".join(section.headline[0]) + " |" for name, section in sections.items() if name in FRONT
    ]
    if arguments.names:
        page = replaced(re.split(r"(?m)^(?=## )", RESULTS.read_text())[1:], page, "\n")
        rows, front = replaced(table_of(RESULTS), rows, " | "), replaced(table_of(README), front, " | ")
    write_results(page)
    for path, table in ((RESULTS, rows), (README, front)):
        write_table(path, table)


def table_of(path: Path) -> list[str]:
    """The rows of the table between the marks of a file."""
    return path.read_text().partition(MARKS[0])[2].partition(MARKS[1])[0].strip().splitlines()[2:]


def replaced(old: list[str], new: list[str], end: str) -> list[str]:
    """The old parts, with the new ones in the place of those that begin alike up to ``end``; others come last.

    Examples
    --------
    >>> from benchmarks.__main__ import replaced
    >>> replaced(["a: 1", "b: 2"], ["c: 3", "a: 4"], ": ")
    ['a: 4', 'b: 2', 'c: 3']
    """

    def name(part):
        return part[: part.index(end)]

    parts = {name(part): part for part in old}
    parts.update((name(part), part) for part in new)
    return list(parts.values())


def write_results(page: list[str]) -> None:
    marks = re.findall(r"(?m)\| (yes|\*\*no\*\*) \|$", "\n".join(page))
    head = [
        "# Benchmarks\n",
        "Written by `make bench`. Both sides of every ratio ran in one process, on one thread. Seconds of fits in memory are processor time.\n",
        f"{machine()}\n",
        f"{marks.count('yes')} of {len(marks)} bars met. In short:\n",
        "\n".join(MARKS) + "\n",
    ]
    write(RESULTS, "\n".join([*head, *(part.rstrip("\n") + "\n" for part in page)]))


def write_table(path: Path, rows: list[str]) -> None:
    """Replace the table between the marks of a file."""
    before, _, rest = path.read_text().partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    table = "\n".join(["| against | got |", "|---|---|", *rows])
    write(path, f"{before}{MARKS[0]}\n{table}\n{MARKS[1]}{after}")


if __name__ == "__main__":
    main()
