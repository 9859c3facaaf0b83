"""The command ``trimreg demo``.

``trimreg.cli`` imports this module through an entry point, so it is imported here inside the functions.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from ..spec import BadInput


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the pictures.", metavar="DIR")] = Path("demo-output"),
    h: Annotated[int, typer.Option("--h", help="Number of variables to keep, 1 to 64.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of the split into training and test sets.")] = 0,
    pictures: Annotated[
        bool, typer.Option("--pictures/--no-pictures", help="Whether to draw (needs matplotlib).")
    ] = True,
    picture: Annotated[
        Path | None, typer.Option(help="Also write demo.png to this PNG file.", metavar="FILE")
    ] = None,
) -> None:
    """Compare the trimmed lasso, the lasso and MCP on the diabetes data with all second-order terms.

    Prints a table of the methods and one of their coefficients, and draws pictures. Takes a few seconds.

    \b
    Examples:
      trimreg demo
      trimreg demo --h 5 --out pictures
      trimreg demo --no-pictures
      trimreg demo --picture docs/img/demo.png

    Exit status: 0 if all went well, 2 for bad input, 130 if interrupted.
    """
    from trimreg.cli.common import announcer, check_matplotlib, check_outputs, exit_codes

    from . import fits
    from . import pictures as drawn

    with exit_codes():
        fits.check_arguments(h, seed)
        if pictures:
            check_matplotlib("trimreg demo without --no-pictures")
            check_outputs(out=out / "demo.png", picture=picture)
        elif picture is not None:
            raise BadInput("--picture and --no-pictures contradict each other; drop one of them")
        total = len(fits.STAGES) + pictures
        with announcer(total) as announce:
            found = fits.run(h=h, seed=seed, progress=announce)
            files = []
            if pictures:
                announce("drawing")
                files = drawn.write_pictures(found, out, copy_summary_to=picture)
        _print_methods(found)
        _print_coefficients(found)
        for file in files:
            typer.echo(f"wrote {file}")


def _print_methods(found) -> None:
    from trimreg.cli.common import print_table

    answer: Callable = {True: "yes", False: "no", None: "-"}.get
    patients = f"{found.n_train} patients to fit, {found.n_test} to test"
    numbers = ("kept", "test\nRMSE", "test\nR^2", "T", "swap\noptimal")
    rows = []
    for fit in found.fits:
        errors = [f"{fit.rmse:.2f}", f"{fit.r2:.3f}", f"{fit.stationarity:.0e}"]
        rows.append([fit.method, fit.chosen, str(fit.n_kept), *errors, answer(fit.swap_optimal)])
    print_table(
        f"Diabetes data, {len(found.feature_names)} features: {patients}",
        [("method", "left"), ("setting", "left"), *((name, "right") for name in numbers)],
        rows,
    )
    typer.echo(
        f"Differences in RMSE below {found.noise:.1f} are within two standard errors of this test set."
    )
    typer.echo("T is the squared distance to stationarity, recomputed from the data; 0 is stationary.")
    typer.echo("Swap optimal: no exchange of one variable kept for one left out fits better.\n")


def _print_coefficients(found) -> None:
    from trimreg.cli.common import print_table

    headings = [(f"{fit.method}\n{fit.chosen.split(' by')[0]}", "right") for fit in found.fits]
    order = sorted(
        (j for j in range(len(found.feature_names)) if any(fit.coef[j] for fit in found.fits)),
        key=lambda j: [-abs(fit.coef[j]) for fit in found.fits],
    )
    print_table(
        "Coefficients of standardized columns; blank is left out",
        [("feature", "left"), *headings],
        [
            [found.feature_names[j], *(f"{fit.coef[j]:+.2f}" if fit.coef[j] else "" for fit in found.fits)]
            for j in order
        ],
    )
