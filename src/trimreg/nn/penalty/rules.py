r"""The weight rules of :mod:`trimreg.penalties` for the norms of groups, on tensors of any device.

All functions work along the last axis and never ask a device for a value, so a training step that calls them
can be queued ahead or captured in a CUDA graph. The projection is that of the penalties. Ranking and
thresholding have kernels of their own: those of the penalties look at values.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...penalties.simplex import project_rows
from ..groups import kernels


def project(y: Tensor, total: float | Tensor, valid: Tensor | None = None) -> Tensor:
    """:func:`trimreg.penalties.simplex.project_rows` for tensors; without gradients.

    On the host it runs on NumPy arrays that share the memory: for the few hundred groups of a layer PyTorch
    would take twice the time.
    """
    if not on_host(y):
        return project_rows(y, total, valid)
    mask = None if valid is None else valid.numpy()
    return torch.from_numpy(project_rows(y.detach().numpy(), np.asarray(total), mask))


def on_host(y: Tensor) -> bool:
    """Whether NumPy can share the memory of a tensor."""
    return y.device.type == "cpu"


def kept_largest(r: Tensor, h: int | Tensor) -> Tensor:
    """Mask of the ``h`` largest entries of each row: exactly h are True, ties go to the lower index.

    ``h`` is an integer, or a tensor that broadcasts to ``r.shape[:-1] + (1,)``.
    """
    return mask_by_rank(r, (torch.arange(r.shape[-1], device=r.device) < h).expand(r.shape))


def mask_by_rank(r: Tensor, ranks: Tensor) -> Tensor:
    """Mask of the entries whose rank, from the largest down, is marked in ``ranks``."""
    if kernels.can_rank(r) and ranks.shape == r.shape:
        return kernels.by_rank(r.detach(), ranks)
    order = torch.sort(r.detach(), dim=-1, descending=True, stable=True).indices
    return torch.empty_like(ranks).scatter_(-1, order, ranks)


def group_factor(r: Tensor, threshold: float | Tensor, out: Tensor | None = None) -> Tensor:
    r"""The factor of group soft-thresholding, :math:`(1 - t/r)_+`, for groups of norm r.

    It is 0 where r is 0, and where the threshold is infinite.
    """
    # (r - t)_+ / r is never 0/0 or inf/inf once r is bounded away from 0.
    return torch.div((r - threshold).clamp_(min=0.0), r.clamp(min=torch.finfo(r.dtype).tiny), out=out)
