r"""Which channels of a network belong together, before it is trained: :func:`couple`.

A channel is computed by one row of a convolution or a linear layer. If layers are added, concatenated,
normalized or convolved channel by channel, the same channel has rows in several layers, and it can be removed
only from all of them. :class:`trimreg.nn.structure.flow.Flow` follows the channels through the traced
network; here the entries of all its spaces that are linked become one *channel*, and the channels that occur
in the same places form a :class:`ChannelSpace`. Flattening an image of 5 x 5 pixels makes 25 entries of a
channel. A convolution with groups ties the channels of a block, so there a "channel" is a block.

The sizes of all layers are functions of the numbers of channels that are kept, and so is the cost:

.. math::

    \#parameters = rest + \sum_l out_l (pair_l\, in_l + single_l + extra_l), \qquad
    \#MACs = rest' + \sum_l positions_l\, out_l (pair_l\, in_l + single_l),

with :math:`out_l = fixed + \sum_s multiplicity_s\, kept_s` of :class:`Extent`, and :math:`in_l` likewise.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from ..groups.recurrent import part_names
from ..layers.slim import Plane
from .catalog import BATCH_NORMS, CONVOLUTIONS, LINEAR, TRANSPOSED
from .cost import macs, parameters
from .flow import Flow
from .tracing import TracingFailed, checked_inputs, faithful_trace, moved, outputs_of, tensors_in

IRREGULAR = "its channels, which are not in order in all layers that they are coupled with"
OUTPUT = "the network's output"
STUCK = "a step behind them that does not leave a channel of zeros constant"
UNITS = "a recurrent layer, whose units are groups of their own"


@dataclass(frozen=True)
class Place:
    """Where channels stand in a layer: channel c is the ``block`` entries from ``start + c * block`` on.

    ``side`` is "out" for the rows that compute the channels and "in" for the columns that read them.
    """

    layer: str
    side: str
    start: int = 0
    block: int = 1


@dataclass(frozen=True)
class ChannelSpace:
    """Channels that are removed together from all layers of a list.

    Parameters
    ----------
    name : str
        The first layer that computes these channels and no others; or a range of rows, ``"conv[0:8]"``.
    count : int
        The number of channels; of blocks behind a convolution with groups.
    places : tuple of Place
        In the order of the network: all rows that compute the channels, also of batch norms and depthwise
        convolutions, and all columns that read them.
    """

    name: str
    count: int
    places: tuple[Place, ...]

    @property
    def outputs(self) -> tuple[Place, ...]:
        """The places of side "out"."""
        return tuple(place for place in self.places if place.side == "out")

    @property
    def entries(self) -> int:
        """The number of rows of a channel in the layer that gives the name: what ``keep`` counts."""
        layer = self.name.partition("[")[0]
        return sum(place.block for place in self.outputs if place.layer == layer)

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers that compute the channels, each once."""
        return tuple(dict.fromkeys(place.layer for place in self.outputs))


@dataclass(frozen=True)
class Extent:
    """The width of a layer on one side: entries that always stay, and entries per channel of spaces."""

    fixed: int
    spaces: dict[str, int]

    def size(self, kept: Mapping[str, int]) -> int:
        """The width if the spaces keep these numbers of channels."""
        return self.fixed + sum(entries * kept[name] for name, entries in self.spaces.items())


@dataclass(frozen=True)
class LayerShape:
    """A layer, its widths, and what it costs; see the formula of this module.

    ``pair`` is the number of weights for each pair of an output and an input, ``single`` that of a depthwise
    or grouped convolution for each output, ``extra`` that of the parameters of an output that are only added
    or scale it. ``positions`` is the number of places of a sample at which the weights are applied.
    """

    name: str
    outputs: Extent
    inputs: Extent
    pair: int
    single: int
    extra: int
    positions: int

    def parameters(self, kept: Mapping[str, int]) -> int:
        """The number of parameters at these sizes."""
        return self.outputs.size(kept) * (self.pair * self.inputs.size(kept) + self.single + self.extra)

    def macs(self, kept: Mapping[str, int]) -> int:
        """The number of multiply-accumulates per sample at these sizes."""
        each = self.pair * self.inputs.size(kept) + self.single
        return self.positions * self.outputs.size(kept) * each


