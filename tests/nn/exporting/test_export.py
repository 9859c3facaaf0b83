"""Exported networks have the outputs of the masked ones and the sizes asked for: layer by layer."""

import pytest
import torch
from nn_helpers import Reader, exported, physical
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune

from trimreg.nn.exporting.export import export
from trimreg.nn.groups.layer_groups import LayerGroups, Slab
from trimreg.nn.layers.bayes import bayesianize
from trimreg.nn.layers.gates import L0Conv2d, L0Linear
from trimreg.nn.layers.slim import Gather, MappedEmbedding, Plane, SlimAttention
from trimreg.nn.penalty.trimmed_group_l1 import TrimmedGroupL1


class LeNet300(nn.Module):
    def __init__(self, act=torch.relu):
        super().__init__()
        self.act = act
        self.fc1, self.fc2, self.fc3 = nn.Linear(784, 300), nn.Linear(300, 100), nn.Linear(100, 10)

    def forward(self, x):
        x = x.view(-1, 784)
        return self.fc3(self.act(self.fc2(self.act(self.fc1(x)))))


class LeNet5(nn.Module):
    def __init__(self, act=F.relu):
        super().__init__()
        self.act = act
        self.conv1, self.conv2 = nn.Conv2d(1, 20, 5), nn.Conv2d(20, 50, 5)
        self.fc1, self.fc2 = nn.Linear(800, 500), nn.Linear(500, 10)

    def forward(self, x):
        x = F.max_pool2d(self.act(self.conv1(x)), 2)
        x = F.max_pool2d(self.act(self.conv2(x)), 2)
        return self.fc2(self.act(self.fc1(x.view(-1, 800))))


# -- linear layers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", [torch.relu, torch.sigmoid, torch.cos])
def test_mlp_by_input_units(act):
    small = exported(LeNet300(act), {"fc1": 392, "fc2": 150, "fc3": 50}, torch.randn(4, 1, 28, 28))
    assert [tuple(p.shape) for p in small.model.parameters()] == [
        (150, 392), (150,), (50, 150), (50,), (10, 50), (10,),
    ]  # fmt: skip
    assert physical(small) == {"fc1": 392, "fc2": 150, "fc3": 50}
    assert small.report.size == "392-150-50"
    assert small.report.parameters == (266610, 392 * 150 + 150 + 150 * 50 + 50 + 510)
    assert small.report.macs == (266200, 392 * 150 + 150 * 50 + 500)
    assert small.report.indices == 392


def test_the_gather_takes_the_kept_pixels_in_order():
    model = LeNet300()
    pixels = torch.randperm(784)[:30].sort().values
    with torch.no_grad():
        model.fc1.weight[:, pixels] *= 100
    small = exported(model, {"fc1": 30}, torch.randn(4, 784))
    assert torch.equal(small.model.fc1_gather.index, pixels)


@pytest.mark.parametrize("act", [nn.Tanh, nn.Sigmoid, nn.Softplus])
def test_linear_by_output_units_folds_the_activation_of_zero(act):
    model = nn.Sequential(nn.Linear(7, 9), act(), nn.Linear(9, 8, bias=False), act(), nn.Linear(8, 3))
    small = exported(model, {"0": 4, "2": 5}, torch.randn(6, 7), groups="out")
    assert [m.weight.shape for m in small.model.children() if isinstance(m, nn.Linear)] == [
        (4, 7), (5, 4), (3, 5),
    ]  # fmt: skip
    assert small.model.get_submodule("2").bias is not None or act is nn.Tanh  # tanh(0) = 0 needs none


def test_output_units_of_the_last_layer_stay_as_zeros():
    small = exported(
        nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4)), {"2": 1}, torch.randn(3, 5), groups="out"
    )
    (layer,) = small.report.layers
    assert (layer.kept, layer.physical) == (1, 4)
    assert "output" in layer.note


def test_one_group_of_each_is_enough():
    small = exported(LeNet300(), {"fc1": 1, "fc2": 1, "fc3": 1}, torch.randn(4, 784))
    assert small.report.parameters[1] == 2 + 2 + 20


