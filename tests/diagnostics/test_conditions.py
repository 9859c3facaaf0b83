"""Incoherence and dual feasibility: against every set, written out another way, and against the solver."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from trimreg import L1, solve
from trimreg.datasets import covariance_m1, covariance_m2
from trimreg.diagnostics import WorstCase, dual_feasibility, incoherence
from trimreg.diagnostics.conditions import weighted_lasso
from trimreg.diagnostics.worst_case import search

SHAPES = [(8, (0, 3), 0), (8, (0, 3), 1), (8, (0, 3), 2), (8, (1, 4, 6), 4), (7, (), 2), (6, (2,), 5)]


def draw(seed, n=30, p=8, scales=None):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) + 0.7 * rng.standard_normal((n, 1))
    return X if scales is None else X * scales


def sets(p, h):
    return itertools.combinations(range(p), h)


def regressed(X, V, j):
    """The coefficients of a regression of a column on others, by least squares."""
    return np.linalg.lstsq(X[:, V], X[:, j], rcond=None)[0]


def brute_incoherence(X, S, h, penalized):
    p, worst = X.shape[1], 0.0
    for U in sets(p, h):
        V = sorted({*S, *U})
        counted = [i for i, v in enumerate(V) if not penalized or v not in U]
        for j in set(range(p)) - set(V):
            worst = max(worst, np.abs(regressed(X, V, j)[counted]).sum() if V else 0.0)
    return worst


@pytest.mark.parametrize("columns", ["all", "penalized"])
@pytest.mark.parametrize(("p", "S", "h"), SHAPES)
def test_incoherence_is_the_largest_over_all_sets(p, S, h, columns):
    for seed, scales in enumerate([None, np.geomspace(0.01, 100, p)]):
        X = draw(seed, p=p, scales=scales)
        found = incoherence(X, support=S, h=h, columns=columns)
        assert found.exact
        assert found.value == pytest.approx(brute_incoherence(X, S, h, columns == "penalized"), rel=1e-8)
        if found.feature >= 0 and found.value > 0:
            V = sorted({*S, *found.free})
            counted = [i for i, v in enumerate(V) if columns == "all" or v not in found.free]
            at_it = np.abs(regressed(X, V, found.feature)[counted]).sum()
            assert len(set(found.free)) == h
            assert at_it == pytest.approx(found.value, rel=1e-8)


def brute_dual(X, y, S, h, alpha):
    """By the library's solver on the columns of V, with factor 0 for those of U."""
    p, n, worst = X.shape[1], X.shape[0], 0.0
    for U in sets(p, h):
        V = sorted({*S, *U})
        rest = sorted(set(range(p)) - set(V))
        if not rest:
            continue
        residual = y
        if V:
            factor = [0.0 if v in U else 1.0 for v in V]
            fit = solve(X[:, V], y, penalty=L1(penalty_factor=factor), alpha=alpha, tol=1e-12)
            residual = y - X[:, V] @ fit.coef
        worst = max(worst, np.abs(X[:, rest].T @ residual).max() / n / alpha)
    return worst


@pytest.mark.parametrize("strength", [0.02, 0.5, 20.0])  # signs as in the truth; some wrong; all zero
@pytest.mark.parametrize(("p", "S", "h"), SHAPES)
def test_dual_feasibility_is_the_largest_over_all_sets(p, S, h, strength):
    X = draw(2, p=p)
    y = X[:, list(S)] @ np.linspace(1.0, -2.0, len(S)) + np.random.default_rng(3).standard_normal(30)
    found = dual_feasibility(X, y, support=S, h=h, alpha=strength)
    assert found.exact
    assert found.value == pytest.approx(brute_dual(X, y, S, h, strength), rel=1e-6)
    assert len(found.free) == h


def test_gram_and_moment_say_the_same_as_the_data():
    X = draw(4)
    y = X[:, 0] + np.random.default_rng(5).standard_normal(30)
    gram, moment = X.T @ X / 30, X.T @ y / 30
    a = dual_feasibility(X, y, support=[0], h=2, alpha=0.3)
    assert a == dual_feasibility(gram=gram, moment=moment, support=[0], h=2, alpha=0.3)
    mask = np.arange(8) == 0
    b = dual_feasibility(sp.csr_array(X), y, support=mask, h=2, alpha=0.3)
    assert b.value == pytest.approx(a.value)
    assert incoherence(X, support=[0], h=1) == incoherence(gram=gram, support=mask, h=1)


def test_what_is_free_cannot_make_the_lasso_infeasible():
    """Without noise and with U = S only: the trimmed penalty has no bias to be explained."""
    gram = covariance_m1(6, 4, 0.4)
    assert incoherence(gram=gram, support=range(4), h=0).value == pytest.approx(1.6)
    assert incoherence(gram=covariance_m2(9, 0.7), support=range(3), h=0).holds is True
    theta = np.repeat([1.0, 0.0], [4, 2])
    worst = dual_feasibility(gram=gram, moment=gram @ theta, support=range(4), h=5, alpha=0.1)
    assert worst.value == pytest.approx(0.0, abs=1e-12)  # U has five of the six features, so at most one pays


