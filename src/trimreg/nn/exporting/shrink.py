"""Making a traced network smaller, with the results of :mod:`trimreg.nn.structure.flow`.

Layers keep the rows of the channels that stay and the columns that they read. Constants that are no longer
computed move into the bias of the layer that reads them. If a layer reads only some of the entries of its
input, a gather selects them.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn

from ..groups.recurrent import is_recurrent, part_names, recurrent_groups, suffixes
from ..layers.common import layer_like
from ..layers.slim import Gather, MappedEmbedding, Plane
from ..structure.catalog import CONVOLUTIONS, TRANSPOSED
from ..structure.flow import Flow
from ..structure.recurrent import Recurrent
from ..structure.spaces import Channels, Mix, zero_padded
from ..structure.tracing import remove_dead_steps
from .blocks import take, take_entries

#: A convolution gathers its input only if that removes at least a quarter, since gathering copies the tensor.
GATHER_BELOW = 0.75


@dataclass
class Kept:
    """The indices that stay of a layer, along each axis of its groups (None: all), and why."""

    rows: Tensor | None = None
    columns: Tensor | None = None
    kept_by: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def shrink(
    traced: fx.GraphModule, flow: Flow, by_input: frozenset[str], asked: frozenset[str]
) -> dict[str, Kept]:
    """Shrink ``traced`` in place; returns what stays of each layer, by name.

    Layers in ``by_input`` have their size counted by inputs, and always get exactly the inputs that they
    read. Layers in ``asked`` are in the result also if they are gone because no output depends on them.
    """
    kept = {
        name: Kept(kept_by=[reason], unknown=[reason] if unknown else [])
        for name, (reason, unknown) in flow.left.items()
    }
    with torch.no_grad():
        for mix in flow.mixes:
            kept[mix.node.target] = _shrink_mix(traced, flow, mix, mix.node.target in by_input)
        for node, module, channels in flow.followers:
            present = flow.present(channels)
            if present.numel() < channels.size:
                _put(traced, node.target, _take_channels(module, present))
            kept[node.target] = Kept(rows=present, kept_by=flow.spaces.reasons(channels.space))
        for node, module, channels in flow.embeddings:
            kept[node.target] = _shrink_embedding(traced, flow, node, module, channels)
        for recurrent in flow.recurrents:
            kept |= _shrink_recurrent(flow, recurrent)
        for node, start, end, channels in flow.reshapes:
            named_sizes = node.op != "call_module" and node.target in ("view", "reshape", torch.reshape)
            if named_sizes and flow.present(channels).numel() < channels.size:
                _replace_by_flatten(traced.graph, node, start, end)
        for node, ones, channels in flow.expansions:
            if flow.present(channels).numel() < channels.size:
                _replace_by_item(traced.graph, node, node.args[0], (Ellipsis, *[None] * ones))
        for one in flow.selected:
            present = flow.present(one.source)
            if present.numel() < one.source.size:
                here = (present >= one.which[0]) & (present <= one.which[-1])
                first = int((present < one.which[0]).sum())
                cut = slice(first, first + int(here.sum()))
                index = (*one.index[: one.place], cut, *one.index[one.place + 1 :])
                _replace_by_item(traced.graph, one.node, one.tensor(), index)
        for node, size in flow.sizes:
            node.replace_all_uses_with(size)  # the width in the original network
            traced.graph.erase_node(node)
    remove_dead_steps(traced.graph, traced)
    traced.graph.lint()
    traced.delete_all_unused_submodules()
    here = {name for name, _ in traced.named_modules()}
    here |= {part for name, m in traced.named_modules() if is_recurrent(m) for part in part_names(name, m)}
    for name in set(asked) - here:
        kept[name] = Kept(*[torch.arange(0)] * 2)  # no output depends on it
    traced.recompile()
    return kept


def _put(traced: fx.GraphModule, name: str, module: nn.Module) -> None:
    old = traced.get_submodule(name)
    parent, _, leaf = name.rpartition(".")
    trained = {part: p.requires_grad for part, p in old.named_parameters()}
    for part, parameter in module.named_parameters():
        parameter.requires_grad_(trained.get(part, any(trained.values())))  # frozen parameters stay frozen
    setattr(traced.get_submodule(parent), leaf, module.train(old.training))


def _add(traced: fx.GraphModule, name: str, module: nn.Module) -> str:
    """Add a module at the top level under a new name; returns the name."""
    name = name.replace(".", "_")
    while hasattr(traced, name):
        name += "_"
    traced.add_submodule(name, module.train(traced.training))
    return name


# -- layers that mix channels -----------------------------------------------------------------------------


def _shrink_mix(traced: fx.GraphModule, flow: Flow, mix: Mix, exact: bool) -> Kept:
    name, module, node = mix.node.target, mix.module, mix.node
    rows, present = flow.present(mix.target), flow.present(mix.source)
    read = flow.reads(mix).nonzero().flatten()
    if read.numel() == 0:
        read = present[:1]
    linear = isinstance(module, nn.Linear)
    gathers = read.numel() < present.numel() and (
        exact or linear or read.numel() <= GATHER_BELOW * present.numel()
    )
    columns = read if gathers else present
    folded = mix.source.known.clone()
    folded[columns] = False  # they are still computed
    folded = (folded & mix.source.value.ne(0)).nonzero().flatten()
    source_node = node.args[0] if node.args else node.kwargs["input"]
    plane = None
    transposed = isinstance(module, TRANSPOSED)
    weight = (module.weight.transpose(0, 1) if transposed else module.weight)[rows]
    bias = None if module.bias is None else module.bias[rows]
    if folded.numel():
        value = mix.source.value[folded]
        constant = torch.einsum("oj...,j->o...", weight[:, folded], value.to(weight.dtype))
        if zero_padded(module):
            plane = Plane(constant.unsqueeze(1), module.stride, module.padding, module.dilation)
        else:
            constant = constant if linear else constant.flatten(1).sum(1)
            bias = constant if bias is None else bias + constant
    unchanged = rows.numel() == mix.target.size and columns.numel() == mix.source.size and not folded.numel()
    if not unchanged:
        shrunk = weight[:, columns].transpose(0, 1) if transposed else weight[:, columns]
        _put(traced, name, layer_like(module, shrunk, bias))
    if gathers:
        place = torch.searchsorted(present, columns)
        with traced.graph.inserting_before(node):
            # counted from the end: any number of axes may come before the channels
            gather = _add(traced, f"{name}_gather", Gather(place, 1 - weight.dim()))
            node.replace_input_with(source_node, traced.graph.call_module(gather, (source_node,)))
    if plane is not None:
        with traced.graph.inserting_after(node):
            added = traced.graph.call_module(_add(traced, f"{name}_plane", plane), (source_node,))
        with traced.graph.inserting_after(added):
            total = traced.graph.call_function(operator.add, (node, added))
        node.replace_all_uses_with(total, delete_user_cb=lambda user: user is not total)
    reasons, unknown = (flow.spaces.reasons(mix.target.space, only) for only in (False, True))
    return Kept(rows, columns, kept_by=reasons, unknown=unknown)


def _take_channels(module: nn.Module, present: Tensor) -> nn.Module:
    """A batch norm, convolution by channels or groups, plane or PReLU of the channels ``present``."""
    if isinstance(module, CONVOLUTIONS):
        bias = None if module.bias is None else module.bias[present]
        groups = present.numel() * module.groups // module.out_channels
        return layer_like(module, module.weight[present], bias, groups=groups)
    if isinstance(module, Plane):
        return Plane(module.weight[present], module.stride, module.padding, module.dilation)
    if isinstance(module, nn.PReLU):
        made = nn.PReLU(present.numel(), dtype=module.weight.dtype)
        made.weight.copy_(module.weight[present])
        return made
    made = type(module)(
        present.numel(), module.eps, module.momentum, module.affine, dtype=module.running_mean.dtype
    )
    if isinstance(module, nn.SyncBatchNorm):
        made.process_group = module.process_group
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        getattr(made, name).copy_(tensor[present] if tensor.dim() else tensor)
    return made


def _replace_by_flatten(graph: fx.Graph, node: fx.Node, start: int, end: int) -> None:
    """Replace a reshape that names a width, ``view(-1, 800)``, by a flatten."""
    with graph.inserting_before(node):
        flat = graph.call_function(torch.flatten, (node.args[0], start, end))
    node.replace_all_uses_with(flat)
    graph.erase_node(node)


def _replace_by_item(graph: fx.Graph, node: fx.Node, tensor: fx.Node, index: tuple) -> None:
    """Replace a step whose arguments name a width by ``tensor[index]``."""
    with graph.inserting_before(node):
        item = graph.call_function(operator.getitem, (tensor, index))
    node.replace_all_uses_with(item)
    graph.erase_node(node)


# -- embeddings and recurrent layers ------------------------------------------------------------------------


def _shrink_embedding(
    traced: fx.GraphModule, flow: Flow, node: fx.Node, module: Any, channels: Channels
) -> Kept:
    columns = flow.present(channels)
    table = module.weight[:, columns]
    rows = table.ne(0).any(1).nonzero().flatten()
    if module.max_norm is not None:
        return Kept(rows=torch.arange(module.num_embeddings), kept_by=["its max_norm"])
    if rows.numel() < module.num_embeddings - 1:  # one row of zeros is needed anyway
        place = torch.full((module.num_embeddings,), rows.numel())
        place[rows] = torch.arange(rows.numel())
        made = MappedEmbedding(place, rows.numel(), columns.numel()).to(table.dtype)
        made.table.weight.copy_(torch.cat([table[rows], table.new_zeros(1, columns.numel())]))
        _put(traced, node.target, made)
    elif columns.numel() < module.embedding_dim:
        made = nn.Embedding(module.num_embeddings, columns.numel(), module.padding_idx, dtype=table.dtype)
        made.weight.copy_(table)
        _put(traced, node.target, made)
    return Kept(rows=rows, columns=columns)


def _shrink_recurrent(flow: Flow, recurrent: Recurrent) -> dict[str, Kept]:
    """Shrink a recurrent layer in place; returns what stays of each layer and direction."""
    module: Any = recurrent.module
    name, columns = recurrent.node.target, flow.present(recurrent.source)
    parts = recurrent_groups(name, module)
    stay = [flow.present(part) for part in recurrent.parts]
    masks = [torch.zeros(module.hidden_size, dtype=torch.bool).index_fill(0, units, True) for units in stay]
    take_entries(*zip(parts, masks, strict=True))
    for end in suffixes(module)[: len(parts) // module.num_layers]:
        take(module, f"weight_ih_{end}", 1, columns)
    module.input_size, module.hidden_size = columns.numel(), stay[0].numel()
    return {
        groups.name: Kept(rows=units, kept_by=flow.spaces.reasons(part.space))
        for groups, units, part in zip(parts, stay, recurrent.parts, strict=True)
    }
