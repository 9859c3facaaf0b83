r"""Many networks of one shape trained as one: seeds and settings side by side in batched layers.

The parameters of E layers lie in one tensor with a first axis of length E, and one batched product does the
work of E small ones. Losses are summed over the replicas; then every replica gets the gradient of its own
loss, and an optimizer that works entry by entry (SGD, Adam) trains each as if it were alone.

Between layers an activation has shape (E, batch, ...). The first layer may also be given (batch, ...): the
same input for all replicas, multiplied once with all weights.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from trimreg.nn.layers.copies import without_start
from trimreg.nn.penalty.groups import Slab

Seeds = Iterable["int | torch.Generator"]


def replica_generators(seeds: Seeds) -> list[torch.Generator]:
    """A random generator for each replica, to be handed from layer to layer.

    Layers that share these generators draw on from each other, as the layers of a plain network do after
    ``torch.manual_seed(seed)``. Generators among the seeds are returned as they are.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from trimreg_reproduction.networks.training.ensemble import EnsembleLinear, replica_generators
    >>> seeds = replica_generators([0, 1])
    >>> first, second = EnsembleLinear(2, 5, 4, seeds=seeds), EnsembleLinear(2, 4, 3, seeds=seeds)
    >>> _ = torch.manual_seed(1)
    >>> alone = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3))
    >>> torch.equal(second.weight[1], alone[1].weight)
    True
    """
    return [
        seed if isinstance(seed, torch.Generator) else torch.Generator().manual_seed(operator.index(seed))
        for seed in seeds
    ]


class EnsembleLayer(nn.Module):
    """E layers of the class ``single``, parameter by parameter stacked along a new first axis.

    A subclass says how an input becomes rows, how rows are answered and how the answer is shaped; so linear
    layers and convolutions have their plain, Bayesian and gated forms in common.
    """

    single: ClassVar[type[nn.Module]]
    replica_axes = 1

    def __init__(self, replicas: int, arguments: dict, seeds: Seeds | None, device, dtype) -> None:
        super().__init__()
        self.replicas = operator.index(replicas)
        self.arguments = arguments
        seeds = [None] * self.replicas if seeds is None else replica_generators(seeds)
        if self.replicas < 1 or len(seeds) != self.replicas:
            raise ValueError(f"an ensemble of {self.replicas} replicas was given {len(seeds)} seeds")
        # On the CPU, whatever the device: a seed then means the same network everywhere.
        layers = [
            _seeded(lambda: self.single(**arguments, device="cpu", dtype=dtype), seed) for seed in seeds
        ]
        for name, parameter in layers[0]._parameters.items():
            stacked = None
            if parameter is not None:
                stacked = nn.Parameter(
                    torch.stack([getattr(layer, name).detach() for layer in layers]).to(device)
                )
            self.register_parameter(name, stacked)

    @classmethod
    def stack(cls, layers: Sequence[nn.Module]) -> EnsembleLayer:
        """An ensemble of given layers, their values copied: the inverse of :meth:`replica`."""
        kinds = {type(layer) for layer in layers}
        if kinds != {cls.single}:
            got = ", ".join(sorted(kind.__name__ for kind in kinds)) or "nothing"
            raise TypeError(f"{cls.__name__}.stack takes layers of {cls.single.__name__}; got {got}")
        arguments = [cls._arguments_of(layer) for layer in layers]
        if any(other != arguments[0] for other in arguments):
            raise ValueError(f"{cls.__name__}.stack takes layers of one form; got {arguments}")
        weight = layers[0].weight
        with torch.random.fork_rng(devices=[]):
            made = cls(len(layers), **arguments[0], device=weight.device, dtype=weight.dtype)
        with torch.no_grad():
            for name, parameter in made.named_parameters():
                parameter.copy_(torch.stack([getattr(layer, name) for layer in layers]))
        return made.train(layers[0].training)

    def replica(self, index: int) -> nn.Module:
        """One of the layers by itself, its values copied."""
        if not -self.replicas <= index < self.replicas:
            raise IndexError(f"replica {index} of an ensemble of {self.replicas}")
        made = without_start(self.single, self.weight, **self.arguments)
        with torch.no_grad():
            for name, parameter in made.named_parameters():
                parameter.copy_(getattr(self, name)[index])
        return made.train(self.training)

    def extra_repr(self) -> str:
        return ", ".join([str(self.replicas), *(f"{name}={value}" for name, value in self.arguments.items())])

    def _answer(self, rows: Tensor) -> Tensor:
        """(E, rows, out) from rows (E, rows, in) or shared (rows, in)."""
        return affine(rows, self.as_matrix(self.weight), self.bias)

    @staticmethod
    def as_matrix(weight: Tensor) -> Tensor:
        """(E, out, in) from a tensor of the weight's shape, in the order of the rows' entries."""
        return weight

    def trimmed_groups(self, kind: str):
        """Count, slabs and replicas of the groups, for the penalty."""
        axes = {"in": 1, "out": 0}
        kind = self.usual_groups if kind == "auto" else kind
        if kind not in axes:
            raise ValueError(f'{type(self).__name__} has groups "in" and "out"; got {kind!r}')
        slabs = [Slab(self, "weight", axes[kind])]
        if kind == "out" and self.bias is not None:
            slabs.append(Slab(self, "bias", 0, counted=False))
        return self.weight.shape[1 + axes[kind]], tuple(slabs), (self.replicas,)


def _seeded(build: Callable[[], nn.Module], generator: torch.Generator | None) -> nn.Module:
    """What ``build()`` makes when the global generator stands where this one does; this one moves on."""
    if generator is None:
        return build()
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(generator.get_state())
        layer = build()
        generator.set_state(torch.get_rng_state())
    return layer


def affine(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    r"""``rows[e] @ weight[e].T + bias[e]`` for every replica: (E, rows, out).

    ``rows`` (rows, in) are shared by all: one product with all the weights, seen as (E, rows, out).

    Examples
    --------
    >>> import torch
    >>> from trimreg_reproduction.networks.training.ensemble import affine
    >>> weight = torch.tensor([[[1.0, 0.0]], [[0.0, 2.0]]])
    >>> affine(torch.tensor([[3.0, 4.0]]), weight, None).tolist()
    [[[3.0]], [[8.0]]]
    """
    if rows.ndim == 2:
        flat_bias = None if bias is None else bias.flatten()
        answer = functional.linear(rows, weight.flatten(0, 1), flat_bias)
        return answer.unflatten(1, weight.shape[:2]).transpose(0, 1)
    if bias is None:
        return torch.bmm(rows, weight.mT)
    return torch.baddbmm(bias.unsqueeze(1), rows, weight.mT)


def windows(x: Tensor, kernel_size, stride, padding, dilation) -> tuple[Tensor, int, int]:
    """The patches under a kernel as rows: (..., batch * height * width, kernel * channels), height, width.

    Channels come last within a patch: a line of the kernel is then one run of memory for an input that lies
    channels last, as outputs of :class:`EnsembleConv2d` do. ``torch.nn.functional.unfold`` works image by
    image on a GPU.

    Examples
    --------
    >>> import torch
    >>> from trimreg_reproduction.networks.training.ensemble import windows
    >>> rows, height, width = windows(torch.arange(9.0).view(1, 1, 3, 3), (2, 2), (1, 1), (0, 0), (1, 1))
    >>> rows[0].tolist(), height, width
    ([0.0, 1.0, 3.0, 4.0], 2, 2)
    """
    if any(padding):
        x = functional.pad(x, (padding[1], padding[1], padding[0], padding[0]))
    for axis in (0, 1):
        reach, pixels = (kernel_size[axis] - 1) * dilation[axis] + 1, x.shape[axis - 2]
        if pixels < reach:
            raise ValueError(f"an input of {pixels} pixels is less than the kernel's reach of {reach}")
    patches = _Patches.apply(x.movedim(-3, -1), tuple(kernel_size), tuple(stride), tuple(dilation))
    height, width = patches.shape[-5:-3]
    return patches.flatten(-3).flatten(-4, -2), height, width


class _Patches(torch.autograd.Function):
    """(..., H, W, channels) to (..., H', W', kernel height, kernel width, channels), as a copy.

    The slope is written out: autograd's, of strided views, goes once over all patches for each pixel offset
    and by atomic additions on a GPU. Here an axis is folded by as many additions as the kernel is long.
    """

    @staticmethod
    def forward(x, kernel, stride, dilation):
        for axis in (0, 1):  # each pass turns pixels into places, and adds an axis of offsets at the end
            reach = (kernel[axis] - 1) * dilation[axis] + 1
            x = x.unfold(-3, reach, stride[axis])[..., :: dilation[axis]]
        return x.movedim(-3, -1).contiguous()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, _, ctx.stride, ctx.dilation = inputs
        ctx.pixels = x.shape[-3:-1]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        if not ctx.needs_input_grad[0]:
            return None, None, None, None
        # (..., H', W', kernel height, kernel width, C) to (..., H', W, kernel height, C) to (..., H, W, C)
        for axis in (1, 0):
            parts = gradient.movedim(-2, 0)
            gradient = _folded(parts, -3, ctx.pixels[axis], ctx.stride[axis], ctx.dilation[axis])
        return gradient, None, None, None


def _folded(parts: Tensor, axis: int, pixels: int, stride: int, dilation: int) -> Tensor:
    """The sum of ``parts[k]``, each put on an axis of ``pixels`` from ``k * dilation`` on by ``stride``."""
    places = parts.shape[1:][axis]
    shape = list(parts.shape[1:])
    shape[axis] = pixels
    whole = parts.new_zeros(shape)
    for offset, part in enumerate(parts):
        first = offset * dilation
        at = [slice(None)] * len(shape)
        at[axis] = slice(first, first + stride * (places - 1) + 1, stride)
        whole[tuple(at)].add_(part)
    return whole


class EnsembleLinear(EnsembleLayer):
    r"""E linear layers: :math:`y_e = x_e W_e^T + b_e`, weight (E, out, in), bias (E, out).

    Parameters
    ----------
    replicas : int
    in_features, out_features, bias
        As for ``nn.Linear``.
    seeds : iterable of int or torch.Generator, optional
        One a replica: its start is that of the plain layer built after ``torch.manual_seed``. Several layers
        of a network share :func:`replica_generators`. None: the global generator.
    device, dtype
        Where it goes after the start, and its type.

    Examples
    --------
    >>> import torch
    >>> from trimreg_reproduction.networks.training.ensemble import EnsembleLinear
    >>> layer = EnsembleLinear(3, 5, 2, seeds=[0, 1, 2])
    >>> layer(torch.ones(7, 5)).shape, layer(torch.ones(3, 7, 5)).shape
    (torch.Size([3, 7, 2]), torch.Size([3, 7, 2]))
    >>> layer.replica(1)
    Linear(in_features=5, out_features=2, bias=True)
    """

    single = nn.Linear
    usual_groups = "in"

    def __init__(
        self,
        replicas,
        in_features,
        out_features,
        bias=True,
        *,
        seeds=None,
        device=None,
        dtype=None,
        **options,
    ):
        arguments = {"in_features": in_features, "out_features": out_features, "bias": bias} | options
        super().__init__(replicas, arguments, seeds, device, dtype)

    @staticmethod
    def _arguments_of(layer: nn.Linear) -> dict:
        form = {"in_features": layer.in_features, "out_features": layer.out_features}
        return form | {"bias": layer.bias is not None}

    def forward(self, x: Tensor) -> Tensor:
        shared = x.ndim == 2
        if x.ndim not in (2, 3) or (not shared and x.shape[0] != self.replicas):
            features = self.weight.shape[2]
            expected = f"({self.replicas}, batch, {features}) or (batch, {features})"
            raise ValueError(f"the input must have shape {expected}; got {tuple(x.shape)}")
        return self._answer(x)


class EnsembleConv2d(EnsembleLayer):
    r"""E convolutions, weight (E, out, in, height, width): (E, batch, in, H, W) to (E, batch, out, H', W').

    As one batched product over patches: a grouped convolution would say the same and is slow on GPUs. The
    output's memory is laid out channels last. Stateless layers that know nothing of replicas, such as
    pooling, are applied by :func:`over_replicas`. No groups, and zeros as padding.

    Examples
    --------
    >>> import torch
    >>> from torch.nn import functional
    >>> from trimreg_reproduction.networks.training.ensemble import EnsembleConv2d, over_replicas
    >>> layer = EnsembleConv2d(3, 1, 4, 5, seeds=[0, 1, 2])
    >>> y = layer(torch.ones(7, 1, 28, 28))
    >>> y.shape, over_replicas(functional.max_pool2d, y, 2).shape
    (torch.Size([3, 7, 4, 24, 24]), torch.Size([3, 7, 4, 12, 12]))
    """

    single = nn.Conv2d
    usual_groups = "out"

    def __init__(
        self, replicas, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, bias=True,
        *, seeds=None, device=None, dtype=None, **options,
    ):  # fmt: skip
        arguments = {
            "in_channels": in_channels,
            "out_channels": out_channels,
            "kernel_size": _pair("kernel_size", kernel_size),
            "stride": _pair("stride", stride),
            "padding": _pair("padding", padding),
            "dilation": _pair("dilation", dilation),
            "bias": bias,
        } | options
        super().__init__(replicas, arguments, seeds, device, dtype)

    @staticmethod
    def _arguments_of(layer: nn.Conv2d) -> dict:
        if layer.groups != 1 or layer.padding_mode != "zeros":
            raise ValueError("an ensemble of convolutions has no groups, and zeros as padding")
        names = ("in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation")
        return {name: getattr(layer, name) for name in names} | {"bias": layer.bias is not None}

    @staticmethod
    def as_matrix(weight: Tensor) -> Tensor:
        return weight.movedim(2, -1).flatten(2)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim not in (4, 5) or (x.ndim == 5 and x.shape[0] != self.replicas):
            expected = f"({self.replicas}, batch, {self.weight.shape[2]}, H, W) or without the first axis"
            raise ValueError(f"the input must have shape {expected}; got {tuple(x.shape)}")
        form = (self.arguments[name] for name in ("kernel_size", "stride", "padding", "dilation"))
        rows, height, width = windows(x, *form)
        answer = self._answer(rows)
        return answer.unflatten(1, (x.shape[-4], height, width)).movedim(-1, -3)


def _pair(name: str, value) -> tuple[int, int]:
    pair = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(pair) != 2 or not all(isinstance(entry, int) for entry in pair):
        raise ValueError(f"{name} must be an integer or a pair of them; got {value!r}")
    return pair


# -- helpers of a training loop -------------------------------------------------------------------------


def over_replicas(function: Callable[..., Tensor], x: Tensor, *args, **kwargs) -> Tensor:
    """``function`` on (E, batch, ...) seen as (E * batch, ...), for functions that know one batch axis.

    Examples
    --------
    >>> import torch
    >>> from torch.nn import functional
    >>> from trimreg_reproduction.networks.training.ensemble import over_replicas
    >>> over_replicas(functional.max_pool2d, torch.ones(2, 3, 4, 8, 8), 2).shape
    torch.Size([2, 3, 4, 4, 4])
    """
    return function(x.flatten(0, 1), *args, **kwargs).unflatten(0, x.shape[:2])


def ensemble_cross_entropy(logits: Tensor, target: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """The mean cross-entropy of each replica, shape (E,), from logits (E, batch, classes).

    ``target`` holds classes, (batch,) or (E, batch), or probabilities, (batch, classes) or with E before.
    Train on the sum of the losses.

    Examples
    --------
    >>> import torch
    >>> from trimreg_reproduction.networks.training.ensemble import ensemble_cross_entropy
    >>> logits = torch.zeros(2, 3, 4)
    >>> ensemble_cross_entropy(logits, torch.tensor([0, 1, 2]))  # log(4)
    tensor([1.3863, 1.3863])
    """
    shape = logits.shape if target.is_floating_point() else logits.shape[:2]
    flat = target.expand(shape).flatten(0, 1)
    losses = functional.cross_entropy(
        logits.flatten(0, 1), flat, reduction="none", label_smoothing=label_smoothing
    )
    return losses.unflatten(0, logits.shape[:2]).mean(1)


def ensemble_errors(logits: Tensor, target: Tensor) -> Tensor:
    """How many of the batch each replica gets wrong, shape (E,); stays on the device.

    Examples
    --------
    >>> import torch
    >>> from trimreg_reproduction.networks.training.ensemble import ensemble_errors
    >>> ensemble_errors(torch.eye(3).expand(2, 3, 3), torch.tensor([0, 1, 0])).tolist()
    [1, 1]
    """
    return (logits.argmax(-1) != target).sum(-1)
