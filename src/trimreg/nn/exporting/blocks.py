"""Making blocks smaller inside their network: heads and widths of attention, hidden units of perceptrons.

A group of a block contains all weights that compute it and all that read it, so a block gets smaller without
a change of any other layer. The network is not traced: it stays one of its own class, with smaller layers and
with the numbers of heads that its modules note for their ``forward``. Only ``nn.MultiheadAttention``, and
attention whose ``forward`` takes the width of its input for that of all heads, become layers of
:mod:`trimreg.nn.layers.slim`.
"""

from __future__ import annotations

import copy
import inspect
import math
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..groups.blocks import (
    NUMBER_OF_HEADS,
    WIDTH_OF_HEAD,
    Attention,
    Perceptron,
    attention_of,
    block_groups,
    block_of,
    blocks_of,
    linear_sizes,
    perceptron_of,
)
from ..groups.layer_groups import OF_BLOCKS, LayerGroups
from ..layers.slim import SlimAttention, SlimSelfAttention
from ..structure.spaces import ExportError
from ..structure.tracing import TOLERANCE, first_line, moved, relative_difference
from .masking import Asked
from .report import LayerSize

#: Names under which modules and configs note the sizes of their blocks.
_NAMES = {
    "heads": (*NUMBER_OF_HEADS, "encoder_attention_heads", "decoder_attention_heads"),
    "shared": ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "kv_heads"),
    "share": ("num_key_value_groups",),
    "width": WIDTH_OF_HEAD,
    "all": ("all_head_size", "split_size", "attn_dim", "inner_dim"),
    "units": ("intermediate_size", "n_inner", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim"),
}
#: The number of groups of each kind, among these.
_COUNTED = {"heads": "shared", "queries": "share", "width": "width", "units": "units"}


class Cut(NamedTuple):
    """A block that was made smaller: what is needed to do the same to another network of its class."""

    name: str
    kind: str
    keep: int
    slim: bool


class Blocks(NamedTuple):
    """A network with smaller blocks, their sizes, and what was done."""

    model: nn.Module
    sizes: dict[str, LayerSize]
    cuts: list[Cut]


def shrink_blocks(masked: nn.Module, asked: dict[str, Asked], inputs: tuple) -> Blocks:
    """A copy of the masked network with smaller blocks, for those of the layers asked that are blocks."""
    asked = {
        name: wanted
        for name, wanted in asked.items()
        if wanted.groups.kind in OF_BLOCKS and not isinstance(wanted.groups.module, nn.RNNBase)
    }
    if not asked:
        return Blocks(masked, {}, [])
    stays = _obstacles(masked, asked, inputs)
    masks = {name: _influential(masked, wanted) for name, wanted in asked.items() if name not in stays}
    masks = {name: mask for name, mask in masks.items() if not mask.all()}
    made, failure = _tried(masked, asked, masks, inputs, slim=False)
    if failure is not None:
        made, failure = _tried(masked, asked, masks, inputs, slim=True)
    if failure is not None:
        raise ExportError(
            f"{type(masked).__name__} fails with smaller blocks ({first_line(failure)}): its forward uses a "
            f"number that is not known; leave {', '.join(map(repr, masks))} out, or some of them"
        ) from failure
    sizes = {}
    for name, wanted in asked.items():
        kind, count = wanted.groups.kind, wanted.groups.count
        physical = _numbers(_block_at(made.model, name, kind))[_COUNTED[kind]]
        note = f"kept by {stays[name]}" if name in stays and physical > wanted.kept else ""
        sizes[name] = LayerSize(name, kind, count, wanted.kept, physical, note)
    return made._replace(sizes=sizes)


def _tried(
    masked: nn.Module, asked: dict[str, Asked], masks: dict[str, Tensor], inputs: tuple, slim: bool
) -> tuple[Blocks, Exception | None]:
    """A copy with smaller blocks, and its failure on the example if there is one."""
    model = copy.deepcopy(masked)
    cuts = [Cut(name, asked[name].groups.kind, int(mask.sum(-1).max()), slim) for name, mask in masks.items()]
    try:
        model = cut_blocks(model, cuts, masks)
        with torch.no_grad():
            model(*moved(inputs))
    except Exception as failure:  # whatever a forward of a user may raise
        return Blocks(model, {}, cuts), failure
    return Blocks(model, {}, cuts), None


def cut_blocks(model: nn.Module, cuts: list[Cut], masks: dict[str, Tensor] | None = None) -> nn.Module:
    """Make blocks smaller in place; without masks, each keeps its first groups. Returns the model."""
    noted = _noted(model)
    with torch.no_grad():
        for cut in cuts:
            groups = _groups_at(model, cut.name, cut.kind)
            if masks is None:
                mask = torch.zeros(*groups.replicas, groups.count, dtype=torch.bool)
                mask[..., : cut.keep] = True
            else:
                mask = masks[cut.name]
            model = _cut(model, cut, groups, mask)
    for config, before in noted.values():
        after = _noted(model)[id(config)][1]
        changed = before.get("all") != after.get("all")
        if changed and "width" in after and all(getattr(config, n, None) is None for n in WIDTH_OF_HEAD):
            config.head_dim = after["width"]  # without it, the width of the network over the number of heads
        _note(config, before, after)
    return model


