"""Ranking groups by more than their norm."""

import copy
import math
import pickle

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from trimreg.nn import Ramp, TrimmedGroupL1, layer_groups
from trimreg.nn.penalty.scores import MEMORY, scored
from trimreg_reproduction.networks.training.ensemble import EnsembleConv2d


def mlp(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 1))


def data(seed=0):
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(64, 12, generator=generator)
    return X, X[:, :1] - X[:, 1:2] + X[:, 2:3]


def train(model, optimizer, steps, seed=0):
    X, y = data(seed)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(X), y).backward()
        optimizer.step()


def test_taylor_is_the_square_of_weight_times_gradient():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(4 * 4, 3))
    penalty = TrimmedGroupL1(model, {"0": 2, "2": 5}, rank_by="taylor")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    penalty.attach(optimizer)
    model(torch.randn(5, 1, 4, 4)).square().sum().backward()
    weights = {name: model.get_submodule(name).weight.detach().clone() for name in ("0", "2")}
    optimizer.step()
    by_hand = {
        "0": (weights["0"] * model[0].weight.grad).sum((1, 2, 3)).square(),
        "2": (weights["2"] * model[2].weight.grad).sum(0).square(),
    }
    for name, value in by_hand.items():
        expected = (1 - MEMORY) * value
        torch.testing.assert_close(penalty.layers[name].score.value, expected)
        torch.testing.assert_close(penalty.layers[name].importance(), expected.sqrt())
        kept = penalty.kept()[name]
        assert expected[kept].min() >= expected[~kept].max()


def test_activity_is_what_a_unit_sends_on():
    model = nn.Sequential(nn.Linear(6, 3), nn.ReLU(), nn.Linear(3, 1))
    penalty = TrimmedGroupL1(model, {"0": 2}, rank_by="activity")
    penalty.attach(torch.optim.SGD(model.parameters(), lr=0.1))
    X = torch.randn(2, 7, 6) * torch.arange(6.0)  # any shape before the features
    model.train()(X)
    expected = MEMORY + (1 - MEMORY) * X.square().mean((0, 1))
    torch.testing.assert_close(penalty.layers["0"].score.value, expected)
    norms = model[0].weight.norm(dim=0)
    torch.testing.assert_close(penalty.layers["0"].importance(), expected.sqrt() * norms)
    before = penalty.layers["0"].score.value.clone()
    model.eval()(X)  # a test says nothing of training
    assert torch.equal(before, penalty.layers["0"].score.value)


def test_activity_ranks_other_groups_by_their_norm():
    layer = layer_groups("conv", nn.Conv2d(2, 5, 3))
    assert scored(layer, "activity") is layer
    assert scored(layer, "norm") is layer
    assert scored(layer, "taylor") is not layer


def test_norms_are_norms_whatever_the_ranking():
    model = mlp()
    penalty = TrimmedGroupL1(model, {"0": 3}, rank_by="taylor")
    torch.testing.assert_close(penalty.layers["0"].norms(), model[0].weight.norm(dim=0))


def test_inputs_of_large_weights_that_do_not_matter_are_cut():
    """Inputs 6 to 11 have large weights but are always 0; the norm keeps them, the others do not."""
    kept = {}
    for rank_by in ("norm", "taylor", "activity"):
        model = mlp()
        with torch.no_grad():
            model[0].weight[:, 6:] *= 4.0
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        penalty = TrimmedGroupL1(model, {"0": 4}, rank_by=rank_by, h_schedule=Ramp(100, 300), freeze_at=300)
        penalty.attach(optimizer)
        X, y = data()
        X[:, 6:] = 0.0
        for _ in range(320):
            optimizer.zero_grad()
            nn.functional.mse_loss(model.train()(X), y).backward()
            optimizer.step()
        kept[rank_by] = penalty.kept()["0"]
        assert int(kept[rank_by].sum()) == int((penalty.layers["0"].norms() > 0).sum()) == 4
    assert not kept["norm"][:3].any()
    assert kept["taylor"][:3].all()
    assert kept["activity"][:3].all()


