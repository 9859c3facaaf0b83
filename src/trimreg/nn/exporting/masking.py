"""The reference of an export: a copy of the network in which the groups that are not kept are zero."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from ..groups.layer_groups import LayerGroups, Slab, is_known, layer_groups


@dataclass(frozen=True)
class Asked:
    """A layer with a requested size: its groups and how many it keeps."""

    groups: LayerGroups
    kept: int

    @property
    def slab(self) -> Slab:
        """The slab that gives the axis of the groups."""
        return self.groups.counted[0]


def refuse_unsupported(model: nn.Module, penalty: Any) -> None:
    """Raise for an ensemble, which has one size per replica, and for a model on the meta device."""
    named = [name for name, module in model.named_modules() if hasattr(module, "replica")]
    named += [name for name, g in (penalty.layers.items() if penalty is not None else ()) if g.replicas]
    if named:
        raise ValueError(f"layer {named[0]!r} is an ensemble; export a network of replica(i) of each layer")
    for name, parameter in model.named_parameters():
        if parameter.is_meta:
            raise ValueError(f"parameter {name!r} is on the meta device, so there are no weights to export")


def masked_copy(model: nn.Module, penalty: Any = None) -> tuple[nn.Module, dict[str, Asked]]:
    """A masked copy with plain layers, on the CPU and in evaluation mode, and the requested sizes.

    Without a penalty nothing is masked, and the requested size of a layer is its number of nonzero groups.
    """
    try:
        masked = copy.deepcopy(model).cpu().eval()
    except RuntimeError as failure:
        raise ValueError(
            f"{type(model).__name__} cannot be copied ({failure}); if a hook computes a weight, as in "
            "torch.nn.utils.prune, it must be made permanent first"
        ) from failure
    own = {id(module): name for name, module in model.named_modules()}
    if not any(True for _ in model.children()):  # a layer alone: a network of one layer
        masked, own = nn.Sequential(masked).eval(), {id(model): "0"}
    asked = {}
    if penalty is not None:
        masks = penalty.kept()
        for key, groups in penalty.layers.items():
            if any(id(module) not in own for module in (groups.module, *(s.owner for s in groups.slabs))):
                raise ValueError(f"layer {key!r} of the penalty is not part of this {type(model).__name__}")
            name = own[id(groups.module)]
            slabs = tuple(replace(s, owner=masked.get_submodule(own[id(s.owner)])) for s in groups.slabs)
            moved = replace(groups, name=name, module=masked.get_submodule(name), slabs=slabs)
            moved.scale_(masks[key].cpu())
            asked[name] = Asked(moved, int(masks[key].sum()))
    _make_plain(masked)
    if penalty is None:
        inside = {id(m.out_proj) for m in masked.modules() if isinstance(m, nn.MultiheadAttention)}
        for name, module in masked.named_modules():
            if is_known(module) and id(module) not in inside:
                groups = layer_groups(name, module)
                asked[name] = Asked(groups, int(groups.norms().ne(0).sum()))
    return masked, asked


def _make_plain(model: nn.Module) -> None:
    """Replace Bayesian and L0 layers by their plain form."""
    made: dict[nn.Module, nn.Module] = {}  # a layer with two names stays one layer
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if hasattr(module, "plain"):
            parent, _, leaf = name.rpartition(".")
            if module not in made:
                made[module] = module.plain().eval()
            setattr(model.get_submodule(parent), leaf, made[module])
