"""Train cells of network experiments in a limited time: ``python -m trimreg_reproduction.networks.batch``.

For a machine that is lent for minutes and has only torch and numpy. Cells are named by patterns, in the order
of their value. Several train at a time, each in a process; the rows of a finished cell are appended to a file
of JSON lines at once, and cells in that file are not trained again. No cell begins that would end too late,
by an estimate of its cost and by the pace so far. ``--add`` adds the rows to exported results.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatch
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..spec import Cell

_START = time.monotonic()
_STARTUP = 20.0  # seconds of a cell that are not training
_GRACE = 10.0  # seconds for cells that end a little later than expected
#: Milliseconds of a step on one H200, plain and stochastic: the first, and for each replica.
_STEP = {
    "LeNet-300-100": ((0.12, 0.007), (0.2, 0.02)),
    "LeNet-5": ((0.25, 0.03), (0.3, 0.065)),
}  # fmt: skip


def say(*words: Any) -> None:
    """Print with the seconds since the start."""
    print(f"{time.monotonic() - _START:6.1f} s:", *words, flush=True)


def prepare() -> None:
    """Let this process import the library without numba, whose compiled functions no training calls."""
    try:
        import numba  # noqa: F401
    except ImportError:
        stub: Any = ModuleType("numba")
        stub.njit = lambda *given, **options: given[0] if given else lambda function: function
        sys.modules["numba"] = stub
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "2")  # in each of several processes
    import torch

    torch.set_num_threads(1)


def all_cells(effort: str) -> dict[str, Cell]:
    """The cells of tables 1 to 3, of the networks beyond them and of the penalty, by name."""
    from . import nets, penalty, tables

    experiments = (penalty.EXPERIMENT, tables.TAB1, tables.TAB2, tables.TAB3, nets.EXPERIMENT)
    return {cell.name: cell for experiment in experiments for cell in experiment.cells(effort)}


def _module(cell: Cell) -> Any:
    from . import nets, penalty, tables

    return {"nets": nets, "penalty": penalty}.get(cell.experiment, tables)


def expected_seconds(cell: Cell) -> float:
    """About how long a cell trains on an H200, if alone."""
    from .training.recipes import for_method

    trial = _module(cell).trial_of(cell)
    recipe = for_method(trial.recipe, trial.method, trial.network)
    first, each = _STEP[trial.network][recipe.form != "plain"]
    steps = recipe.epochs * (50_000 if trial.validation else 60_000) // recipe.batch
    return 1e-3 * steps * (first + each * len(trial.seeds))


def perform(name: str, effort: str) -> dict:
    """Train one cell; the line of its rows, or of the error."""
    from trimreg import __version__

    start = time.monotonic()
    cell = all_cells(effort)[name]
    line = {"cell": name, "experiment": cell.experiment, "parameters": dict(cell.parameters)}
    try:
        line["rows"] = _module(cell).run(cell)
    except Exception:
        line["error"] = traceback.format_exc()
    ended = time.strftime("%FT%T+00:00", time.gmtime())
    return line | {"seconds": time.monotonic() - start, "finished": ended, "version": __version__}


def finished_lines(path: Path) -> list[dict]:
    """The lines of a file that hold rows; a line that was cut off is left out."""
    found = []
    for text in path.read_text().splitlines() if path.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):
            found.append(json.loads(text))
    return [line for line in found if "rows" in line]


def train_cells(names: Iterable[str], effort: str, path: Path, seconds: float, workers: int) -> list[str]:
    """Train cells in this order as long as there is time; returns those without rows."""
    cells, there = all_cells(effort), {line["cell"] for line in finished_lines(path)}
    waiting = {name: expected_seconds(cells[name]) for name in names if name not in there}
    left, spent, needed_so_far = list(waiting), 12.0 * workers, 20.0  # until some have ended
    running: dict[str, tuple] = {}
    pool = get_context("spawn").Pool(workers, initializer=prepare)  # CUDA does not survive a fork
    try:
        while True:
            now = time.monotonic() - _START
            pace = spent / needed_so_far
            for name, needed in list(waiting.items()):
                if len(running) < workers and now + _STARTUP + pace * needed <= seconds:
                    running[name] = pool.apply_async(perform, (name, effort)), now, waiting.pop(name)
                    say(name, "begins")
            if not running or now > seconds + _GRACE:
                return left
            for name, (result, begun, needed) in list(running.items()):
                if result.ready():
                    del running[name]
                    line = result.get()
                    with path.open("a") as file:
                        file.write(json.dumps(line) + "\n")
                    say(name, line.get("error", f"ended after {now - begun:.1f} s"))
                    if "rows" in line:
                        left.remove(name)
                        spent += max(now - begun - _STARTUP, 0.3 * needed)
                        needed_so_far += needed
            time.sleep(0.1)
    finally:
        pool.terminate()


@contextlib.contextmanager
def shared_device(folder: Path | None) -> Iterator[None]:
    """NVIDIA's MPS while the context lasts, with its files in ``folder``, if it works on this machine.

    It lets kernels of several processes run at the same time; otherwise they take turns, and small networks
    leave most of a device idle.
    """
    if folder is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    names = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
    os.environ.update(dict.fromkeys(names, str(folder)))
    quiet: Any = dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)  # the daemon keeps what it is given
    probe = "import torch; assert torch.ones(9, device='cuda').sum().item() == 9"
    try:
        control = ["nvidia-cuda-mps-control", "-d"]
        subprocess.run(control, check=True, timeout=10, stdin=subprocess.DEVNULL, **quiet)
        subprocess.run([sys.executable, "-c", probe], check=True, timeout=30, **quiet)
    except (OSError, subprocess.SubprocessError):
        for name in names:
            del os.environ[name]
        say("the device cannot be shared")
    try:
        yield
    finally:
        if names[0] in os.environ:
            subprocess.run(["nvidia-cuda-mps-control"], input=b"quit -t 1\n", timeout=10, **quiet)


def add_rows(path: Path, folder: Path) -> list[Path]:
    """Add the rows of a file to the tables ``NAME.parquet`` of a folder, and draw its figures again."""
    import pandas

    from trimreg._files import write_atomically
    from trimreg.cli.common import picture_bytes

    from ..exported import Exported
    from ..registry import get_experiment
    from ..store import ORIGIN, parquet_bytes

    written = []
    lines = finished_lines(path)
    for name in dict.fromkeys(line["experiment"] for line in lines):
        experiment = get_experiment(name)
        mine = {line["cell"]: line for line in lines if line["experiment"] == name}
        records = [
            line["parameters"] | row | {key: line[key.removeprefix("cell_")] for key in ORIGIN}
            for line in mine.values()
            for row in line["rows"]
        ]
        frame = pandas.DataFrame.from_records(records)
        if (folder / f"{name}.parquet").exists():
            before = Exported(folder).frame(name, "full", provenance=True)
            frame = pandas.concat([before[~before["cell"].isin(mine)], frame], ignore_index=True)
        order = {cell.name: place for place, cell in enumerate(experiment.cells("full"))}
        places = frame["cell"].map(order).fillna(len(order)).to_numpy()  # cells of another size come last
        frame = frame.iloc[places.argsort(kind="stable")].reset_index(drop=True)
        picture = picture_bytes(experiment.figure(frame.drop(columns=list(ORIGIN))), "svg")
        for file, contents in ((f"{name}.parquet", parquet_bytes(frame)), (f"{name}.svg", picture)):
            written.append(write_atomically(folder / file, contents))
    return written


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser("python -m trimreg_reproduction.networks.batch", description=__doc__)
    parser.add_argument("patterns", nargs="*", help="names of cells, such as 'penalty/*', in order of value")
    parser.add_argument("--to", type=Path, required=True, help="file of JSON lines", metavar="FILE")
    parser.add_argument("--seconds", type=float, default=400.0, help="begin nothing that would end later")
    parser.add_argument("--workers", type=int, default=8, help="cells at a time")
    parser.add_argument("--quick", action="store_true", help="the cells of --quick")
    parser.add_argument("--share", type=Path, help="share the GPU by MPS, whose files go here", metavar="DIR")
    parser.add_argument("--add", type=Path, help="train nothing; add the rows to this folder", metavar="DIR")
    options = parser.parse_args(arguments)
    if options.add:
        print(*add_rows(options.to, options.add), sep="\n")
        return
    prepare()
    effort = "quick" if options.quick else "full"
    known = all_cells(effort)
    names = dict.fromkeys(name for pattern in options.patterns for name in known if fnmatch(name, pattern))
    options.to.parent.mkdir(parents=True, exist_ok=True)
    with shared_device(options.share):
        left = train_cells(names, effort, options.to, options.seconds, options.workers)
    say("left:", *left)


if __name__ == "__main__":
    main()
