"""``minimize``: against enumeration, against ``solve``, with bounds and sums, and what it refuses."""

import sys
import warnings
from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.optimize import Bounds, LinearConstraint
from scipy.optimize import minimize as scipy_minimize
from sklearn.exceptions import ConvergenceWarning

from trimreg import TrimmedL1, minimize, solve
from trimreg.estimators.function.derivatives import derivatives
from trimreg.penalties.base import subgradient_residual
from trimreg.solvers.box import minimize_box


def quadratic(seed, p=7, n=12):
    """A convex quadratic ``t'At/2 - b't``: its function, A and b."""
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((n, p))
    A, b = Z.T @ Z / n + 0.05 * np.eye(p), rng.standard_normal(p)
    return (lambda t: (0.5 * t @ A @ t - b @ t, A @ t - b)), A, b


def enumerated(A, b, h, lower, upper, total=None):
    """The least value of the quadratic over all supports of size h, each solved by SciPy."""
    best = np.inf
    for S in map(list, combinations(range(b.size), h)):
        part, slope = A[np.ix_(S, S)], b[S]
        constraints = [] if total is None else [LinearConstraint(np.ones(h), total, total)]
        answer = scipy_minimize(
            lambda x, part=part, slope=slope: (0.5 * x @ part @ x - slope @ x, part @ x - slope),
            np.full(h, (total or 0.0) / h), jac=True, bounds=Bounds(lower, upper), constraints=constraints,
            method="SLSQP", options={"ftol": 1e-14, "maxiter": 200},
        )  # fmt: skip
        best = min(best, answer.fun)
    return best


# -- the best there is -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("arguments", "lower", "upper"),
    [
        ({}, -np.inf, np.inf),
        ({"positive": True}, 0.0, np.inf),
        ({"lower": -0.5, "upper": 0.3}, -0.5, 0.3),
        ({"upper": np.zeros(7)}, -np.inf, 0.0),
        ({"total": 1.0}, -np.inf, np.inf),
        ({"total": 1.0, "positive": True, "upper": 0.6}, 0.0, 0.6),
    ],
    ids=["free", "positive", "box", "negative", "sum", "portfolio"],
)
def test_small_problems_against_enumeration(arguments, lower, upper, seed):
    fun, A, b = quadratic(seed)
    result = minimize(fun, 7, h=3, **arguments)
    assert result.converged
    assert result.support.size <= 3
    assert ((result.theta >= lower) & (result.theta <= upper)).all()
    if "total" in arguments:
        assert result.theta.sum() == pytest.approx(1.0, abs=1e-9)
    assert fun(result.theta)[0] == pytest.approx(
        enumerated(A, b, 3, lower, upper, arguments.get("total")), abs=1e-7
    )
    assert result.stationarity < 1e-8


def test_the_soft_penalty_over_a_box_against_every_free_set():
    fun, A, b = quadratic(4)
    result = minimize(fun, 7, h=2, alpha=0.2, lower=-0.5, upper=0.3)
    values = []
    for S in map(list, combinations(range(7), 2)):
        theta, gradient, threshold = np.zeros(7), -b, np.full(7, 0.2)
        threshold[S] = 0.0
        minimize_box(A, gradient, theta, threshold, np.full(7, -0.5), np.full(7, 0.3), 1e-12)
        values.append(fun(theta)[0] + threshold @ np.abs(theta))
    assert result.objective == pytest.approx(min(values), abs=1e-10)
    assert result.stationarity < 1e-10


def regression(loss, n=100, p=25):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n, p))
    eta = X[:, :4] @ [1.0, -1.0, 2.0, 0.5]
    if loss == "quadratic":
        y = eta + rng.standard_normal(n)
        return (
            X,
            y,
            lambda t: (np.mean((y - X @ t) ** 2) / 2, X.T @ (X @ t - y) / n),
            lambda t, v: X.T @ (X @ v) / n,
        )
    y = (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float)

    def fun(t):
        mean = 1 / (1 + np.exp(-X @ t))
        return np.mean(np.logaddexp(0, X @ t) - y * (X @ t)), X.T @ (mean - y) / n

    def hessp(t, v):
        mean = 1 / (1 + np.exp(-X @ t))
        return X.T @ (mean * (1 - mean) * (X @ v)) / n

    return X, y, fun, hessp


