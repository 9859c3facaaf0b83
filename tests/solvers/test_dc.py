"""The DC baseline: its step, and what the choice at ties changes."""

from itertools import product

import numpy as np
import pytest

from trimreg.designs import as_design
from trimreg.losses import Quadratic
from trimreg.penalties import TrimmedL1
from trimreg.solvers import Problem, run
from trimreg.solvers.first_order import dc


def toy(y, h, alpha, positive=False, factor=None):
    """The identity design with mean loss: L = sum_j (theta_j - y_j)^2 / (2 p)."""
    p = len(y)
    d = np.full(p, 1 / p)
    penalty = TrimmedL1(h, factor).bind(p)
    bounds = (np.zeros(p), np.full(p, np.inf)) if positive else None
    return Problem(as_design(np.eye(p), d), Quadratic(), np.array(y), d, penalty, alpha, bounds=bounds)


@pytest.mark.parametrize("ties", dc.TIES)
def test_a_step_minimizes_the_convex_model(make_problem, raw, ties):
    """theta+ is the least point of <g - v, x> + ||x - theta||^2 / (2 eta) + alpha ||x||_1."""
    alpha, eta = 0.3, 0.1
    problem = make_problem(TrimmedL1(3), alpha)
    theta0 = np.random.default_rng(0).standard_normal(15)
    theta0[5:] = 0.0
    g = raw.gradient(problem, theta0)
    v = np.zeros(15)
    S = np.argsort(-np.abs(theta0))[:3]
    v[S] = alpha * np.sign(theta0[S])
    following = next(dc.iterate(problem, theta0, eta=eta, ties=ties)).theta
    slope = g - v + (following - theta0) / eta
    np.testing.assert_allclose(slope[following != 0], -alpha * np.sign(following[following != 0]), atol=1e-12)
    assert np.all(np.abs(slope[following == 0]) <= alpha + 1e-12)


def test_plain_stops_at_a_point_that_is_no_local_minimum():
    # |g| = (1, .5) is below alpha, so zero is DC-critical; with one coordinate free it is no minimum.
    problem = toy([2.0, 1.0], h=1, alpha=1.5)
    plain = run(dc.iterate(problem, np.zeros(2), ties="plain"), 100).step
    aware = run(dc.iterate(problem, np.zeros(2), ties="aware"), 100).step
    np.testing.assert_array_equal(plain.theta, [0.0, 0.0])
    assert "DC-critical" in plain.message
    assert plain.series["T"] == pytest.approx(1.0)
    nearby = problem.objective(np.array([1e-3, 0.0]))
    assert nearby < plain.objective
    np.testing.assert_allclose(aware.theta, [2.0, 0.0], atol=1e-5)
    assert "stationary" in aware.message
    assert "DC-critical" not in aware.message
    for move in product([-1e-3, 0.0, 1e-3], repeat=2):
        assert problem.objective(aware.theta + move) >= aware.objective - 1e-9


def test_plain_says_when_it_did_reach_a_stationary_point():
    step = run(dc.iterate(toy([2.0, 1.0], h=1, alpha=0.1), np.ones(2), ties="plain"), 1000).step
    assert step.message.startswith("a stationary point")


def test_aware_frees_the_zero_with_the_largest_gradient_over_its_factor():
    # g / f is (1/4, 1/2) up to sign: the second goes free though its gradient is the smaller.
    problem = toy([-2.0, 1.0], h=1, alpha=10.0, factor=[4.0, 1.0])
    step = run(dc.iterate(problem, np.zeros(2), ties="aware"), 100).step
    np.testing.assert_allclose(step.theta, [0.0, 1.0], atol=1e-5)


def test_aware_under_positivity_does_not_waste_its_freedom():
    # The first has the larger gradient but cannot move: it would only go below zero.
    problem = toy([-3.0, 1.0], h=1, alpha=10.0, positive=True)
    step = run(dc.iterate(problem, np.zeros(2), ties="aware"), 100).step
    np.testing.assert_allclose(step.theta, [0.0, 1.0], atol=1e-5)


def test_aware_ends_at_local_minima(make_problem):
    for seed in range(5):
        problem = make_problem(TrimmedL1(4), 1.0, seed=seed)
        step = run(dc.iterate(problem, np.zeros(15), ties="aware", tol=1e-10), 20_000).step
        rng = np.random.default_rng(seed)
        for _ in range(200):
            move = rng.standard_normal(15) * (rng.random(15) < 0.3)
            assert problem.objective(step.theta + 1e-4 * move) >= step.objective - 1e-12
