"""The surface over h and alpha: against fits from nothing, cell by cell, and by certificates."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import PolynomialFeatures

from trimreg import TrimmedL1, diagnostics, solve, trimmed_path
from trimreg.estimators.task import Settings, check_data, set_up
from trimreg.selection import auto_hs
from trimreg.selection.path import count_samples, features_in, solve_path
from trimreg.solvers import surface as module

HS = [0, 1, 2, 4, 6]
ALPHAS = ["exact", 0.3, 0.1, 0.01]
PENALTY = ("penalty_factor", "groups", "q")


def arguments(options):
    """Arguments of the penalty, and of ``solve``, that arguments of a path stand for."""
    penalty = {name: options[name] for name in PENALTY if name in options}
    rest = {name: value for name, value in options.items() if name not in (*PENALTY, "effort", "verbose")}
    return penalty, {"fit_intercept": True, "standardize": True, **rest}


def cold(X, y, path, **options):
    """Fits of every cell from nothing."""
    penalty, rest = arguments(options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # columns without variation
        return [
            [solve(X, y, penalty=TrimmedL1(int(h), **penalty), alpha=alpha, **rest) for alpha in path.alphas]
            for h in path.hs
        ]


def assert_certified(X, y, path, **options):
    """That every cell is what it says, and a local minimum."""
    penalty, rest = arguments(options)
    for i, h in enumerate(path.hs):
        for j, alpha in enumerate(path.alphas):
            result = path.results[i][j]
            assert result.converged
            assert result.stationarity < 1e-9
            check = diagnostics.is_local_minimum(
                X, y, result.coef, penalty=TrimmedL1(int(h), **penalty), alpha=result.alpha,
                intercept=result.intercept, tol=1e-4, **rest,
            )  # fmt: skip
            assert check.holds, (h, alpha, check)
            np.testing.assert_array_equal(path.coefs[i, j], result.coef)
            np.testing.assert_array_equal(path.intercepts[i, j], result.intercept)
            assert path.objectives[i, j] == result.objective
            assert path.alpha_values[i, j] == result.alpha


def assert_as_good_as_cold(X, y, path, share=0.95, **options):
    fits = cold(X, y, path, **options)
    ratio = path.objectives / np.array([[fit.objective for fit in row] for row in fits])
    assert np.mean(ratio <= 1.001) >= share
    assert np.mean(np.abs(ratio - 1) < 1e-6) > 0.7
    np.testing.assert_allclose(path.alpha_values, [[fit.alpha for fit in row] for row in fits], rtol=1e-12)


# -- every cell ------------------------------------------------------------------------------------------


def test_cells_of_least_squares_are_as_good_as_fits_from_nothing(make):
    X, y = make(n=60, p=30, shared=0.5)
    path = trimmed_path(X, y, hs=range(5))
    assert path.coefs.shape == (5, 21, 30)
    assert_as_good_as_cold(X, y, path)
    assert_certified(X, y, path)


@pytest.mark.parametrize(
    "loss", ["logistic", "multinomial", "poisson", "gamma", "huber", "cox", "multitask", "quadratic"]
)
def test_cells_of_every_loss(make, loss):
    X, y = make(loss, n=70, p=8)
    path = trimmed_path(X, y, HS, ["exact", 0.2, 0.05, 0.01], loss=loss)
    outputs = {"multinomial": (3,), "multitask": (2,)}.get(loss, ())
    assert path.coefs.shape == (5, 4, *outputs, 8)
    assert path.intercepts.shape == (5, 4, *outputs)
    assert_as_good_as_cold(X, y, path, loss=loss)
    assert_certified(X, y, path, loss=loss)
    assert np.all(path.n_nonzero[:, 0] <= path.hs)
    np.testing.assert_array_equal(path.n_nonzero[:, 0], features_in(path.coefs, 2)[:, 0].sum(axis=1))


PAIRS = np.repeat(np.arange(6), 2)


@pytest.mark.parametrize(
    "options",
    [
        {"positive": True},
        {"penalty_factor": [0.0, np.inf, *[1.0] * 9, 2.0]},
        {"groups": PAIRS},
        {"groups": PAIRS, "q": np.inf},
        {"sample_weight": np.arange(60.0)},
        {"fit_intercept": False, "standardize": False},
        {"fit_intercept": False, "effort": "high"},
        {"effort": "low"},
    ],
    ids=lambda options: "-".join(options),
)
def test_cells_with_every_option(make, options):
    X, y = make()
    path = trimmed_path(X, y, HS, ALPHAS, **options)
    assert_as_good_as_cold(X, y, path, **options)
    assert_certified(X, y, path, **options)
    if "positive" in options:
        assert path.coefs.min() == 0.0
    if "penalty_factor" in options:
        assert path.coefs[..., 0].all()
        assert not path.coefs[..., 1].any()
    if "groups" in options:
        inside = path.coefs != 0
        np.testing.assert_array_equal(inside[..., ::2], inside[..., 1::2])


@pytest.mark.parametrize(
    ("form", "dtype"),
    [
        (np.asfortranarray, np.float32), (np.ascontiguousarray, np.float64), (sp.csc_array, np.float64),
        (sp.csr_matrix, np.float32),
    ],
)  # fmt: skip
def test_cells_of_every_form_of_x(make, form, dtype):
    X, y = make(zeros=0.5)
    X = X.astype(dtype)
    path = trimmed_path(form(X), y, HS, ALPHAS)
    assert path.coefs.dtype == dtype
    plain = trimmed_path(np.asarray(X, dtype=float), y, HS, ALPHAS)
    np.testing.assert_allclose(path.objectives, plain.objectives, rtol=1e-6)
    np.testing.assert_allclose(path.coefs, plain.coefs, atol=1e-4)


def test_more_features_than_samples_and_h_up_to_them(make):
    X, y = make(n=25, p=60)
    path = trimmed_path(X, y, [0, 1, 3, 12, 22, 23, 24, 60], ["exact", 0.5, 0.1, 0.01])
    assert_certified(X, y, path)
    assert np.all(np.diff(path.objectives, axis=0) <= 1e-7)
    few = path.hs <= 3
    fits = cold(X, y, path)
    ratio = path.objectives / np.array([[max(fit.objective, 1e-300) for fit in row] for row in fits])
    assert np.mean(ratio[few] <= 1.001) > 0.9


@pytest.mark.parametrize("seed", range(2))
def test_columns_outside_the_gram_matrix(make, monkeypatch, seed):
    X, y = make(n=70, p=700, seed=seed, shared=0.2)
    hs, alphas = [0, 2, 4], ["exact", 0.4, 0.15, 0.05]
    whole = trimmed_path(X, y, hs, alphas)
    sizes = []
    original = module._LeastSquares._columns
    monkeypatch.setattr(module, "_ALL_COLUMNS", 50)
    monkeypatch.setattr(
        module._LeastSquares, "_columns", lambda self, W: (sizes.append(W.size), original(self, W))
    )
    path = trimmed_path(X, y, hs, alphas)
    assert max(sizes) < 700
    assert len(sizes) > 1  # columns that the penalty does not hold were taken in
    assert sizes == sorted(sizes)
    assert_certified(X, y, path)
    assert np.mean(path.objectives <= 1.001 * whole.objectives) >= 0.75
    assert np.all(path.objectives <= 1.1 * whole.objectives)


# -- orders, grids, degenerate data ----------------------------------------------------------------------


def test_orders_and_repetitions_of_the_grid_do_not_matter(make):
    X, y = make()
    path = trimmed_path(X, y, [4, 0, 2, 4, 0.5], [0.01, "exact", 0.3, 0.01, 0.1])
    assert path.hs.tolist() == [0, 2, 4, 6]
    assert path.alphas == ["exact", 0.3, 0.1, 0.01]
    again = trimmed_path(X, y, [0, 2, 4, 6], ALPHAS)
    np.testing.assert_array_equal(path.coefs, again.coefs)


def assert_monotone(path, rtol=1e-9):
    """That F does not rise with h, nor fall as alpha rises: any coefficients obey both."""
    F = path.objectives
    slack = rtol * np.abs(F).max()
    assert np.all(np.diff(F, axis=0) <= slack)
    assert np.all(np.diff(F, axis=1) <= slack)


def drawn(rng, form):
    """Small data: Gaussian, with ties, with equal columns, or with nearly equal ones."""
    n, p = rng.integers(8, 40), rng.integers(2, 30)
    X = rng.standard_normal((n, p)) if form != "ties" else rng.integers(-1, 2, (n, p)).astype(float)
    if "equal" in form:
        X = X[:, rng.integers(0, p, p)]
    if form == "nearly equal":
        X = X + 1e-3 * rng.standard_normal((n, p))
    y = X[:, :3].sum(axis=1) + rng.standard_normal(n)
    return X, np.round(y) if form == "ties" else y


@given(
    seed=st.integers(0, 10**6),
    form=st.sampled_from(["gaussian", "ties", "equal", "nearly equal"]),
    effort=st.sampled_from(["low", "medium"]),
    option=st.sampled_from([{}, {"positive": True}, {"l2": 0.1}, {"fit_intercept": False}]),
)
@settings(max_examples=25, deadline=None, derandomize=True)
def test_objectives_fall_with_h_and_rise_with_alpha(seed, form, effort, option):
    rng = np.random.default_rng(seed)
    X, y = drawn(rng, form)
    hs = rng.integers(0, min(X.shape[1], 15) + 1, rng.integers(2, 8))
    alphas = ["exact", *np.exp(rng.uniform(-6, 0, rng.integers(1, 6)))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # h may reach the number of samples
        assert_monotone(trimmed_path(X, y, hs, alphas, effort=effort, **option))


@pytest.mark.parametrize(
    ("hs", "alphas", "effort"),
    [
        (range(21), ["exact", 30, 10, 3.09, 1, 0.3], "medium"),
        ([0, 1, 2, 4, 8, 16], ["exact", 3.09], "low"),
    ],
)
def test_objectives_of_diabetes_are_monotone(hs, alphas, effort):
    X, y = load_diabetes(return_X_y=True)
    X = PolynomialFeatures(2, include_bias=False).fit_transform(X)
    assert_monotone(trimmed_path(X, y, hs, alphas, effort=effort))


@pytest.mark.parametrize("option", [{"groups": np.arange(12) // 2}, {"loss": "huber"}, {"loss": "poisson"}])
def test_objectives_of_other_models_are_monotone(make, option):
    X, y = make(option.get("loss", "quadratic"), n=50, p=12, seed=5)
    path = trimmed_path(X, y, range(7), ["exact", 0.5, 0.2, 0.1, 0.03, 0.01], **option)
    assert_monotone(path)
    assert np.all(path.alpha_values[:, 0] > 0.5)


# -- a path and single fits ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "option",
    [{}, {"positive": True}, {"groups": np.arange(40) // 2}, {"loss": "logistic"}, {"l2": 0.05}],
    ids=lambda option: "-".join(option) or "least squares",
)
def test_best_subsets_are_no_worse_than_single_fits(make, option):
    hs, slow = range(1, 7), "loss" in option or "groups" in option
    for seed in range(1 if slow else 3):
        X, y = make(option.get("loss", "quadratic"), n=60, p=40, seed=seed, shared=0.8)
        path = trimmed_path(X, y, hs, "exact", **option)
        fits = cold(X, y, path, **option)
        single = np.array([[fit.objective for fit in row] for row in fits])
        assert np.all(path.objectives <= single * (1 + 1e-9))
        assert_monotone(path)


def test_swap_optimal_cells_have_no_better_swap():
    rng = np.random.default_rng(0)
    marked = 0
    for form in ("gaussian", "ties", "equal", "nearly equal"):
        X, y = drawn(rng, form)
        hs = range(min(6, X.shape[1] + 1))
        Z, target = X - X.mean(axis=0), y - y.mean()
        for (result,) in trimmed_path(X, y, hs, "exact").results:
            if not result.swap_optimal:
                continue
            marked += 1
            inside = set(np.flatnonzero(result.coef))
            found = rss(Z, target, inside)
            for leave in inside:
                others = set(range(X.shape[1])) - inside
                rivals = [rss(Z, target, inside - {leave} | {j}) for j in others]
                assert found <= min(rivals, default=np.inf) + 1e-9 * (target @ target)
    assert marked > 10


def rss(Z, target, columns):
    block = Z[:, sorted(columns)]
    return np.sum((target - block @ np.linalg.lstsq(block, target, rcond=None)[0]) ** 2)


def test_unverified_paths_are_grown_only(make, monkeypatch):
    """Folds do not pay for single fits, and their cells carry no marks."""
    monkeypatch.setattr(module, "normalized_steps", lambda *_: pytest.fail("a single fit was made"))
    X, y = make()
    plain = Settings(penalty=TrimmedL1(0), alpha=0.0)
    task = set_up(check_data(X, y, None, plain), plain)
    path = solve_path(task, np.arange(4), ["exact"], effort="medium", verify=False)
    assert [row[0].swap_optimal for row in path.results] == [None] * 4


def test_automatic_grids(make):
    X, y = make(n=60, p=30)
    path = trimmed_path(X, y)
    assert path.hs.tolist() == auto_hs(60, 30).tolist()
    assert len(path.alphas) == 21
    assert not path.coefs[0, 0].any()  # the first alpha is the least that leaves nothing in the lasso
    assert path.coefs[0, 1].any()
    np.testing.assert_allclose(path.alphas[-1] / path.alphas[0], 1e-3)
    wide = trimmed_path(X[:20], y[:20], hs=[0], effort="low")
    np.testing.assert_allclose(wide.alphas[-1] / wide.alphas[0], 0.05)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_first_automatic_alpha_follows_the_units_of_y(make, scale):
    X, y = make()
    plain, scaled = (trimmed_path(X, factor * y, hs=[0, 2]) for factor in (1.0, scale))
    np.testing.assert_allclose(scaled.alphas, scale * np.array(plain.alphas), rtol=1e-9)
    np.testing.assert_allclose(scaled.coefs, scale * plain.coefs, rtol=1e-4, atol=1e-6 * scale)


def test_one_h_and_one_alpha(make):
    X, y = make()
    path = trimmed_path(X, y, 0, 0.1)
    assert path.coefs.shape == (1, 1, 12)
    assert_as_good_as_cold(X, y, path)
    unpenalized = trimmed_path(X, y, [0, 3], [0.0])
    centred = X - X.mean(axis=0)
    ols = np.linalg.lstsq(centred, y - y.mean(), rcond=None)[0]
    np.testing.assert_allclose(unpenalized.coefs, np.broadcast_to(ols, (2, 1, 12)), atol=1e-4)


def test_a_constant_target_has_empty_models(make):
    X, _ = make()
    for alphas in ("auto", ["exact", 0.1]):
        path = trimmed_path(X, np.full(60, 3.3), [0, 1, 5], alphas)
        assert not path.coefs.any()
        np.testing.assert_allclose(path.intercepts, 3.3)


def test_constant_and_equal_columns(make):
    X, y = make()
    X[:, 3], X[:, 4], X[:, 5] = 7.0, 0.0, X[:, 0]
    path = trimmed_path(X, y, [0, 1, 2, 5, 12], ["exact", 0.3, 0.01])
    assert not path.coefs[..., [3, 4]].any()
    assert_certified(X, y, path)
    assert_as_good_as_cold(X, y, path)


@pytest.mark.parametrize("loss", ["quadratic", "poisson"])
def test_weights_are_repetitions(make, loss):
    X, y = make(loss, n=30, p=8)
    times = np.random.default_rng(0).integers(0, 4, 30)
    alphas = "auto" if loss == "quadratic" else ["exact", 0.1]
    weighted = trimmed_path(X, y, "auto", alphas, loss=loss, sample_weight=times)
    repeated = trimmed_path(X.repeat(times, axis=0), y.repeat(times), "auto", alphas, loss=loss)
    np.testing.assert_array_equal(weighted.hs, repeated.hs)
    if alphas == "auto":  # what "exact" stands for is a bound, which may differ
        np.testing.assert_allclose(weighted.alphas, repeated.alphas, rtol=1e-6)
    np.testing.assert_allclose(weighted.objectives, repeated.objectives, rtol=1e-6)


@pytest.mark.parametrize(
    ("weights", "count"),
    [(None, 3), ([2, 0, 5, 1], 8), ([0.1, 0, 0.1, 0.8], 3), (2.0, 6), ([1e308, 1e308, 1e308, 0], 2.0**53)],
)
def test_number_of_samples_that_weights_stand_for(weights, count):
    d = np.array([0.2, 0.0, 0.5, 0.3]) if np.ndim(weights) == 0 else np.asarray(weights, dtype=float)
    assert count_samples(weights, d) == count


def test_number_of_samples_of_a_part():
    d = np.array([0.5, 0.25, 0.25])
    assert count_samples([4, 2, 2], d, times=np.array([1, 0, 3])) == 10
    assert count_samples(d, d, times=np.array([1, 0, 3])) == 4


def test_results_repeat_to_the_bit(make):
    X, y = make("poisson", n=40, p=6)
    first, second = (trimmed_path(X, y, [0, 1, 3], ["exact", 0.1], loss="poisson") for _ in range(2))
    np.testing.assert_array_equal(first.coefs, second.coefs)


def test_an_exact_cell_that_was_cut_short_is_finished(make, monkeypatch):
    from dataclasses import replace

    from trimreg.selection import path as room

    def careless(*given, **options):
        steps = module.surface(*given, **options)
        return [[replace(step, theta=step.theta + 0.01) for step in row] for row in steps]

    monkeypatch.setattr(room, "surface", careless)
    X, y = make()
    path = trimmed_path(X, y, [0, 1, 3], ["exact", 0.1])
    np.testing.assert_array_equal(path.n_nonzero, [[0, 12], [1, 12], [3, 12]])


def test_a_mapped_path_has_arrays_of_its_results(make):
    from dataclasses import replace

    X, y = make()
    path = trimmed_path(X, y, HS, ALPHAS)
    doubled = path.mapped(lambda result: replace(result, coef=2 * result.coef))
    np.testing.assert_array_equal(doubled.coefs, 2 * path.coefs)
    assert doubled.results[1][2].coef[0] == 2 * path.results[1][2].coef[0]
    assert doubled.alphas == path.alphas


# -- what is said and refused ----------------------------------------------------------------------------


def test_progress_is_told_where_there_is_no_terminal(make, capsys):
    X, y = make()
    trimmed_path(X, y, [0, 1, 2], [0.3, 0.1], verbose=2)
    assert capsys.readouterr().err.splitlines() == [f"fits: {k}/6" for k in range(1, 7)]
    trimmed_path(X, y, [0, 1, 2], [0.3, 0.1])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        ({"hs": "all"}, "hs"),
        ({"hs": []}, "hs"),
        ({"hs": [0, 13]}, r"hs\[1\]"),
        ({"hs": [-1]}, r"hs\[0\]"),
        ({"hs": {1: 2}}, "hs"),
        ({"alphas": "some"}, "alphas"),
        ({"alphas": []}, "alphas"),
        ({"alphas": [0.1, -1.0]}, r"alphas\[1\]"),
        ({"alphas": [np.nan]}, r"alphas\[0\]"),
        ({"effort": "huge"}, "effort"),
        ({"groups": [0, 1]}, "groups"),
        ({"groups": np.arange(12) // 2, "positive": True}, "positive"),
        ({"penalty_factor": [1.0]}, "penalty_factor"),
        ({"loss": "nothing"}, "loss"),
        ({"verbose": -1}, "verbose"),
        ({"verbose": "yes"}, "verbose"),
        ({"tol": 0.0}, "tol"),
        ({"sample_weight": [1.0]}, "sample_weight"),
        ({"q": 3}, "q"),
        ({"random_state": "x"}, "random_state"),
    ],
    ids=str,
)
def test_bad_arguments_are_named_before_any_fit(make, monkeypatch, bad, named):
    from trimreg.selection import path as room

    monkeypatch.setattr(room, "surface", lambda *_, **__: pytest.fail("a fit was made"))
    X, y = make()
    with pytest.raises(ValueError, match=named):
        trimmed_path(X, y, **bad)


def test_the_exact_threshold_needs_a_bound_of_the_loss(make):
    from trimreg.losses import Quadratic

    class Unbounded(Quadratic):
        name = "unbounded"

        def slope_bound(self, y, d):
            return np.inf

    X, y = make()
    with pytest.raises(ValueError, match="slope_bound"):
        trimmed_path(X, y, [1], ["exact", 0.1], loss=Unbounded())
    assert trimmed_path(X, y, [1], [0.1], loss=Unbounded()).coefs.any()


def test_weights_may_be_a_tensor_or_another_array(make, exchange):
    torch = pytest.importorskip("torch")
    X, y = make("quadratic")
    w = np.random.default_rng(0).uniform(0.5, 2.0, len(y)).astype(np.float32)
    expected = trimmed_path(X, y, hs=[1, 2], alphas=["exact", 0.1], sample_weight=w)
    for weights in (torch.tensor(w, requires_grad=True), exchange(w)):
        found = trimmed_path(X, y, hs=[1, 2], alphas=["exact", 0.1], sample_weight=weights)
        np.testing.assert_allclose(found.coefs, expected.coefs, atol=1e-12)
    half = trimmed_path(X, y, hs=[1], sample_weight=torch.tensor(w).bfloat16())
    assert np.isfinite(half.coefs).all()
