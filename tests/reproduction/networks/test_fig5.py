"""Figure 5: input structure of compact networks."""

import json

import numpy as np
import pandas as pd
import pytest

from trimreg_reproduction.networks import compact, fig5
from trimreg_reproduction.spec import Cell

TRUTH = np.kron(np.eye(20), [1.0, -2.0, 0.5, 3.0])


@pytest.fixture(scope="module")
def frame():
    """Rows of two replicates at n = 60 and few steps: nothing is found, but all is there."""
    cells = [
        Cell.of("fig5", n=60, start=start, method=method, replicates=2, steps=40)
        for start in fig5.STARTS
        for method in fig5.NAMES
    ]
    return pd.DataFrame([dict(cell.parameters) | row for cell in cells for row in fig5.run(cell)])


def made_up(scores, replicates=8, ns=(400, 800)):
    """Rows of made-up results: {(start, method): (F1 by exact zeros, of the largest)}, with some spread."""
    rng = np.random.default_rng(0)
    rows = []
    for (start, method), (exact, top) in scores.items():
        for n in ns:
            for replicate in range(replicates):
                near, far = np.clip([exact, top] + 0.02 * rng.standard_normal(2) + n / 1e5, 0, 1)
                rows.append({
                    "start": start, "method": method, "n": n, "replicate": replicate, "steps": 30_000,
                    "f1_exact": near, "f1_top": far, "f1_above": far, "nonzeros": 90, "error": 0.1,
                    "loss": 1e-9, "dead": 0, "weights": None, "weights_at": None, "true_weights": None,
                    "true_weights_at": None,
                })  # fmt: skip
    return pd.DataFrame(rows)


def scores(**changes):
    """Trimmed leads from both starts; changes name a start and a method."""
    base = {"l0": (0.5, 0.5), "l1": (0.4, 0.6), "trimmed": (0.8, 0.8), "homotopy": (0.9, 0.9)}
    table = {(start, method): value for start in fig5.STARTS for method, value in base.items()}
    return table | {tuple(key.split("_")): value for key, value in changes.items()}


# -- cells and rows -----------------------------------------------------------------------------------------


def test_cells():
    full, quick = fig5.cells("full"), fig5.cells("quick")
    assert len({cell.name for cell in full}) == len(full) == 10 * 2 * 4
    assert len(quick) == 16
    assert not {cell.name for cell in quick} & {cell.name for cell in full}  # a quick result is no full one
    assert {cell["replicates"] for cell in full} == {20}
    assert {cell["steps"] for cell in full} == {30_000}
    assert {min(cell["n"] for cell in full), max(cell["n"] for cell in full)} == {200, 2000}
    assert set(fig5.NAMES) == set(compact.METHODS)
    assert set(fig5.STARTS) == set(compact.STARTS)


def test_rows(frame):
    assert len(frame) == 2 * 4 * 2
    assert set(frame["replicate"]) == {0, 1}
    assert (frame["steps_taken"] == 40).all()
    assert (frame[frame["method"] == "l0"]["nonzeros"] == 80).all()
    assert (
        frame.groupby(["start", "method"])["error"].nunique() == 2
    ).all()  # replicates have their own data
    assert frame[["f1_exact", "f1_top", "f1_above"]].min().min() > 0
    assert frame[["f1_exact", "f1_top", "f1_above"]].max().max() < 1
    good, other = (frame[frame["start"] == start] for start in ("good", "random"))
    assert good["f1_top"].mean() > other["f1_top"].mean() + 0.1
    for _, row in frame.iterrows():
        assert (row["weights"] is None) == (row["replicate"] == 1)
        json.dumps({key: value for key, value in row.items() if isinstance(value, (list, str))})


def test_methods_and_starts_share_their_data(frame):
    first = frame[frame["replicate"] == 0]
    assert all(values == first.iloc[0]["true_weights"] for values in first["true_weights"])
    cell = Cell.of("fig5", n=60, start="good", method="l0", replicates=1, steps=40)
    alone = fig5.run(cell)[0]
    same = frame[(frame["start"] == "good") & (frame["method"] == "l0")].iloc[0]
    assert alone["f1_exact"] == same["f1_exact"]  # nor does a replicate depend on how many there are
    assert alone["error"] == pytest.approx(same["error"], rel=1e-4)
    other = fig5.run(Cell.of("fig5", n=61, start="good", method="l0", replicates=1, steps=1))[0]
    assert other["true_weights"] != alone["true_weights"]


def test_a_cell_gives_the_same_rows_again():
    cell = Cell.of("fig5", n=30, start="random", method="trimmed", replicates=2, steps=5)
    assert fig5.run(cell) == fig5.run(cell)


def test_steps_that_diverge_are_an_error(monkeypatch):
    monkeypatch.setattr(compact, "ETA", 50.0)
    with pytest.raises(FloatingPointError, match=r"fig5/n=30,start=random,method=l0.* diverged"):
        fig5.run(Cell.of("fig5", n=30, start="random", method="l0", replicates=1, steps=100))


def test_compare():
    W = TRUTH[np.random.default_rng(0).permutation(20)]
    row = fig5.compare(W, TRUTH, with_weights=True)
    assert (row["f1_exact"], row["f1_top"], row["f1_above"], row["error"]) == (1.0, 1.0, 1.0, 0.0)
    assert row["weights"] == row["true_weights"] == TRUTH[TRUTH != 0].tolist()
    assert row["weights_at"] == np.flatnonzero(TRUTH).tolist()
    # Small entries count by the first rule alone, missing ones by all.
    row = fig5.compare(W + 0.04, TRUTH)
    assert (row["f1_top"], row["f1_above"], row["nonzeros"]) == (1.0, 1.0, 1600)
    assert row["f1_exact"] == pytest.approx(2 * 80 / 1680)
    assert row["weights"] is None
    half = W * (np.abs(W) > 1.5)
    row = fig5.compare(half, TRUTH)
    assert row["f1_exact"] == row["f1_top"] == row["f1_above"] == pytest.approx(2 * 40 / 120)
    row = fig5.compare(np.where(np.arange(20)[:, None] < 3, 0.0, W), TRUTH)
    assert row["dead"] == 3
    assert row["f1_top"] == pytest.approx(2 * 68 / 148)


