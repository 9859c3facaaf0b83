"""Algorithm 1 and its theorem."""

from itertools import pairwise

import numpy as np
import pytest

from trimreg.penalties import TrimmedL1
from trimreg.solvers import run
from trimreg.solvers.first_order import bcd

CASES = [
    (stretch, alpha, tau, seed)
    for stretch in (0.1, 1.0, 10.0)
    for alpha in (0.01, 0.3, 5.0)
    for tau in (0.1, 1.0, 10.0)
    for seed in (0, 1)
]


def first_steps(problem, count, seed, **options):
    theta0 = np.random.default_rng(seed).standard_normal(problem.n_features)
    return [
        step for step, _ in zip(bcd.iterate(problem, theta0, tol=0.0, **options), range(count), strict=False)
    ]


@pytest.mark.parametrize("k", [0, 1, 5])
def test_a_step_is_the_two_lines_of_the_paper(make_problem, raw, k):
    problem = make_problem(TrimmedL1(3), 0.2)
    steps = first_steps(problem, k + 2, seed=0, eta=0.05, tau=0.7)
    theta, w = steps[k].theta, steps[k].weights
    z = theta - 0.05 * raw.gradient(problem, theta)
    following = steps[k + 1]
    # The w step is a projection: no vertex of S is on its far side.
    target = w - 0.7 * np.abs(theta)
    normal = target - following.weights
    assert np.sort(normal)[3:].sum() <= normal @ following.weights + 1e-12
    expected = np.sign(z) * np.maximum(np.abs(z) - 0.05 * 0.2 * following.weights, 0)
    np.testing.assert_allclose(following.theta, expected, atol=1e-14)


@pytest.mark.parametrize(("stretch", "alpha", "tau", "seed"), CASES)
def test_theorem_3(make_problem, raw, stretch, alpha, tau, seed):
    factor = np.resize([1.0, 0.4, 1.7], 15)
    problem = make_problem(TrimmedL1(3, factor), alpha, seed=seed, stretch=stretch, n=25)
    L_f = np.linalg.eigvalsh(problem.design.X.T @ problem.design.X / 25)[-1]
    constant = bcd.stationarity_constant(alpha, L_f, L_r=1.7, tau=tau)
    steps = first_steps(problem, 60, seed, tau=tau)
    F = [raw.loss(problem, s.theta) + alpha * s.weights @ (factor * np.abs(s.theta)) for s in steps]
    np.testing.assert_allclose([s.series["F"] for s in steps], F, rtol=1e-10)
    G, T = [], []
    for before, after in pairwise(steps):
        d, e = after.theta - before.theta, after.weights - before.weights
        G.append(L_f / 2 * d @ d + alpha / tau * e @ e)
        T.append(raw.theta_part(problem, after.theta, alpha * factor * after.weights))
        T[-1] += raw.w_part(alpha * factor * np.abs(after.theta), after.weights)
    rounding = 1e-12 * F[0]
    np.testing.assert_allclose([s.series["G"] for s in steps[1:]], G, rtol=1e-9, atol=1e-20)
    np.testing.assert_allclose([s.series["T"] for s in steps[1:]], T, rtol=1e-5, atol=1e-9 * T[0] + 1e-18)
    # F falls by G at least, ...
    assert np.all(np.array(G) <= -np.diff(F) + rounding)
    # ... G bounds T, ...
    assert np.all(np.array(T) <= constant * np.array(G) + 1e-12 * constant * F[0])
    # ... and so the least T so far falls as 1/K; F >= 0 here, so 0 stands for its lower bound.
    K = np.arange(1, len(T) + 1)
    assert np.all(np.minimum.accumulate(T) <= constant / K * F[0])


def test_the_constant_printed_in_the_paper_does_not_bound_T(make_problem):
    """(4 + 2 lambda L_r / L_f) G_k: it ignores the scale of the loss, and fails on a common one."""
    alpha = 0.3
    problem = make_problem(TrimmedL1(3), alpha)
    L_f = problem.lipschitz()
    assert 2 < L_f < 10
    printed = 4 + 2 * alpha / L_f
    assert any(s.series["T"] > printed * s.series["G"] for s in first_steps(problem, 20, seed=0))


def test_the_corrected_constant_is_nearly_attained(make_problem):
    problem = make_problem(TrimmedL1(3), 0.01)
    constant = bcd.stationarity_constant(0.01, problem.lipschitz())
    ratio = max(s.series["T"] / (constant * s.series["G"]) for s in first_steps(problem, 30, seed=0))
    assert 0.8 < ratio <= 1.0


def test_iterates_do_not_depend_on_the_scaling_of_the_objective(make_problem):
    """Why no constant free of L_f can do: T grows by c^2, G by c, and nothing else changes."""
    from dataclasses import replace

    problem = make_problem(TrimmedL1(3), 0.1)
    larger = replace(problem, d=7.0 * problem.d, alpha=0.7)
    for a, b in zip(first_steps(problem, 10, 0), first_steps(larger, 10, 0), strict=True):
        np.testing.assert_allclose(a.theta, b.theta, atol=1e-12)
        assert b.series["T"] == pytest.approx(49 * a.series["T"], rel=1e-6)
        assert b.series["G"] == pytest.approx(7 * a.series["G"], rel=1e-6)


@pytest.mark.parametrize("eta", [None, 0.02])
@pytest.mark.parametrize("positive", [False, True])
def test_the_cheap_test_never_ends_before_the_true_one(make_problem, eta, positive):
    factor = np.ones(15)
    factor[[1, 2]] = np.inf, 0.0
    problem = make_problem(TrimmedL1(3, factor), 0.1, positive=positive)
    theta0 = np.ones(15)
    true = run(bcd.iterate(problem, theta0, eta=eta), 20_000)
    cheap = run(bcd.iterate(problem, theta0, eta=eta, record_stationarity=False), 20_000)
    assert true.n_iter <= cheap.n_iter <= 1.2 * true.n_iter + 5
    assert "T" in true.history
    assert "T" not in cheap.history


@pytest.mark.parametrize("tau", [0.1, 1.0, 10.0])
def test_the_cheap_bound_is_at_least_T(make_problem, tau):
    problem = make_problem(TrimmedL1(3), 0.3)
    true, cheap = (
        first_steps(problem, 60, seed=1, tau=tau, record_stationarity=record) for record in (True, False)
    )
    for step, bound in zip(true, cheap, strict=True):
        np.testing.assert_array_equal(step.theta, bound.theta)
        at_most = float(bound.message.removeprefix("sqrt(T) at most ").split(",")[0])
        assert np.sqrt(step.series["T"]) <= 1.01 * at_most  # printed with three digits


def test_w0_is_where_it_starts(make_problem):
    problem = make_problem(TrimmedL1(3), 0.1)
    w0 = np.ones(15)
    w0[[5, 6, 7]] = 0.0
    step = next(bcd.iterate(problem, np.zeros(15), w0=w0))
    np.testing.assert_array_equal(step.weights, w0)  # r(0) = 0: the first step leaves it
    uniform = next(bcd.iterate(problem, np.zeros(15)))
    np.testing.assert_allclose(uniform.weights, 12 / 15)


def test_fractional_weights_can_hold_it_at_zero(make_problem, raw):
    """A stationary pair need not be a local minimum: the paper's start does not leave zero here."""
    problem = make_problem(TrimmedL1(3), 10.0)
    outcome = run(bcd.iterate(problem, np.zeros(15)), 100)
    assert outcome.step.converged
    assert not outcome.step.theta.any()
    assert np.abs(raw.gradient(problem, np.zeros(15))).max() > 0.1
