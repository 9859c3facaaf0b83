"""Exports of networks that write in place, share weights, pass tensors by name or leave layers unused."""

import pytest
import torch
from nn_helpers import Net, exported, physical
from torch import fx, nn
from torch.nn import functional as F

from trimreg.nn.exporting import files as serialize
from trimreg.nn.exporting.export import export
from trimreg.nn.exporting.files import load
from trimreg.nn.layers.bayes import BayesLinear
from trimreg.nn.penalty.trimmed_group_l1 import TrimmedGroupL1
from trimreg.nn.structure.cost import parameters
from trimreg.nn.structure.spaces import ExportError


def comes_back(small, x, folder):
    """Save and load; the loaded network, once its outputs are found to be the same."""
    small.save(folder / "net")
    again = load(folder / "net")
    with torch.no_grad():
        assert torch.equal(again(x), small.model(x))
    return again


# -- in place -----------------------------------------------------------------------------------------------


def _both_read(m, x):
    h = m.a(x)
    return m.b(m.act(h)) + m.c(h)


def _no_result(m, x):
    h = m.a(x)
    m.act(h)
    return m.b(h)


@pytest.mark.parametrize("steps", [_both_read, _no_result])
def test_steps_in_place_come_back_from_a_file_in_place(steps, tmp_path):
    model = Net(steps, a=nn.Linear(6, 5), act=nn.ReLU(inplace=True), b=nn.Linear(5, 2), c=nn.Linear(5, 2))
    x = torch.randn(4, 6)
    small = exported(model, {"b": 3}, x)
    comes_back(small, x, tmp_path)


@pytest.mark.parametrize(
    "alias",
    [
        nn.Dropout().eval(),
        nn.Identity(),
        lambda h: h.view(-1, 5),
        lambda h: h.transpose(0, 1),
        lambda h: h[:, :],
        lambda h: h.chunk(2, 1)[0],
        lambda h: h.detach(),
        lambda h: h.contiguous(),
        F.relu_,
    ],
    ids=["dropout", "identity", "view", "transpose", "item", "chunk", "detach", "contiguous", "in place"],
)
@pytest.mark.parametrize("write_to_alias", [True, False])
def test_writing_into_a_tensor_changes_all_that_share_its_memory(alias, write_to_alias):
    def steps(m, x):
        h = m.a(x)
        same = m.alias(h) if "alias" in dict(m.named_children()) else alias(h)
        (same if write_to_alias else h).sigmoid_()
        return m.b(h) + same.mean()

    layers = {"alias": alias} if isinstance(alias, nn.Module) else {}
    model = Net(steps, a=nn.Linear(6, 5), b=nn.Linear(5, 2), **layers)
    exported(model, {"a": 3}, torch.randn(4, 6), groups="out", strict=False)


def test_what_was_read_before_the_write_is_still_cut():
    def steps(m, x):
        h = torch.sigmoid(m.a(x))
        return m.b(h) + m.c(F.relu(h))

    model = Net(steps, a=nn.Linear(6, 5), b=nn.Linear(5, 2), c=nn.Linear(5, 2))
    assert physical(exported(model, {"a": 3}, torch.randn(4, 6), groups="out")) == {"a": 3}


def test_a_network_may_write_into_its_input():
    layers = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    model = Net(lambda m, x: m.net(x.sigmoid_()), net=layers)
    x = torch.randn(3, 4)
    before = x.clone()
    small = exported(model, {"net.2": 2}, x)
    assert torch.equal(x, before)
    assert torch.equal(small.example[0], before)
    penalty = TrimmedGroupL1(model, keep={"net.2": 2})
    timed = export(model, penalty, x, repeats=2)
    by_graph = export(model, penalty, x, repeats=0, method="dependency")
    assert torch.equal(x, before)
    assert torch.equal(timed.example[0], before)
    assert physical(by_graph) == {"net.2": 2}


# -- weights that are used twice ----------------------------------------------------------------------------


def test_a_weight_that_a_function_reads_as_well_stays_whole():
    model = Net(
        lambda m, x: F.linear(torch.relu(m.a(x)), m.a.weight.t()) + m.c(torch.tanh(m.b(x))),
        a=nn.Linear(6, 5),
        b=nn.Linear(6, 4),
        c=nn.Linear(4, 6),
    )
    small = exported(model, {"a": 3, "c": 2}, torch.randn(4, 6))
    assert physical(small) == {"a": 6, "c": 2}
    assert "shares its weights" in small.report.layers[0].note


