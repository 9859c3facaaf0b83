"""A cell is done: its rows as text, or the traceback of its failure. This part runs in the workers."""

from __future__ import annotations

import json
import numbers
import sys
import time
import traceback
from dataclasses import dataclass

import numpy as np

from trimreg import __version__
from trimreg.solvers import many_fits


@dataclass(frozen=True)
class Outcome:
    """What became of one cell: rows, or an error; both as text.

    Attributes
    ----------
    experiment, cell : str
        Names.
    parameters : str
        The parameters of the cell, JSON.
    rows : str or None
        What :func:`encode_rows` gives; None for a failed cell.
    error : str or None
        The traceback of a failed cell.
    seconds : float
    version : str
        Of trimreg, where the cell was run.
    """

    experiment: str
    cell: str
    parameters: str
    rows: str | None
    error: str | None
    seconds: float
    version: str


@many_fits()
def perform(experiment: str, function, cell) -> Outcome:
    """Run ``function(cell)`` with one thread for linear algebra; an exception becomes a failed outcome.

    Parameters
    ----------
    experiment : str
        The name under which the outcome is kept.
    function : function of a cell to a list of rows
    cell : Cell

    Examples
    --------
    >>> from trimreg_reproduction.outcome import perform
    >>> from trimreg_reproduction.spec import Cell
    >>> perform("toy", lambda cell: [{"half": cell["n"] / 2}], Cell.of("toy", n=3)).rows
    '[{"half": 1.5}]'
    >>> perform("toy", lambda cell: [{"inverse": 1 / cell["n"]}], Cell.of("toy", n=0)).error.splitlines()[-1]
    'ZeroDivisionError: division by zero'
    """
    limit_threads()
    parameters = encode_parameters(cell)
    rows = error = None
    start = time.perf_counter()
    try:
        rows = encode_rows(function(cell), cell.parameters)
    except (Exception, SystemExit):
        error = traceback.format_exc()
    return Outcome(experiment, cell.name, parameters, rows, error, time.perf_counter() - start, __version__)


def perform_together(tasks, function) -> list[Outcome]:
    """The outcomes of several tasks that ``function(cells)`` runs at once; None runs one after another.

    If the function fails all of them have.

    Examples
    --------
    >>> from trimreg_reproduction.outcome import perform_together
    >>> from trimreg_reproduction.spec import Cell
    >>> tasks = [("toy", None, Cell.of("toy", n=n)) for n in (1, 2)]
    >>> [one.rows for one in perform_together(tasks, lambda cells: [[{"twice": 2 * c["n"]}] for c in cells])]
    ['[{"twice": 2}]', '[{"twice": 4}]']
    """
    if function is None:
        return [perform(*task) for task in tasks]
    limit_threads()
    rows, error = [None] * len(tasks), None
    start = time.perf_counter()
    try:
        found = function([cell for _, _, cell in tasks])
        rows = [encode_rows(one, cell.parameters) for one, (*_, cell) in zip(found, tasks, strict=True)]
    except (Exception, SystemExit):
        error = traceback.format_exc()
    each = (time.perf_counter() - start) / len(tasks)
    return [
        Outcome(name, cell.name, encode_parameters(cell), one, error, each, __version__)
        for (name, _, cell), one in zip(tasks, rows, strict=True)
    ]


def lost(task, reason: str) -> Outcome:
    """The outcome of a task that never came back: a failure for that reason."""
    experiment, _, cell = task
    return Outcome(experiment, cell.name, encode_parameters(cell), None, reason, 0.0, __version__)


_modules_seen = 0


def limit_threads() -> None:
    """One thread for BLAS and OpenMP in this process: cells are parallel already, and sums do not depend
    on the number of cores.

    Looking through the loaded libraries takes milliseconds, so it is done anew only when modules came in.
    """
    global _modules_seen
    if len(sys.modules) != _modules_seen:
        from threadpoolctl import threadpool_limits

        threadpool_limits(limits=1)
        _modules_seen = len(sys.modules)


# -- rows as text ---------------------------------------------------------------------------------------


def encode_parameters(cell) -> str:
    """The parameters of a cell as a JSON object."""
    return json.dumps({key: _plain(value, key) for key, value in cell.parameters})


def encode_rows(rows, parameters=()) -> str:
    """Rows as JSON; floats survive exactly, and NaN and infinities too.

    Parameters
    ----------
    rows : list of dict
        Of numbers, strings, bools, None, or lists of these. NumPy's are turned into Python's.
    parameters : pairs, optional
        Of the cell. A row must not say anything else under the same name, for both become columns.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg_reproduction.outcome import encode_rows
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
