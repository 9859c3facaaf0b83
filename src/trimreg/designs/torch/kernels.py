r"""Products with a tensor that is stored in few bits and computed with in float64.

Four sums are all that a design needs of a tensor ``X``, each one pass over it:

.. math:: X u, \qquad X' r, \qquad \sum_i d_i (x_{ij} - c_j), \qquad \sum_i d_i (x_{ij} - c_j)^2 .

On CUDA each is a kernel that loads a tile, converts it to float64 in registers and adds it up there, so that
X is read once in the type it is stored in. Programs write partial sums, which are added in a fixed order: no
atomics, the same bits in every run. Elsewhere, and for many vectors at once, blocks of rows are converted.

Tensors come in here, so PyTorch is loaded, by whoever made them; this module does not import it.
"""

from __future__ import annotations

import sys
import warnings
from typing import NamedTuple

try:  # in the packages of PyTorch for Linux with CUDA; nothing here needs it elsewhere
    import triton
    import triton.language as tl
except ImportError:
    triton = None

_BLOCK_BYTES = {"cuda": 128 << 20}  # of a block in float64; large enough that launching is no cost
_BLOCK_BYTES_ELSEWHERE = 4 << 20  # a few of these fit in the cache of a processor
_PROGRAMS = 2048  # so many at least, where the matrix has room for them: each multiprocessor gets a dozen
_FEW_VECTORS = 4  # so many are faster one after the other than by blocks that are converted


class Tile(NamedTuple):
    """How a kernel cuts the matrix: rows and columns of a tile, warps that share it, loads in flight."""

    rows: int
    columns: int
    warps: int
    stages: int


#: What :func:`tune` chooses among.
TILES = (
    Tile(4, 512, 4, 1),
    Tile(8, 256, 4, 1),
    Tile(16, 256, 8, 1),
    Tile(8, 512, 8, 1),
    Tile(4, 1024, 8, 1),
    Tile(8, 256, 4, 3),
)
#: What is used unless :func:`tune` was called: the best of these on an H200, over both storage types.
DEFAULT = {"along": Tile(8, 256, 4, 1), "across": Tile(8, 256, 4, 3)}
_tiles: dict[tuple[str, str], Tile] = {}  # by kernel and storage type, where tuned
_verdicts: dict[tuple[str, str], bool] = {}  # by device and storage type: whether the kernels agree there

