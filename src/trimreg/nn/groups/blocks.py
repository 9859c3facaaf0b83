"""Groups inside the blocks of a network: heads of attention and their width, hidden units of a perceptron.

A block is recognized by the names and shapes of its layers, not by its class, so the blocks of ``torch.nn``,
timm and transformers are the same to the penalty. A group contains all weights that compute a head or a unit
and all that read it. So it can be removed without a change of any other layer.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from torch import Tensor, nn

from .layer_groups import LayerGroups, Slab

#: Names of the layers that compute queries, keys and values, and of the layer that reads the heads.
ATTENTIONS = (
    ("q_proj", "k_proj", "v_proj", "o_proj"), ("q_proj", "k_proj", "v_proj", "out_proj"),
    ("q_proj", "k_proj", "v_proj", "dense"), ("query", "key", "value", "output.dense"),
    ("query", "key", "value", "dense"), ("query", "key", "value", "out"),
    ("self.query", "self.key", "self.value", "output.dense"),
    ("attention.query", "attention.key", "attention.value", "output.dense"),
    ("q_lin", "k_lin", "v_lin", "out_lin"), ("to_q", "to_k", "to_v", "to_out.0"),
    ("qkv", "proj"), ("to_qkv", "to_out.0"), ("c_attn", "c_proj"), ("qkv_proj", "o_proj"), ("Wqkv", "Wo"),
    ("query_key_value", "dense"),
)  # fmt: skip
#: Names of the layers that compute the hidden units of a perceptron, and last of the layer that reads them.
PERCEPTRONS = (
    ("gate_proj", "up_proj", "down_proj"), ("gate_up_proj", "down_proj"), ("up_proj", "down_proj"),
    ("fc1_g", "fc1_x", "fc2"), ("fc1", "fc2"), ("linear1", "linear2"), ("lin1", "lin2"), ("c_fc", "c_proj"),
    ("intermediate.dense", "output.dense"), ("wi_0", "wi_1", "wo"), ("wi", "wo"), ("Wi", "Wo"),
    ("dense_h_to_4h", "dense_4h_to_h"), ("fc_in", "fc_out"), ("ffn", "ffn_output"),
)  # fmt: skip
#: Attributes of a module, or entries of its ``config``, with the width and the number of heads.
WIDTH_OF_HEAD = ("head_dim", "attention_head_size", "head_size", "dim_head")
NUMBER_OF_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads")


@dataclass(frozen=True)
class HeadSlab(Slab):
    """The place of groups inside heads: the axis holds one head after another, each with ``count`` groups.

    The heads are the replicas of the groups, so every head keeps the same number of them.
    """

    heads: int = 1

    def places(self, leading: int) -> tuple[int, int]:
        """The parameter has no axis of replicas: they are heads."""
        return self.axis, 0

    def view(self, tensor: Tensor, count: int, leading: int = 0) -> Tensor:
        """As for other slabs; the heads become the first axis."""
        sizes = (self.heads, count, self.block) if self.block > 1 else (self.heads, count)
        part = tensor.narrow(self.axis, self.start, self.heads * count * self.block)
        return part.unflatten(self.axis, sizes).movedim(self.axis, 0)


class Rows(NamedTuple):
    """The rows of a layer, from ``start`` on, that compute queries, keys, values or hidden units."""

    owner: nn.Module
    start: int = 0
    weight: str = "weight"
    bias: str = "bias"
    bias_start: int = 0

    def slabs(self, place: Callable[..., Slab]) -> Iterator[Slab]:
        """The slab of the weights, and that of the bias if there is one."""
        yield place(self.owner, self.weight, row_axis(self.owner), self.start)
        if getattr(self.owner, self.bias, None) is not None:
            yield replace(place(self.owner, self.bias, 0, self.bias_start), counted=False)


def row_axis(module: nn.Module) -> int:
    """The axis of the outputs in the weight of a layer; transformers' ``Conv1D`` has it last."""
    return int(hasattr(module, "nf"))