def test_a_layer_alone_is_exported():
    small = exported(nn.Sequential(nn.Linear(6, 4)), {"0": 2}, torch.randn(3, 6))
    assert physical(small) == {"0": 2}
    lone = nn.Linear(6, 4)
    with torch.no_grad():
        lone.weight[:, 2] = 0
    small = export(lone, None, torch.randn(3, 6), repeats=0)
    assert sum(p.numel() for p in small.model.parameters()) == 24


def test_a_network_of_constants_keeps_one_unit_a_layer():
    model = nn.Sequential(nn.Linear(5, 4), nn.Sigmoid(), nn.Linear(4, 3))
    with torch.no_grad():
        model[0].weight.zero_()
    x = torch.randn(3, 5)
    small = export(model, None, x, repeats=0)
    assert torch.allclose(small.model(x), model(x))
    assert small.model.get_submodule("0").weight.shape == (1, 1)


# -- convolutions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", [F.relu, torch.sigmoid])
def test_lenet5(act):
    keep = {"conv1": 8, "conv2": 17, "fc1": 53, "fc2": 19}
    small = exported(LeNet5(act), keep, torch.randn(4, 1, 28, 28))
    model, sizes = small.model, physical(small)
    assert small.report.size == "8-17-53-19"
    assert model.conv1.out_channels == model.conv2.in_channels == 8
    # Some kept channels feed no kept input, some kept inputs come from cut channels: the layers are smaller.
    assert model.conv2.out_channels == sizes["conv2"] < 17
    assert model.fc1.in_features == model.fc1_gather.index.numel() == sizes["fc1"] < 53
    assert model.fc1.out_features == model.fc2.in_features == 19


def test_flattened_inputs_of_live_channels_are_all_there():
    model = LeNet5()
    with torch.no_grad():
        model.conv2.weight[[3, 30]] *= 50
        entries = torch.tensor([3 * 16, 3 * 16 + 5, 30 * 16 + 15])
        model.fc1.weight[:, entries] *= 50
    small = exported(model, {"conv2": 2, "fc1": 3}, torch.randn(4, 1, 28, 28))
    assert physical(small) == {"conv2": 2, "fc1": 3}
    assert small.model.fc1_gather.index.tolist() == [0, 5, 31]


def test_a_sequence_of_modules():
    model = nn.Sequential(
        nn.Conv2d(2, 6, 3), nn.LeakyReLU(), nn.AvgPool2d(2), nn.Conv2d(6, 5, 2), nn.Sigmoid(), nn.Dropout(),
        nn.Flatten(), nn.Linear(20, 3),
    )  # fmt: skip
    small = exported(model, {"0": 3, "3": 2, "7": 8}, torch.randn(4, 2, 8, 8))
    assert small.model.get_submodule("3").weight.shape[1] == 3


@pytest.mark.parametrize(
    ("padding", "mode"), [(1, "zeros"), ("same", "zeros"), (1, "circular"), (0, "zeros")]
)
def test_constants_in_front_of_a_padded_convolution(padding, mode):
    def conv(a, b):
        return nn.Conv2d(a, b, 3, padding=padding, padding_mode=mode)

    model = nn.Sequential(conv(1, 6), nn.Sigmoid(), conv(6, 7), nn.Softplus(), conv(7, 2))
    small = exported(model, {"0": 2, "2": 3}, torch.randn(2, 1, 9, 8))
    assert physical(small) == {"0": 2, "2": 3}
    planes = [m for m in small.model.modules() if isinstance(m, Plane)]
    assert len(planes) == (2 if mode == "zeros" and padding else 0)  # elsewhere the bias takes the constant


def test_a_constant_seen_through_padding_is_none():
    """A channel that reads only a constant differs at the border, so it stays."""
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.Sigmoid(), nn.Conv2d(2, 2, 3, padding=1), nn.Sigmoid(), nn.Conv2d(2, 1, 3),
    )  # fmt: skip
    with torch.no_grad():
        model[0].weight[1], model[0].bias[1] = 0, 0
        model[2].weight[0, 0] = 0
    x = torch.randn(2, 1, 8, 8)
    small = export(model, None, x, repeats=0)
    assert torch.allclose(small.model(x), model(x), atol=1e-6)
    assert small.model.get_submodule("2").weight.shape[:2] == (2, 1)


