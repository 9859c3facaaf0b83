"""The ridge term: its known limits, rows added to X, every design, every solver, and the certificates."""

import itertools
import json

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import ElasticNet, LogisticRegression, Ridge

import trimreg
from trimreg import (
    MEstimator,
    MultiTaskTrimmedLasso,
    OnDisk,
    StabilitySelection,
    TrimmedCoxRegressor,
    TrimmedGroupLasso,
    TrimmedL1,
    TrimmedLasso,
    TrimmedLogisticRegression,
    TrimmedPoissonRegressor,
    solve,
    solve_batch,
    steps,
    trimmed_path,
)
from trimreg.diagnostics import best_swap, is_local_minimum, stationarity
from trimreg.diagnostics.candidate import read_candidate

N, P = 60, 14
L2 = 0.3


def data(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, P)) + 0.7 * rng.standard_normal((N, 1))
    X[:, 5] = X[:, 0] + 0.05 * rng.standard_normal(N)
    y = X[:, :4] @ [1.0, -1.0, 2.0, 0.5] + rng.standard_normal(N)
    return X, y


def with_rows(X, y, l2, factor=None):
    """The data with one row per column, whose least squares are the ridge term."""
    n, p = X.shape
    factor = np.ones(p) if factor is None else factor
    return np.vstack([X, np.diag(np.sqrt(l2 * n * factor))]), np.append(y, np.zeros(p)), n / (n + p)


# -- known limits -----------------------------------------------------------------------------------------


def test_without_trimming_it_is_the_elastic_net():
    X, y = data()
    ours = TrimmedLasso(h=0, alpha=0.2, l2=L2, standardize=False, tol=1e-12).fit(X, y)
    total = 0.2 + L2
    theirs = ElasticNet(alpha=total, l1_ratio=0.2 / total, tol=1e-15, max_iter=100_000).fit(X, y)
    assert ours.coef_ == pytest.approx(theirs.coef_, abs=1e-8)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=1e-8)


def test_with_all_free_it_is_ridge():
    X, y = data()
    ours = TrimmedLasso(h=P, alpha=0.2, l2=L2, standardize=False, tol=1e-12).fit(X, y)
    assert ours.coef_ == pytest.approx(Ridge(alpha=L2 * N).fit(X, y).coef_, abs=1e-8)


@pytest.mark.parametrize("cuts", [[0.0], [-1.0, 1.0]], ids=["two classes", "three"])
def test_with_all_free_it_is_logistic_regression(cuts):
    X, y = data()
    y = np.digitize(y, cuts)
    ours = TrimmedLogisticRegression(h=P, alpha=0.2, l2=L2, standardize=False, tol=1e-13).fit(X, y)
    theirs = LogisticRegression(C=1 / (L2 * N), solver="newton-cg", tol=1e-12, max_iter=10_000).fit(X, y)
    assert ours.predict_proba(X) == pytest.approx(theirs.predict_proba(X), abs=1e-8)
    assert ours.coef_ == pytest.approx(theirs.coef_, abs=1e-8)


@pytest.mark.parametrize("alpha", ["exact", 0.1, 0.02])
@pytest.mark.parametrize("factors", [False, True], ids=["equal", "factors"])
def test_it_equals_the_fit_with_added_rows(alpha, factors):
    for seed, h in itertools.product(range(3), (1, 3, 6)):
        X, y = data(seed)
        factor = np.random.default_rng(seed).choice([0.0, 0.5, 2.0], size=P) if factors else None
        ours = solve(X, y, penalty=TrimmedL1(h, factor), alpha=alpha, l2=L2, tol=1e-12)
        tall, target, share = with_rows(X, y, L2, factor)
        theirs = solve(tall, target, penalty=TrimmedL1(h, factor), alpha=share * ours.alpha, tol=1e-12)
        assert ours.coef == pytest.approx(theirs.coef, abs=1e-8)
        assert share * ours.objective == pytest.approx(theirs.objective, rel=1e-12)


@pytest.mark.parametrize("solver", ["mm", "bcd", "prox", "dc"])
def test_exact_still_keeps_at_most_h(solver):
    X, y = data()
    for h, l2 in itertools.product((0, 1, 4), (1e-8, 1e-2, 1.0, 1e4)):
        assert (
            np.count_nonzero(solve(X, y, penalty=TrimmedL1(h), alpha="exact", l2=l2, solver=solver).coef) <= h
        )


def test_best_subsets_are_those_of_enumeration():
    for seed in range(4):
        X, y = data(seed)
        X, y = X[:, :9] - X[:, :9].mean(axis=0), y - y.mean()

        def value(S, X=X, y=y):
            Z = X[:, S]
            theta = np.linalg.solve(Z.T @ Z / N + L2 * np.eye(len(S)), Z.T @ y / N)
            return 0.5 * np.mean((y - Z @ theta) ** 2) + 0.5 * L2 * theta @ theta

        for h in (1, 2, 4):
            lowest = min(value(list(S)) for S in itertools.combinations(range(9), h))
            found = solve(X, y, penalty=TrimmedL1(h), alpha="exact", l2=L2, effort="high")
            assert found.objective == pytest.approx(lowest, rel=1e-10)
            assert found.swap_optimal


