"""Double selection: it is the refit of what two selections found, and its intervals cover."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Lasso, LassoCV
from sklearn.utils.estimator_checks import check_estimator

from trimreg import TrimmedLasso
from trimreg.inference import DoubleSelection, refit


def draw(n=120, p=60, seed=0, effect=0.5):
    """Column 1 confounds column 0: it matters for both."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    X[:, 0] += 0.8 * X[:, 1]
    errors = rng.standard_normal(n) * (0.5 + np.abs(X[:, 0]) / 2)
    return X, effect * X[:, 0] + 0.4 * X[:, 1] - X[:, 2] + errors


def test_it_is_the_refit_of_two_selections():
    X, y = draw()
    model = DoubleSelection([0], outcome_model=TrimmedLasso(h=2), treatment_model=TrimmedLasso(h=1)).fit(X, y)
    factor = np.append(0.0, np.ones(59))
    outcome = np.setdiff1d(TrimmedLasso(h=2, penalty_factor=factor).fit(X, y).support_, [0])
    treatment = 1 + TrimmedLasso(h=1).fit(X[:, 1:], X[:, 0]).support_
    np.testing.assert_array_equal(model.outcome_controls_, outcome)
    np.testing.assert_array_equal(model.treatment_controls_, treatment)
    np.testing.assert_array_equal(model.controls_, np.union1d(outcome, treatment))
    fit = refit(X, y, features=[0, *model.controls_])
    np.testing.assert_allclose(model.coef_, fit.coef[:1])
    np.testing.assert_allclose(model.standard_errors_, fit.standard_errors[:1])
    np.testing.assert_allclose(np.ravel(model.interval(0.9)), np.array(fit.interval(0.9))[:, 0])
    np.testing.assert_allclose(model.pvalues_, fit.pvalues[:1])
    clusters = np.arange(120) % 30
    model.fit(X, y, clusters=clusters)
    fit = refit(X, y, features=[0, *model.controls_], clusters=clusters)
    np.testing.assert_allclose(model.covariance_, fit.covariance[:1, :1])


def test_intervals_cover_where_a_single_selection_is_biased():
    hits, single = 0, []
    for seed in range(30):
        X, y = draw(seed=seed)
        model = DoubleSelection([0]).fit(X, y)
        low, high = model.interval(0.9)
        hits += bool(low[0] <= 0.5 <= high[0])
        single.append(refit(X, y, features=[0, *model.outcome_controls_]).coef[0])
    assert hits >= 23
    assert np.mean(single) > 0.52  # the confounder is missed now and then


@pytest.mark.parametrize("loss", ["logistic", "poisson", "gamma", "cox"])
def test_other_losses(make, loss):
    X, y = make(loss, n=300, p=10, seed=1)
    model = DoubleSelection([0, 5], loss).fit(X, y)
    low, high = model.interval(0.999)
    assert low[0] < 0.8 < high[0]
    assert low[1] < 0.0 < high[1]
    assert 1 in model.controls_


def test_names_masks_and_the_summary():
    X, y = draw()
    frame = pd.DataFrame(X, columns=["dose", *(f"c{j}" for j in range(1, 60))])
    model = DoubleSelection("dose").fit(frame, y)
    mask = np.arange(60) == 0
    np.testing.assert_array_equal(DoubleSelection(mask).fit(X, y).coef_, model.coef_)
    text = model.summary().to_text(80)
    assert "given the selection; too small if the selection used the same data" in text
    table = model.summary().to_dict()
    assert table["names"][0] == "dose"
    assert table["columns"]["errors"][:2] == ["valid", "given the selection"]


def test_any_selector_of_controls():
    X, y = draw()
    model = DoubleSelection([0], outcome_model=Lasso(0.2), treatment_model=LassoCV()).fit(X, y)
    assert {1, 2} <= set(model.controls_)
    assert 0 not in model.controls_


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"treatments": []}, "treatments must be some"),
        ({"treatments": [0, 0]}, "treatments must be distinct"),
        ({"treatments": [60]}, "treatments must be distinct columns from 0 to 59"),
        ({"treatments": "dose"}, "treatments must be columns of X"),
        ({"treatments": np.arange(60)}, "treatments must be some"), ({"covariance": "HC3"}, "covariance"),
        ({"criterion": "p"}, "criterion"),
        ({"loss": "absolute"}, "loss"), ({"random_state": 0.5}, "random_state"),
        ({"clusters": np.zeros(3)}, "clusters must have one label per sample, 120"),
    ],
)  # fmt: skip
def test_bad_input_is_named(settings, match):
    X, y = draw()
    clusters = settings.pop("clusters", None)
    with pytest.raises(ValueError, match=match):
        DoubleSelection(**{"treatments": [0], **settings}).fit(X, y, clusters=clusters)


def test_effects_that_are_not_determined_are_refused():
    X, y = draw()
    X[:, 7] = X[:, 0]
    with pytest.raises(ValueError, match="X must determine the effects"):
        DoubleSelection([0, 7]).fit(X, y)


def test_check_estimator():
    results = check_estimator(DoubleSelection(), on_skip=None, on_fail=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] not in ("passed", "skipped")}
    assert failed == {}
