"""Compact networks: data, projections, steps, and whole fits, against plain NumPy and autograd."""

from itertools import permutations

import numpy as np
import pytest
import torch

from trimreg.penalties import project_capped_simplex
from trimreg_reproduction.networks import compact
from trimreg_reproduction.networks.compact import (
    f1,
    gradient,
    homotopy_step,
    largest_mask,
    loss,
    match_rows,
    minimize,
    project_l0,
    project_l1,
    repeated,
    teachers,
    trimmed_step,
)

SMALL = {"p": 8, "z": 2, "k": 4}


def soft(values, threshold):
    return np.sign(values) * np.maximum(np.abs(values) - threshold, 0.0)


def matrices(seed, count=4, shape=(3, 5)):
    """Random ones, ones with ties, with zeros, and of other scales."""
    rng = np.random.default_rng(seed)
    W = rng.standard_normal((count, *shape))
    W[1] = rng.integers(-2, 3, shape)
    W[2] *= rng.random(shape) < 0.4
    W[3] *= 1e3
    return torch.tensor(W)


# -- data ---------------------------------------------------------------------------------------------------


def test_data_are_those_of_the_paper():
    X, y, truth, start = teachers(range(30), 40, "random")
    assert X.shape == (30, 40, 80)
    assert start.shape == truth.shape == (30, 20, 80)
    places = np.kron(np.eye(20, dtype=bool), np.ones(4, dtype=bool))
    assert all(np.array_equal(W != 0, places) for W in truth.numpy())
    assert float(truth[truth != 0].var()) == pytest.approx(80 / (4 * 20), rel=0.1)
    assert float(start.var()) == pytest.approx(1 / 20, rel=0.05)
    assert float(X.var()) == pytest.approx(1.0, rel=0.05)
    by_hand = np.maximum(X[3].double().numpy() @ truth[3].double().numpy().T, 0.0).sum(axis=1)
    assert np.allclose(y[3].numpy(), by_hand, rtol=1e-5)


def test_a_replicate_has_the_data_of_its_seed_alone():
    together, alone = teachers([7, [8, 1]], 12, "good"), teachers([[8, 1]], 12, "good")
    for many, one in zip(together, alone, strict=True):
        assert torch.equal(many[1:], one)
    other = teachers([[8, 1]], 12, "random")
    assert torch.equal(other.X, alone.X)
    assert torch.equal(other.truth, alone.truth)
    assert torch.allclose(alone.start - alone.truth, other.start, atol=1e-6)
    with pytest.raises(ValueError, match="start must be one of"):
        teachers([0], 12, "bad")


def test_the_gradient_is_autograd_s():
    X, y, _, start = teachers([0, 1, 2], 30, "random", p=9, z=3, k=3)
    W = start.double().requires_grad_()
    loss(W, X.double(), y.double()).sum().backward()
    found = gradient(W.detach(), X.double(), y.double())
    assert torch.allclose(found, W.grad, rtol=1e-12, atol=1e-14)
    assert found.abs().max() > 0.01


def test_a_unit_without_weights_can_come_back():
    X, y, truth, _ = teachers([0], 200, "good", **SMALL)
    W = truth.clone()
    W[0, 1] = 0.0
    residual = torch.relu(X[0] @ truth[0, 1])
    assert torch.allclose(gradient(W, X, y)[0, 1], -residual @ X[0] / 200, atol=1e-5)
    found = minimize(compact.Teachers(X, y, truth, W), "trimmed", 1500, 8).W
    assert torch.allclose(found, truth, atol=2e-3)


# -- projections --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("h", [0, 1, 4, 15])
def test_the_l0_ball(h):
    W = matrices(h)
    found = project_l0(W, h)
    for one, near in zip(W.flatten(1).numpy(), found.flatten(1).numpy(), strict=True):
        assert np.array_equal(near[near != 0], one[near != 0])
        assert (near != 0).sum() == min(h, (one != 0).sum())
        # What was cut is the least that can be cut.
        assert ((one - near) ** 2).sum() == pytest.approx(np.sort(one**2)[: 15 - h].sum())