@dataclass(frozen=True)
class Attention:
    """Attention with ``heads`` heads of queries and ``shared`` heads of keys and values.

    Without ``others`` the rows of queries contain those of keys and values: of all three for each head.
    """

    module: nn.Module  # its forward splits the heads
    queries: Rows
    others: tuple[Rows, ...]
    out: nn.Module
    heads: int
    shared: int
    width: int

    def groups(self, kind: str) -> tuple[int, list[Slab], tuple[int, ...]]:
        """The number of groups, their slabs, and the replicas: the heads, if the groups lie inside them."""
        share, read = self.heads // self.shared, 1 - row_axis(self.out)
        if kind == "heads":
            rows = share * self.width if self.others else 3 * self.width
            slabs = [*self.queries.slabs(blocks_of(rows))]
            slabs += [slab for rows in self.others for slab in rows.slabs(blocks_of(self.width))]
            return self.shared, [*slabs, Slab(self.out, "weight", read, 0, share * self.width)], ()
        place = _inside(self.shared, self.width if kind == "queries" else 1)
        slabs = [*self.queries.slabs(place)]
        slabs += [slab for rows in self.others for slab in rows.slabs(place) if kind == "width"]
        count = share if kind == "queries" else self.width
        return count, [*slabs, place(self.out, "weight", read, 0)], (self.shared,)

    def refusal(self, kind: str) -> str:
        """Why this attention has no such groups; empty if it has."""
        own = {id(p) for layer in (*self.layers(), self.out) for p in layer.parameters()}
        others = {name: p.numel() for name, p in self.module.named_parameters() if id(p) not in own}
        asked = list(inspect.signature(self.module.forward).parameters)
        by_head = [
            name for name in asked if any(mark in name for mark in ("alibi", "position_bias", "rel_pos"))
        ]
        by_head += [name for name, size in others.items() if not self._is_norm(name, size)]
        if by_head:
            return f"its {by_head[0]!r} depends on the heads, or is not known"
        if kind != "heads" and not self.others:
            return (
                "its rows are in the order of heads, each with its query, key and value; use groups='heads'"
            )
        if kind == "queries" and self.heads == self.shared:
            return "groups 'queries' need several queries for each key; use groups='heads'"
        if kind != "width":
            return ""
        inside = [*asked, *vars(self.module), *(name for name, _ in self.module.named_modules())]
        if any("rotary" in name or "rope" in name or name == "position_embeddings" for name in inside):
            return (
                "rotary embeddings turn pairs of entries by angles that depend on the width of heads, so it "
                "cannot be trimmed; use groups='heads'"
            )
        if self.heads > self.shared:
            return "the width of heads that share keys cannot be trimmed; use groups='heads' or 'queries'"
        if self.width in others.values():
            return "its queries or keys are normalized over the width of a head; use groups='heads'"
        return ""

    def _is_norm(self, name: str, size: int) -> bool:
        """Whether a parameter is that of a norm that does not see how many heads there are."""
        inputs = self.queries.owner.weight.shape[1 - row_axis(self.queries.owner)]
        return "norm" in name.lower() and size in (self.width, *(() if name[0] in "qk" else (inputs,)))

    def layers(self) -> tuple[nn.Module, ...]:
        """The layers that compute queries, keys and values."""
        return (self.queries.owner, *(rows.owner for rows in self.others))


@dataclass(frozen=True)
class Perceptron:
    """A perceptron with one hidden layer: the rows that compute its units, and the layer that reads them."""

    module: nn.Module
    rows: tuple[Rows, ...]
    out: nn.Module
    units: int

    def groups(self, kind: str) -> tuple[int, list[Slab], tuple[int, ...]]:
        """The number of units and their slabs; no replicas."""
        slabs = [slab for rows in self.rows for slab in rows.slabs(blocks_of(1))]
        return self.units, [*slabs, Slab(self.out, "weight", 1 - row_axis(self.out))], ()

    def refusal(self, kind: str) -> str:
        """Why this perceptron has no such groups; empty if it has."""
        known, inputs = (*self.layers(), self.out), linear_sizes(self.rows[0].owner)[1]
        for name, child in self.module.named_children():
            sizes = [p.numel() for p in child.parameters(recurse=False) if child not in known]
            if self.units in sizes and self.units != inputs:
                return f"its {name!r} depends on the number of hidden units"
        return ""

    def layers(self) -> tuple[nn.Module, ...]:
        """The layers that compute the units."""
        return tuple(rows.owner for rows in self.rows)


def blocks_of(block: int) -> Callable[..., Slab]:
    return lambda owner, attribute, axis, start: Slab(owner, attribute, axis, start, block)


def _inside(heads: int, block: int) -> Callable[..., Slab]:
    return lambda owner, attribute, axis, start: HeadSlab(owner, attribute, axis, start, block, heads=heads)


# -- recognition --------------------------------------------------------------------------------------------


def block_of(module: nn.Module, kind: str, parent: nn.Module | None = None) -> Attention | Perceptron | None:
    """The block with groups of this kind; None if there is none.

    It is the module itself, or its parent if the module is the part of a block that computes its groups, such
    as ``attention.self``, ``intermediate`` or ``fc1``.
    """
    for whole in (module, parent):
        found: Attention | Perceptron | None = None
        if whole is not None and kind in ("heads", "queries", "width", "auto"):
            found = attention_of(whole)
        if whole is not None and kind in ("units", "auto"):
            found = found or perceptron_of(whole)
        if found is not None and (whole is module or set(found.layers()) <= set(module.modules())):
            return found
    return None


