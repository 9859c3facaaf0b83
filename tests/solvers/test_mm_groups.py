"""The block minimizer for groups: optimality conditions, and slow methods that find the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from trimreg import TrimmedL1, solve
from trimreg.solvers.gram import minimize_block
from trimreg.solvers.mm.group_kernels import block_descent, prox, residual, shift, water_level
from trimreg.solvers.mm.groups import (
    group_residual,
    minimize_group_block,
    newton_direction,
    newton_on_face,
    newton_on_groups,
)

BOTH = pytest.mark.parametrize("q", [2, np.inf])
FLAT = pytest.mark.parametrize("flat", [False, True])

#: Entries with ties, zeros and far apart scales.
ENTRY = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 2.0]),
    st.floats(-10, 10).map(lambda x: x if abs(x) > 1e-100 else 0.0),  # squares must not underflow
    st.sampled_from([1e-8, -1e8, 1e8]),
)
VECTOR = st.lists(ENTRY, min_size=1, max_size=8).map(np.array)
THRESHOLD = st.sampled_from([1e-8, 0.1, 1.0, 2.0, 7.5, 1e8])
MANY = settings(max_examples=200, deadline=None, derandomize=True, database=None)


# -- the same by other formulas -----------------------------------------------------------------------------


def simplex_projection(u, t):
    """By a sort (Held, Wolfe and Crowder 1974)."""
    ordered = np.sort(u)[::-1]
    levels = (np.cumsum(ordered) - t) / np.arange(1, u.size + 1)
    return np.maximum(u - levels[ordered > levels][-1], 0.0)


def slow_prox(z, t, q):
    """By the projection on the ball of the dual norm."""
    if q == 2:
        return z - z * min(1.0, t / max(np.linalg.norm(z), 1e-300))
    if np.sum(np.abs(z)) <= t:
        return np.zeros_like(z)
    return z - np.sign(z) * simplex_projection(np.abs(z), t) if t > 0 else z


def slow_minimizer(gram, target, starts, threshold, q, steps=20_000):
    """Accelerated proximal gradient with restarts, from 0."""
    L = np.linalg.eigvalsh(gram)[-1]
    x = y = np.zeros(target.size)
    momentum = 1.0
    for _ in range(steps):
        z = y - (gram @ y - target) / L
        following = np.concatenate(
            [slow_prox(z[a:b], t / L, q) for a, b, t in zip(starts[:-1], starts[1:], threshold, strict=True)]
        )
        if np.max(np.abs(following - y)) < 1e-14:
            return following
        if (y - following) @ (following - x) > 0:
            momentum = 1.0
        faster = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        y = following + (momentum - 1) / faster * (following - x)
        x, momentum = following, faster
    return x


def objective(gram, target, starts, threshold, q, theta):
    lengths = [np.linalg.norm(part, q) for part in np.split(theta, starts[1:-1])]
    penalty = sum(t * r for t, r in zip(threshold, lengths, strict=True) if np.isfinite(t))
    return theta @ gram @ theta / 2 - target @ theta + penalty


def random_problem(seed, n=None, levels=(0.0, 0.01, 0.1, 0.3, 1.0, np.inf)):
    """Gram matrix, target ``X'y/n``, starts and thresholds: copies, columns of zeros, correlations, n < m."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 9, rng.integers(1, 20))
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    m = starts[-1]
    n = n or rng.integers(3, 200)
    rho = rng.choice([0.0, 0.5, 0.99])
    X = np.sqrt(1 - rho) * rng.standard_normal((n, m)) + np.sqrt(rho) * rng.standard_normal((n, 1))
    if seed % 3 == 0:
        X = np.hstack([X[:, : m // 2], X[:, : m - m // 2]])
    if seed % 5 == 0:
        X[:, rng.integers(m)] = 0.0
    scale = np.sqrt(np.mean(X**2, axis=0))
    X /= np.where(scale > 0, scale, 1.0)
    y = X @ (rng.standard_normal(m) * (rng.random(m) < 0.3)) + 0.3 * rng.standard_normal(n)
    target = X.T @ y / n
    threshold = rng.choice(levels, sizes.size) * np.sqrt(sizes)
    finite = np.isfinite(threshold)
    threshold[finite] *= np.max(np.abs(target))
    return X.T @ X / n, target, starts, threshold


def well_conditioned(seed, groups=6, size=3, level=0.3):
    """Two samples for every coefficient, groups of equal size, one threshold that some of them pass."""
    rng = np.random.default_rng(seed)
    m = groups * size
    X = rng.standard_normal((2 * m, m)) + 0.5 * rng.standard_normal((2 * m, 1))
    target = X.T @ (X @ (rng.standard_normal(m) * np.repeat(rng.random(groups) < 0.5, size))) / (2 * m)
    starts = np.arange(0, m + 1, size)
    return X.T @ X / (2 * m), target, starts, np.full(groups, level * np.max(np.abs(target)) * np.sqrt(size))


def solved(gram, target, starts, threshold, q, tol=1e-10, start=None, **how):
    """The minimizer; every condition holds, and the gradient is the one there."""
    theta = np.zeros(target.size) if start is None else start.copy()
    gradient = gram @ theta - target
    assert minimize_group_block(gram, gradient, theta, starts, threshold, q, tol, **how) is True
    rounding = 1e-13 * max(np.max(np.abs(target)), np.max(np.abs(gram)) * np.max(np.abs(theta)))
    np.testing.assert_allclose(gradient, gram @ theta - target, rtol=0, atol=rounding + 0.01 * tol)
    assert np.max(np.abs(group_residual(theta, gradient, starts, threshold, q))) <= tol
    return theta


# -- prox, level and nearest subgradient --------------------------------------------------------------------


@MANY
@given(u=VECTOR, t=THRESHOLD)
def test_the_level_fills_to_the_amount(u, t):
    level = water_level(u, t)
    scale = max(t, np.max(np.abs(u)))
    assert np.sum(np.maximum(u - level, 0)) == pytest.approx(t, abs=1e-14 * scale * u.size, rel=1e-12)


def test_the_level_is_found_where_rounding_lets_an_entry_come_back():
    u = np.array([0.77, 0.73, 0.02, 0.54, 0.9])  # with t = 0.78 the fourth is at the level
    assert water_level(u, 0.78) == pytest.approx(0.54, abs=1e-14)


@MANY
@given(z=VECTOR, t=st.one_of(THRESHOLD, st.sampled_from([0.0, np.inf])))
@FLAT
def test_the_prox_is_the_one_of_the_dual_ball(z, t, flat):
    out = np.full(z.size, np.nan)
    largest = prox(z, t, flat, out)
    expected = slow_prox(z, t, np.inf if flat else 2) if np.isfinite(t) else np.zeros(z.size)
    np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-15 * np.max(np.abs(z)) * z.size)
    assert largest == np.max(np.abs(out))
    assert np.all(out * z >= 0)
    if flat:  # what is cut is cut at one level, to the bit
        assert len(set(np.abs(out[out != z]))) <= 1


@MANY
@given(x=VECTOR, data=st.data(), t=THRESHOLD)
@FLAT
def test_the_residual_is_the_nearest_subgradient(x, data, t, flat):
    g = np.array(data.draw(st.lists(ENTRY, min_size=x.size, max_size=x.size)))
    if not x.any():
        expected = slow_prox(g, t, np.inf if flat else 2)
    elif flat:
        top = np.abs(x) >= (1 - 1e-9) * np.max(np.abs(x))
        expected = g.copy()
        expected[top] += np.sign(x[top]) * simplex_projection(-(np.sign(x) * g)[top], t)
    else:
        expected = g + t * x / np.linalg.norm(x)
    out = np.empty(x.size)
    largest = residual(x, g, t, flat, out)
    np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-14 * max(np.max(np.abs(g)), t) * x.size)
    assert largest == np.max(np.abs(out))


def test_what_is_nearly_at_the_top_is_at_the_top():
    out = np.empty(3)
    assert residual(np.array([1.0, 1e-10 - 1.0, 0.5]), np.array([-0.4, 0.6, 0.0]), 1.0, True, out) < 1e-15
    assert residual(np.array([1.0, 1e-8 - 1.0, 0.5]), np.array([-0.4, 0.6, 0.0]), 1.0, True, out) == 0.6


@FLAT
@pytest.mark.parametrize("x", [np.zeros(3), np.array([1.0, 0.0, -1.0])])
def test_free_and_excluded_groups_have_their_own_residual(x, flat):
    g, out = np.array([3.0, -1.0, 0.5]), np.empty(3)
    assert residual(x, g, 0.0, flat, out) == 3.0
    np.testing.assert_array_equal(out, g)
    assert residual(np.zeros(3), g, np.inf, flat, out) == 0.0
    np.testing.assert_array_equal(out, 0.0)


def test_shift_moves_the_gradient_too():
    rng = np.random.default_rng(0)
    gram = rng.standard_normal((5, 5))
    gram = gram @ gram.T
    theta, gradient = rng.standard_normal(5), rng.standard_normal(5)
    before, slope = theta.copy(), gradient.copy()
    assert shift(gram, gradient, theta, np.array([7.0, before[3]]), 2, 4) == pytest.approx(abs(7 - before[2]))
    np.testing.assert_array_equal(theta, [*before[:2], 7.0, *before[3:]])
    np.testing.assert_allclose(gradient, slope + gram @ (theta - before))


# -- the minimizer ------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("part", range(4))
def test_every_condition_holds(part, q):
    for seed in range(50 * part, 50 * part + 50):
        gram, target, starts, threshold = random_problem(seed)
        theta = solved(gram, target, starts, threshold, q)
        assert not np.any(theta[np.repeat(np.isinf(threshold), np.diff(starts))])
        # A warm start of other thresholds ends as low as the cold one.
        other = np.where(threshold == 0.0, 0.1, np.where(np.isinf(threshold), threshold, 0.5 * threshold))
        values = [
            objective(gram, target, starts, other, q, solved(gram, target, starts, other, q, start=start))
            for start in (theta, None)
        ]
        assert values[0] == pytest.approx(values[1], abs=1e-8)


@BOTH
@pytest.mark.parametrize("seed", range(6))
def test_a_slow_method_finds_the_same(seed, q):
    gram, target, starts, threshold = well_conditioned(seed)
    threshold[0], threshold[1] = 0.0, 0.01 * threshold[1]
    theta = solved(gram, target, starts, threshold, q, 1e-12)
    expected = slow_minimizer(gram, target, starts, threshold, q)
    np.testing.assert_allclose(theta, expected, atol=1e-9)
    np.testing.assert_array_equal(theta == 0, np.abs(expected) < 1e-11)
    assert theta.any()


def test_the_largest_size_as_a_program_with_bounds():
    """``min q(x) + sum t s`` with ``-s <= x <= s``, which knows nothing of a prox."""
    gram, target, starts, threshold = well_conditioned(0, groups=3, level=0.1)
    group, m = np.repeat(np.arange(3), 3), 9
    constraints = [
        {"type": "ineq", "fun": lambda v: v[m:][group] - v[:m]},
        {"type": "ineq", "fun": lambda v: v[m:][group] + v[:m]},
    ]
    found = minimize(
        lambda v: v[:m] @ gram @ v[:m] / 2 - target @ v[:m] + threshold @ v[m:],
        np.ones(m + 3),
        constraints=constraints,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    theta = solved(gram, target, starts, threshold, np.inf)
    np.testing.assert_allclose(theta, found.x[:m], atol=1e-5)
    assert np.count_nonzero(theta) > 3


@BOTH
def test_copies_of_columns(q):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((10, 6))
    X = np.hstack([X, X, -X])  # copies within reach of each other, and of opposite sign
    gram, target = X.T @ X / 10, X.T @ rng.standard_normal(10) / 10
    for starts in (np.array([0, 3, 6, 9, 12, 15, 18]), np.array([0, 18]), np.array([0, 1, 12, 18])):
        threshold = 0.02 * np.arange(1.0, starts.size)
        theta = solved(gram, target, starts, threshold, q, 1e-12)
        expected = slow_minimizer(gram, target, starts, threshold, q)
        values = [objective(gram, target, starts, threshold, q, x) for x in (theta, expected)]
        assert values[0] <= values[1] + 1e-12


@BOTH
@pytest.mark.parametrize("of_gram", [1.0, 1e-8, 1e8])
@pytest.mark.parametrize("of_target", [1.0, 1e-8, 1e8])
def test_scales(of_gram, of_target, q):
    gram, target, starts, threshold = well_conditioned(1)
    threshold[2] = 0.0
    expected = solved(gram, target, starts, threshold, q, 1e-11)
    tol = 1e-11 * of_target
    theta = solved(of_gram * gram, of_target * target, starts, of_target * threshold, q, tol)
    np.testing.assert_allclose(theta * of_gram / of_target, expected, atol=1e-9)
    assert 0 < np.count_nonzero(theta) < theta.size


@BOTH
@pytest.mark.parametrize("seed", range(5))
def test_without_thresholds_it_is_a_linear_system(seed, q):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 1)) + 0.01 * rng.standard_normal((60, 12))  # block descent alone would crawl
    gram, target = X.T @ X / 60, X.T @ rng.standard_normal(60) / 60
    theta = solved(gram, target, np.array([0, 5, 6, 12]), np.zeros(3), q, 1e-10, max_rounds=2)
    np.testing.assert_allclose(theta, np.linalg.solve(gram, target), rtol=1e-4)


