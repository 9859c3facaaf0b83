"""The inner weighted l1 problem: least squares against scikit-learn, another loss against SciPy."""

import warnings

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso

from trimreg import L1, MCP, MEstimator, TrimmedL1, diagnostics, solve
from trimreg.designs import as_design
from trimreg.losses import Loss
from trimreg.penalties import subgradient_residual
from trimreg.solvers import Problem
from trimreg.solvers.box import minimize_box
from trimreg.solvers.gram import minimize_block, newton_on_support
from trimreg.solvers.mm.kernels import coordinate_descent
from trimreg.solvers.mm.newton import line_search
from trimreg.solvers.mm.workingset import GramSolver, WorkingSetSolver


class Logistic(Loss):
    """``log(1 + exp(eta)) - y eta`` for y in {0, 1}: a loss whose curvature changes."""

    name = "logistic"
    curvature_bound = 0.25

    def value(self, eta, y, d):
        return float(d @ (np.logaddexp(0.0, eta) - y * eta))

    def gradient(self, eta, y, d):
        return d * (expit(eta) - y)

    def curvature(self, eta, y, d):
        return d * expit(eta) * expit(-eta)

    def inverse_link(self, eta):
        return expit(eta)


# -- least squares ----------------------------------------------------------------------------------------


@pytest.fixture
def inner(make_problem):
    """A solver of a problem in normalized coordinates."""

    def make(tol=1e-10, **how):
        return WorkingSetSolver(make_problem(L1(), 0.1, **how).normalized()[0], tol)

    return make


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("shape", [{"n": 40, "p": 15}, {"n": 30, "p": 120}])
def test_weighted_lasso(inner, shape, positive):
    solver = inner(positive=positive, **shape)
    problem, p = solver.problem, shape["p"]
    threshold = 0.1 * np.random.default_rng(0).uniform(0.5, 2.0, p)
    theta, gradient, loss, converged = solver.solve(np.zeros(p), threshold)
    assert converged
    # Lasso with weights t_j is Lasso on columns divided by them.
    X = problem.design.columns(np.arange(p)) / threshold
    expected = Lasso(alpha=1.0, fit_intercept=False, positive=positive, tol=1e-14, max_iter=100_000)
    np.testing.assert_allclose(theta * threshold, expected.fit(X, problem.y).coef_, atol=1e-8)
    np.testing.assert_allclose(gradient, problem.gradient(theta), atol=1e-12)
    assert loss == pytest.approx(problem.loss_value(problem.predictor(theta)))
    again = solver.solve(theta, threshold, gradient=gradient)
    np.testing.assert_array_equal(again.theta, theta)


def test_thresholds_of_zero_and_infinity(inner):
    solver = inner(n=60)
    problem = solver.problem
    threshold = np.full(15, 0.2)
    threshold[[3, 7]], threshold[[0, 4]] = 0.0, np.inf
    theta, gradient, _, converged = solver.solve(np.ones(15), threshold)
    assert converged
    np.testing.assert_array_equal(theta[[0, 4]], 0)
    assert np.all(theta[[3, 7]] != 0)
    residual = subgradient_residual(theta, problem.gradient(theta), threshold)
    assert np.max(np.abs(residual)) <= solver.goal
    assert np.max(np.abs(gradient[[3, 7]])) <= solver.goal


def test_correlated_free_columns_are_not_crawled_over(make_problem):
    # Coordinate descent alone needs thousands of epochs here; the Newton step on the free block does not.
    rng = np.random.default_rng(0)
    base = rng.standard_normal((200, 1))
    X = base + 1e-3 * rng.standard_normal((200, 40))
    y = X @ rng.standard_normal(40)
    result = solve(X, y, penalty=L1(), alpha=0.0, tol=1e-10)
    np.testing.assert_allclose(X @ result.coef, y, atol=1e-6)
    assert result.converged


