"""Repeated columns, against the matrix with its columns copied."""

import numpy as np
import pytest

from trimreg.designs import MultiOutput, WithConstant, as_design
from trimreg.designs.repeated import Repeated

rng = np.random.default_rng(0)
INDEX = np.array([0, 1, 1, 3, 2, 0, 1])
X, D = rng.standard_normal((9, 4)), rng.dirichlet(np.ones(9))
DESIGN = Repeated(as_design(X, D, center=True, scale=True), INDEX)
Z = as_design(X, D, center=True, scale=True).columns(np.arange(4))[:, INDEX]


def test_five_operations_and_what_they_make():
    W, rows = np.array([6, 2, 0, 4]), np.array([1, 5])
    for v in (rng.standard_normal(7), rng.standard_normal((7, 2))):
        np.testing.assert_allclose(DESIGN.matvec(v), Z @ v)
    for r in (rng.standard_normal(9), rng.standard_normal((9, 2))):
        np.testing.assert_allclose(DESIGN.rmatvec(r), Z.T @ r)
    d = rng.random(9)
    np.testing.assert_allclose(DESIGN.columns(W), Z[:, W])
    np.testing.assert_allclose(np.vstack(list(DESIGN.row_blocks(W))), Z[:, W])
    for left in (rows, W, None):
        expected = (Z if left is None else Z[:, left]).T @ (d[:, None] * Z[:, W])
        np.testing.assert_allclose(DESIGN.gram(left, d, W), expected, atol=1e-14)
    gram, sums = DESIGN.gram_and_sums(W, d)
    np.testing.assert_allclose(gram, Z[:, W].T @ (d[:, None] * Z[:, W]), atol=1e-14)
    for found in (sums, DESIGN.weighted_sums(W, d)):
        np.testing.assert_allclose(found, d @ Z[:, W])
    np.testing.assert_allclose(DESIGN.column_norms(d), np.sqrt(d @ Z**2))
    np.testing.assert_allclose(DESIGN.restricted(W).matvec(np.ones(4)), Z[:, W].sum(axis=1))
    factor = rng.random(7)
    np.testing.assert_allclose(DESIGN.rescaled(factor).matvec(np.ones(7)), Z @ factor)


@pytest.mark.parametrize("outputs", [1, 2])
def test_coefficients_in_the_units_of_x_are_sums(outputs):
    design = MultiOutput(WithConstant(DESIGN), outputs)
    theta = rng.standard_normal(8 * outputs)
    coef, intercept = design.original_units(theta)
    assert coef.shape == (outputs, 4)
    np.testing.assert_allclose(X @ coef.T + intercept, design.matvec(theta))
    v = rng.standard_normal((4, outputs))
    np.testing.assert_allclose(DESIGN.folded(DESIGN.divided(v)), v)
