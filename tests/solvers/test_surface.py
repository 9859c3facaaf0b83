"""The surface in the solver's coordinates: every cell, its neighbors, Gram matrices from outside."""

from dataclasses import fields

import numpy as np
import pytest

from trimreg.penalties import TrimmedL1
from trimreg.penalties.base import largest_violation
from trimreg.solvers import surface as module
from trimreg.solvers.gram import FixedGram
from trimreg.solvers.surface import Cell, _distinct, surface

HS, ALPHAS = [0, 1, 2, 4], [0.02, 0.5, 0.1, 1e6]


@pytest.fixture
def problem(make_problem):
    return make_problem(TrimmedL1(0), 1.0, n=40, p=15, seed=3, stretch=5.0)


def objective(problem, raw, theta, h, alpha):
    return raw.loss(problem, theta) + alpha * np.sort(np.abs(theta))[: theta.size - h].sum()


def best_subset_loss(problem, h):
    """The least loss of h columns, by trying all of them."""
    from itertools import combinations

    X, y, n = problem.design.X, problem.y, problem.y.size
    if h == 0:
        return y @ y / (2 * n)
    residual = [
        np.linalg.lstsq(X[:, list(S)], y, rcond=None)[1][0] for S in combinations(range(X.shape[1]), h)
    ]
    return min(residual) / (2 * n)


@pytest.mark.parametrize("effort", ["low", "medium", "high"])
def test_steps_are_what_they_say(problem, raw, effort):
    steps = surface(problem, HS, ALPHAS, effort=effort)
    assert [len(row) for row in steps] == [4] * 4
    for h, row in zip(HS, steps, strict=True):
        for alpha, step in zip(ALPHAS, row, strict=True):
            np.testing.assert_allclose(
                step.objective, objective(problem, raw, step.theta, h, alpha), rtol=1e-9
            )
            level = alpha * step.weights
            assert np.count_nonzero(step.weights == 0) >= h
            unit = np.sqrt(problem.d @ problem.design.X**2)
            assert raw.theta_part(problem, step.theta, level) < 1e-9 * np.max(unit) ** 2
        assert np.count_nonzero(row[3].theta) <= h  # above the exact-penalty threshold
        np.testing.assert_allclose(row[3].objective, best_subset_loss(problem, h), rtol=1e-9)


def test_the_order_of_the_alphas_does_not_matter(problem):
    steps = surface(problem, HS, ALPHAS)
    sorted_steps = surface(problem, HS, sorted(ALPHAS))
    for row, expected in zip(steps, sorted_steps, strict=True):
        for k, j in enumerate(np.argsort(ALPHAS)):
            np.testing.assert_array_equal(row[j].theta, expected[k].theta)


def test_every_cell_is_told(problem):
    told = []
    surface(problem, HS, ALPHAS, advance=lambda: told.append(1))
    assert len(told) == 16


def test_a_gram_matrix_from_outside_is_used(problem):
    seen = []

    def gram(norms):
        seen.append(norms)
        Z = problem.design.X / norms
        every = np.arange(norms.size)
        return FixedGram(every, Z.T @ (problem.d[:, None] * Z), norms.size)

    found = surface(problem, HS, ALPHAS, gram=gram, verify=False)
    expected = surface(problem, HS, ALPHAS)
    assert len(seen) == 1
    np.testing.assert_allclose(seen[0], np.sqrt(problem.d @ problem.design.X**2))
    for row, other in zip(found, expected, strict=True):
        for step, same in zip(row, other, strict=True):
            np.testing.assert_allclose(step.theta, same.theta, atol=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_neighbors_help_where_the_way_up_ends_elsewhere(make_problem, seed):
    """The sweep back never makes a cell worse, and no cell is above a neighbor that it contains."""
    problem = make_problem(TrimmedL1(0), 1.0, n=25, p=20, seed=seed)
    hs, alphas = range(6), [0.3, 0.1, 0.03, 0.01]
    objectives = np.array([[step.objective for step in row] for row in surface(problem, hs, alphas)])
    assert np.all(np.diff(objectives, axis=0) <= 1e-9)
    assert np.all(np.diff(objectives, axis=1) <= 1e-9)


def test_the_sweep_back_lowers_some_cells_and_raises_none(make_problem, monkeypatch):
    problems = [make_problem(TrimmedL1(0), 1.0, n=25, p=30, seed=seed) for seed in range(8)]
    hs, alphas = range(1, 8), [0.3, 0.1, 0.03, 0.01]

    def objectives():
        every = [surface(problem, hs, alphas, effort="low") for problem in problems]
        return np.array([[[step.objective for step in row] for row in steps] for steps in every])

    swept = objectives()
    monkeypatch.setattr(module._LeastSquares, "_rival", lambda self, cell, *_: cell)
    one_way = objectives()
    assert np.all(swept <= one_way * (1 + 1e-9))
    assert np.any(swept < one_way * (1 - 1e-4))


def test_starts_for_other_sizes():
    known = {"theta": [3.0, 0.0, -5.0, 1.0], "free": [0, 2, 3], "candidates": [1, 4]}
    unused = {field.name: None for field in fields(Cell)}
    cell = Cell(**unused | {name: np.array(value) for name, value in known.items()})
    assert cell.grown(4)[1].tolist() == [0, 2, 3, 1]
    assert cell.grown(3)[1].tolist() == [0, 2, 3]
    assert cell.shrunk(2)[1].tolist() == [2, 0]
    assert cell.shrunk(0)[1].tolist() == []


def test_equal_free_sets_are_one_start():
    starts = [(None, np.array(free), None) for free in ([1, 2], [2, 1], [3], [4])]
    kept = [start[1].tolist() for start in _distinct(starts, known=np.array([4]))]
    assert kept == [[1, 2], [3]]


def test_groups_and_signs_go_the_general_way(make_problem, monkeypatch):
    used = []
    original = module._General.soft
    monkeypatch.setattr(
        module._General, "soft", lambda self, *given: (used.append(1), original(self, *given))[1]
    )
    surface(make_problem(TrimmedL1(0), 1.0), [1], [0.1])
    assert not used
    for problem in (
        make_problem(TrimmedL1(0), 1.0, positive=True),
        make_problem(TrimmedL1(0, groups=np.arange(15) // 3), 1.0),
    ):
        steps = surface(problem, [0, 1, 3], [0.3, 0.1, 0.02])
        objectives = np.array([[step.objective for step in row] for row in steps])
        assert np.all(np.diff(objectives, axis=0) <= 1e-9)
        assert np.all(np.diff(objectives, axis=1) <= 1e-9)
    assert len(used) == 2


def test_verification_mends_what_a_wrong_gram_matrix_has_led_to(problem, raw):
    """Cells solved with a Gram matrix that is off: the true gradient shows it, and MM goes on from there."""
    p = problem.n_features
    every = np.arange(p)

    def gram(norms):
        gram = problem.design.gram(every, problem.d, every) / norms / norms[:, None]
        return FixedGram(every, gram + 0.05 * np.eye(p), p)

    h, alpha = 2, 0.1
    (verified,), (left,) = (surface(problem, [h], [alpha], gram=gram, verify=v)[0] for v in (True, False))
    normal, norms = problem.normalized()

    def violation(step):
        gradient = normal.gradient(step.theta * norms)
        threshold = normal.penalty.thresholds(step.weights, alpha)
        return largest_violation(step.theta * norms, gradient, threshold)

    assert violation(left) > 1e-3
    assert violation(verified) < 1e-2 * violation(left)
    assert objective(problem, raw, verified.theta, h, alpha) < objective(problem, raw, left.theta, h, alpha)
