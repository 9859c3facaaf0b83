"""Bad input to the export, and its report."""

import json

import pytest
import torch
from torch import nn

from trimreg.nn.exporting.export import export
from trimreg.nn.exporting.report import Report
from trimreg.nn.penalty.trimmed_group_l1 import TrimmedGroupL1
from trimreg.nn.structure.cost import latency, macs
from trimreg.nn.structure.tracing import relative_difference, trace
from trimreg_reproduction.networks.training import ensemble


def mlp():
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))


# -- bad input --------------------------------------------------------------------------------------------


def test_an_example_of_wrong_shape_names_the_layer_and_the_shapes():
    model = mlp()
    penalty = TrimmedGroupL1(model, keep={"2": 3})
    with pytest.raises(ValueError, match=r"shape \(4, 7\) in layer '0', Linear.*6.*got \(4, 7\)"):
        export(model, penalty, torch.randn(4, 7))

    class View(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(6, 5)

        def forward(self, x):
            return self.a(x).view(-1, 10)

    with pytest.raises(ValueError, match=r"shape \(3, 6\) after layer 'a'"):
        export(View(), None, torch.randn(3, 6))


def test_the_number_of_inputs_is_checked():
    model = mlp()
    with pytest.raises(ValueError, match="the network fails on the example"):
        export(model, None, (torch.randn(4, 6), torch.randn(4, 6)))
    with pytest.raises(ValueError, match=r"takes \(input\); the example has 2 inputs"):
        trace(model, (torch.randn(4, 6), torch.randn(4, 6)))
    with pytest.raises(TypeError, match="example input"):
        export(model)


def test_a_penalty_of_another_model_is_refused():
    with pytest.raises(ValueError, match=r"layer '2' of the penalty is not part of this Sequential"):
        export(mlp(), TrimmedGroupL1(mlp(), keep={"2": 3}), torch.randn(4, 6))


def test_ensembles_are_refused_with_advice():
    model = nn.Sequential(ensemble.EnsembleLinear(3, 6, 2))
    for penalty in (None, TrimmedGroupL1(model, keep={"0": 2})):
        with pytest.raises(ValueError, match=r"layer '0' .*replica\(i\)"):
            export(model, penalty, torch.randn(4, 6))


def test_a_model_without_weights_is_refused():
    with torch.device("meta"):
        model = mlp()
    with pytest.raises(ValueError, match=r"'0.weight' is on the meta device"):
        export(model, None, torch.randn(4, 6))


def test_an_unknown_method_is_refused():
    with pytest.raises(ValueError, match="method must be one of 'auto', 'trace', 'dependency'; got 'magic'"):
        export(mlp(), None, torch.randn(4, 6), method="magic")


# -- the report -------------------------------------------------------------------------------------------


def test_the_report_prints_a_table_and_is_json():
    model = mlp()
    small = export(model, TrimmedGroupL1(model, keep={"0": 4, "2": 3}), torch.randn(8, 6), repeats=3)
    report = small.report
    assert isinstance(report, Report)
    assert report.parameters == (47, 4 * 3 + 3 + 3 * 2 + 2)
    assert report.macs == (40, 4 * 3 + 3 * 2)
    assert all(seconds > 0 for seconds in report.latency)
    assert json.loads(json.dumps(report.to_dict()))["size"] == "4-3"
    lines = str(small).splitlines()
    assert lines[0].split() == ["layer", "groups", "kept", "physical"]
    assert lines[1].split() == ["0", "6", "in", "4", "4"]
    assert lines[4].split() == ["parameters", "47", "23", "2.0"]
    assert lines[6].startswith("latency")
    assert "4 index entries" in lines[-2]
    assert lines[-1].startswith("because groups were cut that were not zero")
    assert report.masked_difference <= 1e-5 < report.difference
    assert max(map(len, lines)) < 100


def test_without_repeats_there_is_no_latency():
    report = export(mlp(), None, torch.randn(8, 6), repeats=0).report
    assert report.latency is None
    assert "latency" not in str(report)


def test_macs_leave_modes_and_settings_alone():
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout()).train()
    model[1].eval()
    x = torch.zeros(2, 5, 8)
    assert macs(model, (x,)) == 5 * 64
    assert model.training
    assert not model[1].training
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    assert macs(attention, (x, x, x)) == 4 * 5 * 64 + 2 * 25 * 8
    assert torch.backends.mha.get_fastpath_enabled()


def test_latency_is_a_median_of_each():
    calls = []

    class Counts(nn.Module):
        def __init__(self, name):
            super().__init__()
            self.name = name

        def forward(self, x):
            calls.append(self.name)
            return x

    assert len(latency([Counts("a"), Counts("b")], (torch.zeros(1),), repeats=3)) == 2
    assert calls == ["a", "b"] * 5


def test_relative_difference_of_nested_outputs():
    one = {"a": torch.tensor([2.0, -8.0]), "b": [torch.tensor([0.0]), None]}
    two = {"a": torch.tensor([2.0, -7.0]), "b": [torch.tensor([0.0]), None]}
    assert relative_difference(one, two) == 0.125
    assert relative_difference(one, one) == 0
    nan = torch.tensor([float("nan"), 1.0])
    assert relative_difference(nan, nan) == 0
    assert relative_difference(torch.ones(2), nan) == float("inf")
    assert relative_difference(torch.zeros(2), torch.tensor([0.0, 0.5])) == 0.5
    assert relative_difference(torch.ones(2), torch.ones(1)) == float("inf")
    one = torch.ones(2, requires_grad=True)
    assert relative_difference(one, one * 1.5) == 0.5


@pytest.mark.parametrize("example", ["x", 3.0, (), ("x", None)])
def test_an_example_without_a_tensor_is_refused(example):
    model = nn.Sequential(nn.Linear(3, 2))
    with pytest.raises(TypeError, match="example_input must be a tensor, or a tuple with one in it; got"):
        export(model, TrimmedGroupL1(model, {"0": 2}), example)


def test_an_example_that_shows_nothing_is_refused():
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2))
    penalty = TrimmedGroupL1(model, {"0": 3})
    with pytest.raises(ValueError, match="example_input has a tensor without entries"):
        export(model, penalty, torch.zeros(0, 8))
    with pytest.raises(ValueError, match="all outputs on the example are infinite or NaN"):
        export(model, penalty, torch.full((4, 8), torch.nan))
    with torch.no_grad():
        model[2].bias[0] = torch.inf  # one of two outputs may be
    assert export(model, penalty, torch.randn(4, 8), repeats=0).report.size == "3"
