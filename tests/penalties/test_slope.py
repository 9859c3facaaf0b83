"""SLOPE against enumeration of every order of the weights, certificates, limits, and the package sortedl1."""

import time
from itertools import combinations, permutations, product
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import GridSearchCV
from sortedl1 import Slope

from trimreg import MEstimator, solve
from trimreg.diagnostics import stationarity
from trimreg.penalties import L1, MCP, TrimmedL1, soft_threshold
from trimreg.penalties.norms import Groups
from trimreg.penalties.slope import (
    SLOPE,
    checked_weights,
    slope_weights,
    sorted_l1_prox,
    sorted_l1_residual,
    sorted_l1_value,
)

exact = settings(derandomize=True, deadline=None, max_examples=50)
entries = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 2.0, -2.0]), st.floats(-5, 5))
levels = st.one_of(st.sampled_from([0.0, 0.5, 1.0, 3.0]), st.floats(0, 4))


@st.composite
def vectors(draw, largest, how_many):
    """Falling weights, and that many vectors of one length: with ties, zeros and any sign."""
    p = draw(st.integers(1, largest))
    weights = np.sort(draw(st.lists(levels, min_size=p, max_size=p)))[::-1]
    return weights, *(np.array(draw(st.lists(entries, min_size=p, max_size=p))) for _ in range(how_many))


def norm(x, weights):
    """J as a maximum over every order of the weights: what sorting has to find."""
    return max(np.dot(order, np.abs(x)) for order in permutations(weights))


def excess_in_dual_ball(u, weights):
    """How far u is outside the dual unit ball: the sums of its k largest over those of the weights."""
    return np.max(np.cumsum(np.sort(np.abs(u))[::-1]) - np.cumsum(weights), initial=0.0)


def assert_is_prox(x, z, weights, rtol=1e-12):
    """z - x is a subgradient of J at x: in the dual ball, and J(x) = <z - x, x>. The problem is convex."""
    unit = np.sum(np.abs(z)) + np.sum(weights)
    assert excess_in_dual_ball(z - x, weights) <= rtol * unit
    assert np.sort(np.abs(x))[::-1] @ weights == pytest.approx((z - x) @ x, abs=rtol * unit**2)


# -- value and prox ------------------------------------------------------------------------------------------


@exact
@given(vectors(6, 1))
def test_value_is_the_dearest_order_of_the_weights(drawn):
    weights, theta = drawn
    assert sorted_l1_value(theta, weights) == pytest.approx(norm(theta, weights), abs=1e-12)


def best_of_all_blocks(z, weights):
    """The least cost over every way to tie neighbours (in the order of z) and to set a tail to zero."""
    u, p = np.sort(np.abs(z))[::-1], z.size
    lowest = np.inf
    for kept in range(p + 1):
        for cuts in (c for n in range(max(kept, 1)) for c in combinations(range(1, kept), n)):
            x = np.zeros(p)
            for block in np.split(np.arange(kept), cuts):
                x[block] = np.mean((u - weights)[block]) if block.size else 0.0
            # Any x is a candidate: J is computed anew, so a block of the wrong order only costs more.
            lowest = min(lowest, np.sum((x - u) ** 2) / 2 + norm(x, weights))
    return lowest


@settings(derandomize=True, deadline=None, max_examples=40)
@given(vectors(5, 1))
def test_prox_is_the_best_of_all_ways_to_tie(drawn):
    weights, z = drawn
    x = sorted_l1_prox(z, weights)
    cost = np.sum((x - z) ** 2) / 2 + norm(x, weights)
    assert cost == pytest.approx(best_of_all_blocks(z, weights), rel=1e-12, abs=1e-12)


@exact
@given(vectors(40, 1), st.sampled_from([1e-8, 1.0, 1e8]))
def test_prox_leaves_a_subgradient(drawn, scale):
    weights, z = drawn[0] * scale, drawn[1] * scale
    assert_is_prox(sorted_l1_prox(z, weights), z, weights)


