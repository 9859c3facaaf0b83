"""Graphical models of bad input: ill-conditioned, tied, singular, with edges that are free or excluded."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from trimreg import L1, MCP, SCAD, TrimmedL1
from trimreg.diagnostics import certify_graph
from trimreg.graphs.mm.inner import largest_safe_h
from trimreg.graphs.solve import solve_graphical


def quietly(S, **how):
    """The result, and whether it warned that it did not converge; any other warning is an error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        warnings.simplefilter("always", ConvergenceWarning)
        result = solve_graphical(S, **how)
    return result, bool(caught)


def assert_sound(result, S):
    """Finite, symmetric, and positive definite in units in which its diagonal is one."""
    precision = result.precision
    assert np.isfinite(precision).all()
    assert np.isfinite(result.covariance).all()
    assert np.isfinite(result.objective)
    assert np.array_equal(precision, precision.T)
    np.linalg.cholesky(precision)
    root = np.sqrt(np.diagonal(precision))
    assert np.linalg.eigvalsh(precision / np.outer(root, root))[0] > -1e-14 * len(S)


def ill_conditioned(rng):
    """A covariance of 2 to 20 variables with a condition of up to 1e12, half of them in odd units."""
    p = int(rng.integers(2, 21))
    Q = np.linalg.qr(rng.standard_normal((p, p)))[0]
    condition = 10.0 ** rng.uniform(0, 12)
    values = np.exp(rng.uniform(-np.log(condition), 0, p))
    values[0], values[-1] = 1.0, 1 / condition
    S = (Q * values) @ Q.T
    if rng.random() < 0.5:
        scale = 10.0 ** rng.uniform(-3, 3, p)
        S = S * np.outer(scale, scale)
    return (S + S.T) / 2


def as_correlation(S):
    deviation = np.sqrt(np.diagonal(S))
    R = S / np.outer(deviation, deviation)
    R = (R + R.T) / 2
    np.fill_diagonal(R, 1.0)
    return R


@pytest.mark.parametrize("part", range(2))
def test_two_hundred_ill_conditioned_matrices(part):
    warned = 0
    for seed in range(100 * part, 100 * (part + 1)):
        rng = np.random.default_rng(seed)
        S = ill_conditioned(rng)
        R = as_correlation(S)
        safe, dependent = largest_safe_h(R)
        kind, alpha = rng.integers(4), ["exact", 0.1, 1e-3, 0.0][rng.integers(4)]
        if alpha == 0.0 and dependent is not None:
            alpha = 1e-3
        if alpha == "exact" and kind:
            alpha = 0.1
        penalty = [TrimmedL1(h=int(rng.integers(safe + 1))), L1(), MCP(), SCAD()][kind]
        effort = "medium" if len(S) <= 10 and seed % 2 else "low"
        try:
            result, warns = quietly(S, penalty=penalty, alpha=alpha, standardize=True, effort=effort)
        except ValueError as error:
            # A bounded penalty of a singular matrix: there is no minimum, and that is said.
            assert "unbounded below" in str(error)  # noqa: PT017
            assert kind >= 2
            assert dependent is not None
            continue
        assert_sound(result, S)
        assert result.converged != warns
        if warns:
            warned += 1
            assert np.linalg.cond(R) > 1e8
        else:
            assert result.dual_gap <= 1e-8
    assert warned <= 8  # double precision cannot do better where the condition is above 1e9


# -- odd matrices ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [2, 3, 6, 24, 25])
def test_equal_correlations(p):
    """Every graph with h edges may be as good as another: ties everywhere."""
    for s in (0.5, 0.99, -0.9 / (p - 1)):
        S = np.full((p, p), s) + (1 - s) * np.eye(p)
        for h in (0, 1, p - 1):
            for alpha in ("exact", 0.05):
                result, warns = quietly(S, penalty=TrimmedL1(h=h), alpha=alpha, effort="low")
                assert not warns
                assert_sound(result, S)
                if alpha == "exact":
                    assert np.count_nonzero(np.triu(result.precision, 1)) <= h


@pytest.mark.parametrize("p", [2, 5, 30])
@pytest.mark.parametrize("penalty", [TrimmedL1(h=1), L1(), MCP(), SCAD()])
def test_identity(p, penalty):
    result, warns = quietly(np.eye(p), penalty=penalty, alpha=0.1)
    assert not warns
    assert np.allclose(result.precision, np.eye(p), atol=1e-9)
    assert result.objective == pytest.approx(p)


