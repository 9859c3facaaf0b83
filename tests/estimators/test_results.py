"""What a result says, computed again from the data; and how a run can be started, watched and stopped."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from trimreg import L1, MCP, SCAD, TrimmedL1, diagnostics, solve, steps

TRIMMED = {
    "mm-low": {"solver": "mm", "effort": "low"},
    "mm": {"solver": "mm"},
    "mm-high": {"solver": "mm", "effort": "high"},
    "bcd": {"solver": "bcd"},
    "dc-plain": {"solver": "dc"},
    "dc-aware": {"solver": "dc", "ties": "aware"},
    "prox": {"solver": "prox"},
    "prox-accelerated": {"solver": "prox", "accelerate": True},
}
MM = {name: how for name, how in TRIMMED.items() if how["solver"] == "mm"}
SETTINGS = list(product([False, True], repeat=4))


def named(table):
    return pytest.mark.parametrize("how", table.values(), ids=table.keys())


def setting(data, fit_intercept, standardize, weighted, sparse):
    """X as stored, and the arguments that solve and the diagnostics share."""
    return sp.csr_array(data.X) if sparse else data.X, {
        "fit_intercept": fit_intercept,
        "standardize": standardize,
        "sample_weight": data.weight if weighted else None,
    }


# -- certificates ------------------------------------------------------------------------------------------


@named(TRIMMED)
@pytest.mark.parametrize("flags", SETTINGS, ids=str)
def test_objective_and_stationarity_of_trimmed_results(how, flags, make_data, by_hand):
    data = make_data(zeros=0.3)
    X, given = setting(data, *flags)
    for alpha in ("exact", 0.15):
        problem = {"penalty": TrimmedL1(3), **given}
        result = solve(X, data.y, alpha=alpha, **problem, **how)
        scale = by_hand.scales(data.X, given["sample_weight"], given["fit_intercept"], given["standardize"])
        theta = result.coef * scale
        np.testing.assert_allclose(result.theta, theta, atol=1e-12)
        expected = by_hand.loss(data.X, data.y, result, given["sample_weight"])
        expected += by_hand.penalty("trimmed_l1", np.abs(theta), result.alpha, h=3)
        assert result.objective == pytest.approx(expected, rel=1e-9)
        again = diagnostics.stationarity(
            X,
            data.y,
            result.coef,
            alpha=result.alpha,
            weights=result.weights,
            intercept=result.intercept,
            **problem,
        )
        assert result.stationarity == pytest.approx(again, rel=1e-6, abs=1e-20)
        if "DC-critical" not in result.message:
            assert np.sqrt(result.stationarity) < 1e-4
        assert result.weights.sum() == pytest.approx(9)


@pytest.mark.parametrize("flags", SETTINGS, ids=str)
@pytest.mark.parametrize("solver", ["mm", "prox"])
@pytest.mark.parametrize(
    ("name", "penalty"),
    [("trimmed_l1", L1()), ("mcp", MCP(2.5)), ("mcp", MCP(1.2)), ("scad", SCAD(3.0)), ("scad", SCAD(2.1))],
    ids=str,
)
def test_objective_and_stationarity_of_other_penalties(name, penalty, solver, flags, make_data, by_hand):
    data = make_data(zeros=0.3)
    X, given = setting(data, *flags)
    result = solve(X, data.y, penalty=penalty, alpha=0.15, solver=solver, **given)
    theta = result.coef * by_hand.scales(
        data.X, given["sample_weight"], given["fit_intercept"], given["standardize"]
    )
    expected = by_hand.loss(data.X, data.y, result, given["sample_weight"])
    expected += by_hand.penalty(name, np.abs(theta), 0.15, gamma=getattr(penalty, "gamma", None))
    assert result.objective == pytest.approx(expected, rel=1e-7)  # the integral of p' is a sum here
    again = diagnostics.stationarity(
        X,
        data.y,
        result.coef,
        penalty=penalty,
        alpha=0.15,
        weights=result.weights,
        intercept=result.intercept,
        **given,
    )
    assert result.stationarity == pytest.approx(again, rel=1e-6, abs=1e-20)
    assert np.sqrt(result.stationarity) < 1e-5


@named(MM)
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("alpha", ["exact", 0.0, 1e-3, 0.05, 0.3, 1.0])
def test_mm_ends_at_local_minima(how, positive, alpha, make_data):
    for seed, h in product(range(3), [1, 4]):
        data = make_data(n=30, p=25, seed=seed, shared=0.5)
        problem = {"penalty": TrimmedL1(h), "positive": positive, "fit_intercept": True, "standardize": True}
        result = solve(data.X, data.y, alpha=alpha, **problem, **how)
        point = {**problem, "alpha": result.alpha, "intercept": result.intercept}
        check = diagnostics.is_local_minimum(data.X, data.y, result.coef, **point, tol=2e-6)
        assert check, check.reason
        assert result.converged
        assert not positive or (result.coef >= 0).all()


@pytest.mark.parametrize("how", [TRIMMED["prox"], TRIMMED["dc-aware"]], ids=["prox", "dc-aware"])
def test_first_order_solvers_end_at_local_minima_of_positive_problems(how, make_data):
    data = make_data()
    problem = {"penalty": TrimmedL1(3), "positive": True, "alpha": 0.2, "fit_intercept": True}
    result = solve(data.X, data.y, tol=1e-8, **problem, **how)
    assert (result.coef >= 0).all()
    assert diagnostics.is_local_minimum(data.X, data.y, result.coef, intercept=result.intercept, **problem)


# -- runs --------------------------------------------------------------------------------------------------


@named(TRIMMED)
def test_a_start_at_the_solution_stays_there(how, make_data):
    data = make_data()
    problem = {"penalty": TrimmedL1(3), "alpha": 0.2, "fit_intercept": True, "standardize": True}
    first = solve(data.X, data.y, tol=1e-9, **problem, **how)
    options = {"w0": first.weights} if how["solver"] == "bcd" else {}
    again = solve(data.X, data.y, theta0=first.coef, **problem, **how, **options)
    np.testing.assert_allclose(again.coef, first.coef, atol=1e-6)
    assert again.n_iter <= first.n_iter
    if how["solver"] != "mm":
        assert again.n_iter == 1


@pytest.mark.parametrize("how", [{"solver": "bcd"}, {"solver": "dc"}, {"solver": "prox"}], ids=str)
def test_the_start_is_in_the_units_of_X(how, make_data):
    """One step of a tiny size from theta0 ends at theta0."""
    data = make_data()
    theta0 = np.random.default_rng(0).standard_normal(12)
    result = next(
        steps(
            data.X,
            data.y,
            penalty=TrimmedL1(3),
            alpha=0.1,
            theta0=theta0,
            standardize=True,
            fit_intercept=True,
            eta=1e-14,
            **how,
        )
    )
    np.testing.assert_allclose(result.coef, theta0, atol=1e-9)


def test_mm_from_a_start_keeps_to_its_basin(make_data):
    """Two equal columns: the start decides which is free; without exchanges it stays so."""
    data = make_data(p=4)
    X = data.X.copy()
    X[:, 3] = X[:, 0]
    for j in (0, 3):
        theta0 = np.zeros(4)
        theta0[[j, 1]] = data.coef[[0, 1]]
        problem = {"penalty": TrimmedL1(2), "alpha": 0.1, "theta0": theta0}
        result = solve(X, data.y, effort="low", fit_intercept=True, **problem)
        assert result.weights[j] == 0
        assert result.coef[j] != 0
        assert result.coef[3 - j] == 0


@named(TRIMMED)
@pytest.mark.parametrize("alpha", ["exact", 0.2])
def test_steps_are_those_of_a_run(how, alpha, make_data):
    data = make_data()
    problem = {"penalty": TrimmedL1(3), "alpha": alpha, "fit_intercept": True, "standardize": True, **how}
    whole = solve(data.X, data.y, **problem)
    one_by_one = []
    for result in steps(data.X, data.y, **problem):
        one_by_one.append(result)
        if result.converged:
            break
    assert len(one_by_one) == whole.n_iter
    assert [result.objective for result in one_by_one] == whole.history["objective"]
    assert [result.n_iter for result in one_by_one] == list(range(1, whole.n_iter + 1))
    np.testing.assert_array_equal(one_by_one[-1].coef, whole.coef)
    assert one_by_one[-1].stationarity == whole.stationarity
    for result in one_by_one[:20]:  # a step is a point of the problem like any other
        again = diagnostics.stationarity(
            data.X,
            data.y,
            result.coef,
            weights=result.weights,
            intercept=result.intercept,
            penalty=TrimmedL1(3),
            alpha=whole.alpha,
            fit_intercept=True,
            standardize=True,
        )
        assert result.stationarity == pytest.approx(again, rel=1e-6, abs=1e-20)


@named(TRIMMED)
def test_a_callback_sees_every_step_and_can_stop(how, make_data):
    data = make_data()
    seen = []

    def stop_at_two(step):
        seen.append(step.objective)
        return len(seen) == 2

    problem = {"penalty": TrimmedL1(3), "alpha": 0.2, **how}
    result = solve(data.X, data.y, callback=stop_at_two, **problem)  # stopping on purpose is no warning
    assert result.n_iter == 2
    assert seen == result.history["objective"]
    seen.clear()
    whole = solve(data.X, data.y, callback=lambda step: seen.append(step.objective), **problem)
    assert seen == whole.history["objective"]
    assert whole.converged


@named(TRIMMED)
def test_one_iteration_warns_with_what_was_reached(how, make_data):
    data = make_data()
    problem = {"penalty": TrimmedL1(3), "alpha": 0.2, **how}
    with pytest.warns(ConvergenceWarning, match=r"not converged after 1 steps \(.+\); raise max_iter"):
        result = solve(data.X, data.y, max_iter=1, **problem)
    assert not result.converged
    assert result.n_iter == 1
    assert np.isfinite(result.objective)


@pytest.mark.parametrize("alpha", ["exact", 0.1])
def test_a_seed_repeats_the_run(alpha, make_data):
    data = make_data(n=50, p=100, shared=0.9, noise=5.0)  # hard enough for kicks to matter
    problem = {"penalty": TrimmedL1(12), "alpha": alpha}

    def run(random_state):
        return solve(data.X, data.y, random_state=random_state, **problem)

    default = run(None)
    for same in (None, 0, np.int64(0), np.random.default_rng(0)):
        again = run(same)
        np.testing.assert_array_equal(again.coef, default.coef)
        assert again.history == default.history
    first, second = (run(np.random.RandomState(7)) for _ in range(2))
    np.testing.assert_array_equal(first.coef, second.coef)
    assert len({tuple(run(seed).history["objective"]) for seed in range(4)}) > 1


# -- penalty factors -------------------------------------------------------------------------------------


@named({name: how for name, how in TRIMMED.items() if name not in ("bcd", "dc-plain")})
@pytest.mark.parametrize("alpha", ["exact", 0.2])
def test_factors(how, alpha, make_data, by_hand):
    data = make_data(n=60)
    factor = np.ones(12)
    factor[[7, 9]], factor[1], factor[4] = 0.0, np.inf, 3.0
    problem = {"penalty": TrimmedL1(2, factor), "fit_intercept": True}
    result = solve(data.X, data.y, alpha=alpha, tol=1e-8, **problem, **how)
    assert result.coef[1] == 0  # excluded, though it is at work
    assert result.weights[1] == 1
    assert np.all(result.coef[[7, 9]] != 0)  # never penalized, though they are not
    np.testing.assert_array_equal(result.weights[[7, 9]], 0)
    others = np.setdiff1d(np.arange(12), [1, 7, 9])
    assert np.count_nonzero(result.weights[others] == 0) == 2  # h, with 7 and 9 not counted
    if alpha == "exact":
        support = np.flatnonzero(result.coef)
        assert support.size == 4
        coef, _ = by_hand.least_squares(data.X[:, support], data.y, fit_intercept=True)
        np.testing.assert_allclose(result.coef[support], coef, atol=1e-5)
    else:
        size = np.abs(result.coef[others]) * factor[others]
        expected = by_hand.loss(data.X, data.y, result) + by_hand.penalty("trimmed_l1", size, 0.2, h=2)
        assert result.objective == pytest.approx(expected)
    point = {**problem, "alpha": result.alpha, "intercept": result.intercept}
    assert diagnostics.is_local_minimum(data.X, data.y, result.coef, **point, tol=1e-5)


@pytest.mark.parametrize("penalty", [L1, MCP, SCAD, lambda penalty_factor: TrimmedL1(4, penalty_factor)])
def test_factors_of_zero_and_infinity_alone(penalty, make_data, by_hand):
    data = make_data()
    factor = np.where(np.arange(12) < 5, 0.0, np.inf)
    result = solve(data.X, data.y, penalty=penalty(penalty_factor=factor), alpha=0.5, fit_intercept=True)
    coef, intercept = by_hand.least_squares(data.X[:, :5], data.y, fit_intercept=True)
    np.testing.assert_allclose(result.coef[:5], coef, atol=1e-6)
    np.testing.assert_array_equal(result.coef[5:], 0)
    assert result.intercept == pytest.approx(intercept, abs=1e-6)


def test_factors_are_scales_of_the_columns(make_data):
    """Factor f is a column divided by f: the same penalty in other units."""
    data = make_data()
    factor = np.random.default_rng(0).uniform(0.5, 2.0, 12)
    with_factor = solve(data.X, data.y, penalty=TrimmedL1(3, factor), alpha=0.2)
    divided = solve(data.X / factor, data.y, penalty=TrimmedL1(3), alpha=0.2)
    np.testing.assert_allclose(with_factor.coef * factor, divided.coef, atol=1e-6)
    assert with_factor.objective == pytest.approx(divided.objective)