def test_a_singular_block_is_minimized():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((10, 4))
    X = np.hstack([X, X])
    X /= np.sqrt(np.mean(X**2, axis=0))
    gram, target = X.T @ X / 10, X.T @ rng.standard_normal(10) / 10
    for t in (0.0, 0.05):
        theta, gradient = np.zeros(8), -target.copy()
        assert minimize_block(gram, gradient, theta, np.full(8, t), 1e-12)
        np.testing.assert_allclose(gradient, gram @ theta - target, atol=1e-12)
        assert np.max(np.abs(subgradient_residual(theta, gradient, np.full(8, t)))) <= 1e-12


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_nearly_dependent_columns_are_minimized_over(seed, positive):
    """Sweeps and Newton steps on the support undo each other here, and never end."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((200, 3)) @ rng.standard_normal((3, 50)) + 1e-4 * rng.standard_normal((200, 50))
    X /= np.sqrt((X**2).mean(axis=0))
    y = X[:, :4] @ [1.0, -1.0, 2.0, 0.5] + 0.1 * rng.standard_normal(200)
    gram, theta, threshold = X.T @ X / 200, np.zeros(50), np.full(50, 1e-6)
    gradient = -X.T @ y / 200
    bounds = (np.zeros(50), np.full(50, np.inf)) if positive else None
    if positive:
        assert minimize_box(gram, gradient, theta, threshold, *bounds, 1e-10)
    else:
        assert minimize_block(gram, gradient, theta, threshold, 1e-10)
    true = gram @ theta - X.T @ y / 200
    assert np.abs(subgradient_residual(theta, true, threshold, bounds)).max() < 1e-9
    assert not positive or theta.min() >= 0


def test_coordinate_descent_stops_by_itself():
    gram = np.array([[1.0, 0.5], [0.5, 1.0]])
    theta, gradient = np.zeros(2), np.array([-1.0, -1.0])
    epochs = coordinate_descent(gram, gradient, theta, np.zeros(2), 1000, 1e-14)
    assert epochs < 60
    np.testing.assert_allclose(theta, [2 / 3, 2 / 3])
    # A column of zeros has no curvature and stays where it is.
    theta = np.array([0.0, 5.0])
    coordinate_descent(np.diag([1.0, 0.0]), np.array([-1.0, 0.0]), theta, np.zeros(2), 10, 1e-14)
    np.testing.assert_array_equal(theta, [1.0, 5.0])


def test_the_gram_solver_agrees_on_its_columns(inner):
    solver = inner(n=40, p=15)
    problem = solver.problem
    threshold = np.full(15, 0.1)
    start = solver.solve(np.zeros(15), threshold)
    columns = np.union1d(np.flatnonzero(start.theta), np.arange(8))
    local = GramSolver(solver, columns, start.theta, start.gradient, start.loss)
    other = np.where(np.arange(15) < 4, 0.0, 0.15)
    found = local.solve(start.theta, other)
    limited = np.full(15, np.inf)
    limited[columns] = other[columns]
    expected = solver.solve(start.theta, limited)
    np.testing.assert_allclose(found.theta, expected.theta, atol=1e-8)
    assert found.loss == pytest.approx(expected.loss, rel=1e-8)
    eta = problem.predictor(found.theta)
    assert found.loss == pytest.approx(problem.loss_value(eta), rel=1e-10)
    np.testing.assert_allclose(found.gradient[columns], problem.loss_gradient(eta)[columns], atol=1e-10)


# -- a loss whose curvature changes -------------------------------------------------------------------------


@pytest.fixture
def labels():
    """Labels of a logistic model with three columns at work out of 15."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 15)) + 0.5
    return X, (X[:, :3] @ [2.0, -1.0, 1.0] - 0.5 + rng.logistic(size=80) > 0).astype(float)


def l1_logistic(X, y, alpha, d, fit_intercept, positive=False):
    """The l1 problem as a smooth one in theta = a - b, a and b >= 0, by L-BFGS-B."""
    p = X.shape[1]

    def objective(v):
        a, b, c = v[:p], v[p : 2 * p], v[-1] * fit_intercept
        eta = X @ (a - b) + c
        slope = Logistic().gradient(eta, y, d)
        value = Logistic().value(eta, y, d) + alpha * (a + b).sum()
        return value, np.concatenate(
            [X.T @ slope + alpha, alpha - X.T @ slope, [slope.sum() * fit_intercept]]
        )

    bounds = [(0, None)] * p + [(0, 0 if positive else None)] * p + [(None, None)]
    options = {"ftol": 1e-16, "gtol": 1e-10, "maxiter": 10_000}
    found = minimize(
        objective, np.zeros(2 * p + 1), jac=True, bounds=bounds, method="L-BFGS-B", options=options
    )
    return found.x[:p] - found.x[p : 2 * p], found.x[-1] * fit_intercept, found.fun


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("solver", ["mm", "prox"])
def test_l1_logistic(solver, fit_intercept, standardize, weighted, labels):
    X, y = labels
    d = np.random.default_rng(1).random(80) if weighted else np.ones(80)
    d = d / d.sum()
    centre = d @ X if fit_intercept else 0.0
    scale = np.sqrt(d @ (X - centre) ** 2) if standardize else np.ones(15)
    result = solve(
        X,
        y,
        loss=Logistic(),
        penalty=L1(),
        alpha=0.03,
        solver=solver,
        fit_intercept=fit_intercept,
        standardize=standardize,
        sample_weight=7 * d,
        tol=1e-8,
    )
    theta, intercept, objective = l1_logistic(X / scale, y, 0.03, d, fit_intercept)
    np.testing.assert_allclose(result.coef * scale, theta, atol=1e-5)
    assert result.intercept == pytest.approx(intercept, abs=1e-5)
    assert result.objective == pytest.approx(objective, abs=1e-9)
    assert 0 < np.count_nonzero(result.coef) < 15


