"""Bayesian layers against their formulas: divergence, moments, exact zeros, conversion of models."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import prune

from trimreg.nn.layers.bayes import (
    BayesConv2d,
    BayesLinear,
    bayesianize,
    kl_divergence,
    kl_loss,
    with_noise,
)
from trimreg.nn.layers.common import bounded
from trimreg.nn.layers.noise import divergence, log_uniform_kl, weight_variance

FLOAT64 = {"dtype": torch.float64}


def spread_log_alpha(layer):
    """Different spreads for different weights, some at the bound."""
    with torch.no_grad():
        layer.log_alpha.uniform_(-4.0, 0.5)
    return layer


# -- bounds ---------------------------------------------------------------------------------------------


def test_bounded_is_a_clip_whose_gradient_leads_back():
    x = torch.tensor([-3.0, -3.0, -2.0, -2.0, 0.0, 2.0, 2.0, 3.0, 3.0], requires_grad=True)
    slope = torch.tensor([1.0, -1.0, 1.0, -1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    y = bounded(x, -2.0, 2.0)
    assert torch.equal(y, x.clamp(-2.0, 2.0))
    y.backward(slope)
    assert x.grad.tolist() == [0.0, -1.0, 0.0, -1.0, -1.0, 1.0, 0.0, 1.0, 0.0]
    x.grad = None
    bounded(x).backward(slope)  # without bounds it is the identity
    assert torch.equal(bounded(x), x)
    assert torch.equal(x.grad, slope)


@pytest.mark.parametrize("start", [-0.05, 0.3])
def test_a_spread_above_the_bound_can_be_learnt_down(start):
    log_alpha = torch.tensor([start], requires_grad=True)
    optimizer = torch.optim.SGD([log_alpha], lr=0.1)
    for _ in range(50):
        optimizer.zero_grad()
        (bounded(log_alpha, high=0.0) + 1.0).square().sum().backward()
        optimizer.step()
    assert abs(log_alpha.item() + 1.0) < 1e-2


# -- divergence -----------------------------------------------------------------------------------------


def test_kl_is_the_polynomial():
    log_alpha = torch.linspace(-12, 0, 25, **FLOAT64)
    a = log_alpha.exp()
    expected = -(0.5 * log_alpha + 1.16145124 * a - 1.50204118 * a**2 + 0.58629921 * a**3)
    torch.testing.assert_close(log_uniform_kl(log_alpha), expected)


def test_kl_has_the_right_first_and_second_slopes():
    log_alpha = torch.linspace(-12, 0, 25, **FLOAT64, requires_grad=True)
    assert torch.autograd.gradcheck(log_uniform_kl, log_alpha)
    assert torch.autograd.gradgradcheck(log_uniform_kl, log_alpha)


@pytest.mark.parametrize("leading", [0, 1])
def test_variance_and_divergence_have_the_slopes_of_their_formulas(leading):
    """Both signs of the slope, some entries at the bound, where it must not lead out."""
    generator = torch.Generator().manual_seed(0)
    log_alpha, weight, slope = (torch.randn(3, 4, 5, generator=generator, **FLOAT64) for _ in range(3))
    log_alpha[0, 0] = 0.0
    found = []
    for own in (True, False):
        a, w = log_alpha.clone().requires_grad_(), weight.clone().requires_grad_()
        bound, again = bounded(a, high=0.0), bounded(a, high=0.0)  # each stops its own slope
        parts = (bound.exp() * w.square(), log_uniform_kl(again).flatten(leading).sum(-1))
        variance, total = (weight_variance(a, w), divergence(a, leading)) if own else parts
        value = (variance * slope).sum() + (total * slope.flatten()[: total.numel()].view(total.shape)).sum()
        first = torch.autograd.grad(value, (a, w), create_graph=True)
        second = torch.autograd.grad(sum(one.square().sum() for one in first), (a, w), retain_graph=True)
        value.backward()
        inside = [one[log_alpha < 0.0] for one in second]  # at the bound there are no second slopes
        found.append((value.detach(), *first, *inside, a.grad, w.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_kl_is_near_the_true_divergence_up_to_a_constant():
    """-KL = log(alpha)/2 - E log|1 + sqrt(alpha) e| + constant; Kingma's fit is good to a few hundredths."""
    e = np.linspace(-12, 12, 400_000)  # no point of the grid meets the pole of the logarithm
    density = np.exp(-0.5 * e**2) / math.sqrt(2 * math.pi) * (e[1] - e[0])
    alphas = np.array([1e-4, 0.01, 0.1, 0.3, 0.6, 1.0])
    mean_log = [density @ np.log(np.abs(1 + math.sqrt(alpha) * e)) for alpha in alphas]
    approximate = log_uniform_kl(torch.tensor(np.log(alphas))).numpy()
    off = approximate - (mean_log - 0.5 * np.log(alphas))
    assert np.ptp(off) < 0.041
    assert np.ptp(approximate) > 4