if triton is not None:  # pragma: no cover - compiled for a GPU

    @triton.jit
    def _widened(block):
        if block.dtype == tl.float64:
            return block
        return block.to(tl.float32).to(tl.float64)

    @triton.jit(do_not_specialize=["steps"])
    def _dot_along(
        x, v, out, n, p, stride, steps,
        ROWS: tl.constexpr, COLUMNS: tl.constexpr, STAGES: tl.constexpr,
    ):  # fmt: skip
        """Part of ``sum_j x_ij v_j`` for some rows: the columns of one segment."""
        rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
        inside = rows < n
        first = tl.program_id(1) * steps * COLUMNS
        total = tl.zeros((ROWS, COLUMNS), tl.float64)
        for step in tl.range(0, steps, num_stages=STAGES):
            columns = first + step * COLUMNS + tl.arange(0, COLUMNS)
            there = columns < p
            place = x + rows[:, None] * stride + columns[None, :]
            block = tl.load(place, mask=inside[:, None] & there[None, :], other=0.0)
            factor = tl.load(v + columns, mask=there, other=0.0)
            total += _widened(block) * factor[None, :]
        tl.store(out + tl.program_id(1).to(tl.int64) * n + rows, tl.sum(total, axis=1), mask=inside)

    @triton.jit(do_not_specialize=["steps"])
    def _dot_across(
        x, v, out, n, p, stride, steps,
        ROWS: tl.constexpr, COLUMNS: tl.constexpr, STAGES: tl.constexpr,
    ):  # fmt: skip
        """Part of ``sum_i x_ij v_i`` for some columns: the rows of one segment."""
        columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
        there = columns < p
        first = tl.program_id(1).to(tl.int64) * steps * ROWS
        total = tl.zeros((ROWS, COLUMNS), tl.float64)
        for step in tl.range(0, steps, num_stages=STAGES):
            rows = first + step * ROWS + tl.arange(0, ROWS)
            inside = rows < n
            place = x + rows[:, None] * stride + columns[None, :]
            block = tl.load(place, mask=inside[:, None] & there[None, :], other=0.0)
            factor = tl.load(v + rows, mask=inside, other=0.0)
            total += _widened(block) * factor[:, None]
        tl.store(out + tl.program_id(1).to(tl.int64) * p + columns, tl.sum(total, axis=0), mask=there)

    @triton.jit(do_not_specialize=["steps"])
    def _moments_along(
        x, d, c, out, n, p, stride, steps,
        ROWS: tl.constexpr, COLUMNS: tl.constexpr, STAGES: tl.constexpr,
    ):  # fmt: skip
        """Parts of ``sum_j d_j (x_ij - c_i)`` and of ``sum_j d_j (x_ij - c_i)^2`` for some rows."""
        rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
        inside = rows < n
        centre = tl.load(c + rows, mask=inside, other=0.0)
        begin = tl.program_id(1) * steps * COLUMNS
        first = tl.zeros((ROWS, COLUMNS), tl.float64)
        second = tl.zeros((ROWS, COLUMNS), tl.float64)
        for step in tl.range(0, steps, num_stages=STAGES):
            columns = begin + step * COLUMNS + tl.arange(0, COLUMNS)
            there = columns < p
            place = x + rows[:, None] * stride + columns[None, :]
            block = tl.load(place, mask=inside[:, None] & there[None, :], other=0.0)
            weight = tl.load(d + columns, mask=there, other=0.0)
            gap = _widened(block) - centre[:, None]
            first += gap * weight[None, :]
            second += gap * weight[None, :] * gap
        sums = out + 2 * tl.program_id(1).to(tl.int64) * n + rows
        tl.store(sums, tl.sum(first, axis=1), mask=inside)
        tl.store(sums + n, tl.sum(second, axis=1), mask=inside)

    @triton.jit(do_not_specialize=["steps"])
    def _moments_across(
        x, d, c, out, n, p, stride, steps,
        ROWS: tl.constexpr, COLUMNS: tl.constexpr, STAGES: tl.constexpr,
    ):  # fmt: skip
        """Parts of ``sum_i d_i (x_ij - c_j)`` and of ``sum_i d_i (x_ij - c_j)^2`` for some columns."""
        columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
        there = columns < p
        centre = tl.load(c + columns, mask=there, other=0.0)
        begin = tl.program_id(1).to(tl.int64) * steps * ROWS
        first = tl.zeros((ROWS, COLUMNS), tl.float64)
        second = tl.zeros((ROWS, COLUMNS), tl.float64)
        for step in tl.range(0, steps, num_stages=STAGES):
            rows = begin + step * ROWS + tl.arange(0, ROWS)
            inside = rows < n
            place = x + rows[:, None] * stride + columns[None, :]
            block = tl.load(place, mask=inside[:, None] & there[None, :], other=0.0)
            weight = tl.load(d + rows, mask=inside, other=0.0)
            gap = _widened(block) - centre[None, :]
            first += gap * weight[:, None]
            second += gap * weight[:, None] * gap
        sums = out + 2 * tl.program_id(1).to(tl.int64) * p + columns
        tl.store(sums, tl.sum(first, axis=0), mask=there)
        tl.store(sums + p, tl.sum(second, axis=0), mask=there)

    _KERNELS = {
        "dot along": _dot_along,
        "dot across": _dot_across,
        "moments along": _moments_along,
        "moments across": _moments_across,
    }


# -- the sums that a design asks for ------------------------------------------------------------------------