@pytest.mark.parametrize("part", [0.0, 0.01, 0.5, 0.999, 1.0, 2.0])
def test_the_l1_ball(part):
    W = matrices(0)
    radius = part * W.abs().sum((1, 2))
    found = project_l1(W, radius)
    rng = np.random.default_rng(0)
    for one, near, size in zip(W.flatten(1).numpy(), found.flatten(1).numpy(), radius.numpy(), strict=True):
        if part >= 1.0:
            assert np.allclose(near, one, rtol=1e-12)
            continue
        assert np.abs(near).sum() == pytest.approx(size, rel=1e-9, abs=1e-12)
        # No point of the ball lies on the far side of the projection: its corners, and points between.
        corners = size * np.concatenate([np.eye(15), -np.eye(15)])
        inside = rng.dirichlet(np.ones(30), size=20) @ corners
        for other in [*corners, *inside]:
            assert (one - near) @ (other - near) <= 1e-9 * (1.0 + (one**2).sum())


def test_the_l1_ball_has_a_radius_for_each_replicate():
    W = torch.tensor([[[4.0, -2.0]], [[4.0, -2.0]]])
    assert project_l1(W, torch.tensor([2.0, 5.0])).tolist() == [[[2.0, 0.0]], [[3.5, -1.5]]]


# -- steps --------------------------------------------------------------------------------------------------


def test_the_trimmed_step_is_algorithm_1():
    X, y, _, W = (tensor.double() for tensor in teachers([0, 1], 30, "random", p=9, z=3, k=3))
    w = torch.full((2, 27), 20 / 27, dtype=torch.float64)
    for _ in range(5):
        weights = [
            project_capped_simplex(one.numpy() - 0.3 * np.abs(theta.numpy()).ravel(), 20)
            for one, theta in zip(w, W, strict=True)
        ]
        moved = W.numpy() - 0.05 * gradient(W, X, y).numpy()
        expected = soft(moved, 0.05 * 0.7 * np.reshape(weights, W.shape))
        W, w = trimmed_step(W, w, X, y, 7, alpha=0.7, tau=0.3, eta=0.05)
        assert np.allclose(w.numpy(), weights, atol=1e-12)
        assert np.allclose(W.numpy(), expected, atol=1e-12)
    assert len({round(float(value), 6) for value in w.flatten()}) > 3  # the weights have moved apart


@pytest.mark.parametrize(("fraction", "free"), [(0.0, 0), (0.5, 4), (0.95, 7), (1.0, 7)])
def test_the_homotopy_goes_from_the_lasso_to_the_trimmed_penalty(fraction, free):
    X, y, _, W = (tensor.double() for tensor in teachers([0, 1], 30, "random", p=9, z=3, k=3))
    found = homotopy_step(W, torch.tensor(fraction), X, y, 7, alpha=0.4, eta=0.05)
    moved = W.numpy() - 0.05 * gradient(W, X, y).numpy()
    for near, one in zip(found.numpy(), moved, strict=True):
        kept = np.zeros(27, dtype=bool)
        kept[np.argsort(-np.abs(one).ravel())[:free]] = True
        assert np.allclose(near, np.where(kept.reshape(3, 9), one, soft(one, 0.05 * 0.4)), atol=1e-12)


# -- fits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", compact.METHODS)
def test_a_small_network_is_found_again(method):
    problem = teachers([0, 1], 150, "good", **SMALL)
    if method == "l0":  # which never gives up the entries that it starts with, unless they are small
        problem = problem._replace(start=problem.truth + 0.2 * (problem.start - problem.truth))
    W, steps = minimize(problem, method, 1500, 8)
    assert steps <= 1500
    assert torch.allclose(W, problem.truth, atol=2e-3)
    assert float(loss(W, problem.X, problem.y).max()) < 1e-5
    if method != "l1":
        assert torch.equal(W != 0, problem.truth != 0)
    else:
        assert (W.abs().sum((1, 2)) <= problem.truth.abs().sum((1, 2)) * (1 + 1e-5)).all()


@pytest.mark.parametrize("method", compact.METHODS)
def test_replicates_do_not_feel_each_other(method):
    together, alone = teachers([0, 1, 2], 40, "random", **SMALL), teachers([1], 40, "random", **SMALL)
    many, one = minimize(together, method, 150, 8), minimize(alone, method, 150, 8)
    assert many.steps == one.steps == 150
    assert torch.allclose(many.W[1:2], one.W, atol=1e-4)
    assert not torch.allclose(many.W[0], one.W[0], atol=1e-2)
    assert not torch.allclose(one.W, alone.start, atol=1e-2)


