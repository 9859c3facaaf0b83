"""From a file and options to rows, a target and a loss."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import losses
from ..estimators.io import offset_in
from ..estimators.survival import stratified
from . import tables
from .common import BadInput, check_choice, refused_as_bad_input
from .options import check_columns, similar
from .tables import as_numbers, as_text, listed

#: The losses of ``--loss``: those of one linear predictor. "logistic" is also for several classes.
LOSSES = tuple(name for name, kind in losses.LOSSES.items() if not kind.multi_output)
MOST_CLASSES = 50
_INDEX = "Unnamed: "  # what pandas calls a column of row names that has no name itself


@dataclass(frozen=True)
class Data:
    """A table to fit."""

    frame: Any  # the columns to use, as in the file
    y: np.ndarray  # numbers or classes; for Cox's model the columns that its loss takes
    loss: str
    notes: list[str]  # what was done to the table
    weights: np.ndarray | None = None
    offset: np.ndarray | None = None  # with the logarithms of exposures
    subjects: np.ndarray | None = None  # whose rows stay together
    strata: np.ndarray | None = None  # the labels of the strata that are numbered in y

    def rows(self, index: np.ndarray) -> Data:
        frame = self.frame.iloc[index].reset_index(drop=True)
        names = ("weights", "offset", "subjects")
        parts = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        parts = {name: part[index] for name, part in parts.items()}
        return replace(self, frame=frame, y=self.y[index], **parts)

    def target_and_strata(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The target and further arguments of ``fit``, with the strata by their labels."""
        if self.strata is None:
            return self.y, {}
        return self.y[:, :3], {"strata": self.strata[self.y[:, 3].astype(int)]}


def load(
    path: Path,
    target: str,
    *,
    loss: str = "auto",
    event: str | None = None,
    entry: str | None = None,
    strata: str | None = None,
    subject: str | None = None,
    drop: Sequence[str] = (),
    impute: str | None = None,
    weights: str | None = None,
    offset: str | None = None,
    exposure: str | None = None,
    index: str | None = None,
) -> Data:
    """Read a table and separate its target; :class:`BadInput` if the options do not fit it.

    ``loss="auto"`` is logistic if the target is text or booleans, and quadratic otherwise. ``event`` is the
    column that is 1 if the target is the time of an event and 0 if it is censored; ``entry`` and ``strata``
    are the times from which rows are at risk, and their strata. ``subject``, ``weights``, ``offset``,
    ``exposure`` and ``index`` are columns of subjects with several rows, of sample weights, of known parts of
    the predictor and of the names of the rows; none is a feature.
    """
    check_choice("--loss", loss, ["auto", *LOSSES])
    if impute is not None:
        check_choice("--impute", impute, tables.IMPUTE)
    if (loss == "cox") != (event is not None):
        needed = "--loss cox needs --event, the column that is 1 for an event and 0 for a censored time"
        raise BadInput(needed if loss == "cox" else "--event is for --loss cox; use both or neither")
    if loss != "cox" and (entry, strata) != (None, None):
        raise BadInput("--entry and --strata are for --loss cox")
    log_links = [name for name in LOSSES if losses.LOSSES[name].log_link]
    if exposure is not None and loss not in log_links:
        raise BadInput(f"--exposure is for --loss {', '.join(log_links)}; use --offset")
    given = {
        "--target": target, "--event": event, "--entry": entry, "--strata": strata, "--subject": subject,
        "--weights": weights, "--offset": offset, "--exposure": exposure, "--index": index,
    }  # fmt: skip
    given = {option: name for option, name in given.items() if name is not None}
    frame, notes = columns_of(tables.read_table(path), drop, keep=given.values())
    for name in given.values():
        if name not in frame:
            raise BadInput(f"{path} has no column {name!r}; {similar(name, frame.columns)}")
    if len(set(given.values())) < len(given):
        raise BadInput(f"{', '.join(given)} must be different columns")
    if index is not None:
        frame = frame.drop(columns=index)
    targets = [name for option, name in given.items() if option != "--index"]
    if frame.shape[1] == len(targets):
        raise BadInput(f"{path} has no column beside {listed(targets)}; add some to predict from")
    frame, more = without_missing(frame, targets, impute)
    loss, hints = _loss_for(frame[target], loss)
    y = target_of(frame, loss, target, event, entry)
    labels = None
    if strata is not None:
        with refused_as_bad_input():
            y, labels = stratified(y, frame[strata].to_numpy())
    subjects = None if subject is None else frame[subject].to_numpy()
    d = None if weights is None else _weights(frame[weights])
    known = offset_in(frame, offset, exposure)
    return Data(frame.drop(columns=targets), y, loss, notes + more + hints, d, known, subjects, labels)


