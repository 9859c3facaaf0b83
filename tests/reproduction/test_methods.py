"""The compiled loops against the library's solvers, and the paths against what they promise."""

import warnings

import numpy as np
import pytest

import trimreg.penalties as penalties
from trimreg import solve
from trimreg.datasets import make_gaussian, make_paper_design
from trimreg_reproduction.linear import gramkernels as kernels
from trimreg_reproduction.linear import methods
from trimreg_reproduction.linear.methods import GramProblem, first_order_path, simulate, solve_path

ALPHAS = [0.05, 0.2, 0.8, 3.0]
PENALTIES = {
    "lasso": penalties.L1(),
    "MCP": penalties.MCP(2.5),
    "SCAD": penalties.SCAD(3.0),
    "trimmed": penalties.TrimmedL1(4),
}


def parameter(method):
    return methods.GAMMAS.get(method, 4)


@pytest.fixture(scope="module")
def data():
    return make_paper_design(60, 40, 4, random_state=3)


@pytest.fixture(scope="module")
def problem(data):
    return GramProblem.of(data.X, data.y)


@pytest.mark.parametrize("method", PENALTIES)
@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_mm_is_the_librarys(problem, data, method, alpha):
    start = np.zeros(40) if method != "trimmed" else np.random.default_rng(1).standard_normal(40)
    theta, objective, _ = problem.fit(start, alpha, methods.KINDS[method], parameter(method), 1e-9)
    options = {"theta0": start, "effort": "low"} if method == "trimmed" else {}
    result = solve(data.X, data.y, penalty=PENALTIES[method], alpha=alpha, tol=1e-9, **options)
    np.testing.assert_array_equal(theta != 0, result.coef != 0)
    np.testing.assert_allclose(theta, result.coef, atol=1e-5)
    assert objective == pytest.approx(result.objective, rel=1e-7)


@pytest.mark.parametrize("method", PENALTIES)
def test_first_order_is_the_librarys(problem, data, method):
    theta = first_order_path(problem, method, [0.5], h=4, max_iter=70)[0]
    solver = "bcd" if method == "trimmed" else "prox"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = solve(data.X, data.y, penalty=PENALTIES[method], alpha=0.5, solver=solver, max_iter=70)
    np.testing.assert_allclose(theta, result.coef, atol=1e-9)


@pytest.mark.parametrize("method", ["MCP", "SCAD"])
def test_prox_is_the_penaltys(method):
    size = np.concatenate([np.linspace(0.0, 6.0, 241), [1.0, 2.5, 3.0]])
    for eta in (0.1, 0.9, 1.9):
        expected = PENALTIES[method].bind(size.size).prox(size, 1.0, eta)
        found = [kernels.proximal_point(s, 1.0, eta, methods.KINDS[method], parameter(method)) for s in size]
        np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("method", PENALTIES)
@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_value_and_weights_are_the_penaltys(method, alpha):
    theta = np.array([0.0, 0.3, -1.0, 1.7, -2.5, 3.1, 9.0, 0.0])
    gradient = np.array([1.0, 0, 0, 0, 0, 0, 0, 2.0])
    bound, out = PENALTIES[method].bind(8), np.empty(8)
    value = kernels.penalized(theta, gradient, alpha, methods.KINDS[method], float(parameter(method)), out)
    expected = bound.thresholds(bound.weights(theta, alpha, gradient), alpha)
    np.testing.assert_allclose(out, expected, atol=1e-12)
    assert value == pytest.approx(bound.value(theta, alpha))


def test_ties_of_zeros_go_to_the_larger_gradient():
    theta, gradient, out = np.array([0.0, 2.0, 0.0, 0.0]), np.array([0.1, 0, -3.0, 1.0]), np.empty(4)
    assert kernels.penalized(theta, gradient, 1.0, kernels.TRIMMED, 2.0, out) == 0.0
    assert out.tolist() == [1.0, 0.0, 0.0, 1.0]


