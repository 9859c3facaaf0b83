"""``trimreg predict``: predictions of a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import options
from .common import BadInput, check_outputs, exit_codes, note, refused_as_bad_input, say, write_text


def predict(
    model: Annotated[Path, typer.Argument(help="A file written by trimreg fit --json.", metavar="MODEL")],
    data: options.Table,
    out: Annotated[
        Path | None,
        typer.Option(help="A CSV file for the predictions; by default they are printed.", metavar="FILE"),
    ] = None,
    index: Annotated[
        str | None,
        typer.Option(
            help="A column to copy to the predictions; by default that of the fit.", metavar="COLUMN"
        ),
    ] = None,
    survival: Annotated[
        str | None,
        typer.Option(
            help="For Cox's model: also the probability of surviving beyond these times, such as 12,24.",
            metavar="TIMES",
        ),
    ] = None,
) -> None:
    """Predict the rows of a table with a model written by trimreg fit --json.

    The table needs the columns that are in the model, and those of --offset and --exposure of the fit (for
    --survival also of --strata). If it has the target, scores are printed on standard error. Classes come
    with their probabilities, and rows with their names if the fit had --index. Text that a spreadsheet would
    take for a formula (it starts with = + - or @) gets an apostrophe.

    \b
    Examples:
      trimreg predict model.json new.csv
      trimreg predict model.json new.parquet --out predictions.csv
      trimreg predict cox.json new.csv --survival 12,24

    Exit status: 0 if all went well, 2 for bad input, 130 if interrupted.
    """
    with exit_codes():
        from ..estimators import load
        from . import tables

        check_outputs(out=out)
        saved = load(model)
        frame = tables.read_table(data)
        eta, notes = saved.predictor(frame)
        eta = eta + saved.offset(frame)
        options.tell(notes)
        columns = saved.table(eta)
        if survival is not None:
            with refused_as_bad_input():
                columns |= _curves(saved, frame, survival)
        _print_scores(saved, frame, eta)
        if index is not None:
            options.check_columns("--index", [index], frame)
        index = saved.content.get("index") if index is None else index
        if index in frame:
            columns = {index: frame[index]} | columns
        text = tables.csv_text(tables.pandas().DataFrame(columns))
        if out is None:
            say(text.rstrip("\n"))
        else:
            write_text(out, text)


def _curves(saved, frame, text):
    """A column of survival probabilities for each time in the text."""
    try:
        times = [float(part) for part in text.split(",")]
    except ValueError:
        raise BadInput(f"--survival must be times separated by commas, such as 12,24; got {text!r}") from None
    columns = saved.predict_survival_function(frame, times).T
    return {f"survival={time:g}": column for time, column in zip(times, columns, strict=True)}


def _print_scores(saved, frame, eta):
    """Print scores, if the rows have a target that can be scored."""
    import numpy as np

    from ..estimators.survival import stratified
    from .data import target_of
    from .models import in_words, scores

    entry, strata = saved.content.get("entry"), saved.content.get("strata")
    targets = [name for name in (saved.target, saved.event, entry, strata) if name is not None]
    if saved.target is None or not all(name in frame for name in targets):
        return
    known = (~frame[targets].isna().any(axis=1)).to_numpy()
    if known.sum() < 2:
        return
    rows = frame[known]
    y = target_of(rows, saved.loss, saved.target, saved.event, entry)
    if strata is not None:
        y = stratified(y, rows[strata].to_numpy(), fitting=False)[0]
    if saved.classes is not None and not np.isin(y, saved.classes).all():
        note(f"the target {saved.target!r} has classes unknown to the fit; no scores")
        return
    shown = in_words(scores(saved, eta[known], y))
    say(f"on {int(known.sum())} rows with {saved.target!r}: {shown}", err=True)
