"""Figures 2 and 3: cells, rows, and what is said about them."""

import numpy as np
import pandas as pd
import pytest

from trimreg_reproduction.linear import recovery
from trimreg_reproduction.linear.methods import AUTHORS, METHODS
from trimreg_reproduction.spec import Cell


def cell(name="fig2", panel="recovery", p=24, k=4, n=60, replicate=0, **more):
    return Cell.of(name, panel=panel, p=p, k=k, n=n, **more, replicate=replicate)


def made(shares, panel="recovery", p=128, n=50, replicates=40):
    """Rows with these shares of success, the same replicates first."""
    return [
        {
            "panel": panel, "p": p, "k": 8, "n": n, "replicate": r, "method": method,
            "recovered_any": r < share * replicates,
            "recovered_cv": None if method.endswith(AUTHORS) else r < share * replicates,
            "cv_error": 1.0 + r / 100, "best_error": 1.0,
        }
        for method, share in shares.items() for r in range(replicates)
    ]  # fmt: skip


def four(trimmed, scad, mcp, lasso):
    return dict(zip(METHODS, (trimmed, scad, mcp, lasso), strict=True))


@pytest.fixture(scope="module")
def starts():
    cells = [cell(panel="starts", p=40, k=4, n=50, steps=400, replicate=r) for r in range(3)]
    return pd.DataFrame([dict(c.parameters) | row for c in cells for row in recovery.run(c)])


def test_cells_of_both_sizes():
    full = recovery.cells("fig2", "full")
    assert len(full) == 3 * 8 * 200 + 50
    third = recovery.cells("fig3", "full")
    assert len(third) == len(full) + 8 * 200
    assert {(c["p"], c["k"]) for c in third if c["panel"] == "first"} == {(128, 8)}
    for c in (*full, *third):
        assert c["n"] >= 2 * c["k"]
    for name in ("fig2", "fig3"):
        quick = recovery.cells(name, "quick")
        assert len(quick) < 90
        assert {c["panel"] for c in quick} >= {"recovery", "starts"}
        assert any((c["n"], c["p"]) == (160, 256) for c in quick if c["panel"] == "recovery")  # panel (e)


def test_replicate_rows_and_determinism():
    rows = recovery.run(cell())
    assert [row["method"] for row in rows] == list(METHODS)
    assert recovery.run(cell()) == rows
    assert recovery.run(cell(replicate=1)) != rows


def test_as_the_authors_at_the_sizes_of_the_issue_only(monkeypatch):
    seen = []
    monkeypatch.setattr(
        recovery, "simulate", lambda data, *rest, authors, **more: seen.append(len(authors)) or []
    )
    for c in (
        cell(p=128, k=8, n=50), cell(p=128, k=8, n=75), cell(p=128, k=8, n=50, replicate=100),
        cell("fig3", "first", p=128, k=8, n=50), cell(p=64, k=8, n=50),
    ):  # fmt: skip
        recovery.run(c)
    assert seen == [3, 0, 0, 0, 0]


def test_designs_and_supports():
    first = recovery._draw(cell("fig3", "first", n=4000))
    assert np.flatnonzero(first.coef).tolist() == [0, 1, 2, 3]
    correlation = np.corrcoef(first.X[:, :6].T)
    assert correlation[4, :4].min() > 0.4  # theta = 2/k with the features of the model
    assert abs(correlation[5, 0]) < 0.1
    assert np.flatnonzero(recovery._draw(cell("fig3", n=30)).coef).tolist() != [0, 1, 2, 3]
    assert np.corrcoef(recovery._draw(cell(n=4000)).X[:, :2].T)[0, 1] == pytest.approx(0.7, abs=0.05)


def test_starts_share_data_and_come_nearer(starts):
    algorithm = starts[starts["method"] == "Algorithm 1"]
    assert algorithm["oracle_error"].nunique() == 1
    for row in algorithm.itertuples():
        assert row.iterations[0] == 0
        assert row.iterations[-1] == 400
        assert row.distances[0] > 3 * row.distances[-1]
        assert row.distances[-1] == pytest.approx(row.final_error)
    assert algorithm["distances"].map(lambda d: d[0]).nunique() == 3
    assert (starts["final_error"] >= 0.3 * starts["oracle_error"]).all()
    kept = starts[starts["recovered"]]
    assert (kept["support_kept"] == 4).all()