def test_strided_dilated_1d_and_3d_convolutions():
    one = nn.Sequential(nn.Conv1d(2, 6, 3, padding=2, dilation=2), nn.Sigmoid(), nn.Conv1d(6, 2, 3, 2, 1))
    assert physical(exported(one, {"0": 2}, torch.randn(2, 2, 12))) == {"0": 2}
    three = nn.Sequential(nn.Conv3d(1, 5, 2), nn.Sigmoid(), nn.Conv3d(5, 2, 3, padding=1))
    assert physical(exported(three, {"0": 2}, torch.randn(2, 1, 4, 5, 4))) == {"0": 2}


def test_means_over_padding_do_not_count_as_constant():
    model = nn.Sequential(nn.Conv2d(1, 5, 3), nn.Sigmoid(), nn.AvgPool2d(3, 2, padding=1), nn.Conv2d(5, 2, 2))
    small = exported(model, {"0": 2}, torch.randn(2, 1, 9, 9))
    assert physical(small) == {"0": 5}  # sigmoid(0) is less at the border: nothing to fold
    model[1] = nn.ReLU()
    assert physical(exported(model, {"0": 2}, torch.randn(2, 1, 9, 9))) == {"0": 2}


def test_convolution_by_input_channels_gathers():
    model = nn.Sequential(nn.Conv2d(6, 5, 3), nn.ReLU(), nn.Conv2d(5, 4, 1))
    small = exported(model, {"0": 5, "2": 2}, torch.randn(2, 6, 7, 7), groups="in")
    assert [m.weight.shape[:2] for m in small.model.children() if isinstance(m, nn.Conv2d)] == [
        (2, 5),
        (4, 2),
    ]
    assert sum(isinstance(m, Gather) for m in small.model.children()) == 1


# -- batch norm -------------------------------------------------------------------------------------------


def normed(affine=True):
    model = nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8, affine=affine), nn.ReLU(),
        nn.Conv2d(8, 6, 3, padding=1), nn.BatchNorm2d(6, affine=affine), nn.Sigmoid(),
        nn.Flatten(), nn.Linear(6 * 25, 3),
    )  # fmt: skip
    for norm in (model[1], model[4]):
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
        if affine:
            nn.init.normal_(norm.weight)
            nn.init.normal_(norm.bias)
    return model


@pytest.mark.parametrize("affine", [True, False])
def test_the_shift_of_a_batch_norm_is_folded(affine):
    small = exported(normed(affine), {"0": 3, "3": 2}, torch.randn(2, 2, 5, 5))
    assert physical(small) == {"0": 3, "3": 2}
    assert small.model.get_submodule("1").num_features == 3
    assert small.model.get_submodule("7").in_features == 50
    assert any(isinstance(m, Plane) for m in small.model.modules())


def test_groups_may_cut_the_shift_with_the_channel():
    model = normed()
    norm = model[1]
    nn.init.zeros_(norm.running_mean)

    def with_norm(name, module):
        slabs = [Slab(module, "weight", 0)]
        slabs += [Slab(norm, part, 0, counted=False) for part in ("weight", "bias")]
        return LayerGroups(name, module, "with_norm", 8, tuple(slabs))

    small = exported(model, {"0": 3}, torch.randn(2, 2, 5, 5), groups=with_norm)
    assert physical(small) == {"0": 3}
    assert not any(isinstance(m, Plane) for m in small.model.modules())


def test_a_norm_without_statistics_holds_its_channels():
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, track_running_stats=False), nn.Conv2d(4, 2, 3)
    )
    small = exported(model, {"0": 2}, torch.randn(3, 1, 7, 7))
    assert physical(small) == {"0": 4}
    assert "BatchNorm2d" in small.report.layers[0].note


# -- embeddings and attention -----------------------------------------------------------------------------


def test_rows_of_an_embedding_and_heads_of_attention():
    tokens = torch.arange(22).reshape(2, 11) % 11
    small = exported(Reader(), {"table": 5, "attention": 1, "down": 7, "head": 4}, tokens)
    assert physical(small) == {"table": 5, "attention": 1, "down": 7, "head": 4}
    table, attention = small.model.table, small.model.attention
    assert isinstance(table, MappedEmbedding)
    assert table.table.weight.shape == (6, 12)  # the last one is the zeros of all that were cut
    assert isinstance(attention, SlimAttention)
    assert (attention.query.weight.shape, attention.out.weight.shape) == ((3, 12), (12, 3))
    assert small.model.up.out_features == 7


