"""The diabetes data of scikit-learn with all second-order terms: 64 correlated features."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class NamedData(NamedTuple):
    """A data set with feature names.

    Attributes
    ----------
    X : ndarray of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,)
    feature_names : list of str
    """

    X: np.ndarray
    y: np.ndarray
    feature_names: list[str]


def diabetes_interactions() -> NamedData:
    """The diabetes data with all squares and pairwise interactions, 442 samples and 64 features.

    The ten main effects of scikit-learn's ``load_diabetes`` (age, sex, bmi, bp, s1 to s6; the target is the
    progression of the disease after one year) are standardized to mean 0 and variance 1. Then come the
    squares and pairwise products of the standardized features. A product therefore says whether two features
    are high or low *together*; a product of raw values would mostly repeat its factors. The second-order
    terms are neither centered nor scaled again. The square of sex is omitted: sex has two values, so its
    square is a linear function of it.

    Returns
    -------
    NamedData
        ``X`` is float64 in Fortran order. Names are ``"bmi"``, ``"bmi^2"`` and ``"bmi*bp"``.

    References
    ----------
    Efron, Hastie, Johnstone and Tibshirani (2004). Least angle regression. Annals of Statistics 32(2),
    407-499: the "quadratic model" with 64 features is theirs.

    Examples
    --------
    >>> from trimreg.datasets import diabetes_interactions
    >>> X, y, names = diabetes_interactions()
    >>> X.shape, names[2], names[11], names[-1]
    ((442, 64), 'bmi', 'bmi^2', 's5*s6')
    """
    from sklearn.datasets import load_diabetes

    raw = load_diabetes(scaled=False)
    names = [str(name) for name in raw.feature_names]
    main = raw.data - raw.data.mean(axis=0)
    main /= np.sqrt(np.mean(main**2, axis=0))
    p = len(names)
    squares = [j for j in range(p) if np.unique(main[:, j]).size > 2]
    pairs = [(i, j) for i in range(p) for j in range(i + 1, p)]
    columns = [main, main[:, squares] ** 2, *(main[:, [i]] * main[:, [j]] for i, j in pairs)]
    labels = [
        *names,
        *(f"{names[j]}^2" for j in squares),
        *(f"{names[i]}*{names[j]}" for i, j in pairs),
    ]
    X = np.asfortranarray(np.hstack(columns), dtype=float)
    return NamedData(X, np.asarray(raw.target, dtype=float), labels)
