"""Schedules of alpha and h: callables from the number of steps to a fraction in [0, 1]."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass

import torch

from .fall import Fall


@dataclass(frozen=True)
class Constant:
    """Full strength from the first step.

    Examples
    --------
    >>> from trimreg.nn import Constant
    >>> Constant()(7)
    1.0
    """

    def __call__(self, step: int | torch.Tensor) -> float | torch.Tensor:
        return torch.ones((), device=step.device) if isinstance(step, torch.Tensor) else 1.0


@dataclass(frozen=True)
class Ramp:
    r"""Rises from 0 at step ``begin`` to 1 at step ``end``, fast at first and then slowly:

    .. math:: 1 - (1 - t)^{power}, \qquad t = \mathrm{clip}\Bigl(\frac{step - begin}{end - begin}, 0, 1\Bigr).

    As an ``h_schedule`` it lets h fall from all groups to ``keep``. With ``power=3`` the fall is cubic, as
    the sparsity in Zhu and Gupta (2018), "To prune, or not to prune". If ``begin`` equals ``end``, it jumps
    from 0 to 1 at that step.

    Examples
    --------
    >>> from trimreg.nn import Ramp
    >>> ramp = Ramp(100, 200)
    >>> ramp(100), ramp(150), ramp(200), ramp(10_000)
    (0.0, 0.875, 1.0, 1.0)
    >>> import torch
    >>> ramp(torch.tensor(150))
    tensor(0.8750)
    """

    begin: int
    end: int
    power: float = 3

    def __post_init__(self) -> None:
        for name in ("begin", "end"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value):
                raise TypeError(f"Ramp's {name} must be a number of steps; got {value!r}")
        if not 0 <= self.begin <= self.end:
            raise ValueError(f"Ramp needs 0 <= begin <= end; got begin={self.begin!r}, end={self.end!r}")
        if not (isinstance(self.power, numbers.Real) and 0 < self.power < math.inf):
            raise ValueError(f"Ramp's power must be a positive number; got {self.power!r}")

    def __call__(self, step: int | torch.Tensor) -> float | torch.Tensor:
        span = self.end - self.begin
        if isinstance(step, torch.Tensor):
            if span == 0:
                return (step >= self.end).to(torch.float32)
            left = ((self.end - step) / span).clamp(0.0, 1.0)
        else:
            left = min(max((self.end - step) / span, 0.0), 1.0) if span else float(step < self.end)
        return 1.0 - left**self.power


def within(schedule: Callable, step: int | torch.Tensor) -> float | torch.Tensor:
    """The fraction of a schedule at a step, clipped to [0, 1].

    A size must not fall below ``keep``, nor a strength below 0. NaN counts as 0, since an error would have to
    wait for the device.
    """
    fraction = schedule(step)
    if isinstance(schedule, (Ramp, Constant, Fall)):
        return fraction
    if isinstance(fraction, torch.Tensor):
        return fraction.nan_to_num(nan=0.0).clamp(0.0, 1.0)
    return min(max(fraction, 0.0), 1.0) if fraction == fraction else 0.0
