"""``n_outliers``: planted outliers, all subsets of small samples, and what it refuses."""

from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp

from trimreg import TrimmedL1, solve
from trimreg.penalties import L1

# -- planted outliers ------------------------------------------------------------------------------


def regression(seed, n=60, p=15):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    y = X[:, 0] - 2 * X[:, 3] + 0.3 * rng.standard_normal(n)
    return X, y, rng


@pytest.mark.parametrize("alpha", ["exact", 0.1])
@pytest.mark.parametrize("seed", range(3))
def test_outliers_of_the_target(seed, alpha):
    X, y, rng = regression(seed)
    planted = np.sort(rng.choice(60, 6, replace=False))
    y[planted] += rng.choice([-1, 1], 6) * 15.0
    result = solve(X, y, penalty=TrimmedL1(2), alpha=alpha, fit_intercept=True, n_outliers=6)
    np.testing.assert_array_equal(result.outliers, planted)
    np.testing.assert_allclose(result.coef[[0, 3]], [1.0, -2.0], atol=0.2)
    assert np.abs(np.delete(result.coef, [0, 3])).max() < 0.1
    assert abs(result.intercept) < 0.2


@pytest.mark.parametrize("convert", [np.asarray, sp.csr_array, np.float32])
def test_outliers_of_high_leverage(convert):
    """They pull a fit to all samples to themselves, so that it shows them small residuals."""
    X, y, _ = regression(4)
    planted = np.array([5, 17, 33, 50])
    X[planted, 0] += 20.0
    y[planted] -= 30.0
    result = solve(
        convert(X), y, penalty=TrimmedL1(2), alpha="exact", fit_intercept=True, standardize=True, n_outliers=4
    )
    np.testing.assert_array_equal(result.outliers, planted)
    np.testing.assert_array_equal(np.flatnonzero(result.coef), [0, 3])


def test_many_outliers_of_high_leverage():
    """A random half of the samples has some of them: what is far out in X is left out first."""
    X, y, _ = regression(5)
    planted = np.arange(0, 60, 4)
    X[planted, 0] += 20.0  # the targets stay, so that nothing shows in them
    options = {"penalty": TrimmedL1(2), "alpha": "exact", "fit_intercept": True, "effort": "low"}
    result = solve(X, y, n_outliers=15, **options)
    np.testing.assert_array_equal(result.outliers, planted)


def test_flipped_labels():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 6))
    eta = 6 * X[:, 1]
    y = (eta > 0).astype(float)
    wrong = np.argsort(-np.abs(eta))[:5]
    y[wrong] = 1 - y[wrong]
    options = {"loss": "logistic", "penalty": TrimmedL1(1), "alpha": "exact", "fit_intercept": True}
    plain = solve(X, y, **options)
    robust = solve(X, y, n_outliers=5, **options)
    np.testing.assert_array_equal(robust.outliers, np.sort(wrong))
    np.testing.assert_array_equal(np.flatnonzero(robust.coef), [1])
    assert robust.coef[1] > 2 * plain.coef[1]


def test_a_class_of_the_wrong_kind():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((90, 4))
    y = np.argmax(X[:, :3] + 0.2 * rng.standard_normal((90, 3)), axis=1).astype(float)
    wrong = np.argsort(-np.ptp(X[:, :3], axis=1))[:4]
    y[wrong] = np.argmin(X[wrong, :3], axis=1)
    result = solve(
        X, y, loss="multinomial", penalty=TrimmedL1(3), alpha=0.01, fit_intercept=True, n_outliers=4
    )
    assert np.isin(result.outliers, wrong).sum() >= 3
    assert result.coef.shape == (3, 4)


def test_survival_against_the_hazard():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((80, 5))
    eta = 2.5 * X[:, 2]
    time = rng.exponential(np.exp(-eta))
    late = np.argsort(-eta)[:4]  # the highest hazards, which outlive all
    time[late] = 10 * time.max() * np.arange(1, 5)
    y = np.column_stack([time, np.ones(80)])
    options = {"loss": "cox", "penalty": TrimmedL1(1), "alpha": "exact"}
    result = solve(X, y, n_outliers=4, **options)
    np.testing.assert_array_equal(result.outliers, np.sort(late))
    assert result.coef[2] > 2.0 > solve(X, y, **options).coef[2]


