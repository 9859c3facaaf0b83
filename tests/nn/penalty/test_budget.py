"""Fractions, one value for all layers, and budgets: what they ask for is what the exported network costs."""

import copy
import pickle
from itertools import pairwise

import pytest
import torch
from channel_networks import NETWORKS
from nn_helpers import Net, Reader
from torch import nn
from torch.nn import functional as F

from trimreg.nn import Budget, Ramp, TrimmedGroupL1, export
from trimreg.nn.penalty.split import allocate
from trimreg.nn.structure.budget import Price

pytestmark = pytest.mark.filterwarnings("ignore:(export|finalize_) cuts groups that are not zero")


def mlp():
    return nn.Sequential(nn.Linear(6, 40), nn.ReLU(), nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 3))


def train(net, penalty, x, steps, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=0.05)
    with penalty.attach(optimizer):
        for _ in range(steps):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
    return optimizer


# -- fractions and one value for all -------------------------------------------------------------------------


def test_a_fraction_is_rounded_and_at_least_one_group():
    net = mlp()
    assert TrimmedGroupL1(net, {"0": 0.5, "2": 0.01, "4": 0.99}).keep == {"0": 3, "2": 1, "4": 30}
    x = torch.randn(2, 6)
    assert TrimmedGroupL1(net, {"2": 0.25}, groups="channels", example_input=x).keep == {"2": 8}
    for bad in (0.0, 1.0, -0.5, 2.5, True):
        with pytest.raises(TypeError, match=r"'0': keep must be an integer.*or a fraction"):
            TrimmedGroupL1(net, {"0": bad})


def test_one_value_for_all_layers():
    net = mlp()
    assert TrimmedGroupL1(net, 0.5).keep == {"0": 3, "2": 20, "4": 15}
    assert TrimmedGroupL1(net, 3, groups="out").keep == {"0": 3, "2": 3, "4": 3}
    assert TrimmedGroupL1(net, 0.5, example_input=torch.randn(2, 6)).keep == {"0": 20, "2": 15}
    reader = Reader()
    assert TrimmedGroupL1(reader, 0.5).keep == {"attention": 2}
    with pytest.raises(ValueError, match=r"needs an example_input: the convolution '0\.0'"):
        TrimmedGroupL1(NETWORKS["resnet"]()[0], 0.5)
    with pytest.raises(TypeError, match="groups must be one name"):
        TrimmedGroupL1(net, 0.5, groups={"0": "in"})


@pytest.mark.parametrize("name", ["resnet", "vgg"])
def test_half_of_everything_is_what_is_exported(name):
    net, x = NETWORKS[name]()
    penalty = TrimmedGroupL1(net, 0.5, example_input=x)
    assert {name: 2 * size for name, size in penalty.keep.items()} == {
        name: groups.count for name, groups in penalty.layers.items()
    }
    report = export(net, penalty, x, repeats=0).report
    assert {layer.name: layer.physical for layer in report.layers} == penalty.keep
    assert report.budget is None


# -- budgets -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "budget", "near"),
    [
        ("resnet", Budget(macs=0.25), 0.01),
        ("resnet", Budget(parameters=10_000), 0.01),
        ("mobilenet", Budget(parameters=0.5), 0.01),
        ("vgg", Budget(macs=5_000, min_keep=2), 0.05),  # a channel of so few costs more than 1 %
    ],
)
def test_the_export_costs_what_the_budget_allows(name, budget, near):
    net, x = NETWORKS[name]()
    penalty = TrimmedGroupL1(net, budget, example_input=x)
    penalty.freeze_()
    report = export(net, penalty, x, repeats=0).report
    before, after = getattr(report, budget.kind)
    asked = getattr(budget, budget.kind)
    most = asked * before if asked < 1 else asked
    assert report.budget == (budget.kind, most, after)
    assert (1 - near) * most <= after <= most
    assert {layer.name: layer.physical for layer in report.layers} == penalty.keep
    assert min(penalty.keep.values()) >= budget.min_keep
    assert f"of a budget of {most:,.0f}" in str(report)


