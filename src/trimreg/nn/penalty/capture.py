"""A few kernels that run as one CUDA graph, so that a small network does not wait for the host."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

#: Graphs that are kept, one for each set of addresses, and the number of captures before it is given up.
MOST_KEPT, MOST_CAPTURED = 4, 8


class Captured:
    """Runs a function as a CUDA graph from the second time on that its tensors lie at the same addresses.

    The first time is an ordinary run: it warms up what cannot be captured. Gradients often lie at a few
    addresses in turn, so a few graphs are kept.
    """

    def __init__(self) -> None:
        self.graphs: dict[tuple[int, ...], torch.cuda.CUDAGraph | None] = {}
        self.captured = 0

    def usable(self, like: Tensor) -> bool:
        """Whether a function of tensors on the device of ``like`` can be captured here and now."""
        return like.is_cuda and not torch.cuda.is_current_stream_capturing()

    def run(self, take: Callable[[], None], at: tuple[int, ...]) -> None:
        """Run ``take``, whose tensors lie ``at`` these addresses."""
        graph = self.graphs.get(at)
        if graph is None and at in self.graphs and self.captured < MOST_CAPTURED:
            graph = self.graphs[at] = self.capture(take)
        if graph is not None:
            graph.replay()
            return
        if at not in self.graphs:
            while len(self.graphs) >= MOST_KEPT:
                self.graphs.pop(next(iter(self.graphs)))
            self.graphs[at] = None
        take()

    def capture(self, take: Callable[[], None]) -> torch.cuda.CUDAGraph | None:
        """Record a run without running it; None, for good, if it waits for the device."""
        self.captured += 1
        graph = torch.cuda.CUDAGraph()
        try:
            # Other threads, such as those that pin batches, may go on meanwhile.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                take()
        except RuntimeError:
            self.captured = MOST_CAPTURED
            return None
        return graph
