"""One size for everything that can be trimmed: the layers that ``keep=0.5`` and a budget stand for."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..structure.coupling import Coupling, couple
from ..structure.tracing import TracingFailed
from .blocks import Attention, Perceptron, block_of
from .channels import WITH_CHANNELS, coupled_groups
from .layer_groups import OF_BLOCKS, LayerGroups, layer_groups
from .recurrent import is_recurrent, recurrent_groups

Found = dict[str, tuple[LayerGroups, Any]]


def everything(
    model: nn.Module, layers: dict[str, nn.Module], size: Any, kind: Any, example_input: Any
) -> tuple[Found, Coupling | None]:
    """All groups of a network that can be trimmed, each layer with the same ``size``.

    With an example these are the channels of all layers, the heads and units of blocks, and the hidden units
    of recurrent layers; the network's inputs and outputs stay. Without an example they are the heads and
    units of blocks, or in a network without attention the inputs of all linear layers.
    """
    if not isinstance(kind, str):
        raise TypeError(
            f"groups must be one name if keep is one value for all layers; got {kind!r}. Or name the layers "
            "in keep"
        )
    if kind == "channels" and example_input is None:
        raise ValueError("groups='channels' needs an example_input, to follow the channels through the model")
    if kind in ("in", "out", "rows"):
        classes = (nn.Embedding, nn.EmbeddingBag) if kind == "rows" else (nn.Linear, *WITH_CHANNELS[1:2])
        found = {name: layer_groups(name, m, kind) for name, m in layers.items() if isinstance(m, classes)}
        return _asked(found, size, kind, None), None
    blocks = {} if kind == "channels" else _blocks(layers, kind)
    if kind in OF_BLOCKS:
        return _asked(_groups_of(blocks, layers, kind), size, kind, None), None
    if example_input is None:
        return _asked(_without_example(layers, blocks, size), size, kind, None), None
    try:
        coupling = couple(model, example_input)
    except TracingFailed:
        if not blocks:
            raise
        return _asked(_groups_of(blocks, layers), size, kind, None), None
    traced = coupling.layers.keys()
    owners = {id(module): name for name, module in layers.items()}
    outside = {
        name: block
        for name, block in blocks.items()
        if isinstance(block, Attention) or traced.isdisjoint(owners[id(one)] for one in block.layers())
    }
    inside = {owners.get(id(one)) for block in outside.values() for one in block.layers()}
    by_channel = {
        name: size
        for name, shape in coupling.layers.items()
        if isinstance(layers[name], WITH_CHANNELS) and name not in inside
        if not shape.outputs.fixed and len(shape.outputs.spaces) == 1
    }
    joined = coupled_groups(coupling, layers, by_channel, set()) if by_channel else {}
    found = _groups_of(outside, layers)
    if kind == "auto":
        for name, module in layers.items():
            if is_recurrent(module):
                found |= {part.name: part for part in recurrent_groups(name, module)}
    return joined | _asked(found, size, kind, None if joined else coupling), coupling


def is_value_for_all(keep: Any) -> bool:
    """Whether ``keep`` is one value for all layers, and no dict."""
    return isinstance(keep, (int, float)) or hasattr(keep, "min_keep")


def _without_example(layers: dict[str, nn.Module], blocks: dict, size: Any) -> dict[str, LayerGroups]:
    needs = (nn.modules.conv._ConvNd, nn.RNNBase)
    hidden = [name for name, module in layers.items() if isinstance(module, needs)]
    if hidden:
        what = "convolution" if isinstance(layers[hidden[0]], needs[:1]) else "recurrent layer"
        raise ValueError(
            f"keep={size!r} for all layers needs an example_input: the {what} {hidden[0]!r} is coupled with "
            "other layers. Or name the layers in keep"
        )
    if any(isinstance(block, Attention) for block in blocks.values()):
        return _groups_of(blocks, layers)
    return {name: layer_groups(name, m) for name, m in layers.items() if isinstance(m, nn.Linear)}


def _blocks(layers: dict[str, nn.Module], kind: str) -> dict[str, Attention | Perceptron]:
    """All blocks with groups of a kind, each once, by the name of the first module that contains it."""
    found: dict[str, Attention | Perceptron] = {}
    taken: set[int] = set()
    for name, module in layers.items():
        block = block_of(module, kind) if kind in ("auto", *OF_BLOCKS) else None
        if block is not None and id(block.out) not in taken and not block.refusal(_kind(block, kind)):
            taken.add(id(block.out))
            found[name] = block
    return found


def _kind(block: Attention | Perceptron, kind: str) -> str:
    return kind if kind != "auto" else "heads" if isinstance(block, Attention) else "units"


def _groups_of(blocks: dict, layers: dict[str, nn.Module], kind: str = "auto") -> dict[str, LayerGroups]:
    return {name: layer_groups(name, layers[name], _kind(block, kind)) for name, block in blocks.items()}


def _asked(found: dict[str, LayerGroups], size: Any, kind: str, coupling: Coupling | None) -> Found:
    """The groups with their size; raise if there are none."""
    if not found and (coupling is not None or kind != "auto"):
        reasons = {} if coupling is None else coupling.reasons
        told = "; ".join(f"{name!r} stays because of {', '.join(why)}" for name, why in reasons.items())
        raise ValueError(f"keep={size!r}: no layer of the model can be trimmed{': ' + told if told else ''}")
    return {name: (groups, size) for name, groups in found.items()}