def product(X, u):
    """``X u`` in float64, for ``u`` (p,) or (p, K) in float64 where ``home`` says.

    Examples
    --------
    >>> import torch
    >>> from trimreg.designs.torch.kernels import product
    >>> X = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.bfloat16)
    >>> product(X, torch.tensor([1.0, -1.0], dtype=torch.float64))
    tensor([-1., -1.], dtype=torch.float64)
    """
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
    """``X' r`` in float64, for ``r`` (n,) or (n, K).

    Examples
    --------
    >>> import torch
    >>> from trimreg.designs.torch.kernels import transposed_product
    >>> X = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> transposed_product(X, torch.tensor([1.0, -1.0], dtype=torch.float64))
    tensor([-2., -2.], dtype=torch.float64)
    """
    if _by_kernels(X, r):
        return _each(lambda one: _dot(X, one, transposed=True), r)
    if X.dtype == r.dtype:
        return X.t() @ r
    result = r.new_zeros((X.shape[1], *r.shape[1:]))
    for rows, block in converted(X):
        result += (block.t() @ _near(X, r[rows])).to(r.device)
    return result


def moments(X, d, c):
    """``(sum_i d_i (x_ij - c_j), sum_i d_i (x_ij - c_j)^2)`` for every column j, in one pass.

    Examples
    --------
    >>> import torch
    >>> from trimreg.designs.torch.kernels import moments
    >>> d, c = torch.tensor([0.5, 0.5]).double(), torch.tensor([2.0]).double()
    >>> moments(torch.tensor([[1.0], [3.0]]), d, c)
    (tensor([0.], dtype=torch.float64), tensor([1.], dtype=torch.float64))
    """
    if _by_kernels(X, d):
        return _moments(X, d, c)
    first, second = c.new_zeros(c.shape), c.new_zeros(c.shape)
    centre = _near(X, c)
    for rows, block in converted(X):
        gap = block - centre
        weighted = gap * _near(X, d[rows])[:, None]  # no product with a vector: it may skip factors of 0
        first += weighted.sum(dim=0).to(c.device)
        second += weighted.mul_(gap).sum(dim=0).to(c.device)
    return first, second


def home(X) -> str:
    """The device of the vectors that X is multiplied with: X's own, if that knows float64."""
    return "cpu" if X.device.type == "mps" else str(X.device)


def arithmetic(X):
    """The dtype of products with X: float64, but float32 on a device that has nothing wider.

    Examples
    --------
    >>> import torch
    >>> from trimreg.designs.torch.kernels import arithmetic
    >>> arithmetic(torch.ones(2, 2, dtype=torch.bfloat16))
    torch.float64
    """
    torch = sys.modules["torch"]
    return torch.float32 if X.device.type == "mps" else torch.float64


def converted(X):
    """Pairs of a slice of rows and these rows of X in the dtype of the arithmetic."""
    for rows in row_blocks(X, X.shape[1]):
        yield rows, X[rows].to(arithmetic(X))


