"""The diamond graph: the loop written out is the library's solver, and the table counts what it says."""

import numpy as np
import pytest

from trimreg import solve_graphical
from trimreg.datasets import make_diamond
from trimreg.penalties import L1, MCP, SCAD, TrimmedL1
from trimreg_reproduction.graphs import diamond
from trimreg_reproduction.intervals import wilson

PAIRS = np.triu_indices(4, 1)
METHODS = {"glasso": (L1(),), "SCAD": (SCAD(3.0),), "MCP": (MCP(2.5),), "trimmed": diamond.trimmed(4)}


def covariance(seed, rho=0.3, scales=(1.0, 1.0, 1.0, 1.0)):
    X = make_diamond(100, rho, random_state=seed).X * np.asarray(scales)
    return np.cov(X, rowvar=False, bias=True)


@pytest.mark.parametrize("rho", [0.1, 0.3])
@pytest.mark.parametrize(
    "penalty",
    [L1(), SCAD(3.0), MCP(2.5), *(TrimmedL1(h) for h in range(7))],
    ids=lambda penalty: repr(penalty),
)
def test_the_loop_is_the_librarys_solver(penalty, rho):
    alphas = np.geomspace(0.5, 0.005, 6)
    for seed, scales in enumerate([(1, 1, 1, 1), (1, 1, 1, 1), (0.1, 1, 5, 2)]):
        S = covariance(seed, rho, scales)
        edges = diamond.path(S, (penalty,), alphas)
        for row, alpha in zip(edges, alphas, strict=True):
            fit = solve_graphical(S, penalty=penalty, alpha=alpha, start="mle", effort="low")
            expected = fit.precision[PAIRS]
            np.testing.assert_array_equal(row != 0, expected != 0)
            np.testing.assert_allclose(row, expected, atol=2e-3 * np.abs(expected).max())


def test_half_an_edge_has_half_a_weight():
    S, alpha = covariance(3), 0.05
    (edges,) = diamond.path(S, diamond.trimmed(2.5), [alpha])
    Theta = np.zeros((4, 4))
    Theta[PAIRS] = edges
    order = np.argsort(-np.abs(edges))
    # The two largest are free, the third pays a half: |S_ij - W_ij| = alpha w_ij where an edge is not zero.
    assert np.all(edges[order[:4]] != 0)
    Theta += Theta.T
    diagonal = _diagonal_that_fits(S, Theta)
    slope = np.abs(S - np.linalg.inv(Theta + np.diag(diagonal)))[PAIRS]
    np.testing.assert_allclose(slope[order[:4]], alpha * np.array([0.0, 0.0, 0.5, 1.0]), atol=1e-5)


def _diagonal_that_fits(S, edges):
    """The diagonal at which the inverse has that of S."""
    from scipy.optimize import root

    start = np.diagonal(np.linalg.inv(S))
    return root(lambda d: np.diagonal(np.linalg.inv(edges + np.diag(d)) - S), start, tol=1e-12).x


def test_fractions_count_entries_of_the_matrix():
    assert [2 * diamond.edges_of_fraction(fraction) for fraction in diamond.FRACTIONS] == [
        10,
        8,
        6,
        5,
        3,
        2,
        0,
    ]
    assert diamond.trimmed(1.5)[0].h == 1
    assert diamond.trimmed(1.5)[1].h == 2


def test_the_support_is_that_of_the_graph():
    edges = make_diamond(5, 0.2, random_state=0).precision[PAIRS]
    np.testing.assert_array_equal(edges != 0, diamond.SUPPORT)


