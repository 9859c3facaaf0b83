"""The compiled loops against the same formulas in NumPy."""

import numpy as np
import pytest

from trimreg.penalties import subgradient_residual
from trimreg.solvers.mm.kernels import (
    add_rows,
    best_swaps,
    coordinate_descent,
    principal,
    submatrix,
    violators,
)


@pytest.mark.parametrize("level", [0.3, np.inf])
@pytest.mark.parametrize("seed", range(20))
def test_the_best_swap_of_all_is_exact_whatever_was_left_unscored(seed, level):
    rng = np.random.default_rng(seed)
    link, c = rng.standard_normal((200, 6)), rng.standard_normal(200)
    spare = rng.uniform(0.1, 1.0, 200)
    spare[::7] = 0.0  # no candidates
    theta, inverse = 0.3 * rng.standard_normal(6), rng.uniform(1.0, 3.0, 6)
    gain, partner = np.empty(200), np.empty(200, dtype=np.int64)
    best_swaps(link, c, spare, theta, inverse, np.full(6, level), gain, partner)

    with np.errstate(divide="ignore", invalid="ignore"):
        s = spare[:, None]
        moved = np.abs(theta - link * c[:, None] / s)
        raised = inverse + link**2 / s
        clipped = np.minimum(moved, level * raised)
        score = c[:, None] ** 2 / (2 * s) - (clipped * moved - clipped**2 / 2) / raised
    score[spare == 0] = -np.inf
    assert np.count_nonzero(score.max(axis=1) > 0) > 20  # so that there is something to leave unscored
    best = int(np.argmax(gain))
    assert gain[best] == pytest.approx(score.max())
    assert (best, partner[best]) == np.unravel_index(np.argmax(score), score.shape)
    scored = np.isfinite(gain)
    np.testing.assert_allclose(gain[scored], score.max(axis=1)[scored])
    assert not scored[spare == 0].any()


def test_coordinate_descent_ends_where_no_coordinate_can_move():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 8))
    gram, target = X.T @ X / 40, rng.standard_normal(8)
    gram[5], gram[:, 5], target[5] = 0.0, 0.0, 0.0  # a column of zeros
    threshold = np.array([0.0, 0.1, 0.1, 0.1, 5.0, 0.1, np.inf, 0.1])
    theta, gradient = np.zeros(8), -target.copy()
    epochs = coordinate_descent(gram, gradient, theta, threshold, 10_000, 1e-12)
    assert 1 < epochs < 10_000
    np.testing.assert_allclose(gradient, gram @ theta - target, atol=1e-10)
    np.testing.assert_allclose((gradient + threshold)[theta > 0], 0.0, atol=1e-10)
    np.testing.assert_allclose((gradient - threshold)[theta < 0], 0.0, atol=1e-10)
    assert np.all(np.abs(gradient[theta == 0]) <= threshold[theta == 0] + 1e-10)
    assert (theta < 0).any()
    assert theta[5] == theta[6] == 0


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 8, 11])
def test_rows_are_added_up_as_numpy_does(count):
    rng = np.random.default_rng(count)
    matrix, total = rng.standard_normal((12, 7)), rng.standard_normal(7)
    rows, coefficient = rng.permutation(12)[:count], rng.standard_normal(count)
    expected = total + coefficient @ matrix[rows]
    add_rows(matrix, rows, coefficient, total)
    np.testing.assert_allclose(total, expected, rtol=1e-13, atol=1e-14)


def test_violators_are_those_of_the_residual():
    rng = np.random.default_rng(0)
    for _ in range(50):
        theta, gradient = rng.integers(-2, 3, (2, 12)).astype(float)
        threshold = rng.choice([0.0, 0.5, 1.0, np.inf], 12)
        theta[np.isinf(threshold)] = 0.0
        violation = np.abs(subgradient_residual(theta, gradient, threshold))
        worst, found = violators(theta, gradient, threshold, 0.7)
        assert worst == violation.max()
        np.testing.assert_array_equal(found, np.flatnonzero((theta != 0) | (violation > 0.7)))


def test_a_part_of_a_matrix():
    matrix = np.random.default_rng(0).standard_normal((7, 9))
    rows, columns = np.array([3, 0, 6, 3]), np.array([8, 1])
    np.testing.assert_array_equal(submatrix(matrix, rows, columns), matrix[rows[:, None], columns])
    assert submatrix(matrix, rows[:0], columns).shape == (0, 2)


def test_a_principal_part_reads_half_of_a_symmetric_matrix():
    A = np.arange(36.0).reshape(6, 6)
    places = np.array([4, 0, 5])
    np.testing.assert_array_equal(principal(A + A.T, places), (A + A.T)[np.ix_(places, places)])


def test_a_residual_that_is_not_a_number_is_the_largest():
    gradient = np.array([1.0, np.nan, 3.0])
    worst, _ = violators(np.zeros(3), gradient, np.zeros(3), 0.1)
    assert np.isnan(worst)
