"""Penalties of groups: values, weights and prox against enumeration and brute force, and what they refuse."""

from itertools import combinations

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.optimize import minimize_scalar

from trimreg.penalties import L1, MCP, SCAD, TrimmedL1
from trimreg.penalties.base import largest_violation

LABEL = np.array([1, 0, 1, 2, 1, 0, 3, 3])
PARTS = [np.flatnonzero(part == LABEL) for part in range(4)]
ROOTS = np.sqrt([2, 3, 1, 2])
KINDS = {"trimmed": lambda **kw: TrimmedL1(2, **kw), "l1": L1, "mcp": MCP, "scad": SCAD}
VALUES = [0.0, 0.0, 1.0, -1.0, 2.0, -0.5, 3.0]


def points(count, seed=0, size=LABEL.size):
    rng = np.random.default_rng(seed)
    return [rng.choice(VALUES, size) * rng.choice([1e-3, 1.0, 1e3]) for _ in range(count)]


def lengths(x, q):
    return np.array([np.linalg.norm(x[j], ord=q) for j in PARTS])


def folded(kind, t, level, gamma):
    """MCP and SCAD of one length, by integrating their slopes."""
    grid = np.linspace(0, t, 20001)
    if kind == "mcp":
        slope = np.maximum(level - grid / gamma, 0)
    else:
        slope = np.where(grid <= level, level, np.maximum(gamma * level - grid, 0) / (gamma - 1))
    return trapezoid(slope, grid)


# -- values and weights -----------------------------------------------------------------------------


@pytest.mark.parametrize("q", [2, np.inf])
@pytest.mark.parametrize(
    ("h", "factor"), [(0, None), (1, [1.0, 0.1, 3.0, 1.0]), (3, [1.0, 0.1, 3.0, 1.0]), (4, None)]
)
def test_trimmed_value_is_the_least_over_all_sets_of_free_groups(q, h, factor):
    penalty = TrimmedL1(h, factor, groups=LABEL, q=q).bind(8)
    f = ROOTS if factor is None else np.array(factor)
    for x in points(20):
        r = f * lengths(x, q)
        expected = 0.7 * min(np.delete(r, free).sum() for free in map(list, combinations(range(4), h)))
        assert penalty.value(x, 0.7) == pytest.approx(expected, rel=1e-12, abs=1e-12 * r.sum())
        np.testing.assert_allclose(penalty.magnitudes(x), r, rtol=1e-13)
        w = penalty.weights(x, 0.7)
        assert set(w) <= {0.0, 1.0}
        assert w.sum() == 4 - h
        assert 0.7 * w @ r == pytest.approx(expected, rel=1e-12, abs=1e-12 * r.sum())


@pytest.mark.parametrize("q", [2, np.inf])
def test_ties_between_groups_go_to_the_larger_dual_norm(q):
    penalty = TrimmedL1(1, [1.0, 1.0], groups=[0, 0, 1, 1], q=q).bind(4)
    theta = np.zeros(4)
    wide, high = np.array([1.0, 1.0, 1.2, 0.0]), np.array([1.0, 1.0, 2.1, 0.0])
    np.testing.assert_array_equal(penalty.weights(theta, 1.0, wide), [0.0, 1.0])
    np.testing.assert_array_equal(penalty.weights(theta, 1.0, high), [1.0, 0.0])


@pytest.mark.parametrize("kind", ["mcp", "scad"])
@pytest.mark.parametrize("q", [2, np.inf])
def test_folded_penalties_are_functions_of_the_lengths(kind, q):
    penalty = KINDS[kind](groups=LABEL, q=q).bind(8)
    for x in points(8):
        x = x / max(np.abs(x).max(), 1.0)
        expected = sum(
            folded(kind, r, 0.3 * f, penalty.gamma) for r, f in zip(lengths(x, q), ROOTS, strict=True)
        )
        assert penalty.value(x, 0.3) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("q", [2, np.inf])
