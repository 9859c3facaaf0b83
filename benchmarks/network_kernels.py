"""Which kernels for groups are the fastest on a GPU: tiles, and ways of PyTorch, on four layers of 4096 x 4096.

python -m benchmarks.network_kernels
"""

from __future__ import annotations

import math
import time

import torch
from torch import nn
from torch.nn import functional

from trimreg.nn import TrimmedGroupL1
from trimreg.nn.groups import kernels
from trimreg.nn.groups.kernels import Tile, tl, triton
from trimreg.nn.layers import noise
from trimreg.nn.penalty import rules

SIDE, LAYERS = 4096, 4

if triton is not None:

    @triton.jit
    def _strip(x, limit, norms, rows, columns, TALL: tl.constexpr, WIDE: tl.constexpr, BACK: tl.constexpr):
        """Norms of the columns of a strip, and zeros where they are below a limit, in one program."""
        j = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
        i = tl.arange(0, TALL)
        total = tl.zeros((TALL, WIDE), tl.float32)
        for first in range(0, rows, TALL):
            value = tl.load(x + (first + i)[:, None].to(tl.int64) * columns + j[None, :])
            total += value * value
        norm = tl.sqrt(tl.sum(total, axis=0))
        tl.store(norms + j, norm)
        cut = norm < tl.load(limit)
        if tl.sum(cut.to(tl.int32), axis=0) > 0:
            for first in range(0, rows, TALL):
                begin = rows - TALL - first if BACK else first
                place = x + (begin + i)[:, None].to(tl.int64) * columns + j[None, :]
                tl.store(place, tl.zeros((TALL, WIDE), tl.float32), mask=cut[None, :] & (i >= 0)[:, None])


def clock(what, run, gigabytes=None, repeats=20):
    """Print the time of a run, as one graph."""
    try:
        started = time.perf_counter()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            run()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        graph.replay()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(repeats):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        ms = begin.elapsed_time(end) / repeats
        rate = "" if gigabytes is None else f"{gigabytes / ms:8.2f} TB/s"
        print(f"{what:60s} {1e3 * ms:9.1f} us {rate}   [{time.perf_counter() - started:.1f} s]", flush=True)
    except Exception as error:
        print(f"{what:60s} {type(error).__name__}: {str(error)[:300]}", flush=True)


