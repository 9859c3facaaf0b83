"""The command line: parses, calls, prints.

One module per command. Heavy packages are imported when a command runs, so that ``trimreg --help`` is quick.
"""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from typing import Annotated

import typer

from .. import __version__
from . import certificate, fit, graph, path, predict

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
      trimreg demo --h 5
      trimreg fit data.csv --target price
      trimreg fit data.csv --target price --h 10 --json model.json
      trimreg predict model.json new.csv
      trimreg verify-certificate proof.npz data.csv --target price
      trimreg path data.csv --target price --picture path.png
      trimreg graph data.csv --picture network.png
      trimreg reproduce all --quick
      trimreg report

    Exit status: 0 if all went well, 2 for bad input, 130 if interrupted.
    """


app.command()(fit.fit)
app.command()(predict.predict)
app.command()(certificate.verify_certificate)
app.command()(path.path)
app.command()(graph.graph)


def _add_commands() -> None:
    """Add the commands of other installed packages; one that cannot be imported says so when it is called."""

    def unavailable(name: str, error: Exception):
        def command() -> None:
            typer.echo(f"error: trimreg {name} cannot be loaded ({error}); reinstall its package", err=True)
            raise typer.Exit(2)

        return command

    for one in entry_points(group="trimreg.commands"):
        try:
            function = one.load()
        except (ImportError, AttributeError) as error:
            function = unavailable(one.name, error)
        app.command(one.name)(function)


_add_commands()


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
