"""Layers side by side in one padded table, so that all of them are ranked and thresholded in one pass.

Row by row, a pack holds the groups of several layers (and replicas); a short row is filled up with groups
that are not valid. A step then costs two kernels a layer, its norms and its scaling, and a fixed number for
the rest, however many layers there are.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .groups import LayerGroups

#: A table may be padded up to this many entries freely, and to this multiple of its own beyond.
FREE_PADDING, TIMES_PADDED = 16_384, 1.5


def divide(layers: dict[str, LayerGroups]) -> list[list[str]]:
    """Names of the layers of each pack: layers of like sizes together, so that little is padded.

    Examples
    --------
    >>> from torch import nn
    >>> from trimreg.nn.groups import layer_groups
    >>> from trimreg.nn.packs import divide
    >>> small, large = layer_groups("small", nn.Linear(10, 2)), layer_groups("large", nn.Embedding(50_000, 1))
    >>> divide({"small": small, "large": large})
    [['small'], ['large']]
    """
    packs, rows, entries = [], 0, 0
    for name in sorted(layers, key=lambda name: layers[name].count):
        layer = layers[name]
        more = math.prod(layer.replicas)
        padded = (rows + more) * layer.count
        if packs and padded <= max(FREE_PADDING, TIMES_PADDED * (entries + more * layer.count)):
            packs[-1].append(name)
            rows, entries = rows + more, entries + more * layer.count
        else:
            packs.append([name])
            rows, entries = more, more * layer.count
    return packs


class Pack(nn.Module):
    """The table of some layers: sizes, strengths, weights and masks, a row for each layer and replica.

    Its tensors are buffers, so that they follow the penalty to its device; none is saved here, since the
    penalty saves them by layer.
    """

    def __init__(self, layers: dict[str, LayerGroups], keep: dict, alpha: dict, device, dtype):
        super().__init__()
        self.layers = dict(layers)
        self.places, row = {}, 0
        for name, layer in layers.items():
            more = math.prod(layer.replicas)
            self.places[name] = slice(row, row + more)
            row += more
        width = max(layer.count for layer in layers.values())
        count = [layer.count for layer in layers.values() for _ in range(math.prod(layer.replicas))]

        def column(values):
            return torch.tensor(values, dtype=dtype, device=device)[:, None]

        buffers = {
            "count": column(count),
            "target": column(self._by_row(keep)),
            "alpha": column(self._by_row(alpha)),
            "positions": torch.arange(width, device=device, dtype=dtype),
            "rate": column([0.0] * row),
            "replicated": torch.tensor([math.prod(x.replicas) for x in layers.values()], device=device),
        }
        buffers["valid"] = buffers["positions"] < buffers["count"]
        buffers["first"] = buffers["positions"] < buffers["target"]
        buffers["table"] = torch.full((row, width), -1.0, dtype=dtype, device=device)  # padding ranks last
        buffers["weights"] = torch.zeros((row, width), dtype=dtype, device=device)
        buffers["kept"] = torch.zeros((row, width), dtype=torch.bool, device=device)
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer, persistent=False)
        infinite = [math.isinf(value) for value in self._by_row(alpha)]
        self.hard, self.some_hard = all(infinite), any(infinite)
        self.padded = len(set(count)) > 1
        self.draws = any(
            slab.attribute == "weight" and hasattr(slab.owner, "sampled_weight")
            for layer in layers.values()
            for slab in layer.counted
        )

    def _by_row(self, values):
        rows = []
        for name, layer in self.layers.items():
            value = values[name]
            rows += value if isinstance(value, tuple) else [value] * math.prod(layer.replicas)
        return rows

    def _apply(self, fn, recurse=True):
        # A change of dtype of the model is none of the table: only the device follows.
        device = fn(torch.zeros((), dtype=torch.int64, device=self.count.device)).device
        for name, buffer in self._buffers.items():
            self._buffers[name] = buffer.to(device)
        return self

    def of(self, table: Tensor, name: str) -> Tensor:
        """The part of a table that is a layer's, of shape ``(*replicas, count)``."""
        layer, rows = self.layers[name], self.places[name]
        if not layer.replicas:
            return table[rows.start, : layer.count]
        part = table[rows, : layer.count]
        return part if len(layer.replicas) == 1 else part.unflatten(0, layer.replicas)

    def measure(self, sampled: bool = False) -> Tensor:
        """The norms of all groups, in the pack's own table, with -1 where no group is."""
        for name, layer in self.layers.items():
            out = self.of(self.table, name)
            if sampled and self.draws:
                out.copy_(layer.norms(sampled=True))
            else:
                layer.norms(out=out)
        return self.table

    def shrink_(self, factor: Tensor) -> None:
        """Multiply the groups of every layer by their factors."""
        for name, layer in self.layers.items():
            layer.shrink_(self.of(factor, name))