@exact
@given(vectors(30, 1), st.randoms(use_true_random=False))
def test_prox_knows_no_signs_and_no_places(drawn, random):
    weights, z = drawn
    x = sorted_l1_prox(z, weights)
    assert np.all(x * z >= 0)
    assert not np.signbit(x[x == 0]).any()
    places = np.array(random.sample(range(z.size), z.size))
    signs = np.array([random.choice([-1.0, 1.0]) for _ in z])
    np.testing.assert_array_equal(sorted_l1_prox((signs * z)[places], weights), (signs * x)[places] + 0.0)
    rank = np.argsort(-np.abs(z), kind="stable")
    assert np.all(np.diff(np.abs(x)[rank]) <= 0)  # and what was equal stays so, to the last bit
    assert np.all(np.diff(np.abs(x)[rank])[np.diff(np.abs(z)[rank]) == 0] == 0)


def test_prox_ties_what_the_weights_force_together():
    # u - w = (3, 3.5, 0): the two largest would change places, and are tied in place of it.
    x = sorted_l1_prox(np.array([-4.5, 1.0, 5.0]), np.array([2.0, 1.0, 1.0]))
    np.testing.assert_array_equal(x, [-3.25, 0.0, 3.25])


@exact
@given(vectors(12, 1), levels)
def test_equal_weights_are_the_l1_norm(drawn, level):
    z = drawn[1]
    same = np.full(z.size, level)
    np.testing.assert_allclose(sorted_l1_prox(z, same), soft_threshold(z, level), atol=1e-14)
    assert sorted_l1_value(z, same) == pytest.approx(level * np.abs(z).sum(), abs=1e-12)


@exact
@given(vectors(12, 2), levels)
def test_a_single_weight_is_the_largest_entry(drawn, level):
    _, z, gradient = drawn
    first = np.where(np.arange(z.size) == 0, level, 0.0)
    group = Groups(np.zeros(z.size, dtype=int), q=np.inf)
    x = group.shrink(z, np.array([level]))
    np.testing.assert_allclose(sorted_l1_prox(z, first), x, atol=1e-13)
    np.testing.assert_allclose(
        sorted_l1_residual(z, gradient, first), group.residual(z, gradient, np.array([level])), atol=1e-13
    )


def test_prox_of_nothing_and_of_one():
    assert sorted_l1_prox(np.empty(0), np.empty(0)).shape == (0,)
    assert sorted_l1_residual(np.empty(0), np.empty(0), np.empty(0)).shape == (0,)
    np.testing.assert_array_equal(sorted_l1_prox(np.array([-3.0]), np.array([1.0])), [-2.0])


def test_enormous_weights_do_not_overflow():
    x = sorted_l1_prox(np.array([2.0, 1.0, 9.0]), np.array([1e200, 1e200, 0.0]))
    np.testing.assert_array_equal(x, [0.0, 0.0, 0.0])


def test_a_hundred_thousand_coefficients_take_no_time():
    rng = np.random.default_rng(0)
    z, weights = 3 * rng.standard_normal(100_000), 2 * slope_weights(100_000)
    seconds = []
    for _ in range(3):
        start = time.process_time()
        x = sorted_l1_prox(z, weights)
        sorted_l1_residual(x, x - z, weights)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.5
    assert 0 < np.count_nonzero(x) < 100_000
    assert_is_prox(x, z, weights, rtol=1e-13)


# -- the residual --------------------------------------------------------------------------------------------


def subgradients(theta, weights):
    """The vertices of the subdifferential at theta: signed orders of the weights that attain J."""
    value = norm(theta, weights)
    for order in set(permutations(weights)):
        for signs in product([-1.0, 1.0], repeat=theta.size):
            s = np.array(signs) * order
            if s @ theta >= value - 1e-12:
                yield s


