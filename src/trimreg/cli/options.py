"""Options of several commands, and the steps that these commands share."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from .common import BadInput, note, say

Table = Annotated[
    Path, typer.Argument(help="A CSV or Parquet file with a row of column names.", metavar="DATA")
]
Target = Annotated[str, typer.Option(help="The column to predict.", metavar="COLUMN")]
Loss = Annotated[
    str,
    typer.Option(
        help="quadratic, logistic, ordinal, squared_hinge, poisson, negative_binomial, gamma, tweedie, "
        "huber, quantile or cox; auto: logistic for text, else quadratic."
    ),
]
Event = Annotated[
    str | None, typer.Option(help="For --loss cox: the column that is 1 for an event, 0 if censored.")
]
Entry = Annotated[
    str | None,
    typer.Option(
        help="For --loss cox: the column with the time from which a row is at risk; --target is the end.",
        metavar="COLUMN",
    ),
]
Strata = Annotated[
    str | None,
    typer.Option(help="For --loss cox: a column; each value has a baseline of its own.", metavar="COLUMN"),
]
Weights = Annotated[
    str | None,
    typer.Option(help="A column of sample weights; a weight of 2 counts as two rows.", metavar="COLUMN"),
]
Offset = Annotated[
    str | None,
    typer.Option(help="A column that is added to the linear predictor as it is.", metavar="COLUMN"),
]
Exposure = Annotated[
    str | None,
    typer.Option(
        help="For counts and amounts: a column of times or sizes that multiply the mean.", metavar="COLUMN"
    ),
]
Drop = Annotated[
    list[str] | None, typer.Option(help="A column to leave out; may be repeated.", metavar="COLUMN")
]
Categorical = Annotated[
    list[str] | None,
    typer.Option(help="A column of numbers that are categories; may be repeated.", metavar="COLUMN"),
]
GroupCategories = Annotated[
    bool,
    typer.Option(
        "--group-categories", help="Keep or drop all levels of a category together; h counts columns."
    ),
]
Impute = Annotated[
    str | None,
    typer.Option(
        help="Missing values: use the mean or median of the column, or drop the row.", metavar="HOW"
    ),
]
Standardize = Annotated[
    bool,
    typer.Option(
        "--standardize/--no-standardize", help="Whether to divide columns by their standard deviations."
    ),
]

Bound = Annotated[
    list[str] | None,
    typer.Option(
        help="A bound of all coefficients, or of those of a column; may be repeated.",
        metavar="[COLUMN=]NUMBER",
    ),
]

Certify = Annotated[
    float | None,
    typer.Option(help="Prove how far the fit is from the best possible, for so long.", metavar="SECONDS"),
]
CertificateFile = Annotated[
    Path | None,
    typer.Option(
        help="With --certify: write the proof here; trimreg verify-certificate checks it.", metavar="FILE"
    ),
]


def check_certify(seconds: float | None, file: Path | None) -> None:
    """:class:`BadInput` unless ``--certify`` is a time, and there if its file is asked for."""
    if seconds is not None and not 0 <= seconds < float("inf"):
        raise BadInput(f"--certify must be a number of seconds >= 0; got {seconds:g}")
    if seconds is None and file is not None:
        raise BadInput("--certificate needs --certify SECONDS")


def certified(model: Any, X: Any, data: Any, seconds: float, file: Path | None, jobs: int = 1) -> Any:
    """The certificate of a fit, or None where there is no bound; prints one line and writes the file."""
    try:
        found = model.certify(X, data.y, data.weights, time_limit=seconds, n_jobs=jobs, verbose=1)
    except ValueError as error:
        note(f"--certify: {error}")
        return None
    say(f"certificate: {found.message}" + ("; a better fit exists" if found.improved else ""))
    if file is not None:
        found.save(file)
        say(f"wrote {file}")
    return found


def bounds(option: str, given: list[str] | None, recipe: Any) -> list[float] | None:
    """One bound per feature, from ``NUMBER`` for all and ``COLUMN=NUMBER`` for those of a column."""
    if not given:
        return None
    names, parents = recipe.features, recipe.groups
    found = dict.fromkeys(names, float("-inf" if option == "--lower" else "inf"))
    for text in sorted(given, key=lambda one: "=" in one):  # what is for all comes first
        column, _, number = text.rpartition("=")
        which = [one for one, parent in zip(names, parents, strict=True) if column in ("", one, parent)]
        if not which:
            raise BadInput(f"{option} names no column: {column!r}; {similar(column, dict.fromkeys(parents))}")
        try:
            found |= dict.fromkeys(which, float(number))
        except ValueError:
            raise BadInput(f"{option} must be NUMBER or COLUMN=NUMBER; got {text!r}") from None
    return list(found.values())


def check_columns(option: str, names: Iterable[str], frame: Any) -> None:
    """:class:`BadInput` unless all names are columns."""
    from .tables import listed

    unknown = [name for name in names if name not in frame]
    if unknown:
        raise BadInput(f"{option} names no column: {listed(unknown)}; {similar(unknown[0], frame.columns)}")


def similar(name: str, columns: Iterable[str]) -> str:
    """The columns whose names are nearly this one, as a question; if there are none, some of all."""
    from difflib import get_close_matches

    from .tables import listed

    columns = list(columns)
    found = get_close_matches(name.lower(), [one.lower() for one in columns], n=3)
    near = [one for one in columns if one.lower() in found]
    return f"did you mean {listed(near)}?" if near else f"there are {listed(columns, most=12)}"


def learned(data: Any, impute: str | None, categorical: Iterable[str]) -> tuple[Any, Any, list[str]]:
    """The recipe for the rows of ``data``, their matrix, and all notes so far."""
    from . import tables

    check_columns("--categorical", categorical, data.frame)
    recipe, notes = tables.learn(data.frame, impute=impute, categorical=categorical)
    X, _ = recipe.transform(data.frame)
    return recipe, X, data.notes + notes


def tell(notes: Iterable[str]) -> None:
    """Print notes on the data. Call it after all checks, so that an error is a single line."""
    for text in notes:
        note(text)


def check_report() -> None:
    """:class:`BadInput` if a package that pages need is missing."""
    for package in ("jinja2", "plotly"):
        try:
            __import__(package)
        except ImportError:
            raise BadInput(f"--report needs {package}: pip install 'trimreg[report]'") from None


def model_report(
    page: Path,
    model: Any,
    X: Any,
    data: Any,
    content: dict,
    file: Path | None = None,
    certificate: Any = None,
) -> None:
    """Write the page of a fitted model."""
    from ..estimators.io import json_text
    from ..reports import write_model_report
    from .models import NAMES

    where = {"train": "training rows", "test": "test rows"}
    scores = {
        f"{NAMES.get(name, name)}, {where[part]}": value
        for part, values in content["metrics"].items()
        if part in where
        for name, value in values.items()
    }
    folds = content["metrics"].get("cross_validation")
    if folds:
        what = "mean squared error" if folds["score"] == "neg_mean_squared_error" else "mean loss"
        error = f"{-folds['mean']:.4g} ± {folds['standard_error']:.2g}"
        scores[f"{what}, {folds['folds']} folds"] = error
    path = None
    if not hasattr(model, "path_"):
        from .path import fit_path

        groups = getattr(model, "groups", None)
        path, _ = fit_path(
            X, data.y, data.loss, hs="auto", alphas="exact", l2=model.l2, groups=groups,
            standardize=model.standardize, sample_weight=data.weights, offset=data.offset,
        )  # fmt: skip
    name = "model.json" if file is None else Path(file).name
    write_model_report(
        model, page, X=X, y=data.y, sample_weight=data.weights, offset=data.offset, target=content["target"],
        data=content["data"]["file"], path=path, scores=scores, notes=content["data"]["notes"],
        load=_LOAD.format(file=name), saved=(name, json_text(content)), command=command_line(),
        certificate=certificate,
    )  # fmt: skip
    say(f"wrote {page}")


def graph_report(page: Path, model: Any, X: Any, file: Path, notes: list[str]) -> None:
    """Write the page of a graph."""
    from ..reports import write_model_report

    write_model_report(model, page, X=X, data=Path(file).name, notes=notes, command=command_line())
    say(f"wrote {page}")


_LOAD = """import pandas as pd
import trimreg

model = trimreg.load({file!r})
model.predict(pd.read_csv("new.csv"))"""


def command_line() -> str:
    """The command as it was typed."""
    return shlex.join(["trimreg", *sys.argv[1:]])
