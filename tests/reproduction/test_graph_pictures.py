"""The pictures of graphs in the guide are drawn, and the figures behind them are counted right."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "guide" / "pictures"


def test_the_picture_of_the_diamond_is_drawn(tmp_path):
    script = runpy.run_path(str(PICTURES / "diamond.py"))
    script["main"](tmp_path / "diamond.png", replicates=3)
    assert (tmp_path / "diamond.png").stat().st_size > 10_000


def test_the_lines_of_the_diamond_are_those_of_the_table():
    from trimreg_reproduction.graphs.diamond import FRACTIONS, recovery
    from trimreg_reproduction.graphs.figure import draw_tables

    table = recovery(0.3, replicates=4, alphas=[0.1, 0.03])
    (ax,) = draw_tables([table]).axes
    flat = {line.get_label(): line.get_ydata()[0] for line in ax.lines if "any alpha" in line.get_label()}
    assert flat == {f"{name}, any alpha": table.any_alpha(name) for name in ("MCP", "SCAD", "glasso")}
    (best,) = [line for line in ax.lines if line.get_label() == "trimmed, best single alpha"]
    wanted = [table.best_alpha(f"trimmed {fraction:g}")[1] for fraction in FRACTIONS]
    np.testing.assert_array_equal(best.get_ydata(), wanted)


@pytest.fixture
def sachs(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import sachs

    return sachs


def stored_proteins(folder):
    """A file of the right form: independent signals but for three strong links, of which two are known."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(7466, 11))
    for i, j in ((0, 1), (2, 3), (4, 5)):
        Z[:, j] += Z[:, i]
    names = [f"protein{j}" for j in range(11)]
    known = [
        (0, 1),
        (3, 2),
        (6, 8),
        (7, 9),
        *((i, i + 1) for i in range(5, 10)),
        *((i, 10) for i in range(9)),
    ]
    edges = np.array([[names[i], names[j]] for i, j in known])
    np.savez(folder / "sachs.npz", X=np.exp(Z), feature_names=np.array(names), edges=edges)


def test_the_pictures_of_the_proteins_are_drawn(tmp_path, monkeypatch, sachs):
    stored_proteins(tmp_path)
    monkeypatch.setenv("TRIMREG_DATA", str(tmp_path))
    before = list(sys.path)
    script = runpy.run_path(str(PICTURES / "sachs.py"))
    monkeypatch.setattr(sys, "path", before)
    script["main"](tmp_path, n_alphas=12)
    drawn = sorted(path.name for path in tmp_path.glob("*.png"))
    assert drawn == ["sachs.png", "sachs_network.png"]
    assert all(path.stat().st_size > 10_000 for path in tmp_path.glob("*.png"))


def test_every_method_finds_the_strong_links_first(tmp_path, monkeypatch, sachs):
    from trimreg.datasets import load_sachs

    stored_proteins(tmp_path)
    monkeypatch.setenv("TRIMREG_DATA", str(tmp_path))
    data = load_sachs()
    truth = sachs.known_pairs(data)
    assert truth.sum() == 18
    for transform in sachs.TRANSFORMS[1:]:  # the raw signals have heavy tails
        graphs = sachs.graphs_by_size(sachs.correlations(data.X, transform), n_alphas=12)
        for by_size in graphs.values():
            assert sorted(by_size) == list(range(1, 31))
            precision, recall, f1 = sachs.scores(by_size[3], truth)
            assert (precision, recall) == (pytest.approx(2 / 3), pytest.approx(2 / 18))
            assert f1 == pytest.approx(4 / 21)


def test_a_path_without_a_size_gives_the_nearest(sachs):
    graphs = [np.arange(40) < size for size in (0, 2, 5, 5, 30)]
    graphs[3] = graphs[3][::-1]  # another graph of five edges, later
    nearest = sachs.nearest_sizes(graphs)
    assert [int(nearest[k].sum()) for k in (1, 2, 3, 4, 17, 18, 30)] == [0, 2, 2, 5, 5, 30, 30]
    np.testing.assert_array_equal(nearest[5], graphs[2])


def test_the_score_of_no_edges(sachs):
    truth = np.array([True, False, True])
    precision, recall, f1 = sachs.scores(np.zeros(3, dtype=bool), truth)
    assert np.isnan(precision)
    assert (recall, f1) == (0.0, 0.0)
    np.testing.assert_array_equal(sachs.strongest(np.array([1.0, 3.0, 2.0]), 2), [False, True, True])
