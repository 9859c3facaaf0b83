"""Layers side by side in one padded table, so that all of them are ranked and thresholded in one pass.

A pack has one row per layer and replica, with one entry per group; short rows are padded with entries that
are not valid. A step then needs two kernels per layer, for its norms and its scaling, and a fixed number of
kernels for the rest, however many layers there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..groups.layer_groups import LayerGroups

#: A table may be padded freely up to this many entries, and beyond that up to this multiple of its groups.
FREE_PADDING, TIMES_PADDED = 16_384, 1.5

#: On a CPU the memory for the squares of a layer's weights is kept, up to this many entries.
MOST_SQUARES = 2**22


def divide(layers: dict[str, LayerGroups]) -> list[list[str]]:
    """Names of the layers of each pack: layers of similar size together, so that little is padded."""
    packs: list[list[str]] = []
    rows = entries = 0
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
    """The table of some layers: sizes, strengths, weights and masks, with one row per layer and replica.

    Its tensors are buffers, so that they follow the penalty to its device. They are not saved here: the
    penalty saves them by layer.
    """

    def __init__(self, layers: dict, keep: dict, alpha: dict, device: torch.device, dtype: torch.dtype):
        super().__init__()
        self.layers: dict[str, LayerGroups] = dict(layers)
        self.places, row = {}, 0
        for name, layer in layers.items():
            more = math.prod(layer.replicas)
            self.places[name] = slice(row, row + more)
            row += more
        count = self.by_row({name: layer.count for name, layer in layers.items()})
        width = max(count)

        # Numbers of groups in double precision, if the device has it: float32 cannot count beyond 2^24.
        counting = dtype if device.type == "mps" else torch.float64

        def column(values, of=counting):
            return torch.tensor(values, dtype=of, device=device)[:, None]

        def table(value, of=dtype):
            return torch.full((row, width), value, dtype=of, device=device)

        positions = torch.arange(width, device=device, dtype=counting)
        buffers = {
            "count": column(count),
            "target": column(self.by_row(keep)),
            "fall": column(self.by_row(keep)) - column(count),
            "alpha": column(self.by_row(alpha), dtype),
            "rate": column([0.0] * row, dtype),
            "positions": positions,
            "valid": positions < column(count),
            "first": positions < column(self.by_row(keep)),
            "norms": table(-1.0),  # padding ranks last
            "factor": table(1.0),
            "alive": table(True, torch.bool),
            "weights": table(0.0),
            "kept": table(False, torch.bool),
        }
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer, persistent=False)
        infinite = [math.isinf(value) for value in self.by_row(alpha)]
        self.hard, self.some_hard = all(infinite), any(infinite)
        self.padded = len(set(count)) > 1
        self.draws = any(draws(layer) for layer in layers.values())
        self._views: dict[str, list[Tensor]] | None = None
        self._squares: Tensor | None = None

    def by_row(self, values: dict) -> list:
        """Values of layers, or of their replicas, one per row."""
        rows: list = []
        for name, layer in self.layers.items():
            value = values[name]
            rows += value if isinstance(value, tuple) else [value] * math.prod(layer.replicas)
        return rows

    def of(self, table: Tensor, name: str) -> Tensor:
        """The entries of a layer in a table, of shape ``(*replicas, count)``."""
        layer, rows = self.layers[name], self.places[name]
        if not layer.replicas:
            return table[rows.start, : layer.count]
        return table[rows, : layer.count].unflatten(0, layer.replicas)

    def measure(self, sampled: bool | torch.Generator = False) -> Tensor:
        """The values that rank the groups, in the pack's own table, with -1 in the padding."""
        for (_, layer), out in zip(self.layers.items(), self.views()["norms"], strict=True):
            if sampled and draws(layer):
                out.copy_(layer.norms(sampled=sampled))
            elif not self.sum_squares_(layer, out):
                layer.importance(out=out)
        return self.norms

    def sum_squares_(self, layer: LayerGroups, out: Tensor) -> bool:
        r"""Write :math:`r_g = (\sum_{i \in g} \theta_i^2)^{1/2}` to ``out``, with the squares in kept memory.

        :func:`trimreg.nn.groups.layer_groups.norm` would allocate new memory for the squares at every step,
        and the page faults can cost as much as the norms themselves. The result is the same to the last bit.
        Returns False, and does nothing, in all cases where the norms need no such memory.
        """
        if type(layer) is not LayerGroups or len(layer.counted) > 1:
            return False
        slab = layer.counted[0]
        view = layer.view(slab, slab.tensor())
        axes = layer.inner_axes(slab, view)
        if view.device.type != "cpu" or not axes or view.ndim - 1 in axes:
            return False
        size = view.numel()
        if view.dtype != out.dtype or size > MOST_SQUARES or not view.is_contiguous():
            return False
        if self._squares is None or len(self._squares) < size:
            with torch.inference_mode(False):
                self._squares = torch.empty(size, dtype=out.dtype, device="cpu")
        squares = torch.mul(view, view, out=self._squares[:size].view(view.shape))
        torch.sum(squares, dim=axes, out=out).sqrt_()
        return True

    def mask_(self, by: str = "kept") -> None:
        """Set all groups to zero that are not marked in the table ``by``, "kept" or "alive"."""
        torch._foreach_mul_(self._slabs(), self.views()[by])

    def shrink_(self) -> None:
        """Multiply the groups by ``factor``; uncounted slabs are only set to zero where it is 0."""
        if self.views()["uncounted"]:
            torch.gt(self.factor, 0.0, out=self.alive)
        torch._foreach_mul_(self._slabs(), self.views()["shrink"])

    def _slabs(self) -> list[Tensor]:
        return [layer.view(slab, slab.tensor()) for layer in self.layers.values() for slab in layer.slabs]

    def views(self) -> dict[str, list[Tensor]]:
        """Views of the tables by layer and slab; made once, since a view costs as much as a kernel."""
        if self._views is None:
            made = {"norms": [self.of(self.norms, name) for name in self.layers]}
            made |= {"kept": [], "alive": [], "shrink": [], "uncounted": []}
            for name, layer in self.layers.items():
                for slab in layer.slabs:
                    ndim = layer.view(slab, slab.tensor()).ndim
                    kept, alive, factor = (
                        layer.spread(slab, self.of(table, name), ndim)
                        for table in (self.kept, self.alive, self.factor)
                    )
                    made["kept"].append(kept)
                    made["alive"].append(alive)
                    made["shrink"].append(factor if slab.counted else alive)
                    made["uncounted"] += [] if slab.counted else [alive]
            self._views = made
        return self._views

    def _apply(self, fn: Callable, recurse: bool = True) -> Pack:
        # The table follows the model to its device, but not to another dtype.
        device = fn(torch.zeros((), dtype=torch.int64, device=self.count.device)).device
        for name, buffer in self._buffers.items():
            self._buffers[name] = buffer.to(device)
        self._views, self._squares = None, None
        return self

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_views": None, "_squares": None}


def draws(layer: LayerGroups) -> bool:
    """Whether the norms of a layer can be those of a random draw of its weights."""
    return any(slab.attribute == "weight" and hasattr(slab.owner, "sampled_weight") for slab in layer.counted)
