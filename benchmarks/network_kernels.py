"""How fast the kernels for groups are on a GPU, with several tiles and beside PyTorch: four layers of 4096 x 4096.

python -m benchmarks.network_kernels
"""

from __future__ import annotations

import torch

from trimreg.nn.groups import kernels
from trimreg.nn.groups.kernels import Tile, triton

SIDE, LAYERS = 4096, 4
TILES = [Tile(16, 256, 8), Tile(8, 256, 4), Tile(32, 128, 4), Tile(16, 512, 8), Tile(8, 1024, 8)]


def clock(what: str, run, passes: float = 0.0, repeats: int = 20) -> None:
    """Print the time of a run as one CUDA graph, and its rate if it takes so many passes over the weights."""
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
    rate = f"{passes * LAYERS * 4 * SIDE**2 / 1e9 / ms:8.2f} TB/s" if passes else ""
    print(f"{what:40s} {1e3 * ms:9.1f} us {rate}", flush=True)


@torch.no_grad()
def main() -> None:
    if triton is None or not torch.cuda.is_available():
        raise SystemExit("needs a CUDA device and Triton")
    weights, gradients = ([torch.randn(SIDE, SIDE, device="cuda") for _ in range(LAYERS)] for _ in range(2))
    norms = torch.empty(LAYERS, SIDE, device="cuda")
    kept = torch.rand(LAYERS, SIDE, device="cuda") > 0.5
    first = (torch.arange(SIDE, device="cuda") < SIDE // 2).repeat(LAYERS, 1)
    form = kernels.layout(weights[0], 1, 0)
    print(
        f"{torch.cuda.get_device_name()}, {kernels.disagreement('cuda') or 'the kernels agree with PyTorch'}"
    )

    def each(function):
        return lambda: [function(k, weights[k]) for k in range(LAYERS)]

    def by_sort():
        order = torch.sort(norms, dim=-1, descending=True, stable=True).indices
        return torch.empty_like(first).scatter_(-1, order, first)

    clock("norms, PyTorch", each(lambda k, w: torch.linalg.vector_norm(w, dim=0, out=norms[k])), 1)
    clock("products, PyTorch", each(lambda k, w: torch.sum(w * gradients[k], 0, out=norms[k])), 2)
    clock("zeros, PyTorch", each(lambda k, w: w.mul_(kept[k])), 2)
    clock("ranks, PyTorch", by_sort)
    clock("ranks", lambda: kernels.by_rank(norms, first))
    for tile in TILES:
        kernels.TILES["sum columns"] = kernels.TILES["scale columns"] = tile
        name = f"tile {tuple(tile)}"
        clock(f"norms, {name}", each(lambda k, w: kernels.add_products(w, w, form, norms[k], True, True)), 1)
        products = each(lambda k, w: kernels.add_products(w, gradients[k], form, norms[k], True, False))
        clock(f"products, {name}", products, 2)
        clock(f"zeros, {name}", each(lambda k, w: kernels.scale(w, kept[k], form)), 2)


if __name__ == "__main__":
    main()
