"""The search over subsets: scores against refits, updates against rebuilding."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from trimreg import TrimmedL1, TrimmedLasso, diagnostics, solve, trimmed_path
from trimreg.solvers.mm.workingset import WorkingSetSolver
from trimreg.solvers.search.crossings import crossings
from trimreg.solvers.search.exchange import exchange_while_better, kick
from trimreg.solvers.search.kernels import best_swap
from trimreg.solvers.search.subset import Subset, SubsetSearch

P = 15
FACTOR = np.ones(P)
FACTOR[[5, 9]], FACTOR[11] = 0.0, np.inf  # never penalized, and excluded


@pytest.fixture
def search(make_problem):
    """A search over subsets of size 4 from a poor start, and the problem in normalized coordinates."""

    def make(factor=None, free=(1, 4, 6, 7), **how):
        problem, _ = make_problem(TrimmedL1(4, factor), 1e6, **how).normalized()
        return SubsetSearch(WorkingSetSolver(problem, 1e-8), np.array(free, dtype=int)), problem

    return make


def refit(problem, columns):
    """Half the weighted mean squared residual of least squares on these columns."""
    root = np.sqrt(problem.d)
    Z = root[:, None] * problem.design.columns(np.array(sorted(columns), dtype=int))
    residual = root * problem.y - Z @ np.linalg.lstsq(Z, root * problem.y, rcond=None)[0]
    return 0.5 * residual @ residual


@pytest.mark.parametrize("factor", [None, FACTOR], ids=["plain", "factors"])
@pytest.mark.parametrize("uniform", [True, False])
def test_scores_are_those_of_refits(search, factor, uniform):
    here, problem = search(factor, uniform=uniform)
    always = set() if factor is None else {5, 9}
    excluded = set() if factor is None else {11}
    free = set(here.free)
    assert here.objective == pytest.approx(refit(problem, free | always))
    scores = here.exchanges()
    np.testing.assert_array_equal(scores.free, here.free)
    for i, cost in zip(scores.free, scores.cost, strict=True):
        assert cost == pytest.approx(refit(problem, (free - {i}) | always) - here.objective)
    outside = set(range(P)) - free - always - excluded
    gains = {
        j: {i: here.objective - refit(problem, (free - {i}) | {j} | always) for i in free} for j in outside
    }
    best = max(max(row.values()) for row in gains.values())
    assert best > 0
    for j, entry, gain, partner in zip(
        scores.candidates, scores.entry_gain, scores.gain, scores.partner, strict=True
    ):
        if j in outside:
            assert entry == pytest.approx(here.objective - refit(problem, free | {j} | always))
            if np.isfinite(gain):  # a candidate that cannot be the best of all is not scored
                assert gain == pytest.approx(max(gains[j].values()))
                assert gains[j][scores.free[partner]] == pytest.approx(gain)
            else:
                assert max(gains[j].values()) < best
        else:
            assert entry == 0
            assert not gain > 0
    assert scores.gain.max() == pytest.approx(best)


@pytest.mark.parametrize("factor", [None, FACTOR], ids=["plain", "factors"])
@pytest.mark.parametrize("size", [0, 1, 4, 6])
def test_a_descent_makes_the_best_moves_of_refits(search, factor, size):
    always = set() if factor is None else {5, 9}
    usable = set(range(P)) - always - (set() if factor is None else {11})
    for seed in range(5):
        here, problem = search(factor, seed=seed)
        start = np.random.default_rng(seed).permutation(sorted(usable))[:2]
        here.size = min(2, size)
        here.move_to(start[:size])
        here.grow(size)
        chosen = set(start[:size])
        while len(chosen) < size:
            chosen.add(min(usable - chosen, key=lambda j: refit(problem, chosen | always | {j})))
        moves = True
        while moves:
            value = refit(problem, chosen | always)
            moves = [chosen - {i} | {j} for i in chosen for j in usable - chosen]
            moves = [new for new in moves if refit(problem, new | always) < value - 1e-9]
            chosen = min(moves, key=lambda new: refit(problem, new | always), default=chosen)
        assert set(here.free) == chosen
        assert here.objective == pytest.approx(refit(problem, chosen | always))
        updated = here.save()
        here.refresh()
        for name, value in here.save().items():
            np.testing.assert_allclose(updated[name], value, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("factor", [None, FACTOR], ids=["plain", "factors"])
def test_the_best_swap_is_that_of_the_scores(search, factor):
    rng = np.random.default_rng(0)
    here, _ = search(factor)
    for _ in range(20):
        here.move_to(rng.permutation(np.setdiff1d(np.arange(P), [5, 9, 11]))[:4])
        scores = here.exchanges()
        arrays = here.link, here.correlation, here.spare, here.theta, here.inverse
        gain, slot, column = best_swap(*arrays, here.always.size, here.A.size, 1e-12)
        assert gain == pytest.approx(scores.gain.max())
        assert here.A[slot] == here.free[scores.partner[column]]
        assert column == scores.gain.argmax()
        before = here.objective
        assert here.attempt(here.A[[slot]], np.array([column]))
        assert here.objective == pytest.approx(before - gain)


def test_a_descent_through_nearly_dependent_columns_ends_where_no_swap_helps():
    rng = np.random.default_rng(0)
    for seed, distance in product(range(5), (1e-1, 1e-2, 1e-3)):
        common = rng.standard_normal((50, 3))
        X = common[:, rng.integers(3, size=20)] + distance * rng.standard_normal((50, 20))
        y = X @ rng.standard_normal(20) + rng.standard_normal(50)
        for result in np.ravel(trimmed_path(X, y, range(9), "exact", fit_intercept=False).results):
            how = {"penalty": TrimmedL1(int(np.sum(result.weights == 0))), "alpha": result.alpha}
            assert not diagnostics.best_swap(X, y, result.coef, standardize=True, **how), (seed, distance)


def test_an_exchange_that_does_not_help_changes_nothing(search):
    here, problem = search()
    for _ in exchange_while_better(here):
        pass
    state, objective = here.save(), here.objective
    for i, j in product(here.free, np.setdiff1d(np.arange(P), here.free)):
        assert not here.attempt(np.array([i]), np.array([j]))
        assert refit(problem, set(here.free) - {i} | {j}) >= objective * (1 - 1e-12)
    for name, value in here.save().items():
        np.testing.assert_array_equal(value, state[name])


def test_kicks_never_end_higher(search):
    here, _ = search(seed=3)
    for _ in exchange_while_better(here):
        pass
    rng = np.random.default_rng(0)
    for _ in range(10):
        before = here.objective
        kick(here, rng, 2)
        assert here.objective <= before


@pytest.mark.parametrize("factor", [None, FACTOR], ids=["plain", "factors"])
def test_crossings_are_subsets_of_the_size_at_their_objective(search, factor):
    one, problem = search(factor)
    found = [Subset(one.objective, one.free.copy())]
    objectives = []
    for at in crossings(one, found, np.random.default_rng(0), patience=5, most=20):
        columns = np.flatnonzero(at.solution()[0])
        assert at.free.size == 4
        np.testing.assert_allclose(at.objective, refit(problem, columns), rtol=1e-8)
        objectives.append(at.objective)
    assert 4 <= len(objectives) <= 20
    assert min(objectives) < found[0].objective


def test_crossings_find_what_swaps_miss():
    rng = np.random.default_rng(1)
    X = np.cumsum(rng.standard_normal((40, 80)), axis=1)  # smooth columns have many local minima
    y = X[:, [10, 30, 60]].sum(axis=1) + 3 * rng.standard_normal(40)
    path = trimmed_path(X, y, range(6, 11), "exact").objectives[:, 0]
    assert TrimmedLasso(h=8).fit(X, y).objective_ <= path[2] * (1 + 1e-6)
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((30, 300)), rng.standard_normal(30)
    assert TrimmedLasso(h=10).fit(X, y).objective_ < 0.005  # 0.0062 if no crossing grows column by column


def test_saved_states_are_not_written_into(search):
    here, _ = search()
    state = here.save()
    copies = {name: np.copy(value) for name, value in state.items()}
    for _ in exchange_while_better(here):
        pass
    here.restore(state)
    for name, value in copies.items():
        np.testing.assert_array_equal(getattr(here, name), value)


@pytest.mark.parametrize("factor", [None, FACTOR], ids=["plain", "factors"])
def test_a_narrow_search_finds_points_of_the_whole(search, factor):
    here, problem = search(factor)
    narrow = here.narrowed(6)
    assert not narrow.certifies
    for _ in exchange_while_better(narrow):
        pass
    theta, free = narrow.solution()
    assert narrow.objective == pytest.approx(problem.loss_value(problem.predictor(theta)))
    here.adopt(narrow)
    assert here.objective == pytest.approx(narrow.objective)
    np.testing.assert_array_equal(here.solution()[1], free)


def test_dependent_columns_are_dropped_and_their_places_filled(search, make_problem):
    problem = make_problem(TrimmedL1(4), 1e6)
    X = problem.design.X.copy()
    X[:, 4], X[:, 6] = X[:, 1], -3 * X[:, 1]
    problem = replace(problem, design=type(problem.design)(X, problem.d)).normalized()[0]
    here = SubsetSearch(WorkingSetSolver(problem, 1e-8), np.array([1, 4, 6, 7]))
    assert here.free.size == 4
    assert np.isin([1, 4, 6], here.free).sum() == 1
    assert here.objective == pytest.approx(refit(problem, here.free))


def test_places_stay_vacant_if_nothing_is_left_to_explain(search, make_problem):
    problem = make_problem(TrimmedL1(4), 1e6)
    problem = replace(problem, y=problem.design.X[:, 2] * 2.0).normalized()[0]
    here = SubsetSearch(WorkingSetSolver(problem, 1e-8), np.array([2]))
    assert list(here.free) == [2]
    assert here.objective == pytest.approx(0, abs=1e-12)


def test_optimality_is_claimed_only_where_scores_decide_it():
    rng = np.random.default_rng(0)
    X, u = rng.standard_normal((40, 8)), rng.standard_normal(40)
    y = u + 3 * X[:, 0] + 0.01 * rng.standard_normal(40)
    how = {"penalty": TrimmedL1(2), "alpha": "exact"}
    X[:, 3] = X[:, 0] + 1e-2 * u  # near, but told apart
    result = solve(X, y, **how)
    assert result.swap_optimal is True
    assert list(np.flatnonzero(result.coef)) == [0, 3]
    for distance in (1e-5, 1e-6, 1e-7):
        X[:, 3] = X[:, 0] + distance * u  # a Gram matrix cannot say what it would bring
        result = solve(X, y, **how)
        assert result.swap_optimal is None
        assert diagnostics.best_swap(X, y, result.coef, penalty=TrimmedL1(2), alpha=result.alpha)
    for copy in (X[:, 0], -3 * X[:, 0], X[:, 0] * 1e100):  # copies bring nothing
        X[:, 3] = copy
        assert solve(X, y, **how).swap_optimal is True


@pytest.mark.parametrize(
    "X",
    [
        1 / (np.arange(60)[:, None] + np.arange(12) + 1.0),
        np.vander(np.linspace(0, 1, 60), 12),
        np.random.default_rng(0).standard_normal((60, 4)) @ np.random.default_rng(1).standard_normal((4, 12))
        + 1e-7 * np.random.default_rng(2).standard_normal((60, 12)),
    ],
    ids=["hilbert", "powers", "near low rank"],
)
def test_ill_conditioned_columns_get_no_false_certificate(X):
    for seed, h in product(range(4), (2, 4, 6)):
        y = np.random.default_rng(seed).standard_normal(60)
        result = solve(X, y, penalty=TrimmedL1(h), alpha="exact")
        assert result.converged
        swap = diagnostics.best_swap(X, y, result.coef, penalty=TrimmedL1(h), alpha=result.alpha)
        assert result.swap_optimal is None or not swap