@pytest.mark.parametrize("rank_by", ["taylor", "activity"])
def test_a_resumed_training_is_one_without_a_break(rank_by):
    def make():
        model = mlp()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        penalty = TrimmedGroupL1(model, {"0": 4, "2": 3}, rank_by=rank_by, h_schedule=Ramp(5, 30))
        penalty.attach(optimizer)
        return model.train(), optimizer, penalty

    whole = make()
    train(*whole[:2], 40)
    first, second = make(), make()
    train(*first[:2], 20)
    state = [part.state_dict() for part in first]
    assert "score.0" in state[2]
    for part, saved in zip(second, state, strict=True):
        part.load_state_dict(saved)
    train(*second[:2], 20)
    for a, b in zip(whole[0].parameters(), second[0].parameters(), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(whole[2].layers["0"].score.value, second[2].layers["0"].score.value)


@pytest.mark.parametrize("rank_by", ["taylor", "activity"])
def test_a_penalty_that_is_removed_looks_no_more(rank_by):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    penalty = TrimmedGroupL1(model, {"0": 4}, rank_by=rank_by)
    handle = penalty.attach(optimizer)
    train(model, optimizer, 1)
    before = penalty.layers["0"].score.value.clone()
    assert not torch.equal(before, torch.full((12,), 0.0 if rank_by == "taylor" else 1.0))
    handle.remove()
    train(model, optimizer, 1)
    assert torch.equal(before, penalty.layers["0"].score.value)


def test_a_step_without_gradients_of_a_layer_is_passed_over():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    penalty = TrimmedGroupL1(model, {"0": 4}, rank_by="taylor")
    penalty.attach(optimizer)
    model[2](torch.randn(3, 8)).sum().backward()
    optimizer.step()
    assert torch.equal(penalty.layers["0"].score.value, torch.zeros(12))


def test_scores_of_half_precision_are_kept_in_single():
    model = mlp().to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    penalty = TrimmedGroupL1(model, {"0": 4}, rank_by="taylor", h_schedule=None)
    penalty.attach(optimizer)
    model(torch.randn(8, 12, dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
    assert penalty.layers["0"].score.value.dtype == torch.float32
    assert int((penalty.layers["0"].norms() > 0).sum()) == 4


def test_heads_are_scored_over_all_their_parts():
    attention = nn.MultiheadAttention(12, 3)
    penalty = TrimmedGroupL1(nn.Sequential(attention), {"0": 2}, rank_by="taylor")
    optimizer = torch.optim.SGD(attention.parameters(), lr=0.0)
    penalty.attach(optimizer)
    x = torch.randn(4, 2, 12)
    attention(x, x, x)[0].square().sum().backward()
    rows = (attention.in_proj_weight * attention.in_proj_weight.grad).sum(1).reshape(3, 3, 4).sum((0, 2))
    columns = (attention.out_proj.weight * attention.out_proj.weight.grad).sum(0).reshape(3, 4).sum(1)
    optimizer.step()
    expected = (1 - MEMORY) * (rows + columns).square()
    torch.testing.assert_close(penalty.layers["0"].score.value, expected.detach())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rank_by": "size"}, "rank_by must be one of 'norm', 'taylor', 'activity'; got 'size'"),
        ({"rank_by": "taylor", "alpha": 1.0}, "layer '0': rank_by='taylor' needs an infinite alpha"),
        ({"rank_by": "taylor", "alpha": {"0": math.inf, "2": 3.0}}, "layer '2': rank_by='taylor'"),
    ],
)
def test_bad_rankings_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        TrimmedGroupL1(mlp(), {"0": 4, "2": 2}, **options)


def closure_of(model, optimizer):
    X, y = data()

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(X), y)
        loss.backward()
        return loss

    return closure


