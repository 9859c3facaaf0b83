"""Covariances from data: against SciPy and scikit-learn, invariances, copulas, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from sklearn.covariance import empirical_covariance
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

from trimreg.graphs import covariances
from trimreg.graphs.covariances import (
    Nonparanormal,
    constant_columns,
    covariance_of,
    duplicate_columns,
    kendall,
    nearest_correlation,
    spearman,
)

RANKS = ("spearman", "kendall")


def correlated(n, p, seed=0, noise=1.0):
    """Gaussian columns with a factor in common, and their correlations."""
    rng = np.random.default_rng(seed)
    loading = rng.uniform(-1.0, 1.0, p)
    X = rng.standard_normal(n)[:, None] * loading + noise * rng.standard_normal((n, p))
    C = np.outer(loading, loading) + noise**2 * np.eye(p)
    deviation = np.sqrt(np.diag(C))
    return X, C / np.outer(deviation, deviation)


#: Few values, so that there are many ties; no constant columns.
tied = arrays(float, st.tuples(st.integers(3, 25), st.integers(2, 4)), elements=st.integers(-2, 2)).filter(
    lambda X: np.ptp(X, axis=0).min() > 0
)


# -- Pearson ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("assume_centered", [False, True])
@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e100])
def test_pearson_is_scikit_learns(assume_centered, scale):
    X = scale * (correlated(30, 5)[0] + 3.0)
    S, location, deviation = covariance_of(X, assume_centered=assume_centered)
    expected = empirical_covariance(X, assume_centered=assume_centered)
    np.testing.assert_allclose(S, expected, rtol=1e-10, atol=1e-12 * scale**2)
    assert np.array_equal(S, S.T)
    np.testing.assert_allclose(location, np.zeros(5) if assume_centered else X.mean(axis=0))
    np.testing.assert_allclose(deviation, np.sqrt(np.diag(expected)))


def test_whole_numbers_and_single_precision_become_double():
    X = np.array([[0, 1], [2, 5], [4, 3]])
    expected = np.array([[8.0, 4.0], [4.0, 8.0]]) / 3
    for kind in (int, np.float32):
        result = covariance_of(X.astype(kind))
        assert result.covariance.dtype == result.location.dtype == np.float64
        np.testing.assert_allclose(result.covariance, expected)


def test_a_constant_column_has_no_variance_at_all():
    X = np.column_stack([np.full(7, 0.1), np.arange(7.0)])
    assert X[:, 0].mean() != 0.1  # or the test says nothing
    S, location, scale = covariance_of(X)
    assert S[0].tolist() == [0.0, 0.0]
    assert location[0] == 0.1
    assert scale[0] == 0.0


# -- ranks --------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(tied)
def test_rank_correlations_are_scipys(X):
    r, tau = spearman(X), kendall(X)
    by_pairs = covariances._kendall_by_pairs(X)
    for matrix in (r, tau, by_pairs):
        assert np.array_equal(np.diag(matrix), np.ones(X.shape[1]))
        assert np.array_equal(matrix, matrix.T)
    for j in range(X.shape[1]):
        for k in range(j):
            assert r[j, k] == pytest.approx(stats.spearmanr(X[:, j], X[:, k]).statistic, abs=1e-12)
            expected = stats.kendalltau(X[:, j], X[:, k]).statistic  # tau-b
            assert tau[j, k] == pytest.approx(expected, abs=1e-12)
            assert by_pairs[j, k] == pytest.approx(expected, abs=1e-12)


def test_many_samples_go_by_pairs(monkeypatch):
    X, _ = correlated(covariances.SIGNS_UP_TO + 1, 3)
    monkeypatch.setattr(covariances, "_kendall_by_signs", None)
    tau = kendall(X)
    assert tau[0, 2] == pytest.approx(stats.kendalltau(X[:, 0], X[:, 2]).statistic)


@pytest.mark.parametrize("kind", RANKS)
def test_the_copulas_correlations_are_found(kind):
    X, truth = correlated(3900, 5, seed=1, noise=0.4)
    S, location, scale = covariance_of(np.exp(X) + 7.0, kind=kind)
    assert np.abs(S - truth).max() < 0.05
    # Untransformed rank correlations are smaller: the sines matter.
    raw = spearman(X) if kind == "spearman" else kendall(X)
    assert np.abs(S - truth).max() < np.abs(raw - truth).max()
    np.testing.assert_allclose(location, (np.exp(X) + 7.0).mean(axis=0))
    np.testing.assert_allclose(scale, np.exp(X).std(axis=0))
    assert np.array_equal(covariance_of(X, kind=kind, assume_centered=True).location, np.zeros(5))


def nonparanormal(X):
    return Nonparanormal().fit_transform(X)


def sines(X, kind):
    """The correlations of the copula before the projection."""
    if kind == "spearman":
        return 2 * np.sin(np.pi / 6 * spearman(X))
    return np.sin(np.pi / 2 * kendall(X))


@pytest.mark.parametrize("kind", RANKS)
def test_formulas_of_the_copula(kind):
    X, _ = correlated(60, 3, seed=2)
    S = covariance_of(X, kind=kind).covariance
    np.testing.assert_allclose(S, sines(X, kind), atol=1e-14)
    assert np.array_equal(np.diag(S), np.ones(3))


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(tied, st.sampled_from([1e-150, 1.0, 1e150]))
def test_increasing_functions_change_nothing(X, scale):
    Y = scale * (X**3 + X)
    for kind in RANKS:
        assert np.array_equal(covariance_of(X, kind=kind).covariance, covariance_of(Y, kind=kind).covariance)
    assert np.array_equal(nonparanormal(X), nonparanormal(Y))
    # and a decreasing one turns signs
    Z = X.copy()
    Z[:, 0] = -np.exp(Z[:, 0])
    for function in (spearman, kendall):
        flipped = function(Z)
        flipped[0, 1:] *= -1
        flipped[1:, 0] *= -1
        np.testing.assert_allclose(flipped, function(X), atol=1e-12)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(arrays(float, (4, 5), elements=st.integers(-3, 3)).filter(lambda X: np.ptp(X, axis=0).min() > 0))
def test_rank_versions_are_correlation_matrices(X):
    for kind in RANKS:
        S = covariance_of(X, kind=kind).covariance
        assert np.array_equal(np.diag(S), np.ones(5))
        assert np.array_equal(S, S.T)
        assert np.abs(S).max() <= 1.0
        assert np.linalg.eigvalsh(S)[0] > -1e-13


# -- the nearest correlation matrix -------------------------------------------------------------------------


def test_a_correlation_matrix_is_left_as_it_is():
    _, R = correlated(2, 6)
    assert nearest_correlation(R) is R
    ones = np.ones((6, 6))  # singular: its eigenvalues are zero up to rounding
    assert nearest_correlation(ones) is ones


def test_an_indefinite_matrix_is_clipped_and_rescaled():
    rng = np.random.default_rng(0)
    for _ in range(20):
        A = rng.uniform(-1.0, 1.0, (6, 6))
        R = np.triu(A, 1) + np.triu(A, 1).T + np.eye(6)
        assert np.linalg.eigvalsh(R)[0] < -0.01
        before = R.copy()
        nearest = nearest_correlation(R)
        assert np.array_equal(R, before)
        values, vectors = np.linalg.eigh(R)
        positive = sum(v * np.outer(u, u) for v, u in zip(values, vectors.T, strict=True) if v > 0)
        deviation = np.sqrt(np.diag(positive))
        assert deviation.min() >= 1.0
        np.testing.assert_allclose(nearest, positive / np.outer(deviation, deviation), atol=1e-12)
        assert np.linalg.eigvalsh(nearest)[0] > -1e-14
        assert np.array_equal(np.diag(nearest), np.ones(6))
        np.testing.assert_allclose(nearest_correlation(nearest), nearest, atol=1e-14)


def test_covariance_of_projects():
    # Rank correlations of few samples whose sines are indefinite.
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5, 12))
    for kind in RANKS:
        assert np.linalg.eigvalsh(sines(X, kind))[0] < -0.01
        assert np.linalg.eigvalsh(covariance_of(X, kind=kind).covariance)[0] > -1e-13


# -- normal scores ------------------------------------------------------------------------------------------


def test_scores_by_hand():
    n = 50
    x = np.random.default_rng(3).permutation(np.arange(n)).astype(float)
    delta = 1 / (4 * n**0.25 * np.sqrt(np.pi * np.log(n)))
    assert delta > 1 / n  # so that the least value is cut too
    z = stats.norm.ppf(np.clip((x + 1) / n, delta, 1 - delta))
    np.testing.assert_allclose(nonparanormal(x[:, None])[:, 0], (z - z.mean()) / z.std(), atol=1e-12)


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(tied)
def test_scores_keep_order_and_ties(X):
    Z = nonparanormal(X)
    n = len(X)
    delta = 1 / (4 * n**0.25 * np.sqrt(np.pi * np.log(n)))
    np.testing.assert_allclose(Z.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(Z.std(axis=0), 1.0)
    for x, z in zip(X.T, Z.T, strict=True):
        order = np.argsort(x, kind="stable")
        assert (np.diff(z[order]) >= 0).all()
        assert (np.diff(z[order])[np.diff(x[order]) == 0] == 0).all()
        middle = stats.norm.ppf(np.clip(stats.rankdata(x) / n, delta, 1 - delta))  # ties by average ranks
        np.testing.assert_allclose(z, (middle - middle.mean()) / middle.std(), atol=1e-12)


def test_new_samples_are_placed_between_the_old():
    rng = np.random.default_rng(0)
    X = rng.exponential(size=(80, 3))
    model = Nonparanormal().fit(X)
    Z = model.transform(X)
    assert np.array_equal(model.transform(X[[5, 5, 2]]), Z[[5, 5, 2]])
    low, high = model.transform(np.full((1, 3), -9.0)), model.transform(np.full((1, 3), 1e9))
    assert np.array_equal(low[0], Z.min(axis=0))
    assert np.array_equal(high[0], Z.max(axis=0))
    # halfway between two neighbours the distribution function is halfway
    first, second = np.sort(X[:, 0])[[40, 41]]
    middle = model.transform(np.full((1, 3), (first + second) / 2))[0, 0]
    level = stats.norm.cdf(middle * model.scale_[0] + model.mean_[0])
    assert level == pytest.approx(41.5 / 80)
    grid = model.transform(np.repeat(np.linspace(-1, 8, 300)[:, None], 3, axis=1))
    assert (np.diff(grid, axis=0) >= 0).all()


def test_scores_of_other_samples_of_the_copula_are_gaussian():
    X, _ = correlated(4000, 2, seed=2)
    Z = Nonparanormal().fit(np.exp(X[:2000])).transform(np.exp(X[2000:]))
    expected = (X[2000:] - X[:2000].mean(axis=0)) / X[:2000].std(axis=0)
    inside = np.abs(expected) < 2  # beyond, scores are winsorized
    assert np.abs(Z - expected)[inside].mean() < 0.04


@pytest.mark.parametrize("seed", range(3))
def test_scores_recover_a_copula_better_than_pearson(seed):
    X, truth = correlated(400, 6, seed=seed, noise=0.5)
    Y = np.exp(2.0 * X)
    npn, location, scale = covariance_of(nonparanormal(Y))
    np.testing.assert_allclose(np.diag(npn), 1.0)
    np.testing.assert_allclose(location, 0.0, atol=1e-12)
    np.testing.assert_allclose(scale, 1.0)
    error = np.abs(npn - truth).max()
    assert error < 0.15
    assert 2 * error < np.abs(np.corrcoef(Y.T) - truth).max()


def test_estimator_checks():
    check_estimator(Nonparanormal(), on_skip=None)


# -- columns that carry nothing -----------------------------------------------------------------------------


def test_constant_columns():
    X = np.array([[1.0, 0.1, 0.0, -5.0], [1.0 + 1e-15, 0.1, 0.0, -5.0], [1.0, 0.1, -0.0, -5.0]])
    assert constant_columns(X).tolist() == [1, 2, 3]
    assert constant_columns(X[:, :1]).size == 0


def test_duplicate_columns():
    rng = np.random.default_rng(50)
    x, y = rng.standard_normal((2, 50))
    near = x + 1e-6 * y  # correlation 1 - 5e-13: close, and not the same
    S = covariance_of(np.column_stack([x, y, x, np.full(50, 0.1), near])).covariance
    assert duplicate_columns(S).tolist() == [[0, 2]]


def test_duplicates_of_a_covariance():
    S = np.diag([4.0, 9.0, 0.0, 1.0])
    assert duplicate_columns(S).shape == (0, 2)
    S[0, 1] = S[1, 0] = -6.0
    S[0, 3] = S[3, 0] = 2.0 * (1 - 1e-12)
    assert duplicate_columns(S).tolist() == [[0, 1]]
    assert duplicate_columns(S * 1e200).tolist() == [[0, 1]]


# -- what is refused ----------------------------------------------------------------------------------------

GOOD = np.random.default_rng(0).standard_normal((6, 3))
CONSTANT = np.column_stack([GOOD, np.ones(6)])
HOLED = np.where(GOOD.max() == GOOD, np.nan, GOOD)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: covariance_of(GOOD * 1e200), "^X is too large"),
        (lambda: nonparanormal(CONSTANT), r"^X must have no constant .*\[3\]"),
        (lambda: nonparanormal(HOLED), "X contains NaN"),
        (lambda: nonparanormal(GOOD[:1]), "1 sample"),
        (lambda: Nonparanormal().fit(GOOD).transform(GOOD[:, :2]), "X has 2 features"),
    ],
)
def test_bad_arguments_are_named(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_a_transform_must_be_fitted():
    with pytest.raises(NotFittedError):
        Nonparanormal().transform(GOOD)
