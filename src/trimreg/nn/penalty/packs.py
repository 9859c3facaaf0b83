"""Layers side by side in one padded table, so that all of them are ranked and thresholded in one pass.

A pack has one row per layer and replica, with one entry per group; short rows are padded with entries that
are not valid. A step then needs two kernels per layer, for its norms and its scaling, and a fixed number of
kernels for the rest, however many layers there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

import torch
from torch import Tensor, nn

from ..groups import kernels, shards
from ..groups.channels import Inside
from ..groups.layer_groups import LayerGroups
from .scores import ScoredGroups

#: A table may be padded freely up to this many entries, and beyond that up to this multiple of its groups.
FREE_PADDING, TIMES_PADDED = 16_384, 1.5

#: Entries of the memory for products of a layer's weights, which is kept; for large layers this part of them.
MOST_PRODUCTS, PART = 2**15, 256


def divide(layers: dict[str, LayerGroups], last: Collection[str] = ()) -> list[list[str]]:
    """Names of the layers of each pack: layers of similar size together, so that little is padded.

    The layers of ``last`` come in packs of their own behind all others, since they are ranked after them.
    """
    if last:
        parts = ({n: g for n, g in layers.items() if (n in last) is late} for late in (False, True))
        return [names for part in parts for names in divide(part)]
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

    def __init__(
        self,
        layers: dict,
        keep: dict,
        alpha: dict,
        device: torch.device,
        dtype: torch.dtype,
        watched: bool = False,  # whether scores are collected that do not rank the groups
    ):
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
        self.sharded = any(shards.is_sharded(layer) for layer in layers.values())
        self.inside: list[tuple[Inside, Pack]] = []
        self._views: dict[str, list[Tensor]] | None = None
        self._products: Tensor | None = None
        scores = [layer.score for layer in layers.values() if isinstance(layer, ScoredGroups)]
        if scores or watched:  # the score of every layer is its part of one table
            self.register_buffer("scores", table(0.0), persistent=False)
            self.register_buffer("change", table(0.0), persistent=False)
            self.link_scores_()

    def link_scores_(self) -> None:
        """Make the scores of the layers views of the table, with the values that they have."""
        for name, layer in self.layers.items():
            if isinstance(layer, ScoredGroups):
                place = self.of(self.scores, name)
                layer.score.value = place.copy_(layer.score.value)

    def resize_(self, keep: dict) -> None:
        """Give the layers other sizes, in place, so that a captured step follows them."""
        target = self.target.new_tensor(self.by_row(keep))[:, None]
        self.target.copy_(target)
        self.fall.copy_(target - self.count)
        self.first.copy_(self.positions < target)

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
            elif isinstance(layer, ScoredGroups) and layer.rank_by == "taylor":
                torch.sqrt(layer.score.value, out=out)
            else:
                self.norms_(layer, out)
                if isinstance(layer, ScoredGroups):
                    out.mul_(layer.score.value.sqrt())
        return self.norms

    def rank_inside_(self, r: Tensor, masks: dict[Pack, Tensor] | None = None) -> Tensor:
        """Let the masks of channels, by default those of the last step, change the ranks of their entries."""
        for one, channels in self.inside:
            alive = channels.kept if masks is None else masks[channels]
            one.rank_(self.of(r, one.layer), channels.of(alive, one.channels))
        return r

    def norms_(self, layer: LayerGroups, out: Tensor) -> None:
        """Write the norms of a layer's groups to ``out``."""
        weights = [slab.tensor().detach() for slab in layer.counted]
        self.products_(layer, weights, weights, out, root=True)

    def change_(self, layer: LayerGroups, name: str) -> bool:
        r"""Write :math:`\langle \theta_g, \nabla_g L \rangle` to the layer's part of ``change``.

        Returns False, and does nothing, if there is no gradient.
        """
        weights = [slab.tensor().detach() for slab in layer.counted]
        gradients = [slab.tensor().grad for slab in layer.counted]
        if any(gradient is None for gradient in gradients):
            return False
        gradients = [g.to_dense() if g.is_sparse else g for g in gradients]
        self.products_(layer, weights, gradients, self.of(self.change, name))
        return True

    def products_(
        self, layer: LayerGroups, first: list, second: list, out: Tensor, root: bool = False
    ) -> None:
        """Write the sums of products over each group, or their roots, to ``out``.

        There is no temporary of the size of the layer.
        """
        if self.sharded and shards.is_sharded(layer):
            shards.sums(layer, first, second, out, self.add_products_)
            if root:
                out.sqrt_()
            return
        leading, last = len(layer.replicas), len(first) - 1
        parts = [
            (slab, layer.view(slab, a), layer.view(slab, b))
            for slab, a, b in zip(layer.counted, first, second, strict=True)
        ]
        forms = []
        if out.is_cuda:
            found = (kernels.layout_for_sums(a, b, leading + slab.axis, leading) for slab, a, b in parts)
            forms = [form for form in found if form is not None]
        if len(forms) == len(parts):
            for place, ((_, a, b), form) in enumerate(zip(parts, forms, strict=True)):
                kernels.add_products(a, b, form, out, place == 0, root and place == last)
        elif root and self.one_kernel(layer, parts[0][1]):
            layer.norms(out=out)
        else:
            out.zero_()
            for slab, a, b in parts:
                self.add_products_(a, b, leading + slab.axis, leading, layer.inner_axes(slab, a), out)
            if root:
                out.sqrt_()

    def one_kernel(self, layer: LayerGroups, view: Tensor) -> bool:
        """Whether PyTorch's own norms of a layer are fast and have no temporary."""
        if view.device.type != "cpu":
            return True
        axes = layer.inner_axes(layer.counted[0], view)
        return len(layer.counted) == 1 and (not axes or view.ndim - 1 in axes)

    def add_products_(
        self, a: Tensor, b: Tensor, axis: int, leading: int, axes: list[int], out: Tensor
    ) -> None:
        """Add the sums of ``a * b`` over some axes to ``out``, for groups on ``axis``."""
        form = kernels.layout_for_sums(a, b, axis, leading)
        if form is None:
            add_in_parts(a, b, axes, out, self.memory(a.numel()))
        else:
            kernels.add_products(a, b, form, out, fresh=False, root=False)

    def memory(self, entries: int) -> Tensor:
        """Memory for so many products, or for as many as are computed at once; it is kept."""
        wanted = min(entries, max(MOST_PRODUCTS, entries // PART))
        if self._products is None or self._products.numel() < wanted:
            with torch.inference_mode(False):
                self._products = torch.empty(wanted, dtype=self.norms.dtype, device=self.norms.device)
        return self._products

    def mask_(self, by: str = "kept") -> None:
        """Set all groups to zero that are not marked in the table ``by``, "kept" or "alive"."""
        self.scale_(by)

    def shrink_(self) -> None:
        """Multiply the groups by ``factor``; uncounted slabs are only set to zero where it is 0."""
        if self.views()["uncounted"]:
            torch.gt(self.factor, 0.0, out=self.alive)
        self.scale_("shrink")

    def scale_(self, by: str) -> None:
        """Multiply all slabs by the entries of their groups in a table."""
        if not (self.sharded or self.norms.is_cuda):
            slabs = [(layer, slab) for layer in self.layers.values() for slab in layer.slabs]
            torch._foreach_mul_([layer.view(slab, slab.tensor()) for layer, slab in slabs], self.views()[by])
            return
        small, factors = [], []
        views = iter(zip(self.views()[by], self.views()[f"{by} by group"], strict=True))
        for layer in self.layers.values():
            for slab in layer.slabs:
                factor, by_group = next(views)
                if self.sharded and shards.shard_of(slab.tensor()) is not None:
                    shards.scale(layer, slab, by_group)
                    continue
                view = layer.view(slab, slab.tensor().detach())
                form = kernels.layout_for_scale(view, slab.axis + len(layer.replicas), len(layer.replicas))
                if form is None:
                    small.append(view)
                    factors.append(factor)
                else:
                    kernels.scale(view, by_group, form)
        if small:
            torch._foreach_mul_(small, factors)

    def views(self) -> dict[str, list[Tensor]]:
        """Views of the tables by layer and slab; made once, since a view costs as much as a kernel."""
        if self._views is None:
            made = {"norms": [self.of(self.norms, name) for name in self.layers]}
            made |= {"kept": [], "alive": [], "shrink": [], "uncounted": []}
            made |= {"kept by group": [], "alive by group": [], "shrink by group": []}
            for name, layer in self.layers.items():
                for slab in layer.slabs:
                    shape = slab.tensor().shape  # of a sharded parameter too
                    ndim = layer.view(slab, torch.empty(shape, device="meta")).ndim
                    factor = "factor" if slab.counted else "alive"
                    for key, of in (("kept", "kept"), ("alive", "alive"), ("shrink", factor)):
                        part = self.of(getattr(self, of), name)
                        made[key].append(layer.spread(slab, part, ndim))
                        made[f"{key} by group"].append(part)
                    made["uncounted"] += [] if slab.counted else [self.alive]
            self._views = made
        return self._views

    def _apply(self, fn: Callable, recurse: bool = True) -> Pack:
        # The table follows the model to its device, but not to another dtype.
        device = fn(torch.zeros((), dtype=torch.int64, device=self.count.device)).device
        for name, buffer in self._buffers.items():
            self._buffers[name] = buffer.to(device)
        self._views, self._products = None, None
        if "scores" in self._buffers:
            self.link_scores_()
        return self

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_views": None, "_products": None}

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        if "scores" in self._buffers:  # pickle makes copies of views
            self.link_scores_()


def add_in_parts(a: Tensor, b: Tensor, axes: list[int], out: Tensor, memory: Tensor) -> None:
    """Add the sums of ``a * b`` over some axes to ``out``; products are held in ``memory``, part by part."""
    if a.numel() <= memory.numel():
        product = memory[: a.numel()].view(a.shape)
        if a.dtype == b.dtype == product.dtype:
            torch.mul(a, b, out=product)
        else:  # in half precision a product would underflow
            product.copy_(a).mul_(b)
        out.add_(product.sum(axes) if axes else product)
        return
    rows, room = a.shape[0], memory.numel()
    each = a.numel() // rows  # entries of a part of length 1
    length = max(1, room // max(each, 1))
    if 0 in axes and each <= room and a.dtype == b.dtype == memory.dtype:
        # The parts lie over each other, so that there is one sum at the end.
        product = memory[: length * each].view(length, *a.shape[1:])
        torch.mul(a[:length], b[:length], out=product)
        for begin in range(length, rows, length):
            part = a[begin : begin + length]
            product[: part.shape[0]].addcmul_(part, b[begin : begin + length])
        out.add_(product.sum(axes))
        return
    for begin in range(0, rows, length):
        part, other = a[begin : begin + length], b[begin : begin + length]
        target = out if 0 in axes else out[begin : begin + length]
        if each > room:  # a part of length 1 is divided along its next axis
            part, other = part[0], other[0]
            inside = [axis - 1 for axis in axes if axis > 0]
            add_in_parts(part, other, inside, target if 0 in axes else target[0], memory)
        else:
            add_in_parts(part, other, axes, target, memory)


def draws(layer: LayerGroups) -> bool:
    """Whether the norms of a layer can be those of a random draw of its weights."""
    return any(slab.attribute == "weight" and hasattr(slab.owner, "sampled_weight") for slab in layer.counted)
