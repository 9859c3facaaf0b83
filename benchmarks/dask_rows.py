"""Fits on a Dask cluster: what an operation costs, whole fits, growth, and a plan for 1e9 x 1e4.

    python -m benchmarks.dask_rows [--quick]           operations and fits on 1, 2 and 4 workers, growth
    python -m benchmarks.dask_rows --plan [--quick]    the plan of docs/scaling.md, and its check at small scale
    python -m benchmarks.dask_rows --passes [--quick]  how often a fit goes through X, for every loss

needs Dask (extra ``cluster``). Data are generated on the workers, a chunk from its number, so that none is sent.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from .common import Section, machine

H = 20
BAR = 1.1
WORKERS = (1, 2, 4)


# -- data ----------------------------------------------------------------------------------------------------


def chunk(p, block_info=None):
    """Uniform numbers of mean 0, the same ones whenever and wherever they are made."""
    number, _ = block_info[None]["chunk-location"]
    rows = block_info[None]["chunk-shape"][0]
    X = np.random.Generator(np.random.SFC64(number)).random((rows, p), dtype=np.float32)
    X -= np.float32(0.5)
    return X


def generated(n, p, chunk_rows):
    """A Dask array of these numbers; nothing is made yet."""
    import dask.array as da

    lengths = tuple(min(chunk_rows, n - start) for start in range(0, n, chunk_rows))
    return da.map_blocks(
        chunk, p, chunks=(lengths, (p,)), dtype=np.float32, meta=np.empty((0, 0), np.float32)
    )


def targets(X):
    """Responses for least squares and logistic regression: the first H columns count."""
    from trimreg.designs.far.dask import DaskRows

    truth = np.zeros(X.shape[1])
    truth[:H] = 2.0 * (-1.0) ** np.arange(H)
    eta = DaskRows(X, persist=False, chunk_bytes=1).product(truth)
    rng = np.random.default_rng(0)
    return {
        "least squares": eta + rng.standard_normal(eta.size),
        "logistic": rng.random(eta.size) < 1 / (1 + np.exp(-eta)),
    }


def model_of(loss):
    from trimreg import TrimmedLasso, TrimmedLogisticRegression

    return (TrimmedLasso if loss == "least squares" else TrimmedLogisticRegression)(h=H)


@contextmanager
def cluster_of(workers):
    from distributed import Client, LocalCluster

    quiet = {"threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
    with LocalCluster(n_workers=workers, **quiet) as cluster, Client(cluster) as client:
        yield client


def least_seconds(function, repeats):
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        found.append(time.perf_counter() - start)
    return min(found)


# -- operations and fits -------------------------------------------------------------------------------------


def operations(rows):
    """Name, function and bytes of X that it reads."""
    n, p = rows.shape
    rng = np.random.default_rng(0)
    d = np.full(n, 1 / n)
    design = rows.design(d, center=True)
    v, r, W = rng.standard_normal(p), rng.standard_normal(n), np.arange(0, p, max(1, p // 100))
    rows.memory = 0  # columns stay on the workers, so that every operation is a pass
    far = rows.design(d, center=True)
    return [
        ("moments and finiteness, the first pass", lambda: rows.design(d, center=True)),
        ("matvec, all columns", lambda: far.matvec(v)),
        ("rmatvec", lambda: far.rmatvec(r)),
        (f"weighted Gram of {W.size} columns", lambda: far.gram(W, np.abs(r), W)),
        ("Gram of all columns", lambda: design.compressed(r, d)),
    ]


def killed(loss, X, y, client):
    """The coefficients of a fit one of whose workers is killed in its third pass."""
    from trimreg.designs.far.dask import DaskRows

    class Deadly(DaskRows):
        def sweep(self, kernel, vectors=(), arguments=()):
            results = super().sweep(kernel, vectors, arguments)
            yield next(results)
            if self.passes == 3:
                os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
            yield from results

    return model_of(loss).fit(Deadly(X, chunk_bytes=1), y).coef_


def measured(section, quick):
    """Operations and fits on 1, 2 and 4 workers: rows of the table, and bars."""
    import distributed

    from trimreg.designs.far.dask import DaskRows

    n, p = (20_000, 100) if quick else (200_000, 500)
    lazy = generated(n, p, n // 8)
    y = targets(lazy)
    times, coefficients, passes = {}, {}, {}
    gone = {}
    for workers in WORKERS:
        with cluster_of(workers) as client:
            X = lazy.persist()
            distributed.wait(X)
            for name, function in operations(DaskRows(X, chunk_bytes=1)):
                function()
                times[name, workers] = least_seconds(function, 2 if quick else 3)
            for loss in y:
                rows = DaskRows(X, chunk_bytes=1)
                coefficients[loss, workers] = model_of(loss).fit(rows, y[loss]).coef_
                passes[loss] = rows.passes
                times[f"{loss}, whole fit", workers] = least_seconds(
                    lambda loss=loss, X=X: model_of(loss).fit(DaskRows(X, chunk_bytes=1), y[loss]),
                    1 if quick else 2,
                )
            if workers == 2:
                gone = {loss: killed(loss, lazy, y[loss], client) for loss in y}
    for name in dict.fromkeys(name for name, _ in times):
        seconds = [times[name, workers] for workers in WORKERS]
        extra = (
            f", {passes[name.split(',')[0]]} passes"
            if "fit" in name
            else f", {n * p * 4 / min(seconds) / 1e9:.1f} GB/s"
        )
        section.rows.append([name + extra, n, p, *(f"{value:.3f}" for value in seconds)])
    for loss in y:
        one = coefficients[loss, 1]
        same = all(np.array_equal(one, coefficients[loss, workers]) for workers in WORKERS)
        section.bar(
            f"{loss}: the same coefficients on 1, 2 and 4 workers",
            "bit by bit" if same else "they differ",
            same,
        )
        away = float(np.max(np.abs(one - gone[loss])))
        section.bar(
            f"{loss}: a worker killed in mid-fit (kill -9): the same coefficients",
            f"largest difference {away:.0e}",
            away == 0,
        )


def growth(section, quick):
    """Whole fits on 2 workers against n and p, and the fitted exponents."""
    import distributed

    from trimreg.designs.far.dask import DaskRows

    shrink = 8 if quick else 1
    sizes = {
        ("least squares", "n"): [(n // shrink, 200) for n in (25_000, 50_000, 100_000, 200_000)],
        ("logistic", "n"): [(n // shrink, 200) for n in (25_000, 50_000, 100_000, 200_000)],
        ("least squares", "p"): [(5000 // shrink, p) for p in (4000, 8000, 16_000)],
        ("logistic", "p"): [(5000 // shrink, p) for p in (2000, 4000, 8000, 16_000)],
    }
    exponents = {}
    with cluster_of(2):
        for (loss, what), steps in sizes.items():
            seconds = []
            for n, p in steps:
                chunk_rows = (6250 if what == "n" else 625) // shrink
                X = generated(n, p, chunk_rows).persist()
                distributed.wait(X)
                y = targets(X)[loss]
                seconds.append(
                    least_seconds(
                        lambda X=X, y=y, loss=loss: model_of(loss).fit(DaskRows(X, chunk_bytes=1), y), 2
                    )
                )
                section.rows.append([f"{loss}, whole fit", n, p, "", f"{seconds[-1]:.3f}", ""])
                del X
            grown = [n if what == "n" else p for n, p in steps]
            exponents[loss, what] = float(np.polyfit(np.log(grown), np.log(seconds), 1)[0])
            section.bar(
                f"{loss}: exponent of time in {what}, at most {BAR}",
                f"{exponents[loss, what]:.2f}",
                exponents[loss, what] <= BAR,
            )
    return exponents


def run(quick: bool = False) -> Section:
    section = Section(
        "Dask: fits on a cluster",
        f"`LocalCluster` on one machine with {os.cpu_count()} cores, one thread per worker: 4 workers share {os.cpu_count()} cores, so the figures show that more workers "
        "cost little, not that they help. float32, data on the workers before the clock starts; chunks of 25 MB and less, so the few milliseconds a task costs are in all "
        f"figures. h={H}, `alpha=\"exact\"`. Seconds, least of 3 (operations) or 2 (fits). Least squares with p up to 3000 is one Gram pass and a fit in memory.",
        ["what", "n", "p", *(f"{workers} worker{'s' * (workers > 1)}" for workers in WORKERS)],
    )  # fmt: skip
    measured(section, quick)
    exponents = growth(section, quick)
    section.headline.append([
        "fits on a Dask cluster: growth of time",
        ", ".join(f"{loss} {value:.2f} in {what}" for (loss, what), value in exponents.items()),
    ])  # fmt: skip
    return section


# -- the plan ------------------------------------------------------------------------------------------------


@dataclass
class Constants:
    """What was measured on this machine, in seconds of a processor: other load on the machine does not count."""

    read: float  # bytes/s of X that a thread goes through, in memory
    made: float  # bytes/s of X that a thread generates
    flops: float  # of Gram matrices of all columns, per thread
    task: float  # seconds of the scheduler and the client per task
    link: float  # bytes/s between the client and the workers


@dataclass
class Counts:
    """What a fit asks for, counted in a fit."""

    passes: float
    chunks: int
    sent: float  # numbers per row that go to the workers
    received: float  # and come back
    gram: bool  # whether one pass builds the Gram matrix of all columns
    near: float  # seconds that the client computes with n-vectors and held columns, per row


@dataclass
class Hardware:
    workers: int
    threads: int
    made: bool = False  # every pass makes X again
    storage: float = np.inf  # bytes/s that a worker reads X with, where it is not kept in memory
    link: float = np.inf  # bytes/s of the client's network

    @property
    def streams(self):
        return self.made or np.isfinite(self.storage)


def plan(
    n: int, p: int, counts: Counts, constants: Constants, hardware: Hardware, chunks: int, itemsize: int = 4
) -> dict:
    """Bytes, memory and seconds of a fit.

    Parts that a cluster does one after another are added up, though some overlap: the plan is meant to be kept.
    """
    size = n * p * itemsize
    threads = hardware.workers * hardware.threads
    reading = size / min(threads * constants.read, hardware.workers * hardware.storage)
    making = size / (threads * constants.made) if hardware.made else 0.0
    vectors = 8 * n * (counts.sent + counts.received)
    seconds = {
        "passes over X": counts.passes * (reading + making),
        "Gram of all columns": n * p**2 / (threads * constants.flops) if counts.gram else 0.0,
        # Where X is not kept, reading a chunk and checking it are tasks of their own.
        "scheduler": counts.passes * chunks * constants.task * (3 if hardware.streams else 1),
        "vectors to and from the client": vectors / min(constants.link, hardware.link),
        "client": n * counts.near,
    }
    partial = 8 * p * chunks  # one p-vector per chunk, added up on the workers by eights
    return {
        "bytes of X": size,
        "chunks": chunks,
        "bytes per chunk": size / chunks,
        "passes": counts.passes,
        "client's network, bytes": vectors,
        "between workers per pass, bytes": partial * 8 / 7,
        "memory per worker, X kept": 2 * size / hardware.workers,
        "memory per worker, X read again": 3 * hardware.threads * size / chunks,
        "an n-vector on the client, bytes": 8 * n,
        "seconds": seconds,
        "total": sum(seconds.values()),
    }


def cpu_seconds(client) -> float:
    """Processor time so far of this process, which has the scheduler in it, and of all workers."""
    return time.process_time() + sum(client.run(time.process_time).values())


def cpu_least(function, repeats, client=None):
    found = []
    for _ in range(repeats):
        start = time.process_time() if client is None else cpu_seconds(client)
        function()
        found.append((time.process_time() if client is None else cpu_seconds(client)) - start)
    return min(found)


def constants_of(client, quick):
    """The constants, each measured by itself."""
    import dask.array as da

    from trimreg.designs.far import kernels
    from trimreg.designs.far.dask import DaskRows
    from trimreg.designs.far.rows import block_columns

    n, p = (4000, 1000) if quick else (16_000, 1000)
    rng = np.random.default_rng(0)
    X, d = rng.random((n, p), dtype=np.float32), rng.random(n)
    gram = cpu_least(lambda: kernels.normal_equations(X, d, d, np.zeros(p), np.ones(p)), 2)
    count = 200 if quick else 500
    empty = DaskRows(da.zeros((count, 1), chunks=(1, 1), dtype=np.float32), chunk_bytes=1, persist=True)
    W = np.array([0])
    list(empty.sweep(block_columns, (), (W,)))
    task = cpu_least(lambda: list(empty.sweep(block_columns, (), (W,))), 3, client) / count
    rows = 4_000_000
    wide = DaskRows(da.zeros((rows, 1), chunks=(rows // 8, 1), dtype=np.float32), chunk_bytes=1, persist=True)
    vector = rng.random(rows)
    wide.product(np.ones(1))
    there = cpu_least(lambda: list(wide.sweep(kernels.raw_sums, (vector,), (W,))), 3, client)
    back = cpu_least(lambda: list(wide.sweep(block_columns, (), (np.array([0, 0]),))), 3, client)
    link = 2 * vector.nbytes / max(there + back - 16 * task, 1e-6)
    # Passes of a fit: moments once, a product or its transpose else. On the workers, where chunks are made into new memory.
    lazy = generated(8 * n, p, n)
    weights = np.full(8 * n, 1 / (8 * n))
    costs = []
    for persist in (True, False):
        far = DaskRows(lazy, chunk_bytes=1, persist=persist)
        far.product(np.ones(p))
        passes = (
            lambda far=far: list(far.sweep(kernels.column_moments, (weights,), (True,))),
            lambda far=far: list(far.sweep(kernels.transposed_product, (weights,))),
            lambda far=far: far.product(np.ones(p)),
        )
        seconds = sum(
            share * cpu_least(one, 2, client) for share, one in zip((0.1, 0.45, 0.45), passes, strict=True)
        )
        costs.append(seconds - 8 * task * (1 if persist else 3) - weights.nbytes / link)
        del far
    read, both = costs
    return Constants(
        read=lazy.nbytes / read,
        made=lazy.nbytes / max(both - read, 1e-6),
        flops=n * p**2 / gram,
        task=task,
        link=link,
    )


@dataclass
class Simulation:
    counts: Counts
    cpu: float  # seconds of processors, all processes
    wall: float
    grown: int  # bytes by which the client's peak memory rose


def simulated(client, loss, n, p, memory, chunk_rows):
    """A fit whose data are made again in every pass."""
    import resource

    from trimreg.designs.far.dask import DaskRows

    class Timed(DaskRows):
        seconds = 0.0  # of this thread in passes

        def sweep(self, kernel, vectors=(), arguments=()):
            results = super().sweep(kernel, vectors, arguments)
            while True:
                start = time.thread_time()
                result = next(results, None)
                self.seconds += time.thread_time() - start
                if result is None:
                    return
                yield result

    X = generated(n, p, chunk_rows)
    y = targets(X)[loss]
    rows = Timed(X, persist=False, chunk_bytes=1, memory=memory)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cpu, wall, own = cpu_seconds(client), time.perf_counter(), time.thread_time()
    model = model_of(loss).fit(rows, y)
    own = time.thread_time() - own
    cpu, wall = cpu_seconds(client) - cpu, time.perf_counter() - wall
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    if list(model.support_) != list(range(H)) or not model.result_.converged:
        raise AssertionError(f"{loss}: not the model that the data were made from")
    counts = Counts(
        passes=rows.passes,
        chunks=len(X.chunks[0]),
        sent=rows.traffic.sent / (8 * n),
        received=rows.traffic.received / (8 * n),
        gram=loss == "least squares" and p <= 3000,
        near=(own - rows.seconds) / n,
    )
    return Simulation(counts, cpu, wall, grown)


def scaled(value):
    """A number of bytes or of anything else, with three digits and a prefix."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} "


