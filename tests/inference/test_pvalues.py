"""Aggregation and rejections, against slow formulas."""

import numpy as np
import pytest

from trimreg.inference import adaptive_quantile, e_bh
from trimreg.inference.pvalues import aggregated_intervals, dependent_bh, quantile_counts


@pytest.mark.parametrize(("n_splits", "gamma_min"), [(20, 0.05), (7, 0.3), (50, 0.2), (2, 0.5)])
def test_the_aggregate_is_the_least_over_a_fine_grid_of_quantiles(n_splits, gamma_min):
    values = np.random.default_rng(n_splits).random((n_splits, 5)) ** 4 / 10
    grid = np.append(np.linspace(gamma_min, 1, 20001), np.arange(1, n_splits + 1) / n_splits)
    grid = grid[grid >= gamma_min]
    for j, found in enumerate(adaptive_quantile(values, gamma_min)):
        ranked = np.sort(values[:, j])
        quantiles = [ranked[max(int(np.ceil(g * n_splits - 1e-9)) - 1, 0)] / g for g in grid]
        assert found == pytest.approx(min(1, (1 - np.log(gamma_min)) * min(quantiles)), rel=1e-9)


def test_one_split_is_itself():
    np.testing.assert_array_equal(adaptive_quantile([[0.3, 0.01]]), [0.3, 0.01])


def test_aggregates_of_null_hypotheses_are_not_too_small():
    """For dependent splits: a shared part and one of each."""
    rng = np.random.default_rng(0)
    from scipy.stats import norm

    z = 0.8 * rng.standard_normal((1, 4000)) + 0.6 * rng.standard_normal((20, 4000))
    found = adaptive_quantile(2 * norm.sf(np.abs(z)))
    for level in (0.05, 0.2):
        assert np.mean(found <= level) < level


def test_intervals_hold_what_no_aggregate_rejects():
    from scipy.stats import t

    rng = np.random.default_rng(1)
    center, error, dof, B, gamma = rng.normal(0, 1, 12), np.exp(rng.normal(0, 0.3, 12)), 9.0, 12, 0.1
    error[[2, 7]] = np.inf
    center[[2, 7]] = 0.0
    counts, price = quantile_counts(B, gamma)
    half = t.isf(0.1 * counts / B / price / 2, dof)[:, None] * error
    low, high = (ends[0] for ends in aggregated_intervals(
        (center - half)[:, :, None], (center + half)[:, :, None], counts))  # fmt: skip
    values = np.linspace(-12, 12, 4001)
    tests = np.array([2 * t.sf(np.abs(center - b) / error, dof) for b in values]).T
    kept = values[adaptive_quantile(tests, gamma) > 0.1]
    assert kept.min() == pytest.approx(low, abs=0.01)
    assert kept.max() == pytest.approx(high, abs=0.01)


def test_e_bh_by_hand():
    evalues = np.array([9.0, 0.0, 21.0, 45.0, 12.0])  # p / (q k) = 50, 25, 16.7, 12.5, 10 for q = 0.1
    np.testing.assert_array_equal(e_bh(evalues, 0.1), [False] * 5)
    np.testing.assert_array_equal(e_bh(evalues, 0.2), [True, False, True, True, True])
    np.testing.assert_array_equal(e_bh(np.array([13.0, 14.0, 0.0, 20.0, 25.0]), 0.1), [1, 1, 0, 1, 1])
    assert not e_bh(np.zeros(3), 0.5).any()


def test_false_discoveries_of_corrected_pvalues():
    p = np.array([0.001, 0.004, 0.5, 1.0, 1.0])
    price = (1 / np.arange(1, 6)).sum()
    found = dependent_bh(p)
    np.testing.assert_allclose(found[:3], [0.001 * price, 0.002 * price, 0.5 / 3 * price])
    assert (found[3:] == 1).all()  # 1 may stand for any larger number


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: adaptive_quantile([0.1, 0.2]), "pvalues must be a matrix"),
        (lambda: adaptive_quantile([[1.1]]), "pvalues must be a matrix of numbers from 0 to 1"),
        (lambda: adaptive_quantile([[0.1]], 1.0), "gamma_min"),
        (lambda: e_bh([-1.0], 0.1), "evalues"),
        (lambda: e_bh([1.0], 0.0), "q must be"),
    ],
)
def test_bad_input_is_named(call, match):
    with pytest.raises(ValueError, match=match):
        call()
