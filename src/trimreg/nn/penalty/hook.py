"""The step after the optimizer's step.

It asks a device for nothing: the count of steps, the weights and the masks are tensors, and every choice is
made by ``torch.where``. So it is queued like any other kernel, and a training step that contains it can be
captured in a CUDA graph (with a capturable optimizer, whose learning rate may be a tensor). On a CPU only
:func:`trimreg.nn.penalty.rules.project` looks at a value, which costs nothing there.
"""

from __future__ import annotations

import math
import weakref

import torch
from torch import Tensor

from . import rules
from .metric import metric_step_
from .scores import ScoredGroups

#: Which penalties act on which optimizer.
ATTACHED: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


class Handle:
    """What :meth:`trimreg.nn.TrimmedGroupL1.attach` returns: ``remove()`` detaches the penalty."""

    def __init__(self, penalty, handles):
        self._penalty, self._handles = weakref.ref(penalty), handles

    def remove(self) -> None:
        """Detach the penalty; a second call does nothing."""
        for handle in self._handles:
            handle.remove()
        penalty = self._penalty()
        if penalty is not None and penalty._attached is self:
            penalty._attached = None
            for penalties in ATTACHED.values():
                penalties.discard(penalty)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.remove()


def inside(optimizer):
    """The optimizer that a framework has wrapped in another (Accelerate's wrapper is an Optimizer itself)."""
    while isinstance(getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = optimizer.optimizer
    return optimizer


def attach(penalty, optimizer) -> Handle:
    """Register the penalty's step; see :meth:`trimreg.nn.TrimmedGroupL1.attach`."""
    optimizer = inside(optimizer)
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
    for other in ATTACHED.get(optimizer, ()):
        taken = {id(slab.tensor()) for layer in other.layers.values() for slab in layer.slabs}
        for layer in penalty.layers.values():
            if any(id(slab.tensor()) in taken for slab in layer.slabs):
                raise ValueError(
                    f"layer {layer.name!r} has another penalty on this optimizer; call remove() on its handle"
                )
    # A compiled optimizer calls the step and does not look into it: it is made of a few kernels as it is.
    hook = torch.compiler.disable(Step(penalty, optimizer).after)
    watched = [layer.watch(optimizer) for layer in penalty.layers.values() if isinstance(layer, ScoredGroups)]
    handle = Handle(penalty, [optimizer.register_step_post_hook(hook), *watched])
    penalty._attached = handle
    ATTACHED.setdefault(optimizer, weakref.WeakSet()).add(penalty)
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
        self.graph = CapturedStep() if penalty.cuda_graph and penalty.metric == "plain" else None

    @torch.no_grad()
    def after(self, optimizer, args=None, kwargs=None) -> None:
        """The hook."""
        self.penalty._follow()
        rates = [self.rate(pack, optimizer.param_groups) for pack in self.penalty.packs]
        # A fused optimizer takes its step under a gradient scaler and leaves the weights where this is 1.
        found_inf = getattr(optimizer, "found_inf", None)
        if found_inf is None and self.graph is not None and self.graph.usable(self.penalty):
            self.graph.run(lambda: self.take(optimizer, rates, None), self.addresses(rates))
            return
        skip = None if found_inf is None else found_inf.reshape(()).to(self.penalty.step.device) > 0
        self.take(optimizer, rates, skip)

    def take(self, optimizer, rates, skip) -> None:
        """The step on all packs; nothing of it where ``skip`` holds."""
        penalty = self.penalty
        penalty.step.add_(1 if skip is None else (~skip).to(torch.int64))
        frozen = penalty.frozen
        if penalty.freeze_at is not None:
            frozen = frozen | (penalty.step >= penalty.freeze_at)
            if skip is not None:
                frozen = torch.where(skip, penalty.frozen, frozen)
        step = exact_step if penalty.mode == "exact" else weighted_step
        for pack, rate in zip(penalty.packs, rates, strict=True):
            step(penalty, pack, rate, frozen, skip, lambda layer, t: self.metric_step(layer, t, optimizer))
        if frozen is not penalty.frozen:
            penalty.frozen.copy_(frozen)

    def rate(self, pack, param_groups):
        """The learning rate of the pack's rows: a number or tensor for all, or a column."""
        places = [self.place[layer.counted[0]] for layer in pack.layers.values()]
        rates = [param_groups[place]["lr"] for place in places]
        first = rates[0]
        single = all(rate is first for rate in rates)
        if single and (isinstance(first, Tensor) or self.graph is None):
            return first
        if any(isinstance(rate, Tensor) for rate in rates):
            device = pack.rate.device
            self.filled.pop(pack, None)
            for rows, rate in zip(pack.places.values(), rates, strict=True):
                pack.rate[rows] = rate.to(device, non_blocking=True) if isinstance(rate, Tensor) else rate
        elif self.filled.get(pack) != (rates, pack.rate.device):
            # Copied to the device only when a schedule has moved them.
            for rows, rate in zip(pack.places.values(), rates, strict=True):
                pack.rate[rows] = rate
            self.filled[pack] = (rates, pack.rate.device)
        return pack.rate

    def addresses(self, rates) -> list[int]:
        """Where the tensors lie that a captured step reads and writes, apart from the penalty's own."""
        layers = self.penalty.layers.values()
        tensors = [slab.tensor() for layer in layers for slab in layer.slabs]
        tensors += [pack.norms for pack in self.penalty.packs]
        tensors += [layer.score.value for layer in layers if isinstance(layer, ScoredGroups)]
        tensors += [rate for rate in rates if isinstance(rate, Tensor)]
        return [tensor.data_ptr() for tensor in tensors]

    def metric_step(self, layer, t, optimizer):
        groups = {id(slab.tensor()): optimizer.param_groups[self.place[slab]] for slab in layer.counted}
        return metric_step_(layer, t, optimizer, groups)


def threshold_of(penalty, pack, rate) -> Tensor:
    """lr * alpha of each row."""
    threshold = penalty._strength(pack) * rate
    # inf * 0 where the learning rate warms up from 0
    return threshold.masked_fill_(torch.isinf(pack.alpha), math.inf) if pack.some_hard else threshold


def exact_step(penalty, pack, rate, frozen, skip, metric_step) -> None:
    """The h largest groups go free, the others take the proximal step."""
    r = pack.measure()
    first = pack.first if penalty.h_schedule is None else pack.positions < penalty._free(pack)
    torch.where(either(penalty.frozen, skip), pack.kept, rules.take_first(r, first), out=pack.kept)
    if pack.hard:
        if skip is None:
            pack.mask_("kept")
        else:
            torch.logical_or(pack.kept, skip, out=pack.alive)
            pack.mask_("alive")
        return
    threshold = threshold_of(penalty, pack, rate).masked_fill_(frozen, math.inf)
    whole = either(pack.kept, skip)
    if penalty.metric == "plain":
        rules.group_factor(r, threshold, out=pack.factor).masked_fill_(whole, 1.0)
        pack.shrink_()
        return
    threshold = threshold.expand(r.shape).masked_fill(whole, 0.0)
    for name, layer in pack.layers.items():
        metric_step(layer, pack.of(threshold, name))


def weighted_step(penalty, pack, rate, frozen, skip, metric_step) -> None:
    """The proximal step with the weights w, where the mode has one; then the step of w."""
    w, factor = pack.weights, pack.factor
    held = either(frozen, skip)
    r = pack.measure()
    if penalty.mode == "bcd" and penalty.metric == "plain":
        rules.group_factor(r, threshold_of(penalty, pack, rate) * w, out=factor)
        factor.masked_fill_(w == 0, 1.0)
    elif penalty.mode == "bcd":
        threshold = (threshold_of(penalty, pack, rate) * w).masked_fill_(held, 0.0)
        for name, layer in pack.layers.items():
            metric_step(layer, pack.of(threshold, name))
        r = pack.measure()
        factor.fill_(1.0)
    else:
        factor.fill_(1.0)
    if penalty.mask_ones:
        factor.masked_fill_(w >= 1, 0.0)
    if penalty.freeze_at is not None:
        largest = rules.take_first(torch.where(pack.valid, r * factor, -1.0), pack.first)
        torch.where(either(penalty.frozen, skip), pack.kept, largest, out=pack.kept)
    torch.where(frozen, pack.kept.to(factor.dtype), factor, out=factor)
    if skip is not None:
        factor.masked_fill_(skip, 1.0)
    pack.shrink_()
    r = penalty._drawn(pack) if pack.draws else r * factor
    torch.where(held, w, penalty._projected(pack, w, r, penalty._free(pack)), out=w)


def either(first: Tensor, second: Tensor | None) -> Tensor:
    """The one or the other mask, where there is another."""
    return first if second is None else first | second


class CapturedStep:
    """A step that runs as one CUDA graph once it has run as usual, and again so after tensors have moved."""

    def __init__(self):
        self.graph, self.at, self.refused = None, None, False

    def usable(self, penalty) -> bool:
        """Whether this step can be captured here and now."""
        if not penalty.step.is_cuda or any(pack.draws for pack in penalty.packs):
            return False
        return not torch.cuda.is_current_stream_capturing()

    def run(self, take, at) -> None:
        """Run ``take``, whose tensors lie ``at`` these addresses."""
        if at != self.at:  # the first time as usual: it warms up what may not be captured
            self.graph, self.at = None, at
            take()
            return
        if self.graph is None and not self.refused:
            self.capture(take)
        if self.graph is None:
            take()
        else:
            self.graph.replay()

    def capture(self, take) -> None:
        """Record the step; nothing of it is run. A schedule that waits for the device cannot be recorded."""
        graph = torch.cuda.CUDAGraph()
        try:
            # Other threads, such as those that pin batches, may go on meanwhile.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                take()
        except RuntimeError:
            self.refused = True
        else:
            self.graph = graph
