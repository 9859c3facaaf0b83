"""Groups, several outputs and every loss: against the numbers of the solvers, and against brute force."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp

from trimreg import solve
from trimreg import steps as iter_steps
from trimreg.diagnostics import best_swap, exact_penalty_alpha, is_local_minimum, stationarity
from trimreg.losses import Huber, Loss, get_loss
from trimreg.penalties import L1, MCP, TrimmedL1

P = 6
LABEL = np.array([0, 0, 1, 1, 1, 2])
NAMES = ("quadratic", "logistic", "multinomial", "poisson", "gamma", "huber", "cox", "multitask")
LOSSES = {**{name: name for name in NAMES}, "huber, given scale": Huber(scale=0.5)}
PARTS = {"singles": {}, "groups": {"groups": LABEL}, "largest": {"groups": LABEL, "q": np.inf}}
#: Each loss with two kinds of parts, each kind with two thirds of the losses.
PAIRS = [(name, list(PARTS)[(i + k) % 3]) for i, name in enumerate(LOSSES) for k in (0, 1)]


def data(name, seed=0, n=40):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, P)) + 0.3 * rng.standard_normal((n, 1)) + [0, 0, 1, 0, -2, 0]
    eta = X[:, 0] - 0.7 * X[:, 3]
    y = {
        "logistic": lambda: (eta + rng.logistic(size=n) > 0) * 1.0,
        "multinomial": lambda: np.argmax(np.outer(eta, [1, -1, 0]) + rng.gumbel(size=(n, 3)), axis=1) * 1.0,
        "poisson": lambda: rng.poisson(np.exp(np.clip(eta, -3, 2))) * 1.0,
        "gamma": lambda: np.exp(eta) * rng.gamma(2.0, size=n),
        "cox": lambda: (
            np.column_stack([np.ceil(4 * rng.exponential(np.exp(-eta))), rng.random(n) < 0.8]) * 1.0
        ),
        "multitask": lambda: np.outer(eta, [1, -0.5]) + 0.3 * rng.standard_normal((n, 2)),
    }.get(name, lambda: eta + 0.3 * rng.standard_normal(n))()
    return X, y


def both(name, parts, *, seed=0, h=1, alpha=0.05, penalty=TrimmedL1, convert=np.asarray, **options):
    """A fit, and the setting of the problem for the diagnostics."""
    X, y = data(name, seed)
    penalty = penalty(h, **PARTS[parts]) if penalty is TrimmedL1 else penalty(**PARTS[parts])
    setting = {"loss": LOSSES[name], "penalty": penalty, "fit_intercept": True, "standardize": True} | options
    result = solve(X, y, alpha=alpha, tol=1e-8, **setting)
    return convert(X), y, result, setting | {"alpha": result.alpha}


# -- stationarity ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "parts"), PAIRS)
def test_stationarity_is_that_of_the_solver(name, parts):
    """At the solution it is 0; elsewhere it is the solver's own number, from other arithmetic."""
    X, y, result, setting = both(name, parts)
    at = {"intercept": result.intercept, "weights": result.weights}
    assert stationarity(X, y, result.coef, **at, **setting) < 1e-12
    for steps in (1, 5):
        walk = iter_steps(X, y, solver="bcd", **setting)
        early = [next(walk) for _ in range(steps)][-1]
        at = {"intercept": early.intercept, "weights": early.weights}
        assert early.stationarity > 1e-10
        found = stationarity(X, y, early.coef, **at, **setting)
        assert found == pytest.approx(early.stationarity, rel=1e-6)


@pytest.mark.parametrize("penalty", [L1, MCP])
@pytest.mark.parametrize("parts", PARTS)
def test_stationarity_of_other_penalties(penalty, parts):
    for name in ("multinomial", "poisson"):
        X, y, result, setting = both(name, parts, penalty=penalty, convert=sp.csr_array)
        assert stationarity(X, y, result.coef, intercept=result.intercept, **setting) < 1e-12
        other = result.intercept + np.array([0.1, 0.0, 0.0]) if name == "multinomial" else 0.0
        assert stationarity(X, y, result.coef, intercept=other, **setting) > 1e-5  # intercepts count


