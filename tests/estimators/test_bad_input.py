"""What must be refused: a ``ValueError`` before any work, with the argument and what it may be."""

from importlib import import_module
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp

from trimreg import L1, MCP, SCAD, MEstimator, TrimmedL1, TrimmedLasso, solve, steps
from trimreg.losses import Quadratic

solve_module = import_module("trimreg.estimators.task")  # its name in the package is the function's

N, P = 20, 6
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((N, P)), RNG.standard_normal(N)


def changed(array, place, value):
    array = array.copy()
    array[place] = value
    return array


@pytest.fixture
def refused():
    """``refused(match, X, y, **arguments)``: every entry point refuses them, without making a design."""

    def check(match, X=X, y=Y, *, penalty=None, **arguments):
        arguments = {"alpha": 0.1, **arguments}
        penalty = TrimmedL1(2) if penalty is None else penalty
        fitted = {k: v for k, v in arguments.items() if k not in ("sample_weight", "theta0")}
        own = {k: fitted.pop(k) for k in list(fitted) if k not in MEstimator().get_params()}
        model = MEstimator(penalty=penalty, solver_options=own or None, **fitted)
        with mock.patch.object(solve_module, "as_design", side_effect=AssertionError("work was begun")):
            with pytest.raises(ValueError, match=match):
                solve(X, y, penalty=penalty, **arguments)
            if "max_iter" not in arguments:
                with pytest.raises(ValueError, match=match):
                    steps(X, y, penalty=penalty, **arguments)  # refused on the call, not at the first step
            if "theta0" not in arguments:
                with pytest.raises(ValueError, match=match):
                    model.fit(X, y, sample_weight=arguments.get("sample_weight"))

    return check


@pytest.fixture
def refused_by_lasso():
    """``refused_by_lasso(match, **parameters)``: :class:`TrimmedLasso` refuses these parameters."""

    def check(match, **parameters):
        with (
            mock.patch.object(solve_module, "as_design", side_effect=AssertionError("work was begun")),
            pytest.raises(ValueError, match=match),
        ):
            TrimmedLasso(**parameters).fit(X, Y)

    return check


# -- parameters ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "h", [-1, P + 1, 2.5, 3.0, 0.0, 1.0, 1.5, -0.2, np.nan, np.inf, True, np.True_, "3", "all", [2], 2j]
)
def test_h(h, refused, refused_by_lasso):
    message = r"h must be an integer from 0 to the number of features 6, or a fraction in \(0, 1\); got"
    refused(message, penalty=TrimmedL1(h))
    refused_by_lasso(message, h=h)


@pytest.mark.parametrize(
    "alpha",
    [-0.1, -1, np.nan, np.inf, "Exact", "auto", "", True, np.False_, None, [0.1], 1j, np.array([1.0, 2.0])],
)
def test_alpha(alpha, refused, refused_by_lasso):
    message = "alpha must be 'exact' or a finite number >= 0; got"
    refused(message, alpha=alpha)
    refused_by_lasso(message, alpha=alpha)


@pytest.mark.parametrize("penalty", [L1(), MCP(), SCAD()], ids=repr)
def test_exact_alpha_without_trimming(penalty, refused):
    refused("alpha='exact' is for trimmed penalties", penalty=penalty, alpha="exact")


def test_exact_alpha_with_a_loss_that_has_no_bound(refused):
    class Other(Quadratic):
        name = "other"

        def slope_bound(self, y, d):
            return np.inf

    refused("alpha='exact' needs a loss with a slope_bound; with loss 'other'", loss=Other(), alpha="exact")


@pytest.mark.parametrize("solver", ["MM", "lars", "", None, 3, ["mm"]])
def test_solver(solver, refused, refused_by_lasso):
    message = r"solver must be one of \['bcd', 'dc', 'mm', 'prox'\]; got"
    refused(message, solver=solver)
    refused_by_lasso(message, solver=solver)


