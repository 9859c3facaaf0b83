"""best_swap against refits of every pair."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import lsq_linear, minimize

from trimreg.diagnostics import Swap, best_swap, columns, exact_penalty_alpha, is_local_minimum
from trimreg.diagnostics.candidate import read_candidate
from trimreg.diagnostics.swap import _Model
from trimreg.losses import Loss
from trimreg.penalties import L1, TrimmedL1


def fit(Z, target, d, A):
    """Coefficients and half the weighted mean square of least squares on the columns A."""
    root = np.sqrt(d)
    theta = np.zeros(Z.shape[1])
    A = np.asarray(A, dtype=int)
    theta[A] = np.linalg.lstsq(root[:, None] * Z[:, A], root * target, rcond=None)[0]
    return theta, 0.5 * d @ (target - Z @ theta) ** 2


def random_problem(seed, n=40, p=12, k=4):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) @ (np.eye(p) + 0.5 * rng.standard_normal((p, p)))
    y = X[:, :k] @ rng.standard_normal(k) + rng.standard_normal(n)
    return rng, X, y


@pytest.mark.parametrize("distance", [1e-4, 1e-3])
def test_scores_of_near_copies_count_the_ridge(distance):
    """A copy of a selected column gains by sharing its ridge alone, which a difference of squares cancels."""
    l2 = 1e-6
    for seed in range(4):
        rng, X, y = random_problem(seed)
        X[:, 6:] = X[:, :6] + distance * rng.standard_normal((40, 6))
        tall, longer = np.vstack([X, np.sqrt(40 * l2) * np.eye(12)]), np.append(y, np.zeros(12))
        d, S = np.append(np.full(40, 1 / 40), np.full(12, 1 / 40)), [0, 1, 2]
        theta, base = fit(tall, longer, d, S)
        values = {(i, j): fit(tall, longer, d, [*(set(S) - {i}), j])[1] for i, j in product(S, range(3, 12))}
        options = {"penalty": TrimmedL1(3), "fit_intercept": False, "standardize": False}
        found = best_swap(X, y, theta, alpha=1e3, l2=l2, **options)
        assert found.gain == pytest.approx(base - min(values.values()), rel=1e-6)
        # The copies alone: no other column may enter.
        copies = [0, 1, 2, 6, 7, 8]
        best = base - min(value for (_, j), value in values.items() if j in copies)
        found = best_swap(X[:, copies], y, theta[copies], alpha=1e3, l2=l2, **options)
        assert found.gain == pytest.approx(best, rel=1e-4, abs=1e-12)


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_exact_scores_equal_refits_of_all_pairs(monkeypatch, fit_intercept, standardize, weighted):
    monkeypatch.setattr(columns, "_BLOCK_ELEMENTS", 200)  # several blocks
    improving = 0
    for seed in range(6):
        rng, X, y = random_problem(seed)
        X, y = X + 1.0, y + 5.0
        weight = rng.uniform(0, 2, size=40) if weighted else None
        d = np.full(40, 1 / 40) if weight is None else weight / weight.sum()
        factor = np.ones(12)
        factor[[3, 7]] = 0.0, np.inf
        mean = d @ X if fit_intercept else np.zeros(12)
        scale = np.sqrt(d @ (X - mean) ** 2) if standardize else np.ones(12)
        Z, target = (X - mean) / scale, y - (d @ y if fit_intercept else 0.0)
        S = [1, 2, 8] if seed % 2 else [0, 5, 11]
        theta, base = fit(Z, target, d, [*S, 3])
        best = (-np.inf, None, None)
        for i, j in product(S, sorted(set(range(12)) - {*S, 3, 7})):
            value = fit(Z, target, d, [*(set(S) - {i}), j, 3])[1]
            best = max(best, (base - value, i, j), key=lambda swap: swap[0])
        options = {
            "sample_weight": weight,
            "fit_intercept": fit_intercept,
            "standardize": standardize,
        }
        alpha = exact_penalty_alpha(X, y, penalty_factor=factor, **options)
        intercept = d @ y - mean @ (theta / scale) if fit_intercept else 0.0
        found = best_swap(
            X,
            y,
            theta / scale,
            penalty=TrimmedL1(3, penalty_factor=factor),
            alpha=alpha,
            intercept=intercept,
            **options,
        )
        assert found.exact
        assert found.gain == pytest.approx(best[0], rel=1e-9)
        assert bool(found) == (best[0] > 0)
        if found:
            improving += 1
            assert (found.leaves, found.enters) == best[1:]
    assert improving


def test_swaps_lead_to_a_one_swap_optimum():
    _, X, y = random_problem(1)
    d = np.full(40, 1 / 40)
    S, alpha = [4, 9, 10, 11], exact_penalty_alpha(X, y)
    for _ in range(20):
        theta, value = fit(X, y, d, S)
        swap = best_swap(X, y, theta, penalty=TrimmedL1(4), alpha=alpha)
        if not swap:
            break
        S = sorted({*S, swap.enters} - {swap.leaves})
        assert fit(X, y, d, S)[1] == pytest.approx(value - swap.gain)
    assert swap == Swap(None, None, swap.gain, True)
    assert swap.gain <= 0
    for i, j in product(S, set(range(12)) - set(S)):
        assert fit(X, y, d, [*(set(S) - {i}), j])[1] >= value


# -- the soft case ---------------------------------------------------------------------------------


def soft_refit(Z, y, d, signs, t, A, i, start):
    """Minimize on A with signs held (linear penalties t * sign), feature i under its true |theta_i|.

    Solved for each of the three ways that i can end: negative, zero, positive.
    """
    best = (np.inf, None)
    for end in (-1.0, 0.0, 1.0) if i is not None else (None,):
        active = [a for a in A if not (a == i and end == 0.0)]
        slope = np.array([t[a] * (end if a == i else signs[a]) for a in active])
        gram = Z[:, active].T @ (d[:, None] * Z[:, active])
        theta = start.copy()
        theta[A] = 0.0
        rest = y - Z @ theta
        theta[active] = np.linalg.solve(gram, Z[:, active].T @ (d * rest) - slope)
        if end and theta[i] * end < 0:
            continue
        linear = sum(t[a] * (end if a == i else signs[a]) * theta[a] for a in active)
        value = 0.5 * d @ (y - Z @ theta) ** 2 + linear
        best = min(best, (value, tuple(theta)), key=lambda pair: pair[0])
    return best


def lowest_value(X, y, t):
    """The least of half the mean square plus sum t |theta|, by a smooth solver on theta's two parts.

    Unpenalized columns are projected out first: two nearly equal ones have huge coefficients.
    """
    Q = np.linalg.qr(X[:, t == 0])[0]
    X, y, t = X[:, t > 0] - Q @ (Q.T @ X[:, t > 0]), y - Q @ (Q.T @ y), t[t > 0]
    n, p = X.shape

    def split(z):
        r = X @ (z[:p] - z[p:]) - y
        g = X.T @ r / n
        return 0.5 * np.mean(r**2) + t @ (z[:p] + z[p:]), np.concatenate([g + t, t - g])

    start = np.zeros(2 * p)
    tight = {"ftol": 1e-15, "gtol": 1e-9, "maxiter": 50_000, "maxfun": 100_000}
    bounds = [(0, None)] * (2 * p)
    return minimize(split, start, jac=True, bounds=bounds, method="L-BFGS-B", options=tight).fun


def soft_minimum(Z, y, d, h, alpha, factor, rng):
    """A local minimum by majorize-minimize with coordinate descent, from a random support."""
    p = Z.shape[1]
    gram, moment = Z.T @ (d[:, None] * Z), Z.T @ (d * y)
    theta, S = np.zeros(p), set(rng.choice(p, size=h, replace=False).tolist())
    while True:
        t = alpha * factor
        t[list(S)] = 0.0
        for _ in range(3000):
            before = theta.copy()
            for j in range(p):
                z = moment[j] - gram[j] @ theta + gram[j, j] * theta[j]
                theta[j] = np.sign(z) * max(abs(z) - t[j], 0.0) / gram[j, j]
            if np.abs(theta - before).max() < 1e-15:
                break
        top = set(np.argsort(-factor * np.abs(theta), kind="stable")[:h].tolist())
        if top == S:
            return theta
        S = top


@pytest.mark.parametrize("alpha", [0.02, 0.1, 0.3])
def test_soft_scores_equal_refits_with_held_signs(alpha):
    found_some = kept_signs = 0
    for seed in range(14):
        rng, X, y = random_problem(seed, n=20, p=9, k=8)
        d, h = np.full(20, 1 / 20), 3
        factor = rng.choice([0.5, 1.0, 2.0], size=9)
        theta = soft_minimum(X, y, d, h, alpha, factor, rng)
        penalty = TrimmedL1(h, penalty_factor=factor)
        assert is_local_minimum(X, y, theta, penalty=penalty, alpha=alpha)
        order = np.argsort(-factor * np.abs(theta), kind="stable")
        S = order[:h].tolist()
        P = [j for j in order[h:].tolist() if theta[j] != 0]
        full = alpha * factor
        base = 0.5 * np.mean((y - X @ theta) ** 2) + full[P] @ np.abs(theta[P])
        attained = []
        for i, j in product(S, sorted(set(range(9)) - set(S))):
            t = full.copy()
            t[[s for s in S if s != i] + [j]] = 0.0
            A = sorted({*S, *P, j})
            value, point = soft_refit(X, y, d, np.sign(theta), t, A, i, theta)
            point = np.array(point)
            kept = all(point[k] * theta[k] >= 0 for k in P if k != j)
            true_value = 0.5 * np.mean((y - X @ point) ** 2) + t @ np.abs(point)
            assert true_value >= value - 1e-12
            attained.append((base - true_value, i, j, kept))
        best = max(attained)
        swap = best_swap(X, y, theta, penalty=penalty, alpha=alpha)
        assert not swap.exact
        assert bool(swap) == (best[0] > 1e-9 * base)
        if swap:
            found_some += 1
            kept_signs += best[3]
            assert (swap.leaves, swap.enters) == best[1:3]
            assert swap.gain == pytest.approx(best[0], rel=1e-6)
    assert found_some
    assert kept_signs


@pytest.mark.parametrize("alpha", [0.005, 0.1, 0.5])
def test_every_soft_score_is_that_of_its_refit(alpha):
    linear = 0
    for seed in range(4):
        rng, X, y = random_problem(seed, n=20, p=9, k=8)
        d = np.full(20, 1 / 20)
        factor = rng.choice([0.5, 1.0, 2.0], size=9)
        # A lasso start makes P small, so that there is an outside for small alpha too.
        X[:, 6:] -= X[:, :6] @ np.linalg.lstsq(X[:, :6], X[:, 6:], rcond=None)[0]
        y = X[:, :6] @ np.linalg.lstsq(X[:, :6], y, rcond=None)[0] + 1e-3 * X[:, 6:].sum(axis=1)
        theta = soft_minimum(X, y, d, 3, alpha, factor, rng)
        order = np.argsort(-factor * np.abs(theta), kind="stable")
        S, P = order[:3].tolist(), [j for j in order[3:].tolist() if theta[j] != 0]
        full = alpha * factor
        base = 0.5 * np.mean((y - X @ theta) ** 2) + full[P] @ np.abs(theta[P])
        point = read_candidate(
            X, y, theta, penalty=TrimmedL1(3, penalty_factor=factor), alpha=alpha, l2=0.0,
            intercept=0.0, positive=False, loss="quadratic", sample_weight=None,
            fit_intercept=False, standardize=False,
        )  # fmt: skip
        for score, leaves, enters in _Model(point, y).scores():
            for (a, j), (b, i) in product(enumerate(enters), enumerate(leaves)):
                t = full.copy()
                t[[s for s in S if s != i] + [j]] = 0.0
                A = sorted({*S, *P, int(j)})
                value, refit = soft_refit(X, y, d, np.sign(theta), t, A, i, theta)
                assert score[a, b] == pytest.approx(base - value, rel=1e-6, abs=1e-9)
                linear += refit[i] != 0 and theta[j] == 0
    assert linear or alpha > 0.1  # i stayed in, penalized


def test_copies_of_a_penalized_column_do_not_promise_the_impossible():
    for seed in range(6):
        rng, X, y = random_problem(seed, n=20, p=6, k=6)
        X = np.column_stack([X, X + 10.0 ** -rng.integers(3, 9) * rng.standard_normal((20, 6))])
        theta = soft_minimum(X[:, :6], y, np.full(20, 1 / 20), 2, 0.05, np.ones(6), rng)
        theta = np.append(theta, np.zeros(6))
        F = 0.5 * np.mean((y - X @ theta) ** 2) + 0.05 * np.sort(np.abs(theta))[:-2].sum()
        swap = best_swap(X, y, theta, penalty=TrimmedL1(2), alpha=0.05)
        if swap:
            assert swap.gain < F
            t = np.full(12, 0.05)
            t[[*(set(np.argsort(-np.abs(theta))[:2].tolist()) - {swap.leaves}), swap.enters]] = 0.0
            lowest = lowest_value(X, y, t)
            assert lowest <= F - swap.gain + 1e-6


def test_soft_gain_is_reached_by_the_minimum_of_the_new_support():
    swaps = 0
    for seed in range(8):
        rng, X, y = random_problem(seed, n=20, p=9, k=8)
        theta = soft_minimum(X, y, np.full(20, 1 / 20), 3, 0.3, np.ones(9), rng)
        swap = best_swap(X, y, theta, penalty=TrimmedL1(3), alpha=0.3)
        if not swap:
            continue
        swaps += 1
        order = np.argsort(-np.abs(theta))
        F = 0.5 * np.mean((y - X @ theta) ** 2) + 0.3 * np.abs(theta[order[3:]]).sum()
        t = np.full(9, 0.3)
        t[[*(set(order[:3].tolist()) - {swap.leaves}), swap.enters]] = 0.0
        lowest = lowest_value(X, y, t)
        assert lowest <= F - swap.gain + 1e-6
    assert swaps


# -- edges -------------------------------------------------------------------------------------------


def test_no_free_place_and_all_free():
    _, X, y = random_problem(0)
    d = np.full(40, 1 / 40)
    assert best_swap(X, y, np.zeros(12), penalty=TrimmedL1(0), alpha=1e3) == Swap(None, None, 0.0, True)
    theta = fit(X, y, d, range(12))[0]
    assert best_swap(X, y, theta, penalty=TrimmedL1(12), alpha=1e3) == Swap(None, None, 0.0, True)


@pytest.mark.parametrize("alpha", [1e-3, 1e3])
def test_a_place_to_spare_costs_nothing(alpha):
    _, X, y = random_problem(0)
    d = np.full(40, 1 / 40)
    theta, base = fit(X, y, d, [2, 5])
    gains = {j: base - fit(X, y, d, [2, 5, j])[1] for j in set(range(12)) - {2, 5}}
    swap = best_swap(X, y, theta, penalty=TrimmedL1(3), alpha=alpha)
    j = max(gains, key=gains.get)
    assert swap == Swap(None, j, pytest.approx(gains[j]), True)


def test_explained_columns_are_no_candidates():
    _, X, y = random_problem(2, p=6)
    d = np.full(40, 1 / 40)
    X = np.column_stack([X, X[:, 0], X[:, 0] + X[:, 1], -3 * X[:, 1], np.zeros(40)])
    # The best pair among the first six, so that only explained columns could tempt.
    pairs = {(i, j): fit(X, y, d, [i, j])[1] for i in range(6) for j in range(i)}
    S = list(min(pairs, key=pairs.get))
    X[:, 6], X[:, 7], X[:, 8] = X[:, S[0]], X[:, S[0]] + X[:, S[1]], -3 * X[:, S[1]]
    theta = fit(X, y, d, S)[0]
    for target in (y, X @ theta):  # noise, and a perfect fit where every number is rounding
        swap = best_swap(X, target, theta, penalty=TrimmedL1(2), alpha=exact_penalty_alpha(X, target))
        assert not swap
        assert swap.exact


def test_nearly_collinear_columns_are_scored():
    rng, X, y = random_problem(4, p=5)
    d = np.full(40, 1 / 40)
    hidden = rng.standard_normal(40)
    X = np.column_stack([X, X[:, 0] + 1e-5 * hidden])
    y = X[:, 0] + X[:, 1] + 3 * hidden
    theta, base = fit(X, y, d, [0, 1])
    swap = best_swap(X, y, theta, penalty=TrimmedL1(2), alpha=exact_penalty_alpha(X, y))
    best = max((base - fit(X, y, d, [*({0, 1} - {i}), j])[1], i, j) for i in (0, 1) for j in (2, 3, 4, 5))
    assert (swap.leaves, swap.enters) == best[1:]
    assert swap.gain == pytest.approx(best[0], rel=1e-6)
    assert swap.enters == 5


def test_collinear_free_columns_leave_for_nothing():
    _, X, y = random_problem(5, p=6)
    d = np.full(40, 1 / 40)
    X = np.column_stack([X, X[:, 0] - X[:, 1]])
    theta = fit(X, y, d, [0, 1])[0]
    theta[6] = 0.1  # the three share what two explain
    theta[[0, 1]] += [-0.1, 0.1]
    base = fit(X, y, d, [0, 1])[1]
    gains = {j: base - fit(X, y, d, [0, 1, j])[1] for j in range(2, 6)}
    j = max(gains, key=gains.get)
    swap = best_swap(X, y, theta, penalty=TrimmedL1(3), alpha=exact_penalty_alpha(X, y))
    assert swap.leaves in (0, 1, 6)
    assert (swap.enters, swap.exact) == (j, True)
    assert swap.gain == pytest.approx(gains[j])


def test_constant_columns_do_not_enter():
    _, X, y = random_problem(6, p=5)
    y = y + 100.0
    X = np.column_stack([X, np.full(40, 0.1)])
    centred = X - X.mean(axis=0)
    theta = fit(centred, y - y.mean(), np.full(40, 1 / 40), [0, 1])[0]
    options = {"penalty": TrimmedL1(2), "intercept": y.mean() - X.mean(axis=0) @ theta, "fit_intercept": True}
    for standardize in (False, True):
        alpha = exact_penalty_alpha(X, y, fit_intercept=True, standardize=standardize)
        swap = best_swap(X, y, theta, alpha=alpha, standardize=standardize, **options)
        assert swap.enters != 5
        narrow = best_swap(X[:, :5], y, theta[:5], alpha=alpha, standardize=standardize, **options)
        assert (swap.leaves, swap.enters) == (narrow.leaves, narrow.enters)
        assert swap.gain == pytest.approx(narrow.gain)


def test_more_nonzeros_than_samples_are_survived():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((4, 9)), rng.standard_normal(4)
    theta = np.zeros(9)
    theta[:5] = np.linalg.lstsq(X[:, :5], y, rcond=None)[0]
    swap = best_swap(X, y, theta, penalty=TrimmedL1(5), alpha=exact_penalty_alpha(X, y))
    assert not swap
    assert np.isfinite(swap.gain)


@pytest.mark.parametrize("kind", ["positive", "boxes", "ridge"])
def test_every_swap_within_bounds_is_refitted(kind):
    found = 0
    for seed in range(12):
        rng, X, y = random_problem(seed, p=8)
        y, l2 = y + X @ np.full(8, 2.0), 0.3 if kind == "ridge" else 0.0
        upper = np.full(8, np.inf) if kind == "positive" else rng.uniform(0.5, 3.0, 8)
        lower = np.zeros(8) if kind == "positive" else -rng.uniform(0.0, 1.0, 8)
        Z, target = (
            np.vstack([X / np.sqrt(40), np.sqrt(l2) * np.eye(8)]),
            np.append(y / np.sqrt(40), np.zeros(8)),
        )

        def fit_within(S):
            theta = np.zeros(8)
            theta[S] = lsq_linear(Z[:, S], target, (lower[S], upper[S]), method="bvls").x  # noqa: B023
            return theta, 0.5 * np.sum((target - Z @ theta) ** 2)  # noqa: B023

        S = np.sort(rng.choice(8, size=3, replace=False))
        theta, base = fit_within(S)
        left = np.flatnonzero(theta).tolist()
        bounds = {"positive": True} if kind == "positive" else {"lower": lower, "upper": upper}
        alpha = exact_penalty_alpha(X, y)
        swap = best_swap(X, y, theta, penalty=TrimmedL1(3), alpha=alpha, l2=l2, **bounds)
        gains = {
            (i, j): base - fit_within([*(k for k in left if k != i), j])[1]
            for i in (left if len(left) == 3 else [None])
            for j in set(range(8)) - set(left)
        }
        best = max(gains, key=gains.__getitem__)
        assert swap.exact
        if gains[best] > 1e-8 * base:
            assert (swap.leaves, swap.enters) == best
            assert swap.gain == pytest.approx(gains[best])
            found += 1
        else:
            assert not swap
        assert best_swap(X, y, theta, penalty=TrimmedL1(3), alpha=0.01, l2=l2, **bounds).exact is False
    assert found >= 6


@pytest.mark.parametrize("convert", [sp.csc_array, sp.csr_matrix, np.float32, np.asfortranarray])
def test_kinds_of_X(convert):
    rng = np.random.default_rng(1)
    X = rng.integers(-3, 4, size=(30, 10)) * rng.integers(0, 2, size=(30, 10)).astype(float)
    y = X[:, 0] - X[:, 4] + rng.standard_normal(30)
    theta = fit(X - X.mean(axis=0), y - y.mean(), np.full(30, 1 / 30), [1, 2])[0]
    options = {
        "penalty": TrimmedL1(2),
        "alpha": exact_penalty_alpha(X, y, fit_intercept=True),
        "fit_intercept": True,
    }
    expected, found = best_swap(X, y, theta, **options), best_swap(convert(X), y, theta, **options)
    assert expected
    assert (found.leaves, found.enters) == (expected.leaves, expected.enters)
    assert found.gain == pytest.approx(expected.gain)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"loss": Loss()}, "loss"),
        ({"penalty": L1()}, "penalty"),
        ({"coef": -np.ones(4), "positive": True}, "coef"),
        ({"coef": np.ones(4), "penalty": TrimmedL1(1, penalty_factor=[1, 1, 1, np.inf])}, "coef"),
    ],
)
def test_bad_arguments_are_named(change, name):
    given = {"coef": np.zeros(4), "penalty": TrimmedL1(1), "alpha": 1.0} | change
    with pytest.raises(ValueError, match=name):
        best_swap(np.eye(4), np.ones(4), given.pop("coef"), **given)
