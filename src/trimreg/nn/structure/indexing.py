"""Steps that select, add or measure axes: ``x[:, :8]``, ``chunk``, ``x[..., None]``, ``x.shape``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, fx

from . import recurrent
from .catalog import reads_shape, role_of_call
from .spaces import Channels, Link

if TYPE_CHECKING:
    from .flow import Flow


@dataclass(eq=False)
class Selected:
    """A step ``x[index]`` that selects the channels ``which`` by the slice at ``place`` of its index."""

    node: fx.Node
    source: Channels
    which: Tensor
    index: tuple
    place: int
    split: bool  # whether it is written as a part of ``x.chunk(...)`` or ``x.split(...)``

    def tensor(self) -> fx.Node:
        """The step whose result is x."""
        return self.node.args[0].args[0] if self.split else self.node.args[0]


@dataclass(eq=False)
class Split:
    """The entries along an axis that the parts of a tensor have."""

    tensor: fx.Node
    axis: int
    parts: tuple[Tensor, ...]


def visit_item(flow: Flow, node: fx.Node, label: str) -> Channels | None:
    """The channels of ``x[...]``, or of a part of a tuple."""
    tensor, index = node.args
    split = isinstance(flow.inside.get(tensor), Split)
    if split:
        whole = flow.inside[tensor]
        part = whole.parts[index]
        tensor, index = whole.tensor, (slice(None),) * whole.axis
        index += (slice(int(part[0]), int(part[-1]) + 1),)
    elif tensor in flow.inside:
        return recurrent.visit_item(flow, node)
    source = flow.at.get(tensor)
    if source is None:
        if reads_shape(tensor):
            _read_sizes(flow, node, tensor, index, label)
        return None
    index = index if isinstance(index, tuple) else (index,)
    if not all(i is None or i is Ellipsis or isinstance(i, (int, slice)) for i in index):
        return flow.keep_all(node, label, unknown=True)
    if Ellipsis in index:
        place, named = index.index(Ellipsis), sum(i is not None for i in index) - 1
        between = (slice(None),) * (len(tensor.meta["shape"]) - named)
        index = (*index[:place], *between, *index[place + 1 :])
    old = new = 0  # the next axis of the tensor, and of the result
    for place, one in enumerate(index):
        if one is not None and old == source.axis and one != slice(None):
            if isinstance(one, int) or one.step not in (None, 1):
                return flow.keep_all(node, label, unknown=True)
            which = torch.arange(source.size)[one]
            target = flow.fresh(which.numel(), new, source.known[which], source.value[which])
            flow.links.append(Link(target.space, source.space, which[:, None]))
            flow.selected.append(Selected(node, source, which, index, place, split))
            return target
        if old == source.axis and one is not None:
            break
        old, new = old + (one is not None), new + (not isinstance(one, int))
    return Channels(source.space, new + source.axis - old, source.known, source.value)


def visit_split(flow: Flow, node: fx.Node, label: str) -> None:
    """Note the parts of ``chunk`` and ``split``; :func:`visit_item` finds their channels."""
    tensor = node.args[0]
    if flow.at[tensor] is None:
        return None
    size = node.args[1] if len(node.args) > 1 else None
    dim = node.args[2] if len(node.args) > 2 else node.kwargs.get("dim", 0)
    sizes = size if isinstance(size, (list, tuple)) else [size]
    if not all(isinstance(one, int) for one in (*sizes, dim)) or any(
        role_of_call(user.target) != "item" or type(user.args[1]) is not int for user in node.users
    ):
        return flow.keep_all(node, label, unknown=True)
    shape = tensor.meta["shape"]
    called = node.target if isinstance(node.target, str) else node.target.__name__
    parts = getattr(torch.arange(shape[dim]), called)(size)
    flow.inside[node] = Split(tensor, dim % len(shape), tuple(parts))
    return None


def visit_unsqueeze(flow: Flow, node: fx.Node) -> Channels | None:
    """The channels of a tensor with one axis more."""
    source = flow.at[node.args[0]]
    if source is None:
        return None
    dim = (node.args[1] if len(node.args) > 1 else node.kwargs["dim"]) % len(node.meta["shape"])
    return Channels(source.space, source.axis + (dim <= source.axis), source.known, source.value)


def _read_sizes(flow: Flow, node: fx.Node, shape_node: fx.Node, index, label: str) -> None:
    """Note a width that is read alone: it is replaced by that of the original network."""
    tensor = shape_node.args[0]
    channels, axes = flow.at[tensor], range(len(tensor.meta["shape"]))
    if channels is None:
        return
    if isinstance(index, int):
        if axes[index] == channels.axis:
            flow.sizes.append((node, channels.size))
    elif node.all_input_nodes[1:] or channels.axis in axes[index]:
        flow.keep_all(shape_node, label, unknown=True)  # several sizes at once


def visit_size(flow: Flow, node: fx.Node, label: str) -> None:
    """Note what reads the sizes of a tensor."""
    tensor = node.args[0]
    channels = flow.at.get(tensor)
    if channels is None:
        return None
    if node.op == "call_method" and len(node.args) > 1:
        if node.args[1] % len(tensor.meta["shape"]) == channels.axis:
            flow.sizes.append((node, channels.size))
    elif node.op == "call_function" and node.args[1] in ("device", "dtype", "ndim"):
        pass
    elif not reads_shape(node) or any(role_of_call(user.target) != "item" for user in node.users):
        return flow.keep_all(node, label, unknown=True)
    return None
