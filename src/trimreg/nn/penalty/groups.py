r"""Groups of a layer: which entries of which parameters make up an input unit, a channel, a head, a row.

A layer with K groups is a list of slabs. A slab is a parameter and an axis of it: group g holds the entries
``start + g*block ... start + (g+1)*block - 1`` along that axis, over all the other axes. The magnitude of a
group is the norm of its entries in all counted slabs together,

.. math:: r_g = \Bigl(\sum_{s\ \text{counted}} \|\theta_{s,g}\|^2\Bigr)^{1/2}.

An input unit of a linear layer is one column of ``weight``, an output channel of a convolution one row with
its bias beside it; a head of attention is a block of rows of the three projections and a block of columns of
the last one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

#: What "auto" means, by class; the first that fits is taken.
AUTO = (
    (nn.Linear, "in"),
    (nn.modules.conv._ConvNd, "out"),
    (nn.Embedding, "rows"),
    (nn.EmbeddingBag, "rows"),
    (nn.MultiheadAttention, "heads"),
)
KINDS = ("auto", "in", "out", "rows", "heads")


@dataclass(frozen=True)
class Slab:
    """Where the groups of a layer lie in one parameter; see the head of this module.

    Parameters
    ----------
    owner, attribute
        The parameter is ``getattr(owner, attribute)``, looked up at every use.
    axis : int
        Axis of the groups, not counting the axes of replicas.
    start, block : int
        First entry along the axis, and how many neighbours make up one group.
    counted : bool
        False for what is zeroed with the group but is no part of its norm, such as a bias.

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

    def view(self, tensor: Tensor, count: int, leading: int = 0) -> Tensor:
        """``tensor`` cut to the groups along its axis; a block gets an axis of its own, after it."""
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

    @property
    def counted(self) -> tuple[Slab, ...]:
        """The slabs that make up the norm."""
        return tuple(slab for slab in self.slabs if slab.counted)

    def view(self, slab: Slab, tensor: Tensor) -> Tensor:
        """A tensor of the parameter's shape, seen by groups."""
        return slab.view(tensor, self.count, len(self.replicas))

    def inner_axes(self, slab: Slab, view: Tensor) -> list[int]:
        """The axes of a view that lie inside a group."""
        leading = len(self.replicas)
        return [axis for axis in range(leading, view.ndim) if axis != leading + slab.axis]

    def spread(self, slab: Slab, factor: Tensor, ndim: int) -> Tensor:
        """``factor`` of shape ``(*replicas, count)``, shaped to broadcast against a view of ``ndim`` axes."""
        after = ndim - len(self.replicas) - slab.axis - 1
        shape = (*self.replicas, *[1] * slab.axis, self.count, *[1] * after)
        return factor.reshape(shape)

    def norms(self, sampled: bool | torch.Generator = False, out: Tensor | None = None) -> Tensor:
        """Norms of the groups, of shape ``(*replicas, count)``, in float32 at least; differentiable.

        With ``sampled=True`` a Bayesian layer's norms are those of a fresh draw of its weights, from a
        generator if one is given. ``out`` is where to put them, outside of autograd.
        """
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
        """What the groups are ranked by: their norms; :mod:`trimreg.nn.penalty.scores` has others."""
        return self.norms(out=out)

    @torch.no_grad()
    def scale_(self, factor: Tensor) -> None:
        """Multiply every slab by ``factor``, of shape ``(*replicas, count)``, in place."""
        for slab in self.slabs:
            view = self.view(slab, slab.tensor())
            view.mul_(self.spread(slab, factor, view.ndim))


def norm(tensor: Tensor, axes: list[int], out: Tensor | None = None) -> Tensor:
    """The norm over some axes, in float32 at least; its gradient is 0 at 0.

    Examples
    --------
    >>> import torch
    >>> from trimreg.nn.penalty.groups import norm
    >>> norm(torch.tensor([[3.0, 0.0], [4.0, 0.0]]), [0])
    tensor([5., 0.])
    """
    small = tensor.dtype in (torch.bfloat16, torch.float16)
    dtype = out.dtype if out is not None else torch.float32 if small else tensor.dtype
    if not axes:
        return tensor.to(dtype).abs() if out is None else out.copy_(tensor.abs())
    if out is not None and dtype.itemsize < tensor.dtype.itemsize:  # the model was widened
        return out.copy_(norm(tensor, axes))
    if tensor.is_cuda or tensor.ndim - 1 in axes:
        return torch.linalg.vector_norm(tensor, dim=axes, dtype=dtype, out=out)
    # On a CPU that function is many times slower than a sum where the last axis is not summed over.
    if out is not None:
        return torch.sum(tensor.to(dtype).square(), dim=axes, out=out).sqrt_()
    squares = tensor.to(dtype).square().sum(dim=axes)
    return torch.where(squares == 0, 1.0, squares).sqrt().masked_fill(squares == 0, 0.0)


def is_known(module: nn.Module) -> bool:
    """Whether ``groups="auto"`` knows what the groups of this module are.

    Examples
    --------
    >>> from torch import nn
    >>> from trimreg.nn.penalty.groups import is_known
    >>> is_known(nn.Conv2d(1, 2, 3)), is_known(nn.ReLU())
    (True, False)
    """
    return hasattr(module, "trimmed_groups") or isinstance(module, tuple(cls for cls, _ in AUTO))


