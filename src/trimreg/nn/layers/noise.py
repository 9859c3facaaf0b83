r"""The variance of a Bayesian layer's weights and the divergence of its posterior, in few passes.

Autograd would write a tensor of the size of the weights for each operation of :math:`e^{\min(a, 0)}\phi^2`
and of the polynomial, and again for each slope. Here the values are computed anew in the backward pass. On
CUDA with Triton a kernel computes each of the four in one pass; elsewhere they share one temporary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..groups.kernels import LEAST, tl, triton, usable
from .common import bounded

#: Coefficients of alpha, alpha^2 and alpha^3 in the approximate negative KL divergence (Kingma 2015).
KL_COEFFICIENTS = (1.16145124, -1.50204118, 0.58629921)
_BLOCK = 2048

if triton is not None:  # pragma: no cover - compiled for a GPU

    @triton.jit
    def _variances(log_alpha, weight, out, size, WIDE: tl.constexpr):
        i = tl.program_id(0).to(tl.int64) * WIDE + tl.arange(0, WIDE)
        w = tl.load(weight + i, mask=i < size)
        a = tl.load(log_alpha + i, mask=i < size)
        tl.store(out + i, tl.exp(tl.minimum(a, 0.0)) * (w * w), mask=i < size)

    @triton.jit
    def _variance_slopes(log_alpha, weight, slope, of_log_alpha, of_weight, size, WIDE: tl.constexpr):
        i = tl.program_id(0).to(tl.int64) * WIDE + tl.arange(0, WIDE)
        w = tl.load(weight + i, mask=i < size)
        a = tl.load(log_alpha + i, mask=i < size)
        part = tl.exp(tl.minimum(a, 0.0)) * w * tl.load(slope + i, mask=i < size)
        tl.store(of_weight + i, 2.0 * part, mask=i < size)
        part *= w
        tl.store(of_log_alpha + i, tl.where(a >= 0.0, tl.maximum(part, 0.0), part), mask=i < size)

    @triton.jit
    def _divergences(log_alpha, partial, size, FIRST: tl.constexpr, SECOND: tl.constexpr, THIRD: tl.constexpr,
                     WIDE: tl.constexpr):  # fmt: skip
        replica = tl.program_id(1).to(tl.int64)
        i = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
        a = tl.minimum(tl.load(log_alpha + replica * size + i, mask=i < size, other=0.0), 0.0)
        e = tl.exp(a)
        value = -0.5 * a - e * (FIRST + e * (SECOND + THIRD * e))
        total = tl.sum(tl.where(i < size, value, 0.0), axis=0)
        tl.store(partial + replica * tl.num_programs(0) + tl.program_id(0), total)

    @triton.jit
    def _divergence_slopes(log_alpha, slope, out, size, FIRST: tl.constexpr, SECOND: tl.constexpr,
                           THIRD: tl.constexpr, WIDE: tl.constexpr):  # fmt: skip
        replica = tl.program_id(1).to(tl.int64)
        i = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
        a = tl.load(log_alpha + replica * size + i, mask=i < size, other=0.0)
        e = tl.exp(tl.minimum(a, 0.0))
        value = -(0.5 + e * (FIRST + e * (2.0 * SECOND + 3.0 * THIRD * e))) * tl.load(slope + replica)
        value = tl.where(a >= 0.0, tl.maximum(value, 0.0), value)
        tl.store(out + replica * size + i, value, mask=i < size)


def by_kernel(*tensors: Tensor) -> bool:
    """Whether kernels can be used for these tensors."""
    like = tensors[0]
    if not like.is_cuda or like.numel() < LEAST or torch._C._are_functorch_transforms_active():
        return False
    plain = all(
        type(t) in (Tensor, nn.Parameter) and t.dtype == like.dtype and t.is_contiguous() for t in tensors
    )
    return plain and like.dtype in (torch.float32, torch.float64) and usable(like.device)


def weight_variance(log_alpha: Tensor, weight: Tensor) -> Tensor:
    r"""The variances :math:`e^{\min(a, 0)} \phi^2` of weights; :math:`a` has the slope of a projected step.

    See :func:`trimreg.nn.layers.common.bounded`.
    """
    if torch.compiler.is_compiling():  # the compiler fuses the plain formula
        return _variance(log_alpha, weight)
    return _Variance.apply(log_alpha, weight)


def _variance(log_alpha, weight):
    return bounded(log_alpha, high=0.0).exp() * weight.square()


class _Variance(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(log_alpha, weight):
        if by_kernel(log_alpha, weight):
            out = torch.empty_like(weight)
            with torch.cuda.device_of(weight):
                _variances[(triton.cdiv(out.numel(), _BLOCK),)](
                    log_alpha, weight, out, out.numel(), WIDE=_BLOCK, num_warps=8
                )
            return out
        return log_alpha.clamp(max=0.0).exp_().mul_(weight).mul_(weight)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, slope):
        log_alpha, weight = ctx.saved_tensors
        if torch.is_grad_enabled():  # slopes of slopes are asked for
            part = bounded(log_alpha, high=0.0).exp() * weight * slope
            return _inward(log_alpha, part * weight), 2.0 * part
        slope = slope.contiguous()
        if by_kernel(log_alpha, weight, slope):
            of_log_alpha, of_weight = torch.empty_like(log_alpha), torch.empty_like(weight)
            with torch.cuda.device_of(weight):
                _variance_slopes[(triton.cdiv(weight.numel(), _BLOCK),)](
                    log_alpha,
                    weight,
                    slope,
                    of_log_alpha,
                    of_weight,
                    weight.numel(),
                    WIDE=_BLOCK,
                    num_warps=8,
                )
            return of_log_alpha, of_weight
        part = log_alpha.clamp(max=0.0).exp_().mul_(weight).mul_(slope)
        return _inward(log_alpha, part * weight), part.mul_(2.0)


def _inward(log_alpha: Tensor, slope: Tensor) -> Tensor:
    """The slope of a projected step for the bound 0 from above."""
    return torch.where(log_alpha >= 0.0, slope.clamp_min(0.0), slope)


def log_uniform_kl(log_alpha: Tensor) -> Tensor:
    r"""Divergence of :math:`N(\phi, \alpha\phi^2)` from the log-uniform prior, per entry, up to a constant.

    .. math:: -KL = \tfrac12\log\alpha + c_1\alpha + c_2\alpha^2 + c_3\alpha^3, \qquad \alpha \le 1

    The constants are those of Kingma 2015. The divergence does not depend on :math:`\phi`.
    """
    first, second, third = KL_COEFFICIENTS
    alpha = log_alpha.exp()
    return -0.5 * log_alpha - alpha * (first + alpha * (second + third * alpha))


def divergence(log_alpha: Tensor, leading: int) -> Tensor:
    r"""The sum of :func:`log_uniform_kl` at :math:`\min(a, 0)`, over all but the ``leading`` axes.

    The slope is that of a projected step, see :func:`trimreg.nn.layers.common.bounded`.
    """
    if torch.compiler.is_compiling():
        return log_uniform_kl(bounded(log_alpha, high=0.0)).flatten(leading).sum(-1)
    return _Divergence.apply(log_alpha, leading)


class _Divergence(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(log_alpha, leading):
        first, second, third = KL_COEFFICIENTS
        if leading < 2 and by_kernel(log_alpha):
            replicas = log_alpha.shape[0] if leading else 1
            size = log_alpha.numel() // replicas
            partial = log_alpha.new_empty(*log_alpha.shape[:leading], triton.cdiv(size, _BLOCK))
            with torch.cuda.device_of(log_alpha):
                _divergences[(partial.shape[-1], replicas)](
                    log_alpha, partial, size, first, second, third, WIDE=_BLOCK, num_warps=8
                )
            return partial.sum(-1)
        bound = log_alpha.clamp(max=0.0)
        alpha = bound.exp()
        value = (-third * alpha).sub_(second).mul_(alpha).sub_(first).mul_(alpha).sub_(bound, alpha=0.5)
        return value.flatten(leading).sum(-1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        log_alpha, ctx.leading = inputs
        ctx.save_for_backward(log_alpha)

    @staticmethod
    def backward(ctx, slope):
        (log_alpha,), leading = ctx.saved_tensors, ctx.leading
        first, second, third = KL_COEFFICIENTS
        if leading < 2 and not torch.is_grad_enabled() and by_kernel(log_alpha):
            out, slope = torch.empty_like(log_alpha), slope.contiguous()
            replicas = log_alpha.shape[0] if leading else 1
            size = log_alpha.numel() // replicas
            with torch.cuda.device_of(log_alpha):
                _divergence_slopes[(triton.cdiv(size, _BLOCK), replicas)](
                    log_alpha, slope, out, size, first, second, third, WIDE=_BLOCK, num_warps=8
                )
            return out, None
        slope = slope.reshape(*slope.shape, *[1] * (log_alpha.ndim - leading))
        if torch.is_grad_enabled():
            alpha = bounded(log_alpha, high=0.0).exp()
            value = -(0.5 + alpha * (first + alpha * (2 * second + 3 * third * alpha))) * slope
        else:
            alpha = log_alpha.clamp(max=0.0).exp_()
            value = torch.mul(alpha, -3 * third).sub_(2 * second).mul_(alpha).sub_(first).mul_(alpha)
            value.sub_(0.5).mul_(slope)
        return _inward(log_alpha, value), None