def test_stationarity_by_hand():
    """Two outputs, one feature: g is a row, and the penalty pulls along it."""
    X, Y = np.array([[1.0], [-1.0]]), np.array([[3.0, 4.0], [-3.0, -4.0]])
    options = {"loss": "multitask", "penalty": TrimmedL1(0), "alpha": 2.0}
    # at 0 the gradient is -(3, 4), of length 5: 3 beyond alpha
    assert stationarity(X, Y, [[0.0], [0.0]], **options) == pytest.approx(9.0)
    # the solution is (3, 4) shrunk by 2 of 5
    assert stationarity(X, Y, [[1.8], [2.4]], **options) == pytest.approx(0.0, abs=1e-25)
    assert stationarity(X, Y, [[1.8], [2.4]], intercept=[0.5, 0.0], fit_intercept=True, **options) == (
        pytest.approx(0.25)
    )


# -- local minima --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "parts"), PAIRS)
def test_the_solver_ends_at_a_local_minimum(name, parts):
    for alpha in (0.05, "exact"):
        X, y, result, setting = both(name, parts, alpha=alpha)
        check = is_local_minimum(X, y, result.coef, intercept=result.intercept, **setting)
        assert check, check
        for convert in (sp.csc_array, np.float32):
            assert is_local_minimum(convert(X), y, result.coef, intercept=result.intercept, **setting)
        off = np.array(result.coef)
        off.reshape(-1, P)[0, 0] += 0.01
        assert not is_local_minimum(X, y, off, intercept=result.intercept, **setting)


def trimmed_objective(X, y, coef, q, h, alpha):
    """F of least squares with groups, written out."""
    lengths = np.array([np.linalg.norm(coef[g == LABEL], ord=q) for g in range(3)])
    r = np.sort(np.sqrt([2, 3, 1]) * lengths)
    return 0.5 * np.mean((y - X @ coef) ** 2) + alpha * r[: 3 - h].sum()


@pytest.mark.parametrize("q", [2, np.inf])
@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_says_what_F_does(q, alpha):
    """The minimum for each set of free groups is one of F if, and only if, no point around it is lower."""
    rng = np.random.default_rng(0)
    answers = []
    for seed in range(4):
        X, y = data("quadratic", seed)
        for h in (1, 2):
            for free in combinations(range(3), h):
                factor = np.sqrt([2.0, 3.0, 1.0])
                factor[list(free)] = 0.0
                held = solve(X, y, penalty=L1(factor, groups=LABEL, q=q), alpha=alpha, tol=1e-10).coef
                penalty = TrimmedL1(h, groups=LABEL, q=q)
                answers.append(bool(is_local_minimum(X, y, held, penalty=penalty, alpha=alpha)))
                here = trimmed_objective(X, y, held, q, h, alpha)
                around = [
                    trimmed_objective(X, y, held + size * step, q, h, alpha) - here
                    for size in (1e-3, 1e-5)
                    for step in rng.standard_normal((300, P)) * (rng.random((300, P)) < 0.5)
                ]
                if answers[-1]:
                    assert min(around) > -1e-12
                elif not np.any(held == 0):  # directions at random do not find a ray of descent from zeros
                    assert min(around) < 0
    assert 0 < sum(answers) < len(answers)


@pytest.mark.parametrize(
    ("coef", "options", "coordinate", "reason"),
    [
        ([0, 0, 0, 0, 0, 0], {}, 0, "fewer than h groups are nonzero, so this one is free too"),
        ([1, 1, 0, 0, 0, 0], {}, 0, "its group is free, but its gradient is not 0"),
        ([4, 3, 0, 0, 0, 0], {}, 2, "its group is zero and penalized, but the dual norm of the gradient"),
        (
            [4, 3, 1, 0, 0, 0],
            {},
            2,
            "its group is nonzero and penalized, but its gradient is not -alpha times",
        ),
        ([0, 0, 0, 0, 0, 5], {"factor": [0, 1, 1]}, 0, "its group is never penalized"),
        ([4, 3, 0, 0, 0, 1], {"factor": [np.inf, 1, 1]}, 0, "its group is excluded"),
        ([3, 4, 3, 4, 0, 0], {"factor": [1, 1, 1]}, 0, "its group's magnitude ties with others"),
    ],
)
def test_reasons_for_groups(coef, options, coordinate, reason):
    X, y = np.sqrt(P) * np.eye(P), np.sqrt(P) * np.array([4.0, 3.0, 2.0, 2.0, 1.0, 0.5])
    penalty = TrimmedL1(1, options.get("factor"), groups=LABEL)
    check = is_local_minimum(X, y, coef, penalty=penalty, alpha=0.5)
    assert not check
    assert check.coordinate == coordinate
    assert check.reason.startswith(reason)


