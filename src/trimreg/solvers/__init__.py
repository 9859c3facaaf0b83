"""Solvers by name. Each is imported when it is first used, so that nothing compiles at import."""

from .driver import EFFORTS, SOLVERS, Outcome, SolverResult, SolverSpec, Step, get_solver, many_fits, run
from .problem import Problem

__all__ = [
    "EFFORTS", "SOLVERS", "Outcome", "Problem", "SolverResult", "SolverSpec", "Step", "get_solver",
    "many_fits", "run",
]  # fmt: skip
