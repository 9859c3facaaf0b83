"""The capped simplex for many rows at once, in NumPy and PyTorch, against one row at a time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimreg.penalties import distance_to_optimal_weights, project_capped_simplex, simplex
from trimreg.penalties.simplex import newton_shift, project_rows, sorted_shift

exact = settings(derandomize=True, deadline=None, max_examples=50)


def kinds(*arrays):
    """The arrays in NumPy, and in PyTorch where it is installed; each with its module."""
    yield (*arrays, np)
    try:
        import torch
    except ImportError:
        return
    yield (*(torch.from_numpy(np.array(array)) for array in arrays), torch)


@st.composite
def rows(draw):
    """Rows with ties, zeros and several scales, and a total for each."""
    seed, count, p = draw(st.integers(0, 10**6)), draw(st.integers(1, 4)), draw(st.integers(1, 12))
    rng = np.random.default_rng(seed)
    y = rng.standard_normal((count, p)) * 10.0 ** draw(st.integers(-8, 6))
    shape = draw(st.sampled_from(["plain", "ties", "equal", "box"]))
    if shape == "ties":
        y = np.round(y, 1)
    elif shape == "equal":
        y[:] = y[:, :1]
    elif shape == "box":
        y = np.clip(y, 0.0, 1.0)
    return y, rng.integers(0, p + 1, size=(count, 1)).astype(float)


@exact
@given(rows())
def test_rows_are_projected_as_one_is(case):
    y, total = case
    each = np.array([project_capped_simplex(row, s) for row, (s,) in zip(y, total, strict=True)])
    close = 4e-15 * max(1.0, np.abs(y).max())
    for values, totals, xp in kinds(y, total):
        np.testing.assert_allclose(np.asarray(project_rows(values, totals)), each, rtol=0, atol=close)
        by_sort = xp.clip(values - sorted_shift(values, totals), 0.0, 1.0)
        np.testing.assert_allclose(np.asarray(by_sort), each, rtol=0, atol=close)


@exact
@given(rows())
def test_the_weights_sum_to_their_totals(case):
    y, total = case
    w = project_rows(y, total)
    assert ((w >= 0) & (w <= 1)).all()
    np.testing.assert_allclose(w.sum(axis=1), total[:, 0], rtol=0, atol=1e-13 * max(1.0, np.abs(y).max()))


def test_all_and_none_are_exact():
    y = np.random.default_rng(0).standard_normal((2, 9))
    np.testing.assert_array_equal(project_rows(y, np.array([[0.0], [9.0]])), [[0.0] * 9, [1.0] * 9])


def test_weights_next_to_one_are_one():
    """An inner weight has another optimality condition than one at the bound."""
    w = project_rows(np.array([[1.0 - 1e-16, 1.0, 3e-17, 0.0]]), 2.0)
    np.testing.assert_array_equal(w, [[1.0, 1.0, 0.0, 0.0]])


def test_a_small_step_from_a_feasible_point_needs_no_sort(monkeypatch):
    monkeypatch.setattr(simplex, "_NEWTON_STEPS", 3)
    rng = np.random.default_rng(1)
    w = project_rows(rng.standard_normal((5, 40)), 30.0)
    assert newton_shift(w - 1e-3 * rng.random((5, 40)), 30.0) is not None


def test_where_newton_does_not_end_the_sort_takes_over(monkeypatch):
    y = np.random.default_rng(2).standard_normal((3, 30)) * 100
    expected = project_rows(y, 7.0)
    monkeypatch.setattr(simplex, "_NEWTON_STEPS", 1)
    assert newton_shift(y, 7.0) is None
    np.testing.assert_allclose(project_rows(y, 7.0), expected, atol=1e-13)


def test_a_device_is_never_looked_at(monkeypatch):
    """There g is found by the sort; here a host stands for the device."""
    monkeypatch.setattr(simplex, "_may_look", lambda y: False)
    monkeypatch.setattr(simplex, "newton_shift", None)
    assert project_rows(np.array([[3.0, 0.5, 0.25]]), 1.0).tolist() == [[1.0, 0.0, 0.0]]


@exact
@given(rows(), st.booleans())
def test_distances_are_those_of_single_rows(case, shuffled):
    y, total = case
    magnitude, weights = np.abs(y), project_rows(y, total)
    if shuffled:
        weights = weights[:, ::-1].copy()
    each = [distance_to_optimal_weights(r, w) for r, w in zip(magnitude, weights, strict=True)]
    close = 1e-14 * max(1e-300, np.max(np.sum(magnitude**2, axis=1)))
    for r, w, _ in kinds(magnitude, weights):
        np.testing.assert_allclose(np.asarray(distance_to_optimal_weights(r, w)), each, rtol=0, atol=close)


def test_optimal_weights_have_no_distance():
    r = np.array([[5.0, 3.0, 1.0, 0.0], [2.0, 2.0, 2.0, 1.0]])
    w = np.array([[0.0, 0.0, 1.0, 1.0], [0.5, 0.5, 0.0, 1.0]])
    np.testing.assert_array_equal(distance_to_optimal_weights(r, w), [0.0, 0.0])
    assert distance_to_optimal_weights(r, 1.0 - w)[0] == pytest.approx(14.75, abs=1e-12)
