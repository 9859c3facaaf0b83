"""One method on one network: the choice of its strengths, the training of all seeds, and one row per seed.

:func:`rows_of` describes the rows.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from trimreg.nn import export

from .architectures import format_size, layers_of, macs, parse_size
from .data import load_splits
from .loop import Lessons, Split, Trained, Trainer, steps_per_epoch
from .models import build, plain_network
from .pruners import L0, GroupL1, Pruner, Trimmed
from .recipes import BY_NORM, GATED, Recipe, for_method

#: Strengths to try for methods that cannot be asked for a size: those of the group l1 norm, on the scale of a
#: proximal step under Adam, and those of gates, as factors of the recipe's prices.
ALPHAS = {
    "group l1": tuple(float(alpha) for alpha in np.geomspace(0.003, 3.0, 13)),
    "l0 to size": tuple(float(factor) for factor in np.geomspace(0.1, 1000.0, 13)),
}
QUICK_ALPHAS = (0.03, 0.3, 3.0)
_CHOOSING_SEED = 1000  # not a seed of a final training
_EXPORT_IMAGES = 64


@dataclass(frozen=True)
class Trial:
    """A method on a network, with its sizes and seeds.

    Attributes
    ----------
    network, method : str
    sizes : tuple of str
        The size asked for, one per replica.
    seeds : tuple of int
        One seed per replica.
    recipe : Recipe
    dataset : str
    validation : bool
        Whether the last training images are set apart for validation.
    images : int, optional
        Train and test on that many images.
    alphas : tuple of float, optional
        Strengths, one per replica. By default that of the recipe for the trimmed penalty, and a chosen one
        for methods of :data:`ALPHAS`.
    lessons : tuple of (float, float), optional
        For each replica the weight and the temperature of distillation. The last replicas, of size "full",
        are the teachers.
    """

    network: str
    method: str
    sizes: tuple[str, ...]
    seeds: tuple[int, ...]
    recipe: Recipe
    dataset: str = "mnist"
    validation: bool = False
    images: int | None = None
    alphas: tuple[float, ...] | None = None
    lessons: tuple[tuple[float, float], ...] | None = None

    def __post_init__(self):
        if len(self.sizes) != len(self.seeds) or not self.seeds:
            raise ValueError(f"{len(self.sizes)} sizes for {len(self.seeds)} seeds")

    def keep(self) -> dict[str, list[int]]:
        """The number of groups to keep, for each layer and replica."""
        parsed = [parse_size(self.network, size) for size in self.sizes]
        return {name: [one[name] for one in parsed] for name in layers_of(self.network)}

    def noise_seed(self) -> int:
        """The seed of noise and of the order of images: a hash of the trial."""
        text = repr((self.network, self.method, self.sizes, self.seeds, self.dataset, self.validation))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")


@dataclass
class Result:
    """A trained ensemble and its trial."""

    trial: Trial
    recipe: Recipe
    model: nn.Module
    pruner: Pruner
    trained: Trained
    test: Split
    alphas: tuple[float, ...] | None


def train(trial: Trial, device: torch.device | str = "cpu") -> Result:
    """Train all replicas of a trial, and test after every epoch."""
    device = torch.device(device)
    recipe = for_method(trial.recipe, trial.method, trial.network)
    alphas = trial.alphas
    if trial.method in ALPHAS and alphas is None:
        alphas = choose_alphas(trial, device)
    splits = load_splits(
        trial.dataset, trial.network, recipe.input_scaling, device,
        validation=trial.validation, images=trial.images,
    )  # fmt: skip
    with seeded(trial.noise_seed(), device):
        model = build(trial.network, trial.seeds, recipe, device)
        steps = recipe.epochs * steps_per_epoch(len(splits["train"].labels), recipe)
        pruner = make_pruner(trial, recipe, model, steps, len(splits["train"].labels), alphas)
        trainer = Trainer(model, splits["train"], recipe, pruner, make_lessons(trial, device))
        tests = {name: split for name, split in splits.items() if name != "train"}
        trained = trainer.fit(tests, evaluation_batch=2000 if trial.network == "LeNet-300-100" else 500)
    return Result(trial, recipe, model, pruner, trained, splits["test"], alphas)


def make_lessons(trial: Trial, device: torch.device) -> Lessons | None:
    """The distillation of a trial, if any."""
    if trial.lessons is None:
        return None
    weights, temperatures = torch.tensor(trial.lessons, device=device).T.contiguous()
    return Lessons(weights, temperatures, trial.sizes.count("full"))


def make_pruner(
    trial: Trial, recipe: Recipe, model: nn.Module, steps: int, count: int, alphas: Sequence[float] | None
) -> Pruner:
    """The pruner of a trial's method."""
    names = list(layers_of(trial.network))
    if trial.method == "dense":
        return Pruner(model, names)
    if trial.method in ("trimmed", "once, taylor", *BY_NORM):
        return Trimmed(model, trial.keep(), recipe, steps, alphas)
    if trial.method == "torchao PAT":
        from .pat import Pat

        return Pat(model, trial.keep(), recipe, steps)
    if trial.method == "group l1" and alphas is not None:
        return GroupL1(model, names, alphas, recipe, steps)
    if trial.method in GATED:
        return L0(model, names, recipe, count, alphas)
    raise ValueError(f"no method {trial.method!r}")