def test_kl_of_layers_and_models():
    model = nn.Sequential(BayesConv2d(2, 3, 3), nn.Flatten(), BayesLinear(12, 5), nn.Linear(5, 2))
    for layer in (model[0], model[2]):
        spread_log_alpha(layer)
    kls = [log_uniform_kl(layer.log_alpha.clamp(max=0)).sum() for layer in (model[0], model[2])]
    torch.testing.assert_close(model[0].kl(), kls[0])
    torch.testing.assert_close(kl_divergence(model), kls[0] + kls[1])
    torch.testing.assert_close(kl_loss(model, 60), (kls[0] + kls[1]) / 60)
    torch.testing.assert_close(kl_loss(model, 60, kl="paper"), (kls[0] / 54 + kls[1] / 60) / 3)


def test_kl_is_summed_in_float32_for_bfloat16():
    layer = BayesLinear(300, 300, dtype=torch.bfloat16)
    assert layer.kl().dtype == torch.float32
    assert abs(layer.kl().item() / 90_000 - 5.0) < 1e-3


def test_kl_pulls_the_spread_up_to_one_and_no_further():
    layer = BayesLinear(3, 2, initial_log_alpha=-2.0)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        layer.kl().backward()
        optimizer.step()
    assert ((layer.log_alpha >= 0) & (layer.log_alpha < 0.5)).all()  # momentum oversteps a little
    assert (layer.bounded_log_alpha() == 0).all()


def test_input_of_kl_loss():
    with pytest.raises(ValueError, match="no Bayesian layers"):
        kl_divergence(nn.Linear(2, 2))
    for wrong in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="number of training samples"):
            kl_loss(BayesLinear(2, 2), wrong)
    with pytest.raises(ValueError, match="'mean'"):
        kl_loss(BayesLinear(2, 2), 10, kl="mean")
    for wrong in (0.1, -math.inf, math.nan):
        with pytest.raises(ValueError, match="initial_log_alpha"):
            BayesLinear(2, 2, initial_log_alpha=wrong)


# -- noise ----------------------------------------------------------------------------------------------


def assert_moments(draws, mean, variance, sds=5.0):
    """Means and variances of many normal draws (first axis), each within ``sds`` of its own spread."""
    n = draws.shape[0]
    off = (draws.mean(0) - mean).abs() / (variance / n).sqrt()
    assert off.max() < sds
    off = (draws.var(0) / variance - 1).abs() / math.sqrt(2 / n)
    assert off.max() < sds


def test_sampled_weight_moments():
    layer = spread_log_alpha(BayesLinear(4, 3, **FLOAT64))
    draws = torch.stack([layer.sampled_weight().detach() for _ in range(500)])
    variance = layer.log_alpha.clamp(max=0).exp() * layer.weight.square()
    assert_moments(draws, layer.weight.detach(), variance.detach())
    torch.testing.assert_close(layer.weight_variance(), variance)


def test_sampled_weight_is_differentiable():
    layer = BayesLinear(4, 3, initial_log_alpha=-2.0, **FLOAT64)
    draw = layer.sampled_weight()
    draw.sum().backward()
    noise = (draw / layer.weight - 1).detach()  # sqrt(alpha) e
    torch.testing.assert_close(layer.weight.grad, 1 + noise)
    torch.testing.assert_close(layer.log_alpha.grad, (0.5 * layer.weight * noise).detach())