# -- places -------------------------------------------------------------------------------------------------


def _parent(model: nn.Module, name: str) -> nn.Module | None:
    return model.get_submodule(name.rpartition(".")[0]) if name else None


def _block_at(model: nn.Module, name: str, kind: str) -> Attention | Perceptron:
    found = block_of(model.get_submodule(name), kind, _parent(model, name))
    if found is None:
        raise ValueError(f"layer {name!r} of the {type(model).__name__} has no groups {kind!r}")
    return found


def _groups_at(model: nn.Module, name: str, kind: str) -> LayerGroups:
    found = block_groups(name, model.get_submodule(name), kind, _parent(model, name))
    if found is None:
        raise ValueError(f"layer {name!r} of the {type(model).__name__} has no groups {kind!r}")
    return found


def _influential(model: nn.Module, wanted: Asked) -> Tensor:
    """The kept groups; of heads, only those that give values which are read."""
    groups, mask = _groups_at(model, wanted.groups.name, wanted.groups.kind), wanted.mask.clone()
    block: Any = _block_at(model, groups.name, groups.kind)
    if groups.kind == "heads" and block.others:
        values = [replace(slab, counted=True) for slab in block.others[-1].slabs(blocks_of(block.width))]
        read = [slab for slab in groups.slabs if slab.owner is block.out and slab.attribute == "weight"]
        for slabs in (values, read):
            mask &= replace(groups, slabs=tuple(slabs), replicas=()).norms().ne(0)
    if not mask.any():
        mask[..., 0] = True  # no layer has the width 0
    return mask


def _obstacles(model: nn.Module, asked: dict[str, Asked], inputs: tuple) -> dict[str, str]:
    """The reasons why heads of ``nn.MultiheadAttention`` cannot be removed, by layer."""
    modules = {n: w.groups.module for n, w in asked.items()}
    modules = {n: m for n, m in modules.items() if isinstance(m, nn.MultiheadAttention)}
    stays: dict[str, str] = {}

    def look(name):
        def note(module, args, kwargs):
            given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
            mask = given.get("attn_mask")
            if isinstance(mask, Tensor) and mask.dim() == 3:
                stays[name] = "its mask, which differs by head"
            if any(given[one].dim() != 3 for one in ("query", "key", "value")):
                stays[name] = "its input is not (batch, steps, width)"

        return note

    def run(without_weights: list) -> Any:
        handles = [m.register_forward_pre_hook(look(n), with_kwargs=True) for n, m in modules.items()]
        handles += [
            modules[n].register_forward_hook(lambda module, args, result: (result[0], None))
            for n in without_weights
        ]
        try:
            with torch.no_grad():
                return model(*moved(inputs))
        finally:
            for handle in handles:
                handle.remove()

    def needs_weights(names: list) -> bool:
        try:
            return not relative_difference(wanted, run(names)) <= TOLERANCE
        except Exception:  # whatever a forward of a user does with None
            return True

    if modules:
        wanted = run([])
        if needs_weights(list(modules)):
            stays |= dict.fromkeys(
                [n for n in modules if needs_weights([n])], "its attention weights are used"
            )
    for name, module in modules.items():
        if module.bias_k is not None or module.add_zero_attn:
            stays[name] = "add_bias_kv or add_zero_attn"
    return stays


# -- one block ----------------------------------------------------------------------------------------------


def take_entries(*pairs: tuple[LayerGroups, Tensor]) -> None:
    """Keep the entries of some groups, by their masks, in all parameters of their slabs."""
    lines: dict[tuple[nn.Module, str, int], Tensor] = {}
    for groups, mask in pairs:
        for slab in groups.slabs:
            size, flat = slab.tensor().shape[slab.axis], replace(slab, axis=0)
            line = lines.setdefault((slab.owner, slab.attribute, slab.axis), torch.ones(size))
            view = flat.view(line, groups.count)
            view.mul_(groups.spread(flat, mask.to(line.dtype), view.ndim))
    for (owner, attribute, axis), line in lines.items():
        take(owner, attribute, axis, line.nonzero().flatten())


def take(owner: nn.Module, attribute: str, axis: int, index: Tensor) -> None:
    """Replace a parameter by a selection of its entries along an axis."""
    old = getattr(owner, attribute)
    setattr(owner, attribute, nn.Parameter(old.index_select(axis, index), old.requires_grad))


