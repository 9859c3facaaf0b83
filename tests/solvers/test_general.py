"""Every loss, for single coefficients and groups, through every solver: each other, definitions, peers."""

import signal
import warnings
from contextlib import contextmanager
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, MultiTaskLasso

from trimreg import TrimmedL1, TrimmedLogisticRegression, TrimmedPoissonRegressor, solve
from trimreg.losses import Huber, get_loss
from trimreg.penalties import L1, MCP, SCAD

P = 12
LOSSES = {
    **{name: name for name in ("quadratic", "logistic", "multinomial", "poisson", "gamma", "huber", "cox")},
    "multitask": "multitask",
    "huber, given scale": Huber(scale=0.5),
}
PARTS = {
    "singles": {},
    "groups": {"groups": np.arange(P) // 3},
    "largest": {"groups": np.arange(P) // 3, "q": np.inf},
}
SOLVERS = {
    "mm": {},
    "bcd": {"max_iter": 5000},
    "dc": {"max_iter": 5000, "ties": "aware"},
    "prox": {"max_iter": 5000, "accelerate": True},
}


def data(name, seed=0, n=60, p=P):
    """``X, y`` with three features at work, correlated with the rest; two outliers for Huber's loss."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) + 0.5 * rng.standard_normal((n, 1))
    coef = np.zeros(p)
    coef[[0, 1, p // 2]] = 1.0, -0.8, 0.6
    eta = X @ coef
    if name == "logistic":
        return X, (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float)
    if name == "multinomial":
        return X, np.argmax(np.outer(eta, [1, -0.5, 0]) + rng.gumbel(size=(n, 3)), axis=1).astype(float)
    if name == "poisson":
        return X, rng.poisson(np.exp(np.clip(eta, -3, 2))).astype(float)
    if name == "gamma":
        return X, np.exp(eta) * rng.gamma(2.0, size=n) + 1e-3
    if name == "cox":
        time = np.ceil(5 * rng.exponential(np.exp(-eta)))  # with ties
        return X, np.column_stack([time, rng.random(n) < 0.8]).astype(float)
    if name == "multitask":
        return X, np.outer(eta, [1, -0.5, 0.3]) + 0.5 * rng.standard_normal((n, 3))
    y = eta + 0.5 * rng.standard_normal(n)
    y[:2] += 20.0 * name.startswith("huber")
    return X, y


def fit(name, parts, solver="mm", *, seed=0, h=2, alpha=0.05, penalty=TrimmedL1, **options):
    X, y = data(name, seed)
    bound = penalty(h, **PARTS[parts]) if penalty is TrimmedL1 else penalty(**PARTS[parts])
    return solve(
        X, y, loss=LOSSES[name], penalty=bound, alpha=alpha, solver=solver, **SOLVERS[solver] | options
    )


def objective(X, y, result, loss, penalty, sample_weight=None):
    """F written out from the coefficients that a result has, for columns as they are."""
    n = len(X)
    d = np.full(n, 1 / n) if sample_weight is None else sample_weight / np.sum(sample_weight)
    loss = get_loss(loss).bound(y, d)
    coef = np.asarray(result.coef, dtype=float)
    value = loss.value(X @ coef.T + result.intercept, y, d)
    return value + penalty.bind(X.shape[1], loss.n_outputs).value(coef.T.ravel(), result.alpha)


def n_nonzero(result, parts):
    """Features or groups with a nonzero coefficient."""
    used = np.atleast_2d(result.coef).any(axis=0)
    return np.unique(PARTS[parts].get("groups", np.arange(P))[used]).size


# -- all of them against each other ----------------------------------------------------------------


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("name", LOSSES)
def test_every_solver_ends_at_a_stationary_point(name, parts):
    """And the default solver's is the lowest."""
    X, y = data(name)
    reached = {}
    for solver in SOLVERS:
        result = fit(name, parts, solver, fit_intercept=True)
        assert result.converged
        # DC stops at points that are critical for it alone, if the largest entries of a free group tie
        if not (solver == "dc" and parts == "largest"):
            assert result.stationarity <= 1e-10
        penalty = TrimmedL1(2, **PARTS[parts])
        expected = objective(X, y, result, LOSSES[name], penalty)
        assert result.objective == pytest.approx(expected, rel=1e-9)
        reached[solver] = result.objective
    lowest = min(reached.values())
    assert reached["mm"] <= lowest + 1e-6 * abs(lowest)


def test_the_dc_solver_ends_where_its_own_steps_do():
    """At a corner of the largest norm of a free group its tangent may hold it, though T is not 0 there."""
    critical = 0
    for name in ("logistic", "multitask"):
        for seed in range(4):
            result = fit(name, "largest", "dc", seed=seed, fit_intercept=True)
            assert result.converged
            critical += result.message.startswith("a DC-critical point")
            assert (result.stationarity < 1e-10) != result.message.startswith("a DC-critical point")
    assert critical


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("name", LOSSES)
def test_exact_alpha_leaves_at_most_h(name, parts):
    for seed, solver in enumerate(["mm", "mm", "prox"]):
        result = fit(name, parts, solver, seed=seed, alpha="exact", fit_intercept=True)
        assert 0 < n_nonzero(result, parts) <= 2
        assert result.objective == pytest.approx(
            objective(*data(name, seed), result, LOSSES[name], L1(np.zeros(P))), rel=1e-8
        )


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("name", LOSSES)
def test_nothing_free_is_the_convex_penalty(name, parts):
    trimmed = fit(name, parts, h=0, fit_intercept=True)
    convex = fit(name, parts, penalty=L1, fit_intercept=True, tol=1e-8)
    assert trimmed.objective == pytest.approx(convex.objective, rel=1e-9)
    np.testing.assert_allclose(trimmed.coef, convex.coef, atol=2e-5)


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("name", LOSSES)
def test_everything_free_is_the_plain_fit(name, parts):
    count = P if parts == "singles" else 4
    free = fit(name, parts, h=count, alpha=3.0, fit_intercept=True)
    plain = fit(name, "singles", penalty=L1, alpha=0.0, fit_intercept=True)
    assert free.objective == pytest.approx(plain.objective, rel=1e-9)
    # The constant that may be added to all classes, or the hazard's, is not determined.
    centre = 1.0 if name == "multinomial" else 0.0
    a, b = (np.asarray(r.coef) - centre * np.mean(r.coef, axis=0) for r in (free, plain))
    np.testing.assert_allclose(a, b, atol=1e-4)


@pytest.mark.parametrize("penalty", [MCP, SCAD])
@pytest.mark.parametrize("name", ["logistic", "multinomial", "poisson", "huber", "cox"])
def test_folded_penalties_of_groups(name, penalty):
    X, y = data(name)
    for parts in PARTS:
        result = fit(name, parts, penalty=penalty, alpha=0.1, fit_intercept=True)
        assert result.converged
        assert result.stationarity <= 1e-10
        expected = objective(X, y, result, LOSSES[name], penalty(**PARTS[parts]))
        assert result.objective == pytest.approx(expected, rel=1e-9)


# -- convex problems, by other means -----------------------------------------------------------------


def proximal_gradient(X, y, name, groups, levels, intercept, steps=20000):
    """FISTA with restarts for sum_g t_g ||theta_g||_2, written apart from the library's solvers.

    Theta has a row for every feature, the last one (if there is an intercept) without penalty.
    """
    n = len(X)
    d = np.full(n, 1 / n)
    loss = get_loss(name).bound(y, d)
    Z = np.column_stack([X, np.ones(n)]) if intercept else X
    K = loss.n_outputs
    step = 1.0 / (loss.curvature_bound * np.linalg.norm(Z.T @ Z / n, 2))
    shape = (Z.shape[1], K) if loss.multi_output else (Z.shape[1],)
    theta = previous = np.zeros(shape)
    t = 1.0
    for _ in range(steps):
        following = (1 + np.sqrt(1 + 4 * t * t)) / 2
        point = theta + (t - 1) / following * (theta - previous)
        z = point - step * Z.T @ loss.gradient(Z @ point, y, d)
        for g, level in enumerate(levels):
            rows = np.flatnonzero(groups == g)
            length = np.linalg.norm(z[rows])
            z[rows] *= max(1 - step * level / length, 0) if length > 0 else 0.0
        previous, theta, t = theta, z, following
        if np.sum((point - theta) * (theta - previous)) > 0:
            t = 1.0
        if np.max(np.abs(theta - previous)) < 1e-13:
            break
    return (theta[:-1], theta[-1]) if intercept else (theta, 0.0)


@pytest.mark.parametrize("name", ["quadratic", "logistic", "multinomial", "multitask"])
def test_group_lasso_by_proximal_gradient(name):
    X, y = data(name, n=40, p=8)
    groups = np.array([0, 0, 0, 1, 1, 2, 3, 3])
    penalty = L1(groups=groups)
    result = solve(X, y, loss=name, penalty=penalty, alpha=0.05, fit_intercept=True, tol=1e-10)
    levels = 0.05 * np.sqrt([3, 2, 1, 2])
    theta, intercept = proximal_gradient(X, y, name, groups, levels, intercept=True)
    if name == "multinomial":
        intercept = intercept - intercept.mean() + np.mean(result.intercept)
    np.testing.assert_allclose(np.asarray(result.coef).T, theta, atol=1e-7)
    np.testing.assert_allclose(result.intercept, intercept, atol=1e-7)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_multitask_lasso_of_scikit_learn(fit_intercept):
    X, y = data("multitask")
    ours = solve(X, y, loss="multitask", penalty=L1(), alpha=0.1, fit_intercept=fit_intercept, tol=1e-10)
    theirs = MultiTaskLasso(alpha=0.1, fit_intercept=fit_intercept, tol=1e-12, max_iter=100000).fit(X, y)
    np.testing.assert_allclose(ours.coef, theirs.coef_, atol=1e-7)
    np.testing.assert_allclose(ours.intercept, theirs.intercept_, atol=1e-7)


def test_logistic_lasso_of_scikit_learn():
    X, y = data("logistic")
    ours = solve(X, y, loss="logistic", penalty=L1(), alpha=0.02, tol=1e-10)
    theirs = LogisticRegression(
        l1_ratio=1.0, C=1 / (0.02 * len(y)), solver="saga", tol=1e-12, max_iter=100000, fit_intercept=False
    ).fit(X, y)
    np.testing.assert_allclose(ours.coef, theirs.coef_[0], atol=1e-6)


def test_a_matrix_of_one_target_is_the_vector():
    X, y = data("quadratic")
    for penalty, alpha in ((TrimmedL1(2), "exact"), (TrimmedL1(2), 0.05), (MCP(), 0.1)):
        vector = solve(X, y, penalty=penalty, alpha=alpha, fit_intercept=True)
        matrix = solve(X, y[:, None], loss="multitask", penalty=penalty, alpha=alpha, fit_intercept=True)
        np.testing.assert_allclose(matrix.coef, vector.coef[None], rtol=1e-9, atol=1e-12)
        assert matrix.intercept.shape == (1,)
        assert matrix.objective == pytest.approx(vector.objective, rel=1e-12)


def test_cox_has_no_intercept():
    X, y = data("cox")
    with_it, without = (
        solve(X, y, loss="cox", penalty=TrimmedL1(2), alpha="exact", fit_intercept=flag)
        for flag in (True, False)
    )
    assert with_it.intercept == 0.0
    np.testing.assert_array_equal(with_it.coef, without.coef)


# -- best subsets ------------------------------------------------------------------------------------


def best_subset(X, y, loss, sets):
    """The least objective of a fit to one of the sets of columns."""
    fits = (solve(X[:, list(S)], y, loss=loss, penalty=L1(), alpha=0.0, fit_intercept=True) for S in sets)
    return min(result.objective for result in fits)


def test_best_subsets_of_logistic_regression():
    found = 0
    for seed in range(10):
        X, y = data("logistic", seed, n=40, p=8)
        result = solve(X, y, loss="logistic", penalty=TrimmedL1(2), alpha="exact", fit_intercept=True)
        best = best_subset(X, y, "logistic", combinations(range(8), 2))
        assert result.objective >= best - 1e-9
        found += result.objective <= best + 1e-6 * abs(best)
    assert found >= 9


@pytest.mark.parametrize("name", ["quadratic", "poisson"])
def test_best_subsets_of_groups(name):
    found, groups = 0, np.arange(P) // 2
    for seed in range(8):
        X, y = data(name, seed, n=40)
        penalty = TrimmedL1(2, groups=groups)
        result = solve(X, y, loss=name, penalty=penalty, alpha="exact", fit_intercept=True)
        sets = (np.flatnonzero(np.isin(groups, pair)) for pair in combinations(range(6), 2))
        best = best_subset(X, y, name, sets)
        assert result.objective >= best - 1e-9
        found += result.objective <= best + 1e-6 * abs(best)
    assert found >= 7


# -- losses without curvature ----------------------------------------------------------------------


def test_huber_beyond_its_bend():
    """Every residual is beyond it: the loss has slopes and no curvature, and is the least absolute error."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((41, 3))
    y = X @ [1.0, -2.0, 0.5] + 100.0 * rng.choice([-1.0, 1.0], 41) + rng.standard_normal(41)
    result = solve(X, y, loss=Huber(scale=1e-3), penalty=L1(), alpha=0.0, fit_intercept=True)
    assert result.converged
    epsilon = 1.35
    value = epsilon * np.mean(np.abs(y - X @ result.coef - result.intercept))
    for nudge in 1e-3 * rng.standard_normal((50, 4)):
        moved = epsilon * np.mean(np.abs(y - X @ (result.coef + nudge[:3]) - result.intercept - nudge[3]))
        assert moved >= value - 2e-3  # the bend is that wide


def test_an_event_that_says_nothing():
    """The only event is the last time: the partial likelihood is constant, and rounding is no direction."""
    rng = np.random.default_rng(1)
    X, weight = rng.standard_normal((21, 11)), rng.random(21)
    y = np.column_stack([np.arange(21.0), np.arange(21) == 20]) * 1.0
    result = solve(X, y, loss="cox", penalty=TrimmedL1(4), alpha=1e-3, sample_weight=weight)
    assert result.converged
    np.testing.assert_array_equal(result.coef, np.zeros(11))


def test_nothing_to_explain_and_excluded_groups():
    """No gradient at 0, so that a start is sought at alpha = 0, with a threshold that is infinite."""
    X, y = data("poisson")
    penalty = TrimmedL1(1, [1.0, np.inf, 1.0, 1.0], groups=np.arange(P) // 3)
    result = solve(X, np.ones_like(y), loss="poisson", penalty=penalty, alpha="exact", fit_intercept=True)
    assert result.converged
    np.testing.assert_array_equal(result.coef, np.zeros(P))


def test_first_order_steps_grow_where_the_loss_is_flatter():
    """At 0 the curvature of the Gamma loss is that of the largest target; elsewhere it is far less."""
    X, y = data("gamma")
    for solver in ("bcd", "prox"):
        result = solve(
            X, 1e3 * y, loss="gamma", penalty=TrimmedL1(2), alpha=0.05, solver=solver, fit_intercept=True
        )
        assert result.converged
        assert result.n_iter < 500
        assert np.max(np.diff(result.history["objective"])) <= 1e-12


# -- random problems ---------------------------------------------------------------------------------


class TimeUpError(Exception):
    pass


@contextmanager
def time_limit(seconds):
    """A limit of processor time: on a busy machine the clock goes on while the process waits."""

    def stop(*_):
        raise TimeUpError(f"no answer after {seconds} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def awkward_columns(rng, n, p):
    """Zeros, constants, copies, indicators and columns of odd sizes among normal ones."""
    X = rng.standard_normal((n, p))
    for j, kind in enumerate(rng.random(p)):
        if kind < 0.1:
            X[:, j] = 0.0
        elif kind < 0.2:
            X[:, j] = 3.0
        elif kind < 0.35 and j:
            X[:, j] = X[:, rng.integers(j)]
        elif kind < 0.45:
            X[:, j] = X[:, j] > 0
        elif kind < 0.55:
            X[:, j] *= 10.0 ** rng.integers(-6, 7)
    return X


def awkward_target(rng, name, eta):
    """Separable classes, one class, counts of zero, perfect fits, one event."""
    n, noise = eta.size, rng.choice([0.0, 0.3])
    if name == "logistic":
        return (
            np.select([rng.random() < 0.5, rng.random() < 0.2], [eta > 0, np.ones(n)], rng.random(n) < 0.5)
            * 1.0
        )
    if name == "multinomial":
        return np.digitize(eta, [-1, 1]) * 1.0 if rng.random() < 0.4 else rng.integers(0, 4, n) * 1.0
    if name == "poisson":
        return rng.poisson(np.exp(np.clip(eta, -5, 4))) * float(rng.random() < 0.8)
    if name == "gamma":
        return np.exp(np.clip(eta, -20, 20)) * rng.gamma(2.0, size=n)
    if name == "cox":
        event = rng.random(n) < rng.choice([0.1, 0.7])
        event[0] = True
        return np.column_stack([np.ceil(3 * rng.exponential(np.exp(-np.clip(eta, -5, 5)))), event]) * 1.0
    if name == "multitask":
        K = rng.integers(1, 4)
        return np.outer(eta, rng.standard_normal(K)) + noise * rng.standard_normal((n, K))
    y = eta + noise * rng.standard_normal(n)
    y[0] += 100.0 * name.startswith("huber")
    return y


def awkward_problem(seed):
    rng = np.random.default_rng(seed)
    n, p = int(rng.integers(2, 30)), int(rng.integers(1, 14))
    X = awkward_columns(rng, n, p)
    size = np.abs(X).max(axis=0)
    eta = (X / np.where(size > 0, size, 1.0)) @ (rng.standard_normal(p) * (rng.random(p) < 0.4) * 5)
    name = list(LOSSES)[rng.integers(len(LOSSES))]
    y = awkward_target(rng, name, eta)
    kind, count = {}, p
    if rng.random() < 0.7:
        labels = np.unique(rng.integers(0, max(1, p // 2), p), return_inverse=True)[1]
        kind, count = {"groups": labels, "q": rng.choice([2, np.inf])}, labels.max() + 1
    if rng.random() < 0.4:
        kind["penalty_factor"] = rng.choice([0.0, 0.5, 1.0, np.inf], count, p=[0.15, 0.4, 0.35, 0.1])
    solver = str(rng.choice(["mm", "mm", "mm", "bcd", "dc", "prox"]))
    alpha = "exact" if rng.random() < 0.4 else float(10.0 ** rng.uniform(-4, 1))
    weight = None
    if rng.random() < 0.4:
        weight = rng.random(n) * (rng.random(n) < 0.8)
        weight[0] = 1.0
    options = {"effort": str(rng.choice(["low", "medium", "high"]))} if solver == "mm" else {"max_iter": 500}
    arguments = {
        "loss": LOSSES[name], "penalty": TrimmedL1(int(rng.integers(0, count + 1)), **kind), "alpha": alpha,
        "solver": solver, "fit_intercept": bool(rng.random() < 0.5), "standardize": bool(rng.random() < 0.5),
        "sample_weight": weight, **options,
    }  # fmt: skip
    return SimpleNamespace(X=X, y=y, arguments=arguments)


@pytest.mark.parametrize("block", range(4))
def test_awkward_problems(block):
    """No NaN, no silence about failure, no other exception, an end; and F is what the coefficients say."""
    for seed in range(30 * block, 30 * block + 30):
        problem = awkward_problem(seed)
        X, y, arguments = problem.X, problem.y, problem.arguments
        with time_limit(20), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = solve(X, y, **arguments)
        kinds = {w.category for w in caught}
        assert kinds <= {ConvergenceWarning, UserWarning}, (seed, [str(w.message) for w in caught])
        assert result.converged or ConvergenceWarning in kinds, seed
        for values in (result.coef, result.intercept, result.weights, result.objective, result.stationarity):
            assert np.isfinite(values).all(), seed
        coef = np.atleast_2d(result.coef).any(axis=0)
        theta = np.atleast_2d(result.theta.reshape(X.shape[1], -1).T).any(axis=0)
        np.testing.assert_array_equal(coef, theta, err_msg=str(seed))
        weight = arguments["sample_weight"]
        d = np.full(len(X), 1 / len(X)) if weight is None else weight / weight.sum()
        loss = get_loss(arguments["loss"]).bound(y, d)
        penalty = arguments["penalty"].bind(X.shape[1], loss.n_outputs)
        found = loss.value(X @ result.coef.T + result.intercept, y, d)
        found += penalty.value(result.theta, result.alpha)
        origin = loss.value(np.zeros((len(X), loss.n_outputs) if loss.multi_output else len(X)), y, d)
        assert abs(found - result.objective) <= 1e-6 * (abs(found) + abs(origin)), seed
        if arguments["alpha"] == "exact":
            used = penalty.norm.lengths(result.theta)[penalty.levels(1.0) > 0]
            assert np.count_nonzero(used) <= penalty.n_free, seed


# -- single swaps, by enumeration ------------------------------------------------------------------------


def correlated_classes(loss, seed, k, n=100, p=20):
    """AR(1) columns of correlation 0.5, k of them with an effect."""
    rng = np.random.default_rng(seed)
    distance = np.abs(np.subtract.outer(np.arange(p), np.arange(p)))
    X = rng.standard_normal((n, p)) @ np.linalg.cholesky(0.5**distance).T
    effects = rng.standard_normal((k, 3 if loss == "multinomial" else 1))
    eta = X[:, rng.choice(p, k, replace=False)] @ effects
    if loss == "multinomial":
        return X, np.argmax(1.5 * eta + rng.gumbel(size=(n, 3)), axis=1)
    if loss == "logistic":
        return X, (rng.random(n) < 1 / (1 + np.exp(-1.5 * eta[:, 0]))).astype(int)
    return X, rng.poisson(np.exp(np.clip(0.6 * eta[:, 0], -5, 5)))


@pytest.mark.parametrize(
    ("loss", "seed", "h"),
    [("multinomial", 6, 3), ("logistic", 0, 5), ("logistic", 5, 5), ("poisson", 0, 3)],
)
def test_no_single_swap_is_missed(loss, seed, h):
    """The quadratic model of the loss does not rank these swaps first."""
    X, y = correlated_classes(loss, seed, h)
    Model = TrimmedPoissonRegressor if loss == "poisson" else TrimmedLogisticRegression
    found = Model(h=h).fit(X, y)
    support = np.flatnonzero(np.atleast_2d(found.coef_).any(axis=0))
    assert support.size == h
    for i in support:
        for j in np.setdiff1d(np.arange(X.shape[1]), support):
            swapped = np.append(support[support != i], j)
            other = Model(h=h, effort="low").fit(X[:, swapped], y)
            assert other.objective_ >= found.objective_ - 1e-6 * abs(found.objective_), (i, j)


@pytest.mark.parametrize("loss", ["multitask", "gamma"])
def test_fits_that_nearly_interpolate_are_not_kicked(loss, monkeypatch):
    """Every kick was a search as large as the data; the free set hardly matters there."""
    kicks = []
    monkeypatch.setattr("trimreg.solvers.mm.solver.kick", lambda *given: kicks.append(given))
    X, y = data(loss, n=30, p=60)
    result = solve(X, y, loss=loss, penalty=TrimmedL1(2), alpha=2e-3, fit_intercept=True)
    assert result.converged
    assert np.count_nonzero(result.coef) >= 15 * (2 if loss == "multitask" else 1)
    assert not kicks
