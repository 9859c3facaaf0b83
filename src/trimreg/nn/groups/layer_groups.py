r"""Groups of a layer: the entries of its parameters that belong to an input unit, a channel, a head or a row.

The groups of a layer are described by slabs. A slab is a parameter with an axis: group g consists of the
entries ``start + g*block ... start + (g+1)*block - 1`` along that axis, over all the other axes. The
magnitude of a group is the norm of its entries in all counted slabs together,

.. math:: r_g = \Bigl(\sum_{s\ \text{counted}} \|\theta_{s,g}\|^2\Bigr)^{1/2}.

An input unit of a linear layer is one column of ``weight``. An output channel of a convolution is one row and
its bias. A head of attention is a block of rows of the three projections and a block of columns of the output
projection.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from . import shards

#: The groups that "auto" stands for, by class; the first match counts.
AUTO = (
    (nn.Linear, "in"),
    (nn.modules.conv._ConvNd, "out"),
    (nn.Embedding, "rows"),
    (nn.EmbeddingBag, "rows"),
    (nn.MultiheadAttention, "heads"),
    (nn.RNNBase, "units"),
)
#: The groups of a block of several layers; see :mod:`trimreg.nn.groups.blocks`.
OF_BLOCKS = ("heads", "queries", "width", "units")
KINDS = ("auto", "in", "out", "rows", "channels", *OF_BLOCKS)


@dataclass(frozen=True)
class Slab:
    """The place of a layer's groups in one parameter: group g is a block of entries along an axis.

    Parameters
    ----------
    owner, attribute
        The parameter is ``getattr(owner, attribute)``, looked up at every use.
    axis : int
        Axis of the groups, not counting the axes of replicas.
    start, block : int
        First entry along the axis, and the number of adjacent entries in one group.
    counted : bool
        False for entries that are set to zero with the group but do not count in its norm, such as a bias.

    Examples
    --------
    >>> from torch import nn
    >>> from trimreg.nn import Slab
    >>> layer = nn.Linear(3, 2)
    >>> Slab(layer, "weight", axis=1).tensor().shape
    torch.Size([2, 3])
    """

    owner: nn.Module
    attribute: str
    axis: int
    start: int = 0
    block: int = 1
    counted: bool = True

    def tensor(self) -> Tensor:
        """The parameter as it is now."""
        return getattr(self.owner, self.attribute)

    def places(self, leading: int) -> tuple[int, int]:
        """The axis of the groups in the parameter, and the number of axes of replicas before it."""
        return leading + self.axis, leading

    def view(self, tensor: Tensor, count: int, leading: int = 0) -> Tensor:
        """The part of ``tensor`` that belongs to the groups; a block becomes an axis of its own."""
        at = leading + self.axis
        if self.start or tensor.shape[at] != count * self.block:
            tensor = tensor.narrow(at, self.start, count * self.block)
        return tensor.unflatten(at, (count, self.block)) if self.block > 1 else tensor


@dataclass(frozen=True)
class LayerGroups:
    """The groups of one layer: their slabs, norms and scaling.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from trimreg.nn import layer_groups
    >>> layer = nn.Linear(3, 2)
    >>> _ = layer.weight.data.copy_(torch.tensor([[3.0, 0.0, 1.0], [4.0, 0.0, 0.0]]))
    >>> groups = layer_groups("fc1", layer)
    >>> groups.kind, groups.count, groups.norms().detach()
    ('in', 3, tensor([5., 0., 1.]))
    >>> groups.scale_(torch.tensor([1.0, 1.0, 0.0]))
    >>> groups.norms().detach()
    tensor([5., 0., 0.])
    """

    name: str
    module: nn.Module
    kind: str
    count: int
    slabs: tuple[Slab, ...]
    replicas: tuple[int, ...] = ()
    coupled: tuple[str, ...] = ()  # all layers that have the same channels, of kind "channels"

    @property
    def counted(self) -> tuple[Slab, ...]:
        """The slabs that count in the norm."""
        return tuple(slab for slab in self.slabs if slab.counted)

    def view(self, slab: Slab, tensor: Tensor) -> Tensor:
        """A view by groups of a tensor with the parameter's shape."""
        return slab.view(tensor, self.count, len(self.replicas))

    def inner_axes(self, slab: Slab, view: Tensor) -> list[int]:
        """The axes of a view inside a group."""
        leading = len(self.replicas)
        return [axis for axis in range(leading, view.ndim) if axis != leading + slab.axis]

    def spread(self, slab: Slab, factor: Tensor, ndim: int) -> Tensor:
        """``factor`` of shape ``(*replicas, count)``, shaped to broadcast against a view of ``ndim`` axes."""
        after = ndim - len(self.replicas) - slab.axis - 1
        shape = (*self.replicas, *[1] * slab.axis, self.count, *[1] * after)
        return factor.reshape(shape)

    def norms(self, sampled: bool | torch.Generator = False, out: Tensor | None = None) -> Tensor:
        """Norms of the groups, of shape ``(*replicas, count)``, at least in float32; differentiable.

        With ``sampled=True``, or a generator, the norms of a Bayesian layer are those of a fresh draw of its
        weights. With ``out``, they are written there and have no gradient. Norms of sharded parameters are
        those of all processes, without a gradient; all processes must ask for them.
        """
        if shards.is_sharded(self):
            if sampled:
                raise NotImplementedError(f"layer {self.name!r}: sharded weights cannot be drawn")
            weights = [slab.tensor() for slab in self.counted]
            if out is None:
                wide = torch.promote_types(weights[0].dtype, torch.float32)
                out = torch.empty((*self.replicas, self.count), dtype=wide, device=weights[0].device)
            shards.sums(self, weights, weights, out)
            return out.sqrt_()
        parts = []
        counted = self.counted
        for slab in counted:
            tensor = slab.tensor()
            if sampled and slab.attribute == "weight" and hasattr(slab.owner, "sampled_weight"):
                tensor = slab.owner.sampled_weight(*([] if sampled is True else [sampled]))
            view = self.view(slab, tensor)
            parts.append(norm(view, self.inner_axes(slab, view), out if len(counted) == 1 else None))
        if len(parts) == 1:
            return parts[0]
        return torch.linalg.vector_norm(torch.stack(parts, dim=-1), dim=-1, out=out)

    def importance(self, out: Tensor | None = None) -> Tensor:
        """The values that rank the groups: their norms, unless the groups have a score."""
        return self.norms(out=out)

    @torch.no_grad()
    def scale_(self, factor: Tensor) -> None:
        """Multiply every slab by ``factor``, of shape ``(*replicas, count)``, in place."""
        for slab in self.slabs:
            shards.scale(self, slab, factor)