@pytest.mark.parametrize("penalty", ["lasso", "", 3, L1, ["l1"]], ids=repr)
def test_penalty(penalty, refused):
    refused(
        r"penalty must be one of \['l1', 'mcp', 'scad', 'slope', 'trimmed_l1'\] or a penalty object; got",
        penalty=penalty,
    )


@pytest.mark.parametrize("loss", ["squared", "", None, 3, Quadratic], ids=repr)
def test_loss(loss, refused):
    refused(r"loss must be one of \['cox', .* 'tweedie'\] or a loss object; got", loss=loss)


@pytest.mark.parametrize("effort", ["extreme", "High", "", None, 1, ["low"]])
@pytest.mark.parametrize("solver", ["mm", "bcd"])
def test_effort(effort, solver, refused, refused_by_lasso):
    message = r"effort must be one of \['low', 'medium', 'high'\]; got"
    refused_by_lasso(message, effort=effort, solver=solver)
    if solver == "mm":
        refused(message, effort=effort)


@pytest.mark.parametrize(
    ("solver", "option", "message"),
    [
        ("dc", {"ties": "random"}, r"ties must be one of \['plain', 'aware'\]"),
        ("prox", {"accelerate": 1}, r"accelerate must be one of \[True, False\]"),
        ("bcd", {"record_stationarity": "no"}, r"record_stationarity must be one of \[True, False\]"),
        ("mm", {"eta": 0.1}, "solver 'mm' has no option 'eta'; it takes effort"),
        ("bcd", {"effort": "low"}, "solver 'bcd' has no option 'effort'; it takes w0, eta, tau"),
        ("prox", {"speed": 3}, "solver 'prox' has no option 'speed'; it takes eta, accelerate"),
    ],
)
def test_options(solver, option, message, refused):
    refused(message, solver=solver, **option)


@pytest.mark.parametrize(
    ("solver", "option"),
    [("bcd", {"eta": -1}), ("bcd", {"tau": 0}), ("dc", {"eta": np.nan}), ("prox", {"eta": "1"})],
)
def test_steps_of_first_order_solvers(solver, option):
    name = next(iter(option))
    with pytest.raises(ValueError, match=f"{name} must be a positive finite number"):
        solve(X, Y, penalty=TrimmedL1(2), alpha=0.1, solver=solver, **option)


@pytest.mark.parametrize("solver_options", [["effort"], "high", {"alpha": 1.0}, {"theta0": None}, 3])
def test_solver_options(solver_options):
    model = MEstimator(solver_options=solver_options)
    with pytest.raises(ValueError, match="solver_options must be a dict of options of the solver"):
        model.fit(X, Y)


@pytest.mark.parametrize("solver", ["bcd", "dc"])
@pytest.mark.parametrize("penalty", ["l1", "mcp", "scad"])
def test_trimming_solvers_with_other_penalties(solver, penalty, refused):
    refused(f"solver '{solver}' is defined for trimmed penalties only", solver=solver, penalty=penalty)


@pytest.mark.parametrize("flag", ["fit_intercept", "standardize", "positive"])
@pytest.mark.parametrize("value", [1, 0, "yes", None, 1.0, [True]])
def test_flags(flag, value, refused, refused_by_lasso):
    message = f"{flag} must be True or False; got"
    refused(message, **{flag: value})
    refused_by_lasso(message, **{flag: value})


@pytest.mark.parametrize("value", [1, "yes", None])
def test_warm_start(value, refused_by_lasso):
    refused_by_lasso("warm_start must be True or False; got", warm_start=value)


@pytest.mark.parametrize("tol", [0, -1e-6, np.nan, np.inf, "small", None, True, 1j])
def test_tol(tol, refused, refused_by_lasso):
    message = "tol must be a finite number > 0.0; got"
    refused(message, tol=tol)
    refused_by_lasso(message, tol=tol)


@pytest.mark.parametrize("max_iter", [0, -1, 1.5, 10.0, np.inf, "many", True])
def test_max_iter(max_iter, refused, refused_by_lasso):
    message = "max_iter must be an integer >= 1; got"
    refused(message, max_iter=max_iter)
    refused_by_lasso(message, max_iter=max_iter)