@pytest.mark.parametrize(
    "options", [{"batch_first": False}, {"bias": False}, {"heads": 2}, {"kdim": 12, "vdim": 12}], ids=str
)
def test_attention_in_its_forms(options):
    exported(Reader(**options), {"attention": 1}, torch.arange(22).reshape(2, 11) % 11)


def test_attention_with_other_widths_and_masks():
    class Cross(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 4, kdim=5, vdim=6, batch_first=True)

        def forward(self, x, k, v, ban, pad):
            out, _ = self.attention(x, k, v, key_padding_mask=pad, attn_mask=ban)
            return out

    model = Cross()
    ban = torch.triu(torch.ones(3, 3, dtype=torch.bool), 1)
    pad = torch.tensor([[False, False, True], [False, False, False]])
    inputs = (torch.randn(2, 3, 8), torch.randn(2, 3, 5), torch.randn(2, 3, 6), ban, pad)
    penalty = TrimmedGroupL1(model, keep={"attention": 2})
    small = export(model, penalty, inputs, repeats=0)
    penalty.finalize_()
    assert torch.allclose(small.model(*inputs), model.eval()(*inputs), atol=1e-6)
    assert small.report.layers[0].physical == 2


@pytest.mark.parametrize("part", ["value", "out"])
def test_a_head_that_gives_nothing_or_is_not_read_goes(part):
    model = Reader()
    with torch.no_grad():
        if part == "value":
            model.attention.in_proj_weight[24:27] = 0  # the first head's values
        else:
            model.attention.out_proj.weight[:, 3:6] = 0
    tokens = torch.arange(22).reshape(2, 11) % 11
    small = export(model, None, tokens, repeats=0)
    assert torch.allclose(small.model(tokens), model.eval()(tokens), atol=1e-6)
    assert small.model.attention.heads == 3


def test_attention_whose_weights_are_used_stays():
    class Weights(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 4, batch_first=True)

        def forward(self, x):
            return self.attention(x, x, x)[1]

    small = exported(Weights(), {"attention": 2}, torch.randn(2, 3, 8))
    assert small.report.layers[0].physical == 4
    assert "attention weights" in small.report.layers[0].note


def test_an_embedding_loses_columns_that_nobody_reads():
    model = nn.Sequential(nn.Embedding(6, 8), nn.Linear(8, 2))
    small = exported(model, {"1": 3}, torch.arange(12).reshape(4, 3) % 6)
    assert small.model.get_submodule("0").weight.shape == (6, 3)


# -- other layers, types and modes ------------------------------------------------------------------------


def test_bayesian_layers_become_plain_with_the_posterior_mean():
    model = bayesianize(LeNet5(), initial_log_alpha=-2.0)
    small = exported(model, {"conv1": 8, "conv2": 17, "fc1": 53, "fc2": 19}, torch.randn(4, 1, 28, 28))
    assert {type(m) for m in small.model.modules() if hasattr(m, "weight")} == {nn.Conv2d, nn.Linear}
    assert small.report.parameters[0] == 431080


def test_gates_are_multiplied_into_plain_layers():
    model = nn.Sequential(L0Conv2d(1, 6, 3), nn.ReLU(), nn.Flatten(), L0Linear(6 * 9, 4))
    with torch.no_grad():
        for layer in (model[0], model[3]):
            logits = next(p for name, p in layer.named_parameters() if name not in ("weight", "bias"))
            logits.copy_(torch.linspace(-4, 4, logits.numel()))
    x = torch.randn(3, 1, 5, 5)
    small = export(model, None, x, repeats=0)
    assert torch.allclose(small.model(x), model.eval()(x), atol=1e-6)
    open_gates = [int((model[i].gates() > 0).sum()) for i in (0, 3)]
    assert [layer.kept for layer in small.report.layers] == open_gates
    assert 0 < open_gates[0] < 6
    assert 0 < open_gates[1] < 54
    assert {type(m) for m in small.model.modules() if hasattr(m, "weight")} == {nn.Conv2d, nn.Linear}


