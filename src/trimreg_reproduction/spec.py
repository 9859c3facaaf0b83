"""The parts of an experiment: cells, a function from a cell to rows, charts, a figure and a verdict.

A cell is one unit of work. Its name contains all of its parameters, such as
``fig2/design=incoherent,p=128,k=8,n=50,replicate=3``, and its seed is a hash of the name. So a result does
not depend on the order in which cells run, on the machine, or on the other cells.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trimreg._files import BadInput
from trimreg.reports import Chart

__all__ = ["SIZES", "VERDICTS", "BadInput", "Cell", "Chart", "Experiment", "Together", "Verdict", "skipped"]

SIZES = ("quick", "full")
VERDICTS = ("reproduced", "partly", "not")


@dataclass(frozen=True)
class Cell:
    """One unit of work: the name of its experiment, and its parameters in order.

    Examples
    --------
    >>> from trimreg_reproduction.spec import Cell
    >>> cell = Cell.of("fig2", p=128, method="lasso", replicate=3)
    >>> cell.name, cell["p"]
    ('fig2/p=128,method=lasso,replicate=3', 128)
    >>> cell.seed("method") == Cell.of("fig2", p=128, method="mcp", replicate=3).seed("method")
    True
    """

    experiment: str
    parameters: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, experiment: str, **parameters: Any) -> Cell:
        return cls(experiment, tuple(parameters.items()))

    def __getitem__(self, key: str) -> Any:
        return dict(self.parameters)[key]

    @property
    def name(self) -> str:
        return self._name()

    def _name(self, without=()):
        parts = (f"{key}={value}" for key, value in self.parameters if key not in without)
        return f"{self.experiment}/{','.join(parts)}"

    def seed(self, *without: str) -> int:
        """The seed: a hash of the name. Cells that differ only in the parameters ``without`` share it."""
        digest = hashlib.sha256(self._name(without).encode()).digest()
        return int.from_bytes(digest[:8], "big") >> 1

    def rng(self, *without: str) -> np.random.Generator:
        """A random generator that starts from :meth:`seed`."""
        return np.random.default_rng(self.seed(*without))


@dataclass(frozen=True)
class Verdict:
    """Whether a claim of the paper holds in our results.

    Attributes
    ----------
    kind : {"reproduced", "partly", "not"}
    measured : str
        The measurements behind the verdict, with intervals, in a few sentences.
    table : list of dict
        The same numbers as rows of a table.
    """

    kind: str
    measured: str
    table: list[dict] = field(default_factory=list)

    def __post_init__(self):
        if self.kind not in VERDICTS:
            raise ValueError(f"kind must be one of {VERDICTS}; got {self.kind!r}")


def skipped(frame: Any) -> list[str]:
    """A sentence with the reasons why rows of a frame were skipped; none if there are no such rows."""
    reasons = sorted({str(reason) for reason in frame["skipped"].dropna()}) if "skipped" in frame else []
    return [f"Skipped: {'; '.join(reasons)}."] if reasons else []


@dataclass(frozen=True)
class Together:
    """How cells are run in batches on a device.

    Attributes
    ----------
    key : function of a cell to a string, or None
        Cells with the same key may share a batch; None for a cell that gains nothing from the device.
    run : function of a list of cells and the name of a device to a list with the rows of each cell
        A module-level function. Its rows equal those of the experiment's ``run`` up to rounding.
    size : int
        The number of cells in a batch.
    """

    key: Callable[[Cell], str | None]
    run: Callable[[list[Cell], str], list[list[dict]]]
    size: int = 25


@dataclass(frozen=True)
class Experiment:
    """An experiment of the paper, or one that goes beyond it.

    Attributes
    ----------
    name, title : str
    claim : str
        The claim of the paper, in our words.
    cells : function of a size ("quick" or "full") to a list of cells
    run : function of a cell to a list of rows
        A module-level function, because it is sent to other processes. A row is a dict of numbers, strings,
        bools, None, or lists of numbers, and depends on the cell alone.
    charts : function of a data frame of all rows to a list of charts
        The columns of the frame are the parameters of the cell and the entries of the row.
    figure : function of such a frame to a matplotlib figure
        The figure as the paper draws it; :mod:`.pictures` draws charts with matplotlib.
    judge : function of such a frame to a verdict
    together : Together, optional
        How cells run in batches if the user names a device.
    """

    name: str
    title: str
    claim: str
    cells: Callable[[str], list[Cell]]
    run: Callable[[Cell], list[dict]]
    charts: Callable[[Any], list[Chart]]
    figure: Callable[[Any], Any]
    judge: Callable[[Any], Verdict]
    together: Together | None = None
