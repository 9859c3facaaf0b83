"""Figure 1: Algorithm 1 against DC."""

import numpy as np
import pandas as pd
import pytest

from trimreg.datasets import make_gaussian
from trimreg_reproduction.linear import fig1
from trimreg_reproduction.spec import Cell


@pytest.fixture(scope="module")
def rows():
    return fig1.run(Cell.of("fig1", lam=20.0, steps=150, replicate=0))


def made(objectives, lams=(0.5, 5.0), seeds=12):
    """A frame in which every seed of every lambda has these objectives."""
    return pd.DataFrame([
        {
            "lam": lam, "steps": 9, "replicate": seed, "method": method, "objective": value(seed),
            "linear_fit": 0.9, "converged": seed > 0, "iterations": 77,
            "steps_shown": [1, 2], "history": [9.0, value(seed)], "times": [0.1, 0.2],
        }
        for lam in lams for seed in range(seeds) for method, value in objectives.items()
    ])  # fmt: skip


def objectives(first, dc):
    others = dict.fromkeys(["DC, tie-aware", "proximal gradient"], lambda s: 3.0)
    return {"Algorithm 1": first, "DC": dc, **others, "default solver": lambda s: 0.5}


def test_rows(rows):
    assert [row["method"] for row in rows] == list(fig1.SOLVERS)
    for row in rows:
        assert row["history"][-1] == pytest.approx(row["objective"], rel=1e-9)
        assert len(row["history"]) == len(row["steps_shown"]) == len(row["times"]) <= 60
        assert row["steps_shown"][-1] == row["iterations"]
        assert (np.diff(row["times"]) >= 0).all()
        assert row["seconds"] >= row["times"][-1]
    by = {row["method"]: row for row in rows}
    assert by["Algorithm 1"]["iterations"] == 150
    assert by["default solver"]["objective"] < by["Algorithm 1"]["objective"]
    for name in ("Algorithm 1", "DC", "proximal gradient"):
        assert (np.diff(by[name]["history"]) <= 1e-9).all()


def test_objective_is_in_the_sum_of_squares_scaling():
    data = make_gaussian(30, 40, 3, random_state=0)
    row = fig1.trace(data, 2.0, "proximal gradient", 1)
    # One step from zero, written out
    eta = 1.0 / np.linalg.eigvalsh(data.X.T @ data.X)[-1]
    z = eta * data.X.T @ data.y
    order = np.argsort(-np.abs(z))
    z[order[25:]] = np.sign(z[order[25:]]) * np.maximum(np.abs(z[order[25:]]) - eta * 2.0, 0.0)
    F = 0.5 * np.sum((data.y - data.X @ z) ** 2) + 2.0 * np.sort(np.abs(z))[:15].sum()
    assert row["objective"] == pytest.approx(F, rel=1e-9)


def test_same_data_for_every_lambda_and_number_of_steps(monkeypatch):
    drawn = []
    monkeypatch.setattr(fig1, "trace", lambda data, *rest: drawn.append(data.y.tolist()) or {})
    for lam, steps, replicate in ((5.0, 1, 3), (20.0, 1, 3), (5.0, 7, 3), (5.0, 1, 4)):
        fig1.run(Cell.of("fig1", lam=lam, steps=steps, replicate=replicate))
    first, other_lam, other_steps, other_seed = drawn[:: len(fig1.SOLVERS)]
    assert first == other_lam == other_steps != other_seed


def test_cells():
    full = fig1.cells("full")
    assert len(full) == 60
    assert {cell["lam"] for cell in fig1.cells("quick")} == {0.5, 5.0, 20.0}


def test_wins_draws_and_losses():
    frame = made(objectives(lambda s: [1.0, 2.0, 2.0 + 1e-9][s % 3], lambda s: [2.0, 1.0, 2.0][s % 3]))
    row = fig1.wins(frame)[0]
    assert (row["wins"], row["draws"], row["losses"]) == (4, 4, 4)
    assert row["low"] < 0.5 < row["high"]
    assert row["mean F"] == pytest.approx(5 / 3)


@pytest.mark.parametrize(
    ("first", "dc", "kind"),
    [
        (lambda s: 1.0, lambda s: 2.0, "reproduced"),
        (lambda s: 1.0 if s < 7 else 3.0, lambda s: 2.0, "partly"),
        (lambda s: 1.0 if s < 5 else 3.0, lambda s: 2.0, "not"),
        (lambda s: 2.0, lambda s: 2.0, "not"),
    ],
)
def test_verdicts(first, dc, kind):
    verdict = fig1.judge(made(objectives(first, dc)))
    assert verdict.kind == kind
    assert "default solver" in verdict.measured.lower()
    assert "stopped at the limit of 77 steps in 2 runs" in verdict.measured
    assert {row["rival"] for row in verdict.table} == {*list(fig1.SOLVERS)[:4]}


def test_linear_rate_is_told_from_a_slow_one():
    k = np.arange(1, 400)
    assert fig1.linear_fit(1.0 + 0.9**k) > 0.999
    assert fig1.linear_fit(1.0 + 1.0 / k**2) < 0.96


def test_charts_and_figure(rows):
    frame = pd.DataFrame([{"lam": 20.0, "steps": 150, "replicate": 0} | row for row in rows])
    charts = fig1.charts(frame)
    assert [chart.x for chart in charts] == ["iterations", "seconds"]
    assert [line["name"] for line in charts[0].lines] == list(fig1.SOLVERS)
    assert all(min(line["y"]) > 0 for line in charts[0].lines)  # or a logarithmic axis would lose it
    assert charts[0].log_y
    assert len(fig1.figure(frame).axes) == 2