def test_without_a_penalty_zeros_are_taken_out():
    model = nn.Sequential(nn.Linear(6, 5), nn.Sigmoid(), nn.Linear(5, 2))
    with torch.no_grad():
        model[2].weight[:, [0, 4]] = 0
        model[0].weight[2] = 0  # the unit is the constant sigmoid(bias)
    x = torch.randn(4, 6)
    small = export(model, None, x, repeats=0)
    assert torch.allclose(small.model(x), model(x), atol=1e-6)
    assert small.model.get_submodule("0").out_features == 2
    assert [(layer.kept, layer.physical) for layer in small.report.layers] == [(6, 6), (3, 2)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_types_are_kept(dtype):
    model = nn.Sequential(nn.Linear(20, 9), nn.Sigmoid(), nn.Linear(9, 3)).to(dtype)
    small = exported(
        model,
        {"0": 7, "2": 4},
        torch.randn(5, 20, dtype=dtype),
        tolerance=0.02 if dtype == torch.bfloat16 else 1e-14,
    )
    assert {p.dtype for p in small.model.parameters()} == {dtype}
    assert small.report.masked_difference <= 1e-5 < small.report.difference


def test_the_mode_of_the_model_is_left_alone():
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Dropout(), nn.Linear(5, 2))
    model[1].eval()
    exported(model.train(), {"3": 2}, torch.randn(4, 6))
    assert model.training
    assert model[2].training


def test_a_compiled_model_is_unwrapped():
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    compiled = torch.compile(model, backend="eager")
    small = export(compiled, TrimmedGroupL1(model, keep={"2": 2}), torch.randn(4, 6), repeats=0)
    assert small.report.size == "2"


def test_masks_of_torch_prune_must_be_made_permanent():
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    prune.ln_structured(model[2], "weight", amount=2, n=2, dim=1)
    with pytest.raises(ValueError, match="made permanent"):
        export(model, None, torch.randn(4, 6), repeats=0)
    prune.remove(model[2], "weight")
    assert [layer.kept for layer in export(model, None, torch.randn(4, 6), repeats=0).report.layers] == [6, 3]


def test_an_example_without_a_batch():
    model = nn.Sequential(nn.Linear(6, 5), nn.Sigmoid(), nn.Linear(5, 2))
    penalty = TrimmedGroupL1(model, keep={"0": 3}, groups="out")
    x = torch.randn(6)
    small = export(model, penalty, x, repeats=0)
    penalty.finalize_()
    assert torch.allclose(small.model(x), model(x), atol=1e-6)
    assert physical(small) == {"0": 3}


@pytest.mark.filterwarnings("ignore:layer .* groups that are kept are zero")
@pytest.mark.parametrize("seed", range(12))
def test_random_networks(seed):
    """Random widths, sizes, activations, padding and ties: always equal, never larger."""
    draw = torch.Generator().manual_seed(seed)

    def pick(*choices):
        return choices[int(torch.randint(len(choices), (), generator=draw))]

    layers, width, keep = [], 2, {}
    for _ in range(pick(1, 2, 3)):
        out = pick(3, 5, 8)
        keep[str(len(layers))] = pick(*range(1, out + 1))
        layers.append(nn.Conv2d(width, out, 3, padding=pick(0, 1), bias=pick(True, False)))
        layers += pick([], [nn.BatchNorm2d(out)])
        layers.append(pick(nn.ReLU(), nn.Sigmoid(), nn.ELU(), nn.PReLU(out), nn.Hardtanh()))
        layers += pick([], [nn.MaxPool2d(2, 1, 1)], [nn.AvgPool2d(2, 1)])
        width = out
    body = nn.Sequential(*layers, nn.Flatten())
    features = body(torch.zeros(2, 2, 12, 12)).shape[1]
    keep[str(len(body))] = pick(1, features // 7 + 1, features)
    body.append(nn.Linear(features, 6)).append(nn.Tanh())
    keep[str(len(body))] = pick(1, 3, 6)
    body.append(nn.Linear(6, 2))
    with torch.no_grad():
        for parameter in body.parameters():
            parameter.mul_(4).round_().div_(4)  # ties and zeros
    for norm in (m for m in body if isinstance(m, nn.BatchNorm2d)):
        norm.running_mean.normal_()
        nn.init.normal_(norm.bias)
    small = exported(body, keep, torch.randn(2, 2, 12, 12))
    for layer in small.report.layers[-2:]:
        assert layer.physical <= layer.kept
