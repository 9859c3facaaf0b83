"""What happens in training besides: losses of a hard penalty, wider weights, odd rates and schedules."""

import itertools
import math
import warnings

import pytest
import torch
from torch import nn

from trimreg.nn import Ramp, TrimmedGroupL1, export
from trimreg.nn.penalty import rules


def mlp(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 1))


def step_without_gradient(model, optimizer):
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()


def test_the_loss_of_a_hard_penalty_has_no_nan_in_its_gradient():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    penalty = TrimmedGroupL1(model, {"0": 4, "2": 8}, h_schedule=None)
    assert float(penalty.loss().detach()) == math.inf  # not yet cut
    penalty.attach(optimizer)
    step_without_gradient(model, optimizer)
    for _ in range(2):  # cut, and then frozen
        optimizer.zero_grad()
        loss = penalty.loss()
        loss.backward()
        assert loss.item() == 0.0
        assert not model[0].weight.grad.any()
        penalty.finalize_()


def test_a_frozen_loss_is_zero_with_a_zero_gradient():
    model = mlp()
    penalty = TrimmedGroupL1(model, {"0": 4}, alpha=2.0, mode="subgradient")
    assert penalty.loss().item() > 0
    penalty.frozen.fill_(True)
    loss = penalty.loss()
    loss.backward()
    assert loss.item() == 0.0
    assert not model[0].weight.grad.any()


@pytest.mark.parametrize("rank_by", ["norm", "taylor"])
def test_a_model_may_become_wider_under_its_penalty(rank_by):
    model = nn.Sequential(nn.Conv2d(1, 4, 3))
    penalty = TrimmedGroupL1(model, {"0": 2}, rank_by=rank_by, h_schedule=None)
    model.double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    penalty.attach(optimizer)
    model(torch.randn(2, 1, 5, 5).double()).square().sum().backward()
    optimizer.step()
    alive = model[0].weight.flatten(1).norm(dim=1) > 0
    assert torch.equal(alive, penalty.kept()["0"])
    assert int(alive.sum()) == 2


@pytest.mark.parametrize(
    ("schedule", "h"),
    [
        (lambda step: 1.5, 4),
        (lambda step: step / 1.0 + 7.0, 4),
        (lambda step: -0.5, 12),
        (lambda step: math.nan, 12),
        (lambda step: step * math.nan, 12),
    ],
)
def test_no_schedule_leads_out_of_the_range_of_sizes(schedule, h):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    penalty = TrimmedGroupL1(model, {"0": 4}, h_schedule=schedule)
    penalty.attach(optimizer)
    step_without_gradient(model, optimizer)
    assert int(penalty.h()["0"]) == h
    assert int((penalty.layers["0"].norms() > 0).sum()) == h


@pytest.mark.parametrize("below", [lambda step: -1.0, lambda step: step * 0.0 - 1.0])
def test_a_negative_strength_makes_no_group_grow(below):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    TrimmedGroupL1(model, {"0": 4}, alpha=0.5, alpha_schedule=below).attach(optimizer)
    before = model[0].weight.detach().clone()
    step_without_gradient(model, optimizer)
    assert torch.equal(model[0].weight, before)


@pytest.mark.filterwarnings("ignore:finalize_ cuts groups that are not zero")
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_training_that_diverged_is_not_finalized(bad):
    model = mlp()
    penalty = TrimmedGroupL1(model, {"0": 4, "2": 3})
    model[2].weight.data[0, 1] = bad
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(ValueError, match=r"layer '2'.*infinite or NaN.*diverged"):
        penalty.finalize_()
    for parameter, old in zip(model.parameters(), before, strict=True):
        assert torch.equal(parameter.nan_to_num(), old.nan_to_num())
    model[2].weight.data[0, 1] = 1e30  # its square is not a float32, but it is a weight
    penalty.finalize_()


@pytest.mark.filterwarnings("ignore:finalize_ cuts groups that are not zero")
def test_without_a_step_there_is_only_the_norm_to_rank_by():
    model = mlp()
    model[0].weight.data[:, :6] *= 0.01
    penalty = TrimmedGroupL1(model, {"0": 6}, rank_by="taylor")
    assert penalty.kept()["0"].tolist() == [False] * 6 + [True] * 6
    penalty.finalize_()
    assert not model[0].weight[:, :6].any()
    assert model[0].weight[:, 6:].all()