@torch.no_grad()
def ways():
    device = "cuda"
    weights = [torch.randn(SIDE, SIDE, device=device) / 64 for _ in range(LAYERS)]
    gradients = [torch.randn(SIDE, SIDE, device=device) for _ in range(LAYERS)]
    one = LAYERS * 4 * SIDE**2 / 1e9
    form = kernels.layout(weights[0], 1, 0)
    norms = torch.empty(LAYERS, SIDE, device=device)
    kept = torch.rand(LAYERS, SIDE, device=device) > 0.5
    factor = kept.float()
    print("usable:", kernels.usable(weights[0].device), repr(kernels.disagreement(device)), flush=True)

    def each(function):
        return lambda: [function(k, weights[k]) for k in range(LAYERS)]

    # The penalty's own, with the tiles that it has, and the parts of a plain step.
    clock("norms: vector_norm", each(lambda k, w: torch.linalg.vector_norm(w, dim=0, out=norms[k])), one)
    clock("norms: kernel", each(lambda k, w: kernels.add_products(w, w, form, norms[k], True, True)), one)
    clock("products: mul, sum", each(lambda k, w: torch.sum(w * gradients[k], 0, out=norms[k])), 2 * one)
    clock(
        "products: kernel",
        each(lambda k, w: kernels.add_products(w, gradients[k], form, norms[k], True, False)),
        2 * one,
    )
    clock("mask: mul_ by bool", each(lambda k, w: w.mul_(kept[k])), 2 * one)
    clock("mask: mul_ by float", each(lambda k, w: w.mul_(factor[k])), 2 * one)
    clock("mask: masked_fill_", each(lambda k, w: w.masked_fill_(~kept[k], 0.0)), 2 * one)
    indices = [(~kept[k]).nonzero()[:, 0] for k in range(LAYERS)]
    clock("mask: index_fill_", each(lambda k, w: w.index_fill_(1, indices[k], 0.0)), 2 * one)
    for zero in (False, True):
        clock(
            f"mask: kernel, zero={zero}",
            each(lambda k, w, zero=zero: kernels.scale(w, kept[k], form, zero)),
            2 * one,
        )
    first = (torch.arange(SIDE, device=device) < SIDE // 2).repeat(LAYERS, 1)
    clock("ranks: kernel", lambda: kernels.by_rank(norms, first))
    clock(
        "ranks: sort",
        lambda: torch.empty_like(first).scatter_(
            -1, torch.sort(norms, dim=-1, descending=True, stable=True).indices, first
        ),
    )

    own = dict(kernels.TILES)
    for tile in [
        Tile(8, 256, 4),
        Tile(32, 128, 8),
        Tile(32, 128, 4),
        Tile(16, 512, 8),
        Tile(8, 1024, 8),
        Tile(32, 256, 8),
        Tile(16, 256, 4),
    ]:
        kernels.TILES["sum columns"] = kernels.TILES["scale columns"] = tile
        for programs in (1024, 2048):
            kernels._PROGRAMS = programs
            clock(
                f"norms: {tuple(tile)} {programs}",
                each(lambda k, w: kernels.add_products(w, w, form, norms[k], True, True)),
                one,
            )
            clock(
                f"products: {tuple(tile)} {programs}",
                each(lambda k, w: kernels.add_products(w, gradients[k], form, norms[k], True, False)),
                2 * one,
            )
        clock(f"mask: {tuple(tile)}", each(lambda k, w: kernels.scale(w, kept[k], form)), 2 * one)
        clock(f"mask, zero: {tuple(tile)}", each(lambda k, w: kernels.scale(w, kept[k], form, True)), 2 * one)
    kernels.TILES.update(own)
    kernels._PROGRAMS = 1024

    # One layer after the other, so that a mask may find the layer in the cache.
    def together():
        each(lambda k, w: kernels.add_products(w, w, form, norms[k], True, True))()
        kernels.by_rank(norms, first)
        each(lambda k, w: kernels.scale(w, kept[k], form))()

    def in_turn():
        for k, w in enumerate(weights):
            kernels.add_products(w, w, form, norms[k], True, True)
            kernels.by_rank(norms[k : k + 1], first[k : k + 1])
            kernels.scale(w, kept[k], form)

    clock("norms, ranks, masks: together", together, 3 * one)
    clock("norms, ranks, masks: layer by layer", in_turn, 3 * one)
    for wide, tall, warps in (
        (8, 256, 8),
        (16, 128, 8),
        (16, 256, 8),
        (32, 128, 8),
        (32, 64, 4),
        (32, 256, 16),
    ):
        for back in (False, True):
            limit = torch.linalg.vector_norm(weights[0], dim=0).median()

            def strip(k, w, wide=wide, tall=tall, warps=warps, back=back, limit=limit):
                _strip[(SIDE // wide,)](
                    w, limit, norms[k], SIDE, SIDE, TALL=tall, WIDE=wide, BACK=back, num_warps=warps
                )

            weights[:] = [torch.randn(SIDE, SIDE, device=device) / 64 for _ in range(LAYERS)]
            clock(f"strips of {wide}, {tall} rows, {warps} warps, back={back}", each(strip), 2 * one)

    # Bayesian layers.
    spreads = [torch.full_like(w, -5.0) for w in weights]
    like = torch.empty_like(weights[0])
    size = like.numel()

    def variances(block, warps):
        return each(
            lambda k, w: noise._variances[(triton.cdiv(size, block),)](
                spreads[k], w, like, size, WIDE=block, num_warps=warps
            )
        )

    for block, warps in ((1024, 4), (2048, 8), (4096, 8)):
        clock(f"variance: {block} {warps}", variances(block, warps), 3 * one)
    other = torch.empty_like(like)
    clock(
        "variance slopes",
        each(
            lambda k, w: noise._variance_slopes[(triton.cdiv(size, 2048),)](
                spreads[k], w, gradients[k], like, other, size, WIDE=2048, num_warps=8
            )
        ),
        5 * one,
    )
    clock("divergence", each(lambda k, w: noise._Divergence.forward(spreads[k], 0)), one)
    ones = torch.ones((), device=device)
    clock(
        "divergence slopes",
        each(
            lambda k, w: noise._divergence_slopes[(triton.cdiv(size, 2048), 1)](
                spreads[k], ones, like, size, *noise.KL_COEFFICIENTS, WIDE=2048, num_warps=8
            )
        ),
        2 * one,
    )


def parts():
    """Parts of a plain step of the MLP, and the penalty's own step."""
    for fast in (False, True):
        torch.backends.cuda.matmul.allow_tf32 = fast
        model = nn.Sequential(
            *[p for _ in range(LAYERS) for p in (nn.Linear(SIDE, SIDE), nn.ReLU())][:-1]
        ).cuda()
        x, y = torch.randn(256, SIDE, device="cuda"), torch.randint(10, (256,), device="cuda")
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=fast or None, capturable=True)
        functional.cross_entropy(model(x), y).backward()
        print(f"TF32 and fused Adam: {fast}")
        clock(
            "forward and backward",
            lambda model=model, x=x, y=y: functional.cross_entropy(model(x), y).backward(),
        )
        clock("step of Adam", optimizer.step)
        for options in ({}, {"rank_by": "taylor"}, {"alpha": 0.01}):
            penalty = TrimmedGroupL1(model, {"*": SIDE // 2}, cuda_graph=False, **options)
            handle = penalty.attach(optimizer)
            clock(f"step of Adam with {options}", optimizer.step)
            handle.remove()


if __name__ == "__main__":
    if triton is None or not torch.cuda.is_available():
        raise SystemExit("needs a CUDA device and Triton")
    assert math.isclose(float(rules.group_factor(torch.ones(1), 0.5)), 0.5)
    parts()
    ways()
