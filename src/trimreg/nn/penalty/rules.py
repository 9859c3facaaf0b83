r"""The weight rules of :mod:`trimreg.penalties` on tensors: batched over leading axes, no host sync.

Each function works over the last axis and never asks a device for a value of a tensor, so that a training
step which calls it can be queued ahead or captured in a CUDA graph.
"""

from __future__ import annotations

import torch
from torch import Tensor

#: Steps of Newton's method before :func:`project` sorts.
NEWTON_STEPS = 8


def kept_largest(r: Tensor, h) -> Tensor:
    """Mask of the ``h`` largest entries of each row: exactly h are True, ties go to the lower index.

    ``h`` is an integer, or a tensor of shape ``r.shape[:-1] + (1,)`` or one that broadcasts to it.

    Examples
    --------
    >>> import torch
    >>> from trimreg.nn.penalty.rules import kept_largest
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
    >>> from trimreg.nn.penalty.rules import take_first
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
    >>> from trimreg.nn.penalty.rules import trimmed_weights
    >>> trimmed_weights(torch.tensor([5.0, 2.0, 1.0]), 1)
    tensor([0., 1., 1.])
    """
    return (~kept_largest(r, h)).to(r.dtype)


def project(y: Tensor, total, valid: Tensor | None = None) -> Tensor:
    r"""Projection of each row on the capped simplex :math:`\{0 \le w \le 1,\ 1'w = s\}`, ``s = total``.

    .. math:: w_i = \mathrm{clip}(y_i - g, 0, 1), \qquad \sum_i \mathrm{clip}(y_i - g, 0, 1) = s.

    The sum falls in g, piecewise linearly. On a device g comes from a sort, :func:`sorted_shift`. On a CPU,
    where a value may be looked at, it comes from Newton's method, :func:`newton_shift`, which is at the root
    after one or two passes when y is a feasible point less a small step, and from the sort where the method
    does not get there.

    ``total`` is a number or a tensor of shape ``y.shape[:-1] + (1,)``. ``valid`` marks the entries that take
    part; the weights of the others are 0.

    Examples
    --------
    >>> import torch
    >>> from trimreg.nn.penalty.rules import project
    >>> project(torch.tensor([3.0, 0.5, 0.25]), 1)
    tensor([1., 0., 0.])
    >>> project(torch.tensor([[0.5, 0.5, 0.5], [0.5, 0.5, 9.0]]), torch.tensor([[2.0], [1.0]]))
    tensor([[0.6667, 0.6667, 0.6667],
            [0.0000, 0.0000, 1.0000]])
    """
    shift = None
    if may_look(y):
        wide, shift = newton_shift(y, total, valid)
    if shift is None:
        wide, shift = sorted_shift(y, total, valid)
    w = (wide - shift).clamp_(0.0, 1.0)
    # A weight of 1 - eps would count as an inner one.
    rounding = 8 * torch.finfo(y.dtype).eps * shift.abs().clamp_(1.0, 1e3)
    return w.masked_fill_(w <= rounding, 0.0).masked_fill_(w >= 1.0 - rounding, 1.0).to(y.dtype)


def may_look(y: Tensor) -> bool:
    """Whether the host may look at values of ``y`` without waiting: whether it lies in its own memory.

    Examples
    --------
    >>> import torch
    >>> from trimreg.nn.penalty.rules import may_look
    >>> may_look(torch.zeros(3))
    True
    """
    return y.device.type == "cpu"