def test_pre_activations_of_a_linear_layer_have_the_moments_of_sampled_weights():
    layer = spread_log_alpha(BayesLinear(5, 3, **FLOAT64))
    x = torch.randn(2, 5, **FLOAT64)
    x[0, 2] = 0.0
    mean = functional.linear(x, layer.weight, layer.bias).detach()
    variance = functional.linear(x**2, layer.log_alpha.clamp(max=0).exp() * layer.weight**2).detach()
    local = layer(x.expand(2000, 2, 5)).detach()
    assert_moments(local, mean, variance)
    draws = [functional.linear(x, layer.sampled_weight(), layer.bias).detach() for _ in range(500)]
    assert_moments(torch.stack(draws), mean, variance)


@pytest.mark.parametrize("padding_mode", ["zeros", "circular"])
def test_pre_activations_of_a_convolution_have_the_moments_of_sampled_weights(padding_mode):
    form = {"stride": 2, "padding": 1, "padding_mode": padding_mode}
    layer = spread_log_alpha(BayesConv2d(2, 3, 3, **form, **FLOAT64))
    x = torch.randn(1, 2, 5, 5, **FLOAT64)
    local = layer(x.expand(1000, 2, 5, 5)).detach()
    plain = layer.plain()
    draws = []
    with torch.no_grad():
        mean = layer.eval()(x)[0]
        for _ in range(400):
            plain.weight.copy_(layer.sampled_weight())
            draws.append(plain(x)[0])
        plain.weight.copy_(layer.weight_variance())
        plain.bias.zero_()
        variance = functional.pad(
            x**2, (1, 1, 1, 1), mode="circular" if padding_mode == "circular" else "constant"
        )
        variance = functional.conv2d(variance, plain.weight, stride=2)[0]
    assert_moments(local, mean, variance)
    assert_moments(torch.stack(draws), mean, variance)


def test_noise_is_fresh_for_every_sample_and_call():
    layer = BayesLinear(4, 3, initial_log_alpha=-1.0)
    y = layer(torch.ones(6, 4))
    assert len(torch.unique(y)) == y.numel()
    assert not torch.isclose(y, layer(torch.ones(6, 4))).any()


def test_evaluation_is_the_mean():
    layer = spread_log_alpha(BayesLinear(4, 3)).eval()
    x = torch.randn(6, 4)
    assert torch.equal(layer(x), functional.linear(x, layer.weight, layer.bias))
    conv = spread_log_alpha(BayesConv2d(2, 3, 3)).eval()
    x = torch.randn(2, 2, 6, 6)
    assert torch.equal(conv(x), functional.conv2d(x, conv.weight, conv.bias))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_no_variance_means_no_noise_and_no_nan(dtype):
    variance = torch.tensor([0.0, 0.0, 1.0], dtype=dtype, requires_grad=True)
    y = with_noise(torch.tensor([0.0, 3.0, 5.0], dtype=dtype), variance)
    assert y[:2].tolist() == [0.0, 3.0]
    assert y[2] != 5.0
    y.sum().backward()
    assert torch.isfinite(variance.grad).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_cut_groups_are_exactly_zero_and_have_zero_gradient_of_the_spread(dtype):
    linear = BayesLinear(4, 3, dtype=dtype, initial_log_alpha=-1.0)
    conv = BayesConv2d(1, 3, 3, dtype=dtype, initial_log_alpha=-1.0)
    with torch.no_grad():
        linear.weight[:, 1] = 0.0  # an input unit
        linear.weight[2] = 0.0  # and a whole output
        linear.bias[2] = 0.0
        conv.weight[1] = 0.0
        conv.bias[1] = 0.0
    x = torch.randn(5, 4, dtype=dtype, requires_grad=True)
    y = linear(x)
    assert (y[:, 2] == 0).all()
    images = torch.randn(2, 1, 5, 5, dtype=dtype)
    z = conv(images)
    assert (z[:, 1] == 0).all()
    (y.square().sum() + y.sum() + z.square().sum() + z.sum()).backward()
    for layer in (linear, conv):
        for parameter in layer.parameters():
            assert torch.isfinite(parameter.grad).all()
    assert (linear.log_alpha.grad[:, 1] == 0).all()
    assert (linear.log_alpha.grad[2] == 0).all()
    assert (linear.sampled_weight()[:, 1] == 0).all()
    assert (conv.log_alpha.grad[1] == 0).all()
    assert torch.isfinite(x.grad).all()
    assert (x.grad[:, 1] == 0).all()