@settings(derandomize=True, deadline=None, max_examples=50)
@given(vectors(4, 2), st.booleans())
def test_residual_is_the_nearest_to_zero(drawn, positive):
    weights, theta, gradient = drawn
    theta = np.round(np.abs(theta) if positive else theta)  # magnitudes that are equal or far apart
    signs = (np.zeros(theta.size), np.full(theta.size, np.inf)) if positive else None
    residual = sorted_l1_residual(theta, gradient, weights, signs)
    s = residual - gradient  # has to be a subgradient (and a normal vector of theta >= 0)
    held = (theta == 0) & positive
    assert excess_in_dual_ball(np.where(held, np.maximum(s, 0), s), weights) <= 1e-11
    assert s @ theta == pytest.approx(norm(theta, weights), abs=1e-10)
    # and no vertex, nor a direction of the normal cone, makes an acute step towards 0
    assert all(residual @ (v - s) >= -1e-10 for v in subgradients(theta, weights))
    assert np.all(residual[held] <= 0)
    assert residual[held] @ s[held] == pytest.approx(
        residual[held] @ np.maximum(s, 0)[held], abs=1e-10
    )  # where the normal cone is used, nothing is left


@exact
@given(vectors(25, 1), st.sampled_from([1e-8, 1.0, 1e8]))
def test_residual_vanishes_at_a_prox(drawn, scale):
    weights, z = drawn[0] * scale, drawn[1] * scale
    x = sorted_l1_prox(z, weights)
    residual = sorted_l1_residual(x, x - z, weights)
    assert np.abs(residual).max() <= 1e-13 * (np.abs(z).max() + weights.sum())


def test_residual_of_clusters_by_hand():
    weights = np.array([4.0, 2.0, 1.0, 0.5])
    theta = np.array([-3.0, 0.0, 3.0, 1.0])
    # Cluster of 3: pulls (5, 2) against (4, 2), too far by 1 and 0. Alone: 1 + 1.5. Zero: 2 - 0.5.
    residual = sorted_l1_residual(theta, np.array([5.0, -2.0, -2.0, 1.5]), weights)
    np.testing.assert_allclose(residual, [1.0, -1.5, 0.0, 2.5])


@pytest.mark.parametrize("unit", [1e-8, 1.0, 1e8])
def test_rounding_does_not_take_a_cluster_apart(unit):
    weights, scale = np.array([3.0, 1.0, 0.5]), np.array([49.0, 3.0, 1.0])
    theta = unit * (np.array([1.0, -1.0, 1.0]) / scale * scale)
    assert np.unique(np.abs(theta)).size > 1
    gradient = np.array([-1.5, 1.5, -1.5])  # the mean of the weights: inside the permutahedron
    np.testing.assert_allclose(sorted_l1_residual(theta, gradient, weights), 0.0, atol=1e-15)
    assert np.abs(sorted_l1_residual(theta, gradient, weights, same=0.0)).max() > 0.4
    apart = unit * np.array([1.0, -1.0 + 1e-8, 1.0])
    assert np.abs(sorted_l1_residual(apart, gradient, weights)).max() > 0.4


def test_signs_may_be_asked_of_some():
    theta, gradient, weights = np.zeros(4), np.array([5.0, 5.0, -5.0, -5.0]), np.array([2.0, 1.0, 0.0, 0.0])
    signs = np.array([0.0, -np.inf, 0.0, -np.inf]), np.array([np.inf, np.inf, np.inf, 0.0])
    np.testing.assert_allclose(sorted_l1_residual(theta, gradient, weights, signs), [0.0, 3.5, -3.5, 0.0])


# -- weights -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [1e-9, 0.05, 0.1, 0.99])
@pytest.mark.parametrize("p", [1, 2, 50])
def test_bh_weights_are_normal_quantiles(p, q):
    quantiles = np.array([-NormalDist().inv_cdf(q * j / (2 * p)) for j in range(1, p + 1)])
    np.testing.assert_allclose(slope_weights(p, "bh", q), quantiles / quantiles[0], rtol=1e-9)
    assert slope_weights(p, "bh", q)[0] == 1.0
    checked_weights(slope_weights(p, "bh", q), p)


def test_oscar_weights_are_a_line():
    weights = slope_weights(5, "oscar", q=0.25)
    np.testing.assert_allclose(weights, np.array([2.0, 1.75, 1.5, 1.25, 1.0]) / 2)
    np.testing.assert_array_equal(slope_weights(4, "oscar", q=0), np.ones(4))


