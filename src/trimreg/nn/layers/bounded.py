"""A value kept between bounds while it is learnt."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def bounded(x: Tensor, low: float = -math.inf, high: float = math.inf) -> Tensor:
    r"""``clip(x, low, high)`` with the gradient of a projected step.

    The plain clip has gradient 0 outside the bounds, so that a parameter which oversteps once never comes
    back. Here a gradient :math:`g` is dropped only where the step :math:`-g` would lead further out:

    .. math:: \partial = g \cdot [\,\text{not } (x \ge high, g < 0) \text{ nor } (x \le low, g > 0)\,]

    Examples
    --------
    >>> import torch
    >>> from trimreg.nn.layers.bounded import bounded
    >>> x = torch.tensor([-1.0, 0.5, 0.5], requires_grad=True)
    >>> bounded(x, high=0.0).tolist()
    [-1.0, 0.0, 0.0]
    >>> (bounded(x, high=0.0) * torch.tensor([3.0, -3.0, 3.0])).sum().backward()
    >>> x.grad.tolist()  # the second would go further up, the third comes back
    [3.0, 0.0, 3.0]
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
