"""The page of a fitted model, for every kind of estimator."""

import copy
import json
import re

import numpy as np
import pandas
import pytest
from sklearn.model_selection import KFold

import trimreg
from trimreg.reports.model import diagnostics, path_charts, refit_code, score_charts, write_model_report

HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(1)</script>\"'&amp;"
NAMES = ["a", HOSTILE, "c", "d", "e"]


@pytest.fixture(scope="module")
def X():
    return pandas.DataFrame(np.random.default_rng(0).standard_normal((80, 5)), columns=NAMES)


@pytest.fixture(scope="module")
def y(X):
    return (3 * X[HOSTILE] - X["d"] + 0.3 * np.random.default_rng(1).standard_normal(80)).to_numpy()


@pytest.fixture(scope="module")
def chosen(X, y):
    return trimreg.TrimmedLassoCV(hs=[0, 1, 2, 3], alphas=["exact", 0.2]).fit(X, y)


def page_of(model, tmp_path, **options):
    return write_model_report(model, tmp_path / "page.html", **options).read_text("utf-8")


def charts_in(page):
    return json.loads(re.search(r'id="charts">(.*?)</script>', page, re.DOTALL)[1])


def values(rows):
    return {row["check"]: row["value"] for row in rows}


# -- the page -------------------------------------------------------------------------------------------


def test_the_page_of_a_chosen_model_has_all_parts(chosen, X, y, tmp_path):
    page = page_of(
        chosen, tmp_path, X=X, y=y, target="price", data="houses.csv", scores={"R2": 0.125},
        notes=["One note."], command="trimreg fit houses.csv", load="the_code()",
    )  # fmt: skip
    for part in ("coefficients", "choice", "path", "diagnostics", "load"):
        assert f'<section id="{part}">' in page
    for text in ("TrimmedLassoCV of price", "houses.csv", "0.125", "One note.", "trimreg fit houses.csv"):
        assert text in page
    assert "the_code()" in page
    assert "read_csv" not in page
    assert "Recomputed from the data" in page
    assert page.count("data-chart=") == len(charts_in(page)) == 4


def test_hostile_names_are_escaped_everywhere(chosen, X, y, tmp_path):
    given = {"target": HOSTILE, "data": HOSTILE, "scores": {HOSTILE: 1.0}, "notes": [HOSTILE]}
    page = page_of(chosen, tmp_path, X=X, y=y, command=HOSTILE, title=HOSTILE, **given)
    assert "<img src=x" not in page
    assert "alert(1)</script>" not in page
    text = json.dumps(charts_in(page))
    assert "<img" not in text
    assert "&lt;img src=x" in text


def test_facts_that_are_not_known_are_left_out(chosen, tmp_path):
    chosen = copy.copy(chosen)
    chosen.stationarity_ = float("nan")
    page = page_of(chosen, tmp_path)
    assert "<dt>stationarity</dt>" not in page
    assert "<dt>samples</dt><dd>80</dd>" in page
    assert "<dt>target</dt>" not in page
    assert "As the solver reported them" in page


def test_a_model_of_nothing_says_so(X, y, tmp_path):
    page = page_of(trimreg.TrimmedLasso(h=0).fit(X, y), tmp_path, X=X, y=y)
    assert "The model has none." in page
    assert charts_in(page) == []


def cox_target(y):
    return np.array(list(zip(y > -1, np.exp(y) + 0.1, strict=True)), dtype=[("event", bool), ("time", float)])


