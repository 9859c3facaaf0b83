"""Data, and the objective written out in plain NumPy."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.integrate import trapezoid

from trimreg import (
    MultiTaskTrimmedLasso,
    TrimmedCoxRegressor,
    TrimmedGammaRegressor,
    TrimmedGroupLasso,
    TrimmedHuberRegressor,
    TrimmedLasso,
    TrimmedLogisticRegression,
    TrimmedNegativeBinomialRegressor,
    TrimmedOrdinalRegression,
    TrimmedPoissonRegressor,
    TrimmedQuantileRegressor,
)
from trimreg.estimators.summary import summarize

LAYOUTS = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "csc": sp.csc_array,
    "csr": sp.csr_matrix,
}


@pytest.fixture(params=LAYOUTS)
def layout(request):
    """Each way of storing X in turn: a function of a dense array."""
    return LAYOUTS[request.param]


@pytest.fixture
def make_data():
    """``make_data(n, p, ...)``: columns that are correlated and not centred, three of them at work.

    A part ``zeros`` of the entries is 0, so that sparse storage is put to use.
    """

    def make(n=40, p=12, *, seed=0, shared=0.3, noise=0.5, zeros=0.0):
        rng = np.random.default_rng(seed)
        X = np.sqrt(1 - shared) * rng.standard_normal((n, p)) + np.sqrt(shared) * rng.standard_normal((n, 1))
        X = (X + 0.5) * (rng.random((n, p)) >= zeros)
        coef = np.zeros(p)
        coef[: min(p, 3)] = np.array([2.0, -1.5, 1.0])[: min(p, 3)]
        y = X @ coef + 1.0 + noise * rng.standard_normal(n)
        return SimpleNamespace(X=X, y=y, weight=rng.integers(0, 4, n) + rng.random(n) / 2, coef=coef)

    return make


def survival(eta, rng):
    time, censored = rng.exponential(np.exp(-eta)), rng.exponential(3.0, eta.size)
    return np.column_stack([np.minimum(time, censored).round(2), time <= censored])  # rounded: with ties


#: Every model with a way to draw its target from a linear predictor.
MODELS = {
    "lasso": (TrimmedLasso, lambda eta, rng: eta + rng.standard_normal(eta.size)),
    "group": (TrimmedGroupLasso, lambda eta, rng: eta + rng.standard_normal(eta.size)),
    "binary": (TrimmedLogisticRegression, lambda eta, rng: eta + rng.logistic(size=eta.size) > 0),
    "classes": (
        TrimmedLogisticRegression,
        lambda eta, rng: np.array(["a", "b", "c"])[np.digitize(eta + rng.logistic(size=eta.size), [-1, 1])],
    ),
    "poisson": (TrimmedPoissonRegressor, lambda eta, rng: rng.poisson(np.exp(eta))),
    "gamma": (TrimmedGammaRegressor, lambda eta, rng: rng.gamma(2.0, np.exp(eta))),
    "negative_binomial": (
        TrimmedNegativeBinomialRegressor,
        lambda eta, rng: rng.negative_binomial(2.0, 2.0 / (2.0 + np.exp(eta))),
    ),
    "ordinal": (
        TrimmedOrdinalRegression,
        lambda eta, rng: np.digitize(eta + rng.logistic(size=eta.size), [-1, 1]) + 3,
    ),
    "quantile": (TrimmedQuantileRegressor, lambda eta, rng: eta + 0.7 * rng.standard_t(3, eta.size)),
    "huber": (TrimmedHuberRegressor, lambda eta, rng: eta + 0.7 * rng.standard_t(3, eta.size)),
    "cox": (TrimmedCoxRegressor, survival),
    "multitask": (
        MultiTaskTrimmedLasso,
        lambda eta, rng: np.column_stack([eta, 1 - 0.5 * eta]) + rng.standard_normal((eta.size, 2)),
    ),
}


def make_case(name, n=120, p=9, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) + 0.3 * rng.standard_normal((n, 1)) + 0.2
    kind, draw = MODELS[name]
    return SimpleNamespace(name=name, kind=kind, X=X, y=draw(X[:, :3] @ [1.0, -0.8, 0.6], rng))


@pytest.fixture(params=MODELS)
def case(request):
    """Each model in turn: its class as ``kind``, and data ``X`` and ``y``; three features are at work."""
    return make_case(request.param)


@pytest.fixture
def make():
    """``make(name, n, p, seed)``: a case of a certain model."""
    return make_case


def weighted_mean(values, sample_weight):
    return np.average(values, axis=0, weights=sample_weight)


def penalty_value(name, size, alpha, *, h=0, gamma=None):
    """alpha times the sizes but the h largest (trimmed; h = 0 is l1), or MCP and SCAD by their integrals."""
    if name == "trimmed_l1":
        return alpha * np.sort(size)[: size.size - h].sum()
    grid = np.linspace(0.0, 1.0, 20_001)
    t = grid[:, None] * size
    if name == "mcp":
        slope = np.maximum(alpha - t / gamma, 0.0)
    else:
        slope = np.where(t <= alpha, alpha, np.maximum(gamma * alpha - t, 0.0) / (gamma - 1))
    return trapezoid(slope, t, axis=0).sum()


@pytest.fixture
def by_hand():
    """The pieces of F from the coefficients in the units of X, with nothing of the library."""

    def scales(X, sample_weight, fit_intercept, standardize):
        if not standardize:
            return np.ones(X.shape[1])
        centre = weighted_mean(X, sample_weight) if fit_intercept else 0.0
        return np.sqrt(weighted_mean((X - centre) ** 2, sample_weight))

    def loss(X, y, result, sample_weight=None):
        return 0.5 * weighted_mean((y - X @ result.coef - result.intercept) ** 2, sample_weight)

    def least_squares(X, y, *, fit_intercept=False, sample_weight=None):
        """Coefficients (of least norm) and intercept by ``numpy.linalg.lstsq``."""
        d = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
        root = np.sqrt(d / d.sum())[:, None]
        mean_x = weighted_mean(X, d) if fit_intercept else np.zeros(X.shape[1])
        mean_y = weighted_mean(y, d) if fit_intercept else 0.0
        coef = np.linalg.lstsq(root * (X - mean_x), root[:, 0] * (y - mean_y), rcond=None)[0]
        return coef, mean_y - mean_x @ coef

    def rss(X, y, support, **how):
        """Half the mean squared residual of least squares on these columns."""
        support = list(support)
        coef, intercept = least_squares(X[:, support], y, **how)
        return 0.5 * weighted_mean((y - X[:, support] @ coef - intercept) ** 2, how.get("sample_weight"))

    return SimpleNamespace(
        scales=scales, loss=loss, penalty=penalty_value, least_squares=least_squares, rss=rss
    )


# -- summaries -------------------------------------------------------------------------------------------


@pytest.fixture
def odd():
    """Names of ten variables that HTML, LaTeX or a terminal would misread."""
    names = ["50%_R&D", "<script>alert('x')</script>", "体重", "β-carotene", r"\end{table}"]
    return [*names, "[1]", "*", "", "a\nb", '"#~^$|']


@pytest.fixture
def small():
    """A function that makes a summary of four nonzero coefficients."""
    names = ["age", "sex", "bmi", "map", "tc", "ldl"]
    coef, standardized = [0.0, -12.5, 3.0, 0.25, 7.0, 0.0], [0.0, -6.25, 9.0, 0.5, 1.0, 0.0]
    given = {"order": [-1, 2, 1, 3, -1, -1], "weights": [1, 0, 0, 1, 0, 1]}
    return lambda **options: summarize(names, coef, standardized, **given | options)
