"""``trimreg fit``: models of tables, their files, and how bad input ends."""

import base64
import io
import json
import re
import sys

import numpy as np
import pandas as pd
import pytest

from trimreg import TrimmedLasso, TrimmedLogisticRegression, load
from trimreg.cli.models import build


def test_least_squares_is_the_estimator_on_one_hot_columns(call, table, tmp_path, frame):
    answer = call("fit", table("y"), "--target", "y", "--h", 3, "--json", tmp_path / "m.json")
    assert answer.exit_code == 0, answer.output
    X = pd.concat([frame[list("abcd")], (frame["city"] == "Bonn").rename("city=Bonn").astype(float)], axis=1)
    X["city=Oslo"] = (frame["city"] == "Oslo").astype(float)
    model = TrimmedLasso(h=3).fit(X, frame["y"])
    content = json.loads((tmp_path / "m.json").read_text())
    assert list(content["coefficients"]) == list(X)
    np.testing.assert_allclose(list(content["coefficients"].values()), model.coef_, rtol=1e-9)
    np.testing.assert_allclose(content["intercept"], model.intercept_, rtol=1e-9)
    assert content["support"] == ["a", "b", "city=Oslo"]
    assert (content["h"], content["alpha_setting"], content["loss"]) == (3, "exact", "quadratic")
    assert content["certificate"]["swap_optimal"] is True
    assert content["certificate"]["stationarity"] < 1e-10
    assert content["metrics"]["train"]["r2"] == pytest.approx(model.score(X, frame["y"]))
    assert content["data"]["rows"] == 60
    assert "city=Oslo" in answer.stdout
    assert "constant column left out: 'one'" in answer.stderr
    assert "'city' is text: one-hot" in answer.stderr


def test_bounds_of_all_and_of_one_column(call, table, tmp_path):
    how = ("--target", "y", "--h", 4, "--lower", "a=-0.5", "--lower", -3, "--upper", "city=0.25")
    answer = call("fit", table("y"), *how, "--json", tmp_path / "m.json")
    assert answer.exit_code == 0, answer.output
    content = json.loads((tmp_path / "m.json").read_text())
    assert content["bounds"]["a"] == [-0.5, None]
    assert content["bounds"]["b"] == [-3.0, None]
    assert content["bounds"]["city=Oslo"] == content["bounds"]["city=Bonn"] == [-3.0, 0.25]
    assert "at bound" in answer.stdout
    for given, said in (("age=1", "--lower names no column: 'age'"), ("a=x", "--lower must be NUMBER or")):
        answer = call("fit", table("y"), "--target", "y", "--h", 2, "--lower", given)
        assert answer.exit_code == 2
        assert said in answer.stderr


def test_the_path_on_the_page_has_the_ridge_of_the_model(call, table, tmp_path, monkeypatch):
    from trimreg.cli import path

    asked, fit_path = {}, path.fit_path

    def noted(*data, **given):
        asked.update(given)
        return fit_path(*data, **given)

    monkeypatch.setattr(path, "fit_path", noted)
    call("fit", table("y"), "--target", "y", "--h", 2, "--l2", 0.5, "--report", tmp_path / "m.html")
    assert asked["l2"] == 0.5


def test_auto_chooses_and_says_what(call, table, tmp_path):
    answer = call("fit", table("y"), "--target", "y", "--json", tmp_path / "m.json")
    assert answer.exit_code == 0, answer.output
    content = json.loads((tmp_path / "m.json").read_text())
    assert content["h"] >= 3
    assert {"a", "b", "city=Oslo"} <= set(content["support"])
    found = content["metrics"]["cross_validation"]
    assert found["folds"] == 5
    assert np.max(found["scores"]) == pytest.approx(found["mean"])
    assert found["scores"][found["h"].index(content["h"])] == [found["mean"]]
    assert content["certificate"]["stationarity"] < 1e-8
    assert f"by cross-validation: h = {content['h']}, alpha = exact" in answer.stdout
    assert "folds" not in answer.stderr  # short work says nothing where there is no terminal


