"""The schedule of a hard penalty that is given none: h falls by itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .length import place_of, scheduler_of, ticks

#: Where h falls in a training of known length: between these fractions.
SHARES = (0.05, 0.6)
#: If h falls over so many steps, the groups are ranked at every fourth.
LONG, SELDOM = 400, 4
#: A step that no training reaches.
NEVER = 2**40


def usual_steps(cut: int) -> tuple[int, int]:
    r"""The span in a training of unknown length, by the most groups that a layer loses.

    It ends at step :math:`85 \sqrt{cut}`, since larger layers need longer: against the best documented
    schedule 800 steps are enough for 77 groups and too few for 687 (``benchmarks.default_schedule``).

    Examples
    --------
    >>> from trimreg.nn.penalty.fall import usual_steps
    >>> usual_steps(77), usual_steps(687)
    ((37, 746), (111, 2228))
    """
    end = max(round(85 * cut**0.5), 1)
    return round(end / 20), end


class Fall:
    r"""Lets h fall by :math:`1 - (1 - t)^3`, as :class:`trimreg.nn.Ramp`, over a span that it finds itself.

    The span is that of :data:`SHARES` if the length of the training is told, or once the first steps of a
    learning-rate scheduler tell it; until then h waits. If there is neither, it is that of
    :func:`usual_steps`. Its two ends are tensors, so that a captured step follows them.
    """

    def __init__(self, device: torch.device, cut: int, end: int | None = None):
        self.usual = usual_steps(cut)
        self.begin, self.end = (torch.tensor(step, device=device) for step in self.usual)
        self.known = False
        self.rank_every = SELDOM
        self.calls = self.base = 0  # steps of the optimizer; place of the scheduler at the first of them
        self.scheduler: Any = None
        if end is not None:
            self.over_(round(end * SHARES[0] / SHARES[1]), end)

    def __call__(self, step: Tensor) -> Tensor:
        left = ((self.end - step) / (self.end - self.begin)).clamp(0.0, 1.0)
        return 1.0 - left**3

    def over_(self, begin: int, end: int, known: bool = True) -> None:
        """Set the span."""
        self.begin.fill_(begin)
        self.starts = begin
        self.end.fill_(max(end, begin + 1))
        self.rank_every = SELDOM if end - begin >= LONG else 1
        self.known = known

    def within_(self, steps: float, start: int = 0) -> None:
        """Set the span for a training of so many steps, of which ``start`` are over."""
        first, last = SHARES
        begin = max(round(first * steps), start)
        self.over_(begin, begin + round((last - first) / (1.0 - first) * (steps - begin)))

    def look(self, optimizer: torch.optim.Optimizer) -> None:
        """Learn the length, before each step of the penalty until it is known; this never asks the device.

        A scheduler tells how often it is stepped in all. How many steps of the optimizer that makes is known
        when it has been stepped once. If there is only one such step, it comes too late.
        """
        if self.known:
            return
        self.calls += 1
        if self.scheduler is None:
            self.scheduler = scheduler_of(optimizer)
            if self.calls == 1 and self.scheduler is not None:
                self.base = place_of(self.scheduler)
                self.over_(NEVER, NEVER + 1, known=False)
        captured = self.begin.is_cuda and torch.cuda.is_current_stream_capturing()
        if self.scheduler is None or captured or ticks(self.scheduler) - self.base < 2:
            begin, end = self.usual
            self.over_(self.calls - 1 + begin, self.calls - 1 + end)
        elif place_of(self.scheduler) > self.base:
            done = self.calls - 1
            each = done / (place_of(self.scheduler) - self.base)
            self.within_(each * (ticks(self.scheduler) - self.base), done)
        if self.known:
            self.scheduler = None

    def to_(self, device: torch.device) -> None:
        """Move to another device."""
        self.begin, self.end = self.begin.to(device), self.end.to(device)

    def state(self) -> Tensor:
        """All numbers of the state."""
        host = torch.tensor([self.known, self.calls, self.base], device=self.begin.device)
        return torch.cat([torch.stack([self.begin, self.end]), host])

    def load_(self, state: Tensor | None) -> None:
        """Take the numbers of a state; states without them were cut to ``keep`` at their first step."""
        begin, end, known, calls, base = (0, 1, 1, 0, 0) if state is None else state.tolist()
        self.over_(begin, end, bool(known))
        self.calls, self.base, self.scheduler = calls, base, None

    def __getstate__(self) -> dict:
        return {**self.__dict__, "scheduler": None}
