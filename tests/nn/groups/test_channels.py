"""The penalty on coupled channels: sizes that fit, sizes that do not, and entries inside channels."""

import copy
import pickle

import pytest
import torch
from channel_networks import NETWORKS, Inverted, conv, resnet
from nn_helpers import Net
from torch import nn
from torch.nn import functional as F

from trimreg.nn import Ramp, TrimmedGroupL1, export
from trimreg.nn.structure.spaces import ExportError


def images(channels=1, size=8):
    return torch.randn(3, channels, size, size)


def lenet():
    """Two convolutions and two linear layers; the second reads a flattened image of 2 x 2."""
    return nn.Sequential(
        nn.Conv2d(1, 5, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(5, 7, 2), nn.ReLU(), nn.Flatten(),
        nn.Linear(28, 9), nn.ReLU(), nn.Linear(9, 3),
    )  # fmt: skip


def train(model, penalty, x, steps=8):
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    with penalty.attach(optimizer):
        for _ in range(steps):
            optimizer.zero_grad()
            F.cross_entropy(model(x).flatten(1), torch.randint(3, (len(x),))).backward()
            optimizer.step()


# -- groups ------------------------------------------------------------------------------------------------


def test_a_group_is_all_that_computes_the_channel():
    model, x = NETWORKS["mobilenet"]()
    penalty = TrimmedGroupL1(model, {"9.expand.0": 10}, example_input=x)
    block = model[9]
    parts = [
        *block.expand.parameters(), *block.depth.parameters(), block.excite.weight, block.excite.bias
    ]  # fmt: skip
    squares = sum(part.detach().square().reshape(24, -1).sum(1) for part in parts)
    torch.testing.assert_close(penalty.layers["9.expand.0"].norms().detach(), squares.sqrt())
    # A norm that reads the channels of several layers belongs to each by its part.
    model, x = NETWORKS["densenet"]()
    penalty = TrimmedGroupL1(model, {"convs.0": 2}, example_input=x)
    penalty.finalize_()
    cut = ~penalty.kept()["convs.0"]
    assert [int((norm.weight == 0).sum()) for norm in model.norms] == [0, 2, 2]
    assert torch.equal(model.norms[2].weight[6:10] == 0, cut)


def test_training_keeps_exact_sizes_and_the_export_has_them():
    model, x = resnet(4)
    keep = {"*conv1": 2, "0.0": 2, "5.conv2": 5, "7.conv2": 9}
    penalty = TrimmedGroupL1(model, keep, example_input=x, h_schedule=Ramp(2, 6))
    train(model, penalty, x)
    penalty.finalize_()
    small = export(model, penalty, x, repeats=0)
    modules = dict(small.model.named_modules())
    assert modules["2.conv2"].out_channels == modules["3.conv1"].in_channels == 2
    assert modules["4.shortcut.0"].out_channels == modules["5.bn2"].num_features == 5
    assert modules["7.conv2"].out_channels == modules["10"].in_features == 9
    assert small.report.size == "2-2-2-2-2-5-2-2-9"
    assert small.report.layers[0].note == "the same channels as 0.1, 2.conv2, 2.bn2, 3.conv2, 3.bn2"
    assert not any("plane" in name or "gather" in name for name in modules)


def test_a_finite_alpha_reaches_every_layer_of_the_group():
    model, x = resnet(4)
    alpha = {"3.conv2": 100.0, "5.conv1": 0.0}  # named by another layer of the group
    penalty = TrimmedGroupL1(model, {"2.conv2": 2, "5.conv1": 7}, alpha, example_input=x)
    train(model, penalty, x, steps=3)
    assert int((model[0][1].weight != 0).sum()) == 2
    assert int((model[5].bn1.weight != 0).sum()) == 8
    with pytest.raises(ValueError, match=r"alpha: '3.conv2' has another value than '2.conv2'"):
        TrimmedGroupL1(model, {"2.conv2": 2}, {"2.conv2": 1.0, "3.conv2": 2.0}, example_input=x)


def test_blocks_of_a_convolution_with_groups():
    model, x = NETWORKS["resnext"]()
    penalty = TrimmedGroupL1(model, {"4.*": 8, "7.conv1": 24}, example_input=x)
    small = export(model, penalty, x, repeats=0)
    modules = dict(small.model.named_modules())
    assert (modules["4.conv2"].groups, modules["4.conv2"].weight.shape[:2]) == (2, (8, 4))
    assert [(layer.groups, layer.kept, layer.physical) for layer in small.report.layers] == [
        (16, 8, 8), (32, 24, 24)
    ]  # fmt: skip
    with pytest.raises(
        ValueError, match=r"layer '4.conv1': keep must be a multiple of 4, .* blocks .* got 7"
    ):
        TrimmedGroupL1(model, {"4.conv1": 7}, example_input=x)


# -- entries inside channels -------------------------------------------------------------------------------


@pytest.mark.parametrize("rank_by", ["norm", "taylor"])
@pytest.mark.parametrize(("channels", "entries"), [(3, 3), (3, 5), (3, 12), (7, 7), (1, 4)])
@pytest.mark.parametrize("steps", [0, 4, 12])  # before, in and after the schedule
def test_channels_and_their_entries_both_have_their_sizes(rank_by, channels, entries, steps):
    model, x = lenet(), images()
    keep = {"0": 4, "3": channels, "6": entries, "8": 6}
    penalty = TrimmedGroupL1(model, keep, example_input=x, h_schedule=Ramp(2, 10), rank_by=rank_by)
    train(model, penalty, x, steps)
    kept = penalty.kept()
    by_channel = kept["6"].reshape(7, 4)
    assert torch.equal(by_channel.any(1), kept["3"])
    assert int(kept["3"].sum()) == channels
    assert int(kept["6"].sum()) == entries
    if steps == 4:
        return  # the schedule has not ended: an entry that was cut may be needed by a channel that stays
    with torch.no_grad():  # no sign keeps a unit from the data
        for parameter in model.parameters():
            parameter.abs_()
    small = export(model, penalty, x.abs(), repeats=0)
    assert [layer.physical for layer in small.report.layers] == list(keep.values())
    assert small.model.get_submodule("6").in_features == entries


def test_without_an_example_sizes_are_those_of_each_layer_alone():
    model = lenet()
    penalty = TrimmedGroupL1(model, {"3": 5, "6": 3})
    assert penalty.coupling is None
    small = export(model, penalty, images(), repeats=0)
    assert small.report.size == "5-3"
    assert small.report.layers[0].physical <= 3


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        (
            {"3": 5, "6": 3},
            r"layer '6' reads .* '3', which keeps 5 channels; keep must be at least 5, .* got 3",
        ),
        (
            {"3": 5, "6": 21},
            r"layer '6' reads .* '3', which keeps 5 channels; keep must be at most 20, .* got 21",
        ),
    ],
)
def test_entries_that_do_not_fit_their_channels(keep, message):
    with pytest.raises(ValueError, match=message):
        TrimmedGroupL1(lenet(), keep, example_input=images())


