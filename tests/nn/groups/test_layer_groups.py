"""Groups of layers: which entries they hold, their norms, and what scaling does to them."""

import pytest
import torch
from torch import nn

from trimreg.nn.groups.layer_groups import LayerGroups, Slab, is_known, layer_groups


def members(layer):
    """For each slab and group, the mask of the entries it holds, by the definition of a slab."""
    for slab in layer.slabs:
        shape = slab.tensor().shape
        for g in range(layer.count):
            mask = torch.zeros(shape, dtype=torch.bool)
            first = slab.start + g * slab.block
            mask.narrow(slab.axis, first, slab.block).fill_(True)
            yield slab, g, mask


LAYERS = {
    "linear": (lambda: nn.Linear(5, 3), "auto", "in", 5),
    "linear in": (lambda: nn.Linear(5, 3), "in", "in", 5),
    "linear out": (lambda: nn.Linear(5, 3), "out", "out", 3),
    "linear out without bias": (lambda: nn.Linear(5, 3, bias=False), "out", "out", 3),
    "conv1d": (lambda: nn.Conv1d(2, 4, 3), "auto", "out", 4),
    "conv2d": (lambda: nn.Conv2d(2, 4, 3), "auto", "out", 4),
    "conv2d in": (lambda: nn.Conv2d(2, 4, 3), "in", "in", 2),
    "depthwise": (lambda: nn.Conv2d(4, 4, 3, groups=4), "auto", "out", 4),
    "transposed": (lambda: nn.ConvTranspose2d(2, 4, 3), "auto", "out", 4),
    "embedding": (lambda: nn.Embedding(6, 3), "auto", "rows", 6),
    "bag": (lambda: nn.EmbeddingBag(6, 3), "auto", "rows", 6),
    "attention": (lambda: nn.MultiheadAttention(8, 4), "auto", "heads", 4),
    "attention of other keys": (lambda: nn.MultiheadAttention(8, 2, kdim=5, vdim=3), "auto", "heads", 2),
    "attention with bias": (lambda: nn.MultiheadAttention(8, 2, add_bias_kv=True), "auto", "heads", 2),
}


@pytest.fixture(params=LAYERS)
def layer(request):
    build, groups, kind, count = LAYERS[request.param]
    torch.manual_seed(0)
    made = layer_groups("a.b", build().double(), groups)
    assert (made.name, made.kind, made.count, made.replicas) == ("a.b", kind, count, ())
    return made


def test_norms_are_over_the_counted_members(layer):
    squares = torch.zeros(layer.count, dtype=torch.float64)
    for slab, g, mask in members(layer):
        if slab.counted:
            squares[g] += slab.tensor()[mask].square().sum().detach()
    torch.testing.assert_close(layer.norms().detach(), squares.sqrt())
    out = torch.full((layer.count,), -1.0, dtype=torch.float64)
    with torch.no_grad():
        layer.norms(out=out)
    torch.testing.assert_close(out, squares.sqrt())


def test_scaling_reaches_every_member_and_nothing_else(layer):
    before = {id(p): p.detach().clone() for p in layer.module.parameters()}
    factor = torch.arange(layer.count, dtype=torch.float64)
    layer.scale_(factor)
    expected = {key: torch.ones_like(p) for key, p in before.items()}
    for slab, g, mask in members(layer):
        expected[id(slab.tensor())][mask] = factor[g]
    for p in layer.module.parameters():
        torch.testing.assert_close(p.detach(), before[id(p)] * expected[id(p)], rtol=0, atol=0)


def test_a_bias_is_not_counted(layer):
    before = layer.norms().detach()
    for slab in layer.slabs:
        assert slab.counted == (slab.tensor().ndim > 1 and "bias" not in slab.attribute)
        if not slab.counted:
            slab.tensor().data.fill_(7.0)
    assert torch.equal(layer.norms().detach(), before)


def test_norms_can_be_differentiated(layer):
    layer.norms().sum().backward()
    for slab in layer.counted:
        assert torch.isfinite(slab.tensor().grad).all()
        assert slab.tensor().grad.abs().sum() > 0


def test_the_norm_of_zeros_has_a_finite_gradient():
    layer = layer_groups("fc", nn.Linear(3, 2))
    layer.scale_(torch.tensor([0.0, 1.0, 0.0]))
    assert (layer.norms() == 0).tolist() == [True, False, True]
    layer.norms().sum().backward()
    assert torch.isfinite(layer.module.weight.grad).all()
    assert (layer.module.weight.grad[:, [0, 2]] == 0).all()