def test_bh_weights_keep_the_false_discovery_rate():
    # Bogdan et al., theorem 1.1: orthogonal design, known noise; at most q (p - k) / p.
    p, k, q, rng = 100, 10, 0.2, np.random.default_rng(0)
    weights = -NormalDist().inv_cdf(q / (2 * p)) * slope_weights(p, "bh", q)
    signal = np.where(np.arange(p) < k, 8.0, 0.0)
    rates = []
    for _ in range(1000):
        found = np.flatnonzero(sorted_l1_prox(signal + rng.standard_normal(p), weights))
        rates.append(np.mean(found >= k) if found.size else 0.0)
    assert np.mean(rates) <= q * (p - k) / p + 3 * np.std(rates) / np.sqrt(len(rates))
    assert np.mean(rates) > 0.1  # not by selecting nothing


@pytest.mark.parametrize("q", [0.0, 1.0, -0.1, np.nan, True, "0.1", None, [0.1]])
def test_bad_q(q):
    with pytest.raises(ValueError, match=r"\bq must be a false discovery rate"):
        SLOPE(q=q).bind(3)
    if q not in (0.0, 1.0):
        with pytest.raises(ValueError, match=r"\bq must be a slope"):
            SLOPE("oscar", q=q).bind(3)


BAD = [
    ("lasso", "lasso"),
    ([1.0, 0.5], r"shape \(2,\)"),
    ([[1.0, 0.5, 0.2]], r"shape \(1, 3\)"),
    ([1.0, 0.5, 0.6], "0.6 after 0.5"),
    ([1.0, 0.5, -0.1], "-0.1 at position 2"),
    ([np.inf, 1.0, 0.5], "inf at position 0"),
    ([1.0, np.nan, 0.5], "nan at position 1"),
    (["a", "b", "c"], "'a'"),
    (3.0, r"shape \(\)"),
]


@pytest.mark.parametrize(("weights", "why"), BAD, ids=repr)
def test_bad_weights(weights, why):
    with pytest.raises(ValueError, match=rf"weights must be one of .*{why}"):
        SLOPE(weights).bind(3)


# -- the penalty ---------------------------------------------------------------------------------------------


def test_what_the_penalty_is():
    penalty = SLOPE()
    assert penalty.n_free is None
    assert not penalty.majorizes
    assert repr(penalty) == "SLOPE(weights='bh', q=0.1)"
    assert repr(SLOPE([2, 1], q=0.3).bind(2)) == "SLOPE(weights=[2, 1], q=0.3)"
    theta = np.array([3.0, 1.0])
    assert SLOPE(None).bind(2).value(theta, 1.0) == SLOPE("bh").bind(2).value(theta, 1.0)
    assert SLOPE("oscar").bind(2).value(theta, 1.0) != SLOPE("bh").bind(2).value(theta, 1.0)
    given = np.array([2.0, 1.0])
    bound = SLOPE(given).bind(2)
    given[:] = 7.0  # the bound copy keeps its own
    assert bound.value(np.array([1.0, 1.0]), 1.0) == 3.0


@exact
@given(vectors(6, 2))
def test_weights_attain_the_value_and_lie_below_it(drawn):
    weights, theta, other = drawn
    bound = SLOPE(weights).bind(theta.size)
    at = bound.weights(theta, 0.7, gradient=other)
    np.testing.assert_array_equal(np.sort(at), np.sort(weights))
    assert 0.7 * at @ np.abs(theta) == pytest.approx(bound.value(theta, 0.7), abs=1e-12)
    assert 0.7 * at @ np.abs(other) <= bound.value(other, 0.7) + 1e-12


def test_a_gradient_breaks_ties_of_the_weights():
    bound = SLOPE([3.0, 2.0, 1.0]).bind(3)
    np.testing.assert_array_equal(bound.weights(np.array([1.0, -1.0, 5.0]), 1.0), [2.0, 1.0, 3.0])
    tied = bound.weights(np.array([1.0, -1.0, 5.0]), 1.0, gradient=np.array([0.1, -4.0, 0.0]))
    np.testing.assert_array_equal(tied, [1.0, 2.0, 3.0])


