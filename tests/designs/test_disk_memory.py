"""What ``memory`` covers: vectors of a fit by its loss, columns that are kept, predictors of folds."""

import numpy as np
import pytest

from trimreg import (
    MultiTaskTrimmedLasso,
    TrimmedCoxRegressor,
    TrimmedHuberRegressor,
    TrimmedLasso,
    TrimmedLogisticRegression,
    TrimmedLogisticRegressionCV,
)
from trimreg.designs.far.disk import OnDisk
from trimreg.losses import Cox, Huber, Logistic, Multinomial, MultiTaskQuadratic, Poisson, Quadratic
from trimreg.losses.base import Loss
from trimreg.selection.folds import predictors


@pytest.fixture
def X():
    return np.random.default_rng(0).standard_normal((60, 4))


@pytest.mark.parametrize(
    ("loss", "y", "vectors"),
    [
        (Quadratic(), np.zeros(60), 10),
        (Poisson(), np.ones(60), 10),
        (Logistic(), np.zeros(60), 12),
        (Huber(), np.arange(60.0), 16),
        (Multinomial(5), np.zeros(60), 48),
        (Multinomial(10), np.zeros(60), 88),
        (MultiTaskQuadratic(), np.zeros((60, 1)), 10),
        (MultiTaskQuadratic(), np.zeros((60, 10)), 46),
    ],
)
def test_the_vectors_of_a_loss_are_taken_from_the_columns(loss, y, vectors, X, tmp_path):
    np.save(tmp_path / "X.npy", X)
    rows = OnDisk(tmp_path / "X.npy", memory=100_000)
    before = rows.memory
    apart = rows.with_room_for(loss.bound(y, np.full(60, 1 / 60)))
    assert apart.memory == 100_000 - 8 * 60 * vectors - 2 * X.nbytes
    assert apart.design(np.full(60, 1 / 60)).room == apart.memory // (60 * 8)
    assert (rows.memory, rows.passes, apart.passes) == (before, 1, 1)  # as it was, but for the passes


def test_half_of_the_room_is_for_the_work_of_cox(X, tmp_path):
    np.save(tmp_path / "X.npy", X)
    rows = OnDisk(tmp_path / "X.npy", memory=100_000)
    assert rows.with_room_for(Cox()).memory == (100_000 - 8 * 60 * 34 - 2 * X.nbytes) // 2


def test_other_losses_are_counted_by_their_outputs():
    class Own(Loss):
        n_outputs = 3

    assert Own().working_vectors == 32


@pytest.mark.parametrize(
    ("model", "y", "message"),
    [
        (TrimmedLogisticRegression(h=1), np.arange(60) % 5, "48 vectors .* of a fit with loss 'multinomial'"),
        (TrimmedHuberRegressor(h=1), np.arange(60) % 7, "16 vectors .* of a fit with loss 'huber'"),
        (
            MultiTaskTrimmedLasso(h=1),
            np.arange(600).reshape(60, 10) % 7,
            "46 vectors .* of a fit with loss 'multitask'",
        ),
        (
            TrimmedCoxRegressor(h=1),
            np.column_stack([np.arange(60), np.ones(60)]),
            "34 vectors .* of a fit with loss 'cox'",
        ),
        (TrimmedLogisticRegressionCV(hs=[1], cv=2), np.arange(60) % 5, "48 vectors"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_fit_that_exceeds_the_memory_is_refused_before_it_reads(model, y, message, X, tmp_path):
    np.save(tmp_path / "X.npy", X)
    rows = OnDisk(tmp_path / "X.npy", memory=7_000)
    with pytest.raises(ValueError, match=f"memory=7000 bytes is too little for .*X.npy: {message}") as caught:
        model.fit(rows, y)
    assert rows.passes == 0
    enough = int(str(caught.value).rsplit("memory=", 1)[1].split()[0])
    model.fit(OnDisk(tmp_path / "X.npy", memory=enough), y)
    assert model.coef_.shape[-1] == X.shape[1]


def test_ten_vectors_are_enough_for_least_squares(X, tmp_path):
    np.save(tmp_path / "X.npy", X)
    TrimmedLasso(h=1).fit(OnDisk(tmp_path / "X.npy", memory=7_000), X[:, 0])


@pytest.mark.parametrize(("spare", "passes"), [(0, 6), (10, 2), (16, 1)])
def test_predictors_are_made_as_many_at_a_time_as_memory_holds(spare, passes, X, tmp_path):
    np.save(tmp_path / "X.npy", X)
    rows = OnDisk(tmp_path / "X.npy")
    rows.memory = spare * 60 * 8
    coefs, intercepts = np.eye(6, X.shape[1]), np.arange(6.0)
    found = np.array(list(predictors(rows, coefs, intercepts)))
    np.testing.assert_allclose(found, coefs @ X.T + intercepts[:, None])
    assert rows.passes == passes