def test_shares_and_differences():
    rows = made(four(0.5, 0.3, 0.4, 0.1)) + made({"MCP" + AUTHORS: 0.2}, replicates=20)
    frame = pd.DataFrame(rows)
    share = {row["method"]: row for row in recovery.shares(frame)}
    assert share["trimmed"]["share"] == 0.5
    assert share["MCP" + AUTHORS]["replicates"] == 20
    assert share["trimmed"]["low"] < 0.5 < share["trimmed"]["high"]
    assert {row["method"] for row in recovery.shares(frame, "recovered_cv")} == set(METHODS)
    (gap,) = recovery.differences(frame)
    assert (gap["best baseline"], gap["replicates"]) == ("MCP", 40)
    assert gap["difference"] == pytest.approx(0.1)
    paired = np.repeat([1.0, 0.0], [4, 36])
    assert gap["standard error"] == pytest.approx(paired.std(ddof=1) / np.sqrt(40))
    (gap,) = recovery.differences(frame, suffix=AUTHORS)  # only the replicates that both have
    assert (gap["replicates"], gap["trimmed"], gap["its share"]) == (20, 1.0, 0.2)


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        (made(four(0.6, 0.3, 0.4, 0.1)) + made(four(0.9, 0.3, 0.4, 0.1), n=100), "reproduced"),
        (made(four(0.6, 0.3, 0.4, 0.1)) + made(four(0.1, 0.3, 0.9, 0.1), n=100), "partly"),
        (made(four(0.1, 0.3, 0.4, 0.1)) + made(four(0.1, 0.3, 0.9, 0.1), n=100), "not"),
        (made(four(0.3, 0.3, 0.4, 0.1) | {"MCP" + AUTHORS: 0.1}), "partly"),
        (made(four(0.0, 0.0, 0.0, 0.0)), "not"),
    ],
)
def test_verdicts(rows, kind):
    verdict = recovery.judge("fig2", pd.DataFrame(rows))
    assert verdict.kind == kind
    if len(verdict.table):
        assert {row["rule"] for row in verdict.table} == {"any lambda", "cross-validated"}


def test_other_panels_do_not_decide(starts):
    rows = made(four(0.6, 0.3, 0.4, 0.1)) + made(four(0.0, 0.9, 0.9, 0.9), panel="first")
    frame = pd.concat([pd.DataFrame(rows), starts])
    verdict = recovery.judge("fig3", frame)
    assert verdict.kind == "reproduced"
    assert "breaks incoherence: above at 0 of 1, clearly below at 1" in verdict.measured
    assert "From 3 random starts" in verdict.measured


@pytest.mark.parametrize("name", ["fig2", "fig3"])
def test_charts_and_figure(starts, name):
    rows = made(four(0.6, 0.3, 0.4, 0.1)) + made(four(0.7, 0.3, 0.4, 0.1), n=100)
    rows += made(four(0.6, 0.3, 0.4, 0.1), panel="first") + made({"MCP" + AUTHORS: 0.2})
    rows += made(four(0.2, 0.3, 0.4, 0.1), p=256, n=160)
    frame = pd.concat([pd.DataFrame(rows), starts])
    charts = recovery.charts(name, frame)
    assert len(charts) == 3 * 2 + 1
    (line,) = [c.lines[0] for c in charts if "p = 128, k = 8: any" in c.title]
    assert (line["name"], line["x"], line["y"]) == ("trimmed", [50, 100], [0.6, 0.7])
    assert len(charts[-1].lines) == 3
    axes = recovery.figure(name, frame).axes
    assert [ax.get_title()[:3] for ax in axes if ax.axison] == ["(a)", "(b)", "(d)", "(e)", "(f)"]
    assert len(axes[3].lines) == 4  # three starts and the oracle
    assert len(axes[5].lines) == 4