@pytest.mark.parametrize("h", [0, 1, 3, 6])
def test_the_mirror_image_of_the_trimmed_penalty(h):
    # Over S = {0 <= w <= 1, sum w = p - h}: SLOPE is the maximum, the trimmed penalty the minimum.
    theta = np.array([1.0, -3.0, 0.5, 0.5, 0.0, 2.0])
    vertices = [np.isin(np.arange(6), ones) @ np.abs(theta) for ones in combinations(range(6), 6 - h)]
    slope, trimmed = SLOPE([1.0] * (6 - h) + [0.0] * h).bind(6), TrimmedL1(h).bind(6)
    assert slope.value(theta, 0.4) == pytest.approx(0.4 * max(vertices))
    assert trimmed.value(theta, 0.4) == pytest.approx(0.4 * min(vertices))


@exact
@given(vectors(8, 1), st.sampled_from([0.0, 0.4, 3.0]), st.sampled_from([0.1, 1.0, 30.0]))
def test_prox_with_alpha_step_and_positivity(drawn, alpha, step):
    weights, z = drawn
    bound = SLOPE(weights).bind(z.size)
    np.testing.assert_array_equal(bound.prox(z, alpha, step), sorted_l1_prox(z, step * alpha * weights))
    signs = np.zeros(z.size), np.full(z.size, np.inf)
    x = bound.prox(z, alpha, step, signs)
    assert np.all(x >= 0)
    # Optimal over x >= 0: the distance of 0 from (x - z)/step + subdifferential + normal cone is 0.
    T = bound.stationarity(x, None, (x - z) / step, alpha, signs)
    assert np.sqrt(T) <= 1e-12 * (10 / step + alpha * weights.sum())


@pytest.mark.parametrize("positive", [False, True])
def test_equal_weights_make_the_penalty_l1(positive):
    theta, gradient = np.array([1.0, 0.0, 3.0, 0.0, 1.0]), np.array([-0.9, 2.0, -0.2, -1.5, 0.3])
    slope, l1 = SLOPE(np.ones(5)).bind(5), L1().bind(5)
    signs = (np.zeros(5), np.full(5, np.inf)) if positive else None
    expected = l1.stationarity(theta, np.ones(5), gradient, 0.7, signs)
    assert expected > 0.1
    assert slope.stationarity(theta, np.ones(5), gradient, 0.7, signs) == pytest.approx(expected)


def test_an_intercept_is_not_penalized():
    theta, weights = np.array([1.0, -2.0, 0.0]), [1.0, 0.5, 0.25]
    bound = SLOPE(weights).bind(3)
    longer = bound.extended()
    with_constant = np.append(theta, 50.0)
    assert longer.value(with_constant, 2.0) == bound.value(theta, 2.0) == 5.0
    np.testing.assert_array_equal(longer.weights(with_constant, 1.0), [0.5, 1.0, 0.25, 0.0])
    np.testing.assert_array_equal(
        longer.prox(with_constant, 0.5), np.append(bound.prox(theta, 0.5), with_constant[-1])
    )
    gradient = np.array([-1.0, 3.0, 0.75])
    assert longer.stationarity(with_constant, None, np.append(gradient, 0.5), 2.0) == pytest.approx(
        bound.stationarity(theta, None, gradient, 2.0) + 0.25
    )
    constrained = np.array([0.0, 0.0, 0.0, -np.inf]), np.full(4, np.inf)  # the intercept may fall below 0
    at_zero = np.array([1.0, 2.0, 0.0, 0.0])
    assert longer.stationarity(at_zero, None, np.array([-1.0, -2.0, 9.0, 0.5]), 2.0, constrained) == 0.25


@pytest.mark.parametrize("bad", [{"penalty_factor": np.ones(3)}, {"groups": [0, 0, 1]}])
def test_factors_and_groups_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        SLOPE(**bad).bind(3)


