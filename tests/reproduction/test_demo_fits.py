"""The demonstration's fits: nothing is chosen on the test set, and the noise is what it says."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from trimreg_reproduction.demo import fits as demo


@pytest.fixture(scope="module")
def data():
    return demo._read(seed=3)


def test_columns_are_standardized_by_the_training_set(data):
    np.testing.assert_allclose(data.X.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(data.X.std(axis=0), 1.0)
    assert data.X.shape == (331, 64)
    assert data.X_test.shape == (111, 64)


def test_every_choice_is_made_without_the_test_set(data):
    blind = replace(data, X_test=data.X_test * np.nan, y_test=data.y_test * np.nan)
    lasso = demo._lasso(blind)
    trimmed = demo._trimmed_by_validation(blind)
    mcp = demo._mcp(blind, lasso.alphas_[::6])
    assert np.count_nonzero(trimmed.coef_) == trimmed.h_
    assert trimmed.h_ in demo.H_VALUES
    assert lasso.alphas_.min() < lasso.alpha_ < lasso.alphas_.max()
    assert mcp.alpha in lasso.alphas_


def test_certificates_expose_a_model_that_is_no_minimum(data):
    model = demo._trimmed(data, 4)
    good = demo._checked(data, "trimmed lasso", "h = 4", model)
    assert good.swap_optimal
    assert good.stationarity < 1e-12
    model.coef_ = model.coef_ * 1.1
    assert demo._checked(data, "trimmed lasso", "h = 4", model).stationarity > 1.0
    # The four variables that are least like the target, fitted as well as they can be.
    poor = np.argsort(np.abs(data.X.T @ data.y))[:4]
    model.coef_ = np.zeros(64)
    model.coef_[poor] = np.linalg.lstsq(data.X[:, poor], data.y - data.y.mean(), rcond=None)[0]
    assert not demo._checked(data, "trimmed lasso", "h = 4", model).swap_optimal


def test_noise_is_two_standard_errors_of_a_paired_difference():
    rng = np.random.default_rng(0)
    n = 4000
    y = np.zeros(n)
    errors = rng.standard_normal((2, n))
    models = [SimpleNamespace(predict=lambda X, e=e: e) for e in errors]
    noise = demo._noise(SimpleNamespace(y_test=y, X_test=None), models)
    # Var of the difference of two independent mean squares is 4/n, and RMSE is 1.
    assert noise == pytest.approx(2 * np.sqrt(4 / n) / 2, rel=0.05)
