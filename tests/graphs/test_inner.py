"""The weighted graphical lasso: certificates from elsewhere, closed forms, blocks, starts, no minimum."""

import numpy as np
import pytest

from trimreg import L1, TrimmedL1
from trimreg.diagnostics import certify_graph
from trimreg.graphs.mm.inner import (
    WeightedGraphSolver,
    certified,
    components,
    largest_safe_h,
    smallest_dependent_set,
    solve_weighted,
)
from trimreg.graphs.problem import GraphicalProblem


def correlation(p, seed=0, n=None, common=0.7):
    rng = np.random.default_rng(seed)
    n = 3 * p + 3 if n is None else n
    return np.corrcoef(rng.standard_normal((n, p)) + common * rng.standard_normal((n, 1)), rowvar=False)


def mixed(p, seed=0, zeros=0.2, infinite=0.2):
    """Thresholds of all kinds."""
    rng = np.random.default_rng(seed)
    lam, kind = rng.uniform(0.02, 0.4, (p, p)), rng.random((p, p))
    lam[kind < zeros], lam[kind > 1 - infinite] = 0.0, np.inf
    lam = np.triu(lam, 1)
    return lam + lam.T


def constant(p, value):
    return np.full((p, p), float(value))


# -- certificates ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [2, 3, 7, 24, 25, 40])
def test_matrix_weights_by_the_certificate(p):
    for seed in range(2):
        S, lam = correlation(p, seed), mixed(p, seed)
        fit = solve_weighted(S, lam)
        pairs = np.triu_indices(p, 1)
        certificate = certify_graph(S, fit.Theta, penalty=L1(penalty_factor=lam[pairs]), alpha=1.0)
        assert certificate.local_minimum
        assert certificate.relative_gap < 2e-8
        assert certificate.weighted_objective == pytest.approx(fit.objective, rel=1e-10)
        assert certificate.kkt_residual == pytest.approx(fit.violation, abs=1e-11)
        assert fit.gap == pytest.approx(certificate.dual_gap, abs=1e-10)
        assert not fit.Theta[np.isinf(lam)].any()
        assert np.array_equal(fit.Theta, fit.Theta.T)
        assert np.allclose(fit.W @ fit.Theta, np.eye(p), atol=1e-9)
        W, gap, violation = certified(S, lam, fit.Theta)
        assert np.allclose(W, fit.W)
        assert gap <= 1e-8
        assert violation == pytest.approx(fit.violation, abs=1e-12)


def test_certified_wants_a_positive_definite_matrix():
    with pytest.raises(ArithmeticError, match="positive definite"):
        certified(np.eye(2), np.zeros((2, 2)), np.array([[1.0, 2.0], [2.0, 1.0]]))


# -- closed forms ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("lam", [0.0, 0.1, 0.5, 0.7, np.inf])
@pytest.mark.parametrize("s", [0.5, -0.5, 0.999999, 0.0])
def test_two_variables(s, lam):
    fit = solve_weighted(np.array([[1.0, s], [s, 1.0]]), constant(2, lam), tol=1e-12)
    w = np.sign(s) * max(abs(s) - lam, 0.0)
    assert fit.W[0, 1] == pytest.approx(w, abs=1e-5)  # of the order of the root of the gap
    assert (fit.Theta[0, 1] == 0) == (w == 0)


@pytest.mark.parametrize("p", [3, 24, 25])
def test_all_free_and_all_excluded(p):
    S = correlation(p)
    free = solve_weighted(S, np.zeros((p, p)))
    assert np.allclose(free.Theta, np.linalg.inv(S), rtol=1e-8, atol=1e-9)
    none = solve_weighted(S, constant(p, np.inf), np.linalg.inv(S) * np.eye(p))
    assert np.allclose(none.Theta, np.eye(p), atol=1e-8)
    assert not (none.Theta - np.diag(np.diag(none.Theta))).any()


