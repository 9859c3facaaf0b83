"""Runs cells in a worker process, and encodes their rows, or the traceback of a failure, as text."""

from __future__ import annotations

import json
import numbers
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimreg import __version__
from trimreg.solvers import many_fits

from .spec import Cell


@dataclass(frozen=True)
class Outcome:
    """The result of one cell: its rows or its error, as text.

    Attributes
    ----------
    experiment, cell : str
        Their names.
    parameters : str
        The parameters of the cell, as JSON.
    rows : str or None
        The rows as :func:`encode_rows` writes them; None for a failed cell.
    error : str or None
        The traceback of a failed cell.
    seconds : float
    version : str
        The version of trimreg that ran the cell.
    """

    experiment: str
    cell: str
    parameters: str
    rows: str | None
    error: str | None
    seconds: float
    version: str


def perform(experiment: str, function: Callable[[Cell], list[dict]], cell: Cell) -> Outcome:
    """Run ``function(cell)`` with one thread for linear algebra; an exception becomes a failed outcome.

    Examples
    --------
    >>> from trimreg_reproduction.spec import Cell
    >>> from trimreg_reproduction.worker import perform
    >>> perform("toy", lambda cell: [{"half": cell["n"] / 2}], Cell.of("toy", n=3)).rows
    '[{"half": 1.5}]'
    >>> perform("toy", lambda cell: [{"inverse": 1 / cell["n"]}], Cell.of("toy", n=0)).error.splitlines()[-1]
    'ZeroDivisionError: division by zero'
    """
    (outcome,) = perform_together([(experiment, function, cell)], lambda cells: [function(cells[0])])
    return outcome


def perform_together(
    tasks: Sequence[tuple], function: Callable[[list[Cell]], list[list[dict]]] | None
) -> list[Outcome]:
    """The outcomes of several tasks that ``function(cells)`` runs at once, or one by one if it is None.

    If the function fails, all of the tasks have failed.
    """
    if function is None:
        return [perform(*task) for task in tasks]
    limit_threads()
    rows: list[str | None] = [None] * len(tasks)
    error = None
    start = time.perf_counter()
    try:
        with many_fits():  # Ctrl-C ends the run, and not one fit of a cell
            found = function([cell for _, _, cell in tasks])
        rows = [encode_rows(one, cell.parameters) for one, (*_, cell) in zip(found, tasks, strict=True)]
    except (Exception, SystemExit):
        error = traceback.format_exc()
    each = (time.perf_counter() - start) / len(tasks)
    return [
        Outcome(name, cell.name, encode_parameters(cell), one, error, each, __version__)
        for (name, _, cell), one in zip(tasks, rows, strict=True)
    ]


def lost(task: tuple, reason: str) -> Outcome:
    """The outcome of a task that never came back: a failure with that reason."""
    experiment, _, cell = task
    return Outcome(experiment, cell.name, encode_parameters(cell), None, reason, 0.0, __version__)


_modules_seen = 0


def limit_threads() -> None:
    """Use one thread for BLAS and OpenMP in this process.

    Cells already run in parallel, and sums then do not depend on the number of cores. Searching the loaded
    libraries takes milliseconds, so it is repeated only after new modules were imported.
    """
    global _modules_seen
    if len(sys.modules) != _modules_seen:
        from threadpoolctl import threadpool_limits

        threadpool_limits(limits=1)
        _modules_seen = len(sys.modules)


# -- rows as text ---------------------------------------------------------------------------------------


def encode_parameters(cell: Cell) -> str:
    """The parameters of a cell as a JSON object."""
    return json.dumps({key: _plain(value, key) for key, value in cell.parameters})


def encode_rows(rows: list[dict], parameters: Iterable[tuple[str, Any]] = ()) -> str:
    """Rows as JSON; floats are exact, NaN and infinities included.

    Parameters
    ----------
    rows : list of dict
        With numbers, strings, bools, None, or lists of these. NumPy's types become Python's.
    parameters : pairs, optional
        The parameters of the cell. Both become columns, so a row must not give one of them another value.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg_reproduction.worker import encode_rows
    >>> encode_rows([{"n": np.int64(3), "found": np.True_, "errors": np.array([0.1, np.nan])}])
    '[{"n": 3, "found": true, "errors": [0.1, NaN]}]'
    """
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise TypeError("an experiment's run must return a list of dicts")
    known = dict(parameters)
    encoded = []
    for row in rows:
        for key, value in row.items():
            if not isinstance(key, str):
                raise TypeError(f"names of entries must be strings; got {key!r}")
            if key in known and _plain(value, key) != _plain(known[key], key):
                raise ValueError(f"a row has {key} = {value!r}, but the cell has {key} = {known[key]!r}")
        encoded.append({key: _plain(value, key) for key, value in row.items()})
    return json.dumps(encoded)


def _plain(value, name):
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(entry, name) for entry in value]
    raise TypeError(
        f"{name} must be a number, string, bool, None or a list of these; got {type(value).__name__}"
    )
