"""The results of experiments in one SQLite file.

A finished cell is one row of the table ``cells``, written in one transaction, so a killed run leaves no
partial cell. The key is the name of the cell, which contains all of its parameters: a cell that occurs in
both sizes is run once. The table ``plans`` lists the cells of each size.

The file is in SQLite's WAL mode with ``synchronous=NORMAL``: one process writes while others read. A killed
process loses nothing that was written; a power cut loses at most the last cells, never the file
(https://www.sqlite.org/wal.html).
"""

from __future__ import annotations

import io
import json
import math
import sqlite3
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from trimreg._files import write_atomically

from .spec import BadInput
from .worker import Outcome

SCHEMA_VERSION = 1
#: Columns of a frame that say where a row comes from.
ORIGIN = ("cell", "cell_seconds", "cell_version", "cell_finished")
_APPLICATION = 0x74726D72  # "trmr", which marks the file as a store
_NOT_A_STORE = "{} is not a store of trimreg; choose another file, or move this one away"
_SCHEMA = """
CREATE TABLE cells (
    experiment TEXT NOT NULL,
    cell TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('done', 'failed')),
    parameters TEXT NOT NULL,
    rows TEXT CHECK ((status = 'done') = (rows IS NOT NULL)),
    error TEXT CHECK ((status = 'failed') = (error IS NOT NULL)),
    seconds REAL NOT NULL,
    version TEXT NOT NULL,
    finished TEXT NOT NULL,
    PRIMARY KEY (experiment, cell)
);
CREATE TABLE plans (
    experiment TEXT NOT NULL,
    size TEXT NOT NULL,
    cells TEXT NOT NULL,
    asked TEXT NOT NULL,
    PRIMARY KEY (experiment, size)
);
"""
_CLAIMS = (  # beside the schema: stores of earlier versions lack it
    "CREATE TABLE IF NOT EXISTS claims (experiment TEXT NOT NULL, cell TEXT NOT NULL, run TEXT NOT NULL,"
    " PRIMARY KEY (experiment, cell))"
)


class StoreError(BadInput):
    """A file that cannot be used as a store; the message says what to change."""


@dataclass(frozen=True)
class Counts:
    """The number of cells of an experiment that are planned, done and failed."""

    planned: int
    done: int
    failed: int

    @property
    def missing(self) -> int:
        return self.planned - self.done - self.failed


# -- the store ------------------------------------------------------------------------------------------


