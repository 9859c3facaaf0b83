"""Exchanges of groups: scores against refits, and moves that only ever lower the objective."""

from itertools import combinations

import numpy as np
import pytest

from trimreg import TrimmedL1
from trimreg.designs import as_design
from trimreg.losses import Logistic, Quadratic
from trimreg.solvers import Problem
from trimreg.solvers.mm.workingset import GramSolver, WorkingSetSolver
from trimreg.solvers.search.exchange import exchange_while_better, kick
from trimreg.solvers.search.groups import GroupSearch, _quadratic, eliminated

P, SIZE = 18, 3
LABEL = np.arange(P) // SIZE
COUNT = P // SIZE


def make(alpha, *, h=2, q=2, seed=0, n=50, factor=None, loss=None):
    """A normalized problem, its solver, and its Gram matrix and moments."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, P)) + 0.7 * rng.standard_normal((n, 1))
    y = X[:, :6] @ rng.standard_normal(6) + 0.5 * rng.standard_normal(n)
    if isinstance(loss, Logistic):
        y = (y > 0).astype(float)
    d = np.full(n, 1 / n)
    penalty = TrimmedL1(h, factor, groups=LABEL, q=q).bind(P)
    problem, _ = Problem(as_design(X, d), loss or Quadratic(), y, d, penalty, alpha).normalized()
    return problem, WorkingSetSolver(problem, 1e-10)


def search_from(problem, inner, free):
    """The search over all groups, from the local minimum that the free set leads to."""
    levels = problem.penalty.levels(problem.alpha)
    levels[free] = 0.0
    theta, gradient, loss, _ = inner.solve(np.zeros(P), levels)
    predictor = problem.predictor(theta)
    model = GramSolver(inner, np.arange(COUNT), theta, gradient, loss, predictor)
    return GroupSearch(model, theta, np.asarray(free), gradient)


def least_squares(problem, groups):
    """The loss of the fit to these groups alone."""
    columns = np.flatnonzero(np.isin(LABEL, groups))
    Z = problem.design.columns(columns)
    residual = problem.y - Z @ np.linalg.lstsq(Z, problem.y, rcond=None)[0]
    return 0.5 * np.mean(residual**2)


@pytest.mark.parametrize("q", [2, np.inf])
@pytest.mark.parametrize("seed", range(3))
def test_scores_of_best_subsets_are_those_of_refits(seed, q):
    problem, inner = make(1e6, q=q, seed=seed)
    search = search_from(problem, inner, [0, 4])
    scores = search.exchanges()
    now = least_squares(problem, [0, 4])
    assert search.objective == pytest.approx(now, rel=1e-9)
    np.testing.assert_array_equal(scores.free, [0, 4])
    for i, cost in zip(scores.free, scores.cost, strict=True):
        rest = [4] if i == 0 else [0]
        assert cost == pytest.approx(least_squares(problem, rest) - now, rel=1e-6)
    assert sorted(scores.candidates) == [1, 2, 3, 5]
    for j, entry in zip(scores.candidates, scores.entry_gain, strict=True):
        assert entry == pytest.approx(now - least_squares(problem, [0, 4, j]), rel=1e-6)
    for j, gain, partner in zip(scores.candidates, scores.gain, scores.partner, strict=True):
        swaps = [now - least_squares(problem, [4, j]), now - least_squares(problem, [0, j])]
        assert gain == pytest.approx(max(swaps), rel=1e-6)
        assert partner == np.argmax(swaps)


def test_leaving_costs_no_more_than_the_penalty():
    problem, inner = make(1e-4)
    search = search_from(problem, inner, [0, 1])
    scores = search.exchanges()
    length = problem.penalty.norm.lengths(search.theta)
    np.testing.assert_array_less(scores.cost, (search.levels * length)[scores.free] * (1 + 1e-12))
    # groups under the penalty gain what they pay, at least
    held = np.flatnonzero((length > 0) & ~np.isin(np.arange(COUNT), scores.free))
    assert held.size
    for j in held:
        entry = scores.entry_gain[np.flatnonzero(scores.candidates == j)[0]]
        assert entry == pytest.approx(search.levels[j] * length[j])


@pytest.mark.parametrize("q", [2, np.inf])
@pytest.mark.parametrize(("alpha", "least"), [(0.3, 1), (1e6, 5)])
def test_descent_lowers_the_objective_and_says_where_it_is(q, alpha, least):
    improved = 0
    for seed in range(5):
        problem, inner = make(alpha, q=q, seed=seed)
        search = search_from(problem, inner, [4, 5])  # which have nothing to say
        before = search.objective
        for _ in exchange_while_better(search):
            assert search.objective < before
            before = search.objective
            improved += 1
        theta, free = search.solution()
        assert search.objective == pytest.approx(problem.objective(theta), rel=1e-9)
        assert free.size <= 2
        gradient = problem.gradient(theta)
        np.testing.assert_allclose(search.gradient, gradient, atol=1e-9)
        threshold = search.levels.copy()
        threshold[free] = 0.0
        assert np.abs(problem.penalty.norm.residual(theta, gradient, threshold)).max() < 1e-6
    assert improved >= least  # under a soft alpha MM does most of it


@pytest.mark.parametrize("q", [2, np.inf])
def test_descent_and_kicks_find_the_best_groups(q):
    found = 0
    for seed in range(10):
        problem, inner = make(1e6, q=q, seed=seed)
        search, rng = search_from(problem, inner, [2, 3]), np.random.default_rng(0)
        for _ in exchange_while_better(search):
            pass
        for _ in range(4):
            kick(search, rng, 3)
        best = min(least_squares(problem, list(pair)) for pair in combinations(range(COUNT), 2))
        found += search.objective <= best * (1 + 1e-6)
    assert found >= 9


def test_a_move_that_does_not_pay_is_not_made():
    problem, inner = make(1e6)
    best = min(combinations(range(COUNT), 2), key=lambda pair: least_squares(problem, list(pair)))
    search = search_from(problem, inner, list(best))
    before = search.save()
    search.exchanges()
    for j in np.setdiff1d(np.arange(COUNT), best):
        assert not search.attempt(np.array([best[0]]), np.array([j]))
    assert search.objective == before["objective"]
    np.testing.assert_array_equal(search.theta, before["theta"])


def test_groups_that_are_never_penalized_or_excluded_stay_what_they_are():
    factor = np.array([1.0, 0.0, 1.0, np.inf, 1.0, 1.0])
    problem, inner = make(1e6, h=1, factor=factor)
    search = search_from(problem, inner, [5])
    scores = search.exchanges()
    assert sorted(scores.candidates) == [0, 2, 4]
    for _ in exchange_while_better(search):
        pass
    theta, free = search.solution()
    lengths = problem.penalty.norm.lengths(theta)
    assert lengths[3] == 0.0
    assert lengths[1] > 0.0
    assert free.size == 1
    best = min(least_squares(problem, [1, j]) for j in (0, 2, 4, 5))
    assert search.objective == pytest.approx(best, rel=1e-6)


def test_an_empty_active_set():
    """Nothing is free, nothing nonzero: there is nothing to exchange, and no system to solve."""
    problem, inner = make(1e6, h=0)
    search = search_from(problem, inner, np.array([], dtype=int))
    scores = search.exchanges()
    assert scores.free.size == 0
    assert not np.isfinite(scores.gain).any()
    assert list(exchange_while_better(search)) == []


def test_copies_of_columns_that_are_active():
    """Nothing is left of them to enter with: their blocks are singular, and their scores are numbers."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 9))
    X[:, 3:6], X[:, 6] = X[:, :3], X[:, 7]
    y, d = X[:, 0] + X[:, 7] + 0.1 * rng.standard_normal(50), np.full(50, 0.02)
    penalty = TrimmedL1(1, groups=np.arange(9) // 3).bind(9)
    problem, _ = Problem(as_design(X, d), Quadratic(), y, d, penalty, 1e6).normalized()
    inner = WorkingSetSolver(problem, 1e-10)
    theta, gradient, loss, _ = inner.solve(np.zeros(9), np.array([0.0, np.inf, np.inf]))
    search = GroupSearch(
        GramSolver(inner, np.arange(3), theta, gradient, loss), theta, np.array([0]), gradient
    )
    scores = search.exchanges()
    assert np.isfinite(scores.entry_gain).all()
    assert np.isfinite(scores.gain).all()
    for _ in exchange_while_better(search):
        pass
    assert search.objective <= 0.5 * np.mean(y**2)


@pytest.mark.parametrize("matrix", [np.zeros((2, 2)), np.ones((2, 2))])
def test_singular_blocks_are_solved_on_what_is_left_of_them(matrix):
    """The stack has one that is regular, which a singular one must not spoil."""
    vectors = np.ones((2, 2))
    found = _quadratic(np.stack([matrix, np.diag([2.0, 4.0])]), vectors)
    np.testing.assert_allclose(found, [0.0 if not matrix.any() else 1.0, 0.75])


def test_scores_of_another_loss_are_of_its_quadratic_model():
    problem, inner = make(1e6, loss=Logistic())
    search = search_from(problem, inner, [0, 1])
    scores = search.exchanges()
    H = problem.hessian(problem.predictor(search.theta), np.arange(P))
    A = np.flatnonzero(np.isin(LABEL, [0, 1]))
    for j, entry in zip(scores.candidates, scores.entry_gain, strict=True):
        J = np.flatnonzero(j == LABEL)
        spare = H[np.ix_(J, J)] - H[np.ix_(J, A)] @ np.linalg.solve(H[np.ix_(A, A)], H[np.ix_(A, J)])
        expected = 0.5 * search.gradient[J] @ np.linalg.solve(spare, search.gradient[J])
        assert entry == pytest.approx(expected, rel=1e-4)  # the model has a little curvature more


@pytest.mark.parametrize("seed", range(4))
def test_elimination_one_at_a_time_lets_the_cheapest_go(seed):
    """From one more than asked for, the group that leaves is the one whose refit costs least."""
    problem, inner = make(1e-4, h=6, seed=seed)
    model, left = search_from(problem, inner, list(range(COUNT))).inner, np.arange(COUNT)
    zero = np.zeros(P)  # where a model of least squares is made does not matter
    while left.size > 1:
        kept = eliminated(model, zero, inner.gradient_at_zero, left, left.size - 1)
        losses = [least_squares(problem, np.delete(left, k)) for k in range(left.size)]
        np.testing.assert_array_equal(kept, np.delete(left, np.argmin(losses)))
        left = kept
