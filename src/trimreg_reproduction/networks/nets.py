"""Beyond the paper's tables: smaller sizes, error against cost for every method, and Fashion-MNIST.

- anchors: the sizes of VIBNet (97-71-33, 1.6 % in Dai et al. 2018) and of BC-GHS (5-10-76-16, 1.0 % in
  Louizos, Ullrich and Welling 2017), with the settings of tables 2 and 3 (LeNet-5 with half of the epochs).
- curve: a half, a quarter, an eighth and a sixteenth of each layer of plain networks, for every method that
  can be asked for a size, and for the group l1 norm and L0 gates with about as many multiplications.
- fashion: Fashion-MNIST, with the sizes and settings of the same two tables, which were chosen on MNIST
  (LeNet-5 with half of the epochs).
"""

from __future__ import annotations

from ..spec import Cell, Experiment
from . import pictures, verdicts
from .tables import PEERS, QUICK_SEEDS, SEEDS, one_by_one, run_cell, sizes_of

NAME = "nets"
NETWORKS = ("LeNet-300-100", "LeNet-5")
SIZED = ("trimmed", "torchao PAT", "magnitude")
#: For each part its methods, and for each network the table whose settings it uses.
PARTS = {
    "anchors": (("trimmed", "magnitude"), ("tab2", "LeNet-5 beyond")),
    "curve": (("dense", "trimmed", *PEERS, "l0 to size"), ("tab1", "plain LeNet-5")),
    "fashion": (("dense", *SIZED), ("tab2", "LeNet-5 beyond")),
}
QUICK_PARTS = {"anchors": ("trimmed",), "curve": ("dense", "magnitude")}
#: For each part the sizes by network.
SIZES = {
    "anchors": (["97-71-33"], ["5-10-76-16"]),
    "curve": (
        ["392-150-50", "196-75-25", "98-38-13", "49-19-7"],
        ["10-25-400-250", "5-13-200-125", "3-7-100-63", "2-4-50-32"],
    ),
    "fashion": (sizes_of("tab2"), sizes_of("tab3")),
}
#: The published errors in percent at the anchors' sizes.
HOLDERS = {"97-71-33": 1.6, "5-10-76-16": 1.0}


def cells(size: str) -> list[Cell]:
    """The cells of the three parts."""
    found = []
    for place, network in enumerate(NETWORKS):
        for part, (methods, _) in PARTS.items():
            if size == "quick":
                methods = QUICK_PARTS.get(part, ())
            sizes = SIZES[part][place][: 1 if size == "quick" else None]
            for method in methods:
                for _, asked in one_by_one(method, ["full"] if method == "dense" else sizes):
                    found.append(
                        Cell.of(NAME, part=part, network=network, method=method, sizes=asked, recipe="ours",
                                effort=size)
                    )  # fmt: skip
    return found


def run(cell: Cell) -> list[dict]:
    """One row per size and seed."""
    part, network = cell["part"], cell["network"]
    quick = cell["effort"] == "quick"
    sizes = cell["sizes"].split("+")
    seeds = range(QUICK_SEEDS[network] if quick else SEEDS)
    rows = run_cell(
        table=PARTS[part][1][NETWORKS.index(network)], network=network, method=cell["method"],
        sizes=[size for size in sizes for _ in seeds], seeds=[seed for _ in sizes for seed in seeds],
        recipe=cell["recipe"], quick=quick, dataset="fashion-mnist" if part == "fashion" else "mnist",
    )  # fmt: skip
    return [row | {"paper": HOLDERS[row["asked"]] if part == "anchors" else None} for row in rows]


EXPERIMENT = Experiment(
    NAME,
    "Networks beyond the paper",
    "Not in the paper: at the sizes of others' smallest networks, over a range of sizes and on Fashion-MNIST "
    "the trimmed penalty should err no more than its peers.",
    cells,
    run,
    pictures.charts,
    pictures.figure_of_parts,
    verdicts.judge_parts,
)