class Store:
    """Results of experiments in a SQLite file, which is created if it does not exist.

    Parameters
    ----------
    path : path-like
    read_only : bool
        Whether the file must exist and is not changed.

    Raises
    ------
    StoreError
        If the file is not a store, has another schema version, or cannot be opened.

    Examples
    --------
    >>> import tempfile
    >>> from trimreg_reproduction.store import Store
    >>> from trimreg_reproduction.worker import Outcome
    >>> with tempfile.TemporaryDirectory() as folder, Store(f"{folder}/results.sqlite") as store:
    ...     store.record(Outcome("toy", "toy/n=1", '{"n": 1}', '[{"error": 0.5}]', None, 0.1, "0.1.0"))
    ...     store.frame("toy").to_dict("records")
    [{'n': 1, 'error': 0.5}]
    """

    def __init__(self, path: str | Path, read_only: bool = False):
        self.path = Path(path)
        self.read_only = read_only
        self._connection = _open(self.path, read_only)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # -- writing ----------------------------------------------------------------------------------------

    def plan(self, experiment: str, size: str, cells: Iterable[str]) -> None:
        """Record which cells an experiment has at a size, and that this size was asked for last."""
        self._write(
            "INSERT OR REPLACE INTO plans VALUES (?, ?, ?, ?)",
            (experiment, size, json.dumps(list(cells)), _now()),
        )

    def record(self, outcome: Outcome) -> None:
        """Write the outcome of a cell in one transaction. A failure never replaces a result."""
        status = "done" if outcome.error is None else "failed"
        self._write(
            "INSERT INTO cells VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (experiment, cell) DO UPDATE"
            " SET status = excluded.status, parameters = excluded.parameters, rows = excluded.rows,"
            " error = excluded.error, seconds = excluded.seconds, version = excluded.version,"
            " finished = excluded.finished WHERE cells.status = 'failed' OR excluded.status = 'done'",
            (outcome.experiment, outcome.cell, status, outcome.parameters, outcome.rows, outcome.error,
             outcome.seconds, outcome.version, _now()),
        )  # fmt: skip

    def claim(
        self, experiment: str, cell: str, before: str | None, run: str, alive: Callable[[str], bool]
    ) -> bool:
        """Note that a run works on a cell, unless another one does or has ended it.

        ``before`` is when the cell was last ended, as far as the run knows; ``alive`` says whether a run is.
        """
        if self.finished(experiment, cell).get(cell) != before:
            return False
        key = (experiment, cell)
        for (owner,) in self._all("SELECT run FROM claims WHERE experiment = ? AND cell = ?", *key):
            if alive(owner):
                return False
            self._write("DELETE FROM claims WHERE experiment = ? AND cell = ? AND run = ?", (*key, owner))
        # The first of several runs wins. The cell may have been ended since the look above.
        added = self._write(
            "INSERT OR IGNORE INTO claims SELECT ?, ?, ? WHERE ? IS"
            " (SELECT max(finished) FROM cells WHERE experiment = ? AND cell = ?)",
            (*key, run, before, *key),
        )
        return added > 0

    def release(self, run: str) -> None:
        """Forget the claims of a run."""
        self._write("DELETE FROM claims WHERE run = ?", (run,))

    def runs(self) -> list[str]:
        """The runs that have claims, alive or not."""
        return [run for (run,) in self._all("SELECT DISTINCT run FROM claims")]

    def _write(self, statement, values):
        """Execute a statement in a transaction; returns the number of rows that it changed."""
        try:
            with self._connection:
                return self._connection.execute(statement, values).rowcount
        except sqlite3.OperationalError as error:
            raise StoreError(
                f"cannot write to {self.path} ({error}); is the disk full or in use by another run?"
            ) from None

    # -- reading ----------------------------------------------------------------------------------------

    def experiments(self) -> list[str]:
        """The names of all experiments that were started."""
        found = self._all("SELECT experiment FROM plans UNION SELECT experiment FROM cells ORDER BY 1")
        return [name for (name,) in found]

    def size(self, experiment: str) -> str | None:
        """The size that was asked for last, or None."""
        found = self._all(
            "SELECT size FROM plans WHERE experiment = ? ORDER BY asked DESC, rowid DESC LIMIT 1",
            experiment,
        )
        return found[0][0] if found else None

    def done(self, experiment: str) -> set[str]:
        """The names of the cells with results."""
        found = self._all("SELECT cell FROM cells WHERE experiment = ? AND status = 'done'", experiment)
        return {name for (name,) in found}

    def finished(self, experiment: str, cell: str | None = None) -> dict[str, str]:
        """When the cells of an experiment ended, in results or failure; only those of one name if given."""
        which = "SELECT cell, finished FROM cells WHERE experiment = ? AND cell = ifnull(?, cell)"
        return dict(self._all(which, experiment, cell))

    def without_peer(self, experiment: str) -> set[str]:
        """The names of the cells with a row that was skipped because a package of a peer was missing."""
        found = self._all(
            'SELECT cell, rows FROM cells WHERE experiment = ? AND instr(rows, \'"skipped": "\')', experiment
        )
        return {name for name, rows in found if any(row.get("skipped") for row in json.loads(rows))}

    def failed(self, experiment: str) -> dict[str, str]:
        """The tracebacks of the failed cells, by name."""
        which = "SELECT cell, error FROM cells WHERE experiment = ? AND status = 'failed' ORDER BY cell"
        return dict(self._all(which, experiment))

    def counts(self, experiment: str, size: str | None = None) -> Counts:
        """How many cells are planned, done and failed at a size (default: the one asked for last)."""
        planned, done = self._planned(experiment, size), self.done(experiment)
        failed = self.failed(experiment)
        if planned is None:
            return Counts(len(done) + len(failed), len(done), len(failed))
        names = set(planned)
        return Counts(len(names), len(names & done), len(names & failed.keys()))

    def frame(self, experiment: str, size: str | None = None, *, provenance: bool = False) -> Any:
        """The results as a data frame: the parameters of the cell and the entries of the row are its columns.

        Parameters
        ----------
        experiment : str
        size : str, optional
            By default the size asked for last. Rows are in the order of the plan, so the frame does not
            depend on the order in which cells were run.
        provenance : bool
            Whether to add the columns :data:`ORIGIN`.

        Returns
        -------
        pandas.DataFrame
        """
        pandas = _need("pandas")
        found = {
            line[0]: line
            for line in self._all(
                "SELECT cell, parameters, rows, seconds, version, finished FROM cells"
                " WHERE experiment = ? AND status = 'done' ORDER BY cell",
                experiment,
            )
        }
        planned = self._planned(experiment, size)
        records = []
        for name in found if planned is None else planned:
            if name not in found:
                continue
            _, parameters, rows, seconds, version, finished = found[name]
            known = json.loads(parameters)
            origin = {}
            if provenance:
                origin = dict(zip(ORIGIN, (name, seconds, version, finished), strict=True))
            records += [{**known, **row, **origin} for row in json.loads(rows)]
        return pandas.DataFrame.from_records(records)

    def export(
        self, folder: str | Path, experiments: Iterable[str] | None = None, size: str | None = None
    ) -> list[Path]:
        """Write ``EXPERIMENT.parquet`` into a folder for each experiment with results; returns the files.

        A column with several types is JSON.
        """
        _need("pyarrow")
        files = []
        for name in self.experiments() if experiments is None else experiments:
            frame = self.frame(name, size, provenance=True)
            if not frame.empty:
                files.append(write_atomically(Path(folder) / f"{name}.parquet", parquet_bytes(frame)))
        return files

    def _planned(self, experiment, size):
        """The names of the cells at a size; None if no size is asked for and no plan was recorded."""
        asked = size or self.size(experiment)
        found = self._all("SELECT cells FROM plans WHERE experiment = ? AND size = ?", experiment, asked)
        if found:
            return json.loads(found[0][0])
        if size is not None:
            raise BadInput(f"{self.path} has no {size} run of {experiment}; run it, or ask for another size")
        return None

    def _all(self, statement, *values):
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise StoreError(f"cannot read {self.path} ({error}); restore a copy, or move it away") from None


