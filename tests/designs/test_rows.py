"""Far rows: what a sweep is, what is held near and for how long, moments of blocks, few rows for many."""

import pickle

import numpy as np
import pytest

from trimreg.designs import WithConstant, as_design
from trimreg.designs.base import compressed_rows
from trimreg.designs.far import kernels
from trimreg.designs.far.rows import ArrayRows, ColumnRows, ColumnStore, MemoryColumns, cached_parts

N, P = 37, 6


@pytest.fixture
def X():
    return np.random.default_rng(0).standard_normal((N, P))


def uniform(n=N):
    return np.full(n, 1.0 / n)


# -- rows ----------------------------------------------------------------------------------------------


def shape_and_sums(block, vector, matrix, factor):
    return block.shape, block.sum(axis=0) * factor, vector.sum(), matrix.shape


def test_a_sweep_hands_on_blocks_parts_and_arguments_in_order(X):
    rows, vector, matrix = ArrayRows(X, 10), np.arange(float(N)), np.zeros((N, 2))
    found = list(rows.sweep(shape_and_sums, (vector, matrix), (2.0,)))
    assert [shape for shape, *_ in found] == [(10, P), (10, P), (10, P), (7, P)]
    np.testing.assert_allclose(sum(sums for _, sums, *_ in found), 2 * X.sum(axis=0))
    assert [total for *_, total, _ in found] == [vector[k : k + 10].sum() for k in (0, 10, 20, 30)]
    assert [shape for *_, shape in found] == [(10, 2)] * 3 + [(7, 2)]
    assert rows.passes == 1


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_product_and_narrowed(X, order, dtype):
    X = np.asarray(X, dtype=dtype, order=order)
    rows, several = ArrayRows(X, 8), np.random.default_rng(1).standard_normal((P, 3))
    np.testing.assert_allclose(rows.product(several[:, 0], 2.5), X.astype(float) @ several[:, 0] + 2.5)
    np.testing.assert_allclose(
        rows.product(several, np.arange(3.0)), X.astype(float) @ several + np.arange(3.0)
    )
    assert rows.product(several[:, 0]).dtype == float
    near = rows.narrowed([4, 1])
    np.testing.assert_array_equal(near, X[:, [4, 1]])
    assert near.dtype == dtype
    assert near.flags.f_contiguous
    assert rows.nbytes == X.nbytes


def test_columns_that_are_too_many_stay_far(X):
    rows = ArrayRows(X, 8, memory=2 * 8 * N)
    assert isinstance(rows.narrowed([0, 1]), np.ndarray)
    far = rows.narrowed([5, 0, 3])
    assert isinstance(far, ColumnRows)
    before = rows.passes
    np.testing.assert_allclose(far.product(np.array([1.0, 2.0, 3.0])), X[:, [5, 0, 3]] @ [1.0, 2.0, 3.0])
    assert (rows.passes, far.passes) == (before + 1, 1)  # a pass over some columns is one over all
    np.testing.assert_array_equal(far.narrowed([2, 0]), X[:, [3, 5]])
    assert "3 columns of array by blocks 37 x 6 float64" in repr(far)


def test_parts_fit_in_cache_and_cover_the_block():
    block = np.zeros((1000, 500))
    for width in (None, 1, 499, 10**9):
        parts = cached_parts(block, width)
        assert [part.start for part in parts[1:]] == [part.stop for part in parts[:-1]]
        assert (parts[0].start, parts[-1].stop) == (0, 1000)
        assert all((part.stop - part.start) * (width or 500) <= max(1 << 17, width or 0) for part in parts)


def test_kernels_can_be_sent_to_another_process():
    for kernel in (kernels.column_moments, kernels.gram_and_sums, kernels.normal_equations):
        assert pickle.loads(pickle.dumps(kernel)) is kernel


# -- columns that are held -----------------------------------------------------------------------------


def test_held_columns_are_the_same_matrix(X):
    held = MemoryColumns(list(X.T.copy()), N, X.dtype)
    np.testing.assert_allclose(held.product(np.arange(float(P))), X @ np.arange(float(P)))
    np.testing.assert_array_equal(np.concatenate(list(held.narrowed([3, 1]).sweep(np.array))), X[:, [3, 1]])


