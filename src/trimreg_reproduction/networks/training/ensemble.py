r"""Layers for many networks of one shape: seeds and settings side by side in batched tensors.

The parameters of E layers lie in one tensor with a first axis of length E, and one batched product does the
work of E small ones. The losses are summed over the replicas, so every replica gets the gradient of its own
loss, and an optimizer that works entry by entry (SGD, Adam) trains each as if it were alone.

Between layers an activation has shape (E, batch, ...). The first layer also takes (batch, ...): the same
input for all replicas, multiplied once with all weights.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from trimreg.nn import Slab
from trimreg.nn.layers.common import without_start

Seeds = Iterable["int | torch.Generator"]


def replica_generators(seeds: Seeds) -> list[torch.Generator]:
    """One random generator per replica, to be passed from layer to layer.

    Layers that share these generators continue each other's random numbers, as the layers of a plain network
    do after ``torch.manual_seed(seed)``. Generators among the seeds are returned unchanged.
    """
    return [
        seed if isinstance(seed, torch.Generator) else torch.Generator().manual_seed(operator.index(seed))
        for seed in seeds
    ]


class EnsembleLayer(nn.Module):
    """E layers of the class ``single``, with their parameters stacked along a new first axis.

    A subclass defines how an input becomes rows, the product with the rows, and the shape of the output. So
    linear layers and convolutions share their plain, Bayesian and gated forms.
    """

    single: ClassVar[type[nn.Module]]
    replica_axes = 1

    def __init__(
        self, replicas: int, arguments: dict, seeds: Seeds | None, device: Any, dtype: torch.dtype | None
    ) -> None:
        super().__init__()
        self.replicas = operator.index(replicas)
        self.arguments = arguments
        seeds = [None] * self.replicas if seeds is None else replica_generators(seeds)
        if self.replicas < 1 or len(seeds) != self.replicas:
            raise ValueError(f"an ensemble of {self.replicas} replicas was given {len(seeds)} seeds")
        # Always on the CPU, so that a seed gives the same network on every device.
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

    def replica(self, index: int) -> nn.Module:
        """A copy of one of the layers."""
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
        """The outputs (E, rows, out) for rows (E, rows, in) or shared rows (rows, in)."""
        return affine(rows, self.as_matrix(self.weight), self.bias)

    @staticmethod
    def as_matrix(weight: Tensor) -> Tensor:
        """A tensor of the weight's shape as (E, out, in), in the order of the entries of a row."""
        return weight

    def trimmed_groups(self, kind: str) -> tuple[int, tuple[Slab, ...], tuple[int]]:
        """The number of groups, their slabs and the replicas, for the penalty."""
        axes = {"in": 1, "out": 0}
        kind = self.usual_groups if kind == "auto" else kind
        if kind not in axes:
            raise ValueError(f'{type(self).__name__} has groups "in" and "out"; got {kind!r}')
        slabs = [Slab(self, "weight", axes[kind])]
        if kind == "out" and self.bias is not None:
            slabs.append(Slab(self, "bias", 0, counted=False))
        return self.weight.shape[1 + axes[kind]], tuple(slabs), (self.replicas,)


def _seeded(build: Callable[[], nn.Module], generator: torch.Generator | None) -> nn.Module:
    """The layer that ``build()`` makes with the random numbers of this generator, which moves on."""
    if generator is None:
        return build()
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(generator.get_state())
        layer = build()
        generator.set_state(torch.get_rng_state())
    return layer