def newton_shift(y: Tensor, total, valid: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    r"""The g of :func:`project` by Newton's method, or None where some row is not there after a few steps.

    .. math:: g \leftarrow g + \frac{\sum_i \mathrm{clip}(y_i - g, 0, 1) - s}{|\{i : 0 < y_i - g < 1\}|}

    from the g at which :math:`\sum_i (y_i - g) = s`. As g moves all weights move the same way, so the excess
    of the sum over s is how far, in the sum of absolute values, the weights are from the projection: a small
    one says that they are right, whichever way g was found. One more step takes off its rounding.

    Also returns ``y`` in double precision, with minus infinity where it is not ``valid``. This looks at
    values, so on a device it would wait.

    Examples
    --------
    >>> import torch
    >>> from trimreg.nn.penalty.rules import newton_shift
    >>> newton_shift(torch.tensor([0.75, 0.5, 0.5, 0.0], dtype=torch.float64), 1)[1]
    tensor([0.2500], dtype=torch.float64)
    """
    wide = y.double()
    if valid is None:
        shift = (wide.sum(-1, keepdim=True) - total) / y.shape[-1]
    else:
        shift = (torch.where(valid, wide, 0.0).sum(-1, keepdim=True) - total) / valid.sum(-1, keepdim=True)
        wide = torch.where(valid, wide, -torch.inf)  # a weight of 0, whatever g
    close = 4 * torch.finfo(wide.dtype).eps * y.shape[-1]
    for _ in range(NEWTON_STEPS):
        w = (wide - shift).clamp_(0.0, 1.0)
        excess = w.sum(-1, keepdim=True) - total
        there = all(abs(value) <= close for value in excess.flatten().tolist())
        if not there or y.dtype == wide.dtype:  # weights of a narrower type do not show the rounding
            shift = shift + excess / w.frac_().sign_().sum(-1, keepdim=True).clamp_(min=1.0)
        if there:
            return wide, shift
    return wide, None


def sorted_shift(y: Tensor, total, valid: Tensor | None = None) -> tuple[Tensor, Tensor]:
    r"""The g of :func:`project` by a sort, without a look at any value.

    The sum has its kinks at :math:`y_i - 1` and :math:`y_i`. One sort of the kinks and two running sums give
    its value at each of them, hence the piece that holds the root; a Newton step on that piece then takes off
    the rounding of the sums.

    Also returns ``y`` in double precision, with values of weight 0 where it is not ``valid``.

    Examples
    --------
    >>> import torch
    >>> from trimreg.nn.penalty.rules import sorted_shift
    >>> sorted_shift(torch.tensor([0.75, 0.5, 0.5, 0.0], dtype=torch.float64), 1)[1]
    tensor([0.2500], dtype=torch.float64)
    """
    # In double precision, where there is one, the running sums need no more than one correction.
    wide = y if y.device.type == "mps" else y.double()
    if valid is not None:
        # At the smallest entry less one a weight is 0 whatever the total, so the others do not feel it.
        lowest = torch.where(valid, wide, torch.inf).amin(-1, keepdim=True) - 1.0
        wide = torch.where(valid, wide, lowest)
    size = y.shape[-1]
    kinks, order = torch.sort(torch.cat([wide - 1.0, wide], dim=-1), dim=-1)
    turn = (size - 0.5 - order).sign_()  # 1 where a weight begins to fall, -1 where it has fallen to 0
    inner = turn.cumsum(-1)  # how many weights lie between 0 and 1 after each kink
    steps = kinks.diff(dim=-1, prepend=kinks[..., :1])
    height = size - ((inner - turn) * steps).cumsum(-1)
    piece = ((height >= total).sum(-1, keepdim=True) - 1).clamp(min=0)  # a NaN finds none
    rest = (height.gather(-1, piece) - total) / inner.gather(-1, piece).clamp(min=1.0)
    shift = kinks.gather(-1, piece) + rest
    moved = wide - shift
    within = ((moved > 0) & (moved < 1)).sum(-1, keepdim=True)
    return wide, shift + (moved.clamp(0.0, 1.0).sum(-1, keepdim=True) - total) / within.clamp(min=1)


def group_factor(r: Tensor, threshold, out: Tensor | None = None) -> Tensor:
    r"""What group soft-thresholding multiplies a group of norm r by: :math:`(1 - t/r)_+`.

    0 where r is 0, and where the threshold is infinite.

    Examples
    --------
    >>> import torch
    >>> from trimreg.nn.penalty.rules import group_factor
    >>> group_factor(torch.tensor([4.0, 1.0, 0.0]), 2.0)
    tensor([0.5000, 0.0000, 0.0000])
    >>> group_factor(torch.tensor([4.0, 0.0]), torch.inf)
    tensor([0., 0.])
    """
    # (r - t)_+ / r is never 0/0 or inf/inf once r is kept from 0.
    return torch.div((r - threshold).clamp_(min=0.0), r.clamp(min=torch.finfo(r.dtype).tiny), out=out)
