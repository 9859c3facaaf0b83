"""What an experiment is: cells, a function from a cell to rows, pictures, and a verdict.

A cell is one unit of work with a name that says all there is to know of it, such as
``fig2/design=incoherent,p=128,k=8,n=50,replicate=3``. Its seed is a hash of that name, so that a result does
not depend on the order in which cells run, on where they run, or on which others there are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

SIZES = ("quick", "full")
VERDICTS = ("reproduced", "partly", "not")


@dataclass(frozen=True)
class Cell:
    """One unit of work: the name of its experiment, and parameters in order.

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
    def of(cls, experiment: str, **parameters) -> Cell:
        return cls(experiment, tuple(parameters.items()))

    def __getitem__(self, key: str):
        return dict(self.parameters)[key]

    @property
    def name(self) -> str:
        return f"{self.experiment}/{self._text()}"

    def _text(self, without=()):
        return ",".join(f"{key}={value}" for key, value in self.parameters if key not in without)

    def seed(self, *without: str) -> int:
        """The seed: a hash of the name. Cells that differ in the parameters ``without`` alone share it."""
        digest = hashlib.sha256(f"{self.experiment}/{self._text(without)}".encode()).digest()
        return int.from_bytes(digest[:8], "big") >> 1

    def rng(self, *without: str) -> np.random.Generator:
        """A generator from :meth:`seed`."""
        return np.random.default_rng(self.seed(*without))


@dataclass(frozen=True)
class Verdict:
    """Whether a claim of the paper was met.

    Attributes
    ----------
    kind : {"reproduced", "partly", "not"}
    measured : str
        What was measured, with intervals, in a few sentences.
    table : list of dict
        The figures behind it, a row each.
    """

    kind: str
    measured: str
    table: list[dict] = field(default_factory=list)

    def __post_init__(self):
        if self.kind not in VERDICTS:
            raise ValueError(f"kind must be one of {VERDICTS}; got {self.kind!r}")


@dataclass(frozen=True)
class Chart:
    """A chart for the report: plain data, drawn there by a library.

    Attributes
    ----------
    title, x, y : str
        Title, and labels of the axes.
    lines : list of dict
        ``name``, ``x``, ``y`` and, where there are intervals, ``low`` and ``high``: lists of equal length.
    log_x, log_y : bool
        Whether an axis starts out logarithmic; a reader can switch it.
    """

    title: str
    x: str
    y: str
    lines: list[dict]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Together:
    """How cells of an experiment are run together on a device, which is faster with many problems at once.

    Attributes
    ----------
    key : function of a cell to a string, or None
        Cells of one key may be run together; None for a cell that has nothing to gain from a device.
    run : function of a list of cells, and of the name of a device, to a list with the rows of each
        A module-level function. Its rows are those of the experiment's ``run``, but for rounding.
    size : int
        Cells at a time.
    """

    key: Callable[[Cell], str | None]
    run: Callable[[list[Cell], str], list[list[dict]]]
    size: int = 25


@dataclass(frozen=True)
class Experiment:
    """An experiment of the paper, or beyond it.

    Attributes
    ----------
    name, title : str
    claim : str
        What the paper says, in our words.
    cells : function of a size ("quick" or "full") to a list of cells
    run : function of a cell to a list of rows
        A module-level function, for it is sent to other processes. A row is a dict of numbers, strings,
        bools, None, or lists of numbers. It depends on nothing but the cell.
    charts : function of a data frame of all rows to a list of charts
        The frame has the parameters of the cell and the entries of the row as columns.
    figure : function of such a frame to a matplotlib figure
        The picture as the paper draws it.
    judge : function of such a frame to a verdict
    together : Together, optional
        How cells are run where a device is asked for.
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
