"""Every prox against brute-force minimization: small and large steps, ties, zeros, odd factors."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from trimreg.penalties import L1, MCP, SCAD, TrimmedL1, soft_threshold

exact = settings(derandomize=True, deadline=None, max_examples=50)


# -- penalties of one number, written down again from their papers ----------------------------------


def l1_value(t, level, gamma):
    return level * t


def mcp_value(t, level, gamma):
    if np.isinf(gamma):
        return level * t
    return np.where(t <= gamma * level, level * t - t**2 / (2 * gamma), gamma * level**2 / 2)


def scad_value(t, level, gamma):
    if np.isinf(gamma):
        return level * t
    middle = (2 * gamma * level * t - t**2 - level**2) / (2 * (gamma - 1))
    return np.where(t <= level, level * t, np.where(t <= gamma * level, middle, level**2 * (gamma + 1) / 2))


def mcp_slope(t, level, gamma):
    return max(level - t / gamma, 0.0)


def scad_slope(t, level, gamma):
    if t <= level or np.isinf(gamma):
        return level
    return max(gamma * level - t, 0.0) / (gamma - 1)


SEPARABLE = {
    "l1": (lambda gamma, factor: L1(factor), l1_value, lambda t, level, gamma: level),
    "mcp": (MCP, mcp_value, mcp_slope),
    "scad": (SCAD, scad_value, scad_slope),
}


ends = st.sampled_from([0.0, 0.4, 1.0, 3.0, np.inf])


def lowest_cost(cost, z, lower=-np.inf, upper=np.inf):
    """The least value of a function between 0 and z and the bounds, by a grid and a local search."""
    grid = np.linspace(0.0, np.clip(z, lower, upper), 2001)
    values = cost(grid)
    best = int(np.argmin(values))
    a, b = sorted((grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)]))
    if a == b:
        return float(values[best])
    local = minimize_scalar(cost, bounds=(a, b), method="bounded", options={"xatol": 1e-12})
    return min(float(values[best]), float(local.fun))


@pytest.mark.parametrize("name", SEPARABLE)
@exact
@given(
    z=st.one_of(st.sampled_from([0.0, 1.0, -2.0]), st.floats(-10, 10)),
    alpha=st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.01, 3)),
    factor=st.sampled_from([0.5, 1.0, 2.0]),
    excess=st.one_of(st.sampled_from([0.05, 1.5, np.inf]), st.floats(0.05, 5)),
    step=st.one_of(st.sampled_from([1.0, 2.5, 20.0]), st.floats(0.05, 20)),
    below=ends,
    above=ends,
)
def test_separable_prox_is_the_lowest_point(name, z, alpha, factor, excess, step, below, above):
    build, value, slope = SEPARABLE[name]
    gamma = {"l1": 0.0, "mcp": 1.0, "scad": 2.0}[name] + excess  # steps above and below it occur
    level = alpha * factor
    bounds = None if below == above == np.inf else (np.array([-below]), np.array([above]))
    x = float(build(gamma, [factor]).bind(1).prox(np.array([z]), alpha, step, bounds)[0])

    def cost(x):
        return (x - z) ** 2 / (2 * step) + value(np.abs(x), level, gamma)

    reference = lowest_cost(cost, z, -below, above)
    assert cost(x) <= reference + 1e-12 * (1 + reference)
    assert -below <= x <= above
    if x not in (-below, 0, above):  # the derivative is continuous there, so it vanishes at a minimum
        assert (x - z) / step + slope(abs(x), level, gamma) * np.sign(x) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("build", [lambda: MCP(gamma=2.5), lambda: SCAD(gamma=3.0), lambda: L1()])
@pytest.mark.parametrize("step", [0.3, 2.0, 40.0])
def test_separable_prox_acts_on_each_coordinate_alone(build, step):
    z = np.array([3.0, -0.2, 0.0, 1.1, -7.0])
    whole = build().bind(5).prox(z, 0.7, step)
    alone = [build().bind(1).prox(z[[j]], 0.7, step)[0] for j in range(5)]
    np.testing.assert_array_equal(whole, alone)


# -- the trimmed penalty: every choice of the free coordinates ----------------------------------------


def trimmed_cost(x, z, factor, h, alpha, step):
    regular = (factor > 0) & np.isfinite(factor)
    r = np.sort(factor[regular] * np.abs(x[regular]))
    return np.sum((x - z) ** 2) / (2 * step) + alpha * r[: max(r.size - h, 0)].sum()


def best_of_all_free_sets(z, factor, h, alpha, step, lower, upper):
    regular = np.flatnonzero((factor > 0) & np.isfinite(factor))
    given_z, z = z, np.where(np.isinf(factor), 0.0, z)  # an infinite factor leaves 0, at a cost all the same
    lowest = np.inf
    for free in combinations(regular, min(h, regular.size)):
        x = np.clip(z, lower, upper)
        for j in set(regular) - set(free):
            size = max(abs(z[j]) - step * alpha * factor[j], 0.0)
            x[j] = np.clip(np.sign(z[j]) * size, lower[j], upper[j])
        # The cost of this choice, an upper bound of the trimmed cost at x; the least of all is the optimum.
        penalized = sum(factor[j] * abs(x[j]) for j in set(regular) - set(free))
        lowest = min(lowest, np.sum((x - given_z) ** 2) / (2 * step) + alpha * penalized)
    return lowest


entries = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 2.0, -2.0]), st.floats(-5, 5))


@exact
@given(data=st.data(), p=st.integers(1, 6), equal=st.booleans(), bounded=st.booleans())
def test_trimmed_prox_is_the_best_of_all_free_sets(data, p, equal, bounded):
    z = np.array(data.draw(st.lists(entries, min_size=p, max_size=p)))
    kinds = st.just(1.0) if equal else st.sampled_from([0.0, 0.3, 1.0, 2.0, np.inf])
    factor = np.array(data.draw(st.lists(kinds, min_size=p, max_size=p)))
    h = data.draw(st.integers(0, p))
    alpha = data.draw(st.sampled_from([0.0, 0.4, 1.0, 3.0]))
    step = data.draw(st.sampled_from([0.1, 1.0, 1.7, 30.0]))
    drawn = st.lists(ends, min_size=p, max_size=p) if bounded else st.just([np.inf] * p)
    lower, upper = -np.array(data.draw(drawn)), np.array(data.draw(drawn))
    x = TrimmedL1(h, factor).bind(p).prox(z, alpha, step, (lower, upper) if bounded else None)
    assert not np.any(x[np.isinf(factor)])
    assert np.all((lower <= x) & (x <= upper))
    reference = best_of_all_free_sets(z, factor, h, alpha, step, lower, upper)
    assert trimmed_cost(x, z, factor, h, alpha, step) == pytest.approx(reference, rel=1e-12, abs=1e-12)


def test_trimmed_prox_with_equal_factors_keeps_the_largest():
    z = np.array([0.3, -4.0, 1.5, -1.0, 0.0])
    x = TrimmedL1(h=2).bind(5).prox(z, alpha=2.0, step=0.25)
    np.testing.assert_allclose(x, [0.0, -4.0, 1.5, -0.5, 0.0])


def test_trimmed_prox_at_a_tie_frees_exactly_h():
    x = TrimmedL1(h=1).bind(3).prox(np.array([2.0, -2.0, 2.0]), alpha=1.0, step=0.5)
    np.testing.assert_array_equal(np.sort(np.abs(x)), [1.5, 1.5, 2.0])


def test_an_enormous_threshold_does_not_overflow():
    x = TrimmedL1(h=1).bind(2).prox(np.array([2.0, 1.0]), alpha=1e200, step=1.0)
    np.testing.assert_array_equal(x, [2.0, 0.0])


@exact
@given(z=st.floats(-10, 10), threshold=st.one_of(st.just(np.inf), st.floats(0, 10)))
def test_soft_threshold_is_the_lowest_point(z, threshold):
    x = float(soft_threshold(z, threshold))
    if np.isinf(threshold):
        assert x == 0
        return

    def cost(x):
        return 0.5 * (x - z) ** 2 + threshold * np.abs(x)

    assert cost(x) <= lowest_cost(cost, z) + 1e-12
    assert not np.signbit(x) or x < 0  # no negative zeros