# -- solvers, losses, groups ------------------------------------------------------------------------------

MODELS = {
    "quadratic": lambda **options: TrimmedLasso(h=3, **options),
    "logistic": lambda **options: TrimmedLogisticRegression(h=3, **options),
    "multinomial": lambda **options: TrimmedLogisticRegression(h=3, **options),
    "poisson": lambda **options: TrimmedPoissonRegressor(h=3, **options),
    "huber": lambda **options: MEstimator(loss="huber", penalty=TrimmedL1(3), standardize=True, **options),
    "cox": lambda **options: TrimmedCoxRegressor(h=3, **options),
    "groups": lambda **options: TrimmedGroupLasso(np.repeat(np.arange(7), 2), h=3, **options),
    "multitask": lambda **options: MultiTaskTrimmedLasso(h=3, **options),
}


def target(kind, y):
    return {
        "logistic": lambda: (y > 0).astype(int),
        "multinomial": lambda: np.digitize(y, [-1.0, 1.0]),
        "poisson": lambda: np.floor(np.exp(0.5 * y)),
        "cox": lambda: np.column_stack([np.exp(-0.5 * y), y > -1.0]),
        "multitask": lambda: np.column_stack([y, np.roll(y, 3)]),
    }.get(kind, lambda: y)()


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("l2", [1e-3, 1.0])
def test_a_fit_is_a_local_minimum_of_what_it_says(kind, l2):
    X, y = data()
    y = target(kind, y)
    model = MODELS[kind](alpha=0.05, l2=l2, tol=1e-9).fit(X, y)
    problem = model.problem(X, y)
    assert problem["l2"] == l2
    assert model.stationarity_ < 1e-14
    assert stationarity(**problem) == pytest.approx(model.stationarity_, abs=1e-13)
    assert is_local_minimum(**problem)
    assert not is_local_minimum(**problem | {"l2": 0.5 * l2})


@pytest.mark.parametrize("kind", ["logistic", "multinomial", "cox", "poisson", "groups", "multitask"])
def test_the_gradient_is_that_of_differences(kind):
    X, y = data()
    X, y = X - X.mean(axis=0), target(kind, y)
    model = MODELS[kind](alpha=0.05, l2=L2).fit(X, y)
    problem = model.problem(X, y)
    moved = problem["coef"] + 1e-3
    at = read_candidate(**problem | {"coef": moved})
    for j in (0, 5):
        step = np.zeros_like(moved)
        step[..., j] = 1e-5
        ends = [read_candidate(**problem | {"coef": moved + sign * step, "alpha": 0.0}) for sign in (1, -1)]
        change = (ends[0].objective() - ends[1].objective()) / 2
        scale = at.data.columns.scale[j] * 1e-5
        slope = at.gradient.reshape(P, -1)[j].sum() * scale
        assert change == pytest.approx(slope, rel=1e-5, abs=1e-12)


@pytest.mark.parametrize("solver", ["bcd", "prox", "dc"])
@pytest.mark.parametrize("loss", ["quadratic", "logistic", "poisson"])
def test_every_solver_stays_at_the_minimum_of_the_default(solver, loss):
    X, y = data()
    y = np.floor(np.exp(0.5 * y)) if loss == "poisson" else target(loss, y)
    setting = {"loss": loss, "penalty": TrimmedL1(3), "alpha": 0.05, "l2": L2}
    best = solve(X, y, **setting, tol=1e-11)
    options = {"w0": best.weights} if solver == "bcd" else {}
    there = solve(X, y, **setting, solver=solver, theta0=best.coef, tol=1e-8, **options)
    assert there.objective == pytest.approx(best.objective, rel=1e-12)
    assert there.coef == pytest.approx(best.coef, abs=1e-6)
    first = next(iter(steps(X, y, **setting, solver=solver)))
    assert first.objective >= best.objective


# -- designs ----------------------------------------------------------------------------------------------


def on_disk(X, folder):
    np.save(folder / "X.npy", X)
    return OnDisk(folder / "X.npy")


def in_chunks(X, folder):
    return pytest.importorskip("dask.array", reason="needs the extra cluster").from_array(X, chunks=(20, P))


def as_tensor(X, folder):
    return pytest.importorskip("torch").tensor(X)


def on_gpu(X, folder):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    return torch.tensor(X, device="cuda")


@pytest.mark.parametrize("place", [lambda X, _: sp.csr_array(X), on_disk, in_chunks, as_tensor, on_gpu])
@pytest.mark.parametrize("kind", ["quadratic", "logistic", "multitask"])
def test_every_design_gives_the_same(place, kind, tmp_path):
    X, y = data()
    y = target(kind, y)
    for alpha in ("exact", 0.05):
        near = MODELS[kind](alpha=alpha, l2=L2, tol=1e-9).fit(X, y)
        far = MODELS[kind](alpha=alpha, l2=L2, tol=1e-9).fit(place(X, tmp_path), y)
        assert far.coef_ == pytest.approx(near.coef_, abs=1e-7)


