"""Exports of networks that are no chain: sums, concatenations, gates, shared layers, unknown operations."""

import pytest
import torch
from nn_helpers import Net, exported, physical
from torch import nn
from torch.nn import functional as F

from trimreg.nn.exporting.export import export
from trimreg.nn.groups.layer_groups import LayerGroups, Slab
from trimreg.nn.penalty.trimmed_group_l1 import TrimmedGroupL1
from trimreg.nn.structure.spaces import ExportError


def cut_rows(module, rows):
    """Make these output channels the smallest, so that a penalty cuts them."""
    with torch.no_grad():
        module.weight[rows] *= 1e-3


# -- residual networks ------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, inside, out, stride=1):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inside, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.down = None
        if stride != 1 or inside != out:
            self.down = nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        skip = x if self.down is None else self.down(x)
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += skip
        return self.relu(out)


class ResNet(nn.Module):
    """A ResNet-18 with two stages of narrow blocks."""

    def __init__(self, width=6):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.relu, self.pool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(Block(width, width), Block(width, width))
        self.layer2 = nn.Sequential(Block(width, 2 * width, 2), Block(2 * width, 2 * width))
        self.fc = nn.Linear(2 * width, 5)

    def forward(self, x):
        x = self.pool(self.relu(self.bn1(self.conv1(x))))
        x = F.adaptive_avg_pool2d(self.layer2(self.layer1(x)), 1)
        return self.fc(torch.flatten(x, 1))


def resnet(shifted=True):
    model = ResNet()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_var.uniform_(0.5, 2)
            if shifted:
                module.running_mean.normal_()
                nn.init.normal_(module.bias)
    return model


def convolutions(model):
    return {n: m for n, m in model.named_modules() if isinstance(m, nn.Conv2d)}