@contextlib.contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """A context with random numbers from that seed; afterwards the generators are as before."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


# -- the choice of strengths ------------------------------------------------------------------------------


def choose_alphas(trial: Trial, device: torch.device) -> tuple[float, ...]:
    """The strengths at which a method needs about as many multiplications as the sizes asked for.

    One replica for each of :data:`ALPHAS` is trained with the trial's recipe, without the validation images.
    Only the final sizes are used, no errors. Between two strengths the logarithm of the multiplications is
    interpolated linearly in the logarithm of the strength.
    """
    grid = ALPHAS[trial.method] if trial.images is None else QUICK_ALPHAS
    count = len(grid)
    search = dataclasses.replace(
        trial, sizes=("full",) * count, seeds=(_CHOOSING_SEED,) * count, validation=True, alphas=grid
    )
    key = (search, str(device))
    if key not in _GRIDS:
        sizes = train(search, device).trained.sizes[-1].tolist()
        names = list(layers_of(trial.network))
        _GRIDS[key] = [macs(trial.network, dict(zip(names, row, strict=True))) for row in sizes]
    return tuple(
        interpolate_alpha(grid, _GRIDS[key], macs(trial.network, parse_size(trial.network, size)))
        for size in trial.sizes
    )


def interpolate_alpha(alphas: Sequence[float], costs: Sequence[float], target: float) -> float:
    """The strength at which the cost falls to ``target``, interpolated in logarithms, or the nearest end.

    Costs that do not decrease are replaced by the least cost so far.
    """
    falling = np.log(np.minimum.accumulate(np.maximum(1.0, costs)))
    logs = np.log(np.asarray(alphas, dtype=float))
    return float(np.exp(np.interp(-math.log(target), -falling, logs)))


#: The multiplications for each strength, shared by trials; they depend on nothing but the key.
_GRIDS: dict[tuple, list[int]] = {}


# -- rows -------------------------------------------------------------------------------------------------


def rows_of(result: Result, exported: bool = True) -> list[dict]:
    """One row per replica.

    Errors are in percent. ``error`` is that of the last epoch, ``lowest`` the lowest over the epochs whose
    network is no larger than the last one (the authors' protocol, which uses the test set), and
    ``validation_error`` that of the last epoch on the validation images. ``reached`` is the final size, and
    ``exact`` is whether this is the size asked for. ``parameters`` and ``macs`` are those of the exported
    network, and ``export_difference`` is the largest difference of its outputs from the trained ones,
    relative to the largest output.
    """
    trial, trained = result.trial, result.trained
    names = list(layers_of(trial.network))
    rows = []
    for index, (seed, asked) in enumerate(zip(trial.seeds, trial.sizes, strict=True)):
        sizes = trained.sizes[:, index]
        reached = dict(zip(names, sizes[-1].tolist(), strict=True))
        curve = 100.0 * trained.errors["test"][:, index]
        as_small = (sizes <= sizes[-1]).all(-1)
        row = {
            "seed": int(seed),
            "asked": asked,
            "reached": format_size(reached),
            "exact": reached == parse_size(trial.network, asked),
            "error": round(float(curve[-1]), 6),
            "lowest": round(float(curve[as_small].min()), 6),
            "validation_error": None,
            "parameters": None,
            "macs": None,
            "export_difference": None,
            "alpha": None if result.alphas is None else float(result.alphas[index]),
            "epochs": result.recipe.epochs,
            "device": device_name(result.test.images.device),
            "seconds": trained.seconds,
            "step_ms": 1e3 * trained.seconds_per_step,
            "curve": [round(float(value), 4) for value in curve],
        }
        if "validation" in trained.errors:
            row["validation_error"] = round(float(100.0 * trained.errors["validation"][-1, index]), 6)
        if exported:
            row |= measure(result, index)
        rows.append(row)
    return rows


def measure(result: Result, index: int) -> dict:
    """The parameters, multiplications and output difference of one replica, exported on the CPU."""
    network = plain_network(result.model, index)
    images = result.test.images[:_EXPORT_IMAGES].cpu()
    with torch.no_grad():
        answers = network(images)
        exported = export(network, None, images[:2], repeats=0)
        difference = (exported.model(images) - answers).abs().max() / answers.abs().max()
    report = exported.report
    return {
        "parameters": int(report.parameters[1]),
        "macs": int(report.macs[1]),
        "export_difference": float(difference),
    }


def device_name(device: torch.device) -> str:
    """The name of the processor."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