CASES = {
    "logistic": (lambda: trimreg.TrimmedLogisticRegression(h=2), lambda y: np.where(y > 0, "yes", "no")),
    "multinomial": (lambda: trimreg.TrimmedLogisticRegression(h=2), lambda y: np.digitize(y, [-1, 1])),
    "balanced": (
        lambda: trimreg.TrimmedLogisticRegression(h=1, class_weight="balanced"),
        lambda y: np.where(y > 2, "yes", "no"),
    ),
    "multinomial, chosen": (
        lambda: trimreg.TrimmedLogisticRegressionCV(hs=[1, 2]),
        lambda y: np.digitize(y, [-1, 1]),
    ),
    "poisson": (lambda: trimreg.TrimmedPoissonRegressor(h=2), lambda y: np.round(np.exp(y / 2))),
    "gamma": (lambda: trimreg.TrimmedGammaRegressor(h=2), lambda y: np.exp(y / 2)),
    "huber": (lambda: trimreg.TrimmedHuberRegressor(h=2), lambda y: y),
    "cox": (lambda: trimreg.TrimmedCoxRegressor(h=2), cox_target),
    "tasks": (lambda: trimreg.MultiTaskTrimmedLasso(h=2), lambda y: np.c_[y, -y]),
    "groups": (lambda: trimreg.TrimmedGroupLasso(groups=[0, 0, 1, 1, 2], h=2), lambda y: y),
    "m-estimator": (lambda: trimreg.MEstimator(loss="huber", penalty=trimreg.TrimmedL1(2)), lambda y: y),
    "positive": (lambda: trimreg.TrimmedLasso(h=1, positive=True), lambda y: y),
    "criterion": (lambda: trimreg.TrimmedLassoCV(hs=[0, 1, 2], criterion="ebic"), lambda y: y),
    "one h": (lambda: trimreg.TrimmedLassoCV(hs=[2]), lambda y: y),
}


@pytest.mark.parametrize("name", CASES)
def test_every_estimator_has_a_page_and_is_certified_from_the_data(name, X, y, tmp_path):
    build, transform = CASES[name]
    target = transform(y)
    model = build().fit(X, target)
    page = page_of(model, tmp_path, X=X, y=target)
    assert type(model).__name__ in page
    rows = values(diagnostics(model, X, target))
    assert rows["solver"] == "converged"
    assert rows["stationarity"] < 1e-6
    assert rows["local minimum"] == "yes"


@pytest.mark.parametrize("penalty", ["l1", "mcp"])
def test_other_penalties_have_their_stationarity_alone(penalty, X, y, tmp_path):
    model = trimreg.MEstimator(penalty=penalty, alpha=0.1).fit(X, y)
    page_of(model, tmp_path, X=X, y=y)
    rows = values(diagnostics(model, X, y))
    assert list(rows) == ["solver", "stationarity"]
    assert rows["stationarity"] < 1e-6


def test_h_may_be_a_share_or_left_to_the_default(X, y):
    for h in (0.4, None):
        model = trimreg.TrimmedLasso(h=h).fit(X, y)
        assert values(diagnostics(model, X, y))["local minimum"] == "yes"


def test_the_page_of_a_graph_has_edges_and_its_certificate(X, tmp_path):
    data = X.assign(f=X["a"] + X[HOSTILE] + 0.5 * X["c"] ** 2)
    model = trimreg.TrimmedGraphicalLassoCV(hs=[1, 2, 3], cv=3).fit(data)
    page = page_of(model, tmp_path, X=data, data="proteins.parquet")
    for text in ("<h2>Edges</h2>", "partial correlation", "duality gap", "read_parquet", ".fit(table)"):
        assert text in page
    assert "<img src=x" not in page
    assert '<img src="data:image/svg+xml;base64,' in page
    assert values(diagnostics(model))["local minimum"] == "yes"


# -- charts ---------------------------------------------------------------------------------------------


def test_errors_of_the_folds_are_drawn_with_their_standard_error(chosen):
    lines, heat = score_charts(chosen)
    curve = next(trace for trace in lines["data"] if trace["name"] == "alpha exact" and "fill" not in trace)
    assert curve["x"] == [0, 1, 2, 3]
    np.testing.assert_allclose(curve["y"], chosen.mse_path_[:, 0].mean(axis=1))
    error = chosen.mse_path_[:, 0].std(axis=1, ddof=1) / np.sqrt(5)
    np.testing.assert_allclose(lines["bands"][0]["linear"][:4], curve["y"] + error)
    mark = lines["data"][-1]
    assert mark["name"] == f"chosen: h = {chosen.h_}"
    assert mark["x"] == [chosen.h_]
    np.testing.assert_allclose(heat["data"][0]["z"], chosen.mse_path_.mean(axis=2))
    assert heat["data"][1]["y"] == [str(chosen.h_)]


