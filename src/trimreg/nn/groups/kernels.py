r"""Sums over groups, scaling of groups and ranking on CUDA, each in one pass over the weights.

PyTorch has no operation that sums a product without writing it, so :math:`\sum_{i \in g} \theta_i \nabla_i`
would take a temporary of the size of the layer. The kernels here read both tensors once. Programs write
partial sums, which are added in a fixed order: no atomics, the same bits in every run. Groups whose factor is
1 are not touched.

A tensor is seen as runs of memory: replicas, rows, groups, and entries inside a group. Groups that lie side
by side in a row are *columns*; groups that are runs of their own are *rows*. :func:`layout` says which.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

triton: Any
tl: Any
try:  # part of PyTorch for Linux with CUDA; not needed elsewhere
    import triton  # type: ignore[no-redef]
    import triton.language as tl  # type: ignore[no-redef]
except ImportError:
    triton = tl = None

#: Smaller tensors are left to PyTorch: a temporary of their size costs nothing, and its launches are cheaper.
LEAST = 2**16
#: With fewer rows the partial sums of columns would take more than 1/64 of the memory of the tensor.
LEAST_ROWS = 64
#: Tables are ranked by counting up to this width: one kernel, where a sort takes several.
WIDEST = 2**14
_PROGRAMS = 1024  # at least this many if the tensor is large enough
_verdicts: dict[str, bool] = {}  # by device: whether the kernels agree with PyTorch there


class Tile(NamedTuple):
    """The part of a tensor that a kernel loads at a time, and the warps that share it."""

    rows: int
    columns: int
    warps: int


#: The fastest of eight on an H200: ``python -m benchmarks.network_kernels`` measures them.
TILES = {"sum columns": Tile(16, 512, 8), "scale columns": Tile(16, 256, 8), "rows": Tile(1, 1024, 4)}


class Layout(NamedTuple):
    """Sizes and steps of a tensor by groups; ``inner`` entries of a group lie side by side."""

    replicas: int
    replica_step: int
    rows: int
    row_step: int
    groups: int
    group_step: int
    inner: int

    @property
    def columns(self) -> bool:
        """Whether the groups lie side by side in rows."""
        return self.rows > 1


def layout(view: Tensor, axis: int, leading: int) -> Layout | None:
    """The layout of a view: ``leading`` axes of replicas, groups on ``axis``; None if it has no layout."""
    return _layout(view.shape, view.stride(), axis, leading)


@functools.lru_cache(maxsize=4096)
def _layout(sizes, steps, axis: int, leading: int) -> Layout | None:
    inside = [a for a in range(leading, len(sizes)) if a != axis and sizes[a] > 1]
    replicas = _run(list(range(leading)), sizes, steps)
    rows = _run([a for a in inside if steps[a] > steps[axis]], sizes, steps)
    inner = _run([a for a in inside if steps[a] <= steps[axis]], sizes, steps)
    if replicas is None or rows is None or inner is None or (inner[0] > 1 and inner[1] != 1):
        return None
    if rows[0] > 1 and steps[axis] != inner[0]:
        return None
    return Layout(*replicas, *rows, sizes[axis], steps[axis], inner[0])


def _run(axes: list[int], sizes, steps) -> tuple[int, int] | None:
    """Length and step of some axes together, if they are one run of memory in any order; else None."""
    axes = sorted((a for a in axes if sizes[a] > 1), key=lambda a: steps[a])
    if not axes:
        return 1, 0
    length = 1
    for a in axes:
        if steps[a] != steps[axes[0]] * length:
            return None
        length *= sizes[a]
    return length, steps[axes[0]]


if triton is not None:  # pragma: no cover - compiled for a GPU

    @triton.jit(do_not_specialize=["steps"])
    def _column_sums(
        a, b, partial, rows, columns, row_step, replica_step, chunks, steps,
        SAME: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr,
    ):  # fmt: skip
        """Sums of ``a * b`` over some rows, for the columns of one tile."""
        chunk, replica = tl.program_id(1), tl.program_id(2).to(tl.int64)
        j = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
        there = j < columns
        first = chunk * steps * TALL
        base = replica * replica_step + first.to(tl.int64) * row_step
        tile = tl.arange(0, TALL)[:, None] * row_step + j[None, :]
        total = tl.zeros((TALL, WIDE), partial.dtype.element_ty)
        for step in range(steps):
            inside = (first + step * TALL + tl.arange(0, TALL) < rows)[:, None] & there[None, :]
            x = tl.load(a + base + tile, mask=inside, other=0.0).to(partial.dtype.element_ty)
            if SAME:
                total += x * x
            else:
                total += x * tl.load(b + base + tile, mask=inside, other=0.0).to(partial.dtype.element_ty)
            base += TALL * row_step
        tl.store(partial + (replica * chunks + chunk) * columns + j, tl.sum(total, axis=0), mask=there)

    @triton.jit(do_not_specialize=["steps"])
    def _row_sums(
        a, b, partial, groups, inner, group_step, replica_step, chunks, steps,
        SAME: tl.constexpr, WIDE: tl.constexpr,
    ):  # fmt: skip
        """The sum of ``a * b`` over a part of one group."""
        g, chunk, replica = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
        base = replica * replica_step + g.to(tl.int64) * group_step
        total = tl.zeros((WIDE,), partial.dtype.element_ty)
        for step in range(steps):
            i = (chunk * steps + step) * WIDE + tl.arange(0, WIDE)
            x = tl.load(a + base + i, mask=i < inner, other=0.0).to(partial.dtype.element_ty)
            if SAME:
                total += x * x
            else:
                total += x * tl.load(b + base + i, mask=i < inner, other=0.0).to(partial.dtype.element_ty)
        tl.store(partial + (replica * chunks + chunk) * groups + g, tl.sum(total, axis=0))

    @triton.jit(do_not_specialize=["chunks"])
    def _finish(
        partial, out, groups, inner, chunks, out_step,
        FRESH: tl.constexpr, ROOT: tl.constexpr, MOST: tl.constexpr, WIDE: tl.constexpr,
    ):  # fmt: skip
        """Add up partial sums, to what is there unless FRESH; with ROOT, take the square root."""
        replica = tl.program_id(1).to(tl.int64)
        g, chunk = tl.program_id(0) * WIDE + tl.arange(0, WIDE), tl.arange(0, MOST)
        inside = (chunk < chunks)[:, None] & (g < groups)[None, :]
        place = partial + (replica * chunks + chunk)[:, None] * (groups * inner) + (g * inner)[None, :]
        total = tl.zeros((MOST, WIDE), partial.dtype.element_ty)
        for one in range(inner):
            total += tl.load(place + one, mask=inside, other=0.0)
        result = tl.sum(total, axis=0)
        target = out + replica * out_step + g
        if not FRESH:
            result += tl.load(target, mask=g < groups, other=0.0)
        if ROOT:
            result = tl.sqrt(result)
        tl.store(target, result, mask=g < groups)

    @triton.jit(do_not_specialize=["steps"])
    def _scale_columns(
        x, factor, rows, columns, inner, row_step, replica_step, factor_step, steps,
        WIDER: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr,
    ):  # fmt: skip
        """Multiply the columns of a tile by their factors; a tile with factors of 1 costs nothing."""
        chunk, replica = tl.program_id(1), tl.program_id(2).to(tl.int64)
        j = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
        there = j < columns
        f = tl.load(factor + replica * factor_step + j // inner, mask=there, other=1).to(WIDER)
        if tl.sum((f != 1.0).to(tl.int32), axis=0) > 0:  # whole sectors: zeros alone take longer to write
            first = chunk * steps * TALL
            base = x + replica * replica_step + first.to(tl.int64) * row_step
            tile = tl.arange(0, TALL)[:, None] * row_step + j[None, :]
            for step in range(steps):
                rest = (first + step * TALL + tl.arange(0, TALL) < rows)[:, None]
                inside = rest & there[None, :]
                value = tl.load(base + tile, mask=inside, other=0.0).to(WIDER) * f[None, :]
                tl.store(base + tile, value.to(x.dtype.element_ty), mask=inside)
                base += TALL * row_step

    @triton.jit
    def _scale_rows(
        x, factor, inner, group_step, replica_step, factor_step, WIDER: tl.constexpr, WIDE: tl.constexpr
    ):
        """Multiply a part of one group by its factor; 1 costs nothing, and 0 no reading."""
        g, replica = tl.program_id(0), tl.program_id(2).to(tl.int64)
        f = tl.load(factor + replica * factor_step + g).to(WIDER)
        i = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
        place, inside = x + replica * replica_step + g.to(tl.int64) * group_step + i, i < inner
        if f == 0.0:
            tl.store(place, tl.zeros((WIDE,), x.dtype.element_ty), mask=inside)
        elif f != 1.0:
            value = tl.load(place, mask=inside, other=0.0).to(WIDER) * f
            tl.store(place, value.to(x.dtype.element_ty), mask=inside)

    @triton.jit
    def _by_rank(r, ranks, out, width, TALL: tl.constexpr, WIDE: tl.constexpr):
        """The entry of ``ranks`` at the rank of each value in its row; ties go to the lower index."""
        row = tl.program_id(1).to(tl.int64) * width
        i = tl.program_id(0) * TALL + tl.arange(0, TALL)
        x = tl.load(r + row + i, mask=i < width, other=0.0)
        x = tl.where(x != x, float("inf"), x)
        before = tl.zeros((TALL, WIDE), tl.int32)
        for start in range(0, width, WIDE):
            j = start + tl.arange(0, WIDE)
            y = tl.load(r + row + j, mask=j < width, other=float("-inf"))
            y = tl.where(y != y, float("inf"), y)
            tied = (y[None, :] == x[:, None]) & (j[None, :] < i[:, None])
            before += ((y[None, :] > x[:, None]) | tied).to(tl.int32)
        rank = tl.sum(before, axis=1)
        mark = tl.load(ranks + row + rank, mask=i < width, other=0)
        tl.store(out + row + i, mark, mask=i < width)


# -- calls ---------------------------------------------------------------------------------------------------


def layout_for_sums(a: Tensor, b: Tensor, axis: int, leading: int) -> Layout | None:
    """The layout with which :func:`add_products` can be used; None if it cannot."""
    if a.numel() < LEAST or not usable(a.device) or a.stride() != b.stride():
        return None
    form = layout(a, axis, leading)
    few = form is not None and form.columns and form.rows < LEAST_ROWS
    return None if few else form


def layout_for_scale(x: Tensor, axis: int, leading: int) -> Layout | None:
    """The layout with which :func:`scale` can be used; None if it cannot."""
    return layout(x, axis, leading) if x.numel() >= LEAST and usable(x.device) else None


def add_products(a: Tensor, b: Tensor, form: Layout, out: Tensor, fresh: bool, root: bool) -> None:
    r"""Add :math:`\sum_{i \in g} a_i b_i` to ``out``, of shape ``(*replicas, groups)``.

    With ``fresh``, what is in ``out`` is overwritten; with ``root``, the square root is taken at the end.
    """
    tile = TILES["sum columns" if form.columns else "rows"]
    if form.columns:
        columns = form.groups * form.inner
        side = -(-columns // tile.columns)
        wanted = max(1, min(_PROGRAMS // (side * form.replicas), form.rows // (4 * tile.rows), 64))
        steps = -(-form.rows // (wanted * tile.rows))
        chunks = -(-form.rows // (steps * tile.rows))
    else:
        columns, side = form.groups, form.groups
        wanted = max(1, min(_PROGRAMS // (side * form.replicas), form.inner // (4 * tile.columns), 64))
        steps = -(-form.inner // (wanted * tile.columns))
        chunks = -(-form.inner // (steps * tile.columns))
    partial = out.new_empty((form.replicas, chunks, columns))
    same = a.data_ptr() == b.data_ptr()
    with torch.cuda.device_of(a):
        if form.columns:
            _column_sums[(side, chunks, form.replicas)](
                a, b, partial, form.rows, columns, form.row_step, form.replica_step, chunks, steps,
                SAME=same, TALL=tile.rows, WIDE=tile.columns, num_warps=tile.warps,
            )  # fmt: skip
        else:
            _row_sums[(side, chunks, form.replicas)](
                a, b, partial, form.groups, form.inner, form.group_step, form.replica_step, chunks, steps,
                SAME=same, WIDE=tile.columns, num_warps=tile.warps,
            )  # fmt: skip
        _finish[(-(-form.groups // 64), form.replicas)](
            partial, out, form.groups, columns // form.groups, chunks, out.stride(-2) if out.ndim > 1 else 0,
            FRESH=fresh, ROOT=root, MOST=triton.next_power_of_2(chunks), WIDE=64, num_warps=4,
        )  # fmt: skip


def scale(x: Tensor, factor: Tensor, form: Layout) -> None:
    """Multiply the groups of ``x`` by ``factor``, of shape ``(*replicas, groups)``; True counts as 1."""
    wider = tl.float64 if x.dtype == torch.float64 else tl.float32
    step = factor.stride(-2) if factor.ndim > 1 else 0
    with torch.cuda.device_of(x):
        if form.columns:
            tile, columns = TILES["scale columns"], form.groups * form.inner
            side = -(-columns // tile.columns)
            wanted = max(1, min(4 * _PROGRAMS // (side * form.replicas), -(-form.rows // tile.rows)))
            steps = -(-form.rows // (wanted * tile.rows))
            _scale_columns[(side, -(-form.rows // (steps * tile.rows)), form.replicas)](
                x, factor, form.rows, columns, form.inner, form.row_step, form.replica_step, step, steps,
                WIDER=wider, TALL=tile.rows, WIDE=tile.columns, num_warps=tile.warps,
            )  # fmt: skip
        else:
            wide = TILES["rows"].columns
            _scale_rows[(form.groups, -(-form.inner // wide), form.replicas)](
                x, factor, form.inner, form.group_step, form.replica_step, step,
                WIDER=wider, WIDE=wide, num_warps=TILES["rows"].warps,
            )  # fmt: skip


def can_rank(r: Tensor) -> bool:
    """Whether :func:`by_rank` can be used."""
    return r.ndim == 2 and r.shape[-1] <= WIDEST and r.is_contiguous() and usable(r.device)


def by_rank(r: Tensor, ranks: Tensor) -> Tensor:
    """Mask of the entries whose rank in their row, from the largest down, is marked in ``ranks``."""
    ranks = ranks.contiguous()
    out = torch.empty_like(ranks)
    with torch.cuda.device_of(r):
        _by_rank[(-(-r.shape[1] // 32), r.shape[0])](
            r, ranks, out, r.shape[1], TALL=32, WIDE=256, num_warps=4
        )
    return out


# -- whether to trust them -----------------------------------------------------------------------------------


def usable(device: torch.device) -> bool:
    """Whether the kernels compile for a CUDA device and agree with PyTorch; checked once, with a warning."""
    if triton is None or device.type != "cuda":
        return False
    key = str(device)
    if key not in _verdicts:
        if torch.cuda.is_current_stream_capturing():
            return False  # the check waits for the device
        problem = disagreement(device)
        _verdicts[key] = not problem
        if problem:
            warnings.warn(
                f"the kernels for groups on {key} are not used: {problem}; PyTorch's own are slower",
                stacklevel=2,
            )
    return _verdicts[key]


def disagreement(device: torch.device | str) -> str:
    """The fault of the kernels on a device, found on small random tensors; "" if there is none."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float32).to(device)

    cases: list[tuple[Tensor, Tensor, int, int]] = []  # both tensors, axis of the groups, axes of replicas
    for shape, axis, leading in (((320, 80), 1, 0), ((96, 2064), 0, 0), ((2, 160, 48), 2, 1)):
        cases.append((random(*shape), random(*shape), axis, leading))
    try:
        return next(filter(None, (_fault(*case) for case in cases)), "")
    except Exception as error:  # any error of a compiler or driver: training can do without the kernels
        return f"{type(error).__name__}: {error}"


