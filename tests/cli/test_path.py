"""``trimreg path``: fits for every h."""

import numpy as np
import pandas as pd
import pytest

from trimreg import TrimmedLasso, plotting


def test_the_path_is_the_best_fit_of_every_size(call, table, tmp_path, frame):
    answer = call("path", table("y"), "--target", "y", "--max-h", 4, "--out", tmp_path / "p.csv")
    assert answer.exit_code == 0, answer.output
    found = pd.read_csv(tmp_path / "p.csv")
    assert list(found) == [
        "h", "alpha", "objective", "intercept", "a", "b", "c", "d", "city=Bonn", "city=Oslo",
    ]  # fmt: skip
    assert found["h"].tolist() == [0, 1, 2, 3, 4]
    assert np.all(np.diff(found["objective"]) < 0)
    assert (found.iloc[:, 4:] != 0).sum(axis=1).tolist() == [0, 1, 2, 3, 4]
    X = frame[list("abcd")].assign(bonn=frame["city"] == "Bonn", oslo=frame["city"] == "Oslo").astype(float)
    model = TrimmedLasso(h=2).fit(X, frame["y"])
    np.testing.assert_allclose(found.iloc[2, 4:].to_numpy(float), model.coef_, rtol=1e-6)
    assert found["intercept"][2] == pytest.approx(model.intercept_)
    lines = [line.split() for line in answer.stdout.splitlines()]
    assert ["1", "1", f"{found['objective'][1]:.6g}", "a"] in lines


def test_several_classes_have_a_row_each(call, table, tmp_path):
    files = ["--out", tmp_path / "p.csv", "--picture", tmp_path / "p.svg"]
    answer = call("path", table("kind"), "--target", "kind", "--max-h", 2, *files)
    assert answer.exit_code == 0, answer.output
    found = pd.read_csv(tmp_path / "p.csv")
    assert found["class"].tolist() == ["low", "mid", "top"] * 3
    assert (found.iloc[3:6, 5:] != 0).any().sum() == 1  # h = 1: one variable, in any class
    assert "<svg" in (tmp_path / "p.svg").read_text()


@pytest.mark.parametrize(
    ("target", "arguments"),
    [("ill", []), ("count", ["--loss", "poisson"]), ("y", ["--loss", "huber", "--alpha", "0.05"])],
)
def test_other_losses(call, table, tmp_path, target, arguments):
    files = ["--out", tmp_path / "p.csv"]
    answer = call("path", table(target), "--target", target, "--max-h", 2, *arguments, *files)
    assert answer.exit_code == 0, answer.output
    found = pd.read_csv(tmp_path / "p.csv")
    assert found["h"].tolist() == [0, 1, 2]  # two classes have one row as well
    assert "class" not in found
    assert "Best fits found for each h" in answer.stdout


def test_the_picture_takes_any_name(call, table, tmp_path):
    hostile = {"a": "$x_", "b": "[red]b" + "x" * 40, "c": "c\n\x1b[31m"}
    path = table("y", change=lambda frame: frame.rename(columns=hostile))
    answer = call("path", path, "--target", "y", "--max-h", 3, "--picture", tmp_path / "p.png")
    assert answer.exit_code == 0, answer.output
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert "$x_" in answer.stdout
    assert "[red]b" in answer.stdout
    assert "\x1b[31m" not in answer.output


def test_the_picture_is_of_standardized_columns(call, table, tmp_path, monkeypatch):
    """The same picture whatever the units, which the file has."""
    drawn = []
    draw = plotting.coefficient_path_over_h

    def spy(hs, coefs, **options):
        drawn.append(coefs)
        return draw(hs, coefs, **options)

    monkeypatch.setattr(plotting, "coefficient_path_over_h", spy)
    for factor in (1.0, 1000.0):
        path = table("y", change=lambda frame, factor=factor: frame.assign(a=factor * frame["a"]))
        answer = call("path", path, "--target", "y", "--max-h", 2, "--picture", tmp_path / "p.png")
        assert answer.exit_code == 0, answer.output
    np.testing.assert_allclose(drawn[0], drawn[1], rtol=1e-6, atol=1e-9)
    assert abs(drawn[0][1]).max() > 1


def test_a_feature_may_be_called_h(call, table, tmp_path):
    path = table("y", change=lambda frame: frame.rename(columns={"a": "h"}))
    answer = call("path", path, "--target", "y", "--max-h", 1, "--out", tmp_path / "p.csv")
    assert answer.exit_code == 0, answer.output
    assert (tmp_path / "p.csv").read_text().splitlines()[0].startswith("h,alpha,objective,intercept,h,b")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-h", 7], "--max-h must be from 0 to 6, the number of features; got 7"),
        (["--max-h", 6, "--group-categories"], "from 0 to 5, the number of columns"),
        (["--alpha", "auto"], "--alpha of a path must be exact or a number"),
        (["--picture", "p.gif"], "--picture must end in .png, .svg, .pdf"),
        (["--target", "z"], "no column 'z'"),
    ],
)
def test_bad_input(refused, table, arguments, message):
    assert message in refused("path", table("y"), "--target", "y", *arguments)