def block_groups(
    name: str, module: nn.Module, kind: str = "auto", parent: nn.Module | None = None
) -> LayerGroups | None:
    """The groups of a block; None if the module is no block with groups of this kind."""
    found = block_of(module, kind, parent)
    if found is None:
        return None
    if kind == "auto":
        kind = "heads" if isinstance(found, Attention) else "units"
    if refusal := found.refusal(kind):
        raise ValueError(f"layer {name!r} has no groups {kind!r}: {refusal}")
    count, slabs, replicas = found.groups(kind)
    return LayerGroups(name, module, kind, count, tuple(sorted(slabs, key=lambda s: not s.counted)), replicas)


def attention_of(module: Any) -> Attention | None:
    """The attention in a module, by the names and shapes of its layers; None if there is none."""
    if isinstance(module, nn.MultiheadAttention):
        return _of_torch(module)
    for *names, last in ATTENTIONS:
        layers, out = [_linear(module, name) for name in names], _linear(module, last)
        if out is None or None in layers:
            continue
        total = linear_sizes(out)[1]
        queries, shared, values = (linear_sizes(layer)[0] for layer in (layers * 3)[:3])
        starts = (0, 0, 0)
        if len(layers) == 1:  # first the rows of all queries, then those of keys and values
            shared = values = (queries - total) // 2
            starts, queries = (0, total, total + shared), queries - 2 * shared
        holder = module.get_submodule(names[0].rpartition(".")[0])
        width = _width_of_head(holder, total)
        fits = width and queries == total and shared == values and 0 < shared <= total
        if not fits or total % shared or shared % width or (names[0] == "c_attn" and not row_axis(layers[0])):
            continue
        if names[0] == "query_key_value":
            starts = (0,)
            if shared != total:
                continue
        rows = [
            Rows(layer, start, bias_start=start) for layer, start in zip(layers * 3, starts, strict=False)
        ]
        return Attention(holder, rows[0], tuple(rows[1:]), out, total // width, shared // width, width)
    return None


def _of_torch(module: nn.MultiheadAttention) -> Attention:
    size, heads = module.embed_dim, module.num_heads
    fused = module.in_proj_weight is not None
    rows = [
        Rows(
            module, part * size if fused else 0, "in_proj_weight" if fused else f"{letter}_proj_weight",
            "in_proj_bias", part * size,
        )
        for part, letter in enumerate("qkv")
    ]  # fmt: skip
    return Attention(module, rows[0], tuple(rows[1:]), module.out_proj, heads, heads, module.head_dim)


def perceptron_of(module: nn.Module) -> Perceptron | None:
    """The perceptron in a module, by the names and shapes of its layers; None if there is none."""
    for *names, last in PERCEPTRONS:
        layers, out = [_linear(module, name) for name in names], _linear(module, last)
        if out is None or None in layers:
            continue
        units, sizes = linear_sizes(out)[1], {linear_sizes(layer)[0] for layer in layers}
        if sizes == {units}:
            return Perceptron(module, tuple(map(Rows, layers)), out, units)
        if sizes == {2 * units} and len(layers) == 1:  # a gate and its values in one layer
            rows = (Rows(layers[0]), Rows(layers[0], units, bias_start=units))
            return Perceptron(module, rows, out, units)
    return None


def _linear(module: nn.Module, path: str) -> Any:
    """The linear layer at a path below a module, as ``nn.Linear`` or transformers' ``Conv1D``; or None."""
    for name in path.split("."):
        found = getattr(module, name, None) if isinstance(module, nn.Module) else None
        if not isinstance(found, nn.Module):
            return None
        module = found
    conv1d = hasattr(module, "nf") and hasattr(module, "nx")
    return module if isinstance(module, nn.Linear) or conv1d else None


def linear_sizes(layer: Any) -> tuple[int, int]:
    """The numbers of outputs and inputs of a linear layer."""
    rows = row_axis(layer)
    return layer.weight.shape[rows], layer.weight.shape[1 - rows]


def _width_of_head(holder: Any, total: int) -> int:
    """The width of a head, from the attributes of a module or its config; 0 if they do not say it."""
    for source in (holder, getattr(holder, "config", None)):
        for names in (WIDTH_OF_HEAD, NUMBER_OF_HEADS):
            for name in names:
                number = getattr(source, name, None)
                if isinstance(number, int) and number > 0 and total % number == 0:
                    return number if names is WIDTH_OF_HEAD else total // number
    return 0


def looked_for(kind: str) -> str:
    """What a module with groups of this kind must be, for messages."""
    attention, perceptron = (
        ", ".join("/".join(names) for names in table) for table in (ATTENTIONS, PERCEPTRONS)
    )
    parts = [f"attention (nn.MultiheadAttention, or layers named {attention})"] if kind != "units" else []
    parts += [f"a perceptron (layers named {perceptron})"] if kind in ("units", "auto") else []
    return f"{' or '.join(parts)}, of sizes that fit"