def test_entries_inside_channels_of_divided_layers():
    """The linear layer reads only the second half of the channels."""
    model = Net(
        lambda m, x: (lambda y: m.b(y[:, :4]).mean((2, 3)) + m.head(y[:, 4:].flatten(1)))(m.a(x)),
        a=nn.Conv2d(1, 8, 3), b=nn.Conv2d(4, 3, 1), head=nn.Linear(16, 3),
    )  # fmt: skip
    x = images(size=4)
    penalty = TrimmedGroupL1(model, {"a": 6, "head": 4}, example_input=x)
    kept = penalty.kept()
    assert torch.equal(kept["head"].reshape(4, 4).any(1), kept["a[4:8]"])
    assert [layer.physical for layer in export(model, penalty, x, repeats=0).report.layers] == [4, 3, 3]


def test_channels_that_another_layer_reads_need_no_entries():
    model = Net(
        lambda m, x: (lambda y: m.head(y.flatten(1)) + m.b(y).mean((2, 3)))(F.relu(m.a(x))),
        a=nn.Conv2d(1, 6, 3), b=nn.Conv2d(6, 3, 1), head=nn.Linear(24, 3),
    )  # fmt: skip
    x = images(size=4)
    penalty = TrimmedGroupL1(model, {"a": 4, "head": 2}, example_input=x)
    assert [layer.physical for layer in export(model, penalty, x, repeats=0).report.layers] == [4, 2]