def test_the_weighted_sum_majorizes(kind, q):
    """MM needs it: the value rises, from where weights were taken, at most as the weighted lengths do."""
    penalty = KINDS[kind](groups=LABEL, q=q).bind(8)
    for at, x in zip(points(20, 1), points(20, 2), strict=True):
        w = penalty.weights(at, 0.5)
        rise = 0.5 * w @ (penalty.magnitudes(x) - penalty.magnitudes(at))
        bound = penalty.value(at, 0.5) + rise
        assert penalty.value(x, 0.5) <= bound + 1e-10 * (1 + abs(bound))


# -- prox -------------------------------------------------------------------------------------------


def cost(penalty, x, z, alpha, step):
    return np.sum((x - z) ** 2) / (2 * step) + penalty.value(x, alpha)


@pytest.mark.parametrize("q", [2, np.inf])
@pytest.mark.parametrize(
    ("h", "factor"), [(0, None), (1, [1.0, 0.3, 2.0, 1.0]), (2, None), (2, [1.0, 0.3, 2.0, 1.0]), (4, None)]
)
def test_trimmed_prox_is_the_best_of_all_free_sets(q, factor, h):
    penalty = TrimmedL1(h, factor, groups=LABEL, q=q).bind(8)
    alpha, step = 0.8, 1.5
    for z in points(15, 3):
        z = np.clip(z, -5, 5)
        x = penalty.prox(z, alpha, step)
        level = penalty.levels(alpha)
        best = np.inf
        for free in combinations(range(4), h):
            t = step * level
            t[list(free)] = 0.0
            best = min(best, cost(penalty, penalty.norm.shrink(z, t), z, alpha, step))
        assert cost(penalty, x, z, alpha, step) <= best + 1e-12 * (1 + best)


@pytest.mark.parametrize("kind", ["l1", "mcp", "scad"])
@pytest.mark.parametrize("step", [0.5, 4.0, 30.0])
def test_separable_prox_is_the_lowest_point_along_each_group(kind, step):
    """For q = 2 and a penalty that rises with the length, the minimum lies between 0 and z."""
    penalty = KINDS[kind](groups=LABEL).bind(8)
    for z in points(6, 4):
        z = z / max(np.abs(z).max(), 1.0) * 3
        x = penalty.prox(z, 0.5, step)
        for j in PARTS:

            def along(s, j=j, z=z):
                part = np.zeros(8)
                part[j] = s * z[j]
                return np.sum((part[j] - z[j]) ** 2) / (2 * step) + penalty.value(part, 0.5)

            grid = np.array([along(s) for s in np.linspace(0, 1, 201)])
            k = int(np.argmin(grid))
            finer = minimize_scalar(
                along, bounds=(max(k - 1, 0) / 200, min(k + 1, 200) / 200), method="bounded"
            )
            reached = np.zeros(8)
            reached[j] = x[j]
            value = np.sum((x[j] - z[j]) ** 2) / (2 * step) + penalty.value(reached, 0.5)
            assert value <= min(grid.min(), finer.fun) + 1e-12
            # along z, and no farther
            np.testing.assert_allclose(np.linalg.norm(x[j]) * z[j], np.linalg.norm(z[j]) * x[j], atol=1e-12)


@pytest.mark.parametrize("kind", ["trimmed", "l1"])
def test_prox_for_the_largest_norm_is_a_fixed_point(kind):
    penalty = KINDS[kind](groups=LABEL, q=np.inf).bind(8)
    for z in points(20, 5):
        x = penalty.prox(z, 0.4, 1.5)
        w = penalty.weights(x, 0.4, (x - z) / 1.5)
        residual = penalty.norm.residual(x, (x - z) / 1.5, penalty.thresholds(w, 0.4))
        np.testing.assert_allclose(residual, 0.0, atol=1e-12 * (1 + np.abs(z).max()))