def test_groups_are_counted_beyond_what_float32_can():
    (pack,) = TrimmedGroupL1(mlp(), {"0": 4}).packs
    for table in (pack.target, pack.count, pack.positions):
        table.fill_(2**24 + 1)
        assert int(table.flatten()[0]) == 2**24 + 1


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3)
        self.blocks = nn.ModuleList(
            nn.ModuleDict({"conv1": nn.Conv2d(4, 4, 3), "skip": nn.ModuleDict({"conv1": nn.Conv2d(4, 4, 1)})})
            for _ in range(2)
        )


@pytest.mark.parametrize(
    ("glob", "names"),
    [
        (
            "conv*",
            ["conv1", "blocks.0.conv1", "blocks.0.skip.conv1", "blocks.1.conv1", "blocks.1.skip.conv1"],
        ),
        ("blocks.*.conv1", ["blocks.0.conv1", "blocks.1.conv1"]),
        ("blocks.1.**", ["blocks.1.conv1", "blocks.1.skip.conv1"]),
        ("**.skip.conv1", ["blocks.0.skip.conv1", "blocks.1.skip.conv1"]),
        ("blocks.[1-9].*.conv?", ["blocks.1.skip.conv1"]),
    ],
)
def test_a_star_stays_between_dots(glob, names):
    assert list(TrimmedGroupL1(Nested(), {glob: 2}).keep) == names


@pytest.mark.parametrize("seed", range(20))
def test_exact_is_the_best_over_all_choices_of_the_free_groups(seed):
    """The proximal map of the trimmed penalty; with ties and zeros in every other case."""
    torch.manual_seed(seed)
    count, alpha, rate = 2 + seed % 5, (0.0, 0.5, 3.0, 20.0)[seed % 4], 0.1
    keep = 1 + seed % count
    layer = nn.Linear(count, 3, bias=False, dtype=torch.float64)
    if seed % 2:
        layer.weight.data = torch.randint(-2, 3, (3, count)).double()
    z = layer.weight.detach().clone()
    optimizer = torch.optim.SGD(layer.parameters(), lr=rate)
    TrimmedGroupL1(layer, {"": keep}, alpha=alpha).attach(optimizer)
    step_without_gradient(layer, optimizer)

    def objective(x):
        smallest = x.norm(dim=0).sort().values[: count - keep]
        return float(0.5 * (x - z).square().sum() + rate * alpha * smallest.sum())

    shrunk = z * rules.group_factor(z.norm(dim=0), rate * alpha)
    choices = itertools.combinations(range(count), keep)
    free = [torch.tensor([group in chosen for group in range(count)]) for chosen in choices]
    best = min(objective(torch.where(mask, z, shrunk)) for mask in free)
    assert objective(layer.weight.detach()) <= best + 1e-12


@pytest.mark.parametrize("mode", ["exact", "bcd"])
def test_a_layer_that_rests_keeps_its_size(mode):
    """Its parameters are frozen in some steps, so that the optimizer passes them over."""
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    alpha = math.inf if mode == "exact" else 0.1
    penalty = TrimmedGroupL1(model, {"0": 4}, alpha, mode=mode, h_schedule=Ramp(1, 6), freeze_at=6)
    penalty.attach(optimizer)
    X = torch.randn(16, 12)
    for step in range(9):
        model[0].weight.requires_grad_(step % 3 != 1)
        optimizer.zero_grad()
        model(X).square().mean().backward()
        optimizer.step()
        if step >= 5:
            assert torch.equal(penalty.layers["0"].norms() > 0, penalty.kept()["0"])
            assert int(penalty.kept()["0"].sum()) == 4


def test_a_penalty_that_takes_what_is_kept_is_told():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2))
    X, y = torch.randn(40, 8), torch.randn(40, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    penalty = TrimmedGroupL1(model, {"0": 5, "2": 3}, 3.0, mode="bcd", tau=1e-6)
    penalty.attach(optimizer)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(X), y).backward()
        optimizer.step()
    for do in (penalty.finalize_, lambda: export(model, penalty, X, repeats=0)):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            do()
        texts = [str(one.message) for one in told]
        assert texts[0].startswith("layer '0': 5 of the 5 groups that are kept are zero")
        assert texts[1].startswith("layer '2': 3 of the 3 groups")
        assert len(texts) == 2
