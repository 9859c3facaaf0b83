"""The length of a training in steps of the optimizer, read from its learning-rate scheduler."""

from __future__ import annotations

import gc
from functools import partial
from typing import Any

import torch
from torch.optim import lr_scheduler

#: Where schedulers that end say when.
LENGTHS = {
    lr_scheduler.CosineAnnealingLR: "T_max",
    lr_scheduler.OneCycleLR: "total_steps",
    lr_scheduler.LinearLR: "total_iters",
    lr_scheduler.PolynomialLR: "total_iters",
}


def scheduler_of(optimizer: torch.optim.Optimizer) -> Any:
    """The learning-rate scheduler of an optimizer, the longest if there are several; None if none has an end.

    An optimizer does not know its schedulers, so they are searched among all objects. This is done only if a
    scheduler has left its mark, ``initial_lr``, in the optimizer.
    """
    if not any("initial_lr" in group for group in optimizer.param_groups):
        return None
    every = [one for one in gc.get_objects() if issubclass(type(one), lr_scheduler.LRScheduler)]
    found = [one for one in every if unwrapped_optimizer(getattr(one, "optimizer", None)) is optimizer]
    parts = {id(part) for one in found for part in getattr(one, "_schedulers", ())}
    ending = [one for one in found if id(one) not in parts and ticks(one)]
    return max(ending, key=ticks, default=None)


def unwrapped_optimizer(optimizer: Any) -> Any:
    """The optimizer inside the wrapper of a framework (Accelerate's wrapper is an Optimizer itself)."""
    while isinstance(getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = optimizer.optimizer
    return optimizer


def place_of(scheduler: Any) -> int:
    """The number of calls of ``scheduler.step()`` so far."""
    parts: Any = getattr(scheduler, "_schedulers", ())
    return scheduler.last_epoch if hasattr(scheduler, "last_epoch") else place_of(parts[0])


def ticks(scheduler: Any) -> int:
    """The number of calls of ``scheduler.step()`` in a whole training; 0 if the scheduler has no end.

    Examples
    --------
    >>> import torch
    >>> from torch.optim import lr_scheduler
    >>> from trimreg.nn.penalty.length import ticks
    >>> optimizer = torch.optim.SGD([torch.zeros(2)], lr=0.1)
    >>> ticks(lr_scheduler.CosineAnnealingLR(optimizer, T_max=30))
    30
    >>> ticks(lr_scheduler.StepLR(optimizer, step_size=30))
    0
    """
    parts: Any = getattr(scheduler, "_schedulers", ())
    if isinstance(scheduler, lr_scheduler.SequentialLR):
        return scheduler._milestones[-1] + ticks(parts[-1]) if ticks(parts[-1]) else 0
    if isinstance(scheduler, lr_scheduler.ChainedScheduler):
        return max(map(ticks, parts))
    if isinstance(scheduler, lr_scheduler.LambdaLR):  # of transformers, such as a cosine with warmup
        rules = [rule for rule in scheduler.lr_lambdas if isinstance(rule, partial)]
        return max((rule.keywords.get("num_training_steps", 0) for rule in rules), default=0)
    if isinstance(scheduler, lr_scheduler.LinearLR) and scheduler.end_factor >= scheduler.start_factor:
        return 0  # a warmup
    name = next((name for kind, name in LENGTHS.items() if isinstance(scheduler, kind)), None)
    return 0 if name is None else int(getattr(scheduler, name))