@pytest.mark.parametrize("random_state", [-1, 1.5, "seed", [1]])
def test_random_state(random_state, refused, refused_by_lasso):
    message = "random_state must be None, an integer >= 0, a Generator or a RandomState; got"
    refused(message, random_state=random_state)
    refused_by_lasso(message, random_state=random_state)


@pytest.mark.parametrize(
    "factor", [np.ones(P - 1), np.ones((P, 1)), [-1.0] * P, [np.nan] * P, "ones", 2.0, ["a"] * P], ids=repr
)
def test_penalty_factor(factor, refused, refused_by_lasso):
    refused("penalty_factor must", penalty=TrimmedL1(2, factor))
    refused("penalty_factor must", penalty=MCP(penalty_factor=factor))
    refused_by_lasso("penalty_factor must", penalty_factor=factor)


@pytest.mark.parametrize("gamma", [1.0, 0.5, np.nan, "3", None])
def test_gamma(gamma, refused):
    refused("gamma must be a number above 1.0; got", penalty=MCP(gamma))
    refused("gamma must be a number above 2.0; got", penalty=SCAD(gamma))


@pytest.mark.parametrize(
    ("theta0", "message"),
    [
        (np.zeros(P - 1), r"theta0 must have shape \(6,\), one number per feature; got shape \(5,\)"),
        (np.zeros((P, 1)), r"theta0 must have shape \(6,\)"),
        (0.0, r"theta0 must have shape \(6,\)"),
        ([np.nan] * P, "theta0 contains NaN at row 0"),
        ([np.inf] * P, "theta0 contains inf at row 0"),
        (["1"] * P, "theta0 must be numeric"),
        ([1j] * P, "theta0 must be real"),
        ([None] * P, "theta0 contains NaN|theta0 must be numeric"),
    ],
)
@pytest.mark.parametrize("solver", ["mm", "prox"])
def test_theta0(theta0, message, solver, refused):
    refused(message, theta0=theta0, solver=solver)


# -- data --------------------------------------------------------------------------------------------------

STORAGE = {
    "dense": np.asarray,
    "float32": lambda A: A.astype(np.float32),
    "fortran": np.asfortranarray,
    "csc": sp.csc_array,
    "csr": sp.csr_matrix,
    "csr-float32": lambda A: sp.csr_array(A.astype(np.float32)),
    "list": lambda A: A.tolist(),
}


@pytest.mark.parametrize("store", STORAGE.values(), ids=STORAGE.keys())
@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "inf"), (-np.inf, "inf")])
def test_X_that_is_not_finite(store, value, word, refused):
    bad = store(changed(X, (7, 2), value))
    refused(f"X contains {word} at row 7, column 2 .and 0 more", bad)
    model = TrimmedLasso().fit(X, Y)
    with pytest.raises(ValueError, match=f"X contains {word} at row 7, column 2"):
        model.predict(bad)


def test_X_that_is_mostly_not_finite(refused):
    refused(r"X contains NaN at row 0, column 0 \(and 119 more NaN or inf\)", np.full((N, P), np.nan))
    both = changed(changed(X, (3, 1), np.inf), (5, 0), -np.inf)  # their sum is no number either
    refused(r"X contains inf at row 3, column 1 \(and 1 more NaN or inf\)", both)


@pytest.mark.parametrize("dtype", [float, np.float32])
@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "inf"), (-np.inf, "inf")])
def test_y_that_is_not_finite(dtype, value, word, refused):
    refused(f"y contains {word} at row 4", y=changed(Y, 4, value).astype(dtype))


