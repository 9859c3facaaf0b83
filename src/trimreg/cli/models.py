"""Models of tables: which estimator, how good it is, and a file that gives it back.

The file is JSON. ``trimreg predict`` reads it, and so does :func:`load_model`::

    from trimreg.cli.models import load_model
    model = load_model("model.json")
    model.predict(frame)          # a data frame with the columns that the model uses
    model.content["coefficients"]

Its entries: ``loss``, ``target``, ``h``, ``alpha`` (the number) and ``alpha_setting`` (what was asked for),
``intercept``, ``coefficients`` (by feature, in the units of the data; by class and feature for more than two
classes), ``features``, ``columns`` (how columns of the table become features), ``classes``, ``metrics``,
``certificate``, ``data``, ``estimator``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from .common import BadInput
from .tables import Recipe

FORMAT, FORMAT_VERSION = "trimreg model", 1
_PLAIN = {
    "quadratic": "TrimmedLasso",
    "logistic": "TrimmedLogisticRegression",
    "poisson": "TrimmedPoissonRegressor",
    "gamma": "TrimmedGammaRegressor",
    "huber": "TrimmedHuberRegressor",
    "cox": "TrimmedCoxRegressor",
}
_CHOOSING = {"quadratic": "TrimmedLassoCV", "logistic": "TrimmedLogisticRegressionCV"}


def build(loss, h, alpha, *, folds=5, rule="min", criterion=None, seed=0, jobs=None, **options):
    """The estimator for a loss; one that chooses where h or alpha is ``"auto"``.

    Folds are shuffled, for the rows of a file are often sorted.

    Examples
    --------
    >>> from trimreg.cli.models import build
    >>> type(build("poisson", 3, "exact")).__name__, type(build("logistic", "auto", "exact")).__name__
    ('TrimmedPoissonRegressor', 'TrimmedLogisticRegressionCV')
    """
    from .. import estimators, selection

    if "auto" not in (h, alpha):
        return getattr(estimators, _PLAIN[loss])(h=h, alpha=alpha, random_state=seed, **options)
    from sklearn.model_selection import KFold, StratifiedKFold

    splitter = StratifiedKFold if loss == "logistic" else KFold
    kind = getattr(selection, _CHOOSING.get(loss, "MEstimatorCV"))
    if loss not in _CHOOSING:
        options["loss"] = loss
    return kind(
        hs="auto" if h == "auto" else [h],
        alphas=alpha if isinstance(alpha, str) else [alpha],
        cv=splitter(folds, shuffle=True, random_state=seed),
        rule=rule,
        criterion=criterion,
        n_jobs=jobs,
        verbose=1,
        random_state=seed,
        **options,
    )


# -- the file -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SavedModel:
    """A fitted model without its estimator: what predictions need.

    Attributes
    ----------
    loss, target : str
    event : str or None
        Of Cox's model.
    classes : list or None
    coef : ndarray of shape (n_features,) or (n_classes, n_features)
    intercept : ndarray of shape () or (n_classes,)
    recipe : Recipe
    content : dict
        All of the file.
    """

    loss: str
    target: str
    event: str | None
    classes: list | None
    coef: np.ndarray
    intercept: np.ndarray
    recipe: Recipe
    content: dict = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, model, loss, target, event, recipe) -> SavedModel:
        """From a fitted estimator."""
        coef, intercept = np.asarray(model.coef_, dtype=float), np.asarray(model.intercept_, dtype=float)
        classes = None
        if loss == "logistic":
            classes = model.classes_.tolist()
            if len(classes) == 2:
                coef, intercept = coef.ravel(), intercept.ravel()[0]
        return cls(loss, target, event, classes, coef, np.asarray(intercept), recipe)

    def predictor(self, frame):
        """The linear predictor of these rows, and notes; only columns in the model need be there."""
        used = np.atleast_2d(self.coef).any(axis=0)
        features = self.recipe.features
        X, notes = self.recipe.transform(frame, only={features[j] for j in np.flatnonzero(used)})
        return X.to_numpy() @ self.coef.T + self.intercept, notes

    def table(self, eta) -> dict:
        """The columns of a table of predictions."""
        if self.loss == "cox":
            return {"log_risk": eta}
        if self.loss != "logistic":
            from ..losses import get_loss

            with np.errstate(over="ignore"):
                return {"prediction": get_loss(self.loss).inverse_link(eta)}
        probability = probabilities(eta)
        chosen = [self.classes[k] for k in probability.argmax(axis=1)]
        names = [f"probability={name}" for name in self.classes]
        return {"prediction": chosen, **dict(zip(names, probability.T, strict=True))}

    def predict(self, frame):
        """The prediction for every row: a mean, a class, or of Cox's model the logarithm of the risk."""
        return np.asarray(next(iter(self.table(self.predictor(frame)[0]).values())))

    def scores(self, eta, y) -> dict:
        """How well predictors do on these targets; see :func:`scores`."""
        return scores(self.loss, eta, y, self.classes)