def test_the_store_fetches_what_is_missing_and_keeps_what_was_asked_for_last(X):
    rows = ArrayRows(X, 10, memory=3 * 8 * N)
    store = ColumnStore(rows)

    def ask(*W):
        before = rows.passes
        found = store.get(np.array(W))
        if found is not None:
            np.testing.assert_array_equal(np.concatenate(list(found.sweep(np.array))), X[:, W])
        return rows.passes - before if found is not None else None

    assert ask(0, 1) == 1
    assert ask(1) == 0
    assert ask(1, 2) == 1
    assert ask(0, 1, 2) == 0
    assert ask(0) == 0
    assert ask(5) == 1  # in the place of 1, which was asked for before 2 and 0
    assert ask(2, 0, 5) == 0
    assert ask(1) == 1
    assert ask(0, 1, 2, 3) is None
    assert len(store._kept) == 3


def test_the_store_never_holds_more_than_it_may(X):
    rows = ArrayRows(X, 10, memory=3 * 8 * N + 7)
    store, rng = ColumnStore(rows), np.random.default_rng(2)
    for _ in range(100):
        store.expect(rng.permutation(P))
        W = rng.choice(P, rng.integers(0, 4), replace=False)
        np.testing.assert_array_equal(np.concatenate(list(store.get(W).sweep(np.array))), X[:, W])
        assert len(store._kept) <= 3
        assert all(column.base is None for column in store._kept.values())  # none keeps others alive


def test_what_is_expected_comes_along(X):
    rows = ArrayRows(X, 10, memory=4 * 8 * N)
    store = ColumnStore(rows)
    store.expect(np.array([5, 2, 4, 3]))
    store.get(np.array([0]))
    assert rows.passes == 1
    store.get(np.array([5, 2, 4]))
    assert rows.passes == 1
    store.get(np.array([3]))
    assert rows.passes == 2


def test_answers_from_held_columns_are_no_pass(X):
    rows = ArrayRows(X, 10)
    design = as_design(rows, uniform(), center=True, scale=True)
    assert rows.passes == 1
    W, theta = np.array([1, 4]), np.zeros(P)
    theta[W] = 1.0, -2.0
    design.restricted(W).rmatvec(np.ones(N))
    assert rows.passes == 2
    design.matvec(theta)
    design.rescaled(np.arange(1.0, P + 1)).matvec(theta)  # the same X on another scale
    design.gram(W, uniform(), W)
    design.gram(W[:1], uniform(), W)
    design.columns(W)
    design.weighted_sums(W, np.ones(N))
    design.column_norms(uniform())
    assert rows.passes == 3  # column_norms of other weights than its own
    design.rmatvec(np.ones(N))
    design.gram(None, uniform(), W)
    assert rows.passes == 5
    WithConstant(design).gram(np.array([1, 4, P]), uniform(), np.array([1, 4, P]))
    assert rows.passes == 5


def test_a_hessian_with_a_constant_is_one_pass(X):
    rows = ArrayRows(X, 10, memory=0)
    design = WithConstant(as_design(rows, uniform(), center=True))
    before, W = rows.passes, np.array([0, 3, P])
    design.gram(W, uniform(), W)
    assert rows.passes == before + 1


def test_no_array_of_all_rows_and_many_columns():
    import tracemalloc

    n, p = 40_000, 60
    X = np.random.default_rng(0).standard_normal((n, p)).astype(np.float32)
    rows = ArrayRows(X, 2_000, memory=0)
    d, W = uniform(n), np.arange(50)
    tracemalloc.start()
    try:
        design = as_design(rows, d, center=True, scale=True)
        design.gram(W, d, W)
        design.gram(None, d, W)
        design.gram_and_sums(W, d)
        design.compressed(np.ones(n), d)
        design.restricted(W).gram(W[:40], d, W[:40])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < n * 50 * 8 / 2


# -- the first pass ------------------------------------------------------------------------------------


@pytest.mark.parametrize("block_rows", [1, 5, 100])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_named(X, value, block_rows):
    X[23, 4] = value
    what = "NaN" if np.isnan(value) else "inf"
    with pytest.raises(ValueError, match=f"X contains {what} at row 23, column 4; drop or impute"):
        as_design(ArrayRows(X, block_rows), uniform())
    X[30, 0] = X[30, 5] = np.nan
    with pytest.raises(ValueError, match=rf"X contains {what} at row 23, column 4 \(and 2 more NaN or inf\)"):
        as_design(ArrayRows(X, block_rows), uniform(), center=True)


def test_what_is_not_finite_is_named_also_where_the_weight_is_zero(X):
    X[3, 2] = np.nan
    d = np.where(np.arange(N) == 3, 0.0, 1.0 / (N - 1))
    with pytest.raises(ValueError, match="NaN at row 3, column 2"):
        as_design(ArrayRows(X, 1), d)


