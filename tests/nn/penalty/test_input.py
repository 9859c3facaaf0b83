"""What the penalty refuses: each message names the layer and says what to do."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from trimreg.nn import Ramp, TrimmedGroupL1
from trimreg.nn.groups.layer_groups import LayerGroups, Slab


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 6)
        self.norm = nn.BatchNorm1d(6)
        self.fc2 = nn.Linear(6, 3)


class Ensemble(nn.Module):
    """Two linear layers in one tensor."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 3, 5))

    def trimmed_groups(self, kind):
        return 5, (Slab(self, "weight", 1),), (2,)


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


@pytest.mark.parametrize(
    ("keep", "error", "words"),
    [
        ({"fc1": 9}, ValueError, "'fc1': keep must be at most its number of groups, 8; got 9"),
        ({"fc1": 0}, ValueError, "'fc1'.*at least 1"),
        ({"fc1": -2}, ValueError, "'fc1'.*at least 1.*-2"),
        ({"fc1": True}, TypeError, "'fc1'.*integer.*True"),
        ({"fc1": 3.5}, TypeError, "'fc1'.*integer.*3.5"),
        ({"fc1": 3.0}, TypeError, "'fc1'.*integer.*3.0"),
        ({"fc1": "3"}, TypeError, "'fc1'.*integer"),
        ({"fc1": None}, TypeError, "'fc1'.*integer"),
        ({"fc1": [3, 4]}, TypeError, "'fc1' is not an ensemble"),
        ({"fc3": 2}, ValueError, "'fc3'.*nearest names are 'fc.', 'fc.'"),
        ({"block*": 2}, ValueError, r"'block\*' matches no layer.*'fc1', 'fc2'"),
        ({"n*": 2}, ValueError, r"'n\*' matches no layer"),
        ({"norm": 2}, TypeError, "'norm'.*BatchNorm1d"),
        ({"": 2}, ValueError, "no groups 'units': its 'norm' depends on the number of hidden units"),
        ({"f*": 2, "*1": 3}, ValueError, r"'fc1' matches 'f\*' and '\*1' with different values"),
        ({}, TypeError, "at least one layer"),
        ([3], TypeError, "keep must be a dict.*or one value for all layers.*got .3"),
        (9, ValueError, "'fc1': keep must be at most its number of groups, 8; got 9"),
        ({7: 3}, TypeError, "names, globs or modules.*7"),
    ],
)
def test_bad_keep(net, keep, error, words):
    with pytest.raises(error, match=words):
        TrimmedGroupL1(net, keep)


def test_a_module_must_be_of_the_model_and_named_once(net):
    with pytest.raises(ValueError, match="Linear is not part of the model"):
        TrimmedGroupL1(net, {nn.Linear(2, 2): 1})
    with pytest.raises(ValueError, match="'fc1' twice"):
        TrimmedGroupL1(net, {net.fc1: 1, "fc1": 1})


@pytest.mark.parametrize(
    ("keep", "error", "words"),
    [
        ([1, 2, 3], ValueError, "2 replicas: keep must have 2 values"),
        ([1, 6], ValueError, "at most its number of groups, 5; got 6"),
        ([1, 2.5], TypeError, "2.5"),
    ],
)
def test_bad_keep_of_an_ensemble(keep, error, words):
    with pytest.raises(error, match=words):
        TrimmedGroupL1(nn.ModuleDict({"e": Ensemble()}), {"e": keep})


