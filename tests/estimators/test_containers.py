"""Objects that hold data, or seem to: each is read right, or refused by a message that names the argument."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from trimreg import (
    Bootstrap,
    TrimmedGraphicalLasso,
    TrimmedLasso,
    TrimmedLassoCV,
    TrimmedLogisticRegression,
    trimmed_path,
)

N, P = 30, 4
rng = np.random.default_rng(0)
X = rng.standard_normal((N, P))
y = X[:, 0] + 0.1 * rng.standard_normal(N)
DATES = np.datetime64("2020-01-01") + np.arange(N)
MASK = np.zeros((N, P), dtype=bool)
MASK[3, 1] = MASK[5, 0] = True
TEXT = pd.DataFrame(X, columns=list("abcd")).assign(town="Rome", day=pd.Timestamp("2020-01-01"))

FITS = {
    "model": lambda X, y: TrimmedLasso(h=1).fit(X, y),
    "predict": lambda X, y: TrimmedLasso(h=1).fit(np.eye(N, P), np.arange(N)).predict(X),
    "cv": lambda X, y: TrimmedLassoCV(hs=[1], cv=2).fit(X, y),
    "path": lambda X, y: trimmed_path(X, y, hs=[1], alphas=["exact"]),
    "bootstrap": lambda X, y: Bootstrap(TrimmedLasso(h=1), n_replicates=2).fit(X, y),
    "graph": lambda X, y: TrimmedGraphicalLasso(h=1).fit(X),
}


@pytest.mark.parametrize("fit", FITS.values(), ids=FITS)
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"a": 1}, "X must be an array of numbers; got a dict"),
        ({1, 2}, "X must be an array of numbers; got a set"),
        ((row for row in X), "X must be an array of numbers; got a generator"),
        ("X.npy", "X must be an array of numbers; got 'X.npy'; .* trimreg.OnDisk"),
        (Path("X.npy"), "X must be an array of numbers; got 'X.npy'; .* trimreg.OnDisk"),
        (np.ma.masked_array(X, MASK), "X has 2 masked entries"),
        (pd.DataFrame(X, columns=list("abca")), "X has several columns named 'a'"),
        (TEXT, "X must be numeric; got strings or dates in columns 'town', 'day'"),
        (DATES[:, None], "X must be numeric; got datetime64"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_X_that_is_refused_by_name(fit, bad, message):
    with pytest.raises(ValueError, match=message):
        fit(bad, y)


@pytest.mark.parametrize(
    "bad", [np.ma.masked_array(y, MASK[:, 0]), {"a": 1}, DATES], ids=["mask", "dict", "M"]
)
@pytest.mark.parametrize(
    "fit",
    [
        lambda y: TrimmedLasso(h=1).fit(X, y),
        lambda y: TrimmedLogisticRegression(h=1).fit(X, y),
        lambda y: TrimmedLasso(h=1).fit(X, X[:, 0], sample_weight=y),
        lambda y: Bootstrap(TrimmedLasso(h=1), n_replicates=2).fit(X, y),
        lambda y: Bootstrap(TrimmedLasso(h=1), n_replicates=2).fit(X, X[:, 0], sample_weight=y),
    ],
    ids=["y", "classes", "weights", "bootstrap", "weights of a bootstrap"],
)
def test_a_vector_that_is_refused_by_name(fit, bad):
    with pytest.raises(ValueError, match=r"^(y|sample_weight) (must be|has 1 masked)"):
        fit(bad)


@pytest.mark.parametrize("fit", FITS.values(), ids=FITS)
@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_a_matrix_and_an_array_without_masked_entries_are_read_as_arrays(fit):
    for same in (np.asmatrix(X), np.ma.masked_array(X)):
        found, expected = fit(same, y), fit(X, y)
        for name in ("coef_", "coefs", "coefs_", "precision_"):
            if hasattr(expected, name):
                np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
