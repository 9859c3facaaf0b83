"""Warnings at the end of training: groups that are cut but not zero, and groups that are kept but zero."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING

import torch

from .fall import NEVER, Fall

if TYPE_CHECKING:
    from .trimmed_group_l1 import TrimmedGroupL1


@torch.no_grad()
def warn_of_zeros(penalty: TrimmedGroupL1, stacklevel: int = 4) -> None:
    """Warn of every layer in which some of the kept groups are zero."""
    kept = penalty.kept()
    for name, layer in penalty.layers.items():
        zero = int((kept[name] & (layer.norms() == 0)).sum())
        if zero:
            total = int(kept[name].sum())
            warnings.warn(
                f"layer {name!r}: {zero} of the {total} groups that are kept are zero, so the layer is "
                "smaller than keep; use a smaller alpha or a smaller learning rate",
                stacklevel=stacklevel,
            )


@torch.no_grad()
def warn_of_cuts(penalty: TrimmedGroupL1, action: str, stacklevel: int = 4) -> bool:
    """Warn if groups that are not kept are not zero, with norm and reason; returns whether there are any."""
    kept, parts = penalty.kept(), []
    for name, layer in penalty.layers.items():
        norms = layer.norms()
        cut = norms[~kept[name]]
        if bool(cut.any()):
            sizes = f"norm {float(cut.norm()):.3g}, of {float(norms.norm()):.3g} in all"
            parts.append(f"{int(cut.count_nonzero())} of layer {name!r} ({sizes})")
    if parts:
        shown = ", ".join(parts[:3]) + (f" and those of {len(parts) - 3} more layers" if parts[3:] else "")
        warnings.warn(
            f"{action} cuts groups that are not zero: {shown}. {reason(penalty)}", stacklevel=stacklevel
        )
    return bool(parts)


def reason(penalty: TrimmedGroupL1) -> str:
    """Why groups are left that are not kept, and what to do."""
    step, fall = int(penalty.step), penalty.h_schedule
    if step == 0:
        return (
            "The penalty has never taken a step: attach it to the optimizer before training. To cut without "
            "training, call freeze_() first"
        )
    left = {name: int((h.cpu() - torch.tensor(penalty.keep[name])).max()) for name, h in penalty.h().items()}
    if not bool(penalty.frozen) and any(left.values()):
        if not isinstance(fall, Fall):
            return f"h_schedule has not ended at step {step}: let it end well before the training does"
        end = int(fall.end)
        when = "for the learning-rate scheduler to be stepped" if end > NEVER else f"to step {end}"
        verb = "still waits" if end > NEVER else "falls"
        return (
            f"The training ended at step {step}, but h {verb} {when}: tell how long it is, as in "
            f"attach(optimizer, steps={step})"
        )
    soft = [
        name
        for name, alpha in penalty.alpha.items()
        if math.inf not in (alpha if isinstance(alpha, tuple) else (alpha,))
    ]
    if soft and not bool(penalty.frozen):
        return (
            "The soft penalty is too weak: raise alpha, or set freeze_at to a step well before the end, so "
            "that the other groups adapt"
        )
    return "They changed after the last step of the penalty: leave it attached until the training ends"