def test_layers_with_one_weight_stay_tied():
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 2))
    model[2].weight = model[0].weight
    small = exported(model, {"4": 5}, torch.randn(4, 6))
    assert small.report.parameters == (62, 60)
    assert small.model.get_parameter("2.weight") is small.model.get_parameter("0.weight")


@pytest.mark.parametrize("read_first", [False, True])
def test_a_table_that_is_read_as_the_last_weight_as_well_is_saved_once(read_first, tmp_path):
    def steps(m, x):
        weight = m.e.weight if read_first else None
        h = m.b(m.e(x))
        return F.linear(h, weight if read_first else m.e.weight)

    model = Net(steps, e=nn.Embedding(20, 8), b=nn.Linear(8, 8))
    x = torch.randint(20, (4, 9))
    small = exported(model, {"b": 4}, x)
    again = comes_back(small, x, tmp_path)
    with torch.no_grad():
        again.get_parameter("e.weight").mul_(2)  # in both places
        small.model.get_parameter("e.weight").mul_(2)
        assert torch.equal(again(x), small.model(x))
    assert [name for name, _ in again.named_parameters()] == ["e.weight", "b.weight", "b.bias"]


def test_layers_with_one_weight_are_tied_after_loading(tmp_path):
    model = nn.Sequential(nn.Embedding(20, 6), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 20, bias=False))
    model[3].weight = model[0].weight
    x = torch.randint(20, (4, 9))
    small = exported(model, {"1": 5}, x)
    again = comes_back(small, x, tmp_path)
    assert again.get_parameter("3.weight") is again.get_parameter("0.weight")
    assert parameters(again) == parameters(small.model)
    written, _ = serialize._unpacked((tmp_path / "net").read_bytes())
    assert "0.weight" in written
    assert "3.weight" not in written


def test_a_weight_that_a_function_reads_under_another_name_is_tied_after_loading(tmp_path):
    root = nn.ModuleDict({"a": nn.Linear(6, 6), "b": nn.ParameterDict()})
    root["b"]["weight"] = root["a"].weight
    graph = fx.Graph()
    hidden = graph.call_module("a", (graph.placeholder("x"),))
    graph.output(graph.call_function(F.linear, (hidden, graph.get_attr("b.weight"))))
    model = fx.GraphModule(root, graph)
    serialize.save(model, tmp_path / "net")
    again = load(tmp_path / "net")
    x = torch.randn(4, 6)
    assert torch.equal(again(x), model(x))
    assert again.get_parameter("b.weight") is again.get_parameter("a.weight")


def test_a_norm_without_weights_that_is_called_twice_stays_whole():
    model = Net(
        lambda m, x: m.c(m.norm(m.b(torch.relu(m.norm(m.a(x)))))),
        a=nn.Linear(4, 6),
        norm=nn.BatchNorm1d(6, affine=False),
        b=nn.Linear(6, 6),
        c=nn.Linear(6, 2),
    )
    model(torch.randn(20, 4))
    exported(model, {"b": 2, "c": 3}, torch.randn(5, 4))


def test_a_bayesian_layer_of_two_names_becomes_one_plain_layer():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = BayesLinear(6, 6)
            self.b, self.c = self.a, nn.Linear(6, 2)

        def forward(self, x):
            return self.c(torch.relu(self.b(torch.relu(self.a(x)))))

    small = exported(Twice(), {"c": 3}, torch.randn(4, 6))
    assert small.report.parameters == (42 + 14, 42 + 8)


# -- how steps are called -----------------------------------------------------------------------------------


def test_tensors_may_be_given_by_name():
    def steps(m, x):
        x = F.max_pool2d(input=m.norm(input=m.a(input=x)), kernel_size=2)
        both = torch.cat(
            tensors=[torch.flatten(input=x, start_dim=1), torch.mean(input=x, dim=(2, 3))], dim=1
        )
        return m.b(input=F.relu(input=both))

    model = Net(steps, a=nn.Conv2d(3, 6, 3), norm=nn.BatchNorm2d(6), b=nn.Linear(60, 2))
    assert physical(exported(model, {"a": 2}, torch.randn(4, 3, 8, 8))) == {"a": 2}


def test_numbers_that_the_network_computes_are_no_constants():
    model = Net(lambda m, x: m.b(m.a(x).clamp(max=x.size(0) * 0.1)), a=nn.Linear(4, 6), b=nn.Linear(6, 2))
    small = exported(model, {"b": 3}, torch.randn(5, 4), torch.randn(2, 4))
    assert physical(small) == {"b": 3}
    exported(model, {"a": 3}, torch.randn(5, 4), torch.randn(2, 4), groups="out")


