"""Best-first branch and bound over which parts are free."""

from __future__ import annotations

import heapq
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from .kernels import FREE, NOT_FREE, UNDECIDED
from .proof import Proof

_CANDIDATES = 4  # parts whose two children are tried before one is chosen to branch on
_FREE_ENOUGH = 2  # parts decided free, for which a relaxation is built anew
_ROUND = 4  # nodes per thread in a round
_WORTHWHILE = 0.25  # of the undecided parts, that have to be decided before a relaxation is built anew
_MEMORY = 2 << 30  # bytes of relaxations beyond which nodes use those of their parents


class Node(NamedTuple):
    """Decisions about the parts of a relaxation, its solution, and the best bound of the node."""

    relaxation: Any
    state: np.ndarray
    solution: Any
    held: tuple  # a relaxation and a solution of it
    entry: int  # of the proof


@dataclass
class Progress:
    """What the search has reached."""

    lower: float
    upper: float
    nodes: int
    open: int
    seconds: float
    done: bool = False


@dataclass
class Search:
    """The bounds of a tree of nodes, from a root relaxation and an upper bound.

    ``improve(parts)`` fits these free parts and returns the objective of the best point known. A node is
    closed if its bound is at least ``cutoff()``.
    """

    root: Any  # a relaxation
    upper: float
    improve: Callable[[np.ndarray], float]
    gap: float
    max_nodes: int
    rounding: float = 0.0  # differences of objectives that mean nothing
    keep: bool = True  # whether the proof is recorded
    n_jobs: int = 1  # threads; more than one take the nodes of least bound in rounds
    proof: Proof = field(init=False)
    nodes: int = 0
    closed: float = np.inf  # the least bound among closed leaves
    heap: list = field(default_factory=list)
    screened_at_root: int = 0
    leaves: list = field(default_factory=list)  # value and free parts of every leaf below the cutoff
    begun: float = 0.0
    _deep: bool = False
    _tick: int = 0
    _memory: int = 0  # bytes of the relaxations of open nodes

    def __post_init__(self) -> None:
        self.proof = Proof(self.keep)
        self._lock = threading.RLock()  # of all that nodes share: bounds, proof, heap, fits

    def cutoff(self) -> float:
        """The bound above which a node is closed."""
        allowed = self.gap * abs(self.upper)
        return self.upper - (max(allowed, self.rounding) if self.gap >= 0.0 else allowed)

    def lower(self) -> float:
        """The bound of the whole problem, at most the objective of the best point."""
        if self._deep:
            least = min((one[0] for one in self.heap), default=np.inf)
        else:
            least = self.heap[0][0] if self.heap else np.inf
        return min(least, self.closed, self.upper)

    # -- the loop -------------------------------------------------------------------------------------

    def run(self) -> Iterator[Progress]:
        """Branch until the tree is closed; yields after every node. Best first; depth first if it is full."""
        self.begun = time.perf_counter()
        state = np.zeros(self.root.quadratic.parts.size, dtype=np.int8)
        self._enter(
            self.root, state, self.root.solve(state, *self.root.first, self.cutoff(), 60), None, -1, 0
        )
        yield self.progress()
        pool = ThreadPoolExecutor(self.n_jobs) if self.n_jobs > 1 else None
        try:
            while self.heap:
                nodes = self._next(1 if pool is None else _ROUND * self.n_jobs)
                try:
                    list(map(self._branch, nodes) if pool is None else pool.map(self._branch, nodes))
                except BaseException:
                    if pool is not None:
                        pool.shutdown(cancel_futures=True)
                    for node in nodes:  # they stay open, as the leaves that they were
                        self.proof.branch(node.entry, -1)
                        self.closed = min(self.closed, node.held[1].bound)
                    raise
                yield self.progress()
        finally:
            if pool is not None:
                pool.shutdown()

    def _next(self, count) -> list[Node]:
        """Up to that many open nodes to branch, of least bound or, if the tree is full, the last ones."""
        nodes: list[Node] = []
        while self.heap and len(nodes) < count:
            if not self._deep and len(self.heap) >= self.max_nodes:
                self._deep = True
                self.heap.sort(key=lambda one: -one[0])  # the last is taken: that of least bound
            elif self._deep and len(self.heap) < self.max_nodes // 2:
                self._deep = False
                heapq.heapify(self.heap)
            bound, _, node = self.heap.pop() if self._deep else heapq.heappop(self.heap)
            if bound >= self.cutoff():
                self.closed = min(self.closed, bound)
            else:
                nodes.append(node)
        return nodes

    def progress(self) -> Progress:
        seconds = time.perf_counter() - self.begun
        return Progress(self.lower(), self.upper, self.nodes, len(self.heap), seconds, not self.heap)

    # -- a node ---------------------------------------------------------------------------------------

    def _enter(self, relaxation, state, found, held, parent, side) -> None:
        """Decide what the solution of a node decides, and keep the node unless its bound closes it.

        ``held`` is the best bound so far, a relaxation with a solution; that of a parent holds here too.
        """
        with self._lock:
            self.nodes += 1
            first = self.nodes == 1
        while True:
            if held is None or found.bound > held[1].bound:
                held = relaxation, found
            bound = held[1].bound
            if bound >= self.cutoff():
                self._close(bound, parent, side, *held)
                return
            if not (state == UNDECIDED).any():
                self._leaf(relaxation, state, held, parent, side)
                return
            self._round(relaxation, state, found)
            verdicts = found.verdicts(self.cutoff())
            if verdicts.any():
                self.screened_at_root += int(np.count_nonzero(verdicts)) if first else 0
                ruled_out = found.opposite(verdicts)
                parent, side = self._close(ruled_out, parent, side, relaxation, found, verdicts), 0
                state = np.where(verdicts != 0, verdicts, state).astype(np.int8)
                theta = feasible(found.theta, relaxation.quadratic, state)
                found = relaxation.solve(state, theta, found.price, self.cutoff())
                continue
            following = self._rebuilt(relaxation, state)
            if following is None:
                break
            relaxation, state = following, np.zeros(following.quadratic.parts.size, dtype=np.int8)
            found = relaxation.solve(state, *relaxation.first, self.cutoff())
        with self._lock:
            self._tick += 1
            entry = self.proof.add(parent, side, *held)
            item = (held[1].bound, self._tick, Node(relaxation, state, found, held, entry))
            if self._deep:
                self.heap.append(item)
            else:
                heapq.heappush(self.heap, item)

    def _close(self, bound, *entry) -> int:
        """Add an entry to the proof that needs this bound; returns its number."""
        with self._lock:
            self.closed = min(self.closed, bound)
            return self.proof.add(*entry)

    def _fit(self, parts):
        """Try these free parts as an upper bound."""
        with self._lock:
            self.upper = min(self.upper, self.improve(parts))

    def _leaf(self, relaxation, state, held, parent, side):
        """Close a node in which every part is decided, by the value of its fit."""
        parts = np.concatenate([relaxation.free, relaxation.quadratic.parts[state == FREE]])
        self._fit(parts)
        exact = relaxation.decided(state, held[1])
        if exact[1].bound > held[1].bound:
            held = exact
        self._close(held[1].bound, parent, side, *held)
        if held[1].bound < self.cutoff():
            self.leaves.append((held[1].bound, parts))

    def _rebuilt(self, relaxation, state):
        """The relaxation of the undecided parts alone, if enough is decided."""
        decided_free = np.count_nonzero(state == FREE)
        decided = np.count_nonzero(state != UNDECIDED)
        if not relaxation.rebuilds or (decided_free < _FREE_ENOUGH and decided < _WORTHWHILE * state.size):
            return None
        left = np.count_nonzero(np.repeat(state == UNDECIDED, relaxation.quadratic.sizes))
        if self._memory + 16 * left**2 > _MEMORY:
            return None
        child = relaxation.child(state)
        if child is not None:
            self._memory += 16 * left**2
            weakref.finalize(child, self._released, 16 * left**2)
        return child

    def _released(self, count):
        self._memory -= count

    def _branch(self, node):
        """Put both children of a node into the tree, for the part whose children have the best bounds."""
        relaxation, state, found = node.relaxation, node.state, node.solution
        best, chosen, children, cutoff, here = -np.inf, -1, [], self.cutoff(), node.held[1].bound
        trial = relaxation.trials(state, found)
        for part in candidates(relaxation, state, found):
            pair = []
            for side in (FREE, NOT_FREE):
                child = state.copy()
                child[part] = side
                theta = feasible(found.theta, relaxation.quadratic, child)
                pair.append((child, trial(child, theta, cutoff)))
            rises = [rise if (rise := min(one.bound, cutoff) - here) > 1e-12 else 1e-12 for _, one in pair]
            if rises[0] * rises[1] > best:
                best, chosen, children = rises[0] * rises[1], part, pair
            if min(rises) >= cutoff - here:
                break
        self.proof.branch(node.entry, int(relaxation.quadratic.parts[chosen]))
        for side, (child, first) in zip((FREE, NOT_FREE), children, strict=True):
            first = relaxation.confirmed(child, first, cutoff)
            self._enter(relaxation, child, first, node.held, node.entry, side)

    def _round(self, relaxation, state, found):
        """Try the parts of largest share, with those that are free, as an upper bound."""
        quadratic = relaxation.quadratic
        count = quadratic.count - np.count_nonzero(state == FREE)
        top = largest_undecided(relaxation, state, found, count)[0]
        parts = np.concatenate([relaxation.free, quadratic.parts[state == FREE], quadratic.parts[top]])
        self._fit(parts)


def largest_undecided(relaxation, state, found, count) -> tuple[np.ndarray, np.ndarray]:
    """The undecided parts of largest share at the relaxation's solution, and their sizes."""
    squares = np.add.reduceat(found.theta**2, relaxation.quadratic.start[:-1])
    size = np.where(state == UNDECIDED, np.sqrt(squares * relaxation.delta), -1.0)
    order = np.argsort(-size, kind="stable")[:count]
    order = order[size[order] >= 0.0]
    return order, size[order]


def candidates(relaxation, state, found) -> np.ndarray:
    """The parts to try to branch on: the largest that are not 0, at least one."""
    parts, size = largest_undecided(relaxation, state, found, _CANDIDATES)
    return parts[: max(1, int(np.count_nonzero(size > 0.0)))]


def feasible(theta, quadratic, state):
    """theta with 0 for parts that may not be nonzero."""
    zero = (state == NOT_FREE) & np.isinf(quadratic.threshold)
    return np.where(np.repeat(zero, quadratic.sizes), 0.0, theta) if zero.any() else theta
