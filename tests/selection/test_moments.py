"""Folds from sums of products against the same fitted and scored on the rows of the fold."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.model_selection import KFold, LeaveOneOut, RepeatedKFold, ShuffleSplit, TimeSeriesSplit

from trimreg import TrimmedL1, TrimmedLassoCV
from trimreg.designs.far.rows import ArrayRows
from trimreg.estimators.task import Settings, check_data, set_up
from trimreg.selection import folds as module
from trimreg.selection.folds import LinearFolds
from trimreg.selection.moments import MomentFolds
from trimreg.selection.path import Ridge

HS, ALPHAS, RIDGES = np.array([0, 1, 3]), ["exact", 0.3, 0.03], [Ridge(0.0, 0.0), Ridge(0.1, 1.0)]


@pytest.fixture(autouse=True)
def _small_data_too(monkeypatch):
    monkeypatch.setattr(module, "_LARGE", 0)


def both(X, y, splitter=None, d=None, **options):
    """The folds on rows, those of moments (or None), and the splits."""
    options = {"fit_intercept": True, "standardize": True, "tol": 1e-9} | options
    settings = Settings(penalty=TrimmedL1(0), alpha=0.0, **options)
    data = check_data(X, y, d, settings)
    splits = (splitter or KFold(3)).split(np.zeros((X.shape[0], 1)))
    splits = [(train, test[data.d[test] > 0]) for train, test in splits]
    plain = LinearFolds(data, settings, HS, ALPHAS, "medium", ridges=RIDGES)
    task = set_up(data, settings)
    worth = plain.worth_products(task, len(splits))
    return plain, MomentFolds.of(plain, task, splits) if worth else None, splits


def assert_same(X, y, rtol=1e-9, **options):
    plain, moments, splits = both(X, y, **options)
    for k, (train, test) in enumerate(splits):
        expected, found = plain.fit(train), moments.fit(k)
        np.testing.assert_allclose(moments.score(found, k), plain.score(expected, test), rtol=rtol)
        fits = found if hasattr(found, "coefs") else moments._in_units(found)
        np.testing.assert_allclose(fits.coefs, expected.coefs, rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(fits.intercepts, expected.intercepts, rtol=1e-7, atol=1e-8)
    return moments, found


@pytest.mark.parametrize("form", ["C", "F", "float32", "far"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("standardize", [True, False])
def test_fits_and_scores_are_those_of_the_rows(make, form, fit_intercept, standardize):
    X, y = make(n=120, p=6)
    X = X * np.geomspace(0.1, 10.0, 6) + np.arange(6)
    X[:, 4] = 3.0
    forms = {"C": np.ascontiguousarray, "F": np.asfortranarray, "float32": np.float32}
    X = ArrayRows(X, 37) if form == "far" else forms[form](X)
    options = {"fit_intercept": fit_intercept, "standardize": standardize}
    weights = np.random.default_rng(0).integers(0, 3, 120).astype(float)
    splitter = RepeatedKFold(n_splits=3, n_repeats=2, random_state=0)
    _, found = assert_same(X, y, d=weights, splitter=splitter, **options)
    assert found.shape == (18, 8)  # no fold was fitted on its rows


def test_a_fold_whose_moments_cancel_is_fitted_on_its_rows(make):
    X, y = make(n=120, p=6)
    X[:80, 2] = 0.0  # varies in the last test part only
    X[100, 3] = 1e6
    assert hasattr(assert_same(X, y)[1], "coefs")
    y[:80] = 1.0
    assert hasattr(assert_same(X, y, rtol=1e-6)[1], "coefs")


def test_errors_of_perfect_fits_are_exact(make):
    X, _ = make(n=120, p=6)
    y = 3.0 * X[:, 1] - X[:, 4] + 0.5 * X[:, 2] + 1.0
    _, moments, _ = both(X, y)
    for k in range(3):
        scores = moments.score(moments.fit(k), k)
        assert np.abs(scores[2, 0, 0]) < 1e-28
        assert scores[:2].max() < -1e-3


@pytest.mark.parametrize(
    "splitter",
    [ShuffleSplit(3, test_size=0.2, random_state=0), TimeSeriesSplit(3), LeaveOneOut(), None],
    ids=str,
)
def test_other_splits_and_sparse_matrices_are_left_to_the_rows(make, splitter):
    X, y = make(n=60, p=6)
    assert both(X if splitter else sp.csc_array(X), y, splitter)[1] is None
    train, test = np.arange(40), np.arange(40, 60)
    drawn = [(np.append(train[1:], 1), test), (np.arange(20, 60), np.arange(20)), (test, train[20:])]
    assert both(X, y, type("Given", (), {"split": lambda self, X: drawn})())[1] is None


def test_the_choice_is_the_same_with_and_without_a_scorer(make, monkeypatch):
    X, y = make(n=120, p=6)
    models = [TrimmedLassoCV(cv=3, scoring=scoring).fit(X, y) for scoring in (None, "r2")]
    monkeypatch.setattr(module, "_LARGE", np.inf)
    for model in models:
        rows = TrimmedLassoCV(cv=3, scoring=model.scoring).fit(X, y)
        np.testing.assert_allclose(model.l2_score_path_, rows.l2_score_path_, rtol=1e-9)
        np.testing.assert_allclose(model.coef_, rows.coef_, rtol=1e-9)
        assert model.result_.swap_optimal == rows.result_.swap_optimal


def test_folds_can_be_sent_to_other_processes(make):
    X, y = make(n=120, p=6)
    moments = both(X, y)[1]
    sent = pickle.loads(pickle.dumps(moments))
    np.testing.assert_array_equal(sent.score(sent.fit(1), 1), moments.score(moments.fit(1), 1))
