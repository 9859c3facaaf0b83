"""Fitted models in JSON files that any version of the library, or any other program, can read.

The entries of a file: ``estimator``, ``loss``, ``estimates`` (a dispersion, thresholds), ``target``,
``event``, ``entry``, ``strata``, ``index``, ``classes``, ``h``, ``l2``, ``alpha`` (the number) and
``alpha_setting`` (as asked for), ``intercept``, ``coefficients`` (by feature, in the units of the data; with
several outputs by output and feature), ``bounds`` (of the features that have some; null is none),
``baseline`` (of a Cox model: for each stratum its ``times`` and ``log_cumulative_hazard``), ``support``,
``features``, ``columns`` (how columns of a table become features), ``metrics``, ``certificate``, ``data``,
``checksum`` (delete it if you change a file).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from .._files import BadInput, write_atomically
from ..losses import LOSSES, get_loss
from .columns import Column, Recipe, as_numbers, in_pandas
from .summary import plain
from .survival import curves, stratum_codes

FORMAT, FORMAT_VERSION = "trimreg model", 1
_FINITE = 1e300  # stands for infinity, which JSON does not have
_WRITTEN = "give one written by trimreg.save or trimreg fit --json"


def save(model: Any, path: str | os.PathLike) -> Path:
    """Write a fitted estimator of a linear predictor to a JSON file, for :func:`load`.

    The file holds what predictions need and the certificate of the fit, not the training data.

    Parameters
    ----------
    model : fitted estimator, or SavedModel
    path : path-like

    Returns
    -------
    pathlib.Path

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import trimreg
    >>> X = np.random.default_rng(0).standard_normal((50, 4))
    >>> model = trimreg.TrimmedLasso(h=1).fit(X, 2 * X[:, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = trimreg.load(trimreg.save(model, f"{folder}/model.json"))
    >>> np.allclose(again.predict(X), model.predict(X)), again.content["support"]
    (True, ['x1'])
    """
    content = model.content if isinstance(model, SavedModel) else content_of(model)
    return write_atomically(path, json_text(content).encode())


def load(path: str | os.PathLike) -> SavedModel:
    """Read a model from a file that :func:`save` or ``trimreg fit --json`` has written.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    SavedModel
        Its ``predict`` takes a data frame with the columns of the model, or a matrix with all features.
    """
    path = Path(path)
    if not path.is_file():
        raise BadInput(f"there is no file {str(path)!r}; {_WRITTEN}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not JSON ({error}); {_WRITTEN}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise BadInput(f"{path} holds no model; {_WRITTEN}")
    if content.get("format_version") != FORMAT_VERSION:
        found = content.get("format_version")
        raise BadInput(f"{path} has format {found}, but this version reads {FORMAT_VERSION}; fit again")
    checksum = content.pop("checksum", None)  # older files have none
    if checksum not in (None, _checksum(content)):
        raise BadInput(f"{path} is damaged: its content does not match its checksum; fit again")
    try:
        model = SavedModel.of(content)
        _check(model)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, StopIteration) as error:
        raise BadInput(f"{path} is damaged ({type(error).__name__}: {error}); fit again") from None
    return model


def _checksum(content: dict) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _check(model: SavedModel) -> None:
    """ValueError unless the entries of a file can predict; someone may have changed them."""
    _need(isinstance(model.loss, str) and model.loss in LOSSES, "loss", f"one of {sorted(LOSSES)}")
    kinds = ("target", "event", "entry", "strata", "offset", "exposure", "index")
    names = [model.content.get(kind) for kind in kinds]
    _need(all(name is None or isinstance(name, str) for name in names), f"{', '.join(kinds)}", "text")
    classes = model.classes
    plain = isinstance(classes, list) and all(isinstance(one, (str, int, float)) for one in classes)
    _need(classes is None or (plain and len(classes) > 1), "classes", "a list of labels")
    outputs = () if classes is None or len(classes) == 2 or model.loss == "ordinal" else (len(classes),)
    if classes is not None and model.loss == "ordinal":
        _need(
            len(model.fitted_loss().thresholds) == len(classes) - 1, "estimates", "thresholds of the classes"
        )
    if classes is None and model.coef.ndim == 2:  # several targets
        outputs = model.coef.shape[:1]
    shape = (*outputs, len(model.recipe.features))
    _need(model.coef.shape == shape and np.isfinite(model.coef).all(), "coefficients", "finite numbers")
    fits = model.intercept.shape in ((), outputs) and np.isfinite(model.intercept).all()
    _need(fits, "intercept", "finite, one per output")
    for part in model.content.get("baseline", []):
        times, logs = (np.array(part[name], dtype=float) for name in _CURVE)
        fits = times.ndim == 1 and times.shape == logs.shape and bool(np.isfinite(times + logs).all())
        _need(fits and bool((np.diff(times) > 0).all()), "baseline", "finite numbers at rising times")
    _need(len(set(model.recipe.features)) == len(model.recipe.features), "columns", "of different names")
    for name, pair in (model.content.get("bounds") or {}).items():  # older files have none
        numbers = [-np.inf if pair[0] is None else pair[0], np.inf if pair[1] is None else pair[1]]
        _need(name in model.recipe.features and numbers[0] <= numbers[1], "bounds", "two numbers by feature")
    for column in model.recipe.columns:
        number = column.levels is None
        levels = [] if column.levels is None else [*column.levels, column.base]
        texts = isinstance(column.name, str) and all(isinstance(level, str) for level in levels)
        kind = (int, float) if number else str
        filled = column.fill is None or (isinstance(column.fill, kind) and column.fill == column.fill)
        _need(texts and filled, "columns", "names, levels and values to fill in")


def _need(right: bool, entry: str, allowed: str) -> None:
    if not right:
        raise ValueError(f"{entry} must be {allowed}")


@dataclass(frozen=True)
class SavedModel:
    """A fitted model without its estimator.

    Attributes
    ----------
    loss : str
    target, event : str or None
        Names of the columns that were predicted; ``event`` is for Cox's model.
    classes : list or None
    coef : ndarray of shape (n_features,) or (n_outputs, n_features)
    intercept : ndarray of shape () or (n_outputs,)
    recipe : Recipe
        How the columns of a table become features.
    content : dict
        Everything in the file.
    """

    loss: str
    target: str | None
    event: str | None
    classes: list | None
    coef: np.ndarray
    intercept: np.ndarray
    recipe: Recipe
    content: dict = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, content: dict) -> SavedModel:
        """The model of a file with this content."""
        recipe, table = Recipe.from_list(content["columns"]), content["coefficients"]
        several = isinstance(next(iter(table.values())), dict)
        tables, features = list(table.values()) if several else [table], recipe.features
        _need(all(len(one) == len(features) for one in tables), "coefficients", "those of the columns")
        rows = [[one[name] for name in features] for one in tables]
        return cls(
            **{name: content[name] for name in ("loss", "target", "event", "classes")},
            coef=np.array(rows if several else rows[0], dtype=float),
            intercept=np.asarray(content["intercept"], dtype=float),
            recipe=recipe,
            content=content,
        )

    def predictor(self, X: Any) -> tuple[np.ndarray, list[str]]:
        """The linear predictors of the rows of X, and notes on its columns.

        Of a data frame, only the columns in the model are needed.
        """
        features = self.recipe.features
        notes: list[str] = []
        if hasattr(X, "columns"):
            used = np.flatnonzero(np.atleast_2d(self.coef).any(axis=0))
            X, notes = self.recipe.transform(X, only={features[j] for j in used})
        X = np.asarray(X, dtype=float)
        if X.ndim != 2 or X.shape[1] != len(features):
            raise ValueError(f"X must have the {len(features)} features of the model; got shape {X.shape}")
        return X @ self.coef.T + self.intercept, notes

    def offset(self, frame: Any) -> np.ndarray | float:
        """The offsets of the rows of a data frame, from the columns that the fit took; 0 without any."""
        known = offset_in(frame, self.content.get("offset"), self.content.get("exposure"))
        return 0.0 if known is None else known

    def table(self, eta: np.ndarray) -> dict[str, Any]:
        """The columns of a table of predictions, from linear predictors."""
        if self.loss == "cox":
            return {"log_risk": eta}
        if self.classes is None:
            with np.errstate(over="ignore"):
                return {"prediction": get_loss(self.loss).inverse_link(eta)}
        probability = self.probabilities(eta)
        chosen = [self.classes[k] for k in probability.argmax(axis=1)]
        names = [f"probability={name}" for name in self.classes]
        return {"prediction": chosen, **dict(zip(names, probability.T, strict=True))}

    def fitted_loss(self) -> Any:
        """The loss, with its other parameters as they were fitted."""
        loss = get_loss(self.loss)
        return type(loss)(**self.content.get("estimates", {})) if loss.has_nuisance else loss

    def probabilities(self, eta: np.ndarray) -> np.ndarray:
        """Probabilities of the classes from linear predictors."""
        return self.fitted_loss().probabilities(eta) if self.loss == "ordinal" else probabilities(eta)

    def predict(self, X: Any) -> np.ndarray:
        """The prediction for every row: a mean, a class, or with Cox's model the logarithm of the risk.

        A data frame needs the columns of the offset and the exposure that were used to fit; the rows of an
        array have none.
        """
        eta = self.predictor(X)[0] + (self.offset(X) if hasattr(X, "columns") else 0.0)
        return np.asarray(next(iter(self.table(eta).values())))

    def predict_survival_function(self, X: Any, times: Any = None, strata: Any = None) -> np.ndarray:
        """The probabilities of surviving beyond times, of shape (n_samples, n_times), with Cox's model.

        As :meth:`trimreg.TrimmedCoxRegressor.predict_survival_function`. A data frame needs the column of the
        strata that was used to fit, unless ``strata`` are given.
        """
        baseline = self.content.get("baseline")
        if baseline is None:
            raise ValueError(
                f"the file of this model ({self.loss}) has no baseline hazard; save a TrimmedCoxRegressor"
            )
        eta, column = self.predictor(X)[0], self.content.get("strata")
        if hasattr(X, "columns"):
            eta = eta + self.offset(X)
            strata = X[column].to_numpy() if strata is None and column in X else strata
        labels = np.array([part["stratum"] for part in baseline], dtype=object)
        codes = None if labels[0] is None else stratum_codes(strata, labels, len(eta))
        parts = {
            None if codes is None else k: tuple(np.array(part[name], dtype=float) for name in _CURVE)
            for k, part in enumerate(baseline)
        }
        return np.exp(-curves(parts, codes, eta, times))


_CURVE = ("times", "log_cumulative_hazard")


def offset_in(frame: Any, offset: str | None, exposure: str | None) -> np.ndarray | None:
    """The offsets in two columns of a data frame, the logarithm of the second one; None without either."""
    total = None
    for kind, name in (("offset", offset), ("exposure", exposure)):
        if name is None:
            continue
        frame = in_pandas(frame)
        if name not in frame:
            raise BadInput(f"there is no column {name!r}, which holds the {kind}")
        values = as_numbers(frame[name]).to_numpy(dtype=float)
        good = np.isfinite(values) & ((values > 0) | (kind == "offset"))
        if not good.all():
            rule = "finite numbers" + " > 0" * (kind == "exposure")
            raise BadInput(f"the {kind} {name!r} must hold {rule}; got {values[~good][0]:g}")
        values = np.log(values) if kind == "exposure" else values
        total = values if total is None else total + values
    return total


def probabilities(eta: np.ndarray) -> np.ndarray:
    """Probabilities of the classes; if eta is a vector, it is the log-odds of the second of two."""
    from scipy.special import expit, softmax

    return np.column_stack([expit(-eta), expit(eta)]) if eta.ndim == 1 else softmax(eta, axis=1)


def content_of(model: Any, recipe: Recipe | None = None, **more: Any) -> dict:
    """The content of the file of a fitted model; ``more`` replaces or adds entries."""
    loss = getattr(model, "loss_name_", None)
    if loss not in LOSSES:
        raise ValueError(
            f"model must be a fitted estimator of this library with one of the losses {sorted(LOSSES)}; "
            f"got {type(model).__name__} with {'no loss' if loss is None else repr(loss)}"
        )
    coef, intercept = np.asarray(model.coef_, dtype=float), np.asarray(model.intercept_, dtype=float)
    if coef.ndim == 2 and coef.shape[0] == 1:
        coef, intercept = coef[0], intercept.ravel()[0]
    if recipe is None:
        names = getattr(model, "feature_names_in_", [f"x{j}" for j in range(coef.shape[-1])])
        recipe = Recipe(tuple(Column(str(name)) for name in names))
    classes = model.classes_.tolist() if hasattr(model, "classes_") else None
    labels = range(len(coef)) if classes is None else classes
    rows = [dict(zip(recipe.features, row, strict=True)) for row in np.atleast_2d(coef).tolist()]
    result = model.result_
    if hasattr(model, "_baseline"):
        more = {"baseline": _baseline_of(model)} | more
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "version": version("trimreg"),
        "estimator": type(model).__name__,
        "loss": loss if classes is None or loss == "ordinal" else "logistic",
        "estimates": {name: np.clip(one, -_FINITE, _FINITE) for name, one in model._estimates.items()},
        "target": None,
        "event": None,
        "classes": classes,
        "h": model.h_,
        "alpha": model.alpha_,
        "l2": model.l2_,
        "alpha_setting": model.chosen_alpha_ if hasattr(model, "chosen_alpha_") else model.alpha,
        "intercept": intercept,
        "coefficients": rows[0] if coef.ndim == 1 else dict(zip(map(str, labels), rows, strict=True)),
        "bounds": None if model.bounds_ is None else _bounds_of(model, recipe.features),
        "support": [recipe.features[j] for j in model.support_],
        "features": recipe.features,
        "columns": recipe.to_list(),
        "metrics": {},
        "certificate": {
            "converged": result.converged,
            "message": result.message,
            "iterations": result.n_iter,
            "objective": result.objective,
            "stationarity": result.stationarity,
            "swap_optimal": result.swap_optimal,
            "checks": {},
        },
        "data": {},
    } | more


def _bounds_of(model: Any, features: list[str]) -> dict[str, list]:
    """The lower and the upper bound of every feature that has one; an infinite one is null in the file."""
    pairs = zip(*(end.tolist() for end in model.bounds_), strict=True)
    finite = ((name, pair) for name, pair in zip(features, pairs, strict=True) if np.isfinite(pair).any())
    return {name: [end if abs(end) < np.inf else None for end in pair] for name, pair in finite}


def _baseline_of(model: Any) -> list[dict]:
    """The baseline of every stratum of a Cox model, in plain numbers."""
    labels = [None] if model.strata_ is None else model.strata_.tolist()
    parts = [
        model._baseline.get(None if label is None else k, (np.empty(0),) * 2)
        for k, label in enumerate(labels)
    ]
    return [
        {"stratum": label} | {name: part.tolist() for name, part in zip(_CURVE, two, strict=True)}
        for label, two in zip(labels, parts, strict=True)
    ]


def json_text(content: dict) -> str:
    """The content as JSON; NumPy's types become Python's, and numbers that are not finite become null."""

    def finite(value):
        return None if isinstance(value, float) and not abs(value) < float("inf") else value

    content = plain(content, finite)
    if content.get("format") == FORMAT:
        content["checksum"] = _checksum(content)
    # One entry per line by the separator: the encoder's own indent is several times slower.
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",\n    ", ": ")).encode
    lines = []
    for name, value in content.items():
        text = encode(value)
        if value and isinstance(value, (dict, list)):
            text = f"{text[0]}\n    {text[1:-1]}\n  {text[-1]}"
        lines.append(f"  {encode(name)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
