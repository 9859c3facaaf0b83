"""Exported results: the Parquet tables of a folder, which can be read in place of the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .registry import EXPERIMENTS, get_experiment
from .spec import SIZES, BadInput
from .store import ORIGIN, Counts


class Exported:
    """The tables ``NAME.parquet`` of a folder, with the reading methods of a store.

    A table does not record at which size its experiment was run. It is the size whose cells it contains.

    Examples
    --------
    >>> import tempfile
    >>> from trimreg_reproduction.exported import Exported
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Exported(folder).experiments(), Exported(folder).size("fig1")
    ([], None)
    """

    def __init__(self, folder: str | Path):
        self.path = Path(folder)
        self._cells: dict[str, dict[str, list[str]]] = {}
        self._tables: dict[str, Any] = {}

    def experiments(self) -> list[str]:
        """The names of the experiments that have a table."""
        return [name for name in EXPERIMENTS if self._file(name).exists()]

    def size(self, experiment: str) -> str | None:
        """The size of which the table has most cells; None without a table."""
        if not self._file(experiment).exists():
            return None
        there = set(self._table(experiment)["cell"])
        shares = {size: len(there & set(names)) for size, names in self._plans(experiment).items()}
        return max(SIZES, key=lambda size: shares[size]) if any(shares.values()) else None

    def counts(self, experiment: str, size: str | None = None) -> Counts:
        """The number of planned cells and of those in the table; tables have no failed cells."""
        size = self.size(experiment) if size is None else size
        planned = set(self._plans(experiment)[size])
        done = planned & set(self._table(experiment)["cell"])
        if not done:
            raise BadInput(f"{self._file(experiment)} has no {size} run; ask for another size")
        return Counts(len(planned), len(done), 0)

    def frame(self, experiment: str, size: str | None = None, *, provenance: bool = False) -> Any:
        """The rows of the cells of a size; see :meth:`.store.Store.frame`."""
        size = self.size(experiment) if size is None else size
        table = self._table(experiment)
        table = table[table["cell"].isin(self._plans(experiment)[size])].reset_index(drop=True)
        return table if provenance else table.drop(columns=list(ORIGIN))

    def _file(self, experiment):
        return self.path / f"{experiment}.parquet"

    def _plans(self, experiment):
        if experiment not in self._cells:
            one = get_experiment(experiment)
            self._cells[experiment] = {size: [cell.name for cell in one.cells(size)] for size in SIZES}
        return self._cells[experiment]

    def _table(self, experiment):
        if experiment not in self._tables:
            self._tables[experiment] = self._read(experiment)
        return self._tables[experiment]

    def _read(self, experiment):
        import pandas

        file = self._file(experiment)
        try:
            table = pandas.read_parquet(file)
        except Exception as error:  # pyarrow raises many kinds for a truncated file
            raise BadInput(f"{file} cannot be read as Parquet ({error})") from None
        if not set(ORIGIN) <= set(table.columns):
            raise BadInput(f"{file} has no column {ORIGIN[0]!r}; it was not written by trimreg reproduce")
        return table
