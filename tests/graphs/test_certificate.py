"""certify_graph against closed forms, a slow solver, scikit-learn, and what F does around a point."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import graphical_lasso

from trimreg.diagnostics import certify_graph
from trimreg.penalties import L1, MCP, SCAD, TrimmedL1


def spread(values, p):
    """The symmetric matrix with these values at the edges and 0 on the diagonal."""
    A = np.zeros((p, p))
    A[np.triu_indices(p, 1)] = values
    return A + A.T


def covariance(rng, p, n=None):
    X = rng.standard_normal((n or 3 * p, p)) @ (np.eye(p) + 0.4 * rng.standard_normal((p, p)))
    return X.T @ X / X.shape[0]


def loss(S, theta):
    sign, log_det = np.linalg.slogdet(theta)
    return np.sum(S * theta) - log_det if sign > 0 and np.linalg.eigvalsh(theta)[0] > 0 else np.inf


def weighted_objective(S, theta, lam):
    paid = np.where(theta == 0, 0.0, np.where(theta == 0, 0.0, lam) * np.abs(theta))
    return loss(S, theta) + paid.sum()


def solve(S, lam, steps=5000):
    """The weighted problem by proximal gradient steps with backtracking; lam is 0 on its diagonal.

    The first trial of a step is that of Barzilai and Borwein, which needs far fewer of them.
    """
    theta, step = np.diag(1 / np.diag(S)), 0.1
    gradient = S - np.linalg.inv(theta)
    for _ in range(steps):
        while True:
            z = theta - step * gradient
            moved = np.sign(z) * np.maximum(np.abs(z) - step * lam, 0.0)
            moved = (moved + moved.T) / 2
            d = moved - theta
            model = loss(S, theta) + np.sum(gradient * d) + np.sum(d**2) / (2 * step)
            if loss(S, moved) <= model + 1e-13 * abs(model):
                break
            step /= 2
        if np.abs(d).max() < 1e-14 * np.abs(theta).max():
            break
        following = S - np.linalg.inv(moved)
        step = np.sum(d**2) / max(np.sum(d * (following - gradient)), 1e-300)
        theta, gradient = moved, following
    return theta


def problem_with_solution(rng, p, alpha, factor, weights, density=0.6):
    """S and Theta such that Theta solves the problem of S with these weights: S follows from Theta."""
    m = p * (p - 1) // 2
    edges = rng.standard_normal(m) * (rng.random(m) < density) * np.isfinite(factor)
    theta = spread(edges, p)
    theta += np.diag(np.abs(theta).sum(axis=1) + rng.uniform(0.3, 1.0, p))
    lam = alpha * np.where(np.isfinite(factor), factor, 1.0) * weights
    pull = np.where(edges != 0, -np.sign(edges), rng.uniform(-0.9, 0.9, m))
    W = np.linalg.inv(theta)
    return (W + W.T) / 2 + spread(lam * pull, p), theta


def trimmed_objective(S, *, h, alpha, factor):
    counted = (factor > 0) & np.isfinite(factor)

    def F(theta):
        edges = theta[np.triu_indices(len(S), 1)]
        r = np.sort(factor[counted] * np.abs(edges[counted]))[::-1]
        return loss(S, theta) + 2 * alpha * r[h:].sum()

    return F


def numbers(certificate):
    return {k: v for k, v in dataclasses.asdict(certificate).items() if isinstance(v, float)}


# -- closed forms ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("s", [0.5, -0.5, 0.05, 0.0])
@pytest.mark.parametrize("units", [(1.0, 1.0), (1e-4, 1e3)])
@pytest.mark.parametrize("penalty", [L1(), TrimmedL1(0), TrimmedL1(1), MCP(np.inf), SCAD(np.inf)])
def test_two_variables_in_closed_form(s, units, penalty):
    a, b = units
    alpha = 0.1 * a * b
    free = getattr(penalty, "h", 0) == 1
    w = (s if free else np.sign(s) * max(abs(s) - 0.1, 0.0)) * a * b
    variance = np.array([2 * a * a, b * b])
    S, det = np.diag(variance) + spread([s * a * b], 2), variance.prod() - w * w
    theta = (np.diag(variance[::-1]) - spread([w], 2)) / det
    certificate = certify_graph(S, theta, penalty=penalty, alpha=alpha)
    assert certificate.local_minimum is True
    assert certificate
    assert certificate.dual_gap < 1e-13
    assert certificate.kkt_residual <= 1e-13 * variance.max()
    assert certificate.violation < 1e-12
    assert certificate.n_edges == int(w != 0)
    assert certificate.n_free == int(w != 0 and free)
    # tr(S Theta) = 2 - 2 alpha |Theta_12| at the optimum, and the penalty gives that back.
    assert certificate.objective == pytest.approx(2 + np.log(det), rel=1e-12)
    assert certificate.dual_objective == pytest.approx(2 + np.log(det), rel=1e-12)


def test_every_number_at_a_point_done_by_hand():
    S = np.array([[1.0, 0.5], [0.5, 1.0]])
    certificate = certify_graph(S, np.diag([1.0, 2.0]), penalty=L1(), alpha=0.1)
    dual = np.log(1 - 0.4**2) + 2
    assert certificate.objective == certificate.weighted_objective == pytest.approx(3 - np.log(2))
    assert certificate.dual_objective == pytest.approx(dual)
    assert certificate.dual_gap == pytest.approx(3 - np.log(2) - dual)
    assert certificate.relative_gap == pytest.approx(certificate.dual_gap / (3 - np.log(2)))
    assert (certificate.kkt_diagonal, certificate.kkt_zero) == (pytest.approx(0.5), pytest.approx(0.4))
    assert (certificate.kkt_free, certificate.kkt_nonzero) == (0.0, 0.0)
    assert certificate.kkt_residual == certificate.relative_residual == pytest.approx(0.5)
    assert certificate.stationarity == pytest.approx(0.5**2 + 0.4**2)
    assert (certificate.smallest_eigenvalue, certificate.condition) == (pytest.approx(1), pytest.approx(2))
    assert certificate.local_minimum is False
    assert certificate.reason == "variable 1: the diagonal of the inverse is not that of S"
    assert (certificate.n_edges, certificate.n_free) == (0, 0)
    larger = certify_graph(10 * S, np.diag([0.1, 0.2]), penalty=L1(), alpha=1.0)
    assert larger.kkt_residual == pytest.approx(5.0)
    assert larger.relative_residual == pytest.approx(0.5)


@pytest.mark.parametrize("penalty", [MCP(2.0), SCAD(2.5), L1(), TrimmedL1(2)])
def test_objective_is_the_likelihood_and_the_penalty_of_both_triangles(penalty):
    rng = np.random.default_rng(3)
    S, theta = covariance(rng, 4), np.linalg.inv(covariance(rng, 4))
    certificate = certify_graph(S, theta, penalty=penalty, alpha=0.3)
    edges, bound = theta[np.triu_indices(4, 1)], penalty.bind(6)
    expected = loss(S, theta) + 2 * bound.value(edges, 0.3)
    lam = spread(0.3 * bound.weights(edges, 0.3), 4)
    assert certificate.objective == pytest.approx(expected, rel=1e-12)
    assert certificate.weighted_objective == pytest.approx(weighted_objective(S, theta, lam), rel=1e-12)


# -- the weighted problem -------------------------------------------------------------------------------


@st.composite
def weighted(draw):
    """S, any positive definite Theta with some zeros, and weights of which some are 0."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    p = draw(st.integers(2, 6))
    m = p * (p - 1) // 2
    S = covariance(rng, p, n=draw(st.sampled_from([2, p, 4 * p])))
    theta = np.linalg.inv(covariance(rng, p))
    theta *= 1 - spread(rng.random(m) < draw(st.sampled_from([0.0, 0.5])), p)
    theta += max(0.0, 1e-3 - np.linalg.eigvalsh(theta)[0]) * np.eye(p)
    unit = 10.0 ** (draw(st.sampled_from([0, 0, 3])) * rng.uniform(-1, 1, p))
    weights = rng.choice([0.0, 0.3, 1.0], size=m)
    alpha = draw(st.sampled_from([0.0, 0.01, 0.3, 5.0]))
    return S * np.outer(unit, unit), theta / np.outer(unit, unit), spread(weights, p), alpha