def test_h_of_ordered_classes_is_chosen(call, table, tmp_path):
    file = tmp_path / "m.json"
    fit = ["fit", table("stage"), "--target", "stage", "--loss", "ordinal", "--criterion", "bic"]
    answer = call(*fit, "--json", file)
    assert answer.exit_code == 0, answer.output
    found = pd.read_csv(io.StringIO(call("predict", file, table("stage")).stdout))
    assert list(found) == [
        "prediction",
        *(f"probability={k}" for k in range(4)),
    ]  # classes are numbers from 0
    assert set(found["prediction"]) == {1, 2, 3}
    assert not found["probability=0"].any()


@pytest.mark.parametrize("loss", ["quadratic", "logistic", "poisson"])
def test_folds_are_shuffled_by_the_seed(loss):
    """The rows of a file are often sorted, and a fold of neighbours is no fair test."""
    y = np.repeat([0, 1], 20)

    def first_test_rows(seed):
        splitter = build(loss, "auto", "exact", folds=4, seed=seed).cv
        return next(iter(splitter.split(np.zeros((40, 1)), y)))[1].tolist()

    rows = first_test_rows(0)
    assert len(rows) == 10
    assert rows == first_test_rows(0) != first_test_rows(1)
    assert np.max(np.diff(np.sort(rows)[:5])) > 1


