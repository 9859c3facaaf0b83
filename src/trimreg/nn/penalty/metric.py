r"""The proximal step in the metric of the optimizer.

Adam moves entry i by ``lr/d_i`` times its gradient, :math:`d_i = \sqrt{\hat v_i} + \epsilon`. The matching
proximal step weights the entries by the same d,

.. math:: x = \arg\min_x \tfrac12 \sum_i d_i (x_i - z_i)^2 + t \|x\|, \qquad t = lr\,\alpha\,w.

If :math:`\|d z\| \le t`, the solution is 0. Otherwise, with :math:`n = \|x\|`,

.. math:: x_i = \frac{n}{n + e_i} z_i, \quad e_i = t/d_i, \qquad
          \sum_i \frac{z_i^2}{(n + e_i)^2} = 1.

The left side is the squared norm in the secular equation of trust-region methods. Newton's method on one over
its root increases to the solution from any point below it (Moré and Sorensen, 1983). A point below it is
:math:`\|z\| - \sum z_i^2 e_i / \|z\|^2`, by Jensen's inequality.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from .groups import LayerGroups

NEWTON_STEPS = 8  # 6 give all digits of float64 where d spreads over e^(4 N(0, 1))


def diagonal_prox_factors(
    entries: list[Tensor], metric: list[Tensor], axes: list[list[int]], t: Tensor, spread: Callable
) -> tuple[list[Tensor], Tensor]:
    r"""Factors of the entries in the proximal step, :math:`n/(n + e_i)`, and the mask of nonzero groups.

    ``entries`` and ``metric`` are z and d of each slab, ``axes`` the axes of each slab inside a group. The
    threshold t has one entry per group; 0 leaves the group as it is, infinity sets it to zero. ``spread(k,
    x)`` reshapes a tensor like t to broadcast against slab k.
    """
    tiny = torch.finfo(t.dtype).tiny
    finite = torch.where(torch.isinf(t), 0.0, t)
    entries, metric = [z.to(t.dtype) for z in entries], [d.to(t.dtype) for d in metric]
    offsets = [spread(k, finite) / d.clamp(min=tiny) for k, d in enumerate(metric)]

    def total(parts):
        return sum(part.sum(dim=inner) if inner else part for part, inner in zip(parts, axes, strict=True))

    energy = total([z.square() for z in entries]).clamp(min=tiny)
    mean_offset = total([z.square() * e for z, e in zip(entries, offsets, strict=True)]) / energy
    n = (energy.sqrt() - mean_offset).clamp(min=0.0)
    for _ in range(NEWTON_STEPS):
        above = [(spread(k, n) + e).clamp(min=tiny) for k, e in enumerate(offsets)]
        terms = [(z / a).square() for z, a in zip(entries, above, strict=True)]
        value = total(terms).clamp(min=tiny)
        slope = total([term / a for term, a in zip(terms, above, strict=True)]).clamp(min=tiny)
        # Newton on 1/sqrt(value) = 1. From below no exact step is negative; rounding may make it so.
        n = n + ((value.sqrt() - 1.0) * value / slope).clamp(min=0.0)
    strength = total([(z * d).square() for z, d in zip(entries, metric, strict=True)]).sqrt()
    alive = (strength > t) | (t == 0)
    n = torch.where(alive, n, 0.0)
    return [spread(k, n) / (spread(k, n) + e).clamp(min=tiny) for k, e in enumerate(offsets)], alive


def adam_metric(optimizer: torch.optim.Optimizer, parameter: Tensor, group: dict) -> Tensor | None:
    r"""The d of Adam and AdamW, :math:`\sqrt{\hat v} + \epsilon`; None before the parameter's first step."""
    state = optimizer.state.get(parameter)
    if not state or "exp_avg_sq" not in state:
        return None
    second = state["max_exp_avg_sq"] if group.get("amsgrad") else state["exp_avg_sq"]
    # Adam counts steps in float32, where 1 - beta^step loses four digits in the first steps; expm1 loses
    # none.
    beta = group["betas"][1]
    log_beta = beta.log() if isinstance(beta, Tensor) else math.log(beta) if beta > 0 else -math.inf
    step = torch.as_tensor(state["step"], dtype=torch.promote_types(second.dtype, torch.float32))
    correction = -torch.expm1(step * log_beta)
    return (second / correction).sqrt_() + group["eps"]


@torch.no_grad()
def metric_step_(
    layer: LayerGroups, t: Tensor, optimizer: torch.optim.Optimizer, group_of: dict[int, dict]
) -> Tensor:
    """Take a layer's proximal step in the metric of its optimizer; returns the mask of nonzero groups."""
    slabs, views, metric, axes = layer.counted, [], [], []
    for slab in slabs:
        parameter = slab.tensor()
        d = adam_metric(optimizer, parameter, group_of[id(parameter)])
        view = layer.view(slab, parameter)
        views.append(view)
        metric.append(torch.ones_like(view) if d is None else layer.view(slab, d))
        axes.append(layer.inner_axes(slab, view))
    factors, alive = diagonal_prox_factors(
        views, metric, axes, t, lambda k, x: layer.spread(slabs[k], x, views[k].ndim)
    )
    for view, factor in zip(views, factors, strict=True):
        view.mul_(factor)
    for slab in layer.slabs:
        if not slab.counted:
            view = layer.view(slab, slab.tensor())
            view.mul_(layer.spread(slab, alive, view.ndim))
    return alive
