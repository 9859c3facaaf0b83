"""Designs over tensors against dense designs of the same numbers, and tensors as estimators get them."""

import gc
import weakref

import numpy as np
import pytest

from trimreg.designs import ColumnBlock, DenseDesign, WithConstant, as_design

torch = pytest.importorskip("torch")

from trimreg.designs.torch import design as torchdense  # noqa: E402
from trimreg.designs.torch import kernels as torchkernels  # noqa: E402
from trimreg.designs.torch import matrix as torchmatrix  # noqa: E402
from trimreg.designs.torch.design import TorchDesign, TorchMatrix  # noqa: E402

N, P = 57, 40
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
LAYOUTS = {
    "by rows": lambda X: X.contiguous(),
    "by columns": lambda X: X.t().contiguous().t(),
    "part of wider rows": lambda X: torch.cat([X, X], dim=1)[:, : X.shape[1]],
    "part of longer columns": lambda X: torch.cat([X, X]).t().contiguous().t()[: X.shape[0]],
    "gaps both ways": lambda X: X.repeat_interleave(2, dim=0).repeat_interleave(3, dim=1)[::2, ::3],
}
STORAGE = ["float64", "float32", "bfloat16", "float16"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """So that every sum has several blocks, and no restriction is small enough for the host."""
    monkeypatch.setattr(torchkernels, "_BLOCK_BYTES", {"cuda": 8 * 5 * P})
    monkeypatch.setattr(torchkernels, "_BLOCK_BYTES_ELSEWHERE", 8 * 5 * P)
    monkeypatch.setattr(torchdense, "_SMALL", 0)


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


@pytest.fixture(params=["uniform", "random"])
def weights(request):
    d = np.ones(N) if request.param == "uniform" else np.random.default_rng(5).random(N)
    if request.param == "random":
        d[[0, 7]] = 0.0
    return d / d.sum()


def numbers(seed=0, storage="float64"):
    """Values that the storage holds, some zero or tied; columns that are constant, zero, or far from zero."""
    rng = np.random.default_rng(seed)
    X = np.round(4 * rng.standard_normal((N, P)), 1)
    X[rng.random((N, P)) < 0.2] = 0.0
    X[:, 3], X[:, 6] = 0.1, 0.0
    X[:, 8] = 64 + 0.5 * (np.arange(N) % 3)
    X[:, 9] *= 2.0**-10
    return torch.from_numpy(X).to(getattr(torch, storage))


def pair(device, storage="float64", layout="by rows", weights=None, center=True, scale=True):
    """A design over a tensor, and a dense one of the same numbers in float64."""
    X = numbers(storage=storage)
    weights = np.full(N, 1 / N) if weights is None else weights
    ours = TorchDesign(LAYOUTS[layout](X.to(device)), weights, center=center, scale=scale)
    return ours, DenseDesign(X.double().numpy(), weights, center=center, scale=scale)


def assert_close(got, expected, rtol=1e-12):
    assert type(got) is np.ndarray
    assert got.dtype == float
    assert got.shape == expected.shape
    np.testing.assert_allclose(
        got, expected, rtol=0, atol=rtol * max(np.abs(expected).max(initial=0), 1e-300)
    )


def assert_same_design(ours, dense, d, rtol=1e-12):
    """Every operation; errors are measured against the largest entry that a result has."""
    n, p = dense.shape
    rng = np.random.default_rng(1)
    assert ours.shape == (n, p)
    rows, cols, none = np.array([p - 1, 0, 2, 8]), np.array([1, 3, p - 1, 8, 9]), np.empty(0, dtype=int)
    few, full, r = np.zeros(p), rng.standard_normal(p), rng.standard_normal(n)
    few[[2, 8]] = -1.5, 2.0
    several, curvature = rng.standard_normal((n, 7)), rng.random(n) - 0.1
    for v in (full, few, np.zeros(p), np.outer(full, [1.0, 2.0]), np.outer(few, [1.0, 2.0])):
        assert_close(ours.matvec(v), dense.matvec(v), rtol)
    for vectors in (r, several[:, :2], several):
        assert_close(ours.rmatvec(vectors), dense.rmatvec(vectors), rtol)
    for W in (cols, np.arange(p), none):
        assert_close(ours.columns(W), dense.columns(W), rtol)
        assert_close(ours.weighted_sums(W, curvature), dense.weighted_sums(W, curvature), rtol)
        for d_any in (curvature, d):
            assert_close(ours.gram(None, d_any, W), dense.gram(None, d_any, W), rtol)
            assert_close(ours.gram(W, d_any, W), dense.gram(W, d_any, W), rtol)
            assert_close(ours.gram(rows, d_any, W), dense.gram(rows, d_any, W), rtol)
    gram = ours.gram(cols, d, cols)
    assert np.array_equal(gram, gram.T)
    positive = np.abs(curvature)
    assert_close(ours.column_norms(d), dense.column_norms(d), rtol)
    assert_close(ours.column_norms(positive), dense.column_norms(positive), rtol)
    for got, expected in zip(ours.original_units(full), dense.original_units(full), strict=True):
        np.testing.assert_allclose(
            got, expected, rtol=10 * rtol, atol=10 * rtol * abs(dense.matvec(full)).max()
        )


# -- the design ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_operations_are_those_of_a_dense_design(device, layout, weights, center, scale):
    ours, dense = pair(device, "float64", layout, weights, center, scale)
    assert_same_design(ours, dense, weights)


@pytest.mark.parametrize("storage", STORAGE)
@pytest.mark.parametrize("layout", ["by rows", "by columns"])
def test_storage_changes_numbers_and_not_sums(device, storage, layout, weights):
    ours, dense = pair(device, storage, layout, weights)
    assert_same_design(ours, dense, weights)
    assert ours.dtype == (np.float64 if storage == "float64" else np.float32)


def test_rescaled_and_restricted(device, weights):
    ours, dense = pair(device, "float32", weights=weights)
    factor = np.linspace(0.5, 3.0, P)
    assert_same_design(ours.rescaled(factor), dense.rescaled(factor), weights)
    W = np.append(np.arange(0, P - 1, 2), P - 1)  # keeps the odd columns 8 and 3's neighbours
    part = ours.restricted(W)
    assert isinstance(part, TorchDesign)
    assert part.X.storage == "float64"  # it is read many times
    assert part.dtype == ours.dtype
    expected = DenseDesign(dense.X[:, W], weights, center=True, scale=True)
    d = np.random.default_rng(2).random(N)
    for v in (np.ones(W.size), np.eye(W.size)[:, :2]):
        assert_close(part.matvec(v), expected.matvec(v))
    assert_close(part.rmatvec(d), expected.rmatvec(d))
    assert_close(part.gram(np.arange(5), d, np.arange(5)), expected.gram(np.arange(5), d, np.arange(5)))
    assert_close(part.column_norms(weights), expected.column_norms(weights))
    assert_close(part.restricted(np.array([2, 0])).matvec(np.ones(2)), expected.columns([2, 0]).sum(axis=1))


def test_a_large_restriction_stays_in_its_storage(monkeypatch, device):
    monkeypatch.setattr(torchdense, "_WIDE_BYTES", 0)
    for layout in ("by rows", "by columns"):
        ours, dense = pair(device, "bfloat16", layout)
        part = ours.restricted(np.array([1, 8, 4]))
        assert part.X.storage == "bfloat16"
        assert_close(part.matvec(np.ones(3)), dense.columns(np.array([1, 8, 4])).sum(axis=1))


def test_a_small_restriction_goes_to_the_host(monkeypatch, device):
    monkeypatch.setattr(torchdense, "_SMALL", N * 3)
    ours, dense = pair(device)
    assert isinstance(ours.restricted(np.arange(3)), ColumnBlock)
    assert_close(ours.restricted(np.arange(3)).Z, dense.columns(np.arange(3)))
    assert isinstance(ours.restricted(np.arange(4)), TorchDesign)


def test_sums_that_far_designs_offer(device, weights):
    ours, dense = pair(device, "float32", weights=weights)
    rng = np.random.default_rng(3)
    W, D = np.array([4, 8, 1, 9, 3]), rng.random((N, 2)) - 0.3
    Z = dense.columns(W)
    gram, sums = ours.gram_and_sums(W, D[:, 0])
    assert_close(gram, Z.T @ (Z * D[:, :1]))
    assert_close(sums, Z.T @ D[:, 0])
    V, near = rng.standard_normal((5, 3)), np.array([2, 0])
    square, product = ours.combination_moments(W, V, near, D[:, 1])
    C = Z @ V
    assert_close(square, D[:, 1] @ C**2)
    assert_close(product, Z[:, near].T @ (C * D[:, 1:]))


@pytest.mark.parametrize("outputs", [(), (2,)])
def test_few_rows_with_the_same_least_squares(device, weights, outputs):
    ours, dense = pair(device, "bfloat16", weights=weights)
    rng = np.random.default_rng(8)
    y = rng.standard_normal((N, *outputs))
    before = ours.X.passes
    few, target = ours.compressed(y, weights)
    assert ours.X.passes == before + 1
    assert few.shape == (P + (outputs or (1,))[0], P)
    for _ in range(3):
        theta = rng.standard_normal((P, *outputs))
        expected = weights @ (y - dense.matvec(theta)) ** 2
        np.testing.assert_allclose(np.mean((target - few.matvec(theta)) ** 2, axis=0), expected, rtol=1e-11)


def test_with_a_constant_column(device, weights):
    ours, dense = (WithConstant(design) for design in pair(device, "float32", weights=weights))
    v, d, W = np.linspace(-1, 1, P + 1), np.random.default_rng(4).random(N), np.array([8, 2, P])
    assert_close(ours.matvec(v), dense.matvec(v))
    assert_close(ours.gram(W, d, W), dense.gram(W, d, W))


@pytest.mark.parametrize("shift", [0.0, 1e3, 1e8])
@pytest.mark.parametrize("size", [1e-200, 1.0, 1e160])
def test_deviations_survive_shifts_and_sizes(device, shift, size, weights):
    rng = np.random.default_rng(6)
    X = size * (rng.standard_normal((N, 5)) + shift)
    X[:, 2] = size * (shift + 1 / 3)
    ours = TorchDesign(torch.from_numpy(X).to(device), weights, center=True, scale=True)
    mean = weights @ X
    spread = (X - mean) / size
    spread -= weights @ spread
    expected = np.sqrt(weights @ spread**2) * (np.arange(5) != 2)
    np.testing.assert_allclose(ours._deviation / size, expected, rtol=1e-7)
    assert ours.inverse_scale[2] == 0
    other = np.linspace(0, 1, N)
    spread = np.where(np.arange(5) == 2, 0.0, (X - ours.offset) / size) * (ours.inverse_scale * size)
    np.testing.assert_allclose(ours.column_norms(other), np.sqrt(other @ spread**2), rtol=1e-7)


def test_a_column_that_is_constant_where_there_is_weight(device):
    """What it is elsewhere does not count, however far it is from the rest: there is no deviation left."""
    X = np.random.default_rng(7).standard_normal((N, 3))
    d = (np.arange(N) >= 5) / (N - 5)
    X[:, 1] = np.where(d > 0, 0.1, 1e8)
    X[:, 2] = np.where(d > 0, X[:, 2], -1e9)
    ours = TorchDesign(torch.from_numpy(X).to(device), d, center=True, scale=True)
    assert ours.inverse_scale[1] == 0
    kept = X[5:, [0, 2]]
    np.testing.assert_allclose(ours.offset[[0, 2]], kept.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(ours._deviation[[0, 2]], kept.std(axis=0), rtol=1e-12)
    np.testing.assert_allclose(ours.offset[1], 0.1, rtol=1e-15)


def test_sorted_rows_lose_no_digits(device):
    """The rows that the first pass is centred about say little of the others: such columns are done again."""
    X = np.where(np.arange(N) == N - 1, 1e6, 1.0)[:, None] + np.array([[0.0, 1e-3]]) * np.arange(N)[:, None]
    d = np.full(N, 1 / N)
    ours, dense = TorchDesign(torch.from_numpy(X).to(device), d, center=True), DenseDesign(X, d, center=True)
    assert_close(ours.column_norms(d), dense.column_norms(d))
    assert_close(ours.offset, dense.offset)


def test_read_only_and_flipped_vectors(device):
    ours, dense = pair(device)
    v = np.linspace(0, 1, P)
    v.flags.writeable = False
    assert_close(ours.matvec(v), dense.matvec(v))
    assert_close(
        ours.rmatvec(np.arange(N, dtype=float)[::-1]), dense.rmatvec(np.arange(N, dtype=float)[::-1])
    )


def test_passes_are_counted(device):
    X = TorchMatrix(numbers().to(device))
    d = np.full(N, 1 / N)
    design = TorchDesign(X, d, center=True, scale=True)
    assert X.passes == 1  # finiteness and moments in one, and not the columns that were done again
    design.matvec(np.ones(P))
    design.rmatvec(np.ones((N, 7)))
    assert design.X.passes == 3
    design.gram(None, d, np.arange(3))
    design.rescaled(np.ones(P)).rmatvec(d)
    assert design.X.passes == 5
    few = np.zeros(P)
    few[4] = 1.0
    design.matvec(few)
    design.gram(np.arange(3), d, np.arange(3))
    design.weighted_sums(np.arange(3), d)
    design.column_norms(d)
    design.restricted(np.arange(3)).rmatvec(d)
    assert design.X.passes == 5
    design.column_norms(np.arange(N, dtype=float))
    assert X.passes == 6


def test_where_there_is_no_float64(monkeypatch):
    """As on Apple's devices: products in float32."""
    monkeypatch.setattr(torchkernels, "arithmetic", lambda X: torch.float32)
    X = numbers(storage="float32")
    X[:, 8] -= 64
    d = np.full(N, 1 / N)
    ours = TorchDesign(X, d, center=True, scale=True)
    dense = DenseDesign(X.double().numpy(), d, center=True, scale=True)
    assert TorchMatrix(torch.ones(2, 2, dtype=torch.int8)).storage == "float32"
    alive = dense.inverse_scale > 0
    v = np.where(alive, np.linspace(-1, 1, P), 0.0)
    assert_close(ours.matvec(v), dense.matvec(v), 1e-5)
    assert_close(ours.rmatvec(d - d**2 * np.arange(N)), dense.rmatvec(d - d**2 * np.arange(N)), 1e-5)
    W = np.array([1, 5])
    assert_close(ours.gram(W, d, W), dense.gram(W, d, W), 1e-5)
    assert_close(ours.gram(None, d, W)[alive], dense.gram(None, d, W)[alive], 1e-5)


# -- bad input -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("storage", STORAGE)
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_the_place_of_what_is_no_number_is_named(device, value, storage, weight):
    X = numbers(storage=storage).to(device)
    X[31, 7] = X[31, 20] = X[44, 2] = value
    d = np.ones(N)
    d[[31, 44]] = weight
    kind = "NaN" if np.isnan(value) else "inf"
    for design in (TorchDesign, lambda X, *args, **how: TorchMatrix(X).design(*args, **how)):
        for center in (False, True):
            with pytest.raises(ValueError, match=rf"X contains {kind} at row 31, column 7 \(and 2 more NaN"):
                design(X, d / d.sum(), center=center, scale=True)


def test_numbers_whose_squares_overflow_are_numbers(device):
    X = torch.full((4, 2), 1e200, dtype=torch.float64, device=device)
    X[0] = 0.0
    design = TorchDesign(X, np.full(4, 0.25), center=True, scale=True)
    np.testing.assert_allclose(design._deviation, np.sqrt(3) / 4 * 1e200)


@pytest.mark.parametrize(
    ("X", "kind", "message"),
    [
        (lambda: torch.ones(3), ValueError, r"at least one row and one column; got a tensor of shape \(3,\)"),
        (lambda: torch.ones(3, 2, 2), ValueError, r"shape \(3, 2, 2\)"),
        (lambda: torch.ones(0, 2), ValueError, r"shape \(0, 2\)"),
        (lambda: torch.eye(3).to_sparse(), TypeError, r"sparse tensor \(sparse_coo\); pass X.to_dense"),
        (lambda: torch.ones(3, 2, dtype=torch.complex64), ValueError, "X must be real"),
        (lambda: torch.ones(3, 2, device="meta"), TypeError, "holds no numbers"),
        (lambda: torch.ones(3, 2).to(torch.float8_e4m3fn), TypeError, "float8_e4m3fn; convert it to one of"),
    ],
)  # fmt: skip
def test_tensors_that_are_refused(X, kind, message):
    with pytest.raises(kind, match=message):
        TorchMatrix(X())


def test_a_device_without_room(monkeypatch):
    X = TorchMatrix(numbers(storage="bfloat16"))
    design = X.design(np.full(N, 1 / N), center=True)
    left_behind = []

    def full(*_):
        partial = torch.zeros(3)
        left_behind.append(weakref.ref(partial))
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has ...")

    monkeypatch.setattr(torchkernels, "product", full)
    monkeypatch.setattr(torchkernels, "transposed_product", full)
    monkeypatch.setattr(torchkernels, "moments", full)
    calls = [
        lambda: design.matvec(np.ones(P)),
        lambda: design.rmatvec(np.ones(N)),
        lambda: X.product(np.ones(P)),
        lambda: X.design(np.full(N, 1 / N)),
    ]
    emptied = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(True))
    for call in calls:
        with pytest.raises(
            MemoryError, match=r"cpu has no memory .* X \(57 x 40 bfloat16\): 2.50 GiB more"
        ) as caught:
            call()
        assert caught.value.__context__ is None
        del caught
    gc.collect()
    assert [reference() for reference in left_behind] == [None] * len(calls)
    assert len(emptied) == len(calls)


def test_the_room_that_a_gpu_has_is_told(monkeypatch):
    X = TorchMatrix(numbers(storage="bfloat16"))
    X.device = "cuda:0"
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2**30, 8 * 2**30))
    assert "1.00 of 8.00 GiB are free" in torchmatrix._shortage(X, torch.OutOfMemoryError("no size named"))


