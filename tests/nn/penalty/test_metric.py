"""The proximal step in Adam's metric, against brute force and against its optimality conditions."""

import copy

import numpy as np
import pytest
import torch
from scipy.optimize import brentq, minimize
from torch import nn

from trimreg.nn import TrimmedGroupL1
from trimreg.nn.penalty.metric import adam_metric, diagonal_prox_factors


def prox(z, d, t):
    """The step on rows of z, each a group."""
    factors, alive = diagonal_prox_factors([z], [d], [[1]], t, lambda k, x: x[:, None])
    return factors[0] * z, alive


def exact(z, d, t):
    """One group, by bisection on the norm of the solution in NumPy."""
    if np.linalg.norm(d * z) <= t:
        return np.zeros_like(z)
    if t == 0:
        return z
    norm = brentq(
        lambda n: np.sum((d * z / (d * n + t)) ** 2) - 1, 0, np.linalg.norm(z), xtol=1e-300, rtol=1e-15
    )
    return d * z * norm / (d * norm + t)


@pytest.mark.parametrize("spread", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("seed", range(4))
def test_the_step_is_exact(seed, spread):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(40, 7, generator=generator, dtype=torch.float64)
    z[0], z[1, 1:] = 0.0, 0.0
    d = torch.exp(spread * torch.randn(40, 7, generator=generator, dtype=torch.float64))
    t = torch.linalg.vector_norm(d * z, dim=1) * torch.linspace(0, 1.2, 40, dtype=torch.float64)
    x, alive = prox(z, d, t)
    expected = np.array([exact(*row) for row in zip(z.numpy(), d.numpy(), t.numpy(), strict=True)])
    np.testing.assert_allclose(x, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(alive[1:], (expected != 0).any(1)[1:])


def test_the_step_minimizes_its_objective():
    rng = np.random.default_rng(0)
    for t in (0.05, 0.5, 2.0):
        z, d = rng.standard_normal(5), np.exp(rng.standard_normal(5))

        def objective(x, z=z, d=d, t=t):
            return 0.5 * np.sum(d * (x - z) ** 2) + t * np.linalg.norm(x)

        x, _ = prox(*(torch.from_numpy(a)[None] for a in (z, d)), torch.tensor([t], dtype=torch.float64))
        found = minimize(
            objective, z, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 20_000}
        )
        assert objective(x[0].numpy()) <= found.fun + 1e-10
        np.testing.assert_allclose(x[0], found.x, atol=2e-4)


def test_float32_stays_finite_where_adam_has_seen_no_gradient():
    z = torch.tensor([[0.1, -0.2, 0.3], [0.1, 0.1, 0.1]])
    d = torch.tensor([[1e-8, 1e-8, 1e-2], [1e-8, 1e-8, 1e-8]])
    x, alive = prox(z, d, torch.tensor([1e-4, 1e-4]))
    assert torch.isfinite(x).all()
    assert alive.tolist() == [True, False]
    np.testing.assert_allclose(
        x[0], exact(z[0].double().numpy(), d[0].double().numpy(), 1e-4), rtol=1e-4, atol=1e-9
    )


def test_no_threshold_leaves_and_an_infinite_one_cuts():
    z = torch.tensor([[3.0, 4.0], [3.0, 4.0], [0.0, 0.0]])
    x, alive = prox(z, torch.full_like(z, 0.3), torch.tensor([0.0, torch.inf, 0.0]))
    torch.testing.assert_close(x, torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, 0.0]]))
    assert alive.tolist() == [True, False, True]


def test_equal_entries_of_the_metric_are_group_soft_thresholding():
    z = torch.randn(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    x, _ = prox(z, torch.full_like(z, 0.5), torch.full((9,), 0.6, dtype=torch.float64))
    r = z.norm(dim=1, keepdim=True)
    torch.testing.assert_close(x, z * (1 - 1.2 / r).clamp(min=0))


@pytest.mark.parametrize("beta", [0.0, 0.9, 0.999, 0.9999])
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_the_metric_has_all_digits_from_the_first_steps(beta, steps):
    """Adam counts its steps in float32; 1 - beta^step must not be taken there."""
    layer = nn.Linear(3, 2, dtype=torch.float64)
    optimizer = torch.optim.Adam(layer.parameters(), betas=(0.9, beta))
    for _ in range(steps):
        layer.weight.grad = torch.full((2, 3), 0.5, dtype=torch.float64)
        optimizer.step()
    d = adam_metric(optimizer, layer.weight, optimizer.param_groups[0])
    torch.testing.assert_close(d, torch.full_like(d, 0.5 + 1e-8), rtol=1e-11, atol=0.0)


@pytest.mark.parametrize("options", [{}, {"amsgrad": True}, {"foreach": True}, {"fused": True}])
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
def test_the_metric_is_what_adam_divides_by(kind, options):
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(4, 3, dtype=torch.float64))
    optimizer = kind([weight], lr=0.01, betas=(0.0, 0.9), weight_decay=0.0, **options)
    group = optimizer.param_groups[0]
    assert adam_metric(optimizer, weight, group) is None
    for _ in range(3):
        before = weight.detach().clone()
        weight.grad = torch.randn(4, 3, dtype=torch.float64)
        optimizer.step()
        step = 0.01 * weight.grad / adam_metric(optimizer, weight, group)
        torch.testing.assert_close(before - weight.detach(), step)


@pytest.mark.parametrize("mode", ["exact", "bcd"])
def test_a_training_step_in_the_metric(mode):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 6, 3)).double()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    penalty = TrimmedGroupL1(model, {"0": 2}, alpha=0.2, mode=mode, metric="optimizer", tau=0.1)
    w = penalty.weights()["0"]
    x = torch.randn(3, 2, 5, 5, dtype=torch.float64)
    model(x).square().sum().backward()
    optimizer.step()
    twin = copy.deepcopy(model[0].weight)
    other = torch.optim.Adam([twin], lr=0.01)
    state = copy.deepcopy(optimizer.state_dict())
    other.load_state_dict({
        "state": {0: state["state"][0]}, "param_groups": [state["param_groups"][0] | {"params": [0]}],
    })  # fmt: skip
    penalty.attach(optimizer)
    optimizer.zero_grad()
    model(x).square().sum().backward()
    twin.grad = model[0].weight.grad.clone()
    optimizer.step()
    other.step()
    z = twin.detach().flatten(1).numpy()
    d = adam_metric(other, twin, other.param_groups[0]).flatten(1).numpy()
    if mode == "exact":
        order = np.argsort(-np.linalg.norm(z, axis=1))
        weights = np.ones(6)
        weights[order[:2]] = 0.0
    else:
        weights = w.numpy()
    expected = np.array([exact(z[g], d[g], 0.01 * 0.2 * weights[g]) for g in range(6)])
    np.testing.assert_allclose(model[0].weight.detach().flatten(1), expected, rtol=1e-9, atol=1e-13)
