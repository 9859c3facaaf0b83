"""Folds: Gram matrices by subtraction, and scores, against the same done on the rows of the fold."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from trimreg import TrimmedL1, solve
from trimreg.designs import as_design
from trimreg.estimators.task import Data, Settings, check_data
from trimreg.losses import get_loss
from trimreg.selection.folds import Fits, LinearFolds, TotalGram, minus_loss, predictors

HS, ALPHAS = np.array([0, 1, 2, 3]), ["exact", 0.3, 0.1, 0.03]


def direct_gram(X, weights, train, center, standardize):
    """The Gram matrix of the training rows, in plain NumPy; columns without variation are 0."""
    Z = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=float)[train]
    d = weights[train] / weights[train].sum()
    if center:
        Z = Z - d @ Z
        Z = Z - d @ Z
    scale = np.sqrt(d @ Z**2)
    dead = scale < 1e-13 * np.max(np.abs(Z), initial=1.0)
    Z[:, dead], scale[dead] = 0.0, 1.0
    Z = Z / scale if standardize else Z
    return Z.T @ (d[:, None] * Z)


def subtracted_gram(X, weights, train, test, center, standardize):
    d = np.zeros(weights.size)
    d[train] = weights[train] / weights[train].sum()
    design = as_design(X, d, center=center, scale=standardize)
    return TotalGram.of(X, weights, center).without(X, weights, test, design, d)


def assert_equal_grams(X, weights, test, center=True, standardize=True, tol=1e-10):
    train = np.setdiff1d(np.arange(weights.size), test)
    expected = direct_gram(X, weights, train, center, standardize)
    found = subtracted_gram(X, weights, train, test, center, standardize)
    unit = np.sqrt(np.diag(expected))
    unit[unit == 0] = 1.0
    np.testing.assert_allclose(found / unit / unit[:, None], expected / unit / unit[:, None], atol=tol)


# -- Gram matrices ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("form", ["C", "F", "csc", "csr", "float32", "sparse float32"])
def test_the_gram_matrix_of_a_fold_is_that_of_its_rows(make, form, weighted):
    X, _ = make(n=50, p=9, zeros=0.4)
    X = X.astype(np.float32) if "float32" in form else X
    stored = {
        "C": np.ascontiguousarray,
        "csc": sp.csc_array,
        "csr": sp.csr_array,
        "sparse float32": sp.csr_array,
    }
    X = stored.get(form, np.asfortranarray)(X)
    weights = np.random.default_rng(1).integers(0, 4, 50) if weighted else np.ones(50)
    for test in (np.arange(10), np.array([7, 3, 41])):
        for center, standardize in product([False, True], repeat=2):
            assert_equal_grams(X, weights / weights.sum(), test, center, standardize)


@pytest.mark.parametrize("form", [np.asarray, sp.csc_array])
def test_columns_with_large_means(make, form):
    X, _ = make(n=50, p=6)
    X = X + np.array([0.0, 1e2, 1e4, -1e4, 1e5, 0.0])
    assert_equal_grams(form(X), np.full(50, 0.02), np.arange(20, 30))


@pytest.mark.parametrize("form", [np.asarray, sp.csc_array])
@pytest.mark.parametrize("constant", [0.0, 3.0, 1e5])
def test_columns_that_do_not_vary_within_a_fold(make, form, constant):
    X, _ = make(n=40, p=6)
    X[10:, 2] = constant  # the training rows
    X[:, 4] = constant  # all
    assert_equal_grams(form(X), np.full(40, 0.025), np.arange(10))
    found = subtracted_gram(form(X), np.full(40, 0.025), np.arange(10, 40), np.arange(10), True, True)
    assert not found[2].any()
    assert not found[:, 4].any()


@pytest.mark.parametrize("form", [np.asarray, sp.csc_array])
@pytest.mark.parametrize("center", [False, True])
def test_a_test_sample_that_outweighs_the_rest_by_far(make, form, center):
    X, _ = make(n=40, p=6)
    X[3, 1], X[4, 2], X[5, 3] = 1e4, 1e7, -1e10
    assert_equal_grams(form(X), np.full(40, 0.025), np.arange(8), center=center, tol=1e-9)
    heavy = np.full(40, 1.0)
    heavy[2] = 1e9
    assert_equal_grams(form(X), heavy / heavy.sum(), np.arange(8), center=center, tol=1e-9)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_gram_matrices_of_odd_data(data):
    n, p = data.draw(st.integers(4, 12)), data.draw(st.integers(1, 4))
    entry = st.sampled_from([0.0, 1.0, -2.0, 0.5, 100.0, 1e-3])  # ties, zeros, scales
    X = np.reshape(data.draw(st.lists(entry, min_size=n * p, max_size=n * p)), (n, p))
    weights = np.array(data.draw(st.lists(st.sampled_from([1.0, 2.0, 0.25]), min_size=n, max_size=n)))
    test = np.arange(data.draw(st.integers(1, n - 2)))
    center = data.draw(st.booleans())
    form = data.draw(st.sampled_from([np.asarray, sp.csc_array]))
    assert_equal_grams(form(X), weights / weights.sum(), test, center)


# -- scores of a fold --------------------------------------------------------------------------------------


def make_search(X, y, loss="quadratic", d=None, total=False, groups=None, **options):
    d = np.full(len(y), 1.0 / len(y)) if d is None else d / d.sum()
    arguments = {
        "loss": loss, "penalty": TrimmedL1(0, groups=groups), "alpha": 0.0, "fit_intercept": True,
        "standardize": True, "tol": 1e-8, "random_state": None, "positive": False,
    } | options  # fmt: skip
    gram = TotalGram.of(X, d, center=arguments["fit_intercept"]) if total else None
    settings = Settings(**arguments)
    return LinearFolds(check_data(X, y, d, settings), settings, HS, ALPHAS, "medium", gram)


def score_fold(search, train, test):
    return search.score(search.fit(train), test)[:, :, 0]  # of the only l2


def scores_by_hand(X, y, train, test, loss="quadratic", d=None, groups=None, **options):
    """Fits to the rows of the training part, each from nothing, and the mean loss of the test rows."""
    settings = {"fit_intercept": True, "standardize": True, "tol": 1e-8} | options
    d = np.ones(len(y)) if d is None else d
    scores = np.empty((HS.size, len(ALPHAS)))
    held = d[test] / d[test].sum()
    outputs = get_loss(loss).bound(y, np.full(len(y), 1 / len(y)))
    for i, h in enumerate(HS):
        for j, alpha in enumerate(ALPHAS):
            penalty = TrimmedL1(int(h), groups=groups)
            fit = solve(
                X[train],
                y[train],
                loss=loss,
                penalty=penalty,
                alpha=alpha,
                sample_weight=d[train],
                **settings,
            )
            eta = X[test] @ fit.coef.T + fit.intercept
            own = outputs.bound(y[test], held) if loss == "cox" else outputs
            factor = 2.0 if loss in ("quadratic", "multitask") else 1.0
            scores[i, j] = -factor * own.value(eta, y[test], held)
    return scores


@pytest.mark.parametrize(
    "loss", ["quadratic", "multitask", "logistic", "multinomial", "poisson", "gamma", "huber", "cox"]
)
def test_scores_are_those_of_fits_to_the_training_rows(make, loss):
    X, y = make(loss, n=60, p=5)
    test = np.arange(0, 60, 4)
    train = np.setdiff1d(np.arange(60), test)
    found = score_fold(make_search(X, y, loss), train, test)
    expected = scores_by_hand(X, y, train, test, loss)
    assert found.shape == (4, 4)
    close = np.abs(found - expected) < 1e-4 * np.abs(expected)
    assert close[:, 1:].all()
    assert close[:, 0].mean() >= 0.5  # searches for a best subset may end at different ones


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("form", [np.asarray, sp.csc_array, np.float32])
def test_scores_with_the_gram_matrix_by_subtraction(make, form, fit_intercept):
    X, y = make(n=60, p=8, zeros=0.3)
    X = form(X)
    test = np.arange(10, 22)
    train = np.setdiff1d(np.arange(60), test)
    weights = np.random.default_rng(0).integers(1, 4, 60).astype(float)
    options = {"fit_intercept": fit_intercept, "d": weights}
    found = score_fold(make_search(X, y, total=True, **options), train, test)
    plain = score_fold(make_search(X, y, **options), train, test)
    np.testing.assert_allclose(found, plain, rtol=1e-6)
    dense = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=float)
    np.testing.assert_allclose(found, scores_by_hand(dense, y, train, test, **options), rtol=1e-4)


def test_the_gram_matrix_is_subtracted_where_that_is_right_and_cheaper(make, monkeypatch):
    X, y = make(n=60, p=8)
    used = []
    original = TotalGram.without
    monkeypatch.setattr(
        TotalGram, "without", lambda self, *given: (used.append(1), original(self, *given))[1]
    )
    weights = np.append(np.zeros(5), np.ones(55))
    search, weighted = make_search(X, y, total=True), make_search(X, y, d=weights, total=True)
    every = np.arange(60)
    for folds, train, subtracted in [
        (search, every[12:], True),
        (search, every[20:], True),  # half as many to subtract as are left
        (search, every[21:], False),  # more than that
        (search, np.append(every[12:], 20), False),  # one sample twice
        (search, every, False),  # nothing to subtract
        (weighted, every[12:], True),
        (weighted, every[5:], False),  # nothing of positive weight
    ]:
        before = len(used)
        found = folds.fit(train)
        assert (len(used) > before) == subtracted
        plain = make_search(X, y, d=folds.data.d).fit(train)
        np.testing.assert_allclose(found.coefs, plain.coefs, atol=1e-6)


def test_samples_that_are_drawn_twice_count_twice(make):
    X, y = make(n=60, p=5)
    drawn = np.random.default_rng(0).integers(0, 40, 40)
    test = np.arange(40, 60)
    found = score_fold(make_search(X, y, total=True), drawn, test)
    np.testing.assert_allclose(found, scores_by_hand(X, y, drawn, test), rtol=1e-4)
    twice = score_fold(make_search(X, y), np.arange(40), np.append(test, test[:5]))
    weights = np.where(np.arange(60) < 45, 2.0, 1.0)
    weights[:40] = 1.0
    np.testing.assert_allclose(
        twice, score_fold(make_search(X, y, d=weights), np.arange(40), test), rtol=1e-6
    )


def test_scores_of_groups(make):
    X, y = make(n=60, p=8)
    groups, test = np.repeat(np.arange(4), 2), np.arange(15)
    found = score_fold(make_search(X, y, groups=groups), np.arange(15, 60), test)
    np.testing.assert_allclose(found, scores_by_hand(X, y, np.arange(15, 60), test, groups=groups), rtol=1e-4)


def test_a_scorer_gets_coefficients_in_the_units_of_x(make):
    X, y = make(n=60, p=5)
    X[:, 1] *= 1e3
    seen = {}

    def scores(coefs, intercepts, test):
        seen.update(coefs=coefs, intercepts=intercepts, test=test)
        return np.arange(16.0)

    search = make_search(X, y)
    search.scorer = scores
    found = score_fold(search, np.arange(15, 60), np.arange(15))
    np.testing.assert_array_equal(found, np.arange(16.0).reshape(4, 4))
    fit = solve(
        X[15:], y[15:], penalty=TrimmedL1(2), alpha=0.1, fit_intercept=True, standardize=True, tol=1e-8
    )
    np.testing.assert_allclose(seen["coefs"][2 * 4 + 2], fit.coef, rtol=1e-5)
    np.testing.assert_allclose(seen["intercepts"][2 * 4 + 2], fit.intercept, rtol=1e-5)
    np.testing.assert_array_equal(seen["test"], np.arange(15))


def test_a_class_that_the_test_part_lacks_and_a_fold_without_events(make):
    X, y = make("multinomial", n=60, p=4)
    last = np.flatnonzero(y < 2)[:10]
    assert np.isfinite(
        score_fold(make_search(X, y, "multinomial"), np.setdiff1d(np.arange(60), last), last)
    ).all()
    X, y = make("cox", n=60, p=4)
    y[:10, 1] = 0.0
    np.testing.assert_array_equal(score_fold(make_search(X, y, "cox"), np.arange(10, 60), np.arange(10)), 0.0)


# -- pieces ------------------------------------------------------------------------------------------------


def test_predictors_of_one_output_and_of_several():
    rng = np.random.default_rng(0)
    X, coefs, intercepts = rng.random((7, 3)), rng.random((4, 3)), rng.random(4)
    found = predictors(X, coefs, intercepts)
    assert found.shape == (4, 7)
    np.testing.assert_allclose(found[2], X @ coefs[2] + intercepts[2])
    coefs, intercepts = rng.random((4, 2, 3)), rng.random((4, 2))
    for stored in (X, sp.csr_array(X)):
        found = predictors(stored, coefs, intercepts)
        assert found.shape == (4, 7, 2)
        np.testing.assert_allclose(found[2], X @ coefs[2].T + intercepts[2])


def test_the_mean_squared_error_is_weighted():
    X, y, d = np.zeros((3, 1)), np.array([1.0, 2.0, 5.0]), np.array([0.5, 0.125, 0.375])
    coefs, intercepts = np.zeros((2, 1)), np.array([0.0, 1.0])
    found = minus_loss(Data(X, y, d), Fits(coefs, intercepts, get_loss("quadratic")), np.array([1, 2]))
    np.testing.assert_allclose(found, [-(4 * 0.25 + 25 * 0.75), -(1 * 0.25 + 16 * 0.75)])
    found = minus_loss(Data(X, y, d), Fits(coefs, intercepts, get_loss("poisson").bound(y, d)), np.array([0]))
    np.testing.assert_allclose(found, [-1.0, -(np.e - 1.0)])
