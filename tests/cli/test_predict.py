"""``trimreg predict``, and models that come back from their files."""

import io
import json

import numpy as np
import pandas as pd
import pytest

import trimreg
from trimreg.cli.models import scores
from trimreg.cli.tables import learn
from trimreg.estimators.columns import Recipe
from trimreg.estimators.io import SavedModel

KINDS = {
    "quadratic": ("y", "TrimmedLasso"),
    "logistic": ("ill", "TrimmedLogisticRegression"),
    "multinomial": ("kind", "TrimmedLogisticRegression"),
    "poisson": ("count", "TrimmedPoissonRegressor"),
    "gamma": ("cost", "TrimmedGammaRegressor"),
    "huber": ("y", "TrimmedHuberRegressor"),
    "negative_binomial": ("count", "TrimmedNegativeBinomialRegressor"),
    "ordinal": ("stage", "TrimmedOrdinalRegression"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_are_those_of_the_estimator(call, table, tmp_path, frame, kind):
    target, estimator = KINDS[kind]
    loss = "logistic" if kind == "multinomial" else kind
    file, path = tmp_path / "m.json", table(target)
    assert call("fit", path, "--target", target, "--loss", loss, "--h", 2, "--json", file).exit_code == 0
    answer = call("predict", file, path)
    assert answer.exit_code == 0, answer.output
    found = pd.read_csv(io.StringIO(answer.stdout))
    X, _ = learn(frame[["a", "b", "c", "d", "city"]])[0].transform(frame)
    model = getattr(trimreg, estimator)(h=2, random_state=0).fit(X, frame[target].to_numpy())
    expected, again = model.predict(X), trimreg.load(file).predict(frame)
    if loss in ("logistic", "ordinal"):
        assert again.tolist() == found["prediction"].tolist()
        assert found["prediction"].tolist() == expected.tolist()
        assert list(found)[1:] == [f"probability={name}" for name in model.classes_]
        np.testing.assert_allclose(found.iloc[:, 1:], model.predict_proba(X), atol=1e-6)
    else:
        np.testing.assert_allclose(found["prediction"], expected, rtol=1e-6)
        np.testing.assert_allclose(found["prediction"], again, rtol=1e-14)
    assert f"on 60 rows with {target!r}: " in answer.stderr


def test_only_the_columns_of_the_model_are_needed(call, table, tmp_path, refused):
    file = tmp_path / "m.json"
    call("fit", table("y"), "--target", "y", "--h", 2, "--json", file)
    (tmp_path / "new.csv").write_text("b,a\n0.5,1.0\n0.0,0.0\n")
    answer = call("predict", file, tmp_path / "new.csv", "--out", tmp_path / "out.csv")
    assert answer.exit_code == 0, answer.output
    content = json.loads(file.read_text())
    expected = content["intercept"] + content["coefficients"]["a"] + 0.5 * content["coefficients"]["b"]
    assert pd.read_csv(tmp_path / "out.csv")["prediction"].tolist() == pytest.approx(
        [expected, content["intercept"]]
    )
    assert answer.stderr == ""
    (tmp_path / "new.csv").write_text("b\n0.5\n")
    assert "no column 'a'" in refused("predict", file, tmp_path / "new.csv")
    (tmp_path / "new.csv").write_text("a,b\n0.5,\n")
    assert "missing in 'b' (1)" in refused("predict", file, tmp_path / "new.csv")


def test_rows_without_a_target_are_predicted_and_not_scored(call, table, tmp_path):
    file, path = tmp_path / "m.json", table("y")
    call("fit", path, "--target", "y", "--h", 2, "--json", file)
    frame = pd.read_csv(path)
    frame.loc[:9, "y"] = np.nan
    frame.to_csv(path, index=False)
    answer = call("predict", file, path)
    assert answer.exit_code == 0, answer.output
    assert len(answer.stdout.splitlines()) == 61
    assert "on 50 rows with 'y': RMSE 0." in answer.stderr


def test_survival_times_give_risks(call, table, tmp_path, frame):
    file, path = tmp_path / "m.json", table("months", "died")
    call("fit", path, "--target", "months", "--event", "died", "--loss", "cox", "--h", 2, "--json", file)
    answer = call("predict", file, path)
    content = json.loads(file.read_text())
    found = pd.read_csv(io.StringIO(answer.stdout))["log_risk"]
    used = [name for name, value in content["coefficients"].items() if value]
    assert set(used) <= {"a", "b"}
    np.testing.assert_allclose(found, sum(content["coefficients"][name] * frame[name] for name in used))
    assert f"concordance {content['metrics']['train']['concordance']:.4g}" in answer.stderr


def test_unknown_levels_and_classes_are_said(call, table, tmp_path):
    file = tmp_path / "m.json"
    call("fit", table("y"), "--target", "y", "--h", 3, "--json", file)
    (tmp_path / "new.csv").write_text("a,b,city\n1,1,Oslo\n1,1,Paris\n1,1,Rom\n")
    answer = call("predict", file, tmp_path / "new.csv")
    values = pd.read_csv(io.StringIO(answer.stdout))["prediction"]
    assert values[1] == values[2] != values[0]
    assert "unknown to the fit, treated as 'Rom': 'Paris'" in answer.stderr
    call("fit", table("ill"), "--target", "ill", "--h", 1, "--drop", "city", "--json", file)
    (tmp_path / "new.csv").write_text("a,b,ill\n1,1,yes\n1,1,perhaps\n")
    answer = call("predict", file, tmp_path / "new.csv")
    assert answer.exit_code == 0
    assert "classes unknown to the fit; no scores" in answer.stderr


def test_classes_of_numbers_come_back_as_numbers(call, table, tmp_path):
    file = tmp_path / "m.json"
    path = table(change=lambda frame: frame.assign(up=(frame["a"] + frame["c"] > 0).astype(int)))
    call("fit", path, "--target", "up", "--loss", "logistic", "--h", 1, "--json", file)
    assert json.dumps(trimreg.load(file).classes) == "[0, 1]"  # and not 0.0, 1.0
    assert set(trimreg.load(file).predict(pd.read_csv(path)).tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", "is not JSON"),
        ("[1]", "holds no model"),
        ('{"format": "other"}', "holds no model"),
        ('{"format": "trimreg model", "format_version": 99}', "format 99, but this version reads 1"),
        ('{"format": "trimreg model", "format_version": 1}', "is damaged"),
    ],
)
def test_files_that_hold_no_model(refused, table, tmp_path, text, message):
    (tmp_path / "m.json").write_text(text)
    assert message in refused("predict", tmp_path / "m.json", table())


def test_a_model_that_is_not_there(refused, table, tmp_path):
    assert "there is no file" in refused("predict", tmp_path / "m.json", table())


def test_a_coefficient_that_is_gone_is_damage(call, table, tmp_path):
    file = tmp_path / "m.json"
    call("fit", table("y"), "--target", "y", "--h", 2, "--json", file)
    content = json.loads(file.read_text())
    del content["coefficients"]["a"]
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="does not match its checksum"):
        trimreg.load(file)
    del content["checksum"]
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"damaged \(ValueError: coefficients must be"):
        trimreg.load(file)


