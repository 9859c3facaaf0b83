"""Ranking groups by more than their norm."""

import math

import pytest
import torch
from torch import nn

from trimreg.nn import Ramp, TrimmedGroupL1, layer_groups
from trimreg.nn.scores import MEMORY, scored


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
        expected = MEMORY + (1 - MEMORY) * value
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
    assert not torch.equal(before, torch.ones(12))
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
    assert torch.equal(penalty.layers["0"].score.value, torch.ones(12))


def test_scores_of_half_precision_are_kept_in_single():
    model = mlp().to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    penalty = TrimmedGroupL1(model, {"0": 4}, rank_by="taylor")
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
    expected = MEMORY + (1 - MEMORY) * (rows + columns).square()
    torch.testing.assert_close(penalty.layers["0"].score.value, expected.detach())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rank_by": "size"}, "rank_by must be one of 'norm', 'taylor', 'activity'; got 'size'"),
        ({"rank_by": "taylor", "alpha": 1.0}, "layer '0': rank_by='taylor' is for the hard penalty"),
        ({"rank_by": "taylor", "alpha": {"0": math.inf, "2": 3.0}}, "layer '2': rank_by='taylor'"),
    ],
)
def test_bad_rankings_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        TrimmedGroupL1(mlp(), {"0": 4, "2": 2}, **options)