def test_an_input_of_zeros_has_finite_gradients():
    layer = BayesLinear(4, 3, initial_log_alpha=-1.0)
    x = torch.zeros(5, 4, requires_grad=True)
    y = layer(x)
    assert torch.equal(y, layer.bias.expand(5, 3))
    y.sum().backward()
    for gradient in (x.grad, layer.weight.grad, layer.log_alpha.grad):
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("scale", [1e-12, 1e-4, 1e6])
def test_noise_scales_with_the_weights(scale):
    layer = BayesLinear(4, 3, initial_log_alpha=-1.0, bias=False)
    state = torch.get_rng_state()
    y = layer(torch.ones(5, 4))
    with torch.no_grad():
        layer.weight.mul_(scale)
    torch.set_rng_state(state)
    torch.testing.assert_close(layer(torch.ones(5, 4)), y * scale, atol=0.0, rtol=1e-4)


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16])
def test_under_autocast_the_variance_is_that_of_float32(low):
    layer = BayesLinear(4, 3, bias=False, initial_log_alpha=-10.0)
    with torch.no_grad():
        layer.weight.fill_(0.01)  # alpha phi^2 = 4.5e-9 is 0 in float16
    with torch.autocast("cpu", dtype=low):
        y = layer(torch.full((4000, 4), 1.0))
        assert y.dtype == low
    deviation = 0.02 * math.exp(-5)  # sqrt(4 alpha phi^2)
    rounding = torch.finfo(low).eps * 0.04 / math.sqrt(12)
    assert abs(y.float().std().item() / math.hypot(deviation, rounding) - 1) < 0.1
    y.float().square().sum().backward()
    assert torch.isfinite(layer.weight.grad).all()


HALF = [torch.float16, torch.bfloat16]


@pytest.mark.parametrize(
    ("dtype", "log_alpha", "scale"),
    [(HALF[i % 2], log_alpha, scale) for i, (log_alpha, scale) in enumerate(
        [(-1.0, 1.0), (-10.0, 1.0), (-10.0, 0.01), (-1.0, 0.01), (-1.0, 0.001), (-10.0, 0.001)]
    )],
)  # fmt: skip
def test_layers_in_half_precision_have_the_deviation_of_float32(dtype, log_alpha, scale):
    form = {"bias": False, "dtype": dtype, "initial_log_alpha": log_alpha}
    signs = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=dtype)  # the mean is 0: its rounding is no noise
    deviation = 2 * scale * math.exp(log_alpha / 2)
    for layer, x in [
        (BayesLinear(4, 3, **form), signs.expand(4000, 4)),
        (BayesConv2d(4, 3, 1, **form), signs.reshape(4, 1, 1).expand(4000, 4, 1, 1)),
    ]:
        with torch.no_grad():
            layer.weight.fill_(scale)
        y = layer(x)
        assert y.dtype == dtype
        assert abs(y.float().std().item() / deviation - 1) < 0.05
        y.float().square().mean().backward()
        # E y^2 = 3 * 4 alpha phi^2 / 3 at mean 0: its slope in log_alpha is alpha phi^2 / 3 an entry.
        expected = math.exp(log_alpha) * scale**2 / 3
        if expected > 1e-6:  # else float16 has no such gradient
            slopes = layer.log_alpha.grad.float()
            torch.testing.assert_close(slopes, torch.full_like(slopes, expected), rtol=0.1, atol=0)
        assert torch.isfinite(layer.weight.grad).all()


@pytest.mark.parametrize("dtype", HALF)
def test_layers_in_half_precision_under_autocast(dtype):
    layer = BayesLinear(4, 3, bias=False, dtype=dtype, initial_log_alpha=-1.0)
    with torch.no_grad():
        layer.weight.fill_(0.001)
    x = torch.tensor([1.0, -1.0, 1.0, -1.0]).expand(4000, 4)
    for low in HALF:
        with torch.autocast("cpu", dtype=low):
            y = layer(x)
        assert y.dtype == low
        assert abs(y.float().std().item() / (0.002 * math.exp(-0.5)) - 1) < 0.05