@pytest.mark.parametrize("by_name", [False, True])
def test_gradients_that_a_closure_finds_are_those_of_its_own_step(by_name):
    found = []
    for inside in (False, True):
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        penalty = TrimmedGroupL1(model, {"0": 4, "2": 3}, rank_by="taylor", h_schedule=Ramp(0, 5))
        penalty.attach(optimizer)
        closure = closure_of(model, optimizer)
        for _ in range(7):
            if inside:
                loss = optimizer.step(closure=closure) if by_name else optimizer.step(closure)
                assert math.isfinite(loss.item())
            else:
                closure()
                optimizer.step()
        found.append((model[0].weight, *(penalty.layers[name].score.value for name in "02")))
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)


def test_a_closure_that_is_asked_many_times_is_noted_once():
    model = mlp()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5)
    penalty = TrimmedGroupL1(model, {"0": 4}, rank_by="taylor")
    start = penalty.layers["0"].score.value.clone()
    penalty.attach(optimizer)
    closure = closure_of(model, optimizer)
    closure()
    value = (model[0].weight * model[0].weight.grad).sum(0).square().detach()
    optimizer.step(closure)
    torch.testing.assert_close(penalty.layers["0"].score.value, MEMORY * start + (1 - MEMORY) * value)


@pytest.mark.parametrize("unscaled", [False, True])
def test_a_fused_optimizer_under_a_scaler_scores_as_one_without(unscaled):
    """It is handed scaled gradients, and those of the steps that it skips."""
    found = []
    for scaled in (False, True):
        model = mlp().double()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
        penalty = TrimmedGroupL1(model, {"0": 4}, rank_by="taylor", h_schedule=Ramp(1, 5))
        penalty.attach(optimizer)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=scaled)
        X, y = (part.double() for part in data())
        for step in range(8):
            overflow = step in (2, 5)
            if overflow and not scaled:
                continue
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(X), y) * (math.inf if overflow else 1.0)
            scaler.scale(loss).backward()
            if unscaled:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        found.append((penalty.layers["0"].score.value, model[0].weight.detach()))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=0.0)


@pytest.mark.parametrize("size", [6, 7])  # as many pixels as channels, and not
def test_activity_of_a_convolution_is_that_of_its_channels(size):
    model = nn.Sequential(nn.Conv2d(6, 4, 3))
    penalty = TrimmedGroupL1(model, {"0": 2}, groups="in", rank_by="activity")
    penalty.attach(torch.optim.SGD(model.parameters(), lr=0.1))
    X = torch.randn(3, 6, size, size) * torch.arange(6.0)[:, None, None]
    model(X)
    expected = MEMORY + (1 - MEMORY) * X.square().mean((0, 2, 3))
    torch.testing.assert_close(penalty.layers["0"].score.value, expected)


def test_activity_of_an_ensemble_of_convolutions():
    layer = EnsembleConv2d(2, 3, 4, 3, seeds=[0, 1])
    penalty = TrimmedGroupL1(layer, {"": [1, 2]}, groups="in", rank_by="activity")
    penalty.attach(torch.optim.SGD(layer.parameters(), lr=0.1))
    X = torch.randn(2, 5, 3, 6, 6) * torch.tensor([1.0, 3.0]).view(2, 1, 1, 1, 1)
    layer(X)
    expected = MEMORY + (1 - MEMORY) * X.square().mean((1, 3, 4))
    torch.testing.assert_close(penalty.layers[""].score.value, expected)
    layer(X[0])  # shared by the replicas
    expected = MEMORY * expected + (1 - MEMORY) * X[0].square().mean((0, 2, 3))
    torch.testing.assert_close(penalty.layers[""].score.value, expected)