def test_several_targets_and_groups():
    X, y, rng = regression(6, n=50, p=8)
    Y = np.column_stack([y, -y]) + 0.1 * rng.standard_normal((50, 2))
    Y[[3, 30]] += [[9.0, 9.0], [-9.0, 9.0]]
    penalty = TrimmedL1(1, groups=[0, 1, 1, 0, 2, 2, 3, 3])
    result = solve(X, Y, loss="multitask", penalty=penalty, alpha="exact", fit_intercept=True, n_outliers=2)
    np.testing.assert_array_equal(result.outliers, [3, 30])
    np.testing.assert_array_equal(np.flatnonzero(result.coef.any(axis=0)), [0, 3])


# -- what it minimizes -------------------------------------------------------------------------------


def least_trimmed_squares(X, y, count):
    """The least mean of squares, halved, over all sets of samples that leave so many out."""
    n, best = len(y), np.inf
    Z = np.column_stack([X, np.ones(n)])
    for out in combinations(range(n), count):
        A, b = np.delete(Z, out, axis=0), np.delete(y, out)
        residual = b - A @ np.linalg.lstsq(A, b, rcond=None)[0]
        best = min(best, 0.5 * np.mean(residual**2))
    return best


@pytest.mark.parametrize("kind", ["clean", "targets", "leverage"])
def test_all_subsets_of_a_small_sample(kind):
    found = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((10, 2))
        y = X @ [1.0, -1.0] + 0.5 * rng.standard_normal(10)
        if kind != "clean":
            y[:2] += 10.0
        if kind == "leverage":
            X[:2] -= 10.0
        result = solve(X, y, penalty=TrimmedL1(2), alpha=1.0, fit_intercept=True, n_outliers=2, tol=1e-8)
        best = least_trimmed_squares(X, y, 2)
        assert result.objective >= best * (1 - 1e-9)
        found += result.objective <= best * (1 + 1e-6)
    assert found >= 18  # 97 of 100 on more seeds


@pytest.mark.parametrize("loss", ["quadratic", "logistic", "poisson", "huber", "gamma", "cox"])
@pytest.mark.parametrize("alpha", ["exact", 0.05])
def test_is_the_fit_to_the_samples_kept_and_no_plain_fit_is_better(loss, alpha):
    X, y, rng = regression(7, n=40, p=6)
    if loss == "logistic":
        y = (y > 0).astype(float)
    elif loss in ("poisson", "gamma"):
        y = np.ceil(np.exp(np.clip(y, -2, 3)))
    elif loss == "cox":
        y = np.column_stack([np.exp(-y), rng.random(40) < 0.8]).astype(float)
    options = {"loss": loss, "penalty": TrimmedL1(2), "alpha": alpha, "fit_intercept": True}
    result = solve(X, y, n_outliers=5, **options)
    kept = np.delete(np.arange(40), result.outliers)
    assert kept.size == 35
    refit = solve(X[kept], y[kept], **options)
    # separable classes have no least loss: both ends are 0 but for the tolerance
    assert result.objective == pytest.approx(refit.objective, rel=1e-6, abs=1e-5)
    plain = solve(X, y, **options)
    assert result.objective <= plain.objective
    rng = np.random.default_rng(8)
    for _ in range(3):
        some = rng.permutation(40)[:35]
        if loss != "gamma":  # a sum of logarithms may fall with the larger samples
            assert result.objective <= solve(X[some], y[some], **options).objective + 1e-9


@pytest.mark.parametrize(("n", "count"), [(60, 8), (60, 25), (400, 180)])
@pytest.mark.parametrize("seed", range(3))
def test_outliers_have_the_largest_losses(n, count, seed):
    X, y, _ = regression(seed, n)
    result = solve(X, y, penalty=TrimmedL1(2), alpha="exact", fit_intercept=True, n_outliers=count)
    squares = (y - X @ result.coef - result.intercept) ** 2
    np.testing.assert_array_equal(np.sort(np.argsort(-squares)[:count]), result.outliers)