def test_reasons_for_rows():
    X, Y = np.sqrt(2) * np.eye(2), np.sqrt(2) * np.array([[3.0, 4.0], [0.6, 0.8]])
    options = {"loss": "multitask", "penalty": TrimmedL1(1)}
    assert is_local_minimum(X, Y, [[3.0, 0.0], [4.0, 0.0]], alpha=1.0001, **options)
    check = is_local_minimum(X, Y, [[3.0, 0.0], [4.0, 0.0]], alpha=0.9, **options)
    assert (check.coordinate, check.reason) == (
        1,
        "it is zero and penalized, but the dual norm of the gradient exceeds alpha times its factor",
    )
    check = is_local_minimum(X, Y, [[0.0, 0.0], [0.0, 0.0]], alpha=0.9, **options)
    assert check.reason.startswith("fewer than h features are nonzero")
    check = is_local_minimum(
        X, Y, [[3.0, 0.0], [4.0, 0.0]], alpha=2.0, intercept=[0.0, 1.0], fit_intercept=True, **options
    )
    assert not check


def test_the_sizes_of_columns_in_a_group_do_not_matter():
    """A small column beside large ones is judged by the size of its group."""
    X, y = data("quadratic")
    X = X * [1.0, 1e-4, 1e5, 1e5, 1e5, 1.0]
    penalty = TrimmedL1(1, groups=LABEL)
    result = solve(X, y, penalty=penalty, alpha="exact", tol=1e-8)
    assert is_local_minimum(X, y, result.coef, penalty=penalty, alpha=result.alpha)
    X, y = np.sqrt(2) * np.diag([1.0, 1e-6]), np.sqrt(2) * np.array([1.0, 1e-3])
    for groups, holds in (([0, 0], True), ([0, 1], False)):  # the gradient left is 1e-9
        penalty = TrimmedL1(len(set(groups)), groups=groups)
        assert bool(is_local_minimum(X, y, [1.0, 0.0], penalty=penalty, alpha=1.0)) == holds


# -- the exact penalty -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "parts"), PAIRS)
def test_exact_alpha_is_that_of_the_solver(name, parts):
    for factor in (None, [0.0, 1.0, 2.0] if parts != "singles" else [0.0, 1, 1, 2, np.inf, 3]):
        X, y = data(name)
        weight = np.linspace(0.5, 2.0, len(X))
        setting = {"sample_weight": weight, "fit_intercept": True, "standardize": False, "loss": LOSSES[name]}
        penalty = TrimmedL1(1, factor, **PARTS[parts])
        result = solve(X, y, penalty=penalty, alpha="exact", **setting)
        found = exact_penalty_alpha(X, y, penalty_factor=factor, **PARTS[parts], **setting)
        assert found == pytest.approx(result.alpha, rel=1e-9)