@pytest.mark.parametrize(("p", "width"), [(4, 1), (12, 2), (30, 3)])
def test_a_chordal_graph_has_a_closed_form(p, width):
    """A band: cliques of neighbours, separated by what two of them share (Lauritzen 1996, section 5.3.2)."""
    S = correlation(p, seed=width)
    far = np.abs(np.subtract.outer(np.arange(p), np.arange(p))) > width
    fit = solve_weighted(S, np.where(far, np.inf, 0.0), tol=1e-12)
    expected = np.zeros((p, p))
    for first in range(p - width):
        clique = np.ix_(range(first, first + width + 1), range(first, first + width + 1))
        expected[clique] += np.linalg.inv(S[clique])
        if first:
            shared = np.ix_(range(first, first + width), range(first, first + width))
            expected[shared] -= np.linalg.inv(S[shared])
    assert np.allclose(fit.Theta, expected, atol=1e-7)
    assert np.allclose(fit.W[~far], S[~far], atol=1e-8)


# -- blocks ---------------------------------------------------------------------------------------------


def test_components_of_weighted_problems():
    S = np.eye(6)
    for i, j, s in [(0, 1, 0.5), (1, 2, 0.3), (2, 3, 0.9), (4, 5, -0.4)]:
        S[i, j] = S[j, i] = s
    lam = constant(6, 0.3)  # a tie at (1, 2) does not join
    lam[0, 4] = lam[4, 0] = 0.0  # nor does a free pair without correlation
    lam[2, 3] = lam[3, 2] = np.inf  # nor an excluded one
    assert [list(block) for block in components(S, lam)] == [[0, 1], [2], [3], [4, 5]]
    S[0, 4] = S[4, 0] = 1e-300
    assert [list(block) for block in components(S, lam)] == [[0, 1, 4, 5], [2], [3]]
    assert [list(block) for block in components(S, constant(6, 0))] == [[0, 1, 2, 3, 4, 5]]


@pytest.mark.parametrize("seed", range(3))
def test_screening_changes_nothing(seed):
    """Blocks of many sizes in a random order, some of them joined by pairs below their thresholds."""
    rng = np.random.default_rng(seed)
    S = 0.02 * rng.uniform(-1, 1, (40, 40))
    S = (S + S.T) / 2
    order = rng.permutation(40)
    for block in np.split(order, [1, 3, 8, 16, 39]):
        S[np.ix_(block, block)] = correlation(max(block.size, 2), seed)[: block.size, : block.size]
    np.fill_diagonal(S, 1.0)
    lam = np.maximum(mixed(40, seed, zeros=0.0, infinite=0.05), 0.05)
    on, off = (solve_weighted(S, lam, tol=1e-11, screen=screen) for screen in (True, False))
    assert on.n_blocks >= 6
    assert off.n_blocks == 1
    assert np.allclose(on.Theta, off.Theta, atol=1e-6)
    assert np.array_equal(on.Theta != 0, off.Theta != 0)
    assert on.objective == pytest.approx(off.objective, rel=1e-11)
    assert on.gap <= 1e-11 * max(1.0, abs(on.objective))
    assert np.allclose(on.W @ on.Theta, np.eye(40), atol=1e-9)


def test_an_identity_falls_into_single_variables():
    fit = solve_weighted(np.eye(30), np.zeros((30, 30)))
    assert fit.n_blocks == 30
    assert np.array_equal(fit.Theta, np.eye(30))
    assert (fit.objective, fit.gap, fit.n_iter) == (30.0, 0.0, 0)


# -- starts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [6, 30])
def test_every_start_leads_to_the_same_point(p):
    S, lam = correlation(p, 1), mixed(p, 1, infinite=0.0)
    cold = solve_weighted(S, lam, tol=1e-11)
    other = solve_weighted(S, mixed(p, 2, infinite=0.0)).Theta
    indefinite = np.eye(p) - 2.0
    for start in (cold.Theta, other, np.linalg.inv(S), indefinite, np.asfortranarray(1e3 * np.eye(p))):
        fit = solve_weighted(S, lam, start, tol=1e-11)
        assert np.allclose(fit.Theta, cold.Theta, atol=1e-6)
        assert fit.gap <= 1e-11 * max(1.0, abs(fit.objective))
    assert solve_weighted(S, lam, cold.Theta, tol=1e-10).n_iter == 0