def test_optional_inputs_are_built_in_to_the_file(tmp_path):
    class Optional(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 2)

        def forward(self, x, scale=2.0, shifted=True, mask=None):
            x = torch.relu(self.a(x)) * scale
            return self.b(x + 1 if shifted else x)

    x = torch.randn(3, 4)
    small = exported(Optional(), {"b": 2}, x)
    comes_back(small, x, tmp_path)


def test_several_sizes_read_at_once_hold_the_width():
    def steps(m, x):
        h = m.a(x)
        return m.b(torch.relu(h)) + torch.ones(h.shape[1:]).sum()

    exported(Net(steps, a=nn.Linear(4, 6), b=nn.Linear(6, 2)), {"b": 2}, torch.randn(3, 4), strict=False)


def test_names_with_dashes_and_blanks_are_saved(tmp_path):
    layers = nn.ModuleDict({"first-one": nn.Linear(4, 6), "the next": nn.Linear(6, 2)})
    model = Net(lambda m, x: m.all["the next"](torch.tanh(m.all["first-one"](x))), all=layers)
    x = torch.randn(3, 4)
    small = exported(model, {"all.the next": 2}, x)
    comes_back(small, x, tmp_path)


def test_a_layer_that_reaches_no_output_is_gone_and_no_error():
    def steps(m, x):
        h = torch.relu(m.a(x))
        m.aside(h)
        return m.b(h)

    model = Net(steps, a=nn.Linear(4, 6), aside=nn.Linear(6, 3), unused=nn.Conv2d(2, 2, 1), b=nn.Linear(6, 2))
    small = exported(model, {"aside": 2, "unused": 1, "b": 3}, torch.randn(3, 4))
    assert physical(small) == {"aside": 0, "unused": 0, "b": 3}
    assert small.report.size == "2-1-3"


# -- constants over space, masks, types ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "over_space",
    [
        lambda: nn.Conv2d(6, 6, 3, padding=1, groups=6),
        lambda: nn.AvgPool2d(3, 2, padding=1),
        lambda: nn.AvgPool2d(3, 50, padding=1),  # one window, which sees one pixel or four
        lambda: nn.AvgPool2d(2, ceil_mode=True, divisor_override=3),
    ],
    ids=["depthwise", "mean", "one window", "divisor"],
)
def test_what_is_constant_on_one_pixel_only_is_no_constant(over_space):
    model = Net(
        lambda m, x: m.b(m.over(torch.sigmoid(m.a(x))).mean((2, 3))),
        a=nn.Conv2d(3, 6, 2, stride=2),
        over=over_space(),
        b=nn.Linear(6, 2),
    )
    size = 4 if getattr(model.over, "ceil_mode", False) else 2
    exported(model, {"a": 3}, torch.randn(4, 3, size, size), torch.randn(2, 3, 14, 10))


def test_pooling_over_the_channels_is_not_known():
    def network():
        return Net(
            lambda m, x: m.b(F.max_pool2d(m.a(x), 2).flatten(1)), a=nn.Conv1d(3, 6, 3), b=nn.Linear(9, 2)
        )

    x = torch.randn(4, 3, 8)
    with pytest.raises(ExportError, match="max_pool2d"):
        exported(network(), {"a": 3}, x)
    assert physical(exported(network(), {"a": 3}, x, strict=False)) == {"a": 6}


@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_heads_with_masks_of_their_own_stay(kind):
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 4, batch_first=True)

        def forward(self, x, mask):
            return self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]

    model = Masked()
    mask = torch.randn(12, 5, 5)
    example = torch.randn(3, 5, 8), mask > 1 if kind is torch.bool else mask
    small = export(model, TrimmedGroupL1(model, keep={"attention": 2}), example, repeats=0)
    assert physical(small) == {"attention": 4}
    assert "differs by head" in small.report.layers[0].note


def test_a_network_of_two_types_is_exported_in_single_precision():
    model = nn.Sequential(nn.Linear(4, 6).bfloat16(), nn.ReLU(), nn.Linear(6, 2))
    small = export(model, TrimmedGroupL1(model, keep={"2": 3}), torch.randn(3, 4).bfloat16(), repeats=1)
    assert small.model(*small.example).dtype == torch.float32


# -- once more, and what else may be in the way -------------------------------------------------------------