def layer_groups(name: str, module: nn.Module, groups="auto") -> LayerGroups:
    """The groups of a layer.

    Parameters
    ----------
    name : str
        Name of the layer, for messages and states.
    module : nn.Module
        A linear or convolutional layer, an embedding, multi-head attention, or a module with a method
        ``trimmed_groups(kind)`` that returns ``(count, slabs, replicas)`` (and, where it likes, an attribute
        ``usual_groups`` that says what "auto" is).
    groups : {"auto", "in", "out", "rows", "heads"} or callable
        "auto" is input units of a linear layer, output channels of a convolution, rows of an embedding and
        heads of attention. A callable gets ``(name, module)`` and returns :class:`LayerGroups`.

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
    """
    if any(nn.parameter.is_lazy(parameter) for parameter in module.parameters()):
        raise ValueError(f"layer {name!r} has no shape yet; run one batch through the model first")
    if callable(groups):
        made = groups(name, module)
        if not isinstance(made, LayerGroups):
            raise TypeError(f"layer {name!r}: the groups callable must return LayerGroups; got {made!r}")
        return checked(made)
    if groups not in KINDS:
        raise ValueError(f"groups must be one of {', '.join(map(repr, KINDS))} or a callable; got {groups!r}")
    if hasattr(module, "trimmed_groups"):
        count, slabs, replicas = module.trimmed_groups(groups)
        kind = getattr(module, "usual_groups", groups) if groups == "auto" else groups
        return checked(LayerGroups(name, module, kind, count, tuple(slabs), tuple(replicas)))
    kind = groups
    if kind == "auto":
        kind = next((k for cls, k in AUTO if isinstance(module, cls)), None)
        if kind is None:
            raise TypeError(
                f"layer {name!r}: no groups are known for {type(module).__name__}; penalize a linear or "
                "convolutional layer, an embedding or attention, or give groups as a callable"
            )
    make = _MAKERS.get(kind)
    found = make(name, module)
    if found is None:
        raise TypeError(
            f"layer {name!r}: {type(module).__name__} has no groups {kind!r}; leave groups='auto'"
        )
    return checked(LayerGroups(name, module, kind, *found))


def _linear_or_conv(kind):
    def make(name, module):
        if isinstance(module, nn.Linear):
            inputs, outputs = 1, 0
        elif isinstance(module, nn.modules.conv._ConvNd):
            inputs, outputs = (0, 1) if module.transposed else (1, 0)
            if module.groups > 1 and (kind == "in" or module.transposed):
                raise ValueError(
                    f"layer {name!r}: a grouped convolution shares the axis of its groups={module.groups}; "
                    "give groups as a callable"
                )
        else:
            return None
        axis = inputs if kind == "in" else outputs
        slabs = [Slab(module, "weight", axis)]
        if kind == "out" and module.bias is not None:
            slabs.append(Slab(module, "bias", 0, counted=False))
        return module.weight.shape[axis], tuple(slabs)

    return make


def _rows(name, module):
    if not isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        return None
    return module.num_embeddings, (Slab(module, "weight", 0),)


def _heads(name, module):
    if not isinstance(module, nn.MultiheadAttention):
        return None
    width, block = module.embed_dim, module.head_dim
    slabs = []
    if module.in_proj_weight is not None:
        slabs += [Slab(module, "in_proj_weight", 0, part * width, block) for part in range(3)]
    else:
        slabs += [Slab(module, f"{part}_proj_weight", 0, 0, block) for part in "qkv"]
    slabs.append(Slab(module.out_proj, "weight", 1, 0, block))
    if module.in_proj_bias is not None:
        slabs += [Slab(module, "in_proj_bias", 0, part * width, block, counted=False) for part in range(3)]
    for extra in ("bias_k", "bias_v"):
        if getattr(module, extra) is not None:
            slabs.append(Slab(module, extra, 2, 0, block, counted=False))
    return module.num_heads, tuple(slabs)


_MAKERS = {"in": _linear_or_conv("in"), "out": _linear_or_conv("out"), "rows": _rows, "heads": _heads}


def checked(groups: LayerGroups) -> LayerGroups:
    """The groups themselves, once every slab is found to lie inside its parameter.

    Examples
    --------
    >>> from torch import nn
    >>> from trimreg.nn.penalty.groups import LayerGroups, Slab, checked
    >>> layer = nn.Linear(3, 2)
    >>> checked(LayerGroups("fc1", layer, "in", 4, (Slab(layer, "weight", 1),)))
    Traceback (most recent call last):
    ValueError: layer 'fc1': 4 groups of 1 do not fit in axis 1 of weight, of shape (2, 3)
    """
    if not any(slab.counted for slab in groups.slabs):
        raise ValueError(f"layer {groups.name!r}: no slab is counted, so its groups have no norm")
    for slab in groups.slabs:
        shape, leading = tuple(slab.tensor().shape), len(groups.replicas)
        at = leading + slab.axis
        if shape[:leading] != groups.replicas or at >= len(shape):
            raise ValueError(
                f"layer {groups.name!r}: {slab.attribute} of shape {shape} has no axis {slab.axis} after the "
                f"replicas {groups.replicas}"
            )
        if slab.start + groups.count * slab.block > shape[at]:
            raise ValueError(
                f"layer {groups.name!r}: {groups.count} groups of {slab.block} do not fit in axis "
                f"{slab.axis} of {slab.attribute}, of shape {shape}"
            )
    return groups