def test_entries_inside_channels_need_the_hard_penalty():
    with pytest.raises(ValueError, match="layer '3': entries inside channels need an infinite alpha"):
        TrimmedGroupL1(lenet(), {"3": 3, "6": 9}, alpha=0.1, example_input=images())


def test_state_and_copies():
    model, x = lenet(), images()
    keep, options = {"3": 3, "6": 5}, {"example_input": x, "h_schedule": Ramp(2, 6)}
    penalty = TrimmedGroupL1(model, keep, **options)
    train(model, penalty, x, 4)
    other, twin = TrimmedGroupL1(model, keep, **options), pickle.loads(pickle.dumps(penalty))
    other.load_state_dict(penalty.state_dict())
    for one in (other, twin, copy.deepcopy(penalty)):
        assert all(torch.equal(mask, one.kept()[name]) for name, mask in penalty.kept().items())


# -- what cannot be ----------------------------------------------------------------------------------------


def test_contradictions_list_the_layers_of_the_group():
    model, x = resnet(4)
    with pytest.raises(
        ValueError, match=r"'2.conv2' 3 channels and '3.conv2' 2, .*: 0.0, 0.1, 2.conv2, 2.bn2, 3"
    ):
        TrimmedGroupL1(model, {"2.conv2": 3, "3.conv2": 2}, example_input=x)


def test_layers_that_stay_whole_are_named():
    model, x = resnet(4)
    with pytest.raises(ValueError, match=r"layer '10': .* cannot be removed because of the network's output"):
        TrimmedGroupL1(model, {"10": 2}, groups="channels", example_input=x)
    penalty = TrimmedGroupL1(model, {"*": 3}, groups="channels", example_input=x)  # a glob leaves it out
    assert "10" not in penalty.layers
    mixed = nn.Sequential(*conv(1, 4), nn.Conv2d(4, 4, 1), nn.GroupNorm(2, 4), nn.Conv2d(4, 2, 1))
    with pytest.warns(
        UserWarning, match=r"keep matches layers that stay whole: '2' because of 3 \(GroupNorm\)"
    ):
        assert list(TrimmedGroupL1(mixed, {"*": 3}, example_input=images()).layers) == ["0"]
    with pytest.raises(ValueError, match=r"layer '2': its output channels .* because of 3 \(GroupNorm\)"):
        TrimmedGroupL1(mixed, {"2": 3}, example_input=images())
    unused = Net(lambda m, x: m.b(m.a(x)), a=nn.Conv2d(1, 4, 1), b=nn.Conv2d(4, 2, 1), c=nn.Conv2d(4, 2, 1))
    with pytest.raises(ValueError, match=r"layer 'c': .* never called"):
        TrimmedGroupL1(unused, {"c": 1}, example_input=images())