def test_a_head_without_weights_passes_nothing_on():
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(8, 4, batch_first=True)
    attention.in_proj_bias.data.normal_()
    layer = layer_groups("attention", attention)
    x = torch.randn(2, 5, 8)
    layer.scale_(torch.tensor([1.0, 0.0, 1.0, 1.0]))
    assert [
        (row // 8, row % 8) for row in (attention.in_proj_weight == 0).all(1).nonzero().flatten().tolist()
    ] == [(part, row) for part in range(3) for row in (2, 3)]
    assert (attention.out_proj.weight == 0).all(0).nonzero().flatten().tolist() == [2, 3]
    assert (attention.in_proj_bias == 0).nonzero().flatten().tolist() == [2, 3, 10, 11, 18, 19]
    value = attention(x, x, x)[0]
    attention.out_proj.weight.data[:, 2:4] = 100.0  # the columns of head 1 now read zeros
    torch.testing.assert_close(attention(x, x, x)[0], value)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_small_types_are_measured_in_float32(dtype):
    layer = layer_groups("fc", nn.Linear(300, 4).to(dtype), "out")
    assert layer.norms().dtype == torch.float32
    torch.testing.assert_close(layer.norms(), layer.module.weight.float().norm(dim=1))
    layer.scale_(torch.tensor([0.0, 1.0, 1.0, 0.5]))
    assert layer.module.weight.dtype == dtype
    assert (layer.module.weight[0] == 0).all()
    assert layer.module.bias[0] == 0


def test_the_parameter_is_looked_up_at_every_use():
    layer = layer_groups("fc", nn.Linear(3, 2))
    layer.module.weight = nn.Parameter(torch.full((2, 3), 3.0))
    torch.testing.assert_close(layer.norms().detach(), torch.full((3,), 18.0**0.5))


class Replicated(nn.Module):
    """Four linear layers in one tensor."""

    usual_groups = "in"

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3, 5))
        self.bias = nn.Parameter(torch.randn(4, 3))

    def trimmed_groups(self, kind):
        if kind == "out":
            return 3, (Slab(self, "weight", 0), Slab(self, "bias", 0, counted=False)), (4,)
        return 5, (Slab(self, "weight", 1),), (4,)

    def sampled_weight(self):
        return 2.0 * self.weight


@pytest.mark.parametrize(("kind", "inner"), [("auto", 1), ("out", 2)])
def test_replicas_are_measured_and_scaled_apart(kind, inner):
    module = Replicated()
    layer = layer_groups("e", module, kind)
    assert layer.kind == ("in" if kind == "auto" else "out")
    torch.testing.assert_close(layer.norms(), module.weight.norm(dim=inner))
    before = module.weight.detach().clone()
    factor = torch.rand(4, layer.count)
    layer.scale_(factor)
    torch.testing.assert_close(module.weight.detach(), before * factor.unsqueeze(inner))


def test_sampled_norms_are_of_the_draw():
    layer = layer_groups("e", Replicated())
    torch.testing.assert_close(layer.norms(sampled=True), 2 * layer.norms())
    plain = layer_groups("fc", nn.Linear(3, 2))
    torch.testing.assert_close(plain.norms(sampled=True), plain.norms())


def test_a_callable_makes_the_groups():
    def pairs(name, module):
        return LayerGroups(name, module, "pairs", 3, (Slab(module, "weight", 1, start=1, block=2),))

    module = nn.Linear(7, 2)
    layer = layer_groups("fc", module, pairs)
    expected = module.weight[:, 1:].unflatten(1, (3, 2)).square().sum((0, 2)).sqrt()
    torch.testing.assert_close(layer.norms(), expected)


def test_known_modules():
    assert all(is_known(m) for m in (nn.Linear(1, 1), nn.Conv3d(1, 1, 1), nn.Embedding(1, 1), Replicated()))
    assert not any(is_known(m) for m in (nn.ReLU(), nn.BatchNorm1d(2), nn.Sequential(nn.Linear(1, 1))))


def nothing_counted(name, module):
    return LayerGroups(name, module, "in", 3, (Slab(module, "weight", 1, counted=False),))


def no_such_axis(name, module):
    return LayerGroups(name, module, "in", 3, (Slab(module, "weight", 2),))


def too_many(name, module):
    return LayerGroups(name, module, "in", 2, (Slab(module, "weight", 1, start=1, block=2),))


def wrong_replicas(name, module):
    return LayerGroups(name, module, "in", 3, (Slab(module, "weight", 0),), (7,))


@pytest.mark.parametrize(
    ("module", "groups", "error", "words"),
    [
        (nn.BatchNorm1d(3), "auto", TypeError, "'x'.*BatchNorm1d"),
        (nn.Embedding(3, 3), "in", TypeError, "'x'.*Embedding has no groups 'in'"),
        (nn.Linear(3, 3), "heads", TypeError, "'x'.*Linear has no groups 'heads'"),
        (nn.Linear(3, 3), "rows", TypeError, "'x'.*Linear has no groups 'rows'"),
        (nn.Linear(3, 3), "neurons", ValueError, "groups must be one of.*'neurons'"),
        (nn.Conv2d(4, 4, 3, groups=2), "in", ValueError, "'x'.*groups=2"),
        (nn.Linear(3, 3), lambda name, module: 3, TypeError, "'x'.*LayerGroups; got 3"),
        (nn.LazyLinear(3), "auto", ValueError, "'x' is lazy and has no shape yet"),
        (nn.Linear(3, 3), nothing_counted, ValueError, "'x': at least one slab must be counted"),
        (nn.Linear(3, 3), no_such_axis, ValueError, "'x'.*no axis 2"),
        (nn.Linear(3, 3), too_many, ValueError, "'x': .* no room for 2 groups of 2"),
        (nn.Linear(3, 3), wrong_replicas, ValueError, r"'x'.*replicas \(7,\)"),
    ],
)
def test_bad_groups_are_refused(module, groups, error, words):
    with pytest.raises(error, match=words):
        layer_groups("x", module, groups)
