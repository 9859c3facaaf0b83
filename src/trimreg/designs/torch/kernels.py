r"""Products with a tensor that is stored in few bits, computed in float64.

A design needs four sums over a tensor ``X``, each in one pass:

.. math:: X u, \qquad X' r, \qquad \sum_i d_i (x_{ij} - c_j), \qquad \sum_i d_i (x_{ij} - c_j)^2 .

On CUDA a kernel loads a tile of X in its storage type, converts it to float64 in registers and adds it up
there. Programs write partial sums, which are added in a fixed order: no atomics, the same bits in every run.
On other devices, and for many vectors at once, blocks of rows are converted.

PyTorch is already imported if X is a tensor, so this module does not import it.
"""

from __future__ import annotations

import sys
import warnings
from typing import NamedTuple

try:  # part of PyTorch for Linux with CUDA; not needed elsewhere
    import triton
    import triton.language as tl
except ImportError:
    triton = None

_BLOCK_BYTES = {"cuda": 128 << 20}  # of a block in float64; so large that launches cost nothing
_BLOCK_BYTES_ELSEWHERE = 4 << 20  # a few such blocks fit in the cache of a CPU
_PROGRAMS = 2048  # at least this many if the matrix is large enough: a dozen for each multiprocessor
_FEW_VECTORS = 4  # up to this number, one kernel call per vector is faster than converted blocks


class Tile(NamedTuple):
    """The part of the matrix that a kernel loads at a time, the warps that share it, and loads in flight."""

    rows: int
    columns: int
    warps: int
    stages: int


#: By the direction of the sums: along rows or across them. The fastest of six on an H200, over both storage
#: types; ``benchmarks/gpu.py`` measures them.
TILES = {"along": Tile(8, 256, 4, 1), "across": Tile(8, 256, 4, 3)}
_verdicts: dict[tuple[str, str], bool] = {}  # by device and storage type: whether the kernel agrees there

if triton is not None:  # pragma: no cover - compiled for a GPU

    @triton.jit(do_not_specialize=["steps"])
    def _partial_sums(
        x, v, c, out, kept, summed, kept_stride, summed_stride, steps,
        KEPT: tl.constexpr, SUMMED: tl.constexpr, STAGES: tl.constexpr, MOMENTS: tl.constexpr,
    ):  # fmt: skip
        """For some i and the j of one segment: ``sum_j x_ij v_j``.

        With MOMENTS, ``sum_j v_j (x_ij - c_i)`` and ``sum_j v_j (x_ij - c_i)^2``.
        """
        i = tl.program_id(0).to(tl.int64) * KEPT + tl.arange(0, KEPT)
        inside = i < kept
        begin = tl.program_id(1).to(tl.int64) * steps * SUMMED
        first = tl.zeros((KEPT, SUMMED), tl.float64)
        if MOMENTS:
            center = tl.load(c + i, mask=inside, other=0.0)
            second = tl.zeros((KEPT, SUMMED), tl.float64)
        for step in tl.range(0, steps, num_stages=STAGES):
            j = begin + step * SUMMED + tl.arange(0, SUMMED)
            there = j < summed
            place = x + i[:, None] * kept_stride + j[None, :] * summed_stride
            block = tl.load(place, mask=inside[:, None] & there[None, :], other=0.0)
            weight = tl.load(v + j, mask=there, other=0.0)
            if block.dtype != tl.float64:
                block = block.to(tl.float32).to(tl.float64)
            if MOMENTS:
                block -= center[:, None]
                second += block * weight[None, :] * block
            first += block * weight[None, :]
        if MOMENTS:
            out += 2 * tl.program_id(1).to(tl.int64) * kept
            tl.store(out + kept + i, tl.sum(second, axis=1), mask=inside)
        else:
            out += tl.program_id(1).to(tl.int64) * kept
        tl.store(out + i, tl.sum(first, axis=1), mask=inside)


# -- the sums that a design needs ---------------------------------------------------------------------------


def product(X, u):
    """``X u`` in float64, for ``u`` (p,) or (p, K) in float64 on the device ``home(X)``."""
    if _by_kernels(X, u):
        return _each(lambda one: _dot(X, one, transposed=False), u)
    if X.dtype == u.dtype:
        return X @ u
    result = u.new_empty((X.shape[0], *u.shape[1:]))
    factor = _near(X, u)
    for rows, block in converted(X):
        result[rows] = (block @ factor).to(u.device)
    return result


def transposed_product(X, r):
    """``X' r`` in float64, for ``r`` (n,) or (n, K)."""
    if _by_kernels(X, r):
        return _each(lambda one: _dot(X, one, transposed=True), r)
    if X.dtype == r.dtype:
        return X.t() @ r
    result = r.new_zeros((X.shape[1], *r.shape[1:]))
    for rows, block in converted(X):
        result += (block.t() @ _near(X, r[rows])).to(r.device)
    return result


def moments(X, d, c):
    """``(sum_i d_i (x_ij - c_j), sum_i d_i (x_ij - c_j)^2)`` for every column j, in one pass."""
    if _by_kernels(X, d):
        return _moments(X, d, c)
    first, second = c.new_zeros(c.shape), c.new_zeros(c.shape)
    center = _near(X, c)
    for rows, block in converted(X):
        gap = block - center
        weighted = gap * _near(X, d[rows])[:, None]  # no product with a vector: it may skip factors of 0
        first += weighted.sum(dim=0).to(c.device)
        second += weighted.mul_(gap).sum(dim=0).to(c.device)
    return first, second


def home(X) -> str:
    """The device of the vectors that X is multiplied by: that of X, if it has float64."""
    return "cpu" if X.device.type == "mps" else str(X.device)