def test_positive_logistic(labels):
    X, y = labels
    result = solve(X, y, loss=Logistic(), penalty=L1(), alpha=0.03, positive=True, tol=1e-8)
    theta, _, objective = l1_logistic(X, y, 0.03, np.full(80, 1 / 80), False, positive=True)
    np.testing.assert_allclose(result.coef, theta, atol=1e-5)
    assert result.objective == pytest.approx(objective, abs=1e-9)
    assert (result.coef >= 0).all()


@pytest.mark.parametrize("effort", ["low", "medium", "high"])
@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("h", [0, 3, 15])
def test_trimmed_logistic_ends_at_local_minima(effort, standardize, fit_intercept, h, labels):
    X, y = labels
    for alpha in (0.01, 0.05, 0.5):
        problem = {"penalty": TrimmedL1(h), "loss": Logistic(), "alpha": alpha}
        setting = {"standardize": standardize, "fit_intercept": fit_intercept}
        result = solve(X, y, effort=effort, **problem, **setting)
        point = {**problem, **setting, "intercept": result.intercept}
        check = diagnostics.is_local_minimum(X, y, result.coef, **point, tol=2e-6)
        assert check, check.reason
        again = diagnostics.stationarity(X, y, result.coef, weights=result.weights, **point)
        assert result.stationarity == pytest.approx(again, rel=1e-6, abs=1e-20)
        assert result.weights.shape == (15,)
        assert result.theta.shape == (15,)


@pytest.mark.parametrize("solver", ["bcd", "prox"])
def test_first_order_solvers_take_the_loss_too(solver, labels):
    X, y = labels
    how = {"loss": Logistic(), "penalty": TrimmedL1(3), "alpha": 0.05, "fit_intercept": True}
    result = solve(X, y, solver=solver, **how)
    assert np.sqrt(result.stationarity) < 1e-4
    assert np.count_nonzero(result.coef) >= 3


def test_mcp_logistic_descends(labels):
    X, y = labels
    result = solve(X, y, loss=Logistic(), penalty=MCP(3.0), alpha=0.1, fit_intercept=True)
    assert np.sqrt(result.stationarity) < 1e-5
    assert np.all(np.diff(result.history["objective"]) <= 1e-12)


def test_the_estimator_predicts_means(labels):
    X, y = labels
    model = MEstimator(loss=Logistic(), penalty=TrimmedL1(3), alpha=0.2).fit(X, y)
    np.testing.assert_allclose(model.predict(X), expit(X @ model.coef_ + model.intercept_))
    assert model.predict(X).mean() == pytest.approx(y.mean(), abs=1e-5)  # what the intercept is for


