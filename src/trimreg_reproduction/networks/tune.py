"""Compare recipes on the validation split: ``python -m trimreg_reproduction.networks.tune --help``.

All sizes and seeds of a recipe train as one ensemble on the first 50,000 images. Test errors are not used.
This needs only torch and numpy.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from .device import find_device
from .training.architectures import LAYERS, parse_size
from .training.recipes import OURS, PAPER, Recipe, get_recipe, parse_changes
from .training.trial import Trial, rows_of, train

FIRST_SEED = 100  # the seeds of final trainings begin at 0


def validate(
    recipe: Recipe, network: str, sizes: Sequence[str], seeds: Sequence[int], *, method: str = "trimmed",
    dataset: str = "mnist", images: int | None = None, device: Any = None,
) -> list[dict]:  # fmt: skip
    """The rows of a recipe, one per size and seed, with the validation error at the last epoch."""
    for size in sizes:
        parse_size(network, size)
    pairs = [(size, seed) for size in sizes for seed in seeds]
    trial = Trial(
        network, method, tuple(size for size, _ in pairs), tuple(seed for _, seed in pairs), recipe, dataset,
        validation=True, images=images,
    )  # fmt: skip
    return rows_of(train(trial, find_device() if device is None else device), exported=False)


def describe(name: str, rows: Sequence[dict]) -> str:
    """One line of text: the mean and deviation of the validation error, and the final size."""
    errors = [row["validation_error"] for row in rows]
    mean = sum(errors) / len(errors)
    spread = (sum((e - mean) ** 2 for e in errors) / max(1, len(errors) - 1)) ** 0.5
    reached = ", ".join(dict.fromkeys(row["reached"] for row in rows))
    return (
        f"{name:24s} {rows[0]['asked']:16s} {mean:6.2f} +- {spread:.2f} %  reached {reached}  "
        f"{rows[0]['step_ms']:.2f} ms per step, {rows[0]['seconds']:.0f} s"
    )


def split_settings(text: str) -> dict[str, str]:
    """The fields and values in a text such as ``"epochs=40,l0_lambda=[0.1,0.3]"``."""
    found = {}
    for pair in re.split(r",(?![^\[]*\])", text):
        field, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"a change is FIELD=VALUE; got {pair!r}")
        found[field.strip()] = value.strip()
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m trimreg_reproduction.networks.tune", description=__doc__)
    parser.add_argument("--network", choices=sorted(LAYERS), default="LeNet-300-100")
    parser.add_argument("--method", default="trimmed")
    parser.add_argument("--size", action="append", required=True, help="such as 245-75-25; may be repeated")
    parser.add_argument("--seeds", type=int, default=3, help=f"number of seeds, from {FIRST_SEED} on")
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--images", type=int, help="use only that many training images")
    parser.add_argument("--base", choices=("ours", "paper", "tab1", "tab2", "tab3"), default="ours",
                        help="the recipe to change; tab1 is ours with the settings of table 1")  # fmt: skip
    parser.add_argument(
        "--set", action="append", metavar="FIELD=VALUE[,FIELD=VALUE]",
        help="a recipe with these changes; may be repeated, for several recipes",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    fixed = {"ours": OURS, "paper": PAPER}
    base = fixed[options.base] if options.base in fixed else get_recipe(options.base, "ours")
    train = partial(
        validate, network=options.network, sizes=options.size, method=options.method, dataset=options.dataset,
        seeds=range(FIRST_SEED, FIRST_SEED + options.seeds), images=options.images,
    )  # fmt: skip
    for text in options.set or [None]:
        changes = {} if text is None else parse_changes(split_settings(text))
        rows = train(base.change(**changes))
        for size in options.size:
            print(describe(text or base.name, [row for row in rows if row["asked"] == size]), flush=True)


if __name__ == "__main__":
    main()
