"""Layers of shrunk networks, each against what it stands for."""

import pytest
import torch
from torch import nn

from trimreg.nn.layers.slim import Plane, SlimAttention


@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 1, 1), (2, (2, 0), 1), (1, "same", 2)])
def test_a_plane_is_a_convolution_of_constant_channels(stride, padding, dilation):
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 4, 3, stride, padding, dilation, bias=False)
    constants = torch.tensor([0.5, -2.0, 0.0])
    plane = Plane((conv.weight * constants[:, None, None]).sum(1, keepdim=True), stride, padding, dilation)
    for shape in ((2, 3, 7, 9), (5, 1, 8, 8)):
        want = conv(constants[:, None, None].expand(1, 3, *shape[2:]))
        assert torch.allclose(plane(torch.randn(shape)), want, atol=1e-6)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", ["none", "bool", "float", "pad"])
def test_slim_attention_of_all_heads_is_attention(batch_first, kind):
    torch.manual_seed(0)
    full = nn.MultiheadAttention(12, 4, batch_first=batch_first).eval()
    slim = SlimAttention(12, 4, 3, 12, 12, batch_first=batch_first)
    with torch.no_grad():
        for part, weight, bias in zip(
            (slim.query, slim.key, slim.value),
            full.in_proj_weight.chunk(3),
            full.in_proj_bias.normal_().chunk(3),
            strict=True,
        ):
            part.weight.copy_(weight)
            part.bias.copy_(bias)
        slim.out.load_state_dict(full.out_proj.state_dict())
    x = torch.randn(2, 5, 12) if batch_first else torch.randn(5, 2, 12)
    options = {
        "none": {},
        "bool": {"attn_mask": torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)},
        "float": {"attn_mask": torch.randn(5, 5)},
        "pad": {
            "key_padding_mask": torch.tensor([[False] * 5, [False, False, True, True, False]]),
            "attn_mask": torch.triu(torch.ones(5, 5, dtype=torch.bool), 1),
        },
    }[kind]
    with torch.no_grad():
        want, _ = full(x, x, x, need_weights=False, **options)
        got, weights = slim(x, x, x, **options)
    assert weights is None
    assert torch.allclose(got, want, atol=1e-6)