@pytest.mark.parametrize("kind", ["mm", "bcd", "dc", "prox"])
def test_finite_numbers_whose_sum_is_not_are_fine(kind):
    large = changed(X, (slice(None), 0), 1e307)
    large[:, 0] *= np.where(X[:, 0] > 0, 1, -1)
    result = solve(large, Y, penalty=TrimmedL1(2), alpha=0.1, standardize=True, solver=kind)
    assert np.isfinite(result.coef).all()


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (Y[:-1], r"y must have shape \(20,\), one number per sample; got shape \(19,\)"),
        (np.append(Y, 1.0), r"y must have shape \(20,\)"),
        (np.column_stack([Y, Y]), r"y must have shape \(20,\), one number per sample; got shape \(20, 2\)"),
        (Y[None, :], r"y must have shape \(20,\)"),
        (3.0, r"y must have shape \(20,\)"),
        (None, "y is None"),
        (["a"] * N, "y must be numeric"),
        (["1.5"] * N, "y must be numeric"),
        (np.array(["1.5"] * N, dtype=object), "y must be numeric; got strings"),
        (np.array(["2020-01-01"] * N, dtype="datetime64[D]"), "y must be numeric"),
        (np.array([{}] * N), "y must be numeric"),
        (Y + 1j, "Complex data not supported: y must be real"),
        (1e160 * Y, "y must be at most 1e152 in absolute value"),
        ([[1.0], [1.0, 2.0]], "y must be an array of numbers"),
    ],
)
def test_y(y, message, refused):
    refused(message, y=y)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.empty((0, P)), "X must be a matrix with at least one row and one column"),
        (np.empty((N, 0)), "X must be a matrix with at least one row and one column"),
        (sp.csr_array((0, P)), "X must be a matrix with at least one row and one column"),
        (sp.csc_array((N, 0)), "X must be a matrix with at least one row and one column"),
        ([], "X must be a matrix"),
        (Y, "X must be a matrix"),
        (3.0, "X must be a matrix"),
        (np.zeros((N, P, 2)), "X must be a matrix"),
        ([[1.0, 2.0], [3.0]], "X must be an array of numbers"),
        (np.full((N, P), "1.0"), "X must be numeric"),
        (np.full((N, P), "1.0", dtype=object), "X must be numeric; got strings"),
        (np.full((N, P), "2020-01-01", dtype="datetime64[D]"), "X must be numeric"),
        (X + 0j, "Complex data not supported: X must be real"),
        (sp.csr_array(X + 0j), "Complex data not supported: X must be real"),
        ((X + 1j).tolist(), "Complex data not supported: X must be real"),
    ],
)
def test_X(bad, message, refused):
    refused(message, bad)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.zeros(N), "sample_weight must not be all zero"),
        (0, "sample_weight must not be all zero"),
        (changed(np.ones(N), 3, -1.0), r"sample_weight must be >= 0; got -1.0 for sample 3"),
        (-1.0, "sample_weight must be >= 0"),
        (changed(np.ones(N), 3, np.nan), "sample_weight contains NaN at row 3"),
        (changed(np.ones(N), 3, np.inf), "sample_weight contains inf at row 3"),
        (np.ones(N - 1), r"sample_weight must have shape \(20,\), one number per sample; got shape \(19,\)"),
        (np.ones((N, 1)), r"sample_weight must have shape \(20,\)"),
        (np.ones(N) + 1j, "sample_weight must be real"),
        (["a"] * N, "sample_weight must be numeric"),
        ("balanced", "sample_weight must be an array of numbers; got .balanced."),
    ],
)
def test_sample_weight(weight, message, refused):
    refused(message, sample_weight=weight)


def test_features_that_change_at_predict():
    for model in (TrimmedLasso(h=2), MEstimator(alpha=0.1)):
        model.fit(X, Y)
        for other in (X[:, :4], np.hstack([X, X]), sp.csr_array(X[:, :4])):
            with pytest.raises(
                ValueError, match=rf"X has {other.shape[1]} features, but .* is expecting 6 features"
            ):
                model.predict(other)
        with pytest.raises(ValueError, match="X must be a matrix"):
            model.predict(Y)
        with pytest.raises(ValueError, match="X must be real"):
            model.predict(X + 0j)