@pytest.mark.parametrize(
    ("alpha", "error", "words"),
    [
        (-1.0, ValueError, "'fc1'.*negative or NaN; got -1.0"),
        (math.nan, ValueError, "'fc1'.*NaN"),
        (True, TypeError, "'fc1'.*number"),
        ("big", TypeError, "'fc1'.*'big'"),
        ([1.0, 2.0], TypeError, "'fc1' is not an ensemble"),
        ({"fc1": 1.0}, ValueError, r"missing: \['fc2'\]"),
        ({"fc1": 1.0, "fc2": 1.0, "norm": 1.0}, ValueError, r"not in keep: \['norm'\]"),
        ({"fc1": 1.0, "fc2": -3.0}, ValueError, "'fc2'.*-3.0"),
        ({"fc9": 1.0}, ValueError, "alpha names 'fc9'.*nearest"),
    ],
)
def test_bad_alpha(net, alpha, error, words):
    with pytest.raises(error, match=words):
        TrimmedGroupL1(net, {"fc1": 2, "fc2": 2}, alpha)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"mode": "fast"}, ValueError, "mode must be one of 'exact', 'bcd', 'subgradient'; got 'fast'"),
        ({"tau": 0.0}, ValueError, "tau"),
        ({"tau": math.nan}, ValueError, "tau"),
        ({"tau": True}, ValueError, "tau"),
        ({"alpha": math.inf, "mode": "bcd"}, ValueError, "'fc1'.*finite alpha"),
        ({"alpha": math.inf, "mode": "subgradient"}, ValueError, "'fc1'.*finite alpha"),
        (
            {"alpha": math.inf, "alpha_schedule": Ramp(0, 5)},
            ValueError,
            "'fc1': alpha_schedule",
        ),
        ({"alpha_schedule": 5}, TypeError, "alpha_schedule must be a callable"),
        ({"h_schedule": 5}, TypeError, "h_schedule must be a callable"),
        ({"freeze_at": 0}, ValueError, "freeze_at"),
        ({"freeze_at": 2.0}, TypeError, "freeze_at"),
        ({"mask_ones": True}, ValueError, "mask_ones"),
        ({"groups": "neurons"}, ValueError, "groups must be one of"),
        ({"groups": "rows"}, TypeError, "'fc1'.*no groups 'rows'"),
        ({"groups": {"fc9": "in"}}, ValueError, "groups names 'fc9'"),
    ],
)
def test_bad_options(net, options, error, words):
    with pytest.raises(error, match=words):
        TrimmedGroupL1(net, {"fc1": 2}, **{"alpha": 1.0} | options)


def test_a_frozen_parameter_is_refused_if_it_is_cut(net):
    net.fc2.weight.requires_grad_(False)
    net.fc1.bias.requires_grad_(False)
    with pytest.raises(ValueError, match="'fc2': weight is frozen"):
        TrimmedGroupL1(net, {"fc*": 2})
    TrimmedGroupL1(net, {"fc1": 2})
    with pytest.raises(ValueError, match="'fc1': bias is frozen"):
        TrimmedGroupL1(net, {"fc1": 2}, groups="out")


def test_a_shared_parameter_or_module_is_refused():
    model = nn.ModuleDict({"words": nn.Embedding(9, 4), "out": nn.Linear(4, 9, bias=False)})
    model["out"].weight = model["words"].weight
    with pytest.raises(ValueError, match=r"'words': weight is shared: .*'words\.weight' and 'out\.weight'"):
        TrimmedGroupL1(model, {"words": 3})
    layer = nn.Linear(4, 4)
    with pytest.raises(ValueError, match=r"'0': weight is shared.*'0\.weight' and '2\.weight'"):
        TrimmedGroupL1(nn.Sequential(layer, nn.ReLU(), layer), {"0": 2})


def test_two_layers_cannot_trim_one_parameter(net):
    def of_the_first(name, module):
        return LayerGroups(name, module, "in", 8, (Slab(net.fc1, "weight", 1),))

    with pytest.raises(ValueError, match="'fc2': weight also belongs to layer 'fc1'"):
        TrimmedGroupL1(net, {"fc1": 2, "fc2": 2}, groups={"fc2": of_the_first})


def test_weights_that_cannot_be_trimmed_are_refused(net):
    with torch.device("meta"):
        model = Net()
    with pytest.raises(ValueError, match="'fc1': weight is on the meta device"):
        TrimmedGroupL1(model, {"fc1": 2})
    nn.utils.parametrizations.weight_norm(net.fc1)
    with pytest.raises(ValueError, match="'fc1': weight is computed"):
        TrimmedGroupL1(net, {"fc1": 2})
    with pytest.raises(TypeError, match=r"'0'.*complex64"):
        TrimmedGroupL1(nn.Sequential(nn.Linear(3, 2, dtype=torch.complex64)), {"0": 2})
    with pytest.raises(TypeError, match="Module; got list"):
        TrimmedGroupL1([nn.Linear(2, 2)], {"0": 1})


