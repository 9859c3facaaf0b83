"""Products of features under heredity: brute force over all models, and the scikit-learn side."""

import pickle
import tracemalloc
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import check_estimator

import trimreg
from trimreg import TrimmedInteractions

PARENTS = {"strong": 2, "weak": 1, "none": 0}


def allowed(terms, heredity):
    return all(len(t) == 1 or sum((j,) in terms for j in t) >= PARENTS[heredity] for t in terms)


def terms_of(model):
    return {(j,) for j in model.support_.tolist()} | {tuple(pair) for pair in model.interactions_.tolist()}


def drawn(seed, n=40, p=5):
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((n, p)) + 0.5 * rng.standard_normal((n, 1))) * np.geomspace(0.01, 100, p) + 3.0
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    y = Z[:, 0] + Z[:, 1] + Z[:, 0] * Z[:, 1] + 0.7 * (seed % 2) * Z[:, 2] * Z[:, 3]
    return X, y + rng.standard_normal(n)


@pytest.mark.parametrize("heredity", PARENTS)
@pytest.mark.parametrize("seed", range(4))
def test_best_of_all_models(seed, heredity):
    X, y = drawn(seed)
    Z = X - X.mean(axis=0)
    every = [(j,) for j in range(5)] + list(combinations(range(5), 2))
    columns = {t: np.prod(Z[:, t], axis=1) for t in every}
    losses = []
    for terms in combinations(every, 4):
        if allowed(set(terms), heredity):
            A = np.column_stack([columns[t] / columns[t].std() for t in terms] + [np.ones(40)])
            losses.append(np.mean((y - A @ np.linalg.lstsq(A, y, rcond=None)[0]) ** 2) / 2)
    model = TrimmedInteractions(4, heredity, effort="high").fit(X, y)
    assert model.objective_ == pytest.approx(min(losses), rel=1e-9)
    assert np.mean((y - model.predict(X)) ** 2) / 2 == pytest.approx(model.objective_, rel=1e-9)
    quick = TrimmedInteractions(4, heredity, effort="low").fit(X, y)
    assert quick.objective_ >= model.objective_ * (1 - 1e-9)
    assert quick.n_iter_ == 0


@pytest.mark.parametrize("heredity", PARENTS)
def test_the_rule_and_the_number_of_terms_hold(heredity):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (80, 12)) * 1.0
    X[:, 11], X[:, 10] = 1.0, X[:, 0]  # constant, and a copy
    y = X[:, 0] * X[:, 1] + X[:, 2] * X[:, 3] + 0.3 * rng.standard_normal(80)
    for h in (0, 1, 2, 5, 12):
        model = TrimmedInteractions(h, heredity).fit(X, y)
        terms = terms_of(model)
        assert len(terms) <= h
        assert allowed(terms, heredity)
        assert not any(11 in term for term in terms)
        assert not {(0,), (10,)} <= terms
        assert np.isfinite(model.predict(X)).all()
    assert model.n_iter_ >= 0


def test_a_product_without_main_effects_is_found_with_its_features():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 30))
    y = 3 * X[:, 4] * X[:, 9] + 0.1 * rng.standard_normal(200)
    found = [
        TrimmedInteractions(h, one).fit(X, y).term_names_ for one, h in zip(PARENTS, (3, 2, 1), strict=True)
    ]
    assert found[0] == ["x4", "x9", "x4*x9"]
    assert found[1][1:] == ["x4*x9"]
    assert found[1][0] in ("x4", "x9")
    assert found[2] == ["x4*x9"]


def test_names_summary_and_pickles():
    X, y = drawn(0)
    frame = pd.DataFrame(X, columns=["age", "bmi", "c", "d", "e"])
    model = TrimmedInteractions(3).fit(frame, y)
    assert model.term_names_ == ["age", "bmi", "age*bmi"]
    table = model.summary().to_dict()
    assert table["names"] == model.term_names_
    expected = [*model.coef_[:2], *model.interaction_coef_]
    np.testing.assert_allclose(table["columns"]["coef"], expected)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    with pytest.raises(ValueError, match="model must be a fitted estimator"):
        trimreg.save(model, "model.json")


def test_weights_are_repetitions():
    X, y = drawn(1)
    times = np.arange(40) % 3
    one = TrimmedInteractions(4).fit(X, y, sample_weight=times)
    other = TrimmedInteractions(4).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-8)
    np.testing.assert_allclose(one.predict(X), other.predict(X), rtol=1e-8)


def test_units_do_not_matter():
    X, y = drawn(0)
    one, other = TrimmedInteractions(4).fit(X, y), TrimmedInteractions(4).fit(1e-150 * X, 1e3 * y)
    assert one.term_names_ == other.term_names_
    np.testing.assert_allclose(1e3 * one.predict(X), other.predict(1e-150 * X), rtol=1e-8)


def test_products_are_not_in_memory():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 60))
    y = X[:, 0] + X[:, 1] + X[:, 0] * X[:, 1] + rng.standard_normal(600)
    tracemalloc.start()
    TrimmedInteractions(3).fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.5 * 8 * 600 * 60 * 59 / 2


@pytest.mark.parametrize("heredity", ["strong", "none"])
def test_scikit_learn(heredity):
    results = check_estimator(TrimmedInteractions(heredity=heredity), on_skip=None, on_fail=None)
    failed = {one["check_name"] for one in results if one["status"] != "passed"}
    assert failed <= {"check_array_api_input"}  # wants an environment variable
    X, y = drawn(0)
    search = GridSearchCV(TrimmedInteractions(heredity=heredity), {"h": [0, 3]}, cv=3).fit(X, y)
    assert search.best_params_ == {"h": 3}


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"heredity": "full"}, "heredity must be one of"),
        ({"effort": "huge"}, "effort must be one of"),
        ({"h": 16}, "h must be an integer from 0 to the number of terms 15"),
        ({"h": -1}, "h must be an integer from 0 to the number of terms 15"),
    ],
)
def test_bad_input(settings, match):
    with pytest.raises(ValueError, match=match):
        TrimmedInteractions(**settings).fit(*drawn(0))


def test_missing_values_are_refused_by_the_name_of_their_column():
    X = pd.DataFrame(np.random.default_rng(0).standard_normal((20, 3)), columns=["a", "b", "c"])
    y, holes = X["a"] - X["c"], X.mask(X.index.to_numpy()[:, None] + np.arange(3) == 4)
    model = TrimmedInteractions(h=2).fit(X, y)
    for call in (lambda: model.predict(holes), lambda: TrimmedInteractions(h=2).fit(holes, y)):
        with pytest.raises(ValueError, match=r"X contains NaN at row 2, column 'c' .*SimpleImputer"):
            call()
    with pytest.raises(ValueError, match="y contains NaN"):
        TrimmedInteractions(h=2).fit(X, y.where(y.index != 3))
