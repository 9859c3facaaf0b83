"""The step after the optimizer's step.

It asks the host for nothing: the count of steps, the weights and the masks are tensors, and every choice is
made by ``torch.where``. So it is queued like any other kernel, and a training step that contains it can be
captured in a CUDA graph (with a capturable optimizer, whose learning rate may be a tensor).
"""

from __future__ import annotations

import math
import weakref

import torch
from torch import Tensor

from . import rules
from .metric import metric_step_


class Handle:
    """What :meth:`trimreg.nn.TrimmedGroupL1.attach` returns: ``remove()`` detaches the penalty."""

    def __init__(self, penalty, handle):
        self._penalty, self._handle = weakref.ref(penalty), handle

    def remove(self) -> None:
        """Detach the penalty; a second call does nothing."""
        self._handle.remove()
        penalty = self._penalty()
        if penalty is not None and penalty._attached is self:
            penalty._attached = None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.remove()


def attach(penalty, optimizer) -> Handle:
    """Register the penalty's step; see :meth:`trimreg.nn.TrimmedGroupL1.attach`."""
    while not isinstance(optimizer, torch.optim.Optimizer) and hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer  # what training frameworks wrap around it
    if not hasattr(optimizer, "register_step_post_hook"):
        raise TypeError(f"attach needs an optimizer of torch.optim; got {type(optimizer).__name__}")
    if penalty._attached is not None:
        raise ValueError(
            f"this penalty, of the layers {list(penalty.layers)}, is attached already; call remove() on the "
            "handle that attach returned first"
        )
    if penalty.metric == "optimizer" and not isinstance(optimizer, (torch.optim.Adam, torch.optim.AdamW)):
        raise ValueError(
            f"metric='optimizer' knows Adam and AdamW, not {type(optimizer).__name__}; take metric='plain'"
        )
    step = Step(penalty, optimizer)
    handle = Handle(penalty, optimizer.register_step_post_hook(step))
    penalty._attached = handle
    return handle


class Step:
    """The penalty's step, as a post-step hook of an optimizer."""

    def __init__(self, penalty, optimizer):
        self.penalty = penalty
        index = {
            id(parameter): place
            for place, group in enumerate(optimizer.param_groups)
            for parameter in group["params"]
        }
        # Places in param_groups, not the groups themselves: loading a state replaces those.
        self.place = {}
        for layer in penalty.layers.values():
            for slab in layer.counted:
                place = index.get(id(slab.tensor()))
                if place is None:
                    raise ValueError(
                        f"layer {layer.name!r}: the optimizer does not have its {slab.attribute}; build the "
                        "optimizer on the model's parameters, and after moving the model"
                    )
                if "lr" not in optimizer.param_groups[place]:
                    raise ValueError(f"layer {layer.name!r}: its parameter group has no learning rate 'lr'")
                self.place[slab] = place
        self.filled = {}

    @torch.compiler.disable
    @torch.no_grad()
    def __call__(self, optimizer, args=None, kwargs=None):
        penalty = self.penalty
        penalty._follow()
        # A fused optimizer takes its step under a gradient scaler and leaves the weights where this is 1.
        found_inf = getattr(optimizer, "found_inf", None)
        skip = None if found_inf is None else found_inf.reshape(()).to(penalty.step.device) > 0
        penalty.step.add_(1 if skip is None else (~skip).to(torch.int64))
        frozen = penalty.frozen
        if penalty.freeze_at is not None:
            frozen = frozen | (penalty.step >= penalty.freeze_at)
        for pack in penalty.packs:
            rate = self.rate(pack, optimizer.param_groups)
            take = exact_step if penalty.mode == "exact" else weighted_step
            take(penalty, pack, rate, frozen, skip, lambda layer, t: self.metric_step(layer, t, optimizer))
        if frozen is not penalty.frozen:
            penalty.frozen.copy_(frozen)

    def rate(self, pack, param_groups):
        """The learning rate of the pack's rows: one for all, or a column."""
        places = [self.place[layer.counted[0]] for layer in pack.layers.values()]
        rates = [param_groups[place]["lr"] for place in places]
        first = rates[0]
        if len(set(places)) == 1 or all(rate is first for rate in rates):
            return first
        if any(isinstance(rate, Tensor) for rate in rates):
            device = pack.rate.device
            column = torch.stack([torch.as_tensor(rate, device=device).reshape(()) for rate in rates])
            return column.repeat_interleave(pack.replicated, output_size=pack.rate.shape[0])[:, None]
        if self.filled.get(pack) != rates:  # copied to the device only when a schedule has moved them
            for rows, rate in zip(pack.places.values(), rates, strict=True):
                pack.rate[rows] = rate
            self.filled[pack] = rates
        return pack.rate

    def metric_step(self, layer, t, optimizer):
        groups = {id(slab.tensor()): optimizer.param_groups[self.place[slab]] for slab in layer.counted}
        return metric_step_(layer, t, optimizer, groups)


