"""Figure 4: small lambda, and h."""

import numpy as np
import pandas as pd
import pytest

from trimreg_reproduction.linear import fig4
from trimreg_reproduction.spec import Cell


@pytest.fixture(scope="module")
def frame():
    cells = [Cell.of("fig4", panel="a", n=50, replicate=r) for r in range(2)]
    cells += [Cell.of("fig4", panel=p, n=100, hs="quick", replicate=r) for p in "bc" for r in range(2)]
    return pd.DataFrame([dict(cell.parameters) | row for cell in cells for row in fig4.run(cell)])


def rows(panel="b", n=100, **numbers):
    """Rows of made-up results: {(method, h): (shares recovered, error)}."""
    made = []
    for (method, h), (share, error) in numbers["results"].items():
        for replicate in range(20):
            hit = replicate < 20 * share
            made.append({
                "panel": panel, "n": n, "replicate": replicate, "method": method, "h": h,
                "recovered_any": hit, "recovered_cv": hit, "cv_error": error, "best_error": error / 2,
            })  # fmt: skip
    return made


def good():
    table = {("trimmed", 0): (0.1, 2.0), ("lasso", 0): (0.1, 2.0)}
    table |= {("trimmed", 8): (0.7, 0.5), ("trimmed", 16): (0.2, 1.0)}
    small = {("trimmed", 7): (0.2, 0.8), ("lasso", 0): (0.1, 0.9)}
    return [rows("a", results=small), rows("b", results=table), rows("c", results=table)]


def test_h_zero_is_the_lasso_at_the_same_point(frame):
    for panel in "bc":
        here = frame[(frame["panel"] == panel) & (frame["h"] == 0)]
        trimmed, lasso = (here[here["method"] == m].set_index("replicate") for m in ("trimmed", "lasso"))
        assert len(trimmed) == len(lasso) == 2
        for column in ("recovered_any", "recovered_cv", "cv_error", "best_error", "lambda_cv", "nonzeros_cv"):
            pd.testing.assert_series_equal(trimmed[column], lasso[column])


def test_rows(frame):
    assert set(frame[frame["panel"] == "a"]["h"]) == {0, 7}
    assert set(frame[frame["panel"] == "b"]["h"]) == set(fig4.QUICK_HS)
    assert (frame[frame["panel"] == "a"]["lambda_cv"] <= 0.1).all()
    b = frame[(frame["panel"] == "b") & (frame["method"] == "trimmed")]
    assert b[b["h"] == 8]["cv_error"].mean() < b[b["h"] == 0]["cv_error"].mean()


def test_rows_do_not_depend_on_the_other_hs(monkeypatch):
    cell = Cell.of("fig4", panel="b", n=100, hs="quick", replicate=0)
    every = fig4.run(cell)
    monkeypatch.setattr(fig4, "HS", (8,))
    one = fig4.run(Cell.of("fig4", panel="b", n=100, hs="full", replicate=0))
    assert one == [row for row in every if row["h"] == 8]


def test_cells():
    full, quick = fig4.cells("full"), fig4.cells("quick")
    assert len(full) == 6 * 200 + 2 * 100
    assert len(quick) < 40
    assert {cell["panel"] for cell in quick} == {"a", "b", "c"}
    assert int(np.ceil(0.05 * fig4.P)) == fig4.SMALL_H
    assert fig4.SMALL_LAMBDAS[0] == 1e-3
    assert fig4.SMALL_LAMBDAS[-1] == 0.1
    assert (set(fig4.HS) & set(fig4.QUICK_HS)).issuperset({0, fig4.K})


def test_verdicts():
    small, b, c = good()
    assert fig4.judge(pd.DataFrame(small + b + c)).kind == "reproduced"
    worse = [row | {"cv_error": 1.5} if row["method"] == "trimmed" else row for row in small]
    assert fig4.judge(pd.DataFrame(worse + b + c)).kind == "partly"
    apart = [row | {"cv_error": 2.1} if row["method"] == "lasso" else row for row in b]
    assert fig4.judge(pd.DataFrame(small + apart + c)).kind == "partly"
    flat = [row | {"recovered_any": row["h"] == 16, "cv_error": row["replicate"] + row["h"]} for row in b + c]
    nothing = [row | {"cv_error": 9.0 if row["method"] == "lasso" else row["cv_error"]} for row in flat]
    verdict = fig4.judge(pd.DataFrame(worse + nothing))
    assert verdict.kind == "not"
    assert "h = 16" in verdict.measured


def test_summary_charts_and_figure(frame):
    small, b, c = good()
    table = fig4.summary(pd.DataFrame(b))
    at_k = next(row for row in table if row["h"] == 8)
    assert (at_k["recovered_any"], at_k["replicates"], at_k["cv_error"]) == (0.7, 20, 0.5)
    assert at_k["recovered_any low"] < 0.7 < at_k["recovered_any high"]
    charts = fig4.charts(frame)
    assert len(charts) == 6
    for chart in charts:
        for line in chart.lines:
            assert len({len(line[key]) for key in ("x", "y", "low", "high")}) == 1
    assert charts[2].lines[0]["x"] == list(fig4.QUICK_HS)
    axes = fig4.figure(pd.DataFrame(small + b + c)).axes
    assert len(axes) == 6
    assert axes[1].lines[-2].get_ydata()[0] == pytest.approx(0.1)
