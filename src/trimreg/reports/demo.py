r"""The demonstration: trimmed lasso, lasso and MCP on the diabetes data with all second-order terms.

A quarter of the 442 patients is set aside as a test set, on which nothing is chosen. Columns are standardized
by the training set, so coefficients are in comparable units. Whatever has to be chosen, the alpha of the
lasso and of MCP or an h, is chosen by the same five folds of the training set.

Every certificate in the table is recomputed from the data by :mod:`trimreg.diagnostics`, for scikit-learn's
lasso as for our own: T is the squared distance of 0 from the subdifferential of the objective.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

#: The trimming parameters of the path, and those that cross-validation chooses from.
H_VALUES = tuple(range(1, 21))
SOLVERS = ("mm", "bcd", "dc", "prox")
#: What :func:`run` does, in order; each is announced before it begins.
STAGES = (
    "reading the data",
    "trimmed lasso for h = 1 to 20",
    "choosing h by cross-validation",
    "choosing the lasso's alpha by cross-validation",
    "choosing MCP's alpha by cross-validation",
    "checking every fit from the data",
    "timing the solvers on one problem",
)


class BadInput(ValueError):
    """An argument that cannot be used; the message says what to change."""


@dataclass(frozen=True)
class Fit:
    """One method's model, in units of standardized columns, and how it did.

    Attributes
    ----------
    method : str
    chosen : str
        The setting, and how it was come by.
    coef : ndarray of shape (n_features,)
    rmse, r2 : float
        On the test set.
    stationarity : float
        T, recomputed from the training data.
    swap_optimal : bool or None
        Whether no exchange of one variable for another lowers the objective; None where that is no question.
    """

    method: str
    chosen: str
    coef: np.ndarray = field(repr=False)
    rmse: float
    r2: float
    stationarity: float
    swap_optimal: bool | None

    @property
    def n_kept(self) -> int:
        return int(np.count_nonzero(self.coef))


@dataclass(frozen=True)
class Race:
    """Solvers on one problem: objectives after every step, the seconds at which they were had, and whether
    the solver ended by itself.

    ``alpha`` is a quarter of the least at which the lasso keeps nothing.
    """

    alpha: float
    histories: dict[str, list[float]]
    seconds: dict[str, list[float]]
    converged: dict[str, bool]


@dataclass(frozen=True)
class Demo:
    """All that the demonstration found; the tables and pictures are views of it.

    Attributes
    ----------
    h, seed : int
    feature_names : list of str
    n_train, n_test : int
    fits : list of Fit
    noise : float
        Two standard errors of the difference in test RMSE between the first method and another (the
        largest of them): smaller differences say nothing.
    path : ndarray of shape (len(H_VALUES), n_features)
        Coefficients of the trimmed lasso for every h.
    race : Race
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
    """:class:`BadInput` unless :func:`run` can take these.

    Examples
    --------
    >>> from trimreg.reports.demo import check_arguments
    >>> check_arguments(h=100, seed=0)
    Traceback (most recent call last):
        ...
    trimreg.reports.demo.BadInput: h must be from 1 to 64, the number of features; got 100
    """
    from ..datasets import diabetes_interactions

    p = diabetes_interactions().X.shape[1]
    if not 1 <= h <= p:
        raise BadInput(f"h must be from 1 to {p}, the number of features; got {h}")
    if not 0 <= seed < 2**32:
        raise BadInput(f"seed must be from 0 to {2**32 - 1}; got {seed}")


