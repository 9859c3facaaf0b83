"""Lower bounds against enumeration: a bound that is too high by a billionth fails here."""

from itertools import combinations

import numpy as np
import pytest

from trimreg.estimators.task import Settings, check_data, set_up
from trimreg.losses import Huber
from trimreg.penalties import TrimmedL1
from trimreg.solvers.certify.relaxation import Quadratic, separated
from trimreg.solvers.certify.setup import Model, Unbounded

LOSSES = ["quadratic", "logistic", "poisson", Huber(scale=0.7)]


def target(loss, eta, rng):
    if loss == "logistic":
        return (rng.random(eta.size) < 1 / (1 + np.exp(-eta))) * 1.0
    if loss == "poisson":
        return rng.poisson(np.exp(np.clip(eta, -3, 2))) * 1.0
    return eta + rng.standard_normal(eta.size)


def problem_of(rng, loss, *, soft=False, grouped=False, n=None, p=6, h=2):
    """A small problem: sometimes nearly collinear, weighted, of odd scale, with factors 0 and inf."""
    n = int(rng.integers(8, 25)) if n is None else n
    X = rng.standard_normal((n, p))
    kind = rng.integers(4)
    if kind == 1:
        X[:, 1] = X[:, 0] + 10.0 ** -rng.integers(1, 6) * X[:, 1]
    if kind == 2:
        X[:, 3] = X[:, 2] + X[:, 4] + 1e-3 * X[:, 3]
    y = target(loss, X[:, :3] @ rng.standard_normal(3), rng)
    scale = 10.0 ** rng.choice([-6, 0, 6])
    X *= scale
    factor = None
    if kind == 3 and not grouped:
        factor = rng.choice([0.0, 0.5, 1.0, 2.0, np.inf], size=p, p=[0.15, 0.2, 0.3, 0.2, 0.15])
    least_squares = loss == "quadratic"
    if least_squares and rng.random() < 0.3:
        y = y * 10.0 ** rng.choice([-6.0, 6.0])
    settings = Settings(
        loss=loss,
        penalty=TrimmedL1(h, factor, groups=[0, 0, 1, 2, 2, 2] if grouped else None),
        alpha="exact",
        l2=float(rng.choice([1e-3, 1e-1, 1.0])) if not least_squares or rng.random() < 0.6 else 0.0,
        fit_intercept=bool(rng.integers(2)),
        standardize=bool(least_squares or scale != 1.0 or rng.integers(2)),
    )
    weight = rng.random(n) if rng.integers(2) else None
    task = set_up(check_data(X, y, weight, settings), settings)
    if not soft:
        return task.problem
    return task.problem.at(task.problem.exact_threshold() * float(rng.choice([0.02, 0.1, 0.4])))


def enumerated(model):
    """The smallest objective for each set of h free parts, the others being penalized or 0."""
    problem, values = model.problem, {}
    levels, norm = problem.penalty.levels(1.0), problem.penalty.norm
    always = norm.coordinates(np.flatnonzero(levels == 0))
    for parts in combinations(model.parts, model.count):
        if model.hard and problem.loss.least_squares:
            W = np.concatenate([norm.coordinates(np.array(parts, dtype=int)), always])
            values[parts] = ridge_value(problem, W)
            continue
        theta = model._fitted(np.array(parts, dtype=int))[0]
        paid = np.setdiff1d(model.parts, parts) if not model.hard else []
        penalty = problem.alpha * float(levels[paid] @ norm.lengths(theta)[paid]) if len(paid) else 0.0
        values[parts] = problem.smooth_value(theta, problem.predictor(theta)) + penalty
    return values


def ridge_value(problem, W):
    """Least squares with a ridge on these columns, by an orthogonal decomposition of added rows."""
    root, ridge = np.sqrt(problem.d), np.sqrt(problem.ridge[W])
    rows = np.concatenate([root[:, None] * problem.design.columns(W), np.diag(ridge)])
    scale = np.linalg.norm(rows, axis=0)
    rows = rows / np.where(scale > 0, scale, 1.0)
    y = np.concatenate([root * problem.y, np.zeros(W.size)])
    left = y - rows @ np.linalg.lstsq(rows, y, rcond=None)[0]
    return 0.5 * float(left @ left)


def allowed(values, parts, state):
    """The smallest value among the free sets that the decisions allow."""
    free, closed = set(parts[state == 1]), set(parts[state == -1])
    return min((v for s, v in values.items() if free <= set(s) and not closed & set(s)), default=np.inf)


