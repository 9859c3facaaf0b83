r"""What groups are ranked by, where that is not their norm.

The penalty frees the h groups that matter most. Their norm is what the paper takes. Two others look at what a
group does in the network, as running means with memory m,

.. math:: s_g \leftarrow m s_g + (1 - m)\, v_g,

- "taylor": :math:`v_g = \langle \theta_g, \nabla_g L \rangle^2`, the square of what the loss would change to
  first order if the group were cut (Molchanov et al. 2019, "Importance estimation for neural network
  pruning"). Ranked by :math:`s_g`.
- "activity": :math:`v_g` is the mean square of the unit's input; ranked by :math:`\|\theta_g\| \sqrt{s_g}`,
  what the unit sends on. For input units; other groups are ranked by their norm.

A group that is zero has no product with its gradient, so what was cut stays cut under both.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from .groups import LayerGroups

RANKINGS = ("norm", "taylor", "activity")
MEMORY = 0.99


class Running:
    """A running mean that may move to another device."""

    def __init__(self, value: Tensor):
        self.value = value

    def add(self, new: Tensor) -> None:
        """Take in a new value."""
        self.value.lerp_(new.to(self.value.dtype).expand_as(self.value), 1.0 - MEMORY)


@dataclass(frozen=True)
class ScoredGroups(LayerGroups):
    """Groups with a score; made by :func:`scored`."""

    rank_by: str = "taylor"
    score: Running | None = field(default=None, compare=False)

    def importance(self, out: Tensor | None = None) -> Tensor:
        found = self.score.value.sqrt()
        if self.rank_by == "activity":
            found = found * self.norms().detach()
        return found if out is None else out.copy_(found)

    def watch(self, optimizer: torch.optim.Optimizer):
        """Keep the score up to date while training; returns the handle of the hook."""
        if self.rank_by == "activity":
            return self.module.register_forward_pre_hook(self._note_inputs)
        return optimizer.register_step_pre_hook(torch.compiler.disable(self._note_gradients))

    @torch.no_grad()
    def _note_inputs(self, module, args):
        if module.training:
            inputs = args[0].detach()
            leading = len(self.replicas)
            over = tuple(range(leading if inputs.ndim > leading + 1 else 0, inputs.ndim - 1))
            self.score.add(inputs.float().square().mean(over))

    @torch.no_grad()
    def _note_gradients(self, optimizer, args, kwargs):
        gradients = [slab.tensor().grad for slab in self.counted]
        if any(gradient is None for gradient in gradients):
            return
        total = 0.0
        for slab, gradient in zip(self.counted, gradients, strict=True):
            product = self.view(slab, slab.tensor().detach() * gradient)
            axes = self.inner_axes(slab, product)
            total = total + (product.sum(axes) if axes else product).to(self.score.value.dtype)
        self.score.add(total.square())


def scored(layer: LayerGroups, rank_by: str) -> LayerGroups:
    """The layer's groups, ranked otherwise.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from trimreg.nn.groups import layer_groups
    >>> from trimreg.nn.scores import scored
    >>> groups = scored(layer_groups("fc", nn.Linear(3, 2)), "taylor")
    >>> groups.importance()
    tensor([1., 1., 1.])
    """
    if rank_by == "norm" or (rank_by == "activity" and layer.kind != "in"):
        return layer
    like = layer.slabs[0].tensor()
    dtype = torch.promote_types(like.dtype, torch.float32)
    score = torch.ones(*layer.replicas, layer.count, dtype=dtype, device=like.device)
    return ScoredGroups(
        layer.name, layer.module, layer.kind, layer.count, layer.slabs, layer.replicas, rank_by=rank_by,
        score=Running(score),
    )  # fmt: skip