def norm(tensor: Tensor, axes: list[int], out: Tensor | None = None) -> Tensor:
    """The norm over some axes, at least in float32; its gradient is 0 at 0."""
    small = tensor.dtype in (torch.bfloat16, torch.float16)
    dtype = out.dtype if out is not None else torch.float32 if small else tensor.dtype
    if not axes:
        return tensor.to(dtype).abs() if out is None else out.copy_(tensor.abs())
    if out is not None and dtype.itemsize < tensor.dtype.itemsize:  # the model was widened
        return out.copy_(norm(tensor, axes))
    if tensor.is_cuda or tensor.ndim - 1 in axes:
        return torch.linalg.vector_norm(tensor, dim=axes, dtype=dtype, out=out)
    # On a CPU that function is many times slower than a sum unless the last axis is among the axes.
    if out is not None:
        return torch.sum(tensor.to(dtype).square(), dim=axes, out=out).sqrt_()
    squares = tensor.to(dtype).square().sum(dim=axes)
    return torch.where(squares == 0, 1.0, squares).sqrt().masked_fill(squares == 0, 0.0)


def share_of(count: int, size: Any) -> Any:
    """A fraction of ``count`` as a number of groups, rounded and at least 1; other sizes as they are."""
    if not isinstance(size, numbers.Real) or isinstance(size, numbers.Integral):
        return size
    return max(1, round(count * float(size))) if 0.0 < float(size) < 1.0 else size


def is_known(module: nn.Module) -> bool:
    """Whether ``groups="auto"`` knows the groups of this module."""
    return hasattr(module, "trimmed_groups") or isinstance(module, tuple(cls for cls, _ in AUTO))


