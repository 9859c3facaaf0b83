r"""Groups of channels that all layers of a network share, from :mod:`trimreg.nn.structure.coupling`.

The group of a channel is everything that computes it: its rows in all convolutions and linear layers whose
results are added, with their biases, its weight and shift in all batch norms, its filters in convolutions by
channel. So a group that is zero is a channel that is zero in the whole network, and the export removes it
from every layer. Its norm is that of all these parameters together,

.. math:: r_c = \Bigl(\sum_{layers} \|W_{c}\|^2 + b_c^2 + \gamma_c^2 + \beta_c^2\Bigr)^{1/2}.

A linear layer behind a flattened image may keep single entries of the image (:class:`Inside`). Its entries
stand inside channels: those of removed channels rank last, and the best entry of a kept channel ranks first,
so that both layers have their sizes.
"""

from __future__ import annotations

import math
import numbers
import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..structure.coupling import OUTPUT, ChannelSpace, Coupling, Extent, Place, computing
from .layer_groups import LayerGroups, Slab, share_of

#: The layers whose channels a glob stands for with ``groups="channels"``.
WITH_CHANNELS = (nn.Linear, nn.modules.conv._ConvNd, nn.Embedding)


def counts_channels(module: nn.Module, kind: Any, example_input: Any) -> bool:
    """Whether the size of a layer is its number of output channels, coupled with other layers."""
    if kind == "channels":
        if example_input is None:
            raise ValueError(
                "groups='channels' needs an example_input, to follow the channels through the model"
            )
        return True
    plain = isinstance(module, nn.modules.conv._ConvNd) and not hasattr(module, "trimmed_groups")
    return kind == "auto" and example_input is not None and plain


def coupled_groups(
    coupling: Coupling, layers: dict[str, nn.Module], asked: dict[str, Any], exact: set[str]
) -> dict[str, tuple[LayerGroups, Any]]:
    """The groups and sizes of the spaces that ``asked`` names, each by the first of its layers there.

    Layers that a glob matched may have no channels that can be removed; those in ``exact`` must have some.
    """
    sizes: dict[str, dict[str, Any]] = {}  # space -> layer -> number of channels
    several = {}
    skipped = {}
    for name, size in asked.items():
        shape = coupling.layers.get(name)
        if name not in layers:
            own = coupling.spaces[name]
            sizes.setdefault(name, {})[name] = _in_channels(name, size, own.entries, own.count)
        elif shape is None or shape.outputs.fixed or not shape.outputs.spaces:
            skipped[name] = _refusal(name, coupling)
        elif len(shape.outputs.spaces) > 1:
            several[name] = size
        else:
            ((space, entries),) = shape.outputs.spaces.items()
            sizes.setdefault(space, {})[name] = _in_channels(name, size, entries, coupling.counts[space])
    _skip(skipped, exact, found=bool(sizes or several))
    for space, by_layer in sizes.items():
        _agree(by_layer, coupling.spaces[space])
    for name, size in several.items():
        _share(name, size, coupling.layers[name].outputs, coupling.counts, sizes)
    kept = {space: next(iter(by_layer.values())) for space, by_layer in sizes.items()}
    return {
        next(iter(by_layer)): (_groups(coupling.spaces[space], layers, next(iter(by_layer))), kept[space])
        for space, by_layer in sizes.items()
    }


def _groups(space: ChannelSpace, layers: dict[str, nn.Module], name: str) -> LayerGroups:
    """The groups of a space: a slab for each parameter that computes channels, those of ``name`` first."""
    slabs = []
    for place in sorted(space.outputs, key=lambda place: place.layer != name):
        module = layers[place.layer]
        slabs += [Slab(module, what, axis, place.start, place.block) for what, axis in computing(module)]
    module = layers.get(name, layers[space.layers[0]])
    return LayerGroups(name, module, "channels", space.count, tuple(slabs), coupled=space.layers)


# -- sizes that do not fit ----------------------------------------------------------------------------------


def _in_channels(name: str, size: Any, entries: int, count: int) -> Any:
    """A size of a layer as a number of channels of its space, which may have several entries in the layer."""
    share = share_of(count, size)
    if share is not size or isinstance(size, bool) or not isinstance(size, numbers.Integral):
        return share
    size = int(size)
    if size > count * entries:
        raise ValueError(
            f"layer {name!r}: keep must be at most its number of channels, {count * entries}; got {size}"
        )
    if size % entries:
        raise ValueError(
            f"layer {name!r}: keep must be a multiple of {entries}, because its channels are removed in "
            f"blocks (a convolution with groups, or a sum with a flattened image); got {size}"
        )
    return size // entries


def _refusal(name: str, coupling: Coupling) -> str:
    """Why the channels of a layer cannot be removed."""
    known = "a module that torch.fx does not look into, or that is never called"
    return ", ".join(coupling.reasons.get(name) or (known,))


def _skip(skipped: dict[str, str], exact: set[str], found: bool) -> None:
    for name, reason in skipped.items():
        if name in exact or not found:
            raise ValueError(f"layer {name!r}: its output channels cannot be removed because of {reason}")
    told = {name: reason for name, reason in skipped.items() if reason != OUTPUT}
    if told:
        listed = "; ".join(f"{name!r} because of {reason}" for name, reason in told.items())
        warnings.warn(f"keep matches layers that stay whole: {listed}", stacklevel=5)