def test_the_start_is_left_alone():
    start = np.eye(5)
    solve_weighted(correlation(5), constant(5, 0.1), start)
    assert np.array_equal(start, np.eye(5))


# -- no minimum -----------------------------------------------------------------------------------------


def test_a_free_clique_of_dependent_variables_has_no_minimum():
    for seed in range(6):
        n, p = [(3, 6), (4, 8)][seed % 2]
        S = correlation(p, seed, n, common=0.0)  # of rank n - 1: any n variables are dependent
        lam = constant(p, 0.05)
        lam[:n, :n] = 0.0
        assert solve_weighted(S, lam).unbounded
        lam[0, 1] = lam[1, 0] = 0.05
        fit = solve_weighted(S, lam)
        assert not fit.unbounded
        assert fit.gap <= 1e-8 * max(1.0, abs(fit.objective))


def test_penalized_edges_keep_a_singular_problem_bounded():
    for alpha in (0.3, 0.05, 1e-3):
        fit = solve_weighted(np.ones((4, 4)), constant(4, alpha))
        assert not fit.unbounded
        assert fit.gap <= 1e-8 * max(1.0, abs(fit.objective))


def test_a_block_without_a_minimum_is_found():
    S = np.eye(30)
    S[0, 1] = S[1, 0] = 1.0
    S[5, 6] = S[6, 5] = 0.5
    assert solve_weighted(S, np.zeros((30, 30))).unbounded
    lam = np.zeros((30, 30))
    lam[0, 1] = lam[1, 0] = 0.1
    assert not solve_weighted(S, lam).unbounded


def test_the_solver_of_a_problem_raises():
    problem = GraphicalProblem(np.ones((3, 3)), TrimmedL1(h=3).bind(3).extended(3), 0.1)
    inner = WeightedGraphSolver(problem)
    with pytest.raises(ArithmeticError, match="unbounded"):
        inner.solve(inner.null, np.zeros(6))
    with pytest.raises(ArithmeticError, match="unbounded"):  # two copies with a free pair between them
        inner.solve(inner.null, np.array([0.0, 0.1, 0.1, 0.0, 0.0, 0.0]))


def test_the_solver_of_a_problem_in_its_coordinates():
    S, levels = correlation(4), np.array([0.0, 0.1, np.inf, 0.2, 0.1, 0.0, 9.0, 9.0, 9.0, 9.0])
    problem = GraphicalProblem(S, L1().bind(6).extended(4), 0.1)
    theta, gradient, loss, fit = WeightedGraphSolver(problem).solve(problem.vector(np.linalg.inv(S)), levels)
    assert theta[2] == 0  # where the start was not
    point = problem.predictor(theta)
    assert loss == pytest.approx(problem.loss_value(point))
    assert np.allclose(gradient, problem.loss_gradient(point), atol=1e-10)
    assert np.allclose(problem.matrix(theta), fit.Theta)


# -- how many edges may go free ----------------------------------------------------------------------------


def free_only(p, edges):
    """Thresholds: these pairs free, all others excluded."""
    lam = constant(p, np.inf)
    for i, j in edges:
        lam[i, j] = lam[j, i] = 0.0
    return lam


@pytest.mark.parametrize(("n", "p"), [(2, 4), (3, 5), (4, 6)])
def test_largest_safe_h_of_variables_in_general_position(n, p):
    """Of rank r = n - 1 any n are dependent: with fewer than n(n-1)/2 free edges there is a minimum."""
    rng = np.random.default_rng(n)
    S = correlation(p, n, n, common=0.0)
    safe, dependent = largest_safe_h(S)
    assert safe == n * (n - 1) // 2 - 1
    assert dependent.size == n
    pairs = list(zip(*np.triu_indices(p, 1), strict=True))
    for _ in range(25):
        chosen = rng.choice(len(pairs), safe, replace=False)
        fit = solve_weighted(S, free_only(p, [pairs[k] for k in chosen]))
        assert not fit.unbounded
        assert np.isfinite(fit.Theta).all()
        assert fit.gap <= 1e-8 * max(1.0, abs(fit.objective))
    clique = [(i, j) for i in dependent for j in dependent if i < j]
    assert len(clique) == safe + 1
    assert solve_weighted(S, free_only(p, clique)).unbounded


