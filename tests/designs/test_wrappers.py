"""Standardized columns, a column of ones and several outputs, against explicit matrices."""

import numpy as np
import pytest
import scipy.sparse as sp

from trimreg import TrimmedLasso, TrimmedLogisticRegression
from trimreg.designs import Design, MultiOutput, WithConstant, as_design


class FiveOperations(Design):
    """The least that a user writes."""

    def __init__(self, X, near=True):
        self.X, self.shape, self.dtype, self.near = X, X.shape, X.dtype, near

    def matvec(self, v):
        return self.X @ v

    def rmatvec(self, r):
        return self.X.T @ r

    def columns(self, W):
        return self.X[:, W]

    def gram(self, rows, d, cols):
        return self.X[:, slice(None) if rows is None else rows].T @ (d[:, None] * self.X[:, cols])

    def column_norms(self, d):
        return np.sqrt(d @ self.X**2)


N, P, K = 9, 5, 3
FORMS = {
    "dense": np.asarray, "fortran": np.asfortranarray, "sparse": sp.csc_array, "float32": np.float32,
    "own": FiveOperations,
}  # fmt: skip


def data(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.integers(-2, 3, (N, P)) * 1.0  # exact also in float32, with many zeros
    X[:, 2] = 4.0  # constant
    d = rng.random(N) * (rng.random(N) < 0.8)
    return X, d / d.sum()


def explicit(X, d, center, scale):
    mean = d @ X if center else np.zeros(P)
    Z = X - mean
    deviation = np.sqrt(d @ Z**2)
    alive = deviation > 1e-12
    return Z * np.where(alive, 1.0 / np.where(alive, deviation, 1.0) if scale else 1.0, 0.0)


@pytest.fixture(params=FORMS)
def form(request):
    return FORMS[request.param]


@pytest.fixture(params=[(False, False), (True, False), (True, True)], ids=["raw", "centred", "scaled"])
def setting(request):
    return request.param


def close(actual, expected):
    assert actual.dtype == float
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)


def test_several_columns_at_once(form, setting):
    """Products with a matrix are those with its columns."""
    X, d = data()
    Z, design = explicit(X, d, *setting), as_design(form(X), d, center=setting[0], scale=setting[1])
    rng = np.random.default_rng(1)
    V, R = rng.standard_normal((P, K)), rng.standard_normal((N, K))
    V[[0, 1, 3]] = 0.0  # few rows are used, as in a sparse model
    close(design.matvec(V), Z @ V)
    close(design.rmatvec(R), Z.T @ R)
    coef, intercept = design.original_units(V)
    assert intercept.shape == (K,)
    close(X @ coef + intercept, Z @ V)


def test_weighted_sums(form, setting):
    X, d = data()
    Z, design = explicit(X, d, *setting), as_design(form(X), d, center=setting[0], scale=setting[1])
    other = np.linspace(0.0, 2.0, N)  # as a curvature: not the weights that centred the columns
    W = np.array([4, 0, 2])
    close(design.weighted_sums(W, other), Z[:, W].T @ other)


@pytest.mark.parametrize("factor", [None, np.linspace(0.5, 3.0, P + 1)])
def test_with_constant(form, setting, factor):
    X, d = data()
    Z = np.column_stack([explicit(X, d, *setting), np.ones(N)])
    design = WithConstant(as_design(form(X), d, center=setting[0], scale=setting[1]))
    if factor is not None:
        Z, design = Z * factor, design.rescaled(factor)
    other = np.linspace(0.0, 2.0, N)
    for rows in (np.array([5, 0, 3]), np.array([1, 4]), np.array([5]), np.array([], dtype=int)):
        for cols in (np.array([2, 5, 1]), np.array([0])):
            close(design.gram(rows, other, cols), Z[:, rows].T @ (other[:, None] * Z[:, cols]))
        close(design.gram(rows, other, rows), Z[:, rows].T @ (other[:, None] * Z[:, rows]))
    close(design.gram(None, other, np.array([5, 1])), Z.T @ (other[:, None] * Z[:, [5, 1]]))
    close(design.columns(np.array([5, 0])), Z[:, [5, 0]])
    close(design.column_norms(other), np.sqrt(other @ Z**2))
    V = np.random.default_rng(2).standard_normal((P + 1, K))
    close(design.matvec(V), Z @ V)
    close(design.rmatvec(Z @ V), Z.T @ (Z @ V))
    coef, intercept = design.original_units(V[:, 0])
    close(X @ coef + intercept, Z @ V[:, 0])


@pytest.mark.parametrize("constant", [False, True])
def test_several_outputs(form, setting, constant):
    X, d = data()
    Z, inner = explicit(X, d, *setting), as_design(form(X), d, center=setting[0], scale=setting[1])
    if constant:
        Z, inner = np.column_stack([Z, np.ones(N)]), WithConstant(inner)
    p = Z.shape[1]
    design = MultiOutput(inner, K)
    assert design.shape == (N, p * K)
    whole = np.kron(Z, np.eye(K))  # row i K + k is sample i, output k
    rng = np.random.default_rng(3)
    theta, R = rng.standard_normal(p * K), rng.standard_normal((N, K))
    close(design.matvec(theta), (whole @ theta).reshape(N, K))
    close(design.rmatvec(R), whole.T @ R.ravel())
    close(design.column_norms(d), np.sqrt(np.repeat(d, K) @ whole**2))
    W = np.concatenate([np.arange(K) + j * K for j in (3, 0, p - 1)])
    V = np.arange(K) + K
    weight = np.repeat(d, K)[:, None]
    close(design.gram(W, d, W), whole[:, W].T @ (weight * whole[:, W]))
    close(design.gram(V, d, W), whole[:, V].T @ (weight * whole[:, W]))
    coef, intercept = design.original_units(theta)
    assert (coef.shape, np.shape(intercept)) == ((K, P), (K,))
    close(X @ coef.T + intercept, (whole @ theta).reshape(N, K))
    factor = np.repeat(np.linspace(0.5, 2.0, p), K)
    close(design.rescaled(factor).matvec(theta), (whole @ (factor * theta)).reshape(N, K))
    with pytest.raises(ValueError, match="columns need a design with one output; this design has 3"):
        design.columns(W)


