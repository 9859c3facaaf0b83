"""The solvers of graphical models."""

from __future__ import annotations

from ...solvers import EFFORTS, SOLVERS, SolverSpec

#: The solvers of graphical models: the default one is their own, the first-order ones are those above.
GRAPHICAL_SOLVERS = SOLVERS | {
    "mm": SolverSpec(
        "mm", f"{__name__}.solver", 5000, False, False, ("effort", "start"), {"effort": EFFORTS}
    ),
    # No acceleration: a point beyond the last two steps need not be positive definite.
    "prox": SolverSpec("prox", SOLVERS["prox"].module, 20_000, False, False, ("eta",)),
}