def test_a_report_says_what_to_install_before_the_work(refused, table, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setattr(TrimmedLasso, "fit", None)
    line = refused("fit", table("y"), "--target", "y", "--h", 1, "--report", tmp_path / "m.html")
    assert line == "error: --report needs plotly: pip install 'trimreg[report]'"


def model_in(page):
    """The file that a reader of the page saves."""
    (address,) = re.findall(r'download="m(?:odel)?.json" href="data:application/json;base64,([^"]+)"', page)
    return base64.b64decode(address).decode()


@pytest.mark.parametrize(
    ("target", "arguments", "score"),
    [
        ("ill", [], "auc"),
        ("kind", [], "accuracy"),
        ("count", ["--loss", "poisson"], "d2"),
        ("cost", ["--loss", "gamma"], "d2"),
        ("y", ["--loss", "huber"], "r2"),
        ("stage", ["--loss", "ordinal"], "accuracy"),
        ("count", ["--loss", "tweedie"], "d2"),
    ],
)
def test_every_loss(call, table, tmp_path, target, arguments, score):
    files = ["--json", tmp_path / "m.json", "--report", tmp_path / "m.html"]
    answer = call("fit", table(target), "--target", target, "--h", 2, *arguments, *files)
    assert answer.exit_code == 0, answer.output
    content = json.loads((tmp_path / "m.json").read_text())
    assert set(content["support"]) < {"a", "b", "city=Oslo"}
    assert content["metrics"]["train"][score] > 0.3
    assert content["certificate"]["converged"] is True
    assert content["certificate"]["checks"]["local minimum"] == "yes"
    page = (tmp_path / "m.html").read_text()
    assert "trimreg.load" in page
    assert "data.csv" in page
    assert model_in(page) == (tmp_path / "m.json").read_text()


def test_a_ridge_term(call, table, tmp_path):
    path = table("y")
    found = {}
    for l2 in ("0", "0.5", "auto"):
        file = tmp_path / f"{l2}.json"
        answer = call("fit", path, "--target", "y", "--h", 2, "--l2", l2, "--json", file)
        assert answer.exit_code == 0, answer.output
        found[l2] = json.loads(file.read_text())
    assert [found[l2]["l2"] for l2 in ("0", "0.5")] == [0.0, 0.5]
    sizes = {l2: sum(map(abs, content["coefficients"].values())) for l2, content in found.items()}
    assert sizes["0.5"] < sizes["0"]
    assert found["auto"]["l2"] in found["auto"]["metrics"]["cross_validation"]["l2"]
    assert (
        f"values of l2 by cross-validation: h = 2, alpha = exact, l2 = {found['auto']['l2']:.4g}"
        in answer.output
    )


def test_survival_times(call, table, tmp_path):
    path = table("months", "died")
    answer = call(
        "fit", path, "--target", "months", "--event", "died", "--loss", "cox", "--h", 2,
        "--json", tmp_path / "m.json",
    )  # fmt: skip
    assert answer.exit_code == 0, answer.output
    content = json.loads((tmp_path / "m.json").read_text())
    assert content["metrics"]["train"]["concordance"] > 0.65
    assert "died" not in content["features"]


def test_auto_of_classes_is_stratified_and_of_a_criterion_has_no_folds(call, table, tmp_path):
    file = tmp_path / "m.json"
    answer = call("fit", table("ill"), "--target", "ill", "--rule", "1se", "--json", file)
    assert answer.exit_code == 0, answer.output
    assert json.loads(file.read_text())["estimator"] == "TrimmedLogisticRegressionCV"
    answer = call("fit", table("count"), "--target", "count", "--loss", "poisson", "--criterion", "ebic")
    assert answer.exit_code == 0, answer.output
    assert "by ebic: h = " in answer.stdout
    assert "folds" not in answer.stderr


def test_two_classes_agree_with_the_estimator(call, table, tmp_path, frame):
    call("fit", table("ill"), "--target", "ill", "--h", 1, "--json", tmp_path / "m.json")
    content = json.loads((tmp_path / "m.json").read_text())
    X = frame[list("abcd")].assign(bonn=frame["city"] == "Bonn", oslo=frame["city"] == "Oslo").astype(float)
    model = TrimmedLogisticRegression(h=1).fit(X, frame["ill"])
    assert content["classes"] == ["no", "yes"]
    np.testing.assert_allclose(list(content["coefficients"].values()), model.coef_[0], rtol=1e-6)
    assert content["metrics"]["train"]["accuracy"] == model.score(X, frame["ill"])


def test_soft_alpha_and_fractions(call, table, tmp_path):
    file = tmp_path / "m.json"
    answer = call("fit", table("y"), "--target", "y", "--h", "0.34", "--alpha", "0.05", "--json", file)
    assert answer.exit_code == 0, answer.output
    content = json.loads(file.read_text())
    assert (content["h"], content["alpha"], content["alpha_setting"]) == (2, 0.05, 0.05)
    assert len(content["support"]) > 2
    answer = call("fit", table("y"), "--target", "y", "--h", "1", "--alpha", "auto", "--json", file)
    assert answer.exit_code == 0, answer.output
    assert json.loads(file.read_text())["alpha"] > 0
    assert "h = 1 and 21 values of alpha" in answer.stdout


def test_a_test_set_is_not_fitted_to(call, table, tmp_path):
    file = tmp_path / "m.json"
    answer = call("fit", table("y"), "--target", "y", "--h", 3, "--test-size", 0.25, "--json", file)
    assert answer.exit_code == 0, answer.output
    content = json.loads(file.read_text())
    assert (content["data"]["rows"], content["data"]["test_rows"]) == (45, 15)
    assert content["metrics"]["test"]["r2"] > 0.8
    assert content["metrics"]["test"] != content["metrics"]["train"]
    assert "on 15 test rows: RMSE" in answer.stdout


def test_categories_enter_together(call, table, tmp_path):
    file = tmp_path / "m.json"
    answer = call("fit", table("y"), "--target", "y", "--h", 3, "--group-categories", "--json", file)
    assert answer.exit_code == 0, answer.output
    assert json.loads(file.read_text())["support"] == ["a", "b", "city=Bonn", "city=Oslo"]


def test_parquet_missing_values_and_dropped_columns(call, table, tmp_path):
    def change(frame):
        frame.loc[:4, "a"] = np.nan
        frame.loc[10, "y"] = np.nan
        return frame

    path = table("y", name="data.parquet", change=change)
    answer = call(
        "fit", path, "--target", "y", "--h", 2, "--impute", "median", "--drop", "city", "--drop", "one"
    )
    assert answer.exit_code == 0, answer.output
    assert "1 of 60 rows have no target and are left out" in answer.stderr
    assert "filled by the median" in answer.stderr
    assert "city" not in answer.output
    answer = call("fit", path, "--target", "y", "--h", 2, "--impute", "drop")
    assert "6 of 60 rows have a missing value and are left out" in answer.stderr
    assert "on the 54 training rows" in answer.stdout


def test_a_column_of_row_names_is_left_out(call, table, tmp_path):
    path = tmp_path / "index.csv"
    pd.read_csv(table("y")).to_csv(path)
    answer = call("fit", path, "--target", "y", "--h", 1)
    assert answer.exit_code == 0, answer.output
    assert "taken for row names" in answer.stderr
    assert "Unnamed" not in answer.output


def test_two_numbers_as_target_get_a_hint(call, table):
    answer = call("fit", table("died"), "--target", "died", "--h", 1)
    assert answer.exit_code == 0
    assert "for classes use --loss logistic" in answer.stderr


def test_separable_classes_are_said_to_be(call, table):
    path = table(change=lambda frame: frame.assign(big=frame["a"] > 0))
    answer = call("fit", path, "--target", "big", "--h", 1)
    assert answer.exit_code == 0, answer.output
    assert "separate the classes" in answer.stderr


def test_warnings_of_the_library_are_lines(call, table, monkeypatch):
    import warnings

    fit = TrimmedLasso.fit

    def warn(self, X, y, sample_weight, **known):
        warnings.warn("not\nquite there", UserWarning, stacklevel=1)
        return fit(self, X, y, sample_weight, **known)

    monkeypatch.setattr(TrimmedLasso, "fit", warn)
    answer = call("fit", table("y"), "--target", "y", "--h", 1)
    assert answer.exit_code == 0
    assert "warning: not quite there\n" in answer.stderr


# -- bad input ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "z"], "no column 'z'; there are 'a'"),
        (["--target", "Y"], "no column 'Y'; did you mean 'y'?"),
        (["--target", "y", "--drop", "citty"], "--drop names no column: 'citty'; did you mean 'city'?"),
        (["--target", "y", "--weights", "a"], "--weights needs numbers >= 0, not all 0; see the column 'a'"),
        (["--target", "y", "--weights", "city"], "column 'city' must hold numbers"),
        (["--target", "y", "--weights", "y"], "--target, --weights must be different columns"),
        (["--target", "y", "--index", "w"], "no column 'w'"),
        (["--target", "y", "--h", 7], "--h must be from 0 to 6, the number of features; got 7"),
        (["--target", "y", "--h", 6, "--group-categories"], "from 0 to 5, the number of columns"),
        (["--target", "y", "--h", -1], "--h must be from 0 to 6"),
        (["--target", "y", "--h", "ten"], "--h must be auto, an integer"),
        (["--target", "y", "--h", "1.5"], "--h must be auto, an integer"),
        (["--target", "y", "--alpha", "much"], "--alpha must be exact, auto or a number"),
        (["--target", "y", "--alpha", "-1"], "--alpha must be"),
        (["--target", "y", "--alpha", "nan"], "--alpha must be"),
        (["--target", "y", "--loss", "mse"], "--loss must be auto, quadratic"),
        (["--target", "y", "--loss", "logistic"], "different values; use another --loss"),
        (["--target", "a", "--loss", "poisson"], "--loss poisson cannot take 'a': y must be >= 0; got"),
        (
            ["--target", "a", "--loss", "negative_binomial"],
            "cannot take 'a': y must hold counts 0, 1, 2, ...",
        ),
        (["--target", "a", "--loss", "ordinal"], "--loss ordinal needs classes"),
        (["--target", "a", "--loss", "gamma"], "--loss gamma cannot take 'a': y must be > 0; got"),
        (["--target", "city", "--loss", "quadratic"], "must hold numbers; got text, such as"),
        (["--target", "one"], "the same value in all rows"),
        (["--target", "y", "--loss", "cox"], "needs --event"),
        (["--target", "y", "--event", "one"], "--event is for --loss cox"),
        (["--target", "a", "--event", "one", "--loss", "cox"], "times >= 0"),
        (["--target", "y", "--drop", "z"], "--drop names no column: 'z'"),
        (["--target", "y", "--drop", "y"], "--drop names 'y'"),
        (["--target", "y", "--categorical", "z"], "--categorical names no column: 'z'"),
        (["--target", "y", "--impute", "zero"], "--impute must be mean, median or drop"),
        (["--target", "y", "--rule", "max"], "--rule must be min, 1se or paired"),
        (["--target", "y", "--rule", "1se", "--h", 2], "use them with auto"),
        (["--target", "y", "--l2", -1], "--l2 must be auto or a number >= 0; got '-1'"),
        (["--target", "y", "--l2", "much"], "--l2 must be"),
        (["--target", "y", "--rule", "1se", "--criterion", "bic"], "--rule 1se needs folds"),
        (["--target", "y", "--criterion", "r2"], "--criterion must be"),
        (["--target", "y", "--folds", 1], "--folds must be 2 or more"),
        (["--target", "y", "--folds", 61], "--folds must be at most 60"),
        (["--target", "y", "--test-size", 1], "--test-size must be"),
        (["--target", "y", "--test-size", 0.999], "--test-size 0.999 cannot be used"),
        (["--target", "y", "--effort", "some"], "--effort must be"),
        (["--target", "y", "--seed", -1], "--seed must be"),
        (["--target", "y", "--jobs", 0], "--jobs must be"),
    ],
)
def test_bad_input_is_one_line_and_status_2(refused, table, arguments, message):
    assert message in refused("fit", table("y"), *arguments)