def threshold_of(penalty, pack, rate) -> Tensor:
    """lr * alpha of each row."""
    threshold = penalty._strength(pack) * rate
    # inf * 0 where the learning rate warms up from 0
    return torch.where(torch.isinf(pack.alpha), math.inf, threshold) if pack.some_hard else threshold


def exact_step(penalty, pack, rate, frozen, skip, metric_step) -> None:
    """The h largest groups go free, the others take the proximal step."""
    r = pack.measure()
    first = pack.first if penalty.h_schedule is None else pack.positions < penalty._free(pack)
    free = rules.take_first(r, first)
    held = penalty.frozen if skip is None else penalty.frozen | skip
    torch.where(held, pack.kept, free, out=pack.kept)
    if pack.hard:
        pack.shrink_(pack.kept if skip is None else pack.kept | skip)
        return
    threshold = torch.where(frozen, math.inf, threshold_of(penalty, pack, rate))
    unshrunk = pack.kept if skip is None else pack.kept | skip
    if penalty.metric == "plain":
        pack.shrink_(rules.group_factor(r, threshold).masked_fill_(unshrunk, 1.0))
        return
    threshold = threshold.expand(r.shape).masked_fill(unshrunk, 0.0)
    for name, layer in pack.layers.items():
        metric_step(layer, pack.of(threshold, name))


def weighted_step(penalty, pack, rate, frozen, skip, metric_step) -> None:
    """The proximal step with the weights w, where the mode has one; then the step of w."""
    w = pack.weights
    proximal = penalty.mode == "bcd"
    plain = penalty.metric == "plain"
    r = pack.measure()
    factor = torch.ones_like(w)
    if proximal:
        threshold = threshold_of(penalty, pack, rate) * w
        if plain:
            factor = torch.where(w > 0, rules.group_factor(r, threshold), factor)
        else:
            threshold = torch.where(frozen if skip is None else frozen | skip, 0.0, threshold)
            for name, layer in pack.layers.items():
                metric_step(layer, pack.of(threshold, name))
            r = pack.measure()
    if penalty.mask_ones:
        factor = torch.where(w >= 1, 0.0, factor)
    held = penalty.frozen if skip is None else penalty.frozen | skip
    if penalty.freeze_at is not None:
        top = rules.take_first(torch.where(pack.valid, r * factor, -1.0), pack.first)
        torch.where(held, pack.kept, top, out=pack.kept)
    factor = torch.where(frozen, pack.kept.to(factor.dtype), factor)
    if skip is not None:
        factor = torch.where(skip, 1.0, factor)
    pack.shrink_(factor)
    r = pack.measure(sampled=True) if pack.draws else r * factor
    moved = penalty._projected(pack, w, r, penalty._free(pack))
    torch.where(frozen if skip is None else frozen | skip, w, moved, out=w)
