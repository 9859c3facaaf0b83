"""Compare recipes on the validation split: ``python -m trimreg_reproduction.networks.tune --help``.

All sizes and seeds of a recipe train as one ensemble on the first 50,000 images. The results are lines of
JSON, one per recipe, size and seed; lines that are in the file already are not run again. Test errors are not
used. This needs only torch and numpy.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .training.architectures import LAYERS, parse_size
from .training.recipes import OURS, PAPER, Recipe, get_recipe, parse_changes

FIRST_SEED = 100  # the seeds of final trainings begin at 0


def validate(
    recipes: Mapping[str, Recipe],
    network: str,
    sizes: Sequence[str],
    seeds: Sequence[int] = (FIRST_SEED, FIRST_SEED + 1, FIRST_SEED + 2),
    *,
    method: str = "trimmed",
    dataset: str = "mnist",
    images: int | None = None,
    out: str | Path | None = None,
    device: Any = None,
    show: Callable[[str], object] = print,
) -> list[dict]:
    """Validation errors of recipes at the last epoch, one line per recipe, size and seed.

    The names of the recipes are used in the output, one line of text per recipe and size. ``out`` is a file
    of JSON lines, which is read first and appended to.
    """
    for size in sizes:
        parse_size(network, size)
    known = _read(out)
    lines = []
    for name, recipe in recipes.items():
        keys = {
            (size, seed): _key(recipe, network, size, seed, method, dataset, images)
            for size in sizes
            for seed in seeds
        }
        missing = [pair for pair, key in keys.items() if key not in known]
        if missing:
            for line in _train(name, recipe, network, missing, method, dataset, images, device):
                line["key"] = keys[line["size"], line["seed"]]
                known[line["key"]] = line
                _append(out, line)
        mine = [known[key] for key in keys.values()]
        lines += mine
        for size in sizes:
            show(describe(name, [line for line in mine if line["size"] == size]))
    return lines


def describe(name: str, lines: Sequence[dict]) -> str:
    """One line of text: the mean and deviation of the validation error, and the final size."""
    errors = [line["validation_error"] for line in lines]
    mean = sum(errors) / len(errors)
    spread = (sum((e - mean) ** 2 for e in errors) / max(1, len(errors) - 1)) ** 0.5
    reached = ", ".join(dict.fromkeys(line["reached"] for line in lines))
    return (
        f"{name:24s} {lines[0]['size']:16s} {mean:6.2f} +- {spread:.2f} %  reached {reached}  "
        f"{lines[0]['step_ms']:.2f} ms per step, {lines[0]['seconds']:.0f} s"
    )


def _train(name, recipe, network, pairs, method, dataset, images, device):
    from .device import find_device
    from .training.trial import Trial, rows_of, train

    trial = Trial(
        network, method, tuple(size for size, _ in pairs), tuple(seed for _, seed in pairs), recipe, dataset,
        validation=True, images=images,
    )  # fmt: skip
    rows = rows_of(train(trial, find_device() if device is None else device), exported=False)
    keep = ("seed", "reached", "exact", "validation_error", "alpha", "seconds", "step_ms", "device")
    changes = {key: value for key, value in recipe.to_dict().items() if value != OURS.to_dict()[key]}
    for row in rows:
        yield {
            "name": name, "network": network, "method": method, "dataset": dataset, "size": row["asked"],
            "changes": changes, "when": time.time(), **{key: row[key] for key in keep},
        }  # fmt: skip


def _key(recipe, network, size, seed, method, dataset, images):
    settings = {key: value for key, value in recipe.to_dict().items() if key != "name"}
    text = json.dumps([settings, network, size, seed, method, dataset, images], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _read(out) -> dict[str, dict]:
    """The lines by their keys; an incomplete last line is left out."""
    found = {}
    if out is not None and Path(out).exists():
        for text in Path(out).read_text(encoding="utf-8").splitlines():
            try:
                line = json.loads(text)
            except json.JSONDecodeError:
                continue
            found[line["key"]] = line
    return found


def _append(out, line):
    if out is None:
        return
    path = Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    cut_short = path.exists() and not path.read_bytes().endswith(b"\n") and path.stat().st_size > 0
    with path.open("a", encoding="utf-8") as file:
        file.write(("\n" if cut_short else "") + json.dumps(line) + "\n")


def recipes_from(base: Recipe, changes: Iterable[Mapping[str, object]]) -> dict[str, Recipe]:
    """Recipes whose names list their changes, unless a key "name" gives the name."""
    found = {}
    for change in changes:
        settings = parse_changes({key: value for key, value in change.items() if key != "name"})
        name = (
            change.get("name") or " ".join(f"{key}={value}" for key, value in settings.items()) or base.name
        )
        found[str(name)] = base.change(**settings)
    return found


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
        "--set", action="append", default=[], metavar="FIELD=VALUE[,FIELD=VALUE]",
        help="a recipe with these changes; may be repeated, for several recipes",
    )  # fmt: skip
    parser.add_argument("--recipes", type=Path, help="a JSON file: a list of objects of changes")
    parser.add_argument("--out", type=Path, help="file of JSON lines; lines that it has are not run again")
    options = parser.parse_args(arguments)
    fixed = {"ours": OURS, "paper": PAPER}
    base = fixed[options.base] if options.base in fixed else get_recipe(options.base, "ours")
    changes = [split_settings(text) for text in options.set]
    if options.recipes is not None:
        changes += json.loads(options.recipes.read_text(encoding="utf-8"))
    seeds = range(FIRST_SEED, FIRST_SEED + options.seeds)
    validate(
        recipes_from(base, changes or [{}]), options.network, options.size, seeds, method=options.method,
        dataset=options.dataset, images=options.images, out=options.out,
        show=lambda text: print(text, file=sys.stdout, flush=True),
    )  # fmt: skip


if __name__ == "__main__":
    main()