def test_sample_weights():
    """A sample of weight 0 is none, and is not counted; one of great weight is worth more to leave out."""
    X, y, _ = regression(10)
    y[[2, 7]] += 50.0
    weight = np.ones(60)
    weight[2] = 0.0
    options = {"penalty": TrimmedL1(2), "alpha": "exact", "fit_intercept": True}
    result = solve(X, y, sample_weight=weight, n_outliers=1, **options)
    np.testing.assert_array_equal(result.outliers, [7])
    weight[2], y[2] = 1e-8, 500.0  # its loss hardly counts
    result = solve(X, y, sample_weight=weight, n_outliers=1, **options)
    np.testing.assert_array_equal(result.outliers, [7])
    doubled = solve(np.vstack([X, X]), np.tile(y, 2), n_outliers=4, **options)
    np.testing.assert_array_equal(doubled.outliers, [2, 7, 62, 67])


def test_fractions():
    X, y, _ = regression(11)
    options = {"penalty": TrimmedL1(2), "alpha": 0.1}
    tenth, six = solve(X, y, n_outliers=0.1, **options), solve(X, y, n_outliers=6, **options)
    np.testing.assert_array_equal(tenth.outliers, six.outliers)
    assert tenth.outliers.size == 6
    assert solve(X, y, n_outliers=0.999, **options | {"penalty": L1()}).outliers.size == 59


def test_none_is_the_plain_fit():
    X, y, _ = regression(12)
    options = {"penalty": TrimmedL1(2), "alpha": 0.1}
    plain = solve(X, y, **options)
    for none in (0, np.int64(0), 0.001):
        result = solve(X, y, n_outliers=none, **options)
        np.testing.assert_array_equal(result.coef, plain.coef)
        assert result.outliers is None or result.outliers.size == 0


def test_the_same_seed_gives_the_same_samples():
    X, y, _ = regression(13)
    options = {"penalty": TrimmedL1(3), "alpha": 0.1, "n_outliers": 10}
    a, b = (solve(X, y, random_state=5, **options) for _ in range(2))
    np.testing.assert_array_equal(a.coef, b.coef)
    np.testing.assert_array_equal(a.outliers, b.outliers)


@pytest.mark.filterwarnings("ignore:.*grow without end:sklearn.exceptions.ConvergenceWarning")
def test_an_event_is_kept():
    """Of a few events none may be left if the samples of largest loss go: then there is nothing to fit."""
    rng = np.random.default_rng(14)
    X = rng.standard_normal((20, 3))
    y = np.column_stack([rng.exponential(size=20), np.arange(20) < 2]).astype(float)
    result = solve(X, y, loss="cox", penalty=TrimmedL1(1), alpha=0.1, n_outliers=8)
    assert result.outliers.size == 8
    assert not {0, 1} <= set(result.outliers)


@pytest.mark.parametrize("solver", ["bcd", "dc", "prox"])
def test_other_solvers(solver):
    X, y, _ = regression(15)
    y[[4, 40]] += 30.0
    result = solve(X, y, penalty=TrimmedL1(2), alpha=0.3, solver=solver, fit_intercept=True, n_outliers=2)
    np.testing.assert_array_equal(result.outliers, [4, 40])


# -- what it refuses -----------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [-1, 60, 61, 1.0, 0.0, -0.5, 2.5, np.nan, np.inf, True, "3", None, [1]])
def test_bad_numbers(bad):
    X, y, _ = regression(16)
    with pytest.raises(
        ValueError, match=r"n_outliers must be an integer from 0 to 59.* fraction in \(0, 1\)"
    ):
        solve(X, y, penalty=TrimmedL1(2), alpha=0.1, n_outliers=bad)


def test_weights_must_leave_a_sample():
    X, y, _ = regression(17)
    with pytest.raises(ValueError, match="n_outliers must leave a sample of positive weight; got 3 of 3"):
        solve(X, y, penalty=L1(), alpha=0.1, n_outliers=3, sample_weight=np.arange(60) < 3)


@pytest.mark.parametrize(
    "change", [{"alpha": -1}, {"solver": "none"}, {"y": np.ones(3)}, {"penalty": "none"}]
)
def test_other_arguments_are_checked_too(change):
    X, y, _ = regression(18)
    arguments = {"X": X, "y": y, "penalty": L1(), "alpha": 0.1, "n_outliers": 2} | change
    with pytest.raises(ValueError, match=next(iter(change))):
        solve(**arguments)