@pytest.mark.parametrize("method", ["sampling", "greedy"])
def test_searches_give_lower_bounds_and_say_so(method):
    X = draw(6, n=40, p=12)
    y = X[:, 0] - X[:, 1] + np.random.default_rng(7).standard_normal(40)
    for call in (
        lambda **how: incoherence(X, support=[0, 1], h=3, **how),
        lambda **how: dual_feasibility(X, y, support=[0, 1], h=3, alpha=0.2, **how),
    ):
        exact, found = call(method="exact"), call(method=method)
        assert found.how == method
        assert set(found.found) == {method}
        assert found.holds in (None, False)
        assert found.value <= exact.value * (1 + 1e-12)
        assert found.value >= 0.8 * exact.value  # neither is a poor one here
        assert found == call(method=method)
        both = call(max_sets=50)
        assert set(both.found) == {"sampling", "greedy"}
        assert both.value == max(both.found.values())


def test_the_greedy_search_ends_where_no_exchange_helps():
    X = draw(8, n=40, p=12)
    found = incoherence(X, support=[0], h=3, method="greedy")
    extra = [j for j in found.free if j != 0]
    for out, new in itertools.product(extra, set(range(1, 12)) - set(extra)):
        V = sorted({0, new, *extra} - {out})
        rows = [np.abs(regressed(X, V, j)).sum() for j in set(range(12)) - set(V)]
        assert max(rows) <= found.value * (1 + 1e-9)


def test_an_exchange_mends_what_growth_got_wrong():
    """Candidate 0 is the best alone, and not in the best pair."""
    value = {(): 0.0, (0,): 3.0, (1,): 2.0, (2,): 2.0, (0, 1): 4.0, (0, 2): 3.5, (1, 2): 10.0}

    def evaluate(which):
        return value[tuple(sorted(which))], which, -1

    found = search(evaluate, range(3), [2], draw=None, method="greedy", rng=None)
    assert (found.value, found.free, found.how) == (10.0, (1, 2), "greedy")
    assert search(evaluate, range(3), [2], draw=None, method="greedy", max_sets=0, rng=None).value == 4.0


def test_draws_have_the_size_asked_for_and_are_counted():
    X = draw(9)
    found = dual_feasibility(
        X, X[:, 0], support=[0], h=3, alpha=0.1, method="sampling", n_draws=17, random_state=1
    )
    assert (len(found.free), found.n_sets) == (3, 17)


@pytest.mark.parametrize("h", [1, 2])
def test_dependent_columns_are_the_worst(h):
    X = draw(10, p=6)
    X[:, 4] = X[:, 2]
    assert incoherence(X, support=[2], h=h).value == np.inf
    assert dual_feasibility(X, X[:, 2], support=[2], h=h, alpha=0.1).value == np.inf
    X[:, 4] = 0.0
    assert incoherence(X, support=[2], h=h).holds is False
    assert incoherence(X, support=[2], h=0).value < np.inf


def test_nothing_is_left_outside():
    X = draw(11, p=4)
    assert incoherence(X, support=[0, 1], h=4) == WorstCase(0.0, (0, 1, 2, 3), -1, "exact", 1, {"exact": 0.0})
    assert dual_feasibility(X, X[:, 0], support=[0], h=4, alpha=0.1).value == 0.0


def test_weighted_lasso_meets_its_conditions():
    rng = np.random.default_rng(12)
    for trial in range(200):
        p = int(rng.integers(1, 7))
        X = rng.standard_normal((p + 3, p)) + rng.standard_normal((p + 3, 1))
        G, c = X.T @ X, X.T @ rng.standard_normal(p + 3) * 10.0 ** rng.integers(-3, 4)
        levels = np.abs(c).max() * rng.choice([0.0, 0.1, 0.5, 1.0], size=p)
        theta = weighted_lasso(G, c, levels)
        slope, tol = c - G @ theta, 1e-8 * np.abs(c).max()
        on = theta != 0
        np.testing.assert_allclose(slope[on], (levels * np.sign(theta))[on], atol=tol, err_msg=str(trial))
        assert np.all(np.abs(slope[~on]) <= levels[~on] + tol)


GRAM = np.eye(4)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"support": [0], "h": -1}, "h must"),
        ({"support": [0], "h": 5}, "h must"),
        ({"support": [0], "h": True}, "h must"),
        ({"support": [0, 0], "h": 1}, "support"),
        ({"support": [4], "h": 1}, "support"),
        ({"support": [0.5], "h": 1}, "support"),
        ({"support": [True], "h": 1}, "support"),
        ({"support": [0], "h": 1, "method": "all"}, "method"),
        ({"support": [0], "h": 1, "columns": "free"}, "columns"),
        ({"support": [0], "h": 1, "gram": None}, "either X or gram"),
        ({"support": [0], "h": 1, "X": np.eye(4)}, "either X or gram"),
        ({"support": [0], "h": 1, "gram": np.ones((2, 3))}, "square"),
        ({"support": [0], "h": 1, "gram": np.full((4, 4), np.nan)}, "finite"),
    ],
)
def test_bad_input_is_named(arguments, word):
    with pytest.raises(ValueError, match=word):
        incoherence(**{"gram": GRAM} | arguments)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": np.nan}, "alpha"),
        ({"alpha": "exact"}, "alpha"),
        ({"moment": np.ones(3)}, "moment"),
        ({"moment": np.full(4, np.inf)}, "moment"),
        ({"gram": None, "moment": None, "X": np.eye(4)}, "go together"),
    ],
)
def test_bad_input_of_dual_feasibility_is_named(arguments, word):
    with pytest.raises(ValueError, match=word):
        dual_feasibility(
            **{"gram": GRAM, "moment": np.ones(4), "support": [0], "h": 1, "alpha": 1.0} | arguments
        )
