"""Every loss of the registry: gradient and curvature against finite differences."""

import numpy as np
import pytest

from trimreg.losses import LOSSES, Quadratic, get_loss


@pytest.fixture(params=LOSSES)
def case(request):
    rng = np.random.default_rng(0)
    loss = get_loss(request.param)
    y = rng.integers(0, 2, 12) + float(loss.name == "gamma")
    d = rng.random(12)
    d[3] = 0.0
    return loss, 2 * rng.standard_normal(12), y, d / d.sum()


def test_gradient_is_the_derivative_of_the_value(case):
    loss, eta, y, d = case
    numerical = [
        (loss.value(eta + step, y, d) - loss.value(eta - step, y, d)) / 2e-5
        for step in 1e-5 * np.eye(eta.size)
    ]
    np.testing.assert_allclose(loss.gradient(eta, y, d), numerical, atol=1e-8)


def test_curvature_is_the_derivative_of_the_gradient(case):
    loss, eta, y, d = case
    numerical = (loss.gradient(eta + 1e-5, y, d) - loss.gradient(eta - 1e-5, y, d)) / 2e-5
    np.testing.assert_allclose(loss.curvature(eta, y, d), numerical, atol=1e-7)


def test_curvature_keeps_what_the_loss_says_of_it(case):
    loss, eta, y, d = case
    curvature = loss.curvature(eta, y, d)
    assert np.all(curvature >= 0)
    assert np.all(curvature[d > 0] <= d[d > 0] * loss.curvature_bound + 1e-12)
    same = np.allclose(curvature, loss.curvature(eta + 1.7, y, d))
    assert same == loss.constant_curvature


def test_a_sample_counts_as_its_weight_says(case):
    loss, eta, y, d = case
    twice = np.repeat(np.arange(eta.size), 2)
    assert loss.value(eta[twice], y[twice], d[twice] / 2) == pytest.approx(loss.value(eta, y, d))


def test_quadratic_is_half_the_mean_square():
    eta, y = np.array([1.0, 2.0, 4.0]), np.array([0.0, 2.0, 1.0])
    assert Quadratic().value(eta, y, np.full(3, 1 / 3)) == pytest.approx(np.mean((eta - y) ** 2) / 2)


def test_get_loss():
    loss = Quadratic()
    assert get_loss(loss) is loss
    assert isinstance(get_loss("quadratic"), Quadratic)


@pytest.mark.parametrize("bad", ["squared", None, 3, Quadratic])
def test_get_loss_refuses(bad):
    with pytest.raises(ValueError, match="loss must be one of"):
        get_loss(bad)