def test_attaching_twice_is_refused_until_removed(net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    penalty = TrimmedGroupL1(net, {"fc1": 2})
    handle = penalty.attach(optimizer)
    for other in (optimizer, torch.optim.Adam(net.parameters())):
        with pytest.raises(ValueError, match=r"\['fc1'\] is already attached"):
            penalty.attach(other)
    handle.remove()
    handle.remove()
    again = penalty.attach(optimizer)
    handle.remove()  # an old handle does not detach a new one
    with pytest.raises(ValueError, match="already attached"):
        penalty.attach(optimizer)
    again.remove()


def test_two_penalties_on_one_layer_are_refused(net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    first = TrimmedGroupL1(net, {"fc1": 2}).attach(optimizer)
    with pytest.raises(ValueError, match=r"'fc1' has another penalty"):
        TrimmedGroupL1(net, {"fc1": 3}).attach(optimizer)
    TrimmedGroupL1(net, {"fc2": 3}).attach(optimizer)
    first.remove()
    TrimmedGroupL1(net, {"fc1": 3}).attach(optimizer)


def test_the_optimizer_must_have_the_parameters(net):
    optimizer = torch.optim.SGD(net.fc1.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="'fc2': the optimizer does not have its weight"):
        TrimmedGroupL1(net, {"fc1": 2, "fc2": 2}).attach(optimizer)
    penalty = TrimmedGroupL1(net, {"fc1": 2})
    penalty.attach(optimizer)
    assert penalty.kept()["fc1"].sum() == 2


def test_the_optimizer_must_be_one(net):
    with pytest.raises(TypeError, match=r"torch\.optim; got str"):
        TrimmedGroupL1(net, {"fc1": 2}).attach("adam")


def test_numpy_integers_are_integers(net):
    penalty = TrimmedGroupL1(net, {"fc1": np.int64(3)})
    assert penalty.keep == {"fc1": 3}
    assert type(penalty.keep["fc1"]) is int


def test_states_of_other_penalties_are_refused(net):
    state = TrimmedGroupL1(net, {"fc1": 2}).state_dict()
    with pytest.raises(RuntimeError, match=r"Missing key.*weights\.fc2"):
        TrimmedGroupL1(net, {"fc1": 2, "fc2": 2}).load_state_dict(state)
    with pytest.raises(RuntimeError, match=r"Unexpected key.*fc1"):
        TrimmedGroupL1(net, {"fc2": 2}).load_state_dict(state)
    with pytest.raises(RuntimeError, match=r"weights\.fc1 has shape \(8,\); this penalty's is \(6,\)"):
        TrimmedGroupL1(net, {"fc1": 2}, groups="out").load_state_dict(state)
    frozen = TrimmedGroupL1(net, {"fc1": 2})
    frozen.freeze_()
    frozen.step.fill_(7)
    other = TrimmedGroupL1(net, {"fc1": 3})
    before = other.state_dict()
    with pytest.raises(RuntimeError, match=r"kept\.fc1 is frozen at another size than keep=3"):
        other.load_state_dict(frozen.state_dict())
    assert all(torch.equal(value, before[key]) for key, value in other.state_dict().items())


def test_without_torch_the_message_names_the_extra():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "try:\n import trimreg.nn\nexcept ImportError as e: print(e)\n"
        "del sys.modules['torch']; import inspect, trimreg; from trimreg import *\n"  # SciPy looks it up
        "print('nn' in dict(inspect.getmembers(trimreg)), TrimmedLasso.__name__)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    message, listed = answer.stdout.splitlines()
    assert message == "trimreg.nn needs PyTorch: pip install 'trimreg[torch]'"
    assert listed == "False TrimmedLasso"  # all public names can be listed and imported without it


def test_every_public_name_is_there():
    import trimreg.nn

    for name in trimreg.nn.__all__:
        assert getattr(trimreg.nn, name).__name__ == name
    assert set(trimreg.nn.__all__) <= set(dir(trimreg.nn))
    with pytest.raises(AttributeError, match=r"'trimreg\.nn' has no attribute 'prune'"):
        trimreg.nn.prune  # noqa: B018
