"""best_edge_swap against a general-purpose minimizer and all graphs of a size."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import minimize

from trimreg.diagnostics import best_edge_swap, certify_graph
from trimreg.graphs.diagnostics.swap import refit_graph
from trimreg.penalties import L1, TrimmedL1


def covariance(seed, p=4, n=40):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) @ (np.eye(p) + 0.5 * rng.standard_normal((p, p)))
    return X.T @ X / n


def edge_list(p):
    return list(zip(*(index.tolist() for index in np.triu_indices(p, 1)), strict=True))


def slow_refit(S, edges):
    """The graph of these edges by BFGS on its entries, started at the diagonal: ``(value, Theta)``."""
    p = len(S)
    d = np.sqrt(np.diag(S))
    R = S / np.outer(d, d)
    rows = np.array([*range(p), *(i for i, _ in edges)])
    cols = np.array([*range(p), *(j for _, j in edges)])

    def build(x):
        theta = np.zeros((p, p))
        theta[rows, cols] = theta[cols, rows] = x
        return theta

    def function(x):
        theta = build(x)
        if np.linalg.eigvalsh(theta)[0] <= 1e-10:
            return 1e10, np.zeros(x.size)
        gradient = (R - np.linalg.inv(theta))[rows, cols] * np.where(rows == cols, 1, 2)
        return np.sum(R * theta) - np.linalg.slogdet(theta)[1], gradient

    found = minimize(function, (rows == cols).astype(float), jac=True, method="BFGS", options={"gtol": 1e-9})
    return found.fun + 2 * np.log(d).sum(), build(found.x) / np.outer(d, d)


@pytest.mark.parametrize("seed", range(4))
def test_a_refit_is_that_of_a_general_minimizer(seed):
    S = covariance(seed, p=5)
    pairs = np.triu_indices(5, 1)
    rng = np.random.default_rng(seed)
    for count in (0, 3, 6, 10):
        chosen = np.sort(rng.permutation(10)[:count])
        theta = refit_graph(S, chosen, pairs, np.linalg.inv(S))
        _, slow = slow_refit(S, [edge_list(5)[e] for e in chosen])
        np.testing.assert_allclose(theta, slow, rtol=1e-5, atol=1e-6 * np.abs(slow).max())
        W = np.linalg.inv(theta)
        inside = np.zeros(10, dtype=bool)
        inside[chosen] = True
        np.testing.assert_allclose(np.diag(W), np.diag(S), rtol=1e-10)
        np.testing.assert_allclose(W[pairs][inside], S[pairs][inside], atol=1e-10 * S.max())
        np.testing.assert_array_equal(theta[pairs][~inside], 0.0)


def test_a_refit_starts_where_its_edges_alone_are_not_positive_definite():
    theta = np.array([[1.0, 0.9, 0.9], [0.9, 1.0, 0.9], [0.9, 0.9, 1.0]])
    assert np.linalg.eigvalsh(theta * (1 - np.eye(3)[::-1] * (1 - np.eye(3))))[0] < 0  # without (0, 2)
    S = np.linalg.inv(theta)
    found = refit_graph(S, np.array([0, 2]), np.triu_indices(3, 1), theta)
    W = np.linalg.inv(found)
    assert (W[0, 1], W[1, 2]) == (pytest.approx(S[0, 1]), pytest.approx(S[1, 2]))


@pytest.mark.parametrize("seed", range(6))
def test_the_best_of_all_exchanges(seed):
    S, edges = covariance(seed), edge_list(4)
    rng = np.random.default_rng(seed)
    now = [edges[e] for e in rng.permutation(6)[:2]]
    value, theta = slow_refit(S, now)
    tried = {}
    for leaves in now:
        for enters in set(edges) - set(now):
            tried[leaves, enters] = slow_refit(S, [*(e for e in now if e != leaves), enters])[0]
    best = min(tried, key=tried.get)
    swap = best_edge_swap(S, theta, penalty=TrimmedL1(2), alpha=1e3)
    assert swap.n_refits == 1 + 2 * 4
    assert swap.exact
    assert swap.gain == pytest.approx(value - tried[best], abs=1e-7)
    if tried[best] < value - 1e-6:
        assert (swap.leaves, swap.enters) == best
        assert swap
    else:
        assert (swap.leaves, swap.enters) == (None, None)
        assert not swap
    assert swap.objective == pytest.approx(min(value, tried[best]), abs=1e-7)
    certificate = certify_graph(S, swap.precision, penalty=TrimmedL1(2), alpha=1e3)
    assert certificate.objective == pytest.approx(swap.objective, abs=1e-9)
    assert certificate.local_minimum is True
    assert certificate.n_edges == 2


@pytest.mark.parametrize("seed", range(3))
def test_swaps_end_at_a_graph_that_no_swap_improves(seed):
    S = covariance(seed)
    fits = {graph: slow_refit(S, graph) for graph in combinations(edge_list(4), 3)}
    best = min(fits, key=lambda graph: fits[graph][0])
    at_best = best_edge_swap(S, fits[best][1], penalty=TrimmedL1(3), alpha=1e3)
    assert not at_best
    assert at_best.gain < 1e-7
    assert at_best.objective == pytest.approx(fits[best][0], abs=1e-8)
    theta, values = fits[min(fits, key=lambda graph: -fits[graph][0])][1], []
    while True:
        swap = best_edge_swap(S, theta, penalty=TrimmedL1(3), alpha=1e3)
        values.append(swap.objective)
        if not swap:
            break
        theta = swap.precision
    assert (np.diff(values) <= 1e-9).all()
    assert len(values) > 1
    assert values[-1] >= fits[best][0] - 1e-8


def test_a_place_to_spare_is_filled():
    S = covariance(1)
    _, theta = slow_refit(S, [(0, 1)])
    swap = best_edge_swap(S, theta, penalty=TrimmedL1(2), alpha=1e3)
    values = {e: slow_refit(S, [(0, 1), e])[0] for e in edge_list(4)[1:]}
    assert swap.leaves is None
    assert swap.enters == min(values, key=values.get)
    assert swap.objective == pytest.approx(min(values.values()), abs=1e-8)
    assert swap.n_refits == 6


def test_special_factors():
    S = covariance(2)
    factor = np.array([0.0, np.inf, 1.0, 1.0, 2.0, 1.0])  # (0, 1) always in, (0, 2) never
    _, theta = slow_refit(S, [(0, 1), (0, 3)])
    swap = best_edge_swap(S, theta, penalty=TrimmedL1(1, penalty_factor=factor), alpha=1e3)
    values = {e: slow_refit(S, [(0, 1), e])[0] for e in [(1, 2), (1, 3), (2, 3)]}
    now = slow_refit(S, [(0, 1), (0, 3)])[0]
    assert swap.gain == pytest.approx(now - min(values.values()), abs=1e-7)
    assert swap.n_refits == 1 + 3
    assert swap.precision[0, 1] != 0
    assert swap.precision[0, 2] == 0
    none = best_edge_swap(S, np.diag(1 / np.diag(S)), penalty=TrimmedL1(0), alpha=1e3)
    assert not none
    assert (none.gain, none.n_refits) == (0.0, 1)


def test_whether_zeros_could_pay_for_themselves_is_told():
    S = covariance(3)
    S /= np.sqrt(np.outer(np.diag(S), np.diag(S)))
    _, theta = slow_refit(S, [(0, 1)])
    asked = {"penalty": TrimmedL1(1)}
    assert best_edge_swap(S, theta, alpha=1.0, **asked).exact  # no |S_ij - W_ij| is above 1 + rounding
    assert not best_edge_swap(S, theta, alpha=0.01, **asked).exact
    assert not best_edge_swap(S, theta, alpha=0.0, **asked).exact


def test_units_scales_and_shrinkage():
    S = covariance(4)
    unit = np.array([1e-4, 1.0, 1e3, 7.0])
    _, theta = slow_refit(S, [(0, 1), (1, 2)])
    asked = {"penalty": TrimmedL1(2), "alpha": 1.0}
    plain = best_edge_swap(S, theta, **asked)
    moved = best_edge_swap(S * np.outer(unit, unit), theta / np.outer(unit, unit), **asked)
    assert (moved.leaves, moved.enters) == (plain.leaves, plain.enters)
    assert moved.gain == pytest.approx(plain.gain, rel=1e-8)
    assert moved.objective == pytest.approx(plain.objective + 2 * np.log(unit).sum(), rel=1e-9)
    np.testing.assert_allclose(moved.precision * np.outer(unit, unit), plain.precision, atol=1e-8)
    scaled = best_edge_swap(S, theta, standardize=True, **asked)
    assert scaled.objective == pytest.approx(plain.objective - np.log(np.diag(S)).sum(), rel=1e-9)
    np.testing.assert_allclose(scaled.precision, plain.precision, atol=1e-8)
    shrunk = 0.6 * S + 0.4 * np.diag(np.diag(S))
    one, other = best_edge_swap(S, theta, shrinkage=0.4, **asked), best_edge_swap(shrunk, theta, **asked)
    assert one.objective == pytest.approx(other.objective, rel=1e-12)
    assert one.objective > plain.objective


def test_a_refit_that_is_unbounded_below():
    # Two copies of a variable: an edge between them can fall for ever.
    S = np.array([[1.0, 1.0, 0.2], [1.0, 1.0, 0.2], [0.2, 0.2, 1.0]])
    assert refit_graph(S, np.array([0]), np.triu_indices(3, 1), np.eye(3)) is None
    theta = refit_graph(S, np.array([1]), np.triu_indices(3, 1), np.eye(3))
    swap = best_edge_swap(S, theta, penalty=TrimmedL1(1), alpha=1.0)
    assert (swap.leaves, swap.enters) == ((0, 2), (0, 1))
    assert (swap.gain, swap.objective, swap.precision) == (np.inf, -np.inf, None)
    assert not swap.exact
    there = best_edge_swap(
        S, np.eye(3) - 0.5 * np.eye(3)[[1, 0, 2]] * [1, 1, 0], penalty=TrimmedL1(1), alpha=1.0
    )
    assert not there
    assert (there.objective, there.precision, there.n_refits) == (-np.inf, None, 1)


@pytest.mark.parametrize("seed", range(30))
def test_a_clique_above_the_rank_is_unbounded_and_a_path_is_not(seed):
    rng = np.random.default_rng(seed)
    p = int(rng.integers(3, 8))
    X = rng.standard_normal((int(rng.integers(2, p)), p))
    rows, cols = pairs = np.triu_indices(p, 1)
    assert refit_graph(X.T @ X, np.arange(rows.size), pairs, np.eye(p)) is None
    assert refit_graph(X.T @ X, np.flatnonzero(cols - rows == 1), pairs, np.eye(p)) is not None


def test_nearly_singular_is_not_unbounded():
    for distance in (1e-4, 1e-8, 1e-11):
        S = np.array([[1.0, 1.0 - distance], [1.0 - distance, 1.0]])
        theta = refit_graph(S, np.array([0]), np.triu_indices(2, 1), np.eye(2))
        assert np.linalg.inv(theta)[0, 1] == pytest.approx(1 - distance, rel=1e-4)
        assert theta[0, 1] == pytest.approx(-0.5 / distance, rel=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"penalty": L1()}, "penalty must be a TrimmedL1"),
        ({"precision": np.full((3, 3), 0.1) + np.eye(3)}, "precision must have at most h = 1"),
        ({"precision": -np.eye(3)}, "precision must be positive definite"),
        ({"precision": np.eye(2)}, "precision must be a matrix"),
        ({"S": np.eye(3) + np.eye(3, k=1)}, "S must be symmetric"),
        ({"alpha": -1.0}, "alpha must be"),
        ({"tol": -1.0}, "tol must be"),
        (
            {
                "penalty": TrimmedL1(1, penalty_factor=[np.inf, 1.0, 1.0]),
                "precision": np.eye(3) + 0.1 * np.eye(3)[[1, 0, 2]] * [1, 1, 0],
            },
            "precision must be 0 at the edges",
        ),
    ],
)
def test_bad_input_is_named(change, message):
    given = {"S": covariance(0, p=3), "precision": np.eye(3), "penalty": TrimmedL1(1), "alpha": 1.0, **change}
    with pytest.raises(ValueError, match=message):
        best_edge_swap(given.pop("S"), given.pop("precision"), **given)