@pytest.mark.parametrize("alpha", ["exact", 0.05])
@pytest.mark.parametrize("l2", [0.0, 0.1])
@pytest.mark.parametrize("curved", [True, False])
@pytest.mark.parametrize("loss", ["quadratic", "logistic"])
@pytest.mark.parametrize("groups", [None, np.arange(25) // 5])
def test_the_same_as_solve(loss, curved, l2, alpha, groups):
    X, y, fun, hessp = regression(loss)
    h = 3 if groups is None else 2
    result = minimize(fun, 25, h=h, alpha=alpha, l2=l2, groups=groups, hessp=hessp if curved else None)
    known = solve(X, y, loss=loss, penalty=TrimmedL1(h, groups=groups), alpha=alpha, l2=l2)
    assert result.objective == pytest.approx(known.objective, abs=1e-8)
    np.testing.assert_array_equal(result.support, known.support)
    np.testing.assert_array_equal(result.weights, known.weights)
    assert result.converged


def test_what_is_never_penalized_and_what_is_excluded():
    X, y, fun, _ = regression("quadratic")
    factor = np.ones(25)
    factor[[24, 2]] = 0.0, np.inf
    result = minimize(fun, 25, h=3, penalty_factor=factor)
    known = solve(X, y, penalty=TrimmedL1(3, factor), alpha="exact")
    np.testing.assert_allclose(result.theta, known.coef, atol=1e-6)
    assert result.theta[24] != 0
    assert result.theta[2] == 0
    assert np.count_nonzero(result.theta) == 4
    fixed = minimize(fun, 25, h=3, penalty_factor=factor, lower=np.r_[np.full(24, -9), 0.4], upper=9.0)
    assert fixed.theta[24] == pytest.approx(0.4)  # the bounds of what is not trimmed need not hold 0


# -- not convex ------------------------------------------------------------------------------------------


def curvature(theta, v):
    """The product with the Hessian of the wells."""
    return (12 * theta**2 - 4) * v


def wells(theta):
    """Two wells in each coordinate, tilted; stationary at roots of a cubic."""
    tilt = np.linspace(0.1, 0.4, theta.size)
    return float(np.sum((theta**2 - 1) ** 2 - tilt * theta)), 4 * theta * (theta**2 - 1) - tilt


@pytest.mark.parametrize("curved", [True, False])
def test_a_function_that_is_not_convex_ends_stationary_and_says_so(curved):
    result = minimize(wells, 6, h=3, hessp=curvature if curved else None)
    assert result.converged
    assert "not convex" in result.message
    assert result.support.tolist() == [3, 4, 5]
    for j in result.support:
        ends = np.repeat(result.theta[None], 2, axis=0)
        ends[:, j] += 1e-5, -1e-5
        assert abs(wells(ends[0])[0] - wells(ends[1])[0]) / 2e-5 < 1e-5
    assert "convex" not in minimize(quadratic(0)[0], 7, h=3).message


def test_points_where_the_function_is_not_finite_are_walls():
    def fun(t):  # finite for t < 1
        with np.errstate(invalid="ignore", divide="ignore"):
            return float(-np.sum(np.log(1 - t)) - 3 * t.sum()), 1 / (1 - t) - 3

    result = minimize(fun, 4, h=2)
    np.testing.assert_allclose(result.theta[result.support], 2 / 3, atol=1e-5)


def test_the_start_of_what_is_never_penalized_decides_the_well():
    factor = np.array([1.0, 1.0, 0.0])
    for start in (-1.0, 1.0):
        result = minimize(wells, 3, h=1, penalty_factor=factor, start=[0, 0, start], hessp=curvature)
        assert np.sign(result.theta[2]) == start
    from_there = minimize(wells, 3, h=2, start=[0.0, -1.0, -1.0], hessp=curvature, effort="low")
    assert (from_there.theta[1:] < 0).all()


# -- PyTorch, and how functions are told apart -----------------------------------------------------------


@pytest.mark.parametrize("hessp", [None, False])
def test_a_function_of_torch_is_differentiated(hessp):
    X, y, fun, _ = regression("logistic")
    features, target = torch.tensor(X), torch.tensor(y)

    def of_torch(t):
        eta = features @ t
        return torch.mean(torch.nn.functional.softplus(eta) - target * eta)

    result, known = minimize(of_torch, 25, h=3, hessp=hessp), minimize(fun, 25, h=3)
    assert result.objective == pytest.approx(known.objective, abs=1e-10)
    np.testing.assert_array_equal(result.support, known.support)


def test_rows_of_the_hessian_of_torch():
    theta = np.array([0.5, -1.0, 2.0])
    known = derivatives(lambda t: torch.sum(t**4) + t[0] * t[2], theta, None)
    np.testing.assert_allclose(known.rows(theta, np.array([0, 2])), [[3, 0, 1], [1, 0, 48]])
    linear = derivatives(lambda t: 3 * t.sum(), theta, None)
    assert not linear.rows(theta, np.arange(3)).any()


def test_a_function_of_numpy_is_taken_though_jax_is_loaded(monkeypatch):
    """JAX is not installed here: a stand-in that cannot trace the function."""
    asked = []

    class Double:
        def __enter__(self):
            asked.append("float64")

        def __exit__(self, *error):
            return None

    jax = type(sys)("jax")
    jax.jit = jax.value_and_grad = lambda fun: fun
    jax.enable_x64 = lambda on: Double()
    jax.numpy = type(sys)("jax.numpy")
    jax.numpy.asarray = lambda theta: (_ for _ in ()).throw(TypeError("no array of NumPy"))
    monkeypatch.setitem(sys.modules, "jax", jax)
    assert minimize(quadratic(0)[0], 7, h=2).converged
    assert asked == ["float64"]


# -- running ---------------------------------------------------------------------------------------------


def test_the_same_again():
    _, _, fun, _ = regression("logistic")
    first, second = minimize(fun, 25, h=4), minimize(fun, 25, h=4, random_state=0)
    np.testing.assert_array_equal(first.theta, second.theta)
    assert first.n_iter == second.n_iter


def test_callback_interrupt_and_limits():
    _, _, fun, _ = regression("logistic")
    seen = []
    stopped = minimize(fun, 25, h=4, callback=lambda step: seen.append(step.theta) or len(seen) == 2)
    assert len(seen) == 2
    assert stopped.theta.shape == seen[0].shape

    def interrupting(step):
        raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="interrupted"):
        kept = minimize(fun, 25, h=4, callback=interrupting)
    assert not kept.converged
    assert kept.support.size <= 4
    with pytest.warns(ConvergenceWarning, match="not converged"):
        assert not minimize(fun, 25, h=4, max_iter=1).converged


def test_bounds_that_hold_in_every_step():
    _, _, fun, _ = regression("quadratic")
    seen = []
    minimize(fun, 25, h=4, lower=-0.7, upper=0.7, callback=lambda step: seen.append(step.theta) and None)
    assert all((np.abs(theta) <= 0.7).all() for theta in seen)


# -- small problems over a box ---------------------------------------------------------------------------


def test_the_residual_over_a_box_is_the_nearest_subgradient():
    rng = np.random.default_rng(0)
    for _ in range(100):
        lower, upper = -rng.integers(0, 3), rng.integers(0, 3)
        theta, gradient, t = rng.integers(lower, upper + 1), rng.integers(-4, 5), rng.integers(0, 3)
        signs = [np.sign(theta)] if theta else np.linspace(-1, 1, 201)
        cone = np.linspace(0, 20, 2001)
        normals = np.r_[0.0, cone if theta == upper else [], -cone if theta == lower else []]
        if lower == upper:
            normals = np.r_[cone, -cone]
        nearest = np.min(np.abs(np.add.outer(gradient + t * np.asarray(signs), normals)))
        theta, gradient, t, *box = (np.array([float(x)]) for x in (theta, gradient, t, lower, upper))
        found = subgradient_residual(theta, gradient, t, box)
        assert abs(found[0]) == pytest.approx(nearest, abs=1e-12)


def test_quadratics_over_a_box_against_a_grid():
    rng = np.random.default_rng(1)
    for _ in range(20):
        Z = rng.standard_normal((3, 2))
        G, b, t = Z.T @ Z, 3 * rng.standard_normal(2), rng.uniform(0, 1, 2)
        lower, upper = -rng.uniform(0, 1, 2), rng.uniform(0, 1, 2)
        theta, gradient = np.zeros(2), -b
        assert minimize_box(G, gradient, theta, t, lower, upper, 1e-12)
        np.testing.assert_allclose(gradient, G @ theta - b, atol=1e-10)
        grids = np.meshgrid(*(np.linspace(low, high, 101) for low, high in zip(lower, upper, strict=True)))
        points = np.stack([grid.ravel() for grid in grids], axis=1)
        value = 0.5 * np.einsum("ij,jk,ik->i", points, G, points) - points @ b + np.abs(points) @ t
        assert 0.5 * theta @ G @ theta - theta @ b + np.abs(theta) @ t <= value.min() + 1e-12


# -- what is refused -------------------------------------------------------------------------------------


def fine(t):
    return float(t @ t), 2 * t


@pytest.mark.parametrize(
    ("fun", "arguments", "match"),
    [
        (fine, {"n_params": 0}, "n_params"),
        (fine, {"n_params": 2.0}, "n_params"),
        (fine, {"h": 4}, "h must be"),
        (fine, {"alpha": -1}, "alpha"),
        (fine, {"l2": np.nan}, "l2"),
        (fine, {"groups": [[0, 1], [1, 2]]}, "overlap"),
        (fine, {"groups": [0, 0, 1], "positive": True}, "groups"),
        (fine, {"start": [1.0]}, "start"),
        (fine, {"start": [1.0, np.inf, 0]}, "start"),
        (fine, {"start": [2.0, 0, 0], "upper": 1.0}, "within the bounds"),
        (fine, {"start": [2.0, 0, 0], "penalty_factor": [np.inf, 1, 1]}, "start must be 0"),
        (fine, {"lower": 1.0, "upper": 0.5}, "above upper"),
        (fine, {"lower": [0, 0.5, 0]}, "excludes 0 for parameter 1.*penalty_factor 0"),
        (fine, {"upper": -1.0}, "upper excludes 0"),
        (fine, {"lower": np.nan}, "lower must not be NaN"),
        (fine, {"lower": [0, 0]}, "lower must be a number, or hold one"),
        (fine, {"positive": 1}, "positive"),
        (fine, {"total": "1"}, "total"),
        (fine, {"total": 1.0, "h": 2, "upper": 0.4, "start": None}, "within reach"),
        (fine, {"total": 1.0, "h": 0}, "total must be 0"),
        (fine, {"effort": "most"}, "effort"),
        (fine, {"tol": 0}, "tol"),
        (fine, {"max_iter": 0}, "max_iter"),
        (lambda t: (np.nan, t), {}, "value of fun must be finite"),
        (lambda t: (0.0, t / 0), {}, "gradient of fun must be finite"),
        (lambda t: (0.0, t[:2]), {}, "gradient of fun must have shape"),
        (lambda t: (t, t), {}, "value of fun must be a number"),
        (
            lambda t: (float(t @ t), t + 1),
            {"check_gradient": True},
            "gradient of fun is wrong at the start: entry",
        ),
        (fine, {"hessp": lambda t, v: v[:1]}, "hessp must return shape"),
    ],
)
def test_bad_input_is_named(fun, arguments, match):
    with pytest.raises(ValueError, match=match), np.errstate(all="ignore"):
        minimize(fun, **{"n_params": 3, "h": 1, "start": [0.5, 0.0, 0.0]} | arguments)


@pytest.mark.parametrize(
    ("fun", "arguments", "match"),
    [
        (3, {}, "fun must be a function"),
        (lambda t: float(t @ t), {}, "pair \\(value, gradient\\)"),
        (fine, {"hessp": 3}, "hessp must be a function"),
    ],
)
def test_what_is_no_function_is_named(fun, arguments, match):
    with pytest.raises(TypeError, match=match):
        minimize(fun, 3, h=1, **arguments)


def test_an_error_of_the_function_is_its_own():
    def broken(t):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        minimize(broken, 3, h=1)


def test_a_right_gradient_passes_the_check():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = minimize(wells, 6, h=3, check_gradient=True, upper=2.0)
    assert result.converged
