"""Functions that the Bayesian and the gated layers share."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn


def bounded(x: Tensor, low: float = -math.inf, high: float = math.inf) -> Tensor:
    r"""``clip(x, low, high)`` with the gradient of a projected step.

    The plain clip has gradient 0 outside the bounds, so a parameter that oversteps once never returns. Here a
    gradient :math:`g` is dropped only if the step :math:`-g` would lead further out:

    .. math:: \partial = g \cdot [\,\text{not } (x \ge high, g < 0) \text{ nor } (x \le low, g > 0)\,]
    """
    if not (x.requires_grad and torch.is_grad_enabled()):
        return x.clamp(low, high)
    return _Bounded.apply(x, low, high)


class _Bounded(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, low, high):
        return x.clamp(low, high)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.low, ctx.high = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        if ctx.high < math.inf:
            gradient = torch.where(x >= ctx.high, gradient.clamp_min(0), gradient)
        if ctx.low > -math.inf:
            gradient = torch.where(x <= ctx.low, gradient.clamp_max(0), gradient)
        return gradient, None, None


def plain_layer(layer: Any) -> Any:
    """A plain ``nn.Linear`` or convolution with copies of the layer's weight and bias."""
    return layer_like(layer, layer.weight, layer.bias, getattr(layer, "groups", 1)).train(layer.training)


_PLAIN: tuple[Any, ...] = (
    nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
)  # fmt: skip


def layer_like(layer: Any, weight: Tensor, bias: Tensor | None, groups: int = 1) -> Any:
    """A plain layer of the kind of ``layer``, with its settings and copies of this weight and bias."""
    kind = next(one for one in _PLAIN if isinstance(layer, one))
    out_size, in_size = weight.shape[:2]
    has_bias = bias is not None
    if kind is nn.Linear:
        made = without_start(kind, weight, in_size, out_size, has_bias)
    elif getattr(layer, "transposed", False):  # its weight has the inputs first
        made = without_start(
            kind, weight, out_size, in_size, layer.kernel_size, layer.stride, layer.padding,
            layer.output_padding, groups, has_bias, layer.dilation, layer.padding_mode,
        )  # fmt: skip
    else:
        made = without_start(
            kind, weight, in_size * groups, out_size, layer.kernel_size, layer.stride, layer.padding,
            layer.dilation, groups, has_bias, layer.padding_mode,
        )  # fmt: skip
    with torch.no_grad():
        made.weight.copy_(weight)
        if bias is not None:
            made.bias.copy_(bias)
    return made


def without_start(kind: type, like: Tensor, *arguments: Any, **options: Any) -> Any:
    """A layer with the device and dtype of a tensor and uninitialized values; draws no random numbers."""
    return kind(*arguments, **options, device="meta", dtype=like.dtype).to_empty(device=like.device)
