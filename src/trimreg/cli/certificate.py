"""``trimreg verify-certificate``: a proof against its data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options
from .common import exit_codes, refused_as_bad_input, say


def verify_certificate(
    certificate: Annotated[
        Path, typer.Argument(help="A file written by trimreg fit --certificate.", metavar="CERTIFICATE")
    ],
    data: options.Table,
    target: options.Target,
    weights: options.Weights = None,
    drop: options.Drop = None,
    categorical: options.Categorical = None,
    impute: options.Impute = None,
) -> None:
    """Check the proof that trimreg fit --certify wrote, against the table of that fit.

    The bound of every leaf is computed again from the data, without the search. Give the options of the fit
    that change the table: --drop (also for the column of --index), --categorical, --impute, --weights.

    \b
    Examples:
      trimreg fit houses.csv --target price --h 5 --certify 60 --certificate proof.npz
      trimreg verify-certificate proof.npz houses.csv --target price

    Exit status: 0 if the certificate holds, 1 if it does not, 2 for bad input, 130 if interrupted.
    """
    with exit_codes():
        from ..diagnostics.bounds import read_certificate
        from ..diagnostics.bounds import verify_certificate as verify
        from .common import BadInput
        from .data import load

        try:
            header = read_certificate(certificate)["header"]
        except (OSError, ValueError) as error:
            raise BadInput(str(error)) from None
        rows = load(data, target, loss=header["loss"], drop=drop or (), impute=impute, weights=weights)
        _, X, notes = options.learned(rows, impute, categorical or ())
        options.tell(notes)
        with refused_as_bad_input():
            check = verify(certificate, X.to_numpy(dtype=float), rows.y, rows.weights)
        say(f"{check.message}: {check.lower:.6g} to {check.upper:.6g}, {check.bounds} bounds")
        if not check.holds:
            raise typer.Exit(1)
