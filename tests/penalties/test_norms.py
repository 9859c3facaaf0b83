"""Lengths of groups, their prox and subdifferential, against brute force; and the forms of ``groups``."""

import numpy as np
import pytest
from scipy.optimize import minimize

from trimreg.penalties.norms import Groups, Singles, partition, soft_threshold, subgradient_residual

NORMS = [2, np.inf]
LABEL = np.array([1, 0, 1, 2, 1, 0])  # parts of three, two and one, their coordinates not together
VALUES = [0.0, 0.0, 1.0, -1.0, 2.0, -0.5, 3.0]  # ties and zeros are the rule


def draws(count, size, seed=0, values=VALUES):
    rng = np.random.default_rng(seed)
    return [rng.choice(values, size) for _ in range(count)]


def length(x, q):
    return np.linalg.norm(x, ord=q)


def members(label):
    return [np.flatnonzero(label == part) for part in range(label.max() + 1)]


# -- lengths ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("q", NORMS)
@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_lengths_and_their_duals(q, scale):
    groups, dual = Groups(LABEL, q), 2 if q == 2 else 1
    for x in draws(20, LABEL.size):
        expected = [length(x[j], q) for j in members(LABEL)]
        np.testing.assert_allclose(groups.lengths(scale * x), scale * np.array(expected), rtol=1e-14)
        expected = [length(x[j], dual) for j in members(LABEL)]
        np.testing.assert_allclose(groups.dual_lengths(scale * x), scale * np.array(expected), rtol=1e-14)


def test_lengths_of_parts_of_very_different_sizes():
    """The unit that guards against overflow is the largest entry: what is far below it may round to 0."""
    groups = Groups(np.array([0, 0, 1]), 2)
    np.testing.assert_allclose(groups.lengths(np.array([3e-150, 4e-150, 1.0])), [5e-150, 1.0], rtol=1e-12)


@pytest.mark.parametrize("q", NORMS)
def test_arrays_between_parts_and_coordinates(q):
    groups = Groups(LABEL, q)
    assert (groups.count, groups.sizes.tolist()) == (3, [2, 3, 1])
    np.testing.assert_array_equal(groups.spread(np.array([10.0, 20.0, 30.0])), [20, 10, 20, 30, 20, 10])
    np.testing.assert_array_equal(groups.largest_in_part(np.array([1.0, 5, 2, -7, 0, 4])), [5, 2, -7])
    np.testing.assert_array_equal(groups.coordinates([2, 0]), [3, 1, 5])
    assert groups.coordinates([]).size == 0
    more = groups.extended(2)
    assert more.q == q
    np.testing.assert_array_equal(more.label, [*LABEL, 3, 3])
    np.testing.assert_array_equal(more.coordinates([3]), [6, 7])


def test_common_scales_keep_the_mean_square():
    norms = np.array([1.0, 3.0, 2.0, 0.0, 0.0, 4.0])
    common = Groups(LABEL, np.inf).common(norms)
    for j in members(LABEL):
        assert np.unique(common[j]).size == 1
        np.testing.assert_allclose(np.sum(common[j] ** 2), np.sum(norms[j] ** 2), rtol=1e-14)


# -- the prox ---------------------------------------------------------------------------------------


def lowest(z, t, q, start):
    """The least of ||x - z||^2 / 2 + t ||x||_q, from a start that a solver for smooth functions improves."""

    def cost(x):
        return 0.5 * np.sum((x - z) ** 2) + t * length(x, q)

    found = [cost(start), cost(np.zeros_like(z)), cost(z)]
    found.append(minimize(cost, start, method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-13}).fun)
    return min(found)


@pytest.mark.parametrize("q", NORMS)
@pytest.mark.parametrize("t", [0.3, 1.0, 2.5])
def test_shrink_is_the_lowest_point(q, t):
    groups = Groups(LABEL, q)
    for z in draws(6, LABEL.size):
        x = groups.shrink(z, t)
        for j in members(LABEL):
            reached = 0.5 * np.sum((x[j] - z[j]) ** 2) + t * length(x[j], q)
            assert reached <= lowest(z[j], t, q, x[j]) + 1e-12


@pytest.mark.parametrize("q", NORMS)
@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_shrink_leaves_what_the_dual_ball_does_not_take(q, scale):
    """Moreau: z less the prox is the projection on the dual ball, so it lies in it, along a subgradient."""
    groups, dual = Groups(LABEL, q), 2 if q == 2 else 1
    threshold = scale * np.array([0.5, 1.0, 2.0])
    for z in draws(30, LABEL.size, seed=1):
        x = groups.shrink(scale * z, threshold)
        for part, j in enumerate(members(LABEL)):
            rest = (scale * z[j] - x[j]) / scale
            assert length(rest, dual) <= threshold[part] / scale * (1 + 1e-12)
            if np.any(x[j]):  # <rest, x> = t ||x||: rest / t is a subgradient there
                inner = rest @ (x[j] / scale)
                assert inner == pytest.approx(threshold[part] / scale * length(x[j] / scale, q), rel=1e-12)