def test_perfectly_correlated_pairs_without_free_edges():
    S = np.eye(4)
    S[0, 1] = S[1, 0] = 1.0
    S[2, 3] = S[3, 2] = -1.0
    for penalty in (TrimmedL1(h=0), L1()):
        result, warns = quietly(S, penalty=penalty, alpha=0.2)
        assert not warns
        assert result.covariance[0, 1] == pytest.approx(0.8, abs=1e-6)  # shrunk by alpha
        assert result.covariance[2, 3] == pytest.approx(-0.8, abs=1e-6)
    exact, _ = quietly(S, penalty=TrimmedL1(h=0), alpha="exact")
    assert np.allclose(exact.precision, np.eye(4))


def test_exact_zeros_stay_zero():
    S = np.kron(np.eye(3), np.array([[1.0, 0.6, 0.5], [0.6, 1.0, 0.4], [0.5, 0.4, 1.0]]))
    result, _ = quietly(S, penalty=TrimmedL1(h=36), alpha=0.1)
    across = np.kron(np.eye(3), np.ones((3, 3))) == 0
    assert not np.any(np.abs(result.precision[across]) > 1e-12)
    assert np.allclose(result.precision, np.linalg.inv(S), atol=1e-7)


@pytest.mark.parametrize("p", [24, 25])  # on either side of where LAPACK takes over
def test_the_border_of_small_blocks(p):
    rng = np.random.default_rng(p)
    S = np.corrcoef(rng.standard_normal((p + 1, p)), rowvar=False)  # n = p + 1
    result, warns = quietly(S, penalty=TrimmedL1(h=20), alpha=0.3, effort="low")
    assert not warns
    assert_sound(result, S)
    assert certify_graph(S, result.precision, penalty=TrimmedL1(h=20), alpha=0.3, tol=2e-4)


def test_a_hundred_variables_in_blocks():
    rng = np.random.default_rng(0)
    S = np.eye(100)
    for first in range(0, 100, 5):
        block = slice(first, first + 5)
        S[block, block] = np.corrcoef(rng.standard_normal((20, 5)), rowvar=False)
    result, warns = quietly(S, penalty=TrimmedL1(h=60), alpha=0.1, effort="low")
    assert not warns
    assert_sound(result, S)
    inside = np.kron(np.eye(20), np.ones((5, 5))) == 1
    assert not result.precision[~inside].any()
    assert certify_graph(S, result.precision, penalty=TrimmedL1(h=60), alpha=0.1, tol=2e-4)


@pytest.mark.parametrize("seed", range(6))
def test_mixtures_of_free_and_excluded_edges(seed):
    rng = np.random.default_rng(seed)
    p, m = 7, 21
    S = np.cov(rng.standard_normal((40, p)) @ rng.standard_normal((p, p)), rowvar=False)
    factor = rng.choice([0.0, 0.5, 1.0, 3.0, np.inf], m)
    matrix = np.zeros((p, p))
    matrix[np.triu_indices(p, 1)] = factor
    matrix += matrix.T
    for penalty in (
        TrimmedL1(h=3, penalty_factor=matrix),
        MCP(penalty_factor=factor),
        L1(penalty_factor=factor),
    ):
        result, warns = quietly(S, penalty=penalty, alpha=0.2)
        assert not warns
        assert_sound(result, S)
        edges = result.precision[np.triu_indices(p, 1)]
        assert not edges[np.isinf(factor)].any()
        assert np.all(edges[factor == 0] != 0)
        free = np.isclose(result.covariance, S, rtol=1e-3, atol=1e-3 * np.diagonal(S).min())
        assert np.all(free[np.triu_indices(p, 1)][factor == 0])
    exact, _ = quietly(S, penalty=TrimmedL1(h=3, penalty_factor=factor), alpha="exact")
    penalized = (factor > 0) & np.isfinite(factor)
    assert np.count_nonzero(exact.precision[np.triu_indices(p, 1)][penalized]) <= 3