def _agree(by_layer: dict[str, Any], space: ChannelSpace) -> None:
    """Raise unless all layers of a space have the same size."""
    first, *others = by_layer
    for other in others:
        if by_layer[other] != by_layer[first]:
            raise ValueError(
                f"keep gives {first!r} {by_layer[first]} channels and {other!r} {by_layer[other]}, but all "
                f"these layers have the same channels: {', '.join(space.layers)}"
            )


def _share(name: str, size: Any, outputs: Extent, counts: dict[str, int], sizes: dict[str, dict]) -> None:
    """Divide the size of a layer among the spaces of its channels that have none, in proportion."""
    parts = f"layer {name!r} has the channels of {', '.join(outputs.spaces)}, one after another"
    open_ones = [space for space in outputs.spaces if space not in sizes]
    if not isinstance(size, numbers.Integral):  # a share of each
        sizes |= {space: {space: size} for space in open_ones}
        return
    left = size - sum(n * next(iter(sizes[s].values())) for s, n in outputs.spaces.items() if s in sizes)
    if not open_ones and left:
        raise ValueError(f"{parts}, which keep {size - left} together; but its own size is {size}")
    exact = {s: left * counts[s] / sum(map(counts.__getitem__, open_ones)) for s in open_ones}
    found = {s: math.floor(share) for s, share in exact.items()}
    for space in sorted(open_ones, key=lambda s: found[s] - exact[s])[: left - sum(found.values())]:
        found[space] += 1
    if any(outputs.spaces[s] > 1 or not 1 <= found[s] <= counts[s] for s in open_ones):
        raise ValueError(f"{parts}; {size} channels cannot be divided among them, give a size to each")
    sizes |= {space: {space: share} for space, share in found.items()}


# -- entries inside channels --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Inside:
    """The inputs of a linear layer that are entries of channels with a size of their own.

    ``entries`` has a row for each channel. With ``protects``, nothing else reads the channels, so each of
    them needs an entry that is kept.
    """

    layer: str
    channels: str
    entries: Tensor
    protects: bool
    _moved: dict = field(default_factory=dict, compare=False)

    def rank_(self, r: Tensor, alive: Tensor) -> None:
        """Change the values that rank the inputs: a kept channel's best entry first, a removed one's last."""
        entries = self._moved.setdefault(r.device, self.entries.to(r.device))  # copied once
        rows = r[entries]
        if self.protects:
            best = rows.argmax(1, keepdim=True)
            rows.scatter_add_(1, best, (r.max() + 1.0).expand(best.shape))
        r[entries] = torch.where(alive[:, None], rows, -0.5)  # above the padding of a table


def inside(coupling: Coupling, layers: dict[str, LayerGroups], keep: dict[str, Any]) -> tuple[Inside, ...]:
    """The linear layers whose kept inputs depend on kept channels; raise if their sizes do not fit."""
    own = {name: groups.coupled for name, groups in layers.items() if groups.coupled}
    owners = {
        space: name
        for space, one in coupling.spaces.items()
        for name in ([space] if space in own else own)  # ranges of one layer have the same layers
        if own[name] == one.layers
    }
    readers = [name for name, groups in layers.items() if groups.kind == "in" and name in coupling.layers]
    made = []
    for space, channels in owners.items():
        reads = [place for place in coupling.spaces[space].places if place.side == "in"]
        mine = [name for name in readers if any(place.layer == name for place in reads)]
        all_of_them = all(place.layer in mine for place in reads)
        # If no layer reads all channels, the one with the most inputs keeps an entry of each.
        guard = max(mine, key=keep.__getitem__) if all_of_them and mine else None
        count = coupling.spaces[space].count
        made += [Inside(name, channels, _entries(name, reads, count), name == guard) for name in mine]
    for part in filter(coupling.units.__contains__, layers):  # hidden units stay also if no layer reads them
        reads = [place for place in coupling.units[part] if place.layer in readers]
        for name in dict.fromkeys(place.layer for place in reads):
            made.append(Inside(name, part, _entries(name, reads, layers[part].count), False))
    kept = coupling.counts | {space: keep[channels] for space, channels in owners.items()}
    for name in dict.fromkeys(one.layer for one in made):
        parts = [one for one in made if one.layer == name]
        gone = [one.entries[keep[one.channels] :].numel() for one in parts if one.channels in coupling.units]
        _check_room(name, keep, coupling.layers[name].inputs.size(kept) - sum(gone), parts)
    return tuple(made)


def _entries(layer: str, reads: list[Place], count: int) -> Tensor:
    """The inputs of a layer that are entries of channels, with a row for each channel."""
    rows = torch.arange(count)[:, None]
    return torch.cat([p.start + rows * p.block + torch.arange(p.block) for p in reads if p.layer == layer], 1)


def _check_room(name: str, keep: dict[str, Any], most: int, parts: list[Inside]) -> None:
    """Raise unless a layer can keep as many entries: inside kept channels, and one in each that needs it."""
    least = sum(keep[one.channels] for one in parts if one.protects)
    who = " and ".join(f"{one.channels!r}, which keeps {keep[one.channels]} channels" for one in parts)
    what = f"layer {name!r} reads the channels of {who}; keep must be"
    if keep[name] > most:
        raise ValueError(f"{what} at most {most}, the number of entries that they have; got {keep[name]}")
    if keep[name] < least:
        raise ValueError(f"{what} at least {least}, one entry of each, or fewer remain; got {keep[name]}")
