"""Gaussian knockoffs: the covariance that they must have, and the least of f."""

import numpy as np
import pytest
from scipy.optimize import minimize

from trimreg.inference import GaussianKnockoffs
from trimreg.inference.sampler import least_reconstructable


def covariance(p=4, seed=0):
    A = np.random.default_rng(seed).standard_normal((p, p))
    return A @ A.T + 0.3 * np.eye(p)


def test_a_feature_may_be_exchanged_with_its_knockoff():
    rng, S = np.random.default_rng(1), covariance()
    X = 3.0 + rng.standard_normal((60000, 4)) @ np.linalg.cholesky(S).T
    for known in (None, S):
        sampler = GaussianKnockoffs(X, known)
        both = np.hstack([X, sampler(X, rng)])
        np.testing.assert_allclose(both.mean(axis=0), 3.0, atol=0.08)
        D = np.diag(sampler.s)
        np.testing.assert_allclose(np.cov(both.T), np.block([[S, S - D], [S - D, S]]), atol=0.12)


@pytest.mark.filterwarnings("ignore:The equi-correlated matrix:UserWarning")
def test_what_hidimstat_draws_has_another_covariance():
    """The reason why the sampler is written here."""
    samplers = pytest.importorskip("hidimstat.samplers")
    rng, S = np.random.default_rng(1), covariance()
    X = rng.standard_normal((60000, 4)) @ np.linalg.cholesky(S).T
    drawn = samplers.GaussianKnockoffs().fit(X).sample(1, random_state=0)[0]
    assert np.abs(np.cov(drawn.T) - S).max() > 0.3


def test_s_is_the_minimum():
    C = covariance(6, seed=3)
    C /= np.sqrt(np.outer(np.diag(C), np.diag(C)))

    def f(logs):
        inner = 2 * C - np.diag(np.exp(logs))
        return (
            np.sum(np.exp(-logs)) + np.trace(np.linalg.inv(inner))
            if np.linalg.eigvalsh(inner)[0] > 0
            else 1e9
        )

    s = least_reconstructable(C)
    best = minimize(f, np.log(s) - 0.1, method="Nelder-Mead", options={"maxiter": 4000, "xatol": 1e-6})
    assert f(np.log(s)) <= best.fun * 1.002
    np.testing.assert_allclose(least_reconstructable(np.eye(3)), 1.0, rtol=0.02)


def test_bad_input_is_named():
    X = np.random.default_rng(0).standard_normal((30, 3))
    with pytest.raises(ValueError, match="collinear columns"):
        least_reconstructable(np.ones((2, 2)))
    for bad in (np.eye(2), -np.eye(3)):
        with pytest.raises(ValueError, match="covariance must be positive definite"):
            GaussianKnockoffs(X, bad)
    constant = X * [1.0, 0.0, 1.0]
    assert np.isfinite(GaussianKnockoffs(constant)(constant, np.random.default_rng(0))).all()