@pytest.mark.parametrize("shifted", [True, False])
def test_resnet(shifted):
    model = resnet(shifted)
    keep = {name: layer.out_channels // 2 for name, layer in convolutions(model).items()}
    small = exported(model, keep, torch.randn(2, 3, 12, 12))
    sizes = physical(small)
    for name, size in keep.items():
        if name.endswith(".conv1"):
            assert sizes[name] == size  # nothing is added to it: what was cut is gone
    assert small.report.parameters[1] < 0.65 * small.report.parameters[0]


@pytest.mark.parametrize("shifted", [True, False])
def test_channels_that_all_branches_cut_leave_a_residual_stage(shifted):
    model = resnet(shifted)
    keep = {}
    for name, layer in convolutions(model).items():
        if not name.endswith(".conv1"):
            cut_rows(layer, [0, 2])
            keep[name] = layer.out_channels - 2
    small = exported(model, keep, torch.randn(2, 3, 12, 12))
    assert physical(small) == keep
    assert small.model.fc.in_features == 10
    assert small.model.bn1.num_features == 4


def test_a_channel_stays_as_zeros_while_one_branch_needs_it():
    model = Net(lambda m, x: m.c(m.a(x) + m.b(x)), a=nn.Linear(4, 6), b=nn.Linear(4, 6), c=nn.Linear(6, 2))
    cut_rows(model.a, [0, 1, 2])
    cut_rows(model.b, [2, 3, 4])
    small = exported(model, {"a": 3, "b": 3}, torch.randn(3, 4), groups="out")
    assert physical(small) == {"a": 5, "b": 5}
    assert "sum" in small.report.layers[0].note


def with_norms(model):
    """Groups of convolutions that take the affine map of their batch norm along."""
    modules = dict(model.named_modules())

    def groups(name, module):
        norm = modules[name.replace("down.0", "down.1").replace("conv", "bn")]
        slabs = [Slab(module, "weight", 0)]
        slabs += [Slab(norm, part, 0, counted=False) for part in ("weight", "bias")]
        return LayerGroups(name, module, "with_norm", module.out_channels, tuple(slabs))

    return groups


@pytest.mark.parametrize("method", ["trace", "dependency"])
def test_both_methods_agree_on_a_resnet(method):
    pytest.importorskip("torch_pruning")
    model = resnet()
    keep = {}
    for name, layer in convolutions(model).items():
        cut_rows(layer, [1])
        keep[name] = layer.out_channels - 1
    small = exported(model, keep, torch.randn(2, 3, 12, 12), groups=with_norms(model), method=method)
    assert physical(small) == keep
    assert isinstance(small.model, ResNet) == (method == "dependency")
    assert small.report.parameters[1] == sum(p.numel() for p in smaller_resnet().parameters())


def smaller_resnet():
    """The same network with one channel less everywhere, written by hand."""
    model = ResNet(5)
    model.layer2 = nn.Sequential(Block(5, 11, 2), Block(11, 11))
    model.fc = nn.Linear(11, 5)
    return model


# -- torch-pruning where tracing fails --------------------------------------------------------------------


class Branching(nn.Module):
    """Its forward looks at values, so it cannot be traced."""

    def __init__(self, act=torch.relu):
        super().__init__()
        self.act = act
        self.conv, self.fc1, self.fc2 = nn.Conv2d(1, 6, 3), nn.Linear(6 * 16, 8), nn.Linear(8, 2)

    def forward(self, x):
        if x.abs().sum() < 0:
            x = -x
        return self.fc2(self.act(self.fc1(self.act(self.conv(x)).flatten(1))))


def test_what_cannot_be_traced_goes_by_dependencies():
    pytest.importorskip("torch_pruning")
    small = exported(Branching(), {"conv": 4, "fc2": 3}, torch.randn(2, 1, 6, 6))
    assert isinstance(small.model, Branching)
    assert physical(small) == {"conv": 4, "fc2": 3}
    with pytest.raises(ExportError, match=r"Branching.forward cannot be traced"):
        exported(Branching(), {"conv": 4}, torch.randn(2, 1, 6, 6), method="trace")


def test_torch_pruning_is_not_trusted_where_it_is_wrong():
    """It would cut channels whose activation is not zero, and all flattened inputs for scattered ones."""
    pytest.importorskip("torch_pruning")
    x = torch.randn(2, 1, 6, 6)
    with pytest.raises(ExportError, match=r"layer 'conv': 2 of its .*does not give zero for zero"):
        exported(Branching(torch.sigmoid), {"conv": 4, "fc2": 3}, x)
    small = exported(Branching(torch.sigmoid), {"conv": 4, "fc2": 3}, x, strict=False)
    assert physical(small) == {"conv": 6, "fc2": 3}
    small = exported(Branching(), {"fc1": 17}, torch.randn(2, 1, 6, 6))
    assert physical(small)["fc1"] >= 17
    assert "coupled" in small.report.layers[0].note


def test_torch_pruning_takes_out_what_is_zero_with_its_bias():
    pytest.importorskip("torch_pruning")
    model = Branching()
    with torch.no_grad():
        model.conv.weight[[1, 3]] = 0
        model.conv.bias[1], model.conv.bias[3] = 0, 0.5  # channel 3 is a constant, not nothing
    x = torch.randn(2, 1, 6, 6)
    small = export(model, None, x, repeats=0)
    assert small.model.conv.out_channels == 5
    assert torch.allclose(small.model(x), model(x), atol=1e-6)


# -- other shapes of network ------------------------------------------------------------------------------


def test_concatenation():
    model = Net(
        lambda m, x: m.c(torch.cat([m.a(x), torch.sigmoid(m.b(x)), x], 1)),
        a=nn.Conv2d(2, 5, 3, padding=1), b=nn.Conv2d(2, 4, 3, padding=1), c=nn.Conv2d(11, 3, 3),
    )  # fmt: skip
    small = exported(model, {"a": 2, "b": 1}, torch.randn(2, 2, 7, 7))
    assert physical(small) == {"a": 2, "b": 1}
    assert small.model.c.in_channels == 5


def test_gating_by_a_product():
    """Squeeze and excitation: a channel that is zero in one factor is zero in the product."""
    model = Net(
        lambda m, x: m.c((y := torch.relu(m.a(x))) * torch.sigmoid(m.b(y.mean((2, 3), keepdim=True)))),
        a=nn.Conv2d(2, 6, 3), b=nn.Conv2d(6, 6, 1), c=nn.Conv2d(6, 3, 3, padding=1),
    )  # fmt: skip
    small = exported(model, {"a": 3}, torch.randn(2, 2, 7, 7))
    assert physical(small) == {"a": 3}
    assert small.model.b.weight.shape[:2] == (3, 3)


def test_depthwise_convolutions_shrink_by_channel_and_grouped_ones_by_group():
    model = nn.Sequential(
        nn.Conv2d(2, 6, 1), nn.Sigmoid(), nn.Conv2d(6, 6, 3, padding=1, groups=6), nn.ReLU(),
        nn.Conv2d(6, 4, 1),
    )  # fmt: skip
    small = exported(model, {"2": 3}, torch.randn(2, 2, 7, 7))
    assert physical(small) == {"2": 3}
    assert small.model.get_submodule("0").out_channels == small.model.get_submodule("2").groups == 3
    model = nn.Sequential(
        nn.Conv2d(2, 6, 1), nn.ReLU(), nn.Conv2d(6, 4, 3, groups=2), nn.ReLU(), nn.Conv2d(4, 2, 1)
    )
    with torch.no_grad():
        model[0].weight[[1, 3]] += 9  # one in each group
        model[2].weight[[0, 2]] += 9
    small = exported(model, {"0": 2, "2": 2}, torch.randn(2, 2, 7, 7))
    assert physical(small) == {"0": 6, "2": 4}
    assert "group with channels that stay" in small.report.layers[0].note
    with torch.no_grad():
        model[0].weight[:3] += 99
        model[2].weight[:2] += 99
    small = exported(model, {"0": 3, "2": 2}, torch.randn(2, 2, 7, 7))
    assert physical(small) == {"0": 3, "2": 2}
    assert small.model.get_submodule("2").groups == 1


@pytest.mark.parametrize(
    "flat",
    [
        lambda x: x.view(x.size(0), -1),
        lambda x: x.view(x.shape[0], x.shape[1] * x.shape[2] * x.shape[3]),
        lambda x: x.reshape(-1, 24),
        lambda x: torch.flatten(x, 1),
        lambda x: x.view(-1, x.size(1) * 4),
        lambda x: x.flatten(2).flatten(1),
        lambda x: x.permute(0, 2, 3, 1).reshape(-1, 24),
        lambda x: x.transpose(1, 3).contiguous().flatten(1),
    ],
)
def test_ways_to_flatten(flat):
    model = Net(
        lambda m, x: m.fc(flat(torch.sigmoid(m.conv(x)))), conv=nn.Conv2d(1, 6, 3), fc=nn.Linear(24, 3)
    )
    small = exported(model, {"conv": 2}, torch.randn(5, 1, 4, 4))
    assert physical(small) == {"conv": 2}
    assert small.model.fc.in_features == 8
    model = Net(
        lambda m, x: m.fc(flat(torch.sigmoid(m.conv(x)))), conv=nn.Conv2d(1, 6, 3), fc=nn.Linear(24, 3)
    )
    assert physical(exported(model, {"conv": 4, "fc": 5}, torch.randn(5, 1, 4, 4)))["fc"] <= 5


def test_widths_read_from_a_tensor_are_those_of_the_network_as_written():
    model = Net(
        lambda m, x: m.b((y := m.a(x)) * y.shape[1] + y.size(1)), a=nn.Linear(3, 6), b=nn.Linear(6, 2)
    )
    small = exported(model, {"b": 2}, torch.randn(4, 3))
    assert small.model.a.out_features == 2


def test_a_layer_called_twice_stays_whole():
    model = Net(lambda m, x: m.c(torch.relu(m.a(torch.relu(m.a(x))))), a=nn.Linear(5, 5), c=nn.Linear(5, 2))
    small = exported(model, {"c": 3}, torch.randn(4, 5))
    assert small.model.a.weight.shape == (5, 5)
    assert small.model.c.in_features == 3


def test_in_place_activations_change_what_others_read():
    def steps(m, x):
        y = m.a(x)
        z = torch.sigmoid_(y)
        return m.b(y) + m.c(z)

    model = Net(steps, a=nn.Linear(4, 6), b=nn.Linear(6, 2), c=nn.Linear(6, 2))
    exported(model, {"a": 2}, torch.randn(3, 4), groups="out")


def test_in_place_steps_without_a_result_are_kept():
    def steps(m, x):
        y = m.a(x)
        torch.sigmoid_(y)
        y.mul_(3)
        return m.b(y)

    model = Net(steps, a=nn.Linear(4, 6), b=nn.Linear(6, 2))
    small = exported(model, {"b": 2}, torch.randn(3, 4))
    assert physical(small) == {"b": 2}


def test_several_outputs_and_a_frozen_layer():
    model = Net(
        lambda m, x: {"a": m.b(y := torch.tanh(m.a(x))), "b": (y * 2, x)},
        a=nn.Linear(4, 6),
        b=nn.Linear(6, 2),
    )
    model.b.bias.requires_grad_(False)
    penalty = TrimmedGroupL1(model, keep={"b": 2})
    x = torch.randn(3, 4)
    small = export(model, penalty, x, repeats=0)
    penalty.finalize_()
    got, want = small.model(x), model(x)
    assert torch.allclose(got["a"], want["a"], atol=1e-6)
    assert torch.equal(got["b"][0], want["b"][0])


# -- what is not known ------------------------------------------------------------------------------------


def test_an_operation_that_is_not_known_is_named():
    model = Net(lambda m, x: m.c(torch.flip(m.a(x), (1,))), a=nn.Linear(4, 6), c=nn.Linear(6, 2))
    with pytest.raises(ExportError, match=r"layer 'a': 4 of its cut groups .* flip"):
        exported(model, {"a": 2}, torch.randn(3, 4), groups="out")
    small = exported(model, {"a": 2}, torch.randn(3, 4), groups="out", strict=False)
    assert physical(small) == {"a": 6}
    assert "flip" in small.report.layers[0].note
    small = export(model, None, torch.randn(3, 4), repeats=0)  # finalized above: zeros that nobody asked for
    assert small.model.a.out_features == 6


def test_a_layer_inside_a_module_that_is_not_taken_apart_is_named():
    layer = nn.TransformerEncoderLayer(8, 4, 16, batch_first=True, dropout=0.0)
    model = nn.Sequential(nn.Linear(5, 8), layer)
    with pytest.raises(ExportError, match=r"layer '1.linear2': 12 of its cut groups"):
        exported(model, {"1.linear2": 4}, torch.randn(2, 3, 5), method="trace")


def test_a_subclass_may_do_anything():
    class Twice(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    model = nn.Sequential(Twice(4, 6), nn.ReLU(), nn.Linear(6, 2))
    small = exported(model, {"2": 2}, torch.randn(3, 4))
    assert physical(small) == {"2": 2}
    with pytest.raises(ExportError, match="layer '0'"):
        exported(model, {"0": 2}, torch.randn(3, 4))


def test_a_network_that_never_gives_the_same_output_is_caught():
    model = Net(lambda m, x: m.b(torch.relu(m.a(x)) + torch.rand(6)), a=nn.Linear(4, 6), b=nn.Linear(6, 2))
    with pytest.raises(ExportError, match="Net gives other outputs at every call"):
        exported(model, {"b": 2}, torch.randn(3, 4))