def test_an_exported_network_can_be_pruned_and_exported_again(tmp_path):
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.Sigmoid(), nn.Conv2d(6, 5, 3, padding=1), nn.GELU(), nn.Flatten(),
        nn.Linear(320, 8), nn.Tanh(), nn.Linear(8, 2),
    )  # fmt: skip
    x = torch.randn(4, 3, 8, 8)
    once = exported(model, {"0": 4, "2": 4, "5": 100}, x)
    kinds = {type(module).__name__ for module in once.model.modules()}
    assert {"Plane", "Gather"} <= kinds
    twice = exported(once.model, {"0": 2, "7": 3}, x)
    assert physical(twice) == {"0": 2, "7": 3}
    thrice = exported(twice.model, {"5": 20}, x, torch.randn(2, 3, 8, 8))
    assert thrice.report.parameters[1] < twice.report.parameters[1] < once.report.parameters[1]
    comes_back(thrice, x, tmp_path)


def test_channels_of_a_layer_with_a_plane_leave_with_it():
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.Sigmoid(), nn.Conv2d(6, 5, 3, padding=1), nn.Tanh(), nn.Conv2d(5, 2, 1)
    )
    once = exported(model, {"0": 4}, torch.randn(4, 3, 8, 8))
    inputs = torch.randn(4, 3, 8, 8), torch.randn(2, 3, 6, 9)
    twice = exported(once.model, {"4": 3}, *inputs, groups="in")  # three are read: so the other two leave
    (plane,) = [module for module in twice.model.modules() if type(module).__name__ == "Plane"]
    assert physical(twice) == {"4": 3}
    assert twice.model.get_submodule("2").out_channels == 3
    assert plane.weight.shape == (3, 1, 3, 3)


def test_indices_of_torch_pruning_that_do_not_fit_are_not_followed():
    pytest.importorskip("torch_pruning")
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 8), nn.Linear(8, 2))
    x = torch.randn(4, 3, 8, 8)
    once = exported(model, {"0": 3, "3": 20}, x)
    exported(once.model, {"0": 2, "3": 5}, x, method="dependency")


def test_rows_under_a_largest_norm_stay_whole():
    model = Net(lambda m, x: m.b(m.a(x).mean(1)), a=nn.Embedding(12, 6, max_norm=1.0), b=nn.Linear(6, 2))
    small = exported(model, {"a": 5, "b": 3}, torch.randint(0, 12, (4, 3)))
    assert physical(small) == {"a": 12, "b": 3}
    assert small.report.layers[0].note == "kept by its max_norm"


def test_a_reason_is_named_once():
    model = Net(lambda m, x: m.b(torch.fft.fft(m.a(x)).real), a=nn.Linear(4, 6), b=nn.Linear(6, 2))
    small = exported(model, {"a": 3}, torch.randn(3, 4), groups="out", strict=False)
    assert small.report.layers[0].note == "kept by fft_fft"


def test_what_was_frozen_stays_frozen():
    model = nn.Sequential(nn.Embedding(9, 6), nn.Linear(6, 5), nn.Sigmoid(), nn.Linear(5, 2)).requires_grad_(
        False
    )
    model[1].weight.requires_grad_(True)
    small = exported(model, {"1": 4}, torch.randint(0, 9, (4,)))
    cut = export(model, None, torch.randint(0, 9, (4,)), repeats=0)
    for network in (small.model, cut.model):
        assert [name for name, p in network.named_parameters() if p.requires_grad] == ["1.weight"]


def test_a_hook_that_changes_a_layer_is_named():
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    model[0].register_forward_hook(lambda module, inputs, result: result * 2)
    with pytest.raises(ExportError, match=r"or of a forward hook \(on '0'\)"):
        export(model, TrimmedGroupL1(model, keep={"2": 3}), torch.randn(3, 4), repeats=0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
    model[0].register_forward_hook(lambda module, inputs, result: None)
    assert physical(exported(model, {"2": 3}, torch.randn(3, 4))) == {"2": 3}


def test_any_number_of_inputs_cannot_be_saved(tmp_path):
    class Any(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 2)

        def forward(self, *inputs):
            return self.b(torch.relu(self.a(inputs[0])))

    small = exported(Any(), {"b": 3}, torch.randn(3, 4))
    with pytest.raises(ValueError, match="any number of tensors"):
        small.save(tmp_path / "net")


def test_torch_pruning_may_count_channels_that_a_broadcast_makes():
    pytest.importorskip("torch_pruning")
    model = Net(
        lambda m, x: m.b((m.a(x) * m.norm(x)).mean((2, 3))),
        norm=nn.BatchNorm2d(1),
        a=nn.Conv2d(1, 7, 3, padding=1),
        b=nn.Linear(7, 2),
    )
    model(torch.randn(8, 1, 5, 5))
    exported(model, {"a": 3, "b": 4}, torch.randn(4, 1, 5, 5), method="dependency")
