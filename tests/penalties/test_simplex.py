"""The capped simplex: projection, vertices, and the distance from optimality of the weights."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import lsq_linear

from trimreg.penalties import distance_to_optimal_weights, largest, project_capped_simplex

exact = settings(derandomize=True, deadline=None, max_examples=50)


def project_by_breakpoints(y, total):
    """The projection by sorting: the sum of clip(y - g, 0, 1) is linear between sorted breakpoints."""
    points = np.sort(np.concatenate([y, y - 1]))
    rising, cumulative = np.sort(y), np.concatenate([[0.0], np.cumsum(np.sort(y))])

    def mass(g):
        above_one = y.size - np.searchsorted(rising, g + 1)
        first, last = np.searchsorted(rising, g), np.searchsorted(rising, g + 1)
        return above_one + cumulative[last] - cumulative[first] - (last - first) * g

    low, high = 0, points.size - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if mass(points[middle]) >= total else (low, middle)
    a, b = mass(points[low]), mass(points[high])
    g = points[low] if a == b else points[low] + (a - total) * (points[high] - points[low]) / (a - b)
    return np.clip(y - g, 0, 1)


def assert_projection(y, total, w, tol=1e-9):
    """Feasible, and no vertex of the capped simplex is on the far side: <y - w, vertex - w> <= 0."""
    assert np.all(w >= 0)
    assert np.all(w <= 1)
    assert w.sum() == pytest.approx(total, abs=tol * max(1, y.size))
    normal = y - w
    farthest = np.sort(normal)[y.size - total :].sum()
    assert farthest <= normal @ w + tol * max(1.0, np.abs(y).sum())


@exact
@given(
    y=st.lists(st.one_of(st.floats(-3, 3), st.sampled_from([0.0, 0.5, 1.0, 2.0])), min_size=1, max_size=12),
    data=st.data(),
)
def test_projection_of_short_vectors(y, data):
    y = np.array(y)
    total = data.draw(st.integers(0, y.size))
    w = project_capped_simplex(y, total)
    assert_projection(y, total, w)
    np.testing.assert_allclose(w, project_by_breakpoints(y, total), atol=1e-9)


@pytest.mark.parametrize(
    ("p", "scale", "free"),
    [
        (1_000, 1e-6, 0.1),
        (1_000, 1.0, 0.9),
        (1_000, 1e4, 1),
        (10**5, 1e-6, 1),
        (10**5, 1.0, 0.1),
        (10**5, 1e4, 0.9),
    ],
)
def test_projection_of_long_vectors(p, scale, free):
    y = np.random.default_rng(p).standard_normal(p) * scale
    total = p - (free if isinstance(free, int) else int(free * p))
    w = project_capped_simplex(y, total)
    assert_projection(y, total, w)
    np.testing.assert_allclose(w, project_by_breakpoints(y, total), atol=1e-7)


@pytest.mark.parametrize(("p", "trials"), [(5, 10), (25, 300), (100_000, 3)])
@pytest.mark.parametrize("gap", [0.0, 1e-16, 1e-13, 1e-3])
def test_projection_of_a_vertex_is_exactly_the_vertex(p, trials, gap):
    # Exactly: a weight of 1 - 1e-16 is an inner one to the optimality conditions.
    rng = np.random.default_rng(p)
    for shift in np.r_[0.0, 10 * rng.standard_normal(trials)]:
        vertex = (rng.permutation(p) % 3 > 0).astype(float)
        y = vertex + gap * (vertex - 0.5) * rng.random(p) + shift
        np.testing.assert_array_equal(project_capped_simplex(y, int(vertex.sum())), vertex)


@pytest.mark.parametrize("total", [-1, 4, np.nan])
def test_projection_on_an_empty_set_is_refused(total):
    with pytest.raises(ValueError, match="total"):
        project_capped_simplex(np.zeros(3), total)


@exact
@given(
    rows=st.lists(st.tuples(st.sampled_from([0.0, 1.0, 2.0, 3.5]), st.sampled_from([0.0, 1.0])), max_size=12),
    data=st.data(),
    broken=st.booleans(),
)
def test_largest_breaks_ties_by_the_second_key_then_the_index(rows, data, broken):
    magnitude, tie = np.array([r[0] for r in rows]), np.array([r[1] for r in rows])
    count = data.draw(st.integers(0, len(rows)))
    second = tie if broken else np.zeros(len(rows))
    expected = sorted(range(len(rows)), key=lambda j: (-magnitude[j], -second[j], j))[:count]
    assert largest(magnitude, count, tie if broken else None).tolist() == sorted(expected)


def distance_by_least_squares(magnitude, weights):
    """min ||r + mu 1 + s||^2 over mu and s in the normal cone of the box, as a bounded least squares."""
    p = magnitude.size
    bounded = np.flatnonzero((weights == 0) | (weights == 1))
    A = np.hstack([np.ones((p, 1)), np.eye(p)[:, bounded]])
    low = np.concatenate([[-np.inf], np.where(weights[bounded] == 0, -np.inf, 0.0)])
    high = np.concatenate([[np.inf], np.where(weights[bounded] == 0, 0.0, np.inf)])
    return 2 * lsq_linear(A, -magnitude, bounds=(low, high), method="bvls", tol=1e-14).cost


@exact
@given(
    rows=st.lists(
        st.tuples(
            st.one_of(st.sampled_from([0.0, 1.0, 2.0]), st.floats(0, 5)),
            st.sampled_from([0.0, 0.3, 0.8, 1.0]),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_distance_equals_a_bounded_least_squares(rows):
    magnitude, weights = np.array([r[0] for r in rows]), np.array([r[1] for r in rows])
    expected = distance_by_least_squares(magnitude, weights)
    assert distance_to_optimal_weights(magnitude, weights) == pytest.approx(expected, rel=1e-8, abs=1e-10)


@pytest.mark.parametrize("p", [50, 2000])
def test_distance_equals_the_least_over_a_grid_of_multipliers(p):
    rng = np.random.default_rng(p)
    magnitude = np.abs(rng.standard_normal(p))
    weights = rng.choice([0.0, 1.0, 0.5], p)
    t = np.linspace(magnitude.min(), magnitude.max(), 20_001)
    total = np.zeros_like(t)
    for r, w in zip(magnitude, weights, strict=True):
        left = r - t
        total += (np.minimum(left, 0) if w == 0 else np.maximum(left, 0) if w == 1 else left) ** 2
    found = distance_to_optimal_weights(magnitude, weights)
    assert found <= total.min() + 1e-12
    assert found == pytest.approx(total.min(), rel=1e-5)


def test_distance_without_weights_is_zero():
    assert distance_to_optimal_weights(np.empty(0), np.empty(0)) == 0