def test_several_outputs_are_refused():
    with pytest.raises(ValueError, match="one output"):
        SLOPE().bind(3, n_outputs=2)


def test_scales_are_refused():
    with pytest.raises(ValueError, match="solver='prox'"):
        SLOPE().bind(3).rescaled(np.ones(3))


# -- fits ----------------------------------------------------------------------------------------------------


def correlated(n=80, p=30, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) + rng.standard_normal((n, 1))
    return X, 1.5 + X[:, [2, 7, 11]] @ [2.0, -1.5, 1.0] + rng.standard_normal(n)


FIT = {"solver": "prox", "solver_options": {"accelerate": True}, "tol": 1e-11, "max_iter": 50_000}


@pytest.mark.parametrize(("kind", "q"), [("bh", 0.1), ("oscar", 0.3)])
@pytest.mark.parametrize("alpha", [0.1, 0.3, 1.0])
def test_the_fit_is_that_of_sortedl1(kind, q, alpha):
    X, y = correlated()
    weights = slope_weights(30, kind, q)
    ours = MEstimator(penalty=SLOPE(kind, q), alpha=alpha, **FIT).fit(X, y)
    theirs = Slope(lam=weights, alpha=alpha, tol=1e-12).fit(X, y)
    assert ours.result_.converged
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-6)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=1e-6)
    size = np.abs(ours.coef_[ours.coef_ != 0])
    assert 0 < np.unique(size).size <= size.size < 30


def test_a_fit_has_clusters_and_its_certificate_holds_in_other_units():
    X, y = correlated()
    X = X * np.linspace(0.5, 3.0, 30)
    penalty = SLOPE("oscar", q=2.0)
    model = MEstimator(penalty=penalty, alpha=0.08, standardize=True, **FIT).fit(X, y)
    size = np.abs(model.result_.theta)
    assert np.unique(size[size > 0]).size < np.count_nonzero(size)
    point = {"penalty": penalty, "alpha": 0.08, "intercept": model.intercept_, "fit_intercept": True}
    assert stationarity(X, y, model.coef_, standardize=True, **point) < 1e-18
    assert stationarity(X, y, model.coef_ * 1.01, standardize=True, **point) > 1e-6


def test_a_positive_fit():
    X, y = correlated()
    model = MEstimator(penalty=SLOPE(), alpha=0.2, positive=True, **FIT).fit(X, y)
    assert (model.coef_ >= 0).all()
    assert 0 < np.count_nonzero(model.coef_) < 30
    assert model.stationarity_ < 1e-18


def test_mm_is_refused_and_prox_is_named():
    X, y = correlated()
    with pytest.raises(ValueError, match="prox"):
        MEstimator(penalty=SLOPE(), alpha=0.2, solver="mm").fit(X, y)


def test_the_default_solver_of_an_estimator_is_one_that_can_solve_it():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 6))
    y = X[:, 0] + 0.1 * rng.standard_normal(40)
    model = MEstimator(penalty=SLOPE(), alpha=0.1).fit(X, y)
    np.testing.assert_array_equal(
        model.coef_, MEstimator(penalty=SLOPE(), alpha=0.1, solver="prox").fit(X, y).coef_
    )
    assert solve(X, y, penalty="slope", alpha=0.1).converged


@pytest.mark.parametrize(("penalty", "name"), [(MCP(), "gamma"), (SLOPE(), "q"), (TrimmedL1(1), "h")])
def test_a_grid_search_varies_the_parameters_of_a_penalty(penalty, name):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 6))
    y = X[:, 0] + 0.1 * rng.standard_normal(40)
    grid = {f"penalty__{name}": [2, 3] if name != "q" else [0.1, 0.2]}
    found = GridSearchCV(MEstimator(penalty=penalty, alpha=0.1), grid, cv=2).fit(X, y)
    assert set(found.cv_results_[f"param_penalty__{name}"]) == set(grid[f"penalty__{name}"])
    with pytest.raises(ValueError, match="has no parameter 'nothing'"):
        penalty.set_params(nothing=1)
