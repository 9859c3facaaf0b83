"""``trimreg graph``: edges between columns."""

import json

import numpy as np
import pandas as pd
import pytest

from trimreg import TrimmedGraphicalLasso


@pytest.fixture
def chain(tmp_path):
    """A chain of dependences u - v - w, a column of its own, and text."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 4))
    X[:, 1] += X[:, 0]
    X[:, 2] += X[:, 1]
    frame = pd.DataFrame(X * [1, 10, 0.1, 1], columns=["u", "v", "w", "alone"])
    frame["text"] = rng.choice(["x", "z"], 200)
    frame["one"] = 1.0
    frame.to_csv(tmp_path / "chain.csv", index=False)
    return tmp_path / "chain.csv"


def test_the_edges_are_those_of_the_estimator(call, chain, tmp_path):
    files = ["--edges", tmp_path / "e.csv", "--json", tmp_path / "g.json", "--picture", tmp_path / "g.png"]
    answer = call("graph", chain, "--h", 2, *files, "--report", tmp_path / "g.html")
    assert answer.exit_code == 0, answer.output
    assert "columns of text left out: 'text'" in answer.stderr
    assert "constant column left out: 'one'" in answer.stderr
    assert "a local minimum: yes" in answer.stdout
    X = pd.read_csv(chain)[["u", "v", "w", "alone"]]
    model = TrimmedGraphicalLasso(h=2, standardize=True).fit(X)
    content = json.loads((tmp_path / "g.json").read_text())
    np.testing.assert_allclose(content["precision"], model.precision_, rtol=1e-6)
    assert content["nodes"] == ["u", "v", "w", "alone"]
    assert content["certificate"]["local_minimum"] is True
    edges = pd.read_csv(tmp_path / "e.csv")
    assert {frozenset(pair) for pair in zip(edges["source"], edges["target"], strict=True)} == {
        frozenset("uv"),
        frozenset("vw"),
    }
    np.testing.assert_allclose(
        edges["partial_correlation"], [edge["partial_correlation"] for edge in content["edges"]]
    )
    assert (tmp_path / "g.png").read_bytes().startswith(b"\x89PNG")
    assert "chain.csv" in (tmp_path / "g.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        (["--standardize"], {"standardize": True}),
        (["--no-standardize"], {"standardize": False}),
        (["--shrinkage", 0.3], {"standardize": True, "shrinkage": 0.3}),
    ],
)
def test_settings_reach_the_estimator(call, chain, tmp_path, arguments, settings):
    answer = call("graph", chain, "--h", 1, "--alpha", 0.05, *arguments, "--json", tmp_path / "g.json")
    assert answer.exit_code == 0, answer.output
    model = TrimmedGraphicalLasso(1, 0.05, **settings).fit(pd.read_csv(chain)[["u", "v", "w", "alone"]])
    found = json.loads((tmp_path / "g.json").read_text())
    np.testing.assert_allclose(found["precision"], model.precision_, rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize(
    "arguments",
    [[], ["--criterion", "cv", "--alpha", "auto"], ["--kind", "spearman"], ["--scores", "npn"]],
)
def test_auto_finds_the_chain(call, chain, tmp_path, arguments):
    answer = call("graph", chain, "--json", tmp_path / "g.json", *arguments)
    assert answer.exit_code == 0, answer.output
    content = json.loads((tmp_path / "g.json").read_text())
    pairs = {frozenset((edge["source"], edge["target"])) for edge in content["edges"]}
    assert pairs >= {frozenset("uv"), frozenset("vw")}
    if "cv" not in arguments:  # which aims at prediction, and keeps more
        assert len(pairs) == content["h"] == 2


def test_missing_values(call, refused, chain, tmp_path):
    frame = pd.read_csv(chain)
    frame.loc[:2, "u"] = np.nan
    frame.to_csv(chain, index=False)
    assert "missing in 'u' (3)" in refused("graph", chain, "--h", 2)
    answer = call("graph", chain, "--h", 2, "--impute", "drop", "--json", tmp_path / "g.json")
    assert answer.exit_code == 0, answer.output
    assert json.loads((tmp_path / "g.json").read_text())["data"]["rows"] == 197
    assert call("graph", chain, "--h", 2, "--impute", "mean").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--h", 7], "--h must be from 0 to 6, the number of pairs of columns; got 7"),
        (["--kind", "cosine"], "--kind must be pearson, spearman or kendall"),
        (["--scores", "log"], "--scores must be npn"),
        (["--scores", "npn", "--kind", "kendall"], "drop one of them"),
        (["--shrinkage", 1], "--shrinkage must be from 0 to below 1"),
        (["--criterion", "gic"], "--criterion must be"),
        (["--effort", "some"], "--effort must be"),
        (["--impute", "zero"], "--impute must be"),
        (["--seed", -1], "--seed must be"),
        (["--jobs", 0], "--jobs must be"),
        (["--picture", "g.bmp"], "--picture must end in"),
        (["--drop", "u", "--drop", "v", "--drop", "w"], "a graph needs two columns that vary"),
        (["--drop", "u", "--drop", "v", "--drop", "w", "--drop", "one"], "two columns of numbers"),
    ],
)
def test_bad_input(refused, chain, arguments, message):
    assert message in refused("graph", chain, *arguments)
