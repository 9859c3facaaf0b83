"""Several outputs and the column of ones, over dense and sparse designs, against explicit matrices."""

import numpy as np
import pytest
import scipy.sparse as sp

from trimreg.designs import MultiOutput, WithConstant, as_design

N, P, K = 9, 5, 3
FORMS = {"dense": np.asarray, "fortran": np.asfortranarray, "sparse": sp.csc_array, "float32": np.float32}


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
