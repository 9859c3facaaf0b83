"""The reference of an export: a copy of the network in which the groups that are not kept are zero."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from ..groups.layer_groups import OF_BLOCKS, LayerGroups, Slab, is_known
from ..groups.recurrent import all_groups, is_recurrent, suffixes


@dataclass(frozen=True)
class Asked:
    """A layer with a requested size: its groups, and which of them it keeps.

    ``exact`` if the size was set with an example, so that the exported layer must have it. Then ``shared``
    lists the layers with the same channels, with the slab of each in the groups.
    """

    groups: LayerGroups
    mask: Tensor
    exact: bool = False
    shared: tuple[tuple[str, Slab], ...] = ()

    @property
    def kept(self) -> int:
        """How many groups the layer keeps; of groups inside heads, how many each head keeps."""
        return int(self.mask.sum(-1).max())

    @property
    def slab(self) -> Slab:
        """The slab that gives the axis of the groups."""
        return self.groups.counted[0]

    @property
    def by_input(self) -> bool:
        """Whether the groups are inputs of the layer."""
        return self.slab.axis == 1 and self.groups.kind != "channels"

    @property
    def unit(self) -> int:
        """The number of channels in a group; more than one behind a convolution with groups."""
        return self.slab.block if self.groups.kind == "channels" else 1


def refuse_unsupported(model: nn.Module, penalty: Any) -> None:
    """Raise for an ensemble, which has one size per replica, and for a model on the meta device."""
    named = [name for name, module in model.named_modules() if hasattr(module, "replica")]
    layers = penalty.layers if penalty is not None else {}
    named += [name for name, g in layers.items() if g.replicas and g.kind not in OF_BLOCKS]
    if named:
        raise ValueError(f"layer {named[0]!r} is an ensemble; export a network of replica(i) of each layer")
    for name, parameter in model.named_parameters():
        if parameter.is_meta:
            raise ValueError(f"parameter {name!r} is on the meta device, so there are no weights to export")


def copied(model: nn.Module) -> nn.Module:
    """A copy on the CPU and in evaluation mode."""
    try:
        return copy.deepcopy(model).cpu().eval()
    except RuntimeError as failure:
        raise ValueError(
            f"{type(model).__name__} cannot be copied ({failure}); if a hook computes a weight, as in "
            "torch.nn.utils.prune, it must be made permanent first"
        ) from failure


def as_network(model: nn.Module) -> nn.Module:
    """The model, or a network of one layer if it is a layer alone."""
    return model if any(True for _ in model.children()) else nn.Sequential(model).eval()


def plain_copy(model: nn.Module) -> nn.Module:
    """A copy with plain layers, on the CPU and in evaluation mode."""
    plain = as_network(copied(model))
    make_plain(plain)
    return plain


def masked_copy(model: nn.Module, penalty: Any = None) -> tuple[nn.Module, dict[str, Asked]]:
    """A masked copy with plain layers, on the CPU and in evaluation mode, and the requested sizes.

    Without a penalty nothing is masked, and the requested size of a layer is its number of nonzero groups.
    """
    layer = copied(model)
    masked = as_network(layer)
    own = (
        {id(module): name for name, module in model.named_modules()} if masked is layer else {id(model): "0"}
    )
    asked = {}
    if penalty is not None:
        masks = penalty.kept()
        for key, groups in penalty.layers.items():
            if any(id(module) not in own for module in (groups.module, *(s.owner for s in groups.slabs))):
                raise ValueError(f"layer {key!r} of the penalty is not part of this {type(model).__name__}")
            name = key if groups.coupled else own[id(groups.module)]
            if is_recurrent(groups.module) and len(suffixes(groups.module)) > 1:
                name = f"{name}.{key.rpartition('.')[2]}"
            slabs = tuple(replace(s, owner=masked.get_submodule(own[id(s.owner)])) for s in groups.slabs)
            module = masked.get_submodule(own[id(groups.module)])
            moved = replace(groups, name=name, module=module, slabs=slabs)
            moved.scale_(masks[key].cpu())
            shared = tuple(
                (own[id(s.owner)], there)
                for s, there in zip(groups.slabs, slabs, strict=True)
                if groups.coupled and s.attribute == "weight"
            )
            exact = getattr(penalty, "coupling", None) is not None and (
                groups.kind in ("channels", "in") or is_recurrent(module)
            )
            asked[name] = Asked(moved, masks[key].cpu(), exact, shared)
    make_plain(masked)
    if penalty is None:
        inside = {id(m.out_proj) for m in masked.modules() if isinstance(m, nn.MultiheadAttention)}
        for name, module in masked.named_modules():
            known = is_known(module) and id(module) not in inside
            if known and (is_recurrent(module) or not isinstance(module, nn.RNNBase)):
                for groups in all_groups(name, module):
                    asked[groups.name] = Asked(groups, groups.norms().ne(0))
    return masked, asked


def make_plain(model: nn.Module) -> None:
    """Replace Bayesian and L0 layers by their plain form; padded steps of encoders are computed, not 0."""
    made: dict[nn.Module, nn.Module] = {}  # a layer with two names stays one layer
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if isinstance(module, nn.TransformerEncoder):
            module.use_nested_tensor = False  # its fused path needs nn.MultiheadAttention
        if hasattr(module, "plain"):
            parent, _, leaf = name.rpartition(".")
            if module not in made:
                made[module] = module.plain().eval()
            setattr(model.get_submodule(parent), leaf, made[module])