def test_a_layer_with_the_channels_of_several_others():
    model = Net(
        lambda m, x: m.out(torch.cat([m.a(x), m.b(x)], 1) + m.c(x)),
        a=nn.Conv2d(1, 3, 1), b=nn.Conv2d(1, 4, 1), c=nn.Conv2d(1, 7, 1), out=nn.Conv2d(7, 2, 1),
    )  # fmt: skip
    x = images()
    penalty = TrimmedGroupL1(model, {"a": 2, "b": 3, "c": 5}, example_input=x)
    small = export(model, penalty, x, repeats=0)
    assert small.model.c.out_channels == small.model.out.in_channels == 5
    with pytest.raises(ValueError, match=r"layer 'c' has .* of a, b, .* 2 channels cannot be divided"):
        TrimmedGroupL1(model, {"a": 2, "c": 2}, example_input=x)
    assert TrimmedGroupL1(model, {"c": 5}, example_input=x).keep == {"a": 2, "b": 3}  # in proportion
    assert TrimmedGroupL1(model, {"a": 1, "c": 5}, example_input=x).keep == {"a": 1, "b": 4}
    with pytest.raises(ValueError, match=r"layer 'c' has the channels of a, b, .* keep 5 together; .* is 6"):
        TrimmedGroupL1(model, {"a": 2, "b": 3, "c": 6}, example_input=x)


def test_parts_of_a_layer_that_is_divided():
    model, x = NETWORKS["gates"]()
    penalty = TrimmedGroupL1(model, {"enter.0": 7, "*ight.0": 3}, example_input=x)
    assert penalty.keep == {"right.0": 3, "enter.0[0:6]": 4, "enter.0[6:12]": 3}
    small = export(model, penalty, x, repeats=0)
    left, right = (small.model.get_submodule(name) for name in ("left.0", "right.0"))
    assert (left.in_channels, right.weight.shape[:2]) == (4, (3, 3))
    assert small.report.size == "3-4-3"
    with pytest.raises(
        ValueError, match=r"keep names 'enter.0\[0:5\]', but the channels go by enter.0\[0:6\], "
    ):
        TrimmedGroupL1(model, {"enter.0[0:5]": 2}, example_input=x)
    with pytest.raises(ValueError, match="is a range of channels, which needs an example_input"):
        TrimmedGroupL1(model, {"enter.0[0:6]": 2})


@pytest.mark.parametrize(
    ("example", "error", "message"),
    [
        ("x", TypeError, "example_input must be a tensor"),
        (torch.empty(0, 1, 8, 8), ValueError, "example_input has a tensor without entries"),
        (torch.zeros(2, 3, 8, 8), ValueError, "fails on the example of shape .2, 3, 8, 8. in layer '0.0'"),
        ((images(), images()), ValueError, "fails on the example"),
    ],
)
def test_a_bad_example(example, error, message):
    with pytest.raises(error, match=message):
        TrimmedGroupL1(resnet(4)[0], {"0.0": 2}, example_input=example)


def test_what_is_missing_is_said():
    model, x = resnet(4)
    with pytest.raises(ValueError, match="groups='channels' needs an example_input"):
        TrimmedGroupL1(model, {"0.0": 2}, groups="channels")
    branch = Net(lambda m, x: m.a(x) if x.sum() > 0 else x, a=nn.Conv2d(1, 4, 1))
    with pytest.raises(ExportError, match=r"cannot be traced by torch.fx .* or leave out example_input"):
        TrimmedGroupL1(branch, {"a": 2}, example_input=x)
    model[3].bn2.weight.requires_grad_(False)
    with pytest.raises(ValueError, match=r"layer '0.0': 3.bn2.weight is frozen"):
        TrimmedGroupL1(model, {"0.0": 2}, example_input=x)


def test_the_export_fails_if_a_size_is_not_there():
    model = nn.Sequential(Inverted(1, 6), nn.Conv2d(1, 4, 1), nn.ReLU(), nn.Conv2d(4, 2, 1))
    x = images()
    penalty = TrimmedGroupL1(model, {"1": 3}, example_input=x)
    penalty.finalize_()
    with torch.no_grad():
        model[3].weight[:, penalty.kept()["1"].nonzero()[0]] = 0  # nothing reads a channel that is kept
    with pytest.raises(ExportError, match="layer '1' has 2 channels after the export, but keep asks for 3"):
        export(model, penalty, x, repeats=0, method="trace")
    assert export(model, penalty, x, repeats=0, method="trace", strict=False).report.layers[0].physical == 2
