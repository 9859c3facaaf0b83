"""The penalty: its layers, its step in each mode, schedules, freezing, state, and what a step costs."""

import copy
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from trimreg.nn import Ramp, TrimmedGroupL1
from trimreg.nn.groups.layer_groups import LayerGroups, Slab
from trimreg.nn.penalty import packs, rules
from trimreg.nn.penalty.packs import divide
from trimreg.penalties import project_capped_simplex, simplex


class Ensemble(nn.Module):
    """Three linear layers in one tensor, each with its own inputs."""

    def __init__(self, out=4, inputs=6, draw=False):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, out, inputs, dtype=torch.float64))
        if draw:
            self.sampled_weight = lambda: self.weight * (1 + 0.1 * torch.randn_like(self.weight))

    def trimmed_groups(self, kind):
        return self.weight.shape[2], (Slab(self, "weight", 1),), (3,)

    def forward(self, x):
        return torch.einsum("eoi,bi->ebo", self.weight, x)


class Net(nn.Module):
    """A convolution, attention, a linear layer by outputs and one by inputs: all kinds of slabs."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 5, 3)
        self.attention = nn.MultiheadAttention(8, 4, batch_first=True)
        self.hidden = nn.Linear(9 * 5, 8)
        self.last = nn.Linear(8, 2)

    def forward(self, x):
        x = self.hidden(self.conv(x).flatten(1)).relu()
        return self.last(x + self.attention(x[:, None], x[:, None], x[:, None])[0][:, 0])


KEEP = {"conv": 2, "attention": 3, "hidden": 5, "last": 4}
GROUPS = {"hidden": "out"}


def net(seed=0):
    torch.manual_seed(seed)
    return Net().double()


def gradients(model, seed):
    """Random gradients: what they come from does not matter to a step."""
    generator = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        p.grad = torch.randn(p.shape, generator=generator, dtype=torch.float64).to(p.dtype)


def sizes(penalty):
    return {name: int((layer.norms() > 0).sum()) for name, layer in penalty.layers.items()}


def plain_step(model, lr, seed):
    """The model after a step of SGD without a penalty."""
    twin = copy.deepcopy(model)
    gradients(twin, seed)
    torch.optim.SGD(twin.parameters(), lr=lr).step()
    return twin


# -- which layers -------------------------------------------------------------------------------------------


def test_layers_by_name_glob_and_module():
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4)))
    penalty = TrimmedGroupL1(model, {"2.*": 3, model[0]: 7, "2.1": 2}, {"*": 1.0})
    assert penalty.keep == {"0": 7, "2.0": 3, "2.1": 2}
    assert penalty.alpha == {"0": 1.0, "2.0": 1.0, "2.1": 1.0}
    assert [layer.module for layer in penalty.layers.values()] == [model[0], model[2][0], model[2][1]]


@pytest.mark.filterwarnings("ignore:finalize_ cuts groups that are not zero")
def test_the_model_itself_may_be_the_layer():
    model = nn.Linear(4, 2)
    penalty = TrimmedGroupL1(model, {model: 3})
    penalty.finalize_()
    assert sizes(penalty) == {"": 3}


def test_a_glob_takes_attention_by_heads_and_not_its_projection():
    penalty = TrimmedGroupL1(nn.ModuleList([nn.MultiheadAttention(8, 4)]), {"*": 2})
    assert {name: layer.kind for name, layer in penalty.layers.items()} == {"0": "heads"}


def test_groups_by_layer_and_by_callable():
    penalty = TrimmedGroupL1(net(), {"hidden": 3, "last": 3, "conv": 3}, groups={"h*": "out", "last": "in"})
    assert {name: layer.kind for name, layer in penalty.layers.items()} == {
        "conv": "out",
        "hidden": "out",
        "last": "in",
    }

    def all_in(name, module):
        return LayerGroups(name, module, "mine", module.in_features, (Slab(module, "weight", 1),))

    assert TrimmedGroupL1(net(), {"last": 3}, groups=all_in).layers["last"].kind == "mine"


def test_compiled_and_wrapped_models_have_the_same_names():
    model = net()
    for wrapped in (torch.compile(model, backend="eager"), nn.DataParallel(model)):
        penalty = TrimmedGroupL1(wrapped, KEEP, groups=GROUPS)
        assert set(penalty.layers) == set(KEEP)
        assert penalty.layers["last"].module is model.last
    model.last = torch.compile(model.last, backend="eager")
    penalty = TrimmedGroupL1(model, {"last": 3})
    assert penalty.layers["last"].module is model.last._orig_mod
    assert TrimmedGroupL1(model, {model.last: 3}).keep == {"last": 3}


def test_parameters_are_not_registered_and_the_repr_says_the_sizes():
    penalty = TrimmedGroupL1(net(), KEEP, groups=GROUPS)
    assert list(penalty.parameters()) == []
    assert "conv: 2 of 5" in repr(penalty)
    assert "hidden: 5 of 8" in repr(penalty)


# -- sizes --------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:finalize_ cuts groups that are not zero")
@pytest.mark.filterwarnings("ignore:layer .* groups that are kept are zero")
@pytest.mark.parametrize("make", ["random", "ties", "zeros", "one", "tiny"])
def test_sizes_are_exact_whatever_the_norms(make):
    model = net()
    for p in model.parameters():
        if make == "ties":
            p.data.fill_(1.0)
        elif make == "zeros":
            p.data.fill_(0.0)
        elif make == "one":
            p.data[1:] = 0.0
        elif make == "tiny":
            p.data.mul_(1e-200)
    penalty = TrimmedGroupL1(model, KEEP, groups=GROUPS)
    before = penalty.kept()
    assert {name: int(mask.sum()) for name, mask in before.items()} == KEEP
    penalty.finalize_()
    for name, layer in penalty.layers.items():
        assert torch.equal(penalty.kept()[name], before[name])
        assert (layer.norms()[~before[name]] == 0).all()
        for slab in layer.slabs:
            axes = layer.inner_axes(slab, layer.view(slab, slab.tensor()))
            view = layer.view(slab, slab.tensor()).detach()
            assert (view.abs().sum(dim=axes) if axes else view.abs())[~before[name]].sum() == 0
    if make == "ties":
        assert before["conv"].tolist() == [True, True, False, False, False]


@pytest.mark.filterwarnings("ignore:finalize_ cuts groups that are not zero")
def test_finalize_leaves_the_kept_groups_alone():
    model = net()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    penalty = TrimmedGroupL1(model, KEEP, alpha=3.0, groups=GROUPS)
    penalty.finalize_()
    mask = penalty.kept()
    torch.testing.assert_close(
        model.conv.weight[mask["conv"]], before["conv.weight"][mask["conv"]], rtol=0, atol=0
    )
    torch.testing.assert_close(
        model.conv.bias[mask["conv"]], before["conv.bias"][mask["conv"]], rtol=0, atol=0
    )
    assert (model.conv.bias[~mask["conv"]] == 0).all()
    torch.testing.assert_close(model.last.bias, before["last.bias"], rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:finalize_ cuts groups that are not zero")
def test_an_ensemble_keeps_a_size_for_each_replica():
    model = nn.ModuleDict({"e": Ensemble(), "plain": nn.Linear(9, 2).double()})
    penalty = TrimmedGroupL1(model, {"e": [1, 6, 4], "plain": 3}, {"e": [1.0, 2.0, 3.0], "plain": 0.5})
    kept = penalty.kept()
    assert kept["e"].sum(-1).tolist() == [1, 6, 4]
    assert kept["plain"].sum() == 3
    r = model["e"].weight.norm(dim=1)
    values = [
        a * row.sort().values[:cut].sum() for a, row, cut in zip([1.0, 2.0, 3.0], r, [5, 0, 2], strict=True)
    ]
    values.append(0.5 * model["plain"].weight.norm(dim=0).sort().values[:6].sum())
    torch.testing.assert_close(penalty.loss(), sum(values))
    penalty.finalize_()
    assert (model["e"].weight.norm(dim=1) > 0).sum(-1).tolist() == [1, 6, 4]


# -- steps --------------------------------------------------------------------------------------------------


def expected_exact(layer, keep, threshold):
    """The layer after the proximal step, by its groups, in NumPy."""
    r = layer.norms().detach().numpy()
    free = np.argsort(-r, kind="stable")[:keep]
    factor = np.maximum(1 - threshold / r, 0)
    factor[free] = 1.0
    return factor


@pytest.mark.parametrize("alpha", [0.0, 0.7, 30.0, math.inf])
def test_an_exact_step(alpha):
    model, lr = net(), 0.05
    penalty = TrimmedGroupL1(model, KEEP, alpha, GROUPS, h_schedule=None)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    penalty.attach(optimizer)
    twin = plain_step(model, lr, seed=1)
    after = TrimmedGroupL1(twin, KEEP, alpha, GROUPS).layers
    factors = {name: expected_exact(after[name], KEEP[name], lr * alpha) for name in KEEP}
    gradients(model, 1)
    optimizer.step()
    for name, layer in penalty.layers.items():
        for slab, other in zip(layer.slabs, after[name].slabs, strict=True):
            factor = torch.from_numpy(factors[name] if slab.counted else (factors[name] > 0).astype(float))
            view = layer.view(slab, slab.tensor().detach())
            expected = layer.view(slab, other.tensor().detach()) * layer.spread(slab, factor, view.ndim)
            torch.testing.assert_close(view, expected, rtol=1e-12, atol=1e-14)
    assert int(penalty.step) == 1


def test_the_learning_rate_of_each_group_counts():
    model = net()
    penalty = TrimmedGroupL1(model, {"conv": 1, "last": 1}, alpha=2.0)
    rest = [p for n, p in model.named_parameters() if not n.startswith("conv")]
    optimizer = torch.optim.SGD([{"params": model.conv.parameters(), "lr": 0.01}, {"params": rest}], lr=0.1)
    penalty.attach(optimizer)
    for rates in (
        (0.01, 0.1),
        (0.02, 0.05),
        (torch.tensor(0.03), torch.tensor(0.04)),
        (torch.tensor(0.02), 0.07),
    ):
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        optimizer.zero_grad()
        before = {name: layer.norms().detach() for name, layer in penalty.layers.items()}
        optimizer.step()
        for (name, layer), rate in zip(penalty.layers.items(), rates, strict=True):
            cut = (before[name] - layer.norms().detach()).sort().values
            alive = layer.norms().detach() > 0
            assert cut[0].abs() < 1e-12
            drop = (before[name] - layer.norms().detach())[alive].sort().values[1:]
            torch.testing.assert_close(drop, torch.full_like(drop, 2.0 * float(rate)), rtol=1e-6, atol=1e-9)


def test_strengths_may_mix_hard_and_soft_also_at_rate_zero():
    model = net()
    penalty = TrimmedGroupL1(model, {"conv": 1, "last": 1}, {"conv": math.inf, "last": 0.1}, h_schedule=None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    penalty.attach(optimizer)
    last = model.last.weight.detach().clone()
    gradients(model, 0)
    optimizer.step()
    assert sizes(penalty)["conv"] == 1
    assert torch.equal(model.last.weight, last)


@pytest.mark.parametrize("ramp", [None, Ramp(1, 4)])
def test_bcd_is_algorithm_1(ramp):
    lr, tau, alpha, keep = 0.05, 0.3, 0.8, 3
    model = nn.Sequential(nn.Linear(7, 4)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    theta = model[0].weight.detach().numpy().copy()
    penalty = TrimmedGroupL1(model, {"0": keep}, alpha, mode="bcd", tau=tau, h_schedule=ramp)
    penalty.attach(optimizer)

    def free(k):
        return keep if ramp is None else round(7 + (keep - 7) * ramp(k))

    w = np.full(7, (7 - free(0)) / 7)
    for k in range(6):
        w = project_capped_simplex(w - tau * np.linalg.norm(theta, axis=0), 7 - free(k))
        np.testing.assert_allclose(penalty.weights()["0"], w, atol=1e-10)
        gradients(model, k)
        z = theta - lr * model[0].weight.grad.numpy()
        r = np.linalg.norm(z, axis=0)
        theta = z * np.maximum(1 - lr * alpha * w / r, 0)
        optimizer.step()
        np.testing.assert_allclose(model[0].weight.detach(), theta, atol=1e-12)


def test_bcd_projects_every_layer_on_its_own_simplex():
    model = net()
    penalty = TrimmedGroupL1(model, KEEP, 0.5, GROUPS, "bcd", tau=0.2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    penalty.attach(optimizer)
    for k in range(5):
        gradients(model, k)
        before = penalty.weights()
        optimizer.step()
        for name, layer in penalty.layers.items():
            y = before[name] - 0.2 * layer.norms().detach()
            expected = project_capped_simplex(y.numpy(), layer.count - KEEP[name])
            np.testing.assert_allclose(penalty.weights()[name], expected, atol=1e-9)


def test_subgradient_takes_no_proximal_step_and_moves_w():
    model, lr = net(), 0.05
    penalty = TrimmedGroupL1(model, KEEP, 0.5, GROUPS, "subgradient", tau=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    penalty.attach(optimizer)
    twin = plain_step(model, lr, seed=2)
    before = penalty.weights()
    gradients(model, 2)
    optimizer.step()
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(p, q)
    for name, layer in penalty.layers.items():
        y = before[name] - 0.1 * layer.norms().detach()
        expected = project_capped_simplex(y.numpy(), layer.count - KEEP[name])
        np.testing.assert_allclose(penalty.weights()[name], expected, atol=1e-9)


@pytest.mark.parametrize("mode", ["bcd", "subgradient"])
def test_groups_of_weight_one_are_masked_on_request(mode):
    model = net()
    penalty = TrimmedGroupL1(model, KEEP, 1e-6, GROUPS, mode, tau=50.0, mask_ones=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    penalty.attach(optimizer)
    for k in range(4):
        before = penalty.weights()
        gradients(model, k)
        optimizer.step()
        for name, layer in penalty.layers.items():
            assert torch.equal(layer.norms() == 0, before[name] == 1)
    assert all((w == 1).any() for w in before.values())
    assert (model.conv.bias[before["conv"] == 1] == 0).all()


@pytest.mark.parametrize("mode", ["exact", "bcd", "subgradient"])
def test_the_loss_and_its_gradient(mode):
    model = net()
    schedule = Ramp(0, 10, power=1)
    penalty = TrimmedGroupL1(
        model, KEEP, {"*": 2.0, "conv": 0.5}, GROUPS, mode, alpha_schedule=schedule, tau=0.5
    )
    penalty.step.fill_(5)
    w = penalty.weights()
    expected = sum(
        (0.25 if name == "conv" else 1.0) * (w[name] * layer.norms()).sum()
        for name, layer in penalty.layers.items()
    )
    torch.testing.assert_close(penalty.loss(), expected)
    theirs = torch.autograd.grad(expected, [model.conv.weight, model.attention.in_proj_weight])
    ours = torch.autograd.grad(penalty.loss(), [model.conv.weight, model.attention.in_proj_weight])
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)
    penalty.freeze_()
    assert penalty.loss().item() == 0


def test_draws_are_used_for_the_loss_and_for_w():
    torch.manual_seed(0)
    model = nn.ModuleDict({"e": Ensemble(draw=True)})
    penalty = TrimmedGroupL1(model, {"e": 2}, 1.0, mode="subgradient", tau=1e-3)
    torch.manual_seed(1)
    drawn = model["e"].sampled_weight().norm(dim=1)
    torch.manual_seed(1)
    torch.testing.assert_close(penalty.loss(), (penalty.weights()["e"] * drawn).sum())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    penalty.attach(optimizer)
    before = penalty.weights()["e"]
    torch.manual_seed(2)
    drawn = model["e"].sampled_weight().norm(dim=1).detach()
    torch.manual_seed(2)
    gradients(model, 0)
    optimizer.step()
    expected = [project_capped_simplex(row.numpy(), 4) for row in before - 1e-3 * drawn]
    np.testing.assert_allclose(penalty.weights()["e"], expected, atol=1e-12)


# -- schedules and freezing ---------------------------------------------------------------------------------


def test_h_comes_down_as_scheduled():
    model = nn.Sequential(nn.Linear(40, 5)).double()
    ramp = Ramp(2, 12)
    penalty = TrimmedGroupL1(model, {"0": 7}, h_schedule=ramp)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    penalty.attach(optimizer)
    assert int(penalty.h()["0"]) == 40
    for k in range(1, 15):
        gradients(model, k)
        optimizer.step()
        h = round(40 - 33 * ramp(k))
        assert sizes(penalty)["0"] == h == int(penalty.h()["0"])
        assert penalty.kept()["0"].sum() == 7
    assert h == 7


def test_alpha_warms_up():
    model = nn.Sequential(nn.Linear(4, 3)).double()
    penalty = TrimmedGroupL1(model, {"0": 1}, alpha=0.5, alpha_schedule=Ramp(0, 4, power=1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    penalty.attach(optimizer)
    for k in range(1, 7):
        before = penalty.layers["0"].norms().detach()
        model[0].weight.grad = torch.zeros_like(model[0].weight)
        optimizer.step()
        drop = (before - penalty.layers["0"].norms().detach()).sort().values
        torch.testing.assert_close(drop[1:], torch.full((3,), 0.005 * min(k / 4, 1), dtype=torch.float64))


@pytest.mark.parametrize(
    ("mode", "alpha"), [("exact", math.inf), ("exact", 0.1), ("bcd", 0.1), ("subgradient", 0.1)]
)
@pytest.mark.parametrize("early", [False, True])
def test_freezing_fixes_the_sizes_and_ends_the_penalty(mode, alpha, early):
    model, lr = net(), 0.05
    ramp = Ramp(1, 100) if early else Ramp(1, 3)  # frozen before h has come down, or after
    penalty = TrimmedGroupL1(model, KEEP, alpha, GROUPS, mode, h_schedule=ramp, freeze_at=4, tau=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    penalty.attach(optimizer)
    for k in range(8):
        twin = plain_step(model, lr, k)
        gradients(model, k)
        optimizer.step()
        assert bool(penalty.frozen) == (k + 1 >= 4)
        if k + 1 == 4:
            fixed = penalty.kept()
        if k + 1 >= 4:
            assert sizes(penalty) == KEEP
            for name, layer in penalty.layers.items():
                assert torch.equal(penalty.kept()[name], fixed[name])
                assert torch.equal(layer.norms() > 0, fixed[name])
                assert torch.equal(penalty.weights()[name], (~fixed[name]).double())
        if k + 1 > 4:
            free = fixed["conv"]
            torch.testing.assert_close(model.conv.weight[free], twin.conv.weight[free], rtol=0, atol=1e-14)
            assert (model.conv.bias[~free] == 0).all()


def test_the_frozen_mask_is_of_its_moment():
    model = nn.Sequential(nn.Linear(4, 1, bias=False)).double()
    model[0].weight.data.copy_(torch.tensor([[4.0, 3.0, 2.0, 1.0]]))
    penalty = TrimmedGroupL1(model, {"0": 2}, alpha=0.0, freeze_at=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    penalty.attach(optimizer)
    for step in ([[0.0, 0.0, 0.0, -5.0]], [[0.0, 0.0, -6.0, 0.0]], [[0.0, -20.0, 0.0, 0.0]]):
        model[0].weight.grad = torch.tensor(step, dtype=torch.float64)
        optimizer.step()
    assert model[0].weight.tolist() == [[0.0, 0.0, 8.0, 6.0]]


@pytest.mark.filterwarnings("ignore:finalize_ cuts groups that are not zero")
def test_freezing_by_hand():
    model = net()
    penalty = TrimmedGroupL1(model, KEEP, 0.01, GROUPS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = penalty.attach(optimizer)
    penalty.freeze_()
    assert sizes(penalty) == KEEP
    fixed = penalty.kept()
    gradients(model, 0)
    optimizer.step()
    assert sizes(penalty) == KEEP
    handle.remove()
    gradients(model, 1)
    optimizer.step()
    assert sizes(penalty) != KEEP
    penalty.finalize_()
    assert all(torch.equal(penalty.kept()[name], fixed[name]) for name in KEEP)
    assert sizes(penalty) == KEEP


# -- state --------------------------------------------------------------------------------------------------


def test_the_state_is_by_layer_and_comes_back():
    model = net()
    penalty = TrimmedGroupL1(model, KEEP, 0.5, GROUPS, "bcd")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    penalty.attach(optimizer)
    gradients(model, 0)
    optimizer.step()
    state = penalty.state_dict()
    assert set(state) == {"step", "frozen"} | {f"{a}.{name}" for a in ("weights", "kept") for name in KEEP}
    assert state["weights.conv"].shape == (5,)
    reverse = dict(reversed(KEEP.items()))
    other = TrimmedGroupL1(net(5), reverse, 0.5, GROUPS, "bcd")
    other.load_state_dict(state)
    assert int(other.step) == 1
    for name in KEEP:
        assert torch.equal(other.weights()[name], penalty.weights()[name])
    gradients(model, 1)
    optimizer.step()
    assert int(state["step"]) == 1, "a state must not move with the training"


def test_a_state_inside_a_larger_module():
    model = net()
    both = nn.ModuleDict({"model": model, "penalty": TrimmedGroupL1(model, KEEP, groups=GROUPS)})
    both["penalty"].freeze_()
    fresh = net(3)
    other = nn.ModuleDict({"model": fresh, "penalty": TrimmedGroupL1(fresh, KEEP, groups=GROUPS)})
    other.load_state_dict(both.state_dict())
    assert bool(other["penalty"].frozen)
    for name in KEEP:
        assert torch.equal(other["penalty"].kept()[name], both["penalty"].kept()[name])


@pytest.mark.filterwarnings("ignore:finalize_ cuts groups that are not zero")
def test_a_copy_goes_with_its_model_and_is_not_attached():
    model = net()
    penalty = TrimmedGroupL1(model, KEEP, 0.5, GROUPS, "bcd")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    penalty.attach(optimizer)
    gradients(model, 0)
    optimizer.step()
    twin, copied = copy.deepcopy((model, penalty))
    assert copied.layers["conv"].module is twin.conv
    copied.finalize_()
    assert sizes(copied) == KEEP
    assert sizes(penalty) != KEEP
    assert not bool(penalty.frozen)
    copied.attach(torch.optim.SGD(twin.parameters(), lr=0.1))


def test_a_change_of_type_of_the_model_leaves_the_tables():
    model = nn.ModuleDict({"net": nn.Linear(6, 2)})
    model["penalty"] = TrimmedGroupL1(model["net"], {"": 3}, 0.123456789, mode="bcd")
    model.to(torch.bfloat16)
    pack = model["penalty"].packs[0]
    assert pack.alpha.dtype == torch.float32
    assert model["penalty"].kept()[""].sum() == 3


# -- costs --------------------------------------------------------------------------------------------------


class Kernels(TorchDispatchMode):
    """Counts the operations that launch kernels; views and allocations do not."""

    FREE = (
        "view", "_unsafe_view", "slice", "select", "detach", "unsqueeze", "expand", "empty_like", "unflatten",
    )  # fmt: skip

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.__name__
        if name.split(".")[0] not in self.FREE:
            self.names += [name] * (len(args[0]) if "foreach" in name else 1)
        assert "_local_scalar_dense" not in name, "a synchronization with the host"
        return function(*args, **(kwargs or {}))


def kernels(penalty, model, optimizer):
    """What the hook launches in its second step."""
    penalty.attach(optimizer)
    gradients(model, 0)
    optimizer.step()
    counter = Kernels()
    hook = next(iter(optimizer._optimizer_step_post_hooks.values()))
    with counter:
        hook(optimizer, (), {})
    return counter.names


@pytest.mark.parametrize(
    ("options", "fixed"),
    [
        ({}, 19),
        ({"h_schedule": None}, 4),
        ({"h_schedule": None, "freeze_at": 10}, 7),
        ({"h_schedule": Ramp(1, 5)}, 13),
        ({"alpha": 1.0}, 11),
        ({"alpha": 1.0, "mode": "bcd"}, 75),
        ({"alpha": 1.0, "mode": "subgradient"}, 68),
    ],
)
def test_a_step_launches_two_kernels_a_layer_and_few_beside(options, fixed, monkeypatch):
    """LeNet-300-100, and twice as many layers: the rest does not grow with their number."""
    monkeypatch.setattr(rules, "on_host", lambda y: False)  # as on a device
    monkeypatch.setattr(simplex, "_may_look", lambda y: False)
    monkeypatch.setattr(simplex, "newton_shift", None)
    for widths in ([784, 300, 100, 10], [784, 300, 100, 100, 100, 100, 10]):
        layers = len(widths) - 1
        # By outputs and without a bias: as inputs on a GPU (for those a CPU takes three operations a norm).
        model = nn.Sequential(*[nn.Linear(b, a, bias=False) for a, b in pairwise(widths)])
        penalty = TrimmedGroupL1(model, {"*": 5}, groups="out", **options)
        names = kernels(penalty, model, torch.optim.SGD(model.parameters(), lr=0.1))
        assert len(names) <= 2 * layers + fixed, names


def test_convolutions_launch_one_more_for_their_bias():
    model = nn.Sequential(*[nn.Conv2d(4, 4, 3) for _ in range(8)])
    penalty = TrimmedGroupL1(model, {"*": 2}, h_schedule=None)
    names = kernels(penalty, model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert len(names) <= 3 * 8 + 4, names


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("most", [10**6, 100])
def test_norms_by_way_of_kept_memory_are_the_same(dtype, most, monkeypatch):
    monkeypatch.setattr(packs, "MOST_PRODUCTS", most)
    model = nn.Sequential(nn.Linear(70, 30), nn.Linear(30, 10), nn.Conv2d(3, 4, 3), nn.Linear(7, 2)).to(dtype)
    penalty = copy.deepcopy(TrimmedGroupL1(model, {"*": 2}))
    (pack,) = penalty.packs
    assert pack._products is None  # not copied
    with torch.inference_mode():
        pack.measure()
    with torch.no_grad():
        pack.norms.fill_(-1.0)
        measured = pack.measure()
    for name, layer in pack.layers.items():
        torch.testing.assert_close(pack.of(measured, name), layer.norms().to(measured.dtype))
    assert len(pack._products) == min(most, 2100)


def test_layers_of_like_sizes_share_a_table():
    model = nn.ModuleList(
        [nn.Linear(10, 1), nn.Linear(784, 1), nn.Embedding(60_000, 1), nn.Embedding(50_000, 1)]
    )
    layers = TrimmedGroupL1(model, {"*": 2}).layers
    assert divide(layers) == [["0", "1"], ["3", "2"]]


def test_layers_are_told_in_the_order_of_the_model():
    model = nn.Sequential(nn.Linear(50, 20), nn.Linear(20, 5), nn.Linear(5, 30))
    penalty = TrimmedGroupL1(model, {"2": 2, "0": 3, "1": 4})
    order = list(penalty.layers)
    assert list(penalty.kept()) == list(penalty.weights()) == list(penalty.h()) == order


def test_what_accelerate_prepares_can_be_attached_to():
    from accelerate import Accelerator

    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    model = nn.Linear(6, 2)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    penalty = TrimmedGroupL1(model, {"": 2}, h_schedule=None)
    penalty.attach(optimizer)
    accelerator.backward(model(torch.randn(8, 6)).square().sum())
    optimizer.step()
    assert int((model.weight.norm(dim=0) > 0).sum()) == 2
