"""torchao's pruning-aware training (``torchao.prototype.pat``) with its hard top-k, as a pruner.

Its optimizer prunes whole tensors, so each replica's weight is given to it as a separate parameter: a view of
the ensemble's. Forward and backward pass run as one ensemble. The step of the optimizer waits for the device,
so it is not part of a CUDA graph. Sizes are ratios in torchao, which cuts ``ceil(ratio * count)`` groups; so
rounding may cut one group more than asked for. The biases of cut channels stay, as constants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from trimreg.nn.penalty.rules import kept_largest

from .pruners import Pruner, as_columns, scale_slab_
from .recipes import Recipe


class Pat(Pruner):
    """Hard top-k by torchao, with a cubic schedule in the same window, fixed ("healing") at the same time."""

    static_gradients = True
    steps_outside = True

    def __init__(self, model: nn.Module, keep: Mapping[str, Sequence[int]], recipe: Recipe, steps: int):
        super().__init__(model, list(keep))
        self.keep = as_columns(keep, next(model.parameters()).device)
        self.begin = round(recipe.shrink_from * steps)
        heal = recipe.shrink_until if recipe.freeze_at is None else recipe.freeze_at
        self.heal = max(round(heal * steps), self.begin + 1)
        self._views: list[tuple[nn.Parameter, nn.Parameter, int]] = []

    def attach(self, optimizer, rate):
        """A PruneOptimizer over an optimizer of the same kind; ``optimizer`` itself is not used."""
        try:
            from torchao.prototype.pat import PruneOptimizer
        except ImportError as missing:
            raise ImportError("the peer torchao PAT needs torchao: pip install torchao") from missing

        layer_of = {id(layer.slabs[0].tensor()): name for name, layer in self.layers.items()}
        groups = []
        for group in optimizer.param_groups:
            decay = {"weight_decay": group["weight_decay"]}
            plain = [p for p in group["params"] if id(p) not in layer_of]
            if plain:
                groups.append({"params": plain} | decay)
            for parameter in group["params"]:
                name = layer_of.get(id(parameter))
                if name is None:
                    continue
                layer = self.layers[name]
                by_keep: dict[int, list] = {}
                for index, kept in enumerate(self.keep[name].flatten().tolist()):
                    view = nn.Parameter(parameter.detach()[index])
                    self._views.append((view, parameter, index))
                    by_keep.setdefault(kept, []).append(view)
                for kept, views in by_keep.items():
                    groups.append({"params": views, "group_type": f"Dim{layer.slabs[0].axis}Grouper",
                                   "prox_type": "MinSparsityConstraint",
                                   "min_sparsity": 1.0 - kept / layer.count,
                                   "min_sparsity_schedule": True} | decay)  # fmt: skip
        base = type(optimizer)(groups, lr=rate, fused=True, capturable=rate.is_cuda)
        for group in base.param_groups:
            group["lr"] = rate
        return PruneOptimizer(base, warmup_steps=self.begin, healing_start_step=self.heal)

    def bind_gradients(self):
        for view, parameter, index in self._views:
            view.grad = parameter.grad[index]

    @torch.no_grad()
    def masks(self):
        """The nonzero groups, or the largest ones as long as there are too many."""
        found = {}
        for name, layer in self.layers.items():
            norms = layer.norms()
            found[name] = kept_largest(norms, self.keep[name]) & (norms > 0)
        return found

    @torch.no_grad()
    def cut_(self, masks):
        """Cut weights alone: torchao leaves biases, and the network has learned to use them."""
        for name, mask in masks.items():
            layer = self.layers[name]
            for slab in layer.counted:
                scale_slab_(layer, slab, slab.tensor(), mask)