def test_the_table_counts_the_fits_that_have_the_true_support():
    alphas = [0.2, 0.05, 0.02]
    table = diamond.recovery(
        0.3, replicates=4, methods=METHODS, alphas=alphas, given_alpha=0.05, random_state=7
    )
    assert table.methods == tuple(METHODS)
    np.testing.assert_array_equal(table.alphas, alphas)
    draws = [make_diamond(100, 0.3, np.random.default_rng(s)).X for s in np.random.SeedSequence(7).spawn(4)]
    counted = []
    for name, penalties in METHODS.items():
        edges = [diamond.path(np.cov(X, rowvar=False, bias=True), penalties, alphas) for X in draws]
        right = np.array([[np.array_equal(np.flatnonzero(row == 0), [2]) for row in one] for one in edges])
        np.testing.assert_array_equal(table.recovered[name], right.any(axis=1))
        np.testing.assert_array_equal(table.counts[name], right.sum(axis=0))
        counted.append(right)
    assert 0 < np.mean(counted) < 1


def test_the_seed_decides_the_replicates():
    options = {"replicates": 9, "methods": METHODS, "alphas": [0.1, 0.05]}
    one, again, other = (diamond.recovery(0.3, random_state=seed, **options) for seed in (1, 1, 2))
    for name in METHODS:
        np.testing.assert_array_equal(one.recovered[name], again.recovered[name])
        np.testing.assert_array_equal(one.counts[name], again.counts[name])
    assert any(not np.array_equal(one.recovered[name], other.recovered[name]) for name in METHODS)


def test_trimming_nothing_is_the_graphical_lasso_and_is_fitted_once(monkeypatch):
    calls = []
    path = diamond.path
    monkeypatch.setattr(diamond, "path", lambda *given: calls.append(given) or path(*given))
    methods = {"glasso": (L1(),), "trimmed 1": diamond.trimmed(0), "trimmed 0.5": diamond.trimmed(4)}
    table = diamond.recovery(0.3, replicates=5, methods=methods, alphas=[0.05])
    assert len(calls) == 2 * 5
    np.testing.assert_array_equal(table.counts["glasso"], table.counts["trimmed 1"])


def test_the_shares_of_a_table():
    recovered = {"a": np.ones(4), "b": np.array([1, 0, 0, 0])}
    counts = {"a": np.array([3, 0, 1]), "b": np.array([0, 1, 1])}
    table = diamond.Recovery(0.1, np.array([0.3, 0.2, 0.1]), 0.1, recovered, counts)
    assert table.replicates == 4
    assert (table.any_alpha("a"), table.any_alpha("b")) == (1.0, 0.25)
    assert (table.fixed_alpha("a"), table.fixed_alpha("b")) == (0.25, 0.25)
    assert table.best_alpha("a") == (0.3, 0.75)
    assert table.best_alpha("b") == (0.2, 0.25)  # ties go to the larger alpha
    mean, error = table.difference("a", "b")
    assert mean == 0.75
    assert error == pytest.approx(np.std([0, 1, 1, 1], ddof=1) / 2)
    assert table.interval("b") == wilson(1, 4)


def test_wilsons_interval_holds_the_values_that_a_score_test_keeps():
    low, high = wilson(30, 80)
    for end in (low, high):
        assert abs(30 / 80 - end) == pytest.approx(1.959963984540054 * np.sqrt(end * (1 - end) / 80))
    assert low < 30 / 80 < high
    assert wilson(0, 10)[0] == pytest.approx(0.0, abs=1e-15)


def test_the_default_alpha_is_the_rate_of_theory():
    table = diamond.recovery(0.3, n_samples=50, replicates=2, methods=METHODS, alphas=[0.3])
    assert table.given_alpha == pytest.approx(np.sqrt(np.log(4) / 50))
    assert table.given_alpha in table.alphas


def test_trimming_the_true_number_recovers_more_where_incoherence_fails():
    methods = {"glasso": (L1(),), "trimmed": diamond.trimmed(5)}
    table = diamond.recovery(0.3, replicates=60, methods=methods, alphas=np.geomspace(0.2, 0.005, 12))
    gain, error = table.difference("trimmed", "glasso")
    assert gain > 3 * error


def test_wilson_ends_at_the_ends():
    assert wilson(0, 3)[0] == 0.0
    assert wilson(3, 3)[1] == 1.0
    assert 0.0 < wilson(1, 3)[0] < 1 / 3 < wilson(1, 3)[1] < 1.0