def check_bounds(problem, rng):
    """Bounds of some nodes, at solved and at random dual points; returns the gap at the root's children."""
    try:
        model = Model(problem, np.zeros(problem.n_features))
    except Unbounded:
        return 0
    values = enumerated(model)
    root, parts = model.root, model.parts
    scale = problem.loss_value(problem.origin())
    start = root.quadratic.c.size
    for decisions in range(3):
        state = np.zeros(parts.size, dtype=np.int8)
        for part in rng.permutation(parts.size)[: decisions * parts.size // 3]:
            room = np.count_nonzero(state == 1) < model.count
            needed = np.count_nonzero(state != -1) <= model.count
            state[part] = 1 if needed or (room and rng.random() < 0.5) else -1
        if np.count_nonzero(state == 1) > model.count:
            continue
        least = allowed(values, parts, state)
        found = root.solve(state, np.zeros(start), 0.0, np.inf)
        bounds = [found.bound]
        verdicts = found.verdicts(values[min(values, key=values.get)] * 1.0001 + 1e-9)
        if (verdicts != 0).any():
            ruled_out = []
            for part in np.flatnonzero(verdicts):
                other = state.copy()
                other[part] = -verdicts[part]
                ruled_out.append(allowed(values, parts, other))
            assert found.opposite(verdicts) <= min(ruled_out) + 1e-9 * max(abs(min(ruled_out)), scale)
        if problem.loss.least_squares:
            size = np.abs(found.theta).max(initial=0.1)
            bounds += [
                root.valued(state, found.theta + size * s * rng.standard_normal(start)).bound
                for s in (1, 0.05)
            ]
            child = root.child(state) if (state == 0).any() else None
            if child is not None:
                none = np.zeros(child.quadratic.parts.size, dtype=np.int8)
                bounds.append(child.solve(none, *child.first, np.inf).bound)
            if not (state == 0).any():
                bounds.append(root.decided(state, found)[1].bound)
        assert max(bounds) <= least + 1e-9 * abs(least) + 1e-13 * scale
    return 1


@pytest.mark.parametrize("loss", LOSSES, ids=["squares", "logistic", "poisson", "huber"])
def test_no_bound_is_above_the_enumerated_minimum(loss, request):
    """Soft and hard, single coefficients and groups: 640 problems, 2,000 with ``--every-combination``."""
    squares = (200, 650) if request.config.getoption("--every-combination") else (40, 130)
    for soft in (False, True):
        for grouped in (False, True):
            rounds = 25 if loss != "quadratic" else squares[0] if soft else squares[1]
            rng = np.random.default_rng([LOSSES.index(loss), soft, grouped])
            bounded = sum(
                check_bounds(problem_of(rng, loss, soft=soft, grouped=grouped), rng) for _ in range(rounds)
            )
            assert bounded > 0.6 * rounds


def test_the_bound_of_a_decided_node_is_its_fit():
    """No slack hides an error: where all is decided the bound is the value, to rounding."""
    rng = np.random.default_rng(5)
    for soft in (False, True):
        problem = problem_of(rng, "quadratic", soft=soft, n=24)
        model = Model(problem, np.zeros(problem.n_features))
        values = enumerated(model)
        best = min(values, key=values.get)
        state = np.where(np.isin(model.parts, best), 1, -1).astype(np.int8)
        near = model.root.solve(state, np.zeros(model.root.quadratic.c.size), 0.0, np.inf)
        found = model.root.decided(state, near)[1].bound
        assert values[best] * (1 - 1e-8) <= found <= values[best] * (1 + 1e-9)


def test_the_last_free_part_need_not_be_decided():
    """With one place left and one part undecided the bound is the fit: gains are not too large."""
    rng = np.random.default_rng(6)
    X = rng.standard_normal((60, 4))
    y = X @ [3.0, 2.0, -2.0, 0.5] + 0.1 * rng.standard_normal(60)
    settings = Settings(loss="quadratic", penalty=TrimmedL1(2), alpha=0.01, l2=0.1)
    problem = set_up(check_data(X, y, None, settings), settings).problem
    model = Model(problem, np.zeros(4))
    values = enumerated(model)
    for last in (0, 1):
        state = np.array([1, 1, -1, -1], dtype=np.int8)
        state[last] = 0
        found = model.root.solve(state, np.zeros(4), 0.0, np.inf, 60, 1e-12)
        assert found.bound == pytest.approx(values[0, 1], rel=1e-7)


def test_sparse_curvature():
    """``theta'K theta >= theta'M theta + sum delta theta^2`` for few nonzeros, although K is singular."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 90)) / np.sqrt(60)
    K = X.T @ X
    quadratic = Quadratic(K, np.ones(90), 1.0, np.arange(91), np.full(90, np.inf), np.arange(90), 3)
    spectrum = np.linalg.eigh(K)
    M, delta = separated(quadratic, 0.3, spectrum)
    assert delta.min() > 0.01 > spectrum[0][0]
    least = np.inf
    for _ in range(300):
        theta = np.zeros(90)
        theta[rng.choice(90, 3, replace=False)] = rng.standard_normal(3)
        least = min(least, theta @ K @ theta - theta @ M @ theta - delta @ theta**2)
    assert least > 0
    dense = spectrum[1][:, 0]  # more nonzeros than counted: there the inequality may fail
    assert dense @ K @ dense < dense @ M @ dense + delta @ dense**2


def test_columns_too_close_to_dependent_say_so():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((10, 5))
    X[:, 1] = X[:, 0]
    settings = Settings(loss="quadratic", penalty=TrimmedL1(4), alpha="exact")
    task = set_up(check_data(X, X[:, 0], None, settings), settings)
    with pytest.raises(ValueError, match="l2 must be > 0"):
        Model(task.problem, np.zeros(5))