@settings(max_examples=200, derandomize=True, deadline=None)
@given(weighted())
def test_the_gap_is_never_negative_and_is_that_of_the_two_objectives(situation):
    S, theta, weights, alpha = situation
    certificate = certify_graph(S, theta, penalty=L1(), alpha=alpha, weights=weights)
    assert certificate.dual_gap >= 0
    if np.isfinite(certificate.dual_gap):
        gap = certificate.weighted_objective - certificate.dual_objective
        size = 1 + abs(certificate.weighted_objective)
        assert certificate.dual_gap == pytest.approx(gap, rel=1e-7, abs=1e-9 * size)
        assert certificate.relative_gap == pytest.approx(
            certificate.dual_gap / max(1, abs(certificate.weighted_objective))
        )
    else:  # only a singular S with free edges may leave no dual point
        assert np.linalg.eigvalsh(S / np.sqrt(np.outer(np.diag(S), np.diag(S))))[0] < 1e-12
        assert ((weights == 0) & (S != 0) & ~np.eye(len(S), dtype=bool)).any() or alpha == 0


@pytest.mark.parametrize("seed", range(4))
def test_the_dual_objective_bounds_the_minimum(seed):
    rng = np.random.default_rng(seed)
    S, weights = covariance(rng, 5), spread(rng.choice([0.0, 1.0], size=10), 5)
    best = solve(S, 0.1 * weights)
    lowest = weighted_objective(S, best, 0.1 * weights)
    for _ in range(20):
        theta = np.linalg.inv(covariance(rng, 5))
        certificate = certify_graph(S, theta, penalty=L1(), alpha=0.1, weights=weights)
        assert certificate.dual_objective <= lowest + 1e-10
        assert certificate.dual_gap >= certificate.weighted_objective - lowest - 1e-10


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("h", [0, 3, 9])
def test_a_solution_passes_and_a_perturbed_one_does_not(seed, h):
    rng = np.random.default_rng(seed)
    factor = rng.choice([0.5, 1.0, 2.0], size=10)
    factor[0] = 0.0
    weights = np.ones(10)
    weights[rng.permutation(np.arange(1, 10))[:h]] = 0.0
    S, theta = problem_with_solution(rng, 5, 0.1, factor, weights)
    penalty = TrimmedL1(h, penalty_factor=factor)
    asked = {"penalty": penalty, "alpha": 0.1, "weights": spread(weights, 5)}
    certificate = certify_graph(S, theta, **asked)
    edges = theta[np.triu_indices(5, 1)]
    assert certificate.kkt_residual < 1e-13
    assert certificate.dual_gap < 1e-14
    assert certificate.n_edges == np.count_nonzero(edges)
    assert certificate.n_free == np.count_nonzero(edges[weights * factor == 0])
    for size in (1e-3, 1e-2):
        change = rng.standard_normal((5, 5)) * (theta != 0)
        moved = certify_graph(S, theta + size * (change + change.T), **asked)
        assert moved.kkt_residual > 1e-2 * size
        assert moved.dual_gap > 1e-2 * size**2
        assert moved.weighted_objective > certificate.weighted_objective
        assert moved.dual_gap >= (1 - 1e-6) * (moved.weighted_objective - certificate.weighted_objective)


