"""Hard-concrete gates against the formulas of Louizos, Welling and Kingma 2018."""

import math

import pytest
import torch
from scipy import integrate
from torch import nn
from torch.nn import functional

from trimreg.nn.layers.gates import (
    L0Conv2d,
    L0Linear,
    gated_layers,
    hard_concrete,
    l0_loss,
    open_probability,
    stretched,
)

BETA, GAMMA, ZETA = 2 / 3, -0.1, 1.1
FLOAT64 = {"dtype": torch.float64}
LOGITS = [-3.0, -0.5, 0.0, 2.0]


def set_logits(layer, values):
    with torch.no_grad():
        layer.gate_logits.copy_(torch.tensor(values))
    return layer


def concrete_density(s, logit):
    """Density of the concrete variable before the stretch (the paper's appendix)."""
    top = BETA * math.exp(logit) * s ** (-BETA - 1) * (1 - s) ** (-BETA - 1)
    return top / (math.exp(logit) * s**-BETA + (1 - s) ** -BETA) ** 2


# -- the distribution -----------------------------------------------------------------------------------


def cdf(x, logit):
    """Probability that a gate before clipping is at most x, by the integral of its density."""
    return integrate.quad(concrete_density, 0, (x - GAMMA) / (ZETA - GAMMA), args=(logit,), epsabs=1e-9)[0]


def test_a_gate_is_open_if_it_is_above_zero():
    logit = torch.linspace(-6, 6, 25, **FLOAT64)
    torch.testing.assert_close(open_probability(logit), torch.sigmoid(logit - BETA * math.log(-GAMMA / ZETA)))
    for value in LOGITS:
        got = open_probability(torch.tensor(value, **FLOAT64)).item()
        assert got == pytest.approx(1 - cdf(0.0, value), abs=1e-6)


@pytest.mark.parametrize("logit", LOGITS)
def test_samples_follow_the_cdf_with_atoms_at_both_ends(logit):
    n = 20_000
    z = hard_concrete(torch.full((n,), logit, **FLOAT64))
    assert z.min() >= 0
    assert z.max() <= 1
    for at in (0.0, 0.2, 0.5, 0.8, 0.999):
        expected = cdf(at, logit)
        share = (z <= at).double().mean().item()
        assert abs(share - expected) < 5 * math.sqrt(expected * (1 - expected) / n)
    ones = 1 - cdf(1.0, logit)
    assert abs((z == 1).double().mean().item() - ones) < 5 * math.sqrt(ones * (1 - ones) / n)


def test_samples_are_differentiable_and_finite_at_the_extremes():
    logit = torch.tensor([-60.0, -2.0, 0.0, 2.0, 60.0], requires_grad=True)
    z = torch.stack([hard_concrete(logit) for _ in range(200)])
    z.sum().backward()
    assert torch.isfinite(logit.grad).all()
    assert logit.grad[2] > 0
    assert logit.grad[[0, 4]].tolist() == [0.0, 0.0]


def test_stretched_clips():
    s = torch.tensor([0.0, 1 / 12, 0.5, 11 / 12, 1.0], **FLOAT64)
    torch.testing.assert_close(stretched(s), torch.tensor([0.0, 0.0, 0.5, 1.0, 1.0], **FLOAT64))


# -- layers ---------------------------------------------------------------------------------------------


def test_start_of_the_gates():
    layer = L0Linear(2000, 1, droprate=0.2)
    assert abs(layer.gate_logits.mean().item() - math.log(4)) < 1e-3
    assert abs(layer.gate_logits.std().item() - 0.01) < 1e-3
    assert L0Conv2d(3, 7, 3, droprate=0.5).gate_logits.shape == (7,)
    for wrong in (0.0, 1.0, -0.1, float("nan")):
        with pytest.raises(ValueError, match="droprate"):
            L0Linear(3, 2, droprate=wrong)


def test_gates_at_test_time():
    layer = set_logits(L0Linear(5, 2, **FLOAT64), [-2.5, -1.0, 0.0, 1.0, 2.5])
    s = torch.sigmoid(layer.gate_logits.detach())
    torch.testing.assert_close(layer.gates().detach(), (1.2 * s - 0.1).clamp(0, 1))
    assert layer.gates()[0] == 0
    assert layer.gates()[-1] == 1


@pytest.mark.parametrize("far", [1e3, -1e3])
def test_no_gate_is_lost_for_good(far):
    layer = set_logits(L0Linear(1, 1, **FLOAT64), [far])
    bound = math.copysign(math.log(100), far)
    torch.testing.assert_close(layer.expected_size(), open_probability(torch.tensor(bound, **FLOAT64)))
    (-layer.expected_size()).backward()  # asks for more
    assert (layer.gate_logits.grad == 0) == (far > 0)
    layer.gate_logits.grad = None
    layer.expected_size().backward()  # asks for less
    assert (layer.gate_logits.grad == 0) == (far < 0)


def test_a_linear_layer_gates_its_inputs_and_not_its_bias():
    layer = set_logits(L0Linear(4, 3), [9.0, -9.0, 0.0, 9.0]).eval()
    x = torch.randn(5, 4)
    gated = x * layer.gates()
    torch.testing.assert_close(layer(x), functional.linear(gated, layer.weight, layer.bias))
    torch.testing.assert_close(layer.plain()(x), layer(x))
    assert layer.plain().weight[:, 1].abs().max() == 0
    closed = set_logits(layer, [-9.0] * 4)
    assert torch.equal(closed(x), layer.bias.expand(5, 3))


