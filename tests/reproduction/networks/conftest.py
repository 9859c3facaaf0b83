"""Images made up of ten patterns and noise, in the place of MNIST."""

import types

import numpy as np
import pytest


def made_up_images(train=360, test=120, noise=60.0, seed=0):
    """Ten blobs of 28 x 28 with noise: easy to learn, and pixels at the border are always 0."""
    rng = np.random.default_rng(seed)
    patterns = np.zeros((10, 28, 28))
    patterns[:, 4:24, 4:24] = np.kron(rng.integers(0, 2, (10, 5, 5)), np.ones((4, 4))) * 200.0

    def draw(count):
        labels = rng.integers(0, 10, count)
        images = patterns[labels].copy()
        images[:, 4:24, 4:24] += rng.normal(0.0, noise, (count, 20, 20))
        return np.clip(images, 0, 255).astype(np.uint8), labels.astype(np.int64)

    (X_train, y_train), (X_test, y_test) = draw(train), draw(test)
    return types.SimpleNamespace(X_train=X_train, y_train=y_train, X_test=X_test, y_test=y_test)


@pytest.fixture(scope="session")
def images():
    return made_up_images()


@pytest.fixture
def no_mnist(monkeypatch, images):
    """Every data set is the made-up one; what trials remember is forgotten."""
    from trimreg_reproduction.networks.training import data, trial

    asked = []

    def raw(dataset):
        asked.append(dataset)
        return images

    monkeypatch.setattr(data, "raw_images", raw)
    monkeypatch.setenv("TRIMREG_DEVICE", "cpu")
    trial._GRIDS.clear()
    return asked