def probabilities(eta) -> np.ndarray:
    """Probabilities of the classes: of the second alone if eta is a vector.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.cli.models import probabilities
    >>> probabilities(np.array([0.0, 1000.0]))
    array([[0.5, 0.5],
           [0. , 1. ]])
    """
    from scipy.special import expit, softmax

    return np.column_stack([expit(-eta), expit(eta)]) if eta.ndim == 1 else softmax(eta, axis=1)


def scores(loss, eta, y, classes=None) -> dict:
    """Measures of a prediction by name.

    R^2 and root mean squared error; mean absolute error too for Huber's loss; the share of deviance explained
    for counts and positive targets; accuracy, log loss and (of two classes) area under the ROC curve;
    Harrell's concordance for survival times.

    Examples
    --------
    >>> import numpy as np
    >>> from trimreg.cli.models import scores
    >>> scores("quadratic", np.array([1.0, 2.0]), np.array([1.0, 4.0]))["rmse"].round(3)
    np.float64(1.414)
    """
    if loss == "cox":
        from ..estimators.survival import concordance_index

        return {"concordance": concordance_index(eta, y[:, 0], y[:, 1] > 0)}
    from sklearn import metrics

    if loss == "logistic":
        codes = np.searchsorted(classes, y)
        probability = probabilities(eta)
        found = {
            "accuracy": float(np.mean(probability.argmax(axis=1) == codes)),
            "log_loss": metrics.log_loss(codes, probability, labels=np.arange(len(classes))),
        }
        if len(classes) == 2 and np.unique(codes).size == 2:
            found["auc"] = metrics.roc_auc_score(codes, eta)
        return found
    from ..losses import get_loss

    with np.errstate(over="ignore", invalid="ignore"):  # a log link, far from the rows that were fitted
        mean = get_loss(loss).inverse_link(eta)
        error = y - mean
        found = {"rmse": np.sqrt(np.mean(error**2))}
    if loss == "huber":
        found["mae"] = np.mean(np.abs(error))
    if not np.isfinite(found["rmse"]) or np.ptp(y) == 0:
        return found  # shares of a variance, which there is not
    if loss in ("poisson", "gamma"):
        found["d2"] = metrics.d2_tweedie_score(y, mean, power=1 if loss == "poisson" else 2)
    else:
        found["r2"] = metrics.r2_score(y, mean)
    return found


def certificate(model, X, y) -> dict:
    """What is known of the solution: what the solver says, and checks made again from the data."""
    from ..reports.model import diagnostics

    result = model.result_
    checks = {row["check"]: row["value"] for row in diagnostics(model, X, y)}
    checks.pop("solver")
    return {
        "converged": result.converged,
        "message": result.message,
        "iterations": result.n_iter,
        "objective": result.objective,
        "stationarity": checks.pop("stationarity"),
        "swap_optimal": result.swap_optimal,
        "checks": checks,
    }


def content_of(saved: SavedModel, model, X, y, *, alpha_setting, metrics, data) -> dict:
    """All that goes into the file."""
    from .. import __version__

    features = saved.recipe.features
    if saved.coef.ndim == 1:
        coefficients = dict(zip(features, saved.coef.tolist(), strict=True))
    else:
        rows = (dict(zip(features, row, strict=True)) for row in saved.coef.tolist())
        coefficients = dict(zip(map(str, saved.classes), rows, strict=True))
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "version": __version__,
        "estimator": type(model).__name__,
        "loss": saved.loss,
        "target": saved.target,
        "event": saved.event,
        "classes": saved.classes,
        "h": model._facts["h"],
        "alpha": model.alpha_,
        "alpha_setting": alpha_setting,
        "intercept": saved.intercept,
        "coefficients": coefficients,
        "support": [features[j] for j in model.support_],
        "features": features,
        "columns": saved.recipe.to_list(),
        "metrics": metrics,
        "certificate": certificate(model, X, y),
        "data": data,
    }


def load_model(path) -> SavedModel:
    """The model in a file that ``trimreg fit --json`` wrote; :class:`BadInput` if there is none."""
    path = Path(path)
    if not path.is_file():
        raise BadInput(f"there is no file {str(path)!r}; write one by trimreg fit --json")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} is no JSON ({error}); give a file of trimreg fit --json") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise BadInput(f"{path} holds no model; give a file of trimreg fit --json")
    if content.get("format_version") != FORMAT_VERSION:
        raise BadInput(
            f"{path} is of format {content.get('format_version')}, this version reads {FORMAT_VERSION}; "
            "fit again"
        )
    try:
        recipe = Recipe.from_list(content["columns"])
        table, features, classes = content["coefficients"], recipe.features, content["classes"]
        rows = table if classes is None or len(classes) == 2 else [table[str(name)] for name in classes]
        coef = (
            np.array([rows[name] for name in features], dtype=float)
            if isinstance(rows, dict)
            else np.array([[row[name] for name in features] for row in rows], dtype=float)
        )
        return SavedModel(
            content["loss"], content["target"], content["event"], classes, coef,
            np.asarray(content["intercept"], dtype=float), recipe, content,
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(f"{path} is damaged ({type(error).__name__}: {error}); fit again") from None