#: What the plan is for: a cluster that holds X in half of its memory, and one that reads it again from its disks.
HELD = Hardware(workers=128, threads=32, link=1.25e9)
READ = Hardware(workers=32, threads=32, storage=5e9, link=1.25e9)


def plan_section(quick: bool = False) -> Section:
    n, p = 1_000_000_000, 10_000
    section = Section(
        "A plan for 1e9 x 1e4",
        f"float32, 40 TB, h={H}, `alpha=\"exact\"`. Counts are those of fits a thousand times smaller (or more: see the last table), constants those of this machine "
        f"({machine().splitlines()[0]}); the network of the client is taken to be 10 Gbit/s. *Kept*: {HELD.workers} workers of {HELD.threads} threads that hold X in memory. *Read again*: "
        f"{READ.workers} workers of {READ.threads} threads that read X from disks of 5 GB/s in every pass.",
        ["quantity", "least squares, kept", "logistic, kept", "least squares, read again", "logistic, read again"],
    )  # fmt: skip
    # p > 3000 for least squares: as in the plan there is no Gram matrix of all columns.
    shrink = 10 if quick else 1
    tests = [
        ("least squares", 100_000 // shrink, 4000, 25_600_000 // shrink, 4000 // shrink),
        ("logistic", 1_000_000 // shrink, 400, 256_000_000 // shrink, 40_000 // shrink),
        ("least squares", 1_000_000 // shrink, 400, 256_000_000 // shrink, 40_000 // shrink),
    ]
    checks, counts_of = [], {}
    with cluster_of(2) as client:
        constants = constants_of(client, quick)
        for loss in ("least squares", "logistic"):
            simulated(client, loss, 5000, 200, 1 << 20, 1000)  # compiles
        for loss, small_n, small_p, memory, chunk_rows in tests:
            found = simulated(client, loss, small_n, small_p, memory, chunk_rows)
            counts_of.setdefault(loss, found.counts)
            # One worker of one thread: the sum over all processors.
            expected = plan(
                small_n, small_p, found.counts, constants, Hardware(1, 1, made=True), found.counts.chunks
            )
            checks.append((loss, small_n, small_p, found, expected["total"]))
    columns = [
        (counts_of[loss], plan(n, p, counts_of[loss], constants, hardware, 1 << 15), hardware)
        for hardware in (HELD, READ)
        for loss in ("least squares", "logistic")
    ]
    for name, show in (
        ("passes over X", lambda c, t, hw: f"{t['passes']}"),
        ("bytes per pass", lambda c, t, hw: scaled(t["bytes of X"]) + "B"),
        ("chunks (tasks per pass)", lambda c, t, hw: f"{t['chunks']} of {scaled(t['bytes per chunk'])}B"),
        ("n-vectors to the workers, whole fit", lambda c, t, hw: f"{c.sent:.1f}"),
        ("n-vectors back (float32 columns count half)", lambda c, t, hw: f"{c.received:.1f}"),
        ("client's network, whole fit", lambda c, t, hw: scaled(t["client's network, bytes"]) + "B"),
        ("between workers, per pass: p-vectors of chunks", lambda c, t, hw: scaled(t["between workers per pass, bytes"]) + "B"),
        ("memory per worker", lambda c, t, hw: scaled(t["memory per worker, X kept" if hw is HELD else "memory per worker, X read again"]) + "B"),
        ("memory of the client: columns (`memory=256e9`) and about 12 n-vectors", lambda c, t, hw: scaled(256e9 + 12 * t["an n-vector on the client, bytes"]) + "B"),
        *((f"seconds: {part}", lambda c, t, hw, part=part: f"{t['seconds'][part]:.0f}") for part in columns[0][1]["seconds"]),
        ("hours", lambda c, t, hw: f"{t['total'] / 3600:.2f}"),
    ):  # fmt: skip
        section.rows.append([name, *(show(*column) for column in columns)])
    section.remarks.append(
        f"Constants: a thread goes through {scaled(constants.read)}B/s of X, generates {scaled(constants.made)}B/s, does {scaled(constants.flops)}flop/s of a Gram matrix "
        f"(counted as n p^2); {1e3 * constants.task:.2f} ms per task; {scaled(constants.link)}B/s between client and workers on this machine."
    )
    head = "check: X made again in every pass, 2 workers | n x p | share of rows, of entries | passes | predicted, processor s | measured, processor s | measured / predicted | on the clock, s | client's memory grew by, in n-vectors"
    table = [f"| {head} |", "|---" * (head.count("|") + 1) + "|"]
    for loss, small_n, small_p, found, expected in checks:
        ratio = found.cpu / expected
        table.append(
            f"| {loss} | {small_n} x {small_p} | 1/{n // small_n}, 1/{n * p // (small_n * small_p)} | {found.counts.passes} | {expected:.1f} | {found.cpu:.1f} | {ratio:.2f} | "
            f"{found.wall:.1f} | {found.grown / (8 * small_n):.0f} |"
        )
        section.bar(
            f"{loss}, {small_n} x {small_p}: the processor time planned is that measured within a factor of 1.5",
            f"{ratio:.2f}",
            1 / 1.5 <= ratio <= 1.5,
        )
    section.remarks.append("\n".join(table))
    return section


# -- passes --------------------------------------------------------------------------------------------------


def responses(eta, rng):
    """An estimator and a response for every loss of the library."""
    import trimreg

    n = eta.size
    time_, event = rng.exponential(np.exp(-eta)), rng.random(n) < 0.8
    return {
        "least squares": (trimreg.TrimmedLasso, eta + rng.standard_normal(n)),
        "several targets": (trimreg.MultiTaskTrimmedLasso, eta[:, None] * [1.0, -1.0] + rng.standard_normal((n, 2))),
        "logistic": (trimreg.TrimmedLogisticRegression, rng.random(n) < 1 / (1 + np.exp(-eta))),
        "multinomial, 3 classes": (trimreg.TrimmedLogisticRegression, np.digitize(eta + rng.logistic(size=n), [-1.0, 1.0])),
        "Poisson": (trimreg.TrimmedPoissonRegressor, rng.poisson(np.exp(eta)).astype(float)),
        "gamma": (trimreg.TrimmedGammaRegressor, rng.gamma(2.0, np.exp(eta) / 2) + 1e-6),
        "Huber": (trimreg.TrimmedHuberRegressor, eta + rng.standard_t(2, n)),
        "Cox": (trimreg.TrimmedCoxRegressor, np.column_stack([time_, event])),
    }  # fmt: skip


def passes_section(quick: bool = False) -> Section:
    from trimreg.designs.far.dask import DaskRows

    n, shapes = (2000, (50, 200)) if quick else (20_000, (500, 4000))
    section = Section(
        "Passes over X",
        f"How often a fit goes through X, {n} rows, float32, h=10, 10 columns count. *No columns near*: `memory=0`, so that no column of a working set is held where the solver "
        "runs; an operation on few columns is then a pass as well. alpha=0.05 leaves the others a price that they may pay.",
        ["loss", *(f"p={p}, {what}" for p in shapes for what in ('`"exact"`', "0.05", '`"exact"`, no columns near'))],
    )  # fmt: skip
    rows = {}
    for p in shapes:
        X = generated(n, p, n // 4).persist(scheduler="threads")
        truth = np.zeros(p)
        truth[:10] = 1.5 * (-1.0) ** np.arange(10)
        y = responses(DaskRows(X).product(truth), np.random.default_rng(0))
        for loss, (kind, target) in y.items():
            for alpha, options in (("exact", {}), (0.05, {}), ("exact", {"memory": 0})):
                far = DaskRows(X, chunk_bytes=1, persist=True, **options)
                if not kind(h=10, alpha=alpha).fit(far, target).result_.converged:
                    raise AssertionError(f"{loss}, p={p}, alpha={alpha}: not converged")
                rows.setdefault(loss, []).append(far.passes)
    section.rows = [[loss, *counts] for loss, counts in rows.items()]
    return section


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.dask_rows", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--plan", action="store_true", help="the plan for 1e9 x 1e4 and its check")
    parser.add_argument("--passes", action="store_true", help="passes over X of every loss")
    arguments = parser.parse_args()
    chosen = plan_section if arguments.plan else passes_section if arguments.passes else run
    print(chosen(arguments.quick).markdown())


if __name__ == "__main__":
    main()