@pytest.mark.parametrize("q", NORMS)
def test_shrink_by_nothing_and_by_infinity(q):
    groups = Groups(LABEL, q)
    z = np.array([1.0, -2.0, 0.0, 3.0, 1.0, -2.0])
    x = groups.shrink(z, np.array([0.0, np.inf, 0.5]))
    np.testing.assert_array_equal(x, [0.0, -2.0, 0.0, 2.5, 0.0, -2.0])
    assert not np.signbit(x).any() or (x[np.signbit(x)] < 0).all()  # no -0.0
    np.testing.assert_array_equal(groups.shrink(np.zeros(6), 0.0), np.zeros(6))


@pytest.mark.parametrize("q", NORMS)
def test_shrink_at_the_very_threshold_is_zero(q):
    z = np.array([3.0, -4.0, 0.0])
    t = 5.0 if q == 2 else 7.0
    np.testing.assert_array_equal(Groups(np.zeros(3, dtype=int), q).shrink(z, t), np.zeros(3))
    assert np.any(Groups(np.zeros(3, dtype=int), q).shrink(z, 0.999 * t))


# -- the subdifferential ----------------------------------------------------------------------------


def nearest_subgradient(theta, gradient, t, q):
    """The element of g + t d||theta|| nearest to 0: a point, a ball, or a simplex on the largest entries."""
    if q == 2 and np.any(theta):
        return gradient + t * theta / np.linalg.norm(theta)
    size = np.abs(theta)
    if not np.any(theta):
        return gradient - project_on_ball(gradient, t, 2 if q == 2 else 1)
    top = np.flatnonzero(size == size.max())
    sign = np.sign(theta[top])
    best = minimize(
        lambda u: np.sum((sign * gradient[top] + u) ** 2),
        np.full(top.size, t / top.size),
        bounds=[(0, None)] * top.size,
        constraints={"type": "eq", "fun": lambda u: u.sum() - t},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    ).x
    out = gradient.copy()
    out[top] += sign * best
    return out


def project_on_ball(g, radius, order):
    """The point of the ball nearest to g: by scaling (l2), or by bisection on what each entry loses (l1)."""
    if length(g, order) <= radius:
        return g.copy()
    if order == 2:
        return g * (radius / np.linalg.norm(g))
    low, high = 0.0, np.abs(g).max()
    for _ in range(200):
        cut = (low + high) / 2
        low, high = (cut, high) if np.maximum(np.abs(g) - cut, 0).sum() > radius else (low, cut)
    return np.sign(g) * np.maximum(np.abs(g) - high, 0)


@pytest.mark.parametrize("q", NORMS)
@pytest.mark.parametrize("zero", [False, True])
def test_residual_is_the_nearest_subgradient(q, zero):
    groups, threshold = Groups(LABEL, q), np.array([0.7, 1.5, 0.4])
    for theta, gradient in zip(
        draws(15, LABEL.size, 3), draws(15, LABEL.size, 4, np.linspace(-2, 2, 9)), strict=True
    ):
        theta = np.zeros_like(theta) if zero else theta
        found = groups.residual(theta, gradient, threshold)
        for part, j in enumerate(members(LABEL)):
            expected = nearest_subgradient(theta[j], gradient[j], threshold[part], q)
            np.testing.assert_allclose(found[j], expected, atol=2e-6)
            # and no point of the subdifferential that the projection found is nearer
            assert found[j] @ found[j] <= expected @ expected + 1e-9


@pytest.mark.parametrize("q", NORMS)
def test_residual_vanishes_at_the_prox(q):
    """x = shrink(z, t) is where x - z has the opposite of a subgradient."""
    groups, threshold = Groups(LABEL, q), np.array([0.5, 1.0, 0.2])
    for z in draws(40, LABEL.size, seed=5):
        x = groups.shrink(z, threshold)
        np.testing.assert_allclose(groups.residual(x, x - z, threshold), 0.0, atol=1e-14)


@pytest.mark.parametrize("q", NORMS)
def test_residual_of_free_and_excluded_parts(q):
    groups = Groups(LABEL, q)
    gradient = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    at_zero = groups.residual(np.zeros(6), gradient, np.array([0.0, np.inf, 1.0]))
    np.testing.assert_array_equal(at_zero, [0.0, 2.0, 0.0, 3.0, 0.0, 6.0])
    theta = np.array([0.0, 1.0, 0.0, 1.0, 0.0, -1.0])
    away = groups.residual(theta, gradient, np.array([0.0, np.inf, 1.0]))
    np.testing.assert_array_equal(away, [0.0, 2.0, 0.0, 5.0, 0.0, 6.0])


