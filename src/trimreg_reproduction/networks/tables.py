"""Tables 1 to 3: networks cut to a size by the trimmed penalty and by its peers, with one protocol.

A cell is a method with a recipe; its sizes and seeds train as one ensemble, with one row each. Every choice
was made on a validation split (the last 10,000 training images, other seeds). The final networks train on all
60,000 images and are tested after the last epoch. A row also has the lowest test error over epochs, which is
the authors' protocol. Peers share the recipe's schedule, epochs, noise and seeds, and cut in their own way.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from ..spec import Cell, Experiment
from . import pictures, verdicts
from .training.architectures import parse_size
from .training.recipes import QUICK, get_recipe

if TYPE_CHECKING:
    from .training.trial import Trial

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
PEERS = ("group l1", "torchao PAT", "magnitude", "gradual magnitude")
#: Methods at half of the network on Fashion-MNIST, beside table 1.
FASHION = ("dense", "trimmed", "magnitude", "gradual magnitude")
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
    cells = [
        Cell.of(table, method=method, sizes=sizes, recipe=recipe, effort=size)
        for recipe, rows in (("ours", ours), ("paper", authors))
        for method, sizes in rows
    ]
    if table == "tab1" and size == "full":
        cells += [
            Cell.of(table, method=method, sizes="full" if method == "dense" else asked, recipe="ours",
                    effort=size, part="Fashion-MNIST")
            for method in FASHION
        ]  # fmt: skip
    return cells


def one_by_one(method: str, sizes: Sequence[str]) -> list[tuple[str, str]]:
    """The method and sizes of its cells: all sizes together, except for torchao, which steps by replica."""
    return [(method, asked) for asked in (sizes if method == "torchao PAT" else ["+".join(sizes)])]


def run(cell: Cell) -> list[dict]:
    """The rows of a cell, one per size and seed; a row of a missing peer says why it was skipped."""
    known = dict(TABLES[cell.experiment][1])
    if cell.experiment == "tab1":
        known["group l1", sizes_of("tab1")[0]] = known["group l1", "784-241-67"]
    if "part" in dict(cell.parameters):
        known = {}
    rows = run_trial(trial_of(cell))
    return [row | {"paper": known.get((cell["method"], row["asked"]))} for row in rows]


def trial_of(cell: Cell) -> Trial:
    """The training of a cell."""
    dataset = "fashion-mnist" if "part" in dict(cell.parameters) else "mnist"
    return make_trial(cell, TABLES[cell.experiment][0], cell.experiment, dataset)


def make_trial(
    cell: Cell, network: str, table: str, dataset: str, alphas: Sequence[float] = (), **changes: Any
) -> Trial:
    """The training of all sizes and seeds of a cell, each with all ``alphas`` if there are any.

    ``table`` says whose recipe it has, with ``changes``.
    """
    from .training.trial import Trial

    quick = cell["effort"] == "quick"
    sizes = cell["sizes"].split("+")
    for size in sizes:
        parse_size(network, size)
    seeds = range(QUICK_SEEDS[network] if quick else SEEDS)
    replicas = product(sizes, seeds, alphas or (None,))
    asked, each, strengths = (tuple(values) for values in zip(*replicas, strict=True))
    recipe = get_recipe(table, cell["recipe"]).change(**changes | (QUICK if quick else {}))
    return Trial(
        network, cell["method"], asked, each, recipe, dataset,
        images=QUICK_IMAGES[network] if quick else None, alphas=strengths if alphas else None,
    )  # fmt: skip


def run_trial(trial: Trial) -> list[dict]:
    """Train and measure."""
    from .device import find_device
    from .training.trial import rows_of, train

    try:
        result = train(trial, find_device())
    except ImportError as missing:
        if trial.method != "torchao PAT":
            raise
        blank = dict.fromkeys(verdicts.MEASURES)
        pairs = zip(trial.seeds, trial.sizes, strict=True)
        return [blank | {"seed": seed, "asked": size, "skipped": str(missing)} for seed, size in pairs]
    return [row | {"skipped": None} for row in rows_of(result)]


TAB1 = Experiment(
    "tab1",
    "LeNet-300-100 at half its size",
    "With half of the input units of each layer LeNet-300-100 errs as little as the dense network, 1.6 %; "
    "the group l1 norm pays for sparsity with accuracy.",
    partial(table_cells, "tab1"),
    run,
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
    run,
    pictures.charts,
    pictures.figure,
    verdicts.judge_sizes,
)
TAB3 = Experiment(
    "tab3",
    "Bayesian LeNet-5-Caffe",
    "The same for a convolutional network: 0.9 % at 20-25-45-150, 1.0 % at 9-18-65-25 and at 8-17-53-19.",
    partial(table_cells, "tab3"),
    run,
    pictures.charts,
    pictures.figure,
    verdicts.judge_sizes,
)