@pytest.mark.parametrize("kind", ["mcp", "scad"])
def test_folded_prox_for_the_largest_norm_is_refused(kind):
    with pytest.raises(ValueError, match=r"has no closed form for q = inf; use solver='mm'"):
        KINDS[kind](groups=LABEL, q=np.inf).bind(8).prox(np.ones(8), 0.4, 1.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("q", [2, np.inf])
def test_groups_of_one_are_single_coefficients(kind, q):
    grouped, plain = KINDS[kind](groups=list("abcdefgh"), q=q).bind(8), KINDS[kind]().bind(8)
    gradient = np.random.default_rng(6).standard_normal(8)
    for x in points(10, 6):
        assert grouped.value(x, 0.4) == pytest.approx(plain.value(x, 0.4), rel=1e-13)
        w = plain.weights(x, 0.4, gradient)
        np.testing.assert_allclose(grouped.weights(x, 0.4, gradient), w, rtol=1e-13)
        a, b = (p.stationarity(x, w, gradient, 0.4) for p in (grouped, plain))
        assert a == pytest.approx(b, rel=1e-12)
        if q == 2 or kind in ("trimmed", "l1"):
            np.testing.assert_allclose(grouped.prox(x, 0.4, 2.0), plain.prox(x, 0.4, 2.0), rtol=1e-13)


# -- free and excluded groups -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("q", [2, np.inf])
def test_groups_without_penalty_and_excluded_ones(kind, q):
    penalty = KINDS[kind](penalty_factor=[0.0, 1.0, np.inf, 1.0], groups=LABEL, q=q).bind(8)
    x = np.array([0.0, 5.0, 0.0, 0.0, 0.0, 7.0, 0.0, 0.0])  # group 0 alone, which is free
    assert penalty.value(x, 1.0) == 0.0
    x[3] = 1e-9
    assert penalty.value(x, 1.0) == np.inf
    np.testing.assert_array_equal(penalty.weights(x, 1.0)[[0, 2]], [0.0, 1.0])
    np.testing.assert_array_equal(penalty.levels(2.0), [0.0, 2.0, np.inf, 2.0])
    if kind == "trimmed":
        assert penalty.n_free == 2
        assert TrimmedL1(4, [0.0, 1.0, np.inf, 1.0], groups=LABEL).bind(8).n_free == 2
    if q == 2 or kind in ("trimmed", "l1"):
        np.testing.assert_array_equal(penalty.prox(x, 1.0, 1.0)[[1, 3, 5]], [5.0, 0.0, 7.0])


# -- the paper's T ----------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [2, np.inf])
def test_stationarity_adds_the_part_of_the_weights(q):
    penalty = TrimmedL1(1, [1.0, 1.0], groups=[0, 0, 1], q=q).bind(3)
    theta, gradient = np.array([3.0, 4.0, 1.0]), np.zeros(3)
    # the right weights: only the penalized group is off, by alpha f
    assert penalty.stationarity(theta, np.array([0.0, 1.0]), gradient, 0.5) == pytest.approx(0.25)
    # the wrong ones: off by alpha in a dual direction (of length 1, or all of it on the largest entry), and
    # in w by the distance of (r_1, r_2) to r_1 <= r_2, half their difference each
    r = np.array([5.0 if q == 2 else 4.0, 1.0])
    expected = 0.25 + 2 * (0.5 * (r[0] - r[1]) / 2) ** 2
    assert penalty.stationarity(theta, np.array([1.0, 0.0]), gradient, 0.5) == pytest.approx(expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("q", [2, np.inf])
def test_stationarity_of_the_coefficients_is_the_squared_residual(kind, q):
    penalty = KINDS[kind](groups=LABEL, q=q).bind(8)
    rng = np.random.default_rng(7)
    for x in points(10, 8):
        gradient = rng.standard_normal(8)
        w = penalty.weights(x, 0.6)
        t = penalty.thresholds(w, 0.6)
        residual = penalty.norm.residual(x, gradient, t)
        assert penalty.stationarity(x, w, gradient, 0.6) == pytest.approx(residual @ residual, rel=1e-12)
        assert largest_violation(x, gradient, t, norm=penalty.norm) == np.abs(residual).max()


# -- other coordinates ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("q", [2, np.inf])
def test_rescaled_keeps_values_and_weights(kind, q):
    penalty = KINDS[kind](penalty_factor=[0.0, 1.0, np.inf, 2.0], groups=LABEL, q=q).bind(8)
    scale = np.array([3.0, 0.1, 1.0, 1e3])[LABEL]
    other = penalty.rescaled(scale)
    for x in points(10, 9):
        x = np.where(LABEL == 2, 0.0, x)
        assert other.value(x * scale, 0.5) == pytest.approx(penalty.value(x, 0.5), rel=1e-12)
        w = penalty.weights(x, 0.5)
        np.testing.assert_allclose(other.weights(x * scale, 0.5), w, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(other.magnitudes(x * scale), penalty.magnitudes(x), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_extended_adds_a_part_without_penalty(kind):
    penalty = KINDS[kind](groups=LABEL).bind(8)
    more = penalty.extended(2)
    x = points(1, 10)[0]
    longer = np.append(x, [5.0, -7.0])
    assert more.value(longer, 0.5) == penalty.value(x, 0.5)
    np.testing.assert_array_equal(more.weights(longer, 0.5), np.append(penalty.weights(x, 0.5), 0.0))
    np.testing.assert_array_equal(more.prox(longer, 0.5, 1.0), np.append(penalty.prox(x, 0.5, 1.0), [5, -7]))


# -- several outputs --------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [2, np.inf])
def test_rows_of_several_outputs(q):
    """Feature j has the entries j K, ..., j K + K - 1; its factor does not grow with K."""
    Theta = np.array([[3.0, 4.0], [0.0, 1.0], [2.0, 0.0]])
    rows = np.linalg.norm(Theta, ord=q, axis=1)
    penalty = TrimmedL1(1, q=q).bind(3, 2)
    assert penalty.value(Theta.ravel(), 1.0) == pytest.approx(np.sort(rows)[:-1].sum())
    penalty = TrimmedL1(0, groups=["a", "b", "a"], q=q).bind(3, 2)
    blocks = np.array([np.linalg.norm(Theta[[0, 2]].ravel(), ord=q), rows[1]])
    assert penalty.value(Theta.ravel(), 1.0) == pytest.approx(np.sqrt([2, 1]) @ blocks)


# -- what is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [1, 3, 0, -np.inf, np.nan, None, "2", "inf", True, [2]])
def test_bad_q(q):
    for penalty in (TrimmedL1(1, groups=LABEL, q=q), L1(q=q)):
        with pytest.raises(ValueError, match="q must be 2 or inf; got"):
            penalty.bind(8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("factor", "why"),
    [
        (np.ones(8), r"each of the 4 groups; got shape \(8,\)"),
        (2.0, r"each of the 4 groups; got shape \(\)"),
        ([1, 1, -1, 1], "penalty_factor must be >= 0 .* got -1.0 for group 2"),
        ([1, np.nan, 1, 1], "got nan for group 1"),
        (["a", "b", "c", "d"], "penalty_factor must be an array of numbers"),
    ],
)
def test_bad_penalty_factor_of_groups(kind, factor, why):
    with pytest.raises(ValueError, match=why):
        KINDS[kind](penalty_factor=factor, groups=LABEL).bind(8)


@pytest.mark.parametrize("h", [5, 8, -1, True, "2", 1.0, np.nan])
def test_h_counts_groups(h):
    with pytest.raises(ValueError, match="h must be an integer from 0 to the number of groups 4"):
        TrimmedL1(h, groups=LABEL).bind(8)


def test_h_of_groups_as_a_fraction_and_by_default():
    assert TrimmedL1(0.5, groups=LABEL).bind(8).n_free == 2
    assert TrimmedL1(None, groups=LABEL).bind(8).n_free == 1
    assert TrimmedL1(4, groups=LABEL).bind(8).n_free == 4


def test_a_penalty_can_be_bound_again():
    penalty = TrimmedL1(1, groups=LABEL, q=np.inf)
    penalty.bind(8)
    with pytest.raises(ValueError, match="groups must hold a label for each of the 5 features"):
        penalty.bind(5)
    assert "q=inf" in repr(penalty)
    assert "norm" not in repr(penalty.bind(8))
