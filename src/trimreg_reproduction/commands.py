"""The commands ``trimreg reproduce`` and ``trimreg report``.

``trimreg.cli`` imports this module through an entry point, so it is imported here inside the functions.
"""

from __future__ import annotations

import textwrap
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from .spec import BadInput

STORE = "results.sqlite"
BACKENDS = ("joblib", "dask")
OutFolder = Annotated[Path, typer.Option(help="Folder of the results.", metavar="DIR")]


def reproduce(
    names: Annotated[
        list[str],
        typer.Argument(
            help="fig1 to fig4, figS, theory, beyond, gsm, bcm; with networks fig5, tab1, tab2, tab3, nets, "
            "penalty; or all.",
            metavar="NAME...",
        ),
    ],
    quick: Annotated[bool, typer.Option("--quick", help="Few replicates: a test of the pipeline.")] = False,
    full: Annotated[bool, typer.Option("--full", help="The size of the paper.")] = False,
    out: OutFolder = Path("results"),
    backend: Annotated[str, typer.Option(help="joblib (this machine) or dask (a cluster).")] = "joblib",
    scheduler: Annotated[
        str | None,
        typer.Option(
            help="Address of a Dask scheduler; by default Dask's workers run on this machine.",
            metavar="ADDRESS",
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(help="Processes on this machine; -1 is one per core. By default -1, or 1 on a GPU."),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            help="Where networks train: auto (a GPU if there is one), cpu, cuda, cuda:1, ... "
            "Figures 2 and 3 run Algorithm 1 in batches on a GPU that is named here."
        ),
    ] = "auto",
) -> None:
    """Run experiments of the paper, say which of its claims hold, and draw its figures.

    Every result goes to DIR/results.sqlite as soon as it is there: after an interrupt the same command
    continues. Tables go to DIR/NAME.parquet, figures to DIR/NAME.svg.

    \b
    Examples:
      trimreg reproduce all --quick
      trimreg reproduce fig2 fig3 --full
      trimreg reproduce fig2 --full --backend dask --scheduler tcp://10.0.0.1:8786
      trimreg reproduce fig5 tab1 tab2 tab3 --full --device cuda
      trimreg reproduce fig2 fig3 --full --device cuda
      trimreg report

    Exit status: 0 if all went well, 1 if cells failed, 2 for bad input, 130 if interrupted.
    """
    from trimreg.cli.common import exit_codes, say

    with exit_codes(lambda: "interrupted"):
        if quick == full:
            raise BadInput("say either --quick, to test the pipeline, or --full, for the size of the paper")
        if backend not in BACKENDS:
            raise BadInput(f"--backend must be one of {', '.join(BACKENDS)}; got {backend!r}")
        if scheduler is not None and backend != "dask":
            raise BadInput("--scheduler is for --backend dask; add that or drop --scheduler")
        if jobs == 0:
            raise BadInput("--jobs must be a number of processes, or -1 for one per core; got 0")
        _check_packages("experiments", "pandas", "pyarrow", "matplotlib")
        from .registry import expand_names, get_experiment, needs_torch

        names = expand_names(names)
        experiments = [get_experiment(name) for name in names]
        networks = any(map(needs_torch, names))
        jobs = _place(device, jobs, networks)
        batches = _batch_device(device, backend, experiments, networks)
        failed = _run(experiments, "quick" if quick else "full", out, backend, scheduler, jobs, batches)
    if failed:
        say(
            f"{failed} cells failed; the same command runs them again, trimreg report shows the others",
            err=True,
        )
        raise typer.Exit(1)


def _place(device, jobs, networks):
    """Set the device on which networks train; returns the number of processes."""
    import os

    if not networks:
        return -1 if jobs is None else jobs
    from .networks.device import VARIABLE, find_device

    found = find_device() if device == "auto" else find_device(device, "--device")
    os.environ[VARIABLE] = str(found)  # the processes of a run inherit it
    return (-1 if found.type == "cpu" else 1) if jobs is None else jobs


def _batch_device(device, backend, experiments, networks):
    """The device for batches, if the user names one; compiled loops are faster on a CPU."""
    if device == "auto":
        return None
    can = any(one.together is not None for one in experiments)
    if not can and not networks:
        raise BadInput(
            "--device is for networks (fig5, tab1, tab2, tab3, nets, penalty) and for batches of Algorithm 1 "
            "(fig2, fig3); name one of them or drop it"
        )
    _check_packages("networks", "torch", what="--device")
    from .networks.device import find_device

    found = find_device(device, "--device")
    if not can or found.type == "cpu":
        return None
    if backend != "joblib":
        if networks:
            return None  # the workers of a cluster train there, and run the rest on their CPUs
        raise BadInput("--device runs batches in processes of this machine; use --backend joblib or drop it")
    return str(found)