def _weights(values):
    numbers = as_numbers(values).to_numpy()
    if (numbers < 0).any() or not numbers.any():
        raise BadInput(f"--weights needs numbers >= 0, not all 0; see the column {values.name!r}")
    return numbers


def columns_of(frame: Any, drop: Sequence[str] = (), keep: Collection[str] = ()) -> tuple[Any, list[str]]:
    """The frame without the columns to drop, and notes.

    A first column without a name is taken for row names, as pandas writes them.
    """
    check_columns("--drop", drop, frame)
    wanted = [name for name in drop if name in keep]
    if wanted:
        raise BadInput(f"--drop names {wanted[0]!r}, which another option uses; drop another column")
    frame = frame.drop(columns=list(drop))
    first = frame.columns[0] if frame.shape[1] else ""
    if first.startswith(_INDEX) and first not in keep:
        return frame.drop(columns=first), ["the first column has no name and is taken for row names"]
    return frame, []


def without_missing(frame: Any, targets: list[str], impute: str | None) -> tuple[Any, list[str]]:
    """The rows that have a target, and with ``impute="drop"`` those without any missing value."""
    if impute is None:
        tables.refuse_missing(frame)
        return frame, []
    missing = (frame if impute == "drop" else frame[targets]).isna().any(axis=1)
    if missing.all():
        raise BadInput("every row has a missing value; drop columns by --drop, or use --impute mean")
    count = int(missing.sum())
    what = "have a missing value" if impute == "drop" else "have no target"
    notes = [f"{count} of {len(frame)} rows {what} and are left out"] if count else []
    return frame[~missing].reset_index(drop=True), notes


def _loss_for(values, loss):
    pd = tables.pandas()
    number = tables.is_number(values) and not pd.api.types.is_bool_dtype(values)
    distinct = tables.distinct(values)
    if distinct < 2:
        raise BadInput(f"the target {values.name!r} has the same value in all rows; choose another column")
    if loss == "auto":
        if number and distinct == 2:
            return "quadratic", [
                f"the target {values.name!r} has two values; for classes use --loss logistic"
            ]
        return ("quadratic", []) if number else ("logistic", [f"the target has {distinct} classes: logistic"])
    if loss != "logistic" and not number:
        raise BadInput(
            f"the target {values.name!r} must hold numbers; got text, such as {str(values.iloc[0])!r}; "
            "use --loss logistic"
        )
    return loss, []


def target_of(
    frame: Any, loss: str, target: str, event: str | None = None, entry: str | None = None
) -> np.ndarray:
    """The target in the form that the loss takes: numbers, classes, or times and events."""
    values = frame[target]
    if loss in ("logistic", "ordinal"):
        return _classes(values, loss)
    numbers = as_numbers(values).to_numpy()
    if loss != "cox":
        try:
            losses.get_loss(loss).check_target(numbers.astype(float))
        except ValueError as error:
            raise BadInput(
                f"--loss {loss} cannot take {values.name!r}: {error}; use --loss quadratic"
            ) from None
        return numbers
    happened = as_numbers(frame[event]).to_numpy()
    if not np.isin(happened, (0.0, 1.0)).all() or ((numbers < 0).any() and entry is None):
        raise BadInput("--loss cox needs times >= 0 in --target, and 0 or 1 in --event")
    if not happened.any():
        raise BadInput(f"no row has an event: {event!r} is always 0; give another column")
    if entry is None:
        return np.column_stack([numbers, happened])
    start = as_numbers(frame[entry]).to_numpy()
    if not (start < numbers).all():
        bad = int(np.argmin(start < numbers))
        raise BadInput(
            f"--entry needs times below those of --target; {entry!r} is {start[bad]:g} where {target!r} is "
            f"{numbers[bad]:g}"
        )
    return np.column_stack([start, numbers, happened])


def _classes(values, loss):
    pd = tables.pandas()
    if values.nunique() > MOST_CLASSES:
        raise BadInput(
            f"--loss {loss} needs classes; {values.name!r} has {values.nunique()} different values; "
            "use another --loss or another --target"
        )
    if tables.is_number(values) and not pd.api.types.is_bool_dtype(values):
        numbers = as_numbers(values).to_numpy()
        if np.any(numbers != np.round(numbers)):
            raise BadInput(
                f"--loss {loss} needs classes; {values.name!r} has numbers such as "
                f"{numbers[numbers != np.round(numbers)][0]:g}; use --loss quadratic"
            )
        return numbers.astype(int)
    return as_text(values).to_numpy(dtype=str)