def test_activity_of_inputs_by_name_of_one_sample_and_of_none():
    layer = nn.Linear(4, 2)
    penalty = TrimmedGroupL1(layer, {"": 2}, rank_by="activity")
    penalty.attach(torch.optim.SGD(layer.parameters(), lr=0.1))
    x = torch.tensor([0.0, 1.0, 2.0, 3.0])
    layer(torch.empty(0, 4))
    layer(input=x[None])
    expected = MEMORY + (1 - MEMORY) * x.square()
    torch.testing.assert_close(penalty.layers[""].score.value, expected)
    layer(x)
    expected = MEMORY * expected + (1 - MEMORY) * x.square()
    torch.testing.assert_close(penalty.layers[""].score.value, expected)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_a_copy_looks_at_its_inputs_once(copied):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    penalty = TrimmedGroupL1(model, {"0": 4}, rank_by="activity")
    penalty.attach(optimizer)
    train(model, optimizer, 2)
    other, its = copied((model, penalty))
    before = its.layers["0"].score.value.clone()
    train(other, torch.optim.SGD(other.parameters(), lr=0.01), 1)
    assert torch.equal(its.layers["0"].score.value, before)  # a copy is attached to nothing
    again = torch.optim.SGD(other.parameters(), lr=0.01)
    its.attach(again)
    train(other, again, 3)
    train(model, optimizer, 3)
    assert torch.equal(its.layers["0"].score.value, penalty.layers["0"].score.value)


@pytest.mark.parametrize("scale", [1.0, 1e-4, 1e-8])
def test_small_gradients_rank_from_the_first_step(scale):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    penalty = TrimmedGroupL1(model, {"0": 4}, rank_by="taylor", h_schedule=None)
    penalty.attach(optimizer)
    X, y = data()
    (nn.functional.mse_loss(model(X), y) * scale).backward()
    change = (model[0].weight * model[0].weight.grad).sum(0).abs()
    expected = torch.zeros(12, dtype=torch.bool).scatter(0, change.topk(4).indices, True)
    assert not expected[:4].all()  # not what ties would give
    optimizer.step()
    assert torch.equal(penalty.kept()["0"], expected)
    assert torch.equal(model[0].weight.norm(dim=0) > 0, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("weight", "gradient"), [(0.01, 1e-6), (10.0, 1e3)])
def test_products_of_half_precision_neither_vanish_nor_overflow(dtype, weight, gradient):
    layer = nn.Linear(3, 300, bias=False).to(dtype)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.0)
    penalty = TrimmedGroupL1(layer, {"": 2}, rank_by="taylor")
    penalty.attach(optimizer)
    layer.weight.data.fill_(weight)
    layer.weight.grad = torch.full_like(layer.weight, gradient) * torch.tensor([1, 2, 4]).to(dtype)
    expected = (1 - MEMORY) * (layer.weight.float() * layer.weight.grad).sum(0).square().detach()
    optimizer.step()
    torch.testing.assert_close(penalty.layers[""].score.value, expected)
    assert penalty.kept()[""].tolist() == [False, True, True]


def test_a_sparse_gradient_is_scored_as_a_dense_one():
    found = []
    for sparse in (False, True):
        torch.manual_seed(0)
        layer = nn.Embedding(10, 3, sparse=sparse)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        penalty = TrimmedGroupL1(layer, {"": 2}, rank_by="taylor", h_schedule=None)
        penalty.attach(optimizer)
        layer(torch.tensor([1, 5, 5, 7])).square().sum().backward()
        optimizer.step()
        found.append((penalty.layers[""].score.value, layer.weight.detach()))
        assert int((layer.weight.norm(dim=1) > 0).sum()) == 2
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)


def test_a_ranking_by_gradients_takes_few_operations_a_layer():
    counted = {}
    for rank_by in ("norm", "taylor"):
        for layers in (2, 6):
            model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(layers)))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.0, foreach=True)
            penalty = TrimmedGroupL1(model, {"*": 4}, rank_by=rank_by, rank_every=1)
            penalty.attach(optimizer)
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter)
            optimizer.step()
            with Counted() as counter:
                optimizer.step()
            counted[rank_by, layers] = counter.total
    each = {rank_by: (counted[rank_by, 6] - counted[rank_by, 2]) / 4 for rank_by in ("norm", "taylor")}
    assert each["taylor"] <= each["norm"] + 6
    assert counted["taylor", 2] - counted["norm", 2] <= 2 * 6


class Counted(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.total += 1
        return function(*args, **(kwargs or {}))
