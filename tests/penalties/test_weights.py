"""Values and weights: that the weights are what the value says, and that bad arguments are named."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimreg.penalties import L1, MCP, PENALTIES, SCAD, TrimmedL1, count_from, get_penalty

exact = settings(derandomize=True, deadline=None, max_examples=40)
FACTOR = np.array([1.0, 0.5, 2.0, 0.0, np.inf, 1.5])
THETA = np.array([0.3, -4.0, 0.45, 7.0, 0.0, -0.8])


# -- the trimmed penalty -----------------------------------------------------------------------------


@exact
@given(
    r=st.lists(st.one_of(st.sampled_from([0.0, 1.0, 2.0]), st.floats(0, 5)), min_size=1, max_size=7),
    data=st.data(),
)
def test_trimmed_value_is_the_minimum_over_the_weights(r, data):
    theta = np.array(r) * np.resize([1.0, -1.0], len(r))
    h = data.draw(st.integers(0, len(r)))
    penalty = TrimmedL1(h).bind(len(r))
    # A linear function over the capped simplex is least at a vertex: h zeros, the rest ones.
    vertices = [sum(r) - sum(r[j] for j in free) for free in combinations(range(len(r)), h)]
    assert penalty.value(theta, 0.7) == pytest.approx(0.7 * min(vertices), abs=1e-12)
    w = penalty.weights(theta, 0.7)
    assert sorted(np.unique(w)) in ([0.0], [1.0], [0.0, 1.0])
    assert w.sum() == len(r) - h
    assert 0.7 * w @ np.abs(theta) == pytest.approx(penalty.value(theta, 0.7), abs=1e-12)


def test_trimmed_weights_with_factors_free_the_largest_magnitudes():
    # Magnitudes f |theta| of the features that count: .3, 2, .9, 1.2.
    penalty = TrimmedL1(h=2, penalty_factor=FACTOR).bind(6)
    np.testing.assert_array_equal(penalty.weights(THETA, 1.0), [1, 0, 1, 0, 1, 0])
    assert penalty.value(THETA, 2.0) == pytest.approx(2.0 * (0.3 + 0.9))
    np.testing.assert_array_equal(penalty.magnitudes(THETA), [0.3, 2.0, 0.9, 0.0, 0.0, 0.8 * 1.5])


def test_a_gradient_breaks_ties_in_the_units_of_the_factors():
    penalty = TrimmedL1(h=1, penalty_factor=[1.0, 4.0, 1.0]).bind(3)
    w = penalty.weights(np.zeros(3), 1.0, gradient=np.array([1.0, -3.0, 0.5]))
    np.testing.assert_array_equal(w, [0, 1, 1])


def test_h_counts_no_more_than_the_features_that_have_a_penalty():
    penalty = TrimmedL1(h=6, penalty_factor=FACTOR).bind(6)
    assert penalty.n_free == 4
    assert penalty.value(THETA, 1.0) == 0
    np.testing.assert_array_equal(penalty.uniform_weights(), [0, 0, 0, 0, 1, 0])


def test_uniform_weights_lie_in_the_simplex():
    w = TrimmedL1(h=1, penalty_factor=FACTOR).bind(6).uniform_weights()
    np.testing.assert_allclose(w, [0.75, 0.75, 0.75, 0, 1, 0.75])


def test_trimmed_stationarity_has_both_parts():
    penalty = TrimmedL1(h=1).bind(3)
    theta, gradient, w = np.array([2.0, -1.0, 0.0]), np.array([0.25, 0.5, -2.0]), np.array([1.0, 0.0, 1.0])
    # theta: (.25 + 1)^2, .5^2 and (2 - 1)^2. w: the larger magnitude is penalized in place of the
    # smaller, and (2 - t)^2 + (t - 1)^2 is least at t = 3/2.
    expected = 1.25**2 + 0.5**2 + 1.0**2 + 0.5
    assert penalty.stationarity(theta, w, gradient, alpha=1.0) == pytest.approx(expected)


def test_stationarity_under_positivity_counts_only_what_pulls_up():
    penalty = L1().bind(3)
    theta, gradient = np.array([0.0, 0.0, 1.0]), np.array([5.0, -3.0, -1.0])
    assert penalty.stationarity(
        theta, np.ones(3), gradient, 1.0, (np.zeros(3), np.full(3, 9.0))
    ) == pytest.approx(4.0)
    assert penalty.stationarity(theta, np.ones(3), gradient, 1.0) == pytest.approx(16.0 + 4.0)


# -- MCP and SCAD ------------------------------------------------------------------------------------

FOLDED = [MCP(gamma=1.2), MCP(gamma=2.5), MCP(gamma=np.inf), SCAD(gamma=2.1), SCAD(gamma=3.7), SCAD(np.inf)]


@pytest.mark.parametrize("penalty", FOLDED, ids=repr)
def test_weights_are_the_derivative_of_the_value(penalty):
    alpha, t = 0.7, np.linspace(0.0137, 6, 101)  # no point of the grid on a knot
    factor = np.resize([0.5, 1.0, 2.0], t.size)
    bound = type(penalty)(penalty.gamma, factor).bind(t.size)
    numerical = np.empty(t.size)
    for j in range(t.size):
        up, down = t.copy(), t.copy()
        up[j] += 1e-6
        down[j] -= 1e-6
        numerical[j] = (bound.value(up, alpha) - bound.value(down, alpha)) / 2e-6
    np.testing.assert_allclose(alpha * factor * bound.weights(t, alpha), numerical, atol=1e-6)
    np.testing.assert_allclose(bound.weights(-t, alpha), bound.weights(t, alpha))


@pytest.mark.parametrize("penalty", [*FOLDED, L1(), TrimmedL1(h=2)], ids=repr)
@exact
@given(
    at=st.lists(st.floats(-5, 5), min_size=4, max_size=4),
    x=st.lists(st.floats(-5, 5), min_size=4, max_size=4),
)
def test_the_weighted_norm_majorizes_the_penalty(penalty, at, x):
    at, x, alpha = np.array(at), np.array(x), 0.8
    bound = penalty.bind(4)
    threshold = bound.thresholds(bound.weights(at, alpha), alpha)
    majorizer = bound.value(at, alpha) + threshold @ (np.abs(x) - np.abs(at))
    assert bound.value(x, alpha) <= majorizer + 1e-12


@pytest.mark.parametrize("build", [MCP, SCAD])
@pytest.mark.parametrize("step", [0.3, 1.0, 10.0])
def test_gamma_infinite_is_the_l1_norm(build, step):
    theta = np.array([0.0, -0.2, 1.0, 9.0])
    limit, l1 = build(gamma=np.inf).bind(4), L1().bind(4)
    assert limit.value(theta, 0.6) == pytest.approx(l1.value(theta, 0.6))
    np.testing.assert_array_equal(limit.weights(theta, 0.6), l1.weights(theta, 0.6))
    np.testing.assert_allclose(limit.prox(theta, 0.6, step), l1.prox(theta, 0.6, step), atol=1e-15)


# -- factors, scaling, an intercept --------------------------------------------------------------------


@pytest.mark.parametrize(
    "penalty", [L1(FACTOR), MCP(2.5, FACTOR), SCAD(3.0, FACTOR), TrimmedL1(1, FACTOR)], ids=repr
)
def test_special_factors(penalty):
    bound = penalty.bind(6)
    moved = THETA.copy()
    moved[3] = -100.0  # never penalized
    assert bound.value(moved, 1.0) == pytest.approx(bound.value(THETA, 1.0))
    moved[4] = 1e-9  # excluded
    assert bound.value(moved, 1.0) == np.inf
    thresholds = bound.thresholds(bound.weights(THETA, 1.0), 1.0)
    assert thresholds[3] == 0
    assert thresholds[4] == np.inf
    assert bound.prox(moved, 1.0)[3] == -100.0
    assert bound.prox(moved, 1.0)[4] == 0.0


@pytest.mark.parametrize(
    "penalty", [L1(FACTOR), TrimmedL1(1, FACTOR), MCP(2.5, FACTOR), SCAD(3.0, FACTOR)], ids=repr
)
def test_rescaled_keeps_the_value(penalty):
    scale = np.array([3.0, 0.1, 1.0, 7.0, 2.0, 1e3])
    bound = penalty.bind(6)
    other = bound.rescaled(scale)
    for alpha in (0.3, 1.0, 4.0):
        assert other.value(THETA * scale, alpha) == pytest.approx(bound.value(THETA, alpha))
        weights = bound.weights(THETA, alpha)
        np.testing.assert_allclose(other.weights(THETA * scale, alpha), weights, atol=1e-15)
        np.testing.assert_allclose(other.thresholds(weights, alpha) * scale, bound.thresholds(weights, alpha))
        twice = bound.extended().rescaled(np.append(scale, 2.0)).rescaled(np.append(scale, 3.0))
        longer = np.append(THETA * scale**2, 9.0)
        assert twice.value(longer, alpha) == pytest.approx(bound.value(THETA, alpha))


@pytest.mark.parametrize("penalty", [L1(), TrimmedL1(0), MCP(2.5), SCAD(3.0)], ids=repr)
@pytest.mark.parametrize("scale", [0.3, 4.0])
def test_prox_of_a_rescaled_penalty(penalty, scale):
    bound = penalty.bind(1).rescaled(np.array([scale]))
    x = np.linspace(-10.0, 10.0, 20_001)
    value = np.array([bound.value(np.array([t]), 1.0) for t in x])
    for z in (0.5, 1.7, -3.1, 6.0):
        lowest = np.min((x - z) ** 2 / (2 * 0.7) + value)
        found = bound.prox(np.array([z]), 1.0, 0.7)
        assert (found[0] - z) ** 2 / (2 * 0.7) + bound.value(found, 1.0) <= lowest + 1e-12


@pytest.mark.parametrize("penalty", [L1(), MCP(), SCAD(), TrimmedL1(2)], ids=repr)
def test_extended_adds_a_coordinate_without_penalty(penalty):
    theta = np.array([1.0, -2.0, 0.5, 3.0])
    bound = penalty.bind(4)
    longer = bound.extended()
    assert longer.value(np.append(theta, 50.0), 1.0) == bound.value(theta, 1.0)
    assert longer.weights(np.append(theta, 50.0), 1.0)[-1] == 0


# -- arguments that must be refused ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "h", [-1, 11, 2.0, 3.7, 0.0, 1.0, -0.2, np.nan, np.inf, True, np.True_, "3", [3], 1j]
)
def test_bad_h(h):
    with pytest.raises(ValueError, match=r"\bh must be"):
        TrimmedL1(h=h).bind(10)


@pytest.mark.parametrize(("h", "count"), [(0, 0), (10, 10), (np.int64(4), 4), (0.3, 3), (np.float32(0.5), 5)])
def test_good_h(h, count):
    assert TrimmedL1(h=h).bind(10).n_free == count


def test_count_from_names_the_argument_it_is_told():
    with pytest.raises(ValueError, match="max_features must be"):
        count_from(-1, 5, name="max_features")


BAD_FACTORS = [np.ones(3), np.ones((4, 1)), 1.0, [1, 1, 1, -1], [1, 1, 1, np.nan], ["a", "b", "c", "d"]]


@pytest.mark.parametrize("build", list(PENALTIES.values()))
@pytest.mark.parametrize("factor", BAD_FACTORS, ids=repr)
def test_bad_penalty_factor(build, factor):
    with pytest.raises(ValueError, match="penalty_factor"):
        build(penalty_factor=factor).bind(4)


@pytest.mark.parametrize("gamma", [1.0, 0.5, -3, np.nan, "3", None, 2j, [3.0]])
def test_bad_gamma_of_mcp(gamma):
    with pytest.raises(ValueError, match="gamma"):
        MCP(gamma=gamma).bind(2)


@pytest.mark.parametrize("gamma", [2.0, 1.5, np.nan])
def test_bad_gamma_of_scad(gamma):
    with pytest.raises(ValueError, match="gamma"):
        SCAD(gamma=gamma).bind(2)


BAD_WEIGHTS = [
    ([0.5, 0.5], "shape"),
    ([[0.5, 0.5, 1.0]], "shape"),
    ([1.5, 0.0, 0.5], "1.5"),
    ([-0.5, 1.0, 1.5], "-0.5"),
    ([np.nan, 1.0, 1.0], "nan"),
    ([1.0, 1.0, 1.0], "sum to"),
    ([0.5, 0.5, 0.5], "sum to"),
    (["a", "b", "c"], "numbers"),
]


@pytest.mark.parametrize(("weights", "why"), BAD_WEIGHTS, ids=repr)
def test_weights_outside_the_simplex(weights, why):
    with pytest.raises(ValueError, match=rf"w0 must .*{why}"):
        TrimmedL1(h=1).bind(3).checked_weights(weights, "w0")


def test_checked_weights_forgive_rounding_only():
    w = TrimmedL1(h=1).bind(3).checked_weights([2 / 3 + 1e-12, 2 / 3, 2 / 3])
    assert w.sum() == pytest.approx(2.0, abs=1e-15)
    np.testing.assert_allclose(w, 2 / 3)


def test_checked_weights_look_at_the_features_that_count():
    w = TrimmedL1(h=1, penalty_factor=[0.0, 1.0, 1.0, np.inf]).bind(4).checked_weights([0.3, 1.0, 0.0, 0.2])
    np.testing.assert_array_equal(w, [0, 1, 0, 1])


@pytest.mark.parametrize("name", PENALTIES)
def test_get_penalty(name):
    penalty = get_penalty(name)
    assert type(penalty) is PENALTIES[name]
    assert get_penalty(penalty) is penalty


@pytest.mark.parametrize("bad", ["lasso", None, 3, L1])
def test_get_penalty_refuses(bad):
    with pytest.raises(ValueError, match="penalty must be one of"):
        get_penalty(bad)
