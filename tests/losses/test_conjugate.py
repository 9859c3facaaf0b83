"""Conjugates: equality of Fenchel and Young at gradients, inequality elsewhere, inf off the domain."""

import numpy as np
import pytest

from trimreg.losses import Huber, Logistic, Loss, Poisson, Quadratic, Quantile, SquaredHinge

LOSSES = [Quadratic(), Logistic(), Poisson(), Huber(scale=0.6), Quantile(0.3, smoothing=0.4), SquaredHinge()]


def sample(loss, rng, n=30):
    y = rng.standard_normal(n)
    if isinstance(loss, Logistic | SquaredHinge):
        y = (y > 0) * 1.0
    if isinstance(loss, Poisson):
        y = rng.poisson(2.0, n) * 1.0
    d = rng.random(n)
    d[:3] = 0.0
    return y, d / d.sum()


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_a_conjugate_is_the_supremum(loss):
    rng = np.random.default_rng(0)
    y, d = sample(loss, rng)
    for _ in range(20):
        eta, other = rng.standard_normal((2, 30))
        g = loss.gradient(eta, y, d)
        conjugate = loss.conjugate(g, y, d)
        assert conjugate == pytest.approx(g @ eta - loss.value(eta, y, d), abs=1e-12)
        assert conjugate >= g @ other - loss.value(other, y, d)


@pytest.mark.parametrize("loss", LOSSES[1:], ids=lambda loss: loss.name)
def test_a_conjugate_is_infinite_off_its_domain(loss):
    y, d = sample(loss, np.random.default_rng(1))
    assert loss.conjugate(-10.0 * d * (y + 1.0), y, d) == np.inf


def test_a_loss_without_a_conjugate_says_so():
    for loss in (Loss(), Huber()):
        with pytest.raises(NotImplementedError):
            loss.conjugate(np.zeros(2), np.zeros(2), np.full(2, 0.5))