@BOTH
@pytest.mark.parametrize("seed", range(20))
def test_newton_steps_end_what_block_descent_crawls_over(seed, q):
    """Condition numbers of about 1e6: 20 rounds of both do it, 20,000 epochs of one do not."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((100, 1)) + 1e-2 * rng.standard_normal((100, 40))
    gram, target = X.T @ X / 100, X.T @ (X @ rng.standard_normal(40) + 0.01 * rng.standard_normal(100)) / 100
    starts, threshold = np.arange(0, 41, 4), np.full(10, 1e-5)
    threshold[:2] = 0.0
    theta = solved(gram, target, starts, threshold, q, 1e-10, max_rounds=20)
    assert np.count_nonzero(theta) > 10
    if seed < 2:
        crawling, gradient, work = np.zeros(40), -target, np.empty((4, 40))
        assert not block_descent(gram, gradient, crawling, starts, threshold, q != 2, 20_000, 1e-10, work)


@BOTH
@pytest.mark.parametrize("seed", range(20))
def test_groups_of_one_are_the_lasso(seed, q):
    gram, target, _, _ = random_problem(seed, n=200)
    m = target.size
    rng = np.random.default_rng(seed)
    threshold = rng.choice([0.0, 0.05, 0.3, np.inf], m)
    expected, gradient = np.zeros(m), -target
    assert minimize_block(gram, gradient, expected, threshold, 1e-12)
    theta = solved(gram, target, np.arange(m + 1), threshold, q, 1e-12)
    values = [objective(gram, target, np.arange(m + 1), threshold, q, x) for x in (theta, expected)]
    assert values[0] == pytest.approx(values[1], abs=1e-12)
    if seed % 3:  # no copies, one solution
        np.testing.assert_allclose(theta, expected, atol=1e-8)


def test_all_entries_at_the_top():
    gram, target, starts, _ = well_conditioned(0, groups=2, size=5)
    for fraction in (0.9, 0.99):
        limit = np.array([np.sum(np.abs(target[:5])), np.sum(np.abs(target[5:]))])
        theta = solved(gram, target, starts, fraction * limit.max() * np.ones(2), np.inf, 1e-12)
        for part in (theta[:5], theta[5:]):
            assert len(set(np.abs(part))) == 1  # equal to the bit, or all 0
        assert theta.any()


def test_entries_at_the_top_are_equal_to_the_bit():
    shared = 0
    for seed in range(10):
        gram, target, starts, threshold = well_conditioned(seed)
        theta = np.abs(solved(gram, target, starts, threshold, np.inf)).reshape(-1, 3)
        top = theta.max(axis=1, keepdims=True)
        near = (theta >= (1 - 1e-6) * top) & (top > 0)
        np.testing.assert_array_equal(np.where(near, theta, 0), np.where(near, top, 0))
        shared += np.count_nonzero(near.sum(axis=1) > 1)
    assert shared > 10


@BOTH
def test_a_large_group(q):
    gram, target, _, _ = well_conditioned(0, groups=40)
    starts = np.array([0, 100, 101, 120])
    theta = solved(gram, target, starts, np.array([0.5, 0.1, 0.2]), q)
    expected = slow_minimizer(gram, target, starts, np.array([0.5, 0.1, 0.2]), q)
    np.testing.assert_allclose(theta, expected, atol=1e-8)


# -- where nothing moves ------------------------------------------------------------------------------------


@BOTH
def test_a_solution_is_left_as_it_is(q):
    gram, target, starts, threshold = well_conditioned(0)
    theta = solved(gram, target, starts, threshold, q)
    gradient = gram @ theta - target
    before = theta.copy(), gradient.copy()
    assert minimize_group_block(gram, gradient, theta, starts, threshold, q, 1e-9)
    np.testing.assert_array_equal(theta, before[0])
    np.testing.assert_array_equal(gradient, before[1])


@BOTH
def test_columns_of_zeros(q):
    gram, target, starts, threshold = well_conditioned(0)
    threshold[0] = threshold[1] = 0.0
    threshold[5] *= 0.01
    dead = [0, 4, 8, 15, 16, 17]  # of free groups, of a penalized one, and all of another
    gram[dead], gram[:, dead], target[dead] = 0.0, 0.0, 0.0
    start = np.zeros(18)
    start[[0, 4, 8, 15]] = 5.0
    theta = solved(gram, target, starts, threshold, q, start=start)
    np.testing.assert_array_equal(theta[[0, 4]], 5.0)  # not penalized: as good as any other
    assert theta[8] == pytest.approx(0.0, abs=1e-6) if q == 2 else abs(theta[8]) <= np.max(np.abs(theta[6:9]))
    np.testing.assert_array_equal(theta[15:], 0.0)


@BOTH
def test_what_cannot_be_minimized_is_said(q):
    gram, target = np.diag([1.0, 0.0, 0.0, 0.0]), np.array([1.0, 1.0, 5.0, 5.0])
    for threshold in ([0.0, 1.0], [0.0, 0.0]):
        theta, gradient = np.zeros(4), -target
        starts = np.array([0, 2, 4])
        assert minimize_group_block(gram, gradient, theta, starts, np.array(threshold), q, 1e-10) is False
        np.testing.assert_array_equal(theta, [1.0, 0.0, 0.0, 0.0])


@BOTH
def test_rounds_are_counted(q):
    gram, target, starts, threshold = well_conditioned(0)
    theta, gradient = np.zeros(18), -target
    assert minimize_group_block(gram, gradient, theta, starts, threshold, q, 0.0, max_rounds=2) is False
    assert np.max(np.abs(group_residual(theta, gradient, starts, threshold, q))) < 1e-12


# -- the Newton steps ---------------------------------------------------------------------------------------


@BOTH
def test_newton_steps_go_down_and_keep_the_gradient(q):
    changed = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        gram, target, starts, threshold = random_problem(seed, levels=(0.0, 0.1, 0.3, 1.0))
        start = rng.standard_normal(target.size) * rng.choice([1e-3, 1.0]) * (rng.random(target.size) < 0.7)
        if seed % 2:
            start = np.round(start)  # ties
        theta, gradient = start.copy(), gram @ start - target
        if q == 2:
            newton_on_groups(gram, gradient, theta, starts, threshold, 1e-12)
        else:
            newton_on_face(gram, gradient, theta, starts, threshold)
        np.testing.assert_allclose(gradient, gram @ theta - target, atol=1e-7 * (1 + np.max(np.abs(theta))))
        values = [objective(gram, target, starts, threshold, q, x) for x in (start, theta)]
        assert values[1] <= values[0] + 1e-10 * abs(values[0])
        zero = np.repeat(np.add.reduceat(np.abs(start), starts[:-1]) == 0, np.diff(starts))
        penalized = np.repeat(threshold > 0, np.diff(starts))
        assert not theta[zero & penalized].any()
        changed += values[1] < values[0] - 1e-6 * abs(values[0])
    assert changed > 80


def test_newton_keeps_what_is_together_together():
    for seed in range(20):
        gram, target, starts, threshold = well_conditioned(seed)
        start = np.tile([1.0, -1.0, 0.5], 6)
        theta, gradient = start.copy(), gram @ start - target
        newton_on_face(gram, gradient, theta, starts, threshold, patience=0)
        assert (theta != start).any()
        np.testing.assert_array_equal(theta[0::3], -theta[1::3])
        assert np.all(np.abs(theta[2::3]) <= np.abs(theta[0::3]))


def test_newton_snaps_what_is_nearly_together():
    start = np.array([1.0, 5e-10 - 1.0, 0.2])
    theta, gradient = start.copy(), start - [3.0, -2.0, 0.1]
    newton_on_face(np.eye(3), gradient, theta, np.array([0, 3]), np.array([0.5]))
    np.testing.assert_array_equal(theta[0], -theta[1])
    np.testing.assert_allclose(theta, [2.25, -2.25, 0.1], atol=1e-15)
    np.testing.assert_allclose(gradient, theta - [3.0, -2.0, 0.1], atol=1e-15)


@BOTH
def test_newton_drops_several_groups_in_one_step(q):
    gram = np.array([[1.0, 0.3], [0.3, 2.0]])
    gram = np.kron(np.eye(3), gram)
    start = np.array([0.1, 0.03, -0.2, 0.1, 3.0, 1.0])
    theta, gradient = start.copy(), gram @ start - gram @ [0.0, 0.0, 0.0, 0.0, 3.0, 1.0]
    starts, threshold = np.array([0, 2, 4, 6]), np.array([2.0, 3.0, 0.5])
    if q == 2:
        newton_on_groups(gram, gradient, theta, starts, threshold, 1e-12, patience=0)
    else:
        newton_on_face(gram, gradient, theta, starts, threshold, patience=0)
    np.testing.assert_array_equal(theta[:4], 0.0)
    assert theta[4:].all()


def test_newton_stops_single_coordinates_at_zero_exactly():
    """A coordinate keeps its sign or is 0 to the bit, as in the l1 problem."""
    dropped = 0
    for seed in range(50):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((30, 8)) + rng.standard_normal((30, 1))
        gram = X.T @ X / 30
        start = rng.choice([-1.0, 1.0], 8) * rng.uniform(0.01, 1.0, 8)
        theta, gradient = start.copy(), gram @ start - rng.standard_normal(8)
        newton_on_groups(gram, gradient, theta, np.arange(9), np.full(8, 0.2), 1e-12)
        assert np.all((theta == 0) | (np.sign(theta) == np.sign(start)))
        assert np.all((theta == 0) | (np.abs(theta) > 1e-13))
        dropped += np.count_nonzero(theta == 0)
    assert dropped > 50


def test_the_newton_direction_does_not_depend_on_scales():
    rng = np.random.default_rng(0)
    X, slope = rng.standard_normal((20, 4)), rng.standard_normal(4)
    expected = -np.linalg.solve(X.T @ X, slope)
    scale = np.array([1e-10, 1.0, 1e5, 1e10])
    hessian = X.T @ X * np.multiply.outer(scale, scale)
    d = newton_direction(hessian, slope * scale, np.diagonal(hessian))
    np.testing.assert_allclose(d * scale, expected, rtol=1e-10)
    singular = np.diag([2.0, 0.0])
    d = newton_direction(singular, np.array([1.0, 0.0]), np.diagonal(singular))
    np.testing.assert_allclose(d, [-0.5, 0.0], atol=1e-9)


def test_columns_of_very_different_scales_in_a_group_keep_their_coefficients():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 4)) * [1.0, 1e-60, 1.0, 1.0]
    y = X @ [1.0, 1e60, 0.0, 0.0] + 0.1 * rng.standard_normal(40)
    result = solve(X, y, penalty=TrimmedL1(1, groups=[0, 0, 1, 1]), alpha="exact")
    residual = y - X @ result.coef
    assert result.objective == pytest.approx(0.5 * np.mean(residual**2), rel=1e-6)