@pytest.mark.parametrize(("name", "parts"), PAIRS)
def test_no_gradient_is_larger_where_the_loss_is_below_its_start(name, parts):
    """What the threshold rests on, at points on the way from 0 to the best fit and beside it."""
    X, y = data(name)
    n, d = len(X), np.full(len(X), 1 / len(X))
    loss = get_loss(LOSSES[name]).bound(y, d)
    penalty = TrimmedL1(0, **PARTS[parts]).bind(P, loss.n_outputs)
    alpha = exact_penalty_alpha(X, y, loss=LOSSES[name], **PARTS[parts])
    best = np.asarray(solve(X, y, loss=LOSSES[name], penalty=L1(), alpha=0.0).coef).T
    start = loss.value(np.zeros((n, loss.n_outputs) if loss.multi_output else n), y, d)
    rng, largest, seen = np.random.default_rng(1), 0.0, 0
    for step in np.linspace(0.0, 2.0, 60):
        eta = X @ (step * best + 0.2 * rng.standard_normal(best.shape))
        if loss.value(eta, y, d) <= start:
            gradient = (X.T @ loss.gradient(eta, y, d)).ravel()
            pull = penalty.norm.dual_lengths(gradient) / penalty.levels(1.0)
            largest, seen = max(largest, pull.max()), seen + 1
    assert seen > 5
    assert 0.0 < largest <= alpha


def test_exact_alpha_of_rows_counts_a_column_once():
    """A row of K coefficients has the gradient z'G, in l2 at most the norm of z times that of G."""
    X, Y = np.array([[1.0], [-1.0]]), np.array([[3.0, 4.0], [-3.0, -4.0]])
    assert exact_penalty_alpha(X, Y, loss="multitask") == pytest.approx(5.0, rel=2e-6)
    assert exact_penalty_alpha(X, Y, loss="multitask", q=np.inf) == pytest.approx(5 * np.sqrt(2), rel=2e-6)


def test_exact_alpha_needs_a_bound():
    class Steep(Loss):
        name = "steep"

        def gradient(self, eta, y, d):
            return d

    with pytest.raises(ValueError, match="loss must have a slope_bound"):
        exact_penalty_alpha(np.eye(2), np.ones(2), loss=Steep())


# -- what is refused ---------------------------------------------------------------------------------------


def test_swaps_are_of_single_coefficients_of_least_squares():
    X, y = data("quadratic")
    with pytest.raises(ValueError, match="penalty must not have groups"):
        best_swap(X, y, np.zeros(P), penalty=TrimmedL1(1, groups=LABEL), alpha=1.0)
    X, Y = data("multitask")
    for loss in ("multitask", "logistic", "cox"):
        with pytest.raises(ValueError, match="loss must be 'quadratic'"):
            best_swap(X, Y, np.zeros((2, P)), penalty=TrimmedL1(1), alpha=1.0, loss=loss)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"coef": np.zeros(P)}, r"coef must be a matrix of shape \(2, 6\); got shape \(6,\)"),
        ({"coef": np.zeros((P, 2))}, "coef must be a matrix"),
        ({"coef": np.full((2, P), np.nan)}, "coef must hold finite"),
        ({"coef": "no"}, "coef must be a matrix"),
        ({"intercept": np.zeros(3)}, "intercept must be a vector of 2"),
        ({"intercept": "no"}, "intercept must be"),
        ({"y": np.zeros(40)}, r"y must be a matrix of shape \(40, any\)"),
        ({"y": np.zeros((39, 2))}, "y must be a matrix"),
        ({"positive": True}, "positive, lower and upper must be left off"),
        ({"penalty": TrimmedL1(1, groups=[0, 1])}, "groups must hold a label"),
        ({"penalty": TrimmedL1(7)}, "h must be"),
        ({"penalty": TrimmedL1(1, q=1)}, "q must be 2 or inf"),
        ({"weights": np.ones(2 * P)}, "weights must hold 6 numbers"),
        ({"weights": np.ones(P)}, "weights must sum to the number of penalized coordinates, 5"),
    ],
)
def test_bad_arguments_are_named(change, name):
    X, y = data("multitask")
    arguments = {"X": X, "y": y, "coef": np.zeros((2, P)), "penalty": TrimmedL1(1), "alpha": 0.1} | change
    with pytest.raises(ValueError, match=name):
        stationarity(loss="multitask", **arguments)
    if "weights" not in change:
        with pytest.raises(ValueError, match=name):
            is_local_minimum(loss="multitask", **arguments)


def test_positive_is_for_single_coefficients():
    X, y = data("quadratic")
    with pytest.raises(ValueError, match="positive, lower and upper must be left off"):
        stationarity(X, y, np.zeros(P), penalty=TrimmedL1(1, groups=LABEL), alpha=0.1, positive=True)
