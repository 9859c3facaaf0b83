"""Made-up experiments in a module that worker processes can import, and a script that runs one."""

import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

from trimreg_reproduction.spec import Cell, Experiment, Together


def numbers(cell):
    """Rows of a seed: ties, zeros, scales, and what JSON does not know."""
    rng = cell.rng()
    values = rng.standard_normal(5) * 10.0 ** rng.integers(-12, 12)
    return [
        {"method": "sum", "value": float(values.sum()), "path": values, "found": values[0] > 0},
        {"method": "odd", "value": [np.nan, np.inf, -np.inf, -0.0][cell["n"] % 4], "path": [], "found": None},
    ]


def slow_numbers(cell):
    time.sleep(0.03)
    return numbers(cell)


def fails_while_asked(mark, cell):
    """Fails for odd n as long as a file is there."""
    if cell["n"] % 2 and Path(mark).exists():
        raise RuntimeError(f"no luck with {cell['n']}")
    return numbers(cell)


def does_without_a_peer(mark, cell):
    """Odd n has no peer to compare with as long as a file is there."""
    missing = cell["n"] % 2 and Path(mark).exists()
    return [{"skipped": "the peer needs torchao" if missing else None, "value": float("nan")}]


def kills_its_worker_once(mark, cell):
    """One cell ends its process without a word, the first time that it is run; then there is a file."""
    if cell["n"] == 3 and not Path(mark).exists():
        Path(mark).write_text("killed")
        os.kill(os.getpid(), signal.SIGKILL)
    return slow_numbers(cell)


def logs(folder, cell):
    """Notes in a file of the cell that it was run; the first run of one cell does not end."""
    with (Path(folder) / str(cell["n"])).open("a") as file:
        file.write(f"{os.getpid()}\n")
    if cell["n"] == 3 and (Path(folder) / "hang").exists():
        (Path(folder) / "hang").unlink()
        time.sleep(600)  # until it is killed
    return numbers(cell)


def kills_every_worker(cell):
    if cell["n"] == 3:
        os._exit(1)
    return numbers(cell)


def interrupts(cell):
    if cell["n"] == 3:
        raise KeyboardInterrupt
    return numbers(cell)


def threads(cell):
    from threadpoolctl import threadpool_info

    return [{"threads": max(pool["num_threads"] for pool in threadpool_info()), "pid": os.getpid()}]


def toy(function=numbers, count=12, name="toy"):
    def cells(size):
        return [Cell.of(name, kind="a", n=n) for n in range(count if size == "full" else count // 2)]

    return Experiment(name, "A toy", "Nothing.", cells, function, charts=None, figure=None, judge=None)


def twice(cell):
    return [{"twice": 2 * cell["n"]}]


def twice_together(cells, device):
    if cells[0]["n"] >= 100:
        raise RuntimeError(f"no luck on {device}")
    return [[{"twice": 2 * cell["n"], "beside": len(cells), "device": device}] for cell in cells]


def no_multiple_of_three(cell):
    return None if cell["n"] % 3 == 0 else "others"


def sociable(numbers):
    """A toy whose cells may be run together, four at a time, but for multiples of three."""
    return Experiment(
        "toy", "A toy", "Nothing.", lambda size: [Cell.of("toy", n=n) for n in numbers], twice,
        charts=None, figure=None, judge=None, together=Together(no_multiple_of_three, twice_together, size=4),
    )  # fmt: skip


def contents(store):
    """All that a store has of the toy, times apart: text, so that NaN equals NaN and -0.0 is not 0.0."""
    return store._all("SELECT cell, status, parameters, rows, version FROM cells ORDER BY cell")


def expected(tmp_path, count=12):
    """The contents after a plain run in this process."""
    from trimreg_reproduction.runner import run
    from trimreg_reproduction.store import Store

    with Store(tmp_path / "expected.sqlite") as store:
        assert run([toy(numbers, count)], "full", store, n_jobs=1).done == count
        return contents(store)


def main():
    """``runner_toys.py STORE COUNT BACKEND N_JOBS``: run the toy, and wait after five cells.

    With a fifth argument, a folder, run cells that :func:`logs` there, and do not wait.
    """
    from trimreg_reproduction.runner import Interrupted, run
    from trimreg_reproduction.store import Store

    path, count, backend, n_jobs, *folder = sys.argv[1:]
    function = partial(logs, *folder) if folder else numbers

    def say(ended, total):
        print(ended, flush=True)
        if ended == 5 and not folder:
            time.sleep(600)  # until it is killed or interrupted

    with Store(path) as store:
        try:
            run(
                [toy(function, int(count))],
                "full",
                store,
                backend=backend,
                n_jobs=int(n_jobs),
                on_progress=say,
            )
        except Interrupted as stop:
            print("interrupted", stop.summary.done, flush=True)
            sys.exit(130)


if __name__ == "__main__":
    main()