# -- paths, batches, resampling, files --------------------------------------------------------------------


def test_a_path_has_the_fits():
    X, y = data()
    path = trimmed_path(X, y, hs=[0, 2, 4], alphas=["exact", 0.1], l2=L2, tol=1e-10)
    for i, h in enumerate(path.hs):
        for j, alpha in enumerate(path.alphas):
            single = TrimmedLasso(h=int(h), alpha=alpha, l2=L2, tol=1e-10).fit(X, y)
            assert path.objectives[i, j] == pytest.approx(single.objective_, rel=1e-9)


@pytest.mark.parametrize(
    ("form", "loss"), [("samples", "quadratic"), ("gram", "quadratic"), ("samples", "logistic")]
)
def test_a_batch_has_the_fits(form, loss):
    X, y = data()
    y = target(loss, y)
    batch = solve_batch(X, y, h=3, alpha=[0.05, 0.1], l2=L2, loss=loss, form=form, fit_intercept=True)
    for row, alpha in enumerate((0.05, 0.1)):
        one = solve(
            X, y, penalty=TrimmedL1(3), alpha=alpha, l2=L2, loss=loss, solver="bcd", fit_intercept=True,
            record_stationarity=False,
        )  # fmt: skip
        assert batch.coef[row] == pytest.approx(one.coef, abs=1e-6)
        assert batch.objective[row] == pytest.approx(one.objective, rel=1e-8)
        assert batch.stationarity[row] < 1e-10


def test_resampling_passes_it_on():
    X, y = data()
    weak, strong = (
        trimreg.Bootstrap(TrimmedLasso(h=3, l2=l2), n_replicates=5).fit(X, y).coefs_ for l2 in (0.0, 100.0)
    )
    assert np.abs(strong).max() < 0.1 * np.abs(weak).max()
    chosen = StabilitySelection(TrimmedLasso(l2=100.0), hs=3, n_pairs=3).fit(X, y)
    assert chosen.scores_.shape == (P,)


def test_it_is_in_the_summary_and_in_the_file(tmp_path):
    X, y = data()
    model = TrimmedLasso(h=3, l2=0.25).fit(X, y)
    assert model.l2_ == 0.25
    assert model.summary().to_dict()["facts"]["l2"] == 0.25
    assert "l2" not in TrimmedLasso(h=3).fit(X, y).summary().to_dict()["facts"]
    trimreg.save(model, tmp_path / "model.json")
    assert json.loads((tmp_path / "model.json").read_text())["l2"] == 0.25
    assert trimreg.load(tmp_path / "model.json").predict(X) == pytest.approx(model.predict(X))


# -- swaps ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", ["exact", 0.1])
def test_swaps_are_scored_as_with_added_rows(alpha):
    for seed in range(4):
        X, y = data(seed)
        # One MM run from a poor start: a local minimum that swaps improve.
        penalty = TrimmedL1(3)
        start = np.eye(P)[7] + np.eye(P)[9] + np.eye(P)[11]
        found = solve(X, y, penalty=penalty, alpha=alpha, l2=L2, theta0=start, effort="low", tol=1e-12)
        ours = best_swap(X, y, found.coef, penalty=penalty, alpha=found.alpha, l2=L2)
        tall, target_, share = with_rows(X, y, L2)
        theirs = best_swap(tall, target_, found.coef, penalty=penalty, alpha=share * found.alpha)
        assert (ours.leaves, ours.enters) == (theirs.leaves, theirs.enters)
        assert share * ours.gain == pytest.approx(theirs.gain, rel=1e-9)
        assert alpha != "exact" or ours.exact


def test_more_free_coefficients_than_samples_are_determined():
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((10, 30)), rng.standard_normal(10)
    found = solve(X, y, penalty=TrimmedL1(15), alpha="exact", l2=0.1, tol=1e-10)
    assert np.count_nonzero(found.coef) == 15
    assert found.converged
    assert is_local_minimum(X, y, found.coef, penalty=TrimmedL1(15), alpha=found.alpha, l2=0.1)


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf, "much", None, [0.1, 0.2], True])
def test_a_bad_l2_is_named(bad):
    X, y = data()
    for call in (
        lambda: solve(X, y, penalty=TrimmedL1(3), alpha=0.1, l2=bad),
        lambda: TrimmedLasso(l2=bad).fit(X, y),
        lambda: trimmed_path(X, y, l2=bad),
        lambda: solve_batch(X, y, h=3, alpha=0.1, l2=bad),
        lambda: stationarity(X, y, np.zeros(P), penalty=TrimmedL1(3), alpha=0.1, l2=bad),
    ):
        with pytest.raises(ValueError, match="l2 must be"):
            call()