@pytest.mark.parametrize("q", NORMS)
def test_polar_is_a_subgradient_of_the_length(q):
    groups, dual = Groups(LABEL, q), 2 if q == 2 else 1
    for x in draws(40, LABEL.size, seed=6):
        u = groups.polar(x)
        for j in members(LABEL):
            if not np.any(x[j]):
                assert not np.any(u[j])
                continue
            assert length(u[j], dual) == pytest.approx(1.0, rel=1e-14)
            assert u[j] @ x[j] == pytest.approx(length(x[j], q), rel=1e-14)


# -- groups of one ----------------------------------------------------------------------------------


@pytest.mark.parametrize("q", NORMS)
@pytest.mark.parametrize("t", [0.0, 0.5, 2.0, np.inf])
def test_groups_of_one_are_single_coefficients(q, t):
    groups, singles = Groups(np.arange(6), q), Singles(6)
    for x, g in zip(draws(20, 6, 7), draws(20, 6, 8), strict=True):
        np.testing.assert_allclose(groups.lengths(x), singles.lengths(x), rtol=1e-15)
        np.testing.assert_allclose(groups.shrink(x, t), singles.shrink(x, t), rtol=1e-14)
        np.testing.assert_array_equal(groups.polar(x), singles.polar(x))
        if np.isfinite(t):
            np.testing.assert_allclose(groups.residual(x, g, t), singles.residual(x, g, t), atol=1e-14)
    np.testing.assert_allclose(groups.common(np.arange(6.0)), singles.common(np.arange(6.0)), rtol=1e-15)
    assert singles.extended(2).count == 8


def test_singles_are_the_plain_functions():
    x, g = np.array([1.0, 0.0, -2.0]), np.array([0.5, -3.0, 1.0])
    np.testing.assert_array_equal(Singles(3).shrink(x, 1.5), soft_threshold(x, 1.5))
    for bounds in (None, (np.full(3, -2.0), np.array([1.0, np.inf, 0.0]))):
        expected = subgradient_residual(x, g, 1.0, bounds)
        np.testing.assert_array_equal(Singles(3).residual(x, g, 1.0, bounds), expected)


# -- what groups may be -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("groups", "label"),
    [
        ([0, 1, 0, 2], [0, 1, 0, 2]),
        ([7, -1, 7, 9], [1, 0, 1, 2]),
        (["b", "a", "b", "c"], [1, 0, 1, 2]),
        (np.array([2.5, 1.0, 2.5, 2.5]), [1, 0, 1, 1]),
        ([True, False, True, True], [1, 0, 1, 1]),
        ([[1], [0, 2], [3]], [1, 0, 1, 2]),
        ((np.array([3, 1]), (0, 2)), [1, 0, 1, 0]),
        (iter([0, 0, 1, 1]), [0, 0, 1, 1]),
    ],
)
def test_partition(groups, label):
    found = partition(groups, 4)
    np.testing.assert_array_equal(found, label)
    assert found.dtype.kind == "i"


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        ([0, 1, 0], "got 3 labels"),
        ("abcd", "got 'abcd'"),
        (3, "got 3"),
        (None, "got None"),
        ([0, 1, [2], 3], "got both labels and lists"),
        ([0, 1, None, 3], "missing label"),
        ([0.0, 1.0, np.nan, 3.0], "missing label"),
        ([0, object(), 1, 2], "have no order"),
        ([[0, 1], [1, 2, 3]], "must not overlap; feature 1 is in groups 0 and 1"),
        ([[0, 1], [0, 2, 3]], "must not overlap; feature 0"),
        ([[0, 0], [1, 2, 3]], "feature 0 is in group 0 twice"),
        ([[0, 1], [2]], "feature 3 is in none"),
        ([[0, 1], [], [2, 3]], "group 1 is"),
        ([[0, 1], [2, 4]], "got 4 in group 1"),
        ([[0, -1], [1, 2]], "got -1 in group 0"),
        ([[0, 1.0], [2, 3]], "got 1.0 in group 0"),
        ([[False, True], [2, 3]], "got False in group 0"),
        ([["a", "b"], ["c", "d"]], "got 'a' in group 0"),
    ],
)
def test_partition_refuses(groups, why):
    with pytest.raises(ValueError, match="groups must") as caught:
        partition(groups, 4)
    assert why in str(caught.value)


def test_lengths_of_groups_of_very_different_size():
    lengths = Groups(np.array([0, 0, 1, 1])).lengths(np.array([3e140, 4e140, 3e-140, 4e-140]))
    np.testing.assert_allclose(lengths, [5e140, 5e-140])
