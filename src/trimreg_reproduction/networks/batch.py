"""Train cells of network experiments in a limited time: ``python -m trimreg_reproduction.networks.batch``.

For a machine that is lent for minutes and has only torch and numpy. Cells are named by patterns, in the order
of their value. Several train at a time, each in a process; the rows of a finished cell are appended to a file
of JSON lines at once, and cells in that file are not trained again. No cell is begun that would end too late,
by an estimate of its cost and by the pace so far. :func:`add_lines` adds the rows to exported results.
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
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatch
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..spec import Cell
    from .training.trial import Trial

_START = time.monotonic()
_STARTUP = 20.0  # seconds of a cell that are not training
_GRACE = 10.0  # seconds for cells that end a little later than expected
_SHARING = "CUDA_MPS_PIPE_DIRECTORY"
#: Milliseconds of a step on one H200 by network and form: the first, and for each replica.
_STEP = {
    ("LeNet-300-100", "plain"): (0.12, 0.007), ("LeNet-300-100", "bayes"): (0.2, 0.02),
    ("LeNet-300-100", "l0"): (0.2, 0.02), ("LeNet-5", "plain"): (0.25, 0.03),
    ("LeNet-5", "bayes"): (0.3, 0.065), ("LeNet-5", "l0"): (0.3, 0.065),
}  # fmt: skip


def without_compiler() -> None:
    """Let the library be imported without numba: no compiled function is used in training."""
    try:
        import numba  # noqa: F401
    except ImportError:
        stub: Any = ModuleType("numba")
        stub.njit = lambda *given, **options: given[0] if given else lambda function: function
        sys.modules["numba"] = stub


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

    trial: Trial = _module(cell).trial_of(cell)
    recipe = for_method(trial.recipe, trial.method, trial.network)
    first, each = _STEP[trial.network, recipe.form]
    steps = recipe.epochs * (50_000 if trial.validation else 60_000) // recipe.batch
    return 1e-3 * steps * (first + each * len(trial.seeds))


def perform(name: str, effort: str) -> dict:
    """Train one cell; the line of its rows, or of the error."""
    start = time.monotonic()
    line: dict = {"cell": name}
    try:
        cell = all_cells(effort)[name]
        from trimreg import __version__

        run = _module(cell).run

        line |= {"experiment": cell.experiment, "parameters": dict(cell.parameters), "version": __version__}
        try:
            line["rows"] = run(cell)
        except Exception:
            if not any(word in traceback.format_exc() for word in ("inductor", "triton")):
                raise
            import torch

            torch._dynamo.config.disable = True  # a compiler of C may be missing
            line["rows"] = run(cell)
    except Exception:
        line["error"] = traceback.format_exc()
    now = time.strftime("%FT%T+00:00", time.gmtime())
    return line | {"seconds": time.monotonic() - start, "finished": now}


def finished_lines(path: Path) -> list[dict]:
    """The lines of a file that hold rows; a line that was cut off is left out."""
    found = []
    for text in path.read_text().splitlines() if path.exists() else ():
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue
        found += [line] if "rows" in line else []
    return found


def train_cells(
    names: Iterable[str], effort: str, path: Path, seconds: float, workers: int, say: Callable = print
) -> list[str]:
    """Train cells in this order as long as there is time; returns those that failed or were not begun."""
    cells = all_cells(effort)
    there = {line["cell"] for line in finished_lines(path)}
    waiting = {name: expected_seconds(cells[name]) for name in names if name not in there}
    failed: list[str] = []
    running: dict[str, tuple] = {}
    paces: list[float] = []
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not a fork: CUDA does not survive it.
    pool = get_context("spawn").Pool(workers, initializer=_begin)
    try:
        while waiting or running:
            now = time.monotonic() - _START
            pace = sorted(paces)[len(paces) // 2] if paces else 0.6 * workers
            for name, needed in list(waiting.items()):
                if len(running) >= workers or now + _STARTUP + pace * needed > seconds:
                    continue
                running[name] = pool.apply_async(perform, (name, effort)), now, waiting.pop(name)
                say(f"{now:6.1f} s: {name} begins, {needed:.0f} s if alone", flush=True)
            if not running or now > seconds + _GRACE:  # nothing left would end in time
                break
            for name, (result, begun, needed) in list(running.items()):
                if not result.ready():
                    continue
                del running[name]
                line = result.get()
                with path.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                if "error" in line:
                    failed.append(name)
                    say(line["error"], flush=True)
                else:
                    paces.append(max(now - begun - _STARTUP, 0.3 * needed) / needed)
                steps = [row["step_ms"] for row in line.get("rows", ())][:1]
                say(f"{now:6.1f} s: {name} ended after {now - begun:.1f} s, ms per step {steps}", flush=True)
            time.sleep(0.1)
    finally:
        pool.terminate()
    for name in running:
        say(f"{time.monotonic() - _START:6.1f} s: {name} was not finished", flush=True)
    return [*failed, *running, *waiting]


def _begin():
    without_compiler()
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "2")  # in each of several processes
    import torch

    torch.set_num_threads(1)


def share_device(folder: Path) -> bool:
    """Start NVIDIA's MPS, by which kernels of several processes run at the same time; False if it cannot.

    Small networks leave most of a device idle, and without it processes take turns.
    """
    os.environ[_SHARING], os.environ["CUDA_MPS_LOG_DIRECTORY"] = str(folder), str(folder)
    folder.mkdir(parents=True, exist_ok=True)
    quiet: Any = dict.fromkeys(
        ("stdin", "stdout", "stderr"), subprocess.DEVNULL
    )  # the daemon keeps them open
    probe = "import torch; x = torch.ones(9, device='cuda'); torch.cuda.synchronize(); assert x.sum() == 9"
    try:
        subprocess.run(["nvidia-cuda-mps-control", "-d"], check=True, timeout=10, **quiet)
        subprocess.run([sys.executable, "-c", probe], check=True, timeout=30, capture_output=True)
    except (OSError, subprocess.SubprocessError):
        stop_sharing()
        return False
    return True


def stop_sharing() -> None:
    """End the MPS that :func:`share_device` started, if any."""
    if _SHARING in os.environ:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(["nvidia-cuda-mps-control"], input=b"quit -t 1\n", timeout=10, capture_output=True)
        del os.environ[_SHARING], os.environ["CUDA_MPS_LOG_DIRECTORY"]


# -- results ----------------------------------------------------------------------------------------------


def add_lines(path: Path, folder: Path) -> list[Path]:
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
        mine = {line["cell"]: line for line in lines if line["experiment"] == name}
        order = {cell.name: place for place, cell in enumerate(get_experiment(name).cells("full"))}
        records = [
            line["parameters"] | row | {key: line[key.removeprefix("cell_")] for key in ORIGIN}
            for line in mine.values()
            for row in line["rows"]
        ]
        parts = [pandas.DataFrame.from_records(records)]
        if (folder / f"{name}.parquet").exists():
            before = Exported(folder).frame(name, "full", provenance=True)
            parts.insert(0, before[~before["cell"].isin(mine)])
        frame = pandas.concat(parts, ignore_index=True)
        frame = frame.iloc[frame["cell"].map(order).argsort(kind="stable")].reset_index(drop=True)
        picture = picture_bytes(get_experiment(name).figure(frame.drop(columns=list(ORIGIN))), "svg")
        written += [
            write_atomically(folder / f"{name}.parquet", parquet_bytes(frame)),
            write_atomically(folder / f"{name}.svg", picture),
        ]
    return written


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser("python -m trimreg_reproduction.networks.batch", description=__doc__)
    parser.add_argument("patterns", nargs="*", help="names of cells, such as 'penalty/*', in order of value")
    parser.add_argument("--to", type=Path, required=True, help="file of JSON lines", metavar="FILE")
    parser.add_argument("--seconds", type=float, default=400.0, help="begin nothing that would end later")
    parser.add_argument("--workers", type=int, default=6, help="cells at a time")
    parser.add_argument("--quick", action="store_true", help="the cells of --quick")
    parser.add_argument("--share", type=Path, help="share the GPU by MPS, whose files go here", metavar="DIR")
    parser.add_argument("--add", type=Path, help="train nothing; add the rows to this folder", metavar="DIR")
    options = parser.parse_args(arguments)
    if options.add:
        print(*add_lines(options.to, options.add), sep="\n")
        return
    without_compiler()
    effort = "quick" if options.quick else "full"
    known = all_cells(effort)
    names = [name for pattern in options.patterns for name in known if fnmatch(name, pattern)]
    names = list(dict.fromkeys(names))
    shared = options.share is not None and share_device(options.share)
    print(f"{time.monotonic() - _START:6.1f} s: {len(names)} cells, sharing: {shared}", flush=True)
    left = train_cells(names, effort, options.to, options.seconds, options.workers)
    if shared:
        stop_sharing()
        if not finished_lines(options.to):  # sharing does not work here
            left = train_cells(names, effort, options.to, options.seconds, options.workers)
    print(f"{time.monotonic() - _START:6.1f} s: left: {left}", flush=True)


if __name__ == "__main__":
    main()