def arithmetic(X):
    """The dtype of products with X: float64, or float32 on a device without float64."""
    torch = sys.modules["torch"]
    return torch.float32 if X.device.type == "mps" else torch.float64


def converted(X):
    """Pairs of a slice of rows and these rows of X in the dtype of the arithmetic."""
    for rows in row_blocks(X, X.shape[1]):
        yield rows, X[rows].to(arithmetic(X))


def row_blocks(X, width):
    """Slices of rows; each, with ``width`` float64 columns, has a size that suits the device."""
    size = _BLOCK_BYTES.get(X.device.type, _BLOCK_BYTES_ELSEWHERE)
    step = max(1, size // (8 * max(width, 1)))
    return [slice(start, min(start + step, X.shape[0])) for start in range(0, X.shape[0], step)]


def by_columns(X) -> bool:
    """Whether X is stored by columns."""
    return X.stride(1) != 1 and X.stride(0) == 1


def _near(X, vector):
    """The vector on the device of X, in the dtype of the arithmetic."""
    return vector.to(X.device, arithmetic(X))


def _each(function, vectors):
    """The function of a vector, or of each column of a matrix."""
    if vectors.ndim == 1:
        return function(vectors)
    columns = [function(vectors[:, k].contiguous()) for k in range(vectors.shape[1])]
    return sys.modules["torch"].stack(columns, dim=1)


# -- the kernel ---------------------------------------------------------------------------------------------


def _by_kernels(X, vectors) -> bool:
    """Whether to use the kernel: on CUDA, for few vectors, if it was found to agree there."""
    few = vectors.ndim == 1 or 0 < vectors.shape[1] <= _FEW_VECTORS
    return few and X.device.type == "cuda" and usable(X)


def _dot(X, v, transposed):
    return _summed(X, v, v, transposed, 1)[0]


def _moments(X, d, c):
    return tuple(_summed(X, d, c, True, 2))


def _summed(X, v, c, transposed, count):
    """``count`` sums for every row of X, or of its transpose, from the partial sums of the programs."""
    if by_columns(X):
        X, transposed = X.t(), not transposed
    tile = TILES["across" if transposed else "along"]
    blocks, segments, steps = _grid(*X.shape, tile, transposed)
    rows, columns = (X.shape[0], X.stride(0), tile.rows), (X.shape[1], 1, tile.columns)
    (kept, kept_stride, side), (summed, summed_stride, length) = (
        (columns, rows) if transposed else (rows, columns)
    )
    partial = v.new_empty((segments, count, kept))
    with sys.modules["torch"].cuda.device_of(X):
        _partial_sums[(blocks, segments)](
            X, v.contiguous(), c.contiguous(), partial, kept, summed, kept_stride, summed_stride, steps,
            KEPT=side, SUMMED=length, STAGES=tile.stages, MOMENTS=count == 2, num_warps=tile.warps,
        )  # fmt: skip
    return partial.sum(dim=0) if segments > 1 else partial[0]


def _grid(n, p, tile, transposed):
    """``(blocks, segments, steps)``: programs side by side, programs that share a sum, tiles per program."""
    kept, summed = (p, n) if transposed else (n, p)
    side, length = (tile.columns, tile.rows) if transposed else (tile.rows, tile.columns)
    blocks, tiles = -(-kept // side), -(-summed // length)
    segments = max(1, min(tiles, -(-_PROGRAMS // blocks)))
    steps = -(-tiles // segments)
    return blocks, -(-tiles // steps), steps


def usable(X) -> bool:
    """Whether the kernel compiles for the device and storage type of X and agrees with plain products.

    Checked once for each; otherwise there is a warning, and blocks are converted instead.
    """
    key = (str(X.device), str(X.dtype))
    if key not in _verdicts:
        problem = "" if triton is None else _disagreement(X)
        _verdicts[key] = triton is not None and not problem
        if problem:
            warnings.warn(
                f"the kernel for {key[1]} on {key[0]} is not used: {problem}; blocks of X are converted to "
                "float64 instead, which is slower",
                UserWarning,
                stacklevel=2,
            )
    return _verdicts[key]


def _disagreement(X, n: int | None = None, p: int | None = None) -> str:
    """The fault of the kernel on the device of X, found on a small random matrix; "" if there is none.

    The matrix has several tiles in both directions, the last ones not full. Its size is a multiple of 16 if
    that of X is: kernels are compiled separately for such sizes.
    """
    n, p = n or (1037 if X.shape[0] % 16 else 1040), p or (613 if X.shape[1] % 16 else 624)
    torch = sys.modules["torch"]
    generator = torch.Generator().manual_seed(0)
    sample = torch.randn(n, p, generator=generator).to(X.dtype)
    vectors = [torch.randn(size, generator=generator, dtype=torch.float64) for size in (p, n)]
    sample, (u, r) = sample.to(X.device), (v.to(X.device) for v in vectors)
    wide, d, c = sample.double(), r.abs() / n, u
    gap = wide - c
    expected = (wide @ u, wide.t() @ r, d @ gap, d @ gap**2)
    try:
        for matrix in (sample, sample.t().contiguous().t()):
            got = (_dot(matrix, u, False), _dot(matrix, r, True), *_moments(matrix, d, c))
            for one, other in zip(got, expected, strict=True):
                error = float((one - other).abs().max() / other.abs().max())
                if not error < 1e-12:
                    return f"it differs from plain products by {error:.1e}"
    except Exception as error:  # any error of a compiler or driver: the fit can do without the kernel
        return f"{type(error).__name__}: {error}"
    return ""
