"""Results that were exported: the Parquet tables of a folder, read in place of the store they came from."""

from __future__ import annotations

from pathlib import Path

from trimreg.reports.demo import BadInput

from .registry import EXPERIMENTS, get_experiment
from .spec import SIZES
from .store import Counts

_ORIGIN = ("cell", "cell_seconds", "cell_version", "cell_finished")


class Exported:
    """``NAME.parquet`` of a folder, by the names of the experiments; reads as a store does.

    The tables do not say at which size an experiment was run. It is the one whose cells they hold.

    Examples
    --------
    >>> import tempfile
    >>> from trimreg_reproduction.files import Exported
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Exported(folder).experiments(), Exported(folder).size("fig1")
    ([], None)
    """

    def __init__(self, folder):
        self.path = Path(folder)
        self._cells: dict[str, dict[str, list[str]]] = {}

    def experiments(self) -> list[str]:
        """Names of the experiments whose tables are there."""
        return [name for name in EXPERIMENTS if self._file(name).exists()]

    def size(self, experiment: str) -> str | None:
        """The size whose cells the table holds most of; None if there is no table."""
        if not self._file(experiment).exists():
            return None
        there = set(self._table(experiment)["cell"])
        shares = {size: len(there & set(names)) for size, names in self._plans(experiment).items()}
        return max(SIZES, key=lambda size: shares[size]) if any(shares.values()) else None

    def counts(self, experiment: str, size: str | None = None) -> Counts:
        """How many cells of the plan the table has; cells that failed are in no table."""
        size = self.size(experiment) if size is None else size
        planned = set(self._plans(experiment)[size])
        done = planned & set(self._table(experiment)["cell"])
        if not done:
            raise BadInput(f"{self._file(experiment)} has no {size} run; ask for another size")
        return Counts(len(planned), len(done), 0)

    def frame(self, experiment: str, size: str | None = None, *, provenance: bool = False):
        """The table, cells of the size alone; see :meth:`.store.Store.frame`."""
        size = self.size(experiment) if size is None else size
        table = self._table(experiment)
        table = table[table["cell"].isin(self._plans(experiment)[size])].reset_index(drop=True)
        return table if provenance else table.drop(columns=list(_ORIGIN))

    def _file(self, experiment):
        return self.path / f"{experiment}.parquet"

    def _plans(self, experiment):
        if experiment not in self._cells:
            one = get_experiment(experiment)
            self._cells[experiment] = {size: [cell.name for cell in one.cells(size)] for size in SIZES}
        return self._cells[experiment]

    def _table(self, experiment):
        import pandas

        file = self._file(experiment)
        try:
            table = pandas.read_parquet(file)
        except Exception as error:  # pyarrow has many for a file that is cut short
            raise BadInput(f"{file} cannot be read as Parquet ({error})") from None
        if not set(_ORIGIN) <= set(table.columns):
            raise BadInput(f"{file} has no column {_ORIGIN[0]!r}; it is no table of trimreg reproduce")
        return table
