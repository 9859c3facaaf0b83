"""Cox models of tables with late starts, strata and several rows per subject."""

import io
import json

import numpy as np
import pandas as pd
import pytest

import trimreg
from trimreg.cli.data import load


@pytest.fixture
def visits(tmp_path):
    """Two rows of each of 40 subjects at two sites, in a file."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"id": np.repeat(np.arange(40), 2), "begin": np.tile([0.0, 1.0], 40)})
    table["dose"], table["age"] = rng.standard_normal((2, 80))
    table["site"] = np.where(table["id"] % 2 == 0, "Oslo", "Rom")
    table["end"] = np.where(table["begin"] == 0, 1.0, 1.0 + rng.exponential(np.exp(-2.0 * table["dose"])))
    table["died"] = ((table["begin"] == 1) & (rng.random(80) < 0.9)).astype(int)
    table.to_csv(tmp_path / "visits.csv", index=False)
    return table


OPTIONS = [
    "--target", "end", "--loss", "cox", "--event", "died", "--entry", "begin", "--strata", "site",
    "--drop", "id",
]  # fmt: skip


def test_strata_and_late_starts_from_fit_to_curves(call, visits, tmp_path):
    path, file, page = (tmp_path / name for name in ("visits.csv", "m.json", "m.html"))
    answer = call("fit", path, *OPTIONS, "--h", 1, "--json", file, "--report", page)
    assert answer.exit_code == 0, answer.output
    X, y = visits[["dose", "age"]], visits[["begin", "end", "died"]]
    model = trimreg.TrimmedCoxRegressor(h=1).fit(X, y, strata=visits["site"])
    content, saved = json.loads(file.read_text()), trimreg.load(file)
    assert content["features"] == ["dose", "age"]
    assert content["metrics"]["train"]["concordance"] == model.score(X, y, strata=visits["site"])
    assert [part["stratum"] for part in content["baseline"]] == ["Oslo", "Rom"]
    expected = model.predict_survival_function(X, [1.1, 2.0], strata=visits["site"])
    np.testing.assert_allclose(saved.predict_survival_function(visits, [1.1, 2.0]), expected)
    np.testing.assert_allclose(
        saved.predict_survival_function(X.to_numpy(), [1.1, 2.0], strata=visits["site"]), expected
    )
    answer = call("predict", file, path, "--survival", "1.1,2")
    found = pd.read_csv(io.StringIO(answer.stdout))
    np.testing.assert_allclose(found[["survival=1.1", "survival=2"]], expected)
    assert f"concordance {content['metrics']['train']['concordance']:.4g}" in answer.stderr
    assert "Survival" in page.read_text()


def test_subjects_stay_together(call, visits, tmp_path):
    path, file = tmp_path / "visits.csv", tmp_path / "m.json"
    options = [*OPTIONS[:-2], "--subject", "id", "--folds", 3, "--test-size", 0.25]
    answer = call("fit", path, *options, "--json", file)
    assert answer.exit_code == 0, answer.output
    content = json.loads(file.read_text())
    assert "dose" in content["support"]
    assert content["estimator"] == "TrimmedCoxRegressorCV"
    assert content["data"]["test_rows"] == 20
    answer = call("path", path, *OPTIONS, "--max-h", 2)
    assert answer.exit_code == 0, answer.output


def test_a_file_without_a_baseline_is_read(call, visits, tmp_path):
    """Of an older version, or of a model that has none."""
    path, file = tmp_path / "visits.csv", tmp_path / "m.json"
    model = trimreg.TrimmedCoxRegressor(h=1).fit(visits[["dose", "age"]], visits[["end", "died"]])
    trimreg.save(model, file)
    content = json.loads(file.read_text())
    del content["checksum"], content["baseline"]
    file.write_text(json.dumps(content))
    again = trimreg.load(file)
    np.testing.assert_allclose(again.predict(visits), model.predict(visits[["dose", "age"]]))
    answer = call("predict", file, path, "--survival", "1")
    assert answer.exit_code == 2
    assert "has no baseline hazard" in answer.stderr
    content["baseline"] = [{"stratum": None, "times": [2.0, 1.0], "log_cumulative_hazard": [0.0, 1.0]}]
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="baseline must be finite numbers at rising times"):
        trimreg.load(file)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target", "dose", "--entry", "begin"], "--entry and --strata are for --loss cox"),
        ([*OPTIONS, "--subject", "name"], "has no column 'name'"),
        ([*OPTIONS[:6], "--entry", "late"], "'late' is 1 where 'end' is 1"),
        ([*OPTIONS[:6], "--strata", "quiet"], "strata must have an event in each; got none in 'none'"),
    ],
)
def test_bad_options(refused, visits, tmp_path, options, message):
    table = visits.assign(late=visits["begin"] + 1.0, quiet=np.where(visits["begin"] == 0, "none", "all"))
    table.to_csv(tmp_path / "more.csv", index=False)
    assert message in refused("fit", tmp_path / "more.csv", *options, "--h", 1)


def test_times_that_are_none(refused, call, visits, tmp_path):
    file = tmp_path / "m.json"
    call("fit", tmp_path / "visits.csv", *OPTIONS, "--h", 1, "--json", file)
    assert "--survival must be times" in refused("predict", file, tmp_path / "visits.csv", "--survival", "a")


def test_rows_of_a_table_keep_their_strata(visits, tmp_path):
    options = {"loss": "cox", "event": "died", "entry": "begin", "strata": "site", "subject": "id"}
    table = load(tmp_path / "visits.csv", "end", **options).rows(np.arange(5))
    y, more = table.target_and_strata()
    assert y.shape == (5, 3)
    assert more["strata"].tolist() == visits["site"][:5].tolist()
    assert table.subjects.tolist() == [0, 0, 1, 1, 2]