@dataclass(frozen=True)
class Coupling:
    """The coupled channels of a network, and its cost as a function of how many are kept.

    Parameters
    ----------
    spaces : dict of str to ChannelSpace
        By name, in the order of the network.
    layers : dict of str to LayerShape
        All layers whose cost depends on channels, also those that stay whole.
    reasons : dict of str to tuple of str
        Why (some) channels of a layer must stay.
    rest : tuple of int
        Parameters and multiply-accumulates of everything else.
    units : dict of str to tuple of Place
        Where the hidden units of recurrent layers are read, by layer and direction.
    """

    spaces: dict[str, ChannelSpace]
    layers: dict[str, LayerShape]
    reasons: dict[str, tuple[str, ...]]
    rest: tuple[int, int] = (0, 0)
    units: dict[str, tuple[Place, ...]] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """The number of channels of each space: the sizes of the whole network."""
        return {name: space.count for name, space in self.spaces.items()}

    def parameters(self, kept: Mapping[str, int]) -> int:
        """The number of parameters if each space keeps so many channels; spaces that are not named, all."""
        return self.rest[0] + sum(
            layer.parameters(self.counts | dict(kept)) for layer in self.layers.values()
        )

    def macs(self, kept: Mapping[str, int]) -> int:
        """The number of multiply-accumulates per sample if each space keeps so many channels."""
        return self.rest[1] + sum(layer.macs(self.counts | dict(kept)) for layer in self.layers.values())


def couple(model: nn.Module, example_input: Any) -> Coupling:
    """The coupled channels of a network that ``torch.fx`` can trace, from a run on an example.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from trimreg.nn.structure.coupling import couple
    >>> net = nn.Sequential(
    ...     nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(),
    ...     nn.Conv2d(8, 4, 3), nn.Flatten(), nn.Linear(64, 10),
    ... )
    >>> coupling = couple(net, torch.randn(2, 1, 8, 8))
    >>> coupling.counts, coupling.spaces["0"].layers, coupling.layers["5"].inputs.spaces
    ({'0': 8, '3': 4}, ('0', '1'), {'3': 16})
    >>> coupling.parameters({}), coupling.parameters({"0": 4, "3": 2}), coupling.reasons["5"]
    (1038, 452, ("the network's output",))
    """
    inputs = checked_inputs(example_input)
    if any(hasattr(module, "reshard") for module in model.modules()):
        raise NotImplementedError(
            "an example_input needs whole parameters, but fully_shard has divided these over processes; give "
            "sizes by layer without an example_input, or use DistributedDataParallel"
        )
    network = copy.deepcopy(model).cpu().eval()
    halves = any(p.dtype in (torch.float16, torch.bfloat16) for p in network.parameters())
    network, inputs = (
        network.float() if halves else network,
        moved(inputs, "cpu", torch.float32 if halves else None),
    )
    outputs_of(network, inputs)
    try:
        traced = faithful_trace(network, inputs)
    except TracingFailed as failure:
        raise TracingFailed(
            f"{failure}, or leave out example_input: the channels are not coupled then"
        ) from failure
    tensors = [tensor for tensor in tensors_in(inputs) if tensor.dim()]
    found = _Channels(Flow(traced, solve=False), len(tensors[0]) if tensors else 1)
    spaces = found.spaces()
    while stuck := found.stuck(spaces):
        found.stay(stuck)
        spaces = found.spaces()
    coupling = Coupling(spaces, found.shapes(spaces), found.reasons(), units=found.units())
    rest = parameters(network) - coupling.parameters({}), macs(network, inputs) - coupling.macs({})
    return replace(coupling, rest=rest)


def computing(module: nn.Module) -> list[tuple[str, int]]:
    """The parameters of a layer that compute its channels, and their axis of channels."""
    if isinstance(module, (nn.PReLU, Plane)):  # zero for zero
        return []
    axis = int(isinstance(module, (*TRANSPOSED, nn.Embedding)))
    found = (("weight", axis), ("bias", 0))
    return [(name, axis) for name, axis in found if getattr(module, name, None) is not None]


def _some(count: int) -> int:
    """How many channels of a space are not zero in the test of a space."""
    return (count + 1) // 2


