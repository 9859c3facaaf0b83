"""Ensembles: every replica is the plain layer of its seed, alone and in training."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from trimreg.nn.groups.layer_groups import layer_groups
from trimreg.nn.layers.bayes import BayesConv2d, BayesLinear, kl_divergence, kl_loss
from trimreg.nn.layers.gates import L0Conv2d, L0Linear, l0_loss
from trimreg_reproduction.networks.training.ensemble import (
    EnsembleConv2d,
    EnsembleLinear,
    over_replicas,
    replica_generators,
    windows,
)
from trimreg_reproduction.networks.training.ensemble_stochastic import (
    EnsembleBayesConv2d,
    EnsembleBayesLinear,
    EnsembleL0Conv2d,
    EnsembleL0Linear,
)
from trimreg_reproduction.networks.training.loop import sum_of_losses
from trimreg_reproduction.networks.training.recipes import Recipe

FLOAT64 = {"dtype": torch.float64}
SEEDS = [3, 14, 15]
LINEAR = [
    (EnsembleLinear, nn.Linear, {}),
    (EnsembleBayesLinear, BayesLinear, {"initial_log_alpha": -2.0}),
    (EnsembleL0Linear, L0Linear, {"droprate": 0.3}),
]
CONV = [
    (EnsembleConv2d, nn.Conv2d, {}),
    (EnsembleBayesConv2d, BayesConv2d, {"initial_log_alpha": -2.0}),
    (EnsembleL0Conv2d, L0Conv2d, {"droprate": 0.3}),
]
FORMS = [{"kernel_size": 3}, {"kernel_size": (3, 2), "bias": False}, {"kernel_size": (1, 4)}]


@pytest.fixture(autouse=True)
def _seed():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def spread(layer):
    """Gates of all kinds, so that test time says something of them."""
    if hasattr(layer, "gate_logits"):
        with torch.no_grad():
            layer.gate_logits.uniform_(-4.0, 4.0)
    return layer


# -- one layer ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "single", "options"), LINEAR)
def test_linear_layers_answer_as_their_replicas(kind, single, options):
    layer = spread(kind(3, 5, 4, seeds=SEEDS, **FLOAT64, **options)).eval()
    x = torch.randn(3, 7, 5, **FLOAT64)
    y, shared = layer(x), layer(x[0])
    assert y.shape == shared.shape == (3, 7, 4)
    for e in range(3):
        replica = layer.replica(e)
        assert type(replica) is single
        assert not replica.training
        torch.testing.assert_close(y[e], replica(x[e]))
        torch.testing.assert_close(shared[e], replica(x[0]))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("kind", "single", "options"), CONV)
def test_convolutions_answer_as_their_replicas(kind, single, options, form):
    layer = spread(kind(3, 2, 4, **form, seeds=SEEDS, **FLOAT64, **options)).eval()
    x = torch.randn(3, 5, 2, 9, 8, **FLOAT64)
    y, shared = layer(x), layer(x[0])
    for e in range(3):
        replica = layer.replica(e)
        assert type(replica) is single
        torch.testing.assert_close(y[e], replica(x[e]))
        torch.testing.assert_close(shared[e], replica(x[0]))


@pytest.mark.parametrize("form", FORMS)
def test_windows_are_the_columns_of_unfold(form):
    x = torch.randn(2, 3, 9, 8, requires_grad=True)
    size = form["kernel_size"]
    kernel = size if isinstance(size, tuple) else (size, size)
    rows, height, width = windows(x, kernel)
    columns = functional.unfold(x, kernel)
    assert height * width == columns.shape[2]
    columns = columns.unflatten(1, (3, -1)).permute(0, 3, 2, 1).flatten(2).flatten(0, 1)  # channels last
    assert torch.equal(rows, columns)
    weights = torch.randn_like(rows)
    slope, expected = (torch.autograd.grad((weights * found).sum(), x)[0] for found in (rows, columns))
    torch.testing.assert_close(slope, expected)


@pytest.mark.parametrize(("kind", "single", "options"), LINEAR + CONV)
def test_seeds_start_replicas_as_plain_layers_one_after_the_other(kind, single, options):
    first, second = ((4, 5), (5, 2)) if issubclass(single, nn.Linear) else ((2, 5, 3), (5, 2, 1))
    before = torch.get_rng_state()
    generators = replica_generators(SEEDS)
    layers = [kind(3, *form, seeds=generators, **options) for form in (first, second)]
    assert torch.equal(torch.get_rng_state(), before)
    for e, seed in enumerate(SEEDS):
        torch.manual_seed(seed)
        for layer, form in zip(layers, (first, second), strict=True):
            alone = single(*form, **options)
            names = [name for name, _ in alone.named_parameters()]
            assert names == [name for name, _ in layer.named_parameters()]
            for name in names:
                assert torch.equal(getattr(layer, name)[e], getattr(alone, name))
                assert torch.equal(getattr(layer.replica(e), name), getattr(alone, name))


def test_without_seeds_the_global_generator_starts_all():
    layer = EnsembleLinear(2, 4, 3)
    assert not torch.equal(layer.weight[0], layer.weight[1])
    torch.manual_seed(0)
    assert torch.equal(nn.Linear(4, 3).weight, layer.weight[0])


def test_replicas_are_copies():
    layer = EnsembleLinear(2, 4, 3)
    kept = layer.weight.detach().clone()
    with torch.no_grad():
        layer.replica(-1).weight.zero_()
    assert torch.equal(layer.weight, kept)
    assert torch.equal(layer.replica(-1).weight, kept[1])
    twin = copy.deepcopy(layer)
    other = EnsembleLinear(2, 4, 3)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(twin.weight, kept)
    assert torch.equal(other.weight, kept)


def test_errors_say_what_is_wrong():
    linear, conv = EnsembleLinear(2, 4, 3), EnsembleConv2d(2, 1, 3, 3)
    for wrong in ((3, 5, 4), (4,), (2, 5, 4, 1)):
        with pytest.raises(ValueError, match=r"\(2, batch, 4\) or \(batch, 4\)"):
            linear(torch.ones(wrong))
    for wrong in ((3, 5, 1, 8, 8), (1, 8, 8)):
        with pytest.raises(ValueError, match=r"\(2, batch, 1, H, W\)"):
            conv(torch.ones(wrong))
    with pytest.raises(ValueError, match="the input has 2 pixels, the kernel needs 3"):
        conv(torch.ones(5, 1, 8, 2))
    with pytest.raises(ValueError, match="2 replicas was given 3 seeds"):
        EnsembleLinear(2, 4, 3, seeds=[0, 1, 2])
    with pytest.raises(ValueError, match="0 replicas"):
        EnsembleLinear(0, 4, 3)
    with pytest.raises(IndexError, match="replica 2 of an ensemble of 2"):
        linear.replica(2)


# -- training -------------------------------------------------------------------------------------------


class Ensemble(nn.Module):
    """Two convolutions with pooling and two linear layers, for all seeds."""

    def __init__(self, seeds):
        super().__init__()
        form = {"seeds": replica_generators(seeds), **FLOAT64}
        self.conv1 = EnsembleConv2d(len(seeds), 1, 3, 3, **form)
        self.conv2 = EnsembleConv2d(len(seeds), 3, 4, 3, **form)
        self.fc1 = EnsembleLinear(len(seeds), 4, 6, **form)
        self.fc2 = EnsembleLinear(len(seeds), 6, 3, **form)

    def forward(self, x):
        for conv in (self.conv1, self.conv2):
            x = over_replicas(functional.max_pool2d, torch.relu(conv(x)), 2)
        return self.fc2(torch.relu(self.fc1(x.flatten(2))))


def plain_network():
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, **FLOAT64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(3, 4, 3, **FLOAT64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(4, 6, **FLOAT64), nn.ReLU(), nn.Linear(6, 3, **FLOAT64),
    )  # fmt: skip


def test_a_replica_trained_among_others_is_the_network_trained_alone():
    x, y = torch.randn(20, 1, 10, 10, **FLOAT64), torch.randint(3, (20,))
    model = Ensemble(SEEDS)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(12):
        batch = slice(0, 10) if step % 2 else slice(10, 20)
        optimizer.zero_grad()
        sum_of_losses(model(x[batch]), y[batch], Recipe()).backward()
        optimizer.step()
    for e, seed in enumerate(SEEDS):
        torch.manual_seed(seed)
        alone = plain_network()
        start = alone[0].weight.detach().clone()
        optimizer = torch.optim.Adam(alone.parameters(), lr=0.01)
        for step in range(12):
            batch = slice(0, 10) if step % 2 else slice(10, 20)
            optimizer.zero_grad()
            functional.cross_entropy(alone(x[batch]), y[batch]).backward()
            optimizer.step()
        assert (alone[0].weight - start).abs().max() > 0.01
        for name, index in [("conv1", 0), ("conv2", 3), ("fc1", 7), ("fc2", 9)]:
            replica = getattr(model, name).replica(e)
            torch.testing.assert_close(replica.weight, alone[index].weight, atol=1e-6, rtol=0)
            torch.testing.assert_close(replica.bias, alone[index].bias, atol=1e-6, rtol=0)
        torch.testing.assert_close(model(x)[e], alone(x), atol=1e-6, rtol=0)


# -- noise ----------------------------------------------------------------------------------------------


def assert_moments(draws, mean, variance, sds=5.0):
    n = draws.shape[0]
    assert ((draws.mean(0) - mean).abs() / (variance / n).sqrt()).max() < sds
    assert ((draws.var(0) / variance - 1).abs() / math.sqrt(2 / n)).max() < sds


@pytest.mark.parametrize("shared", [True, False])
def test_bayesian_replicas_have_the_moments_of_their_own_layers(shared):
    linear = EnsembleBayesLinear(2, 4, 3, seeds=[0, 1], **FLOAT64)
    conv = EnsembleBayesConv2d(2, 2, 3, 2, seeds=[0, 1], **FLOAT64)
    n = 2000
    for layer, x in [(linear, torch.randn(2, 4, **FLOAT64)), (conv, torch.randn(2, 2, 3, 3, **FLOAT64))]:
        with torch.no_grad():
            layer.log_alpha.uniform_(-3.0, 0.5)
        x = x[:1].expand_as(x) if shared else x
        many = (x[0] if shared else x).unsqueeze(-x[0].ndim - 1)
        many = many.expand(*([] if shared else [2]), n, *x.shape[1:])
        draws = layer(many).detach()
        for e in range(2):
            mean = layer.replica(e).eval()(x[e : e + 1])[0].detach()
            plain = layer.replica(e).plain()
            with torch.no_grad():
                plain.weight.copy_(layer.weight_variance()[e])
                plain.bias.zero_()
            assert_moments(draws[e], mean, plain(x[e : e + 1].square())[0].detach())
        noise = [((y - y.mean(0)) / y.std(0)).flatten() for y in draws]
        assert abs((noise[0] * noise[1]).mean()) < 5 / math.sqrt(noise[0].numel())


def test_divergence_and_samples_of_an_ensemble_go_by_replica():
    model = nn.Sequential(
        EnsembleBayesConv2d(3, 1, 2, 3, seeds=SEEDS), EnsembleBayesLinear(3, 4, 2, seeds=SEEDS)
    )  # fmt: skip
    for layer in model:
        with torch.no_grad():
            layer.log_alpha.uniform_(-5.0, 0.5)
    for e in range(3):
        alone = nn.Sequential(*(layer.replica(e) for layer in model))
        torch.testing.assert_close(kl_divergence(model)[e], kl_divergence(alone))
        for kl in ("1/N", "paper"):
            torch.testing.assert_close(kl_loss(model, 50, kl)[e], kl_loss(alone, 50, kl))
    assert model[1].sampled_weight().shape == (3, 2, 4)


def test_cut_groups_of_a_bayesian_ensemble_are_exact():
    layer = EnsembleBayesConv2d(2, 1, 3, 3, initial_log_alpha=-1.0)
    with torch.no_grad():
        layer.weight[1, 2] = 0.0
        layer.bias[1, 2] = 0.0
    y = layer(torch.randn(4, 1, 6, 6))
    assert (y[1, :, 2] == 0).all()
    assert (y[0, :, 2] != 0).all()
    y.square().sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in layer.parameters())
    assert (layer.log_alpha.grad[1, 2] == 0).all()


def test_gates_of_an_ensemble_go_by_replica():
    model = nn.Sequential(EnsembleL0Conv2d(3, 1, 2, 3, seeds=SEEDS), EnsembleL0Linear(3, 4, 2, seeds=SEEDS))
    strength = torch.tensor([0.5, 1.0, 2.0])
    for layer in model:
        spread(layer)
    for e in range(3):
        alone = nn.Sequential(*(layer.replica(e) for layer in model))
        torch.testing.assert_close(l0_loss(model, 50, 0.3, 0.1)[e], l0_loss(alone, 50, 0.3, 0.1))
        expected = l0_loss(alone, 50, strength[e].item(), 0.1)
        torch.testing.assert_close(l0_loss(model, 50, strength, 0.1)[e], expected)
        torch.testing.assert_close(model[1].expected_size()[e], alone[1].expected_size())
    draws = torch.stack([model[1].sampled_gates() for _ in range(50)])
    assert not torch.equal(draws[:, 0], draws[:, 1])


@pytest.mark.parametrize("form", ["Linear", "Conv2d"])
def test_gates_in_training_are_drawn_once_for_a_batch(form):
    kind, shape = (EnsembleL0Linear, (6, 4)) if form == "Linear" else (EnsembleL0Conv2d, (6, 1, 3, 3))
    layer = kind(2, 4, 3) if form == "Linear" else kind(2, 1, 8, 3)
    y = layer(torch.ones(shape))
    torch.testing.assert_close(y[:, 0], y[:, 5])
    assert not torch.allclose(layer(torch.ones(shape)), y)


# -- the penalty's side and the device's ----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["auto", "in", "out"])
@pytest.mark.parametrize(
    "build",
    [lambda: EnsembleBayesLinear(3, 5, 4, seeds=SEEDS), lambda: EnsembleConv2d(3, 2, 4, 3, seeds=SEEDS)],
)
def test_groups_are_those_of_the_replicas(build, kind):
    layer = build()
    groups = layer_groups("layer", layer, kind)
    alone = [layer_groups("layer", layer.replica(e), kind) for e in range(3)]
    assert groups.count == alone[0].count
    assert groups.replicas == (3,)
    torch.testing.assert_close(groups.norms(), torch.stack([a.norms() for a in alone]))
    factor = torch.randint(2, (3, groups.count)).float()
    groups.scale_(factor)
    for e in range(3):
        alone[e].scale_(factor[e])
        for name, parameter in alone[e].module.named_parameters():
            assert torch.equal(layer.get_parameter(name)[e], parameter)


def test_groups_that_an_ensemble_has_not():
    with pytest.raises(ValueError, match="'heads'"):
        EnsembleLinear(2, 4, 3).trimmed_groups("heads")


class Forbidden(TorchDispatchMode):
    """Fails on what waits for the device or has a size that depends on values: no CUDA graph holds it."""

    names = ("_local_scalar_dense", "nonzero", "masked_select", "_unique", "is_nonzero", "equal", "_to_copy")

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.name().split("::")[1].split(".")[0]
        assert name not in self.names, name
        return function(*args, **(kwargs or {}))


PAIRS = [
    (EnsembleLinear, EnsembleConv2d),
    (EnsembleBayesLinear, EnsembleBayesConv2d),
    (EnsembleL0Linear, EnsembleL0Conv2d),
]


def total_loss(first, last, x, y):
    """The loss of a small network with all that its layers add."""
    features = over_replicas(functional.max_pool2d, torch.relu(first(x)), 2)
    logits = last(features.flatten(2))
    loss = sum_of_losses(logits, y, Recipe())
    model = nn.ModuleList([first, last])
    if hasattr(last, "log_alpha"):
        loss = loss + kl_loss(model, 100).sum() + last.sampled_weight().square().sum()
    if hasattr(last, "gate_logits"):
        loss = loss + l0_loss(model, 100).sum()
    return loss


@pytest.mark.parametrize(("linear", "conv"), PAIRS)
def test_a_step_never_waits_for_the_device(linear, conv):
    first, last = conv(2, 1, 3, 3, seeds=[0, 1]), linear(2, 12, 3, seeds=[0, 1])
    x, y = torch.randn(5, 1, 6, 6), torch.randint(3, (5,))
    with Forbidden():
        total_loss(first, last, x, y).backward()
    assert all(p.grad is not None for p in [*first.parameters(), *last.parameters()])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("linear", "conv"), PAIRS)
def test_a_step_can_be_captured_in_a_cuda_graph(linear, conv):
    form = {"seeds": [0, 1], "device": "cuda"}
    first, last = conv(2, 1, 3, 3, **form), linear(2, 12, 3, **form)
    optimizer = torch.optim.Adam([*first.parameters(), *last.parameters()], lr=0.01, capturable=True)
    x, y = torch.randn(5, 1, 6, 6, device="cuda"), torch.randint(3, (5,), device="cuda")

    def step():
        optimizer.zero_grad()
        loss = total_loss(first, last, x, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad()
    with torch.cuda.graph(graph):
        loss = step()
    losses = []
    for _ in range(50):
        graph.replay()
        losses.append(loss.item())
    assert all(map(math.isfinite, losses))
    assert sum(losses[-10:]) < sum(losses[:10])
    assert len(set(losses)) == 50  # the noise is drawn anew at every replay