# -- opening --------------------------------------------------------------------------------------------


def _open(path, read_only):
    if path.is_dir():
        raise StoreError(f"{path} is a folder; the store must be a file")
    if read_only and not path.is_file():
        raise StoreError(
            f"there is no store at {path}; run 'trimreg reproduce' first, or choose another folder"
        )
    connection = None
    try:
        if not read_only:
            path.parent.mkdir(parents=True, exist_ok=True)
        connection = _connect(path, read_only)
        _check_or_make(connection, path, read_only)
    except OSError as error:
        raise StoreError(f"cannot write {path} ({error.strerror}); choose another folder") from None
    except sqlite3.OperationalError as error:
        _close(connection)
        verb = "read" if read_only else "write"
        raise StoreError(f"cannot {verb} {path} ({error}); choose another folder") from None
    except sqlite3.DatabaseError:
        _close(connection)
        raise StoreError(_NOT_A_STORE.format(path)) from None
    except BaseException:
        _close(connection)
        raise
    return connection


def _close(connection):
    if connection is not None:
        connection.close()


def _connect(path, read_only):
    address = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
    connection = sqlite3.connect(address, uri=True, timeout=60.0)
    if not read_only:
        return connection
    try:
        connection.execute("SELECT * FROM sqlite_master").fetchall()
    except sqlite3.DatabaseError as error:
        connection.close()
        if not isinstance(error, sqlite3.OperationalError) or Path(f"{path}-wal").exists():
            raise
        # Reading in WAL mode needs a file next to the store. In a folder that cannot be written to, no other
        # process writes either, so the file may be read as it is.
        connection = sqlite3.connect(f"{address}&immutable=1", uri=True)
    return connection


def _check_or_make(connection, path, read_only):
    # Both in one statement, because another process may be creating the tables at this moment.
    application, tables = connection.execute(
        "SELECT (SELECT application_id FROM pragma_application_id), (SELECT count(*) FROM sqlite_master)"
    ).fetchone()
    if application != _APPLICATION and (application or tables or read_only):
        raise StoreError(_NOT_A_STORE.format(path))
    if read_only:
        _check_whole(connection, path)
    else:
        _use_wal(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
    if application != _APPLICATION:
        _make(connection)
    if not read_only:
        connection.execute(_CLAIMS)
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != SCHEMA_VERSION:
        age = "a newer" if version > SCHEMA_VERSION else "an older"
        raise StoreError(
            f"{path} was written by {age} trimreg (schema {version}, this one reads {SCHEMA_VERSION});"
            " choose another file, or use that version"
        )


def _use_wal(connection):
    """Switch the file to WAL mode. While others do the same, SQLite reports a lock and does not wait."""
    for left in reversed(range(600)):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or not left:
                raise
            time.sleep(0.1)


def _check_whole(connection, path):
    """:class:`StoreError` if pages of the file are damaged: their cells would seem not to have been run."""
    try:
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.DatabaseError as error:
        found = str(error)
    if found != "ok":
        raise StoreError(f"{path} is damaged ({found}); restore a copy, or run trimreg reproduce elsewhere")


def _make(connection):
    """Create tables and marks in one transaction: a run killed here leaves an empty file, a new store."""
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        if connection.execute("PRAGMA application_id").fetchone()[0] == _APPLICATION:
            return  # another process was faster
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


# -- files ----------------------------------------------------------------------------------------------


def _need(package):
    try:
        return import_module(package)
    except ImportError:
        raise BadInput(f"this needs {package}: pip install 'trimreg[experiments]'") from None


def parquet_bytes(frame: Any) -> bytes:
    """A frame as the contents of a Parquet file; a column with several types is JSON."""
    import pyarrow

    tidy = frame.copy()
    for column in tidy.columns:
        try:
            pyarrow.array(tidy[column], from_pandas=True)
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError):
            tidy[column] = tidy[column].map(_json_or_none)
    file = io.BytesIO()
    tidy.to_parquet(file, index=False, compression="zstd")
    return file.getvalue()


def _json_or_none(value):
    missing = value is None or (isinstance(value, float) and math.isnan(value))
    return None if missing else json.dumps(value)


def _now():
    return datetime.now(UTC).isoformat(timespec="microseconds")