def test_weighted_lasso_meets_its_conditions():
    """With duplicate and zero columns, fewer samples than columns, and free coordinates."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((20, 45))
    X[:, 7], X[:, 8] = X[:, 6], 0.0
    problem = GramProblem.of(X, X[:, 0] * 3 - X[:, 6] * 2 + rng.standard_normal(20))
    for level in (1e-3, 0.05, 0.5):
        t = np.full(45, level)
        t[[0, 8, 20]] = 0.0
        theta = np.zeros(45)
        gradient = kernels.weighted_lasso(problem.gram, problem.c, theta, t, 1e-7)
        np.testing.assert_allclose(gradient, problem.gram @ theta - problem.c, atol=1e-9)
        slack = np.where(theta != 0, np.abs(gradient + t * np.sign(theta)), np.abs(gradient) - t)
        assert slack.max() <= 1e-7
        assert theta[8] == 0.0


def test_moments_without_some_samples(data):
    test = np.array([0, 5, 17, 59])
    rest = np.setdiff1d(np.arange(60), test)
    left = GramProblem.of(data.X, data.y).without(data.X[test], data.y[test])
    direct = GramProblem.of(data.X[rest], data.y[rest])
    np.testing.assert_allclose(left.gram, direct.gram, atol=1e-10)
    np.testing.assert_allclose(left.c, direct.c, atol=1e-9)
    assert (left.n, left.s) == (56, pytest.approx(direct.s))


@pytest.mark.parametrize("method", ["trimmed", "MCP", "SCAD"])
def test_help_pays(method):
    """Against MM from the lasso: never higher, and often lower."""
    lower = higher = 0
    total = 0.0
    for seed in range(6):
        data = make_paper_design(40, 50, 5, random_state=seed)
        problem = GramProblem.of(data.X, data.y)
        path = solve_path(problem, method, ALPHAS, 5)
        lasso = solve_path(problem, "lasso", ALPHAS)
        for theta, start, alpha in zip(path[1:], lasso[1:], ALPHAS[1:], strict=True):
            kind, extra = methods.KINDS[method], methods.GAMMAS.get(method, 5)
            mine = problem.fit(theta, alpha, kind, extra)
            np.testing.assert_allclose(mine[0], theta, atol=2e-3)  # a fixed point of MM
            plain = problem.fit(start, alpha, kind, extra)[1]
            lower += mine[1] < plain * (1 - 1e-4)
            higher += mine[1] > plain * (1 + 1e-4)
            total += np.log(mine[1] / plain)
    assert total < 0
    assert higher == 0
    assert lower >= 3


def test_rivals_and_swaps_never_raise_the_objective():
    better = 0
    for seed in range(8):
        data = make_paper_design(40, 60, 6, random_state=seed)
        problem = GramProblem.of(data.X, data.y)
        for alpha in (0.8, 3.0):
            found = problem.fit(np.zeros(60), alpha, kernels.TRIMMED, 6)
            swapped = methods._swapped(problem, found, alpha, 6, 1e-6)
            assert swapped[1] <= found[1]
            better += swapped[1] < found[1] * (1 - 1e-3)
            other = problem.fit(np.ones(60), alpha, kernels.TRIMMED, 6)
            kept = methods._better(problem, found, other[0], alpha, kernels.TRIMMED, 6, 1e-5)
            assert kept[1] <= min(found[1], other[1]) * (1 + 1e-6)
            best = solve(data.X, data.y, penalty=penalties.TrimmedL1(6), alpha=alpha).objective
            assert swapped[1] <= 1.5 * best
    assert better >= 4


def test_path_reaches_the_default_solver():
    """Where the support is sparse, the path's objective is within a few per cent of the default solver's."""
    ratios = []
    for seed in range(8):
        data = make_paper_design(40, 60, 6, random_state=seed)
        problem = GramProblem.of(data.X, data.y)
        theta = solve_path(problem, "trimmed", ALPHAS, 6)[-1]
        best = solve(data.X, data.y, penalty=penalties.TrimmedL1(6), alpha=ALPHAS[-1]).objective
        ratios.append(problem.fit(theta, ALPHAS[-1], kernels.TRIMMED, 6)[1] / best)
    assert np.median(ratios) <= 1.0 + 1e-6
    assert max(ratios) <= 1.08


def test_h_zero_is_the_lasso(problem):
    start = np.random.default_rng(0).standard_normal(40)
    for alpha in ALPHAS:
        trimmed = problem.fit(start, alpha, kernels.TRIMMED, 0, 1e-9)
        lasso = problem.fit(start, alpha, kernels.L1, 0, 1e-9)
        np.testing.assert_array_equal(trimmed[0], lasso[0])
        assert trimmed[1] == lasso[1]
    np.testing.assert_array_equal(
        solve_path(problem, "trimmed", ALPHAS, 0), solve_path(problem, "lasso", ALPHAS)
    )


@pytest.mark.parametrize("method", PENALTIES)
def test_units_of_the_response(data, method):
    """y and alpha times a power of two: coefficients times it, exactly the same support."""
    one = solve_path(GramProblem.of(data.X, data.y), method, ALPHAS, 4)
    many = solve_path(GramProblem.of(data.X, 16 * data.y), method, [16 * a for a in ALPHAS], 4)
    np.testing.assert_array_equal(one != 0, many != 0)
    np.testing.assert_allclose(16 * one, many, rtol=1e-6, atol=1e-6)


def test_large_lambda_is_the_best_subset():
    data = make_gaussian(50, 30, 3, random_state=2)
    theta = solve_path(GramProblem.of(data.X, data.y), "trimmed", [1.0, 50.0], 3)[-1]
    best = solve(data.X, data.y, penalty=penalties.TrimmedL1(3), alpha="exact").coef
    np.testing.assert_array_equal(theta != 0, best != 0)
    np.testing.assert_allclose(theta, best, atol=1e-4)


def test_simulate_knows_success_from_failure():
    data = make_gaussian(80, 25, 3, noise=0.1, random_state=4)
    rows = simulate(data, methods.METHODS, np.random.default_rng(0), h=3, authors=["MCP"])
    by = {row["method"]: row for row in rows}
    assert list(by) == [*methods.METHODS, "MCP" + methods.AUTHORS]
    assert by["trimmed"]["recovered_any"]
    assert by["MCP"]["recovered_any"]
    assert by["trimmed"]["cv_error"] < 0.2 < 5 * by["lasso"]["cv_error"]
    assert by["lasso"]["cv_error"] < 0.5  # the lambda of the worst score would give about 9
    assert by["lasso"]["lambda_cv"] < 0.2
    assert by["MCP" + methods.AUTHORS]["recovered_cv"] is None
    for row in rows[:4]:
        assert row["best_error"] <= row["cv_error"] * (1 + 1e-12)
        assert row["lambda_cv"] in methods.LAMBDAS
    assert len(methods.LAMBDAS) == 21
    np.testing.assert_allclose(np.log10(methods.LAMBDAS), np.linspace(-3, 1, 21), atol=1e-9)  # the paper's
    wrong = data._replace(coef=np.roll(data.coef, 1))
    rows = simulate(wrong, ["trimmed"], np.random.default_rng(0), h=3)
    assert not rows[0]["recovered_any"]
    assert not rows[0]["recovered_cv"]
