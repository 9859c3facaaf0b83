"""Information criteria against their formulas written out."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimreg.selection import CRITERIA, criterion_value, gaussian_deviance
from trimreg.selection.criteria import effective_df, log_binomial


def by_hand(name, deviance, df, n, p, gamma=1.0):
    price = {
        "aic": 2 * df,
        "bic": df * math.log(n),
        "ebic": df * math.log(n) + 2 * gamma * math.log(math.comb(p, df - 1)),
        "gic": df * math.log(math.log(n)) * math.log(p),
    }
    return deviance + price[name]


@given(
    name=st.sampled_from(CRITERIA),
    deviance=st.floats(-1e6, 1e6),
    df=st.integers(1, 15),
    n=st.integers(16, 10**6),
    p=st.integers(15, 3000),
    gamma=st.floats(0, 2),
)
@settings(derandomize=True, max_examples=150, deadline=None)
def test_formula(name, deviance, df, n, p, gamma):
    value = criterion_value(name, deviance, df, n, p, ebic_gamma=gamma)
    assert isinstance(value, float)
    expected = by_hand(name, deviance, df, n, p, gamma) if df < n else math.inf
    assert value == pytest.approx(expected, rel=1e-9, abs=1e-7)


@pytest.mark.parametrize(("p", "k"), [(1, 0), (1, 1), (7, 3), (7, 7), (1000, 500), (10**6, 3)])
def test_log_binomial_is_that_of_exact_integers(p, k):
    assert log_binomial(p, k) == pytest.approx(math.log(math.comb(p, k)), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", CRITERIA)
def test_arrays_are_the_scalars_in_a_row(name):
    deviance, df = np.array([[5.0, 4.0, 3.0], [1.0, 0.0, -9.0]]), np.array([1, 2, 9])
    value = criterion_value(name, deviance, df, n=9, p=20)
    assert value.shape == (2, 3)
    for i, j in np.ndindex(2, 3):
        assert value[i, j] == criterion_value(name, deviance[i, j], df[j], n=9, p=20)
    assert np.isposinf(value[:, 2]).all()
    assert np.isfinite(value[:, :2]).all()


@pytest.mark.parametrize("name", CRITERIA)
@pytest.mark.parametrize("deviance", [-np.inf, np.nan, -1e300, 0.0])
def test_a_fit_that_interpolates_is_never_best(name, deviance):
    assert criterion_value(name, deviance, 10, n=10, p=50) == np.inf
    assert criterion_value(name, deviance, 11, n=10, p=50) == np.inf
    below = criterion_value(name, deviance, 9, n=10, p=50)
    assert below < np.inf or (np.isnan(deviance) and np.isnan(below))


@pytest.mark.parametrize("n", [2, 3, 5, 15])
@pytest.mark.parametrize("p", [1, 2, 3])
def test_gic_has_a_floor_where_its_logarithms_fall_short(n, p):
    values = criterion_value("gic", np.zeros(2), np.array([0, 1]), n, p)
    assert values[1] - values[0] == pytest.approx(max(math.log(p), 1.0))


def test_gic_is_the_published_one_from_16_samples_and_3_features_on():
    assert criterion_value("gic", 0.0, 1, 16, 3) == pytest.approx(math.log(math.log(16)) * math.log(3))


def test_ebic_of_gamma_0_is_bic_and_grows_with_gamma():
    rest = {"deviance": 12.0, "df": 4, "n": 30, "p": 100}
    assert criterion_value("ebic", ebic_gamma=0, **rest) == criterion_value("bic", **rest)
    assert criterion_value("ebic", ebic_gamma=1, **rest) > criterion_value("ebic", ebic_gamma=0.5, **rest)
    assert criterion_value("ebic", **rest) == criterion_value("ebic", ebic_gamma=1.0, **rest)


def test_n_selected_counts_groups_and_tasks():
    value = criterion_value("ebic", 0.0, 7, n=100, p=10, n_selected=2)
    assert value == pytest.approx(7 * math.log(100) + 2 * math.log(45))
    with pytest.raises(ValueError, match="n_selected must be at most p = 3"):
        criterion_value("ebic", 0.0, 7, n=100, p=3)  # df - 1 = 6 features of 3


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"name": "BIC"}, "criterion"),
        ({"name": None}, "criterion"),
        ({"n": 0}, "n must be"),
        ({"n": np.nan}, "n must be"),
        ({"p": 0}, "p must be"),
        ({"p": 2.5}, "p must be"),
        ({"df": -1}, "df must be"),
        ({"df": 1.5}, "n_selected must be integers"),
        ({"df": np.inf}, "df must be"),
        ({"df": [1, np.nan]}, "df must be"),
        ({"df": "2"}, "df must be"),
        ({"deviance": "low"}, "deviance"),
        ({"ebic_gamma": -0.1}, "ebic_gamma"),
        ({"n_selected": 6}, "n_selected"),
        ({"n_selected": -1}, "n_selected"),
    ],
)
def test_bad_input_is_named(change, match):
    arguments = {"name": "ebic", "deviance": 1.0, "df": 2, "n": 10, "p": 5, **change}
    with pytest.raises(ValueError, match=match):
        criterion_value(**arguments)


@pytest.mark.parametrize("n", [5, 40])
def test_gaussian_deviance_is_the_likelihood_at_the_best_variance(n):
    residual = np.random.default_rng(n).standard_normal(n) * 3.0
    mse = np.mean(residual**2)

    def minus_two_log_likelihood(variance):
        return np.sum(np.log(2 * np.pi * variance) + residual**2 / variance)

    value = gaussian_deviance(mse, n)
    assert value == pytest.approx(minus_two_log_likelihood(mse))
    assert value < minus_two_log_likelihood(mse * 1.01)
    assert value < minus_two_log_likelihood(mse * 0.99)
    np.testing.assert_allclose(gaussian_deviance([mse, 2 * mse], n), value + np.array([0, n * np.log(2)]))


def test_gaussian_deviance_at_the_edges():
    assert gaussian_deviance(0.0, 10) == -np.inf
    assert np.isnan(gaussian_deviance(np.nan, 10))
    assert np.isfinite(gaussian_deviance([1e-300, 1e300], 10)).all()
    with pytest.raises(ValueError, match="mean_squared_error"):
        gaussian_deviance([1.0, -1e-9], 10)
    with pytest.raises(ValueError, match="n must be"):
        gaussian_deviance(1.0, 0)


@pytest.mark.parametrize("l2", [0.0, 0.3, 5.0])
def test_effective_degrees_of_freedom_are_the_trace_of_the_hat_matrix(l2):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 4)) @ rng.standard_normal((4, 4))
    hat = X @ np.linalg.solve(X.T @ X / 30 + l2 * np.eye(4), X.T) / 30
    assert effective_df(X.T @ X / 30, np.full(4, l2)) == pytest.approx(np.trace(hat))


def test_a_redundant_direction_counts_only_once():
    H = np.array([[2.0, 2.0], [2.0, 2.0]])  # two equal columns
    assert effective_df(H, np.zeros(2)) == pytest.approx(1.0)
    assert effective_df(H, np.ones(2)) == pytest.approx(4 / 5)
    assert effective_df(np.zeros((0, 0)), np.zeros(0)) == 0.0
    assert criterion_value("ebic", 0.0, 4 / 5, 10, 6, n_selected=2) == pytest.approx(
        0.8 * math.log(10) + 2 * math.log(15)
    )