def test_a_score_that_was_asked_for_is_not_called_an_error(X, y):
    model = trimreg.TrimmedLassoCV(hs=[1, 2], scoring="r2").fit(X.to_numpy(), y)
    (lines,) = score_charts(model)
    assert lines["title"].startswith("The score over h")
    np.testing.assert_allclose(lines["data"][1]["y"], model.score_path_[:, 0].mean(axis=1))


def test_a_criterion_has_no_interval(X, y):
    model = trimreg.TrimmedLassoCV(hs=[0, 1, 2], criterion="bic").fit(X, y)
    (lines,) = score_charts(model)
    assert lines["title"] == "The bic over h"
    assert lines["bands"] == []


def test_of_many_alphas_some_have_lines_and_that_of_the_choice_always(X, y):
    alphas = np.geomspace(1.0, 0.01, 20)
    model = trimreg.TrimmedLassoCV(hs=[0, 1], alphas=alphas).fit(X, y)
    names = [trace["name"] for trace in score_charts(model)[0]["data"] if "fill" not in trace]
    assert 4 <= len(names) <= 7
    assert f"alpha {model.chosen_alpha_:.4g}" in names


def test_a_model_that_chose_nothing_has_no_scores(X, y):
    model = trimreg.TrimmedLasso(h=1).fit(X, y)
    assert score_charts(model) == []
    assert path_charts(model) == []


def test_the_path_is_that_of_the_alpha_chosen_largest_first(chosen):
    (chart,) = path_charts(chosen)
    j = chosen.best_index_[1]
    expected = chosen.coef_path_[:, j, 1] * chosen.feature_deviation_[1]
    assert chart["data"][0]["name"].startswith("&lt;img")
    np.testing.assert_allclose(chart["data"][0]["y"], expected)
    assert chart["data"][0]["x"] == [0, 1, 2, 3]
    assert all(any(trace["y"]) for trace in chart["data"])


def test_the_path_follows_the_choice_of_alpha(chosen):
    other = copy.copy(chosen)
    other.best_index_ = (2, 1)
    (chart,) = path_charts(other)
    assert chart["title"].endswith("alpha 0.2")
    np.testing.assert_allclose(
        chart["data"][0]["y"], chosen.coef_path_[:, 1, 1] * chosen.feature_deviation_[1]
    )


def test_a_path_can_be_given(X, y):
    path = trimreg.trimmed_path(X, y, hs=[0, 1, 2], alphas="exact")
    (chart,) = path_charts(trimreg.TrimmedLasso(h=1).fit(X, y), path)
    assert [trace["name"][:7] for trace in chart["data"]] == ["&lt;img", "d"]


def test_of_many_features_the_largest_are_drawn(y):
    X = np.random.default_rng(3).standard_normal((80, 40))
    path = trimreg.trimmed_path(X, y, hs=[0, 20], alphas="exact")
    (chart,) = path_charts(trimreg.TrimmedLasso(h=1).fit(X, y), path)
    assert len(chart["data"]) == 12
    assert "(12 of 20)" in chart["title"]
    tops = [max(map(abs, trace["y"])) for trace in chart["data"]]
    assert tops[1:] == sorted(tops[1:], reverse=True)  # after the feature of the model


def test_all_features_of_the_model_are_drawn_and_its_h_is_marked(y):
    X = np.random.default_rng(3).standard_normal((80, 40))
    path = trimreg.trimmed_path(X, y, hs=[0, 15, 30], alphas="exact")
    model = trimreg.TrimmedLasso(h=15).fit(X, y)
    (chart,) = path_charts(model, path)
    assert {f"x{k}" for k in model.support_} <= {trace["name"] for trace in chart["data"]}
    (mark,) = chart["layout"]["shapes"]
    assert (mark["x0"], mark["x1"], mark["label"]["text"]) == (15, 15, "h = 15")
    assert mark["label"]["textangle"] == 0  # else it is along the line


