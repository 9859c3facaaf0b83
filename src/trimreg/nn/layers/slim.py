"""The layers of exported networks that ``torch.nn`` does not have."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Gather(nn.Module):
    """Selects the entries ``index`` along ``dim``: 392 of 784 pixels, 45 of 800 flattened features."""

    def __init__(self, index: Any, dim: int = 1):
        super().__init__()
        self.dim = dim
        self.register_buffer("index", torch.as_tensor(index, dtype=torch.long).clone())

    def forward(self, x: Tensor) -> Tensor:
        return x.index_select(self.dim, self.index)

    def extra_repr(self) -> str:
        return f"{self.index.numel()} entries, dim={self.dim}"


class Plane(nn.Module):
    r"""The contribution of channels that are constant in space to a zero-padded convolution.

    A removed channel in front of a convolution may be a constant :math:`c_j \ne 0` (the activation of zero,
    the shift of a batch norm). Without padding it adds :math:`\sum_j c_j \sum_{uv} W_{ijuv}` to the bias.
    With zero padding it adds less at the border. All such channels together act like one channel of ones with
    the kernel :math:`\sum_j c_j W_{ij}`. It does not depend on the sample, so it is convolved once per batch.
    """

    def __init__(self, weight: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1):
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone())
        self.stride, self.padding, self.dilation = stride, padding, dilation

    def forward(self, x: Tensor) -> Tensor:
        convolve = (F.conv1d, F.conv2d, F.conv3d)[self.weight.dim() - 3]
        ones = torch.ones_like(x[:1, :1])
        return convolve(ones, self.weight, None, self.stride, self.padding, self.dilation)


class MappedEmbedding(nn.Module):
    """An embedding of the kept rows; ``index`` is the new row of each token, ``rows`` if its row was removed.

    The last row of the table is zero, for all tokens whose rows were removed.
    """

    def __init__(self, index: Any, rows: int, embedding_dim: int):
        super().__init__()
        self.rows, self.embedding_dim = rows, embedding_dim
        self.register_buffer("index", torch.as_tensor(index, dtype=torch.long).clone())
        self.table = nn.Embedding(rows + 1, embedding_dim, padding_idx=rows)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.table(self.index[tokens])


class SlimAttention(nn.Module):
    """Multi-head attention with fewer heads than ``embed_dim / head_dim``.

    ``nn.MultiheadAttention`` ties the number of heads to the width of its input, so it cannot have fewer
    heads at the same width. This layer is called in the same way and returns no attention weights. The
    layers of ``nn.Transformer`` take it without their fused path, since it has no ``in_proj_bias``.
    """

    in_proj_bias = None

    def __init__(
        self, embed_dim: int, heads: int, head_dim: int, kdim: int, vdim: int, bias: bool = True,
        batch_first: bool = True, out_bias: bool | None = None,
    ):  # fmt: skip
        super().__init__()
        self.embed_dim, self.heads, self.head_dim = embed_dim, heads, head_dim
        self.kdim, self.vdim, self.bias, self.batch_first = kdim, vdim, bias, batch_first
        self.out_bias = bias if out_bias is None else out_bias
        self.query = nn.Linear(embed_dim, heads * head_dim, bias)
        self.key = nn.Linear(kdim, heads * head_dim, bias)
        self.value = nn.Linear(vdim, heads * head_dim, bias)
        self.out = nn.Linear(heads * head_dim, embed_dim, self.out_bias)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
        need_weights: bool = False, attn_mask: Tensor | None = None, average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, None]:  # fmt: skip
        if not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        q, k, v = (
            layer(x).unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)
            for layer, x in ((self.query, query), (self.key, key), (self.value, value))
        )
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=_additive(q, attn_mask, key_padding_mask))
        out = self.out(mixed.transpose(1, 2).flatten(2))
        return (out if self.batch_first else out.transpose(0, 1)), None


class SlimSelfAttention(SlimAttention):
    """The same for attention that is given one input and returns one output, without a mask."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, x, x)[0]


def _additive(q: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None) -> Tensor | None:
    """The two masks of ``nn.MultiheadAttention`` (True: not allowed) as one mask to add to the scores."""
    total = None
    masks = (attn_mask, None if key_padding_mask is None else key_padding_mask[:, None, None, :])
    for mask in masks:
        if mask is None:
            continue
        if mask.dtype == torch.bool:
            mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill(mask, float("-inf"))
        total = mask.to(q.dtype) if total is None else total + mask
    return total