def test_blocks_share_a_budget():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            layer = nn.TransformerEncoderLayer(16, 8, 40, batch_first=True, dropout=0.0)
            self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(16, 3)

        def forward(self, x):
            return self.head(self.encoder(x).mean(1))

    net, x = Encoder(), torch.randn(2, 5, 16)
    for budget in (Budget(macs=0.4), Budget(parameters=0.4)):
        penalty = TrimmedGroupL1(copy.deepcopy(net), budget, example_input=x)
        assert sorted(groups.kind for groups in penalty.layers.values()) == ["heads"] * 2 + ["units"] * 2
        small = export(net, TrimmedGroupL1(net, budget, example_input=x), x, repeats=0)
        kind, most, after = small.report.budget
        assert 0.99 * most <= after <= most
        assert getattr(small.report, kind)[1] == after
    with pytest.raises(ValueError, match="latency counts layers, not heads or units of the blocks 'encoder"):
        TrimmedGroupL1(net, Budget(latency=0.5, table={}), example_input=x)


def test_sizes_are_decided_when_h_begins_to_fall_and_a_useless_layer_loses_most():
    class Two(nn.Module):
        """Two branches of the same shape; the second hardly counts."""

        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 30), nn.Linear(6, 30)
            self.last_a, self.last_b = nn.Linear(30, 3), nn.Linear(30, 3)

        def forward(self, x):
            return self.last_a(F.relu(self.a(x))) + 1e-3 * self.last_b(F.relu(self.b(x)))

    net, x = Two(), torch.randn(16, 6)
    penalty = TrimmedGroupL1(net, Budget(macs=0.5), example_input=x, h_schedule=Ramp(4, 8))
    first = dict(penalty.keep)
    assert abs(first["a"] - first["b"]) <= 3
    optimizer = train(net, penalty, x, 4)
    assert penalty.keep == first
    assert not penalty.split.decided
    train(net, penalty, x, 1, optimizer)
    assert penalty.split.decided
    assert penalty.keep["a"] > 25
    assert penalty.keep["b"] < 5
    found = dict(penalty.keep)
    train(net, penalty, x, 8, optimizer)
    assert penalty.keep == found
    assert {name: int(mask.sum()) for name, mask in penalty.kept().items()} == found
    penalty.finalize_()
    small = export(net, penalty, x, repeats=0)
    assert (small.model.a.out_features, small.model.b.out_features) == tuple(found.values())


@pytest.mark.parametrize("at", [3, 7])
@pytest.mark.parametrize("rank_by", ["norm", "taylor"])
def test_a_resumed_training_equals_an_uninterrupted_one(at, rank_by):
    x = torch.randn(16, 6)

    def built(net):
        options = {"example_input": x, "rank_by": rank_by, "h_schedule": Ramp(5, 12)}
        return TrimmedGroupL1(net, Budget(parameters=0.4), **options)

    whole = mlp()
    part = copy.deepcopy(whole)
    penalty, resumed = built(whole), built(part)
    train(whole, penalty, x, 15)
    train(part, resumed, x, at)
    state = copy.deepcopy(resumed.state_dict())
    model = copy.deepcopy(part)
    again = built(model)
    again.load_state_dict(state)
    assert again.keep == resumed.keep == pickle.loads(pickle.dumps(resumed)).keep
    train(model, again, x, 15 - at)
    assert again.keep == penalty.keep
    assert again.split.decided
    for one, two in zip(whole.parameters(), model.parameters(), strict=True):
        assert torch.equal(one, two)


