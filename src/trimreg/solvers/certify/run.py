"""The search with its clock: bounds over time, and the best point."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..driver import check_cancelled
from ..problem import Problem
from .proof import Proof
from .setup import Model
from .tree import Progress, Search


@dataclass
class Bounds:
    """The outcome of a search: bounds of the smallest objective, the best point, and the proof."""

    lower: float
    upper: float
    theta: np.ndarray
    nodes: int
    seconds: float
    history: list[tuple[float, float, float, int]]  # seconds, lower, upper, nodes
    proof: Proof
    closed: bool  # whether no node is left open
    interrupted: bool
    screened: int  # parts that the bound at the root has decided
    leaves: list[tuple[float, np.ndarray]]  # of a search for all near the best
    open_bound: float  # the least bound of an open node
    rounding: float  # differences of objectives that mean nothing


def bound(
    problem: Problem, start: np.ndarray, *, time_limit: float = 60.0, gap: float = 1e-3,
    max_nodes: int = 100_000, keep: bool = True, n_jobs: int = 1,
    callback: Callable[[Progress], None] | None = None,
) -> Bounds:  # fmt: skip
    """Search until the gap is closed, the time is over, or Ctrl-C.

    With a negative gap the leaves are the free sets that are so much above the best. The clock
    starts here, so that the time for Gram matrices and the first relaxation counts.
    """
    begun = time.perf_counter()
    model = Model(problem, start)
    search = Search(model.root, model.upper, model.improve, gap, max_nodes, model.rounding, keep, n_jobs)
    history: list[tuple[float, float, float, int]] = []
    lower, interrupted = -np.inf, False
    try:
        for reached in search.run():
            seconds = time.perf_counter() - begun
            lower = max(lower, reached.lower, model.least)
            if not history or (lower, reached.upper) != history[-1][1:3]:
                history.append((seconds, lower, reached.upper, reached.nodes))
            if callback is not None:
                callback(Progress(lower, reached.upper, reached.nodes, reached.open, seconds, reached.done))
            if seconds > time_limit or model.least >= search.cutoff():
                break
            check_cancelled()
    except KeyboardInterrupt:
        interrupted = True
    lower = min(max(lower, search.lower(), model.least), model.upper)
    seconds = time.perf_counter() - begun
    history.append((seconds, lower, model.upper, search.nodes))
    return Bounds(
        lower=lower, upper=model.upper, theta=model.best, nodes=search.nodes, seconds=seconds,
        history=history, proof=search.proof, closed=not search.heap, interrupted=interrupted,
        screened=search.screened_at_root, leaves=search.leaves,
        open_bound=min((one[0] for one in search.heap), default=np.inf), rounding=model.rounding,
    )  # fmt: skip
