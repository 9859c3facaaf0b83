"""Images on the device, scaled as a recipe says, and the splits that the protocol names.

Choices are made on the last 10,000 of the 60,000 training images; final networks train on all of them.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch

from .training import Split

DATASETS = ("mnist", "fashion-mnist")
VALIDATION = 10_000


@lru_cache(maxsize=2)
def raw_images(dataset: str):
    """The images as they are stored; an object with X_train, y_train, X_test, y_test."""
    from trimreg.datasets import images

    if dataset not in DATASETS:
        raise ValueError(f"no data set {dataset!r}; choose from {', '.join(DATASETS)}")
    return images.load_mnist() if dataset == "mnist" else images.load_fashion_mnist()


def load_splits(
    dataset: str,
    network: str,
    input_scaling: str = "standard",
    device="cpu",
    *,
    validation: bool = False,
    images: int | None = None,
) -> dict[str, Split]:
    """Splits "train" and "test", and "validation" if asked for.

    Parameters
    ----------
    dataset : {"mnist", "fashion-mnist"}
    network : str
        Says the shape of an image.
    input_scaling : {"unit", "standard"}
        As in a :class:`~trimreg_reproduction.networks.recipes.Recipe`. Mean and deviation are those of the
        training images.
    device : torch.device
    validation : bool
        Whether the last 10,000 training images (a sixth of fewer) are set apart.
    images : int, optional
        Use that many training images and as many test images, the first of each.
    """
    raw = raw_images(dataset)
    train, labels = raw.X_train[:images], raw.y_train[:images]
    test, test_labels = raw.X_test[:images], raw.y_test[:images]
    held_out = min(VALIDATION, len(train) // 6) if validation else 0
    cut = len(train) - held_out
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