class _Channels:
    """The entries of the spaces of a flow, joined to channels, and the layers where they stand."""

    def __init__(self, flow: Flow, samples: int):
        self.flow, self.samples = flow, samples
        roots = flow.spaces.roots()
        sizes = [flow.spaces.needed(root).numel() for root in roots]
        starts = np.cumsum([0, *sizes])
        self._range = {root: slice(starts[i], starts[i + 1]) for i, root in enumerate(roots)}
        self._channel = self._joined(int(starts[-1]))
        self._space: dict[int, str]  # of every channel that can be removed
        self._why: dict[int, dict[str, None]] = {}  # the reasons of channels that stay
        for root in roots:
            for reason in flow.spaces.reasons(root):
                self._stay(self._channel[self._range[root]], reason)
        for one in flow.recurrents:
            for part in one.parts:
                self._stay(self._channel[self._entries(part.space)], UNITS)
        self._sides = self._in_order()

    def _stay(self, channels: Iterable[int], reason: str) -> None:
        for channel in channels:
            self._why.setdefault(int(channel), {})[reason] = None

    def _entries(self, space: int) -> np.ndarray:
        part = self._range[self.flow.spaces.find(space)]
        return np.arange(part.start, part.stop)

    def _joined(self, total: int) -> np.ndarray:
        """The channel of every entry: the connected components of the links, and of blocks."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        pairs = [(np.empty(0, int), np.empty(0, int))]
        for link in self.flow.links:
            sources, targets = self._entries(link.source), self._entries(link.target)[link.index.numpy()]
            pairs.append((np.repeat(sources, link.index.shape[1]), targets.ravel()))
        for one in self.flow.blocks:
            ends = (
                self._entries(end.space).reshape(one.module.groups, -1) for end in (one.source, one.target)
            )
            both = np.concatenate(list(ends), axis=1)
            pairs.append((np.repeat(both[:, 0], both.shape[1]), both.ravel()))
        first, second = (np.concatenate(side) for side in zip(*pairs, strict=True))
        edges = coo_array((np.ones(first.size), (first, second)), shape=(total, total))
        return connected_components(edges, directed=False)[1] if total else np.empty(0, int)

    def _in_order(self) -> list[tuple[fx.Node, nn.Module, str, np.ndarray]]:
        """Step, layer, side and channels, in the order of the network."""
        flow = self.flow
        found = [
            (m.node, m.module, side, c)
            for m in flow.mixes
            for side, c in (("in", m.source), ("out", m.target))
        ]
        found += [(block.node, block.module, "in", block.source) for block in flow.blocks]
        found += [(layer.node, layer.module, "in", layer.source) for layer in flow.recurrents]
        found += [(node, module, "out", c) for node, module, c in (*flow.followers, *flow.embeddings)]
        order = {node: place for place, node in enumerate(flow.traced.graph.nodes)}
        return [
            (node, module, side, self._channel[self._entries(c.space)])
            for node, module, side, c in sorted(found, key=lambda one: order[one[0]])
        ]

    def stuck(self, spaces: dict[str, ChannelSpace]) -> list[str]:
        """The spaces whose channels stay although they are zero, found on weights of which half are zero."""
        draw = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in self.flow.traced.parameters():
                if parameter.is_floating_point():
                    parameter.copy_(torch.rand(parameter.shape, generator=draw).add_(0.5))
            for space in spaces.values():
                for place in space.outputs:
                    module = self.flow.modules[place.layer]
                    for name, axis in computing(module):
                        first = place.start + place.block * _some(space.count)
                        last = place.start + place.block * space.count
                        getattr(module, name).narrow(axis, first, last - first).zero_()
        flow = Flow(self.flow.traced)  # its spaces have the same numbers
        needed = np.zeros(len(self._channel), dtype=bool)
        for root, part in self._range.items():
            needed[self._channel[part]] |= flow.spaces.needed(root).numpy()
        names = np.array([self._space.get(channel, "") for channel in range(len(needed))])
        left = {name: int(needed[names == name].sum()) for name in spaces}
        return [name for name, space in spaces.items() if left[name] > _some(space.count)]

    def stay(self, spaces: list[str]) -> None:
        """Keep all channels of some spaces."""
        self._stay([channel for channel, name in self._space.items() if name in spaces], STUCK)

    def spaces(self) -> dict[str, ChannelSpace]:
        """The spaces whose channels can be removed, in the order of the network."""
        self._space = {}
        families: dict[tuple, list[int]] = {}
        occurs: dict[int, list[int]] = {}
        for root, part in self._range.items():
            for channel in dict.fromkeys(self._channel[part].tolist()):
                occurs.setdefault(channel, []).append(root)
        for channel, roots in occurs.items():  # in the order of their first entries
            if channel not in self._why:
                families.setdefault(tuple(roots), []).append(channel)
        found = []
        for channels in families.values():
            places = self._places(np.array(channels))
            if places is None:
                self._stay(channels, IRREGULAR)
            else:
                found.append((channels, places))
        made: dict[str, ChannelSpace] = {}
        order = {(node.target, side): place for place, (node, _, side, _) in enumerate(self._sides)}
        for channels, places in sorted(found, key=lambda one: [order[p.layer, p.side] for p in one[1]]):
            makers = [p.layer for p in places if p.side == "out" and self._makes(p.layer)]
            if makers:
                name = self._name(makers, places, len(channels))
                made[name] = ChannelSpace(name, len(channels), places)
                self._space |= dict.fromkeys(channels, name)
        return made

    def units(self) -> dict[str, tuple[Place, ...]]:
        """Where the units of recurrent layers are read."""
        return {
            name: self._places(self._channel[self._entries(part.space)]) or ()
            for one in self.flow.recurrents
            for name, part in zip(part_names(one.node.target, one.module), one.parts, strict=True)
        }

    def _name(self, makers: list[str], places: tuple[Place, ...], count: int) -> str:
        """The first layer with only these channels; if there is none, a range of rows of the first layer."""
        rows = {node.target: held.size for node, _, side, held in self._sides if side == "out"}
        for layer in makers:
            if sum(count * p.block for p in places if (p.layer, p.side) == (layer, "out")) == rows[layer]:
                return layer
        first = next(p for p in places if (p.layer, p.side) == (makers[0], "out"))
        return f"{first.layer}[{first.start}:{first.start + count * first.block}]"

    def _makes(self, layer: str) -> bool:
        """Whether a layer computes channels, and does not only scale or move those of its input."""
        return not isinstance(self.flow.modules[layer], (*BATCH_NORMS, nn.PReLU, Plane))

    def _places(self, channels: np.ndarray) -> tuple[Place, ...] | None:
        """The places of channels in all layers; None if they do not stand there in order."""
        places = []
        for node, _, side, held in self._sides:
            at = np.flatnonzero(np.isin(held, channels))
            if not at.size:
                continue
            rank = np.argsort(channels)[np.searchsorted(np.sort(channels), held[at])]
            each = np.bincount(rank, minlength=channels.size)
            if each.min() != each.max():
                return None
            table = at[np.argsort(rank, kind="stable")].reshape(channels.size, -1)  # a row per channel
            block = table.shape[1]
            if not np.array_equal(table.ravel(), table[0, 0] + np.arange(table.size)):
                block = 1
                if not np.array_equal(table, table[0] + np.arange(len(table))[:, None]):
                    return None
            starts = table[0, :: table.shape[1] if block > 1 else 1].tolist()
            places += [Place(node.target, side, start, block) for start in starts]
        return tuple(places)

    def _extent(self, held: np.ndarray) -> Extent:
        spaces: dict[str, int] = {}
        names, numbers = np.unique([self._space.get(c, "") for c in held.tolist()], return_counts=True)
        for name, number in zip(names.tolist(), numbers.tolist(), strict=True):
            spaces[name] = number
        fixed = spaces.pop("", 0)
        return Extent(fixed, {name: number // self._counts[name] for name, number in spaces.items()})

    def shapes(self, spaces: dict[str, ChannelSpace]) -> dict[str, LayerShape]:
        """The widths and the cost of all layers that the flow knows."""
        self._counts = {name: space.count for name, space in spaces.items()}
        sides: dict[str, dict[str, Extent]] = {}
        layers = {}
        for node, module, side, held in self._sides:
            sides.setdefault(node.target, {})[side] = self._extent(held)
            layers[node.target] = node, module
        return {
            name: self._shape(node, module, sides[name].get("in"), sides[name].get("out"))
            for name, (node, module) in layers.items()
        }

    def _shape(self, node: fx.Node, module: Any, inputs: Extent | None, outputs: Extent | None) -> LayerShape:
        if (
            outputs is None and inputs is not None
        ):  # a recurrent layer: the rows of its gates read the channels
            width = inputs.size(self._counts)
            rows = module.weight_ih_l0.shape[0] * (1 + module.bidirectional)
            steps = math.prod(node.args[0].meta["shape"]) // (width * self.samples)
            return LayerShape(node.target, Extent(rows, {}), inputs, 1, 0, 0, steps)
        assert outputs is not None
        width = outputs.size(self._counts)
        entries = [p.numel() for p in module.parameters()]
        weight = module.weight.numel() if isinstance(module, (*LINEAR, *CONVOLUTIONS, *TRANSPOSED)) else 0
        mixes = inputs is not None and getattr(module, "groups", 1) == 1
        inputs = inputs if mixes and inputs is not None else Extent(0, {})
        shape = (node.args[0] if isinstance(module, TRANSPOSED) else node).meta["shape"]
        across = inputs.size(self._counts) if isinstance(module, TRANSPOSED) else width
        return LayerShape(
            node.target, outputs, inputs,
            pair=weight // (width * inputs.size(self._counts)) if mixes else 0,
            single=0 if mixes else weight // width,
            extra=(sum(entries) - weight) // width,
            positions=math.prod(shape) // (across * self.samples) if weight else 0,
        )  # fmt: skip

    def reasons(self) -> dict[str, tuple[str, ...]]:
        """By layer, why some of the channels that it computes stay."""
        found = {name: {why: None} for name, (why, _) in self.flow.left.items()}
        for node, _, side, held in self._sides:
            for channel in dict.fromkeys(held.tolist()):
                if side == "out" and channel in self._why:
                    found.setdefault(node.target, {}).update(self._why[channel])
        return {name: tuple(why) for name, why in found.items()}