def test_one_output_of_a_matrix(form, setting):
    """A matrix of one column is the vector, but for its shape."""
    X, d = data()
    inner = as_design(form(X), d, center=setting[0], scale=setting[1])
    design = MultiOutput(inner, 1)
    theta, W = np.arange(1.0, P + 1), np.array([4, 1])
    np.testing.assert_array_equal(design.matvec(theta), inner.matvec(theta)[:, None])
    np.testing.assert_array_equal(design.columns(W), inner.columns(W))
    np.testing.assert_array_equal(design.gram(None, d, W), inner.gram(None, d, W))
    np.testing.assert_array_equal(design.gram(W, d, W), inner.gram(W, d, W))


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_a_few_columns_are_a_design_of_their_own(form, constant, center):
    X, d = data()
    design = as_design(FORMS[form](X), d, center=center, scale=True)
    W = np.array([0, 1, 3])
    if constant:
        design, W = WithConstant(design), np.append(W, P)
    Z, part, every = design.columns(W), design.restricted(W), np.arange(W.size)
    rng = np.random.default_rng(1)
    v, r = rng.standard_normal(W.size), rng.standard_normal(N)
    assert part.shape == Z.shape
    np.testing.assert_allclose(part.matvec(v), Z @ v, atol=1e-12)
    np.testing.assert_allclose(part.rmatvec(r), Z.T @ r, atol=1e-12)
    np.testing.assert_allclose(part.gram(every, r, every), Z.T @ (Z * r[:, None]), atol=1e-12)
    np.testing.assert_allclose(part.gram(every, d, every), Z.T @ (Z * d[:, None]), atol=1e-12)


# -- a design of the user's own ---------------------------------------------------------------------------


def test_an_operation_that_is_missing_is_named():
    class Half(Design):
        def matvec(self, v):
            return v

    with pytest.raises(TypeError, match=r"abstract class Half .*rmatvec"):
        Half()


def test_what_has_a_default():
    X, d = data(1)
    design, W, rng = FiveOperations(X), np.array([3, 0]), np.random.default_rng(2)
    factor, V = rng.uniform(0.5, 2.0, P), rng.standard_normal((2, 3))
    close(
        design.rescaled(factor).rescaled(factor).gram(None, d, W),
        (X * factor**2).T @ (d[:, None] * (X * factor**2)[:, W]),
    )
    close(design.rescaled(factor).column_norms(d), np.sqrt(d @ X**2) * factor)
    close(design.rescaled(factor).original_units(np.ones(P))[0], factor)
    close(design.restricted(W).matvec(np.ones(2)), X[:, W].sum(axis=1))
    square, product = design.combination_moments(W, V, np.array([1]), d)
    close(square, d @ (X[:, W] @ V) ** 2)
    close(product, X[:, [0]].T @ (d[:, None] * (X[:, W] @ V)))
    close(np.concatenate(list(design.row_blocks(W))), X[:, W])
    close(design.product(np.ones(P), 2.0), X.sum(axis=1) + 2.0)
    assert design.uncompressed(d) == (design, d)
    assert repr(design) == "<FiveOperations 9 x 5 float64>"


def test_columns_far_from_zero_or_of_extreme_size_are_standardized():
    X, d = data(1)
    X[:, 0], X[:, 1], X[:, 3] = X[:, 0] + 1e9, X[:, 1] * 1e-170, X[:, 3] * 1e170
    ours, dense = (as_design(form(X), d, center=True, scale=True) for form in (FiveOperations, np.asarray))
    np.testing.assert_allclose(ours.inverse_scale, dense.inverse_scale, rtol=1e-12)
    np.testing.assert_allclose(ours.columns(np.arange(P)), dense.columns(np.arange(P)), atol=1e-12)
    np.testing.assert_allclose(ours.column_norms(d.copy()), dense.column_norms(d.copy()), rtol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("center", [True, False])
def test_a_column_that_is_not_finite_is_named(bad, center):
    X, d = data(1)
    X[np.flatnonzero(d)[0], 3] = bad
    with pytest.raises(ValueError, match="X contains NaN or inf in column 3"):
        as_design(FiveOperations(X), d, center=center)


@pytest.mark.parametrize("near", [True, False])
def test_fits_with_a_design_of_five_operations(near):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 8)) + 3.0
    y = X[:, 2] - 2.0 * X[:, 5] + 0.1 * rng.standard_normal(60)
    for model, target in ((TrimmedLasso(h=2), y), (TrimmedLogisticRegression(h=2, alpha=0.02), y > y.mean())):
        expected = model.fit(X, target).coef_.copy()
        np.testing.assert_allclose(model.fit(FiveOperations(X, near), target).coef_, expected, atol=1e-6)
