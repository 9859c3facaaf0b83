"""Layers built to take over the values of others."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def conv_arguments(layer: nn.Conv2d) -> tuple:
    """The arguments that build a convolution of the same form."""
    return (
        layer.in_channels,
        layer.out_channels,
        layer.kernel_size,
        layer.stride,
        layer.padding,
        layer.dilation,
        layer.groups,
        layer.bias is not None,
        layer.padding_mode,
    )


def copied_into(kind: type, layer: nn.Module, *arguments) -> nn.Module:
    """A layer of class ``kind`` that takes over the values of those parameters that it has."""
    made = without_start(kind, layer.weight, *arguments)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            parameter.copy_(getattr(layer, name))
    return made.train(layer.training)


def without_start(kind: type, like: Tensor, *arguments, **options) -> nn.Module:
    """A layer on the device and of the type of a tensor, its values unset: no random number is spent."""
    return kind(*arguments, **options, device="meta", dtype=like.dtype).to_empty(device=like.device)
