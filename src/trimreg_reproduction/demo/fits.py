"""The demonstration: trimmed lasso, lasso and MCP on the diabetes data with all second-order terms.

A quarter of the 442 patients is the test set, which is not used for any choice. Columns are standardized by
the training set, so coefficients have comparable units. The alpha of the lasso and of MCP, and one of the
values of h, are chosen on the same five folds of the training set.

Every certificate in the table is recomputed from the data by :mod:`trimreg.diagnostics`, also for
scikit-learn's lasso: T is the squared distance of 0 from the subdifferential of the objective.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LassoCV
from sklearn.model_selection import GridSearchCV, KFold, train_test_split
from sklearn.preprocessing import StandardScaler

from trimreg import L1, MCP, MEstimator, TrimmedL1, TrimmedLasso, TrimmedLassoCV, solve
from trimreg.datasets import diabetes_interactions
from trimreg.diagnostics import best_swap, stationarity

from ..spec import BadInput

#: The values of h on the path, among which cross-validation chooses.
H_VALUES = tuple(range(1, 21))
SOLVERS = ("mm", "bcd", "dc", "prox")
#: The stages of :func:`run`; each is announced before it begins.
STAGES = (
    "reading the data", "trimmed lasso for h = 1 to 20", "choosing h by cross-validation",
    "choosing the lasso's alpha by cross-validation", "choosing MCP's alpha by cross-validation",
    "checking every fit from the data", "timing the solvers on one problem",
)  # fmt: skip


@dataclass(frozen=True)
class Fit:
    """The model of one method, in units of standardized columns, with its errors and certificates."""

    method: str
    chosen: str  # the setting, and how it was chosen
    coef: np.ndarray = field(repr=False)
    rmse: float  # on the test set, as r2
    r2: float
    stationarity: float  # T, recomputed from the training data
    swap_optimal: bool | None  # whether no exchange of two variables lowers the objective; trimmed lasso only

    @property
    def n_kept(self) -> int:
        return int(np.count_nonzero(self.coef))


@dataclass(frozen=True)
class Race:
    """Solvers on one problem: the objective and the time after every step, and whether each converged."""

    alpha: float  # a quarter of the smallest alpha at which the lasso selects nothing
    histories: dict[str, list[float]]
    seconds: dict[str, list[float]]
    converged: dict[str, bool]


@dataclass(frozen=True)
class Demo:
    """The results of the demonstration, for the tables and pictures.

    ``noise`` is two standard errors of the difference in test RMSE between the first method and another one
    (the largest of these). ``path`` has the coefficients of the trimmed lasso, one row per h of
    :data:`H_VALUES`.
    """

    h: int
    seed: int
    feature_names: list[str]
    n_train: int
    n_test: int
    fits: list[Fit]
    noise: float
    path: np.ndarray = field(repr=False)
    race: Race = field(repr=False)


@dataclass(frozen=True)
class _Data:
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    feature_names: list[str]
    folds: object


def check_arguments(h: int, seed: int) -> None:
    """Raise :class:`BadInput` unless :func:`run` accepts these arguments."""
    p = diabetes_interactions().X.shape[1]
    if not 1 <= h <= p:
        raise BadInput(f"h must be from 1 to {p}, the number of features; got {h}")
    if not 0 <= seed < 2**32:
        raise BadInput(f"seed must be from 0 to {2**32 - 1}; got {seed}")


def run(h: int = 10, seed: int = 0, progress: Callable[[str], None] | None = None) -> Demo:
    """Fit, choose, check and time, with at most h variables in the trimmed lasso.

    ``seed`` determines the split into training and test set and into folds. ``progress`` is called with each
    of :data:`STAGES` before it begins. :class:`BadInput` is raised if h or the seed is out of range.
    """
    stages = iter(STAGES)

    def announce():
        stage = next(stages)
        if progress is not None:
            progress(stage)

    check_arguments(h, seed)
    announce()
    data = _read(seed)
    announce()
    path = [_trimmed(data, k) for k in H_VALUES]
    announce()
    by_validation = _trimmed_by_validation(data)
    announce()
    lasso = _lasso(data)
    announce()
    mcp = _mcp(data, lasso.alphas_[1::2])
    announce()
    models = [
        ("trimmed lasso", f"h = {h}", path[h - 1] if h in H_VALUES else _trimmed(data, h)),
        ("trimmed lasso", f"h = {by_validation.h_} by CV", by_validation),
        ("lasso", f"alpha = {lasso.alpha_:.3g} by CV", lasso),
        ("MCP", f"alpha = {mcp.alpha:.3g} by CV", mcp),
    ]
    fits = [_checked(data, *model) for model in models]
    announce()
    return Demo(
        h, seed, data.feature_names, data.y.size, data.y_test.size, fits,
        noise=_noise(data, [model for _, _, model in models]),
        path=np.stack([model.coef_ for model in path]),
        race=_race(data, h, float(lasso.alphas_[0]) / 4),
    )  # fmt: skip


def _read(seed):
    X, y, names = diabetes_interactions()
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=seed)
    scaler = StandardScaler().fit(X)
    folds = KFold(5, shuffle=True, random_state=seed)
    return _Data(scaler.transform(X), y, scaler.transform(X_test), y_test, list(names), folds)


def _trimmed(data, h):
    return TrimmedLasso(h=h, standardize=False).fit(data.X, data.y)


def _trimmed_by_validation(data):
    return TrimmedLassoCV(hs=list(H_VALUES), l2s=0, cv=data.folds, standardize=False).fit(data.X, data.y)


def _lasso(data):
    centered = data.y - data.y.mean()
    largest = float(np.max(np.abs(data.X.T @ centered))) / data.y.size  # above it every coefficient is 0
    alphas = largest * np.geomspace(1.0, 0.01, 30)
    return LassoCV(alphas=alphas, cv=data.folds, tol=1e-8, max_iter=100_000).fit(data.X, data.y)


def _mcp(data, alphas):
    """MCP with the alpha that has the least squared error over the folds."""
    search = GridSearchCV(
        MEstimator(penalty=MCP()), {"alpha": list(alphas)}, cv=data.folds, scoring="neg_mean_squared_error"
    )
    return search.fit(data.X, data.y).best_estimator_


def _checked(data, method, chosen, model):
    """The errors of a model on the test set, and its certificates on the training set."""
    alpha = getattr(model, "alpha_", None)
    penalty = {"lasso": L1(), "MCP": MCP()}.get(method) or TrimmedL1(model.h_)
    where = {"penalty": penalty, "alpha": alpha, "intercept": model.intercept_, "fit_intercept": True}
    swap_optimal = None
    if method == "trimmed lasso":
        swap_optimal = not best_swap(data.X, data.y, model.coef_, **where)
    error = data.y_test - model.predict(data.X_test)
    rmse, r2 = float(np.sqrt(np.mean(error**2))), float(model.score(data.X_test, data.y_test))
    T = stationarity(data.X, data.y, model.coef_, **where)
    return Fit(method, chosen, np.array(model.coef_), rmse, r2, T, swap_optimal)


def _noise(data, models):
    """Two standard errors of the difference in RMSE to the first model, the largest over the other models.

    The difference of two mean squared errors is a mean over test samples, so its standard error is that of a
    mean; the factor 1/(2 RMSE), the derivative of the root, gives that of the RMSE.
    """
    squares = np.array([(data.y_test - model.predict(data.X_test)) ** 2 for model in models])
    difference = squares[1:] - squares[0]
    error = difference.std(axis=1, ddof=1) / np.sqrt(data.y_test.size)
    return float(np.max(2.0 * error / (2.0 * np.sqrt(squares[0].mean()))))


def _race(data, h, alpha):
    """Run the four solvers on the soft problem; all but ``mm``, which chooses its start, start from zero."""
    problem = {"penalty": TrimmedL1(h), "alpha": alpha, "fit_intercept": True, "tol": 1e-8}
    solve(data.X, data.y, **problem)  # compiles the kernels, or loads them; this is not timed
    histories, seconds, converged = {}, {}, {}
    for solver in SOLVERS:
        clock: list[float] = []
        start = time.perf_counter()

        def note(step, clock=clock, start=start):
            clock.append(time.perf_counter() - start)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the picture says it instead
            result = solve(data.X, data.y, **problem, solver=solver, max_iter=5000, callback=note)
        histories[solver], seconds[solver] = result.history["objective"], clock
        converged[solver] = result.converged
    return Race(alpha, histories, seconds, converged)
