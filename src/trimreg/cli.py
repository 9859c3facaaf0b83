"""The command line: parses, calls, prints."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from . import __version__

app = typer.Typer(
    name="trimreg",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help reads the same in a terminal, a pipe and a log
    pretty_exceptions_enable=False,
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"trimreg {__version__}")
        raise typer.Exit()


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Sparse M-estimation by trimmed regularization: say how many coefficients to keep, get them
    without shrinkage.

    \b
    Examples:
      trimreg demo
      trimreg demo --h 5 --seed 1 --out pictures
    """


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the pictures.", metavar="DIR")] = Path("demo-output"),
    h: Annotated[int, typer.Option("--h", help="How many variables to keep, 1 to 64.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of the split into training and test set.")] = 0,
    pictures: Annotated[
        bool, typer.Option("--pictures/--no-pictures", help="Whether to draw (needs matplotlib).")
    ] = True,
    picture: Annotated[
        Path | None, typer.Option(help="A PNG file to write demo.png to once more.", metavar="FILE")
    ] = None,
) -> None:
    """Fit the diabetes data with all second-order terms by the trimmed lasso, the lasso and MCP.

    Prints a table of the methods and one of their coefficients, and draws pictures. Ends in a few seconds.

    \b
    Examples:
      trimreg demo
      trimreg demo --h 5 --out pictures
      trimreg demo --no-pictures
      trimreg demo --picture docs/img/demo.png

    Exit status: 0 if all went well, 2 for bad input, 130 if interrupted.
    """
    from .experiments import demo as experiment
    from .experiments import demo_pictures

    with _exit_codes(experiment.BadInput):
        experiment.check_arguments(h, seed)
        if pictures:
            demo_pictures.check_drawing(out, picture)
        elif picture is not None:
            raise experiment.BadInput("--picture asks for what --no-pictures forbids; drop one of them")
        total = len(experiment.STAGES) + pictures
        with _progress(total) as announce:
            found = experiment.run(h=h, seed=seed, progress=announce)
            files = []
            if pictures:
                announce("drawing")
                files = demo_pictures.write_pictures(found, out, copy_summary_to=picture)
        _print_methods(found)
        _print_coefficients(found)
        for file in files:
            typer.echo(f"wrote {file}")


def main() -> None:
    """The entry point ``trimreg``.

    Examples
    --------
    >>> import sys
    >>> from unittest import mock
    >>> from trimreg.cli import main
    >>> with mock.patch.object(sys, "argv", ["trimreg", "--version"]):
    ...     try:
    ...         main()
    ...     except SystemExit as end:
    ...         print("exit status", end.code)
    trimreg 0.1.0
    exit status 0
    """
    try:
        app(prog_name="trimreg")
    except KeyboardInterrupt:  # between commands; inside one it is handled there
        sys.exit(130)


@contextmanager
def _exit_codes(bad_input: type[Exception]):
    """Bad input ends with status 2 and one line that says what to change; Ctrl-C with 130."""
    try:
        yield
    except bad_input as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        raise typer.Exit(130) from None


@contextmanager
def _progress(total: int):
    """A function to announce stages with: a bar on a terminal, a line each elsewhere."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        done = 0

        def line(stage: str) -> None:
            nonlocal done
            done += 1
            typer.echo(f"[{done}/{total}] {stage}", err=True)

        yield line
        return

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(24), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total)
        started = False

        def advance(stage: str) -> None:
            nonlocal started
            bar.update(task, description=stage, advance=1 if started else 0)
            started = True

        yield advance


def _table(title: str, columns: list[tuple[str, str]], rows: list[list[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, justify in columns:
        table.add_column(name, justify=justify, no_wrap=True)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _print_methods(found) -> None:
    answer: Callable = {True: "yes", False: "no", None: "-"}.get
    _table(
        f"Diabetes data, {len(found.feature_names)} features: {found.n_train} patients to fit, "
        f"{found.n_test} to test",
        [
            ("method", "left"),
            ("setting", "left"),
            ("kept", "right"),
            ("test\nRMSE", "right"),
            ("test\nR^2", "right"),
            ("T", "right"),
            ("swap\noptimal", "right"),
        ],
        [
            [
                fit.method,
                fit.chosen,
                str(fit.n_kept),
                f"{fit.rmse:.2f}",
                f"{fit.r2:.3f}",
                f"{fit.stationarity:.0e}",
                answer(fit.swap_optimal),
            ]
            for fit in found.fits
        ],
    )
    typer.echo(
        f"Differences in RMSE below {found.noise:.1f} are within two standard errors of this test set."
    )
    typer.echo("T is the squared distance to stationarity, recomputed from the data; 0 is stationary.")
    typer.echo("Swap optimal: no exchange of one variable kept for one left out fits better.\n")


def _print_coefficients(found) -> None:
    headings = [(f"{fit.method}\n{fit.chosen.split(' by')[0]}", "right") for fit in found.fits]
    order = sorted(
        (j for j in range(len(found.feature_names)) if any(fit.coef[j] for fit in found.fits)),
        key=lambda j: [-abs(fit.coef[j]) for fit in found.fits],
    )
    _table(
        "Coefficients of standardized columns; blank is left out",
        [("feature", "left"), *headings],
        [
            [found.feature_names[j], *(f"{fit.coef[j]:+.2f}" if fit.coef[j] else "" for fit in found.fits)]
            for j in order
        ],
    )
