"""Models in files: what is saved is what is loaded, and files of earlier versions still load."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Lasso

import trimreg
from trimreg import L1, MEstimator, TrimmedLasso, TrimmedLassoCV
from trimreg._files import BadInput
from trimreg.estimators.io import probabilities

OLD = Path(__file__).parent / "data"


def test_predictions_of_every_model_come_back(case, tmp_path):
    model = case.kind(h=3).fit(case.X, case.y)
    again = trimreg.load(trimreg.save(model, tmp_path / "model.json"))
    expected = model.predict(case.X)
    if expected.dtype.kind in "fi":
        np.testing.assert_allclose(again.predict(case.X), expected, rtol=1e-12)
    else:
        np.testing.assert_array_equal(again.predict(case.X), expected)
    assert again.content["h"] == 3
    assert again.content["alpha_setting"] == "exact"
    assert again.content["certificate"]["converged"] is True


def test_a_model_by_names_and_one_that_was_chosen(tmp_path, make):
    case = make("lasso")
    frame = pd.DataFrame(case.X, columns=list("abcdefghi"))
    model = TrimmedLassoCV(hs=[1, 2], alphas=[0.5, "exact"]).fit(frame, case.y)
    again = trimreg.load(trimreg.save(model, tmp_path / "model.json"))
    kept = [frame.columns[j] for j in model.support_]
    np.testing.assert_allclose(again.predict(frame[kept]), model.predict(frame))  # no other column is needed
    assert again.content["alpha_setting"] == model.chosen_alpha_
    twice = trimreg.load(trimreg.save(again, tmp_path / "again.json"))
    assert twice.content == again.content


def test_other_penalties(tmp_path, make):
    case = make("lasso")
    model = MEstimator(penalty=L1(), alpha=0.1).fit(case.X, case.y)
    again = trimreg.load(trimreg.save(model, tmp_path / "model.json"))
    np.testing.assert_allclose(again.predict(case.X), model.predict(case.X))
    assert again.content["h"] is None


@pytest.mark.parametrize("target", ["y", "kind"])
def test_files_of_version_0_1_0_load(target):
    """Written by ``trimreg fit --json``; the predictions are those that version made."""
    rows = pd.read_csv(OLD / "rows.csv")
    model = trimreg.load(OLD / f"model_{target}.json")
    expected = pd.read_csv(OLD / f"predictions_{target}.csv")
    found = pd.DataFrame(model.table(model.predictor(rows)[0]))
    pd.testing.assert_frame_equal(found, expected)


@pytest.mark.parametrize("model", [TrimmedLasso(), Lasso().fit(np.eye(3), np.arange(3.0)), "lasso"])
def test_what_is_no_fitted_model_is_refused(model, tmp_path):
    with pytest.raises(ValueError, match="model must be a fitted estimator of this library"):
        trimreg.save(model, tmp_path / "model.json")
    assert list(tmp_path.iterdir()) == []


def test_a_matrix_must_have_all_features(tmp_path, make):
    case = make("lasso")
    again = trimreg.load(trimreg.save(TrimmedLasso(h=1).fit(case.X, case.y), tmp_path / "model.json"))
    with pytest.raises(ValueError, match="X must have the 9 features of the model"):
        again.predict(case.X[:, :3])


def test_a_file_is_json_with_numbers_that_are_finite(tmp_path, make):
    case = make("lasso")
    path = trimreg.save(TrimmedLasso(h=1).fit(case.X, case.y), tmp_path / "model.json")
    content = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert list(content["coefficients"]) == [f"x{j}" for j in range(9)]


def test_probabilities_sum_to_one_at_any_size():
    for eta in (np.array([-800.0, 0.0, 3.0, 800.0]), np.array([[1e3, 0.0, -1e3], [0.0, 0.0, 0.0]])):
        p = probabilities(eta)
        np.testing.assert_allclose(p.sum(axis=1), 1.0)
        assert np.isfinite(p).all()


DEEP = "[" * 100_000
CHANGES = {
    "null coefficient": lambda c: c["coefficients"].update(x0=None),
    "not a number": lambda c: c["coefficients"].update(x0=float("nan")),
    "400 digits": lambda c: c["coefficients"].update(x0=10**400),
    "text coefficient": lambda c: c["coefficients"].update(x0="big"),
    "no coefficients": lambda c: c.update(coefficients={}),
    "list of coefficients": lambda c: c.update(coefficients=[1.0, 2.0]),
    "a column is missing": lambda c: c["columns"].pop(),
    "null intercept": lambda c: c.update(intercept=None),
    "two intercepts": lambda c: c.update(intercept=[1.0, 2.0]),
    "unknown loss": lambda c: c.update(loss="mse"),
    "loss of another type": lambda c: c.update(loss=["quadratic"]),
    "classes of another type": lambda c: c.update(classes={"a": 1}),
    "one class": lambda c: c.update(classes=["a"]),
    "nested classes": lambda c: c.update(classes=[["a"], ["b"]]),
    "target of another type": lambda c: c.update(target=["y"]),
    "index of another type": lambda c: c.update(index={}),
    "no columns": lambda c: c.update(columns=None),
    "column without a name": lambda c: c["columns"][0].update(name=3),
    "column with more": lambda c: c["columns"][0].update(run="this"),
    "levels of numbers": lambda c: c["columns"][0].update(levels=3),
    "a number filled with text": lambda c: c["columns"][0].update(fill="text"),
    "two columns of one name": lambda c: c["columns"][1].update(name="x0"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_was_changed_is_refused_in_one_line(tmp_path, make, change):
    case = make("lasso")
    path = trimreg.save(TrimmedLasso(h=1).fit(case.X, case.y), tmp_path / "model.json")
    content = json.loads(path.read_text())
    del content["checksum"]
    path.write_text(json.dumps(content))
    trimreg.load(path)  # as older files are
    CHANGES[change](content)
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"model\.json is damaged") as caught:
        trimreg.load(path)
    assert "\n" not in str(caught.value)


def test_deep_files_are_no_models(tmp_path):
    (tmp_path / "model.json").write_text(DEEP)
    with pytest.raises(ValueError, match="is not JSON"):
        trimreg.load(tmp_path / "model.json")


@pytest.mark.parametrize("checked", [True, False])
def test_a_damaged_file_loads_equal_or_is_refused_in_one_line(tmp_path, make, mutations, checked):
    """Without a checksum, which older files lack, a changed number may change a prediction."""
    case = make("lasso")
    path = trimreg.save(TrimmedLasso(h=1).fit(case.X, case.y), tmp_path / "model.json")
    expected, content = trimreg.load(path).predict(case.X), path.read_bytes()
    if not checked:
        content = b",".join(content.split(b",")[:-1]) + b"}"
    refusals = []
    for damaged in mutations(content):
        path.write_bytes(damaged)
        try:
            found = trimreg.load(path).predict(case.X)
        except BadInput as error:
            refusals.append(str(error))
            continue
        assert found.shape == expected.shape
        if checked:
            np.testing.assert_array_equal(found, expected)
    assert len(refusals) > 30
    assert not [text for text in refusals if "\n" in text or len(text) > 600]
