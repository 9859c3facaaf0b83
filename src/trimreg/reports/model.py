"""The page of one fitted model: its settings, coefficients, choice of h and alpha, and certificates."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..diagnostics import best_swap, is_local_minimum, stationarity
from ..estimators.survival import curves
from ..losses import get_loss
from ..penalties import TrimmedL1
from . import pages
from .charts import Chart, bar_json, chart_json, heat_json

_BARS = 30  # coefficients in the chart
_PATHS = 12  # paths in the chart
_TIMES, _CURVES = 200, 6  # of survival curves
_LOSSES = {"cox": "Cox", "poisson": "Poisson", "gamma": "Gamma", "huber": "Huber"}
_ALPHAS = 6  # alphas up to which each has a line of scores


def write_model_report(
    model: Any, out: str | Path, *, X: Any = None, y: Any = None, sample_weight: Any = None,
    offset: Any = None, target: str | None = None, data: str | None = None, path: Any = None,
    scores: Mapping | None = None, notes: Sequence[str] = (), load: str | None = None,
    saved: tuple[str, str] | None = None, command: str | None = None, title: str | None = None,
    certificate: Any = None,
) -> Path:  # fmt: skip
    """Write the page of a fitted estimator of this library.

    Parameters
    ----------
    model : fitted estimator
        Linear or graphical, with or without cross-validation.
    out : path-like
        The page, which is written atomically.
    X, y, sample_weight, offset : array-like, optional
        The training data. With them the certificates are recomputed from the data.
    target, data : str, optional
        The names of the target and of the file, for the reader.
    path : TrimmedPath, optional
        Fits over h, if the model has no path.
    scores : mapping of str to number, optional
        For example ``{"R2 on the test set": 0.48}``.
    notes : sequence of str
        Sentences about the preparation of the data.
    load : str, optional
        Code that loads the model. By default code that fits it again.
    saved : (str, str), optional
        The name and the text of the model's file, which the page offers for download.
    command : str, optional
        The command that wrote the page.
    title : str, optional
    certificate : Certificate, optional
        What ``model.certify`` found: a row among the certificates, and a chart of both bounds.

    Returns
    -------
    pathlib.Path

    Notes
    -----
    Names may come from a file that is not trusted. All text is escaped for HTML and for the charts.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from trimreg import TrimmedLasso
    >>> from trimreg.reports import write_model_report
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((50, 5))
    >>> y = 2 * X[:, 1] + rng.standard_normal(50)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_model_report(TrimmedLasso(h=1).fit(X, y), f"{folder}/model.html", X=X, y=y)
    ...     "TrimmedLasso" in page.read_text()
    True
    """
    summary = model.summary(max_rows=None).to_dict()
    name, what = type(model).__name__, type(model).__name__
    if name in ("MEstimator", "MEstimatorCV"):
        words = model.loss_name_.replace("_", " ")
        what = f"Trimmed {_LOSSES.get(model.loss_name_, words)} model"
        name = f"{name}(loss={model.loss_name_!r})"
    if title is None:
        title = f"{what} of {target}" if target else what
    groups = {"choice": score_charts(model), "coefficients": _coefficient_charts(summary)}
    groups["survival"] = survival_charts(model, X)
    groups["path"] = path_charts(model, path)
    groups["bounds"] = [] if certificate is None else [bound_chart(certificate)]
    charts: list[dict] = []
    places = {}
    for key, group in groups.items():
        places[key] = list(range(len(charts), len(charts) + len(group)))
        charts += group
    rows = [
        {"name": row} | {header: values[k] for header, values in summary["columns"].items()}
        for k, row in enumerate(summary["names"])
    ]
    about = {"data": data, "target": target} | summary["facts"]
    # NaN stands for a certificate that was not computed.
    about = {key: value for key, value in about.items() if value is not None and value == value}
    is_graph = hasattr(model, "certificate")
    checks = diagnostics(model, X, y, sample_weight, offset)
    return pages.write_page(
        out, "model.html", title=title, charts=charts, places=places, estimator=name, about=about,
        rows_are="Edges" if is_graph else "Coefficients", picture=_network(model) if is_graph else None,
        scores=dict(scores or {}), notes=list(notes),
        table=pages.table(rows, "Coefficients") if rows else None,
        checks=pages.table(checks + _optimality(certificate), "Certificates"),
        recomputed=X is not None or is_graph,
        load=refit_code(model, data, target, prepared=bool(notes)) if load is None else load,
        saved=None if saved is None else _as_link(*saved), command=command,
    )  # fmt: skip


def _as_link(name, text):
    """A file inside the page: its name, and a data address with its content."""
    return {"name": name, "href": "data:application/json;base64," + b64encode(text.encode()).decode("ascii")}


# -- the choice of h and alpha ----------------------------------------------------------------------------


def score_charts(model: Any) -> list[dict]:
    """Charts of the scores or the criterion over h and alpha; none for a model without such a choice."""
    if not hasattr(model, "hs_"):
        return []
    if hasattr(model, "score_path_"):
        what, scores = "score", model.score_path_
        label = "mean score of the folds (greater is better)"
        if hasattr(model, "mse_path_"):
            what, scores, label = "error", model.mse_path_, "mean squared error of the folds"
        folds = scores.shape[2]
        values = scores.mean(axis=2)
        error = scores.std(axis=2, ddof=1) / np.sqrt(folds) if folds > 1 else None
    elif hasattr(model, "criterion_path_"):
        what, label = str(model.criterion), f"{model.criterion} (smaller is better)"
        values, error = model.criterion_path_, None
    else:
        return []
    hs, alphas = [int(h) for h in model.hs_], [_alpha_text(alpha) for alpha in model.alphas_]
    i, j = model.best_index_
    lines = []
    for k in _shown_alphas(len(alphas), j):
        one = {"name": f"alpha {alphas[k]}", "x": hs, "y": values[:, k]}
        if error is not None and (len(alphas) <= 2 or k == j):
            one |= {"low": values[:, k] - error[:, k], "high": values[:, k] + error[:, k]}
        lines.append(one)
    lines.append({"name": f"chosen: h = {hs[i]}", "x": [hs[i]], "y": [values[i, j]]})
    within = "; the band is one standard error" if error is not None else ""
    charts = [chart_json(Chart(f"The {what} over h{within}", "h", label, lines))]
    if len(alphas) > 1 and len(hs) > 1:
        title = f"The {what} over h and alpha; the circle is the choice"
        labels = {"x_label": "alpha", "y_label": "h", "value_label": what}
        charts.append(heat_json(title, alphas, hs, values, **labels, chosen=(alphas[j], hs[i])))
    return charts


def _shown_alphas(count, chosen):
    """The alphas with a line: all if there are few, otherwise an even selection and the chosen one."""
    if count <= _ALPHAS:
        return list(range(count))
    return sorted({*np.linspace(0, count - 1, _ALPHAS - 1).round().astype(int).tolist(), int(chosen)})


def _alpha_text(alpha):
    return alpha if isinstance(alpha, str) else f"{alpha:.4g}"


# -- coefficients ---------------------------------------------------------------------------------------


def _coefficient_charts(summary) -> list[dict]:
    """A chart of the largest coefficients as bars, in comparable units if there are any."""
    columns, names = summary["columns"], summary["names"]
    known = ("standardized", "norm", "partial correlation", "coef")
    key = next((one for one in known if one in columns), None)
    if key is None or not names:
        return []
    labels = {
        "standardized": "standardized coefficient", "norm": "norm of the standardized coefficients",
        "coef": "coefficient",
    }  # fmt: skip
    order = sorted(range(len(names)), key=lambda k: -abs(columns[key][k]))[:_BARS]
    title = "Sizes" if len(order) == len(names) else f"The {len(order)} largest of {len(names):,}"
    values = [columns[key][k] for k in order]
    return [bar_json(title, [names[k] for k in order], values, x_label=labels.get(key, key))]


def path_charts(model: Any, path: Any = None) -> list[dict]:
    """A chart of coefficients over h at the chosen alpha, with a mark at the h of the model.

    It has a line for each feature of the model, and for others with large coefficients.
    """
    path = getattr(model, "path_", None) if path is None else path
    if path is None or not hasattr(path, "coefs") or len(path.hs) < 2:
        return []
    j = model.best_index_[1] if hasattr(model, "best_index_") and path is getattr(model, "path_", None) else 0
    coefs = np.asarray(path.coefs[:, j], dtype=float) * getattr(model, "feature_deviation_", 1.0)
    several = coefs.ndim == 3  # the axis of outputs is between h and the features
    values = np.sqrt((coefs**2).sum(axis=1)) if several else coefs
    names = getattr(model, "feature_names_in_", [f"x{k}" for k in range(values.shape[1])])
    size = np.abs(values).max(axis=0)
    ranked = np.argsort(-size, kind="stable")
    ranked = ranked[size[ranked] > 0]
    if not ranked.size:
        return []
    hs = [int(h) for h in path.hs]
    kept = np.isin(ranked, model.support_)
    ranked_first = np.concatenate([ranked[kept], ranked[~kept]])[: max(_PATHS, kept.sum())]
    lines = [{"name": str(names[k]), "x": hs, "y": values[:, k]} for k in ranked_first]
    rest = f" ({len(lines)} of {ranked.size:,})" if ranked.size > len(lines) else ""
    what = "norm of standardized coefficients" if several else "standardized coefficient"
    title = f"Coefficients over h{rest}, alpha {_alpha_text(path.alphas[j])}"
    chart = chart_json(Chart(title, "h", what, lines))
    if model.h_ is not None and hs[0] <= model.h_ <= hs[-1]:
        chart["layout"] |= _mark(int(model.h_))
    return [chart]


def _mark(h):
    """A vertical line at the h of the model, for the layout of a chart."""
    line = {"type": "line", "x0": h, "x1": h, "yref": "paper", "y0": 0, "y1": 1, "line": {"dash": "dot"}}
    label = {"text": f"h = {h}", "textposition": "end", "textangle": 0, "xanchor": "right"}
    return {"shapes": [line | {"label": label}]}


def network_figure(model: Any) -> Any:
    """A matplotlib figure of a fitted graph."""
    from matplotlib.figure import Figure

    from ..plotting import network

    figure = Figure(figsize=(6.4, 6.6), layout="constrained")
    # A dollar sign would start a formula.
    name = _names(model)
    names = [name(k).replace("$", r"\$") for k in range(len(model.partial_correlation_))]
    network(model.partial_correlation_, names, ax=figure.subplots())
    return figure


def _network(model):
    """The graph as an image, or None without matplotlib."""
    try:
        return pages.svg_image(network_figure(model))
    except ImportError:
        return None


def survival_charts(model: Any, X: Any) -> list[dict]:
    """Survival curves of a Cox model at three risks of the samples, or at the median risk in a few strata."""
    if X is None or not hasattr(model, "_baseline"):
        return []
    eta = np.asarray(model.predict(X), dtype=float)
    times = np.unique(np.concatenate([at for at, _ in model._baseline.values()]))
    if times.size > _TIMES:
        times = times[np.linspace(0, times.size - 1, _TIMES).round().astype(int)]
    if model.strata_ is None:
        names, codes = ["low risk (10 %)", "median risk", "high risk (90 %)"], None
        eta = np.quantile(eta, [0.1, 0.5, 0.9])
    else:
        names = [str(label) for label in model.strata_[:_CURVES]]
        codes, eta = np.arange(len(names)), np.full(len(names), np.median(eta))
    survival = np.exp(-curves(model._baseline, codes, eta, times))
    corners = np.append(min(0.0, times[0]), np.repeat(times, 2))  # the curves are steps
    lines = [
        {"name": name, "x": corners, "y": np.append([1.0, 1.0], np.repeat(curve, 2)[:-1])}
        for name, curve in zip(names, survival, strict=True)
    ]
    of = "" if codes is None else f" at the median risk ({len(names)} of {model.strata_.size} strata)"
    return [chart_json(Chart(f"Survival{of}", "time", "probability of no event until then", lines))]


def bound_chart(certificate: Any) -> dict:
    """Both bounds of a certificate of global optimality over time."""
    history = certificate.history
    lines = [
        {"name": f"{one} bound", "x": history["seconds"], "y": history[one]} for one in ("upper", "lower")
    ]
    return chart_json(Chart("Bounds of the smallest objective", "seconds", "objective", lines))


def _optimality(certificate):
    if certificate is None:
        return []
    found = f"within {100 * certificate.gap:.2g} %"
    meaning = "no fit with as many free coefficients has an objective smaller by more than this"
    return [_row("global optimum", found, meaning)]


# -- certificates ---------------------------------------------------------------------------------------


def diagnostics(
    model: Any, X: Any = None, y: Any = None, sample_weight: Any = None, offset: Any = None
) -> list[dict]:
    """The certificates of a fit, one row each with ``check``, ``value`` and ``meaning``."""
    result = model.result_
    rows = [_row("solver", "converged" if result.converged else "not converged", result.message)]
    if hasattr(model, "certificate"):
        return rows + _graph_checks(model.certificate())
    measured = model.stationarity_
    problem = None
    if X is not None and y is not None and not len(model.outliers_):
        X = np.asarray(X, dtype=float) if hasattr(X, "columns") else X
        problem = model.problem(X, y, sample_weight, offset)
    if problem is not None:
        weights = model.trim_weights_ if isinstance(problem["penalty"], TrimmedL1) else None
        measured = stationarity(**problem, weights=weights)
    meaning = "squared distance of 0 from the subdifferential of the objective"
    rows.append(_row("stationarity", measured, meaning))
    if problem is not None:
        return rows + _point_checks(problem, _names(model))
    if result.swap_optimal is not None:
        found = "none improves" if result.swap_optimal else "one improves"
        rows.append(_row("exchange", found, "as solved"))
    return rows


def _point_checks(problem, names):
    if not isinstance(problem["penalty"], TrimmedL1):
        return []
    point = is_local_minimum(**problem, tol=1e-4)
    where = "" if point.coordinate is None else f"{names(point.coordinate)}: "
    meaning = "all conditions hold to 1e-4" if point else f"{where}{point.reason}"
    rows = [_row("local minimum", "yes" if point else "not certified", meaning)]
    simple = problem["penalty"].groups is None and np.ndim(problem["coef"]) == 1
    if get_loss(problem["loss"]).name != "quadratic" or not simple:
        return rows
    swap = best_swap(**problem)
    if swap:
        gone = "nothing" if swap.leaves is None else names(swap.leaves)
        meaning = f"{names(swap.enters)} in place of {gone} lowers the objective by {swap.gain:.3g}"
        return [*rows, _row("exchange", "one improves", meaning)]
    scored = "all exchanges of one feature for another were scored"
    return [*rows, _row("exchange", "none improves", scored if swap.exact else "by bounds; others may exist")]


def _graph_checks(found):
    words = {True: "yes", False: "no", None: "not decided"}
    return [
        _row("stationarity", found.stationarity, "squared distance of 0 from the subdifferential"),
        _row("duality gap", found.relative_gap, "relative duality gap of the weighted problem"),
        _row("positive definite", found.positive_definite, f"condition {found.condition:.3g}"),
        _row("local minimum", words[found.local_minimum], found.reason),
    ]


def _row(check, value, meaning):
    return {"check": check, "value": value, "meaning": meaning}


def _names(model):
    names = getattr(model, "feature_names_in_", None)
    return lambda k: f"x{k}" if names is None else str(names[k])


# -- code -----------------------------------------------------------------------------------------------


def refit_code(model: Any, data: str | None, target: str | None, prepared: bool = False) -> str:
    """Python code that fits the model again to the column ``target`` of the file ``data``.

    Names are Python literals. If the columns were ``prepared``, a comment in the code says so.
    """
    name = type(model).__name__
    defaults = type(model)().get_params(deep=False)
    given = {k: v for k, v in model.get_params(deep=False).items() if not _same(v, defaults[k])}
    given = {key: value for key, value in given.items() if key not in ("n_jobs", "verbose")}
    arguments = ", ".join(f"{key}={_code(value)}" for key, value in given.items())
    reader = "read_parquet" if str(data).endswith(".parquet") else "read_csv"
    lines = ["import pandas", *_imports(given.values()), f"from trimreg import {name}", ""]
    lines.append(f"table = pandas.{reader}({str(data or 'data.csv')!r})")
    if prepared:
        lines.append("# prepare the columns as the notes at the top of this page say")
    if hasattr(model, "certificate"):
        return "\n".join([*lines, f"model = {name}({arguments}).fit(table)"])
    column = str(target or "y")
    lines.append(f"X, y = table.drop(columns=[{column!r}]), table[{column!r}]")
    return "\n".join([*lines, f"model = {name}({arguments}).fit(X, y)"])


def _code(value):
    """An expression with that value; arrays are written as lists in full."""
    return repr(value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value)


def _imports(values):
    """Lines that import the classes of the values, if they are scikit-learn's or this library's."""
    found = {}
    for value in values:
        room = ".".join(part for part in type(value).__module__.split(".") if not part.startswith("_"))
        if room.startswith("sklearn."):
            found[f"from {room} import {type(value).__name__}"] = None
        elif room.startswith("trimreg."):
            found[f"from {room.rsplit('.', 1)[0]} import {type(value).__name__}"] = None
    return sorted(found)


def _same(value, default):
    return value is default or (type(value) is type(default) and repr(value) == repr(default))
