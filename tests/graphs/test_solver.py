"""Graphical models from a covariance to a precision: what every solver keeps, and how good its minima are."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from trimreg import L1, MCP, SCAD, TrimmedL1
from trimreg.diagnostics import certify_graph
from trimreg.graphs.mm.exchange import exchange_edges
from trimreg.graphs.mm.inner import WeightedGraphSolver, majorize_minimize, solve_weighted
from trimreg.graphs.mm.solver import STARTS
from trimreg.graphs.problem import GraphicalProblem
from trimreg.graphs.solve import solve_graphical

SOLVERS = ["mm", "bcd", "dc", "prox"]


def correlation(p, seed=0, n=None):
    """Of variables with a random sparse mixing: few strong edges, many weak ones."""
    rng = np.random.default_rng(seed)
    n = 6 * p if n is None else n
    mix = np.where(rng.random((p, p)) < 0.4, rng.standard_normal((p, p)), 0.0)
    return np.corrcoef(rng.standard_normal((n, p)) @ mix + 0.7 * rng.standard_normal((n, p)), rowvar=False)


def pairs(p):
    return p * (p - 1) // 2


# -- every step -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", ["exact", 0.1])
@pytest.mark.parametrize("solver", SOLVERS)
def test_positive_definite_at_every_step_and_never_rising(solver, alpha):
    S, p = correlation(8), 8
    problem = GraphicalProblem(S, TrimmedL1(h=5).bind(28).extended(8), 0.1)
    smallest, descending = [], []

    def watch(step):
        smallest.append(np.linalg.eigvalsh(problem.matrix(step.theta))[0])
        descending.append(step.series["F"] if solver == "bcd" else step.objective)
        assert step.theta.shape == step.weights.shape == (28 + p,)

    options = {"effort": "high"} if solver == "mm" else {"precision0": np.linalg.inv(S + 0.1 * np.eye(p))}
    result = solve_graphical(
        S, penalty=TrimmedL1(h=5), alpha=alpha, solver=solver, tol=1e-6, callback=watch, **options
    )
    assert len(smallest) == result.n_iter == len(result.history["objective"])
    assert min(smallest) > 0
    assert np.all(np.diff(descending) <= 1e-10 * np.abs(descending[0]))
    assert result.converged
    if alpha != "exact":  # there the first-order solvers may be finished by MM
        assert result.history["objective"][-1] == pytest.approx(result.objective, rel=1e-9)


def test_what_a_result_says_is_so():
    S = correlation(7) * np.outer(np.arange(1, 8), np.arange(1, 8))
    for standardize in (False, True):
        result = solve_graphical(S, penalty=TrimmedL1(h=6), alpha=0.2, standardize=standardize)
        certificate = certify_graph(
            S,
            result.precision,
            penalty=TrimmedL1(h=6),
            alpha=0.2,
            weights=result.weights,
            standardize=standardize,
        )
        assert certificate
        assert result.objective == pytest.approx(certificate.objective, rel=1e-9)
        assert result.dual_gap == pytest.approx(certificate.relative_gap, abs=1e-9)
        assert np.allclose(result.covariance @ result.precision, np.eye(7), atol=1e-9)
        assert not np.diagonal(result.weights).any()
        assert np.count_nonzero(np.triu(result.weights == 0, 1)) == 6


@pytest.mark.parametrize("penalty", [TrimmedL1(h=6), L1(), MCP(), SCAD()])
def test_standardize_is_a_change_of_units(penalty):
    R, scale = correlation(6), np.array([1e-3, 5.0, 1.0, 1e4, 0.2, 1.0])
    one = solve_graphical(R, penalty=penalty, alpha=0.15)
    other = solve_graphical(R * np.outer(scale, scale), penalty=penalty, alpha=0.15, standardize=True)
    assert np.allclose(other.precision * np.outer(scale, scale), one.precision, atol=1e-6)
    assert other.objective == pytest.approx(one.objective, rel=1e-8)


@pytest.mark.parametrize("exponent", [-12, -6, 6, 12])
def test_strange_scales(exponent):
    R = correlation(6, n=60)
    scale = 10.0 ** (exponent / 2 * np.linspace(0, 1, 6))
    for h in (0, 4, 15):
        one = solve_graphical(R, penalty=TrimmedL1(h=h), alpha="exact", standardize=True, tol=1e-10)
        other = solve_graphical(
            R * np.outer(scale, scale), penalty=TrimmedL1(h=h), alpha="exact", standardize=True, tol=1e-10
        )
        assert np.allclose(other.precision * np.outer(scale, scale), one.precision, atol=1e-5)
        S = R * np.outer(scale, scale)
        plain = solve_graphical(S, penalty=TrimmedL1(h=h), alpha="exact")
        assert plain.converged
        assert np.count_nonzero(np.triu(plain.precision, 1)) <= h
        assert certify_graph(S, plain.precision, penalty=TrimmedL1(h=h), alpha=plain.alpha).positive_definite


def test_float32_comes_back_as_float32():
    S = correlation(6).astype(np.float32)
    result = solve_graphical(S, penalty=TrimmedL1(h=5), alpha=0.1)
    double = solve_graphical(S.astype(float), penalty=TrimmedL1(h=5), alpha=0.1)
    assert result.precision.dtype == result.covariance.dtype == np.float32
    assert double.precision.dtype == np.float64
    assert np.allclose(result.precision, double.precision, rtol=1e-5, atol=1e-6)
    assert np.array_equal(result.precision == 0, double.precision == 0)


# -- limits ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [5, 25])
def test_penalties_that_coincide(p):
    S, m = correlation(p, seed=p, n=8 * p), pairs(p)
    lasso = solve_graphical(S, penalty=L1(), alpha=0.1).precision
    for penalty in (TrimmedL1(h=0), MCP(gamma=np.inf), SCAD(gamma=np.inf)):
        assert np.allclose(solve_graphical(S, penalty=penalty, alpha=0.1).precision, lasso, atol=1e-6)
    inverse = np.linalg.inv(S)
    for penalty, alpha in ((TrimmedL1(h=m), 0.1), (TrimmedL1(h=m), "exact"), (L1(), 0.0), (MCP(), 0.0)):
        result = solve_graphical(S, penalty=penalty, alpha=alpha)
        assert np.allclose(result.precision, inverse, atol=1e-6 * np.abs(inverse).max())


def test_huge_and_tiny_alpha():
    S = correlation(5)
    for penalty in (L1(), MCP(), SCAD(), TrimmedL1(h=0)):
        assert np.allclose(solve_graphical(S, penalty=penalty, alpha=1e6).precision, np.eye(5))
        near = solve_graphical(S, penalty=penalty, alpha=1e-12).precision
        assert np.allclose(near, np.linalg.inv(S), rtol=1e-5, atol=1e-6)


# -- minima ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("effort", ["low", "medium", "high"])
def test_mm_ends_at_local_minima(effort):
    for seed in range(2):
        S = correlation(8, seed)
        for h, alpha in ((3, "exact"), (8, 0.1), (20, 0.02)):
            result = solve_graphical(S, penalty=TrimmedL1(h=h), alpha=alpha, effort=effort)
            assert result.dual_gap <= 1e-8
            # A relative gap of 1e-8 leaves violations of about its root.
            assert certify_graph(S, result.precision, penalty=TrimmedL1(h=h), alpha=result.alpha, tol=2e-4)


@pytest.mark.parametrize("penalty", [MCP(), SCAD(), MCP(gamma=1.5), SCAD(gamma=2.2)])
def test_folded_penalties_end_at_stationary_points(penalty):
    for seed in range(3):
        S = correlation(7, seed)
        for alpha in (0.05, 0.3):
            result = solve_graphical(S, penalty=penalty, alpha=alpha)
            certificate = certify_graph(S, result.precision, penalty=penalty, alpha=alpha, tol=1e-5)
            assert result.converged
            assert certificate.violation < 1e-5
            assert certificate.local_minimum is not False


def test_more_effort_is_not_worse():
    for seed in range(2):
        S = correlation(9, seed, n=12)
        for h, alpha in ((6, "exact"), (10, 0.05)):
            low, medium, high = (
                solve_graphical(S, penalty=TrimmedL1(h=h), alpha=alpha, effort=effort).objective
                for effort in ("low", "medium", "high")
            )
            room = 1e-7 * max(1.0, abs(low))
            assert high <= medium + room
            assert medium <= low + room


def best_subsets(S):
    """The lowest objective of a graph with k edges, for all k, by trying every graph."""
    p = len(S)
    i, j = np.triu_indices(p, 1)
    best = np.full(i.size + 1, np.inf)
    for code in range(2**i.size):
        on = np.flatnonzero([code >> k & 1 for k in range(i.size)])
        lam = np.full((p, p), np.inf)
        lam[i[on], j[on]] = lam[j[on], i[on]] = 0.0
        best[on.size] = min(best[on.size], solve_weighted(S, lam, tol=1e-10).objective)
    return best


def test_against_every_graph_of_four_and_five_variables():
    found = {"medium": [], "high": []}
    for p, seed in [(4, s) for s in range(6)] + [(5, 1)]:
        S = correlation(p, seed, n=p + 2 + 10 * (seed % 2))
        best = best_subsets(S)
        for h in range(pairs(p) + 1):
            for effort, hits in found.items():
                objective = solve_graphical(S, penalty=TrimmedL1(h=h), alpha="exact", effort=effort).objective
                room = 1e-6 * max(1.0, abs(best[h]))
                assert objective >= best[h] - room
                hits.append(objective <= best[h] + room)
    assert np.mean(found["medium"]) >= 0.9
    assert np.mean(found["high"]) >= 0.97


def test_exchanges_never_raise_the_objective():
    improved = 0
    for seed in range(4):
        S = correlation(8, seed)
        problem = GraphicalProblem(S, TrimmedL1(h=6).bind(28).extended(8), 0.3)
        inner = WeightedGraphSolver(problem)
        weights = np.ones(36)
        weights[:6] = weights[28:] = 0.0  # whatever edges come first
        *_, point = majorize_minimize(inner, weights, inner.null, 1e-6)
        objectives = [point.objective]
        for better in exchange_edges(inner, point, 30, 10_000, 1e-6):
            objectives.append(better.objective)
            assert np.count_nonzero(better.weights[:28] == 0) == 6
            assert better.objective == pytest.approx(problem.objective(better.theta), rel=1e-9)
        assert np.all(np.diff(objectives) < 0)
        improved += len(objectives) > 1
    assert improved >= 2


@pytest.mark.parametrize("start", [*STARTS, ("mle", "diagonal")])
def test_every_start_ends_at_a_local_minimum(start):
    S = correlation(8, 2)
    result = solve_graphical(S, penalty=TrimmedL1(h=7), alpha=0.1, start=start, effort="low")
    assert result.converged
    assert certify_graph(S, result.precision, penalty=TrimmedL1(h=7), alpha=0.1, tol=2e-4)


def test_precision0_is_where_it_starts():
    S = correlation(6, 1)
    goal = solve_graphical(S, penalty=TrimmedL1(h=5), alpha="exact", effort="high")
    again = solve_graphical(S, penalty=TrimmedL1(h=5), alpha="exact", precision0=goal.precision, effort="low")
    assert again.objective == pytest.approx(goal.objective, rel=1e-9)
    assert np.array_equal(again.precision != 0, goal.precision != 0)
    convex = solve_graphical(S, penalty=L1(), alpha=0.1, precision0=np.linalg.inv(S))
    assert np.allclose(convex.precision, solve_graphical(S, penalty=L1(), alpha=0.1).precision, atol=1e-6)


# -- first-order solvers --------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["bcd", "dc", "prox"])
def test_first_order_solvers_reach_stationary_points(solver):
    options = {"ties": "aware"} if solver == "dc" else {}
    S, penalty = correlation(6, 1), TrimmedL1(h=5)
    options |= {"alpha": 0.1, "tol": 1e-7, "precision0": np.linalg.inv(S)}
    result = solve_graphical(S, penalty=penalty, solver=solver, **options)
    assert result.converged
    assert np.sqrt(result.history["T"][-1]) <= 1e-7
    if solver != "bcd":  # Algorithm 1 may end at fractional weights
        assert certify_graph(S, result.precision, penalty=penalty, alpha=0.1).stationarity < 1e-12


@pytest.mark.parametrize("penalty", [L1(), TrimmedL1(h=0), MCP(), SCAD()])
def test_proximal_gradient_agrees_with_mm(penalty):
    S = correlation(6, 3)
    mm = solve_graphical(S, penalty=penalty, alpha=0.2, tol=1e-10)
    prox = solve_graphical(S, penalty=penalty, alpha=0.2, solver="prox", tol=1e-8, precision0=mm.precision)
    assert np.allclose(prox.precision, mm.precision, atol=1e-5)


# -- how it ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
def test_one_step_warns_and_is_positive_definite(solver):
    S = correlation(7, 5)
    with pytest.warns(ConvergenceWarning, match="not converged after 1 steps"):
        result = solve_graphical(
            S, penalty=TrimmedL1(h=6), alpha=0.05, solver=solver, max_iter=1, precision0=np.eye(7) * 3 + 0.5
        )
    assert not result.converged
    assert result.n_iter == 1
    assert np.linalg.eigvalsh(result.precision)[0] > 0


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_callback_may_stop(solver):
    seen = []

    def stop(step):
        seen.append(step)
        return len(seen) == 2

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = solve_graphical(
            correlation(7), penalty=TrimmedL1(h=6), alpha=0.05, solver=solver, callback=stop
        )
    assert result.n_iter == len(seen) == 2
    assert np.linalg.eigvalsh(result.precision)[0] > 0


@pytest.mark.parametrize("penalty", [TrimmedL1(h=9), L1(), MCP(), SCAD()])
def test_a_tolerance_below_rounding_ends(penalty):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = solve_graphical(correlation(9, 1), penalty=penalty, alpha=0.05, tol=1e-14)
    assert result.n_iter < 300
    assert result.dual_gap < 1e-11
    assert result.stationarity < 1e-7