def test_missing_values_are_refused_with_target_and_columns(refused, table):
    def change(frame):
        frame.loc[:1, "a"] = np.nan
        frame.loc[3, "y"] = np.nan
        return frame

    line = refused("fit", table("y", change=change), "--target", "y", "--h", 1)
    assert "'a' (2), 'y' (1); fill them in, or use --impute" in line


def test_classes_must_be_whole_numbers(refused, table):
    path = table(change=lambda frame: frame.assign(half=(frame["a"] > 0) + 0.5))
    assert "such as" in refused("fit", path, "--target", "half", "--loss", "logistic")


def test_events_must_happen(refused, table):
    path = table("months", change=lambda frame: frame.assign(never=0))
    line = refused("fit", path, "--target", "months", "--event", "never", "--loss", "cox")
    assert "no row has an event" in line


def test_nothing_but_a_target(refused, tmp_path):
    (tmp_path / "t.csv").write_text("y\n1\n2\n")
    assert "no column beside 'y'" in refused("fit", tmp_path / "t.csv", "--target", "y")


def test_outputs_are_checked_before_the_work(refused, table, tmp_path, monkeypatch):
    monkeypatch.setattr(TrimmedLasso, "fit", None)
    arguments = ["fit", table("y"), "--target", "y", "--h", 1]
    assert "is a folder" in refused(*arguments, "--json", tmp_path)
    same = refused(*arguments, "--json", tmp_path / "x", "--report", tmp_path / "x")
    assert "--json and --report name the same file" in same
    (tmp_path / "file").touch()
    assert "choose another place with --json" in refused(*arguments, "--json", tmp_path / "file" / "m.json")