def layer_groups(
    name: str, module: nn.Module, groups: str | Callable = "auto", parent: nn.Module | None = None
) -> LayerGroups:
    """The groups of a layer.

    Parameters
    ----------
    name : str
        Name of the layer, for messages and states.
    module : nn.Module
        A linear, convolutional or recurrent layer, an embedding, an attention or a perceptron (see
        :mod:`trimreg.nn.groups.blocks`), or a module with a method ``trimmed_groups(kind)`` that returns
        ``(count, slabs, replicas)``. Such a module may have an attribute ``usual_groups``, the kind that
        "auto" stands for.
    groups : {"auto", "in", "out", "rows", "heads", "queries", "width", "units"} or callable
        - "in": input units of a linear layer; "out": its outputs, or the channels of a convolution.
        - "rows": of an embedding.
        - "heads": of attention. If several heads of queries share one of keys and values, a group is that
          one with all its queries.
        - "queries": the heads of queries of each head of keys and values.
        - "width": the entries of each head. Every head keeps the same number, each head its own.
        - "units": hidden units of a perceptron or of a recurrent layer.

        "auto" stands for "in" of a linear layer, "out" of a convolution, "rows", "heads" and "units". A
        callable is given ``(name, module)`` and returns :class:`LayerGroups`.
    parent : nn.Module, optional
        The module that contains the layer, if the layer is the part of a block that computes its groups.

    Examples
    --------
    >>> from torch import nn
    >>> from trimreg.nn import layer_groups
    >>> layer_groups("conv", nn.Conv2d(3, 8, 5)).count
    8
    >>> layer_groups("fc", nn.Linear(4, 6), "out").count
    6
    >>> heads = layer_groups("attention", nn.MultiheadAttention(12, 3))
    >>> heads.count, len(heads.counted), heads.norms().shape
    (3, 4, torch.Size([3]))
    >>> layer_groups("memory", nn.LSTM(4, 5)).count
    5
    """
    if any(nn.parameter.is_lazy(parameter) for parameter in module.parameters()):
        raise ValueError(f"layer {name!r} is lazy and has no shape yet; run the model on a batch first")
    if callable(groups):
        made = groups(name, module)
        if not isinstance(made, LayerGroups):
            raise TypeError(f"layer {name!r}: the groups callable must return LayerGroups; got {made!r}")
        return checked(made)
    if groups not in KINDS:
        raise ValueError(f"groups must be one of {', '.join(map(repr, KINDS))} or a callable; got {groups!r}")
    if groups == "channels":
        raise ValueError("groups 'channels' are those of a network; see TrimmedGroupL1 and its example_input")
    if hasattr(module, "trimmed_groups"):
        count, slabs, replicas = module.trimmed_groups(groups)
        kind = getattr(module, "usual_groups", groups) if groups == "auto" else groups
        return checked(LayerGroups(name, module, kind, count, tuple(slabs), tuple(replicas)))
    kind = groups
    if kind == "auto":
        kind = next((k for cls, k in AUTO if isinstance(module, cls)), "auto")
    if kind == "units" and isinstance(module, nn.RNNBase):
        from .recurrent import recurrent_groups

        parts = recurrent_groups(name, module)
        if len(parts) > 1:
            problem = f"layer {name!r} has groups of its own for each of {[part.name for part in parts]}"
            raise ValueError(f"{problem}; TrimmedGroupL1 takes them all, with the same keep")
        return parts[0]
    if kind in ("auto", *OF_BLOCKS):
        from .blocks import block_groups, looked_for

        block = block_groups(name, module, kind, parent)
        if block is None:
            what, needs = type(module).__name__, looked_for(kind)
            if kind == "auto":
                needs = f"a linear or convolutional layer, an embedding, {needs}"
                raise TypeError(f"layer {name!r} must be {needs}; or groups a callable; got a {what}")
            raise TypeError(f"layer {name!r}: {what} has no groups {kind!r}, which need {needs}")
        return block
    found = _found(name, module, kind)
    if found is None:
        what = f"{type(module).__name__} has no groups {kind!r}"
        raise TypeError(f"layer {name!r}: {what}; use groups='auto'")
    return checked(LayerGroups(name, module, kind, *found))


def _found(name: str, module: Any, kind: str) -> tuple[int, tuple[Slab, ...]] | None:
    """The number of groups and their slabs; None if the module has no groups of this kind."""
    if kind == "rows" and isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        return module.num_embeddings, (Slab(module, "weight", 0),)
    if kind not in ("in", "out") or not isinstance(module, (nn.Linear, nn.modules.conv._ConvNd)):
        return None
    transposed = getattr(module, "transposed", False)
    if getattr(module, "groups", 1) > 1 and (kind == "in" or transposed):
        form = f"a convolution with groups={module.groups} has no axis {kind!r}"
        raise ValueError(f"layer {name!r}: {form}; give groups as a callable")
    axis = int((kind == "in") != transposed)
    slabs = [Slab(module, "weight", axis)]
    if kind == "out" and module.bias is not None:
        slabs.append(Slab(module, "bias", 0, counted=False))
    return module.weight.shape[axis], tuple(slabs)


def checked(groups: LayerGroups) -> LayerGroups:
    """The groups as given; a ValueError unless every slab lies inside its parameter."""
    if not any(slab.counted for slab in groups.slabs):
        raise ValueError(f"layer {groups.name!r}: at least one slab must be counted, or groups have no norm")
    leading = len(groups.replicas)
    for slab in groups.slabs:
        shape, at = tuple(slab.tensor().shape), leading + slab.axis
        what = f"layer {groups.name!r}: {slab.attribute} of shape {shape}"
        if shape[:leading] != groups.replicas or at >= len(shape):
            raise ValueError(f"{what} has no axis {slab.axis} after the replicas {groups.replicas}")
        if slab.start + groups.count * slab.block > shape[at]:
            needed = f"{groups.count} groups of {slab.block}"
            raise ValueError(f"{what} has no room for {needed} from {slab.start} on along axis {slab.axis}")
    return groups
