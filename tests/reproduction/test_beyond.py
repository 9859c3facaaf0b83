"""Beyond the paper: rows of every family, peers that are missing, verdicts that can go either way."""

import sys

import numpy as np
import pandas as pd
import pytest

from trimreg_reproduction.linear import beyond
from trimreg_reproduction.spec import Cell


def cell(task="M2", n=60, family="trimmed", replicate=0):
    return Cell.of("beyond", task=task, n=n, family=family, replicate=replicate)


def test_families_see_the_same_draw():
    for task in beyond.TASKS:
        one, two = (beyond.draw_data(cell(task, family=family)) for family in ("trimmed", "abess"))
        for a, b in zip(one, two, strict=True):
            np.testing.assert_array_equal(a, b)
        _, p, k, *_ = beyond.TASKS[task]
        assert one[0].shape == (60, p)
        assert np.count_nonzero(one[2]) == k
    correlation = np.corrcoef(beyond.draw_data(cell("AR1", n=2000))[0], rowvar=False)[3, 4]
    assert correlation == pytest.approx(0.9, abs=0.03)


@pytest.mark.parametrize("task", ["M2", "logistic"])
def test_rows_of_trimming(task):
    rows = {row["method"]: row for row in beyond.run(cell(task, n=300))}
    k = beyond.TASKS[task][2]
    known = rows["trimmed, h known"]
    assert known["size"] == k
    assert ("lasso, alpha by CV" in rows) == (task != "logistic")
    for row in rows.values():
        assert row["skipped"] is None
        assert row["size"] <= (3 * k if "trimmed" in row["method"] else 300)
    if task == "logistic":
        assert known["exact"] == 1
        assert known["error"] < 0.5
    assert rows == {row["method"]: row for row in beyond.run(cell(task, n=300))}


@pytest.mark.parametrize(("family", "package"), [("abess", "abess"), ("skglm", "skglm")])
def test_a_missing_peer_is_skipped_and_said_to_be(monkeypatch, family, package):
    monkeypatch.setitem(sys.modules, package, None)
    rows = beyond.run(cell(family=family))
    assert [row["method"] for row in rows] == list(beyond.METHODS[family])
    for row in rows:
        assert package in row["skipped"]
        assert row["exact"] is None
        assert row["error"] is None


def test_abess_where_it_is_installed():
    pytest.importorskip("abess")
    rows = {row["method"]: row for row in beyond.run(cell("AR1", n=400, family="abess"))}
    assert rows["abess, size known"]["size"] == 8
    assert all(row["error"] < 1 for row in rows.values())


def test_scores():
    coef = np.array([1.0, -2.0, 0.0, 0.0])
    assert beyond.score(coef, coef) == {"exact": 1, "size": 2, "f1": 1.0, "error": 0.0}
    nothing = beyond.score(np.zeros(4), coef)
    assert (nothing["exact"], nothing["f1"], nothing["error"]) == (0, 0.0, 1.0)
    assert beyond.score(np.array([1.0, -2.0, 1e-12, 0.0]), coef)["exact"] == 0


def made_up(exact, error, tasks=("M2", "AR1"), draws=12):
    """Rows in which each method has these means of both measures, with a little spread."""
    rows = []
    for task in tasks:
        for i in range(draws):
            for family, names in beyond.METHODS.items():
                for name in names:
                    rows.append(
                        {
                            "task": task, "n": 50 if i % 2 else 100, "family": family, "replicate": i,
                            "method": name, "skipped": None, "size": 8, "f1": 1.0,
                            "exact": int((i + 0.5) / draws < exact.get(name, 0.5)),
                            "error": error.get(name, 0.5) + 0.01 * (i % 3),
                        }
                    )  # fmt: skip
    return pd.DataFrame(rows)


CV, MCP, LASSO = "trimmed, h by CV", "skglm MCP, alpha by CV", beyond.LASSO


@pytest.mark.parametrize(
    ("exact", "error", "kind"),
    [
        ({CV: 0.9}, {CV: 0.3}, "reproduced"),
        ({}, {}, "reproduced"),  # no worse is what the claim says
        ({CV: 0.1}, {CV: 0.9}, "not"),
        ({CV: 0.9}, {CV: 0.9}, "partly"),
        ({CV: 0.9, MCP: 1.0}, {CV: 0.3, MCP: 0.1}, "partly"),
    ],
)
def test_verdicts_follow_the_rows(exact, error, kind):
    assert beyond.judge(made_up(exact, error)).kind == kind


def test_differences_are_of_the_same_draws():
    frame = made_up({CV: 0.75, MCP: 0.25}, {})
    gaps = beyond.compared(frame, CV, MCP, "exact")
    assert set(gaps) == {"M2", "AR1"}
    assert gaps["M2"][0] == pytest.approx(0.5)
    assert gaps["M2"][2] == 12
    assert beyond.compared(frame[frame["method"] != MCP], CV, MCP, "exact") == {}


def test_skipped_peers_are_named_in_the_verdict_and_absent_from_the_charts():
    frame = made_up({CV: 0.9}, {CV: 0.3})
    gone = frame["family"] == "skglm"
    frame.loc[gone, "skipped"] = "No module named 'skglm'"
    frame[["exact", "error"]] = frame[["exact", "error"]].astype(object)
    frame.loc[gone, ["exact", "error"]] = None
    verdict = beyond.judge(frame)
    assert "No module named 'skglm'" in verdict.measured
    assert verdict.kind == "reproduced"
    assert MCP not in {line["name"] for chart in beyond.charts(frame) for line in chart.lines}
    assert len(beyond.figure(frame).axes) == 4


def test_charts_hold_shares_and_errors():
    charts = beyond.charts(made_up({CV: 0.75}, {CV: 0.3}))
    exact, error = charts[:2]
    (line,) = [line for line in exact.lines if line["name"] == CV]
    assert np.mean(line["y"]) == pytest.approx(0.75)
    (line,) = [line for line in error.lines if line["name"] == CV]
    assert np.mean(line["y"]) == pytest.approx(0.31)
    assert line["x"] == [50.0, 100.0]