@pytest.mark.parametrize("seed", range(3))
def test_a_problem_solved_by_proximal_gradient_steps(seed):
    rng = np.random.default_rng(seed)
    S = covariance(rng, 5, n=50)
    S /= np.sqrt(np.outer(np.diag(S), np.diag(S)))
    weights = spread(rng.choice([0.0, 0.5, 1.0], size=10), 5)
    theta = solve(S, 0.1 * weights)
    certificate = certify_graph(S, theta, penalty=L1(), alpha=0.1, weights=weights)
    assert certificate.kkt_residual < 1e-6
    assert certificate.dual_gap < 1e-10


@pytest.mark.parametrize("kind", ["diagonal", "free", "nonzero", "zero"])
def test_a_violation_is_reported_where_it_is(kind):
    W = np.array([[1.0, 0.5, 0.2, 0.0], [0.5, 1.0, 0.1, 0.0], [0.2, 0.1, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    theta = np.linalg.inv(W)  # edges (0,1), (0,2), (1,2) are not 0; the first is free
    weights = np.array([0.0, 1, 1, 1, 1, 1])
    lam = spread(0.05 * weights, 4)
    S = W - lam * np.sign(theta)
    settings_ = {"penalty": L1(), "alpha": 0.05, "weights": spread(weights, 4)}
    assert certify_graph(S, theta, **settings_).kkt_residual < 1e-14
    i, j, by = {
        "diagonal": (2, 2, 0.01),
        "free": (0, 1, 0.01),
        "nonzero": (0, 2, 0.01),
        "zero": (2, 3, 0.06),
    }[kind]
    S[i, j] += by
    S[j, i] = S[i, j]
    certificate = certify_graph(S, theta, **settings_)
    for name in ("diagonal", "free", "nonzero", "zero"):
        assert getattr(certificate, f"kkt_{name}") == pytest.approx(0.01 if name == kind else 0.0, abs=1e-14)
    assert certificate.kkt_residual == pytest.approx(0.01)


def test_h_of_zero_is_the_l1_norm():
    rng = np.random.default_rng(5)
    factor = rng.uniform(0.5, 2, size=10)
    S, solution = problem_with_solution(rng, 5, 0.1, factor, np.ones(10))
    for theta in (solution, 1.1 * solution, np.eye(5)):
        one = certify_graph(S, theta, penalty=TrimmedL1(0, penalty_factor=factor), alpha=0.1)
        other = certify_graph(S, theta, penalty=L1(factor), alpha=0.1)
        assert one == other
        assert one.n_free == 0


@pytest.mark.parametrize("alpha", [0.05, 0.3])
def test_a_graphical_lasso_of_scikit_learn(alpha):
    S = covariance(np.random.default_rng(8), 8, n=100)
    _, theta = graphical_lasso(S, alpha=alpha, tol=1e-10, enet_tol=1e-10, max_iter=500)
    certificate = certify_graph(S, theta, penalty=L1(), alpha=alpha)
    assert certificate.kkt_residual < 1e-6
    assert certificate.local_minimum is True
    assert "global" in certificate.reason
    assert certificate.relative_gap < 1e-9
    assert not certify_graph(S, theta, penalty=L1(), alpha=1.01 * alpha)


# -- dual points that have to be looked for ---------------------------------------------------------------


def far_point():
    """A Theta whose inverse, clipped to S, is not positive definite."""
    rng = np.random.default_rng(11)
    for _ in range(200):
        S, theta = covariance(rng, 4), np.linalg.inv(covariance(rng, 4))
        W = np.clip(np.linalg.inv(theta), S - 1.0, S + 1.0)
        np.fill_diagonal(W, np.diag(S))
        if np.linalg.eigvalsh(W)[0] < -0.1:
            return S, theta
    raise AssertionError("none found")


def test_a_clipped_dual_point_that_is_not_positive_definite_moves_to_a_feasible_one():
    S, theta = far_point()
    certificate = certify_graph(S, theta, penalty=L1(), alpha=1.0)
    lowest = weighted_objective(S, solve(S, spread(np.ones(6), 4)), spread(np.ones(6), 4))
    assert certificate.dual_objective <= lowest
    # The ends of the segments are feasible, so that the bound is no worse than theirs.
    s = S[np.triu_indices(4, 1)]
    shrunk = spread(np.sign(s) * np.maximum(np.abs(s) - 1.0, 0.0), 4) + np.diag(np.diag(S))
    known = [np.linalg.slogdet(A)[1] for A in (S, shrunk) if np.linalg.eigvalsh(A)[0] > 0]
    assert certificate.dual_objective >= max(known) + 4 - 1e-12
    gap = certificate.weighted_objective - certificate.dual_objective
    assert certificate.dual_gap == pytest.approx(gap, rel=1e-9)


def test_the_way_to_a_feasible_point_is_searched():
    def log_det(W):
        return -loss(np.zeros((4, 4)), W)  # -inf where W is not positive definite

    rng, grid, inner = np.random.default_rng(12), np.linspace(0, 1, 101), 0
    rows, cols = np.triu_indices(4, 1)
    for alpha in 40 * [0.05, 0.2, 1.0]:
        S, theta = covariance(rng, 4, n=5), np.linalg.inv(covariance(rng, 4))
        s, clipped = S[rows, cols], np.clip((S - np.linalg.inv(theta))[rows, cols], -alpha, alpha)
        if np.linalg.eigvalsh(S - spread(clipped, 4))[0] > 0:
            continue
        goals = min(1.0, np.min(alpha / np.abs(s))) * s, np.clip(s, -alpha, alpha)
        ways = [[log_det(S - spread((1 - t) * clipped + t * goal, 4)) for t in grid] for goal in goals]
        found = certify_graph(S, theta, penalty=L1(), alpha=alpha).dual_objective - 4
        assert np.max(ways) - 1e-12 <= found <= np.max(ways) + 0.1
        inner += bool(np.max(ways) > max(way[-1] for way in ways) + 1e-2)
    assert inner > 0  # where neither end is the best


@pytest.mark.parametrize(
    ("s", "weights", "theta"),
    [
        # Shrinking each edge as far as it may go leaves (0.99, 0, 0.99): only a common factor serves.
        ([1.0, 1.0, 1.0], [0.01, 1.0, 0.01], np.eye(3)),
        # S is singular and one edge free: only shrinking the others serves.
        (
            [0.5, 0.5, -0.5],
            [0.0, 1.0, 1.0],
            np.linalg.inv(np.eye(3) + spread([-0.9, 0.95, -0.95], 3)),
        ),
    ],
)
def test_each_of_the_feasible_points_is_needed(s, weights, theta):
    S = np.eye(3) + spread(s, 3)
    assert abs(np.linalg.eigvalsh(S)[0]) < 1e-12
    certificate = certify_graph(S, theta, penalty=L1(), alpha=1.0, weights=spread(weights, 3))
    assert np.isfinite(certificate.dual_gap)
    gap = certificate.weighted_objective - certificate.dual_objective
    assert certificate.dual_gap == pytest.approx(gap, rel=1e-9)


def test_of_a_singular_S_that_may_shrink_a_gap_is_found():
    x = np.array([[1.0, 2.0, -1.0], [0.5, 1.0, 3.0]])
    S = x.T @ x  # of rank 2; variables 0 and 1 are the same up to scale
    theta = np.eye(3)
    found = certify_graph(S, theta, penalty=L1(), alpha=0.1)
    assert 0 < found.dual_gap < np.inf
    # A free edge between two copies leaves no positive definite dual point at all.
    weights = spread([0.0, 1.0, 1.0], 3)
    none = certify_graph(S, theta, penalty=L1(), alpha=0.1, weights=weights)
    assert none.dual_gap == none.relative_gap == np.inf
    assert none.dual_objective == -np.inf
    assert np.isfinite(none.weighted_objective)


# -- local minima of the trimmed problem ------------------------------------------------------------------


def falls_along_an_entry(F, theta, radius=0.03):
    """Whether moving one entry of Theta a little lowers F by more than rounding."""
    base, p = F(theta), len(theta)
    for i in range(p):
        for j in range(i, p):
            for step in radius * 10.0 ** np.arange(0.0, -4.5, -0.5):
                for sign in (-1.0, 1.0):
                    moved = theta.copy()
                    moved[i, j] += sign * step
                    moved[j, i] = moved[i, j]
                    if F(moved) < base - 1e-13 * (1 + abs(base)):
                        return True
    return False


def falls_anywhere(F, theta, rng, radius, count=150):
    base, p = F(theta), len(theta)
    for _ in range(count):
        change = rng.standard_normal((p, p)) * (rng.random((p, p)) < rng.uniform(0.1, 1.0))
        change = radius * rng.uniform(0.01, 1.0) * (change + change.T)
        if F(theta + change) < base - 1e-12 * (1 + abs(base)):
            return True
    return False


@st.composite
def situations(draw):
    """A problem, and a point that solves it for some weights or is something rougher."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    p = draw(st.sampled_from([3, 4]))
    m = p * (p - 1) // 2
    h = draw(st.integers(0, m))
    factor = rng.choice([0.0, 0.5, 1.0, 1.0, 2.0], size=m)
    alpha = draw(st.sampled_from([0.0, 0.02, 0.1, 0.5]))
    regular = np.flatnonzero(factor > 0)
    n_free = min(h, regular.size)
    # Weights of the largest edges make a local minimum, others seldom: the first Theta only ranks them.
    state = rng.bit_generator.state
    _, theta = problem_with_solution(rng, p, alpha, factor, np.ones(m))
    r = (factor * np.abs(theta[np.triu_indices(p, 1)]))[regular]
    order = np.argsort(-r) if draw(st.booleans()) else rng.permutation(regular.size)
    weights = np.ones(m)
    weights[regular[order[:n_free]]] = 0.0
    rng.bit_generator.state = state
    S, theta = problem_with_solution(rng, p, alpha, factor, weights)
    kind = draw(st.sampled_from(["solved", "solved", "solved", "diagonal", "rounded", "tied"]))
    if kind == "diagonal":
        theta = np.diag(1 / np.diag(S))
    elif kind == "rounded":
        theta = np.round(theta, 1)
        theta = (theta + theta.T) / 2
    elif kind == "tied":
        level = np.where(factor > 0, 0.2 / np.where(factor > 0, factor, 1.0), 0.2)
        theta = np.diag(np.diag(theta)) + spread(level, p) * np.sign(theta) * ~np.eye(p, dtype=bool)
    theta += max(0.0, 0.05 - np.linalg.eigvalsh(theta)[0]) * np.eye(p)
    return S, theta, h, n_free, alpha, factor, rng


def basin(theta, h, factor):
    """How far edges may move before another set of them is the largest."""
    r = np.sort((factor * np.abs(theta[np.triu_indices(len(theta), 1)]))[factor > 0])[::-1]
    apart = r[h - 1] - r[h] if 0 < h < r.size else 1.0
    return min(0.01, 0.2 * apart) if apart > 0 else 0.01


@settings(max_examples=80, derandomize=True, deadline=None)
@given(situations())
def test_says_what_the_trimmed_objective_does(situation):
    S, theta, h, n_free, alpha, factor, rng = situation
    certificate = certify_graph(S, theta, penalty=TrimmedL1(h, penalty_factor=factor), alpha=alpha)
    F = trimmed_objective(S, h=n_free, alpha=alpha, factor=factor)
    assert certificate.objective == pytest.approx(F(theta), rel=1e-10, abs=1e-10)
    if certificate.local_minimum:
        radius = basin(theta, n_free, factor)
        assert not falls_along_an_entry(F, theta, radius)
        assert not falls_anywhere(F, theta, rng, 0.2 * radius)
        assert certificate.kkt_residual < 1e-5
        assert certificate.stationarity < 1e-9
    else:
        assert certificate.local_minimum is False
        if certificate.violation > 1e-3:  # a smaller fall is lost in rounding
            assert falls_along_an_entry(F, theta)


def test_the_largest_edges_must_be_the_free_ones():
    found = {"largest": set(), "others": set()}
    for seed in range(12):
        _, theta = problem_with_solution(np.random.default_rng(seed), 4, 0.1, np.ones(6), np.ones(6), 1.0)
        order = np.argsort(-np.abs(theta[np.triu_indices(4, 1)]))
        for kind, free in (("largest", order[:2]), ("others", order[1:3])):
            weights = np.ones(6)
            weights[free] = 0.0
            S, theta = problem_with_solution(np.random.default_rng(seed), 4, 0.1, np.ones(6), weights, 1.0)
            found[kind].add(certify_graph(S, theta, penalty=TrimmedL1(2), alpha=0.1).local_minimum)
    assert found == {"largest": {True}, "others": {False}}