def _fault(a: Tensor, b: Tensor, axis: int, leading: int) -> str:
    form = layout(a, axis, leading)
    assert form is not None
    over = [i for i in range(leading, a.ndim) if i != axis]
    sums = (a.double() * b.double()).sum(over)
    out = torch.empty_like(sums, dtype=torch.float32)
    add_products(a, b, form, out, fresh=True, root=False)
    scaled, factor = a.clone(), (out > 0).float() + (out > 1).float()
    scale(scaled, factor, form)
    spread = factor.reshape([size if i < leading or i == axis else 1 for i, size in enumerate(a.shape)])
    table = out.reshape(-1, out.shape[-1])
    first = (torch.arange(table.shape[1], device=table.device) < 7).repeat(len(table), 1)
    order = torch.sort(table, dim=-1, descending=True, stable=True).indices
    checks: tuple[tuple[str, Callable[[], bool]], ...] = (
        ("sums", lambda: bool((out - sums).abs().max() <= 1e-4)),
        ("products", lambda: torch.equal(scaled, a * spread)),
        (
            "ranks",
            lambda: torch.equal(by_rank(table, first), torch.empty_like(first).scatter_(-1, order, first)),
        ),
    )
    return "; ".join(f"its {what} differ from PyTorch's" for what, holds in checks if not holds())
