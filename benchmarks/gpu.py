"""Designs on a GPU: bandwidth of their products, passes and seconds of whole fits, agreement, many problems at once.

    python -m benchmarks.gpu [--quick] [--json FILE] [--parts NAME ...]

needs PyTorch and the package's own dependencies. Without a GPU the figures kept from one are shown; with --quick
everything runs once on small data, on whatever device there is. With --parts only those are measured, and the
others are taken from the figures that were kept.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import time
import warnings
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .common import Section

KEPT = Path(__file__).parent / "measured" / "gpu.json"  # shown where there is no GPU
N, P, H = 200_000, 20_000, 50
SMALL = (5_000, 4_000, 20)  # where the fit in memory is the judge
QUICK = (1_500, 3_200, 10)
RHO, LAGS = 0.5, 16
SHARE, PASSES, FASTER, AGREEMENT = 0.8, 12, 50, 1e-6
CPU_SECONDS = 30.0  # what a fit on the CPU may take: rows are left out until it does
LOSSES = ("quadratic", "logistic")
ON_X = (
    "float32",
    *(f"{kind}, {loss}" for kind in ("fit", "cpu") for loss in LOSSES),
    "bfloat16",
    "fit, bfloat16",
)
#: Rows, columns, warps and stages of the tiles that are compared.
TILES = ((4, 512, 4, 1), (8, 256, 4, 1), (16, 256, 8, 1), (8, 512, 8, 1), (4, 1024, 8, 1), (8, 256, 4, 3))
PARTS = ("agreement", *ON_X, "batch")


# -- data, made where they stay -------------------------------------------------------------------------------


def matrix(n, p, device, dtype, seed=0):
    """Rows of an autoregression with correlation 0.5 from a column to the next, made block by block."""
    import torch

    generator = torch.Generator(device=device).manual_seed(seed)
    X = torch.empty(n, p, dtype=dtype, device=device)
    for start in range(0, n, 2000):
        block = X[start : start + 2000]
        noise = torch.randn(block.shape[0], p + LAGS, generator=generator, device=device)
        total = sum(RHO**lag * noise[:, LAGS - lag : LAGS - lag + p] for lag in range(LAGS))
        block.copy_(total.mul_(np.sqrt(1 - RHO**2)))
    return X


def target(X, h, loss, seed=1):
    """y on the host: h coefficients between 0.3 and 1 in size, noise 1."""
    import torch

    rng = np.random.default_rng(seed)
    n, p = X.shape
    used = rng.choice(p, h, replace=False)
    coef = rng.choice([-1.0, 1.0], h) * rng.uniform(0.3, 1.0, h)
    eta = X[:, torch.from_numpy(used).to(X.device)].double().cpu().numpy() @ coef
    if loss == "logistic":
        return (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float)
    return eta + rng.standard_normal(n)


def fit(X, y, h, loss, tol=1e-6):
    from trimreg import TrimmedL1, solve

    return solve(
        X, y, loss=loss, penalty=TrimmedL1(h), alpha="exact", fit_intercept=True, standardize=True, tol=tol
    )


# -- what is measured -----------------------------------------------------------------------------------------


def seconds_of(call, repeats=7) -> float:
    """The median time of a call, by the clock of the device if there is one."""
    import torch

    times = []
    if torch.cuda.is_available():
        call()
        call()
        for _ in range(repeats):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end) / 1e3)
        return sorted(times)[len(times) // 2]
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def tile_seconds(X) -> dict:
    """Seconds of each sum over X (CUDA), stored by rows, for each of the tiles."""
    import torch

    from trimreg.designs.torch import kernels

    u, r = (torch.ones(size, dtype=torch.float64, device=X.device) for size in X.shape[::-1])
    calls = {
        ("dot", "along"): lambda: kernels.product(X, u),
        ("dot", "across"): lambda: kernels.transposed_product(X, r),
        ("moments", "across"): lambda: kernels.moments(X, r, u),
    }
    seconds, usual = {}, dict(kernels.TILES)
    for (name, direction), call in calls.items():
        for tile in (kernels.Tile(*sides) for sides in TILES):
            kernels.TILES[direction] = tile
            try:
                seconds[f"{name} {direction}", tile] = seconds_of(call, 5)
            except Exception:  # a tile that is too large for this device
                seconds[f"{name} {direction}", tile] = float("inf")
        kernels.TILES.update(usual)
    return seconds


def products(X) -> dict:
    """GB/s of a copy, counting bytes read and written, and of the products, counting the bytes of X."""
    import torch

    from trimreg.designs.torch import kernels
    from trimreg.designs.torch.design import TorchDesign

    n, p = X.shape
    figures = {"bytes": X.numel() * X.element_size()}
    half = X[: n // 2]
    room = torch.empty_like(half)
    figures["copy"] = 2 * half.numel() * half.element_size() / seconds_of(lambda: room.copy_(half)) / 1e9
    room.set_()  # its memory is wanted
    if X.is_cuda and kernels.triton is not None and kernels.usable(X):
        tuned = tile_seconds(X)
        figures["tiles"] = {
            f"{kernel} {tuple(tile)}": figures["bytes"] / seconds / 1e9
            for (kernel, tile), seconds in tuned.items()
        }
        figures["tuned"] = {
            kernel: list(
                min((tile for name, tile in tuned if name == kernel), key=lambda t, k=kernel: tuned[k, t])
            )
            for kernel in dict.fromkeys(name for name, _ in tuned)
        }
    home = kernels.home(X)
    u, r = (torch.randn(size, dtype=torch.float64, device=home) for size in (p, n))
    d, c = torch.full((n,), 1 / n, dtype=torch.float64, device=home), torch.zeros_like(u)
    calls = {
        "matvec": lambda: kernels.product(X, u),
        "rmatvec": lambda: kernels.transposed_product(X, r),
        "moments": lambda: kernels.moments(X, d, c),
    }
    for name, call in calls.items():
        figures[name] = figures["bytes"] / seconds_of(call) / 1e9
    design = TorchDesign(X, np.full(n, 1 / n), center=True, scale=True)
    v, s = np.ones(p), np.ones(n)
    for name, call in {"matvec": lambda: design.matvec(v), "rmatvec": lambda: design.rmatvec(s)}.items():
        figures[f"{name}, vectors on the host"] = figures["bytes"] / seconds_of(call) / 1e9
    W, weights = np.arange(0, p, max(1, p // H))[:H], np.full(n, 1 / n)
    figures["gram(None) seconds"] = seconds_of(lambda: design.gram(None, weights, W), 3)
    figures["gram seconds"] = seconds_of(lambda: design.gram(W, weights, W), 3)
    return figures


@contextlib.contextmanager
def spent(kind):
    """Seconds and calls of every operation of a kind of design, while this lasts; outermost calls count."""
    names = ("matvec", "rmatvec", "columns", "gram", "gram_and_sums", "weighted_sums", "_moments", "column_norms", "restricted")  # fmt: skip
    before = {name: kind.__dict__.get(name) for name in names}
    tally, depth = defaultdict(lambda: [0, 0.0]), [0]

    def counted(name, function):
        def wrapper(*args, **kwargs):
            depth[0] += 1
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                depth[0] -= 1
                if depth[0] == 0:
                    tally[name][0] += 1
                    tally[name][1] += time.perf_counter() - start

        return wrapper

    for name in names:
        setattr(kind, name, counted(name, getattr(kind, name)))
    try:
        yield tally
    finally:
        for name, function in before.items():
            if function is None:
                delattr(kind, name)
            else:
                setattr(kind, name, function)


def whole_fit(X, h, loss) -> dict:
    """A fit on the device: passes, seconds of the first and of a later call, where the time goes."""
    from trimreg.designs.torch.design import TorchDesign, TorchMatrix

    y = target(X, h, loss)
    given = on_device if X.device.type == "cpu" else TorchMatrix
    start = time.perf_counter()
    result = fit(given(X), y, h, loss)
    figures = {"first seconds": time.perf_counter() - start}
    tensor = given(X)
    start = time.perf_counter()
    result = fit(tensor, y, h, loss)
    figures |= {
        "seconds": time.perf_counter() - start,
        "passes": tensor.passes,
        "converged": result.converged,
        "swap optimal": result.swap_optimal,
        "nonzeros": int(np.count_nonzero(result.coef)),
    }
    with spent(TorchDesign) as tally:
        fit(given(X), y, h, loss)
    figures["operations"] = {name: [count, seconds] for name, (count, seconds) in tally.items()}
    figures["in operations"] = sum(seconds for _, seconds in tally.values())
    return figures


def on_device(X):
    """A tensor in memory that is treated as if it were on a device, to run all this without one."""
    from trimreg.designs.torch.design import TorchDesign, TorchMatrix

    class OnDevice(TorchMatrix):
        def design(self, weights, *, center=False, scale=False):
            return TorchDesign(self, weights, center=center, scale=scale)

    return OnDevice(X)


def against_the_cpu(X, h, loss) -> dict:
    """The same fit on the device and in memory, with as many rows as the CPU can do in the time it is given."""
    from trimreg.designs import DenseDesign
    from trimreg.designs.torch.design import TorchMatrix

    few = min(5000, X.shape[0])
    sample = X[:few].cpu().numpy()
    design = DenseDesign(sample, np.full(few, 1 / few))
    start = time.perf_counter()
    design.rmatvec(np.ones(few))
    a_pass = time.perf_counter() - start
    n = int(min(X.shape[0], few * CPU_SECONDS / (30 * a_pass)) // 1000 * 1000) or few
    part = X[:n]
    y, there = target(part, h, loss), part.cpu().numpy()
    figures = {"rows": n, "cores": os.cpu_count(), "seconds": [], "cpu seconds": []}
    given = on_device if X.device.type == "cpu" else TorchMatrix
    for _ in range(2):  # the first compiles, on both sides
        start = time.perf_counter()
        ours = fit(given(part), y, h, loss)
        figures["seconds"].append(time.perf_counter() - start)
    fit(there[:500], y[:500], h, loss)
    start = time.perf_counter()
    reference = fit(there, y, h, loss)
    figures["cpu seconds"] = time.perf_counter() - start
    figures["seconds"] = figures["seconds"][-1]
    figures["difference"] = float(np.abs(ours.coef - reference.coef).max())
    return figures


def agreement(n, p, h, device) -> dict:
    """Largest differences in coefficients between fits on the device and in memory, float64, and certificates."""
    import torch

    from trimreg.designs.torch.design import TorchMatrix

    X = matrix(n, p, device, torch.float64)
    given = on_device if device == "cpu" else TorchMatrix
    figures = {}
    for loss in LOSSES:
        y = target(X, h, loss)
        ours, reference = fit(given(X), y, h, loss, 1e-8), fit(X.cpu().numpy(), y, h, loss, 1e-8)
        figures[loss] = {
            "difference": float(np.abs(ours.coef - reference.coef).max()),
            "converged": [bool(ours.converged), bool(reference.converged)],
            "swap optimal": [ours.swap_optimal, reference.swap_optimal],
            "stationarity": [float(ours.stationarity), float(reference.stationarity)],
        }
    return figures


def at_once(quick) -> dict:
    """Algorithm 1 for many problems: one after another on a CPU core in two ways, and as one batch on the device."""
    from threadpoolctl import threadpool_limits

    from . import batched

    count, n, p, k = (40, 40, 64, 4) if quick else (batched.COUNT, batched.N, batched.P, batched.K)
    X, y = batched.problems(count, n, p, k)
    figures = {"problems": [count, n, p]}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.perf_counter()
        coef, steps = batched.one_by_one(X, y, k)
        figures["one after another"] = time.perf_counter() - start
        batched.compiled(X[:2], y[:2], k)
        start = time.perf_counter()
        batched.compiled(X, y, k)
        figures["numba loop"] = time.perf_counter() - start
        *_, (_, figures["where"], arrays) = batched.ways(X, y)
        batched.batch(*arrays, k)
        start = time.perf_counter()
        result = batched.batch(*arrays, k)
        figures["batch"] = time.perf_counter() - start
    figures["difference"] = float(np.abs(result.coef - coef).max())
    figures["same steps"] = int(np.sum(result.n_iter == steps))
    return figures


def measured(quick: bool, parts: Sequence[str] = PARTS, kept: dict | None = None) -> dict:
    """Figures by part, of those parts; the others from the figures ``kept``."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    n, p, h = QUICK if quick else (N, P, H)
    figures = dict(kept or {}) | {"where": where(), "quick": quick, "size": [n, p, h]}
    storage, X = None, None
    for part in PARTS:
        if part not in parts:
            continue
        wanted = torch.bfloat16 if part.endswith("bfloat16") else torch.float32
        if part in ON_X and storage is not wanted:
            X = None  # its memory is wanted
            storage, X = wanted, matrix(n, p, device, wanted)
        start = time.perf_counter()
        kind, _, loss = part.partition(", ")
        if part == "agreement":
            value = agreement(*(QUICK if quick else SMALL), device)
        elif part == "batch":
            value = at_once(quick)
        elif kind == "fit":
            value = whole_fit(X, h, "quadratic" if loss == "bfloat16" else loss)
        elif kind == "cpu":
            value = against_the_cpu(X, h, loss)
        else:
            value = products(X)
        figures[part] = value | {"minutes": (time.perf_counter() - start) / 60}
        print(f"{part}: {json.dumps(value)}", flush=True)
    return figures


