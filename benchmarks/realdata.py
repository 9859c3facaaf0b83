"""The folds of real data."""

from __future__ import annotations

import numpy as np


def folds_of(y, classes, count, seed):
    """Pairs of training and test samples, shuffled; with the same share of each class if y is of classes."""
    from sklearn.model_selection import KFold, StratifiedKFold

    kind = StratifiedKFold if classes else KFold
    return list(kind(count, shuffle=True, random_state=seed).split(np.zeros((y.size, 1)), y))