# -- scores ---------------------------------------------------------------------------------------------


def test_rows_keep_their_names(call, table, tmp_path):
    path = table("y", change=lambda frame: frame.assign(who=[f"row {k}" for k in range(60)]))
    file = tmp_path / "m.json"
    arguments = ["fit", path, "--target", "y", "--h", 1, "--index", "who", "--json", file]
    assert call(*arguments).exit_code == 0
    assert all("who" not in name for name in json.loads(file.read_text())["features"])
    assert call("predict", file, path).stdout.splitlines()[1].startswith("row 0,")
    assert call("predict", file, path, "--index", "city").stdout.splitlines()[0] == "city,prediction"
    bare = table("y", name="bare.csv")
    assert call("predict", file, bare).stdout.splitlines()[0] == "prediction"


def test_labels_are_no_formulas(call, table, tmp_path):
    labels = {"yes": "+1+1|cmd", "no": "-"}
    path = table("ill", change=lambda frame: frame.assign(ill=frame["ill"].map(labels)))
    file = tmp_path / "m.json"
    assert call("fit", path, "--target", "ill", "--h", 1, "--json", file).exit_code == 0
    answer = call("predict", file, path)
    assert {line.split(",")[0] for line in answer.stdout.splitlines()[1:]} == {"'+1+1|cmd", "-"}
    assert "note: an apostrophe before text" in answer.stderr


def test_values_that_are_filled_are_told(call, table, tmp_path):
    file, path = tmp_path / "m.json", table("y")
    arguments = ["fit", path, "--target", "y", "--h", 2, "--impute", "mean", "--json", file]
    assert call(*arguments).exit_code == 0
    new = table("y", name="new.csv", change=lambda frame: frame.assign(a=frame["a"].where(frame["a"] > -1)))
    assert "note: missing values filled as in the fit: 'a (" in call("predict", file, new).stderr


def saved(loss, classes=None):
    return SavedModel(loss, None, None, classes, np.zeros(1), np.zeros(()), Recipe(()))


def test_scores_by_hand():
    y = np.array([1.0, 2.0, 6.0])
    found = scores(saved("quadratic"), np.array([1.0, 2.0, 3.0]), y)
    assert found["rmse"] == pytest.approx(np.sqrt(3.0))
    assert found["r2"] == pytest.approx(1 - 9 / 14)
    assert scores(saved("huber"), np.array([1.0, 2.0, 3.0]), y)["mae"] == 1.0
    y = np.array([1.0, 3.0])
    half = 2 * np.sum(y * np.log(y / 2.0) - (y - 2.0))  # deviance of the mean
    assert scores(saved("poisson"), np.log(y), y)["d2"] == pytest.approx(1.0)
    assert scores(saved("poisson"), np.log([2.0, 2.0]), y)["d2"] == pytest.approx(0.0)
    worse = 2 * np.sum(y * np.log(y / 4.0) - (y - 4.0))
    assert scores(saved("poisson"), np.log([4.0, 4.0]), y)["d2"] == pytest.approx(1 - worse / half)
    assert list(scores(saved("poisson"), np.log([2.0, 2.0]), np.zeros(2))) == ["rmse"]  # nothing to explain
    assert list(scores(saved("gamma"), np.array([0.0, 1000.0]), y)) == ["rmse"]  # beyond any number
    found = scores(saved("logistic", ["n", "y"]), np.array([-1.0, 2.0, 3.0]), np.array(["n", "n", "y"]))
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert found["auc"] == 1.0
    log_loss = np.mean([np.log1p(np.exp(-1.0)), np.log1p(np.exp(2.0)), np.log1p(np.exp(-3.0))])
    assert found["log_loss"] == pytest.approx(log_loss)
    assert "auc" not in scores(saved("logistic", ["n", "y"]), np.array([1.0]), np.array(["y"]))
    y = np.array([[1.0, 1.0], [2.0, 1.0]])
    assert scores(saved("cox"), np.array([2.0, 1.0]), y) == {"concordance": 1.0}