# -- what an estimator is given ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given", ["float64", "float32", "bfloat16", "float16", "int64", "int8", "uint8", "bool"]
)
def test_tensors_of_every_type(given):
    given = getattr(torch, given)
    X = torch.arange(12).reshape(4, 3).remainder(5).to(given)
    matrix = TorchMatrix(X)
    wide = not given.is_floating_point or given == torch.float64
    assert matrix.dtype == (float if wide else np.float32)
    assert ("a copy of" in matrix.describe()) == (not given.is_floating_point)
    coef = np.array([1.0, -2.0, 0.5])
    np.testing.assert_array_equal(matrix.product(coef, 2.0), X.double().numpy() @ coef + 2.0)
    several = np.outer(coef, [1.0, 3.0])
    np.testing.assert_array_equal(
        matrix.product(several, [1.0, 2.0]), X.double().numpy() @ several + [1.0, 2.0]
    )


def test_large_integers_are_kept():
    assert TorchMatrix(torch.tensor([[2**24 + 1]])).product([1.0]) == 2**24 + 1


def test_memory_is_shared_where_it_can_be():
    for X in (numbers(), numbers().t().contiguous().t(), numbers(storage="bfloat16"), numbers()[:, 2:9]):
        assert TorchMatrix(X).tensor.data_ptr() == X.data_ptr()
    assert "copy without gaps" in TorchMatrix(numbers()[::2, ::2]).describe()
    X = numbers(storage="float32")
    design = TorchMatrix(X).design(np.full(N, 1 / N))
    assert isinstance(design, DenseDesign)
    assert design.X.ctypes.data == X.data_ptr()
    assert isinstance(TorchMatrix(numbers(storage="bfloat16")).design(np.full(N, 1 / N)), TorchDesign)


