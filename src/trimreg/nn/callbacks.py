"""What the callbacks for training frameworks share: a penalty from the first step to the last.

The callbacks themselves are :class:`trimreg.nn.lightning.TrimmedPruning` and
:class:`trimreg.nn.transformers.TrimmedPruning`; each file imports its framework, this one does not.
"""

from __future__ import annotations

import inspect
import math
import numbers

import torch
from torch import nn

from .penalty.hook import inside
from .penalty.penalty import TrimmedGroupL1
from .penalty.resolve import unwrapped
from .penalty.schedules import Ramp


class Pruning:
    """Builds a :class:`trimreg.nn.TrimmedGroupL1` when a training begins, and finalizes it when it ends.

    Parameters
    ----------
    keep, alpha, groups, mode, **options
        Those of :class:`trimreg.nn.TrimmedGroupL1`, except for mode "subgradient", which needs a term of its
        own in the loss.
    during : pair of float, optional
        Fractions of the training: h comes down to ``keep`` between them, fast first and then slow, and the
        structure is frozen at the second. In place of ``h_schedule`` and ``freeze_at``, which count steps.

    Attributes
    ----------
    penalty : TrimmedGroupL1 or None
        None before the first training.

    Examples
    --------
    >>> import torch
    >>> from trimreg.nn.callbacks import Pruning
    >>> model = torch.nn.Linear(8, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> pruning = Pruning(keep={"": 3}, during=(0.1, 0.6))
    >>> pruning.begin(model, [optimizer], steps=100)
    >>> pruning.penalty.h_schedule, pruning.penalty.freeze_at
    (Ramp(begin=10, end=60, power=3), 60)
    >>> pruning.end()
    >>> int(pruning.penalty.kept()[""].sum())
    3
    """

    def __init__(self, keep, alpha=math.inf, groups="auto", mode="exact", *, during=None, **options):
        # A misspelt option is an error here, not hours later when the training begins.
        inspect.signature(TrimmedGroupL1).bind(None, keep, alpha, groups, mode, **options)
        if mode == "subgradient":
            raise ValueError(
                "mode 'subgradient' adds penalty.loss() to the loss, which a callback cannot do; build "
                "TrimmedGroupL1 yourself, attach it to the optimizer, and add its loss to yours"
            )
        self.during = checked_fractions(during)
        if during is not None and not {"h_schedule", "freeze_at"}.isdisjoint(options):
            raise ValueError("during stands in place of h_schedule and freeze_at; give one or the other")
        self.options = {"keep": keep, "alpha": alpha, "groups": groups, "mode": mode, **options}
        self.penalty = None
        self._handle = None

    def begin(self, model: nn.Module, optimizers, steps: float, state: dict | None = None) -> None:
        """Attach the penalty of ``model``, built now or before, and load its state if one is given."""
        self.let_go()
        if self.penalty is None or not is_of(self.penalty, model):
            self.penalty = TrimmedGroupL1(model, **self.options, **self._timing(steps))
        if state is not None:
            self.penalty.load_state_dict(state)
        self._handle = self.penalty.attach(holder(self.penalty, optimizers))

    def end(self) -> None:
        """Zero the groups that are not kept, fix the structure, and detach."""
        if self.penalty is not None:
            self.penalty.finalize_()
        self.let_go()

    def let_go(self) -> None:
        """Detach the penalty, if it is attached."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _timing(self, steps: float) -> dict:
        if self.during is None:
            return {}
        if not (math.isfinite(steps) and steps > 0):
            raise ValueError(
                f"during={self.during} needs a training of known length, and this one has no end ({steps} "
                "steps); set its number of epochs or steps, or give h_schedule and freeze_at in steps"
            )
        begin, end = (round(fraction * steps) for fraction in self.during)
        return {"h_schedule": Ramp(begin, max(end, 1)), "freeze_at": max(end, 1)}


def checked_fractions(during) -> tuple[float, float] | None:
    """``during`` as two fractions of a training in order.

    Examples
    --------
    >>> from trimreg.nn.callbacks import checked_fractions
    >>> checked_fractions([0.05, 0.5])
    (0.05, 0.5)
    """
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
    """Whether all layers of the penalty are this model's."""
    own = {id(unwrapped(module)) for module in model.modules()}
    return all(id(layer.module) in own for layer in penalty.layers.values())


def holder(penalty: TrimmedGroupL1, optimizers) -> torch.optim.Optimizer:
    """The optimizer that has the weights of the penalty's layers; the one there is, if there is only one."""
    optimizers = [inside(optimizer) for optimizer in optimizers]
    wanted = {id(slab.tensor()): layer.name for layer in penalty.layers.values() for slab in layer.counted}
    for optimizer in optimizers:
        has = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        if len(optimizers) == 1 or wanted.keys() <= has:
            return optimizer
    raise ValueError(
        f"none of the {len(optimizers)} optimizers has all of the layers {list(penalty.layers)}; use a "
        "callback for the layers of each"
    )
