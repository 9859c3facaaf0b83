"""What bcd, dc and prox promise together: stationary points, from anywhere, and named refusals."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso

from trimreg import solve
from trimreg.penalties import L1, MCP, SCAD, TrimmedL1
from trimreg.solvers import SOLVERS, get_solver, run
from trimreg.solvers.first_order import bcd, dc, prox

TRIMMED = {
    "bcd": bcd.iterate,
    "bcd-bound": lambda *a, **k: bcd.iterate(*a, record_stationarity=False, **k),
    "dc-plain": lambda *a, **k: dc.iterate(*a, ties="plain", **k),
    "dc-aware": lambda *a, **k: dc.iterate(*a, ties="aware", **k),
    "prox": prox.iterate,
    "prox-accelerated": lambda *a, **k: prox.iterate(*a, accelerate=True, **k),
}
DESCENT = {name: method for name, method in TRIMMED.items() if not name.startswith("bcd")}
PROX = {name: method for name, method in TRIMMED.items() if name.startswith("prox")}


@pytest.fixture(params=TRIMMED)
def method(request):
    return TRIMMED[request.param]


def goal(problem, raw, tol):
    return tol * np.abs(raw.gradient(problem, np.zeros(problem.n_features))).max()


def assert_stationary(problem, raw, step, tol, f):
    """T of the pair, recomputed from the data; the weights lie in S."""
    regular = (f > 0) & np.isfinite(f)
    w, theta = step.weights, step.theta
    assert np.all((w[regular] >= 0) & (w[regular] <= 1))
    assert w[regular].sum() == pytest.approx(regular.sum() - problem.penalty.n_free, abs=1e-9)
    assert not theta[np.isinf(f)].any()
    if "DC-critical" in step.message:  # all that it claims: zeros are as if they had the penalty
        assert np.count_nonzero(theta[regular]) < problem.penalty.n_free
        w = np.where(theta == 0, 1.0, w)
    level = np.full(f.size, np.inf)
    level[np.isfinite(f)] = problem.alpha * f[np.isfinite(f)] * np.where(f > 0, w, 0.0)[np.isfinite(f)]
    T = raw.theta_part(problem, theta, level)
    T += raw.w_part(problem.alpha * f[regular] * np.abs(theta[regular]), w[regular])
    assert np.sqrt(T) <= 1.001 * goal(problem, raw, tol) + 1e-14
    if problem.bounds is not None:
        assert np.all(theta >= 0)


@pytest.mark.parametrize("alpha", [0.02, 0.3])
@pytest.mark.parametrize("h", [2, 5])
@pytest.mark.parametrize("start", ["random", "far"])
@pytest.mark.parametrize("positive", [False, True])
def test_the_end_is_stationary_from_any_start(method, make_problem, raw, alpha, h, start, positive):
    problem = make_problem(TrimmedL1(h), alpha, positive=positive, uniform=False)
    theta0 = (1e3 if start == "far" else 1.0) * np.random.default_rng(h).standard_normal(15)
    given = theta0.copy()
    outcome = run(method(problem, theta0, tol=1e-8), 20_000)
    assert outcome.step.converged
    np.testing.assert_array_equal(theta0, given)
    assert_stationary(problem, raw, outcome.step, 1e-8, np.ones(15))
    value = (
        raw.loss(problem, outcome.step.theta) + alpha * np.sort(np.abs(outcome.step.theta))[: 15 - h].sum()
    )
    assert outcome.step.objective == pytest.approx(value, rel=1e-12)


def test_unequal_factors(method, make_problem, raw):
    f = np.resize([1.0, 0.3, 2.0], 15)
    f[[4, 6]] = 0.0, np.inf
    problem = make_problem(TrimmedL1(3, f), 0.1)
    outcome = run(method(problem, np.full(15, 0.5), tol=1e-8), 20_000)
    assert_stationary(problem, raw, outcome.step, 1e-8, f)
    assert outcome.step.theta[4] != 0


def test_without_trimming_it_is_the_lasso(method, make_problem):
    problem = make_problem(TrimmedL1(h=0), 0.1, n=30, p=50, seed=3)
    theta = run(method(problem, np.zeros(50), tol=1e-9), 20_000).step.theta
    lasso = Lasso(alpha=0.1, fit_intercept=False, tol=1e-12, max_iter=100_000)
    lasso.fit(problem.design.X, problem.y)
    assert np.count_nonzero(lasso.coef_) > 3
    np.testing.assert_allclose(theta, lasso.coef_, atol=1e-7)


def test_without_trimming_it_is_the_positive_lasso(method, make_problem):
    problem = make_problem(TrimmedL1(h=0), 0.05, n=30, p=50, seed=3, positive=True)
    theta = run(method(problem, np.zeros(50), tol=1e-9), 20_000).step.theta
    lasso = Lasso(alpha=0.05, fit_intercept=False, tol=1e-12, max_iter=100_000, positive=True)
    lasso.fit(problem.design.X, problem.y)
    np.testing.assert_allclose(theta, lasso.coef_, atol=1e-7)


@pytest.mark.parametrize("name", sorted(set(TRIMMED) - {"dc-plain"}))  # which would stay at zero
def test_all_free_is_least_squares(name, make_problem):
    problem = make_problem(TrimmedL1(h=15), 5.0)
    theta = run(TRIMMED[name](problem, np.zeros(15), tol=1e-9), 20_000).step.theta
    expected = np.linalg.lstsq(problem.design.X, problem.y, rcond=None)[0]
    np.testing.assert_allclose(theta, expected, atol=1e-7)


@pytest.mark.parametrize("name", DESCENT)
@pytest.mark.parametrize("alpha", [0.05, 0.5, 3.0])
def test_the_objective_never_rises(name, make_problem, alpha):
    problem = make_problem(TrimmedL1(4), alpha, n=20, p=30)
    theta0 = np.random.default_rng(1).standard_normal(30)
    values = [problem.objective(theta0)]
    for step, _ in zip(DESCENT[name](problem, theta0, tol=0.0), range(150), strict=False):
        values.append(step.objective)
    assert np.all(np.diff(values) <= 1e-14 * values[0])
    assert values[-1] < 0.9 * values[0]


@pytest.mark.parametrize("name", PROX)
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize(
    "penalty", [L1(), MCP(2.5), MCP(1.05), MCP(np.inf), SCAD(3.0), SCAD(2.05)], ids=lambda p: repr(p)
)
def test_prox_takes_every_penalty(name, penalty, positive, make_problem, raw):
    alpha = 0.3
    problem = make_problem(penalty, alpha, n=20, p=30, positive=positive)
    theta0 = np.random.default_rng(1).standard_normal(30)
    outcome = run(PROX[name](problem, theta0, tol=1e-8), 20_000)
    theta = outcome.step.theta
    # The derivative of the penalty at every |theta_j|, by differences of its value.
    level = np.array(
        [
            (
                problem.penalty.value(np.eye(30)[j] * (abs(t) + 1e-7), alpha)
                - problem.penalty.value(np.eye(30)[j] * (abs(t) - 1e-7), alpha)
            )
            / 2e-7
            if t
            else alpha
            for j, t in enumerate(theta)
        ]
    )
    assert 0 < np.count_nonzero(theta) < 30
    assert np.sqrt(raw.theta_part(problem, theta, level)) <= 1e-6
    assert not (positive and np.any(theta < 0))
    history = np.array(outcome.history["objective"])
    assert np.all(np.diff(history) <= 1e-14 * history[0])


def test_acceleration_pays(make_problem):
    problem = make_problem(L1(), 0.01, n=60, p=100)
    plain = run(prox.iterate(problem, np.zeros(100)), 20_000)
    fast = run(prox.iterate(problem, np.zeros(100), accelerate=True), 20_000)
    assert fast.n_iter < plain.n_iter / 2
    assert fast.step.objective == pytest.approx(plain.step.objective, rel=1e-8)


def test_accelerated_steps_are_those_of_fista(make_problem, raw):
    problem, eta = make_problem(L1(), 0.05), 0.02
    theta = before = np.zeros(15)
    t = 1.0
    for step, _ in zip(
        prox.iterate(problem, theta, eta=eta, accelerate=True, tol=0.0), range(8), strict=False
    ):
        t, last = (1 + np.sqrt(1 + 4 * t**2)) / 2, t
        y = theta + (last - 1) / t * (theta - before)
        z = y - eta * raw.gradient(problem, y)
        theta, before = np.sign(z) * np.maximum(np.abs(z) - eta * 0.05, 0), theta
        np.testing.assert_allclose(step.theta, theta, atol=1e-12)


def test_acceleration_without_constant_curvature(make_problem):
    # The gradient at the extrapolated point is then computed, not extrapolated: the same numbers.
    from dataclasses import replace

    from trimreg.losses import Quadratic

    class General(Quadratic):
        constant_curvature = False

    problem = make_problem(TrimmedL1(3), 0.1)
    general = replace(problem, loss=General())
    theta0 = np.random.default_rng(0).standard_normal(15)
    extrapolated = prox.iterate(problem, theta0, accelerate=True)
    computed = prox.iterate(general, theta0, accelerate=True)
    for _ in range(25):
        np.testing.assert_allclose(next(extrapolated).theta, next(computed).theta, atol=1e-12)


def test_it_can_be_stepped(method, make_problem):
    problem = make_problem(TrimmedL1(3), 0.1)
    steps = method(problem, np.zeros(15))
    by_hand = [next(steps) for _ in range(5)]
    assert not any(step.converged for step in by_hand)
    with pytest.warns(ConvergenceWarning, match="after 5 steps"):
        driven = run(method(problem, np.zeros(15)), 5)
    np.testing.assert_array_equal(by_hand[-1].theta, driven.step.theta)
    assert driven.history["objective"] == [step.objective for step in by_hand]
    assert not np.array_equal(by_hand[0].theta, by_hand[1].theta)  # earlier steps are not overwritten


def test_a_start_at_the_solution_ends_at_once(method, make_problem):
    problem = make_problem(TrimmedL1(3), 0.05)
    first = run(method(problem, np.zeros(15), tol=1e-10), 20_000).step
    options = {"w0": first.weights} if method in (TRIMMED["bcd"], TRIMMED["bcd-bound"]) else {}
    again = run(method(problem, first.theta, tol=1e-8, **options), 20_000)
    assert again.n_iter == 1
    np.testing.assert_allclose(again.step.theta, first.theta, atol=1e-9)


def test_single_precision_ends(method, make_problem):
    problem = make_problem(TrimmedL1(3), 0.1, dtype=np.float32, n=200)
    outcome = run(method(problem, np.zeros(15), tol=1e-12), 3_000)  # no warning: the goal is within reach
    double = make_problem(TrimmedL1(3), 0.1, n=200)
    reference = run(method(double, np.zeros(15), tol=1e-10), 20_000)
    np.testing.assert_allclose(outcome.step.theta, reference.step.theta, atol=1e-4)


def test_a_target_of_zeros_gives_zero(method, make_problem):
    from dataclasses import replace

    problem = make_problem(TrimmedL1(3), 0.1)
    problem = replace(problem, y=np.zeros_like(problem.y))
    np.testing.assert_allclose(run(method(problem, np.ones(15), tol=1e-9), 20_000).step.theta, 0, atol=1e-7)


# -- refusals, before any work ----------------------------------------------------------------------------


class Untouchable:
    """A design that may only be asked for its shape."""

    shape = (40, 15)


@pytest.fixture
def idle_problem(make_problem):
    from dataclasses import replace

    return lambda penalty: replace(make_problem(penalty, 0.1), design=Untouchable())


@pytest.mark.parametrize("solver", [bcd, dc, prox])
@pytest.mark.parametrize("eta", [0, -1.0, np.inf, np.nan, "1", True, [0.1]])
def test_bad_eta(solver, eta, idle_problem):
    with pytest.raises(ValueError, match="eta must be a positive finite number"):
        solver.iterate(idle_problem(TrimmedL1(2)), np.zeros(15), eta=eta)


@pytest.mark.parametrize("tau", [0, -1.0, np.inf, np.nan, None, True])
def test_bad_tau(tau, idle_problem):
    with pytest.raises(ValueError, match="tau must be a positive finite number"):
        bcd.iterate(idle_problem(TrimmedL1(2)), np.zeros(15), tau=tau)


@pytest.mark.parametrize(
    "w0", [np.ones(14), np.ones(15), np.full(15, -0.1), np.r_[1.5, 0.5, np.zeros(2), np.ones(11)]]
)
def test_bad_w0(w0, idle_problem):
    with pytest.raises(ValueError, match="w0 must"):
        bcd.iterate(idle_problem(TrimmedL1(2)), np.zeros(15), w0=w0)


@pytest.mark.parametrize("ties", ["Plain", "", None, 1, True, ["plain"]])
def test_bad_ties(ties, idle_problem):
    with pytest.raises(ValueError, match=r"ties must be one of \['plain', 'aware'\]"):
        dc.iterate(idle_problem(TrimmedL1(2)), np.zeros(15), ties=ties)


@pytest.mark.parametrize("solver", [bcd, dc, prox])
@pytest.mark.parametrize("theta0", [np.zeros(14), np.zeros((15, 1)), 0.0, np.full(15, np.nan)], ids=repr)
def test_bad_theta0(solver, theta0, idle_problem):
    with pytest.raises(ValueError, match="theta0 must"):
        solver.iterate(idle_problem(TrimmedL1(2)), theta0)


@pytest.mark.parametrize("solver", [bcd, dc])
def test_a_penalty_that_does_not_trim(solver, idle_problem):
    with pytest.raises(ValueError, match="needs a penalty that trims"):
        solver.iterate(idle_problem(L1()), np.zeros(15))


@pytest.mark.parametrize("name", ["bcd", "dc", "prox"])
def test_the_registry_knows_their_options(name, make_problem):
    import inspect

    from trimreg.solvers import first_order

    module = getattr(first_order, name)
    spec = get_solver(name)
    arguments = inspect.signature(module.iterate).parameters
    assert set(spec.options) == set(arguments) - {"problem", "theta0", "tol", "rng"}
    step = next(spec.iterate(make_problem(TrimmedL1(2), 0.1), np.zeros(15)))
    assert step.theta.shape == (15,)
    assert spec.trimmed_only == (name != "prox")


@pytest.mark.parametrize("name", ["lasso", None, 3, ["bcd"]])
def test_get_solver_refuses(name):
    with pytest.raises(ValueError, match="solver must be one of"):
        get_solver(name)


def test_get_solver_knows_every_name():
    assert {get_solver(name).name for name in SOLVERS} == set(SOLVERS)


@pytest.mark.parametrize("solver", ["bcd", "dc", "prox"])
@pytest.mark.parametrize("scale", [1e-200, 1e155])
def test_columns_whose_squares_overflow_are_refused(solver, scale):
    rng = np.random.default_rng(0)
    X, y = scale * rng.standard_normal((20, 4)), rng.standard_normal(20)
    with pytest.raises(ValueError, match="X must have a longest column of norm between 1e-152 and 1e152"):
        solve(X, y, penalty=TrimmedL1(1), alpha=0.1, solver=solver)


def test_a_step_that_underflows_is_refused():
    X, y = 1e149 * np.eye(4), np.array([1e-34, 2e-34, 3e-34, 1e6])
    with pytest.raises(ValueError, match="X and y have units so far apart"):
        solve(X, y, loss="huber", penalty=TrimmedL1(1), alpha=1.0, solver="bcd", fit_intercept=True)
