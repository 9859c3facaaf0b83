"""Solvers by name. Each is imported when it is first used, so that nothing compiles at import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module

from .driver import Outcome, Step, run
from .problem import Problem
from .result import SolverResult

__all__ = [
    "EFFORTS",
    "SOLVERS",
    "Outcome",
    "Problem",
    "SolverResult",
    "SolverSpec",
    "Step",
    "get_solver",
    "run",
]


@dataclass(frozen=True)
class SolverSpec:
    """A solver and what it can do."""

    name: str
    module: str
    max_iter: int  # default number of steps
    trimmed_only: bool  # whether it is defined for trimmed penalties alone
    positive: bool  # whether it can keep theta >= 0
    options: tuple[str, ...]
    choices: Mapping[str, tuple] = field(default_factory=dict)  # what an option may be, where that is a list

    def iterate(self, problem, theta0, **options):
        """The solver's generator of steps; least squares on far data are solved on few rows first."""
        from . import few_rows as compressed

        solver = import_module(self.module)
        if compressed.pays(problem):
            return compressed.iterate(solver, problem, theta0, options, "w0" in self.options)
        return solver.iterate(problem, theta0, **options)


EFFORTS = ("low", "medium", "high")
_FLAG = (True, False)
_BCD_OPTIONS = ("w0", "eta", "tau", "record_stationarity")

SOLVERS = {
    spec.name: spec
    for spec in (
        SolverSpec("mm", f"{__name__}.mm.solver", 1000, False, True, ("effort",), {"effort": EFFORTS}),
        SolverSpec(
            "bcd",
            f"{__name__}.first_order.bcd",
            20_000,
            True,
            True,
            _BCD_OPTIONS,
            {"record_stationarity": _FLAG},
        ),
        SolverSpec(
            "dc",
            f"{__name__}.first_order.dc",
            20_000,
            True,
            True,
            ("eta", "ties"),
            {"ties": ("plain", "aware")},
        ),
        SolverSpec(
            "prox",
            f"{__name__}.first_order.prox",
            20_000,
            False,
            True,
            ("eta", "accelerate"),
            {"accelerate": _FLAG},
        ),
    )
}


def get_solver(name: str, registry: Mapping[str, SolverSpec] = SOLVERS) -> SolverSpec:
    """The solver of that name.

    Examples
    --------
    >>> from trimreg.solvers import get_solver
    >>> get_solver("bcd").options
    ('w0', 'eta', 'tau', 'record_stationarity')
    """
    if not isinstance(name, str) or name not in registry:
        raise ValueError(f"solver must be one of {sorted(registry)}; got {name!r}")
    return registry[name]
