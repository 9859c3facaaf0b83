r"""Scores that rank the groups instead of their norm.

The penalty frees the h groups that matter most. In the paper these are the groups of largest norm. Two other
scores measure what a group does in the network, by running means with memory m,

.. math:: s_g \leftarrow m s_g + (1 - m)\, v_g,

- "taylor": :math:`v_g = \langle \theta_g, \nabla_g L \rangle^2`, the squared change of the loss, to first
  order, if the group were removed (Molchanov et al. 2019, "Importance estimation for neural network
  pruning"). Groups are ranked by :math:`s_g`, which starts at 0.
- "activity": :math:`v_g` is the mean square of the unit's input. Groups are ranked by
  :math:`\|\theta_g\| \sqrt{s_g}`, the size of the unit's output; :math:`s_g` starts at 1. This is for input
  units; other groups are ranked by their norm.

The product of a zero group with its gradient is zero, so under "taylor" a group that was removed never
returns. Under "activity", as under the norm, it returns if one step of the optimizer makes it large enough.

The gradients of "taylor" are those of the step, the same in all processes of a data-parallel training. The
inputs of "activity" are those of one process, so use it in one process only. A compiled model does not look
for new hooks: attach a penalty with "activity" before the model's first call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..groups.layer_groups import LayerGroups
from .capture import Captured

if TYPE_CHECKING:
    from .trimmed_group_l1 import TrimmedGroupL1

RANKINGS = ("norm", "taylor", "activity")
MEMORY = 0.99


class Running:
    """A running mean that may move to another device."""

    def __init__(self, value: Tensor):
        self.value = value

    def add(self, new: Tensor, skip: Tensor | None = None) -> None:
        """Include a new value, except where ``skip`` is True."""
        new = new.to(self.value.dtype).expand_as(self.value)
        if skip is not None:
            new = torch.where(skip, self.value, new)
        self.value.lerp_(new, 1.0 - MEMORY)


class Watch:
    """A hook that updates a score; its copy, in a copied or saved model, does nothing."""

    def __init__(self, notice: Callable | None):
        self.notice = notice

    def __call__(self, *args):
        return None if self.notice is None else self.notice(*args)

    def __getstate__(self) -> dict:
        return {"notice": None}


@dataclass(frozen=True)
class ScoredGroups(LayerGroups):
    """Groups with a score; made by :func:`scored`."""

    rank_by: str = "taylor"
    score: Any = field(default=None, compare=False)  # Running

    def importance(self, out: Tensor | None = None) -> Tensor:
        if self.rank_by == "taylor":
            return torch.sqrt(self.score.value, out=out)
        return torch.mul(self.score.value.sqrt(), self.norms().detach(), out=out)

    def watch(self) -> Any:
        """Update the score "activity" during training; returns the handle of the hook."""
        return self.module.register_forward_pre_hook(Watch(self._note_inputs), with_kwargs=True)

    @torch.no_grad()
    def _note_inputs(self, module, args, kwargs):
        inputs = (args[0] if args else next(iter(kwargs.values()))).detach()
        if not module.training or inputs.numel() == 0:
            return
        # A linear layer has its features on the last axis, a convolution its channels before the image.
        leading, image = len(self.replicas), self.slabs[0].tensor().ndim - len(self.replicas) - 2
        features = inputs.ndim - 1 - image
        first = leading if features > leading else 0  # all replicas share an input without their axis
        over = [axis for axis in range(first, inputs.ndim) if axis != features]
        squares = inputs.float().square()
        self.score.add(squares.mean(over) if over else squares)


class Changes:
    """The hook that updates the score "taylor" of all layers before a step of the optimizer."""

    def __init__(self, penalty: TrimmedGroupL1):
        self.penalty = penalty
        self.graph = Captured() if penalty.cuda_graph and not penalty.sharded else None

    def before(self, optimizer, args, kwargs):
        """Update the score before the step, or after the first call of its closure if there is one."""
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None:
            self.note(optimizer)
            return None
        noted = False

        def with_note():
            nonlocal noted
            loss = closure()
            if not noted:  # LBFGS calls it again, at other weights
                self.note(optimizer)
                noted = True
            return loss

        if len(args) > 1:
            return (args[0], with_note, *args[2:]), kwargs
        return args, {**kwargs, "closure": with_note}

    @torch.no_grad()
    def note(self, optimizer: torch.optim.Optimizer) -> None:
        """Include the gradients of this step; layers without one keep their score."""
        self.penalty.follow_model_()
        # A fused optimizer gets the gradients of a scaled loss, also for a step that it will skip.
        scale, found_inf = getattr(optimizer, "grad_scale", None), getattr(optimizer, "found_inf", None)
        if self.graph is not None and self.graph.usable(self.penalty.step) and scale is None is found_inf:
            layers = self.penalty.layers.values()
            tensors = [slab.tensor() for layer in layers for slab in layer.counted]
            tensors += [tensor.grad for tensor in tensors]
            if not any(tensor is not None and tensor.is_sparse for tensor in tensors):
                tensors += [pack.scores for pack in self.penalty.packs]
                at = tuple(0 if tensor is None else tensor.data_ptr() for tensor in tensors)
                self.graph.run(lambda: self.add(None, None), at)
                return
        self.add(scale, found_inf)

    def add(self, scale: Tensor | None, found_inf: Tensor | None) -> None:
        """Add the squared changes of all layers to their scores."""
        for pack in self.penalty.packs:
            there = [name for name, layer in pack.layers.items() if pack.change_(layer, name)]
            change = pack.change
            if there and scale is not None:
                change.div_(scale.to(change.device))
            skip = None if found_inf is None else found_inf.reshape(()).to(change.device) > 0
            parts = [(pack.scores, change)]  # two kernels, however many layers there are
            if len(there) < len(pack.layers):
                parts = [(pack.of(pack.scores, name), pack.of(change, name)) for name in there]
            for score, new in parts:
                Running(score).add(new.square(), skip)


def watch(penalty: TrimmedGroupL1, optimizer: torch.optim.Optimizer) -> list:
    """Update the scores of a penalty during training; returns the handles of the hooks."""
    if penalty.rank_by == "taylor":
        return [optimizer.register_step_pre_hook(torch.compiler.disable(Changes(penalty).before))]
    return [layer.watch() for layer in penalty.layers.values() if isinstance(layer, ScoredGroups)]


def scored(layer: LayerGroups, rank_by: str) -> LayerGroups:
    """The layer's groups with the score ``rank_by``; as given if they are ranked by their norm."""
    if rank_by == "norm" or (rank_by == "activity" and layer.kind != "in"):
        return layer
    like = layer.slabs[0].tensor()
    dtype = torch.promote_types(like.dtype, torch.float32)
    # "taylor" starts at 0, since squares such as 1e-8 would be lost in the rounding of 1 for hundreds of
    # steps. "activity" starts at 1 for all inputs, so that the norm decides until inputs were seen.
    start = 0.0 if rank_by == "taylor" else 1.0
    score = torch.full((*layer.replicas, layer.count), start, dtype=dtype, device=like.device)
    return ScoredGroups(**vars(layer), rank_by=rank_by, score=Running(score))
