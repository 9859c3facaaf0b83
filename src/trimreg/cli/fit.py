"""``trimreg fit``: a model of a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import common, options
from .common import BadInput, say


def fit(
    data: options.Table,
    target: options.Target,
    h: Annotated[
        str,
        typer.Option(
            "--h", help="Number of variables to keep: an integer, a fraction, or auto (chosen).", metavar="H"
        ),
    ] = "auto",
    alpha: Annotated[
        str,
        typer.Option(
            help="exact: at most h variables. A number: h unshrunk, others shrunk. auto: chosen.",
            metavar="ALPHA",
        ),
    ] = "exact",
    l2: Annotated[
        str | None,
        typer.Option(
            "--l2", help="A ridge term for the kept variables: a number, or auto (chosen).", metavar="L2"
        ),
    ] = None,
    loss: options.Loss = "auto",
    event: options.Event = None,
    entry: options.Entry = None,
    strata: options.Strata = None,
    subject: Annotated[
        str | None,
        typer.Option(
            help="A column: rows with the same value stay together in folds and in the test set.",
            metavar="COLUMN",
        ),
    ] = None,
    criterion: Annotated[
        str, typer.Option(help="How auto chooses: cv (cross-validation), aic, bic, ebic or gic.")
    ] = "cv",
    rule: Annotated[
        str,
        typer.Option(
            help="min: the best score; 1se: the smallest model within one standard error of it; "
            "paired: the lasso or best subsets unless another cell is clearly better."
        ),
    ] = "min",
    folds: Annotated[int, typer.Option(help="Folds of cross-validation.")] = 5,
    test_size: Annotated[float, typer.Option(help="Fraction of the rows to hold out for testing.")] = 0.0,
    weights: options.Weights = None,
    offset: options.Offset = None,
    exposure: options.Exposure = None,
    index: Annotated[
        str | None,
        typer.Option(help="A column of row names: not used to fit, copied to predictions.", metavar="COLUMN"),
    ] = None,
    drop: options.Drop = None,
    categorical: options.Categorical = None,
    group_categories: options.GroupCategories = False,
    impute: options.Impute = None,
    standardize: options.Standardize = True,
    positive: Annotated[
        bool, typer.Option("--positive", help="Allow nonnegative coefficients only.")
    ] = False,
    lower: options.Bound = None,
    upper: options.Bound = None,
    effort: Annotated[str, typer.Option(help="How hard to search: low, medium or high.")] = "medium",
    seed: Annotated[int, typer.Option(help="Seed of the folds and the test set.")] = 0,
    jobs: Annotated[
        int, typer.Option(help="Number of folds, or nodes of --certify, in parallel; -1 is all cores.")
    ] = 1,
    certify: options.Certify = None,
    certificate: options.CertificateFile = None,
    json: Annotated[
        Path | None,
        typer.Option(
            "--json", "--save", help="Write the model here; trimreg predict reads it.", metavar="FILE"
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a page about the model here.", metavar="FILE.html")
    ] = None,
) -> None:
    """Fit a sparse model to a CSV or Parquet file: at most h variables, without shrinkage.

    Text columns become one-hot, constant columns are left out, and notes say so. Missing values are an error
    unless --impute is given.

    \b
    Examples:
      trimreg fit houses.csv --target price
      trimreg fit houses.csv --target price --h 10 --test-size 0.25
      trimreg fit houses.csv --target price --h 10 --l2 auto
      trimreg fit patients.csv --target ill --loss logistic --rule 1se --json model.json
      trimreg fit visits.parquet --target count --loss poisson --drop id --impute median
      trimreg fit trial.csv --target months --loss cox --event died --h 5
      trimreg fit visits.csv --target end --entry start --loss cox --event died --subject id --strata site
      trimreg fit houses.csv --target price --report model.html
      trimreg fit houses.csv --target price --h 5 --certify 60

    \b
    Use the file of --json with
      trimreg predict model.json new.csv
    or in Python with trimreg.load("model.json").predict(frame).

    Exit status: 0 if all went well, 2 for bad input, 130 if interrupted.
    """
    with common.exit_codes():
        h, alpha, l2 = common.parse_h(h), common.parse_alpha(alpha), common.parse_l2(l2)
        _check(h, alpha, l2, criterion, rule, folds, test_size, effort, seed, jobs)
        common.check_outputs(json=json, report=report, certificate=certificate)
        options.check_certify(certify, certificate)
        if report is not None:
            options.check_report()
        import numpy as np

        from ..estimators.io import SavedModel, content_of
        from . import models
        from .data import load

        table = load(
            data, target, loss=loss, event=event, entry=entry, strata=strata, subject=subject,
            drop=drop or (), impute=impute, weights=weights, offset=offset, exposure=exposure, index=index,
        )  # fmt: skip
        if certify is not None and table.offset is not None:
            raise BadInput("--certify is for fits without --offset and --exposure")
        train, test = _split(table, test_size, seed)
        recipe, X, notes = options.learned(train, impute, categorical or ())
        n, parts = len(X), len(recipe.columns) if group_categories else X.shape[1]
        common.check_count(h, parts, "columns" if group_categories else "features")
        if "auto" in (h, alpha, l2) and criterion == "cv" and folds > n:
            raise BadInput(f"--folds must be at most {n}, the number of rows; got {folds}")
        model = models.build(
            table.loss, h, alpha, l2, criterion=criterion, rule=rule,
            folds=folds, seed=seed, jobs=jobs, groups=recipe.groups if group_categories else None,
            standardize=standardize, positive=positive, effort=effort, subjects=train.subjects is not None,
            lower=options.bounds("--lower", lower, recipe), upper=options.bounds("--upper", upper, recipe),
        )  # fmt: skip
        options.tell(notes)
        y, more = train.target_and_strata()
        if hasattr(model, "cv") and train.subjects is not None:
            more["cv_groups"] = train.subjects
        with common.refused_as_bad_input():
            model.fit(X, y, train.weights, offset=train.offset, **more)

        facts = {
            "file": data.name, "rows": n, "test_rows": 0 if test is None else len(test.frame),
            "features": X.shape[1], "seed": seed, "notes": notes,
        }  # fmt: skip
        columns: dict = {
            "target": target,
            "event": event,
            "entry": entry,
            "strata": strata,
            "offset": offset,
            "exposure": exposure,
            "index": index,
        }
        if table.loss == "ordinal":  # an estimator that chooses h takes the classes as numbers from 0
            columns["classes"] = getattr(model, "classes_", np.arange(len(model.thresholds_) + 1)).tolist()
        content = content_of(model, recipe, **columns, data=facts)
        content["metrics"] = metrics = _metrics(SavedModel.of(content), model, train, test)
        content["certificate"] |= models.checks(model, X, train)
        say(model.summary())
        say("")
        _print_choice(model)
        _print_metrics(metrics, n, facts["test_rows"])
        proof = None if certify is None else options.certified(model, X, train, certify, certificate, jobs)
        if json is not None:
            common.write_json(json, content)
        if report is not None:
            options.model_report(report, model, X, train, content, file=json, certificate=proof)


def _check(h, alpha, l2, criterion, rule, folds, test_size, effort, seed, jobs):
    from ..selection.criteria import CRITERIA
    from ..selection.grid import RULES

    common.check_choice("--criterion", criterion, ("cv", *CRITERIA))
    common.check_choice("--rule", rule, RULES)
    common.check_choice("--effort", effort, common.EFFORTS)
    if "auto" not in (h, alpha, l2) and (criterion != "cv" or rule != "min"):
        raise BadInput("--criterion and --rule choose h, alpha or l2; use them with auto for one of these")
    if criterion != "cv" and rule != "min":
        raise BadInput(f"--rule {rule} needs folds; use it with --criterion cv")
    if folds < 2:
        raise BadInput(f"--folds must be 2 or more; got {folds}")
    if not 0 <= test_size < 1:
        raise BadInput(f"--test-size must be a fraction from 0 to below 1; got {test_size:g}")
    common.check_seed_and_jobs(seed, jobs)


def _split(data, test_size, seed):
    """The training rows, and the test rows or None; with the same share of each class in both."""
    if not test_size:
        return data, None
    import numpy as np
    from sklearn.model_selection import GroupShuffleSplit, train_test_split

    rows = np.arange(len(data.frame))
    classes = data.y if data.loss in ("logistic", "ordinal") else None
    try:
        if data.subjects is not None:
            shuffled = GroupShuffleSplit(1, test_size=test_size, random_state=seed)
            train, test = next(shuffled.split(rows, groups=data.subjects))
            return data.rows(train), data.rows(test)
        train, test = train_test_split(rows, test_size=test_size, random_state=seed, stratify=classes)
    except ValueError as error:
        raise BadInput(f"--test-size {test_size:g} cannot be used: {error}") from None
    return data.rows(train), data.rows(test)


def _metrics(saved, model, train, test):
    from .models import scores

    eta = saved.predictor(train.frame)[0] + (0.0 if train.offset is None else train.offset)
    metrics = {"train": scores(saved, eta, train.y, train.weights)}
    path = getattr(model, "score_path_", None)
    if path is not None:
        chosen = path[model.best_index_]
        metrics["cross_validation"] = {
            "score": "neg_mean_squared_error" if saved.loss == "quadratic" else "neg_mean_loss",
            "mean": float(chosen.mean()),
            "standard_error": float(chosen.std(ddof=1) / len(chosen) ** 0.5),
            "folds": len(chosen),
            "h": model.hs_.tolist(),
            "alpha": list(model.alphas_),
            "l2": list(model.l2s_),
            "scores": path.mean(axis=2).tolist(),
        }
    if test is not None:
        eta, notes = saved.predictor(test.frame)
        options.tell(notes)
        eta = eta if test.offset is None else eta + test.offset
        metrics["test"] = scores(saved, eta, test.y, test.weights)
    return metrics


def _print_choice(model):
    """Print the h, alpha and l2 that were chosen and how."""
    if hasattr(model, "hs_"):
        hs, alphas = model.hs_.tolist(), list(model.alphas_)
        grid = f"h = {hs[0]}" + (f" to {hs[-1]}" if len(hs) > 1 else "")
        if len(alphas) > 1:
            numbers = [alpha for alpha in alphas if alpha != "exact"]
            grid += f" and {len(alphas)} values of alpha ({numbers[0]:.3g} to {numbers[-1]:.3g})"
        grid += f" and {len(model.l2s_)} values of l2" if len(model.l2s_) > 1 else ""
        how = model.criterion
        if how == "cv":
            how = "cross-validation" + (f", rule {model.rule}" if model.rule != "min" else "")
        alpha = model.chosen_alpha_ if isinstance(model.chosen_alpha_, str) else f"{model.chosen_alpha_:.4g}"
        l2 = f", l2 = {model.l2_:.4g}" if len(model.l2s_) > 1 else ""
        say(f"chosen from {grid} by {how}: h = {model.h_}, alpha = {alpha}{l2}")


def _print_metrics(metrics, n_train, n_test):
    from .models import in_words

    rows = {"train": f"on the {n_train} training rows", "test": f"on {n_test} test rows"}
    for part, where in rows.items():
        if part in metrics:
            say(f"{where}: {in_words(metrics[part])}")
    found = metrics.get("cross_validation")
    if found:
        what = "mean squared error" if found["score"] == "neg_mean_squared_error" else "mean loss"
        say(f"in {found['folds']} folds: {what} {-found['mean']:.4g} +- {found['standard_error']:.3g}")
