"""``trimreg graph``: which columns of a table depend on each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import common, options
from .common import BadInput, say

CRITERIA = ("ebic", "bic", "aic", "stars", "cv")
KINDS = ("pearson", "spearman", "kendall")


def graph(
    data: options.Table,
    h: Annotated[
        str,
        typer.Option(
            "--h", help="Number of edges: an integer, a fraction of the pairs, or auto.", metavar="H"
        ),
    ] = "auto",
    alpha: Annotated[
        str,
        typer.Option(
            help="exact: at most h edges. A number: h unshrunk, others shrunk. auto: chosen.",
            metavar="ALPHA",
        ),
    ] = "exact",
    criterion: Annotated[
        str, typer.Option(help="How auto chooses: ebic, bic, aic, stars, or cv (for prediction).")
    ] = "ebic",
    kind: Annotated[str, typer.Option(help="pearson; or rank correlations: spearman, kendall.")] = "pearson",
    scores: Annotated[
        str | None, typer.Option(help="npn replaces the columns by normal scores.", metavar="npn")
    ] = None,
    shrinkage: Annotated[
        float, typer.Option(help="Shrinkage of the correlations, from 0 to below 1; for few rows.")
    ] = 0.0,
    drop: options.Drop = None,
    impute: options.Impute = None,
    standardize: options.Standardize = True,
    effort: Annotated[str, typer.Option(help="How hard to search: low, medium or high.")] = "medium",
    seed: Annotated[int, typer.Option(help="Seed of the folds and subsamples.")] = 0,
    jobs: Annotated[int, typer.Option(help="Number of fits in parallel; -1 is all cores.")] = 1,
    picture: Annotated[
        Path | None, typer.Option(help="A picture of the graph: .png, .svg or .pdf.", metavar="FILE")
    ] = None,
    edges: Annotated[
        Path | None, typer.Option(help="A CSV file for the edges, the strongest first.", metavar="FILE")
    ] = None,
    json: Annotated[
        Path | None, typer.Option(help="Write the model here: edges, precision, certificate.", metavar="FILE")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a page about the graph here.", metavar="FILE.html")
    ] = None,
) -> None:
    """Find which columns of a table depend on each other given all others: a Gaussian graphical model.

    An edge joins two columns whose partial correlation is not 0. At most h edges are kept, without shrinkage.
    Columns of text are left out, and a note says so.

    \b
    Examples:
      trimreg graph proteins.csv
      trimreg graph proteins.csv --h 20 --picture network.png
      trimreg graph proteins.csv --scores npn --edges edges.csv --json graph.json
      trimreg graph ratings.csv --kind spearman --impute median

    Exit status: 0 if all went well, 2 for bad input, 130 if interrupted.
    """
    with common.exit_codes():
        h, alpha = common.parse_h(h), common.parse_alpha(alpha)
        common.check_choice("--criterion", criterion, CRITERIA)
        common.check_choice("--kind", kind, KINDS)
        common.check_choice("--effort", effort, common.EFFORTS)
        if scores not in (None, "npn"):
            raise BadInput(f"--scores must be npn; got {scores!r}")
        if scores and kind != "pearson":
            raise BadInput("--scores npn is for --kind pearson; drop one of them")
        if not 0 <= shrinkage < 1:
            raise BadInput(f"--shrinkage must be from 0 to below 1; got {shrinkage:g}")
        common.check_seed_and_jobs(seed, jobs)
        common.check_picture("--picture", picture)
        common.check_outputs(picture=picture, edges=edges, json=json, report=report)
        if report is not None:
            options.check_report()

        from .tables import csv_text

        X, notes = _read(data, drop or (), impute)
        p = X.shape[1]
        common.check_count(h, p * (p - 1) // 2, "pairs of columns")
        settings = {
            "kind": kind, "scores": scores, "shrinkage": shrinkage, "standardize": standardize,
            "effort": effort,
        }  # fmt: skip
        model = _build(h, alpha, criterion, seed, jobs, len(X), settings)
        options.tell(notes)
        with common.refused_as_bad_input():
            model.fit(X)
        say(model.summary())
        say("\n" + _searched(model, criterion, standardize))
        content = _content(model, X, data, settings, h, criterion, notes)
        found = content["certificate"]["local_minimum"]
        say("\na local minimum: " + {True: "yes", False: "no", None: "not decided"}[found])
        if edges is not None:
            common.write_text(edges, csv_text(model.edges_.to_frame()))
        if json is not None:
            common.write_json(json, content)
        if picture is not None:
            _draw(model, picture)
        if report is not None:
            options.graph_report(report, model, X, data, notes)


def _read(path, drop, impute):
    """The columns of numbers, and notes."""
    from . import tables
    from .data import columns_of, without_missing

    if impute is not None:
        common.check_choice("--impute", impute, tables.IMPUTE)
    frame, notes = columns_of(tables.read_table(path), drop)
    text = [name for name in frame if not tables.is_number(frame[name])]
    if text:
        notes.append(f"columns of text left out: {tables.listed(text)}")
    frame = frame.drop(columns=text)
    if frame.shape[1] < 2:
        raise BadInput(f"a graph needs two columns of numbers; {path} has {frame.shape[1]}")
    frame, dropped = without_missing(frame, [], impute)
    notes += dropped
    if len(frame) < 2:
        raise BadInput(f"a graph needs at least two rows; got {len(frame)}")
    recipe, more = tables.learn(frame, impute=impute)
    notes += more
    X, _ = recipe.transform(frame)
    if X.shape[1] < 2:
        raise BadInput(f"a graph needs two columns that vary; got {X.shape[1]}")
    return X, notes


def _build(h, alpha, criterion, seed, jobs, n, settings):
    if "auto" not in (h, alpha):
        from ..graphs import TrimmedGraphicalLasso

        return TrimmedGraphicalLasso(h, alpha, random_state=seed, **settings)
    from sklearn.model_selection import KFold

    from ..graphs import TrimmedGraphicalLassoCV

    return TrimmedGraphicalLassoCV(
        hs="auto" if h == "auto" else [h],
        alphas=alpha if isinstance(alpha, str) else [alpha],
        cv=KFold(min(5, n), shuffle=True, random_state=seed),
        criterion=criterion,
        n_jobs=jobs,
        verbose=1,
        random_state=seed,
        **settings,
    )


def _searched(model, criterion, standardize):
    """What was searched, and the setting in which the command differs from Python's default."""
    scale = "standardized columns (Python's default: not standardized)" if standardize else "columns as given"
    if not hasattr(model, "hs_"):
        return scale
    alphas = [alpha if alpha == "exact" else f"{alpha:.3g}" for alpha in model.alphas_]
    span = alphas[0] if len(alphas) == 1 else f"{alphas[0]} to {alphas[-1]} ({len(alphas)} values)"
    found = f"h from {model.hs_[0]} to {model.hs_[-1]} ({model.hs_.size} values), alpha {span}"
    return f"searched by {criterion} (Python's default: cv): {found}; {scale}"


def _content(model, X, path, settings, h, criterion, notes):
    from dataclasses import asdict

    from .. import __version__

    return {
        "format": "trimreg graph",
        "format_version": 1,
        "version": __version__,
        "estimator": type(model).__name__,
        "settings": settings | ({"criterion": criterion} if h == "auto" else {}),
        "h": model.h_,
        "alpha": model.alpha_,
        "nodes": list(X.columns),
        "edges": [edge._asdict() for edge in model.edges_],
        "precision": model.precision_,
        "covariance": model.covariance_,
        "location": model.location_,
        "certificate": asdict(model.certificate()),
        "data": {"file": Path(path).name, "rows": len(X), "notes": notes},
    }


def _draw(model, picture):
    from ..reports.model import network_figure

    common.write_picture(network_figure(model), picture)