def test_rows_that_are_fewer_than_they_say(X):
    rows = ArrayRows(X, 10)
    rows.shape = (N + 1, P)
    with pytest.raises(ValueError, match=f"but {N} rows were read"):
        as_design(rows, uniform(N + 1))


def test_the_first_pass_is_one():
    X = np.random.default_rng(3).standard_normal((N, 3)) * [1.0, 1e-3, 1e3] + [0.0, 1e6, -50.0]
    X = np.column_stack([X, np.full(N, 0.1), np.zeros(N)])
    rows = ArrayRows(X, 10)
    as_design(rows, uniform(), center=True, scale=True)
    assert rows.passes == 1
    extreme = ArrayRows(X * [1e-170, 1.0, 1.0, 1.0, 1.0], 10)
    design = as_design(extreme, uniform(), center=True, scale=True)
    assert extreme.passes == 2  # its squares are no numbers, so it is looked at again
    spread = X[:, 0] - X[:, 0].mean()
    np.testing.assert_allclose(
        design.columns(np.array([0]))[:, 0], spread / np.sqrt(np.mean(spread**2)), atol=1e-12
    )


@pytest.mark.parametrize("seed", range(5))
def test_moments_do_not_depend_on_the_blocks(seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, P)) * 10.0 ** rng.integers(-5, 5, P) + 10.0 ** rng.integers(-5, 8, P)
    d = rng.random(N) * (rng.random(N) < 0.7)
    d /= d.sum()
    mean = d @ X
    mean = mean + d @ (X - mean)
    deviation = np.sqrt(d @ (X - mean) ** 2)
    for block_rows in (1, 2, 5, N):
        design = as_design(ArrayRows(X, block_rows), d, center=True, scale=True)
        np.testing.assert_allclose(design.offset, mean, rtol=1e-14)
        wrong = np.abs(design.inverse_scale * deviation - 1)
        assert (wrong <= 1e-12 + 20 * np.finfo(float).eps * np.abs(mean) / deviation).all()


# -- few rows for many ---------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [None, 2])
@pytest.mark.parametrize("seed", range(3))
def test_few_rows_have_the_same_least_squares(seed, outputs):
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((N, P)) * 10.0 ** rng.integers(-3, 3, P)
    Z[:, 2] = 0.0
    Z[:, 4] = Z[:, 0] - Z[:, 1]  # dependent
    y = rng.standard_normal(N if outputs is None else (N, outputs))
    d = rng.random(N)
    d[::5] = 0.0
    d /= d.sum()
    design, target = compressed_rows(Z.T @ (d[:, None] * Z), Z.T @ (d * y.T).T, y, d)
    count = P + (outputs or 1)
    assert design.shape == (count, P)
    for _ in range(5):
        theta = rng.standard_normal((P, *y.shape[1:])) / np.abs(Z).max()
        full, few = y - Z @ theta, target - design.matvec(theta)
        np.testing.assert_allclose(np.sum(few**2) / count, np.sum(d * (full**2).T), rtol=1e-11)
    assert not design.columns(np.array([2])).any()
    # what is dependent is so exactly, not to the root of the rounding
    rest = design.Z[:, 4] - design.Z[:, 0] + design.Z[:, 1]
    assert np.abs(rest).max() <= 1e-13 * np.abs(design.Z).max()


def test_few_rows_of_a_perfect_fit():
    rng = np.random.default_rng(0)
    Z, d = rng.standard_normal((N, P)), uniform()
    y = Z @ np.arange(1.0, P + 1)
    design, target = compressed_rows(Z.T @ Z / N, Z.T @ y / N, y, d)
    rest = target - design.matvec(np.arange(1.0, P + 1))
    assert np.isfinite(target).all()
    assert np.mean(rest**2) <= 1e-13 * np.mean(y**2)


def test_compressed_designs_agree_whatever_the_storage(X):
    y, d = np.random.default_rng(1).standard_normal(N), uniform()
    near = as_design(X, d, center=True, scale=True)
    far = as_design(ArrayRows(X, 9), d, center=True, scale=True)
    one, other = (
        np.column_stack([few.Z, target]) for few, target in (A.compressed(y, d) for A in (near, far))
    )
    np.testing.assert_allclose(one.T @ one, other.T @ other, rtol=0, atol=1e-12)
    Z = np.column_stack([near.columns(np.arange(P)), y])
    np.testing.assert_allclose(one.T @ one / (P + 1), Z.T @ Z / N, rtol=0, atol=1e-12)
    assert far.compressed(y, d)[0].source[0] is far