def test_largest_safe_h_of_special_cases():
    S = correlation(6)
    assert largest_safe_h(S) == (15, None)
    assert smallest_dependent_set(S) is None
    X = np.random.default_rng(0).standard_normal((50, 5))
    copies = np.corrcoef(np.column_stack([X, -3 * X[:, 2]]), rowvar=False)
    safe, dependent = largest_safe_h(copies)
    assert safe == 0
    assert list(dependent) == [2, 5]
    sums = np.corrcoef(np.column_stack([X, X[:, 0] + X[:, 3] - 2 * X[:, 4]]), rowvar=False)
    safe, dependent = largest_safe_h(sums)
    assert safe == 5
    assert list(dependent) == [0, 3, 4, 5]
    both = np.corrcoef(np.column_stack([X, X[:, 0] + X[:, 3], X[:, 1]]), rowvar=False)
    assert largest_safe_h(both)[0] == 0  # the smaller set counts
    assert largest_safe_h(np.ones((4, 4)))[0] == 0
    assert largest_safe_h(np.eye(4)) == (6, None)


def test_nearly_dependent_is_not_dependent():
    for left, expected in ((1e-8, 1), (1e-13, 0)):  # of the second, what the first leaves unexplained
        s = np.sqrt(1 - left)
        assert largest_safe_h(np.array([[1.0, s], [s, 1.0]]))[0] == expected


def test_dense_graphs_of_correlated_variables_take_few_newton_steps():
    """A common factor makes coordinate descent slow; conjugate gradients solve for the entries jointly."""
    rng = np.random.default_rng(0)
    S = np.corrcoef(rng.standard_normal((300, 60)) + rng.standard_normal((300, 1)), rowvar=False)
    fit = solve_weighted(S, np.full((60, 60), 0.005), tol=1e-8)
    assert np.count_nonzero(np.triu(fit.Theta, 1)) > 500
    assert fit.gap < 1e-6
    assert fit.n_iter <= 12


@pytest.mark.parametrize("seed", [31, 34])
def test_tiny_thresholds_of_a_singular_matrix_are_approached_from_large_ones(seed):
    """From the solution with other free edges, 200 Newton steps ended 7 above the minimum of seed 34."""
    rng = np.random.default_rng(seed)
    S = np.corrcoef(rng.standard_normal((4, 10)), rowvar=False)
    S = (S + S.T) / 2

    def thresholds(level):
        edges = level * rng.uniform(0.5, 5.0, 45)
        edges[rng.choice(45, 4, replace=False)] = 0.0
        matrix = np.zeros((10, 10))
        matrix[np.triu_indices(10, 1)] = edges
        return matrix + matrix.T

    start = solve_weighted(S, thresholds(3e-8), tol=1e-3).Theta
    fit = solve_weighted(S, thresholds(1e-6), start, tol=1e-5)
    assert fit.gap < 1e-2
    assert fit.n_iter < 150
    assert not fit.unbounded


def test_a_search_counts_what_the_steps_of_a_singular_matrix_cost():
    """Each of the 2,500 Newton steps of a search may otherwise take hundreds of factorizations."""
    X = np.random.default_rng(0).standard_normal((12, 20))
    S = np.corrcoef(X, rowvar=False)
    S = (S + S.T) / 2
    steps = {}
    for alpha in (1e-6, 0.1):
        inner = WeightedGraphSolver(GraphicalProblem(S, L1().bind(190).extended(20), alpha))
        *_, fit = inner.solve(inner.null, np.full(210, alpha), tol=1e-5)
        steps[alpha] = inner.n_steps / fit.n_iter
    assert steps[0.1] == 1
    assert steps[1e-6] > 5
