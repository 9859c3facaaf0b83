"""The channels of recurrent layers: their hidden units, in the output and in the states.

A unit whose rows and biases are zero is zero at every step, if the initial state is. The output has the units
of the last layer, those of both directions one after the other. The states have one row for each layer and
direction, so they can be followed if there is only one, or if the network selects one by its number.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import fx, nn

from ..groups.recurrent import GateSlab, is_recurrent, recurrent_groups
from .spaces import Channels, Link

if TYPE_CHECKING:
    from .flow import Flow


@dataclass(eq=False)
class Recurrent:
    """A recurrent layer with the channels of its input, and its units by layer and direction."""

    node: fx.Node
    module: nn.Module
    source: Channels
    parts: list[Channels]


def visit_layer(flow: Flow, node: fx.Node, module: Any, label: str) -> None:
    """Note the channels that a recurrent layer reads and makes; :func:`visit_item` finds them again."""
    if not is_recurrent(module):
        return flow.keep_all(node, label, unknown=True)
    if len(node.args) != 1 or node.kwargs:
        return flow.keep_all(node, f"{label} with an initial state")
    if any(user.target is not operator.getitem or user.args[1] not in (0, 1) for user in node.users):
        return flow.keep_all(node, f"{label}, whose output and states are used together")
    last = len(node.args[0].meta["shape"]) - 1
    source = flow.channels_on(node.args[0], last, label)
    ways = 1 + module.bidirectional
    reads = torch.zeros(source.size, dtype=torch.bool)
    parts = []
    for place, groups in enumerate(recurrent_groups(node.target, module)):
        rows = [replace(slab, counted=True) for slab in groups.slabs if isinstance(slab, GateSlab)]
        zero = replace(groups, slabs=tuple(rows)).norms().eq(0)
        parts.append(flow.fresh(module.hidden_size, last, zero))
        flow.spaces.need(parts[-1].space, ~zero)
        if place < ways:
            reads |= rows[0].tensor().ne(0).any(0)
    flow.spaces.need(source.space, reads & ~(source.known & source.value.eq(0)))
    flow.recurrents.append(Recurrent(node, module, source, parts))
    output = parts[-1]
    if ways == 2:
        output = flow.fresh(2 * module.hidden_size, last, torch.cat([part.known for part in parts[-2:]]))
        for way, part in enumerate(parts[-2:]):
            index = way * module.hidden_size + torch.arange(module.hidden_size)
            flow.links.append(Link(part.space, output.space, index[:, None]))
    states = [parts, parts] if isinstance(module, nn.LSTM) else parts
    flow.inside[node] = [output, states]
    return None


def visit_item(flow: Flow, node: fx.Node) -> Channels | None:
    """The channels of the output of a recurrent layer, or of one of its states."""
    source, place = node.args
    found = flow.inside[source][place]
    if isinstance(found, Channels):
        return Channels(found.space, len(node.meta["shape"]) - 1, found.known, found.value)
    if len(found) == 1 and isinstance(found[0], Channels):  # the state of the only layer: one row
        return Channels(found[0].space, len(node.meta["shape"]) - 1, found[0].known, found[0].value)
    flow.inside[node] = found
    for user in node.users:
        if user.target is not operator.getitem or type(user.args[1]) is not int:
            for part in found[0] if isinstance(found[0], list) else found:
                flow.spaces.keep_all(part.space, "the states of several layers, which are used together")
    return None


def equalize(flow: Flow) -> bool:
    """Need as many units in each part of a layer as in the largest; whether that changed anything."""
    changed = False
    for recurrent in flow.recurrents:
        needed = [flow.spaces.needed(part.space) for part in recurrent.parts]
        size = max(1, *(int(units.sum()) for units in needed))
        for part, units in zip(recurrent.parts, needed, strict=True):
            more = units | ((~units).cumsum(0) <= size - units.sum())
            changed |= flow.spaces.need(part.space, more)
    return changed
