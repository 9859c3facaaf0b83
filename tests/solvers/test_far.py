"""Fits on rows that are gone through by blocks agree with fits in memory, and take few passes."""

from dataclasses import replace

import numpy as np
import pytest

import trimreg
from trimreg import L1, MCP, SCAD, SLOPE, TrimmedL1, solve
from trimreg.designs import Design, as_design
from trimreg.designs.far.rows import ArrayRows
from trimreg.losses import Cox, Huber, get_loss
from trimreg.solvers import Problem, get_solver
from trimreg.solvers.mm import solver as mm
from trimreg.solvers.mm.workingset import WorkingSetSolver
from trimreg.solvers.search import subset

N, P, H = 240, 40, 4


def design_of(n=N, p=P, rho=0.5, seed=0, shift=0.0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    for j in range(1, p):
        X[:, j] = rho * X[:, j - 1] + np.sqrt(1 - rho**2) * X[:, j]
    return X * rng.uniform(0.5, 2.0, p) + shift, rng


def target_of(loss, X, rng):
    n, p = X.shape
    beta = np.zeros(p)
    beta[[1, p // 3, p // 2, p - 2]] = 1.0, -1.5, 0.8, 1.2
    eta = (X - X.mean(axis=0)) @ beta / 2
    noise = rng.standard_normal(n)
    if loss in ("logistic", "multinomial"):
        count = 2 if loss == "logistic" else 3
        return np.clip(np.floor(eta + noise + count / 2), 0, count - 1)
    if loss == "poisson":
        return rng.poisson(np.exp(0.5 * np.tanh(eta))).astype(float)
    if loss == "gamma":
        return rng.gamma(2.0, np.exp(0.5 * np.tanh(eta)))
    if loss == "multitask":
        return np.column_stack([eta + noise, 0.5 * eta - rng.standard_normal(n)])
    if loss == "cox":
        return np.column_stack([np.round(rng.exponential(np.exp(-np.tanh(eta))), 1), rng.random(n) < 0.7])
    return eta + noise


def both(X, y, block_rows=50, memory=None, **arguments):
    rows = ArrayRows(X, block_rows, **({} if memory is None else {"memory": memory}))
    return solve(X, y, **arguments), solve(rows, y, **arguments), rows


def assert_agree(near, far, atol=1e-6):
    one, other = near.coef, far.coef
    intercepts = np.atleast_1d(near.intercept), np.atleast_1d(far.intercept)
    if np.ndim(near.intercept) and len(intercepts[0]) == 3:
        # A multinomial model does not see what is common to its classes, and no penalty decides it where a
        # feature is free.
        one, other = one - one.mean(axis=0), other - other.mean(axis=0)
        intercepts = [values - values.mean() for values in intercepts]
    np.testing.assert_allclose(other, one, rtol=0, atol=atol * max(1.0, np.abs(one).max()))
    np.testing.assert_allclose(*intercepts, rtol=0, atol=1e-5)
    assert abs(far.objective - near.objective) <= 1e-9 * abs(near.objective)
    assert far.converged
    assert near.converged
    assert far.swap_optimal == near.swap_optimal
    np.testing.assert_array_equal(far.weights == 0, near.weights == 0)


LOSSES = {
    "quadratic": "quadratic",
    "logistic": "logistic",
    "poisson": "poisson",
    "gamma": "gamma",
    "huber": Huber(),
    "huber-scale": Huber(scale=0.7),
    "multinomial": "multinomial",
    "multitask": "multitask",
    "cox": Cox(),
    "cox-breslow": Cox(ties="breslow"),
}


def test_every_loss_is_here():
    assert {name.split("-")[0] for name in LOSSES} <= set(trimreg.losses.LOSSES)


@pytest.mark.parametrize("alpha", ["exact", 0.05])
@pytest.mark.parametrize("name", LOSSES)
def test_every_loss(name, alpha):
    if alpha == "exact" and name in ("poisson", "gamma"):
        alpha = 1.0  # they have no threshold
    X, rng = design_of()
    y = target_of(name.split("-")[0], X, rng)
    near, far, rows = both(
        X, y, loss=LOSSES[name], penalty=TrimmedL1(h=H), alpha=alpha, fit_intercept=True, tol=1e-7
    )
    assert_agree(near, far)
    assert np.count_nonzero(near.coef) >= H
    assert 0 < rows.passes <= 50


@pytest.mark.parametrize("name", LOSSES)
def test_no_room_for_columns(name):
    X, rng = design_of(n=120, p=30)
    y = target_of(name.split("-")[0], X, rng)
    arguments = {"loss": LOSSES[name], "penalty": TrimmedL1(h=3), "alpha": 0.1, "fit_intercept": True}
    for columns in (0, 3, 12):
        near, far, _ = both(X, y, memory=columns * 8 * len(X), tol=1e-7, **arguments)
        assert_agree(near, far)


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("loss", ["quadratic", "logistic"])
def test_sample_weights_standardize_and_intercept(loss, fit_intercept, standardize):
    X, rng = design_of(seed=3, shift=1.0)
    y = target_of(loss, X, rng)
    weight = rng.random(N)
    weight[::7] = 0.0
    for alpha in ("exact", 0.02):
        near, far, _ = both(
            X, y, loss=loss, penalty=TrimmedL1(h=H), alpha=alpha, fit_intercept=fit_intercept,
            standardize=standardize, sample_weight=weight, tol=1e-8,
        )  # fmt: skip
        assert_agree(near, far)


PENALTIES = {
    "l1": L1(),
    "mcp": MCP(gamma=3.0),
    "scad": SCAD(gamma=3.7),
    "factors": TrimmedL1(h=3, penalty_factor=[0.0, np.inf, 2.0] + [1.0] * (P - 3)),
    "groups": TrimmedL1(h=2, groups=np.repeat(np.arange(P // 4), 4)),
    "groups-inf": TrimmedL1(h=2, groups=np.repeat(np.arange(P // 4), 4), q=np.inf),
    "nothing-free": TrimmedL1(h=0),
    "all-free": TrimmedL1(h=P),
}


@pytest.mark.parametrize("loss", ["quadratic", "logistic"])
@pytest.mark.parametrize("name", PENALTIES)
def test_penalties(name, loss):
    X, rng = design_of(seed=4)
    y = target_of(loss, X, rng)
    near, far, _ = both(X, y, loss=loss, penalty=PENALTIES[name], alpha=0.05, fit_intercept=True, tol=1e-8)
    assert_agree(near, far)


def test_a_penalty_without_weights():
    X, rng = design_of(seed=4)
    y = target_of("quadratic", X, rng)
    near, far, rows = both(X, y, penalty=SLOPE(), alpha=0.05, solver="prox", tol=1e-8)
    np.testing.assert_allclose(far.coef, near.coef, rtol=0, atol=1e-6)
    assert far.converged
    assert rows.passes <= 15


@pytest.mark.parametrize("loss", ["quadratic", "logistic"])
@pytest.mark.parametrize("penalty", [TrimmedL1(h=3), L1()])
def test_positive(loss, penalty):
    X, rng = design_of(seed=5)
    near, far, _ = both(
        X, target_of(loss, X, rng), loss=loss, penalty=penalty, alpha=0.05, positive=True, tol=1e-8
    )
    assert_agree(near, far)
    assert (far.coef >= 0).all()
    assert far.coef.any()


@pytest.mark.parametrize("solver", ["bcd", "dc", "prox"])
@pytest.mark.parametrize("loss", ["quadratic", "logistic"])
def test_first_order_solvers(solver, loss):
    X, rng = design_of(n=80, p=12, rho=0.0, seed=6)
    near, far, rows = both(
        X, target_of(loss, X, rng), loss=loss, penalty=TrimmedL1(h=3), alpha=0.05, solver=solver, tol=1e-7,
        fit_intercept=True,
    )  # fmt: skip
    np.testing.assert_allclose(far.coef, near.coef, rtol=0, atol=1e-6)
    assert far.converged
    assert far.stationarity <= 1e-12
    if loss == "quadratic":
        assert rows.passes <= 15  # the many steps are taken on few rows


@pytest.mark.parametrize("solver", ["bcd", "dc", "prox"])
@pytest.mark.parametrize("far", [False, True])
def test_first_order_solvers_reach_the_tolerance_with_float32(solver, far):
    """Products are float64, so the goal is not that of the storage: 50 eps of float32 would be 6e-6."""
    X, rng = design_of(n=80, p=12, rho=0.3, seed=7)
    X = X.astype(np.float32)
    y = target_of("quadratic", X.astype(float), rng)
    tol = 1e-9
    given = ArrayRows(X, 30) if far else X
    result = solve(given, y, penalty=TrimmedL1(h=3), alpha=0.05, solver=solver, tol=tol)
    largest = np.max(np.abs(X.astype(float).T @ y)) / len(y)
    assert result.converged
    assert np.sqrt(result.stationarity) <= 2 * tol * largest


# -- shapes and data that are hard ---------------------------------------------------------------------


@pytest.mark.parametrize("block_rows", [1, 7, 10_000])
@pytest.mark.parametrize("loss", ["quadratic", "logistic"])
def test_blocks_of_any_size(loss, block_rows):
    X, rng = design_of(n=90, p=20, seed=8)
    near, far, _ = both(
        X, target_of(loss, X, rng), block_rows, loss=loss, penalty=TrimmedL1(h=3), alpha="exact",
        fit_intercept=True, tol=1e-8,
    )  # fmt: skip
    assert_agree(near, far)


@pytest.mark.parametrize("alpha", ["exact", 0.05])
@pytest.mark.parametrize("loss", ["quadratic", "logistic"])
def test_wider_than_long(loss, alpha):
    X, rng = design_of(n=60, p=150, seed=9)
    near, far, _ = both(
        X,
        target_of(loss, X, rng),
        loss=loss,
        penalty=TrimmedL1(h=3),
        alpha=alpha,
        fit_intercept=True,
        tol=1e-8,
    )
    assert_agree(near, far)


@pytest.mark.parametrize("memory", [None, 0])
def test_wide_least_squares_is_certified_by_passes(memory):
    """Too wide to be compressed; a duplicate column has to be asked about."""
    X, rng = design_of(n=60, p=150, seed=10)
    y = target_of("quadratic", X, rng)
    X[:, 140] = 2.0 * X[:, 1] + 3.0
    near, far, _ = both(X, y, memory=memory, penalty=TrimmedL1(h=4), alpha="exact", fit_intercept=True)
    assert_agree(near, far)
    assert far.swap_optimal


def test_constant_and_duplicate_columns():
    X, rng = design_of(seed=11)
    y = target_of("quadratic", X, rng)
    X[:, 5] = 0.1
    X[:, 9] = 0.0
    X[:, 17] = -X[:, 1] / 3
    for loss in ("quadratic", "huber"):
        near, far, _ = both(X, y, loss=loss, penalty=TrimmedL1(h=H), alpha=0.05, fit_intercept=True, tol=1e-8)
        assert abs(far.objective - near.objective) <= 1e-9 * near.objective
        assert far.coef[5] == far.coef[9] == 0
    near, far, _ = both(X, y, penalty=TrimmedL1(h=H), alpha="exact", fit_intercept=True)
    assert near.swap_optimal
    assert far.swap_optimal
    assert abs(far.objective - near.objective) <= 1e-9 * near.objective


def test_a_column_that_is_nearly_dependent_leaves_optimality_undecided():
    X, rng = design_of(seed=12)
    y = target_of("quadratic", X, rng)
    X[:, 17] = X[:, 1] + 1e-6 * rng.standard_normal(N)
    near, far, _ = both(X, y, penalty=TrimmedL1(h=H), alpha="exact", fit_intercept=True)
    assert near.swap_optimal is None
    assert far.swap_optimal is None


@pytest.mark.parametrize("loss", ["quadratic", "logistic", "cox"])
def test_columns_whose_mean_is_a_thousand_deviations(loss):
    X, rng = design_of(seed=13)
    X += 1e3 * X.std(axis=0)
    near, far, _ = both(
        X, target_of(loss, X, rng), loss=loss, penalty=TrimmedL1(h=H), alpha=0.02, fit_intercept=True,
        standardize=True, tol=1e-8,
    )  # fmt: skip
    np.testing.assert_allclose(far.coef, near.coef, rtol=0, atol=1e-6)
    assert far.converged


def test_ill_conditioned_least_squares_is_confirmed_on_the_data():
    """Condition number 1e6: the Gram matrix alone, with its square, would give four digits."""
    rng = np.random.default_rng(14)
    X = rng.standard_normal((N, 8))
    X[:, 4:] = X[:, :4] + 1e-6 * X[:, 4:]
    y = X[:, 0] + 1e5 * (X[:, 5] - X[:, 1]) + 0.1 * rng.standard_normal(N)
    near, far, rows = both(X, y, penalty=TrimmedL1(h=8), alpha=0.1, tol=1e-10)
    exact = np.linalg.lstsq(X, y, rcond=None)[0]
    assert far.converged
    scale = np.max(np.abs(X.T @ y)) / N
    assert np.max(np.abs(X.T @ (X @ far.coef - y))) / N <= 1e-9 * scale
    assert np.abs(far.coef - exact).max() <= 1e2 * max(np.abs(near.coef - exact).max(), 1e-6)
    assert rows.passes <= 20


def test_as_many_free_as_samples_of_positive_weight():
    """The few rows are more than the samples that count: least norm is a matter of the data."""
    X, _ = design_of(n=60, p=20, seed=15)
    weight = np.zeros(60)
    weight[:8] = 1.0
    with pytest.warns(UserWarning, match="least norm"):
        near = solve(X, X[:, 0], penalty=TrimmedL1(h=10), alpha=0.1, sample_weight=weight)
    with pytest.warns(UserWarning, match="least norm"):
        far = solve(ArrayRows(X, 7), X[:, 0], penalty=TrimmedL1(h=10), alpha=0.1, sample_weight=weight)
    np.testing.assert_allclose(far.coef, near.coef, atol=1e-8)


def test_float32_rows():
    X, rng = design_of(seed=16)
    X = X.astype(np.float32)
    for loss in ("quadratic", "logistic"):
        near, far, _ = both(
            X, target_of(loss, X.astype(float), rng), loss=loss, penalty=TrimmedL1(h=H), alpha="exact",
            fit_intercept=True,
        )  # fmt: skip
        assert far.coef.dtype == np.float32
        np.testing.assert_allclose(far.coef, near.coef, rtol=0, atol=1e-6)


# -- the parts --------------------------------------------------------------------------------------------


def problem_of(X, y, loss, rows=None, center=True):
    d = np.full(len(X), 1.0 / len(X))
    loss = get_loss(loss).bound(y, d)
    design = as_design(X if rows is None else rows, d, center=center)
    return Problem(design, loss, y, d, TrimmedL1(h=3).bind(X.shape[1]), 0.05)


@pytest.mark.parametrize("room", [0, 5, 30])
@pytest.mark.parametrize("name", ["huber", "huber-scale", "cox", "cox-breslow", "logistic"])
def test_hessians(name, room, monkeypatch):
    """Exact by blocks too; with no room for its columns, that of Cox is replaced by a matrix above it."""
    monkeypatch.setattr("trimreg.losses.cox.loss._ELEMENTS", 2 * N)  # two columns at a time
    X, rng = design_of(seed=20, shift=2.0)
    y = target_of(name.split("-")[0], X, rng)
    near = problem_of(X, y, LOSSES[name])
    far = problem_of(X, y, LOSSES[name], ArrayRows(X, 50, memory=room * 8 * N))
    theta, W = np.zeros(P), np.array([3, 1, 30, 11, 12])
    theta[W] = 0.3, -0.2, 0.1, 0.2, -0.1
    eta = near.predictor(theta)
    one, other = near.hessian(eta, W), far.hessian(eta, W)
    if name.startswith("cox") and room == 0:
        assert np.linalg.eigvalsh(other - one).min() >= -1e-12
        assert np.abs(other - one).max() <= np.abs(one).max()
    else:
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-12 * np.abs(one).max())
    held = far.design.restricted(W).restricted(np.array([2, 0]))
    np.testing.assert_allclose(held.columns(np.arange(2)), near.design.columns(W[[2, 0]]), atol=1e-12)


@pytest.mark.parametrize("room", [0, 40])
def test_what_columns_leave_of_others_is_found_to_rounding(room):
    """A is ill-conditioned: shares from its Gram matrix alone leave 1e-13 of a dependent column."""
    rng = np.random.default_rng(21)
    X = rng.standard_normal((N, 6))
    X[:, 2] = X[:, 0] + X[:, 1] + 3e-3 * X[:, 2]
    X[:, 4] = 100 * (X[:, 2] - X[:, 0] - X[:, 1]) + X[:, 3]
    X[:, 5] = X[:, 0] + 1e-9 * X[:, 5]
    d = np.full(N, 1.0 / N)
    X /= np.sqrt(np.mean(X**2, axis=0))
    A, others = np.array([0, 1, 2, 3]), np.array([4, 5])
    far = as_design(ArrayRows(X, 50, memory=room * 8 * N), d)
    dependent, nearly = subset._unexplained_far(far, d, A, others)
    exact = subset._unexplained(as_design(X, d), d, A, others)
    assert dependent <= 2e-14
    assert nearly == pytest.approx(exact[1], rel=1e-4)
    assert 1e-10 < nearly < 1e-8


def test_a_point_is_known_only_if_it_was_solved_for_last():
    X, rng = design_of(seed=22)
    rows = ArrayRows(X, 50)
    problem = problem_of(X, target_of("logistic", X, rng), "logistic", rows)
    inner = WorkingSetSolver(problem.normalized()[0], 1e-6)
    solution = inner.solve(inner.null, np.full(P, 0.05))
    before = rows.passes
    eta, gradient, loss = inner.point(solution.theta)
    assert rows.passes == before
    np.testing.assert_allclose(eta, inner.problem.predictor(solution.theta), atol=1e-12)
    np.testing.assert_allclose(gradient, inner.problem.loss_gradient(eta), atol=1e-12)
    assert loss == pytest.approx(inner.problem.loss_value(eta), rel=1e-12)
    other = 0.5 * solution.theta
    eta, gradient, _ = inner.point(other)
    np.testing.assert_allclose(eta, inner.problem.predictor(other), atol=1e-12)
    np.testing.assert_allclose(gradient, inner.problem.loss_gradient(eta), atol=1e-12)


def test_the_data_correct_a_wrong_solution_of_few_rows():
    """From a point that is off, with Gram matrices of the few rows: passes are for gradients alone."""
    X, rng = design_of(seed=23)
    rows = ArrayRows(X, 50)
    problem = problem_of(X, target_of("quadratic", X, rng), "quadratic", rows)
    few = problem.compressed()
    *_, step = mm.iterate(few, None, tol=1e-9)
    wrong = replace(step, theta=step.theta * 1.01, swap_optimal=True)
    before = rows.passes
    asked = []
    rows.sweep = lambda kernel, *args, **named: (
        asked.append(kernel.__name__) or ArrayRows.sweep(rows, kernel, *args, **named)
    )
    *_, end = mm.confirm(problem, few, wrong, tol=1e-9)
    np.testing.assert_allclose(end.theta, step.theta, atol=1e-8)
    assert end.converged
    assert end.swap_optimal  # the free set has stayed
    assert set(asked) == {"transposed_product", "block_columns"}
    assert rows.passes - before <= 6
    moved = replace(wrong, weights=np.roll(step.weights, 1))
    *_, end = mm.confirm(problem, few, moved, tol=1e-9)
    assert end.swap_optimal is None


class FiveOperations(Design):
    """The least that a user may write."""

    def __init__(self, inner):
        self.inner, self.shape, self.dtype = inner, inner.shape, inner.dtype

    def matvec(self, v):
        return self.inner.matvec(v)

    def rmatvec(self, r):
        return self.inner.rmatvec(r)

    def columns(self, W):
        return self.inner.columns(W)

    def gram(self, rows, d, cols):
        return self.inner.gram(rows, d, cols)

    def column_norms(self, d):
        return self.inner.column_norms(d)


def test_a_design_of_five_operations_is_near():
    X, rng = design_of(seed=24)
    y = target_of("quadratic", X, rng)
    near = problem_of(X, y, "quadratic")
    *_, one = get_solver("mm").iterate(near, None)
    *_, other = get_solver("mm").iterate(replace(near, design=FiveOperations(near.design)), None)
    np.testing.assert_allclose(one.theta, other.theta, rtol=1e-9)


# -- passes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [0.5, 0.95])
def test_passes_of_least_squares(rho):
    X, rng = design_of(n=1000, p=100, rho=rho, seed=17)
    y = target_of("quadratic", X, rng)
    for alpha in ("exact", 0.05):
        near, far, rows = both(
            X, y, penalty=TrimmedL1(h=8), alpha=alpha, fit_intercept=True, standardize=True
        )
        assert rows.passes <= 6
        assert_agree(near, far)


def test_rows_say_up_to_which_width_the_gram_matrix_is_worth_its_cost():
    X, rng = design_of(n=300, p=40, rho=0.5, seed=19)
    y, d = target_of("quadratic", X, rng), np.full(300, 1 / 300)
    for widest, answer in ((40, True), (39, False)):
        rows = ArrayRows(X, block_rows=50)
        rows.widest_gram = widest
        problem = Problem(as_design(rows, d), get_loss("quadratic"), y, d, TrimmedL1(h=3).bind(40), 0.1)
        assert problem.worth_compressing() is answer
        assert_agree(*(solve(data, y, penalty=TrimmedL1(h=3), alpha="exact") for data in (X, rows)))


@pytest.mark.parametrize(("alpha", "most"), [("exact", 20), (0.01, 20)])
def test_passes_of_logistic_regression(alpha, most):
    X, rng = design_of(n=2000, p=100, rho=0.3, seed=18)
    y = target_of("logistic", X, rng)
    near, far, rows = both(X, y, loss="logistic", penalty=TrimmedL1(h=4), alpha=alpha, fit_intercept=True)
    assert_agree(near, far)
    assert rows.passes <= most


@pytest.mark.parametrize("alpha", ["exact", 0.01])
def test_the_solution_is_the_same_at_the_default_tolerance(alpha):
    """Columns that are much alike. In memory the solver takes other steps, so the tolerance decides."""
    X, rng = design_of(n=1000, p=100, rho=0.95, seed=25)
    y = target_of("logistic", X, rng)
    near, far, rows = both(X, y, loss="logistic", penalty=TrimmedL1(h=6), alpha=alpha, fit_intercept=True)
    assert_agree(near, far, atol=1e-4)
    assert far.objective == pytest.approx(near.objective, rel=1e-9)
    assert rows.passes <= 45


def test_the_certificate_is_measured_on_the_data():
    X, rng = design_of(seed=19)
    y = target_of("quadratic", X, rng)
    result = solve(ArrayRows(X, 50), y, penalty=TrimmedL1(h=H), alpha=0.05, tol=1e-8)
    residual = X.T @ (X @ result.coef - y) / N
    inactive = (result.coef == 0) & (result.weights > 0)
    assert np.abs(residual[inactive]).max() <= 0.05 * (1 + 1e-6)
    assert np.abs(residual[result.weights == 0]).max() <= 1e-7
    assert result.stationarity <= 1e-12