def _cut(model: nn.Module, cut: Cut, groups: LayerGroups, mask: Tensor) -> nn.Module:
    block = _block_at(model, cut.name, cut.kind)
    before = _numbers(block)
    take_entries((groups, mask))
    for layer in {*block.layers(), block.out} - {block.module}:
        rows, columns = linear_sizes(layer)
        for name, size in (("out_features", rows), ("in_features", columns), ("nf", rows), ("nx", columns)):
            if hasattr(layer, name):
                setattr(layer, name, size)
    if isinstance(block, Perceptron):
        small: Any = replace(block, units=cut.keep)
    else:
        small = _smaller(block, cut)
    _note(block.module, before, _numbers(small))
    if isinstance(block.module, nn.MultiheadAttention):
        return _put(model, cut.name, _slim(small, SlimAttention))
    if cut.slim and isinstance(block, Attention) and block.others and len(set(block.layers())) == 1:
        return _put(model, cut.name, _slim(small, SlimSelfAttention))
    return model


def _smaller(block: Attention, cut: Cut) -> Attention:
    """The numbers of an attention after a cut. The scores stay what they were if its heads are narrower."""
    share = block.heads // block.shared
    if cut.kind == "heads":
        return replace(block, heads=cut.keep * share, shared=cut.keep)
    if cut.kind == "queries":
        return replace(block, heads=block.shared * cut.keep)
    # Scores are divided by the root of the width, as a factor that the module notes or in its forward.
    ratio = math.sqrt(cut.keep / block.width)
    for name in ("scaling", "scale"):
        if isinstance(getattr(block.module, name, None), float):
            setattr(block.module, name, getattr(block.module, name) / ratio)
    for slab in block.queries.slabs(blocks_of(1)):
        slab.view(slab.tensor(), block.heads * cut.keep).mul_(ratio)
    return replace(block, width=cut.keep)


def _slim(block: Attention, kind: type[SlimAttention]) -> SlimAttention:
    """A layer of our own with the weights of an attention; ``block`` has the numbers after the cut."""
    module, size = block.module, block.heads * block.width
    for child in module.children() if kind is SlimSelfAttention else ():
        if child not in (*block.layers(), block.out) and not isinstance(child, (nn.Identity, nn.Dropout)):
            raise ExportError(f"its {type(child).__name__} is not known")
    parts: list[list[Any]] = []
    for number, rows in enumerate((block.queries, *block.others)):
        pair = [getattr(rows.owner, name, None) for name in (rows.weight, rows.bias)]
        first = [number * size if p is not None and len(p) == 3 * size else 0 for p in pair]
        parts.append([None if p is None else p[f : f + size] for p, f in zip(pair, first, strict=True)])
    out, (kdim, vdim) = block.out, [weight.shape[1] for weight, _ in parts[1:]]
    made = kind(
        out.weight.shape[0], block.heads, block.width, kdim, vdim, parts[0][1] is not None,
        getattr(module, "batch_first", True), out.bias is not None,
    ).to(out.weight)  # fmt: skip
    for layer, (weight, bias) in zip((made.query, made.key, made.value), parts, strict=True):
        layer.weight.copy_(weight)
        if bias is not None:
            layer.bias.copy_(bias)
    made.out.load_state_dict(out.state_dict())
    return made.train(module.training).requires_grad_(out.weight.requires_grad)


def _put(model: nn.Module, name: str, module: nn.Module) -> nn.Module:
    if not name:
        return module
    setattr(_parent(model, name), name.rpartition(".")[2], module)
    return model


# -- the numbers that modules and configs note --------------------------------------------------------------


def _numbers(block: Attention | Perceptron) -> dict[str, int]:
    if isinstance(block, Perceptron):
        return {"units": block.units}
    all_heads, share = block.heads * block.width, block.heads // block.shared
    return {
        "heads": block.heads,
        "shared": block.shared,
        "share": share,
        "width": block.width,
        "all": all_heads,
    }


def _note(target: Any, before: dict[str, int], after: dict[str, int]) -> None:
    """Change the numbers that a module or a config notes, where they are as before or None."""
    for what in before.keys() & after.keys():
        for name in _NAMES[what] if before[what] != after[what] else ():
            now = getattr(target, name, False)
            if now is None or (type(now) is int and now == before[what]):
                setattr(target, name, after[what])


def _noted(model: nn.Module) -> dict[int, tuple[Any, dict[str, int]]]:
    """The configs of a model, each with the numbers that all its blocks have in common."""
    found: dict[int, tuple[Any, dict[str, set]]] = {}
    for module in model.modules():
        for block in (attention_of(module), perceptron_of(module)):
            config = getattr(getattr(block, "module", None), "config", getattr(model, "config", None))
            if block is not None and config is not None:
                for what, number in _numbers(block).items():
                    found.setdefault(id(config), (config, {}))[1].setdefault(what, set()).add(number)
    return {
        key: (config, {what: min(numbers) for what, numbers in sets.items() if len(numbers) == 1})
        for key, (config, sets) in found.items()
    }
