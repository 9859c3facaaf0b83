"""Images on the device, scaled as the recipe asks, and their splits.

Choices are made on the last 10,000 of the 60,000 training images; the final networks train on all of them.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch

from trimreg.datasets import ImageData, load_fashion_mnist, load_mnist

from .loop import Split

DATASETS = ("mnist", "fashion-mnist")
VALIDATION = 10_000


@lru_cache(maxsize=2)
def raw_images(dataset: str) -> ImageData:
    """The images as they are stored."""
    if dataset not in DATASETS:
        raise ValueError(f"no data set {dataset!r}; choose from {', '.join(DATASETS)}")
    return load_mnist() if dataset == "mnist" else load_fashion_mnist()


def load_splits(
    dataset: str,
    network: str,
    input_scaling: str = "standard",
    device: torch.device | str = "cpu",
    *,
    validation: bool = False,
    images: int | None = None,
) -> dict[str, Split]:
    """The splits "train" and "test", and "validation" if asked for.

    The network determines the shape of an image, ``input_scaling`` is that of the recipe with the mean and
    deviation of the training images, ``validation`` sets the last 10,000 training images (a sixth of fewer)
    apart, and ``images`` limits the number of training and of test images.
    """
    raw = raw_images(dataset)
    train, labels = raw.X_train[:images], raw.y_train[:images]
    test, test_labels = raw.X_test[:images], raw.y_test[:images]
    reserved = min(VALIDATION, len(train) // 6) if validation else 0
    cut = len(train) - reserved
    mean, deviation = 0.0, 1.0
    if input_scaling == "standard":
        seen = train[:cut].astype(np.float64) / 255.0
        mean, deviation = float(seen.mean()), float(seen.std())
    shape = (-1, 784) if network == "LeNet-300-100" else (-1, 1, 28, 28)

    def split(pixels, answers):
        x = torch.as_tensor(np.ascontiguousarray(pixels)).to(device).reshape(shape)
        y = torch.as_tensor(np.asarray(answers, dtype=np.int64)).to(device)
        return Split((x.to(torch.float32) / 255.0 - mean) / deviation, y)

    splits = {"train": split(train[:cut], labels[:cut]), "test": split(test, test_labels)}
    if validation:
        splits["validation"] = split(train[cut:], labels[cut:])
    return splits
