"""Beyond the paper's tables: smaller sizes, error against cost for every method, and Fashion-MNIST.

- anchors: the sizes of VIBNet (97-71-33, 1.6 % by Dai et al. 2018) and of BC-GHS (5-10-76-16, 1.0 % by
  Louizos, Ullrich and Welling 2017).
- curve: a half, a quarter, an eighth and a sixteenth of each layer, for every method that can be asked for a
  size, and for the group l1 norm at about the same multiplications.
- fashion: Fashion-MNIST, with sizes and settings as they were chosen on MNIST.

All sizes of a part train as one ensemble.
"""

from __future__ import annotations

from ..spec import Cell, Experiment
from . import verdicts
from .tables import PEERS, QUICK_SEEDS, SEEDS, run_cell

NAME = "nets"
#: Network: the table whose settings it has.
SETTINGS = {"LeNet-300-100": "tab2", "LeNet-5": "tab3"}
#: Network: size and error in percent of those who hold it.
ANCHORS = {"LeNet-300-100": ("97-71-33", 1.6), "LeNet-5": ("5-10-76-16", 1.0)}
CURVES = {
    "LeNet-300-100": ("392-150-50", "196-75-25", "98-38-13", "49-19-7"),
    "LeNet-5": ("10-25-400-250", "5-13-200-125", "3-7-100-63", "2-4-50-32"),
}
FASHION = {
    "LeNet-300-100": ("219-214-100", "266-88-33", "245-75-25"),
    "LeNet-5": ("20-25-45-150", "9-18-65-25", "8-17-53-19"),
}


def cells(size: str) -> list[Cell]:
    """The cells of the three parts.

    Examples
    --------
    >>> from trimreg.experiments.networks import nets
    >>> nets.cells("full")[0].name
    'nets/part=anchors,network=LeNet-300-100,method=trimmed,recipe=ours,effort=full'
    """
    found = []
    for network in SETTINGS:
        sized = ("trimmed", "torchao PAT", "magnitude")
        parts = [("anchors", sized), ("curve", ("dense", "trimmed", *PEERS)), ("fashion", ("dense", *sized))]
        if size == "quick":
            parts = [("anchors", ("trimmed",)), ("curve", ("dense", "magnitude"))]
        found += [
            Cell.of(NAME, part=part, network=network, method=method, recipe="ours", effort=size)
            for part, methods in parts
            for method in methods
        ]
    return found


def sizes_of(part: str, network: str, method: str) -> tuple[str, ...]:
    """The sizes of a part.

    Examples
    --------
    >>> from trimreg.experiments.networks import nets
    >>> nets.sizes_of("anchors", "LeNet-5", "trimmed")
    ('5-10-76-16',)
    """
    if method == "dense":
        return ("full",)
    if part == "anchors":
        return (ANCHORS[network][0],)
    return CURVES[network] if part == "curve" else FASHION[network]


def run(cell: Cell) -> list[dict]:
    """Rows by size and seed."""
    part, network, method = cell["part"], cell["network"], cell["method"]
    quick = cell["effort"] == "quick"
    sizes = sizes_of(part, network, method)
    if quick:
        sizes = sizes[:1]
    seeds = range(QUICK_SEEDS[network] if quick else SEEDS)
    rows = run_cell(
        table=SETTINGS[network], network=network, method=method,
        sizes=[size for size in sizes for _ in seeds], seeds=[seed for _ in sizes for seed in seeds],
        recipe=cell["recipe"], quick=quick, dataset="fashion-mnist" if part == "fashion" else "mnist",
    )  # fmt: skip
    return [row | {"paper": ANCHORS[network][1] if part == "anchors" else None} for row in rows]


EXPERIMENT = Experiment(
    NAME,
    "Networks beyond the paper",
    "Not in the paper: at the sizes of others' smallest networks, over a range of sizes and on Fashion-MNIST "
    "the trimmed penalty should err no more than its peers.",
    cells,
    run,
    verdicts.charts,
    verdicts.figure_of_parts,
    verdicts.judge_parts,
)
