"""Amir, Basri and Nadler: soft-min weights by enumeration, the homotopy, rows and verdicts."""

import sys
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from trimreg_reproduction.linear import gsm
from trimreg_reproduction.linear.bcm import objective
from trimreg_reproduction.spec import Cell


def cell(family, n=30, d=60, k=4, draws=2):
    return Cell.of("gsm", n=n, d=d, noise=0.01, k=k, draws=draws, block=0, family=family)


def enumerated(size, k, gamma):
    """The weights by the sum over all sets."""
    sets = [list(one) for one in combinations(range(size.size), k)]
    log = np.array([gamma * size[one].sum() for one in sets])
    chance = np.exp(log - log.max())
    weights = np.ones(size.size)
    for one, share in zip(sets, chance / chance.sum(), strict=True):
        weights[one] -= share
    return weights


@pytest.mark.parametrize("zeros", [0, 3, 5, 7])
@pytest.mark.parametrize("gamma", [0.0, 0.1, 3.0, 80.0, 1e5])
def test_weights_are_those_of_the_sum_over_all_sets(zeros, gamma):
    size = np.abs(np.random.default_rng(zeros).standard_normal(8))
    size[:zeros] = 0.0
    found = gsm.soft_min_weights(size, 3, gamma)
    np.testing.assert_allclose(found, enumerated(size, 3, gamma), atol=1e-12)
    assert found.sum() == pytest.approx(5.0)


def test_weights_of_many_values_stay_finite():
    size = np.abs(np.random.default_rng(0).standard_normal(3000))
    size[100:] = 0.0
    for gamma in (1e-6, 1.0, 50.0, 1e8):
        found = gsm.soft_min_weights(size, 40, gamma)
        assert found.sum() == pytest.approx(2960.0)
        assert np.all(np.diff(found[np.argsort(-size, kind="stable")]) >= -1e-12)
    assert set(np.flatnonzero(found < 0.5)) == set(np.argsort(-size)[:40])


def test_the_weighted_lasso_satisfies_its_conditions():
    rng = np.random.default_rng(1)
    X, y, _ = gsm.draw_data(rng, 30, 80, 5, 0.1)
    thresholds = 0.2 * rng.random(80) * np.abs(X.T @ y).max()
    theta = gsm.weighted_lasso(X, y, np.zeros(80), thresholds)
    gradient, kept = X.T @ (X @ theta - y), theta != 0
    tol = 2e-5 * np.abs(X.T @ y).max()
    np.testing.assert_allclose(gradient[kept], -(thresholds * np.sign(theta))[kept], atol=tol)
    assert np.all(np.abs(gradient) <= thresholds + tol)
    again = gsm.weighted_lasso(X, y, rng.standard_normal(80), thresholds)
    np.testing.assert_allclose(again, theta, atol=1e-3)


def test_the_homotopy_finds_a_support_that_direct_methods_miss():
    X, y, coef = gsm.draw_data(np.random.default_rng(3), 60, 300, 15, 0.01)
    found = gsm.homotopy(X, y, 3e-3 * np.linalg.norm(y), 15)
    assert set(np.flatnonzero(coef)[np.abs(coef[coef != 0]) > 0.1]) <= set(np.flatnonzero(found))
    assert np.sum((y - X @ found) ** 2) <= np.sum((y - X @ coef) ** 2)


def test_families_see_the_same_draws():
    rows = {family: gsm.run(cell(family)) for family in ("trimreg", "soft-min", "direct")}
    for family, found in rows.items():
        assert [row["method"] for row in found] == list(gsm.FAMILIES[family]) * 2
        assert [row["draw"] for row in found] == [0] * (len(found) // 2) + [1] * (len(found) // 2)
    best = [min(row["ratio"] for row in rows["trimreg"] if row["draw"] == i) for i in (0, 1)]
    for row in (*rows["trimreg"], *rows["soft-min"]):
        assert row["ratio"] == pytest.approx(best[row["draw"]])  # four coefficients are easy
        assert row["success"]
    again = [row | {"seconds": 0} for row in gsm.run(cell("soft-min"))]
    assert again == [row | {"seconds": 0} for row in rows["soft-min"]]


def test_a_missing_peer_is_said_to_be_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "abess", None)
    rows = gsm.run(cell("abess"))
    assert [row["method"] for row in rows] == ["abess", "abess"]
    assert all("abess" in row["skipped"] for row in rows)


def test_data_are_as_the_paper_says():
    X, y, coef = gsm.draw_data(np.random.default_rng(0), 60, 300, 20, 0.01)
    np.testing.assert_allclose(np.linalg.norm(X, axis=0), 1.0)
    assert np.count_nonzero(coef) == 20
    assert np.linalg.norm(y - X @ coef) == pytest.approx(0.01 * np.linalg.norm(X @ coef))
    assert objective(X, y, coef, 1.0, 20) == pytest.approx(0.5 * np.sum((y - X @ coef) ** 2))
    assert objective(X, y, coef, 1.0, 0) > np.abs(coef).sum()
    full = gsm.cells("full")
    draws = {}
    for one in full:
        key = one["d"], one["k"], one["family"]
        draws[key] = draws.get(key, 0) + one["draws"]
    assert draws[300, 25, "trimreg"] == draws[300, 25, "abess"] == 100
    assert (50000, 30, "soft-min") in draws
    assert (50000, 30, "direct") not in draws


def made_up(**shares):
    """Rows of two k with these shares of success, the same draws first."""
    rows = []
    for family, methods in gsm.FAMILIES.items():
        for method in methods:
            for k in (20, 25):
                for i in range(20):
                    won = i < 20 * shares.get(method.replace(" ", "_"), 0.0)
                    row = dict(gsm.HARD) | {"k": k, "draw": i, "family": family, "method": method}
                    row |= {"skipped": None, "success": won, "ratio": 1.0 if won else 9.0, "seconds": 0.1}
                    rows.append(row)
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("shares", "kind"),
    [
        ({"trimreg_high": 0.9, "soft-min_8_lambdas": 0.8}, "reproduced"),
        ({"trimreg_high": 0.7, "soft-min_8_lambdas": 0.8}, "partly"),
        ({"trimreg_high": 0.9, "soft-min_8_lambdas": 0.8, "ADMM": 0.9}, "partly"),
        ({"trimreg_high": 0.9, "soft-min_8_lambdas": 0.4, "ADMM": 0.4}, "partly"),
        ({"trimreg_high": 0.1, "soft-min_8_lambdas": 0.4, "ADMM": 0.5}, "not"),
    ],
)
def test_verdicts_follow_the_rows(shares, kind):
    verdict = gsm.judge(made_up(**shares))
    assert verdict.kind == kind
    assert len(verdict.table) == 2 * sum(map(len, gsm.FAMILIES.values()))


def test_charts_and_figure():
    frame = made_up(trimreg_high=0.75)
    large = frame.assign(n=50, d=1000)
    large.loc[large["family"] == "abess", "skipped"] = "No module named 'abess'"
    frame = pd.concat([frame, large[large["family"] != "direct"]])
    charts = gsm.charts(frame)
    assert len(charts) == 4
    (line,) = [line for line in charts[0].lines if line["name"] == "trimreg high"]
    assert (line["x"], line["y"]) == ([20.0, 25.0], [0.75, 0.75])
    assert "abess" in {line["name"] for line in charts[1].lines}
    assert not {"abess", "ADMM"} & {line["name"] for line in charts[2].lines}
    assert len(gsm.figure(frame).axes) == 4
    assert "No module named 'abess'" in gsm.judge(frame).measured
