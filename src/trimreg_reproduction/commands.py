"""``trimreg reproduce`` and ``trimreg report``: the figures of the paper, run and written up."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Annotated

import typer

from trimreg.cli.common import BadInput, check_choice, exit_codes, one_line, print_table, say

STORE = "results.sqlite"
BACKENDS = ("joblib", "dask")
OutFolder = Annotated[Path, typer.Option(help="Folder of the results.", metavar="DIR")]


def reproduce(
    names: Annotated[
        list[str],
        typer.Argument(
            help="fig1 to fig4, figS, theory, beyond; of networks fig5, tab1, tab2, tab3, nets; or all.",
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
            help="Address of a Dask scheduler; else Dask's workers are on this machine.", metavar="ADDRESS"
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(help="Processes on this machine; -1 is one a core. By default -1, or 1 on a GPU."),
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

    Every result is kept in DIR/results.sqlite as soon as it is there: after an interrupt the same command
    goes on where it was. Tables go to DIR/NAME.parquet, figures to DIR/NAME.svg.

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
    from trimreg.reports.demo import BadInput as Refused

    with exit_codes(Refused):
        if quick == full:
            raise BadInput("say either --quick, to test the pipeline, or --full, for the size of the paper")
        check_choice("--backend", backend, BACKENDS)
        if scheduler is not None and backend != "dask":
            raise BadInput("--scheduler is for --backend dask; add that or drop --scheduler")
        if jobs == 0:
            raise BadInput("--jobs must be a number of processes, or -1 for one a core; got 0")
        _check_packages()
        from .registry import expand_names, get_experiment, needs_torch

        names = expand_names(names)
        experiments = [get_experiment(name) for name in names]
        jobs = _place(device, jobs, any(map(needs_torch, names)))
        batches = _batch_device(device, backend, experiments, any(map(needs_torch, names)))
        failed = _run(experiments, "quick" if quick else "full", out, backend, scheduler, jobs, batches)
    if failed:
        say(
            f"{failed} cells failed; the same command runs them again, trimreg report shows the rest",
            err=True,
        )
        raise typer.Exit(1)


def _place(device, jobs, networks):
    """Tell the experiments of networks where to train; the number of processes."""
    import os

    if not networks:
        return -1 if jobs is None else jobs
    from .networks.device import VARIABLE
    from .networks.device import device as find_device

    found = find_device() if device == "auto" else find_device(device, "--device")
    os.environ[VARIABLE] = str(found)  # the processes of a run inherit it
    on_gpu = found.type != "cpu"
    return (1 if on_gpu else -1) if jobs is None else jobs


def _batch_device(device, backend, experiments, networks):
    """Where cells are run in batches: a device that is named and no CPU, whose compiled loops are faster."""
    if device == "auto":
        return None
    can = any(one.together is not None for one in experiments)
    if not can and not networks:
        raise BadInput(
            "--device is for networks (fig5, tab1, tab2, tab3, nets) and for batches of Algorithm 1 (fig2, "
            "fig3); name one of them or drop it"
        )
    try:
        from .networks.device import device as find_device
    except ImportError:
        raise BadInput("--device needs PyTorch: pip install 'trimreg[networks]'") from None
    found = find_device(device, "--device")
    if not can or found.type == "cpu":
        return None
    if backend != "joblib":
        if networks:
            return None  # the workers of a cluster train there, and run the rest on their CPUs
        raise BadInput("--device runs batches in processes of this machine; use --backend joblib or drop it")
    return str(found)


def _check_packages():
    for package, extra in (("pandas", "experiments"), ("pyarrow", "experiments"), ("matplotlib", "plot")):
        try:
            __import__(package)
        except ImportError:
            raise BadInput(f"experiments need {package}: pip install 'trimreg[{extra}]'") from None


def _run(experiments, size, out, backend, scheduler, jobs, device=None):
    """Run, judge, draw and export; returns the number of cells that failed."""
    from . import runner
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
                experiments,
                size,
                store,
                backend=backend,
                n_jobs=jobs,
                scheduler=scheduler,
                device=device,
                verbose=1,
            )
        except KeyboardInterrupt as stop:
            say(_kept(stop, store.path), err=True)
            raise typer.Exit(130) from None
        say(
            f"{summary.done} cells run in {_duration(summary.seconds)}, {summary.skipped} were there, "
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


def _kept(stop, path):
    found = getattr(stop, "summary", None)
    how_many = "" if found is None else f"{found.done + found.skipped} cells are done and "
    return f"interrupted; {how_many}kept in {path}; the same command goes on from there"


def _duration(seconds):
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"


def _print_failures(store, experiments, most=3):
    for one in experiments:
        for cell, error in list(store.failed(one.name).items())[:most]:
            last = [line for line in error.strip().splitlines() if line.strip()][-1:]
            say(f"failed: {cell}: {one_line(' '.join(last))}", err=True)


def _judged(experiment, frame):
    """``(frame, verdict, problem)``: a run that was cut short may have too little to judge."""
    if frame.empty:
        return frame, None, "no results"
    try:
        return frame, experiment.judge(frame.copy()), ""
    except Exception as error:
        return frame, None, f"cannot be judged from these results ({type(error).__name__}: {one_line(error)})"


def _write(found, store, size, out):
    import io

    from trimreg._files import write_atomically

    files = []
    for experiment, frame, _, _ in found:
        if frame.empty:
            continue
        try:
            figure = experiment.figure(frame.copy())
            buffer = io.BytesIO()
            figure.savefig(buffer, format="svg", metadata={"Date": None})
        except Exception as error:  # a run that was cut short may have too little to draw
            say(
                f"warning: no figure of {experiment.name} ({type(error).__name__}: {one_line(error)})",
                err=True,
            )
            continue
        files.append(write_atomically(out / f"{experiment.name}.svg", buffer.getvalue()))
    there = [experiment.name for experiment, frame, _, _ in found if not frame.empty]
    return files + store.export(out, ("parquet",), there, size)


def _print_verdicts(found, size):
    rows = [[one.name, verdict.kind if verdict else "-", one.title] for one, _, verdict, _ in found]
    print_table(
        f"Claims of the paper, at size {size}",
        [("name", "left"), ("verdict", "left"), ("experiment", "left")],
        rows,
    )
    for experiment, _, verdict, problem in found:
        text = f"{experiment.name}: {one_line(verdict.measured) if verdict else problem}"
        say(textwrap.fill(text, width=100, subsequent_indent="  "))
    if size == "quick":
        say("A quick run tests the pipeline; its verdicts are no evidence. Use --full for these.")


def report(
    out: OutFolder = Path("results"),
    page: Annotated[
        Path | None, typer.Option(help="The page to write; DIR/report.html if not given.", metavar="FILE")
    ] = None,
) -> None:
    """Write the page of all experiments that were run: figures, claims, what was measured, verdicts.

    One file that needs no network. It reads DIR/results.sqlite, which trimreg reproduce writes, or where that
    is not there the tables DIR/NAME.parquet.

    \b
    Examples:
      trimreg report
      trimreg report --out results --page index.html

    Exit status: 0 if all went well, 2 for bad input, 130 if interrupted.
    """
    from trimreg.reports.demo import BadInput as Refused

    with exit_codes(Refused):
        from trimreg.cli.common import check_outputs
        from trimreg.cli.options import check_report

        check_report()
        _check_packages()
        from .files import Exported
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