@pytest.mark.filterwarnings(
    "ignore:.*should not be instantiated:DeprecationWarning"
)  # by the compiler itself
def test_a_compiled_layer_trains():
    layer = spread_log_alpha(BayesLinear(4, 3))

    def loss(x):
        return layer(x).square().mean() + layer.kl() / 100

    state = torch.get_rng_state()
    loss(torch.ones(5, 4)).backward()
    expected = layer.log_alpha.grad.clone()
    layer.zero_grad()
    torch.set_rng_state(state)
    torch.compile(loss, backend="aot_eager", fullgraph=True)(torch.ones(5, 4)).backward()
    torch.testing.assert_close(layer.log_alpha.grad, expected)


# -- conversion -----------------------------------------------------------------------------------------


class Network(nn.Module):
    """Nested layers of several kinds."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 3, 3, stride=2, padding=1, bias=False), nn.ReLU())
        self.head = nn.ModuleDict({"first": nn.Linear(12, 5), "last": nn.Linear(5, 2)})
        self.norm = nn.BatchNorm1d(5)

    def forward(self, x):
        x = self.features(x).flatten(1)
        return self.head["last"](torch.relu(self.norm(self.head["first"](x))))


def test_bayesianize_keeps_values_and_parameters():
    model = Network().to(torch.float64).eval()
    x = torch.randn(4, 1, 4, 4, **FLOAT64)
    before, parameters = model(x), dict(model.named_parameters())
    assert bayesianize(model, initial_log_alpha=-3.0) is model
    after = dict(model.named_parameters())
    assert all(after[name] is parameter for name, parameter in parameters.items())
    assert set(after) - set(parameters) == {
        "features.0.log_alpha", "head.first.log_alpha", "head.last.log_alpha",
    }  # fmt: skip
    assert type(model.features[0]) is BayesConv2d
    assert type(model.head["last"]) is BayesLinear
    assert model.head["last"].log_alpha.dtype == torch.float64
    assert (model.head["last"].log_alpha == -3.0).all()
    assert torch.equal(model(x), before)
    assert not torch.equal(model.train()(x), model(x))


def test_bayesianize_by_name_and_pattern():
    model = bayesianize(Network(), names="head.last")
    assert [type(m) for m in model.head.values()] == [nn.Linear, BayesLinear]
    assert type(model.features[0]) is nn.Conv2d
    model = bayesianize(Network(), names=["head.*", "features.0"])
    assert [type(m) for m in model.head.values()] == [BayesLinear, BayesLinear]
    assert type(model.features[0]) is BayesConv2d


def test_bayesianize_of_one_layer_and_of_a_shared_one():
    layer = nn.Linear(3, 3)
    model = nn.Sequential(layer, nn.ReLU(), layer)
    bayesianize(model)
    assert model[0] is model[2] is layer
    assert type(layer) is BayesLinear
    assert type(bayesianize(nn.Linear(3, 2))) is BayesLinear


def test_bayesianize_leaves_the_projections_of_attention_alone():
    """Attention reads the weight of its last projection past the layer's forward."""
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    bayesianize(model)
    assert type(model.linear1) is type(model.linear2) is BayesLinear
    assert not isinstance(model.self_attn.out_proj, BayesLinear)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("nowhere", "'nowhere'.*head.first"),
        ("norm*", r"'norm\*'"),
        ("norm", "layer 'norm' is a BatchNorm1d"),
        (["head.first", "features.1"], "layer 'features.1' is a ReLU"),
    ],
)
def test_bayesianize_errors_name_the_layer_and_change_nothing(names, message):
    model = Network()
    with pytest.raises(ValueError, match=message):
        bayesianize(model, names=names)
    assert type(model.head["first"]) is nn.Linear


def test_bayesianize_refuses_what_it_cannot_convert():
    with pytest.raises(ValueError, match="ReLU has no nn"):
        bayesianize(nn.ReLU())
    with pytest.raises(ValueError, match="layer '' is a BayesLinear"):
        bayesianize(BayesLinear(3, 2), names="")
    model = Network()
    prune.l1_unstructured(model.head["first"], "weight", 3)
    with pytest.raises(ValueError, match=r"weight of layer 'head\.first'"):
        bayesianize(model)
    assert type(model.features[0]) is nn.Conv2d
    model = Network()
    with pytest.raises(ValueError, match="initial_log_alpha"):
        bayesianize(model, initial_log_alpha=1.0)
    assert type(model.head["first"]) is nn.Linear


