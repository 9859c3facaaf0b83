"""Moments, shapes and seeds of the synthetic designs."""

from __future__ import annotations

import numpy as np
import pytest

from trimreg.datasets import covariance_m1, covariance_m2, make_ar1, make_gaussian, make_paper_design

MAKERS = {
    "ar1": lambda seed, n=30, p=12, k=4: make_ar1(n, p, k, rho=0.5, snr=3.0, random_state=seed),
    "gaussian": lambda seed, n=30, p=12, k=4: make_gaussian(n, p, k, random_state=seed),
    "M1": lambda seed, n=30, p=12, k=4: make_paper_design(n, p, k, design="M1", random_state=seed),
    "M2": lambda seed, n=30, p=12, k=4: make_paper_design(n, p, k, design="M2", random_state=seed),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_shapes_and_seeds(make):
    data = make(0)
    assert data.X.shape == (30, 12)
    assert data.X.flags.f_contiguous
    assert data.X.dtype == data.y.dtype == data.coef.dtype == np.float64
    assert data.y.shape == (30,)
    assert np.count_nonzero(data.coef) == 4
    for again in (make(0), make(np.random.default_rng(0))):
        assert np.array_equal(data.X, again.X)
        assert np.array_equal(data.y, again.y)
        assert np.array_equal(data.coef, again.coef)
    assert not np.array_equal(data.X, make(1).X)


@pytest.mark.parametrize(
    ("data", "covariance"),
    [
        (
            make_ar1(40_000, 6, 2, rho=-0.8, snr=1.0, random_state=0),
            (-0.8) ** np.abs(np.subtract.outer(np.arange(6), np.arange(6))),
        ),
        (make_gaussian(40_000, 6, 2, random_state=0), np.eye(6)),
        (make_paper_design(40_000, 6, 4, design="M1", random_state=0), covariance_m1(6, 4, 0.5)),
        (make_paper_design(40_000, 6, 2, design="M1", theta=-0.6, random_state=0), covariance_m1(6, 2, -0.6)),
        (make_paper_design(40_000, 6, 2, design="M2", random_state=0), covariance_m2(6, 0.7)),
        (make_paper_design(40_000, 6, 2, design="M2", theta=0.2, random_state=0), covariance_m2(6, 0.2)),
    ],
    ids=["ar1", "gaussian", "M1 singular", "M1", "M2", "M2 0.2"],
)
def test_moments(data, covariance):
    # standard errors are at most sqrt(2/n) = 0.007
    assert np.abs(data.X.mean(axis=0)).max() < 0.03
    assert np.abs(data.X.T @ data.X / 40_000 - covariance).max() < 0.035
    residual = data.y - data.X @ data.coef
    assert residual.std() == pytest.approx(data.noise, rel=0.02)
    assert np.abs(data.X.T @ residual).max() / 40_000 < 0.03 * data.noise


def test_signal_to_noise():
    X, _, coef, noise = make_ar1(200, 50, 10, rho=0.5, snr=5.0, coefficient=2.0, random_state=3)
    assert np.var(X @ coef) / noise**2 == pytest.approx(5.0)
    assert set(np.unique(coef)) == {-2.0, 0.0, 2.0}
    quiet = make_ar1(20, 5, 2, rho=0.0, snr=np.inf, random_state=0)
    assert quiet.noise == 0.0
    assert np.array_equal(quiet.y, quiet.X @ quiet.coef)


@pytest.mark.parametrize("make", [make_gaussian, make_paper_design])
def test_coefficients_have_their_scale(make):
    coef = make(2, 4001, 4000, coefficient_scale=0.8, noise=0.0, random_state=0).coef
    assert coef[coef != 0].std() == pytest.approx(0.8, rel=0.05)
    default = make(2, 4001, 4000, random_state=0)
    assert default.coef[default.coef != 0].std() == pytest.approx(5.0, rel=0.05)
    assert default.noise == 1.0


def incoherence(covariance, support):
    """The largest row sum of |C_{S^c S} C_SS^-1|; the lasso's condition is that it is below 1."""
    outside = np.setdiff1d(np.arange(len(covariance)), support)
    inside = covariance[np.ix_(support, support)]
    return np.abs(np.linalg.solve(inside, covariance[np.ix_(support, outside)])).sum(axis=0).max()


def test_incoherence_of_the_papers_designs():
    k, p = 16, 256
    first = make_paper_design(10, p, k, design="M1", support="first", random_state=0)
    assert np.array_equal(np.flatnonzero(first.coef), np.arange(k))
    assert incoherence(covariance_m1(p, k, 2 / k), np.arange(k)) == pytest.approx(2.0)
    assert incoherence(covariance_m2(p, 0.7), np.arange(k)) < 1
    # at random positions M1 is as harmless as M2
    for seed in range(20):
        drawn = np.flatnonzero(make_paper_design(2, p, k, design="M1", random_state=seed).coef)
        assert incoherence(covariance_m1(p, k, 2 / k), drawn) < 1


def test_covariances_are_covariances():
    assert np.linalg.eigvalsh(covariance_m1(9, 4, 0.5)).min() > -1e-12
    assert np.linalg.eigvalsh(covariance_m2(5, 1.0)).min() > -1e-12


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: make_ar1(0, 5, 1, rho=0.5, snr=1.0), "n_samples"),
        (lambda: make_ar1(5, 2.5, 1, rho=0.5, snr=1.0), "n_features"),
        (lambda: make_ar1(5, 2, 3, rho=0.5, snr=1.0), "n_nonzero"),
        (lambda: make_ar1(5, 2, True, rho=0.5, snr=1.0), "n_nonzero"),
        (lambda: make_ar1(5, 2, 1, rho=1.5, snr=1.0), "rho"),
        (lambda: make_ar1(5, 2, 1, rho=0.5, snr=0.0), "snr"),
        (lambda: make_ar1(5, 2, 1, rho=0.5, snr=1.0, coefficient="a"), "coefficient"),
        (lambda: make_gaussian(5, 2, 1, noise=-1.0), "noise"),
        (lambda: make_gaussian(5, 2, 1, coefficient_scale=np.nan), "coefficient_scale"),
        (lambda: make_paper_design(5, 9, 4, design="M3"), "design"),
        (lambda: make_paper_design(5, 9, 4, support="last"), "support"),
        (lambda: make_paper_design(5, 9, 3, design="M1"), "theta"),  # 2/3 > 1/sqrt(3)
        (lambda: make_paper_design(5, 4, 4, design="M1"), "n_nonzero"),
        (lambda: make_paper_design(5, 9, 4, theta=1.5), "theta"),
        (lambda: covariance_m2(3, -0.1), "theta"),
    ],
)
def test_bad_arguments_are_named(call, name):
    with pytest.raises(ValueError, match=name):
        call()
