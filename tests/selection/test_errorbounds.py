"""The bounds against published numbers, linear programs and distributions drawn at random."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog, minimize

from trimreg.selection import error_bound
from trimreg.selection.errorbounds import ASSUMPTIONS, least_count, least_threshold, r_concave_tail

# What the R package stabs prints (tests/regtest-inference.Rout.save) for p = 100, threshold 0.6, 50 pairs.
PUBLISHED = {
    "none": [0.05, 0.2, 0.45, 0.8, 1.25, 1.8, 2.45, 3.2, 4.05, 5.0],
    "unimodal": [
        0.02631579, 0.1052632, 0.2368421, 0.4210526, 0.6578947, 0.9473684, 1.289474, 1.684211, 2.131579,
        2.631579,
    ],
    "r-concave": [
        0.006971364, 0.03342845, 0.08691176, 0.1637231, 0.2605329, 0.3820466, 0.5295188, 0.7042719, 0.9077127,
        1.141338,
    ],
}  # fmt: skip


@pytest.mark.parametrize("assumption", ASSUMPTIONS)
def test_published_bounds(assumption):
    found = np.array([error_bound(q, 100, 0.6, 50, assumption) for q in range(1, 11)])
    published = np.array(PUBLISHED[assumption])
    # stabs stops its search for a maximum early: 2e-5 is 2e-7 of the 100 features
    assert (found >= published * (1 - 1e-6)).all()
    np.testing.assert_allclose(found, published, rtol=5e-6, atol=2.5e-5)


@pytest.mark.parametrize(
    ("q", "p", "threshold", "assumption", "expected"),
    [
        (6, 200, 0.6, "r-concave", 0.174),
        (7, 200, 0.6, "r-concave", 0.248),
        (7, 200, 0.62, "r-concave", 0.196),
        (3, 10, 0.96, "unimodal", 0.176),
        (3, 10, 1.0, "none", 0.9),
    ],
)
def test_more_published_bounds(q, p, threshold, assumption, expected):
    assert round(error_bound(q, p, threshold, 50, assumption), 3) == expected


@pytest.mark.parametrize(("assumption", "expected"), [("r-concave", 0.62), ("unimodal", 0.81)])
def test_published_thresholds(assumption, expected):
    assert least_threshold(0.2, 7, 200, 50, assumption) == expected


def unimodal_tail_by_programs(mean, first, size):
    """The largest P(X >= first/size) of unimodal X of that mean at most: a linear program for each mode."""
    i = np.arange(size + 1)
    best = 0.0
    for mode in i:
        rises = np.diff(np.eye(size + 1), axis=0)  # f(i + 1) - f(i)
        rises[:mode] *= -1.0  # up to the mode f rises, after it f falls
        found = linprog(
            -(i >= first).astype(float),
            A_ub=np.vstack([rises, i / size]),
            b_ub=np.append(np.zeros(size), mean),
            A_eq=np.ones((1, size + 1)),
            b_eq=[1.0],
        )
        if found.status == 0:
            best = max(best, -found.fun)
    return best


@pytest.mark.parametrize("n_pairs", [4, 10])
@pytest.mark.parametrize("theta", [0.02, 0.2, 0.4, 0.57])
def test_the_unimodal_bound_holds_and_is_nearly_reached(n_pairs, theta):
    p = 1000
    for count in range(n_pairs + 1, 2 * n_pairs + 1):
        tau = count / (2 * n_pairs)
        exact = p * unimodal_tail_by_programs(theta**2, count - n_pairs, n_pairs)
        bound = error_bound(theta * p, p, tau, n_pairs, "unimodal")
        assert bound >= exact * (1 - 1e-7)
        if tau > 0.75:
            assert bound == pytest.approx(exact, rel=1e-6)


@given(
    q=st.just(0.0) | st.floats(1e-9, 100),
    count=st.integers(1, 12),
    n_pairs=st.sampled_from([1, 2, 5, 12]),
    data=st.data(),
)
@settings(derandomize=True, max_examples=40, deadline=None)
def test_more_assumptions_never_give_a_larger_bound(q, count, n_pairs, data):
    tau = (n_pairs + min(count, n_pairs)) / (2 * n_pairs)
    bounds = [error_bound(q, 100, tau, n_pairs, name) for name in ASSUMPTIONS]
    assert bounds[0] == pytest.approx(q**2 / (2 * tau - 1) / 100)
    assert bounds[0] * (1 + 1e-9) >= bounds[1]
    assert bounds[1] * (1 + 1e-9) >= bounds[2] >= 0
    more = data.draw(st.floats(q, 100))
    for bound, name in zip(bounds, ASSUMPTIONS, strict=True):
        assert error_bound(more, 100, tau, n_pairs, name) >= bound * (1 - 1e-9)
        assert isinstance(bound, float)


def random_r_concave(rng, size, r):
    """Probabilities f on 0, ..., size with f^r convex on an interval, of all shapes."""
    low = rng.integers(0, size) if rng.random() < 0.3 else 0
    high = rng.integers(low, size) + 1
    x = np.arange(low, high + 1.0)
    lines = rng.integers(1, 4)
    knots = rng.uniform(low, high, lines)
    slopes = rng.standard_normal(lines) * 10.0 ** rng.uniform(-3, 3)
    line = np.max(slopes * (x[:, None] - knots), axis=1)  # a maximum of lines is convex
    line += 10.0 ** rng.uniform(-4, 1) - line.min()
    f = np.zeros(size + 1)
    f[low : high + 1] = line ** (1 / r)
    return f / f.sum()


@pytest.mark.parametrize("r", [-0.25, -0.5])
def test_no_r_concave_variable_has_a_larger_tail(r):
    rng = np.random.default_rng(0)
    close = 0
    for _ in range(250):
        size = int(rng.integers(1, 25))
        f = random_r_concave(rng, size, r)
        mean = f @ np.arange(size + 1) / size
        first = rng.integers(1, size + 1)
        tail = f[first:].sum()
        bound = r_concave_tail(mean, first / size, size, r)
        assert tail <= bound * (1 + 1e-9)
        close += tail > 0.999 * bound
    assert close > 10  # it is reached, too


def tail_by_optimizer(mean, first, size, r, starts, rng):
    """The same maximum from the definition: over log f, subject to the mean and to convexity of f^r."""

    def probabilities(log_f):
        weights = np.exp(log_f - log_f.max())
        return weights / weights.sum()

    def room(log_f):
        return size * mean - probabilities(log_f) @ np.arange(log_f.size)

    def bends(log_f):
        power = np.exp(r * (log_f - log_f.max()))
        return np.diff(power, 2) / power[1:-1]

    best = 0.0
    for last in range(first, size + 1):
        limits = [room, bends] if last > 1 else [room]
        for _ in range(starts):
            end = minimize(
                lambda log_f: -probabilities(log_f)[first:].sum(),
                np.log(rng.exponential(size=last + 1).cumsum()) / r,
                constraints=[{"type": "ineq", "fun": limit} for limit in limits],
                method="SLSQP",
                options={"maxiter": 300, "ftol": 1e-12},
            ).x
            if all(np.min(limit(end)) > -1e-8 for limit in limits):
                best = max(best, probabilities(end)[first:].sum())
    return best


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # steps of the optimizer that go too far
@pytest.mark.parametrize(
    ("mean", "first", "size", "r"),
    [(0.1, 2, 3, -0.5), (0.3, 3, 4, -0.5), (0.5, 3, 5, -0.5), (0.1, 2, 4, -0.25), (0.7, 5, 6, -0.25)],
)
def test_r_concave_tail_is_what_an_optimizer_finds(mean, first, size, r):
    found = tail_by_optimizer(mean, first, size, r, 4, np.random.default_rng(0))
    assert r_concave_tail(mean, first / size, size, r) == pytest.approx(found, rel=1e-4)


@pytest.mark.parametrize("r", [-0.25, -0.5, -1.0])
def test_r_concave_tail_at_the_edges(r):
    for mean in (1e-12, 0.3, 0.999):
        assert r_concave_tail(mean, 1.0, 1, r) == pytest.approx(mean)  # a coin: Markov's inequality is sharp
    assert r_concave_tail(0.0, 0.5, 20, r) == 0.0
    assert r_concave_tail(0.5, 0.5, 20, r) == 1.0
    assert r_concave_tail(1.0, 0.5, 20, r) == 1.0
    assert r_concave_tail(0.5, 1.0, 20, r) == pytest.approx(1 / 21)  # uniform
    assert 0 < r_concave_tail(1e-9, 1.0, 100, r) < 1e-9
    assert r_concave_tail(0.7 / 3, 0.6, 10, r) == r_concave_tail(0.7 / 3, 0.5 + 1e-5, 10, r)


def test_r_concave_tail_falls_with_r():
    tails = [r_concave_tail(0.1, 0.6, 20, r) for r in (-0.1, -0.25, -0.5, -1.0, -5.0)]
    assert (np.diff(tails) > 0).all()
    assert tails[-1] < unimodal_tail_by_programs(0.1, 12, 20) < 0.1 / 0.6


@given(threshold=st.floats(0.5, 1, exclude_min=True), n_pairs=st.integers(1, 60))
@settings(derandomize=True, max_examples=100, deadline=None)
def test_least_count_is_the_first_share_that_suffices(threshold, n_pairs):
    shares = np.arange(n_pairs + 1, 2 * n_pairs + 1) / (2 * n_pairs)
    count = least_count(threshold, n_pairs)
    assert count == n_pairs + 1 + np.argmax(shares >= threshold - 1e-10)
    assert least_count(count / (2 * n_pairs), n_pairs) == count
    assert error_bound(1, 9, threshold, n_pairs, "none") == error_bound(
        1, 9, count / (2 * n_pairs), n_pairs, "none"
    )


@pytest.mark.parametrize("assumption", ASSUMPTIONS)
@pytest.mark.parametrize("max_false", [1e-6, 0.05, 1.0, 4.0, 50.0])
def test_least_threshold_is_that_of_a_search_through_all(assumption, max_false):
    n_pairs, p = 8, 60
    for q in (0.0, 0.5, 4, 20, 50):
        allowed = [
            tau
            for tau in np.arange(n_pairs + 1, 2 * n_pairs + 1) / (2 * n_pairs)
            if error_bound(q, p, tau, n_pairs, assumption) <= max_false
        ]
        assert least_threshold(max_false, q, p, n_pairs, assumption) == (allowed[0] if allowed else math.inf)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"q": -1}, "q must be"),
        ({"q": 11}, "q must be at most p = 10"),
        ({"p": 0}, "p must be"),
        ({"threshold": 0.5}, "threshold"),
        ({"threshold": 1.01}, "threshold"),
        ({"threshold": np.nan}, "threshold"),
        ({"n_pairs": 0}, "n_pairs"),
        ({"n_pairs": 2.5}, "n_pairs"),
        ({"assumption": "concave"}, "assumption"),
    ],
)
def test_bad_input_is_named(change, match):
    with pytest.raises(ValueError, match=match):
        error_bound(**{"q": 2, "p": 10, "threshold": 0.7, "n_pairs": 5, **change})


def test_bad_input_of_the_parts_is_named():
    with pytest.raises(ValueError, match="max_false"):
        least_threshold(0.0, 2, 10, 5)
    for t, r in ((0.0, -0.5), (1.5, -0.5), (0.5, 0.0)):
        with pytest.raises(ValueError, match="t must be"):
            r_concave_tail(0.1, t, 10, r)