def test_bayesianize_refuses_a_weight_of_two_layers():
    model = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Embedding(3, 3), "c": nn.Linear(3, 2)})
    model["b"].weight = model["a"].weight
    for names in (None, "*", "a", ["a", "c"]):
        with pytest.raises(ValueError, match=r"layer 'a': weight is shared: it is 'a.weight' and 'b.weight'"):
            bayesianize(model, names=names)
    assert type(model["c"]) is nn.Linear
    assert type(bayesianize(model, names="c")["c"]) is BayesLinear


@pytest.mark.parametrize("lazy", [lambda: nn.LazyLinear(2), lambda: nn.LazyConv2d(2, 1)])
def test_bayesianize_refuses_a_lazy_layer_until_it_has_run(lazy):
    model = nn.Sequential(nn.Linear(3, 3), lazy())
    for names in (None, "1", "?"):
        with pytest.raises(ValueError, match=r"layer '1' is lazy .* run the model on a batch"):
            bayesianize(model, names=names)
    assert type(model[0]) is nn.Linear
    assert type(bayesianize(model, names="0")[0]) is BayesLinear
    model.eval()(torch.ones(3, 5, 3))
    bayesianize(model, names="1")
    assert type(model[1]) in (BayesLinear, BayesConv2d)


def test_bayesianize_leaves_frozen_layers_as_they_are():
    def network():
        model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
        model[0].requires_grad_(False)
        return model

    for names in (None, "*", ["*", "2"]):
        model = bayesianize(network(), names=names)
        assert [type(layer) for layer in model] == [nn.Linear, nn.ReLU, BayesLinear]
    model = network()
    for names in ("0", ["2", "0"], ["*", "0"]):
        with pytest.raises(ValueError, match="layer '0': weight is frozen"):
            bayesianize(model, names=names)
    assert type(model[2]) is nn.Linear
    with pytest.raises(ValueError, match=r"\['0', '2'\] are all frozen"):
        bayesianize(model.requires_grad_(False))


def test_plain_layers_hold_the_means_apart():
    for layer, x in [
        (BayesLinear(4, 3, bias=False), torch.randn(5, 4)),
        (
            BayesConv2d(2, 4, 3, stride=2, padding=1, groups=2, padding_mode="reflect"),
            torch.randn(2, 2, 6, 6),
        ),
    ]:
        state = torch.get_rng_state()
        plain = layer.eval().plain()
        assert torch.equal(torch.get_rng_state(), state)
        assert type(plain) in (nn.Linear, nn.Conv2d)
        expected = layer(x)
        assert torch.equal(plain(x), expected)
        with torch.no_grad():
            plain.weight.zero_()
        assert torch.equal(layer(x), expected)


def test_state_and_copies():
    model = bayesianize(Network())
    spread_log_alpha(model.head["first"])
    other = bayesianize(Network())
    other.load_state_dict(model.state_dict())
    twin = copy.deepcopy(model)
    for made in (other, twin):
        assert torch.equal(made.head["first"].log_alpha, model.head["first"].log_alpha)
    assert twin.head["first"].log_alpha is not model.head["first"].log_alpha


def test_a_bayesian_regression_finds_the_coefficients_and_drops_the_noise():
    x = torch.randn(400, 6)
    y = x @ torch.tensor([[2.0], [-1.0], [0.0], [0.0], [0.0], [0.0]]) + 0.1 * torch.randn(400, 1)
    layer = BayesLinear(6, 1, bias=False, initial_log_alpha=-3.0)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    for _ in range(600):
        optimizer.zero_grad()
        (50 * (layer(x) - y).square().mean() + kl_loss(layer, 400)).backward()  # noise of deviation 0.1
        optimizer.step()
    np.testing.assert_allclose(layer.weight.detach()[0, :2], [2.0, -1.0], atol=0.05)
    spread = layer.bounded_log_alpha().detach()[0]
    assert spread[:2].max() < -3.5
    assert spread[2:].min() > -1.5