def where() -> str:
    """The GPU, the processor and the versions."""
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return f"{gpu}, {os.cpu_count()} CPU cores, torch {torch.__version__}, numpy {np.__version__}, Python {platform.python_version()}"


# -- the report -----------------------------------------------------------------------------------------------


def section_of(figures: dict) -> Section:
    n, p, h = figures["size"]
    section = Section(
        "A GPU",
        f"X of {n:,} x {p:,} made on the device, neighboring columns correlated by {RHO}; h={h}, alpha exact, intercept, standardized; sums in float64. {figures['where']}. GB/s of a product: bytes of X "
        "over its time; of a copy: bytes read and written. *share*: of the copy.",
        ["what", "figure"],
    )  # fmt: skip
    for storage in ("float32", "bfloat16"):
        speed = figures[storage]
        section.rows.append([
            f"copy, {storage}, {speed['bytes'] / 1e9:.1f} GB", f"{speed['copy']:,.0f} GB/s"
        ])  # fmt: skip
        for name in ("matvec", "rmatvec", "moments", "matvec, vectors on the host", "rmatvec, vectors on the host"):  # fmt: skip
            share = speed[name] / speed["copy"]
            section.rows.append([f"{name}, {storage}", f"{speed[name]:,.0f} GB/s, share {share:.2f}"])
            if storage == "float32" and name in ("matvec", "rmatvec"):
                section.bar(
                    f"{name} at {SHARE:.0%} of the copy's bandwidth or more", f"{share:.1%}", share >= SHARE
                )
    for name in ("fit, quadratic", "fit, logistic", "fit, bfloat16"):
        one = figures[name]
        section.rows.append([
            name, f"{one['seconds']:.2f} s, {one['passes']} passes, {one['in operations']:.2f} s in operations on X (first call {one['first seconds']:.1f} s)",
        ])  # fmt: skip
    passes = figures["fit, quadratic"]["passes"]
    section.bar(f"least squares in at most {PASSES} passes", str(passes), passes <= PASSES)
    for loss in LOSSES:
        one = figures[f"cpu, {loss}"]
        ratio = one["cpu seconds"] / one["seconds"]
        section.rows.append([
            f"{loss}, {one['rows']:,} of the rows: GPU against {one['cores']} CPU cores", f"{one['seconds']:.2f} s, {one['cpu seconds']:.1f} s, ratio {ratio:.0f}",
        ])  # fmt: skip
        same = figures["agreement"][loss]
        section.bar(
            f"{loss}, float64: the fit in memory to {AGREEMENT:.0e}", f"{same['difference']:.0e}", same["difference"] <= AGREEMENT and all(same["converged"]),
        )  # fmt: skip
    batch = figures["batch"]
    ratio = batch["one after another"] / batch["batch"]
    count, rows, columns = batch["problems"]
    section.rows.append([
        f"Algorithm 1, {count:,} problems of ({rows}, {columns})", f"one after another {batch['one after another']:.1f} s on a CPU core, as a numba loop over Gram matrices {batch['numba loop']:.1f} s, as one batch "
        f"{batch['batch']:.2f} s ({batch['where']}); coefficients to {batch['difference']:.0e}, the same steps in {batch['same steps']}",
    ])  # fmt: skip
    section.bar(
        f"{count:,} problems at least {FASTER} times faster than one after another on a CPU core",
        f"{ratio:.0f}",
        ratio >= FASTER,
    )
    section.headline.append([
        f"a whole fit of {n:,} x {p:,} float32 on a GPU, h={h}",
        f"{figures['fit, quadratic']['seconds']:.2f} s, {passes} passes",
    ])  # fmt: skip
    return section