def run(h: int = 10, seed: int = 0, progress: Callable[[str], None] | None = None) -> Demo:
    """Fit, choose, check and time.

    Parameters
    ----------
    h : int
        How many variables the trimmed lasso may keep.
    seed : int
        Of the split into training and test set, and into folds.
    progress : callable, optional
        Called with each of :data:`STAGES` before it begins.

    Returns
    -------
    Demo

    Raises
    ------
    BadInput
        If h or the seed is out of range.

    Examples
    --------
    >>> from trimreg.reports.demo import run
    >>> found = run(h=5)
    >>> found.fits[0].n_kept, found.fits[0].swap_optimal
    (5, True)
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
    best_h, by_validation = _trimmed_by_validation(data)
    announce()
    lasso = _lasso(data)
    announce()
    mcp = _mcp(data, lasso.alphas_)
    announce()
    given = path[h - 1] if h in H_VALUES else _trimmed(data, h)
    models = [
        ("trimmed lasso", f"h = {h}", given),
        ("trimmed lasso", f"h = {best_h} by CV", by_validation),
        ("lasso", f"alpha = {lasso.alpha_:.3g} by CV", lasso),
        ("MCP", f"alpha = {mcp.alpha:.3g} by CV", mcp),
    ]
    fits = [_checked(data, *model) for model in models]
    announce()
    race = _race(data, h, float(lasso.alphas_[0]) / 4)
    return Demo(
        h=h,
        seed=seed,
        feature_names=data.feature_names,
        n_train=data.y.size,
        n_test=data.y_test.size,
        fits=fits,
        noise=_noise(data, [model for _, _, model in models]),
        path=np.stack([model.coef_ for model in path]),
        race=race,
    )


def _read(seed):
    from sklearn.model_selection import KFold, train_test_split
    from sklearn.preprocessing import StandardScaler

    from ..datasets import diabetes_interactions

    X, y, names = diabetes_interactions()
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=seed)
    scaler = StandardScaler().fit(X)
    folds = KFold(5, shuffle=True, random_state=seed)
    return _Data(scaler.transform(X), y, scaler.transform(X_test), y_test, list(names), folds)


def _trimmed(data, h):
    from ..estimators import TrimmedLasso

    return TrimmedLasso(h=h, standardize=False).fit(data.X, data.y)


def _search(data, estimator, name, values):
    """The estimator with the value that has the least squared error over the folds, refitted."""
    from sklearn.model_selection import GridSearchCV

    search = GridSearchCV(estimator, {name: list(values)}, cv=data.folds, scoring="neg_mean_squared_error")
    return search.fit(data.X, data.y).best_estimator_


def _trimmed_by_validation(data):
    from ..estimators import TrimmedLasso

    model = _search(data, TrimmedLasso(standardize=False), "h", H_VALUES)
    return model.h, model


def _lasso(data):
    from sklearn.linear_model import LassoCV

    centred = data.y - data.y.mean()
    largest = float(np.max(np.abs(data.X.T @ centred))) / data.y.size  # above it every coefficient is 0
    alphas = largest * np.geomspace(1.0, 0.01, 30)
    return LassoCV(alphas=alphas, cv=data.folds, tol=1e-8, max_iter=100_000).fit(data.X, data.y)


def _mcp(data, alphas):
    from ..estimators import MEstimator
    from ..penalties import MCP

    return _search(data, MEstimator(penalty=MCP()), "alpha", alphas)


def _checked(data, method, chosen, model):
    """The model's errors on the test set, and its certificates from the training data alone."""
    from ..diagnostics import best_swap, stationarity
    from ..penalties import L1, MCP, TrimmedL1

    alpha = getattr(model, "alpha_", None)
    penalty = {"lasso": L1(), "MCP": MCP()}.get(method) or TrimmedL1(model.h)
    where = {"penalty": penalty, "alpha": alpha, "intercept": model.intercept_, "fit_intercept": True}
    swap_optimal = None
    if method == "trimmed lasso":
        swap_optimal = not best_swap(data.X, data.y, model.coef_, **where)
    error = data.y_test - model.predict(data.X_test)
    return Fit(
        method=method,
        chosen=chosen,
        coef=np.array(model.coef_),
        rmse=float(np.sqrt(np.mean(error**2))),
        r2=float(model.score(data.X_test, data.y_test)),
        stationarity=stationarity(data.X, data.y, model.coef_, **where),
        swap_optimal=swap_optimal,
    )


def _noise(data, models):
    """Two standard errors of the difference in RMSE to the first model, the largest over the others.

    The difference of two mean squared errors is a mean over test samples, so its standard error is that of a
    mean; a factor 1/(2 RMSE), the derivative of the root, turns it into one of RMSE.
    """
    squares = np.array([(data.y_test - model.predict(data.X_test)) ** 2 for model in models])
    difference = squares[1:] - squares[0]
    error = difference.std(axis=1, ddof=1) / np.sqrt(data.y_test.size)
    return float(np.max(2.0 * error / (2.0 * np.sqrt(squares[0].mean()))))


def _race(data, h, alpha):
    """The four solvers on the soft problem; all but ``mm``, which chooses its own start, from zero."""
    from sklearn.exceptions import ConvergenceWarning

    from ..estimators import solve
    from ..penalties import TrimmedL1

    problem = {"penalty": TrimmedL1(h), "alpha": alpha, "fit_intercept": True, "tol": 1e-8}
    solve(data.X, data.y, **problem)  # compiles, or loads what is compiled; not to be timed
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
