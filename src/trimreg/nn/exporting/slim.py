"""The few layers that a shrunk network needs and ``torch.nn`` does not have."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Gather(nn.Module):
    """Takes the entries ``index`` along ``dim``: 392 of 784 pixels, 45 of 800 flattened features.

    Examples
    --------
    >>> import torch
    >>> from trimreg.nn.exporting.slim import Gather
    >>> Gather([0, 2])(torch.tensor([[5.0, 6.0, 7.0]]))
    tensor([[5., 7.]])
    """

    def __init__(self, index, dim: int = 1):
        super().__init__()
        self.dim = dim
        self.register_buffer("index", torch.as_tensor(index, dtype=torch.long).clone())

    def forward(self, x: Tensor) -> Tensor:
        return x.index_select(self.dim, self.index)

    def extra_repr(self) -> str:
        return f"{self.index.numel()} entries, dim={self.dim}"


class Plane(nn.Module):
    r"""What channels that are constant in space add to a zero-padded convolution.

    A cut channel in front of a convolution may be a constant :math:`c_j \ne 0` (an activation of zero, the
    shift of a batch norm). Without padding it adds :math:`\sum_j c_j \sum_{uv} W_{ijuv}` to the bias. With
    zero padding it adds less at the border. All such channels together are one channel of ones with the
    kernel :math:`\sum_j c_j W_{ij}`; it does not depend on the sample, so it is convolved once for the
    whole batch.

    Examples
    --------
    >>> import torch
    >>> from trimreg.nn.exporting.slim import Plane
    >>> Plane(torch.ones(1, 1, 3, 3), padding=1)(torch.zeros(8, 4, 2, 3)).detach()
    tensor([[[[4., 6., 4.],
              [4., 6., 4.]]]])
    """

    def __init__(self, weight: Tensor, stride=1, padding=0, dilation=1):
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone())
        self.stride, self.padding, self.dilation = stride, padding, dilation

    def forward(self, x: Tensor) -> Tensor:
        convolve = (F.conv1d, F.conv2d, F.conv3d)[self.weight.dim() - 3]
        ones = torch.ones_like(x[:1, :1])
        return convolve(ones, self.weight, None, self.stride, self.padding, self.dilation)


class MappedEmbedding(nn.Module):
    """An embedding of the kept rows; ``index`` says where a token's row went, ``rows`` if it was cut.

    The last row of the table is zero and belongs to all tokens that were cut.

    Examples
    --------
    >>> import torch
    >>> from trimreg.nn.exporting.slim import MappedEmbedding
    >>> table = MappedEmbedding([1, 0, 1], rows=1, embedding_dim=2)
    >>> with torch.no_grad():
    ...     _ = table.table.weight.copy_(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    >>> table(torch.tensor([0, 1, 2])).detach()
    tensor([[0., 0.],
            [3., 4.],
            [0., 0.]])
    """

    def __init__(self, index, rows: int, embedding_dim: int):
        super().__init__()
        self.rows, self.embedding_dim = rows, embedding_dim
        self.register_buffer("index", torch.as_tensor(index, dtype=torch.long).clone())
        self.table = nn.Embedding(rows + 1, embedding_dim, padding_idx=rows)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.table(self.index[tokens])


class SlimAttention(nn.Module):
    """Multi-head attention with fewer heads than ``embed_dim / head_dim``.

    ``nn.MultiheadAttention`` ties the number of heads to the width of its input, so a layer with heads cut
    cannot be written with it. It is called as ``nn.MultiheadAttention`` is and returns no attention
    weights.

    Examples
    --------
    >>> import torch
    >>> from trimreg.nn.exporting.slim import SlimAttention
    >>> attention = SlimAttention(embed_dim=12, heads=2, head_dim=3, kdim=12, vdim=12)
    >>> x = torch.zeros(5, 7, 12)
    >>> attention(x, x, x)[0].shape
    torch.Size([5, 7, 12])
    """

    def __init__(
        self,
        embed_dim: int,
        heads: int,
        head_dim: int,
        kdim: int,
        vdim: int,
        bias: bool = True,
        batch_first: bool = True,
    ):
        super().__init__()
        self.embed_dim, self.heads, self.head_dim = embed_dim, heads, head_dim
        self.kdim, self.vdim, self.bias, self.batch_first = kdim, vdim, bias, batch_first
        self.query = nn.Linear(embed_dim, heads * head_dim, bias)
        self.key = nn.Linear(kdim, heads * head_dim, bias)
        self.value = nn.Linear(vdim, heads * head_dim, bias)
        self.out = nn.Linear(heads * head_dim, embed_dim, bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = False,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, None]:
        if not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        q, k, v = (
            layer(x).unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)
            for layer, x in ((self.query, query), (self.key, key), (self.value, value))
        )
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=_additive(q, attn_mask, key_padding_mask))
        out = self.out(mixed.transpose(1, 2).flatten(2))
        return (out if self.batch_first else out.transpose(0, 1)), None


def _additive(q: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None) -> Tensor | None:
    """The two masks of ``nn.MultiheadAttention`` (True: not allowed) as one that is added to the scores."""
    total = None
    masks = (attn_mask, None if key_padding_mask is None else key_padding_mask[:, None, None, :])
    for mask in masks:
        if mask is None:
            continue
        if mask.dtype == torch.bool:
            mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill(mask, float("-inf"))
        total = mask.to(q.dtype) if total is None else total + mask
    return total
