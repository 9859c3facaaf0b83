"""``trimreg path``: coefficients for every h."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from . import common, options
from .common import BadInput

_SHOWN = 3  # names in a cell of the table


def path(
    data: options.Table,
    target: options.Target,
    max_h: Annotated[
        int | None,
        typer.Option(
            help="Fit every h from 0 to this one; by default a grid that suits the table.", metavar="H"
        ),
    ] = None,
    alpha: Annotated[
        str, typer.Option(help="exact: at most h variables. A number: h unshrunk, others shrunk.")
    ] = "exact",
    loss: options.Loss = "auto",
    event: options.Event = None,
    entry: options.Entry = None,
    strata: options.Strata = None,
    weights: options.Weights = None,
    offset: options.Offset = None,
    exposure: options.Exposure = None,
    drop: options.Drop = None,
    categorical: options.Categorical = None,
    group_categories: options.GroupCategories = False,
    impute: options.Impute = None,
    standardize: options.Standardize = True,
    out: Annotated[
        Path | None, typer.Option(help="A CSV file for the coefficients, one row per h.", metavar="FILE")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="A picture of the path: .png, .svg or .pdf.", metavar="FILE")
    ] = None,
) -> None:
    """Fit a table for a range of h: which variables enter, which leave, and how the fit improves.

    The printed table has the objective of each fit. The file of --out has the coefficients in the units of
    the data; the picture shows those of standardized columns.

    \b
    Examples:
      trimreg path houses.csv --target price
      trimreg path houses.csv --target price --max-h 15 --picture path.png
      trimreg path patients.csv --target ill --loss logistic --out path.csv

    Exit status: 0 if all went well, 2 for bad input, 130 if interrupted.
    """
    with common.exit_codes():
        alpha = common.parse_alpha(alpha)
        if alpha == "auto":
            raise BadInput("--alpha of a path must be exact or a number; got 'auto'")
        common.check_picture("--picture", picture)
        common.check_outputs(out=out, picture=picture)
        from .data import load

        table = load(
            data, target, loss=loss, event=event, entry=entry, strata=strata, drop=drop or (),
            impute=impute, weights=weights, offset=offset, exposure=exposure,
        )  # fmt: skip
        recipe, X, notes = options.learned(table, impute, categorical or ())
        groups = recipe.groups if group_categories else None
        parts = len(recipe.columns) if group_categories else X.shape[1]
        if max_h is not None:
            common.check_count(max_h, parts, "columns" if group_categories else "features", option="--max-h")
        options.tell(notes)
        fits, classes = fit_path(
            X, table.y, table.loss, hs="auto" if max_h is None else list(range(max_h + 1)), alphas=[alpha],
            groups=groups, standardize=standardize, sample_weight=table.weights,
            offset=table.offset,
        )  # fmt: skip
        _print(fits, recipe.features)
        if out is not None:
            common.write_text(out, _csv(fits, recipe.features, classes))
        if picture is not None:
            _draw(fits, X, target, picture)


def fit_path(X: Any, y: Any, loss: str, **arguments: Any) -> tuple[Any, list | None]:
    """The path of a table, and its classes if there are more than two."""
    import numpy as np

    from ..losses import Multinomial
    from ..selection import trimmed_path

    classes = None
    if loss == "logistic":
        classes, y = np.unique(y, return_inverse=True)
        y, loss = y.astype(float), "logistic" if classes.size == 2 else Multinomial(classes.size)
        classes = None if classes.size == 2 else classes.tolist()
    with common.refused_as_bad_input():
        return trimmed_path(X, y, loss=loss, verbose=1, **arguments), classes


def _inside(fits):
    """Whether each feature is in the model, for every h: shape (n_hs, n_features)."""
    coefs = fits.coefs[:, 0] != 0
    return coefs if coefs.ndim == 2 else coefs.any(axis=1)


def _print(fits, features):
    rows, before = [], frozenset()
    for h, inside, objective in zip(fits.hs, _inside(fits), fits.objectives[:, 0], strict=True):
        now = frozenset(inside.nonzero()[0].tolist())
        changes = [_names(now - before, features), _names(before - now, features)]
        rows.append([str(h), str(len(now)), f"{objective:.6g}", *changes])
        before = now
    headings = [(name, "right") for name in ("h", "kept", "objective")]
    headings += [("enter", "left"), ("leave", "left")]
    common.print_table("Best fits found for each h", headings, rows)


def _names(indices, features):
    names = [features[j] for j in sorted(indices)]
    shown = ", ".join(_cut(name) for name in names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} +{len(names) - _SHOWN}"


def _cut(name, width=24):
    name = name if name.isprintable() else repr(name)
    return name if len(name) <= width else name[: width - 3] + "..."


def _csv(fits, features, classes):
    from .tables import csv_text, pandas

    rows = []
    for i, h in enumerate(fits.hs.tolist()):
        facts = {"h": h, "alpha": float(fits.alpha_values[i, 0]), "objective": float(fits.objectives[i, 0])}
        outputs = [(None, fits.coefs[i, 0], fits.intercepts[i, 0])]
        if classes is not None:
            outputs = zip(classes, fits.coefs[i, 0], fits.intercepts[i, 0], strict=True)
        for label, coef, intercept in outputs:
            # A list and not a dict, because a feature may be called "h".
            rows.append(
                [*facts.values(), *([] if label is None else [label]), float(intercept), *coef.tolist()]
            )
    heads = [*facts, *([] if classes is None else ["class"]), "intercept", *features]
    return csv_text(pandas().DataFrame(rows, columns=heads))


def _draw(fits, X, target, picture):
    import numpy as np
    from matplotlib.figure import Figure

    from ..plotting import coefficient_path_over_h

    coefs = fits.coefs[:, 0] * X.std(axis=0, ddof=0).to_numpy()
    label = "coefficient of the standardized column"
    if coefs.ndim == 3:
        coefs, label = np.linalg.norm(coefs, axis=1), "length of the coefficients of all classes"
    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    ax = figure.subplots()
    # A dollar sign would start a formula.
    names = [_cut(str(name)).replace("$", r"\$") for name in X.columns]
    coefficient_path_over_h(fits.hs, coefs, names=names, ax=ax)
    ax.set_ylabel(label)
    ax.set_title(f"{_cut(target)} by h variables".replace("$", r"\$"), loc="left", fontsize=11)
    common.write_picture(figure, picture)
