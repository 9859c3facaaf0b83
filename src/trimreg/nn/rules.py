r"""The weight rules of :mod:`trimreg.penalties` on tensors: batched over leading axes, no host sync.

Each function works over the last axis and never asks the host for a value of a tensor, so that a training
step which calls it can be queued ahead or captured in a CUDA graph.
"""

from __future__ import annotations

import torch
from torch import Tensor


def kept_largest(r: Tensor, h) -> Tensor:
    """Mask of the ``h`` largest entries of each row: exactly h are True, ties go to the lower index.

    ``h`` is an integer, or a tensor of shape ``r.shape[:-1] + (1,)`` or one that broadcasts to it.

    Examples
    --------
    >>> import torch
    >>> from trimreg.nn.rules import kept_largest
    >>> kept_largest(torch.tensor([1.0, 3.0, 1.0, 0.0]), 2)
    tensor([ True,  True, False, False])
    >>> kept_largest(torch.tensor([[1.0, 3.0], [2.0, 2.0]]), torch.tensor([[2], [1]]))
    tensor([[ True,  True],
            [ True, False]])
    """
    return take_first(r, (torch.arange(r.shape[-1], device=r.device) < h).expand(r.shape))


def take_first(r: Tensor, first: Tensor) -> Tensor:
    """Mask of the entries whose rank, from the largest down, is marked in ``first``; ties by the lower index.

    Examples
    --------
    >>> import torch
    >>> from trimreg.nn.rules import take_first
    >>> take_first(torch.tensor([1.0, 3.0, 2.0]), torch.tensor([True, False, False]))
    tensor([False,  True, False])
    """
    order = torch.sort(r.detach(), dim=-1, descending=True, stable=True).indices
    return torch.empty_like(first).scatter_(-1, order, first)


def trimmed_weights(r: Tensor, h) -> Tensor:
    r"""The weights that minimize :math:`\sum_j w_j r_j` over S: 0 for the h largest, 1 elsewhere.

    Examples
    --------
    >>> import torch
    >>> from trimreg.nn.rules import trimmed_weights
    >>> trimmed_weights(torch.tensor([5.0, 2.0, 1.0]), 1)
    tensor([0., 1., 1.])
    """
    return (~kept_largest(r, h)).to(r.dtype)


def project(y: Tensor, total, valid: Tensor | None = None) -> Tensor:
    r"""Projection of each row on the capped simplex :math:`\{0 \le w \le 1,\ 1'w = s\}`, ``s = total``.

    .. math:: w_i = \mathrm{clip}(y_i - g, 0, 1), \qquad \sum_i \mathrm{clip}(y_i - g, 0, 1) = s.

    The sum falls in g, piecewise linearly, with its kinks at :math:`y_i - 1` and :math:`y_i`. One sort of
    the kinks and two running sums give its value at each of them, hence the piece that holds the root; a
    Newton step on that piece then takes off the rounding of the sums.

    ``total`` is a number or a tensor of shape ``y.shape[:-1] + (1,)``. ``valid`` marks the entries that take
    part; the weights of the others are 0.

    Examples
    --------
    >>> import torch
    >>> from trimreg.nn.rules import project
    >>> project(torch.tensor([3.0, 0.5, 0.25]), 1)
    tensor([1., 0., 0.])
    >>> project(torch.tensor([[0.5, 0.5, 0.5], [0.5, 0.5, 9.0]]), torch.tensor([[2.0], [1.0]]))
    tensor([[0.6667, 0.6667, 0.6667],
            [0.0000, 0.0000, 1.0000]])
    """
    if valid is not None:
        # At the smallest entry less one a weight is 0 whatever the total, so the others do not feel it.
        lowest = torch.where(valid, y, torch.inf).amin(-1, keepdim=True) - 1.0
        y = torch.where(valid, y, lowest)
    size = y.shape[-1]
    kinks, order = torch.sort(torch.cat([y - 1.0, y], dim=-1), dim=-1)
    starts = (order < size).to(y.dtype)
    inner = (2.0 * starts - 1.0).cumsum(-1)  # how many weights lie strictly between 0 and 1 after each kink
    fall = (inner[..., :-1] * kinks.diff(dim=-1)).cumsum(-1)
    height = torch.cat([torch.full_like(fall[..., :1], size), size - fall], dim=-1)
    piece = ((height >= total).sum(-1, keepdim=True) - 1).clamp(0, 2 * size - 1)
    slope = inner.gather(-1, piece)
    shift = kinks.gather(-1, piece) + (height.gather(-1, piece) - total) / slope.clamp(min=1.0)
    for _ in range(2):
        moved = y - shift
        within = (moved > 0) & (moved < 1)
        # The ones are counted, not added up: their rounding would hide the inner weights.
        excess = (
            (moved >= 1).sum(-1, keepdim=True) - total + torch.where(within, moved, 0.0).sum(-1, keepdim=True)
        )
        shift = shift + excess / within.sum(-1, keepdim=True).clamp(min=1) * within.any(-1, keepdim=True)
    w = (y - shift).clamp(0.0, 1.0)
    rounding = 8 * torch.finfo(y.dtype).eps * shift.abs().clamp(min=1.0)
    w = torch.where(w <= rounding, 0.0, torch.where(w >= 1.0 - rounding, 1.0, w))
    everyone = size if valid is None else valid.sum(-1, keepdim=True)
    full = torch.ones_like(w) if valid is None else valid.to(w.dtype)
    total = torch.as_tensor(total, device=y.device)
    return torch.where(total <= 0, 0.0, torch.where(total >= everyone, full, w))


def group_factor(r: Tensor, threshold, out: Tensor | None = None) -> Tensor:
    r"""What group soft-thresholding multiplies a group of norm r by: :math:`(1 - t/r)_+`.

    0 where r is 0, and where the threshold is infinite.

    Examples
    --------
    >>> import torch
    >>> from trimreg.nn.rules import group_factor
    >>> group_factor(torch.tensor([4.0, 1.0, 0.0]), 2.0)
    tensor([0.5000, 0.0000, 0.0000])
    >>> group_factor(torch.tensor([4.0, 0.0]), torch.inf)
    tensor([0., 0.])
    """
    # (r - t)_+ / r is never 0/0 or inf/inf once r is kept from 0.
    return torch.div((r - threshold).clamp_(min=0.0), r.clamp(min=torch.finfo(r.dtype).tiny), out=out)