def test_a_page_names_the_model_and_not_the_class_for_any_loss(X, tmp_path):
    y = np.column_stack([np.arange(1.0, len(X) + 1), np.ones(len(X))])
    model = trimreg.MEstimatorCV(loss="cox", hs=[0, 1], l2s=0.1, cv=2).fit(X, y)
    page = page_of(model, tmp_path, target="months")
    assert "<title>Trimmed Cox model of months</title>" in page
    assert len(page) < 2_500_000


def test_the_bars_are_the_largest_coefficients(y, tmp_path):
    X = np.random.default_rng(3).standard_normal((80, 40))
    model = trimreg.TrimmedLasso(h=35).fit(X, y)
    (chart,) = charts_in(page_of(model, tmp_path))
    sizes = np.abs(model.coef_ * model.feature_deviation_)
    np.testing.assert_allclose(np.abs(chart["data"][0]["x"]), np.sort(sizes)[::-1][:30])
    assert chart["title"] == "The 30 largest of 35"


# -- certificates ---------------------------------------------------------------------------------------


def test_certificates_are_of_the_data_given_and_fail_on_other_data(chosen, X, y):
    assert values(diagnostics(chosen, X, y)) == {
        "solver": "converged",
        "stationarity": pytest.approx(0.0, abs=1e-9),
        "local minimum": "yes",
        "exchange": "none improves",
    }
    other = values(diagnostics(chosen, X, y + X["c"].to_numpy()))
    assert other["stationarity"] > 1e-3
    assert other["local minimum"] == "not certified"


def test_the_weights_of_the_fit_are_certified_too(X, y):
    model = trimreg.TrimmedLasso(h=1, alpha=0.1).fit(X, y)
    assert values(diagnostics(model, X, y))["stationarity"] < 1e-6
    model.trim_weights_ = np.roll(model.trim_weights_, 1)
    assert values(diagnostics(model, X, y))["stationarity"] > 1e-3


def test_a_better_exchange_is_named(X, y):
    model = trimreg.TrimmedLasso(h=1).fit(X, X["a"] + 0.01 * y)
    rows = diagnostics(model, X, X["a"] + 5 * X["c"])
    assert rows[-1]["value"] == "one improves"
    assert rows[-1]["meaning"].startswith("c in place of a lowers")


def test_a_fit_without_some_samples_is_not_certified_on_all(X, y):
    spoilt = y.copy()
    spoilt[:3] += 50
    model = trimreg.TrimmedLasso(h=2, n_outliers=3).fit(X, spoilt)
    assert "local minimum" not in values(diagnostics(model, X, spoilt))


def test_code_that_fits_again_gives_the_same_model(X, y, tmp_path):
    file = tmp_path / "data.csv"
    X.assign(**{"the 'y'": y}).to_csv(file, index=False)
    folds = KFold(n_splits=2, random_state=0, shuffle=True)
    model = trimreg.TrimmedLassoCV(
        hs=np.arange(1, 3), alphas=np.geomspace(1, 0.01, 50), rule="1se", cv=folds, n_jobs=1
    ).fit(X, y)
    scope = {}
    exec(refit_code(model, str(file), "the 'y'"), scope)
    np.testing.assert_allclose(scope["model"].coef_, model.coef_, atol=1e-8)
    assert list(scope["X"].columns) == NAMES
    np.testing.assert_allclose(scope["model"].score_path_, model.score_path_, rtol=1e-12)


def test_code_imports_the_penalty_and_points_to_the_notes():
    model = trimreg.MEstimator(penalty=trimreg.TrimmedL1(2))
    assert "from trimreg.penalties import TrimmedL1\n" in refit_code(model, None, None)
    assert "notes" not in refit_code(model, None, None)
    assert "# prepare the columns as the notes" in refit_code(model, None, None, prepared=True)
