r"""Which channels of a traced network are constant, and which are needed.

Two properties are found for each channel of every tensor of the graph. Forward: is the channel a constant,
the same for every input and every place, and which one? A convolution with a zero filter gives 0, an
activation turns 0 into act(0), a batch norm into :math:`\beta - \mu\gamma/\sigma`. Backward: does the output
depend on it? It does not if all layers that read the channel have a column of zeros for it, or can take the
constant into their bias.

Tensors that must have the same channels (before and after an activation, both terms of a residual sum) share
a *space*. A channel of a space stays if it is needed in any of its tensors. The needed channels are the least
fixed point, starting from the output, so a residual network is not a special case.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import torch
from torch import Tensor, fx, nn

from . import indexing, recurrent
from .catalog import (
    TRANSPOSED,
    call_name,
    in_place,
    may_alias,
    role_of_call,
    role_of_module,
    spatial_axes,
)
from .spaces import Blocks, Channels, Link, Mix, Spaces, flattened_range, zero_padded
from .tracing import run_step


class Flow:
    """The channels of every tensor of a traced network whose nodes have ``meta["shape"]``.

    :mod:`.coupling` reads from it, before training, which channels belong together (``solve=False``), and
    the export which of them stay.
    """

    def __init__(self, traced: fx.GraphModule, solve: bool = True):
        self.traced = traced
        self.modules = dict(traced.named_modules())
        self.spaces = Spaces()
        self.at: dict[fx.Node, Any] = {}  # the Channels of its result, or None
        self.mixes: list[Mix] = []
        self.links: list[Link] = []
        self.blocks: list[Blocks] = []
        self.followers: list[tuple[fx.Node, nn.Module, Channels]] = []  # with one parameter per channel
        self.reshapes: list[tuple[fx.Node, int, int, Channels]] = []
        self.expansions: list[tuple[fx.Node, int, Channels]] = []  # reshapes that add axes of length 1
        self.selected: list[indexing.Selected] = []
        self.sizes: list[tuple[fx.Node, int]] = []
        self.embeddings: list[tuple[fx.Node, nn.Module, Channels]] = []
        self.recurrents: list[recurrent.Recurrent] = []
        self.inside: dict[fx.Node, Any] = {}  # the Channels of results that are tuples
        # Layers that stay whole: the reason, and whether it is that an operation is not known.
        self.left: dict[str, tuple[str, bool]] = {}
        floats = [p.dtype for p in traced.parameters() if p.is_floating_point()]
        self._dtype = floats[0] if floats else torch.get_default_dtype()
        self._uses = Counter(id(t) for node in traced.graph.nodes for t in self._own_tensors(node))
        self._root: dict[fx.Node, fx.Node] = {}  # the step whose memory a result may share
        with torch.no_grad():
            for node in traced.graph.nodes:
                self.at[node] = self._visit(node)
                self._note_memory(node)
            if solve:
                self._solve()

    def present(self, channels: Channels) -> Tensor:
        """Indices of the channels that stay."""
        return self.spaces.needed(channels.space).nonzero().flatten()

    # -- forward ------------------------------------------------------------------------------------------

    def _visit(self, node: fx.Node) -> Channels | None:
        if node.op in ("placeholder", "get_attr"):
            return None  # it stays whole
        if node.op == "output":
            return self.keep_all(node, "the network's output")
        module = self.modules[node.target] if node.op == "call_module" else None
        role = role_of_call(node.target) if module is None else role_of_module(module)
        label = f"{node.target} ({type(module).__name__})" if module is not None else call_name(node)
        if role == "pointwise" and node.op != "call_module" and self._tensors(node)[1:]:
            role = None
        if module is not None and any(self._uses[id(t)] > 1 for t in self._own_tensors(node)):
            return self.keep_all(node, f"{label}, which is called more than once or shares its weights")
        if role == "mixing":
            return self.keep_all(node, label)
        if role is None:
            return self.keep_all(node, label, unknown=bool(self._tensors(node)))
        return getattr(self, f"_visit_{role}")(node, module, label)

    def _note_memory(self, node: fx.Node) -> None:
        """Follow which results share memory: a step in place changes the values of all of them."""
        self._root[node] = node
        first = node.args[0] if node.args and isinstance(node.args[0], fx.Node) else None
        if first is None or node.op not in ("call_module", "call_function", "call_method"):
            return
        module = self.modules[node.target] if node.op == "call_module" else None
        if may_alias(node, module):
            self._root[node] = self._root[first]
        if in_place(node, module):
            for other, root in self._root.items():
                if root is self._root[node] and other is not node and self.at[other] is not None:
                    self.at[other].known = torch.zeros_like(self.at[other].known)

    def _own_tensors(self, node: fx.Node) -> list[Tensor]:
        """Parameters and buffers that a step uses, each once."""
        if node.op == "call_module":
            module = self.modules[node.target]
            return [*module.parameters(), *module.buffers()]
        if node.op == "get_attr":
            parent, _, leaf = node.target.rpartition(".")
            return [getattr(self.traced.get_submodule(parent), leaf)]
        return []

    def _tensors(self, node: fx.Node) -> list[fx.Node]:
        return [n for n in node.all_input_nodes if "shape" in n.meta]

    def keep_all(self, node: fx.Node, reason: str, unknown: bool = False) -> Any:
        """Keep all channels that a step reads."""
        if node.op == "call_module":
            self.left[node.target] = reason, unknown
        for source in node.all_input_nodes:
            if self.at[source] is not None:
                self.spaces.keep_all(self.at[source].space, reason, unknown)

    def fresh(
        self, size: int, axis: int, known: Tensor | None = None, value: Tensor | None = None
    ) -> Channels:
        """Channels of a new space; without values the known ones are zero."""
        known = torch.zeros(size, dtype=torch.bool) if known is None else known
        value = torch.zeros(size, dtype=self._dtype) if value is None else value
        return Channels(self.spaces.new(size), axis, known, value)

    def channels_on(self, node: fx.Node, axis: int, reason: str) -> Channels:
        """The channels of a tensor along ``axis``; if it is not the tracked axis, all of them stay."""
        found = self.at[node]
        if found is not None and found.axis == axis:
            return found
        if found is not None:
            self.spaces.keep_all(found.space, reason)
        full = self.fresh(node.meta["shape"][axis], axis)
        self.spaces.keep_all(full.space, "the network's input" if node.op == "placeholder" else reason)
        return full

    def _visit_mix(self, node, module, label) -> Channels | None:
        source_node = node.args[0] if node.args else node.kwargs["input"]
        shape = source_node.meta["shape"]
        space_dims = module.weight.dim() - 2
        axis = len(shape) - 1 - space_dims
        if space_dims and axis != 1:
            return self.keep_all(node, f"{label} without a batch axis")
        source = self.channels_on(source_node, axis, label)
        weight = module.weight.detach()
        if isinstance(module, TRANSPOSED):  # a constant image does not become one, unless it is zero
            weight = weight.transpose(0, 1)
            source = Channels(source.space, axis, source.known & source.value.eq(0), source.value)
        reads = weight.ne(0).flatten(2).any(-1) if space_dims else weight.ne(0)
        sums = weight.flatten(2).sum(-1) if space_dims else weight
        even = source.known & (source.value.eq(0) if zero_padded(module) else torch.ones_like(source.known))
        value = sums @ torch.where(even, source.value, 0).to(sums.dtype)
        if module.bias is not None:
            value = value + module.bias
        known = ~reads[:, ~even].any(1) & value.isfinite()
        target = self.fresh(reads.shape[0], axis, known, value)
        self.mixes.append(Mix(node, module, source, target, reads))
        return target

    def _visit_grouped(self, node, module, label) -> Channels | None:
        """A convolution of groups loses a whole group at a time, so its inputs and outputs go by blocks."""
        source = self.at[node.args[0]]
        if source is None or source.axis != 1 or isinstance(module, TRANSPOSED):
            return self.keep_all(node, f"{label} with {module.groups} groups")
        dead = (source.known & source.value.eq(0)).reshape(module.groups, 1, -1)
        reads = module.weight.detach().ne(0).flatten(2).any(-1).unflatten(0, (module.groups, -1))
        silent = ~(reads & ~dead).any(-1).flatten()
        value = torch.zeros(silent.numel(), dtype=self._dtype)
        target = self.fresh(silent.numel(), 1, silent, value if module.bias is None else module.bias.detach())
        self.blocks.append(Blocks(node, module, source, target))
        self.followers.append((node, module, target))
        return target

    def _visit_depthwise(self, node, module, label) -> Channels | None:
        source = self.at[node.args[0]]
        if source is None or source.axis != 1:
            return self.keep_all(node, label)
        result = self._over_space(node, module, source)
        silent = ~module.weight.ne(0).flatten(1).any(1)
        bias = torch.zeros_like(result.value) if module.bias is None else module.bias.detach()
        result.value = torch.where(silent, bias, result.value)
        result.known |= silent
        self.followers.append((node, module, result))
        return result

    def _visit_plane(self, node, module, label) -> Channels:
        target = self.fresh(module.weight.shape[0], 1)  # only the image size of its input matters
        self.followers.append((node, module, target))
        return target

    def _visit_norm(self, node, module, label) -> Channels | None:
        source = self.at[node.args[0]]
        if source is None or source.axis != 1 or module.running_mean is None:
            return self.keep_all(node, label)
        result = self._channelwise(node, module, source, 1)
        self.followers.append((node, module, result))
        return result

    def _visit_pointwise(self, node, module, label) -> Channels | None:
        source = self.at[node.args[0] if node.args else node.kwargs["input"]]
        if source is None:
            return None
        if len(node.all_input_nodes) > 1:  # the graph computes an argument: clamp(max=x.size(0))
            return Channels(source.space, source.axis, torch.zeros_like(source.known), source.value)
        result = self._channelwise(node, module, source, source.axis)
        if isinstance(module, nn.PReLU) and module.num_parameters > 1:
            if source.axis != 1:
                return self.keep_all(node, label)
            self.followers.append((node, module, result))
        return result

    def _visit_spatial(self, node, module, label) -> Channels | None:
        source = self.at[node.args[0]]
        if source is None:
            return None
        rank = len(node.args[0].meta["shape"])
        axes = spatial_axes(node, module, rank)
        if source.axis != 1 or "shape" not in node.meta or axes is None or axes > rank - 2:
            return self.keep_all(node, label, unknown=True)
        if node.all_input_nodes[1:]:  # the graph computes the sizes: interpolate(x, y.shape[2:])
            known = source.known if call_name(node) == "interpolate" else torch.zeros_like(source.known)
            return Channels(source.space, 1, known, source.value)
        return self._over_space(node, module, source)

    def _over_space(self, node, module, source: Channels) -> Channels:
        """The channels after pooling or depthwise convolution: a constant must be one for larger images too.

        On an image of one pixel the mean over a padded window is constant, and yet it depends on the padding.
        """
        result = self._channelwise(node, module, source, 1)
        for more in (15, 16, 17):  # windows with stride 2 or 3 end differently on each
            larger = self._channelwise(node, module, source, 1, more)
            same = (larger.value - result.value).abs() <= 1e-6 * result.value.abs()
            result.known = result.known & larger.known & same
        return result

    def _channelwise(self, node, module, source: Channels, axis: int, more: int = 0) -> Channels:
        """The same channels after ``node``; new constants are found by running it on the old ones."""
        shape = list(node.args[0].meta["shape"] if node.args else node.kwargs["input"].meta["shape"])
        shape[2:] = [size + more for size in shape[2:]]
        if source.axis > 0:
            shape[0] = 1
        column = [1] * len(shape)
        column[source.axis] = -1
        tensor = torch.where(source.known, source.value, 0).reshape(column).expand(shape).clone()
        result = run_step(node, module, tensor)
        rows = result.transpose(0, axis).reshape(source.size, -1)
        low, high = rows.amin(1), rows.amax(1)
        even = (high - low) <= 1e-6 * high.abs()  # a mean of equal numbers may round
        return Channels(source.space, axis, source.known & even & high.isfinite(), high)

    def _visit_mean(self, node, module, label) -> Channels | None:
        source = self.at[node.args[0]]
        if source is None:
            return None
        rank = len(node.args[0].meta["shape"])
        dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        dims = [dims] if isinstance(dims, int) else dims
        if not dims or node.all_input_nodes[1:] or source.axis in (gone := {d % rank for d in dims}):
            return self.keep_all(node, label)
        keeps = len(node.meta["shape"]) == rank
        return self._channelwise(
            node, module, source, source.axis - (0 if keeps else sum(d < source.axis for d in gone))
        )

    def _visit_binary(self, node, module, label) -> Channels | None:
        operands = list(node.args)
        tensors = [x for x in operands if isinstance(x, fx.Node) and "shape" in x.meta]
        if len(operands) != 2 or any(isinstance(x, fx.Node) for x in node.kwargs.values()):
            return self.keep_all(node, label, unknown=True)
        tracked = [(x, self.at[x]) for x in tensors if self.at[x] is not None]
        if not tracked:
            return None
        width = max(c.size for _, c in tracked)
        ends = {c.axis - len(x.meta["shape"]) for x, c in tracked}
        end = ends.pop()
        # A factor with one entry for all channels leaves them apart: a mask, a number that is learned.
        times, shapes = "mul" in call_name(node), {x: x.meta["shape"] for x in tensors}
        thin = [x for x, s in shapes.items() if times and width > 1 and (len(s) < -end or s[end] == 1)]
        wide = [self.at[x] for x in tensors if x not in thin]
        if ends or any(c is None or c.size != width for c in wide):
            others = any(self.at[x] is None for x in tensors)
            return self.keep_all(node, f"{label} with a tensor that stays whole" if others else label)
        for x in thin:
            if self.at[x] is not None:
                self.spaces.keep_all(self.at[x].space, label)
        for other in wide[1:]:
            self.spaces.join(wide[0].space, other.space)
        known = torch.stack([c.known for c in wide]).all(0)
        numbers = [x for x in operands if x not in tensors]
        if thin or any(isinstance(x, fx.Node) for x in numbers):  # numbers that the graph computes
            known, numbers = torch.zeros_like(known), [0 for _ in (*numbers, *thin)]
        values = [torch.where(c.known, c.value, 0) for c in wide] + numbers
        if self.at.get(operands[0]) not in wide:
            values.reverse()
        combine = getattr(torch.Tensor, node.target) if node.op == "call_method" else node.target
        value = combine(*values, **node.kwargs)
        if times:
            known = known | torch.stack([c.known & c.value.eq(0) for c in wide]).any(0)
        return Channels(wide[0].space, len(node.meta["shape"]) + end, known & value.isfinite(), value)

    def _visit_cat(self, node, module, label) -> Channels | None:
        parts = node.args[0]
        dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
        if isinstance(parts, fx.Node) or not isinstance(dim, int):  # the result of chunk or split
            return self.keep_all(node, label, unknown=True)
        rank = len(node.meta["shape"])
        axes = {self.at[part].axis for part in parts if self.at[part] is not None}
        if not axes:
            return None
        if axes != {dim % rank}:
            return self.keep_all(node, label)
        found = [self.channels_on(part, dim % rank, label) for part in parts]
        known, value = torch.cat([c.known for c in found]), torch.cat([c.value for c in found])
        target = self.fresh(known.numel(), dim % rank, known, value)
        start = 0
        for c in found:
            self.links.append(Link(c.space, target.space, start + torch.arange(c.size)[:, None]))
            start += c.size
        return target

    def _visit_reshape(self, node, module, label) -> Channels | None:
        source = self.at[node.args[0]]
        if source is None:
            return None
        before, after = node.args[0].meta["shape"], node.meta["shape"]
        ones = len(after) - len(before)
        if ones > 0 and tuple(after) == (*before, *(1,) * ones):
            self.expansions.append((node, ones, source))
            return Channels(source.space, source.axis, source.known, source.value)
        merged = flattened_range(before, after)
        if merged is None or (merged[0] == 0 and source.axis <= merged[1]):
            reason = f"{label} from {tuple(before)} to {tuple(after)}"
            return self.keep_all(node, reason, unknown=True)
        start, end = merged
        if not start <= source.axis <= end:
            axis = source.axis - (end - start if source.axis > end else 0)
            target = Channels(source.space, axis, source.known, source.value)
        else:
            block = before[start : end + 1]
            index = torch.arange(math.prod(block)).reshape(block).movedim(source.axis - start, 0)
            index = index.reshape(source.size, -1)
            owner = torch.empty(index.numel(), dtype=torch.long)
            owner[index] = torch.arange(source.size)[:, None].expand_as(index)
            target = self.fresh(index.numel(), start, source.known[owner], source.value[owner])
            self.links.append(Link(source.space, target.space, index))
        self.reshapes.append((node, start, end, source))
        return target

    def _visit_transpose(self, node, module, label) -> Channels | None:
        source = self.at[node.args[0]]
        if source is None:
            return None
        rank = len(node.meta["shape"])
        dims = [d for x in node.args[1:] for d in (x if isinstance(x, (tuple, list)) else [x])]
        if node.kwargs or not all(isinstance(d, int) for d in dims):
            return self.keep_all(node, label, unknown=True)
        order = [d % rank for d in dims]
        if "transpose" in call_name(node):
            a, b = order
            order = list(range(rank))
            order[a], order[b] = b, a
        return Channels(source.space, order.index(source.axis), source.known, source.value)

    def _visit_item(self, node, module, label) -> Channels | None:
        return indexing.visit_item(self, node, label)

    def _visit_split(self, node, module, label) -> None:
        return indexing.visit_split(self, node, label)

    def _visit_unsqueeze(self, node, module, label) -> Channels | None:
        return indexing.visit_unsqueeze(self, node)

    def _visit_size(self, node, module, label) -> None:
        return indexing.visit_size(self, node, label)

    def _visit_embedding(self, node, module, label) -> Channels:
        target = self.fresh(module.embedding_dim, len(node.meta["shape"]) - 1)
        if module.max_norm is not None:  # the norm of a row is that of all its entries
            self.spaces.keep_all(target.space, f"max_norm of {label}")
        self.embeddings.append((node, module, target))
        return target

    def _visit_recurrent(self, node, module, label) -> None:
        return recurrent.visit_layer(self, node, module, label)

    # -- backward -----------------------------------------------------------------------------------------

    def _solve(self) -> None:
        """Find the least sets of needed channels. No set stays empty, since a layer cannot have width 0."""
        changed = True
        while changed:
            changed = False
            for mix in self.mixes:
                changed |= self.spaces.need(mix.source.space, self.reads(mix))
            for link in self.links:
                changed |= self.spaces.need(link.source, self.spaces.needed(link.target)[link.index].any(1))
                wanted = torch.zeros_like(self.spaces.needed(link.target))
                wanted[link.index[self.spaces.needed(link.source)].flatten()] = True
                changed |= self.spaces.need(link.target, wanted)
            changed = changed or recurrent.equalize(self)
            for block in self.blocks:
                ends = block.source.space, block.target.space
                parts = [self.spaces.needed(end).unflatten(0, (block.module.groups, -1)) for end in ends]
                used = parts[0].any(1, keepdim=True) | parts[1].any(1, keepdim=True)
                for end, part in zip(ends, parts, strict=True):
                    changed |= self.spaces.need(end, used.expand_as(part).flatten())
            if not changed:
                for space in self.spaces.roots():
                    if not self.spaces.needed(space).any():
                        self.spaces.needed(space)[0] = changed = True

    def reads(self, mix: Mix) -> Tensor:
        """The input channels that a layer needs: not constant, and with a weight into a needed output."""
        return mix.reads[self.spaces.needed(mix.target.space)].any(0) & ~mix.source.known
