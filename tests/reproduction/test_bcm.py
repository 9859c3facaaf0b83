"""Bertsimas, Copenhaver and Mazumder: their data, their heuristics, a global minimum, rows and verdicts."""

import sys
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression

from trimreg_reproduction.linear import bcm
from trimreg_reproduction.spec import Cell


def small(seed=0, kind=2, p=20):
    X, y, coef = bcm.draw_data(np.random.default_rng(seed), kind, p, "as coded")
    return X, y, np.count_nonzero(coef)


@pytest.mark.parametrize(("kind", "k"), [(1, 10), (2, 5), (3, 10), (4, 6), (5, 6)])
def test_kinds_of_data(kind, k):
    X, y, coef = bcm.draw_data(np.random.default_rng(kind), kind, 20, "scaled")
    np.testing.assert_allclose(np.linalg.norm(X, axis=0), 1.0)
    places = np.flatnonzero(coef)
    assert places.tolist() == (list(range(0, 20, 2)) if kind == 1 else list(range(k)))
    values = {3: [0.5, 10.0], 4: [-10.0, 10.0]}.get(kind)
    if values:
        assert coef[places[[0, -1]]].tolist() == pytest.approx(values)
    if kind == 5:
        assert np.linalg.norm(coef) == pytest.approx(1.0)
    correlation = X[:, 3] @ X[:, 4]
    assert (correlation > 0.6) == (kind == 1)
    noise = np.linalg.norm(y - X @ coef)
    again = bcm.draw_data(np.random.default_rng(kind), kind, 20, "as coded")
    assert np.linalg.norm(again[1] - again[0] @ coef) == pytest.approx(10.0 * noise)  # sqrt(n)


def test_branch_and_bound_is_the_best_of_all_subsets():
    X, y, _ = small(p=10)
    k, lam = 3, 50.0  # so large that the rest is zero
    best = min(
        0.5 * np.sum((y - LinearRegression(fit_intercept=False).fit(X[:, s], y).predict(X[:, s])) ** 2)
        for s in map(list, combinations(range(10), k))
    )
    found = bcm.branch_and_bound(X, y, lam, k)
    assert np.count_nonzero(found) == k
    assert bcm.objective(X, y, found, lam, k) == pytest.approx(best)


@pytest.mark.parametrize("share", bcm.LAMBDAS)
def test_no_method_is_below_the_global_minimum(share):
    X, y, k = small(kind=4)
    lam = share * np.abs(X.T @ y).max()
    start = np.random.default_rng(0).standard_normal(20)
    lowest = bcm.objective(X, y, bcm.branch_and_bound(X, y, lam, k), lam, k)
    for method in (bcm.alternating, bcm.admm, bcm.by_trimreg(), bcm.by_trimreg(exact=True)):
        assert bcm.objective(X, y, method(X, y, lam, k, start), lam, k) >= lowest * (1 - 1e-9)
    assert bcm.objective(X, y, bcm.by_trimreg()(X, y, lam, k), lam, k) == pytest.approx(lowest)


def test_heuristics_end_at_stationary_points():
    X, y, k = small()
    lam = 0.1 * np.abs(X.T @ y).max()
    for method in (bcm.alternating, bcm.admm):
        theta = method(X, y, lam, k, np.random.default_rng(0).standard_normal(20))
        gradient = X.T @ (X @ theta - y)
        free = np.argsort(-np.abs(theta))[:k]
        np.testing.assert_allclose(gradient[free], 0.0, atol=1e-3 * lam)
        assert np.abs(gradient).max() <= lam * (1 + 1e-3)


def test_rows_and_a_missing_peer(monkeypatch):
    monkeypatch.setitem(sys.modules, "abess", None)
    what = {"kind": 2, "p": 20, "noise": "scaled", "replicate": 0}
    rows = [row for one in ("trimreg", "others") for row in bcm.run(Cell.of("bcm", **what, family=one))]
    assert len(rows) == 3 * 6
    frame = bcm.gaps(pd.DataFrame([what | row for row in rows]))
    mine = frame[frame["method"].isin([bcm.DEFAULT, bcm.EXACT])]
    assert mine["gap"].max() < 1e-6
    (first, *_) = rows = bcm.run(Cell.of("bcm", **what, family="abess"))
    assert len(rows) == 3
    assert "abess" in first["skipped"]


def made_up(above=0, fits=200):
    """Rows in which the default solver is above ADMM in some fits."""
    rows = []
    for i in range(fits):
        for method in bcm.METHODS:
            value = {bcm.DEFAULT: 1.1 if i < above else 1.0, "ADMM": 1.0, bcm.EXACT: 1.0}.get(method, 1.2)
            row = {"kind": 1, "p": 20, "noise": "scaled", "replicate": i, "lam": 0.1, "method": method}
            rows.append(row | {"skipped": None, "objective": value, "recovered": i % 2 == 0, "seconds": 0.1})
    return pd.DataFrame(rows)


@pytest.mark.parametrize(("above", "kind"), [(0, "reproduced"), (4, "partly"), (5, "not")])
def test_verdicts_follow_the_rows(above, kind):
    verdict = bcm.judge(made_up(above))
    assert verdict.kind == kind
    assert f"above that of ADMM in {above} and below in 0 of 200 fits" in verdict.measured


def test_charts_and_figure():
    frame = made_up(100)
    gap, support = bcm.charts(frame)
    (line,) = [line for line in gap.lines if line["name"] == bcm.DEFAULT]
    assert line["y"] == pytest.approx([0.05])
    assert support.lines[0]["y"] == [0.5]
    assert len(bcm.figure(frame).axes) == 2
