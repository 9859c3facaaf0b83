"""is_local_minimum against what F does around a point."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from trimreg.diagnostics import is_local_minimum
from trimreg.losses import Loss
from trimreg.penalties import L1, TrimmedL1

STEPS = 10.0 ** np.arange(-2, -7.5, -0.5)


class Poisson(Loss):
    """The Poisson loss, whose curvature has no bound."""

    name = "test-poisson"
    constant_curvature = False
    curvature_bound = np.inf

    def value(self, eta, y, d):
        return float(d @ (np.exp(eta) - y * eta))

    def gradient(self, eta, y, d):
        return d * (np.exp(eta) - y)

    def curvature(self, eta, y, d):
        return d * np.exp(eta)


def objective(X, y, *, h, alpha, factor):
    """F as a function of theta, written out."""
    counted = (factor > 0) & np.isfinite(factor)

    def F(theta):
        r = np.sort((factor * np.abs(np.where(counted, theta, 0.0)))[counted])[::-1]
        return 0.5 * np.mean((y - X @ theta) ** 2) + alpha * r[h:].sum()

    return F


def falls_along(F, theta, j, positive):
    """Whether F falls by moving coordinate j a little, by more than rounding."""
    base = F(theta)
    for step in STEPS:
        for sign in (-1.0, 1.0):
            moved = theta.copy()
            moved[j] += sign * step
            if positive and moved[j] < 0:
                continue
            if F(moved) < base - 1e-14 * (1 + base):
                return True
    return False


def falls_anywhere(F, theta, rng, positive, radius, count=200):
    """Whether one of many small random moves, sparse ones and along coordinates too, lowers F."""
    base = F(theta)
    for _ in range(count):
        direction = rng.standard_normal(theta.size) * (rng.random(theta.size) < rng.uniform(0.2, 1.0))
        moved = theta + radius * rng.uniform(0.01, 1.0) * direction / (np.linalg.norm(direction) or 1.0)
        if positive:
            moved = np.maximum(moved, 0.0)
        if F(moved) < base - 1e-13 * (1 + base):
            return True
    return False


def minimize_over(gram, moment, t, positive, sweeps=300):
    """Coordinate descent for ``theta' G theta / 2 - m'theta + sum t |theta|``."""
    theta = np.zeros(t.size)
    for _ in range(sweeps):
        for j in range(t.size):
            z = moment[j] - gram[j] @ theta + gram[j, j] * theta[j]
            z = max(z, 0.0) if positive else z
            theta[j] = np.sign(z) * max(abs(z) - t[j], 0.0) / gram[j, j]
    return theta


@st.composite
def situations(draw):
    """A problem, and a point that is a minimum over some support or something rougher."""
    seed = draw(st.integers(0, 10_000))
    rng = np.random.default_rng(seed)
    p, h = 4, draw(st.integers(0, 4))
    X = rng.standard_normal((10, p))
    y = X @ rng.choice([0.0, 1.0, -1.0, 3.0], size=p) + 0.3 * rng.standard_normal(10)
    factor = np.array(draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.0, 2.0]), min_size=p, max_size=p)))
    alpha = draw(st.sampled_from([0.0, 0.05, 0.3, 1.0, 5.0]))
    positive = draw(st.booleans())
    kind = draw(st.sampled_from(["solved", "solved", "solved", "grid", "rounded", "tied"]))
    t = alpha * factor
    regular = np.flatnonzero(factor > 0)
    n_free = min(h, regular.size)
    if n_free:
        t[rng.choice(regular, size=n_free, replace=False)] = 0.0
    theta = minimize_over(X.T @ X / 10, X.T @ y / 10, t, positive)
    if kind == "rounded":
        theta = np.round(theta, 1)
    elif kind == "grid":
        theta = rng.choice([-1.0, 0.0, 0.0, 1.0], size=p)
    elif kind == "tied":
        theta = np.where(factor > 0, np.sign(theta) / np.where(factor > 0, factor, 1.0), theta)
    if positive:
        theta = np.maximum(theta, 0.0)
    return X, y, theta, h, n_free, alpha, factor, positive, rng


@settings(max_examples=100, derandomize=True, deadline=None)
@given(situations())
def test_says_what_F_does(situation):
    X, y, theta, h, n_free, alpha, factor, positive, rng = situation
    check = is_local_minimum(
        X, y, theta, penalty=TrimmedL1(h, penalty_factor=factor), alpha=alpha, positive=positive
    )
    F = objective(X, y, h=n_free, alpha=alpha, factor=factor)
    if check:
        assert check.coordinate is None
        assert check.violation <= 1e-6
        r = np.sort(factor[factor > 0] * np.abs(theta[factor > 0]))[::-1]
        gap = r[n_free - 1] - r[n_free] if 0 < n_free < r.size and r[n_free - 1] > 0 else 1.0
        # inside the region where no other support takes over
        radius = min(1e-2, 0.2 * gap / max(factor.max(), 1.0))
        assert not falls_anywhere(F, theta, rng, positive, radius)
    else:
        assert check.violation > 1e-6
        assert falls_along(F, theta, check.coordinate, positive), check


@pytest.mark.parametrize("alpha", [0.02, 0.2, 2.0])
@pytest.mark.parametrize("h", [0, 1, 2, 3, 4])
def test_finds_exactly_the_minima_of_an_enumeration(problem, oracle, h, alpha):
    factor, d = np.array([1.0, 2.0, 0.5, 0.0, 1.0]), np.full(12, 1 / 12)
    penalty = TrimmedL1(h, penalty_factor=factor)
    counted = np.flatnonzero(factor > 0)
    held = 0
    for seed in range(3):
        X, y = problem(seed)
        lowest = np.inf, None
        for S, theta in oracle.every_stationary_set(X, y, h=h, alpha=alpha, factor=factor, d=d):
            r = factor * np.abs(theta)
            others = np.setdiff1d(counted, S)
            top = r[others].max(initial=0.0) < r[list(S)].min(initial=np.inf)
            check = is_local_minimum(X, y, theta, penalty=penalty, alpha=alpha)
            assert bool(check) == top, check
            held += top
            value = oracle.objective(X, y, theta, h=h, alpha=alpha, factor=factor, d=d)
            lowest = min(lowest, (value, tuple(theta)))
        assert is_local_minimum(X, y, np.array(lowest[1]), penalty=penalty, alpha=alpha)  # the global one
    assert held


class TestTies:
    X = 2.0 * np.eye(4)  # the gradient is theta - y / 2
    y = 2.0 * np.array([3.0, 3.0, 1.0, 0.0])

    def test_at_a_positive_level_never(self):
        # Both coordinates are at their unpenalized best, but one of them must pay.
        theta = np.array([3.0, 3.0, 0.5, 0.0])
        check = is_local_minimum(self.X, self.y, theta, penalty=TrimmedL1(1), alpha=0.5)
        assert not check
        assert check.coordinate == 0
        assert "ties" in check.reason
        assert is_local_minimum(self.X, self.y, [3.0, 2.5, 0.5, 0.0], penalty=TrimmedL1(1), alpha=0.5)

    def test_within_tol_is_a_tie(self):
        X, alpha = self.X, 1e-3
        y = 2.0 * np.array([3.0, 3.0 + alpha - 1e-7, 0.0, 0.0])
        theta = np.array([3.0, 3.0 - 1e-7, 0.0, 0.0])  # all conditions hold for S = {0}, by a gap of 1e-7
        assert "ties" in is_local_minimum(X, y, theta, penalty=TrimmedL1(1), alpha=alpha).reason
        assert is_local_minimum(X, y, theta, penalty=TrimmedL1(1), alpha=alpha, tol=1e-9)

    def test_without_penalty_ties_do_not_matter(self):
        theta = self.y / 2
        assert is_local_minimum(self.X, self.y, theta, penalty=TrimmedL1(1), alpha=0.0)

    def test_inside_the_free_set_ties_do_not_matter(self):
        theta = np.array([3.0, 3.0, 0.0, 0.0])
        assert is_local_minimum(self.X, self.y, theta, penalty=TrimmedL1(2), alpha=1.0)

    def test_at_zero_every_gradient_must_vanish(self):
        theta = np.array([3.0, 3.0, 0.0, 0.0])
        check = is_local_minimum(self.X, self.y, theta, penalty=TrimmedL1(3), alpha=9.0)
        assert not check
        assert check.coordinate == 2
        assert "fewer than h" in check.reason
        theta = np.array([3.0, 3.0, 1.0, 0.0])
        assert is_local_minimum(self.X, self.y, theta, penalty=TrimmedL1(4), alpha=9.0)
        y = self.y - [0, 0, 6.0, 0]  # now feature 2 would enter with a negative sign
        theta = np.array([3.0, 3.0, 0.0, 0.0])
        assert is_local_minimum(self.X, y, theta, penalty=TrimmedL1(3), alpha=9.0, positive=True)
        assert not is_local_minimum(self.X, y, theta, penalty=TrimmedL1(3), alpha=9.0)


class TestReasons:
    X = 2.0 * np.eye(3)
    y = 2.0 * np.array([3.0, 1.0, 0.5])

    @pytest.mark.parametrize(
        ("theta", "options", "coordinate", "word"),
        [
            ([2.0, 0.0, 0.0], {}, 0, "free"),
            ([3.0, 0.0, 0.0], {"alpha": 0.7}, 1, "zero and penalized"),
            ([3.0, 0.9, 0.0], {"alpha": 0.7}, 1, "nonzero and penalized"),
            ([3.0, 0.0, -0.1], {"positive": True}, 2, "beyond a bound"),
            ([3.0, 0.0, 0.0], {"factor": [1.0, 0.0, 1.0]}, 1, "never penalized"),
            ([3.0, 0.0, 0.5], {"factor": [1.0, 1.0, np.inf]}, 2, "excluded"),
        ],
    )
    def test_name_the_feature(self, theta, options, coordinate, word):
        options = {"alpha": 2.0, "factor": [1.0, 1.0, 1.0]} | options
        penalty = TrimmedL1(1, penalty_factor=options.pop("factor"))
        check = is_local_minimum(self.X, self.y, theta, penalty=penalty, **options)
        assert (bool(check), check.coordinate) == (False, coordinate)
        assert word in check.reason

    def test_negative_however_stationary(self):
        y = self.y * [1.0, 1.0, -9.0]
        theta = [0.0, 0.0, -4.5]
        assert is_local_minimum(self.X, y, theta, penalty=TrimmedL1(1), alpha=5.0)
        check = is_local_minimum(self.X, y, theta, penalty=TrimmedL1(1), alpha=5.0, positive=True)
        assert (check.holds, check.coordinate, check.violation) == (False, 2, np.inf)

    def test_excluded_features_are_not_asked(self):
        penalty = TrimmedL1(1, penalty_factor=[1.0, np.inf, 1.0])
        assert is_local_minimum(self.X, self.y, [3.0, 0.0, 0.0], penalty=penalty, alpha=0.7)

    def test_intercept(self, problem):
        X, y = problem(0)
        solution = np.linalg.lstsq(np.column_stack([X, np.ones(12)]), y, rcond=None)[0]
        options = {"penalty": TrimmedL1(5), "alpha": 1.0, "fit_intercept": True}
        assert is_local_minimum(X, y, solution[:5], intercept=solution[5], **options)
        check = is_local_minimum(X, y, solution[:5], intercept=solution[5] + 1e-3, **options)
        assert not check
        assert check.coordinate is None
        assert "intercept" in check.reason


@pytest.mark.parametrize("standardize", [False, True])
def test_scale_of_X_does_not_matter(problem, oracle, standardize):
    X, y = problem(1)
    units = np.array([1e-5, 1.0, 1e6, 30.0, 1.0])
    d = np.full(12, 1 / 12)
    scale = np.sqrt(np.mean(X**2, axis=0)) if standardize else np.ones(5)
    minima = oracle.every_stationary_set(X / scale, y, h=2, alpha=0.2, factor=np.ones(5), d=d)
    factor = np.ones(5) if standardize else units
    for _, theta in minima:
        first = is_local_minimum(
            X, y, theta / scale, penalty=TrimmedL1(2), alpha=0.2, standardize=standardize
        )
        second = is_local_minimum(
            X * units,
            y,
            theta / scale / units,
            penalty=TrimmedL1(2, penalty_factor=factor),
            alpha=0.2,
            standardize=standardize,
        )
        assert (first.holds, first.coordinate) == (second.holds, second.coordinate)


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kinds_of_X(problem, convert, dtype):
    X, y = problem(2)
    X = X.astype(dtype)
    S = [1, 3]
    exact = np.linalg.lstsq(X[:, S].astype(float), y, rcond=None)[0]
    coef = np.zeros(5, dtype=dtype)
    coef[S] = exact
    assert is_local_minimum(convert(X), y, coef, penalty=TrimmedL1(2), alpha=1e3)
    assert not is_local_minimum(convert(X), y, coef * 1.001, penalty=TrimmedL1(2), alpha=1e3)


def test_another_loss():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    y = rng.poisson(np.exp(1.0 + X[:, 0])).astype(float)
    design = np.column_stack([X[:, 0], np.ones(40)])
    beta = np.zeros(2)
    for _ in range(30):  # Newton on the support and the intercept
        mu = np.exp(design @ beta)
        beta -= np.linalg.solve(design.T @ (mu[:, None] * design), design.T @ (mu - y))
    options = {"penalty": TrimmedL1(1), "loss": Poisson(), "fit_intercept": True}
    assert is_local_minimum(X, y, [beta[0], 0.0, 0.0], intercept=beta[1], alpha=5.0, **options)
    check = is_local_minimum(X, y, [beta[0], 0.0, 0.0], intercept=beta[1], alpha=1e-9, **options)
    assert check.coordinate in (1, 2)
    assert not is_local_minimum(X, y, [beta[0], 0.0, 0.0], intercept=beta[1] + 0.01, alpha=5.0, **options)


def test_a_target_that_X_does_not_explain():
    X = np.array([[1.0, 1.0], [-1.0, 1.0], [0.1, -2.0], [-0.1, 0.0]])
    y = np.full(4, 3.3)
    options = {"penalty": TrimmedL1(1), "alpha": 0.5, "fit_intercept": True}
    assert is_local_minimum(X, y, np.zeros(2), intercept=3.3, **options)
    assert is_local_minimum(X, np.zeros(4), np.zeros(2), **options)
    assert not is_local_minimum(X, y, np.array([0.1, 0.0]), intercept=3.3, **options)


def test_remainders_of_a_linear_solve_count_as_zero():
    X, y = 2.0 * np.eye(4), np.array([4.0, 1.0, 0.0, 0.0])
    assert is_local_minimum(X, y, [2.0, 1e-17, 0.0, -1e-16], penalty=TrimmedL1(1), alpha=0.75)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"penalty": L1()}, "penalty"),
        ({"penalty": 3}, "penalty"),
        ({"tol": -1.0}, "tol"),
        ({"tol": "a"}, "tol"),
    ],
)
def test_bad_arguments_are_named(problem, change, name):
    X, y = problem(0)
    options = {"penalty": TrimmedL1(2), "alpha": 1.0} | change
    with pytest.raises(ValueError, match=name):
        is_local_minimum(X, y, np.zeros(5), **options)