@pytest.mark.parametrize("effort", ["low", "medium", "high"])
@pytest.mark.parametrize("h", [0, 1, 3, 15])
@pytest.mark.parametrize("alpha", [0.0, 1e-6, 0.1])
@pytest.mark.parametrize("tol", [1e-6, 1e-15])
def test_separable_labels_end_with_numbers(effort, h, alpha, tol, labels):
    X, _ = labels
    y = (X[:, 0] > 0.5).astype(float)
    how = {"loss": Logistic(), "penalty": TrimmedL1(h), "alpha": alpha, "fit_intercept": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # allowed, and nothing else is
        result = solve(X, y, tol=tol, effort=effort, **how)
    assert np.isfinite(result.coef).all()
    assert np.isfinite([result.intercept, result.objective, result.stationarity]).all()
    assert result.objective < np.log(2)


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_one_label_only(label, labels):
    X, _ = labels
    how = {"loss": Logistic(), "penalty": L1(), "alpha": 0.1, "fit_intercept": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = solve(X, np.full(80, label), **how)
    np.testing.assert_array_equal(result.coef, 0)
    assert expit(result.intercept) == pytest.approx(label, abs=1e-5)


def test_newton_drops_what_reaches_zero_exactly():
    """A coordinate keeps its sign or is 0 to the bit: a remainder of rounding would stay in the support."""
    dropped = 0
    for seed in range(50):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((30, 8)) + rng.standard_normal((30, 1))
        gram = X.T @ X / 30
        start = rng.choice([-1.0, 1.0], 8) * rng.uniform(0.01, 1.0, 8)
        theta, gradient = start.copy(), gram @ start - rng.standard_normal(8)
        newton_on_support(gram, gradient, theta, np.full(8, 0.2))
        assert np.all((theta == 0) | (np.sign(theta) == np.sign(start)))
        assert np.all((theta == 0) | (np.abs(theta) > 1e-13))
        dropped += np.count_nonzero(theta == 0)
    assert dropped > 50


@pytest.mark.parametrize("level", [0.0, 0.02])
@pytest.mark.parametrize("seed", range(10))
def test_a_step_that_the_objective_does_not_show_is_taken_whole(seed, level):
    """Within 1e-9 of the minimum the objective is flat but for rounding; the gradient is not."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((4000, 6))
    y = (rng.random(4000) < expit(X @ [0.8, -0.6, 0.4, 0.3, -0.2, 0.0])).astype(float)
    d = np.full(4000, 1 / 4000)
    problem = Problem(as_design(X, d), Logistic(), y, d, L1().bind(6), 1.0).normalized()[0]
    inner = WorkingSetSolver(problem, 1e-13)
    threshold = np.full(6, level)
    best = inner.solve(np.full(6, 0.1), threshold)
    support = np.flatnonzero(best.theta)
    theta = best.theta.copy()
    theta[support] += 1e-9 * rng.choice([-1.0, 1.0], support.size)
    eta = problem.predictor(theta)
    gradient = problem.loss_gradient(eta)
    far = np.abs(subgradient_residual(theta, gradient, threshold)).max()
    moved = inner._improve(theta, eta, gradient, threshold, support, 1e-5 * far)
    left = subgradient_residual(moved.theta, problem.loss_gradient(moved.predictor), threshold)
    assert np.abs(left).max() < 1e-3 * far


@pytest.mark.parametrize("shape", [(4000, 400), (400, 1500)])
@pytest.mark.parametrize("effort", ["low", "medium"])
def test_working_sets_apart_end_at_local_minima(shape, effort):
    """In tall data the working set apart was taken apart again without end; in wide data MM starts apart."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal(shape)
    y = (rng.random(shape[0]) < expit(X[:, :10].sum(axis=1))).astype(float)
    alpha = 0.3 * np.max(np.abs(X.T @ (y - 0.5))) / shape[0]
    result = solve(X, y, loss="logistic", penalty=TrimmedL1(8), alpha=alpha, effort=effort)
    assert result.converged
    assert np.sqrt(result.stationarity) <= 1e-5 * alpha
    assert np.count_nonzero(result.weights == 0) == 8
    largest = np.sort(np.abs(result.coef))[-8:]
    assert np.array_equal(np.sort(np.abs(result.coef[result.weights == 0])), largest)


def test_thresholds_below_the_goal_are_not_approached(inner):
    solver = inner()
    gradient = solver.gradient_at_zero
    tiny = np.full(gradient.size, 1e-40)
    assert len(list(solver._approach(gradient, tiny))) < 40


def test_a_step_that_overflows_is_not_taken_and_says_nothing():
    X, d = np.array([[1.0, -1.0], [2.0, 1.0], [-1.0, 3.0], [0.5, 0.5]]), np.full(4, 0.25)
    problem = Problem(as_design(X, d), Logistic(), np.array([0.0, 1, 1, 0]), d, L1().bind(2), 0.1, ridge=1.0)
    theta, eta = np.zeros(2), np.zeros(4)
    gradient = problem.gradient(theta)
    far = -1e200 * gradient
    inner = WorkingSetSolver(problem, 1e-6)
    moved, step = line_search(inner, theta, eta, gradient, np.full(2, 0.1), far, problem.predictor(far))
    assert moved is None
    assert step == 0.0