def row_blocks(X, width):
    """Slices of rows such that so many columns of them are, in float64, a block that suits the device."""
    size = _BLOCK_BYTES.get(X.device.type, _BLOCK_BYTES_ELSEWHERE)
    step = max(1, size // (8 * max(width, 1)))
    return [slice(start, min(start + step, X.shape[0])) for start in range(0, X.shape[0], step)]


def by_columns(X) -> bool:
    """Whether the columns of X are what lies together."""
    return X.stride(1) != 1 and X.stride(0) == 1


def _near(X, vector):
    """The vector where X is and as X is computed with."""
    return vector.to(X.device, arithmetic(X))


def _each(function, vectors):
    """The function of a vector, or of every column of several."""
    if vectors.ndim == 1:
        return function(vectors)
    columns = [function(vectors[:, k].contiguous()) for k in range(vectors.shape[1])]
    return sys.modules["torch"].stack(columns, dim=1)


# -- the kernels -------------------------------------------------------------------------------------------


def _by_kernels(X, vectors) -> bool:
    """Whether the kernels are the way: on CUDA, for few vectors, where they have been seen to agree."""
    few = vectors.ndim == 1 or 0 < vectors.shape[1] <= _FEW_VECTORS
    return few and X.device.type == "cuda" and usable(X)


def _dot(X, v, transposed):
    return _summed("dot", X, (v,), transposed, 1)[0]


def _moments(X, d, c):
    return tuple(_summed("moments", X, (d, c), True, 2))


def _summed(kind, X, vectors, transposed, count):
    """``count`` sums for every row of X, or of its transpose, from the partial sums of the programs."""
    if by_columns(X):
        X, transposed = X.t(), not transposed
    name = f"{kind} {'across' if transposed else 'along'}"
    n, p = X.shape
    tile = _tiles.get((name, str(X.dtype)), DEFAULT[name.split()[-1]])
    blocks, segments, steps = _grid(n, p, tile, transposed)
    partial = vectors[0].new_empty((segments, count, p if transposed else n))
    with sys.modules["torch"].cuda.device_of(X):
        _KERNELS[name][(blocks, segments)](
            X, *(v.contiguous() for v in vectors), partial, n, p, X.stride(0), steps,
            ROWS=tile.rows, COLUMNS=tile.columns, STAGES=tile.stages, num_warps=tile.warps,
        )  # fmt: skip
    return partial.sum(dim=0) if segments > 1 else partial[0]


def _grid(n, p, tile, transposed):
    """``(blocks, segments, steps)``: programs side by side, programs that share a sum, tiles of a program.

    Examples
    --------
    >>> from trimreg.designs.torch.kernels import Tile, _grid
    >>> _grid(200_000, 20_000, Tile(4, 512, 4, 1), transposed=False)
    (50000, 1, 40)
    >>> _grid(200_000, 20_000, Tile(4, 512, 4, 1), transposed=True)
    (40, 52, 962)
    """
    kept, summed = (p, n) if transposed else (n, p)
    side, length = (tile.columns, tile.rows) if transposed else (tile.rows, tile.columns)
    blocks, tiles = -(-kept // side), -(-summed // length)
    segments = max(1, min(tiles, -(-_PROGRAMS // blocks)))
    steps = -(-tiles // segments)
    return blocks, -(-tiles // steps), steps


def usable(X) -> bool:
    """Whether the kernels compile for X's device and storage type and agree there with plain products.

    Looked at once for each; where they do not, a warning says so and blocks are converted instead.
    """
    key = (str(X.device), str(X.dtype))
    if key not in _verdicts:
        problem = "" if triton is None else _disagreement(X)
        _verdicts[key] = triton is not None and not problem
        if problem:
            warnings.warn(
                f"the kernels for {key[1]} on {key[0]} are not used: {problem}; products convert blocks of X "
                "to float64 instead, which is slower",
                UserWarning,
                stacklevel=2,
            )
    return _verdicts[key]


def _disagreement(X, n: int | None = None, p: int | None = None) -> str:
    """What is wrong with the kernels on X's device, "" if nothing is, seen on a small random matrix.

    Its size makes several tiles both ways, the last ones not full. It is a multiple of 16 where that of X is:
    kernels are compiled apart for those, and the ones that are looked at should be the ones that X will need.
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
                    return f"they differ from plain products by {error:.1e}"
    except Exception as error:  # whatever a compiler or a driver says, the fit can go on without
        return f"{type(error).__name__}: {error}"
    return ""


def tune(X, repeats: int = 5) -> dict:
    """Time every tile on X (CUDA) and use the fastest in this process; returns seconds by kernel and tile.

    No fit calls this: it costs more passes than a fit does. For benchmarks, and for who fits all day.
    """
    torch = sys.modules["torch"]
    n, p = X.shape
    u, r = (torch.ones(size, dtype=torch.float64, device=X.device) for size in (p, n))
    flipped = by_columns(X)
    calls = {
        "dot along": lambda: _dot(X, r if flipped else u, flipped),
        "dot across": lambda: _dot(X, u if flipped else r, not flipped),
        f"moments {'along' if flipped else 'across'}": lambda: _moments(X, r, u),
    }
    seconds = {}
    for name, call in calls.items():
        key = (name, str(X.dtype))
        for tile in TILES:
            _tiles[key] = tile
            try:
                seconds[name, tile] = device_seconds(call, repeats)
            except Exception:  # a tile that this device has no room for
                seconds[name, tile] = float("inf")
        _tiles[key] = min(TILES, key=lambda tile, name=name: seconds[name, tile])
    return seconds


def device_seconds(call, repeats: int = 5) -> float:
    """The median time of a call on the current CUDA device, by its own clock."""
    torch = sys.modules["torch"]
    call()
    call()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return sorted(times)[len(times) // 2]
