"""Stability selection: against its definition written out, in simulations, and in scikit-learn's hands."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from joblib import parallel_config
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.linear_model import Lasso, LinearRegression, LogisticRegression, MultiTaskLasso
from sklearn.linear_model import OrthogonalMatchingPursuit as MatchingPursuit
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from trimreg import TrimmedLasso
from trimreg.selection import StabilitySelection, auto_hs, error_bound
from trimreg.selection.errorbounds import ASSUMPTIONS, least_threshold
from trimreg.selection.stability import complementary_pairs

# Not run: see tests/estimators/test_sklearn.py.
SKIPPED = {"check_array_api_input"}
NOTHING = "ignore:No features were selected:UserWarning"  # the checks' data are mostly noise


class Screening(RegressorMixin, BaseEstimator):
    """The h features most correlated with y: as fast as an estimator gets. It keeps a log of its fits."""

    log = []  # noqa: RUF012

    def __init__(self, h=1, random_state=None):
        self.h = h
        self.random_state = random_state

    def fit(self, X, y, sample_weight=None, mark=None):
        score = np.abs((X - X.mean(axis=0)).T @ (y - y.mean()))
        self.coef_ = np.zeros(X.shape[1])
        self.coef_[np.argsort(score)[X.shape[1] - self.h :]] = 1.0
        Screening.log.append((self.h, X, y, sample_weight, mark, self.random_state))
        return self


@pytest.fixture(autouse=True)
def _empty_log():
    Screening.log.clear()


def make_data(n=60, p=12, *, signals=3, seed=0, noise=0.5):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    y = X[:, :signals] @ np.array([2.0, -1.5, 1.0])[:signals] + noise * rng.standard_normal(n)
    return X, y


# -- halves ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [4, 5, 20, 21])
def test_pairs_are_disjoint_halves(n):
    halves = complementary_pairs(n, 30, np.random.default_rng(0))
    assert halves.shape == (60, n // 2)
    for first, second in zip(halves[::2], halves[1::2], strict=True):
        both = np.concatenate([first, second])
        assert np.unique(both).size == both.size == 2 * (n // 2)
        assert both.min() >= 0
        assert both.max() < n
        assert (np.diff(first) > 0).all()
    assert len({tuple(half) for half in halves}) > 4  # not one half again and again


def test_samples_are_drawn_alike_and_apart():
    n, n_pairs = 7, 4000
    halves = complementary_pairs(n, n_pairs, np.random.default_rng(0))
    inside = (halves[:, :, None] == np.arange(n)).any(axis=1)
    together = inside.T.astype(float) @ inside / len(halves)
    np.testing.assert_allclose(np.diag(together), 3 / 7, atol=0.02)
    np.testing.assert_allclose(together[~np.eye(n, dtype=bool)], 3 * 2 / (7 * 6), atol=0.02)


def test_classes_are_halved_each():
    classes = np.repeat(["a", "b", "c", "d"], [20, 7, 3, 1])
    halves = complementary_pairs(31, 40, np.random.default_rng(0), classes)
    for first, second in zip(halves[::2], halves[1::2], strict=True):
        for name, size in zip("abcd", (20, 7, 3, 1), strict=True):
            counts = [np.count_nonzero(classes[half] == name) for half in (first, second)]
            assert abs(counts[0] - counts[1]) <= 1
            assert sum(counts) >= size - 1  # one sample of the 31 stays out
    share = np.mean([np.isin(30, half) for half in halves[::2]])
    assert 0.2 < share < 0.8  # the only d is not always on one side


@pytest.mark.parametrize("case", ["classifier", "two values", "numbers"])
def test_which_halves_are_stratified(case):
    class Classifying(ClassifierMixin, Screening):
        pass

    X = np.random.default_rng(0).standard_normal((40, 3))
    y = np.repeat({"classifier": [0, 1, 2], "two values": [-1.0, 3.5], "numbers": [0, 1, 2]}[case], 20)[:40]
    y[-4:] = y[0] + 2 if case != "two values" else y[-1]
    estimator = Classifying() if case == "classifier" else Screening()
    StabilitySelection(estimator, n_pairs=10).fit(X, y)
    even = [
        all(abs(np.sum(half == value) - np.sum(y == value) / 2) <= 0.5 for value in np.unique(y))
        for _, _, half, *_ in Screening.log
    ]
    assert len(even) == 20
    assert all(even) == (case != "numbers")


# -- the definition -------------------------------------------------------------------------------------


def test_every_half_is_fitted_for_every_h():
    X, y = make_data()
    # best alone, but not among the best three
    X[:, 5] = X[:, :3] @ [2.0, -1.5, 1.0] + 0.7 * np.random.default_rng(1).standard_normal(60)
    selector = StabilitySelection(hs=[3, 1, 3], n_pairs=6, random_state=4)
    selector.fit(X, y)
    halves = complementary_pairs(60, 6, np.random.default_rng(4))
    chosen = np.array(
        [[TrimmedLasso(h=h).fit(X[rows], y[rows]).coef_ != 0 for h in (1, 3)] for rows in halves]
    )
    assert selector.hs_ == [1, 3]
    np.testing.assert_array_equal(selector.stability_path_, chosen.mean(axis=0))
    np.testing.assert_array_equal(selector.scores_, chosen.mean(axis=0).max(axis=0))
    assert selector.q_ == pytest.approx(chosen.any(axis=1).sum(axis=1).mean())
    assert selector.q_ > 3  # more than for any one h
    assert selector.error_bound_ == error_bound(selector.q_, 12, 0.75, 6, "r-concave")
    np.testing.assert_array_equal(selector.support_, selector.scores_ >= 0.75)
    assert 2 <= selector.support_.sum() < 12
    np.testing.assert_array_equal(selector.transform(X), X[:, selector.support_])


def test_a_share_that_equals_the_threshold_is_kept():
    X, y = make_data(n=30, noise=8.0)
    scores = StabilitySelection(Screening(), hs=4, n_pairs=5).fit(X, y).scores_
    for threshold in (0.6, 0.7, 0.8, 0.9, 1.0):
        selector = StabilitySelection(Screening(), hs=4, n_pairs=5, threshold=threshold).fit(X, y)
        np.testing.assert_array_equal(selector.support_, scores >= threshold - 1e-12)
    assert len(set(scores)) > 4


@pytest.mark.parametrize("assumption", ASSUMPTIONS)
def test_max_false_takes_the_least_threshold(assumption):
    X, y = make_data(p=40)
    settings = {"hs": 4, "n_pairs": 10, "assumption": assumption}
    for max_false in (0.5, 1.0, 3.0):
        selector = StabilitySelection(Screening(), max_false=max_false, **settings).fit(X, y)
        expected = least_threshold(max_false, 4.0, 40, 10, assumption)
        assert selector.threshold_ == expected
        assert selector.error_bound_ <= max_false
        np.testing.assert_array_equal(selector.support_, selector.scores_ >= expected - 1e-12)


def test_a_max_false_that_cannot_be_met_keeps_nothing():
    X, y = make_data()
    selector = StabilitySelection(Screening(), hs=10, n_pairs=5, max_false=1e-9)
    with pytest.warns(UserWarning, match=r"max_false=1e-09.*10\.0 of 12 features"):
        selector.fit(X, y)
    assert not selector.support_.any()
    assert selector.threshold_ == np.inf
    assert selector.error_bound_ == 0.0


@pytest.mark.parametrize(
    ("p", "threshold", "max_false"), [(200, 0.75, None), (200, 0.9, 2.0), (50, 0.6, 0.2)]
)
def test_the_default_size_meets_the_bound_without_assumptions(p, threshold, max_false):
    X, y = make_data(n=2000, p=p)
    selector = StabilitySelection(Screening(), threshold=threshold, max_false=max_false, n_pairs=5)
    (h,) = selector.fit(X, y).hs_
    target = 1.0 if max_false is None else max_false
    assert error_bound(h, p, threshold, 5, "none") <= target < error_bound(h + 1, p, threshold, 5, "none")
    assert selector.q_ == h


def test_the_default_size_is_at_least_one_and_fits_the_samples():
    X, y = make_data(n=30, p=400)
    assert StabilitySelection(Screening(), n_pairs=2).fit(X, y).hs_ == [auto_hs(15, 400)[-1]]
    assert StabilitySelection(Screening(), n_pairs=2).fit(X[:, :1], y).hs_ == [1]
    counted = StabilitySelection(MatchingPursuit(), param_name="n_nonzero_coefs", n_pairs=2)
    assert counted.fit(X, y).hs_ == [auto_hs(15, 400)[-1]]
    assert (
        StabilitySelection(Screening(), hs="auto", n_pairs=2).fit(X, y).hs_ == auto_hs(15, 400)[1:].tolist()
    )


# -- does it keep its promise ---------------------------------------------------------------------------


@pytest.mark.parametrize("signals", [0, 3])
def test_false_selections_stay_below_the_bound(signals):
    p, false, missed, bounds = 40, [], [], {}
    for seed in range(40):
        X, y = make_data(n=60, p=p, signals=signals, seed=seed)
        selector = StabilitySelection(Screening(), hs=8, threshold=0.6, n_pairs=15).fit(X, y)
        false.append(selector.support_[signals:].sum())
        missed.append(not selector.support_[: min(signals, 2)].all())
        bounds = {name: error_bound(selector.q_, p, 0.6, 15, name) for name in ASSUMPTIONS}
    error = np.std(false) / np.sqrt(40)
    assert np.mean(false) > 0.1  # there is something to bound
    for name in ASSUMPTIONS:
        assert np.mean(false) + 2 * error < bounds[name]
    assert bounds["r-concave"] < 3.5 < bounds["none"]
    assert np.mean(missed) < 0.1


def test_the_trimmed_lasso_finds_the_signals_and_little_else():
    false = 0
    for seed in range(3):
        X, y = make_data(n=80, p=50, seed=seed)
        selector = StabilitySelection(n_pairs=10, max_false=0.5, random_state=seed).fit(X, y)
        assert selector.error_bound_ <= 0.5
        assert selector.support_[:3].all()
        false += selector.support_[3:].sum()
    assert false <= 1


# -- estimators, weights, containers --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimator", "name", "hs"),
    [
        (Lasso(), "alpha", [0.3, 0.5]),
        (Lasso(selection="random"), "alpha", 0.4),
        (MatchingPursuit(), "n_nonzero_coefs", 3),
        (make_pipeline(StandardScaler(), TrimmedLasso(effort="low")), "trimmedlasso__h", [2, 3]),
        (TrimmedLasso(effort="low", alpha=0.3), "h", 2),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseEstimator) else str(value),
)
def test_any_estimator_with_coefficients(estimator, name, hs):
    X, y = make_data(n=100)
    selector = StabilitySelection(estimator, hs=hs, param_name=name, n_pairs=5).fit(X, y)
    assert selector.get_support(indices=True).tolist() == [0, 1, 2]
    assert selector.estimator_ is estimator
    assert not hasattr(estimator, "coef_")  # clones are fitted


def test_classes_may_be_words():
    X, y = make_data(n=120)
    words = np.where(y > 0, "up", "down")
    model = LogisticRegression(l1_ratio=1.0, solver="liblinear")
    selector = StabilitySelection(model, hs=[0.5, 1.0], param_name="C", n_pairs=5).fit(X, words)
    assert selector.support_[:3].all()
    assert selector.scores_[3:].min() < 0.7


def test_a_feature_of_several_targets_is_chosen_if_one_target_does():
    X, y = make_data(n=100)
    Y = np.column_stack([y, 3 * X[:, 7]])
    selector = StabilitySelection(MultiTaskLasso(), hs=[0.5], param_name="alpha", n_pairs=5).fit(X, Y)
    assert selector.get_support(indices=True).tolist() == [0, 1, 2, 7]


def test_sparse_matrices_and_single_precision():
    X, y = make_data()
    X = X * (np.random.default_rng(0).random(X.shape) < 0.5)
    settings = {"hs": [2, 4], "n_pairs": 4}
    dense = StabilitySelection(**settings).fit(X, y)
    for kind in (sp.csr_array, sp.csc_matrix, sp.coo_array):
        np.testing.assert_array_equal(StabilitySelection(**settings).fit(kind(X), y).scores_, dense.scores_)
    assert (
        StabilitySelection(**settings).fit(X.astype(np.float32), y).transform(X[:3].astype("f4")).dtype
        == "f4"
    )


def test_names_in_and_out_of_a_pipeline():
    X, y = make_data()
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(12)])
    selector = StabilitySelection(Screening(), hs=3, n_pairs=5).set_output(transform="pandas")
    assert list(selector.fit_transform(frame, y).columns) == ["x0", "x1", "x2"]
    model = make_pipeline(clone(selector), LinearRegression()).fit(frame, y)
    assert model.score(frame, y) > 0.9
    assert list(model[0].get_feature_names_out()) == ["x0", "x1", "x2"]
    assert model[1].coef_.shape == (3,)


def test_a_sample_of_weight_0_is_none():
    X, y = make_data(noise=4.0)
    weight = np.random.default_rng(0).integers(0, 3, 60).astype(float)
    kept = weight > 0
    selector = StabilitySelection(n_pairs=4, hs=3).fit(X, y, sample_weight=weight)
    without = StabilitySelection(n_pairs=4, hs=3).fit(X[kept], y[kept], sample_weight=weight[kept])
    np.testing.assert_array_equal(selector.stability_path_, without.stability_path_)
    even = StabilitySelection(n_pairs=4, hs=3).fit(X, y)
    assert not np.array_equal(selector.stability_path_, even.stability_path_)
    one = StabilitySelection(n_pairs=4, hs=3).fit(X, y, sample_weight=2.5)
    np.testing.assert_array_equal(one.stability_path_, even.stability_path_)


def test_weights_and_other_arrays_go_with_their_samples():
    X, y = make_data(n=20)
    X[:, 0] = np.arange(20)
    weight = np.arange(20) * 10.0
    StabilitySelection(Screening(), n_pairs=3).fit(X, y, sample_weight=weight, mark=np.arange(20) + 100)
    assert len(Screening.log) == 6
    for _, half, target, weights, mark, _ in Screening.log:
        rows = half[:, 0].astype(int)
        np.testing.assert_array_equal(weights, 10.0 * rows)
        np.testing.assert_array_equal(mark, rows + 100)
        np.testing.assert_array_equal(target, y[rows])
        assert rows.min() > 0
    Screening.log.clear()
    pipeline = make_pipeline(StandardScaler(), Screening())
    StabilitySelection(pipeline, param_name="screening__h", n_pairs=1).fit(X, y, sample_weight=weight)
    assert [np.size(weights) for _, _, _, weights, _, _ in Screening.log] == [9, 9]


# -- chance ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_the_number_of_jobs_does_not_matter(n_jobs):
    X, y = make_data(noise=3.0)
    lasso = Lasso(selection="random", tol=1e-2, max_iter=30)
    settings = {"hs": [0.2, 0.4], "param_name": "alpha", "n_pairs": 4}
    expected = StabilitySelection(lasso, **settings).fit(X, y)
    with parallel_config("threading"):  # processes take seconds to start; test_progress has them
        found = StabilitySelection(lasso, n_jobs=n_jobs, **settings).fit(X, y)
    np.testing.assert_array_equal(found.stability_path_, expected.stability_path_)


def test_the_seed_decides():
    X, y = make_data(noise=6.0)

    def path(random_state):
        selector = StabilitySelection(Screening(), hs=4, n_pairs=4, random_state=random_state)
        return selector.fit(X, y).stability_path_.tolist()

    assert path(1) == path(1) == path(np.random.default_rng(1))
    assert path(None) == path(0) != path(1)
    state = np.random.RandomState(0)
    assert path(state) != path(state)


def test_estimators_get_seeds_where_they_have_none():
    X, y = make_data(n=20)
    StabilitySelection(Screening(), hs=[1, 2], n_pairs=2).fit(X, y)
    seeds = [seed for *_, seed in Screening.log]
    assert all(type(seed) is int for seed in seeds)
    assert seeds[::2] == seeds[1::2]  # one for each half, so that sizes are compared on equal terms
    assert len(set(seeds)) == 4
    Screening.log.clear()
    StabilitySelection(Screening(random_state=7), n_pairs=2).fit(X, y)
    assert {seed for *_, seed in Screening.log} == {7}


def test_progress_is_shown_if_asked(capsys):
    X, y = make_data(n=20)
    StabilitySelection(Screening(), n_pairs=2).fit(X, y)
    assert capsys.readouterr().err == ""
    StabilitySelection(Screening(), n_pairs=2, verbose=2).fit(X, y)
    assert capsys.readouterr().err.splitlines() == [f"stability selection: {k}/4" for k in (1, 2, 3, 4)]


# -- scikit-learn ---------------------------------------------------------------------------------------


@pytest.mark.filterwarnings(NOTHING)
@pytest.mark.parametrize(
    "selector",
    [
        StabilitySelection(n_pairs=2, hs=1),
        StabilitySelection(Lasso(), hs=[0.1], param_name="alpha", n_pairs=2, threshold=0.6),
    ],
    ids=repr,
)
def test_check_estimator(selector):
    results = check_estimator(selector, on_skip=None, on_fail=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] not in ("passed", "skipped")}
    assert failed == {}
    assert {r["check_name"] for r in results if r["status"] == "skipped"} <= SKIPPED
    assert len(results) > 40


def test_clone_and_pickle():
    X, y = make_data()
    selector = StabilitySelection(TrimmedLasso(effort="low"), hs=3, n_pairs=2).fit(X, y)
    again = pickle.loads(pickle.dumps(selector))
    np.testing.assert_array_equal(again.transform(X), selector.transform(X))
    with pytest.raises(NotFittedError):
        clone(selector).transform(X)
    with pytest.raises(NotFittedError):
        StabilitySelection().get_support()


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"threshold": 0.5}, "threshold"),
        ({"threshold": 1.1}, "threshold"),
        ({"n_pairs": 0}, "n_pairs"),
        ({"assumption": "mb"}, "assumption"),
        ({"max_false": 0}, "max_false"),
        ({"hs": [13]}, "hs"),
        ({"hs": []}, "hs"),
        ({"hs": "all"}, "hs"),
        ({"param_name": "size"}, "param_name must be a parameter of TrimmedLasso"),
        ({"param_name": "alpha"}, "hs must be given"),
        ({"param_name": "alpha", "hs": "auto"}, "hs must be given"),
        ({"param_name": "alpha", "hs": []}, "hs must be a list"),
        ({"param_name": "alpha", "hs": "many"}, "hs must be a list"),
        ({"random_state": "seed"}, "random_state"),
        ({"verbose": -1}, "verbose"),
        ({"estimator": KNeighborsRegressor(), "param_name": "p", "hs": [2]}, "KNeighborsRegressor has none"),
        (
            {
                "estimator": make_pipeline(PolynomialFeatures(), TrimmedLasso(effort="low")),
                "param_name": "trimmedlasso__h",
            },
            "one coefficient per feature, 12 in all",
        ),
    ],
    ids=str,
)
def test_bad_parameters_are_named(settings, match):
    X, y = make_data()
    with pytest.raises(ValueError, match=match):
        StabilitySelection(**{"n_pairs": 2, **settings}).fit(X, y)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"sample_weight": np.zeros(60)}, "sample_weight"),
        ({"sample_weight": -np.ones(60)}, "sample_weight"),
        ({"sample_weight": np.ones(59)}, "sample_weight"),
        ({"sample_weight": [1.0] * 3 + [0.0] * 57}, "n_samples=3"),
        ({"mark": np.ones(59)}, "mark must have one entry per sample, 60 in all"),
    ],
)
def test_bad_weights_are_named(arguments, match):
    X, y = make_data()
    with pytest.raises(ValueError, match=match):
        StabilitySelection(Screening(), n_pairs=2).fit(X, y, **arguments)


def test_bad_data_are_named():
    X, y = make_data()
    with pytest.raises(ValueError, match="n_samples=3"):
        StabilitySelection(n_pairs=2).fit(X[:3], y[:3])
    with pytest.raises(
        ValueError, match="must take sample_weight in fit; OrthogonalMatchingPursuit does not"
    ):
        StabilitySelection(MatchingPursuit(), param_name="n_nonzero_coefs").fit(
            X, y, sample_weight=np.ones(60)
        )
    with pytest.warns(DataConversionWarning, match="column-vector"):
        selector = StabilitySelection(Screening(), hs=3, n_pairs=2).fit(X, y[:, None])
    np.testing.assert_array_equal(
        selector.scores_, StabilitySelection(Screening(), hs=3, n_pairs=2).fit(X, y).scores_
    )
