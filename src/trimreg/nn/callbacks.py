"""The base of the callbacks for training frameworks: a penalty from the first step to the last.

The callbacks themselves are :class:`trimreg.nn.lightning.TrimmedPruning` and
:class:`trimreg.nn.transformers.TrimmedPruning`; each file imports its framework, this one does not.
"""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from .groups.resolve import unwrapped
from .penalty.hook import Handle
from .penalty.length import unwrapped_optimizer
from .penalty.schedules import Ramp
from .penalty.trimmed_group_l1 import TrimmedGroupL1


class Pruning:
    """Builds a :class:`trimreg.nn.TrimmedGroupL1` when training begins, and finalizes it when training ends.

    Parameters
    ----------
    keep, alpha, groups, mode, **options
        As in :class:`trimreg.nn.TrimmedGroupL1`, except for mode "subgradient", which needs a term in the
        loss.
    during : pair of float, optional
        Fractions of the training. Between them h falls to ``keep``, fast at first and then slowly, and at the
        second the structure is frozen. It replaces ``h_schedule`` and ``freeze_at``, which count steps. By
        default h of a hard penalty falls between 0.05 and 0.6.

    Attributes
    ----------
    penalty : TrimmedGroupL1 or None
        None before the first training.
    """

    def __init__(
        self,
        keep: Any,
        alpha: float | dict = math.inf,
        groups: str | Callable | dict = "auto",
        mode: str = "exact",
        *,
        during: tuple[float, float] | None = None,
        **options: Any,
    ):
        # A misspelled option is an error now, not when the training begins.
        inspect.signature(TrimmedGroupL1).bind(None, keep, alpha, groups, mode, **options)
        if mode == "subgradient":
            raise ValueError(
                "mode 'subgradient' needs penalty.loss() in the loss, which a callback cannot add; build "
                "TrimmedGroupL1 yourself, attach it to the optimizer, and add its loss to yours"
            )
        self.during = checked_fractions(during)
        if during is not None and not {"h_schedule", "freeze_at"}.isdisjoint(options):
            raise ValueError("during replaces h_schedule and freeze_at; give either during or these")
        self.options = {"keep": keep, "alpha": alpha, "groups": groups, "mode": mode, **options}
        self.penalty: TrimmedGroupL1 | None = None
        self._handle: Handle | None = None

    def begin(self, model: nn.Module, optimizers: Iterable, steps: float, state: dict | None = None) -> None:
        """Attach the penalty of ``model``, built now or before, and load its state if one is given."""
        self.detach()
        if self.penalty is None or not is_of(self.penalty, model):
            self.penalty = TrimmedGroupL1(model, **self.options, **self._timing(steps))
            if self.penalty.falls and "steps" not in self.options and 0 < steps < math.inf:
                self.penalty.tell_(int(steps))
        if state is not None:
            self.penalty.load_state_dict(state)
        self._handle = self.penalty.attach(optimizer_of(self.penalty, optimizers))

    def end(self) -> None:
        """Set the groups that are not kept to zero, fix the structure, and detach."""
        if self.penalty is not None:
            self.penalty.finalize_()
        self.detach()

    def detach(self) -> None:
        """Detach the penalty, if it is attached."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _timing(self, steps: float) -> dict:
        if self.during is None:
            return {}
        if not (math.isfinite(steps) and steps > 0):
            problem = f"during={self.during} needs a training of known length; got {steps} steps"
            raise ValueError(f"{problem}. Set its length, or give h_schedule and freeze_at in steps")
        begin, end = (round(fraction * steps) for fraction in self.during)
        return {"h_schedule": Ramp(begin, max(end, 1)), "freeze_at": max(end, 1)}


def checked_fractions(during: Any) -> tuple[float, float] | None:
    """``during`` as two increasing fractions in [0, 1]."""
    if during is None:
        return None
    try:
        begin, end = during
        right = all(isinstance(x, numbers.Real) for x in (begin, end)) and 0 <= begin <= end <= 1
    except (TypeError, ValueError):
        right = False
    if not right:
        raise ValueError(f"during must be two fractions of the training, such as (0.05, 0.5); got {during!r}")
    return float(begin), float(end)


def is_of(penalty: TrimmedGroupL1, model: nn.Module) -> bool:
    """Whether all layers of the penalty belong to this model."""
    own = {id(unwrapped(module)) for module in model.modules()}
    return all(id(layer.module) in own for layer in penalty.layers.values())


def optimizer_of(penalty: TrimmedGroupL1, optimizers: Iterable) -> torch.optim.Optimizer:
    """The optimizer with the weights of the penalty's layers; if there is only one optimizer, that one."""
    optimizers = [unwrapped_optimizer(optimizer) for optimizer in optimizers]
    wanted = {id(slab.tensor()): layer.name for layer in penalty.layers.values() for slab in layer.counted}
    for optimizer in optimizers:
        has = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        if len(optimizers) == 1 or wanted.keys() <= has:
            return optimizer
    problem = f"none of the {len(optimizers)} optimizers has all of the layers {list(penalty.layers)}"
    raise ValueError(f"{problem}; use one callback per optimizer")
