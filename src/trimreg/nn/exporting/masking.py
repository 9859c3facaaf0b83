"""The network that an export must equal: a copy with the groups that are not kept set to zero."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ..penalty.groups import LayerGroups, Slab, is_known, layer_groups


@dataclass(frozen=True)
class Asked:
    """A layer whose size was asked for: its groups and how many it keeps."""

    groups: LayerGroups
    kept: int

    @property
    def slab(self) -> Slab:
        """The slab that says along which axis the groups lie."""
        return self.groups.counted[0]


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside ``torch.compile`` and ``DistributedDataParallel``."""
    while True:
        if hasattr(model, "_orig_mod"):
            model = model._orig_mod
        elif isinstance(model, (nn.parallel.DistributedDataParallel, nn.DataParallel)):
            model = model.module
        else:
            return model


def refuse_what_has_no_export(model: nn.Module, penalty) -> None:
    """An ensemble has as many sizes as replicas, and a model on the meta device has no weights."""
    named = [name for name, module in model.named_modules() if hasattr(module, "replica")]
    named += [name for name, g in (penalty.layers.items() if penalty is not None else ()) if g.replicas]
    if named:
        raise ValueError(
            f"layer {named[0]!r} holds an ensemble of networks; build the plain network from replica(i) of "
            "each layer and export that"
        )
    for name, parameter in model.named_parameters():
        if parameter.is_meta:
            raise ValueError(f"parameter {name!r} is on the meta device: there are no weights to export")


def masked_copy(model: nn.Module, penalty=None) -> tuple[nn.Module, dict[str, Asked]]:
    """A copy on the CPU, in evaluation mode, of plain layers, masked; and what was asked of its layers.

    Without a penalty nothing is masked, and every layer counts as asked to keep the groups that are not zero.

    Examples
    --------
    >>> from torch import nn
    >>> from trimreg.nn import TrimmedGroupL1
    >>> from trimreg.nn.exporting.masking import masked_copy
    >>> model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    >>> masked, asked = masked_copy(model, TrimmedGroupL1(model, keep={"2": 3}))
    >>> int(masked[2].weight.ne(0).any(0).sum()), int(model[2].weight.ne(0).any(0).sum()), asked["2"].kept
    (3, 5, 3)
    """
    try:
        masked = copy.deepcopy(model).cpu().eval()
    except RuntimeError as failure:
        raise ValueError(
            f"{type(model).__name__} cannot be copied ({failure}); a weight that a hook computes, as in "
            "torch.nn.utils.prune, must be made permanent first"
        ) from failure
    own = {id(module): name for name, module in model.named_modules()}
    if not any(True for _ in model.children()):  # a layer alone: a network of one layer
        masked, own = nn.Sequential(masked).eval(), {id(model): "0"}
    asked = {}
    if penalty is not None:
        masks = penalty.kept()
        for key, groups in penalty.layers.items():
            if any(
                id(module) not in own for module in (groups.module, *(slab.owner for slab in groups.slabs))
            ):
                raise ValueError(f"layer {key!r} of the penalty is no part of this {type(model).__name__}")
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
    """Layers that know their plain form (Bayesian, L0) are replaced by it."""
    made = {}  # a layer that has two names stays one layer
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if hasattr(module, "plain"):
            parent, _, leaf = name.rpartition(".")
            if module not in made:
                made[module] = module.plain().eval()
            setattr(model.get_submodule(parent), leaf, made[module])


def moved(inputs: tuple, device=None, dtype: torch.dtype | None = None) -> tuple:
    """Copies of the tensors of an example on a device; those of floating point in ``dtype`` if given.

    A network may write into its input, so every run gets tensors of its own.
    """

    def move(x):
        return x.detach().to(device=device, dtype=dtype if x.is_floating_point() else None, copy=True)

    return tuple(move(x) if isinstance(x, Tensor) else x for x in inputs)