@pytest.mark.parametrize("method", compact.METHODS)
def test_steps_are_those_of_a_plain_loop(method):
    X, y, truth, start = problem = teachers([3], 40, "random", **SMALL)
    W, w = start, torch.full((1, 16), 0.5)
    for step in range(230):  # two blocks, and steps one by one
        if method == "trimmed":
            W, w = trimmed_step(W, w, X, y, 8)
        elif method == "homotopy":
            W = homotopy_step(W, torch.tensor(min(max((step - 46) / 161, 0.0), 1.0)), X, y, 8)
        else:
            moved = W - 0.1 * gradient(W, X, y)
            W = project_l0(moved, 8) if method == "l0" else project_l1(moved, truth.abs().sum((1, 2)))
    assert torch.allclose(minimize(problem, method, 230, 8).W, W, atol=1e-5)
    assert torch.equal(problem.start, start)


def test_a_fit_at_rest_ends(monkeypatch):
    problem = teachers([0, 1], 150, "good", **SMALL)
    at_truth = problem._replace(start=problem.truth)
    assert minimize(at_truth, "l0", 30_000, 8).steps == compact.LOOK
    assert minimize(at_truth, "l0", 300, 8).steps == 300
    # One replicate that moves keeps the others going.
    half = at_truth._replace(start=torch.stack([problem.truth[0], problem.start[1]]))
    assert minimize(half, "l0", 1500, 8).steps > compact.LOOK
    # The homotopy moves of itself until h is h, however still the weights are: till step 1800 of 2000.
    monkeypatch.setattr(compact, "LOOK", 100)
    zero = problem._replace(start=torch.zeros_like(problem.start), y=torch.zeros_like(problem.y))
    assert minimize(zero, "l1", 2000, 8).steps == 100
    assert minimize(zero, "homotopy", 2000, 8).steps == 1900


def test_an_unknown_method_is_refused():
    with pytest.raises(ValueError, match="method must be one of"):
        minimize(teachers([0], 10, "good", **SMALL), "l2", 10, 8)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("method", compact.METHODS)
def test_a_graph_takes_the_same_steps(method):
    on_cpu = teachers([0, 1], 200, "good", **SMALL)
    on_gpu = teachers([0, 1], 200, "good", device="cuda", **SMALL)
    found, expected = minimize(on_gpu, method, 250, 8), minimize(on_cpu, method, 250, 8)
    assert torch.allclose(found.W.cpu(), expected.W, atol=1e-3)
    assert torch.equal(on_gpu.start.cpu(), on_cpu.start)


def test_repeated():
    x, t = torch.zeros(3), torch.zeros(())
    block = repeated(lambda: (x.add_(t), t.add_(1)), 5, (x, t))
    assert float(t) == 0
    block()
    assert (float(t), x.tolist()) == (5.0, [10.0] * 3)


# -- scores -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_rows_are_matched_as_well_as_can_be(seed):
    rng = np.random.default_rng(seed)
    truth, W = rng.standard_normal((2, 4, 6))
    W *= 10.0 ** rng.integers(-3, 4, (4, 1))  # cosines do not feel the scale
    if seed == 3:
        W[2] = 0.0

    def cosines(rows):
        norms = np.linalg.norm(rows, axis=1)
        return (
            (rows * truth).sum(axis=1) / np.where(norms > 0, norms, 1) / np.linalg.norm(truth, axis=1)
        ).sum()

    best = max(permutations(range(4)), key=lambda order: cosines(W[list(order)]))
    assert np.array_equal(match_rows(W, truth), W[list(best)])
    order = rng.permutation(4)
    assert np.array_equal(match_rows(truth[order], truth), truth)
    assert np.array_equal(match_rows(-truth[order], -truth), -truth)


def test_f1_and_largest():
    yes, no = np.array([True, True, False, False]), np.array([False, False, True, True])
    none = ~yes & yes
    assert (f1(yes, yes), f1(yes, no), f1(none, none), f1(yes, none)) == (1.0, 0.0, 1.0, 0.0)
    assert f1(np.array([True, True, True, False]), yes) == pytest.approx(2 * 2 / 5)
    W = np.array([[1.0, -3.0, 0.0], [2.0, 2.0, 0.0]])
    assert largest_mask(W, 2).tolist() == [[False, True, False], [True, False, False]]
    assert largest_mask(W, 6).sum() == 4  # a zero is never found
    assert largest_mask(W, 0).sum() == 0
