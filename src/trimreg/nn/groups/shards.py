r"""Parameters that are divided among processes, as ``torch.distributed.fsdp.fully_shard`` does (DTensor).

Each process adds up :math:`\sum_{i \in g} a_i b_i` over its own part; then the processes add their sums.
So all have the same norms, rank alike, and cut their parts of the same groups. No process gathers a weight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, distributed

if TYPE_CHECKING:
    from .layer_groups import LayerGroups, Slab


class Shard(NamedTuple):
    """The part of a parameter on this process: entries ``begin`` to ``end`` of an axis of length ``full``."""

    axis: int
    begin: int
    end: int
    full: int
    group: Any  # the processes that share the axis


def shard_of(tensor: Tensor) -> Shard | None:
    """The part of a tensor that this process has; None if it has all of it."""
    placements = getattr(tensor, "placements", ())
    divided = [(place, dim) for dim, place in enumerate(placements) if not place.is_replicate()]
    if not divided:
        return None
    mesh, (place, dim) = tensor.device_mesh, divided[0]  # type: ignore[attr-defined]
    if len(divided) == 1 and place.is_shard():
        full = tensor.shape[place.dim]
        each = -(-full // mesh.size(dim))
        begin, end = (min((mesh.get_local_rank(dim) + k) * each, full) for k in range(2))
        if local(tensor).shape[place.dim] == end - begin:
            return Shard(place.dim, begin, end, full, mesh.get_group(dim))
    raise NotImplementedError(
        f"parameters must be sharded along one axis by one dimension of the mesh; got {placements}"
    )


def local(tensor: Tensor) -> Tensor:
    """The entries of a tensor on this process, with the same memory and without a gradient."""
    with torch.no_grad():
        return tensor.to_local() if hasattr(tensor, "to_local") else tensor.detach()


def is_sharded(layer: LayerGroups) -> bool:
    """Whether this process has only a part of a layer."""
    return any(shard_of(slab.tensor()) is not None for slab in layer.slabs)


def sums(layer: LayerGroups, first: list, second: list, out: Tensor, add: Callable | None = None) -> None:
    r"""Write :math:`\sum_{i \in g} a_i b_i` over the entries of all processes to ``out``.

    ``first`` and ``second`` have one tensor for each counted slab. ``add(a, b, axis, leading, axes, out)``
    adds to ``out`` the sums of ``a * b`` over ``axes``, for groups on ``axis`` after ``leading`` replicas.
    """
    add = _add if add is None else add
    out.zero_()
    tables: dict[Any, Tensor] = {}
    for slab, a, b in zip(layer.counted, first, second, strict=True):
        shard = shard_of(a)
        if shard is None:
            _add_part(layer, slab, a, b, None, out, add)
            continue
        if b.placements != a.placements:
            b = b.redistribute(placements=a.placements)
        table = tables.setdefault(shard.group, out.new_zeros(out.shape))
        _add_part(layer, slab, a, b, shard, table, add)
    for group, table in tables.items():
        distributed.all_reduce(table, group=group)
        out.add_(table)


def _add(a: Tensor, b: Tensor, axis: int, leading: int, axes: list[int], out: Tensor) -> None:
    product = a.to(out.dtype) * b
    out.add_(product.sum(axes) if axes else product)


def _add_part(
    layer: LayerGroups, slab: Slab, a: Tensor, b: Tensor, shard: Shard | None, out: Tensor, add: Callable
) -> None:
    """Add the sums over the part of a slab that is here."""
    leading = len(layer.replicas)
    at, before = _places(layer, slab, shard)
    a, b = local(a), local(b)
    if shard is None or shard.axis != at:
        view = layer.view(slab, a)
        add(view, layer.view(slab, b), leading + slab.axis, leading, layer.inner_axes(slab, view), out)
        return
    # Groups are divided among processes: first a sum for each entry of the axis, then for each group.
    entries = out.new_zeros(*a.shape[:before], shard.full)
    others = [axis for axis in range(before, a.ndim) if axis != at]
    add(a, b, at, before, others, entries[..., shard.begin : shard.end])
    view = layer.view(
        slab,
        entries.reshape(
            [entries.shape[-1] if i == at else a.shape[i] if i < before else 1 for i in range(a.ndim)]
        ),
    )
    axes = layer.inner_axes(slab, view)
    out.add_(view.sum(axes) if axes else view)


def scale(layer: LayerGroups, slab: Slab, factor: Tensor) -> None:
    """Multiply the part of a slab that is here by ``factor``, of shape ``(*replicas, count)``."""
    shard, tensor = shard_of(slab.tensor()), local(slab.tensor())
    at, before = _places(layer, slab, shard)
    if shard is None or shard.axis != at:
        view = layer.view(slab, tensor)
        view.mul_(layer.spread(slab, factor, view.ndim))
        return
    shape = [shard.full if i == at else size if i < before else 1 for i, size in enumerate(tensor.shape)]
    entries = factor.new_ones(shape)
    view = layer.view(slab, entries)
    view.copy_(layer.spread(slab, factor, view.ndim).expand(view.shape))
    tensor.mul_(entries.narrow(at, shard.begin, shard.end - shard.begin))


def _places(layer: LayerGroups, slab: Slab, shard: Shard | None) -> tuple[int, int]:
    """The axis of the groups in the parameter itself, and its number of axes of replicas."""
    at, before = slab.places(len(layer.replicas))
    if shard is not None and shard.axis < before:
        raise NotImplementedError(f"layer {layer.name!r}: replicas must not be divided among processes")
    return at, before


def all_finite(layer: LayerGroups) -> bool:
    """Whether all weights of a layer are finite, on all processes."""
    for slab in layer.slabs:
        shard, finite = shard_of(slab.tensor()), torch.isfinite(local(slab.tensor())).all()
        if shard is not None:
            flag = finite.to(torch.int32)
            distributed.all_reduce(flag, op=distributed.ReduceOp.MIN, group=shard.group)
            finite = flag > 0
        if not finite:
            return False
    return True
