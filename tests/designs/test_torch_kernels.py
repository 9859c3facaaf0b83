"""The sums over a tensor, in blocks and by kernels, against sums by definition."""

import itertools
import os
import subprocess
import sys
import textwrap

import pytest

torch = pytest.importorskip("torch")

from trimreg.designs.torch import kernels as torchkernels  # noqa: E402
from trimreg.designs.torch.kernels import TILES, Tile, moments, product, transposed_product  # noqa: E402

TYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
ORDERS = {"by rows": lambda X: X, "by columns": lambda X: X.t().contiguous().t()}
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def example(n=83, p=29, dtype=torch.float64, device="cpu"):
    generator = torch.Generator().manual_seed(3)
    X = torch.randn(n, p, generator=generator, dtype=torch.float64).mul(8).round().to(dtype)
    u, r, c = (torch.randn(size, generator=generator, dtype=torch.float64) for size in (p, n, p))
    return tuple(part.to(device) for part in (X, u, r, r.abs() / n, c))


def assert_close(got, expected, rtol=1e-12):
    assert got.dtype == torch.float64
    assert got.shape == expected.shape
    assert float((got - expected).abs().max()) <= rtol * float(expected.abs().max())


def assert_sums(X, u, r, d, c):
    wide, gap = X.double(), X.double() - c
    assert_close(product(X, u), wide @ u)
    assert_close(transposed_product(X, r), wide.t() @ r)
    for count in (1, 3, 9):
        U, R = (v[:, None] * torch.arange(1.0, count + 1).to(v) for v in (u, r))
        assert_close(product(X, U), wide @ U)
        assert_close(transposed_product(X, R), wide.t() @ R)
    first, second = moments(X, d, c)
    assert_close(first, d @ gap)
    assert_close(second, d @ gap**2)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(torchkernels, "_BLOCK_BYTES_ELSEWHERE", 8 * 29 * 10)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("order", ORDERS)
def test_sums_by_blocks(small_blocks, dtype, order):
    X, *vectors = example(dtype=dtype)
    assert len(torchkernels.row_blocks(X, X.shape[1])) == 9
    assert_sums(ORDERS[order](X), *vectors)


def test_sums_are_wider_than_the_storage(small_blocks):
    """A float32 sum would lose the ones beside the large number."""
    X = torch.ones(83, 29, dtype=torch.float32)
    X[0] = 2.0**24
    assert product(X.t(), torch.ones(83).double()).eq(2.0**24 + 82).all()
    assert transposed_product(X, torch.ones(83).double()).eq(2.0**24 + 82).all()
    assert moments(X, torch.ones(83).double(), torch.zeros(29).double())[1].eq(2.0**48 + 82).all()


@pytest.mark.parametrize("tile", [*TILES.values(), Tile(4, 1024, 8, 1), Tile(2, 16, 1, 1)])
@pytest.mark.parametrize("transposed", [False, True])
def test_programs_cover_the_matrix_once(tile, transposed):
    for n, p in itertools.product([1, 5, 4096, 200_000], [1, 300, 20_000]):
        blocks, segments, steps = torchkernels._grid(n, p, tile, transposed)
        kept, summed = (p, n) if transposed else (n, p)
        side, length = (tile.columns, tile.rows) if transposed else (tile.rows, tile.columns)
        assert (blocks - 1) * side < kept <= blocks * side
        assert (segments - 1) * steps * length < summed <= segments * steps * length
        assert segments <= 65_535  # what CUDA allows there


# -- when kernels are not to be trusted ---------------------------------------------------------------------


@pytest.fixture
def as_if_compiled(monkeypatch):
    """Kernels that are plain products, on any device; returns the calls that were made."""
    calls = []

    def dot(X, v, transposed):
        calls.append("dot")
        return (X.double().t() if transposed else X.double()) @ v

    def both(X, d, c):
        calls.append("moments")
        gap = X.double() - c
        return d @ gap, d @ gap**2

    monkeypatch.setattr(torchkernels, "triton", object())
    monkeypatch.setattr(torchkernels, "_verdicts", {})
    monkeypatch.setattr(torchkernels, "_dot", dot)
    monkeypatch.setattr(torchkernels, "_moments", both)
    return calls


def test_kernels_that_agree_are_used_and_checked_once(as_if_compiled):
    X = example(dtype=torch.float32)[0]
    assert torchkernels.usable(X)
    checked = len(as_if_compiled)
    assert checked == 6  # two products and the moments, in both orders
    assert torchkernels.usable(X)
    assert len(as_if_compiled) == checked
    assert torchkernels.usable(X.double())
    assert len(as_if_compiled) == 2 * checked


