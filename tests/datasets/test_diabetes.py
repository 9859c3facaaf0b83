"""The diabetes data with second-order terms."""

from __future__ import annotations

import numpy as np

from trimreg.datasets import diabetes_interactions


def test_names_and_columns_belong_together():
    X, y, names = diabetes_interactions()
    assert X.shape == (442, 64)
    assert X.dtype == np.float64
    assert X.flags.f_contiguous
    assert y.shape == (442,)
    assert len(set(names)) == 64
    assert names[:10] == ["age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6"]
    assert "sex^2" not in names
    column = dict(zip(names, X.T, strict=True))
    for name, values in column.items():
        if name.endswith("^2"):
            assert np.array_equal(values, column[name[:-2]] ** 2)
        elif "*" in name:
            first, second = name.split("*")
            assert np.array_equal(values, column[first] * column[second])


def test_main_effects_are_standardized():
    X = diabetes_interactions().X[:, :10]
    np.testing.assert_allclose(X.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(X.std(axis=0), 1.0)


def test_columns_are_independent():
    # The square of sex would be a linear function of sex and the constant.
    X = diabetes_interactions().X
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    assert np.linalg.matrix_rank(Z) == 64
    with_sex = np.column_stack([Z, (X[:, 1] ** 2 - 1.0)])
    assert np.linalg.matrix_rank(with_sex) == 64


def test_every_call_gives_its_own_copy():
    first = diabetes_interactions()
    first.X[:] = 0.0
    assert diabetes_interactions().X.any()