def _check_packages(extra, *packages, what="this command"):
    for package in packages:
        if find_spec(package) is None:
            raise BadInput(f"{what} needs {package}: pip install 'trimreg[{extra}]'")


def _run(experiments, size, out, backend, scheduler, jobs, device=None):
    """Run, judge, draw and export; returns the number of cells that failed."""
    from trimreg.cli.common import say

    from . import runner
    from .report import duration
    from .store import Store

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"cannot make the folder {out} ({error.strerror}); choose another with --out"
        ) from None
    with Store(out / STORE) as store:
        try:
            summary = runner.run(
                experiments, size, store, backend=backend, n_jobs=jobs, scheduler=scheduler, device=device,
                verbose=1,
            )  # fmt: skip
        except KeyboardInterrupt as stop:
            found = getattr(stop, "summary", None)
            how_many = "" if found is None else f"{found.done + found.skipped} cells are done and "
            say(f"interrupted; {how_many}stored in {store.path}; the same command continues", err=True)
            raise typer.Exit(130) from None
        say(
            f"{summary.done} cells run in {duration(summary.seconds)}, {summary.skipped} had results, "
            f"{summary.failed} failed"
        )
        _print_failures(store, experiments)
        found = [(one, *_judged(one, store.frame(one.name, size))) for one in experiments]
        files = _write(found, store, size, out)
    _print_verdicts(found, size)
    for file in files:
        say(f"wrote {file}")
    say(f"trimreg report{'' if out == Path('results') else f' --out {out}'} writes the page")
    return summary.failed


def _print_failures(store, experiments, most=3):
    from trimreg.cli.common import one_line, say

    for one in experiments:
        for cell, error in list(store.failed(one.name).items())[:most]:
            last = [line for line in error.strip().splitlines() if line.strip()][-1:]
            say(f"failed: {cell}: {one_line(' '.join(last))}", err=True)


def _judged(experiment, frame):
    """``(frame, verdict, problem)``; an interrupted run may have too few rows to judge."""
    from trimreg.cli.common import one_line

    if frame.empty:
        return frame, None, "no results"
    try:
        return frame, experiment.judge(frame.copy()), ""
    except Exception as error:
        return frame, None, f"cannot be judged from these results ({type(error).__name__}: {one_line(error)})"


def _write(found, store, size, out):
    from trimreg._files import write_atomically
    from trimreg.cli.common import one_line, picture_bytes, say

    files = []
    for experiment, frame, _, _ in found:
        if frame.empty:
            continue
        try:
            picture = picture_bytes(experiment.figure(frame.copy()), "svg")
        except Exception as error:  # an interrupted run may have too few rows to draw
            reason = f"{type(error).__name__}: {one_line(error)}"
            say(f"warning: no figure of {experiment.name} ({reason})", err=True)
            continue
        files.append(write_atomically(out / f"{experiment.name}.svg", picture))
    there = [experiment.name for experiment, frame, _, _ in found if not frame.empty]
    return files + store.export(out, there, size)


def _print_verdicts(found, size):
    from trimreg.cli.common import one_line, print_table, say

    rows = [[one.name, verdict.kind if verdict else "-", one.title] for one, _, verdict, _ in found]
    columns = [("name", "left"), ("verdict", "left"), ("experiment", "left")]
    print_table(f"Claims of the paper, at size {size}", columns, rows)
    for experiment, _, verdict, problem in found:
        text = f"{experiment.name}: {one_line(verdict.measured) if verdict else problem}"
        say(textwrap.fill(text, width=100, subsequent_indent="  "))
    if size == "quick":
        say("A quick run tests the pipeline; its verdicts are no evidence. Use --full for evidence.")


def report(
    out: OutFolder = Path("results"),
    page: Annotated[
        Path | None, typer.Option(help="The page to write; by default DIR/report.html.", metavar="FILE")
    ] = None,
) -> None:
    """Write the page of all experiments that were run: figures, claims, measurements, verdicts.

    The page is one file that needs no network. It is made from DIR/results.sqlite, which trimreg reproduce
    writes, or without that file from the tables DIR/NAME.parquet.

    \b
    Examples:
      trimreg report
      trimreg report --out results --page index.html

    Exit status: 0 if all went well, 2 for bad input, 130 if interrupted.
    """
    from trimreg.cli.common import check_outputs, exit_codes, say

    with exit_codes(lambda: "interrupted"):
        _check_packages("experiments", "pandas", "pyarrow", "matplotlib", "jinja2", "plotly")
        from .exported import Exported
        from .report import write_report
        from .store import Store

        path, tables = out / STORE, Exported(out)
        if not path.exists() and not tables.experiments():
            raise BadInput(f"there is no {path}; run trimreg reproduce all --quick --out {out} first")
        page = out / "report.html" if page is None else page
        check_outputs(page=page)
        if path.exists():
            with Store(path, read_only=True) as store:
                write_report(store, page)
        else:
            write_report(tables, page)
        say(f"wrote {page}")