def test_checks_of_the_library_are_bad_input_and_our_mistakes_are_not(call, refused, table, monkeypatch):
    def refuse(self, *_, **__):
        raise ValueError("y must be\nbetter")

    monkeypatch.setattr(TrimmedLasso, "fit", refuse)
    assert refused("fit", table("y"), "--target", "y", "--h", 1, "--drop", "city", "--drop", "one").endswith(
        "error: y must be better"
    )
    monkeypatch.undo()

    def fail(*_):
        raise ValueError("a bug")

    monkeypatch.setattr("trimreg.cli.fit._metrics", fail)
    answer = call("fit", table("y"), "--target", "y", "--h", 1)
    assert answer.exit_code == 1
    assert isinstance(answer.exception, ValueError)


def test_weights_count_as_repeated_rows(call, table, tmp_path):
    def weighted(frame):
        return frame[:40].assign(w=[1, 2] * 20)

    def repeated(frame):
        return frame[:40].loc[np.repeat(np.arange(40), [1, 2] * 20)]

    for name, change, more in (("w", weighted, ["--weights", "w"]), ("r", repeated, [])):
        path = table("y", change=change, name=f"{name}.csv")
        arguments = ["--target", "y", "--h", 2, "--json", tmp_path / f"{name}.json", *more]
        assert call("fit", path, *arguments).exit_code == 0
    w, r = (json.loads((tmp_path / f"{name}.json").read_text()) for name in "wr")
    assert w["features"] == r["features"]
    np.testing.assert_allclose(list(w["coefficients"].values()), list(r["coefficients"].values()), rtol=1e-6)
    assert w["metrics"]["train"]["r2"] == pytest.approx(r["metrics"]["train"]["r2"])
    assert w["certificate"]["stationarity"] < 1e-8