def affine(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``rows[e] @ weight[e].T + bias[e]`` for every replica: (E, rows, out).

    Rows (rows, in) are shared by all replicas: one product with all the weights, viewed as (E, rows, out).
    """
    if rows.ndim == 2:
        flat_bias = None if bias is None else bias.flatten()
        answer = functional.linear(rows, weight.flatten(0, 1), flat_bias)
        return answer.unflatten(1, weight.shape[:2]).transpose(0, 1)
    if bias is None:
        return torch.bmm(rows, weight.mT)
    return torch.baddbmm(bias.unsqueeze(1), rows, weight.mT)


def windows(x: Tensor, kernel: tuple[int, int]) -> tuple[Tensor, int, int]:
    """The patches under a kernel as rows (..., batch * height * width, kernel * channels), height and width.

    Channels come last within a patch: a line of the kernel is then contiguous for an input that is stored
    channels last, as outputs of :class:`EnsembleConv2d` are. ``torch.nn.functional.unfold`` works image by
    image on a GPU.

    Examples
    --------
    >>> import torch
    >>> from trimreg_reproduction.networks.training.ensemble import windows
    >>> rows, height, width = windows(torch.arange(9.0).view(1, 1, 3, 3), (2, 2))
    >>> rows[0].tolist(), height, width
    ([0.0, 1.0, 3.0, 4.0], 2, 2)
    """
    for axis in (0, 1):
        if x.shape[axis - 2] < kernel[axis]:
            raise ValueError(f"the input has {x.shape[axis - 2]} pixels, the kernel needs {kernel[axis]}")
    patches = _Patches.apply(x.movedim(-3, -1), kernel)
    height, width = patches.shape[-5:-3]
    return patches.flatten(-3).flatten(-4, -2), height, width


class _Patches(torch.autograd.Function):
    """(..., H, W, channels) to (..., H', W', kernel height, kernel width, channels), as a copy.

    The backward pass is written out: autograd's, of strided views, goes over all patches for each pixel
    offset and uses atomic additions on a GPU. Here an axis is folded with one addition per pixel of the
    kernel.
    """

    @staticmethod
    def forward(x, kernel):
        for length in kernel:  # each pass adds an axis of offsets at the end
            x = x.unfold(-3, length, 1)
        return x.movedim(-3, -1).contiguous()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.pixels = inputs[0].shape[-3:-1]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        if not ctx.needs_input_grad[0]:
            return None, None
        # (..., H', W', kernel height, kernel width, C) to (..., H', W, kernel height, C) to (..., H, W, C)
        for axis in (1, 0):
            gradient = _folded(gradient.movedim(-2, 0), -3, ctx.pixels[axis])
        return gradient, None


def _folded(parts: Tensor, axis: int, pixels: int) -> Tensor:
    """The sum of ``parts[k]``, each placed on an axis of ``pixels`` from k on."""
    shape = list(parts.shape[1:])
    places, shape[axis] = shape[axis], pixels
    whole = parts.new_zeros(shape)
    for offset, part in enumerate(parts):
        whole.narrow(axis, offset, places).add_(part)
    return whole


class EnsembleLinear(EnsembleLayer):
    r"""E linear layers: :math:`y_e = x_e W_e^T + b_e`, weight (E, out, in), bias (E, out).

    Parameters
    ----------
    replicas : int
    in_features, out_features, bias
        As for ``nn.Linear``.
    seeds : iterable of int or torch.Generator, optional
        One per replica, which starts like the plain layer built after ``torch.manual_seed``. The layers of a
        network share :func:`replica_generators`. By default the global generator is used.
    device, dtype
        The device to which the layer is moved after its start, and its type.

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
        self, replicas: int, in_features: int, out_features: int, bias: bool = True, *,
        seeds: Seeds | None = None, device: Any = None, dtype: torch.dtype | None = None, **options: Any,
    ):  # fmt: skip
        arguments = {"in_features": in_features, "out_features": out_features, "bias": bias} | options
        super().__init__(replicas, arguments, seeds, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        shared = x.ndim == 2
        if x.ndim not in (2, 3) or (not shared and x.shape[0] != self.replicas):
            features = self.weight.shape[2]
            expected = f"({self.replicas}, batch, {features}) or (batch, {features})"
            raise ValueError(f"the input must have shape {expected}; got {tuple(x.shape)}")
        return self._answer(x)


class EnsembleConv2d(EnsembleLayer):
    r"""E convolutions, weight (E, out, in, height, width): (E, batch, in, H, W) to (E, batch, out, H', W').

    They are one batched product over patches; a grouped convolution would be slow on GPUs. The stride is 1
    without padding, and the output is stored channels last. :func:`over_replicas` applies functions that know
    one batch axis, such as pooling.

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
        self, replicas: int, in_channels: int, out_channels: int, kernel_size: int | tuple[int, int],
        bias: bool = True, *, seeds: Seeds | None = None, device: Any = None,
        dtype: torch.dtype | None = None, **options: Any,
    ):  # fmt: skip
        kernel = kernel_size if isinstance(kernel_size, tuple) else (kernel_size, kernel_size)
        arguments = {"in_channels": in_channels, "out_channels": out_channels, "kernel_size": kernel}
        super().__init__(replicas, arguments | {"bias": bias} | options, seeds, device, dtype)

    @staticmethod
    def as_matrix(weight: Tensor) -> Tensor:
        return weight.movedim(2, -1).flatten(2)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim not in (4, 5) or (x.ndim == 5 and x.shape[0] != self.replicas):
            expected = f"({self.replicas}, batch, {self.weight.shape[2]}, H, W) or without the first axis"
            raise ValueError(f"the input must have shape {expected}; got {tuple(x.shape)}")
        rows, height, width = windows(x, self.arguments["kernel_size"])
        answer = self._answer(rows)
        return answer.unflatten(1, (x.shape[-4], height, width)).movedim(-1, -3)


def over_replicas(function: Callable[..., Tensor], x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Apply a function that knows one batch axis to (E, batch, ...), viewed as (E * batch, ...)."""
    return function(x.flatten(0, 1), *args, **kwargs).unflatten(0, x.shape[:2])
