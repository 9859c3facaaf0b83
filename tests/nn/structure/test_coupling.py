"""Coupled channels: which layers share them, and the cost as a function of how many are kept."""

import pytest
import torch
from channel_networks import NETWORKS, resnet
from torch import nn

from trimreg.nn import TrimmedGroupL1, export, load
from trimreg.nn.structure.coupling import couple
from trimreg.nn.structure.tracing import relative_difference

#: By network: the layers that share channels, for spaces of more than a convolution and its batch norm.
SHARED = {
    "resnet": {"0.0": "0.0 0.1 2.conv2 2.bn2 3.conv2 3.bn2", "4.conv1": "4.conv1 4.bn1"},
    "resnext": {"0.0": "0.0 0.1 2.conv1 2.bn1 2.conv2 2.bn2 3.conv1 3.bn1 3.conv2 3.bn2"},
    "densenet": {"first": "first norms.0 norms.1 norms.2", "convs.0": "convs.0 norms.1 norms.2"},
    "mobilenet": {"9.expand.0": "9.expand.0 9.expand.1 9.depth.0 9.depth.1 9.excite"},
    "unet": {"enter.0": "enter.0 enter.1", "up": "up"},
    "vgg": {"9": "9 10"},
    "gates": {"enter.0[0:6]": "enter.0 enter.1 excite", "left.0": "left.0 left.1"},
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_half_of_every_channel_is_there_after_export(name, tmp_path):
    model, x = NETWORKS[name]()
    coupling = couple(model, x)
    for space, layers in SHARED[name].items():
        assert " ".join(coupling.spaces[space].layers) == layers
    half = {space: count // 2 for space, count in coupling.counts.items()}
    keep = {space: half[space] * one.entries for space, one in coupling.spaces.items()}
    for module in model.modules():  # shifts and means that would leave constants behind
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            for tensor in (module.weight, module.bias, module.running_mean):
                nn.init.normal_(tensor)
    penalty = TrimmedGroupL1(model, keep, groups="channels", example_input=x)
    small = export(model, penalty, x, repeats=0)
    # Every layer has the sizes of the formula, and nothing was added: no plane, no gather.
    modules = dict(small.model.named_modules())
    assert {type(module).__name__ for module in modules.values()} <= {
        "GraphModule", "Module", *(type(module).__name__ for module in model.modules())
    }  # fmt: skip
    for layer, shape in coupling.layers.items():
        rows = 1 if isinstance(modules[layer], nn.ConvTranspose2d) else 0
        assert modules[layer].weight.shape[rows] == shape.outputs.size(half)
    assert small.report.parameters == (coupling.parameters({}), coupling.parameters(half))
    assert small.report.macs == (coupling.macs({}), coupling.macs(half))
    penalty.finalize_()
    fresh = torch.randn(5, *x.shape[1:])
    assert relative_difference(model.eval()(fresh), small.model(fresh)) <= 1e-5
    small.save(tmp_path / "small.safetensors")
    assert torch.equal(load(tmp_path / "small.safetensors")(fresh), small.model(fresh))


def test_a_flattened_image_has_several_entries_of_a_channel():
    model, x = NETWORKS["vgg"]()
    layer = couple(model, x).layers["9"]
    assert (layer.inputs.spaces, layer.inputs.fixed, layer.outputs.spaces) == ({"4": 4}, 0, {"9": 1})


def test_what_stays_whole_says_why():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.norm = nn.Conv2d(2, 4, 1), nn.Conv2d(4, 2, 1), nn.GroupNorm(2, 2)
            self.twice, self.unused = nn.Conv2d(2, 2, 1), nn.Conv2d(2, 2, 1)
            self.sum = nn.Conv2d(2, 2, 1)

        def forward(self, x):
            y = self.norm(self.b(self.a(x)))
            return self.sum(x) + x + self.twice(self.twice(y))

    coupling = couple(Net(), torch.randn(2, 2, 3, 3))
    assert set(coupling.spaces) == {"a"}
    assert coupling.reasons["b"] == ("norm (GroupNorm)",)
    assert "called more than once" in coupling.reasons["twice"][0]
    assert coupling.reasons["sum"] == ("add with a tensor that stays whole",)
    assert "unused" not in coupling.layers


def test_the_analysis_leaves_the_model_alone():
    model, x = resnet(4)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    couple(model.train(), x)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_step_that_makes_something_of_zeros_is_found_before_training():
    """A transposed convolution of a constant is no constant, so it needs the channel."""
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.Sigmoid(), nn.ConvTranspose2d(4, 6, 2, 2), nn.ReLU(), nn.Conv2d(6, 2, 1)
    )
    coupling = couple(model, torch.randn(2, 1, 5, 5))
    assert list(coupling.spaces) == ["2"]
    assert "does not leave a channel of zeros constant" in coupling.reasons["0"][0]
    model[1] = nn.Tanh()
    assert list(couple(model, torch.randn(2, 1, 5, 5)).spaces) == ["0", "2"]