def test_kernels_that_differ_are_left_alone(as_if_compiled, monkeypatch):
    right = torchkernels._dot
    monkeypatch.setattr(torchkernels, "_dot", lambda X, v, transposed: right(X, v, transposed) * (1 + 1e-9))
    X = example(dtype=torch.float32)[0]
    with pytest.warns(UserWarning, match=r"torch.float32 on cpu is not used: it differs .* by 1.0e-09"):
        assert not torchkernels.usable(X)
    assert not torchkernels.usable(X)  # and nothing is said again


def test_kernels_that_return_nan_are_left_alone(as_if_compiled, monkeypatch):
    monkeypatch.setattr(torchkernels, "_moments", lambda X, d, c: (c * torch.nan, c * torch.nan))
    with pytest.warns(UserWarning, match="differs from plain products by nan"):
        assert not torchkernels.usable(example()[0])


def test_kernels_that_do_not_compile_are_left_alone(as_if_compiled, monkeypatch):
    def broken(*_):
        raise RuntimeError("ptxas was not found")

    monkeypatch.setattr(torchkernels, "_moments", broken)
    with pytest.warns(UserWarning, match="RuntimeError: ptxas was not found; blocks of X are converted"):
        assert not torchkernels.usable(example()[0])


def test_without_triton_nothing_is_said(monkeypatch):
    monkeypatch.setattr(torchkernels, "triton", None)
    monkeypatch.setattr(torchkernels, "_verdicts", {})
    assert not torchkernels.usable(example()[0])


def test_few_vectors_take_the_kernels_and_many_do_not(as_if_compiled, monkeypatch):
    monkeypatch.setattr(torchkernels, "usable", lambda X: True)

    class Elsewhere:
        """A tensor that says it is on a GPU."""

        device = torch.device("cuda")

    for count, expected in ((1, True), (4, True), (5, False), (0, False)):
        assert torchkernels._by_kernels(Elsewhere, torch.ones(3, count)) is expected
    assert torchkernels._by_kernels(Elsewhere, torch.ones(3))
    assert not torchkernels._by_kernels(torch.ones(3, 3), torch.ones(3))


# -- the kernels themselves ---------------------------------------------------------------------------------


def test_kernels_in_the_interpreter():
    """Their arithmetic on the CPU, in a process of its own: Triton asks how to run when it is imported."""
    pytest.importorskip("triton")
    code = """
        import contextlib, torch
        from trimreg.designs.torch import kernels as torchkernels
        torch.cuda.device_of = lambda X: contextlib.nullcontext()
        for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
            print(torchkernels._disagreement(torch.zeros(2, 2, dtype=dtype), 19, 613))
    """
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    answer = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    if "0-dimensional" in answer.stdout:
        pytest.skip("this Triton's interpreter does not know this NumPy")
    assert answer.stdout.split() == []


@needs_cuda
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shape", [(1, 1), (3, 5000), (70_001, 3), (1037, 613), (2048, 1024)])
def test_sums_on_cuda(dtype, order, shape):
    X, *vectors = example(*shape, dtype=dtype, device="cuda")
    assert torchkernels.triton is None or torchkernels.usable(X)
    assert_sums(ORDERS[order](X), *vectors)


@needs_cuda
@pytest.mark.parametrize("tile", [Tile(4, 512, 4, 1), Tile(16, 256, 8, 1), Tile(4, 1024, 8, 1)])
def test_other_tiles_on_cuda(tile, monkeypatch):
    if torchkernels.triton is None:
        pytest.skip("needs Triton")
    monkeypatch.setattr(torchkernels, "TILES", {"along": tile, "across": tile})
    X, *vectors = example(1037, 613, dtype=torch.float32, device="cuda")
    for order in ORDERS.values():
        assert_sums(order(X), *vectors)


@needs_cuda
def test_the_same_bits_in_every_run():
    X, u, r, d, c = example(5000, 3000, dtype=torch.float32, device="cuda")
    for function, vectors in ((product, (u,)), (transposed_product, (r,)), (moments, (d, c))):
        runs = [function(X, *vectors) for _ in range(3)]
        runs = [run if isinstance(run, tuple) else (run,) for run in runs]
        assert all(torch.equal(a, b) for run in runs[1:] for a, b in zip(run, runs[0], strict=True))


@needs_cuda
def test_more_than_two_to_the_31_numbers():
    n, p = 70_000, 32_768
    try:
        X = torch.zeros(n, p, dtype=torch.bfloat16, device="cuda")
    except torch.OutOfMemoryError:
        pytest.skip("needs 5 GB on the device")
    X[-1] = 1.0
    X[-2, -1] = 2.0
    ones = [torch.ones(size, dtype=torch.float64, device="cuda") for size in (p, n)]
    along, across = product(X, ones[0]), transposed_product(X, ones[1])
    assert along[-2:].tolist() == [2.0, p]
    assert float(along.sum()) == p + 2
    assert across[[0, -1]].tolist() == [1.0, 3.0]
    assert float(moments(X, ones[1], 0 * ones[0])[1].sum()) == p + 4
