"""Every kind of design against the explicit matrix Z = (X - m) / s that it stands for."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from trimreg.designs import DenseDesign, SparseDesign, WithConstant, as_design
from trimreg.designs.far.design import BlockedDesign
from trimreg.designs.far.rows import ArrayRows

N, P = 23, 9


def memory_mapped(X, tmp_path):
    path = tmp_path / "X.npy"
    np.save(path, X)
    return np.load(path, mmap_mode="r")


def read_only(X, tmp_path):
    X = X.copy()
    X.flags.writeable = False
    return X


def with_gaps(X, tmp_path):
    wide = np.full((2 * X.shape[0], 3 * X.shape[1]), np.nan)
    wide[::2, ::3] = X
    return wide[::2, ::3]


KINDS = {
    "C": lambda X, tmp_path: np.ascontiguousarray(X),
    "F": lambda X, tmp_path: np.asfortranarray(X),
    "float32-C": lambda X, tmp_path: np.ascontiguousarray(X, dtype=np.float32),
    "float32-F": lambda X, tmp_path: np.asfortranarray(X, dtype=np.float32),
    "read-only": read_only,
    "memmap": memory_mapped,
    "memmap-F": lambda X, tmp_path: memory_mapped(np.asfortranarray(X), tmp_path),
    "memmap-float32": lambda X, tmp_path: memory_mapped(X.astype(np.float32), tmp_path),
    "non-contiguous": with_gaps,
    "CSC": lambda X, tmp_path: sp.csc_array(X),
    "CSR": lambda X, tmp_path: sp.csr_array(X),
    "COO": lambda X, tmp_path: sp.coo_array(X),
    "CSC-float32": lambda X, tmp_path: sp.csc_array(X.astype(np.float32)),
    "CSR-matrix": lambda X, tmp_path: sp.csr_matrix(X),
    "rows": lambda X, tmp_path: ArrayRows(X, block_rows=10),
    "rows-one-by-one": lambda X, tmp_path: ArrayRows(X, block_rows=1),
    "rows-all-at-once": lambda X, tmp_path: ArrayRows(np.asfortranarray(X), block_rows=10**6),
    "rows-many": lambda X, tmp_path: ArrayRows(X, block_rows=7_001),
    "rows-float32": lambda X, tmp_path: ArrayRows(X.astype(np.float32), block_rows=10),
    "rows-nothing-held": lambda X, tmp_path: ArrayRows(X, block_rows=10, memory=0),
    "rows-two-held": lambda X, tmp_path: ArrayRows(X, block_rows=10, memory=2 * 8 * len(X)),
}


@pytest.fixture(params=KINDS)
def kind(request, tmp_path):
    return lambda X: KINDS[request.param](X, tmp_path)


@pytest.fixture(params=["uniform", "random"])
def weights(request):
    d = np.ones(N) if request.param == "uniform" else np.random.default_rng(5).random(N)
    if request.param == "random":
        d[[0, 7]] = 0.0
    return d / d.sum()


def ordinary(seed=0):
    """Numbers that float32 holds exactly, two thirds of them zero; a constant column and one of zeros."""
    rng = np.random.default_rng(seed)
    X = np.round(4 * rng.standard_normal((N, P)), 2).astype(np.float32).astype(float)
    X[rng.random((N, P)) < 0.65] = 0.0
    X[:, 3] = 0.1 if seed else 0.375
    X[:, 6] = 0.0
    return X


def explicit(X, d, center, scale):
    """Z by its definition; a column that is constant after centring is zero."""
    Z = X - d @ X if center else X.copy()
    deviation = np.sqrt(d @ Z**2)
    dead = np.ptp(X, axis=0) == 0 if center else ~X.any(axis=0)
    Z[:, dead] = 0.0
    return Z / np.where(dead, 1.0, deviation) if scale else Z


def assert_same_matrix(design, Z, rtol, d):
    """All five operations; errors are measured against the largest entry that each result has."""
    n, p = Z.shape
    rng = np.random.default_rng(1)
    assert design.shape == (n, p)
    rows, cols = np.array([p - 1, 0, 2]), np.array([1, 3, p - 1, 2])
    few, dense_v, r = np.zeros(p), rng.standard_normal(p), rng.standard_normal(n)
    few[2] = -1.5
    several = rng.standard_normal((n, 3))
    every = np.arange(p)
    none = np.empty(0, dtype=int)
    curvature = rng.random(n)
    pairs = [
        (design.matvec(dense_v), Z @ dense_v),
        (design.matvec(few), Z @ few),  # a sparse vector takes another route
        (design.matvec(np.zeros(p)), np.zeros(n)),
        (design.rmatvec(r), Z.T @ r),
        (design.rmatvec(several), Z.T @ several),
        (design.columns(cols), Z[:, cols]),
        (design.columns(every), Z),
        (design.columns(none), Z[:, none]),
        (design.gram(rows, curvature, cols), Z[:, rows].T @ (Z[:, cols] * curvature[:, None])),
        (design.gram(cols, d, cols), Z[:, cols].T @ (Z[:, cols] * d[:, None])),
        (design.gram(None, curvature, cols), Z.T @ (Z[:, cols] * curvature[:, None])),
        (design.gram_and_sums(cols, curvature)[0], Z[:, cols].T @ (Z[:, cols] * curvature[:, None])),
        (design.gram_and_sums(cols, curvature)[1], Z[:, cols].T @ curvature),
        (design.weighted_sums(rows, r), Z[:, rows].T @ r),
        (design.restricted(rows[::-1]).matvec(np.arange(1.0, 4.0)), Z[:, rows[::-1]] @ np.arange(1.0, 4.0)),
        (design.column_norms(d), np.sqrt(d @ Z**2)),
        (design.column_norms(curvature), np.sqrt(curvature @ Z**2)),
    ]
    for got, expected in pairs:
        assert type(got) is np.ndarray
        assert got.shape == expected.shape
        np.testing.assert_allclose(
            got, expected, rtol=0, atol=rtol * max(np.abs(expected).max(initial=0), 1e-300)
        )
    for got in (
        design.matvec(dense_v),
        design.rmatvec(r),
        design.gram(rows, d, cols),
        design.column_norms(d),
    ):
        assert got.dtype == float


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("scale", [False, True])
def test_five_operations(kind, weights, center, scale):
    X = ordinary()
    given = kind(X)
    design = as_design(given, weights, center=center, scale=scale)
    dense = BlockedDesign if isinstance(given, ArrayRows) else DenseDesign
    assert isinstance(design, SparseDesign if sp.issparse(given) else dense)
    rtol = 2e-6 if given.dtype == np.float32 else 1e-13
    Z = explicit(X, weights, center, scale)
    assert_same_matrix(design, Z, rtol, weights)

    factor = np.linspace(0.5, 3.0, P)
    assert_same_matrix(design.rescaled(factor), Z * factor, rtol, weights)
    assert_same_matrix(design, Z, rtol, weights)  # the first is as it was


def test_original_units(kind, weights):
    X = ordinary()
    design = as_design(kind(X), weights, center=True, scale=True)
    theta = np.arange(1.0, P + 1)
    coef, intercept = design.original_units(theta)
    np.testing.assert_allclose(X @ coef + intercept, explicit(X, weights, True, True) @ theta, atol=1e-5)
    assert coef[3] == 0  # constant columns have no coefficient
    assert coef[6] == 0


def test_with_constant(kind, weights):
    X = ordinary()
    Z = explicit(X, weights, center=True, scale=False)
    given = kind(X)
    design = WithConstant(as_design(given, weights, center=True))
    rtol = 2e-6 if given.dtype == np.float32 else 1e-13
    assert_same_matrix(design, np.column_stack([Z, np.ones(N)]), rtol, weights)
    factor = np.linspace(0.5, 2.0, P + 1)
    assert_same_matrix(design.rescaled(factor), np.column_stack([Z, np.ones(N)]) * factor, rtol, weights)
    theta = np.arange(1.0, P + 2)
    coef, intercept = design.rescaled(factor).original_units(theta)
    np.testing.assert_allclose(X @ coef + intercept, Z @ (factor * theta)[:-1] + 2.0 * theta[-1], atol=1e-5)


# -- columns that arithmetic is hard on ------------------------------------------------------------------

DOUBLES = ["C", "F", "memmap", "CSC", "CSR", "rows", "rows-one-by-one", "rows-nothing-held"]


@pytest.mark.parametrize("name", DOUBLES)
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("scale", [False, True])
def test_columns_of_extreme_size(name, center, scale, weights, tmp_path):
    X = ordinary()
    size = np.ones(P)
    size[[0, 2, 5]] = 1e150, 1e-150, 1e-150
    design = as_design(KINDS[name](X * size, tmp_path), weights, center=center, scale=scale)
    Z = explicit(X, weights, center, scale)  # as it is before the columns are stretched
    if not scale:
        np.testing.assert_allclose(design.column_norms(weights), np.sqrt(weights @ Z**2) * size, rtol=1e-12)
        design = design.rescaled(1 / size)
    assert_same_matrix(design, Z, 1e-12, weights)


@pytest.mark.parametrize("name", DOUBLES)
@pytest.mark.parametrize("scale", [False, True])
def test_columns_whose_mean_dwarfs_their_deviation(name, scale, weights, tmp_path):
    X = np.random.default_rng(4).standard_normal((N, P))
    X[:, [1, 3]] += 1e8
    X[:, 2] -= 1e8
    X[:, 7] = 0.1 + 1e8
    Z = explicit(X, weights, center=True, scale=scale)
    design = as_design(KINDS[name](X, tmp_path), weights, center=True, scale=scale)
    # One number of X carries no more than eight digits of its deviation; sums of products lose no more.
    assert_same_matrix(design, Z, 1e-6, weights)
    W = np.array([1, 2, 3, 0])
    np.testing.assert_allclose(
        design.gram(W, weights, W), Z[:, W].T @ (Z[:, W] * weights[:, None]), rtol=0, atol=1e-7
    )


@pytest.mark.parametrize("name", ["C", "F", "float32-C", "CSC", "rows-all-at-once", "rows-many"])
@pytest.mark.parametrize("value", [0.1, -1e8 / 3, 1e-200])
def test_constant_columns_are_zero_however_many_rows(name, value, tmp_path):
    n = 300_000  # the rounding of a mean over this many is far above that of one number
    X = KINDS[name](np.full((n, 1), value), tmp_path)
    for d in (np.full(n, 1 / n), np.random.default_rng(0).random(n)):
        design = as_design(X, d / d.sum(), center=True, scale=True)
        np.testing.assert_array_equal(design.matvec(np.ones(1)), np.zeros(n))


# -- what a design must not do ---------------------------------------------------------------------------


def test_a_sparse_input_is_left_as_it_was():
    data, indices, indptr = np.array([1.0, 2.0, 4.0, 3.0]), np.array([2, 0, 0, 0]), np.array([0, 3, 4])
    X = sp.csc_array((data.copy(), indices.copy(), indptr.copy()), shape=(3, 2))  # unsorted, a duplicate
    design = as_design(X, np.full(3, 1 / 3))
    np.testing.assert_array_equal(design.columns(np.array([0])), [[6.0], [0.0], [1.0]])
    np.testing.assert_array_equal(X.indices, indices)
    np.testing.assert_array_equal(X.data, data)


def test_a_contiguous_array_is_not_copied(weights):
    for X in (np.ascontiguousarray(ordinary()), np.asfortranarray(ordinary())):
        assert np.shares_memory(as_design(X, weights, center=True, scale=True).X, X)


@pytest.mark.parametrize("convert", [sp.csr_array, sp.csc_array])
def test_a_sparse_design_is_never_made_dense(convert):
    from trimreg.losses import Quadratic
    from trimreg.penalties import TrimmedL1
    from trimreg.solvers import Problem
    from trimreg.solvers.first_order import prox

    n, p = 4_000, 10_000  # 320 MB if it were dense
    X = convert(sp.random(n, p, density=1e-3, random_state=0))
    d, y = np.full(n, 1 / n), np.random.default_rng(1).standard_normal(n)
    tracemalloc.start()
    try:
        design = as_design(X, d, center=True, scale=True)
        problem = Problem(design, Quadratic(), y, d, TrimmedL1(h=5).bind(p), alpha=0.01)
        steps = prox.iterate(problem, np.zeros(p))
        theta = [next(steps).theta for _ in range(3)][-1]
        design.gram(np.flatnonzero(theta)[:50], d, np.flatnonzero(theta)[:50])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.any(theta)
    assert peak < 30e6


@pytest.mark.parametrize("scale", [False, True])
def test_products_column_by_column(scale, monkeypatch):
    """The gradient of an X with short columns that is larger than the caches."""
    monkeypatch.setattr("trimreg.designs.dense._LARGE", 1)
    rng = np.random.default_rng(0)
    X, r, d = rng.standard_normal((N, P)), rng.standard_normal(N), np.full(N, 1 / N)
    by_rows, by_columns = (
        as_design(make(X), d, center=True, scale=scale) for make in (np.ascontiguousarray, np.asfortranarray)
    )
    np.testing.assert_allclose(by_columns.rmatvec(r), by_rows.rmatvec(r), rtol=1e-12)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_gram_of_sparse_columns_whose_squares_overflow(scale, center):
    X = np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 5.0], [4.0, 1.0, 0.0], [1.0, 1.0, 1e4]])
    d, every = np.full(4, 0.25), np.arange(3)
    grams = []
    for Z in (X, sp.csc_array(scale * X)):
        design = as_design(Z, d, center=center)
        grams.append(design.rescaled(1 / design.column_norms(d)).gram(every, d, every))
    np.testing.assert_allclose(grams[1], grams[0], rtol=1e-10, atol=1e-14)