@pytest.mark.parametrize("factor", [0.0, np.inf])
def test_all_edges_of_one_kind(factor):
    S = np.corrcoef(np.random.default_rng(0).standard_normal((30, 4)), rowvar=False)
    expected = np.linalg.inv(S) if factor == 0 else np.eye(4)
    for penalty in (TrimmedL1(h=0, penalty_factor=[factor] * 6), L1(penalty_factor=[factor] * 6)):
        result, warns = quietly(S, penalty=penalty, alpha=0.3)
        assert not warns
        assert np.allclose(result.precision, expected, atol=1e-8)


# -- singular matrices ----------------------------------------------------------------------------------


def singular(n, p, seed=0):
    return np.corrcoef(np.random.default_rng(seed).standard_normal((n, p)), rowvar=False)


def test_every_safe_h_of_a_singular_matrix_works():
    for n, p in ((3, 6), (4, 8), (5, 12)):
        S = singular(n, p)
        safe = n * (n - 1) // 2 - 1
        for h in {0, 1, safe}:
            for alpha in ("exact", 0.1):
                result, warns = quietly(S, penalty=TrimmedL1(h=h), alpha=alpha, effort="low")
                assert not warns
                assert_sound(result, S)
        with pytest.raises(ValueError, match=f"largest safe h is {safe};"):
            solve_graphical(S, penalty=TrimmedL1(h=safe + 1), alpha=0.1)
        ridge, warns = quietly(S, penalty=TrimmedL1(h=p * (p - 1) // 2), alpha=0.1, shrinkage=0.05)
        assert not warns
        assert np.allclose(ridge.precision, np.linalg.inv(0.95 * S + 0.05 * np.eye(p)), atol=1e-6)


def test_what_makes_it_singular_is_named():
    X = np.random.default_rng(0).standard_normal((40, 5))
    copies = np.cov(np.column_stack([X, 2 * X[:, 1]]), rowvar=False)
    with pytest.raises(ValueError, match=r"2 variables 1, 5 are copies .* largest safe h is 0;.*shrinkage"):
        solve_graphical(copies, penalty=TrimmedL1(h=1), alpha=0.1)
    sums = np.cov(np.column_stack([X, X[:, 0] - X[:, 3]]), rowvar=False)
    with pytest.raises(
        ValueError, match=r"3 variables 0, 3, 5 are linearly dependent.* largest safe h is 2;"
    ):
        solve_graphical(sums, penalty=TrimmedL1(h=3), alpha=0.1)
    assert_sound(quietly(sums, penalty=TrimmedL1(h=2), alpha=0.1)[0], sums)
    with pytest.raises(ValueError, match="edges that are never penalized"):
        solve_graphical(copies, penalty=L1(), alpha=0.0)


@pytest.mark.parametrize("penalty", [MCP(), SCAD()])
def test_bounded_penalties_of_singular_matrices_say_that_there_is_no_minimum(penalty):
    for S in (np.ones((3, 3)), singular(4, 8)):
        with pytest.raises(ValueError, match=r"unbounded below.*shrinkage"):
            solve_graphical(S, penalty=penalty, alpha=1e-3)
        result, _ = quietly(S, penalty=penalty, alpha=1e-3, shrinkage=0.1)
        assert_sound(result, S)


def test_a_float32_precision_of_near_copies_is_positive_definite():
    kept = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((40, 2))
        X[:, 1] = X[:, 0] + 4e-4 * rng.standard_normal(40)
        S = np.cov(X, rowvar=False).astype(np.float32)
        if np.linalg.eigvalsh(S.astype(float))[0] < 3e-8:
            continue  # rounding to float32 made them copies, which are refused
        result, _ = quietly(S, penalty=TrimmedL1(h=1), alpha="exact")
        assert np.linalg.eigvalsh(result.precision.astype(float))[0] > 0
        kept.append(result.precision.dtype)
    assert len(kept) > 30
    assert 0 < kept.count(np.float64) < len(kept)  # float32 where that is enough


def test_a_warning_says_that_rounding_ends_a_nearly_singular_fit():
    S = np.cov(np.random.default_rng(4).standard_normal((5, 12)), rowvar=False, bias=True)
    with pytest.warns(ConvergenceWarning, match=r"nearly singular, and alpha is too small .*Raise tol, a"):
        result = solve_graphical(S, penalty=TrimmedL1(0), alpha=1e-7)
    assert result.dual_gap < 1e-3
