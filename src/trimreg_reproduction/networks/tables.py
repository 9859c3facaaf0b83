"""Tables 1 to 3: networks cut to a size by the trimmed penalty and by its peers, with one protocol.

A cell is a method with a recipe; its sizes and seeds train as one ensemble, with one row each. Every choice
was made on a validation split (the last 10,000 training images, other seeds). The final networks train on all
60,000 images and are tested after the last epoch. A row also has the lowest test error over epochs, which is
the authors' protocol. Peers share the recipe's schedule, epochs, noise and seeds, and cut in their own way.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ..spec import Cell, Experiment
from . import pictures, verdicts
from .training.architectures import parse_size
from .training.recipes import get_recipe

#: For each table the network, and the errors in the paper by method and size.
TABLES = {
    "tab1": ("LeNet-300-100", {
        ("dense", "full"): 1.6, ("group l1", "784-241-67"): 1.7, ("trimmed", "392-150-50"): 1.6,
    }),
    "tab2": ("LeNet-300-100", {
        ("l0", "219-214-100"): 1.4, ("l0 separate", "266-88-33"): 1.8, ("trimmed", "219-214-100"): 1.4,
        ("trimmed", "266-88-33"): 1.6, ("trimmed", "245-75-25"): 1.7,
    }),
    "tab3": ("LeNet-5", {
        ("l0", "20-25-45-462"): 0.9, ("l0 separate", "9-18-65-25"): 1.0, ("trimmed", "20-25-45-150"): 0.9,
        ("trimmed", "9-18-65-25"): 1.0, ("trimmed", "8-17-53-19"): 1.0,
    }),
}  # fmt: skip
PEERS = ("group l1", "torchao PAT", "magnitude")
SEEDS = 5
QUICK_SEEDS = {"LeNet-300-100": 2, "LeNet-5": 1}
QUICK_IMAGES = {"LeNet-300-100": 2000, "LeNet-5": 400}


def sizes_of(table: str) -> list[str]:
    """The sizes of the trimmed rows of a table."""
    return [size for method, size in TABLES[table][1] if method == "trimmed"]


def table_cells(table: str, size: str) -> list[Cell]:
    """The cells of a table: the paper's rows, the peers at the sizes of the trimmed rows, both recipes."""
    sizes = sizes_of(table)
    if size == "quick":
        sizes = sizes[-1:]
    ours = [("dense", "full")]
    if table != "tab1":
        ours += [row for row in TABLES[table][1] if row[0] in ("l0", "l0 separate")]
    asked = "+".join(sizes)
    ours += [row for method in ("trimmed", *PEERS) for row in one_by_one(method, sizes)]
    authors = [("dense", "full"), ("group l1", asked)] if table == "tab1" else []
    authors.append(("trimmed", asked))
    return [
        Cell.of(table, method=method, sizes=sizes, recipe=recipe, effort=size)
        for recipe, rows in (("ours", ours), ("paper", authors))
        for method, sizes in rows
    ]


def one_by_one(method: str, sizes: Sequence[str]) -> list[tuple[str, str]]:
    """The method and sizes of its cells: all sizes together, except for torchao, which steps by replica."""
    return [(method, asked) for asked in (sizes if method == "torchao PAT" else ["+".join(sizes)])]


def run_table(cell: Cell) -> list[dict]:
    """The rows of a cell, one per size and seed; a row of a missing peer says why it was skipped."""
    network, printed = TABLES[cell.experiment]
    quick = cell["effort"] == "quick"
    seeds = range(QUICK_SEEDS[network] if quick else SEEDS)
    sizes = cell["sizes"].split("+")
    rows = run_cell(
        table=cell.experiment, network=network, method=cell["method"],
        sizes=[size for size in sizes for _ in seeds], seeds=[seed for _ in sizes for seed in seeds],
        recipe=cell["recipe"], quick=quick,
    )  # fmt: skip
    known = dict(printed)
    if cell.experiment == "tab1":
        known["group l1", sizes[0]] = printed["group l1", "784-241-67"]
    return [row | {"paper": known.get((cell["method"], row["asked"]))} for row in rows]


def run_cell(
    *, table: str, network: str, method: str, sizes: list[str], seeds: list[int], recipe: str, quick: bool,
    dataset: str = "mnist",
) -> list[dict]:  # fmt: skip
    """Train and measure, with the settings of ``table``."""
    from .device import find_device
    from .training.trial import Trial, rows_of, train

    for size in sizes:
        parse_size(network, size)
    trial = Trial(
        network, method, tuple(sizes), tuple(seeds), get_recipe(table, recipe, quick), dataset,
        images=QUICK_IMAGES[network] if quick else None,
    )  # fmt: skip
    try:
        result = train(trial, find_device())
    except ImportError as missing:
        if method != "torchao PAT":
            raise
        blank = dict.fromkeys(verdicts.MEASURES)
        rows = [blank | {"seed": seed, "asked": size} for seed, size in zip(seeds, sizes, strict=True)]
        return [row | {"skipped": str(missing)} for row in rows]
    return [row | {"skipped": None} for row in rows_of(result)]


TAB1 = Experiment(
    "tab1",
    "LeNet-300-100 at half its size",
    "With half of the input units of each layer LeNet-300-100 errs as little as the dense network, 1.6 %; "
    "the group l1 norm pays for sparsity with accuracy.",
    partial(table_cells, "tab1"),
    run_table,
    pictures.charts,
    pictures.figure,
    verdicts.judge_tab1,
)
TAB2 = Experiment(
    "tab2",
    "Bayesian LeNet-300-100",
    "Bayesian networks with the trimmed penalty are smaller and err less than L0 gates: 1.4 % at "
    "219-214-100, 1.6 % at 266-88-33, 1.7 % at 245-75-25.",
    partial(table_cells, "tab2"),
    run_table,
    pictures.charts,
    pictures.figure,
    verdicts.judge_sizes,
)
TAB3 = Experiment(
    "tab3",
    "Bayesian LeNet-5-Caffe",
    "The same for a convolutional network: 0.9 % at 20-25-45-150, 1.0 % at 9-18-65-25 and at 8-17-53-19.",
    partial(table_cells, "tab3"),
    run_table,
    pictures.charts,
    pictures.figure,
    verdicts.judge_sizes,
)
