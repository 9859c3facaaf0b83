"""The step of the penalty on one pack of layers.

Every choice is made by ``torch.where`` on tensors, so that no value is asked of a device. Only the projection
looks at values, and only on a CPU, where that costs nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, distributed

from . import rules
from .packs import Pack
from .schedules import within

if TYPE_CHECKING:
    from .trimmed_group_l1 import TrimmedGroupL1


def free_groups(penalty: TrimmedGroupL1, pack: Pack) -> Tensor:
    """h of each row at this step; the target from ``freeze_at`` on."""
    if penalty.h_schedule is None:
        return pack.target
    h = torch.round(pack.count + pack.fall * within(penalty.h_schedule, penalty.step))
    if penalty.freeze_at is not None:
        h = torch.where(penalty.step >= penalty.freeze_at, pack.target, h)
    return h


def strength(penalty: TrimmedGroupL1, pack: Pack) -> Tensor:
    """alpha of each row at this step."""
    if penalty.alpha_schedule is None:
        return pack.alpha
    return pack.alpha * within(penalty.alpha_schedule, penalty.step)


def drawn_norms(penalty: TrimmedGroupL1, pack: Pack) -> Tensor:
    """The norms that w follows: those of a draw of the weights if the layer is Bayesian.

    In distributed training all processes must make the same draw, or their w would differ and their weights
    with it. So the draw is seeded by the step, which has to wait for the device there.
    """
    alone = not (distributed.is_available() and distributed.is_initialized())
    if not pack.draws or alone or distributed.get_world_size() == 1:
        return pack.measure(sampled=True)
    place = next(place for place, one in enumerate(penalty.packs) if one is pack)
    draw = torch.Generator(device=pack.norms.device)
    return pack.measure(sampled=draw.manual_seed(int(penalty.step) * len(penalty.packs) + place))


def moved_weights(penalty: TrimmedGroupL1, pack: Pack, w: Tensor, r: Tensor) -> Tensor:
    r"""The step of w in Algorithm 1, :math:`\mathrm{proj}_S[w - \tau r]`."""
    total = pack.count - free_groups(penalty, pack)
    return rules.project(w - penalty.tau * r, total, pack.valid if pack.padded else None)


def exact_update(
    penalty: TrimmedGroupL1, pack: Pack, rate, frozen: Tensor, skip: Tensor | None, ranks: bool = True
) -> None:
    """Leave the h largest groups alone and take the proximal step on the others.

    Without ``ranks`` these are those of the last ranking, which only a hard pack may do.
    """
    if ranks:
        r = pack.rank_inside_(pack.measure())
        first = pack.first if penalty.h_schedule is None else pack.positions < free_groups(penalty, pack)
        torch.where(_either(penalty.frozen, skip), pack.kept, rules.mask_by_rank(r, first), out=pack.kept)
    if pack.hard:
        if skip is None:
            pack.mask_("kept")
        else:
            torch.logical_or(pack.kept, skip, out=pack.alive)
            pack.mask_("alive")
        return
    threshold = _threshold(penalty, pack, rate).masked_fill_(frozen, math.inf)
    rules.group_factor(r, threshold, out=pack.factor).masked_fill_(_either(pack.kept, skip), 1.0)
    pack.shrink_()


def weighted_update(penalty: TrimmedGroupL1, pack: Pack, rate, frozen: Tensor, skip: Tensor | None) -> None:
    """Take the proximal step with the weights w (mode "bcd" only), then the step of w."""
    w, factor = pack.weights, pack.factor
    fixed = _either(frozen, skip)
    r = pack.measure()
    if penalty.mode == "bcd":
        rules.group_factor(r, _threshold(penalty, pack, rate) * w, out=factor)
        factor.masked_fill_(w == 0, 1.0)
    else:
        factor.fill_(1.0)
    if penalty.mask_ones:
        factor.masked_fill_(w >= 1, 0.0)
    if penalty.freeze_at is not None:
        largest = rules.mask_by_rank(torch.where(pack.valid, r * factor, -1.0), pack.first)
        torch.where(_either(penalty.frozen, skip), pack.kept, largest, out=pack.kept)
    torch.where(frozen, pack.kept.to(factor.dtype), factor, out=factor)
    if skip is not None:
        factor.masked_fill_(skip, 1.0)
    pack.shrink_()
    r = drawn_norms(penalty, pack) if pack.draws else r * factor
    torch.where(fixed, w, moved_weights(penalty, pack, w, r), out=w)


def _threshold(penalty: TrimmedGroupL1, pack: Pack, rate) -> Tensor:
    """lr * alpha of each row."""
    threshold = strength(penalty, pack) * rate
    # A learning rate that warms up from 0 would make inf * 0.
    return threshold.masked_fill_(torch.isinf(pack.alpha), math.inf) if pack.some_hard else threshold


def _either(first: Tensor, second: Tensor | None) -> Tensor:
    return first if second is None else first | second