def test_exposures_and_offsets_multiply_the_mean(call, refused, table, tmp_path):
    def observed(frame):
        years = np.linspace(0.5, 4.0, len(frame))
        return frame.assign(years=years, logs=np.log(years), money=frame["cost"] * years)

    path = table("cost", change=observed)
    found = []
    for option, column in (("--exposure", "years"), ("--offset", "logs")):
        drop = {"--exposure": "logs", "--offset": "years"}[option]
        arguments = [
            "--target",
            "money",
            "--loss",
            "gamma",
            "--h",
            2,
            option,
            column,
            "--drop",
            drop,
            "--drop",
            "cost",
        ]
        file = tmp_path / "m.json"
        assert call("fit", path, *arguments, "--json", file, "--test-size", 0.2).exit_code == 0
        found.append(json.loads(file.read_text()))
        frame = pd.read_csv(path)
        predicted = load(file).predict(frame)
        np.testing.assert_allclose(
            predicted / frame["years"], load(file).predict(frame.assign(years=1.0, logs=0.0))
        )
        printed = call("predict", file, path).stdout.split()[1:]
        np.testing.assert_allclose([float(number) for number in printed], predicted, rtol=1e-6)
        assert f"no column '{column}'" in refused("predict", file, table("cost", name="new.csv"))
        assert "years" not in found[-1]["features"]
        rest = call("path", path, *arguments[:4], *arguments[6:], "--max-h", 2)
        assert rest.exit_code == 0
    assert found[0]["coefficients"] == pytest.approx(found[1]["coefficients"])
    plain = table("cost", name="plain.csv")
    call("fit", plain, "--target", "cost", "--loss", "gamma", "--h", 2, "--json", file, "--test-size", 0.2)
    assert json.loads(file.read_text())["coefficients"] == pytest.approx(found[0]["coefficients"], abs=1e-6)
    fit = ["fit", path, "--target", "money", "--h", 2, "--drop", "cost"]
    assert "--exposure is for --loss poisson, gamma, " in refused(*fit, "--exposure", "years")
    assert "exposure 'a' must hold finite numbers > 0" in refused(*fit, "--loss", "gamma", "--exposure", "a")
    assert "column 'city' must hold numbers" in refused(*fit, "--offset", "city")
    assert "--certify is for fits without" in refused(*fit, "--offset", "logs", "--certify", 1)


def test_an_interrupt_writes_nothing(call, table, tmp_path, monkeypatch):
    def interrupt(self, *_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(TrimmedLasso, "fit", interrupt)
    answer = call("fit", table("y"), "--target", "y", "--h", 1, "--json", tmp_path / "m.json")
    assert answer.exit_code == 130
    assert answer.stderr.endswith("interrupted; nothing was written\n")
    assert not (tmp_path / "m.json").exists()


def test_a_page_alone_holds_a_model_that_predicts(call, table, tmp_path):
    data = table("y")
    assert call("fit", data, "--target", "y", "--h", 2, "--report", tmp_path / "m.html").exit_code == 0
    (tmp_path / "saved.json").write_text(model_in((tmp_path / "m.html").read_text()))
    answer = call("predict", tmp_path / "saved.json", data, "--out", tmp_path / "p.csv")
    assert answer.exit_code == 0, answer.output
    assert len(pd.read_csv(tmp_path / "p.csv")) == len(pd.read_csv(data))
