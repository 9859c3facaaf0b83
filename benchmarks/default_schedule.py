"""The default of TrimmedGroupL1, whose h falls by itself, against the schedules of the reproduction.

    python -m benchmarks.default_schedule [--quick] [--jobs N] [--seconds S] [--json FILE]

trains LeNet-300-100 on MNIST and a smaller network on the digits of scikit-learn, each run in one process on one
thread. Finished runs are kept in FILE, from which another call goes on. It needs PyTorch and NumPy; without
scikit-learn the digits are left out, and without the files of MNIST that is.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor, wait
from pathlib import Path

import numpy as np

from .networks import where
from .section import Section

KEPT = Path(__file__).parent / "measured" / "default_schedule.json"
BAR = 0.3  # points of test error
#: Units of each layer, sizes to keep, epochs, batch, seeds.
DATA = {
    "digits": ((64, 100, 50, 10), ((37, 23, 11),), 60, 64, 6),
    "MNIST": ((784, 300, 100, 10), ((392, 150, 50), (97, 71, 33)), 10, 128, 3),
}
RATES = {"SGD": 0.1, "Adam": 1e-3, "AdamW": 1e-3}
PEAKS = {"SGD": 0.1, "Adam": 3e-3, "AdamW": 3e-3}  # of one cycle
SCHEDULERS = ("none", "cosine", "one cycle")
DOCUMENTED = ("documented", "documented, taylor")
WAYS = ("default", *DOCUMENTED)


# -- one training ---------------------------------------------------------------------------------------------


@functools.cache
def data(name: str):
    """``(X, y, X_test, y_test)`` as tensors; None if they are not there."""
    import torch

    if name == "digits":
        try:
            from sklearn.datasets import load_digits
            from sklearn.model_selection import train_test_split
        except ImportError:
            return None
        X, y = load_digits(return_X_y=True)
        parts = train_test_split(X / 16, y, test_size=0.3, random_state=0, stratify=y)
        X, X_test, y, y_test = parts
    else:
        from trimreg.datasets.images import load_mnist

        try:
            images = load_mnist(download=False)
        except OSError:
            return None
        X, X_test = (
            (part.reshape(-1, 784) / 255 - 0.1307) / 0.3081 for part in (images.X_train, images.X_test)
        )
        y, y_test = images.y_train, images.y_test
    pairs = ((X, torch.float32), (y, torch.int64), (X_test, torch.float32), (y_test, torch.int64))
    return tuple(torch.tensor(np.asarray(values), dtype=dtype) for values, dtype in pairs)


def options_of(way: str, steps: int) -> dict:
    """Arguments of the penalty: none, or those that the recipe of the reproduction would give."""
    from trimreg.nn import Ramp

    if way == "default":
        return {}
    begin, end = round(0.05 * steps), round(0.45 * steps)
    ranking = "taylor" if way.endswith("taylor") else "norm"
    return {"h_schedule": Ramp(begin, end), "freeze_at": end, "rank_by": ranking}


def train(name: str, size: tuple, optimizer: str, scheduler: str, way: str, seed: int, quick: bool) -> dict:
    """Train one network; its test error in percent."""
    import torch
    from torch import nn

    from trimreg.nn import TrimmedGroupL1

    torch.set_num_threads(1)
    start = time.process_time()
    X, y, X_test, y_test = data(name)
    units, _, epochs, batch, _ = DATA[name]
    if quick:
        X, y, epochs = X[:1000], y[:1000], 3
    torch.manual_seed(seed)
    layers = [nn.Linear(a, b) for a, b in itertools.pairwise(units)]
    model = nn.Sequential(*[part for layer in layers for part in (layer, nn.ReLU())][:-1])
    rate, each = RATES[optimizer], -(-len(X) // batch)
    stepper = getattr(torch.optim, optimizer)(model.parameters(), lr=rate)
    rates = torch.optim.lr_scheduler
    by_epoch = rates.CosineAnnealingLR(stepper, epochs) if scheduler == "cosine" else None
    by_step = (
        rates.OneCycleLR(stepper, PEAKS[optimizer], total_steps=each * epochs)
        if scheduler == "one cycle"
        else None
    )
    keep = {str(2 * place): count for place, count in enumerate(size)}
    penalty = TrimmedGroupL1(model, keep, **options_of(way, each * epochs))
    penalty.attach(stepper)
    for _ in range(epochs):
        for rows in torch.randperm(len(X)).split(batch):
            stepper.zero_grad()
            nn.functional.cross_entropy(model(X[rows]), y[rows]).backward()
            stepper.step()
            if by_step is not None:
                by_step.step()
        if by_epoch is not None:
            by_epoch.step()
    for layer, count in keep.items():
        if int((penalty.layers[layer].norms() > 0).sum()) > count and not quick:
            raise AssertionError(f"{name}, {way}: layer {layer} has more than {count} groups")
    with torch.no_grad():
        error = 100 * float((model.eval()(X_test).argmax(1) != y_test).double().mean())
    return {"error": error, "steps": each * epochs, "seconds": time.process_time() - start}


# -- all trainings --------------------------------------------------------------------------------------------


def keys(names, quick: bool) -> list[tuple]:
    """The runs, the first seeds first."""
    found = [
        (name, size, optimizer, scheduler, way, seed)
        for name in names
        for seed in range(1 if quick else DATA[name][-1])
        for size, optimizer, scheduler, way in itertools.product(DATA[name][1], RATES, SCHEDULERS, WAYS)
    ]
    return sorted(found, key=lambda key: key[-1])


FIELDS = ("data", "size", "optimizer", "scheduler", "way", "seed")


def key_of(row: dict) -> tuple:
    return tuple(tuple(row[field]) if field == "size" else row[field] for field in FIELDS)


def rows_of(file: Path | None) -> list[dict]:
    return json.loads(file.read_text())["rows"] if file is not None and file.exists() else []


def measured(names, quick: bool, jobs: int, seconds: float, file: Path | None) -> list[dict]:
    """Rows of all runs; those in ``file`` are not run again, and new ones are written there at once."""
    began, rows = time.monotonic(), rows_of(file)
    have = {key_of(row) for row in rows}
    left = [key for key in keys(names, quick) if key not in have]

    def add(key, result):
        rows.append(dict(zip(FIELDS, key, strict=True)) | result | {"where": where()})
        if file is not None:
            text = json.dumps({"rows": rows})
            file.with_suffix(".tmp").write_text(text.replace('{"data"', '\n{"data"') + "\n")
            file.with_suffix(".tmp").replace(file)

    if jobs == 1:
        for key in left:
            if time.monotonic() - began < seconds:
                add(key, train(*key, quick))
        return rows
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        waiting = {}
        queue = iter(left)
        while True:
            while len(waiting) < jobs and time.monotonic() - began < seconds:
                key = next(queue, None)
                if key is None:
                    break
                waiting[pool.submit(train, *key, quick)] = key
            if not waiting:
                return rows
            for done in wait(waiting, return_when="FIRST_COMPLETED").done:
                add(waiting.pop(done), done.result())


# -- the report -----------------------------------------------------------------------------------------------


def section_of(rows: list[dict], remarks: list[str]) -> Section:
    section = Section(
        "Networks: the default against documented schedules",
        "Test error in percent of `TrimmedGroupL1(net, keep).attach(optimizer)` and nothing else; in brackets of the recipe of the reproduction, `Ramp` from 5 to 45 % of the training and frozen "
        "there, ranked by norm and by `\"taylor\"`. digits: 64-100-50-10, 60 epochs of batches of 64; MNIST: 784-300-100-10, 10 epochs of batches of 128. Rates 0.1 (SGD) and 0.001; cosine to 0 "
        "by epoch, one cycle by step up to 0.1 and 0.003.",
        ["data", "size", "optimizer", *(f"scheduler: {scheduler}" for scheduler in SCHEDULERS)],
    )  # fmt: skip
    errors: dict = {}
    for row in rows:
        name, size, optimizer, scheduler, way, _ = key_of(row)
        place = (name, "-".join(map(str, size)), optimizer)
        errors.setdefault(place, {}).setdefault(scheduler, {}).setdefault(way, []).append(row["error"])
    gaps: dict = {}
    counts, spreads = set(), [0.0]
    for place, by_scheduler in sorted(errors.items()):
        cells = []
        for scheduler in SCHEDULERS:
            by_way = by_scheduler.get(scheduler, {})
            if not set(WAYS) <= set(by_way):
                cells.append("")
                continue
            default, *others = (float(np.mean(by_way[way])) for way in WAYS)
            cells.append(f"{default:.2f} ({', '.join(f'{other:.2f}' for other in others)})")
            gaps.setdefault(place[:2], []).append((default - min(others), f"{place[2]}, {scheduler}"))
            counts.add(len(by_way["default"]))
            spreads += [np.std(v, ddof=1) / np.sqrt(len(v)) for v in by_way.values() if len(v) > 1]
        section.rows.append([*place, *cells])
    for (name, size), found in gaps.items():
        gap, at = max(found)
        asked = f"{name} {size}: at most {BAR} above the better documented schedule"
        section.bar(asked, f"{gap:+.2f} at most ({at})", gap <= BAR)
    if gaps:
        worst = max(gap for found in gaps.values() for gap, _ in found)
        section.headline.append([
            "test error of networks, the default against the best documented schedule", f"{worst:+.2f} points at most",
        ])  # fmt: skip
        section.remarks.append(
            f"{min(counts)} to {max(counts)} seeds; standard errors up to {max(spreads):.2f}."
        )
    places = sorted({f"{row['data']} with {row['where']}" for row in rows})
    section.remarks += [f"Measured: {'; '.join(places)}.", *remarks]
    return section


def run(
    quick: bool = False,
    jobs: int = 1,
    seconds: float = np.inf,
    json_file: str | None = None,
    names=tuple(DATA),
) -> Section:
    file = None if quick and json_file is None else Path(json_file or KEPT)
    if file is not None and file.is_dir():
        file = file / KEPT.name
    there = [name for name in names if data(name) is not None]
    remarks = [f"There is no {name} here." for name in names if name not in there]
    return section_of(measured(there, quick, jobs, seconds, file), remarks)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.default_schedule", description=__doc__.splitlines()[0])  # fmt: skip
    parser.add_argument(
        "--quick", action="store_true", help="three epochs of few images, to see that it runs"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seconds", type=float, default=np.inf, help="begin no run after that")
    parser.add_argument("--json", metavar="FILE", help="read finished runs from there, and write them there")
    parser.add_argument("--data", choices=[*DATA], nargs="*", default=[*DATA])
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    print(run(arguments.quick, arguments.jobs, arguments.seconds, arguments.json, arguments.data).markdown())


if __name__ == "__main__":
    main()
