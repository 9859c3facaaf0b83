"""Beyond the paper's tables: smaller sizes, error against cost for every method, and Fashion-MNIST.

- anchors: the sizes of VIBNet (97-71-33, 1.6 % in Dai et al. 2018) and of BC-GHS (5-10-76-16, 1.0 % in
  Louizos, Ullrich and Welling 2017), with the settings of tables 2 and 3 (LeNet-5 with half of the epochs).
- curve: a half, a quarter, an eighth and a sixteenth of each layer of plain networks, for every method that
  can be asked for a size, and for the group l1 norm and L0 gates with about as many multiplications.
- fashion: Fashion-MNIST, with the sizes and settings of the same two tables, which were chosen on MNIST
  (LeNet-5 with half of the epochs).
- longer: the anchors with twice as many epochs.
- distilled: the anchors, taught by dense networks that train beside them. The validation split decides on
  weight and temperature, so these networks train on 50,000 images.
- gates, gates fashion: L0 gates with one price per layer, times several factors.
"""

from __future__ import annotations

import dataclasses
from itertools import product
from typing import TYPE_CHECKING

from ..spec import Cell, Experiment
from . import pictures, verdicts
from .tables import PEERS, make_trial, one_by_one, run_trial, sizes_of

if TYPE_CHECKING:
    from .training.trial import Trial

NAME = "nets"
NETWORKS = ("LeNet-300-100", "LeNet-5")
SIZED = ("trimmed", "torchao PAT", "magnitude", "gradual magnitude")
#: For each part its methods, and for each network the table whose settings it uses.
PARTS = {
    "anchors": (("trimmed", "magnitude", "gradual magnitude"), ("tab2", "LeNet-5 beyond")),
    "curve": (("dense", "trimmed", *PEERS, "l0 to size"), ("tab1", "plain LeNet-5")),
    "fashion": (("dense", *SIZED), ("tab2", "LeNet-5 beyond")),
    "longer": (("trimmed",), ("tab2 longer", "tab3")),
    "distilled": (("trimmed",), ("tab2", "LeNet-5 beyond")),
    "gates": (("l0 separate",), ("tab1", "plain LeNet-5")),
    "gates fashion": (("l0 separate",), ("tab2", "tab3")),
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
    "longer": (["97-71-33"], ["5-10-76-16"]),
    "distilled": (["97-71-33"], ["5-10-76-16"]),
    "gates": (["full"], ["full"]),
    "gates fashion": (["full"], []),
}
#: Weight and temperature of distillation by network, and the number of teachers.
LESSONS = (((0.0, 1.0), (0.5, 2.0), (0.9, 2.0), (0.9, 4.0)), ((0.0, 1.0), (0.9, 4.0)))
TEACHERS = 2
_TEACHER_SEED = 50
#: Factors of the prices of gates.
FACTORS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
#: The published errors in percent at the anchors' sizes.
HOLDERS = {"97-71-33": 1.6, "5-10-76-16": 1.0}


def cells(size: str) -> list[Cell]:
    """The cells of all parts."""
    found = []
    for place, network in enumerate(NETWORKS):
        for part, (methods, _) in PARTS.items():
            if size == "quick":
                methods = QUICK_PARTS.get(part, ())
            sizes = SIZES[part][place][: 1 if size == "quick" else None]
            for method in methods if sizes else ():
                for _, asked in one_by_one(method, ["full"] if method == "dense" else sizes):
                    found.append(
                        Cell.of(NAME, part=part, network=network, method=method, sizes=asked, recipe="ours",
                                effort=size)
                    )  # fmt: skip
    return found


def trial_of(cell: Cell) -> Trial:
    """The training of a cell."""
    part, place = cell["part"], NETWORKS.index(cell["network"])
    dataset = "fashion-mnist" if "fashion" in part else "mnist"
    factors = FACTORS if part.startswith("gates") else ()
    trial = make_trial(cell, cell["network"], PARTS[part][1][place], dataset, factors)
    if part != "distilled":
        return trial
    pupils = list(product(trial.seeds, LESSONS[place]))
    return dataclasses.replace(
        trial,
        sizes=(trial.sizes[0],) * len(pupils) + ("full",) * TEACHERS,
        seeds=(*(seed for seed, _ in pupils), *range(_TEACHER_SEED, _TEACHER_SEED + TEACHERS)),
        lessons=(*(lesson for _, lesson in pupils), *[(0.0, 1.0)] * TEACHERS),
        validation=True,
    )


def run(cell: Cell) -> list[dict]:
    """One row per size and seed, and per setting if there are several; none of teachers."""
    trial = trial_of(cell)
    rows = [row | {"paper": HOLDERS.get(row["asked"])} for row in run_trial(trial)]
    if trial.lessons:
        told = [f"weight {weight:g} at temperature {heat:g}" for weight, heat in trial.lessons[:-TEACHERS]]
        return [row | {"setting": setting} for row, setting in zip(rows, told)]  # noqa: B905
    if trial.method == "l0 separate":
        return [row | {"setting": f"prices times {row['alpha']:g}"} for row in rows]
    return rows


EXPERIMENT = Experiment(
    NAME,
    "Networks beyond the paper",
    "Not in the paper: at the sizes of others' smallest networks, over a range of sizes and on Fashion-MNIST "
    "the trimmed penalty should err no more than its peers.",
    cells,
    run,
    pictures.charts,
    pictures.figure,
    verdicts.judge_parts,
)