def test_a_convolution_gates_its_channels_with_their_bias():
    layer = set_logits(L0Conv2d(2, 3, 3, stride=2, padding=1), [9.0, -9.0, 0.0]).eval()
    x = torch.randn(2, 2, 6, 6)
    y = functional.conv2d(x, layer.weight, layer.bias, stride=2, padding=1)
    torch.testing.assert_close(layer(x), y * layer.gates()[:, None, None])
    assert (layer(x)[:, 1] == 0).all()
    torch.testing.assert_close(layer.plain()(x), layer(x))
    without = set_logits(L0Conv2d(2, 3, 3, bias=False), [9.0, -9.0, 0.0]).eval()
    torch.testing.assert_close(without.plain()(x), without(x))


@pytest.mark.parametrize("build", [lambda: L0Linear(6, 3), lambda: L0Conv2d(1, 6, 1)])
def test_training_draws_gates_once_a_call(build):
    layer = build()
    x = torch.ones(4, 6) if isinstance(layer, nn.Linear) else torch.ones(4, 1, 1, 1)
    first, second = layer(x), layer(x)
    assert torch.equal(first[0], first[3])
    assert not torch.equal(first, second)
    assert torch.equal(layer.eval()(x), layer(x))


def test_sampled_outputs_have_the_mean_of_the_gates():
    layer = set_logits(L0Linear(3, 1, bias=False, **FLOAT64), [-1.0, 0.0, 1.0])
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 10.0, 100.0]]))
    x = torch.eye(3, **FLOAT64)
    draws = torch.stack([layer(x)[:, 0].detach() for _ in range(2000)]) / layer.weight[0].detach()
    for j, logit in enumerate([-1.0, 0.0, 1.0]):  # E z is the integral of P(z > x) over (0, 1)
        expected, _ = integrate.quad(lambda x, a=logit: 1 - cdf(x, a), 0, 1)
        assert abs(draws[:, j].mean().item() - expected) < 5 * 0.5 / math.sqrt(2000)


def test_expected_size_is_that_of_many_samples():
    layer = set_logits(L0Linear(4, 2, **FLOAT64), LOGITS)
    counts = torch.stack([(layer.sampled_gates() > 0).sum() for _ in range(3000)]).double()
    assert abs(counts.mean().item() - layer.expected_size().item()) < 5 * 1.0 / math.sqrt(3000)
    torch.testing.assert_close(layer.expected_size(), open_probability(torch.tensor(LOGITS, **FLOAT64)).sum())


# -- penalties ------------------------------------------------------------------------------------------


def test_penalty_of_a_linear_layer():
    layer = set_logits(L0Linear(4, 3, **FLOAT64), LOGITS)
    p = open_probability(layer.gate_logits)
    torch.testing.assert_close(layer.penalty(0.5), 0.5 * 3 * p.sum())
    squares = layer.weight.square().sum(0)
    torch.testing.assert_close(layer.penalty(0.5, weight_decay=0.1), (p * (1.5 + 0.05 * squares)).sum())
    assert torch.autograd.gradcheck(lambda logits: open_probability(logits).sum(), layer.gate_logits)


@pytest.mark.parametrize("bias", [True, False])
def test_penalty_of_a_convolution_counts_the_bias(bias):
    layer = set_logits(L0Conv2d(2, 4, (3, 2), bias=bias, **FLOAT64), LOGITS)
    p = open_probability(layer.gate_logits)
    entries = 12 + bias
    torch.testing.assert_close(layer.penalty(2.0), 2.0 * entries * p.sum())
    squares = layer.weight.square().sum((1, 2, 3)) + (layer.bias.square() if bias else 0)
    torch.testing.assert_close(layer.penalty(0.0, weight_decay=0.1), (p * 0.05 * squares).sum())


def test_l0_loss_sums_layers_with_their_strengths():
    model = nn.Sequential(L0Conv2d(1, 2, 2), nn.Flatten(), nn.Linear(8, 4), L0Linear(4, 3))
    assert list(gated_layers(model)) == ["0", "3"]
    first, last = model[0].penalty(1.0), model[3].penalty(1.0)
    torch.testing.assert_close(l0_loss(model, 10), (first + last) / 10)
    torch.testing.assert_close(l0_loss(model, 10, {"0": 2.0, "3": 0.5}), (2 * first + 0.5 * last) / 10)
    decay = model[0].penalty(0.1, 0.3) + model[3].penalty(0.1, 0.3)
    torch.testing.assert_close(l0_loss(model, 10, 0.1, weight_decay=0.3), decay / 10)


def test_input_of_l0_loss():
    model = nn.Sequential(L0Linear(4, 3), nn.ReLU(), L0Linear(3, 2))
    with pytest.raises(ValueError, match=r"\['0', '2'\]; got \['0'\]"):
        l0_loss(model, 10, {"0": 1.0})
    with pytest.raises(ValueError, match="ReLU has no layers with gates"):
        l0_loss(nn.ReLU(), 10)
    with pytest.raises(ValueError, match="number of training samples"):
        l0_loss(model, 0)


def test_a_gated_regression_keeps_the_inputs_that_matter():
    x = torch.randn(300, 6)
    y = x @ torch.tensor([[2.0], [0.0], [-1.0], [0.0], [0.0], [0.0]]) + 0.1 * torch.randn(300, 1)
    layer = L0Linear(6, 1, bias=False, droprate=0.5)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    for _ in range(500):
        optimizer.zero_grad()
        ((layer(x) - y).square().mean() + l0_loss(layer, 300, {"": 15.0})).backward()
        optimizer.step()
    assert (layer.gates() > 0).tolist() == [True, False, True, False, False, False]
    torch.testing.assert_close(
        layer.eval().plain().weight.detach()[0, [0, 2]], torch.tensor([2.0, -1.0]), atol=0.1, rtol=0.0
    )