def test_gradients_are_not_followed():
    X = torch.nn.Parameter(numbers())
    matrix = TorchMatrix(X)
    assert matrix.tensor.requires_grad is False
    assert X.requires_grad
    assert_close(matrix.product(np.ones(P)), X.detach().numpy().sum(axis=1))


class SpeaksDLPack:
    """What CuPy and JAX arrays have in common."""

    def __init__(self, tensor):
        self._tensor = tensor

    def __dlpack__(self, **how):
        return self._tensor.__dlpack__(**how)

    def __dlpack_device__(self):
        return self._tensor.__dlpack_device__()


@pytest.mark.parametrize("storage", ["float64", "bfloat16"])
def test_arrays_of_other_libraries_by_dlpack(storage):
    X = numbers(storage=storage)
    matrix = TorchMatrix(SpeaksDLPack(X))
    assert matrix.tensor.data_ptr() == X.data_ptr()
    assert matrix.storage == storage
    assert_close(matrix.product(np.ones(P)), X.double().numpy() @ np.ones(P))


def test_without_pytorch_the_way_is_named(monkeypatch):
    monkeypatch.delitem(torchmatrix.sys.modules, "torch")
    with pytest.raises(ImportError, match=r"SpeaksDLPack, which needs PyTorch: install it"):
        TorchMatrix(SpeaksDLPack(numbers()))


def test_as_design_and_repr():
    matrix = TorchMatrix(numbers(storage="bfloat16"))
    assert repr(matrix) == f"<tensor {N} x {P} bfloat16 on cpu>"
    assert matrix.nbytes == 2 * N * P
    assert isinstance(as_design(matrix, np.full(N, 1 / N), center=True), TorchDesign)