# -- the verdict --------------------------------------------------------------------------------------------


def test_verdicts():
    assert fig5.judge(made_up(scores())).kind == "reproduced"
    # A lead by exact zeros that the largest entries take back is none.
    assert fig5.judge(made_up(scores(random_l1=(0.1, 0.85)))).kind == "partly"
    assert fig5.judge(made_up(scores(good_l0=(0.8, 0.8)))).kind == "partly"  # no clear difference
    lost = scores(**{f"{start}_{rival}": (0.9, 0.9) for start in fig5.STARTS for rival in ("l0", "l1")})
    verdict = fig5.judge(made_up(lost))
    assert verdict.kind == "not"
    assert "Good start, F1 of trimmed: -0.09" in verdict.measured
    assert fig5.judge(made_up(scores()).iloc[:0]).kind == "not"


def test_the_verdict_says_what_ours_did_and_how_long():
    verdict = fig5.judge(made_up(scores()))
    assert "Random start, our homotopy: +0.1" in verdict.measured
    assert "against trimmed, the best of the others" in verdict.measured
    assert "0 of 16 supports exact" in verdict.measured
    assert "steps" not in verdict.measured
    short = fig5.judge(made_up(scores()).assign(steps=2000))
    assert "After 2000 steps, not the 30000" in short.measured
    assert len(verdict.table) == 2 * 2 * 4


def test_gaps_are_of_pairs():
    frame = made_up(scores(), replicates=2, ns=(400,))
    frame["f1_top"] = frame["replicate"] * 0.3 + (frame["method"] == "trimmed") * 0.2
    assert fig5.gaps(frame, "trimmed", "l0", "good", "top") == pytest.approx((0.2, 0.0))
    frame.loc[(frame["method"] == "l0") & (frame["replicate"] == 1), "f1_top"] += 0.1
    mean, half = fig5.gaps(frame, "trimmed", "l0", "good", "top")
    assert (mean, half) == pytest.approx((0.15, 1.96 * 0.05))
    assert fig5.gaps(frame[frame["method"] != "l0"], "trimmed", "l0", "good", "top") is None
    one = fig5.gaps(frame[frame["replicate"] == 0], "trimmed", "l0", "good", "top")
    assert one[0] == pytest.approx(0.2)
    assert one[1] == np.inf  # one pair tells nothing of its error


def test_differences_between_n_are_no_error():
    frame = made_up(scores(), replicates=4)
    frame["f1_top"] = np.where(frame["method"] == "trimmed", frame["n"] / 1000, 0.1)
    assert fig5.gaps(frame, "trimmed", "l1", "random", "top") == pytest.approx((0.5, 0.0))


# -- pictures -----------------------------------------------------------------------------------------------


def test_summary_and_charts():
    frame = made_up(scores(good_l0=(1.0, 1.0)))
    table = fig5.summary(frame)
    row = next(r for r in table if (r["start"], r["n"], r["method"]) == ("good", 400, "trimmed"))
    here = frame[(frame["start"] == "good") & (frame["n"] == 400) & (frame["method"] == "trimmed")]
    assert row["f1_top"] == pytest.approx(here["f1_top"].mean())
    assert row["f1_top se"] == pytest.approx(here["f1_top"].sem())
    charts = fig5.charts(frame)
    assert len(charts) == 2 * 3
    assert [len(chart.lines) for chart in charts] == [4] * 6
    for chart in charts:
        for line in chart.lines:
            assert line["x"] == [400, 800]
            limits = zip(line["low"], line["y"], line["high"], strict=True)
            assert all(0 <= low <= y <= high <= 1 for low, y, high in limits)
    assert fig5.charts(frame[frame["method"] == "l1"])[0].lines[0]["name"] == "l1 ball"


def test_figure(frame):
    picture = fig5.figure(frame)
    maps, curves = picture.subfigs
    assert len(maps.axes) == 2 * 5
    assert len(curves.axes) == 4
    truth, l0 = maps.axes[0], maps.axes[1]
    assert [len(line.get_xdata()) for line in truth.lines] == pytest.approx([80 - 77, 77], abs=6)
    assert sum(len(line.get_xdata()) for line in l0.lines) == 80
    drawn = {(int(x), int(y)) for line in truth.lines for x, y in zip(*line.get_data(), strict=True)}
    assert drawn == {(4 * unit + j + 1, unit + 1) for unit in range(20) for j in range(4)}
    assert "n = 60" in maps.get_suptitle()
    expected = frame[(frame["start"] == "random") & (frame["method"] == "l1")]["f1_top"].mean()
    assert curves.axes[3].lines[1].get_ydata()[0] == pytest.approx(expected)
    picture.canvas.draw()


def test_maps_are_of_the_usual_size_or_the_nearest(frame):
    at = {n: frame.assign(n=n) for n in (60, 500, 2000)}
    assert fig5.map_samples(pd.concat(at.values())) == 500
    assert fig5.map_samples(frame.iloc[:0]) is None
    part = frame[frame["start"] == "good"]  # as after a run that was cut short
    picture = fig5.figure(part[part["method"] != "l1"])
    assert [len(ax.lines) for ax in picture.subfigs[0].axes] == [2, 2, 0, 2, 2] + [0] * 5
