"""Best subsets of several sizes: growing, shrinking, and sharing among neighbors."""

from itertools import combinations

import numpy as np
import pytest

from trimreg.designs import as_design
from trimreg.losses import Quadratic
from trimreg.penalties import TrimmedL1
from trimreg.solvers import Problem
from trimreg.solvers.mm.solver import iterate
from trimreg.solvers.mm.workingset import WorkingSetSolver
from trimreg.solvers.search.subset import Subset, SubsetSearch, grown, resize, share


@pytest.fixture
def make_search(make_problem):
    def make(h, seed=0, factor=None):
        problem = make_problem(TrimmedL1(h, factor), 1.0, n=30, p=12, seed=seed)
        inner = WorkingSetSolver(problem.normalized()[0], 1e-6)
        return SubsetSearch(inner, np.empty(0, dtype=np.intp)), problem

    return make


def loss(problem, columns):
    block, y = problem.design.X[:, sorted(columns)], problem.y
    return np.sum((y - block @ np.linalg.lstsq(block, y, rcond=None)[0]) ** 2) / (2 * y.size)


@pytest.mark.parametrize("sizes", [(2, 7, 3), (6, 5, 4, 0, 4), (0, 12, 1)])
def test_a_resized_subset_has_no_better_swap(make_search, sizes):
    search, problem = make_search(sizes[0])
    for h in sizes:
        resize(search, h)
        inside = set(search.free.tolist())
        assert len(inside) == h
        np.testing.assert_allclose(search.objective, loss(problem, inside), rtol=1e-9)
        for leave in inside:
            others = [loss(problem, inside - {leave} | {j}) for j in range(12) if j not in inside]
            assert search.objective <= min(others, default=np.inf) * (1 + 1e-9)


def test_unpenalized_columns_stay_when_a_subset_shrinks(make_search):
    search, problem = make_search(5, factor=[0.0] + [1.0] * 11)
    for h in (5, 2, 3):
        resize(search, h)
        assert search.free.size == h
        assert 0 not in search.free
        np.testing.assert_allclose(search.objective, loss(problem, {0, *search.free.tolist()}), rtol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_shared_subsets_lead_to_the_best_of_each_size(make_search, seed):
    """From bad subsets: one good one spreads to all sizes."""
    search, problem = make_search(1, seed)
    sizes = [1, 2, 4, 5]
    found = {h: Subset(loss(problem, range(12 - h, 12)), np.arange(12 - h, 12)) for h in sizes}
    share(search, found)
    for h in sizes:
        best = min(loss(problem, columns) for columns in combinations(range(12), h))
        np.testing.assert_allclose(found[h].objective, best, rtol=1e-9)
        np.testing.assert_allclose(loss(problem, found[h].free), best, rtol=1e-9)


@pytest.mark.parametrize("effort", ["medium", "high"])
@pytest.mark.parametrize("seed", [0, 2, 5])
def test_a_single_fit_is_no_worse_than_the_grown_subset(effort, seed):
    """Random walks: the lasso leads to worse subsets here."""
    rng = np.random.default_rng(seed)
    X = np.cumsum(rng.standard_normal((80, 120)), axis=1)
    y, d = X @ rng.standard_normal(120) + rng.standard_normal(80), np.full(80, 1 / 80)
    problem = Problem(as_design(X, d), Quadratic(), y, d, TrimmedL1(8).bind(120), 1.0)
    problem = problem.at(1.01 * problem.exact_threshold())
    *_, (_, search) = grown(WorkingSetSolver(problem.normalized()[0], 1e-6), range(1, 9))
    *_, step = iterate(problem, None, effort=effort)
    assert step.objective <= search.objective * (1 + 1e-9)