def test_a_table_of_latencies_with_steps():
    net, x = mlp(), torch.randn(2, 6)

    def time(name, outputs, inputs):  # in blocks of 8, as of vector instructions
        return 5 + -(-outputs // 8) * -(-inputs // 8)

    penalty = TrimmedGroupL1(net, Budget(latency=0.6, table=time), example_input=x)
    kept = [6, *penalty.keep.values(), 3]
    cost = sum(time("", outputs, inputs) for inputs, outputs in pairwise(kept))
    assert cost == penalty.split.result(penalty.keep)[2] <= 0.6 * (15 + 5 + 20 + 4)
    assert all(size % 8 == 0 for size in penalty.keep.values())  # a table's steps are used in full
    table = {
        "0": {(40, 6): 3.0, (20, 6): 1.0},
        "2": lambda outputs, inputs: outputs * inputs / 100,
        "4": {(3, 40): 1},
    }
    penalty = TrimmedGroupL1(net, Budget(latency=0.5, table=table), example_input=x)
    assert penalty.split.result(penalty.keep)[2] <= 0.5 * 16
    with pytest.raises(ValueError, match="no times of the layers '2', '4'"):
        TrimmedGroupL1(net, Budget(latency=0.5, table={"0": table["0"]}), example_input=x)
    with pytest.raises(ValueError, match="layer '4' has no time for 3 outputs and 30 inputs"):
        TrimmedGroupL1(net, Budget(latency=0.5, table=table | {"4": {(3, 10): 1}}), example_input=x)


def test_the_greedy_sizes_are_close_to_the_best():
    generator = torch.Generator().manual_seed(1)
    scores = {name: torch.rand(12, generator=generator).numpy() ** 2 for name in "ab"}

    def value(kept):
        total = 0.0
        for name, size in kept.items():
            ranked = sorted(scores[name], reverse=True)
            total -= sum(ranked) * (sum(ranked) / sum(ranked[:size]) - 1)
        return total

    price = Price(3.0, [(("a", "b"), lambda k: k["a"] * k["b"]), (("a",), lambda k: 4 * k["a"])])
    found = allocate(scores, price, 80.0, {"a": 1, "b": 2})
    all_sizes = [{"a": a, "b": b} for a in range(1, 13) for b in range(2, 13)]
    best = max(value(kept) for kept in all_sizes if price(kept) <= 80.0)
    assert price(found) <= 80.0
    assert value(found) >= best - 0.1 * abs(best)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Budget(), "one of macs, parameters and latency; got none"),
        (lambda: Budget(macs=0.5, parameters=0.5), "got .'macs', 'parameters'"),
        (lambda: Budget(macs=0), "macs of a Budget must be a positive number; got 0"),
        (lambda: Budget(macs=0.5, min_keep=0), "min_keep of a Budget must be a positive number"),
        (lambda: Budget(latency=0.5), "latency and table of a Budget need each other"),
        (
            lambda: Budget(macs=1e-3),
            r"cannot be met: the least is 10, or 0.00654 of the network's 1,530, with 1 of",
        ),
        (
            lambda: Budget(parameters=20, min_keep=0.5),
            r"the least is 503, or .* with 20 of '0', 15 of '2'",
        ),
        (lambda: Budget(macs=2000), "more than the whole network has, 1,530"),
    ],
)
def test_budgets_that_cannot_be_met(make, words):
    with pytest.raises(ValueError, match=words):
        TrimmedGroupL1(mlp(), make(), example_input=torch.randn(2, 6))


def test_what_a_budget_needs():
    with pytest.raises(TypeError, match=r"Budget\(macs=0.5\) needs an example_input"):
        TrimmedGroupL1(mlp(), Budget(macs=0.5))
    net = Net(lambda self, x: self.head(self.rnn(x)[0][:, -1]), rnn=nn.GRU(4, 5), head=nn.Linear(5, 2))
    with pytest.raises(ValueError, match="'rnn': a Budget cannot be split over hidden units of recurrent"):
        TrimmedGroupL1(net, Budget(macs=0.5), example_input=torch.randn(3, 2, 4))
