"""The hook that takes the penalty's step after the optimizer's.

The count of steps, the weights and the masks are tensors, and no value is asked of a device. So the step is
queued like any other kernel, and a training step that contains it can be captured in a CUDA graph, provided
that the optimizer is capturable; its learning rate may be a tensor.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .capture import Captured
from .fall import Fall
from .length import unwrapped_optimizer
from .packs import Pack
from .scores import ScoredGroups, watch
from .updates import exact_update, weighted_update

if TYPE_CHECKING:
    from .trimmed_group_l1 import TrimmedGroupL1

#: The penalties that act on each optimizer.
_ATTACHED: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


class Handle:
    """Detaches a penalty from its optimizer by ``remove()``, or at the end of a ``with`` block."""

    def __init__(self, penalty: TrimmedGroupL1, handles: list):
        self._penalty, self._handles = weakref.ref(penalty), handles

    def remove(self) -> None:
        """Detach the penalty; a second call does nothing."""
        for handle in self._handles:
            handle.remove()
        penalty = self._penalty()
        if penalty is not None and penalty.handle is self:
            penalty.handle = None
            for penalties in _ATTACHED.values():
                penalties.discard(penalty)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


def attach(penalty: TrimmedGroupL1, optimizer: torch.optim.Optimizer) -> Handle:
    """Register the penalty's step; see :meth:`trimreg.nn.TrimmedGroupL1.attach`."""
    optimizer = unwrapped_optimizer(optimizer)
    if not hasattr(optimizer, "register_step_post_hook"):
        raise TypeError(f"attach needs an optimizer of torch.optim; got {type(optimizer).__name__}")
    if penalty.handle is not None:
        raise ValueError(
            f"the penalty of the layers {list(penalty.layers)} is already attached; call its handle.remove()"
        )
    for other in _ATTACHED.get(optimizer, ()):
        taken = {id(slab.tensor()) for layer in other.layers.values() for slab in layer.slabs}
        for layer in penalty.layers.values():
            if any(id(slab.tensor()) in taken for slab in layer.slabs):
                raise ValueError(
                    f"layer {layer.name!r} has another penalty on this optimizer; remove() it first"
                )
    # A compiled optimizer calls the step without compiling it: it consists of a few kernels anyway.
    hook = torch.compiler.disable(Step(penalty, optimizer).after)
    watching = [
        *watch(penalty, optimizer),
        *(penalty.split.watch(penalty, optimizer) if penalty.split else ()),
    ]
    penalty.handle = Handle(penalty, [optimizer.register_step_post_hook(hook), *watching])
    _ATTACHED.setdefault(optimizer, weakref.WeakSet()).add(penalty)
    return penalty.handle


class Step:
    """The penalty's step, as a post-step hook of an optimizer."""

    def __init__(self, penalty: TrimmedGroupL1, optimizer: torch.optim.Optimizer):
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
                    problem = f"layer {layer.name!r}: the optimizer does not have its {slab.attribute}"
                    raise ValueError(f"{problem}; build it on model.parameters(), after moving the model")
                if "lr" not in optimizer.param_groups[place]:
                    raise ValueError(f"layer {layer.name!r}: its parameter group has no learning rate 'lr'")
                self.place[slab] = place
        self.filled: dict = {}
        drawn = any(pack.draws for pack in penalty.packs)
        self.graph = Captured() if penalty.cuda_graph and not penalty.sharded and not drawn else None

    @torch.no_grad()
    def after(self, optimizer: torch.optim.Optimizer, args: Any = None, kwargs: Any = None) -> None:
        """The hook."""
        self.penalty.follow_model_()
        if isinstance(self.penalty.h_schedule, Fall):
            self.penalty.h_schedule.look(optimizer)
        if self.penalty.split is not None:
            self.penalty.split.look(self.penalty)
        rates = [self.rate(pack, optimizer.param_groups) for pack in self.penalty.packs]
        ranks = self.penalty.calls % self.rank_every() == 0
        self.penalty.calls += 1
        # A fused optimizer takes its step under a gradient scaler and leaves the weights where this is 1.
        found_inf = getattr(optimizer, "found_inf", None)
        if found_inf is None and self.graph is not None and self.graph.usable(self.penalty.step):
            self.graph.run(lambda: self.take(rates, None, ranks), (ranks, *self.addresses(rates)))
            return
        skip = None if found_inf is None else found_inf.reshape(()).to(self.penalty.step.device) > 0
        self.take(rates, skip, ranks)

    def rank_every(self) -> int:
        """The number of steps between two rankings."""
        penalty = self.penalty
        if penalty.step.is_cuda and torch.cuda.is_current_stream_capturing():
            return 1  # the graph of a whole training step is the same at all steps
        if penalty.rank_every is None:
            return penalty.h_schedule.rank_every if isinstance(penalty.h_schedule, Fall) else 1
        return penalty.rank_every

    def take(self, rates: list, skip: Tensor | None, ranks: bool) -> None:
        """Take the step on all packs, except where ``skip`` is True."""
        penalty = self.penalty
        penalty.step.add_(1 if skip is None else (~skip).to(torch.int64))
        frozen = penalty.frozen
        if ranks and penalty.freeze_at is not None:
            frozen = frozen | (penalty.step >= penalty.freeze_at)
            if skip is not None:
                frozen = torch.where(skip, penalty.frozen, frozen)
        for pack, rate in zip(penalty.packs, rates, strict=True):
            if penalty.mode == "exact":
                exact_update(penalty, pack, rate, frozen, skip, ranks or not pack.hard)
            else:
                weighted_update(penalty, pack, rate, frozen, skip)
        if frozen is not penalty.frozen:
            penalty.frozen.copy_(frozen)

    def rate(self, pack: Pack, param_groups: list[dict]) -> float | Tensor:
        """The learning rate of the pack's rows: a number or tensor for all, or a column."""
        places = [self.place[layer.counted[0]] for layer in pack.layers.values()]
        rates = [param_groups[place]["lr"] for place in places]
        first = rates[0]
        single = all(rate is first for rate in rates)
        if single and (isinstance(first, Tensor) or self.graph is None):
            return first
        tensors, device = any(isinstance(rate, Tensor) for rate in rates), pack.rate.device
        if tensors or self.filled.get(pack) != (rates, device):  # numbers are copied only after a change
            for rows, rate in zip(pack.places.values(), rates, strict=True):
                pack.rate[rows] = rate.to(device, non_blocking=True) if isinstance(rate, Tensor) else rate
            self.filled[pack] = None if tensors else (rates, device)
        return pack.rate

    def addresses(self, rates: list) -> tuple[int, ...]:
        """Addresses of the tensors that a captured step reads and writes, apart from the penalty's own."""
        layers = self.penalty.layers.values()
        tensors = [slab.tensor() for layer in layers for slab in layer.slabs]
        tensors += [pack.norms for pack in self.penalty.packs]
        tensors += [layer.score.value for layer in layers if isinstance(layer, ScoredGroups)]
        tensors += [rate for rate in rates if isinstance(rate, Tensor)]
        return tuple(tensor.data_ptr() for tensor in tensors)