def run(quick: bool = False, json_file: str | None = None, parts: Sequence[str] = PARTS) -> Section:
    import torch

    if not quick and not torch.cuda.is_available():
        if KEPT.exists():
            section = section_of(json.loads(KEPT.read_text()))
            section.remarks.append(f"Kept from a machine with a GPU, by `python -m benchmarks.gpu --json benchmarks/{KEPT.parent.name}/{KEPT.name}`.")  # fmt: skip
            return section
        return Section(
            "A GPU", "There is no GPU here, and no figures were kept from one.", ["what", "figure"]
        )
    kept = json.loads(KEPT.read_text()) if len(parts) < len(PARTS) else None
    figures = measured(quick, parts, kept)
    if json_file is not None:
        Path(json_file).parent.mkdir(parents=True, exist_ok=True)
        Path(json_file).write_text(json.dumps(figures, indent=1) + "\n")
    return section_of(figures)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small data, to see that it runs")
    parser.add_argument("--json", metavar="FILE", help="write every figure there as well")
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=PARTS, metavar="NAME", help=f"of {PARTS}"
    )
    arguments = parser.parse_args()
    if arguments.quick and arguments.parts is not PARTS:
        parser.error("--parts are measured at full size, beside figures that were kept")
    print(run(arguments.quick, arguments.json, arguments.parts).markdown())


if __name__ == "__main__":
    main()
