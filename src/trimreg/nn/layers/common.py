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


def plain_linear(layer: nn.Linear) -> nn.Linear:
    """A plain ``nn.Linear`` with copies of the layer's weight and bias."""
    made = without_start(
        nn.Linear, layer.weight, layer.in_features, layer.out_features, layer.bias is not None
    )
    return _with_values_of(layer, made)


def plain_conv2d(layer: nn.Conv2d) -> nn.Conv2d:
    """A plain ``nn.Conv2d`` with copies of the layer's weight and bias."""
    made = without_start(
        nn.Conv2d, layer.weight, layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride,
        layer.padding, layer.dilation, layer.groups, layer.bias is not None, layer.padding_mode,
    )  # fmt: skip
    return _with_values_of(layer, made)


def _with_values_of(layer: nn.Module, made: Any) -> Any:
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            parameter.copy_(getattr(layer, name))
    return made.train(layer.training)


def without_start(kind: type, like: Tensor, *arguments: Any, **options: Any) -> Any:
    """A layer with the device and dtype of a tensor and uninitialized values; draws no random numbers."""
    return kind(*arguments, **options, device="meta", dtype=like.dtype).to_empty(device=like.device)
